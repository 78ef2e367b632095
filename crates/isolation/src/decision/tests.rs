//! Decisions against all orders of commits and of versions.

use super::OrderRank;
use super::constraints::Constraints;
use super::guess_and_search::{OrderDecision, OrderWitness, SearchEffort, decide};
use super::order_model::{Axiom, OrderModel, RespectedOrder};
use super::unsat_core::shrink;
use seatrial_cycles::{NONE, Txn};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// A transaction as the twin sees it: (key, writer) of its reads, the keys that it writes.
#[derive(Clone, Debug, Default)]
struct Simple {
    session: u32,
    time: (u32, u32),
    is_complete: bool,
    reads: Vec<(u32, Option<u32>)>,
    writes: Vec<u32>,
}

const PROMISES: [OrderModel; 12] = {
    use Axiom::{Parallel, Prefix, Serializable, Snapshot};
    use RespectedOrder::{Nothing, Sessions, Time};
    const fn of(axiom: Axiom, follows: RespectedOrder) -> OrderModel {
        OrderModel { axiom, follows }
    }
    [
        of(Serializable, Nothing),
        of(Serializable, Sessions),
        of(Serializable, Time),
        of(Snapshot, Nothing),
        of(Snapshot, Sessions),
        of(Snapshot, Time),
        of(Prefix, Nothing),
        of(Prefix, Sessions),
        of(Prefix, Time),
        of(Parallel, Nothing),
        of(Parallel, Sessions),
        of(Parallel, Time),
    ]
};

/// Up to `transactions` transactions on a few keys: reads and writes at random, or as a store of some kind would have it.
fn random(rng: &mut Rng, transactions: usize, keys: u64, sessions: u64) -> Vec<Simple> {
    let count = 3 + rng.index(transactions - 2);
    let mut all: Vec<Simple> = Vec::new();
    let mut clock = vec![0_u32; sessions as usize];
    let events_max = 2 + rng.below(4);
    // How far back a read looks, at most; and how often it looks anywhere.
    let (lag, wild) = (rng.index(4), if rng.chance(0.5) { 0.05 } else { 0.5 });
    let has_updates = rng.chance(0.3);
    for number in 0..count {
        let session = rng.below(sessions);
        let begun = (clock[session as usize] + 1).max(2 * number as u32 + rng.below(3) as u32);
        let begun = begun + u32::from(begun <= clock[session as usize]);
        let ended = begun + 1 + rng.below(8) as u32;
        clock[session as usize] = ended;
        let mut one = Simple {
            session: session as u32,
            time: (begun, ended),
            is_complete: true,
            ..Simple::default()
        };
        if rng.chance(0.05) {
            one.is_complete = false;
            one.time.1 = NONE;
        }
        for _ in 0..=rng.below(events_max) {
            let key = rng.below(keys) as u32;
            if !has_updates && rng.chance(0.5) {
                if !one.writes.contains(&key) {
                    one.writes.push(key);
                }
                continue;
            }
            let before = (0..all.len()).filter(|&other| all[other].writes.contains(&key));
            let mut writers: Vec<Option<u32>> = before.map(|other| Some(other as u32)).collect();
            writers.insert(0, None);
            let writer = if rng.chance(wild) {
                *rng.pick(&writers)
            } else {
                writers[writers.len() - 1 - rng.index(writers.len().min(lag + 1))]
            };
            let known = one.reads.iter().any(|&(other, _)| other == key);
            if (!known || rng.chance(0.02)) && !one.writes.contains(&key) {
                one.reads.push((key, writer));
            }
            if has_updates && rng.chance(0.6) && !one.writes.contains(&key) {
                one.writes.push(key);
            }
        }
        all.push(one);
    }
    look_ahead(&mut all, rng);
    numbered(&all)
}

