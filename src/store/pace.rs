//! How fast a run writes: as fast as the table takes it, and hardly faster.
//!
//! The pace is the time between two calls. While more than a tenth of the calls are throttled it grows, while none is it
//! shrinks, so that it settles where the table takes all but a few. Measured over short stretches, it follows a table that
//! is given more capacity within seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Over how long calls are counted before the pace is changed.
const STRETCH: Duration = Duration::from_millis(100);

/// The longest time between two calls.
const SLOWEST: Duration = Duration::from_secs(1);

/// The pace of one run.
pub struct Pace {
    state: Mutex<State>,
    /// The pace that the user has set as the fastest.
    fastest: Duration,
    any_success: AtomicBool,
}

struct State {
    /// Time between two calls; zero until the first throttled one.
    gap: Duration,
    next: Instant,
    stretch_ends: Instant,
    succeeded: u32,
    throttled: u32,
    last_success: Instant,
}

impl Pace {
    /// A pace of at most `write_rate` calls a second.
    #[must_use]
    pub fn new(write_rate: Option<u32>) -> Self {
        let now = Instant::now();
        let fastest = write_rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate.max(1));
        Self {
            state: Mutex::new(State {
                gap: fastest,
                next: now,
                stretch_ends: now + STRETCH,
                succeeded: 0,
                throttled: 0,
                last_success: now,
            }),
            fastest,
            any_success: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst a pace that is a little off.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this call's turn.
    pub async fn wait(&self) {
        let turn = {
            let mut state = self.state();
            let now = Instant::now();
            if now >= state.stretch_ends {
                state.adapt(now, self.fastest);
            }
            if state.gap.is_zero() {
                return;
            }
            let turn = state.next.max(now);
            state.next = turn + state.gap;
            turn
        };
        sleep_until(turn).await;
    }

    /// Takes note of a call that succeeded.
    pub fn succeeded(&self) {
        let mut state = self.state();
        state.succeeded += 1;
        state.last_success = Instant::now();
        self.any_success.store(true, Ordering::Relaxed);
    }

    /// Takes note of a call that was throttled.
    pub fn throttled(&self) {
        self.state().throttled += 1;
    }

    /// Whether any call has succeeded.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.any_success.load(Ordering::Relaxed)
    }

    /// How long ago the last success was.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.state().last_success.elapsed()
    }
}

impl State {
    fn adapt(&mut self, now: Instant, fastest: Duration) {
        let calls = self.succeeded + self.throttled;
        if self.throttled * 10 > calls {
            self.gap = if self.gap.is_zero() {
                // The first time: what got through is what the table takes.
                STRETCH / self.succeeded.max(1)
            } else {
                self.gap + self.gap / 16
            };
        } else if self.throttled == 0 && self.succeeded > 0 {
            self.gap -= self.gap / 16;
        }
        self.gap = self.gap.clamp(fastest, SLOWEST.max(fastest));
        (self.succeeded, self.throttled) = (0, 0);
        self.stretch_ends = now + STRETCH;
    }
}
