//! Logs that receivers really wrote, and small inputs that broke other tools: each gives the figures that are known to be
//! right. Both lie beside the repository and are read where they exist; what they guard against also stands in the other tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::{ais_replay, count, finish, rows, run, run_with_summary, shared};

/// Flags for the logs that carry no time, or not on every line.
const NO_TIME: [&str; 2] = ["--start", "2020-01-01T00:00:00Z"];

#[test]
fn every_log_gives_its_figures() {
    let Some(data) = shared("data") else { return };
    let expected = std::fs::read_to_string(data.join("expected.tsv")).unwrap();
    let mut wrong = Vec::new();
    for line in expected.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let path = data.join(fields[0]);
        let mut arguments = vec!["file", path.to_str().unwrap(), "--lateness", "unbounded"];
        arguments.extend(NO_TIME);
        let (ran, summary) = run_with_summary(&arguments);
        let found = [
            summary["count"].to_string(),
            summary["sog_sum"].as_str().unwrap_or_default().to_owned(),
            summary["sog_missing"].to_string(),
            count(&summary, "ignored", "no_position").to_string(),
            count(&summary, "ignored", "own_ship").to_string(),
        ];
        // A log without a single position report is one of which nothing can be used.
        let status = i32::from(fields[1] == "0");
        if found[..] != fields[1..] || ran.status != status {
            wrong.push(format!("{line}\n  gave {found:?}, status {}, {}", ran.status, ran.stderr));
        }
        assert_one_fate_each(&summary, fields[0]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn assert_one_fate_each(summary: &Value, name: &str) {
    let sum = |group: &str| -> u64 {
        summary[group].as_object().unwrap().values().map(|kind| kind["count"].as_u64().unwrap()).sum()
    };
    let number = |name: &str| summary[name].as_u64().unwrap();
    let fates = number("accepted") + number("parts") + sum("rejected") + sum("ignored");
    assert_eq!(fates, number("sentences_and_bare_lines"), "{name}");
    let pairs = &summary["pairs"];
    let pairs = ["added", "late", "outside"].map(|kind| pairs[kind].as_u64().unwrap()).iter().sum::<u64>();
    let filtered: u64 = ["types", "bbox", "cell"].map(|kind| summary["filtered"][kind].as_u64().unwrap()).iter().sum();
    assert_eq!(pairs, number("accepted") - filtered, "{name}: tumbling windows make a pair a report");
}

#[test]
fn a_log_without_time_says_what_helps_and_that_helps() {
    let Some(data) = shared("data") else { return };
    for (file, flags, accepted, first, last) in [
        ("gpsd__ait250.log", ["--clock", "sentences"], 28, "2009-08-01T19:49:07Z", "2009-08-01T19:49:39Z"),
        ("gpsd__ais-nmea.log", ["--clock", "sentences"], 141, "2020-04-07T21:39:50Z", "2020-04-07T21:42:33Z"),
    ] {
        let path = data.join(file);
        let bare = run(&["file", path.to_str().unwrap()]);
        assert_eq!(bare.status, 1, "{file}");
        assert!(bare.stderr.contains(&flags.join(" ")) && bare.stderr.contains("--start"), "{}", bare.stderr);
        let (_, summary) = run_with_summary(&["file", path.to_str().unwrap(), flags[0], flags[1]]);
        let input = &summary["inputs"][0];
        assert_eq!(
            (summary["accepted"].as_u64(), input["first_time"].as_str(), input["last_time"].as_str()),
            (Some(accepted), Some(first), Some(last)),
            "{file} {flags:?}"
        );
    }
}

#[test]
fn clocks_inside_a_log_give_every_later_report_a_time() {
    let Some(data) = shared("data") else { return };
    let expected = std::fs::read_to_string(data.join("expected.tsv")).unwrap();
    let expected: BTreeMap<&str, u64> = expected
        .lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split('\t');
            (fields.next().unwrap(), fields.next().unwrap().parse().unwrap())
        })
        .collect();
    for (file, clock, year) in [
        ("gpsd__ait250.log", "sentences", "2009"),
        ("signalk-server__nais300-merrimac.log", "sentences", "2012"),
        ("signalk-server__nais400-merrimac.log", "sentences", "2014"),
        ("gpsd__ais-nmea.log", "sentences", "2020"),
        ("gpsd__ais-nmea-type6-fid55.log", "base-station", "2018"),
        ("aisparser__seattle.log", "base-station", "2006"),
        ("docker-gpsd-timestamp__norwegian.raw", "previous", "2024"),
    ] {
        let path = data.join(file);
        let (ran, summary) =
            run_with_summary(&["file", path.to_str().unwrap(), "--clock", clock, "--types", "1,2,3,18,19"]);
        let untimed = count(&summary, "rejected", "no_event_time");
        let filtered = summary["filtered"]["types"].as_u64().unwrap();
        let accepted = summary["accepted"].as_u64().unwrap() - filtered;
        assert_eq!(accepted + untimed, expected[file], "{file}: {}", ran.stderr);
        assert!(accepted > 0, "{file}: none has a time");
        let first = summary["inputs"][0]["first_time"].as_str().unwrap();
        assert!(first.starts_with(year), "{file} begins {first}");
    }
}

