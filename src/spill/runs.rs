//! Sorted runs on disk, and their merge. Knows nothing of what it sorts but its key and how two of one key become one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};

use super::{SpillError, Spilled};

/// When so many runs of one level have come together, they are merged into one of the next: there are never many more open
/// files than this, and a record is written anew only once per level.
const FAN_IN: usize = 16;

/// What is read at once of each run.
const READ_BYTES: usize = 32 * 1024;

/// What is written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// What runs are made of.
pub trait Record: Sized {
    /// What they are sorted by. The least one is the default, from which the first record of a run is told apart.
    type Key: Copy + Ord + Default;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// Adds another one of the same key.
    fn absorb(&mut self, other: Self);

    /// Appends its bytes. `before` is the key of the record before it.
    fn encode(&self, before: Self::Key, bytes: &mut Vec<u8>);

    /// Reads what [`Record::encode`] wrote.
    ///
    /// # Errors
    ///
    /// Where that fails or ends too early.
    fn decode(before: Self::Key, bytes: &mut impl BufRead) -> io::Result<Self>;
}

/// A run being written.
pub struct RunWriter<R: Record> {
    file: BufWriter<File>,
    before: R::Key,
    buffer: Vec<u8>,
    records: u64,
    bytes: u64,
    level: u32,
}

impl<R: Record> RunWriter<R> {
    /// Begins a run.
    ///
    /// # Errors
    ///
    /// Where no temporary file can be made.
    pub fn new() -> Result<Self, SpillError> {
        Self::of_level(0)
    }

    fn of_level(level: u32) -> Result<Self, SpillError> {
        let file = BufWriter::with_capacity(WRITE_BYTES, tempfile::tempfile()?);
        Ok(Self { file, before: R::Key::default(), buffer: Vec::new(), records: 0, bytes: 0, level })
    }

    /// Takes the next record, of a greater key than those before it.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn write(&mut self, record: &R) -> Result<(), SpillError> {
        debug_assert!(self.records == 0 || self.before < record.key(), "a run out of order");
        self.buffer.clear();
        record.encode(self.before, &mut self.buffer);
        self.before = record.key();
        self.records += 1;
        self.bytes += self.buffer.len() as u64;
        Ok(self.file.write_all(&self.buffer)?)
    }

    /// Ends it, to be read from its beginning; `None` where it holds nothing.
    fn into_run(self) -> Result<Option<Run<R>>, SpillError> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(READ_BYTES, file);
        let Some(left) = self.records.checked_sub(1) else { return Ok(None) };
        let head = R::decode(R::Key::default(), &mut file)?;
        Ok(Some(Run { file, left, head, level: self.level }))
    }
}

/// A run being read: never empty.
struct Run<R> {
    file: BufReader<File>,
    /// Records behind the head.
    left: u64,
    head: R,
    level: u32,
}

impl<R: Record> Run<R> {
    /// Reads the next head and gives the one before; `None` for the rest where it was the last.
    fn step(mut self) -> io::Result<(R, Option<Self>)> {
        let Some(left) = self.left.checked_sub(1) else { return Ok((self.head, None)) };
        let next = R::decode(self.head.key(), &mut self.file)?;
        let head = std::mem::replace(&mut self.head, next);
        self.left = left;
        Ok((head, Some(self)))
    }
}

/// Runs that are read as one, in the order of their keys.
pub struct Runs<R: Record> {
    /// `None` where a run has come to its end.
    runs: Vec<Option<Run<R>>>,
    /// Keys of all heads, the least first, and the places of their runs.
    heads: BinaryHeap<Reverse<(R::Key, usize)>>,
    spilled: Spilled,
}

impl<R: Record> Default for Runs<R> {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl<R: Record> Runs<R> {
    fn of(runs: Vec<Run<R>>) -> Self {
        let heads = runs.iter().enumerate().map(|(place, run)| Reverse((run.head.key(), place))).collect();
        Self { runs: runs.into_iter().map(Some).collect(), heads, spilled: Spilled::default() }
    }

    /// Whether there is nothing left to read.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// How much was written, without what merging wrote anew.
    #[must_use]
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Adds a run.
    ///
    /// # Errors
    ///
    /// Where the disk is full, or fails.
    pub fn push(&mut self, run: RunWriter<R>) -> Result<(), SpillError> {
        let bytes = run.bytes;
        let Some(run) = run.into_run()? else { return Ok(()) };
        self.spilled += Spilled { runs: 1, bytes };
        let mut runs: Vec<Run<R>> = self.runs.drain(..).flatten().chain([run]).collect();
        let mut level = 0;
        while runs.iter().filter(|run| run.level == level).count() >= FAN_IN {
            let (full, others): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.level == level);
            level += 1;
            let mut writer = RunWriter::of_level(level)?;
            let mut full = Self::of(full);
            while let Some(record) = full.next()? {
                writer.write(&record)?;
            }
            runs = others;
            runs.extend(writer.into_run()?);
        }
        *self = Self { spilled: self.spilled, ..Self::of(runs) };
        Ok(())
    }

    /// The least key.
    #[inline]
    #[must_use]
    pub fn next_key(&self) -> Option<R::Key> {
        self.heads.peek().map(|Reverse((key, _))| *key)
    }

