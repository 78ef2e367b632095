//! Random cases: simulated stores with faults, their histories disturbed, and shapes in which checkers went wrong before.

use crate::case::{
    Case, CaseOutcome, KEYS_MAX, Kind, LENGTH_MAX, Micro, State, TRANSACTIONS_MAX, Txn, VALUE_MAX,
    elements, length, list,
};
use crate::shapes;
use seatrial_machine::Rng;

/// How a simulated store isolates transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// Each takes place at one instant.
    Serial,
    /// Reads from the state at its begin; of two that overlap and write a key the first wins.
    Snapshot,
    /// The same without that rule.
    LostUpdates,
    /// The same, from an older state now and then.
    Stale,
    /// Each read sees the committed state.
    ReadCommitted,
    /// Writes are seen at once, and an abort leaves them.
    ReadUncommitted,
    /// Each process has a replica, which hears of commits later.
    Replicas,
}

const STORES: [Store; 7] = [
    Store::Serial,
    Store::Snapshot,
    Store::LostUpdates,
    Store::Stale,
    Store::ReadCommitted,
    Store::ReadUncommitted,
    Store::Replicas,
];

/// Random parameters of one case.
struct CaseShape {
    kind: Kind,
    store: Store,
    transactions: usize,
    clients: usize,
    keys: u64,
    micros_max: u64,
    /// Chance of a write, and that it follows a read of its key.
    writes: f64,
    updates: f64,
}

/// The case of this number.
pub(crate) fn case(kind: Kind, seed: u64, number: u64) -> Case {
    let mut rng = Rng::from_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut case = match rng.below(10) {
        0 => shapes::case(kind, &mut rng),
        1 => chaos(kind, &mut rng),
        _ => simulated(kind, &mut rng),
    };
    if rng.chance(0.55) {
        for _ in 0..=rng.below(2) {
            disturb(&mut case, &mut rng);
        }
    }
    case.renumber();
    if rng.chance(0.08) {
        retry(&mut case, &mut rng);
        case.renumber();
    }
    case
}

/// One more attempt at what some transaction does, at any time, by a process of its own. It fails, or the other does.
fn retry(case: &mut Case, rng: &mut Rng) {
    let writers = (0..case.txns.len()).filter(|&it| case.txns[it].writes().next().is_some());
    let writers: Vec<usize> = writers.collect();
    if writers.is_empty() || case.txns.len() >= TRANSACTIONS_MAX {
        return;
    }
    let number = *rng.pick(&writers);
    let mut attempt = case.txns[number].clone();
    attempt.process = case.txns.iter().map(|txn| txn.process).max().unwrap_or(0) + 1;
    // Times between those of the others, which stand four apart.
    let last = case
        .txns
        .iter()
        .flat_map(|txn| [Some(txn.begun), txn.ended]);
    let last = u64::from(last.flatten().max().unwrap_or(0));
    for txn in &mut case.txns {
        txn.begun = 4 * txn.begun + 4;
        txn.ended = txn.ended.map(|ended| 4 * ended + 4);
    }
    attempt.begun = 4 * rng.below(last + 2) as u16 + 1;
    attempt.ended = Some(attempt.begun + 4 * rng.below(last + 2) as u16 + 1);
    if case.txns[number].ended.is_some() && rng.chance(0.3) {
        case.txns[number].outcome = CaseOutcome::Fail;
    } else {
        attempt.outcome = CaseOutcome::Fail;
    }
    if rng.chance(0.3) && attempt.micros.len() > 1 {
        attempt.micros.remove(rng.index(attempt.micros.len()));
    }
    case.txns.push(attempt);
}

fn simulated(kind: Kind, rng: &mut Rng) -> Case {
    let small = rng.chance(0.5);
    let transactions = if small {
        2 + rng.index(3)
    } else {
        3 + rng.index(4)
    };
    let shape = CaseShape {
        kind,
        store: *rng.pick(&STORES),
        transactions,
        clients: 1 + rng.index(transactions.min(4)),
        keys: 1 + rng.below(3),
        micros_max: 1 + rng.below(if small { 4 } else { 3 }),
        writes: 0.3 + 0.4 * rng.unit(),
        updates: *rng.pick(&[0.0, 0.3, 1.0]),
    };
    StoreSimulation::new(&shape, rng).run()
}

