//! Tables that other programs add to as well: what writing a row means there, so that nothing counts twice.
//!
//! The rules are the same for every table ([`sqlite`], DynamoDB): each row carries the tokens of the runs that are in it
//! (`applied`), and a run writes a row only where its token does not stand. A retry, a lost reply, a crash and the same
//! command once more therefore change nothing twice. What a row may become is decided by [`decide`], a pure function; a
//! table makes the same decision atomically, by a transaction or by a conditional update.
//!
//! Above the rows stand the run records ([`ledger`]): which inputs were added, by whom, and whether that was finished.

#[cfg(feature = "aws")]
pub mod dynamodb;
pub mod ledger;
#[cfg(feature = "aws")]
pub mod pace;
pub mod sqlite;
pub mod write;

use std::collections::BTreeSet;

use crate::row::{Row, Tenths};

/// Partition key under which a table keeps its run records. No geohash has this character.
pub const RUN_KEY: &str = "~run";

/// What a run does to the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteMode {
    /// Write windows that hold nothing yet; leave the others alone and list them
    Insert,
    /// Add to what is there
    Add,
    /// Set the numbers of a window to this run's
    Replace,
    /// Take this run's own contribution back
    Undo,
}

impl WriteMode {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Undo => "undo",
        }
    }
}

/// A run's token: what `applied` holds. Short, since every update is paid by the item's size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(String);

/// Stands behind a token whose run set a row's numbers rather than adding to them.
const REPLACED: char = '=';

impl Token {
    /// A token of 1 to 64 letters, digits, `-`, `_` or `.`.
    ///
    /// # Errors
    ///
    /// Where the text is something else.
    pub fn new(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("'{text}' is no run id: 1 to 64 letters, digits, '-', '_' or '.'"))
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What a run of this token leaves in `applied`.
    #[must_use]
    pub fn mark(&self, mode: WriteMode) -> String {
        match mode {
            WriteMode::Replace => format!("{}{REPLACED}", self.0),
            WriteMode::Insert | WriteMode::Add | WriteMode::Undo => self.0.clone(),
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A row as a table holds it. What the live pipeline writes has only `count` and `sog_sum`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Reports.
    pub count: u64,
    /// Sum of SOG.
    pub sog_sum: Tenths,
    /// Reports without SOG; absent is 0.
    pub sog_missing: u64,
    /// Length of the window; `None` in rows of the live pipeline.
    pub window_seconds: Option<i64>,
    /// Marks of the runs in it.
    pub applied: BTreeSet<String>,
}

/// What a run writes, the same for all of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    /// What it does.
    pub mode: WriteMode,
    /// Its token.
    pub token: Token,
    /// Length of its windows.
    pub window_seconds: i64,
    /// Length of the live pipeline's windows, which is that of rows that do not say.
    pub live_window_seconds: i64,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was not there.
    New,
    /// It was there, and was added to, set anew or taken back from.
    Changed,
    /// The run had written it before, or had nothing in it to take back.
    Already,
    /// It was left alone.
    Conflict(Conflict),
}

/// Why a row was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// `insert`, and it holds counts.
    Occupied,
    /// It is of windows of another length.
    OtherWindow,
    /// `undo`, and another run has set its numbers since, or before.
    Replaced,
    /// `undo`, and it holds less than the run put in.
    TooSmall,
}

impl Conflict {
    /// Why, in a few words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Occupied => "it holds counts already",
            Self::OtherWindow => "it is of windows of another length",
            Self::Replaced => "a replace has set its numbers",
            Self::TooSmall => "it holds less than this run put in",
        }
    }
}

/// What a table makes of a row: the item to store, if it changes, and what to tell.
#[must_use]
pub fn decide(existing: Option<&Item>, row: &Row, writing: &Writing) -> (Option<Item>, Written) {
    let mark = writing.token.mark(writing.mode);
    let unchanged = |written| (None, written);
    let holds_mark = existing.is_some_and(|item| item.applied.contains(&mark));
    if writing.mode == WriteMode::Undo && !holds_mark {
        return unchanged(Written::Already);
    }
    // A row that holds nothing is of no length.
    if let Some(item) = existing.filter(|item| item.count > 0)
        && item.window_seconds.unwrap_or(writing.live_window_seconds) != writing.window_seconds
    {
        return unchanged(Written::Conflict(Conflict::OtherWindow));
    }
    if writing.mode == WriteMode::Undo
        && let Some(item) = existing
    {
        return undo(item, row, &mark);
    }
    if holds_mark {
        return unchanged(Written::Already);
    }
    let mut item = existing.cloned().unwrap_or_default();
    let was_there = existing.is_some_and(|item| item.count > 0);
    match writing.mode {
        WriteMode::Insert if was_there => return unchanged(Written::Conflict(Conflict::Occupied)),
        WriteMode::Add => {
            item.count += row.count;
            item.sog_sum.0 += row.sog_sum.0;
            item.sog_missing += row.sog_missing;
        }
        WriteMode::Insert | WriteMode::Replace | WriteMode::Undo => {
            (item.count, item.sog_sum, item.sog_missing) = (row.count, row.sog_sum, row.sog_missing);
        }
    }
    item.window_seconds = Some(writing.window_seconds);
    item.applied.insert(mark);
    (Some(item), if was_there { Written::Changed } else { Written::New })
}

