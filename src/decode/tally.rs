//! What became of every sentence and every line: counts by kind, each with an example.

/// Why a sentence (or a line, or a record) could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// No checksum, or less than two digits of one.
    ChecksumMissing,
    /// The checksum is another.
    ChecksumBad,
    /// The fields are not those of a VDM sentence.
    Malformed,
    /// A payload character outside the six-bit armour.
    BadArmour,
    /// The payload ends before a field that is used.
    CutOff,
    /// A TAG block with a wrong checksum or none, and `--tag-checksum require`.
    TagChecksum,
    /// A part whose other parts did not come in time.
    IncompleteMessage,
    /// A part without a source that fits several open messages.
    AmbiguousPart,
    /// A position report without any time.
    NoEventTime,
    /// A report from more than ten minutes after its own arrival.
    Future,
    /// A line of more than 64 KiB.
    LineTooLong,
    /// A record of an event file that is not base64, or whose content cannot be unpacked.
    BadRecord,
}

/// Why a sentence or a line is none of the run's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignore {
    /// A position report that says "position not available" or names no place on the globe.
    NoPosition,
    /// A position report of the receiver's own ship (VDO).
    OwnShip,
    /// A message that is no position report, or of a type that the run does not count.
    OtherType,
    /// A sentence that is neither VDM nor VDO.
    OtherSentence,
    /// A record that was read before in this run.
    DuplicateRecord,
    /// A TAG block on a line of its own.
    TagAlone,
    /// An empty line.
    Blank,
    /// A line that begins with `#`.
    Comment,
    /// A line of text without a sentence.
    Text,
}

/// What is worth telling of sentences whatever their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A TAG block with a wrong checksum or none, and used all the same.
    TagChecksumBad,
    /// A payload longer than its type.
    Overlong,
    /// An accepted report without SOG.
    SogMissing,
    /// A local time on a line, and no `--time-zone`.
    LocalTime,
    /// `$..RMC` or `$..ZDA`: `--clock sentences` could use it.
    ClockSentence,
    /// A base station report that carries UTC (type 4): `--clock base-station` could use it.
    BaseStation,
}

macro_rules! named {
    ($kind:ident { $($variant:ident = $name:literal, $meaning:literal;)* }) => {
        impl $kind {
            /// All of them, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in summaries.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// What it means, in a few words.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),* }
            }
        }
    };
}

named!(Reject {
    ChecksumMissing = "checksum_missing", "no checksum: probably a cut-off sentence";
    ChecksumBad = "checksum_bad", "wrong checksum";
    Malformed = "malformed", "fields that are not those of a VDM sentence";
    BadArmour = "bad_armour", "payload character outside the six-bit alphabet";
    CutOff = "cut_off", "payload ends before a field that is needed";
    TagChecksum = "tag_checksum", "TAG block without a right checksum";
    IncompleteMessage = "incomplete_message", "part of a message whose other parts did not come";
    AmbiguousPart = "ambiguous_part", "part without a source that fits several open messages";
    NoEventTime = "no_event_time", "position report without any time";
    Future = "future", "event time more than ten minutes after the record's arrival";
    LineTooLong = "line_too_long", "line over 64 KiB";
    BadRecord = "bad_record", "record whose data cannot be unpacked";
});

named!(Ignore {
    NoPosition = "no_position", "report whose position is not available";
    OwnShip = "own_ship", "report of the receiver's own ship (VDO)";
    OtherType = "other_type", "message that is no position report of the types counted";
    OtherSentence = "other_sentence", "sentence that is not AIS";
    DuplicateRecord = "duplicate_record", "record that this run had read before";
    TagAlone = "tag_line", "TAG block on a line of its own";
    Blank = "blank_line", "empty line";
    Comment = "comment", "comment line";
    Text = "text", "line without a sentence";
});