/// A contended history: blind writes and reads of one or two keys by many clients at once, as a serial store or one with
/// old snapshots would have it; some outcomes are unknown, and now and then a read is wrong. Nearly everything overlaps,
/// so clients' times say little about the order.
fn contended(rng: &mut Rng, transactions: usize, keys: u64) -> Vec<Simple> {
    let count = 6 + rng.index(transactions - 5);
    let (lag, spread) = (rng.index(3), 1 + rng.below(20));
    let wrong = if rng.chance(0.5) { 0.0 } else { 0.4 };
    let mut all: Vec<Simple> = Vec::new();
    let mut last = [None; 2];
    let mut history = vec![last];
    for number in 0..count {
        let instant = 40 * (number as u32 + 1);
        let before = rng.below(40 * spread).min(u64::from(instant) - 1) as u32;
        let mut one = Simple {
            session: number as u32,
            time: (
                instant - before,
                instant + 1 + rng.below(40 * spread) as u32,
            ),
            is_complete: true,
            ..Simple::default()
        };
        if rng.chance(0.15) {
            one.is_complete = false;
            one.time.1 = NONE;
        }
        let view = history[history.len() - 1 - rng.index(lag + 1).min(number)];
        for key in 0..keys as u32 {
            if rng.chance(0.5) {
                let writer = if rng.chance(wrong) {
                    let writes = |&other: &usize| all[other].writes.contains(&key);
                    (0..number).rfind(writes).map(|other| other as u32)
                } else {
                    view[key as usize]
                };
                one.reads.push((key, writer));
            }
            if rng.chance(0.6) {
                one.writes.push(key);
                last[key as usize] = Some(number as u32);
            }
        }
        history.push(last);
        all.push(one);
    }
    numbered(&all)
}

/// Now and then a read of what was written later in the list.
fn look_ahead(all: &mut [Simple], rng: &mut Rng) {
    if rng.chance(0.3) {
        let (reader, writer) = (rng.index(all.len()), rng.index(all.len()));
        if reader != writer && !all[writer].writes.is_empty() {
            let key = all[writer].writes[0];
            let own = &all[reader];
            if !own.writes.contains(&key) && own.reads.iter().all(|read| read.0 != key) {
                all[reader].reads.push((key, Some(writer as u32)));
            }
        }
    }
}

/// The same, numbered in the order of invocations.
fn numbered(all: &[Simple]) -> Vec<Simple> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&number| (all[number].time.0, number));
    let mut names = vec![0; all.len()];
    for (place, &number) in order.iter().enumerate() {
        names[number] = place as u32;
    }
    let renamed = order.iter().map(|&number| {
        let mut one = all[number].clone();
        for read in &mut one.reads {
            read.1 = read.1.map(|writer| names[writer as usize]);
        }
        one
    });
    renamed.collect()
}

fn constraints(all: &[Simple], keys: u32, has_times: bool) -> Constraints {
    let mut constraints = Constraints {
        keys,
        version_keys: (0..keys).collect(),
        writers: vec![None; keys as usize],
        ..Constraints::default()
    };
    let mut versions = BTreeMap::new();
    for (number, one) in all.iter().enumerate() {
        constraints.sessions.push(one.session);
        constraints
            .times
            .push(if has_times { one.time } else { (NONE, NONE) });
        constraints.completed.push(one.is_complete);
        for &key in &one.writes {
            let version = constraints.version_keys.len() as u32;
            versions.insert((key, number as u32), version);
            constraints.version_keys.push(key);
            constraints.writers.push(Some(Txn::new(number as u32)));
            constraints.writes.push(version);
        }
        constraints.writes.end_row();
    }
    for one in all {
        let mut reads: Vec<u32> = one
            .reads
            .iter()
            .map(|&(key, writer)| writer.map_or(key, |writer| versions[&(key, writer)]))
            .collect();
        reads.dedup();
        for version in reads {
            constraints.reads.push(version);
        }
        constraints.reads.end_row();
    }
    constraints
}

