//! Online checkers: a check of one history, which is pushed chunk by chunk.

use crate::{Anomaly, Checker, Finding, MissingPart, Validity, Verdict};
use seatrial_history::{
    Chunk, ChunkSource, Fold, History, Op, Provenance, SourceError, TransactionSink,
};
use seatrial_verify::Certificate;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What is wanted of a check besides its verdict, and the provenance of the history.
#[derive(Clone, Debug, Default)]
pub struct Aims {
    /// Is a certificate wanted?
    pub certify: bool,
    /// Are findings wanted before the end of the history?
    pub early: bool,
    /// Are the operations a stretch of a history that began before it? A value that was read, but not written in the stretch,
    /// says nothing then. Only for checkers that can do that ([`Checker::open_in_stretches`]).
    pub stretch: bool,
    /// Is the order of operations that of real time, and is a part missing?
    pub provenance: Provenance,
    /// Threads that may decide together at the end of the history; 0 is as good as 1. The verdict does not depend on them.
    pub threads: usize,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The verdict.
    pub verdict: Verdict,
    /// The proof of the verdict, if it was wanted and there is one.
    pub certificate: Option<Certificate>,
}

impl From<Verdict> for Checked {
    fn from(verdict: Verdict) -> Checked {
        let certificate = None;
        Checked {
            verdict,
            certificate,
        }
    }
}

/// The progress of an [`OnlineChecker`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Transactions (or operations on registers) that are decided and freed: no later operation can affect them.
    pub decided: u64,
    /// Transactions that are kept, because later operations may affect them.
    pub held: u64,
    /// Windows that were decided.
    pub windows: u64,
    /// Anomalies so far that the model forbids, including those that a later operation may explain.
    pub anomalies: BTreeMap<Anomaly, u64>,
    /// Why the verdict waits for the end of the history, in words.
    pub note: Option<String>,
}

/// A check of one history: the chunks of one round are pushed, then it finishes.
///
/// It is a machine: no files, no threads, no clock. Its driver pushes each chunk once and in order, shares the round among
/// several checkers, and decides when to look for findings before the end and when to stop. [`OnlineChecker::finish`] may read
/// the history again: to explain findings, and for a second round where the first one could not decide.
pub trait OnlineChecker: Send {
    /// Its name in `--checker` and in results.
    fn name(&self) -> &'static str;

    /// Applies the next chunk. Breaks when the verdict does not depend on later chunks, which may still be pushed.
    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()>;

    /// A sink for transactions without operations, if this checker can use them; then no chunk is pushed. The verdict is the
    /// same.
    fn sink(&mut self) -> Option<&mut dyn TransactionSink> {
        None
    }

    /// Searches for violations in all chunks so far. Where [`OnlineChecker::push`] does not find them by itself, this takes time
    /// in proportion to what is kept.
    fn search(&mut self) {}

    /// Does [`OnlineChecker::definite`] return violations before the end, where there can be any? For another checker a driver
    /// checks the beginning of the history as a whole.
    fn is_early(&self) -> bool {
        false
    }

    /// The definite violations (those that no later operation can explain) that were not returned before.
    fn definite(&mut self, _source: &dyn ChunkSource) -> Result<Vec<Finding>, SourceError> {
        Ok(Vec::new())
    }

    /// Its progress.
    fn progress(&mut self) -> Progress {
        Progress::default()
    }

    /// Sets the model of a partial verdict, and the models that its definite anomalies rule out.
    fn rule_out(&self, _verdict: &mut Verdict) {}

    /// Does [`OnlineChecker::finish`] take no longer than a push, so that it can be called on a prefix of the history?
    fn is_quick(&self) -> bool {
        false
    }

    /// The result; nothing is pushed afterwards. `source` is the history that was pushed. The verdict is about what was pushed:
    /// the caller applies each [`MissingPart`]. A long search is the checker's own matter: the driver may abandon it.
    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError>;
}

impl From<(Verdict, Option<Certificate>)> for Checked {
    fn from((verdict, certificate): (Verdict, Option<Certificate>)) -> Checked {
        Checked {
            verdict,
            certificate,
        }
    }
}

/// Runs one checker on a history, in this thread. What the provenance says is missing limits the verdict, as
/// [`MissingPart::apply`] describes.
pub fn check_source(
    checker: &dyn Checker,
    source: &dyn ChunkSource,
    aims: &Aims,
) -> Result<Checked, SourceError> {
    let mut running = checker.start(aims);
    source.round(&mut |chunk| running.push(chunk))?;
    let mut checked = running.finish(source)?;
    checked.verdict.robustness = checker.robustness();
    if let Some(missing) = MissingPart::of_provenance(&aims.provenance) {
        missing.apply(std::slice::from_mut(&mut checked.verdict));
        if matches!(checked.verdict.valid, Validity::Unknown(_)) {
            checked.certificate = None;
        }
    }
    Ok(checked)
}

