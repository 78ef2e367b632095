//! Cycles among operations whose dependencies are known already.

use super::Bound;
use super::anomaly::{Class, Cyclic, Variant};
use super::graph::{Edges, Graph, PROCESS, WR, WW, relation};
use super::search::search;
use crate::Anomaly;
use seatrial_history::{OpType, Process};
use std::collections::{BTreeMap, BTreeSet};

/// An operation that completed.
pub(crate) struct Member {
    /// Index of its completion.
    pub(crate) index: u64,
    /// Index of its invocation.
    pub(crate) started: u64,
    /// Who ran it.
    pub(crate) process: Process,
    /// How it ended.
    pub(crate) outcome: OpType,
}

/// A cycle of operations.
pub(crate) struct Cycle {
    /// What it is called.
    pub(crate) anomaly: Anomaly,
    /// From operation (index of its completion) to operation, and how the second depends on the first.
    pub(crate) steps: Vec<(u64, u64, &'static str)>,
}

/// Looks for cycles of reads (`G1c` and its variants: with the order of processes, with real time), and of writes alone
/// (`G0`). `members` are in the order of their completions; `reads` and `writes` are pairs of members of which the first
/// wrote what the second read, or wrote just before the second. Linear in all of these.
pub(crate) fn cycles(
    members: &[Member],
    reads: &[(u32, u32)],
    writes: &[(u32, u32)],
) -> Vec<Cycle> {
    let mut edges = Edges::new(members.len());
    for &(from, to) in reads {
        edges.link(from, to, WR);
    }
    let mut last: BTreeMap<Process, u32> = BTreeMap::new();
    for (member, number) in members.iter().zip(0..) {
        if member.outcome == OpType::Fail {
            continue;
        }
        if let Some(&before) = last.get(&member.process) {
            edges.link(before, number, PROCESS);
        }
        if member.outcome == OpType::Ok {
            last.insert(member.process, number);
        }
    }
    // A history that is held in memory has fewer operations than fit into 32 bits.
    let place = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
    let numbered = || members.iter().zip(0_u32..);
    let begun = numbered().filter(|(member, _)| member.outcome != OpType::Fail);
    let begun = begun.map(|(member, number)| (place(member.started), number));
    let mut begun: Vec<(u32, u32)> = begun.collect();
    begun.sort_unstable();
    let ended = numbered().filter(|(member, _)| member.outcome == OpType::Ok);
    let ended = ended.map(|(member, number)| (place(member.index), number));
    edges.link_realtime(begun.into_iter(), ended);
    let of_reads = Variant::ALL.map(|variant| Cyclic {
        variant,
        class: Class::G1c,
    });
    let mut found = named(members, &edges.into_graph(), &of_reads);
    let mut edges = Edges::new(members.len());
    for &(from, to) in writes {
        edges.link(from, to, WW);
    }
    let of_writes = Cyclic {
        variant: Variant::Plain,
        class: Class::G0,
    };
    found.extend(named(members, &edges.into_graph(), &[of_writes]));
    found
}

fn named(members: &[Member], graph: &Graph, wanted: &[Cyclic]) -> Vec<Cycle> {
    let wanted: BTreeSet<Cyclic> = wanted.iter().copied().collect();
    let found = search(graph, &wanted, Bound::default().search_steps_max);
    let found = found.cycles.into_iter();
    let found = found.filter(|(cyclic, _)| wanted.contains(cyclic));
    let cycles = found.map(|(cyclic, cycle)| {
        let index = |node: u32| members[node as usize].index;
        let next = cycle.nodes.iter().cycle().skip(1);
        let steps = cycle.nodes.iter().zip(next).zip(&cycle.edges);
        let steps = steps.map(|((&from, &to), &kind)| (index(from), index(to), relation(kind)));
        Cycle {
            anomaly: cyclic.name(),
            steps: steps.collect(),
        }
    });
    cycles.collect()
}
