//! Random small histories: of a correct collection, then disturbed.

use super::Collection;
use super::brute_force::next_values;
use crate::{CollectionAction, CollectionOperation, NEVER};
use seatrial_machine::Rng;
use std::collections::BTreeSet;

/// How a random history comes about.
pub(super) struct RandomHistoryShape {
    /// Operations at most.
    pub(super) count: u32,
    /// Places where it is disturbed.
    pub(super) disturbances: u64,
    /// Share of pending operations.
    pub(super) pending: f64,
    /// Are only removals pending?
    pub(super) only_removals: bool,
}

impl RandomHistoryShape {
    /// Up to 12 operations. Most are disturbed in up to five places; some operations are pending.
    pub(super) fn random(rng: &mut Rng) -> RandomHistoryShape {
        let is_disturbed = rng.chance(0.85);
        let has_pending = rng.chance(0.4);
        RandomHistoryShape {
            count: [6, 10, 12][rng.index(3)] - rng.below(6) as u32,
            disturbances: u64::from(is_disturbed) * (1 + rng.below(5)),
            pending: f64::from(u8::from(has_pending)) * (0.1 + rng.below(5) as f64 * 0.1),
            only_removals: rng.chance(0.5),
        }
    }

    pub(super) fn disturb(
        &self,
        collection: Collection,
        history: &mut Vec<CollectionOperation>,
        rng: &mut Rng,
    ) {
        for _ in 0..self.disturbances {
            disturb(collection, history, rng);
        }
    }
}

/// A small history of 2 to 5 clients; some positions are equal.
pub(super) fn random_history(collection: Collection, rng: &mut Rng) -> Vec<CollectionOperation> {
    let shape = RandomHistoryShape::random(rng);
    random_history_of(collection, &shape, rng)
}

pub(super) fn random_history_of(
    collection: Collection,
    shape: &RandomHistoryShape,
    rng: &mut Rng,
) -> Vec<CollectionOperation> {
    let mut history = valid_history(collection, shape.count, rng);
    shape.disturb(collection, &mut history, rng);
    make_pending(collection, &mut history, shape, rng);
    if rng.chance(0.2) {
        // Sparse positions, as those of one key of many.
        for operation in &mut history {
            operation.call = operation.call * 97 + 5;
            operation.ret = operation.ret.saturating_mul(97).saturating_add(5);
        }
    }
    history
}

/// Operations that take effect one after another, at instants two apart, within intervals that overlap.
fn valid_history(collection: Collection, count: u32, rng: &mut Rng) -> Vec<CollectionOperation> {
    let clients = 2 + rng.index(4);
    let step = 1 + rng.below(3) as u32;
    let spread_max = 1 + rng.below(8);
    let spread = 1 + rng.below(spread_max);
    let (add, peek) = (rng.below(5) + 3, rng.below(4));
    let mut free = vec![0u32; clients];
    let mut state: Vec<u32> = Vec::new();
    let mut values = 0;
    let mut history = Vec::new();
    for number in 0..count {
        let instant = 20 + number * step;
        // A client that has returned by now; operations of one client do not overlap.
        let Some(client) = (0..clients).find(|&client| free[client] <= instant) else {
            continue;
        };
        let call = free[client].max(instant.saturating_sub(rng.below(spread) as u32));
        let ret = instant + rng.below(spread) as u32;
        free[client] = ret + rng.below(2) as u32;
        free.rotate_left(1);
        let next = next_values(collection, &state);
        let chosen = (!next.is_empty()).then(|| next[rng.index(next.len())]);
        let (action, value) = if rng.below(10) < add {
            values += 1;
            (CollectionAction::Add, values - 1)
        } else {
            observe(collection, chosen, values, &state, rng.below(6) < peek, rng)
        };
        match action {
            CollectionAction::Add => state.push(value),
            CollectionAction::Remove => state.retain(|&other| other != value),
            _ => {}
        }
        history.push(CollectionOperation {
            action,
            value,
            call,
            ret,
        });
    }
    history
}

/// A removal, or an observation of this state.
fn observe(
    collection: Collection,
    chosen: Option<u32>,
    values: u32,
    state: &[u32],
    only_look: bool,
    rng: &mut Rng,
) -> (CollectionAction, u32) {
    if collection == Collection::Set && rng.chance(0.4) {
        let value = rng.below(u64::from(values) + 1) as u32;
        return if state.contains(&value) {
            (CollectionAction::Contains, value)
        } else {
            (CollectionAction::Absent, value)
        };
    }
    match chosen {
        None => (CollectionAction::Empty, 0),
        Some(value) if only_look && collection == Collection::Set => {
            (CollectionAction::Contains, value)
        }
        Some(value) if only_look => (CollectionAction::Peek, value),
        Some(value) => (CollectionAction::Remove, value),
    }
}

/// Changes one operation's interval, result or value, such that values stay unique.
fn disturb(collection: Collection, history: &mut Vec<CollectionOperation>, rng: &mut Rng) {
    if history.is_empty() {
        return;
    }
    let (one, other) = (rng.index(history.len()), rng.index(history.len()));
    let by = 1 + rng.below(6) as u32;
    match rng.below(8) {
        0 => history[one].call = history[one].ret.min(history[one].call + by),
        1 if history[one].ret != NEVER => {
            history[one].ret = history[one]
                .call
                .max(history[one].ret - by.min(history[one].ret));
        }
        2 => {
            history[one].call += by;
            history[one].ret = history[one].ret.saturating_add(by);
        }
        3 => {
            let by = by.min(history[one].call);
            history[one].call -= by;
            if history[one].ret != NEVER {
                history[one].ret -= by;
            }
        }
        4 => {
            let value = history[one].value;
            history[one].value = history[other].value;
            history[other].value = value;
        }
        5 if history[one].action == CollectionAction::Remove => {
            history[one].action = CollectionAction::Empty;
        }
        6 if history[one].action == CollectionAction::Remove
            || history[one].action == CollectionAction::Empty =>
        {
            history[one].action = match (collection, rng.below(2)) {
                (Collection::Set, 0) => CollectionAction::Absent,
                (Collection::Set, _) => CollectionAction::Contains,
                _ => CollectionAction::Peek,
            };
        }
        7 => {
            history.swap_remove(one);
        }
        _ => {}
    }
    // A swap of values may have added one twice.
    let mut added = BTreeSet::new();
    history.retain(|operation| {
        let is_add = operation.action == CollectionAction::Add;
        let is_second = is_add && !added.insert(operation.value);
        !is_second
    });
}

/// Leaves some operations without result.
fn make_pending(
    collection: Collection,
    history: &mut [CollectionOperation],
    shape: &RandomHistoryShape,
    rng: &mut Rng,
) {
    for operation in history.iter_mut() {
        let is_removal = operation.action == CollectionAction::Remove;
        if !rng.chance(shape.pending) || (shape.only_removals && !is_removal) {
            continue;
        }
        operation.ret = NEVER;
        if operation.action == CollectionAction::Remove
            || (operation.action == CollectionAction::Empty && collection != Collection::Set)
        {
            operation.action = CollectionAction::RemoveUnknown;
        }
    }
}
