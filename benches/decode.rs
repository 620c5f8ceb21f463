//! How fast lines become windows, beside two other decoders and beside the mere search for line ends.
//!
//! ```text
//! cargo bench --no-default-features --bench decode
//! ```
//!
//! | contender | what it does with each line |
//! |---|---|
//! | run, 1 thread; run, 2 threads | what `ais-replay file LOG --to csv:…` does, from a file to the bytes of the CSV |
//! | whole path | everything that a run does with bytes in memory: scan, decode, event time, watermark, filter, engine, rows |
//! | decoder | the same up to the accepted report |
//! | nmea-kit, nmea-parser | decode, and nothing else: lines are split, checked for ASCII and stripped of TAG blocks beforehand |
//! | newline scan | finds the line ends, as the bound that no reader of lines gets past |
//!
//! Criterion's figures come first, then tables of its own: the contenders take turns in one process and the best of many
//! rounds counts, since a noisy machine only ever makes a pass slower. Another table says what each stage costs by itself,
//! and what windows of 15 minutes by 1 minute cost beside tumbling ones of 1 minute.
//!
//! Logs under `../shared/data` are measured where that folder exists, and the one that `BENCH_LOG` names.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::float_arithmetic)]

use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ais_replay::cell::{Cell, Precision};
use ais_replay::decode::event_time::{EventTime, Timekeeper};
use ais_replay::decode::scan::{self, Context, Vdm, Visitor};
use ais_replay::decode::tag::Tag;
use ais_replay::decode::tally::{Ignore, Reject};
use ais_replay::decode::{Accepted, Decoder, Options, armour, message};
use ais_replay::engine::clock::{Lateness, NO_WATERMARK, PartitionClock};
use ais_replay::engine::{Engine, Event, Selection};
use ais_replay::filter::{Filter, Filtered};
use ais_replay::report::{Position, Report};
use ais_replay::row::Row;
use ais_replay::run::{self, Finished, Output, Plan, Progress};
use ais_replay::sink::SinkError;
use ais_replay::sink::late::LateReport;
use ais_replay::sink::rows::{CsvLines, Form, RowWriter};
use ais_replay::source::blocks::Unpackers;
use ais_replay::source::{Chunk, Input, ReadOptions, file};
use ais_replay::time::{Span, Timestamp};
use ais_replay::window::WindowSpec;
use criterion::{BenchmarkId, Criterion, Throughput};
use nmea_kit::ais::{AisMessage, AisParser};
use nmea_parser::{NmeaParser, ParsedMessage};

/// What an input is read in, as by a run ([`ais_replay::source::ReadOptions`]).
const CHUNK_BYTES: usize = 256 * 1024;

/// Small logs are repeated up to this, so that a pass takes long enough to be timed.
const LEAST_BYTES: usize = 3 * 1024 * 1024;

/// Rounds of the table. Each contender's best counts.
const ROUNDS: usize = 40;

fn main() {
    let corpora = Corpus::all();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_500))
        .configure_from_args();
    for corpus in &corpora {
        measure(&mut criterion, corpus);
    }
    criterion.final_summary();
    // `cargo test --benches` only asks whether the benches run.
    if std::env::args().any(|argument| argument == "--bench") {
        for corpus in &corpora {
            print_table(corpus);
            print_stages(corpus);
            print_packed(corpus);
        }
    }
}

fn measure(criterion: &mut Criterion, corpus: &Corpus) {
    let mut group = criterion.benchmark_group(&corpus.name);
    group.throughput(Throughput::Elements(corpus.lines));
    for contender in &CONTENDERS {
        group.bench_function(BenchmarkId::from_parameter(contender.name), |bencher| {
            bencher.iter(|| black_box((contender.pass)(black_box(corpus))));
        });
    }
    group.finish();
}

// ---- Logs -----------------------------------------------------------------------------------------------------------

/// A log in memory, in the form that each contender takes.
struct Corpus {
    name: String,
    bytes: Vec<u8>,
    /// Bytes of the log itself, which may stand there several times.
    log_bytes: usize,
    lines: u64,
    /// For logs without any time: where the reports' own UTC seconds lead on from.
    start: Option<Timestamp>,
    /// The lines from their sentence on, for decoders that take no more.
    sentences: Vec<String>,
    /// The log so many times over, in a file.
    repeats: usize,
    file: tempfile::NamedTempFile,
    input: Input,
}

