//! A simple checker of list histories: elements are unique, so every list shows the order of its appends.

use seatrial_kv_protocol::{Answer, Failure, Outcome, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// One transaction of the test.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Appends a new element to a list.
    Append(Key, u64),
    /// Appends a new element to both lists of the pair.
    AppendPair(u64),
    /// Appends a new element to a list, then does something that must fail.
    AppendAndFail(Key, u64),
    /// Reads a list.
    Read(Key),
    /// Reads both lists of the pair.
    ReadPair,
}

/// A list.
pub(crate) type Key = char;

/// Two lists that are only appended to together.
const PAIR: [Key; 2] = ['p', 'q'];

impl Action {
    pub(crate) fn transaction(&self) -> Transaction {
        let mut transaction = Transaction::new();
        for key in self.keys() {
            let name = [key as u8];
            let done = match self {
                Action::Read(_) | Action::ReadPair => transaction.read(&name),
                Action::Append(_, element)
                | Action::AppendPair(element)
                | Action::AppendAndFail(_, element) => {
                    transaction.append(&name, &element.to_le_bytes())
                }
            };
            done.unwrap();
        }
        if matches!(self, Action::AppendAndFail(..)) {
            transaction
                .compare_and_set(b"never written", Some(b"1"), b"2")
                .unwrap();
        }
        transaction
    }

    fn keys(&self) -> Vec<Key> {
        match *self {
            Action::Append(key, _) | Action::AppendAndFail(key, _) | Action::Read(key) => {
                vec![key]
            }
            Action::AppendPair(_) | Action::ReadPair => PAIR.to_vec(),
        }
    }

    fn element(&self) -> Option<u64> {
        match *self {
            Action::Append(_, element)
            | Action::AppendPair(element)
            | Action::AppendAndFail(_, element) => Some(element),
            Action::Read(_) | Action::ReadPair => None,
        }
    }
}

/// An action under way, and what was certain when it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) action: Action,
    /// For each of its keys: elements acknowledged by then, and the longest list read by then.
    known: Vec<(usize, usize)>,
}

/// What everyone has seen of one list.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Acknowledged elements, in the order of their acknowledgement.
    acknowledged: Vec<u64>,
    /// The longest list that was read.
    longest: Vec<u64>,
}

/// Checks answers as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    seen: BTreeMap<Key, Seen>,
    /// Elements of transactions that certainly failed.
    failed: BTreeSet<u64>,
    pub(crate) committed: usize,
    pub(crate) unknown: usize,
}

impl Oracle {
    /// A client invokes a transaction.
    pub(crate) fn ask(&mut self, action: Action) -> Asked {
        let known = action.keys().into_iter().map(|key| {
            let seen = self.seen.entry(key).or_default();
            (seen.acknowledged.len(), seen.longest.len())
        });
        let known = known.collect();
        Asked { action, known }
    }

    /// A client gets an outcome. An error names the violated property.
    pub(crate) fn answer(&mut self, asked: &Asked, outcome: &Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Unknown(_) => self.unknown += 1,
            Outcome::Failed(failure) => {
                let is_meant = matches!(asked.action, Action::AppendAndFail(..));
                match failure {
                    Failure::NoSession | Failure::Overloaded | Failure::Busy => {}
                    Failure::CompareFailed { operation: 1 } if is_meant => {}
                    other => return Err(format!("{:?} failed: {other}", asked.action)),
                }
                self.failed.extend(asked.action.element());
            }
            Outcome::Ok(answers) => {
                self.committed += 1;
                if matches!(asked.action, Action::AppendAndFail(..)) {
                    return Err(format!("{:?} committed", asked.action));
                }
                if let Some(element) = asked.action.element() {
                    for key in asked.action.keys() {
                        let seen = self.seen.entry(key).or_default();
                        seen.acknowledged.push(element);
                    }
                } else {
                    self.lists(asked, answers.iter().map(list).collect())?;
                }
            }
        }
        Ok(())
    }

    /// Everything was read at the end: is anything there that must not be?
    pub(crate) fn finish(&self) -> Result<(), String> {
        for (key, seen) in &self.seen {
            if let Some(element) = seen.longest.iter().find(|it| self.failed.contains(it)) {
                return Err(format!("{key}: {element} failed and was read"));
            }
        }
        Ok(())
    }

    fn lists(&mut self, asked: &Asked, lists: Vec<Vec<u64>>) -> Result<(), String> {
        if lists.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("half of a transaction was read: {lists:?}"));
        }
        let keys = asked.action.keys();
        for ((key, list), (acknowledged, length)) in keys.into_iter().zip(lists).zip(&asked.known) {
            let seen = self.seen.entry(key).or_default();
            let unique: BTreeSet<u64> = list.iter().copied().collect();
            if unique.len() != list.len() {
                return Err(format!("{key}: an element twice in {list:?}"));
            }
            let known = &seen.acknowledged[..*acknowledged];
            if let Some(lost) = known.iter().find(|it| !unique.contains(it)) {
                return Err(format!("{key}: {lost} was acknowledged, but {list:?}"));
            }
            if list.len() < *length {
                return Err(format!("{key}: {length} elements were read, now {list:?}"));
            }
            let common = list.len().min(seen.longest.len());
            if list[..common] != seen.longest[..common] {
                return Err(format!("{key}: {:?} and {list:?}", seen.longest));
            }
            if list.len() > seen.longest.len() {
                seen.longest = list;
            }
        }
        Ok(())
    }
}

/// The elements that a read found.
fn list(answer: Answer<'_>) -> Vec<u64> {
    match answer {
        Answer::List(list) => list
            .iter()
            .map(|element| u64::from_le_bytes(element.try_into().unwrap()))
            .collect(),
        Answer::Absent => Vec::new(),
        other => panic!("a list was read as {other:?}"),
    }
}
