//! Writes the logs in `samples/`, byte for byte the same each time; and endless traffic for benches.
//!
//! ```text
//! cargo run --example make_samples                writes them
//! cargo run --example make_samples -- --check     compares, and exits 1 where they differ
//! cargo run --release --example make_samples -- --stream LINES [--no-tags] [--seed N]
//! ```
//!
//! Every vessel, its name and its MMSI are invented. No clock and no entropy is read, and the geometry keeps to
//! integers and to the operations that IEEE 754 rounds correctly (add, multiply, divide, square root; no sine), so
//! that the bytes agree on every platform.

#![allow(clippy::float_arithmetic, reason = "vessels move on a plane; see above why the bytes agree all the same")]

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use encode::{Bits, Particulars, Position, Utc};

#[path = "../tests/support/encode.rs"]
mod encode;

const USAGE: &str = "usage: make_samples [--check | --stream LINES [--no-tags] [--seed N]]";

fn main() -> ExitCode {
    let (message, status) = match Command::parse(env::args_os().skip(1)) {
        Err(error) => (format!("{error}\n{USAGE}"), 2),
        Ok(command) => match command.run() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (error, 1),
        },
    };
    // Where stderr is gone, so is the reader of this message.
    let _ = writeln!(io::stderr(), "make_samples: {message}");
    ExitCode::from(status)
}

enum Command {
    Write,
    Check,
    Stream { lines: u64, tags: bool, seed: u64 },
}

impl Command {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let (mut check, mut lines, mut tags, mut seed) = (false, None, true, 1);
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--check") => check = true,
                Some("--stream") => lines = Some(number(&mut args, "--stream")?),
                Some("--no-tags") => tags = false,
                Some("--seed") => seed = number(&mut args, "--seed")?,
                _ => return Err(format!("unexpected argument {}", arg.display())),
            }
        }
        match lines {
            Some(_) if check => Err("--check and --stream exclude each other".to_owned()),
            Some(lines) => Ok(Self::Stream { lines, tags, seed }),
            None if !tags || seed != 1 => Err("--no-tags and --seed need --stream".to_owned()),
            None if check => Ok(Self::Check),
            None => Ok(Self::Write),
        }
    }

    fn run(self) -> Result<(), String> {
        match self {
            Self::Write => SAMPLES.iter().try_for_each(Sample::write),
            Self::Check => check_samples(),
            Self::Stream { lines, tags, seed } => stream_to_stdout(lines, tags, seed),
        }
    }
}

fn number(args: &mut impl Iterator<Item = OsString>, option: &str) -> Result<u64, String> {
    args.next().and_then(|value| value.to_str()?.parse().ok()).ok_or_else(|| format!("{option} needs a whole number"))
}

// ---- The files ------------------------------------------------------------------------------------------------------

struct Sample {
    file_name: &'static str,
    contents: fn() -> Vec<u8>,
}

const SAMPLES: [Sample; 3] = [
    Sample { file_name: "diagram.nmea", contents: diagram },
    Sample { file_name: "diagram-late.nmea", contents: diagram_late },
    Sample { file_name: "harbour.nmea", contents: harbour },
];

impl Sample {
    fn path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(self.file_name)
    }

    fn write(&self) -> Result<(), String> {
        let path = self.path();
        let parent = path.parent().unwrap_or(&path);
        fs::create_dir_all(parent).map_err(|error| format!("cannot create {}: {error}", parent.display()))?;
        fs::write(&path, (self.contents)()).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// What is wrong with the file on disk, if anything is.
    fn difference(&self) -> Option<String> {
        let path = self.path();
        let on_disk = match fs::read(&path) {
            Ok(on_disk) => on_disk,
            Err(error) => return Some(format!("cannot read {}: {error}", path.display())),
        };
        let ours = (self.contents)();
        if on_disk == ours {
            return None;
        }
        let same = on_disk.iter().zip(&ours).take_while(|(theirs, ours)| theirs == ours).count();
        let line = 1 + ours[..same].iter().filter(|&&byte| byte == b'\n').count();
        Some(format!("{} differs from line {line} on", path.display()))
    }
}

fn check_samples() -> Result<(), String> {
    let differences: Vec<_> = SAMPLES.iter().filter_map(Sample::difference).collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n`cargo run --example make_samples` writes them anew", differences.join("\n")))
}

// ---- The diagram ----------------------------------------------------------------------------------------------------

/// A vessel that crosses the diagram on a straight course.
struct Crossing {
    mmsi: u32,
    /// Where it would be at second 0.
    origin: Place,
    /// Longitude and latitude that it makes in a second, in 1/10,000 minute.
    drift: (i32, i32),
}

const fn crossing(mmsi: u32, lon: i32, lat: i32, drift: (i32, i32)) -> Crossing {
    Crossing { mmsi, origin: Place { lon: lon as f64, lat: lat as f64 }, drift }
}

// The cell u4pruy spans longitudes 6,242,432 to 6,249,023 and latitudes 34,587,159 to 34,590,454.
const COASTER: Crossing = crossing(219_000_101, 6_242_600, 34_587_400, (41, 22));
const TUG: Crossing = crossing(219_000_102, 6_251_100, 34_588_600, (-40, 3));
const CRUISER: Crossing = crossing(219_000_103, 6_244_200, 34_587_050, (4, 18));
const TRAWLER: Crossing = crossing(265_000_104, 6_243_600, 34_590_000, (19, -10));
const YACHT: Crossing = crossing(257_000_105, 6_247_500, 34_590_700, (0, -20));
const FERRY: Crossing = crossing(219_000_106, 6_225_700, 34_589_000, (100, 0));
const DINGHY: Crossing = crossing(219_000_107, 6_246_000, 34_588_000, (0, 19));
/// South-west of the cell.
const TANKER: Crossing = crossing(636_000_108, 6_218_450, 34_572_620, (30, 28));

const SKAGEN: Station = Station { name: "skagen", max_payload_chars: 48, ..WEST };

