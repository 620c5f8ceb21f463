//! What a result holds, per cell and window, and where two results differ.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use crate::aws::AwsOptions;
use crate::cell::{Cell, InvalidCell};
use crate::engine::clock::Lateness;
use crate::row::{Average, Row, Tenths};
#[cfg(feature = "aws")]
use crate::source::s3::S3Url;
use crate::store::write::{Keys, Store, TableName};
use crate::table;

/// A result that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRef {
    /// A CSV file.
    Csv(PathBuf),
    /// A table.
    Table(TableName),
}

impl std::str::FromStr for TableRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(table) = TableName::parse(text) {
            return Ok(Self::Table(table));
        }
        match text.split_once(':') {
            Some(("csv", path)) if !path.is_empty() => Ok(Self::Csv(path.into())),
            _ => Err(format!("'{text}' is no result that can be read: csv:PATH, sqlite:PATH or dynamodb:TABLE")),
        }
    }
}

impl std::fmt::Display for TableRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Csv(path) => write!(f, "csv:{}", path.display()),
            Self::Table(table) => table.fmt(f),
        }
    }
}

/// What was read of a result.
#[derive(Debug, Default)]
pub struct Held {
    /// Rows by (window start, cell).
    pub rows: BTreeMap<(i64, Cell), Row>,
    /// Keys of those whose sum went through a float and was read as the tenth that it stands for.
    pub restored: Vec<(i64, Cell)>,
    /// Keys of those without any sum, which was read as 0.
    pub without_sum: Vec<(i64, Cell)>,
}

impl TableRef {
    /// The rows of some keys. A row of a table that holds no report is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    pub fn read(&self, keys: &Keys, aws: &AwsOptions) -> anyhow::Result<Held> {
        Ok(match self {
            Self::Csv(path) => {
                let table::Rows { mut rows, restored, .. } = table::read_csv_to_compare(path)?;
                rows.retain(|(start, cell), _| keys.hold(*cell, *start));
                Held { rows, restored, ..Held::default() }
            }
            Self::Table(name) => {
                let mut held = Held::default();
                let rows = Store::open(name, false, aws, None)?.read(keys)?;
                for row in rows.into_iter().filter(|row| row.item.count > 0) {
                    held.restored.extend(row.restored.then_some(row.row.key()));
                    held.without_sum.extend((!row.has_sum).then_some(row.row.key()));
                    held.rows.insert(row.row.key(), row.row);
                }
                held
            }
        })
    }
}

/// Cells as `verify` takes them: one, or with a star all that begin so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPattern {
    /// The cell.
    pub cell: Cell,
    /// Whether a star stands behind it.
    pub is_prefix: bool,
}

impl std::str::FromStr for CellPattern {
    type Err = InvalidCell;

    fn from_str(text: &str) -> Result<Self, InvalidCell> {
        let (cell, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
        Ok(Self { cell: cell.parse()?, is_prefix })
    }
}

/// What a result is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Another result.
    Table(TableRef),
    /// The sentences themselves, in a file or directory.
    File(PathBuf),
    /// The same in S3.
    #[cfg(feature = "aws")]
    Objects(S3Url),
    /// The sentences themselves, in a Kinesis stream: its name or its ARN.
    #[cfg(feature = "aws")]
    Stream(String),
}

impl Reference {
    /// The allowed lateness where none is given: that of the command that reads the same.
    #[must_use]
    pub fn default_lateness(&self) -> Lateness {
        match self {
            Self::Table(_) | Self::File(_) => Lateness::Unbounded,
            #[cfg(feature = "aws")]
            Self::Objects(_) => Lateness::Unbounded,
            #[cfg(feature = "aws")]
            Self::Stream(_) => Lateness::LIVE_PIPELINE,
        }
    }
}

/// What a reference may be.
const REFERENCES: &str = if cfg!(feature = "aws") {
    "csv:PATH, sqlite:PATH, dynamodb:TABLE, file:PATH, s3://BUCKET/KEY or kinesis:STREAM"
} else {
    "csv:PATH, sqlite:PATH, dynamodb:TABLE or file:PATH"
};

