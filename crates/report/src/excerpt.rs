//! The operations that findings name, and nothing else of a history.

use crate::report::Report;
use seatrial_history::{Chunk, ChunkSource, Fold, History, Op, OpType, Order, SourceError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// The operations that the findings and components of a report name, each with its other half: what their pictures and
/// listings are made of. Owns copies of these operations alone, however long the history is.
#[derive(Debug, Default)]
pub struct Excerpt {
    pub(crate) history: History,
}

impl Excerpt {
    /// Reads the operations that the findings of a report name; costs a round, or nothing when there are none.
    pub fn read(report: &Report<'_>, source: &dyn ChunkSource) -> Result<Excerpt, SourceError> {
        let excerpts = ExcerptFold::of(report);
        if excerpts.named.is_empty() {
            return Ok(Excerpt::default());
        }
        source.fold(&excerpts)
    }
}

/// Copies the operations with these indices and their other halves out of a history.
pub(crate) struct ExcerptFold {
    named: BTreeSet<u64>,
}

impl ExcerptFold {
    /// What the findings and components of a report name.
    pub(crate) fn of(report: &Report<'_>) -> ExcerptFold {
        let findings = report.findings();
        let found = findings.flat_map(|(_, finding)| {
            let witness = finding.linearization.iter();
            let drawn = witness.flat_map(|witness| witness.named());
            drawn.chain(finding.operations.iter().copied())
        });
        let components = report.components();
        let components = components.flat_map(|component| component.operations.iter().copied());
        ExcerptFold {
            named: found.chain(components).collect(),
        }
    }
}

/// The operations copied so far, and what they may still need.
#[derive(Default)]
pub(crate) struct Copied {
    /// What is wanted, and the other halves of it, by position.
    ops: BTreeMap<u64, Op>,
    /// Invocations of earlier chunks without a completion so far.
    open: BTreeMap<u64, Op>,
    /// Positions of invocations that are wanted, whose completions are not known yet.
    awaited: BTreeSet<u64>,
}

impl Fold for ExcerptFold {
    type Accumulator = Copied;
    type Output = Excerpt;

    /// An invocation must be seen before its completion.
    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Copied {
        Copied::default()
    }

    fn reduce(&self, copied: &mut Copied, chunk: &Chunk) -> ControlFlow<()> {
        if !self.named.is_empty() {
            copied.take(&self.named, chunk);
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut Copied, _: Copied) -> ControlFlow<()> {
        unreachable!("a linear fold has one accumulator")
    }

    fn finish(&self, copied: Copied) -> Excerpt {
        Excerpt {
            history: History::from_ops(copied.ops.into_values().collect()),
        }
    }
}

impl Copied {
    fn take(&mut self, named: &BTreeSet<u64>, chunk: &Chunk) {
        let first = chunk.first_position();
        let mut is_open = vec![false; chunk.len()];
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, (&kind, &process)) in kinds.enumerate() {
            let is_client = chunk.processes()[process as usize].is_client();
            is_open[place] = kind == OpType::Invoke && is_client;
            let position = first + place as u64;
            let invocation = chunk.invocation(place);
            let at = invocation.and_then(|begun| begun.checked_sub(first));
            if let Some(at) = at {
                is_open[at as usize] = false;
            }
            // What was open before.
            let carried = invocation.and_then(|begun| self.open.remove(&begun));
            let is_awaited = invocation.is_some_and(|begun| self.awaited.remove(&begun));
            if !is_awaited && !named.contains(&chunk.index(place)) {
                continue;
            }
            match invocation {
                Some(begun) => {
                    let op = carried.or_else(|| Some(chunk.op(at? as usize)));
                    self.ops.extend(op.map(|op| (begun, op)));
                }
                None => _ = self.awaited.insert(position),
            }
            self.ops.insert(position, chunk.op(place));
        }
        for (place, _) in is_open.iter().enumerate().filter(|(_, is_open)| **is_open) {
            self.open.insert(first + place as u64, chunk.op(place));
        }
    }
}