enum Entry {
    Note(&'static str),
    /// Event time in seconds, message type, vessel, SOG in 1/10 knot.
    Report(u32, u8, &'static Crossing, u16),
}
use Entry::{Note, Report};

const DIAGRAM: &[Entry] = &[
    Note("Six vessels cross the geohash cell u4pruy, off Skagen, in the first three minutes of 1970."),
    Note("Windows of 60 s:"),
    Note(""),
    Note("  window    reports  SOG sum  average"),
    Note("    0- 60      12     112.8      9.4"),
    Note("   60-120      15     121.5      8.1"),
    Note("  120-180       7      71.4     10.2"),
    Note(""),
    Note("Event time is in the TAG block, as c: in UNIX seconds. Reports arrive a few seconds out of order."),
    Note("The UTC second in the payload agrees."),
    Note(""),
    Note("Class A every 10 s, above 14 kn every 6 s (types 1 and 3); class B every 30 s (types 18 and 19)."),
    Report(2, 1, &COASTER, 118),
    Report(12, 1, &COASTER, 117),
    Report(14, 18, &CRUISER, 70),
    Report(22, 1, &COASTER, 117),
    Report(32, 1, &COASTER, 116),
    Report(28, 18, &TRAWLER, 61),
    Note("One report in two sentences (type 19); g: groups them."),
    Report(36, 19, &YACHT, 84),
    Report(42, 1, &COASTER, 116),
    Report(44, 18, &CRUISER, 68),
    Report(57, 3, &TUG, 86),
    Report(52, 1, &COASTER, 115),
    Note("Here begins the second window."),
    Report(62, 1, &COASTER, 112),
    Report(67, 3, &TUG, 83),
    Report(66, 18, &YACHT, 75),
    Report(72, 1, &COASTER, 110),
    Report(77, 3, &TUG, 81),
    Report(74, 18, &CRUISER, 67),
    Report(82, 1, &COASTER, 108),
    Report(92, 1, &COASTER, 106),
    Report(87, 3, &TUG, 79),
    Report(88, 18, &TRAWLER, 49),
    Report(97, 3, &TUG, 78),
    Report(104, 18, &CRUISER, 66),
    Report(107, 3, &TUG, 77),
    Report(118, 18, &TRAWLER, 48),
    Report(117, 3, &TUG, 76),
    Note("And here the third."),
    Report(127, 3, &TUG, 75),
    Report(137, 3, &TUG, 74),
    Report(134, 18, &CRUISER, 65),
    Report(148, 18, &TRAWLER, 49),
    Report(164, 18, &CRUISER, 64),
    Note("A report of second 58 arrives when the event time has reached 164. With an allowed lateness of 120 s the"),
    Note("watermark is at 44, before the end of window 0: it counts. With 60 s it is at 104, and the report is late."),
    Report(58, 18, &TRAWLER, 60),
    Report(173, 1, &FERRY, 193),
    Report(179, 1, &FERRY, 194),
];

const LATE: &[Entry] = &[
    Note(""),
    Note("So far diagram.nmea. A minute later, a tanker to the south-west takes the event time on: window 180."),
    Report(185, 1, &TANKER, 120),
    Report(195, 1, &TANKER, 120),
    Report(205, 1, &TANKER, 121),
    Report(225, 1, &TANKER, 122),
    Report(215, 1, &TANKER, 121),
    Report(235, 1, &TANKER, 122),
    Note("A report of second 42 in u4pruy, of 6.8 kn. With 120 s the watermark is at 115, past the end of window 0:"),
    Note("late. It goes to the late side-output. Reconciled, window 0 has 13 reports, SOG sum 119.6, average 9.2."),
    Report(42, 18, &DINGHY, 68),
];

fn diagram() -> Vec<u8> {
    DIAGRAM.iter().flat_map(Entry::lines).collect()
}

fn diagram_late() -> Vec<u8> {
    DIAGRAM.iter().chain(LATE).flat_map(Entry::lines).collect()
}

impl Entry {
    fn lines(&self) -> Vec<u8> {
        match self {
            Note(text) => format!("# {text}").trim_end().to_owned() + "\n",
            Report(time, message_type, vessel, sog) => vessel.report(*time, *message_type, *sog),
        }
        .into_bytes()
    }
}

impl Crossing {
    /// The lines of one report.
    fn report(&self, time: u32, message_type: u8, sog: u16) -> String {
        let (east, north) = (f64::from(self.drift.0) * COS_LATITUDE, f64::from(self.drift.1));
        let seconds = f64::from(time);
        let cog = bearing(east, north);
        let mut position = Position {
            mmsi: self.mmsi,
            status: 0,
            sog,
            cog,
            second: (time % 60) as u8,
            ..self.origin.moved(east * seconds, north * seconds).position()
        };
        let bits = match message_type {
            18 => encode::class_b(&position),
            19 => {
                let particulars =
                    Particulars { name: "SUNNAN", ship_type: 36, bow: 8, stern: 4, ..Particulars::default() };
                encode::class_b_extended(&position, &particulars)
            }
            _ => {
                position.heading = cog / 10;
                encode::class_a(message_type, &position)
            }
        };
        SKAGEN.lines(&bits, time, 1, 'A').into_iter().map(|(tag, sentence)| format!("{tag}{sentence}\n")).collect()
    }
}

// ---- The harbour ----------------------------------------------------------------------------------------------------

const HARBOUR_HEADER: &str = "\
# One hour in the approaches to a harbour, from 2026-05-01T06:00:00Z, as two stations heard it: harbour-west at sea and
# harbour-east in the port. Vessels between them are heard by both, which doubles their reports; ais-replay counts what
# it reads. Geometry and traffic are roughly those of Gothenburg, vessels and MMSIs are invented.
#
# c: is the UNIX second in which the station received the sentence; harbour-west stamps only the first part of a
# message, g: says what belongs to it. Lines stand in the order in which they reached the recorder, up to 2.5 s later.
#
# Some lines are as bad as real logs have them, a few of each kind:
#   a wrong checksum, none at all, a sentence cut off, a byte that is no ASCII, a payload that is too long;
#   two sentences on one line, a TAG block with a wrong checksum, one half of a message whose other half was lost;
#   own-ship reports (VDO), clock sentences (ZDA, RMC), words, blank lines, five minutes of CRLF from harbour-east;
#   reports without a position (one moored ship) and without a speed.
# Four reports reached the recorder four to six minutes after they were received: at a lateness of 120 s they are late.
";

/// 2026-05-01T06:00:00Z.
const HARBOUR_START: u32 = 1_777_615_200;
const HOUR: i32 = 3600;
/// The traffic begins this many seconds earlier, so that at the hour vessels are already under way.
const RUN_UP: i32 = 5400;

fn harbour() -> Vec<u8> {
    let mut log = record_traffic(&mut Rng(2026));
    log.extend(clock_sentences());
    log.extend(asides());
    log.sort_by_key(|line| line.arrival_ms);
    for &(minute, damage) in &DAMAGES {
        damage.apply(&mut log, minute * 60_000);
        log.sort_by_key(|line| line.arrival_ms); // what was held up takes its new place
    }
    let mut bytes = HARBOUR_HEADER.as_bytes().to_vec();
    for line in log {
        bytes.extend(line.tag.as_bytes());
        bytes.extend(line.sentence);
        bytes.extend(line.ending.as_bytes());
    }
    bytes
}

/// A line on its way into the log.
struct Line {
    /// When it reaches the recorder, in milliseconds of the hour.
    arrival_ms: i32,
    tag: String,
    sentence: Vec<u8>,
    ending: &'static str,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A position report in one sentence, of a type that is read by default.
    WholeReport,
    FirstPart,
    LaterPart,
    Other,
}

impl Line {
    fn untagged(arrival_ms: i32, text: impl Into<Vec<u8>>) -> Self {
        Self { arrival_ms, tag: String::new(), sentence: text.into(), ending: "\n", role: Role::Other }
    }
}

/// Every second of the hour, every vessel moves and says what is due.
fn record_traffic(rng: &mut Rng) -> Vec<Line> {
    let mut fleet = fleet(rng);
    let mut radio = Radio::default();
    for second in -RUN_UP..HOUR {
        fleet.retain_mut(|vessel| vessel.advance(second));
        if second < 0 {
            continue;
        }
        for vessel in fleet.iter_mut().filter(|vessel| vessel.enters <= second) {
            for message in vessel.due_messages(second, rng) {
                radio.transmit(second, vessel, &message, rng);
            }
        }
    }
    radio.lines
}

/// The recorder's own GPS, once a minute.
fn clock_sentences() -> impl Iterator<Item = Line> {
    (0..60_u32).map(|minute| {
        let Utc { year, month, day, hour, minute: m, second } = Utc::from_unix(HARBOUR_START + minute * 60);
        let body = if minute % 15 == 7 {
            let date = format!("{day:02}{month:02}{:02}", year % 100);
            format!("GPRMC,{hour:02}{m:02}{second:02}.00,A,5742.1200,N,01158.0300,E,0.0,,{date},,,A")
        } else {
            format!("GPZDA,{hour:02}{m:02}{second:02}.00,{day:02},{month:02},{year},00,00")
        };
        Line::untagged(minute as i32 * 60_000, encode::sentence('$', &body))
    })
}

/// What is in a log without belonging there.
fn asides() -> Vec<Line> {
    let own_ship = |minute: i32| {
        let position = Position { mmsi: 265_000_099, status: 5, sog: 0, cog: 0, second: 30, ..WEST.place.position() };
        let bits = encode::class_a(1, &position);
        let sentences = encode::sentences("AI", "VDO", &bits, None, None, encode::MAX_PAYLOAD_CHARS);
        let time = (HARBOUR_START + minute as u32 * 60 + 30).to_string();
        Line {
            tag: encode::tag_block(&[("s", WEST.name), ("c", &time)]),
            ..Line::untagged(minute * 60_000 + 30_400, sentences.concat())
        }
    };
    vec![
        own_ship(10),
        own_ship(40),
        Line::untagged(16 * 60_000 + 1, ""),
        Line::untagged(27 * 60_000 + 1, "harbour-east: link lost"),
        Line::untagged(27 * 60_000 + 9_001, "harbour-east: link restored after 9 s"),
        Line::untagged(27 * 60_000 + 9_002, ""),
        Line::untagged(51 * 60_000 + 1, ""),
    ]
}

/// What happens to a sentence on its way.
#[derive(Clone, Copy)]
enum Damage {
    WrongChecksum,
    NoChecksum,
    CutOff,
    NotAscii,
    TooLong,
    WrongTagChecksum,
    NoNewline,
    LosesFirstPart,
    LosesLaterPart,
    HeldUp { seconds: i32 },
}

/// Each befalls the first line that fits after its minute.
const DAMAGES: [(i32, Damage); 25] = [
    (2, Damage::WrongChecksum),
    (4, Damage::WrongTagChecksum),
    (6, Damage::CutOff),
    (8, Damage::LosesLaterPart),
    (9, Damage::NoNewline),
    (11, Damage::NoChecksum),
    (13, Damage::WrongTagChecksum),
    (14, Damage::WrongChecksum),
    (18, Damage::TooLong),
    (19, Damage::HeldUp { seconds: 275 }),
    (21, Damage::LosesFirstPart),
    (24, Damage::NotAscii),
    (26, Damage::CutOff),
    (28, Damage::WrongTagChecksum),
    (31, Damage::WrongChecksum),
    (32, Damage::HeldUp { seconds: 342 }),
    (33, Damage::HeldUp { seconds: 290 }),
    (36, Damage::NoNewline),
    (38, Damage::LosesLaterPart),
    (41, Damage::NoChecksum),
    (43, Damage::WrongTagChecksum),
    (45, Damage::CutOff),
    (47, Damage::WrongChecksum),
    (49, Damage::HeldUp { seconds: 251 }),
    (53, Damage::WrongTagChecksum),
];

impl Damage {
    /// `log` is in order of arrival.
    fn apply(self, log: &mut Vec<Line>, after_ms: i32) {
        let role = match self {
            Self::LosesFirstPart => Role::FirstPart,
            Self::LosesLaterPart => Role::LaterPart,
            _ => Role::WholeReport,
        };
        let Some(index) = log.iter().position(|line| line.arrival_ms > after_ms && line.role == role) else {
            return;
        };
        let line = &mut log[index];
        match self {
            Self::WrongChecksum => flip_last_digit(&mut line.sentence),
            Self::NoChecksum => line.sentence.truncate(line.sentence.len() - "*hh".len()),
            Self::CutOff => line.sentence.truncate(line.sentence.len() * 2 / 3),
            Self::NotAscii => line.sentence[20] = 0xE5, // Latin-1, and not UTF-8
            Self::TooLong => line.sentence = with_longer_payload(&line.sentence),
            Self::WrongTagChecksum => line.tag = with_wrong_checksum(&line.tag),
            Self::NoNewline => line.ending = "",
            Self::HeldUp { seconds } => line.arrival_ms += seconds * 1000,
            Self::LosesFirstPart | Self::LosesLaterPart => drop(log.remove(index)),
        }
    }
}

fn flip_last_digit(sentence: &mut [u8]) {
    if let Some(digit) = sentence.last_mut() {
        *digit = if *digit == b'0' { b'1' } else { b'0' };
    }
}

/// Two characters more than the message type has, and a checksum that agrees.
fn with_longer_payload(sentence: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(sentence);
    let body = text.trim_start_matches('!').split('*').next().unwrap_or_default();
    let longer = body.rsplit_once(',').map_or(body.to_owned(), |(payload, fill)| format!("{payload}00,{fill}"));
    encode::sentence('!', &longer).into_bytes()
}

fn with_wrong_checksum(tag: &str) -> String {
    match tag.rsplit_once('*') {
        Some((block, _)) if tag.ends_with("*00\\") => format!("{block}*01\\"),
        Some((block, _)) => format!("{block}*00\\"),
        None => tag.to_owned(),
    }
}

// ---- Its stations ---------------------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
struct Station {
    name: &'static str,
    talker: &'static str,
    place: Place,
    max_payload_chars: usize,
    /// Until a sentence is received and stamped: at least, and at most that much more.
    latency_ms: (u32, u32),
    /// Whether later parts are stamped too, or say only to which group they belong.
    stamps_every_part: bool,
}

const WEST: Station = Station {
    name: "harbour-west",
    talker: "AI",
    place: Place::at(57_6320, 11_6050),
    max_payload_chars: encode::MAX_PAYLOAD_CHARS,
    latency_ms: (30, 300),
    stamps_every_part: false,
};

const EAST: Station = Station {
    name: "harbour-east",
    talker: "BS",
    place: Place::at(57_6940, 11_9000),
    max_payload_chars: 48,
    latency_ms: (60, 800),
    stamps_every_part: true,
};

impl Station {
    /// The TAG block and the sentence of each part of a message received at `time`, in UNIX seconds.
    fn lines(&self, bits: &Bits, time: u32, group: u32, channel: char) -> Vec<(String, String)> {
        let one_part = bits.len().div_ceil(6) <= self.max_payload_chars;
        let sequence = (!one_part).then_some((group % 10) as u8);
        let sentences = encode::sentences(self.talker, "VDM", bits, sequence, Some(channel), self.max_payload_chars);
        let time = time.to_string();
        let total = sentences.len();
        let tag = |number: usize| {
            let grouping = format!("{number}-{total}-{group}");
            let mut fields = vec![("g", grouping.as_str()), ("s", self.name), ("c", time.as_str())];
            if one_part {
                fields.remove(0);
            } else if number > 1 && !self.stamps_every_part {
                fields.pop();
            }
            encode::tag_block(&fields)
        };
        (1..).map(tag).zip(sentences).collect()
    }
}

/// What the two stations hear and pass on.
#[derive(Default)]
struct Radio {
    lines: Vec<Line>,
    transmissions: u32,
    /// Multi-part messages so far, by station.
    groups: [u32; 2],
}

impl Radio {
    /// A message sent in `second` of the hour.
    fn transmit(&mut self, second: i32, vessel: &Vessel, message: &Message, rng: &mut Rng) {
        let slot_ms = second * 1000 + rng.below(1000) as i32;
        self.transmissions += 1;
        let channel = if self.transmissions.is_multiple_of(2) { 'A' } else { 'B' };
        for (index, station) in [WEST, EAST].iter().enumerate() {
            if !vessel.is_heard_at(station.place, rng) {
                continue;
            }
            let received_ms = slot_ms + (station.latency_ms.0 + rng.below(station.latency_ms.1)) as i32;
            if received_ms >= HOUR * 1000 {
                continue; // belongs to the next hour's log
            }
            let arrival_ms = received_ms + rng.below(2500) as i32;
            let received = HARBOUR_START + received_ms.unsigned_abs() / 1000;
            let parts = station.lines(&message.bits, received, self.groups[index] + 1, channel);
            if parts.len() > 1 {
                self.groups[index] += 1;
            }
            self.record(arrival_ms, station, message, parts);
        }
    }

    fn record(&mut self, arrival_ms: i32, station: &Station, message: &Message, parts: Vec<(String, String)>) {
        let total = parts.len();
        let ending = if station.name == EAST.name && (20..25).contains(&(arrival_ms / 60_000)) { "\r\n" } else { "\n" };
        for (number, (tag, sentence)) in parts.into_iter().enumerate() {
            let role = match number {
                0 if total > 1 => Role::FirstPart,
                0 if message.is_counted => Role::WholeReport,
                0 => Role::Other,
                _ => Role::LaterPart,
            };
            // Parts follow each other closely; other stations' lines may come between.
            let arrival_ms = arrival_ms + number as i32 * 30;
            self.lines.push(Line { arrival_ms, tag, sentence: sentence.into_bytes(), ending, role });
        }
    }
}

// ---- Its vessels ----------------------------------------------------------------------------------------------------

/// What a vessel, or a station, has on board; it decides what is sent, and how often.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Equipment {
    /// Message 1, or 2 where a base station assigned the rate; 3 while moored or at anchor; 5.
    ClassA { assigned: bool },
    /// Message 18 and 24; or, where the equipment is older, 18 and 19.
    ClassB { extended: bool },
    /// Message 9.
    Aircraft,
    /// Message 4.
    BaseStation,
    /// Message 21.
    AidToNavigation,
}

const CLASS_A: Equipment = Equipment::ClassA { assigned: false };

impl Equipment {
    /// Seconds between position reports (ITU-R M.1371-5, annex 1, tables 1 and 2).
    fn reporting_interval(self, knots: f64, is_waiting: bool) -> i32 {
        match self {
            Self::ClassA { .. } if is_waiting && knots < 3.0 => 180,
            Self::ClassA { .. } if knots <= 14.0 => 10,
            Self::ClassA { .. } if knots <= 23.0 => 6,
            Self::ClassA { .. } => 2,
            Self::ClassB { .. } if knots <= 2.0 => 180,
            Self::ClassB { .. } => 30,
            Self::Aircraft | Self::BaseStation => 10,
            Self::AidToNavigation => 180,
        }
    }

