//! The checker of a history model.

use crate::configuration_window::ConfigurationWindows;
use crate::essential::essential;
use crate::explanation::{NONLINEARIZABLE, ObjectWords, ViolationExcerpt};
use crate::history_model::{HistoryModel, ModelCall, MonitorDecision, Refutation, ValueNumbers};
use crate::linearizable::{CONFIGURATIONS_FIRST, FINDINGS_MAX, RESULTS_MAX};
use crate::linearization_search::{Bound, Counterexample, Search, SearchResult};
use crate::model_gathering::{GatheredCalls, KeyedCalls, ModelGathering};
use crate::model_parts::CallComponents;
use crate::model_proof::ModelProof;
use crate::object::{ObjectOperation, key_prefix};
use crate::online_windows::OnlineWindows;
use crate::sequential::{ModelStates, numbered_operations};
use crate::values::StateId;
use seatrial_checker::{
    Aims, Checked, Checker, Details, Figures, Finding, KeyFigures, KeyResult,
    LinearizabilityFigures, OnlineChecker, Progress, Validity, Verdict, check_source,
};
use seatrial_history::{Chunk, ChunkSource, FixedMap, History, Key, SourceError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Checks the histories of a [`HistoryModel`], each key on its own (linearizability is local).
///
/// Loop: operations are gathered from the chunks; then one key after another is decided, in the order of keys: by the model's
/// monitor if it applies; else its operations are divided into components that share no part of the state, and each of these is
/// decided by the monitor or by a search. Memory is bounded by the model operations with 12 bytes each, the values, and the
/// configurations of the largest component.
///
/// After [`Checker::stop_at_first`] there are two rounds: each key's first search is short, the keys left get the whole bound.
#[derive(Debug)]
pub struct ModelChecker<M> {
    model: Arc<M>,
    bound: Bound,
    stops_at_first: bool,
}

impl<M> Clone for ModelChecker<M> {
    fn clone(&self) -> ModelChecker<M> {
        ModelChecker {
            model: Arc::clone(&self.model),
            ..*self
        }
    }
}

impl<M: HistoryModel> ModelChecker<M> {
    /// The checker of this model, with the default bound.
    pub fn new(model: M) -> ModelChecker<M> {
        ModelChecker {
            model: Arc::new(model),
            bound: Bound::default(),
            stops_at_first: false,
        }
    }

    /// With another bound, for each component of an object.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> ModelChecker<M> {
        ModelChecker { bound, ..self }
    }

    /// Checks a whole history, which is read once more.
    fn verdict(
        &self,
        gathered: &mut GatheredCalls<M::Operation>,
        proof: Option<ModelProof>,
    ) -> ModelTally {
        let mut tally = ModelTally {
            proof,
            ..ModelTally::default()
        };
        let bound = if self.stops_at_first && gathered.objects.len() > 1 {
            Bound {
                configurations_max: self.bound.configurations_max.min(CONFIGURATIONS_FIRST),
                ..self.bound
            }
        } else {
            self.bound
        };
        let mut left: Vec<usize> = Vec::new();
        for number in 0..gathered.objects.len() {
            let object = &mut gathered.objects[number];
            tally.count(&object.calls);
            self.model.drop_unobserved(&mut object.calls);
            let object = &gathered.objects[number];
            if let Some(reason) = self.decide(object, bound, gathered, &mut tally) {
                if bound == self.bound {
                    tally.exhausted.get_or_insert(reason);
                } else {
                    left.push(number);
                }
            }
            if self.stops_at_first && tally.failures > 0 {
                // The keys left for a second search were not decided.
                tally.checked -= left.len();
                return tally;
            }
        }
        for (searched, &number) in left.iter().enumerate() {
            let object = &gathered.objects[number];
            if let Some(reason) = self.decide(object, self.bound, gathered, &mut tally) {
                tally.exhausted.get_or_insert(reason);
            }
            if tally.failures > 0 {
                tally.checked -= left.len() - searched - 1;
                break;
            }
        }
        assert!(
            tally.checked == gathered.objects.len() || tally.failures > 0,
            "{} of {} objects were checked",
            tally.checked,
            gathered.objects.len()
        );
        tally
    }

    /// Decides one object and adds its result. Returns why it is not decided.
    fn decide(
        &self,
        object: &KeyedCalls<M::Operation>,
        bound: Bound,
        gathered: &GatheredCalls<M::Operation>,
        tally: &mut ModelTally,
    ) -> Option<String> {
        let decider = PartDecider {
            model: &*self.model,
            key: object.key.as_ref(),
            bound,
            values: &gathered.values,
            indeterminate: &gathered.indeterminate,
        };
        let reason = match decider.monitor(&object.calls, tally) {
            Err(reason) => reason,
            Ok(is_linearizable) => {
                tally.by_monitor += 1;
                if is_linearizable {
                    decider.prove_all(&object.calls, tally);
                }
                return None;
            }
        };
        let Some(components) = CallComponents::new(&*self.model, &object.calls) else {
            tally.note_search(object.key.as_ref(), &reason);
            return match decider.search(&object.calls, tally) {
                Ok(order) => {
                    tally.add_order(&object.calls, order.as_slice());
                    None
                }
                Err(reason) => Some(reason),
            };
        };
        let (mut exhausted, mut is_searched) = (None, false);
        let mut orders: Vec<Vec<u32>> = Vec::new();
        for numbers in components.iter() {
            let calls = numbers
                .iter()
                .map(|&number| object.calls[number as usize].clone());
            let calls: Vec<_> = calls.collect();
            let order = match decider.monitor(&calls, tally) {
                // One violation of a key is enough.
                Ok(false) => return None,
                Ok(true) => decider.order(&calls, tally),
                Err(reason) => {
                    tally.note_search(object.key.as_ref(), &reason);
                    is_searched = true;
                    match decider.search(&calls, tally) {
                        Ok(None) => return None,
                        Ok(order) => order,
                        Err(reason) => {
                            exhausted.get_or_insert(reason);
                            None
                        }
                    }
                }
            };
            let order = order.into_iter().flatten();
            orders.push(order.map(|number| numbers[number as usize]).collect());
        }
        tally.by_monitor += u64::from(!is_searched);
        // An object that is not decided may be searched again.
        if exhausted.is_none() {
            tally.add_order(&object.calls, &orders);
        }
        exhausted
    }
}

