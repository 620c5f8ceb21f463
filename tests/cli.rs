//! The tool as its users meet it: through the binary, from arguments to exit status.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/encode.rs"]
mod encode;
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use encode::{Position, position_report, sentences, tag_block};
use support::{ais_replay, count, finish, root, rows, run, run_with_summary};
use tempfile::TempDir;

/// A folder of its own for a test.
fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A type 1 report near u4pruy as a sentence, `sog` in tenths, `second` the UTC second that it says.
fn report(mmsi: u32, sog: u16, second: u8) -> String {
    let position = Position {
        mmsi,
        lon: encode::degrees(10.407),
        lat: encode::degrees(57.649),
        sog,
        second,
        ..Position::default()
    };
    sentences("AI", "VDM", &position_report(1, &position), None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0)
}

/// The same with a TAG block.
fn tagged(mmsi: u32, sog: u16, time: i64) -> String {
    tag_block(&[("s", "r1"), ("c", &time.to_string())]) + &report(mmsi, sog, (time % 60) as u8)
}

/// Writes lines into a file of a folder.
fn file(folder: &TempDir, name: &str, lines: &[String]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

/// (window start, count) of a CSV.
fn counts(csv: &str) -> Vec<(i64, u64)> {
    rows(csv).into_iter().map(|((start, _), (count, ..))| (start, count)).collect()
}

// ---- the scene of the diagram -------------------------------------------------------------------------------------------

const DIAGRAM: &str = "window 0: count=12 avg_sog=9.4\nwindow 60: count=15 avg_sog=8.1\nwindow 120: count=7 avg_sog=10.2\n\
total: windows=3 count=34 avg_sog=9.0\n";

#[test]
fn the_diagram_verifies_at_any_lateness() {
    let folder = folder();
    for lateness in ["unbounded", "120s"] {
        let csv = folder.path().join("out.csv");
        let target = format!("csv:{}", text(&csv));
        let ran = run(&["file", "samples/diagram.nmea", "--lateness", lateness, "--to", &target]);
        assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
        assert!(!ran.stderr.contains("late "), "{}", ran.stderr);
        let verified = run(&["verify", "u4pruy", "--in", &target]);
        assert_eq!((verified.status, verified.stdout.as_str()), (0, DIAGRAM));
    }
    // The straggler that the scene is about is one, at a smaller lateness.
    let (_, summary) = run_with_summary(&["file", "samples/diagram.nmea", "--lateness", "90s"]);
    assert_eq!(summary["pairs"]["late"], 1);
}

#[test]
fn a_late_report_goes_to_the_side_output_and_comes_back_once() {
    let folder = folder();
    let (csv, late) = (folder.path().join("out.csv"), folder.path().join("late.ndjson"));
    let target = format!("csv:{}", text(&csv));
    let run_it =
        || run(&["file", "samples/diagram-late.nmea", "--lateness", "120s", "--to", &target, "--late", text(&late)]);
    let ran = run_it();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 report missed its window: kept in"), "{}", ran.stderr);
    let kept = fs::read_to_string(&late).unwrap();
    let lines: Vec<serde_json::Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["options"]["window_seconds"], 60);
    assert_eq!(lines[0]["targets"][0], target.as_str());
    let report = &lines[1];
    assert_eq!(
        (&report["cell"], &report["window_start"], &report["sog"]),
        (&"u4pruy".into(), &0.into(), &"6.8".into())
    );
    assert_eq!((&report["event_time"], &report["source"]["file"]), (&"42".into(), &"samples/diagram-late.nmea".into()));
    assert!(report["nmea"][0].as_str().unwrap().starts_with("\\s:"));

    let first_window = || run(&["verify", "u4pruy", "--in", &target]).stdout.lines().next().unwrap().to_owned();
    assert_eq!(first_window(), "window 0: count=12 avg_sog=9.4");
    let printed = run(&["reconcile", text(&late)]);
    assert_eq!((printed.status, counts(&printed.stdout)), (0, vec![(0, 1)]), "{}", printed.stderr);
    let dry = run(&["reconcile", text(&late), "--into", &target, "--dry-run"]);
    assert!(dry.stderr.contains("would change 1 row of") && dry.stderr.contains("0 of them new"), "{}", dry.stderr);
    assert_eq!(first_window(), "window 0: count=12 avg_sog=9.4");
    let before = fs::read(&csv).unwrap();
    assert_eq!(run(&["reconcile", text(&late), "--into", &target]).status, 0);
    assert_eq!(first_window(), "window 0: count=13 avg_sog=9.2");

    // Again, also under another name: refused, and nothing changes.
    let renamed = folder.path().join("renamed.ndjson");
    fs::copy(&late, &renamed).unwrap();
    for path in [&late, &renamed] {
        let again = run(&["reconcile", text(path), "--into", &target]);
        assert_eq!(again.status, 1);
        assert!(again.stderr.contains("has been added to") && again.stderr.contains("--again"), "{}", again.stderr);
        assert_eq!(first_window(), "window 0: count=13 avg_sog=9.2");
    }
    // Nor through a link to the same result.
    #[cfg(unix)]
    {
        let link = folder.path().join("link.csv");
        std::os::unix::fs::symlink(&csv, &link).unwrap();
        let linked = run(&["reconcile", text(&late), "--into", &format!("csv:{}", text(&link))]);
        assert_eq!(linked.status, 1, "{}", linked.stderr);
    }
    // A crash between the record and the result: the same command goes on.
    fs::write(&csv, before).unwrap();
    assert_eq!(run(&["reconcile", text(&late), "--into", &target]).status, 0);
    assert_eq!(first_window(), "window 0: count=13 avg_sog=9.2");
    assert_eq!(run(&["reconcile", text(&late), "--into", &target, "--again"]).status, 0);
    assert_eq!(first_window(), "window 0: count=14 avg_sog=9.0");
    // A new result in its place knows nothing of the old one's additions.
    assert_eq!(run_it().status, 0);
    assert_eq!(run(&["reconcile", text(&late), "--into", &target]).status, 0);
    assert_eq!(first_window(), "window 0: count=13 avg_sog=9.2");
}

#[test]
fn late_reports_without_a_late_file_are_said_loudly() {
    let ran = run(&["file", "samples/diagram-late.nmea", "--lateness", "120s"]);
    assert_eq!(ran.status, 0);
    assert!(ran.stderr.contains("AND IN NO ROW") && ran.stderr.contains("--late"), "{}", ran.stderr);
    let quiet = run(&["file", "samples/diagram-late.nmea", "--lateness", "120s", "-q"]);
    assert!(quiet.stderr.contains("AND IN NO ROW"), "even those who want to hear of errors alone");
    let strict = run(&["file", "samples/diagram-late.nmea", "--lateness", "120s", "--strict"]);
    assert_eq!(strict.status, 1);
    assert!(strict.stderr.contains("--strict: 0 rejected and 1 late"), "{}", strict.stderr);
    assert_eq!(run(&["file", "samples/diagram.nmea", "--strict"]).status, 0);
}