/// Who certainly comes before whom: session order and real time as the promise says, and who was read.
fn before(all: &[Simple], follows: RespectedOrder) -> Vec<u32> {
    let mut before = vec![0_u32; all.len()];
    for (number, one) in all.iter().enumerate() {
        for (other, earlier) in all.iter().enumerate() {
            let session = other < number && earlier.session == one.session && earlier.is_complete;
            let time = earlier.time.1 != NONE && earlier.time.1 < one.time.0;
            let read = one.reads.iter().any(|read| read.1 == Some(other as u32));
            let related = match follows {
                RespectedOrder::Nothing => false,
                RespectedOrder::Sessions => session,
                RespectedOrder::Time => session || time,
            };
            if related || read {
                before[number] |= 1 << other;
            }
        }
    }
    before
}

/// Is there an order of commits that keeps the axioms of Biswas and Enea (OOPSLA 2019, figure 2) for serializability, snapshot
/// isolation or prefix consistency? Places transactions one after the other; an axiom about the last one speaks only of
/// those before it.
fn some_commits(all: &[Simple], before: &[u32], axiom: Axiom, placed: &mut Vec<usize>) -> bool {
    if placed.len() == all.len() {
        return true;
    }
    let mask: u32 = placed.iter().map(|&number| 1 << number).sum();
    for number in 0..all.len() {
        if mask >> number & 1 == 1 || before[number] & !mask != 0 {
            continue;
        }
        if keeps(all, before, axiom, placed, number) {
            placed.push(number);
            if some_commits(all, before, axiom, placed) {
                return true;
            }
            placed.pop();
        }
    }
    false
}

fn keeps(all: &[Simple], before: &[u32], axiom: Axiom, placed: &[usize], number: usize) -> bool {
    // The last transaction in the order that this one must see, with all before it.
    let is_seen = |&other: &usize| before[number] >> other & 1 == 1;
    let conflicts = |&other: &usize| {
        let mut writes = all[other].writes.iter();
        writes.any(|key| all[number].writes.contains(key))
    };
    let limit = match axiom {
        Axiom::Serializable => placed.len(),
        Axiom::Prefix => placed
            .iter()
            .rposition(is_seen)
            .map_or(0, |place| place + 1),
        _ => {
            let last = placed
                .iter()
                .rposition(|other| is_seen(other) || conflicts(other));
            last.map_or(0, |place| place + 1)
        }
    };
    all[number].reads.iter().all(|&(key, writer)| {
        let mut writers = placed[..limit]
            .iter()
            .filter(|&&other| all[other].writes.contains(&key));
        writers.next_back().copied() == writer.map(|writer| writer as usize)
    })
}

/// Is there an order of versions such that no transaction sees an overwrite of what it read? Cerone's axioms of parallel
/// snapshot isolation (CONCUR 2015): what is seen is closed (TransVis) and has the session order, of two writers of a key
/// one sees the other (NoConflict), and a read sees the last of what it sees (Ext). Whoever sees more than it may does so
/// however the rest is ordered.
fn some_versions(
    all: &[Simple],
    key: u32,
    keys: u32,
    sees: &[u32],
    placed: &mut Vec<usize>,
) -> bool {
    if !ends_well(all, sees) {
        return false;
    }
    if key == keys {
        return true;
    }
    let writes = |one: &usize| all[*one].writes.contains(&key) && !placed.contains(one);
    let left: Vec<usize> = (0..all.len()).filter(writes).collect();
    if left.is_empty() {
        return some_versions(all, key + 1, keys, sees, &mut Vec::new());
    }
    left.into_iter().any(|writer| {
        let mut sees = sees.to_vec();
        if let Some(&last) = placed.last() {
            sees[writer] |= 1 << last;
        }
        placed.push(writer);
        let is_possible = some_versions(all, key, keys, &sees, placed);
        placed.pop();
        is_possible
    })
}

