//! Properties of every stream of reports: how it is split, ordered, cut into chunks and read changes no byte of what comes
//! out; the engine equals a naive one; every sentence has one fate.
//!
//! The naive engine ([`Naive`]) is written from the sentences of the specification, which are quoted where they are used.
//! It knows neither panes nor chunks and never closes a window: it walks the accepted reports of each partition in their
//! order and tries every window. Streams have few cells, vessels and instants, so that what can collide does.
//!
//! `PROPTEST_CASES=2000 cargo test --test properties` looks harder.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/encode.rs"]
mod encode;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ais_replay::cell::Precision;
use ais_replay::decode::batch::{self, Found, FoundPart, Taker, Undated};
use ais_replay::decode::event_time::{Clock, EventTimeMode};
use ais_replay::decode::tally::{Ignore, Reject, Tally};
use ais_replay::decode::{self, Accepted, Decoder, Record};
use ais_replay::engine::clock::{Lateness, NO_WATERMARK, Outlook, PartitionClock};
use ais_replay::engine::{Engine, Event, Pairs, Selection};
use ais_replay::filter::Filter;
use ais_replay::memory::MemorySize;
use ais_replay::report::{MessageType, MessageTypes};
use ais_replay::row::Row;
use ais_replay::run::{self, Finished, Outcome, Output, PartitionOutcome, Plan, Progress, Totals};
use ais_replay::sink::SinkError;
use ais_replay::sink::late::{Header, HeaderOptions, LateFile, LateReport};
use ais_replay::source::file::find;
use ais_replay::source::{Chunk, Input, ReadOptions, Reader};
use ais_replay::spill::Spilled;
use ais_replay::time::{Span, Timestamp};
use ais_replay::window::WindowSpec;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;
use tempfile::TempDir;

/// `cases` of them, or as many as `PROPTEST_CASES` asks for. Seeds of failures are kept beside this file.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Reports, and how a log writes them
// ---------------------------------------------------------------------------------------------------------------------

/// Memory that no stream here fills.
const UNLIMITED: MemorySize = MemorySize::from_bytes(1 << 40);

/// Epoch seconds at which most streams begin: inside a window of any usual length.
const BEGINNING: i64 = 1_700_000_007;

const HOUR_MILLIS: i64 = 3_600_000;

/// Where vessels are, as (lon, lat) in 1/10,000 minute; type 27 too can say each of them exactly. The first two share
/// their cell at precision 6 but not at 8.
const PLACES: [(i32, i32); 4] =
    [(6_600_000, 34_500_000), (6_601_000, 34_501_000), (7_200_000, 34_500_000), (-11_100_000, -20_340_000)];

/// A box as the command line takes it, and its edges W, S, E, N in 1/10,000 minute. The first place lies on an edge.
const BOX: (&str, [i32; 4]) = ("11,57,11.5,58", [6_600_000, 34_200_000, 6_900_000, 34_800_000]);

/// A position report as it is meant.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// Epoch milliseconds.
    time: i64,
    kind: u8,
    /// Which of [`PLACES`].
    place: usize,
    mmsi: u32,
    /// Tenths of a knot.
    sog: Option<u16>,
}

impl Report {
    /// Its SOG as received: types 9 and 27 send whole knots.
    fn received_sog(&self) -> Option<u16> {
        self.sog.map(|tenths| if matches!(self.kind, 9 | 27) { tenths / 10 * 10 } else { tenths })
    }

    /// Its message; not available is what it does not have, and its place too where it is not `positioned`.
    fn bits(&self, positioned: bool) -> encode::Bits {
        let sog = self.sog.unwrap_or(encode::SOG_NOT_AVAILABLE);
        // Whole seconds of a minute.
        let second = self.time.div_euclid(1000).rem_euclid(60) as u8;
        let mut position = encode::Position { mmsi: self.mmsi, sog, second, ..encode::Position::default() };
        if positioned {
            (position.lon, position.lat) = PLACES[self.place];
        }
        encode::position_report(self.kind, &position)
    }

    fn sentence(&self) -> String {
        one_sentence("VDM", &self.bits(true))
    }

    fn tag(&self) -> String {
        encode::tag_block(&[("c", &decimal_seconds(self.time))])
    }

    fn tagged_sentence(&self) -> String {
        self.tag() + &self.sentence()
    }

    fn event(&self, precision: u8) -> Event {
        Event {
            time: Timestamp::from_nanos(self.time * 1_000_000),
            cell: cell_of(self.place, precision).parse().unwrap(),
            mmsi: self.mmsi,
            sog: self.received_sog(),
        }
    }
}

fn one_sentence(formatter: &str, bits: &encode::Bits) -> String {
    encode::sentences("AI", formatter, bits, None, Some('A'), encode::MAX_PAYLOAD_CHARS).concat()
}

/// Epoch milliseconds as decimal seconds: `1700000007.25`.
fn decimal_seconds(millis: i64) -> String {
    let text = format!("{}.{:03}", millis.div_euclid(1000), millis.rem_euclid(1000));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// "Geohash of length 1–12, as the `geohash` crate gives it."
#[allow(clippy::float_arithmetic, reason = "the crate takes degrees")]
fn cell_of(place: usize, precision: u8) -> String {
    let degrees = |units: i32| f64::from(units) / 600_000.0;
    let (lon, lat) = PLACES[place];
    geohash::encode(geohash::Coord { x: degrees(lon), y: degrees(lat) }, usize::from(precision)).unwrap()
}

/// How a report stands in a log, if it is one at all.
#[derive(Clone, Copy, Debug)]
enum Form {
    OneSentence,
    /// Type 19 in two sentences, which so many other entries may part.
    TwoSentences {
        apart: usize,
        second_first: bool,
        times: Times,
    },
    BadChecksum,
    NoPosition,
    NoTime,
    OwnShip,
    Noise(&'static str),
}

/// Which of two parts say when.
#[derive(Clone, Copy, Debug)]
enum Times {
    Both,
    First,
    Second,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    report: Report,
    form: Form,
    line_end: &'static str,
}

/// A line with its end, and the report that is accepted once it has been read.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    accepted: Option<Report>,
}

impl Entry {
    /// Its lines; the second part of a message in two is the second.
    fn lines(&self, sequence: u8) -> Vec<Line> {
        let Self { report, form, line_end } = *self;
        let line = |text: String, accepted| Line { text: text + line_end, accepted };
        match form {
            Form::OneSentence => vec![line(report.tagged_sentence(), Some(report))],
            Form::TwoSentences { second_first, times, .. } => {
                let mut parts = encode::sentences("AI", "VDM", &report.bits(true), Some(sequence), Some('A'), 28);
                assert_eq!(parts.len(), 2);
                for (part, timed) in parts.iter_mut().zip(times.by_part()) {
                    *part = if timed { report.tag() + part } else { part.clone() };
                }
                if second_first {
                    parts.reverse();
                }
                parts.into_iter().zip([None, Some(report)]).map(|(part, accepted)| line(part, accepted)).collect()
            }
            Form::BadChecksum => {
                let sentence = report.tagged_sentence();
                let (body, sum) = sentence.rsplit_once('*').unwrap();
                let wrong = u8::from_str_radix(sum, 16).unwrap() ^ 0x11;
                vec![line(format!("{body}*{wrong:02X}"), None)]
            }
            Form::NoPosition => vec![line(report.tag() + &one_sentence("VDM", &report.bits(false)), None)],
            Form::NoTime => vec![line(report.sentence(), None)],
            Form::OwnShip => vec![line(report.tag() + &one_sentence("VDO", &report.bits(true)), None)],
            Form::Noise(text) => vec![line(text.to_owned(), None)],
        }
    }
}

impl Times {
    fn by_part(self) -> [bool; 2] {
        match self {
            Self::Both => [true, true],
            Self::First => [true, false],
            Self::Second => [false, true],
        }
    }
}

/// What a file holds.
#[derive(Clone, Debug)]
struct Log {
    entries: Vec<Entry>,
    /// Whether the last line lacks its end.
    open_end: bool,
}

impl Log {
    /// Its lines in their order. Of messages in two sentences few are open at a time, so none shares its sequence id.
    fn lines(&self) -> Vec<Line> {
        let mut slots = vec![Vec::new(); self.entries.len()];
        let mut sequence = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            let mut apart = 0;
            if let Form::TwoSentences { apart: entries, .. } = entry.form {
                (apart, sequence) = (entries, (sequence + 1) % 10);
            }
            let second = (place + apart).min(self.entries.len() - 1);
            for (line, slot) in entry.lines(sequence).into_iter().zip([place, second]) {
                slots[slot].push(line);
            }
        }
        slots.concat()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text: String = self.lines().into_iter().map(|line| line.text).collect();
        if self.open_end {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
        }
        text.into_bytes()
    }

    /// The reports that are accepted, in the order in which they are.
    fn accepted(&self) -> Vec<Report> {
        self.lines().into_iter().filter_map(|line| line.accepted).collect()
    }

    fn count(&self, wanted: impl Fn(&Form) -> bool) -> u64 {
        self.entries.iter().filter(|entry| wanted(&entry.form)).count() as u64
    }
}

