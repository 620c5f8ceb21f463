//! The progress bar: on standard error, and only on a terminal.

use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::console::Console;
use crate::run::Progress;

/// A bar, or nothing where nobody would see it.
pub struct Bar {
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Bar {
    /// A bar for inputs of so many stored bytes in all, where that is known.
    #[must_use]
    pub fn new(console: Console, stored_bytes: Option<u64>) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = match stored_bytes {
                Some(bytes) => {
                    ProgressBar::new(bytes).with_style(style("{bar:28} {bytes} of {total_bytes}  {msg}  {left}"))
                }
                None => ProgressBar::new_spinner().with_style(style("{spinner} {bytes}  {msg}")),
            };
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar
        });
        Self { bar, started: Instant::now() }
    }

    /// Shows how far the run is.
    pub fn show(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        let millis = self.started.elapsed().as_millis().max(1) as u64;
        let rate = progress.lines.saturating_mul(1000) / millis;
        bar.set_message(format!(
            "{} lines/s, {} reports, {} late",
            HumanCount(rate),
            HumanCount(progress.accepted),
            HumanCount(progress.late)
        ));
        bar.set_position(progress.stored_bytes);
    }

    /// Does something that may write to the same terminal.
    pub fn aside<T>(&self, action: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(action),
            None => action(),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A failure to format is a shorter line on a terminal.
        let _ = write!(out, "{:#} left", indicatif::HumanDuration(state.eta()));
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("left", left)
        .progress_chars("━╸─")
}
