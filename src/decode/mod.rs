//! Bytes to accepted reports: one [`Decoder`] per partition.
//!
//! [`scan`] finds the sentences and needs no memory of earlier lines. The decoder adds what does: parts that wait for each
//! other, a TAG block on the line before, clocks inside the log, and the tally in which every sentence has one fate.

pub mod armour;
pub mod batch;
pub mod clocks;
pub mod event_time;
pub mod line_time;
pub mod message;
pub mod parts;
pub mod scan;
pub mod tag;
pub mod tally;

use std::sync::Arc;

use crate::report::{MessageTypes, Position, Report};
use crate::time::Timestamp;
use event_time::{Clock, EventTime, EventTimeMode, Timekeeper};
use line_time::{LineTime, Zone};
use message::Message;
use parts::{Joined, Joint, Part, Parts, Sentence};
use scan::{Context, Vdm, Visitor};
use tag::Tag;
use tally::{Ignore, Note, Reject, Tally};

/// How sentences are read and when they happened. Part of what a run's result depends on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The message types that are counted. Reports of the others still move event time.
    pub types: MessageTypes,
    /// Count the receiver's own ship (VDO) too.
    pub own_ship: bool,
    /// Reject sentences whose TAG block has a wrong checksum or none.
    pub require_tag_checksum: bool,
    /// Zone of local times on lines.
    pub zone: Option<Zone>,
    /// How event time is made.
    pub event_time: EventTimeMode,
    /// What gives the time to lines that have none.
    pub clock: Option<Clock>,
    /// Where the reports' own UTC seconds lead on from.
    pub start: Option<Timestamp>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            types: MessageTypes::LIVE_PIPELINE,
            own_ship: false,
            require_tag_checksum: false,
            zone: None,
            event_time: EventTimeMode::Received,
            clock: None,
            start: None,
        }
    }
}

impl Options {
    /// Whether a report's UTC second is among the fields that are used.
    #[must_use]
    pub fn needs_second(&self) -> bool {
        self.start.is_some() || self.event_time == EventTimeMode::UtcSecond
    }
}

/// A record of a stream: the unit that has an arrival time and a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the stream took it.
    pub arrival: Option<Timestamp>,
    /// Its shard.
    pub shard: Arc<str>,
    /// Its sequence number, up to 56 digits.
    pub sequence: Arc<str>,
    /// Its place in an aggregated record; `None` where it is a record of its own.
    pub sub_sequence: Option<u64>,
}

/// An accepted report, as it leaves the decoder.
#[derive(Debug)]
pub struct Accepted<'a> {
    /// What it says.
    pub report: &'a Report,
    /// Where: the report's position, known to be there.
    pub position: Position,
    /// When.
    pub time: Timestamp,
    /// Number of its line, or of its record.
    pub line: u64,
    /// Its sentences.
    pub raw: Raw<'a>,
}

/// The sentences of a report as written, kept where they are until somebody asks.
#[derive(Clone, Copy, Debug)]
pub enum Raw<'a> {
    /// One sentence with its TAG block, after TAG blocks on a line of their own, if there were any.
    One(Option<&'a [u8]>, &'a [u8]),
    /// The sentences of a message in parts, by number.
    Parts(&'a Joint),
}

impl Raw<'_> {
    /// A string per sentence; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn to_strings(self) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::One(None, sentence) => vec![text(sentence)],
            Self::One(Some(tag), sentence) => vec![text(tag) + &text(sentence)],
            Self::Parts(whole) => whole.sentences().map(text).collect(),
        }
    }
}

/// How many lines a `$PGHP` time waits for its sentence.
const PGHP_WAIT_LINES: u64 = 16;

/// Decodes one partition, chunk by chunk.
#[derive(Debug)]
pub struct Decoder {
    options: Options,
    needs_second: bool,
    timekeeper: Timekeeper,
    tally: Tally,
    parts: Parts,
    /// TAG blocks from a line of their own, for the next sentence.
    waiting_tag: Option<Vec<u8>>,
    /// Times of `$PGHP` sentences, each with its line and the checksum of the sentence that it is for.
    waiting_pghp: Vec<(u64, u8, Timestamp)>,
    /// Number of the next line or record.
    next_line: u64,
}

