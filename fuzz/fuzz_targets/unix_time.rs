//! Any bytes as a UNIX time: read as exactly as the digits say, and printed so that it reads back.

#![no_main]

use ais_replay::time::{NANOS, TimeArg, Timestamp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let time = Timestamp::from_unix_text(text);
    assert_eq!(time.map(Timestamp::nanos), plainly_read(text));
    if let Some(time) = time {
        assert_eq!(Timestamp::from_unix_text(time.decimal_seconds().as_bytes()), Some(time));
        assert_eq!(time.to_string().parse(), Ok(TimeArg::At(time)));
    }
});

/// Nanoseconds: as many digits behind the point as the unit has, the rest dropped.
fn plainly_read(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // As many digits as fit: more can be no time, whatever their unit.
    if !all_digits(whole) || !all_digits(fraction) || whole.len() > 19 {
        return None;
    }
    let number: i128 = whole.parse().ok()?;
    let unit_digits = match number {
        0..100_000_000_000 => 9,
        100_000_000_000..100_000_000_000_000 => 6,
        100_000_000_000_000..100_000_000_000_000_000 => 3,
        _ => 0,
    };
    let kept: String = fraction.chars().chain("000000000".chars()).take(unit_digits).collect();
    let nanos = number * 10_i128.pow(unit_digits as u32) + kept.parse::<i128>().unwrap_or(0);
    let year_2100 = 4_102_444_800 * i128::from(NANOS);
    i64::try_from(nanos).ok().filter(|nanos| *nanos > 0 && i128::from(*nanos) < year_2100)
}
