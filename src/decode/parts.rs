//! Messages in several sentences: parts wait for each other, bounded in number and in age, and are never decoded alone.

use std::ops::Range;

use crate::decode::scan::{Context, Vdm};
use crate::decode::tag::Tag;
use crate::time::Timestamp;

/// How many messages may be open at once in a partition. The oldest goes first.
const MAX_OPEN: usize = 512;

/// How many lines a message stays open after its first part.
const MAX_AGE_LINES: u64 = 4_096;

/// How far the times of two parts of one message may be apart.
const MAX_AGE_NANOS: u64 = 60_000_000_000;

/// The longest payload of one part, in characters. The longest message that AIS can send has 178 in all.
pub const MAX_PART_CHARACTERS: usize = 512;

/// How many messages' storage is kept for others.
const MAX_SPARE: usize = 16;

/// One part as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The sentence.
    pub vdm: Vdm<'a>,
    /// Its TAG group, if it is tagged with one.
    pub group: Option<&'a [u8]>,
    /// Who received it.
    pub source: Option<&'a [u8]>,
    /// Its own time.
    pub time: Option<Timestamp>,
    /// Number of its line or record.
    pub line: u64,
}

impl<'a> Part<'a> {
    /// A part by what stands around it: its TAG blocks, those of the line before it among them, and its time.
    #[must_use]
    pub fn new(
        line: u64,
        context: &Context<'a>,
        tag: Option<&Tag<'a>>,
        vdm: &Vdm<'a>,
        time: Option<Timestamp>,
    ) -> Self {
        let source = tag.and_then(|tag| tag.source).or_else(|| station(context.behind));
        Self { vdm: *vdm, group: tag.and_then(|tag| tag.group), source, time, line }
    }
}

/// The station that the US Coast Guard's format names behind a sentence: `,r003669987,` or `,b003669710,`.
fn station(behind: &[u8]) -> Option<&[u8]> {
    behind
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .find(|field| matches!(field, [b'r' | b'b', _, ..]) && field.iter().all(u8::is_ascii_alphanumeric))
}

/// A sentence as written.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a> {
    /// TAG blocks on a line of their own before it.
    pub tag_line: Option<&'a [u8]>,
    /// It, with the TAG blocks on its own line.
    pub text: &'a [u8],
}

/// What a part led to.
#[derive(Debug)]
pub enum Joined {
    /// The message waits for more.
    Waits,
    /// The message is whole. Whoever has read it gives it back ([`Parts::give_back`]).
    Whole(Box<Joint>),
    /// Several open messages could take the part.
    Ambiguous,
}

/// A part that a message has.
#[derive(Clone, Debug)]
struct Piece {
    /// Where its payload and its sentence stand among the bytes of the message.
    payload: Range<usize>,
    sentence: Range<usize>,
    fill: u8,
    time: Option<Timestamp>,
    line: u64,
}

/// The most parts that a message has.
const MAX_PARTS: usize = 9;

/// A message that waits for parts, or has them all. Its storage is used again for others.
#[derive(Debug, Default)]
pub struct Joint {
    own_ship: bool,
    total: u8,
    /// What its parts have in common: the group, else sequence id and channel.
    group: Option<Range<usize>>,
    sequence: Option<u8>,
    channel: u8,
    source: Option<Range<usize>>,
    opened: u64,
    last_time: Option<Timestamp>,
    pieces: [Option<Piece>; MAX_PARTS],
    missing: u8,
    /// Group, source, payloads and sentences of the parts, as they came.
    bytes: Vec<u8>,
    /// Once it is whole: the payloads in their order, and the fill bits at their end.
    payload: Vec<u8>,
    fill: u8,
}

impl Joint {
    /// An open message without parts yet, in the storage of another.
    fn begin(&mut self, part: &Part<'_>) {
        // Field by field: most of it is room for more parts than there are.
        self.bytes.clear();
        self.payload.clear();
        self.own_ship = part.vdm.own_ship;
        self.total = part.vdm.total;
        self.group = part.group.map(|group| self.put(group));
        self.sequence = part.vdm.sequence;
        self.channel = part.vdm.channel;
        self.source = part.source.map(|source| self.put(source));
        self.opened = part.line;
        self.last_time = None;
        self.pieces.iter_mut().for_each(|piece| *piece = None);
        self.missing = part.vdm.total;
        self.fill = 0;
    }

    /// Keeps some bytes, and tells where.
    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn source(&self) -> Option<&[u8]> {
        self.source.clone().map(|place| &self.bytes[place])
    }

