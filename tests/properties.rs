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
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ais_replay::cell::{Cell, Precision};
use ais_replay::decode::event_time::{Clock, EventTimeMode};
use ais_replay::decode::tally::{Ignore, Reject, Tally};
use ais_replay::decode::{self, Accepted, Decoder, Record};
use ais_replay::engine::clock::{Lateness, NO_WATERMARK, Outlook, PartitionClock};
use ais_replay::engine::{Engine, Event, Pairs, Selection};
use ais_replay::filter::Filter;
use ais_replay::report::{MessageType, MessageTypes};
use ais_replay::row::Row;
use ais_replay::run::{self, Output, PartitionOutcome, Plan, Progress};
use ais_replay::sink::SinkError;
use ais_replay::sink::late::{Header, HeaderOptions, LateFile, LateReport};
use ais_replay::source::file::find;
use ais_replay::source::{Chunk, Input, ReadOptions, Reader};
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

    /// Its message in as few sentences of `formatter` as characters allow. Without a position, its place is left out.
    fn sentences(&self, formatter: &str, positioned: bool, sequence: Option<u8>, characters: usize) -> Vec<String> {
        let mut position = encode::Position {
            mmsi: self.mmsi,
            sog: self.sog.unwrap_or(encode::SOG_NOT_AVAILABLE),
            ..encode::Position::default()
        };
        if positioned {
            (position.lon, position.lat) = PLACES[self.place];
        }
        let bits = encode::position_report(self.kind, &position);
        encode::sentences("AI", formatter, &bits, sequence, Some('A'), characters)
    }

    fn sentence(&self) -> String {
        self.sentences("VDM", true, None, encode::MAX_PAYLOAD_CHARS).concat()
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
                let mut parts = report.sentences("VDM", true, Some(sequence), 28);
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
            Form::NoPosition => {
                vec![line(report.tag() + &report.sentences("VDM", false, None, encode::MAX_PAYLOAD_CHARS).concat(), None)]
            }
            Form::NoTime => vec![line(report.sentence(), None)],
            Form::OwnShip => {
                vec![line(report.tag() + &report.sentences("VDO", true, None, encode::MAX_PAYLOAD_CHARS).concat(), None)]
            }
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

/// The forms of what is no report that could be accepted.
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
    (entries(form(), 50), any::<bool>()).prop_map(|(entries, open_end)| Log { entries, open_end })
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
    fn new(
        windows: Windows,
        counts: &'a dyn Fn(&Report) -> bool,
        selects: &'a dyn Fn(&str, i64) -> bool,
    ) -> Self {
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

fn late_pair(late: &LateReport) -> LatePair {
    (late.cell.clone(), late.window_start, late.mmsi, late.event_time.clone())
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
        let directory = TempDir::new().unwrap();
        let paths = (0..logs.len()).map(|number| directory.path().join(format!("{number}.nmea"))).collect();
        let stored = Self { directory, paths };
        for (path, log) in stored.paths.iter().zip(logs) {
            fs::write(path, log.bytes()).unwrap();
        }
        stored
    }

    fn inputs(&self) -> Vec<Input> {
        find(&self.paths).unwrap().inputs
    }
}

/// All that a run tells.
#[derive(Debug, PartialEq)]
struct Told {
    rows: Vec<Row>,
    late: Vec<LateReport>,
    /// The late file, byte by byte.
    late_file: String,
    pairs: Pairs,
    /// Name, fates, reports that filters left out, first and last time of each partition.
    partitions: Vec<(String, Tally, u64, Option<Timestamp>, Option<Timestamp>)>,
}

impl Told {
    fn flat_rows(&self) -> Vec<FlatRow> {
        self.rows.iter().map(flat).collect()
    }

    fn late_pairs(&self) -> Vec<LatePair> {
        let mut pairs: Vec<LatePair> = self.late.iter().map(late_pair).collect();
        pairs.sort();
        pairs
    }

    /// The lines of the late file, whatever partition came first.
    fn late_lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.late_file.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Keeps what a run gives, late reports by partition.
struct Kept {
    rows: Vec<Row>,
    late: BTreeMap<usize, Vec<LateReport>>,
    late_file: LateFile,
}

impl Output for Kept {
    fn rows(&mut self, rows: &[Row]) -> Result<(), SinkError> {
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn late(&mut self, partition: usize, late: &dyn Fn() -> LateReport) {
        self.late_file.push(partition, &late());
        self.late.entry(partition).or_default().push(late());
    }

    fn progress(&mut self, _: &Progress) {}
}

fn run_over(inputs: &[Input], plan: &Plan) -> Told {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("late.ndjson");
    let mut kept =
        Kept { rows: Vec::new(), late: BTreeMap::new(), late_file: LateFile::create(&path).unwrap() };
    let outcome = run::run(inputs, plan, &mut kept).unwrap();
    kept.late_file.finish(&header()).unwrap();
    let partition = |partition: PartitionOutcome| {
        let PartitionOutcome { name, tally, filtered, first_time, last_time, .. } = partition;
        (name, tally, filtered.total(), first_time, last_time)
    };
    Told {
        rows: kept.rows,
        late: kept.late.into_values().flatten().collect(),
        late_file: fs::read_to_string(path).unwrap(),
        pairs: outcome.pairs,
        partitions: outcome.partitions.into_iter().map(partition).collect(),
    }
}

fn header() -> Header {
    Header {
        late_format: 1,
        run: "run".to_owned(),
        options: HeaderOptions {
            window_seconds: 60,
            slide_seconds: 60,
            lateness: "120s".to_owned(),
            precision: 6,
            types: "1".to_owned(),
        },
        targets: Vec::new(),
    }
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
    #![proptest_config(config(128))]

    #[test]
    fn a_run_equals_the_naive_engine(logs in logs(), request in request(any_lateness())) {
        let told = run_over(&Stored::new(&logs).inputs(), &request.plan());
        let (counts, selects) = (|report: &Report| request.counts(report), |_: &str, start| request.selects(start));
        let mut naive = Naive::new(request.windows, &counts, &selects);
        for (log, (_, tally, filtered, ..)) in logs.iter().zip(&told.partitions) {
            let accepted = log.accepted();
            naive.add_partition(request.lateness, &accepted);
            prop_assert_eq!(tally.accepted, accepted.len() as u64);
            prop_assert_eq!(*filtered, accepted.iter().filter(|report| !counts(report)).count() as u64);
        }
        prop_assert_eq!(told.pairs, naive.pairs);
        prop_assert_eq!(told.flat_rows(), naive.rows());
        prop_assert_eq!(told.late_pairs(), naive.late());
    }

    #[test]
    fn every_line_of_a_log_has_the_fate_that_it_was_written_for(log in log()) {
        let mut decoder = Decoder::new(decode::Options::default());
        decoder.lines(&log.bytes(), |_| {});
        let tally = decoder.finish();
        // The types that are not counted by default still say where and when.
        prop_assert_eq!(tally.parts, log.count(|form| matches!(form, Form::TwoSentences { .. })));
        prop_assert_eq!(tally.rejected(Reject::BadChecksum).number, log.count(|form| matches!(form, Form::BadChecksum)));
        prop_assert_eq!(tally.accepted, log.accepted().len() as u64);
    }
}
