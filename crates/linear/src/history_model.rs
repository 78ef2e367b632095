//! Data types that recorded histories are checked against: the seam between a sequential model and a checker.

use crate::object::NEVER;
use crate::sequential::SequentialModel;
use crate::values::NumberedValues;
use crate::{Model, model};
use seatrial_history::chunk::ValueView;
use seatrial_history::{Op, Symbol, Value};
use std::fmt::{self, Debug};

/// A [`SequentialModel`] that also reads the operations of recorded histories: [`ModelChecker`](crate::ModelChecker) makes a
/// checker of it.
///
/// An operation of unknown outcome (`info`, or never completed) may take effect at any time after its invocation, or never: its
/// model operation is one of unknown result. Where it may have one of several effects, a state of the model is the set of all
/// states that are possible then, and a step leads to the union of theirs.
///
/// ```
/// use seatrial_checker::{Checker, Validity};
/// use seatrial_history::{History, Op, OpType, Process, Value};
/// use seatrial_linear::{HistoryModel, ModelChecker, SequentialModel, Unfit, ValueNumbers};
///
/// /// A register that only grows.
/// struct MaxRegister;
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// enum MaxOperation {
///     Write(i64),
///     Read(i64), // with its result
/// }
///
/// impl SequentialModel for MaxRegister {
///     type State = i64;
///     type Operation = MaxOperation;
///     fn initial(&self) -> i64 {
///         0
///     }
///     fn step(&self, state: &i64, operation: &MaxOperation) -> Option<i64> {
///         match operation {
///             MaxOperation::Write(value) => Some(*state.max(value)),
///             MaxOperation::Read(value) => (value == state).then_some(*state),
///         }
///     }
/// }
///
/// impl HistoryModel for MaxRegister {
///     fn name(&self) -> &'static str {
///         "max-register"
///     }
///     fn operation(
///         &self,
///         invocation: &Op,
///         completion: Option<&Op>,
///         _: &mut ValueNumbers,
///     ) -> Result<Option<MaxOperation>, Unfit> {
///         let result = completion.filter(|op| op.is_ok()).map(|op| op.value.clone());
///         match (invocation.f.as_str(), &invocation.value, result) {
///             ("write", Value::Int(value), _) => Ok(Some(MaxOperation::Write(*value))),
///             ("read", _, Some(Value::Int(value))) => Ok(Some(MaxOperation::Read(value))),
///             ("read", _, None) => Ok(None), // a read of unknown result
///             _ => Err(Unfit::new(invocation, "a max-register has `read` and `write` of integers")),
///         }
///     }
/// }
///
/// let write = Op::invoke(Process::Client(0), "write", Value::Int(5));
/// let read = Op::invoke(Process::Client(1), "read", Value::Nil);
/// let ops = [
///     write.clone(),
///     write.complete(OpType::Ok, Value::Int(5)),
///     read.clone(),
///     read.complete(OpType::Ok, Value::Int(3)),
/// ];
/// let history = History::from_unindexed(ops.into());
/// let verdict = ModelChecker::new(MaxRegister).check(&history);
/// assert_eq!(verdict.valid, Validity::Invalid);
/// ```
pub trait HistoryModel: SequentialModel {
    /// The name of its checker.
    fn name(&self) -> &'static str;

    /// What its verdicts call the consistency model.
    fn consistency_model(&self) -> String {
        "linearizable".into()
    }

    /// Why no history can be checked against it, if a parameter is missing.
    fn missing_parameter(&self) -> Option<String> {
        None
    }

