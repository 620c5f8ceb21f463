//! Records of a stream: what one unpacks to, and the queue through which a shard's pages are read.
//!
//! A record may be gzip, and may be an aggregate of the Kinesis Producer Library
//! (<https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md>).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Chunk, Input, ReadOutcome, SourceError, content};
use crate::decode::Record;

/// How many bytes of records a look ahead keeps at most.
const LOOK_BYTES: usize = 16 << 20;

/// A record as it is read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unpacked {
    /// With its data, which holds whole lines.
    Good(Record, Vec<u8>),
    /// One that was read before.
    Duplicate,
    /// Its data, of so many bytes, cannot be unpacked.
    Bad(usize),
}

/// Unpacks a record's data: the user records of an aggregate, each by its place in it, or the record itself.
pub fn unpack(record: Record, data: Vec<u8>, push: &mut impl FnMut(Unpacked)) {
    let Some(user_records) = deaggregate(&data) else {
        return push(unpack_one(record, data));
    };
    for (place, data) in user_records.into_iter().enumerate() {
        let sub_sequence = Some(place as u64);
        push(unpack_one(Record { sub_sequence, ..record.clone() }, data));
    }
}

fn unpack_one(record: Record, data: Vec<u8>) -> Unpacked {
    let bytes = data.len();
    content::unpack_record(data).map_or(Unpacked::Bad(bytes), |data| Unpacked::Good(record, data))
}

/// First bytes of an aggregated record, before its protobuf message.
const AGGREGATE_MARK: [u8; 4] = [0xf3, 0x89, 0x9a, 0xc2];

/// Bytes of the MD5 digest at the end of an aggregated record.
const DIGEST_BYTES: usize = 16;

/// `AggregatedRecord` of the Kinesis Producer Library's aggregation format, as far as it is used.
#[derive(prost::Message)]
struct AggregatedRecord {
    #[prost(message, repeated, tag = "3")]
    records: Vec<UserRecord>,
}

#[derive(prost::Message)]
struct UserRecord {
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

/// The user records of a record aggregated by the Kinesis Producer Library; `None` where it is a plain one, as it also is
/// when its digest is wrong.
fn deaggregate(data: &[u8]) -> Option<Vec<Vec<u8>>> {
    use md5::Digest;
    use prost::Message;

    let rest = data.strip_prefix(&AGGREGATE_MARK)?;
    let (message, digest) = rest.split_at_checked(rest.len().checked_sub(DIGEST_BYTES)?)?;
    if md5::Md5::digest(message).as_slice() != digest {
        return None;
    }
    let aggregated = AggregatedRecord::decode(message).ok()?;
    Some(aggregated.records.into_iter().map(|record| record.data).collect())
}

/// Records that came together.
#[derive(Debug, Default)]
pub struct Page {
    /// The records, in their order.
    pub records: Vec<Unpacked>,
    /// Bytes that came over the wire for them.
    pub stored_bytes: u64,
}

/// Where a queue has its pages from.
pub trait Pages: Send {
    /// The next page, which may be empty; `None` is the end.
    ///
    /// # Errors
    ///
    /// Where there will be no more pages, though there should be.
    fn next_page(&mut self) -> Result<Option<Page>, SourceError>;

    /// What goes on where this one ended, and was not known of at the start.
    ///
    /// # Errors
    ///
    /// Where that cannot be found out.
    fn successors(&self) -> Result<Vec<Input>, SourceError>;

    /// Whether other inputs of the run may give the same records.
    fn may_repeat(&self) -> bool;

    /// Something odd that is known at the end, and cost no data.
    fn warning(&self) -> Option<String>;
}

/// The records of a shard, one after the other.
pub struct RecordQueue {
    pages: Box<dyn Pages>,
    waiting: VecDeque<Unpacked>,
    current: Option<(Record, Vec<u8>)>,
    at_end: bool,
    bytes: u64,
    stored_bytes: Arc<AtomicU64>,
}

impl RecordQueue {
    /// A queue of these pages.
    #[must_use]
    pub fn new(pages: Box<dyn Pages>) -> Self {
        Self { pages, waiting: VecDeque::new(), current: None, at_end: false, bytes: 0, stored_bytes: Arc::default() }
    }

