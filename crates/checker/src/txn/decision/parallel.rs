//! Parallel snapshot isolation: what a transaction must not have seen.

use super::blocks::Blocks;
use super::facts::Facts;
use super::judge::{self, Decision, Effort};
use super::known::Known;
use super::lists::{Lists, Relation};
use super::promise::{Axiom, Promise};
use super::solve::Search;
use crate::txn::transactions::NONE;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Nodes of which it is found out at a time who sees them.
const SEEN_MAX: usize = 4_096;
/// What is excluded at a time.
const LEMMAS_MAX: usize = 64;

/// Transactions whose reads are ignored at most to guess an order.
const IGNORED_MAX: usize = 8;

/// Decides parallel snapshot isolation. An order of snapshots and commits that keeps snapshot isolation keeps it as well, and is
/// looked for first.
///
/// Transactions that have no such order often have none for parallel snapshot isolation either, and are few, so they are
/// decided by themselves. If they do have one (a long fork), what one of them read is ignored, and so on until the rest keeps
/// snapshot isolation. The order of versions is guessed from that: only what was ignored can be wrong with it.
pub(super) fn decide(
    facts: &Facts,
    blocks: &Blocks,
    promise: Promise,
    steps_max: u64,
    effort: &mut Effort,
) -> Decision {
    let stronger = Promise {
        axiom: Axiom::Snapshot,
        ..promise
    };
    match judge::settle(&Known::new(facts, blocks, stronger), steps_max, effort) {
        Decision::Holds(witness) => return Decision::Holds(witness),
        Decision::Open => {}
        Decision::Fails(core) => {
            let decision = relax(facts, blocks, [promise, stronger], core, steps_max, effort);
            if let Some(decision) = decision {
                return decision;
            }
        }
    }
    judge::settle(&Known::new(facts, blocks, promise), steps_max, effort)
}

/// Decides what is not snapshot isolation (the second promise) because of these transactions: by them alone, or from an order of
/// snapshot isolation with as little ignored as it takes. `None` if neither is found.
fn relax(
    facts: &Facts,
    blocks: &Blocks,
    [promise, stronger]: [Promise; 2],
    mut core: Vec<u32>,
    steps_max: u64,
    effort: &mut Effort,
) -> Option<Decision> {
    let mut part = facts.clone();
    let mut steps = steps_max;
    for _ in 0..IGNORED_MAX {
        if let Some(refuted) = refuted(&part, &core, promise, steps, effort) {
            return Some(Decision::Fails(refuted));
        }
        part.reads = without(&part.reads, reader(&part, &core)?);
        steps = steps_max.saturating_sub(effort.steps);
        core = match judge::decide(&part, stronger, steps, effort) {
            Decision::Open => return None,
            Decision::Fails(core) => core,
            Decision::Holds(witness) => {
                let known = Known::new(facts, blocks, promise);
                let commits = witness.commits();
                return Some(judge::settle_from(&known, &commits, steps_max, effort));
            }
        };
    }
    refuted(&part, &core, promise, steps, effort).map(Decision::Fails)
}

/// Decides some transactions by themselves; those of them that cannot be explained.
fn refuted(
    facts: &Facts,
    core: &[u32],
    promise: Promise,
    steps_max: u64,
    effort: &mut Effort,
) -> Option<Vec<u32>> {
    let part = facts.only(core);
    let Ok(blocks) = Blocks::new(&part, promise.axiom.is_chained()) else {
        // Two of them overwrote the same version.
        return Some(core.to_vec());
    };
    let known = Known::new(&part, &blocks, promise);
    match judge::settle(&known, steps_max, effort) {
        Decision::Fails(found) => Some(found.iter().map(|&number| core[number as usize]).collect()),
        Decision::Holds(_) | Decision::Open => None,
    }
}

/// Who of these read most of what others of them wrote, and if it may be wrote least: that is forgotten with least harm.
fn reader(facts: &Facts, core: &[u32]) -> Option<u32> {
    let read = |number: u32| {
        let writers = facts.reads.of(number).iter();
        let writers = writers.map(|&version| facts.writers[version as usize]);
        writers.filter(|writer| core.contains(writer)).count()
    };
    let readers = core
        .iter()
        .copied()
        .filter(|&number| !facts.reads.of(number).is_empty());
    readers.max_by_key(|&number| (read(number), Reverse(facts.writes.of(number).len())))
}

/// What was read, but for one transaction.
fn without(reads: &Lists, reader: u32) -> Lists {
    let mut left = Lists::default();
    for number in 0..reads.rows() {
        for &version in reads.of(number).iter().filter(|_| number != reader) {
            left.push(version);
        }
        left.end();
    }
    left
}

/// An edge into a node: where it comes from, and the pair of blocks that it stands for, if it is not known.
type Source = (u32, Option<(u32, u32)>);

/// Versions of each key in the order of the search, as far as it takes to look for what is wrong with it.
struct Scene {
    /// By version: its place among those of its key.
    places: Vec<u32>,
    /// By version: the first version of its block.
    heads: Vec<u32>,
    /// By version: the next one; [`NONE`] of the last.
    next: Vec<u32>,
    /// By node: the last versions of blocks that stand before blocks which begin there.
    into: Lists,
}

