//! `ais-replay reconcile`: late reports to the windows that they missed.

use anyhow::Context;

use super::Status;
use super::args::ReconcileArgs;
use super::console::Console;
use crate::reconcile::{Added, AggregateFile, Increments, ReconcileError};
use crate::sink::{Sink, Target};

/// Runs the command.
///
/// # Errors
///
/// Where a late file cannot be read or added, or the result not be written.
pub fn run(args: &ReconcileArgs, console: Console) -> anyhow::Result<Status> {
    let increments = Increments::read(&args.late)?;
    let rows = increments.rows();
    let what = format!(
        "{} late reports and {} rows of sums, for {} (cell, window) rows",
        increments.reports,
        increments.aggregated_rows,
        rows.len()
    );
    let Some(AggregateFile::Csv(path)) = &args.into else {
        if !args.dry_run {
            let form = args.format.unwrap_or_else(super::file::default_form);
            let mut sink = Sink::open(&Target::Stdout, form, args.utc)?;
            sink.write(&rows)?;
            sink.finish()?;
        }
        console.note(format_args!("{what}: printed as increments; --into csv:PATH adds them to a result"));
        return Ok(Status::Complete);
    };
    let Added { merged, new } = increments
        .add_into(path, args.again, args.dry_run)
        .map_err(|error| {
            let repeated = matches!(error, ReconcileError::Repeated { .. });
            let error = anyhow::Error::from(error);
            if repeated { error.context("nothing was added; --again adds a file once more") } else { error }
        })
        .with_context(|| format!("cannot reconcile into {}", path.display()))?;
    let verb = if args.dry_run { "would change" } else { "changed" };
    console.note(format_args!("{what}: {verb} {merged} rows of {} and added {new}", path.display()));
    Ok(Status::Complete)
}
