//! Overwrites that nothing reads, which a search of a contended register need not order.

use crate::linearization_search::{NONE, Search, Transitions};
use crate::object::ObjectOperation;
use crate::values::StateId;
use seatrial_history::FixedMap;

/// Marks a candidate that is absorbed by the last overwrite instead of being linearized now.
pub(crate) const ABSORBED: u32 = 1 << 31;

/// When which states are needed, for a search that absorbs overwrites. Its operations are reads, overwrites, and
/// compare-and-sets.
///
/// # Why it loses no order
///
/// Let an order of the operations be given, and let the search linearize them just in time: when a completion requires it, the
/// operations up to that one, in this order. An overwrite `u` that is followed by another overwrite has no effect that an
/// operation sees, so it can be moved to any place right before an overwrite between its invocation and its completion. So each
/// overwrite is one of three:
///
/// 1. An operation that needs its state follows at once, in the same batch. The search tries `u` when such an operation is open.
/// 2. It is the last of its batch: its own completion requires it. The search tries it then.
/// 3. Another overwrite follows in its batch. The search does not linearize `u`; it marks all open overwrites when it
///    linearizes one, and a marked one whose completion comes is *absorbed*: it took effect right before the last overwrite,
///    which was linearized after the invocation of `u`.
///
/// In the second case something later must need the state of `u`, or `u` could not be absorbed. The former is impossible if an
/// operation that begins later, and needs another state, completes before any that needs this one begins
/// ([`Absorption::can_last`]).
///
/// An overwrite of unknown outcome is in the first case or can be left out. Of open overwrites to one state, the one that
/// completes first is tried: the others can take its place later, read or absorbed.
///
/// A configuration is dead if an open operation needs a state to which no open operation leads, and none that begins before its
/// completion ([`Search::can_supply`]). So a wrong choice shows when an operation begins, not when it completes. As this looks
/// ahead, where the search ends does not say which completion no order can pass.
pub(crate) struct Absorption {
    /// By state: the invocations of operations that need it, ascending; and whether it must already be the state then, since no
    /// operation that leads to it is concurrent.
    calls: FixedMap<StateId, Vec<(u32, bool)>>,
    /// By state: the invocations of operations that lead to it, ascending.
    supplies: FixedMap<StateId, Vec<u32>>,
    /// By invocation of required operations, ascending: of those from here on that need a state, the first completion and that
    /// state, and the first completion of those that need another one.
    deadlines: Vec<(u32, [(u32, StateId); 2])>,
}

impl Absorption {
    /// Of the operations of one object, in the order of their invocations.
    pub(crate) fn new<T: Transitions>(
        entries: &[ObjectOperation<T::Action>],
        values: &T,
    ) -> Absorption {
        let mut calls: FixedMap<StateId, Vec<(u32, bool)>> = FixedMap::default();
        let mut deadlines = Vec::new();
        let supplies = Supplies::new(entries, values);
        let none = (u32::MAX, StateId::MAX);
        let mut first = [none; 2];
        for entry in entries.iter().rev() {
            let needed = values.needed_state(entry.action);
            let Some(needed) = needed else { continue };
            let must_last = !supplies.is_concurrent(needed, entry);
            let of_state = calls.entry(needed).or_default();
            of_state.push((entry.call, must_last));
            if !entry.is_required() {
                continue;
            }
            let new = (entry.ret, needed);
            if new.0 < first[0].0 {
                if first[0].1 != needed {
                    first[1] = first[0];
                }
                first[0] = new;
            } else if new.0 < first[1].0 && needed != first[0].1 {
                first[1] = new;
            }
            assert!(
                first[0].1 != first[1].1 || first[0] == none,
                "two states, if there are two"
            );
            deadlines.push((entry.call, first));
        }
        deadlines.reverse();
        for calls in calls.values_mut() {
            calls.reverse();
        }
        Absorption {
            calls,
            supplies: supplies.calls,
            deadlines,
        }
    }

    /// Must this state last from a position until the next operation begins that needs it?
    fn must_last(&self, state: StateId, position: u32) -> bool {
        let next = self.calls.get(&state).and_then(|calls| {
            let next = calls.partition_point(|&(call, _)| call <= position);
            calls.get(next)
        });
        next.is_some_and(|&(_, must_last)| must_last)
    }

    /// Does an operation that leads to this state begin after one position, and by another?
    fn is_supplied(&self, state: StateId, after: u32, by: u32) -> bool {
        self.supplies.get(&state).is_some_and(|calls| {
            let next = calls.partition_point(|&call| call <= after);
            calls.get(next).is_some_and(|&call| call <= by)
        })
    }

