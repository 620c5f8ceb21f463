//! The run loop: which partition is read next, and when windows close.
//!
//! The only place that sees both sentences and cells. Its result depends on the inputs and the plan alone: partitions are
//! taken in the order of their names and their event times, never of their speed.

mod batch;
mod workers;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashSet;

use crate::aggregate::Aggregate;
use crate::cell::{Cell, Precision};
use crate::decode::tally::Tally;
use crate::decode::{self, Accepted, Decoder, Record};
use crate::engine::clock::{Lateness, NO_WATERMARK, Outlook, PartitionClock};
use crate::engine::{Engine, Event, Pairs, Selection};
use crate::filter::{Filter, Filtered, Verdict};
use crate::memory::MemorySize;
use crate::row::{Row, Tenths};
use crate::sink::SinkError;
use crate::sink::late::{LateReport, LateSource};
use crate::sink::rows::CsvLines;
use crate::source::{Chunk, Input, ReadOptions, ReadOutcome, Reader, SourceError};
use crate::spill::distinct::Distinct;
use crate::spill::windows::{Due, SpillingEngine};
use crate::spill::{SpillError, Spilled};
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
    /// What state may take in memory; the rest goes to disk. No result depends on it.
    pub memory: MemorySize,
}

/// Where a run's output goes.
pub trait Output {
    /// What makes rows into the lines of CSV that it wants besides. That is done where the rows are, by any thread.
    fn csv_lines(&self) -> Option<CsvLines> {
        None
    }

    /// Takes the rows of a window, or the next ones of a large window; windows come in order.
    ///
    /// # Errors
    ///
    /// Where they cannot be written: that ends the run.
    fn rows(&mut self, finished: &Finished) -> Result<(), SinkError>;

    /// Takes a report that came too late for a window. `partition` numbers the inputs in their order.
    fn late(&mut self, partition: usize, late: &dyn Fn() -> LateReport);

    /// Is told how far the run is, every so often.
    fn progress(&mut self, progress: &Progress);
}

/// The rows of a window, or of a piece of one; never none.
#[derive(Debug)]
pub struct Finished {
    /// The rows, in the order of their cells.
    pub rows: Vec<Row>,
    /// The lines of CSV that they make, if they are wanted.
    pub csv: Option<Vec<u8>>,
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
    /// Event time of the partition that is furthest behind, where that is known.
    pub reached: Option<Timestamp>,
}

/// What an input came to.
#[derive(Clone, Debug)]
pub struct PartitionOutcome {
    /// What it is called.
    pub name: String,
    /// Whether the command line names it, rather than its directory.
    pub named: bool,
    /// What its tally numbers: `line` or `record`.
    pub unit: &'static str,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub cells: u64,
    /// Distinct MMSIs.
    pub vessels: u64,
    /// First and last window start.
    pub span: Option<(i64, i64)>,
}

/// What was emitted, while it is.
struct Emitted {
    /// Without the distinct ones.
    totals: Totals,
    cells: Distinct,
    vessels: Distinct,
}

impl Emitted {
    /// Nothing; with so many bytes each to tell cells and vessels apart.
    fn new(budget: u64) -> Self {
        Self { totals: Totals::default(), cells: Distinct::new(budget), vessels: Distinct::new(budget) }
    }

    /// Takes note of a window, or a piece of one, in whatever order they come.
    fn add(&mut self, due: &Due, cells: &[(Cell, &Aggregate)]) -> Result<(), SpillError> {
        let totals = &mut self.totals;
        let (first, last) = totals.span.unwrap_or((due.start(), due.start()));
        totals.span = Some((first.min(due.start()), last.max(due.start())));
        totals.windows += u64::from(due.begins());
        totals.rows += cells.len() as u64;
        for (cell, aggregate) in cells {
            totals.count += aggregate.count;
            totals.sog_sum.0 += aggregate.sog_sum;
            totals.sog_missing += aggregate.sog_missing;
            self.cells.insert(cell.number())?;
            aggregate.vessels.try_for_each(|mmsi| self.vessels.insert(mmsi.into()))?;
        }
        Ok(())
    }

    fn finish(mut self, mut spilled: Spilled) -> Result<(Totals, Spilled), SpillError> {
        for (distinct, number) in [(self.cells, &mut self.totals.cells), (self.vessels, &mut self.totals.vessels)] {
            let (count, more) = distinct.count()?;
            *number = count;
            spilled += more;
        }
        Ok((self.totals, spilled))
    }
}

/// Makes windows into rows, on any thread.
struct Finisher {
    emitted: Mutex<Emitted>,
    csv_lines: Option<CsvLines>,
}

