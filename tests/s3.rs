//! Objects in S3, through the binary and over HTTP: what comes out is what `file` makes of the same bytes, whatever happens on
//! the way.

#![cfg(feature = "aws")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/aws.rs"]
mod aws;
#[path = "support/encode.rs"]
mod encode;
#[path = "support/s3.rs"]
mod s3;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use encode::{Position, position_report, sentences, tag_block};
use s3::{Call, Fate, S3, Setup};
use support::{Ran, rows};

/// 2026-05-01T06:00:00Z, the start of a window.
const START: i64 = 1_777_615_200;

/// Size up to which an object is read in one piece.
const FIRST_PART_BYTES: u64 = 512 << 10;

/// A report of a ship that goes east, about 160 bytes with its TAG block.
fn report(ship: u32, time: i64) -> String {
    let position = Position {
        mmsi: 219_000_000 + ship,
        lon: encode::degrees(10.4) + (time - START) as i32 * 60 + ship as i32 * 9_000,
        lat: encode::degrees(57.65),
        sog: ((time + i64::from(ship) * 37) % 400) as u16,
        second: (time % 60) as u8,
        ..Position::default()
    };
    let body = position_report(1, &position);
    let sentence = sentences("AI", "VDM", &body, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
    tag_block(&[("s", "a-station-with-a-rather-long-name-so-that-lines-are-long"), ("c", &time.to_string())])
        + &sentence
}

/// A log of so many lines, a second apart.
fn log(ship: u32, from: i64, lines: i64) -> Vec<u8> {
    (from..from + lines).map(|time| report(ship, time) + "\n").collect::<String>().into_bytes()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(text: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn xz(text: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn run(s3: &S3, arguments: &[&str]) -> Ran {
    support::finish(&mut assert_cmd::Command::from_std(s3.command(arguments)))
}

/// What `file` makes of the same bytes.
fn from_files(path: &Path, flags: &[&str]) -> String {
    let ran = support::run(&[&["file", path.to_str().unwrap(), "--format", "csv"], flags].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.stdout
}

#[track_caller]
fn assert_gives(ran: &Ran, rows: &str) {
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(rows.lines().count() > 1, "there is something to compare");
    assert!(ran.stdout == rows, "{} bytes of rows, not the {} of files", ran.stdout.len(), rows.len());
}

/// One sentence on standard error, with these words in it, and no row.
#[track_caller]
fn assert_says(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "no '{word}' in: {}", ran.stderr);
    }
    assert!(ran.stderr.lines().count() == 1 && ran.stderr.len() < 400, "{}", ran.stderr);
}

/// The ranges that were asked for, in their order in the object.
fn ranges(calls: &[Call]) -> BTreeSet<(u64, u64)> {
    calls.iter().filter(|call| call.is_read()).map(|call| call.range().unwrap()).collect()
}

/// Follows `fates`, one read after the other, and answers the rest.
fn in_turn(fates: Vec<Fate>) -> impl Fn(&Call) -> Fate + Send + Sync {
    let next = AtomicUsize::new(0);
    move |call| {
        if !call.is_read() {
            return Fate::Answered;
        }
        fates.get(next.fetch_add(1, Ordering::SeqCst)).cloned().unwrap_or(Fate::Answered)
    }
}

// ---- what is found ------------------------------------------------------------------------------------------------------

#[test]
fn a_prefix_of_2500_keys_is_what_the_same_files_are() {
    let s3 = S3::start();
    for number in 0..2_500_u32 {
        let text = log(number % 7, START + i64::from(number) * 5, 5);
        let bytes = match number % 10 {
            0..6 => text,
            6 => gzip(&text),
            7 => zstd::encode_all(&text[..], 1).unwrap(),
            8 => bzip2(&text),
            _ => xz(&text),
        };
        s3.put(&format!("ais/{:02}/{number:04}", number / 250), &bytes);
    }
    s3.put("ais/empty.nmea", b"");
    s3.put("aisle/other.nmea", &log(99, START, 5));
    let ran = run(&s3, &["s3", "s3://ais/ais/", "--format", "csv"]);
    assert_gives(&ran, &from_files(&s3.path("ais"), &[]));
    assert!(ran.stderr.contains("2,501 inputs") || ran.stderr.contains("12,500"), "{}", ran.stderr);
    let calls = s3.calls();
    assert_eq!(calls.iter().filter(|call| call.is_list()).count(), 3);
    // Each object once, and the empty one not at all.
    assert_eq!(calls.len(), 2_503);
    let reads: BTreeSet<&str> = calls.iter().filter(|call| call.is_read()).map(Call::target).collect();
    assert_eq!(reads.len(), 2_500);
}

#[test]
fn windows_that_close_on_the_way_are_what_they_are_from_files() {
    let s3 = S3::start();
    for number in 0..40_i64 {
        // Not in the order of their names.
        s3.put(&format!("{number:02}"), &gzip(&log(1, START + (number * 17 % 40) * 20, 60)));
    }
    let flags = ["--lateness", "30s"];
    let ran = run(&s3, &[&["s3", "s3://ais", "--format", "csv"], &flags[..]].concat());
    assert_gives(&ran, &from_files(&s3.path(""), &flags));
    for threads in ["1", "2"] {
        let again = run(&s3, &[&["s3", "s3://ais/", "--threads", threads, "--format", "csv"], &flags[..]].concat());
        assert_gives(&again, &ran.stdout);
    }
}

#[test]
fn keys_are_taken_as_they_are() {
    let keys = ["a b.nmea", "a+b.nmea", "a%20b.nmea", "å/Ωmega 船.nmea", "q?x=1&y#z.nmea", "it's (1)!~*.nmea"];
    for setup in [Setup::default(), Setup { lists_without_etags: true, ..Setup::default() }] {
        let s3 = S3::with(setup);
        for (number, key) in (0..).zip(keys) {
            s3.put(&format!("logs/{key}"), &log(number, START, 60));
        }
        let all = from_files(&s3.path("logs"), &[]);
        assert_gives(&run(&s3, &["s3", "s3://ais/logs/", "--format", "csv"]), &all);
        let urls: Vec<String> = keys.iter().rev().map(|key| format!("s3://ais/logs/{key}")).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        assert_gives(&run(&s3, &[&["s3"], &urls[..], &["--format", "csv"]].concat()), &all);
    }
}

#[test]
fn an_object_that_two_urls_lead_to_is_read_once() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 60));
    s3.put("logs/b", &log(2, START, 60));
    let ran = run(&s3, &["s3", "s3://ais/logs/b", "s3://ais/logs/", "s3://ais/logs/b", "--format", "csv"]);
    assert_gives(&ran, &from_files(&s3.path("logs"), &[]));
    assert_eq!(ran.stderr.matches("s3://ais/logs/b is given more than once: it is read once").count(), 2);
}

