//! A better guess of the order of versions, component by component.

use super::component::{Block, Component};
use super::judge::Miss;
use super::known::{Guessed, Known};
use super::lists::{Lists, Relation};
use super::promise::Axiom;
use crate::txn::transactions::NONE;

/// The largest component that is mended, in nodes: its closure has the square of it in bits (8 MiB).
const NODES_MAX: usize = 8_192;

/// What a guess got wrong: its strongly connected components.
///
/// An order of blocks that is wrong about a few events has cycles, and each is inside a component. A region is a component with
/// what its transactions read and wrote, and all that is on paths between those. Blocks of a key with all their events in a
/// region stand side by side in the guess, and no path leads out of a region and into it again, so regions can be put right
/// one by one, with all else as it was guessed. As a rule none of the cycles is left then. A [`Component`] searches a region,
/// which is small, with a matrix of what reaches what.
pub(super) struct Mend<'a> {
    known: &'a Known<'a>,
    miss: &'a Miss,
    heads: Lists,
    /// By version that is the first of its block: its place among the blocks of its key; [`NONE`] of others.
    places: Vec<u32>,
    /// By version that is the first of its block: its run; [`NONE`] if it stays where it is.
    runs: Vec<u32>,
    /// By node: its number in the region that is looked at.
    local: Vec<u32>,
    steps: &'a mut u64,
}

/// Blocks of a key, side by side, that may change places.
#[derive(Clone, Copy, Debug)]
struct Run {
    key: u32,
    first: usize,
    end: usize,
}

/// What is known, and guessed of all blocks but those that may change places.
struct Fixed<'a> {
    known: &'a Known<'a>,
    heads: &'a Lists,
    runs: &'a [u32],
    all: &'a [Run],
}

impl Relation for Fixed<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        let known = self.known;
        known.tell(take);
        let mut before = |one: u32, other: u32| {
            let edges = known.before(known.blocks.tail(one), other);
            for (from, to) in edges.into_iter().flatten() {
                take(from, to);
            }
        };
        for key in 0..known.facts.keys {
            for two in self.heads.of(key).windows(2) {
                let (one, other) = (self.runs[two[0] as usize], self.runs[two[1] as usize]);
                if one == NONE || one != other {
                    before(two[0], two[1]);
                }
            }
        }
        for run in self.all {
            let row = self.heads.of(run.key);
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

/// The part of a graph that is between some nodes, renumbered; and the readers of blocks before their gates.
struct Part<'a> {
    fixed: &'a Lists,
    members: &'a [u32],
    local: &'a [u32],
    gates: &'a [(u32, u32)],
}

impl Relation for Part<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        for (number, &node) in self.members.iter().enumerate() {
            for &to in self.fixed.of(node) {
                let to = self.local[to as usize];
                if to != NONE {
                    take(number as u32, to);
                }
            }
        }
        for &(reader, gate) in self.gates {
            take(reader, gate);
        }
    }
}

/// Finds regions.
struct Regions<'a> {
    known: &'a Known<'a>,
    components: &'a Lists,
    /// What is known and guessed.
    forward: Lists,
    backward: Lists,
    /// By node: the place of its component.
    places: Vec<u32>,
    /// By node: the component whose core it was in last, and whose search came there last from before and from behind.
    entered: Vec<u32>,
    before: Vec<u32>,
    behind: Vec<u32>,
    /// By node: is it in a region?
    is_taken: Vec<bool>,
}

