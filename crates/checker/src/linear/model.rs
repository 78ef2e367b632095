//! The sequential behaviour that a data type promises.

use seatrial_history::{Op, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A data type with one object per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `read` and `write`; nil at first.
    Register,
    /// `read`, `write` and `cas`; nil at first.
    CasRegister,
    /// `acquire` and `release`; free at first. Who holds it is not checked, as in Knossos.
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
}

/// The number of an interned value; also the state of an object. 0 is the initial state.
pub(super) type State = u32;

/// What an operation does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Possible only in this state, which it leaves.
    Read(State),
    /// Possible always; leads to this state.
    Write(State),
    /// Possible only in the first state; leads to the second.
    Cas(State, State),
    /// Possible always; adds this text to the state.
    Append(State),
}

/// The values of one object, numbered densely in order of appearance, and what appending makes of them.
pub(super) struct Values {
    numbers: BTreeMap<i64, State>,
    /// All other values, by their text.
    texts: BTreeMap<Arc<str>, State>,
    known: Vec<Value>,
    appended: BTreeMap<(State, State), State>,
    /// Bytes of text held.
    bytes: usize,
}

impl Values {
    /// Only the initial value of `model`.
    pub(super) fn new(model: Model) -> Values {
        let mut values = Values {
            numbers: BTreeMap::new(),
            texts: BTreeMap::new(),
            known: Vec::new(),
            appended: BTreeMap::new(),
            bytes: 0,
        };
        values.intern(&match model {
            Model::Register | Model::CasRegister => Value::Nil,
            Model::Mutex => Value::text("free"),
            Model::KeyValue => Value::text(""),
        });
        values
    }

    /// The number of `value`.
    pub(super) fn intern(&mut self, value: &Value) -> State {
        let next = self.known.len() as State;
        let number = match value {
            Value::Int(number) => *self.numbers.entry(*number).or_insert(next),
            other => {
                let text: Arc<str> = other.to_string().into();
                if let Some(known) = self.texts.get(&text) {
                    return *known;
                }
                self.bytes += 2 * text.len();
                self.texts.insert(text, next);
                next
            }
        };
        if number == next {
            self.known.push(value.clone());
        }
        number
    }

    /// The value of this number.
    pub(super) fn get(&self, state: State) -> &Value {
        &self.known[state as usize]
    }

    /// Bytes of text held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state after `action`, when it is possible in `state`.
    pub(super) fn step(&mut self, state: State, action: Action) -> Option<State> {
        match action {
            Action::Read(value) => (state == value).then_some(state),
            Action::Write(value) => Some(value),
            Action::Cas(from, to) => (state == from).then_some(to),
            Action::Append(text) => Some(self.append(state, text)),
        }
    }

    fn append(&mut self, state: State, text: State) -> State {
        if let Some(&known) = self.appended.get(&(state, text)) {
            return known;
        }
        let part = |state| match self.get(state) {
            Value::Text(text) => Arc::clone(text),
            other => other.to_string().into(),
        };
        let whole = Value::text(format!("{}{}", part(state), part(text)));
        let number = self.intern(&whole);
        self.appended.insert((state, text), number);
        number
    }
}

/// What an operation does, with its values as the history has them.
pub(super) enum Shape<'a> {
    /// A read of the initial state, of a map.
    ReadInitial,
    Read(&'a Value),
    Write(&'a Value),
    Cas(Value, Value),
    Append(&'a Value),
    Acquire,
    Release,
}

/// What an operation does, from its invocation and (for reads) its completion. `Ok(None)`: a read whose result is not
/// known constrains nothing. The error says what the model cannot make sense of.
pub(super) fn shape<'a>(
    model: Model,
    invocation: &'a Op,
    completion: Option<&'a Op>,
) -> Result<Option<Shape<'a>>, String> {
    let completed = completion.filter(|op| op.is_ok());
    let argument = argument(invocation, completed);
    let f = invocation.f.as_str();
    let shape = match (model, f) {
        (Model::Register | Model::CasRegister, "read") | (Model::KeyValue, "get" | "read") => {
            let Some(completed) = completed else {
                return Ok(None);
            };
            match (model, plain(&completed.value)) {
                (Model::KeyValue, Value::Nil) => Shape::ReadInitial,
                (_, value) => Shape::Read(value),
            }
        }
        (Model::Register | Model::CasRegister, "write") | (Model::KeyValue, "put" | "write") => {
            Shape::Write(argument)
        }
        (Model::CasRegister, "cas") => {
            let (from, to) = pair(argument).ok_or_else(|| {
                format!(
                    "op {}: `cas` needs two values, not {argument}",
                    invocation.index
                )
            })?;
            Shape::Cas(from, to)
        }
        (Model::Mutex, "acquire") => Shape::Acquire,
        (Model::Mutex, "release") => Shape::Release,
        (Model::KeyValue, "append") => Shape::Append(argument),
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

/// The same with its values numbered.
pub(super) fn action(shape: &Shape<'_>, values: &mut Values) -> Action {
    let held = || Value::text("held");
    match shape {
        Shape::ReadInitial => Action::Read(0),
        Shape::Read(value) => Action::Read(values.intern(value)),
        Shape::Write(value) => Action::Write(values.intern(value)),
        Shape::Cas(from, to) => Action::Cas(values.intern(from), values.intern(to)),
        Shape::Append(text) => Action::Append(values.intern(text)),
        Shape::Acquire => Action::Cas(0, values.intern(&held())),
        Shape::Release => Action::Cas(values.intern(&held()), 0),
    }
}

/// What an operation was invoked with; when the invocation does not say, what its successful completion says.
fn argument<'a>(invocation: &'a Op, completed: Option<&'a Op>) -> &'a Value {
    match (plain(&invocation.value), completed) {
        (Value::Nil, Some(completed)) => plain(&completed.value),
        (argument, _) => argument,
    }
}

/// The value without its key.
pub(super) fn plain(value: &Value) -> &Value {
    match value {
        Value::Keyed(_, value) => value,
        value => value,
    }
}

/// The two values of a compare-and-set.
pub(super) fn pair(value: &Value) -> Option<(Value, Value)> {
    match value {
        Value::Cas(from, to) => Some((Value::Int(*from), Value::Int(*to))),
        Value::List(items) => match &items[..] {
            [from, to] => Some((from.clone(), to.clone())),
            _ => None,
        },
        _ => None,
    }
}
