//! All possible states of an object while it is recorded, for any model.

use crate::history_model::HistoryModel;
use seatrial_history::{FixedMap, FixedSet};
use std::hash::Hash;

/// Configurations that one completion may visit.
pub(crate) const CONFIGURATIONS_MAX: usize = 1 << 13;
/// Operations under way on one object at a time.
const SLOTS_MAX: usize = 64;
/// Different operations of unknown outcome of one object.
const UNKNOWN_MAX: usize = 1 << 10;

/// An operation under way whose outcome is known.
#[derive(Clone, Debug)]
pub(crate) struct OpenCall<O> {
    /// Position of its invocation.
    pub(crate) call: u64,
    /// Position of its completion.
    pub(crate) end: u64,
    pub(crate) operation: O,
}

/// Equal operations of unknown outcome, and the positions of their invocations and completions.
#[derive(Clone, Debug)]
struct UnknownCalls<O> {
    operation: O,
    calls: Vec<(u64, Option<u64>)>,
}

/// One possible past.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PossiblePast<S> {
    state: S,
    /// By slot: has the operation under way taken effect?
    done: u64,
    /// Of each kind of operation of unknown outcome, how many took effect. Equal ones are interchangeable.
    used: Vec<u32>,
}

/// A configuration on the way to a completion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PastTrial<S> {
    configuration: PossiblePast<S>,
    /// The last step, if that could have waited.
    waited: Option<WaitedStep<S>>,
}

/// A step by an operation that [`HistoryModel::can_wait`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WaitedStep<S> {
    /// The state before it.
    before: S,
    step: usize,
    /// Such steps in a row, with this one.
    length: usize,
}

/// An operation that no order can have by its completion.
#[derive(Debug)]
pub(crate) struct RefutedCall<M: HistoryModel> {
    pub(crate) failed: OpenCall<M::Operation>,
    /// Operations under way of known outcome.
    pub(crate) concurrent: Vec<OpenCall<M::Operation>>,
    /// Operations of unknown outcome: invocation, completion, operation.
    pub(crate) unknown: Vec<(u64, Option<u64>, M::Operation)>,
    /// The possible states.
    pub(crate) states: Vec<M::State>,
}

/// One object, or one part of it, with all its possible configurations.
///
/// The loop is Lowe's just-in-time linearization ("Testing for Linearizability", 2017), breadth first: an operation takes effect
/// when a completion requires it, so only the operations under way, those of unknown outcome, and the configurations are kept.
///
/// Pruning, each rule exact: a possible read takes effect at once. Of equal operations under way only the one that ends first is
/// tried. Of configurations with one state and the same operations done, those remain that used the fewest operations of unknown
/// outcome. An operation of unknown outcome that changes nothing is not tried. An operation that can wait takes effect right
/// before one that depends on it: of two adjacent steps that commute, the one that can wait comes second.
///
/// Its downside: concurrent operations that do not commute have one configuration for each order (pushes of a stack). Past
/// [`CONFIGURATIONS_MAX`] the whole history must be checked.
pub(crate) struct PossibleStates<M: HistoryModel> {
    configurations: Vec<PossiblePast<M::State>>,
    /// By slot.
    open: Vec<Option<OpenCall<M::Operation>>>,
    unknown: Vec<UnknownCalls<M::Operation>>,
    /// Configurations visited so far.
    pub(crate) visited: u64,
}

/// Visited trials: the configurations in which the operation took effect, and all others.
type Explored<S> = (Vec<PossiblePast<S>>, FixedSet<PastTrial<S>>);

impl<M: HistoryModel> PossibleStates<M> {
    /// Only the initial state.
    pub(crate) fn new(model: &M) -> PossibleStates<M> {
        PossibleStates {
            configurations: vec![PossiblePast {
                state: model.initial(),
                done: 0,
                used: Vec::new(),
            }],
            open: Vec::new(),
            unknown: Vec::new(),
            visited: 0,
        }
    }

    /// Operations and configurations that are held.
    pub(crate) fn held(&self) -> u64 {
        let unknown: usize = self.unknown.iter().map(|one| one.calls.len()).sum();
        (self.open.iter().flatten().count() + unknown + self.configurations.len()) as u64
    }

    /// Is it as an object without operations is?
    pub(crate) fn is_initial(&self, model: &M) -> bool {
        self.unknown.is_empty()
            && self.open.iter().all(Option::is_none)
            && matches!(&self.configurations[..], [one] if one.state == model.initial())
    }

