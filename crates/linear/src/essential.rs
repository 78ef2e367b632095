//! The operations whose certain effect suffices for a contradiction.

use crate::linearization_search::{Bound, Search, SearchResult, Transitions};
use crate::model::{Action, Taken};
use crate::object::{NEVER, ObjectOperation};
use crate::values::StateId;
use seatrial_history::FixedMap;
use seatrial_monitors::minimal;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Operations of one object that have no linearization although each of the others counts as one of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Essential {
    /// Entries, in the order of their calls.
    pub(crate) entries: Vec<usize>,
    /// Operations whose calls come later are not among the others: they come after the contradiction in every order.
    pub(crate) until: u32,
    /// Is none of the entries dispensable? False if a bound was reached.
    pub(crate) is_minimal: bool,
}

/// Configurations of each search.
const CONFIGURATIONS_MAX: u64 = 20_000;
/// Configurations of all searches for one check, and an eighth of the entries that they have; about a second.
const WORK_MAX: usize = 400_000;
/// Entries of an object, at most: each search looks at all of them.
const ENTRIES_MAX: usize = 200_000;

/// The essential operations of an object that no order linearizes past the completion of `failed`, or `None` if they were not
/// found within the work. `core` has entries that a monitor found to have no order.
///
/// What is invoked after that completion comes later in every order, so it is left out; what completes after it need not have
/// taken effect by then. Of the operations left, the set is the one of [`minimal`], from the last completions to earlier ones:
/// O(k log n) searches for k essential operations. With fewer certain effects there are only more orders, so each test is
/// monotone, and a set that a search refutes is refuted in the whole history as well.
///
/// `is_known` if a search has refuted these operations up to that completion as they are; a search that knows what is read later
/// has not. Adds its work to `work`, which has that of earlier objects.
pub(crate) fn essential<T: Transitions>(
    entries: &[ObjectOperation<T::Action>],
    (failed, is_known): (usize, bool),
    core: Option<&[u32]>,
    states: &mut T,
    work: &mut usize,
) -> Option<Essential> {
    if entries.len() > ENTRIES_MAX {
        return None;
    }
    let end = entries[failed].ret;
    let numbered = entries.iter().copied().enumerate();
    let before: Vec<_> = numbered.filter(|(_, entry)| entry.call <= end).collect();
    let certain = before.iter().filter(|(_, entry)| entry.ret <= end);
    let mut candidates: Vec<usize> = certain.map(|&(number, _)| number).collect();
    candidates.retain(|&number| entries[number].is_required());
    candidates.sort_by_key(|&number| (number != failed, Reverse(entries[number].ret)));
    let found = least(&before, (candidates, is_known), end, states, work);
    if found.as_ref().is_some_and(|found| found.is_minimal) {
        return found;
    }
    let Some(core) = core else { return found };
    // The monitor's entries are few, but may complete later: the whole object is searched with them.
    let numbered: Vec<_> = entries.iter().copied().enumerate().collect();
    let core = core.iter().map(|&number| number as usize);
    let mut candidates: Vec<usize> = core
        .filter(|&number| entries[number].is_required())
        .collect();
    candidates.sort_by_key(|&number| Reverse(entries[number].ret));
    least(&numbered, (candidates, false), NEVER, states, work).or(found)
}

/// The least set found of these candidates that has no order with each other entry as one of unknown outcome; `None` if not even
/// all of them are refuted, which may be known, or if none could be left out within the bound.
fn least<T: Transitions>(
    numbered: &[(usize, ObjectOperation<T::Action>)],
    (candidates, is_known): (Vec<usize>, bool),
    until: u32,
    states: &mut T,
    work: &mut usize,
) -> Option<Essential> {
    let states = RefCell::new(states);
    let is_exhausted = Cell::new(false);
    let done = Cell::new(0);
    let test = |certain: &[usize]| {
        let certain: BTreeSet<usize> = certain.iter().copied().collect();
        let weakened = numbered.iter().map(|&(number, entry)| {
            let is_certain = certain.contains(&number);
            let ret = if is_certain { entry.ret } else { NEVER };
            ObjectOperation { ret, ..entry }
        });
        let mut entries: Vec<_> = weakened.collect();
        let mut states = states.borrow_mut();
        states.reduce(&mut entries);
        let bound = Bound {
            configurations_max: CONFIGURATIONS_MAX,
            ..Bound::default()
        };
        let (result, visited) = Search::new(&entries, &mut **states, bound).run();
        is_exhausted.set(is_exhausted.get() || matches!(result, SearchResult::Exhausted { .. }));
        let cost = visited as usize + numbered.len() / 8 + 1;
        done.set(done.get() + cost);
        (matches!(result, SearchResult::NotLinearizable(_)), cost)
    };
    // Half of what is left, so that the objects after this one have some.
    let work_max = WORK_MAX.saturating_sub(*work) / 2;
    let all = candidates.len();
    let is_refuted = is_known || test(&candidates).0;
    let found = is_refuted.then(|| minimal(candidates, work_max, &test));
    let is_minimal = !is_exhausted.get() && done.get() <= work_max;
    *work += done.get();
    // What a bound left whole says nothing.
    let mut entries = found.filter(|found| is_minimal || found.len() < all)?;
    entries.sort_unstable();
    assert!(entries.is_sorted_by(|a, b| a < b), "each entry once");
    Some(Essential {
        entries,
        until,
        is_minimal,
    })
}

/// Removes operations of unknown outcome without which a linearization stays one, which leaves a search little to try.
///
/// A write or compare-and-set of unknown outcome is needed if its new value is read or compared with, by an operation that is
/// certain or needed. An element of unknown outcome is needed if some certain operation takes or sees an equal one: any other
/// can be left out together with what takes or sees it, and nothing else of the linearization changes. What only takes or sees
/// elements that nothing adds is impossible.
pub(crate) fn drop_needless(entries: &mut Vec<ObjectOperation>) {
    let is_sum =
        |entry: &ObjectOperation| matches!(entry.action, Action::Append(_) | Action::Increment(_));
    if entries.iter().any(is_sum) {
        return;
    }
    let mut needed: BTreeSet<StateId> = BTreeSet::new();
    // By new value: the values that compare-and-sets of unknown outcome compare with.
    let mut sources: FixedMap<StateId, Vec<StateId>> = FixedMap::default();
    for entry in entries.iter() {
        match (entry.action, entry.is_required()) {
            (
                Action::Read(value)
                | Action::Cas(value, _)
                | Action::Take(_, Taken::Element(value))
                | Action::Peek(_, Taken::Element(value)),
                true,
            ) => _ = needed.insert(value),
            (Action::Cas(from, to), false) => sources.entry(to).or_default().push(from),
            _ => {}
        }
    }
    let mut open: Vec<StateId> = needed.iter().copied().collect();
    while let Some(value) = open.pop() {
        for from in sources.remove(&value).unwrap_or_default() {
            if needed.insert(from) {
                open.push(from);
            }
        }
    }
    entries.retain(|entry| match entry.action {
        Action::Write(value) | Action::Cas(_, value) | Action::Put(_, value) => {
            entry.is_required() || needed.contains(&value)
        }
        _ => true,
    });
    let puts = entries.iter().filter_map(|entry| match entry.action {
        Action::Put(_, value) => Some(value),
        _ => None,
    });
    let puts: BTreeSet<StateId> = puts.collect();
    entries.retain(|entry| match entry.action {
        Action::Take(_, Taken::Element(value)) | Action::TakeAny(value, _) => {
            entry.is_required() || puts.contains(&value)
        }
        _ => true,
    });
}
