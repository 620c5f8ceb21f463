//! Any bytes as an input, compressed or not: neither how much is asked for at once nor threads that unpack ahead change
//! anything of what is read, and every chunk of lines ends where a line does.

#![no_main]

use std::io::Cursor;

use ais_replay::decode::scan::MAX_LINE_BYTES;
use ais_replay::source::blocks::Unpackers;
use ais_replay::source::{Chunk, ReadOptions, Reader};
use libfuzzer_sys::fuzz_target;

/// At which sizes of the text digests of its beginning are made.
const SIZES: [u64; 4] = [1, 7, 64, 1_000];

fuzz_target!(|data: &[u8]| {
    let Some((&[chunk_bytes], input)) = data.split_first_chunk::<1>() else { return };
    let Some(at_once) = Text::read(input, 256 * 1024, None) else { return };
    // A few bytes can unpack to megabytes, which would only be slow to read in small pieces.
    if at_once.bytes > 4 * MAX_LINE_BYTES as u64 {
        return;
    }
    let chunk_bytes = 1 + usize::from(chunk_bytes);
    let in_pieces = Text::read(input, chunk_bytes, None).expect("it was opened before");
    let mut texts = vec![in_pieces];
    // Threads take milliseconds to start, so they are for what they may be of use to.
    if input.starts_with(&[0x1f, 0x8b]) || input.get(1..4) == Some(&[0xb5, 0x2f, 0xfd]) {
        let unpackers = Some(Unpackers::starting_after(1, 0));
        texts.push(Text::read(input, chunk_bytes, unpackers).expect("it was opened before"));
    }
    for text in texts {
        assert_eq!(at_once.digest, text.digest);
        // How much of a broken input comes before the error depends on the pieces, and is not to be used.
        assert!(at_once.digest.is_none() || shortened(&at_once.text) == shortened(&text.text));
    }
});

/// Lines that are too long to be read may or may not lose what is behind their beginning.
fn shortened(text: &[u8]) -> Vec<&[u8]> {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.map(|line| &line[..line.len().min(MAX_LINE_BYTES + 1)]).collect()
}

/// What an input gave, with its digests if it did not break off.
struct Text {
    text: Vec<u8>,
    /// Bytes that were unpacked, those among them that an endless line lost.
    bytes: u64,
    digest: Option<(String, Vec<(u64, String)>)>,
}

impl Text {
    /// None where it cannot be opened, or is an event, which another target is for.
    fn read(input: &[u8], chunk_bytes: usize, unpackers: Option<Unpackers>) -> Option<Self> {
        let options = ReadOptions { chunk_bytes, digest: Some(SIZES.into()), unpackers };
        let mut reader = Reader::new("input".to_owned(), Box::new(Cursor::new(input.to_vec())), options).ok()?;
        if reader.gives_records() {
            return None;
        }
        let mut text = Vec::new();
        let mut last_ended = true;
        loop {
            match reader.next_chunk() {
                Ok(Chunk::Lines(lines)) => {
                    assert!(last_ended, "a chunk that is not the last ends inside a line");
                    assert!(!lines.is_empty());
                    last_ended = lines.ends_with(b"\n") || lines.ends_with(b"\r");
                    text.extend_from_slice(lines);
                }
                Ok(Chunk::End) => break,
                Ok(other) => panic!("{other:?}"),
                Err(_) => return Some(Self { text, bytes: reader.outcome().bytes, digest: None }),
            }
        }
        let outcome = reader.outcome();
        let digest = outcome.digest.map(|digest| (digest, outcome.beginnings));
        Some(Self { text, bytes: outcome.bytes, digest })
    }
}
