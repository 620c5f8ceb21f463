//! Instants and spans as integers, and the forms in which people write them.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};

/// Nanoseconds in a second.
pub const NANOS: i64 = 1_000_000_000;

/// 2100-01-01T00:00:00Z. A time at or after it is taken for noise, never for an event.
const END_OF_TIME_SECONDS: i64 = 4_102_444_800;

/// An instant: nanoseconds since 1970-01-01T00:00:00Z, which is as fine as any log writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From whole seconds since the epoch; `None` where that is beyond what an `i64` of nanoseconds holds (year 2262).
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        seconds.checked_mul(NANOS).map(Self)
    }

    /// From nanoseconds since the epoch.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From nanoseconds since the epoch, if a report can have happened then: after 1970 and before 2100.
    #[must_use]
    pub fn plausible(nanos: i64) -> Option<Self> {
        (nanos > 0 && nanos < END_OF_TIME_SECONDS * NANOS).then_some(Self(nanos))
    }

    /// Nanoseconds since the epoch.
    #[inline]
    #[must_use]
    pub fn nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, floored also below zero.
    #[inline]
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(NANOS)
    }

    /// Reads the ten digits of a UNIX time in seconds, which is what nearly every feed writes.
    #[inline(always)]
    #[must_use]
    pub fn from_ten_digits(text: &[u8; 10]) -> Option<Self> {
        let [eight @ .., tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = text else { return None };
        let seconds = eight_digits(*eight)? * 100 + u64::from(tens - b'0') * 10 + u64::from(ones - b'0');
        Self::from_seconds(seconds.cast_signed()).and_then(|time| Self::plausible(time.0))
    }

    /// Reads a UNIX time whose unit shows in its size: below 10^11 seconds, 10^14 milliseconds, 10^17 microseconds, else
    /// nanoseconds, with decimals. Zero, negatives, text and anything from 2100 on is no time.
    #[must_use]
    pub fn from_unix_text(text: &[u8]) -> Option<Self> {
        match text.try_into() {
            // Ten digits are seconds, plausible or not.
            Ok(ten) if text.iter().all(u8::is_ascii_digit) => Self::from_ten_digits(ten),
            _ => Self::from_unix_text_of_any_unit(text),
        }
    }

    fn from_unix_text_of_any_unit(text: &[u8]) -> Option<Self> {
        let whole_length = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
        let (whole, fraction) = (&text[..whole_length], text.get(whole_length + 1..));
        if whole.is_empty() || whole.len() > 19 || fraction.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let mut value: u64 = 0;
        let (eights, rest) = whole.as_chunks::<8>();
        for eight in eights {
            value = value * 100_000_000 + eight_digits(*eight)?;
        }
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        let nanos_per_unit: u64 = match value {
            0..100_000_000_000 => 1_000_000_000,
            100_000_000_000..100_000_000_000_000 => 1_000_000,
            100_000_000_000_000..100_000_000_000_000_000 => 1_000,
            100_000_000_000_000_000.. => 1,
        };
        let mut nanos = value.checked_mul(nanos_per_unit)?;
        let mut place = nanos_per_unit;
        for byte in fraction.unwrap_or_default() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            place /= 10;
            nanos = nanos.checked_add(u64::from(digit) * place)?;
        }
        i64::try_from(nanos).ok().and_then(Self::plausible)
    }

    /// Seconds since the epoch as an exact decimal: `1700000046.123`, `1700000040`.
    #[must_use]
    pub fn decimal_seconds(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (seconds, nanos) = (self.0.unsigned_abs() / NANOS as u64, self.0.unsigned_abs() % NANOS as u64);
        let text = format!("{sign}{seconds}.{nanos:09}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// The value of eight digits, added up in pairs, fours and eights within one word. Every line of a tagged feed has a time,
/// so this is among the few places where that pays.
#[inline(always)]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(text);
    // A digit's upper half is 3, and still is when 6 is added.
    let upper = EACH * 0xf0;
    if word & upper != EACH * 0x30 || (word + EACH * 6) & upper != EACH * 0x30 {
        return None;
    }
    let ones = word - EACH * 0x30;
    // The first digit is in the lowest byte: each lower neighbour counts ten times as much.
    let pairs = (ones & 0x000f_000f_000f_000f) * 10 + (ones >> 8 & 0x000f_000f_000f_000f);
    let fours = (pairs & 0x0000_00ff_0000_00ff) * 100 + (pairs >> 16 & 0x0000_00ff_0000_00ff);
    Some((fours & 0xffff) * 10_000 + (fours >> 32))
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with as many decimals as are needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&DateTime::from_timestamp_nanos(self.0).to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

/// What this machine's clock says. It is never an event time: it resolves ages, and it warns.
#[must_use]
pub fn machine_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Timestamp::from_nanos(i64::try_from(since_epoch).unwrap_or(i64::MAX))
}

/// A window start as RFC 3339, or its seconds where no calendar reaches that far.
#[must_use]
pub fn seconds_to_rfc3339(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0)
        .map_or_else(|| seconds.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// A span of whole seconds, written `90`, `90s`, `15m`, `2h` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    seconds: i64,
}

impl Span {
    /// A span of that many seconds.
    #[must_use]
    pub const fn from_seconds(seconds: u32) -> Self {
        Self { seconds: seconds as i64 }
    }

    /// Its length in seconds, 0 to some 3,170 years.
    #[inline]
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.seconds
    }
}