impl Corpus {
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let harbour = fs::read(root.join("samples/harbour.nmea")).unwrap();
        let mut corpora = vec![
            Self::new("harbour, TAG blocks", harbour.clone(), false),
            Self::new("harbour, no TAG blocks", without_tag_blocks(&harbour), true),
        ];
        for (name, file, leads) in [
            ("risky (real), no TAG blocks", "risky__ais.txt", true),
            ("norwegian (real), TAG blocks", "docker-gpsd-timestamp__norwegian.raw", false),
        ] {
            let path: PathBuf = root.join("../shared/data").join(file);
            match fs::read(&path) {
                Ok(bytes) => corpora.push(Self::new(name, bytes, leads)),
                Err(error) => println!("{name} is skipped: {}: {error}", path.display()),
            }
        }
        if let Some(path) = std::env::var_os("BENCH_LOG") {
            corpora.push(Self::new(&path.to_string_lossy(), fs::read(&path).unwrap(), false));
        }
        corpora
    }

    fn new(name: &str, log: Vec<u8>, leads: bool) -> Self {
        let bytes = log.repeat(LEAST_BYTES.div_ceil(log.len()));
        let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let sentences = bytes.split(|byte| *byte == b'\n').filter_map(plain_sentence).collect();
        let start = leads.then(|| Timestamp::from_seconds(1_777_615_200)).flatten();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let repeats = LEAST_FILE_BYTES.div_ceil(bytes.len());
        (0..repeats).for_each(|_| file.write_all(&bytes).unwrap());
        let input = file::find(&[file.path().to_owned()]).unwrap().inputs.remove(0);
        Self { name: name.to_owned(), bytes, log_bytes: log.len(), lines, start, sentences, repeats, file, input }
    }
}

/// A line from its sentence on. None where it has none, or is not ASCII, on which nmea-parser may panic.
fn plain_sentence(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line).ok().filter(|text| text.is_ascii())?;
    let start = text.find(['!', '$'])?;
    Some(text[start..].trim_end().to_owned())
}

/// A log with every TAG block cut out.
fn without_tag_blocks(log: &[u8]) -> Vec<u8> {
    let line = |line: &[u8]| match line {
        [b'\\', rest @ ..] => rest.iter().position(|byte| *byte == b'\\').map_or(rest, |end| &rest[end + 1..]).to_vec(),
        line => line.to_vec(),
    };
    log.split(|byte| *byte == b'\n').map(line).collect::<Vec<_>>().join(&b'\n')
}

// ---- Contenders -----------------------------------------------------------------------------------------------------

/// Somebody who reads a log. A pass returns how many position reports of types 1, 2, 3, 18 and 19 it found.
struct Contender {
    name: &'static str,
    pass: fn(&Corpus) -> u64,
    /// Whether it reads the file, which repeats the log.
    from_file: bool,
}

const CONTENDERS: [Contender; 7] = [
    Contender { name: "run, 1 thread", pass: |corpus| whole_run(corpus, 1), from_file: true },
    Contender { name: "run, 2 threads", pass: |corpus| whole_run(corpus, 2), from_file: true },
    Contender { name: "whole path", pass: whole_path, from_file: false },
    Contender { name: "decoder", pass: decoder_alone, from_file: false },
    Contender { name: NMEA_KIT, pass: nmea_kit, from_file: false },
    Contender { name: NMEA_PARSER, pass: nmea_parser, from_file: false },
    Contender { name: NEWLINE_SCAN, pass: newline_scan, from_file: false },
];

/// Files repeat their log up to this, so that threads are worth their start.
const LEAST_FILE_BYTES: usize = 24 * 1024 * 1024;

const NMEA_KIT: &str = "nmea-kit";

const NMEA_PARSER: &str = "nmea-parser";

const NEWLINE_SCAN: &str = "newline scan";

/// `ais-replay file` with its defaults, but for the file that its CSV goes to.
fn whole_run(corpus: &Corpus, threads: usize) -> u64 {
    assert!(corpus.file.path().exists());
    run_over(&corpus.input, corpus, threads) / corpus.repeats as u64
}