/// A report before its place in a stream is known.
#[derive(Clone, Copy, Debug)]
struct Draft {
    /// Seconds since the one before.
    advance: i64,
    /// How far, in milliseconds, it stands off the stream's time.
    offset: i64,
    /// Part of a second.
    millis: i64,
    report: Report,
}

/// Gives drafts their times.
fn timed(beginning: i64, drafts: &[Draft]) -> Vec<Report> {
    let mut now = beginning;
    let timed = drafts.iter().map(|draft| {
        now += draft.advance;
        Report { time: now * 1000 + draft.offset + draft.millis, ..draft.report }
    });
    timed.collect()
}

fn draft() -> impl Strategy<Value = Draft> {
    let advance = prop_oneof![
        40 => 0..8_i64,
        20 => Just(0),
        10 => 10..120_i64,
        1 => select(vec![3_600, 3_601, 90_000]),
    ];
    let offset = prop_oneof![
        40 => Just(0),
        15 => (-180..=0_i64).prop_map(|seconds| seconds * 1000),
        2 => select(vec![HOUR_MILLIS - 1, HOUR_MILLIS, HOUR_MILLIS + 1, 24 * HOUR_MILLIS, 720 * HOUR_MILLIS]),
        1 => Just(-24 * HOUR_MILLIS),
    ];
    let sog = prop_oneof![1 => Just(None), 5 => select(vec![0, 1, 94, 102, 109, 620]).prop_map(Some)];
    let kind = prop_oneof![8 => select(vec![1_u8, 2, 3, 18, 19]), 1 => select(vec![9_u8, 27])];
    let millis = select(vec![0, 0, 0, 1, 250, 999]);
    (advance, offset, millis, 0..PLACES.len(), kind, 219_000_001..219_000_005_u32, sog).prop_map(
        |(advance, offset, millis, place, kind, mmsi, sog)| Draft {
            advance,
            offset,
            millis,
            report: Report { time: 0, kind, place, mmsi, sog },
        },
    )
}

fn form() -> impl Strategy<Value = Form> {
    let two = (0..4_usize, any::<bool>(), select(vec![Times::Both, Times::First, Times::Second]))
        .prop_map(|(apart, second_first, times)| Form::TwoSentences { apart, second_first, times });
    prop_oneof![24 => Just(Form::OneSentence), 4 => two, 4 => other_form()]
}

/// Forms of one line each, so that any order of lines makes sense.
fn one_line() -> impl Strategy<Value = Form> {
    prop_oneof![7 => Just(Form::OneSentence), 1 => other_form()]
}

/// Forms of what cannot be accepted.
fn other_form() -> impl Strategy<Value = Form> {
    select(vec![
        Form::BadChecksum,
        Form::NoPosition,
        Form::NoTime,
        Form::OwnShip,
        Form::Noise("receiver restarted"),
        Form::Noise("# a comment"),
        Form::Noise("$GPGGA,,,,,,0,,,,,,,,*66"),
    ])
}

fn line_end() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just("\n"), 2 => Just("\r\n"), 1 => Just("\r")]
}

fn entries(form: impl Strategy<Value = Form>, most: usize) -> impl Strategy<Value = Vec<Entry>> {
    vec((draft(), form, line_end()), 0..most).prop_map(|drawn| {
        let drafts: Vec<Draft> = drawn.iter().map(|(draft, ..)| *draft).collect();
        let reports = timed(BEGINNING, &drafts).into_iter();
        let entry = |(mut report, (_, form, line_end)): (Report, (Draft, Form, &'static str))| {
            if matches!(form, Form::TwoSentences { .. }) {
                report.kind = 19;
            }
            Entry { report, form, line_end }
        };
        reports.zip(drawn).map(entry).collect()
    })
}

fn log() -> impl Strategy<Value = Log> {
    (entries(form(), 60), any::<bool>()).prop_map(|(entries, open_end)| Log { entries, open_end })
}

fn logs() -> impl Strategy<Value = Vec<Log>> {
    vec(log(), 1..5)
}

// ---------------------------------------------------------------------------------------------------------------------
// What a run is asked for
// ---------------------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
struct Request {
    windows: Windows,
    /// Seconds; none is unbounded.
    lateness: Option<u32>,
    since: Option<i64>,
    until: Option<i64>,
    types: Vec<u8>,
    boxed: bool,
    /// A place, and how much of its geohash is the prefix.
    prefix: Option<(usize, u8)>,
}

/// Windows and cells.
#[derive(Clone, Copy, Debug)]
struct Windows {
    length: u32,
    slide: u32,
    precision: u8,
}

impl Windows {
    fn spec(self) -> WindowSpec {
        WindowSpec::new(Span::from_seconds(self.length), Some(Span::from_seconds(self.slide))).unwrap()
    }
}

fn lateness(seconds: Option<u32>) -> Lateness {
    seconds.map_or(Lateness::Unbounded, |seconds| Lateness::Allowed(Span::from_seconds(seconds)))
}

impl Request {
    fn plan(&self) -> Plan {
        let types: MessageTypes = self.types.iter().copied().filter_map(MessageType::from_number).collect();
        let prefix = self.prefix.map(|(place, length)| cell_of(place, length).parse().unwrap());
        Plan {
            decode: decode::Options { types, ..decode::Options::default() },
            window: self.windows.spec(),
            lateness: lateness(self.lateness),
            precision: Precision::new(self.windows.precision).unwrap(),
            selection: Selection { since: self.since, until: self.until, only: None },
            filter: Filter {
                types,
                bounding_box: self.boxed.then(|| BOX.0.parse().unwrap()),
                cells: prefix.into_iter().collect(),
            },
            read: ReadOptions::default(),
            threads: 1,
            memory: UNLIMITED,
        }
    }

    /// Whether the filters leave a report in.
    fn counts(&self, report: &Report) -> bool {
        let ((lon, lat), [west, south, east, north]) = (PLACES[report.place], BOX.1);
        let in_box = west <= lon && lon <= east && south <= lat && lat <= north;
        let in_cell = self.prefix.is_none_or(|(place, length)| {
            cell_of(report.place, self.windows.precision).starts_with(&cell_of(place, length))
        });
        self.types.contains(&report.kind) && (in_box || !self.boxed) && in_cell
    }

    /// "A window is selected when it lies wholly inside."
    fn selects(&self, start: i64) -> bool {
        let end = start + i64::from(self.windows.length);
        self.since.is_none_or(|since| since <= start) && self.until.is_none_or(|until| end <= until)
    }
}

fn windows() -> impl Strategy<Value = Windows> {
    let length = prop_oneof![1..100_u32, Just(60_u32)];
    let slide_and_length = length.prop_flat_map(|length| {
        let divisors: Vec<u32> = (length.div_ceil(8)..=length).filter(|slide| length % slide == 0).collect();
        (prop_oneof![Just(length), length.div_ceil(8)..=length, select(divisors)], Just(length))
    });
    (slide_and_length, select(vec![4_u8, 6, 8])).prop_map(|((slide, length), precision)| Windows {
        length,
        slide,
        precision,
    })
}

fn bounded_lateness() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![1 => Just(0), 3 => 1..200_u32].prop_map(Some)
}