/// Runs one checker on a history, in this thread, and asks for a certificate. There is none for an unknown verdict, and for
/// a verdict that the checker cannot prove; the verdict's details may say why (`unproven`).
pub fn certify(
    checker: &dyn Checker,
    source: &dyn ChunkSource,
) -> Result<(Verdict, Option<Certificate>), SourceError> {
    let aims = Aims {
        certify: true,
        ..Aims::default()
    };
    let Checked {
        verdict,
        certificate,
    } = check_source(checker, source, &aims)?;
    Ok((verdict, certificate))
}

/// Reads a whole history into memory: about 100 bytes per event, plus the memory that values share.
pub fn gather(source: &dyn ChunkSource) -> Result<History, SourceError> {
    let mut ops = Vec::new();
    source.round(&mut |chunk| {
        ops.extend(chunk.ops());
        ControlFlow::Continue(())
    })?;
    Ok(History::from_ops(ops))
}

/// An online checker made of a fold, and of a function that turns the output of the fold into the result.
pub struct FoldChecker<F: Fold, E> {
    name: &'static str,
    fold: F,
    accumulator: F::Accumulator,
    is_done: bool,
    end: E,
    is_quick: bool,
    sink: Option<AsSink<F::Accumulator>>,
}

/// The accumulator of the fold as a sink.
type AsSink<A> = fn(&mut A) -> &mut dyn TransactionSink;

/// The end of a fold whose output is the verdict.
type VerdictEnd = fn(Verdict, &dyn ChunkSource) -> Result<Checked, SourceError>;

impl<F: Fold<Output = Verdict>> FoldChecker<F, VerdictEnd> {
    /// A checker of this name whose fold returns the verdict.
    pub fn new(name: &'static str, fold: F) -> FoldChecker<F, VerdictEnd> {
        FoldChecker {
            is_quick: true,
            ..FoldChecker::with_end(name, fold, |verdict, _| Ok(verdict.into()))
        }
    }
}

impl<F: Fold, E> FoldChecker<F, E> {
    /// A checker of this name; `end` makes the result of the fold's output, and may read the history once more.
    pub fn with_end(name: &'static str, fold: F, end: E) -> FoldChecker<F, E> {
        FoldChecker {
            name,
            accumulator: fold.start(),
            fold,
            is_done: false,
            end,
            is_quick: false,
            sink: None,
        }
    }

    /// This checker with a sink for transactions without operations.
    #[must_use]
    pub fn with_sink(self, sink: AsSink<F::Accumulator>) -> FoldChecker<F, E> {
        FoldChecker {
            sink: Some(sink),
            ..self
        }
    }
}

impl<F, E> OnlineChecker for FoldChecker<F, E>
where
    F: Fold,
    E: FnOnce(F::Output, &dyn ChunkSource) -> Result<Checked, SourceError> + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        if !self.is_done {
            self.is_done = self.fold.reduce(&mut self.accumulator, chunk).is_break();
        }
        if self.is_done {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn sink(&mut self) -> Option<&mut dyn TransactionSink> {
        Some((self.sink?)(&mut self.accumulator))
    }

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        (self.end)(self.fold.finish(self.accumulator), source)
    }
}

/// An online checker that needs the whole history in memory: it keeps every operation, and checks at the end.
pub struct WholeHistory<C> {
    checker: C,
    ops: Vec<Op>,
}

impl<C: Checker> WholeHistory<C> {
    /// An online checker that runs `checker` at the end.
    pub fn new(checker: C) -> WholeHistory<C> {
        WholeHistory {
            checker,
            ops: Vec::new(),
        }
    }
}

/// Most operations of a history in memory.
const OPERATIONS_MAX: usize = u32::MAX as usize - 1;

impl<C: Checker> OnlineChecker for WholeHistory<C> {
    fn name(&self) -> &'static str {
        self.checker.name()
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        // One operation over the limit is kept, as the sign that there are too many.
        let room = OPERATIONS_MAX + 1 - self.ops.len();
        self.ops.extend(chunk.ops().take(room));
        assert!(
            self.ops.len() <= OPERATIONS_MAX + 1,
            "one operation over the limit at most"
        );
        if self.ops.len() > OPERATIONS_MAX {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self) -> Progress {
        Progress {
            held: self.ops.len() as u64,
            ..Progress::default()
        }
    }

    fn finish(self: Box<Self>, _: &dyn ChunkSource) -> Result<Checked, SourceError> {
        if self.ops.len() > OPERATIONS_MAX {
            let reason = format!(
                "more than {OPERATIONS_MAX} events, which is what one history in memory can have"
            );
            return Ok(Verdict::valid(self.checker.name()).unknown(reason).into());
        }
        Ok(self.checker.check(&History::from_ops(self.ops)).into())
    }
}
