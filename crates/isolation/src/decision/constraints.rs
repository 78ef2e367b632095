//! The reads and writes that an order of transactions must explain.

use super::OrderRank;
use crate::registers::Columns;
use seatrial_cycles::{Csr, NONE, Position, Txn, Version};
use seatrial_history::FixedMap;
use seatrial_history::OpType;

/// The transactions that took place, reduced to what an order of them must explain: the versions of others that each one
/// read, and the last version that it wrote of each key. Reads within a transaction were checked before.
///
/// Transactions are numbered in the order of their invocations. Versions are numbered over all keys: those below the number
/// of keys are initial states, then come those of each key in the order of their writers, so that the versions of a key are
/// next to one another in memory. A transaction has at most one read and one write of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Constraints {
    /// Number of keys.
    pub(super) keys: u32,
    /// By transaction: its session. Within a session, the order of numbers is the program order.
    pub(super) sessions: Vec<u32>,
    /// By transaction: the positions of its invocation, and of its certain end; [`NONE`] where unknown.
    pub(super) times: Vec<(u32, u32)>,
    /// By transaction: its rank in an exported order, where known; empty without such an order. A hint, never
    /// believed.
    pub(super) ranks: Vec<Option<OrderRank>>,
    /// By transaction: had it certainly ended when the next one of its session began?
    pub(super) completed: Vec<bool>,
    /// By transaction: the versions of others that it read, each once.
    pub(super) reads: Csr<u32>,
    /// By transaction: the versions that it wrote.
    pub(super) writes: Csr<u32>,
    /// By version: its key.
    pub(super) version_keys: Vec<u32>,
    /// By version: its writer; `None` for initial states.
    pub(super) writers: Vec<Option<Txn>>,
}

/// A position as a number, [`NONE`] if unknown: comparisons of times need it so.
pub(super) fn position(known: Option<Position>) -> u32 {
    known.map_or(NONE, Position::get)
}

impl Constraints {
    /// The constraints of columns, and the columns' numbers of the transactions. `ranks` are those of the columns'
    /// transactions. Reads that are wrong at any level are left out, since no order could explain them.
    pub(super) fn of(columns: &Columns, ranks: &[Option<OrderRank>]) -> (Constraints, Vec<u32>) {
        let count = columns.len() as u32;
        let happened = (0..count).filter(|&number| columns.happened(number));
        let names: Vec<u32> = happened.collect();
        let mut constraints = Constraints {
            keys: columns.key_count() as u32,
            ..Constraints::default()
        };
        for &name in &names {
            let session = columns.sessions()[name as usize];
            constraints.sessions.push(session.get());
            constraints
                .times
                .push((position(columns.begun(name)), position(columns.ended(name))));
            constraints.ranks.extend(ranks.get(name as usize));
            let outcome = columns.outcomes()[name as usize];
            constraints.completed.push(outcome == OpType::Ok);
        }
        let numbers = constraints.number_writes(columns, &names);
        let mut seen: Vec<Version> = Vec::new();
        for &name in &names {
            seen.clear();
            let events = columns.events(name).iter();
            for read in events.filter(|event| event.is_external_read()) {
                let Some(version) = numbers[read.version().index()] else {
                    continue;
                };
                let is_own = columns.writer(read.version()) == Some(Txn::new(name));
                if !is_own && !seen.contains(&version) {
                    seen.push(version);
                    constraints.reads.push(version.get());
                }
            }
            constraints.reads.end_row();
        }
        constraints.assert_complete();
        assert_eq!(names.len(), constraints.len() as usize);
        (constraints, names)
    }

    /// Asserts that all columns of a table have the length of their table, and refer to what is there.
    fn assert_complete(&self) {
        let transactions = self.sessions.len();
        assert_eq!(self.times.len(), transactions);
        assert_eq!(self.completed.len(), transactions);
        assert!(self.ranks.is_empty() || self.ranks.len() == transactions);
        assert_eq!(self.reads.row_count(), transactions);
        assert_eq!(self.writes.row_count(), transactions);
        assert_eq!(self.writers.len(), self.version_keys.len());
        let (initial, written) = self.version_keys.split_at(self.keys as usize);
        assert!(
            initial
                .iter()
                .zip(0..)
                .all(|(&key, version)| key == version)
        );
        assert!(
            written.iter().all(|&key| key < self.keys),
            "a version has no key"
        );
        let (unwritten, written) = self.writers.split_at(initial.len());
        assert!(
            unwritten.iter().all(Option::is_none),
            "an initial state has a writer"
        );
        assert!(
            written
                .iter()
                .all(|writer| writer.is_some_and(|writer| writer.index() < transactions)),
            "a version has no writer"
        );
        debug_assert!(
            self.reads.row_numbers().all(|number| {
                let row = self.reads.row(number);
                let is_own = |&version: &u32| self.writer(version) == Some(Txn::new(number));
                !row.iter().any(is_own)
            }),
            "a transaction depends on its own write"
        );
    }

