//! Models that are searched for, on histories of simulated stores: what a store promises is found to hold, and every verdict is
//! proven to a verifier that shares no code with the checker.

use crate::stores::printed;
use seatrial_checker::{Validity, Verdict, certify};
use seatrial_cycles::SearchBound;
use seatrial_farm::{histories, least};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_isolation::{AxiomaticModel, Isolation};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, Proof, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the simulated store isolates transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// Each takes place at one instant.
    Serial,
    /// Reads from the state at an instant; of two that overlap and write a key, the first to commit wins.
    Snapshot,
    /// The same without that rule.
    LostUpdates,
    /// Each read observes the state committed at that time.
    ReadCommitted,
}

const STORES: [Store; 4] = [
    Store::Serial,
    Store::Snapshot,
    Store::LostUpdates,
    Store::ReadCommitted,
];

/// What transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They write what they have not read.
    Blind,
    /// They read every key before they write it.
    Updates,
    /// Some of both.
    Mixed,
}

/// The shape of a history.
struct DecisionShape {
    store: Store,
    kind: Kind,
    transactions: usize,
    clients: u64,
    keys: u64,
    events_max: u64,
}

type State = BTreeMap<i64, i64>;

struct BegunTransaction {
    op: Op,
    mops: Vec<Mop>,
    done: usize,
    snapshot: State,
    written: State,
    /// Did it fail or get lost?
    outcome: OpType,
}

/// A history of the store.
fn simulated(shape: &DecisionShape, rng: &mut Rng) -> History {
    let mut ops = Vec::new();
    let mut state = State::new();
    let mut running: Vec<BegunTransaction> = Vec::new();
    let mut free: Vec<u64> = (0..shape.clients).collect();
    let mut next_process = shape.clients;
    let (mut left, mut next_value) = (shape.transactions, 0);
    while left > 0 || !running.is_empty() {
        if left > 0 && !free.is_empty() && rng.chance(0.4) {
            left -= 1;
            let client = free.swap_remove(rng.index(free.len()));
            let mops = wanted(shape, rng, &mut next_value);
            let op = Op::invoke(
                Process::Client(client),
                "txn",
                Value::Txn(mops.clone().into()),
            );
            ops.push(op.clone());
            running.push(BegunTransaction {
                op,
                mops,
                done: 0,
                snapshot: State::new(),
                written: State::new(),
                outcome: OpType::Ok,
            });
            continue;
        }
        if running.is_empty() {
            continue;
        }
        let number = rng.index(running.len());
        let one = &mut running[number];
        if one.done <= one.mops.len() {
            step(shape.store, one, &mut state, rng);
            continue;
        }
        let one = running.swap_remove(number);
        let value = match one.outcome {
            OpType::Ok => Value::Txn(one.mops.into()),
            _ => one.op.value.clone(),
        };
        let Process::Client(client) = one.op.process else {
            continue;
        };
        if one.outcome == OpType::Info {
            free.push(next_process);
            next_process += 1;
        } else {
            free.push(client);
        }
        ops.push(one.op.complete(one.outcome, value));
    }
    History::from_unindexed(ops)
}

/// What a transaction is going to do.
fn wanted(shape: &DecisionShape, rng: &mut Rng, next_value: &mut i64) -> Vec<Mop> {
    let mut mops = Vec::new();
    for _ in 0..=rng.below(shape.events_max) {
        let key = Key::Int(rng.below(shape.keys).cast_signed());
        let read = Mop::Read {
            key: key.clone(),
            observed: Observed::Nil,
        };
        let is_write = rng.chance(0.5);
        let updates = shape.kind == Kind::Updates || shape.kind == Kind::Mixed && rng.chance(0.5);
        if !is_write || updates {
            mops.push(read);
        }
        if is_write {
            *next_value += 1;
            let value = *next_value;
            mops.push(Mop::Write { key, value });
        }
    }
    mops
}