    /// Nautical miles at which a shore station no longer hears it.
    fn reach(self) -> f64 {
        match self {
            Self::ClassA { .. } => 13.0,
            Self::ClassB { .. } => 8.0, // 2 W, and a low antenna
            Self::Aircraft => 60.0,
            Self::BaseStation | Self::AidToNavigation => 12.0,
        }
    }
}

/// Seconds between static data.
const STATIC_INTERVAL: i32 = 360;

struct Message {
    bits: Bits,
    /// Whether it is a position report of a type that is read by default.
    is_counted: bool,
}

#[derive(Clone, Copy)]
enum Step {
    Sail {
        to: Place,
        knots: f64,
    },
    /// A second of the hour.
    WaitUntil(i32),
}

struct Vessel {
    mmsi: u32,
    name: String,
    /// ITU-R M.1371-5, table 53.
    ship_type: u8,
    length: u16,
    equipment: Equipment,
    /// Navigational status while it waits: 1 at anchor, 5 moored.
    waiting_status: u8,
    has_fix: bool,
    /// The second of the hour in which it comes into the picture.
    enters: i32,
    place: Place,
    knots: f64,
    cog: u16,
    plan: VecDeque<Step>,
    last_report: i32,
    last_static: i32,
}

impl Vessel {
    /// At sea from the start, on its way through `plan`; where that ends it leaves the picture.
    fn new(mmsi: u32, name: &str, equipment: Equipment, place: Place, plan: Vec<Step>, rng: &mut Rng) -> Self {
        let knots = match plan.first() {
            Some(&Step::Sail { knots, .. }) => knots,
            _ => 0.0,
        };
        Self {
            mmsi,
            name: name.to_owned(),
            ship_type: 70,
            length: 20,
            equipment,
            waiting_status: 5,
            has_fix: true,
            enters: -RUN_UP,
            place,
            knots,
            cog: rng.below(3600) as u16,
            plan: plan.into(),
            last_report: -(rng.below(180) as i32),
            last_static: -(rng.below(STATIC_INTERVAL as u32) as i32),
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.plan.front(), Some(Step::WaitUntil(_)))
    }

