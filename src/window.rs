//! Event-time windows: which of them cover an instant, and the panes that sliding ones share.
//!
//! A window is `[start, start + length)`; starts are the multiples of the slide, floored also below zero. Tumbling windows
//! are sliding ones whose slide is their length.

use crate::time::Span;

/// The windows of a run, all lengths in seconds. Invariant: 0 < slide ≤ length, and the pane divides both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    length: i64,
    slide: i64,
    pane: i64,
}

/// Windows that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWindow {
    /// A window or slide of no length.
    #[error("a {0} of 0 seconds holds nothing: give at least 1s")]
    Empty(&'static str),
    /// A slide beyond the window leaves instants that no window covers.
    #[error("a slide of {slide} is longer than the window of {length}: reports in between would be in no window")]
    Gaps {
        /// The slide.
        slide: Span,
        /// The window's length.
        length: Span,
    },
}

impl WindowSpec {
    /// Windows of `length` that start every `slide`; tumbling where there is no slide.
    ///
    /// # Errors
    ///
    /// Where either is zero, or the slide is longer than the window.
    pub fn new(length: Span, slide: Option<Span>) -> Result<Self, InvalidWindow> {
        let slide = slide.unwrap_or(length);
        if length.seconds() == 0 {
            return Err(InvalidWindow::Empty("window"));
        }
        if slide.seconds() == 0 {
            return Err(InvalidWindow::Empty("slide"));
        }
        if slide > length {
            return Err(InvalidWindow::Gaps { slide, length });
        }
        let (length, slide) = (length.seconds(), slide.seconds());
        Ok(Self { length, slide, pane: greatest_common_divisor(length, slide) })
    }

    /// Length of a window in seconds.
    #[inline]
    #[must_use]
    pub fn length(&self) -> i64 {
        self.length
    }

    /// Seconds from one start to the next.
    #[must_use]
    pub fn slide(&self) -> i64 {
        self.slide
    }

    /// Length in seconds of the longest stretch that lies in every window that it touches.
    #[inline]
    #[must_use]
    pub fn pane(&self) -> i64 {
        self.pane
    }

    /// Start of the pane that holds an instant, in epoch seconds.
    #[inline]
    #[must_use]
    pub fn pane_of(&self, seconds: i64) -> i64 {
        seconds.div_euclid(self.pane) * self.pane
    }

    /// Start of the earliest window that covers an instant.
    #[must_use]
    pub fn first_covering(&self, seconds: i64) -> i64 {
        // The smallest multiple of the slide above `seconds - length`.
        (seconds - self.length).div_euclid(self.slide) * self.slide + self.slide
    }

    /// Start of the latest window that covers an instant.
    #[must_use]
    pub fn last_covering(&self, seconds: i64) -> i64 {
        seconds.div_euclid(self.slide) * self.slide
    }

    /// Starts of all windows that cover an instant, earliest first; at least one.
    pub fn covering(&self, seconds: i64) -> impl Iterator<Item = i64> + use<> {
        let (slide, last) = (self.slide, self.last_covering(seconds));
        std::iter::successors(Some(self.first_covering(seconds)), move |start| Some(start + slide))
            .take_while(move |start| *start <= last)
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(length: u32, slide: u32) -> WindowSpec {
        WindowSpec::new(Span::from_seconds(length), Some(Span::from_seconds(slide))).unwrap()
    }

    #[test]
    fn windows_floor_below_zero_too() {
        let tumbling = spec(60, 60);
        for (seconds, start) in [(-61, -120), (-60, -60), (-1, -60), (0, 0), (59, 0), (60, 60)] {
            assert_eq!(tumbling.covering(seconds).collect::<Vec<_>>(), [start], "{seconds}");
            assert_eq!(tumbling.pane_of(seconds), start);
        }
    }

    #[test]
    fn covering_windows_are_those_that_hold_the_instant() {
        for (length, slide) in [(60, 60), (60, 20), (60, 25), (7, 3), (90, 60), (5, 1)] {
            let spec = spec(length, slide);
            assert_eq!((spec.length() % spec.pane(), spec.slide() % spec.pane()), (0, 0));
            for seconds in -200..200 {
                let expected: Vec<i64> = (-300..300)
                    .filter(|start| start % i64::from(slide) == 0)
                    .filter(|start| (*start..start + i64::from(length)).contains(&seconds))
                    .collect();
                assert_eq!(spec.covering(seconds).collect::<Vec<_>>(), expected, "{length} by {slide} at {seconds}");
            }
        }
    }

    #[test]
    fn impossible_windows_are_refused() {
        let new = |length, slide| WindowSpec::new(Span::from_seconds(length), Some(Span::from_seconds(slide)));
        assert!(matches!(new(60, 61), Err(InvalidWindow::Gaps { .. })));
        assert!(matches!(new(0, 0), Err(InvalidWindow::Empty("window"))));
        assert!(matches!(new(60, 0), Err(InvalidWindow::Empty("slide"))));
    }
}
