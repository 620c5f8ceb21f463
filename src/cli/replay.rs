//! What every command that replays does with what it has found to read: sentences through the windows to the sinks.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::args::{OutputArgs, RunArgs};
use super::console::Console;
use super::progress::Bar;
use super::settings;
use super::{Status, Usage, tables};
use crate::decode::event_time::EventTimeMode;
use crate::decode::tally::Reject;
use crate::reconcile;
use crate::report::MessageTypes;
use crate::run::{self, Finished, Outcome, Output, PartitionOutcome, Plan, Progress, RunError};
use crate::sink::atomic::AtomicFile;
use crate::sink::late::{Header, HeaderOptions, LateFile, LateReport};
use crate::sink::rows::{CsvLines, Form};
use crate::sink::{Sink, SinkError, Target};
use crate::source::Input;
use crate::source::content::hexadecimal;
use crate::store::ledger::ReadInput;
use crate::store::write::{ReadRun, StoreError, TableName, TableSink, WriteReport};
use crate::store::{Token, WriteMode};
use crate::summary::{self, FromEnvironment, Summary};
use crate::time::{TimeArg, Timestamp};

/// How far ahead of this machine's clock an event time may be before it is remarked on.
const REMARKABLE_LEAD_NANOS: i64 = 600 * crate::time::NANOS;

/// What there is to say of inputs whose sentences are all of other kinds.
pub(super) const NO_REPORT: &str = "nothing could be used: there is no position report of a vessel in the input";

/// What a command has found to read.
#[derive(Debug)]
pub struct Material {
    /// The inputs.
    pub inputs: Vec<Input>,
    /// How much they are, for the progress bar.
    pub extent: Extent,
    /// How a table knows them again.
    pub identity: Identity,
    /// Why the run could not be the same again, and so must be named where a table is written; `None` where it could.
    pub unrepeatable: Option<String>,
    /// What was odd in finding them.
    pub warnings: Vec<String>,
}

/// How much there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes as stored, where that is known.
    Bytes(Option<u64>),
    /// What happened in this range, epoch seconds.
    Time {
        /// From here.
        since: i64,
        /// To here.
        until: i64,
    },
}

impl Extent {
    /// That of inputs whose bytes are known, or not.
    #[must_use]
    pub fn of(inputs: &[Input]) -> Self {
        Self::Bytes(inputs.iter().map(Input::stored_bytes).sum())
    }
}

/// How a table knows inputs again.
#[derive(Debug)]
pub enum Identity {
    /// Each by itself, once it is read.
    OfEach,
    /// All of them as one.
    OfAll(Box<ReadInput>),
}

/// Replays inputs into the sinks that the flags name, and tells how it went.
///
/// # Errors
///
/// Where an input or an output fails, or flags contradict each other.
pub fn replay(
    material: Material,
    mut plan: Plan,
    args: &RunArgs,
    from_environment: Vec<FromEnvironment>,
    console: Console,
) -> anyhow::Result<Status> {
    let Material { inputs, extent, identity, unrepeatable, mut warnings } = material;
    if let Some(only) = &args.replay.only {
        refuse_over_input(&outputs(args), only)?;
    }
    refuse_clashes(&inputs, args)?;
    refuse_odd_table_flags(args)?;
    refuse_unrepeatable(args, unrepeatable)?;
    let output = &args.output;
    let targets = targets(output);
    // Made now, so that a place where it cannot be is told before anything is read.
    let summary_file = output.summary.as_deref().map(AtomicFile::create).transpose()?;
    let started = settings::now();
    let mut files = Files::open(&targets, args, Bar::new(console, extent), console)?;
    plan.read.digest = files.wanted_digests();
    let ran = run::run(&inputs, &plan, &mut files);
    files.bar.finish();
    let outcome = ran.map_err(|error| explain(error, &targets, files.closed))?;
    let unusable = unusable(&outcome, &plan);
    warnings.extend(outcome.partitions.iter().flat_map(|input| oddities(input, &plan)));
    let nothing_used = nothing_used(&outcome);
    let run = read_run(args, &plan, &outcome, &identity, started)?;
    let mut reports = Vec::new();
    if nothing_used {
        files.sinks.clear();
    } else {
        let mode = args.table.write.unwrap_or(WriteMode::Insert);
        if mode == WriteMode::Replace && outcome.pairs.late > 0 && files.has_table() {
            let late = outcome.pairs.late;
            anyhow::bail!(
                "{late} reports were late, and half a window must not replace a whole one: give --lateness unbounded, or leave \
                 --write replace out"
            );
        }
        files.check_tables(&run)?;
        if output.dry_run {
            files.sinks.clear();
        }
        reports = files.finish(&targets, &header(run.token.text(), &plan, &targets), &run, output.dry_run, console)?;
    }
    let summary = Summary {
        source: match &identity {
            Identity::OfEach => None,
            Identity::OfAll(input) => Some(input.identity.name.clone()),
        },
        plan: &plan,
        outcome: &outcome,
        targets: targets.iter().map(Target::to_string).collect(),
        late_file: output.late.as_ref().map(|path| path.display().to_string()),
        dry_run: output.dry_run,
        run: files.names_runs.then(|| run.token.to_string()),
        reports: &reports,
        from_environment,
        warnings,
    };
    if let Some(mut file) = summary_file {
        let text = serde_json::to_string_pretty(&summary.to_json()).context("cannot put the summary into JSON")?;
        writeln!(file, "{text}").map_err(|error| file.error(error))?;
        file.commit()?;
    }
    let losses: BTreeSet<&String> = outcome.partitions.iter().flat_map(|input| &input.read.left_out).collect();
    for warning in &summary.warnings {
        if losses.contains(warning) {
            console.loud(warning);
        } else {
            console.warning(warning);
        }
    }
    if console.is_verbose() {
        outcome.partitions.iter().for_each(|input| console.note(input_line(input)));
    }
    console.note(summary.to_string().trim_end());
    if output.dry_run {
        tables::tell_cost(&targets, outcome.totals.rows, args.table.write_rate, console);
    }
    if let Some(lost) = summary.lost() {
        console.loud(lost);
    }
    unusable.iter().for_each(|message| console.error(message));
    if nothing_used && unusable.is_empty() {
        console.error(NO_REPORT);
    }
    let conflicts = tables::tell_conflicts(&reports, &args.table, console);
    let rejected: u64 = outcome.partitions.iter().map(|input| input.tally.all_rejected()).sum();
    let strict = output.strict && (rejected > 0 || outcome.pairs.late > 0);
    if strict {
        console.error(format_args!("--strict: {rejected} rejected and {} late", outcome.pairs.late));
    }
    let failed = nothing_used || strict || conflicts || !unusable.is_empty();
    Ok(if failed { Status::Failed } else { Status::Complete })
}

