//! The crate `nmea-kit`: sentences decoded into messages with their fields; TAG blocks are cut off and not read.

use std::hint::black_box;
use std::process::ExitCode;

use nmea_kit::ais::{AisMessage, AisParser};

fn main() -> ExitCode {
    let mut parser = AisParser::new();
    ais_replay_peers::time(|line| {
        let message = nmea_kit::parse_frame(line).ok().and_then(|frame| parser.decode(&frame));
        matches!(black_box(message), Some(AisMessage::Position(_)))
    })
}