/// The next step of a transaction; the last one commits it.
fn step(store: Store, one: &mut BegunTransaction, state: &mut State, rng: &mut Rng) {
    if one.done == 0 {
        one.snapshot.clone_from(state);
    }
    if store == Store::Serial && one.done == 0 {
        while one.done < one.mops.len() {
            micro_operation(one);
        }
    } else if one.done < one.mops.len() {
        if store == Store::ReadCommitted {
            one.snapshot.clone_from(state);
        }
        micro_operation(one);
        return;
    }
    one.done = one.mops.len() + 1;
    let clash = |(key, _): (&i64, &i64)| state.get(key) != one.snapshot.get(key);
    let conflicts = store == Store::Snapshot && one.written.iter().any(clash);
    if conflicts || rng.chance(0.03) {
        one.outcome = OpType::Fail;
        return;
    }
    if rng.chance(0.02) {
        one.outcome = OpType::Info;
    }
    state.append(&mut one.written.clone());
}

fn micro_operation(one: &mut BegunTransaction) {
    match &mut one.mops[one.done] {
        Mop::Read {
            key: Key::Int(key),
            observed,
        } => {
            let value = one.written.get(key).or(one.snapshot.get(key));
            *observed = value.map_or(Observed::Nil, |&value| Observed::Register(value));
        }
        Mop::Write {
            key: Key::Int(key),
            value,
        } => {
            one.written.insert(*key, *value);
        }
        _ => {}
    }
    one.done += 1;
}

fn certified(history: &Arc<History>, model: AxiomaticModel) -> (Verdict, Option<Certificate>) {
    certify_with_order(history, model, Vec::new())
}

/// With an order from outside.
fn certify_with_order(
    history: &Arc<History>,
    model: AxiomaticModel,
    order: Vec<(u64, i64)>,
) -> (Verdict, Option<Certificate>) {
    let bound = SearchBound {
        search_steps_max: 20_000_000,
    };
    let checker = Isolation::new(model).with_bound(bound).with_order(order);
    certify(&checker, history.as_ref()).unwrap()
}

/// Does the store promise so much?
fn is_promised(store: Store, model: AxiomaticModel) -> bool {
    match store {
        Store::Serial => true,
        Store::Snapshot => AxiomaticModel::StrongSnapshotIsolation.implies(model),
        Store::LostUpdates => AxiomaticModel::StrongSessionPrefix.implies(model),
        Store::ReadCommitted => false,
    }
}

/// Up to `transactions_max` transactions, and `transactions_min` at least, on one of the stores.
fn any_shape(
    seed: u64,
    transactions_min: usize,
    transactions_max: usize,
    rng: &mut Rng,
) -> DecisionShape {
    DecisionShape {
        store: STORES[seed as usize % 4],
        kind: *rng.pick(&[Kind::Blind, Kind::Updates, Kind::Mixed]),
        transactions: transactions_min + rng.index(transactions_max - transactions_min),
        clients: 2 + rng.below(18),
        keys: *rng.pick(&[3, 10, 30, 100]),
        events_max: 1 + rng.below(8),
    }
}

#[test]
fn what_a_store_promises_holds_and_every_verdict_is_proven() {
    let (mut valid, mut invalid) = ([0; 10], [0; 10]);
    let mut largest = 0;
    for seed in 0..histories(160) {
        let mut rng = Rng::from_seed(seed);
        let shape = any_shape(seed, 30, 300, &mut rng);
        let history = Arc::new(simulated(&shape, &mut rng));
        let mut holds = Vec::new();
        for (number, model) in AxiomaticModel::SEARCHED.into_iter().enumerate() {
            let (verdict, certificate) = certified(&history, model);
            let context = || format!("seed {seed} {shape} {model:?}: {}", verdict.details);
            match verdict.valid {
                Validity::Valid => {
                    holds.push(model);
                    valid[number] += 1;
                }
                Validity::Invalid => {
                    assert!(
                        !is_promised(shape.store, model),
                        "{}\n{}",
                        context(),
                        printed(&history)
                    );
                    invalid[number] += 1;
                }
                Validity::Unknown(_) => panic!("{}", context()),
            }
            let certificate = certificate.unwrap();
            assert_eq!(certificate.is_valid(), verdict.valid == Validity::Valid);
            let answer = verify(&history, &certificate);
            assert_eq!(answer, Ok(()), "{}\n{verdict:#?}", context());
            if let Proof::Core(core) = &certificate.proof {
                assert!(verdict.details.core_is_least == Some(true), "{}", context());
                // As a rule two to four; where versions have many orders, some dozens.
                largest = largest.max(core.len());
            }
            refuse_tampered(&history, certificate, &mut rng);
        }
        for &model in &holds {
            let weaker = AxiomaticModel::SEARCHED
                .into_iter()
                .filter(|&other| model.implies(other));
            assert!(
                weaker.into_iter().all(|other| holds.contains(&other)),
                "seed {seed} {model:?}"
            );
        }
    }
    println!("valid: {valid:?}, invalid: {invalid:?}, largest core: {largest}");
    assert!(valid.iter().all(|&count| count > least(20)), "{valid:?}");
    assert!(
        invalid.iter().all(|&count| count > least(20)),
        "{invalid:?}"
    );
    assert!(largest > 4, "{largest}");
}

