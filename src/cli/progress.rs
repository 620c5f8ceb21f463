//! The progress bar: on standard error, and only on a terminal.

use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::console::{self, Console};
use super::replay::Extent;
use crate::run::Progress;

/// A bar, or nothing where nobody would see it.
pub struct Bar {
    bar: Option<ProgressBar>,
    started: Instant,
    extent: Extent,
}

impl Bar {
    /// A bar for so much to read.
    #[must_use]
    pub fn new(console: Console, extent: Extent) -> Self {
        let bar = console.shows_progress().then(|| {
            let bar = match extent {
                Extent::Bytes(Some(bytes)) => {
                    ProgressBar::new(bytes).with_style(style("{bar:28} {bytes} of {total_bytes}  {msg}  {left}"))
                }
                Extent::Bytes(None) => ProgressBar::new_spinner().with_style(style("{spinner} {bytes}  {msg}")),
                Extent::Time { since, until } => ProgressBar::new(until.abs_diff(since))
                    .with_style(style("{bar:28} {percent} %, at {prefix}  {msg}  {left}")),
            };
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            console::note_bar(&bar);
            bar
        });
        Self { bar, started: Instant::now(), extent }
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
        match self.extent {
            Extent::Bytes(_) => bar.set_position(progress.stored_bytes),
            Extent::Time { since, until } => {
                let Some(reached) = progress.reached else { return };
                bar.set_prefix(reached.to_string());
                bar.set_position(reached.seconds().clamp(since, until).abs_diff(since));
            }
        }
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
