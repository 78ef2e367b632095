//! The search for cycles that a level forbids.

mod closing_edges;
mod component_sketch;
mod nonadjacent;
mod shortest_path;

pub use component_sketch::{ComponentSketch, SKETCHES_MAX};
pub use shortest_path::Cycle;

use crate::anomaly::{CycleClass, CycleKind, CycleVariant};
use crate::components::components;
use crate::graph::{DependencyGraph, PROCESS, REALTIME, RW, WR, WW};
use shortest_path::{ShortestPaths, direct_edges};
use std::collections::BTreeSet;

/// A limit of what one check may cost beyond its linear part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchBound {
    /// Edges that the search for cycles with one anti-dependency may look at, the only part of the search that is not
    /// linear. Past it the search reports what it has, and that it is incomplete.
    pub search_steps_max: u64,
}

impl Default for SearchBound {
    /// 10^9 steps: a few seconds.
    fn default() -> SearchBound {
        SearchBound {
            search_steps_max: 1_000_000_000,
        }
    }
}

/// Edges that may be looked at to make one cycle shorter: 500,000 take about a millisecond.
const POLISH_STEPS_MAX: u64 = 500_000;
/// Anti-dependencies of one component that are tried; a component with more is reported as not searched completely.
const ROOTS_MAX: usize = 4_000_000;

/// The result of a search.
pub struct CycleReport {
    /// For each component and each kind that was found in it, one of the shortest cycles.
    pub cycles: Vec<(CycleKind, Cycle)>,
    /// Number of components of two transactions or more.
    pub components: usize,
    /// Number of transactions of the largest component.
    pub largest: usize,
    /// Was the search for every wanted kind finished?
    pub complete: bool,
    /// The largest components, for pictures.
    pub sketches: Vec<ComponentSketch>,
}

impl CycleReport {
    /// No cycle and no component.
    pub fn nothing() -> CycleReport {
        CycleReport {
            cycles: Vec::new(),
            components: 0,
            largest: 0,
            complete: true,
            sketches: Vec::new(),
        }
    }
}

/// The kinds of edges that cycles of these kinds consist of, as bits.
fn relevant_kinds(wanted: &BTreeSet<CycleKind>) -> u8 {
    wanted.iter().fold(0, |mask, one| mask | one.mask())
}

impl CycleKind {
    /// The kinds of edges of such cycles, as bits.
    fn mask(self) -> u8 {
        let data = match self.class {
            CycleClass::G0 => WW,
            CycleClass::G1c => WW | WR,
            _ => WW | WR | RW,
        };
        data | self.variant.mask()
    }
}

impl CycleVariant {
    fn mask(self) -> u8 {
        match self {
            CycleVariant::Plain => 0,
            CycleVariant::Process => PROCESS,
            CycleVariant::Realtime => REALTIME,
        }
    }
}

/// Finds cycles of the wanted kinds.
///
/// One pass over the whole graph finds the components; everything else happens inside them. In each component every
/// plain kind is searched for (a milder kind only apart from the worse cycles), then the variants with process order
/// and real time if no plain cycle is as bad, and of a variant only the worst kind. All limits count steps, so the same
/// graph always gives the same report.
pub fn search(
    graph: &DependencyGraph,
    wanted: &BTreeSet<CycleKind>,
    steps_max: u64,
) -> CycleReport {
    let mut search = CycleSearch {
        wanted,
        steps: 0,
        steps_max,
        report: CycleReport::nothing(),
    };
    let mut numbers = vec![None; graph.node_count()];
    for members in components(graph, relevant_kinds(wanted)) {
        let part = graph.part(&members, &mut numbers);
        search.report.components += 1;
        search.report.largest = search.report.largest.max(part.transactions as usize);
        search.component(&part, &members);
    }
    let report = search.report;
    assert!(
        report.cycles.is_empty() || report.components > 0,
        "a cycle outside of components"
    );
    assert!(report.sketches.len() <= SKETCHES_MAX);
    report
}

/// The search through all components, one after another: what it may cost, and what it found so far.
struct CycleSearch<'a> {
    wanted: &'a BTreeSet<CycleKind>,
    /// Edges looked at so far in all components.
    steps: u64,
    steps_max: u64,
    report: CycleReport,
}

