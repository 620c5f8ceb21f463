//! How many different numbers there were, exactly and in bounded memory.

use std::io::{self, BufRead};

use hashbrown::HashMap;

use super::runs::{Record, RunWriter, Runs, difference, number, put_difference, put_number};
use super::{SpillError, Spilled};

/// Counts different numbers. Those that are too many for its share of memory go to sorted runs, which are counted at the
/// end.
///
/// Neighbours share a word: ships come to cells side by side, and their MMSIs are given out in blocks.
pub struct Distinct {
    /// Which of 64 neighbours there were, by all but the last six bits that they have in common.
    held: HashMap<u64, u64>,
    /// Bytes that it may take.
    budget: u64,
    runs: Runs<Neighbours>,
}

impl Distinct {
    /// A count of nothing.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self { held: HashMap::new(), budget, runs: Runs::default() }
    }

    /// Takes a number; twice is once.
    ///
    /// # Errors
    ///
    /// Where the disk is full, or fails.
    #[inline]
    pub fn insert(&mut self, number: u64) -> Result<(), SpillError> {
        let (place, bit) = (number >> 6, 1 << (number & 63));
        match self.held.get_mut(&place) {
            Some(word) => {
                *word |= bit;
                Ok(())
            }
            None => self.insert_new(place, bit),
        }
    }

    fn insert_new(&mut self, place: u64, word: u64) -> Result<(), SpillError> {
        // A full table doubles, and both are there meanwhile.
        if self.held.len() == self.held.capacity() && 3 * self.held.allocation_size() as u64 > self.budget {
            self.spill()?;
        }
        self.held.insert(place, word);
        Ok(())
    }

    fn spill(&mut self) -> Result<(), SpillError> {
        let mut held: Vec<Neighbours> = self.held.drain().map(|(place, word)| Neighbours { place, word }).collect();
        held.sort_unstable_by_key(|neighbours| neighbours.place);
        let mut writer = RunWriter::new()?;
        held.iter().try_for_each(|neighbours| writer.write(neighbours))?;
        self.runs.push(writer)
    }

    /// How many there were, and how much of that was on disk.
    ///
    /// # Errors
    ///
    /// Where the disk is full, or fails.
    pub fn count(mut self) -> Result<(u64, Spilled), SpillError> {
        let ones = |word: u64| u64::from(word.count_ones());
        if self.runs.is_empty() {
            return Ok((self.held.values().copied().map(ones).sum(), Spilled::default()));
        }
        self.spill()?;
        let mut count = 0;
        while let Some(Neighbours { word, .. }) = self.runs.next()? {
            count += ones(word);
        }
        Ok((count, self.runs.spilled()))
    }
}

struct Neighbours {
    place: u64,
    word: u64,
}

impl Record for Neighbours {
    type Key = u64;

    fn key(&self) -> u64 {
        self.place
    }

    fn absorb(&mut self, other: Self) {
        self.word |= other.word;
    }

    fn encode(&self, before: u64, bytes: &mut Vec<u8>) {
        put_number(self.place.wrapping_sub(before), bytes);
        put_difference(0, self.word, bytes);
    }

    fn decode(before: u64, bytes: &mut impl BufRead) -> io::Result<Self> {
        let place = before.wrapping_add(number(bytes)?);
        Ok(Self { place, word: difference(0, bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_once_whatever_the_memory() {
        // Neighbours, and numbers that are scattered from 0 to the last.
        for factor in [1_u64, 0x9E37_79B9_7F4A_7C15] {
            for (budget, spills) in [(0, true), (1_000, true), (3_000, true), (u64::MAX / 4, false)] {
                let mut distinct = Distinct::new(budget);
                for number in (0..3).flat_map(|round| round..10_000 + round) {
                    distinct.insert(u64::MAX - factor.wrapping_mul(number)).unwrap();
                }
                let (count, spilled) = distinct.count().unwrap();
                assert_eq!((count, spilled.runs > 0), (10_002, spills), "{budget}");
            }
        }
    }
}
