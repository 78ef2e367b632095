//! The search for an order of blocks in one region of a wrong guess.

use super::relation::successors;
use super::transitive_closure::{TransitiveClosure, WouldCycle};
use seatrial_cycles::Csr;
use seatrial_cycles::graph::GraphNode;

/// Largest number of pairs of blocks.
const PAIRS_MAX: usize = 1 << 20;
/// Number of restarts after a dead end.
const TRIES_MAX: u32 = 64;

/// A block of versions of a key that may change places with others of its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovableBlock {
    pub(super) run: u32,
    pub(super) head: u32,
    /// Twice the middle of its place in the guess.
    pub(super) middle: u64,
    /// The node of its last write, which comes before `begun` of each later block; `None` if readers imply that.
    pub(super) written: Option<GraphNode>,
    /// The node after its readers, which comes before `first` of each later block; `None` without readers.
    pub(super) exit: Option<GraphNode>,
    /// The nodes of its own begin, and of its own first write.
    pub(super) begun: u32,
    pub(super) first: u32,
}

impl MovableBlock {
    /// The edges which mean that this block comes before another one.
    fn before(&self, other: &MovableBlock) -> impl Iterator<Item = (u32, u32)> + use<> {
        let edges = [(self.written, other.begun), (self.exit, other.first)];
        edges
            .into_iter()
            .filter_map(|(from, to)| Some((from?.get(), to)))
    }
}

/// Two blocks, and their order.
#[derive(Clone, Copy, Debug)]
struct BlockPair {
    one: u32,
    other: u32,
    order: PairOrder,
    /// Number of dead ends at this pair.
    heat: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairOrder {
    Open,
    Forward,
    Backward,
}

/// A pair of which both orders are excluded.
struct DeadEnd(u32);

/// The blocks of a region, and a growing set of decided pairs of them.
///
/// Orders that follow from others are added until nothing more follows (saturation, as in Biswas and Enea 2019 and in the
/// pruning of PolySI); only then the next pair is decided, the most certain one in the guess, and in its order. If that
/// excludes both orders of some pair, the opposite follows. If both are impossible (a dead end), the search restarts and
/// decides the pairs of dead ends first. After a number of restarts it ends without a result, so it never refutes.
pub(super) struct RegionSearch<'a> {
    blocks: &'a [MovableBlock],
    closure: TransitiveClosure,
    pairs: Vec<BlockPair>,
    /// By node: the pairs with an edge to it in either order.
    watched: Csr<u32>,
    /// Pairs to be looked at; by pair: is it among them?
    queue: Vec<u32>,
    is_queued: Vec<bool>,
    /// Pairs that were decided since the mark.
    decided: Vec<u32>,
    looked: u64,
}

/// The relation between nodes and the pairs that have edges to them.
struct Watched<'a> {
    blocks: &'a [MovableBlock],
    pairs: &'a [BlockPair],
}

impl super::relation::Relation for Watched<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for (number, pair) in self.pairs.iter().enumerate() {
            let (one, other) = (
                &self.blocks[pair.one as usize],
                &self.blocks[pair.other as usize],
            );
            for (_, to) in one.before(other).chain(other.before(one)) {
                take(to, number as u32);
            }
        }
    }
}

