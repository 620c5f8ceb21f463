//! The run loop: which partition is read next, and when windows close.
//!
//! The only place that sees both sentences and cells. Its result depends on the inputs and the plan alone: partitions are
//! taken in the order of their names and their event times, never of their speed.

mod batch;
mod workers;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashSet;

use crate::cell::{Cell, Precision};
use crate::decode::tally::Tally;
use crate::decode::{self, Accepted, Decoder, Record};
use crate::engine::clock::{Lateness, NO_WATERMARK, Outlook, PartitionClock};
use crate::engine::{ClosedWindow, DueWindow, Engine, Event, Pairs, Selection};
use crate::filter::{Filter, Filtered, Verdict};
use crate::row::{Row, Tenths};
use crate::sink::SinkError;
use crate::sink::late::{LateReport, LateSource};
use crate::source::{Chunk, Input, ReadOptions, ReadOutcome, Reader, SourceError};
use crate::time::Timestamp;
use crate::window::WindowSpec;
use workers::{Given, Workers};

/// What a run's result depends on, besides its inputs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How sentences are read and when they happened.
    pub decode: decode::Options,
    /// The windows.
    pub window: WindowSpec,
    /// How long a window waits.
    pub lateness: Lateness,
    /// Length of the cells' geohash.
    pub precision: Precision,
    /// Which windows the run is about.
    pub selection: Selection,
    /// Which reports are counted.
    pub filter: Filter,
    /// How inputs are read. No result depends on it.
    pub read: ReadOptions,
    /// How many threads read and decode, this one included. No result depends on it.
    pub threads: usize,
}

/// Where a run's output goes.
pub trait Output {
    /// Takes the rows of a window; windows come in order.
    ///
    /// # Errors
    ///
    /// Where they cannot be written: that ends the run.
    fn rows(&mut self, rows: &[Row]) -> Result<(), SinkError>;

    /// Takes a report that came too late for a window. `partition` numbers the inputs in their order.
    fn late(&mut self, partition: usize, late: &dyn Fn() -> LateReport);

    /// Is told how far the run is, every so often.
    fn progress(&mut self, progress: &Progress);
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read, as stored.
    pub stored_bytes: u64,
    /// Lines decoded.
    pub lines: u64,
    /// Reports accepted.
    pub accepted: u64,
    /// Late pairs.
    pub late: u64,
}

/// What an input came to.
#[derive(Clone, Debug)]
pub struct PartitionOutcome {
    /// What it is called.
    pub name: String,
    /// Whether the command line names it, rather than its directory.
    pub named: bool,
    /// The fates of its sentences.
    pub tally: Tally,
    /// Accepted reports that a filter left out.
    pub filtered: Filtered,
    /// Earliest event time.
    pub first_time: Option<Timestamp>,
    /// Latest event time.
    pub last_time: Option<Timestamp>,
    /// What reading it told.
    pub read: ReadOutcome,
}

/// What was emitted.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Rows.
    pub rows: u64,
    /// Windows with at least one row.
    pub windows: u64,
    /// Reports in all rows.
    pub count: u64,
    /// SOG in all rows.
    pub sog_sum: Tenths,
    /// Reports without SOG in all rows.
    pub sog_missing: u64,
    /// Distinct cells.
    pub cells: HashSet<Cell>,
    /// Distinct MMSIs.
    pub vessels: HashSet<u32>,
    /// First and last window start.
    pub span: Option<(i64, i64)>,
}

impl Totals {
    /// Takes note of a window, in whatever order they come.
    fn add(&mut self, window: &ClosedWindow) {
        self.windows += 1;
        self.rows += window.cells.len() as u64;
        for (cell, aggregate) in &window.cells {
            self.count += aggregate.count;
            self.sog_sum.0 += aggregate.sog_sum;
            self.sog_missing += aggregate.sog_missing;
            self.cells.insert(*cell);
            self.vessels.extend(aggregate.vessels.iter());
        }
        let (first, last) = self.span.unwrap_or((window.start, window.start));
        self.span = Some((first.min(window.start), last.max(window.start)));
    }
}

