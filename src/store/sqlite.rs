//! The table in one SQLite file: the same columns, write modes, tokens and run records, without a cloud.
//!
//! `sog_sum` is a decimal text, as exact as in the cloud; SQL arithmetic reads it as a number. `applied` is a JSON array.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::ledger::{Ledger, RunRecord};
use super::write::{Keys, StoreError, TableRow};
use super::{Item, RUN_KEY, Writing, Written, decide};
use crate::row::{Row, Tenths, restore_tenth};

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

/// The columns of [`SCHEMA`].
const NEEDED: [&str; 8] =
    ["cell", "window_start", "count", "sog_sum", "sog_missing", "window_seconds", "applied", "record"];

/// What stands under the table's name.
const KIND: &str = "SELECT type FROM sqlite_schema WHERE lower(name) = 'ais_window_agg' AND type <> 'trigger'";

const COLUMNS: &str = "SELECT lower(name) FROM pragma_table_info('ais_window_agg')";

const GET: &str = "SELECT count, sog_sum, sog_missing, window_seconds, applied
    FROM ais_window_agg WHERE cell = ?1 AND window_start = ?2";

// What other columns a row has stays as it is.
const PUT: &str =
    "INSERT INTO ais_window_agg (cell, window_start, count, sog_sum, sog_missing, window_seconds, applied)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (cell, window_start) DO UPDATE SET count = excluded.count, sog_sum = excluded.sog_sum,
    sog_missing = excluded.sog_missing, window_seconds = excluded.window_seconds, applied = excluded.applied";

const PUT_RECORD: &str = "INSERT INTO ais_window_agg (cell, window_start, record) VALUES (?1, ?2, ?3)
    ON CONFLICT (cell, window_start) DO UPDATE SET record = excluded.record";

const PUT_NEW_RECORD: &str = "INSERT INTO ais_window_agg (cell, window_start, record) VALUES (?1, ?2, ?3)
    ON CONFLICT (cell, window_start) DO NOTHING";

const READ_ALL: &str = "SELECT count, sog_sum, sog_missing, window_seconds, applied, cell, window_start
    FROM ais_window_agg WHERE cell <> ?1 AND window_start BETWEEN ?2 AND ?3 ORDER BY cell, window_start";

