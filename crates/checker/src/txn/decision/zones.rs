//! A guess of the order of versions.

use super::facts::Facts;
use super::known::Known;
use super::lists::{Lists, Relation};
use crate::txn::transactions::NONE;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When each transaction may have taken place, as far as clients saw it: from and to, on whatever scale.
///
/// What it read was there before, and whoever read from it came after: that makes the windows narrower. They are hints:
/// whatever is guessed with them is verified.
pub(super) struct Windows {
    /// By transaction: from and to.
    spans: Vec<(u32, u32)>,
    /// Does the place of its writer say where a version stands, because somebody told that?
    is_told: bool,
}

impl Windows {
    /// What the windows may have been, the likeliest first: in an order that was exported, then as clients saw it. If that
    /// says little, because there are no times or nothing ever ran at the same time, also in the order of the file, and as far
    /// as each session had come.
    pub(super) fn guesses(known: &Known<'_>) -> Vec<Windows> {
        let facts = known.facts;
        let is_timed = facts.times.iter().any(|time| time.0 != NONE);
        let from = |time: &(u32, u32)| (if time.0 == NONE { 0 } else { time.0 }, time.1);
        let timed = || facts.times.iter().map(from).collect();
        let filed = || (0..facts.len()).map(|number| (number, number)).collect();
        let mut guesses: Vec<Vec<(u32, u32)>> = match (is_timed, is_serial(facts)) {
            (true, false) => vec![timed()],
            (true, true) => vec![timed(), interleaved(facts)],
            (false, _) => vec![filed(), interleaved(facts)],
        };
        if facts.sessions.iter().all(|&session| session == 0) {
            guesses.truncate(1);
        }
        let windows = guesses.into_iter().map(|spans| {
            let is_told = false;
            let mut windows = Windows { spans, is_told };
            windows.narrow(facts);
            windows
        });
        let mut windows: Vec<Windows> = windows.collect();
        if facts.ranks.iter().any(|&rank| rank != NONE) {
            let told = windows[0].told(facts);
            windows.insert(0, told);
        }
        windows
    }

    /// Points in the order that was exported. Transactions that it does not have stand where they would stand without it.
    fn told(&self, facts: &Facts) -> Windows {
        let mut order: Vec<u32> = (0..facts.len()).collect();
        order.sort_by_key(|&number| self.middle(number));
        let is_ranked = |&number: &u32| facts.ranks[number as usize] != NONE;
        let mut ranked: Vec<u32> = order.iter().copied().filter(is_ranked).collect();
        ranked.sort_by_key(|&number| facts.ranks[number as usize]);
        let mut ranked = ranked.into_iter();
        let mut spans = vec![(0, 0); order.len()];
        for (place, number) in order.into_iter().enumerate() {
            let next = is_ranked(&number).then(|| ranked.next()).flatten();
            let next = next.unwrap_or(number);
            spans[next as usize] = (place as u32, place as u32);
        }
        let is_told = true;
        Windows { spans, is_told }
    }

    /// Twice the middle of a transaction's window.
    pub(super) fn middle(&self, number: u32) -> u64 {
        let (from, to) = self.spans[number as usize];
        // Who never completed has been under way for long when it is seen.
        let to = if to == NONE { from } else { to };
        u64::from(from) + u64::from(to)
    }

    /// The end of the window of a transaction, then its begin: what is certain to have taken place first comes first.
    pub(super) fn deadline(&self, number: u32) -> (u32, u32) {
        let (from, to) = self.spans[number as usize];
        (to, from)
    }

    fn narrow(&mut self, facts: &Facts) {
        for number in 0..facts.len() {
            for &version in facts.reads.of(number) {
                let writer = facts.writers[version as usize];
                if writer != NONE {
                    let from = self.spans[writer as usize].0;
                    let own = &mut self.spans[number as usize].0;
                    *own = (*own).max(from);
                }
            }
        }
        for number in (0..facts.len()).rev() {
            let to = self.spans[number as usize].1;
            for &version in facts.reads.of(number) {
                let writer = facts.writers[version as usize];
                if writer != NONE {
                    let own = &mut self.spans[writer as usize].1;
                    *own = (*own).min(to);
                }
            }
        }
    }