#[test]
fn an_object_that_holds_no_log_is_an_error_where_it_is_named() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 60));
    s3.put("logs/readme", b"nothing of this is a log\n");
    let all = run(&s3, &["s3", "s3://ais/logs/", "--format", "csv"]);
    assert_gives(&all, &from_files(&s3.path("logs/a"), &[]));
    assert!(all.stderr.contains("s3://ais/logs/readme holds no AIS sentence"), "{}", all.stderr);
    let named = run(&s3, &["s3", "s3://ais/logs/readme", "s3://ais/logs/a"]);
    assert_eq!(named.status, 1);
    assert!(named.stderr.contains("s3://ais/logs/readme: no AIS sentence"), "{}", named.stderr);
}

#[test]
fn nothing_but_empty_objects_is_complete() {
    let s3 = S3::start();
    s3.put("logs/empty", b"");
    for url in ["s3://ais/logs/", "s3://ais/logs/empty"] {
        let ran = run(&s3, &["s3", url, "--format", "csv"]);
        assert_eq!((ran.status, ran.stdout.lines().count()), (0, 1), "{}", ran.stderr);
    }
}

#[test]
fn an_event_of_a_lambda_is_found_by_content() {
    let s3 = S3::start();
    let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, log(1, START, 30));
    let record =
        format!(r#"{{"kinesis":{{"sequenceNumber":"1","data":"{data}","approximateArrivalTimestamp":{START}.5}}}}"#);
    s3.put("event", format!(r#"{{"Records":[{record},{record}]}}"#).as_bytes());
    let ran = run(&s3, &["s3", "s3://ais/event", "--format", "csv"]);
    assert_gives(&ran, &from_files(&s3.path("event"), &[]));
}

// ---- ranges -------------------------------------------------------------------------------------------------------------

#[test]
fn a_large_object_comes_in_ranges_that_meet_and_name_its_etag() {
    let s3 = S3::start();
    let text = log(1, START, 60_000);
    s3.put("large", &text);
    let ran = run(&s3, &["s3", "s3://ais/large", "--format", "csv"]);
    assert_gives(&ran, &from_files(&s3.path("large"), &[]));
    let calls: Vec<Call> = s3.calls().into_iter().filter(Call::is_read).collect();
    let ranges = ranges(&calls);
    assert!(ranges.len() == calls.len() && ranges.len() > 4, "{ranges:?}");
    let mut next = 0;
    for (first, last) in ranges {
        assert_eq!(first, next);
        next = last + 1;
    }
    assert_eq!(next, text.len() as u64);
    let etags: BTreeSet<Option<&str>> = calls.iter().map(|call| call.header("if-match")).collect();
    assert!(etags.len() == 1 && etags.first().unwrap().is_some_and(|etag| etag.len() == 34), "{etags:?}");
}

#[test]
fn a_body_that_is_cut_anywhere_goes_on_where_it_broke() {
    let s3 = S3::start();
    let text = log(1, START, 20_000);
    let packed = gzip(&text);
    s3.put("text", &text);
    s3.put("gzip", &packed);
    let expected = from_files(&s3.path("text"), &[]);
    for (key, bytes) in [("text", text.len()), ("gzip", packed.len())] {
        let part = bytes.min(FIRST_PART_BYTES as usize);
        let places = (0..10).map(|tenth| part * tenth / 10 + tenth % 3);
        for ends in [Fate::Cut, Fate::Short, Fate::ShortLength] {
            // Each answer is cut, the first ten of them at ten places.
            s3.script(in_turn(places.clone().map(ends).collect()));
            let ran = run(&s3, &["s3", &format!("s3://ais/{key}"), "--format", "csv"]);
            assert_gives(&ran, &expected);
        }
        for place in places.skip(1) {
            // And one answer alone, at one of them.
            s3.script(in_turn(vec![Fate::Cut(place)]));
            let ran = run(&s3, &["s3", &format!("s3://ais/{key}"), "--format", "csv"]);
            assert_gives(&ran, &expected);
            let calls = s3.calls();
            let resumed = calls.iter().filter(|call| call.is_read()).filter_map(Call::range);
            assert_eq!(resumed.filter(|(first, _)| *first == place as u64).count(), 1, "from byte {place}");
        }
    }
}

/// Case s06: a whole answer that is reset, then a range that ends cleanly and too early.
#[test]
fn answers_of_every_kind_of_shortness_add_up_to_the_object() {
    // Without signatures, since these would hold for the range as well.
    let s3 = S3::with(Setup { is_public: true, ..Setup::default() });
    let flags = ["--no-sign-request", "--format", "csv"];
    let text = log(1, START, 9_000);
    s3.put("a", &text[..1 << 20]);
    let expected = from_files(&s3.path("a"), &[]);
    for fates in [
        vec![Fate::WithoutRange, Fate::Short(400_000)],
        vec![Fate::Cut(300_000), Fate::Short(100_000), Fate::ShortLength(0), Fate::Cut(0), Fate::WithoutRange],
        vec![
            Fate::Refused(503, "", "SlowDown", ""),
            Fate::Refused(500, "", "InternalError", ""),
            Fate::Refused(503, "retry-after: 1", "ServiceUnavailable", ""),
            Fate::Cut(1),
            Fate::Refused(400, "", "RequestTimeout", ""),
        ],
    ] {
        s3.script(in_turn(fates.clone()));
        assert_gives(&run(&s3, &[&["s3", "s3://ais/a"], &flags[..]].concat()), &expected);
    }
    // No range at all is understood, ever.
    s3.script(|_| Fate::WithoutRange);
    assert_gives(&run(&s3, &[&["s3", "s3://ais/"], &flags[..]].concat()), &expected);
}

#[test]
fn a_body_that_stalls_is_asked_for_anew() {
    let s3 = S3::start();
    s3.put("a", &log(1, START, 2_000));
    s3.put("b", &gzip(&log(2, START, 20_000)));
    s3.script(in_turn(vec![Fate::Stalled(100_000), Fate::Stalled(1)]));
    let ran = run(&s3, &["s3", "s3://ais/", "--format", "csv"]);
    assert_gives(&ran, &from_files(&s3.path(""), &[]));
    assert!(s3.calls().iter().any(|call| call.range().is_some_and(|(first, _)| first == 100_000)));
}

/// Longer than a run keeps silent.
#[test]
fn a_service_that_refuses_everything_for_a_while_is_told_once_unless_errors_alone_are_wanted() {
    let s3 = S3::start();
    s3.put("a", &log(1, START, 20_000));
    let expected = from_files(&s3.path("a"), &[]);
    let began = Instant::now();
    s3.script(move |call| match call.is_read() && began.elapsed() < Duration::from_secs(16) {
        true => Fate::Refused(503, "", "SlowDown", ""),
        false => Fate::Answered,
    });
    let arguments = ["s3", "s3://ais/a", "--format", "csv"];
    let mut quiet = s3.command(&[&arguments[..], &["-q"]].concat());
    let quiet = quiet.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ran = run(&s3, &arguments);
    assert_gives(&ran, &expected);
    support::assert_waited(&ran, "S3: s3://ais/a: s3:GetObject failed: SlowDown");
    let quiet = quiet.wait_with_output().unwrap();
    assert!(quiet.status.success() && quiet.stdout == expected.as_bytes());
    assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
}

/// Longer than the SDK would let a body rest.
#[test]
fn a_reader_that_pauses_loses_nothing() {
    let s3 = S3::start();
    s3.put("a", &log(1, START, 60_000));
    let flags = ["--window", "1s", "--lateness", "5s"];
    let expected = from_files(&s3.path("a"), &flags);
    let mut command = s3.command(&[&["s3", "s3://ais/a", "--format", "csv"], &flags[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut found = vec![0; 10];
    out.read_exact(&mut found).unwrap();
    std::thread::sleep(Duration::from_secs(25));
    let calls = s3.calls().len();
    out.read_to_end(&mut found).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(String::from_utf8(found).unwrap() == expected);
    assert!(s3.calls().len() >= calls);
}

#[test]
fn a_checksum_of_the_whole_is_checked_and_one_beside_a_range_is_not() {
    let s3 = S3::start();
    s3.put("small", &log(1, START, 60));
    s3.put("large", &log(1, START, 20_000));
    // The CRC-32 of other bytes.
    let wrong = || Fate::With("x-amz-checksum-crc32", "AAAAAA==".to_owned());
    s3.script(move |call| if call.is_read() { wrong() } else { Fate::Answered });
    assert_gives(&run(&s3, &["s3", "s3://ais/large", "--format", "csv"]), &from_files(&s3.path("large"), &[]));
    assert_says(&run(&s3, &["s3", "s3://ais/small"]), &["s3://ais/small", "checksum"]);
    // Once may be an accident.
    s3.script(in_turn(vec![wrong()]));
    assert_gives(&run(&s3, &["s3", "s3://ais/small", "--format", "csv"]), &from_files(&s3.path("small"), &[]));
    assert!(s3.calls().iter().filter(|call| call.is_read()).all(|call| call.header("x-amz-checksum-mode").is_some()));
}

// ---- what changes -------------------------------------------------------------------------------------------------------

#[test]
fn an_object_that_changes_on_the_way_is_an_error_and_leaves_no_row() {
    let s3 = S3::start();
    s3.put("text", &log(1, START, 20_000));
    s3.put("gzip", &gzip(&log(1, START, 60_000)));
    let csv = s3.path("../rows.csv");
    for key in ["text", "gzip"] {
        let size = fs::metadata(s3.path(key)).unwrap().len();
        assert!(size > FIRST_PART_BYTES, "{size}");
        for changed in [
            Fate::Refused(412, "", "PreconditionFailed", "<Condition>If-Match</Condition>"),
            Fate::With("etag", "\"0123456789abcdef0123456789abcdef\"".to_owned()),
            Fate::With("content-range", format!("bytes {FIRST_PART_BYTES}-{}/{}", FIRST_PART_BYTES + 9, size + 1)),
            Fate::Refused(416, "", "InvalidRange", ""),
        ] {
            for from in [0, 1] {
                let changed = changed.clone();
                s3.script(
                    move |call| {
                        if call.is_read() && call.number >= from { changed.clone() } else { Fate::Answered }
                    },
                );
                let ran = run(&s3, &["s3", &format!("s3://ais/{key}"), "--to", "csv:rows.csv", "--to", "stdout"]);
                assert_says(&ran, &["nothing was written", &format!("s3://ais/{key}"), "changed", "run again"]);
                assert!(!csv.exists());
            }
        }
        // Gone altogether.
        s3.script(|call| match call.is_read() && call.number > 0 {
            true => Fate::Refused(404, "", "NoSuchKey", ""),
            false => Fate::Answered,
        });
        let ran = run(&s3, &["s3", &format!("s3://ais/{key}")]);
        assert_says(&ran, &["nothing was written", key, "there is no such object"]);
    }
}

// ---- mistakes -----------------------------------------------------------------------------------------------------------

#[test]
fn what_is_not_there_is_told() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 60));
    s3.script(|call| match call.target().split('?').next().unwrap() {
        // A key that is a folder of the service's own.
        "/ais/logs" if !call.is_list() => Fate::Refused(404, "", "NoSuchKey", ""),
        "/none/key" => Fate::Refused(404, "", "NoSuchBucket", ""),
        _ => Fate::Answered,
    });
    assert_says(&run(&s3, &["s3", "s3://ais/none"]), &["s3://ais/none", "there is no such object"]);
    assert_says(&run(&s3, &["s3", "s3://ais/logs"]), &["s3://ais/logs", "some below it", "give s3://ais/logs/"]);
    assert_says(&run(&s3, &["s3", "s3://ais/none/"]), &["s3://ais/none/", "no object whose key begins so"]);
    for url in ["s3://none/", "s3://none/key"] {
        assert_says(&run(&s3, &["s3", url]), &[url, "there is no bucket none at http://127.0.0.1:", "--endpoint-url"]);
    }
    // One of several is as bad.
    assert_says(&run(&s3, &["s3", "s3://ais/logs/", "s3://ais/none"]), &["s3://ais/none"]);
    for url in ["logs/a", "s3:ais", "s3://", "https://ais/logs"] {
        let ran = run(&s3, &["s3", url]);
        assert!(ran.status == 2 && ran.stderr.contains("s3://BUCKET/KEY"), "{}", ran.stderr);
    }
}

#[test]
fn refusals_are_told_with_what_helps() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 60));
    let refused = |status, header, code, detail, words: &[&str]| {
        s3.script(move |_| Fate::Refused(status, header, code, detail));
        for (url, action) in [("s3://ais/logs/a", "s3:GetObject"), ("s3://ais/logs/", "s3:ListBucket")] {
            let words: Vec<&str> = words.iter().map(|word| if *word == "s3:" { action } else { word }).collect();
            assert_says(&run(&s3, &["s3", url]), &[&[url], &words[..]].concat());
        }
    };
    refused(403, "", "AccessDenied", "", &["do not allow", "s3:", "README", "--request-payer"]);
    refused(403, "", "InvalidAccessKeyId", "", &["does not accept the credentials", "--profile"]);
    refused(400, "", "ExpiredToken", "", &["does not accept the credentials", "log in anew"]);
    let region = [
        "bucket ais is in region us-west-2, not in eu-north-1",
        "give --region us-west-2",
        "--bucket-region us-west-2",
    ];
    refused(301, "x-amz-bucket-region: us-west-2", "PermanentRedirect", "<Bucket>ais</Bucket>", &region);
    refused(400, "", "AuthorizationHeaderMalformed", "<Region>us-west-2</Region>", &region);
    refused(301, "", "PermanentRedirect", "", &["not in region eu-north-1", "--region"]);
    // Told while it is read, where the list knew nothing of it.
    s3.script(|call| match call.is_list() {
        true => Fate::Answered,
        false => Fate::Refused(403, "", "InvalidObjectState", "<StorageClass>GLACIER</StorageClass>"),
    });
    for url in ["s3://ais/logs/", "s3://ais/logs/a"] {
        assert_says(&run(&s3, &["s3", url]), &["s3://ais/logs/a", "archived", "restore"]);
    }
}

