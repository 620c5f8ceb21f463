//! From flags as written to what a run needs: defaults resolved, ages fixed to instants, contradictions refused.

use std::path::Path;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use hashbrown::HashSet;

use super::Usage;
use super::args::{Cli, ReplayArgs, TagChecksumArg};
use crate::cell::{Cell, Precision};
use crate::decode;
use crate::engine::Selection;
use crate::engine::clock::Lateness;
use crate::filter::Filter;
use crate::memory::MemorySize;
use crate::reconcile::{self, NamedKeys};
use crate::run::Plan;
use crate::source::ReadOptions;
use crate::summary::FromEnvironment;
use crate::time::{TimeArg, Timestamp, machine_clock};
use crate::window::WindowSpec;

/// The machine's clock, in whole seconds. It resolves ages and warns; it is never an event time.
#[must_use]
pub fn now() -> Timestamp {
    let clock = machine_clock();
    Timestamp::from_seconds(clock.seconds()).unwrap_or(clock)
}

/// A plan, and what is to be told of how it was made.
pub struct Resolved {
    /// The plan.
    pub plan: Plan,
    /// Ages and what they came to.
    pub notes: Vec<String>,
}

/// Resolves the flags of a replay that starts at `now`.
///
/// # Errors
///
/// [`Usage`] where flags contradict each other; others where a late file named by `--only` cannot be read.
pub fn resolve(args: &ReplayArgs, default_lateness: Lateness, now: Timestamp) -> anyhow::Result<Resolved> {
    let usage = |message: String| Usage(message);
    let window = WindowSpec::new(args.window, args.slide).map_err(|error| usage(error.to_string()))?;
    let precision = Precision::new(args.precision).context("--precision is outside 1 to 12")?;
    let mut notes = Vec::new();
    let mut instant = |flag: &str, argument: Option<TimeArg>| {
        argument.map(|argument| {
            let time = argument.resolve(now);
            if let TimeArg::Ago(span) = argument {
                notes.push(format!("--{flag} {span} is {time}"));
            }
            time
        })
    };
    let (since, until) = (instant("since", args.since), instant("until", args.until));
    let start = instant("start", args.start);
    if let (Some(since), Some(until)) = (since, until)
        && since >= until
    {
        return Err(usage(format!("--since {since} is not before --until {until}: no window lies between")).into());
    }
    // A window is selected when it lies wholly inside, so a fraction of a second belongs to the outside.
    let ceiling = |time: Timestamp| time.seconds() + i64::from(time.nanos().rem_euclid(crate::time::NANOS) != 0);
    let only = match &args.only {
        Some(path) => Some(read_only(path, window, precision)?),
        None => None,
    };
    if let Some(prefix) = args.cell.iter().find(|prefix| prefix.precision() > precision) {
        return Err(usage(format!("--cell {prefix} is longer than the cells of --precision {}", args.precision)).into());
    }
    let types = args.types.iter().copied().collect();
    Ok(Resolved {
        plan: Plan {
            decode: decode::Options {
                types,
                own_ship: args.own_ship,
                require_tag_checksum: args.tag_checksum == TagChecksumArg::Require,
                zone: args.time_zone,
                event_time: args.event_time.into(),
                clock: args.clock.map(Into::into),
                start,
            },
            window,
            lateness: args.lateness.unwrap_or(default_lateness),
            precision,
            selection: Selection { since: since.map(ceiling), until: until.map(Timestamp::seconds), only },
            filter: Filter { types, bounding_box: args.bbox, cells: args.cell.clone() },
            read: ReadOptions::default(),
            threads: args.threads.map_or_else(default_threads, usize::from),
            memory: args.memory.unwrap_or_else(MemorySize::quarter_of_machine),
        },
        notes,
    })
}

/// The keys of `--only`, which must be of the run's own windows and cells.
fn read_only(path: &Path, window: WindowSpec, precision: Precision) -> anyhow::Result<HashSet<(Cell, i64)>> {
    let NamedKeys { keys, options } = reconcile::read_keys(path)?;
    if let Some((cell, _)) = keys.iter().find(|(cell, _)| cell.precision() != precision) {
        let length = cell.precision().length();
        let message = format!("--only {} names cell {cell}: give --precision {length} with it", path.display());
        return Err(Usage(message).into());
    }
    let starts_elsewhere = keys.iter().any(|(_, start)| start.rem_euclid(window.slide()) != 0);
    let (length, slide) = options.map_or((window.length(), window.slide()), |of| (of.window_seconds, of.slide_seconds));
    if starts_elsewhere || (length, slide) != (window.length(), window.slide()) {
        let theirs = if starts_elsewhere {
            "other windows".to_owned()
        } else {
            format!("windows of {length} s every {slide} s")
        };
        let message = format!(
            "--only {} is of {theirs}, and this run of windows of {} s every {} s: give --window and --slide to match",
            path.display(),
            window.length(),
            window.slide()
        );
        return Err(Usage(message).into());
    }
    Ok(keys)
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Which flags have their value from the environment.
#[must_use]
pub fn from_environment(matches: &ArgMatches) -> Vec<FromEnvironment> {
    let mut found = Vec::new();
    let command = Cli::command();
    let mut collect = |command: &Command, matches: &ArgMatches| {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let known = matches.try_contains_id(id).unwrap_or(false);
            if known
                && matches.value_source(id) == Some(ValueSource::EnvVariable)
                && let (Some(variable), Some(flag)) = (argument.get_env(), argument.get_long())
            {
                found.push(FromEnvironment {
                    flag: format!("--{flag}"),
                    variable: variable.to_string_lossy().into_owned(),
                    value: std::env::var_os(variable).unwrap_or_default().to_string_lossy().into_owned(),
                });
            }
        }
    };
    if let Some((name, matches)) = matches.subcommand()
        && let Some(subcommand) = command.find_subcommand(name)
    {
        collect(subcommand, matches);
    }
    found
}