fn run_over(input: &Input, corpus: &Corpus, threads: usize) -> u64 {
    let plan = Plan {
        decode: Options { start: corpus.start, ..Options::default() },
        window: tumbling(),
        lateness: Lateness::Unbounded,
        precision: Precision::new(6).unwrap(),
        selection: Selection::default(),
        filter: Filter::default(),
        read: ReadOptions::default(),
        threads,
        memory: ais_replay::memory::MemorySize::from_bytes(4 << 30),
    };
    let mut csv = Csv(RowWriter::new(io::sink(), Form::Csv, false));
    run::run(std::slice::from_ref(input), &plan, &mut csv).unwrap().pairs.added
}

fn tumbling() -> WindowSpec {
    WindowSpec::new(Span::from_seconds(60), None).unwrap()
}

struct Csv(RowWriter<io::Sink>);

impl Output for Csv {
    fn csv_lines(&self) -> Option<CsvLines> {
        self.0.csv_lines()
    }
    fn rows(&mut self, finished: &Finished) -> Result<(), SinkError> {
        self.0.write_lines(finished.csv.as_deref().unwrap()).map_err(SinkError::Stdout)
    }
    fn late(&mut self, _: usize, _: &dyn Fn() -> LateReport) {}
    fn progress(&mut self, _: &Progress) {}
}

/// What `ais_replay::run` does with each chunk and at the end, with the defaults of `ais-replay file`.
fn whole_path(corpus: &Corpus) -> u64 {
    let window = WindowSpec::new(Span::from_seconds(60), None).unwrap();
    let precision = Precision::new(6).unwrap();
    let filter = Filter::default();
    let mut counting = Counting {
        precision,
        filter: &filter,
        engine: Engine::new(window, Selection::default()),
        clock: PartitionClock::new(Lateness::Unbounded),
        filtered: Filtered::default(),
        first_time: None,
    };
    let mut decoder = decoder_for(corpus);
    for chunk in chunks(&corpus.bytes) {
        decoder.lines(chunk, |accepted| counting.count(&accepted));
        counting.close(NO_WATERMARK);
    }
    counting.close(i64::MAX);
    let (accepted, added) = (decoder.finish().accepted, counting.engine.pairs().added);
    assert_eq!(added + counting.filtered.total(), accepted);
    added
}

/// The run loop's own, without late side-output.
struct Counting<'a> {
    precision: Precision,
    filter: &'a Filter,
    engine: Engine,
    clock: PartitionClock,
    filtered: Filtered,
    first_time: Option<Timestamp>,
}

impl Counting<'_> {
    #[inline(always)]
    fn count(&mut self, accepted: &Accepted<'_>) {
        let watermark = self.clock.watermark();
        self.clock.observe(accepted.time);
        if self.first_time.is_none_or(|first| accepted.time < first) {
            self.first_time = Some(accepted.time);
        }
        let cell = Cell::of(accepted.position, self.precision);
        if !self.filtered.note(self.filter.judge(accepted.report.kind, accepted.position, cell)) {
            return;
        }
        let event = Event { time: accepted.time, cell, mmsi: accepted.report.mmsi, sog: accepted.report.sog };
        self.engine.offer(watermark, &event, |window_start| {
            black_box(window_start);
        });
    }

    fn close(&mut self, bound: i64) {
        let emitted: Result<(), std::convert::Infallible> = self.engine.close(bound, |window| {
            let rows: Vec<Row> =
                window.cells.iter().map(|(cell, aggregate)| Row::new(*cell, window.start, aggregate)).collect();
            black_box(rows);
            Ok(())
        });
        emitted.unwrap();
    }
}

fn decoder_for(corpus: &Corpus) -> Decoder {
    Decoder::new(Options { start: corpus.start, ..Options::default() })
}

/// Whole lines, as a source gives them.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let end = match rest.get(..CHUNK_BYTES) {
            Some(full) => memchr::memrchr(b'\n', full).map_or(rest.len(), |place| place + 1),
            None => rest.len(),
        };
        let (chunk, after) = rest.split_at(end);
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn decoder_alone(corpus: &Corpus) -> u64 {
    let mut decoder = decoder_for(corpus);
    for chunk in chunks(&corpus.bytes) {
        decoder.lines(chunk, |accepted| {
            black_box(&accepted);
        });
    }
    decoder.finish().accepted
}

fn nmea_kit(corpus: &Corpus) -> u64 {
    let mut parser = AisParser::new();
    let mut reports = 0;
    for sentence in &corpus.sentences {
        if let Ok(frame) = nmea_kit::parse_frame(sentence) {
            let message = parser.decode(&frame);
            reports += u64::from(matches!(&message, Some(AisMessage::Position(_))));
            black_box(message);
        }
    }
    reports
}

