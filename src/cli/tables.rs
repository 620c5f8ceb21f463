//! What the commands that write to tables share, and `ais-replay runs`.

use std::io::{self, BufWriter, Write};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest, Sha256};

use super::args::{AwsArgs, RunsArgs, TableArgs};
use super::console::{self, Console};
use super::{Status, Usage};
use crate::sink::{Sink, SinkError, Target};
use crate::source::content::hexadecimal;
use crate::store::ledger::{self, ReadInput};
use crate::store::write::{Store, StoreError, TableName, TableSink, WriteOptions, WriteReport};
use crate::store::{Conflict, Token, WriteMode};
use crate::summary::counted;
use crate::time::Span;

/// Length of the live pipeline's windows where its variable is not set.
const LIVE_WINDOW_SECONDS: i64 = 60;

/// The length of the live pipeline's windows, which is that of rows that do not say.
pub fn live_window_seconds() -> i64 {
    let set = std::env::var("WINDOW_SECONDS").ok().and_then(|text| text.parse::<Span>().ok());
    set.map_or(LIVE_WINDOW_SECONDS, Span::seconds)
}

/// The flags of the command line that are for tables alone. Where there is no table it would do nothing,
/// and who gives it means something. A variable is another matter: it is set for every command.
pub fn flags_for_tables(args: &TableArgs) -> impl Iterator<Item = &'static str> {
    let flags = [
        ("--write", args.write.is_some()),
        ("--again", args.again),
        ("--conflicts", args.conflicts.is_some()),
        ("--create-table", args.create_table),
        ("--write-rate", args.write_rate.is_some() && std::env::var_os("AIS_REPLAY_WRITE_RATE").is_none()),
    ];
    flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag)
}

/// Whether the command line, and no variable, names the run.
pub fn names_run(run_id: Option<&str>) -> bool {
    run_id.is_some() && std::env::var_os("AIS_REPLAY_RUN_ID").is_none()
}

/// Refuses a table without a name, which neither the flag nor `AGG_TABLE` gives.
pub fn refuse_unnamed(name: &TableName, flag: &str) -> Result<(), Usage> {
    let is_set = || std::env::var_os("AGG_TABLE").is_some_and(|name| !name.is_empty());
    match name {
        TableName::DynamoDb(None) if !is_set() => {
            Err(Usage(format!("no table is named: give {flag} dynamodb:TABLE or {flag} sqlite:PATH, or set AGG_TABLE")))
        }
        TableName::DynamoDb(_) | TableName::Sqlite(_) => Ok(()),
    }
}

/// Opens a table to write to.
///
/// # Errors
///
/// See [`TableSink::open`].
pub fn open(
    name: &TableName,
    args: &TableArgs,
    aws: &AwsArgs,
    default: WriteMode,
    dry_run: bool,
    console: Console,
) -> Result<TableSink, StoreError> {
    let options = WriteOptions {
        mode: args.write.unwrap_or(default),
        again: args.again,
        conflicts: args.conflicts.clone(),
        live_window_seconds: live_window_seconds(),
        dry_run,
        write_rate: args.write_rate,
    };
    TableSink::open(name, args.create_table, &aws.options(console), options)
}

/// A token of inputs and options: the same for the same, wherever they lie and in whatever order they are named. With
/// `--again` it is that of another run, or every row would be told from its mark to hold this one already.
///
/// # Errors
///
/// None: sixteen hexadecimal digits are a token.
pub fn token(options: &str, inputs: &[ReadInput], again: bool) -> Result<Token, Usage> {
    let mut digests: Vec<&str> = inputs.iter().map(|input| input.identity.sha256.as_str()).collect();
    digests.sort_unstable();
    let mut hasher = Sha256::new();
    hasher.update(options);
    hasher.update(if again { " again\n" } else { "\n" });
    hasher.update(digests.join(" "));
    Token::new(&hexadecimal(&hasher.finalize()[..8])).map_err(Usage)
}

