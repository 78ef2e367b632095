//! The storage of omnipaxos in memory, with a list of what was written since it was last asked.

use crate::command::Command;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{Entry, Snapshot, StopSign, Storage, StorageOp, StorageResult};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// A command as an entry of omnipaxos; `SNAPSHOTS`: may its log be compacted by the library?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoggedCommand<const SNAPSHOTS: bool>(pub(crate) Command);

/// The commands of a prefix of the log, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandSnapshot(pub(crate) Vec<Command>);

impl<const SNAPSHOTS: bool> Entry for LoggedCommand<SNAPSHOTS> {
    type Snapshot = CommandSnapshot;
}

impl<const SNAPSHOTS: bool> Snapshot<LoggedCommand<SNAPSHOTS>> for CommandSnapshot {
    fn create(entries: &[LoggedCommand<SNAPSHOTS>]) -> CommandSnapshot {
        CommandSnapshot(entries.iter().map(|entry| entry.0).collect())
    }

    fn merge(&mut self, delta: CommandSnapshot) {
        self.0.extend(delta.0);
    }

    fn use_snapshots() -> bool {
        SNAPSHOTS
    }
}

/// One write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Write {
    /// A process started, with this number.
    Start(u64),
    /// The log up to this index is kept, then these entries follow.
    AppendOnPrefix(usize, Vec<Command>),
    Append(Vec<Command>),
    Promise(Ballot),
    Decided(usize),
    AcceptedRound(Ballot),
    Compacted(usize),
    Trim(usize),
    StopSign(Option<StopSign>),
    Snapshot(Option<CommandSnapshot>),
}

/// The contents of a storage. It behaves as the `MemoryStorage` of the crate `omnipaxos_storage`.
#[derive(Debug, Default)]
pub(crate) struct StoreContents {
    pub(crate) starts: u64,
    /// Entries from `compacted` on.
    pub(crate) log: Vec<Command>,
    pub(crate) compacted: usize,
    promise: Option<Ballot>,
    accepted_round: Option<Ballot>,
    decided: usize,
    stop_sign: Option<StopSign>,
    snapshot: Option<CommandSnapshot>,
    /// Writes that are not in the journal yet.
    pub(crate) unwritten: Vec<Write>,
}

impl StoreContents {
    pub(crate) fn apply(&mut self, write: Write) {
        match write {
            Write::Start(start) => self.starts = start,
            Write::AppendOnPrefix(from, commands) => {
                self.log.truncate(from.saturating_sub(self.compacted));
                self.log.extend(commands);
            }
            Write::Append(commands) => self.log.extend(commands),
            Write::Promise(ballot) => self.promise = Some(ballot),
            Write::Decided(index) => self.decided = index,
            Write::AcceptedRound(ballot) => self.accepted_round = Some(ballot),
            Write::Compacted(index) => self.compacted = index,
            Write::Trim(index) => {
                let count = index.saturating_sub(self.compacted).min(self.log.len());
                self.log.drain(..count);
            }
            Write::StopSign(stop_sign) => self.stop_sign = stop_sign,
            Write::Snapshot(snapshot) => self.snapshot = snapshot,
        }
    }

    fn write(&mut self, write: Write) {
        self.unwritten.push(write.clone());
        self.apply(write);
    }

    /// Entries of `from..to`; none if one of them is missing, as the trait wants.
    fn range(&self, from: usize, to: usize) -> Vec<Command> {
        let Some(from) = from.checked_sub(self.compacted) else {
            return Vec::new();
        };
        let to = to.saturating_sub(self.compacted);
        self.log.get(from..to).unwrap_or_default().to_vec()
    }
}

/// A storage that the library owns and its member reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStore(pub(crate) Rc<RefCell<StoreContents>>);

fn commands<const SNAPSHOTS: bool>(entries: Vec<LoggedCommand<SNAPSHOTS>>) -> Vec<Command> {
    entries.into_iter().map(|entry| entry.0).collect()
}