named!(Note {
    TagChecksumBad = "tag_checksum_bad", "TAG block with a wrong checksum, used all the same";
    Overlong = "overlong", "payload longer than its type";
    SogMissing = "sog_missing", "report without SOG: counted, in no average";
    LocalTime = "local_time", "local time on the line and no --time-zone";
    ClockSentence = "clock_sentence", "RMC or ZDA sentence";
    BaseStation = "base_station", "base station report with UTC (type 4)";
});

/// A number and where it was first raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub number: u64,
    /// Line, or record, of the first; 0 where there is none.
    pub first: u64,
}

impl Count {
    #[inline]
    fn raise(&mut self, line: u64) {
        if self.number == 0 || line < self.first {
            self.first = line;
        }
        self.number += 1;
    }

    /// Adds a count of lines that come after `lines_before` others.
    fn add(&mut self, other: Self, lines_before: u64) {
        if other.number > 0 {
            let first = lines_before + other.first;
            self.first = if self.number == 0 { first } else { self.first.min(first) };
            self.number += other.number;
        }
    }
}

/// The counts of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sentences, plus lines without one, plus records that could not be opened: the number of fates.
    pub items: u64,
    /// Lines read, or records.
    pub lines: u64,
    /// Position reports accepted.
    pub accepted: u64,
    /// Sentences that are a part of a message but not its last to come.
    pub parts: u64,
    rejected: [Count; Reject::ALL.len()],
    ignored: [Count; Ignore::ALL.len()],
    notes: [Count; Note::ALL.len()],
}

impl Tally {
    /// Takes note of a rejected one.
    pub fn reject(&mut self, kind: Reject, line: u64) {
        self.rejected[kind as usize].raise(line);
    }

    /// Takes note of an ignored one.
    #[inline]
    pub fn ignore(&mut self, kind: Ignore, line: u64) {
        self.ignored[kind as usize].raise(line);
    }

    /// Takes note of something besides the fate.
    #[inline]
    pub fn note(&mut self, kind: Note, line: u64) {
        self.notes[kind as usize].raise(line);
    }

    /// Adds the tally of a piece of the partition that begins after `lines_before` lines.
    pub fn add(&mut self, piece: &Self, lines_before: u64) {
        self.items += piece.items;
        self.lines += piece.lines;
        self.accepted += piece.accepted;
        self.parts += piece.parts;
        let Self { rejected, ignored, notes, .. } = self;
        let mine = rejected.iter_mut().chain(ignored).chain(notes);
        let theirs = piece.rejected.iter().chain(&piece.ignored).chain(&piece.notes);
        mine.zip(theirs).for_each(|(mine, theirs)| mine.add(*theirs, lines_before));
    }

    /// How many were rejected as this kind.
    #[must_use]
    pub fn rejected(&self, kind: Reject) -> Count {
        self.rejected[kind as usize]
    }

    /// How many were ignored as this kind.
    #[must_use]
    pub fn ignored(&self, kind: Ignore) -> Count {
        self.ignored[kind as usize]
    }

    /// How many had this said of them.
    #[must_use]
    pub fn noted(&self, kind: Note) -> Count {
        self.notes[kind as usize]
    }

    /// How many were rejected in all.
    #[must_use]
    pub fn all_rejected(&self) -> u64 {
        self.rejected.iter().map(|count| count.number).sum()
    }

    /// How many were ignored in all.
    #[must_use]
    pub fn all_ignored(&self) -> u64 {
        self.ignored.iter().map(|count| count.number).sum()
    }

    /// Sentences that could be read, whether or not they are of use: what tells a log from anything else.
    #[must_use]
    pub fn readable(&self) -> u64 {
        let ignored = [Ignore::NoPosition, Ignore::OwnShip, Ignore::OtherType, Ignore::DuplicateRecord];
        let rejected = [Reject::NoEventTime, Reject::Future, Reject::IncompleteMessage, Reject::AmbiguousPart];
        self.accepted
            + self.parts
            + ignored.iter().map(|kind| self.ignored(*kind).number).sum::<u64>()
            + rejected.iter().map(|kind| self.rejected(*kind).number).sum::<u64>()
    }
}
