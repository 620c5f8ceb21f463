//! One finished row, and its exact decimals.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::aggregate::Aggregate;
use crate::cell::Cell;

/// A speed, or a sum of speeds, in tenths of a knot; printed as a decimal of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenths(pub u64);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.0 / 10, self.0 % 10))
    }
}

/// The most reports that a row is believed to hold: far beyond any window, and small enough that a million such rows add up
/// without overflow.
pub const MOST_REPORTS: u64 = 1_000_000_000_000;

/// The largest sum that a row is believed to hold: every report at the largest SOG.
pub const LARGEST_SUM: Tenths = Tenths(MOST_REPORTS * 1_022);

/// A text that is no sum of tenths of a knot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a number of knots with at most one decimal place, within what a window can hold")]
pub struct InvalidTenths(String);

impl FromStr for Tenths {
    type Err = InvalidTenths;

    /// Reads `112`, `112.8` and `112.80`; anything that is not exactly tenths is refused rather than rounded.
    fn from_str(text: &str) -> Result<Self, InvalidTenths> {
        let invalid = || InvalidTenths(text.to_owned());
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let significant = fraction.trim_end_matches('0');
        if !digits(whole) || !digits(fraction) || significant.len() > 1 {
            return Err(invalid());
        }
        let tenth: u64 = significant.parse().unwrap_or(0);
        let tenths = whole.parse::<u64>().ok().and_then(|knots| knots.checked_mul(10)?.checked_add(tenth));
        tenths.map(Self).filter(|sum| *sum <= LARGEST_SUM).ok_or_else(invalid)
    }
}

/// Puts the tenth that is meant in place of a sum that went through a float on its way, such as 28.299999999999997, and
/// tells whether it was one: the five digits behind the tenth are all 0 or all 9, so it is off by a millionth at most.
/// For those who only read; what is written is exact.
pub fn restore_tenth(sum: &mut String) -> bool {
    let Some((whole, fraction)) = sum.split_once('.') else { return false };
    let is_tenth = |text: &str| text.parse::<Tenths>().is_ok();
    if is_tenth(sum) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) || fraction.len() < 6 {
        return false;
    }
    let (tenth, rest) = fraction.split_at(1);
    let Ok(Tenths(below)) = format!("{whole}.{tenth}").parse() else { return false };
    let meant = match &rest[..5] {
        "00000" => below,
        "99999" => below + 1,
        _ => return false,
    };
    *sum = Tenths(meant).to_string();
    true
}

impl Serialize for Tenths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tenths {
    /// From a decimal string, or from a JSON number whose shortest text is one.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Decimal {
            Text(String),
            Number(serde_json::Number),
        }
        let text = match Decimal::deserialize(deserializer)? {
            Decimal::Text(text) => text,
            Decimal::Number(number) => number.to_string(),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One (cell, window) as a sink gets it. Rows order by window, then cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The geohash cell.
    pub cell: Cell,
    /// Start of the window, epoch seconds.
    pub window_start: i64,
    /// Reports.
    pub count: u64,
    /// Distinct MMSIs; `None` where the union is not known.
    pub vessels: Option<u64>,
    /// Sum of SOG.
    pub sog_sum: Tenths,
    /// Reports without SOG.
    pub sog_missing: u64,
}

impl Row {
    /// The row of an aggregate.
    #[must_use]
    pub fn new(cell: Cell, window_start: i64, aggregate: &Aggregate) -> Self {
        Self {
            cell,
            window_start,
            count: aggregate.count,
            vessels: Some(aggregate.vessels.len() as u64),
            sog_sum: Tenths(aggregate.sog_sum),
            sog_missing: aggregate.sog_missing,
        }
    }

    /// What rows are ordered by.
    #[must_use]
    pub fn key(&self) -> (i64, Cell) {
        (self.window_start, self.cell)
    }

