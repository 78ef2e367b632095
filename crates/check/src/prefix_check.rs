//! Checks of what was written so far, for checkers that decide at the end.

use seatrial_checker::{Aims, Checker, MissingPart, OnlineChecker, Validity, Verdict};
use seatrial_history::{OpenError, SourceError, TestFile};
use seatrial_machine::panic_text;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

/// Events before the first check, and between two: these take about a millisecond.
const GROWTH_MIN: u64 = 256;

/// Checks the beginning of a test file, again and again while the file grows, until a definite violation is found.
///
/// It is for checkers that need the whole history: each check is a whole one, of a file that ends where it was written to. An
/// operation without completion counts as one of unknown outcome, and what [`MissingPart::end`] withdraws is not definite, so
/// that every finding stands in the verdict on the whole history, too.
///
/// Each check runs in a thread of its own, one at a time; the next one begins when the file is half as long again, so that all of
/// them cost at most three times the last. Memory is that of one check. A thread that is not needed any more ends at the next
/// chunk, or when its checker has decided.
pub(crate) struct PrefixChecks {
    path: PathBuf,
    aims: Aims,
    /// The next check needs a file with this many events.
    next: u64,
    check: Option<PrefixCheck>,
    is_over: bool,
    /// The verdict on the first prefix with a definite violation.
    invalid: Option<Verdict>,
}

/// A check in its thread.
struct PrefixCheck {
    result: Receiver<Result<Verdict, SourceError>>,
    is_given_up: Arc<AtomicBool>,
}

impl Drop for PrefixCheck {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

impl PrefixChecks {
    /// Checks of the test file at `path`; none has begun.
    pub(crate) fn new(path: &Path, aims: &Aims) -> PrefixChecks {
        PrefixChecks {
            path: path.to_owned(),
            aims: Aims {
                early: false,
                certify: false,
                threads: 1,
                ..aims.clone()
            },
            next: GROWTH_MIN,
            check: None,
            is_over: false,
            invalid: None,
        }
    }

    /// Begins a check if the file, which has `events` events, has grown enough and no check is running. The error is that of
    /// a file that cannot be opened.
    pub(crate) fn look(&mut self, checker: &dyn Checker, events: u64) -> Result<(), OpenError> {
        if self.is_over || self.check.is_some() || events < self.next {
            return Ok(());
        }
        let file = TestFile::open(&self.path)?;
        self.next = events + (events / 2).max(GROWTH_MIN);
        let running = checker.start(&self.aims);
        let robustness = checker.robustness();
        let is_given_up = Arc::new(AtomicBool::new(false));
        let (sender, result) = channel();
        let given_up = Arc::clone(&is_given_up);
        let work = move || {
            let checked = catch_unwind(AssertUnwindSafe(|| {
                let mut verdict = run(running, &file, &given_up)?;
                verdict.robustness = robustness;
                MissingPart::end("the test is running").apply(std::slice::from_mut(&mut verdict));
                Ok(verdict)
            }));
            let checked = checked.unwrap_or_else(|panic| Err(panic_text(&*panic).into()));
            let _ = sender.send(checked); // no one receives the result of a check that was given up
        };
        // When the system gives no thread, the violation is found at the end.
        if Builder::new()
            .name("prefix-check".into())
            .spawn(work)
            .is_ok()
        {
            self.check = Some(PrefixCheck {
                result,
                is_given_up,
            });
        }
        Ok(())
    }

    /// The verdict of a check that has ended since the last call and found a definite violation. No check follows it, nor one
    /// that failed: the final check fails in the same way, and says why.
    pub(crate) fn refuted(&mut self) -> Option<&Verdict> {
        let result = match self.check.as_ref()?.result.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => None,
            Ok(result) => result.ok(),
        };
        self.check = None;
        self.is_over = result
            .as_ref()
            .is_none_or(|verdict| verdict.valid == Validity::Invalid);
        if self.is_over {
            self.invalid = result;
        }
        self.invalid.as_ref()
    }

    /// The verdict on the first prefix with a definite violation.
    pub(crate) fn invalid(&self) -> Option<&Verdict> {
        self.invalid.as_ref()
    }
}

/// The verdict on what is in the file.
fn run(
    mut checker: Box<dyn OnlineChecker>,
    file: &TestFile,
    is_given_up: &AtomicBool,
) -> Result<Verdict, SourceError> {
    let source: &dyn seatrial_history::ChunkSource = file;
    source.round(&mut |chunk| {
        if is_given_up.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        checker.push(chunk)
    })?;
    if is_given_up.load(Ordering::Relaxed) {
        return Err("the check was given up".into());
    }
    Ok(checker.finish(source)?.verdict)
}
