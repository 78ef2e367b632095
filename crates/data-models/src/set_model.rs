//! A set: additions, removals, tests of one element, and reads of all elements.

use super::set_elements::decide_elements;
use super::set_reads::{decide_reads, growing_order};
use seatrial_history::chunk::ValueView;
use seatrial_history::{FixedMap, Op, Symbol, Value};
use seatrial_linear::SequentialModel;
use seatrial_linear::{
    HistoryModel, ModelCall, MonitorDecision, Unfit, ValueNumbers, list_items, plain_value,
};

/// A set, empty at first: `add`, `remove` and `contains` of an element, `read` of all elements.
///
/// A success of `add` and `remove` may carry a truth value, whether the set changed; with any other value that is not known. A
/// success of `contains` carries one (also as `[element found]`).
///
/// A set is a product of its elements, so each one is decided alone: in O(n) where each element is added once
/// (`set_elements.rs`), else by a search, whose states are two. Reads of the whole set tie the elements together: sets from which
/// nothing is removed are decided in O(n) (`set_reads.rs`), others by a search, after a check of each element alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetModel;

/// What an operation does to an element, with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetAction {
    /// Adds it, which was absent.
    Add,
    /// Removes it, which was there.
    Remove,
    /// Adds it; it is not known whether it was there.
    Put,
    /// Removes it if it is there; not known whether it was.
    Discard,
    /// It is there. Also an addition that finds it.
    Present,
    /// It is absent. Also a removal that does not find it.
    Absent,
}

/// An operation on a set. Elements are numbered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetOperation {
    /// On one element.
    One(SetAction, u32),
    /// A read of these elements, ascending.
    Read(Box<[u32]>),
}

impl SequentialModel for SetModel {
    /// The elements, ascending.
    type State = Vec<u32>;
    type Operation = SetOperation;

    fn initial(&self) -> Vec<u32> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u32>, operation: &SetOperation) -> Option<Vec<u32>> {
        let (action, element) = match operation {
            SetOperation::Read(elements) => {
                return (state[..] == elements[..]).then(|| state.clone());
            }
            SetOperation::One(action, element) => (*action, *element),
        };
        let place = state.binary_search(&element);
        let mut next = state.clone();
        match (action, place) {
            (SetAction::Add | SetAction::Put, Err(place)) => next.insert(place, element),
            (SetAction::Remove | SetAction::Discard, Ok(place)) => _ = next.remove(place),
            (SetAction::Put | SetAction::Present, Ok(_))
            | (SetAction::Discard | SetAction::Absent, Err(_)) => {}
            _ => return None,
        }
        Some(next)
    }

    fn is_read(&self, operation: &SetOperation) -> bool {
        matches!(
            operation,
            SetOperation::Read(_) | SetOperation::One(SetAction::Present | SetAction::Absent, _)
        )
    }

    fn heap_bytes(&self, state: &Vec<u32>) -> usize {
        state.capacity() * size_of::<u32>()
    }
}

