//! What transactions saw of each other.

use super::lists::Lists;
use crate::txn::dense::Map;
use crate::txn::registers::Columns;
use crate::txn::transactions::NONE;
use seatrial_history::OpType;

/// The transactions that took place, as far as an order of them must explain them: what each read of others, and what it
/// left behind of each key. What happens inside a transaction has been judged before.
///
/// Transactions are numbered in the order of their invocations, versions densely over all keys; versions below the number
/// of keys are the keys' initial states, then come those of each key in the order of their writers: whoever goes through
/// the versions of one key after the other finds them side by side. At most one read and one write of a key by a
/// transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Number of keys.
    pub(super) keys: u32,
    /// By transaction: who ran it. Within a session, the order of numbers is the order of the program.
    pub(super) sessions: Vec<u32>,
    /// By transaction: when it was invoked and when it certainly had taken place, as positions in the history; [`NONE`]
    /// where that is not known.
    pub(super) times: Vec<(u32, u32)>,
    /// By transaction: its place in an order that somebody exported, [`NONE`] where that is not known; empty without such an
    /// order. A hint.
    pub(super) ranks: Vec<u32>,
    /// By transaction: had it taken place when the next of its session began?
    pub(super) completed: Vec<bool>,
    /// By transaction: versions of others that it read.
    pub(super) reads: Lists,
    /// By transaction: versions that it left behind.
    pub(super) writes: Lists,
    /// By version: its key.
    pub(super) version_keys: Vec<u32>,
    /// By version: who wrote it; [`NONE`] of initial states and of versions that nobody here left behind.
    pub(super) writers: Vec<u32>,
}

impl Facts {
    /// The facts of columns, and the columns' numbers of the transactions. `ranks` are those of the columns' transactions.
    /// Reads with something wrong that no order could mend are left out.
    pub(super) fn of(columns: &Columns, ranks: &[u32]) -> (Facts, Vec<u32>) {
        let count = columns.len() as u32;
        let happened = (0..count).filter(|&number| columns.happened(number));
        let names: Vec<u32> = happened.collect();
        let mut facts = Facts {
            keys: columns.key_count() as u32,
            ..Facts::default()
        };
        for &name in &names {
            facts.sessions.push(columns.sessions()[name as usize]);
            facts.times.push((columns.begun(name), columns.ended(name)));
            facts.ranks.extend(ranks.get(name as usize));
            let outcome = columns.outcomes()[name as usize];
            facts.completed.push(outcome == OpType::Ok);
        }
        let numbers = facts.take_writes(columns, &names);
        let mut seen: Vec<u32> = Vec::new();
        for &name in &names {
            seen.clear();
            let events = columns.events(name).iter();
            for read in events.filter(|event| event.is_external_read()) {
                let version = numbers[read.version() as usize];
                let is_sound = version != NONE && columns.writer(read.version()) != name;
                if is_sound && !seen.contains(&version) {
                    seen.push(version);
                    facts.reads.push(version);
                }
            }
            facts.reads.end();
        }
        (facts, names)
    }

    /// Numbers what these transactions left behind, and tells by the columns' number of a version what it is here; [`NONE`]
    /// of a version that nobody left behind.
    fn take_writes(&mut self, columns: &Columns, names: &[u32]) -> Vec<u32> {
        let written = |name: u32| {
            let events = columns.events(name).iter();
            events.filter(|event| event.is_final_write())
        };
        // By key: where its next version goes.
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
        self.writers = vec![NONE; versions];
        let mut numbers: Vec<u32> = (0..self.keys).collect();
        numbers.resize(columns.version_count(), NONE);
        for (number, &name) in names.iter().enumerate() {
            for write in written(name) {
                let next = &mut next[write.key() as usize];
                let version = *next;
                *next += 1;
                self.version_keys[version as usize] = write.key();
                self.writers[version as usize] = number as u32;
                numbers[write.version() as usize] = version;
                self.writes.push(version);
            }
            self.writes.end();
        }
        numbers
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> u32 {
        self.sessions.len() as u32
    }

    /// Number of sessions: one more than the highest that a transaction has.
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

    /// Is this the state of a key before all writes?
    pub(super) fn is_initial(&self, version: u32) -> bool {
        version < self.keys
    }

    /// Only these transactions (sorted), renumbered with their keys and versions: whatever explains all explains these,
    /// since leaving a transaction out takes nothing from the others but reads of what it wrote.
    pub(super) fn only(&self, transactions: &[u32]) -> Facts {
        let mut keys: Map<u32, u32> = Map::default();
        let mut versions: Map<u32, u32> = Map::default();
        for &number in transactions {
            let touched = self.writes.of(number).iter().chain(self.reads.of(number));
            for &version in touched {
                let key = self.version_keys[version as usize];
                let next = keys.len() as u32;
                keys.entry(key).or_insert(next);
            }
        }
        let mut facts = Facts {
            keys: keys.len() as u32,
            version_keys: (0..keys.len() as u32).collect(),
            writers: vec![NONE; keys.len()],
            ..Facts::default()
        };
        for (place, &number) in transactions.iter().enumerate() {
            for &version in self.writes.of(number) {
                let next = facts.version_keys.len() as u32;
                versions.insert(version, next);
                let key = self.version_keys[version as usize];
                facts.version_keys.push(keys[&key]);
                facts.writers.push(place as u32);
                facts.writes.push(next);
            }
            facts.writes.end();
        }
        for &number in transactions {
            let index = number as usize;
            facts.sessions.push(self.sessions[index]);
            facts.times.push(self.times[index]);
            facts.completed.push(self.completed[index]);
            facts.ranks.extend(self.ranks.get(index));
            for &version in self.reads.of(number) {
                let key = keys[&self.version_keys[version as usize]];
                if self.is_initial(version) {
                    facts.reads.push(key);
                } else if let Some(&known) = versions.get(&version) {
                    facts.reads.push(known);
                }
            }
            facts.reads.end();
        }
        // Sessions are looked up by number.
        let mut sessions: Map<u32, u32> = Map::default();
        for session in &mut facts.sessions {
            let next = sessions.len() as u32;
            *session = *sessions.entry(*session).or_insert(next);
        }
        facts
    }
}