/// Numbers for some completions, and for indices that are none, that say nothing.
fn any_order(history: &History, rng: &mut Rng) -> Vec<(u64, i64)> {
    let share = rng.unit();
    let mut order = Vec::new();
    for op in history {
        if rng.chance(share) {
            order.push((op.index, rng.below(100) as i64 - 50));
        }
    }
    order
}

#[test]
fn an_order_from_outside_changes_no_verdict() {
    let (mut valid, mut invalid) = (0, 0);
    for seed in 0..histories(100) {
        let mut rng = Rng::from_seed(seed ^ 0x0d3);
        let shape = any_shape(seed, 20, 200, &mut rng);
        let history = Arc::new(simulated(&shape, &mut rng));
        let model = *rng.pick(&AxiomaticModel::SEARCHED);
        let (alone, _) = certified(&history, model);
        let order = any_order(&history, &mut rng);
        let (with_order, certificate) = certify_with_order(&history, model, order);
        assert_eq!(
            alone.valid, with_order.valid,
            "seed {seed} {shape} {model:?}"
        );
        let certificate = certificate.unwrap();
        assert_eq!(certificate.is_valid(), with_order.valid == Validity::Valid);
        assert_eq!(verify(&history, &certificate), Ok(()), "seed {seed}");
        match with_order.valid {
            Validity::Valid => valid += 1,
            _ => invalid += 1,
        }
    }
    assert!(
        valid > least(10) && invalid > least(10),
        "{valid} {invalid}"
    );
}

#[test]
fn the_right_order_leaves_nothing_to_search() {
    let mut settled = 0;
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let shape = DecisionShape {
            store: Store::Serial,
            kind: Kind::Blind,
            transactions: 200,
            clients: 20,
            keys: 3,
            events_max: 4,
        };
        let history = Arc::new(simulated(&shape, &mut rng));
        let model = AxiomaticModel::SnapshotIsolation;
        let (alone, certificate) = certified(&history, model);
        let Some(Proof::Snapshots(places)) = certificate.map(|one| one.proof) else {
            panic!("seed {seed}");
        };
        let completion = |place: u64| history.completion(place as usize).map(|op| op.index);
        let order = places.iter().enumerate();
        let mut numbers: BTreeMap<u64, i64> = BTreeMap::new();
        for (number, &place) in order {
            numbers.extend(completion(place).map(|index| (index, number as i64)));
        }
        let (with_order, _) = certify_with_order(&history, model, numbers.into_iter().collect());
        assert_eq!(with_order.valid, Validity::Valid);
        assert_eq!(with_order.details.to_json()["unsettled"], 0, "seed {seed}");
        settled += u32::from(alone.details.to_json()["unsettled"] != 0);
    }
    assert!(settled > 10, "{settled}");
}

impl std::fmt::Display for DecisionShape {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DecisionShape {
            store,
            kind,
            transactions,
            clients,
            keys,
            events_max,
        } = self;
        write!(
            out,
            "{store:?} {kind:?} {transactions} by {clients} on {keys}, ≤ {events_max}"
        )
    }
}

/// A certificate that was tampered with does not hold.
fn refuse_tampered(history: &History, mut certificate: Certificate, rng: &mut Rng) {
    match &mut certificate.proof {
        Proof::Serial(order) | Proof::Snapshots(order) | Proof::Visible(order) => {
            let at = rng.index(order.len());
            order.remove(at);
        }
        // Nothing of the least core can be left out.
        Proof::Core(core) => {
            let at = rng.index(core.len());
            core.remove(at);
        }
        _ => return,
    }
    assert!(verify(history, &certificate).is_err(), "{certificate:?}");
}
