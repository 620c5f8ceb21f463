//! Tables in DynamoDB, through the binary and over HTTP: what is written counts once, whatever happens on the way.

#![cfg(feature = "aws")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/aws.rs"]
mod aws;
#[path = "support/encode.rs"]
mod encode;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use aws::{Attributes, Caller, Faults, Proxy, Server, Sums, tenths};
use aws_sdk_dynamodb::types::{AttributeValue, ScalarAttributeType};
use encode::{Position, position_report, sentences, tag_block};
use support::{Ran, rows};
use tempfile::TempDir;

const TABLE: &str = "ais_window_agg";
const TO: &str = "dynamodb:ais_window_agg";

/// 2026-05-01T06:00:00Z, the start of a window.
const START: i64 = 1_777_615_200;

/// A folder, the binary, and what it reads.
struct Scene {
    folder: TempDir,
    caller: Caller,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), caller: Caller::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A log of two reports in each of some windows of some cells. The salt makes another log for the same windows.
    fn log(&self, name: &str, cells: u32, windows: i64, salt: u32) -> PathBuf {
        let mut lines = Vec::new();
        for window in 0..windows {
            for cell in 0..cells {
                for ship in 0..2 {
                    let time = START + window * 60 + i64::from((cell * 7 + ship * 23 + salt) % 60);
                    lines.push((time, report(cell, ship, (window as u32) * 31 + salt, time)));
                }
            }
        }
        lines.sort();
        let path = self.path(name);
        fs::write(&path, lines.into_iter().map(|(_, line)| line + "\n").collect::<String>()).unwrap();
        path
    }

    fn run(&self, port: u16, arguments: &[&str]) -> Ran {
        support::finish(&mut assert_cmd::Command::from_std(self.caller.command(port, arguments)))
    }

    /// What the binary itself finds in a log, without any table.
    fn sums(&self, log: &Path) -> Sums {
        let ran = support::run(&["file", text(log), "--format", "csv"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        rows(&ran.stdout)
            .into_iter()
            .map(|((start, cell), (count, sum, missing))| ((cell, start), (count, tenths(&sum), missing)))
            .collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A report of one of the cells, which lie side by side.
fn report(cell: u32, ship: u32, salt: u32, time: i64) -> String {
    let mixed = cell * 131 + ship * 37 + salt * 17;
    let position = Position {
        mmsi: 219_000_000 + cell * 2 + ship,
        lon: encode::degrees(10.4) + cell as i32 * 12_000,
        lat: encode::degrees(57.65),
        sog: if mixed.is_multiple_of(11) { 1023 } else { (mixed % 400) as u16 },
        second: (time % 60) as u8,
        ..Position::default()
    };
    let body = position_report(1, &position);
    let sentence = sentences("AI", "VDM", &body, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
    tag_block(&[("s", "r1"), ("c", &time.to_string())]) + &sentence
}

fn add(sums: &mut Sums, key: &(String, i64), other: (u64, u64, u64)) {
    let sum = sums.entry(key.clone()).or_default();
    *sum = (sum.0 + other.0, sum.1 + other.1, sum.2 + other.2);
}

fn merged(mut sums: Sums, others: &Sums) -> Sums {
    others.iter().for_each(|(key, other)| add(&mut sums, key, *other));
    sums
}

/// Tables that differ, by the first few rows that do.
#[track_caller]
fn assert_same(found: &Sums, expected: &Sums) {
    let keys = found.keys().chain(expected.keys());
    let differing: BTreeMap<_, _> = keys
        .filter(|key| found.get(key) != expected.get(key))
        .map(|key| (key, (found.get(key), expected.get(key))))
        .collect();
    let first: Vec<_> = differing.iter().take(5).collect();
    assert!(differing.is_empty(), "{} rows differ; (found, expected): {first:?}", differing.len());
}

// ---- exactly once -------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// 30 % of the replies do not arrive.
    LostReplies,
    /// Killed at ten points, each time with writes in flight of which some are done.
    Killed,
    /// The same command again.
    Twice,
}

/// A few hundred windows, half of which the live pipeline has counted in already, written in one of the modes while
/// things go wrong and the live pipeline goes on.
fn counts_once(mode: &str, trial: Trial) {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 20, 15, 1);
    let ours = scene.sums(&log);
    assert_eq!(ours.len(), 300);
    // What the table held before.
    let before: Sums =
        ours.keys().enumerate().filter(|(place, _)| place % 2 == 0).fold(Sums::new(), |mut sums, (place, key)| {
            sums.insert(key.clone(), (3, 100 + place as u64, 0));
            sums
        });
    for ((cell, start), (count, tenths, _)) in &before {
        server.live_add(TABLE, cell, *start, *count, *tenths);
    }
    if mode == "undo" {
        let added = scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", "add"]);
        assert_eq!(added.status, 0, "{}", added.stderr);
        assert_same(&server.sums(TABLE), &merged(before.clone(), &ours));
    }
    // What it should hold in the end, but for what the live pipeline adds meanwhile.
    let mut expected = match mode {
        "insert" => ours.iter().chain(&before).map(|(key, sums)| (key.clone(), *sums)).collect(),
        "replace" => ours.clone(),
        "add" => merged(before.clone(), &ours),
        _ => before.clone(),
    };
    let mark = |item: &Attributes| item.get("applied").is_some_and(|marks| !marks.as_ss().unwrap().is_empty());
    let mut live = |round: usize| {
        // Where a window is to be set, what the live pipeline adds before that is not to stay.
        let sets = matches!(mode, "insert" | "replace");
        let items = server.items(TABLE);
        let keys: Vec<_> = items.iter().filter(|((cell, _), item)| cell != "~run" && (!sets || mark(item))).collect();
        for (key, _) in keys.into_iter().skip(round).step_by(7) {
            server.live_add(TABLE, &key.0, key.1, 1, 13);
            add(&mut expected, key, (1, 13, 0));
        }
    };
    let arguments = ["file", text(&log), "--to", TO, "--write", mode];
    let conflicts = mode == "insert";
    let finished = |ran: &Ran| assert_eq!(ran.status, i32::from(conflicts), "{}", ran.stderr);
    let last = match trial {
        Trial::LostReplies => {
            let proxy = Proxy::start(&server, Faults { seed: 7, lost: 30, ..Faults::default() });
            let ran = scene.run(proxy.port(), &arguments);
            assert!(proxy.seen.faults_of("lost") >= 60, "{:?}", proxy.seen.faults);
            live(0);
            finished(&ran);
            ran
        }
        Trial::Killed => {
            // A rate, so that few writes are in flight; it is no part of what a run is.
            let slowly = [&arguments[..], &["--write-rate", "1000"]].concat();
            for round in 0..10 {
                // What is taken back already needs no write, but the others look at every row.
                let last = if mode == "undo" { 10 } else { 5 + round as u64 * 28 };
                let faults = Faults { halt_after: Some(last), latency: Duration::from_millis(2), ..Faults::default() };
                let proxy = Proxy::start(&server, faults);
                let mut command = scene.caller.command(proxy.port(), &slowly);
                let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                let give_up = Instant::now() + Duration::from_secs(20);
                while proxy.seen.writes() < last + 10 {
                    assert!(Instant::now() < give_up && child.try_wait().unwrap().is_none(), "it ended by itself");
                    std::thread::sleep(Duration::from_millis(1));
                }
                child.kill().unwrap();
                child.wait().unwrap();
                live(round);
            }
            let ran = scene.run(server.port(), &arguments);
            finished(&ran);
            assert_eq!(ran.stderr.contains("going on where it broke off"), mode != "undo", "{}", ran.stderr);
            ran
        }
        Trial::Twice => {
            finished(&scene.run(server.port(), &arguments));
            live(3);
            let ran = scene.run(server.port(), &arguments);
            finished(&ran);
            let nothing = match mode {
                "insert" => "0 new, 0 merged into existing counts, 150 already this run's, 150 in conflict",
                "add" => "0 new, 0 merged into existing counts, 300 already this run's, 0 in conflict",
                "replace" => "0 new, 0 set anew, 300 already this run's, 0 in conflict",
                _ => "0 taken back, 300 held nothing of this run, 0 in conflict",
            };
            assert!(ran.stderr.contains(nothing), "{}", ran.stderr);
            ran
        }
    };
    assert_eq!(last.stdout, "");
    assert_same(&server.sums(TABLE), &expected);
    let records = server.records(TABLE);
    let state = if mode == "undo" { "undone" } else { "complete" };
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["state"], AttributeValue::S(state.to_owned()));
    assert_eq!(
        server.items(TABLE).values().filter(|item| mark(item)).count(),
        match mode {
            "insert" => 150,
            "undo" => 0,
            _ => 300,
        }
    );
}

#[test]
fn insert_counts_once_though_30_percent_of_the_replies_are_lost() {
    counts_once("insert", Trial::LostReplies);
}

#[test]
fn insert_counts_once_though_the_process_is_killed_ten_times() {
    counts_once("insert", Trial::Killed);
}

#[test]
fn insert_counts_once_though_it_is_run_twice() {
    counts_once("insert", Trial::Twice);
}

#[test]
fn add_counts_once_though_30_percent_of_the_replies_are_lost() {
    counts_once("add", Trial::LostReplies);
}

#[test]
fn add_counts_once_though_the_process_is_killed_ten_times() {
    counts_once("add", Trial::Killed);
}

#[test]
fn add_counts_once_though_it_is_run_twice() {
    counts_once("add", Trial::Twice);
}

#[test]
fn replace_sets_once_though_30_percent_of_the_replies_are_lost() {
    counts_once("replace", Trial::LostReplies);
}

#[test]
fn replace_sets_once_though_the_process_is_killed_ten_times() {
    counts_once("replace", Trial::Killed);
}

#[test]
fn replace_sets_once_though_it_is_run_twice() {
    counts_once("replace", Trial::Twice);
}

#[test]
fn undo_takes_back_once_though_30_percent_of_the_replies_are_lost() {
    counts_once("undo", Trial::LostReplies);
}

#[test]
fn undo_takes_back_once_though_the_process_is_killed_ten_times() {
    counts_once("undo", Trial::Killed);
}

#[test]
fn undo_takes_back_once_though_it_is_run_twice() {
    counts_once("undo", Trial::Twice);
}

#[test]
fn two_runs_in_the_same_windows_at_the_same_time_and_the_live_pipeline_add_up() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let logs = [scene.log("a.nmea", 20, 15, 1), scene.log("b.nmea", 20, 15, 2)];
    let mut expected = merged(scene.sums(&logs[0]), &scene.sums(&logs[1]));
    let proxy = Proxy::start(&server, Faults { seed: 3, lost: 30, throttled: 5, ..Faults::default() });
    let adding = |log: &Path| scene.run(proxy.port(), &["file", text(log), "--to", TO, "--write", "add"]);
    let keys: Vec<(String, i64)> = expected.keys().cloned().collect();
    std::thread::scope(|scope| {
        // The first of them by two processes, as when two people are called at once.
        let runs = [&logs[0], &logs[1], &logs[0]].map(|log| scope.spawn(|| adding(log)));
        for key in keys.iter().step_by(3) {
            server.live_add(TABLE, &key.0, key.1, 1, 102);
            add(&mut expected, key, (1, 102, 0));
        }
        for run in runs {
            let ran = run.join().unwrap();
            assert_eq!(ran.status, 0, "{}", ran.stderr);
        }
    });
    assert_same(&server.sums(TABLE), &expected);
    // And each can be taken back alone.
    let undone = scene.run(server.port(), &["file", text(&logs[0]), "--to", TO, "--write", "undo"]);
    assert_eq!(undone.status, 0, "{}", undone.stderr);
    for (key, sums) in scene.sums(&logs[0]) {
        let sum = expected.get_mut(&key).unwrap();
        *sum = (sum.0 - sums.0, sum.1 - sums.1, sum.2 - sums.2);
    }
    assert_same(&server.sums(TABLE), &expected);
}

