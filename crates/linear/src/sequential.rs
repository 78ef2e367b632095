//! Models of the user's own, and the check of their operations.

use crate::essential::essential;
use crate::linearization_search::{Bound, Counterexample, Search, SearchResult, Transitions};
use crate::numbered_states::NumberedStates;
use crate::object::{NEVER, ObjectOperation};
use crate::values::{StateId, bounded_text};
use seatrial_checker::{EssentialOperations, LinearizationPoint, LinearizationWitness};
use seatrial_history::FixedMap;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::hash::Hash;

/// A data type by its sequential behaviour: what each operation does, and returns, when operations run one after another.
///
/// An operation has its result in it. One of unknown outcome has whatever the model takes for an unknown result; it may have
/// taken effect at any time after its invocation, or never.
///
/// ```
/// use seatrial_linear::{ObservedCall, SequentialModel, assert_linearizable};
///
/// /// A register that only grows.
/// struct MaxRegister;
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// enum Op {
///     Write(u64),
///     Read(u64), // with what it returned
/// }
///
/// impl SequentialModel for MaxRegister {
///     type State = u64;
///     type Operation = Op;
///     fn initial(&self) -> u64 {
///         0
///     }
///     fn step(&self, state: &u64, operation: &Op) -> Option<u64> {
///         match operation {
///             Op::Write(value) => Some(*state.max(value)),
///             Op::Read(value) => (value == state).then_some(*state),
///         }
///     }
///     fn is_read(&self, operation: &Op) -> bool {
///         matches!(operation, Op::Read(_))
///     }
/// }
///
/// // process, operation, invoked, completed
/// let history = [
///     ObservedCall::new(0, Op::Write(5), 1, 4),
///     ObservedCall::new(1, Op::Write(3), 2, 6),
///     ObservedCall::new(2, Op::Read(5), 5, 7),
/// ];
/// assert_linearizable(&MaxRegister, &history);
/// ```
pub trait SequentialModel {
    /// The state of an object.
    type State: Clone + Eq + Hash + Debug;
    /// An operation with its result. Equal operations do the same.
    type Operation: Clone + Eq + Hash + Debug;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after `operation`, or `None` if it cannot have its result in this state.
    fn step(&self, state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;

    /// Does this operation leave every state as it is in which it is possible? A hint, which makes the search faster.
    fn is_read(&self, _operation: &Self::Operation) -> bool {
        false
    }

    /// The object that this operation is on. Operations on different objects do not depend on one another, and are checked
    /// separately (Herlihy and Wing 1990, theorem 1).
    fn partition(&self, _operation: &Self::Operation) -> u64 {
        0
    }

    /// Bytes that a state points to, which count toward the bound on memory.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }
}

/// An operation of a history. Times are of any unit, as long as an operation that completed before another was invoked has the
/// smaller one; with equal times they were concurrent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedCall<O> {
    /// The client that ran it, for explanations.
    pub process: u64,
    /// The operation with its result.
    pub operation: O,
    /// Time of its invocation.
    pub invoked: u64,
    /// Time of its completion; `None` if its outcome is not known.
    pub completed: Option<u64>,
}

impl<O> ObservedCall<O> {
    /// An operation that completed.
    pub fn new(process: u64, operation: O, invoked: u64, completed: u64) -> ObservedCall<O> {
        ObservedCall {
            process,
            operation,
            invoked,
            completed: Some(completed),
        }
    }