impl Finisher {
    fn emitted(&self) -> MutexGuard<'_, Emitted> {
        self.emitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of a window, which the totals take note of.
    fn finish(&self, due: &Due) -> Result<Finished, SpillError> {
        let cells = due.in_order();
        self.emitted().add(due, &cells)?;
        let rows: Vec<Row> = cells.iter().map(|(cell, aggregate)| Row::new(*cell, due.start(), aggregate)).collect();
        let csv = self.csv_lines.map(|lines| lines.of(&rows));
        Ok(Finished { rows, csv })
    }
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
    /// What did not fit into memory.
    pub spilled: Spilled,
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
    /// State could not be kept on disk.
    #[error(transparent)]
    Spill(#[from] SpillError),
}

enum State {
    /// Not read yet; what a look ahead found, if there was one, and the reader where that has kept what it gave.
    Waiting(Option<Outlook>, Option<Reader>),
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
    // An eighth each for the cells and the vessels that the summary counts.
    let share = plan.memory.bytes() / 8;
    let emitted = Mutex::new(Emitted::new(share));
    let finisher = Arc::new(Finisher { emitted, csv_lines: output.csv_lines() });
    Run {
        inputs: inputs.to_vec(),
        plan,
        states: Vec::with_capacity(inputs.len()),
        order: VecDeque::new(),
        engine: SpillingEngine::new(Engine::new(plan.window, plan.selection.clone()), 6 * share),
        records: HashSet::new(),
        workers: (plan.threads > 1).then(|| Workers::start(plan, Arc::clone(&finisher))),
        finisher,
        finished: Progress::default(),
        reached: None,
        output,
    }
    .go()
}

struct Run<'a> {
    /// A stream's may grow in number while it is read.
    inputs: Vec<Input>,
    plan: &'a Plan,
    states: Vec<State>,
    /// In which order partitions that wait are likely to be read.
    order: VecDeque<usize>,
    engine: SpillingEngine,
    /// Shard, sequence and sub-sequence number of every record so far: each counts once in a run.
    records: HashSet<(String, Option<u64>)>,
    finisher: Arc<Finisher>,
    /// What the partitions that are done have added to the progress.
    finished: Progress,
    /// Where the partition stood that was chosen last.
    reached: Option<Timestamp>,
    /// None where one thread does everything.
    workers: Option<Workers>,
    output: &'a mut dyn Output,
}