#[test]
fn throttled_failed_stalled_and_cut_calls_lose_nothing() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 20, 15, 1);
    let faults =
        Faults { seed: 5, throttled: 20, failed: 10, cut: 10, lost: 5, stalled: vec![40, 41], ..Faults::default() };
    let proxy = Proxy::start(&server, faults);
    let ran = scene.run(proxy.port(), &["file", text(&log), "--to", TO, "--write", "add"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for kind in ["throttled", "failed", "cut", "lost", "stalled"] {
        assert!(proxy.seen.faults_of(kind) > 0, "no {kind}");
    }
    assert_same(&server.sums(TABLE), &scene.sums(&log));
}

/// Longer than a run keeps silent.
#[test]
fn a_table_that_throttles_everything_is_told_once_while_the_run_waits() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 4, 1);
    let proxy = Proxy::start(&server, Faults { outage: Some(Duration::from_secs(14)), ..Faults::default() });
    let ran = scene.run(proxy.port(), &["file", text(&log), "--to", TO]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_same(&server.sums(TABLE), &scene.sums(&log));
    support::assert_waited(&ran, "DynamoDB: throttled (ProvisionedThroughputExceededException)");
    let before = ran.stderr.find("waiting for").unwrap();
    assert!(before < ran.stderr.find("read  ").unwrap(), "told while it waits: {}", ran.stderr);
}