    /// An operation of unknown outcome.
    pub fn pending(process: u64, operation: O, invoked: u64) -> ObservedCall<O> {
        ObservedCall {
            process,
            operation,
            invoked,
            completed: None,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linearizability {
    /// There is an order: the numbers of the operations that took effect, object by object.
    Linearizable(Vec<usize>),
    /// There is none.
    NotLinearizable(NoLinearization),
    /// The bound was reached first; the reason.
    Unknown(String),
}

/// Why there is no order of the operations on one object. Operations are numbered as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLinearization {
    /// The operation that no order can have before its completion.
    pub operation: usize,
    /// Operations that suffice for the contradiction, if every other one may have taken effect at any time after its
    /// invocation, or never. None of them can be left out if `linearization` says that they are minimal; else the bound on work
    /// was reached first.
    pub essential: Vec<usize>,
    /// A longest order that works, up to that completion.
    pub prefix: Vec<usize>,
    /// The same as data for a [`Finding`](seatrial_checker::Finding), with the states of the order as text.
    pub linearization: Box<LinearizationWitness>,
    text: String,
}

/// The explanation, in several lines.
impl fmt::Display for NoLinearization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Operations that an explanation lists of each kind.
const LISTED_MAX: usize = 12;

/// The states of a model, and its operations, numbered as they appear.
pub(crate) struct ModelStates<'m, M: SequentialModel> {
    model: &'m M,
    states: NumberedStates<M::State, u32>,
    operations: Vec<M::Operation>,
    /// Bytes that the states point to.
    heap_bytes: usize,
}

impl<'m, M: SequentialModel> ModelStates<'m, M> {
    /// Only the initial state; actions are numbers of `operations`.
    pub(crate) fn new(model: &'m M, operations: Vec<M::Operation>) -> ModelStates<'m, M> {
        ModelStates {
            model,
            states: NumberedStates::new(model.initial()),
            operations,
            heap_bytes: 0,
        }
    }

    /// The state of this number.
    pub(crate) fn state(&self, state: StateId) -> &M::State {
        self.states.get(state)
    }

    /// The same model and operations, with only the initial state.
    pub(crate) fn restarted(&self) -> ModelStates<'m, M> {
        ModelStates::new(self.model, self.operations.clone())
    }

    /// The operation of this action.
    pub(crate) fn operation(&self, action: u32) -> &M::Operation {
        &self.operations[action as usize]
    }
}

/// Operations numbered so that equal ones have one number: the number of each, and one operation for each number.
pub(crate) fn numbered_operations<'o, O: Clone + Eq + Hash + 'o>(
    all: impl Iterator<Item = &'o O>,
) -> (Vec<u32>, Vec<O>) {
    let mut numbers: FixedMap<&O, u32> = FixedMap::default();
    let mut operations = Vec::new();
    let of_each = all.map(|operation| {
        let fresh = operations.len() as u32;
        let number = *numbers.entry(operation).or_insert(fresh);
        if number == fresh {
            operations.push(operation.clone());
        }
        number
    });
    (of_each.collect(), operations)
}

impl<M: SequentialModel> Transitions for ModelStates<'_, M> {
    type Action = u32;

    fn step(&mut self, state: StateId, action: u32) -> Option<StateId> {
        let operation = &self.operations[action as usize];
        let apply = |state: &M::State| self.model.step(state, operation);
        let known = self.states.len();
        let next = self.states.step(state, action, apply);
        if self.states.len() > known {
            // Each state is kept twice: in its list, and as the key of its number.
            let state = self.states.get(known as StateId);
            self.heap_bytes += 2 * self.model.heap_bytes(state);
        }
        next
    }

    fn is_read(&self, action: u32) -> bool {
        self.model.is_read(&self.operations[action as usize])
    }

    fn bytes(&self) -> usize {
        self.states.bytes() + self.heap_bytes
    }
}

/// One object of a user's model: its operations as the search needs them, and their numbers in the history.
struct ModelObject<'a, M: SequentialModel> {
    model: &'a M,
    history: &'a [ObservedCall<M::Operation>],
    /// By entry: the number of the operation.
    numbers: Vec<usize>,
    entries: Vec<ObjectOperation<u32>>,
    operations: Vec<M::Operation>,
}