impl HistoryModel for SetModel {
    fn name(&self) -> &'static str {
        "linearizable-set"
    }

    fn operation(
        &self,
        invocation: &Op,
        completion: Option<&Op>,
        values: &mut ValueNumbers,
    ) -> Result<Option<SetOperation>, Unfit> {
        let completed = completion.filter(|op| op.is_ok());
        let result = completed.map(|op| plain_value(&op.value));
        if invocation.f == "read" {
            let Some(result) = result else {
                return Ok(None);
            };
            let items = match result {
                Value::Nil => Vec::new(),
                other => list_items(other).ok_or_else(|| {
                    Unfit::new(
                        invocation,
                        format_args!("a `read` returns all elements, not {other}"),
                    )
                })?,
            };
            let mut elements: Vec<u32> = items.iter().map(|item| values.number(item)).collect();
            elements.sort_unstable();
            elements.dedup();
            return Ok(Some(SetOperation::Read(elements.into())));
        }
        let argument = match (plain_value(&invocation.value), result) {
            (Value::Nil, Some(result)) => result,
            (argument, _) => argument,
        };
        let truth = match result {
            Some(Value::Bool(truth)) if argument != &Value::Bool(*truth) => Some(*truth),
            Some(other) => list_items(other).and_then(|items| match &items[..] {
                [element, Value::Bool(truth)] if element == argument => Some(*truth),
                _ => None,
            }),
            None => None,
        };
        let action = match (invocation.f.as_str(), truth) {
            ("add", truth) => add(truth),
            ("remove", truth) => remove(truth),
            ("contains", Some(truth)) => contains(truth),
            ("contains", None) if result.is_none() => return Ok(None),
            ("contains", None) => {
                return Err(Unfit::new(invocation, "`contains` returns true or false"));
            }
            _ => return Err(Unfit::function(invocation, "set")),
        };
        Ok(Some(SetOperation::One(action, values.number(argument))))
    }

    fn stored_operation(
        &self,
        function: Symbol,
        argument: ValueView<'_>,
        result: ValueView<'_>,
        values: &mut ValueNumbers,
    ) -> Option<SetOperation> {
        let ValueView::Int(element) = argument else {
            return None;
        };
        let truth = match result {
            ValueView::Bool(truth) => Some(truth),
            ValueView::Int(same) if same == element => None,
            _ => return None,
        };
        let action = match (function.as_str(), truth) {
            ("add", truth) => add(truth),
            ("remove", truth) => remove(truth),
            ("contains", Some(truth)) => contains(truth),
            _ => return None,
        };
        Some(SetOperation::One(action, values.integer(element)))
    }

    fn certificate_type(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn parts_read(&self, operation: &SetOperation) -> Vec<u32> {
        match operation {
            SetOperation::Read(elements) => elements.to_vec(),
            SetOperation::One(..) => Vec::new(),
        }
    }

    fn linearize(&self, calls: &[ModelCall<SetOperation>]) -> Option<Vec<u32>> {
        growing_order(calls)
    }

    fn has_independent_parts(&self) -> bool {
        true
    }

    fn accesses(&self, operation: &SetOperation, parts: &mut Vec<u64>) {
        if let SetOperation::One(_, element) = operation {
            parts.push(u64::from(*element));
        }
    }

    /// A pending addition is needed only if its element is seen, a pending removal only if it is seen to be absent.
    fn drop_unobserved(&self, calls: &mut Vec<ModelCall<SetOperation>>) {
        if calls.iter().all(ModelCall::is_certain) {
            return;
        }
        let mut seen: FixedMap<u32, [bool; 2]> = FixedMap::default();
        for call in calls.iter() {
            if let (SetOperation::One(_, element), false) = (&call.operation, call.is_certain()) {
                seen.insert(*element, [false; 2]);
            }
        }
        for call in calls.iter() {
            match &call.operation {
                SetOperation::One(action, element) => {
                    let Some([present, absent]) = seen.get_mut(element) else {
                        continue;
                    };
                    *present |= matches!(action, SetAction::Present | SetAction::Remove);
                    *absent |= matches!(action, SetAction::Absent | SetAction::Add);
                }
                SetOperation::Read(elements) => {
                    for (element, [present, absent]) in &mut seen {
                        let found = elements.binary_search(element).is_ok();
                        *present |= found;
                        *absent |= !found;
                    }
                }
            }
        }
        calls.retain(|call| match &call.operation {
            _ if call.is_certain() => true,
            SetOperation::One(action, element) => {
                let [present, absent] = seen[element];
                match action {
                    SetAction::Put => present,
                    SetAction::Discard => absent,
                    _ => true,
                }
            }
            SetOperation::Read(_) => false,
        });
    }

    fn monitor(
        &self,
        calls: &[ModelCall<SetOperation>],
        values: &ValueNumbers,
    ) -> MonitorDecision<SetOperation> {
        let has_reads = calls
            .iter()
            .any(|call| matches!(call.operation, SetOperation::Read(_)));
        if has_reads {
            decide_reads(calls, values)
        } else {
            decide_elements(calls, values)
        }
    }

    fn monitor_name(&self) -> &'static str {
        "set of unique elements"
    }

    fn argument(&self, operation: &SetOperation, values: &ValueNumbers) -> String {
        let (action, element) = match operation {
            SetOperation::Read(elements) => return format!(" {}", shown(elements, values)),
            SetOperation::One(action, element) => (action, values.value(*element)),
        };
        match action {
            SetAction::Add | SetAction::Put | SetAction::Remove | SetAction::Discard => {
                format!(" {element}")
            }
            SetAction::Present => format!(" {element}, which was there"),
            SetAction::Absent => format!(" {element}, which was absent"),
        }
    }

    fn describe_state(&self, state: &Vec<u32>, values: &ValueNumbers) -> String {
        format!("it is {}", shown(state, values))
    }
}

/// Elements that a text lists.
const SHOWN_MAX: usize = 32;

/// Elements as text; of many the first.
fn shown(elements: &[u32], values: &ValueNumbers) -> String {
    let listed = elements.iter().take(SHOWN_MAX);
    let mut listed: Vec<String> = listed.map(|&one| values.value(one).to_string()).collect();
    if elements.len() > SHOWN_MAX {
        listed.push(format!("and {} more", elements.len() - SHOWN_MAX));
    }
    format!("#{{{}}}", listed.join(" "))
}

fn add(was_new: Option<bool>) -> SetAction {
    match was_new {
        Some(true) => SetAction::Add,
        Some(false) => SetAction::Present,
        None => SetAction::Put,
    }
}

fn remove(was_there: Option<bool>) -> SetAction {
    match was_there {
        Some(true) => SetAction::Remove,
        Some(false) => SetAction::Absent,
        None => SetAction::Discard,
    }
}

fn contains(found: bool) -> SetAction {
    if found {
        SetAction::Present
    } else {
        SetAction::Absent
    }
}
