//! The checker of linearizability.

use crate::collection_monitor::{self, CollectionMonitor};
use crate::collections::expand_takes;
use crate::essential::essential;
use crate::explanation::{ActionWords, NONLINEARIZABLE, ViolationExcerpt};
use crate::gathering::{GatheredHistory, Gathering};
use crate::model::Model;
use crate::monitors::Rejection;
use crate::object::{LinearObject, LinearObjects, ObjectOperation};
use crate::online::OnlineObjects;
use crate::proof_draft::ProofDraft;
use crate::register_zones::{ZoneVerdict, Zones};
use crate::search::{Bound, Counterexample, Search, SearchResult};
use crate::values::{NumberedValues, ObjectStates};
use seatrial_checker::{
    Aims, Checked, Checker, Details, Figures, Finding, KeyFigures, KeyResult,
    LinearizabilityFigures, OnlineChecker, Progress, Validity, Verdict, check_source,
};
use seatrial_history::{Chunk, ChunkSource, FixedMap, History, Key, SourceError};
use std::collections::BTreeMap;
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
/// Loop: operations are gathered from the chunks; then one key after another is decided, in the order of keys. Registers and
/// collections whose values are unique are decided by a monitor, in O(n log n); all other objects by a search, whose
/// configurations are freed before the next. Memory is bounded by 24 bytes for each operation, the values, and the largest key.
///
/// After [`Checker::stop_at_first`] there are two rounds: each key first gets only `CONFIGURATIONS_FIRST`
/// configurations and a few for each operation, which decides all but contended keys; the remaining keys get the whole bound.
/// So a violation is found before the long searches, and no key is searched after it.
///
/// If a certificate is wanted, each way of deciding also returns its linearization (8 bytes an operation), and of the first
/// objects without one a core is made in the end ([`ProofDraft`]).
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
/// Operations of an object that such a search looks at as a whole.
const EXPLAINED_LENGTH: usize = 2_000;

/// What a monitor says about an object.
enum MonitorVerdict {
    Linearizable,
    /// These entries alone are not linearizable.
    Refuted(Vec<u32>),
    /// The reason why the object must be searched.
    NotApplicable(String),
}

/// Why an object is not decided: the bound, operations linearized, configurations.
struct Exhausted {
    bound: &'static str,
    linearized: usize,
    visited: u64,
}