    /// Numbers the versions that these transactions wrote. By version of the columns: its new
    /// number; `None` if none of these transactions wrote it.
    fn number_writes(&mut self, columns: &Columns, names: &[u32]) -> Vec<Option<Version>> {
        let written = |name: u32| {
            let events = columns.events(name).iter();
            events.filter(|event| event.is_final_write())
        };
        // By key: the number of its next version. Counted first, so that versions of a key follow one another.
        let mut next = vec![0; self.keys as usize + 1];
        for &name in names {
            written(name).for_each(|write| next[write.key() as usize + 1] += 1);
        }
        next[0] = self.keys;
        for key in 1..next.len() {
            next[key] += next[key - 1];
        }
        let versions = next[self.keys as usize] as usize;
        self.version_keys = (0..self.keys).collect();
        self.version_keys.resize(versions, 0);
        self.writers = vec![None; versions];
        let mut numbers: Vec<Option<Version>> =
            Version::all(self.keys as usize).map(Some).collect();
        numbers.resize(columns.version_count(), None);
        for (number, &name) in Txn::all(names.len()).zip(names) {
            for write in written(name) {
                let next = &mut next[write.key() as usize];
                let version = *next;
                *next += 1;
                self.version_keys[version as usize] = write.key();
                self.writers[version as usize] = Some(number);
                numbers[write.version().index()] = Some(Version::new(version));
                self.writes.push(version);
            }
            self.writes.end_row();
        }
        assert!(
            self.version_keys[self.keys as usize..].is_sorted(),
            "versions of a key are not next to one another"
        );
        numbers
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> u32 {
        self.sessions.len() as u32
    }

    /// Number of sessions: one more than the highest.
    pub(super) fn session_count(&self) -> usize {
        self.sessions
            .iter()
            .max()
            .map_or(0, |&one| one as usize + 1)
    }

    /// Number of versions, initial states included.
    pub(super) fn versions(&self) -> usize {
        self.version_keys.len()
    }

    /// The writer of a version; `None` for an initial state.
    #[inline]
    pub(super) fn writer(&self, version: u32) -> Option<Txn> {
        self.writers[version as usize]
    }

    /// The writer of a version that is not an initial state.
    #[inline]
    pub(super) fn writer_of_written(&self, version: u32) -> Txn {
        let writer = self.writers[version as usize];
        writer.expect("a version after the initial states has a writer")
    }

    /// Is this the initial state of a key?
    pub(super) fn is_initial(&self, version: u32) -> bool {
        version < self.keys
    }

    /// Only these transactions (sorted), with their keys and versions renumbered. An order that explains all transactions
    /// explains these, since the others lose nothing but reads of versions that are gone.
    pub(super) fn only(&self, transactions: &[u32]) -> Constraints {
        let mut keys: FixedMap<u32, u32> = FixedMap::default();
        let mut versions: FixedMap<u32, u32> = FixedMap::default();
        for &number in transactions {
            let touched = self.writes.row(number).iter().chain(self.reads.row(number));
            for &version in touched {
                let key = self.version_keys[version as usize];
                let next = keys.len() as u32;
                keys.entry(key).or_insert(next);
            }
        }
        let mut constraints = Constraints {
            keys: keys.len() as u32,
            version_keys: (0..keys.len() as u32).collect(),
            writers: vec![None; keys.len()],
            ..Constraints::default()
        };
        for (place, &number) in Txn::all(transactions.len()).zip(transactions) {
            for &version in self.writes.row(number) {
                let next = constraints.version_keys.len() as u32;
                versions.insert(version, next);
                let key = self.version_keys[version as usize];
                constraints.version_keys.push(keys[&key]);
                constraints.writers.push(Some(place));
                constraints.writes.push(next);
            }
            constraints.writes.end_row();
        }
        for &number in transactions {
            let index = number as usize;
            constraints.sessions.push(self.sessions[index]);
            constraints.times.push(self.times[index]);
            constraints.completed.push(self.completed[index]);
            constraints.ranks.extend(self.ranks.get(index));
            for &version in self.reads.row(number) {
                let key = keys[&self.version_keys[version as usize]];
                if self.is_initial(version) {
                    constraints.reads.push(key);
                } else if let Some(&known) = versions.get(&version) {
                    constraints.reads.push(known);
                }
            }
            constraints.reads.end_row();
        }
        constraints.assert_complete();
        // Sessions are renumbered as well: tables by session would be as long as for the whole history.
        let mut sessions: FixedMap<u32, u32> = FixedMap::default();
        for session in &mut constraints.sessions {
            let next = sessions.len() as u32;
            *session = *sessions.entry(*session).or_insert(next);
        }
        constraints
    }
}