    /// Takes the record of the least key, summed over all runs.
    ///
    /// # Errors
    ///
    /// Where a run cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<R>, SpillError> {
        let Some(key) = self.next_key() else { return Ok(None) };
        let mut sum: Option<R> = None;
        while self.next_key() == Some(key) {
            let Some(Reverse((_, place))) = self.heads.pop() else { break };
            // Heads and runs go together: a place in the heap is that of a run that is not at its end.
            let Some(run) = self.runs[place].take() else { continue };
            let (record, rest) = run.step()?;
            if let Some(rest) = rest {
                self.heads.push(Reverse((rest.head.key(), place)));
                self.runs[place] = Some(rest);
            }
            match &mut sum {
                Some(sum) => sum.absorb(record),
                None => sum = Some(record),
            }
        }
        Ok(sum)
    }
}

/// Appends a number, seven bits a byte, the low ones first.
pub fn put_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put_number`] wrote.
///
/// # Errors
///
/// Where that fails or ends too early, or is no such number.
#[inline]
pub fn number(bytes: &mut impl BufRead) -> io::Result<u64> {
    // Most numbers are one byte, and lie in the buffer.
    if let [byte @ ..0x80, ..] = *bytes.fill_buf()? {
        bytes.consume(1);
        return Ok(byte.into());
    }
    long_number(bytes)
}

fn long_number(bytes: &mut impl BufRead) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = array(bytes)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Reads so many bytes.
///
/// # Errors
///
/// Where that fails or ends too early.
pub fn array<const LENGTH: usize>(bytes: &mut impl BufRead) -> io::Result<[u8; LENGTH]> {
    let mut array = [0; LENGTH];
    bytes.read_exact(&mut array)?;
    Ok(array)
}

/// Appends what leads from one cell to another, as their integers. Cells of one precision differ in their high bits alone.
pub fn put_difference(from: u64, to: u64, bytes: &mut Vec<u8>) {
    let difference = to.wrapping_sub(from);
    let zeros = difference.trailing_zeros() & 63;
    bytes.push(zeros as u8);
    put_number(difference >> zeros, bytes);
}

/// Reads what [`put_difference`] wrote.
///
/// # Errors
///
/// Those of [`number`].
pub fn difference(from: u64, bytes: &mut impl BufRead) -> io::Result<u64> {
    let [zeros] = array(bytes)?;
    Ok(from.wrapping_add(number(bytes)? << (zeros & 63)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key and a sum.
    #[derive(Debug, PartialEq)]
    struct Pair(u64, u64);

    impl Record for Pair {
        type Key = u64;

        fn key(&self) -> u64 {
            self.0
        }

        fn absorb(&mut self, other: Self) {
            self.1 += other.1;
        }

        fn encode(&self, before: u64, bytes: &mut Vec<u8>) {
            put_difference(before, self.0, bytes);
            put_number(self.1, bytes);
        }

        fn decode(before: u64, bytes: &mut impl BufRead) -> io::Result<Self> {
            Ok(Self(difference(before, bytes)?, number(bytes)?))
        }
    }

    fn push(runs: &mut Runs<Pair>, pairs: impl IntoIterator<Item = Pair>) {
        let mut writer = RunWriter::new().unwrap();
        pairs.into_iter().for_each(|pair| writer.write(&pair).unwrap());
        runs.push(writer).unwrap();
    }

    fn rest(runs: &mut Runs<Pair>) -> Vec<Pair> {
        std::iter::from_fn(|| runs.next().unwrap()).collect()
    }

    #[test]
    fn runs_without_number_are_read_as_one_through_few_files() {
        let mut runs = Runs::default();
        for run in 0..700 {
            push(&mut runs, (0..10).map(|key| Pair((key << 60) | (run % 7), 1)));
            assert!(runs.runs.len() < 3 * FAN_IN, "{} runs are open", runs.runs.len());
        }
        let expected: Vec<Pair> = (0..10).flat_map(|key| (0..7).map(move |run| Pair((key << 60) | run, 100))).collect();
        assert_eq!(rest(&mut runs), expected);
        assert_eq!(runs.spilled().runs, 700);
        assert!(runs.is_empty());
    }

    #[test]
    fn runs_may_come_between_reads_and_empty_ones_are_none() {
        let mut runs = Runs::default();
        push(&mut runs, []);
        assert_eq!((runs.next().unwrap(), runs.spilled()), (None, Spilled::default()));
        push(&mut runs, [Pair(1, 1), Pair(5, 1)]);
        assert_eq!(runs.next().unwrap(), Some(Pair(1, 1)));
        push(&mut runs, [Pair(0, 1), Pair(5, 2), Pair(u64::MAX, u64::MAX)]);
        assert_eq!(rest(&mut runs), [Pair(0, 1), Pair(5, 3), Pair(u64::MAX, u64::MAX)]);
    }

    #[test]
    fn numbers_survive_and_what_is_none_is_an_error() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX];
        for (from, to) in numbers.iter().flat_map(|from| numbers.map(|to| (*from, to))) {
            let mut bytes = Vec::new();
            put_difference(from, to, &mut bytes);
            assert_eq!(difference(from, &mut &bytes[..]).unwrap(), to);
            assert!(difference(from, &mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(number(&mut &[0xff; 11][..]).is_err());
    }
}
