//! Cycles among operations whose dependencies are known: for checkers of data types such as logs.

use crate::anomaly::Anomaly;
use crate::anomaly::{CycleClass, CycleKind, CycleVariant};
use crate::graph::{DependencyGraph, EdgeBuilder, PROCESS, WR, WW, relation};
use crate::search::SearchBound;
use crate::search::search;
use seatrial_history::{OpType, Process};
use std::collections::{BTreeMap, BTreeSet};

/// An operation that completed.
pub struct CompletedOperation {
    /// Index of its completion.
    pub index: u64,
    /// Index of its invocation.
    pub started: u64,
    /// The process that ran it.
    pub process: Process,
    /// How it ended.
    pub outcome: OpType,
}

/// A cycle of operations.
pub struct OperationCycle {
    /// The anomaly that it is.
    pub anomaly: Anomaly,
    /// From operation (index of its completion) to operation, and how the second depends on the first.
    pub steps: Vec<(u64, u64, &'static str)>,
}

/// Finds cycles of reads (`G1c` and its variants with the order of processes and with real time), and of writes alone
/// (`G0`).
///
/// `members` are sorted by completion. `reads` and `writes` are pairs of members: the first wrote what the second read,
/// or wrote just before the second. Linear in all of these.
pub fn operation_cycles(
    members: &[CompletedOperation],
    reads: &[(u32, u32)],
    writes: &[(u32, u32)],
) -> Vec<OperationCycle> {
    assert!(
        members.is_sorted_by_key(|member| member.index),
        "operations are not sorted by completion"
    );
    let mut found = Vec::new();
    // The order of processes and real time have no cycle by themselves.
    if !reads.is_empty() {
        found = read_cycles(members, reads);
    }
    if !writes.is_empty() {
        // Writes have a graph of their own: together with reads they would hide each other's cycles.
        let mut edges = EdgeBuilder::new(members.len());
        for &(from, to) in writes {
            edges.link(from, to, WW);
        }
        let of_writes = CycleKind {
            variant: CycleVariant::Plain,
            class: CycleClass::G0,
        };
        found.extend(find(members, &edges.into_graph(), &[of_writes]));
    }
    found
}

/// The cycles that contain a read.
fn read_cycles(members: &[CompletedOperation], reads: &[(u32, u32)]) -> Vec<OperationCycle> {
    let mut edges = EdgeBuilder::new(members.len());
    for &(from, to) in reads {
        edges.link(from, to, WR);
    }
    link_processes(&mut edges, members);
    // A history that is held in memory has fewer operations than fit into 32 bits.
    let position = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
    let numbered = || members.iter().zip(0_u32..);
    let begun = numbered().filter(|(member, _)| member.outcome != OpType::Fail);
    let begun = begun.map(|(member, number)| (position(member.started), number));
    let mut begun: Vec<(u32, u32)> = begun.collect();
    begun.sort_unstable();
    let ended = numbered().filter(|(member, _)| member.outcome == OpType::Ok);
    let ended = ended.map(|(member, number)| (position(member.index), number));
    edges.link_realtime(begun.into_iter(), ended);
    let of_reads = CycleVariant::ALL.map(|variant| CycleKind {
        variant,
        class: CycleClass::G1c,
    });
    find(members, &edges.into_graph(), &of_reads)
}

/// Adds the order of each process. What failed did not take place; nothing comes after what may take place later.
fn link_processes(edges: &mut EdgeBuilder, members: &[CompletedOperation]) {
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
}

fn find(
    members: &[CompletedOperation],
    graph: &DependencyGraph,
    wanted: &[CycleKind],
) -> Vec<OperationCycle> {
    let wanted: BTreeSet<CycleKind> = wanted.iter().copied().collect();
    let report = search(graph, &wanted, SearchBound::default().search_steps_max);
    let cycles = report.cycles.into_iter();
    // The search may name a cycle by a milder kind than was asked for.
    let cycles = cycles.filter(|(kind, _)| wanted.contains(kind));
    let cycles = cycles.map(|(kind, cycle)| {
        let index = |node: u32| members[node as usize].index;
        let steps = cycle.steps();
        let steps = steps.map(|(from, to, kind)| (index(from), index(to), relation(kind)));
        OperationCycle {
            anomaly: kind.name(),
            steps: steps.collect(),
        }
    });
    cycles.collect()
}