#[test]
fn the_late_keys_alone_can_be_recomputed() {
    let folder = folder();
    let late = folder.path().join("late.ndjson");
    run(&["file", "samples/diagram-late.nmea", "--lateness", "120s", "--late", text(&late)]);
    let ran = run(&["file", "samples/diagram-late.nmea", "--only", text(&late), "--format", "csv"]);
    assert_eq!(counts(&ran.stdout), [(0, 13)], "{}", ran.stderr);
    let wrong = run(&["file", "samples/diagram-late.nmea", "--only", text(&late), "--precision", "5"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("--precision 6"), "{}", wrong.stderr);
    for window in ["90s", "30s"] {
        let other = run(&["file", "samples/diagram-late.nmea", "--only", text(&late), "--window", window]);
        assert_eq!(other.status, 2);
        assert!(other.stderr.contains("windows of 60 s"), "{}", other.stderr);
    }
    let over = run(&["file", "samples/diagram-late.nmea", "--only", text(&late), "--late", text(&late)]);
    assert_eq!(over.status, 2);
    assert!(over.stderr.contains("is an input"), "{}", over.stderr);
}

#[test]
fn a_late_file_among_logs_is_not_counted_again() {
    let folder = folder();
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::copy(root().join("samples/diagram-late.nmea"), logs.join("a.nmea")).unwrap();
    let late = logs.join("late.ndjson");
    run(&["file", text(&logs), "--lateness", "120s", "--late", text(&late)]);
    let ran = run(&["file", text(&logs), "--format", "csv"]);
    assert_eq!((ran.status, counts(&ran.stdout)[0]), (0, (0, 13)), "{}", ran.stderr);
    assert!(ran.stderr.contains("late side-output"), "{}", ran.stderr);
    let alone = run(&["file", text(&late)]);
    assert_eq!((alone.status, alone.stdout.as_str()), (1, ""), "{}", alone.stderr);
}

// ---- what people read ---------------------------------------------------------------------------------------------------

#[test]
fn the_summary_of_an_hour_in_the_harbour() {
    let ran = run(&["file", "samples/harbour.nmea", "--lateness", "120s"]);
    assert_eq!(ran.status, 0);
    insta::assert_snapshot!("harbour_summary", ran.stderr);
    assert!(ran.stderr.lines().count() <= 24, "it fits one screen");
    let (_, summary) = run_with_summary(&["file", "samples/harbour.nmea", "--lateness", "120s"]);
    insta::assert_snapshot!("harbour_summary_json", serde_json::to_string_pretty(&summary).unwrap());
}

#[test]
fn the_harbour_comes_out_the_same_as_ever() {
    // Figures of an independent script (its own TAG and geohash code, pyais for the payloads).
    let (ran, summary) = run_with_summary(&["file", "samples/harbour.nmea", "--format", "csv"]);
    assert_eq!((&summary["count"], &summary["sog_sum"]), (&17_168.into(), &"167142.3".into()));
    assert_eq!((&summary["sog_missing"], count(&summary, "ignored", "no_position")), (&116.into(), 29));
    assert_eq!((&summary["windows"], &summary["cells"], &summary["rows"]), (&60.into(), &303.into(), &3_015.into()));
    let total: u64 = rows(&ran.stdout).values().map(|(count, ..)| count).sum();
    assert_eq!(total, 17_168);
    let mut keys: Vec<(i64, String)> = ran
        .stdout
        .lines()
        .skip(1)
        .map(|line| {
            line.split_once(',')
                .map(|(cell, rest)| (rest.split(',').next().unwrap().parse().unwrap(), cell.to_owned()))
                .unwrap()
        })
        .collect();
    let printed = keys.clone();
    keys.sort();
    assert_eq!(printed, keys, "ordered by window, then cell");
}

#[test]
fn rows_in_every_form() {
    let folder = folder();
    let path = file(
        &folder,
        "a.nmea",
        &[tagged(1, 100, 1_700_000_040), tagged(2, 1023, 1_700_000_041), tagged(2, 1023, 1_700_000_100)],
    );
    let form = |form: &str, more: &[&str]| {
        let mut arguments = vec!["file", text(&path), "--format", form];
        arguments.extend(more);
        run(&arguments).stdout
    };
    insta::assert_snapshot!("rows_csv", form("csv", &[]));
    insta::assert_snapshot!("rows_csv_utc", form("csv", &["--utc"]));
    insta::assert_snapshot!("rows_json", form("json", &[]));
    insta::assert_snapshot!("rows_ndjson", form("ndjson", &[]));
    insta::assert_snapshot!("rows_table", form("table", &[]));
    assert_eq!(run(&["file", text(&path)]).stdout, form("csv", &[]), "a pipe gets CSV");
}

#[test]
fn help_names_every_command_and_flag() {
    // A build without AWS has no commands for streams and objects.
    if cfg!(not(feature = "aws")) {
        assert!(["kinesis", "s3"].iter().all(|command| run(&[command, "--help"]).status == 2));
        return;
    }
    let commands = [
        &["--help"][..],
        &["file", "--help"],
        &["kinesis", "--help"],
        &["reconcile", "--help"],
        &["verify", "--help"],
        &["s3", "--help"],
    ];
    for command in commands {
        let ran = finish(ais_replay().args(command).env("COLUMNS", "100"));
        assert_eq!(ran.status, 0);
        insta::assert_snapshot!(format!("help_{}", command[0].trim_start_matches("--")), ran.stdout);
    }
    assert!(run(&["--version"]).stdout.starts_with("ais-replay 0."));
}

#[test]
fn what_the_environment_sets_is_said() {
    let ran = finish(
        ais_replay()
            .args(["file", "samples/diagram.nmea", "--format", "csv"])
            .env("WINDOW_SECONDS", "30")
            .env("GEOHASH_PRECISION", "4")
            .env("ALLOWED_LATENESS_SECONDS", "120")
            .env("AGG_TABLE", "ais_window_agg")
            .env("AIS_REPLAY_UTC", "true"),
    );
    assert_eq!(ran.status, 0);
    assert!(ran.stdout.contains("u4pr,1970-01-01T00:00:30Z"), "{}", ran.stdout);
    for line in [
        "WINDOW_SECONDS=30 (--window)",
        "GEOHASH_PRECISION=4 (--precision)",
        "ALLOWED_LATENESS_SECONDS=120 (--lateness)",
    ] {
        assert!(ran.stderr.contains(line), "{}", ran.stderr);
    }
    for value in ["", "soon"] {
        let wrong = finish(ais_replay().args(["file", "samples/diagram.nmea"]).env("WINDOW_SECONDS", value));
        assert_eq!(wrong.status, 2);
        assert!(wrong.stderr.contains("comes from the environment variable WINDOW_SECONDS"), "{}", wrong.stderr);
    }
    let flag =
        finish(ais_replay().args(["file", "samples/diagram.nmea", "--window", "60"]).env("WINDOW_SECONDS", "30"));
    assert!(!flag.stderr.contains("WINDOW_SECONDS"), "the command line goes before the environment");
}

#[test]
fn quiet_and_verbose() {
    for yes in ["1", "true", "yes"] {
        let set = finish(ais_replay().args(["file", "samples/diagram.nmea"]).env("AIS_REPLAY_QUIET", yes));
        assert_eq!((set.status, set.stderr.as_str()), (0, ""));
    }
    let quiet = run(&["file", "samples/diagram.nmea", "-q"]);
    assert_eq!((quiet.status, quiet.stderr.as_str()), (0, ""));
    assert!(
        run(&["file", "samples/diagram.nmea", "-v"]).stderr.contains("samples/diagram.nmea: 52 lines, 34 accepted")
    );
    let coloured = run(&["file", "missing", "--color", "always"]);
    assert!(coloured.stderr.contains("\u{1b}["), "{:?}", coloured.stderr);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would() {
    let folder = folder();
    let (csv, late) = (folder.path().join("out.csv"), folder.path().join("late.ndjson"));
    let target = format!("csv:{}", text(&csv));
    let ran = run(&[
        "file",
        "samples/diagram-late.nmea",
        "--lateness",
        "120s",
        "--to",
        &target,
        "--late",
        text(&late),
        "--dry-run",
    ]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""));
    assert!(ran.stderr.contains("nothing written; would be 4 rows to csv:"), "{}", ran.stderr);
    assert!(ran.stderr.contains("would go to"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

// ---- selection ----------------------------------------------------------------------------------------------------------

#[test]
fn only_windows_wholly_inside_the_range_come_out() {
    let range = |since: &str, until: &str| {
        let ran = run(&["file", "samples/diagram.nmea", "--since", since, "--until", until, "--format", "csv"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        counts(&ran.stdout)
    };
    assert_eq!(range("@0", "@180"), [(0, 12), (60, 15), (120, 7)]);
    assert_eq!(range("@1", "@179"), [(60, 15)]);
    assert_eq!(range("1970-01-01T00:01:00Z", "1970-01-01T00:03:00Z"), [(60, 15), (120, 7)]);
    assert_eq!(range("@60", "@120"), [(60, 15)]);
    let (_, summary) = run_with_summary(&["file", "samples/diagram.nmea", "--since", "@60"]);
    assert_eq!((&summary["pairs"]["added"], &summary["pairs"]["outside"]), (&22.into(), &12.into()));
    let age = run(&["file", "samples/diagram.nmea", "--since", "2h"]);
    assert!(age.stderr.contains("--since 2h is 20"), "an age is told as an instant: {}", age.stderr);
}

#[test]
fn filters_choose_what_is_counted_and_never_what_is_late() {
    let late = |flags: &[&str]| {
        let mut arguments = vec!["file", "samples/diagram-late.nmea", "--lateness", "120s"];
        arguments.extend(flags);
        run_with_summary(&arguments).1
    };
    let all = late(&[]);
    assert_eq!((&all["count"], &all["pairs"]["late"]), (&40.into(), &1.into()));
    let here = late(&["--cell", "u4pruy"]);
    assert_eq!((&here["count"], &here["pairs"]["late"], &here["filtered"]["cell"]), (&34.into(), &1.into(), &6.into()));
    let boxed = late(&["--bbox", "10.402,57.645,10.415,57.651"]);
    assert_eq!((&boxed["count"], &boxed["pairs"]["late"]), (&34.into(), &1.into()));
    let types = late(&["--types", "1"]);
    assert!(types["count"].as_u64() < Some(40) && types["filtered"]["types"].as_u64() > Some(0));
}

#[test]
fn a_sliding_window_covers_every_report_as_often_as_it_overlaps() {
    let ran = run(&["file", "samples/diagram.nmea", "--window", "2m", "--slide", "1m", "--format", "csv"]);
    assert_eq!(counts(&ran.stdout), [(-60, 12), (0, 27), (60, 22), (120, 7)]);
}

// ---- where the time comes from ------------------------------------------------------------------------------------------

#[test]
fn a_log_without_time_names_what_helps() {
    let folder = folder();
    let path = file(&folder, "no-time.nmea", &[report(1, 100, 10), report(2, 100, 40), report(3, 100, 5)]);
    let bare = run(&["file", text(&path)]);
    assert_eq!((bare.status, bare.stdout.as_str()), (1, ""));
    assert!(
        bare.stderr.contains("none of its 3 position reports has an event time; give --start TIME"),
        "{}",
        bare.stderr
    );
    let led = run(&["file", text(&path), "--start", "2023-11-14T22:14:00Z", "--format", "csv"]);
    assert_eq!(counts(&led.stdout), [(1_700_000_040, 2), (1_700_000_100, 1)], "{}", led.stderr);
}

#[test]
fn a_local_time_needs_its_zone() {
    let folder = folder();
    let path = file(&folder, "plotter.log", &[format!("20231114 23:14:05.0030\t{}", report(1, 100, 5))]);
    let bare = run(&["file", text(&path)]);
    assert_eq!(bare.status, 1);
    assert!(bare.stderr.contains("--time-zone ZONE"), "{}", bare.stderr);
    for zone in ["Europe/Oslo", "+01:00"] {
        let zoned = run(&["file", text(&path), "--time-zone", zone, "--format", "csv"]);
        assert_eq!(counts(&zoned.stdout), [(1_700_000_040, 1)], "{}", zoned.stderr);
    }
    let wrong = run(&["file", text(&path), "--time-zone", "Europe/Atlantis"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("Europe/Atlantis") && wrong.stderr.contains("--time-zone"), "{}", wrong.stderr);
}

#[test]
fn clocks_inside_the_log() {
    let folder = folder();
    let rmc = "GPRMC,221405.00,A,5738.94,N,01024.42,E,0.0,,141123,,,A";
    let rmc = format!("${rmc}*{:02X}", encode::checksum(rmc));
    let base = encode::base_station(2_655_619, 0, 0, encode::Utc::from_unix(1_700_000_107));
    let base = sentences("AI", "VDM", &base, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
    let path = file(
        &folder,
        "clocks.nmea",
        &[
            report(1, 10, 0),
            rmc,
            report(1, 10, 0),
            base,
            report(1, 10, 0),
            tagged(1, 10, 1_700_000_200),
            report(1, 10, 0),
        ],
    );
    let with = |clock: &str| {
        let ran = run(&["file", text(&path), "--clock", clock, "--format", "csv"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        counts(&ran.stdout)
    };
    assert_eq!(with("sentences"), [(1_700_000_040, 3), (1_700_000_160, 1)]);
    assert_eq!(with("base-station"), [(1_700_000_100, 2), (1_700_000_160, 1)]);
    assert_eq!(with("previous"), [(1_700_000_160, 2)]);
}

#[test]
fn the_utc_second_and_the_arrival() {
    let folder = folder();
    // Received two seconds into a minute, sent two seconds before it.
    let line = tag_block(&[("c", "1700000102")]) + &report(1, 100, 58);
    let path = file(&folder, "a.nmea", std::slice::from_ref(&line));
    let with = |how: &str| counts(&run(&["file", text(&path), "--event-time", how, "--format", "csv"]).stdout);
    assert_eq!(with("received"), [(1_700_000_100, 1)]);
    assert_eq!(with("utc-second"), [(1_700_000_040, 1)]);
    let arrival = run(&["file", text(&path), "--event-time", "arrival"]);
    assert_eq!(arrival.status, 1);
    assert!(arrival.stderr.contains("leave --event-time arrival out"), "{}", arrival.stderr);

    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(&line);
    let event = format!(
        r#"{{"Records":[{{"kinesis":{{"sequenceNumber":"1","data":"{data}","approximateArrivalTimestamp":1700000162.5}},"eventID":"shardId-0:1"}}]}}"#
    );
    let path = file(&folder, "event.json", &[event]);
    let ran = run(&["file", text(&path), "--event-time", "arrival", "--format", "csv"]);
    assert_eq!(counts(&ran.stdout), [(1_700_000_160, 1)], "{}", ran.stderr);
}

// ---- input that is not what it should be --------------------------------------------------------------------------------

/// Asserts that a run failed with one message that names something, and no panic.
fn refused(arguments: &[&str], status: i32, names: &[&str]) {
    let ran = run(arguments);
    assert_eq!(ran.status, status, "{arguments:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{arguments:?}");
    assert_eq!(ran.stderr.matches("error:").count(), 1, "{arguments:?}: {}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    for name in names {
        assert!(ran.stderr.contains(name), "{arguments:?} does not name {name}: {}", ran.stderr);
    }
}

#[test]
fn inputs_that_cannot_be_read_are_named() {
    let folder = folder();
    refused(&["file", "no/such.nmea"], 1, &["no/such.nmea", "No such file"]);
    refused(&["file", "samples/diagram.nmea", "no/such.nmea"], 1, &["no/such.nmea"]);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(&["file", text(&empty)], 1, &[text(&empty), "without any file"]);
    let utf16 = folder.path().join("utf16.nmea");
    fs::write(&utf16, b"\xff\xfe!\0A\0I\0").unwrap();
    refused(&["file", text(&utf16)], 1, &[text(&utf16), "UTF-16"]);
    let junk = folder.path().join("junk.png");
    fs::write(&junk, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    refused(&["file", text(&junk)], 1, &[text(&junk), "no AIS sentence"]);
    let json = folder.path().join("event.json");
    fs::write(&json, r#"{"Records":[{"s3":{}}]}"#).unwrap();
    refused(&["file", text(&json)], 1, &[text(&json), "Lambda event"]);
}

#[test]
fn an_empty_input_is_complete() {
    let folder = folder();
    let path = file(&folder, "empty.nmea", &[]);
    fs::write(&path, "").unwrap();
    let ran = run(&["file", text(&path), "--format", "csv"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "cell,window_start,count,vessels,sog_sum,sog_missing,avg_sog\n"));
}

#[test]
fn an_entry_of_a_directory_without_sentences_is_told_and_the_rest_goes_on() {
    let folder = folder();
    fs::copy(root().join("samples/diagram.nmea"), folder.path().join("a.nmea")).unwrap();
    fs::write(folder.path().join("notes.txt"), "nothing of the kind\n").unwrap();
    let ran = run(&["file", text(folder.path()), "--format", "csv"]);
    assert_eq!((ran.status, counts(&ran.stdout)), (0, vec![(0, 12), (60, 15), (120, 7)]));
    assert!(ran.stderr.contains("notes.txt holds no AIS sentence"), "{}", ran.stderr);
    // The same file by two ways counts once.
    let twice = run(&["file", text(folder.path()), text(&folder.path().join("a.nmea")), "--format", "csv"]);
    assert_eq!(counts(&twice.stdout), [(0, 12), (60, 15), (120, 7)]);
    assert!(twice.stderr.contains("read once"), "{}", twice.stderr);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A gzip member that says how long it is, as `bgzip` writes it (SAM specification, section 4.1).
fn bgzf_block(text: &[u8]) -> Vec<u8> {
    let extra = vec![b'B', b'C', 2, 0, 0, 0];
    let mut encoder = flate2::GzBuilder::new().extra(extra).write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    let mut block = encoder.finish().unwrap();
    let size = u16::try_from(block.len() - 1).unwrap();
    block[16..18].copy_from_slice(&size.to_le_bytes());
    block
}

#[test]
fn compressed_files_of_many_blocks_give_the_same_on_any_number_of_threads() {
    let folder = folder();
    // More than is read before other threads help.
    let text = fs::read(root().join("samples/harbour.nmea")).unwrap().repeat(2);
    let blocks: Vec<Vec<u8>> = text.chunks(0xff00).map(bgzf_block).collect();
    let frames: Vec<Vec<u8>> = text.chunks(200_000).map(|text| zstd::encode_all(text, 1).unwrap()).collect();
    let members: Vec<Vec<u8>> = text.chunks(200_000).map(gzip).collect();
    let whole = gzip(&text);
    let path = folder.path().join("log");
    let ran = |stored: &[u8], threads: &str| {
        fs::write(&path, stored).unwrap();
        run(&["file", path.to_str().unwrap(), "--threads", threads, "--lateness", "120s"])
    };
    let plain = ran(&text, "1");
    assert_eq!(plain.status, 0, "{}", plain.stderr);
    let mut damaged = blocks.clone();
    let place = damaged[30].len() - 8;
    damaged[30][place] ^= 1;
    for (stored, broken) in [
        (blocks.concat(), None),
        (frames.concat(), None),
        ([blocks.concat(), b"rubbish".to_vec()].concat(), None),
        (damaged.concat(), Some("gzip")),
        (blocks.concat()[..blocks.concat().len() - 5].to_vec(), Some("gzip")),
        (frames.concat()[..frames.concat().len() - 5].to_vec(), Some("zstd")),
        (members.concat(), None),
        ([&members.concat()[..], &[0; 512]].concat(), None),
        (members.concat()[..members.concat().len() - 5_000].to_vec(), Some("gzip")),
        (whole[..whole.len() - 5_000].to_vec(), Some("gzip")),
        (whole, None),
    ] {
        let alone = ran(&stored, "1");
        assert_eq!(alone.status, i32::from(broken.is_some()), "{}", alone.stderr);
        if let Some(format) = broken {
            assert!(alone.stderr.contains("breaks off") && alone.stderr.contains(format), "{}", alone.stderr);
        } else {
            assert_eq!(alone.stdout, plain.stdout);
        }
        for threads in ["2", "3"] {
            let ran = ran(&stored, threads);
            assert_eq!(ran.status, alone.status, "{}", ran.stderr);
            assert_eq!((ran.stdout, ran.stderr), (alone.stdout.clone(), alone.stderr.clone()));
        }
    }
}

#[test]
fn a_truncated_gzip_is_an_error_and_leaves_the_old_result() {
    let folder = folder();
    let whole = gzip(&fs::read(root().join("samples/harbour.nmea")).unwrap());
    let path = folder.path().join("harbour.nmea.gz");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let csv = folder.path().join("out.csv");
    fs::write(&csv, "old\n").unwrap();
    let target = format!("csv:{}", text(&csv));
    refused(&["file", text(&path), "--to", &target], 1, &[text(&path), "gzip", "breaks off", "nothing was written"]);
    assert_eq!(fs::read_to_string(&csv).unwrap(), "old\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    // At a finite lateness windows have gone to standard output by then: that is said.
    let ran = run(&["file", text(&path), "--lateness", "120s"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("windows printed by then, each of them complete"), "{}", ran.stderr);
    fs::write(&path, &whole).unwrap();
    assert_eq!(run(&["file", text(&path)]).stdout, run(&["file", "samples/harbour.nmea"]).stdout);
}

#[test]
fn what_is_left_out_of_a_gzip_file_is_told_even_to_those_who_want_errors_alone() {
    let folder = folder();
    let diagram = fs::read(root().join("samples/diagram.nmea")).unwrap();
    let path = folder.path().join("log.gz");
    fs::write(&path, [&gzip(&diagram)[..], b"and more"].concat()).unwrap();
    let ran = run(&["file", text(&path), "-q"]);
    assert_eq!((ran.status, ran.stdout), (0, run(&["file", "samples/diagram.nmea"]).stdout));
    assert!(
        ran.stderr.contains("log.gz has bytes behind its gzip data") && ran.stderr.lines().count() == 1,
        "{}",
        ran.stderr
    );
    let (_, summary) = run_with_summary(&["file", text(&path)]);
    assert!(summary["warnings"][0].as_str().unwrap().contains("left out"), "{summary}");
}

/// `/dev/stdout` is a link to what standard output is, and a file that is put in place there would do away with that.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_standard_output_goes_to_is_not_replaced() {
    let folder = folder();
    let path = folder.path().join("out.txt");
    for target in ["csv:/dev/stdout", "csv:/proc/self/fd/1"] {
        fs::write(&path, "precious\n").unwrap();
        let out = fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ais-replay"));
        command.args(["file", "samples/diagram.nmea", "--to", target]).current_dir(root());
        let ran = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(1));
        let message = String::from_utf8(ran.stderr).unwrap();
        assert!(message.contains("stands for a file that is open already"), "{message}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious\n");
    }
    // Through a pipe it is written as it comes.
    let ran = run(&["file", "samples/diagram.nmea", "--to", "csv:/dev/stdout", "-q"]);
    assert_eq!(ran.stdout, run(&["file", "samples/diagram.nmea"]).stdout);
}

#[test]
fn impossible_flags_are_wrong_usage() {
    for (flags, names) in [
        (&["--window", "0"][..], &["window", "0 seconds"][..]),
        (&["--window", "1w"], &["--window", "1w"]),
        (&["--slide", "2m"], &["slide of 2m", "window of 60s"]),
        (&["--lateness", "soon"], &["--lateness", "soon", "unbounded"]),
        (&["--precision", "13"], &["--precision", "13"]),
        (&["--since", "yesterday"], &["--since", "yesterday", "RFC 3339"]),
        (&["--since", "@100", "--until", "@50"], &["--since", "--until"]),
        (&["--types", "4"], &["--types", "'4'"]),
        (&["--bbox", "1,2,3"], &["--bbox", "four numbers"]),
        (&["--cell", "a"], &["--cell", "'a'"]),
        (&["--cell", "u4pruyd"], &["--cell", "u4pruyd"]),
        (&["--to", "ftp:x"], &["--to", "ftp:x"]),
        (&["--to", "csv:"], &["--to", "csv:"]),
        (&["--to", "out.csv"], &["csv:out.csv"]),
        (&["--to", "stdout", "--to", "stdout"], &["stdout"]),
        (&["--to", "csv:samples/diagram.nmea"], &["samples/diagram.nmea", "is an input"]),
        (&["--threads", "0"], &["--threads"]),
        (&["--no-such-flag"], &["--no-such-flag"]),
    ] {
        let mut arguments = vec!["file", "samples/diagram.nmea"];
        arguments.extend(flags);
        refused(&arguments, 2, names);
    }
    refused(&["file"], 2, &["PATH"]);
    refused(&["verify", "u4pruy", "--in", "mysql:x"], 2, &["--in"]);
    refused(&["verify", "--in", "csv:x"], 2, &["CELL"]);
    assert_eq!(fs::read(root().join("samples/diagram.nmea")).unwrap()[0], b'#');
}

#[test]
fn targets_that_cannot_be_written_are_named() {
    let folder = folder();
    let nowhere = folder.path().join("no/such/out.csv");
    refused(&["file", "samples/diagram.nmea", "--to", &format!("csv:{}", text(&nowhere))], 1, &[text(&nowhere)]);
    refused(
        &["file", "samples/diagram.nmea", "--to", &format!("csv:{}", text(folder.path()))],
        1,
        &[text(folder.path()), "directory"],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence_and_leaves_the_old_result() {
    let full = Command::new("sh")
        .args(["-c", "exec \"$0\" file samples/harbour.nmea >/dev/full"])
        .arg(assert_cmd::cargo::cargo_bin("ais-replay"))
        .current_dir(root())
        .output()
        .unwrap();
    let stderr = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(stderr.contains("cannot write to standard output: No space left"), "{stderr}");

    // A limit on the size of files stands for the disk.
    let folder = folder();
    let csv = folder.path().join("out.csv");
    fs::write(&csv, "old\n").unwrap();
    for (trap, flags) in [
        ("trap '' XFSZ; ", "--to"),
        ("", "--to"),
        ("", "--lateness 1s --to stdout --late"),
        ("", "--to stdout --summary"),
    ] {
        let value = if flags == "--to" { format!("csv:{}", text(&csv)) } else { text(&csv).to_owned() };
        let limited = Command::new("sh")
            .args(["-c", &format!("{trap}ulimit -f 1; exec \"$0\" file samples/harbour.nmea {flags} \"$1\"")])
            .arg(assert_cmd::cargo::cargo_bin("ais-replay"))
            .arg(&value)
            .current_dir(root())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(limited.stderr).unwrap();
        assert_eq!(limited.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(text(&csv)) && stderr.contains("untouched"), "{stderr}");
        assert_eq!(fs::read_to_string(&csv).unwrap(), "old\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let ran = Command::new("sh")
        .args([
            "-c",
            "{ \"$0\" file samples/harbour.nmea samples/diagram.nmea --lateness 1s; echo status $? >&2; } | head -n 1",
        ])
        .arg(assert_cmd::cargo::cargo_bin("ais-replay"))
        .current_dir(root())
        .output()
        .unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(stderr.contains("status 0"), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_with_a_name_is_read() {
    let ran = Command::new("bash")
        .args(["-c", "exec \"$0\" file <(cat samples/diagram.nmea) --format csv"])
        .arg(assert_cmd::cargo::cargo_bin("ais-replay"))
        .current_dir(root())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), run(&["file", "samples/diagram.nmea"]).stdout);
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let folder = folder();
    let csv = folder.path().join("out.csv");
    fs::write(&csv, "old\n").unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("ais-replay"))
        .args(["file", "-", "--to", &format!("csv:{}", text(&csv))])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Waiting would close it, and a run whose input is complete may end before the interrupt is looked at.
    let input = child.stdin.take();
    // Its temporary file shows that it has begun.
    while fs::read_dir(folder.path()).unwrap().count() < 2 {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&csv).unwrap(), "old\n");
}

#[cfg(unix)]
#[test]
fn what_a_kill_leaves_behind_is_in_nobodys_way() {
    let folder = folder();
    let (csv, log) = (folder.path().join("out.csv"), folder.path().join("a.nmea"));
    let target = format!("csv:{}", text(&csv));
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("ais-replay"))
        .args(["file", "-", "--to", &target])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let names = || -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    while names().is_empty() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = names().remove(0);
    assert!(left.starts_with(".out.csv.") && left.ends_with(".part"), "{left}");
    // Whatever it holds by then.
    fs::copy(root().join("samples/diagram.nmea"), folder.path().join(&left)).unwrap();
    fs::copy(root().join("samples/diagram.nmea"), &log).unwrap();
    let ran = run(&["file", text(folder.path()), "--to", &target]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let warning = format!("{left} is an output that a run is writing or was killed at: it was passed over");
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&csv).unwrap(), run(&["file", "samples/diagram.nmea"]).stdout);
    assert!(names().contains(&left), "it may be another run's");
    // Who names it means it.
    assert_eq!(run(&["file", text(&folder.path().join(&left))]).status, 0);
}

// ---- AWS, where nothing asks for it --------------------------------------------------------------------------------------

/// A run that has nothing to do with AWS neither looks for its configuration nor minds what is wrong with it. Whoever
/// opens a pipe that nobody writes to waits for ever.
#[cfg(unix)]
#[test]
fn nothing_of_aws_is_looked_up_for_a_file() {
    let home = folder();
    let aws = home.path().join(".aws");
    fs::create_dir(&aws).unwrap();
    let (config, credentials) = (aws.join("config"), aws.join("credentials"));
    assert!(Command::new("mkfifo").args([&config, &credentials]).status().unwrap().success());
    let (csv, table) = (home.path().join("out.csv"), home.path().join("out.db"));
    let targets = [String::new(), format!("csv:{}", text(&csv)), format!("sqlite:{}", text(&table))];
    let mut commands: Vec<Vec<&str>> = vec![vec!["--version"], vec!["file", "--help"]];
    for target in &targets {
        commands.push(match target.as_str() {
            "" => vec!["file", "samples/diagram.nmea"],
            target if target.starts_with("csv") => vec!["file", "samples/diagram.nmea", "--to", target],
            target => vec!["file", "samples/diagram.nmea", "--create-table", "--to", target],
        });
    }
    commands.push(vec!["verify", "u4pruy", "--in", &targets[1], "--against", &targets[2]]);
    for arguments in commands {
        let ran = ais_replay()
            .args(&arguments)
            .timeout(Duration::from_secs(60))
            .env("HOME", home.path())
            .env("AWS_CONFIG_FILE", &config)
            .env("AWS_SHARED_CREDENTIALS_FILE", &credentials)
            .env("AWS_PROFILE", "no such profile")
            .env("AWS_REGION", "no such region")
            .env("AWS_ENDPOINT_URL", "no such endpoint")
            .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/credentials")
            .env("AWS_MAX_ATTEMPTS", "many")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("no such"), "{arguments:?}: {stderr}");
    }
}

/// One thread counts and one waits for an interrupt; there is none for calls over a network.
#[cfg(target_os = "linux")]
#[test]
fn no_thread_is_started_that_a_file_does_not_need() {
    let folder = folder();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("ais-replay"))
        .args(["file", "-", "--threads", "1", "--to", &format!("csv:{}", text(&folder.path().join("out.csv")))])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&fs::read(root().join("samples/harbour.nmea")).unwrap()).unwrap();
    // Its temporary file shows that it has begun; all that it was given but a pipe's worth has been read by then.
    while fs::read_dir(folder.path()).unwrap().next().is_none() {
        std::thread::yield_now();
    }
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let mut names: Vec<String> =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).unwrap()).collect();
    names.sort();
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(names, ["ais-replay\n", "ctrl-c\n"]);
}

// ---- memory -------------------------------------------------------------------------------------------------------------

/// Reports that are a second apart, so that in windows of a second they are more than the least memory holds.
fn wide(folder: &TempDir) -> PathBuf {
    let lines: Vec<String> =
        (0..60_000).map(|second| tagged(219_000_000 + second % 100, 100, 1_700_000_000 + i64::from(second))).collect();
    file(folder, "wide.nmea", &lines)
}

#[test]
fn little_memory_gives_the_same_and_says_so() {
    let folder = folder();
    let path = wide(&folder);
    let with_memory = |memory: &str, more: &[&str]| {
        let arguments = [&["file", text(&path), "--memory", memory], more].concat();
        let (ran, summary) = run_with_summary(&arguments);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        (ran, summary)
    };
    let tumbling = ["--window", "1s"];
    for more in [&tumbling[..], &["--window", "4s", "--slide", "2s"], &["--window", "1s", "--lateness", "13h"]] {
        let (much, summary) = with_memory("1GiB", more);
        assert_eq!((&summary["spilled"]["runs"], much.stdout.is_empty()), (&0.into(), false));
        assert!(!much.stderr.contains("sorted run"), "{}", much.stderr);
        let (little, mut small) = with_memory("16M", more);
        assert!(little.stdout == much.stdout, "{more:?}: other rows");
        let (runs, bytes) = (small["spilled"]["runs"].take(), small["spilled"]["bytes"].take());
        assert!(runs.as_u64() > Some(0) && bytes.as_u64() > Some(100_000), "{runs} {bytes}");
        assert!(little.stderr.contains("beyond 16.00 MiB went to disk and came back"), "{}", little.stderr);
        small["spilled"] = summary["spilled"].clone();
        assert_eq!(small, summary);
    }
}

#[test]
fn sizes_of_memory_that_are_none_are_refused() {
    let file = "samples/diagram.nmea";
    for (size, says) in [("plenty", "is not a size such as 512M"), ("1M", "at least 16M"), ("1.5G", "is not a size")] {
        refused(&["file", file, "--memory", size], 2, &[says]);
    }
    let set = finish(ais_replay().args(["file", file]).env("AIS_REPLAY_MEMORY", "64M"));
    assert!(set.stderr.contains("AIS_REPLAY_MEMORY=64M (--memory)"), "{}", set.stderr);
    let wrong = finish(ais_replay().args(["file", file]).env("AIS_REPLAY_MEMORY", "64 pages"));
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("comes from the environment variable AIS_REPLAY_MEMORY"), "{}", wrong.stderr);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_take_what_is_too_much_is_named_with_what_helps() {
    let folder = folder();
    let path = wide(&folder);
    let csv = folder.path().join("out.csv");
    fs::write(&csv, "old\n").unwrap();
    let missing = folder.path().join("no/such");
    // A limit on the size of files stands for the disk.
    for (limit, temporary) in [("true", missing.as_path()), ("ulimit -f 1", folder.path())] {
        let failed = Command::new("sh")
            .args(["-c", &format!("{limit}; exec \"$0\" file \"$1\" --window 1s --memory 16M --to csv:\"$2\"")])
            .arg(assert_cmd::cargo::cargo_bin("ais-replay"))
            .args([&path, &csv])
            .env("TMPDIR", temporary)
            .output()
            .unwrap();
        let stderr = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        for named in [text(temporary), "TMPDIR", "--memory"] {
            assert!(stderr.contains(named), "{stderr}");
        }
        assert_eq!(fs::read_to_string(&csv).unwrap(), "old\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the log and the old result");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_kill_leaves_nothing_of_what_was_on_disk() {
    let folder = folder();
    let lines = fs::read(wide(&folder)).unwrap();
    for signal in ["-KILL", "-INT"] {
        let temporary = TempDir::new().unwrap();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("ais-replay"))
            .args(["file", "-", "--window", "1s", "--memory", "16M", "--to", "csv:/dev/null"])
            .env("TMPDIR", temporary.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The input does not end, so what is on disk stays there.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&lines).unwrap();
        let open = format!("/proc/{}/fd", child.id());
        let is_run = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(temporary.path()));
        while !fs::read_dir(&open).unwrap().any(|entry| entry.is_ok_and(is_run)) {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before its input did");
            std::thread::yield_now();
        }
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "after {signal}");
    }
}

#[test]
fn standard_input_is_an_input_like_any_other() {
    let sample = fs::read(root().join("samples/diagram.nmea")).unwrap();
    let ran = finish(ais_replay().args(["file", "-", "--lateness", "120s"]).write_stdin(sample));
    assert_eq!(ran.stdout, run(&["file", "samples/diagram.nmea"]).stdout);
}

// ---- verify and reconcile -----------------------------------------------------------------------------------------------

#[test]
fn verify_prints_cells_and_finds_differences() {
    let folder = folder();
    let a = file(
        &folder,
        "a.csv",
        &["cell,window_start,count,sog_sum".into(), "u4pruy,0,12,112.8".into(), "u4pruz,0,2,0".into()],
    );
    let b = file(
        &folder,
        "b.csv",
        &[
            "cell,window_start,count,vessels,sog_sum,sog_missing,avg_sog".into(),
            "u4pruy,1970-01-01T00:00:00Z,13,,112.80,1,9.40".into(),
            "u4pruy,60,1,1,0.0,1,".into(),
        ],
    );
    let (a, b) = (format!("csv:{}", text(&a)), format!("csv:{}", text(&b)));
    let two = run(&["verify", "u4pruz", "u4pruy", "--in", &a]);
    assert_eq!(
        two.stdout,
        "cell u4pruz\nwindow 0: count=2 avg_sog=0.0\ntotal: windows=1 count=2 avg_sog=0.0\n\
         cell u4pruy\nwindow 0: count=12 avg_sog=9.4\ntotal: windows=1 count=12 avg_sog=9.4\n"
    );
    let missing = run(&["verify", "u4pruy", "--in", &b]);
    assert_eq!(
        missing.stdout,
        "window 0: count=13 avg_sog=9.4 sog_missing=1\nwindow 60: count=1 avg_sog=n/a sog_missing=1\n\
         total: windows=2 count=14 avg_sog=9.4 sog_missing=2\n"
    );
    let absent = run(&["verify", "zzzzzz", "--in", &a]);
    assert_eq!((absent.status, absent.stdout.as_str()), (0, "total: windows=0 count=0 avg_sog=n/a\n"));
    assert!(absent.stderr.contains("no window of cell zzzzzz"));
    let differ = run(&["verify", "--all", "--in", &a, "--against", &b]);
    assert_eq!(differ.status, 3);
    assert_eq!(differ.stdout.lines().count(), 3, "{}", differ.stdout);
    assert!(
        differ.stdout.contains("u4pruy window 0: count=12 sog_sum=112.8 sog_missing=0 in csv:"),
        "{}",
        differ.stdout
    );
    let json = run(&["verify", "--all", "--in", &a, "--against", &b, "--format", "json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap()[0]["in"]["sog_sum"], "112.8");
    assert_eq!(run(&["verify", "--all", "--in", &a, "--against", &b, "--format", "csv"]).stdout.lines().count(), 4);
    assert_eq!(run(&["verify", "--all", "--in", &a, "--against", &a]).status, 0);
    assert_eq!(run(&["verify", "--all", "--in", &a, "--format", "csv"]).stdout.lines().count(), 3);
    assert!(run(&["verify", "u4pruy", "--in", &b, "--since", "@60"]).stdout.starts_with("window 60"));
}

#[test]
fn verify_compares_a_result_with_its_sentences() {
    let folder = folder();
    let csv = folder.path().join("out.csv");
    let target = format!("csv:{}", text(&csv));
    run(&["file", "samples/harbour.nmea", "--to", &target]);
    let same = run(&["verify", "--all", "--in", &target, "--against", "file:samples/harbour.nmea"]);
    assert_eq!((same.status, same.stdout.as_str()), (0, ""), "{}", same.stderr);
    assert!(same.stderr.contains("3,015 rows agree"), "{}", same.stderr);
    run(&["file", "samples/harbour.nmea", "--lateness", "120s", "--to", &target]);
    let prefix =
        run(&["verify", "--all", "--in", &target, "--against", "file:samples/harbour.nmea", "--cell", "u60pm"]);
    assert_eq!(prefix.status, 0, "a prefix narrows both sides: {}", prefix.stdout);
    refused(&["verify", "--all", "--in", &target, "--against", &target, "--types", "1"], 2, &["--types"]);
    refused(
        &["verify", "--all", "--in", &target, "--against", "file:Cargo.toml"],
        1,
        &["Cargo.toml", "no AIS sentence"],
    );
    let late = run(&["verify", "--all", "--in", &target, "--against", "file:samples/harbour.nmea"]);
    assert_eq!(late.status, 3, "the four late reports are in no row");
}

#[test]
fn results_that_cannot_be_read_are_named() {
    let folder = folder();
    let csv = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        format!("csv:{}", text(&file(&folder, "x.csv", &lines)))
    };
    let header = "cell,window_start,count,sog_sum";
    for (lines, names) in [
        (&["cell,window_start,count", "u4pruy,0,1"][..], &["no column 'sog_sum'"][..]),
        (&[header, "u4pruy,0,x,1"], &["line 2", "count 'x'"]),
        (&[header, "u4pruy,soon,1,1"], &["line 2", "soon"]),
        (&[header, "u4pruy,0,1,1.25"], &["line 2", "1.25"]),
        (&[header, "ailo,0,1,1"], &["line 2", "ailo"]),
        (&[header, "u4pruy,0,1,1", "u4pruy,0,1,1"], &["line 3", "second time"]),
        (&[header, "u4pruy,0"], &["line 2", "too short"]),
        (&[header, "u4pruy,0,18446744073709551615,1"], &["line 2", "beyond"]),
        (&[header, "u4pruy,0,1,99999999999999999"], &["line 2", "99999999999999999"]),
    ] {
        refused(&["verify", "u4pruy", "--in", &csv(lines)], 1, names);
    }
    refused(&["verify", "u4pruy", "--in", "csv:no/such.csv"], 1, &["no/such.csv"]);
}

#[test]
fn reconcile_adds_sums_and_refuses_what_has_none() {
    let folder = folder();
    let late = file(
        &folder,
        "late.ndjson",
        &[
            r#"{"cell":"u4pruy","window_start":0,"count":2,"sog_sum":"20.5","sog_missing":1}"#.into(),
            r#"{"cell":"u4pruz","window_start":60,"count":1,"sog_sum":3}"#.into(),
        ],
    );
    let csv = folder.path().join("agg.csv");
    fs::write(&csv, "cell,window_start,count,vessels,sog_sum,sog_missing,avg_sog\nu4pruy,0,12,5,112.8,0,9.40\n")
        .unwrap();
    let target = format!("csv:{}", text(&csv));
    let ran = run(&["reconcile", text(&late), "--into", &target]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(
        fs::read_to_string(&csv).unwrap(),
        "cell,window_start,count,vessels,sog_sum,sog_missing,avg_sog\nu4pruy,0,14,,133.3,1,10.25\nu4pruz,60,1,,3.0,0,3.00\n"
    );
    let live = file(&folder, "live.ndjson", &[r#"{"cell":"u4pruy","window_start":0,"count":2}"#.into()]);
    refused(&["reconcile", text(&live)], 1, &[text(&live), "line 1", "no sog_sum", "--only"]);
    let broken = file(&folder, "broken.ndjson", &["{".into()]);
    refused(&["reconcile", text(&broken)], 1, &[text(&broken), "line 1"]);
    refused(&["reconcile", text(&late), text(&late)], 1, &["give it once"]);
    refused(&["reconcile", "no/such"], 1, &["no/such"]);
    refused(&["reconcile", "samples"], 1, &["samples", "directory"]);
    let piped = finish(ais_replay().args(["reconcile", "-"]).write_stdin(fs::read(&late).unwrap()));
    assert_eq!((piped.status, counts(&piped.stdout)), (0, vec![(0, 2), (60, 1)]));
    let coarse =
        file(&folder, "coarse.ndjson", &[r#"{"cell":"u4pru","window_start":0,"count":2,"sog_sum":"1.0"}"#.into()]);
    refused(&["reconcile", text(&coarse), "--into", &target], 1, &[text(&csv), "cell of length 6"]);
    fs::write(&csv, "cell,window_start,count,sog_sum,mine\nu4pruy,0,12,112.8,x\n").unwrap();
    refused(&["reconcile", text(&coarse), "--into", &target], 1, &[text(&csv), "'mine'"]);
    refused(&["reconcile", text(&late), "--into", "csv:no/such.csv"], 1, &["no/such.csv"]);
}

#[test]
fn late_files_of_other_windows_do_not_mix() {
    let folder = folder();
    let late = |name: &str, flags: &[&str]| {
        let path = folder.path().join(name);
        let mut arguments = vec!["file", "samples/diagram-late.nmea", "--lateness", "0s", "--late", text(&path)];
        arguments.extend(flags);
        assert_eq!(run(&arguments).status, 0);
        path
    };
    let (minutes, halves) = (late("a.ndjson", &[]), late("b.ndjson", &["--window", "30s"]));
    refused(&["reconcile", text(&minutes), text(&halves)], 1, &[text(&halves), "windows of 30 s"]);
    let csv = folder.path().join("out.csv");
    let target = format!("csv:{}", text(&csv));
    run(&["file", "samples/diagram.nmea", "--window", "30s", "--precision", "5", "--to", &target]);
    refused(&["reconcile", text(&minutes), "--into", &target], 1, &["out.csv", "cannot be added"]);
}
