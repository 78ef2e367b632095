//! What an operation is about: the keys and elements that its value names.

use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, Key, OpView, Value};
use std::collections::BTreeSet;

/// One thing that an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSubject<'a> {
    /// A key that is a number; or, where there are no keys, the number that is read, written, added or enqueued.
    Number(i64),
    /// The same as text or keyword.
    Name(&'a str),
}

impl<'a> OperationSubject<'a> {
    /// The subject that a key names.
    pub fn of_key(key: &'a Key) -> OperationSubject<'a> {
        match key {
            Key::Int(number) => OperationSubject::Number(*number),
            Key::Word(word) => OperationSubject::Name(word.as_str()),
            Key::Text(text) => OperationSubject::Name(text),
        }
    }
}

/// A set of subjects, at most as many as its owner adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectSet {
    numbers: BTreeSet<i64>,
    names: BTreeSet<String>,
}

/// Fields of a map whose value is a key.
const KEY_FIELDS: [&str; 6] = ["key", "from", "to", "account", "block", "offset"];

impl SubjectSet {
    /// Adds what a person names on a command line: a number, or a text with or without the colon of a keyword.
    pub fn insert_text(&mut self, text: &str) {
        match text.parse() {
            Ok(number) => _ = self.numbers.insert(number),
            Err(_) => _ = self.names.insert(text.trim_start_matches(':').to_owned()),
        }
    }

    /// Adds one subject.
    pub fn insert(&mut self, subject: OperationSubject<'_>) {
        match subject {
            OperationSubject::Number(number) => _ = self.numbers.insert(number),
            OperationSubject::Name(name) => {
                if !self.names.contains(name) {
                    self.names.insert(name.to_owned());
                }
            }
        }
    }

    /// Is this one of them?
    pub fn contains(&self, subject: OperationSubject<'_>) -> bool {
        match subject {
            OperationSubject::Number(number) => self.numbers.contains(&number),
            OperationSubject::Name(name) => self.names.contains(name),
        }
    }

    /// Is it without subjects?
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.names.is_empty()
    }

    /// The number of subjects.
    pub fn len(&self) -> usize {
        self.numbers.len() + self.names.len()
    }

    /// All subjects as text: numbers, then names.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        let numbers = self.numbers.iter().map(ToString::to_string);
        numbers.chain(self.names.iter().cloned())
    }
}

/// A set of subjects, prepared for the operations of one chunk: each key of the chunk is looked up once.
#[derive(Debug)]
pub struct ChunkSubjects<'a> {
    set: &'a SubjectSet,
    /// For each key id of the chunk: is it in the set?
    is_wanted: Vec<bool>,
}

impl<'a> ChunkSubjects<'a> {
    /// Looks all keys of a chunk up.
    pub fn new(set: &'a SubjectSet, chunk: &Chunk) -> ChunkSubjects<'a> {
        let keys = (0..chunk.key_count() as u32).map(|id| chunk.key(id));
        let is_wanted = keys.map(|key| set.contains(OperationSubject::of_key(key)));
        ChunkSubjects {
            set,
            is_wanted: is_wanted.collect(),
        }
    }

    /// Is the operation about one of the subjects? It must be of the chunk.
    pub fn concern(&self, view: OpView<'_>) -> bool {
        if let Some(key) = view.chunk().key_id(view.place()) {
            return self.is_wanted[key as usize];
        }
        if let ValueView::Txn(mops) = view.value() {
            return mops.iter().any(|mop| self.is_wanted[mop.key() as usize]);
        }
        let mut found = false;
        subjects(view, &mut |subject| found |= self.set.contains(subject));
        found
    }
}

/// Calls `take` with all that an operation is about: its independent key; the keys of its transaction; the accounts of its
/// transfer; fields of its value that name keys; else its value, if that is a number, a pair of them, or a text. A
/// collection that is read as a whole names nothing.
pub(crate) fn subjects(view: OpView<'_>, take: &mut dyn FnMut(OperationSubject<'_>)) {
    if let Some(key) = view.key() {
        return take(OperationSubject::of_key(key));
    }
    match view.value() {
        ValueView::Txn(mops) => mops
            .iter()
            .for_each(|mop| take(OperationSubject::of_key(mops.key(mop.key())))),
        ValueView::Int(number) => take(OperationSubject::Number(number)),
        ValueView::Cas(from, to) => [from, to]
            .into_iter()
            .for_each(|number| take(OperationSubject::Number(number))),
        ValueView::Transfer { from, to, .. } => [from, to]
            .into_iter()
            .for_each(|number| take(OperationSubject::Number(number))),
        ValueView::Text(text) => take(OperationSubject::Name(text)),
        ValueView::Word(word) => take(OperationSubject::Name(word.as_str())),
        ValueView::Other(tape) => {
            if let Value::Map(fields) = tape.to_value() {
                of_fields(&fields, take);
            }
        }
        ValueView::Nil | ValueView::Bool(_) | ValueView::Integers(_) | ValueView::IntegerSet(_) => {
        }
    }
}

