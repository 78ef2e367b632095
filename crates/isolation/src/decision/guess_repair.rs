//! The repair of a guess, region by region.

use super::guess_and_search::WrongGuess;
use super::known_order::{GuessedOrder, KnownOrder};
use super::order_model::Axiom;
use super::region_search::{MovableBlock, RegionSearch};
use super::relation::{Relation, predecessors, successors};
use seatrial_cycles::graph::GraphNode;
use seatrial_cycles::{Csr, dense_id};

/// Largest region that is repaired, in nodes: its transitive closure takes the square of it in bits (8 MiB).
const NODES_MAX: usize = 8_192;

/// Repairs the strongly connected components of a wrong guess.
///
/// An order of blocks that is wrong about a few events has cycles, each inside a component. A *region* is a component with
/// the transactions that access the same versions, and everything on paths between these. Blocks of a key with all their
/// events in a region are consecutive in the guess, and no path leaves a region and returns to it. So regions can be put in
/// order one by one, with everything else as guessed, and as a rule no cycle is left then. A region is small, so a
/// [`RegionSearch`] searches it with a matrix of reachability.
pub(super) struct GuessRepair<'a> {
    known: &'a KnownOrder<'a>,
    miss: &'a WrongGuess,
    heads: Csr<u32>,
    /// By head of a block: its index among the blocks of its key; `None` for other versions.
    places: Vec<Option<BlockPlace>>,
    /// By head of a block: its run; `None` if it stays where it is.
    runs: Vec<Option<RunId>>,
    /// By node: its number in the current region, if it is in it.
    local: Vec<Option<GraphNode>>,
    steps: &'a mut u64,
}

dense_id! {
    /// The index of a block among those of its key.
    BlockPlace
}
dense_id! {
    /// A run of all regions.
    RunId
}
dense_id! {
    /// A component of the guess: a row of `components`.
    ComponentRow
}

/// Consecutive blocks of a key that may change places.
#[derive(Clone, Copy, Debug)]
struct BlockRun {
    key: u32,
    first: usize,
    end: usize,
}

/// The known edges, and the guessed ones of all blocks but those that may change places.
struct FixedOrder<'a> {
    known: &'a KnownOrder<'a>,
    heads: &'a Csr<u32>,
    runs: &'a [Option<RunId>],
    all: &'a [BlockRun],
}

impl Relation for FixedOrder<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        let known = self.known;
        known.emit(take);
        let mut before = |one: u32, other: u32| {
            let edges = known.before(known.blocks.tail(one), other);
            for (from, to) in edges.into_iter().flatten() {
                take(from, to);
            }
        };
        for key in 0..known.constraints.keys {
            for two in self.heads.row(key).windows(2) {
                let (one, other) = (self.runs[two[0] as usize], self.runs[two[1] as usize]);
                if one.is_none() || one != other {
                    before(two[0], two[1]);
                }
            }
        }
        for run in self.all {
            let row = self.heads.row(run.key);
            for &head in &row[run.first..run.end] {
                if let Some(before_all) = run.first.checked_sub(1) {
                    before(row[before_all], head);
                }
                if let Some(&next) = row.get(run.end) {
                    before(head, next);
                }
            }
        }
    }
}

/// The subgraph of some nodes, renumbered, with edges from the readers of blocks to the nodes that stand for them.
struct RegionGraph<'a> {
    fixed: &'a Csr<u32>,
    members: &'a [u32],
    local: &'a [Option<GraphNode>],
    gates: &'a [(u32, u32)],
}

impl Relation for RegionGraph<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for (number, &node) in self.members.iter().enumerate() {
            for &to in self.fixed.row(node) {
                if let Some(to) = self.local[to as usize] {
                    take(number as u32, to.get());
                }
            }
        }
        for &(reader, gate) in self.gates {
            take(reader, gate);
        }
    }
}

/// Finds regions that do not overlap.
struct Regions<'a> {
    known: &'a KnownOrder<'a>,
    components: &'a Csr<u32>,
    /// The known and guessed edges.
    forward: Csr<u32>,
    backward: Csr<u32>,
    /// By node: the index of its component.
    places: Vec<u32>,
    /// By node: the last component to whose core it belongs; the last whose forward search, and whose backward search,
    /// reached it.
    entered: Vec<Option<ComponentRow>>,
    before: Vec<Option<ComponentRow>>,
    behind: Vec<Option<ComponentRow>>,
    /// By node: is it in a region?
    is_taken: Vec<bool>,
}

