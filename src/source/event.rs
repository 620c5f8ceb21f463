//! Lambda events of a Kinesis stream, as an event source mapping delivers them: `{"Records":[{"kinesis":{…}}]}`.
//!
//! Records may be gzip, and may be aggregated by the Kinesis Producer Library. One file may hold several events.
//! Shape: AWS Lambda Developer Guide, "Using AWS Lambda with Amazon Kinesis".

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::Content;
use super::failed_batch;
use super::records::{self, Unpacked};
use super::{Chunk, SourceError};
use crate::decode::Record;
use crate::decode::line_time::LineTime;
use crate::time::Timestamp;

/// Whether a content begins like an event.
#[must_use]
pub fn is_event(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    text.starts_with(b"{") && memchr::memmem::find(text, b"\"Records\"").is_some()
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Records")]
    records: Vec<EventRecord>,
}

#[derive(Deserialize)]
struct EventRecord {
    kinesis: KinesisRecord,
    #[serde(rename = "eventID", default)]
    event_id: String,
    #[serde(rename = "eventSourceARN", default)]
    event_source_arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KinesisRecord {
    sequence_number: String,
    data: String,
    /// Kept as written, so that no float comes between.
    approximate_arrival_timestamp: Option<Box<RawValue>>,
}

/// The records of a content, one after the other.
pub struct EventRecords {
    content: Content,
    records: VecDeque<Unpacked>,
    current: Option<(Record, Vec<u8>)>,
}

impl EventRecords {
    /// Reads all events of a content.
    ///
    /// # Errors
    ///
    /// Where the content cannot be read, or is not what it began like.
    pub fn read(mut content: Content) -> Result<Self, SourceError> {
        let text = content.read_to_end()?;
        let mut records = VecDeque::new();
        for event in serde_json::Deserializer::from_slice(&text).into_iter::<Event>() {
            let event = event
                .map_err(|error| SourceError::Event { name: content.name().to_owned(), error: error.to_string() })?;
            for record in event.records {
                unpack(record, &mut records);
            }
        }
        Ok(Self { content, records, current: None })
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The next record.
    pub fn next_chunk(&mut self) -> Chunk<'_> {
        match self.records.pop_front() {
            None => Chunk::End,
            Some(Unpacked::Bad(_)) => Chunk::BadRecord,
            Some(Unpacked::Duplicate) => Chunk::DuplicateRecord,
            Some(Unpacked::Good(record, data)) => {
                let (record, data) = self.current.insert((record, data));
                Chunk::Record(record, data)
            }
        }
    }
}

fn unpack(event: EventRecord, records: &mut VecDeque<Unpacked>) {
    let shard = event.event_id.split_once(':').map_or("", |(shard, _)| shard);
    // Two streams may have shards of the same name.
    let shard: Arc<str> = match event.event_source_arn.as_str() {
        "" => shard.into(),
        // To a registered consumer the mapping gives the consumer's ARN.
        stream => format!("{}/{shard}", failed_batch::stream_of(stream)).into(),
    };
    let record = Record {
        arrival: event.kinesis.approximate_arrival_timestamp.and_then(|time| arrival(time.get())),
        shard,
        sequence: event.kinesis.sequence_number.into(),
        sub_sequence: None,
    };
    let Ok(data) = base64::engine::general_purpose::STANDARD.decode(event.kinesis.data) else {
        return records.push_back(Unpacked::Bad(0));
    };
    records::unpack(record, data, &mut |unpacked| records.push_back(unpacked));
}

/// An arrival time as an event writes it: seconds with decimals, or a text.
fn arrival(json: &str) -> Option<Timestamp> {
    let text = json.trim_matches('"').as_bytes();
    Timestamp::from_unix_text(text).or_else(|| LineTime::find(text, None).instant())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(json: &str) -> Result<Vec<String>, SourceError> {
        let content = Content::open("x".to_owned(), std::io::Cursor::new(json.to_owned()), None)?;
        let mut events = EventRecords::read(content)?;
        let mut found = Vec::new();
        loop {
            match events.next_chunk() {
                Chunk::Record(record, data) => found.push(format!(
                    "{} {:?} {:?} {}",
                    record.sequence,
                    record.sub_sequence,
                    record.arrival.map(Timestamp::decimal_seconds),
                    String::from_utf8_lossy(data)
                )),
                Chunk::BadRecord => found.push("bad".to_owned()),
                Chunk::End => return Ok(found),
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(data: &str) -> String {
        format!(
            r#"{{"window":{{"start":"x"}},"state":{{}},"isFinalInvokeForWindow":false,"Records":[{{"kinesis":{{"sequenceNumber":"7",
            "data":"{data}","approximateArrivalTimestamp":1700000045.25}},"eventID":"shardId-000000000006:7"}}]}}"#
        )
    }

    fn base64(data: &[u8]) -> String {
        base64::engine::general_purpose::STANDARD.encode(data)
    }

    #[test]
    fn plain_gzip_and_broken_records() {
        assert!(is_event(event("").as_bytes()));
        assert_eq!(records(&event(&base64(b"line"))).unwrap(), ["7 None Some(\"1700000045.25\") line"]);
        assert_eq!(records(&event("%%%")).unwrap(), ["bad"]);
        assert_eq!(records(&event(&base64(&[0x1f, 0x8b, 8]))).unwrap(), ["bad"]);
        assert_eq!(records("{\"Records\":[]}\n").unwrap(), [""; 0]);
        let two = format!("{}\n{}", event(&base64(b"a")), event(&base64(b"b")));
        assert_eq!(records(&two).unwrap().len(), 2);
    }

    #[test]
    fn what_only_looks_like_an_event_is_an_error() {
        for json in [r#"{"Records":[{"s3":{}}]}"#, r#"{"Records":[{"#, r#"{"Records":3}"#] {
            assert!(is_event(json.as_bytes()));
            assert!(matches!(records(json), Err(SourceError::Event { .. })), "{json}");
        }
        assert!(!is_event(b"!AIVDM,1"));
        assert!(!is_event(br#"{"other":1}"#));
    }
}
