//! How fast lines become windows, beside two other decoders and beside the mere search for line ends.
//!
//! ```text
//! cargo bench --no-default-features --bench decode
//! ```
//!
//! | contender | what it does with each line |
//! |---|---|
//! | whole path | everything that a run does with bytes in memory: scan, decode, event time, watermark, filter, engine, rows |
//! | decoder | the same up to the accepted report |
//! | nmea-kit, nmea-parser | decode, and nothing else: lines are split, checked for ASCII and stripped of TAG blocks beforehand |
//! | newline scan | finds the line ends, as the bound that no reader of lines gets past |
//!
//! Criterion's figures come first, then a table of its own: the contenders take turns in one process and the best of many
//! rounds counts, since a noisy machine only ever makes a pass slower.
//!
//! Logs under `../shared/data` are measured where that folder exists.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::float_arithmetic)]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ais_replay::cell::{Cell, Precision};
use ais_replay::decode::{Accepted, Decoder, Options};
use ais_replay::engine::clock::{Lateness, NO_WATERMARK, PartitionClock};
use ais_replay::engine::{Engine, Event, Selection};
use ais_replay::filter::{Filter, Filtered};
use ais_replay::row::Row;
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
        corpora.iter().for_each(print_table);
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
    lines: u64,
    /// For logs without any time: where the reports' own UTC seconds lead on from.
    start: Option<Timestamp>,
    /// The lines from their sentence on, for decoders that take no more.
    sentences: Vec<String>,
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
        corpora
    }

    fn new(name: &str, log: Vec<u8>, leads: bool) -> Self {
        let bytes = log.repeat(LEAST_BYTES.div_ceil(log.len()));
        let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        let sentences = bytes.split(|byte| *byte == b'\n').filter_map(plain_sentence).collect();
        let start = leads.then(|| Timestamp::from_seconds(1_777_615_200)).flatten();
        Self { name: name.to_owned(), bytes, lines, start, sentences }
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
}

const CONTENDERS: [Contender; 5] = [
    Contender { name: "whole path", pass: whole_path },
    Contender { name: "decoder", pass: decoder_alone },
    Contender { name: NMEA_KIT, pass: nmea_kit },
    Contender { name: "nmea-parser", pass: nmea_parser },
    Contender { name: NEWLINE_SCAN, pass: newline_scan },
];

const NMEA_KIT: &str = "nmea-kit";

const NEWLINE_SCAN: &str = "newline scan";

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
    let per_second = |time: Duration| corpus.lines as f64 / time.as_secs_f64();
    let kit = CONTENDERS.iter().position(|contender| contender.name == NMEA_KIT).unwrap();
    println!("\n{}: {} lines, {} bytes", corpus.name, corpus.lines, corpus.bytes.len());
    println!("{:<14} {:>14} {:>12} {:>12}", "", "M lines/s", "x nmea-kit", "reports");
    for (place, contender) in CONTENDERS.iter().enumerate() {
        let reports = if contender.name == NEWLINE_SCAN { "-".to_owned() } else { found[place].to_string() };
        let speed = per_second(best[place]);
        let ratio = speed / per_second(best[kit]);
        println!("{:<14} {:>14.3} {ratio:>12.2} {reports:>12}", contender.name, speed / 1e6);
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
