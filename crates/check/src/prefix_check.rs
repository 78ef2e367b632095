//! Checks of what was written so far, for checkers that decide at the end.

use crate::file_stretch::FileStretch;
use seatrial_checker::{
    Aims, Anomaly, Checker, MissingPart, OnlineChecker, Robustness, Validity, Verdict,
};
use seatrial_history::{ChunkSource, OpenError, SourceError, TestFile};
use seatrial_machine::panic_text;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

/// Events before the first check, and between two: these take about a millisecond.
const GROWTH_MIN: u64 = 256;

/// Events of a stretch: enough for what clients, replicas and retries have in common.
const STRETCH: u64 = 1 << 18;

/// Checks the beginning of a test file, again and again while the file grows, until a definite violation is found.
///
/// It is for checkers that need the whole history: each check is a whole one, of a file that ends where it was written to. An
/// operation without completion counts as one of unknown outcome, and what [`MissingPart::end`] withdraws is not definite, so
/// that every finding stands in the verdict on the whole history, too.
///
/// Each check runs in a thread of its own, one at a time; the next one begins when the file is half as long again, so that all of
/// them cost at most three times the last. Memory is that of one check. A thread that is not needed any more ends at the next
/// chunk, or when its checker has decided.
///
/// A checker whose memory grows with the length of the history ([`Checker::open_in_stretches`]) checks a file of more than
/// 2^18 events in stretches of that many, each of which begins in the middle of the one before: bounded memory, each operation
/// checked twice. A violation whose operations are further apart is found at the end.
pub(crate) struct PrefixChecks {
    path: PathBuf,
    aims: Aims,
    /// The next check needs a file with this many events.
    next: u64,
    /// Events of a stretch.
    stretch: u64,
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
            stretch: STRETCH,
            check: None,
            is_over: false,
            invalid: None,
        }
    }

    /// The same with stretches of this many events.
    #[cfg(test)]
    fn with_stretch(self, stretch: u64) -> PrefixChecks {
        PrefixChecks { stretch, ..self }
    }

    /// Begins a check if the file, which has `events` events, has grown enough and no check is running. The error is that of
    /// a file that cannot be opened.
    pub(crate) fn look(&mut self, checker: &dyn Checker, events: u64) -> Result<(), OpenError> {
        if self.is_over || self.check.is_some() || events < self.next {
            return Ok(());
        }
        let file = TestFile::open(&self.path)?;
        // Without times the level that is checked is weaker, and assumptions of the checker may be more than it implies.
        let open = checker.open_in_stretches();
        let open = open.filter(|_| !self.aims.provenance.is_timeless());
        let range = self.range(open.is_some(), events);
        let stretch = range.zip(open).map(|(range, open)| StretchWork {
            running: checker.start(&Aims {
                stretch: true,
                ..self.aims.clone()
            }),
            range,
            open,
        });
        let work = PrefixWork {
            stretch,
            whole: checker.start(&self.aims),
            robustness: checker.robustness(),
        };
        let is_given_up = Arc::new(AtomicBool::new(false));
        let (sender, result) = channel();
        let given_up = Arc::clone(&is_given_up);
        let work = move || {
            let checked = catch_unwind(AssertUnwindSafe(|| work.run(&file, &given_up)));
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

    /// The stretch that is checked next, or `None` for all of a file of `events` events. Sets when the check after it begins.
    fn range(&mut self, checks_stretches: bool, events: u64) -> Option<Range<u64>> {
        if !checks_stretches || events < self.stretch {
            self.next = events + (events / 2).max(GROWTH_MIN);
            if checks_stretches {
                self.next = self.next.min(self.stretch);
            }
            return None;
        }
        let end = self.next.max(self.stretch);
        self.next = end + self.stretch / 2;
        Some(end - self.stretch..end)
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

/// What the thread of a check needs.
struct PrefixWork {
    /// What is checked first; `None`: all that is in the file.
    stretch: Option<StretchWork>,
    /// The checker of the whole file.
    whole: Box<dyn OnlineChecker>,
    robustness: Robustness,
}

/// The check of a stretch.
struct StretchWork {
    running: Box<dyn OnlineChecker>,
    range: Range<u64>,
    /// Anomalies that a check of the whole file has to confirm.
    open: &'static [Anomaly],
}

impl PrefixWork {
    /// The verdict on the stretch, or on the whole file.
    fn run(self, file: &TestFile, is_given_up: &AtomicBool) -> Result<Verdict, SourceError> {
        let found = match self.stretch {
            Some(stretch) => stretch.run(file, is_given_up)?,
            None => None,
        };
        let mut verdict = match found {
            Some(verdict) => verdict,
            None => run(self.whole, file, is_given_up)?,
        };
        verdict.robustness = self.robustness;
        MissingPart::end("the test is running").apply(std::slice::from_mut(&mut verdict));
        Ok(verdict)
    }
}

impl StretchWork {
    /// The verdict on the stretch; `None` if the whole file has to be checked.
    fn run(
        self,
        file: &TestFile,
        is_given_up: &AtomicBool,
    ) -> Result<Option<Verdict>, SourceError> {
        let range = self.range;
        let verdict = run(self.running, &FileStretch { file, range }, is_given_up)?;
        let is_open = |anomaly: &Anomaly| self.open.contains(anomaly);
        Ok((!verdict.anomalies.keys().any(is_open)).then_some(verdict))
    }
}

/// The verdict on what is in the source.
fn run(
    mut checker: Box<dyn OnlineChecker>,
    source: &dyn ChunkSource,
    is_given_up: &AtomicBool,
) -> Result<Verdict, SourceError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{
        History, HistoryWriter, Key, Mop, Observed, Op, OpType, Process, Value,
    };
    use std::time::Duration;

    /// Transactions of one client that write a register and read it, one after another. At `wrong` the read returns the
    /// version before; at `dirty` a failed write is read.
    fn history(transactions: i64, wrong: Option<i64>, dirty: Option<i64>) -> History {
        let mut ops = Vec::new();
        let mut run = |mops: Vec<Mop>, kind| {
            let value = Value::Txn(mops.into());
            let invocation = Op::invoke(Process::Client(0), "txn", value.clone());
            ops.extend([invocation.clone(), invocation.complete(kind, value)]);
        };
        for number in 1..=transactions {
            let key = Key::Int(number % 3);
            let write = |value| Mop::Write {
                key: key.clone(),
                value,
            };
            let read = |value| Mop::Read {
                key: key.clone(),
                observed: Observed::Register(value),
            };
            run(vec![write(number)], OpType::Ok);
            if dirty == Some(number) {
                run(vec![write(-number)], OpType::Fail);
                run(vec![read(-number)], OpType::Ok);
            }
            let seen = if wrong == Some(number) {
                number - 3
            } else {
                number
            };
            run(vec![read(seen)], OpType::Ok);
        }
        History::from_unindexed(ops)
    }

    /// Checks the file with stretches of 400 events as it grows; the first verdict with a violation and the number of events
    /// then.
    fn follow(history: &History, checker: &dyn Checker) -> Option<(u64, Verdict)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.sea");
        let mut writer = HistoryWriter::create(&path, &serde_json::json!({})).unwrap();
        let mut checks = PrefixChecks::new(&path, &Aims::default()).with_stretch(400);
        for (events, op) in (1..).zip(history) {
            writer.push(op).unwrap();
            if events % 50 > 0 {
                continue;
            }
            writer.flush().unwrap();
            checks.look(checker, events).unwrap();
            while checks.check.is_some() {
                if let Some(verdict) = checks.refuted() {
                    return Some((events, verdict.clone()));
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        None
    }

    #[test]
    fn stretches_show_a_violation_soon_in_a_long_file() {
        let checkers = [
            ("rw-register", "strict-serializable"),
            ("isolation", "serializable"),
        ];
        for (name, model) in checkers {
            let checker = crate::by_name(name, Some(model)).unwrap();
            assert!(checker.open_in_stretches().is_some());
            let clean = history(1_500, None, None);
            assert!(follow(&clean, &*checker).is_none(), "{name}");
            for (wrong, dirty) in [(Some(1_000), None), (None, Some(1_000))] {
                if name == "isolation" && wrong.is_some() {
                    continue; // stale reads are serializable
                }
                let bad = history(1_500, wrong, dirty);
                let (events, verdict) = follow(&bad, &*checker).unwrap();
                assert!((4_000..=4_600).contains(&events), "{name}: at {events}");
                assert_eq!(verdict.valid, Validity::Invalid);
                let whole = checker.check(&bad);
                assert_eq!(verdict.anomalies, whole.anomalies, "{name}");
            }
        }
    }

    #[test]
    fn stretches_overlap_by_half_and_begin_where_prefixes_end() {
        let mut checks = PrefixChecks::new(Path::new("none"), &Aims::default()).with_stretch(1_000);
        let ranges: Vec<_> = [256, 600, 1_000, 1_500, 2_500, 2_500]
            .into_iter()
            .map(|events| {
                assert!(events >= checks.next, "{events} {}", checks.next);
                checks.range(true, events)
            })
            .collect();
        let expected = [
            None,
            None,
            Some(0..1_000),
            Some(500..1_500),
            Some(1_000..2_000),
        ];
        assert_eq!(ranges[..5], expected);
        assert_eq!(ranges[5], Some(1_500..2_500));
        let mut whole = PrefixChecks::new(Path::new("none"), &Aims::default()).with_stretch(1_000);
        assert_eq!((whole.range(false, 9_000), whole.next), (None, 13_500));
        // A file that grew past the first stretch before the first look.
        let mut late = PrefixChecks::new(Path::new("none"), &Aims::default()).with_stretch(1_000);
        assert_eq!(
            (late.range(true, 9_000), late.next),
            (Some(0..1_000), 1_500)
        );
    }
}
