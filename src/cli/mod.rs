//! The command line: one file per command, and what they share.

pub mod args;
pub mod console;
pub mod file;
pub mod progress;
pub mod reconcile;
pub mod settings;
pub mod verify;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use crate::sink::{SinkError, atomic};
use args::{Cli, Command};
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
    let matches = match Cli::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return say(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return say(&error),
    };
    let console = Console::new(cli.console);
    remove_temporary_files_when_interrupted(console);
    let ended = match &cli.command {
        Command::File(args) => file::run(args, settings::from_environment(&matches), console),
        Command::Reconcile(args) => reconcile::run(args, console),
        Command::Verify(args) => verify::run(args, console),
    };
    match ended {
        Ok(status) => status,
        Err(error) => fail(&error, console),
    }
}

fn say(error: &clap::Error) -> Status {
    // Help goes to standard output, and whoever closed that has enough.
    let _ = error.print();
    if error.use_stderr() { Status::Usage } else { Status::Complete }
}

fn fail(error: &anyhow::Error, console: Console) -> Status {
    if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(SinkError::Closed))) {
        return Status::Complete;
    }
    console.error(format_args!("{error:#}"));
    if error.is::<Usage>() { Status::Usage } else { Status::Failed }
}

fn remove_temporary_files_when_interrupted(console: Console) {
    let handler = move || {
        atomic::remove_temporary_files();
        console.error("interrupted: no file was put in place");
        std::process::exit(INTERRUPTED);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        console.warning(format_args!("an interrupt may leave temporary files behind: {error}"));
    }
}