    /// One second on. False when it has left the picture.
    fn advance(&mut self, second: i32) -> bool {
        if second < self.enters {
            return true;
        }
        match self.plan.front() {
            None => return false,
            Some(&Step::WaitUntil(end)) => {
                self.knots = 0.0;
                if second >= end {
                    self.plan.pop_front();
                }
            }
            Some(&Step::Sail { to, knots }) => self.sail(to, knots),
        }
        true
    }

    fn sail(&mut self, to: Place, knots: f64) {
        let (east, north) = self.place.towards(to);
        let distance = (east * east + north * north).sqrt();
        let stops_there = matches!(self.plan.get(1), Some(Step::WaitUntil(_)));
        let limit = if stops_there { knots.min(1.5 + distance / 300.0) } else { knots };
        self.knots += (limit - self.knots).clamp(-0.15, 0.05);
        let step = self.knots * PER_SECOND_AND_KNOT;
        if distance <= step {
            self.place = to;
            self.plan.pop_front();
        } else {
            self.place = self.place.moved(east / distance * step, north / distance * step);
            self.cog = bearing(east, north);
        }
    }

    /// Near, a station hears everything; towards the edge of its reach, less and less.
    fn is_heard_at(&self, station: Place, rng: &mut Rng) -> bool {
        let (east, north) = self.place.towards(station);
        let miles = (east * east + north * north).sqrt() / 10_000.0;
        let share = miles / self.equipment.reach();
        f64::from(rng.below(1000)) < (1.0 - share) * 2500.0
    }