impl<'a> Regions<'a> {
    fn new(known: &'a KnownOrder<'a>, miss: &'a WrongGuess) -> Regions<'a> {
        let nodes = known.nodes() as usize;
        let components = &miss.components;
        let mut places = vec![0; nodes];
        for row in components.row_numbers() {
            for &node in components.row(row) {
                places[node as usize] = row;
            }
        }
        let forward = successors(nodes, &GuessedOrder::new(known, &miss.heads));
        Regions {
            known,
            components,
            backward: predecessors(nodes, &forward),
            forward,
            places,
            entered: vec![None; nodes],
            before: vec![None; nodes],
            behind: vec![None; nodes],
            is_taken: vec![false; nodes],
        }
    }

    /// The nodes of a component, and those that access the same versions, in this number of steps.
    fn core(&mut self, row: u32, depth: u32) -> Vec<u32> {
        let (known, constraints) = (self.known, self.known.constraints);
        let mark = ComponentRow::new(row);
        let mut core = self.components.row(row).to_vec();
        let mut found = Vec::new();
        for &node in &core {
            self.entered[node as usize] = Some(mark);
        }
        let mut start = 0;
        for _ in 0..depth {
            for number in core[start..]
                .iter()
                .filter_map(|&node| known.transaction(node))
            {
                let reads = constraints.reads.row(number).iter();
                let read = reads.filter(|&&version| !constraints.is_initial(version));
                found.extend(read.map(|&version| known.written(version)));
                for &version in constraints.writes.row(number) {
                    found.push(known.written(version));
                    let readers = known.blocks.readers.row(version).iter();
                    found.extend(readers.map(|&reader| known.snapshot(reader)));
                }
            }
            start = core.len();
            let new = found
                .drain(..)
                .filter(|&node| self.entered[node as usize].replace(mark) != Some(mark));
            core.extend(new);
        }
        core
    }

    /// The nodes of the region around a component; `None` if one of them is in another region already.
    fn around(&mut self, row: u32, depth: u32) -> Option<Vec<u32>> {
        let core = self.core(row, depth);
        let places = core.iter().map(|&node| self.places[node as usize]);
        let (first, last) = places.fold((row, row), |(first, last), place| {
            (first.min(place), last.max(place))
        });
        // Entries of other components are not cleared: they differ in the mark.
        let mark = ComponentRow::new(row);
        let visit = |graph: &Csr<u32>, seen: &mut Vec<Option<ComponentRow>>, places: &[u32]| {
            let mut found = core.clone();
            found.retain(|&node| seen[node as usize].replace(mark) != Some(mark));
            let mut next = 0;
            while let Some(&node) = found.get(next) {
                next += 1;
                for &other in graph.row(node) {
                    let is_near = (first..=last).contains(&places[other as usize]);
                    if is_near && seen[other as usize].replace(mark) != Some(mark) {
                        found.push(other);
                    }
                }
            }
            found
        };
        visit(&self.backward, &mut self.behind, &self.places);
        let mut members = visit(&self.forward, &mut self.before, &self.places);
        members.retain(|&node| self.behind[node as usize] == Some(mark));
        if members.iter().any(|&node| self.is_taken[node as usize]) {
            return None;
        }
        for &node in &members {
            self.is_taken[node as usize] = true;
        }
        Some(members)
    }
}

impl<'a> GuessRepair<'a> {
    /// A repair of this guess; counts `steps` down.
    pub(super) fn new(
        known: &'a KnownOrder<'a>,
        miss: &'a WrongGuess,
        steps: &'a mut u64,
    ) -> GuessRepair<'a> {
        let versions = known.constraints.versions();
        let heads = miss.heads.clone();
        let mut places = vec![None; versions];
        for key in 0..known.constraints.keys {
            for (place, &head) in heads.row(key).iter().enumerate() {
                places[head as usize] = Some(BlockPlace::new(place as u32));
            }
        }
        GuessRepair {
            known,
            miss,
            heads,
            places,
            runs: vec![None; versions],
            local: vec![None; known.nodes() as usize],
            steps,
        }
    }

    /// The order of heads after the repair of as many regions as possible.
    pub(super) fn run(mut self, depth: u32) -> Csr<u32> {
        let components = &self.miss.components;
        let mut regions = Regions::new(self.known, self.miss);
        let wrong = components
            .row_numbers()
            .filter(|&row| components.row(row).len() > 1);
        let mut wrong: Vec<u32> = wrong.collect();
        // Large ones first: they may contain small ones.
        wrong.sort_by_key(|&row| std::cmp::Reverse(components.row(row).len()));
        let regions = wrong
            .into_iter()
            .filter_map(|row| regions.around(row, depth));
        let regions: Vec<Vec<u32>> = regions.filter(|region| region.len() <= NODES_MAX).collect();
        let mut all = Vec::new();
        let mut ends = Vec::new();
        for region in &regions {
            self.find(region, &mut all);
            ends.push(all.len());
        }
        let fixed = FixedOrder {
            known: self.known,
            heads: &self.heads,
            runs: &self.runs,
            all: &all,
        };
        let fixed = successors(self.known.nodes() as usize, &fixed);
        let mut start = 0;
        for (region, &end) in regions.iter().zip(&ends) {
            if start < end && *self.steps > 0 {
                self.repair(region, &all[start..end], &fixed);
            }
            start = end;
        }
        assert_eq!(
            self.heads.item_count(),
            self.miss.heads.item_count(),
            "a repair only reorders blocks"
        );
        self.heads
    }

    /// Numbers the nodes of a region.
    fn enter(&mut self, members: &[u32]) {
        for (number, &node) in members.iter().enumerate() {
            self.local[node as usize] = Some(GraphNode::new(number as u32));
        }
    }