impl std::str::FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            #[cfg(feature = "aws")]
            Some(("kinesis", stream)) if !stream.is_empty() => Ok(Self::Stream(stream.to_owned())),
            #[cfg(feature = "aws")]
            Some(("s3", _)) => text.parse().map(Self::Objects),
            _ => text
                .parse()
                .map(Self::Table)
                .map_err(|_: String| format!("'{text}' is nothing to compare with: {REFERENCES}")),
        }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::File(path) => write!(f, "file:{}", path.display()),
            #[cfg(feature = "aws")]
            Self::Objects(url) => url.fmt(f),
            #[cfg(feature = "aws")]
            Self::Stream(stream) => write!(f, "kinesis:{stream}"),
        }
    }
}

/// Prints each cell's windows in order, and their total. The cells that were asked for come in that order; where there are
/// several, each has a heading.
///
/// # Errors
///
/// Those of `out`.
pub fn print_cells(out: &mut impl Write, cells: &[Cell], rows: &[Row]) -> io::Result<()> {
    let mut by_cell: BTreeMap<Cell, Vec<&Row>> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
    for row in rows {
        by_cell.entry(row.cell).or_default().push(row);
    }
    let others = by_cell.keys().copied().filter(|cell| !cells.contains(cell));
    let order: Vec<Cell> = cells.iter().copied().chain(others).collect();
    for cell in &order {
        let rows = &by_cell[cell];
        if order.len() > 1 {
            writeln!(out, "cell {cell}")?;
        }
        for row in rows {
            write!(out, "window {}: ", row.window_start)?;
            print_numbers(out, row.count, row.sog_sum, row.sog_missing)?;
        }
        let sum = |number: fn(&Row) -> u64| rows.iter().map(|row| number(row)).sum::<u64>();
        write!(out, "total: windows={} ", rows.len())?;
        print_numbers(out, sum(|row| row.count), Tenths(sum(|row| row.sog_sum.0)), sum(|row| row.sog_missing))?;
    }
    Ok(())
}

fn print_numbers(out: &mut impl Write, count: u64, sog_sum: Tenths, sog_missing: u64) -> io::Result<()> {
    write!(out, "count={count} avg_sog=")?;
    match Average::new(sog_sum, count.saturating_sub(sog_missing)) {
        Some(average) => write!(out, "{average:.1}")?,
        None => write!(out, "n/a")?,
    }
    if sog_missing > 0 {
        write!(out, " sog_missing={sog_missing}")?;
    }
    writeln!(out)
}

/// The numbers of a row that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Reports.
    pub count: u64,
    /// Sum of SOG.
    pub sog_sum: Tenths,
    /// Reports without SOG.
    pub sog_missing: u64,
}

impl From<&Row> for Numbers {
    fn from(row: &Row) -> Self {
        Self { count: row.count, sog_sum: row.sog_sum, sog_missing: row.sog_missing }
    }
}

impl std::fmt::Display for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "count={} sog_sum={} sog_missing={}", self.count, self.sog_sum, self.sog_missing)
    }
}

/// A row that two results do not agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Geohash cell.
    pub cell: String,
    /// Start of the window, epoch seconds.
    pub window_start: i64,
    /// What the one has.
    #[serde(rename = "in")]
    pub ours: Option<Numbers>,
    /// What the other has.
    #[serde(rename = "against")]
    pub theirs: Option<Numbers>,
}

/// Every difference between two results, ordered by window, then cell.
#[must_use]
pub fn differences(ours: &BTreeMap<(i64, Cell), Row>, theirs: &BTreeMap<(i64, Cell), Row>) -> Vec<Difference> {
    let mut keys: Vec<&(i64, Cell)> = ours.keys().chain(theirs.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let difference = |key: &(i64, Cell)| {
        let (ours, theirs) = (ours.get(key).map(Numbers::from), theirs.get(key).map(Numbers::from));
        (ours != theirs).then(|| Difference { cell: key.1.to_string(), window_start: key.0, ours, theirs })
    };
    keys.into_iter().filter_map(difference).collect()
}
