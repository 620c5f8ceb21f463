//! Tables through the binary, on SQLite: what is written once stays once, and what people do at three in the morning is
//! refused with the reason and the way out.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/encode.rs"]
mod encode;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use encode::{Position, position_report, sentences, tag_block};
use rusqlite::{Connection, params};
use serde_json::Value;
use support::{Ran, ais_replay, finish, rows, run};
use tempfile::TempDir;

/// A start of windows of 60 s and of 120 s.
const T: i64 = 1_700_000_040;
const CELL: &str = "u4pruy";

// ---- what the tests share -----------------------------------------------------------------------------------------------

/// A type 1 report with a TAG block. `sog` in tenths, the place in 1/10,000 minute.
fn report_at(mmsi: u32, sog: u16, time: i64, (lon, lat): (i32, i32)) -> String {
    let position = Position { mmsi, lon, lat, sog, second: (time % 60) as u8, ..Position::default() };
    let bits = position_report(1, &position);
    let sentence = sentences("AI", "VDM", &bits, None, Some('A'), encode::MAX_PAYLOAD_CHARS).remove(0);
    tag_block(&[("s", "r1"), ("c", &time.to_string())]) + &sentence
}

/// The same in cell u4pruy.
fn report(mmsi: u32, sog: u16, time: i64) -> String {
    report_at(mmsi, sog, time, (encode::degrees(10.407), encode::degrees(57.649)))
}

/// Windows T (2 reports, 21.0 kn) and T + 60 (1, 12.0).
fn log_a() -> Vec<String> {
    vec![report(1, 100, T), report(2, 110, T + 10), report(1, 120, T + 60)]
}

/// Windows T (1, 5.0) and T + 120 (1, 6.0).
fn log_b() -> Vec<String> {
    vec![report(3, 50, T + 20), report(3, 60, T + 130)]
}

const A_ROWS: [(i64, i64, &str); 2] = [(T, 2, "21.0"), (T + 60, 1, "12.0")];
const A_AND_B_ROWS: [(i64, i64, &str); 3] = [(T, 3, "26.0"), (T + 60, 1, "12.0"), (T + 120, 1, "6.0")];

/// A folder with a table and logs in it.
struct Scene {
    folder: TempDir,
    table: PathBuf,
}

/// A row as it stands in the file: cell, window start, count, sum, missing, window length, applied.
type Raw = (String, i64, Option<i64>, Option<String>, Option<i64>, Option<i64>, Option<String>);

impl Scene {
    /// Without a table yet.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("table.db");
        Self { folder, table }
    }

    /// With the logs a and b.
    fn with_logs() -> (Self, String, String) {
        let scene = Self::new();
        let (a, b) = (scene.log("a.nmea", &log_a()), scene.log("b.nmea", &log_b()));
        (scene, a, b)
    }

    /// The path of a name in the folder.
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn log(&self, name: &str, lines: &[String]) -> String {
        fs::write(self.path(name), lines.join("\n") + "\n").unwrap();
        self.path(name)
    }

    fn target(&self) -> String {
        format!("sqlite:{}", self.table.display())
    }

    /// `ais-replay file` into the table.
    fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = ais_replay();
        command.arg("file").args(arguments).args(["--to", &self.target(), "--create-table"]);
        command
    }

    fn replay(&self, arguments: &[&str]) -> Ran {
        finish(&mut self.command(arguments))
    }

    /// A replay that succeeds, as its line about the table: what became of the rows.
    fn written(&self, arguments: &[&str]) -> String {
        let ran = self.replay(arguments);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        table_line(&ran)
    }

    /// A replay that is refused: it says this, and changes nothing.
    #[track_caller]
    fn refused(&self, status: i32, arguments: &[&str], says: &[&str]) {
        let before = self.everything();
        assert_refused(self.replay(arguments), status, says);
        assert_eq!(self.everything(), before, "nothing changed in the table");
        // A dry run refuses the same.
        assert_refused(self.replay(&[arguments, &["--dry-run"]].concat()), status, says);
        assert_eq!(self.everything(), before);
    }

    fn reconcile(&self, arguments: &[&str]) -> Ran {
        finish(ais_replay().arg("reconcile").args(arguments).args(["--to", &self.target()]))
    }

    fn verify(&self, arguments: &[&str]) -> Ran {
        finish(ais_replay().arg("verify").args(arguments).args(["--in", &self.target()]))
    }

    fn runs(&self) -> Vec<Value> {
        let ran = run(&["runs", "--in", &self.target(), "--json"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(&self.table).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    /// What the live pipeline does: it adds, and writes no more than two numbers.
    fn live_add(&self, cell: &str, window_start: i64, count: i64, sog_sum: &str) {
        let connection = self.open();
        connection
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS ais_window_agg (cell TEXT NOT NULL, window_start INTEGER NOT NULL, \
                 count INTEGER, sog_sum TEXT, sog_missing INTEGER, window_seconds INTEGER, applied TEXT, record TEXT, \
                 PRIMARY KEY (cell, window_start))",
            )
            .unwrap();
        connection
            .execute(
                "INSERT INTO ais_window_agg (cell, window_start, count, sog_sum) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT DO UPDATE SET count = count + ?3, sog_sum = sog_sum + ?4",
                params![cell, window_start, count, sog_sum],
            )
            .unwrap();
    }

    /// The windows, raw.
    fn raw(&self) -> Vec<Raw> {
        self.everything().into_iter().filter(|(row, _)| row.0 != "~run").map(|(row, _)| row).collect()
    }

    /// Windows and run records, raw; none where there is no table.
    fn everything(&self) -> Vec<(Raw, Option<String>)> {
        if !self.table.exists() {
            return Vec::new();
        }
        let connection = self.open();
        let mut statement = connection
            .prepare(
                "SELECT cell, window_start, count, sog_sum, sog_missing, window_seconds, applied, record \
                 FROM ais_window_agg ORDER BY cell, window_start",
            )
            .unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let raw = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
            Ok((raw, row.get(7)?))
        };
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    /// Window start, count and sum of the rows that hold something.
    fn counts(&self) -> Vec<(i64, i64, String)> {
        let held = self.raw().into_iter().filter(|row| row.2 != Some(0));
        held.map(|row| (row.1, row.2.unwrap(), row.3.unwrap())).collect()
    }

    #[track_caller]
    fn assert_counts(&self, expected: &[(i64, i64, &str)]) {
        let expected: Vec<(i64, i64, String)> =
            expected.iter().map(|(start, count, sum)| (*start, *count, (*sum).to_owned())).collect();
        assert_eq!(self.counts(), expected);
    }
}

#[track_caller]
fn assert_refused(ran: Ran, status: i32, says: &[&str]) {
    assert_eq!(ran.status, status, "{}", ran.stderr);
    for text in says {
        assert!(ran.stderr.contains(text), "'{text}' is not in: {}", ran.stderr);
    }
}

/// What the summary says became of the rows.
#[track_caller]
fn table_line(ran: &Ran) -> String {
    let line = ran.stderr.lines().find(|line| line.contains("in conflict"));
    let line = line.unwrap_or_else(|| panic!("no line about a table in: {}", ran.stderr));
    line.split_once("): ").unwrap().1.to_owned()
}

fn line(new: u64, merged: u64, already: u64, conflicts: u64) -> String {
    format!("{new} new, {merged} merged into existing counts, {already} already this run's, {conflicts} in conflict")
}

fn undo_line(taken: u64, nothing: u64, conflicts: u64) -> String {
    format!("{taken} taken back, {nothing} held nothing of this run, {conflicts} in conflict")
}

fn replace_line(new: u64, set: u64, already: u64, conflicts: u64) -> String {
    format!("{new} new, {set} set anew, {already} already this run's, {conflicts} in conflict")
}

// ---- writing, and the same command again --------------------------------------------------------------------------------

#[test]
fn an_insert_fills_a_table_and_the_same_command_again_changes_nothing() {
    let (scene, a, _) = Scene::with_logs();
    assert_eq!(scene.written(&[&a]), line(2, 0, 0, 0));
    let token = scene.runs()[0]["token"].as_str().unwrap().to_owned();
    let row = |start, count, sum: &str| {
        let applied = Some(format!("[\"{token}\"]"));
        (CELL.to_owned(), start, Some(count), Some(sum.to_owned()), None, Some(60), applied)
    };
    assert_eq!(scene.raw(), [row(T, 2, "21.0"), row(T + 60, 1, "12.0")]);
    let before = scene.raw();
    assert_eq!(scene.written(&[&a]), line(0, 0, 2, 0));
    for mode in ["insert", "add"] {
        assert_eq!(scene.written(&[&a, "--write", mode]), line(0, 0, 2, 0));
    }
    assert_eq!(scene.raw(), before);
    assert_eq!(scene.runs().len(), 1);
}

#[test]
fn the_same_command_from_another_folder_or_in_another_order_is_the_same_run() {
    let (scene, a, b) = Scene::with_logs();
    assert_eq!(scene.written(&[&a, &b]), line(3, 0, 0, 0));
    assert_eq!(scene.written(&[&b, &a]), line(0, 0, 3, 0));
    fs::create_dir(scene.path("moved")).unwrap();
    fs::rename(&a, scene.path("moved/a.nmea")).unwrap();
    assert_eq!(scene.written(&[&scene.path("moved/a.nmea"), &b]), line(0, 0, 3, 0));
    scene.assert_counts(&A_AND_B_ROWS);
}

#[test]
fn reports_without_speed_are_kept_apart_in_the_table() {
    let scene = Scene::new();
    let log = scene.log("a.nmea", &[report(1, 1023, T), report(2, 70, T), report(2, 1023, T + 60)]);
    scene.written(&[&log]);
    let numbers = |row: &Raw| (row.2, row.3.clone().unwrap(), row.4);
    let raw = scene.raw();
    assert_eq!(
        raw.iter().map(numbers).collect::<Vec<_>>(),
        [(Some(2), "7.0".to_owned(), Some(1)), (Some(1), "0.0".to_owned(), Some(1))]
    );
    assert_eq!(
        scene.verify(&[CELL]).stdout,
        format!(
            "window {T}: count=2 avg_sog=7.0 sog_missing=1\nwindow {}: count=1 avg_sog=n/a sog_missing=1\n\
             total: windows=2 count=3 avg_sog=7.0 sog_missing=2\n",
            T + 60
        )
    );
}

#[test]
fn two_different_runs_add_up() {
    let (scene, a, b) = Scene::with_logs();
    assert_eq!(scene.written(&[&a]), line(2, 0, 0, 0));
    assert_eq!(scene.written(&[&b, "--write", "add"]), line(1, 1, 0, 0));
    assert_eq!(scene.written(&[&b, "--write", "add"]), line(0, 0, 2, 0));
    scene.assert_counts(&A_AND_B_ROWS);
}

#[test]
fn the_summary_tells_what_became_of_the_rows_as_json_too() {
    let (scene, a, b) = Scene::with_logs();
    scene.live_add(CELL, T, 1, "10.0");
    let summary = |arguments: &[&str]| -> Value {
        let path = scene.path("summary.json");
        scene.replay(&[arguments, &["--summary", &path]].concat());
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let told = summary(&[&a]);
    let table = &told["tables"][0];
    assert_eq!((&table["table"], &table["mode"]), (&scene.target().into(), &"insert".into()));
    assert_eq!((&table["run"], &table["resumed"]), (&told["run"], &false.into()));
    assert_eq!(table["rows"], serde_json::json!({ "new": 1, "changed": 0, "already": 0, "conflicts": 1 }));
    assert_eq!(table["first_conflict"], format!("cell {CELL}, window {T}: it holds counts already"));
    let table = &summary(&[&b, "--write", "add"])["tables"][0];
    assert_eq!(table["rows"], serde_json::json!({ "new": 1, "changed": 1, "already": 0, "conflicts": 0 }));
    assert_eq!(table["first_conflict"], Value::Null);
    let table = &summary(&[&b, "--write", "undo"])["tables"][0];
    assert_eq!(table["rows"], serde_json::json!({ "new": 0, "changed": 2, "already": 0, "conflicts": 0 }));
    assert_eq!(summary(&[&b, "--write", "add", "--dry-run"])["tables"], serde_json::json!([]));
}

#[test]
fn late_side_output_that_a_run_leaves_among_its_logs_does_not_make_it_another_run() {
    let scene = Scene::new();
    fs::create_dir(scene.path("logs")).unwrap();
    scene.log("logs/a.nmea", &[report(1, 100, T + 600), report(2, 100, T + 601), report(1, 70, T)]);
    let (logs, late) = (scene.path("logs"), scene.path("logs/late.ndjson"));
    assert_eq!(scene.written(&[&logs, "--lateness", "60s", "--late", &late]), line(1, 0, 0, 0));
    assert_eq!(scene.written(&[&logs, "--lateness", "60s"]), line(0, 0, 1, 0));
    fs::copy(&late, scene.path("logs/late2.ndjson")).unwrap();
    assert_eq!(scene.written(&[&logs, "--lateness", "60s"]), line(0, 0, 1, 0));
}

#[test]
fn what_a_killed_run_leaves_among_its_logs_does_not_make_it_another_run() {
    let scene = Scene::new();
    fs::create_dir(scene.path("logs")).unwrap();
    scene.log("logs/a.nmea", &log_a());
    let logs = scene.path("logs");
    assert_eq!(scene.written(&[&logs]), line(2, 0, 0, 0));
    fs::write(scene.path("logs/.summary.json.x7Yq2z.part"), "").unwrap();
    assert_eq!(scene.written(&[&logs]), line(0, 0, 2, 0));
    // What is merely called alike is a log.
    scene.log("logs/.part", &log_b());
    scene.refused(1, &[&logs], &["already: run"]);
}

#[test]
fn other_columns_of_a_row_stay() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 1, "10.0");
    scene.open().execute_batch("ALTER TABLE ais_window_agg ADD COLUMN note TEXT DEFAULT 'mine'").unwrap();
    scene.open().execute("UPDATE ais_window_agg SET note = 'kept'", []).unwrap();
    scene.written(&[&a, "--write", "add"]);
    let note = |start: i64| -> String {
        let sql = "SELECT note FROM ais_window_agg WHERE cell = ?1 AND window_start = ?2";
        scene.open().query_row(sql, params![CELL, start], |row| row.get(0)).unwrap()
    };
    assert_eq!((note(T).as_str(), note(T + 60).as_str()), ("kept", "mine"));
    scene.assert_counts(&[(T, 3, "31.0"), (T + 60, 1, "12.0")]);
}