fn targets(output: &OutputArgs) -> Vec<Target> {
    if output.to.is_empty() { vec![Target::Stdout] } else { output.to.clone() }
}

/// The open sinks and the late file of a run.
struct Files {
    sinks: Vec<Sink>,
    late: Option<LateFile>,
    bar: Bar,
    /// Whether standard output was closed by its reader.
    closed: bool,
    /// Whether something is written that a run's id stands in.
    names_runs: bool,
}

impl Files {
    fn open(targets: &[Target], args: &RunArgs, bar: Bar, console: Console) -> anyhow::Result<Self> {
        let output = &args.output;
        let form = output.format.unwrap_or_else(default_form);
        let open_table =
            |name: &TableName| tables::open(name, &args.table, &args.aws, WriteMode::Insert, output.dry_run, console);
        // A dry run asks the tables too: what they would refuse is what it is for.
        let wanted = targets.iter().filter(|target| !output.dry_run || matches!(target, Target::Table(_)));
        let sinks: Vec<Sink> =
            wanted.map(|target| Sink::open(target, form, output.utc, &open_table)).collect::<anyhow::Result<_>>()?;
        let late = output.late.as_deref().filter(|_| !output.dry_run).map(LateFile::create).transpose()?;
        let mut files = Self { sinks, late, bar, closed: false, names_runs: false };
        files.names_runs = files.has_table() || files.late.is_some();
        Ok(files)
    }

    fn has_table(&self) -> bool {
        self.tables().next().is_some()
    }

    fn tables(&self) -> impl Iterator<Item = &TableSink> {
        self.sinks.iter().filter_map(|sink| match sink {
            Sink::Table(table) => Some(&**table),
            Sink::Stdout(_) | Sink::Csv(_) => None,
        })
    }

    /// At which sizes digests are to be made: where a table knows an input of that size.
    fn wanted_digests(&self) -> Option<Arc<[u64]>> {
        let sizes: BTreeSet<u64> = self.tables().flat_map(|table| table.ledger().known_sizes()).collect();
        self.names_runs.then(|| sizes.into_iter().collect())
    }

    /// Asks every table before anything is written to any.
    fn check_tables(&self, run: &ReadRun) -> Result<(), StoreError> {
        self.tables().try_for_each(|table| table.check(run))
    }

