//! The checker of linearizability.

use crate::bisected_counterexample::bisected_counterexample;
use crate::collection_window::CollectionWindows;
use crate::collections::expand_takes;
use crate::essential::essential;
use crate::explanation::{ActionWords, NONLINEARIZABLE, ViolationExcerpt};
use crate::gathering::{GatheredHistory, Gathering};
use crate::linearization_search::{Bound, Counterexample, OrderResult, Search, SearchResult};
use crate::model::{Action, Model};
use crate::object::{LinearObject, LinearObjects, ObjectOperation, ValueMarks, key_prefix};
use crate::object_monitor::{MonitorVerdict, ObjectMonitor};
use crate::object_ranges::ObjectRanges;
use crate::online::OnlineObjects;
use crate::online_windows::OnlineWindows;
use crate::plain_objects::PlainObjects;
use crate::proof_draft::ProofDraft;
use crate::queue_search::search_queue;
use crate::values::{NumberedValues, ObjectStates};
use seatrial_checker::{
    Aims, Checked, Checker, Details, Figures, Finding, KeyFigures, KeyResult,
    LinearizabilityFigures, OnlineChecker, Progress, Validity, Verdict, check_source,
};
use seatrial_history::{Chunk, ChunkSource, FixedMap, History, SourceError};
use std::ops::ControlFlow;

/// Findings that are kept; the count of violations is exact.
pub(crate) const FINDINGS_MAX: usize = 8;

/// Keys with a violation that the details name; of more, the first.
pub(crate) const RESULTS_MAX: usize = 64;

/// Checks one data type, each key on its own (linearizability is local: Herlihy and Wing 1990, theorem 1).
///
/// Operations of unknown result (`info`, or never completed) may take effect at any time after their invocation, or never.
/// Failed operations had no effect; a failed `cas` is no evidence about the state.
///
/// Loop: operations are gathered from the chunks; then one key after another is decided, in the order of keys, or several by
/// several threads ([`Aims::threads`]), with the same result. Registers and collections whose values are unique are decided by a
/// monitor, in O(n log n); all other objects by a search, whose configurations are freed before the next. Memory is bounded by 24
/// bytes for each operation, the values, and for each thread the largest key.
///
/// After [`Checker::stop_at_first`] there are two rounds: each key first gets only `CONFIGURATIONS_FIRST`
/// configurations and a few for each operation, which decides all but contended keys; the remaining keys get the whole bound.
/// So a violation is found before the long searches, and no key is searched after it.
///
/// If a certificate is wanted, each way of deciding also returns its linearization (8 bytes an operation), and of the first
/// objects without one a core is made in the end (`proof_draft.rs`).
#[derive(Clone, Copy, Debug)]
pub struct Linearizable {
    pub(crate) model: Model,
    pub(crate) bound: Bound,
    stops_at_first: bool,
}

/// Configurations of each key's first search, plus [`CONFIGURATIONS_PER_OPERATION`] for each of its operations.
pub(crate) const CONFIGURATIONS_FIRST: u64 = 4_096;

/// A history without contention takes about one configuration for each operation.
const CONFIGURATIONS_PER_OPERATION: u64 = 4;

/// Configurations of a search that explains what a monitor refuted.
const EXPLAINED_MAX: u64 = 20_000;
/// Configurations of a search over states before one for contended registers, beside those for each operation.
const CONFIGURATIONS_PLAIN: u64 = 50_000;
/// Operations of an object that such a search looks at as a whole.
const EXPLAINED_LENGTH: usize = 2_000;

/// Operations from which on several threads decide objects: with fewer, starting them takes longer. Tests are small.
const PARALLEL_MIN: usize = if cfg!(test) { 8 } else { 4_096 };

/// Why an object is not decided: the bound, operations linearized, configurations.
struct Exhausted {
    bound: &'static str,
    linearized: usize,
    visited: u64,
}

