//! The late side-output: one NDJSON object per (report, window) that came too late, after a header that says of what run.
//!
//! Lines stand in the order of the partitions, and within each in that of the input, however the run went about reading
//! them. Until the end they lie in an unnamed temporary file, which no kill leaves behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SinkError;
use super::atomic::AtomicFile;
use crate::row::Tenths;

/// How many bytes wait in memory before they go to the temporary file.
const BUFFERED_BYTES: usize = 4 * 1024 * 1024;

/// First line of a late file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of this form: 1.
    pub late_format: u32,
    /// Id of the run that made it.
    pub run: String,
    /// What the run's result depended on.
    pub options: HeaderOptions,
    /// Where the run's rows went.
    pub targets: Vec<String>,
}

/// Whether a content begins as a late file does.
#[must_use]
pub fn is_late_file(beginning: &[u8]) -> bool {
    beginning.starts_with(b"{\"late_format\":")
}

/// The options of a run that a late file is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderOptions {
    /// Length of the windows.
    pub window_seconds: i64,
    /// From one start to the next.
    pub slide_seconds: i64,
    /// Allowed lateness, as on the command line.
    pub lateness: String,
    /// Length of the cells' geohash.
    pub precision: u8,
    /// Message types counted.
    pub types: String,
}

/// A report that missed a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateReport {
    /// Geohash cell.
    pub cell: String,
    /// Start of the window, epoch seconds.
    pub window_start: i64,
    /// Event time in epoch seconds, a decimal string.
    pub event_time: String,
    /// Who.
    pub mmsi: u32,
    /// How fast; null where not available.
    pub sog: Option<Tenths>,
    /// Where it was read.
    pub source: LateSource,
    /// Its sentences as written.
    pub nmea: Vec<String>,
}

/// Where a late report was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LateSource {
    /// A record of a stream, perhaps kept in a file.
    Record {
        /// The file that the record was in.
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Its shard.
        shard: String,
        /// Its sequence number.
        sequence_number: String,
        /// Its place in an aggregated record.
        #[serde(skip_serializing_if = "Option::is_none")]
        sub_sequence_number: Option<u64>,
    },
    /// A line of a file.
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
    },
}

/// A late file being written.
pub struct LateFile {
    file: AtomicFile,
    spool: File,
    spooled: u64,
    /// Lines by partition that are not in the spool yet.
    waiting: BTreeMap<usize, Vec<u8>>,
    waiting_bytes: usize,
    /// Pieces of the spool: partition, offset, length.
    pieces: Vec<(usize, u64, u64)>,
    failure: Option<io::Error>,
}

impl LateFile {
    /// Begins one.
    ///
    /// # Errors
    ///
    /// Where the file cannot be made.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = AtomicFile::create(path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Beside a device there may be no room for files.
        let spool =
            tempfile::tempfile_in(directory).or_else(|_| tempfile::tempfile()).map_err(|error| file.error(error))?;
        let (waiting, pieces) = (BTreeMap::new(), Vec::new());
        Ok(Self { file, spool, spooled: 0, waiting, waiting_bytes: 0, pieces, failure: None })
    }

    /// Takes a late report of a partition. A failure shows at the end.
    pub fn push(&mut self, partition: usize, report: &LateReport) {
        let lines = self.waiting.entry(partition).or_default();
        let before = lines.len();
        // Serialising plain values into memory does not fail.
        if let Err(error) = serde_json::to_writer(&mut *lines, report) {
            self.failure.get_or_insert(error.into());
        }
        lines.push(b'\n');
        self.waiting_bytes += lines.len() - before;
        if self.waiting_bytes > BUFFERED_BYTES
            && let Err(error) = self.spool_waiting()
        {
            self.failure.get_or_insert(error);
        }
    }

    fn spool_waiting(&mut self) -> io::Result<()> {
        for (partition, lines) in std::mem::take(&mut self.waiting) {
            self.spool.write_all(&lines)?;
            self.pieces.push((partition, self.spooled, lines.len() as u64));
            self.spooled += lines.len() as u64;
        }
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Writes header and lines and puts the file in its place.
    ///
    /// # Errors
    ///
    /// The first thing that failed.
    pub fn finish(mut self, header: &Header) -> Result<(), SinkError> {
        let written = match self.failure.take() {
            Some(error) => Err(error),
            None => self.write_all(header),
        };
        match written {
            Ok(()) => self.file.commit(),
            Err(error) => Err(self.file.error(error)),
        }
    }

    fn write_all(&mut self, header: &Header) -> io::Result<()> {
        self.spool_waiting()?;
        serde_json::to_writer(&mut self.file, header)?;
        self.file.write_all(b"\n")?;
        // Stable, so that the pieces of one partition keep their order.
        self.pieces.sort_by_key(|(partition, ..)| *partition);
        for (_, offset, length) in &self.pieces {
            self.spool.seek(SeekFrom::Start(*offset))?;
            io::copy(&mut (&self.spool).take(*length), &mut self.file)?;
        }
        Ok(())
    }
}
