//! `ais-replay file`: sentences through the windows to the sinks.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::args::{FileArgs, OutputArgs};
use super::console::Console;
use super::progress::Bar;
use super::settings::{self, Resolved};
use super::{Status, Usage};
use crate::decode::tally::Reject;
use crate::reconcile;
use crate::row::Row;
use crate::run::{self, Outcome, Output, PartitionOutcome, Plan, Progress, RunError};
use crate::sink::atomic::AtomicFile;
use crate::sink::late::{Header, HeaderOptions, LateFile, LateReport};
use crate::sink::rows::Form;
use crate::sink::{Sink, SinkError, Target};
use crate::source::content::hexadecimal;
use crate::source::{Input, file};
use crate::summary::{self, FromEnvironment, Summary};

/// How far ahead of this machine's clock an event time may be before it is remarked on.
const REMARKABLE_LEAD_NANOS: i64 = 600 * crate::time::NANOS;

/// What there is to say of inputs whose sentences are all of other kinds.
pub(super) const NO_REPORT: &str = "nothing could be used: there is no position report of a vessel in the input";

/// Runs the command.
///
/// # Errors
///
/// Where an input or an output fails, or flags contradict each other.
pub fn run(args: &FileArgs, from_environment: Vec<FromEnvironment>, console: Console) -> anyhow::Result<Status> {
    let found = file::find(&args.paths)?;
    let Resolved { mut plan, notes } = settings::resolve(&args.replay, settings::now())?;
    notes.iter().for_each(|note| console.note(note));
    plan.read.digest = args.output.late.is_some() && !args.output.dry_run;
    let mut warnings: Vec<String> = Vec::new();
    warnings.extend(
        found.repeated.iter().map(|path| format!("{} is given more than once: it is read once", path.display())),
    );
    warnings.extend(found.passed_over.iter().map(|path| format!("{} is no file: it was passed over", path.display())));
    if let Some(only) = &args.replay.only {
        refuse_over_input(&outputs(&args.output), only)?;
    }
    replay(&found.inputs, &plan, &args.output, from_environment, warnings, console)
}

/// Replays inputs into the sinks that the flags name, and tells how it went.
fn replay(
    inputs: &[Input],
    plan: &Plan,
    output: &OutputArgs,
    from_environment: Vec<FromEnvironment>,
    mut warnings: Vec<String>,
    console: Console,
) -> anyhow::Result<Status> {
    let targets = if output.to.is_empty() { vec![Target::Stdout] } else { output.to.clone() };
    refuse_clashes(inputs, output)?;
    // Made now, so that a place where it cannot be is told before anything is read.
    let summary_file = output.summary.as_deref().map(AtomicFile::create).transpose()?;
    let mut files = Files::open(&targets, output, Bar::new(console, total_bytes(inputs)))?;
    let ran = run::run(inputs, plan, &mut files);
    files.bar.finish();
    let outcome = ran.map_err(|error| explain(error, &targets, files.closed))?;
    let unusable = unusable(&outcome, plan);
    warnings.extend(outcome.partitions.iter().flat_map(|input| oddities(input, plan)));
    let nothing_used = nothing_used(&outcome);
    let run_id = output.late.as_ref().map(|_| run_id(output, plan, &outcome));
    if nothing_used {
        files.sinks.clear();
    } else {
        let header = run_id.as_ref().map(|run| header(run, plan, &targets));
        files.finish(&targets, header)?;
    }
    let summary = Summary {
        plan,
        outcome: &outcome,
        targets: targets.iter().map(Target::to_string).collect(),
        late_file: output.late.as_ref().map(|path| path.display().to_string()),
        dry_run: output.dry_run,
        run: run_id,
        from_environment,
        warnings,
    };
    if let Some(mut file) = summary_file {
        let text = serde_json::to_string_pretty(&summary.to_json()).context("cannot put the summary into JSON")?;
        writeln!(file, "{text}").map_err(|error| file.error(error))?;
        file.commit()?;
    }
    summary.warnings.iter().for_each(|warning| console.warning(warning));
    if console.is_verbose() {
        outcome.partitions.iter().for_each(|input| console.note(input_line(input)));
    }
    console.note(summary.to_string().trim_end());
    if let Some(lost) = summary.lost() {
        console.loud(lost);
    }
    unusable.iter().for_each(|message| console.error(message));
    if nothing_used && unusable.is_empty() {
        console.error(NO_REPORT);
    }
    let rejected: u64 = outcome.partitions.iter().map(|input| input.tally.all_rejected()).sum();
    let strict = output.strict && (rejected > 0 || outcome.pairs.late > 0);
    if strict {
        console.error(format_args!("--strict: {rejected} rejected and {} late", outcome.pairs.late));
    }
    Ok(if nothing_used || strict || !unusable.is_empty() { Status::Failed } else { Status::Complete })
}