    /// The model operation of an operation that did not fail. `completion` is its completion, or `None` if it never completed; an
    /// operation without its invocation has its completion as both.
    ///
    /// `Ok(None)`: it constrains nothing (a read of unknown result). The error names an operation that the model does not have;
    /// the verdict is then unknown.
    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        values: &mut ValueNumbers,
    ) -> Result<Option<Self::Operation>, Unfit>;

    /// The model operation of a successful operation from the values of its invocation and completion as they are stored, without
    /// building an [`Op`]: several times as fast. `None`: [`HistoryModel::operation`] is asked.
    fn stored_operation(
        &self,
        _function: Symbol,
        _argument: ValueView<'_>,
        _result: ValueView<'_>,
        _values: &mut ValueNumbers,
    ) -> Option<Self::Operation> {
        None
    }

    /// Adds the parts of the state that an operation reads or writes; none: all of it. Parts that operations connect are one
    /// object, all others are checked separately (linearizability is local: Herlihy and Wing 1990, theorem 1).
    fn accesses(&self, _operation: &Self::Operation, _parts: &mut Vec<u64>) {}

    /// Is every operation on one part of the state, but for a few on all of it? Then the parts are followed separately while a
    /// test runs, and an operation on all of it leaves the check to the end of the history.
    fn has_independent_parts(&self) -> bool {
        false
    }

    /// Can the possible states be followed while a test runs? Not if a state is as long as the history.
    fn has_small_states(&self) -> bool {
        true
    }

    /// May this operation take effect right before one that depends on it, without a loss of orders? It must be possible in every
    /// state, and commute with all others of which this is true. An operation must depend on no more than
    /// [`HistoryModel::waiting_max`] of them at a time. A hint: with it, concurrent operations of this kind are cheap to follow.
    fn can_wait(&self, _operation: &Self::Operation) -> bool {
        false
    }

    /// On how many operations that [`HistoryModel::can_wait`] an operation may depend.
    fn waiting_max(&self) -> usize {
        usize::MAX
    }

    /// Drops operations of unknown outcome on whose effect no other operation depends: each makes the search dearer.
    fn drop_unobserved(&self, _calls: &mut Vec<ModelCall<Self::Operation>>) {}

    /// Decides an object without a search, where a faster method applies. Calls are in the order of their invocations.
    fn monitor(
        &self,
        _calls: &[ModelCall<Self::Operation>],
        _values: &ValueNumbers,
    ) -> MonitorDecision<Self::Operation> {
        MonitorDecision::Search("there is no monitor of its kind".into())
    }

    /// The name of the method of [`HistoryModel::monitor`].
    fn monitor_name(&self) -> &'static str {
        "monitor of the model"
    }

    /// The name of the data type in certificates, with its parameters, if the verifier knows it.
    fn certificate_type(&self) -> Option<String> {
        None
    }

    /// The parts of the state that an operation reads which accesses all of it: for certificates, which may be about some parts.
    fn parts_read(&self, _operation: &Self::Operation) -> Vec<u32> {
        Vec::new()
    }

    /// The numbers of the calls in the order of a linearization, without a search, for an object or component that
    /// [`HistoryModel::monitor`] found to be linearizable. `None`: it is searched.
    fn linearize(&self, _calls: &[ModelCall<Self::Operation>]) -> Option<Vec<u32>> {
        None
    }

    /// What explanations write after the function of an operation: " 3", " from 1 to 2", or nothing.
    fn argument(&self, operation: &Self::Operation, _values: &ValueNumbers) -> String {
        format!(" as {operation:?}")
    }

    /// A state in words, as in "then it is 3".
    fn describe_state(&self, state: &Self::State, _values: &ValueNumbers) -> String {
        format!("it is {state:?}")
    }
}

/// An operation of a history as the model has it. Positions are those of the history; `a` precedes `b` if `a.ret < b.call`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCall<O> {
    /// What it does.
    pub operation: O,
    /// Position of its invocation.
    pub call: u32,
    /// Position of its successful completion; [`ModelCall::NEVER`] if its outcome is unknown.
    pub ret: u32,
}

impl ModelCall<()> {
    /// The completion of an operation of unknown outcome.
    pub const NEVER: u32 = NEVER;
}

impl<O> ModelCall<O> {
    /// Did it certainly take effect?
    pub fn is_certain(&self) -> bool {
        self.ret != NEVER
    }
}

/// What [`HistoryModel::monitor`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorDecision<O> {
    /// The object is linearizable.
    Linearizable,
    /// It is not.
    Refuted(Refutation<O>),
    /// The method does not apply, for this reason; the object is searched.
    Search(String),
}

/// Why an object is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation<O> {
    /// Operations that alone have no order, in the order of their invocations; each may be weaker than that of the history.
    pub calls: Vec<ModelCall<O>>,
    /// The contradiction in one line, where these operations mean nothing without the others; the first of them is then the one
    /// that cannot take place. Else a search of them finds the words.
    pub reason: Option<String>,
}

/// An operation that a model does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    reason: String,
}

impl Unfit {
    /// For this operation, by its index.
    pub fn new(op: &Op, reason: impl fmt::Display) -> Unfit {
        Unfit {
            reason: format!("op {}: {reason}", op.index),
        }
    }

    /// With a reason that names the operation.
    pub(crate) fn of_reason(reason: String) -> Unfit {
        Unfit { reason }
    }

    /// For an operation whose function the model does not have.
    pub fn function(op: &Op, model: &str) -> Unfit {
        Unfit::new(
            op,
            format_args!("{} {model} has no `{}`", article(model), op.f),
        )
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unfit {}

/// The article of a name.
fn article(name: &str) -> &'static str {
    if name.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// The values of a history, numbered in order of appearance: equal values have one number. Operations with numbers are small, and
/// cheap to compare.
pub struct ValueNumbers(NumberedValues);

impl ValueNumbers {
    /// The number of nil.
    pub const NIL: u32 = 0;

    pub(crate) fn new() -> ValueNumbers {
        // A register is nil at first.
        ValueNumbers(NumberedValues::new(Model::Register))
    }

    /// The number of a value.
    pub fn number(&mut self, value: &Value) -> u32 {
        self.0.intern(value)
    }

    /// The number of an integer.
    pub fn integer(&mut self, integer: i64) -> u32 {
        self.0.integer(integer)
    }

    /// The value of a number.
    ///
    /// # Panics
    /// If there are not as many values.
    pub fn value(&self, number: u32) -> Value {
        self.0.get(number)
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Debug for ValueNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueNumbers").field(&self.count()).finish()
    }
}

/// The value of an operation without the key of its object.
pub fn plain_value(value: &Value) -> &Value {
    model::plain(value)
}

/// The elements of a list, set or pair.
pub fn list_items(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::List(items) | Value::Set(items) => Some(items.to_vec()),
        Value::Cas(..) => model::pair(value).map(|(first, second)| vec![first, second]),
        _ => None,
    }
}
