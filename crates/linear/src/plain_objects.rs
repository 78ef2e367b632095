//! The data types of [`Model`] by their sequential behaviour alone, for checks beside a test.

use crate::configuration_window::ConfigurationWindows;
use crate::history_model::{HistoryModel, Unfit, ValueNumbers};
use crate::linearizable::Linearizable;
use crate::model::{CollectionEnd, Model, OperationShape, shape};
use crate::sequential::SequentialModel;
use seatrial_history::{Op, Value};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

/// Counters, texts by key, stacks, priority queues and deques as a [`HistoryModel`]: states are values, not numbers, so a long
/// test leaves no table behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainObjects(Model);

impl PlainObjects {
    /// The windows of a checker's data type; `None` for types that have others.
    pub(crate) fn windows(
        checker: Linearizable,
    ) -> Option<ConfigurationWindows<PlainObjects, Linearizable>> {
        let is_followed = matches!(
            checker.model,
            Model::Counter | Model::KeyValue | Model::Stack | Model::PriorityQueue | Model::Deque
        );
        is_followed.then(|| ConfigurationWindows {
            model: Arc::new(PlainObjects(checker.model)),
            checker,
        })
    }
}

/// A value; two are equal if they print alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlainValue {
    Integer(i64),
    Text(Arc<str>),
    /// Anything else, as it prints.
    Printed(Arc<str>),
}

impl PlainValue {
    fn of(value: &Value) -> PlainValue {
        match value {
            Value::Int(integer) => PlainValue::Integer(*integer),
            Value::Text(text) => PlainValue::Text(Arc::clone(text)),
            other => PlainValue::Printed(other.to_string().into()),
        }
    }

    fn printed(&self) -> String {
        match self {
            PlainValue::Integer(integer) => integer.to_string(),
            PlainValue::Text(text) => Value::Text(Arc::clone(text)).to_string(),
            PlainValue::Printed(text) => text.to_string(),
        }
    }

    /// The text that an append adds, or adds to.
    fn text(&self) -> String {
        match self {
            PlainValue::Text(text) => text.to_string(),
            other => other.printed(),
        }
    }

    /// The order of a priority queue: the least integer first, everything else after all integers, by its text.
    fn priority(&self, other: &PlainValue) -> Ordering {
        match (self, other) {
            (PlainValue::Integer(one), PlainValue::Integer(other)) => one.cmp(other),
            (PlainValue::Integer(_), _) => Ordering::Less,
            (_, PlainValue::Integer(_)) => Ordering::Greater,
            _ => self.printed().cmp(&other.printed()),
        }
    }
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlainState {
    Value(PlainValue),
    /// The elements, front first; those of a priority queue in its order.
    Elements(Vec<PlainValue>),
}

/// What was taken from a collection, or looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlainTaken {
    Element(PlainValue),
    Nothing,
    Unknown,
}

/// An operation with its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PlainOperation {
    Read(PlainValue),
    Write(PlainValue),
    Append(PlainValue),
    Increment(i64),
    Put(CollectionEnd, PlainValue),
    Take(CollectionEnd, PlainTaken),
    Peek(CollectionEnd, PlainTaken),
}

impl SequentialModel for PlainObjects {
    type State = PlainState;
    type Operation = PlainOperation;

    fn initial(&self) -> PlainState {
        if self.0.is_collection() {
            return PlainState::Elements(Vec::new());
        }
        PlainState::Value(PlainValue::of(&self.0.initial()))
    }

    fn step(&self, state: &PlainState, operation: &PlainOperation) -> Option<PlainState> {
        match state {
            PlainState::Value(value) => {
                let next = match operation {
                    PlainOperation::Read(read) => (read == value).then(|| value.clone())?,
                    PlainOperation::Write(next) => next.clone(),
                    PlainOperation::Append(text) => {
                        PlainValue::Text(format!("{}{}", value.text(), text.text()).into())
                    }
                    PlainOperation::Increment(by) => match value {
                        PlainValue::Integer(sum) => PlainValue::Integer(sum.wrapping_add(*by)),
                        _ => value.clone(),
                    },
                    _ => return None, // a collection's
                };
                Some(PlainState::Value(next))
            }
            PlainState::Elements(elements) => self
                .step_elements(elements, operation)
                .map(PlainState::Elements),
        }
    }

    fn is_read(&self, operation: &PlainOperation) -> bool {
        matches!(
            operation,
            PlainOperation::Read(_)
                | PlainOperation::Peek(..)
                | PlainOperation::Take(_, PlainTaken::Nothing)
        )
    }
}