    /// Adds an operation that will succeed. The error is a bound that was reached.
    pub(crate) fn begin(&mut self, call: OpenCall<M::Operation>) -> Result<(), String> {
        let free = self.open.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.open.len());
        if slot >= SLOTS_MAX {
            return Err(format!("more than {SLOTS_MAX} operations at a time"));
        }
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.open[slot] = Some(call);
        Ok(())
    }

    /// Adds an operation of unknown outcome. The error is a bound that was reached.
    pub(crate) fn begin_unknown(
        &mut self,
        (call, end): (u64, Option<u64>),
        operation: M::Operation,
    ) -> Result<(), String> {
        let mut known = self.unknown.iter_mut();
        if let Some(known) = known.find(|one| one.operation == operation) {
            known.calls.push((call, end));
            return Ok(());
        }
        if self.unknown.len() >= UNKNOWN_MAX {
            return Err(format!(
                "more than {UNKNOWN_MAX} different operations of unknown outcome"
            ));
        }
        let calls = vec![(call, end)];
        self.unknown.push(UnknownCalls { operation, calls });
        for one in &mut self.configurations {
            one.used.push(0);
        }
        Ok(())
    }

    /// Completes the operation that was invoked at `call`. Returns the refutation if it cannot have taken effect; the error is a
    /// bound that was reached.
    pub(crate) fn end(&mut self, model: &M, call: u64) -> Result<Option<RefutedCall<M>>, String> {
        let is_it = |one: &Option<OpenCall<M::Operation>>| {
            one.as_ref().is_some_and(|open| open.call == call)
        };
        let slot = self.open.iter().position(is_it);
        let slot = slot.expect("an operation that ends is open");
        let (reached, visited) = self.explore(model, slot)?;
        self.visited += visited.len() as u64;
        let failed = self.open[slot].take().expect("the slot is taken");
        if reached.is_empty() {
            let states = visited.into_iter().map(|trial| trial.configuration.state);
            return Ok(Some(self.refuted(failed, states)));
        }
        self.configurations = without_dominated(reached);
        self.settle_unknown();
        Ok(None)
    }

    fn refuted(
        &self,
        failed: OpenCall<M::Operation>,
        states: impl Iterator<Item = M::State>,
    ) -> RefutedCall<M> {
        let mut distinct: Vec<M::State> = Vec::new();
        for state in states {
            if distinct.len() < STATES_LISTED && !distinct.contains(&state) {
                distinct.push(state);
            }
        }
        let unknown = self.unknown.iter().flat_map(|one| {
            let calls = one.calls.iter();
            calls.map(|&(call, end)| (call, end, one.operation.clone()))
        });
        RefutedCall {
            failed,
            concurrent: self.open.iter().flatten().cloned().collect(),
            unknown: unknown.take(UNKNOWN_LISTED).collect(),
            states: distinct,
        }
    }

    /// Explores until the operation of this slot has taken effect.
    fn explore(&self, model: &M, slot: usize) -> Result<Explored<M::State>, String> {
        let mut reached = Vec::new();
        let mut visited: FixedSet<PastTrial<M::State>> = FixedSet::default();
        let start = self.configurations.iter().cloned();
        let mut trials: Vec<PastTrial<M::State>> = start
            .map(|configuration| PastTrial {
                configuration,
                waited: None,
            })
            .collect();
        while let Some(mut trial) = trials.pop() {
            self.read_all(model, &mut trial);
            let done = trial.configuration.done;
            if (done >> slot) & 1 == 1 {
                reached.push(PossiblePast {
                    done: done & !(1 << slot),
                    ..trial.configuration
                });
            } else if visited.insert(trial.clone()) {
                self.add_successors(model, slot, &trial, &mut trials);
            }
            if visited.len() + reached.len() > CONFIGURATIONS_MAX {
                return Err(format!(
                    "more than {CONFIGURATIONS_MAX} configurations at a time"
                ));
            }
        }
        Ok((reached, visited))
    }

    /// Linearizes all possible reads: they change no state, so they exclude nothing.
    fn read_all(&self, model: &M, trial: &mut PastTrial<M::State>) {
        let PossiblePast { state, done, .. } = &mut trial.configuration;
        for (slot, open) in self.open.iter().enumerate() {
            if let Some(open) = open
                && (*done >> slot) & 1 == 0
                && model.is_read(&open.operation)
                && model.step(state, &open.operation).is_some()
            {
                *done |= 1 << slot;
                trial.waited = None;
            }
        }
    }

    /// The operation of a step: the open ones by slot, then the kinds of unknown outcome.
    fn operation(&self, step: usize) -> Option<&M::Operation> {
        match step.checked_sub(SLOTS_MAX) {
            None => self.open.get(step)?.as_ref().map(|open| &open.operation),
            Some(kind) => self.unknown.get(kind).map(|one| &one.operation),
        }
    }

    /// The first step whose operation is equal to that of this step.
    fn kind(&self, step: usize) -> usize {
        let operation = self.operation(step);
        let open = 0..self.open.len();
        let steps = open.chain((0..self.unknown.len()).map(|kind| SLOTS_MAX + kind));
        let mut equal = steps.filter(|&other| self.operation(other) == operation);
        equal.next().expect("a step is equal to itself")
    }

    /// Can this operation under way take effect next, among equal ones?
    fn is_first(&self, slot: usize, done: u64) -> bool {
        let Some(open) = &self.open[slot] else {
            return false;
        };
        let others = self.open.iter().enumerate();
        let mut others = others.filter_map(|(at, other)| Some((at, other.as_ref()?)));
        (done >> slot) & 1 == 0
            && others.all(|(at, other)| {
                (done >> at) & 1 == 1
                    || at == slot
                    || (other.end, other.call) > (open.end, open.call)
                    || other.operation != open.operation
            })
    }

    /// Can an operation of this kind of unknown outcome take effect next? Equal ones that certainly do come first.
    fn is_left(&self, kind: usize, configuration: &PossiblePast<M::State>) -> bool {
        let one = &self.unknown[kind];
        let mut open = self.open.iter().enumerate();
        (configuration.used[kind] as usize) < one.calls.len()
            && open.all(|(slot, open)| {
                let is_done = (configuration.done >> slot) & 1 == 1;
                is_done
                    || open
                        .as_ref()
                        .is_none_or(|open| open.operation != one.operation)
            })
    }

    fn add_successors(
        &self,
        model: &M,
        slot: usize,
        trial: &PastTrial<M::State>,
        trials: &mut Vec<PastTrial<M::State>>,
    ) {
        let PossiblePast { state, done, used } = &trial.configuration;
        let slots = (0..self.open.len()).filter(|&open| self.is_first(open, *done));
        let kinds = 0..self.unknown.len();
        let kinds = kinds.filter(|&kind| self.is_left(kind, &trial.configuration));
        for step in slots.chain(kinds.map(|kind| SLOTS_MAX + kind)) {
            let operation = self.operation(step).expect("an operation of each step");
            let is_unknown = step >= SLOTS_MAX;
            let Some(next) = model.step(state, operation) else {
                continue;
            };
            if is_unknown && (next == *state || model.is_read(operation)) {
                continue;
            }
            let can_wait = step != slot && model.can_wait(operation);
            let before = trial.waited.as_ref();
            if before.is_some_and(|before| self.is_late(model, before, (step, can_wait), &next)) {
                continue;
            }
            let (mut done, mut used) = (*done, used.clone());
            match step.checked_sub(SLOTS_MAX) {
                None => done |= 1 << step,
                Some(kind) => used[kind] += 1,
            }
            let length = before.map_or(0, |before| before.length) + 1;
            trials.push(PastTrial {
                waited: can_wait.then(|| WaitedStep {
                    before: state.clone(),
                    step,
                    length,
                }),
                configuration: PossiblePast {
                    state: next,
                    done,
                    used,
                },
            });
        }
    }

    /// Is there another order of these two steps, or without the one that could wait, that is tried instead?
    fn is_late(
        &self,
        model: &M,
        before: &WaitedStep<M::State>,
        (step, can_wait): (usize, bool),
        next: &M::State,
    ) -> bool {
        if can_wait {
            // A row of steps that could wait is tried in one order: kind by kind, equal ones as elsewhere.
            return self.kind(step) < self.kind(before.step)
                || before.length >= model.waiting_max();
        }
        let operation = self.operation(step).expect("an operation of each step");
        let waited = self
            .operation(before.step)
            .expect("an operation of each step");
        let first = model.step(&before.before, operation);
        let both = first.and_then(|state| model.step(&state, waited));
        both.as_ref() == Some(next)
    }

    /// Forgets operations of unknown outcome that took effect in every configuration.
    fn settle_unknown(&mut self) {
        for kind in (0..self.unknown.len()).rev() {
            let used = self.configurations.iter().map(|one| one.used[kind]);
            let settled = used.min().expect("some configuration remains");
            if settled == 0 {
                continue;
            }
            self.unknown[kind].calls.drain(..settled as usize);
            let is_empty = self.unknown[kind].calls.is_empty();
            for one in &mut self.configurations {
                one.used[kind] -= settled;
                if is_empty {
                    one.used.remove(kind);
                }
            }
            if is_empty {
                self.unknown.remove(kind);
            }
        }
    }
}

/// States that a refutation lists.
const STATES_LISTED: usize = 16;
/// Operations of unknown outcome that a refutation lists.
const UNKNOWN_LISTED: usize = 8;

/// The configurations of which no other one has the same state and operations, with fewer of unknown outcome.
fn without_dominated<S: Clone + Eq + Hash>(all: Vec<PossiblePast<S>>) -> Vec<PossiblePast<S>> {
    let mut groups: FixedMap<(S, u64), Vec<Vec<u32>>> = FixedMap::default();
    let covers = |few: &[u32], many: &[u32]| few.iter().zip(many).all(|(few, many)| few <= many);
    for one in all {
        let group = groups.entry((one.state, one.done)).or_default();
        if !group.iter().any(|known| covers(known, &one.used)) {
            group.retain(|known| !covers(&one.used, known));
            group.push(one.used);
        }
    }
    let groups = groups.into_iter().flat_map(|((state, done), group)| {
        let group = group.into_iter();
        group.map(move |used| PossiblePast {
            state: state.clone(),
            done,
            used,
        })
    });
    groups.collect()
}
