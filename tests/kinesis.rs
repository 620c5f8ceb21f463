//! A Kinesis stream, through the binary and over HTTP: each record once, whole windows, whatever the service does.

#![cfg(feature = "aws")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/aws.rs"]
mod aws;
#[path = "support/encode.rs"]
mod encode;
#[path = "support/kinesis.rs"]
mod kinesis;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::{Caller, Server, Sums, tenths};
use encode::{Position, position_report, sentences, tag_block};
use kinesis::{Place, Proxy, Put, Stream, Weather, seconds, shard_id};
use md5::Digest;
use serde_json::{Value, json};
use support::{Ran, rows};
use tempfile::TempDir;

const TABLE: &str = "ais_window_agg";
const TO: &str = "dynamodb:ais_window_agg";

/// Start of a window, three hours ago: the server keeps a record for a day.
fn start() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap().div_euclid(3600) * 3600 - 3 * 3600
}

fn rfc3339(seconds: i64) -> String {
    ais_replay::time::seconds_to_rfc3339(seconds)
}

/// A report of a ship at a second, as a sentence with a TAG block.
fn report(ship: u32, time: i64) -> String {
    let mixed = ship * 37 + (time % 1009) as u32;
    let position = Position {
        mmsi: 219_000_000 + ship,
        lon: encode::degrees(10.4) + (ship % 5) as i32 * 12_000,
        lat: encode::degrees(57.65),
        sog: if mixed.is_multiple_of(11) { 1023 } else { (mixed % 400) as u16 },
        second: (time % 60) as u8,
        ..Position::default()
    };
    let body = position_report(1, &position);
    let sentence = sentences("AI", "VDM", &body, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
    tag_block(&[("s", "r1"), ("c", &time.to_string())]) + &sentence
}

/// A report that arrives a second and a half after its time.
fn put(ship: u32, time: i64) -> Put {
    Put { key: key(ship), arrival_ms: time * 1000 + 1500, data: (report(ship, time) + "\n").into_bytes() }
}

fn key(ship: u32) -> u8 {
    (ship * 53 % 256) as u8
}

/// Reports of 24 ships, each every 20 seconds, over a stretch of minutes.
fn traffic(from: i64, minutes: i64) -> Vec<Put> {
    let span = from..from + minutes * 60;
    let at = |time: i64| {
        (0..24).filter(move |ship| (time + i64::from(*ship) * 7) % 20 == 0).map(move |ship| put(ship, time))
    };
    span.flat_map(at).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder and the binary.
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

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn run(&self, port: u16, arguments: &[&str]) -> Ran {
        support::finish(&mut assert_cmd::Command::from_std(self.caller.command(port, arguments)))
    }

    /// With the stream at one port and tables at another.
    fn run_with_table(&self, stream: u16, table: u16, arguments: &[&str]) -> Ran {
        support::finish(&mut self.command_with_table(stream, table, arguments))
    }

    fn command_with_table(&self, stream: u16, table: u16, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = self.caller.without_credentials();
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test").args(arguments);
        command.env("AWS_ENDPOINT_URL_KINESIS", format!("http://127.0.0.1:{stream}"));
        command.env("AWS_ENDPOINT_URL_DYNAMODB", format!("http://127.0.0.1:{table}"));
        assert_cmd::Command::from_std(command)
    }

    /// A run with its summary.
    fn summary(&self, port: u16, arguments: &[&str]) -> (Ran, Value) {
        let path = self.path("summary.json");
        let arguments = [arguments, &["--summary", text(&path)]].concat();
        let ran = self.run(port, &arguments);
        let summary = fs::read_to_string(&path).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default();
        (ran, summary)
    }

    /// What `file` gives on the same sentences.
    fn of_file(&self, records: &[Put], arguments: &[&str]) -> String {
        let all: Vec<u8> = records.iter().flat_map(|record| record.data.clone()).collect();
        let path = self.write("same.nmea", all);
        let ran = support::run(&[&["file", text(&path), "--format", "csv"], arguments].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout
    }
}

/// The flags of a range.
struct Range {
    since: String,
    until: String,
}

impl Range {
    fn new(since: i64, until: i64) -> Self {
        Self { since: rfc3339(since), until: rfc3339(until) }
    }

    fn flags(&self) -> [&str; 4] {
        ["--since", &self.since, "--until", &self.until]
    }

    fn read<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["kinesis", "ais", "--format", "csv"], &self.flags()[..], more].concat()
    }
}

/// Four shards; then the first is split and the last two are merged.
fn resharded(records: &[Put]) -> (Stream, Vec<Place>) {
    reshard(Stream::start("ais", 4), records)
}

fn reshard(stream: Stream, records: &[Put]) -> (Stream, Vec<Place>) {
    let third = records.len() / 3;
    let mut places = stream.put(&records[..third]);
    stream.split(0, 32);
    places.extend(stream.put(&records[third..2 * third]));
    stream.merge(2, 3);
    places.extend(stream.put(&records[2 * third..]));
    (stream, places)
}