    /// Can this state last from a position until an operation that begins later needs it?
    fn can_last(&self, state: StateId, position: u32) -> bool {
        let Some(calls) = self.calls.get(&state) else {
            return false;
        };
        let next = calls.partition_point(|&(call, _)| call <= position);
        let Some(&(next, _)) = calls.get(next) else {
            return false;
        };
        let place = self
            .deadlines
            .partition_point(|(call, _)| *call <= position);
        let Some((_, first)) = self.deadlines.get(place) else {
            return true;
        };
        let other = first.iter().find(|(_, needed)| *needed != state);
        other.is_none_or(|&(ret, _)| ret > next)
    }
}

/// The operations that lead to each state.
struct Supplies {
    /// Their invocations, ascending.
    calls: FixedMap<StateId, Vec<u32>>,
    /// With each invocation: the last completion of those up to it.
    last_rets: FixedMap<StateId, Vec<u32>>,
}

impl Supplies {
    fn new<T: Transitions>(entries: &[ObjectOperation<T::Action>], values: &T) -> Supplies {
        let mut supplies = Supplies {
            calls: FixedMap::default(),
            last_rets: FixedMap::default(),
        };
        for entry in entries {
            if let Some(state) = values.resulting_state(entry.action) {
                supplies.calls.entry(state).or_default().push(entry.call);
                let rets = supplies.last_rets.entry(state).or_default();
                let last = rets.last().copied().unwrap_or(0);
                rets.push(last.max(entry.ret));
            }
        }
        supplies
    }

    /// Is one that leads to this state concurrent with an operation?
    fn is_concurrent<A>(&self, state: StateId, entry: &ObjectOperation<A>) -> bool {
        let Some(calls) = self.calls.get(&state) else {
            return false;
        };
        let begun = calls.partition_point(|&call| call <= entry.ret);
        begun > 0 && self.last_rets[&state][begun - 1] >= entry.call
    }
}

/// A candidate, and by when it is to be tried: the first completion of those that need its state.
type UrgentCandidate = (u32, u32);

