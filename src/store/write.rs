//! One run's way into a table: rows wait in a spool until every input is read, the ledger is asked, then they are written.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

#[cfg(feature = "aws")]
use super::dynamodb::DynamoStore;
use super::ledger::{InputIdentity, Ledger, ReadInput, Refusal, RunRecord, RunState};
use super::sqlite::SqliteStore;
use super::{Conflict, Item, Token, WriteCounts, WriteMode, Writing, Written};
use crate::aws::AwsOptions;
use crate::cell::Cell;
use crate::row::{Row, Tenths};
use crate::sink::SinkError;
use crate::sink::atomic::AtomicFile;

/// What can go wrong with a table. Each names it, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error("{table} does not exist: --create-table makes it where something is written, or {remedy}")]
    Missing {
        /// The table.
        table: String,
        /// What else helps.
        remedy: String,
    },
    /// It cannot be opened.
    #[error("cannot open {table}: {error}")]
    Open {
        /// The table.
        table: String,
        /// Why.
        error: String,
    },
    /// It is another kind of table.
    #[error("{table} is not a table of windows: {error}")]
    Schema {
        /// The table.
        table: String,
        /// What it has instead.
        error: String,
    },
    /// The service says no.
    #[error("{table}: {error}")]
    Denied {
        /// The table.
        table: String,
        /// Why, and what helps.
        error: String,
    },
    /// A call failed.
    #[error("{table}: {error}")]
    Call {
        /// The table.
        table: String,
        /// Why.
        error: String,
    },
    /// A row holds what no row holds.
    #[error("{table}, cell {cell}, window {window_start}: {error}")]
    Item {
        /// The table.
        table: String,
        /// Its cell.
        cell: String,
        /// Its window.
        window_start: i64,
        /// What is wrong.
        error: String,
    },
    /// A run record cannot be read or made.
    #[error("{table} holds a run record that cannot be read: {error}")]
    Record {
        /// The table.
        table: String,
        /// Why.
        error: String,
    },
    /// The spool failed.
    #[error(
        "cannot keep the rows in a temporary file in {folder}: {0}; name a folder with more room in TMPDIR",
        folder = std::env::temp_dir().display()
    )]
    Spool(io::Error),
    /// The run must not write.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The list of conflicts cannot be written.
    #[error(transparent)]
    Conflicts(#[from] SinkError),
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// A table as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableName {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A DynamoDB table; `None` takes the name from `AGG_TABLE`.
    DynamoDb(Option<String>),
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::DynamoDb(Some(name)) => write!(f, "dynamodb:{name}"),
            Self::DynamoDb(None) => f.write_str("dynamodb"),
        }
    }
}

impl TableName {
    /// Reads `sqlite:PATH`, `dynamodb:TABLE` or `dynamodb`; `None` where it is none of those.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Some(Self::Sqlite(path.into())),
            Some(("dynamodb", name)) if !name.is_empty() => Some(Self::DynamoDb(Some(name.to_owned()))),
            None if text == "dynamodb" => Some(Self::DynamoDb(None)),
            _ => None,
        }
    }
}

/// Which rows to read.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// Cells; none means all.
    pub cells: Vec<Cell>,
    /// Beginnings of cells, beside those.
    pub prefixes: Vec<Cell>,
    /// Least window start, epoch seconds.
    pub from: Option<i64>,
    /// Greatest window start.
    pub to: Option<i64>,
}

impl Keys {
    /// Whether every cell is wanted.
    #[must_use]
    pub fn all_cells(&self) -> bool {
        self.cells.is_empty() && self.prefixes.is_empty()
    }

    /// Whether a key is wanted.
    #[must_use]
    pub fn hold(&self, cell: Cell, window_start: i64) -> bool {
        let wanted = self.all_cells()
            || self.cells.contains(&cell)
            || self.prefixes.iter().any(|prefix| cell.starts_with(*prefix));
        wanted && self.from.is_none_or(|from| window_start >= from) && self.to.is_none_or(|to| window_start <= to)
    }

    /// The same for a cell as text. One that is no geohash is wanted where all are, so that it is told.
    #[must_use]
    pub fn hold_text(&self, cell: &str, window_start: i64) -> bool {
        match cell.parse() {
            Ok(cell) => self.hold(cell, window_start),
            Err(_) => self.all_cells(),
        }
    }
}

/// A row of a table, and what else its item says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The row. Its vessels are not known.
    pub row: Row,
    /// The item.
    pub item: Item,
    /// Whether its sum is the tenth that stands behind what the table holds ([`crate::row::restore_tenth`]).
    pub restored: bool,
    /// Whether the table holds a sum for it. Where it does not, the row's is 0.
    pub has_sum: bool,
}