impl CycleSearch<'_> {
    /// Searches one component; `names` are its nodes in the whole graph.
    fn component(&mut self, graph: &DependencyGraph, names: &[u32]) {
        let mut known: Vec<(CycleKind, Cycle)> = Vec::new();
        for variant in CycleVariant::ALL {
            let classes: Vec<_> = CycleClass::ALL
                .into_iter()
                .filter(|&class| self.wanted.contains(&CycleKind { variant, class }))
                .collect();
            let masks = classes
                .iter()
                .map(|&class| CycleKind { variant, class }.mask());
            let mask = masks.fold(0, |mask, one| mask | one);
            let mut numbers = vec![None; graph.node_count()];
            // Without some kinds of edges the component may fall into several.
            for members in components(graph, mask) {
                let part = graph.part(&members, &mut numbers);
                let inside = |cycle: &Cycle| members.binary_search(&cycle.nodes[0]).is_ok();
                let worst = known
                    .iter()
                    .filter(|(cyclic, cycle)| cyclic.variant < variant && inside(cycle))
                    .map(|(cyclic, _)| cyclic.class)
                    .min();
                let wanted = classes.iter().copied();
                let wanted = wanted.filter(|&class| worst.is_none_or(|worst| class < worst));
                for cycle in self.part(&part, variant, wanted.collect()) {
                    let cycle = cycle.renumber(&members);
                    known.push((cycle.classify(), cycle));
                }
            }
        }
        self.sketch(graph, names, &known);
        let cycles = known.into_iter();
        let cycles = cycles.map(|(cyclic, cycle)| (cyclic, cycle.renumber(names)));
        self.report.cycles.extend(cycles);
    }

    /// Keeps a sketch of the component if it is among the largest so far.
    fn sketch(&mut self, graph: &DependencyGraph, names: &[u32], known: &[(CycleKind, Cycle)]) {
        let sketches = &mut self.report.sketches;
        let size = graph.transactions as usize;
        if sketches.len() == SKETCHES_MAX && sketches.last().is_some_and(|last| last.size >= size) {
            return;
        }
        let cycles: Vec<_> = known.iter().map(|(_, cycle)| cycle).collect();
        let mut sketch = ComponentSketch::of(graph, &cycles);
        sketch.renumber(names);
        sketches.truncate(SKETCHES_MAX - 1);
        let at = sketches.partition_point(|other| other.size >= size);
        sketches.insert(at, sketch);
    }

    /// Finds the cycles of one variant in a subgraph that is strongly connected by it.
    fn part(
        &mut self,
        graph: &DependencyGraph,
        variant: CycleVariant,
        classes: Vec<CycleClass>,
    ) -> Vec<Cycle> {
        let mut cycles: Vec<Cycle> = Vec::new();
        let extra = variant.mask();
        for class in classes {
            let worse = |cycle: &Cycle| cycle.classify().class < class;
            let has_worse = cycles.iter().any(worse);
            // A worse cycle is also nonadjacent; and of a variant the worst is enough.
            if has_worse && (variant != CycleVariant::Plain || class == CycleClass::GNonadjacent) {
                continue;
            }
            let found = match class {
                CycleClass::G0 => self.connected(graph, WW | extra, None),
                CycleClass::G1c => self.connected(graph, WW | WR | extra, Some(WR)),
                CycleClass::GSingle => Vec::from_iter(self.single(graph, WW | WR | extra)),
                CycleClass::GNonadjacent => {
                    Vec::from_iter(self.nonadjacent(graph, WW | WR | extra))
                }
                CycleClass::G2Item => {
                    let mask = WW | WR | RW | extra;
                    Vec::from_iter(self.adjacent(graph, mask, &cycles))
                }
            };
            cycles.extend(found);
        }
        cycles
    }

    /// Finds one cycle over kinds in `mask`, with at least one edge of kind `with`, in each component that has one.
    fn connected(&mut self, graph: &DependencyGraph, mask: u8, with: Option<u8>) -> Vec<Cycle> {
        let mut cycles = Vec::new();
        let mut numbers = vec![None; graph.node_count()];
        for members in components(graph, mask) {
            let part = graph.part(&members, &mut numbers);
            let mut walker = ShortestPaths::new(&part);
            let roots = match with {
                Some(kind) => direct_edges(&part, kind, ROOTS_MAX),
                None => (0..part.transactions).map(|node| (node, node)).collect(),
            };
            let best = shortest(&mut walker, &roots, |walker, (from, to)| match with {
                Some(kind) => walker.around(from, to, kind, mask),
                None => walker.path(from, to, mask),
            });
            self.steps += walker.steps;
            cycles.extend(best.map(|cycle| cycle.renumber(&members)));
        }
        cycles
    }

    /// Finds a cycle with exactly one anti-dependency.
    fn single(&mut self, graph: &DependencyGraph, mask: u8) -> Option<Cycle> {
        let mut roots = direct_edges(graph, RW, ROOTS_MAX);
        self.report.complete &= roots.len() < ROOTS_MAX;
        // Where a dependency leads from and to the same transactions, a cycle does not need the anti-dependency.
        roots.retain(|&(from, to)| {
            let mut edges = graph.edges(from).map(|position| graph.edge(position));
            !edges.any(|(target, kind)| target == to && kind & mask != 0)
        });
        let steps_max = self.steps_max;
        let (closing, complete) =
            closing_edges::closing(graph, &roots, mask, &mut self.steps, steps_max);
        self.report.complete &= complete;
        let mut walker = ShortestPaths::new(graph);
        let best = shortest(&mut walker, &closing, |walker, (from, to)| {
            walker.around(from, to, RW, mask)
        });
        self.steps += walker.steps;
        best
    }

    /// Finds a cycle with anti-dependencies, none of them adjacent.
    fn nonadjacent(&mut self, graph: &DependencyGraph, mask: u8) -> Option<Cycle> {
        self.steps += 2 * graph.edge_count() as u64;
        nonadjacent::nonadjacent(graph, mask, POLISH_STEPS_MAX)
    }

    /// Finds a cycle with adjacent anti-dependencies. Without `worse` cycles in the subgraph, any cycle with an
    /// anti-dependency is one; otherwise it must have none of their transactions, or it would say nothing new.
    fn adjacent(&mut self, graph: &DependencyGraph, mask: u8, worse: &[Cycle]) -> Option<Cycle> {
        let known: BTreeSet<_> = worse.iter().flat_map(|cycle| &cycle.nodes).collect();
        let roots = direct_edges(graph, RW, ROOTS_MAX);
        let mut walker = ShortestPaths::new(graph);
        let best = shortest(&mut walker, &roots, |walker, (from, to)| {
            let cycle = walker.around(from, to, RW, mask)?;
            let class = cycle.classify().class;
            let is_news = !cycle.nodes.iter().any(|node| known.contains(node));
            let is_wanted =
                class == CycleClass::G2Item || known.is_empty() && class > CycleClass::G1c;
            (is_news && is_wanted).then_some(cycle)
        });
        self.steps += walker.steps;
        best
    }
}