fn nmea_parser(corpus: &Corpus) -> u64 {
    let mut parser = NmeaParser::new();
    let mut reports = 0;
    for sentence in &corpus.sentences {
        let message = parser.parse_sentence(sentence);
        reports += u64::from(matches!(&message, Ok(ParsedMessage::VesselDynamicData(_))));
        let _ = black_box(message);
    }
    reports
}

/// Finds no report, so that its "reports" are lines: what matters is that each line end is looked at.
fn newline_scan(corpus: &Corpus) -> u64 {
    let mut lines = 0;
    for end in memchr::memchr_iter(b'\n', &corpus.bytes) {
        lines += u64::from(black_box(end) < usize::MAX);
    }
    lines
}

// ---- The table ------------------------------------------------------------------------------------------------------

fn print_table(corpus: &Corpus) {
    let (best, found) = best_of_interleaved_rounds(corpus);
    let speed = |place: usize| {
        let repeats = if CONTENDERS[place].from_file { corpus.repeats } else { 1 };
        (corpus.lines * repeats as u64) as f64 / best[place].as_secs_f64()
    };
    let speed_of = |name: &str| speed(CONTENDERS.iter().position(|contender| contender.name == name).unwrap());
    println!("\n{}: {} lines, {} bytes", corpus.name, corpus.lines, corpus.bytes.len());
    println!("{:<14} {:>14} {:>12} {:>14} {:>12}", "", "M lines/s", "x nmea-kit", "x nmea-parser", "reports");
    for (place, contender) in CONTENDERS.iter().enumerate() {
        let reports = if contender.name == NEWLINE_SCAN { "-".to_owned() } else { found[place].to_string() };
        let (kit, parser) = (speed(place) / speed_of(NMEA_KIT), speed(place) / speed_of(NMEA_PARSER));
        println!("{:<14} {:>14.3} {kit:>12.2} {parser:>14.2} {reports:>12}", contender.name, speed(place) / 1e6);
    }
}

/// Each contender's shortest pass, and how many reports it found.
fn best_of_interleaved_rounds(corpus: &Corpus) -> ([Duration; CONTENDERS.len()], [u64; CONTENDERS.len()]) {
    let (mut best, mut found) = ([Duration::MAX; CONTENDERS.len()], [0; CONTENDERS.len()]);
    for _ in 0..ROUNDS {
        for (place, contender) in CONTENDERS.iter().enumerate() {
            let begin = Instant::now();
            found[place] = black_box((contender.pass)(black_box(corpus)));
            best[place] = best[place].min(begin.elapsed());
        }
    }
    (best, found)
}

// ---- The stages -----------------------------------------------------------------------------------------------------

/// What a log comes to on its way, so that each stage can be measured alone.
#[derive(Default)]
struct Halfway<'a> {
    /// Sentences without their first character and checksum.
    bodies: Vec<&'a [u8]>,
    payloads: Vec<(&'a [u8], u8)>,
    reports: Vec<(Report, Position, Timestamp)>,
    events: Vec<Event>,
    /// Those of the log's first time. Afterwards it begins again, and all of it is late.
    first_events: usize,
}

impl<'a> Halfway<'a> {
    fn of(corpus: &'a Corpus) -> Self {
        let mut halfway = Self::default();
        for line in corpus.bytes.split(|byte| *byte == b'\n') {
            let start = line.iter().position(|byte| *byte == b'!');
            let star = line.iter().rposition(|byte| *byte == b'*');
            let (Some(start), Some(star)) = (start, star) else { continue };
            if start + 1 >= star {
                continue;
            }
            let body = &line[start + 1..star];
            halfway.bodies.push(body);
            let mut fields = body.rsplit(|byte| *byte == b',');
            let (fill, payload) = (fields.next(), fields.next());
            if let (Some([fill @ b'0'..=b'5']), Some(payload)) = (fill, payload)
                && armour::is_legal(payload)
            {
                halfway.payloads.push((payload, fill - b'0'));
            }
        }
        let mut decoder = decoder_for(corpus);
        decoder.lines(&corpus.bytes, |accepted| {
            halfway.reports.push((*accepted.report, accepted.position, accepted.time));
        });
        let mut decoder = decoder_for(corpus);
        decoder.lines(&corpus.bytes[..corpus.log_bytes], |_| halfway.first_events += 1);
        let precision = Precision::new(6).unwrap();
        halfway.events = halfway
            .reports
            .iter()
            .map(|(report, position, time)| Event {
                time: *time,
                cell: Cell::of(*position, precision),
                mmsi: report.mmsi,
                sog: report.sog,
            })
            .collect();
        halfway
    }
}