fn any_lateness() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![5 => bounded_lateness(), 1 => Just(None)]
}

fn request(lateness: impl Strategy<Value = Option<u32>>) -> impl Strategy<Value = Request> {
    let edge = || option::weighted(0.3, (-60..400_i64).prop_map(|seconds| BEGINNING + seconds));
    let types = prop_oneof![Just(vec![1, 2, 3, 18, 19]), Just(vec![1, 2, 3, 9, 18, 19, 27]), Just(vec![1, 9])];
    let prefix = option::weighted(0.2, (0..PLACES.len(), 1..5_u8));
    (windows(), lateness, edge(), edge(), types, prop::bool::weighted(0.2), prefix).prop_map(
        |(windows, lateness, since, until, types, boxed, prefix)| Request {
            windows,
            lateness,
            since,
            until,
            types,
            boxed,
            prefix,
        },
    )
}

// ---------------------------------------------------------------------------------------------------------------------
// The naive engine
// ---------------------------------------------------------------------------------------------------------------------

/// Window start, cell, count, SOG sum, reports without SOG, vessels.
type FlatRow = (i64, String, u64, u64, u64, u64);

/// Cell, window start, MMSI, event time.
type LatePair = (String, i64, u32, String);

struct Naive<'a> {
    windows: Windows,
    /// Whether the filters leave a report in.
    counts: &'a dyn Fn(&Report) -> bool,
    /// Whether the run is about a cell and window.
    selects: &'a dyn Fn(&str, i64) -> bool,
    aggregates: BTreeMap<(i64, String), NaiveAggregate>,
    late: Vec<LatePair>,
    pairs: Pairs,
}

#[derive(Default)]
struct NaiveAggregate {
    count: u64,
    sog_sum: u64,
    sog_missing: u64,
    vessels: BTreeSet<u32>,
}

impl<'a> Naive<'a> {
    fn new(windows: Windows, counts: &'a dyn Fn(&Report) -> bool, selects: &'a dyn Fn(&str, i64) -> bool) -> Self {
        let (aggregates, late) = (BTreeMap::new(), Vec::new());
        Self { windows, counts, selects, aggregates, late, pairs: Pairs::default() }
    }

    /// "The result is the sum of the partitions' results": `reports` are those that one of them accepts, in order.
    fn add_partition(&mut self, lateness: Option<u32>, reports: &[Report]) {
        let mut seen = Vec::new();
        for report in reports {
            // "A (report, window) is late when the window's end ≤ the watermark that the report's own partition had
            // before it." "`--lateness unbounded` makes nothing late."
            let before = lateness.and_then(|lateness| Some(event_time(&seen)? - i64::from(lateness) * 1000));
            // "Event time is taken from every report that is accepted, before any filter."
            seen.push(report.time);
            if (self.counts)(report) {
                self.add(report, before);
            }
        }
    }

    fn add(&mut self, report: &Report, watermark: Option<i64>) {
        let cell = cell_of(report.place, self.windows.precision);
        for start in self.covering(report.time) {
            let end_millis = (start + i64::from(self.windows.length)) * 1000;
            if !(self.selects)(&cell, start) {
                self.pairs.outside += 1;
            } else if watermark.is_some_and(|watermark| end_millis <= watermark) {
                self.pairs.late += 1;
                self.late.push((cell.clone(), start, report.mmsi, decimal_seconds(report.time)));
            } else {
                self.pairs.added += 1;
                self.aggregates.entry((start, cell.clone())).or_default().add(report);
            }
        }
    }

    /// "`[start, start + window)` with start a multiple of the slide", by trying every multiple near by.
    fn covering(&self, time_millis: i64) -> Vec<i64> {
        let (length, slide) = (i64::from(self.windows.length), i64::from(self.windows.slide));
        let seconds = time_millis / 1000;
        let near = (seconds - length - 2) / slide - 2..=(seconds + 2) / slide + 2;
        let holds = |start: &i64| start * 1000 <= time_millis && time_millis < (start + length) * 1000;
        near.map(|multiple| multiple * slide).filter(holds).collect()
    }

    /// "Rows come ordered by (window_start, cell)."
    fn rows(&self) -> Vec<FlatRow> {
        let row = |((start, cell), sum): (&(i64, String), &NaiveAggregate)| {
            (*start, cell.clone(), sum.count, sum.sog_sum, sum.sog_missing, sum.vessels.len() as u64)
        };
        self.aggregates.iter().map(row).collect()
    }

    fn late(mut self) -> Vec<LatePair> {
        self.late.sort();
        self.late
    }
}

impl NaiveAggregate {
    /// "SOG not available: the report counts, but enters neither sum nor divisor, and raises `sog_missing`."
    fn add(&mut self, report: &Report) {
        self.count += 1;
        self.sog_sum += report.received_sog().map_or(0, u64::from);
        self.sog_missing += u64::from(report.sog.is_none());
        self.vessels.insert(report.mmsi);
    }
}

/// "A partition's event time is the largest time seen in it, or the second largest while the two differ by more than an
/// hour; none until two reports are seen."
fn event_time(seen: &[i64]) -> Option<i64> {
    let mut seen = seen.to_vec();
    seen.sort_unstable();
    let [.., second, largest] = seen[..] else { return None };
    Some(if largest - second > HOUR_MILLIS { second } else { largest })
}

fn flat(row: &Row) -> FlatRow {
    let vessels = row.vessels.expect("a run knows its vessels");
    (row.window_start, row.cell.to_string(), row.count, row.sog_sum.0, row.sog_missing, vessels)
}

// ---------------------------------------------------------------------------------------------------------------------
// Runs over files
// ---------------------------------------------------------------------------------------------------------------------

/// Files in a directory of their own.
struct Stored {
    directory: TempDir,
    paths: Vec<PathBuf>,
}

impl Stored {
    fn new(logs: &[Log]) -> Self {
        Self::of_bytes(&logs.iter().map(Log::bytes).collect::<Vec<_>>())
    }

    fn of_bytes(logs: &[Vec<u8>]) -> Self {
        let directory = TempDir::new().unwrap();
        let paths = (0..logs.len()).map(|number| directory.path().join(format!("{number}.nmea"))).collect();
        let stored = Self { directory, paths };
        for (path, log) in stored.paths.iter().zip(logs) {
            fs::write(path, log).unwrap();
        }
        stored
    }

    fn inputs(&self) -> Vec<Input> {
        find(&self.paths).unwrap().inputs
    }
}

/// All that a run tells. Late reports stand in the order of the partitions, as in a late file.
#[derive(Debug, PartialEq)]
struct Told {
    rows: Vec<Row>,
    late: Vec<LateReport>,
    pairs: Pairs,
    partitions: Vec<ToldPartition>,
}

#[derive(Debug, PartialEq)]
struct ToldPartition {
    name: String,
    tally: Tally,
    /// Reports that filters left out.
    filtered: u64,
    first_and_last_time: [Option<Timestamp>; 2],
}