fn undo(item: &Item, row: &Row, mark: &str) -> (Option<Item>, Written) {
    if item.applied.iter().any(|mark| mark.ends_with(REPLACED)) {
        return (None, Written::Conflict(Conflict::Replaced));
    }
    let less = (
        item.count.checked_sub(row.count),
        item.sog_sum.0.checked_sub(row.sog_sum.0),
        item.sog_missing.checked_sub(row.sog_missing),
    );
    let (Some(count), Some(sog_sum), Some(sog_missing)) = less else {
        return (None, Written::Conflict(Conflict::TooSmall));
    };
    let window_seconds = item.window_seconds.filter(|_| count > 0);
    let mut item = Item { count, sog_sum: Tenths(sog_sum), sog_missing, window_seconds, ..item.clone() };
    item.applied.remove(mark);
    (Some(item), Written::Changed)
}

/// How many rows became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WriteCounts {
    /// Written where nothing was.
    pub new: u64,
    /// Merged into, set, or taken back from what was there.
    pub changed: u64,
    /// Had been written by this run before.
    pub already: u64,
    /// Left alone.
    pub conflicts: u64,
}

impl WriteCounts {
    /// Counts one row.
    pub fn add(&mut self, written: Written) {
        match written {
            Written::New => self.new += 1,
            Written::Changed => self.changed += 1,
            Written::Already => self.already += 1,
            Written::Conflict(_) => self.conflicts += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODES: [WriteMode; 4] = [WriteMode::Insert, WriteMode::Add, WriteMode::Replace, WriteMode::Undo];

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn row(count: u64, sog_sum: u64, sog_missing: u64) -> Row {
        let cell = "u4pruy".parse().unwrap();
        Row { cell, window_start: 60, count, vessels: None, sog_sum: Tenths(sog_sum), sog_missing }
    }

    fn writing(run: &str, mode: WriteMode) -> Writing {
        Writing { mode, token: token(run), window_seconds: 60, live_window_seconds: 60 }
    }

    fn item(numbers: (u64, u64, u64), window_seconds: Option<i64>, applied: &[&str]) -> Item {
        Item {
            count: numbers.0,
            sog_sum: Tenths(numbers.1),
            sog_missing: numbers.2,
            window_seconds,
            applied: applied.iter().map(|mark| (*mark).to_owned()).collect(),
        }
    }

    /// What becomes of an item when run `r` writes a row of 3 reports, 250 tenths, 1 without SOG.
    fn after(existing: Option<&Item>, mode: WriteMode) -> (Option<Item>, Written) {
        decide(existing, &row(3, 250, 1), &writing("r", mode))
    }

    const OURS: (u64, u64, u64) = (3, 250, 1);

    #[test]
    fn a_row_that_is_not_there_is_written_by_all_but_undo() {
        for (mode, mark) in [(WriteMode::Insert, "r"), (WriteMode::Add, "r"), (WriteMode::Replace, "r=")] {
            assert_eq!(after(None, mode), (Some(item(OURS, Some(60), &[mark])), Written::New));
        }
        assert_eq!(after(None, WriteMode::Undo), (None, Written::Already));
    }

    #[test]
    fn a_row_of_the_live_pipeline_is_left_alone_added_to_or_set() {
        let live = item((10, 900, 0), None, &[]);
        assert_eq!(after(Some(&live), WriteMode::Insert), (None, Written::Conflict(Conflict::Occupied)));
        assert_eq!(after(Some(&live), WriteMode::Add), (Some(item((13, 1150, 1), Some(60), &["r"])), Written::Changed));
        assert_eq!(after(Some(&live), WriteMode::Replace), (Some(item(OURS, Some(60), &["r="])), Written::Changed));
        assert_eq!(after(Some(&live), WriteMode::Undo), (None, Written::Already));
    }

    #[test]
    fn a_row_that_holds_the_run_is_left_as_it_is_and_gives_it_back() {
        let ours = item((13, 1150, 1), Some(60), &["other", "r"]);
        for mode in [WriteMode::Insert, WriteMode::Add] {
            assert_eq!(after(Some(&ours), mode), (None, Written::Already));
        }
        // A replace is another thing than an add of the same run, and leaves the marks of all.
        let set = item(OURS, Some(60), &["other", "r", "r="]);
        assert_eq!(after(Some(&ours), WriteMode::Replace), (Some(set.clone()), Written::Changed));
        assert_eq!(after(Some(&set), WriteMode::Replace), (None, Written::Already));
        assert_eq!(
            after(Some(&ours), WriteMode::Undo),
            (Some(item((10, 900, 0), Some(60), &["other"])), Written::Changed)
        );
    }

    #[test]
    fn windows_of_another_length_conflict_in_every_mode() {
        let longer = item((13, 1150, 1), Some(120), &["r", "r="]);
        for mode in MODES {
            assert_eq!(after(Some(&longer), mode), (None, Written::Conflict(Conflict::OtherWindow)));
        }
        // There is nothing to take back from a row that is not this run's.
        let others = item((13, 1150, 1), Some(120), &["other"]);
        assert_eq!(after(Some(&others), WriteMode::Undo), (None, Written::Already));
        // A row that does not say is of the live pipeline's length, whatever that is.
        let live = item((10, 900, 0), None, &[]);
        for (live_window_seconds, fits) in [(60, true), (300, false)] {
            let writing = Writing { live_window_seconds, ..writing("r", WriteMode::Add) };
            let written = decide(Some(&live), &row(3, 250, 1), &writing).1;
            assert_eq!(written == Written::Changed, fits);
            assert_eq!(written == Written::Conflict(Conflict::OtherWindow), !fits);
        }
    }

    #[test]
    fn a_row_without_counts_is_as_good_as_none() {
        for empty in [item((0, 0, 0), Some(60), &[]), item((0, 0, 0), None, &["other"])] {
            for mode in [WriteMode::Insert, WriteMode::Add, WriteMode::Replace] {
                let (set, written) = after(Some(&empty), mode);
                let set = set.unwrap();
                assert_eq!((set.count, set.sog_sum, set.sog_missing, written), (3, Tenths(250), 1, Written::New));
                assert!(set.applied.is_superset(&empty.applied));
            }
            assert_eq!(after(Some(&empty), WriteMode::Undo), (None, Written::Already));
        }
    }

    #[test]
    fn what_a_replace_has_set_is_not_taken_back() {
        for replaced in [item((5, 400, 0), Some(60), &["other=", "r"]), item(OURS, Some(60), &["r", "r="])] {
            assert_eq!(after(Some(&replaced), WriteMode::Undo), (None, Written::Conflict(Conflict::Replaced)));
        }
        // A run that only replaced added nothing.
        let only = item(OURS, Some(60), &["r="]);
        assert_eq!(after(Some(&only), WriteMode::Undo), (None, Written::Already));
    }

    #[test]
    fn more_than_there_is_cannot_be_taken_back() {
        for less in [(2, 900, 1), (10, 249, 1), (10, 900, 0)] {
            let item = item(less, Some(60), &["r"]);
            assert_eq!(after(Some(&item), WriteMode::Undo), (None, Written::Conflict(Conflict::TooSmall)));
        }
        let exactly = item(OURS, Some(60), &["r"]);
        assert_eq!(after(Some(&exactly), WriteMode::Undo), (Some(item((0, 0, 0), None, &[])), Written::Changed));
    }

    #[test]
    fn a_row_that_holds_nothing_takes_windows_of_any_length() {
        for window_seconds in [None, Some(60), Some(120)] {
            let emptied = item((0, 0, 0), window_seconds, &["other"]);
            for mode in [WriteMode::Insert, WriteMode::Add, WriteMode::Replace] {
                let (written, told) = after(Some(&emptied), mode);
                assert_eq!((written.and_then(|item| item.window_seconds), told), (Some(60), Written::New));
            }
        }
    }

    #[test]
    fn only_short_plain_texts_are_tokens() {
        for text in ["a", "night-7_b.2", &"x".repeat(64)] {
            assert_eq!(token(text).text(), text);
        }
        for text in ["", "a b", "r=", "~run", "ü", "a\n", &"x".repeat(65)] {
            assert!(Token::new(text).is_err(), "{text}");
        }
    }

    /// What happened to a row, each thing once.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        /// The live pipeline added this.
        Live((u64, u64, u64)),
        /// A run put its numbers in.
        Put(usize),
        /// A run set the row to its numbers.
        Set(usize),
    }

    /// The row from scratch, out of its history.
    fn fold(history: &[Event], runs: &[(u64, u64, u64)]) -> (u64, u64, u64) {
        history.iter().fold((0, 0, 0), |sum, event| match event {
            Event::Set(run) => runs[*run],
            Event::Live(n) => (sum.0 + n.0, sum.1 + n.1, sum.2 + n.2),
            Event::Put(run) => {
                let n = runs[*run];
                (sum.0 + n.0, sum.1 + n.1, sum.2 + n.2)
            }
        })
    }

    /// What a mode does to the history, by the words of the specification.
    fn happen(history: &mut Vec<Event>, runs: &[(u64, u64, u64)], run: usize, mode: WriteMode) -> Written {
        let (was_there, put) = (fold(history, runs).0 > 0, history.contains(&Event::Put(run)));
        let new_or_changed = if was_there { Written::Changed } else { Written::New };
        match mode {
            WriteMode::Insert | WriteMode::Add if put => Written::Already,
            WriteMode::Insert if was_there => Written::Conflict(Conflict::Occupied),
            WriteMode::Insert | WriteMode::Add => {
                history.push(Event::Put(run));
                new_or_changed
            }
            WriteMode::Replace if history.contains(&Event::Set(run)) => Written::Already,
            WriteMode::Replace => {
                history.push(Event::Set(run));
                new_or_changed
            }
            WriteMode::Undo if !put => Written::Already,
            WriteMode::Undo if history.iter().any(|event| matches!(event, Event::Set(_))) => {
                Written::Conflict(Conflict::Replaced)
            }
            WriteMode::Undo => {
                history.retain(|event| *event != Event::Put(run));
                Written::Changed
            }
        }
    }

    fn numbers() -> impl Strategy<Value = (u64, u64, u64)> {
        (1..6_u64, 0..2_000_u64, 0..6_u64).prop_map(|(count, sum, missing)| (count, sum, missing.min(count)))
    }

    proptest! {
        /// Any runs in any order, each command given once or again and again, the live pipeline in between: the row is what it
        /// would be had each run been applied once.
        #[test]
        fn a_row_is_what_its_runs_come_to_once_each(
            runs in prop::collection::vec(numbers(), 4),
            steps in prop::collection::vec((0..5_usize, prop::sample::select(&MODES[..]), 1..4_usize, numbers()), 1..30),
        ) {
            let (mut item, mut history): (Option<Item>, Vec<Event>) = (None, Vec::new());
            for (run, mode, times, live) in steps {
                if run == runs.len() {
                    history.push(Event::Live(live));
                    let mut sum = item.take().unwrap_or_default();
                    sum.count += live.0;
                    sum.sog_sum.0 += live.1;
                    sum.sog_missing += live.2;
                    item = Some(sum);
                    continue;
                }
                let numbers = runs[run];
                for _ in 0..times {
                    let row = row(numbers.0, numbers.1, numbers.2);
                    let (next, written) = decide(item.as_ref(), &row, &writing(&format!("run{run}"), mode));
                    prop_assert_eq!(written, happen(&mut history, &runs, run, mode));
                    prop_assert_eq!(next.is_some(), matches!(written, Written::New | Written::Changed));
                    item = next.or(item);
                }
                let held = item.clone().unwrap_or_default();
                prop_assert_eq!((held.count, held.sog_sum.0, held.sog_missing), fold(&history, &runs));
                let mark = |event: &Event| match event {
                    Event::Live(_) => None,
                    Event::Put(run) => Some(format!("run{run}")),
                    Event::Set(run) => Some(format!("run{run}=")),
                };
                prop_assert_eq!(held.applied, history.iter().filter_map(mark).collect::<BTreeSet<_>>());
            }
        }

        /// What was added and taken back leaves the row as it was.
        #[test]
        fn undo_after_add_restores_exactly(
            before in prop::option::of(numbers()),
            ours in numbers(),
            marks in prop::collection::btree_set("[a-q]{1,4}", 0..4),
        ) {
            let before = before.map(|numbers| Item { applied: marks, ..item(numbers, Some(60), &[]) });
            let row = row(ours.0, ours.1, ours.2);
            let added = decide(before.as_ref(), &row, &writing("r", WriteMode::Add)).0;
            let (undone, written) = decide(added.as_ref(), &row, &writing("r", WriteMode::Undo));
            prop_assert_eq!(written, Written::Changed);
            let mut before = before.unwrap_or_default();
            // Of a row that holds nothing the length is nobody's.
            before.window_seconds = before.window_seconds.filter(|_| before.count > 0);
            prop_assert_eq!(undone, Some(before));
        }
    }
}