// ---- three in the morning -----------------------------------------------------------------------------------------------

#[test]
fn the_same_file_under_another_name_is_refused_with_both_names() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a]);
    let copy = scene.path("yesterday.nmea");
    fs::copy(&a, &copy).unwrap();
    for mode in ["insert", "add"] {
        scene.refused(
            1,
            &[&copy, "--write", mode],
            &["yesterday.nmea is in sqlite:", &format!("added it as {a}"), "nothing was written; --again"],
        );
        // Also where other options make it another run.
        scene.refused(1, &[&copy, "--write", mode, "--precision", "5"], &["already: run", "a.nmea"]);
    }
    scene.assert_counts(&A_ROWS);
}

#[test]
fn a_and_b_after_a_are_refused() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a]);
    scene.refused(1, &[&a, &b], &[&format!("{a} is in sqlite:"), "already: run", "--again"]);
    scene.refused(1, &[&a, &b, "--write", "add"], &["already: run"]);
    assert_eq!(scene.written(&[&b, "--write", "add"]), line(1, 1, 0, 0), "b alone is the way");
    scene.assert_counts(&A_AND_B_ROWS);
}

#[test]
fn a_after_a_and_b_is_refused() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a, &b]);
    scene.refused(1, &[&a], &[&format!("{a} is in sqlite:"), "already: run", "--again"]);
    scene.refused(1, &[&b, "--write", "add"], &[&format!("{b} is in sqlite:")]);
    scene.assert_counts(&A_AND_B_ROWS);
}

#[test]
fn a_file_that_has_grown_is_refused_and_its_rest_can_be_added() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a]);
    let old = fs::read_to_string(&a).unwrap();
    let rest = format!("{}\n", log_b().join("\n"));
    fs::write(&a, format!("{old}{rest}")).unwrap();
    let bytes = old.len().to_string();
    let tail = format!("tail -c +{}", old.len() + 1);
    scene.refused(1, &[&a], &["has grown: its first", &bytes, "which run", &tail, "--run-id"]);
    scene.refused(1, &[&a, "--write", "add"], &["has grown"]);
    // Under another name, and packed, it has grown no less.
    fs::write(scene.path("b.gz"), gzip(&fs::read(&a).unwrap())).unwrap();
    scene.refused(1, &[&scene.path("b.gz"), "--write", "add"], &["has grown", &bytes]);
    let ran = finish(scene.command(&["-", "--run-id", "rest", "--write", "add"]).write_stdin(rest));
    assert_eq!((ran.status, table_line(&ran)), (0, line(1, 1, 0, 0)), "{}", ran.stderr);
    scene.assert_counts(&A_AND_B_ROWS);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_packed_or_unpacked_copy_is_the_same_file() {
    let plain = log_a().join("\n") + "\n";
    let packed = [
        ("a.nmea", plain.clone().into_bytes()),
        ("a.nmea.gz", gzip(plain.as_bytes())),
        ("a.nmea.zst", zstd::encode_all(plain.as_bytes(), 3).unwrap()),
    ];
    for (first, content) in &packed {
        let scene = Scene::new();
        fs::write(scene.path(first), content).unwrap();
        scene.written(&[&scene.path(first)]);
        for (other, content) in packed.iter().filter(|(other, _)| other != first) {
            fs::write(scene.path(other), content).unwrap();
            scene.refused(1, &[&scene.path(other)], &[other, "already: run", &format!("as {}", scene.path(first))]);
            scene.refused(1, &[&scene.path(other), "--write", "add", "--types", "1"], &["already: run"]);
        }
        scene.assert_counts(&A_ROWS);
    }
}

#[test]
fn a_grown_file_with_a_byte_order_mark_is_known_as_well() {
    let scene = Scene::new();
    let old = format!("\u{feff}{}\n", log_a().join("\n"));
    fs::write(scene.path("a.nmea"), &old).unwrap();
    scene.written(&[&scene.path("a.nmea")]);
    fs::write(scene.path("a.nmea"), format!("{old}{}\n", log_b().join("\n"))).unwrap();
    scene.refused(1, &[&scene.path("a.nmea")], &["has grown"]);
}