/// Decides parts of one object.
struct PartDecider<'a, M: HistoryModel> {
    model: &'a M,
    key: Option<&'a Key>,
    bound: Bound,
    values: &'a ValueNumbers,
    indeterminate: &'a FixedMap<u32, u32>,
}

/// The words of a model for the actions and states of a search.
struct ModelWords<'a, 'm, M: HistoryModel> {
    model: &'m M,
    states: &'a ModelStates<'m, M>,
    values: &'a ValueNumbers,
}

impl<M: HistoryModel> ObjectWords<u32> for ModelWords<'_, '_, M> {
    fn argument(&self, action: u32) -> String {
        self.model
            .argument(self.states.operation(action), self.values)
    }

    fn state(&self, state: StateId) -> String {
        self.model
            .describe_state(self.states.state(state), self.values)
    }
}

impl<M: HistoryModel> PartDecider<'_, M> {
    /// Is the part linearizable, by the monitor? The error is why it must be searched.
    fn monitor(
        &self,
        calls: &[ModelCall<M::Operation>],
        tally: &mut ModelTally,
    ) -> Result<bool, String> {
        match self.model.monitor(calls, self.values) {
            MonitorDecision::Linearizable => Ok(true),
            MonitorDecision::Search(reason) => Err(reason),
            MonitorDecision::Refuted(refutation) => {
                if let Some(proof) = &mut tally.proof {
                    let named = refutation.calls.iter();
                    let named: Vec<_> = named.map(|call| (call.call, call.ret)).collect();
                    proof.add_refuted(self.model, (self.key, calls), &named, None);
                }
                self.explain(calls.len(), &refutation, tally);
                Ok(false)
            }
        }
    }

    /// An order of a part that the monitor found to be linearizable, if a certificate is wanted.
    fn order(&self, calls: &[ModelCall<M::Operation>], tally: &mut ModelTally) -> Option<Vec<u32>> {
        let proof = tally.proof.as_mut()?;
        if let Some(order) = self.model.linearize(calls) {
            return Some(order);
        }
        let (entries, mut states) = self.entries(calls);
        let mut search = Search::new(&entries, &mut states, self.bound);
        if search.find() != SearchResult::Linearizable {
            proof.give_up("no linearization was constructed within the bound of the search");
            return None;
        }
        let order = search.linearization().into_iter();
        Some(order.map(|entry| entry as u32).collect())
    }

    /// Adds the linearization of an object that the monitor decided as a whole: component by component.
    fn prove_all(&self, calls: &[ModelCall<M::Operation>], tally: &mut ModelTally) {
        if tally.proof.is_none() {
            return;
        }
        let Some(components) = CallComponents::new(self.model, calls) else {
            let order = self.order(calls, tally);
            return tally.add_order(calls, order.as_slice());
        };
        let mut orders: Vec<Vec<u32>> = Vec::new();
        for numbers in components.iter() {
            let part = numbers.iter().map(|&number| calls[number as usize].clone());
            let part: Vec<_> = part.collect();
            let order = self.order(&part, tally).into_iter().flatten();
            orders.push(order.map(|number| numbers[number as usize]).collect());
        }
        tally.add_order(calls, &orders);
    }

    /// An order of the part if it is linearizable, by a search; it is empty unless a certificate is wanted. The error is the
    /// bound that was reached.
    fn search(
        &self,
        calls: &[ModelCall<M::Operation>],
        tally: &mut ModelTally,
    ) -> Result<Option<Vec<u32>>, String> {
        let (entries, mut states) = self.entries(calls);
        let mut search = Search::new(&entries, &mut states, self.bound);
        let result = search.find();
        let visited = search.table.len();
        tally.configurations += visited;
        match result {
            SearchResult::Linearizable => {
                let is_wanted = tally.proof.is_some();
                let order = is_wanted.then(|| search.linearization());
                let order = order.into_iter().flatten();
                Ok(Some(order.map(|entry| entry as u32).collect()))
            }
            SearchResult::NotLinearizable(counterexample) => {
                if let Some(proof) = &mut tally.proof {
                    let until = entries.get(counterexample.entry).map(|entry| entry.ret);
                    proof.add_refuted(self.model, (self.key, calls), &[], until);
                }
                self.violation(&entries, &states, &counterexample, None, tally);
                Ok(None)
            }
            SearchResult::Exhausted { bound, linearized } => {
                let of = calls.iter().filter(|call| call.is_certain()).count();
                Err(format!(
                    "{}the bound on {bound} was reached after {visited} configurations, \
                     with {linearized} of {of} operations linearized",
                    key_prefix(self.key)
                ))
            }
        }
    }

    /// The calls as the search needs them.
    fn entries<'m>(
        &'m self,
        calls: &[ModelCall<M::Operation>],
    ) -> (Vec<ObjectOperation<u32>>, ModelStates<'m, M>) {
        let (actions, operations) = numbered_operations(calls.iter().map(|call| &call.operation));
        let entries = calls
            .iter()
            .zip(actions)
            .map(|(call, action)| ObjectOperation {
                action,
                call: call.call,
                ret: call.ret,
            });
        let states = ModelStates::new(self.model, operations);
        (entries.collect(), states)
    }

    /// Adds the violation that a monitor found in a part with `all` operations.
    fn explain(&self, all: usize, refutation: &Refutation<M::Operation>, tally: &mut ModelTally) {
        let Refutation { calls, reason } = refutation;
        assert!(!calls.is_empty(), "a refutation names operations");
        let (entries, mut states) = self.entries(calls);
        let out_of = (all > calls.len()).then_some(all);
        // Without an order, which operations they are must do.
        let bare = || Counterexample {
            concurrent: (1..entries.len()).collect(),
            out_of,
            ..Counterexample::default()
        };
        if reason.is_some() {
            return self.violation(&entries, &states, &bare(), reason.clone(), tally);
        }
        let (result, visited) = Search::new(&entries, &mut states, self.bound).run();
        tally.configurations += visited;
        assert!(
            result != SearchResult::Linearizable,
            "two ways to decide an object contradict each other"
        );
        let counterexample = match result {
            SearchResult::NotLinearizable(counterexample) => Counterexample {
                out_of,
                ..counterexample
            },
            _ => bare(),
        };
        self.violation(&entries, &states, &counterexample, None, tally);
    }

    /// Adds a violation.
    fn violation(
        &self,
        entries: &[ObjectOperation<u32>],
        states: &ModelStates<'_, M>,
        counterexample: &Counterexample,
        reason: Option<String>,
        tally: &mut ModelTally,
    ) {
        tally.failures += 1;
        if let Some(key) = self.key.filter(|_| tally.results.len() < RESULTS_MAX) {
            let result = KeyResult::Invalid([NONLINEARIZABLE].into());
            tally.results.insert(key.to_string(), result);
        }
        if tally.violations.len() < FINDINGS_MAX {
            let words = ModelWords {
                model: self.model,
                states,
                values: self.values,
            };
            let part = (self.key, entries);
            let essential = counterexample.prefix.as_ref().and_then(|_| {
                let failed = (counterexample.entry, true);
                let work = &mut tally.essential_work;
                essential(entries, failed, None, &mut states.restarted(), work)
            });
            let known = self.indeterminate;
            let excerpt = ViolationExcerpt::new(part, counterexample, &words, known);
            let mut excerpt = excerpt.with_order(entries, counterexample, &words, known);
            if let Some(essential) = essential {
                excerpt.set_essential(entries, essential, known);
            }
            tally.violations.push(match reason {
                Some(reason) => excerpt.with_reason(reason),
                None => excerpt,
            });
        }
    }
}

