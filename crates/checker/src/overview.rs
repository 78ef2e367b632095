//! Counts, times and nemesis operations of a history: what one round shows besides anomalies.

use crate::{CountFold, Counts, FunctionCounts};
use seatrial_history::{Chunk, ChunkSource, Fold as _, Op, OpType, SourceError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Counts and times of a history, and the operations of its nemeses, gathered while it is checked: the same whichever checkers
/// run and wherever the history is. Owns the nemeses' operations and a few words for each function; a chunk costs one pass over
/// its types and processes.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    counts: FunctionCounts,
    events: u64,
    /// The first and the last time that is known, in nanoseconds since the test began.
    times: Option<(i64, i64)>,
    /// Operations of nemeses, in order.
    nemesis: Vec<Op>,
}

impl Overview {
    /// The overview of a history that no checker reads; costs a round.
    pub fn of(source: &dyn ChunkSource) -> Result<Overview, SourceError> {
        let mut overview = Overview::default();
        source.round(&mut |chunk| {
            overview.take(chunk);
            ControlFlow::Continue(())
        })?;
        Ok(overview)
    }

    /// Takes the next chunk into account.
    pub fn take(&mut self, chunk: &Chunk) {
        let _: ControlFlow<()> = CountFold.reduce(&mut self.counts, chunk);
        self.events += chunk.len() as u64;
        if let Some((first, last)) = known_times(chunk) {
            let (begin, end) = self.times.unwrap_or((first, last));
            self.times = Some((begin.min(first), end.max(last)));
        }
        let is_client: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        if is_client.contains(&false) {
            let places = chunk.process_ids().iter().enumerate();
            let others = places.filter(|(_, process)| !is_client[**process as usize]);
            self.nemesis
                .extend(others.map(|(place, _)| chunk.op(place)));
        }
    }

    /// Counts a transaction that was handed over without operations.
    pub fn add_transaction(&mut self, outcome: OpType) {
        self.counts.add("txn", outcome);
        self.events += 2;
    }

    /// Outcomes of the clients' operations, all together and by function.
    pub fn counts(&self) -> (Counts, BTreeMap<&'static str, Counts>) {
        CountFold.finish(self.counts.clone())
    }

    /// Entries of the history: invocations and completions, also of nemeses.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The first and the last time that is known, in nanoseconds since the test began; `None` without times.
    pub fn times(&self) -> Option<(i64, i64)> {
        self.times
    }

    /// Seconds between the first and the last time that is known; 0 without times.
    pub fn seconds(&self) -> f64 {
        let (first, last) = self.times.unwrap_or_default();
        last.saturating_sub(first).max(0) as f64 / 1e9
    }

    /// The operations of nemeses.
    pub fn nemesis(&self) -> &[Op] {
        &self.nemesis
    }

    /// Invocations of clients that never complete.
    pub fn open(&self) -> u64 {
        self.counts.open()
    }
}

/// The first and the last time that is known in a chunk.
fn known_times(chunk: &Chunk) -> Option<(i64, i64)> {
    let header = chunk.header();
    if header.time_min >= 0 && !chunk.is_empty() {
        return Some((header.time_min, header.time_max));
    }
    let known = || chunk.times().iter().copied().filter(|&time| time >= 0);
    Some((known().min()?, known().max()?))
}