#[test]
fn two_copies_in_one_command_are_refused() {
    let (scene, a, b) = Scene::with_logs();
    let copy = scene.path("copy.gz");
    fs::write(&copy, gzip(&fs::read(&a).unwrap())).unwrap();
    for mode in ["insert", "add", "replace"] {
        scene.refused(
            1,
            &[&a, &b, &copy, "--write", mode],
            &["hold the same bytes: they would count twice", &a, &copy],
        );
    }
    scene.assert_counts(&[]);
}

#[test]
fn windows_of_another_length_conflict_row_by_row() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a]);
    let ran = scene.replay(&[&b, "--write", "add", "--window", "120s"]);
    assert_eq!((ran.status, table_line(&ran)), (1, line(1, 0, 0, 1)), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("first cell {CELL}, window {T}: it is of windows of another length")));
    assert!(ran.stderr.contains("give --window as those rows have it"), "{}", ran.stderr);
    scene.assert_counts(&[A_ROWS[0], A_ROWS[1], (T + 120, 1, "6.0")]);
    // Not even a replace mixes them.
    let ran = scene.replay(&[&b, "--write", "replace", "--window", "120s"]);
    assert_eq!((ran.status, table_line(&ran)), (1, replace_line(0, 1, 0, 1)), "{}", ran.stderr);
    scene.assert_counts(&[A_ROWS[0], A_ROWS[1], (T + 120, 1, "6.0")]);
}

#[test]
fn rows_of_the_live_pipeline_are_of_its_window_length() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 5, "50.0");
    let ran = scene.replay(&[&a, "--write", "add", "--window", "120s"]);
    assert_eq!((ran.status, table_line(&ran)), (1, line(0, 0, 0, 1)), "{}", ran.stderr);
    scene.assert_counts(&[(T, 5, "50.0")]);
    // Of what its variable says, where that is set.
    let with_variable = |seconds: &str, arguments: &[&str]| {
        let ran = finish(scene.command(arguments).env("WINDOW_SECONDS", seconds));
        (ran.status, table_line(&ran))
    };
    assert_eq!(with_variable("120", &[&a, "--write", "add", "--window", "60s"]).0, 1);
    scene.assert_counts(&[(T, 5, "50.0"), A_ROWS[1]]);
    let again = with_variable("120", &[&a, "--write", "add", "--window", "120s", "--again"]);
    assert_eq!(again, (0, line(0, 1, 0, 0)), "a row that does not say is of 120 s then");
    scene.assert_counts(&[(T, 8, "83.0"), A_ROWS[1]]);
}

#[test]
fn a_run_whose_rows_all_conflicted_does_not_stand_in_the_way_of_the_right_one() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 5, "50.0");
    scene.live_add(CELL, T + 60, 5, "50.0");
    let wrong = [a.as_str(), "--write", "add", "--window", "120s"];
    assert_eq!(scene.replay(&wrong).status, 1);
    assert_eq!(scene.written(&[&a, "--write", "add"]), line(0, 2, 0, 0));
    let undo = [a.as_str(), "--write", "undo", "--window", "120s"];
    assert_eq!(scene.written(&undo), undo_line(0, 1, 0));
    scene.assert_counts(&[(T, 7, "71.0"), (T + 60, 6, "62.0")]);
}

#[test]
fn half_a_window_does_not_replace_a_whole_one() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a]);
    let late = scene.log("late.nmea", &[report(1, 100, T + 600), report(2, 100, T + 601), report(1, 70, T)]);
    let half = "half a window would take the place of a whole one";
    scene.refused(2, &[&a, "--write", "replace", "--bbox", "10,57,11,58"], &[half, "--bbox"]);
    scene.refused(2, &[&a, "--write", "replace", "--types", "1"], &[half, "--types"]);
    let late_ones = ["1 reports were late", "--lateness unbounded"];
    scene.refused(1, &[&late, "--write", "replace", "--lateness", "60s"], &late_ones);
    let by_variable = finish(scene.command(&[&a, "--write", "replace"]).env("AIS_REPLAY_BBOX", "10,57,11,58"));
    assert_refused(by_variable, 2, &[half]);
    // In whatever order the types are named, all of them are all.
    let all = scene.replay(&[&a, "--write", "replace", "--types", "19,18,3,2,1"]);
    assert_eq!((all.status, table_line(&all)), (0, replace_line(0, 2, 0, 0)), "{}", all.stderr);
    scene.assert_counts(&A_ROWS);
}

#[test]
fn what_could_not_be_the_same_again_must_be_named() {
    let (scene, a, _) = Scene::with_logs();
    let named = "--run-id";
    for flag in ["--since", "--until"] {
        scene.refused(2, &[&a, flag, "2h"], &[&format!("{flag} is an age"), named]);
    }
    scene.refused(2, &[&a, "--start", "2h"], &["--start is an age", named]);
    scene.refused(2, &["-"], &["standard input or a pipe cannot be read again", named]);
    #[cfg(unix)]
    {
        let pipe = scene.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        scene.refused(2, &[&pipe], &["a pipe cannot be read again", named]);
        assert_refused(scene.reconcile(&[&pipe]), 2, &["a pipe cannot be read again", named]);
    }
    assert_refused(scene.reconcile(&["-"]), 2, &["standard input or a pipe cannot be read again", named]);
    for id in ["two words", "", "a=b", "~run"] {
        scene.refused(2, &[&a, "--run-id", id], &["is no run id"]);
    }
    assert!(!scene.table.exists());
}

#[test]
fn flags_for_tables_without_a_table_are_refused_with_the_remedy() {
    let (scene, a, _) = Scene::with_logs();
    let list = scene.path("left.ndjson");
    let flags: [&[&str]; 5] =
        [&["--write", "add"], &["--again"], &["--conflicts", &list], &["--create-table"], &["--write-rate", "5"]];
    let out = format!("csv:{}", scene.path("out.csv"));
    for target in [&[][..], &["--to", &out], &["--dry-run"]] {
        for flag in flags {
            let remedy = format!("{} is for tables: give --to sqlite:PATH or --to dynamodb:TABLE with it", flag[0]);
            assert_refused(run(&[&["file", &a], target, flag].concat()), 2, &[&remedy]);
        }
        let named = run(&[&["file", &a], target, &["--run-id", "night"]].concat());
        assert_refused(named, 2, &["--run-id stands in tables and late files: give --to", "--late PATH"]);
    }
    let late = scene.path("late.ndjson");
    assert_eq!(run(&["file", &a, "--late", &late, "--run-id", "night"]).status, 0);
    for flag in flags.into_iter().filter(|flag| flag[0] != "--again").chain([&["--run-id", "night"][..]]) {
        let remedy = format!("{} is for tables: give --to TABLE with it", flag[0]);
        for target in [&[][..], &["--into", &out]] {
            assert_refused(run(&[&["reconcile", &late], target, flag].concat()), 2, &[&remedy]);
        }
    }
    assert_refused(run(&["reconcile", &late, "--again"]), 2, &["--again goes with --into or --to"]);
    // Variables are set once for all commands.
    let by_variables =
        finish(ais_replay().args(["file", &a]).env("AIS_REPLAY_WRITE_RATE", "5").env("AIS_REPLAY_RUN_ID", "night"));
    assert_eq!(by_variables.status, 0, "{}", by_variables.stderr);
    assert!(!Path::new(&list).exists());
}

#[test]
fn a_table_without_a_name_is_wrong_usage() {
    let (scene, a, _) = Scene::with_logs();
    let late = scene.path("late.ndjson");
    assert_eq!(run(&["file", &a, "--late", &late]).status, 0);
    for (arguments, flag) in [
        (&["runs"][..], "--in"),
        (&["runs", "--in", "dynamodb"], "--in"),
        (&["verify", "--all"], "--in"),
        (&["verify", "--all", "--in", "csv:x", "--against", "dynamodb"], "--against"),
        (&["file", &a, "--to", "dynamodb"], "--to"),
        (&["reconcile", &late, "--to", "dynamodb"], "--to"),
    ] {
        let sentence =
            format!("error: no table is named: give {flag} dynamodb:TABLE or {flag} sqlite:PATH, or set AGG_TABLE\n");
        for name in [None, Some("")] {
            let mut command = ais_replay();
            command.args(arguments).envs(name.map(|name| ("AGG_TABLE", name)));
            let ran = finish(&mut command);
            assert_eq!((ran.status, ran.stderr.as_str()), (2, sentence.as_str()), "{arguments:?}");
        }
    }
}

// ---- --run-id and --again -----------------------------------------------------------------------------------------------

