//! The store of all versions of all keys.

use seatrial_history::Observed;
use std::sync::Arc;

/// Maximum number of commits by which a replica lags.
pub(super) const LAG_COMMITS_MAX: u64 = 32;
/// Number of versions of a register at which versions that can no longer be read are dropped.
const VERSIONS_MAX: usize = 8_192;
/// The holder of a lock that is free.
const UNLOCKED: u32 = u32::MAX;

/// The versions of one key: its elements in order, each with the number of its commit. The value of a register is the last
/// element, that of a list is all elements, and an older version is a prefix.
#[derive(Debug)]
pub(super) struct KeyVersions {
    /// The key.
    pub(super) key: i64,
    pub(super) elements: Vec<i64>,
    /// By element: the number of its commit; never decreasing.
    pub(super) commits: Vec<u64>,
    /// The version read last; all reads of one version share its allocation.
    shared: Arc<[i64]>,
    /// The client that holds the lock, or [`UNLOCKED`].
    lock: u32,
    /// Number of micro-operations of running transactions that access it.
    uses: u32,
    /// Was the key replaced, so that no new operation accesses it?
    is_retired: bool,
}

impl KeyVersions {
    /// Number of elements after this commit. Linear in the number of later elements, of which there are few.
    pub(super) fn length_at(&self, commit: u64) -> usize {
        let later = self.commits.iter().rev();
        self.commits.len() - later.take_while(|&&one| one > commit).count()
    }

    /// Appends an element.
    pub(super) fn push(&mut self, element: i64, commit: u64) {
        debug_assert!(self.commits.last().is_none_or(|&last| last <= commit));
        self.elements.push(element);
        self.commits.push(commit);
    }

    /// Drops the versions of a register that are too old for any replica, so that a key with many writes needs bounded
    /// memory.
    pub(super) fn drop_old(&mut self, now: u64) {
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

    /// The list of the first `length` elements, followed by `own`.
    pub(super) fn list_with(&self, length: usize, own: &[i64]) -> Observed {
        let first = &self.elements[..length];
        Observed::List([first, own].concat().into())
    }

    /// Acquires the lock for this client; false when another client holds it.
    pub(super) fn lock(&mut self, client: u32) -> bool {
        if self.lock == UNLOCKED {
            self.lock = client;
        }
        self.lock == client
    }

    /// Releases the lock, if this client holds it.
    pub(super) fn unlock(&mut self, client: u32) {
        if self.lock == client {
            self.lock = UNLOCKED;
        }
    }
}

/// The versions of all keys in use, in slots. The slot of a retired key is reused once no operation accesses it, so memory
/// does not grow with the history.
#[derive(Debug, Default)]
pub(super) struct VersionStore {
    slots: Vec<KeyVersions>,
    free: Vec<u32>,
    next_key: i64,
    /// The number of the last commit.
    pub(super) commits: u64,
}

impl VersionStore {
    /// The slot of a new key.
    pub(super) fn fresh(&mut self) -> u32 {
        let key = self.next_key;
        self.next_key += 1;
        if let Some(slot) = self.free.pop() {
            let versions = &mut self.slots[slot as usize];
            debug_assert!(versions.elements.is_empty() && versions.uses == 0);
            debug_assert_eq!(versions.lock, UNLOCKED, "a free slot is locked");
            versions.key = key;
            versions.is_retired = false;
            return slot;
        }
        self.slots.push(KeyVersions {
            key,
            elements: Vec::new(),
            commits: Vec::new(),
            shared: Arc::new([]),
            lock: UNLOCKED,
            uses: 0,
            is_retired: false,
        });
        self.slots.len() as u32 - 1
    }

    /// A new key that is never stored here.
    pub(super) fn foreign_key(&mut self) -> i64 {
        self.next_key += 1;
        self.next_key - 1
    }

    pub(super) fn at(&self, slot: u32) -> &KeyVersions {
        &self.slots[slot as usize]
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut KeyVersions {
        &mut self.slots[slot as usize]
    }

    /// Counts a micro-operation that will access this slot; returns the key.
    pub(super) fn take(&mut self, slot: u32) -> i64 {
        let versions = self.at_mut(slot);
        versions.uses += 1;
        versions.key
    }

    /// Retires the key of this slot: no new operation will access it.
    pub(super) fn retire(&mut self, slot: u32) {
        self.at_mut(slot).is_retired = true;
        self.sweep(slot);
    }

    /// Counts off a micro-operation that has ended.
    pub(super) fn release(&mut self, slot: u32) {
        self.at_mut(slot).uses -= 1;
        self.sweep(slot);
    }

    /// Number of slots, used or free.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Frees the slot of a retired key without accesses.
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
