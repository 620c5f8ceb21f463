//! What the tests through the binary share.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may do both")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

/// The binary, with nothing of the caller's environment that could change what it does.
pub fn ais_replay() -> Command {
    let mut command = Command::cargo_bin("ais-replay").unwrap();
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let ours = ["WINDOW_SECONDS", "ALLOWED_LATENESS_SECONDS", "GEOHASH_PRECISION", "AGG_TABLE"];
        if name.starts_with("AIS_REPLAY_") || name.starts_with("AWS_") || ours.contains(&name.as_ref()) {
            command.env_remove(variable);
        }
    }
    command.current_dir(root());
    command
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder beside the repository that holds material of others, where it exists.
pub fn shared(folder: &str) -> Option<PathBuf> {
    let path = root().parent()?.join("shared").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: there is no {} beside this repository", Path::new("shared").join(folder).display());
    None
}

/// What a run of the binary came to.
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary.
pub fn run(arguments: &[&str]) -> Ran {
    finish(ais_replay().args(arguments))
}

/// Runs a command that is ready.
pub fn finish(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A run with `--summary`, and that summary.
pub fn run_with_summary(arguments: &[&str]) -> (Ran, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    let ran = finish(ais_replay().args(arguments).arg("--summary").arg(&path));
    let summary = std::fs::read_to_string(&path).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default();
    (ran, summary)
}

/// One line says what the run waited for, and until what time of day it would have.
#[track_caller]
pub fn assert_waited(ran: &Ran, what: &str) {
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("waiting for ")).collect();
    let [line] = lines[..] else { panic!("{} lines of waiting in: {}", lines.len(), ran.stderr) };
    assert!(line.starts_with(&format!("waiting for {what}")), "{line}");
    let (_, until) = line.split_once("; retrying until ").unwrap();
    assert!(until.len() == 9 && until.ends_with('Z') && until.matches(':').count() == 2, "{line}");
}

/// A count out of a summary, 0 where it is not there.
pub fn count(summary: &Value, group: &str, kind: &str) -> u64 {
    summary[group][kind]["count"].as_u64().unwrap_or(0)
}

/// The rows of a CSV: (window start, cell) to (count, sog_sum, sog_missing).
pub fn rows(csv: &str) -> BTreeMap<(i64, String), (u64, String, u64)> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows = reader.records().map(|record| {
        let record = record.unwrap();
        let key = (record[1].parse().unwrap(), record[0].to_owned());
        (key, (record[2].parse().unwrap(), record[4].to_owned(), record[5].parse().unwrap()))
    });
    rows.collect()
}
