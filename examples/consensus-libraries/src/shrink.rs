//! Shortens a failing schedule: a quiet network, fewer steps, less time between them.
//!
//! A candidate is kept if it fails in the same way, in its own world or in one of a few others (the draws of the network shift
//! when a step disappears). It ends at a schedule of which no step can be left out.

use crate::ledger::FailureKind;
use crate::scenario::Scenario;
use crate::schedule::{Schedule, Weather};
use crate::simulation::run;

/// Worlds tried for each candidate while the network is not quiet.
const WORLDS: usize = 6;
/// Runs after which the best schedule so far is good enough.
const RUNS_MAX: u64 = 6_000;
/// Lengths that a gap between two steps is set to, in milliseconds. A leader is elected in about 150.
const GAPS: [u64; 8] = [1, 5, 10, 20, 50, 100, 200, 400];

/// Shortens a schedule; counts the runs.
pub(crate) struct Shrinker<'a> {
    scenario: &'a Scenario,
    kind: FailureKind,
    best: Schedule,
    pub(crate) runs: u64,
}

impl<'a> Shrinker<'a> {
    pub(crate) fn new(scenario: &'a Scenario, kind: FailureKind, found: Schedule) -> Self {
        Shrinker {
            scenario,
            kind,
            best: found,
            runs: 0,
        }
    }

    /// The shortest schedule found.
    pub(crate) fn shrink(&mut self) -> Schedule {
        self.cut_end();
        loop {
            let before = self.best.clone();
            self.calm_weather();
            self.drop_steps();
            self.close_gaps();
            if self.best == before || self.runs > RUNS_MAX {
                return self.best.clone();
            }
        }
    }

    /// Is this the same failure? Then it is the best schedule from now on.
    fn accept(&mut self, mut candidate: Schedule) -> bool {
        let first = candidate.seed;
        // In a quiet network the seed decides only how long syncs take and what a crash keeps.
        let is_quiet = candidate.weather == Weather::default();
        let worlds = if is_quiet { 2 } else { WORLDS };
        let seeds = std::iter::once(first).chain(1..).take(worlds);
        if self.runs > RUNS_MAX {
            return false;
        }
        for seed in seeds {
            candidate.seed = seed;
            self.runs += 1;
            let failure = run(self.scenario, &candidate, false).failure;
            if failure.is_some_and(|failure| failure.kind == self.kind) {
                self.best = candidate;
                return true;
            }
        }
        false
    }

    /// Drops the last steps: halves of the rest.
    fn cut_end(&mut self) {
        let mut kept = self.best.steps.len() / 2;
        while kept < self.best.steps.len() {
            let mut candidate = self.best.clone();
            candidate.steps.truncate(kept);
            if self.accept(candidate) {
                kept = self.best.steps.len() / 2;
            } else {
                kept += (self.best.steps.len() - kept).div_ceil(2);
            }
        }
    }

    fn calm_weather(&mut self) {
        let changes: [fn(&mut Weather); 6] = [
            |weather| *weather = Weather::default(),
            |weather| weather.loss = 0.0,
            |weather| weather.duplication = 0.0,
            |weather| weather.straggler = 0.0,
            |weather| weather.spread_us = 0,
            |weather| weather.stall = 0.0,
        ];
        for change in changes {
            let mut candidate = self.best.clone();
            change(&mut candidate.weather);
            if candidate.weather != self.best.weather {
                self.accept(candidate);
            }
        }
    }

    /// Leaves out runs of steps, long ones first (delta debugging, Zeller and Hildebrandt 2002).
    fn drop_steps(&mut self) {
        let mut length = self.best.steps.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (at + length).min(candidate.steps.len());
                candidate.steps.drain(at..end);
                if !self.accept(candidate) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    /// Moves all steps after a gap forward.
    fn close_gaps(&mut self) {
        for at in 0..self.best.steps.len() {
            let before = at.checked_sub(1).map_or(0, |last| self.best.steps[last].at);
            let gap = self.best.steps[at].at - before;
            for shorter in GAPS.into_iter().filter(|shorter| *shorter < gap) {
                let mut candidate = self.best.clone();
                for step in &mut candidate.steps[at..] {
                    step.at -= gap - shorter;
                }
                if self.accept(candidate) {
                    break;
                }
            }
        }
    }
}
