//! The anti-dependencies that close a cycle of dependencies.

use crate::components::ranks;
use crate::csr::Csr;
use crate::graph::DependencyGraph;

/// The edges (from, to) whose target reaches their source over kinds in `mask`. The second value is false if
/// `steps_max` was passed before all were tried.
///
/// 64 targets at a time are carried as bits through the components in topological order, only from the first target to
/// the last source. So the cost of a batch is the part of the history between these, which is short as a rule: a
/// dependency seldom spans a large part of a history. At worst edges times edges / 64.
pub(super) fn closing(
    graph: &DependencyGraph,
    edges: &[(u32, u32)],
    mask: u8,
    steps: &mut u64,
    steps_max: u64,
) -> (Vec<(u32, u32)>, bool) {
    let (ranks, count) = ranks(graph, mask);
    let rank = |node: u32| ranks[node as usize];
    // Only an edge that leads back in topological order can close a cycle.
    let mut backward: Vec<_> = edges.to_vec();
    backward.retain(|&(from, to)| rank(to) <= rank(from));
    backward.sort_unstable_by_key(|&(from, to)| (rank(to), to, from));
    let nodes = 0..graph.node_count() as u32;
    let by_rank = Csr::group(count as usize, nodes.map(|node| (rank(node), node)));
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
        // All bits of a component are there before its nodes are left: edges never lead to a lower rank.
        for &node in by_rank.rows_between(first, last) {
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

/// The longest prefix of `edges` (sorted by target) with at most 64 different targets, and these targets.
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
