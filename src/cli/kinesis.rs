//! `ais-replay kinesis`: a stream from a point in time on, and failed batches of it.

use std::sync::Arc;

use hashbrown::HashSet;
use sha2::{Digest, Sha256};

use super::args::{KinesisArgs, RunArgs};
use super::collect::Collect;
use super::console::Console;
use super::replay::{self, Extent, Identity, Material};
use super::settings::{self, Resolved};
use super::{Status, Usage};
use crate::cell::Cell;
use crate::engine::clock::Lateness;
use crate::run::{self, Plan};
use crate::sink::Target;
use crate::source::content::hexadecimal;
use crate::source::failed_batch::{self, FailedBatch};
use crate::source::kinesis::{SKEW_SECONDS, Stream};
use crate::source::{Input, ReadOptions};
use crate::store::WriteMode;
use crate::store::ledger::{InputIdentity, ReadInput, StreamRange};
use crate::summary::{FromEnvironment, counted};
use crate::time::{Timestamp, seconds_to_rfc3339};

/// Up to how long ago the live consumer may still be busy.
const LIVE_SECONDS: i64 = 300;

/// What is left to the oldest records before they are gone, while their iterators are asked for.
const EXPIRY_SECONDS: i64 = 60;

/// Runs the command.
///
/// # Errors
///
/// Where the stream or an output fails, or flags contradict each other.
pub fn run(args: &KinesisArgs, from_environment: Vec<FromEnvironment>, console: Console) -> anyhow::Result<Status> {
    let Some(name) = args.stream.as_deref().filter(|_| args.failed_batch.is_empty()) else {
        return failed_batches(args, from_environment, console);
    };
    let now = settings::now();
    let Resolved { mut plan, notes } = settings::resolve(&args.run.replay, Lateness::LIVE_PIPELINE, now)?;
    notes.iter().for_each(|note| console.note(note));
    // Before anything is asked: these need no stream to be wrong.
    since_and_until(&plan, now)?;
    refuse_half_windows(&plan, &args.run)?;
    let stream = Stream::open(name, &args.run.aws.options(console), args.read_share, args.consumer.as_deref())?;
    let material = material(&stream, &mut plan, now, console)?;
    replay::replay(material, plan, &args.run, from_environment, console)
}

/// A shard is left once its watermark has passed the range, so at a finite lateness nobody knows what still came for it.
fn refuse_half_windows(plan: &Plan, args: &RunArgs) -> Result<(), Usage> {
    let into_table = args.output.to.iter().any(|target| matches!(target, Target::Table(_)));
    if into_table && args.table.write == Some(WriteMode::Replace) && plan.lateness != Lateness::Unbounded {
        return Err(Usage(format!(
            "--write replace does not go with --lateness {} from a stream: what came later than that would be missing from \
             windows that are whole now; give --lateness unbounded",
            plan.lateness
        )));
    }
    Ok(())
}

/// The range as the flags have it, epoch seconds; its end may be open.
///
/// # Errors
///
/// Where it has no beginning, or an end that lies ahead.
pub fn since_and_until(plan: &Plan, now: Timestamp) -> Result<(i64, Option<i64>), Usage> {
    let Some(since) = plan.selection.since else {
        return Err(Usage(
            "a stream is read from a point in time on: give --since, an instant or an age such as 2h".to_owned(),
        ));
    };
    let until = plan.selection.until;
    let ahead = |at: i64| at > now.seconds();
    if ahead(since) {
        return Err(Usage(format!("--since {} lies ahead of this machine's clock ({now})", seconds_to_rfc3339(since))));
    }
    match until.filter(|until| ahead(*until)) {
        Some(until) => Err(Usage(format!(
            "--until {} lies ahead of this machine's clock ({now}): leave it out to read up to now",
            seconds_to_rfc3339(until)
        ))),
        None => Ok((since, until)),
    }
}