    fn due_messages(&mut self, second: i32, rng: &mut Rng) -> Vec<Message> {
        let mut messages = Vec::new();
        let interval = self.equipment.reporting_interval(self.knots, self.is_waiting());
        if second >= self.last_report + interval {
            // Slots are chosen around the nominal time: some reports come a second early or late.
            let jitter = if interval < 10 { 0 } else { [-1, 0, 0, 0, 0, 1][rng.below(6) as usize] };
            self.last_report = second + jitter;
            let position = self.position(second, rng);
            messages.push(self.report(&position, second));
        }
        if second >= self.last_static + STATIC_INTERVAL {
            self.last_static = second;
            let position = self.position(second, rng);
            messages.extend(self.static_data(&position));
        }
        messages
    }

    fn position(&self, second: i32, rng: &mut Rng) -> Position {
        if !self.has_fix {
            return Position { mmsi: self.mmsi, status: self.waiting_status, ..Position::default() };
        }
        let is_class_a = matches!(self.equipment, Equipment::ClassA { .. });
        let tenths = (self.knots * 10.0).round() as u16;
        // A receiver at rest wanders by a few metres, and by as many tenths of a knot.
        let wander = |rng: &mut Rng| f64::from(rng.below(41)) - 20.0;
        let place = if self.is_waiting() { self.place.moved(wander(rng), wander(rng)) } else { self.place };
        let sog = match rng.below(150) {
            0 => encode::SOG_NOT_AVAILABLE,
            _ => (tenths + rng.below(3) as u16).saturating_sub(u16::from(!self.is_waiting())),
        };
        Position {
            mmsi: self.mmsi,
            status: if self.is_waiting() { self.waiting_status } else { 0 },
            sog,
            cog: self.cog,
            heading: if is_class_a { self.cog / 10 } else { encode::HEADING_NOT_AVAILABLE },
            second: (second % 60) as u8,
            ..place.position()
        }
    }

    fn report(&self, position: &Position, second: i32) -> Message {
        let Position { mmsi, lon, lat, .. } = *position;
        let bits = match self.equipment {
            Equipment::ClassA { .. } if self.is_waiting() => encode::class_a(3, position),
            Equipment::ClassA { assigned } => encode::class_a(if assigned { 2 } else { 1 }, position),
            Equipment::ClassB { .. } => encode::class_b(position),
            Equipment::Aircraft => encode::search_and_rescue(position, 250),
            Equipment::BaseStation => {
                encode::base_station(mmsi, lon, lat, Utc::from_unix(HARBOUR_START + second.unsigned_abs()))
            }
            Equipment::AidToNavigation => encode::aid_to_navigation(mmsi, 14, &self.name, lon, lat, position.second),
        };
        let is_counted = matches!(self.equipment, Equipment::ClassA { .. } | Equipment::ClassB { .. });
        Message { bits, is_counted }
    }

