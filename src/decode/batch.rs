//! What of decoding needs no memory: a chunk of whole lines, read on any thread and in any order.
//!
//! Nearly every sentence means the same whatever came before it. [`read`] gives the reports of those and tells their
//! fates. It leaves the others as the lines that they are, for the partition's [`Decoder`] to read in their turn:
//!
//! - TAG blocks on a line of their own, `$PGHP` sentences, and the sentences behind them that they may be for;
//! - what shows a time to the clock that was chosen;
//! - the first lines of a chunk, since nobody knows yet what waits at the end of the one before it.
//!
//! The event time of a report is still open: it may come from a clock of the partition. [`Decoder::date`] settles it. A part
//! of a longer message is read, but waits for the others there ([`Decoder::part`]).

use std::ops::Range;

use super::event_time::EventTime;
use super::line_time::{self, LineTime};
use super::message::{self, Message};
use super::parts::{self, Part, Sentence};
use super::scan::{self, Context, Vdm, Visitor};
use super::tag::Tag;
use super::tally::{Ignore, Note, Reject, Tally};
use super::{Accepted, Clock, Decoder, Options, PGHP_WAIT_LINES, Step, clocks, time_beside};
use crate::report::{Position, Report};
use crate::time::Timestamp;

/// A position report as it stands on its line, before it has an event time.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Number of its line in the chunk, from 1.
    pub line: u32,
    /// Where its line begins in the chunk.
    pub start: usize,
    /// What it says.
    pub report: Report,
    /// Where: the report's position, known to be there.
    pub position: Position,
    /// The time that its line gives.
    pub own_time: Option<Timestamp>,
    /// Whether its payload was longer than its type.
    pub overlong: bool,
}

/// A part of a longer message, by the places of its pieces in the text that begins with its line.
#[derive(Clone, Debug)]
pub struct FoundPart {
    /// The sentence, but for its payload.
    vdm: Vdm<'static>,
    time: Option<Timestamp>,
    sentence: Range<u32>,
    payload: Range<u32>,
    group: Option<Range<u32>>,
    source: Option<Range<u32>>,
}

impl FoundPart {
    fn new(text: &[u8], part: &Part<'_>, sentence: &[u8]) -> Self {
        // Every piece is a piece of the text, and a line is far from 4 GiB.
        let place = |piece: &[u8]| {
            let start = piece.as_ptr().addr().wrapping_sub(text.as_ptr().addr()) as u32;
            start..start.wrapping_add(piece.len() as u32)
        };
        Self {
            vdm: Vdm { payload: &[], ..part.vdm },
            time: part.time,
            sentence: place(sentence),
            payload: place(part.vdm.payload),
            group: part.group.map(place),
            source: part.source.map(place),
        }
    }

    /// It, in the text that begins with its line.
    fn in_text<'a>(&self, line: u64, text: &'a [u8]) -> (Part<'a>, Sentence<'a>) {
        let at = |place: &Range<u32>| text.get(place.start as usize..place.end as usize).unwrap_or_default();
        let Self { vdm, time, group, source, .. } = self;
        let part = Part {
            vdm: Vdm { payload: at(&self.payload), ..*vdm },
            group: group.as_ref().map(at),
            source: source.as_ref().map(at),
            time: *time,
            line,
        };
        (part, Sentence { tag_line: None, text: at(&self.sentence) })
    }
}

/// Takes what is found in a chunk, in its order.
pub trait Taker {
    /// A report.
    fn report(&mut self, found: &Found);
    /// A part of a longer message: the number of its line in the chunk, from 1, where its line begins, and it.
    fn part(&mut self, line: u32, start: usize, part: FoundPart);
    /// A line to be read in its turn: its number in the chunk, from 1, and its bytes with the line end.
    fn left(&mut self, line: u32, bytes: Range<usize>);
}

/// Reads whole lines as far as that needs no memory. Returns the fates that are certain, with lines counted from 1.
pub fn read(bytes: &[u8], options: &Options, taker: &mut impl Taker) -> Tally {
    let mut reading = Reading {
        options,
        needs_second: options.needs_second(),
        wants_every_time: options.clock == Some(Clock::Previous),
        after_tag_line: true,
        pghp_until: PGHP_WAIT_LINES,
        tally: Tally::default(),
    };
    let (mut start, mut line) = (0, 0);
    while start < bytes.len() {
        line += 1;
        // A chunk is far from 2^32 lines.
        let number = line as u32;
        let mut take = HandOn { taker: &mut *taker, line: number, start };
        let (seen, length) = match scan::usual_line(&bytes[start..]) {
            Some((context, vdm, length)) => (reading.vdm(line, &bytes[start..], &context, &vdm, &mut take), length),
            None => reading.first_line(line, &bytes[start..], &mut take),
        };
        let next = start + length;
        match seen.fate {
            Fate::Left => taker.left(number, start..next),
            _ => reading.settle(line, seen),
        }
        start = next;
    }
    reading.tally.lines = line;
    reading.tally
}

