//! Any bytes as a CSV of rows: what is read can be written, and reads back the same.

#![no_main]

use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::PathBuf;

use ais_replay::row::Row;
use ais_replay::sink::rows::{Form, RowWriter};
use ais_replay::table;
use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;

thread_local! {
    /// One file for all inputs: making one each time would cost more than reading it.
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
}

fuzz_target!(|data: &[u8]| {
    let Ok(table) = table::read_csv(&written(data)) else { return };
    let rows: Vec<Row> = table.rows.into_values().collect();
    assert!(rows.is_sorted_by_key(Row::key));
    let mut writer = RowWriter::new(Vec::new(), Form::Csv, false);
    let csv = writer.write(&rows).and_then(|()| writer.finish()).expect("room in memory");
    let again = table::read_csv(&written(&csv)).expect("what we wrote");
    assert_eq!(again.rows.into_values().collect::<Vec<_>>(), rows);
});

fn written(data: &[u8]) -> PathBuf {
    FILE.with_borrow_mut(|file| {
        file.as_file()
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(data))
            .expect("room for a file");
        file.path().to_owned()
    })
}
