//! Rows that a result already holds, read back: for `verify` and `reconcile`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cell::Cell;
use crate::row::{MOST_REPORTS, Row, Tenths, restore_tenth};
use crate::sink::rows::COLUMNS;
use crate::time::TimeArg;

/// A result that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// A column is missing.
    #[error("{} has no column '{column}': it takes at least cell, window_start, count and sog_sum, named in the first line", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// What is missing.
        column: &'static str,
    },
    /// A line is no row.
    #[error("{} line {line}: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        error: String,
    },
}

/// The rows of a result by (window start, cell), and how it writes its times.
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows.
    pub rows: BTreeMap<(i64, Cell), Row>,
    /// Whether window starts are RFC 3339.
    pub utc: bool,
    /// Columns that are none of a row's.
    pub other_columns: Vec<String>,
    /// Keys of rows whose sum is the tenth that stands behind what is in the file.
    pub restored: Vec<(i64, Cell)>,
}

/// Reads a CSV of rows. Columns are found by name, so that a table's own export reads alike; `vessels`, `sog_missing` and
/// `avg_sog` may be absent.
///
/// # Errors
///
/// Where the file cannot be read or holds something else.
pub fn read_csv(path: &Path) -> Result<Rows, TableError> {
    read(path, |_| false)
}

/// The same for who writes nothing of it: sums that went through a float are read too ([`restore_tenth`]).
///
/// # Errors
///
/// See [`read_csv`].
pub fn read_csv_to_compare(path: &Path) -> Result<Rows, TableError> {
    read(path, restore_tenth)
}

/// `restore` may put another text in place of a sum, and tells whether it has.
fn read(path: &Path, restore: fn(&mut String) -> bool) -> Result<Rows, TableError> {
    let read_error = |error: String| TableError::Read { path: path.to_owned(), error };
    let file = std::fs::File::open(path).map_err(|error| read_error(error.to_string()))?;
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(std::io::BufReader::new(file));
    let header = csv.headers().map_err(|error| read_error(error.to_string()))?.clone();
    let place = |name: &str| header.iter().position(|column| column.trim_start_matches('\u{feff}') == name);
    let needed =
        |column: &'static str| place(column).ok_or_else(|| TableError::Column { path: path.to_owned(), column });
    let columns = Columns {
        cell: needed("cell")?,
        window_start: needed("window_start")?,
        count: needed("count")?,
        sog_sum: needed("sog_sum")?,
        sog_missing: place("sog_missing"),
        vessels: place("vessels"),
    };
    let is_ours = |column: &&str| COLUMNS.contains(&column.trim_start_matches('\u{feff}'));
    let other_columns = header.iter().filter(|column| !is_ours(column)).map(str::to_owned).collect();
    let mut rows = Rows { other_columns, ..Rows::default() };
    let mut record = csv::StringRecord::new();
    loop {
        let line_error = |line: u64, error: String| TableError::Line { path: path.to_owned(), line, error };
        match csv.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(rows),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                return Err(line_error(line, error.to_string()));
            }
        }
        let line = record.position().map_or(0, csv::Position::line);
        let Line { row, utc, restored } = columns.line(&record, restore).map_err(|error| line_error(line, error))?;
        rows.utc |= utc;
        let key = row.key();
        rows.restored.extend(restored.then_some(key));
        if rows.rows.insert(key, row).is_some() {
            return Err(line_error(line, format!("cell {} and window {} stand here a second time", key.1, key.0)));
        }
    }
}

struct Columns {
    cell: usize,
    window_start: usize,
    count: usize,
    sog_sum: usize,
    sog_missing: Option<usize>,
    vessels: Option<usize>,
}

/// A line of a result.
struct Line {
    row: Row,
    /// Whether its window start is RFC 3339.
    utc: bool,
    /// Whether its sum was restored.
    restored: bool,
}

impl Columns {
    fn line(&self, record: &csv::StringRecord, restore: fn(&mut String) -> bool) -> Result<Line, String> {
        let field = |place: usize| record.get(place).ok_or_else(|| "the line is too short".to_owned());
        let number = |text: &str, name: &str| {
            let number = text.parse::<u64>().map_err(|_| format!("{name} '{text}' is not a whole number"))?;
            if number > MOST_REPORTS {
                return Err(format!("{name} {text} is beyond what a window can hold"));
            }
            Ok(number)
        };
        let optional = |place: Option<usize>| place.and_then(|place| record.get(place)).filter(|text| !text.is_empty());
        let cell = field(self.cell)?.parse().map_err(|error: crate::cell::InvalidCell| error.to_string())?;
        let (window_start, utc) = window_start(field(self.window_start)?)?;
        let mut sog_sum = field(self.sog_sum)?.to_owned();
        let restored = restore(&mut sog_sum);
        let sog_sum: Tenths = sog_sum.parse().map_err(|error| format!("sog_sum {error}"))?;
        let count = number(field(self.count)?, "count")?;
        let sog_missing = optional(self.sog_missing).map_or(Ok(0), |text| number(text, "sog_missing"))?;
        if sog_missing > count {
            return Err(format!("sog_missing {sog_missing} is more than count {count}"));
        }
        let vessels = optional(self.vessels).map(|text| number(text, "vessels")).transpose()?;
        Ok(Line { row: Row { cell, window_start, count, vessels, sog_sum, sog_missing }, utc, restored })
    }
}

/// A window start in either form, and whether it was RFC 3339.
fn window_start(text: &str) -> Result<(i64, bool), String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Ok((seconds, false));
    }
    match text.parse::<TimeArg>() {
        Ok(TimeArg::At(time)) if !text.starts_with('@') => Ok((time.seconds(), true)),
        _ => Err(format!("window_start '{text}' is neither epoch seconds nor RFC 3339")),
    }
}