#[test]
fn an_endpoint_that_nobody_serves_is_told() {
    let s3 = S3::start();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let ran = run(&s3, &["s3", "s3://ais/a", "--endpoint-url", &endpoint]);
    assert_says(&ran, &["s3://ais/a", &endpoint, "cannot be reached", "--endpoint-url"]);
}

#[test]
fn missing_credentials_and_regions_are_told() {
    let s3 = S3::start();
    let without = |variable: &str| {
        let mut command = s3.command(&["s3", "s3://ais/logs/"]);
        command.env_remove(variable);
        support::finish(&mut assert_cmd::Command::from_std(command))
    };
    assert_says(&without("AWS_ACCESS_KEY_ID"), &["s3://ais/logs/", "no AWS credentials", "--profile"]);
    assert_says(&without("AWS_REGION"), &["s3://ais/logs/", "no AWS region", "--region"]);
}

// ---- how it is asked ----------------------------------------------------------------------------------------------------

#[test]
fn a_public_bucket_needs_no_credentials() {
    let s3 = S3::with(Setup { is_public: true, ..Setup::default() });
    s3.put("logs/a", &log(1, START, 60));
    for url in ["s3://ais/logs/", "s3://ais/logs/a"] {
        let mut command = s3.command(&["s3", url, "--no-sign-request", "--format", "csv"]);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        let ran = support::finish(&mut assert_cmd::Command::from_std(command));
        assert_gives(&ran, &from_files(&s3.path("logs"), &[]));
    }
    assert!(s3.calls().iter().all(|call| call.header("authorization").is_none()));
    // One that is none.
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 60));
    for url in ["s3://ais/logs/", "s3://ais/logs/a"] {
        assert_says(&run(&s3, &["s3", url, "--no-sign-request"]), &[url, "leave --no-sign-request out"]);
    }
}