#[test]
fn a_resharded_stream_gives_what_a_file_gives_whatever_the_speed_of_its_shards() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 12);
    let (stream, places) = resharded(&records);
    let used: BTreeSet<&str> = places.iter().map(|place| place.shard.as_str()).collect();
    assert_eq!(used.len(), 7, "records lie in every shard, the closed ones too: {used:?}");
    let range = Range::new(start, start + 9 * 60);
    let expected = scene.of_file(&records, &range.flags());
    let count = |csv: &str| rows(csv).values().map(|row| row.0).sum::<u64>();
    assert!(count(&expected) > 500);
    let slow = |shards: &[u32]| {
        shards.iter().map(|shard| (shard_id(*shard), Duration::from_millis(350))).collect::<BTreeMap<_, _>>()
    };
    let weathers = [
        Weather::default(),
        Weather { page: Some(37), list_page: Some(2), ..Weather::default() },
        Weather { page: Some(50), slow: slow(&[0, 5]), ..Weather::default() },
        Weather { page: Some(50), slow: slow(&[1, 4, 6]), hide_children: true, ..Weather::default() },
    ];
    for weather in weathers {
        let proxy = Proxy::start(&stream, weather.clone());
        let (ran, summary) = scene.summary(proxy.port(), &range.read(&[]));
        assert_eq!((ran.status, &ran.stdout), (0, &expected), "{weather:?}: {}", ran.stderr);
        assert_eq!(summary["inputs"].as_array().unwrap().len(), 7, "{weather:?}");
        assert!(summary["ignored"]["duplicate_record"].is_null(), "{weather:?}");
    }
    let unbounded = scene.run(stream.port(), &range.read(&["--lateness", "unbounded"]));
    assert_eq!((unbounded.status, &unbounded.stdout), (0, &expected), "{}", unbounded.stderr);
    let proxy = Proxy::start(&stream, Weather::default());
    let arn = stream.arn();
    let by_arn = [&["kinesis", &arn, "--format", "csv", "--read-share", "0.7"], &range.flags()[..]].concat();
    let ran = scene.run(proxy.port(), &by_arn);
    assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
    assert!(proxy.seen.faults_of("by ARN") > 7);
    let elsewhere = scene.run(proxy.port(), &[&by_arn[..], &["--region", "us-east-1"]].concat());
    assert!(elsewhere.status == 1 && elsewhere.stderr.contains("leave --region out"), "{}", elsewhere.stderr);
}

#[test]
fn faults_cost_no_record_and_count_none_twice() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 8);
    let (stream, _) = resharded(&records);
    let range = Range::new(start, start + 5 * 60);
    let expected = scene.of_file(&records, &range.flags());
    for seed in 0..3 {
        let weather = Weather {
            seed,
            page: Some(20),
            expired_every: Some(4),
            throttled: 15,
            failed: 10,
            lost: 10,
            cut: 10,
            empty_first: 2,
            ..Weather::default()
        };
        let proxy = Proxy::start(&stream, weather);
        let ran = scene.run(proxy.port(), &range.read(&[]));
        assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
        for kind in ["expired", "throttled", "failed", "lost", "cut"] {
            assert!(proxy.seen.faults_of(kind) > 0, "{kind} never happened");
        }
    }
}

/// Longer than a run keeps silent.
#[test]
fn a_stream_that_throttles_everything_is_told_once_while_the_run_waits() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 8);
    let (stream, _) = resharded(&records);
    let range = Range::new(start, start + 5 * 60);
    let expected = scene.of_file(&records, &range.flags());
    let proxy = Proxy::start(&stream, Weather { outage: Some(Duration::from_secs(15)), ..Weather::default() });
    let ran = scene.run(proxy.port(), &range.read(&[]));
    assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
    support::assert_waited(&ran, "Kinesis: throttled (ProvisionedThroughputExceededException)");
}

#[test]
fn a_registered_consumer_reads_the_same_in_one_subscription_after_the_other() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 8);
    // A subscription has time for a few events of twenty records at most, so none reaches the end of its shard. The server
    // calls every event the tip, hence all records lie in shards that are closed.
    let stream = Stream::with_subscriptions("ais", 2, 500, 20);
    stream.put(&records);
    stream.split(0, 64);
    stream.split(1, 192);
    let arn = stream.register("backfill");
    let range = Range::new(start, start + 5 * 60);
    let expected = scene.of_file(&records, &range.flags());
    for consumer in ["backfill", &arn] {
        let proxy = Proxy::start(&stream, Weather::default());
        let ran = scene.run(proxy.port(), &range.read(&["--consumer", consumer]));
        assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
        assert!(proxy.seen.faults_of("subscribed behind a record") > 4);
        assert_eq!(proxy.seen.calls_of("GetRecords"), 0);
    }
    let nobody = scene.run(stream.port(), &range.read(&["--consumer", "nobody"]));
    assert!(nobody.status == 1 && nobody.stderr.contains("no such consumer"), "{}", nobody.stderr);
}