/// The shortest cycle through one of `roots`, of equally short ones the first. Tries roots in order until it has looked
/// at [`POLISH_STEPS_MAX`] edges, at least one.
fn shortest(
    walker: &mut ShortestPaths<'_>,
    roots: &[(u32, u32)],
    mut around: impl FnMut(&mut ShortestPaths<'_>, (u32, u32)) -> Option<Cycle>,
) -> Option<Cycle> {
    let mut best: Option<Cycle> = None;
    let begun = walker.steps;
    for &root in roots {
        let known = best.as_ref().map_or(usize::MAX, |best| best.nodes.len());
        // No cycle is shorter than two transactions.
        if known == 2 || walker.steps - begun > POLISH_STEPS_MAX {
            break;
        }
        if let Some(cycle) = around(walker, root)
            && cycle.nodes.len() < known
        {
            best = Some(cycle);
        }
    }
    best
}

/// The transactions of the shortest cycle over kinds in `mask` through one of the first transactions, as many as a
/// limited number of steps allows.
pub fn shortest_cycle(graph: &DependencyGraph, mask: u8) -> Option<Vec<u32>> {
    let roots: Vec<_> = (0..graph.transactions).map(|node| (node, node)).collect();
    let best = shortest(
        &mut ShortestPaths::new(graph),
        &roots,
        |walker, (from, to)| walker.path(from, to, mask),
    );
    best.map(|cycle| cycle.nodes)
}

#[cfg(test)]
mod tests;