impl Decoder {
    /// A decoder at the beginning of a partition.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            needs_second: options.needs_second(),
            timekeeper: Timekeeper::new(options.event_time, options.clock, options.start),
            options,
            tally: Tally::default(),
            parts: Parts::default(),
            waiting_tag: None,
            waiting_pghp: Vec::new(),
            next_line: 1,
        }
    }

    /// Decodes whole lines of a file.
    pub fn lines(&mut self, bytes: &[u8], accept: impl FnMut(Accepted<'_>)) {
        self.feed(bytes, 1, None, accept);
        self.tally.lines = self.next_line - 1;
    }

    /// Decodes one record, which holds whole lines. It counts as one line.
    pub fn record(&mut self, bytes: &[u8], record: &Record, accept: impl FnMut(Accepted<'_>)) {
        self.feed(bytes, 0, Some(record), accept);
        self.count_record();
    }

    /// Takes note of a record that was read before.
    pub fn duplicate_record(&mut self) {
        self.tally.items += 1;
        self.tally.ignore(Ignore::DuplicateRecord, self.next_line);
        self.count_record();
    }

    /// Takes note of a record whose data cannot be unpacked.
    pub fn bad_record(&mut self) {
        self.tally.items += 1;
        self.tally.reject(Reject::BadRecord, self.next_line);
        self.count_record();
    }

    fn count_record(&mut self) {
        self.next_line += 1;
        self.tally.lines += 1;
    }

    fn feed(&mut self, bytes: &[u8], step: u64, record: Option<&Record>, accept: impl FnMut(Accepted<'_>)) {
        let mut line = self.next_line;
        let arrival = record.and_then(|record| record.arrival);
        scan::scan(bytes, &mut line, step, &mut Step { decoder: self, arrival, accept });
        self.next_line = line;
    }

    /// Ends the partition: parts that still wait are given up. Returns the tally.
    #[must_use]
    pub fn finish(mut self) -> Tally {
        let Self { parts, tally, .. } = &mut self;
        parts.finish(|line| tally.reject(Reject::IncompleteMessage, line));
        self.tally
    }

    /// The tally so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Takes the time that a `$PGHP` sentence gave for the sentence with this checksum.
    fn take_pghp(&mut self, checksum: u8, line: u64) -> Option<Timestamp> {
        if self.waiting_pghp.is_empty() {
            return None;
        }
        self.waiting_pghp.retain(|(written, ..)| line - written <= PGHP_WAIT_LINES);
        let place = self.waiting_pghp.iter().position(|(_, of, _)| *of == checksum)?;
        Some(self.waiting_pghp.remove(place).2)
    }
}

/// The decoder while it scans, with what it knows of the record at hand.
struct Step<'d, F> {
    decoder: &'d mut Decoder,
    arrival: Option<Timestamp>,
    accept: F,
}

/// A whole message on its way to its fate.
struct WholeMessage<'a> {
    line: u64,
    own_ship: bool,
    payload: &'a [u8],
    fill: u8,
    own_time: Option<Timestamp>,
    raw: Raw<'a>,
}

