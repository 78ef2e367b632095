//! Parallel snapshot isolation: no transaction may see an overwrite of what it read.

use super::clause_database::ClauseId;
use super::clause_search::ClauseSearch;
use super::constraints::Constraints;
use super::guess_and_search::{self, OrderDecision, SearchEffort};
use super::known_order::KnownOrder;
use super::order_model::{Axiom, OrderModel};
use super::relation::{Relation, successors};
use super::version_blocks::VersionBlocks;
use seatrial_cycles::{Csr, Txn, Version};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Number of transactions for which visibility is computed at a time.
const SEEN_MAX: usize = 4_096;
/// Number of wrong reads that become clauses at a time.
const LEMMAS_MAX: usize = 64;

/// Largest number of transactions whose reads are ignored to guess an order.
const IGNORED_MAX: usize = 8;

/// Decides parallel snapshot isolation.
///
/// An order that keeps snapshot isolation keeps it as well, and is searched for first. Transactions without such an order
/// often have none for parallel snapshot isolation either, and are few, so they are decided by themselves. If they have one
/// (a long fork), the reads of one of them are ignored, and so on until the rest keeps snapshot isolation. The version order
/// is guessed from that: it can be wrong only about what was ignored.
pub(super) fn decide(
    constraints: &Constraints,
    blocks: &VersionBlocks,
    model: OrderModel,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> OrderDecision {
    let stronger = OrderModel {
        axiom: Axiom::Snapshot,
        ..model
    };
    match guess_and_search::settle(
        &KnownOrder::new(constraints, blocks, stronger),
        steps_max,
        effort,
    ) {
        OrderDecision::Holds(witness) => return OrderDecision::Holds(witness),
        OrderDecision::Open => {}
        OrderDecision::Fails(core) => {
            let decision = relax(
                constraints,
                blocks,
                [model, stronger],
                core,
                steps_max,
                effort,
            );
            if let Some(decision) = decision {
                return decision;
            }
        }
    }
    guess_and_search::settle(
        &KnownOrder::new(constraints, blocks, model),
        steps_max,
        effort,
    )
}

/// Decides the model for a history whose unsatisfiable core under snapshot isolation (`stronger`) is `core`: by these
/// transactions alone, or from an order of snapshot isolation with as few reads ignored as possible. `None` if neither
/// succeeds.
fn relax(
    constraints: &Constraints,
    blocks: &VersionBlocks,
    [model, stronger]: [OrderModel; 2],
    mut core: Vec<u32>,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> Option<OrderDecision> {
    let mut part = constraints.clone();
    let mut steps = steps_max;
    for _ in 0..IGNORED_MAX {
        if let Some(refuted) = refuted(&part, &core, model, steps, effort) {
            return Some(OrderDecision::Fails(refuted));
        }
        part.reads = without(&part.reads, reader(&part, &core)?);
        steps = steps_max.saturating_sub(effort.steps);
        core = match guess_and_search::decide(&part, stronger, steps, effort) {
            OrderDecision::Open => return None,
            OrderDecision::Fails(core) => core,
            OrderDecision::Holds(witness) => {
                let known = KnownOrder::new(constraints, blocks, model);
                let commits = witness.commits();
                return Some(guess_and_search::settle_from(
                    &known, &commits, steps_max, effort,
                ));
            }
        };
    }
    refuted(&part, &core, model, steps, effort).map(OrderDecision::Fails)
}

/// Decides some transactions by themselves; returns those without an order.
fn refuted(
    constraints: &Constraints,
    core: &[u32],
    model: OrderModel,
    steps_max: u64,
    effort: &mut SearchEffort,
) -> Option<Vec<u32>> {
    let part = constraints.only(core);
    let Ok(blocks) = VersionBlocks::new(&part, model.axiom.is_chained()) else {
        // Two of them overwrote the same version.
        return Some(core.to_vec());
    };
    let known = KnownOrder::new(&part, &blocks, model);
    match guess_and_search::settle(&known, steps_max, effort) {
        OrderDecision::Fails(found) => {
            Some(found.iter().map(|&number| core[number as usize]).collect())
        }
        OrderDecision::Holds(_) | OrderDecision::Open => None,
    }
}

/// The member of a core that read most from the others, and among equals wrote least: ignoring its reads does least harm.
fn reader(constraints: &Constraints, core: &[u32]) -> Option<u32> {
    let read = |number: u32| {
        let writers = constraints.reads.row(number).iter();
        let writers = writers.filter_map(|&version| constraints.writer(version));
        writers
            .filter(|writer| core.contains(&writer.get()))
            .count()
    };
    let readers = core
        .iter()
        .copied()
        .filter(|&number| !constraints.reads.row(number).is_empty());
    readers.max_by_key(|&number| (read(number), Reverse(constraints.writes.row(number).len())))
}

/// All reads except those of one transaction.
fn without(reads: &Csr<u32>, reader: u32) -> Csr<u32> {
    let mut left = Csr::default();
    for number in reads.row_numbers() {
        for &version in reads.row(number).iter().filter(|_| number != reader) {
            left.push(version);
        }
        left.end_row();
    }
    left
}

/// An edge into a node: its source, and the pair of blocks whose order it comes from, if it is not known.
type EdgeOrigin = (u32, Option<(u32, u32)>);

/// The versions of each key in the current order of the search.
struct VersionPlaces {
    /// By version: its index among those of its key.
    places: Vec<u32>,
    /// By version: the head of its block.
    heads: Vec<u32>,
    /// By version: the next one of its key.
    next: Vec<Option<Version>>,
    /// By node: heads of consecutive blocks, of which the second begins with a write in that node.
    into: Csr<u32>,
}

/// Consecutive blocks of each key.
struct NeighbourBlocks<'a> {
    known: &'a KnownOrder<'a>,
    heads: &'a Csr<u32>,
}

impl Relation for NeighbourBlocks<'_> {
    /// By node: the heads of two consecutive blocks, of which the second begins with a write in that node.
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for key in 0..self.known.constraints.keys {
            for two in self.heads.row(key).windows(2) {
                take(self.known.written(two[1]), two[0]);
                take(self.known.written(two[1]), two[1]);
            }
        }
    }
}

