//! The search for a linearization.

use super::absorption::{ABSORBED, Absorption};
use super::configurations::ConfigurationTable;
use super::object::{NEVER, ObjectOperation};
use super::values::StateId;
use std::collections::BTreeSet;

/// A data type as the search needs it: states and actions are numbers or as cheap. Equal actions do the same.
pub(crate) trait Transitions {
    /// What an operation does.
    type Action: Copy + Ord;

    /// The state after `action`, if it is possible in `state`. The initial state is 0.
    fn step(&mut self, state: StateId, action: Self::Action) -> Option<StateId>;

    /// Does this action leave every state as it is in which it is possible? It can then take place as soon as it is possible;
    /// an action that changes other states may be needed later, even if it changes nothing now.
    fn is_read(&self, _action: Self::Action) -> bool {
        false
    }

    /// Is this a state from which little can follow? Steps to it are tried last.
    fn is_last_resort(&self, _state: StateId) -> bool {
        false
    }

    /// Is this action possible in every state, and leads to one that does not depend on it?
    fn is_overwrite(&self, _action: Self::Action) -> bool {
        false
    }

    /// Of the required operations that need a state to which no operation leads that began before their end, the one that ends
    /// first: a search need not try to pass it.
    fn unfounded(&self, _entries: &[ObjectOperation<Self::Action>]) -> Option<u32> {
        None
    }

    /// Prepares for a search of operations of which many count as of unknown outcome: removes some without which a linearization
    /// stays one, so that less must be tried.
    fn reduce(&mut self, entries: &mut Vec<ObjectOperation<Self::Action>>) {
        entries.retain(|entry| entry.is_required() || !self.is_read(entry.action));
    }

    /// The only state in which this action is possible, if there is one.
    fn needed_state(&self, _action: Self::Action) -> Option<StateId> {
        None
    }

    /// The state to which this action leads wherever it is possible, if it changes the state.
    fn resulting_state(&self, _action: Self::Action) -> Option<StateId> {
        None
    }

    /// Bytes that the states hold.
    fn bytes(&self) -> usize;
}

/// Limits of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Configurations that may be visited per object.
    pub configurations_max: u64,
    /// Bytes that may be held per object: configurations and the text of values.
    pub memory_bytes_max: usize,
}

impl Default for Bound {
    /// Twenty million configurations, 1 GiB: about a minute.
    fn default() -> Bound {
        Bound {
            configurations_max: 20_000_000,
            memory_bytes_max: 1 << 30,
        }
    }
}

/// The result of the search of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchResult {
    /// There is a linearization.
    Linearizable,
    /// There is none.
    NotLinearizable(Counterexample),
    /// A bound was reached before either was found.
    Exhausted {
        /// Which bound.
        bound: &'static str,
        /// Operations of the longest linearizable prefix.
        linearized: usize,
    },
}

/// The result of a search of one object that returns an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderResult {
    /// A linearization: entries in order.
    Linearizable(Vec<usize>),
    /// There is none.
    NotLinearizable,
    /// This bound was reached, with this number of certain operations in the longest order.
    Exhausted(&'static str, usize),
}

/// The furthest point that any order of operations reaches: why there is no linearization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counterexample {
    /// The operation that no order can linearize before its completion.
    pub(crate) entry: usize,
    /// A longest linearizable prefix: entries with the state after each. `None` from a check that keeps no orders.
    pub(crate) prefix: Option<Vec<(usize, StateId)>>,
    /// The possible states of the object when that operation had to take effect, by number.
    pub(crate) states: Vec<StateId>,
    /// Operations that had begun and not ended when that operation ended, itself excluded.
    pub(crate) concurrent: Vec<usize>,
    /// Does no operation that began before its end lead to the state that it needs? Then `states` are not all.
    pub(crate) is_unfounded: bool,
    /// Operations of the whole object, if these are a part of it that alone is not linearizable.
    pub(crate) out_of: Option<usize>,
}