/// The results of all objects so far.
#[derive(Default)]
struct ModelTally {
    /// Objects that were decided.
    checked: usize,
    operations: usize,
    /// Operations of unknown outcome.
    unknown: usize,
    configurations: u64,
    /// Objects that are not linearizable.
    failures: u64,
    violations: Vec<ViolationExcerpt>,
    /// Work for the essential operations of these.
    essential_work: usize,
    results: BTreeMap<String, KeyResult>,
    /// Why the first object whose search reached its bound is not decided.
    exhausted: Option<String>,
    by_monitor: u64,
    /// Why the first object that was searched was.
    search_reason: Option<String>,
    /// The certificate to be, if one is wanted.
    proof: Option<ModelProof>,
}

impl ModelTally {
    fn count<O>(&mut self, calls: &[ModelCall<O>]) {
        self.checked += 1;
        self.operations += calls.len();
        self.unknown += calls.iter().filter(|call| !call.is_certain()).count();
    }

    /// Adds the linearization of an object, if a certificate is wanted.
    fn add_order<O>(&mut self, calls: &[ModelCall<O>], components: &[Vec<u32>]) {
        if let Some(proof) = &mut self.proof {
            proof.add_order(calls, components);
        }
    }

    fn note_search(&mut self, key: Option<&Key>, reason: &str) {
        self.search_reason
            .get_or_insert_with(|| format!("{}{reason}", key_prefix(key)));
    }

