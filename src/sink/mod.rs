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
use crate::store::write::{ReadRun, StoreError, TableName, TableSink, WriteReport};
use atomic::AtomicFile;
use rows::{CsvLines, Form, RowWriter};

/// Rows or results that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Whoever read our standard output has enough.
    #[error("standard output was closed")]
    Closed,
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    /// The rows for a table could not be kept until they are written.
    #[error(
        "cannot keep the rows in a temporary file in {folder}: {0}; name a folder with more room in TMPDIR",
        folder = std::env::temp_dir().display()
    )]
    Spool(io::Error),
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
    /// A table that others write to as well.
    Table(TableName),
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(table) = TableName::parse(text) {
            return Ok(Self::Table(table));
        }
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            Some(("csv", path)) if !path.is_empty() => Ok(Self::Csv(path.into())),
            Some(("csv", _)) => Err("csv: needs a path behind it, as in csv:windows.csv".to_owned()),
            None if text.ends_with(".csv") => Err(format!("'{text}' is no target: did you mean csv:{text}?")),
            _ => Err(format!("'{text}' is no target: stdout, csv:PATH, sqlite:PATH or dynamodb:TABLE")),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Csv(path) => write!(f, "csv:{}", path.display()),
            Self::Table(table) => table.fmt(f),
        }
    }
}

/// An open target.
pub enum Sink {
    /// Standard output, in a form of the user's choice.
    Stdout(RowWriter<BufWriter<io::Stdout>>),
    /// A CSV file that takes the place of the old one at the end.
    Csv(Box<RowWriter<AtomicFile>>),
    /// A table: its rows wait until the run is known to be one that may write.
    Table(Box<TableSink>),
}

/// Opens the table of a name, as the flags of the command want it.
pub type OpenTable<'a> = dyn Fn(&TableName) -> Result<TableSink, StoreError> + 'a;

impl Sink {
    /// Opens a target. `form` is what standard output gets.
    ///
    /// # Errors
    ///
    /// Where the file cannot be made.
    pub fn open(target: &Target, form: Form, utc: bool, table: &OpenTable<'_>) -> anyhow::Result<Self> {
        Ok(match target {
            Target::Table(name) => Self::Table(Box::new(table(name)?)),
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
        self.write_finished(rows, None)
    }

    /// What makes rows into lines of CSV for it.
    #[must_use]
    pub fn csv_lines(&self) -> Option<CsvLines> {
        match self {
            Self::Stdout(writer) => writer.csv_lines(),
            Self::Csv(writer) => writer.csv_lines(),
            Self::Table(_) => None,
        }
    }

    /// Takes the rows of a window. `lines` are what [`Sink::csv_lines`] makes of them, if somebody has done that already.
    ///
    /// # Errors
    ///
    /// Where they cannot be written.
    pub fn write_finished(&mut self, rows: &[Row], lines: Option<&[u8]>) -> Result<(), SinkError> {
        match self {
            Self::Stdout(writer) => {
                let written = writer.write_finished(rows, lines);
                written.and_then(|()| writer.flush()).map_err(SinkError::stdout)
            }
            Self::Csv(writer) => writer.write_finished(rows, lines).map_err(|error| writer.get_ref().error(error)),
            Self::Table(table) => table.push(rows).map_err(SinkError::Spool),
        }
    }

    /// Ends it: from now on what it was given is there. A table is told what run it is of, and tells what became of its
    /// rows.
    ///
    /// # Errors
    ///
    /// Where that fails.
    pub fn finish(self, run: Option<&ReadRun>, progress: &mut dyn FnMut(u64)) -> anyhow::Result<Option<WriteReport>> {
        Ok(match (self, run) {
            (Self::Table(table), Some(run)) => Some(table.finish(run, progress)?),
            (Self::Table(_), None) => None,
            (file, _) => {
                file.finish_file()?;
                None
            }
        })
    }

    fn finish_file(self) -> Result<(), SinkError> {
        match self {
            Self::Table(_) => Ok(()),
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
