//! States at the indices of the newest checkpoints, for reads at an index.

use crate::state::StateSnapshot;
use bytes::Bytes;
use seatrial_kv_protocol::{Operation, Operations};
use std::collections::VecDeque;

/// The newest snapshots, each with its index. A snapshot costs nothing when it is taken, and later the memory of what was
/// overwritten since. All replicas take them at the same indices, those at which checkpoints are due.
#[derive(Debug)]
pub(super) struct PastStates {
    kept_max: usize,
    /// By increasing index.
    states: VecDeque<(u64, StateSnapshot)>,
}

impl PastStates {
    pub(super) const fn new(kept_max: usize) -> PastStates {
        PastStates {
            kept_max,
            states: VecDeque::new(),
        }
    }

    /// Is a snapshot of a state after this index wanted?
    pub(super) fn wants(&self, index: u64) -> bool {
        self.kept_max > 0 && self.states.back().is_none_or(|it| it.0 < index)
    }

    /// Keeps a snapshot; returns those that are no longer kept, to be freed in a job.
    pub(super) fn keep(&mut self, index: u64, state: StateSnapshot) -> Vec<StateSnapshot> {
        debug_assert!(self.wants(index), "indices increase");
        self.states.push_back((index, state));
        let surplus = self.states.len().saturating_sub(self.kept_max);
        self.states.drain(..surplus).map(|it| it.1).collect()
    }

    /// The indices at which this node can be read.
    pub(super) fn indices(&self) -> Vec<u64> {
        self.states.iter().map(|it| it.0).collect()
    }

    /// The reply to a request that begins with [`Operation::At`]; `None`: it does not, and is about the present state.
    pub(super) fn read(&self, request: &[u8], count: u16) -> Option<Bytes> {
        let first = Operations::new(request, count).next();
        let Some(Ok(Operation::At { index })) = first else {
            return None;
        };
        let found = self.states.iter().find(|it| it.0 == index);
        Some(match found {
            Some((_, state)) => state.read_past(request),
            None => StateSnapshot::refuse_past(request),
        })
    }
}