#[test]
fn whoever_asks_may_pay() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 20_000));
    for (flags, payer) in [(&["--request-payer"][..], Some("requester")), (&[], None)] {
        s3.script(|_| Fate::Answered);
        let urls = ["s3", "s3://ais/logs/", "s3://ais/logs/a", "--format", "csv"];
        assert_gives(&run(&s3, &[&urls[..], flags].concat()), &from_files(&s3.path("logs"), &[]));
        let calls = s3.calls();
        assert!(calls.len() >= 4 && calls.iter().all(|call| call.header("x-amz-request-payer") == payer), "{calls:?}");
    }
}

#[test]
fn endpoints_and_regions_are_taken_from_flags_and_variables() {
    let (s3, other) = (S3::start(), S3::start());
    s3.put("logs/a", &log(1, START, 60));
    other.put("logs/a", &log(2, START, 60));
    assert_gives(&run(&s3, &["s3", "s3://ais/logs/a", "--format", "csv"]), &from_files(&s3.path("logs"), &[]));
    assert!(s3.calls().iter().all(|call| call.target().starts_with("/ais/logs/a")), "{:?}", s3.calls());
    let region = |flags: &[&str]| {
        s3.script(|_| Fate::Answered);
        assert_eq!(run(&s3, &[&["s3", "s3://ais/logs/"], flags].concat()).status, 0);
        let signed: Vec<String> =
            s3.calls().iter().map(|call| call.header("authorization").unwrap().to_owned()).collect();
        ["eu-north-1", "us-west-2", "us-east-1"].into_iter().find(|region| signed.iter().all(|of| of.contains(region)))
    };
    assert_eq!(region(&[]), Some("eu-north-1"));
    assert_eq!(region(&["--region", "us-west-2"]), Some("us-west-2"));
    assert_eq!(region(&["--region", "us-west-2", "--bucket-region", "us-east-1"]), Some("us-east-1"));
    // The flag goes before the variable.
    let ran = run(&s3, &["s3", "s3://ais/logs/a", "--format", "csv", "--endpoint-url", &other.endpoint()]);
    assert_gives(&ran, &from_files(&other.path("logs"), &[]));
}