/// Total of the stored bytes, where all are known.
fn total_bytes(inputs: &[Input]) -> Option<u64> {
    inputs.iter().map(Input::stored_bytes).sum()
}

/// The open sinks and the late file of a run.
struct Files {
    sinks: Vec<Sink>,
    late: Option<LateFile>,
    bar: Bar,
    /// Whether standard output was closed by its reader.
    closed: bool,
}

impl Files {
    fn open(targets: &[Target], output: &OutputArgs, bar: Bar) -> anyhow::Result<Self> {
        if output.dry_run {
            return Ok(Self { sinks: Vec::new(), late: None, bar, closed: false });
        }
        let form = output.format.unwrap_or_else(default_form);
        let sinks = targets.iter().map(|target| Sink::open(target, form, output.utc)).collect::<Result<_, _>>()?;
        let late = output.late.as_deref().map(LateFile::create).transpose()?;
        Ok(Self { sinks, late, bar, closed: false })
    }

    fn finish(&mut self, targets: &[Target], header: Option<Header>) -> anyhow::Result<()> {
        // The late file first: rows without their late reports would be a loss, the other way about it is a repeat.
        if let (Some(late), Some(header)) = (self.late.take(), header) {
            late.finish(&header)?;
        }
        for sink in self.sinks.drain(..) {
            match sink.finish() {
                Err(SinkError::Closed) => {}
                ended => ended?,
            }
        }
        for target in targets {
            if let Target::Csv(path) = target {
                let fail = || {
                    format!(
                        "{} is written, but the record of what was reconciled into the old one is still there",
                        path.display()
                    )
                };
                reconcile::forget_record(path).with_context(fail)?;
            }
        }
        Ok(())
    }
}

/// What standard output gets unless `--format` says.
pub(super) fn default_form() -> Form {
    if std::io::stdout().is_terminal() { Form::Table } else { Form::Csv }
}

impl Output for Files {
    fn rows(&mut self, rows: &[Row]) -> Result<(), SinkError> {
        let mut place = 0;
        while let Some(sink) = self.sinks.get_mut(place) {
            match self.bar.aside(|| sink.write(rows)) {
                // The other targets still want their rows.
                Err(SinkError::Closed) if self.sinks.len() > 1 || self.late.is_some() => {
                    self.closed = true;
                    drop(self.sinks.remove(place));
                }
                written => {
                    written?;
                    place += 1;
                }
            }
        }
        Ok(())
    }

    fn late(&mut self, partition: usize, late: &dyn Fn() -> LateReport) {
        if let Some(file) = &mut self.late {
            file.push(partition, &late());
        }
    }

    fn progress(&mut self, progress: &Progress) {
        self.bar.show(progress);
    }
}

/// The files that a run writes.
fn outputs(output: &OutputArgs) -> Vec<&Path> {
    let csv = output.to.iter().filter_map(|target| match target {
        Target::Csv(path) => Some(path.as_path()),
        Target::Stdout => None,
    });
    csv.chain(output.late.as_deref()).chain(output.summary.as_deref()).collect()
}

