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
    out: W,
    form: Form,
    utc: bool,
    begun: bool,
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
        Self { out, form, utc, begun: false }
    }

    /// What it writes to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// What makes rows into the lines that [`RowWriter::write_lines`] takes, if it writes CSV.
    #[must_use]
    pub fn csv_lines(&self) -> Option<CsvLines> {
        (self.form == Form::Csv).then_some(CsvLines { utc: self.utc })
    }

    /// Writes rows that are lines of CSV already.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.out.write_all(lines)
    }

    /// Writes rows. `lines` are what [`RowWriter::csv_lines`] makes of them, if somebody has done that already.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn write_finished(&mut self, rows: &[Row], lines: Option<&[u8]>) -> io::Result<()> {
        match (self.form, lines) {
            (Form::Csv, Some(lines)) => self.write_lines(lines),
            _ => self.write(rows),
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
        let Self { out, form, utc, .. } = self;
        match form {
            Form::Csv => {
                let lines = CsvLines { utc: *utc }.of(rows);
                self.write_lines(&lines)
            }
            Form::Ndjson => rows.iter().try_for_each(|row| {
                serde_json::to_writer(&mut *out, &json_row(row, *utc))?;
                out.write_all(b"\n")
            }),
            Form::Json => rows.iter().try_for_each(|row| {
                out.write_all(if self.begun { b",\n" } else { b"[\n" })?;
                self.begun = true;
                Ok(serde_json::to_writer(&mut *out, &json_row(row, *utc))?)
            }),
            Form::Table => {
                let table = table(rows, !self.begun);
                self.begun = true;
                table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
            }
        }
    }

    /// Writes what comes before the first row, where that does not depend on there being one.
    fn begin(&mut self) -> io::Result<()> {
        if self.form == Form::Csv && !self.begun {
            self.begun = true;
            writeln!(self.out, "{}", COLUMNS.join(","))?;
        }
        Ok(())
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the text and returns what it was written to.
    ///
    /// # Errors
    ///
    /// Those of the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.begin()?;
        if self.form == Form::Json {
            self.out.write_all(if self.begun { b"\n]\n" } else { b"[]\n" })?;
        }
        Ok(self.out)
    }
}

fn time_text(seconds: i64, utc: bool) -> String {
    if utc { seconds_to_rfc3339(seconds) } else { seconds.to_string() }
}

fn average(row: &Row) -> String {
    row.average().map(|average| average.to_string()).unwrap_or_default()
}

/// How rows become lines of CSV, without the header, wherever they are finished.
#[derive(Clone, Copy, Debug)]
pub struct CsvLines {
    /// Whether window starts are RFC 3339 instead of epoch seconds.
    pub utc: bool,
}

/// What a line of CSV takes, but for a few.
const USUAL_LINE_BYTES: usize = 40;

impl CsvLines {
    /// The lines of these rows. A result may have more rows than the input has vessels, so this makes no strings.
    #[must_use]
    pub fn of(self, rows: &[Row]) -> Vec<u8> {
        let mut text = Vec::with_capacity(rows.len() * USUAL_LINE_BYTES);
        let mut line = Line { bytes: [0; LONGEST_LINE], length: 0 };
        let mut start = Start { of: None, text: [0; LONGEST_START], length: 0 };
        for row in rows {
            // Rows come window by window.
            if start.of != Some(row.window_start) {
                start = Start::new(row.window_start, self.utc);
            }
            line.length = 0;
            line.columns(row, &start);
            text.extend_from_slice(&line.bytes[..line.length]);
        }
        text
    }
}

/// Room for every window start: a date with its year in any number of digits, or as many seconds.
const LONGEST_START: usize = 32;

/// A window start as text.
struct Start {
    of: Option<i64>,
    text: [u8; LONGEST_START],
    length: usize,
}

impl Start {
    fn new(seconds: i64, utc: bool) -> Self {
        let mut start = Self { of: Some(seconds), text: [0; LONGEST_START], length: 0 };
        for (place, byte) in start.text.iter_mut().zip(time_text(seconds, utc).bytes()) {
            *place = byte;
            start.length += 1;
        }
        start
    }
}

/// More than any line has: twelve characters of a cell, a start, five numbers of at most twenty digits, and what is between.
const LONGEST_LINE: usize = 192;

struct Line {
    bytes: [u8; LONGEST_LINE],
    length: usize,
}

impl Line {
    fn columns(&mut self, row: &Row, start: &Start) {
        let cell = row.cell.text();
        self.start_of(&cell.characters(), cell.as_ref().len());
        self.put([b',']);
        self.start_of(&start.text, start.length);
        self.put([b',']);
        self.number(row.count, b',');
        match row.vessels {
            Some(vessels) => self.number(vessels, b','),
            None => self.put([b',']),
        }
        self.number(row.sog_sum.0 / 10, b'.');
        self.put([digit(row.sog_sum.0 % 10), b',']);
        self.number(row.sog_missing, b',');
        if let Some(average) = row.average() {
            let hundredths = average.hundredths();
            let (whole, rest) = match u64::try_from(hundredths) {
                Ok(hundredths) => (hundredths / 100, hundredths % 100),
                // An average is at most a sum of 64 bits in tenths, so its whole knots fit.
                Err(_) => ((hundredths / 100) as u64, (hundredths % 100) as u64),
            };
            self.number(whole, b'.');
            self.put([digit(rest / 10), digit(rest % 10)]);
        }
        self.put([b'\n']);
    }

    /// Adds the first `length` of so many bytes. All of them are copied: that is cheaper where their number is known beforehand.
    #[inline(always)]
    fn start_of<const MOST: usize>(&mut self, bytes: &[u8; MOST], length: usize) {
        self.put(*bytes);
        self.length -= MOST - length;
    }

    #[inline(always)]
    fn put<const LENGTH: usize>(&mut self, bytes: [u8; LENGTH]) {
        self.bytes[self.length..][..LENGTH].copy_from_slice(&bytes);
        self.length += LENGTH;
    }

    /// Adds a number and what stands behind it. Most numbers of a row have one digit or two.
    #[inline(always)]
    fn number(&mut self, number: u64, behind: u8) {
        match number {
            0..10 => self.put([digit(number), behind]),
            10..100 => self.put([digit(number / 10), digit(number % 10), behind]),
            _ => self.long_number(number, behind),
        }
    }

    #[cold]
    fn long_number(&mut self, number: u64, behind: u8) {
        for byte in itoa::Buffer::new().format(number).bytes() {
            self.put([byte]);
        }
        self.put([behind]);
    }
}

#[inline(always)]
fn digit(value: u64) -> u8 {
    b'0' + value as u8
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
                    let text = CsvLines { utc }.of(std::slice::from_ref(&row));
                    let mut by_the_crate = csv::Writer::from_writer(Vec::new());
                    by_the_crate.write_record(columns(&row, utc)).unwrap();
                    assert_eq!(text, by_the_crate.into_inner().unwrap(), "{row:?}");
                }
            }
        }
    }
}
