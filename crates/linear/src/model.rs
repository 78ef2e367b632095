//! The sequential semantics of each data type.

use crate::values::{NumberedValues, StateId};
use seatrial_history::{Op, Value};

/// A data type with one object per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `read` and `write`; nil at first.
    Register,
    /// `read`, `write` and `cas`; nil at first.
    CasRegister,
    /// `acquire` and `release`; free at first. Owners are not checked, as in Knossos.
    Mutex,
    /// `get`, `put` and `append` of text per key; empty at first, as in Porcupine.
    KeyValue,
    /// `enqueue` at one end, `dequeue` and `peek` (or `front`) at the other; empty at first, as are all collections. A
    /// `dequeue` that completes with nil found the queue empty.
    FifoQueue,
    /// `push`, `pop` and `peek` (or `top`) at one end.
    Stack,
    /// `insert`; `poll` and `peek` of the least value.
    PriorityQueue,
    /// A multiset, or queue without order: `add`, and `take` of any element.
    Bag,
    /// `push-front`, `push-back`, `pop-front`, `pop-back`, `peek-front`, `peek-back`.
    Deque,
    /// `add` of an integer and `read`; 0 at first.
    Counter,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 10] = [
        Model::Register,
        Model::CasRegister,
        Model::Mutex,
        Model::KeyValue,
        Model::FifoQueue,
        Model::Stack,
        Model::PriorityQueue,
        Model::Bag,
        Model::Deque,
        Model::Counter,
    ];

    /// The name of its checker.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Register => "register",
            Model::CasRegister => "cas-register",
            Model::Mutex => "mutex",
            Model::KeyValue => "kv-map",
            Model::FifoQueue => "fifo-queue",
            Model::Stack => "stack",
            Model::PriorityQueue => "priority-queue",
            Model::Bag => "bag",
            Model::Deque => "deque",
            Model::Counter => "linearizable-counter",
        }
    }

    /// Is its state a collection of elements?
    pub(crate) const fn is_collection(self) -> bool {
        matches!(
            self,
            Model::FifoQueue | Model::Stack | Model::PriorityQueue | Model::Bag | Model::Deque
        )
    }

    /// The initial state of an object.
    pub(crate) fn initial(self) -> Value {
        match self {
            Model::Mutex => Value::text("free"),
            Model::KeyValue => Value::text(""),
            // The state of a collection is a list of values; this one stands for none.
            Model::Counter => Value::Int(0),
            _ => Value::Nil,
        }
    }
}

/// An end of a collection. A queue puts at the back and takes at the front, a stack does both at the back, bags and priority
/// queues ignore where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CollectionEnd {
    Front,
    Back,
}

/// What was taken from a collection, or looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Taken {
    Element(StateId),
    /// The collection was empty.
    Nothing,
    /// Whatever was there: the result is not known.
    Unknown,
}

/// What an operation does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Action {
    /// Possible only in this state, which it leaves.
    Read(StateId),
    /// Possible always; leads to this state.
    Write(StateId),
    /// Possible only in the first state; leads to the second.
    Cas(StateId, StateId),
    /// Possible always; adds this text to the state.
    Append(StateId),
    /// Possible always; adds this element.
    Put(CollectionEnd, StateId),
    /// Removes the element at this end, which must be what was taken.
    Take(CollectionEnd, Taken),
    /// A removal of unknown outcome from a bag, if it took this element; the second number is its own. It took one at most.
    TakeAny(StateId, u32),
    /// Possible only if this is the element at this end.
    Peek(CollectionEnd, Taken),
    /// Possible always; adds this integer.
    Increment(StateId),
}

