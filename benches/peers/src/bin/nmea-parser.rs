//! The crate `nmea-parser`: sentences decoded into messages with their fields, without TAG blocks.

use std::hint::black_box;
use std::process::ExitCode;

use nmea_parser::{NmeaParser, ParsedMessage};

fn main() -> ExitCode {
    let mut parser = NmeaParser::new();
    ais_replay_peers::time(|line| {
        let message = parser.parse_sentence(ais_replay_peers::without_tag_block(line));
        matches!(black_box(message), Ok(ParsedMessage::VesselDynamicData(_)))
    })
}