#[test]
fn no_window_is_half_filled_at_either_end() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 9);
    let stream = Stream::start("ais", 2);
    stream.put(&records);
    // Neither end is the start of a window.
    let range = Range::new(start + 90, start + 330);
    let ran = scene.run(stream.port(), &range.read(&[]));
    let whole = Range::new(start + 120, start + 300);
    assert_eq!(ran.stdout, scene.of_file(&records, &whole.flags()), "{}", ran.stderr);
    let windows: BTreeSet<i64> = rows(&ran.stdout).keys().map(|(window, _)| *window).collect();
    assert_eq!(windows.into_iter().collect::<Vec<_>>(), [start + 120, start + 180, start + 240]);
}

#[test]
fn records_that_arrived_early_or_long_before_the_range_are_in_their_windows() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    // The station's clock is nine minutes fast, and a window of the range holds what arrived before it.
    let mut early = put(1, start + 30);
    early.arrival_ms = (start - 510) * 1000;
    // Eleven minutes is more than a clock may be fast.
    let mut wrong = put(2, start + 40);
    wrong.arrival_ms = (start - 590) * 1000;
    let mut long_ago = put(3, start + 50);
    long_ago.arrival_ms = (start - 601) * 1000;
    let mut records = vec![long_ago, wrong, early];
    records.extend(traffic(start + 60, 5));
    stream.put(&records);
    let range = Range::new(start, start + 60);
    let (ran, summary) = scene.summary(stream.port(), &range.read(&[]));
    assert_eq!(rows(&ran.stdout).values().map(|row| row.0).sum::<u64>(), 1, "{}", ran.stderr);
    assert_eq!(support::count(&summary, "rejected", "future"), 1, "{summary}");
}

#[test]
fn an_idle_shard_and_empty_pages_hold_nothing_back() {
    let (scene, start) = (Scene::new(), start());
    let mut records = traffic(start, 8);
    // Nothing goes to the last of the four.
    records.retain(|record| record.key < 192);
    let stream = Stream::start("ais", 4);
    stream.put(&records);
    let range = Range::new(start, start + 5 * 60);
    let expected = scene.of_file(&records, &range.flags());
    let weather =
        Weather { page: Some(60), empty_first: 6, never_at_tip: (0..4).map(shard_id).collect(), ..Weather::default() };
    let proxy = Proxy::start(&stream, weather);
    let ran = scene.run(proxy.port(), &range.read(&[]));
    assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
    assert!(ran.stderr.contains("shardId-000000000003: 25 pages in a row held no record"), "{}", ran.stderr);
    let reads = proxy.seen.reads.lock().unwrap();
    assert!(reads[&shard_id(3)] < 60, "{reads:?}");
}

#[test]
fn a_range_that_cannot_be_is_refused_and_one_that_is_cut_is_told() {
    let (scene, start) = (Scene::new(), start());
    let records = traffic(start, 8);
    let stream = Stream::start("ais", 2);
    stream.put(&records);
    let port = stream.port();
    let refused = |arguments: &[&str], status: i32, words: &[&str]| {
        let ran = scene.run(port, &[&["kinesis", "ais"], arguments].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (status, ""), "{}", ran.stderr);
        words.iter().for_each(|word| assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr));
    };
    refused(&[], 2, &["give --since"]);
    let ahead = rfc3339(start + 30 * 3600);
    refused(&["--since", &ahead], 2, &["--since", "lies ahead"]);
    refused(&["--since", "2h", "--until", &ahead], 2, &["--until", "lies ahead", "leave it out"]);
    refused(&["--since", &rfc3339(start), "--to", TO], 2, &["--until", "--run-id"]);
    refused(&["--since", "2h", "--until", &rfc3339(start + 7200), "--to", TO], 2, &["--since is an age", "--run-id"]);
    let missing = scene.run(port, &["kinesis", "nowhere", "--since", "2h"]);
    assert_eq!(missing.status, 1);
    assert!(
        missing.stderr.contains("kinesis:nowhere") && missing.stderr.contains("no such stream"),
        "{}",
        missing.stderr
    );
    // A stream that is older than what it keeps: the first windows could be half ones.
    let old = Weather { created: Some(start - 90 * 24 * 3600), ..Weather::default() };
    let proxy = Proxy::start(&stream, old);
    let range = Range::new(start - 40 * 3600, start + 300);
    let ran = scene.run(proxy.port(), &range.read(&[]));
    let whole = Range::new(start, start + 300);
    assert_eq!(ran.stdout, scene.of_file(&records, &whole.flags()), "{}", ran.stderr);
    assert!(ran.stderr.contains("kinesis:ais keeps a record for 24 h"), "{}", ran.stderr);
    let all_gone = scene.run(proxy.port(), &Range::new(start - 40 * 3600, start - 30 * 3600).read(&[]));
    assert!(all_gone.status == 1 && all_gone.stderr.contains("nothing is left"), "{}", all_gone.stderr);
    let unnamed = scene.run(proxy.port(), &range.read(&["--to", TO]));
    assert!(unnamed.status == 2 && unnamed.stderr.contains("--run-id"), "{}", unnamed.stderr);
    for (status, ends) in [("UPDATING", 0), ("CREATING", 1), ("DELETING", 1)] {
        let proxy = Proxy::start(&stream, Weather { status: Some(status), ..Weather::default() });
        let ran = scene.run(proxy.port(), &whole.read(&[]));
        assert_eq!(ran.status, ends, "{status}: {}", ran.stderr);
    }
    let denied = Weather { refused: Some(("GetRecords", "AccessDeniedException")), ..Weather::default() };
    let ran = scene.run(Proxy::start(&stream, denied).port(), &whole.read(&[]));
    assert!(ran.status == 1 && ran.stderr.contains("do not allow kinesis:GetRecords"), "{}", ran.stderr);
    let recent = scene.run(port, &["kinesis", "ais", "--since", &rfc3339(start), "--format", "csv"]);
    assert!(recent.status == 0 && recent.stderr.contains("may still be on their way"), "{}", recent.stderr);
}

