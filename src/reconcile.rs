//! Late side-output read back: what the windows missed, as increments, and each late file added once.
//!
//! A CSV has no place for what was added to it, so a file beside it (`PATH.reconciled`, NDJSON) keeps the digest of every
//! late file, with the digests of the CSV before and after. A crash between the two renames shows in those, so that the same
//! command can be given again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::aggregate::Aggregate;
use crate::cell::Cell;
use crate::row::{MOST_REPORTS, Row, Tenths};
use crate::sink::SinkError;
use crate::sink::atomic::{self, AtomicFile};
use crate::sink::late::{Header, HeaderOptions, LateReport};
use crate::sink::rows::{Form, RowWriter};
use crate::source::content::hexadecimal;
use crate::source::file::FileInput;
use crate::source::{Chunk, Input, ReadOptions, ReadOutcome, SourceError};
use crate::store::ledger::ReadInput;
use crate::table::{self, TableError};

/// A result that `reconcile --into` rewrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregateFile {
    /// A CSV file.
    Csv(PathBuf),
}

impl std::str::FromStr for AggregateFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("csv", path)) if !path.is_empty() => Ok(Self::Csv(path.into())),
            _ => Err(format!("'{text}' is no result to add to: csv:PATH")),
        }
    }
}

/// Why late files cannot be reconciled. Nothing has been written then.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A late file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A line of it is nothing that can be added.
    #[error("{name} line {line}: {error}")]
    Line {
        /// The late file.
        name: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        error: String,
    },
    /// Two late files of runs that cut time or space differently.
    #[error(
        "{name} is of a run with {theirs}, and {first} of one with {ours}: reconcile them one by one, each into its own result"
    )]
    Mixed {
        /// The second file.
        name: String,
        /// Its windows.
        theirs: String,
        /// The first file.
        first: String,
        /// Its windows.
        ours: String,
    },
    /// The result cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The result has windows or cells of another size.
    #[error("{name} is of {ours}, and there is {theirs} in it or in {}: they cannot be added", path.display())]
    Misfit {
        /// The result.
        path: PathBuf,
        /// What it has.
        theirs: String,
        /// The late file.
        name: String,
        /// What that has.
        ours: String,
    },
    /// A late file that the result has already.
    #[error("{name} has been added to {} before{known_as}", path.display())]
    Repeated {
        /// The late file.
        name: String,
        /// The result.
        path: PathBuf,
        /// As ", as X" where it was then called otherwise.
        known_as: String,
    },
    /// The result has a column that rewriting would lose.
    #[error("{} has a column '{column}' that rewriting it would lose: take it out, or reconcile into a copy without it", path.display())]
    OtherColumn {
        /// The result.
        path: PathBuf,
        /// The column.
        column: String,
    },
    /// A late file given twice.
    #[error("{name} holds the same as {twin}: give it once")]
    Twice {
        /// The late file.
        name: String,
        /// The other one.
        twin: String,
    },
    /// The result cannot be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// A row of a late file that holds sums rather than a report.
#[derive(Debug, Deserialize)]
struct AggregatedRow {
    cell: String,
    window_start: i64,
    count: u64,
    sog_sum: Option<Tenths>,
    #[serde(default)]
    sog_missing: u64,
}

/// The least that every line of a late file but its header has.
#[derive(Debug, Deserialize)]
struct Key {
    cell: String,
    window_start: i64,
}

/// What one window missed.
#[derive(Clone, Debug, Default)]
struct Increment {
    aggregate: Aggregate,
    /// Whether only reports went into it, whose vessels are known.
    vessels_unknown: bool,
}

/// What late files hold, read and added up.
#[derive(Debug, Default)]
pub struct Increments {
    windows: BTreeMap<(i64, Cell), Increment>,
    /// Reports.
    pub reports: u64,
    /// Rows of sums.
    pub aggregated_rows: u64,
    /// Each late file: name, digest of its content, run.
    files: Vec<LateInput>,
    options: Option<(String, HeaderOptions)>,
}

#[derive(Debug)]
struct LateInput {
    name: String,
    digest: String,
    run: Option<String>,
    read: ReadOutcome,
}

fn windows_text(options: &HeaderOptions) -> String {
    format!(
        "windows of {} s every {} s and cells of length {}",
        options.window_seconds, options.slide_seconds, options.precision
    )
}

