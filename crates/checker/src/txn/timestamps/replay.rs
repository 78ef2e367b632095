//! The replay.

use super::Promise;
use super::gather::{Does, Timestamped};
use crate::txn::Map;
use seatrial_history::Key;
use seatrial_history::import::registers::Stamp;

/// Nobody.
const NONE: u32 = u32::MAX;
/// Elements of a list that are shown.
const SHOWN_MAX: usize = 8;

/// What contradicts the order of the timestamps. Events are numbered over all transactions.
#[derive(Debug)]
pub(super) enum Fault {
    /// A read that contradicts its own transaction.
    Internal {
        transaction: u32,
        event: usize,
        /// What it should have read.
        expected: String,
    },
    /// A read that is not of its snapshot.
    Read {
        transaction: u32,
        event: usize,
        /// What it should have read.
        expected: String,
        /// Who wrote that.
        writer: Option<u32>,
    },
    /// Two writers of a key at the same time.
    Conflict { first: u32, second: u32, key: Key },
    /// A session against the order.
    Session { first: u32, second: u32 },
}

/// A point of the order: when, then commits before starts, as those that start then see them; the commit of a transaction
/// that takes no time comes right behind its start. The last bit of the transaction says which it is.
type Point = (Stamp, bool, u32);

/// The state of the database along the order, one place per key.
pub(super) struct Replay<'a> {
    transactions: &'a Timestamped,
    promise: Promise,
    values: Vec<i64>,
    /// Empty unless there are lists.
    lists: Vec<Vec<i64>>,
    /// Who wrote a key last.
    writers: Vec<u32>,
    /// By key: the last transaction that had it in hand, and what it saw or wrote.
    owners: Vec<u32>,
    owned: Vec<i64>,
    /// By transaction: when in the order it started (its commit, where there are no snapshots).
    places: Vec<u32>,
    /// By transaction: when it was committed.
    commits: Vec<u32>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(transactions: &'a Timestamped, promise: Promise) -> Replay<'a> {
        let (keys, count) = (transactions.key_count(), transactions.len());
        Replay {
            transactions,
            promise,
            values: vec![0; keys],
            lists: Vec::new(),
            writers: vec![NONE; keys],
            owners: vec![NONE; keys],
            owned: vec![0; keys],
            places: vec![NONE; count],
            commits: vec![NONE; count],
        }
    }

    /// The order.
    fn order(&self) -> Vec<Point> {
        let mut points = Vec::with_capacity(2 * self.transactions.len());
        for transaction in 0..self.transactions.len() as u32 {
            let stamps = self.transactions.stamps(transaction);
            let takes_time = stamps.start < stamps.commit;
            if self.promise.has_snapshots() {
                points.push((stamps.start, true, transaction << 1));
                points.push((stamps.commit, !takes_time, transaction << 1 | 1));
            } else {
                points.push((stamps.commit, true, transaction << 1 | 1));
            }
        }
        points.sort_unstable();
        points
    }

    /// Goes through the order; tells what contradicts it.
    pub(super) fn run(&mut self, mut tell: impl FnMut(Fault)) {
        for (place, &(_, _, point)) in self.order().iter().enumerate() {
            let (transaction, commits) = (point >> 1, point & 1 == 1);
            if !commits || !self.promise.has_snapshots() {
                self.places[transaction as usize] = place as u32;
                self.read(transaction, &mut tell);
            }
            if commits {
                self.commits[transaction as usize] = place as u32;
                self.write(transaction, &mut tell);
            }
        }
        if self.promise.has_sessions() {
            self.sessions(&mut tell);
        }
    }

    /// Compares what a transaction read with the state and with what it did itself.
    fn read(&mut self, transaction: u32, tell: &mut impl FnMut(Fault)) {
        let transactions = self.transactions;
        for event in transactions.events(transaction) {
            let operation = transactions.operation(event);
            let key = operation.number as usize;
            let own = self.owners[key] == transaction;
            match operation.does {
                Does::Write(value) => {
                    self.owners[key] = transaction;
                    self.owned[key] = value;
                }
                Does::Append(_) => {}
                Does::Read(value) => {
                    let written = self.writers[key] != NONE;
                    let state = written.then(|| self.values[key]);
                    let expected = if own { Some(self.owned[key]) } else { state };
                    self.owners[key] = transaction;
                    self.owned[key] = value;
                    if expected != Some(value) {
                        let expected = expected.map_or("nothing".to_owned(), |it| it.to_string());
                        tell(self.fault(transaction, event, own, key, expected));
                    }
                }
                Does::ReadList(seen) => self.read_list(transaction, event, key, seen, tell),
            }
        }
    }

    fn fault(
        &self,
        transaction: u32,
        event: usize,
        own: bool,
        key: usize,
        expected: String,
    ) -> Fault {
        if own {
            return Fault::Internal {
                transaction,
                event,
                expected,
            };
        }
        let writer = self.writers[key];
        Fault::Read {
            transaction,
            event,
            expected,
            writer: (writer != NONE).then_some(writer),
        }
    }

    /// Compares a read of a list, or of a key without a value, which is an empty one.
    fn read_list(
        &mut self,
        transaction: u32,
        event: usize,
        key: usize,
        seen: &[i64],
        tell: &mut impl FnMut(Fault),
    ) {
        let state = self.lists.get(key).map_or(&[][..], |list| &list[..]);
        let transactions = self.transactions;
        let first = transactions.events(transaction).start;
        let own = (first..event).filter_map(|event| {
            let operation = transactions.operation(event);
            match operation.does {
                Does::Append(element) if operation.number as usize == key => Some(element),
                _ => None,
            }
        });
        let is_register = state.is_empty() && self.writers[key] != NONE
            || self.owners[key] == transaction && self.lists.get(key).is_none_or(Vec::is_empty);
        let equal = !is_register
            && state
                .iter()
                .copied()
                .chain(own.clone())
                .eq(seen.iter().copied());
        if equal {
            return;
        }
        if is_register {
            let own = self.owners[key] == transaction;
            let value = if own {
                self.owned[key]
            } else {
                self.values[key]
            };
            tell(self.fault(transaction, event, own, key, value.to_string()));
            return;
        }
        // What its own appends explain, its own appends contradict.
        let inner = own.clone().next().is_some() && seen.starts_with(state);
        let expected: Vec<i64> = state.iter().copied().chain(own).collect();
        tell(self.fault(transaction, event, inner, key, listed(&expected)));
    }

    /// Lets what a transaction wrote take place.
    fn write(&mut self, transaction: u32, tell: &mut impl FnMut(Fault)) {
        let transactions = self.transactions;
        for event in transactions.events(transaction) {
            let operation = transactions.operation(event);
            if !operation.is_write() {
                continue;
            }
            let key = operation.number as usize;
            let before = self.writers[key];
            let started = self.places[transaction as usize];
            if before != NONE
                && before != transaction
                && self.promise.has_snapshots()
                && self.commits[before as usize] > started
            {
                tell(Fault::Conflict {
                    first: before,
                    second: transaction,
                    key: transactions.name(operation.number).clone(),
                });
            }
            self.writers[key] = transaction;
            match operation.does {
                Does::Append(element) => {
                    if self.lists.is_empty() {
                        self.lists = vec![Vec::new(); transactions.key_count()];
                    }
                    self.lists[key].push(element);
                }
                Does::Write(value) => self.values[key] = value,
                Does::Read(_) | Does::ReadList(_) => {}
            }
        }
    }

    /// Compares the order of each session with that of the timestamps.
    fn sessions(&self, tell: &mut impl FnMut(Fault)) {
        let mut last: Map<u64, u32> = Map::default();
        for second in 0..self.transactions.len() as u32 {
            let session = self.transactions.session(second);
            if let Some(first) = last.insert(session, second)
                && self.commits[first as usize] > self.places[second as usize]
            {
                tell(Fault::Session { first, second });
            }
        }
    }
}

/// The end of a list, for people.
pub(super) fn listed(elements: &[i64]) -> String {
    let left = elements.len().saturating_sub(SHOWN_MAX);
    let shown: Vec<String> = elements[left..].iter().map(ToString::to_string).collect();
    let before = if left > 0 { "… " } else { "" };
    format!("[{before}{}]", shown.join(" "))
}