// ---- tables and comparisons ---------------------------------------------------------------------------------------------

#[test]
fn verify_compares_with_objects() {
    let s3 = S3::with(Setup { is_public: true, ..Setup::default() });
    s3.put("logs/a", &gzip(&log(1, START, 600)));
    let expected = from_files(&s3.path("logs"), &[]);
    fs::write(s3.path("../rows.csv"), &expected).unwrap();
    let flags = ["verify", "--all", "--in", "csv:rows.csv", "--no-sign-request", "--against"];
    let same = run(&s3, &[&flags[..], &["s3://ais/logs/"]].concat());
    assert_eq!(same.status, 0, "{}", same.stderr);
    assert!(same.stderr.contains("no difference"), "{}", same.stderr);
    s3.put("logs/b", &log(2, START, 60));
    let other = run(&s3, &[&flags[..], &["s3://ais/logs/"]].concat());
    assert_eq!(other.status, 3, "{}", other.stderr);
    assert!(other.stdout.contains("in s3://ais/logs/"), "{}", other.stdout);
    assert_says(&run(&s3, &[&flags[..], &["s3://ais/none"]].concat()), &["s3://ais/none", "no such object"]);
}

#[test]
fn a_table_knows_an_object_by_its_name_and_version() {
    let s3 = S3::start();
    s3.put("logs/a", &log(1, START, 600));
    s3.put("logs/empty", b"");
    let into = ["--to", "sqlite:agg.db", "--create-table"];
    let table_line = |ran: &Ran| {
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stderr.lines().find(|line| line.starts_with("table")).unwrap().to_owned()
    };
    let first = table_line(&run(&s3, &[&["s3", "s3://ais/logs/"], &into[..]].concat()));
    assert!(!first.contains(" 0 new") && first.contains(" 0 already"), "{first}");
    // The same again, also without the ETag of a list.
    for urls in [&["s3://ais/logs/"][..], &["s3://ais/logs/empty", "s3://ais/logs/a"]] {
        let again = table_line(&run(&s3, &[&["s3"], urls, &into[..]].concat()));
        assert!(again.contains(" 0 new") && !again.contains(" 0 already"), "{again}");
    }
    let listed = run(&s3, &["runs", "--in", "sqlite:agg.db"]);
    assert!(listed.stdout.contains("s3://ais/logs/a"), "{}", listed.stdout);
    // The object by itself would count twice.
    let alone = run(&s3, &[&["s3", "s3://ais/logs/a", "--write", "add"], &into[..]].concat());
    assert!(
        alone.status == 1 && alone.stderr.contains("s3://ais/logs/a is in sqlite:agg.db already"),
        "{}",
        alone.stderr
    );
    // Another version of it is another input.
    s3.put("logs/a", &log(1, START + 600, 600));
    let other = table_line(&run(&s3, &[&["s3", "s3://ais/logs/a", "--write", "add"], &into[..]].concat()));
    assert!(!other.contains(" 0 new"), "{other}");
}