/// An object without linearization, or a part of it, as it is needed to find the essential operations.
struct RefutedPart {
    entries: Vec<ObjectOperation>,
    /// The operation that no order can pass, and whether a search that knows nothing of later reads found it; `None` without an
    /// order.
    failed: Option<(usize, bool)>,
    /// The entries that a monitor found to have no order.
    core: Option<Vec<u32>>,
}

/// What makes an object with many concurrent operations hard to search over states, and has a search of its own.
#[derive(Clone, Copy, Debug)]
enum Contention {
    /// Overwrites, most of which nothing reads.
    Overwrites,
    /// Concurrent additions to a FIFO queue, whose order shows later.
    Queue,
}

impl Contention {
    fn of(model: Model, entries: &[ObjectOperation]) -> Option<Contention> {
        let is_simple =
            |action| matches!(action, Action::Read(_) | Action::Write(_) | Action::Cas(..));
        match model {
            Model::FifoQueue => Some(Contention::Queue),
            // Without appends.
            Model::Register | Model::CasRegister | Model::KeyValue => entries
                .iter()
                .all(|entry| is_simple(entry.action))
                .then_some(Contention::Overwrites),
            _ => None,
        }
    }

    /// Searches an order of one object; also the number of configurations.
    fn search(
        self,
        entries: &[ObjectOperation],
        states: &mut ObjectStates<'_>,
        bound: Bound,
    ) -> (OrderResult, u64) {
        match self {
            Contention::Queue => search_queue(entries, bound),
            Contention::Overwrites => Search::new(entries, states, bound).absorbing().order(),
        }
    }
}

/// What a thread needs to decide objects, one after another.
struct ObjectWorker {
    monitor: ObjectMonitor,
    marks: ValueMarks,
}

/// The results of the objects so far, in the order of keys.
struct CheckTally<'v> {
    values: &'v NumberedValues,
    indeterminate: &'v FixedMap<u32, u32>,
    /// Objects that were decided.
    checked: usize,
    operations: usize,
    /// Operations of unknown result.
    unknown: usize,
    configurations: u64,
    failures: u64,
    violations: Vec<(ViolationExcerpt, RefutedPart)>,
    /// The certificate to be, if one is wanted.
    draft: Option<ProofDraft<'v>>,
    /// Keys with a violation.
    results: Vec<(String, KeyResult)>,
    /// Why the first object whose search reached its bound is not decided.
    exhausted: Option<String>,
    /// Objects that a monitor decided; why the first other one was searched.
    by_monitor: u64,
    search_reason: Option<String>,
    /// Objects whose first search reached its bound, to be searched again.
    left: Vec<usize>,
}

impl Linearizable {
    /// The checker of this model, with the default bound.
    pub fn new(model: Model) -> Linearizable {
        Linearizable {
            model,
            bound: Bound::default(),
            stops_at_first: false,
        }
    }

