//! How fast a run writes: as fast as the table takes it, and hardly faster.
//!
//! The pace is the time between two calls. While more than a tenth of the calls are throttled it grows, while none is it
//! shrinks, so that it settles where the table takes all but a few. Measured over short stretches, it follows a table that
//! is given more capacity within seconds. Calls wait in line, and only the first of them for its time: a turn is never given
//! out ahead, or a change of pace would reach the table only after all those turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Over how long calls are counted, at least, before the pace is changed.
const STRETCH: Duration = Duration::from_millis(100);

/// How many calls are counted, at least, unless that would take [`LONGEST_STRETCH`].
const STRETCH_CALLS: u32 = 20;

/// Over how long calls are counted at most.
const LONGEST_STRETCH: Duration = Duration::from_secs(2);

/// The longest time between two calls.
const SLOWEST: Duration = Duration::from_secs(1);

/// How much of what a late timer has lost is made up for.
const SLACK: Duration = Duration::from_millis(20);

/// The pace of one run.
pub struct Pace {
    line: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// The pace that the user has set as the fastest.
    fastest: Duration,
    /// Time between two calls; zero until the first throttled one.
    gap: Duration,
    next: Instant,
    stretch_began: Instant,
    succeeded: u32,
    throttled: u32,
    any_success: bool,
    last_success: Instant,
}

impl Pace {
    /// A pace of at most `write_rate` calls a second.
    #[must_use]
    pub fn new(write_rate: Option<u32>) -> Self {
        Self { line: tokio::sync::Mutex::new(()), state: Mutex::new(State::new(write_rate, Instant::now())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst a pace that is a little off.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this call's turn.
    pub async fn wait(&self) {
        let _first_in_line = self.line.lock().await;
        loop {
            let not_before = self.state().turn(Instant::now());
            match not_before {
                None => return,
                Some(not_before) => sleep_until(not_before).await,
            }
        }
    }

    /// Takes note of a call that succeeded.
    pub fn succeeded(&self) {
        self.state().answered(Instant::now(), true);
    }

    /// Takes note of a call that was throttled.
    pub fn throttled(&self) {
        self.state().answered(Instant::now(), false);
    }

    /// Whether any call has succeeded.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.state().any_success
    }

    /// How long ago the last success was.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.state().last_success.elapsed()
    }
}

impl State {
    fn new(write_rate: Option<u32>, now: Instant) -> Self {
        let fastest = write_rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.max(1));
        Self {
            fastest,
            gap: fastest,
            next: now,
            stretch_began: now,
            succeeded: 0,
            throttled: 0,
            any_success: false,
            last_success: now,
        }
    }

    /// Takes a turn, or says when there may be one.
    fn turn(&mut self, now: Instant) -> Option<Instant> {
        if self.gap.is_zero() {
            return None;
        }
        if self.next > now {
            return Some(self.next);
        }
        self.next = self.next.max(now - SLACK) + self.gap;
        None
    }

    fn answered(&mut self, now: Instant, success: bool) {
        if success {
            self.succeeded += 1;
            self.any_success = true;
            self.last_success = now;
        } else {
            self.throttled += 1;
        }
        let lasted = now - self.stretch_began;
        let enough = lasted >= STRETCH && self.succeeded + self.throttled >= STRETCH_CALLS;
        if enough || lasted >= LONGEST_STRETCH {
            self.adapt(lasted);
            (self.succeeded, self.throttled) = (0, 0);
            self.stretch_began = now;
        }
    }

