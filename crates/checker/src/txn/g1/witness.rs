//! Further passes over a history in which the first one saw an anomaly: who read it, and who wrote it.

use super::marks::{FAILED, INTERMEDIATE, Keys, WRITTEN};
use super::scan::mops;
use crate::Anomaly;
use crate::txn::anomaly::{G1A, G1B, GARBAGE_READ};
use crate::txn::explain::line;
use crate::txn::findings::FINDINGS_MAX;
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Marks what failed transactions wrote whose completions do not say it.
pub(super) struct Unresolved {
    /// Positions of their invocations.
    pub(super) invocations: BTreeSet<u64>,
}

impl Fold for Unresolved {
    type Accumulator = Keys;
    type Output = Keys;

    fn name(&self) -> String {
        "g1: failed invocations".into()
    }

    fn start(&self) -> Keys {
        Keys::new()
    }

    fn reduce(&self, keys: &mut Keys, chunk: &Chunk) -> ControlFlow<()> {
        let first = chunk.first_position();
        for position in self.invocations.range(first..first + chunk.len() as u64) {
            let place = (position - first) as usize;
            for (key, element) in appends(chunk, place) {
                let marks = keys.entry(chunk.key(key).clone()).or_default();
                marks.mark(element, FAILED);
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, keys: &mut Keys, later: Keys) -> ControlFlow<()> {
        for (key, marks) in later {
            keys.entry(key).or_default().join(marks);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, keys: Keys) -> Keys {
        keys
    }
}

/// What the operation at `place` appends: key ids and elements.
pub(super) fn appends(chunk: &Chunk, place: usize) -> impl Iterator<Item = (u32, i64)> {
    let (start, end) = mops(chunk, place).unwrap_or_default();
    let is_append = |&mop: &usize| chunk.mop_tags()[mop] == mop_tag::APPEND;
    let appends = (start..end).filter(is_append);
    appends.map(|mop| (chunk.mop_keys()[mop], chunk.mop_arguments()[mop]))
}

/// A read with an anomaly.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// The element, and of which key.
    pub(super) key: Key,
    pub(super) element: i64,
    /// The reader's index, and what it did.
    pub(super) index: u64,
    pub(super) reader: String,
}

/// Anomalous reads, all counted and the first of each kind kept.
pub(super) type Reads = BTreeMap<Anomaly, (u64, Vec<Read>)>;

/// Finds the reads of marked elements.
pub(super) struct Readers {
    /// The marks of keys with an anomaly.
    pub(super) keys: Keys,
}

impl Fold for Readers {
    type Accumulator = Reads;
    type Output = Reads;

    fn name(&self) -> String {
        "g1: readers".into()
    }

    fn start(&self) -> Reads {
        Reads::new()
    }

    fn reduce(&self, reads: &mut Reads, chunk: &Chunk) -> ControlFlow<()> {
        let ids = (0..chunk.key_count() as u32).map(|id| self.keys.get(chunk.key(id)));
        let marks: Vec<_> = ids.collect();
        if marks.iter().all(Option::is_none) {
            return ControlFlow::Continue(());
        }
        for (place, op) in chunk.views().enumerate() {
            if op.kind() != OpType::Ok || !op.process().is_client() {
                continue;
            }
            let (start, end) = mops(chunk, place).unwrap_or_default();
            for mop in start..end {
                let id = chunk.mop_keys()[mop];
                let Some(marks) = marks[id as usize] else {
                    continue;
                };
                let elements = elements(chunk, mop);
                let mut tell = |anomaly, element| {
                    let (count, kept) = reads.entry(anomaly).or_default();
                    *count += 1;
                    if kept.len() < FINDINGS_MAX {
                        kept.push(Read {
                            key: chunk.key(id).clone(),
                            element,
                            index: op.index(),
                            reader: line(&op.op(), op.kind().name()),
                        });
                    }
                };
                for &element in elements {
                    if !marks.is(element, WRITTEN) {
                        tell(GARBAGE_READ, element);
                    } else if marks.is(element, FAILED) {
                        tell(G1A, element);
                    }
                }
                if let Some(&last) = elements.last()
                    && marks.is(last, INTERMEDIATE)
                    && !appends(chunk, place).any(|append| append == (id, last))
                {
                    tell(G1B, last);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, reads: &mut Reads, later: Reads) -> ControlFlow<()> {
        for (anomaly, (count, kept)) in later {
            let mine = reads.entry(anomaly).or_default();
            mine.0 += count;
            mine.1.extend(kept);
            mine.1.truncate(FINDINGS_MAX);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, reads: Reads) -> Reads {
        reads
    }
}

/// What a read observed; nothing for other micro-operations.
fn elements(chunk: &Chunk, mop: usize) -> &[i64] {
    let argument = chunk.mop_arguments()[mop];
    match chunk.mop_tags()[mop] {
        mop_tag::READ_PREFIX => &chunk.list(chunk.mop_keys()[mop])[..argument as usize],
        mop_tag::READ_BRANCH => chunk.reference(argument),
        _ => &[],
    }
}

/// Shows operations: who appended certain elements, and certain indices.
pub(super) struct Shown {
    /// Of an element that was appended again after a failure, where the attempt was invoked that did not fail.
    pub(super) appends: BTreeMap<(Key, i64), Option<u64>>,
    pub(super) indices: BTreeSet<u64>,
}

/// Operations as text.
#[derive(Default)]
pub(super) struct Lines {
    /// By append: the index of the last operation that has it, which is its completion if there is one.
    pub(super) writers: BTreeMap<(Key, i64), (u64, String)>,
    pub(super) operations: BTreeMap<u64, String>,
}

impl Fold for Shown {
    type Accumulator = Lines;
    type Output = Lines;

    fn name(&self) -> String {
        "g1: writers".into()
    }

    fn start(&self) -> Lines {
        Lines::default()
    }

    fn reduce(&self, lines: &mut Lines, chunk: &Chunk) -> ControlFlow<()> {
        let keys: BTreeSet<_> = self.appends.keys().map(|append| &append.0).collect();
        let ids = (0..chunk.key_count() as u32).map(|id| keys.contains(chunk.key(id)));
        let is_wanted: Vec<bool> = ids.collect();
        let (first, last) = (chunk.index(0), chunk.index(chunk.len() - 1));
        for index in self.indices.range(first..=last) {
            if let Some(place) = chunk.place(*index) {
                let op = chunk.op(place);
                lines.operations.insert(*index, line(&op, op.kind.name()));
            }
        }
        if !is_wanted.contains(&true) {
            return ControlFlow::Continue(());
        }
        for (place, op) in chunk.views().enumerate() {
            if !op.process().is_client() {
                continue;
            }
            for (id, element) in appends(chunk, place).filter(|append| is_wanted[append.0 as usize])
            {
                let append = (chunk.key(id).clone(), element);
                let invocation = || {
                    let own = chunk.first_position() + place as u64;
                    chunk.invocation(place).unwrap_or(own)
                };
                let attempt = self.appends.get(&append);
                if attempt.is_some_and(|attempt| attempt.is_none_or(|at| at == invocation())) {
                    let outcome = match op.kind() {
                        OpType::Invoke => "never completed",
                        kind => kind.name(),
                    };
                    let text = line(&op.op(), outcome);
                    lines.writers.insert(append, (op.index(), text));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, lines: &mut Lines, later: Lines) -> ControlFlow<()> {
        lines.writers.extend(later.writers);
        lines.operations.extend(later.operations);
        ControlFlow::Continue(())
    }

    fn finish(&self, lines: Lines) -> Lines {
        lines
    }
}