    /// The verdict after all objects, of which `keys` has the first one's key.
    fn conclude(
        self,
        (objects, is_keyed): (usize, bool),
        (monitor, bound): (&'static str, Bound),
        findings: Vec<Finding>,
        verdict: &mut Verdict,
    ) {
        let by_key = is_keyed.then_some(KeyFigures {
            keys: objects as u64,
            keys_checked: self.checked as u64,
            keys_invalid: self.failures,
            results: self.results,
        });
        verdict.details = Details::of(Figures::Linearizability(LinearizabilityFigures {
            objects: objects as u64,
            operations: self.operations as u64,
            unknown: self.unknown as u64,
            by_monitor: self.by_monitor,
            monitor: (self.by_monitor > 0).then_some(monitor),
            search_reason: self.search_reason,
            configurations: self.configurations,
            configurations_max: bound.configurations_max,
            findings_max: FINDINGS_MAX,
            by_key,
        }));
        if self.failures > 0 {
            verdict.valid = Validity::Invalid;
            verdict.anomalies.insert(NONLINEARIZABLE, self.failures);
            verdict.not = vec!["linearizable"];
            verdict.findings = findings;
            if self.checked < objects {
                verdict.reason = Some(format!(
                    "checking stopped at the first key that is not linearizable: {} of {objects} keys \
                     checked; --all-keys checks all",
                    self.checked
                ));
            }
        } else if let Some(reason) = self.exhausted {
            verdict.reason = Some(reason.clone());
            verdict.valid = Validity::Unknown(reason);
        }
    }
}

impl<M> Checker for ModelChecker<M>
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
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
        let model = &*self.model;
        if aims.early && model.has_small_states() && model.missing_parameter().is_none() {
            let windows = ConfigurationWindows {
                model: Arc::clone(&self.model),
                checker: self.clone(),
            };
            return Box::new(OnlineWindows::new(windows, aims.certify));
        }
        Box::new(ModelCheck {
            checker: self.clone(),
            certifies: aims.certify,
            gathering: ModelGathering::new(),
        })
    }

    fn stop_at_first(&mut self) {
        self.stops_at_first = true;
    }
}