impl<'a> RegionSearch<'a> {
    /// A region with these edges and blocks, run by run; `None` if it has a cycle whatever the order of blocks, or is too
    /// large.
    pub(super) fn new(graph: &Csr<u32>, blocks: &'a [MovableBlock]) -> Option<RegionSearch<'a>> {
        let groups = || blocks.chunk_by(|one, other| one.run == other.run);
        let count: usize = groups()
            .map(|group| group.len() * (group.len() - 1) / 2)
            .sum();
        if count > PAIRS_MAX {
            return None;
        }
        let closure = TransitiveClosure::new(graph)?;
        let mut pairs = Vec::with_capacity(count);
        let mut first = 0;
        for group in groups() {
            let end = first + group.len() as u32;
            pairs.extend((first..end).flat_map(|one| {
                (one + 1..end).map(move |other| BlockPair {
                    one,
                    other,
                    order: PairOrder::Open,
                    heat: 0,
                })
            }));
            first = end;
        }
        let watched = Watched {
            blocks,
            pairs: &pairs,
        };
        Some(RegionSearch {
            blocks,
            closure,
            watched: successors(graph.row_count(), &watched),
            queue: Vec::new(),
            is_queued: vec![false; pairs.len()],
            decided: Vec::new(),
            pairs,
            looked: 0,
        })
    }

    /// The indices of the blocks, run by run, in an order without cycles, if one is found; counts `steps` down.
    pub(super) fn solve(mut self, steps: &mut u64) -> Option<Vec<u32>> {
        self.queue = (0..self.pairs.len() as u32).collect();
        self.is_queued.fill(true);
        let mut is_solved = self.settle().is_ok();
        if is_solved {
            is_solved = self.search(*steps);
        }
        let done = self.closure.steps + self.looked;
        *steps = steps.saturating_sub(done);
        is_solved.then(|| self.order())
    }

    /// Decides all pairs.
    fn search(&mut self, steps_max: u64) -> bool {
        let open = |pair: &u32| self.pairs[*pair as usize].order == PairOrder::Open;
        let mut open: Vec<u32> = (0..self.pairs.len() as u32).filter(open).collect();
        let base = (self.closure.clone(), self.pairs.clone());
        for _ in 0..TRIES_MAX {
            open.sort_by_key(|&pair| {
                let BlockPair { heat, .. } = self.pairs[pair as usize];
                (
                    std::cmp::Reverse(heat),
                    std::cmp::Reverse(self.distance(pair)),
                )
            });
            match self.attempt(&open) {
                Ok(()) => return true,
                Err(_) if self.closure.steps + self.looked > steps_max => return false,
                Err(pairs) => {
                    for (pair, before) in self.pairs.iter_mut().zip(&base.1) {
                        pair.order = before.order;
                    }
                    for DeadEnd(pair) in pairs {
                        self.pairs[pair as usize].heat += 1;
                    }
                    let steps = self.closure.steps;
                    self.closure.clone_from(&base.0);
                    self.closure.steps = steps;
                }
            }
        }
        false
    }

    /// Decides pairs one after the other. The error is the pairs of a dead end.
    fn attempt(&mut self, open: &[u32]) -> Result<(), [DeadEnd; 3]> {
        for &pair in open {
            if self.pairs[pair as usize].order != PairOrder::Open {
                continue;
            }
            self.closure.mark();
            self.decided.clear();
            let BlockPair { one, other, .. } = self.pairs[pair as usize];
            let is_later = self.blocks[one as usize].middle > self.blocks[other as usize].middle;
            let (wanted, opposite) = if is_later {
                (PairOrder::Backward, PairOrder::Forward)
            } else {
                (PairOrder::Forward, PairOrder::Backward)
            };
            let Err(first) = self.set(pair, wanted).and_then(|()| self.settle()) else {
                continue;
            };
            self.back();
            if let Err(second) = self.set(pair, opposite).and_then(|()| self.settle()) {
                self.clear();
                return Err([DeadEnd(pair), first, second]);
            }
        }
        Ok(())
    }

    /// Undoes all decisions since the mark.
    fn back(&mut self) {
        self.clear();
        self.closure.back();
        for pair in self.decided.drain(..) {
            self.pairs[pair as usize].order = PairOrder::Open;
        }
    }

    fn clear(&mut self) {
        for pair in self.queue.drain(..) {
            self.is_queued[pair as usize] = false;
        }
    }

    /// Saturation: decides all pairs that follow.
    fn settle(&mut self) -> Result<(), DeadEnd> {
        while let Some(pair) = self.queue.pop() {
            self.is_queued[pair as usize] = false;
            self.looked += 1;
            let BlockPair {
                one, other, order, ..
            } = self.pairs[pair as usize];
            if order != PairOrder::Open {
                continue;
            }
            let (one, other) = (&self.blocks[one as usize], &self.blocks[other as usize]);
            match (self.is_possible(one, other), self.is_possible(other, one)) {
                (true, true) => {}
                (true, false) => self.set(pair, PairOrder::Forward)?,
                (false, true) => self.set(pair, PairOrder::Backward)?,
                (false, false) => return Err(DeadEnd(pair)),
            }
        }
        Ok(())
    }

    fn is_possible(&self, one: &MovableBlock, other: &MovableBlock) -> bool {
        let mut edges = one.before(other);
        edges.all(|(from, to)| from != to && !self.closure.reaches(to, from))
    }

    /// Decides a pair, and queues the pairs for which something may follow.
    fn set(&mut self, pair: u32, order: PairOrder) -> Result<(), DeadEnd> {
        let BlockPair { one, other, .. } = self.pairs[pair as usize];
        let (one, other) = match order {
            PairOrder::Backward => (other, one),
            _ => (one, other),
        };
        self.pairs[pair as usize].order = order;
        self.decided.push(pair);
        for (from, to) in self.blocks[one as usize].before(&self.blocks[other as usize]) {
            let (queue, is_queued) = (&mut self.queue, &mut self.is_queued);
            let added = self.closure.add(from, to, |node| {
                for &pair in self.watched.row(node) {
                    if !std::mem::replace(&mut is_queued[pair as usize], true) {
                        queue.push(pair);
                    }
                }
            });
            if let Err(WouldCycle) = added {
                return Err(DeadEnd(pair));
            }
        }
        Ok(())
    }

    /// The distance of the two blocks of a pair in the guess.
    fn distance(&self, pair: u32) -> u64 {
        let BlockPair { one, other, .. } = self.pairs[pair as usize];
        let (one, other) = (&self.blocks[one as usize], &self.blocks[other as usize]);
        one.middle.abs_diff(other.middle)
    }

    /// The blocks, run by run, in the decided order.
    fn order(&self) -> Vec<u32> {
        let mut before = vec![0_u32; self.blocks.len()];
        for pair in &self.pairs {
            let later = match pair.order {
                PairOrder::Backward => pair.one,
                _ => pair.other,
            };
            before[later as usize] += 1;
        }
        let mut order: Vec<u32> = (0..self.blocks.len() as u32).collect();
        order.sort_by_key(|&block| (self.blocks[block as usize].run, before[block as usize]));
        order
    }
}

#[cfg(test)]
mod tests;