    /// Counts the bytes that have come so far.
    #[must_use]
    pub fn stored_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.stored_bytes)
    }

    /// Whether other inputs of the run may give the same records.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.pages.may_repeat()
    }

    /// Whether the next record is there already.
    #[must_use]
    pub fn has_records_at_hand(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Fetches a page; false at the end.
    fn fetch(&mut self) -> Result<bool, SourceError> {
        let page = if self.at_end { None } else { self.pages.next_page()? };
        self.at_end = page.is_none();
        let Some(page) = page else { return Ok(false) };
        self.stored_bytes.fetch_add(page.stored_bytes, Ordering::Relaxed);
        self.waiting.extend(page.records);
        Ok(true)
    }

    /// The next record.
    ///
    /// # Errors
    ///
    /// Those of the pages.
    pub fn next_chunk(&mut self) -> Result<Chunk<'_>, SourceError> {
        while self.waiting.is_empty() {
            if !self.fetch()? {
                return Ok(Chunk::End);
            }
        }
        Ok(match self.waiting.pop_front() {
            None => Chunk::End,
            Some(Unpacked::Bad(bytes)) => {
                self.bytes += bytes as u64;
                Chunk::BadRecord
            }
            Some(Unpacked::Duplicate) => Chunk::DuplicateRecord,
            Some(Unpacked::Good(record, data)) => {
                self.bytes += data.len() as u64;
                let (record, data) = self.current.insert((record, data));
                Chunk::Record(record, data)
            }
        })
    }

    /// Shows records from the next one on until `look` has seen enough, or too many bytes would have to be kept. They stay
    /// in the queue. Tells whether `look` has seen all there are.
    ///
    /// # Errors
    ///
    /// Those of the pages.
    pub fn look(&mut self, mut look: impl FnMut(&Record, &[u8]) -> bool) -> Result<bool, SourceError> {
        let (mut place, mut kept) = (0, 0);
        loop {
            while let Some(unpacked) = self.waiting.get(place) {
                place += 1;
                let Unpacked::Good(record, data) = unpacked else { continue };
                kept += data.len();
                if !look(record, data) || kept > LOOK_BYTES {
                    return Ok(false);
                }
            }
            if !self.fetch()? {
                return Ok(true);
            }
        }
    }

    /// See [`Pages::successors`]; none before the end.
    ///
    /// # Errors
    ///
    /// Where they cannot be found out.
    pub fn successors(&self) -> Result<Vec<Input>, SourceError> {
        if self.at_end { self.pages.successors() } else { Ok(Vec::new()) }
    }

    /// What is known at the end.
    #[must_use]
    pub fn outcome(&self) -> ReadOutcome {
        ReadOutcome { bytes: self.bytes, warning: self.pages.warning(), ..ReadOutcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use md5::Digest;
    use prost::Message;

    use super::*;

    fn record(sequence: u32) -> Record {
        Record { arrival: None, shard: "s".into(), sequence: sequence.to_string().into(), sub_sequence: None }
    }

    /// Pages of so many records, then the end.
    struct Given(Vec<Vec<u32>>);

    impl Pages for Given {
        fn next_page(&mut self) -> Result<Option<Page>, SourceError> {
            if self.0.is_empty() {
                return Ok(None);
            }
            let good = |number: u32| Unpacked::Good(record(number), number.to_string().into_bytes());
            Ok(Some(Page { records: self.0.remove(0).into_iter().map(good).collect(), stored_bytes: 10 }))
        }
        fn successors(&self) -> Result<Vec<Input>, SourceError> {
            Ok(vec![Input::Stdin])
        }
        fn may_repeat(&self) -> bool {
            false
        }
        fn warning(&self) -> Option<String> {
            None
        }
    }

    fn rest(queue: &mut RecordQueue) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            match queue.next_chunk().unwrap() {
                Chunk::Record(_, data) => found.push(String::from_utf8(data.to_vec()).unwrap()),
                Chunk::End => return found,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_was_looked_at_is_read_all_the_same() {
        for enough in 0..6 {
            let mut queue = RecordQueue::new(Box::new(Given(vec![vec![], vec![1, 2], vec![], vec![3], vec![]])));
            assert!(queue.successors().unwrap().is_empty());
            let mut seen = 0;
            let all = queue.look(|_, _| {
                seen += 1;
                seen < enough
            });
            assert_eq!(all.unwrap(), enough > 3);
            assert_eq!(rest(&mut queue), ["1", "2", "3"]);
            assert_eq!((queue.outcome().bytes, queue.successors().unwrap().len()), (3, 1));
            assert_eq!(queue.stored_bytes().load(Ordering::Relaxed), 50);
        }
    }

    #[test]
    fn a_page_is_at_hand_once_it_has_come() {
        let mut queue = RecordQueue::new(Box::new(Given(vec![vec![1, 2], vec![3]])));
        assert!(!queue.has_records_at_hand());
        queue.next_chunk().unwrap();
        assert!(queue.has_records_at_hand());
        queue.next_chunk().unwrap();
        assert!(!queue.has_records_at_hand());
    }

    #[test]
    fn aggregated_records_come_apart_unless_their_digest_is_wrong() {
        let aggregated = AggregatedRecord {
            records: vec![UserRecord { data: b"one".to_vec() }, UserRecord { data: b"two".to_vec() }],
        };
        let unpacked = |data: &[u8]| {
            let mut found = Vec::new();
            unpack(record(7), data.to_vec(), &mut |unpacked| found.push(unpacked));
            found
        };
        let message = aggregated.encode_to_vec();
        let mut data = [&AGGREGATE_MARK[..], &message, md5::Md5::digest(&message).as_slice()].concat();
        let parts = [(0, b"one"), (1, b"two")];
        let good =
            parts.map(|(place, data)| Unpacked::Good(Record { sub_sequence: Some(place), ..record(7) }, data.to_vec()));
        assert_eq!(unpacked(&data), good);
        *data.last_mut().unwrap() ^= 1;
        assert_eq!(unpacked(&data), [Unpacked::Good(record(7), data)]);
        assert_eq!(deaggregate(&AGGREGATE_MARK), None);
    }
}