    /// Average SOG of the reports that have one; `None` where none has.
    #[must_use]
    pub fn average(&self) -> Option<Average> {
        Average::new(self.sog_sum, self.count.saturating_sub(self.sog_missing))
    }
}

/// An average speed, kept as the fraction that it is until it is printed.
#[derive(Clone, Copy, Debug)]
pub struct Average {
    sum: Tenths,
    divisor: NonZeroU64,
}

impl Average {
    /// `sum / reports`, or `None` where there are no reports.
    #[must_use]
    pub fn new(sum: Tenths, reports: u64) -> Option<Self> {
        NonZeroU64::new(reports).map(|divisor| Self { sum, divisor })
    }
}

impl Average {
    /// The average in hundredths of a knot, half away from zero.
    #[must_use]
    pub fn hundredths(self) -> u128 {
        self.scaled(100)
    }

    /// `scale` times the average, half away from zero.
    fn scaled(self, scale: u128) -> u128 {
        let (sum, divisor) = (self.sum.0, 10 * u128::from(self.divisor.get()));
        let doubled = 2 * u128::from(sum) * scale + divisor;
        // What a window holds fits 64 bits, and division is much cheaper there.
        match (u64::try_from(doubled), u64::try_from(2 * divisor)) {
            (Ok(doubled), Ok(divisor)) => u128::from(doubled / divisor),
            _ => doubled / (2 * divisor),
        }
    }
}

impl fmt::Display for Average {
    /// Knots with as many decimals as the format's precision asks for (2 without one), half away from zero, by integers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        let scale = 10_u128.pow(u32::try_from(places).unwrap_or(u32::MAX).min(18));
        let rounded = self.scaled(scale);
        write!(f, "{}.{:0places$}", rounded / scale, rounded % scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_round_half_away_from_zero_without_a_float() {
        let print = |sum, n| Average::new(Tenths(sum), n).map(|average| format!("{average:.1} {average}"));
        assert_eq!(print(1128, 12).as_deref(), Some("9.4 9.40"));
        assert_eq!(print(1, 2).as_deref(), Some("0.1 0.05"));
        assert_eq!(print(1, 20).as_deref(), Some("0.0 0.01"));
        assert_eq!(print(1, 21).as_deref(), Some("0.0 0.00"));
        assert_eq!(print(1005, 10).as_deref(), Some("10.1 10.05"));
        assert_eq!(print(u64::MAX, 1).as_deref(), Some("1844674407370955161.5 1844674407370955161.50"));
        assert_eq!(print(5, 0), None);
    }

    #[test]
    fn tenths_read_only_what_they_can_hold() {
        for (text, tenths) in [("0", 0), ("22.0", 220), ("112.8", 1128), ("112.80", 1128), ("7", 70)] {
            assert_eq!(text.parse(), Ok(Tenths(tenths)));
        }
        for text in ["", ".", ".5", "5.", "-1", "1.25", "1e3", "112.80000000000001", "1,5", "99999999999999999999"] {
            assert!(text.parse::<Tenths>().is_err(), "{text}");
        }
    }
    #[test]
    fn only_a_sum_that_is_all_but_a_tenth_is_restored() {
        for (held, tenth) in [
            ("28.299999999999997", "28.3"),
            ("112.80000000000001", "112.8"),
            ("9.9999999999999982", "10.0"),
            ("0.099999", "0.1"),
            ("0.100000000001", "0.1"),
        ] {
            let mut sum = held.to_owned();
            assert!(restore_tenth(&mut sum));
            assert_eq!(sum, tenth, "{held}");
        }
        for held in [
            "28.3",
            "28.30000000",
            "7",
            "1.25",
            "28.39999",
            "0.100010",
            "0.19998",
            "-0.299999999",
            "x.299999999",
            "1e3",
            "",
            ".",
        ] {
            let mut sum = held.to_owned();
            assert!(!restore_tenth(&mut sum), "{held}");
            assert_eq!(sum, held);
        }
    }
}