fn ends_well(all: &[Simple], direct: &[u32]) -> bool {
    let mut sees = direct.to_vec();
    for middle in 0..sees.len() {
        for one in 0..sees.len() {
            if sees[one] >> middle & 1 == 1 {
                sees[one] |= sees[middle];
            }
        }
    }
    if (0..sees.len()).any(|one| sees[one] >> one & 1 == 1) {
        return false;
    }
    all.iter().enumerate().all(|(number, one)| {
        one.reads.iter().all(|&(key, writer)| {
            let later = |other: usize| {
                sees[number] >> other & 1 == 1
                    && all[other].writes.contains(&key)
                    && writer.is_none_or(|writer| sees[other] >> writer & 1 == 1)
            };
            !(0..all.len()).any(later)
        })
    })
}

fn twin(all: &[Simple], keys: u32, model: OrderModel) -> bool {
    let before = before(all, model.follows);
    match model.axiom {
        Axiom::Parallel => some_versions(all, 0, keys, &before, &mut Vec::new()),
        axiom => some_commits(all, &before, axiom, &mut Vec::new()),
    }
}

/// Does the order explain all? Its transactions are carried out one after another.
fn explains(all: &[Simple], model: OrderModel, witness: &OrderWitness) -> bool {
    let before = before(all, model.follows);
    let (order, is_double) = match witness {
        OrderWitness::Serial(order) => (order, false),
        OrderWitness::Snapshots(order) => (order, true),
        OrderWitness::Visible(order) => {
            let place = |one: usize| order.iter().position(|&other| other as usize == one);
            let mut sees = before.clone();
            for (number, one) in all.iter().enumerate() {
                for (other, earlier) in all.iter().enumerate() {
                    let shared = one.writes.iter().any(|key| earlier.writes.contains(key));
                    if shared && place(other) < place(number) {
                        sees[number] |= 1 << other;
                    }
                }
            }
            return order.len() == all.len() && ends_well(all, &sees);
        }
    };
    let mut state: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut begun, mut done) = (0_u32, 0_u32);
    let mut snapshots = vec![BTreeMap::new(); all.len()];
    for &number in order {
        let (index, one) = (number as usize, &all[number as usize]);
        let is_begin = begun >> number & 1 == 0;
        if is_begin {
            begun |= 1 << number;
            if before[index] & !done != 0 {
                return false;
            }
            if one
                .reads
                .iter()
                .any(|(key, writer)| state.get(key) != writer.as_ref())
            {
                return false;
            }
            snapshots[index] = state.clone();
        }
        if !is_double || !is_begin {
            let clash = |key| state.get(key) != snapshots[index].get(key);
            if model.axiom != Axiom::Prefix && one.writes.iter().any(clash) {
                return false;
            }
            done |= 1 << number;
            state.extend(one.writes.iter().map(|&key| (key, number)));
        }
    }
    done.count_ones() as usize == all.len()
}

#[test]
fn agrees_with_all_orders_on_small_histories() {
    let (mut holds, mut helped) = ([0; PROMISES.len()], 0);
    let count = seatrial_farm::histories(3_000);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed);
        let keys = 1 + rng.below(3);
        let sessions = 1 + rng.below(4);
        let all = random(&mut rng, 8, keys, sessions);
        let has_times = rng.chance(0.7);
        let mut constraints = constraints(&all, keys as u32, has_times);
        if rng.chance(0.5) {
            constraints.ranks = any_ranks(all.len(), &mut rng);
        }
        for (number, model) in PROMISES.into_iter().enumerate() {
            if model.follows == RespectedOrder::Time && !has_times {
                continue;
            }
            if let Some((witness, effort)) = check(&all, &constraints, model, seed) {
                holds[number] += 1;
                if effort.unsettled > 0 && model.axiom != Axiom::Parallel {
                    helped += 1;
                    settles_on_request(&constraints, model, &witness, seed);
                }
            }
        }
    }
    assert!(helped > count / 10, "{helped}");
    for (holds, model) in holds.into_iter().zip(PROMISES) {
        assert!(
            holds > count / 20 && holds < count - count / 40,
            "{model:?}: {holds} of {count}"
        );
    }
}

