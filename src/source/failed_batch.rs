//! Failure-destination documents of a Lambda event source mapping: which batch of a shard a function has failed on.
//!
//! Their `KinesisBatchInfo` names the shard and the first and last sequence number of the batch, both of them in it. The form
//! that an S3 destination gets also carries the event itself, as text in `payload`.
//! Shape: AWS Lambda Developer Guide, "Retaining discarded batch records for a Kinesis data stream".

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::Content;
use super::{Input, SourceError, file};

/// A failed batch.
#[derive(Clone, Debug)]
pub struct FailedBatch {
    /// The document that names it, for people.
    pub name: String,
    /// The stream.
    pub stream_arn: String,
    /// The shard.
    pub shard: String,
    /// Sequence number of the first record, up to 56 digits.
    pub first: String,
    /// Sequence number of the last record.
    pub last: String,
    /// How many records it has, where the document says so.
    pub records: Option<u64>,
    /// The event, where the document carries it.
    pub enclosed: Option<EnclosedBatch>,
}

/// The records of a batch, as the Lambda event that the function got.
#[derive(Clone, Debug)]
pub struct EnclosedBatch {
    /// The document that carries them, for people.
    pub name: String,
    /// The event: `{"Records":[{"kinesis":{…}}]}`.
    pub event: Arc<[u8]>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "KinesisBatchInfo")]
    batch: Option<BatchInfo>,
    payload: Option<Box<RawValue>>,
    /// The document inside a notification of SNS.
    #[serde(rename = "Message")]
    message: Option<String>,
    /// The document inside a message of SQS.
    #[serde(rename = "Body", alias = "body")]
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchInfo {
    shard_id: String,
    start_sequence_number: String,
    end_sequence_number: String,
    batch_size: Option<u64>,
    stream_arn: String,
}

/// Reads the documents that files hold, or all files below folders; one file may hold several.
///
/// # Errors
///
/// Where one cannot be read, or holds anything else.
pub fn read(paths: &[PathBuf]) -> Result<Vec<FailedBatch>, SourceError> {
    let mut batches = Vec::new();
    for input in file::find(paths)?.inputs {
        let name = input.name();
        let mut content = Content::open(name.clone(), input.open_stored()?, None)?;
        let text = content.read_to_end()?;
        batches.extend(parse(&name, &text)?);
    }
    Ok(batches)
}

/// The batches that the documents of one text name.
///
/// # Errors
///
/// Where it holds anything else, or nothing.
pub fn parse(name: &str, text: &[u8]) -> Result<Vec<FailedBatch>, SourceError> {
    let fail = |error: String| SourceError::FailedBatch { name: name.to_owned(), error };
    let documents = serde_json::Deserializer::from_slice(text).into_iter::<Document>();
    let documents: Vec<Document> = documents.collect::<Result<_, _>>().map_err(|error| fail(error.to_string()))?;
    if documents.is_empty() {
        return Err(fail("it is empty".to_owned()));
    }
    let several = documents.len() > 1;
    let named = |place: usize| if several { format!("{name} (document {})", place + 1) } else { name.to_owned() };
    let batches = documents.into_iter().enumerate().map(|(place, document)| batch(&named(place), document));
    batches.collect::<Result<_, String>>().map_err(fail)
}

fn batch(name: &str, document: Document) -> Result<FailedBatch, String> {
    if let Some(inner) = document.message.or(document.body).filter(|_| document.batch.is_none()) {
        let inner: Document = serde_json::from_str(&inner).map_err(|error| error.to_string())?;
        // One envelope is what a queue puts around a document; more is none of its work.
        return batch(name, Document { message: None, body: None, ..inner });
    }
    let info = document.batch.ok_or("it has no KinesisBatchInfo")?;
    for number in [&info.start_sequence_number, &info.end_sequence_number] {
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("'{number}' is no sequence number"));
        }
    }
    let records = info.batch_size;
    let event = match document.payload.as_deref().map(RawValue::get) {
        None | Some("null") => None,
        Some(text) if text.starts_with('"') => {
            Some(serde_json::from_str::<String>(text).map_err(|error| error.to_string())?)
        }
        Some(object) => Some(object.to_owned()),
    };
    Ok(FailedBatch {
        name: name.to_owned(),
        stream_arn: stream_of(&info.stream_arn).to_owned(),
        shard: info.shard_id,
        first: info.start_sequence_number,
        last: info.end_sequence_number,
        records,
        enclosed: event
            .filter(|event| is_whole(event, records))
            .map(|event| EnclosedBatch { name: name.to_owned(), event: event.into_bytes().into() }),
    })
}

