//! Times that loggers write beside a sentence: before it, behind its checksum, or in a `$PGHP` line of their own.

use chrono::{LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone};

use crate::time::Timestamp;

/// The zone of local times in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// A place with its rules, from the IANA database.
    Named(chrono_tz::Tz),
    /// A fixed distance from UTC.
    Fixed(chrono::FixedOffset),
}

impl std::str::FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(zone) = text.parse::<chrono_tz::Tz>() {
            return Ok(Self::Named(zone));
        }
        if let Some((offset, b"")) = utc_offset(text.as_bytes()) {
            return Ok(Self::Fixed(offset));
        }
        Err(format!(
            "'{text}' is neither a zone of the IANA database such as Europe/Oslo nor a distance from UTC such as +02:00"
        ))
    }
}

impl std::fmt::Display for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(zone) => zone.fmt(f),
            Self::Fixed(offset) => offset.fmt(f),
        }
    }
}

impl Zone {
    /// The instant of a local time. An hour that occurs twice when clocks go back is taken for its first time; one that
    /// does not occur at all is no time.
    fn resolve(self, local: NaiveDateTime) -> Option<Timestamp> {
        fn earlier<T>(result: LocalResult<T>) -> Option<T> {
            result.earliest()
        }
        let offset = match self {
            Self::Named(zone) => earlier(zone.offset_from_local_datetime(&local))?.fix(),
            Self::Fixed(offset) => offset,
        };
        in_offset(local, offset)
    }
}

fn in_offset(local: NaiveDateTime, offset: chrono::FixedOffset) -> Option<Timestamp> {
    let utc = local.checked_sub_offset(offset)?.and_utc();
    utc.timestamp_nanos_opt().and_then(Timestamp::plausible)
}

/// A time found on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineTime {
    /// None.
    #[default]
    Absent,
    /// An instant.
    At(Timestamp),
    /// A local time, and no zone was given.
    NeedsZone,
}

impl LineTime {
    /// The instant, if there is one.
    #[must_use]
    pub fn instant(self) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Absent | Self::NeedsZone => None,
        }
    }

    /// The first time in a text beside a sentence, tried at the start of every token.
    #[must_use]
    pub fn find(text: &[u8], zone: Option<Zone>) -> Self {
        let mut at_token_start = true;
        for (place, byte) in text.iter().enumerate() {
            if at_token_start && byte.is_ascii_digit() {
                match read_time(&text[place..], zone) {
                    Self::Absent => {}
                    found => return found,
                }
            }
            at_token_start = matches!(byte, b' ' | b'\t' | b'[' | b'(' | b'"' | b'\'' | b',' | b';' | b'|');
        }
        Self::Absent
    }
}

/// The smallest UNIX time that is believed beside a sentence, in seconds: September 2001, before AIS was on any ship. Smaller
/// numbers there are other things, such as a nine-digit MMSI.
const LEAST_LOGGED_SECONDS: i64 = 1_000_000_000;

/// Reads a time at the start of a text.
fn read_time(text: &[u8], zone: Option<Zone>) -> LineTime {
    let digits = leading_digits(text);
    match (digits, text.get(digits)) {
        (4, Some(b'-' | b'/')) | (8, Some(b'T' | b' ')) => read_calendar_time(text, zone).unwrap_or_default(),
        (10.., after) => {
            let mut end = digits;
            if after == Some(&b'.') {
                end += 1 + leading_digits(&text[digits + 1..]);
            }
            // A number that goes on in letters is an identifier.
            if text.get(end).is_some_and(u8::is_ascii_alphanumeric) {
                return LineTime::Absent;
            }
            match Timestamp::from_unix_text(&text[..end]) {
                Some(time) if time.seconds() >= LEAST_LOGGED_SECONDS => LineTime::At(time),
                _ => LineTime::Absent,
            }
        }
        _ => LineTime::Absent,
    }
}

