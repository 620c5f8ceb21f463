//! Messages in several sentences: parts wait for each other, bounded in number and in age, and are never decoded alone.

use std::collections::VecDeque;

use crate::decode::scan::Vdm;
use crate::time::Timestamp;

/// How many messages may be open at once in a partition. The oldest goes first.
const MAX_OPEN: usize = 512;

/// How many lines a message stays open after its first part.
const MAX_AGE_LINES: u64 = 4_096;

/// How far the times of two parts of one message may be apart.
const MAX_AGE_NANOS: u64 = 60_000_000_000;

/// The longest payload of one part, in characters. The longest message that AIS can send has 178 in all.
pub const MAX_PART_CHARACTERS: usize = 512;

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

/// What a part led to.
#[derive(Debug)]
pub enum Joined {
    /// The message waits for more.
    Waits,
    /// The message is whole.
    Whole(Whole),
    /// Several open messages could take the part.
    Ambiguous,
}

/// A message put together.
#[derive(Debug)]
pub struct Whole {
    /// Armoured payload of all parts.
    pub payload: Vec<u8>,
    /// Fill bits at its end.
    pub fill: u8,
    /// The time of the first part, by number, that has one.
    pub time: Option<Timestamp>,
    /// The sentences as written, by number.
    pub sentences: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Piece {
    payload: Vec<u8>,
    fill: u8,
    time: Option<Timestamp>,
    sentence: Vec<u8>,
    line: u64,
}

/// A message that waits for parts.
#[derive(Debug)]
struct Open {
    own_ship: bool,
    total: u8,
    /// What its parts have in common: the group, else sequence id and channel.
    group: Option<Vec<u8>>,
    sequence: Option<u8>,
    channel: u8,
    source: Option<Vec<u8>>,
    opened: u64,
    last_time: Option<Timestamp>,
    pieces: Vec<Option<Piece>>,
}

impl Open {
    fn new(part: &Part<'_>) -> Self {
        Self {
            own_ship: part.vdm.own_ship,
            total: part.vdm.total,
            group: part.group.map(<[u8]>::to_vec),
            sequence: part.vdm.sequence,
            channel: part.vdm.channel,
            source: part.source.map(<[u8]>::to_vec),
            opened: part.line,
            last_time: None,
            pieces: (0..part.vdm.total).map(|_| None).collect(),
        }
    }

    /// Same key, whoever received it.
    fn has_key_of(&self, part: &Part<'_>) -> bool {
        let common = match (&self.group, part.group) {
            (Some(mine), Some(group)) => mine == group,
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

    fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().flatten().map(|piece| piece.line)
    }
}

/// The open messages of a partition, oldest first.
#[derive(Debug, Default)]
pub struct Parts {
    open: VecDeque<Open>,
}

impl Parts {
    /// Takes a part. `sentence` is it as written, with its TAG block. Calls `abandon` with the line of each part that is
    /// given up for this one, or for its age.
    pub fn join(&mut self, part: &Part<'_>, sentence: Vec<u8>, mut abandon: impl FnMut(u64)) -> Joined {
        while self.open.front().is_some_and(|open| part.line.saturating_sub(open.opened) > MAX_AGE_LINES) {
            self.give_up(0, &mut abandon);
        }
        // A message of the same key and source from another minute has been waited for long enough.
        while let Some(stale) = self.open.iter().position(|open| {
            open.has_key_of(part) && open.source.as_deref() == part.source && !open.is_of_time_of(part)
        }) {
            self.give_up(stale, &mut abandon);
        }
        let place = match self.place_for(part) {
            Place::Ambiguous => return Joined::Ambiguous,
            Place::Open(place) => place,
            Place::Afresh(place) => {
                self.give_up(place, &mut abandon);
                self.add(part, &mut abandon)
            }
            Place::New => self.add(part, &mut abandon),
        };
        let open = &mut self.open[place];
        if open.source.is_none() {
            open.source = part.source.map(<[u8]>::to_vec);
        }
        open.last_time = part.time.or(open.last_time);
        open.pieces[usize::from(part.vdm.number) - 1] = Some(Piece {
            payload: part.vdm.payload.to_vec(),
            fill: part.vdm.fill,
            time: part.time,
            sentence,
            line: part.line,
        });
        if open.pieces.iter().any(Option::is_none) {
            return Joined::Waits;
        }
        match self.open.remove(place) {
            Some(whole) => Joined::Whole(assemble(whole)),
            None => Joined::Waits,
        }
    }

    fn place_for(&self, part: &Part<'_>) -> Place {
        let fitting =
            || self.open.iter().enumerate().filter(|(_, open)| open.has_key_of(part) && open.is_of_time_of(part));
        let same_source = fitting().find(|(_, open)| open.source.as_deref() == part.source);
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

    fn add(&mut self, part: &Part<'_>, abandon: &mut impl FnMut(u64)) -> usize {
        if self.open.len() == MAX_OPEN {
            self.give_up(0, abandon);
        }
        self.open.push_back(Open::new(part));
        self.open.len() - 1
    }

    fn give_up(&mut self, place: usize, abandon: &mut impl FnMut(u64)) {
        if let Some(open) = self.open.remove(place) {
            open.lines().for_each(abandon);
        }
    }

    /// Gives up everything that still waits, at the end of the partition.
    pub fn finish(&mut self, mut abandon: impl FnMut(u64)) {
        for open in self.open.drain(..) {
            open.lines().for_each(&mut abandon);
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

fn assemble(open: Open) -> Whole {
    let pieces: Vec<Piece> = open.pieces.into_iter().flatten().collect();
    let (last, earlier) = match pieces.split_last() {
        Some((last, earlier)) => (last.fill, earlier),
        None => (0, &[][..]),
    };
    let (payload, fill) = if earlier.iter().all(|piece| piece.fill == 0) {
        let payloads: Vec<&[u8]> = pieces.iter().map(|piece| piece.payload.as_slice()).collect();
        (payloads.concat(), last)
    } else {
        join_bits(&pieces)
    };
    let time = pieces.iter().find_map(|piece| piece.time);
    Whole { payload, fill, time, sentences: pieces.into_iter().map(|piece| piece.sentence).collect() }
}

/// Joins payloads of which not only the last has fill bits, and armours the result anew.
fn join_bits(pieces: &[Piece]) -> (Vec<u8>, u8) {
    let mut bits = Vec::new();
    for piece in pieces {
        let fill = usize::from(piece.fill);
        for character in &piece.payload {
            let value = character - if *character < b'`' { 48 } else { 56 };
            bits.extend((0..6).rev().map(|bit| value >> bit & 1));
        }
        bits.truncate(bits.len().saturating_sub(fill));
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
            match self.parts.join(&part, vec![self.line as u8], |line| self.abandoned.push(line)) {
                Joined::Waits => "waits".to_owned(),
                Joined::Ambiguous => "ambiguous".to_owned(),
                Joined::Whole(whole) => format!("{:?}", whole.sentences.concat()),
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
        let piece =
            |payload: &[u8], fill| Piece { payload: payload.to_vec(), fill, time: None, sentence: vec![], line: 0 };
        // 111111 111|100 dropped 3, then 000111 000000: 111111 111000 111000 000|000.
        let (payload, fill) = join_bits(&[piece(b"wt", 3), piece(b"70", 0)]);
        assert_eq!((payload.as_slice(), fill), (&b"wpp0"[..], 3));
    }
}
