//! A store of transactions on lists or registers, at any isolation level.

use super::database_options::{DatabaseOptions, DatabaseWorkload, StoreLevel};
use super::live_keys::LiveKeys;
use super::step::{OperationFate, StepResult, exponential};
use super::version_store::{KeyVersions, LAG_COMMITS_MAX, VersionStore};
use seatrial_history::{Key, Mop, Observed, OpType, Symbol, Value};
use seatrial_history::{Stamp, Stamps};
use seatrial_machine::Rng;
use std::sync::Arc;

/// VersionStore time per round of all clients, in nanoseconds. It keeps about one transaction running at a time for any number of
/// clients: with fewer there were hardly any conflicts, with more too many.
const WORK_NS: u64 = 1_600_000;
/// Waits for locks in one attempt of a transaction; then the attempt is abandoned.
const WAITS_MAX: u32 = 8;
/// Attempts of a transaction that loses conflicts; then it fails.
const ATTEMPTS_MAX: u32 = 16;

/// How the store executes transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    /// Writes take effect at once.
    InPlace,
    /// Writes take effect at the commit; reads return committed values.
    Committed,
    /// Writes take effect at the commit; reads return committed values, of each commit all or nothing.
    Untorn,
    /// Writes take effect at the commit; reads are from a snapshot.
    Snapshot { first_committer_wins: bool },
    /// One transaction after another.
    Serial,
}

/// The replica that serves snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseReplica {
    /// The store itself.
    Present,
    /// A lagging replica, half of the time.
    Lagging,
    /// The same, but it contains all that the client has observed and written.
    LaggingInSession,
}

impl StoreLevel {
    /// Does a transaction at this level have one snapshot (serial execution included)?
    pub(super) fn has_snapshots(self) -> bool {
        let (execution, _) = self.mechanism();
        matches!(execution, Execution::Snapshot { .. } | Execution::Serial)
    }

    fn mechanism(self) -> (Execution, DatabaseReplica) {
        let snapshot = |first_committer_wins| Execution::Snapshot {
            first_committer_wins,
        };
        match self {
            StoreLevel::ReadUncommitted => (Execution::InPlace, DatabaseReplica::Present),
            StoreLevel::ReadCommitted => (Execution::Committed, DatabaseReplica::Present),
            StoreLevel::ReadAtomic => (Execution::Untorn, DatabaseReplica::Present),
            StoreLevel::Prefix => (snapshot(false), DatabaseReplica::Lagging),
            StoreLevel::SnapshotIsolation => (snapshot(true), DatabaseReplica::Lagging),
            StoreLevel::StrongSessionSnapshotIsolation => {
                (snapshot(true), DatabaseReplica::LaggingInSession)
            }
            StoreLevel::StrongSnapshotIsolation => (snapshot(true), DatabaseReplica::Present),
            StoreLevel::Serializable => (Execution::Serial, DatabaseReplica::Lagging),
            StoreLevel::StrongSessionSerializable => {
                (Execution::Serial, DatabaseReplica::LaggingInSession)
            }
            _ => (Execution::Serial, DatabaseReplica::Present),
        }
    }
}

/// One micro-operation, resolved to a slot of the store.
#[derive(Clone, Copy, Debug)]
struct SlotMop {
    slot: u32,
    key: i64,
    /// The element to write; `None` for a read.
    element: Option<i64>,
}

/// The open transaction of a client.
#[derive(Debug, Default)]
struct OpenTxn {
    micros: Vec<SlotMop>,
    /// The micro-operations of the invocation.
    mops: Option<Arc<[Mop]>>,
    /// The results of the reads so far.
    observed: Vec<Observed>,
    /// Index of the next micro-operation.
    at: usize,
    /// The last commit in its snapshot.
    snapshot: u64,
    /// Slots that were read, with the number of elements visible to the transaction.
    reads: Vec<(u32, usize)>,
    /// The same for lists that were read with the transaction's own appends at the end. That read is right only if no
    /// other transaction appends in between, which the commit checks.
    own_reads: Vec<(u32, usize)>,
    waits: u32,
    attempts: u32,
    /// The last commit that the client observed or made.
    seen: u64,
    /// The last commit in its snapshot, and its own commit; equal for a transaction without writes.
    stamps: (u64, u64),
}

impl OpenTxn {
    /// Begins a new attempt.
    fn restart(&mut self) {
        self.observed.clear();
        self.reads.clear();
        self.own_reads.clear();
        self.at = 0;
        self.waits = 0;
    }
}

