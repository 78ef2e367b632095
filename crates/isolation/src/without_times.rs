//! The check of levels with real time on histories without times.

use seatrial_checker::{Checked, Finding, OnlineChecker, Progress, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_history::{Chunk, ChunkSource, Provenance, SourceError, TransactionSink};
use std::ops::ControlFlow;

/// A level that was asked for on a history without times, and the level that is checked instead: the same without real time.
/// The positions of two transactions in such a history say nothing about their order, unless one process ran both.
#[derive(Clone, Copy, Debug)]
pub struct WithoutTimes {
    asked: Level,
    checked: Level,
}

impl WithoutTimes {
    /// Starts the checker of `level`, or of the level without real time if the history has no times. If the caller asked for
    /// `level` (`is_asked`), the verdict is about it; if it is only the default, about the level that was checked.
    pub fn start(
        level: Level,
        is_asked: bool,
        provenance: &Provenance,
        start: impl FnOnce(Level) -> Box<dyn OnlineChecker>,
    ) -> Box<dyn OnlineChecker> {
        match WithoutTimes::of(level, provenance) {
            None => start(level),
            Some(times) if is_asked => times.wrap(start(times.checked)),
            Some(times) => start(times.checked),
        }
    }

    /// The level to check instead of `level`; `None` if a history of this provenance allows to check `level` itself.
    fn of(level: Level, provenance: &Provenance) -> Option<WithoutTimes> {
        let checked = level.without_real_time();
        let is_weaker = provenance.is_timeless() && checked != level;
        is_weaker.then_some(WithoutTimes {
            asked: level,
            checked,
        })
    }

    /// Wraps the checker of the weaker level, so that the verdict is about the level that was asked for.
    fn wrap(self, inner: Box<dyn OnlineChecker>) -> Box<dyn OnlineChecker> {
        Box::new(WeakerChecker { times: self, inner })
    }

    /// Changes the verdict: a violation of the weaker level violates the stronger one; if the weaker one holds, real time is
    /// open.
    fn settle(self, checked: &mut Checked) {
        let verdict = &mut checked.verdict;
        if verdict.model.as_deref() != Some(self.checked.name()) {
            return;
        }
        verdict.model = Some(self.asked.name().to_owned());
        if verdict.valid == Validity::Valid {
            let open = format!(
                "real time, as the history has no times; {}, which needs none, holds",
                self.checked.name()
            );
            *verdict = verdict.clone().no_anomaly_found(vec![open]);
            checked.certificate = None;
        }
    }
}

/// A checker of a weaker level than was asked for.
struct WeakerChecker {
    times: WithoutTimes,
    inner: Box<dyn OnlineChecker>,
}

impl OnlineChecker for WeakerChecker {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        self.inner.push(chunk)
    }

    fn sink(&mut self) -> Option<&mut dyn TransactionSink> {
        self.inner.sink()
    }

    fn search(&mut self) {
        self.inner.search();
    }

    fn is_early(&self) -> bool {
        self.inner.is_early()
    }

    fn definite(&mut self, source: &dyn ChunkSource) -> Result<Vec<Finding>, SourceError> {
        self.inner.definite(source)
    }

    fn progress(&mut self) -> Progress {
        self.inner.progress()
    }

    fn rule_out(&self, verdict: &mut Verdict) {
        self.inner.rule_out(verdict);
        verdict.model = Some(self.times.asked.name().to_owned());
    }

    fn is_quick(&self) -> bool {
        self.inner.is_quick()
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let mut checked = self.inner.finish(source)?;
        self.times.settle(&mut checked);
        Ok(checked)
    }
}