impl PlainObjects {
    fn step_elements(
        self,
        elements: &[PlainValue],
        operation: &PlainOperation,
    ) -> Option<Vec<PlainValue>> {
        let place_at = |end: CollectionEnd| match end {
            CollectionEnd::Front => elements.len().checked_sub(1).map(|_| 0),
            CollectionEnd::Back => elements.len().checked_sub(1),
        };
        let mut next = elements.to_vec();
        match operation {
            PlainOperation::Put(end, element) => {
                let place = match (self.0, end) {
                    (Model::PriorityQueue, _) => {
                        elements.partition_point(|other| other.priority(element) == Ordering::Less)
                    }
                    (_, CollectionEnd::Front) => 0,
                    (_, CollectionEnd::Back) => elements.len(),
                };
                next.insert(place, element.clone());
            }
            PlainOperation::Take(end, taken) | PlainOperation::Peek(end, taken) => {
                let place = place_at(*end);
                let is_possible = match (taken, place) {
                    (PlainTaken::Unknown, _) | (PlainTaken::Nothing, None) => true,
                    (PlainTaken::Element(element), Some(place)) => elements[place] == *element,
                    _ => false,
                };
                if !is_possible {
                    return None;
                }
                if let (PlainOperation::Take(..), Some(place)) = (operation, place) {
                    next.remove(place);
                }
            }
            _ => return None, // a register's
        }
        Some(next)
    }
}

/// What was taken, of a result.
fn taken(result: &Value) -> PlainTaken {
    match result {
        Value::Nil => PlainTaken::Nothing,
        element => PlainTaken::Element(PlainValue::of(element)),
    }
}

impl HistoryModel for PlainObjects {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        _: &mut ValueNumbers,
    ) -> Result<Option<PlainOperation>, Unfit> {
        let shape = shape(self.0, invocation, completion).map_err(Unfit::of_reason)?;
        let Some(shape) = shape else {
            return Ok(None);
        };
        Ok(Some(match shape {
            OperationShape::ReadInitial => PlainOperation::Read(PlainValue::of(&self.0.initial())),
            OperationShape::Read(value) => PlainOperation::Read(PlainValue::of(value)),
            OperationShape::Write(value) => PlainOperation::Write(PlainValue::of(value)),
            OperationShape::Append(value) => PlainOperation::Append(PlainValue::of(value)),
            OperationShape::Increment(Value::Int(by)) => PlainOperation::Increment(*by),
            OperationShape::Put(end, value) => PlainOperation::Put(end, PlainValue::of(value)),
            OperationShape::Take(end, None) => PlainOperation::Take(end, PlainTaken::Unknown),
            OperationShape::Take(end, Some(value)) => PlainOperation::Take(end, taken(value)),
            OperationShape::Peek(end, value) => PlainOperation::Peek(end, taken(value)),
            _ => return Err(Unfit::function(invocation, self.name())),
        }))
    }

    /// Insertions into a priority queue, and additions to a counter, commute: each can wait until a removal or a read needs it.
    fn can_wait(&self, operation: &PlainOperation) -> bool {
        match operation {
            PlainOperation::Put(..) => self.0 == Model::PriorityQueue,
            PlainOperation::Increment(_) => self.0 == Model::Counter,
            _ => false,
        }
    }

    /// A removal from a priority queue takes one element.
    fn waiting_max(&self) -> usize {
        match self.0 {
            Model::PriorityQueue => 1,
            _ => usize::MAX,
        }
    }

    fn argument(&self, operation: &PlainOperation, _: &ValueNumbers) -> String {
        match operation {
            PlainOperation::Read(value)
            | PlainOperation::Write(value)
            | PlainOperation::Append(value)
            | PlainOperation::Put(_, value) => format!(" {}", value.printed()),
            PlainOperation::Increment(by) => format!(" {by}"),
            PlainOperation::Take(_, taken) | PlainOperation::Peek(_, taken) => match taken {
                PlainTaken::Element(element) => format!(" {}", element.printed()),
                PlainTaken::Nothing => " of nothing".into(),
                PlainTaken::Unknown => " of unknown result".into(),
            },
        }
    }

    fn describe_state(&self, state: &PlainState, _: &ValueNumbers) -> String {
        match state {
            PlainState::Value(value) => format!("it is {}", value.printed()),
            PlainState::Elements(elements) => {
                let mut text = String::from("it is [");
                for (number, element) in elements.iter().take(ELEMENTS_LISTED).enumerate() {
                    let space = if number == 0 { "" } else { " " };
                    let _ = write!(text, "{space}{}", element.printed());
                }
                if elements.len() > ELEMENTS_LISTED {
                    let _ = write!(text, " … {} elements", elements.len());
                }
                text + "]"
            }
        }
    }
}

/// Elements of a state that an explanation lists.
const ELEMENTS_LISTED: usize = 16;