impl TableRow {
    /// A row of an item.
    ///
    /// # Errors
    ///
    /// Where the cell is no geohash.
    pub fn new(cell: &str, window_start: i64, item: Item, table: &str) -> Result<Self, StoreError> {
        let parsed = cell.parse::<Cell>().map_err(|error| StoreError::Item {
            table: table.to_owned(),
            cell: cell.to_owned(),
            window_start,
            error: error.to_string(),
        })?;
        let row = Row {
            cell: parsed,
            window_start,
            count: item.count,
            vessels: None,
            sog_sum: item.sog_sum,
            sog_missing: item.sog_missing,
        };
        Ok(Self { row, item, restored: false, has_sum: true })
    }
}

/// An open table.
pub enum Store {
    /// A SQLite file.
    Sqlite(SqliteStore),
    /// A DynamoDB table.
    #[cfg(feature = "aws")]
    DynamoDb(Box<DynamoStore>),
}

impl Store {
    /// Opens a table and checks that it is one of windows.
    ///
    /// # Errors
    ///
    /// Where it cannot be reached, is missing, or is another kind of table.
    pub fn open(name: &TableName, create: bool, aws: &AwsOptions, write_rate: Option<u32>) -> Result<Self, StoreError> {
        Ok(match name {
            TableName::Sqlite(path) => Self::Sqlite(SqliteStore::open(path, create)?),
            #[cfg(feature = "aws")]
            TableName::DynamoDb(name) => {
                Self::DynamoDb(Box::new(DynamoStore::open(name.as_deref(), create, aws, write_rate)?))
            }
            #[cfg(not(feature = "aws"))]
            TableName::DynamoDb(_) => {
                let _ = (aws, write_rate);
                let error = "this build has no DynamoDB in it".to_owned();
                return Err(StoreError::Open { table: name.to_string(), error });
            }
        })
    }

    /// The run records.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StoreError> {
        match self {
            Self::Sqlite(store) => store.ledger(),
            #[cfg(feature = "aws")]
            Self::DynamoDb(store) => store.ledger(),
        }
    }

    /// The rows of some keys, by cell, then window.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn read(&self, keys: &Keys) -> Result<Vec<TableRow>, StoreError> {
        match self {
            Self::Sqlite(store) => store.read(keys),
            #[cfg(feature = "aws")]
            Self::DynamoDb(store) => store.read(keys),
        }
    }

    fn put_record(&mut self, record: &mut RunRecord, new: bool) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.put_record(record, new),
            #[cfg(feature = "aws")]
            Self::DynamoDb(store) => store.put_record(record, new),
        }
    }

    fn write(
        &mut self,
        rows: &mut (dyn Iterator<Item = Result<Row, StoreError>> + Send),
        writing: &Writing,
        tell: &mut dyn FnMut(&Row, Written),
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.write(rows, writing, tell),
            #[cfg(feature = "aws")]
            Self::DynamoDb(store) => store.write(rows, writing, tell),
        }
    }
}

/// Rows on disk, in an unnamed file that no kill leaves behind.
pub struct RowSpool {
    file: BufWriter<File>,
    rows: u64,
}

/// Bytes of a row in the spool: five numbers.
const ROW_BYTES: usize = 40;

impl RowSpool {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// Where no temporary file can be made.
    pub fn new() -> Result<Self, StoreError> {
        let file = tempfile::tempfile().map_err(StoreError::Spool)?;
        Ok(Self { file: BufWriter::with_capacity(256 * 1024, file), rows: 0 })
    }

