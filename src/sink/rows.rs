//! Rows as text: CSV, JSON, NDJSON, or a table for people.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};
use serde::Serialize;

use crate::row::{Row, Tenths};
use crate::time::seconds_to_rfc3339;

/// Names of the columns, in their order.
pub const COLUMNS: [&str; 7] = ["cell", "window_start", "count", "vessels", "sog_sum", "sog_missing", "avg_sog"];

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Aligned columns, for people.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// One array of objects.
    Json,
    /// One object a line.
    Ndjson,
}

/// Writes rows in one form.
///
/// Nothing is written before the first rows or the end, so that a run that fails leaves no header behind.
pub struct RowWriter<W: Write> {
    writer: Writer<W>,
    utc: bool,
    begun: bool,
}

enum Writer<W: Write> {
    Csv(CsvText<W>),
    Json(W),
    Ndjson(W),
    Table(W),
}

/// A row as JSON. Decimals are strings, so that no reader makes a float of a sum by accident.
#[derive(Serialize)]
struct JsonRow<'a> {
    cell: String,
    window_start: JsonTime,
    count: u64,
    vessels: Option<u64>,
    sog_sum: &'a Tenths,
    sog_missing: u64,
    avg_sog: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonTime {
    Seconds(i64),
    Text(String),
}

impl<W: Write> RowWriter<W> {
    /// A writer. With `utc`, window starts are RFC 3339 instead of epoch seconds.
    pub fn new(out: W, form: Form, utc: bool) -> Self {
        let writer = match form {
            Form::Csv => Writer::Csv(CsvText { out, text: Vec::with_capacity(CSV_BUFFER_BYTES) }),
            Form::Json => Writer::Json(out),
            Form::Ndjson => Writer::Ndjson(out),
            Form::Table => Writer::Table(out),
        };
        Self { writer, utc, begun: false }
    }

    /// What it writes to.
    pub fn get_ref(&self) -> &W {
        match &self.writer {
            Writer::Csv(csv) => &csv.out,
            Writer::Json(out) | Writer::Ndjson(out) | Writer::Table(out) => out,
        }
    }

    /// Writes rows.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.begin()?;
        let utc = self.utc;
        match &mut self.writer {
            Writer::Csv(csv) => rows.iter().try_for_each(|row| csv.push(row, utc)),
            Writer::Ndjson(out) => rows.iter().try_for_each(|row| {
                serde_json::to_writer(&mut *out, &json_row(row, utc))?;
                out.write_all(b"\n")
            }),
            Writer::Json(out) => rows.iter().try_for_each(|row| {
                out.write_all(if self.begun { b",\n" } else { b"[\n" })?;
                self.begun = true;
                Ok(serde_json::to_writer(&mut *out, &json_row(row, utc))?)
            }),
            Writer::Table(out) => {
                let table = table(rows, !self.begun);
                self.begun = true;
                table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
            }
        }
    }

    /// Writes what comes before the first row, where that does not depend on there being one.
    fn begin(&mut self) -> io::Result<()> {
        if let Writer::Csv(csv) = &mut self.writer
            && !self.begun
        {
            csv.text.extend_from_slice(COLUMNS.join(",").as_bytes());
            csv.text.push(b'\n');
            self.begun = true;
        }
        Ok(())
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Writer::Csv(csv) => {
                csv.hand_on()?;
                csv.out.flush()
            }
            Writer::Json(out) | Writer::Ndjson(out) | Writer::Table(out) => out.flush(),
        }
    }

    /// Ends the text and returns what it was written to.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.begin()?;
        match self.writer {
            Writer::Csv(mut csv) => {
                csv.hand_on()?;
                Ok(csv.out)
            }
            Writer::Json(mut out) => {
                out.write_all(if self.begun { b"\n]\n" } else { b"[]\n" })?;
                Ok(out)
            }
            Writer::Ndjson(out) | Writer::Table(out) => Ok(out),
        }
    }
}

fn time_text(seconds: i64, utc: bool) -> String {
    if utc { seconds_to_rfc3339(seconds) } else { seconds.to_string() }
}

fn average(row: &Row) -> String {
    row.average().map(|average| average.to_string()).unwrap_or_default()
}

/// How much text is gathered before it is written.
const CSV_BUFFER_BYTES: usize = 64 * 1024;

