//! The replay of transactions in the order of their timestamps.

use super::TimestampLevel;
use super::gather_timestamps::{StampedAccess, Timestamped};
use seatrial_cycles::{Txn, dense_id};
use seatrial_history::FixedMap;
use seatrial_history::Key;
use seatrial_history::Stamp;

dense_id! {
    /// A place in the order of points.
    ReplayPlace
}

/// Number of elements of a list that are shown.
const SHOWN_MAX: usize = 8;

/// A contradiction to the order of the timestamps. Events are numbered over all transactions.
#[derive(Debug)]
pub(super) enum TimestampViolation {
    /// A read that contradicts its own transaction.
    Internal {
        transaction: u32,
        event: usize,
        /// What it should have read.
        expected: String,
    },
    /// A read of another version than that of its snapshot.
    Read {
        transaction: u32,
        event: usize,
        /// What it should have read.
        expected: String,
        /// The transaction that wrote that.
        writer: Option<u32>,
    },
    /// Two writers of a key that overlap.
    Conflict { first: u32, second: u32, key: Key },
    /// Two transactions of a session in the wrong order.
    Session { first: u32, second: u32 },
}

/// A point of the order: the time; commits before starts, so that transactions that start then see them; the commit of a
/// transaction that takes no time comes directly after its start. The last bit of the transaction says which it is.
type ReplayPoint = (Stamp, bool, u32);

/// The state of the database during the replay, one entry per key.
pub(super) struct TimestampReplay<'a> {
    transactions: &'a Timestamped,
    level: TimestampLevel,
    values: Vec<i64>,
    /// Empty unless there are lists.
    lists: Vec<Vec<i64>>,
    /// By key: its last writer.
    writers: Vec<Option<Txn>>,
    /// By key: the last transaction that accessed it, and the value that it saw or wrote.
    owners: Vec<Option<Txn>>,
    owned: Vec<i64>,
    /// By transaction: the place of its start in the order (of its commit, if there are no snapshots); `None` until it is
    /// replayed.
    places: Vec<Option<ReplayPlace>>,
    /// By transaction: the place of its commit.
    commits: Vec<Option<ReplayPlace>>,
    /// Reads that only a transaction of unknown outcome explains. Nothing says when it was committed, if it was, so such a read
    /// is neither right nor wrong.
    undecided: u64,
}