#[test]
fn reads_and_run_records_outlast_faults_too() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 10, 5, 1);
    for seed in 0..6 {
        let faults =
            Faults { seed, throttled: 20, failed: 10, cut: 10, lost: 20, everything: true, ..Faults::default() };
        let proxy = Proxy::start(&server, faults);
        let ran = scene.run(proxy.port(), &["file", text(&log), "--to", TO, "--write", "add"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let verified = scene.run(proxy.port(), &["verify", "--all", "--in", TO, "--format", "csv"]);
        assert_eq!((verified.status, rows(&verified.stdout).len()), (0, 50), "{}", verified.stderr);
    }
    assert_same(&server.sums(TABLE), &scene.sums(&log));
    assert_eq!(server.records(TABLE).len(), 1);
}

#[test]
fn a_window_written_by_insert_carries_what_the_live_pipeline_reads_and_what_a_rerun_needs() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 4, 1);
    let ran = scene.run(server.port(), &["file", text(&log), "--to", TO, "--run-id", "fill-1"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("dynamodb:ais_window_agg (insert by run fill-1): 12 new"), "{}", ran.stderr);
    assert_same(&server.sums(TABLE), &scene.sums(&log));
    for (key, item) in server.items(TABLE).iter().filter(|((cell, _), _)| cell != "~run") {
        assert_eq!(item["window_seconds"], AttributeValue::N("60".to_owned()), "{key:?}");
        assert_eq!(item["applied"], AttributeValue::Ss(vec!["fill-1".to_owned()]), "{key:?}");
        let missing = scene.sums(&log)[key].2;
        assert_eq!(item.contains_key("sog_missing"), missing > 0, "{key:?}");
    }
    let record = &server.records(TABLE)[0];
    assert_eq!(record["cell"], AttributeValue::S("~run".to_owned()));
    assert_eq!(record["state"], AttributeValue::S("complete".to_owned()));
    assert_eq!(record["token"], AttributeValue::S("fill-1".to_owned()));
    assert_eq!(record["rows"], AttributeValue::N("12".to_owned()));
    let listed = scene.run(server.port(), &["runs", "--in", TO]);
    assert!(listed.stdout.contains("fill-1  insert  complete  12 rows, 0 left alone"), "{}", listed.stdout);
    assert!(listed.stdout.contains("a.nmea"), "{}", listed.stdout);
}