    /// Same key, whoever received it.
    fn has_key_of(&self, part: &Part<'_>) -> bool {
        let common = match (&self.group, part.group) {
            (Some(mine), Some(group)) => &self.bytes[mine.clone()] == group,
            (None, None) => self.sequence == part.vdm.sequence && self.channel == part.vdm.channel,
            _ => false,
        };
        common && self.own_ship == part.vdm.own_ship && self.total == part.vdm.total
    }

    fn is_of_time_of(&self, part: &Part<'_>) -> bool {
        match (self.last_time, part.time) {
            (Some(mine), Some(time)) => mine.nanos().abs_diff(time.nanos()) <= MAX_AGE_NANOS,
            _ => true,
        }
    }

    fn lacks(&self, part: &Part<'_>) -> bool {
        self.pieces[usize::from(part.vdm.number) - 1].is_none()
    }

    /// Takes a part that it lacks.
    fn take(&mut self, part: &Part<'_>, sentence: Sentence<'_>) {
        if self.source.is_none() {
            self.source = part.source.map(|source| self.put(source));
        }
        self.last_time = part.time.or(self.last_time);
        let payload = self.put(part.vdm.payload);
        let tag_line = self.put(sentence.tag_line.unwrap_or_default());
        let text = self.put(sentence.text);
        let piece = Piece {
            payload,
            sentence: tag_line.start..text.end,
            fill: part.vdm.fill,
            time: part.time,
            line: part.line,
        };
        self.pieces[usize::from(part.vdm.number) - 1] = Some(piece);
        self.missing -= 1;
    }

    /// Puts the payloads in their order.
    fn complete(&mut self) {
        let Self { pieces, bytes, payload, .. } = self;
        let pieces = pieces.iter().flatten();
        self.fill = pieces.clone().next_back().map_or(0, |last| last.fill);
        let with_fill = pieces.clone().filter(|piece| piece.fill > 0).count();
        if with_fill == usize::from(self.fill > 0) {
            pieces.for_each(|piece| payload.extend_from_slice(&bytes[piece.payload.clone()]));
        } else {
            let parts = pieces.map(|piece| (&bytes[piece.payload.clone()], piece.fill));
            (*payload, self.fill) = join_bits(parts);
        }
    }

    /// Armoured payload of all parts.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Fill bits at its end.
    #[must_use]
    pub fn fill(&self) -> u8 {
        self.fill
    }

    /// The time of the first part, by number, that has one.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        self.pieces.iter().flatten().find_map(|piece| piece.time)
    }

    /// The sentences as written, by number.
    pub fn sentences(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flatten().map(|piece| &self.bytes[piece.sentence.clone()])
    }

    fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().flatten().map(|piece| piece.line)
    }
}

/// The open messages of a partition, oldest first. A few hundred at most: a walk past their keys is cheaper than an index.
#[derive(Debug, Default)]
// They are large, and go back and forth.
#[expect(clippy::vec_box)]
pub struct Parts {
    open: Vec<Box<Joint>>,
    /// What tells most keys apart, of each that is open.
    keys: Vec<u64>,
    /// Storage for more.
    spare: Vec<Box<Joint>>,
}

impl Parts {
    /// Takes a part. Calls `abandon` with the line of each part that is given up for this one, or for its age.
    pub fn join(&mut self, part: &Part<'_>, sentence: Sentence<'_>, mut abandon: impl FnMut(u64)) -> Joined {
        while self.open.first().is_some_and(|open| part.line.saturating_sub(open.opened) > MAX_AGE_LINES) {
            self.give_up(0, &mut abandon);
        }
        let key = key_of(part);
        let place = match self.keys.iter().position(|known| *known == key) {
            None => self.add(key, part, &mut abandon),
            Some(first) => {
                // A message of the same key and source from another minute has been waited for long enough.
                while let Some(stale) = self.stale(key, first, part) {
                    self.give_up(stale, &mut abandon);
                }
                match self.place_for(key, first, part) {
                    Place::Ambiguous => return Joined::Ambiguous,
                    Place::Open(place) => place,
                    Place::Afresh(place) => {
                        self.give_up(place, &mut abandon);
                        self.add(key, part, &mut abandon)
                    }
                    Place::New => self.add(key, part, &mut abandon),
                }
            }
        };
        let open = &mut self.open[place];
        open.take(part, sentence);
        if open.missing > 0 {
            return Joined::Waits;
        }
        let mut whole = self.remove(place);
        whole.complete();
        Joined::Whole(whole)
    }

