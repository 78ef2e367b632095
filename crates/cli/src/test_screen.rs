//! What a person sees while a test runs.

use indicatif::{ProgressBar, ProgressStyle};
use seatrial_machine::counted;
use seatrial_runner::{Observer, Phase, TestProgress};
use seatrial_terminal::complain;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Plain lines come this often when standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A bar on a terminal, a line now and then elsewhere, on standard error either way.
pub(crate) struct Screen {
    /// `None` when unknown.
    length: Option<Duration>,
    bar: Option<ProgressBar>,
    /// When the last line was written, and in which phase.
    last: Mutex<Option<(Instant, Phase)>>,
}

impl Screen {
    /// For a test whose faults and load take this long.
    pub(crate) fn new(length: Option<Duration>) -> Screen {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length.unwrap_or_default().as_millis() as u64);
            let template = match length {
                Some(_) => " {bar:24.cyan/blue} {msg}",
                None => " {msg}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━━─"));
            }
            bar
        });
        Screen {
            length,
            bar,
            last: Mutex::new(None),
        }
    }

    fn describe(&self, progress: &TestProgress) -> String {
        let counts = &progress.counts;
        let mut text = match progress.phase {
            Phase::Running => {
                let seconds = progress.elapsed.as_secs_f64();
                match self.length {
                    Some(length) => format!("{seconds:.0} of {:.0} s", length.as_secs_f64()),
                    None => format!("{seconds:.0} s"),
                }
            }
            phase => phase.to_string(),
        };
        let _ = write!(
            text,
            "   {:.0}/s   ok {}  fail {}  info {}   {}",
            progress.rate,
            counts.ok,
            counts.fail,
            counts.info,
            counted(progress.faults_total, "fault")
        );
        if !progress.faults.is_empty() {
            let _ = write!(text, "   {}", progress.faults.join(", "));
        }
        if progress.deaths > 0 {
            let _ = write!(
                text,
                "   died by itself: {}",
                counted(progress.deaths, "node")
            );
        }
        text
    }
}

impl Observer for Screen {
    fn progress(&self, progress: &TestProgress) {
        if let Some(bar) = &self.bar {
            let most = self.length.unwrap_or_default();
            bar.set_position(progress.elapsed.min(most).as_millis() as u64);
            bar.set_message(self.describe(progress));
            return;
        }
        let Ok(mut last) = self.last.lock() else {
            return;
        };
        let due =
            last.is_none_or(|(at, phase)| phase != progress.phase || at.elapsed() >= LINE_INTERVAL);
        if due {
            *last = Some((Instant::now(), progress.phase));
            complain!(" {}", self.describe(progress));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