/// A transaction that runs.
struct RunningTransaction {
    number: usize,
    client: usize,
    done: usize,
    snapshot: State,
    /// Writes by key when its snapshot was taken.
    versions: [u64; KEYS_MAX],
    held: State,
}

/// A store that runs the transactions of a case in a random order, and records what their clients see.
struct StoreSimulation<'a> {
    shape: &'a CaseShape,
    rng: &'a mut Rng,
    case: Case,
    clock: u16,
    running: Vec<RunningTransaction>,
    /// The processes of clients that are free.
    free: Vec<usize>,
    processes: u8,
    process_of: Vec<u8>,
    next_value: [u64; KEYS_MAX],
    states: Vec<(State, [u64; KEYS_MAX])>,
    /// By client: its replica, and commits that it has not heard of.
    replicas: Vec<(State, [u64; KEYS_MAX])>,
    pending: Vec<Vec<usize>>,
}

impl<'a> StoreSimulation<'a> {
    fn new(shape: &'a CaseShape, rng: &'a mut Rng) -> StoreSimulation<'a> {
        let clients = shape.clients;
        StoreSimulation {
            shape,
            rng,
            case: Case {
                kind: shape.kind,
                txns: Vec::new(),
            },
            clock: 0,
            running: Vec::new(),
            free: (0..clients).collect(),
            processes: clients as u8,
            process_of: (0..clients as u8).collect(),
            next_value: [0; KEYS_MAX],
            states: vec![Default::default()],
            replicas: vec![Default::default(); clients],
            pending: vec![Vec::new(); clients],
        }
    }

    fn run(mut self) -> Case {
        loop {
            let can_begin = self.case.txns.len() < self.shape.transactions && !self.free.is_empty();
            if can_begin && (self.running.is_empty() || self.rng.chance(0.4)) {
                self.begin();
            } else if self.running.is_empty() {
                return self.case;
            } else {
                let at = self.rng.index(self.running.len());
                self.step(at);
            }
        }
    }

    fn tick(&mut self) -> u16 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self) {
        let client = self.free.swap_remove(self.rng.index(self.free.len()));
        let begun = self.tick();
        let mut micros = Vec::new();
        for _ in 0..=self.rng.below(self.shape.micros_max) {
            let key = self.rng.below(self.shape.keys) as u8;
            let is_write = self.rng.chance(self.shape.writes);
            if !is_write || self.rng.chance(self.shape.updates) {
                micros.push(Micro {
                    key,
                    is_write: false,
                    value: 0,
                });
            }
            let next = &mut self.next_value[usize::from(key)];
            if is_write && *next < VALUE_MAX - 2 {
                *next += 1;
                micros.push(Micro {
                    key,
                    is_write: true,
                    value: *next,
                });
            }
        }
        if self.shape.store == Store::Replicas {
            self.deliver(client);
        }
        let latest = self.states.len() - 1;
        let (snapshot, versions) = match self.shape.store {
            Store::Replicas => self.replicas[client],
            Store::Stale if self.rng.chance(0.4) => self.states[self.rng.index(latest + 1)],
            _ => self.states[latest],
        };
        self.running.push(RunningTransaction {
            number: self.case.txns.len(),
            client,
            done: 0,
            snapshot,
            versions,
            held: snapshot,
        });
        self.case.txns.push(Txn {
            process: self.process_of[client],
            outcome: CaseOutcome::Ok,
            micros,
            begun,
            ended: None,
        });
    }

    /// A replica hears of some commits, in their order.
    fn deliver(&mut self, client: usize) {
        let count = self.rng.index(self.pending[client].len() + 1);
        let heard: Vec<usize> = self.pending[client].drain(..count).collect();
        for number in heard {
            self.replicate(client, number);
        }
    }

    fn replicate(&mut self, client: usize, number: usize) {
        let (state, versions) = &mut self.replicas[client];
        for (key, value) in self.case.txns[number].writes() {
            let held = &mut state[usize::from(key)];
            *held = self.shape.kind.write(*held, value);
            versions[usize::from(key)] += 1;
        }
    }

    fn step(&mut self, at: usize) {
        let one = &mut self.running[at];
        let micros = &mut self.case.txns[one.number].micros;
        let store = self.shape.store;
        let Some(micro) = micros.get_mut(one.done) else {
            self.end(at);
            return;
        };
        one.done += 1;
        let key = usize::from(micro.key);
        let latest = self.states.len() - 1;
        let is_shared = store == Store::ReadUncommitted;
        if store == Store::Serial && one.done == 1 {
            (one.snapshot, one.versions) = self.states[latest];
            one.held = one.snapshot;
        }
        if is_shared {
            one.held = self.states[latest].0;
        }
        if store == Store::ReadCommitted && !micro.is_write {
            let mine = micros[..one.done - 1].iter();
            let mine = mine.filter(|it| it.is_write && usize::from(it.key) == key);
            let committed = self.states[latest].0[key];
            one.held[key] = mine.fold(committed, |held, it| self.shape.kind.write(held, it.value));
        }
        let micro = &mut micros[one.done - 1];
        if micro.is_write {
            one.held[key] = self.shape.kind.write(one.held[key], micro.value);
            if is_shared {
                self.states[latest].0[key] = one.held[key];
            }
        } else {
            micro.value = one.held[key];
        }
        if store == Store::Serial {
            let all = self.case.txns[self.running[at].number].micros.len();
            if self.running[at].done < all {
                self.step(at);
            } else {
                self.end(at);
            }
        }
    }

    fn end(&mut self, at: usize) {
        let one = self.running.swap_remove(at);
        // Of replicas too: a commit that others do not know of yet counts as a conflict, as a rule.
        let (state, versions) = self.states[self.states.len() - 1];
        let txn = &self.case.txns[one.number];
        let clash = txn
            .writes()
            .any(|(key, _)| versions[usize::from(key)] != one.versions[usize::from(key)]);
        let is_strict = match self.shape.store {
            Store::Snapshot => true,
            Store::Replicas => self.rng.chance(0.9),
            _ => false,
        };
        let aborts = is_strict && clash || self.rng.chance(0.06);
        let is_lost = self.rng.chance(0.1);
        if !aborts {
            self.commit(&one, state, versions);
        }
        let ended = self.tick();
        let txn = &mut self.case.txns[one.number];
        txn.ended = Some(ended);
        txn.outcome = match (is_lost, aborts) {
            (true, _) => CaseOutcome::Info,
            (_, true) => CaseOutcome::Fail,
            _ => CaseOutcome::Ok,
        };
        if is_lost {
            if self.rng.chance(0.3) {
                txn.ended = None;
            }
            self.process_of[one.client] = self.processes;
            self.processes += 1;
        }
        self.free.push(one.client);
    }

    fn commit(
        &mut self,
        one: &RunningTransaction,
        mut state: State,
        mut versions: [u64; KEYS_MAX],
    ) {
        let txn = &self.case.txns[one.number];
        for (key, value) in txn.writes() {
            let key = usize::from(key);
            if self.shape.store != Store::ReadUncommitted {
                state[key] = self.shape.kind.write(state[key], value);
            }
            versions[key] += 1;
        }
        self.states.push((state, versions));
        if self.shape.store == Store::Replicas {
            for client in 0..self.replicas.len() {
                if client == one.client {
                    self.replicate(client, one.number);
                } else {
                    self.pending[client].push(one.number);
                }
            }
        }
    }
}

