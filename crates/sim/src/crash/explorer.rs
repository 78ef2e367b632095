//! All crash states of a trace, each recovered and checked.

use super::choice::Choice;
use super::enumerate::choices;
use super::failure::{CrashFailure, Vulnerability, explain};
use super::recorder::{Recorder, Trace, grouped};
use super::replay::Replay;
use crate::storage::{FileTree, MemoryStorage};
use seatrial_machine::{Rng, panic_text};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many states are built at each point of a trace. Points are many, so the defaults cost some hundred states each where
/// much is not durable, and a handful right behind a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// If what is not durable at a point can be lost and kept in at most so many ways (operations and lengths), all of them
    /// are built.
    pub combinations_max: usize,
    /// So many of the newest operations that are not durable are lost alone, kept alone, and lost with all later ones.
    pub singles_max: usize,
    /// So many of the newest writes that are not durable are torn in every way, each alone.
    pub torn_max: usize,
    /// So many states are drawn where not everything can be tried.
    pub samples: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            combinations_max: 1 << 12,
            singles_max: 24,
            torn_max: 3,
            samples: 32,
        }
    }
}

impl Limits {
    /// For recoveries that take long, or traces of thousands of operations: some ten states a point.
    pub const fn few() -> Limits {
        Limits {
            combinations_max: 16,
            singles_max: 4,
            torn_max: 1,
            samples: 8,
        }
    }
}

/// One crash: the files that it left.
#[derive(Debug)]
pub struct Crash<'a, P> {
    /// It came after so many operations of the trace.
    pub point: usize,
    /// What was lost.
    pub choice: Choice,
    files: FileTree,
    promises: &'a [P],
}

impl<'a, P> Crash<'a, P> {
    /// A storage with the files that the crash left; a new one at each call.
    pub fn storage(&self) -> MemoryStorage {
        MemoryStorage::from_files(&self.files)
    }

    /// The files that the crash left.
    pub fn files(&self) -> &FileTree {
        &self.files
    }

    /// What had been promised before the crash, in order.
    pub fn promises(&self) -> &'a [P] {
        self.promises
    }

    /// Records what a recovery does to these files, so that it can be interrupted by another crash. What it finds is
    /// durable: it was read from the disk.
    pub fn recorder<Q>(&self) -> Recorder<Q> {
        Recorder::over(&self.files)
    }
}

impl<P> Trace<P> {
    /// The crash after `point` operations that leaves what `choice` says.
    pub fn crash(&self, point: usize, choice: &Choice) -> Crash<'_, P> {
        let mut replay = Replay::new(self);
        replay.advance_to(point);
        self.crash_at(&replay, choice, self.promised_by(point))
    }

    pub(super) fn crash_at(
        &self,
        replay: &Replay<'_>,
        choice: &Choice,
        promised: usize,
    ) -> Crash<'_, P> {
        Crash {
            point: replay.point,
            choice: choice.clone(),
            files: replay.build(choice),
            promises: &self.promises[..promised],
        }
    }
}

/// What came of an exploration.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// Operations of the trace.
    pub operations: usize,
    /// Points at which the power was lost.
    pub points: usize,
    /// Points at which every combination of lost operations and lengths was built (torn writes are always chosen).
    pub exhaustive_points: usize,
    /// States that were built.
    pub states: u64,
    /// States that differ from each other, or in what had been promised: so many recoveries were run.
    pub distinct: u64,
    /// The first state that was not recovered as it should be, made as plain as possible.
    pub failure: Option<CrashFailure>,
}

impl CrashReport {
    /// Panics with the failure, if there is one.
    pub fn assert_holds(self) -> CrashReport {
        if let Some(failure) = &self.failure {
            panic!("{failure}");
        }
        self
    }

    /// The failure that has to be there. Panics if every state held.
    pub fn expect_failure(self) -> CrashFailure {
        let text = self.to_string();
        self.failure
            .unwrap_or_else(|| panic!("nothing was found: {text}"))
    }

    /// Adds up what came of several traces; the first failure stays.
    pub fn add(&mut self, other: CrashReport) {
        self.operations += other.operations;
        self.points += other.points;
        self.exhaustive_points += other.exhaustive_points;
        self.states += other.states;
        self.distinct += other.distinct;
        self.failure = self.failure.take().or(other.failure);
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [operations, points] = [self.operations, self.points].map(|it| grouped(it as u64));
        let exhaustive = grouped(self.exhaustive_points as u64);
        let sampled = grouped((self.points - self.exhaustive_points) as u64);
        let [states, distinct] = [self.states, self.distinct].map(grouped);
        write!(
            f,
            "{operations} operations, {points} crash points (all combinations at {exhaustive}, sampled at {sampled}), \
             {states} states, {distinct} distinct"
        )?;
        match &self.failure {
            Some(failure) => write!(f, "\n{failure}"),
            None => Ok(()),
        }
    }
}