impl<F: FnMut(Accepted<'_>)> Step<'_, F> {
    /// The time that a sentence has of its own: TAG block, `$PGHP` before it, or beside it on the line.
    #[inline(always)]
    fn own_time(&mut self, line: u64, context: &Context<'_>, tag: Option<&Tag<'_>>) -> Option<Timestamp> {
        let announced = self.decoder.take_pghp(context.checksum, line);
        if let Some(time) = tag.and_then(|tag| tag.time).or(announced) {
            return Some(time);
        }
        if context.before.is_empty() && context.behind.is_empty() {
            return None;
        }
        self.beside(line, context)
    }

    #[cold]
    fn beside(&mut self, line: u64, context: &Context<'_>) -> Option<Timestamp> {
        let found = time_beside(context, self.decoder.options.zone);
        if found == LineTime::NeedsZone {
            self.decoder.tally.note(Note::LocalTime, line);
        }
        found.instant()
    }

    /// Takes note of the time of something that is no report, where that is of use.
    fn show_time(&mut self, line: u64, context: &Context<'_>) {
        if self.decoder.timekeeper.wants_every_time()
            && let Some(time) = context.tag.and_then(|tag| tag.time).or_else(|| self.beside(line, context))
        {
            self.decoder.timekeeper.show(Clock::Previous, time);
        }
    }

    #[cold]
    fn part(&mut self, line: u64, context: &Context<'_>, tag: Option<&Tag<'_>>, vdm: &Vdm<'_>, waited: Option<&[u8]>) {
        if vdm.payload.len() > parts::MAX_PART_CHARACTERS {
            return self.decoder.tally.reject(Reject::Malformed, line);
        }
        let time = self.own_time(line, context, tag);
        self.join(&Part::new(line, context, tag, vdm, time), Sentence { tag_line: waited, text: context.raw });
    }

    /// Puts a part to its message, and decides the fate of that if it is whole.
    fn join(&mut self, part: &Part<'_>, sentence: Sentence<'_>) {
        let line = part.line;
        let Decoder { parts, tally, .. } = &mut *self.decoder;
        match parts.join(part, sentence, |given_up| tally.reject(Reject::IncompleteMessage, given_up)) {
            Joined::Waits => {}
            Joined::Ambiguous => tally.reject(Reject::AmbiguousPart, line),
            Joined::Whole(whole) => {
                // The last to come has the message's fate; the others were parts of it.
                tally.parts += u64::from(part.vdm.total) - 1;
                self.conclude(&WholeMessage {
                    line,
                    own_ship: part.vdm.own_ship,
                    payload: whole.payload(),
                    fill: whole.fill(),
                    own_time: whole.time(),
                    raw: Raw::Parts(&whole),
                });
                self.decoder.parts.give_back(whole);
            }
        }
    }

    /// Decides the fate of a whole message.
    #[inline(always)]
    fn conclude(&mut self, whole: &WholeMessage<'_>) {
        let line = whole.line;
        let decoder = &mut *self.decoder;
        if let Some(time) = whole.own_time
            && decoder.timekeeper.wants_every_time()
        {
            decoder.timekeeper.show(Clock::Previous, time);
        }
        let (report, overlong) = match message::decode(whole.payload, whole.fill, decoder.needs_second) {
            Message::Report { report, overlong } => (report, overlong),
            Message::CutOff(kind) if decoder.options.types.contains(kind) => {
                return decoder.tally.reject(Reject::CutOff, line);
            }
            Message::Empty => return decoder.tally.reject(Reject::CutOff, line),
            Message::BaseStation { has_clock } => return self.base_station(whole, has_clock),
            Message::CutOff(_) | Message::Other(_) => return decoder.tally.ignore(Ignore::OtherType, line),
        };
        if whole.own_ship && !decoder.options.own_ship {
            let counted = decoder.options.types.contains(report.kind);
            return decoder.tally.ignore(if counted { Ignore::OwnShip } else { Ignore::OtherType }, line);
        }
        let time = decoder.timekeeper.event_time(whole.own_time, self.arrival, report.utc_second);
        match (report.position, time) {
            (Some(position), EventTime::At(time)) => {
                if overlong {
                    decoder.tally.note(Note::Overlong, line);
                }
                if report.sog.is_none() {
                    decoder.tally.note(Note::SogMissing, line);
                }
                decoder.tally.accepted += 1;
                (self.accept)(Accepted { report: &report, position, time, line, raw: whole.raw });
            }
            _ if !decoder.options.types.contains(report.kind) => decoder.tally.ignore(Ignore::OtherType, line),
            (None, _) => decoder.tally.ignore(Ignore::NoPosition, line),
            (_, EventTime::Unknown) => decoder.tally.reject(Reject::NoEventTime, line),
            (_, EventTime::Future) => decoder.tally.reject(Reject::Future, line),
        }
    }

    fn base_station(&mut self, whole: &WholeMessage<'_>, has_clock: bool) {
        let decoder = &mut *self.decoder;
        decoder.tally.ignore(Ignore::OtherType, whole.line);
        if !has_clock {
            return;
        }
        decoder.tally.note(Note::BaseStation, whole.line);
        if decoder.options.clock == Some(Clock::BaseStation)
            && let Some(time) = clocks::base_station_time(whole.payload, whole.fill)
        {
            decoder.timekeeper.show(Clock::BaseStation, time);
        }
    }
}

impl<F: FnMut(Accepted<'_>)> Visitor for Step<'_, F> {
    #[inline(always)]
    fn vdm(&mut self, line: u64, context: &Context<'_>, vdm: &Vdm<'_>) {
        self.decoder.tally.items += 1;
        let waited = self.decoder.waiting_tag.take();
        let waited = waited.as_deref();
        let tag = match waited {
            None => context.tag,
            Some(waited) => Some(tag_of_line(waited).followed_by(context.tag.unwrap_or_default())),
        };
        let tag = tag.as_ref();
        if let Some(tag) = tag
            && tag.bad_checksums > 0
        {
            if self.decoder.options.require_tag_checksum {
                return self.decoder.tally.reject(Reject::TagChecksum, line);
            }
            self.decoder.tally.note(Note::TagChecksumBad, line);
        }
        if vdm.total > 1 {
            return self.part(line, context, tag, vdm, waited);
        }
        let own_time = self.own_time(line, context, tag);
        self.conclude(&WholeMessage {
            line,
            own_ship: vdm.own_ship,
            payload: vdm.payload,
            fill: vdm.fill,
            own_time,
            raw: Raw::One(waited, context.raw),
        });
    }

    fn other_sentence(&mut self, line: u64, context: &Context<'_>, body: &[u8], intact: bool) {
        let decoder = &mut *self.decoder;
        decoder.tally.items += 1;
        decoder.waiting_tag = None;
        decoder.tally.ignore(Ignore::OtherSentence, line);
        if intact && let Some((time, checksum)) = line_time::read_pghp(body) {
            decoder.waiting_pghp.retain(|(written, ..)| line - written <= PGHP_WAIT_LINES);
            decoder.waiting_pghp.push((line, checksum, time));
            decoder.timekeeper.show(Clock::Previous, time);
            return;
        }
        if intact && clocks::is_clock_sentence(body) {
            decoder.tally.note(Note::ClockSentence, line);
            if decoder.options.clock == Some(Clock::Sentences)
                && let Some(time) = clocks::sentence_time(body)
            {
                decoder.timekeeper.show(Clock::Sentences, time);
            }
        }
        self.show_time(line, context);
    }

    fn reject(&mut self, line: u64, kind: Reject) {
        self.decoder.tally.items += 1;
        self.decoder.waiting_tag = None;
        self.decoder.tally.reject(kind, line);
    }

    fn bare_line(&mut self, line: u64, kind: Ignore) {
        self.decoder.tally.items += 1;
        self.decoder.tally.ignore(kind, line);
    }

    fn tag_line(&mut self, line: u64, tag: Tag<'_>, raw: &[u8]) {
        let decoder = &mut *self.decoder;
        decoder.tally.items += 1;
        decoder.tally.ignore(Ignore::TagAlone, line);
        if let Some(time) = tag.time {
            decoder.timekeeper.show(Clock::Previous, time);
        }
        decoder.waiting_tag = Some(raw.to_vec());
    }
}

/// The time beside a sentence: before it, else behind it.
fn time_beside(context: &Context<'_>, zone: Option<Zone>) -> LineTime {
    match LineTime::find(context.before, zone) {
        LineTime::Absent => LineTime::find(context.behind, zone),
        found => found,
    }
}

/// The TAG blocks of a line that held nothing else.
fn tag_of_line(line: &[u8]) -> Tag<'_> {
    let mut merged = Tag::default();
    let mut rest = line;
    while let Some(start) = memchr::memchr(b'\\', rest) {
        rest = &rest[start..];
        match tag::block_at_start(rest) {
            Some((content, length)) => {
                merged = merged.followed_by(Tag::parse(content));
                rest = &rest[length..];
            }
            None => rest = &rest[1..],
        }
    }
    merged
}
