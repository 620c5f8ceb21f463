//! `ais-replay verify`: what a result holds, and whether another one agrees.

use std::io::{self, BufWriter, Write};

use super::args::{VerifyArgs, VerifyForm};
use super::collect::{Collect, Rows};
use super::console::Console;
use super::replay::Extent;
use super::settings::{self, Resolved};
use super::{Status, Usage, tables};
use crate::aws::AwsOptions;
use crate::engine::clock::Lateness;
use crate::report::MessageTypes;
use crate::row::Row;
use crate::run::{self, Plan};
use crate::sink::SinkError;
use crate::sink::rows::{Form, RowWriter};
#[cfg(feature = "aws")]
use crate::source::kinesis::{ReadShare, Stream};
#[cfg(feature = "aws")]
use crate::source::s3;
use crate::source::{Input, file};
use crate::store::write::{Keys, TableName};
use crate::summary::{FromEnvironment, counted};
use crate::verify::{self, Difference, Held, Reference, TableRef};

/// Runs the command.
///
/// # Errors
///
/// Where a result cannot be read, or the output not be written.
pub fn run(args: &VerifyArgs, from_environment: &[FromEnvironment], console: Console) -> anyhow::Result<Status> {
    let now = settings::now();
    let default_lateness = args.against.as_ref().map_or(Lateness::Unbounded, Reference::default_lateness);
    let Resolved { plan, notes } = settings::resolve(&args.replay, default_lateness, now)?;
    notes.iter().for_each(|note| console.note(note));
    from_environment.iter().for_each(|set| console.note(format_args!("set by {set}")));
    refuse_filters_of_sentences(args)?;
    let aws = args.aws.options(console);
    let table = args.table.clone().unwrap_or(TableRef::Table(TableName::DynamoDb(None)));
    refuse_unnamed(&table, args)?;
    let keys = keys(args, &plan);
    let is_dynamodb = |result: &TableRef| matches!(result, TableRef::Table(TableName::DynamoDb(_)));
    let against = matches!(&args.against, Some(Reference::Table(other)) if is_dynamodb(other));
    if !keys.prefixes.is_empty() && (against || is_dynamodb(&table)) {
        console.warning("a beginning of cells is no key: the whole table is read for it, and paid for");
    }
    let rows = read(&table, &keys, &plan, &aws, console)?;
    let mut out = BufWriter::new(io::stdout());
    let Some(reference) = &args.against else {
        let rows: Vec<Row> = rows.into_values().collect();
        for cell in keys.cells.iter().filter(|cell| !rows.iter().any(|row| row.cell == **cell)) {
            console.warning(format_args!("{table} holds no window of cell {cell}"));
        }
        if rows.is_empty() && keys.cells.is_empty() {
            console.warning(format_args!("{table} holds no such window"));
        }
        print(&mut out, args, &keys, &rows).and_then(|()| out.flush()).map_err(SinkError::stdout)?;
        return Ok(Status::Complete);
    };
    let (others, compared) = match reference {
        Reference::Table(other) => (read(other, &keys, &plan, &aws, console)?, keys),
        Reference::File(path) => {
            (replayed_whole(&file::find(std::slice::from_ref(path))?.inputs, &plan, console)?, keys)
        }
        #[cfg(feature = "aws")]
        Reference::Objects(url) => {
            let found = s3::find(std::slice::from_ref(url), &args.bucket.options(&args.aws, console))?;
            (replayed_whole(&found.inputs, &plan, console)?, keys)
        }
        #[cfg(feature = "aws")]
        Reference::Stream(name) => {
            super::kinesis::since_and_until(&plan, now)?;
            let stream = Stream::open(name, &aws, ReadShare::WHOLE, None)?;
            let mut narrowed = plan.clone();
            let material = super::kinesis::material(&stream, &mut narrowed, now, console)?;
            material.warnings.iter().for_each(|warning| console.warning(warning));
            // A window that the stream cannot give whole is no difference.
            (replayed(&material.inputs, material.extent, &narrowed, console)?, self::keys(args, &narrowed))
        }
    };
    let (mut rows, mut others) = (rows, select(others, &plan));
    for side in [&mut rows, &mut others] {
        side.retain(|(start, cell), _| compared.hold(*cell, *start));
    }
    let differences = verify::differences(&rows, &others);
    print_differences(&mut out, args, &table, reference, &differences)
        .and_then(|()| out.flush())
        .map_err(SinkError::stdout)?;
    if differences.is_empty() {
        console.note(format_args!("no difference: {} agree", counted(rows.len() as u64, "row")));
        return Ok(Status::Complete);
    }
    console.note(format_args!(
        "{}: {} in {}, {} in {reference}",
        counted(differences.len() as u64, "difference"),
        counted(rows.len() as u64, "row"),
        table,
        counted(others.len() as u64, "row")
    ));
    Ok(Status::Difference)
}

/// Tables have names, on either side.
fn refuse_unnamed(table: &TableRef, args: &VerifyArgs) -> Result<(), Usage> {
    let against = match &args.against {
        Some(Reference::Table(table)) => Some(("--against", table)),
        _ => None,
    };
    for (flag, table) in [("--in", table)].into_iter().chain(against) {
        if let TableRef::Table(name) = table {
            tables::refuse_unnamed(name, flag)?;
        }
    }
    Ok(())
}