impl<'a, M: SequentialModel> ModelObject<'a, M> {
    /// The object with these operations; `ranks` has the rank of each time.
    fn new(
        model: &'a M,
        history: &'a [ObservedCall<M::Operation>],
        mut numbers: Vec<usize>,
        ranks: &BTreeMap<u64, u32>,
    ) -> ModelObject<'a, M> {
        numbers.sort_by_key(|&number| history[number].invoked);
        let all = numbers.iter().map(|&number| &history[number].operation);
        let (actions, operations) = numbered_operations(all);
        let mut entries = Vec::with_capacity(numbers.len());
        for (&number, action) in numbers.iter().zip(actions) {
            let observed = &history[number];
            let ret = observed.completed.map_or(NEVER, |time| ranks[&time]);
            let call = ranks[&observed.invoked];
            assert!(
                call <= ret,
                "operation {number} completes before its invocation"
            );
            entries.push(ObjectOperation { action, call, ret });
        }
        ModelObject {
            model,
            history,
            numbers,
            entries,
            operations,
        }
    }

    fn states(&self) -> ModelStates<'a, M> {
        ModelStates::new(self.model, self.operations.clone())
    }

    /// The operations in an order that works, or the first result that is none.
    fn check(&self, bound: Bound) -> Result<Vec<usize>, Linearizability> {
        let mut states = self.states();
        let mut search = Search::new(&self.entries, &mut states, bound);
        let result = search.find();
        match result {
            SearchResult::Linearizable => {
                let order = search.linearization();
                Ok(self.numbered(&order))
            }
            SearchResult::Exhausted { bound, linearized } => {
                Err(Linearizability::Unknown(format!(
                    "the bound on {bound} was reached, with {linearized} of {} operations linearized",
                    self.entries.len()
                )))
            }
            SearchResult::NotLinearizable(counterexample) => Err(Linearizability::NotLinearizable(
                self.contradiction(&counterexample, &mut states),
            )),
        }
    }

    fn numbered(&self, entries: &[usize]) -> Vec<usize> {
        entries.iter().map(|&entry| self.numbers[entry]).collect()
    }

    /// The contradiction that a search found, with its states.
    fn contradiction(
        &self,
        counterexample: &Counterexample,
        states: &mut ModelStates<'_, M>,
    ) -> NoLinearization {
        let failed = counterexample.entry;
        let mut work = 0;
        let essential = essential(&self.entries, (failed, true), None, states, &mut work);
        let before = self.before(failed);
        let (essential, is_minimal) = match essential {
            Some(essential) => (essential.entries, essential.is_minimal),
            // Not found within the work: all that completed by then.
            None => (self.completed_by(failed), false),
        };
        let witness = self.witness(counterexample, states);
        let others = before - essential.len();
        let prefix = counterexample.prefix.iter().flatten();
        let prefix: Vec<usize> = prefix.map(|&(entry, _)| entry).collect();
        NoLinearization {
            operation: self.numbers[failed],
            text: self.text(failed, (&essential, others), &prefix, &witness),
            essential: self.numbered(&essential),
            prefix: self.numbered(&prefix),
            linearization: Box::new(LinearizationWitness {
                essential: Some(EssentialOperations {
                    operations: self.numbered_u64(&essential),
                    others: others as u64,
                    is_minimal,
                }),
                ..witness
            }),
        }
    }

    /// The order that works and the states that it leads to, without essential operations.
    fn witness(
        &self,
        counterexample: &Counterexample,
        states: &ModelStates<'_, M>,
    ) -> LinearizationWitness {
        let text = |state: StateId| {
            let state = format_args!("{:?}", states.state(state));
            bounded_text(state, LinearizationWitness::STATE_LENGTH_MAX)
        };
        let prefix = counterexample.prefix.as_deref().unwrap_or_default();
        let left_out = prefix
            .len()
            .saturating_sub(LinearizationWitness::POINTS_MAX);
        let before = left_out.checked_sub(1).map_or(0, |last| prefix[last].1);
        let order = prefix[left_out..]
            .iter()
            .map(|&(entry, after)| LinearizationPoint {
                operation: self.numbers[entry] as u64,
                state: text(after),
            });
        let possible = &counterexample.states;
        let listed = possible.iter().take(LinearizationWitness::STATES_MAX);
        let concurrent = &counterexample.concurrent;
        let concurrent_listed = concurrent.len().min(LinearizationWitness::CONCURRENT_MAX);
        LinearizationWitness {
            operation: self.numbers[counterexample.entry] as u64,
            order: order.collect(),
            left_out: left_out as u64,
            before: text(before),
            states: listed.map(|&state| text(state)).collect(),
            states_left_out: possible
                .len()
                .saturating_sub(LinearizationWitness::STATES_MAX)
                as u64,
            concurrent: self.numbered_u64(&concurrent[..concurrent_listed]),
            concurrent_left_out: (concurrent.len() - concurrent_listed) as u64,
            essential: None,
        }
    }

    /// The contradiction in words; of the essential operations also the number of others.
    fn text(
        &self,
        failed: usize,
        (essential, others): (&[usize], usize),
        prefix: &[usize],
        witness: &LinearizationWitness,
    ) -> String {
        let states = &witness.states;
        let mut text = format!(
            "not linearizable: no order has {} before its completion.",
            self.describe(failed)
        );
        let noun = if essential.len() == 1 {
            "operation suffices"
        } else {
            "operations suffice"
        };
        let _ = write!(text, "\n{} {noun}", essential.len());
        if others > 0 {
            let others = match others {
                1 => "one".to_owned(),
                others => others.to_string(),
            };
            let _ = write!(text, ", whether or not the other {others} took effect");
        }
        text.push(':');
        for &entry in essential.iter().take(LISTED_MAX) {
            let _ = write!(text, "\n  {}", self.describe(entry));
        }
        Self::write_more(essential.len(), &mut text);
        let _ = write!(text, "\nA longest order that works:");
        let skipped = prefix.len().saturating_sub(LISTED_MAX);
        if skipped > 0 {
            let _ = write!(text, "\n  ({skipped} before)");
        }
        for &entry in &prefix[skipped..] {
            let _ = write!(text, "\n  {}", self.describe(entry));
        }
        let _ = write!(text, "\nPossible states then: {}", states.join(" or "));
        if witness.states_left_out > 0 {
            let _ = write!(text, " or one of {} others", witness.states_left_out);
        }
        text
    }

    fn numbered_u64(&self, entries: &[usize]) -> Vec<u64> {
        let numbers = entries.iter().map(|&entry| self.numbers[entry] as u64);
        numbers.collect()
    }

    fn write_more(all: usize, text: &mut String) {
        if let Some(more) = all.checked_sub(LISTED_MAX).filter(|&more| more > 0) {
            let _ = write!(text, "\n  and {more} more");
        }
    }

    fn describe(&self, entry: usize) -> String {
        let ObservedCall {
            process,
            operation,
            invoked,
            completed,
        } = &self.history[self.numbers[entry]];
        match completed {
            Some(completed) => {
                format!("{operation:?} (process {process}, {invoked} to {completed})")
            }
            None => format!("{operation:?} (process {process}, from {invoked}, outcome unknown)"),
        }
    }

    /// Number of operations that were invoked before the completion of `failed`: later ones come after it in every order.
    fn before(&self, failed: usize) -> usize {
        let end = self.entries[failed].ret;
        let before = self.entries.iter().filter(|entry| entry.call <= end);
        before.count()
    }

    /// The operations that completed no later than `failed`.
    fn completed_by(&self, failed: usize) -> Vec<usize> {
        let end = self.entries[failed].ret;
        let numbered = self.entries.iter().enumerate();
        let completed = numbered.filter(|(_, entry)| entry.is_required() && entry.ret <= end);
        completed.map(|(number, _)| number).collect()
    }
}