/// A path by the file itself, where there is one.
fn itself(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// No output takes the place of something that is read.
fn refuse_over_input(outputs: &[&Path], input: &Path) -> Result<(), Usage> {
    match outputs.iter().find(|path| itself(path) == itself(input)) {
        Some(path) => Err(Usage(format!("{} is an input: an output would take its place", path.display()))),
        None => Ok(()),
    }
}

/// No two outputs into one file, and none over an input.
fn refuse_clashes(inputs: &[Input], output: &OutputArgs) -> Result<(), Usage> {
    if output.to.iter().filter(|target| **target == Target::Stdout).count() > 1 {
        return Err(Usage("--to stdout is given twice".to_owned()));
    }
    let outputs = outputs(output);
    for (place, path) in outputs.iter().enumerate() {
        let is_device = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        if !is_device && outputs[..place].iter().any(|other| itself(other) == itself(path)) {
            return Err(Usage(format!("two outputs would go to {}", path.display())));
        }
    }
    inputs.iter().try_for_each(|input| match input {
        Input::File(file) => refuse_over_input(&outputs, &file.path),
        Input::Stdin => Ok(()),
    })
}

/// Says what an input that broke off leaves behind.
fn explain(error: RunError, targets: &[Target], closed: bool) -> anyhow::Error {
    let (error, windows_emitted) = match error {
        RunError::Source { error, windows_emitted } => (error, windows_emitted),
        RunError::Sink(error) => return error.into(),
    };
    let to_stdout = targets.contains(&Target::Stdout) && !closed;
    let written = match windows_emitted {
        1.. if to_stdout => {
            format!("{windows_emitted} windows were already printed, each of them complete; no file was written")
        }
        _ => "nothing was written".to_owned(),
    };
    anyhow::Error::from(error).context(written)
}

/// Whether there was something to read, and nothing of it is a report that could be used.
pub(super) fn nothing_used(outcome: &Outcome) -> bool {
    outcome.partitions.iter().all(|input| input.tally.accepted == 0)
        && outcome.partitions.iter().any(|input| input.read.bytes > 0)
}

/// Inputs that the command line names and of which nothing can be used, and why.
pub(super) fn unusable(outcome: &Outcome, plan: &Plan) -> Vec<String> {
    let mut messages = Vec::new();
    for input in outcome.partitions.iter().filter(|input| input.read.bytes > 0 && input.tally.accepted == 0) {
        let tally = &input.tally;
        let no_time = tally.rejected(Reject::NoEventTime).number;
        if no_time > 0 {
            messages.push(format!(
                "{}: none of its {no_time} position reports has an event time; give {}",
                input.name,
                summary::time_hint(plan, tally)
            ));
        } else if tally.readable() == 0 && input.named {
            messages.push(format!("{}: no AIS sentence in it can be read", input.name));
        }
    }
    messages
}

/// What is odd about an input, though part of it could be used.
fn oddities(input: &PartitionOutcome, plan: &Plan) -> Vec<String> {
    let tally = &input.tally;
    let mut odd: Vec<String> = input.read.warning.clone().into_iter().collect();
    if input.read.bytes > 0 && tally.readable() == 0 && !input.named {
        odd.push(format!("{} holds no AIS sentence that can be read: it was passed over", input.name));
    }
    let no_time = tally.rejected(Reject::NoEventTime);
    if no_time.number > 0 && tally.accepted > 0 {
        odd.push(format!(
            "{}: {} of its position reports have no event time, the first in line {}; give {}",
            input.name,
            no_time.number,
            no_time.first,
            summary::time_hint(plan, tally)
        ));
    }
    if let Some(last) = input.last_time
        && last.nanos() > settings::now().nanos().saturating_add(REMARKABLE_LEAD_NANOS)
    {
        odd.push(format!("{}: its latest event time, {last}, is ahead of this machine's clock", input.name));
    }
    odd
}

fn input_line(input: &PartitionOutcome) -> String {
    let tally = &input.tally;
    format!(
        "{}: {} lines, {} accepted, {} parts, {} rejected, {} ignored",
        input.name,
        tally.lines,
        tally.accepted,
        tally.parts,
        tally.all_rejected(),
        tally.all_ignored()
    )
}

/// Name of the run: given, or the same for the same inputs and options wherever it runs.
fn run_id(output: &OutputArgs, plan: &Plan, outcome: &Outcome) -> String {
    if let Some(id) = &output.run_id {
        return id.clone();
    }
    let mut hasher = Sha256::new();
    let Plan { decode, window, lateness, precision, selection, filter, .. } = plan;
    let mut only: Vec<String> =
        selection.only.iter().flatten().map(|(cell, start)| format!("{cell}@{start}")).collect();
    only.sort_unstable();
    hasher.update(format!(
        "{decode:?} {window:?} {lateness} {precision:?} {:?} {:?} {only:?} {filter:?}",
        selection.since, selection.until
    ));
    let mut digests: Vec<&str> = outcome.partitions.iter().filter_map(|input| input.read.digest.as_deref()).collect();
    digests.sort_unstable();
    hasher.update(digests.join(" "));
    hexadecimal(&hasher.finalize()[..8])
}

fn header(run: &str, plan: &Plan, targets: &[Target]) -> Header {
    Header {
        late_format: 1,
        run: run.to_owned(),
        options: HeaderOptions {
            window_seconds: plan.window.length(),
            slide_seconds: plan.window.slide(),
            lateness: plan.lateness.to_string(),
            precision: plan.precision.length(),
            types: plan.filter.types.to_string(),
        },
        targets: targets.iter().map(Target::to_string).collect(),
    }
}
