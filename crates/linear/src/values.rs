//! The values of a history, numbered.

use crate::collections::CollectionStates;
use crate::essential::drop_needless;
use crate::linearization_search::Transitions;
use crate::model::{Action, Model, Taken};
use crate::object::ObjectOperation;
use crate::text_reads::{TextReads, TextState, UNREAD};
use seatrial_history::{FixedMap, Value};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The number of a value; also the state of an object. 0 is the initial state.
pub(crate) type StateId = u32;

/// Integers from 0 to this times the number of known values are found by index, others by hash: workloads count up.
const DENSE_FACTOR: usize = 16;
/// Integers that are found by index however few are known.
const DENSE_MIN: usize = 4_096;

/// All values of a history, numbered in order of appearance. Key independent: the same value of two keys has one number.
///
/// Cost: 12 bytes for an integer that is found by index, about 40 for another, its text twice for any other value. A look-up is
/// one access for the former.
pub(crate) struct NumberedValues {
    /// By integer: its number plus one, 0 for none.
    dense: Vec<u32>,
    integers: FixedMap<i64, StateId>,
    /// All other values, by their text.
    texts: FixedMap<Arc<str>, StateId>,
    /// By number: the integer, where [`NumberedValues::others`] has no other value.
    known: Vec<i64>,
    others: FixedMap<StateId, Value>,
}

impl NumberedValues {
    /// Only the initial value of `model`.
    pub(crate) fn new(model: Model) -> NumberedValues {
        let mut values = NumberedValues {
            dense: Vec::new(),
            integers: FixedMap::default(),
            texts: FixedMap::default(),
            known: Vec::new(),
            others: FixedMap::default(),
        };
        let initial = values.intern(&model.initial());
        assert!(initial == 0, "the initial value is the first");
        values
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The number of an integer.
    pub(crate) fn integer(&mut self, integer: i64) -> StateId {
        if let Some(known) = self.known_integer(integer) {
            return known;
        }
        let place = usize::try_from(integer).unwrap_or(usize::MAX);
        let number = self.known.len() as StateId;
        self.known.push(integer);
        if place < DENSE_MIN.max(DENSE_FACTOR * self.known.len()) {
            if self.dense.len() <= place {
                self.dense.resize((place + 1).next_power_of_two(), 0);
            }
            self.dense[place] = number + 1;
        } else {
            self.integers.insert(integer, number);
        }
        number
    }

    /// The number of an integer, if it is known.
    fn known_integer(&self, integer: i64) -> Option<StateId> {
        let place = usize::try_from(integer).unwrap_or(usize::MAX);
        let dense = self.dense.get(place).filter(|&&known| known > 0);
        let dense = dense.map(|&known| known - 1);
        // An integer that was out of reach of the index when it first appeared stays in the map.
        dense.or_else(|| self.integers.get(&integer).copied())
    }

    /// The number of `value`.
    pub(crate) fn intern(&mut self, value: &Value) -> StateId {
        if let Value::Int(integer) = value {
            return self.integer(*integer);
        }
        let text: Arc<str> = value.to_string().into();
        if let Some(&known) = self.texts.get(&text) {
            return known;
        }
        let number = self.known.len() as StateId;
        self.texts.insert(text, number);
        self.known.push(0);
        self.others.insert(number, value.clone());
        assert!(
            self.texts.len() == self.others.len(),
            "each value that is no integer has a text of its own"
        );
        number
    }

    /// The value of this number.
    pub(crate) fn get(&self, state: StateId) -> Value {
        let other = self.others.get(&state).cloned();
        other.unwrap_or_else(|| Value::Int(self.known[state as usize]))
    }
}

/// The states of one object: those of the table, and texts that appends make.
pub(crate) struct ObjectStates<'v> {
    values: &'v NumberedValues,
    /// Texts that only appends make, by number minus that of the first.
    made: Vec<Value>,
    made_texts: FixedMap<Arc<str>, StateId>,
    appended: FixedMap<(StateId, StateId), StateId>,
    /// Bytes of `made`.
    bytes: usize,
    /// The states of a collection.
    collection: Option<CollectionStates>,
    /// The texts that are read, if there are appends.
    reads: Option<TextReads>,
}

/// An append that no order can have.
const IMPOSSIBLE: StateId = StateId::MAX;