/// What a line turned out to be.
#[derive(Clone, Copy, Debug)]
struct Seen {
    fate: Fate,
    tag_checksum_bad: bool,
    local_time: bool,
}

/// What becomes of a line with one sentence or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A report, or a part of a longer message, which was taken.
    Taken,
    Rejected(Reject),
    Ignored(Ignore),
    /// A base station report with UTC.
    BaseStation,
    /// An RMC or ZDA sentence.
    ClockSentence,
    /// To be read in its turn.
    Left,
}

impl From<Fate> for Seen {
    fn from(fate: Fate) -> Self {
        Self { fate, tag_checksum_bad: false, local_time: false }
    }
}

/// Takes what is found on a line.
trait Take {
    fn report(&mut self, report: &Report, position: Position, own_time: Option<Timestamp>, overlong: bool);
    fn part(&mut self, part: FoundPart);
}

/// Hands it on with its place.
struct HandOn<'t, T> {
    taker: &'t mut T,
    line: u32,
    start: usize,
}

impl<T: Taker> Take for HandOn<'_, T> {
    #[inline(always)]
    fn report(&mut self, report: &Report, position: Position, own_time: Option<Timestamp>, overlong: bool) {
        let Self { line, start, .. } = *self;
        self.taker.report(&Found { line, start, report: *report, position, own_time, overlong });
    }

    fn part(&mut self, part: FoundPart) {
        self.taker.part(self.line, self.start, part);
    }
}

/// What was found on a line, until the rest of it is known.
enum Kept {
    Report(Report, Position, Option<Timestamp>, bool),
    Part(FoundPart),
}

impl Take for Option<Kept> {
    fn report(&mut self, report: &Report, position: Position, own_time: Option<Timestamp>, overlong: bool) {
        *self = Some(Kept::Report(*report, position, own_time, overlong));
    }

    fn part(&mut self, part: FoundPart) {
        *self = Some(Kept::Part(part));
    }
}

struct Reading<'o> {
    options: &'o Options,
    needs_second: bool,
    wants_every_time: bool,
    /// Whether a TAG block on a line of its own may wait for the next sentence.
    after_tag_line: bool,
    /// Up to this line a `$PGHP` time may wait for its sentence.
    pghp_until: u64,
    tally: Tally,
}