    fn static_data(&self, position: &Position) -> Option<Message> {
        let particulars = Particulars {
            callsign: &format!("SX{:03}", self.mmsi % 1000),
            name: &self.name,
            ship_type: self.ship_type,
            bow: self.length / 4,
            stern: self.length - self.length / 4,
            port: (self.length / 12) as u8,
            starboard: (self.length / 12) as u8,
            draught: (self.length / 3) as u8,
            destination: "SE GOT",
        };
        let (bits, is_counted) = match self.equipment {
            Equipment::ClassA { .. } => (encode::static_and_voyage(self.mmsi, &particulars), false),
            Equipment::ClassB { extended: true } => (encode::class_b_extended(position, &particulars), true),
            Equipment::ClassB { extended: false } => (encode::static_part_a(self.mmsi, &self.name), false),
            Equipment::Aircraft | Equipment::BaseStation | Equipment::AidToNavigation => return None,
        };
        Some(Message { bits, is_counted })
    }
}

// ---- Its traffic ----------------------------------------------------------------------------------------------------

/// The fairway from sea to port: a waypoint, and the speed limit in knots on the leg between it and the one before.
const FAIRWAY: [(Place, f64); 5] = [
    (Place::at(57_5600, 11_4800), 99.0),
    (Place::at(57_6100, 11_6300), 99.0), // pilots board
    (Place::at(57_6390, 11_7000), 14.0),
    (Place::at(57_6830, 11_8300), 12.0),
    (Place::at(57_6960, 11_9200), 8.0),
];

/// A ship that comes in or goes out: name, MMSI, type, length, knots, and the second of the hour in which it comes into
/// the picture or casts off.
type Passage = (&'static str, u32, u8, u16, f64, i32);

const INBOUND: [Passage; 8] = [
    ("NORDVIND", 265_000_201, 70, 140, 13.5, -4900),
    ("KATTEGAT TRADER", 219_000_202, 79, 168, 15.5, -3900),
    ("ELBE CARRIER", 211_000_203, 71, 180, 16.5, -3100),
    ("SVEA SPIRIT", 265_000_204, 60, 212, 18.5, -2300),
    ("AMBER TIDE", 636_000_205, 80, 183, 12.5, -1800),
    ("FJORD MERCHANT", 257_000_206, 70, 88, 10.5, -1200),
    ("BALTIC HERON", 230_000_207, 79, 134, 14.5, 300),
    ("OCEAN LARCH", 538_000_208, 89, 244, 12.0, 1400),
];

const OUTBOUND: [Passage; 6] = [
    ("SUND EXPRESS", 265_000_211, 60, 186, 18.0, -1500),
    ("MAAS PIONEER", 244_000_212, 79, 151, 15.0, -2700),
    ("RED KELP", 209_000_213, 80, 146, 12.5, -600),
    ("HALLAND", 265_000_214, 70, 82, 10.0, 200),
    ("ISLE OF SKERRY", 232_000_215, 71, 120, 13.0, 900),
    ("VARBERG STAR", 265_000_216, 70, 96, 11.5, 2000),
];

const PILOT_STATION: Place = Place::at(57_6690, 11_7750);
const TUG_BASE: Place = Place::at(57_6920, 11_8800);
const ARCHIPELAGO_QUAY: Place = Place::at(57_6600, 11_8400);

fn fleet(rng: &mut Rng) -> Vec<Vessel> {
    let mut fleet = Vec::new();
    fleet.extend(INBOUND.iter().map(|passage| inbound(passage, rng)));
    fleet.extend(OUTBOUND.iter().map(|passage| outbound(passage, rng)));
    fleet.extend(ferries(rng));
    fleet.extend(tugs_and_pilots(rng));
    fleet.extend(ships_at_rest(rng));
    fleet.extend(small_craft(rng));
    fleet.extend(aircraft_and_stations(rng));
    fleet
}

/// Ships keep to starboard, each on a line of its own: to the south going in, to the north going out.
fn lane(waypoint: Place, side: f64, rng: &mut Rng) -> Place {
    waypoint.moved(0.0, side * f64::from(250 + rng.below(350)))
}

fn inbound(&(name, mmsi, ship_type, length, knots, enters): &Passage, rng: &mut Rng) -> Vessel {
    let mut plan: Vec<_> = FAIRWAY[1..]
        .iter()
        .map(|&(waypoint, limit)| Step::Sail { to: lane(waypoint, -1.0, rng), knots: knots.min(limit) })
        .collect();
    plan.push(Step::WaitUntil(HOUR));
    let start = lane(FAIRWAY[0].0, -1.0, rng);
    Vessel { ship_type, length, enters, ..Vessel::new(mmsi, name, CLASS_A, start, plan, rng) }
}

fn outbound(&(name, mmsi, ship_type, length, knots, casts_off): &Passage, rng: &mut Rng) -> Vessel {
    let mut plan = vec![Step::WaitUntil(casts_off)];
    plan.extend(FAIRWAY.windows(2).rev().map(|leg| {
        let (to, limit) = (lane(leg[0].0, 1.0, rng), leg[1].1);
        Step::Sail { to, knots: knots.min(limit) }
    }));
    let berth = lane(FAIRWAY[4].0, 1.0, rng);
    Vessel { ship_type, length, ..Vessel::new(mmsi, name, CLASS_A, berth, plan, rng) }
}

/// There and back, again and again: leaves `home` at `first` and every `period` seconds after it, and `away` half a
/// period later.
fn shuttle(home: Place, away: Place, knots: f64, first: i32, period: i32) -> Vec<Step> {
    (first..HOUR)
        .step_by(period.unsigned_abs() as usize)
        .flat_map(|departure| {
            [
                Step::WaitUntil(departure),
                Step::Sail { to: away, knots },
                Step::WaitUntil(departure + period / 2),
                Step::Sail { to: home, knots },
            ]
        })
        .chain([Step::WaitUntil(HOUR)])
        .collect()
}

fn ferries(rng: &mut Rng) -> Vec<Vessel> {
    let river_north = Place::at(57_6990, 11_9150);
    [
        ("SKARVEN", 265_000_221, ARCHIPELAGO_QUAY, Place::at(57_6170, 11_7900), 11.5, -2400, 2400),
        ("TERNAN", 265_000_222, ARCHIPELAGO_QUAY, Place::at(57_6500, 11_7950), 10.5, -1500, 1800),
        ("ALVEN", 265_000_223, river_north, Place::at(57_6930, 11_9050), 7.5, -960, 960),
    ]
    .into_iter()
    .map(|(name, mmsi, home, away, knots, first, period)| {
        let plan = shuttle(home, away, knots, first, period);
        Vessel { ship_type: 60, length: 36, ..Vessel::new(mmsi, name, CLASS_A, home, plan, rng) }
    })
    .collect()
}

fn tugs_and_pilots(rng: &mut Rng) -> Vec<Vessel> {
    let mut craft = Vec::new();
    for (mmsi, name) in (265_000_231..).zip(["BULL", "BISON", "BUFFEL", "BAMSE"]) {
        let home = TUG_BASE.moved(f64::from(rng.below(300)), 0.0);
        let escort = FAIRWAY[3].0.moved(f64::from(rng.below(6000)), f64::from(rng.below(1000)));
        let first = -(rng.below(1800) as i32);
        let plan = shuttle(home, escort, 8.5, first, 1800);
        craft.push(Vessel { ship_type: 52, length: 30, ..Vessel::new(mmsi, name, CLASS_A, home, plan, rng) });
    }
    // The base station assigns the pilots their reporting rate.
    for (number, name) in (0..).zip(["PILOT 741", "PILOT 742", "PILOT 743"]) {
        let away = FAIRWAY[1].0.moved(f64::from(rng.below(2000)), f64::from(rng.below(2000)));
        let plan = shuttle(PILOT_STATION, away, 20.5, number * 800 - 2400, 2500);
        let equipment = Equipment::ClassA { assigned: true };
        let vessel = Vessel::new(265_000_241 + number.unsigned_abs(), name, equipment, PILOT_STATION, plan, rng);
        craft.push(Vessel { ship_type: 50, length: 16, ..vessel });
    }
    craft
}

fn ships_at_rest(rng: &mut Rng) -> Vec<Vessel> {
    let names =
        ["ASTRID", "BIRGER", "CORONA", "DALIA", "ESTELLE", "FRIGG", "GEFION", "IDUN", "JARL", "KORALL", "LIV", "MODI"];
    let quay = Place::at(57_6900, 11_8600);
    let anchorage = Place::at(57_6200, 11_5600);
    (0..)
        .zip(names)
        .map(|(number, name)| {
            let is_anchored = number >= 8;
            let place = if is_anchored {
                anchorage.moved(f64::from(rng.below(9000)), f64::from(rng.below(6000)))
            } else {
                quay.moved(f64::from(number) * 2400.0, f64::from(number) * 500.0)
            };
            let plan = vec![Step::WaitUntil(HOUR)];
            Vessel {
                length: 90,
                waiting_status: if is_anchored { 1 } else { 5 },
                has_fix: number != 5,
                ..Vessel::new(265_000_251 + number, name, CLASS_A, place, plan, rng)
            }
        })
        .collect()
}

/// Fishing vessels outside, leisure craft among the islands.
fn small_craft(rng: &mut Rng) -> Vec<Vessel> {
    let fishing = ["VGA 12", "GG 204", "GG 351", "LL 77", "VGA 8", "GG 18", "LL 140", "GG 902"];
    let leisure = [
        "ALBA", "BONNY", "CARMEN", "DELFIN", "ELLI", "FREJA", "GUSTAVA", "HAVSBRIS", "INGA", "JOLLY", "KALLE P",
        "LYCKAN", "MISTRAL", "NINA",
    ];
    let mut craft = Vec::new();
    for (mmsi, name) in (265_000_301..).zip(fishing) {
        let knots = 3.0 + f64::from(rng.below(50)) / 10.0;
        let equipment = Equipment::ClassB { extended: mmsi % 4 == 0 };
        let (place, plan) = cruise(Place::at(57_5200, 11_4500), (12.0, 6.0), knots, rng);
        craft.push(Vessel { ship_type: 30, length: 18, ..Vessel::new(mmsi, name, equipment, place, plan, rng) });
    }
    for (mmsi, name) in (265_000_321..).zip(leisure) {
        let is_fast = mmsi % 7 == 0;
        let knots = if is_fast { 17.0 } else { 3.5 + f64::from(rng.below(35)) / 10.0 };
        let equipment = Equipment::ClassB { extended: mmsi % 5 == 0 };
        let (place, plan) = cruise(Place::at(57_6050, 11_6900), (9.0, 4.0), knots, rng);
        let ship_type = if is_fast { 37 } else { 36 };
        craft.push(Vessel { ship_type, length: 11, ..Vessel::new(mmsi, name, equipment, place, plan, rng) });
    }
    craft
}

/// Hither and thither in a box of so many minutes of longitude and latitude: where it starts, and more than an hour
/// of it.
fn cruise(south_west: Place, (width, height): (f64, f64), knots: f64, rng: &mut Rng) -> (Place, Vec<Step>) {
    let mut anywhere = || {
        let (across, up) = (f64::from(rng.below(10_000)) * width, f64::from(rng.below(10_000)) * height);
        south_west.moved(across * COS_LATITUDE, up)
    };
    let start = anywhere();
    (start, (0..40).map(|_| Step::Sail { to: anywhere(), knots }).collect())
}

fn aircraft_and_stations(rng: &mut Rng) -> Vec<Vessel> {
    let knots = 128.0;
    let airfield = Place::at(57_7750, 11_8700);
    let search = [(57_6500, 11_5000), (57_5400, 11_4000), (57_5400, 11_6000), (57_6400, 11_6500), (57_7750, 11_8700)];
    let circuit = search.into_iter().map(|(lat, lon)| Step::Sail { to: Place::at(lat, lon), knots }).collect();
    let mut fixed = |mmsi, name: &str, equipment, place| {
        Vessel::new(mmsi, name, equipment, place, vec![Step::WaitUntil(HOUR)], rng)
    };
    vec![
        fixed(2_650_099, "", Equipment::BaseStation, Place::at(57_6780, 11_8100)),
        fixed(992_650_098, "FAIRWAY 14", Equipment::AidToNavigation, Place::at(57_6405, 11_7080)),
        Vessel { enters: 1500, ..Vessel::new(111_265_097, "", Equipment::Aircraft, airfield, circuit, rng) },
    ]
}

// ---- Endless traffic ------------------------------------------------------------------------------------------------

/// Vessels in the stream: at 300 lines a second, each is heard every 13 s.
const STREAM_FLEET: u32 = 4000;
const STREAM_LINES_PER_SECOND: u64 = 300;
/// 2026-05-01T00:00:00Z.
const STREAM_START: u32 = 1_777_593_600;

fn stream_to_stdout(lines: u64, tags: bool, seed: u64) -> Result<(), String> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match stream(&mut out, lines, tags, seed).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| format!("cannot write to stdout: {error}")),
    }
}