/// A store of lists or registers, and the transactions that run on it.
///
/// Its loop: each [`TxnStore::step`] carries out one micro-operation of one client, or its commit, so transactions
/// interleave as finely as the times of their clients. A serial store carries out a whole transaction in one step.
///
/// A read returns a whole list, so its cost is linear in the writes per key.
#[derive(Debug)]
pub(super) struct TxnStore {
    workload: DatabaseWorkload,
    execution: Execution,
    replica: DatabaseReplica,
    /// Mean duration of one micro-operation, in nanoseconds.
    micro_operation_ns: u64,
    /// Minimum number of micro-operations of a transaction, and the maximum number of further ones.
    length: (u32, u32),
    /// Are all lengths equally likely?
    even_lengths: bool,
    reads: f64,
    read_before_write: bool,
    no_key_twice: bool,
    /// Places of the keys of the transaction that is being drawn.
    taken: Vec<usize>,
    pub(super) store: VersionStore,
    keys: LiveKeys,
    running: Vec<OpenTxn>,
}

impl TxnStore {
    pub(super) fn new(options: &DatabaseOptions, rng: &mut Rng) -> TxnStore {
        let (execution, replica) = options.store().mechanism();
        let mut store = VersionStore::default();
        let keys = LiveKeys::new(options, &mut store, rng);
        let (low, high) = options.transaction_length.clone().into_inner();
        let running = (0..options.concurrency).map(|_| OpenTxn::default());
        TxnStore {
            workload: options.workload,
            execution,
            replica,
            micro_operation_ns: WORK_NS
                / (u64::from(options.concurrency) * u64::from((low + high).div_ceil(2))),
            length: (low, high - low),
            even_lengths: options.even_lengths,
            reads: options.reads,
            read_before_write: options.read_before_write,
            no_key_twice: options.no_key_twice,
            taken: Vec::new(),
            store,
            keys,
            running: running.collect(),
        }
    }

