//! Histories of a simulated store with random isolation bugs.

use seatrial_checker::Verdict;
use seatrial_cycles::Level;
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// How the simulated store isolates transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A transaction takes place at one instant.
    Serial,
    /// Reads from the state at its begin; the first of two that append to one key wins.
    Snapshot,
    /// The same without the rule that the first wins: both appends arrive.
    LostUpdates,
    /// Reads from an older state now and then.
    StaleSnapshot,
    /// Reads the committed state; appends lock their key.
    ReadCommitted,
    /// Appends lock their key and are visible at once; an abort leaves them.
    ReadUncommitted,
    /// A commit writes back the whole list as the transaction knows it.
    WholeLists,
    /// An append gets lost now and then.
    Forgetful,
}

pub(crate) const STORES: [Store; 8] = [
    Store::Serial,
    Store::Snapshot,
    Store::LostUpdates,
    Store::StaleSnapshot,
    Store::ReadCommitted,
    Store::ReadUncommitted,
    Store::WholeLists,
    Store::Forgetful,
];

pub(crate) type State = BTreeMap<i64, Vec<i64>>;

/// A transaction that runs.
struct StoreTransaction {
    op: Op,
    mops: Vec<Mop>,
    done: usize,
    /// The state at its begin, by version.
    snapshot: usize,
    appended: Vec<(i64, i64)>,
    failed: bool,
}

/// The store with its clients.
struct Simulation<'a> {
    store: Store,
    rng: &'a mut Rng,
    /// All committed states; the last is the present one.
    states: Vec<State>,
    ops: Vec<Op>,
    running: Vec<StoreTransaction>,
    next_element: BTreeMap<i64, i64>,
    /// Number of transactions after which the keys change; 0: never.
    rotation: usize,
    begun: usize,
}

impl Simulation<'_> {
    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn begin(&mut self, process: u64, mops_max: u64) {
        let mut mops = Vec::new();
        let turn = self.begun.checked_div(self.rotation).unwrap_or(0);
        self.begun += 1;
        for _ in 0..=self.rng.below(mops_max) {
            // Not all clients change over at once.
            let lags = self.rotation > 0 && self.rng.chance(0.2);
            let turn = turn.saturating_sub(usize::from(lags));
            let key = self.rng.below(2).cast_signed() + 2 * turn as i64;
            mops.push(if self.rng.chance(0.5) {
                let element = self.next_element.entry(key).or_default();
                *element += 1;
                let (key, element) = (Key::Int(key), *element);
                Mop::Append { key, element }
            } else {
                let (key, observed) = (Key::Int(key), Observed::Nil);
                Mop::Read { key, observed }
            });
        }
        let value = Value::Txn(mops.clone().into());
        let op = Op::invoke(Process::Client(process), "txn", value);
        self.ops.push(op.clone());
        let latest = self.states.len() - 1;
        let stale = self.store == Store::StaleSnapshot && self.rng.chance(0.4);
        let snapshot = if stale {
            self.rng.index(latest + 1)
        } else {
            latest
        };
        self.running.push(StoreTransaction {
            op,
            mops,
            done: 0,
            snapshot,
            appended: Vec::new(),
            failed: false,
        });
    }

    /// Runs the next micro-operation of a transaction, or ends it.
    fn step(&mut self, number: usize) {
        if self.store == Store::Serial && self.running[number].done == 0 {
            self.running[number].snapshot = self.states.len() - 1;
            while self.running[number].done < self.running[number].mops.len() {
                self.micro_operation(number);
            }
            self.commit(number);
        } else if self.running[number].done < self.running[number].mops.len() {
            self.micro_operation(number);
            if self.store != Store::Serial
                && self.running[number].done == self.running[number].mops.len()
            {
                self.commit(number);
            }
        } else {
            self.end(number);
        }
    }

    fn micro_operation(&mut self, number: usize) {
        let (store, states) = (self.store, self.states.len());
        let now = self.now().clone();
        let locked = |key: i64| {
            let others = self.running.iter().enumerate();
            let mut others = others.filter(|&(other, one)| other != number && !one.failed);
            others.any(|(_, one)| {
                one.done < one.mops.len() && one.appended.iter().any(|&(other, _)| other == key)
            })
        };
        let at = self.running[number].done;
        let mop = self.running[number].mops[at].clone();
        let Key::Int(key) = *mop.key() else {
            return;
        };
        let locks = matches!(store, Store::ReadCommitted | Store::ReadUncommitted);
        let is_locked = locks && locked(key);
        let running = &mut self.running[number];
        running.done += 1;
        match &mut running.mops[at] {
            Mop::Append { element, .. } => {
                running.failed |= is_locked;
                running.appended.push((key, *element));
                if store == Store::ReadUncommitted && !is_locked {
                    let mut next = now;
                    next.entry(key).or_default().push(*element);
                    self.states.push(next);
                }
            }
            Mop::Read { observed, .. } => {
                let state = match store {
                    Store::ReadCommitted | Store::ReadUncommitted => &self.states[states - 1],
                    _ => &self.states[running.snapshot],
                };
                let mut list = state.get(&key).cloned().unwrap_or_default();
                if store != Store::ReadUncommitted {
                    let own = running.appended.iter().filter(|&&(other, _)| other == key);
                    list.extend(own.map(|&(_, element)| element));
                }
                *observed = Observed::List(list.into());
            }
            Mop::Write { .. } => {}
        }
    }

    fn commit(&mut self, number: usize) {
        let now = self.now().clone();
        let running = &mut self.running[number];
        let then = &self.states[running.snapshot];
        let keys: BTreeSet<i64> = running.appended.iter().map(|&(key, _)| key).collect();
        let changed = keys.iter().any(|key| now.get(key) != then.get(key));
        if matches!(self.store, Store::Snapshot | Store::StaleSnapshot) && changed {
            running.failed = true;
        }
        running.failed |= self.rng.chance(0.05);
        if running.failed || self.store == Store::ReadUncommitted {
            return;
        }
        let mut next = now.clone();
        if self.store == Store::WholeLists && self.rng.chance(0.5) {
            for key in &keys {
                next.insert(*key, then.get(key).cloned().unwrap_or_default());
            }
        }
        for &(key, element) in &running.appended {
            if self.store != Store::Forgetful || self.rng.chance(0.8) {
                next.entry(key).or_default().push(element);
            }
        }
        self.states.push(next);
    }

    fn end(&mut self, number: usize) {
        let StoreTransaction {
            op, mops, failed, ..
        } = self.running.swap_remove(number);
        let observed = Value::Txn(mops.into());
        let completion = if self.rng.chance(0.12) {
            op.complete(OpType::Info, op.value.clone())
        } else if failed {
            op.complete(OpType::Fail, op.value.clone())
        } else {
            op.complete(OpType::Ok, observed)
        };
        if !completion.is_info() || self.rng.chance(0.7) {
            self.ops.push(completion);
        }
    }
}

