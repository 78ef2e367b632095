//! States of collections: queues, stacks, priority queues, bags, deques.

use crate::model::{Action, CollectionEnd, Model, Taken};
use crate::numbered_states::NumberedStates;
use crate::object::ObjectOperation;
use crate::values::{NumberedValues, StateId};
use seatrial_history::Value;

/// The states of one collection, numbered: each is the list of its elements, front first.
///
/// Elements of a bag lie in the order of their numbers, those of a priority queue in the order of their values; so equal contents
/// are one state.
///
/// Cost: 4 bytes for each element of each state, twice, and a hash of the list for each step that is new.
pub(crate) struct CollectionStates {
    model: Model,
    states: NumberedStates<Box<[StateId]>, Action>,
    /// Elements of all states.
    elements: usize,
}

impl CollectionStates {
    /// The empty collection, which is state 0.
    pub(crate) fn new(model: Model) -> CollectionStates {
        CollectionStates {
            model,
            states: NumberedStates::new(Box::new([])),
            elements: 0,
        }
    }

    /// The elements of a state, front first.
    pub(crate) fn elements(&self, state: StateId) -> impl Iterator<Item = StateId> + '_ {
        let list = self.states.get(state).iter().copied();
        list.filter(|&member| self.model != Model::Bag || member < MARKERS)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.states.bytes() + self.elements * 2 * size_of::<StateId>()
    }

    /// The state after `action`, if it is possible in `state`.
    pub(crate) fn step(
        &mut self,
        values: &NumberedValues,
        state: StateId,
        action: Action,
    ) -> Option<StateId> {
        let model = self.model;
        let before = self.states.len();
        let states = &mut self.states;
        let next = states.step(state, action, |list| apply(model, values, list, action));
        if let Some(next) = next
            && self.states.len() > before
        {
            self.elements += self.states.get(next).len();
        }
        next
    }
}

/// The elements after `action`.
fn apply(
    model: Model,
    values: &NumberedValues,
    list: &[StateId],
    action: Action,
) -> Option<Box<[StateId]>> {
    let mut list = list.to_vec();
    match action {
        Action::Put(end, element) => {
            let place = match (model, end) {
                (Model::Bag, _) => list.partition_point(|&other| other < element),
                (Model::PriorityQueue, _) => {
                    let order = |one| (priority(&values.get(one)), one);
                    list.partition_point(|&other| order(other) < order(element))
                }
                (_, CollectionEnd::Front) => 0,
                (_, CollectionEnd::Back) => list.len(),
            };
            list.insert(place, element);
        }
        Action::Take(end, taken) => match place(model, &list, end, taken) {
            TakenPlace::Element(place) => _ = list.remove(place),
            TakenPlace::Nothing => {}
            TakenPlace::Impossible => return None,
        },
        Action::Peek(end, taken) => {
            if place(model, &list, end, taken) == TakenPlace::Impossible {
                return None;
            }
        }
        Action::TakeAny(element, number) => {
            let marker = StateId::MAX - number;
            let place = list.iter().position(|&it| it == element)?;
            if list.contains(&marker) {
                return None;
            }
            list.remove(place);
            let place = list.partition_point(|&other| other < marker);
            list.insert(place, marker);
        }
        _ => return None, // a register's
    }
    Some(list.into())
}

/// What is taken at this end, if the result allows it.
fn place(model: Model, list: &[StateId], end: CollectionEnd, taken: Taken) -> TakenPlace {
    let is_element = |member: &&StateId| model != Model::Bag || **member < MARKERS;
    let length = list.iter().filter(is_element).count();
    let last = length.checked_sub(1);
    let place = match (model, taken) {
        (Model::Bag, Taken::Element(element)) => list.iter().position(|&it| it == element),
        _ if end == CollectionEnd::Front => last.map(|_| 0),
        _ => last,
    };
    match (taken, place) {
        (Taken::Nothing | Taken::Unknown, None) => TakenPlace::Nothing,
        (Taken::Element(element), Some(place)) if list[place] == element => {
            TakenPlace::Element(place)
        }
        (Taken::Unknown, Some(place)) => TakenPlace::Element(place),
        _ => TakenPlace::Impossible,
    }
}

/// What an operation takes or looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakenPlace {
    Element(usize),
    /// There is nothing.
    Nothing,
    /// Its result contradicts the state.
    Impossible,
}

/// From this number on, members of a bag's list are no elements: they mark removals of unknown outcome that took an element.
const MARKERS: StateId = StateId::MAX - TAKES_MAX;
/// Removals of unknown outcome from one bag, at most.
const TAKES_MAX: u32 = 1 << 16;
/// Entries that stand for them, at most.
const CHOICES_MAX: usize = 1 << 17;

/// Replaces each removal of unknown outcome from a bag by one entry for each element that it may have taken. False if there
/// would be too many.
pub(crate) fn expand_takes(entries: &mut Vec<ObjectOperation>) -> bool {
    let is_open = |entry: &ObjectOperation| matches!(entry.action, Action::Take(_, Taken::Unknown));
    let takes = entries.iter().filter(|entry| is_open(entry)).count();
    if takes == 0 {
        return true;
    }
    let mut elements: Vec<StateId> = Vec::new();
    for entry in entries.iter() {
        if let Action::Put(_, element) = entry.action {
            elements.push(element);
        }
    }
    elements.sort_unstable();
    elements.dedup();
    if takes > TAKES_MAX as usize || takes * elements.len() > CHOICES_MAX {
        return false;
    }
    let mut expanded = Vec::with_capacity(entries.len() + takes * elements.len());
    let mut number = 0;
    for entry in entries.drain(..) {
        if !is_open(&entry) {
            expanded.push(entry);
            continue;
        }
        for &element in &elements {
            let action = Action::TakeAny(element, number);
            expanded.push(ObjectOperation { action, ..entry });
        }
        number += 1;
    }
    *entries = expanded;
    true
}

/// The order of a priority queue: the least integer first, everything else after all integers, by its text.
pub(crate) fn priority(value: &Value) -> (bool, i64, String) {
    match value {
        Value::Int(integer) => (false, *integer, String::new()),
        other => (true, 0, other.to_string()),
    }
}