/// The subjects of a value that is a map.
fn of_fields(fields: &[(Value, Value)], take: &mut dyn FnMut(OperationSubject<'_>)) {
    for (field, value) in fields {
        let name = match field {
            Value::Word(word) => word.as_str(),
            Value::Text(text) => text,
            _ => continue,
        };
        if !KEY_FIELDS.contains(&name) {
            continue;
        }
        match value {
            Value::Int(number) => take(OperationSubject::Number(*number)),
            Value::Text(text) => take(OperationSubject::Name(text)),
            Value::Word(word) => take(OperationSubject::Name(word.as_str())),
            _ => {}
        }
    }
}

impl SubjectSet {
    /// Adds all that an operation is about.
    pub fn insert_all(&mut self, view: OpView<'_>) {
        subjects(view, &mut |subject| self.insert(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{ChunkSource, History, Mop, Observed, Op, Process};
    use std::ops::ControlFlow;
    use std::sync::Arc;

    fn subjects_of(value: Value) -> Vec<String> {
        let op = Op::invoke(Process::Client(0), "f", value);
        let history = History::from_unindexed(vec![op]);
        let mut set = SubjectSet::default();
        let round = history.round(&mut |chunk| {
            for view in chunk.views() {
                set.insert_all(view);
                assert!(set.is_empty() || ChunkSubjects::new(&set, chunk).concern(view));
                assert!(!ChunkSubjects::new(&SubjectSet::default(), chunk).concern(view));
            }
            ControlFlow::Continue(())
        });
        round.unwrap();
        set.iter().collect()
    }

    #[test]
    fn values_name_keys_or_elements() {
        let txn = [
            Mop::Append {
                key: Key::Int(5),
                element: 39,
            },
            Mop::Read {
                key: Key::Text("x".into()),
                observed: Observed::Nil,
            },
        ];
        assert_eq!(subjects_of(Value::Txn(txn.into())), ["5", "x"]);
        let keyed = Value::Keyed(Key::Int(7), Arc::new(Value::Int(39)));
        assert_eq!(subjects_of(keyed), ["7"]);
        assert_eq!(subjects_of(Value::Int(39)), ["39"]);
        assert_eq!(subjects_of(Value::Cas(1, 2)), ["1", "2"]);
        assert_eq!(subjects_of(Value::text("a")), ["a"]);
        let field = |name: &'static str, number| (Value::Word(name.into()), Value::Int(number));
        let transfer = [field("from", 1), field("to", 2), field("amount", 9)];
        assert_eq!(subjects_of(Value::Map(transfer.into())), ["1", "2"]);
        let write = [field("block", 3), field("data", 4)];
        assert_eq!(subjects_of(Value::Map(write.into())), ["3"]);
        let list = Value::List([Value::Int(1), Value::Int(2), Value::Int(3)].into());
        assert_eq!(subjects_of(list), [""; 0]);
        assert_eq!(subjects_of(Value::Nil), [""; 0]);
    }

    #[test]
    fn command_lines_name_numbers_and_keywords() {
        let mut set = SubjectSet::default();
        for text in ["5", ":x", "-7", "y z"] {
            set.insert_text(text);
        }
        assert_eq!(set.len(), 4);
        assert!(set.contains(OperationSubject::of_key(&Key::Word("x".into()))));
        assert!(set.contains(OperationSubject::Name("y z")));
        assert!(
            set.contains(OperationSubject::Number(-7))
                && !set.contains(OperationSubject::Number(7))
        );
    }
}