    /// With another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Linearizable {
        Linearizable { bound, ..self }
    }

    /// Checks a whole history, which is read once more.
    pub(crate) fn check_again(
        &self,
        source: &dyn ChunkSource,
        certify: bool,
    ) -> Result<Checked, SourceError> {
        let aims = Aims {
            certify,
            ..Aims::default()
        };
        check_source(self, source, &aims)
    }

    /// The bound of the first of two searches of an object.
    fn first_bound(&self, object: &LinearObject) -> Bound {
        let few = object.entries.len() as u64 * CONFIGURATIONS_PER_OPERATION;
        Bound {
            configurations_max: self
                .bound
                .configurations_max
                .min(few + CONFIGURATIONS_FIRST),
            ..self.bound
        }
    }

    /// Decides all objects; threads share them in ranges, whose tallies are added in order: the result is that of one thread.
    fn decide_all<'v>(
        &self,
        objects: &mut LinearObjects,
        threads: usize,
        tally: impl Fn() -> CheckTally<'v> + Sync,
    ) -> CheckTally<'v> {
        let worker = |objects: &LinearObjects| ObjectWorker {
            monitor: ObjectMonitor::new(self.model, objects.values()),
            marks: objects.marks(),
        };
        let mut all = tally();
        let mut first = worker(objects);
        if let Some(object) = objects.only(&mut first.marks) {
            all.count(&object);
            if let Some(exhausted) = self.decide(&object, self.bound, &mut first, &mut all) {
                all.note_exhausted(&object, &exhausted);
            }
            return all;
        }
        drop(first);
        let objects = &*objects;
        let threads = if objects.operations() < PARALLEL_MIN {
            1
        } else {
            threads
        };
        let ranges = ObjectRanges::new(objects.len(), threads, |number| objects.length(number));
        let tallies = ranges.decide(
            || worker(objects),
            |worker, range, numbers| {
                let mut tally = tally();
                for number in numbers {
                    if !ranges.is_needed(range) {
                        break;
                    }
                    self.decide_first(objects, number, worker, &mut tally);
                    if self.stops_at_first && tally.failures > 0 {
                        ranges.end_at(range);
                        break;
                    }
                }
                tally
            },
        );
        for tally in tallies {
            all.add(tally);
        }
        self.decide_left(objects, threads, &mut all, &tally, worker);
        assert!(
            all.checked == objects.len() || all.failures > 0,
            "{} of {} objects were checked",
            all.checked,
            objects.len()
        );
        all
    }

    /// Decides an object, for the first of two times if violations are to be found early.
    fn decide_first(
        &self,
        objects: &LinearObjects,
        number: usize,
        worker: &mut ObjectWorker,
        tally: &mut CheckTally<'_>,
    ) {
        let object = objects.object(number, &mut worker.marks);
        tally.count(&object);
        let bound = if self.stops_at_first && objects.len() > 1 {
            self.first_bound(&object)
        } else {
            self.bound
        };
        match self.decide(&object, bound, worker, tally) {
            Some(_) if bound != self.bound => tally.left.push(number),
            Some(exhausted) => tally.note_exhausted(&object, &exhausted),
            None => {}
        }
    }

    /// Searches the objects whose first search reached its bound, unless one was refuted.
    fn decide_left<'v>(
        &self,
        objects: &LinearObjects,
        threads: usize,
        all: &mut CheckTally<'v>,
        tally: &(impl Fn() -> CheckTally<'v> + Sync),
        worker: impl Fn(&LinearObjects) -> ObjectWorker + Sync,
    ) {
        let left = std::mem::take(&mut all.left);
        // Until they are decided.
        all.checked -= left.len();
        if all.failures > 0 {
            return;
        }
        let ranges = ObjectRanges::new(left.len(), threads, |_| 1);
        let tallies = ranges.decide(
            || worker(objects),
            |worker, range, places| {
                let mut tally = tally();
                for &number in &left[places] {
                    if !ranges.is_needed(range) {
                        break;
                    }
                    let object = objects.object(number, &mut worker.marks);
                    tally.checked += 1;
                    if let Some(exhausted) = self.decide(&object, self.bound, worker, &mut tally) {
                        tally.note_exhausted(&object, &exhausted);
                    }
                    if tally.failures > 0 {
                        ranges.end_at(range);
                        break;
                    }
                }
                tally
            },
        );
        for tally in tallies {
            all.add(tally);
        }
    }

    /// Decides one object and adds its result: by a monitor where it applies, else by a search, whose limit is returned if it was
    /// reached.
    fn decide(
        &self,
        object: &LinearObject,
        bound: Bound,
        worker: &mut ObjectWorker,
        tally: &mut CheckTally<'_>,
    ) -> Option<Exhausted> {
        let draft = tally.draft.as_mut();
        match worker
            .monitor
            .check(self.model, object, tally.values, draft)
        {
            MonitorVerdict::Linearizable => {
                tally.by_monitor += 1;
                None
            }
            MonitorVerdict::Refuted(core) => {
                tally.by_monitor += 1;
                if let Some(draft) = &mut tally.draft {
                    draft.add_refuted(object, &core, None);
                }
                if !self.explain_whole(object, Some(&core), tally) {
                    self.explain_core(object, &core, tally);
                }
                None
            }
            MonitorVerdict::NotApplicable(reason) => {
                tally.note_search(object, &reason);
                if self.model != Model::Bag {
                    return self.search(object, bound, tally);
                }
                let mut expanded = object.clone();
                if !expand_takes(&mut expanded.entries) {
                    return Some(Exhausted {
                        bound: "removals of unknown outcome",
                        linearized: 0,
                        visited: 0,
                    });
                }
                self.search(&expanded, bound, tally)
            }
        }
    }

    /// Searches one object: where there is a search of contended objects, it follows one that is short.
    fn search(
        &self,
        object: &LinearObject,
        bound: Bound,
        tally: &mut CheckTally<'_>,
    ) -> Option<Exhausted> {
        let Some(contended) = Contention::of(self.model, &object.entries) else {
            return self.search_states(object, bound, tally);
        };
        let few = match contended {
            // Its states are as long as the queue.
            Contention::Queue if object.entries.len() > EXPLAINED_LENGTH => 0,
            Contention::Queue => CONFIGURATIONS_FIRST,
            Contention::Overwrites => {
                object.entries.len() as u64 * CONFIGURATIONS_PER_OPERATION + CONFIGURATIONS_PLAIN
            }
        };
        let short = Bound {
            configurations_max: bound.configurations_max.min(few),
            ..bound
        };
        if short.configurations_max > 0 {
            self.search_states(object, short, tally)?;
        }
        self.search_contended(contended, object, bound, tally)
    }

    /// Searches one contended object.
    fn search_contended(
        &self,
        contended: Contention,
        object: &LinearObject,
        bound: Bound,
        tally: &mut CheckTally<'_>,
    ) -> Option<Exhausted> {
        let entries = &object.entries;
        let mut states = ObjectStates::new(self.model, tally.values);
        let (result, visited) = contended.search(entries, &mut states, bound);
        tally.configurations += visited;
        match result {
            OrderResult::Linearizable(order) => {
                if let Some(draft) = &mut tally.draft {
                    draft.add_order(object, order.into_iter().map(|entry| (entry as u32, None)));
                }
                None
            }
            OrderResult::NotLinearizable => {
                let order = |part: &[ObjectOperation]| {
                    let mut states = ObjectStates::new(self.model, tally.values);
                    contended.search(part, &mut states, bound).0
                };
                let counterexample = bisected_counterexample(entries, &mut states, order);
                if let Some(draft) = &mut tally.draft {
                    let until = counterexample.prefix.is_some();
                    let until = until.then(|| entries[counterexample.entry].ret);
                    draft.add_refuted(object, &[], until);
                }
                tally.violation(self.model, object, &counterexample, None, &states);
                None
            }
            OrderResult::Exhausted(bound, linearized) => Some(Exhausted {
                bound,
                linearized,
                visited,
            }),
        }
    }

    /// Searches one object over states.
    fn search_states(
        &self,
        object: &LinearObject,
        bound: Bound,
        tally: &mut CheckTally<'_>,
    ) -> Option<Exhausted> {
        let mut states = ObjectStates::new(self.model, tally.values);
        states.prepare(&object.entries);
        let mut search = Search::new(&object.entries, &mut states, bound);
        let result = search.find();
        let visited = search.table.len();
        if let (Some(draft), SearchResult::Linearizable) = (&mut tally.draft, &result) {
            let order = search.linearization().into_iter();
            draft.add_order(object, order.map(|entry| (entry as u32, None)));
        }
        assert!(
            visited <= bound.configurations_max.max(1),
            "the search visited {visited} configurations, at most {}",
            bound.configurations_max
        );
        tally.configurations += visited;
        match result {
            SearchResult::Linearizable => None,
            SearchResult::NotLinearizable(counterexample) => {
                if let Some(draft) = &mut tally.draft {
                    let until = object.entries.get(counterexample.entry);
                    draft.add_refuted(object, &[], until.map(|entry| entry.ret));
                }
                // Without hints about later reads, the first search was the plain one.
                if !states.is_prepared() || !self.explain_whole(object, None, tally) {
                    tally.violation(self.model, object, &counterexample, None, &states);
                }
                None
            }
            SearchResult::Exhausted { bound, linearized } => Some(Exhausted {
                bound,
                linearized,
                visited,
            }),
        }
    }

    /// Adds the violation of an object that is not linearizable in the words of a plain search, which knows nothing of what is
    /// read later: it goes as far as any order does. `core` has the operations that a monitor found to have no order. False if
    /// the object is too long for that.
    fn explain_whole(
        &self,
        object: &LinearObject,
        core: Option<&[u32]>,
        tally: &mut CheckTally<'_>,
    ) -> bool {
        if object.entries.len() > EXPLAINED_LENGTH {
            return false;
        }
        let mut states = ObjectStates::new(self.model, tally.values);
        let bound = Bound {
            configurations_max: self.bound.configurations_max.min(EXPLAINED_MAX),
            ..self.bound
        };
        let (result, visited) = Search::new(&object.entries, &mut states, bound).run();
        tally.configurations += visited;
        assert!(
            result != SearchResult::Linearizable,
            "two ways to decide an object contradict each other"
        );
        let SearchResult::NotLinearizable(counterexample) = result else {
            return false;
        };
        tally.violation(self.model, object, &counterexample, core, &states);
        true
    }

    /// Adds the violation of some operations of an object, which alone are not linearizable.
    fn explain_core(&self, object: &LinearObject, core: &[u32], tally: &mut CheckTally<'_>) {
        let entries = core.iter().map(|&entry| object.entries[entry as usize]);
        let part = LinearObject {
            key: object.key.clone(),
            entries: entries.collect(),
            dropped: 0,
        };
        let mut states = ObjectStates::new(self.model, tally.values);
        let (result, visited) = Search::new(&part.entries, &mut states, self.bound).run();
        tally.configurations += visited;
        let counterexample = match result {
            SearchResult::NotLinearizable(counterexample) => Counterexample {
                out_of: Some(object.entries.len()),
                ..counterexample
            },
            // A chain of very many compare-and-sets: which operations they are must do.
            _ => Counterexample {
                concurrent: (1..part.entries.len()).collect(),
                out_of: Some(object.entries.len()),
                ..Counterexample::default()
            },
        };
        tally.violation(self.model, &part, &counterexample, None, &states);
    }

    /// The verdict after all objects.
    fn conclude(
        &self,
        objects: &LinearObjects,
        tally: CheckTally<'_>,
        findings: Vec<Finding>,
        verdict: &mut Verdict,
    ) {
        // Keys are those of all objects, or of none.
        let is_keyed = objects.len() > 0 && objects.key(0).is_some();
        let by_key = is_keyed.then_some(KeyFigures {
            keys: objects.len() as u64,
            keys_checked: tally.checked as u64,
            keys_invalid: tally.failures,
            results: tally.results.into_iter().collect(),
        });
        verdict.details = Details::of(Figures::Linearizability(LinearizabilityFigures {
            objects: objects.len() as u64,
            operations: tally.operations as u64,
            unknown: tally.unknown as u64,
            by_monitor: tally.by_monitor,
            monitor: (tally.by_monitor > 0).then(|| ObjectMonitor::name(self.model)),
            search_reason: tally.search_reason,
            configurations: tally.configurations,
            configurations_max: self.bound.configurations_max,
            findings_max: FINDINGS_MAX,
            by_key,
        }));
        if tally.failures > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, tally.failures);
            verdict.not = vec!["linearizable"];
            verdict.findings = findings;
            if tally.checked < objects.len() {
                let (checked, all) = (tally.checked, objects.len());
                verdict.reason = Some(format!(
                    "checking stopped at the first key that is not linearizable: {checked} of {all} keys \
                     checked; --all-keys checks all"
                ));
            }
        } else if let Some(reason) = tally.exhausted {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason);
        }
    }
}