/// A result has no message types and no positions, so what filters by them would fall on one side of a comparison alone.
fn refuse_filters_of_sentences(args: &VerifyArgs) -> Result<(), Usage> {
    let against_sentences = matches!(&args.against, Some(reference) if !matches!(reference, Reference::Table(_)));
    let types: MessageTypes = args.replay.types.iter().copied().collect();
    if !against_sentences && (types != MessageTypes::LIVE_PIPELINE || args.replay.bbox.is_some()) {
        return Err(Usage("--types and --bbox are for --against a log or a stream: a result knows neither".to_owned()));
    }
    Ok(())
}

/// The keys that were asked for.
fn keys(args: &VerifyArgs, plan: &Plan) -> Keys {
    let cells =
        |prefix: bool| args.cells.iter().filter(move |pattern| pattern.is_prefix == prefix).map(|pattern| pattern.cell);
    Keys {
        cells: cells(false).collect(),
        prefixes: cells(true).collect(),
        from: plan.selection.since,
        to: plan.selection.until.map(|until| until.saturating_sub(plan.window.length())),
    }
}

/// The rows of a result that the filters leave.
fn read(table: &TableRef, keys: &Keys, plan: &Plan, aws: &AwsOptions, console: Console) -> anyhow::Result<Rows> {
    let Held { rows, restored, without_sum } = table.read(keys, aws)?;
    let rows = select(rows, plan);
    for (odd, what) in [
        (restored, "went through a float: read as the nearest tenth of a knot"),
        (without_sum, "is missing: shown as 0, and no average is to be believed"),
    ] {
        let number = odd.iter().filter(|key| rows.contains_key(*key)).count() as u64;
        if number > 0 {
            console.note(format_args!("in {table}, the sog_sum of {} {what}", counted(number, "row")));
        }
    }
    Ok(rows)
}

/// The rows that the filters leave.
fn select(mut rows: Rows, plan: &Plan) -> Rows {
    let (prefixes, only) = (&plan.filter.cells, plan.selection.only.as_ref());
    rows.retain(|(start, cell), _| {
        (prefixes.is_empty() || prefixes.iter().any(|prefix| cell.starts_with(*prefix)))
            && only.is_none_or(|keys| keys.contains(&(*cell, *start)))
    });
    rows
}

/// The rows that sentences give whose size is known.
fn replayed_whole(inputs: &[Input], plan: &Plan, console: Console) -> anyhow::Result<Rows> {
    replayed(inputs, Extent::of(inputs), plan, console)
}

/// The rows that the sentences themselves give.
fn replayed(inputs: &[Input], extent: Extent, plan: &Plan, console: Console) -> anyhow::Result<Rows> {
    let mut collect = Collect::new(console, extent);
    let outcome = run::run(inputs, plan, &mut collect);
    let rows = collect.into_rows();
    let outcome = outcome?;
    let unusable = super::replay::unusable(&outcome, plan);
    if let Some(message) = unusable.first() {
        anyhow::bail!("{message}");
    }
    if super::replay::nothing_used(&outcome) {
        anyhow::bail!("{}", super::replay::NO_REPORT);
    }
    let rejected: u64 = outcome.partitions.iter().map(|input| input.tally.all_rejected()).sum();
    if rejected > 0 {
        console.warning(format_args!(
            "{} sentences were rejected; 'ais-replay file' tells why",
            indicatif::HumanCount(rejected)
        ));
    }
    let late = outcome.pairs.late;
    if late > 0 {
        console.warning(format_args!(
            "{} late at --lateness {}, and not compared",
            counted(late, "report"),
            plan.lateness
        ));
    }
    Ok(rows)
}

fn print(out: &mut impl Write, args: &VerifyArgs, keys: &Keys, rows: &[Row]) -> io::Result<()> {
    let form = match args.format {
        None => return verify::print_cells(out, &keys.cells, rows),
        Some(VerifyForm::Json) => Form::Json,
        Some(VerifyForm::Csv) => Form::Csv,
    };
    let mut writer = RowWriter::new(out, form, false);
    writer.write(rows)?;
    writer.finish().map(|_| ())
}

fn print_differences(
    out: &mut impl Write,
    args: &VerifyArgs,
    table: &TableRef,
    reference: &Reference,
    differences: &[Difference],
) -> io::Result<()> {
    match args.format {
        Some(VerifyForm::Json) => {
            serde_json::to_writer_pretty(&mut *out, differences)?;
            writeln!(out)
        }
        Some(VerifyForm::Csv) => {
            let mut csv = csv::Writer::from_writer(out);
            csv.write_record([
                "cell",
                "window_start",
                "in_count",
                "in_sog_sum",
                "in_sog_missing",
                "against_count",
                "against_sog_sum",
                "against_sog_missing",
            ])?;
            for difference in differences {
                let mut record = vec![difference.cell.clone(), difference.window_start.to_string()];
                for numbers in [difference.ours, difference.theirs] {
                    record.extend(match numbers {
                        Some(n) => [n.count.to_string(), n.sog_sum.to_string(), n.sog_missing.to_string()],
                        None => Default::default(),
                    });
                }
                csv.write_record(&record)?;
            }
            csv.flush()
        }
        None => differences.iter().try_for_each(|Difference { cell, window_start, ours, theirs }| {
            write!(out, "{cell} window {window_start}: ")?;
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => writeln!(out, "{ours} in {table}, {theirs} in {reference}"),
                (Some(ours), None) => writeln!(out, "{ours} in {table}, not in {reference}"),
                (None, Some(theirs)) => writeln!(out, "not in {table}, {theirs} in {reference}"),
                (None, None) => Ok(()),
            }
        }),
    }
}
