//! The log, the vote and the newest checkpoint as the library reads them.

use super::translate::{node_id, number, to_conf_state, to_entry, to_snapshot};
use super::{
    GetEntriesContext, HardState, LibraryError, LibraryResult, RaftEntry, RaftState, Snapshot,
    Storage, StorageError,
};
use crate::entry_log::{EntryLog, MissingEntries};
use crate::log_entry::{SnapshotMark, Vote};
use crate::ready::Fetch;
use crate::rule::{Rules, WrapperRule};
use std::cell::{Cell, RefCell};

/// What the library reads: the log, the vote of the start and the newest checkpoint.
pub(super) struct LibraryStorage<L: EntryLog> {
    pub(super) log: L,
    vote: Vote,
    pub(super) checkpoint: SnapshotMark,
    pub(super) rules: Rules,
    /// Ranges that are not in memory, with the library's reason to want them; at most [`FETCHES_MAX`].
    pub(super) fetches: RefCell<Vec<(Fetch, GetEntriesContext)>>,
    /// Is a fetch under way?
    pub(super) fetching: Cell<bool>,
    /// Is a member waiting for a checkpoint?
    pub(super) due: Cell<bool>,
}

/// Bound of the wishes for old entries: the library repeats a wish with every heartbeat.
const FETCHES_MAX: usize = 64;

impl<L: EntryLog> LibraryStorage<L> {
    pub(super) fn new(log: L, checkpoint: SnapshotMark, vote: Vote) -> LibraryStorage<L> {
        LibraryStorage {
            log,
            vote,
            checkpoint,
            rules: Rules::default(),
            fetches: RefCell::default(),
            fetching: Cell::new(false),
            due: Cell::new(false),
        }
    }
}

impl<L: EntryLog> Storage for LibraryStorage<L> {
    fn initial_state(&self) -> LibraryResult<RaftState> {
        let hard_state = HardState {
            term: self.vote.term.max(self.checkpoint.term),
            vote: self.vote.vote.map_or(0, number),
            commit: self.vote.commit.max(self.checkpoint.index),
            ..HardState::default()
        };
        Ok(RaftState {
            hard_state,
            conf_state: to_conf_state(&self.checkpoint.members),
        })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> LibraryResult<Vec<RaftEntry>> {
        match self
            .log
            .entries(low, high, max_size.into().unwrap_or(u64::MAX))
        {
            Ok(entries) => Ok(entries.iter().map(to_entry).collect()),
            Err(MissingEntries::Compacted) => Err(LibraryError::Store(StorageError::Compacted)),
            Err(MissingEntries::NotCached) if context.can_async() => {
                let mut fetches = self.fetches.borrow_mut();
                if fetches.len() < FETCHES_MAX {
                    fetches.push((Fetch { low, high }, context));
                }
                Err(LibraryError::Store(StorageError::LogTemporarilyUnavailable))
            }
            Err(MissingEntries::NotCached) => Err(LibraryError::Store(StorageError::Unavailable)),
        }
    }

    fn term(&self, index: u64) -> LibraryResult<u64> {
        self.log.term(index).ok_or_else(|| {
            let is_old = index < self.log.first_index();
            LibraryError::Store(if is_old {
                StorageError::Compacted
            } else {
                StorageError::Unavailable
            })
        })
    }

    fn first_index(&self) -> LibraryResult<u64> {
        Ok(self.log.first_index())
    }

    fn last_index(&self) -> LibraryResult<u64> {
        Ok(self.log.last_index())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> LibraryResult<Snapshot> {
        let mark = &self.checkpoint;
        // WrapperRule 7: a member ignores a checkpoint in which it is no member.
        let knows = node_id(to).is_some_and(|node| mark.members.contains(node))
            || !self.rules.has(WrapperRule::KnownMember);
        let fits = mark.index >= request_index.max(1) && mark.index + 1 >= self.log.first_index();
        if knows && fits {
            return Ok(to_snapshot(mark));
        }
        self.due.set(true);
        Err(LibraryError::Store(
            StorageError::SnapshotTemporarilyUnavailable,
        ))
    }
}