/// Takes sentences, and does nothing with them.
struct Nobody;

impl Visitor for Nobody {
    fn vdm(&mut self, line: u64, context: &Context<'_>, vdm: &Vdm<'_>) {
        black_box((line, context, vdm));
    }
    fn other_sentence(&mut self, _: u64, _: &Context<'_>, _: &[u8], _: bool) {}
    fn reject(&mut self, _: u64, _: Reject) {}
    fn bare_line(&mut self, _: u64, _: Ignore) {}
    fn tag_line(&mut self, _: u64, _: Tag<'_>, _: &[u8]) {}
}

/// An engine with all of a log's reports in it.
fn filled(window: WindowSpec, lateness: Lateness, events: &[Event]) -> Engine {
    let mut engine = Engine::new(window, Selection::default());
    let mut clock = PartitionClock::new(lateness);
    for event in events {
        let watermark = clock.watermark();
        clock.observe(event.time);
        engine.offer(watermark, event, |late| {
            black_box(late);
        });
    }
    engine
}

/// Windows in order, rows, and their text.
fn emitted(mut engine: Engine) {
    let mut csv = RowWriter::new(io::sink(), Form::Csv, false);
    while let Some(window) = engine.take_due(i64::MAX) {
        let rows: Vec<Row> =
            window.cells().iter().map(|(cell, aggregate)| Row::new(*cell, window.start(), aggregate)).collect();
        csv.write(&rows).unwrap();
    }
}

fn print_stages(corpus: &Corpus) {
    let halfway = Halfway::of(corpus);
    let precision = Precision::new(6).unwrap();
    let sliding = WindowSpec::new(Span::from_seconds(900), Some(Span::from_seconds(60))).unwrap();
    let two_minutes = Lateness::Allowed(Span::from_seconds(120));
    let fill =
        |window| move |halfway: &Halfway<'_>| drop(black_box(filled(window, Lateness::Unbounded, &halfway.events)));
    let fill_late = |window| {
        move |halfway: &Halfway<'_>| {
            drop(black_box(filled(window, two_minutes, &halfway.events[..halfway.first_events])));
        }
    };
    type Stage<'s> = (&'static str, Box<dyn Fn(&Halfway<'_>) + 's>);
    let stages: [Stage<'_>; 10] = [
        ("scan", Box::new(|_| scan::scan(&corpus.bytes, &mut 1, 1, &mut Nobody))),
        (
            "  checksum",
            Box::new(|halfway| {
                halfway.bodies.iter().for_each(|body| {
                    black_box(armour::checksum(body));
                })
            }),
        ),
        (
            "decode",
            Box::new(|halfway| {
                halfway.payloads.iter().for_each(|(payload, fill)| {
                    black_box(message::decode(payload, *fill, false));
                });
            }),
        ),
        (
            "time",
            Box::new(|halfway| {
                let mut timekeeper = Timekeeper::new(Options::default().event_time, None, None);
                let mut clock = PartitionClock::new(two_minutes);
                for (report, _, time) in &halfway.reports {
                    if let EventTime::At(time) = timekeeper.event_time(Some(*time), None, report.utc_second) {
                        clock.observe(time);
                    }
                }
                black_box(clock.watermark());
            }),
        ),
        (
            "cell",
            Box::new(|halfway| {
                halfway.reports.iter().for_each(|(_, position, _)| {
                    black_box(Cell::of(*position, precision));
                });
            }),
        ),
        ("aggregate", Box::new(fill(tumbling()))),
        ("aggregate and emit", Box::new(|halfway| emitted(filled(tumbling(), Lateness::Unbounded, &halfway.events)))),
        ("sliding", Box::new(fill(sliding))),
        ("tumbling, some late", Box::new(fill_late(tumbling()))),
        ("sliding, some late", Box::new(fill_late(sliding))),
    ];
    let mut best = [Duration::MAX; 10];
    for _ in 0..ROUNDS {
        for ((_, stage), best) in stages.iter().zip(&mut best) {
            let begin = Instant::now();
            stage(&halfway);
            *best = (*best).min(begin.elapsed());
        }
    }
    let nanos = |place: usize| best[place].as_secs_f64() * 1e9 / corpus.lines as f64;
    println!("\n{:<28} {:>10}", "stage", "ns a line");
    for (place, (name, _)) in stages.iter().enumerate().take(6) {
        println!("{name:<28} {:>10.1}", nanos(place));
    }
    println!("{:<28} {:>10.1}", "emit", nanos(6) - nanos(5));
    println!("15 min by 1 min, beside tumbling 1 min, up to the emission: {:.2} x", nanos(7) / nanos(5));
    println!("the same at --lateness 120s: {:.2} x", nanos(9) / nanos(8));
}

// ---- Compressed files -----------------------------------------------------------------------------------------------

/// How much text a part of a compressed file holds, where it has several.
const PART_BYTES: usize = 1 << 20;

/// The same of a BGZF block, as `bgzip` makes them.
const BGZF_BLOCK_BYTES: usize = 0xff00;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A gzip member that says how long it is (SAM specification, section 4.1).
fn bgzf_block(text: &[u8]) -> Vec<u8> {
    let extra = vec![b'B', b'C', 2, 0, 0, 0];
    let mut encoder = flate2::GzBuilder::new().extra(extra).write(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    let mut block = encoder.finish().unwrap();
    let size = u16::try_from(block.len() - 1).unwrap();
    block[16..18].copy_from_slice(&size.to_le_bytes());
    block
}

fn zstd_frame(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 3).unwrap()
}

fn in_parts(text: &[u8], part_bytes: usize, pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    text.chunks(part_bytes).flat_map(pack).collect()
}

/// Reads an input to its end, on one thread or with so many that unpack ahead.
fn unpack(input: &Input, ahead: Option<usize>) {
    let unpackers = ahead.map(Unpackers::new);
    let mut reader = input.open(ReadOptions { unpackers, ..ReadOptions::default() }).unwrap();
    while let Chunk::Lines(lines) = reader.next_chunk().unwrap() {
        black_box(lines);
    }
}

fn print_packed(corpus: &Corpus) {
    let text = fs::read(corpus.file.path()).unwrap();
    let packed = [
        ("plain", text.clone()),
        ("gzip, one member", gzip(&text)),
        ("gzip, members of 1 MiB", in_parts(&text, PART_BYTES, gzip)),
        ("gzip, members of 4 MiB", in_parts(&text, 4 * PART_BYTES, gzip)),
        ("gzip, BGZF", in_parts(&text, BGZF_BLOCK_BYTES, bgzf_block)),
        ("zstd, one frame", zstd_frame(&text)),
        ("zstd, frames of 1 MiB", in_parts(&text, PART_BYTES, zstd_frame)),
    ];
    let files = packed.map(|(name, stored)| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&stored).unwrap();
        let input = file::find(&[file.path().to_owned()]).unwrap().inputs.remove(0);
        (name, stored.len(), file, input)
    });
    let passes: [fn(&Input, &Corpus); 4] = [
        |input, _| unpack(input, None),
        |input, _| unpack(input, Some(2)),
        |input, corpus| _ = black_box(run_over(input, corpus, 1)),
        |input, corpus| _ = black_box(run_over(input, corpus, 2)),
    ];
    let mut best = [[Duration::MAX; 4]; 7];
    for _ in 0..ROUNDS / 2 {
        for ((.., input), best) in files.iter().zip(&mut best) {
            for (pass, best) in passes.iter().zip(best) {
                let begin = Instant::now();
                pass(input, corpus);
                *best = (*best).min(begin.elapsed());
            }
        }
    }
    println!(
        "\n{} MB of text, in ms; beside the plain file on as many threads, and beside unpacking alone",
        text.len() / 1_000_000
    );
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "MB stored", "unpack", "2 unpack", "1 thread", "x plain", "2 threads", "x plain", "x unpack"
    );
    let plain = best[0].map(|time| time.as_secs_f64());
    for ((name, bytes, ..), best) in files.iter().zip(best) {
        let [unpack, ahead, one, two] = best.map(|time| time.as_secs_f64());
        println!(
            "{name:<24} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.2} {:>10.1} {:>10.2} {:>10.2}",
            *bytes as f64 / 1e6,
            unpack * 1e3,
            ahead * 1e3,
            one * 1e3,
            one / plain[2],
            two * 1e3,
            two / plain[3],
            two / unpack
        );
    }
}