#[test]
fn a_named_run_from_standard_input_counts_once() {
    let scene = Scene::new();
    let text = log_a().join("\n") + "\n";
    let piped =
        |id: &str, text: &str| finish(scene.command(&["-", "--run-id", id, "--write", "add"]).write_stdin(text));
    assert_eq!(table_line(&piped("night", &text)), line(2, 0, 0, 0));
    assert_eq!(table_line(&piped("night", &text)), line(0, 0, 2, 0));
    assert_eq!(scene.runs()[0]["token"], "night");
    let before = scene.everything();
    assert_refused(piped("day", &text), 1, &["standard input is in sqlite:", "run night of", "--again"]);
    let other = format!("{}\n", log_b().join("\n"));
    let refused = piped("night", &other);
    assert_refused(refused, 1, &["run night of", "is of other content (standard input)", "another --run-id"]);
    assert_eq!(scene.everything(), before);
    scene.assert_counts(&A_ROWS);
}

#[test]
fn one_run_id_is_one_run() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a, "--run-id", "night"]);
    assert_eq!(scene.written(&[&a, "--run-id", "night"]), line(0, 0, 2, 0));
    for mode in ["insert", "add", "replace", "undo"] {
        // Its rows would be passed over as if they held b, or lose what they never held.
        scene.refused(1, &[&b, "--run-id", "night", "--write", mode], &["is of other content", &a]);
        scene.refused(1, &[&a, "--run-id", "night", "--write", mode, "--cell", "u4"], &["is of other options"]);
        scene.refused(1, &[&b, "--run-id", "night", "--write", mode, "--again"], &["is of other content"]);
    }
    scene.assert_counts(&A_ROWS);
}

#[test]
fn a_named_run_of_an_age_goes_on_later() {
    let scene = Scene::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let start = now / 60 * 60 - 3_600;
    let log = scene.log("a.nmea", &[report(1, 100, start), report(1, 100, start + 60)]);
    assert_eq!(scene.written(&[&log, "--since", "2h", "--run-id", "n"]), line(2, 0, 0, 0));
    // As if it were later: another range by now, yet the same windows.
    assert_eq!(scene.written(&[&log, "--since", &format!("@{}", start + 1), "--run-id", "n"]), line(0, 0, 1, 0));
    assert_eq!(scene.counts().len(), 2);
}

#[test]
fn again_adds_once_more_and_itself_only_once() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a]);
    let copy = scene.path("copy.nmea");
    fs::copy(&a, &copy).unwrap();
    assert_eq!(scene.written(&[&copy, "--write", "add", "--again"]), line(0, 2, 0, 0));
    scene.assert_counts(&[(T, 4, "42.0"), (T + 60, 2, "24.0")]);
    assert_eq!(scene.written(&[&copy, "--write", "add", "--again"]), line(0, 0, 2, 0));
    scene.assert_counts(&[(T, 4, "42.0"), (T + 60, 2, "24.0")]);
    assert_eq!(scene.written(&[&a, &b, "--write", "add", "--again"]), line(1, 2, 0, 0));
    assert_eq!(scene.written(&[&a, &b, "--write", "undo", "--again"]), undo_line(3, 0, 0));
    assert_eq!(scene.written(&[&copy, "--write", "undo", "--again"]), undo_line(2, 0, 0));
    scene.assert_counts(&A_ROWS);
    // An insert leaves alone what is there, however often it is asked.
    let ran = scene.replay(&[&a, "--again"]);
    assert_eq!((ran.status, table_line(&ran)), (1, line(0, 0, 0, 2)), "{}", ran.stderr);
    scene.assert_counts(&A_ROWS);
}

// ---- insert, add and replace on what the live pipeline wrote ------------------------------------------------------------

#[test]
fn an_insert_leaves_a_live_row_alone_and_lists_it_for_replace() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 1, "10.0");
    let conflicts = scene.path("conflicts.ndjson");
    let insert = [a.as_str(), "--conflicts", &conflicts];
    for (new, already) in [(1, 0), (0, 1)] {
        let ran = scene.replay(&insert);
        assert_eq!((ran.status, table_line(&ran)), (1, line(new, 0, already, 1)), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("1 row left alone; first cell {CELL}, window {T}: it holds counts")));
        assert!(ran.stderr.contains(&format!("--only {conflicts} --write replace")), "{}", ran.stderr);
        scene.assert_counts(&[(T, 1, "10.0"), A_ROWS[1]]);
        let listed: Value = serde_json::from_str(fs::read_to_string(&conflicts).unwrap().trim()).unwrap();
        assert_eq!(listed, serde_json::json!({ "cell": CELL, "window_start": T, "reason": "it holds counts already" }));
    }
    assert_eq!(scene.runs()[0]["conflicts"], 1);
    let replace = [a.as_str(), "--only", &conflicts, "--write", "replace"];
    assert_eq!(scene.written(&replace), replace_line(0, 1, 0, 0));
    scene.assert_counts(&A_ROWS);
    let before = scene.raw();
    assert_eq!(scene.written(&replace), replace_line(0, 0, 1, 0));
    assert_eq!(scene.replay(&insert).status, 1);
    assert_eq!(scene.raw(), before, "the same commands again change nothing");
    // Without --conflicts the way is told.
    assert!(scene.replay(&[&a]).stderr.contains("--conflicts PATH lists them"));
}

#[test]
fn an_insert_without_conflicts_leaves_an_empty_list() {
    let (scene, a, _) = Scene::with_logs();
    let conflicts = scene.path("conflicts.ndjson");
    fs::write(&conflicts, "of an earlier run").unwrap();
    scene.written(&[&a, "--conflicts", &conflicts]);
    assert_eq!(fs::read_to_string(&conflicts).unwrap(), "");
    let over = scene.replay(&[&a, "--conflicts", &a]);
    assert_refused(over, 2, &["is an input"]);
}

#[test]
fn add_merges_into_a_live_row_and_survives_its_own_adds() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 1, "10.5");
    assert_eq!(scene.written(&[&a, "--write", "add"]), line(1, 1, 0, 0));
    scene.assert_counts(&[(T, 3, "31.5"), A_ROWS[1]]);
    scene.live_add(CELL, T, 1, "0.3");
    scene.live_add(CELL, T + 60, 2, "0.1");
    assert_eq!(scene.written(&[&a, "--write", "add"]), line(0, 0, 2, 0));
    scene.assert_counts(&[(T, 4, "31.8"), (T + 60, 3, "12.1")]);
}

#[test]
fn replace_sets_the_numbers_and_keeps_what_was_applied() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&b]);
    let first = scene.runs()[0]["token"].as_str().unwrap().to_owned();
    assert_eq!(scene.written(&[&a, "--write", "replace"]), replace_line(1, 1, 0, 0));
    scene.assert_counts(&[A_ROWS[0], A_ROWS[1], (T + 120, 1, "6.0")]);
    let second = scene.runs()[1]["token"].as_str().unwrap().to_owned();
    let mut applied = [first, format!("{second}=")];
    applied.sort();
    let raw = scene.raw();
    assert_eq!(raw[0].6, Some(serde_json::to_string(&applied).unwrap()));
    assert_eq!(scene.written(&[&a, "--write", "replace"]), replace_line(0, 0, 2, 0));
    assert_eq!(scene.written(&[&b]), line(0, 0, 2, 0), "b stays applied where a was set");
    assert_eq!(scene.raw(), raw);
    // Late ones that came in since are not wiped out by the same command, only by a new one.
    scene.live_add(CELL, T, 1, "1.0");
    assert_eq!(scene.written(&[&a, "--write", "replace"]), replace_line(0, 0, 2, 0));
    assert_eq!(scene.written(&[&a, "--write", "replace", "--again"]), replace_line(0, 2, 0, 0));
    scene.assert_counts(&[A_ROWS[0], A_ROWS[1], (T + 120, 1, "6.0")]);
}

#[test]
fn what_a_replace_has_set_is_not_added_on_top() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a, "--write", "replace"]);
    for options in [&[][..], &["--cell", "u4"]] {
        let arguments = [&[a.as_str(), "--write", "add"], options].concat();
        scene.refused(1, &arguments, &["already: run"]);
    }
    // An insert finds its windows occupied.
    let ran = scene.replay(&[&a]);
    assert_eq!((ran.status, table_line(&ran)), (1, line(0, 0, 0, 2)), "{}", ran.stderr);
    scene.assert_counts(&A_ROWS);
}

// ---- undo ---------------------------------------------------------------------------------------------------------------

#[test]
fn undo_right_after_leaves_nothing_and_the_run_can_come_again() {
    let (scene, a, b) = Scene::with_logs();
    for mode in ["insert", "add"] {
        assert_eq!(scene.written(&[&a, "--write", mode]), line(2, 0, 0, 0));
        assert_eq!(scene.written(&[&a, "--write", "undo"]), undo_line(2, 0, 0));
        scene.assert_counts(&[]);
        assert_eq!(scene.runs()[0]["state"], "undone");
        assert_eq!(scene.written(&[&a, "--write", "undo"]), undo_line(0, 2, 0), "twice is once");
        scene.assert_counts(&[]);
        let all = scene.verify(&["--all"]);
        assert_eq!((all.status, all.stdout.as_str()), (0, ""));
    }
    // Its inputs are free, also for others, and its windows hold nothing.
    assert_eq!(scene.written(&[&a, &b]), line(3, 0, 0, 0));
    scene.assert_counts(&A_AND_B_ROWS);
}

