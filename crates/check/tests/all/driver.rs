//! The one loop: what checkers that fail, watches that stop, and sources that break off come to.

use seatrial_check::{
    CheckOptions, SharedSource, Stopped, Unwatched, Watch, by_name, check, references,
};
use seatrial_checker::{Aims, Checked, Checker, OnlineChecker, Validity, Verdict, WholeHistory};
use seatrial_history::{
    Chunk, ChunkSource, History, Op, OpType, Process, SourceError, Take, Value,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a checker panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    InPush,
    InFinish,
}

struct PanickingChecker(Panics);

impl Checker for PanickingChecker {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn check(&self, _: &History) -> Verdict {
        Verdict::valid("broken")
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(Breaking(self.0))
    }
}

struct Breaking(Panics);

impl OnlineChecker for Breaking {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn push(&mut self, _: &Chunk) -> ControlFlow<()> {
        assert!(self.0 != Panics::InPush, "index {} out of bounds", 7);
        ControlFlow::Continue(())
    }

    fn finish(self: Box<Self>, _: &dyn ChunkSource) -> Result<Checked, SourceError> {
        panic!("index {} out of bounds", 7)
    }
}

/// Never comes to an end.
#[derive(Clone)]
struct Endless;

impl Checker for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn check(&self, _: &History) -> Verdict {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(self.clone()))
    }
}

/// Reads of a register that hold what was written: 40,000 events in three chunks.
fn registers(last: i64) -> SharedSource {
    let mut ops = Vec::new();
    for number in 0..20_000 {
        let (f, value) = if number == 0 {
            ("write", 1)
        } else {
            ("read", 1)
        };
        let value = if number == 19_999 { last } else { value };
        let op = Op::invoke(Process::Client(0), f, Value::Int(value));
        ops.extend([op.clone(), op.complete(OpType::Ok, Value::Int(value))]);
    }
    Arc::new(History::from_unindexed(ops))
}

fn options(threads: usize) -> CheckOptions {
    CheckOptions {
        aims: Aims::default(),
        threads,
    }
}

#[test]
fn a_checker_that_panics_costs_the_others_nothing() {
    for threads in [1, 3] {
        for panics in [Panics::InPush, Panics::InFinish] {
            let checkers: Vec<Box<dyn Checker>> = vec![
                by_name("stats", None).unwrap(),
                Box::new(PanickingChecker(panics)),
                by_name("cas-register", None).unwrap(),
            ];
            let (checkers, source) = (references(&checkers), registers(2));
            let answer = check(&checkers, &source, &options(threads), &Unwatched, None).unwrap();
            let valid: Vec<&Validity> = answer.verdicts.iter().map(|one| &one.valid).collect();
            let reason = "the checker panicked: index 7 out of bounds";
            assert_eq!(*valid[0], Validity::Valid);
            assert_eq!(*valid[1], Validity::Unknown(reason.into()));
            assert_eq!(*valid[2], Validity::Invalid);
            assert_eq!(answer.overview.events(), 40_000);
        }
    }
}

/// Says stop when it was asked this often.
struct After(AtomicU64);

impl Watch for After {
    fn stop(&self) -> Option<Stopped> {
        let left = self.0.fetch_sub(1, Ordering::Relaxed);
        (left <= 1).then(|| Stopped("enough".to_owned()))
    }
}

#[test]
fn a_watch_stops_a_check_with_a_partial_answer() {
    // After the first chunk: counts are known, and that is all.
    let checkers = vec![
        by_name("cas-register", None).unwrap(),
        by_name("set", None).unwrap(),
    ];
    let watch = After(AtomicU64::new(1));
    let answer = check(
        &references(&checkers),
        &registers(1),
        &options(2),
        &watch,
        None,
    )
    .unwrap();
    assert_eq!(answer.overview.events(), 16_384);
    assert_eq!(answer.stopped, Some(Stopped("enough".to_owned())));
    let unknown = |verdict: &Verdict| matches!(verdict.valid, Validity::Unknown(_));
    assert!(answer.verdicts.iter().all(unknown), "{:?}", answer.verdicts);
    let reason = answer.verdicts[0].reason.as_deref();
    assert_eq!(reason, Some("enough: nothing was decided"));
    // While a checker decides: the others have their verdicts.
    let checkers: Vec<Box<dyn Checker>> =
        vec![by_name("cas-register", None).unwrap(), Box::new(Endless)];
    let watch = After(AtomicU64::new(30));
    let answer = check(
        &references(&checkers),
        &registers(2),
        &options(2),
        &watch,
        None,
    )
    .unwrap();
    assert_eq!(answer.overview.events(), 40_000);
    assert_eq!(answer.verdicts[0].valid, Validity::Invalid);
    let reason = "enough: nothing was decided";
    assert_eq!(answer.verdicts[1].valid, Validity::Unknown(reason.into()));
}

/// Breaks off in the middle.
struct Torn(SharedSource);

impl ChunkSource for Torn {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        let mut left = 2;
        self.0.round(&mut |chunk| {
            left -= 1;
            if left == 0 {
                return ControlFlow::Break(());
            }
            take(chunk)
        })?;
        Err("torn at 7".into())
    }
}

#[test]
fn a_source_that_cannot_be_read_is_an_error() {
    let source: SharedSource = Arc::new(Torn(registers(1)));
    let checkers = vec![by_name("stats", None).unwrap()];
    let error = check(
        &references(&checkers),
        &source,
        &options(2),
        &Unwatched,
        None,
    );
    assert_eq!(error.unwrap_err().to_string(), "torn at 7");
}