impl<'a> Regions<'a> {
    fn new(known: &'a Known<'a>, miss: &'a Miss) -> Regions<'a> {
        let nodes = known.nodes() as usize;
        let components = &miss.components;
        let mut places = vec![0; nodes];
        for row in 0..components.rows() {
            for &node in components.of(row) {
                places[node as usize] = row;
            }
        }
        let forward = Lists::forward(nodes, &Guessed::new(known, &miss.heads));
        Regions {
            known,
            components,
            backward: forward.inverted(nodes),
            forward,
            places,
            entered: vec![NONE; nodes],
            before: vec![NONE; nodes],
            behind: vec![NONE; nodes],
            is_taken: vec![false; nodes],
        }
    }

    /// The nodes of a component, and those that read or wrote the same versions, that many steps away.
    fn core(&mut self, row: u32, depth: u32) -> Vec<u32> {
        let (known, facts) = (self.known, self.known.facts);
        let mut core = self.components.of(row).to_vec();
        let mut found = Vec::new();
        for &node in &core {
            self.entered[node as usize] = row;
        }
        let mut start = 0;
        for _ in 0..depth {
            for number in core[start..]
                .iter()
                .filter_map(|&node| known.transaction(node))
            {
                let reads = facts.reads.of(number).iter();
                let read = reads.filter(|&&version| facts.writers[version as usize] != NONE);
                found.extend(read.map(|&version| known.written(version)));
                for &version in facts.writes.of(number) {
                    found.push(known.written(version));
                    let readers = known.blocks.readers.of(version).iter();
                    found.extend(readers.map(|&reader| known.snapshot(reader)));
                }
            }
            start = core.len();
            let new = found
                .drain(..)
                .filter(|&node| std::mem::replace(&mut self.entered[node as usize], row) != row);
            core.extend(new);
        }
        core
    }

    /// The nodes of the region around a component, if none of them is in another one.
    fn around(&mut self, row: u32, depth: u32) -> Option<Vec<u32>> {
        let core = self.core(row, depth);
        let places = core.iter().map(|&node| self.places[node as usize]);
        let (first, last) = places.fold((row, row), |(first, last), place| {
            (first.min(place), last.max(place))
        });
        let visit = |graph: &Lists, seen: &mut Vec<u32>, places: &[u32]| {
            let mut found = core.clone();
            found.retain(|&node| std::mem::replace(&mut seen[node as usize], row) != row);
            let mut next = 0;
            while let Some(&node) = found.get(next) {
                next += 1;
                for &other in graph.of(node) {
                    let is_near = (first..=last).contains(&places[other as usize]);
                    if is_near && std::mem::replace(&mut seen[other as usize], row) != row {
                        found.push(other);
                    }
                }
            }
            found
        };
        visit(&self.backward, &mut self.behind, &self.places);
        let mut members = visit(&self.forward, &mut self.before, &self.places);
        members.retain(|&node| self.behind[node as usize] == row);
        if members.iter().any(|&node| self.is_taken[node as usize]) {
            return None;
        }
        for &node in &members {
            self.is_taken[node as usize] = true;
        }
        Some(members)
    }
}

impl<'a> Mend<'a> {
    /// Of a guess that is wrong; counts steps down.
    pub(super) fn new(known: &'a Known<'a>, miss: &'a Miss, steps: &'a mut u64) -> Mend<'a> {
        let versions = known.facts.versions();
        let heads = miss.heads.clone();
        let mut places = vec![NONE; versions];
        for key in 0..known.facts.keys {
            for (place, &head) in heads.of(key).iter().enumerate() {
                places[head as usize] = place as u32;
            }
        }
        Mend {
            known,
            miss,
            heads,
            places,
            runs: vec![NONE; versions],
            local: vec![NONE; known.nodes() as usize],
            steps,
        }
    }

    /// The order of heads with as many regions put right as was possible.
    pub(super) fn run(mut self, depth: u32) -> Lists {
        let components = &self.miss.components;
        let mut regions = Regions::new(self.known, self.miss);
        let wrong = (0..components.rows()).filter(|&row| components.of(row).len() > 1);
        let mut wrong: Vec<u32> = wrong.collect();
        // Large ones may have small ones around them.
        wrong.sort_by_key(|&row| std::cmp::Reverse(components.of(row).len()));
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
        let fixed = Fixed {
            known: self.known,
            heads: &self.heads,
            runs: &self.runs,
            all: &all,
        };
        let fixed = Lists::forward(self.known.nodes() as usize, &fixed);
        let mut start = 0;
        for (region, &end) in regions.iter().zip(&ends) {
            if start < end && *self.steps > 0 {
                self.mend(region, &all[start..end], &fixed);
            }
            start = end;
        }
        self.heads
    }

    /// Numbers the nodes of a region.
    fn enter(&mut self, members: &[u32]) {
        for (number, &node) in members.iter().enumerate() {
            self.local[node as usize] = number as u32;
        }
    }

    fn leave(&mut self, members: &[u32]) {
        for &node in members {
            self.local[node as usize] = NONE;
        }
    }