#[test]
fn undo_leaves_in_the_record_what_was_added_and_under_which_name() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add(CELL, T, 1, "1.0");
    assert_eq!(scene.replay(&[&a]).status, 1);
    let added = scene.runs();
    let copy = scene.path("found-at-night.gz");
    let mut packed = flate2::write::GzEncoder::new(fs::File::create(&copy).unwrap(), flate2::Compression::fast());
    packed.write_all(&fs::read(&a).unwrap()).unwrap();
    packed.finish().unwrap();
    assert_eq!(scene.written(&[&copy, "--write", "undo"]), undo_line(1, 1, 0));
    let mut expected = added[0].clone();
    expected["state"] = "undone".into();
    assert_eq!(scene.runs(), [expected]);
    // Who puts it in again, puts in what it is called now.
    assert_eq!(scene.written(&[&copy, "--write", "add"]), line(1, 1, 0, 0));
    assert_eq!(scene.runs()[0]["inputs"][0]["name"], copy.as_str());
}

#[test]
fn undo_takes_back_its_own_part_alone() {
    let (scene, a, b) = Scene::with_logs();
    scene.live_add(CELL, T, 7, "70.7");
    scene.written(&[&b, "--write", "add"]);
    let before = scene.raw();
    scene.written(&[&a, "--write", "add"]);
    scene.assert_counts(&[(T, 10, "96.7"), (T + 60, 1, "12.0"), (T + 120, 1, "6.0")]);
    assert_eq!(scene.written(&[&a, "--write", "undo"]), undo_line(2, 0, 0));
    assert_eq!(scene.raw().into_iter().filter(|row| row.2 != Some(0)).collect::<Vec<_>>(), before);
    // The live pipeline went on meanwhile.
    scene.written(&[&a, "--write", "add"]);
    scene.live_add(CELL, T, 1, "0.6");
    scene.live_add(CELL, T + 60, 1, "3.3");
    assert_eq!(scene.written(&[&a, "--write", "undo"]), undo_line(2, 0, 0));
    scene.assert_counts(&[(T, 9, "76.3"), (T + 60, 1, "3.3"), (T + 120, 1, "6.0")]);
}

#[test]
fn undo_of_a_run_that_never_wrote_is_told() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a]);
    scene.refused(
        1,
        &[&b, "--write", "undo"],
        &["has added anything to sqlite:", "nothing to undo", "ais-replay runs"],
    );
    scene.refused(1, &[&a, "--write", "undo", "--precision", "5"], &["nothing to undo"]);
    scene.assert_counts(&A_ROWS);
}

#[test]
fn a_replace_is_not_undone() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a, "--write", "replace"]);
    scene.refused(1, &[&a, "--write", "undo"], &["replaced rows of", "what they held before is kept nowhere"]);
    // Nor what another run had put into rows that were set since: the rest is taken back, and the run stays.
    scene.written(&[&b, "--write", "add"]);
    scene.assert_counts(&A_AND_B_ROWS);
    let ran = scene.replay(&[&b, "--write", "undo"]);
    assert_eq!((ran.status, table_line(&ran)), (1, undo_line(1, 0, 1)), "{}", ran.stderr);
    assert!(ran.stderr.contains("a replace has set its numbers") && ran.stderr.contains("hint"), "{}", ran.stderr);
    scene.assert_counts(&A_AND_B_ROWS[..2]);
    assert_eq!(scene.runs()[1]["state"], "complete");
    scene.refused(1, &[&b, "--write", "add", "--cell", "u4"], &["already: run"]);
    // It can be put back, too.
    assert_eq!(scene.written(&[&b, "--write", "add"]), line(1, 0, 1, 0));
    scene.assert_counts(&A_AND_B_ROWS);
}

// ---- runs ---------------------------------------------------------------------------------------------------------------

#[test]
fn runs_lists_what_was_written_by_whom() {
    let (scene, a, b) = Scene::with_logs();
    scene.live_add(CELL, T + 120, 1, "1.0");
    let empty = run(&["runs", "--in", &scene.target()]);
    assert_eq!((empty.status, empty.stdout.as_str()), (0, ""));
    assert!(empty.stderr.contains("holds no run record"), "{}", empty.stderr);
    scene.written(&[&a, "--run-id", "first"]);
    scene.replay(&[&b, "--run-id", "second", "--precision", "6"]);
    scene.written(&[&a, "--run-id", "first", "--write", "undo"]);
    let text = run(&["runs", "--in", &scene.target()]);
    assert_eq!(text.status, 0, "{}", text.stderr);
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", text.stdout);
    assert!(lines[0].starts_with("20") && lines[0].ends_with("  first  insert  undone  2 rows, 0 left alone"));
    assert_eq!(lines[1], format!("    {a}  {} bytes", fs::metadata(&a).unwrap().len()));
    assert!(lines[2].ends_with("  second  insert  complete  2 rows, 2 left alone"), "{}", text.stdout);
    let json = scene.runs();
    assert_eq!(json.len(), 2);
    assert_eq!((&json[1]["token"], &json[1]["mode"]), (&"second".into(), &"insert".into()));
    assert_eq!((&json[1]["state"], &json[1]["conflicts"]), (&"complete".into(), &2.into()));
    assert_eq!(json[1]["inputs"][0]["name"], b.as_str());
    assert_eq!(json[1]["inputs"][0]["sha256"].as_str().unwrap().len(), 64);
    assert!(json[1]["options"].as_str().unwrap().contains("window=60"));
    let missing = run(&["runs", "--in", "sqlite:/nowhere/table.db"]);
    assert_refused(missing, 1, &["sqlite:/nowhere/table.db does not exist"]);
}

// ---- reconcile ----------------------------------------------------------------------------------------------------------

/// A table with a run that left one report of window T out, and its late file.
fn with_late_file(scene: &Scene) -> (String, String) {
    let log = scene.log("a.nmea", &[report(1, 100, T + 600), report(2, 100, T + 601), report(1, 70, T)]);
    let late = scene.path("late.ndjson");
    let ran = scene.replay(&[&log, "--lateness", "60s", "--late", &late]);
    assert_eq!((ran.status, table_line(&ran)), (0, line(1, 0, 0, 0)), "{}", ran.stderr);
    let way = format!("add with: ais-replay reconcile {late} --to {}\n", scene.target());
    assert!(ran.stderr.contains(&way), "{}", ran.stderr);
    (log, late)
}

const WITHOUT_LATE: [(i64, i64, &str); 1] = [(T + 600, 2, "20.0")];
const WITH_LATE: [(i64, i64, &str); 2] = [(T, 1, "7.0"), (T + 600, 2, "20.0")];

