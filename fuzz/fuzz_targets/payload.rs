//! Any bytes as a payload: armour and message beside a slow decoder that goes bit by bit along the tables of ITU-R M.1371-5,
//! annex 8.

#![no_main]

use ais_replay::decode::armour;
use ais_replay::decode::message::{self, Message};
use ais_replay::report::{MessageType, Position, Report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    assert_eq!(armour::checksum(payload), payload.iter().fold(0, |sum, byte| sum ^ byte));
    let bits: Option<Vec<bool>> = unarmoured(payload);
    assert_eq!(armour::is_legal(payload), bits.is_some());
    let Some(bits) = bits else { return };
    for fill in 0..6 {
        let received = &bits[..bits.len().saturating_sub(usize::from(fill))];
        for needs_second in [false, true] {
            assert_eq!(message::decode(payload, fill, needs_second), slowly_decoded(received, needs_second));
        }
    }
});

/// Six bits for each character; none where one is outside the alphabet.
fn unarmoured(payload: &[u8]) -> Option<Vec<bool>> {
    const ALPHABET: &[u8; 64] = b"0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVW`abcdefghijklmnopqrstuvw";
    let values: Option<Vec<usize>> =
        payload.iter().map(|character| ALPHABET.iter().position(|known| known == character)).collect();
    Some(values?.into_iter().flat_map(|value| (0..6).rev().map(move |bit| value >> bit & 1 == 1)).collect())
}

/// A field: first bit and width.
type Field = (usize, usize);

/// Where the tables put SOG, longitude, latitude and UTC second, and how long the message is.
fn table(kind: MessageType) -> (Field, Field, Field, Option<Field>, usize) {
    match kind {
        MessageType::ScheduledClassA | MessageType::AssignedClassA | MessageType::InterrogatedClassA => {
            ((50, 10), (61, 28), (89, 27), Some((137, 6)), 168)
        }
        MessageType::SarAircraft => ((50, 10), (61, 28), (89, 27), Some((128, 6)), 168),
        MessageType::ClassB => ((46, 10), (57, 28), (85, 27), Some((133, 6)), 168),
        MessageType::ExtendedClassB => ((46, 10), (57, 28), (85, 27), Some((133, 6)), 312),
        MessageType::LongRange => ((79, 6), (44, 18), (62, 17), None, 96),
    }
}

fn slowly_decoded(bits: &[bool], needs_second: bool) -> Message {
    let unsigned = |(start, width): Field| -> Option<i64> {
        Some(bits.get(start..start + width)?.iter().fold(0, |value, bit| value * 2 + i64::from(*bit)))
    };
    let signed = |field: Field| {
        let value = unsigned(field)?;
        Some(if value >= 1 << (field.1 - 1) { value - (1 << field.1) } else { value })
    };
    let Some(message_type) = unsigned((0, 6)) else { return Message::Empty };
    if message_type == 4 {
        // Table 51: the second ends the time, and a station without a clock sends year 0 and hour 24.
        let (year, hour, second) = (unsigned((38, 14)), unsigned((61, 5)), unsigned((72, 6)));
        let has_clock = second.is_some() && year != Some(0) && hour.is_some_and(|hour| hour < 24);
        return Message::BaseStation { has_clock };
    }
    let Some(kind) = MessageType::from_number(message_type as u8) else { return Message::Other(message_type as u8) };
    let (sog, lon, lat, second, length) = table(kind);
    let second_missing = needs_second && second.is_some_and(|second| unsigned(second).is_none());
    let (Some(mmsi), Some(sog), Some(lon), Some(lat), false) =
        (unsigned((8, 30)), unsigned(sog), signed(lon), signed(lat), second_missing)
    else {
        return Message::CutOff(kind);
    };
    let (unit, not_available, tenths) = match kind {
        MessageType::LongRange => (1_000, 63, 10),
        MessageType::SarAircraft => (1, 1_023, 10),
        _ => (1, 1_023, 1),
    };
    Message::Report {
        report: Report {
            mmsi: mmsi as u32,
            kind,
            position: Position::new((lon * unit) as i32, (lat * unit) as i32),
            sog: (sog != not_available).then_some((sog * tenths) as u16),
            utc_second: second.and_then(unsigned).filter(|second| *second < 60).map(|second| second as u8),
        },
        overlong: bits.len() > length,
    }
}
