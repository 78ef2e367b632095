//! A guess of the version order from the times at which clients saw versions.

use super::constraints::Constraints;
use super::known_order::KnownOrder;
use super::relation::{Relation, successors};
use seatrial_cycles::{Csr, NONE};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When each transaction may have taken place, as seen by clients: from and to, on any scale.
///
/// A transaction took place after those that it read from and before those that read from it, which narrows the windows.
/// They are hints: all that is guessed from them is verified.
pub(super) struct TransactionWindows {
    /// By transaction: from and to.
    spans: Vec<(u32, u32)>,
    /// Are these points of an exported order, so that the place of its writer is that of a version?
    is_exported: bool,
}

impl TransactionWindows {
    /// Possible windows, the most likely first: an exported order, then the times that clients saw. If these say little,
    /// because there are no times or nothing was concurrent, also the order of the file, and the progress of each session.
    pub(super) fn guesses(known: &KnownOrder<'_>) -> Vec<TransactionWindows> {
        let constraints = known.constraints;
        let is_timed = constraints.times.iter().any(|time| time.0 != NONE);
        let from = |time: &(u32, u32)| (if time.0 == NONE { 0 } else { time.0 }, time.1);
        let timed = || constraints.times.iter().map(from).collect();
        let filed = || {
            (0..constraints.len())
                .map(|number| (number, number))
                .collect()
        };
        let mut guesses: Vec<Vec<(u32, u32)>> = match (is_timed, is_serial(constraints)) {
            (true, false) => vec![timed()],
            (true, true) => vec![timed(), interleaved(constraints)],
            (false, _) => vec![filed(), interleaved(constraints)],
        };
        if constraints.sessions.iter().all(|&session| session == 0) {
            guesses.truncate(1);
        }
        let windows = guesses.into_iter().map(|spans| {
            let is_exported = false;
            let mut windows = TransactionWindows { spans, is_exported };
            windows.narrow(constraints);
            windows
        });
        let mut windows: Vec<TransactionWindows> = windows.collect();
        if constraints.ranks.iter().any(Option::is_some) {
            let exported = windows[0].exported(constraints);
            windows.insert(0, exported);
        }
        windows
    }

    /// Points of the exported order. Transactions that are not in it are placed as without it.
    fn exported(&self, constraints: &Constraints) -> TransactionWindows {
        let mut order: Vec<u32> = (0..constraints.len()).collect();
        order.sort_by_key(|&number| self.middle(number));
        let is_ranked = |&number: &u32| constraints.ranks[number as usize].is_some();
        let mut ranked: Vec<u32> = order.iter().copied().filter(is_ranked).collect();
        ranked.sort_by_key(|&number| constraints.ranks[number as usize]);
        let mut ranked = ranked.into_iter();
        let mut spans = vec![(0, 0); order.len()];
        for (place, number) in order.into_iter().enumerate() {
            let next = is_ranked(&number).then(|| ranked.next()).flatten();
            let next = next.unwrap_or(number);
            spans[next as usize] = (place as u32, place as u32);
        }
        let is_exported = true;
        TransactionWindows { spans, is_exported }
    }

    /// Twice the middle of a transaction's window.
    pub(super) fn middle(&self, number: u32) -> u64 {
        let (from, to) = self.spans[number as usize];
        // One that never completed was probably in progress for long, so its begin is as good as anything.
        let to = if to == NONE { from } else { to };
        u64::from(from) + u64::from(to)
    }

    /// The end of a transaction's window, then its begin: the one that certainly took place first comes first.
    pub(super) fn deadline(&self, number: u32) -> (u32, u32) {
        let (from, to) = self.spans[number as usize];
        (to, from)
    }

    fn narrow(&mut self, constraints: &Constraints) {
        for number in 0..constraints.len() {
            for &version in constraints.reads.row(number) {
                if let Some(writer) = constraints.writer(version) {
                    let from = self.spans[writer.index()].0;
                    let own = &mut self.spans[number as usize].0;
                    *own = (*own).max(from);
                }
            }
        }
        for number in (0..constraints.len()).rev() {
            let to = self.spans[number as usize].1;
            for &version in constraints.reads.row(number) {
                if let Some(writer) = constraints.writer(version) {
                    let own = &mut self.spans[writer.index()].1;
                    *own = (*own).min(to);
                }
            }
        }
    }

