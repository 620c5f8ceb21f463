//! Any text as an argument: each is read or refused with a message, and what prints reads back.

#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use ais_replay::cell::Cell;
use ais_replay::decode::line_time::Zone;
use ais_replay::engine::clock::Lateness;
use ais_replay::filter::BoundingBox;
use ais_replay::reconcile::AggregateFile;
use ais_replay::row::Tenths;
use ais_replay::sink::Target;
use ais_replay::time::{Span, TimeArg, Timestamp};
use ais_replay::verify::{Reference, TableRef};
use ais_replay::window::WindowSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(span) = prints_as_it_reads::<Span>(text) {
        check_windows(span);
    }
    prints_as_it_reads::<Lateness>(text);
    prints_as_it_reads::<Zone>(text);
    prints_as_it_reads::<Tenths>(text);
    prints_as_it_reads::<Target>(text);
    prints_as_it_reads::<TableRef>(text);
    prints_as_it_reads::<Cell>(text);
    read::<BoundingBox>(text);
    read::<AggregateFile>(text);
    read::<Reference>(text);
    if let Some(time) = read::<TimeArg>(text) {
        check_time(time);
    }
});

/// Reads a text. A refusal says something.
fn read<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn prints_as_it_reads<T: FromStr<Err: Display> + Display + PartialEq>(text: &str) -> Option<T> {
    let value: T = read(text)?;
    let printed = value.to_string();
    assert!(read(&printed).is_some_and(|again: T| again == value), "{text:?} prints as {printed}");
    Some(value)
}

fn check_time(time: TimeArg) {
    for now in [i64::MIN, 0, 1_700_000_040_000_000_000, i64::MAX] {
        let _ = time.resolve(Timestamp::from_nanos(now)).to_string();
    }
    if let TimeArg::At(at) = time {
        assert_eq!(at.to_string().parse(), Ok(time));
    }
}

/// Windows of any length that is read cover the instants that they should.
fn check_windows(span: Span) {
    let Ok(window) = WindowSpec::new(span, None) else {
        assert_eq!(span.seconds(), 0);
        return;
    };
    for seconds in [-1, 0, 1_700_000_040] {
        let start = window.last_covering(seconds);
        assert!(start <= seconds && seconds < start + window.length());
    }
}