#[test]
fn windows_of_another_length_are_left_alone() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 5, 1);
    // The live pipeline's windows say nothing of their length: it is 60 s.
    let first = scene.sums(&log).into_keys().next().unwrap();
    server.live_add(TABLE, &first.0, START, 1, 10);
    let five = ["file", text(&log), "--to", TO, "--window", "5m"];
    for mode in ["add", "replace", "insert"] {
        let ran = scene.run(server.port(), &[&five[..], &["--write", mode, "--run-id", mode, "--again"]].concat());
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("windows of another length"), "{}", ran.stderr);
        let found = server.items(TABLE).remove(&(first.0.clone(), START)).unwrap();
        assert_eq!(found["count"], AttributeValue::N("1".to_owned()), "{mode}");
        assert!(!found.contains_key("applied"));
    }
    // And where the variable says that its windows are of five minutes, they fit.
    let mut command = scene.caller.command(server.port(), &[&five[..], &["--write", "add", "--again"]].concat()[..]);
    command.env("WINDOW_SECONDS", "300");
    let ran = support::finish(&mut assert_cmd::Command::from_std(command));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
}

#[test]
fn a_replaced_window_is_not_taken_back_from_and_an_undone_one_can_be_inserted_again() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 5, 4, 1);
    let run = |mode: &str| scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", mode]);
    assert_eq!(run("insert").status, 0);
    assert_eq!(run("undo").status, 0);
    assert_eq!(server.sums(TABLE), Sums::new());
    let again = run("insert");
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert!(again.stderr.contains("20 new"), "{}", again.stderr);
    assert_same(&server.sums(TABLE), &scene.sums(&log));
    let replaced = scene.run(
        server.port(),
        &["file", text(&log), "--to", TO, "--write", "replace", "--run-id", "other", "--cell", "u4"],
    );
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    assert!(replaced.stderr.contains("20 set anew"), "{}", replaced.stderr);
    let undone = run("undo");
    assert_eq!(undone.status, 1, "{}", undone.stderr);
    assert!(undone.stderr.contains("a replace has set its numbers"), "{}", undone.stderr);
    assert_same(&server.sums(TABLE), &scene.sums(&log));
}

