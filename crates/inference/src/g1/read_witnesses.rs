//! Witnesses of anomalous reads: further passes that find the readers and the writers of the elements.

use super::element_bits::{FAILED, INTERMEDIATE, KeyBits, WRITTEN};
use seatrial_checker::Anomaly;
use seatrial_checker::FINDINGS_MAX;
use seatrial_cycles::anomaly::{G1A, G1B, GARBAGE_READ};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType};
use seatrial_isolation::explain::line;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Sets [`FAILED`] for the writes of failed transactions whose completions do not repeat them.
pub(super) struct UnresolvedFold {
    /// Positions of their invocations.
    pub(super) invocations: BTreeSet<u64>,
}

impl Fold for UnresolvedFold {
    type Accumulator = KeyBits;
    type Output = KeyBits;

    fn name(&self) -> String {
        "g1: failed invocations".into()
    }

    fn start(&self) -> KeyBits {
        KeyBits::new()
    }

    fn reduce(&self, keys: &mut KeyBits, chunk: &Chunk) -> ControlFlow<()> {
        let first = chunk.first_position();
        for position in self.invocations.range(first..first + chunk.len() as u64) {
            let place = (position - first) as usize;
            for (key, element) in appends(chunk, place) {
                let bits = keys.entry(chunk.key(key).clone()).or_default();
                bits.set(element, FAILED);
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, keys: &mut KeyBits, later: KeyBits) -> ControlFlow<()> {
        for (key, bits) in later {
            keys.entry(key).or_default().join(bits);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, keys: KeyBits) -> KeyBits {
        keys
    }
}

/// The appends of the operation at `place`: key ids and elements.
pub(super) fn appends(chunk: &Chunk, place: usize) -> impl Iterator<Item = (u32, i64)> {
    let (start, end) = chunk.txn_range(place).unwrap_or_default();
    let is_append = |&mop: &usize| chunk.mop_tags()[mop] == mop_tag::APPEND;
    let appends = (start..end).filter(is_append);
    appends.map(|mop| (chunk.mop_keys()[mop], chunk.mop_arguments()[mop]))
}

/// A read with an anomaly.
#[derive(Clone, Debug)]
pub(super) struct AnomalousRead {
    /// Key and element.
    pub(super) key: Key,
    pub(super) element: i64,
    /// The reader's index, and its operation as text.
    pub(super) index: u64,
    pub(super) reader: String,
}

/// Counts of anomalous reads, and the first of each anomaly.
pub(super) type AnomalousReads = BTreeMap<Anomaly, (u64, Vec<AnomalousRead>)>;

/// Finds the anomalous reads of these keys.
pub(super) struct ReaderFold {
    /// The bits of keys with an anomaly.
    pub(super) keys: KeyBits,
}

impl Fold for ReaderFold {
    type Accumulator = AnomalousReads;
    type Output = AnomalousReads;

    fn name(&self) -> String {
        "g1: readers".into()
    }

    fn start(&self) -> AnomalousReads {
        AnomalousReads::new()
    }

    fn reduce(&self, reads: &mut AnomalousReads, chunk: &Chunk) -> ControlFlow<()> {
        let ids = (0..chunk.key_count() as u32).map(|id| self.keys.get(chunk.key(id)));
        let bits: Vec<_> = ids.collect();
        if bits.iter().all(Option::is_none) {
            return ControlFlow::Continue(());
        }
        for (place, op) in chunk.views().enumerate() {
            if op.kind() != OpType::Ok || !op.process().is_client() {
                continue;
            }
            let (start, end) = chunk.txn_range(place).unwrap_or_default();
            for mop in start..end {
                let id = chunk.mop_keys()[mop];
                let Some(bits) = bits[id as usize] else {
                    continue;
                };
                let elements = elements(chunk, mop);
                let mut add = |anomaly, element| {
                    let (count, kept) = reads.entry(anomaly).or_default();
                    *count += 1;
                    if kept.len() < FINDINGS_MAX {
                        kept.push(AnomalousRead {
                            key: chunk.key(id).clone(),
                            element,
                            index: op.index(),
                            reader: line(&op.op(), op.kind().name()),
                        });
                    }
                };
                for &element in elements {
                    if !bits.get(element, WRITTEN) {
                        add(GARBAGE_READ, element);
                    } else if bits.get(element, FAILED) {
                        add(G1A, element);
                    }
                }
                if let Some(&last) = elements.last()
                    && bits.get(last, INTERMEDIATE)
                    && !appends(chunk, place).any(|append| append == (id, last))
                {
                    add(G1B, last);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, reads: &mut AnomalousReads, later: AnomalousReads) -> ControlFlow<()> {
        for (anomaly, (count, kept)) in later {
            let mine = reads.entry(anomaly).or_default();
            mine.0 += count;
            mine.1.extend(kept);
            mine.1.truncate(FINDINGS_MAX);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, reads: AnomalousReads) -> AnomalousReads {
        reads
    }
}

/// The elements of a read; none for other micro-operations.
fn elements(chunk: &Chunk, mop: usize) -> &[i64] {
    let argument = chunk.mop_arguments()[mop];
    match chunk.mop_tags()[mop] {
        mop_tag::READ_PREFIX => &chunk.list(chunk.mop_keys()[mop])[..argument as usize],
        mop_tag::READ_BRANCH => chunk.reference(argument),
        _ => &[],
    }
}

/// Collects operations as text: the writers of certain elements, and certain indices.
pub(super) struct WriterFold {
    /// For an element that was retried, the position of the invocation of the attempt that did not fail.
    pub(super) appends: BTreeMap<(Key, i64), Option<u64>>,
    pub(super) indices: BTreeSet<u64>,
}

/// Operations as text.
#[derive(Default)]
pub(super) struct OperationTexts {
    /// By append: the index of the last operation with it, its completion if there is one.
    pub(super) writers: BTreeMap<(Key, i64), (u64, String)>,
    pub(super) operations: BTreeMap<u64, String>,
}

impl Fold for WriterFold {
    type Accumulator = OperationTexts;
    type Output = OperationTexts;

    fn name(&self) -> String {
        "g1: writers".into()
    }

    fn start(&self) -> OperationTexts {
        OperationTexts::default()
    }

    fn reduce(&self, lines: &mut OperationTexts, chunk: &Chunk) -> ControlFlow<()> {
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

    fn combine(&self, lines: &mut OperationTexts, later: OperationTexts) -> ControlFlow<()> {
        lines.writers.extend(later.writers);
        lines.operations.extend(later.operations);
        ControlFlow::Continue(())
    }

    fn finish(&self, lines: OperationTexts) -> OperationTexts {
        lines
    }
}
