//! `ais-replay reconcile`: late reports to the windows that they missed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::ReconcileArgs;
use super::console::Console;
use super::{Status, Usage, settings, tables};
use crate::reconcile::{Added, AggregateFile, Increments};
use crate::sink::{Sink, Target};
use crate::store::write::{ReadRun, TableName};
use crate::store::{Token, WriteMode};
use crate::summary::counted;

/// Runs the command.
///
/// # Errors
///
/// Where a late file cannot be read or added, or the result not be written.
pub fn run(args: &ReconcileArgs, console: Console) -> anyhow::Result<Status> {
    refuse_idle_flags(args)?;
    if let Some(table) = &args.to {
        return into_table(args, table, console);
    }
    let increments = Increments::read(&args.late, &[].into())?;
    let rows = increments.rows();
    let what = what(&increments, rows.len());
    let Some(AggregateFile::Csv(path)) = &args.into else {
        if !args.dry_run {
            let form = args.format.unwrap_or_else(super::replay::default_form);
            let mut sink = Sink::open(&Target::Stdout, form, args.utc, &|name| {
                tables::open(name, &args.table, &args.aws, WriteMode::Add, false, console)
            })?;
            sink.write(&rows)?;
            sink.finish(None, &mut |_| {})?;
        }
        console
            .note(format_args!("{what}: printed as increments; --into csv:PATH or --to TABLE adds them to a result"));
        return Ok(Status::Complete);
    };
    let Added { merged, new } = increments.add_into(path, args.table.again, args.dry_run)?;
    let verb = if args.dry_run { "would change" } else { "changed" };
    console.note(format_args!(
        "{what}: {verb} {} of {}, {} of them new",
        counted(merged + new, "row"),
        path.display(),
        new
    ));
    Ok(Status::Complete)
}

/// A flag that would do nothing is a misunderstanding.
fn refuse_idle_flags(args: &ReconcileArgs) -> Result<(), Usage> {
    if args.to.is_some() {
        return Ok(());
    }
    if args.table.again && args.into.is_none() {
        return Err(Usage("--again goes with --into or --to: without them nothing is added anywhere".to_owned()));
    }
    let run_id = tables::names_run(args.run_id.as_deref()).then_some("--run-id");
    let idle = tables::flags_for_tables(&args.table).chain(run_id).find(|flag| *flag != "--again");
    match idle {
        Some(flag) => Err(Usage(format!("{flag} is for tables: give --to TABLE with it"))),
        None => Ok(()),
    }
}

fn what(increments: &Increments, rows: usize) -> String {
    format!(
        "{} and {}, for {}",
        counted(increments.reports, "late report"),
        counted(increments.aggregated_rows, "summed row"),
        counted(rows as u64, "row")
    )
}

/// Adds late files to a table.
fn into_table(args: &ReconcileArgs, name: &TableName, console: Console) -> anyhow::Result<Status> {
    if matches!(args.table.write, Some(WriteMode::Insert | WriteMode::Replace)) {
        return Err(Usage(
            "late reports are what a window missed: they can be added (--write add) or taken back (--write undo)"
                .to_owned(),
        )
        .into());
    }
    tables::refuse_unnamed(name, "--to")?;
    let given = args.run_id.as_deref().map(Token::new).transpose().map_err(Usage)?;
    let passes = |path: &PathBuf| path.as_os_str() == "-" || fs::metadata(path).is_ok_and(|found| !found.is_file());
    if given.is_none() && args.late.iter().any(passes) {
        return Err(Usage(
            "standard input or a pipe cannot be read again: name the run with --run-id, so that the table knows it when it \
             comes again"
                .to_owned(),
        )
        .into());
    }
    let sqlite = match name {
        TableName::Sqlite(path) => Some(path.as_path()),
        TableName::DynamoDb(_) => None,
    };
    let outputs: Vec<&Path> = sqlite.into_iter().chain(args.table.conflicts.as_deref()).collect();
    args.late.iter().try_for_each(|late| super::replay::refuse_over_input(&outputs, late))?;
    let started_ms = settings::now().nanos() / 1_000_000;
    let mut table = tables::open(name, &args.table, &args.aws, WriteMode::Add, args.dry_run, console)?;
    let sizes: Arc<[u64]> = table.ledger().known_sizes().into_iter().collect();
    let increments = Increments::read(&args.late, &sizes)?;
    let rows = increments.rows();
    table.push(&rows)?;
    let (inputs, late_files) = increments.inputs();
    let window_seconds = increments.window_seconds().unwrap_or_else(tables::live_window_seconds);
    let options = format!("reconcile window={window_seconds}");
    let token = match given {
        Some(id) => id,
        None => tables::token(&options, &inputs, args.table.again)?,
    };
    let run = ReadRun { token, started_ms, inputs, late_files, options, window_seconds };
    table.check(&run)?;
    let what = what(&increments, rows.len());
    if args.dry_run {
        console.note(format_args!("{what}: nothing written"));
        tables::tell_cost(&[Target::Table(name.clone())], rows.len() as u64, args.table.write_rate, console);
        return Ok(Status::Complete);
    }
    super::note_table_written();
    let report = table.finish(&run, &mut |_| {})?;
    console.note(format_args!("{what}\n{report}"));
    let conflicts = tables::tell_conflicts(std::slice::from_ref(&report), &args.table, console);
    Ok(if conflicts { Status::Failed } else { Status::Complete })
}
