//! A lock with owners: who holds it, and since when.

use super::Lock;
use crate::Anomaly;
use crate::data::data_type::OperationEvent;
use crate::data::element::Element;
use crate::data::verdict_builder::VerdictBuilder;
use seatrial_history::{OpType, Process, Value};
use std::collections::BTreeMap;

/// The owners that hold a lock or are about to release it, and their violations of its rules. Memory: these, and the named
/// clients.
#[derive(Default)]
pub(super) struct Owners {
    holds: BTreeMap<LockOwner, LockHold>,
    /// Owners that certainly hold it now, with the completion of the acquisition; more than one if something is wrong.
    holders: BTreeMap<LockOwner, u64>,
    /// The latest acquisitions of two different owners, the last first.
    latest: [Option<(LockOwner, u64)>; 2],
    /// The name of each process that gave one.
    names: BTreeMap<Process, Element>,
    /// The largest fence, and the acquisition that had it.
    fence: Option<(i64, u64)>,
    wrong: Vec<(Anomaly, Vec<u64>, String)>,
    /// The first named client that continued after it had crashed, and its operation that crashed.
    continued_after_crash: Option<(LockOwner, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LockOwner {
    Process(Process),
    Named(Element),
}

impl std::fmt::Display for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LockOwner::Process(process) => write!(f, "process {process}"),
            LockOwner::Named(name) => write!(f, "client {name}"),
        }
    }
}

#[derive(Default)]
struct LockHold {
    /// Acquisitions that are not released.
    depth: u32,
    /// Completion of the first.
    acquired: u64,
    fence: Option<i64>,
    /// Invocation of the release under way that would end it.
    releasing: Option<u64>,
    /// The operation with which a named client crashed.
    crashed: Option<u64>,
}

/// A field of an operation's value.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let is_it = |key: &Value| matches!(key, Value::Word(word) if *word == *name);
    pairs
        .iter()
        .find(|(key, _)| is_it(key))
        .map(|(_, value)| value)
}

/// The fence of a successful acquisition, if it has one.
fn fence(value: &Value) -> Option<i64> {
    let fence = match value {
        Value::Int(fence) => Some(*fence),
        value => field(value, "fence")?.as_int(),
    };
    fence.filter(|&fence| fence != -1)
}

impl Owners {
    fn owner(&mut self, event: &OperationEvent<'_>) -> LockOwner {
        let invocation = event
            .invocation
            .and_then(|started| field(&started.value, "client"));
        let client = field(event.value, "client").or(invocation);
        if let Some(client) = client {
            let name = Element::from(client);
            self.names.insert(event.process, name.clone());
            return LockOwner::Named(name);
        }
        match self.names.get(&event.process) {
            Some(name) => LockOwner::Named(name.clone()),
            None => LockOwner::Process(event.process),
        }
    }

    pub(super) fn apply(&mut self, lock: Lock, event: &OperationEvent<'_>, is_acquisition: bool) {
        let owner = self.owner(event);
        if let Some(crashed) = self.holds.get(&owner).and_then(|hold| hold.crashed) {
            // Whether it holds the lock is unknown; what it certainly held it holds until it begins a release.
            if event.kind == OpType::Invoke && !is_acquisition {
                self.holders.remove(&owner);
            }
            self.continued_after_crash.get_or_insert((owner, crashed));
            return;
        }
        match (event.kind, is_acquisition) {
            (OpType::Invoke, false) => self.begin_release(&owner, event.index),
            (OpType::Ok, true) => self.acquire(lock, &owner, event),
            (OpType::Ok, false) => self.release(&owner, event.index),
            (OpType::Invoke | OpType::Fail, true) => {}
            (OpType::Fail, false) => self.fail_release(&owner, event.index),
            (OpType::Info, _) => self.crash(owner, event.index),
        }
    }

    fn begin_release(&mut self, owner: &LockOwner, index: u64) {
        if let Some(hold) = self.holds.get_mut(owner)
            && hold.depth == 1
        {
            hold.releasing = Some(index);
            self.holders.remove(owner);
        }
    }