#[test]
fn a_live_sum_that_went_through_a_float_stops_nothing() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 4, 1);
    let (cell, start) = scene.sums(&log).into_keys().nth(5).unwrap();
    let number = |text: &str| AttributeValue::N(text.to_owned());
    let item: Attributes = [
        ("cell", AttributeValue::S(cell.clone())),
        ("window_start", number(&start.to_string())),
        ("count", number("3")),
        ("sog_sum", number("28.299999999999997")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    server.put(TABLE, item.clone());
    for cells in ["--all", &cell] {
        let verified = scene.run(server.port(), &["verify", cells, "--in", TO]);
        assert!(verified.status == 0 && verified.stdout.contains("count=3 avg_sog=9.4"), "{}", verified.stderr);
        assert!(verified.stderr.contains("the sog_sum of 1 row went through a float"), "{}", verified.stderr);
    }
    let run = |mode: &str| scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", mode]);
    let inserted = run("insert");
    assert_eq!(inserted.status, 1);
    assert!(inserted.stderr.contains("11 new") && inserted.stderr.contains("1 in conflict"), "{}", inserted.stderr);
    for (mode, told) in [("add", "1 merged into existing counts, 11 already"), ("undo", "12 taken back")] {
        let ran = run(mode);
        assert!(ran.status == 0 && ran.stderr.contains(told), "{}", ran.stderr);
    }
    let left = server.items(TABLE).remove(&(cell, start)).unwrap();
    assert_eq!((&left["count"], &left["sog_sum"]), (&item["count"], &item["sog_sum"]));
}

#[test]
fn late_reports_are_added_once_to_the_windows_that_they_missed() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let late = scene.path("late.ndjson");
    let file = ["file", "samples/diagram-late.nmea", "--lateness", "120s", "--to", TO, "--late", text(&late)];
    let ran = scene.run(server.port(), &file);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let window = |server: &Server| server.sums(TABLE)[&("u4pruy".to_owned(), 0)];
    let before = window(&server);
    let proxy = Proxy::start(&server, Faults { seed: 1, lost: 60, ..Faults::default() });
    for _ in 0..3 {
        let ran = scene.run(proxy.port(), &["reconcile", text(&late), "--to", TO]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(window(&server), (before.0 + 1, before.1 + 68, before.2));
    }
    let undone = scene.run(proxy.port(), &["reconcile", text(&late), "--to", TO, "--write", "undo"]);
    assert_eq!(undone.status, 0, "{}", undone.stderr);
    assert_eq!(window(&server), before);
}

// ---- run records --------------------------------------------------------------------------------------------------------

#[test]
fn an_input_that_another_run_has_added_is_refused() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let (log, other) = (scene.log("a.nmea", 3, 4, 1), scene.log("b.nmea", 3, 4, 2));
    assert_eq!(scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", "add"]).status, 0);
    let before = server.sums(TABLE);
    let renamed = scene.path("c.nmea");
    fs::copy(&log, &renamed).unwrap();
    let grown = scene.path("grown.nmea");
    fs::write(&grown, [fs::read(&log).unwrap(), fs::read(&other).unwrap()].concat()).unwrap();
    for inputs in [vec![&renamed, &other], vec![&grown]] {
        let mut arguments = vec!["file", "--to", TO, "--write", "add"];
        arguments.extend(inputs.iter().map(|path| text(path)));
        let ran = scene.run(server.port(), &arguments);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("a.nmea") && ran.stderr.contains(text(inputs[0])), "{}", ran.stderr);
        assert!(ran.stderr.contains("--again") && ran.stderr.contains(TO), "{}", ran.stderr);
        assert_same(&server.sums(TABLE), &before);
    }
    assert_eq!(server.records(TABLE).len(), 1);
}

