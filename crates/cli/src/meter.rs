//! How far a long piece of work has come.

use indicatif::{ProgressBar, ProgressStyle};
use seatrial_machine::counted;
use seatrial_terminal::complain;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Plain lines come this often when standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Operations between two reads of the clock.
const LOOK_INTERVAL: u64 = 4_096;

/// A bar on a terminal, a line now and then elsewhere, on standard error either way. Work of a few seconds shows
/// nothing where there is no terminal.
pub(crate) struct ProgressMeter {
    bar: Option<ProgressBar>,
    length: u64,
    events: u64,
    last: Instant,
    quiet: bool,
}

/// A bar for work of this length, with a message beside it.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = " {bar:24.cyan/blue} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━━─"));
    }
    bar
}

impl ProgressMeter {
    /// For work of this length, 0 when not known.
    pub(crate) fn new(length: u64, quiet: bool) -> ProgressMeter {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| bar(length));
        let last = Instant::now();
        ProgressMeter {
            bar,
            length,
            events: 0,
            last,
            quiet,
        }
    }

    /// One more operation; so much of the work's length is done.
    pub(crate) fn step(&mut self, done: u64) {
        self.events += 1;
        if !self.events.is_multiple_of(LOOK_INTERVAL) || self.quiet {
            return;
        }
        let text = || counted(self.events, "event");
        if let Some(bar) = &self.bar {
            bar.set_position(done.min(self.length));
            bar.set_message(text());
        } else if self.last.elapsed() >= LINE_INTERVAL {
            self.last = Instant::now();
            match done.saturating_mul(100).checked_div(self.length) {
                Some(percent) => complain!(" {}   {percent} %", text()),
                None => complain!(" {}", text()),
            }
        }
    }

    /// Operations so far.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

impl Drop for ProgressMeter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
