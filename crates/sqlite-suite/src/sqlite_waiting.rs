//! Which connections of a node wait for a lock, and whether they wait for each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of a node.
///
/// SQLite notices by itself that two processes, or two connections with caches of their own, wait for each other, and refuses
/// one. Within a shared cache it does not: if all that have a transaction wait there, the one that began last is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    /// Number of waits that have begun.
    begun: u64,
    connections: BTreeMap<u64, ConnectionWait>,
}

#[derive(Debug, Default)]
struct ConnectionWait {
    /// The number of its wait; `None`: it does not wait.
    wait: Option<u64>,
    /// Has it a transaction, and so perhaps locks?
    is_in_transaction: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this connection wait for a lock?
    pub(crate) fn of(&self, connection: u64) -> bool {
        let waits = self.lock();
        let found = waits.connections.get(&connection);
        found.is_some_and(|it| it.wait.is_some())
    }

    /// A connection waits, or still waits.
    pub(crate) fn begin(&self, connection: u64) {
        let mut waits = self.lock();
        let number = waits.begun;
        let own = waits.connections.entry(connection).or_default();
        if own.wait.is_none() {
            own.wait = Some(number);
            waits.begun += 1;
        }
    }

    /// A statement of a connection has ended.
    pub(crate) fn end(&self, connection: u64, is_in_transaction: bool) {
        let mut waits = self.lock();
        let own = waits.connections.entry(connection).or_default();
        own.wait = None;
        own.is_in_transaction = is_in_transaction;
    }

    /// Do all connections that have a transaction wait, this one since the last?
    pub(crate) fn is_deadlock(&self, connection: u64) -> bool {
        let waits = self.lock();
        let own = waits.connections.get(&connection);
        let Some(own) = own.filter(|own| own.is_in_transaction) else {
            return false;
        };
        let others = waits.connections.iter();
        let mut others = others
            .filter(|(number, it)| **number != connection && it.is_in_transaction)
            .peekable();
        others.peek().is_some()
            && others.all(|(_, other)| other.wait.is_some() && other.wait < own.wait)
    }

    /// A connection has been closed.
    pub(crate) fn remove(&self, connection: u64) {
        self.lock().connections.remove(&connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_those_that_wait_for_each_other_is_named() {
        let waiting = Waiting::default();
        waiting.end(1, true);
        waiting.end(2, true);
        waiting.end(3, false);
        waiting.begin(1);
        assert!(waiting.of(1) && !waiting.is_deadlock(1), "2 goes on");
        waiting.begin(2);
        waiting.begin(1);
        assert!(waiting.is_deadlock(2) && !waiting.is_deadlock(1));
        waiting.begin(3);
        assert!(!waiting.is_deadlock(3), "it has no transaction");
        waiting.end(2, true);
        assert!(!waiting.is_deadlock(1));
        waiting.remove(2);
        assert!(!waiting.is_deadlock(1), "it waits for none of these");
    }
}
