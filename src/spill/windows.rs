//! The window engine with as much memory as it is given, and a disk.

use std::io::{self, BufRead};
use std::iter::Peekable;
use std::vec;

use super::runs::{Record, RunWriter, Runs, array, difference, number, put_difference, put_number};
use super::{SpillError, Spilled};
use crate::aggregate::{Aggregate, Vessels};
use crate::cell::Cell;
use crate::engine::clock::NO_WATERMARK;
use crate::engine::{ClosedWindow, DueWindow, Engine, Event, Pairs};

/// How many cells of a window are handed on at once where a part of it was on disk: a window need not fit into memory.
const CELLS_AT_ONCE: usize = 4_096;

/// An [`Engine`] that puts its state aside when it is too much, and gives the same windows for all that.
pub struct SpillingEngine {
    engine: Engine,
    /// Bytes that the engine may take.
    budget: u64,
    runs: Runs<WindowCell>,
    /// The window that is being emitted, if a part of it is on disk.
    merging: Option<Merging>,
    /// What went wrong between two calls that could tell.
    failure: Option<SpillError>,
}

impl SpillingEngine {
    /// An engine that takes `budget` bytes, or little more.
    #[must_use]
    pub fn new(engine: Engine, budget: u64) -> Self {
        Self { engine, budget, runs: Runs::default(), merging: None, failure: None }
    }

    /// See [`Engine::pairs`].
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        self.engine.pairs()
    }

    /// See [`Engine::reopened`].
    #[must_use]
    pub fn reopened(&self) -> u64 {
        self.engine.reopened()
    }

    /// How much went to disk.
    #[must_use]
    pub fn spilled(&self) -> Spilled {
        self.runs.spilled()
    }

    /// See [`Engine::offer`].
    #[inline(always)]
    pub fn offer(&mut self, watermark: i64, event: &Event, late: impl FnMut(i64)) {
        // Only a report that goes to its windows one by one may take much memory before the next `relieve`.
        if self.engine.offer(watermark, event, late) {
            self.relieve_at_once();
        }
    }

    #[cold]
    fn relieve_at_once(&mut self) {
        if self.failure.is_none() {
            self.failure = self.relieve().err();
        }
    }

    /// Puts the state aside if it is too much. To be called every few thousand reports.
    ///
    /// # Errors
    ///
    /// Where the disk is full, or fails.
    pub fn relieve(&mut self) -> Result<(), SpillError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.engine.footprint() <= self.budget {
            return Ok(());
        }
        let mut writer = RunWriter::new()?;
        self.engine.drain(|window| {
            let ClosedWindow { start, cells, .. } = window;
            cells.into_iter().try_for_each(|(cell, aggregate)| writer.write(&WindowCell { start, cell, aggregate }))
        })?;
        self.runs.push(writer)
    }

    /// See [`Engine::take_due`]. A window that was on disk may come in several pieces, in the order of its cells.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn take_due(&mut self, bound: i64) -> Result<Option<Due>, SpillError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        loop {
            if let Some(piece) = self.next_piece()? {
                return Ok(Some(Due::Piece(piece)));
            }
            let Some((on_disk, _)) = self.runs.next_key() else {
                return Ok(self.engine.take_due(bound).map(Due::Window));
            };
            let start = self.engine.next_window().map_or(on_disk, |in_memory| in_memory.min(on_disk));
            if bound == NO_WATERMARK || start + self.engine.spec().length() > bound {
                return Ok(None);
            }
            let held = self.engine.take(start).in_order().cells.into_iter().peekable();
            self.merging = Some(Merging { start, held, begins: true });
        }
    }

    /// The next cells of the window that is being emitted.
    fn next_piece(&mut self) -> Result<Option<ClosedWindow>, SpillError> {
        let Some(Merging { start, held, begins }) = &mut self.merging else { return Ok(None) };
        let start = *start;
        let mut cells = Vec::new();
        while cells.len() < CELLS_AT_ONCE {
            let in_memory = held.peek().map(|(cell, _)| *cell);
            let on_disk = self.runs.next_key().filter(|(of, _)| *of == start).map(|(_, bits)| Cell::from_bits(bits));
            let Some(cell) = in_memory.into_iter().chain(on_disk).min() else { break };
            let in_memory = held.next_if(|(of, _)| *of == cell).map(|(_, aggregate)| aggregate);
            let on_disk = if on_disk == Some(cell) { self.runs.next()? } else { None };
            let aggregate = match (in_memory, on_disk.map(|record| record.aggregate)) {
                (Some(mut aggregate), Some(more)) => {
                    aggregate.merge(&more);
                    aggregate
                }
                (Some(aggregate), None) | (None, Some(aggregate)) => aggregate,
                // The least cell came from one of the two.
                (None, None) => break,
            };
            cells.push((cell, aggregate));
        }
        let begins = std::mem::replace(begins, false);
        if cells.is_empty() {
            self.merging = None;
            return Ok(None);
        }
        Ok(Some(ClosedWindow { start, cells, begins }))
    }
}

/// A window of which a part was on disk.
struct Merging {
    start: i64,
    /// What memory holds of it.
    held: Peekable<vec::IntoIter<(Cell, Aggregate)>>,
    /// Whether nothing of it has been given yet.
    begins: bool,
}

/// What is to be emitted next.
#[derive(Debug)]
pub enum Due {
    /// A window.
    Window(DueWindow),
    /// Cells of one that was on disk.
    Piece(ClosedWindow),
}

impl Due {
    /// Start of the window, epoch seconds.
    #[must_use]
    pub fn start(&self) -> i64 {
        match self {
            Self::Window(window) => window.start(),
            Self::Piece(piece) => piece.start,
        }
    }