/// Calls `line` for every line of a file that is not blank, and returns the digest of its content.
fn each_line(
    path: &Path,
    sizes: Arc<[u64]>,
    mut line: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<ReadOutcome, ReconcileError> {
    let name = path.display().to_string();
    let input = if path.as_os_str() == "-" {
        Input::Stdin
    } else {
        Input::File(FileInput { path: path.to_owned(), bytes: None, named: true })
    };
    let mut reader = input.open_text(ReadOptions { digest: Some(sizes), ..ReadOptions::default() })?;
    let mut number = 0;
    while let Chunk::Lines(lines) = reader.next_chunk()? {
        // A chunk ends where a line ends, so there is an empty rest behind its last LF.
        for text in lines.strip_suffix(b"\n").unwrap_or(lines).split(|byte| *byte == b'\n') {
            number += 1;
            if !text.trim_ascii().is_empty() {
                line(number, text).map_err(|error| ReconcileError::Line { name: name.clone(), line: number, error })?;
            }
        }
    }
    Ok(reader.outcome())
}

/// The (cell, window start) keys named in a late file or a list of conflicts.
///
/// # Errors
///
/// Where the file cannot be read, or a line has no key.
pub fn read_keys(path: &Path) -> Result<NamedKeys, ReconcileError> {
    let mut keys = HashSet::new();
    let mut options = None;
    each_line(path, [].into(), |number, text| {
        if number == 1
            && let Ok(header) = serde_json::from_slice::<Header>(text)
        {
            options = Some(header.options);
            return Ok(());
        }
        let key: Key =
            serde_json::from_slice(text).map_err(|error| format!("no cell and window_start in it ({error})"))?;
        keys.insert((key.cell.parse().map_err(|error| format!("{error}"))?, key.window_start));
        Ok(())
    })?;
    Ok(NamedKeys { keys, options })
}

/// The keys that a late file names, and of what windows they are if it says so.
#[derive(Debug)]
pub struct NamedKeys {
    /// Cell and window start.
    pub keys: HashSet<(Cell, i64)>,
    /// Options of the run that made the file.
    pub options: Option<HeaderOptions>,
}

impl Increments {
    /// Reads late files, each content once. Digests are made of them, and of their beginnings at `sizes`.
    ///
    /// # Errors
    ///
    /// Where a file cannot be read, or holds what cannot be added.
    pub fn read(paths: &[PathBuf], sizes: &Arc<[u64]>) -> Result<Self, ReconcileError> {
        let mut all = Self::default();
        for path in paths {
            let mut one = Self::default();
            let mut header = None;
            let read = each_line(path, Arc::clone(sizes), |number, text| {
                if number == 1
                    && let Ok(found) = serde_json::from_slice::<Header>(text)
                {
                    header = Some(found);
                    return Ok(());
                }
                one.add_line(text)
            })?;
            let name = path.display().to_string();
            let digest = read.digest.clone().unwrap_or_default();
            if let Some(twin) = all.files.iter().find(|file| file.digest == digest) {
                return Err(ReconcileError::Twice { name, twin: twin.name.clone() });
            }
            all.merge(one);
            let run = header.as_ref().map(|header| header.run.clone());
            if let Some(header) = header {
                all.check_options(&name, header.options)?;
            }
            all.files.push(LateInput { name, digest, run, read });
        }
        Ok(all)
    }

    fn add_line(&mut self, text: &[u8]) -> Result<(), String> {
        let parse_cell = |cell: &str| cell.parse::<Cell>().map_err(|error| error.to_string());
        if let Ok(report) = serde_json::from_slice::<LateReport>(text) {
            let increment = self.windows.entry((report.window_start, parse_cell(&report.cell)?)).or_default();
            let sog = report.sog.map(|sog| u16::try_from(sog.0)).transpose();
            increment.aggregate.add(report.mmsi, sog.map_err(|_| "sog is beyond what a message can hold".to_owned())?);
            self.reports += 1;
            return Ok(());
        }
        let row: AggregatedRow = serde_json::from_slice(text).map_err(|error| {
            format!("neither a late report nor a row of cell, window_start, count and sog_sum ({error})")
        })?;
        let Some(sog_sum) = row.sog_sum else {
            return Err(
                "this row has no sog_sum, as the live pipeline writes them: it cannot be added. Recompute its windows \
                        from the sentences instead: --only LATE on a replay of the source"
                    .to_owned(),
            );
        };
        if row.count > MOST_REPORTS {
            return Err(format!("count {} is beyond what a window can hold", row.count));
        }
        if row.sog_missing > row.count {
            return Err(format!("sog_missing {} is more than count {}", row.sog_missing, row.count));
        }
        let increment = self.windows.entry((row.window_start, parse_cell(&row.cell)?)).or_default();
        increment.vessels_unknown = true;
        increment.aggregate.merge(&Aggregate {
            count: row.count,
            sog_sum: sog_sum.0,
            sog_missing: row.sog_missing,
            ..Aggregate::default()
        });
        self.aggregated_rows += 1;
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (key, increment) in other.windows {
            let mine = self.windows.entry(key).or_default();
            mine.aggregate.merge(&increment.aggregate);
            mine.vessels_unknown |= increment.vessels_unknown;
        }
        self.reports += other.reports;
        self.aggregated_rows += other.aggregated_rows;
    }

    fn check_options(&mut self, name: &str, options: HeaderOptions) -> Result<(), ReconcileError> {
        match &self.options {
            Some((first, mine)) if windows_text(mine) != windows_text(&options) => Err(ReconcileError::Mixed {
                name: name.to_owned(),
                theirs: windows_text(&options),
                first: first.clone(),
                ours: windows_text(mine),
            }),
            Some(_) => Ok(()),
            None => {
                self.options = Some((name.to_owned(), options));
                Ok(())
            }
        }
    }

    /// What the late files are, for the ledger of a table: each with the run that made it, if it says so.
    #[must_use]
    pub fn inputs(&self) -> (Vec<ReadInput>, Vec<(String, Option<String>)>) {
        let identity = |file: &LateInput| ReadInput::new(&file.name, &file.read);
        let late = self.files.iter().map(|file| (file.name.clone(), file.run.clone()));
        (self.files.iter().map(identity).collect(), late.collect())
    }

    /// Length of the windows in seconds, if the late files say it.
    #[must_use]
    pub fn window_seconds(&self) -> Option<i64> {
        self.options.as_ref().map(|(_, options)| options.window_seconds)
    }

    /// The increments as rows, ordered.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let row = |((window_start, cell), increment): (&(i64, Cell), &Increment)| {
            let row = Row::new(*cell, *window_start, &increment.aggregate);
            Row { vessels: row.vessels.filter(|_| !increment.vessels_unknown), ..row }
        };
        self.windows.iter().map(row).collect()
    }

    /// Adds the increments to the rows of a CSV and rewrites it, unless `dry_run`. A late file that the CSV has already is
    /// refused, unless `again`.
    ///
    /// # Errors
    ///
    /// Where the CSV cannot be read or written, or the increments do not fit it. It is untouched then.
    pub fn add_into(&self, path: &Path, again: bool, dry_run: bool) -> Result<Added, ReconcileError> {
        let before = digest_of(path)?;
        let record = Record::of(path);
        if !again {
            self.refuse_repeats(path, &record, &before)?;
        }
        let mut table = table::read_csv(path)?;
        if let Some(column) = table.other_columns.first() {
            return Err(ReconcileError::OtherColumn { path: path.to_owned(), column: column.clone() });
        }
        self.check_fit(path, &table.rows)?;
        let mut added = Added::default();
        for row in self.rows() {
            match table.rows.get_mut(&row.key()) {
                Some(known) => {
                    known.count += row.count;
                    known.sog_sum.0 += row.sog_sum.0;
                    known.sog_missing += row.sog_missing;
                    // Who of the late ones had been counted before is not known.
                    known.vessels = None;
                    added.merged += 1;
                }
                None => {
                    table.rows.insert(row.key(), row);
                    added.new += 1;
                }
            }
        }
        if dry_run {
            return Ok(added);
        }
        let rows: Vec<Row> = table.rows.into_values().collect();
        let fail = |error| SinkError::File { path: path.to_owned(), replaced: false, error };
        let mut writer = RowWriter::new(Vec::new(), Form::Csv, table.utc);
        let content = writer.write(&rows).and_then(|()| writer.finish()).map_err(fail)?;
        let after = hexadecimal(&Sha256::digest(&content));
        let mut file = AtomicFile::create(path)?;
        file.write_all(&content).map_err(fail)?;
        record.append(&self.files, &before, &after)?;
        file.commit()?;
        Ok(added)
    }

    fn refuse_repeats(&self, path: &Path, record: &Record, before: &str) -> Result<(), ReconcileError> {
        let entries = record.read()?;
        for file in &self.files {
            // The last entry tells; one whose `before` is what stands there now was broken off before it took effect.
            let last = entries.iter().rev().find(|entry| entry.digest == file.digest);
            if let Some(entry) = last
                && entry.before != before
            {
                let known_as = if entry.late == file.name { String::new() } else { format!(", as {}", entry.late) };
                return Err(ReconcileError::Repeated { name: file.name.clone(), path: path.to_owned(), known_as });
            }
        }
        Ok(())
    }

    /// Refuses a result of other windows or cells, as far as its rows tell: a CSV does not say how long its windows are.
    fn check_fit(&self, path: &Path, rows: &BTreeMap<(i64, Cell), Row>) -> Result<(), ReconcileError> {
        let Some((_, some_cell)) = self.windows.keys().next() else { return Ok(()) };
        let (name, slide, length) = match &self.options {
            Some((name, options)) => (name.clone(), options.slide_seconds.max(1), options.precision),
            None => ("the late file".to_owned(), 1, some_cell.precision().length()),
        };
        let fits = |(start, cell): &(i64, Cell)| start.rem_euclid(slide) == 0 && cell.precision().length() == length;
        let Some((start, cell)) = rows.keys().chain(self.windows.keys()).find(|key| !fits(key)) else { return Ok(()) };
        Err(ReconcileError::Misfit {
            path: path.to_owned(),
            theirs: format!("a window that starts at {start} and a cell of length {}", cell.precision().length()),
            name,
            ours: match &self.options {
                Some((_, options)) => windows_text(options),
                None => format!("cells of length {length}"),
            },
        })
    }
}

