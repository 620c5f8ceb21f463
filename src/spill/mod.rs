//! State beyond what memory is for it: sorted runs on disk, which are merged when their windows close.
//!
//! A run is what the engine held at some moment, as the windows that it came to so far ([`crate::engine::Engine::drain`]).
//! The aggregates of one cell and window are a sum, so the windows of all runs and of memory, merged, are those of an engine
//! that never ran short: no byte of a result depends on how much memory there was.
//!
//! Runs lie in unnamed temporary files. No kill leaves one behind.

pub mod distinct;
pub mod runs;
pub mod windows;

use std::io;
use std::path::PathBuf;

/// How much went to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spilled {
    /// How many times memory was full, and what it held became a sorted run.
    pub runs: u64,
    /// Bytes of these runs.
    pub bytes: u64,
}

impl std::ops::AddAssign for Spilled {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

/// State could not be kept on disk.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot keep in {} what is too much for --memory: {error}; name a folder with more room in TMPDIR, or give a larger --memory",
    folder.display()
)]
pub struct SpillError {
    /// Where it was to be.
    pub folder: PathBuf,
    /// Why it cannot.
    pub error: io::Error,
}

impl From<io::Error> for SpillError {
    fn from(error: io::Error) -> Self {
        Self { folder: std::env::temp_dir(), error }
    }
}
