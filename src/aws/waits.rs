//! What is told of calls that keep failing. Who sees nothing for minutes takes a run for dead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Watcher;
use crate::time::{Timestamp, machine_clock, seconds_to_rfc3339};

/// How long nothing must have come through before it is told.
const LONG: Duration = Duration::from_secs(10);

/// How far apart two sentences about a service are, at least.
const APART: Duration = Duration::from_secs(30);

/// The waits for one service, whichever calls they are of.
#[derive(Clone, Debug)]
pub struct Waits {
    service: &'static str,
    watcher: Watcher,
    last_told: Arc<Mutex<Option<Instant>>>,
}

/// A stretch of time in which nothing comes through. It is told once.
#[derive(Debug, Default)]
pub struct Spell {
    told: AtomicBool,
}

impl Spell {
    /// Something came through: what follows is another one.
    pub fn over(&self) {
        self.told.store(false, Ordering::Relaxed);
    }
}

impl Waits {
    /// The waits for a service, of which this one is told.
    #[must_use]
    pub fn new(service: &'static str, watcher: Watcher) -> Self {
        Self { service, watcher, last_told: Arc::default() }
    }

    /// Takes note of a call that has failed and will be made again. Nothing has come through for as long as `waited`,
    /// and that is borne for as long as `patience`.
    pub fn note(&self, spell: &Spell, waited: Duration, patience: Duration, why: impl FnOnce() -> String) {
        let left = patience.saturating_sub(waited);
        // What is about to be told as an error is not told as a wait before.
        if waited < LONG || left < LONG || spell.told.swap(true, Ordering::Relaxed) {
            return;
        }
        {
            let mut last_told = self.last_told.lock().unwrap_or_else(PoisonError::into_inner);
            // Calls that fail side by side have one cause, and it has been told.
            if last_told.is_some_and(|told| told.elapsed() < APART) {
                return;
            }
            *last_told = Some(Instant::now());
        }
        let until = time_of_day(left);
        self.watcher.tell(&format!("waiting for {}: {}; retrying until {until}", self.service, why()));
    }
}

/// The time of day when so much time has passed, in UTC.
fn time_of_day(from_now: Duration) -> String {
    let from_now = i64::try_from(from_now.as_nanos()).unwrap_or(i64::MAX);
    let then = Timestamp::from_nanos(machine_clock().nanos().saturating_add(from_now));
    let instant = seconds_to_rfc3339(then.seconds());
    instant.split_once('T').map_or(instant.clone(), |(_, time)| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_is_told_once_and_two_of_them_not_too_close_to_each_other() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let told_too = Arc::clone(&told);
        let waits = Waits::new("Kinesis", Watcher::new(move |text| told_too.lock().unwrap().push(text.to_owned())));
        let (one, other) = (Spell::default(), Spell::default());
        let note = |spell, seconds| {
            waits.note(spell, Duration::from_secs(seconds), Duration::from_secs(300), || format!("{seconds} s"));
        };
        note(&one, 9);
        note(&one, 295);
        assert!(told.lock().unwrap().is_empty());
        note(&one, 11);
        note(&one, 12);
        note(&other, 13);
        one.over();
        note(&one, 14);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("waiting for Kinesis: 11 s; retrying until ") && told[0].ends_with('Z'),
            "{told:?}"
        );
    }
}