/// The longest span that is read: far beyond any use, and small enough that adding it to a time overflows nothing.
const LONGEST_SPAN_SECONDS: i64 = 100_000_000_000;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a span of time such as 90, 90s, 15m, 2h or 1d");
        let (digits, unit) = match text.as_bytes().last() {
            Some(b's') => (&text[..text.len() - 1], 1),
            Some(b'm') => (&text[..text.len() - 1], 60),
            Some(b'h') => (&text[..text.len() - 1], 3_600),
            Some(b'd') => (&text[..text.len() - 1], 86_400),
            _ => (text, 1),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let seconds = digits.parse::<i64>().ok().and_then(|count| count.checked_mul(unit)).ok_or_else(invalid)?;
        if seconds > LONGEST_SPAN_SECONDS {
            return Err(format!("'{text}' is longer than any span this tool can add to a time"));
        }
        Ok(Self { seconds })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.seconds {
            0 => (0, "s"),
            seconds if seconds % 86_400 == 0 => (seconds / 86_400, "d"),
            seconds if seconds % 3_600 == 0 => (seconds / 3_600, "h"),
            seconds if seconds % 60 == 0 && seconds > 60 => (seconds / 60, "m"),
            seconds => (seconds, "s"),
        };
        write!(f, "{count}{unit}")
    }
}

/// A point in time as the command line takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArg {
    /// RFC 3339 or `@epoch`.
    At(Timestamp),
    /// An age such as `2h`: that long before the start of the run.
    Ago(Span),
}

impl TimeArg {
    /// The instant meant, for a run that starts at `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => Timestamp(now.0.saturating_sub(span.seconds.saturating_mul(NANOS))),
        }
    }
}

