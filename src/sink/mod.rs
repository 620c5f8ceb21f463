//! Where finished rows go: a closed set of sinks. A further one is one variant of [`Sink`] and one file beside this one.
//!
//! A sink never sees a sentence. Rows come in order, window by window; what a sink has been given counts as written once
//! [`Sink::finish`] has returned, and a file in place of an old one only then.

pub mod atomic;
pub mod late;
pub mod rows;

use std::io::{self, BufWriter};
use std::path::PathBuf;

use crate::row::Row;
use atomic::AtomicFile;
use rows::{Form, RowWriter};

/// Rows or results that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Whoever read our standard output has enough.
    #[error("standard output was closed")]
    Closed,
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    /// A file failed.
    #[error("cannot write {}: {error}; {}", path.display(), if *replaced { "it is not complete" } else { "what was there before is untouched" })]
    File {
        /// The file.
        path: PathBuf,
        /// Whether the path is written in place (a pipe, a device) and so may hold a part.
        replaced: bool,
        /// Why.
        error: io::Error,
    },
}

impl SinkError {
    /// An error of standard output.
    #[must_use]
    pub fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Stdout(error) }
    }
}

/// A target as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A CSV file.
    Csv(PathBuf),
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            Some(("csv", path)) if !path.is_empty() => Ok(Self::Csv(path.into())),
            Some(("csv", _)) => Err("csv: needs a path behind it, as in csv:windows.csv".to_owned()),
            None if text.ends_with(".csv") => Err(format!("'{text}' is no target: did you mean csv:{text}?")),
            _ => Err(format!("'{text}' is no target: stdout or csv:PATH")),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Csv(path) => write!(f, "csv:{}", path.display()),
        }
    }
}

/// An open target.
pub enum Sink {
    /// Standard output, in a form of the user's choice.
    Stdout(RowWriter<BufWriter<io::Stdout>>),
    /// A CSV file that takes the place of the old one at the end.
    Csv(Box<RowWriter<AtomicFile>>),
}

impl Sink {
    /// Opens a target. `form` is what standard output gets.
    ///
    /// # Errors
    ///
    /// Where the file cannot be made.
    pub fn open(target: &Target, form: Form, utc: bool) -> Result<Self, SinkError> {
        Ok(match target {
            Target::Stdout => {
                Self::Stdout(RowWriter::new(BufWriter::with_capacity(64 * 1024, io::stdout()), form, utc))
            }
            Target::Csv(path) => Self::Csv(Box::new(RowWriter::new(AtomicFile::create(path)?, Form::Csv, utc))),
        })
    }

    /// Takes the rows of a window.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    pub fn write(&mut self, rows: &[Row]) -> Result<(), SinkError> {
        match self {
            Self::Stdout(writer) => writer.write(rows).and_then(|()| writer.flush()).map_err(SinkError::stdout),
            Self::Csv(writer) => writer.write(rows).map_err(|error| writer.get_ref().error(error)),
        }
    }

    /// Ends it: from now on what it was given is there.
    ///
    /// # Errors
    ///
    /// Where that fails.
    pub fn finish(self) -> Result<(), SinkError> {
        match self {
            Self::Stdout(writer) => {
                writer.finish().and_then(|mut out| io::Write::flush(&mut out)).map_err(SinkError::stdout)
            }
            Self::Csv(writer) => {
                let path = writer.get_ref().path().to_owned();
                match writer.finish() {
                    Ok(file) => file.commit(),
                    Err(error) => Err(SinkError::File { path, replaced: false, error }),
                }
            }
        }
    }
}