    fn finish(
        &mut self,
        targets: &[Target],
        header: &Header,
        run: &ReadRun,
        dry_run: bool,
        console: Console,
    ) -> anyhow::Result<Vec<WriteReport>> {
        // The late file first: rows without their late reports would be a loss, the other way about it is a repeat.
        if let Some(late) = self.late.take() {
            late.finish(header)?;
        }
        let mut reports = Vec::new();
        for sink in self.sinks.drain(..) {
            let bar = tables::bar(&sink, console);
            if matches!(sink, Sink::Table(_)) {
                super::note_table_written();
            }
            let finished = sink.finish(Some(run), &mut |rows| tables::show(bar.as_ref(), rows));
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            match finished {
                Ok(report) => reports.extend(report),
                Err(error) if matches!(error.downcast_ref(), Some(SinkError::Closed)) => {}
                Err(error) => return Err(error),
            }
        }
        for target in targets.iter().filter(|_| !dry_run) {
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
        Ok(reports)
    }
}

/// What standard output gets unless `--format` says.
pub(super) fn default_form() -> Form {
    if std::io::stdout().is_terminal() { Form::Table } else { Form::Csv }
}

impl Output for Files {
    fn csv_lines(&self) -> Option<CsvLines> {
        // All of them write times alike.
        self.sinks.iter().find_map(Sink::csv_lines)
    }