/// The rows of a window, which the totals take note of.
fn finish(window: DueWindow, totals: &Mutex<Totals>) -> Vec<Row> {
    let window = window.in_order();
    totals.lock().unwrap_or_else(PoisonError::into_inner).add(&window);
    window.cells.iter().map(|(cell, aggregate)| Row::new(*cell, window.start, aggregate)).collect()
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its inputs, in order.
    pub partitions: Vec<PartitionOutcome>,
    /// The (report, window) pairs.
    pub pairs: Pairs,
    /// What was emitted.
    pub totals: Totals,
}

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An input broke off.
    #[error("{error}")]
    Source {
        /// Which and why.
        error: SourceError,
        /// Windows that had been emitted by then.
        windows_emitted: u64,
    },
    /// The output failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

enum State {
    /// Not read yet; what a look ahead found, if there was one.
    Waiting(Option<Outlook>),
    Open(Box<Open>),
    Done(Box<PartitionOutcome>),
}

struct Open {
    /// `None` where workers have it.
    reader: Option<Box<Reader>>,
    /// Bytes read, as stored.
    stored_bytes: u64,
    decoder: Decoder,
    clock: PartitionClock,
    filtered: Filtered,
    first_time: Option<Timestamp>,
}

/// Reads every input through the engine.
///
/// # Errors
///
/// Where an input breaks off or the output fails. What the inputs gave that far must not be taken for the whole.
pub fn run(inputs: &[Input], plan: &Plan, output: &mut dyn Output) -> Result<Outcome, RunError> {
    let totals = Arc::new(Mutex::new(Totals::default()));
    Run {
        inputs,
        plan,
        states: Vec::with_capacity(inputs.len()),
        order: VecDeque::new(),
        engine: Engine::new(plan.window, plan.selection.clone()),
        records: HashSet::new(),
        workers: (plan.threads > 1).then(|| Workers::start(plan, Arc::clone(&totals))),
        totals,
        finished: Progress::default(),
        output,
    }
    .go()
}

struct Run<'a> {
    inputs: &'a [Input],
    plan: &'a Plan,
    states: Vec<State>,
    /// In which order partitions that wait are likely to be read.
    order: VecDeque<usize>,
    engine: Engine,
    /// Shard, sequence and sub-sequence number of every record so far: each counts once in a run.
    records: HashSet<(String, Option<u64>)>,
    totals: Arc<Mutex<Totals>>,
    /// What the partitions that are done have added to the progress.
    finished: Progress,
    /// None where one thread does everything.
    workers: Option<Workers>,
    output: &'a mut dyn Output,
}