    /// Takes back a message that is read.
    pub fn give_back(&mut self, whole: Box<Joint>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(whole);
        }
    }

    /// The open messages of a part's key, with their places. There is none before `first`.
    fn of_key<'s>(&'s self, key: u64, first: usize, part: &'s Part<'_>) -> impl Iterator<Item = (usize, &'s Joint)> {
        let places = (first..).zip(&self.keys[first..]).filter(move |(_, known)| **known == key);
        places.map(|(place, _)| (place, &*self.open[place])).filter(|(_, open)| open.has_key_of(part))
    }

    fn stale(&self, key: u64, first: usize, part: &Part<'_>) -> Option<usize> {
        let mut of_source = self.of_key(key, first, part).filter(|(_, open)| open.source() == part.source);
        of_source.find(|(_, open)| !open.is_of_time_of(part)).map(|(place, _)| place)
    }

    fn place_for(&self, key: u64, first: usize, part: &Part<'_>) -> Place {
        let fitting = || self.of_key(key, first, part).filter(|(_, open)| open.is_of_time_of(part));
        let same_source = fitting().find(|(_, open)| open.source() == part.source);
        if part.source.is_some() {
            let unnamed = fitting().find(|(_, open)| open.source.is_none() && open.lacks(part));
            return match (same_source, unnamed) {
                (Some((place, open)), _) if open.lacks(part) => Place::Open(place),
                (Some((place, _)), _) => Place::Afresh(place),
                (None, Some((place, _))) => Place::Open(place),
                (None, None) => Place::New,
            };
        }
        let mut lacking = fitting().filter(|(_, open)| open.lacks(part));
        match (lacking.next(), lacking.next(), same_source) {
            (Some((place, _)), None, _) => Place::Open(place),
            (Some(_), Some(_), _) => Place::Ambiguous,
            (None, _, Some((place, _))) => Place::Afresh(place),
            (None, _, None) => Place::New,
        }
    }

    fn add(&mut self, key: u64, part: &Part<'_>, abandon: &mut impl FnMut(u64)) -> usize {
        if self.open.len() == MAX_OPEN {
            self.give_up(0, abandon);
        }
        let mut open = self.spare.pop().unwrap_or_default();
        open.begin(part);
        self.open.push(open);
        self.keys.push(key);
        self.open.len() - 1
    }

    /// Takes one that is open, by its place.
    fn remove(&mut self, place: usize) -> Box<Joint> {
        self.keys.remove(place);
        self.open.remove(place)
    }

    fn give_up(&mut self, place: usize, abandon: &mut impl FnMut(u64)) {
        let open = self.remove(place);
        open.lines().for_each(abandon);
        self.give_back(open);
    }

    /// Gives up everything that still waits, at the end of the partition.
    pub fn finish(&mut self, mut abandon: impl FnMut(u64)) {
        while !self.open.is_empty() {
            self.give_up(0, &mut abandon);
        }
    }
}

/// Where a part goes.
enum Place {
    /// Into this open message.
    Open(usize),
    /// Into a new one, in place of this one, which has such a part already.
    Afresh(usize),
    /// Into a new one.
    New,
    /// Several could take it.
    Ambiguous,
}

/// A number that parts of one message share, and parts of others hardly ever.
fn key_of(part: &Part<'_>) -> u64 {
    let Vdm { own_ship, total, sequence, channel, .. } = part.vdm;
    let common = match part.group {
        // The hash of Fowler, Noll and Vo.
        Some(group) => group
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)),
        None => u64::from(sequence.map_or(255, |id| id)) << 8 | u64::from(channel),
    };
    common << 8 ^ u64::from(total) << 1 ^ u64::from(own_ship)
}

