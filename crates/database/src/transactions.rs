//! Transactions over lists and registers, isolated as the level says.

use super::keys::LiveKeys;
use super::options::{Isolation, Options, Workload};
use super::step::{Plan, Step, exponential};
use super::store::{LAG_COMMITS_MAX, Store, Versions};
use seatrial_history::{Key, Mop, Observed, OpType, Symbol, Value};
use seatrial_history::{Stamp, Stamps};
use seatrial_machine::Rng;
use std::sync::Arc;

/// Nanoseconds of store that the clients ask for at once, so that about one transaction runs at a time whatever their
/// number: fewer would seldom meet, more would get in each other's way.
const WORK_NS: u64 = 1_600_000;
/// How often a transaction waits for locks in one attempt before it gives the attempt up.
const WAITS_MAX: u32 = 8;
/// How often a transaction that lost against others is begun; then it fails.
const ATTEMPTS_MAX: u32 = 16;

/// How transactions are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    /// Writes go into the store at once.
    InPlace,
    /// Writes wait for the commit; reads take what is committed.
    Committed,
    /// Writes wait for the commit; reads take what is committed, of each commit all or nothing.
    Untorn,
    /// Writes wait for the commit; reads take a snapshot.
    Snapshot { first_committer_wins: bool },
    /// One transaction after another.
    Serial,
}

/// Who serves snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replica {
    /// The store itself.
    Present,
    /// Half of the time a replica that lags behind.
    Lagging,
    /// The same, but never behind what the client has seen.
    LaggingInSession,
}

impl Isolation {
    /// Do its transactions read from snapshots, or run one after another?
    pub(super) fn has_snapshots(self) -> bool {
        let (execution, _) = self.mechanism();
        matches!(execution, Execution::Snapshot { .. } | Execution::Serial)
    }

    fn mechanism(self) -> (Execution, Replica) {
        let snapshot = |first_committer_wins| Execution::Snapshot {
            first_committer_wins,
        };
        match self {
            Isolation::ReadUncommitted => (Execution::InPlace, Replica::Present),
            Isolation::ReadCommitted => (Execution::Committed, Replica::Present),
            Isolation::ReadAtomic => (Execution::Untorn, Replica::Present),
            Isolation::Prefix => (snapshot(false), Replica::Lagging),
            Isolation::SnapshotIsolation => (snapshot(true), Replica::Lagging),
            Isolation::StrongSessionSnapshotIsolation => {
                (snapshot(true), Replica::LaggingInSession)
            }
            Isolation::StrongSnapshotIsolation => (snapshot(true), Replica::Present),
            Isolation::Serializable => (Execution::Serial, Replica::Lagging),
            Isolation::StrongSessionSerializable => (Execution::Serial, Replica::LaggingInSession),
            _ => (Execution::Serial, Replica::Present),
        }
    }
}

/// One micro-operation as the store sees it.
#[derive(Clone, Copy, Debug)]
struct Micro {
    slot: u32,
    key: i64,
    /// What is written; `None` for a read.
    element: Option<i64>,
}

/// A client's transaction.
#[derive(Debug, Default)]
struct Running {
    micros: Vec<Micro>,
    /// As the invocation has them.
    mops: Option<Arc<[Mop]>>,
    /// What the reads so far saw.
    observed: Vec<Observed>,
    /// The next micro-operation.
    at: usize,
    /// The last commit that its snapshot has.
    snapshot: u64,
    /// Slots that were read, and how many elements of them are visible to it.
    reads: Vec<(u32, usize)>,
    /// The same of slots whose list was read with the transaction's own elements behind: it must win there.
    looked: Vec<(u32, usize)>,
    waits: u32,
    attempts: u32,
    /// The last commit that the client saw or made.
    seen: u64,
    /// The last commit that its snapshot has, and its own commit; the same number when it wrote nothing.
    stamps: (u64, u64),
}

impl Running {
    /// Begins the attempt again.
    fn restart(&mut self) {
        self.observed.clear();
        self.reads.clear();
        self.looked.clear();
        self.at = 0;
        self.waits = 0;
    }
}

/// A store of lists or registers and the transactions that run on it.
///
/// Its loop: each [`Transactions::step`] carries out one micro-operation of one client, or its commit, so transactions
/// interleave as finely as their clients' times do; a store that runs one transaction after another carries out all of
/// one in one step.
///
/// Its downside: a list is read as a whole, so the cost of a read grows with the writes per key.
#[derive(Debug)]
pub(super) struct Transactions {
    workload: Workload,
    execution: Execution,
    replica: Replica,
    /// Nanoseconds of one micro-operation, on average.
    micro_operation_ns: u64,
    /// Micro-operations that every transaction has, and that it may have on top.
    length: (u32, u32),
    /// Are all lengths equally likely?
    even_lengths: bool,
    reads: f64,
    read_before_write: bool,
    no_key_twice: bool,
    /// Places of keys that the transaction which is drawn has.
    taken: Vec<usize>,
    pub(super) store: Store,
    keys: LiveKeys,
    running: Vec<Running>,
}

