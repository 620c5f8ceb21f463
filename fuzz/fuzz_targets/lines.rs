//! Any bytes as lines of a file: nothing panics, every sentence has one fate, and how the lines are cut into chunks changes
//! neither a report nor a count.
//!
//! Two bytes choose the options, eight the cuts; the rest is the file.

#![no_main]

use ais_replay::decode::event_time::{Clock, EventTimeMode};
use ais_replay::decode::line_time::Zone;
use ais_replay::decode::tally::Tally;
use ais_replay::decode::{Accepted, Decoder, Options};
use ais_replay::report::{Position, Report};
use ais_replay::time::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[how, clock, ref cuts @ ..], file)) = data.split_first_chunk::<10>() else { return };
    let options = options(how, clock);
    let (whole, tally) = decode(&[file], &options);
    assert_eq!(tally.items, tally.accepted + tally.parts + tally.all_rejected() + tally.all_ignored());
    assert_eq!(tally.accepted, whole.len() as u64);
    assert!(tally.readable() <= tally.items);
    let (in_chunks, tally_in_chunks) = decode(&chunks(file, u64::from_le_bytes(*cuts)), &options);
    assert_eq!(whole, in_chunks);
    assert_eq!(tally, tally_in_chunks);
});

fn options(how: u8, clock: u8) -> Options {
    Options {
        own_ship: how & 1 != 0,
        require_tag_checksum: how & 2 != 0,
        zone: [None, Some("Europe/Oslo"), Some("-03:30"), Some("UTC")][usize::from(how >> 2 & 3)]
            .and_then(|zone| zone.parse::<Zone>().ok()),
        event_time: match how >> 4 & 3 {
            0 | 1 => EventTimeMode::Received,
            2 => EventTimeMode::UtcSecond,
            _ => EventTimeMode::Arrival,
        },
        clock: [None, Some(Clock::BaseStation), Some(Clock::Sentences), Some(Clock::Previous)][usize::from(clock & 3)],
        start: (clock & 4 != 0).then(|| Timestamp::from_nanos(1_700_000_040_500_000_000)),
        ..Options::default()
    }
}

/// All that a report leaves the decoder with.
type Kept = (Report, Position, Timestamp, u64, Vec<String>);

fn decode(chunks: &[&[u8]], options: &Options) -> (Vec<Kept>, Tally) {
    let mut kept = Vec::new();
    let mut decoder = Decoder::new(options.clone());
    for chunk in chunks {
        decoder.lines(chunk, |accepted: Accepted<'_>| {
            assert_eq!(accepted.report.position, Some(accepted.position));
            let sentences = accepted.raw.to_strings();
            assert!(!sentences.is_empty() && sentences.iter().all(|sentence| sentence.contains('!')));
            kept.push((*accepted.report, accepted.position, accepted.time, accepted.line, sentences));
        });
    }
    (kept, decoder.finish())
}

/// The file in pieces of whole lines. Each line end is a cut if the next of the cuts' bits says so.
fn chunks(file: &[u8], cuts: u64) -> Vec<&[u8]> {
    let (mut chunks, mut start, mut lines) = (Vec::new(), 0, 0);
    for (place, byte) in file.iter().enumerate() {
        let is_end = *byte == b'\n' || *byte == b'\r' && file.get(place + 1) != Some(&b'\n');
        if !is_end {
            continue;
        }
        if cuts >> (lines % 64) & 1 != 0 {
            chunks.push(&file[start..=place]);
            start = place + 1;
        }
        lines += 1;
    }
    chunks.push(&file[start..]);
    chunks
}