/// Wing and Gong's search ("Testing and Verifying Concurrent Objects", 1993) with Lowe's two improvements ("Testing
/// for Linearizability", 2017): visited configurations are not entered again, and operations are linearized just in time, when
/// the next completion requires it.
///
/// A configuration is (the earliest completion whose operation is not linearized yet, which of the operations open at
/// that moment are, the state); everything that completed before is linearized. Open operations have slots, so the set is a
/// bit mask as long as the concurrency, whatever the length of the history. The search is depth first over an arena of
/// configurations; each stores its parent, so that a counterexample needs no stored paths.
///
/// Pruning: a possible read is linearized at once (it changes no state); of open operations with the same action, only the one
/// that completes first is tried (the others can follow later); an operation of unknown outcome only if some operation depends
/// on its effect.
///
/// Its downside: with many operations of unknown outcome the number of configurations is exponential in them, so the
/// search has a [`Bound`] and may end undecided. [`Search::absorbing`] tries fewer orders of overwrites (`absorption.rs`).
pub(crate) struct Search<'a, T: Transitions> {
    pub(crate) entries: &'a [ObjectOperation<T::Action>],
    pub(crate) values: &'a mut T,
    bound: Bound,
    /// Slots below this hold required operations, the others those of unknown outcome.
    required_slots: usize,
    /// Invocations and completions in order.
    events: Vec<CallEvent>,
    /// The slot of each entry.
    slots: Vec<u32>,
    /// The entry in each slot at the current event, or [`NONE`].
    pub(crate) holders: Vec<u32>,
    pub(crate) table: ConfigurationTable,
    /// The current configuration. The mask has a bit for each slot whose operation is linearized, and if overwrites are absorbed,
    /// after these a bit for each slot whose overwrite may be.
    at: usize,
    pub(crate) state: StateId,
    mask: Vec<u64>,
    /// If unread overwrites are absorbed: which states are needed later.
    pub(crate) absorption: Option<Absorption>,
    /// Was the last operation one of unknown outcome on which nothing depends yet?
    bare: bool,
    /// The first operation that needs a state to which no operation leads: no order can pass it.
    unfounded: Option<u32>,
    /// The step that led to the end: the record, and the entry that was linearized from it.
    last: (u32, u32),
    /// While replaying: each operation that is linearized, with the state after it.
    log: Option<Vec<(usize, StateId)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallEvent {
    Call(u32),
    Return(u32),
}

/// No entry, no record.
pub(crate) const NONE: u32 = u32::MAX;

/// A configuration whose successors are being tried.
struct SearchFrame {
    /// Its number in the table.
    record: u32,
    /// Its remaining candidates lie here in the stack of candidates.
    first: usize,
    next: usize,
}

