//! Any text beside a sentence: a time that is found is plausible, a zone matters to local times alone, and a time that was
//! written there is found.

#![no_main]

use ais_replay::decode::line_time::{LineTime, Zone};
use ais_replay::time::Timestamp;
use libfuzzer_sys::fuzz_target;

const ZONES: [&str; 4] = ["Europe/Oslo", "UTC", "-03:30", "Pacific/Apia"];

fuzz_target!(|data: &[u8]| {
    let without_zone = LineTime::find(data, None);
    check_plausible(without_zone);
    for zone in ZONES {
        let zone: Zone = zone.parse().expect("a zone of the database");
        let found = LineTime::find(data, Some(zone));
        check_plausible(found);
        match without_zone {
            LineTime::NeedsZone => assert_ne!(found, LineTime::NeedsZone),
            other => assert_eq!(found, other),
        }
    }
    if let Some((nanos, before)) = data.split_first_chunk::<8>() {
        check_written(i64::from_le_bytes(*nanos), before);
    }
});

fn check_plausible(found: LineTime) {
    if let Some(time) = found.instant() {
        assert_eq!(Timestamp::plausible(time.nanos()), Some(time));
    }
}

fn check_written(nanos: i64, before: &[u8]) {
    // Smaller numbers beside a sentence count other things than seconds.
    let Some(time) = Timestamp::plausible(nanos).filter(|time| time.seconds() >= 1_000_000_000) else { return };
    for written in [time.to_string(), time.decimal_seconds()] {
        for text in [format!("[{written}] "), format!(",r003669945,{written}"), format!("{written} ")] {
            assert_eq!(LineTime::find(text.as_bytes(), None), LineTime::At(time), "{text}");
        }
        // Behind a text without any digit there is nothing else to find.
        if !before.iter().any(u8::is_ascii_digit) {
            let text = [before, b" ", written.as_bytes()].concat();
            assert_eq!(LineTime::find(&text, None), LineTime::At(time));
        }
    }
}
