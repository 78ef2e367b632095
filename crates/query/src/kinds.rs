//! Counts of operations by type.

use super::pipeline::Stage;
use super::{Items, Ops, Pipeline, Query, Question};
use seatrial_history::{Chunk, OpType, OpView, Symbol};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Number of operations of each type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    counts: [u64; 4],
}

impl Kinds {
    /// Operations of this type.
    pub fn of(&self, kind: OpType) -> u64 {
        self.counts[kind as usize]
    }

    /// Invocations.
    pub fn invoke(&self) -> u64 {
        self.of(OpType::Invoke)
    }

    /// Operations that took place.
    pub fn ok(&self) -> u64 {
        self.of(OpType::Ok)
    }

    /// Operations that did not take place.
    pub fn fail(&self) -> u64 {
        self.of(OpType::Fail)
    }

    /// Operations with unknown outcome, and those of the nemesis.
    pub fn info(&self) -> u64 {
        self.of(OpType::Info)
    }

    /// All operations.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl<I: Items, S: Stage<I, Out = Ops>> Pipeline<I, S> {
    /// Number of operations of each type.
    pub fn count_by_kind(self) -> Question<I, impl Query<I, Output = Kinds>> {
        self.ask(ByKind)
    }

    /// Number of operations of each type, by `f`.
    pub fn count_by_f(self) -> Question<I, impl Query<I, Output = BTreeMap<Symbol, Kinds>>> {
        self.group_by(|op| op.f(), |ops| ops.count_by_kind())
    }
}

/// See [`Pipeline::count_by_kind`].
#[derive(Clone, Copy, Debug)]
struct ByKind;

impl Query<Ops> for ByKind {
    type Accumulator = Kinds;
    type Output = Kinds;

    fn start(&self) -> Kinds {
        Kinds::default()
    }

    fn step(&self, kinds: &mut Kinds, op: OpView<'_>) -> ControlFlow<()> {
        let count = &mut kinds.counts[op.kind() as usize];
        *count = count.wrapping_add(1);
        ControlFlow::Continue(())
    }

    fn step_chunk(&self, kinds: &mut Kinds, chunk: &Chunk) -> Option<ControlFlow<()>> {
        let header = chunk.header();
        let completed = [header.ok, header.fail, header.info].map(u64::from);
        kinds.counts[0] += chunk.len() as u64 - completed.iter().sum::<u64>();
        for (sum, count) in kinds.counts[1..].iter_mut().zip(completed) {
            *sum += count;
        }
        Some(ControlFlow::Continue(()))
    }

    fn combine(&self, kinds: &mut Kinds, later: Kinds) -> ControlFlow<()> {
        for (sum, count) in kinds.counts.iter_mut().zip(later.counts) {
            *sum += count;
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, kinds: Kinds) -> Kinds {
        kinds
    }
}
