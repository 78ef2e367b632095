//! Weak models of registers by their axioms.
//!
//! Definitions: Biswas and Enea 2019 (read committed, read atomic, causal), Terry and others 1994 (session guarantees), Lipton
//! and Sandberg 1988 and Brzezinski and others 2004 (PRAM), each put as an axiom of Biswas and Enea's form: there is one
//! order of commits, which agrees with sessions and with who reads from whom, and in which every writer of a key that a
//! reader has *seen* comes no later than the one that it reads the key from.

use crate::case::{Case, Set, TRANSACTIONS_MAX, Txn, members_of};
use crate::phenomena::{Edges, closure, is_acyclic, union};

/// The weak models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weak {
    ReadCommitted,
    ReadAtomic,
    Causal,
    ReadYourWrites,
    MonotonicReads,
    MonotonicWrites,
    WritesFollowReads,
    Pram,
}

impl Weak {
    /// By name.
    pub(crate) const ALL: [(&str, Weak); 8] = [
        ("axiomatic-read-committed", Weak::ReadCommitted),
        ("axiomatic-read-atomic", Weak::ReadAtomic),
        ("causal", Weak::Causal),
        ("read-your-writes", Weak::ReadYourWrites),
        ("monotonic-reads", Weak::MonotonicReads),
        ("monotonic-writes", Weak::MonotonicWrites),
        ("writes-follow-reads", Weak::WritesFollowReads),
        ("pram", Weak::Pram),
    ];
}

/// A read that no own write comes before: at which micro-operation, of which key, from whom (`None`: the initial state).
#[derive(Clone, Copy, Debug)]
struct ReadSource {
    key: u8,
    writer: Option<usize>,
}

/// Reads and sessions of the members of a case.
pub(crate) struct Axioms<'a> {
    case: &'a Case,
    members: Set,
    /// By transaction its sources in order; nothing when a read is wrong at any level.
    sources: Option<Vec<Vec<ReadSource>>>,
    /// By transaction: later ones of its session, and those that read from it.
    sessions: Edges,
    reads: Edges,
}

impl Axioms<'_> {
    pub(crate) fn new(case: &Case) -> Axioms<'_> {
        let members = case.members();
        let mut axioms = Axioms {
            case,
            members,
            sources: None,
            sessions: Edges::default(),
            reads: Edges::default(),
        };
        let all = case.txns.iter().enumerate();
        let sources: Option<Vec<_>> = all.map(|(number, _)| axioms.sources_of(number)).collect();
        for one in members_of(members) {
            for other in members_of(members) {
                let is_before = case.txns[one].is_run_before(&case.txns[other]);
                axioms.sessions[one] |= u8::from(is_before) << other;
            }
        }
        for reader in members_of(members) {
            for source in sources.iter().flat_map(|sources| &sources[reader]) {
                if let Some(writer) = source.writer {
                    axioms.reads[writer] |= 1 << reader;
                }
            }
        }
        axioms.sources = sources;
        axioms
    }

    /// Whom a transaction reads from.
    fn sources_of(&self, number: usize) -> Option<Vec<ReadSource>> {
        let txn = &self.case.txns[number];
        let mut sources = Vec::new();
        if !txn.is_ok() {
            return Some(sources);
        }
        for (at, micro) in txn.micros.iter().enumerate() {
            if micro.is_write {
                continue;
            }
            let own = txn.micros[..at].iter().rev();
            let mut own = own.filter(|it| it.is_write && it.key == micro.key);
            if let Some(own) = own.next() {
                if own.value != micro.value {
                    return None;
                }
                continue;
            }
            let key = micro.key;
            let writer = if micro.value == 0 {
                None
            } else {
                let others = members_of(self.members).filter(|&other| other != number);
                let mut writers = others
                    .filter(|&other| last_write(&self.case.txns[other], key) == Some(micro.value));
                Some(writers.next()?)
            };
            sources.push(ReadSource { key, writer });
        }
        Some(sources)
    }

    /// Is this model kept?
    pub(crate) fn is_kept(&self, model: Weak) -> bool {
        let Some(all) = &self.sources else {
            return false;
        };
        let mut before = union(self.sessions, self.reads);
        let happened = closure(before);
        for reader in members_of(self.members) {
            for (at, source) in all[reader].iter().enumerate() {
                let seen = self.seen(model, reader, at, happened);
                for writer in members_of(seen & !(1 << reader)) {
                    let is_source = source.writer == Some(writer);
                    if is_source || !self.case.txns[writer].has_written(source.key) {
                        continue;
                    }
                    let Some(source) = source.writer else {
                        return false;
                    };
                    before[writer] |= 1 << source;
                }
            }
        }
        is_acyclic(closure(before))
    }

    /// Which transactions has a reader seen, at its read of this place?
    fn seen(&self, model: Weak, reader: usize, at: usize, happened: Edges) -> Set {
        let sources = |one: usize| {
            let all = self.sources.iter().flat_map(move |sources| &sources[one]);
            all.filter_map(|source| source.writer)
                .fold(0, |set: Set, writer| set | 1 << writer)
        };
        let earlier = |one: usize| before(self.sessions, one);
        let earlier_of = |set: Set| members_of(set).fold(0, |all, one| all | earlier(one));
        let sources_of = |set: Set| members_of(set).fold(0, |all, one| all | sources(one));
        match model {
            Weak::ReadCommitted => {
                let all = self
                    .sources
                    .iter()
                    .flat_map(|sources| &sources[reader][..=at]);
                all.filter_map(|source| source.writer)
                    .fold(0, |set, writer| set | 1 << writer)
            }
            Weak::ReadAtomic => earlier(reader) | sources(reader),
            Weak::Causal => before(happened, reader),
            Weak::ReadYourWrites => earlier(reader),
            Weak::MonotonicReads => sources_of(earlier(reader)),
            Weak::MonotonicWrites => earlier_of(sources(reader)),
            Weak::WritesFollowReads => {
                let from = sources(reader);
                sources_of(from | earlier_of(from))
            }
            Weak::Pram => {
                let mine = earlier(reader);
                let met = mine | sources_of(mine) | sources(reader);
                met | earlier_of(met)
            }
        }
    }
}

/// Who leads to this transaction.
fn before(edges: Edges, number: usize) -> Set {
    (0..TRANSACTIONS_MAX).fold(0, |set, one| set | (edges[one] >> number & 1) << one)
}

/// The final write of a transaction to a key.
fn last_write(txn: &Txn, key: u8) -> Option<u64> {
    let writes = txn.writes().filter(|write| write.0 == key);
    writes.last().map(|write| write.1)
}
