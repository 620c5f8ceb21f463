//! A replay whose rows are wanted in memory.

use std::collections::BTreeMap;

use super::console::Console;
use super::progress::Bar;
use super::replay::Extent;
use crate::cell::Cell;
use crate::row::Row;
use crate::run::{Finished, Output, Progress};
use crate::sink::SinkError;
use crate::sink::late::LateReport;

/// Rows by (window start, cell).
pub type Rows = BTreeMap<(i64, Cell), Row>;

/// Keeps every row.
pub struct Collect {
    rows: Rows,
    bar: Bar,
}

impl Collect {
    /// Keeps nothing yet, and shows how far the replay is.
    #[must_use]
    pub fn new(console: Console, extent: Extent) -> Self {
        Self { rows: Rows::new(), bar: Bar::new(console, extent) }
    }

    /// What was kept. The bar goes away.
    #[must_use]
    pub fn into_rows(self) -> Rows {
        self.bar.finish();
        self.rows
    }
}

impl Output for Collect {
    fn rows(&mut self, finished: &Finished) -> Result<(), SinkError> {
        self.rows.extend(finished.rows.iter().map(|row| (row.key(), row.clone())));
        Ok(())
    }

    fn late(&mut self, _: usize, _: &dyn Fn() -> LateReport) {}

    fn progress(&mut self, progress: &Progress) {
        self.bar.show(progress);
    }
}