impl Reading<'_> {
    /// Takes note of a fate that is certain, or of a report.
    #[inline(always)]
    fn settle(&mut self, line: u64, seen: Seen) {
        let tally = &mut self.tally;
        tally.items += 1;
        if seen.tag_checksum_bad {
            tally.note(Note::TagChecksumBad, line);
        }
        if seen.local_time {
            tally.note(Note::LocalTime, line);
        }
        match seen.fate {
            Fate::Taken | Fate::Left => {}
            Fate::Rejected(kind) => tally.reject(kind, line),
            Fate::Ignored(kind) => tally.ignore(kind, line),
            Fate::BaseStation => {
                tally.ignore(Ignore::OtherType, line);
                tally.note(Note::BaseStation, line);
            }
            Fate::ClockSentence => {
                tally.ignore(Ignore::OtherSentence, line);
                tally.note(Note::ClockSentence, line);
            }
        }
    }

    /// Reads the first line of a text, whatever it is. Returns its length with its end too.
    #[inline(never)]
    fn first_line(&mut self, line: u64, text: &[u8], take: &mut impl Take) -> (Seen, usize) {
        let (length, end) = scan::first_line(text);
        let text = &text[..length];
        let seen = match scan::whole_line(text) {
            Some((context, vdm)) => self.vdm(line, text, &context, &vdm, take),
            None => self.any_line(line, text, take),
        };
        (seen, length + end)
    }

    /// Reads a line that is not exactly one sentence.
    #[cold]
    fn any_line(&mut self, line: u64, text: &[u8], take: &mut impl Take) -> Seen {
        let mut only = Only { reading: self, text, seen: None, kept: None, sentences: 0 };
        scan::parse_line(text, line, &mut only);
        match only {
            Only { seen: Some(seen), kept, sentences: 1, .. } => {
                match kept {
                    Some(Kept::Report(report, position, own_time, overlong)) => {
                        take.report(&report, position, own_time, overlong);
                    }
                    Some(Kept::Part(part)) => take.part(part),
                    None => {}
                }
                seen
            }
            // What one of several sentences came to cannot be told apart from the rest of its line.
            _ => Fate::Left.into(),
        }
    }

    /// Reads a sentence of the line that `text` begins with.
    #[inline(always)]
    fn vdm(&mut self, line: u64, text: &[u8], context: &Context<'_>, vdm: &Vdm<'_>, take: &mut impl Take) -> Seen {
        if std::mem::take(&mut self.after_tag_line) || line <= self.pghp_until {
            return Fate::Left.into();
        }
        let tag_checksum_bad = context.tag.is_some_and(|tag| tag.bad_checksums > 0);
        if tag_checksum_bad && self.options.require_tag_checksum {
            return Fate::Rejected(Reject::TagChecksum).into();
        }
        let time = match context.tag.and_then(|tag| tag.time) {
            Some(time) => LineTime::At(time),
            None if context.before.is_empty() && context.behind.is_empty() => LineTime::Absent,
            None => time_beside(context, self.options.zone),
        };
        let own_time = time.instant();
        let local_time = time == LineTime::NeedsZone;
        if vdm.total > 1 {
            if vdm.payload.len() > parts::MAX_PART_CHARACTERS {
                return Seen { fate: Fate::Rejected(Reject::Malformed), tag_checksum_bad, local_time: false };
            }
            let part = Part::new(line, context, context.tag.as_ref(), vdm, own_time);
            take.part(FoundPart::new(text, &part, context.raw));
            return Seen { fate: Fate::Taken, tag_checksum_bad, local_time };
        }
        let fate = match self.message(vdm, own_time, take) {
            // Its time is one that later reports may take.
            fate if self.wants_every_time && own_time.is_some() && fate != Fate::Taken => Fate::Left,
            fate => fate,
        };
        Seen { fate, tag_checksum_bad, local_time }
    }

    #[inline(always)]
    fn message(&self, vdm: &Vdm<'_>, own_time: Option<Timestamp>, take: &mut impl Take) -> Fate {
        let options = self.options;
        let (report, overlong) = match message::decode(vdm.payload, vdm.fill, self.needs_second) {
            Message::Report { report, overlong } => (report, overlong),
            Message::CutOff(kind) if options.types.contains(kind) => return Fate::Rejected(Reject::CutOff),
            Message::Empty => return Fate::Rejected(Reject::CutOff),
            Message::BaseStation { has_clock: true } if options.clock == Some(Clock::BaseStation) => return Fate::Left,
            Message::BaseStation { has_clock: true } => return Fate::BaseStation,
            Message::BaseStation { .. } | Message::CutOff(_) | Message::Other(_) => {
                return Fate::Ignored(Ignore::OtherType);
            }
        };
        let ignored = |kind| Fate::Ignored(if options.types.contains(report.kind) { kind } else { Ignore::OtherType });
        if vdm.own_ship && !options.own_ship {
            return ignored(Ignore::OwnShip);
        }
        match report.position {
            Some(position) => {
                take.report(&report, position, own_time, overlong);
                Fate::Taken
            }
            // Its UTC second leads on to the times of later reports.
            None if own_time.is_none() && options.start.is_some() => Fate::Left,
            None => ignored(Ignore::NoPosition),
        }
    }
}

/// Looks at a line of which nobody knows what it holds.
struct Only<'r, 'o> {
    reading: &'r mut Reading<'o>,
    text: &'r [u8],
    /// What came last.
    seen: Option<Seen>,
    kept: Option<Kept>,
    sentences: u32,
}

impl Only<'_, '_> {
    fn see(&mut self, seen: impl Into<Seen>) {
        self.seen = Some(seen.into());
        self.sentences += 1;
    }

    /// Sees what takes no part in what waits, but ends a TAG block's wait.
    fn see_sentence(&mut self, fate: Fate) {
        let waited = std::mem::take(&mut self.reading.after_tag_line);
        self.see(if waited { Fate::Left } else { fate });
    }
}

impl Visitor for Only<'_, '_> {
    fn vdm(&mut self, line: u64, context: &Context<'_>, vdm: &Vdm<'_>) {
        let seen = self.reading.vdm(line, self.text, context, vdm, &mut self.kept);
        self.see(seen);
    }