#[test]
fn late_reports_are_added_once_and_can_be_taken_back() {
    let scene = Scene::new();
    let (_, late) = with_late_file(&scene);
    scene.assert_counts(&WITHOUT_LATE);
    let dry = scene.reconcile(&[&late, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.stderr);
    scene.assert_counts(&WITHOUT_LATE);
    let reconciled = |arguments: &[&str]| {
        let ran = scene.reconcile(arguments);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        table_line(&ran)
    };
    assert_eq!(reconciled(&[&late]), line(1, 0, 0, 0));
    scene.assert_counts(&WITH_LATE);
    assert_eq!(reconciled(&[&late]), line(0, 0, 1, 0));
    let copy = scene.path("copy.ndjson");
    fs::copy(&late, &copy).unwrap();
    assert_refused(scene.reconcile(&[&copy]), 1, &["copy.ndjson is in sqlite:", &late, "--again"]);
    let twice = scene.reconcile(&[&late, &copy]);
    assert_refused(twice, 1, &["holds the same as"]);
    scene.assert_counts(&WITH_LATE);
    assert_eq!(reconciled(&[&late, "--write", "undo"]), undo_line(1, 0, 0));
    assert_eq!(reconciled(&[&late, "--write", "undo"]), undo_line(0, 1, 0));
    scene.assert_counts(&WITHOUT_LATE);
    assert_eq!(reconciled(&[&late]), line(1, 0, 0, 0));
    assert_eq!(reconciled(&[&copy, "--again"]), line(0, 1, 0, 0));
    scene.assert_counts(&[(T, 2, "14.0"), WITHOUT_LATE[0]]);
    for mode in ["insert", "replace"] {
        assert_refused(scene.reconcile(&[&late, "--write", mode]), 2, &["late reports are what a window missed"]);
    }
    assert_refused(scene.reconcile(&[&late, "--conflicts", &late]), 2, &["is an input"]);
}

#[test]
fn a_late_file_of_another_tables_run_is_refused() {
    let (scene, other) = (Scene::new(), Scene::new());
    let (_, late) = with_late_file(&other);
    let (a, b) = (scene.log("a.nmea", &log_a()), scene.log("b.nmea", &log_b()));
    scene.written(&[&a]);
    let before = scene.everything();
    for flags in [&[][..], &["--dry-run"], &["--run-id", "x"]] {
        let refused = scene.reconcile(&[&[late.as_str()], flags].concat());
        assert_refused(refused, 1, &["which sqlite:", "does not know", "belong to another table", "--again"]);
    }
    assert_eq!(scene.everything(), before);
    let ran = scene.reconcile(&[&late, "--again"]);
    assert_eq!((ran.status, table_line(&ran)), (0, line(0, 1, 0, 0)), "{}", ran.stderr);
    let ran = scene.reconcile(&[&late, "--again", "--write", "undo"]);
    assert_eq!((ran.status, table_line(&ran)), (0, undo_line(1, 0, 0)), "{}", ran.stderr);
    scene.assert_counts(&A_ROWS);
    // Named by hand, a run may also have written its rows elsewhere first.
    scene.written(&[&b, "--write", "add", "--run-id", "n"]);
}

#[test]
fn a_late_file_of_a_run_of_other_windows_conflicts() {
    let scene = Scene::new();
    scene.live_add(CELL, T, 1, "1.0");
    let log = scene.log("a.nmea", &[report(1, 100, T + 1_200), report(2, 100, T + 1_201), report(1, 70, T)]);
    let late = scene.path("late.ndjson");
    scene.written(&[&log, "--window", "120s", "--lateness", "60s", "--late", &late]);
    let ran = scene.reconcile(&[&late]);
    assert_eq!((ran.status, table_line(&ran)), (1, line(0, 0, 0, 1)), "{}", ran.stderr);
    scene.assert_counts(&[(T, 1, "1.0"), (T + 1_200, 2, "20.0")]);
}

#[test]
fn late_reports_from_standard_input_need_a_name_and_count_once() {
    let scene = Scene::new();
    let (_, late) = with_late_file(&scene);
    let text = fs::read(&late).unwrap();
    let piped = || {
        let mut command = ais_replay();
        command.args(["reconcile", "-", "--run-id", "late-night", "--to", &scene.target()]).write_stdin(text.clone());
        table_line(&finish(&mut command))
    };
    assert_eq!((piped(), piped()), (line(1, 0, 0, 0), line(0, 0, 1, 0)));
    scene.assert_counts(&WITH_LATE);
}

// ---- verify -------------------------------------------------------------------------------------------------------------

/// A table with a live row, one of ours, one of both and one that was undone, in cells u60000, u60001 and u4pruy.
fn mixed() -> Scene {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add("u60000", T, 4, "37.4");
    scene.live_add("u60001", T, 1, "5");
    scene.live_add("u60001", T + 60, 2, "8.25");
    scene.open().execute("UPDATE ais_window_agg SET sog_sum = '8.2' WHERE sog_sum = '8.25'", []).unwrap();
    scene.live_add(CELL, T, 1, "9.0");
    scene.written(&[&a, "--write", "add"]);
    let gone = scene.log("gone.nmea", &[report_at(9, 10, T, (encode::degrees(11.0), encode::degrees(58.0)))]);
    scene.written(&[&gone]);
    scene.written(&[&gone, "--write", "undo"]);
    scene
}

#[test]
fn verify_prints_rows_of_the_live_pipeline_and_ours_alike() {
    let scene = mixed();
    let first = format!("window {T}: count=3 avg_sog=10.0\n");
    let second = format!("window {}: count=1 avg_sog=12.0\n", T + 60);
    let one = scene.verify(&[CELL]);
    assert_eq!(one.stdout, format!("{first}{second}total: windows=2 count=4 avg_sog=10.5\n"), "{}", one.stderr);
    let several = scene.verify(&["u60000", CELL, "u4pruz"]);
    assert_eq!(
        several.stdout,
        format!(
            "cell u60000\nwindow {T}: count=4 avg_sog=9.4\ntotal: windows=1 count=4 avg_sog=9.4\n\
             cell {CELL}\n{first}{second}total: windows=2 count=4 avg_sog=10.5\n\
             cell u4pruz\ntotal: windows=0 count=0 avg_sog=n/a\n"
        )
    );
    assert!(several.stderr.contains("holds no window of cell u4pruz"), "{}", several.stderr);
    let all = scene.verify(&["--all"]);
    assert_eq!(all.stdout.matches("cell ").count(), 3, "no run record, and no row that holds nothing: {}", all.stdout);
    assert!(all.stdout.contains("cell u60001\n") && !all.stdout.contains("count=0"), "{}", all.stdout);
    let prefix = scene.verify(&["u60*"]);
    assert_eq!(
        prefix.stdout,
        format!(
            "cell u60000\nwindow {T}: count=4 avg_sog=9.4\ntotal: windows=1 count=4 avg_sog=9.4\n\
             cell u60001\nwindow {T}: count=1 avg_sog=5.0\nwindow {}: count=2 avg_sog=4.1\n\
             total: windows=2 count=3 avg_sog=4.4\n",
            T + 60
        )
    );
    assert_eq!(scene.verify(&["u60*", CELL]).stdout.matches("cell ").count(), 3);
    let csv = scene.verify(&["--all", "--format", "csv"]);
    assert_eq!(rows(&csv.stdout).len(), 5, "{}", csv.stdout);
    let json: Value = serde_json::from_str(&scene.verify(&[CELL, "--format", "json"]).stdout).unwrap();
    assert_eq!((&json[0]["count"], &json[0]["vessels"]), (&3.into(), &Value::Null));
}

#[test]
fn verify_keeps_to_a_range() {
    let scene = mixed();
    let starts = |flags: &[&str]| -> Vec<i64> {
        let ran = scene.verify(&[&[CELL, "--format", "csv"], flags].concat());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        rows(&ran.stdout).into_keys().map(|(start, _)| start).collect()
    };
    let at = |seconds: i64| format!("@{}", T + seconds);
    assert_eq!(starts(&["--since", &at(0), "--until", &at(120)]), [T, T + 60]);
    assert_eq!(starts(&["--since", &at(1)]), [T + 60]);
    assert_eq!(starts(&["--until", &at(119)]), [T]);
    assert_eq!(starts(&["--since", &at(61)]), [0; 0]);
    let all = scene.verify(&["--all", "--since", &at(60), "--format", "csv"]);
    assert_eq!(rows(&all.stdout).len(), 2);
}

#[test]
fn verify_compares_a_table_with_another_with_a_csv_and_with_the_sentences() {
    let (scene, a, b) = Scene::with_logs();
    scene.written(&[&a, &b]);
    let other = Scene::new();
    other.written(&[&a]);
    other.written(&[&b, "--write", "add"]);
    let csv = format!("csv:{}", scene.path("rows.csv"));
    assert_eq!(run(&["file", &a, &b, "--to", &csv]).status, 0);
    fs::create_dir(scene.path("logs")).unwrap();
    for (from, name) in [(&a, "logs/a"), (&b, "logs/b")] {
        fs::copy(from, scene.path(name)).unwrap();
    }
    let logs = format!("file:{}", scene.path("logs"));
    for against in [&other.target(), &csv, &logs] {
        for cells in ["--all", CELL, "u4*"] {
            let same = scene.verify(&[cells, "--against", against]);
            assert_eq!((same.status, same.stdout.as_str()), (0, ""), "{}", same.stderr);
            assert!(same.stderr.contains("no difference: 3 rows agree"), "{}", same.stderr);
        }
    }
    scene.live_add(CELL, T + 60, 1, "0.1");
    scene.live_add("u60000", T, 1, "1.0");
    for against in [&other.target(), &csv, &logs] {
        let ran = scene.verify(&["--all", "--against", against]);
        assert_eq!(ran.status, 3, "{}", ran.stderr);
        assert_eq!(
            ran.stdout,
            format!(
                "u60000 window {T}: count=1 sog_sum=1.0 sog_missing=0 in {table}, not in {against}\n\
                 {CELL} window {}: count=2 sog_sum=12.1 sog_missing=0 in {table}, count=1 sog_sum=12.0 sog_missing=0 \
                 in {against}\n",
                T + 60,
                table = scene.target()
            )
        );
        assert_eq!(scene.verify(&["u60000", "--against", against]).stdout.lines().count(), 1);
        let before = scene.verify(&[CELL, "--until", &format!("@{}", T + 60), "--against", against]);
        assert_eq!(before.status, 0, "{}", before.stdout);
    }
    // The other way about, too.
    let ran = run(&["verify", "--all", "--in", &csv, "--against", &scene.target()]);
    assert_eq!((ran.status, ran.stdout.lines().count()), (3, 2));
}

/// SQLite takes some names for other things than files: such a table would be gone with the run.
#[test]
fn every_name_of_a_sqlite_table_is_that_of_a_file() {
    let (scene, a, _) = Scene::with_logs();
    let odd = |arguments: &[&str]| finish(ais_replay().current_dir(scene.folder.path()).args(arguments));
    for name in [":memory:", "file:odd.db", "file:odd2.db?mode=memory"] {
        let target = format!("sqlite:{name}");
        let ran = odd(&["file", &a, "--to", &target, "--create-table"]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(scene.folder.path().join(name).is_file(), "{name}");
        let ran = odd(&["verify", "--all", "--in", &target]);
        assert!(ran.status == 0 && ran.stdout.contains("count=2"), "{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn verify_says_where_a_sum_is_missing() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a]);
    let sql = format!("UPDATE ais_window_agg SET sog_sum = NULL WHERE window_start = {T}");
    scene.open().execute_batch(&sql).unwrap();
    let ran = scene.verify(&["--all"]);
    let note = format!(
        "in {}, the sog_sum of 1 row is missing: shown as 0, and no average is to be believed\n",
        scene.target()
    );
    assert_eq!((ran.status, ran.stderr), (0, note));
}

#[test]
fn verify_reads_a_sum_that_went_through_a_float_and_says_so() {
    let (scene, a, _) = Scene::with_logs();
    scene.live_add("u60000", T, 3, "28.3");
    scene.live_add("u60000", T + 60, 2, "8.3");
    scene.live_add("u60001", T, 3, "112.8");
    let exact = scene.path("exact.csv");
    let text = scene.verify(&["--all", "--format", "csv"]).stdout;
    fs::write(&exact, &text).unwrap();
    scene
        .open()
        .execute_batch(
            "UPDATE ais_window_agg SET sog_sum = '28.299999999999997' WHERE sog_sum = '28.3';
             UPDATE ais_window_agg SET sog_sum = '112.80000000000001' WHERE sog_sum = '112.8'",
        )
        .unwrap();
    let export = scene.path("export.csv");
    fs::write(&export, text.replace("28.3", "28.299999999999997")).unwrap();
    let note = |result: &str, rows: &str| {
        format!("in {result}, the sog_sum of {rows} went through a float: read as the nearest tenth of a knot\n")
    };
    let one = scene.verify(&["u60000"]);
    assert_eq!((one.status, one.stderr), (0, note(&scene.target(), "1 row")));
    assert!(one.stdout.contains(&format!("window {T}: count=3 avg_sog=9.4\n")), "{}", one.stdout);
    // What the filters leave out is not told of.
    assert_eq!(scene.verify(&["--all", "--cell", "u60001"]).stderr, note(&scene.target(), "1 row"));
    assert_eq!(scene.verify(&["u60000", "--since", &format!("@{}", T + 60)]).stderr, "");
    let (exact, export) = (format!("csv:{exact}"), format!("csv:{export}"));
    for against in [&exact, &export] {
        let same = scene.verify(&["--all", "--against", against]);
        assert_eq!(same.status, 0, "{}{}", same.stdout, same.stderr);
        assert!(same.stderr.starts_with(&note(&scene.target(), "2 rows")), "{}", same.stderr);
        assert_eq!(same.stderr.contains(&note(&export, "1 row")), against == &export, "{}", same.stderr);
    }
    // Who writes does not guess, and a sum between two tenths is none.
    let late = scene.path("late.ndjson");
    fs::write(&late, format!("{{\"cell\":\"u60000\",\"window_start\":{T},\"count\":1,\"sog_sum\":\"1.0\"}}\n"))
        .unwrap();
    assert_refused(
        run(&["reconcile", &late, "--into", &export]),
        1,
        &["line 2", "'28.299999999999997' is not a number"],
    );
    assert_refused(scene.reconcile(&[&late]), 1, &["its sog_sum '28.299999999999997' is not a number"]);
    scene.open().execute("UPDATE ais_window_agg SET sog_sum = '28.29999' WHERE sog_sum LIKE '28.%'", []).unwrap();
    assert_refused(scene.verify(&["u60000"]), 1, &["its sog_sum '28.29999' is not a number"]);
    assert_eq!(scene.written(&[&a]), line(2, 0, 0, 0));
}

// ---- wrong files --------------------------------------------------------------------------------------------------------

#[test]
fn what_is_no_table_is_told_in_a_sentence() {
    let (scene, a, _) = Scene::with_logs();
    let with = |path: &str, create: bool| {
        let target = format!("sqlite:{path}");
        let mut arguments = vec!["file", &a, "--to", &target];
        arguments.extend(create.then_some("--create-table"));
        let ran = run(&arguments);
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        let verified = run(&["verify", "--all", "--in", &target]);
        assert_eq!(verified.status, 1, "{}", verified.stderr);
        ran.stderr
    };
    let missing = scene.path("missing.db");
    let makes = "does not exist: --create-table makes it where something is written, or give the path of";
    assert_eq!(with(&missing, false), format!("error: sqlite:{missing} {makes} one that exists\n"));
    assert!(!Path::new(&missing).exists());
    let folder = scene.folder.path().to_str().unwrap();
    let text = scene.path("a.csv");
    let damaged = scene.path("damaged.db");
    scene.written(&["samples/harbour.nmea"]);
    fs::write(&damaged, &fs::read(&scene.table).unwrap()[..20_000]).unwrap();
    for create in [false, true] {
        let told = with(folder, create);
        let says = "it is a directory; give the path of a file, as one in it";
        assert_eq!(told, format!("error: cannot open sqlite:{folder}: {says}\n"));
        let told = with("/dev/null", create);
        let says = "it is a pipe or a device; give the path of a file";
        assert_eq!(told, format!("error: cannot open sqlite:/dev/null: {says}\n"));
        // Too short to be a database, and long enough to be taken for one.
        for times in [1, 200] {
            fs::write(&text, "cell,window_start\n".repeat(times)).unwrap();
            let told = with(&text, create);
            let says = "it is no SQLite database; give the path of one, or of a file that is not there yet";
            assert_eq!(told, format!("error: cannot open sqlite:{text}: {says}\n"));
            assert_eq!(fs::read_to_string(&text).unwrap(), "cell,window_start\n".repeat(times));
        }
        let told = with(&damaged, create);
        assert!(told.contains("the file is damaged (") && told.contains("put a copy of it in its place"), "{told}");
        for (name, schema, says) in [
            (
                "other.db",
                "CREATE TABLE ais_window_agg (id INTEGER PRIMARY KEY, Count INTEGER, cell TEXT)",
                "its ais_window_agg is another one, without columns window_start, sog_sum, sog_missing, \
                 window_seconds, applied, record",
            ),
            (
                "case.db",
                "CREATE TABLE AIS_Window_Agg (cell TEXT)",
                "its ais_window_agg is another one, without columns",
            ),
            (
                "keyless.db",
                "CREATE TABLE ais_window_agg (cell TEXT, window_start INTEGER, count INTEGER, sog_sum TEXT, \
                 sog_missing INTEGER, window_seconds INTEGER, applied TEXT, record TEXT)",
                "its ais_window_agg is another one, whose key is not cell and window_start",
            ),
            ("view.db", "CREATE VIEW ais_window_agg AS SELECT 1 AS cell", "its ais_window_agg is a view, and no table"),
            (
                "index.db",
                "CREATE TABLE notes (text); CREATE INDEX ais_window_agg ON notes (text)",
                "its ais_window_agg is an index, and no table",
            ),
        ] {
            let path = scene.path(name);
            let connection = Connection::open(&path).unwrap();
            let _ = connection.execute_batch(schema);
            drop(connection);
            let told = with(&path, create);
            assert!(told.starts_with(&format!("error: sqlite:{path} is not a table of windows: {says}")), "{told}");
            assert!(told.ends_with("; give the path of another file\n"), "{told}");
        }
    }
    let nowhere = with(&scene.path("no/such/folder.db"), true);
    assert!(nowhere.contains("no/such/folder.db: the folder that it should be in is not there"), "{nowhere}");
    // An empty file, or a database of somebody else's without such a table, gets one when asked.
    for (name, content) in [("else.db", "CREATE TABLE notes (text)"), ("empty.db", "")] {
        let path = scene.path(name);
        fs::write(&path, "").unwrap();
        Connection::open(&path).unwrap().execute_batch(content).unwrap();
        let told = with(&path, false);
        let of_file = format!("error: the table ais_window_agg in sqlite:{path} {makes} a file that holds it\n");
        assert_eq!(told, of_file);
        let target = format!("sqlite:{path}");
        let dry = run(&["file", &a, "--to", &target, "--create-table", "--dry-run"]);
        assert_eq!(dry.status, 0, "{}", dry.stderr);
        assert_eq!(with(&path, false), of_file);
        let made = run(&["file", &a, "--to", &target, "--create-table"]);
        assert_eq!(made.status, 0, "{}", made.stderr);
    }
}

#[test]
fn a_value_that_no_row_holds_is_told_with_its_place() {
    let (scene, a, _) = Scene::with_logs();
    for (set, says) in [
        ("count = 'many'", "its count is 'many', where a whole number should be"),
        ("count = 1.5", "its count is '1.5', where a whole number should be"),
        ("count = -1", "its count -1 is below zero"),
        ("sog_sum = '1.25'", "its sog_sum '1.25' is not a number of knots"),
        ("sog_sum = 'fast'", "its sog_sum 'fast' is not a number of knots"),
        ("sog_sum = x'00'", "its sog_sum is a blob"),
        ("applied = 'r'", "its applied is no array"),
    ] {
        let _ = fs::remove_file(&scene.table);
        scene.live_add(CELL, T, 1, "1.0");
        scene.open().execute(&format!("UPDATE ais_window_agg SET {set}"), []).unwrap();
        let place = format!("cell {CELL}, window {T}: ");
        for ran in [scene.replay(&[&a, "--write", "add"]), scene.verify(&["--all"]), scene.verify(&[CELL])] {
            assert_refused(ran, 1, &[&place, says]);
        }
        assert_eq!(scene.number_of_rows(), 2, "the row, and the record of a run that broke off");
    }
    let _ = fs::remove_file(&scene.table);
    scene.live_add("not a cell", T, 1, "1.0");
    assert_refused(scene.verify(&["--all"]), 1, &["not a cell"]);
    assert_eq!(scene.verify(&[CELL]).status, 0);
}

#[test]
fn a_dry_run_writes_nothing_and_makes_nothing() {
    let (scene, a, b) = Scene::with_logs();
    let dry = scene.replay(&[&a, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.stderr);
    assert!(dry.stderr.contains("nothing written; would be 2 rows to sqlite:"), "{}", dry.stderr);
    assert!(!scene.table.exists(), "not even the table");
    scene.written(&[&a]);
    let before = scene.everything();
    for mode in ["insert", "add", "replace"] {
        assert_eq!(scene.replay(&[&b, "--write", mode, "--dry-run"]).status, 0);
    }
    assert_eq!(scene.replay(&[&a, "--write", "undo", "--dry-run"]).status, 0);
    assert_eq!(scene.everything(), before);
}

#[test]
fn where_one_table_refuses_no_other_is_written() {
    let (first, a, b) = Scene::with_logs();
    let second = Scene::new();
    second.written(&[&a]);
    let csv = format!("csv:{}", first.path("rows.csv"));
    let ran = first.replay(&[&a, &b, "--to", &second.target(), "--to", &csv]);
    assert_refused(ran, 1, &["is in sqlite:"]);
    assert!(first.raw().is_empty() && first.runs().is_empty());
    assert!(!Path::new(&first.path("rows.csv")).exists());
    second.assert_counts(&A_ROWS);
    let both = first.replay(&[&b, "--write", "add", "--to", &second.target()]);
    assert_eq!(both.status, 0, "{}", both.stderr);
    second.assert_counts(&A_AND_B_ROWS);
    first.assert_counts(&[(T, 1, "5.0"), (T + 120, 1, "6.0")]);
}

#[test]
fn an_input_that_breaks_off_or_holds_nothing_leaves_the_table_alone() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a]);
    let packed = gzip(&(log_b().join("\n") + "\n").into_bytes());
    fs::write(scene.path("b.gz"), &packed[..packed.len() - 6]).unwrap();
    scene.refused(1, &[&scene.path("b.gz"), "--write", "add"], &["nothing was written", "breaks off"]);
    let nothing = scene.log("none.nmea", &["!AIVDM,rubbish".to_owned()]);
    scene.refused(1, &[&nothing, "--write", "add"], &["no AIS sentence"]);
    scene.assert_counts(&A_ROWS);
}

// ---- kills and company --------------------------------------------------------------------------------------------------

/// A log of that many reports over many cells and windows of 10 s.
fn many(scene: &Scene, name: &str, reports: u32, speed: u16) -> String {
    let report = |number: u32| {
        let steps = |modulus: u32| (number % modulus) as i32 * 6_000;
        let place = (encode::degrees(10.0) + steps(97), encode::degrees(57.0) + steps(89));
        let sog = if number.is_multiple_of(50) { 1023 } else { (number % 300) as u16 + speed };
        report_at(200_000_000 + number % 500, sog, T + i64::from(number / 40), place)
    };
    scene.log(name, &(0..reports).map(report).collect::<Vec<_>>())
}

const MANY_FLAGS: [&str; 4] = ["--window", "10s", "--precision", "7"];

type Sums = BTreeMap<(i64, String), (u64, u64, u64)>;

fn tenths(text: &str) -> u64 {
    text.replace('.', "").parse().unwrap()
}

/// What a log comes to, by way of CSV.
fn expected(log: &str) -> Sums {
    let ran = run(&[&["file", log, "--format", "csv"], &MANY_FLAGS[..]].concat());
    let rows = rows(&ran.stdout).into_iter();
    rows.map(|(key, (count, sum, missing))| (key, (count, tenths(&sum), missing))).collect()
}

fn add(sums: &mut Sums, other: &Sums) {
    for (key, numbers) in other {
        let sum = sums.entry(key.clone()).or_default();
        *sum = (sum.0 + numbers.0, sum.1 + numbers.1, sum.2 + numbers.2);
    }
}

impl Scene {
    fn sums(&self) -> Sums {
        let numbers = |row: Raw| {
            let (count, missing) = (row.2.unwrap() as u64, row.4.unwrap_or(0) as u64);
            ((row.1, row.0), (count, tenths(&row.3.unwrap()), missing))
        };
        self.raw().into_iter().map(numbers).collect()
    }

    /// Starts a replay and does not wait for it.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("ais-replay"));
        let environment = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            !name.starts_with("AIS_REPLAY_") && name != "WINDOW_SECONDS" && name != "GEOHASH_PRECISION"
        });
        command.env_clear().envs(environment);
        command.arg("file").args(arguments).args(["--to", &self.target(), "--create-table"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn number_of_rows(&self) -> u64 {
        let count = |connection: Connection| {
            connection.query_row("SELECT count(*) FROM ais_window_agg", [], |row| row.get::<_, u64>(0)).ok()
        };
        Connection::open_with_flags(&self.table, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
            .ok()
            .and_then(count)
            .unwrap_or(0)
    }
}

#[test]
fn a_run_that_is_killed_ten_times_and_given_again_comes_to_the_exact_sums() {
    for mode in ["insert", "add"] {
        let scene = Scene::new();
        let log = many(&scene, "many.nmea", 24_000, 10);
        let mut sums = expected(&log);
        let total = sums.len() as u64;
        assert!(total > 15_000, "{total} rows are several transactions");
        let arguments = [&[log.as_str(), "--write", mode], &MANY_FLAGS[..]].concat();
        let whole = {
            let other = Scene::new();
            let began = Instant::now();
            assert!(other.start(&arguments).wait().unwrap().success());
            began.elapsed()
        };
        let live_row = sums.keys().nth(7).cloned().unwrap();
        let mut killed = 0;
        for kill in 1..=10 {
            let mut child = scene.start(&arguments);
            let began = Instant::now();
            // Half of them after so much time, wherever that is; half once so many rows are there.
            let due = |scene: &Scene| match kill % 2 {
                0 => began.elapsed() > whole * kill / 11,
                _ => scene.number_of_rows() > total * u64::from(kill) / 12,
            };
            while child.try_wait().unwrap().is_none() && !due(&scene) {
                std::thread::sleep(Duration::from_millis(2));
            }
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                killed += 1;
            }
            child.wait().unwrap();
            if mode == "add" && scene.table.exists() {
                scene.live_add(&live_row.1, live_row.0, 1, "0.3");
                add(&mut sums, &BTreeMap::from([(live_row.clone(), (1, 3, 0))]));
            }
        }
        assert!(killed >= 5, "{killed} were alive to be killed");
        let ran = scene.replay(&arguments);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert_eq!(scene.sums(), sums, "{mode}: {}", ran.stderr);
        assert_eq!(scene.runs().len(), 1);
        assert_eq!(scene.runs()[0]["state"], "complete");
        assert_eq!(scene.written(&arguments), line(0, 0, total, 0));
        // A killed undo goes on as well.
        let undo = [&[log.as_str(), "--write", "undo"], &MANY_FLAGS[..]].concat();
        let mut child = scene.start(&undo);
        std::thread::sleep(whole * 7 / 10);
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(scene.replay(&undo).status, 0);
        let left: Sums = scene.sums().into_iter().filter(|(_, numbers)| *numbers != (0, 0, 0)).collect();
        for numbers in expected(&log) {
            let sum = sums.get_mut(&numbers.0).unwrap();
            *sum = (sum.0 - numbers.1.0, sum.1 - numbers.1.1, sum.2 - numbers.1.2);
        }
        sums.retain(|_, numbers| *numbers != (0, 0, 0));
        assert_eq!(left, sums);
        assert_eq!(scene.runs()[0]["state"], "undone");
    }
}

#[test]
fn a_broken_off_run_says_that_it_goes_on() {
    let (scene, a, _) = Scene::with_logs();
    scene.written(&[&a, "--run-id", "night"]);
    // As a kill between the two rows would have left it.
    let connection = scene.open();
    connection.execute("DELETE FROM ais_window_agg WHERE window_start = ?1", [T + 60]).unwrap();
    let sql = "UPDATE ais_window_agg SET record = replace(record, '\"complete\"', '\"writing\"') WHERE cell = '~run'";
    connection.execute(sql, []).unwrap();
    assert!(run(&["runs", "--in", &scene.target()]).stdout.contains("night  insert  writing"));
    // Nobody else may have its inputs.
    scene.refused(1, &[&a], &["already: run night"]);
    let ran = scene.replay(&[&a, "--run-id", "night"]);
    assert!(ran.stderr.contains("(insert by run night, going on where it broke off)"), "{}", ran.stderr);
    assert_eq!(table_line(&ran), line(1, 0, 1, 0));
    scene.assert_counts(&A_ROWS);
}

#[test]
fn two_processes_at_once_add_up() {
    let scene = Scene::new();
    let (one, two) = (many(&scene, "one.nmea", 8_000, 10), many(&scene, "two.nmea", 9_000, 500));
    let mut sums = expected(&one);
    add(&mut sums, &expected(&two));
    let arguments = |log| [&[log, "--write", "add"], &MANY_FLAGS[..]].concat();
    // Each of them twice at once, as if two people had the same idea.
    let logs = [&one, &two, &one, &two];
    let children: Vec<Child> = logs.iter().map(|log| scene.start(&arguments(log.as_str()))).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(scene.sums(), sums);
    for log in [&one, &two] {
        assert!(scene.written(&arguments(log)).starts_with("0 new, 0 merged"));
    }
    assert_eq!(scene.sums(), sums);
}