#[test]
fn every_case_has_its_outcome() {
    let Some(cases) = shared("cases") else { return };
    let mut names: Vec<_> = std::fs::read_dir(&cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut tried = 0;
    for expect in names.iter().filter(|path| path.to_str().unwrap().ends_with(".expect.json")) {
        let name = expect.file_name().unwrap().to_str().unwrap().strip_suffix(".expect.json").unwrap();
        let input = names
            .iter()
            .find(|path| {
                *path != expect && path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}."))
            })
            .unwrap();
        let expected: Value = serde_json::from_str(&std::fs::read_to_string(expect).unwrap()).unwrap();
        let mut arguments = vec!["file", input.to_str().unwrap(), "--format", "csv"];
        arguments.extend(expected["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
        let (ran, summary) = run_with_summary(&arguments);
        tried += 1;
        if name == "f01c_utf16" {
            assert_eq!(ran.status, 1);
            assert!(ran.stderr.contains("UTF-16"), "{}", ran.stderr);
            continue;
        }
        let wanted: BTreeMap<(i64, String), (u64, String, u64)> = expected["rows_60s_gh5"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                let key = (row["window_start"].as_i64().unwrap(), row["cell"].as_str().unwrap().to_owned());
                let number = |name: &str| row[name].as_u64().unwrap();
                (key, (number("count"), row["sog_sum"].as_str().unwrap().to_owned(), number("sog_missing")))
            })
            .collect();
        assert_eq!(rows(&ran.stdout), wanted, "{name}: {}", ran.stderr);
        assert_eq!(
            summary["accepted"].as_u64().unwrap(),
            expected["events"].as_array().unwrap().len() as u64,
            "{name}"
        );
        assert_eq!(ran.status, 0, "{name}: {}", ran.stderr);
        assert_one_fate_each(&summary, name);
        assert_case(name, &ran.stderr, &summary);
    }
    assert!(tried >= 30, "only {tried} cases found");
}

/// What a case asks for besides its rows.
fn assert_case(name: &str, stderr: &str, summary: &Value) {
    let rejected = |kind: &str| count(summary, "rejected", kind);
    match name {
        // One of the six is of type 27, which is not counted unless `--types` says so.
        "d02" => {
            let ignored = ["no_position", "other_type"].map(|kind| count(summary, "ignored", kind));
            assert_eq!(ignored, [5, 1]);
        }
        "d08a" => assert_eq!(rejected("incomplete_message"), 1),
        "d08c" => assert_eq!(rejected("incomplete_message"), 1),
        "d08d" => assert_eq!(rejected("incomplete_message"), 1000),
        "d10b" => assert_eq!((rejected("malformed"), count(summary, "notes", "overlong")), (3, 1)),
        "d12" => assert_eq!(rejected("checksum_bad") + rejected("checksum_missing"), 5),
        "f03b_glued_plain" => assert_eq!(rejected("checksum_missing"), 1),
        "k08_poison" => assert_eq!(rejected("bad_record"), 1),
        "k08_redeliver" => assert_eq!(count(summary, "ignored", "duplicate_record"), 1),
        "s01c_garbage" => assert!(stderr.contains("behind its gzip data"), "{stderr}"),
        "t05" => assert_eq!(rejected("tag_checksum"), 2),
        "t06" => assert_eq!(rejected("no_event_time"), 1),
        _ => {}
    }
}

#[test]
fn a_far_future_stamp_makes_nothing_behind_it_late() {
    let Some(cases) = shared("cases") else { return };
    let path = cases.join("w02.nmea");
    let (_, summary) = run_with_summary(&["file", path.to_str().unwrap(), "--precision", "5", "--lateness", "120s"]);
    assert_eq!(summary["pairs"]["late"].as_u64(), Some(0));
    assert_eq!(summary["count"].as_u64(), Some(21));
}

#[test]
fn a_batch_delivered_again_in_the_same_run_counts_once() {
    let Some(cases) = shared("cases") else { return };
    let folder = tempfile::tempdir().unwrap();
    for copy in ["a.json", "b.json"] {
        std::fs::copy(cases.join("k08_redeliver.json"), folder.path().join(copy)).unwrap();
    }
    let ran = finish(ais_replay().arg("file").arg(folder.path()).args(["--precision", "5", "--format", "csv"]));
    let found: Vec<_> = rows(&ran.stdout).into_values().collect();
    assert_eq!(found, [(2, "11.0".to_owned(), 0)]);
}