impl FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "'{text}' is not a time: RFC 3339 such as 2026-05-01T06:00:00Z, @ and seconds since 1970 such as \
                 @1777615200, or an age such as 2h"
            )
        };
        if let Some(epoch) = text.strip_prefix('@') {
            let (sign, digits) = epoch.strip_prefix('-').map_or((1, epoch), |digits| (-1, digits));
            if digits.bytes().all(|byte| byte.is_ascii_digit())
                && let Ok(count) = digits.parse::<i64>()
                // The bound: thirteen digits would silently be milliseconds taken for seconds.
                && let Some(time) = (count < 100_000_000_000).then(|| Timestamp::from_seconds(sign * count)).flatten()
            {
                return Ok(Self::At(time));
            }
            return Timestamp::from_unix_text(epoch.as_bytes()).map(Self::At).ok_or_else(invalid);
        }
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return time.timestamp_nanos_opt().map(|nanos| Self::At(Timestamp(nanos))).ok_or_else(invalid);
        }
        text.parse::<Span>().map(Self::Ago).map_err(|_| invalid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(text: &str) -> Option<i64> {
        Timestamp::from_unix_text(text.as_bytes()).map(Timestamp::nanos)
    }

    #[test]
    fn the_unit_of_a_unix_time_shows_in_its_size() {
        assert_eq!(unix("1700000045"), Some(1_700_000_045 * NANOS));
        assert_eq!(unix("1700000046123"), Some(1_700_000_046_123_000_000));
        assert_eq!(unix("1700000046123456"), Some(1_700_000_046_123_456_000));
        assert_eq!(unix("1550303566167726840"), Some(1_550_303_566_167_726_840));
        assert_eq!(unix("1700000047.5"), Some(1_700_000_047_500_000_000));
        assert_eq!(unix("1700000048.123456"), Some(1_700_000_048_123_456_000));
        assert_eq!(unix("1700000048.1234567891234"), Some(1_700_000_048_123_456_789));
        assert_eq!(unix("1"), Some(NANOS));
    }

    #[test]
    fn eight_digits_at_once_are_what_they_are_one_by_one() {
        for number in (0..100_000_000).step_by(98_765) {
            let text: [u8; 8] = format!("{number:08}").into_bytes().try_into().unwrap();
            assert_eq!(eight_digits(text), Some(number));
            for place in 0..8 {
                for byte in [b'/', b':', b' ', b'a', 0x70, 0xb0, 0xff, 0] {
                    let mut text = text;
                    text[place] = byte;
                    assert_eq!(eight_digits(text), None);
                }
            }
        }
    }

    #[test]
    fn what_is_no_unix_time_is_no_time() {
        for text in [
            "",
            "0",
            "0.0",
            "-5",
            "x",
            "1daasd4218",
            "1.",
            ".5",
            "1.x",
            " 1",
            "4102444800",
            "99999999999",
            "99999999999999999999",
            "9999999999999999999",
            "1e9",
            "+5",
        ] {
            assert_eq!(unix(text), None, "{text:?}");
        }
        for text in ["9999999999", "4102444800", "0000000000", "170000004x", "x700000040", "1.00000000"] {
            let any = Timestamp::from_unix_text_of_any_unit(text.as_bytes());
            assert_eq!(unix(text), any.map(Timestamp::nanos), "{text}");
        }
        assert_eq!(unix("4102444799.999999999"), Some(4_102_444_800 * NANOS - 1));
    }

    #[test]
    fn spans_read_and_print() {
        for (text, seconds, printed) in [
            ("90", 90, "90s"),
            ("90s", 90, "90s"),
            ("15m", 900, "15m"),
            ("2h", 7200, "2h"),
            ("1d", 86400, "1d"),
            ("60", 60, "60s"),
            ("0", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.seconds(), span.to_string().as_str()), (seconds, printed));
        }
        for text in ["", "s", "-1", "1.5h", "1w", "1 h", "99999999999999999999", "99999999999d", "٣"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_the_command_line() {
        let at = |text: &str| text.parse::<TimeArg>().map(|time| time.resolve(Timestamp(7_200 * NANOS)).nanos());
        assert_eq!(at("2023-11-14T22:14:00Z"), Ok(1_700_000_040 * NANOS));
        assert_eq!(at("2023-11-14T23:14:00.5+01:00"), Ok(1_700_000_040 * NANOS + 500_000_000));
        assert_eq!(at("@1700000040"), Ok(1_700_000_040 * NANOS));
        assert_eq!(at("@0"), Ok(0));
        assert_eq!(at("@1700000040000"), Ok(1_700_000_040 * NANOS));
        assert_eq!(at("2h"), Ok(0));
        for text in ["", "@", "@-", "yesterday", "2023-11-14", "2023-11-14T22:14:00", "@x"] {
            assert!(text.parse::<TimeArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_prints_exactly() {
        assert_eq!(Timestamp(1_700_000_046_123_000_000).decimal_seconds(), "1700000046.123");
        assert_eq!(Timestamp(1_700_000_040 * NANOS).decimal_seconds(), "1700000040");
        assert_eq!(Timestamp(-1_500_000_000).decimal_seconds(), "-1.5");
        assert_eq!(Timestamp(1_700_000_040 * NANOS).to_string(), "2023-11-14T22:14:00Z");
        assert_eq!(Timestamp(-1).seconds(), -1);
    }
}