impl Run<'_> {
    fn go(mut self) -> Result<Outcome, RunError> {
        let opened: Result<Vec<State>, SourceError> = self.inputs.iter().map(|input| self.waiting(input)).collect();
        self.states = opened.map_err(|error| self.broken(error))?;
        for place in 0..self.states.len() {
            self.look_ahead_in_stream(place)?;
        }
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        order.sort_by_key(|place| self.standing(*place));
        self.order = order.into();
        while let Some(next) = self.furthest_behind() {
            self.advance(next)?;
            let bound = self.bound();
            self.close(bound)?;
            self.engine.relieve()?;
        }
        self.close(i64::MAX)?;
        let partitions = self.states.into_iter().filter_map(|state| match state {
            State::Done(outcome) => Some(*outcome),
            State::Waiting(..) | State::Open(_) => None,
        });
        let pairs = self.engine.pairs();
        let emitted = std::mem::replace(&mut *self.finisher.emitted(), Emitted::new(0));
        let (totals, spilled) = emitted.finish(self.engine.spilled())?;
        Ok(Outcome { partitions: partitions.collect(), pairs, totals, spilled })
    }

    fn broken(&self, error: SourceError) -> RunError {
        RunError::Source { error, windows_emitted: self.windows_emitted() }
    }

    /// Between two chunks, every window that is finished has been emitted.
    fn windows_emitted(&self) -> u64 {
        self.finisher.emitted().totals.windows
    }

    /// An input at the start. A shard's reader begins at once: all of them read at the same time, and wait to be asked.
    fn waiting(&self, input: &Input) -> Result<State, SourceError> {
        Ok(if input.is_stream() {
            State::Waiting(None, Some(input.open(self.plan.read.clone())?))
        } else {
            State::Waiting(self.look_ahead(input)?, None)
        })
    }

    /// The same for a shard that waits, whose reader keeps the records that were looked at.
    fn look_ahead_in_stream(&mut self, place: usize) -> Result<(), RunError> {
        let windows_emitted = self.windows_emitted();
        let plan = self.plan;
        let State::Waiting(outlook, Some(reader)) = &mut self.states[place] else { return Ok(()) };
        if plan.lateness == Lateness::Unbounded {
            return Ok(());
        }
        let mut decoder = Decoder::new(plan.decode.clone());
        let mut times = [None, None];
        let whole = reader.look_at_records(|record, data| {
            decoder.record(data, record, |accepted| note_time(&mut times, accepted.time));
            times[1].is_none()
        });
        let whole = whole.map_err(|error| RunError::Source { error, windows_emitted })?;
        *outlook = match Outlook::new(plan.lateness, times[0], times[1]) {
            Some(outlook) if times[1].is_some() || whole => Some(outlook),
            None if whole => Some(NOTHING_COMES),
            _ => None,
        };
        Ok(())
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
            decoder.lines(lines, |accepted| note_time(&mut times, accepted.time));
        }
        Ok(Some(Outlook::new(self.plan.lateness, times[0], times[1]).unwrap_or(NOTHING_COMES)))
    }

    /// Whether a partition may be read: all the shards that a shard came from have been read before it.
    fn is_ready(&self, place: usize) -> bool {
        let is_open = |parent: &str| {
            let mut inputs = self.inputs.iter().zip(&self.states);
            inputs.any(|(input, state)| input.shard() == Some(parent) && !matches!(state, State::Done(_)))
        };
        !self.inputs[place].parents().iter().any(|parent| is_open(parent))
    }

    /// The partition to read next: the one whose event time is least. One that nothing is known of comes before all.
    fn furthest_behind(&mut self) -> Option<usize> {
        let standings = (0..self.states.len()).filter_map(|place| Some((self.standing(place)?, place)));
        let (standing, place) = standings.min()?;
        if standing > i64::MIN && matches!(self.states[place], State::Open(_)) {
            self.reached = Some(Timestamp::from_nanos(standing));
        }
        Some(place)
    }

    /// The event time at which a partition counts as standing; `None` once it is done, and before it may be read.
    fn standing(&self, place: usize) -> Option<i64> {
        let unbounded = self.plan.lateness == Lateness::Unbounded;
        Some(match &self.states[place] {
            State::Done(_) => return None,
            State::Waiting(..) if !self.is_ready(place) => return None,
            State::Open(open) if !unbounded || self.inputs[place].is_stream() => {
                open.clock.event_time().map_or(i64::MIN, Timestamp::nanos)
            }
            // Nothing closes before the end: one after the other, with one open at a time.
            State::Open(_) => i64::MIN,
            State::Waiting(..) if unbounded => 0,
            State::Waiting(outlook, _) => outlook.map_or(i64::MIN, |outlook| outlook.first.nanos()),
        })
    }

    /// No partition can add to a window that ends at or before this.
    fn bound(&self) -> i64 {
        let bounds = self.states.iter().map(|state| match state {
            State::Waiting(outlook, _) => outlook.map_or(NO_WATERMARK, |outlook| outlook.bound),
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
                let Some(window) = self.engine.take_due(bound)? else { return Ok(()) };
                self.output.rows(&self.finisher.finish(&window)?)?;
                continue;
            };
            // One is written while the others are finished.
            while ahead <= self.plan.threads
                && let Some(window) = self.engine.take_due(bound)?
            {
                workers.finish(window);
                ahead += 1;
            }
            if ahead == 0 {
                return Ok(());
            }
            ahead -= 1;
            if let Some(finished) = workers.next_rows()? {
                self.output.rows(&finished)?;
            }
        }
    }

    /// Reads one chunk of a partition, or all records that are at hand.
    fn advance(&mut self, place: usize) -> Result<(), RunError> {
        self.open(place)?;
        let input = &self.inputs[place];
        let windows_emitted = self.windows_emitted();
        let State::Open(open) = &mut self.states[place] else { return Ok(()) };
        let Open { reader, stored_bytes, decoder, clock, filtered, first_time } = &mut **open;
        // Behind the last selected window, all that a shard can still give is late or outside.
        let enough = self.plan.selection.until.filter(|_| input.is_stream());
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
        let mut ended = None;
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
                    ended = Some((outcome, Vec::new()));
                }
                Given::Failed(error) => return Err(RunError::Source { error, windows_emitted }),
            }
        }
        if let Some(reader) = reader {
            let may_repeat = reader.may_repeat_records();
            let is_over = loop {
                match reader.next_chunk().map_err(|error| RunError::Source { error, windows_emitted })? {
                    Chunk::Lines(lines) => decoder.lines(lines, |accepted| counting.count(&accepted, None)),
                    Chunk::Record(record, data) => {
                        let key = || (format!("{}:{}", record.shard, record.sequence), record.sub_sequence);
                        if !may_repeat || self.records.insert(key()) {
                            decoder.record(data, record, |accepted| counting.count(&accepted, Some(record)));
                        } else {
                            decoder.duplicate_record();
                        }
                    }
                    Chunk::DuplicateRecord => decoder.duplicate_record(),
                    Chunk::BadRecord => decoder.bad_record(),
                    Chunk::End => break true,
                }
                if enough.is_some_and(|until| counting.clock.watermark() >= until) {
                    break true;
                }
                if !reader.has_records_at_hand() {
                    break false;
                }
            };
            *stored_bytes = reader.stored_bytes();
            if is_over {
                let successors = reader.successors().map_err(|error| RunError::Source { error, windows_emitted })?;
                ended = Some((reader.outcome(), successors));
            }
        }
        if self.engine.reopened() > 0 {
            let error = SourceError::Resharded { name: input.name() };
            return Err(RunError::Source { error, windows_emitted });
        }
        if let Some((outcome, successors)) = ended {
            return self.end(place, outcome, successors);
        }
        let progress = Progress {
            stored_bytes: self.finished.stored_bytes + *stored_bytes,
            lines: self.finished.lines + decoder.tally().lines,
            accepted: self.finished.accepted + decoder.tally().accepted,
            late: self.engine.pairs().late,
            reached: self.reached,
        };
        self.output.progress(&progress);
        Ok(())
    }

    /// Opens a partition that waits.
    fn open(&mut self, place: usize) -> Result<(), RunError> {
        let State::Waiting(_, kept) = &mut self.states[place] else { return Ok(()) };
        let kept = kept.take();
        let reader = match kept {
            Some(reader) => Some(reader),
            None if self.workers.is_some() => {
                self.prepare_next(place);
                None
            }
            None => Some(self.inputs[place].open(self.plan.read.clone()).map_err(|error| self.broken(error))?),
        };
        self.states[place] = State::Open(Box::new(Open {
            reader: reader.map(Box::new),
            stored_bytes: 0,
            decoder: Decoder::new(self.plan.decode.clone()),
            clock: PartitionClock::new(self.plan.lateness),
            filtered: Filtered::default(),
            first_time: None,
        }));
        Ok(())
    }

    /// Lets workers begin with a partition, and with those that are likely to be read after it.
    fn prepare_next(&mut self, place: usize) {
        let Some(workers) = &self.workers else { return };
        workers.prepare(place, &self.inputs[place]);
        let is_waiting = |place: &usize| matches!(self.states[*place], State::Waiting(..));
        let begun = self.order.iter().take_while(|place| !is_waiting(place)).count();
        self.order.drain(..begun);
        // One that can be read only once may keep a thread waiting that is needed elsewhere.
        let next = self.order.iter().filter(|next| is_waiting(next) && self.inputs[**next].can_be_read_twice());
        for next in next.take(self.plan.threads) {
            workers.prepare(*next, &self.inputs[*next]);
        }
    }

    /// Ends a partition. `successors` came up while it was read, and go on where it ended.
    fn end(&mut self, place: usize, read: ReadOutcome, successors: Vec<Input>) -> Result<(), RunError> {
        let input = &self.inputs[place];
        let State::Open(open) = std::mem::replace(&mut self.states[place], State::Waiting(None, None)) else {
            return Ok(());
        };
        let Open { reader, stored_bytes, decoder, clock, filtered, first_time } = *open;
        let gives_records = reader.is_some_and(|reader| reader.gives_records());
        let tally = decoder.finish();
        self.finished.stored_bytes += stored_bytes;
        self.finished.lines += tally.lines;
        self.finished.accepted += tally.accepted;
        self.states[place] = State::Done(Box::new(PartitionOutcome {
            name: input.name(),
            named: input.is_named(),
            unit: if gives_records { "record" } else { "line" },
            tally,
            filtered,
            first_time,
            last_time: clock.latest(),
            read,
        }));
        // A stream that was resharded while it was read: what came of this shard is read too.
        for successor in successors {
            let state = self.waiting(&successor).map_err(|error| self.broken(error))?;
            self.inputs.push(successor);
            self.states.push(state);
            self.look_ahead_in_stream(self.states.len() - 1)?;
        }
        Ok(())
    }
}

/// The outlook of an input without any report: it holds no window back.
const NOTHING_COMES: Outlook = Outlook { first: Timestamp::from_nanos(i64::MAX), bound: i64::MAX };

/// Takes note of the first two times.
fn note_time(times: &mut [Option<Timestamp>; 2], time: Timestamp) {
    if let Some(free) = times.iter_mut().find(|time| time.is_none()) {
        *free = Some(time);
    }
}

/// One partition's way into the engine.
struct Counting<'a> {
    place: usize,
    input: &'a Input,
    plan: &'a Plan,
    engine: &'a mut SpillingEngine,
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
                file: Some(input.name()).filter(|_| !input.is_stream()),
                shard: record.shard.to_string(),
                sequence_number: record.sequence.to_string(),
                sub_sequence_number: record.sub_sequence,
            },
        },
        nmea,
    }
}
