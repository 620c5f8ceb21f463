//! Run records: which inputs are in a table, and what must not be added to it again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Token, WriteMode};
use crate::source::ReadOutcome;
use crate::time::Timestamp;

/// How many names of inputs a message gives.
const MOST_NAMES: usize = 3;

/// What identifies an input wherever it lies and whatever it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputIdentity {
    /// What it was called.
    pub name: String,
    /// SHA-256 of its decompressed bytes, in hexadecimal; of an object in S3 that of its bucket, key, ETag and size.
    pub sha256: String,
    /// How many these are.
    pub bytes: u64,
    /// Which part of which stream it is, where it is one. Its digest is that of these, since nobody reads all of a stream to
    /// know it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<StreamRange>,
}

impl InputIdentity {
    /// What a run of the same name must have read: the same bytes, or the same stream. A range that was given as an age is
    /// another one the next time, and its windows are the same, whole ones.
    fn material(&self) -> &str {
        self.range.as_ref().map_or(&self.sha256, |range| &range.stream)
    }

    /// Whether it is a range of a stream, and none of those that were read.
    pub(super) fn is_other_range_than(&self, read: &[ReadInput]) -> bool {
        self.range.is_some() && read.iter().all(|input| input.identity.range != self.range)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (&self.range, &other.range) else { return false };
        one.stream == other.stream && one.since < other.until && other.since < one.until
    }
}

/// A range of a stream: the windows that lie in it are the run's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRange {
    /// The stream's ARN.
    pub stream: String,
    /// Epoch seconds.
    pub since: i64,
    /// Epoch seconds.
    pub until: i64,
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