impl<'v> ObjectStates<'v> {
    pub(crate) fn new(model: Model, values: &'v NumberedValues) -> ObjectStates<'v> {
        ObjectStates {
            collection: model.is_collection().then(|| CollectionStates::new(model)),
            values,
            made: Vec::new(),
            made_texts: FixedMap::default(),
            appended: FixedMap::default(),
            reads: None,
            bytes: 0,
        }
    }

    /// The state of this number; that of a collection is the list of its elements, front first.
    pub(crate) fn state(&self, state: StateId) -> Value {
        let Some(collection) = &self.collection else {
            return self.get(state);
        };
        let elements = collection.elements(state);
        Value::List(elements.map(|element| self.get(element)).collect())
    }

    /// The state of this number in at most `characters_max` characters; of a long collection both ends.
    pub(crate) fn state_text(&self, state: StateId, characters_max: usize) -> String {
        let Some(collection) = &self.collection else {
            return bounded_text(self.get(state), characters_max);
        };
        let elements: Vec<StateId> = collection.elements(state).collect();
        let text = |elements: &[StateId]| {
            let texts = elements.iter();
            let texts = texts.map(|&one| bounded_text(self.get(one), characters_max));
            texts.collect::<Vec<_>>().join(" ")
        };
        // As many elements of both ends as there is room for, at least one of each.
        let mut shown = elements.len().min(characters_max / 2);
        loop {
            let end = elements.len() - shown / 2;
            let inner = if shown == elements.len() {
                text(&elements)
            } else {
                let (first, last) = (&elements[..shown.div_ceil(2)], &elements[end..]);
                format!("{} … {}", text(first), text(last))
            };
            if shown <= 2 || inner.chars().count() + 2 <= characters_max {
                return bounded_text(format_args!("[{inner}]"), characters_max);
            }
            shown = shown * 3 / 4;
        }
    }

    /// The value of this number.
    pub(crate) fn get(&self, state: StateId) -> Value {
        if state == UNREAD {
            return Value::text("a text that nothing reads");
        }
        let made = (state as usize).checked_sub(self.values.len());
        let made = made.and_then(|place| self.made.get(place));
        made.cloned().unwrap_or_else(|| self.values.get(state))
    }

    /// Learns which texts the operations read, which spares states (see [`TextReads`]).
    pub(crate) fn prepare(&mut self, entries: &[ObjectOperation]) {
        let has_appends = entries
            .iter()
            .any(|entry| matches!(entry.action, Action::Append(_)));
        if has_appends {
            self.reads = Some(TextReads::new(entries, self.values));
        }
    }

    /// Does it know what is read?
    pub(crate) fn is_prepared(&self) -> bool {
        self.reads.is_some()
    }

    fn append(&mut self, state: StateId, text: StateId) -> Option<StateId> {
        if state == UNREAD {
            return Some(UNREAD);
        }
        if let Some(&known) = self.appended.get(&(state, text)) {
            return (known != IMPOSSIBLE).then_some(known);
        }
        let part = |state| match self.get(state) {
            Value::Text(text) => text,
            other => other.to_string().into(),
        };
        let whole = Value::text(format!("{}{}", part(state), part(text)));
        let worth = match (&self.reads, &whole) {
            (Some(reads), Value::Text(text)) => reads.state(text),
            _ => TextState::Read,
        };
        let number = match worth {
            TextState::Read => self.make(whole),
            TextState::Unread => UNREAD,
            TextState::Impossible => IMPOSSIBLE,
        };
        self.appended.insert((state, text), number);
        (number != IMPOSSIBLE).then_some(number)
    }

    /// The counter after an addition; the sum wraps around.
    fn increment(&mut self, state: StateId, by: StateId) -> StateId {
        if let Some(&known) = self.appended.get(&(state, by)) {
            return known;
        }
        let (Value::Int(before), Value::Int(by_integer)) = (self.get(state), self.get(by)) else {
            return state;
        };
        let number = self.make(Value::Int(before.wrapping_add(by_integer)));
        self.appended.insert((state, by), number);
        number
    }

    /// The number of a value that an operation made.
    fn make(&mut self, whole: Value) -> StateId {
        if let Value::Int(integer) = whole
            && let Some(known) = self.values.known_integer(integer)
        {
            return known;
        }
        let text_of: Arc<str> = whole.to_string().into();
        let known = self.values.texts.get(&text_of);
        let known = known.or_else(|| self.made_texts.get(&text_of)).copied();
        known.unwrap_or_else(|| {
            let number = (self.values.len() + self.made.len()) as StateId;
            self.bytes += 2 * text_of.len();
            self.made_texts.insert(text_of, number);
            self.made.push(whole);
            number
        })
    }
}

impl Transitions for ObjectStates<'_> {
    type Action = Action;

    fn step(&mut self, state: StateId, action: Action) -> Option<StateId> {
        if let Some(collection) = &mut self.collection {
            return collection.step(self.values, state, action);
        }
        match action {
            Action::Read(value) => (state == value).then_some(state),
            Action::Write(value) => Some(value),
            Action::Cas(from, to) => (state == from).then_some(to),
            Action::Append(text) => self.append(state, text),
            Action::Increment(by) => Some(self.increment(state, by)),
            _ => None, // a collection's
        }
    }

