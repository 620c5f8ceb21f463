//! `ais-replay reconcile`: late reports to the windows that they missed.

use super::Status;
use super::args::ReconcileArgs;
use super::console::Console;
use crate::reconcile::{Added, AggregateFile, Increments};
use crate::sink::{Sink, Target};
use crate::summary::counted;

/// Runs the command.
///
/// # Errors
///
/// Where a late file cannot be read or added, or the result not be written.
pub fn run(args: &ReconcileArgs, console: Console) -> anyhow::Result<Status> {
    let increments = Increments::read(&args.late)?;
    let rows = increments.rows();
    let what = format!(
        "{} and {}, for {}",
        counted(increments.reports, "late report"),
        counted(increments.aggregated_rows, "summed row"),
        counted(rows.len() as u64, "row")
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
    let Added { merged, new } = increments.add_into(path, args.again, args.dry_run)?;
    let verb = if args.dry_run { "would change" } else { "changed" };
    console.note(format_args!(
        "{what}: {verb} {} of {}, {} of them new",
        counted(merged + new, "row"),
        path.display(),
        new
    ));
    Ok(Status::Complete)
}
