//! Messages to people: everything that is not a row goes to standard error, and through here.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, WeakProgressBar};

use super::args::{Color, ConsoleArgs};

/// How much is told, and how.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    quiet: bool,
    verbose: bool,
}

/// The progress bar that is on the terminal, while it is: there is one terminal, whoever writes to it.
static BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Takes note of a bar that will be on the terminal.
pub fn note_bar(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

impl Console {
    /// A console as the flags want it.
    #[must_use]
    pub fn new(args: ConsoleArgs) -> Self {
        match args.color {
            Color::Auto => {}
            Color::Always => anstream::ColorChoice::Always.write_global(),
            Color::Never => anstream::ColorChoice::Never.write_global(),
        }
        Self { quiet: args.quiet, verbose: args.verbose }
    }

    /// Whether a line per input is wanted.
    #[must_use]
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether somebody sees a progress bar.
    #[must_use]
    pub fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Tells an error.
    pub fn error(&self, message: impl Display) {
        tell(&format!("{ERROR}error{ERROR:#}: {message}"));
    }

    /// Tells what helps.
    pub fn hint(&self, message: impl Display) {
        tell(&format!("{HINT}hint{HINT:#}: {message}"));
    }

    /// Tells something odd.
    pub fn warning(&self, message: impl Display) {
        if !self.quiet {
            tell(&format!("{WARNING}warning{WARNING:#}: {message}"));
        }
    }

    /// Tells something odd even to those who want to hear of errors alone.
    pub fn loud(&self, message: impl Display) {
        tell(&format!("{WARNING}warning{WARNING:#}: {message}"));
    }

    /// Tells that a run has to wait: at any time, from any thread, and above the progress bar where there is one.
    pub fn waiting(&self, message: impl Display) {
        let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(WeakProgressBar::upgrade);
        match bar {
            Some(bar) => bar.suspend(|| self.note(message)),
            None => self.note(message),
        }
    }

    /// Tells how it went.
    pub fn note(&self, message: impl Display) {
        if !self.quiet {
            tell(&message.to_string());
        }
    }
}

fn tell(line: &str) {
    // Where standard error is gone there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{line}");
}