/// What an operation does, with its values as the history has them.
pub(crate) enum OperationShape<'a> {
    /// A read of the initial state, of a map.
    ReadInitial,
    Read(&'a Value),
    Write(&'a Value),
    Cas(Value, Value),
    Append(&'a Value),
    Acquire,
    Release,
    Put(CollectionEnd, &'a Value),
    /// The result is `None` if it is not known.
    Take(CollectionEnd, Option<&'a Value>),
    Peek(CollectionEnd, &'a Value),
    Increment(&'a Value),
}

/// What an operation does, from its invocation and (for reads) its completion. `Ok(None)`: a read of unknown result, which
/// constrains nothing. The error names an operation that the model does not have.
pub(crate) fn shape<'a>(
    model: Model,
    invocation: &'a Op,
    completion: Option<&'a Op>,
) -> Result<Option<OperationShape<'a>>, String> {
    let completed = completion.filter(|op| op.is_ok());
    let argument = argument(invocation, completed);
    let f = invocation.f.as_str();
    if model.is_collection() {
        return collection_shape(model, invocation, completed);
    }
    let shape = match (model, f) {
        (Model::Register | Model::CasRegister | Model::Counter, "read")
        | (Model::KeyValue, "get" | "read") => {
            let Some(completed) = completed else {
                return Ok(None);
            };
            match (model, plain(&completed.value)) {
                (Model::KeyValue, Value::Nil) => OperationShape::ReadInitial,
                (_, value) => OperationShape::Read(value),
            }
        }
        (Model::Register | Model::CasRegister, "write") | (Model::KeyValue, "put" | "write") => {
            OperationShape::Write(argument)
        }
        (Model::CasRegister, "cas") => {
            let (from, to) = pair(argument).ok_or_else(|| {
                format!(
                    "op {}: `cas` needs two values, not {argument}",
                    invocation.index
                )
            })?;
            OperationShape::Cas(from, to)
        }
        (Model::Mutex, "acquire") => OperationShape::Acquire,
        (Model::Mutex, "release") => OperationShape::Release,
        (Model::KeyValue, "append") => OperationShape::Append(argument),
        (Model::Counter, "add") if matches!(argument, Value::Int(_)) => {
            OperationShape::Increment(argument)
        }
        (Model::Counter, "add") => {
            let index = invocation.index;
            return Err(format!(
                "op {index}: `add` needs an integer, not {argument}"
            ));
        }
        _ => return Err(unknown_function(model, invocation)),
    };
    Ok(Some(shape))
}

fn unknown_function(model: Model, invocation: &Op) -> String {
    let (index, f) = (invocation.index, invocation.f);
    format!("op {index}: a {} has no `{f}`", model.name())
}

/// What an operation on a collection does.
fn collection_shape<'a>(
    model: Model,
    invocation: &'a Op,
    completed: Option<&'a Op>,
) -> Result<Option<OperationShape<'a>>, String> {
    let argument = argument(invocation, completed);
    let result = completed.map(|op| plain(&op.value));
    let top = match model {
        Model::Stack => CollectionEnd::Back,
        _ => CollectionEnd::Front,
    };
    let shape = match (model, invocation.f.as_str()) {
        (Model::FifoQueue, "enqueue")
        | (Model::Stack, "push")
        | (Model::PriorityQueue, "insert")
        | (Model::Bag, "add" | "enqueue")
        | (Model::Deque, "push-back") => OperationShape::Put(CollectionEnd::Back, argument),
        (Model::Deque, "push-front") => OperationShape::Put(CollectionEnd::Front, argument),
        (Model::FifoQueue | Model::Bag, "dequeue")
        | (Model::Stack, "pop")
        | (Model::PriorityQueue, "poll")
        | (Model::Bag, "take") => OperationShape::Take(top, result),
        (Model::Deque, "pop-front") => OperationShape::Take(CollectionEnd::Front, result),
        (Model::Deque, "pop-back") => OperationShape::Take(CollectionEnd::Back, result),
        (Model::FifoQueue | Model::Stack | Model::PriorityQueue, "peek")
        | (Model::FifoQueue, "front")
        | (Model::Stack, "top") => match result {
            Some(result) => OperationShape::Peek(top, result),
            None => return Ok(None),
        },
        (Model::Deque, f @ ("peek-front" | "peek-back")) => match result {
            Some(result) if f == "peek-front" => OperationShape::Peek(CollectionEnd::Front, result),
            Some(result) => OperationShape::Peek(CollectionEnd::Back, result),
            None => return Ok(None),
        },
        (Model::FifoQueue | Model::Bag, "drain") => {
            let index = invocation.index;
            return Err(format!(
                "op {index}: a drain of unknown outcome may have taken any elements"
            ));
        }
        _ => return Err(unknown_function(model, invocation)),
    };
    if let OperationShape::Put(_, Value::Nil) = shape {
        let index = invocation.index;
        return Err(format!(
            "op {index}: nil is no element, it is the result of an empty collection"
        ));
    }
    Ok(Some(shape))
}

/// The action of a shape, with numbered values.
pub(crate) fn action(shape: &OperationShape<'_>, values: &mut NumberedValues) -> Action {
    let held = || Value::text("held");
    match shape {
        OperationShape::ReadInitial => Action::Read(0),
        OperationShape::Read(value) => Action::Read(values.intern(value)),
        OperationShape::Write(value) => Action::Write(values.intern(value)),
        OperationShape::Cas(from, to) => Action::Cas(values.intern(from), values.intern(to)),
        OperationShape::Append(text) => Action::Append(values.intern(text)),
        OperationShape::Put(end, element) => Action::Put(*end, values.intern(element)),
        OperationShape::Take(end, None) => Action::Take(*end, Taken::Unknown),
        OperationShape::Take(end, Some(element)) => Action::Take(*end, taken(element, values)),
        OperationShape::Peek(end, element) => Action::Peek(*end, taken(element, values)),
        OperationShape::Increment(integer) => Action::Increment(values.intern(integer)),
        OperationShape::Acquire => Action::Cas(0, values.intern(&held())),
        OperationShape::Release => Action::Cas(values.intern(&held()), 0),
    }
}

/// What a successful operation took.
fn taken(element: &Value, values: &mut NumberedValues) -> Taken {
    match element {
        Value::Nil => Taken::Nothing,
        element => Taken::Element(values.intern(element)),
    }
}

/// The argument of an operation: the invocation's value, or its successful completion's if that is nil.
fn argument<'a>(invocation: &'a Op, completed: Option<&'a Op>) -> &'a Value {
    match (plain(&invocation.value), completed) {
        (Value::Nil, Some(completed)) => plain(&completed.value),
        (argument, _) => argument,
    }
}

/// The value without its key.
pub(crate) fn plain(value: &Value) -> &Value {
    match value {
        Value::Keyed(_, value) => value,
        value => value,
    }
}

/// The two values of a compare-and-set.
pub(crate) fn pair(value: &Value) -> Option<(Value, Value)> {
    match value {
        Value::Cas(from, to) => Some((Value::Int(*from), Value::Int(*to))),
        Value::List(items) => match &items[..] {
            [from, to] => Some((from.clone(), to.clone())),
            _ => None,
        },
        _ => None,
    }
}
