//! When a check must stop, and how far it is.

use crate::meter::bar;
use crate::resources::resident;
use indicatif::ProgressBar;
use seatrial_check::{CheckStage, Stopped, Watch};
use seatrial_files::SystemMemory;
use seatrial_machine::counted;
use seatrial_terminal::{Interrupt, complain};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often memory is looked at: reading it takes some microseconds.
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);
/// Nothing is shown of a check that takes less than this.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// Interval of progress on a terminal.
const SCREEN_INTERVAL: Duration = Duration::from_millis(100);
/// How often a line is written where standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of one check, and its progress on standard error.
///
/// It owns a bar on a terminal, else nothing but the time of its last line. Asked once a chunk, it reads the clock, and every 50
/// ms what memory is in use.
pub(crate) struct Guard<'a> {
    began: Instant,
    limit: Option<Duration>,
    memory: Option<u64>,
    interrupt: Option<&'a Interrupt>,
    /// Events of the history, 0 when not known.
    length: u64,
    is_quiet: bool,
    state: Mutex<Looked>,
}

/// What was done last, and when.
struct Looked {
    memory_at: Instant,
    shown_at: Instant,
    bar: Option<ProgressBar>,
}

/// The limits of a check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Longest time.
    pub(crate) time: Option<Duration>,
    /// Most resident memory in bytes; `None`: three quarters of what is available now, and what is in use already.
    pub(crate) memory: Option<u64>,
}

impl<'a> Guard<'a> {
    /// A guard of a check that begins now.
    pub(crate) fn new(
        limits: Limits,
        interrupt: Option<&'a Interrupt>,
        length: u64,
        is_quiet: bool,
    ) -> Guard<'a> {
        let began = Instant::now();
        Guard {
            began,
            limit: limits.time,
            memory: limits.memory.or_else(usual_memory),
            interrupt,
            length,
            is_quiet,
            state: Mutex::new(Looked {
                memory_at: began,
                shown_at: began,
                bar: None,
            }),
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &state.bar {
            bar.finish_and_clear();
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(Interrupt::is_requested)
    }

    /// The memory in use, if that is more than there may be. Looked at now and then.
    fn excess(&self) -> Option<u64> {
        let most = self.memory?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.memory_at.elapsed() < MEMORY_INTERVAL {
            return None;
        }
        state.memory_at = Instant::now();
        drop(state);
        resident().filter(|used| *used > most)
    }

    fn show(&self, text: &str, done: u64) {
        if self.is_quiet || self.began.elapsed() < QUIET_TIME {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_terminal = std::io::stderr().is_terminal();
        let interval = if is_terminal {
            SCREEN_INTERVAL
        } else {
            LINE_INTERVAL
        };
        if state.shown_at.elapsed() < interval {
            return;
        }
        state.shown_at = Instant::now();
        if !is_terminal {
            complain!(" {text}   {:.0} s", self.began.elapsed().as_secs_f64());
            return;
        }
        let length = self.length;
        let bar = state.bar.get_or_insert_with(|| bar(length));
        bar.set_position(done.min(length));
        bar.set_message(text.to_owned());
    }
}

impl Watch for Guard<'_> {
    fn stop(&self) -> Option<Stopped> {
        if self.is_interrupted() {
            return Some(Stopped("interrupted".to_owned()));
        }
        if let Some(limit) = self.limit
            && self.began.elapsed() >= limit
        {
            let limit = limit.as_secs_f64();
            return Some(Stopped(format!(
                "stopped at the limit of {limit} s (--limit)"
            )));
        }
        let used = self.excess()?;
        let most = self.memory.unwrap_or_default();
        Some(Stopped(format!(
            "stopped with {} MB of memory in use, of {} MB allowed (--memory)",
            used / 1_000_000,
            most / 1_000_000
        )))
    }

    fn stage(&self, stage: &CheckStage) {
        match stage {
            CheckStage::Reading { events } => {
                let shown = counted(*events, "event");
                let text = match events.saturating_mul(100).checked_div(self.length) {
                    Some(percent) => format!("reading: {shown}, {} %", percent.min(100)),
                    None => format!("reading: {shown}"),
                };
                self.show(&text, *events);
            }
            CheckStage::Deciding { checkers } => {
                self.show(&format!("deciding: {}", checkers.join(", ")), self.length);
            }
        }
    }
}

/// Three quarters of what the machine and the control group have free, and what this process uses already; `None` where the
/// system does not say.
fn usual_memory() -> Option<u64> {
    let available = SystemMemory.available()?;
    Some(available / 4 * 3 + resident().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_stop_a_check() {
        let guard = |time: Option<u64>, memory| {
            let time = time.map(Duration::from_millis);
            Guard::new(Limits { time, memory }, None, 0, true)
        };
        let unlimited = guard(None, None);
        let (late, fat) = (guard(Some(1), None), guard(None, Some(4_096)));
        std::thread::sleep(MEMORY_INTERVAL + Duration::from_millis(5));
        assert_eq!(unlimited.stop(), None);
        let reason = |guard: &Guard<'_>| guard.stop().unwrap().0;
        assert_eq!(reason(&late), "stopped at the limit of 0.001 s (--limit)");
        assert!(reason(&fat).contains("of 0 MB allowed (--memory)"));
        assert!(usual_memory().is_none_or(|bytes| bytes > 1 << 20));
    }
}