    fn is_read(&self, action: Action) -> bool {
        match action {
            Action::Read(_) | Action::Peek(..) | Action::Take(_, Taken::Nothing) => true,
            Action::Cas(from, to) => from == to,
            _ => false,
        }
    }

    fn is_overwrite(&self, action: Action) -> bool {
        matches!(action, Action::Write(_))
    }

    fn is_last_resort(&self, state: StateId) -> bool {
        state == UNREAD
    }

    fn needed_state(&self, action: Action) -> Option<StateId> {
        match action {
            Action::Read(from) | Action::Cas(from, _) => Some(from),
            _ => None,
        }
    }

    fn resulting_state(&self, action: Action) -> Option<StateId> {
        match action {
            Action::Write(to) => Some(to),
            Action::Cas(from, to) if from != to => Some(to),
            _ => None,
        }
    }

    /// `None` with appends and the like, since those may lead to any state.
    fn unfounded(&self, entries: &[ObjectOperation]) -> Option<u32> {
        let mut founded: FixedMap<StateId, u32> = FixedMap::default();
        founded.insert(0, 0);
        for entry in entries {
            match entry.action {
                Action::Write(to) => _ = founded.entry(to).or_insert(entry.call),
                Action::Cas(from, to) if from != to => {
                    founded.entry(to).or_insert(entry.call);
                }
                Action::Read(_) | Action::Cas(..) => {}
                _ => return None,
            }
        }
        let is_unfounded = |entry: &ObjectOperation| match entry.action {
            Action::Read(from) | Action::Cas(from, _) if entry.is_required() => {
                founded.get(&from).is_none_or(|&call| call > entry.ret)
            }
            _ => false,
        };
        let numbered = entries.iter().zip(0..);
        let all = numbered.filter(|(entry, _)| is_unfounded(entry));
        all.min_by_key(|(entry, _)| entry.ret)
            .map(|(_, number)| number)
    }

    /// Also learns which texts are read.
    fn reduce(&mut self, entries: &mut Vec<ObjectOperation>) {
        entries.retain(|entry| entry.is_required() || !self.is_read(entry.action));
        drop_needless(entries);
        // What an append leads to depends on the reads, which are others now.
        self.appended.clear();
        self.reads = None;
        self.prepare(entries);
    }

    fn bytes(&self) -> usize {
        self.bytes + self.collection.as_ref().map_or(0, CollectionStates::bytes)
    }
}

/// What `value` prints, in at most `characters_max` characters. A long value is not printed to its end.
pub(crate) fn bounded_text(value: impl fmt::Display, characters_max: usize) -> String {
    let mut text = BoundedText {
        text: String::new(),
        room: characters_max,
    };
    // An error means that there is no more room.
    if write!(text, "{value}").is_err() {
        text.text.pop();
        text.text.push('…');
    }
    text.text
}

/// Takes up to `room` characters and refuses the rest.
struct BoundedText {
    text: String,
    room: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.char_indices().nth(self.room).map(|(end, _)| end);
        let taken = &text[..end.unwrap_or(text.len())];
        self.room -= taken.chars().count();
        self.text.push_str(taken);
        end.map_or(Ok(()), |_| Err(fmt::Error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_number_each() {
        let mut values = NumberedValues::new(Model::Register);
        let integers = [0, 1, -1, 70_000, 5, 1 << 40, i64::MIN, i64::MAX];
        let numbers = integers.map(|integer| values.integer(integer));
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
        for integer in 0..5_000 {
            values.integer(integer);
        }
        assert_eq!(integers.map(|integer| values.integer(integer)), numbers);
        assert_eq!(values.get(4), Value::Int(70_000));
        assert_eq!((values.get(0), values.intern(&Value::Nil)), (Value::Nil, 0));
        let text = values.intern(&Value::text("1"));
        assert_eq!(values.get(text), Value::text("1"));
        assert_ne!(text, values.integer(1));
    }

    #[test]
    fn appended_text_is_the_value_that_was_read() {
        let mut values = NumberedValues::new(Model::KeyValue);
        let [a, b, ab] = ["a", "b", "ab"].map(|text| values.intern(&Value::text(text)));
        let mut states = ObjectStates::new(Model::KeyValue, &values);
        assert_eq!(states.append(0, a), Some(a));
        assert_eq!(states.append(a, b), Some(ab));
        let aba = states.append(ab, a).unwrap();
        assert_eq!(aba as usize, values.len());
        assert_eq!(states.append(ab, a), Some(aba));
        assert_eq!(states.get(aba), Value::text("aba"));
    }
}
