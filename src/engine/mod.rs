//! The window engine: reports with an event time go in, finished (cell, window) aggregates come out, late ones are told.
//!
//! It never reads a clock and knows neither NMEA nor AWS. Whether a (report, window) pair is late depends on the watermark
//! that the report's own partition had before it ([`clock::PartitionClock`]) and on nothing else: not on what the engine
//! has emitted, not on other partitions, not on threads or chunks. A window is emitted once, when no partition can add to
//! it any more, so the result is the sum of what the partitions give, whoever reads them and in whatever order.
//!
//! A report is added once, to the pane of its instant ([`WindowSpec::pane`]); the windows that share a pane combine it
//! when they close. Only where a report is late for some of its windows is it added to the others one by one.
//!
//! It says what its state takes ([`Engine::footprint`]), and gives it away where that is too much ([`Engine::drain`]); where
//! to is not its business ([`crate::spill`]).

pub mod clock;

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use crate::aggregate::Aggregate;
use crate::cell::Cell;
use crate::time::Timestamp;
use crate::window::WindowSpec;

/// One report on its way into the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub time: Timestamp,
    /// Where.
    pub cell: Cell,
    /// Who.
    pub mmsi: u32,
    /// How fast, in tenths of a knot; `None` where not available.
    pub sog: Option<u16>,
}

/// Which windows, or which (cell, window) keys, a run is about.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Epoch seconds at or after which a window must start.
    pub since: Option<i64>,
    /// Epoch seconds at or before which it must end.
    pub until: Option<i64>,
    /// The only keys wanted: cell and window start.
    pub only: Option<HashSet<(Cell, i64)>>,
}

impl Selection {
    fn holds_window(&self, start: i64, end: i64) -> bool {
        self.since.is_none_or(|since| start >= since) && self.until.is_none_or(|until| end <= until)
    }

    fn holds(&self, cell: Cell, start: i64, end: i64) -> bool {
        self.holds_window(start, end) && self.only.as_ref().is_none_or(|keys| keys.contains(&(cell, start)))
    }
}

/// What became of the (report, window) pairs. Their sum is the number of pairs offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Counted in their window.
    pub added: u64,
    /// Too late for their window.
    pub late: u64,
    /// Of a window that the run is not about.
    pub outside: u64,
}

/// A window, or as much of it as is at hand: its start in epoch seconds and its cells in order.
#[derive(Debug)]
pub struct ClosedWindow {
    /// Epoch seconds.
    pub start: i64,
    /// The aggregates by cell, ascending; never empty.
    pub cells: Vec<(Cell, Aggregate)>,
    /// Whether nothing of the window came before: a large one may come in pieces.
    pub begins: bool,
}

/// A finished window whose cells are in no order yet: ordering them needs nothing of the engine.
#[derive(Debug)]
pub struct DueWindow {
    start: i64,
    cells: Pane,
}

impl DueWindow {
    /// Its start, epoch seconds.
    #[must_use]
    pub fn start(&self) -> i64 {
        self.start
    }

    /// Its aggregates by cell, ascending; never none.
    #[must_use]
    pub fn cells(&self) -> Vec<(Cell, &Aggregate)> {
        let mut cells: Vec<(Cell, &Aggregate)> =
            self.cells.iter().map(|(cell, aggregate)| (*cell, aggregate)).collect();
        cells.sort_unstable_by_key(|(cell, _)| *cell);
        cells
    }

    /// Puts its cells in order.
    #[must_use]
    pub fn in_order(mut self) -> ClosedWindow {
        // What is sorted is which comes where: an aggregate is large.
        let order: Vec<Cell> = self.cells().iter().map(|(cell, _)| *cell).collect();
        let cells = order.into_iter().filter_map(|cell| self.cells.remove_entry(&cell)).collect();
        ClosedWindow { start: self.start, cells, begins: true }
    }
}

type Pane = HashMap<Cell, Aggregate>;

/// What a pane takes in memory besides its table: its place among the panes, and what the allocator keeps.
const PANE_BYTES: usize = 96;

/// Bytes of a pane, without what its vessels take elsewhere.
fn bytes_of(pane: &Pane) -> usize {
    pane.allocation_size() + PANE_BYTES
}

/// From how many cells on a pane is taken for one like the others.
const LEAST_USUAL_CELLS: usize = 28;

/// What holds for every report of one pane, worked out once.
#[derive(Clone, Copy, Debug)]
struct PaneFacts {
    /// `[start, end)` of the pane, epoch seconds.
    start: i64,
    end: i64,
    /// End of the window that covers the pane and ends first.
    first_window_end: i64,
    /// Whether each pair has to be looked at: single keys are selected, or a window that covers the pane has been emitted.
    one_by_one: bool,
    /// Windows that cover it: selected, and not.
    selected: u64,
    unselected: u64,
}