    fn other_sentence(&mut self, line: u64, _: &Context<'_>, body: &[u8], intact: bool) {
        let is_clock = intact && clocks::is_clock_sentence(body);
        let fate = if intact && line_time::read_pghp(body).is_some() {
            self.reading.pghp_until = line + PGHP_WAIT_LINES;
            Fate::Left
        } else if self.reading.wants_every_time || is_clock && self.reading.options.clock == Some(Clock::Sentences) {
            Fate::Left
        } else if is_clock {
            Fate::ClockSentence
        } else {
            Fate::Ignored(Ignore::OtherSentence)
        };
        self.see_sentence(fate);
    }

    fn reject(&mut self, _: u64, kind: Reject) {
        self.see_sentence(Fate::Rejected(kind));
    }

    fn bare_line(&mut self, _: u64, kind: Ignore) {
        self.see(Fate::Ignored(kind));
    }

    fn tag_line(&mut self, _: u64, _: Tag<'_>, _: &[u8]) {
        self.reading.after_tag_line = true;
        self.see(Fate::Left);
    }
}

/// What has to be known of a report to settle its event time.
#[derive(Clone, Copy, Debug)]
pub struct Undated {
    /// Number of its line in the partition.
    pub line: u64,
    /// The time that its line gives.
    pub own_time: Option<Timestamp>,
    /// Its UTC second.
    pub utc_second: Option<u8>,
    /// Whether its type is one of those that are counted.
    pub counted: bool,
    /// Whether its payload was longer than its type.
    pub overlong: bool,
    /// Whether it has no SOG.
    pub sog_missing: bool,
}

impl Decoder {
    /// Settles the event time of a report that [`read`] found, and with it the report's fate: accepted where there is a
    /// time. Reports and the lines left must be taken in the order of the partition.
    #[inline]
    pub fn date(&mut self, report: &Undated) -> Option<Timestamp> {
        if let Some(time) = report.own_time
            && self.timekeeper.wants_every_time()
        {
            self.timekeeper.show(Clock::Previous, time);
        }
        let EventTime::At(time) = self.timekeeper.event_time(report.own_time, None, report.utc_second) else {
            if report.counted {
                self.tally.reject(Reject::NoEventTime, report.line);
            } else {
                self.tally.ignore(Ignore::OtherType, report.line);
            }
            return None;
        };
        if report.overlong {
            self.tally.note(Note::Overlong, report.line);
        }
        if report.sog_missing {
            self.tally.note(Note::SogMissing, report.line);
        }
        self.tally.accepted += 1;
        Some(time)
    }

    /// Number of the next line.
    #[must_use]
    pub fn next_line(&self) -> u64 {
        self.next_line
    }

    /// Takes a part that [`read`] found. `line` is its number in the partition, and `text` begins with its line.
    pub fn part(&mut self, line: u64, text: &[u8], part: &FoundPart, accept: impl FnMut(Accepted<'_>)) {
        let (part, sentence) = part.in_text(line, text);
        Step { decoder: self, arrival: None, accept }.join(&part, sentence);
    }

    /// Reads lines that [`read`] left. `line` is the number of the first in the partition.
    pub fn lines_left(&mut self, line: u64, bytes: &[u8], accept: impl FnMut(Accepted<'_>)) {
        self.next_line = line;
        self.feed(bytes, 1, None, accept);
    }

    /// Takes the tally of a chunk that is dealt with. `line` is the number of its first line.
    pub fn chunk_read(&mut self, line: u64, tally: &Tally) {
        self.tally.add(tally, line - 1);
        self.next_line = line + tally.lines;
    }
}

/// The sentence of a line that held one alone, with the TAG block before it, as written. `text` begins with that line.
#[must_use]
pub fn sentence_as_written(text: &[u8]) -> Vec<u8> {
    let mut written = AsWritten(Vec::new());
    let (length, _) = scan::first_line(text);
    scan::scan(&text[..length], &mut 1, 1, &mut written);
    written.0
}

struct AsWritten(Vec<u8>);

impl Visitor for AsWritten {
    fn vdm(&mut self, _: u64, context: &Context<'_>, _: &Vdm<'_>) {
        self.0 = context.raw.to_vec();
    }
    fn other_sentence(&mut self, _: u64, _: &Context<'_>, _: &[u8], _: bool) {}
    fn reject(&mut self, _: u64, _: Reject) {}
    fn bare_line(&mut self, _: u64, _: Ignore) {}
    fn tag_line(&mut self, _: u64, _: Tag<'_>, _: &[u8]) {}
}