    /// Whether nothing of the window came before.
    #[must_use]
    pub fn begins(&self) -> bool {
        match self {
            Self::Window(_) => true,
            Self::Piece(piece) => piece.begins,
        }
    }

    /// The aggregates by cell, ascending; never none.
    #[must_use]
    pub fn in_order(&self) -> Vec<(Cell, &Aggregate)> {
        match self {
            Self::Window(window) => window.cells(),
            Self::Piece(piece) => piece.cells.iter().map(|(cell, aggregate)| (*cell, aggregate)).collect(),
        }
    }
}

/// What one cell and window came to so far.
struct WindowCell {
    start: i64,
    cell: Cell,
    aggregate: Aggregate,
}

impl Record for WindowCell {
    /// Window start, and the cell's integer.
    type Key = (i64, u64);

    fn key(&self) -> Self::Key {
        (self.start, self.cell.to_bits())
    }

    fn absorb(&mut self, other: Self) {
        self.aggregate.merge(&other.aggregate);
    }

    fn encode(&self, (start, cell): Self::Key, bytes: &mut Vec<u8>) {
        let Aggregate { count, sog_sum, sog_missing, vessels } = &self.aggregate;
        put_number(self.start.wrapping_sub(start).cast_unsigned(), bytes);
        put_difference(cell, self.cell.to_bits(), bytes);
        for number in [*count, *sog_sum, *sog_missing, vessels.len() as u64] {
            put_number(number, bytes);
        }
        vessels.iter().for_each(|mmsi| bytes.extend(mmsi.to_le_bytes()));
    }

    fn decode((start, cell): Self::Key, bytes: &mut impl BufRead) -> io::Result<Self> {
        let start = start.wrapping_add(number(bytes)?.cast_signed());
        let cell = Cell::from_bits(difference(cell, bytes)?);
        let (count, sog_sum, sog_missing) = (number(bytes)?, number(bytes)?, number(bytes)?);
        let mut vessels = Vessels::default();
        for _ in 0..number(bytes)? {
            vessels.insert(u32::from_le_bytes(array(bytes)?));
        }
        Ok(Self { start, cell, aggregate: Aggregate { count, sog_sum, sog_missing, vessels } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Precision;
    use crate::engine::Selection;
    use crate::report::Position;
    use crate::time::{Span, Timestamp};
    use crate::window::WindowSpec;

    fn engine(length: u32, slide: u32) -> Engine {
        let spec = WindowSpec::new(Span::from_seconds(length), Some(Span::from_seconds(slide))).unwrap();
        Engine::new(spec, Selection::default())
    }

    /// Scattered in time and place, with cells that few and that many vessels visit.
    fn event(number: u64) -> Event {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = if number.is_multiple_of(3) { 0 } else { (scattered >> 40) as i32 % 12_000 };
        Event {
            time: Timestamp::from_seconds((scattered >> 20) as i64 % 100 - 50).unwrap(),
            cell: Cell::of(Position::new(place * 6_000, place * 3_000).unwrap(), Precision::new(9).unwrap()),
            mmsi: (scattered >> 32) as u32 % 500,
            sog: (!number.is_multiple_of(5)).then_some((scattered >> 50) as u16 % 1_000),
        }
    }

    type Flat = (i64, Cell, [u64; 4]);

    fn flat(start: i64, cell: Cell, aggregate: &Aggregate) -> Flat {
        let Aggregate { count, sog_sum, sog_missing, vessels } = aggregate;
        (start, cell, [*count, *sog_sum, *sog_missing, vessels.len() as u64])
    }

    #[test]
    fn windows_beyond_memory_come_in_pieces_and_are_the_same() {
        for (length, slide) in [(100, 100), (60, 20)] {
            let budget = 200_000;
            let (mut unlimited, mut limited) =
                (engine(length, slide), SpillingEngine::new(engine(length, slide), budget));
            for number in 0..60_000 {
                unlimited.offer(NO_WATERMARK, &event(number), |_| {});
                limited.offer(NO_WATERMARK, &event(number), |_| {});
                if number % 100 == 0 {
                    limited.relieve().unwrap();
                    assert!(limited.engine.footprint() <= budget);
                }
            }
            let mut expected = Vec::new();
            let emit = |window: ClosedWindow| {
                expected.extend(window.cells.iter().map(|(cell, aggregate)| flat(window.start, *cell, aggregate)));
                Ok::<(), SpillError>(())
            };
            unlimited.finish(emit).unwrap();
            assert_eq!(unlimited.footprint(), 0, "every byte is taken out of the accounts again");
            let (mut found, mut pieces) = (Vec::new(), 0_u64);
            let (mut begun, mut last) = (0, None);
            while let Some(due) = limited.take_due(i64::MAX).unwrap() {
                let cells = due.in_order();
                assert!(cells.len() <= CELLS_AT_ONCE);
                assert_eq!(due.begins(), last != Some(due.start()));
                last = Some(due.start());
                begun += u64::from(due.begins());
                pieces += 1;
                found.extend(cells.iter().map(|(cell, aggregate)| flat(due.start(), *cell, aggregate)));
            }
            assert!(begun < pieces);
            assert!(limited.spilled().runs > 20 && pieces > 4, "{:?}, {pieces} pieces", limited.spilled());
            assert!(found == expected, "{} rows for {}", found.len(), expected.len());
        }
    }

    #[test]
    fn a_report_for_many_windows_is_counted_against_the_budget_at_once() {
        let mut limited = SpillingEngine::new(engine(1_000, 1), 20_000);
        // Late for its first window alone, so it goes to each of the others by itself.
        limited.offer(51, &Event { time: Timestamp::from_seconds(50).unwrap(), ..event(0) }, |_| {});
        assert_eq!((limited.spilled().runs, limited.engine.footprint()), (1, 0));
    }
}
