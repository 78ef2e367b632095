//! Finding the cycles that a level forbids.

mod doubled;
mod reach;
mod sketch;
mod walk;

pub(super) use sketch::{SKETCHES_MAX, Sketch};
pub(super) use walk::Cycle;

use super::anomaly::{Class, Cyclic, Variant};
use super::components::components;
use super::graph::{Graph, PROCESS, REALTIME, RW, WR, WW};
use std::collections::BTreeSet;
use walk::{Walker, direct_edges};

/// Steps (edges looked at) that may be spent on making one witness shorter.
const POLISH_STEPS_MAX: u64 = 500_000;
/// Anti-dependencies of one component that are tried.
const ROOTS_MAX: usize = 4_000_000;

/// What the search found.
pub(super) struct Found {
    /// A shortest cycle that was found of each kind in each component.
    pub(super) cycles: Vec<(Cyclic, Cycle)>,
    /// Components of two transactions or more.
    pub(super) components: usize,
    /// Transactions of the largest component.
    pub(super) largest: usize,
    /// Was every wanted kind searched for to the end?
    pub(super) complete: bool,
    /// The largest components, for pictures.
    pub(super) sketches: Vec<Sketch>,
}

impl Found {
    /// Nothing so far.
    pub(super) fn nothing() -> Found {
        Found {
            cycles: Vec::new(),
            components: 0,
            largest: 0,
            complete: true,
            sketches: Vec::new(),
        }
    }
}

/// The edges whose cycles matter for these anomalies.
pub(super) fn relevant(wanted: &BTreeSet<Cyclic>) -> u8 {
    wanted.iter().fold(0, |mask, one| mask | one.mask())
}

impl Cyclic {
    /// The kinds of edges of such cycles.
    fn mask(self) -> u8 {
        let data = match self.class {
            Class::G0 => WW,
            Class::G1c => WW | WR,
            _ => WW | WR | RW,
        };
        data | self.variant.mask()
    }
}

impl Variant {
    fn mask(self) -> u8 {
        match self {
            Variant::Plain => 0,
            Variant::Process => PROCESS,
            Variant::Realtime => REALTIME,
        }
    }
}

/// Looks for cycles of the wanted kinds: once through the whole graph for components, everything else only inside
/// them. In each component every plain kind is looked for (milder ones apart from worse cycles), then variants as far as
/// no plain cycle is as bad, and of a variant only the worst. All limits count steps, so the same history always gives
/// the same answer.
pub(super) fn search(graph: &Graph, wanted: &BTreeSet<Cyclic>, steps_max: u64) -> Found {
    let mut search = Search {
        wanted,
        steps: 0,
        steps_max,
        found: Found::nothing(),
    };
    let mut numbers = vec![u32::MAX; graph.len()];
    for members in components(graph, relevant(wanted)) {
        let part = graph.part(&members, &mut numbers);
        search.found.components += 1;
        search.found.largest = search.found.largest.max(part.transactions as usize);
        search.component(&part, &members);
    }
    search.found
}

struct Search<'a> {
    wanted: &'a BTreeSet<Cyclic>,
    steps: u64,
    steps_max: u64,
    found: Found,
}

