//! A whole message's payload to the report in it: the field tables of ITU-R M.1371-5, annex 8, section 3.

use crate::decode::armour::{self, Bits};
use crate::report::{MessageType, Position, Report};

/// SOG "not available" in the ten-bit fields.
const SOG_NOT_AVAILABLE: u32 = 1023;

/// SOG "not available" in type 27's six bits.
const LONG_RANGE_SOG_NOT_AVAILABLE: u32 = 63;

/// Where one type keeps the fields that we use: first bit and length. Speeds and places differ, the MMSI does not.
struct Layout {
    sog: (usize, usize),
    lon: (usize, usize),
    lat: (usize, usize),
    utc_second: Option<usize>,
    /// Bits of a whole message of this type.
    whole: usize,
}

/// Tables 48 (types 1–3), 56 (9), 67 (18), 70 (19) and 84 (27).
const CLASS_A: Layout = Layout { sog: (50, 10), lon: (61, 28), lat: (89, 27), utc_second: Some(137), whole: 168 };
const SAR_AIRCRAFT: Layout = Layout { sog: (50, 10), lon: (61, 28), lat: (89, 27), utc_second: Some(128), whole: 168 };
const CLASS_B: Layout = Layout { sog: (46, 10), lon: (57, 28), lat: (85, 27), utc_second: Some(133), whole: 168 };
const EXTENDED_B: Layout = Layout { sog: (46, 10), lon: (57, 28), lat: (85, 27), utc_second: Some(133), whole: 312 };
const LONG_RANGE: Layout = Layout { sog: (79, 6), lon: (44, 18), lat: (62, 17), utc_second: None, whole: 96 };

/// What a payload turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A position report.
    Report {
        /// Its content.
        report: Report,
        /// Whether the payload was longer than the type.
        overlong: bool,
    },
    /// A position report whose payload ends before the last bit of a field that we use.
    CutOff(MessageType),
    /// A base station report (type 4): not a vessel, but it may carry UTC.
    BaseStation {
        /// Whether it does: a station without a clock sends year 0 and hour 24.
        has_clock: bool,
    },
    /// Another type, 0 to 63 as sent.
    Other(u8),
    /// No bit at all.
    Empty,
}

/// Decodes a legal payload of `6 × characters − fill` bits. `needs_second` says whether the UTC second is among the
/// fields that are used, so that a message cut off before it is told.
#[inline(always)]
#[must_use]
pub fn decode(payload: &[u8], fill: u8, needs_second: bool) -> Message {
    let received = (6 * payload.len()).saturating_sub(usize::from(fill));
    let (Some(first), 6..) = (payload.first(), received) else { return Message::Empty };
    let bits = Bits::of(payload);
    // Each arm reads at places known to the compiler, and the arms without a report read none of the bits.
    match armour::six_bits(*first) {
        1 => report(&bits, MessageType::ScheduledClassA, &CLASS_A, received, needs_second),
        2 => report(&bits, MessageType::AssignedClassA, &CLASS_A, received, needs_second),
        3 => report(&bits, MessageType::InterrogatedClassA, &CLASS_A, received, needs_second),
        18 => report(&bits, MessageType::ClassB, &CLASS_B, received, needs_second),
        19 => report(&bits, MessageType::ExtendedClassB, &EXTENDED_B, received, needs_second),
        9 => report(&bits, MessageType::SarAircraft, &SAR_AIRCRAFT, received, needs_second),
        27 => report(&bits, MessageType::LongRange, &LONG_RANGE, received, needs_second),
        4 => Message::BaseStation {
            has_clock: received >= 78 && bits.unsigned(38, 14) != 0 && bits.unsigned(61, 5) < 24,
        },
        other => Message::Other(other),
    }
}

#[inline(always)]
fn report(bits: &Bits, kind: MessageType, layout: &Layout, received: usize, needs_second: bool) -> Message {
    let end = |(start, length): (usize, usize)| start + length;
    let mut needed = end(layout.lat).max(end(layout.sog));
    if needs_second && let Some(start) = layout.utc_second {
        needed = start + 6;
    }
    if received < needed {
        return Message::CutOff(kind);
    }
    let (mut lon, mut lat) = (bits.signed(layout.lon.0, layout.lon.1), bits.signed(layout.lat.0, layout.lat.1));
    let sog = bits.unsigned(layout.sog.0, layout.sog.1);
    let (mut not_available, mut tenths) = (SOG_NOT_AVAILABLE, 1);
    match kind {
        MessageType::LongRange => {
            // 1/10 minute, whole knots.
            (lon, lat) = (lon * 1_000, lat * 1_000);
            (not_available, tenths) = (LONG_RANGE_SOG_NOT_AVAILABLE, 10);
        }
        MessageType::SarAircraft => tenths = 10,
        _ => {}
    }
    let second = match layout.utc_second {
        Some(start) if received >= start + 6 => bits.unsigned(start, 6),
        _ => 63,
    };
    Message::Report {
        report: Report {
            mmsi: bits.unsigned(8, 30),
            kind,
            position: Position::new(lon, lat),
            sog: (sog != not_available).then_some((sog * tenths) as u16),
            utc_second: (second < 60).then_some(second as u8),
        },
        overlong: received > layout.whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(payload: &[u8], fill: u8) -> Report {
        match decode(payload, fill, false) {
            Message::Report { report, .. } => report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_class_a_report() {
        let report = reported(b"13tfD@@P1T0nNE0Q12H3Q?vt0000", 0);
        assert_eq!(report.mmsi, 265_000_001);
        assert_eq!(report.position, Position::new(7_140_000, 34_620_000));
        assert_eq!(report.sog, Some(100));
        assert_eq!(report.utc_second, Some(30));
    }

    #[test]
    fn a_long_range_report_has_coarser_units() {
        let report = reported(b"KktfDGh>q6SEB6Ot", 0);
        assert_eq!(report.position, Position::new(-18_150_000, 27_300_000));
        assert_eq!(report.sog, Some(120));
        assert_eq!(report.utc_second, None);
        assert_eq!(reported(b"KktfDH0>q6SEBOwt", 0).sog, None);
        assert_eq!(reported(b"KktfDH@>q6SEBOOt", 0).sog, Some(620));
    }

    #[test]
    fn a_cut_payload_is_never_filled_up() {
        let payload = b"13tfD@@P1T0nNE0Q12H3Q?vt0000";
        for length in 0..payload.len() {
            for fill in 0..6 {
                let bits = (6 * length).saturating_sub(usize::from(fill));
                for needs_second in [false, true] {
                    let enough = bits >= if needs_second { 143 } else { 116 };
                    let message = decode(&payload[..length], fill, needs_second);
                    assert_eq!(matches!(message, Message::Report { .. }), enough, "{bits} bits");
                }
            }
        }
    }

    #[test]
    fn longer_than_its_type_is_said() {
        let overlong = |payload: &[u8]| matches!(decode(payload, 0, false), Message::Report { overlong: true, .. });
        assert!(!overlong(b"13tfDT@P1J0nNE0Q12H3Q?vt0000"));
        assert!(overlong(b"13tfDT@P1J0nNE0Q12H3Q?vt00000"));
        assert!(overlong(b"KktfDHP>q6SEB6wt000000000000"));
    }
}