impl<'v> CheckTally<'v> {
    fn new(
        values: &'v NumberedValues,
        indeterminate: &'v FixedMap<u32, u32>,
        draft: Option<ProofDraft<'v>>,
    ) -> CheckTally<'v> {
        CheckTally {
            draft,
            values,
            indeterminate,
            checked: 0,
            operations: 0,
            unknown: 0,
            configurations: 0,
            failures: 0,
            violations: Vec::new(),
            results: Vec::new(),
            exhausted: None,
            by_monitor: 0,
            search_reason: None,
            left: Vec::new(),
        }
    }

    /// Adds the tally of the objects that follow.
    fn add(&mut self, next: CheckTally<'v>) {
        self.checked += next.checked;
        self.operations += next.operations;
        self.unknown += next.unknown;
        self.configurations += next.configurations;
        self.failures += next.failures;
        self.by_monitor += next.by_monitor;
        self.violations.extend(next.violations);
        self.violations.truncate(FINDINGS_MAX);
        self.results.extend(next.results);
        self.results.truncate(RESULTS_MAX);
        self.left.extend(next.left);
        self.exhausted = self.exhausted.take().or(next.exhausted);
        self.search_reason = self.search_reason.take().or(next.search_reason);
        match (&mut self.draft, next.draft) {
            (Some(draft), Some(next)) => draft.add(next),
            (None, None) => {}
            _ => unreachable!("all tallies have a draft, or none"),
        }
    }

    /// Counts an object and its operations.
    fn count(&mut self, object: &LinearObject) {
        self.checked += 1;
        self.operations += object.entries.len() + object.dropped;
        self.unknown += object.entries.len() - required(&object.entries) + object.dropped;
    }

    /// Keeps why the first object that no monitor decides is searched.
    fn note_search(&mut self, object: &LinearObject, reason: &str) {
        let key = || key_prefix(object.key.as_ref());
        self.search_reason
            .get_or_insert_with(|| format!("{}{reason}", key()));
    }

    /// Adds an object that is not linearizable. `core` has the operations that a monitor found to have no order.
    fn violation(
        &mut self,
        model: Model,
        object: &LinearObject,
        counterexample: &Counterexample,
        core: Option<&[u32]>,
        states: &ObjectStates<'_>,
    ) {
        self.failures += 1;
        if let Some(key) = object
            .key
            .as_ref()
            .filter(|_| self.results.len() < RESULTS_MAX)
        {
            let result = KeyResult::Invalid([NONLINEARIZABLE].into());
            self.results.push((key.to_string(), result));
        }
        if self.violations.len() < FINDINGS_MAX {
            let is_plain = !states.is_prepared();
            let words = ActionWords { model, states };
            let part = (object.key.as_ref(), &object.entries[..]);
            let known = self.indeterminate;
            let excerpt = ViolationExcerpt::new(part, counterexample, &words, known);
            let excerpt = excerpt.with_order(&object.entries, counterexample, &words, known);
            // Without an order there is no operation at which it ends.
            let has_order = counterexample.prefix.is_some();
            let part = RefutedPart {
                entries: object.entries.clone(),
                failed: has_order.then_some((counterexample.entry, is_plain)),
                core: core.map(<[u32]>::to_vec),
            };
            self.violations.push((excerpt, part));
        }
    }

    /// Finds the essential operations of the violations that are kept, which share the bound on work.
    fn reduce(&mut self, model: Model) {
        let mut work = 0;
        for (excerpt, part) in &mut self.violations {
            let RefutedPart {
                entries,
                failed,
                core,
            } = part;
            let Some(failed) = *failed else { continue };
            let mut states = ObjectStates::new(model, self.values);
            let found = essential(entries, failed, core.as_deref(), &mut states, &mut work);
            if let Some(found) = found {
                excerpt.set_essential(entries, found, self.indeterminate);
            }
        }
    }

    /// Keeps the reason of the first object whose search reached its bound.
    fn note_exhausted(&mut self, object: &LinearObject, exhausted: &Exhausted) {
        let of = required(&object.entries);
        self.exhausted.get_or_insert_with(|| {
            let Exhausted {
                bound,
                linearized,
                visited,
            } = exhausted;
            format!(
                "{}the bound on {bound} was reached after {visited} configurations, \
                 with {linearized} of {of} operations linearized",
                key_prefix(object.key.as_ref())
            )
        });
    }
}