impl VersionPlaces {
    fn new(known: &KnownOrder<'_>, heads: &Csr<u32>) -> VersionPlaces {
        let versions = known.constraints.versions();
        let mut scene = VersionPlaces {
            places: vec![0; versions],
            heads: vec![0; versions],
            next: vec![None; versions],
            into: successors(known.nodes() as usize, &NeighbourBlocks { known, heads }),
        };
        for key in 0..known.constraints.keys {
            let (mut place, mut before) = (0, None::<u32>);
            for &head in std::iter::once(&key).chain(heads.row(key)) {
                for version in known.blocks.members(head) {
                    scene.places[version as usize] = place;
                    scene.heads[version as usize] = head;
                    if let Some(before) = before {
                        scene.next[before as usize] = Some(Version::new(version));
                    }
                    (place, before) = (place + 1, Some(version));
                }
            }
        }
        scene
    }
}

impl ClauseSearch<'_> {
    /// Searches for transactions that see an overwrite of what they read, with the current version order, and adds clauses
    /// that exclude these. Returns whether there was one, and a clause that is false.
    pub(super) fn exclude(&mut self) -> (bool, Option<ClauseId>) {
        let scene = VersionPlaces::new(self.known, &self.heads);
        let wrong = self.wrong(&scene);
        for &(reader, version) in &wrong {
            let clause = self.overwritten(&scene, reader, version);
            match self.clauses.open(clause).as_deref() {
                Some([]) => return (true, Some(clause)),
                Some(&[last]) => self.clauses.set(last, Some(clause)),
                Some(open) => open
                    .iter()
                    .for_each(|&literal| self.clauses.heat(literal / 2)),
                None => {}
            }
        }
        (!wrong.is_empty(), None)
    }

    /// Passes on all edges into a node, with versions in their current order.
    fn sources(&self, scene: &VersionPlaces, node: u32, take: &mut impl FnMut(EdgeOrigin)) {
        self.topology.sources(node, |from, literal| {
            let pair = literal.map(|literal| self.blocks_of(literal));
            take((from, pair));
        });
        for pair in scene.into.row(node).chunks_exact(2) {
            let from = self.known.written(self.known.blocks.tail(pair[0]));
            take((from, Some((pair[0], pair[1]))));
        }
    }

    /// Reads (transaction, version) of transactions that see the next version.
    fn wrong(&mut self, scene: &VersionPlaces) -> Vec<(u32, u32)> {
        let known = self.known;
        let nodes = known.nodes() as usize;
        let mut order = vec![0; nodes];
        for (node, &place) in self.topology.places.iter().enumerate() {
            order[place as usize] = node as u32;
        }
        let mut wrong = Vec::new();
        let mut work = 0;
        for first in (0..known.constraints.len()).step_by(SEEN_MAX) {
            let words = (known.constraints.len() - first)
                .min(SEEN_MAX as u32)
                .div_ceil(64) as usize;
            let mut seen = vec![0_u64; nodes * words];
            let mut own = vec![0_u64; words];
            for &node in &order {
                own.fill(0);
                self.sources(scene, node, &mut |(from, _)| {
                    work += words as u64;
                    let row = &seen[from as usize * words..][..words];
                    own.iter_mut()
                        .zip(row)
                        .for_each(|(own, &word)| *own |= word);
                    if let Some(bit) = from
                        .checked_sub(first)
                        .filter(|&bit| (bit as usize) < 64 * words)
                    {
                        own[bit as usize / 64] |= 1 << (bit % 64);
                    }
                });
                seen[node as usize * words..][..words].copy_from_slice(&own);
            }
            for reader in 0..known.constraints.len() {
                for &version in known.constraints.reads.row(reader) {
                    let next = scene.next[version as usize];
                    let next = next.map(|next| known.constraints.writer_of_written(next.get()));
                    let Some(writer) = next.map(Txn::get).filter(|&writer| writer != reader) else {
                        continue;
                    };
                    let writer = writer.checked_sub(first);
                    let writer = writer.filter(|&writer| (writer as usize) < 64 * words);
                    let sees = writer.is_some_and(|writer| {
                        let word = seen[reader as usize * words + writer as usize / 64];
                        word >> (writer % 64) & 1 == 1
                    });
                    if sees && wrong.len() < LEMMAS_MAX {
                        wrong.push((reader, version));
                    }
                }
            }
        }
        // One word of bits at a time is less than a step of the other searches.
        self.steps += work / 8;
        wrong
    }

    /// Adds a clause that excludes that a transaction sees the nearest overwrite of what it read.
    fn overwritten(&mut self, scene: &VersionPlaces, reader: u32, version: u32) -> ClauseId {
        let known = self.known;
        let constraints = known.constraints;
        let key = constraints.version_keys[version as usize];
        let later = |node: u32| {
            let writes = known
                .transaction(node)
                .map_or(&[][..], |number| constraints.writes.row(number));
            let of_key = |&&written: &&u32| constraints.version_keys[written as usize] == key;
            let written = writes.iter().find(of_key).copied();
            written
                .filter(|&written| scene.places[written as usize] > scene.places[version as usize])
        };
        // By node: the next node on the path to the reader, and the pair of blocks of that edge.
        let mut onward = vec![None; known.nodes() as usize];
        let mut waiting = vec![reader];
        let mut next = 0;
        let mut found = None;
        while let (Some(&node), None) = (waiting.get(next), found) {
            next += 1;
            if node != reader
                && let Some(written) = later(node)
            {
                found = Some((node, written));
                break;
            }
            let mut sources = Vec::new();
            self.sources(scene, node, &mut |source| sources.push(source));
            for (from, pair) in sources {
                if from != reader && onward[from as usize].is_none() {
                    onward[from as usize] = Some((node, pair));
                    waiting.push(from);
                }
            }
        }
        self.steps += waiting.len() as u64;
        let mut transactions = BTreeSet::from([reader]);
        transactions.extend(constraints.writer(version).map(Txn::get));
        let mut pairs = Vec::new();
        if let Some((mut node, written)) = found {
            let (first, second) = (scene.heads[version as usize], scene.heads[written as usize]);
            if first != second && !constraints.is_initial(first) {
                pairs.push((first, second));
            }
            while node != reader {
                transactions.extend(known.transaction(node));
                let onward = onward[node as usize];
                let (to, pair) = onward.expect("a node that was reached leads to the reader");
                pairs.extend(pair);
                node = to;
            }
        }
        let literals: BTreeSet<u32> = pairs
            .into_iter()
            .map(|(first, second)| {
                let variable = self.variable(first, second);
                // The literal that is false if the first block comes first.
                2 * variable + u32::from(first < second)
            })
            .collect();
        self.clauses.cycle(
            literals.into_iter().collect(),
            transactions.into_iter().collect(),
        )
    }
}
