//! The command line: one file per command, and what they share.

pub mod args;
pub mod collect;
pub mod console;
pub mod file;
#[cfg(feature = "aws")]
pub mod kinesis;
pub mod progress;
pub mod reconcile;
pub mod replay;
#[cfg(feature = "aws")]
pub mod s3;
pub mod settings;
pub mod tables;
pub mod verify;

use std::ffi::OsString;
use std::path::Path;
#[cfg(unix)]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};

use crate::reconcile::ReconcileError;
use crate::sink::{SinkError, atomic};
use crate::store::ledger::Refusal;
use crate::store::write::StoreError;
use args::{Cli, Command, ConsoleArgs};
use console::Console;

/// How a command ended, as an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// All was done.
    Complete = 0,
    /// Something failed, or nothing could be used.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// `verify` found a difference.
    Difference = 3,
}

/// Exit status after an interrupt.
const INTERRUPTED: i32 = 130;

/// Flags that contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Runs the command that the arguments name.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Status {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let parsed = Cli::command().try_get_matches_from(&arguments).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return say(&error, &arguments),
    };
    let console = Console::new(cli.console);
    remove_temporary_files_when_interrupted(console);
    #[cfg(unix)]
    outlive_limits_on_files(console);
    let ended = match &cli.command {
        Command::File(args) => file::run(args, settings::from_environment(&matches), console),
        #[cfg(feature = "aws")]
        Command::S3(args) => s3::run(args, settings::from_environment(&matches), console),
        #[cfg(feature = "aws")]
        Command::Kinesis(args) => kinesis::run(args, settings::from_environment(&matches), console),
        Command::Reconcile(args) => reconcile::run(args, console),
        Command::Runs(args) => tables::runs(args, console),
        Command::Verify(args) => verify::run(args, &settings::from_environment(&matches), console),
    };
    match ended {
        Ok(status) => status,
        Err(error) => fail(&error, console),
    }
}

fn say(error: &clap::Error, arguments: &[OsString]) -> Status {
    // Help goes to standard output, and whoever closed that has enough.
    let _ = error.print();
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && let Some(variable) = variable_behind(flag, arguments)
    {
        Console::new(ConsoleArgs::default())
            .hint(format_args!("the value comes from the environment variable {variable}"));
    }
    if error.use_stderr() { Status::Usage } else { Status::Complete }
}

/// The environment variable that gave a flag its value, for a flag as clap writes it, such as `--window <SPAN>`.
fn variable_behind(flag: &str, arguments: &[OsString]) -> Option<String> {
    let name = flag.split_whitespace().next()?;
    let given = |argument: &OsString| argument.to_string_lossy().split('=').next() == Some(name);
    if arguments.iter().any(given) {
        return None;
    }
    let command = Cli::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let mut flags = commands.flat_map(clap::Command::get_arguments);
    let variable = flags.find(|known| known.get_long() == name.strip_prefix("--"))?.get_env()?;
    std::env::var_os(variable).map(|_| variable.to_string_lossy().into_owned())
}

fn fail(error: &anyhow::Error, console: Console) -> Status {
    if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(SinkError::Closed))) {
        return Status::Complete;
    }
    console.error(format_args!("{error:#}"));
    if let Some(ReconcileError::Repeated { .. }) = error.downcast_ref() {
        console.hint("nothing was added; --again adds it once more");
    }
    if let Some(StoreError::Refused(refusal)) = error.downcast_ref() {
        hint_at_way_out(refusal, console);
    }
    if error.is::<Usage>() { Status::Usage } else { Status::Failed }
}

/// Says what helps against a refusal, where its own sentence does not.
fn hint_at_way_out(refusal: &Refusal, console: Console) {
    match refusal {
        Refusal::Unknown { .. } | Refusal::OtherRun { .. } | Refusal::NotUndoable { .. } => {}
        // What came through a pipe has no beginning that could be left out by number.
        Refusal::Grown { name, bytes, .. } if Path::new(name).is_file() => console.hint(format_args!(
            "nothing was written; to add just what is new: tail -c +{} {name} | ais-replay file - --write add --run-id ID --to \
             TABLE; --again counts the beginning twice",
            bytes + 1
        )),
        _ => console.hint("nothing was written; --again writes it all the same"),
    }
}

/// Where a file would grow beyond a limit (`ulimit -f`), the system kills the process without a word, unless somebody
/// handles the signal. Then the write fails, and is told as on a full disk.
#[cfg(unix)]
fn outlive_limits_on_files(console: Console) {
    let nobody_asks = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, nobody_asks) {
        console.warning(format_args!("a limit on the size of files may end the run without a word: {error}"));
    }
}

/// Whether rows may be in a table by now.
static TABLE_IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Takes note that rows go into a table from now on, for whoever interrupts that.
fn note_table_written() {
    TABLE_IS_WRITTEN.store(true, Ordering::Relaxed);
}

fn remove_temporary_files_when_interrupted(console: Console) {
    let handler = move || {
        atomic::remove_temporary_files();
        console.error(if TABLE_IS_WRITTEN.load(Ordering::Relaxed) {
            "interrupted: rows may be in the table already; the same command goes on where it broke off, and counts none twice"
        } else {
            "interrupted: no file was put in place"
        });
        std::process::exit(INTERRUPTED);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        console.warning(format_args!("an interrupt may leave temporary files behind: {error}"));
    }
}