#[test]
fn a_shard_that_came_up_too_late_for_emitted_windows_is_an_error_and_not_a_loss() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    stream.put(&traffic(start, 10));
    stream.split(0, 128);
    // Old reports in a shard that nobody knew of when the first windows were emitted.
    stream.put(&[put(3, start + 30), put(3, start + 31), put(3, start + 32)]);
    let range = Range::new(start, start + 540);
    let known = scene.run(stream.port(), &range.read(&[]));
    assert_eq!(known.status, 0, "{}", known.stderr);
    let proxy = Proxy::start(&stream, Weather { hide_children: true, page: Some(100), ..Weather::default() });
    let ran = scene.run(proxy.port(), &range.read(&["--to", &format!("csv:{}", text(&scene.path("rows.csv")))]));
    assert!(ran.status == 1 && ran.stderr.contains("resharded while it was read"), "{}", ran.stderr);
    assert!(!scene.path("rows.csv").exists());
}

// ---- what a record may hold ---------------------------------------------------------------------------------------------

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// An aggregate of the Kinesis Producer Library: its mark, a message of records (field 3, whose field 3 is the data), and
/// the digest of that message.
fn aggregate(records: &[Vec<u8>]) -> Vec<u8> {
    let length = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push((number % 0x80) as u8 | 0x80);
            number /= 0x80;
        }
        bytes.push(number as u8);
        bytes
    };
    let field = |data: &[u8]| [vec![3 << 3 | 2], length(data.len()), data.to_vec()].concat();
    let message: Vec<u8> = records.iter().flat_map(|data| field(&field(data))).collect();
    let digest = md5::Md5::digest(&message);
    [&[0xf3, 0x89, 0x9a, 0xc2][..], &message, digest.as_slice()].concat()
}

/// The same records as the event that a Lambda function gets.
fn event(stream: &Stream, records: &[(Put, Place)]) -> Value {
    use base64::Engine as _;
    let records: Vec<Value> = records
        .iter()
        .map(|(record, place)| {
            json!({
                "eventID": format!("{}:{}", place.shard, place.sequence),
                "eventSourceARN": stream.arn(),
                "kinesis": {
                    "sequenceNumber": place.sequence,
                    "partitionKey": "key",
                    "data": base64::engine::general_purpose::STANDARD.encode(&record.data),
                    "approximateArrivalTimestamp": seconds(record.arrival_ms),
                },
            })
        })
        .collect();
    json!({ "Records": records })
}

/// Records of every form: aggregates, several sentences, gzip, broken gzip, and what is no NMEA.
fn mixed_records(start: i64) -> Vec<Put> {
    let lines = |ships: std::ops::Range<u32>, time: i64| -> Vec<Vec<u8>> {
        ships.map(|ship| (report(ship, time) + "\r\n").into_bytes()).collect()
    };
    let mut records = Vec::new();
    for minute in 0..8 {
        let time = start + minute * 60;
        let forms = [
            aggregate(&lines(0..5, time + 5)),
            lines(5..8, time + 10).concat(),
            gzip(&lines(8..10, time + 15).concat()),
            aggregate(&[gzip(&lines(10..12, time + 20).concat()), b"no sentence".to_vec()]),
            b"{\"no\": \"NMEA\"}".to_vec(),
            gzip(b"cut off")[..12].to_vec(),
        ];
        for (place, data) in forms.into_iter().enumerate() {
            records.push(Put { key: (place * 40) as u8, arrival_ms: (time + 25) * 1000, data });
        }
    }
    records
}

#[test]
fn a_record_may_hold_anything_that_the_events_of_a_function_may() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 2);
    let records = mixed_records(start);
    let places = stream.put(&records);
    let range = Range::new(start, start + 300);
    let (ran, summary) = scene.summary(stream.port(), &range.read(&[]));
    let both: Vec<(Put, Place)> = records.into_iter().zip(places).collect();
    let path = scene.write("event.json", event(&stream, &both).to_string());
    let of_event = support::run(&[&["file", text(&path), "--format", "csv"], &range.flags()[..]].concat());
    assert_eq!((ran.status, &ran.stdout), (0, &of_event.stdout), "{}", ran.stderr);
    assert_eq!(rows(&ran.stdout).values().map(|row| row.0).sum::<u64>(), 5 * 12);
    assert!(support::count(&summary, "rejected", "bad_record") >= 5, "{summary}");
}

