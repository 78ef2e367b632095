use super::*;
use crate::graph::{DependencyEdge, EdgeBuilder};
use crate::{Level, forbidden_cycles};
use seatrial_machine::Rng;

/// The kinds of all simple cycles, by trying all paths. Of several edges from one node to the next, each is tried.
/// Cycles with both process order and real time are left out: in a history the former is part of the latter.
fn all_cycles(nodes: u32, edges: &[DependencyEdge]) -> BTreeSet<CycleKind> {
    let mut found = BTreeSet::new();
    for start in 0..nodes {
        let mut path = Cycle {
            nodes: vec![start],
            edges: Vec::new(),
        };
        extend(&mut path, edges, &mut found);
    }
    found
}

fn extend(path: &mut Cycle, edges: &[DependencyEdge], found: &mut BTreeSet<CycleKind>) {
    let (first, last) = (path.nodes[0], path.nodes[path.nodes.len() - 1]);
    for &(_, to, kind) in edges.iter().filter(|&&(from, ..)| from == last) {
        path.edges.push(kind);
        if to == first
            && [PROCESS, REALTIME]
                .iter()
                .all(|kind| path.edges.contains(kind))
        {
            // Not a cycle of a real history.
        } else if to == first {
            found.insert(path.classify());
        } else if to > first && !path.nodes.contains(&to) {
            path.nodes.push(to);
            extend(path, edges, found);
            path.nodes.pop();
        }
        path.edges.pop();
    }
}

/// A few edges, most of them of kinds that occur together in a real graph.
fn random_edges(nodes: u32, rng: &mut Rng) -> Vec<DependencyEdge> {
    let count = 1 + rng.below(u64::from(nodes) * 2);
    let kinds = [
        vec![WW, WR, RW],
        vec![WR, RW, RW],
        vec![WW, WR, RW, PROCESS, REALTIME],
    ];
    let kinds = rng.pick(&kinds).clone();
    let mut node = || rng.index(nodes as usize) as u32;
    let ends: Vec<_> = (0..count).map(|_| (node(), node())).collect();
    let ends = ends.into_iter().filter(|(from, to)| from != to);
    ends.map(|(from, to)| (from, to, *rng.pick(&kinds)))
        .collect()
}

#[test]
fn finds_what_each_level_forbids_and_nothing_else() {
    let levels: Vec<_> = Level::all().collect();
    let (mut outcomes, mut helpers) = ([0; 2], 0);
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let nodes = 2 + rng.below(6) as u32;
        let mut edges = random_edges(nodes, &mut rng);
        let level = *rng.pick(&levels);
        let wanted = forbidden_cycles(level);
        let mut builder = EdgeBuilder::new(nodes as usize);
        for &(from, to, kind) in &edges {
            builder.link(from, to, kind);
        }
        if nodes > 5 && seed % 4 == 0 {
            // Many sources and targets, so that a helper is used.
            let mut some = || (0..nodes).filter(|_| rng.chance(0.85)).collect::<Vec<_>>();
            let (sources, targets) = (some(), some());
            builder.link_all(&sources, &targets, RW);
            let pairs = sources
                .iter()
                .flat_map(|&from| targets.iter().map(move |&to| (from, to)));
            edges.extend(
                pairs
                    .filter(|(from, to)| from != to)
                    .map(|(from, to)| (from, to, RW)),
            );
        }
        let graph = builder.into_graph();
        helpers += usize::from(graph.node_count() > nodes as usize);
        let found = search(&graph, &wanted, u64::MAX);
        assert!(found.complete);
        let there = all_cycles(nodes, &edges);
        let context = format!(
            "seed {seed} {level:?} {edges:?} {there:?} {:?}",
            found.cycles
        );
        let expected = there.intersection(&wanted).next().is_some();
        let mut forbidden = false;
        for (cyclic, cycle) in &found.cycles {
            assert_eq!(cycle.classify(), *cyclic, "{context}");
            forbidden |= wanted.contains(cyclic);
            assert!(cycle.nodes.len() > 1, "{context}");
            let distinct: BTreeSet<_> = cycle.nodes.iter().collect();
            assert_eq!(distinct.len(), cycle.nodes.len(), "{context}");
            for (at, &from) in cycle.nodes.iter().enumerate() {
                let to = cycle.nodes[(at + 1) % cycle.nodes.len()];
                assert!(edges.contains(&(from, to, cycle.edges[at])), "{context}");
            }
        }
        assert_eq!(forbidden, expected, "{context}");
        outcomes[usize::from(expected)] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > 2_000), "{outcomes:?}");
    assert!(helpers > 500, "{helpers}");
}

