//! What a run did, for people on one screen and for programs as JSON.

use std::fmt::{self, Write as _};

use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::decode::event_time::{Clock, EventTimeMode};
use crate::decode::tally::{Count, Ignore, Note, Reject, Tally};
use crate::engine::clock::Lateness;
use crate::run::{Outcome, PartitionOutcome, Plan};
use crate::spill::Spilled;
use crate::store::write::WriteReport;
use crate::time::{Timestamp, seconds_to_rfc3339};

/// A flag whose value came from the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FromEnvironment {
    /// The flag.
    pub flag: String,
    /// The variable.
    pub variable: String,
    /// Its value.
    pub value: String,
}

impl fmt::Display for FromEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} ({})", self.variable, self.value, self.flag)
    }
}

/// Everything that is told at the end of a run.
pub struct Summary<'a> {
    /// What was done.
    pub plan: &'a Plan,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// Where the rows went.
    pub targets: Vec<String>,
    /// Where the late ones went.
    pub late_file: Option<String>,
    /// Whether nothing was written, as asked.
    pub dry_run: bool,
    /// Id of the run, if it has one.
    pub run: Option<String>,
    /// What became of the rows in tables.
    pub reports: &'a [WriteReport],
    /// What came from the environment.
    pub from_environment: Vec<FromEnvironment>,
    /// What is odd.
    pub warnings: Vec<String>,
}

/// A kind of fate over all inputs, with its first example.
struct Kind {
    name: &'static str,
    meaning: &'static str,
    number: u64,
    example: Option<(String, u64)>,
}

