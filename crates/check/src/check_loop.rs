//! The one loop that checks a history.

use crate::feed::Feed;
use crate::infer::Shapes;
use seatrial_checker::{
    Aims, Checked, Checker, Finding, MissingPart, OnlineChecker, Overview, Progress, Robustness,
    Validity, Verdict,
};
use seatrial_history::{Chunk, ChunkSource, SourceError};
use seatrial_machine::{panic_text, thousands};
use seatrial_verify::Certificate;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// A source that the threads of a check share.
pub type SharedSource = Arc<dyn ChunkSource + Send + Sync>;

/// Why a check ended before its time, in words: `interrupted`, `--limit 10s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped(pub String);

/// Where a check is.
#[derive(Clone, Debug)]
pub enum CheckStage {
    /// Chunks are pushed.
    Reading {
        /// Events so far.
        events: u64,
    },
    /// All chunks were pushed; these checkers are at work.
    Deciding {
        /// Their names.
        checkers: Vec<&'static str>,
    },
}

/// Limits and progress of a check: asks whether to stop, and reports the stage. Implemented by the program, which has a clock.
pub trait Watch: Sync {
    /// Must the check stop now? Asked once a chunk, and every few milliseconds while checkers decide.
    fn stop(&self) -> Option<Stopped> {
        None
    }

    /// The check is here.
    fn stage(&self, _stage: &CheckStage) {}
}

/// A watch that never stops a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// How a history is checked.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Provenance, and whether a certificate is wanted.
    pub aims: Aims,
    /// Threads that share the checkers of a chunk among them, when there are several.
    pub threads: usize,
}

/// The outcome of a check.
#[derive(Debug, Default)]
pub struct CheckAnswer {
    /// One verdict for each checker, in their order.
    pub verdicts: Vec<Verdict>,
    /// Certificates, by position of the checker.
    pub certificates: Vec<(usize, Certificate)>,
    /// Counts and times of the part that was read.
    pub overview: Overview,
    /// Why the check stopped before the end of the history, or before a checker's end.
    pub stopped: Option<Stopped>,
}