/// Rows as CSV. No column can hold a comma, a quote or a line end, so none is ever quoted.
struct CsvText<W: Write> {
    out: W,
    text: Vec<u8>,
}

impl<W: Write> CsvText<W> {
    /// Adds a row. A result may have more rows than the input has vessels, so this makes no strings.
    fn push(&mut self, row: &Row, utc: bool) -> io::Result<()> {
        push_columns(&mut self.text, row, utc);
        if self.text.len() >= CSV_BUFFER_BYTES { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.text);
        self.text.clear();
        written
    }
}

fn push_columns(text: &mut Vec<u8>, row: &Row, utc: bool) {
    text.extend_from_slice(row.cell.text().as_ref());
    text.push(b',');
    if utc {
        text.extend_from_slice(seconds_to_rfc3339(row.window_start).as_bytes());
    } else {
        text.extend_from_slice(itoa::Buffer::new().format(row.window_start).as_bytes());
    }
    text.push(b',');
    push_number(text, row.count);
    text.push(b',');
    if let Some(vessels) = row.vessels {
        push_number(text, vessels);
    }
    text.push(b',');
    push_number(text, row.sog_sum.0 / 10);
    text.extend_from_slice(&[b'.', digit(row.sog_sum.0 % 10), b',']);
    push_number(text, row.sog_missing);
    text.push(b',');
    if let Some(average) = row.average() {
        let hundredths = average.hundredths();
        let (whole, rest) = match u64::try_from(hundredths) {
            Ok(hundredths) => (hundredths / 100, hundredths % 100),
            // An average is at most a sum of 64 bits in tenths, so its whole knots fit.
            Err(_) => ((hundredths / 100) as u64, (hundredths % 100) as u64),
        };
        push_number(text, whole);
        text.extend_from_slice(&[b'.', digit(rest / 10), digit(rest % 10)]);
    }
    text.push(b'\n');
}

fn digit(value: u64) -> u8 {
    b'0' + value as u8
}

/// Most numbers of a row have one digit.
fn push_number(text: &mut Vec<u8>, number: u64) {
    if number < 10 {
        text.push(digit(number));
    } else {
        text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

fn columns(row: &Row, utc: bool) -> [String; 7] {
    [
        row.cell.to_string(),
        time_text(row.window_start, utc),
        row.count.to_string(),
        row.vessels.map(|vessels| vessels.to_string()).unwrap_or_default(),
        row.sog_sum.to_string(),
        row.sog_missing.to_string(),
        average(row),
    ]
}

fn json_row(row: &Row, utc: bool) -> JsonRow<'_> {
    JsonRow {
        cell: row.cell.to_string(),
        window_start: if utc {
            JsonTime::Text(seconds_to_rfc3339(row.window_start))
        } else {
            JsonTime::Seconds(row.window_start)
        },
        count: row.count,
        vessels: row.vessels,
        sog_sum: &row.sog_sum,
        sog_missing: row.sog_missing,
        avg_sog: row.average().map(|average| average.to_string()),
    }
}

/// Widths of the columns with a blank on either side: the same in every batch of rows, since rows come before the last one is known.
const WIDTHS: [u16; 7] = [14, 22, 11, 9, 13, 13, 9];

fn table(rows: &[Row], with_header: bool) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if with_header {
        table.set_header(COLUMNS);
    }
    // A table is for people, who read dates.
    table.add_rows(rows.iter().map(|row| columns(row, true)));
    for (place, width) in WIDTHS.into_iter().enumerate() {
        if let Some(column) = table.column_mut(place) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
            if place >= 2 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_columns_are_those_of_everybody_else() {
        let numbers = [0, 1, 9, 10, 99, 1_234, u64::MAX];
        for (count, sum) in numbers.iter().flat_map(|count| numbers.map(|sum| (*count, sum))) {
            for vessels in [None, Some(count)] {
                let row = Row {
                    cell: "u4pruy".parse().unwrap(),
                    window_start: -60,
                    count,
                    vessels,
                    sog_sum: Tenths(sum),
                    sog_missing: count.min(1),
                };
                for utc in [false, true] {
                    let mut text = Vec::new();
                    push_columns(&mut text, &row, utc);
                    let mut by_the_crate = csv::Writer::from_writer(Vec::new());
                    by_the_crate.write_record(columns(&row, utc)).unwrap();
                    assert_eq!(text, by_the_crate.into_inner().unwrap(), "{row:?}");
                }
            }
        }
    }
}