#[test]
fn a_record_of_2500_inputs_comes_back_whole() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let folder = scene.path("logs");
    fs::create_dir(&folder).unwrap();
    let name = |number: u32| folder.join(format!("{number:04}-{}.nmea", "x".repeat(100)));
    for number in 0..2_500 {
        let time = START + i64::from(number % 600);
        fs::write(name(number), report(number % 5, number, number, time) + "\n").unwrap();
    }
    let arguments = ["file", text(&folder), "--to", TO, "--run-id", "many"];
    // Broken off after the first record item, before the others.
    let halted = Proxy::start(&server, Faults { halt_after: Some(3), everything: true, ..Faults::default() });
    let mut command = scene.caller.command(halted.port(), &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    while halted.seen.calls_of("PutItem") < 2 {
        assert!(Instant::now() < give_up && child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let proxy = Proxy::start(&server, Faults { seed: 2, lost: 30, everything: true, ..Faults::default() });
    let ran = scene.run(proxy.port(), &arguments);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let listed = scene.run(server.port(), &["runs", "--in", TO, "--json"]);
    let records: Vec<serde_json::Value> =
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["state"], "complete");
    let mut names: Vec<&str> =
        records[0]["inputs"].as_array().unwrap().iter().map(|input| input["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let all: Vec<PathBuf> = (0..2_500).map(name).collect();
    assert_eq!(names, all.iter().map(|path| text(path)).collect::<Vec<_>>());
    // Each of them is known, the last ones too.
    for number in [0, 1_200, 2_499] {
        let ran = scene.run(server.port(), &["file", text(&name(number)), "--to", TO, "--write", "add"]);
        assert_eq!(ran.status, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("run many"), "{}", ran.stderr);
    }
}

// ---- mistakes -----------------------------------------------------------------------------------------------------------

/// One sentence on standard error, with these words in it.
#[track_caller]
fn assert_says(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "no '{word}' in: {}", ran.stderr);
    }
    assert!(ran.stderr.lines().count() <= 2 && ran.stderr.len() < 400, "{}", ran.stderr);
}

#[test]
fn a_table_that_is_missing_is_told_before_anything_is_read() {
    let (scene, server) = (Scene::new(), Server::start());
    let log = scene.log("a.nmea", 3, 4, 1);
    for arguments in [&["file", text(&log), "--to", TO][..], &["verify", "u4pruy", "--in", TO], &["runs", "--in", TO]] {
        assert_says(
            &scene.run(server.port(), arguments),
            &[TO, "does not exist", "--create-table", "--region", "eu-north-1"],
        );
    }
    // Nothing was read: the summary would have told of it.
    assert!(!scene.run(server.port(), &["file", text(&log), "--to", TO]).stderr.contains("accepted"));
}

#[test]
fn create_table_makes_one_billed_on_demand() {
    let (scene, server) = (Scene::new(), Server::start());
    let log = scene.log("a.nmea", 3, 4, 1);
    for _ in 0..2 {
        let ran = scene.run(server.port(), &["file", text(&log), "--to", TO, "--create-table"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(server.billing(TABLE).as_deref(), Some("PAY_PER_REQUEST"));
        assert_same(&server.sums(TABLE), &scene.sums(&log));
    }
}

#[test]
fn a_table_is_waited_for_until_it_is_active() {
    let (scene, server) = (Scene::new(), Server::start());
    let log = scene.log("a.nmea", 3, 4, 1);
    // Made by this run, then found while somebody else makes it.
    for calls in [4, 3] {
        let proxy = Proxy::start(&server, Faults { creating: 2, ..Faults::default() });
        let ran = scene.run(proxy.port(), &["file", text(&log), "--to", TO, "--create-table"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(proxy.seen.calls_of("DescribeTable"), calls);
    }
    assert_same(&server.sums(TABLE), &scene.sums(&log));
}

#[test]
fn a_table_of_other_keys_is_refused() {
    use ScalarAttributeType::{N, S};
    let scene = Scene::new();
    let log = scene.log("a.nmea", 3, 4, 1);
    for (hash, range) in [(("id", S), ("at", N)), (("cell", S), ("window_start", S))] {
        let server = Server::start();
        let found = format!("HASH {} (S), RANGE {} ({})", hash.0, range.0, range.1.as_str());
        server.create(TABLE, hash, range);
        let ran = scene.run(server.port(), &["file", text(&log), "--to", TO]);
        assert_says(&ran, &[TO, "is not a table of windows", &found, "RANGE window_start (N)"]);
    }
}

#[test]
fn a_string_where_a_number_should_be_is_told_with_its_place() {
    let scene = Scene::new();
    let log = scene.log("a.nmea", 3, 4, 1);
    let (cell, start) = scene.sums(&log).into_keys().nth(5).unwrap();
    for mode in ["insert", "add"] {
        let server = Server::with_table(TABLE);
        let item: Attributes = [
            ("cell", AttributeValue::S(cell.clone())),
            ("window_start", AttributeValue::N(start.to_string())),
            ("count", AttributeValue::S("12".to_owned())),
            ("sog_sum", AttributeValue::N("1.5".to_owned())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        server.put(TABLE, item.clone());
        let ran = scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", mode]);
        assert_says(&ran, &[TO, &cell, &start.to_string(), "string"]);
        assert_eq!(server.items(TABLE)[&(cell.clone(), start)], item);
        let verified = scene.run(server.port(), &["verify", &cell, "--in", TO]);
        assert_says(&verified, &[TO, &cell, &start.to_string(), "a string, where a number should be"]);
    }
}

#[test]
fn missing_credentials_are_told() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 4, 1);
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    let mut command = scene.caller.without_credentials();
    command.args(["file", text(&log), "--to", TO, "--endpoint-url", &endpoint]);
    let ran = support::finish(&mut assert_cmd::Command::from_std(command));
    assert_says(&ran, &[TO, "no AWS credentials", "AWS_PROFILE", "--profile"]);
    // And no region.
    let mut command = scene.caller.command(server.port(), &["file", text(&log), "--to", TO]);
    command.env_remove("AWS_REGION");
    let ran = support::finish(&mut assert_cmd::Command::from_std(command));
    assert_says(&ran, &[TO, "no AWS region", "--region"]);
    assert!(server.items(TABLE).is_empty());
}

#[test]
fn missing_permissions_are_told_by_their_action() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 3, 4, 1);
    for operation in ["DescribeTable", "Query", "PutItem", "UpdateItem"] {
        let faults = Faults { refused: Some((operation, "AccessDeniedException")), ..Faults::default() };
        let proxy = Proxy::start(&server, faults);
        let ran = scene.run(proxy.port(), &["file", text(&log), "--to", TO, "--run-id", operation, "--again"]);
        assert_says(&ran, &[TO, &format!("dynamodb:{operation}"), "README"]);
        assert!(server.sums(TABLE).is_empty());
    }
    for code in ["UnrecognizedClientException", "ExpiredTokenException"] {
        let proxy = Proxy::start(&server, Faults { refused: Some(("DescribeTable", code)), ..Faults::default() });
        assert_says(&scene.run(proxy.port(), &["file", text(&log), "--to", TO]), &[TO, "does not accept", "--profile"]);
    }
}

#[test]
fn an_endpoint_that_nobody_serves_is_told() {
    let scene = Scene::new();
    let log = scene.log("a.nmea", 3, 4, 1);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let began = Instant::now();
    let ran = scene.run(port, &["file", text(&log), "--to", TO]);
    assert_says(&ran, &[TO, &format!("127.0.0.1:{port}"), "--endpoint-url"]);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would_cost() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let log = scene.log("a.nmea", 20, 15, 1);
    let ran = scene.run(server.port(), &["file", text(&log), "--to", TO, "--dry-run", "--write-rate", "10"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("302 write units at most, about 31 seconds"), "{}", ran.stderr);
    assert!(server.items(TABLE).is_empty());
}

// ---- verify -------------------------------------------------------------------------------------------------------------

/// A table with rows of the live pipeline, of ours, and of both.
fn mixed_table(server: &Server, scene: &Scene) -> (PathBuf, Sums) {
    let log = scene.log("a.nmea", 4, 5, 1);
    let keys: Vec<(String, i64)> = scene.sums(&log).into_keys().collect();
    let ran = scene.run(server.port(), &["file", text(&log), "--to", TO, "--write", "add"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let mut expected = scene.sums(&log);
    // Merged, and of its own.
    for key in [keys[0].clone(), ("u60000".to_owned(), START), ("u60001".to_owned(), START + 60)] {
        server.live_add(TABLE, &key.0, key.1, 4, 377);
        add(&mut expected, &key, (4, 377, 0));
    }
    (log, expected)
}

#[test]
fn verify_reads_rows_of_the_live_pipeline_and_ours_alike() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let (log, expected) = mixed_table(&server, &scene);
    let all = scene.run(server.port(), &["verify", "--all", "--in", TO, "--format", "csv"]);
    assert_eq!(all.status, 0, "{}", all.stderr);
    let found: Sums = rows(&all.stdout)
        .into_iter()
        .map(|((start, cell), (count, sum, missing))| ((cell, start), (count, tenths(&sum), missing)))
        .collect();
    assert_same(&found, &expected);

    let live = scene.run(server.port(), &["verify", "u60000", "--in", TO]);
    let line = format!("window {START}: count=4 avg_sog=9.4\ntotal: windows=1 count=4 avg_sog=9.4\n");
    assert_eq!((live.status, live.stdout.as_str()), (0, line.as_str()), "{}", live.stderr);

    // Several cells, in parallel; each is one query by its key.
    let proxy = Proxy::start(&server, Faults::default());
    let cells: Vec<&String> =
        expected.keys().map(|(cell, _)| cell).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let mut arguments = vec!["verify", "--in", TO, "--format", "csv"];
    arguments.extend(cells.iter().map(|cell| cell.as_str()));
    let each = scene.run(proxy.port(), &arguments);
    assert_eq!(each.stdout, all.stdout, "{}", each.stderr);
    assert_eq!((proxy.seen.calls_of("Query"), proxy.seen.calls_of("Scan")), (cells.len() as u64, 0));

    // Against the sentences: what the live pipeline added is what differs.
    let against =
        scene.run(server.port(), &["verify", "--all", "--in", TO, "--against", &format!("file:{}", text(&log))]);
    assert_eq!((against.status, against.stdout.lines().count()), (3, 3), "{}{}", against.stdout, against.stderr);
    let itself = scene.run(server.port(), &["verify", "--all", "--in", TO, "--against", TO]);
    assert_eq!(itself.status, 0, "{}", itself.stderr);
}

#[test]
fn a_prefix_of_cells_is_scanned_for_with_a_warning() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    let (_, expected) = mixed_table(&server, &scene);
    let proxy = Proxy::start(&server, Faults::default());
    let ran = scene.run(proxy.port(), &["verify", "u60*", "--in", TO, "--format", "csv"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("the whole table is read for it, and paid for"), "{}", ran.stderr);
    let found: Vec<(i64, String)> = rows(&ran.stdout).into_keys().collect();
    let wanted = expected.keys().filter(|(cell, _)| cell.starts_with("u60")).count();
    assert_eq!((found.len(), proxy.seen.calls_of("Query")), (wanted, 0));
    assert_eq!(proxy.seen.calls_of("Scan"), 8);
}

#[test]
fn a_range_of_windows_is_in_the_key_condition() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    mixed_table(&server, &scene);
    let cell = scene.sums(&scene.path("a.nmea")).into_keys().next().unwrap().0;
    let (since, until) = (format!("@{}", START + 60), format!("@{}", START + 180));
    for (flags, starts, condition) in [
        (&["--since", &since, "--until", &until][..], &[60, 120][..], "window_start BETWEEN :from AND :to"),
        (&["--since", &since], &[60, 120, 180, 240], "window_start >= :from"),
        (&["--until", &until], &[0, 60, 120], "window_start <= :to"),
    ] {
        let proxy = Proxy::start(&server, Faults::default());
        let ran = scene.run(proxy.port(), &[&["verify", &cell, "--in", TO, "--format", "csv"], flags].concat());
        let found: Vec<i64> = rows(&ran.stdout).into_keys().map(|(start, _)| start - START).collect();
        assert_eq!(found, starts, "{}", ran.stderr);
        let queries = proxy.seen.reads.lock().unwrap();
        assert!(queries.len() == 1 && queries[0].contains(condition), "{queries:?}");
        assert!(queries[0].contains(r#""ConsistentRead":true"#), "{queries:?}");
        // All the same where every cell is wanted.
        let all = scene.run(
            server.port(),
            &[&["verify", "--all", "--cell", &cell, "--in", TO, "--format", "csv"], flags].concat(),
        );
        assert_eq!(all.stdout, ran.stdout, "{}", all.stderr);
    }
}

#[test]
fn the_pages_of_a_cell_are_followed() {
    let (scene, server) = (Scene::new(), Server::with_table(TABLE));
    // More than the megabyte that one page holds: 24 windows with long lists of runs, as no run makes them.
    let marks: Vec<String> = (0..1_000).map(|number| format!("{number:064}")).collect();
    for window in 0..24 {
        let item: Attributes = [
            ("cell", AttributeValue::S("u4pruy".to_owned())),
            ("window_start", AttributeValue::N((START + window * 60).to_string())),
            ("count", AttributeValue::N("2".to_owned())),
            ("sog_sum", AttributeValue::N("20.1".to_owned())),
            ("applied", AttributeValue::Ss(marks.clone())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        server.put(TABLE, item);
    }
    let proxy = Proxy::start(&server, Faults::default());
    for (what, call) in [("u4pruy", "Query"), ("u4pr*", "Scan")] {
        let before = proxy.seen.calls_of(call);
        let ran = scene.run(proxy.port(), &["verify", what, "--in", TO]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stdout.ends_with("total: windows=24 count=48 avg_sog=10.1\n"), "{}", ran.stdout);
        let least = if call == "Scan" { 9 } else { 2 };
        assert!(proxy.seen.calls_of(call) - before >= least, "{:?}", proxy.seen.calls);
    }
}
