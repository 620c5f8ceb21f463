//! The table in one SQLite file: the same columns, write modes, tokens and run records, without a cloud.
//!
//! `sog_sum` is a decimal text, as exact as in the cloud; SQL arithmetic reads it as a number. `applied` is a JSON array.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::ledger::{Ledger, RunRecord};
use super::write::{Keys, StoreError, TableRow};
use super::{Item, RUN_KEY, Writing, Written, decide};
use crate::row::{Row, Tenths};

/// Rows of one transaction.
const BATCH_ROWS: usize = 2_000;

/// How long a writer waits for another one.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS ais_window_agg (
    cell TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    count INTEGER,
    sog_sum TEXT,
    sog_missing INTEGER,
    window_seconds INTEGER,
    applied TEXT,
    record TEXT,
    PRIMARY KEY (cell, window_start)
) WITHOUT ROWID";

/// A table in a SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
}

impl SqliteStore {
    /// Opens the file, and makes it where `create` says so.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, or holds something else.
    pub fn open(path: &Path, create: bool) -> Result<Self, StoreError> {
        let fail = |error: rusqlite::Error| StoreError::Open { table: name(path), error: error.to_string() };
        if !create && !path.exists() {
            return Err(StoreError::Missing {
                table: name(path),
                remedy: "give the path of one that exists".to_owned(),
            });
        }
        let flags = if create {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        };
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fail)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        if create {
            connection.execute_batch(SCHEMA).map_err(fail)?;
        }
        let store = Self { path: path.to_owned(), connection };
        // A file with another table of that name shows here, before any input is read.
        store
            .connection
            .prepare("SELECT cell, window_start, count, sog_sum, sog_missing, window_seconds, applied, record FROM ais_window_agg")
            .map_err(|error| StoreError::Schema { table: name(path), error: error.to_string() })?;
        Ok(store)
    }

    fn fail(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Call { table: name(&self.path), error: error.to_string() }
    }

    /// The run records.
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn ledger(&self) -> Result<Ledger, StoreError> {
        let fail = |error| self.fail(error);
        let mut statement = self
            .connection
            .prepare("SELECT record FROM ais_window_agg WHERE cell = ?1 ORDER BY window_start")
            .map_err(fail)?;
        let texts = statement.query_map([RUN_KEY], |row| row.get::<_, String>(0)).map_err(fail)?;
        let mut records = Vec::new();
        for text in texts {
            let text = text.map_err(fail)?;
            records.push(
                serde_json::from_str(&text)
                    .map_err(|error| StoreError::Record { table: name(&self.path), error: error.to_string() })?,
            );
        }
        Ok(Ledger { table: name(&self.path), records })
    }

    /// Writes a run record; a new one gets the next free key from its start on.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn put_record(&mut self, record: &mut RunRecord, new: bool) -> Result<(), StoreError> {
        loop {
            let text = serde_json::to_string(record)
                .map_err(|error| StoreError::Record { table: name(&self.path), error: error.to_string() })?;
            let verb = if new { "INSERT OR IGNORE" } else { "REPLACE" };
            let sql = format!("{verb} INTO ais_window_agg (cell, window_start, record) VALUES (?1, ?2, ?3)");
            let written = self.connection.execute(&sql, params![RUN_KEY, record.started_ms, text]);
            match written.map_err(|error| self.fail(error))? {
                0 => record.started_ms += 1,
                _ => return Ok(()),
            }
        }
    }

    /// Writes rows, a batch a transaction, and tells what became of each once its batch is in the file.
    ///
    /// # Errors
    ///
    /// Where a row cannot be read, or a batch not be written; earlier batches are in the file then.
    pub fn write(
        &mut self,
        rows: &mut dyn Iterator<Item = Result<Row, StoreError>>,
        writing: &Writing,
        tell: &mut dyn FnMut(&Row, Written),
    ) -> Result<(), StoreError> {
        let path = self.path.clone();
        let fail = |error: rusqlite::Error| StoreError::Call { table: name(&path), error: error.to_string() };
        loop {
            let batch: Vec<Row> = rows.take(BATCH_ROWS).collect::<Result<_, _>>()?;
            if batch.is_empty() {
                return Ok(());
            }
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
            let mut outcomes = Vec::with_capacity(batch.len());
            {
                let mut get = transaction
                    .prepare_cached("SELECT count, sog_sum, sog_missing, window_seconds, applied FROM ais_window_agg WHERE cell = ?1 AND window_start = ?2")
                    .map_err(fail)?;
                let mut put = transaction
                    .prepare_cached("REPLACE INTO ais_window_agg (cell, window_start, count, sog_sum, sog_missing, window_seconds, applied) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
                    .map_err(fail)?;
                for row in &batch {
                    let cell = row.cell.to_string();
                    let columns =
                        get.query_row(params![cell, row.window_start], columns_of).optional().map_err(fail)?;
                    let existing =
                        columns.map(|columns| columns.item(&cell, row.window_start, &name(&path))).transpose()?;
                    let (item, written) = decide(existing.as_ref(), row, writing);
                    if let Some(item) = item {
                        let applied = serde_json::to_string(&item.applied)
                            .map_err(|error| StoreError::Call { table: name(&path), error: error.to_string() })?;
                        let missing = Some(item.sog_missing).filter(|missing| *missing > 0);
                        put.execute(params![
                            cell,
                            row.window_start,
                            item.count,
                            item.sog_sum.to_string(),
                            missing,
                            item.window_seconds,
                            applied
                        ])
                        .map_err(fail)?;
                    }
                    outcomes.push(written);
                }
            }
            transaction.commit().map_err(fail)?;
            for (row, written) in batch.iter().zip(outcomes) {
                tell(row, written);
            }
        }
    }

    /// The rows of some keys, by (cell, window start).
    ///
    /// # Errors
    ///
    /// Where they cannot be read.
    pub fn read(&self, keys: &Keys) -> Result<Vec<TableRow>, StoreError> {
        let fail = |error| self.fail(error);
        let mut statement = self
            .connection
            .prepare("SELECT count, sog_sum, sog_missing, window_seconds, applied, cell, window_start FROM ais_window_agg WHERE cell <> ?1 ORDER BY cell, window_start")
            .map_err(fail)?;
        let mut found = Vec::new();
        let mut rows = statement.query([RUN_KEY]).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            let (cell, window_start) = (row.get::<_, String>(5).map_err(fail)?, row.get::<_, i64>(6).map_err(fail)?);
            if !keys.hold_text(&cell, window_start) {
                continue;
            }
            let item = columns_of(row).map_err(fail)?.item(&cell, window_start, &name(&self.path))?;
            found.push(TableRow::new(&cell, window_start, item, &name(&self.path))?);
        }
        Ok(found)
    }
}