#[test]
fn agrees_with_all_orders_on_contended_histories() {
    let mut holds = [0; PROMISES.len()];
    let count = seatrial_farm::histories(1_000);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed);
        let keys = 1 + rng.below(2);
        let all = contended(&mut rng, 9, keys);
        let constraints = constraints(&all, keys as u32, true);
        for (holds, model) in holds.iter_mut().zip(PROMISES) {
            *holds += u64::from(check(&all, &constraints, model, seed).is_some());
        }
    }
    for (holds, model) in holds.into_iter().zip(PROMISES) {
        assert!(
            holds > count / 20 && holds < count - count / 100,
            "{model:?}: {holds} of {count}"
        );
    }
}

/// Compares a decision with that of the twin; the witness if the promise is kept.
fn check(
    all: &[Simple],
    constraints: &Constraints,
    model: OrderModel,
    seed: u64,
) -> Option<(OrderWitness, SearchEffort)> {
    let mut effort = SearchEffort::default();
    let decision = decide(constraints, model, u64::MAX, &mut effort);
    let expected = twin(all, constraints.keys, model);
    match decision {
        OrderDecision::Holds(witness) => {
            assert!(expected, "seed {seed} {model:?}: {all:#?}");
            assert!(
                explains(all, model, &witness),
                "seed {seed} {model:?} {witness:?}"
            );
            Some((witness, effort))
        }
        OrderDecision::Fails(found) => {
            assert!(!expected, "seed {seed} {model:?}: {all:#?}");
            let core = shrink(constraints, model, found);
            check_core(all, constraints.keys, model, &core.transactions, seed);
            assert!(core.is_least);
            None
        }
        OrderDecision::Open => panic!("seed {seed}: never stopped"),
    }
}

/// Places in an order that may be any, of any of the transactions.
fn any_ranks(count: usize, rng: &mut Rng) -> Vec<Option<OrderRank>> {
    let share = rng.unit();
    let ranks = (0..count).map(|_| {
        let rank = rng.below(count as u64) as u32;
        rng.chance(share).then(|| OrderRank::new(rank))
    });
    ranks.collect()
}

/// Whoever tells the order that explains all leaves nothing to be searched for.
fn settles_on_request(
    constraints: &Constraints,
    model: OrderModel,
    witness: &OrderWitness,
    seed: u64,
) {
    let (OrderWitness::Serial(order)
    | OrderWitness::Snapshots(order)
    | OrderWitness::Visible(order)) = witness;
    let mut ranked = constraints.clone();
    ranked.ranks = vec![None; constraints.len() as usize];
    // The last place is that of the commit.
    for (place, &number) in order.iter().enumerate() {
        ranked.ranks[number as usize] = Some(OrderRank::new(place as u32));
    }
    let mut effort = SearchEffort::default();
    let decision = decide(&ranked, model, u64::MAX, &mut effort);
    assert!(
        matches!(decision, OrderDecision::Holds(_)) && effort.unsettled == 0,
        "seed {seed} {model:?}: {decision:?} {effort:?}"
    );
}

/// Cannot these be explained, and all but any one of them?
fn check_core(all: &[Simple], keys: u32, model: OrderModel, core: &[u32], seed: u64) {
    let only = |left: &[u32]| -> Vec<Simple> {
        let name = |number: u32| left.iter().position(|&one| one == number);
        let restricted = left.iter().map(|&number| {
            let mut one = all[number as usize].clone();
            one.reads
                .retain(|read| read.1.is_none_or(|writer| name(writer).is_some()));
            for read in &mut one.reads {
                read.1 = read.1.and_then(name).map(|writer| writer as u32);
            }
            one
        });
        restricted.collect()
    };
    assert!(
        !twin(&only(core), keys, model),
        "seed {seed} {model:?}: {core:?} of {all:#?}"
    );
    for number in core {
        let rest: Vec<u32> = core.iter().copied().filter(|one| one != number).collect();
        assert!(
            twin(&only(&rest), keys, model),
            "seed {seed} {model:?}: {core:?} needs no {number}"
        );
    }
}