    fn acquire(&mut self, lock: Lock, owner: &LockOwner, event: &OperationEvent<'_>) {
        let index = event.index;
        if let Some(hold) = self.holds.get_mut(owner)
            && hold.depth > 0
        {
            if hold.depth < lock.depth() {
                hold.depth += 1;
                return self.fence_again(lock, owner, event);
            }
            let before = hold.acquired;
            let anomaly = if lock.depth() > 1 {
                "too-deep"
            } else {
                "double-acquire"
            };
            let summary = format!(
                "Op {index} acquired the lock for {owner}, which had acquired it (op {before}) and not released it."
            );
            self.wrong.push((anomaly, vec![before, index], summary));
            return;
        }
        if let Some((other, before)) = self.holders.iter().next() {
            let summary = format!(
                "Op {index} acquired the lock for {owner} while {other} held it (since op {before})."
            );
            self.wrong
                .push(("double-acquire", vec![*before, index], summary));
        }
        self.holders.insert(owner.clone(), index);
        if self.latest[0]
            .as_ref()
            .is_none_or(|(latest, _)| latest != owner)
        {
            self.latest.swap(0, 1);
        }
        self.latest[0] = Some((owner.clone(), index));
        let fence = fence(event.value).filter(|_| lock.discipline.is_fenced());
        let hold = LockHold {
            depth: 1,
            acquired: index,
            fence,
            ..LockHold::default()
        };
        self.holds.insert(owner.clone(), hold);
        self.raise(fence, index);
    }

    /// Compares a new fence with the largest so far: it must be larger.
    fn raise(&mut self, fence: Option<i64>, index: u64) {
        let Some(fence) = fence else {
            return;
        };
        match self.fence {
            Some((largest, before)) if fence <= largest => {
                let summary = format!(
                    "Op {index} acquired the lock with fence {fence}, after op {before} with {largest}."
                );
                self.wrong
                    .push(("stale-fence", vec![before, index], summary));
            }
            _ => self.fence = Some((fence, index)),
        }
    }

    /// Compares the fence of a reentrant acquisition with that of the hold.
    fn fence_again(&mut self, lock: Lock, owner: &LockOwner, event: &OperationEvent<'_>) {
        let Some(fence) = fence(event.value).filter(|_| lock.discipline.is_fenced()) else {
            return;
        };
        let Some(hold) = self.holds.get_mut(owner) else {
            return;
        };
        match hold.fence {
            None => {
                hold.fence = Some(fence);
                self.raise(Some(fence), event.index);
            }
            Some(known) if known == fence => {}
            Some(known) => {
                let (before, index) = (hold.acquired, event.index);
                let summary = format!(
                    "Op {index} acquired the lock again with fence {fence}, which {owner} held with {known} (op {before})."
                );
                self.wrong
                    .push(("stale-fence", vec![before, index], summary));
            }
        }
    }

    fn release(&mut self, owner: &LockOwner, index: u64) {
        match self.holds.get_mut(owner) {
            Some(hold) if hold.depth > 1 => hold.depth -= 1,
            Some(hold) if hold.depth == 1 => {
                self.holds.remove(owner);
                self.holders.remove(owner);
            }
            _ => {
                let summary =
                    format!("Op {index} released the lock for {owner}, which did not hold it.");
                self.wrong.push(("unheld-release", vec![index], summary));
            }
        }
    }

    /// A release failed: the owner held the lock all the time.
    fn fail_release(&mut self, owner: &LockOwner, index: u64) {
        let Some(hold) = self.holds.get_mut(owner) else {
            return;
        };
        let Some(began) = hold.releasing.take() else {
            return;
        };
        let acquired = hold.acquired;
        self.holders.insert(owner.clone(), acquired);
        let others = self.latest.iter().flatten();
        let mut others = others.filter(|(other, at)| other != owner && *at > began);
        if let Some((other, at)) = others.next() {
            let summary = format!(
                "Op {at} acquired the lock for {other} while {owner} held it (since op {acquired}): its release failed (op \
                 {index})."
            );
            self.wrong
                .push(("double-acquire", vec![acquired, *at, index], summary));
        }
    }

    fn crash(&mut self, owner: LockOwner, index: u64) {
        match owner {
            // A crashed process does nothing more: what it certainly holds it holds to the end.
            LockOwner::Process(_) => _ = self.holds.remove(&owner),
            LockOwner::Named(_) => self.holds.entry(owner).or_default().crashed = Some(index),
        }
    }

    pub(super) fn finish(self, builder: &mut VerdictBuilder) {
        for (anomaly, operations, summary) in self.wrong {
            builder.anomaly(anomaly, || (operations, summary));
        }
        if let Some((owner, index)) = self.continued_after_crash {
            builder.unknown(format!(
                "what {owner} did after op {index}, of unknown outcome, cannot be checked"
            ));
        }
    }
}
