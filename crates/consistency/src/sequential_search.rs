//! The search for a sequential order of operations whose values were written more than once.

use crate::register_history::{RegisterEffect, RegisterHistory};
use seatrial_cycles::Csr;
use std::collections::BTreeSet;

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SequentialSearchResult {
    /// There is an order.
    Found,
    /// There is none. The number of operations of the longest order that works, and the operations concurrent with its end.
    Impossible {
        /// Operations of the longest order.
        length: usize,
        /// The operations that could not come next.
        stuck: Vec<u32>,
    },
    /// The search reached its bound; the number of configurations visited.
    Exhausted(usize),
}

/// Most configurations, and most numbers in all of them together.
const CONFIGURATIONS_MAX: usize = 2_000_000;
const NUMBERS_MAX: usize = 1 << 27;

/// Searches for an order of all operations in which each session's are in their order and each read returns the last value that
/// was written to its key.
///
/// A configuration is a number of operations of each session that are done, and the value of each key. Reads that return the
/// present value are done at once: they change nothing. So only writes and compare-and-sets are choices, and each configuration
/// is visited once. Operations of unknown outcome may be left out. Deciding this is NP-complete (Gibbons and Korach 1997), so
/// there is a bound. Memory: a number for each session and key, for each configuration.
pub(crate) fn search(history: &RegisterHistory) -> SequentialSearchResult {
    let sessions = history.sessions();
    SequentialSearch {
        history,
        keys: history.keys.len(),
        width: sessions.row_count() + history.keys.len(),
        sessions,
        visited: BTreeSet::new(),
        longest: (0, Vec::new()),
    }
    .run(CONFIGURATIONS_MAX)
}

struct SequentialSearch<'h> {
    history: &'h RegisterHistory,
    sessions: Csr<u32>,
    keys: usize,
    width: usize,
    visited: BTreeSet<Box<[u32]>>,
    /// Operations of the longest order, and its configuration.
    longest: (usize, Vec<u32>),
}

impl SequentialSearch<'_> {
    fn run(mut self, configurations_max: usize) -> SequentialSearchResult {
        let mut start = vec![0; self.width];
        for (version, number) in self.history.versions.iter().zip(0..) {
            if version.is_initial() {
                start[self.sessions.row_count() + version.key as usize] = number;
            }
        }
        let mut pending = vec![start];
        while let Some(mut configuration) = pending.pop() {
            self.read(&mut configuration);
            if self.visited.contains(configuration.as_slice()) {
                continue;
            }
            if self.is_done(&configuration) {
                return SequentialSearchResult::Found;
            }
            let visited = self.visited.len();
            if visited >= configurations_max || visited * self.width > NUMBERS_MAX {
                return SequentialSearchResult::Exhausted(visited);
            }
            self.visited.insert(configuration.as_slice().into());
            self.note(&configuration);
            for session in 0..self.sessions.row_count() {
                if let Some(next) = self.step(&configuration, session) {
                    pending.push(next);
                }
            }
        }
        let (length, configuration) = self.longest;
        let fronts = (0..self.sessions.row_count()).filter_map(|session| {
            let done = configuration.get(session).copied().unwrap_or(0);
            let row = self.sessions.row(session as u32);
            row.get(done as usize).copied()
        });
        let stuck = fronts.collect();
        SequentialSearchResult::Impossible { length, stuck }
    }

    fn next(&self, configuration: &[u32], session: usize) -> Option<u32> {
        let row = self.sessions.row(session as u32);
        row.get(configuration[session] as usize).copied()
    }

    /// Does all reads that return the present values.
    fn read(&self, configuration: &mut [u32]) {
        let keys = self.width - self.keys;
        for session in 0..self.sessions.row_count() {
            while let Some(next) = self.next(configuration, session) {
                let action = &self.history.actions[next as usize];
                match action.access {
                    RegisterEffect::Read(version)
                        if configuration[keys + action.key as usize] == version =>
                    {
                        configuration[session] += 1;
                    }
                    _ => break,
                }
            }
        }
    }

    /// The configuration after the next write or compare-and-set of a session.
    fn step(&self, configuration: &[u32], session: usize) -> Option<Vec<u32>> {
        let next = self.next(configuration, session)?;
        let action = &self.history.actions[next as usize];
        let key = self.width - self.keys + action.key as usize;
        let version = match action.access {
            RegisterEffect::Read(_) => return None,
            RegisterEffect::Write(version) => version,
            RegisterEffect::CompareAndSet(from, to) => {
                if configuration[key] != from {
                    return None;
                }
                to
            }
        };
        let mut after = configuration.to_vec();
        after[session] += 1;
        after[key] = version;
        Some(after)
    }

    /// Are all operations of known outcome done? One of unknown outcome is the last one of its session.
    fn is_done(&self, configuration: &[u32]) -> bool {
        (0..self.sessions.row_count()).all(|session| {
            let next = self.next(configuration, session);
            next.is_none_or(|next| !self.history.actions[next as usize].is_certain())
        })
    }

    fn note(&mut self, configuration: &[u32]) {
        let done = &configuration[..self.width - self.keys];
        let length = done.iter().map(|&done| done as usize).sum();
        if length > self.longest.0 || self.longest.1.is_empty() {
            self.longest = (length, configuration.to_vec());
        }
    }
}