#[test]
fn event_time_may_be_arrival_alone() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    let records = traffic(start, 8);
    stream.put(&records);
    let range = Range::new(start, start + 300);
    let ran = scene.run(stream.port(), &range.read(&["--event-time", "arrival"]));
    // Each arrives a second and a half after its time.
    let shifted: u64 =
        records.iter().filter(|record| (start * 1000..(start + 300) * 1000).contains(&record.arrival_ms)).count()
            as u64;
    assert_eq!(rows(&ran.stdout).values().map(|row| row.0).sum::<u64>(), shifted, "{}", ran.stderr);
}

#[test]
fn late_reports_name_shard_and_sequence_number_and_are_reconciled() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 2);
    let mut records = traffic(start, 5);
    let straggler = put(3, start + 20);
    records.push(straggler.clone());
    records.extend(traffic(start + 300, 5));
    let places = stream.put(&records);
    let range = Range::new(start, start + 480);
    let late = scene.path("late.ndjson");
    let result = format!("csv:{}", text(&scene.path("rows.csv")));
    let ran = scene.run(stream.port(), &range.read(&["--late", text(&late), "--to", &result]));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let place = &places[records.iter().position(|record| record.data == straggler.data).unwrap()];
    let lines: Vec<Value> =
        fs::read_to_string(&late).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1]["source"]["sequence_number"], place.sequence.as_str());
    assert_eq!(lines[1]["source"]["shard"], format!("{}/{}", stream.arn(), place.shard));
    let reconciled = scene.run(stream.port(), &["reconcile", text(&late), "--into", &result]);
    assert_eq!(reconciled.status, 0, "{}", reconciled.stderr);
    let all = scene.of_file(&records, &range.flags());
    let sums = |csv: &str| rows(csv);
    assert_eq!(sums(&fs::read_to_string(scene.path("rows.csv")).unwrap()), sums(&all));
}

// ---- tables -------------------------------------------------------------------------------------------------------------

fn sums(csv: &str) -> Sums {
    rows(csv)
        .into_iter()
        .map(|((start, cell), (count, sum, missing))| ((cell, start), (count, tenths(&sum), missing)))
        .collect()
}

#[test]
fn a_range_goes_into_a_table_once() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 2);
    let records = traffic(start, 12);
    stream.put(&records);
    let table = Server::with_table(TABLE);
    let run = |arguments: &[&str]| scene.run_with_table(stream.port(), table.port(), arguments);
    let range = Range::new(start, start + 300);
    let truth = sums(&scene.of_file(&records, &range.flags()));
    for _ in 0..2 {
        let ran = run(&range.read(&["--to", TO]));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(table.sums(TABLE), truth);
    }
    // Who adds a range that overlaps counts twice what both hold.
    let overlapping = Range::new(start + 240, start + 480);
    let refused = run(&overlapping.read(&["--to", TO, "--write", "add"]));
    assert!(refused.status == 1 && refused.stderr.contains("overlaps"), "{}", refused.stderr);
    assert_eq!(table.sums(TABLE), truth);
    let beside = Range::new(start + 300, start + 480);
    assert_eq!(run(&beside.read(&["--to", TO, "--write", "add"])).status, 0);
    let both = Range::new(start, start + 480);
    assert_eq!(table.sums(TABLE), sums(&scene.of_file(&records, &both.flags())));
    // A range that ends with the run has a name, and goes on under it.
    for _ in 0..2 {
        let open = ["kinesis", "ais", "--since", &rfc3339(start + 480), "--to", TO, "--run-id", "tail"];
        let ran = run(&open);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
    let whole = Range::new(start, start + 720);
    assert_eq!(table.sums(TABLE), sums(&scene.of_file(&records, &whole.flags())));
    let listed = run(&["runs", "--in", TO]);
    assert!(listed.stdout.contains(&format!("kinesis:ais {} to {}", rfc3339(start), rfc3339(start + 300))));
    let agree = run(&[&["verify", "--all", "--in", TO, "--against", "kinesis:ais"], &range.flags()[..]].concat());
    assert_eq!(agree.status, 0, "{}", agree.stderr);
    let cell = truth.keys().next().unwrap();
    table.live_add(TABLE, &cell.0, cell.1, 1, 30);
    let differ = run(&[&["verify", "--all", "--in", TO, "--against", "kinesis:ais"], &range.flags()[..]].concat());
    assert!(differ.status == 3 && differ.stdout.contains(&cell.0), "{}{}", differ.stdout, differ.stderr);
}

// ---- failed batches -----------------------------------------------------------------------------------------------------