impl Told {
    fn of(mut kept: Kept, outcome: Outcome) -> Self {
        // Stable: within a partition the order stays.
        kept.late.sort_by_key(|(partition, _)| *partition);
        let partition = |partition: PartitionOutcome| ToldPartition {
            name: partition.name,
            tally: partition.tally,
            filtered: partition.filtered.total(),
            first_and_last_time: [partition.first_time, partition.last_time],
        };
        Self {
            rows: kept.rows,
            late: kept.late.into_iter().map(|(_, late)| late).collect(),
            pairs: outcome.pairs,
            partitions: outcome.partitions.into_iter().map(partition).collect(),
        }
    }

    fn flat_rows(&self) -> Vec<FlatRow> {
        self.rows.iter().map(flat).collect()
    }

    fn late_pairs(&self) -> Vec<LatePair> {
        let pair = |late: &LateReport| (late.cell.clone(), late.window_start, late.mmsi, late.event_time.clone());
        let mut pairs: Vec<LatePair> = self.late.iter().map(pair).collect();
        pairs.sort();
        pairs
    }

    fn accepted(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.tally.accepted).sum()
    }
}

/// Keeps what a run gives as it comes.
#[derive(Default)]
struct Kept {
    rows: Vec<Row>,
    late: Vec<(usize, LateReport)>,
}

impl Kept {
    /// The late file of the run.
    fn late_file(&self) -> String {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("late.ndjson");
        let mut file = LateFile::create(&path).unwrap();
        for (partition, late) in &self.late {
            file.push(*partition, late);
        }
        file.finish(&header()).unwrap();
        fs::read_to_string(path).unwrap()
    }
}

impl Output for Kept {
    /// Takes one window, later than those before it: an engine that runs in circles fails before memory does.
    fn rows(&mut self, Finished { rows, .. }: &Finished) -> Result<(), SinkError> {
        let start = rows.first().expect("a window without rows").window_start;
        assert!(rows.iter().all(|row| row.window_start == start));
        assert!(self.rows.last().is_none_or(|last| last.window_start < start), "{start} comes again, or too late");
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn late(&mut self, partition: usize, late: &dyn Fn() -> LateReport) {
        self.late.push((partition, late()));
    }

    fn progress(&mut self, _: &Progress) {}
}

fn header() -> Header {
    let (window_seconds, slide_seconds) = (60, 60);
    let (lateness, types) = ("120s".to_owned(), "1,2,3,18,19".to_owned());
    let options = HeaderOptions { window_seconds, slide_seconds, lateness, precision: 6, types };
    Header { late_format: 1, run: "a run".to_owned(), options, targets: Vec::new() }
}

fn run_keeping(inputs: &[Input], plan: &Plan) -> (Kept, Outcome) {
    let mut kept = Kept::default();
    let outcome = run::run(inputs, plan, &mut kept).unwrap();
    (kept, outcome)
}

fn run_over(inputs: &[Input], plan: &Plan) -> Told {
    let (kept, outcome) = run_keeping(inputs, plan);
    Told::of(kept, outcome)
}

/// What a summary is made of, besides what [`Told`] holds.
fn in_words(outcome: &Outcome) -> String {
    let Totals { rows, windows, count, sog_sum, sog_missing, cells, vessels, span } = &outcome.totals;
    let read: Vec<_> = outcome.partitions.iter().map(|partition| (&partition.read, partition.filtered)).collect();
    format!("{rows} {windows} {count} {sog_sum} {sog_missing} {cells:?} {vessels:?} {span:?} {read:?}")
}

/// Every order of some things.
fn orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.is_empty() {
        return vec![Vec::new()];
    }
    let beginning_with = |place: usize| {
        let mut rest = things.to_vec();
        let first = rest.remove(place);
        orders(&rest).into_iter().map(move |order| [vec![first.clone()], order].concat())
    };
    (0..things.len()).flat_map(beginning_with).collect()
}