    /// A client's next transaction: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, rng: &mut Rng) -> (Symbol, Value) {
        let extra = if self.even_lengths {
            rng.below(u64::from(self.length.1) + 1) as usize
        } else {
            (0..self.length.1).filter(|_| rng.below(7) < 3).count()
        };
        let count = self.length.0 as usize + extra;
        let mut running = std::mem::take(&mut self.running[client as usize]);
        running.restart();
        running.attempts = 0;
        running.micros.clear();
        self.taken.clear();
        for _ in 0..count {
            self.draw(&mut running.micros, rng);
        }
        let mops: Arc<[Mop]> = running
            .micros
            .iter()
            .map(|micro| self.mop(micro, || Observed::Nil))
            .collect();
        running.mops = Some(mops.clone());
        self.running[client as usize] = running;
        (Symbol::new("txn"), Value::Txn(mops))
    }

    /// Draws a micro-operation; with `read_before_write`, a write is preceded by a read of its key.
    fn draw(&mut self, micros: &mut Vec<SlotMop>, rng: &mut Rng) {
        let is_write = rng.chance(1.0 - self.reads);
        let (live, element) = if self.no_key_twice {
            let place = self.keys.other(&self.taken, rng);
            self.taken.push(place);
            self.keys.take(&mut self.store, place, is_write, rng)
        } else {
            self.keys.draw(&mut self.store, is_write, rng)
        };
        let slot = live.slot;
        let read = (is_write && self.read_before_write).then_some(None);
        for element in read.into_iter().chain([element]) {
            let key = self.store.take(slot);
            micros.push(SlotMop { slot, key, element });
        }
    }

    /// The timestamps of a client's last transaction, which are numbers of commits. A snapshot follows the last commit in
    /// it; a transaction without writes commits at the instant of its snapshot.
    pub(super) fn stamps(&self, client: u32) -> Stamps {
        let (snapshot, commit) = self.running[client as usize].stamps;
        stamps(snapshot, commit)
    }

    /// Timestamps for a planted transaction, which the store did not run: as if it ran now, alone.
    pub(super) fn foreign_stamps(&mut self) -> Stamps {
        self.store.commits += 1;
        stamps(self.store.commits - 1, self.store.commits)
    }

    fn mop(&self, micro: &SlotMop, observed: impl FnOnce() -> Observed) -> Mop {
        let key = Key::Int(micro.key);
        match (micro.element, self.workload) {
            (Some(value), DatabaseWorkload::RwRegister) => Mop::Write { key, value },
            (Some(element), _) => Mop::Append { key, element },
            (None, _) => Mop::Read {
                key,
                observed: observed(),
            },
        }
    }

    /// The value of a completion that is not `ok`: as it was invoked.
    pub(super) fn invoked(&self, client: u32) -> Value {
        let mops = self.running[client as usize].mops.clone();
        mops.map_or(Value::Nil, Value::Txn)
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        if self.running[client as usize].observed.is_empty() {
            return self.invoked(client);
        }
        let mut observed = std::mem::take(&mut self.running[client as usize].observed);
        let mut results = observed.drain(..);
        let micros = self.running[client as usize].micros.iter();
        let next = |micro| self.mop(micro, || results.next().unwrap_or(Observed::Nil));
        let mops = micros.map(next).collect();
        drop(results);
        self.running[client as usize].observed = observed;
        Value::Txn(mops)
    }

    /// Carries out a step of a client's transaction.
    pub(super) fn step(&mut self, client: u32, fate: OperationFate, rng: &mut Rng) -> StepResult {
        let aborts = fate == OperationFate::Abort;
        let step = if self.execution == Execution::Serial {
            if aborts {
                StepResult::Done(OpType::Fail)
            } else {
                self.run(client, rng);
                StepResult::Done(OpType::Ok)
            }
        } else if self.running[client as usize].at < self.running[client as usize].micros.len() {
            self.micro_operation(client, rng)
        } else {
            self.commit(client, aborts, rng)
        };
        if let StepResult::Done(_) = step {
            self.end(client);
        }
        step
    }

    /// Releases the keys of a client's transaction.
    pub(super) fn end(&mut self, client: u32) {
        for micro in &self.running[client as usize].micros {
            self.store.release(micro.slot);
        }
    }

    /// Runs a whole transaction at once.
    fn run(&mut self, client: u32, rng: &mut Rng) {
        let running = &self.running[client as usize];
        let is_read = running.micros.iter().all(|micro| micro.element.is_none());
        let commit = if is_read {
            self.snapshot(running, rng)
        } else {
            self.store.commits += 1;
            self.store.commits
        };
        let is_register = self.workload == DatabaseWorkload::RwRegister;
        let running = &mut self.running[client as usize];
        running.seen = commit;
        running.stamps = (commit - u64::from(!is_read), commit);
        for micro in &running.micros {
            let versions = self.store.at_mut(micro.slot);
            if let Some(element) = micro.element {
                versions.push(element, commit);
                if is_register {
                    versions.drop_old(commit);
                }
            } else {
                let length = versions.length_at(commit);
                running
                    .observed
                    .push(observe(self.workload, versions, length, &[]));
            }
        }
    }

    /// Draws the last commit in a transaction's snapshot.
    fn snapshot(&self, running: &OpenTxn, rng: &mut Rng) -> u64 {
        let now = self.store.commits;
        // A retry reads from the store itself: an old snapshot would lose again.
        if self.replica == DatabaseReplica::Present || running.attempts > 0 || rng.below(2) == 0 {
            return now;
        }
        let snapshot = now.saturating_sub(rng.below(LAG_COMMITS_MAX + 1));
        match self.replica {
            DatabaseReplica::LaggingInSession => snapshot.max(running.seen),
            _ => snapshot,
        }
    }

    /// Carries out the next micro-operation of a concurrent transaction.
    fn micro_operation(&mut self, client: u32, rng: &mut Rng) -> StepResult {
        let running = &self.running[client as usize];
        if running.at == 0 {
            let snapshot = self.snapshot(running, rng);
            self.running[client as usize].snapshot = snapshot;
        }
        let running = &self.running[client as usize];
        let micro = running.micros[running.at];
        let is_done = match micro.element {
            Some(element) => self.write(client, micro.slot, element),
            None => self.read(client, micro.slot),
        };
        let running = &mut self.running[client as usize];
        if is_done {
            running.at += 1;
            return StepResult::Again(exponential(rng, self.micro_operation_ns));
        }
        let is_torn = micro.element.is_none();
        running.waits += 1;
        if !is_torn && running.waits <= WAITS_MAX {
            return StepResult::Again(exponential(rng, 2 * self.micro_operation_ns));
        }
        self.lose(client, rng)
    }

    /// The transaction lost a conflict: it begins a new attempt, or fails.
    fn lose(&mut self, client: u32, rng: &mut Rng) -> StepResult {
        self.unlock(client);
        let running = &mut self.running[client as usize];
        running.attempts += 1;
        // Writes in place cannot be repeated: an element would be in the list twice.
        if self.execution == Execution::InPlace || running.attempts >= ATTEMPTS_MAX {
            return StepResult::Done(OpType::Fail);
        }
        running.restart();
        StepResult::Again(exponential(rng, 2 * self.micro_operation_ns))
    }

    /// Carries out a write; false if another client holds the lock that it needs.
    fn write(&mut self, client: u32, slot: u32, element: i64) -> bool {
        let commit = self.store.commits;
        let versions = self.store.at_mut(slot);
        match self.execution {
            Execution::InPlace => {
                let is_ours = versions.lock(client);
                if is_ours {
                    versions.push(element, commit);
                }
                is_ours
            }
            Execution::Committed => versions.lock(client),
            _ => true,
        }
    }

    /// Carries out a read; false if no version of the key is consistent with the earlier reads ([`Execution::Untorn`]).
    fn read(&mut self, client: u32, slot: u32) -> bool {
        let running = &self.running[client as usize];
        let versions = self.store.at(slot);
        let length = match self.execution {
            Execution::Snapshot { .. } => versions.length_at(running.snapshot),
            Execution::Untorn => match self.untorn(running, slot) {
                Some(length) => length,
                None => return false,
            },
            _ => versions.elements.len(),
        };
        let running = &mut self.running[client as usize];
        let mut own = Vec::new();
        if self.execution != Execution::InPlace {
            let before = running.micros[..running.at].iter();
            let same = before.filter(|micro| micro.slot == slot);
            own.extend(same.filter_map(|micro| micro.element));
        }
        if self.execution == Execution::Untorn {
            running.reads.push((slot, length));
        }
        if !own.is_empty() && self.execution != Execution::Committed {
            running.own_reads.push((slot, length));
        }
        let versions = self.store.at_mut(slot);
        let observed = observe(self.workload, versions, length, &own);
        running.observed.push(observed);
        true
    }

    /// The number of elements of a key that a transaction may observe such that, with its earlier reads, it observes all or
    /// nothing of each commit; `None` when there is no such number.
    fn untorn(&self, running: &OpenTxn, slot: u32) -> Option<usize> {
        if let Some(&(_, length)) = running.reads.iter().find(|read| read.0 == slot) {
            return Some(length);
        }
        let commits = &self.store.at(slot).commits;
        let mut length = commits.len();
        for &(read, seen) in &running.reads {
            let unseen = &self.store.at(read).commits[seen..];
            let both = commits.iter().position(|commit| {
                unseen.first().is_some_and(|first| commit >= first)
                    && unseen.binary_search(commit).is_ok()
            });
            length = length.min(both.unwrap_or(length));
        }
        let hidden = &commits[length..];
        let is_torn = running.reads.iter().any(|&(read, seen)| {
            let seen = &self.store.at(read).commits[..seen];
            hidden
                .iter()
                .any(|commit| seen.binary_search(commit).is_ok())
        });
        (!is_torn).then_some(length)
    }

    /// Commits or aborts a concurrent transaction.
    fn commit(&mut self, client: u32, aborts: bool, rng: &mut Rng) -> StepResult {
        if aborts || self.execution == Execution::InPlace {
            self.unlock(client);
            return StepResult::Done(if aborts { OpType::Fail } else { OpType::Ok });
        }
        let running = &self.running[client as usize];
        let first_committer_wins = self.execution
            == Execution::Snapshot {
                first_committer_wins: true,
            };
        let is_stale = |micro: &SlotMop| {
            let last = self.store.at(micro.slot).commits.last();
            micro.element.is_some() && last.is_some_and(|&last| last > running.snapshot)
        };
        let is_passed =
            |&(slot, length): &(u32, usize)| self.store.at(slot).elements.len() > length;
        if first_committer_wins && running.micros.iter().any(is_stale)
            || running.own_reads.iter().any(is_passed)
        {
            return self.lose(client, rng);
        }
        let is_read = running.micros.iter().all(|micro| micro.element.is_none());
        let commit = self.store.commits + 1;
        let running = &mut self.running[client as usize];
        running.seen = running.snapshot;
        running.stamps = (running.snapshot, running.snapshot);
        if !is_read {
            self.store.commits = commit;
            running.seen = commit;
            running.stamps.1 = commit;
        }
        for micro in &running.micros {
            if let Some(element) = micro.element {
                self.store.at_mut(micro.slot).push(element, commit);
            }
        }
        self.unlock(client);
        StepResult::Done(OpType::Ok)
    }

    fn unlock(&mut self, client: u32) {
        for micro in &self.running[client as usize].micros {
            if micro.element.is_some() {
                self.store.at_mut(micro.slot).unlock(client);
            }
        }
    }
}

/// The timestamps of a transaction with this last commit in its snapshot, and this commit number.
fn stamps(snapshot: u64, commit: u64) -> Stamps {
    let stamp = |commit: u64, logical| Stamp {
        physical: commit.cast_signed(),
        logical,
    };
    Stamps {
        start: stamp(snapshot, 1),
        commit: stamp(commit, i64::from(snapshot == commit)),
    }
}

/// The result of a read of the first `length` elements and of the transaction's own earlier writes.
fn observe(
    workload: DatabaseWorkload,
    versions: &mut KeyVersions,
    length: usize,
    own: &[i64],
) -> Observed {
    if workload == DatabaseWorkload::RwRegister {
        let before = length.checked_sub(1).map(|last| versions.elements[last]);
        let value = own.last().copied().or(before);
        return value.map_or(Observed::Nil, Observed::Register);
    }
    if own.is_empty() {
        versions.list(length)
    } else {
        versions.list_with(length, own)
    }
}