    /// Sorts the blocks of each key by the middle of their zones: from the first end of the transactions that wrote or read
    /// one of its versions to their last begin (Gibbons and Korach 1997). In an exported order by their writers, since
    /// readers may come much later.
    pub(super) fn order(&self, known: &KnownOrder<'_>) -> Csr<u32> {
        let blocks = known.blocks;
        let mut heads = blocks.heads.clone();
        let mut middles: Vec<(u64, u32)> = Vec::new();
        for key in 0..known.constraints.keys {
            let row = heads.row_mut(key);
            middles.clear();
            middles.extend(row.iter().map(|&head| (self.zone(known, head), head)));
            middles.sort_unstable();
            for (place, &(_, head)) in row.iter_mut().zip(&middles) {
                *place = head;
            }
        }
        heads
    }

    /// Twice the middle of a block's zone.
    fn zone(&self, known: &KnownOrder<'_>, head: u32) -> u64 {
        if self.is_exported {
            return self.middle(known.constraints.writer_of_written(head).get());
        }
        let (mut first_end, mut last_begin) = (NONE, 0);
        for version in known.blocks.members(head) {
            let writer = known.constraints.writer_of_written(version).get();
            let readers = known.blocks.readers.row(version).iter();
            for &number in readers.chain([&writer]) {
                let (begin, end) = self.spans[number as usize];
                first_end = first_end.min(end);
                last_begin = last_begin.max(begin);
            }
        }
        if first_end == NONE {
            first_end = last_begin;
        }
        u64::from(first_end) + u64::from(last_begin)
    }
}

/// Was nothing concurrent?
fn is_serial(constraints: &Constraints) -> bool {
    let mut last = 0;
    constraints.times.iter().all(|&(begun, ended)| {
        let is_later = begun >= last && ended != NONE;
        last = ended;
        is_later
    })
}

/// Points for transactions without times: sessions run side by side with equal progress, and nothing is read before it is
/// written.
fn interleaved(constraints: &Constraints) -> Vec<(u32, u32)> {
    let sessions = constraints
        .sessions
        .iter()
        .max()
        .map_or(0, |&one| one as usize + 1);
    let mut lengths = vec![0_u32; sessions];
    for &session in &constraints.sessions {
        lengths[session as usize] += 1;
    }
    let mut passed = vec![0_u64; sessions];
    let progress = constraints.sessions.iter().map(|&session| {
        let passed = &mut passed[session as usize];
        *passed += 1;
        (*passed << 32) / u64::from(lengths[session as usize] + 1)
    });
    let progress: Vec<u64> = progress.collect();
    let order = ranked(constraints.len(), &ProgramOrder(constraints), |number| {
        progress[number as usize]
    });
    let mut windows = vec![(0, NONE); constraints.len() as usize];
    for (place, number) in order.into_iter().enumerate() {
        windows[number as usize] = (place as u32, place as u32);
    }
    windows
}

/// The order of sessions, and of reads after the writes that they saw.
struct ProgramOrder<'a>(&'a Constraints);

impl Relation for ProgramOrder<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        let constraints = self.0;
        // By session: its last transaction so far.
        let mut last: Vec<Option<u32>> = vec![None; constraints.session_count()];
        for number in 0..constraints.len() {
            let last = &mut last[constraints.sessions[number as usize] as usize];
            if let Some(last) = last.replace(number) {
                take(last, number);
            }
            for &version in constraints.reads.row(number) {
                if let Some(writer) = constraints.writer(version) {
                    take(writer.get(), number);
                }
            }
        }
    }
}

/// The nodes in topological order, lowest ranks first where there is a choice. Nodes on cycles or after them are left out.
pub(super) fn ranked(nodes: u32, relation: &impl Relation, rank: impl Fn(u32) -> u64) -> Vec<u32> {
    let edges = successors(nodes as usize, relation);
    let mut before = vec![0_u32; nodes as usize];
    edges.emit(&mut |_, to| before[to as usize] += 1);
    let free = (0..nodes).filter(|&node| before[node as usize] == 0);
    let mut free: BinaryHeap<_> = free.map(|node| Reverse((rank(node), node))).collect();
    let mut order = Vec::with_capacity(nodes as usize);
    while let Some(Reverse((_, node))) = free.pop() {
        order.push(node);
        for &to in edges.row(node) {
            before[to as usize] -= 1;
            if before[to as usize] == 0 {
                free.push(Reverse((rank(to), to)));
            }
        }
    }
    order
}