/// Rebuilds the crash states of a trace and has each of them checked, in order of their points. The check recovers the files
/// with the program's own code and answers what is wrong, or panics: both are failures. States that were seen before, with
/// the same promises, are not checked again.
///
/// Its downside: it is a search. Where more operations are not durable than [`Limits::combinations_max`] allows for, it tries
/// what experience says matters (nothing, all, each alone, every prefix, each torn), and draws the rest from its seed.
#[derive(Debug)]
pub struct Explorer<'a, P> {
    trace: &'a Trace<P>,
    limits: Limits,
    seed: u64,
    points: Range<usize>,
}

impl<'a, P> Explorer<'a, P> {
    /// All points of a trace.
    pub fn new(trace: &'a Trace<P>) -> Explorer<'a, P> {
        Explorer {
            trace,
            limits: Limits::default(),
            seed: 0,
            points: 0..trace.operations.len() + 1,
        }
    }

    /// How many states are built.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Explorer<'a, P> {
        self.limits = limits;
        self
    }

    /// What is drawn.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Explorer<'a, P> {
        self.seed = seed;
        self
    }

    /// Only these points; point n is after n operations.
    #[must_use]
    pub fn points(mut self, points: Range<usize>) -> Explorer<'a, P> {
        self.points = points;
        self
    }

    /// Checks states until one fails.
    pub fn explore<E: fmt::Display>(
        &self,
        mut check: impl FnMut(&Crash<'_, P>) -> Result<(), E>,
    ) -> CrashReport {
        let mut report = self.empty_report();
        self.run(&mut report, &mut check, |_| false);
        report
    }

    /// Checks all states and answers what the program relies on without having made sure of it, at most `count_max` kinds of
    /// that. Points with a failure are left at their first one.
    pub fn vulnerabilities<E: fmt::Display>(
        &self,
        count_max: usize,
        mut check: impl FnMut(&Crash<'_, P>) -> Result<(), E>,
    ) -> (CrashReport, Vec<Vulnerability>) {
        let mut report = self.empty_report();
        let mut found: Vec<Vulnerability> = Vec::new();
        self.run(&mut report, &mut check, |failure| {
            if !found.contains(&failure.vulnerability) {
                found.push(failure.vulnerability.clone());
            }
            found.len() < count_max
        });
        (report, found)
    }

    fn empty_report(&self) -> CrashReport {
        CrashReport {
            operations: self.trace.operations.len(),
            points: 0,
            exhaustive_points: 0,
            states: 0,
            distinct: 0,
            failure: None,
        }
    }

    /// Goes on after a failure at the next point if `goes_on` says so.
    fn run<E: fmt::Display>(
        &self,
        report: &mut CrashReport,
        check: &mut impl FnMut(&Crash<'_, P>) -> Result<(), E>,
        mut goes_on: impl FnMut(&CrashFailure) -> bool,
    ) {
        let mut seen: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut replay = Replay::new(self.trace);
        let end = self.points.end.min(self.trace.operations.len() + 1);
        for point in self.points.start..end {
            replay.advance_to(point);
            let promised = self.trace.promised_by(point);
            let mut rng = Rng::from_seed(self.seed).fork(&point.to_string());
            let pending = replay.pending();
            let choices = choices(&self.trace.operations, &pending, &self.limits, &mut rng);
            report.points += 1;
            report.exhaustive_points += usize::from(choices.is_exhaustive);
            for choice in choices.list {
                let crash = self.trace.crash_at(&replay, &choice, promised);
                report.states += 1;
                if !seen.insert((crash.files.fingerprint(), promised)) {
                    continue;
                }
                report.distinct += 1;
                let Err(reason) = checked(check, &crash) else {
                    continue;
                };
                let failure = explain(self.trace, &replay, choice, reason, |crash| {
                    checked(check, crash).err()
                });
                let is_done = !goes_on(&failure);
                report.failure.get_or_insert(failure);
                if is_done {
                    return;
                }
                break;
            }
        }
    }
}

/// Runs a check, and takes a panic for what it is.
fn checked<P, E: fmt::Display>(
    check: &mut impl FnMut(&Crash<'_, P>) -> Result<(), E>,
    crash: &Crash<'_, P>,
) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| check(crash))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("the check panicked: {}", panic_text(&*panic))),
    }
}