fn document(stream: &Stream, records: &[(Put, Place)]) -> Value {
    let (first, last) = (&records[0].1, &records[records.len() - 1].1);
    json!({
        "requestContext": { "requestId": "r", "functionArn": "f", "condition": "RetryAttemptsExhausted", "approximateInvokeCount": 3 },
        "responseContext": { "statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled" },
        "version": "1.0",
        "timestamp": "2026-05-01T06:10:00.000Z",
        "KinesisBatchInfo": {
            "shardId": first.shard,
            "startSequenceNumber": first.sequence,
            "endSequenceNumber": last.sequence,
            "approximateArrivalOfFirstRecord": "2026-05-01T06:00:00.000Z",
            "approximateArrivalOfLastRecord": "2026-05-01T06:00:09.000Z",
            "batchSize": records.len(),
            "streamArn": stream.arn(),
        },
    })
}

/// A stream of two shards, and what lies in the first of them.
fn with_batches(start: i64) -> (Stream, Vec<Put>, Vec<(Put, Place)>) {
    let stream = Stream::start("ais", 2);
    let records = traffic(start, 12);
    let places = stream.put(&records);
    let first = shard_id(0);
    let batch = records.iter().cloned().zip(places).filter(|(_, place)| place.shard == first).collect();
    (stream, records, batch)
}

#[test]
fn a_failed_batch_is_exactly_its_records_with_both_ends() {
    let (scene, start) = (Scene::new(), start());
    let (stream, _, first_shard) = with_batches(start);
    let batch = &first_shard[40..90];
    let puts = |records: &[(Put, Place)]| records.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>();
    let expected = scene.of_file(&puts(batch), &[]);
    let path = scene.write("one.json", document(&stream, batch).to_string());
    let by_name = ["kinesis", "--failed-batch", text(&path), "--format", "csv"];
    // Pages may begin and end anywhere.
    for page in [None, Some(7), Some(50)] {
        let proxy = Proxy::start(&stream, Weather { page, expired_every: Some(3), ..Weather::default() });
        let ran = scene.run(proxy.port(), &[&by_name[..], &["ais"]].concat());
        assert_eq!((ran.status, &ran.stdout), (0, &expected), "{page:?}: {}", ran.stderr);
    }
    // Several documents, some of them in a folder, overlapping each other: each record once.
    scene.write("letters/a.json", document(&stream, &first_shard[40..70]).to_string());
    scene.write(
        "letters/b.json",
        format!("{}\n{}", document(&stream, &first_shard[60..80]), document(&stream, &first_shard[80..90])),
    );
    let folder = scene.path("letters");
    let ran = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&folder), "--format", "csv"]);
    assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
    // The form of an S3 destination carries the records: no stream is asked.
    let mut enclosing = document(&stream, batch);
    enclosing["payload"] = json!(event(&stream, batch).to_string());
    let path = scene.write("enclosing.json", enclosing.to_string());
    let ran = scene.run(9, &["kinesis", "--failed-batch", text(&path), "--format", "csv"]);
    assert_eq!((ran.status, &ran.stdout), (0, &expected), "{}", ran.stderr);
}

#[test]
fn a_batch_that_the_stream_holds_no_more_is_told_and_the_others_are_read() {
    let (scene, start) = (Scene::new(), start());
    let (stream, _, first_shard) = with_batches(start);
    let old = stream.put(&[Put { key: 0, arrival_ms: (start - 48 * 3600) * 1000, data: b"old\n".to_vec() }]);
    let mut gone = document(&stream, &first_shard[..1]);
    gone["KinesisBatchInfo"]["startSequenceNumber"] = json!(old[0].sequence);
    gone["KinesisBatchInfo"]["endSequenceNumber"] = json!(old[0].sequence);
    let gone = scene.write("gone.json", gone.to_string());
    let there = scene.write("there.json", document(&stream, &first_shard[..30]).to_string());
    let ran = scene.run(
        stream.port(),
        &["kinesis", "ais", "--format", "csv", "--failed-batch", text(&gone), "--failed-batch", text(&there)],
    );
    let records: Vec<Put> = first_shard[..30].iter().map(|(record, _)| record.clone()).collect();
    assert_eq!((ran.status, ran.stdout), (1, scene.of_file(&records, &[])), "{}", ran.stderr);
    assert!(ran.stderr.contains("gone.json") && ran.stderr.contains("no longer holds"), "{}", ran.stderr);
    let alone = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&gone)]);
    assert_eq!((alone.status, alone.stdout.as_str()), (1, ""), "{}", alone.stderr);
    let no_document = scene.write("no.json", "{\"Records\":[]}");
    let ran = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&no_document)]);
    assert!(ran.status == 1 && ran.stderr.contains("no.json is no failure-destination document"), "{}", ran.stderr);
    for (flags, words) in [
        (&["--to", TO][..], "--repair"),
        (&["--repair"], "--to dynamodb:TABLE"),
        (&["--repair", "--to", TO, "--write", "add"], "leave --write out"),
        (&["--repair", "--to", TO, "--since", "2h"], "leave --since"),
    ] {
        let ran = scene.run(stream.port(), &[&["kinesis", "ais", "--failed-batch", text(&there)], flags].concat());
        assert!(ran.status == 2 && ran.stderr.contains(words), "{flags:?}: {}", ran.stderr);
    }
    let mut other = document(&stream, &first_shard[..1]);
    other["KinesisBatchInfo"]["streamArn"] = json!("arn:aws:kinesis:eu-north-1:000000000000:stream/other");
    let other = scene.write("other.json", other.to_string());
    let ran = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&other)]);
    assert!(ran.status == 2 && ran.stderr.contains("stream/other"), "{}", ran.stderr);
}