impl Transactions {
    pub(super) fn new(options: &Options, rng: &mut Rng) -> Transactions {
        let (execution, replica) = options.store().mechanism();
        let mut store = Store::default();
        let keys = LiveKeys::new(options, &mut store, rng);
        let (low, high) = options.transaction_length.clone().into_inner();
        let running = (0..options.concurrency).map(|_| Running::default());
        Transactions {
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

    /// Draws a micro-operation, and a read before it if it is a write that needs one.
    fn draw(&mut self, micros: &mut Vec<Micro>, rng: &mut Rng) {
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
            micros.push(Micro { slot, key, element });
        }
    }

    /// The timestamps of a client's last transaction: commits are counted, and a snapshot stands behind the last commit
    /// that it has. Whoever wrote nothing is committed at the instant of its snapshot.
    pub(super) fn stamps(&self, client: u32) -> Stamps {
        let (snapshot, commit) = self.running[client as usize].stamps;
        stamps(snapshot, commit)
    }

    /// Timestamps for a transaction that the store never saw: as if it took place now, by itself.
    pub(super) fn foreign_stamps(&mut self) -> Stamps {
        self.store.commits += 1;
        stamps(self.store.commits - 1, self.store.commits)
    }

    fn mop(&self, micro: &Micro, observed: impl FnOnce() -> Observed) -> Mop {
        let key = Key::Int(micro.key);
        match (micro.element, self.workload) {
            (Some(value), Workload::RwRegister) => Mop::Write { key, value },
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

    /// A client's transaction takes a step.
    pub(super) fn step(&mut self, client: u32, plan: Plan, rng: &mut Rng) -> Step {
        let aborts = plan == Plan::Abort;
        let step = if self.execution == Execution::Serial {
            if aborts {
                Step::Done(OpType::Fail)
            } else {
                self.run(client, rng);
                Step::Done(OpType::Ok)
            }
        } else if self.running[client as usize].at < self.running[client as usize].micros.len() {
            self.micro_operation(client, rng)
        } else {
            self.commit(client, aborts, rng)
        };
        if let Step::Done(_) = step {
            self.end(client);
        }
        step
    }

    /// The client's transaction needs the store no more.
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
        let is_register = self.workload == Workload::RwRegister;
        let running = &mut self.running[client as usize];
        running.seen = commit;
        running.stamps = (commit - u64::from(!is_read), commit);
        for micro in &running.micros {
            let versions = self.store.at_mut(micro.slot);
            if let Some(element) = micro.element {
                versions.push(element, commit);
                if is_register {
                    versions.forget(commit);
                }
            } else {
                let length = versions.length_at(commit);
                running
                    .observed
                    .push(observe(self.workload, versions, length, &[]));
            }
        }
    }

    /// The last commit that a snapshot has.
    fn snapshot(&self, running: &Running, rng: &mut Rng) -> u64 {
        let now = self.store.commits;
        // Whoever lost against others asks the store itself.
        if self.replica == Replica::Present || running.attempts > 0 || rng.below(2) == 0 {
            return now;
        }
        let snapshot = now.saturating_sub(rng.below(LAG_COMMITS_MAX + 1));
        match self.replica {
            Replica::LaggingInSession => snapshot.max(running.seen),
            _ => snapshot,
        }
    }

    /// Carries out the next micro-operation of a transaction that runs among others.
    fn micro_operation(&mut self, client: u32, rng: &mut Rng) -> Step {
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
            return Step::Again(exponential(rng, self.micro_operation_ns));
        }
        let is_torn = micro.element.is_none();
        running.waits += 1;
        if !is_torn && running.waits <= WAITS_MAX {
            return Step::Again(exponential(rng, 2 * self.micro_operation_ns));
        }
        self.lose(client, rng)
    }

    /// The transaction lost against others: it begins again, or fails.
    fn lose(&mut self, client: u32, rng: &mut Rng) -> Step {
        self.unlock(client);
        let running = &mut self.running[client as usize];
        running.attempts += 1;
        // What is in the store already cannot be written again.
        if self.execution == Execution::InPlace || running.attempts >= ATTEMPTS_MAX {
            return Step::Done(OpType::Fail);
        }
        running.restart();
        Step::Again(exponential(rng, 2 * self.micro_operation_ns))
    }

    /// Writes; not if somebody else holds the lock that this needs.
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

    /// Reads; not if the visible versions would be torn.
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
            running.looked.push((slot, length));
        }
        let versions = self.store.at_mut(slot);
        let observed = observe(self.workload, versions, length, &own);
        running.observed.push(observed);
        true
    }

    /// How many elements of a key a transaction may see so that, with what it has read, it sees of each commit all or
    /// nothing; `None` when no number will do.
    fn untorn(&self, running: &Running, slot: u32) -> Option<usize> {
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

    /// Ends a transaction that runs among others.
    fn commit(&mut self, client: u32, aborts: bool, rng: &mut Rng) -> Step {
        if aborts || self.execution == Execution::InPlace {
            self.unlock(client);
            return Step::Done(if aborts { OpType::Fail } else { OpType::Ok });
        }
        let running = &self.running[client as usize];
        let first_committer_wins = self.execution
            == Execution::Snapshot {
                first_committer_wins: true,
            };
        let is_stale = |micro: &Micro| {
            let last = self.store.at(micro.slot).commits.last();
            micro.element.is_some() && last.is_some_and(|&last| last > running.snapshot)
        };
        let is_passed =
            |&(slot, length): &(u32, usize)| self.store.at(slot).elements.len() > length;
        if first_committer_wins && running.micros.iter().any(is_stale)
            || running.looked.iter().any(is_passed)
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
        Step::Done(OpType::Ok)
    }

    fn unlock(&mut self, client: u32) {
        for micro in &self.running[client as usize].micros {
            if micro.element.is_some() {
                self.store.at_mut(micro.slot).unlock(client);
            }
        }
    }
}

/// The stamps of a transaction whose snapshot has commits up to one and which has the number of the other.
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

/// What a read of the first `length` elements and the transaction's own sees.
fn observe(workload: Workload, versions: &mut Versions, length: usize, own: &[i64]) -> Observed {
    if workload == Workload::RwRegister {
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
