//! The crate `ais`: sentences decoded into messages with their fields, without TAG blocks.

use std::hint::black_box;
use std::process::ExitCode;

use ais::messages::AisMessage;
use ais::{AisFragments, AisParser};

fn main() -> ExitCode {
    let mut parser = AisParser::new();
    ais_replay_peers::time(|line| {
        let sentence = ais_replay_peers::without_tag_block(line);
        let Ok(AisFragments::Complete(sentence)) = parser.parse(sentence.as_bytes(), true) else { return false };
        matches!(
            black_box(sentence.message),
            Some(
                AisMessage::PositionReport(_)
                    | AisMessage::StandardClassBPositionReport(_)
                    | AisMessage::ExtendedClassBPositionReport(_)
            )
        )
    })
}