/// A progress bar for the rows of a table, where somebody sees it.
pub fn bar(sink: &Sink, console: Console) -> Option<ProgressBar> {
    let Sink::Table(table) = sink else { return None };
    console.shows_progress().then(|| {
        let style = ProgressStyle::with_template("{bar:28} {pos} of {len} rows written  {per_sec}  {eta} left");
        let bar = ProgressBar::with_draw_target(Some(table.rows()), ProgressDrawTarget::stderr_with_hz(10))
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"))
            .with_finish(indicatif::ProgressFinish::AndClear);
        console::note_bar(&bar);
        bar
    })
}

/// Shows how many rows are written.
pub fn show(bar: Option<&ProgressBar>, rows: u64) {
    if let Some(bar) = bar {
        bar.set_position(rows);
    }
}

/// Says what a dry run's rows would cost.
pub fn tell_cost(targets: &[Target], rows: u64, write_rate: Option<u32>, console: Console) {
    for target in targets {
        if let Target::Table(TableName::DynamoDb(_)) = target {
            // An update of an item up to 1 KB is one write unit, also where its condition fails; a run has two records.
            let units = rows + 2;
            let time = write_rate.map(|rate| std::time::Duration::from_secs(units.div_ceil(u64::from(rate))));
            let time = time.map(|time| format!(", about {} at --write-rate", HumanDuration(time))).unwrap_or_default();
            console.note(format_args!("{target}: {} write units at most{time}", HumanCount(units)));
        }
    }
}

/// Says which rows were left alone and what helps. Returns whether there were any.
pub fn tell_conflicts(reports: &[WriteReport], args: &TableArgs, console: Console) -> bool {
    let mut any = false;
    for report in reports.iter().filter(|report| report.rows.conflicts > 0) {
        any = true;
        let first = report.first_conflict.as_deref().unwrap_or_default();
        console.error(format_args!(
            "{}: {} left alone; first {first}",
            report.table,
            counted(report.rows.conflicts, "row")
        ));
        let has = |kind| report.conflict_kinds.contains(&kind);
        if has(Conflict::OtherWindow) {
            console.hint("windows of two lengths do not mix: give --window as those rows have it, or another table");
        }
        if has(Conflict::Occupied) {
            match &args.conflicts {
                Some(path) => console.hint(format_args!(
                    "recompute just these from a source that holds them whole: --only {} --write replace",
                    path.display()
                )),
                None => console.hint("--conflicts PATH lists them in the form that --only reads, for --write replace"),
            }
        }
        if has(Conflict::Replaced) || has(Conflict::TooSmall) {
            console.hint("what they should hold can be set from a source that holds them whole: --write replace");
        }
    }
    any
}

/// Runs `ais-replay runs`.
///
/// # Errors
///
/// Where the table cannot be read.
pub fn runs(args: &RunsArgs, console: Console) -> anyhow::Result<Status> {
    let name = args.table.clone().unwrap_or(TableName::DynamoDb(None));
    refuse_unnamed(&name, "--in")?;
    let ledger = Store::open(&name, false, &args.aws.options(console), None)?.ledger()?;
    let mut out = BufWriter::new(io::stdout());
    let mut print = || -> io::Result<()> {
        for record in &ledger.records {
            if args.json {
                serde_json::to_writer(&mut out, record)?;
                writeln!(out)?;
                continue;
            }
            let state = serde_json::to_value(record.state)?;
            writeln!(
                out,
                "{}  {}  {}  {}  {}, {} left alone",
                ledger::started(record),
                record.token,
                record.mode,
                state.as_str().unwrap_or_default(),
                counted(record.rows, "row"),
                HumanCount(record.conflicts)
            )?;
            for input in &record.inputs {
                writeln!(out, "    {}  {} bytes", input.name, input.bytes)?;
            }
        }
        out.flush()
    };
    print().map_err(SinkError::stdout)?;
    if ledger.records.is_empty() {
        console.note(format_args!("{} holds no run record", ledger.table));
    }
    Ok(Status::Complete)
}