/// What the live handler does with a batch: it adds every report to its window, by itself.
fn live_handler(table: &Server, records: &[(Put, Place)]) {
    for (record, _) in records {
        let scene = Scene::new();
        let row = sums(&scene.of_file(std::slice::from_ref(record), &[])).into_iter().next();
        let Some(((cell, window), (count, tenths, missing))) = row else { continue };
        // It adds 102.3 kn for a missing speed.
        table.live_add(TABLE, &cell, window, count, tenths + missing * 1023);
    }
}

#[test]
fn a_repair_sets_exactly_the_windows_that_failed_batches_left_wrong() {
    let (scene, start) = (Scene::new(), start());
    let (stream, records, first_shard) = with_batches(start);
    let table = Server::with_table(TABLE);
    let batch = &first_shard[40..75];
    // Part of the batch was added, then the function failed; the retry added more of it and failed again.
    live_handler(&table, &batch[..20]);
    live_handler(&table, &batch[..30]);
    // A window that no batch touches is wrong too, and none of the repair's business.
    let other = table_key(&scene, &first_shard[200]);
    table.live_add(TABLE, &other.0, other.1, 7, 70);
    let path = scene.write("letter.json", document(&stream, batch).to_string());
    let repair = ["kinesis", "--failed-batch", text(&path), "--repair", "--to", TO, "ais"];
    let dry = scene.run_with_table(stream.port(), table.port(), &[&repair[..], &["--dry-run"]].concat());
    assert_eq!(dry.status, 0, "{}", dry.stderr);
    let ran = scene.run_with_table(stream.port(), table.port(), &repair);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let touched: Sums = sums(&scene.of_file(&batch.iter().map(|(record, _)| record.clone()).collect::<Vec<_>>(), &[]));
    let truth = sums(&scene.of_file(&records, &[]));
    let mut expected: Sums = touched.keys().map(|key| (key.clone(), truth[key])).collect();
    expected.insert(other, (7, 70, 0));
    assert_eq!(table.sums(TABLE), expected, "{}", ran.stderr);
    // Once more changes nothing.
    let again = scene.run_with_table(stream.port(), table.port(), &repair);
    assert_eq!((again.status, table.sums(TABLE)), (0, expected), "{}", again.stderr);
}

/// The window of a report.
fn table_key(scene: &Scene, record: &(Put, Place)) -> (String, i64) {
    sums(&scene.of_file(std::slice::from_ref(&record.0), &[])).into_keys().next().unwrap()
}

#[test]
fn a_batch_that_begins_with_what_cannot_be_unpacked_is_still_read() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    let poison = Put { key: 0, arrival_ms: (start + 5) * 1000, data: gzip(b"cut off")[..12].to_vec() };
    let records = [vec![poison], traffic(start, 1)].concat();
    let places = stream.put(&records);
    let batch: Vec<(Put, Place)> = records.iter().cloned().zip(places).collect();
    let path = scene.write("poison.json", document(&stream, &batch).to_string());
    let ran = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&path), "--format", "csv"]);
    assert_eq!((ran.status, ran.stdout), (0, scene.of_file(&records[1..], &[])), "{}", ran.stderr);
    let alone = scene.write("alone.json", document(&stream, &batch[..1]).to_string());
    let ran = scene.run(stream.port(), &["kinesis", "ais", "--failed-batch", text(&alone)]);
    assert!(ran.status == 1 && !ran.stderr.contains("no longer holds"), "{}", ran.stderr);
}

