//! Tables that other programs add to as well: what writing a row means there, so that nothing counts twice.
//!
//! The rules are the same for every table ([`sqlite`], DynamoDB): each row carries the tokens of the runs that are in it
//! (`applied`), and a run writes a row only where its token does not stand. A retry, a lost reply, a crash and the same
//! command once more therefore change nothing twice. What a row may become is decided by [`decide`], a pure function; a
//! table makes the same decision atomically, by a transaction or by a conditional update.
//!
//! Above the rows stand the run records ([`ledger`]): which inputs were added, by whom, and whether that was finished.

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod ledger;
#[cfg(feature = "dynamodb")]
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
    if let Some(item) = existing
        && item.window_seconds.unwrap_or(writing.live_window_seconds) != writing.window_seconds
    {
        return unchanged(Written::Conflict(Conflict::OtherWindow));
    }
    let holds_mark = existing.is_some_and(|item| item.applied.contains(&mark));
    if writing.mode == WriteMode::Undo {
        return match existing {
            Some(item) if holds_mark => undo(item, row, &mark),
            _ => unchanged(Written::Already),
        };
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
    let mut item = Item { count, sog_sum: Tenths(sog_sum), sog_missing, ..item.clone() };
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