/// Joins payloads of which not only the last has fill bits, and armours the result anew.
fn join_bits<'a>(parts: impl Iterator<Item = (&'a [u8], u8)>) -> (Vec<u8>, u8) {
    let mut bits = Vec::new();
    for (payload, fill) in parts {
        for character in payload {
            let value = character - if *character < b'`' { 48 } else { 56 };
            bits.extend((0..6).rev().map(|bit| value >> bit & 1));
        }
        bits.truncate(bits.len().saturating_sub(usize::from(fill)));
    }
    let fill = (6 - bits.len() % 6) % 6;
    let payload = bits.chunks(6).map(|six| {
        let value = (0..6).fold(0, |value, bit| value << 1 | six.get(bit).copied().unwrap_or(0));
        value + if value < 40 { 48 } else { 56 }
    });
    (payload.collect(), fill as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Feed {
        parts: Parts,
        line: u64,
        abandoned: Vec<u64>,
    }

    impl Feed {
        fn new() -> Self {
            Self { parts: Parts::default(), line: 0, abandoned: Vec::new() }
        }

        /// Feeds `number/total`, group, source and time, and tells what it led to.
        fn part(&mut self, number: u8, total: u8, group: &str, source: &str, seconds: Option<i64>) -> String {
            self.line += 1;
            let payload = [b'0' + number; 2];
            let vdm =
                Vdm { own_ship: false, total, number, sequence: Some(3), channel: b'A', payload: &payload, fill: 0 };
            let part = Part {
                vdm,
                group: Some(group.as_bytes()).filter(|group| !group.is_empty()),
                source: Some(source.as_bytes()).filter(|source| !source.is_empty()),
                time: seconds.and_then(Timestamp::from_seconds),
                line: self.line,
            };
            let sentence = Sentence { tag_line: None, text: &[self.line as u8] };
            match self.parts.join(&part, sentence, |line| self.abandoned.push(line)) {
                Joined::Waits => "waits".to_owned(),
                Joined::Ambiguous => "ambiguous".to_owned(),
                Joined::Whole(whole) => {
                    let sentences: Vec<&[u8]> = whole.sentences().collect();
                    let told = format!("{:?}", sentences.concat());
                    self.parts.give_back(whole);
                    told
                }
            }
        }
    }

    #[test]
    fn parts_come_in_any_order() {
        let mut feed = Feed::new();
        assert_eq!(feed.part(3, 3, "", "", None), "waits");
        assert_eq!(feed.part(1, 3, "", "", None), "waits");
        assert_eq!(feed.part(2, 3, "", "", None), "[2, 3, 1]");
        assert!(feed.abandoned.is_empty());
    }

    #[test]
    fn a_part_without_source_joins_the_one_message_that_it_fits() {
        let mut feed = Feed::new();
        feed.part(1, 2, "21", "rA", None);
        assert_eq!(feed.part(2, 2, "21", "", None), "[1, 2]");
        feed.part(1, 2, "21", "rA", None);
        feed.part(1, 2, "21", "rB", None);
        assert_eq!(feed.part(2, 2, "21", "", None), "ambiguous");
        assert_eq!(feed.part(2, 2, "21", "rB", None), "[4, 6]");
        assert_eq!(feed.part(2, 2, "21", "", None), "[3, 7]");
        // The other way about: the part without a source came first.
        feed.part(2, 2, "22", "", None);
        assert_eq!(feed.part(1, 2, "22", "rA", None), "[9, 8]");
    }

    #[test]
    fn a_second_part_of_the_same_number_starts_afresh() {
        let mut feed = Feed::new();
        feed.part(1, 2, "", "rA", None);
        feed.part(1, 2, "", "rA", None);
        assert_eq!(feed.abandoned, [1]);
        assert_eq!(feed.part(2, 2, "", "rA", None), "[2, 3]");
    }

    #[test]
    fn a_group_and_a_sequence_id_are_different_keys() {
        let mut feed = Feed::new();
        feed.part(1, 2, "9", "rA", None);
        assert_eq!(feed.part(2, 2, "", "rA", None), "waits");
        assert_eq!(feed.part(2, 2, "9", "rA", None), "[1, 3]");
    }

    #[test]
    fn waiting_is_bounded_in_lines_time_and_number() {
        let mut feed = Feed::new();
        feed.part(1, 2, "1", "", None);
        feed.line += MAX_AGE_LINES;
        assert_eq!(feed.part(2, 2, "1", "", None), "waits");
        assert_eq!(feed.abandoned, [1]);

        let mut feed = Feed::new();
        feed.part(1, 2, "1", "rA", Some(1000));
        assert_eq!(feed.part(2, 2, "1", "rA", Some(1061)), "waits");
        assert_eq!(feed.abandoned, [1]);
        assert_eq!(feed.part(1, 2, "1", "rA", Some(1100)), "[3, 2]");

        let mut feed = Feed::new();
        for group in 0..=MAX_OPEN {
            feed.part(1, 2, &group.to_string(), "", None);
        }
        assert_eq!(feed.abandoned, [1]);
        feed.abandoned.clear();
        let Feed { parts, abandoned, .. } = &mut feed;
        parts.finish(|line| abandoned.push(line));
        assert_eq!(feed.abandoned.len(), MAX_OPEN);
    }

    #[test]
    fn fill_bits_inside_a_message_are_taken_out() {
        // 111111 111|100 dropped 3, then 000111 000000: 111111 111000 111000 000|000.
        let (payload, fill) = join_bits([(&b"wt"[..], 3), (&b"70"[..], 0)].into_iter());
        assert_eq!((payload.as_slice(), fill), (&b"wpp0"[..], 3));
    }
}
