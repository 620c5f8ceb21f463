//! Any bytes as an input, compressed or not: how much is asked for at once changes nothing of what is read, and every chunk
//! of lines ends where a line does.

#![no_main]

use std::io::Cursor;

use ais_replay::source::{Chunk, ReadOptions, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[chunk_bytes], input)) = data.split_first_chunk::<1>() else { return };
    let at_once = read(input, 256 * 1024);
    assert_eq!(read(input, 1 + usize::from(chunk_bytes)), at_once);
});

/// The text, its digest, and whether it ended well. None where it cannot be opened.
fn read(input: &[u8], chunk_bytes: usize) -> Option<(Vec<u8>, Option<String>, bool)> {
    let options = ReadOptions { chunk_bytes, digest: true };
    let mut reader = Reader::new("input".to_owned(), Box::new(Cursor::new(input.to_vec())), options).ok()?;
    // Events are the business of another target.
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
            Ok(Chunk::End) => return Some((text, reader.outcome().digest, true)),
            Ok(other) => panic!("{other:?}"),
            // How much of a broken input comes before the error depends on the chunks, and is not to be used.
            Err(_) => return Some((Vec::new(), None, false)),
        }
    }
}