impl Run<'_> {
    fn go(mut self) -> Result<Outcome, RunError> {
        for input in self.inputs {
            let outlook = self.look_ahead(input).map_err(|error| self.broken(error))?;
            self.states.push(State::Waiting(outlook));
        }
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        order.sort_by_key(|place| self.standing(&self.states[*place]));
        self.order = order.into();
        while let Some(next) = self.furthest_behind() {
            self.advance(next)?;
            let bound = self.bound();
            self.close(bound)?;
        }
        self.close(i64::MAX)?;
        let partitions = self.states.into_iter().filter_map(|state| match state {
            State::Done(outcome) => Some(*outcome),
            State::Waiting(_) | State::Open(_) => None,
        });
        let totals = std::mem::take(&mut *self.totals.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Outcome { partitions: partitions.collect(), pairs: self.engine.pairs(), totals })
    }

    fn broken(&self, error: SourceError) -> RunError {
        RunError::Source { error, windows_emitted: self.windows_emitted() }
    }

    /// Between two chunks, every window that is finished has been emitted.
    fn windows_emitted(&self) -> u64 {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).windows
    }

    /// Finds the first two accepted reports of an input, where windows close before the end and the input can be read
    /// again.
    fn look_ahead(&self, input: &Input) -> Result<Option<Outlook>, SourceError> {
        if self.plan.lateness == Lateness::Unbounded || !input.can_be_read_twice() {
            return Ok(None);
        }
        let mut reader = input.open(ReadOptions { digest: None, ..self.plan.read.clone() })?;
        // Records may turn out to be duplicates of another input's, so a look at them promises nothing.
        if reader.gives_records() {
            return Ok(None);
        }
        let mut decoder = Decoder::new(self.plan.decode.clone());
        let mut times = [None, None];
        while times[1].is_none() {
            let Chunk::Lines(lines) = reader.next_chunk()? else { break };
            decoder.lines(lines, |accepted| {
                if let Some(free) = times.iter_mut().find(|time| time.is_none()) {
                    *free = Some(accepted.time);
                }
            });
        }
        // An input without any report holds no window back.
        let nothing = Outlook { first: Timestamp::from_nanos(i64::MAX), bound: i64::MAX };
        Ok(Some(Outlook::new(self.plan.lateness, times[0], times[1]).unwrap_or(nothing)))
    }

    /// The partition to read next: the one whose event time is least. One that nothing is known of comes before all.
    fn furthest_behind(&self) -> Option<usize> {
        let states = self.states.iter().enumerate();
        let standings = states.filter_map(|(place, state)| Some((self.standing(state)?, place)));
        standings.min().map(|(_, place)| place)
    }

    /// The event time at which a partition counts as standing; `None` once it is done.
    fn standing(&self, state: &State) -> Option<i64> {
        let unbounded = self.plan.lateness == Lateness::Unbounded;
        match state {
            // Nothing closes before the end: one after the other, with one open at a time.
            State::Open(_) if unbounded => Some(i64::MIN),
            State::Waiting(_) if unbounded => Some(0),
            State::Waiting(outlook) => Some(outlook.map_or(i64::MIN, |outlook| outlook.first.nanos())),
            State::Open(open) => Some(open.clock.event_time().map_or(i64::MIN, Timestamp::nanos)),
            State::Done(_) => None,
        }
    }

    /// No partition can add to a window that ends at or before this.
    fn bound(&self) -> i64 {
        let bounds = self.states.iter().map(|state| match state {
            State::Waiting(outlook) => outlook.map_or(NO_WATERMARK, |outlook| outlook.bound),
            State::Open(open) => open.clock.watermark(),
            State::Done(_) => i64::MAX,
        });
        // At the end everything closes anyway, after the last partition.
        if self.plan.lateness == Lateness::Unbounded { NO_WATERMARK } else { bounds.min().unwrap_or(i64::MAX) }
    }

    fn close(&mut self, bound: i64) -> Result<(), RunError> {
        let mut ahead = 0;
        loop {
            let Some(workers) = &self.workers else {
                let Some(window) = self.engine.take_due(bound) else { return Ok(()) };
                self.output.rows(&finish(window, &self.totals))?;
                continue;
            };
            while ahead < self.plan.threads
                && let Some(window) = self.engine.take_due(bound)
            {
                workers.finish(window);
                ahead += 1;
            }
            if ahead == 0 {
                return Ok(());
            }
            ahead -= 1;
            self.output.rows(&workers.next_rows())?;
        }
    }

    /// Reads one chunk of a partition.
    fn advance(&mut self, place: usize) -> Result<(), RunError> {
        let input = &self.inputs[place];
        if matches!(self.states[place], State::Waiting(_)) {
            self.prepare_next(place);
            let reader = match &self.workers {
                Some(_) => None,
                None => Some(Box::new(input.open(self.plan.read.clone()).map_err(|error| self.broken(error))?)),
            };
            self.states[place] = State::Open(Box::new(Open {
                reader,
                stored_bytes: 0,
                decoder: Decoder::new(self.plan.decode.clone()),
                clock: PartitionClock::new(self.plan.lateness),
                filtered: Filtered::default(),
                first_time: None,
            }));
        }
        let windows_emitted = self.windows_emitted();
        let State::Open(open) = &mut self.states[place] else { return Ok(()) };
        let Open { reader, stored_bytes, decoder, clock, filtered, first_time } = &mut **open;
        let mut counting = Counting {
            place,
            input,
            plan: self.plan,
            engine: &mut self.engine,
            output: &mut *self.output,
            clock,
            filtered,
            first_time,
        };
        if let Some(workers) = &self.workers
            && reader.is_none()
        {
            match workers.next(place) {
                Given::Lines(batch) => {
                    batch.count(decoder, &mut counting);
                    *stored_bytes = batch.stored_bytes;
                    workers.give_back(batch);
                }
                Given::Records(records) => *reader = Some(records),
                Given::End(outcome, bytes) => {
                    *stored_bytes = bytes;
                    self.end(place, outcome);
                    return Ok(());
                }
                Given::Failed(error) => return Err(RunError::Source { error, windows_emitted }),
            }
        }
        if let Some(reader) = reader {
            let chunk = reader.next_chunk().map_err(|error| RunError::Source { error, windows_emitted })?;
            match chunk {
                Chunk::Lines(lines) => decoder.lines(lines, |accepted| counting.count(&accepted, None)),
                Chunk::Record(record, data) => {
                    let key = (format!("{}:{}", record.shard, record.sequence), record.sub_sequence);
                    if self.records.insert(key) {
                        decoder.record(data, record, |accepted| counting.count(&accepted, Some(record)));
                    } else {
                        decoder.duplicate_record();
                    }
                }
                Chunk::BadRecord => decoder.bad_record(),
                Chunk::End => {
                    *stored_bytes = reader.stored_bytes();
                    let outcome = reader.outcome();
                    self.end(place, outcome);
                    return Ok(());
                }
            }
            *stored_bytes = reader.stored_bytes();
        }
        let progress = Progress {
            stored_bytes: self.finished.stored_bytes + *stored_bytes,
            lines: self.finished.lines + decoder.tally().lines,
            accepted: self.finished.accepted + decoder.tally().accepted,
            late: self.engine.pairs().late,
        };
        self.output.progress(&progress);
        Ok(())
    }

    /// Lets workers begin with a partition, and with those that are likely to be read after it.
    fn prepare_next(&mut self, place: usize) {
        let Some(workers) = &self.workers else { return };
        workers.prepare(place, &self.inputs[place]);
        let is_waiting = |place: &usize| matches!(self.states[*place], State::Waiting(_));
        let begun = self.order.iter().take_while(|place| !is_waiting(place)).count();
        self.order.drain(..begun);
        // One that can be read only once may keep a thread waiting that is needed elsewhere.
        let next = self.order.iter().filter(|next| is_waiting(next) && self.inputs[**next].can_be_read_twice());
        for next in next.take(self.plan.threads) {
            workers.prepare(*next, &self.inputs[*next]);
        }
    }

    fn end(&mut self, place: usize, read: ReadOutcome) {
        let input = &self.inputs[place];
        let State::Open(open) = std::mem::replace(&mut self.states[place], State::Waiting(None)) else { return };
        let Open { stored_bytes, decoder, clock, filtered, first_time, .. } = *open;
        let tally = decoder.finish();
        self.finished.stored_bytes += stored_bytes;
        self.finished.lines += tally.lines;
        self.finished.accepted += tally.accepted;
        self.states[place] = State::Done(Box::new(PartitionOutcome {
            name: input.name(),
            named: input.is_named(),
            tally,
            filtered,
            first_time,
            last_time: clock.latest(),
            read,
        }));
    }
}

