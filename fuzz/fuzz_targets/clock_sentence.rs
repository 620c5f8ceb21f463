//! Any bytes as a clock inside a log: a satellite receiver's sentence, a base station report, a `$PGHP` sentence.

#![no_main]

use ais_replay::decode::{armour, clocks, line_time};
use ais_replay::time::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, fill], rest)) = data.split_first_chunk::<2>() else { return };
    match kind % 3 {
        0 => {
            // Sentences come here only if they are RMC or ZDA.
            if clocks::is_clock_sentence(rest) {
                check(clocks::sentence_time(rest));
            }
        }
        1 => {
            // And payloads only if they are legal and of type 4.
            let payload = [b"4", rest].concat();
            if armour::is_legal(&payload) {
                check(clocks::base_station_time(&payload, fill % 6));
            }
        }
        _ => check(line_time::read_pghp(rest).map(|(time, _)| time)),
    }
});

fn check(time: Option<Timestamp>) {
    if let Some(time) = time {
        assert_eq!(Timestamp::plausible(time.nanos()), Some(time));
    }
}
