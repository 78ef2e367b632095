//! Collections whose values are unique, decided by monitors.

use crate::collections::priority;
use crate::model::{Action, Model, Taken};
use crate::object::ObjectOperation;
use crate::proof_draft::OrderedEntry;
use crate::values::{NumberedValues, StateId};
use seatrial_monitors::{
    self as monitors, CollectionAction, CollectionOperation, LinearizedOperation, Rejection,
};

/// The monitors of the objects of one history: they number the values of an object densely.
///
/// Cost: 4 bytes for each value of the history, and 16 for each operation of the largest object.
#[derive(Debug)]
pub(crate) struct CollectionMonitor {
    /// By value: its number in the object. Cleared after each object.
    numbers: Vec<u32>,
    used: Vec<StateId>,
}

/// No number.
const NONE: u32 = u32::MAX;

/// A monitor: decides a history.
type Monitor = fn(&[CollectionOperation]) -> Result<(), Rejection>;

/// Constructs a linearization of a history that the monitor accepts.
type Linearizer = fn(&[CollectionOperation]) -> Result<Vec<LinearizedOperation>, Rejection>;

/// The monitor of a model, and its name in results.
pub(crate) fn monitor(model: Model) -> Option<(Monitor, &'static str)> {
    match model {
        Model::FifoQueue => Some((monitors::queue, "queue of unique values")),
        Model::Stack => Some((monitors::stack, "stack of unique values")),
        Model::PriorityQueue => Some((priority_queue, "priority queue of unique values")),
        Model::Bag => Some((monitors::multiset, "bag of unique values")),
        _ => None,
    }
}

fn linearizer(model: Model) -> Option<Linearizer> {
    match model {
        Model::FifoQueue => Some(monitors::queue_order),
        Model::Stack => Some(monitors::stack_order),
        Model::PriorityQueue => Some(priority_queue_order),
        Model::Bag => Some(monitors::multiset_order),
        _ => None,
    }
}

/// The priorities of values that are numbered in their order.
fn priorities(operations: &[CollectionOperation]) -> Vec<u32> {
    let count = operations.iter().map(|one| one.value + 1).max();
    (0..count.unwrap_or(0)).collect()
}

fn priority_queue_order(
    operations: &[CollectionOperation],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    monitors::priority_queue_order(operations, &priorities(operations))
}

/// A priority queue whose values are numbered in the order of their priority.
fn priority_queue(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    monitors::priority_queue(operations, &priorities(operations))
}

impl CollectionMonitor {
    /// Room for values below `count`.
    pub(crate) fn new(count: usize) -> CollectionMonitor {
        CollectionMonitor {
            numbers: vec![NONE; count],
            used: Vec::new(),
        }
    }

    /// Decides one object of a model that has a monitor.
    pub(crate) fn check(
        &mut self,
        model: Model,
        entries: &[ObjectOperation],
        values: &NumberedValues,
    ) -> Result<(), Rejection> {
        let Some((monitor, _)) = monitor(model) else {
            return Err(Rejection::NotApplicable("there is no monitor of its kind"));
        };
        let operations = self.operations(model, entries, values);
        self.clear();
        monitor(&operations?)
    }

    /// A linearization of an object that [`CollectionMonitor::check`] accepts.
    pub(crate) fn linearize(
        &mut self,
        model: Model,
        entries: &[ObjectOperation],
        values: &NumberedValues,
    ) -> Result<Vec<OrderedEntry>, Rejection> {
        let Some(linearizer) = linearizer(model) else {
            return Err(Rejection::NotApplicable("there is no monitor of its kind"));
        };
        let operations = self.operations(model, entries, values);
        let order = operations.and_then(|operations| linearizer(&operations));
        let order = order.map(|order| {
            let entries = order.into_iter().map(|one| {
                let taken = one.taken.map(|value| self.used[value as usize]);
                (one.operation, taken)
            });
            entries.collect()
        });
        self.clear();
        order
    }

    /// The operations of an object, with its values numbered until [`CollectionMonitor::clear`].
    fn operations(
        &mut self,
        model: Model,
        entries: &[ObjectOperation],
        values: &NumberedValues,
    ) -> Result<Vec<CollectionOperation>, Rejection> {
        self.number(model, entries, values);
        let operations: Option<Vec<_>> = entries.iter().map(|one| self.operation(one)).collect();
        operations.ok_or(Rejection::NotApplicable(
            "its operations are not those of a collection",
        ))
    }

    fn clear(&mut self) {
        for value in self.used.drain(..) {
            self.numbers[value as usize] = NONE;
        }
    }

    /// Numbers the values of an object: those of a priority queue from the greatest to the least, which is taken first.
    fn number(&mut self, model: Model, entries: &[ObjectOperation], values: &NumberedValues) {
        for entry in entries {
            if let Some(value) = element(entry.action)
                && self.numbers[value as usize] == NONE
            {
                self.numbers[value as usize] = self.used.len() as u32;
                self.used.push(value);
            }
        }
        if model == Model::PriorityQueue {
            self.used
                .sort_by_cached_key(|&value| std::cmp::Reverse(priority(&values.get(value))));
            for (number, &value) in (0..).zip(&self.used) {
                self.numbers[value as usize] = number;
            }
        }
    }

    fn operation(&self, entry: &ObjectOperation) -> Option<CollectionOperation> {
        let action = match entry.action {
            Action::Put(..) => CollectionAction::Add,
            Action::Take(_, Taken::Element(_)) => CollectionAction::Remove,
            Action::Peek(_, Taken::Element(_)) => CollectionAction::Peek,
            Action::Take(_, Taken::Nothing) | Action::Peek(_, Taken::Nothing) => {
                CollectionAction::Empty
            }
            Action::Take(_, Taken::Unknown) => CollectionAction::RemoveUnknown,
            _ => return None,
        };
        let value = element(entry.action).map_or(0, |value| self.numbers[value as usize]);
        Some(CollectionOperation {
            action,
            value,
            call: entry.call,
            ret: entry.ret,
        })
    }
}

/// The element of an action.
fn element(action: Action) -> Option<StateId> {
    match action {
        Action::Put(_, element)
        | Action::Take(_, Taken::Element(element))
        | Action::Peek(_, Taken::Element(element)) => Some(element),
        _ => None,
    }
}