impl<'a> TimestampReplay<'a> {
    pub(super) fn new(transactions: &'a Timestamped, level: TimestampLevel) -> TimestampReplay<'a> {
        let (keys, count) = (transactions.key_count(), transactions.len());
        TimestampReplay {
            transactions,
            level,
            values: vec![0; keys],
            lists: Vec::new(),
            writers: vec![None; keys],
            owners: vec![None; keys],
            owned: vec![0; keys],
            places: vec![None; count],
            commits: vec![None; count],
            undecided: 0,
        }
    }

    /// The points of all transactions, sorted.
    fn order(&self) -> Vec<ReplayPoint> {
        let mut points = Vec::with_capacity(2 * self.transactions.len());
        for transaction in 0..self.transactions.len() as u32 {
            let stamps = self.transactions.stamps(transaction);
            let takes_time = stamps.start < stamps.commit;
            if self.level.has_snapshots() {
                points.push((stamps.start, true, transaction << 1));
                points.push((stamps.commit, !takes_time, transaction << 1 | 1));
            } else {
                points.push((stamps.commit, true, transaction << 1 | 1));
            }
        }
        let per_transaction = if self.level.has_snapshots() { 2 } else { 1 };
        assert_eq!(points.len(), per_transaction * self.transactions.len());
        points.sort_unstable();
        points
    }

    /// Replays all transactions, and passes on each violation.
    pub(super) fn run(&mut self, mut tell: impl FnMut(TimestampViolation)) {
        let order = self.order();
        for (place, &(_, _, point)) in ReplayPlace::all(order.len()).zip(&order) {
            let (transaction, commits) = (point >> 1, point & 1 == 1);
            if !commits || !self.level.has_snapshots() {
                self.places[transaction as usize] = Some(place);
                self.read(transaction, &mut tell);
            }
            if commits {
                self.commits[transaction as usize] = Some(place);
                self.write(transaction, &mut tell);
            }
        }
        assert!(
            !self.commits.contains(&None) && !self.places.contains(&None),
            "a transaction was not replayed"
        );
        if self.level.has_sessions() {
            self.sessions(&mut tell);
        }
    }

    /// Number of reads that only a transaction of unknown outcome explains.
    pub(super) fn undecided(&self) -> u64 {
        self.undecided
    }

    /// Compares the reads of a transaction with the state and with its own accesses.
    fn read(&mut self, transaction: u32, tell: &mut impl FnMut(TimestampViolation)) {
        let transactions = self.transactions;
        for event in transactions.events(transaction) {
            let operation = transactions.operation(event);
            let key = operation.number as usize;
            let own = self.owners[key] == Some(Txn::new(transaction));
            match operation.does {
                StampedAccess::Write(value) => {
                    self.owners[key] = Some(Txn::new(transaction));
                    self.owned[key] = value;
                }
                StampedAccess::Append(_) => {}
                StampedAccess::Read(value) => {
                    let state = self.writers[key].map(|_| self.values[key]);
                    let expected = if own { Some(self.owned[key]) } else { state };
                    self.owners[key] = Some(Txn::new(transaction));
                    self.owned[key] = value;
                    if expected == Some(value) {
                        continue;
                    }
                    if !own && transactions.is_unknown(operation.number, value) {
                        self.undecided += 1;
                    } else {
                        let expected = expected.map_or("nothing".to_owned(), |it| it.to_string());
                        tell(self.fault(transaction, event, own, key, expected));
                    }
                }
                StampedAccess::ReadList(seen) => {
                    self.read_list(transaction, event, key, seen, tell);
                }
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
    ) -> TimestampViolation {
        if own {
            return TimestampViolation::Internal {
                transaction,
                event,
                expected,
            };
        }
        TimestampViolation::Read {
            transaction,
            event,
            expected,
            writer: self.writers[key].map(Txn::get),
        }
    }

    /// Compares a read of a list, or of a key without a value, which is an empty one.
    fn read_list(
        &mut self,
        transaction: u32,
        event: usize,
        key: usize,
        seen: &[i64],
        tell: &mut impl FnMut(TimestampViolation),
    ) {
        let state = self.lists.get(key).map_or(&[][..], |list| &list[..]);
        let transactions = self.transactions;
        let first = transactions.events(transaction).start;
        let own = (first..event).filter_map(|event| {
            let operation = transactions.operation(event);
            match operation.does {
                StampedAccess::Append(element) if operation.number as usize == key => Some(element),
                _ => None,
            }
        });
        let is_owner = self.owners[key] == Some(Txn::new(transaction));
        let is_register = state.is_empty() && self.writers[key].is_some()
            || is_owner && self.lists.get(key).is_none_or(Vec::is_empty);
        let equal = !is_register
            && state
                .iter()
                .copied()
                .chain(own.clone())
                .eq(seen.iter().copied());
        if equal {
            return;
        }
        // Appends of unknown outcome may stand anywhere; without them the rest must be the state.
        let known = |element: &i64| !transactions.is_unknown(key as u32, *element);
        let rest = state.iter().copied().chain(own.clone()).filter(known);
        if !is_register && rest.eq(seen.iter().copied().filter(known)) {
            self.undecided += 1;
            return;
        }
        if is_register {
            let value = if is_owner {
                self.owned[key]
            } else {
                self.values[key]
            };
            tell(self.fault(transaction, event, is_owner, key, value.to_string()));
            return;
        }
        // A difference that only its own appends can make contradicts the transaction itself.
        let inner = own.clone().next().is_some() && seen.starts_with(state);
        let expected: Vec<i64> = state.iter().copied().chain(own).collect();
        tell(self.fault(transaction, event, inner, key, listed(&expected)));
    }

    /// Applies the writes of a transaction.
    fn write(&mut self, transaction: u32, tell: &mut impl FnMut(TimestampViolation)) {
        let transactions = self.transactions;
        for event in transactions.events(transaction) {
            let operation = transactions.operation(event);
            if !operation.is_write() {
                continue;
            }
            let key = operation.number as usize;
            let started = self.places[transaction as usize];
            let own = Txn::new(transaction);
            if let Some(before) = self.writers[key].replace(own)
                && before != own
                && self.level.has_snapshots()
                && self.commits[before.index()] > started
            {
                tell(TimestampViolation::Conflict {
                    first: before.get(),
                    second: transaction,
                    key: transactions.name(operation.number).clone(),
                });
            }
            match operation.does {
                StampedAccess::Append(element) => {
                    if self.lists.is_empty() {
                        self.lists = vec![Vec::new(); transactions.key_count()];
                    }
                    self.lists[key].push(element);
                }
                StampedAccess::Write(value) => self.values[key] = value,
                StampedAccess::Read(_) | StampedAccess::ReadList(_) => {}
            }
        }
    }

    /// Compares the order of each session with that of the timestamps.
    fn sessions(&self, tell: &mut impl FnMut(TimestampViolation)) {
        let mut last: FixedMap<u64, u32> = FixedMap::default();
        for second in 0..self.transactions.len() as u32 {
            let session = self.transactions.session(second);
            if let Some(first) = last.insert(session, second)
                && self.commits[first as usize] > self.places[second as usize]
            {
                tell(TimestampViolation::Session { first, second });
            }
        }
    }
}

/// The end of a list as text.
pub(super) fn listed(elements: &[i64]) -> String {
    let left = elements.len().saturating_sub(SHOWN_MAX);
    let shown: Vec<String> = elements[left..].iter().map(ToString::to_string).collect();
    let before = if left > 0 { "… " } else { "" };
    format!("[{before}{}]", shown.join(" "))
}