fn entries<const SNAPSHOTS: bool>(commands: Vec<Command>) -> Vec<LoggedCommand<SNAPSHOTS>> {
    commands.into_iter().map(LoggedCommand).collect()
}

fn write_of<const SNAPSHOTS: bool>(operation: StorageOp<LoggedCommand<SNAPSHOTS>>) -> Write {
    match operation {
        StorageOp::AppendEntry(entry) => Write::Append(vec![entry.0]),
        StorageOp::AppendEntries(entries) => Write::Append(commands(entries)),
        StorageOp::AppendOnPrefix(from, entries) => Write::AppendOnPrefix(from, commands(entries)),
        StorageOp::SetPromise(ballot) => Write::Promise(ballot),
        StorageOp::SetDecidedIndex(index) => Write::Decided(index),
        StorageOp::SetAcceptedRound(ballot) => Write::AcceptedRound(ballot),
        StorageOp::SetCompactedIdx(index) => Write::Compacted(index),
        StorageOp::Trim(index) => Write::Trim(index),
        StorageOp::SetStopsign(stop_sign) => Write::StopSign(stop_sign),
        StorageOp::SetSnapshot(snapshot) => Write::Snapshot(snapshot),
    }
}

impl SharedStore {
    fn write(&self, write: Write) -> StorageResult<()> {
        self.0.borrow_mut().write(write);
        Ok(())
    }
}

impl<const SNAPSHOTS: bool> Storage<LoggedCommand<SNAPSHOTS>> for SharedStore {
    fn write_atomically(
        &mut self,
        operations: Vec<StorageOp<LoggedCommand<SNAPSHOTS>>>,
    ) -> StorageResult<()> {
        for operation in operations {
            self.write(write_of(operation))?;
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: LoggedCommand<SNAPSHOTS>) -> StorageResult<()> {
        self.write(Write::Append(vec![entry.0]))
    }

    fn append_entries(&mut self, entries: Vec<LoggedCommand<SNAPSHOTS>>) -> StorageResult<()> {
        // The library flushes empty batches as well.
        if entries.is_empty() {
            return Ok(());
        }
        self.write(Write::Append(commands(entries)))
    }

    fn append_on_prefix(
        &mut self,
        from: usize,
        entries: Vec<LoggedCommand<SNAPSHOTS>>,
    ) -> StorageResult<()> {
        self.write(Write::AppendOnPrefix(from, commands(entries)))
    }

    fn set_promise(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.write(Write::Promise(ballot))
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.write(Write::Decided(index))
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().decided)
    }

    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.write(Write::AcceptedRound(ballot))
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.0.borrow().accepted_round)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<LoggedCommand<SNAPSHOTS>>> {
        Ok(entries(self.0.borrow().range(from, to)))
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().log.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<LoggedCommand<SNAPSHOTS>>> {
        let contents = self.0.borrow();
        Ok(entries(
            contents.range(from, contents.compacted + contents.log.len()),
        ))
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.0.borrow().promise)
    }

    fn set_stopsign(&mut self, stop_sign: Option<StopSign>) -> StorageResult<()> {
        self.write(Write::StopSign(stop_sign))
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(self.0.borrow().stop_sign.clone())
    }

    fn trim(&mut self, index: usize) -> StorageResult<()> {
        self.write(Write::Trim(index))
    }

    fn set_compacted_idx(&mut self, index: usize) -> StorageResult<()> {
        self.write(Write::Compacted(index))
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(self.0.borrow().compacted)
    }

    fn set_snapshot(&mut self, snapshot: Option<CommandSnapshot>) -> StorageResult<()> {
        self.write(Write::Snapshot(snapshot))
    }

    fn get_snapshot(&self) -> StorageResult<Option<CommandSnapshot>> {
        Ok(self.0.borrow().snapshot.clone())
    }
}
