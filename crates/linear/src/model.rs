//! The sequential semantics of each data type.

use crate::values::{StateId, ValueTable};
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
}

impl Model {
    /// All models.
    pub const ALL: [Model; 4] = [
        Model::Register,
        Model::CasRegister,
        Model::Mutex,
        Model::KeyValue,
    ];

    /// The name of its checker.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Register => "register",
            Model::CasRegister => "cas-register",
            Model::Mutex => "mutex",
            Model::KeyValue => "kv-map",
        }
    }

    /// The initial state of an object.
    pub(crate) fn initial(self) -> Value {
        match self {
            Model::Register | Model::CasRegister => Value::Nil,
            Model::Mutex => Value::text("free"),
            Model::KeyValue => Value::text(""),
        }
    }
}

/// What an operation does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Possible only in this state, which it leaves.
    Read(StateId),
    /// Possible always; leads to this state.
    Write(StateId),
    /// Possible only in the first state; leads to the second.
    Cas(StateId, StateId),
    /// Possible always; adds this text to the state.
    Append(StateId),
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
    let shape = match (model, f) {
        (Model::Register | Model::CasRegister, "read") | (Model::KeyValue, "get" | "read") => {
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
        _ => {
            return Err(format!(
                "op {}: a {} has no `{f}`",
                invocation.index,
                model.name()
            ));
        }
    };
    Ok(Some(shape))
}

/// The action of a shape, with numbered values.
pub(crate) fn action(shape: &OperationShape<'_>, values: &mut ValueTable) -> Action {
    let held = || Value::text("held");
    match shape {
        OperationShape::ReadInitial => Action::Read(0),
        OperationShape::Read(value) => Action::Read(values.intern(value)),
        OperationShape::Write(value) => Action::Write(values.intern(value)),
        OperationShape::Cas(from, to) => Action::Cas(values.intern(from), values.intern(to)),
        OperationShape::Append(text) => Action::Append(values.intern(text)),
        OperationShape::Acquire => Action::Cas(0, values.intern(&held())),
        OperationShape::Release => Action::Cas(values.intern(&held()), 0),
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