/// Cuts entries into files.
fn split(entries: &[Entry], cuts: &[Index]) -> Vec<Log> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(entries.len() + 1)).collect();
    ends.push(entries.len());
    ends.sort_unstable();
    let mut start = 0;
    let log = |end| {
        let entries = entries[start..end].to_vec();
        start = end;
        Log { entries, open_end: false }
    };
    ends.into_iter().map(log).collect()
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_run_equals_the_naive_engine(
        logs in logs(),
        request in request(any_lateness()),
        chunk_bytes in select(vec![64, 500, 256 * 1024]),
    ) {
        let plan = request.plan();
        let plan = Plan { read: ReadOptions { chunk_bytes, ..plan.read }, ..plan };
        let told = run_over(&Stored::new(&logs).inputs(), &plan);
        let (counts, selects) = (|report: &Report| request.counts(report), |_: &str, start| request.selects(start));
        let mut naive = Naive::new(request.windows, &counts, &selects);
        for (log, partition) in logs.iter().zip(&told.partitions) {
            let accepted = log.accepted();
            naive.add_partition(request.lateness, &accepted);
            prop_assert_eq!(partition.tally.accepted, accepted.len() as u64);
            prop_assert_eq!(partition.filtered, accepted.iter().filter(|report| !counts(report)).count() as u64);
        }
        prop_assert_eq!(told.pairs, naive.pairs);
        prop_assert_eq!(told.flat_rows(), naive.rows());
        prop_assert_eq!(told.late_pairs(), naive.late());
    }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn neither_chunks_nor_threads_change_anything(logs in logs(), request in request(any_lateness())) {
        let stored = Stored::new(&logs);
        let (inputs, plan) = (stored.inputs(), request.plan());
        let told = run_over(&inputs, &plan);
        for chunk_bytes in [1, 7, 64, 1000, 256 * 1024] {
            for threads in 1..=3 {
                let read = ReadOptions { chunk_bytes, ..plan.read.clone() };
                let otherwise = run_over(&inputs, &Plan { read, threads, ..plan.clone() });
                prop_assert_eq!(&otherwise, &told, "chunks of {} bytes, {} threads", chunk_bytes, threads);
            }
        }
    }

    #[test]
    fn no_lack_of_memory_changes_anything(
        logs in logs(),
        request in request(any_lateness()),
        only_some in prop::bool::weighted(0.3),
        chunk_bytes in select(vec![64_usize, 500]),
    ) {
        let stored = Stored::new(&logs);
        let (inputs, mut plan) = (stored.inputs(), request.plan());
        if only_some {
            let rows = run_over(&inputs, &plan).rows;
            plan.selection.only = Some(rows.iter().step_by(2).map(|row| (row.cell, row.window_start)).collect());
        }
        let (kept, outcome) = run_keeping(&inputs, &plan);
        prop_assert_eq!(outcome.spilled, Spilled::default());
        let (totals, late_file) = (outcome.totals.clone(), kept.late_file());
        let told = Told::of(kept, outcome);
        for bytes in [0, 1_500, 6_000, 40_000] {
            let memory = MemorySize::from_bytes(bytes);
            let read = ReadOptions { chunk_bytes, ..plan.read.clone() };
            let (kept, outcome) = run_keeping(&inputs, &Plan { read, memory, ..plan.clone() });
            // Where windows wait for the end, what a chunk leaves is too much.
            let must_spill = bytes == 0 && request.lateness.is_none() && !told.rows.is_empty();
            prop_assert!(!must_spill || outcome.spilled.runs > 0);
            prop_assert_eq!(&outcome.totals, &totals, "{} bytes", bytes);
            prop_assert_eq!(&kept.late_file(), &late_file, "{} bytes", bytes);
            prop_assert_eq!(&Told::of(kept, outcome), &told, "{} bytes", bytes);
        }
    }

    #[test]
    fn whatever_a_log_holds_any_number_of_threads_tells_what_one_does(
        logs in vec(troubled_log(), 1..5),
        options in troubling_options(),
        request in request(any_lateness()),
        chunk_bytes in select(vec![1, 300, 2_000, 5_000, 256 * 1024]),
        threads in 2..5_usize,
    ) {
        let stored = Stored::of_bytes(&logs);
        let (inputs, plan) = (stored.inputs(), request.plan());
        let plan = Plan { decode: decode::Options { types: plan.decode.types, ..options }, ..plan };
        let (kept, alone) = run_keeping(&inputs, &plan);
        let read = ReadOptions { chunk_bytes, ..plan.read.clone() };
        let (kept_otherwise, otherwise) = run_keeping(&inputs, &Plan { read, threads, ..plan });
        prop_assert_eq!(kept_otherwise.late_file(), kept.late_file());
        prop_assert_eq!(in_words(&otherwise), in_words(&alone));
        prop_assert_eq!(Told::of(kept_otherwise, otherwise), Told::of(kept, alone));
    }

    #[test]
    fn the_order_of_arguments_changes_no_byte(logs in logs(), request in request(bounded_lateness())) {
        let stored = Stored::new(&logs);
        let plan = request.plan();
        let (kept, outcome) = run_keeping(&stored.inputs(), &plan);
        let late_file = kept.late_file();
        let told = Told::of(kept, outcome);
        // Small chunks let the partitions take turns.
        let plan = Plan { read: ReadOptions { chunk_bytes: 64, ..plan.read }, ..plan };
        let mut arguments = orders(&stored.paths);
        arguments.push(vec![stored.directory.path().to_owned()]);
        for paths in arguments {
            let (kept, outcome) = run_keeping(&find(&paths).unwrap().inputs, &plan);
            prop_assert_eq!(kept.late_file(), late_file.as_str(), "{:?}", &paths);
            prop_assert_eq!(&Told::of(kept, outcome), &told, "{:?}", &paths);
        }
    }

    #[test]
    fn the_order_of_partitions_changes_no_row(logs in logs(), request in request(bounded_lateness())) {
        let stored = Stored::new(&logs);
        let (inputs, plan) = (stored.inputs(), request.plan());
        let told = run_over(&inputs, &plan);
        let plan = Plan { read: ReadOptions { chunk_bytes: 64, ..plan.read }, ..plan };
        for inputs in orders(&inputs) {
            let otherwise = run_over(&inputs, &plan);
            prop_assert_eq!(&otherwise.rows, &told.rows);
            prop_assert_eq!(otherwise.late_pairs(), told.late_pairs());
            prop_assert_eq!(otherwise.pairs, told.pairs);
        }
    }

    #[test]
    fn at_unbounded_lateness_no_shuffle_and_no_split_changes_a_row(
        (entries, shuffled) in entries(one_line(), 150).prop_flat_map(|entries| {
            (Just(entries.clone()), Just(entries).prop_shuffle())
        }),
        cuts in vec(any::<Index>(), 0..4),
        request in request(Just(None)),
    ) {
        let plan = request.plan();
        let told = run_over(&Stored::new(&split(&entries, &[])).inputs(), &plan);
        let otherwise = run_over(&Stored::new(&split(&shuffled, &cuts)).inputs(), &plan);
        prop_assert_eq!(&otherwise.rows, &told.rows);
        prop_assert_eq!(otherwise.pairs, told.pairs);
        prop_assert_eq!(otherwise.accepted(), told.accepted());
        prop_assert_eq!((otherwise.late.len(), told.late.len()), (0, 0));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The engine by itself
// ---------------------------------------------------------------------------------------------------------------------

/// A partition's lateness and reports.
type Stream = (Option<u32>, Vec<Report>);

/// A partition that the engine is fed from.
struct Partition<'a> {
    clock: PartitionClock,
    /// What is known of it before it is read; nothing where nobody looked ahead.
    outlook: Option<Outlook>,
    begun: bool,
    rest: &'a [Report],
}

impl<'a> Partition<'a> {
    fn new((seconds, reports): &'a Stream, looks_ahead: bool) -> Self {
        let lateness = lateness(*seconds);
        let time = |place: usize| reports.get(place).map(|report| report.event(1).time);
        let outlook = if looks_ahead { Outlook::new(lateness, time(0), time(1)) } else { None };
        Self { clock: PartitionClock::new(lateness), outlook, begun: false, rest: reports }
    }

    /// What it promises: to add to no window that ends at or before this.
    fn bound(&self) -> i64 {
        match (self.rest, self.begun) {
            ([], _) => i64::MAX,
            (_, true) => self.clock.watermark(),
            (_, false) => self.outlook.map_or(NO_WATERMARK, |outlook| outlook.bound),
        }
    }
}

/// The engine at work, and what it has given.
struct Bench<'a> {
    windows: Windows,
    engine: Engine,
    partitions: Vec<Partition<'a>>,
    emitted: Vec<Row>,
    late: Vec<LatePair>,
    /// The largest bound up to which windows have been closed.
    closed: i64,
}

impl Bench<'_> {
    /// Feeds the next report of a partition that has some left; false where none has.
    fn feed(&mut self, turn: usize) -> bool {
        let mut left: Vec<_> = self.partitions.iter_mut().filter(|partition| !partition.rest.is_empty()).collect();
        if left.is_empty() {
            return false;
        }
        let place = turn % left.len();
        let partition = &mut *left[place];
        let (report, rest) = partition.rest.split_first().unwrap();
        let event = report.event(self.windows.precision);
        let watermark = partition.clock.watermark();
        partition.clock.observe(event.time);
        (partition.begun, partition.rest) = (true, rest);
        let late = &mut self.late;
        self.engine.offer(watermark, &event, |start| {
            late.push((event.cell.to_string(), start, event.mmsi, decimal_seconds(report.time)));
        });
        true
    }

    /// Closes what no partition can add to. Windows come in order, each once.
    fn close(&mut self) {
        let bound = self.partitions.iter().map(Partition::bound).min().unwrap_or(i64::MAX);
        let mut last = self.emitted.last().map(|row| row.window_start);
        let emitted = &mut self.emitted;
        let closed = self.engine.close(bound, |window| {
            assert!(last.is_none_or(|last| last < window.start), "{} after {last:?}", window.start);
            last = Some(window.start);
            emitted.extend(window.cells.iter().map(|(cell, aggregate)| Row::new(*cell, window.start, aggregate)));
            Ok::<(), Infallible>(())
        });
        closed.unwrap();
        self.closed = self.closed.max(bound);
    }

    fn emitted(&self) -> Vec<FlatRow> {
        self.emitted.iter().map(flat).collect()
    }

    /// "A window is emitted once, when its end ≤ the watermark of every partition still open": those and no others, and
    /// nothing reaches them afterwards.
    fn due(&self, rows: &[FlatRow]) -> Vec<FlatRow> {
        rows.iter().filter(|row| row.0 + i64::from(self.windows.length) <= self.closed).cloned().collect()
    }
}

/// Streams around the epoch, each with a lateness of its own.
fn streams() -> impl Strategy<Value = Vec<Stream>> {
    let reports = (-200..200_i64, vec(draft(), 0..50)).prop_map(|(beginning, drafts)| timed(beginning, &drafts));
    let lateness = prop_oneof![2 => Just(Some(0)), 8 => (1..200_u32).prop_map(Some), 1 => Just(None)];
    vec((lateness, reports), 1..5)
}