const READ_CELL: &str = "SELECT count, sog_sum, sog_missing, window_seconds, applied, cell, window_start
    FROM ais_window_agg WHERE cell = ?1 AND window_start BETWEEN ?2 AND ?3 ORDER BY window_start";

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
        let fail = |error: rusqlite::Error| StoreError::Open { table: name(path), error: why(&error) };
        check_place(path, create)?;
        let flags = if create {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        };
        // SQLite has meanings of its own for names such as `:memory:`, and none for a path of several parts.
        let file = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
        let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fail)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        let kind = connection.query_row(KIND, [], |row| row.get::<_, String>(0)).optional().map_err(fail)?;
        match kind {
            None if create => connection.execute_batch(SCHEMA).map_err(fail)?,
            None => {
                return Err(StoreError::Missing {
                    table: format!("the table ais_window_agg in {}", name(path)),
                    remedy: "give the path of a file that holds it".to_owned(),
                });
            }
            Some(kind) => {
                if let Some(what) = difference(&connection, &kind).map_err(fail)? {
                    let error = format!("its ais_window_agg is {what}; give the path of another file");
                    return Err(StoreError::Schema { table: name(path), error });
                }
            }
        }
        Ok(Self { path: path.to_owned(), connection })
    }

    fn fail(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Call { table: name(&self.path), error: why(&error) }
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
            let put = if new { PUT_NEW_RECORD } else { PUT_RECORD };
            let written = self.connection.execute(put, params![RUN_KEY, record.started_ms, text]);
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
        let fail = |error: rusqlite::Error| StoreError::Call { table: name(&path), error: why(&error) };
        loop {
            let batch: Vec<Row> = rows.take(BATCH_ROWS).collect::<Result<_, _>>()?;
            if batch.is_empty() {
                return Ok(());
            }
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
            let mut outcomes = Vec::with_capacity(batch.len());
            {
                let mut get = transaction.prepare_cached(GET).map_err(fail)?;
                let mut put = transaction.prepare_cached(PUT).map_err(fail)?;
                for row in &batch {
                    let cell = row.cell.to_string();
                    let columns = get.query_row(params![cell, row.window_start], |row| Ok(columns_of(row)));
                    let columns = columns.optional().map_err(fail)?;
                    let existing =
                        columns.map(|columns| item(columns, &name(&path), &cell, row.window_start)).transpose()?;
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
        let (from, to) = (keys.from.unwrap_or(i64::MIN), keys.to.unwrap_or(i64::MAX));
        let mut found = Vec::new();
        if keys.all_cells() || !keys.prefixes.is_empty() {
            self.read_with(READ_ALL, params![RUN_KEY, from, to], keys, &mut found)?;
            return Ok(found);
        }
        let cells: BTreeSet<String> = keys.cells.iter().map(ToString::to_string).collect();
        for cell in cells {
            self.read_with(READ_CELL, params![cell, from, to], keys, &mut found)?;
        }
        Ok(found)
    }

    fn read_with(
        &self,
        sql: &str,
        parameters: &[&dyn rusqlite::ToSql],
        keys: &Keys,
        found: &mut Vec<TableRow>,
    ) -> Result<(), StoreError> {
        let fail = |error| self.fail(error);
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let mut rows = statement.query(parameters).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            let (cell, window_start) = (row.get::<_, String>(5).map_err(fail)?, row.get::<_, i64>(6).map_err(fail)?);
            if keys.hold_text(&cell, window_start) {
                let mut columns = columns_of(row);
                let sum = columns.as_mut().ok().and_then(|columns| columns.sog_sum.as_mut());
                let has_sum = sum.is_some();
                let restored = sum.is_some_and(restore_tenth);
                let item = item(columns, &name(&self.path), &cell, window_start)?;
                let row = TableRow::new(&cell, window_start, item, &name(&self.path))?;
                found.push(TableRow { restored, has_sum, ..row });
            }
        }
        Ok(())
    }
}

/// Whether a path is one of a database, or of one that could be made.
fn check_place(path: &Path, create: bool) -> Result<(), StoreError> {
    let impossible = |error: String| Err(StoreError::Open { table: name(path), error });
    let is_in_folder = || path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir());
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            impossible("it is a directory; give the path of a file, as one in it".to_owned())
        }
        Ok(found) if !found.is_file() => impossible("it is a pipe or a device; give the path of a file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !create => {
            Err(StoreError::Missing { table: name(path), remedy: "give the path of one that exists".to_owned() })
        }
        Err(error) if !is_in_folder() => {
            impossible(format!("the folder that it should be in is not there ({error}); make it first"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What else than the table of [`SCHEMA`] stands under its name; `None` where it is that, whatever other columns it
/// has. So it shows before any input is read.
fn difference(connection: &Connection, kind: &str) -> Result<Option<String>, rusqlite::Error> {
    match kind {
        "table" => {}
        "index" => return Ok(Some("an index, and no table".to_owned())),
        kind => return Ok(Some(format!("a {kind}, and no table"))),
    }
    let mut columns = connection.prepare(COLUMNS)?;
    let columns = columns.query_map([], |row| row.get(0))?.collect::<Result<BTreeSet<String>, _>>()?;
    let missing: Vec<&str> = NEEDED.into_iter().filter(|column| !columns.contains(*column)).collect();
    if !missing.is_empty() {
        return Ok(Some(format!("another one, without columns {}", missing.join(", "))));
    }
    for statement in [GET, PUT, PUT_RECORD, READ_ALL] {
        match connection.prepare(statement) {
            Ok(_) => {}
            Err(error) if error.to_string().contains("ON CONFLICT") => {
                return Ok(Some("another one, whose key is not cell and window_start".to_owned()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What is wrong, in words: where SQLite has too few, our own; else its own, without the offsets and the statement that
/// follow where one cannot be prepared.
fn why(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            return "it is no SQLite database; give the path of one, or of a file that is not there yet".to_owned();
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            return format!("the file is damaged ({error}); put a copy of it in its place");
        }
        _ => {}
    }
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
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

/// The columns of a row, or which of them holds something else than it should.
fn columns_of(row: &rusqlite::Row<'_>) -> Result<Columns, String> {
    use rusqlite::types::ValueRef;
    let value = |place: usize| row.get_ref(place).map_err(|error| error.to_string());
    let text = |place: usize, name: &str| match value(place)? {
        ValueRef::Null => Ok(None),
        // What SQL arithmetic left there, in the shortest digits that stand for it.
        ValueRef::Integer(number) => Ok(Some(number.to_string())),
        ValueRef::Real(number) => Ok(Some(number.to_string())),
        ValueRef::Text(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        ValueRef::Blob(_) => Err(format!("its {name} is a blob")),
    };
    let whole = |place: usize, name: &str| match value(place)? {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number)),
        _ => {
            let held = text(place, name)?.unwrap_or_default();
            Err(format!("its {name} is '{held}', where a whole number should be"))
        }
    };
    Ok(Columns {
        count: whole(0, "count")?,
        sog_sum: text(1, "sog_sum")?,
        sog_missing: whole(2, "sog_missing")?,
        window_seconds: whole(3, "window_seconds")?,
        applied: text(4, "applied")?,
    })
}

/// The item of a row.
fn item(columns: Result<Columns, String>, table: &str, cell: &str, window_start: i64) -> Result<Item, StoreError> {
    columns.and_then(Columns::item).map_err(|error| StoreError::Item {
        table: table.to_owned(),
        cell: cell.to_owned(),
        window_start,
        error,
    })
}

impl Columns {
    fn item(self) -> Result<Item, String> {
        let number = |value: Option<i64>, column: &str| {
            let value = value.unwrap_or(0);
            u64::try_from(value).map_err(|_| format!("its {column} {value} is below zero"))
        };
        let sum = self.sog_sum.as_deref().unwrap_or("0");
        Ok(Item {
            count: number(self.count, "count")?,
            sog_sum: sum.parse::<Tenths>().map_err(|error| format!("its sog_sum {error}"))?,
            sog_missing: number(self.sog_missing, "sog_missing")?,
            window_seconds: self.window_seconds,
            applied: match self.applied.as_deref() {
                None | Some("") => BTreeSet::new(),
                Some(json) => {
                    serde_json::from_str(json).map_err(|error| format!("its applied is no array: {error}"))?
                }
            },
        })
    }
}