impl<'a, T: Transitions> Search<'a, T> {
    /// A search over the operations of one object, which must be in the order of their calls.
    pub(crate) fn new(
        entries: &'a [ObjectOperation<T::Action>],
        values: &'a mut T,
        bound: Bound,
    ) -> Search<'a, T> {
        let mut times: Vec<(u32, bool, u32)> = Vec::with_capacity(2 * entries.len());
        for (number, entry) in entries.iter().enumerate() {
            times.push((entry.call, false, number as u32));
            if entry.ret != NEVER {
                times.push((entry.ret, true, number as u32));
            }
        }
        // At equal positions calls come before returns: an orphan's call and return share one.
        times.sort_unstable();
        let events: Vec<_> = times
            .into_iter()
            .map(|(_, ends, entry)| {
                if ends {
                    CallEvent::Return(entry)
                } else {
                    CallEvent::Call(entry)
                }
            })
            .collect();
        assert!(
            events.len() >= entries.len() && events.len() <= 2 * entries.len(),
            "each entry has a call and at most one return"
        );
        let (slots, required_slots, slot_count) = slots(&events, entries);
        let words = slot_count.div_ceil(64).max(1);
        let unfounded = values.unfounded(entries);
        Search {
            entries,
            values,
            bound,
            required_slots,
            events,
            slots,
            holders: vec![NONE; words * 64],
            table: ConfigurationTable::new(words),
            at: 0,
            state: 0,
            mask: vec![0; words],
            absorption: None,
            bare: false,
            unfounded,
            last: (NONE, NONE),
            log: None,
        }
    }

    /// The same search, in which overwrites that nothing reads are absorbed by later ones.
    pub(crate) fn absorbing(mut self) -> Search<'a, T> {
        self.absorption = Some(Absorption::new(self.entries, self.values));
        let words = 2 * self.mask.len();
        self.mask = vec![0; words];
        self.table = ConfigurationTable::new(words);
        self
    }

    /// Searches to the end or to a bound.
    pub(crate) fn run(mut self) -> (SearchResult, u64) {
        let result = self.find();
        (result, self.table.len())
    }

    /// The order of a search to the end or to a bound; also the number of configurations.
    pub(crate) fn order(mut self) -> (OrderResult, u64) {
        let result = match self.find() {
            SearchResult::Linearizable => OrderResult::Linearizable(self.linearization()),
            SearchResult::NotLinearizable(_) => OrderResult::NotLinearizable,
            SearchResult::Exhausted { bound, linearized } => {
                OrderResult::Exhausted(bound, linearized)
            }
        };
        (result, self.table.len())
    }

    /// The entries in the order that [`Search::find`] found.
    pub(crate) fn linearization(&mut self) -> Vec<usize> {
        let (parent, via) = self.last;
        let mut order = if parent == NONE {
            Vec::new()
        } else {
            self.prefix(parent)
        };
        order.extend(self.replay(parent, via));
        let order = self.place_absorbed(order);
        order.into_iter().map(|(entry, _)| entry).collect()
    }

    /// Searches to the end or to a bound, once.
    pub(crate) fn find(&mut self) -> SearchResult {
        if self.settle() {
            return SearchResult::Linearizable;
        }
        let mut candidates: Vec<u32> = Vec::new();
        let mut stack: Vec<SearchFrame> = Vec::new();
        if let Some(frame) = self.enter(NONE, NONE, &mut candidates) {
            stack.push(frame);
        }
        while let Some(frame) = stack.last_mut() {
            if self.unfounded.is_some() && self.unfounded == self.next_completion() {
                break;
            }
            if frame.next == candidates.len() {
                candidates.truncate(frame.first);
                stack.pop();
                continue;
            }
            let candidate = candidates[frame.next];
            frame.next += 1;
            let parent = frame.record;
            // The frames share one stack of candidates: those of a frame are the last ones only while it is on top, hence
            // `truncate` when it is popped.
            self.restore(parent);
            if !self.linearize(candidate) {
                continue;
            }
            if self.settle() {
                self.last = (parent, candidate);
                return SearchResult::Linearizable;
            }
            if let Some(bound) = self.exhausted() {
                let prefix = self.counterexample().prefix.into_iter().flatten();
                return SearchResult::Exhausted {
                    bound,
                    linearized: prefix
                        .filter(|&(entry, _)| self.entries[entry].is_required())
                        .count(),
                };
            }
            if let Some(frame) = self.enter(parent, candidate, &mut candidates) {
                stack.push(frame);
            }
        }
        SearchResult::NotLinearizable(self.counterexample())
    }

    fn exhausted(&self) -> Option<&'static str> {
        if self.table.len() >= self.bound.configurations_max {
            Some("configurations")
        } else if self.table.bytes() + self.values.bytes() >= self.bound.memory_bytes_max {
            Some("memory")
        } else {
            None
        }
    }

    /// Records the current configuration; unless it was seen, lists what can be tried from it.
    fn enter(&mut self, parent: u32, via: u32, candidates: &mut Vec<u32>) -> Option<SearchFrame> {
        let key = (self.at as u32, self.state);
        // A configuration that is not bare allows more: if it failed, the bare one fails too.
        if self.bare && self.table.contains(key, false, &self.mask) {
            return None;
        }
        if !self.can_supply() {
            return None;
        }
        let record = self.table.insert(key, self.bare, &self.mask, parent, via)?;
        let first = candidates.len();
        self.add_candidates(candidates);
        Some(SearchFrame {
            record,
            first,
            next: first,
        })
    }

    /// Adds the open operations that must be tried, earliest completion first.
    fn add_candidates(&mut self, candidates: &mut Vec<u32>) {
        if self.absorption.is_some() {
            return self.add_absorbing_candidates(candidates);
        }
        let first = candidates.len();
        for word in 0..self.mask.len() {
            for bit in 0..64 {
                let holder = self.holders[word * 64 + bit];
                if holder == NONE || (self.mask[word] >> bit) & 1 == 1 {
                    continue;
                }
                let entry = self.entries[holder as usize];
                let blind = self.values.is_overwrite(entry.action);
                let possible = match self.values.step(self.state, entry.action) {
                    None => false,
                    Some(_) if entry.is_required() => true,
                    Some(next) => next != self.state,
                };
                if possible && !(blind && self.bare) {
                    candidates.push(holder);
                }
            }
        }
        let entries = self.entries;
        let key = |number: &u32| {
            let entry = &entries[*number as usize];
            (entry.action, entry.ret, entry.call)
        };
        let mut listed = candidates.split_off(first);
        listed.sort_unstable_by_key(key);
        listed.dedup_by_key(|number| entries[*number as usize].action);
        listed.sort_by_cached_key(|number| {
            let entry = &entries[*number as usize];
            let next = self.values.step(self.state, entry.action);
            let is_last = next.is_some_and(|next| self.values.is_last_resort(next));
            (is_last, entry.ret, entry.call)
        });
        candidates.extend(listed);
    }

    /// Repeats the step to a record; returns the operations that it linearized, with the state after each.
    pub(crate) fn replay(&mut self, parent: u32, via: u32) -> Vec<(usize, StateId)> {
        self.log = Some(Vec::new());
        if parent == NONE {
            self.mask.fill(0);
            (self.state, self.bare) = (0, false);
            self.walk_to(0);
        } else {
            self.restore(parent);
            self.linearize(via);
        }
        self.settle();
        self.log.take().unwrap_or_default()
    }

    /// The operation whose completion is next.
    pub(crate) fn next_completion(&self) -> Option<u32> {
        match self.events.get(self.at) {
            Some(CallEvent::Return(entry)) => Some(*entry),
            _ => None,
        }
    }

    /// Does no operation lead to the state that this one needs?
    pub(crate) fn is_unfounded(&self, entry: u32) -> bool {
        self.unfounded == Some(entry)
    }

    /// The operations open at the current event.
    pub(crate) fn open(&self) -> Vec<usize> {
        let holders = self.holders.iter().filter(|&&holder| holder != NONE);
        holders.map(|&holder| holder as usize).collect()
    }

    /// Makes a recorded configuration the current one.
    pub(crate) fn restore(&mut self, record: u32) {
        let (at, state) = self.table.key(record);
        self.mask.copy_from_slice(self.table.mask(record));
        self.state = state;
        self.bare = self.table.bare(record);
        self.walk_to(at as usize);
    }

    /// Moves to the event `at`, forwards or backwards, and updates [`Search::holders`].
    fn walk_to(&mut self, at: usize) {
        while self.at < at {
            match self.events[self.at] {
                CallEvent::Call(entry) => {
                    let held = std::mem::replace(self.holder(entry), entry);
                    debug_assert!(held == NONE, "a call takes a free slot");
                }
                CallEvent::Return(entry) => {
                    let held = std::mem::replace(self.holder(entry), NONE);
                    debug_assert!(held == entry, "a return frees the slot of its call");
                }
            }
            self.at += 1;
        }
        while self.at > at {
            self.at -= 1;
            match self.events[self.at] {
                CallEvent::Call(entry) => {
                    let held = std::mem::replace(self.holder(entry), NONE);
                    debug_assert!(held == entry, "backwards, a call frees its slot");
                }
                CallEvent::Return(entry) => {
                    let held = std::mem::replace(self.holder(entry), entry);
                    debug_assert!(held == NONE, "backwards, a return takes a free slot");
                }
            }
        }
        assert!(self.at == at, "the walk ends at its event");
    }

    /// The slot of an entry.
    fn holder(&mut self, entry: u32) -> &mut u32 {
        &mut self.holders[self.slots[entry as usize] as usize]
    }

    pub(crate) fn is_linearized(&self, entry: u32) -> bool {
        let slot = self.slots[entry as usize] as usize;
        (self.mask[slot / 64] >> (slot % 64)) & 1 == 1
    }

    fn flip(&mut self, entry: u32) {
        let slot = self.slots[entry as usize] as usize;
        self.mask[slot / 64] ^= 1 << (slot % 64);
    }

    /// May this overwrite be absorbed by one that was linearized after its invocation?
    pub(crate) fn is_absorbable(&self, entry: u32) -> bool {
        let slot = self.holders.len() + self.slots[entry as usize] as usize;
        (self.mask[slot / 64] >> (slot % 64)) & 1 == 1
    }

    /// Sets whether an overwrite may be absorbed; always not, unless the search does that.
    pub(crate) fn set_absorbable(&mut self, entry: u32, is_absorbable: bool) {
        if self.absorption.is_some() {
            let slot = self.holders.len() + self.slots[entry as usize] as usize;
            let bit = 1 << (slot % 64);
            self.mask[slot / 64] &= !bit;
            self.mask[slot / 64] |= if is_absorbable { bit } else { 0 };
        }
    }

    /// Linearizes an open operation next; false if the state does not allow it. One that is [`ABSORBED`] takes effect right
    /// before the last overwrite, and changes nothing now.
    fn linearize(&mut self, candidate: u32) -> bool {
        let entry = candidate & !ABSORBED;
        if entry != candidate {
            debug_assert!(self.is_absorbable(entry), "an overwrite followed it");
            self.flip(entry);
            if let Some(log) = &mut self.log {
                log.push((candidate as usize, self.state));
            }
            return true;
        }
        let ObjectOperation { action, .. } = self.entries[entry as usize];
        let Some(state) = self.values.step(self.state, action) else {
            return false;
        };
        self.state = state;
        self.bare = !self.entries[entry as usize].is_required();
        self.flip(entry);
        if let Some(log) = &mut self.log {
            log.push((entry as usize, state));
        }
        if self.absorption.is_some() && self.values.is_overwrite(action) {
            self.mark_absorbable(entry);
        }
        true
    }

    /// Advances to the next completion whose operation is not linearized, linearizing every possible open read. True at the end
    /// of the history.
    fn settle(&mut self) -> bool {
        loop {
            let Some(&event) = self.events.get(self.at) else {
                return true;
            };
            if let CallEvent::Return(entry) = event {
                if !self.is_linearized(entry) {
                    if !self.read_all() {
                        return false;
                    }
                    continue;
                }
                self.flip(entry);
                self.set_absorbable(entry, false);
            }
            self.walk_to(self.at + 1);
        }
    }

    /// Linearizes the open reads of the current state; false if there were none.
    fn read_all(&mut self) -> bool {
        let mut any = false;
        for slot in 0..self.required_slots {
            let holder = self.holders[slot];
            if holder == NONE || self.is_linearized(holder) {
                continue;
            }
            let action = self.entries[holder as usize].action;
            if self.values.is_read(action) && self.values.step(self.state, action).is_some() {
                self.flip(holder);
                self.bare = false;
                any = true;
                if let Some(log) = &mut self.log {
                    log.push((holder as usize, self.state));
                }
            }
        }
        any
    }
}

/// Assigns every required entry the lowest slot that is free from its call to its return, and every other entry a slot of its
/// own after those. Returns the slots, the number of the first kind, and the number of all.
fn slots<A>(events: &[CallEvent], entries: &[ObjectOperation<A>]) -> (Vec<u32>, usize, usize) {
    let mut slots = vec![0; entries.len()];
    let mut free = BTreeSet::new();
    let mut required_slots = 0;
    for event in events {
        match *event {
            CallEvent::Call(entry) if entries[entry as usize].is_required() => {
                slots[entry as usize] = free.pop_first().unwrap_or_else(|| {
                    required_slots += 1;
                    required_slots - 1
                });
            }
            CallEvent::Call(_) => {}
            CallEvent::Return(entry) => _ = free.insert(slots[entry as usize]),
        }
    }
    let mut count = required_slots;
    for (entry, slot) in entries.iter().zip(&mut slots) {
        if !entry.is_required() {
            *slot = count;
            count += 1;
        }
    }
    assert!(
        slots.iter().all(|&slot| slot < count),
        "each entry has a slot"
    );
    assert!(required_slots <= count, "required slots come first");
    (slots, required_slots as usize, count as usize)
}