    fn rows(&mut self, finished: &Finished) -> Result<(), SinkError> {
        let mut place = 0;
        while let Some(sink) = self.sinks.get_mut(place) {
            match self.bar.aside(|| sink.write_finished(&finished.rows, finished.csv.as_deref())) {
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
fn outputs(args: &RunArgs) -> Vec<&Path> {
    let output = &args.output;
    let files = output.to.iter().filter_map(|target| match target {
        Target::Csv(path) | Target::Table(TableName::Sqlite(path)) => Some(path.as_path()),
        Target::Stdout | Target::Table(TableName::DynamoDb(_)) => None,
    });
    let others = [output.late.as_deref(), output.summary.as_deref(), args.table.conflicts.as_deref()];
    files.chain(others.into_iter().flatten()).collect()
}

/// A path by the file itself; where there is none yet, by the folder that it will be in.
fn itself(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(folder).ok()?.join(path.file_name()?))
    };
    std::fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// No output takes the place of something that is read.
pub(super) fn refuse_over_input(outputs: &[&Path], input: &Path) -> Result<(), Usage> {
    match outputs.iter().find(|path| itself(path) == itself(input)) {
        Some(path) => Err(Usage(format!("{} is an input: an output would take its place", path.display()))),
        None => Ok(()),
    }
}

/// No two outputs into one file, and none over an input.
fn refuse_clashes(inputs: &[Input], args: &RunArgs) -> Result<(), Usage> {
    if args.output.to.iter().filter(|target| **target == Target::Stdout).count() > 1 {
        return Err(Usage("--to stdout is given twice".to_owned()));
    }
    let outputs = outputs(args);
    for (place, path) in outputs.iter().enumerate() {
        let is_device = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        if !is_device && outputs[..place].iter().any(|other| itself(other) == itself(path)) {
            return Err(Usage(format!("two outputs would go to {}", path.display())));
        }
    }
    inputs.iter().filter_map(Input::path).try_for_each(|path| refuse_over_input(&outputs, path))
}

/// Tables have names, and flags for tables are given where there is one; and half a window must not take the place of a
/// whole one.
fn refuse_odd_table_flags(args: &RunArgs) -> Result<(), Usage> {
    let tables = args.output.to.iter().filter(|target| matches!(target, Target::Table(_))).count();
    for target in &args.output.to {
        if let Target::Table(name) = target {
            tables::refuse_unnamed(name, "--to")?;
        }
    }
    if tables > 1 && args.table.conflicts.is_some() {
        return Err(Usage("--conflicts is one list of one table: write to the tables one by one".to_owned()));
    }
    if tables == 0
        && let Some(flag) = tables::flags_for_tables(&args.table).next()
    {
        return Err(Usage(format!("{flag} is for tables: give --to sqlite:PATH or --to dynamodb:TABLE with it")));
    }
    if tables == 0 && args.output.late.is_none() && tables::names_run(args.output.run_id.as_deref()) {
        return Err(Usage(
            "--run-id stands in tables and late files: give --to sqlite:PATH, --to dynamodb:TABLE or --late PATH \
             with it"
                .to_owned(),
        ));
    }
    let replay = &args.replay;
    let types: MessageTypes = replay.types.iter().copied().collect();
    let into_table = tables > 0;
    if into_table
        && args.table.write == Some(WriteMode::Replace)
        && (replay.bbox.is_some() || types != MessageTypes::LIVE_PIPELINE)
    {
        return Err(Usage(
            "--write replace does not go with --bbox or --types: half a window would take the place of a whole one"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A table must know a run when it comes again: one that cannot be the same again has to be named.
fn refuse_unrepeatable(args: &RunArgs, unrepeatable: Option<String>) -> Result<(), Usage> {
    if !args.output.to.iter().any(|target| matches!(target, Target::Table(_))) {
        return Ok(());
    }
    if let Some(id) = &args.output.run_id {
        return Token::new(id).map(|_| ()).map_err(Usage);
    }
    let replay = &args.replay;
    let ages = [("--since", replay.since), ("--until", replay.until), ("--start", replay.start)];
    if let Some((flag, _)) = ages.iter().find(|(_, time)| matches!(time, Some(TimeArg::Ago(_)))) {
        return Err(Usage(format!(
            "{flag} is an age, so this run could not be the same again: name it with --run-id, or give the instant"
        )));
    }
    unrepeatable.map_or(Ok(()), |why| Err(Usage(why)))
}

/// Says what an input that broke off leaves behind.
fn explain(error: RunError, targets: &[Target], closed: bool) -> anyhow::Error {
    let (error, windows_emitted) = match error {
        RunError::Source { error, windows_emitted } => (error, windows_emitted),
        RunError::Sink(error) => return error.into(),
        RunError::Spill(error) => return error.into(),
    };
    let to_stdout = targets.contains(&Target::Stdout) && !closed;
    let written = match windows_emitted {
        1.. if to_stdout => {
            let windows = summary::counted(windows_emitted, "window");
            format!("{windows} printed by then, each of them complete; no file was written")
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
        if let Some(odd) = input.read.warning.as_ref().or(input.read.left_out.as_ref())
            && input.named
            && tally.lines == 0
        {
            messages.push(odd.clone());
            continue;
        }
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
    let is_error = input.named && tally.lines == 0;
    let told = [&input.read.warning, &input.read.left_out].into_iter().flatten();
    let mut odd: Vec<String> = told.filter(|_| !is_error).cloned().collect();
    if input.read.bytes > 0 && tally.readable() == 0 && !input.named && odd.is_empty() {
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
        "{}: {} {}s, {} accepted, {} parts, {} rejected, {} ignored",
        input.name,
        tally.lines,
        input.unit,
        tally.accepted,
        tally.parts,
        tally.all_rejected(),
        tally.all_ignored()
    )
}

/// What a table is told of the run. Its token is given, or the same for the same inputs and options wherever it runs.
fn read_run(
    args: &RunArgs,
    plan: &Plan,
    outcome: &Outcome,
    identity: &Identity,
    started: Timestamp,
) -> Result<ReadRun, Usage> {
    let options = options_text(plan);
    let inputs = match identity {
        // Late side-output among the logs was passed over: it has no digest, and is no part of the run.
        Identity::OfEach => {
            let read = outcome.partitions.iter().filter(|input| input.read.digest.is_some());
            read.map(|input| ReadInput::new(&input.name, &input.read)).collect()
        }
        Identity::OfAll(input) => {
            let mut input = ReadInput::clone(input);
            input.identity.bytes = outcome.partitions.iter().map(|partition| partition.read.bytes).sum();
            vec![input]
        }
    };
    let token = match &args.output.run_id {
        Some(id) => Token::new(id).map_err(Usage)?,
        None => tables::token(&options, &inputs, args.table.again)?,
    };
    Ok(ReadRun {
        token,
        started_ms: started.nanos() / 1_000_000,
        inputs,
        late_files: Vec::new(),
        options,
        window_seconds: plan.window.length(),
    })
}

/// Every option that the result depends on, as one text.
fn options_text(plan: &Plan) -> String {
    let Plan { decode, window, lateness, precision, selection, filter, .. } = plan;
    let mut only: Vec<String> =
        selection.only.iter().flatten().map(|(cell, start)| format!("{cell}@{start}")).collect();
    only.sort_unstable();
    let given = |name: &str, value: Option<String>| value.map(|value| format!(" {name}={value}")).unwrap_or_default();
    let cells: Vec<String> = filter.cells.iter().map(ToString::to_string).collect();
    [
        format!(
            "window={} slide={} lateness={lateness} precision={}",
            window.length(),
            window.slide(),
            precision.length()
        ),
        format!(" types={}", filter.types),
        given("since", selection.since.map(|since| since.to_string())),
        given("until", selection.until.map(|until| until.to_string())),
        given("bbox", filter.bounding_box.map(|bbox| bbox.to_string())),
        given("cell", Some(cells.join(",")).filter(|cells| !cells.is_empty())),
        given("only", selection.only.as_ref().map(|_| hexadecimal(&Sha256::digest(only.join(" "))[..8]))),
        given("event-time", (decode.event_time != EventTimeMode::Received).then(|| format!("{:?}", decode.event_time))),
        given("clock", decode.clock.map(|clock| format!("{clock:?}"))),
        given("start", decode.start.map(|start| start.to_string())),
        given("time-zone", decode.zone.map(|zone| zone.to_string())),
        given("own-ship", decode.own_ship.then(|| "yes".to_owned())),
        given("tag-checksum", decode.require_tag_checksum.then(|| "require".to_owned())),
    ]
    .concat()
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