/// Reads `2021-11-01T13:28:05.504`, `2021/11/01 13:28:05`, `20211101T132805.504Z`, `20211101 13:28:05+01:00` and their
/// like. Without a zone of its own, a date with hyphens is UTC and any other is local.
fn read_calendar_time(text: &[u8], zone: Option<Zone>) -> Option<LineTime> {
    let separator = Some(text[4]).filter(|byte| !byte.is_ascii_digit());
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    skip_optional(&mut rest, separator)?;
    let month = number(&mut rest, 2)?;
    skip_optional(&mut rest, separator)?;
    let day = number(&mut rest, 2)?;
    let [b'T' | b't' | b' ', after @ ..] = rest else { return None };
    rest = after;
    let hour = number(&mut rest, 2)?;
    let time_separator = rest.first().copied().filter(|byte| *byte == b':');
    skip_optional(&mut rest, time_separator)?;
    let minute = number(&mut rest, 2)?;
    skip_optional(&mut rest, time_separator)?;
    let second = number(&mut rest, 2)?;
    let mut nanos = 0;
    if let [b'.' | b',', fraction @ ..] = rest
        && fraction.first().is_some_and(u8::is_ascii_digit)
    {
        let length = leading_digits(fraction);
        nanos = (0..9).fold(0, |nanos, place| {
            let digit = fraction[..length].get(place).map_or(0, |byte| byte - b'0');
            nanos * 10 + u32::from(digit)
        });
        rest = &fraction[length..];
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    // A leap second is the second before it: no vessel is counted twice for that.
    let local = date.and_hms_nano_opt(hour, minute, second.min(59), nanos).filter(|_| second <= 60)?;
    let time = match rest {
        [b'Z' | b'z', ..] => in_offset(local, chrono::Utc.fix())?,
        [b'+' | b'-', ..] if utc_offset(rest).is_some() => in_offset(local, utc_offset(rest)?.0)?,
        _ if separator == Some(b'-') => in_offset(local, chrono::Utc.fix())?,
        _ => match zone {
            Some(zone) => zone.resolve(local)?,
            None => return Some(LineTime::NeedsZone),
        },
    };
    Some(LineTime::At(time))
}

/// Reads `+02:00`, `-0330` or `+02`, and returns what follows it.
fn utc_offset(text: &[u8]) -> Option<(chrono::FixedOffset, &[u8])> {
    let (sign, mut rest) = match text {
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    let mut minutes = 0;
    let after_colon = rest.strip_prefix(b":").unwrap_or(rest);
    if leading_digits(after_colon) >= 2 {
        rest = after_colon;
        minutes = number(&mut rest, 2)?;
    }
    if hours > 15 || minutes > 59 {
        return None;
    }
    let seconds = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
    Some((chrono::FixedOffset::east_opt(sign * seconds)?, rest))
}

fn leading_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Takes exactly `length` digits off the front.
fn number(text: &mut &[u8], length: usize) -> Option<u32> {
    let (digits, rest) = text.split_at_checked(length)?;
    *text = rest;
    digits.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

/// Takes the separator off the front, if there is to be one.
fn skip_optional(text: &mut &[u8], separator: Option<u8>) -> Option<()> {
    let Some(separator) = separator else { return Some(()) };
    let (first, rest) = text.split_first()?;
    *text = rest;
    (*first == separator).then_some(())
}

/// A `$PGHP` sentence's time, and the checksum of the sentence that it belongs to.
///
/// `$PGHP,1,year,month,day,hour,minute,second,millisecond,…,checksum` is what Gatehouse receivers write before each
/// sentence, in UTC.
#[must_use]
pub fn read_pghp(body: &[u8]) -> Option<(Timestamp, u8)> {
    let rest = body.strip_prefix(b"PGHP,1,")?;
    let mut fields = rest.split(|byte| *byte == b',');
    let mut next = || -> Option<u32> {
        let field = fields.next()?;
        if field.is_empty() || field.len() > 4 {
            return None;
        }
        number(&mut &*field, field.len())
    };
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second, millisecond) = (next()?, next()?, next()?, next()?);
    let last = fields.next_back()?;
    let checksum = crate::decode::armour::hex(last.try_into().ok()?)?;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    let time = date.and_hms_milli_opt(hour, minute, second, millisecond)?.and_utc();
    Some((time.timestamp_nanos_opt().and_then(Timestamp::plausible)?, checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> LineTime {
        LineTime::find(text.as_bytes(), None)
    }

    fn at(text: &str) -> LineTime {
        LineTime::At(Timestamp::from_nanos(
            chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_nanos_opt().unwrap(),
        ))
    }

    #[test]
    fn times_before_a_sentence() {
        for (text, time) in [
            ("1452468552.938 ", "2016-01-10T23:29:12.938Z"),
            ("1550303566167726840 ", "2019-02-16T07:52:46.167726840Z"),
            ("2021-11-01T13:28:05.504 IN 20 Net: '", "2021-11-01T13:28:05.504Z"),
            ("[2024-07-19 08:45:27.141] ", "2024-07-19T08:45:27.141Z"),
            ("[20130422T154957.000Z]", "2013-04-22T15:49:57Z"),
            ("2025-06-09T02:57:08.053Z,AIS,\"UDP port:6039\",\"", "2025-06-09T02:57:08.053Z"),
            ("1471172400151;N;", "2016-08-14T11:00:00.151Z"),
            ("2023-11-14 22:14:08 ", "2023-11-14T22:14:08Z"),
            ("net4 2023-11-14T22:14:08+02:00 ", "2023-11-14T20:14:08Z"),
            ("2023/11/14 22:14:08-0330 ", "2023-11-15T01:44:08Z"),
        ] {
            assert_eq!(find(text), at(time), "{text}");
        }
    }

    #[test]
    fn times_behind_a_sentence() {
        for (text, time) in [
            (",r003669987,1152921693", "2006-07-15T00:01:33Z"),
            (",d-067,S0000,t000000.00,T00.00338535,r11CSDO1,1272844802", "2010-05-03T00:00:02Z"),
            (",1541030311,1541030400", "2018-10-31T23:58:31Z"),
            (",1328182324603", "2012-02-02T11:32:04.603Z"),
            (",219000107,2026-05-01T06:00:05Z", "2026-05-01T06:00:05Z"),
            (",1daasd4218,,1357134222", "2013-01-02T13:43:42Z"),
        ] {
            assert_eq!(find(text), at(time), "{text}");
        }
    }

    #[test]
    fn a_local_time_needs_its_zone() {
        let text = b"20260610 11:00:02.0030\t";
        assert_eq!(LineTime::find(text, None), LineTime::NeedsZone);
        let oslo = "Europe/Oslo".parse().ok();
        assert_eq!(LineTime::find(text, oslo), at("2026-06-10T09:00:02.003Z"));
        assert_eq!(LineTime::find(text, "-03:30".parse().ok()), at("2026-06-10T14:30:02.003Z"));
        // 02:30 comes twice when clocks go back, and not at all when they go forward.
        assert_eq!(LineTime::find(b"20261025 02:30:00 ", oslo), at("2026-10-25T00:30:00Z"));
        assert_eq!(LineTime::find(b"20260329 02:30:00 ", oslo), LineTime::Absent);
    }

    #[test]
    fn other_numbers_are_no_times() {
        for text in [
            "",
            "0",
            "12345678",
            "2024",
            "2024-13-01 00:00:00",
            "2024-01-01",
            "20240101",
            "x1700000040",
            "1700000040x",
            "2024-01-01 25:00:00",
            ",s12345,d-103",
            "2024-1-1 00:00:00",
            "20240101T",
            "4102444800",
            "99999999999999999999999",
        ] {
            assert_eq!(find(text), LineTime::Absent, "{text}");
        }
    }

    #[test]
    fn zones_are_read_or_refused() {
        for text in ["Europe/Oslo", "UTC", "+02:00", "-0330", "+14"] {
            assert!(text.parse::<Zone>().is_ok(), "{text}");
        }
        for text in ["", "Europe/Atlantis", "+2", "02:00", "+25:00", "+02:60", "+02:00 "] {
            assert!(text.parse::<Zone>().is_err(), "{text}");
        }
    }

    #[test]
    fn pghp() {
        let read = |text: &str| read_pghp(text.as_bytes()).map(|(time, checksum)| (LineTime::At(time), checksum));
        assert_eq!(read("PGHP,1,2013,11,12,12,0,0,11,219,,2190067,1,62"), Some((at("2013-11-12T12:00:00.011Z"), 0x62)));
        for text in [
            "PGHP,1",
            "PGHP,1,2013,11,12,12,0,0,11,219,,2190067,1,6",
            "PGHP,1,2013,13,12,12,0,0,11,219,,2190067,1,62",
            "PGHP,2,2013,11,12,12,0,0,11,219,,2190067,1,62",
            "PGHP,1,2013,11,12,12,0,0,11111,219,,2190067,1,62",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
