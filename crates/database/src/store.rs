//! The versions of the keys.

use seatrial_history::Observed;
use std::sync::Arc;

/// Commits that a replica lags behind at most.
pub(super) const LAG_COMMITS_MAX: u64 = 32;
/// Versions of a register from which on those are forgotten that nobody can read.
const VERSIONS_MAX: usize = 8_192;
/// Nobody's lock.
const NOBODY: u32 = u32::MAX;

/// One key: its elements in order, each with the number of the commit that brought it. The value of a register is its
/// last element, that of a list is all of them, and an older version is a prefix.
#[derive(Debug)]
pub(super) struct Versions {
    /// Its name.
    pub(super) key: i64,
    pub(super) elements: Vec<i64>,
    /// Never falling.
    pub(super) commits: Vec<u64>,
    /// A prefix that was read; all reads of that version share it.
    shared: Arc<[i64]>,
    /// Which client holds the lock.
    lock: u32,
    /// Micro-operations of transactions that still run.
    uses: u32,
    /// Will nobody take it any more?
    is_retired: bool,
}

impl Versions {
    /// How many elements were there after this commit.
    pub(super) fn length_at(&self, commit: u64) -> usize {
        let later = self.commits.iter().rev();
        self.commits.len() - later.take_while(|&&one| one > commit).count()
    }

    /// One more element.
    pub(super) fn push(&mut self, element: i64, commit: u64) {
        self.elements.push(element);
        self.commits.push(commit);
    }

    /// Only what a replica may still serve is kept, of a key that is written for ever; the values of registers, which are
    /// read one at a time.
    pub(super) fn forget(&mut self, now: u64) {
        if self.elements.len() >= VERSIONS_MAX {
            let seen = self.length_at(now.saturating_sub(LAG_COMMITS_MAX));
            let old = seen.saturating_sub(1);
            self.elements.drain(..old);
            self.commits.drain(..old);
        }
    }

    /// The list of the first `length` elements.
    pub(super) fn list(&mut self, length: usize) -> Observed {
        if length == 0 {
            return Observed::Nil;
        }
        if self.shared.len() != length {
            self.shared = self.elements[..length].into();
        }
        Observed::List(self.shared.clone())
    }

    /// The list of the first `length` elements and these behind.
    pub(super) fn list_with(&self, length: usize, own: &[i64]) -> Observed {
        let first = &self.elements[..length];
        Observed::List([first, own].concat().into())
    }

    /// Takes the lock, or has it already.
    pub(super) fn lock(&mut self, client: u32) -> bool {
        if self.lock == NOBODY {
            self.lock = client;
        }
        self.lock == client
    }

    /// Lets the lock go, if this client has it.
    pub(super) fn unlock(&mut self, client: u32) {
        if self.lock == client {
            self.lock = NOBODY;
        }
    }
}

/// All keys that somebody may still use. What is retired and used by nobody is forgotten, so that the memory does not
/// grow with the history.
#[derive(Debug, Default)]
pub(super) struct Store {
    slots: Vec<Versions>,
    free: Vec<u32>,
    next_key: i64,
    /// The number of the last commit.
    pub(super) commits: u64,
}

impl Store {
    /// A key that nobody used before.
    pub(super) fn fresh(&mut self) -> u32 {
        let key = self.next_key;
        self.next_key += 1;
        if let Some(slot) = self.free.pop() {
            let versions = &mut self.slots[slot as usize];
            versions.key = key;
            versions.is_retired = false;
            return slot;
        }
        self.slots.push(Versions {
            key,
            elements: Vec::new(),
            commits: Vec::new(),
            shared: Arc::new([]),
            lock: NOBODY,
            uses: 0,
            is_retired: false,
        });
        self.slots.len() as u32 - 1
    }

    /// The name of a key that is never stored here.
    pub(super) fn foreign_key(&mut self) -> i64 {
        self.next_key += 1;
        self.next_key - 1
    }

    pub(super) fn at(&self, slot: u32) -> &Versions {
        &self.slots[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Versions {
        &mut self.slots[slot as usize]
    }

    /// A micro-operation that will need this key; its name.
    pub(super) fn take(&mut self, slot: u32) -> i64 {
        let versions = self.at_mut(slot);
        versions.uses += 1;
        versions.key
    }

    /// Nobody will take this key any more.
    pub(super) fn retire(&mut self, slot: u32) {
        self.at_mut(slot).is_retired = true;
        self.sweep(slot);
    }

    /// A micro-operation that needed this key is over.
    pub(super) fn release(&mut self, slot: u32) {
        self.at_mut(slot).uses -= 1;
        self.sweep(slot);
    }

    /// Places for keys, used or free.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn sweep(&mut self, slot: u32) {
        let versions = &mut self.slots[slot as usize];
        if versions.is_retired && versions.uses == 0 {
            versions.elements.clear();
            versions.commits.clear();
            versions.shared = Arc::new([]);
            self.free.push(slot);
        }
    }
}
