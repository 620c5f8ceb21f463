//! Run records: which inputs are in a table, and what must not be added to it again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Token, WriteMode};
use crate::source::ReadOutcome;
use crate::time::Timestamp;

/// What identifies an input wherever it lies and whatever it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputIdentity {
    /// What it was called.
    pub name: String,
    /// SHA-256 of its decompressed bytes, in hexadecimal.
    pub sha256: String,
    /// How many these are.
    pub bytes: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is writing, or broke off.
    Writing,
    /// All of its rows are in the table, bar conflicts.
    Complete,
    /// It was taken back.
    Undone,
}

/// One run that wrote to a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// When it began, epoch milliseconds: its sort key.
    pub started_ms: i64,
    /// Its token.
    pub token: String,
    /// What it did.
    pub mode: String,
    /// What it read.
    pub inputs: Vec<InputIdentity>,
    /// Options that its result depended on, for people.
    pub options: String,
    /// How far it is.
    pub state: RunState,
    /// Rows that it had to write.
    pub rows: u64,
    /// Of these, rows that were left alone.
    pub conflicts: u64,
    /// Version of the tool.
    pub version: String,
}

/// Why a run may not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The content of an input is in the table already.
    #[error("{name} is in {table} already: run {token} of {when} added it{known_as}")]
    SameInput {
        /// The input.
        name: String,
        /// The table.
        table: String,
        /// The run that added it.
        token: String,
        /// When.
        when: String,
        /// As " as X" where it was called otherwise.
        known_as: String,
    },
    /// An input begins with one that is in the table.
    #[error("{name} has grown: its first {bytes} bytes are {earlier}, which run {token} of {when} added to {table}")]
    Grown {
        /// The input.
        name: String,
        /// The table.
        table: String,
        /// What it was called when it was smaller.
        earlier: String,
        /// How large it was then.
        bytes: u64,
        /// The run that added it.
        token: String,
        /// When.
        when: String,
    },
    /// Two inputs of this very run hold the same.
    #[error("{name} and {twin} hold the same bytes: they would count twice")]
    Twins {
        /// The one.
        name: String,
        /// The other.
        twin: String,
    },
    /// A late file of a run that never wrote here.
    #[error("{name} is of run {token}, which {table} does not know: its late reports belong to another table")]
    ForeignLate {
        /// The late file.
        name: String,
        /// The table.
        table: String,
        /// The run that made it.
        token: String,
    },
    /// Nothing to take back.
    #[error(
        "no run {token} has added anything to {table}, so there is nothing to undo; `ais-replay runs` lists its runs"
    )]
    Unknown {
        /// The table.
        table: String,
        /// This run.
        token: String,
    },
}

/// What is known of an input before its rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadInput {
    /// Its identity.
    pub identity: InputIdentity,
    /// Digests of its beginnings, at the sizes that were asked for.
    pub beginnings: Vec<(u64, String)>,
}

impl ReadInput {
    /// An input of this name, after it was read with digests.
    #[must_use]
    pub fn new(name: &str, read: &ReadOutcome) -> Self {
        let sha256 = read.digest.clone().unwrap_or_default();
        let identity = InputIdentity { name: name.to_owned(), sha256, bytes: read.bytes };
        Self { identity, beginnings: read.beginnings.clone() }
    }
}

/// The run records of a table.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The table, for messages.
    pub table: String,
    /// The records, oldest first.
    pub records: Vec<RunRecord>,
}

impl Ledger {
    /// The sizes at which a beginning of an input may be one that the table knows.
    #[must_use]
    pub fn known_sizes(&self) -> BTreeSet<u64> {
        let inputs = self.standing().flat_map(|record| &record.inputs);
        inputs.map(|input| input.bytes).filter(|bytes| *bytes > 0).collect()
    }

    fn standing(&self) -> impl Iterator<Item = &RunRecord> {
        // A replace sets whole windows to what they should be, so what it read is not in the way of anybody.
        self.records
            .iter()
            .filter(|record| record.state != RunState::Undone && record.mode != WriteMode::Replace.name())
    }

    /// The last record of a run, if the table knows it.
    #[must_use]
    pub fn record_of(&self, token: &Token) -> Option<&RunRecord> {
        self.records.iter().rev().find(|record| record.token == token.text())
    }

    /// Whether a run may write what it has read.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check(&self, token: &Token, mode: WriteMode, inputs: &[ReadInput]) -> Result<(), Refusal> {
        if mode == WriteMode::Undo {
            return match self.record_of(token) {
                Some(_) => Ok(()),
                None => Err(Refusal::Unknown { table: self.table.clone(), token: token.to_string() }),
            };
        }
        for (place, input) in inputs.iter().enumerate() {
            let same = |other: &&ReadInput| other.identity.sha256 == input.identity.sha256 && input.identity.bytes > 0;
            if let Some(twin) = inputs[..place].iter().find(same) {
                return Err(Refusal::Twins { name: input.identity.name.clone(), twin: twin.identity.name.clone() });
            }
        }
        if mode == WriteMode::Replace {
            return Ok(());
        }
        let others = || self.standing().filter(|record| record.token != token.text());
        for input in inputs.iter().filter(|input| input.identity.bytes > 0) {
            for record in others() {
                self.check_against(input, record)?;
            }
        }
        Ok(())
    }

    fn check_against(&self, input: &ReadInput, record: &RunRecord) -> Result<(), Refusal> {
        let name = || input.identity.name.clone();
        let (table, token, when) = (self.table.clone(), record.token.clone(), started(record));
        for known in record.inputs.iter().filter(|known| known.bytes > 0) {
            if known.sha256 == input.identity.sha256 {
                let known_as =
                    if known.name == input.identity.name { String::new() } else { format!(" as {}", known.name) };
                return Err(Refusal::SameInput { name: name(), table, token, when, known_as });
            }
            let grown = input.beginnings.iter().any(|(bytes, sha256)| *bytes == known.bytes && *sha256 == known.sha256);
            if grown {
                let (earlier, bytes) = (known.name.clone(), known.bytes);
                return Err(Refusal::Grown { name: name(), table, earlier, bytes, token, when });
            }
        }
        Ok(())
    }

    /// Whether the table knows the run that a late file is of.
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub fn check_late_file(&self, name: &str, run: &str) -> Result<(), Refusal> {
        if self.records.iter().any(|record| record.token == run) {
            return Ok(());
        }
        Err(Refusal::ForeignLate { name: name.to_owned(), table: self.table.clone(), token: run.to_owned() })
    }
}

/// When a run began, as RFC 3339.
#[must_use]
pub fn started(record: &RunRecord) -> String {
    Timestamp::from_nanos(record.started_ms.saturating_mul(1_000_000)).to_string()
}
