//! The decision for given transactions on keys with partly known version orders, for checkers of lists.

use super::constraints::{Constraints, position};
use super::guess_and_search::{self, OrderDecision, OrderWitness, SearchEffort};
use super::order_model::OrderModel;
use super::unsat_core;
use seatrial_cycles::{Csr, Position, Txn};
use seatrial_history::FixedMap;

/// One transaction for [`decide_given`].
#[derive(Clone, Debug)]
pub struct GivenTransaction {
    /// The number of its session.
    pub session: u32,
    /// Positions of its invocation and of its completion, where known.
    pub time: (Option<Position>, Option<Position>),
    /// Did it succeed?
    pub is_completed: bool,
    /// Keys that it writes, each once.
    pub writes: Vec<u32>,
    /// Keys whose state it sees, with the transaction that wrote that state (`None`: the initial state). A write that is
    /// known to follow another one directly is a write by a transaction that sees it.
    pub reads: Vec<(u32, Option<Txn>)>,
}

/// The decision about given transactions.
#[derive(Debug)]
pub enum GivenDecision {
    /// This order explains all of them.
    Holds(OrderWitness),
    /// No order explains these: their numbers, sorted.
    Fails(Vec<u32>),
    /// The search reached its bound.
    Open,
}

/// Decides whether an order explains these transactions, numbered in the order of their invocations, on `keys` keys. Only
/// the order of writes that see no other write is open; that is what the search has to find.
pub fn decide_given(
    given: &[GivenTransaction],
    keys: u32,
    model: OrderModel,
    steps_max: u64,
) -> GivenDecision {
    let constraints = constraints(given, keys);
    match guess_and_search::decide(&constraints, model, steps_max, &mut SearchEffort::default()) {
        OrderDecision::Open => GivenDecision::Open,
        OrderDecision::Holds(witness) => GivenDecision::Holds(witness),
        OrderDecision::Fails(found) => {
            GivenDecision::Fails(unsat_core::shrink(&constraints, model, found).transactions)
        }
    }
}

fn constraints(given: &[GivenTransaction], keys: u32) -> Constraints {
    let mut writers: Vec<(u32, u32)> = Vec::new();
    for (one, number) in given.iter().zip(0..) {
        writers.extend(one.writes.iter().map(|&key| (key, number)));
    }
    // Versions of a key are next to one another, in the order of their writers.
    writers.sort_unstable();
    let mut constraints = Constraints {
        keys,
        version_keys: (0..keys).collect(),
        writers: vec![None; keys as usize],
        ..Constraints::default()
    };
    let mut versions: FixedMap<(u32, u32), u32> = FixedMap::default();
    for (key, number) in writers {
        let version = constraints.version_keys.len() as u32;
        let before = versions.insert((key, number), version);
        assert!(before.is_none(), "a transaction writes a key once");
        constraints.version_keys.push(key);
        constraints.writers.push(Some(Txn::new(number)));
    }
    for (one, number) in given.iter().zip(0..) {
        constraints.sessions.push(one.session);
        let (begun, ended) = one.time;
        constraints.times.push((position(begun), position(ended)));
        constraints.completed.push(one.is_completed);
        for &key in &one.writes {
            constraints.writes.push(versions[&(key, number)]);
        }
        constraints.writes.end_row();
        push_reads(&mut constraints.reads, one, &versions);
    }
    constraints
}

fn push_reads(reads: &mut Csr<u32>, one: &GivenTransaction, versions: &FixedMap<(u32, u32), u32>) {
    for &(key, writer) in &one.reads {
        reads.push(match writer {
            None => key,
            Some(writer) => versions[&(key, writer.get())],
        });
    }
    reads.end_row();
}
