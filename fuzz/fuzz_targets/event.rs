//! Any text as a Lambda event of a Kinesis stream, down to the reports in its records.
//!
//! The text is put into an event in three places: as the whole of it, as a record's fields, and as a record's data.

#![no_main]

use std::io::Cursor;
use std::sync::Arc;

use ais_replay::decode::{Decoder, Options};
use ais_replay::source::{Chunk, ReadOptions, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[place], text)) = data.split_first_chunk::<1>() else { return };
    let event = match place % 3 {
        0 => [br#"{"Records":"#, text].concat(),
        1 => [br#"{"Records":[{"kinesis":{"#, text, br#"},"eventID":"shardId-0:1"}]}"#].concat(),
        _ => event_of(text),
    };
    let options = ReadOptions { chunk_bytes: 4096, digest: Some(Arc::default()), unpackers: None };
    // What begins like an event and is none is refused.
    let Ok(mut reader) = Reader::new("event".to_owned(), Box::new(Cursor::new(event)), options) else { return };
    assert!(reader.gives_records());
    let mut decoder = Decoder::new(Options::default());
    let mut records = 0;
    loop {
        match reader.next_chunk().expect("an event is read when it is opened") {
            Chunk::Record(record, data) => {
                decoder.record(data, record, |accepted| assert_eq!(accepted.line, records + 1))
            }
            Chunk::BadRecord => decoder.bad_record(),
            other @ (Chunk::Lines(_) | Chunk::DuplicateRecord) => panic!("{other:?} from an event"),
            Chunk::End => break,
        }
        records += 1;
    }
    let tally = decoder.finish();
    assert_eq!(tally.lines, records);
    assert_eq!(tally.items, tally.accepted + tally.parts + tally.all_rejected() + tally.all_ignored());
});

/// An event of one record with this data.
fn event_of(data: &[u8]) -> Vec<u8> {
    let event = format!(
        r#"{{"Records":[{{"kinesis":{{"sequenceNumber":"7","data":"{}","approximateArrivalTimestamp":1700000045.25}},"eventID":"shardId-000000000006:7"}}]}}"#,
        base64(data)
    );
    event.into_bytes()
}

fn base64(data: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in data.chunks(3) {
        let bits = (0..3).fold(0, |bits, place| bits << 8 | usize::from(three.get(place).copied().unwrap_or(0)));
        for place in 0..4 {
            let character = ALPHABET[bits >> (18 - 6 * place) & 63];
            text.push(if place <= three.len() { char::from(character) } else { '=' });
        }
    }
    text
}