/// A check that gathers the operations and decides at the end.
struct ModelCheck<M: HistoryModel> {
    checker: ModelChecker<M>,
    /// Is a certificate wanted?
    certifies: bool,
    gathering: ModelGathering<M>,
}

impl<M> OnlineChecker for ModelCheck<M>
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    fn name(&self) -> &'static str {
        self.checker.name()
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        self.gathering.push(&self.checker.model, chunk)
    }

    fn progress(&mut self) -> Progress {
        Progress {
            held: self.gathering.len() as u64,
            ..Progress::default()
        }
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let checker = self.checker;
        let mut verdict = Verdict::valid(checker.name());
        verdict.model = Some(checker.model.consistency_model());
        if let Some(reason) = checker.model.missing_parameter() {
            return Ok(verdict.unknown(reason).into());
        }
        let mut gathered = match self.gathering.finish(&checker.model) {
            Ok(gathered) => gathered,
            Err(reason) => return Ok(verdict.unknown(reason).into()),
        };
        let data_type = checker.model.certificate_type();
        let data_type = data_type.filter(|_| self.certifies);
        let orphans = std::mem::take(&mut gathered.orphans);
        let proof = data_type.map(|name| ModelProof::new(name, orphans));
        let mut tally = checker.verdict(&mut gathered, proof);
        let proof = tally.proof.take();
        let violations = tally.violations.iter();
        let positions = violations.flat_map(ViolationExcerpt::positions).collect();
        let ops = source.recall(&positions)?;
        let findings = tally.violations.iter().map(|one| one.finding(&ops));
        let findings: Option<Vec<Finding>> = findings.collect();
        let findings = findings.ok_or("the history became shorter while it was checked")?;
        let objects = &gathered.objects;
        // Keys are those of all objects, or of none.
        let is_keyed = objects.first().is_some_and(|object| object.key.is_some());
        let parameters = (checker.model.monitor_name(), checker.bound);
        tally.conclude(
            (objects.len(), is_keyed),
            parameters,
            findings,
            &mut verdict,
        );
        if self.certifies && proof.is_none() {
            verdict.details.unproven = Some("the verifier does not know its model".into());
        }
        let mut certificate = None;
        if let Some(proof) = proof
            && !matches!(verdict.valid, Validity::Unknown(_))
        {
            let is_valid = verdict.valid == Validity::Valid;
            match proof.certificate(is_valid, &gathered.values, source)? {
                Ok(made) => certificate = Some(made),
                Err(reason) => verdict.details.unproven = Some(reason),
            }
        }
        Ok((verdict, certificate).into())
    }
}