/// The ARN of the stream, of which that of a registered consumer is a longer one.
#[must_use]
pub fn stream_of(arn: &str) -> &str {
    arn.split_once("/consumer/").map_or(arn, |(stream, _)| stream)
}

/// Whether an event holds all records of its batch. One that does not is no help: the stream is asked instead.
fn is_whole(event: &str, records: Option<u64>) -> bool {
    #[derive(Deserialize)]
    struct Counted {
        #[serde(rename = "Records")]
        records: Vec<serde::de::IgnoredAny>,
    }
    let counted = serde_json::from_str::<Counted>(event).map_or(0, |event| event.records.len() as u64);
    counted > 0 && records.is_none_or(|records| records == counted)
}

impl FailedBatch {
    /// The input of its records, where the document carries them.
    #[must_use]
    pub fn enclosed_input(&self) -> Option<Input> {
        self.enclosed.clone().map(Input::Enclosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"requestContext":{"condition":"RetryAttemptsExhausted","approximateInvokeCount":3},
        "version":"1.0","timestamp":"2026-05-01T06:10:00.000Z","KinesisBatchInfo":{"shardId":"shardId-000000000001",
        "startSequenceNumber":"49601189658422359378836298521827638475320189012309704722",
        "endSequenceNumber":"49601189658422359378836298522902373528957594348623495186",
        "approximateArrivalOfFirstRecord":"2026-05-01T06:00:00.000Z","approximateArrivalOfLastRecord":"2026-05-01T06:00:09.000Z",
        "batchSize":500,"streamArn":"arn:aws:kinesis:eu-north-1:000000000000:stream/ais"}}"#;

    fn error(text: &str) -> String {
        parse("d.json", text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_document_names_a_batch_by_both_its_ends() {
        let batches = parse("d.json", DOCUMENT.as_bytes()).unwrap();
        let [batch] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!(batch.shard, "shardId-000000000001");
        assert!(batch.first.ends_with("704722") && batch.last.ends_with("495186"));
        assert_eq!((batch.records, batch.enclosed.is_none(), batch.name.as_str()), (Some(500), true, "d.json"));
    }

    #[test]
    fn several_documents_and_those_inside_queue_messages() {
        let quoted = serde_json::to_string(DOCUMENT).unwrap();
        let text = format!("{DOCUMENT}\n{{\"Message\":{quoted}}} {{\"Body\":{quoted}}}");
        let names: Vec<String> = parse("d", text.as_bytes()).unwrap().into_iter().map(|batch| batch.name).collect();
        assert_eq!(names, ["d (document 1)", "d (document 2)", "d (document 3)"]);
    }

    #[test]
    fn an_event_is_read_from_a_payload_of_text_or_of_json() {
        let event = r#"{"Records":[{"kinesis":{"approximateArrivalTimestamp":1777615265.123}}]}"#;
        for payload in [event.to_owned(), serde_json::to_string(event).unwrap()] {
            let text = DOCUMENT.replacen('{', &format!("{{\"payload\":{payload},"), 1);
            let whole = text.replace("\"batchSize\":500", "\"batchSize\":1");
            let batches = parse("d", whole.as_bytes()).unwrap();
            assert_eq!(&*batches[0].enclosed.as_ref().unwrap().event, event.as_bytes());
            // Of 500 records that is not the batch.
            assert!(parse("d", text.as_bytes()).unwrap()[0].enclosed.is_none());
        }
    }

    #[test]
    fn anything_else_is_an_error_that_names_the_file() {
        for text in ["", "{}", "[1]", "{\"KinesisBatchInfo\":{}}", "x", "{\"Body\":\"{}\"}"] {
            assert!(error(text).starts_with("d.json is no failure-destination document: "), "{}", error(text));
        }
        assert!(
            error(&DOCUMENT.replace("49601189658422359378836298522902373528957594348623495186", "4e55"))
                .contains("4e55")
        );
    }
}
