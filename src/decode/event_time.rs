//! When a report happened: the first source of time that exists, in the order that `--help` gives.

use crate::time::{NANOS, Timestamp};

/// How a report's event time is made of the times that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventTimeMode {
    /// The first source that exists, as it is.
    #[default]
    Received,
    /// That, moved to the nearest instant with the report's own UTC second.
    UtcSecond,
    /// The record's arrival and nothing else, as the live pipeline does.
    Arrival,
}

/// What gives the time to lines that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The last base station report (type 4).
    BaseStation,
    /// The last `$..RMC` or `$..ZDA` sentence.
    Sentences,
    /// The last time seen in the partition.
    Previous,
}

/// How far ahead of its arrival a record's event time may be.
const MAX_LEAD_NANOS: i64 = 600 * NANOS;

/// Gives event times to the reports of one partition, in their order.
#[derive(Clone, Debug)]
pub struct Timekeeper {
    mode: EventTimeMode,
    clock: Option<Clock>,
    /// What the chosen clock showed last.
    shown: Option<Timestamp>,
    /// The last instant that led on from `--start`.
    led: Option<Timestamp>,
}

/// What came of the search for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTime {
    /// The event time.
    At(Timestamp),
    /// There is none.
    Unknown,
    /// It is too far after the record's arrival to be true.
    Future,
}

impl Timekeeper {
    /// A timekeeper at the beginning of a partition.
    #[must_use]
    pub fn new(mode: EventTimeMode, clock: Option<Clock>, start: Option<Timestamp>) -> Self {
        Self { mode, clock, shown: None, led: start }
    }

    /// Takes note of what a clock shows; it counts if it is the clock that was chosen.
    pub fn show(&mut self, clock: Clock, time: Timestamp) {
        if self.clock == Some(clock) {
            self.shown = Some(time);
        }
    }

    /// Whether times of lines that are no reports are of use.
    #[inline]
    #[must_use]
    pub fn wants_every_time(&self) -> bool {
        self.clock == Some(Clock::Previous)
    }

    /// The event time of a report. `own` is the time of its TAG block or line, `arrival` that of its record.
    #[inline]
    pub fn event_time(
        &mut self,
        own: Option<Timestamp>,
        arrival: Option<Timestamp>,
        utc_second: Option<u8>,
    ) -> EventTime {
        if self.mode == EventTimeMode::Arrival {
            return arrival.map_or(EventTime::Unknown, EventTime::At);
        }
        let Some(time) = own.or(arrival).or(self.shown) else {
            return self.lead_on(utc_second);
        };
        let time = match utc_second {
            // Received after it was sent: of two instants equally near, the earlier.
            Some(second) if self.mode == EventTimeMode::UtcSecond => nearest_with_second(time, second, -30),
            _ => time,
        };
        if arrival.is_some_and(|arrival| time.nanos() > arrival.nanos().saturating_add(MAX_LEAD_NANOS)) {
            return EventTime::Future;
        }
        EventTime::At(time)
    }

    fn lead_on(&mut self, utc_second: Option<u8>) -> EventTime {
        let Some(last) = self.led else { return EventTime::Unknown };
        if let Some(second) = utc_second {
            // A log goes forward: of two instants equally near, the later.
            self.led = Some(nearest_with_second(last, second, -29));
        }
        self.led.map_or(EventTime::Unknown, EventTime::At)
    }
}

/// The nearest whole second with this UTC second, between `least` and `least + 59` seconds from `time`'s own.
fn nearest_with_second(time: Timestamp, second: u8, least: i64) -> Timestamp {
    let seconds = time.seconds();
    let distance = (i64::from(second) - seconds - least).rem_euclid(60) + least;
    if distance == 0 {
        return time;
    }
    // Within 30 s of a time before the year 2100.
    Timestamp::from_seconds(seconds + distance).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds).unwrap()
    }

    #[test]
    fn start_leads_from_report_to_report() {
        let mut keeper = Timekeeper::new(EventTimeMode::Received, None, Some(at(1_700_000_040)));
        let mut lead = |second| match keeper.event_time(None, None, second) {
            EventTime::At(time) => time.seconds() - 1_700_000_040,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [Some(0), Some(25), Some(50), Some(15), Some(10), None, Some(40)].map(&mut lead),
            [0, 25, 50, 75, 70, 70, 100]
        );
        assert_eq!(lead(Some(10)), 130, "of two equally near instants, the later");
    }

    #[test]
    fn the_utc_second_moves_a_time_by_half_a_minute_at_most() {
        for offset in 0..60 {
            for second in 0..60 {
                let moved = nearest_with_second(at(1_700_000_040 + offset), second, -30);
                assert_eq!(moved.seconds() % 60, i64::from(second));
                assert!((-30..30).contains(&(moved.seconds() - 1_700_000_040 - offset)));
            }
        }
        let exact = Timestamp::from_nanos(1_700_000_040_500_000_000);
        assert_eq!(nearest_with_second(exact, 0, -30), exact, "a time within that very second stays");
    }

    #[test]
    fn a_record_from_its_own_future_is_told() {
        let mut keeper = Timekeeper::new(EventTimeMode::Received, None, None);
        assert_eq!(keeper.event_time(Some(at(1600)), Some(at(1000)), None), EventTime::At(at(1600)));
        assert_eq!(keeper.event_time(Some(at(1601)), Some(at(1000)), None), EventTime::Future);
        assert_eq!(keeper.event_time(None, Some(at(1000)), None), EventTime::At(at(1000)));
        assert_eq!(keeper.event_time(None, None, Some(5)), EventTime::Unknown);
    }

    #[test]
    fn only_the_chosen_clock_counts() {
        let mut keeper = Timekeeper::new(EventTimeMode::Received, Some(Clock::Sentences), None);
        keeper.show(Clock::BaseStation, at(5));
        assert_eq!(keeper.event_time(None, None, None), EventTime::Unknown);
        keeper.show(Clock::Sentences, at(6));
        assert_eq!(keeper.event_time(None, None, None), EventTime::At(at(6)));
        assert_eq!(keeper.event_time(Some(at(7)), None, None), EventTime::At(at(7)));
    }

    #[test]
    fn arrival_alone_if_so_chosen() {
        let mut keeper = Timekeeper::new(EventTimeMode::Arrival, None, Some(at(1)));
        assert_eq!(keeper.event_time(Some(at(7)), None, Some(3)), EventTime::Unknown);
        assert_eq!(keeper.event_time(Some(at(7)), Some(at(9)), Some(3)), EventTime::At(at(9)));
    }
}
