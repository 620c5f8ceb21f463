//! What the crates in `src/bin` share: how a log is read, and how a pass over it is timed.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// Reads the log that the command line names and gives each line to `decode`, which says whether it gave a position
/// report. Prints seconds and reports. The clock runs from before the file is opened, and not while the program
/// starts.
#[must_use]
pub fn time(decode: impl FnMut(&str) -> bool) -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: PEER LOG");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let log = match std::fs::read_to_string(&path) {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    };
    let reports = pass(&log, decode);
    println!("{} {reports}", begin.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn pass(log: &str, mut decode: impl FnMut(&str) -> bool) -> usize {
    log.lines().filter(|line| black_box(decode(line))).count()
}

/// A line from its sentence on, for crates that know no TAG blocks.
#[must_use]
pub fn without_tag_block(line: &str) -> &str {
    line.strip_prefix('\\').and_then(|rest| rest.split_once('\\')).map_or(line, |(_, sentence)| sentence)
}