fn stream(out: &mut impl Write, lines: u64, tags: bool, seed: u64) -> io::Result<()> {
    let mut rng = Rng(seed);
    let fleet: Vec<_> = (0..STREAM_FLEET).map(|number| Wanderer::new(number, &mut rng)).collect();
    let mut written = 0;
    while written < lines {
        let now = STREAM_START + (written / STREAM_LINES_PER_SECOND) as u32;
        let time = now - rng.below(4);
        let wanderer = &fleet[rng.below(STREAM_FLEET) as usize];
        let is_static = rng.below(25) == 0 && lines - written >= 2;
        let bits = if is_static { wanderer.static_data() } else { wanderer.report(time) };
        let channel = if rng.below(2) == 0 { 'A' } else { 'B' };
        for (tag, sentence) in wanderer.station().lines(&bits, time, (written % 10_000) as u32, channel) {
            if tags {
                out.write_all(tag.as_bytes())?;
            }
            writeln!(out, "{sentence}")?;
            written += 1;
        }
    }
    Ok(())
}

/// A vessel of the stream, to and fro in a box of its own.
struct Wanderer {
    number: u32,
    /// The corner of the box.
    corner: (i32, i32),
    /// Longitude and latitude a second, in 1/10,000 minute.
    speed: (i32, i32),
}