impl Summary<'_> {
    fn inputs(&self) -> &[PartitionOutcome] {
        &self.outcome.partitions
    }

    fn sum(&self, number: impl Fn(&Tally) -> u64) -> u64 {
        self.inputs().iter().map(|input| number(&input.tally)).sum()
    }

    fn kind(&self, name: &'static str, meaning: &'static str, count: impl Fn(&Tally) -> Count) -> Kind {
        let counts =
            || self.inputs().iter().map(|input| (input, count(&input.tally))).filter(|(_, count)| count.number > 0);
        let example = counts().next().map(|(input, count)| (input.name.clone(), count.first));
        Kind { name, meaning, number: counts().map(|(_, count)| count.number).sum(), example }
    }

    fn rejected(&self) -> Vec<Kind> {
        Reject::ALL.iter().map(|kind| self.kind(kind.name(), kind.meaning(), |tally| tally.rejected(*kind))).collect()
    }

    fn ignored(&self) -> Vec<Kind> {
        Ignore::ALL.iter().map(|kind| self.kind(kind.name(), kind.meaning(), |tally| tally.ignored(*kind))).collect()
    }

    fn notes(&self) -> Vec<Kind> {
        Note::ALL.iter().map(|kind| self.kind(kind.name(), kind.meaning(), |tally| tally.noted(*kind))).collect()
    }

    /// What is counted of the inputs: `line` or `record`, or `line` where they differ.
    fn unit(&self) -> &'static str {
        match self.inputs() {
            [first, rest @ ..] if rest.iter().all(|input| input.unit == first.unit) => first.unit,
            _ => "line",
        }
    }

    fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let first = self.inputs().iter().filter_map(|input| input.first_time).min()?;
        let last = self.inputs().iter().filter_map(|input| input.last_time).max()?;
        Some((first, last))
    }

    /// Accepted reports that are not counted, by the flag that left them out.
    fn filtered(&self) -> impl Iterator<Item = (u64, &'static str)> + '_ {
        let sum = |number: fn(&PartitionOutcome) -> u64| self.inputs().iter().map(number).sum::<u64>();
        [
            (sum(|input| input.filtered.types), "--types"),
            (sum(|input| input.filtered.bounding_box), "--bbox"),
            (sum(|input| input.filtered.cells), "--cell"),
        ]
        .into_iter()
        .filter(|(number, _)| *number > 0)
    }

    /// All of it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self { plan, outcome, .. } = self;
        let totals = &outcome.totals;
        let kinds = |kinds: Vec<Kind>| -> Map<String, Value> {
            let value = |kind: &Kind| {
                let example = kind.example.as_ref().map(|(input, line)| json!({ "input": input, "line": line }));
                json!({ "count": kind.number, "example": example })
            };
            kinds.iter().filter(|kind| kind.number > 0).map(|kind| (kind.name.to_owned(), value(kind))).collect()
        };
        let inputs = self.inputs().iter().map(|input| {
            json!({
                "name": input.name,
                "bytes": input.read.bytes,
                "sha256": input.read.digest,
                "lines": input.tally.lines,
                "sentences_and_bare_lines": input.tally.items,
                "accepted": input.tally.accepted,
                "parts": input.tally.parts,
                "rejected": input.tally.all_rejected(),
                "ignored": input.tally.all_ignored(),
                "first_time": input.first_time.map(|time| time.to_string()),
                "last_time": input.last_time.map(|time| time.to_string()),
            })
        });
        let filtered = |number: fn(&PartitionOutcome) -> u64| self.inputs().iter().map(number).sum::<u64>();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "run": self.run,
            "dry_run": self.dry_run,
            "options": {
                "window_seconds": plan.window.length(),
                "slide_seconds": plan.window.slide(),
                "lateness": plan.lateness.to_string(),
                "precision": plan.precision.length(),
                "types": plan.filter.types.to_string(),
                "bbox": plan.filter.bounding_box.map(|bbox| bbox.to_string()),
                "cell": plan.filter.cells.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "event_time": format!("{:?}", plan.decode.event_time),
                "clock": plan.decode.clock.map(|clock| format!("{clock:?}")),
                "start": plan.decode.start.map(|start| start.to_string()),
                "time_zone": plan.decode.zone.map(|zone| zone.to_string()),
                "own_ship": plan.decode.own_ship,
                "require_tag_checksum": plan.decode.require_tag_checksum,
                "only": plan.selection.only.as_ref().map(|keys| keys.len()),
                "since": plan.selection.since,
                "until": plan.selection.until,
                "from_environment": self.from_environment,
            },
            "inputs": inputs.collect::<Vec<_>>(),
            "bytes": self.inputs().iter().map(|input| input.read.bytes).sum::<u64>(),
            "lines": self.sum(|tally| tally.lines),
            "sentences_and_bare_lines": self.sum(|tally| tally.items),
            "accepted": self.sum(|tally| tally.accepted),
            "parts": self.sum(|tally| tally.parts),
            "rejected": kinds(self.rejected()),
            "ignored": kinds(self.ignored()),
            "notes": kinds(self.notes()),
            "filtered": {
                "types": filtered(|input| input.filtered.types),
                "bbox": filtered(|input| input.filtered.bounding_box),
                "cell": filtered(|input| input.filtered.cells),
            },
            "pairs": { "added": outcome.pairs.added, "late": outcome.pairs.late, "outside": outcome.pairs.outside },
            "rows": totals.rows,
            "windows": totals.windows,
            "count": totals.count,
            "sog_sum": totals.sog_sum.to_string(),
            "sog_missing": totals.sog_missing,
            "cells": totals.cells,
            "vessels": totals.vessels,
            "first_window": totals.span.map(|(first, _)| first),
            "last_window": totals.span.map(|(_, last)| last),
            "spilled": outcome.spilled,
            "targets": self.targets,
            "tables": self.reports,
            "late_file": self.late_file,
            "warnings": self.warnings,
        })
    }

    /// What did not fit into memory.
    fn spilled_text(&self) -> Option<String> {
        let Spilled { runs, bytes } = self.outcome.spilled;
        let memory = BinaryBytes(self.plan.memory.bytes());
        let runs = (runs > 0).then(|| counted(runs, "sorted run"))?;
        Some(format!("what was beyond {memory} went to disk and came back: {runs}, {}", BinaryBytes(bytes)))
    }

    /// What became of the late ones that are kept.
    fn late_text(&self) -> Option<String> {
        let missed = missed(self.outcome.pairs.late)?;
        let file = self.late_file.as_ref()?;
        if self.dry_run {
            return Some(format!("{missed} and would go to {file}"));
        }
        let into = self.targets.iter().find(|target| *target != "stdout");
        let flag = |target: &str| if target.starts_with("csv:") { "--into" } else { "--to" };
        let into = into.map(|target| format!(" {} {target}", flag(target))).unwrap_or_default();
        Some(format!("{missed}: kept in {file}; add with: ais-replay reconcile {file}{into}"))
    }

    /// What is to be said loudly of late reports that are kept nowhere.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        if self.late_file.is_some() {
            return None;
        }
        let missed = missed(self.outcome.pairs.late)?;
        let lateness = self.plan.lateness;
        Some(format!(
            "LOST, AND IN NO ROW: {missed}. Run again with --late late.ndjson to keep what is late, or with a longer --lateness than {lateness}"
        ))
    }
}

fn missed(late: u64) -> Option<String> {
    match late {
        0 => None,
        1 => Some("1 report missed its window".to_owned()),
        _ => Some(format!("{} reports missed their window", HumanCount(late))),
    }
}