    /// Takes rows.
    ///
    /// # Errors
    ///
    /// Where the disk is full.
    pub fn push(&mut self, rows: &[Row]) -> io::Result<()> {
        for row in rows {
            let numbers =
                [row.cell.to_bits(), row.window_start.cast_unsigned(), row.count, row.sog_sum.0, row.sog_missing];
            for number in numbers {
                self.file.write_all(&number.to_le_bytes())?;
            }
        }
        self.rows += rows.len() as u64;
        Ok(())
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All rows, in the order in which they came.
    ///
    /// # Errors
    ///
    /// Where the disk is full, or fails.
    pub fn read(self) -> Result<impl Iterator<Item = Result<Row, StoreError>> + Send, StoreError> {
        let mut file = self.file.into_inner().map_err(|error| StoreError::Spool(error.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(StoreError::Spool)?;
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        Ok((0..self.rows).map(move |_| {
            let mut bytes = [0; ROW_BYTES];
            reader.read_exact(&mut bytes).map_err(StoreError::Spool)?;
            let (numbers, _) = bytes.as_chunks::<8>();
            let number = |place: usize| u64::from_le_bytes(numbers[place]);
            Ok(Row {
                cell: Cell::from_bits(number(0)),
                window_start: number(1).cast_signed(),
                count: number(2),
                vessels: None,
                sog_sum: Tenths(number(3)),
                sog_missing: number(4),
            })
        }))
    }
}

/// What a run wants of a table.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// What to do with rows.
    pub mode: WriteMode,
    /// Write what the ledger would refuse.
    pub again: bool,
    /// Where rows that were left alone are listed.
    pub conflicts: Option<PathBuf>,
    /// Length of the live pipeline's windows.
    pub live_window_seconds: i64,
    /// Write nothing, not even a table to be made.
    pub dry_run: bool,
    /// Most writes a second.
    pub write_rate: Option<u32>,
}

/// A run that has been read and wants to write.
#[derive(Clone, Debug)]
pub struct ReadRun {
    /// Its token.
    pub token: Token,
    /// When it began, epoch milliseconds.
    pub started_ms: i64,
    /// What it read.
    pub inputs: Vec<ReadInput>,
    /// The late files among these: name, and the run that each is of.
    pub late_files: Vec<(String, Option<String>)>,
    /// Options that its result depends on, for people.
    pub options: String,
    /// Length of its windows.
    pub window_seconds: i64,
}

/// What a run did to a table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WriteReport {
    /// The table.
    pub table: String,
    /// What it did.
    pub mode: &'static str,
    /// Its token.
    pub run: String,
    /// Whether it went on where an earlier try of it broke off.
    pub resumed: bool,
    /// Rows by what became of them.
    pub rows: WriteCounts,
    /// Why the first row was left alone.
    pub first_conflict: Option<String>,
    /// Every reason for which rows were left alone.
    #[serde(skip)]
    pub conflict_kinds: Vec<Conflict>,
}

impl std::fmt::Display for WriteReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WriteCounts { new, changed, already, conflicts } = self.rows;
        let what = match self.mode {
            "undo" => format!("{changed} taken back, {already} held nothing of this run"),
            "replace" => format!("{new} new, {changed} set anew, {already} already this run's"),
            _ => format!("{new} new, {changed} merged into existing counts, {already} already this run's"),
        };
        let resumed = if self.resumed { ", going on where it broke off" } else { "" };
        write!(f, "{} ({} by run {}{resumed}): {what}, {conflicts} in conflict", self.table, self.mode, self.run)
    }
}

/// A table that a run writes to: open, known to be one, and its ledger read.
pub struct TableSink {
    /// `None` where a dry run would make it.
    store: Option<Store>,
    ledger: Ledger,
    spool: RowSpool,
    options: WriteOptions,
}

impl TableSink {
    /// Opens the table.
    ///
    /// # Errors
    ///
    /// See [`Store::open`] and [`Store::ledger`].
    pub fn open(name: &TableName, create: bool, aws: &AwsOptions, options: WriteOptions) -> Result<Self, StoreError> {
        let (store, ledger) = match Store::open(name, create && !options.dry_run, aws, options.write_rate) {
            Err(StoreError::Missing { table, .. }) if create => (None, Ledger { table, records: Vec::new() }),
            store => {
                let store = store?;
                let ledger = store.ledger()?;
                (Some(store), ledger)
            }
        };
        Ok(Self { store, ledger, spool: RowSpool::new()?, options })
    }

