//! Which anti-dependencies close a cycle with nothing but dependencies.

use crate::txn::components::ranks;
use crate::txn::graph::Graph;

/// Those of `edges` (from, to) whose target reaches their source over kinds in `mask`; all of them, unless the steps
/// run out after some were found or `steps_max` is passed (then the second value is false).
///
/// Sixty-four targets at a time are carried through the components in topological order, from the first target to the
/// last source only. Time is short where time order is followed: a dependency seldom spans a large part of a history.
pub(super) fn closing(
    graph: &Graph,
    edges: &[(u32, u32)],
    mask: u8,
    steps: &mut u64,
    steps_max: u64,
) -> (Vec<(u32, u32)>, bool) {
    let (ranks, count) = ranks(graph, mask);
    let rank = |node: u32| ranks[node as usize];
    // Only an edge back in topological order can close a cycle.
    let mut backward: Vec<_> = edges.to_vec();
    backward.retain(|&(from, to)| rank(to) <= rank(from));
    backward.sort_unstable_by_key(|&(from, to)| (rank(to), to, from));
    let mut by_rank: Vec<u32> = (0..graph.len() as u32).collect();
    by_rank.sort_by_key(|&node| rank(node));
    let starts: Vec<usize> = {
        let mut starts = vec![0; count as usize + 1];
        for &node in &by_rank {
            starts[rank(node) as usize + 1] += 1;
        }
        for at in 0..count as usize {
            starts[at + 1] += starts[at];
        }
        starts
    };
    let mut bits = vec![0_u64; count as usize];
    let mut found = Vec::new();
    let mut rest = &backward[..];
    while !rest.is_empty() {
        if *steps >= steps_max {
            return (found, false);
        }
        let (batch, targets) = batch(rest);
        rest = &rest[batch.len()..];
        let first = batch.iter().map(|&(_, to)| rank(to)).min().unwrap_or(0);
        let last = batch.iter().map(|&(from, _)| rank(from)).max().unwrap_or(0);
        for (bit, &target) in targets.iter().enumerate() {
            bits[rank(target) as usize] |= 1 << bit;
        }
        for &node in &by_rank[starts[first as usize]..starts[last as usize + 1]] {
            let carried = bits[rank(node) as usize];
            if carried == 0 {
                continue;
            }
            for position in graph.edges(node) {
                let (target, kind) = graph.edge(position);
                *steps += 1;
                if kind & mask != 0 {
                    bits[rank(target) as usize] |= carried;
                }
            }
        }
        found.extend(batch.iter().filter(|&&(from, to)| {
            let bit = targets.iter().position(|&target| target == to).unwrap_or(0);
            bits[rank(from) as usize] >> bit & 1 == 1
        }));
        bits.fill(0);
        *steps += u64::from(count) / 64;
    }
    (found, true)
}

/// The longest start of `edges` (sorted by target) with at most 64 targets, and those.
fn batch(edges: &[(u32, u32)]) -> (&[(u32, u32)], Vec<u32>) {
    let mut targets: Vec<u32> = Vec::new();
    for (number, &(_, to)) in edges.iter().enumerate() {
        if targets.last() != Some(&to) {
            if targets.len() == 64 {
                return (&edges[..number], targets);
            }
            targets.push(to);
        }
    }
    (edges, targets)
}
