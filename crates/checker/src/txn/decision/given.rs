//! Constraints of transactions on keys whose versions have a known order as far as they were read.

use super::facts::Facts;
use super::judge::{self, Decision, Effort, Witness};
use super::promise::Promise;
use super::{core, lists::Lists};
use crate::txn::dense::Map;
use crate::txn::transactions::NONE;

/// One transaction, for [`decide_given`].
#[derive(Clone, Debug)]
pub(in crate::txn) struct Given {
    /// The session that ran it, as a number.
    pub(in crate::txn) session: u32,
    /// Positions of its invocation and of its completion; [`NONE`] where that is not known.
    pub(in crate::txn) time: (u32, u32),
    /// Did it succeed?
    pub(in crate::txn) is_completed: bool,
    /// Keys that it writes, each once.
    pub(in crate::txn) writes: Vec<u32>,
    /// Keys whose state it sees, and the transaction whose write that is ([`NONE`]: the initial state). A write that is known to
    /// follow another one directly is a write by a transaction that sees it.
    pub(in crate::txn) reads: Vec<(u32, u32)>,
}

/// What was decided of given transactions.
#[derive(Debug)]
pub(in crate::txn) enum Decided {
    /// This order explains all.
    Holds(Witness),
    /// These cannot be explained together: their numbers, sorted.
    Fails(Vec<u32>),
    /// The search was stopped at its bound.
    Open,
}

/// Decides whether an order explains these transactions, which are numbered in the order of their invocations, on so many keys.
/// What is unwritten is the order of writes that see no other: exactly what the search has to find.
pub(in crate::txn) fn decide_given(
    given: &[Given],
    keys: u32,
    promise: Promise,
    steps_max: u64,
) -> Decided {
    let facts = facts(given, keys);
    match judge::decide(&facts, promise, steps_max, &mut Effort::default()) {
        Decision::Open => Decided::Open,
        Decision::Holds(witness) => Decided::Holds(witness),
        Decision::Fails(found) => Decided::Fails(core::shrink(&facts, promise, found).transactions),
    }
}

fn facts(given: &[Given], keys: u32) -> Facts {
    let mut writers: Vec<(u32, u32)> = Vec::new();
    for (one, number) in given.iter().zip(0..) {
        writers.extend(one.writes.iter().map(|&key| (key, number)));
    }
    // Versions of a key stand side by side, in the order of their writers.
    writers.sort_unstable();
    let mut facts = Facts {
        keys,
        version_keys: (0..keys).collect(),
        writers: vec![NONE; keys as usize],
        ..Facts::default()
    };
    let mut versions: Map<(u32, u32), u32> = Map::default();
    for (key, number) in writers {
        let version = facts.version_keys.len() as u32;
        let before = versions.insert((key, number), version);
        assert!(before.is_none(), "a transaction writes a key once");
        facts.version_keys.push(key);
        facts.writers.push(number);
    }
    for (one, number) in given.iter().zip(0..) {
        facts.sessions.push(one.session);
        facts.times.push(one.time);
        facts.completed.push(one.is_completed);
        for &key in &one.writes {
            facts.writes.push(versions[&(key, number)]);
        }
        facts.writes.end();
        push_reads(&mut facts.reads, one, &versions);
    }
    facts
}

fn push_reads(reads: &mut Lists, one: &Given, versions: &Map<(u32, u32), u32>) {
    for &(key, writer) in &one.reads {
        reads.push(match writer {
            NONE => key,
            writer => versions[&(key, writer)],
        });
    }
    reads.end();
}