/// How often a watch is asked while checkers decide.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Checks a history: one round of chunks for all checkers together, then each checker's end in a thread of its own, which may
/// read the history again. The error is that of a source that cannot be read.
///
/// `shapes` are those of all operations that were read.
///
/// A checker that panics gives an unknown verdict with the panic's message: a bug in one costs neither the other verdicts nor
/// the run. When the watch says stop, the verdicts are partial: what was found stands, the rest is unknown.
pub fn check(
    checkers: &[&dyn Checker],
    source: &SharedSource,
    options: &CheckOptions,
    watch: &dyn Watch,
    mut shapes: Option<&mut Shapes>,
) -> Result<CheckAnswer, SourceError> {
    let aims = Aims {
        threads: options.threads,
        ..options.aims.clone()
    };
    let mut running = start(checkers, &aims);
    let mut answer = CheckAnswer::default();
    let (overview, stopped) = (&mut answer.overview, &mut answer.stopped);
    let fed = match &mut running[..] {
        [one] => feed(one, source, watch, shapes.as_deref_mut())?,
        _ => Fed::Nothing,
    };
    match fed {
        Fed::All(counted, reason) => (*overview, *stopped) = (counted, reason),
        Fed::Nothing | Fed::Refused => {
            if matches!(fed, Fed::Refused) {
                // The chunks say why.
                running = start(checkers, &aims);
            }
            source.round(&mut |chunk| {
                overview.take(chunk);
                if let Some(shapes) = &mut shapes {
                    shapes.take_chunk(chunk);
                }
                push(&mut running, chunk, options.threads);
                watch.stage(&CheckStage::Reading {
                    events: overview.events(),
                });
                *stopped = watch.stop();
                match stopped {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            })?;
        }
    }
    let outcomes = if let Some(stopped) = stopped {
        stop_all(running, source, stopped)?
    } else {
        let found = vec![Vec::new(); running.len()];
        finish(running, source, found, watch, stopped)?
    };
    answer.add(outcomes);
    assert_eq!(
        answer.verdicts.len(),
        checkers.len(),
        "one verdict for each checker"
    );
    Ok(answer)
}

impl CheckAnswer {
    /// Adds the outcomes of all checkers, in their order.
    pub(crate) fn add(&mut self, outcomes: Vec<Checked>) {
        for (number, outcome) in outcomes.into_iter().enumerate() {
            self.verdicts.push(outcome.verdict);
            let certificate = outcome.certificate.map(|one| (number, one));
            self.certificates.extend(certificate);
        }
        let places = self.certificates.iter().map(|(number, _)| *number);
        assert!(
            places.is_sorted_by(|one, next| one < next),
            "a checker has two certificates"
        );
    }

    /// The certificate of the checker at this position, if it made one.
    pub fn take_certificate(&mut self, number: usize) -> Option<Certificate> {
        let place = self.certificates.iter().position(|(of, _)| *of == number)?;
        let (_, certificate) = self.certificates.swap_remove(place);
        debug_assert!(
            self.certificates.iter().all(|(of, _)| *of != number),
            "a checker has two certificates"
        );
        Some(certificate)
    }
}

/// What came of feeding transactions to a checker.
enum Fed {
    /// The source has none, or the checker takes none.
    Nothing,
    /// All that there are, or all until a watch said stop.
    All(Overview, Option<Stopped>),
    /// The checker refused one.
    Refused,
}

/// Feeds transactions to a checker that takes them from a source that has them. The error is that of a source that cannot be
/// read.
fn feed(
    one: &mut RunningCheck,
    source: &SharedSource,
    watch: &dyn Watch,
    shapes: Option<&mut Shapes>,
) -> Result<Fed, SourceError> {
    let Some(sink) = one.checker.as_mut().and_then(|checker| checker.sink()) else {
        return Ok(Fed::Nothing);
    };
    let mut feed = Feed::new(sink, watch, shapes);
    let taken = source.transactions(&mut feed);
    let (overview, stopped, is_refused) = feed.into_parts();
    match taken {
        None => Ok(Fed::Nothing),
        Some(_) if is_refused => Ok(Fed::Refused),
        Some(Err(error)) if stopped.is_none() => Err(error),
        Some(_) => Ok(Fed::All(overview, stopped)),
    }
}

/// Checkers as [`check`] takes them.
pub fn references(checkers: &[Box<dyn Checker>]) -> Vec<&dyn Checker> {
    checkers.iter().map(AsRef::as_ref).collect()
}

/// A checker at work, or why it no longer is.
pub(crate) struct RunningCheck {
    name: &'static str,
    robustness: Robustness,
    checker: Option<Box<dyn OnlineChecker>>,
    is_done: bool,
    panic: Option<String>,
}

impl RunningCheck {
    fn push(&mut self, chunk: &Chunk) {
        if !self.is_done {
            self.is_done = self.call(|checker| checker.push(chunk).is_break()) != Some(false);
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Calls into the checker; a panic ends it.
    fn call<T>(&mut self, call: impl FnOnce(&mut dyn OnlineChecker) -> T) -> Option<T> {
        let checker = self.checker.as_deref_mut()?;
        match catch_unwind(AssertUnwindSafe(|| call(checker))) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.checker = None;
                let before = self.panic.replace(message(&*panic));
                assert!(before.is_none(), "a checker that panicked was called again");
                None
            }
        }
    }

    /// Does it find definite violations by itself?
    pub(crate) fn is_early(&self) -> bool {
        self.checker
            .as_ref()
            .is_some_and(|checker| checker.is_early())
    }

    pub(crate) fn look(&mut self) {
        self.call(|checker| checker.search());
    }

    pub(crate) fn definite(
        &mut self,
        source: &dyn ChunkSource,
    ) -> Result<Vec<Finding>, SourceError> {
        let found = self.call(|checker| checker.definite(source));
        found.unwrap_or_else(|| Ok(Vec::new()))
    }

    pub(crate) fn rule_out(&mut self, verdict: &mut Verdict) {
        self.call(|checker| checker.rule_out(verdict));
    }

    pub(crate) fn progress(&mut self) -> Progress {
        self.call(|checker| checker.progress()).unwrap_or_default()
    }
}

/// Starts all checkers.
pub(crate) fn start(checkers: &[&dyn Checker], aims: &Aims) -> Vec<RunningCheck> {
    let running = checkers.iter().map(|checker| RunningCheck {
        name: checker.name(),
        robustness: checker.robustness(),
        checker: Some(checker.start(aims)),
        is_done: false,
        panic: None,
    });
    running.collect()
}

/// Pushes a chunk to all checkers: in this many threads, of which this is one, when there are several that do more than count.
pub(crate) fn push(running: &mut [RunningCheck], chunk: &Chunk, threads: usize) {
    let busy = running
        .iter()
        .filter(|one| !one.is_done && one.name != "stats");
    let workers = busy.count().min(threads);
    if workers < 2 {
        for one in running {
            one.push(chunk);
        }
        return;
    }
    // Each worker takes the next checker that none has taken: what is dear is not waited for by what is cheap.
    let cells: Vec<Mutex<&mut RunningCheck>> = running.iter_mut().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut one = cell.lock().unwrap_or_else(PoisonError::into_inner);
            one.push(chunk);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            // When the system gives no thread, the others do its work.
            if Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// The end of one checker.
fn end(mut one: RunningCheck, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
    let name = one.name;
    let panicked = |message: &str| {
        let reason = format!("the checker panicked: {message}");
        Verdict::valid(name).unknown(reason).into()
    };
    let Some(checker) = one.checker.take() else {
        return Ok(panicked(&one.panic.unwrap_or_default()));
    };
    let finished = catch_unwind(AssertUnwindSafe(|| checker.finish(source)));
    let mut checked = finished.unwrap_or_else(|panic| Ok(panicked(&message(&*panic))))?;
    checked.verdict.robustness = one.robustness;
    Ok(checked)
}

/// Ends all checkers side by side, and gives up those that are not done when the watch says stop. A thread that is given up
/// runs until it is done; its outcome is dropped. `found` are definite findings so far, by checker.
pub(crate) fn finish(
    mut running: Vec<RunningCheck>,
    source: &SharedSource,
    found: Vec<Vec<Finding>>,
    watch: &dyn Watch,
    stopped: &mut Option<Stopped>,
) -> Result<Vec<Checked>, SourceError> {
    assert_eq!(found.len(), running.len(), "findings by checker");
    let names: Vec<&'static str> = running.iter().map(|one| one.name).collect();
    watch.stage(&CheckStage::Deciding {
        checkers: names.clone(),
    });
    let mut partials: Vec<Partial> = Vec::new();
    for (one, findings) in running.iter_mut().zip(found) {
        partials.push(Partial::of(one, findings));
    }
    let (sender, receiver) = channel();
    let mut outcomes: Vec<Option<Checked>> = names.iter().map(|_| None).collect();
    for (number, one) in running.into_iter().enumerate() {
        // Handed over through a slot, so that it is still here when there is no thread.
        let slot = Arc::new(Mutex::new(Some(one)));
        let (theirs, sender, shared) = (Arc::clone(&slot), sender.clone(), Arc::clone(source));
        let work = move || {
            let one = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(one) = one {
                let _ = sender.send((number, end(one, &*shared)));
            }
        };
        if Builder::new().spawn(work).is_err() {
            let one = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(one) = one {
                outcomes[number] = Some(end(one, &**source)?);
            }
        }
    }
    drop(sender);
    while outcomes.iter().any(Option::is_none) {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok((number, outcome)) => {
                let before = outcomes[number].replace(outcome?);
                assert!(before.is_none(), "a checker ended twice");
            }
            Err(RecvTimeoutError::Timeout) => {
                let open = outcomes.iter().zip(&names);
                let open = open.filter(|(outcome, _)| outcome.is_none());
                watch.stage(&CheckStage::Deciding {
                    checkers: open.map(|(_, name)| *name).collect(),
                });
                *stopped = watch.stop();
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stopped.is_some() {
            break;
        }
    }
    let reason = stopped
        .clone()
        .unwrap_or_else(|| Stopped("a checker ended without an answer".to_owned()));
    let all = outcomes.into_iter().enumerate();
    let all = all.map(|(number, outcome)| {
        outcome.unwrap_or_else(|| partials[number].clone().stop(&reason).into())
    });
    Ok(all.collect())
}

/// The outcomes of checkers that have seen a part of the history only.
fn stop_all(
    running: Vec<RunningCheck>,
    source: &SharedSource,
    stopped: &Stopped,
) -> Result<Vec<Checked>, SourceError> {
    let mut outcomes = Vec::new();
    for mut one in running {
        let Some(checker) = one.checker.take() else {
            outcomes.push(end(one, &**source)?);
            continue;
        };
        if checker.is_quick() {
            let mut checked = checker.finish(&**source)?;
            checked.verdict.robustness = one.robustness;
            let missing = MissingPart::damaged_end(stopped.0.clone());
            missing.apply(std::slice::from_mut(&mut checked.verdict));
            outcomes.push(checked);
            continue;
        }
        one.checker = Some(checker);
        one.look();
        let found = one.definite(&**source)?;
        outcomes.push(Partial::of(&mut one, found).stop(stopped).into());
    }
    debug_assert!(
        outcomes
            .iter()
            .all(|one| one.verdict.valid != Validity::Valid),
        "a history that was not read to its end is valid"
    );
    Ok(outcomes)
}

/// What is known of a checker before its end: findings that no later operation takes back, else how much of the history holds.
#[derive(Clone)]
pub(crate) struct Partial {
    /// Model, anomalies and findings.
    verdict: Verdict,
    progress: Progress,
}

impl Partial {
    /// What is known of this checker, which has found these.
    pub(crate) fn of(running: &mut RunningCheck, findings: Vec<Finding>) -> Partial {
        let mut verdict = Verdict::valid(running.name);
        verdict.robustness = running.robustness;
        for finding in &findings {
            *verdict.anomalies.entry(finding.anomaly).or_default() += 1;
        }
        verdict.findings = findings;
        // The checker may only add models that are ruled out.
        let count = verdict.findings.len();
        running.rule_out(&mut verdict);
        assert!(
            verdict.findings.len() >= count,
            "a definite finding was taken back"
        );
        Partial {
            verdict,
            progress: running.progress(),
        }
    }

    /// What is known of a checker that found a definite violation in a prefix of the history.
    pub(crate) fn of_prefix(verdict: &Verdict) -> Partial {
        assert!(
            !verdict.anomalies.is_empty(),
            "a prefix without an anomaly is not invalid"
        );
        Partial {
            verdict: verdict.clone(),
            progress: Progress::default(),
        }
    }

    /// The verdict of a checker that was stopped for this reason.
    pub(crate) fn stop(self, stopped: &Stopped) -> Verdict {
        let (mut verdict, stopped) = (self.verdict, &stopped.0);
        let checked = thousands(self.progress.decided);
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            verdict.reason = Some(format!("{stopped}: only what was found until then"));
            return verdict;
        }
        verdict.unknown(match (self.progress.decided, self.progress.note) {
            (_, Some(note)) => format!("{stopped}: nothing was decided ({note})"),
            (0, None) => format!("{stopped}: nothing was decided"),
            (1, None) => format!("{stopped}: the first transaction holds"),
            (_, None) => format!("{stopped}: the first {checked} transactions hold"),
        })
    }
}

/// The first line of a panic's message.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic_text(panic);
    text.lines().next().unwrap_or_default().to_owned()
}