/// A hole is filled, its edges and what came too late are recomputed: from S3 into DynamoDB, with two endpoints.
#[test]
fn a_backfill_from_s3_into_dynamodb() {
    let (s3, table) = (S3::start(), aws::Server::with_table("ais_window_agg"));
    s3.put("logs/a.gz", &gzip(&log(1, START, 900)));
    // One report comes ten minutes late.
    let mut text = log(2, START, 900);
    text.extend((report(3, START + 30) + "\n").into_bytes());
    s3.put("logs/b", &text);
    let dynamodb = format!("http://127.0.0.1:{}", table.port());
    let run = |arguments: &[&str]| {
        let mut command = s3.command(arguments);
        command.env("AWS_ENDPOINT_URL_DYNAMODB", &dynamodb).env("AGG_TABLE", "ais_window_agg");
        support::finish(&mut assert_cmd::Command::from_std(command))
    };
    // The live pipeline has got a part of some windows.
    let expected = from_files(&s3.path("logs"), &[]);
    let expected: aws::Sums = rows(&expected)
        .into_iter()
        .map(|((start, cell), (count, sum, missing))| ((cell, start), (count, aws::tenths(&sum), missing)))
        .collect();
    for ((cell, start), _) in expected.iter().step_by(5) {
        table.live_add("ais_window_agg", cell, *start, 1, 13);
    }
    let insert = [
        "s3",
        "s3://ais/logs/",
        "--lateness",
        "120s",
        "--to",
        "dynamodb",
        "--late",
        "late.ndjson",
        "--conflicts",
        "conflicts.ndjson",
    ];
    let inserted = run(&insert);
    assert_eq!(inserted.status, 1, "{}", inserted.stderr);
    assert!(inserted.stderr.contains("--only conflicts.ndjson --write replace"), "{}", inserted.stderr);
    assert!(inserted.stderr.contains("1 report missed its window: kept in late.ndjson"), "{}", inserted.stderr);
    let late = fs::read_to_string(s3.path("../late.ndjson")).unwrap();
    assert!(late.contains(r#""source":{"file":"s3://ais/logs/b","line":901}"#), "{late}");
    // Half a window must not replace a whole one.
    let replace = |only: &str, flags: &[&str]| {
        run(&[&["s3", "s3://ais/logs/", "--to", "dynamodb", "--write", "replace", "--only", only], flags].concat())
    };
    let refused = replace("late.ndjson", &["--lateness", "120s"]);
    assert!(refused.status == 1 && refused.stderr.contains("half a window"), "{}", refused.stderr);
    for only in ["conflicts.ndjson", "late.ndjson", "late.ndjson"] {
        let replaced = replace(only, &[]);
        assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    }
    assert_eq!(table.sums("ais_window_agg"), expected);
    let verified = run(&["verify", "--all", "--against", "s3://ais/logs/"]);
    assert_eq!((verified.status, verified.stdout.as_str()), (0, ""), "{}", verified.stderr);
}