fn name(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// The columns of a row as they stand there; other programs may have written them.
struct Columns {
    count: Option<i64>,
    sog_sum: Option<String>,
    sog_missing: Option<i64>,
    window_seconds: Option<i64>,
    applied: Option<String>,
}

fn columns_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Columns> {
    let sum = match row.get_ref(1)? {
        rusqlite::types::ValueRef::Null => None,
        rusqlite::types::ValueRef::Integer(knots) => Some(knots.to_string()),
        rusqlite::types::ValueRef::Real(knots) => Some(knots.to_string()),
        value => Some(value.as_str()?.to_owned()),
    };
    Ok(Columns {
        count: row.get(0)?,
        sog_sum: sum,
        sog_missing: row.get(2)?,
        window_seconds: row.get(3)?,
        applied: row.get(4)?,
    })
}

impl Columns {
    fn item(self, cell: &str, window_start: i64, table: &str) -> Result<Item, StoreError> {
        let fail =
            |error: String| StoreError::Item { table: table.to_owned(), cell: cell.to_owned(), window_start, error };
        let number = |value: Option<i64>, column: &str| {
            u64::try_from(value.unwrap_or(0)).map_err(|_| fail(format!("{column} is below zero")))
        };
        Ok(Item {
            count: number(self.count, "count")?,
            sog_sum: self
                .sog_sum
                .as_deref()
                .unwrap_or("0")
                .parse::<Tenths>()
                .map_err(|error| fail(format!("sog_sum {error}")))?,
            sog_missing: number(self.sog_missing, "sog_missing")?,
            window_seconds: self.window_seconds,
            applied: match self.applied.as_deref() {
                None | Some("") => Default::default(),
                Some(json) => serde_json::from_str(json).map_err(|error| fail(format!("applied: {error}")))?,
            },
        })
    }
}