#[test]
fn finds_the_worst_plain_class_of_a_component() {
    for seed in 0..10_000 {
        let mut rng = Rng::from_seed(seed ^ 0xf00d);
        let nodes = 2 + rng.below(5) as u32;
        let edges = random_edges(nodes, &mut rng);
        let graph = DependencyGraph::from_edges(nodes, nodes, &edges);
        let found = search(
            &graph,
            &forbidden_cycles(Level::StrictSerializable),
            u64::MAX,
        );
        let there = all_cycles(nodes, &edges);
        let worst = |variant| {
            let named = move |cyclic: &&CycleKind| cyclic.variant == variant;
            let found = found
                .cycles
                .iter()
                .map(|(cyclic, _)| cyclic)
                .filter(named)
                .min();
            (found.copied(), there.iter().find(named).copied())
        };
        let (found, there) = worst(CycleVariant::Plain);
        assert_eq!(found, there, "seed {seed} {edges:?}");
    }
}

#[test]
fn helpers_stand_for_edges() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let nodes = 8_u32;
        let some = |rng: &mut Rng| {
            let share = rng.unit();
            (0..nodes).filter(|_| rng.chance(share)).collect::<Vec<_>>()
        };
        let (sources, targets) = (some(&mut rng), some(&mut rng));
        let mut edges = EdgeBuilder::new(nodes as usize);
        edges.link_all(&sources, &targets, RW);
        let graph = edges.into_graph();
        let mut direct = direct_edges(&graph, RW, usize::MAX);
        direct.sort_unstable();
        direct.dedup();
        let mut expected = Vec::new();
        for &from in &sources {
            expected.extend(targets.iter().map(|&to| (from, to)).filter(|(a, b)| a != b));
        }
        assert_eq!(direct, expected, "seed {seed} {sources:?} {targets:?}");
        // No node reaches itself over a helper alone.
        let mut walker = ShortestPaths::new(&graph);
        for node in 0..nodes {
            let own = walker.path(node, node, RW);
            assert!(
                own.is_none_or(|cycle| cycle.nodes.len() > 1),
                "seed {seed} {node}"
            );
        }
        for (from, to) in expected {
            let path = walker.path(from, to, RW).map(|path| path.nodes);
            assert_eq!(path, Some(vec![from]), "seed {seed} {from} {to}");
        }
    }
}

#[test]
fn limits_count_steps() {
    // A chain of dependencies with an anti-dependency back over each of them.
    let nodes = 2_000;
    let mut edges = Vec::new();
    for node in 0..nodes - 1 {
        edges.push((node, node + 1, WW));
        edges.push((node + 1, node, RW));
    }
    let graph = DependencyGraph::from_edges(nodes, nodes, &edges);
    let wanted = forbidden_cycles(Level::ConsistentView);
    let all = search(&graph, &wanted, u64::MAX);
    assert_eq!(all.cycles.len(), 1);
    assert_eq!(all.largest, nodes as usize);
    let few = search(&graph, &wanted, 10);
    assert!(!few.complete);
    let again = search(&graph, &wanted, 10);
    let (few, again) = (few.cycles.first(), again.cycles.first());
    assert_eq!(few.map(|found| &found.1), again.map(|found| &found.1));
}