/// Some of the cells and windows that streams touch.
fn some_keys(windows: Windows, streams: &[Stream]) -> BTreeSet<(String, i64)> {
    let (counts, selects) = (|_: &Report| true, |_: &str, _| true);
    let mut naive = Naive::new(windows, &counts, &selects);
    for (lateness, reports) in streams {
        naive.add_partition(*lateness, reports);
    }
    let on_time = naive.rows().into_iter().map(|row| (row.1, row.0));
    let keys: BTreeSet<_> = on_time.chain(naive.late().into_iter().map(|pair| (pair.0, pair.1))).collect();
    keys.into_iter().step_by(2).collect()
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn the_engine_equals_the_naive_one_and_emits_each_window_once_and_in_order(
        windows in windows(),
        streams in streams(),
        turns in vec((0..12_usize, prop::bool::weighted(0.3)), 200),
        looks_ahead in any::<bool>(),
        (since, until) in (option::weighted(0.2, -100..300_i64), option::weighted(0.2, -100..300_i64)),
        selects_keys in prop::bool::weighted(0.2),
    ) {
        let keys = selects_keys.then(|| some_keys(windows, &streams));
        let counts = |_: &Report| true;
        let selects = |cell: &str, start: i64| {
            let end = start + i64::from(windows.length);
            since.is_none_or(|since| since <= start)
                && until.is_none_or(|until| end <= until)
                && keys.as_ref().is_none_or(|keys| keys.contains(&(cell.to_owned(), start)))
        };
        let mut naive = Naive::new(windows, &counts, &selects);
        for (lateness, reports) in &streams {
            naive.add_partition(*lateness, reports);
        }
        let rows = naive.rows();
        let only = keys.as_ref().map(|keys| keys.iter().map(|(cell, start)| (cell.parse().unwrap(), *start)).collect());
        let mut bench = Bench {
            windows,
            engine: Engine::new(windows.spec(), Selection { since, until, only }),
            partitions: streams.iter().map(|stream| Partition::new(stream, looks_ahead)).collect(),
            emitted: Vec::new(),
            late: Vec::new(),
            closed: NO_WATERMARK,
        };
        for (turn, closes) in turns {
            bench.feed(turn);
            if closes {
                bench.close();
                prop_assert_eq!(bench.emitted(), bench.due(&rows));
            }
        }
        while bench.feed(0) {}
        bench.close();
        prop_assert_eq!(bench.emitted(), rows);
        prop_assert_eq!(bench.engine.pairs(), naive.pairs);
        bench.late.sort();
        prop_assert_eq!(bench.late, naive.late());
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Fates of sentences
// ---------------------------------------------------------------------------------------------------------------------

/// Sentences, parts, clocks, times, remarks and damage, glued or on lines of their own.
fn debris() -> impl Strategy<Value = Vec<u8>> {
    let logged = entries(form(), 3).prop_map(|entries| Log { entries, open_end: true }.bytes());
    let damaged = (prop_oneof![part(), clock_line()], damage()).prop_map(|(bytes, damage)| damage.applied_to(bytes));
    let piece = prop_oneof![
        6 => logged,
        10 => part(),
        3 => damaged,
        3 => odd_sentence(),
        3 => clock_line(),
        3 => remark(),
        1 => vec(any::<u8>(), 0..20),
    ];
    let end = prop_oneof![
        12 => Just(&b"\n"[..]),
        4 => Just(&b"\r\n"[..]),
        2 => Just(&b"\r"[..]),
        1 => Just(&b"\n\n"[..]),
        4 => Just(&b""[..]),
    ];
    vec((piece, end), 0..60)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(piece, end)| [piece, end.to_vec()].concat()).collect())
}

/// Stretches of plain traffic, long enough for what waits to be forgotten, with all kinds of trouble in between.
fn troubled_log() -> impl Strategy<Value = Vec<u8>> {
    let calm = entries(prop_oneof![20 => one_line(), 1 => form()], 60)
        .prop_map(|entries| Log { entries, open_end: false }.bytes());
    let trouble = prop_oneof![
        3 => remark(),
        2 => remark().prop_map(|text| [&text[..], b"\n"].concat()),
        3 => clock_line(),
        3 => part(),
        2 => odd_sentence(),
        3 => undated(),
        3 => announced_later(),
        1 => debris(),
    ];
    vec((calm, vec(trouble, 0..4)), 1..4).prop_map(|stretches| {
        stretches.into_iter().flat_map(|(calm, trouble)| [calm, trouble.concat()]).flatten().collect()
    })
}

/// A part of a message, which others may or may not complete: few sequence ids, channels, groups and sources.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let tags = (
        option::of(select(vec!["r1", "r2"])),
        option::weighted(0.2, select(vec!["7", "8"])),
        option::weighted(0.6, select(vec![0, 1, 2, 60, 61])),
        any::<bool>(),
    );
    let particulars = encode::Particulars { name: "A SHIP", ..encode::Particulars::default() };
    let static_and_voyage = encode::static_and_voyage(219_000_001, &particulars);
    let position =
        encode::Position { mmsi: 219_000_002, lon: 6_600_000, lat: 34_500_000, ..encode::Position::default() };
    let bits = select(vec![static_and_voyage, encode::class_b_extended(&position, &particulars)]);
    let formatter = prop_oneof![6 => Just("VDM"), 1 => Just("VDO")];
    let address = (formatter, option::weighted(0.8, Just(3)), select(vec!['A', 'A', 'B']), select(vec![20, 28, 40]));
    (bits, address, any::<Index>(), tags).prop_map(|(bits, (formatter, sequence, channel, characters), which, tags)| {
        let parts = encode::sentences("AI", formatter, &bits, sequence, Some(channel), characters);
        let number = which.index(parts.len());
        let (source, group, seconds, tagged) = tags;
        let time = seconds.map(|seconds| (BEGINNING + seconds).to_string());
        let group = group.map(|group| format!("{}-{}-{group}", number + 1, parts.len()));
        let fields: Vec<(&str, &str)> = [("s", source), ("c", time.as_deref()), ("g", group.as_deref())]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let tag = if tagged && !fields.is_empty() { encode::tag_block(&fields) } else { String::new() };
        (tag + &parts[number]).into_bytes()
    })
}

/// A sentence whose checksum is right, whatever else is wrong with it.
fn odd_sentence() -> impl Strategy<Value = Vec<u8>> {
    let cut_off = (draft(), 0..168_usize).prop_map(|(Draft { report, .. }, length)| {
        let bits = report.bits(true).truncated(length);
        one_sentence("VDM", &bits).into_bytes()
    });
    let damaged = (draft(), damage()).prop_map(|(draft, damage)| {
        let sentence = timed(BEGINNING, &[draft])[0].sentence();
        let (body, _) = sentence[1..].rsplit_once('*').unwrap();
        let body = String::from_utf8_lossy(&damage.applied_to(body.into())).into_owned();
        encode::sentence('!', &body).into_bytes()
    });
    prop_oneof![1 => cut_off, 2 => damaged]
}

/// A report without a time of its own: with its UTC second, it leads on from `--start`, whether or not it has a place.
fn undated() -> impl Strategy<Value = Vec<u8>> {
    (draft(), any::<bool>()).prop_map(|(draft, positioned)| {
        let report = timed(BEGINNING, &[draft])[0];
        (one_sentence("VDM", &report.bits(positioned)) + "\n").into_bytes()
    })
}

/// A sentence whose time came some lines before it.
fn announced_later() -> impl Strategy<Value = Vec<u8>> {
    vec(undated(), 0..4).prop_map(|between| [pghp().into_bytes(), between.concat(), announced().into_bytes()].concat())
}

fn pghp() -> String {
    encode::sentence('$', "PGHP,1,2023,11,14,22,13,27,11,219,,2190067,1,66") + "\n"
}

/// The sentence that [`pghp`] is for.
fn announced() -> String {
    encode::sentence('!', "AIVDM,1,1,,A,13tfEWhP0j0nNE0Q12H3Q?vt0000,0") + "\n"
}

