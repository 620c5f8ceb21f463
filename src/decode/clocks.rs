//! Clocks inside a log: base station reports (type 4) and the RMC and ZDA sentences of a satellite receiver.
//!
//! Read by `nmea-parser`, which panics on some input that is not ASCII and accepts a missing checksum: the callers hand over
//! only sentences whose checksum was found right.

use std::borrow::Cow;

use nmea_parser::{NmeaParser, ParsedMessage};

use crate::decode::armour;
use crate::time::Timestamp;

fn parse(body: &str, start: char) -> Option<ParsedMessage> {
    if !body.is_ascii() {
        return None;
    }
    NmeaParser::new().parse_sentence(&format!("{start}{body}*{:02X}", armour::checksum(body.as_bytes()))).ok()
}

/// Whether a sentence without its first character is an RMC or ZDA sentence of some talker.
#[must_use]
pub fn is_clock_sentence(body: &[u8]) -> bool {
    matches!(body, [_, _, b'R', b'M', b'C', b',', ..] | [_, _, b'Z', b'D', b'A', b',', ..])
}

/// UTC of an RMC sentence with a valid fix, or of a ZDA sentence.
#[must_use]
pub fn sentence_time(body: &[u8]) -> Option<Timestamp> {
    let body = without_local_zone(std::str::from_utf8(body).ok()?);
    let time = match parse(&body, '$')? {
        ParsedMessage::Rmc(rmc) if rmc.status_active == Some(true) => rmc.timestamp,
        ParsedMessage::Zda(zda) => zda.timestamp_utc,
        _ => None,
    }?;
    time.timestamp_nanos_opt().and_then(Timestamp::plausible)
}

/// A ZDA sentence without the local zone behind its UTC: we do not use it, and `nmea-parser` multiplies whatever number
/// stands there.
fn without_local_zone(body: &str) -> Cow<'_, str> {
    match body.match_indices(',').nth(4) {
        Some((end, _)) if body.get(2..5) == Some("ZDA") => Cow::Owned(format!("{},,", &body[..end])),
        _ => Cow::Borrowed(body),
    }
}

/// Bits of a base station report up to the end of its UTC second (ITU-R M.1371-5, table 51).
const BASE_STATION_TIME_BITS: usize = 78;

/// UTC of a base station report, given as legal payload. A station without a clock sends year 0 or hour 24; both, and
/// dates that no calendar has, give `None`.
#[must_use]
pub fn base_station_time(payload: &[u8], fill: u8) -> Option<Timestamp> {
    if (6 * payload.len()).saturating_sub(usize::from(fill)) < BASE_STATION_TIME_BITS {
        return None;
    }
    let payload = std::str::from_utf8(payload).ok()?;
    let ParsedMessage::BaseStationReport(report) = parse(&format!("AIVDM,1,1,,A,{payload},{fill}"), '!')? else {
        return None;
    };
    report.timestamp?.timestamp_nanos_opt().and_then(Timestamp::plausible)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(time: Option<Timestamp>) -> Option<String> {
        time.map(|time| time.to_string())
    }

    #[test]
    fn clock_sentences() {
        let rmc = b"GPRMC,194913.00,A,5241.99751,N,00517.56393,E,0.012,,010809,,,A";
        assert!(is_clock_sentence(rmc));
        assert_eq!(printed(sentence_time(rmc)).as_deref(), Some("2009-08-01T19:49:13Z"));
        let zda = b"GPZDA,072914.00,31,05,2018,-03,00";
        assert_eq!(printed(sentence_time(zda)).as_deref(), Some("2018-05-31T07:29:14Z"));
        let zone = b"GPZDA,061000,01,05,2027,600000,00";
        assert_eq!(printed(sentence_time(zone)).as_deref(), Some("2027-05-01T06:10:00Z"), "whatever the zone says");
        for body in [
            &b"GPRMC,194913.00,V,,,,,,,010809,,,N"[..],
            b"GPRMC,,V,,,,,,,,,,N",
            b"GPZDA,,,,,,",
            b"GPZDA",
            b"GPZDA,\xff,1",
        ] {
            assert_eq!(sentence_time(body), None);
        }
    }

    #[test]
    fn base_stations() {
        assert_eq!(printed(base_station_time(b"402R3WiuMj0k\xff", 0)), None);
        assert_eq!(
            printed(base_station_time(b"403OtUAv6gEcaoNubBCQ2wO028HW", 0)).as_deref(),
            Some("2017-10-30T21:43:41Z")
        );
        // Month 15, year 4161; and a station without a clock.
        assert_eq!(base_station_time(b"402R36T47oF>N0nNE0Q12H700000", 0), None);
        assert_eq!(base_station_time(b"402R36@000Htt<tSF0l4Q@100`Pq", 0), None);
        for length in 0..13 {
            assert_eq!(base_station_time(&b"403OtUAv6gEcaoNubBCQ2wO028HW"[..length], 0), None);
        }
    }
}