    /// Puts the blocks of each key in order by the middle of their zones: from the first end of the transactions that
    /// wrote or read one of its versions to their last begin (Gibbons and Korach 1997). In an order that was told, by who wrote
    /// them: those who read them may come much later.
    pub(super) fn order(&self, known: &Known<'_>) -> Lists {
        let blocks = known.blocks;
        let mut heads = blocks.heads.clone();
        let mut middles: Vec<(u64, u32)> = Vec::new();
        for key in 0..known.facts.keys {
            let row = heads.of_mut(key);
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
    fn zone(&self, known: &Known<'_>, head: u32) -> u64 {
        if self.is_told {
            return self.middle(known.facts.writers[head as usize]);
        }
        let (mut first_end, mut last_begin) = (NONE, 0);
        for version in known.blocks.members(head) {
            let writer = known.facts.writers[version as usize];
            let readers = known.blocks.readers.of(version).iter();
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

/// Did nothing run at the same time as anything else?
fn is_serial(facts: &Facts) -> bool {
    let mut last = 0;
    facts.times.iter().all(|&(begun, ended)| {
        let is_later = begun >= last && ended != NONE;
        last = ended;
        is_later
    })
}

/// Instants for transactions without times: sessions are carried out side by side, each as far as the others, and nothing is read
/// before it is written.
fn interleaved(facts: &Facts) -> Vec<(u32, u32)> {
    let sessions = facts
        .sessions
        .iter()
        .max()
        .map_or(0, |&one| one as usize + 1);
    let mut lengths = vec![0_u32; sessions];
    for &session in &facts.sessions {
        lengths[session as usize] += 1;
    }
    let mut passed = vec![0_u64; sessions];
    let progress = facts.sessions.iter().map(|&session| {
        let passed = &mut passed[session as usize];
        *passed += 1;
        (*passed << 32) / u64::from(lengths[session as usize] + 1)
    });
    let progress: Vec<u64> = progress.collect();
    let order = ranked(facts.len(), &Program(facts), |number| {
        progress[number as usize]
    });
    let mut windows = vec![(0, NONE); facts.len() as usize];
    for (place, number) in order.into_iter().enumerate() {
        windows[number as usize] = (place as u32, place as u32);
    }
    windows
}

/// The order of sessions and of reads after what they saw.
struct Program<'a>(&'a Facts);

impl Relation for Program<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        let facts = self.0;
        let mut last = vec![NONE; facts.session_count()];
        for number in 0..facts.len() {
            let last = &mut last[facts.sessions[number as usize] as usize];
            if *last != NONE {
                take(*last, number);
            }
            *last = number;
            for &version in facts.reads.of(number) {
                let writer = facts.writers[version as usize];
                if writer != NONE {
                    take(writer, number);
                }
            }
        }
    }
}

/// The nodes in an order in which no edge leads back, lowest ranks first where there is a choice. What is on or behind a
/// cycle is left out.
pub(super) fn ranked(nodes: u32, relation: &impl Relation, rank: impl Fn(u32) -> u64) -> Vec<u32> {
    let edges = Lists::forward(nodes as usize, relation);
    let mut before = vec![0_u32; nodes as usize];
    edges.tell(&mut |_, to| before[to as usize] += 1);
    let free = (0..nodes).filter(|&node| before[node as usize] == 0);
    let mut free: BinaryHeap<_> = free.map(|node| Reverse((rank(node), node))).collect();
    let mut order = Vec::with_capacity(nodes as usize);
    while let Some(Reverse((_, node))) = free.pop() {
        order.push(node);
        for &to in edges.of(node) {
            before[to as usize] -= 1;
            if before[to as usize] == 0 {
                free.push(Reverse((rank(to), to)));
            }
        }
    }
    order
}