/// Number of operations that certainly took effect.
fn required(entries: &[ObjectOperation]) -> usize {
    entries.iter().filter(|entry| entry.is_required()).count()
}

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    /// Starts an online checker where findings are wanted early, else one that decides at the end.
    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker> {
        if aims.early
            && let Some(objects) = OnlineObjects::new(*self, aims.certify)
        {
            return Box::new(objects);
        }
        if aims.early
            && let Some(collections) = CollectionWindows::new(*self)
        {
            return Box::new(OnlineWindows::new(collections, aims.certify));
        }
        if aims.early
            && let Some(objects) = PlainObjects::windows(*self)
        {
            return Box::new(OnlineWindows::new(objects, aims.certify));
        }
        Box::new(LinearCheck {
            checker: *self,
            gathering: Gathering::new(self.model, aims.certify),
            threads: aims.threads,
        })
    }

    fn stop_at_first(&mut self) {
        self.stops_at_first = true;
    }
}

/// A check that gathers the operations and decides at the end.
struct LinearCheck {
    checker: Linearizable,
    gathering: Gathering,
    threads: usize,
}

impl OnlineChecker for LinearCheck {
    fn name(&self) -> &'static str {
        self.checker.name()
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        self.gathering.push(chunk)
    }

    fn progress(&mut self) -> Progress {
        Progress {
            held: self.gathering.len() as u64,
            ..Progress::default()
        }
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let mut verdict = Verdict::valid(self.checker.name());
        verdict.model = Some("linearizable".into());
        let GatheredHistory {
            mut objects,
            values,
            indeterminate,
            places,
        } = match self.gathering.finish() {
            Ok(gathered) => gathered,
            Err(reason) => return Ok(verdict.unknown(reason).into()),
        };
        let mut tally = self.checker.decide_all(&mut objects, self.threads, || {
            let draft = places.as_ref();
            let draft = draft.map(|places| ProofDraft::new(self.checker.model, &values, places));
            CheckTally::new(&values, &indeterminate, draft)
        });
        tally.reduce(self.checker.model);
        let draft = tally.draft.take();
        let excerpts = || tally.violations.iter().map(|(excerpt, _)| excerpt);
        let positions = excerpts().flat_map(ViolationExcerpt::positions);
        let ops = source.recall(&positions.collect())?;
        let findings = excerpts().map(|one| one.finding(&ops));
        let findings: Option<Vec<Finding>> = findings.collect();
        let findings = findings.ok_or("the history became shorter while it was checked")?;
        self.checker
            .conclude(&objects, tally, findings, &mut verdict);
        let mut certificate = None;
        if let Some(draft) = draft
            && !matches!(verdict.valid, Validity::Unknown(_))
        {
            match draft.certificate(verdict.valid == Validity::Valid, source)? {
                Ok(made) => certificate = Some(made),
                Err(reason) => verdict.details.unproven = Some(reason),
            }
        }
        Ok((verdict, certificate).into())
    }
}