/// Neighbours among the blocks of each key.
struct Neighbours<'a> {
    known: &'a Known<'a>,
    heads: &'a Lists,
}

impl Relation for Neighbours<'_> {
    /// By node: heads of blocks that stand at once before a block that begins there, with the head of that.
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        for key in 0..self.known.facts.keys {
            for two in self.heads.of(key).windows(2) {
                take(self.known.written(two[1]), two[0]);
                take(self.known.written(two[1]), two[1]);
            }
        }
    }
}

impl Scene {
    fn new(known: &Known<'_>, heads: &Lists) -> Scene {
        let versions = known.facts.versions();
        let mut scene = Scene {
            places: vec![0; versions],
            heads: vec![NONE; versions],
            next: vec![NONE; versions],
            into: Lists::forward(known.nodes() as usize, &Neighbours { known, heads }),
        };
        for key in 0..known.facts.keys {
            let (mut place, mut before) = (0, NONE);
            for &head in std::iter::once(&key).chain(heads.of(key)) {
                for version in known.blocks.members(head) {
                    scene.places[version as usize] = place;
                    scene.heads[version as usize] = head;
                    if before != NONE {
                        scene.next[before as usize] = version;
                    }
                    (place, before) = (place + 1, version);
                }
            }
        }
        scene
    }
}

impl Search<'_> {
    /// Looks whether a transaction sees an overwrite of what it read, with versions in the order in which they stand now. What is
    /// found becomes clauses; the answer is whether there was anything, and a clause that cannot hold.
    pub(super) fn exclude(&mut self) -> (bool, Option<u32>) {
        let scene = Scene::new(self.known, &self.heads);
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

    /// All edges into a node, in the order of versions as it is now.
    fn sources(&self, scene: &Scene, node: u32, take: &mut impl FnMut(Source)) {
        self.topology.sources(node, |from, literal| {
            let pair = (literal != NONE).then(|| self.blocks_of(literal));
            take((from, pair));
        });
        for pair in scene.into.of(node).chunks_exact(2) {
            let from = self.known.written(self.known.blocks.tail(pair[0]));
            take((from, Some((pair[0], pair[1]))));
        }
    }

    /// Reads (transaction, version) of transactions that see the next version.
    fn wrong(&mut self, scene: &Scene) -> Vec<(u32, u32)> {
        let known = self.known;
        let nodes = known.nodes() as usize;
        let mut order = vec![0; nodes];
        for (node, &place) in self.topology.places.iter().enumerate() {
            order[place as usize] = node as u32;
        }
        let mut wrong = Vec::new();
        let mut work = 0;
        for first in (0..known.facts.len()).step_by(SEEN_MAX) {
            let words = (known.facts.len() - first)
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
            for reader in 0..known.facts.len() {
                for &version in known.facts.reads.of(reader) {
                    let next = scene.next[version as usize];
                    if next == NONE || known.facts.writers[next as usize] == reader {
                        continue;
                    }
                    let writer = known.facts.writers[next as usize].checked_sub(first);
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
        // A word at a time is a small step.
        self.steps += work / 8;
        wrong
    }

    /// The clause that excludes that a transaction sees a nearest overwrite of what it read.
    fn overwritten(&mut self, scene: &Scene, reader: u32, version: u32) -> u32 {
        let known = self.known;
        let facts = known.facts;
        let key = facts.version_keys[version as usize];
        let later = |node: u32| {
            let writes = known
                .transaction(node)
                .map_or(&[][..], |number| facts.writes.of(number));
            let of_key = |&&written: &&u32| facts.version_keys[written as usize] == key;
            let written = writes.iter().find(of_key).copied();
            written
                .filter(|&written| scene.places[written as usize] > scene.places[version as usize])
        };
        // Where the way to the reader goes on from a node, and over which pair.
        let mut onward = vec![(NONE, None); known.nodes() as usize];
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
                if from != reader && onward[from as usize].0 == NONE {
                    onward[from as usize] = (node, pair);
                    waiting.push(from);
                }
            }
        }
        self.steps += waiting.len() as u64;
        let mut transactions = BTreeSet::from([reader]);
        transactions.extend(Some(facts.writers[version as usize]).filter(|&writer| writer != NONE));
        let mut pairs = Vec::new();
        if let Some((mut node, written)) = found {
            let (first, second) = (scene.heads[version as usize], scene.heads[written as usize]);
            if first != second && !facts.is_initial(first) {
                pairs.push((first, second));
            }
            while node != reader {
                transactions.extend(known.transaction(node));
                let (to, pair) = onward[node as usize];
                pairs.extend(pair);
                node = to;
            }
        }
        let literals: BTreeSet<u32> = pairs
            .into_iter()
            .map(|(first, second)| {
                let variable = self.variable(first, second);
                // False when the first comes first.
                2 * variable + u32::from(first < second)
            })
            .collect();
        self.clauses.cycle(
            literals.into_iter().collect(),
            transactions.into_iter().collect(),
        )
    }
}