/// One partition's way into the engine.
struct Counting<'a> {
    place: usize,
    input: &'a Input,
    plan: &'a Plan,
    engine: &'a mut Engine,
    output: &'a mut dyn Output,
    clock: &'a mut PartitionClock,
    filtered: &'a mut Filtered,
    first_time: &'a mut Option<Timestamp>,
}

impl Counting<'_> {
    #[inline(always)]
    fn count(&mut self, accepted: &Accepted<'_>, record: Option<&Record>) {
        let report = accepted.report;
        let cell = Cell::of(accepted.position, self.plan.precision);
        let verdict = self.plan.filter.judge(report.kind, accepted.position, cell);
        let event = Event { time: accepted.time, cell, mmsi: report.mmsi, sog: report.sog };
        self.add(&event, verdict, record, || (accepted.line, accepted.raw.to_strings()));
    }

    /// Counts a report. `written` tells the number of its line and its sentences.
    #[inline(always)]
    fn add(
        &mut self,
        event: &Event,
        verdict: Verdict,
        record: Option<&Record>,
        written: impl Fn() -> (u64, Vec<String>),
    ) {
        // The watermark before this report decides, whether or not the report is counted.
        let watermark = self.clock.watermark();
        self.clock.observe(event.time);
        if self.first_time.is_none_or(|first| event.time < first) {
            *self.first_time = Some(event.time);
        }
        if !self.filtered.note(verdict) {
            return;
        }
        let Self { place, input, output, .. } = self;
        self.engine.offer(watermark, event, |window_start| {
            output.late(*place, &|| late_report(event, window_start, input, record, written()));
        });
    }
}

#[cold]
fn late_report(
    event: &Event,
    window_start: i64,
    input: &Input,
    record: Option<&Record>,
    (line, nmea): (u64, Vec<String>),
) -> LateReport {
    LateReport {
        cell: event.cell.to_string(),
        window_start,
        event_time: event.time.decimal_seconds(),
        mmsi: event.mmsi,
        sog: event.sog.map(|sog| Tenths(u64::from(sog))),
        source: match record {
            None => LateSource::Line { file: input.name(), line },
            Some(record) => LateSource::Record {
                file: Some(input.name()),
                shard: record.shard.to_string(),
                sequence_number: record.sequence.to_string(),
                sub_sequence_number: record.sub_sequence,
            },
        },
        nmea,
    }
}