#[test]
fn what_came_late_is_in_a_repair_and_is_not_reconciled_on_top() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    let straggler = put(3, start + 20);
    let records = [traffic(start, 5), vec![straggler.clone()], traffic(start + 300, 5)].concat();
    let places = stream.put(&records);
    let table = Server::with_table(TABLE);
    let run = |arguments: &[&str]| scene.run_with_table(stream.port(), table.port(), arguments);
    let late = scene.path("late.ndjson");
    let range = Range::new(start, start + 480);
    assert_eq!(run(&range.read(&["--to", TO, "--late", text(&late)])).status, 0);
    // Half windows must not replace whole ones, whatever the range says.
    let half = run(&range.read(&["--to", TO, "--write", "replace"]));
    assert!(half.status == 2 && half.stderr.contains("--lateness unbounded"), "{}", half.stderr);
    let both: Vec<(Put, Place)> = records.iter().cloned().zip(places).collect();
    let path = scene.write("letter.json", document(&stream, &both[..30]).to_string());
    let repair = ["kinesis", "ais", "--failed-batch", text(&path), "--repair", "--to", TO];
    let mut command = scene.command_with_table(stream.port(), table.port(), &repair);
    // The live pipeline's variable is about the live pipeline.
    command.env("ALLOWED_LATENESS_SECONDS", "120");
    let repaired = support::finish(&mut command);
    assert_eq!(repaired.status, 0, "{}", repaired.stderr);
    let truth = sums(&scene.of_file(&records, &range.flags()));
    let key = table_key(&scene, &(straggler, both[0].1.clone()));
    assert_eq!(table.sums(TABLE)[&key], truth[&key]);
    let on_top = run(&["reconcile", text(&late), "--to", TO]);
    assert!(on_top.status == 1 && on_top.stderr.contains("set its windows anew"), "{}", on_top.stderr);
    assert_eq!(table.sums(TABLE)[&key], truth[&key]);
    // The handler goes on with the other half of the batch, and then that one fails for good too.
    live_handler(&table, &both[..10]);
    let other = scene.write("other.json", document(&stream, &both[10..30]).to_string());
    let again = run(&["kinesis", "ais", "--failed-batch", text(&other), "--repair", "--to", TO]);
    assert_eq!((again.status, table.sums(TABLE)[&key]), (0, truth[&key]), "{}", again.stderr);
}

#[test]
fn undo_of_one_range_of_a_named_run_leaves_the_others_in_the_table_and_in_its_record() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    let records = traffic(start, 12);
    stream.put(&records);
    let table = Server::with_table(TABLE);
    let run = |arguments: &[&str]| scene.run_with_table(stream.port(), table.port(), arguments);
    let ranges = [0, 2].map(|minute| Range::new(start + minute * 60, start + (minute + 2) * 60));
    let of = |range: &Range| sums(&scene.of_file(&records, &range.flags()));
    let runs = || -> Value {
        let ran = run(&["runs", "--in", TO, "--json"]);
        serde_json::from_str(&ran.stdout).expect("one record")
    };
    for order in [[0, 1], [1, 0]] {
        for range in &ranges {
            let ran = run(&range.read(&["--to", TO, "--write", "add", "--run-id", "tail"]));
            assert_eq!(ran.status, 0, "{}", ran.stderr);
        }
        let [first, last] = order.map(|place| &ranges[place]);
        let undo = |range: &Range| run(&range.read(&["--to", TO, "--write", "undo", "--run-id", "tail"]));
        // A part of a range is none that was added.
        let part = undo(&Range::new(start + 60, start + 180));
        assert!(part.status == 1 && part.stderr.contains("is of other ranges (kinesis:ais "), "{}", part.stderr);
        let undone = undo(first);
        assert_eq!(undone.status, 0, "{}", undone.stderr);
        assert_eq!(table.sums(TABLE), of(last));
        let record = runs();
        assert_eq!((&record["state"], record["inputs"].as_array().unwrap().len()), (&"complete".into(), 1));
        let refused = run(&last.read(&["--to", TO, "--write", "add"]));
        assert!(refused.status == 1 && refused.stderr.contains("run tail of"), "{}", refused.stderr);
        // Twice is once, and what is left can be taken back as well.
        for range in [first, last, last] {
            let undone = undo(range);
            assert_eq!(undone.status, 0, "{}", undone.stderr);
        }
        assert!(table.sums(TABLE).is_empty());
        assert_eq!(runs()["state"], "undone");
    }
}

#[test]
fn a_named_run_keeps_all_the_ranges_that_it_has_added() {
    let (scene, start) = (Scene::new(), start());
    let stream = Stream::start("ais", 1);
    let records = traffic(start, 12);
    stream.put(&records);
    let table = Server::with_table(TABLE);
    let run = |arguments: &[&str]| scene.run_with_table(stream.port(), table.port(), arguments);
    for minute in [0, 2] {
        let range = Range::new(start + minute * 60, start + (minute + 2) * 60);
        let ran = run(&range.read(&["--to", TO, "--write", "add", "--run-id", "tail"]));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
    }
    for minute in [0, 3] {
        let range = Range::new(start + minute * 60, start + (minute + 1) * 60);
        let refused = run(&range.read(&["--to", TO, "--write", "add"]));
        assert!(refused.status == 1 && refused.stderr.contains("overlaps"), "{}", refused.stderr);
    }
    assert_eq!(table.sums(TABLE), sums(&scene.of_file(&records, &Range::new(start, start + 240).flags())));
    // The live pipeline's current window is no difference: the stream cannot give it whole.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    table.live_add(TABLE, "u4prvn", now.div_euclid(60) * 60, 1, 30);
    let agree = run(&["verify", "u4pr*", "--in", TO, "--against", "kinesis:ais", "--since", &rfc3339(now - 60)]);
    assert!(agree.stdout.is_empty(), "{}{}", agree.stdout, agree.stderr);
}