impl RunRecord {
    /// Whether anything of it may be in the table: not where it was taken back, nor where every row was left alone.
    #[must_use]
    pub fn is_in_the_table(&self) -> bool {
        match self.state {
            RunState::Writing => true,
            RunState::Complete => self.conflicts < self.rows,
            RunState::Undone => false,
        }
    }
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
    /// A range of a stream shares windows with one that is in the table.
    #[error(
        "{name} overlaps {earlier}, which run {token} of {when} added to {table}: what both hold would count twice"
    )]
    Overlap {
        /// The range.
        name: String,
        /// The table.
        table: String,
        /// The range that is there.
        earlier: String,
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
    /// Its own id stands in the table for other content, or for other options.
    #[error("run {token} of {when} in {table} is of {what}: one id is one run, so give this one another --run-id")]
    OtherRun {
        /// The table.
        table: String,
        /// The run.
        token: String,
        /// When that began.
        when: String,
        /// What it is of.
        what: String,
    },
    /// A replace is not taken back.
    #[error(
        "run {token} of {when} replaced rows of {table}, and what they held before is kept nowhere: replace them anew from \
         what they should hold"
    )]
    NotUndoable {
        /// The table.
        table: String,
        /// The run.
        token: String,
        /// When that began.
        when: String,
    },
    /// The windows of a late file were set anew from the sentences that the late reports are among.
    #[error(
        "{name} may be in {table} already: run {token} of {when} set its windows anew from the input that these late reports come from"
    )]
    Recomputed {
        /// The late file.
        name: String,
        /// The table.
        table: String,
        /// The run that replaced.
        token: String,
        /// When.
        when: String,
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
        let identity = InputIdentity { name: name.to_owned(), sha256, bytes: read.bytes, range: None };
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
        let inputs = self.standing(WriteMode::Add).flat_map(|record| &record.inputs);
        inputs.map(|input| input.bytes).filter(|bytes| *bytes > 0).collect()
    }

    /// The records that are in the way of a run that read the same.
    fn standing(&self, mode: WriteMode) -> impl Iterator<Item = &RunRecord> {
        // A replace sets whole windows to what they should be. Who then inserts what it read finds those occupied; who adds
        // it would count it twice.
        let in_the_way = move |record: &&RunRecord| {
            record.is_in_the_table() && (mode == WriteMode::Add || record.mode != WriteMode::Replace.name())
        };
        self.records.iter().filter(in_the_way)
    }

    /// The last record of a run, if the table knows it.
    #[must_use]
    pub fn record_of(&self, token: &Token) -> Option<&RunRecord> {
        self.records.iter().rev().find(|record| record.token == token.text())
    }

    /// Whether the id of a run stands for this very run, if the table knows it. Nothing gets around that: rows that hold the
    /// id would be passed over as if they held this run's numbers, or lose what it never put in.
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub fn check_id(&self, token: &Token, mode: WriteMode, inputs: &[ReadInput], options: &str) -> Result<(), Refusal> {
        let Some(known) = self.record_of(token) else { return Ok(()) };
        let other = |what: String| {
            let (table, token, when) = (self.table.clone(), token.to_string(), started(known));
            Err(Refusal::OtherRun { table, token, when, what })
        };
        let mut read: Vec<&str> = inputs.iter().map(|input| input.identity.material()).collect();
        let mut known_read: Vec<&str> = known.inputs.iter().map(InputIdentity::material).collect();
        for materials in [&mut read, &mut known_read] {
            materials.sort_unstable();
            // A stream of which the run has read several ranges is one.
            materials.dedup();
        }
        let names = || {
            let names: Vec<&str> = known.inputs.iter().map(|input| input.name.as_str()).take(MOST_NAMES).collect();
            let more = known.inputs.len().saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            names.join(", ") + &more
        };
        if read != known_read {
            return other(format!("other content ({})", names()));
        }
        // What is taken back of a stream is a range as it was added: a part of one may hold other late reports. Of a
        // range beside those that were added, rows hold nothing.
        let is_part = |input: &&ReadInput| {
            let known_as_it_is = known.inputs.iter().any(|known| known.range == input.identity.range);
            !known_as_it_is && known.inputs.iter().any(|known| known.overlaps(&input.identity))
        };
        if mode == WriteMode::Undo && inputs.iter().any(|input| is_part(&input)) {
            return other(format!("other ranges ({})", names()));
        }
        // A range that was given as an age is another one the next time; windows of both are the same, whole ones.
        let has_ranges = inputs.iter().any(|input| input.identity.range.is_some());
        let compared = |options: &str| {
            let ranged = |word: &&str| !word.starts_with("since=") && !word.starts_with("until=");
            let all = mode == WriteMode::Undo && !has_ranges;
            let words = options.split(' ').filter(|word| all || ranged(word));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        if compared(options) != compared(&known.options) {
            return other(format!("other options ({})", known.options));
        }
        Ok(())
    }

    /// Whether a run may write what it has read.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check(&self, token: &Token, mode: WriteMode, inputs: &[ReadInput]) -> Result<(), Refusal> {
        let own = self.record_of(token);
        if mode == WriteMode::Undo {
            let (table, token) = (self.table.clone(), token.to_string());
            return match own {
                Some(own) if own.mode == WriteMode::Replace.name() => {
                    Err(Refusal::NotUndoable { table, token, when: started(own) })
                }
                Some(_) => Ok(()),
                None => Err(Refusal::Unknown { table, token }),
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
        for input in inputs.iter().filter(|input| input.identity.bytes > 0) {
            if let Some(own) = own {
                self.check_against_own(input, own, mode)?;
            }
            for record in self.standing(mode).filter(|record| record.token != token.text()) {
                self.check_against(input, record)?;
                // An insert leaves alone what is there; who adds it counts it twice.
                if mode == WriteMode::Add {
                    self.check_overlap(input, record)?;
                }
            }
        }
        Ok(())
    }

    fn check_overlap(&self, input: &ReadInput, record: &RunRecord) -> Result<(), Refusal> {
        match record.inputs.iter().find(|known| known.overlaps(&input.identity)) {
            None => Ok(()),
            Some(known) => Err(Refusal::Overlap {
                name: input.identity.name.clone(),
                table: self.table.clone(),
                earlier: known.name.clone(),
                token: record.token.clone(),
                when: started(record),
            }),
        }
    }

    /// The same command again is welcome: it changes nothing twice. But who gives a file that is in the table under another
    /// name has most likely taken it for another file, and who adds what a replace has set would double it.
    fn check_against_own(&self, input: &ReadInput, own: &RunRecord, mode: WriteMode) -> Result<(), Refusal> {
        let replaced = mode == WriteMode::Add && own.mode == WriteMode::Replace.name();
        let renamed = |known: &&InputIdentity| {
            known.sha256 == input.identity.sha256 && file_name(&known.name) != file_name(&input.identity.name)
        };
        let renamed = own.state == RunState::Complete && own.inputs.iter().any(|known| renamed(&known));
        if own.is_in_the_table() && (replaced || renamed) {
            return self.check_against(input, own);
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

    /// Whether the table knows the run that a late file is of, and its late reports are not in it by another way.
    ///
    /// # Errors
    ///
    /// Where it does not.
    pub fn check_late_file(&self, name: &str, run: &str) -> Result<(), Refusal> {
        let Some(made) = self.records.iter().find(|record| record.token == run) else {
            return Err(Refusal::ForeignLate {
                name: name.to_owned(),
                table: self.table.clone(),
                token: run.to_owned(),
            });
        };
        let shares_input = |record: &&RunRecord| {
            let same = |input: &InputIdentity| {
                made.inputs.iter().any(|known| known.sha256 == input.sha256 || known.overlaps(input))
            };
            record.mode == WriteMode::Replace.name() && record.inputs.iter().any(same)
        };
        match self.records.iter().find(shares_input) {
            None => Ok(()),
            Some(replaced) => Err(Refusal::Recomputed {
                name: name.to_owned(),
                table: self.table.clone(),
                token: replaced.token.clone(),
                when: started(replaced),
            }),
        }
    }
}

/// A name without the folders before it: the same command from another folder is the same.
fn file_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// When a run began, as RFC 3339.
#[must_use]
pub fn started(record: &RunRecord) -> String {
    Timestamp::from_nanos(record.started_ms.saturating_mul(1_000_000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input of that text, with digests at every size that the ledger asks for.
    fn input(ledger: &Ledger, name: &str, text: &str) -> ReadInput {
        use sha2::{Digest, Sha256};
        let digest = |text: &[u8]| crate::source::content::hexadecimal(&Sha256::digest(text));
        let sizes = ledger.known_sizes().into_iter().filter(|size| *size <= text.len() as u64);
        ReadInput {
            identity: InputIdentity {
                name: name.to_owned(),
                sha256: digest(text.as_bytes()),
                bytes: text.len() as u64,
                range: None,
            },
            beginnings: sizes.map(|size| (size, digest(&text.as_bytes()[..size as usize]))).collect(),
        }
    }

    /// A table to which runs were written: token, mode, state, inputs as (name, text).
    /// A run of a test: token, mode, state, and its inputs by name and digest.
    type TestRun<'a> = (&'a str, WriteMode, RunState, &'a [(&'a str, &'a str)]);

    fn ledger(runs: &[TestRun<'_>]) -> Ledger {
        let none = Ledger::default();
        let record = |(place, run): (usize, &TestRun<'_>)| RunRecord {
            started_ms: 1_700_000_000_000 + place as i64,
            token: run.0.to_owned(),
            mode: run.1.name().to_owned(),
            inputs: run.3.iter().map(|(name, text)| input(&none, name, text).identity).collect(),
            options: "window=60 since=0".to_owned(),
            state: run.2,
            rows: 1,
            conflicts: 0,
            version: "0".to_owned(),
        };
        Ledger { table: "sqlite:t".to_owned(), records: runs.iter().enumerate().map(record).collect() }
    }

    fn check(ledger: &Ledger, token: &str, mode: WriteMode, inputs: &[(&str, &str)]) -> Result<(), Refusal> {
        let inputs: Vec<ReadInput> = inputs.iter().map(|(name, text)| input(ledger, name, text)).collect();
        ledger.check(&Token::new(token).unwrap(), mode, &inputs)
    }

    const A: (&str, &str) = ("logs/a.nmea", "one\ntwo\n");
    const B: (&str, &str) = ("b.nmea", "three\n");

    #[test]
    fn content_that_another_run_added_is_refused_with_both_names() {
        for (mode, inputs) in [(WriteMode::Insert, &[A][..]), (WriteMode::Add, &[B, A])] {
            let ledger = ledger(&[("first", mode, RunState::Complete, inputs)]);
            for mode in [WriteMode::Insert, WriteMode::Add] {
                let error = check(&ledger, "second", mode, &[("copy.nmea", A.1), ("c", "four\n")]).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "copy.nmea is in sqlite:t already: run first of 2023-11-14T22:13:20Z added it as logs/a.nmea"
                );
                let error = check(&ledger, "second", mode, &[A]).unwrap_err().to_string();
                assert!(error.ends_with("added it"), "{error}");
                assert_eq!(check(&ledger, "second", mode, &[("c", "four\n")]), Ok(()));
            }
        }
    }

    #[test]
    fn a_file_that_has_grown_is_refused_with_where_it_was() {
        let ledger = ledger(&[("first", WriteMode::Insert, RunState::Complete, &[B, A])]);
        let error = check(&ledger, "second", WriteMode::Add, &[("a.nmea", "one\ntwo\nthree\n")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.nmea has grown: its first 8 bytes are logs/a.nmea, which run first of 2023-11-14T22:13:20Z added to sqlite:t"
        );
        // One that merely is as long, or longer, is another file.
        assert_eq!(check(&ledger, "second", WriteMode::Add, &[("a.nmea", "one\ntw0\nthree\n")]), Ok(()));
    }

    #[test]
    fn two_inputs_of_the_same_bytes_are_refused_and_empty_ones_are_not() {
        let ledger = ledger(&[("first", WriteMode::Add, RunState::Complete, &[("empty", "")])]);
        for mode in [WriteMode::Insert, WriteMode::Add, WriteMode::Replace] {
            let error = check(&ledger, "r", mode, &[A, B, ("copy.nmea", A.1)]).unwrap_err().to_string();
            assert_eq!(error, "copy.nmea and logs/a.nmea hold the same bytes: they would count twice");
            assert_eq!(check(&ledger, "r", mode, &[A, ("x", ""), ("y", "")]), Ok(()));
        }
    }

    #[test]
    fn a_run_that_broke_off_keeps_its_inputs_and_goes_on_itself() {
        let ledger = ledger(&[("first", WriteMode::Insert, RunState::Writing, &[A])]);
        assert!(matches!(check(&ledger, "second", WriteMode::Insert, &[A]), Err(Refusal::SameInput { .. })));
        assert_eq!(check(&ledger, "first", WriteMode::Insert, &[A]), Ok(()));
        // It may lie elsewhere by now.
        assert_eq!(check(&ledger, "first", WriteMode::Insert, &[("moved.nmea", A.1)]), Ok(()));
    }

    #[test]
    fn the_same_run_again_passes_but_not_under_another_name() {
        let ledger = ledger(&[("first", WriteMode::Insert, RunState::Complete, &[A, B])]);
        for mode in [WriteMode::Insert, WriteMode::Add, WriteMode::Replace] {
            assert_eq!(check(&ledger, "first", mode, &[A, B]), Ok(()));
            assert_eq!(check(&ledger, "first", mode, &[B, ("/elsewhere/a.nmea", A.1)]), Ok(()));
        }
        let error = check(&ledger, "first", WriteMode::Add, &[("z.nmea", A.1), B]).unwrap_err().to_string();
        assert!(error.starts_with("z.nmea is in") && error.ends_with("as logs/a.nmea"), "{error}");
    }

    #[test]
    fn a_run_that_was_undone_frees_its_inputs() {
        let ledger = ledger(&[("first", WriteMode::Add, RunState::Undone, &[A])]);
        for token in ["first", "second"] {
            assert_eq!(check(&ledger, token, WriteMode::Add, &[("copy.nmea", A.1)]), Ok(()));
            assert_eq!(check(&ledger, token, WriteMode::Add, &[("a.nmea", "one\ntwo\nthree\n")]), Ok(()));
        }
        assert!(ledger.known_sizes().is_empty());
    }

    #[test]
    fn a_run_whose_rows_were_all_left_alone_is_in_nobodys_way() {
        let mut ledger = ledger(&[("first", WriteMode::Add, RunState::Complete, &[A])]);
        (ledger.records[0].rows, ledger.records[0].conflicts) = (7, 6);
        assert!(check(&ledger, "second", WriteMode::Add, &[A]).is_err());
        ledger.records[0].conflicts = 7;
        assert_eq!(check(&ledger, "second", WriteMode::Add, &[A]), Ok(()));
        ledger.records[0].state = RunState::Writing;
        assert!(check(&ledger, "second", WriteMode::Add, &[A]).is_err());
    }

    #[test]
    fn a_replace_stands_in_the_way_of_nobody_but_who_would_add_the_same() {
        let replaced = ledger(&[("first", WriteMode::Replace, RunState::Complete, &[A])]);
        assert_eq!(check(&replaced, "second", WriteMode::Insert, &[A]), Ok(()));
        assert_eq!(check(&replaced, "second", WriteMode::Replace, &[A]), Ok(()));
        for token in ["first", "second"] {
            assert!(matches!(check(&replaced, token, WriteMode::Add, &[A]), Err(Refusal::SameInput { .. })));
        }
        // Nor does anything stand in the way of a replace.
        let added = ledger(&[("first", WriteMode::Add, RunState::Complete, &[A])]);
        assert_eq!(check(&added, "second", WriteMode::Replace, &[A]), Ok(()));
    }

    #[test]
    fn only_what_was_put_in_is_taken_back() {
        let ledger = ledger(&[
            ("first", WriteMode::Insert, RunState::Complete, &[A]),
            ("set", WriteMode::Replace, RunState::Complete, &[B]),
            ("gone", WriteMode::Add, RunState::Undone, &[B]),
        ]);
        let undo = |token| check(&ledger, token, WriteMode::Undo, &[A]);
        assert_eq!((undo("first"), undo("gone")), (Ok(()), Ok(())));
        assert!(undo("unknown").unwrap_err().to_string().contains("no run unknown has added anything to sqlite:t"));
        assert!(undo("set").unwrap_err().to_string().contains("what they held before is kept nowhere"));
    }

    #[test]
    fn one_id_is_one_run() {
        let ledger = ledger(&[("night", WriteMode::Insert, RunState::Writing, &[A, B])]);
        let check = |mode, inputs: &[(&str, &str)], options| {
            let inputs: Vec<ReadInput> = inputs.iter().map(|(name, text)| input(&ledger, name, text)).collect();
            ledger.check_id(&Token::new("night").unwrap(), mode, &inputs, options).map_err(|error| error.to_string())
        };
        let options = "window=60 since=0";
        for mode in [WriteMode::Insert, WriteMode::Add, WriteMode::Replace, WriteMode::Undo] {
            assert_eq!(check(mode, &[B, A], options), Ok(()));
            let error = check(mode, &[A], options).unwrap_err();
            assert!(
                error.contains("is of other content (logs/a.nmea, b.nmea)") && error.contains("--run-id"),
                "{error}"
            );
            let error = check(mode, &[A, B], "window=30 since=0").unwrap_err();
            assert!(error.contains("is of other options (window=60 since=0)"), "{error}");
        }
        // A range may have been an age, which is another one by now; taking back needs the very same.
        assert_eq!(check(WriteMode::Insert, &[A, B], "window=60 since=600 until=900"), Ok(()));
        assert!(check(WriteMode::Undo, &[A, B], "window=60 since=600").is_err());
    }

    #[test]
    fn late_files_of_runs_that_the_table_does_not_know_are_refused() {
        let ledger = ledger(&[("first", WriteMode::Insert, RunState::Complete, &[A])]);
        assert_eq!(ledger.check_late_file("late.ndjson", "first"), Ok(()));
        let mut recomputed = ledger.clone();
        let replace = RunRecord {
            token: "anew".to_owned(),
            mode: WriteMode::Replace.name().to_owned(),
            ..ledger.records[0].clone()
        };
        recomputed.records.push(replace);
        let error = recomputed.check_late_file("late.ndjson", "first").unwrap_err();
        assert!(matches!(error, Refusal::Recomputed { .. }), "{error}");
        let error = ledger.check_late_file("late.ndjson", "other").unwrap_err().to_string();
        assert_eq!(
            error,
            "late.ndjson is of run other, which sqlite:t does not know: its late reports belong to another table"
        );
    }
}
