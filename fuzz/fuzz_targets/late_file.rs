//! Any bytes as a late file: read or refused, to the same rows each time, in order; and the same keys by `--only`.

#![no_main]

use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use ais_replay::reconcile::{Increments, read_keys};
use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;

thread_local! {
    /// One file for all inputs: making one each time would cost more than reading it.
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
}

fuzz_target!(|data: &[u8]| {
    let paths = [written(data)];
    let Ok(increments) = Increments::read(&paths, &Arc::default()) else { return };
    let rows = increments.rows();
    assert!(rows.is_sorted_by_key(|row| row.key()));
    assert!(rows.len() as u64 <= increments.reports + increments.aggregated_rows);
    assert!(rows.iter().all(|row| row.sog_missing <= row.count));
    assert_eq!(Increments::read(&paths, &Arc::default()).map(|again| again.rows()).ok().as_ref(), Some(&rows));
    // Whatever can be added can be selected.
    let keys = read_keys(&paths[0]).expect("keys of a file that can be added").keys;
    assert_eq!(keys.len(), rows.len());
    for row in rows {
        assert!(keys.contains(&(row.cell, row.window_start)));
        let _ = row.average().map(|average| average.to_string());
    }
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