impl Search<'_> {
    /// Searches one component; `names` are the numbers of its nodes in the whole graph.
    fn component(&mut self, graph: &Graph, names: &[u32]) {
        let mut known: Vec<(Cyclic, Cycle)> = Vec::new();
        for variant in Variant::ALL {
            let classes: Vec<_> = Class::ALL
                .into_iter()
                .filter(|&class| self.wanted.contains(&Cyclic { variant, class }))
                .collect();
            let masks = classes
                .iter()
                .map(|&class| Cyclic { variant, class }.mask());
            let mask = masks.fold(0, |mask, one| mask | one);
            let mut numbers = vec![u32::MAX; graph.len()];
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
        self.found.cycles.extend(cycles);
    }

    /// Keeps a sketch of the component if it is among the largest so far.
    fn sketch(&mut self, graph: &Graph, names: &[u32], known: &[(Cyclic, Cycle)]) {
        let sketches = &mut self.found.sketches;
        let size = graph.transactions as usize;
        if sketches.len() == SKETCHES_MAX && sketches.last().is_some_and(|last| last.size >= size) {
            return;
        }
        let cycles: Vec<_> = known.iter().map(|(_, cycle)| cycle).collect();
        let mut sketch = Sketch::of(graph, &cycles);
        sketch.renumber(names);
        sketches.truncate(SKETCHES_MAX - 1);
        let at = sketches.partition_point(|other| other.size >= size);
        sketches.insert(at, sketch);
    }

    /// The cycles of one variant in a part that is strongly connected by it.
    fn part(&mut self, graph: &Graph, variant: Variant, classes: Vec<Class>) -> Vec<Cycle> {
        let mut cycles: Vec<Cycle> = Vec::new();
        let extra = variant.mask();
        for class in classes {
            let worse = |cycle: &Cycle| cycle.classify().class < class;
            let settled = cycles.iter().any(worse);
            if settled && (variant != Variant::Plain || class == Class::GNonadjacent) {
                continue;
            }
            let found = match class {
                Class::G0 => self.connected(graph, WW | extra, None),
                Class::G1c => self.connected(graph, WW | WR | extra, Some(WR)),
                Class::GSingle => Vec::from_iter(self.single(graph, WW | WR | extra)),
                Class::GNonadjacent => Vec::from_iter(self.nonadjacent(graph, WW | WR | extra)),
                Class::G2Item => {
                    let mask = WW | WR | RW | extra;
                    Vec::from_iter(self.anything(graph, mask, &cycles))
                }
            };
            cycles.extend(found);
        }
        cycles
    }

    /// One cycle over kinds in `mask`, with at least one edge of kind `with`, in each part that has any.
    fn connected(&mut self, graph: &Graph, mask: u8, with: Option<u8>) -> Vec<Cycle> {
        let mut cycles = Vec::new();
        let mut numbers = vec![u32::MAX; graph.len()];
        for members in components(graph, mask) {
            let part = graph.part(&members, &mut numbers);
            let mut walker = Walker::new(&part);
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

    /// A cycle with exactly one anti-dependency.
    fn single(&mut self, graph: &Graph, mask: u8) -> Option<Cycle> {
        let mut roots = direct_edges(graph, RW, ROOTS_MAX);
        self.found.complete &= roots.len() < ROOTS_MAX;
        // Where a dependency runs beside it, a cycle does not need the anti-dependency.
        roots.retain(|&(from, to)| {
            let mut edges = graph.edges(from).map(|position| graph.edge(position));
            !edges.any(|(target, kind)| target == to && kind & mask != 0)
        });
        let steps_max = self.steps_max;
        let (closing, complete) = reach::closing(graph, &roots, mask, &mut self.steps, steps_max);
        self.found.complete &= complete;
        let mut walker = Walker::new(graph);
        let best = shortest(&mut walker, &closing, |walker, (from, to)| {
            walker.around(from, to, RW, mask)
        });
        self.steps += walker.steps;
        best
    }

    /// A cycle with anti-dependencies, none of them adjacent.
    fn nonadjacent(&mut self, graph: &Graph, mask: u8) -> Option<Cycle> {
        self.steps += 2 * graph.edge_count() as u64;
        doubled::nonadjacent(graph, mask, POLISH_STEPS_MAX)
    }

    /// A cycle with adjacent anti-dependencies. When the part has no `worse` cycle, any that has an anti-dependency is
    /// one; else only one without any of their transactions is news.
    fn anything(&mut self, graph: &Graph, mask: u8, worse: &[Cycle]) -> Option<Cycle> {
        let known: BTreeSet<_> = worse.iter().flat_map(|cycle| &cycle.nodes).collect();
        let roots = direct_edges(graph, RW, ROOTS_MAX);
        let mut walker = Walker::new(graph);
        let best = shortest(&mut walker, &roots, |walker, (from, to)| {
            let cycle = walker.around(from, to, RW, mask)?;
            let class = cycle.classify().class;
            let is_news = !cycle.nodes.iter().any(|node| known.contains(node));
            let is_wanted = class == Class::G2Item || known.is_empty() && class > Class::G1c;
            (is_news && is_wanted).then_some(cycle)
        });
        self.steps += walker.steps;
        best
    }
}

/// The shortest cycle through any of the first `roots`, the first of equals; so many as a limited number of steps
/// allows, and at least one.
fn shortest(
    walker: &mut Walker<'_>,
    roots: &[(u32, u32)],
    mut around: impl FnMut(&mut Walker<'_>, (u32, u32)) -> Option<Cycle>,
) -> Option<Cycle> {
    let mut best: Option<Cycle> = None;
    let begun = walker.steps;
    for &root in roots {
        let known = best.as_ref().map_or(usize::MAX, |best| best.nodes.len());
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

/// The shortest cycle over kinds in `mask` through any of the first nodes, so many as a limited number of steps allows.
pub(super) fn shortest_cycle(graph: &Graph, mask: u8) -> Option<Vec<u32>> {
    let roots: Vec<_> = (0..graph.transactions).map(|node| (node, node)).collect();
    let best = shortest(&mut Walker::new(graph), &roots, |walker, (from, to)| {
        walker.path(from, to, mask)
    });
    best.map(|cycle| cycle.nodes)
}

#[cfg(test)]
mod tests;