    fn adapt(&mut self, lasted: Duration) {
        if self.throttled * 10 > self.succeeded + self.throttled {
            self.gap = if self.gap.is_zero() {
                // The first time: what got through is what the table takes.
                lasted / self.succeeded.max(1)
            } else {
                self.gap + self.gap / 16
            };
        } else if self.throttled == 0 {
            self.gap -= self.gap / 16;
        }
        self.gap = self.gap.clamp(self.fastest, SLOWEST.max(self.fastest));
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// Calls in flight, as the sink has them.
    const SLOTS: usize = 256;

    /// A run against a table that takes so many writes a second with a tenth of a second's worth at once, on a clock of its
    /// own: how many writes a second got through, in per mille of that, and how many per mille were throttled. Counted from
    /// `from` to `to`.
    fn simulate(limit: u32, latency: Duration, write_rate: Option<u32>, from: u64, to: u64) -> (u64, u64) {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        enum Event {
            Arrives(usize),
            Answered(usize, bool),
            Back(usize),
            Turn,
        }
        let zero = Instant::now();
        let at = |time: Duration| zero + time;
        let mut state = State::new(write_rate, zero);
        let mut events = BinaryHeap::new();
        let mut line: std::collections::VecDeque<usize> = (0..SLOTS).collect();
        let mut attempts = [0_u32; SLOTS];
        let mut bucket = Duration::ZERO;
        let (mut taken, mut throttled) = (0, 0);
        events.push(Reverse((Duration::ZERO, Event::Turn)));
        while let Some(Reverse((now, event))) = events.pop() {
            if now > Duration::from_secs(to) {
                break;
            }
            let counts = now >= Duration::from_secs(from);
            match event {
                Event::Arrives(slot) => {
                    let due = bucket.max(now);
                    let takes = due - now <= Duration::from_millis(100);
                    if takes {
                        bucket = due + Duration::from_secs(1) / limit;
                    }
                    if counts {
                        *if takes { &mut taken } else { &mut throttled } += 1;
                    }
                    events.push(Reverse((now + latency / 2, Event::Answered(slot, takes))));
                }
                Event::Answered(slot, true) => {
                    state.answered(at(now), true);
                    attempts[slot] = 0;
                    line.push_back(slot);
                }
                Event::Answered(slot, false) => {
                    state.answered(at(now), false);
                    let most = 25_u64 << attempts[slot].min(7);
                    let spread = (slot as u64 * 7_919) % (most / 2 + 1);
                    attempts[slot] += 1;
                    events.push(Reverse((now + Duration::from_millis(most / 2 + spread), Event::Back(slot))));
                }
                Event::Back(slot) => line.push_back(slot),
                Event::Turn => {}
            }
            // The timer of the runtime counts in milliseconds.
            while let Some(slot) = line.front().copied() {
                if let Some(not_before) = state.turn(at(now)) {
                    let wake = Duration::from_millis((not_before - zero).as_millis() as u64 + 1);
                    if !events.iter().any(|Reverse((time, event))| *event == Event::Turn && *time <= wake) {
                        events.push(Reverse((wake, Event::Turn)));
                    }
                    break;
                }
                line.pop_front();
                events.push(Reverse((now + latency / 2, Event::Arrives(slot))));
            }
        }
        (taken * 1_000 / (u64::from(limit) * (to - from)), throttled * 1_000 / (taken + throttled))
    }

    const LATENCIES: [u64; 4] = [1, 5, 20, 60];

    #[test]
    fn it_settles_at_what_the_table_takes() {
        for limit in [25, 100, 500, 1_000, 2_000] {
            for latency in LATENCIES {
                let (taken, throttled) = simulate(limit, Duration::from_millis(latency), None, 3, 20);
                assert!(taken >= 950, "{limit}/s at {latency} ms: {taken} per mille taken, {throttled} throttled");
                assert!(throttled <= 150, "{limit}/s at {latency} ms: {throttled} per mille throttled");
            }
        }
    }

    #[test]
    fn it_keeps_to_the_rate_that_is_given() {
        for latency in LATENCIES {
            // The table takes ten times as much.
            let (taken, throttled) = simulate(20_000, Duration::from_millis(latency), Some(2_000), 1, 6);
            assert!((95..=101).contains(&taken), "{taken} per mille at {latency} ms");
            assert_eq!(throttled, 0);
        }
    }
}