/// What shows a time to the sentences that follow it.
fn clock_line() -> impl Strategy<Value = Vec<u8>> {
    let utc = encode::Utc::from_unix(BEGINNING as u32);
    let base_station = encode::base_station(2_190_001, 6_600_000, 34_500_000, utc);
    select(vec![
        one_sentence("VDM", &base_station),
        encode::sentence('$', "GPZDA,221327.00,14,11,2023,00,00"),
        encode::sentence('$', "GPRMC,221327,A,5730.0,N,01100.0,E,0.0,0.0,141123,,"),
        pghp() + &announced(),
        encode::tag_block(&[("s", "r1"), ("c", "1700000007")]),
        encode::tag_block(&[("c", "1700000067000")]) + "\n",
    ])
    .prop_map(String::into_bytes)
}

fn remark() -> impl Strategy<Value = Vec<u8>> {
    let texts = [
        "",
        "# a comment",
        "receiver restarted",
        "[2023-11-14 22:13:27.141] ",
        "20231114 22:13:27.0030\t",
        ",r003669945,1700000045",
        "!AIVDM,1,1,,A,",
        "\\s:r1,c:1700000043",
        "\u{feff}",
    ];
    select(texts.to_vec()).prop_map(|text| text.as_bytes().to_vec())
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Changed(Index, u8),
    Lost(Index),
    Gained(Index, u8),
    CutOff(Index),
}

impl Damage {
    fn applied_to(self, mut bytes: Vec<u8>) -> Vec<u8> {
        let length = bytes.len();
        match self {
            Self::Changed(place, byte) => bytes[place.index(length)] = byte,
            Self::Lost(place) => drop(bytes.remove(place.index(length))),
            Self::Gained(place, byte) => bytes.insert(place.index(length), byte),
            Self::CutOff(place) => bytes.truncate(place.index(length)),
        }
        bytes
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), telling_byte()).prop_map(|(place, byte)| Damage::Changed(place, byte)),
        any::<Index>().prop_map(Damage::Lost),
        (any::<Index>(), telling_byte()).prop_map(|(place, byte)| Damage::Gained(place, byte)),
        any::<Index>().prop_map(Damage::CutOff),
    ]
}

/// Any byte, but above all those that mean something.
fn telling_byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => select(b"!$\\*,:;-.\r\n 0123456789AVDMOcsgGZ".to_vec()), 1 => any::<u8>()]
}

fn decode_options() -> impl Strategy<Value = decode::Options> {
    let clock = select(vec![None, Some(Clock::BaseStation), Some(Clock::Sentences), Some(Clock::Previous)]);
    let mode = select(vec![
        EventTimeMode::Received,
        EventTimeMode::Received,
        EventTimeMode::UtcSecond,
        EventTimeMode::Arrival,
    ]);
    let all_types: MessageTypes = MessageType::ALL.into_iter().collect();
    let types = select(vec![MessageTypes::LIVE_PIPELINE, all_types]);
    (types, any::<[bool; 4]>(), mode, clock).prop_map(
        |(types, [own_ship, require, zoned, started], event_time, clock)| decode::Options {
            types,
            own_ship,
            require_tag_checksum: require,
            zone: zoned.then(|| "+02:00".parse().unwrap()),
            event_time,
            clock,
            start: started.then(|| Timestamp::from_seconds(BEGINNING).unwrap()),
        },
    )
}

/// Options under which what waits between lines shows: some leave nothing but `--start`.
fn troubling_options() -> impl Strategy<Value = decode::Options> {
    let started = || decode::Options { start: Timestamp::from_seconds(BEGINNING), ..decode::Options::default() };
    prop_oneof![3 => decode_options(), 1 => Just(started()), 1 => Just(decode::Options::default())]
}

/// Line, MMSI, time and sentences of an accepted report.
type Heard = (u64, u32, Timestamp, Vec<String>);

fn heard(accepted: &Accepted<'_>) -> Heard {
    (accepted.line, accepted.report.mmsi, accepted.time, accepted.raw.to_strings())
}

fn decoded<'a>(options: &decode::Options, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Tally, Vec<Heard>) {
    let mut decoder = Decoder::new(options.clone());
    let mut reports = Vec::new();
    for chunk in chunks {
        decoder.lines(chunk, |accepted| reports.push(heard(&accepted)));
    }
    (decoder.finish(), reports)
}

/// Reads each chunk as a worker does, and settles what it found as the run loop does.
fn decoded_in_batches(options: &decode::Options, chunks: &[&[u8]]) -> (Tally, Vec<Heard>) {
    let mut decoder = Decoder::new(options.clone());
    let mut reports = Vec::new();
    for chunk in chunks {
        let mut taken = Taken(Vec::new());
        let tally = batch::read(chunk, options, &mut taken);
        let first_line = decoder.next_line();
        for found in taken.0 {
            match found {
                InChunk::Left(line, bytes) => {
                    let line = first_line + u64::from(line) - 1;
                    decoder.lines_left(line, &chunk[bytes], |accepted| reports.push(heard(&accepted)));
                }
                InChunk::Part(line, start, part) => {
                    let line = first_line + u64::from(line) - 1;
                    decoder.part(line, &chunk[start..], &part, |accepted| reports.push(heard(&accepted)));
                }
                InChunk::Report(Found { line, start, report, own_time, overlong, .. }) => {
                    let undated = Undated {
                        line: first_line + u64::from(line) - 1,
                        own_time,
                        utc_second: report.utc_second,
                        counted: options.types.contains(report.kind),
                        overlong,
                        sog_missing: report.sog.is_none(),
                    };
                    if let Some(time) = decoder.date(&undated) {
                        let sentence = String::from_utf8_lossy(&batch::sentence_as_written(&chunk[start..])).into();
                        reports.push((undated.line, report.mmsi, time, vec![sentence]));
                    }
                }
            }
        }
        decoder.chunk_read(first_line, &tally);
    }
    (decoder.finish(), reports)
}

/// What a worker finds, by the number of its line and its place.
enum InChunk {
    Report(Found),
    Part(u32, usize, FoundPart),
    Left(u32, Range<usize>),
}

struct Taken(Vec<InChunk>);

impl Taker for Taken {
    fn report(&mut self, found: &Found) {
        self.0.push(InChunk::Report(*found));
    }
    fn part(&mut self, line: u32, start: usize, part: FoundPart) {
        self.0.push(InChunk::Part(line, start, part));
    }
    fn left(&mut self, line: u32, bytes: Range<usize>) {
        self.0.push(InChunk::Left(line, bytes));
    }
}

/// Where lines end: behind LF, CRLF and CR.
fn line_ends(bytes: &[u8]) -> Vec<usize> {
    let ends_line = |end: &usize| {
        let after_cr = bytes[end - 1] == b'\r' && bytes.get(*end) != Some(&b'\n');
        bytes[end - 1] == b'\n' || after_cr
    };
    (1..=bytes.len()).filter(ends_line).collect()
}

/// Cuts bytes at the line ends that `cuts` picks, over and over.
fn cut_at_line_ends<'a>(bytes: &'a [u8], cuts: &[bool]) -> Vec<&'a [u8]> {
    let chosen = line_ends(bytes).into_iter().zip(cuts.iter().cycle()).filter(|(_, cut)| **cut).map(|(end, _)| end);
    cut_at(bytes, chosen)
}

