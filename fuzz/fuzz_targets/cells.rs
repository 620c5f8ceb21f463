//! Any text as a cell: what is read prints alike, and cells order and nest as their texts do.

#![no_main]

use ais_replay::cell::{Cell, Precision};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|texts: (&str, &str)| {
    let (first, second) = texts;
    let (Some(one), Some(other)) = (read(first), read(second)) else { return };
    assert_eq!(one.cmp(&other), first.cmp(second));
    assert_eq!(one.starts_with(other), first.starts_with(second));
    assert_eq!(other.starts_with(one), second.starts_with(first));
});

fn read(text: &str) -> Option<Cell> {
    let is_cell = (1..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase() && !b"ailo".contains(&byte));
    let cell: Option<Cell> = text.parse().ok();
    assert_eq!(cell.is_some(), is_cell, "{text:?}");
    let cell = cell?;
    assert_eq!(cell.to_string(), text);
    assert_eq!(Some(cell.precision()), Precision::new(text.len() as u8));
    Some(cell)
}
