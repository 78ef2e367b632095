//! The explorer: builds all crash states of a trace, recovers and checks each.

use super::choice::Choice;
use super::disk_recorder::{DiskRecorder, DiskTrace, grouped};
use super::enumerate::choices;
use super::failure::{CrashFailure, Vulnerability, explain};
use super::trace_replay::TraceReplay;
use crate::simulated_storage::{FileTree, MemoryStorage};
use seatrial_machine::{Rng, panic_text};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bounds of the crash states that are built at each point of a trace. A trace has many points, so the defaults build some
/// hundred states each where much is not durable, and a handful right after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplorerLimits {
    /// All combinations of lost operations and of lengths are built at a point that has at most this many.
    pub combinations_max: usize,
    /// Number of the newest operations that are not durable and are lost alone, kept alone, and lost with all later ones.
    pub singles_max: usize,
    /// Number of the newest writes that are not durable and are torn in every way, each alone.
    pub torn_max: usize,
    /// Number of random states per point where not all combinations are built.
    pub samples: usize,
}

impl Default for ExplorerLimits {
    fn default() -> ExplorerLimits {
        ExplorerLimits {
            combinations_max: 1 << 12,
            singles_max: 24,
            torn_max: 3,
            samples: 32,
        }
    }
}

impl ExplorerLimits {
    /// Limits for slow recoveries, or traces of thousands of operations: about ten states per point.
    pub const fn few() -> ExplorerLimits {
        ExplorerLimits {
            combinations_max: 16,
            singles_max: 4,
            torn_max: 1,
            samples: 8,
        }
    }
}

/// One crash: the files that it left and the acknowledgements before it.
#[derive(Debug)]
pub struct CrashState<'a, P> {
    /// Number of operations before the crash.
    pub point: usize,
    /// The losses.
    pub choice: Choice,
    files: FileTree,
    acknowledgements: &'a [P],
}

impl<'a, P> CrashState<'a, P> {
    /// A storage with the files that the crash left; each call returns a new one.
    pub fn storage(&self) -> MemoryStorage {
        MemoryStorage::from_files(&self.files)
    }

    /// The files that the crash left.
    pub fn files(&self) -> &FileTree {
        &self.files
    }

    /// The acknowledgements before the crash, in order.
    pub fn acknowledged(&self) -> &'a [P] {
        self.acknowledgements
    }

    /// Records a recovery of these files, so that it can be interrupted by another crash. Its start is durable: it was read from
    /// the disk.
    pub fn recorder<Q>(&self) -> DiskRecorder<Q> {
        DiskRecorder::over(&self.files)
    }
}

impl<P> DiskTrace<P> {
    /// The crash after `point` operations that leaves the state `choice`.
    pub fn crash(&self, point: usize, choice: &Choice) -> CrashState<'_, P> {
        let mut replay = TraceReplay::new(self);
        replay.advance_to(point);
        self.crash_at(&replay, choice, self.acknowledged_by(point))
    }

    pub(super) fn crash_at(
        &self,
        replay: &TraceReplay<'_>,
        choice: &Choice,
        acknowledged: usize,
    ) -> CrashState<'_, P> {
        CrashState {
            point: replay.point,
            choice: choice.clone(),
            files: replay.build(choice),
            acknowledgements: &self.acknowledgements[..acknowledged],
        }
    }
}

/// Result of an exploration.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// Operations of the trace.
    pub operations: usize,
    /// Points at which the power failed.
    pub points: usize,
    /// Points at which every combination of lost operations and lengths was built (torn writes are always chosen).
    pub exhaustive_points: usize,
    /// States that were built.
    pub states: u64,
    /// States that differ in their files or acknowledgements: the number of recoveries that were run.
    pub distinct: u64,
    /// The first state whose check failed, minimised.
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

    /// Returns the failure, which a test of a planted bug requires. Panics if every state passed.
    pub fn expect_failure(self) -> CrashFailure {
        let text = self.to_string();
        self.failure
            .unwrap_or_else(|| panic!("nothing was found: {text}"))
    }

    /// Adds the counts of another trace; the first failure is kept.
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

/// Rebuilds the crash states of a trace and checks each, in order of their points. The check recovers the files with the
/// program's own code and returns what is wrong, or panics: both are failures. A state with the files and acknowledgements of an
/// earlier one is not checked again.
///
/// Its downside: it is a search. Where more operations are not durable than [`ExplorerLimits::combinations_max`] permits to
/// enumerate, it tries the combinations that found bugs before (none, all, each alone, every prefix, each torn), and draws the
/// rest from its seed.
#[derive(Debug)]
pub struct Explorer<'a, P> {
    trace: &'a DiskTrace<P>,
    limits: ExplorerLimits,
    seed: u64,
    points: Range<usize>,
}

impl<'a, P> Explorer<'a, P> {
    /// Explores all points of a trace.
    pub fn new(trace: &'a DiskTrace<P>) -> Explorer<'a, P> {
        Explorer {
            trace,
            limits: ExplorerLimits::default(),
            seed: 0,
            points: 0..trace.operations.len() + 1,
        }
    }

    /// Replaces the bounds of the states that are built.
    #[must_use]
    pub fn limits(mut self, limits: ExplorerLimits) -> Explorer<'a, P> {
        self.limits = limits;
        self
    }

    /// Sets the seed of random states.
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
        mut check: impl FnMut(&CrashState<'_, P>) -> Result<(), E>,
    ) -> CrashReport {
        let mut report = self.empty_report();
        self.run(&mut report, &mut check, |_| false);
        report
    }

    /// Checks all states. Returns up to `count_max` distinct vulnerabilities. Of each point only the first failure is explained.
    pub fn vulnerabilities<E: fmt::Display>(
        &self,
        count_max: usize,
        mut check: impl FnMut(&CrashState<'_, P>) -> Result<(), E>,
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

    /// Explores the points; after a failure it continues at the next point if `continues` returns true.
    fn run<E: fmt::Display>(
        &self,
        report: &mut CrashReport,
        check: &mut impl FnMut(&CrashState<'_, P>) -> Result<(), E>,
        mut continues: impl FnMut(&CrashFailure) -> bool,
    ) {
        let mut seen: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut replay = TraceReplay::new(self.trace);
        let end = self.points.end.min(self.trace.operations.len() + 1);
        for point in self.points.start..end {
            replay.advance_to(point);
            let acknowledged = self.trace.acknowledged_by(point);
            let mut rng = Rng::from_seed(self.seed).fork(&point.to_string());
            let pending = replay.pending();
            let choices = choices(&self.trace.operations, &pending, &self.limits, &mut rng);
            report.points += 1;
            report.exhaustive_points += usize::from(choices.is_exhaustive);
            for choice in choices.list {
                let crash = self.trace.crash_at(&replay, &choice, acknowledged);
                report.states += 1;
                if !seen.insert((crash.files.fingerprint(), acknowledged)) {
                    continue;
                }
                report.distinct += 1;
                let Err(reason) = checked(check, &crash) else {
                    continue;
                };
                let failure = explain(self.trace, &replay, choice, reason, |crash| {
                    checked(check, crash).err()
                });
                let is_done = !continues(&failure);
                report.failure.get_or_insert(failure);
                if is_done {
                    return;
                }
                break;
            }
        }
    }
}

/// Runs a check; a panic is a failure.
fn checked<P, E: fmt::Display>(
    check: &mut impl FnMut(&CrashState<'_, P>) -> Result<(), E>,
    crash: &CrashState<'_, P>,
) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| check(crash))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("the check panicked: {}", panic_text(&*panic))),
    }
}