/// Half the way there and back, in 1/10,000 minute: half a degree.
const BOX: i32 = 300_000;

impl Wanderer {
    /// Between 54 and 60 degrees north, and 3 and 13 degrees east.
    fn new(number: u32, rng: &mut Rng) -> Self {
        let corner = (1_800_000 + rng.below(5_700_000) as i32, 32_400_000 + rng.below(3_300_000) as i32);
        Self { number, corner, speed: (rng.below(60) as i32, rng.below(40) as i32) }
    }

    fn is_class_b(&self) -> bool {
        self.number % 4 == 3
    }

    fn mmsi(&self) -> u32 {
        219_100_000 + self.number
    }

    fn station(&self) -> Station {
        if self.number.is_multiple_of(2) { WEST } else { Station { stamps_every_part: false, ..EAST } }
    }

    fn report(&self, time: u32) -> Bits {
        let (lon, east) = to_and_fro(self.speed.0, time);
        let (lat, north) = to_and_fro(self.speed.1, time);
        let (east, north) = (f64::from(east) * COS_LATITUDE, f64::from(north));
        let tenths = ((east * east + north * north).sqrt() / PER_SECOND_AND_KNOT * 10.0).round() as u16;
        let position = Position {
            mmsi: self.mmsi(),
            status: 0,
            lon: self.corner.0 + lon,
            lat: self.corner.1 + lat,
            sog: tenths + (time % 3) as u16,
            cog: bearing(east, north),
            heading: encode::HEADING_NOT_AVAILABLE,
            second: (time % 60) as u8,
        };
        if self.is_class_b() { encode::class_b(&position) } else { encode::class_a(1, &position) }
    }

    fn static_data(&self) -> Bits {
        let name = format!("VESSEL {}", self.number);
        let particulars = Particulars { name: &name, ship_type: 70, bow: 60, stern: 20, ..Particulars::default() };
        encode::static_and_voyage(self.mmsi(), &particulars)
    }
}

/// Where a vessel that goes to and fro between 0 and [`BOX`] is, and its speed with its sign.
fn to_and_fro(speed: i32, time: u32) -> (i32, i32) {
    let gone = (i64::from(speed) * i64::from(time) % i64::from(2 * BOX)) as i32;
    if gone < BOX { (gone, speed) } else { (2 * BOX - gone, -speed) }
}

// ---- Geometry and chance --------------------------------------------------------------------------------------------

/// At 57.65° north; the sea is flat here.
const COS_LATITUDE: f64 = 0.535;
/// 1/10,000 nautical mile, which is 1/10,000 minute of latitude.
const PER_SECOND_AND_KNOT: f64 = 10_000.0 / 3600.0;

/// Longitude and latitude in 1/10,000 minute.
#[derive(Clone, Copy)]
struct Place {
    lon: f64,
    lat: f64,
}

impl Place {
    /// From 1/10,000 degree.
    const fn at(lat: i32, lon: i32) -> Self {
        Self { lon: lon as f64 * 60.0, lat: lat as f64 * 60.0 }
    }

    /// How far east and north `to` is, in 1/10,000 nautical mile.
    fn towards(self, to: Self) -> (f64, f64) {
        ((to.lon - self.lon) * COS_LATITUDE, to.lat - self.lat)
    }

    /// The place so far east and north of this one, in 1/10,000 nautical mile.
    fn moved(self, east: f64, north: f64) -> Self {
        Self { lon: self.lon + east / COS_LATITUDE, lat: self.lat + north }
    }

    fn position(self) -> Position {
        Position { lon: self.lon.round() as i32, lat: self.lat.round() as i32, ..Position::default() }
    }
}

/// The course from north over east, in 1/10 degree.
///
/// The library's arc tangent may differ in the last bit between platforms; this polynomial (Hastings, 1955) is off by
/// 0.001° at most, the same everywhere.
fn bearing(east: f64, north: f64) -> u16 {
    let (low, high) = (east.abs().min(north.abs()), east.abs().max(north.abs()));
    if high == 0.0 {
        return 0;
    }
    let ratio = low / high;
    let square = ratio * ratio;
    let polynomial = [-0.011_721_20, 0.052_653_32, -0.116_432_87, 0.193_543_46, -0.332_623_47, 0.999_977_26];
    let radians = polynomial.into_iter().fold(0.0, |sum, factor| sum * square + factor) * ratio;
    let octant = radians * (1800.0 / std::f64::consts::PI);
    let quadrant = if east.abs() > north.abs() { 900.0 - octant } else { octant };
    let tenths = match (east < 0.0, north < 0.0) {
        (false, false) => quadrant,
        (false, true) => 1800.0 - quadrant,
        (true, true) => 1800.0 + quadrant,
        (true, false) => 3600.0 - quadrant,
    };
    tenths.round() as u16 % 3600
}

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// 0 to `bound` - 1, evenly enough.
    fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}