/// The engine. See the module's opening.
#[derive(Debug)]
pub struct Engine {
    spec: WindowSpec,
    selection: Selection,
    /// Panes by start, bar the current one.
    panes: BTreeMap<i64, Pane>,
    /// The pane of the last report, kept out of the map since the next report most likely falls into it too.
    current: Pane,
    current_facts: Option<PaneFacts>,
    /// How many cells a pane has, by those of late.
    usual_cells: usize,
    /// What was added to single windows, by window start: reports that were late for a sibling window.
    direct: BTreeMap<i64, Pane>,
    /// Windows that start below this have been emitted.
    closed_below: i64,
    /// Pairs of windows that had been emitted. They are in no row.
    reopened: u64,
    pairs: Pairs,
    /// Bytes of all panes but the current one, those of `direct` among them.
    parked_bytes: usize,
    /// Bytes that vessels take besides the panes, the current one's too.
    vessel_bytes: usize,
    /// Bytes of the largest pane since the engine last held none but the current one.
    largest_pane: usize,
}

impl Engine {
    /// An engine for these windows.
    #[must_use]
    pub fn new(spec: WindowSpec, selection: Selection) -> Self {
        Self {
            spec,
            selection,
            panes: BTreeMap::new(),
            current: Pane::new(),
            current_facts: None,
            usual_cells: 0,
            direct: BTreeMap::new(),
            closed_below: i64::MIN,
            reopened: 0,
            pairs: Pairs::default(),
            parked_bytes: 0,
            vessel_bytes: 0,
            largest_pane: 0,
        }
    }

    /// Its windows.
    #[must_use]
    pub fn spec(&self) -> &WindowSpec {
        &self.spec
    }