    fn leave(&mut self, members: &[u32]) {
        for &node in members {
            self.local[node as usize] = None;
        }
    }

    /// May this block change places inside the region? All nodes on which its place depends must be in it.
    fn is_movable(&self, head: u32) -> bool {
        let known = self.known;
        let is_inside = |node: u32| self.local[node as usize].is_some();
        let tail = known.blocks.tail(head);
        let mut readers = known.blocks.readers.row(tail).iter();
        let begin = known.snapshot(known.constraints.writer_of_written(head).get());
        is_inside(known.written(tail))
            && (known.model.axiom != Axiom::Snapshot || is_inside(begin))
            && readers.all(|&reader| is_inside(known.snapshot(reader)))
    }

    /// Finds the runs of a region.
    fn find(&mut self, members: &[u32], all: &mut Vec<BlockRun>) {
        self.enter(members);
        let (known, constraints) = (self.known, self.known.constraints);
        let mut found: Vec<(u32, u32)> = Vec::new();
        for &node in members {
            let number = known.transaction(node);
            let number = number.filter(|&number| known.commit(number) == node);
            let written = number.map_or(&[][..], |number| constraints.writes.row(number));
            found.extend(written.iter().filter_map(|&version| {
                let place = self.places[version as usize]?;
                let key = constraints.version_keys[version as usize];
                self.is_movable(version).then_some((key, place.get()))
            }));
        }
        self.leave(members);
        found.sort_unstable();
        let is_next =
            |one: &(u32, u32), other: &(u32, u32)| one.0 == other.0 && one.1 + 1 == other.1;
        for group in found.chunk_by(is_next).filter(|group| group.len() > 1) {
            let (key, first) = (group[0].0, group[0].1 as usize);
            let end = first + group.len();
            for &head in &self.heads.row(key)[first..end] {
                self.runs[head as usize] = Some(RunId::new(all.len() as u32));
            }
            all.push(BlockRun { key, first, end });
        }
    }

    /// Searches for an order of the blocks in a region's runs, and puts it into `heads`.
    fn repair(&mut self, members: &[u32], runs: &[BlockRun], fixed: &Csr<u32>) {
        self.enter(members);
        let mut gates = Vec::new();
        let mut nodes = members.len() as u32;
        let mut blocks = Vec::new();
        for (run, &BlockRun { key, first, end }) in runs.iter().enumerate() {
            for &head in &self.heads.row(key)[first..end] {
                blocks.push(self.block(run as u32, head, &mut nodes, &mut gates));
            }
        }
        let part = RegionGraph {
            fixed,
            members,
            local: &self.local,
            gates: &gates,
        };
        let graph = successors(nodes as usize, &part);
        self.leave(members);
        let component = RegionSearch::new(&graph, &blocks);
        let order = component.and_then(|component| component.solve(self.steps));
        let Some(order) = order else {
            return;
        };
        let mut order = order.into_iter();
        for &BlockRun { key, first, end } in runs {
            for place in &mut self.heads.row_mut(key)[first..end] {
                let number = order.next().expect("one for each block");
                *place = blocks[number as usize].head;
            }
        }
    }

    /// A block of a region. If it has several readers, a node that stands for them is added.
    fn block(
        &self,
        run: u32,
        head: u32,
        nodes: &mut u32,
        gates: &mut Vec<(u32, u32)>,
    ) -> MovableBlock {
        let known = self.known;
        let local = |node: u32| {
            let local = self.local[node as usize];
            local.expect("a movable block depends on nodes of its region only")
        };
        let rank = |node: u32| self.miss.ranks[node as usize];
        let tail = known.blocks.tail(head);
        let writer = known.constraints.writer_of_written(head).get();
        let snapshots = known.blocks.readers.row(tail).iter();
        let snapshots = snapshots.map(|&reader| known.snapshot(reader));
        let mut end = rank(known.written(tail));
        let mut exit: Option<GraphNode> = None;
        for (number, snapshot) in snapshots.enumerate() {
            end = end.max(rank(snapshot));
            // A single reader is the exit itself; the second one makes a gate, which comes after both.
            match exit {
                None => exit = Some(local(snapshot)),
                Some(first) => {
                    if number == 1 {
                        gates.push((first.get(), *nodes));
                        exit = Some(GraphNode::new(*nodes));
                        *nodes += 1;
                    }
                    gates.push((local(snapshot).get(), *nodes - 1));
                }
            }
        }
        let is_snapshot = known.model.axiom == Axiom::Snapshot;
        // Readers come after the write and before the next one, so their edges imply the one between the writes; but a
        // writer under snapshot isolation also begins after the write that it replaces.
        let is_needed = is_snapshot || exit.is_none();
        let begun = if is_snapshot {
            known.snapshot(writer)
        } else {
            known.commit(writer)
        };
        MovableBlock {
            run,
            head,
            middle: rank(known.written(head)) + end,
            written: is_needed.then(|| local(known.written(tail))),
            exit,
            begun: local(begun).get(),
            first: local(known.written(head)).get(),
        }
    }
}