/// The shards of a stream for the range of a plan, which is narrowed to the windows that can be whole.
///
/// # Errors
///
/// Where the range lies ahead, or nothing of it is left; where the stream cannot be asked.
pub fn material(stream: &Arc<Stream>, plan: &mut Plan, now: Timestamp, console: Console) -> anyhow::Result<Material> {
    let mut warnings = Vec::new();
    let mut unrepeatable = None;
    let (mut since, until) = since_and_until(plan, now)?;
    let until = until.unwrap_or_else(|| {
        console.note(format_args!("--until is {now}, the start of this run"));
        unrepeatable = Some(
            "without --until the range ends with the start of the run, so this run could not be the same again: name it with \
             --run-id, or give --until"
                .to_owned(),
        );
        now.seconds()
    });
    if let Some((oldest, whole_from)) = whole_from(stream, now)
        && since < whole_from
    {
        warnings.push(format!(
                "{} keeps a record for {} h, so it holds nothing from before {oldest}: windows that start before {} are left \
                 out, since half of one could be missing",
                stream.shown(),
                stream.retention_hours(),
                seconds_to_rfc3339(whole_from)
            ));
        unrepeatable = Some(format!(
            "--since lies before what {} still holds, so this run could not be the same again: name it with --run-id, or \
                 give a later --since",
            stream.shown()
        ));
        since = whole_from;
    }
    if since >= until {
        let why: String = warnings.iter().map(|warning| format!("{warning}: ")).collect();
        anyhow::bail!("{why}nothing is left of the range up to {}", seconds_to_rfc3339(until));
    }
    if until > now.seconds() - LIVE_SECONDS {
        warnings.push(format!(
            "the range ends at {}, less than {} minutes ago: reports of its last windows may still be on their way, and the \
             live consumer may still be adding to them; what goes into a table now is to be replaced later",
            seconds_to_rfc3339(until),
            LIVE_SECONDS / 60
        ));
    }
    (plan.selection.since, plan.selection.until) = (Some(since), Some(until));
    // The service knows no time before 1970.
    let from = Timestamp::from_seconds(since.saturating_sub(SKEW_SECONDS).max(0)).unwrap_or(Timestamp::from_nanos(0));
    let inputs = stream.shards(from)?;
    if inputs.is_empty() {
        anyhow::bail!("{} has no shard that holds anything from {from} on", stream.shown());
    }
    Ok(Material {
        inputs,
        extent: Extent::Time { since, until },
        identity: Identity::OfAll(Box::new(identity(stream, since, until, ""))),
        unrepeatable,
        warnings,
    })
}

/// From when on a stream holds records, and from which start on its windows can be whole, in epoch seconds; `None` where it
/// holds all that ever arrived.
fn whole_from(stream: &Stream, now: Timestamp) -> Option<(Timestamp, i64)> {
    stream.oldest(now).map(|oldest| (oldest, oldest.seconds() + EXPIRY_SECONDS + SKEW_SECONDS))
}

/// How a table knows a range of a stream again; `why` tells two reasons to read it apart.
fn identity(stream: &Stream, since: i64, until: i64, why: &str) -> ReadInput {
    let text = format!("kinesis {} {since} {until}{why}", stream.arn());
    let (from, to) = (seconds_to_rfc3339(since), seconds_to_rfc3339(until));
    let identity = InputIdentity {
        name: format!("{} {from} to {to}", stream.shown()),
        sha256: hexadecimal(&Sha256::digest(text)),
        bytes: 0,
        range: Some(StreamRange { stream: stream.arn().to_owned(), since, until }),
    };
    ReadInput { identity, beginnings: Vec::new() }
}

/// What failed batches touch; with `--repair`, those windows anew from the stream.
fn failed_batches(
    args: &KinesisArgs,
    from_environment: Vec<FromEnvironment>,
    console: Console,
) -> anyhow::Result<Status> {
    refuse_odd_flags(args)?;
    let batches = failed_batch::read(&args.failed_batch)?;
    let arn = one_stream(&batches)?;
    let now = settings::now();
    let Resolved { plan, notes } = settings::resolve(&args.run.replay, Lateness::Unbounded, now)?;
    let from_stream = args.repair || batches.iter().any(|batch| batch.enclosed.is_none());
    let stream = match from_stream {
        true => Some(open_of(args.stream.as_deref(), arn, args, console)?),
        false => None,
    };
    let mut inputs = Vec::new();
    let mut gone = 0;
    for batch in &batches {
        if let Some(enclosed) = batch.enclosed_input() {
            inputs.push(enclosed);
        } else if let Some(stream) = &stream {
            let shard = stream.batch(batch);
            if shard.still_holds_batch()? {
                inputs.push(Input::Shard(shard));
            } else {
                gone += 1;
                console.error(format_args!(
                    "{}: {} no longer holds the records of this batch: it keeps a record for {} h",
                    batch.name,
                    stream.shown(),
                    stream.retention_hours()
                ));
            }
        }
    }
    let status = match stream.filter(|_| args.repair) {
        _ if inputs.is_empty() => Status::Failed,
        Some(stream) => {
            notes.iter().for_each(|note| console.note(note));
            repair(&stream, &batches, &inputs, plan, args, from_environment, console)?
        }
        None => {
            notes.iter().for_each(|note| console.note(note));
            let material = Material {
                inputs,
                extent: Extent::Bytes(None),
                identity: Identity::OfEach,
                unrepeatable: None,
                warnings: Vec::new(),
            };
            replay::replay(material, plan, &args.run, from_environment, console)?
        }
    };
    Ok(if gone > 0 { Status::Failed } else { status })
}

fn refuse_odd_flags(args: &KinesisArgs) -> Result<(), Usage> {
    let tables = args.run.output.to.iter().filter(|target| matches!(target, Target::Table(_))).count();
    let usage = |message: &str| Err(Usage(message.to_owned()));
    if !args.repair {
        return match tables {
            0 => Ok(()),
            _ => usage(
                "a failed batch alone is no whole window, and the live handler may have added part of it: give --repair, which \
                 sets the windows that it touches from the stream",
            ),
        };
    }
    let replay = &args.run.replay;
    if tables == 0 {
        return usage("--repair sets windows in a table: name it with --to dynamodb:TABLE or sqlite:PATH");
    }
    if args.run.table.write.is_some_and(|mode| mode != WriteMode::Replace) {
        return usage("--repair replaces windows: leave --write out");
    }
    if replay.since.is_some() || replay.until.is_some() || replay.only.is_some() {
        return usage("the failed batches say which windows --repair is about: leave --since, --until and --only out");
    }
    Ok(())
}

