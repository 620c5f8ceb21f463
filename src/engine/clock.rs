//! A partition's own clock: event time and watermark, moved by its reports and by nothing else.

use crate::time::{Span, Timestamp};

/// By how much one report may run ahead of all others before it is taken for a wrong clock: one hour.
const LONE_LEAD_NANOS: i64 = 3_600 * crate::time::NANOS;

/// How long a partition waits for reports that come out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// A report is late once the partition's event time is this far past the end of its window.
    Allowed(Span),
    /// Nothing is ever late, and nothing is emitted before the end of the input.
    Unbounded,
}

impl Lateness {
    /// That of the live pipeline.
    pub const LIVE_PIPELINE: Self = Self::Allowed(Span::from_seconds(120));
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allowed(span) => span.fmt(f),
            Self::Unbounded => f.write_str("unbounded"),
        }
    }
}

impl std::str::FromStr for Lateness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unbounded" {
            return Ok(Self::Unbounded);
        }
        text.parse().map(Self::Allowed).map_err(|error| format!("{error}, nor the word 'unbounded'"))
    }
}

/// Event time and watermark of one partition.
///
/// Invariant: neither ever goes back. Event time is the largest time seen, or the second largest while the two are more
/// than an hour apart, so that no single bad line moves it; there is none before the second report.
#[derive(Clone, Debug)]
pub struct PartitionClock {
    lateness: Lateness,
    /// The two largest times seen, as nanoseconds; `i64::MIN` where there is none yet.
    largest: i64,
    second: i64,
    watermark: i64,
}

/// The watermark of a partition that has none yet: before every window.
pub const NO_WATERMARK: i64 = i64::MIN;

impl PartitionClock {
    /// A clock that has seen nothing.
    #[must_use]
    pub fn new(lateness: Lateness) -> Self {
        Self { lateness, largest: i64::MIN, second: i64::MIN, watermark: NO_WATERMARK }
    }

    /// Takes note of an accepted report's event time.
    #[inline]
    pub fn observe(&mut self, time: Timestamp) {
        let nanos = time.nanos();
        if nanos <= self.second {
            return;
        }
        self.second = nanos.min(self.largest);
        self.largest = nanos.max(self.largest);
        if let Lateness::Allowed(lateness) = self.lateness
            && let Some(event_time) = self.event_time()
        {
            self.watermark = event_time.seconds() - lateness.seconds();
        }
    }

    /// The partition's event time; `None` before the second report.
    #[inline]
    #[must_use]
    pub fn event_time(&self) -> Option<Timestamp> {
        if self.second == i64::MIN {
            return None;
        }
        // Saturating: two times may be further apart than an i64 of nanoseconds.
        let lone = self.largest.saturating_sub(self.second) > LONE_LEAD_NANOS;
        Some(Timestamp::from_nanos(if lone { self.second } else { self.largest }))
    }

    /// Event time less the allowed lateness, floored to a second; [`NO_WATERMARK`] before the second report and where the
    /// lateness is unbounded. A window whose end is at or below it is closed to this partition.
    #[inline]
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// The largest time seen, plausible or not.
    #[must_use]
    pub fn latest(&self) -> Option<Timestamp> {
        (self.largest != i64::MIN).then(|| Timestamp::from_nanos(self.largest))
    }
}

/// What is known of a partition from its first two accepted reports, before it is read in earnest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Event time of its first accepted report: where the partition counts as standing.
    pub first: Timestamp,
    /// No report of the partition can be added to a window that ends at or before this, in epoch seconds.
    pub bound: i64,
}

impl Outlook {
    /// The outlook for a partition whose first accepted reports have these times; `None` where it has none.
    ///
    /// The first two reports of a partition are never late, since it has no watermark before them; every later one is, for
    /// windows at or below the watermark that those two leave behind. Hence the bound: the least of the three.
    #[must_use]
    pub fn new(lateness: Lateness, first: Option<Timestamp>, second: Option<Timestamp>) -> Option<Self> {
        let first = first?;
        let mut clock = PartitionClock::new(lateness);
        clock.observe(first);
        let mut bound = first.seconds();
        if let Some(second) = second {
            clock.observe(second);
            bound = bound.min(second.seconds()).min(clock.watermark());
        }
        Some(Self { first, bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds).unwrap()
    }

    fn clock(times: &[i64]) -> PartitionClock {
        let mut clock = PartitionClock::new(Lateness::Allowed(Span::from_seconds(120)));
        for seconds in times {
            clock.observe(at(*seconds));
        }
        clock
    }

    #[test]
    fn there_is_no_watermark_before_the_second_report() {
        assert_eq!(clock(&[]).watermark(), NO_WATERMARK);
        assert_eq!(clock(&[1000]).watermark(), NO_WATERMARK);
        assert_eq!(clock(&[1000, 990]).watermark(), 880);
        assert_eq!(clock(&[1000, 1000]).watermark(), 880);
    }

    #[test]
    fn one_report_far_ahead_moves_nothing_and_a_second_one_does() {
        let day_ahead = 1000 + 86_400;
        assert_eq!(clock(&[990, 1000, day_ahead]).watermark(), 880);
        assert_eq!(clock(&[990, 1000, day_ahead, 1010]).watermark(), 890);
        assert_eq!(clock(&[990, 1000, day_ahead, day_ahead + 1]).watermark(), day_ahead + 1 - 120);
        assert_eq!(clock(&[1000, 4600]).watermark(), 4480);
        assert_eq!(clock(&[1000, 4601]).watermark(), 880);
    }

    #[test]
    fn a_watermark_never_goes_back() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut clock = clock(&[]);
        let mut before = NO_WATERMARK;
        for _ in 0..10_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            clock.observe(at((random % 20_000) as i64));
            assert!(clock.watermark() >= before);
            before = clock.watermark();
        }
    }

    #[test]
    fn unbounded_lateness_has_no_watermark() {
        let mut clock = PartitionClock::new(Lateness::Unbounded);
        clock.observe(at(1000));
        clock.observe(at(1001));
        assert_eq!(clock.watermark(), NO_WATERMARK);
        assert_eq!(clock.event_time(), Some(at(1001)));
    }

    #[test]
    fn an_outlook_bounds_what_a_partition_can_still_add() {
        let lateness = Lateness::Allowed(Span::from_seconds(120));
        let bound = |first: Option<i64>, second: Option<i64>| {
            Outlook::new(lateness, first.map(at), second.map(at)).map(|outlook| outlook.bound)
        };
        assert_eq!(bound(None, None), None);
        assert_eq!(bound(Some(1000), None), Some(1000));
        assert_eq!(bound(Some(1000), Some(1001)), Some(881));
        assert_eq!(bound(Some(1000), Some(500)), Some(500));
        assert_eq!(bound(Some(1000), Some(100_000)), Some(880));
    }
}