impl<T: Transitions> Search<'_, T> {
    /// Marks the open overwrites that this one, which was just linearized, can absorb.
    pub(crate) fn mark_absorbable(&mut self, last: u32) {
        self.set_absorbable(last, false);
        for slot in 0..self.holders.len() {
            let holder = self.holders[slot];
            if holder != NONE
                && !self.is_linearized(holder)
                && self.entries[holder as usize].is_required()
                && self
                    .values
                    .is_overwrite(self.entries[holder as usize].action)
            {
                self.set_absorbable(holder, true);
            }
        }
    }

    /// Adds the candidates at a completion whose operation is not linearized, most urgent first (see [`Absorption`]).
    pub(crate) fn add_absorbing_candidates(&mut self, candidates: &mut Vec<u32>) {
        let Some(stalled) = self.next_completion() else {
            return;
        };
        let holders = self.holders.iter().copied();
        let open = holders.filter(|&holder| holder != NONE && !self.is_linearized(holder));
        let mut open: Vec<u32> = open.collect();
        let entries = self.entries;
        let entry = |number: u32| &entries[number as usize];
        open.sort_unstable_by_key(|&number| (entry(number).ret, entry(number).call));
        let stalled_action = entry(stalled).action;
        let required_state = self.values.needed_state(stalled_action);
        let leads_to =
            |state, number: u32| self.values.resulting_state(entry(number).action) == Some(state);
        if let Some(state) = required_state
            && state != self.state
            && !open.iter().any(|&number| leads_to(state, number))
        {
            return;
        }
        // By state that is needed, and not the current one: the first completion. By ascending completion, so the first counts.
        let mut wanted: Vec<(StateId, u32)> = Vec::new();
        for &number in &open {
            if let Some(state) = self.values.needed_state(entry(number).action)
                && !wanted.iter().any(|&(one, _)| one == state)
            {
                wanted.push((state, entry(number).ret));
            }
        }
        let urgency = |state| {
            wanted
                .iter()
                .find(|&&(one, _)| one == state)
                .map(|&(_, ret)| ret)
        };
        let mut listed: Vec<UrgentCandidate> = Vec::new();
        let mut overwritten: Vec<StateId> = Vec::new();
        for &number in &open {
            let action = entry(number).action;
            let result = self.values.resulting_state(action);
            if self.values.is_overwrite(action) {
                let Some(result) = result.filter(|result| !overwritten.contains(result)) else {
                    continue;
                };
                overwritten.push(result);
                if let Some(ret) = urgency(result) {
                    listed.push((ret, number));
                }
                continue;
            }
            if self.values.needed_state(action) != Some(self.state) {
                continue;
            }
            let is_useful = entry(number).is_required()
                || result.is_some_and(|result| result != self.state && urgency(result).is_some());
            let is_double = || {
                let mut same = listed.iter().map(|&(_, other)| entry(other).action);
                same.any(|other| other == action)
            };
            if is_useful && !is_double() {
                listed.push((entry(number).ret, number));
            }
        }
        if self.values.is_overwrite(stalled_action) {
            self.add_stalled_overwrite(stalled, &mut listed);
        }
        listed.sort_by_key(|&(urgency, number)| (urgency, number & !ABSORBED));
        candidates.extend(listed.into_iter().map(|(_, number)| number));
    }

    /// Adds the ways in which an overwrite whose completion comes can take effect. They are the first to be tried: its use if an
    /// open operation needs its state, since later it cannot be used; else that it is absorbed.
    fn add_stalled_overwrite(&self, stalled: u32, listed: &mut Vec<UrgentCandidate>) {
        let entry = &self.entries[stalled as usize];
        let is_absorbable = self.is_absorbable(stalled);
        let wanted = listed.iter_mut().find(|(_, number)| *number == stalled);
        let is_wanted = wanted.is_some();
        if let Some((urgency, _)) = wanted {
            *urgency = 0;
        }
        let must_last = self
            .values
            .resulting_state(entry.action)
            .is_some_and(|state| {
                let absorption = self.absorption.as_ref();
                absorption.is_some_and(|absorption| absorption.must_last(state, entry.ret))
            });
        let lasts = self
            .values
            .resulting_state(entry.action)
            .is_some_and(|state| {
                let absorption = self.absorption.as_ref();
                absorption.is_some_and(|absorption| absorption.can_last(state, entry.ret))
            });
        if !is_wanted && (!is_absorbable || lasts) {
            listed.push((if must_last { 0 } else { entry.ret }, stalled));
        }
        if is_absorbable {
            let is_second = is_wanted || must_last && lasts;
            listed.push((u32::from(is_second), stalled | ABSORBED));
        }
    }

    /// Can each open operation still get the state that it needs? Always, unless overwrites are absorbed.
    pub(crate) fn can_supply(&self) -> bool {
        let Some(absorption) = &self.absorption else {
            return true;
        };
        let Some(stalled) = self.next_completion() else {
            return true;
        };
        let now = self.entries[stalled as usize].ret;
        let holders = self.holders.iter().copied();
        let open = holders.filter(|&holder| holder != NONE && !self.is_linearized(holder));
        let open: Vec<u32> = open.collect();
        let leads_to = |state, number: u32| {
            let action = self.entries[number as usize].action;
            self.values.resulting_state(action) == Some(state)
        };
        let mut supplied: Vec<StateId> = Vec::new();
        open.iter().all(|&number| {
            let entry = &self.entries[number as usize];
            let needed = self.values.needed_state(entry.action);
            let Some(state) = needed.filter(|_| entry.is_required()) else {
                return true;
            };
            if state == self.state || supplied.contains(&state) {
                return true;
            }
            if open.iter().any(|&other| leads_to(state, other)) {
                supplied.push(state);
                return true;
            }
            absorption.is_supplied(state, now, entry.ret)
        })
    }

    /// An order with each absorbed overwrite right before the overwrite that absorbs it.
    pub(crate) fn place_absorbed(&mut self, order: Vec<(usize, StateId)>) -> Vec<(usize, StateId)> {
        if self.absorption.is_none() {
            return order;
        }
        // By place in the order without them: the absorbed ones before it.
        let mut before: Vec<(usize, usize)> = Vec::new();
        let mut kept: Vec<(usize, StateId)> = Vec::with_capacity(order.len());
        let mut last = None;
        for (entry, state) in order {
            if entry & ABSORBED as usize != 0 {
                let place = last.expect("an overwrite absorbs it");
                before.push((place, entry & !(ABSORBED as usize)));
                continue;
            }
            if self.values.is_overwrite(self.entries[entry].action) {
                last = Some(kept.len());
            }
            kept.push((entry, state));
        }
        // Stable: in the order of their completions.
        before.sort_by_key(|&(place, _)| place);
        let mut before = before.into_iter().peekable();
        let mut placed = Vec::new();
        for (place, one) in kept.into_iter().enumerate() {
            while let Some((_, absorbed)) = before.next_if(|&(at, _)| at == place) {
                let state = self.values.resulting_state(self.entries[absorbed].action);
                placed.push((absorbed, state.expect("an overwrite has one")));
            }
            placed.push(one);
        }
        placed
    }
}