    /// What became of the pairs so far.
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        self.pairs
    }

    /// How many pairs were in time by their own partition, and had their window emitted before that partition was known of.
    /// Where it is not 0, the rows are not the whole.
    #[must_use]
    pub fn reopened(&self) -> u64 {
        self.reopened
    }

    /// How many bytes the state may come to before a few thousand more reports are in: what it takes now, and what it takes
    /// to double the largest table or to combine what it holds.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        let current = self.current.allocation_size();
        let held = self.parked_bytes + self.vessel_bytes + current;
        let is_tumbling = self.spec.slide() == self.spec.length();
        // A full table doubles, and both are there meanwhile. Tumbling windows are their panes; others are made beside them.
        let grows = if is_tumbling { self.largest_pane.max(current) } else { held };
        (held + 2 * grows) as u64
    }

    /// Adds a report to every window that covers it, and calls `late` with the start of each window that it is too late
    /// for. `watermark` is that of the report's partition before the report, in epoch seconds.
    ///
    /// Returns whether it went to its windows one by one, of which there may be many.
    #[inline]
    pub fn offer(&mut self, watermark: i64, event: &Event, late: impl FnMut(i64)) -> bool {
        let seconds = event.time.seconds();
        let facts = match self.current_facts {
            Some(facts) if facts.start <= seconds && seconds < facts.end => facts,
            _ => self.turn_to_pane_of(seconds),
        };
        if facts.first_window_end <= watermark || facts.one_by_one {
            self.offer_one_by_one(watermark, event, late);
            return true;
        }
        self.pairs.added += facts.selected;
        self.pairs.outside += facts.unselected;
        if facts.selected > 0 {
            if self.current.len() == self.current.capacity() {
                self.make_room();
            }
            self.vessel_bytes += self.current.entry(event.cell).or_default().add(event.mmsi, event.sog);
        }
        false
    }

    /// Makes the pane of an instant the current one.
    #[cold]
    fn turn_to_pane_of(&mut self, seconds: i64) -> PaneFacts {
        let start = self.spec.pane_of(seconds);
        self.park_current();
        if let Some(pane) = self.panes.remove(&start) {
            self.parked_bytes -= bytes_of(&pane);
            self.current = pane;
        }
        let windows = self.spec.covering(start);
        let (mut selected, mut unselected) = (0, 0);
        for window in windows {
            match self.selection.holds_window(window, window + self.spec.length()) {
                true => selected += 1,
                false => unselected += 1,
            }
        }
        let facts = PaneFacts {
            start,
            end: start + self.spec.pane(),
            first_window_end: self.spec.first_covering(start) + self.spec.length(),
            one_by_one: self.selection.only.is_some() || self.spec.first_covering(start) < self.closed_below,
            selected,
            unselected,
        };
        self.current_facts = Some(facts);
        facts
    }

    fn park_current(&mut self) {
        self.usual_cells = self.current.len().max(self.usual_cells - self.usual_cells / 8);
        if let Some(facts) = self.current_facts.take()
            && !self.current.is_empty()
        {
            let bytes = bytes_of(&self.current);
            self.parked_bytes += bytes;
            self.largest_pane = self.largest_pane.max(bytes);
            self.panes.insert(facts.start, std::mem::take(&mut self.current));
        }
    }

    /// Lets a pane that is full grow to the usual size at once. One with a few cells may be that of a wrong clock, and
    /// stay small.
    #[cold]
    fn make_room(&mut self) {
        let cells = self.current.len();
        if cells >= LEAST_USUAL_CELLS {
            self.current.reserve(self.usual_cells.saturating_sub(cells));
        }
    }

    /// The way of a report that is late for some window, and of every report where single keys are selected.
    #[cold]
    fn offer_one_by_one(&mut self, watermark: i64, event: &Event, mut late: impl FnMut(i64)) {
        for start in self.spec.covering(event.time.seconds()) {
            let end = start + self.spec.length();
            if !self.selection.holds(event.cell, start, end) {
                self.pairs.outside += 1;
            } else if end <= watermark {
                self.pairs.late += 1;
                late(start);
            } else if start < self.closed_below {
                self.reopened += 1;
            } else {
                self.pairs.added += 1;
                let pane = self.direct.entry(start).or_default();
                let before = if pane.is_empty() { 0 } else { bytes_of(pane) };
                self.vessel_bytes += pane.entry(event.cell).or_default().add(event.mmsi, event.sog);
                let after = bytes_of(pane);
                self.parked_bytes += after - before;
                self.largest_pane = self.largest_pane.max(after);
            }
        }
    }

    /// Emits, in order, the windows that end at or before `bound` (epoch seconds): the least watermark of the partitions
    /// that are still open. An error of `emit` ends it at once.
    ///
    /// # Errors
    ///
    /// Those of `emit`.
    pub fn close<E>(&mut self, bound: i64, mut emit: impl FnMut(ClosedWindow) -> Result<(), E>) -> Result<(), E> {
        while let Some(window) = self.take_due(bound) {
            emit(window.in_order())?;
        }
        Ok(())
    }

    /// Takes the earliest window that holds something, if it ends at or before `bound`: it counts as emitted.
    pub fn take_due(&mut self, bound: i64) -> Option<DueWindow> {
        if bound == clock::NO_WATERMARK {
            return None;
        }
        // The usual call finds nothing: that is known before the current pane is touched.
        while let Some(start) = self.next_window()
            && start + self.spec.length() <= bound
        {
            let window = self.take(start);
            if !window.cells.is_empty() {
                return Some(window);
            }
        }
        None
    }

    /// Emits every window that is left.
    ///
    /// # Errors
    ///
    /// Those of `emit`.
    pub fn finish<E>(&mut self, emit: impl FnMut(ClosedWindow) -> Result<(), E>) -> Result<(), E> {
        self.close(i64::MAX, emit)
    }

    /// Gives, in order, everything that it holds, as the windows that it comes to so far, and holds nothing afterwards. More
    /// may come to each of these windows; they are not emitted, and count as open.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    pub fn drain<E>(&mut self, take: impl FnMut(ClosedWindow) -> Result<(), E>) -> Result<(), E> {
        let closed_below = self.closed_below;
        let drained = self.close(i64::MAX, take);
        self.closed_below = closed_below;
        drained
    }

    /// Takes what it holds of a window that is to be emitted, which may be nothing. None before it must be left.
    pub fn take(&mut self, start: i64) -> DueWindow {
        self.park_current();
        DueWindow { start, cells: self.combine(start) }
    }

    /// Start of the earliest window that is not emitted and holds something.
    #[must_use]
    pub fn next_window(&self) -> Option<i64> {
        let current = self.current_facts.filter(|_| !self.current.is_empty()).map(|facts| facts.start);
        let pane = self.panes.first_key_value().map(|(start, _)| *start).into_iter().chain(current).min();
        let through_pane = pane.map(|start| self.spec.first_covering(start).max(self.closed_below));
        let direct = self.direct.first_key_value().map(|(start, _)| *start);
        through_pane.into_iter().chain(direct).min()
    }

    /// Takes the aggregates of one window; none if the run is not about it.
    fn combine(&mut self, start: i64) -> Pane {
        let end = start + self.spec.length();
        let next = start + self.spec.slide();
        let selected = self.selection.holds_window(start, end);
        let mut window = self.direct.remove(&start).unwrap_or_default();
        if !window.is_empty() {
            self.forget_bytes_of(&window);
        }
        // Panes before the next window's start are in no later window, so what they hold moves; the others are copied.
        while let Some(entry) = self.panes.first_entry()
            && *entry.key() < next
        {
            let pane = entry.remove();
            self.forget_bytes_of(&pane);
            if selected && window.is_empty() {
                window = pane;
            } else if selected {
                for (cell, aggregate) in pane {
                    window.entry(cell).or_default().merge(&aggregate);
                }
            }
        }
        if selected {
            for (cell, aggregate) in self.panes.range(next..end).flat_map(|(_, pane)| pane) {
                window.entry(*cell).or_default().merge(aggregate);
            }
        }
        self.closed_below = next;
        window
    }

    /// Takes a pane that leaves out of the accounts.
    fn forget_bytes_of(&mut self, pane: &Pane) {
        self.parked_bytes -= bytes_of(pane);
        if self.parked_bytes == 0 {
            self.largest_pane = 0;
        }
        if self.vessel_bytes > 0 {
            self.vessel_bytes -= pane.values().map(|aggregate| aggregate.vessels.heap_bytes()).sum::<usize>();
        }
    }
}