fn cut_at(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Vec<&[u8]> {
    let mut start = 0;
    let chunk = |end| {
        let chunk = &bytes[start..end];
        start = end;
        chunk
    };
    ends.into_iter().chain([bytes.len()]).map(chunk).collect()
}

/// "Each sentence has exactly one: accepted, part of a message, rejected(kind), ignored(kind)."
fn fates(tally: &Tally) -> u64 {
    tally.accepted + tally.parts + tally.all_rejected() + tally.all_ignored()
}

/// Feeds chunks as records: some come twice, some cannot be unpacked.
fn decoded_as_records(options: decode::Options, chunks: &[(&[u8], RecordKind)]) -> Tally {
    let mut decoder = Decoder::new(options);
    for (number, (chunk, kind)) in chunks.iter().enumerate() {
        let arrival = match kind {
            RecordKind::Bad => {
                decoder.bad_record();
                continue;
            }
            RecordKind::Duplicate => {
                decoder.duplicate_record();
                continue;
            }
            RecordKind::Arrived(seconds) => Timestamp::from_seconds(BEGINNING + seconds),
            RecordKind::Undated => None,
        };
        let record =
            Record { arrival, shard: Arc::from("shard"), sequence: number.to_string().into(), sub_sequence: None };
        decoder.record(chunk, &record, |accepted| drop(heard(&accepted)));
    }
    decoder.finish()
}

#[derive(Clone, Copy, Debug)]
enum RecordKind {
    /// So many seconds after the beginning.
    Arrived(i64),
    Undated,
    Duplicate,
    Bad,
}

/// Gives at most so many bytes at a time, over and over.
struct Trickle {
    bytes: io::Cursor<Vec<u8>>,
    sizes: Vec<usize>,
    reads: usize,
}

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.sizes[self.reads % self.sizes.len()].min(buffer.len());
        self.reads += 1;
        self.bytes.read(&mut buffer[..most])
    }
}

/// Decodes what a reader gives.
fn decoded_through(mut reader: Reader, options: &decode::Options) -> (Tally, Vec<Heard>) {
    let mut decoder = Decoder::new(options.clone());
    let mut reports = Vec::new();
    loop {
        match reader.next_chunk().unwrap() {
            Chunk::Lines(lines) => decoder.lines(lines, |accepted| reports.push(heard(&accepted))),
            Chunk::End => return (decoder.finish(), reports),
            other => panic!("{other:?} from a file of lines"),
        }
    }
}

/// The same, chunk by chunk in buffers of their own, as workers do it.
fn decoded_from_buffers(mut reader: Reader, options: &decode::Options) -> (Tally, Vec<Heard>) {
    let mut decoder = Decoder::new(options.clone());
    let mut reports = Vec::new();
    let mut buffer = Vec::new();
    loop {
        match reader.take_lines(&mut buffer).unwrap() {
            0 => return (decoder.finish(), reports),
            length => decoder.lines(&buffer[..length], |accepted| reports.push(heard(&accepted))),
        }
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn every_sentence_has_one_fate_whatever_the_chunks(
        bytes in debris(),
        cuts in vec(any::<bool>(), 1..10),
        options in decode_options(),
    ) {
        let (tally, reports) = decoded(&options, [&bytes[..]]);
        let ends = line_ends(&bytes);
        let last_line_lacks_its_end = ends.last().map_or(!bytes.is_empty(), |end| *end < bytes.len());
        prop_assert_eq!(tally.lines, ends.len() as u64 + u64::from(last_line_lacks_its_end));
        prop_assert_eq!(tally.items, fates(&tally));
        prop_assert!(tally.items >= tally.lines, "a line without a fate: {:?}", &tally);
        prop_assert_eq!(tally.accepted, reports.len() as u64);
        prop_assert_eq!(decoded(&options, cut_at_line_ends(&bytes, &cuts)), (tally, reports));
    }

    #[test]
    fn every_sentence_of_a_record_has_one_fate(
        bytes in debris(),
        cuts in vec(any::<bool>(), 1..10),
        kinds in vec(prop_oneof![
            6 => (-700..700_i64).prop_map(RecordKind::Arrived),
            1 => Just(RecordKind::Undated),
            1 => Just(RecordKind::Duplicate),
            1 => Just(RecordKind::Bad),
        ], 1..10),
        options in decode_options(),
    ) {
        let chunks = cut_at_line_ends(&bytes, &cuts).into_iter().zip(kinds.iter().copied().cycle());
        let chunks: Vec<(&[u8], RecordKind)> = chunks.collect();
        let tally = decoded_as_records(options, &chunks);
        prop_assert_eq!(tally.items, fates(&tally));
        prop_assert_eq!(tally.lines, chunks.len() as u64);
    }

    #[test]
    fn what_is_read_without_memory_and_settled_in_turn_is_what_a_decoder_alone_reads(
        bytes in troubled_log(),
        cuts in select(vec![0.03, 0.1, 0.3]).prop_flat_map(|share| vec(prop::bool::weighted(share), 40)),
        options in troubling_options(),
    ) {
        let chunks = cut_at_line_ends(&bytes, &cuts);
        prop_assert_eq!(decoded_in_batches(&options, &chunks), decoded(&options, [&bytes[..]]));
    }

    #[test]
    fn sentences_have_the_fates_that_they_were_written_for(log in log()) {
        let types = MessageType::ALL.into_iter().collect();
        let (tally, _) = decoded(&decode::Options { types, ..decode::Options::default() }, [&log.bytes()[..]]);
        prop_assert_eq!(tally.lines, log.lines().len() as u64);
        prop_assert_eq!(tally.accepted, log.accepted().len() as u64);
        prop_assert_eq!(tally.parts, log.count(|form| matches!(form, Form::TwoSentences { .. })));
        let rejected = |kind| tally.rejected(kind).number;
        prop_assert_eq!(rejected(Reject::ChecksumBad), log.count(|form| matches!(form, Form::BadChecksum)));
        prop_assert_eq!(rejected(Reject::NoEventTime), log.count(|form| matches!(form, Form::NoTime)));
        let ignored = |kind| tally.ignored(kind).number;
        prop_assert_eq!(ignored(Ignore::NoPosition), log.count(|form| matches!(form, Form::NoPosition)));
        prop_assert_eq!(ignored(Ignore::OwnShip), log.count(|form| matches!(form, Form::OwnShip)));
        let noise = ignored(Ignore::Text) + ignored(Ignore::Comment) + ignored(Ignore::OtherSentence);
        prop_assert_eq!(noise, log.count(|form| matches!(form, Form::Noise(_))));
    }

    #[test]
    fn a_decoder_survives_any_bytes_cut_anywhere(
        bytes in prop_oneof![vec(telling_byte(), 0..400), vec(any::<u8>(), 0..400), debris()],
        cuts in vec(any::<Index>(), 0..6),
        options in decode_options(),
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        let (tally, _) = decoded(&options, cut_at(&bytes, ends));
        prop_assert_eq!(tally.items, fates(&tally));
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_reader_gives_every_line_whole_however_its_bytes_trickle_in(
        debris in vec(debris(), 1..4),
        long_line in option::weighted(0.3, 65_530..65_545_usize),
        chunk_bytes in select(vec![7_usize, 64, 1000, 65_536, 65_537, 256 * 1024]),
        sizes in vec(prop_oneof![1..100_usize, Just(65_536)], 1..5),
        (digest, takes) in any::<(bool, bool)>(),
        options in decode_options(),
    ) {
        // A comment first, so that what follows is taken for neither compressed data nor UTF-16.
        let long_line = long_line.map_or(Vec::new(), |length| vec![b'x'; length]);
        let bytes = [&b"# a log\n"[..], &debris.join(&long_line[..])].concat();
        let stored = Trickle { bytes: io::Cursor::new(bytes.clone()), sizes, reads: 0 };
        let reader = Reader::new("a log".to_owned(), Box::new(stored), ReadOptions { chunk_bytes, digest: digest.then(|| [1, 100].into()), unpackers: None }).unwrap();
        let through = if takes { decoded_from_buffers(reader, &options) } else { decoded_through(reader, &options) };
        prop_assert_eq!(through, decoded(&options, [&bytes[..]]));
    }
}
