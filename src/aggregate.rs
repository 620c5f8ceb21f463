//! What is kept for one cell and window: exact integers, and which vessels were there.

use hashbrown::HashSet;

/// The most vessels that stand in place, without an allocation. Few cells see more in a minute.
const VESSELS_IN_PLACE: usize = 7;

/// The most vessels that stand in a plain list before a hash set takes over.
const LISTED_VESSELS: usize = 32;

/// Distinct MMSIs: a few in place, then a list, then a hash set.
#[derive(Clone, Debug)]
pub enum Vessels {
    /// Up to 7, in order of appearance: how many, and who.
    InPlace(u8, [u32; VESSELS_IN_PLACE]),
    /// Up to 32, in order of appearance.
    Listed(Vec<u32>),
    /// More than that.
    Hashed(Box<HashSet<u32>>),
}

impl Default for Vessels {
    fn default() -> Self {
        Self::InPlace(0, [0; VESSELS_IN_PLACE])
    }
}

impl Vessels {
    /// Adds one MMSI; twice is once. Returns by how much [`Vessels::heap_bytes`] grew.
    #[inline]
    pub fn insert(&mut self, mmsi: u32) -> usize {
        match self {
            Self::InPlace(number, known) => {
                let used = usize::from(*number);
                if known[..used].contains(&mmsi) {
                    return 0;
                }
                if let Some(free) = known.get_mut(used) {
                    *free = mmsi;
                    *number += 1;
                    return 0;
                }
            }
            Self::Listed(list) => {
                if list.contains(&mmsi) {
                    return 0;
                }
                if list.len() < LISTED_VESSELS {
                    list.push(mmsi);
                    return 0;
                }
            }
            Self::Hashed(set) => {
                if set.len() < set.capacity() {
                    set.insert(mmsi);
                    return 0;
                }
            }
        }
        self.grow(mmsi)
    }

    /// Adds what there may be no room for, and returns by how much the storage grew.
    #[cold]
    fn grow(&mut self, mmsi: u32) -> usize {
        let before = self.heap_bytes();
        if let Self::Hashed(set) = self {
            set.insert(mmsi);
        } else {
            let all = self.iter().chain([mmsi]);
            *self = match self {
                Self::InPlace(..) => {
                    let mut list = Vec::with_capacity(LISTED_VESSELS);
                    list.extend(all);
                    Self::Listed(list)
                }
                Self::Listed(_) | Self::Hashed(_) => Self::Hashed(Box::new(all.collect())),
            };
        }
        self.heap_bytes() - before
    }

    /// Bytes that it takes besides its own size. It never shrinks.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::InPlace(..) => 0,
            Self::Listed(list) => list.capacity() * size_of::<u32>(),
            Self::Hashed(set) => size_of::<HashSet<u32>>() + set.allocation_size(),
        }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::InPlace(number, _) => usize::from(*number),
            Self::Listed(list) => list.len(),
            Self::Hashed(set) => set.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with each MMSI, in no particular order, until it fails. Cheaper than [`Vessels::iter`].
    ///
    /// # Errors
    ///
    /// The first of `take`.
    #[inline]
    pub fn try_for_each<E>(&self, mut take: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        let (list, set) = self.places();
        list.iter().try_for_each(|mmsi| take(*mmsi))?;
        set.into_iter().flatten().try_for_each(|mmsi| take(*mmsi))
    }

    /// Those in a row, and those in a set: one of the two is empty.
    #[inline]
    fn places(&self) -> (&[u32], Option<&HashSet<u32>>) {
        match self {
            Self::InPlace(number, known) => (&known[..usize::from(*number)], None),
            Self::Listed(list) => (list, None),
            Self::Hashed(set) => (&[], Some(set)),
        }
    }

    /// The MMSIs, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let (list, set) = self.places();
        list.iter().chain(set.into_iter().flat_map(|set| set.iter())).copied()
    }
}

/// The aggregate of one (cell, window): a sum that merges in any order.
#[derive(Clone, Debug, Default)]
pub struct Aggregate {
    /// Reports, those without SOG among them.
    pub count: u64,
    /// Sum of SOG in tenths of a knot, exact.
    pub sog_sum: u64,
    /// Reports whose SOG was not available: they enter neither sum nor divisor.
    pub sog_missing: u64,
    /// Distinct MMSIs.
    pub vessels: Vessels,
}

impl Aggregate {
    /// Counts one report. `sog` in tenths of a knot. Returns by how many bytes its vessels grew, besides their own size.
    #[inline]
    pub fn add(&mut self, mmsi: u32, sog: Option<u16>) -> usize {
        self.count += 1;
        match sog {
            Some(sog) => self.sog_sum += u64::from(sog),
            None => self.sog_missing += 1,
        }
        self.vessels.insert(mmsi)
    }

    /// Adds what another aggregate of the same cell and window holds.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sog_sum += other.sog_sum;
        self.sog_missing += other.sog_missing;
        for mmsi in other.vessels.iter() {
            self.vessels.insert(mmsi);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vessels_stay_distinct_across_the_change_to_a_hash_set() {
        let mut vessels = Vessels::default();
        for round in 0..3 {
            for mmsi in 0..100 {
                let (before, grown) = (vessels.heap_bytes(), vessels.insert(mmsi));
                assert_eq!(vessels.heap_bytes(), before + grown);
                assert_eq!(vessels.len(), if round == 0 { mmsi as usize + 1 } else { 100 });
            }
        }
        let mut seen: Vec<u32> = vessels.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_sog_is_counted_but_enters_no_sum() {
        let mut aggregate = Aggregate::default();
        aggregate.add(1, Some(100));
        aggregate.add(2, None);
        assert_eq!((aggregate.count, aggregate.sog_sum, aggregate.sog_missing), (2, 100, 1));
    }
}
