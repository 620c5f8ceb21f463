//! How fast a run writes to a table in DynamoDB: against a server that takes N writes a second, with and without latency.
//!
//! The server is the tests' proxy, which answers writes without doing them: what is measured is the pace of the run.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/support/aws.rs"]
mod aws;
#[path = "../tests/support/encode.rs"]
mod encode;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use aws::{Caller, Faults, Proxy, Server};
use encode::{Position, position_report, sentences, tag_block};

const TABLE: &str = "ais_window_agg";

/// A log with one report in each of so many windows.
fn log(path: &Path, windows: usize) {
    let mut text = String::new();
    for window in 0..windows {
        let (cell, time) = (window % 100, 1_777_615_200 + (window / 100) * 60);
        let position = Position {
            mmsi: 219_000_000,
            lon: encode::degrees(10.0) + cell as i32 * 12_000,
            lat: encode::degrees(57.65),
            sog: 94,
            ..Position::default()
        };
        let body = position_report(1, &position);
        let sentence = sentences("AI", "VDM", &body, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
        writeln!(text, "{}{sentence}", tag_block(&[("c", &time.to_string())])).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// Writes a second, in tenths, of one run: all of it, and from two seconds after its first write to its last but 256, which
/// is as many as are in flight.
fn measure(windows: usize, rate: Option<u32>, latency: Duration, write_rate: Option<u32>) -> (u128, u128, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.nmea");
    log(&path, windows);
    let server = Server::with_table(TABLE);
    let proxy = Proxy::start(&server, Faults { rate, latency, hollow: true, ..Faults::default() });
    let to = format!("dynamodb:{TABLE}");
    let caller = Caller::new();
    let mut command = caller.command(proxy.port(), &["file", path.to_str().unwrap(), "--to", &to, "--write", "add"]);
    if let Some(rate) = write_rate {
        command.args(["--write-rate", &rate.to_string()]);
    }
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "the run failed");
    let mut taken = proxy.seen.taken.lock().unwrap().clone();
    taken.sort();
    assert_eq!(taken.len(), windows, "each window is written once");
    let per_second = |times: &[tokio::time::Instant]| {
        let lasted = times[times.len() - 1] - times[0];
        (times.len() as u128 - 1) * 10_000_000 / lasted.as_micros().max(1)
    };
    let settled = taken.iter().position(|at| *at - taken[0] > Duration::from_secs(2)).unwrap_or(0);
    if std::env::var_os("BENCH_SECONDS").is_some() {
        let second = |at: &tokio::time::Instant| (*at - taken[0]).as_millis() / 500;
        let last = second(&taken[taken.len() - 1]);
        let counts: Vec<usize> = (0..=last).map(|s| taken.iter().filter(|at| second(at) == s).count()).collect();
        println!("    by half seconds: {counts:?}");
    }
    let until = taken.len().saturating_sub(256).max(settled + 2);
    (per_second(&taken), per_second(&taken[settled..until]), proxy.seen.faults_of("throttled"))
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--test");
    let seconds = if quick { 4 } else { 12 };
    let latency = Duration::from_millis(20);
    println!("against a server that throttles above N writes a second:");
    for (n, latency) in [(500, Duration::ZERO), (2_000, Duration::ZERO), (500, latency), (2_000, latency)] {
        let (all, settled, throttled) = measure(n as usize * seconds, Some(n), latency, None);
        println!(
            "  N = {n:>5}, {:>2} ms a call: {:>6}/s, settled {:>6}/s = {} % of N; {throttled} throttled",
            latency.as_millis(),
            all / 10,
            settled / 10,
            settled * 10 / u128::from(n),
        );
    }
    println!("against a server that takes all, at --write-rate N:");
    for (n, latency) in [(2_000, Duration::ZERO), (2_000, latency)] {
        let (all, settled, _) = measure(n as usize * seconds, None, latency, Some(n));
        println!(
            "  N = {n:>5}, {:>2} ms a call: {:>6}/s, settled {:>6}/s = {} % of N",
            latency.as_millis(),
            all / 10,
            settled / 10,
            settled * 10 / u128::from(n),
        );
    }
    println!("as fast as it goes:");
    for latency in [Duration::ZERO, latency] {
        let (all, settled, _) = measure(20_000, None, latency, None);
        println!("  {:>2} ms a call: {:>6}/s, settled {:>6}/s", latency.as_millis(), all / 10, settled / 10);
    }
}