/// A history of up to `transactions_max` transactions by up to four clients, as a rule
/// with one that reads everything at the end.
pub(crate) fn random_history(store: Store, transactions_max: u64, rng: &mut Rng) -> History {
    rotating_history(store, transactions_max, 0, rng)
}

/// The same with other keys after `rotation` transactions, unless that is 0.
pub(crate) fn rotating_history(
    store: Store,
    transactions_max: u64,
    rotation: usize,
    rng: &mut Rng,
) -> History {
    let mut left = 2 + rng.below(transactions_max - 1);
    let mops_max = 1 + rng.below(4);
    let mut simulation = Simulation {
        store,
        rng,
        states: vec![State::new()],
        ops: Vec::new(),
        running: Vec::new(),
        next_element: BTreeMap::new(),
        rotation,
        begun: 0,
    };
    let (mut process, mut free) = (4, vec![0, 1, 2, 3]);
    while left > 0 || !simulation.running.is_empty() {
        if left > 0 && !free.is_empty() && simulation.rng.chance(0.5) {
            left -= 1;
            let client = free.swap_remove(simulation.rng.index(free.len()));
            simulation.begin(client, mops_max);
        } else if !simulation.running.is_empty() {
            let number = simulation.rng.index(simulation.running.len());
            let before = simulation.ops.len();
            let client = simulation.running[number].op.process;
            let running = simulation.running.len();
            simulation.step(number);
            if simulation.running.len() < running {
                let crashed = simulation.ops[before..].first().is_none_or(Op::is_info);
                match client {
                    Process::Client(client) if !crashed => free.push(client),
                    _ => {
                        free.push(process);
                        process += 1;
                    }
                }
            }
        }
    }
    if simulation.rng.chance(0.7) {
        let begun = simulation.begun;
        simulation.begin(process, 1);
        let last = simulation.running.last_mut().unwrap();
        last.snapshot = simulation.states.len() - 1;
        let first = 2 * begun.checked_div(rotation).unwrap_or(0) as i64;
        last.mops = [first, first + 1]
            .map(|key| Mop::Read {
                key: Key::Int(key),
                observed: Observed::Nil,
            })
            .into();
        last.op.value = Value::Txn(last.mops.clone().into());
        let invocation = last.op.clone();
        *simulation.ops.last_mut().unwrap() = invocation;
        while !simulation.running.is_empty() {
            simulation.step(0);
        }
    }
    History::from_unindexed(simulation.ops)
}

pub(crate) fn printed(history: &History) -> String {
    history.iter().map(|op| op.to_string() + "\n").collect()
}

/// The history of a random store with changing keys, and a level to check.
pub(crate) fn any_case(seed: u64, rng: &mut Rng) -> (Store, History, Level) {
    let store = STORES[seed as usize % STORES.len()];
    let rotation = 2 + rng.index(8);
    let length = 10 + rng.below(60);
    let history = rotating_history(store, length, rotation, rng);
    let level = if rng.chance(0.4) {
        Level::StrictSerializable
    } else {
        let levels: Vec<_> = Level::all().collect();
        *rng.pick(&levels)
    };
    (store, history, level)
}

/// How large the largest components are.
pub(crate) fn sizes(verdict: &Verdict) -> Vec<u64> {
    let components = verdict.components.iter();
    components.map(|component| component.transactions).collect()
}

/// What must be the same however a history is cut.
pub(crate) fn essence(verdict: &Verdict) -> String {
    // What is left open may be an append to a key that is closed in one of them.
    let mut verdict = verdict.clone();
    verdict.accept_undecided();
    // Barriers of real time and edges from freed transactions depend on the cuts, and valid levels on undecided questions.
    let of_cuts = ["windows", "largest_window", "late_keys", "edges", "holds"];
    let details = verdict.details.to_json();
    let details = details.as_object().into_iter().flatten();
    let details = details.filter(|(field, _)| !of_cuts.contains(&field.as_str()));
    let details: BTreeMap<_, _> = details.collect();
    let mut findings: Vec<_> = verdict.findings.iter().collect();
    findings.sort_by_key(|finding| finding.anomaly);
    let counts = findings.chunk_by(|one, other| one.anomaly == other.anomaly);
    let counts: Vec<_> = counts
        .map(|group| (group[0].anomaly, group.len()))
        .collect();
    format!(
        "{:?} {:?} {:?} {:?} {details:?} {counts:?} {:?}",
        verdict.valid,
        verdict.anomalies,
        verdict.not,
        verdict.also_not,
        sizes(&verdict)
    )
}
