//! What it costs to have too little memory: the same reports through the engine with ever less of it.
//!
//! ```text
//! cargo bench --no-default-features --bench spill
//! ```
//!
//! The contenders take turns in one process and the best of several rounds counts, since a noisy machine only ever makes a
//! round slower. What is timed is the engine with its windows closed, without reading or decoding, so the ratio is the worst
//! that a run can see: there, lines have to be decoded and rows to be written besides.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::float_arithmetic)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ais_replay::cell::{Cell, Precision};
use ais_replay::engine::clock::NO_WATERMARK;
use ais_replay::engine::{Engine, Event, Selection};
use ais_replay::report::Position;
use ais_replay::spill::Spilled;
use ais_replay::spill::windows::SpillingEngine;
use ais_replay::time::{Span, Timestamp};
use ais_replay::window::WindowSpec;

/// Reports between two looks at the memory: about as many as a chunk of a file holds.
const REPORTS_PER_CHUNK: usize = 3_000;

const VESSELS: u64 = 4_000;

fn main() {
    // `cargo test --benches` only asks whether the benches run.
    let (reports, rounds) =
        if std::env::args().any(|argument| argument == "--bench") { (3_000_000, 5) } else { (20_000, 1) };
    for (order, events) in [("in order of time", events(reports, false)), ("in no order", events(reports, true))] {
        for (windows, length, slide) in [("windows of 60 s", 60, 60), ("windows of 5 min every minute", 300, 60)] {
            let spec = WindowSpec::new(Span::from_seconds(length), Some(Span::from_seconds(slide))).unwrap();
            let all = state_bytes(spec, &events);
            println!("\n{reports} reports {order}, {windows}; a state of {} MiB:", all >> 20);
            println!("{:>12} {:>8} {:>12} {:>14} {:>8}", "memory", "runs", "MiB on disk", "bytes a row", "time");
            compare(spec, &events, &[u64::MAX, all / 2, all / 8, all / 32], rounds);
        }
    }
}

/// Vessels that go their ways over some hours; in order of time, or scattered over all of it.
fn events(reports: usize, scattered: bool) -> Vec<Event> {
    let precision = Precision::new(6).unwrap();
    let event = |number: u64| {
        // Fibonacci hashing: each place once, far from its neighbours.
        let place = if scattered { (number * 1_640_531_527) % reports as u64 } else { number };
        let (seconds, mmsi) = ((place / 300) as i64, number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40);
        let vessel = (mmsi % VESSELS) as i32;
        let position =
            Position::new(vessel * 20_000 + seconds as i32 * 30, vessel % 61 * 400_000 + seconds as i32 * 20);
        Event {
            time: Timestamp::from_seconds(1_777_593_600 + seconds).unwrap(),
            cell: Cell::of(position.unwrap(), precision),
            mmsi: 219_000_000 + vessel as u32,
            sog: Some((number % 200) as u16),
        }
    };
    (0..reports as u64).map(event).collect()
}

/// What the engine comes to in memory if nothing is put aside.
fn state_bytes(spec: WindowSpec, events: &[Event]) -> u64 {
    let mut engine = Engine::new(spec, Selection::default());
    for event in events {
        engine.offer(NO_WATERMARK, event, |_| {});
    }
    engine.footprint()
}

fn compare(spec: WindowSpec, events: &[Event], budgets: &[u64], rounds: usize) {
    let mut best = vec![(Duration::MAX, Spilled::default(), 0); budgets.len()];
    for _ in 0..rounds {
        for (budget, best) in budgets.iter().zip(&mut best) {
            let begin = Instant::now();
            let (spilled, rows) = pass(spec, events, *budget);
            best.0 = best.0.min(begin.elapsed());
            (best.1, best.2) = (spilled, rows);
        }
    }
    for (budget, (time, Spilled { runs, bytes }, rows)) in budgets.iter().zip(&best) {
        assert_eq!(*rows, best[0].2, "memory changes the rows");
        let memory = if *budget == u64::MAX { "enough".to_owned() } else { format!("{} MiB", budget >> 20) };
        let (mebibytes, per_row) = (bytes >> 20, *bytes as f64 / *rows as f64);
        let ratio = time.as_secs_f64() / best[0].0.as_secs_f64();
        println!("{memory:>12} {runs:>8} {mebibytes:>12} {per_row:>14.1} {ratio:>7.2}x");
    }
}

/// All reports in, all windows out.
fn pass(spec: WindowSpec, events: &[Event], budget: u64) -> (Spilled, u64) {
    let mut engine = SpillingEngine::new(Engine::new(spec, Selection::default()), budget);
    for chunk in events.chunks(REPORTS_PER_CHUNK) {
        for event in chunk {
            engine.offer(NO_WATERMARK, event, |_| {});
        }
        engine.relieve().unwrap();
    }
    let mut rows = 0;
    while let Some(due) = engine.take_due(i64::MAX).unwrap() {
        rows += black_box(due.in_order()).len() as u64;
    }
    (engine.spilled(), rows)
}
