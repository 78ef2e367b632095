//! A few operations out of a history, by their indices, each with its other half.

use seatrial_history::{Chunk, Fold, History, Op, OpType, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Copies the operations with these indices, and their other halves, out of a history. Remembers the invocations that are open,
/// and no other part of the history.
#[derive(Clone, Debug)]
pub struct ExcerptFold {
    named: BTreeSet<u64>,
}

impl ExcerptFold {
    /// Copies the operations with these indices.
    pub fn of(named: impl IntoIterator<Item = u64>) -> ExcerptFold {
        ExcerptFold {
            named: named.into_iter().collect(),
        }
    }

    /// Is there nothing to copy?
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

/// The operations copied so far, and what they may still need.
#[derive(Debug, Default)]
pub struct CopiedOps {
    /// What is wanted, and the other halves of it, by position.
    ops: BTreeMap<u64, Op>,
    /// Invocations of earlier chunks without a completion so far.
    open: BTreeMap<u64, Op>,
    /// Positions of invocations that are wanted, whose completions are not known yet.
    awaited: BTreeSet<u64>,
}

impl Fold for ExcerptFold {
    type Accumulator = CopiedOps;
    type Output = History;

    /// An invocation must be seen before its completion.
    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> CopiedOps {
        CopiedOps::default()
    }

    fn reduce(&self, copied: &mut CopiedOps, chunk: &Chunk) -> ControlFlow<()> {
        if !self.named.is_empty() {
            copied.take(&self.named, chunk);
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut CopiedOps, _: CopiedOps) -> ControlFlow<()> {
        unreachable!("a linear fold has one accumulator")
    }

    fn finish(&self, copied: CopiedOps) -> History {
        History::from_ops(copied.ops.into_values().collect())
    }
}

impl CopiedOps {
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