/// The stream of all the batches.
fn one_stream(batches: &[FailedBatch]) -> Result<&str, Usage> {
    let mut arns = batches.iter().map(|batch| (batch.stream_arn.as_str(), batch.name.as_str()));
    let Some((arn, first)) = arns.next() else { return Err(Usage("--failed-batch names no document".to_owned())) };
    match arns.find(|(other, _)| *other != arn) {
        Some((other, name)) => Err(Usage(format!(
            "{first} is of {arn} and {name} of {other}: give the batches of each stream by themselves"
        ))),
        None => Ok(arn),
    }
}

/// Opens the stream of the batches, which the command line may name too.
fn open_of(name: Option<&str>, arn: &str, args: &KinesisArgs, console: Console) -> anyhow::Result<Arc<Stream>> {
    let stream =
        Stream::open(name.unwrap_or(arn), &args.run.aws.options(console), args.read_share, args.consumer.as_deref())?;
    if stream.arn() != arn {
        return Err(Usage(format!("the failed batches are of {arn}, and not of {}", stream.arn())).into());
    }
    Ok(stream)
}

/// Sets the windows that batches touch from the whole stream.
fn repair(
    stream: &Arc<Stream>,
    documents: &[FailedBatch],
    batches: &[Input],
    mut plan: Plan,
    args: &KinesisArgs,
    mut from_environment: Vec<FromEnvironment>,
    console: Console,
) -> anyhow::Result<Status> {
    let now = settings::now();
    // The live pipeline's own variable would leave out what came later than that.
    if from_environment.iter().any(|set| set.flag == "--lateness") {
        plan.lateness = Lateness::Unbounded;
        from_environment.retain(|set| set.flag != "--lateness");
    }
    let mut touched = Collect::new(console, Extent::Bytes(None));
    // Whatever is late in the stream: the handler may have added any report of the batch.
    let whole = Plan { lateness: Lateness::Unbounded, read: ReadOptions::default(), ..plan.clone() };
    let outcome = run::run(batches, &whole, &mut touched);
    let rows = touched.into_rows();
    let outcome = outcome?;
    let unusable = replay::unusable(&outcome, &plan);
    unusable.iter().for_each(|message| console.error(message));
    if rows.is_empty() {
        anyhow::bail!("the failed batches touch no window: {}", replay::NO_REPORT);
    }
    let length = plan.window.length();
    let cells: HashSet<Cell> = rows.keys().map(|(_, cell)| *cell).collect();
    console.note(format_args!(
        "{} in {} touch {} of {}",
        counted(outcome.partitions.iter().map(|batch| batch.tally.lines).sum(), "record"),
        match batches.len() {
            1 => "1 failed batch".to_owned(),
            number => format!("{number} failed batches"),
        },
        counted(rows.len() as u64, "window"),
        counted(cells.len() as u64, "cell")
    ));
    let whole_from = whole_from(stream, now).map_or(i64::MIN, |(_, whole_from)| whole_from);
    let (mut keys, mut left) = (HashSet::new(), Vec::new());
    for (start, cell) in rows.into_keys() {
        if start >= whole_from && start + length <= now.seconds() {
            keys.insert((cell, start));
        } else {
            left.push((start, cell));
        }
    }
    if let Some((start, cell)) = left.first() {
        console.error(format_args!(
            "{} left as it is in the table, since the stream holds no whole window of it now; first cell {cell}, window {start}",
            counted(left.len() as u64, "window")
        ));
    }
    let starts = || keys.iter().map(|(_, start)| *start);
    let (Some(first), Some(last)) = (starts().min(), starts().max()) else { return Ok(Status::Failed) };
    plan.selection.since = Some(first);
    plan.selection.until = Some(last + length);
    plan.selection.only = Some(keys);
    let mut run_args = RunArgs::clone(&args.run);
    run_args.table.write = Some(WriteMode::Replace);
    refuse_half_windows(&plan, &run_args)?;
    let (since, until) = (first, last + length);
    let mut names: Vec<String> =
        documents.iter().map(|batch| format!(" {} {} {}", batch.shard, batch.first, batch.last)).collect();
    names.sort_unstable();
    // Other batches that touch the same windows are another repair: the handler has written in between.
    let of_these = identity(stream, since, until, &names.concat());
    let material =
        Material { identity: Identity::OfAll(Box::new(of_these)), ..material(stream, &mut plan, now, console)? };
    let status = replay::replay(material, plan, &run_args, from_environment, console)?;
    Ok(if left.is_empty() && unusable.is_empty() { status } else { Status::Failed })
}