/// The results of all objects so far.
struct CheckTally<'v> {
    values: &'v NumberedValues,
    indeterminate: &'v FixedMap<u32, u32>,
    zones: Zones,
    collections: CollectionMonitor,
    /// Objects that were decided.
    checked: usize,
    operations: usize,
    /// Operations of unknown result.
    unknown: usize,
    configurations: u64,
    failures: u64,
    violations: Vec<ViolationExcerpt>,
    /// The certificate to be, if one is wanted.
    draft: Option<ProofDraft<'v>>,
    /// Work for the essential operations of these.
    essential_work: usize,
    /// Keys with a violation.
    results: BTreeMap<String, KeyResult>,
    /// Why the first object whose search reached its bound is not decided.
    exhausted: Option<String>,
    /// Objects that a monitor decided; why the first other one was searched.
    by_monitor: u64,
    search_reason: Option<String>,
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

    /// Decides the objects one after another.
    fn decide_all(&self, objects: &mut LinearObjects, tally: &mut CheckTally<'_>) {
        let mut left: Vec<usize> = Vec::new();
        for number in 0..objects.len() {
            let mut object = objects.object(number);
            tally.count(&object);
            let bound = if self.stops_at_first && objects.len() > 1 {
                self.first_bound(&object)
            } else {
                self.bound
            };
            match self.decide(&mut object, bound, tally) {
                Some(_) if bound != self.bound => left.push(number),
                Some(exhausted) => tally.note_exhausted(&object, &exhausted),
                None => {}
            }
            if self.stops_at_first && tally.failures > 0 {
                // The keys left for a second search were not decided.
                tally.checked -= left.len();
                return;
            }
        }
        for (searched, &number) in left.iter().enumerate() {
            let mut object = objects.object(number);
            if let Some(exhausted) = self.decide(&mut object, self.bound, tally) {
                tally.note_exhausted(&object, &exhausted);
            }
            if tally.failures > 0 {
                tally.checked -= left.len() - searched - 1;
                break;
            }
        }
        assert!(
            tally.checked == objects.len() || tally.failures > 0,
            "{} of {} objects were checked",
            tally.checked,
            objects.len()
        );
    }

    /// What the monitor of the model says about an object; its linearization goes to the draft.
    fn monitor(&self, object: &LinearObject, tally: &mut CheckTally<'_>) -> MonitorVerdict {
        if !self.model.is_collection() {
            let (verdict, order) = match tally.draft {
                Some(_) => tally.zones.check_with_order(&object.entries),
                None => (tally.zones.check(&object.entries), None),
            };
            if let (Some(draft), Some(order)) = (&mut tally.draft, order) {
                draft.add_order(object, order.into_iter().map(|entry| (entry, None)));
            }
            return match verdict {
                ZoneVerdict::Linearizable => MonitorVerdict::Linearizable,
                ZoneVerdict::Refuted(core) => MonitorVerdict::Refuted(core),
                ZoneVerdict::NotApplicable(Some(value)) => {
                    let value = tally.values.get(value);
                    let reason = format!("more than one operation writes {value}");
                    MonitorVerdict::NotApplicable(reason)
                }
                ZoneVerdict::NotApplicable(None) => {
                    let reason = "its operations are not those of a register";
                    MonitorVerdict::NotApplicable(reason.into())
                }
            };
        }
        let collections = &mut tally.collections;
        match collections.check(self.model, &object.entries, tally.values) {
            Ok(()) => {
                if let Some(draft) = &mut tally.draft {
                    match collections.linearize(self.model, &object.entries, tally.values) {
                        Ok(order) => draft.add_order(object, order.into_iter()),
                        Err(_) => draft.give_up("no linearization was constructed"),
                    }
                }
                MonitorVerdict::Linearizable
            }
            Err(Rejection::NotLinearizable(core)) => MonitorVerdict::Refuted(core),
            Err(Rejection::NotApplicable(reason)) => MonitorVerdict::NotApplicable(reason.into()),
        }
    }

    /// Decides one object and adds its result: by a monitor where it applies, else by a search, whose limit is returned if it was
    /// reached.
    fn decide(
        &self,
        object: &mut LinearObject,
        bound: Bound,
        tally: &mut CheckTally<'_>,
    ) -> Option<Exhausted> {
        match self.monitor(object, tally) {
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
                if self.model == Model::Bag && !expand_takes(&mut object.entries) {
                    return Some(Exhausted {
                        bound: "removals of unknown outcome",
                        linearized: 0,
                        visited: 0,
                    });
                }
                self.search(object, bound, tally)
            }
        }
    }

    /// Searches one object.
    fn search(
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
            results: tally.results,
        });
        verdict.details = Details::of(Figures::Linearizability(LinearizabilityFigures {
            objects: objects.len() as u64,
            operations: tally.operations as u64,
            unknown: tally.unknown as u64,
            by_monitor: tally.by_monitor,
            monitor: (tally.by_monitor > 0).then(|| monitor_name(self.model)),
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
            zones: Zones::new(values.len()),
            collections: CollectionMonitor::new(values.len()),
            values,
            indeterminate,
            checked: 0,
            operations: 0,
            unknown: 0,
            configurations: 0,
            failures: 0,
            violations: Vec::new(),
            essential_work: 0,
            results: BTreeMap::new(),
            exhausted: None,
            by_monitor: 0,
            search_reason: None,
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
        let key = || key_prefix(object);
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
            self.results.insert(key.to_string(), result);
        }
        if self.violations.len() < FINDINGS_MAX {
            let is_plain = !states.is_prepared();
            let words = ActionWords { model, states };
            let part = (object.key.as_ref(), &object.entries[..]);
            // Without an order there is no operation at which it ends.
            let essential = counterexample.prefix.as_ref().and_then(|_| {
                let mut states = ObjectStates::new(model, self.values);
                let failed = (counterexample.entry, is_plain);
                let work = &mut self.essential_work;
                essential(&object.entries, failed, core, &mut states, work)
            });
            let known = self.indeterminate;
            let excerpt = ViolationExcerpt::new(part, counterexample, &words, known);
            let excerpt =
                excerpt.with_order(&object.entries, counterexample, &words, known, essential);
            self.violations.push(excerpt);
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
                key_prefix(object)
            )
        });
    }
}

/// The monitor of a model.
fn monitor_name(model: Model) -> &'static str {
    collection_monitor::monitor(model).map_or("zones of unique values", |(_, name)| name)
}

/// "key 3: ", or nothing.
fn key_prefix(object: &LinearObject) -> String {
    let key = object.key.as_ref().map(Key::to_string);
    key.map_or(String::new(), |key| format!("key {key}: "))
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
        Box::new(LinearCheck {
            checker: *self,
            gathering: Gathering::new(self.model, aims.certify),
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
        let draft = places.as_ref();
        let draft = draft.map(|places| ProofDraft::new(self.checker.model, &values, places));
        let mut tally = CheckTally::new(&values, &indeterminate, draft);
        self.checker.decide_all(&mut objects, &mut tally);
        let draft = tally.draft.take();
        let positions = tally
            .violations
            .iter()
            .flat_map(ViolationExcerpt::positions);
        let ops = source.recall(&positions.collect())?;
        let findings = tally.violations.iter().map(|one| one.finding(&ops));
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