    /// May a block with this head change places inside the region? All that is said of its place must be in it.
    fn is_movable(&self, head: u32) -> bool {
        let known = self.known;
        let is_inside = |node: u32| self.local[node as usize] != NONE;
        let tail = known.blocks.tail(head);
        let mut readers = known.blocks.readers.of(tail).iter();
        let begin = known.snapshot(known.facts.writers[head as usize]);
        is_inside(known.written(tail))
            && (known.promise.axiom != Axiom::Snapshot || is_inside(begin))
            && readers.all(|&reader| is_inside(known.snapshot(reader)))
    }

    /// Finds the runs of a region.
    fn find(&mut self, members: &[u32], all: &mut Vec<Run>) {
        self.enter(members);
        let (known, facts) = (self.known, self.known.facts);
        let mut found: Vec<(u32, u32)> = Vec::new();
        for &node in members {
            let number = known.transaction(node);
            let number = number.filter(|&number| known.commit(number) == node);
            let written = number.map_or(&[][..], |number| facts.writes.of(number));
            let heads = written.iter().filter(|&&version| {
                let is_head = self.places[version as usize] != NONE;
                is_head && self.is_movable(version)
            });
            found.extend(heads.map(|&head| {
                let key = facts.version_keys[head as usize];
                (key, self.places[head as usize])
            }));
        }
        self.leave(members);
        found.sort_unstable();
        let is_next =
            |one: &(u32, u32), other: &(u32, u32)| one.0 == other.0 && one.1 + 1 == other.1;
        for group in found.chunk_by(is_next).filter(|group| group.len() > 1) {
            let (key, first) = (group[0].0, group[0].1 as usize);
            let end = first + group.len();
            for &head in &self.heads.of(key)[first..end] {
                self.runs[head as usize] = all.len() as u32;
            }
            all.push(Run { key, first, end });
        }
    }

    /// Looks for an order of the blocks of a region's runs.
    fn mend(&mut self, members: &[u32], runs: &[Run], fixed: &Lists) {
        self.enter(members);
        let mut gates = Vec::new();
        let mut nodes = members.len() as u32;
        let mut blocks = Vec::new();
        for (run, &Run { key, first, end }) in runs.iter().enumerate() {
            for &head in &self.heads.of(key)[first..end] {
                blocks.push(self.block(run as u32, head, &mut nodes, &mut gates));
            }
        }
        let part = Part {
            fixed,
            members,
            local: &self.local,
            gates: &gates,
        };
        let graph = Lists::forward(nodes as usize, &part);
        self.leave(members);
        let component = Component::new(&graph, &blocks);
        let order = component.and_then(|component| component.solve(self.steps));
        let Some(order) = order else {
            return;
        };
        let mut order = order.into_iter();
        for &Run { key, first, end } in runs {
            for place in &mut self.heads.of_mut(key)[first..end] {
                let number = order.next().expect("one for each block");
                *place = blocks[number as usize].head;
            }
        }
    }

    /// A block of a region; the node that stands for its readers is made if it has several.
    fn block(&self, run: u32, head: u32, nodes: &mut u32, gates: &mut Vec<(u32, u32)>) -> Block {
        let known = self.known;
        let local = |node: u32| self.local[node as usize];
        let rank = |node: u32| self.miss.ranks[node as usize];
        let tail = known.blocks.tail(head);
        let writer = known.facts.writers[head as usize];
        let snapshots = known.blocks.readers.of(tail).iter();
        let snapshots = snapshots.map(|&reader| known.snapshot(reader));
        let mut end = rank(known.written(tail));
        let mut exit = NONE;
        for (number, snapshot) in snapshots.enumerate() {
            end = end.max(rank(snapshot));
            if number == 1 {
                gates.push((exit, *nodes));
                exit = *nodes;
                *nodes += 1;
            }
            match number {
                0 => exit = local(snapshot),
                _ => gates.push((local(snapshot), exit)),
            }
        }
        let is_snapshot = known.promise.axiom == Axiom::Snapshot;
        // Readers come after the write and before the next one, so they say all where there are any; but a writer of snapshot
        // isolation begins after the write that it replaces.
        let is_told = is_snapshot || exit == NONE;
        let begun = if is_snapshot {
            known.snapshot(writer)
        } else {
            known.commit(writer)
        };
        Block {
            run,
            head,
            middle: rank(known.written(head)) + end,
            written: if is_told {
                local(known.written(tail))
            } else {
                NONE
            },
            exit,
            begun: local(begun),
            first: local(known.written(head)),
        }
    }
}