/// What adding came to, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Rows that were there.
    pub merged: u64,
    /// Rows that were not.
    pub new: u64,
}

fn digest_of(path: &Path) -> Result<String, ReconcileError> {
    let fail = |error: io::Error| TableError::Read { path: path.to_owned(), error: error.to_string() };
    let (mut file, mut hasher) = (File::open(path).map_err(fail)?, Sha256::new());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
}

/// What was added to a CSV, in a file beside it.
struct Record {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    /// Name of the late file.
    late: String,
    /// Digest of its content.
    digest: String,
    /// Its run.
    run: Option<String>,
    /// Digest of the CSV before and after.
    before: String,
    after: String,
}

impl Record {
    fn of(csv: &Path) -> Self {
        // By the file itself: a link to it is the same result.
        let itself = fs::canonicalize(csv).unwrap_or_else(|_| csv.to_owned());
        let mut name = itself.into_os_string();
        name.push(".reconciled");
        Self { path: name.into() }
    }

    fn read(&self) -> Result<Vec<Entry>, ReconcileError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(TableError::Read { path: self.path.clone(), error: error.to_string() }.into()),
        };
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let error = error.to_string();
                TableError::Line { path: self.path.clone(), line: number as u64 + 1, error }.into()
            })
        };
        text.lines().enumerate().map(parse).collect()
    }

    fn append(&self, files: &[LateInput], before: &str, after: &str) -> Result<(), ReconcileError> {
        let mut entries = self.read()?;
        entries.extend(files.iter().map(|file| Entry {
            late: file.name.clone(),
            digest: file.digest.clone(),
            run: file.run.clone(),
            before: before.to_owned(),
            after: after.to_owned(),
        }));
        let mut text = Vec::new();
        for entry in &entries {
            let fail = |error: serde_json::Error| SinkError::File {
                path: self.path.clone(),
                replaced: false,
                error: error.into(),
            };
            serde_json::to_writer(&mut text, entry).map_err(fail)?;
            text.push(b'\n');
        }
        Ok(atomic::write_file(&self.path, &text)?)
    }
}

/// Forgets what was added to a CSV that a new result has taken the place of.
///
/// # Errors
///
/// Where the record is there and cannot be removed.
pub fn forget_record(csv: &Path) -> io::Result<()> {
    match fs::remove_file(Record::of(csv).path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