    /// Rows that wait to be written.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.spool.len()
    }

    /// Its ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes rows, for later.
    ///
    /// # Errors
    ///
    /// Where the disk is full.
    pub fn push(&mut self, rows: &[Row]) -> io::Result<()> {
        self.spool.push(rows)
    }

    /// Asks the ledger whether a run may write here.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check(&self, run: &ReadRun) -> Result<(), StoreError> {
        let mode = self.options.mode;
        self.ledger.check_id(&run.token, mode, &run.inputs, &run.options)?;
        if self.options.again && mode != WriteMode::Undo {
            return Ok(());
        }
        self.ledger.check(&run.token, mode, &run.inputs)?;
        if mode == WriteMode::Undo {
            return Ok(());
        }
        for (name, late_run) in &run.late_files {
            if let Some(late_run) = late_run {
                self.ledger.check_late_file(name, late_run)?;
            }
        }
        Ok(())
    }

    /// Writes everything.
    ///
    /// # Errors
    ///
    /// Where a row cannot be written. What was written until then stays, and the same command goes on from there.
    pub fn finish(mut self, run: &ReadRun, progress: &mut dyn FnMut(u64)) -> Result<WriteReport, StoreError> {
        let mode = self.options.mode;
        let Some(mut store) = self.store.take() else {
            return Err(StoreError::Missing { table: self.ledger.table, remedy: "leave --dry-run out".to_owned() });
        };
        // Reading may have taken hours, in which another run may have come and gone.
        self.ledger = store.ledger()?;
        self.check(run)?;
        let known = self.ledger.record_of(&run.token);
        let (is_new, was_undone) = (known.is_none(), known.is_some_and(|known| known.state == RunState::Undone));
        let (mut record, resumed) = self.record(run);
        store.put_record(&mut record, is_new)?;
        let writing = Writing {
            mode,
            token: run.token.clone(),
            window_seconds: run.window_seconds,
            live_window_seconds: self.options.live_window_seconds,
        };
        let mut conflicts = self.options.conflicts.as_deref().map(AtomicFile::create).transpose()?;
        let mut counts = WriteCounts::default();
        // The first in the order of rows: calls in flight end in any order.
        let mut first_conflict: Option<((i64, Cell), Conflict)> = None;
        let mut conflict_kinds = Vec::new();
        let mut failure = None;
        let mut told = 0;
        let mut rows = self.spool.read()?;
        store.write(&mut rows, &writing, &mut |row, written| {
            counts.add(written);
            told += 1;
            progress(told);
            if let Written::Conflict(conflict) = written {
                if first_conflict.is_none_or(|(key, _)| row.key() < key) {
                    first_conflict = Some((row.key(), conflict));
                }
                if !conflict_kinds.contains(&conflict) {
                    conflict_kinds.push(conflict);
                }
                if let Some(file) = &mut conflicts
                    && let Err(error) = writeln!(file, "{}", conflict_line(row, conflict))
                {
                    failure.get_or_insert(error);
                }
            }
        })?;
        if let Some(file) = conflicts {
            match failure {
                Some(error) => return Err(file.error(error).into()),
                None => file.commit()?,
            }
        }
        record.state = RunState::Complete;
        if mode != WriteMode::Undo {
            record.conflicts = counts.conflicts;
        } else if was_undone {
            record.state = RunState::Undone;
        } else if counts.conflicts == 0 {
            // Ranges of a stream are taken back one by one; the last of them takes the run along.
            let is_left = |known: &&InputIdentity| known.is_other_range_than(&run.inputs);
            let left: Vec<InputIdentity> = record.inputs.iter().filter(is_left).cloned().collect();
            match left.is_empty() {
                true => record.state = RunState::Undone,
                false => record.inputs = left,
            }
        }
        // Else rows could not be taken back: the run is in the table still, and so are its inputs.
        store.put_record(&mut record, false)?;
        Ok(WriteReport {
            table: self.ledger.table,
            mode: mode.name(),
            run: run.token.to_string(),
            resumed,
            rows: counts,
            first_conflict: first_conflict.map(|((start, cell), conflict)| describe(cell, start, conflict)),
            conflict_kinds,
        })
    }

    /// The record to write first, and whether it is that of an earlier try.
    fn record(&self, run: &ReadRun) -> (RunRecord, bool) {
        let fresh = RunRecord {
            started_ms: run.started_ms,
            token: run.token.to_string(),
            mode: self.options.mode.name().to_owned(),
            inputs: run.inputs.iter().map(|input| input.identity.clone()).collect::<Vec<InputIdentity>>(),
            options: run.options.clone(),
            state: RunState::Writing,
            rows: self.spool.len(),
            conflicts: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        match self.ledger.record_of(&run.token) {
            // What was added, and under which name, is what an undo takes back: it may have read a copy of it.
            Some(known) if self.options.mode == WriteMode::Undo => {
                (RunRecord { state: RunState::Writing, ..known.clone() }, false)
            }
            // A run that is done or broke off keeps its own record.
            Some(known) => {
                // A named run may go on with a further range of its stream, and what it has added of it stays.
                let stays =
                    |input: &&InputIdentity| known.state != RunState::Undone && input.is_other_range_than(&run.inputs);
                let mut inputs: Vec<InputIdentity> = known.inputs.iter().filter(stays).cloned().collect();
                inputs.extend(fresh.inputs.iter().cloned());
                let resumed = known.state == RunState::Writing;
                (RunRecord { started_ms: known.started_ms, inputs, ..fresh }, resumed)
            }
            None => (fresh, false),
        }
    }
}

fn describe(cell: Cell, window_start: i64, conflict: Conflict) -> String {
    format!("cell {cell}, window {window_start}: {}", conflict.reason())
}

/// A conflict in the form that `--only` reads.
fn conflict_line(row: &Row, conflict: Conflict) -> serde_json::Value {
    serde_json::json!({
        "cell": row.cell.to_string(),
        "window_start": row.window_start,
        "reason": conflict.reason(),
    })
}
