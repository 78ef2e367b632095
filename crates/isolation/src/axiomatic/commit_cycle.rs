//! The shortest cycle of a component, as a witness.

use super::session_program::{ReadSource, SessionProgram};
use super::{AxiomaticModel, Predecessors, infer};
use seatrial_cycles::{Version, dense_id};

/// Number of components of which a cycle is reported.
pub(super) const CYCLES_MAX: usize = 64;
/// Edges that are looked at for the shortest cycle; past that, the shortest one so far is taken.
const STEPS_MAX: u64 = 50_000_000;

dense_id! {
    /// A strongly connected component, numbered as [`cycles`] gets them.
    ComponentId
}

/// Why one transaction commits before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeReason {
    /// They are in one session, in this order.
    Session,
    /// The later one read this version, which the earlier one wrote.
    Read { version: Version },
    /// `reader` read this key from the later one, though it had seen the earlier one, which writes the key as well.
    Forced { reader: u32, key: u32 },
}

/// One transaction commits before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CommitEdge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) why: EdgeReason,
}

/// A short cycle of each of the first components; the shortest if the search finishes within its bound.
pub(super) fn cycles(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    components: &[Vec<u32>],
) -> Vec<Vec<CommitEdge>> {
    let components = &components[..components.len().min(CYCLES_MAX)];
    if components.is_empty() {
        return Vec::new();
    }
    let edges = inside(program, model, components);
    let mut search = CycleFinder::new(program.columns.len(), &edges);
    let cycles = components.iter().map(|members| search.shortest(members));
    cycles.collect()
}

/// The edges inside components, sorted.
fn inside(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    components: &[Vec<u32>],
) -> Vec<CommitEdge> {
    // By transaction: its component; `None` if it is in none of these.
    let mut component: Vec<Option<ComponentId>> = vec![None; program.columns.len()];
    for (id, members) in ComponentId::all(components.len()).zip(components) {
        for &member in members {
            let before = component[member as usize].replace(id);
            debug_assert!(before.is_none(), "a transaction is in two components");
        }
    }
    let is_inside = |from: u32, to: u32| {
        let id = component[from as usize];
        id.is_some() && id == component[to as usize]
    };
    let mut edges = Vec::new();
    for &to in components.iter().flatten() {
        if let Some(from) = program.before(to).filter(|&from| is_inside(from, to)) {
            let why = EdgeReason::Session;
            edges.push(CommitEdge { from, to, why });
        }
        let events = program.columns.events(to).iter();
        for &read in events.filter(|event| event.is_external_read()) {
            let source = program.source(to, read).and_then(ReadSource::transaction);
            if let Some(from) = source.filter(|&from| is_inside(from, to)) {
                let version = read.version();
                let why = EdgeReason::Read { version };
                edges.push(CommitEdge { from, to, why });
            }
        }
    }
    let known = if model.needs_order() {
        Predecessors::new(program, &mut []).order(program)
    } else {
        None
    };
    infer(program, model, known.as_deref(), &mut |it| {
        let after = it.after.transaction();
        if let Some(to) = after.filter(|&to| is_inside(it.before, to)) {
            let (reader, key) = (it.reader, it.key);
            edges.push(CommitEdge {
                from: it.before,
                to,
                why: EdgeReason::Forced { reader, key },
            });
        }
    });
    edges.sort_unstable();
    // Reasons are sorted by simplicity; of several for one pair the simplest is enough.
    edges.dedup_by_key(|edge| (edge.from, edge.to));
    assert!(
        edges.iter().all(|edge| edge.from != edge.to),
        "a transaction commits before itself"
    );
    edges
}

/// Breadth-first search for short cycles.
struct CycleFinder<'a> {
    /// Sorted by source, so the edges of a node are found by binary search.
    edges: &'a [CommitEdge],
    /// By transaction: the last search that reached it, and the index of the edge.
    reached: Vec<(u32, u32)>,
    searches: u32,
    steps: u64,
}

impl<'a> CycleFinder<'a> {
    fn new(transactions: usize, edges: &'a [CommitEdge]) -> CycleFinder<'a> {
        CycleFinder {
            edges,
            reached: vec![(0, 0); transactions],
            searches: 0,
            steps: 0,
        }
    }

    fn from(&self, transaction: u32) -> std::ops::Range<usize> {
        let start = self.edges.partition_point(|edge| edge.from < transaction);
        let rest = &self.edges[start..];
        start..start + rest.partition_point(|edge| edge.from == transaction)
    }

    /// The shortest cycle through one of `members`; of equally short ones the first.
    fn shortest(&mut self, members: &[u32]) -> Vec<CommitEdge> {
        let mut best = Vec::new();
        for &root in members {
            if best.len() == 2 || (!best.is_empty() && self.steps > STEPS_MAX) {
                break;
            }
            let limit = if best.is_empty() {
                usize::MAX
            } else {
                best.len() - 1
            };
            if let Some(cycle) = self.through(root, limit) {
                best = cycle;
            }
        }
        best
    }

    /// The shortest cycle through `root` with at most `limit` edges.
    fn through(&mut self, root: u32, limit: usize) -> Option<Vec<CommitEdge>> {
        self.searches += 1;
        let mut layer = vec![root];
        for _ in 0..limit {
            let mut next = Vec::new();
            for &transaction in &layer {
                for number in self.from(transaction) {
                    self.steps += 1;
                    let to = self.edges[number].to;
                    let reached = &mut self.reached[to as usize];
                    if reached.0 == self.searches {
                        continue;
                    }
                    *reached = (self.searches, number as u32);
                    if to == root {
                        return Some(self.back(root));
                    }
                    next.push(to);
                }
            }
            if next.is_empty() {
                return None;
            }
            layer = next;
        }
        None
    }

    /// The cycle through `root` that the search reached.
    fn back(&self, root: u32) -> Vec<CommitEdge> {
        let mut cycle = Vec::new();
        let mut at = root;
        loop {
            let edge = self.edges[self.reached[at as usize].1 as usize];
            cycle.push(edge);
            at = edge.from;
            if at == root {
                break;
            }
        }
        cycle.reverse();
        cycle
    }
}