/// Transactions that do and read anything.
fn chaos(kind: Kind, rng: &mut Rng) -> Case {
    let transactions = 2 + rng.index(3);
    let keys = 1 + rng.below(2);
    let mut next = [0; KEYS_MAX];
    let mut txns = Vec::new();
    for number in 0..transactions {
        let mut micros = Vec::new();
        for _ in 0..=rng.below(3) {
            let key = rng.below(keys) as u8;
            let is_write = rng.chance(0.5);
            let last = &mut next[usize::from(key)];
            if is_write {
                *last += 1;
            }
            micros.push(Micro {
                key,
                is_write,
                value: *last,
            });
        }
        let begun = number as u16 * 10 + rng.below(25) as u16 * 2;
        txns.push(Txn {
            process: number as u8,
            outcome: CaseOutcome::Ok,
            micros,
            begun,
            ended: Some(begun + 1 + 2 * rng.below(20) as u16),
        });
    }
    for txn in &mut txns {
        for micro in txn.micros.iter_mut().filter(|it| !it.is_write) {
            let last = next[usize::from(micro.key)];
            micro.value = any_value(kind, last, rng);
        }
    }
    Case { kind, txns }
}

/// What a read may see of a key to which the values up to `last` were written.
fn any_value(kind: Kind, last: u64, rng: &mut Rng) -> u64 {
    match kind {
        Kind::Registers => rng.below(last + 1),
        Kind::Lists => {
            let mut all: Vec<u64> = (1..=last).collect();
            if rng.chance(0.3) {
                rng.shuffle(&mut all);
            }
            let count = rng.index(all.len() + 1);
            list(all.into_iter().take(count))
        }
    }
}