/// A number and what it counts, in the singular or the plural.
#[must_use]
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(number), if number == 1 { "" } else { "s" })
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = &self.outcome.totals;
        let name = match self.inputs() {
            [one] => one.name.clone(),
            all => format!("{} inputs", HumanCount(all.len() as u64)),
        };
        let bytes: u64 = self.inputs().iter().map(|input| input.read.bytes).sum();
        line(
            f,
            "read",
            &format!("{name}: {}, {} {}s", BinaryBytes(bytes), HumanCount(self.sum(|tally| tally.lines)), self.unit()),
        )?;
        if let Some((first, last)) = self.times() {
            line(f, "", &format!("event time {first} to {last}"))?;
        }
        let mut accepted = format!("{} accepted", HumanCount(self.sum(|tally| tally.accepted)));
        for (number, by) in self.filtered() {
            write!(accepted, ", {} left out by {by}", HumanCount(number))?;
        }
        if totals.sog_missing > 0 {
            write!(accepted, ", {} without SOG", HumanCount(totals.sog_missing))?;
        }
        if self.outcome.pairs.outside > 0 {
            write!(accepted, ", {} of windows outside the selection", HumanCount(self.outcome.pairs.outside))?;
        }
        line(f, "reports", &accepted)?;
        line(f, "", &format!("{} in {}", counted(totals.vessels, "vessel"), counted(totals.cells, "cell")))?;
        line(f, "windows", &self.windows_text())?;
        for (title, kinds) in [("rejected", self.rejected()), ("ignored", self.ignored()), ("noted", self.notes())] {
            let mut title = title;
            for kind in kinds.iter().filter(|kind| kind.number > 0 && kind.name != Note::SogMissing.name()) {
                let example = match &kind.example {
                    Some((_, line)) if self.inputs().len() == 1 => format!("{} {line}", self.unit()),
                    Some((input, line)) => format!("{input}:{line}"),
                    None => String::new(),
                };
                let number = HumanCount(kind.number).to_string();
                line(f, title, &format!("{number:>9}  {:<18}  {} ({example})", kind.name, kind.meaning))?;
                title = "";
            }
        }
        if let Some(spilled) = self.spilled_text() {
            line(f, "memory", &spilled)?;
        }
        for report in self.reports {
            line(f, "table", &report.to_string())?;
        }
        if let Some(late) = self.late_text() {
            line(f, "late", &late)?;
        }
        for set in &self.from_environment {
            line(f, "set by", &set.to_string())?;
        }
        Ok(())
    }
}

impl Summary<'_> {
    fn windows_text(&self) -> String {
        let (plan, totals) = (self.plan, &self.outcome.totals);
        let (length, slide) = (plan.window.length(), plan.window.slide());
        let mut text = format!("{} of {length} s", HumanCount(totals.windows));
        if slide != length {
            text += &format!(" every {slide} s");
        }
        if plan.lateness != Lateness::Unbounded {
            text += &format!(", allowed lateness {}", plan.lateness);
        }
        if let Some((first, last)) = totals.span {
            text += &format!(", {} to {}", seconds_to_rfc3339(first), seconds_to_rfc3339(last.saturating_add(length)));
        }
        let would = if self.dry_run { "nothing written; would be " } else { "" };
        text + &format!("; {would}{} to {}", counted(totals.rows, "row"), self.targets.join(" and "))
    }
}

fn line(f: &mut fmt::Formatter<'_>, title: &str, text: &str) -> fmt::Result {
    writeln!(f, "{title:<9} {text}")
}

/// What helps where reports have no time, after what the log offers.
#[must_use]
pub fn time_hint(plan: &Plan, tally: &Tally) -> String {
    if plan.decode.event_time == EventTimeMode::Arrival {
        return "these sentences have no record around them and so no arrival: leave --event-time arrival out"
            .to_owned();
    }
    let mut remedies = Vec::new();
    if tally.noted(Note::LocalTime).number > 0 {
        remedies.push("--time-zone ZONE, since its lines carry local times".to_owned());
    }
    let clock = |clock| plan.decode.clock != Some(clock);
    if tally.noted(Note::ClockSentence).number > 0 && clock(Clock::Sentences) {
        remedies.push("--clock sentences, since it holds RMC or ZDA sentences".to_owned());
    }
    if tally.noted(Note::BaseStation).number > 0 && clock(Clock::BaseStation) {
        remedies.push("--clock base-station, since it holds base station reports".to_owned());
    }
    if tally.accepted > 0 && plan.decode.clock.is_none() {
        remedies.push("--clock previous, since other lines have a time".to_owned());
    }
    remedies.push("--start TIME, if you know when the log begins".to_owned());
    remedies.join("; or ")
}