/// Checks a history against a model, object by object. Memory and time are bounded by `bound` for each object.
///
/// # Panics
/// If an operation completes before its invocation.
pub fn check_history<M: SequentialModel>(
    model: &M,
    history: &[ObservedCall<M::Operation>],
    bound: Bound,
) -> Linearizability {
    let mut times: Vec<u64> = history.iter().map(|one| one.invoked).collect();
    times.extend(history.iter().filter_map(|one| one.completed));
    times.sort_unstable();
    times.dedup();
    let ranks: BTreeMap<u64, u32> = times.into_iter().zip(0..).collect();
    let mut objects: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, observed) in history.iter().enumerate() {
        let object = model.partition(&observed.operation);
        objects.entry(object).or_default().push(number);
    }
    let mut order = Vec::new();
    let mut unknown = None;
    for numbers in objects.into_values() {
        match ModelObject::new(model, history, numbers, &ranks).check(bound) {
            Ok(part) => order.extend(part),
            Err(violation @ Linearizability::NotLinearizable(_)) => return violation,
            Err(other) => _ = unknown.get_or_insert(other),
        }
    }
    unknown.unwrap_or(Linearizability::Linearizable(order))
}

/// Asserts that a history is linearizable.
///
/// # Panics
/// If it is not, with the explanation, or if that is not known within the default [`Bound`].
#[track_caller]
pub fn assert_linearizable<M: SequentialModel>(model: &M, history: &[ObservedCall<M::Operation>]) {
    match check_history(model, history, Bound::default()) {
        Linearizability::Linearizable(_) => {}
        Linearizability::NotLinearizable(contradiction) => panic!("{contradiction}"),
        Linearizability::Unknown(reason) => {
            panic!("not known whether it is linearizable: {reason}")
        }
    }
}
