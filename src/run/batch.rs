//! A chunk of lines on its way from the thread that reads it to the one that counts.
//!
//! A worker fills it: it decodes what needs no memory of earlier lines, finds each report's cell and asks the filters. What
//! is left (event time, lateness, the engine) is one cheap pass in the order of the partition.

use std::ops::Range;

use super::{Counting, Plan};
use crate::cell::{Cell, Precision};
use crate::decode::batch::{self, Found, FoundPart, Taker, Undated};
use crate::decode::tally::Tally;
use crate::decode::{self, Accepted, Decoder, Raw};
use crate::engine::Event;
use crate::filter::{Filter, Verdict};
use crate::time::Timestamp;

/// What of a plan decides about a report wherever it is decoded.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    decode: decode::Options,
    precision: Precision,
    filter: Filter,
}

impl Judgement {
    pub(super) fn of(plan: &Plan) -> Self {
        Self { decode: plan.decode.clone(), precision: plan.precision, filter: plan.filter.clone() }
    }
}

/// Whole lines and what a worker found in them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Room for the lines; the first `length` bytes are filled.
    pub(super) room: Vec<u8>,
    pub(super) length: usize,
    /// Bytes of the input that were read by then, as stored.
    pub(super) stored_bytes: u64,
    items: Vec<Item>,
    /// What has to be read in its turn.
    in_turn: Vec<InTurn>,
    tally: Box<Tally>,
}

/// A report that may lack its event time. Kept small: each passes from one core's cache to another's.
#[derive(Clone, Copy, Debug)]
struct Item {
    own_time: Option<Timestamp>,
    cell: Cell,
    mmsi: u32,
    /// Number of its line in the chunk, from 1, and where the line begins.
    line: u32,
    start: u32,
    sog: Option<u16>,
    utc_second: Option<u8>,
    verdict: Verdict,
    overlong: bool,
    /// Whether its type is one of those that the decoder counts.
    counted: bool,
}

/// What needs the memory of the partition, behind the reports that come before it.
#[derive(Clone, Debug)]
struct InTurn {
    reports_before: usize,
    /// Number of the first line in the chunk, from 1.
    line: u32,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Neighbouring lines, to be read from the beginning.
    Lines(Range<usize>),
    /// A part of a longer message, and where its line begins.
    Part(usize, FoundPart),
}

struct Filling<'b> {
    judgement: &'b Judgement,
    items: &'b mut Vec<Item>,
    in_turn: &'b mut Vec<InTurn>,
}

impl Taker for Filling<'_> {
    #[inline(always)]
    fn report(&mut self, found: &Found) {
        let Found { report, position, .. } = found;
        let cell = Cell::of(*position, self.judgement.precision);
        self.items.push(Item {
            own_time: found.own_time,
            cell,
            mmsi: report.mmsi,
            line: found.line,
            // A chunk is far from 4 GiB.
            start: found.start as u32,
            sog: report.sog,
            utc_second: report.utc_second,
            verdict: self.judgement.filter.judge(report.kind, *position, cell),
            overlong: found.overlong,
            counted: self.judgement.decode.types.contains(report.kind),
        });
    }

    fn part(&mut self, line: u32, start: usize, part: FoundPart) {
        self.in_turn.push(InTurn { reports_before: self.items.len(), line, what: What::Part(start, part) });
    }

    fn left(&mut self, line: u32, bytes: Range<usize>) {
        match self.in_turn.last_mut() {
            // Lines without a fate of their own between two others do not hold them together.
            Some(InTurn { reports_before, what: What::Lines(last), .. })
                if last.end == bytes.start && *reports_before == self.items.len() =>
            {
                last.end = bytes.end;
            }
            _ => self.in_turn.push(InTurn { reports_before: self.items.len(), line, what: What::Lines(bytes) }),
        }
    }
}

impl Batch {
    /// Reads the lines, as far as that can be done anywhere.
    pub(super) fn decode(&mut self, judgement: &Judgement) {
        self.items.clear();
        self.in_turn.clear();
        let mut filling = Filling { judgement, items: &mut self.items, in_turn: &mut self.in_turn };
        *self.tally = batch::read(&self.room[..self.length], &judgement.decode, &mut filling);
    }

    /// Does the rest, in the partition's turn.
    pub(super) fn count(&self, decoder: &mut Decoder, counting: &mut Counting<'_>) {
        let first_line = decoder.next_line();
        let mut done = 0;
        for InTurn { reports_before, line, what } in &self.in_turn {
            self.count_items(done..*reports_before, first_line, decoder, counting);
            done = *reports_before;
            let line = first_line + u64::from(*line) - 1;
            let accept = |accepted: Accepted<'_>| counting.count(&accepted, None);
            match what {
                What::Lines(bytes) => decoder.lines_left(line, &self.room[bytes.clone()], accept),
                What::Part(start, part) => decoder.part(line, &self.room[*start..self.length], part, accept),
            }
        }
        self.count_items(done..self.items.len(), first_line, decoder, counting);
        decoder.chunk_read(first_line, &self.tally);
    }

    fn count_items(&self, items: Range<usize>, first_line: u64, decoder: &mut Decoder, counting: &mut Counting<'_>) {
        for item in &self.items[items] {
            let line = first_line + u64::from(item.line) - 1;
            let undated = Undated {
                line,
                own_time: item.own_time,
                utc_second: item.utc_second,
                counted: item.counted,
                overlong: item.overlong,
                sog_missing: item.sog.is_none(),
            };
            let Some(time) = decoder.date(&undated) else { continue };
            let event = Event { time, cell: item.cell, mmsi: item.mmsi, sog: item.sog };
            counting.add(&event, item.verdict, None, || {
                let sentence = batch::sentence_as_written(&self.room[item.start as usize..self.length]);
                (line, Raw::One(None, &sentence).to_strings())
            });
        }
    }
}