/// Changes one thing.
fn disturb(case: &mut Case, rng: &mut Rng) {
    let at = rng.index(case.txns.len());
    match rng.below(12) {
        0..=6 => disturb_read(case, rng),
        7 => {
            let txn = &mut case.txns[at];
            if txn.ended.is_some() {
                txn.outcome = *rng.pick(&[CaseOutcome::Ok, CaseOutcome::Fail]);
            }
        }
        8 => {
            let micros = &mut case.txns[at].micros;
            if micros.len() > 1 {
                let (one, other) = (rng.index(micros.len()), rng.index(micros.len()));
                micros.swap(one, other);
            }
        }
        9 => {
            let micros = &mut case.txns[at].micros;
            if micros.len() > 1 {
                micros.remove(rng.index(micros.len()));
            }
        }
        10 => {
            // A process of its own.
            let processes = case.txns.iter().map(|txn| txn.process).max();
            case.txns[at].process = processes.unwrap_or(0) + 1;
        }
        _ => swap_events(case, rng),
    }
}

/// Two neighbouring events of different processes change places.
fn swap_events(case: &mut Case, rng: &mut Rng) {
    case.renumber();
    let ends = case.txns.iter().map(|txn| txn.ended.unwrap_or(txn.begun));
    let last = ends.max().unwrap_or(0);
    let at = rng.below(u64::from(last).max(1)) as u16;
    let has = |txn: &Txn, time| txn.begun == time || txn.ended == Some(time);
    let one = case.txns.iter().position(|txn| has(txn, at));
    let other = case.txns.iter().position(|txn| has(txn, at + 1));
    let (Some(one), Some(other)) = (one, other) else {
        return;
    };
    if case.txns[one].process == case.txns[other].process {
        return;
    }
    for (number, from, to) in [(one, at, at + 1), (other, at + 1, at)] {
        let txn = &mut case.txns[number];
        if txn.begun == from {
            txn.begun = to;
        } else if txn.ended == Some(from) {
            txn.ended = Some(to);
        }
    }
}

/// Some read sees something else.
fn disturb_read(case: &mut Case, rng: &mut Rng) {
    let kind = case.kind;
    let mut places = Vec::new();
    for (number, txn) in case.txns.iter().enumerate() {
        let reads = txn.micros.iter().enumerate().filter(|it| !it.1.is_write);
        places.extend(reads.map(|(at, micro)| (number, at, *micro)));
    }
    if places.is_empty() {
        return;
    }
    let (number, at, micro) = *rng.pick(&places);
    let same: Vec<u64> = places
        .iter()
        .filter(|place| place.2.key == micro.key)
        .map(|place| place.2.value)
        .collect();
    let txns = case.txns.iter();
    let written: Vec<u64> = txns
        .flat_map(|txn| txn.writes())
        .filter(|write| write.0 == micro.key)
        .map(|write| write.1)
        .collect();
    let fresh = if rng.chance(0.04) || written.is_empty() {
        VALUE_MAX
    } else {
        *rng.pick(&written)
    };
    let other = match kind {
        Kind::Registers => match rng.below(4) {
            0 => 0,
            1 => *rng.pick(&same),
            _ => fresh,
        },
        Kind::Lists => disturbed_list(micro.value, &same, fresh, rng),
    };
    case.txns[number].micros[at].value = other;
}

fn disturbed_list(seen: u64, same: &[u64], fresh: u64, rng: &mut Rng) -> u64 {
    let mut all: Vec<u64> = elements(seen).collect();
    match rng.below(6) {
        0 => drop(all.pop()),
        1 if !all.is_empty() => drop(all.remove(0)),
        2 if all.len() > 1 => {
            let at = rng.index(all.len() - 1);
            all.swap(at, at + 1);
        }
        3 => return *rng.pick(same),
        _ if length(seen) < LENGTH_MAX && (!all.contains(&fresh) || rng.chance(0.05)) => {
            all.push(fresh);
        }
        _ => drop(all.pop()),
    }
    list(all)
}
