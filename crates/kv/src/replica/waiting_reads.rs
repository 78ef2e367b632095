//! Reads that wait for an index, and for the state to reach it.

use super::ReplicaOptions;
use super::reply_budget::ReplyBudget;
use seatrial_consensus::ReadGrant;
use seatrial_machine::{NodeId, Time};
use std::collections::{BTreeMap, VecDeque};

/// A transaction of reads.
#[derive(Debug)]
pub(crate) struct WaitingRead {
    /// Who gets the reply.
    pub(crate) endpoint: NodeId,
    /// The request.
    pub(crate) message: Vec<u8>,
    /// Bytes of the reply, about.
    pub(crate) length: usize,
    /// When it arrived.
    pub(crate) since: Time,
}

/// Reads in three stages: gathering until an index is asked for, asked, granted and waiting for the state. A read is
/// linearizable when its index was asked for after it arrived, so those that arrive later gather for the next round.
#[derive(Debug)]
pub(crate) struct WaitingReads {
    reads_max: usize,
    count: usize,
    gathering: Vec<WaitingRead>,
    asked: BTreeMap<u64, Vec<WaitingRead>>,
    /// By index, in the order of the grants.
    granted: VecDeque<(u64, Vec<WaitingRead>)>,
    tokens: u64,
    /// No round before this time: the last one was refused.
    not_before: Time,
    /// Memory of the replies that they wait for.
    budget: ReplyBudget,
}

/// Rounds under way at which reads gather for the next.
const ROUNDS_MAX: usize = 2;

impl WaitingReads {
    pub(crate) fn new(options: &ReplicaOptions) -> WaitingReads {
        WaitingReads {
            reads_max: options.callers_max,
            count: 0,
            gathering: Vec::new(),
            asked: BTreeMap::new(),
            granted: VecDeque::new(),
            tokens: 0,
            not_before: Time::ZERO,
            budget: ReplyBudget::new(options.replies_bytes_max / 2),
        }
    }

    /// Adds a read. False: too many wait.
    pub(crate) fn push(&mut self, read: WaitingRead) -> bool {
        let has_room = self.count < self.reads_max && self.budget.take(read.endpoint, read.length);
        if has_room {
            self.count += 1;
            self.gathering.push(read);
        }
        has_room
    }

    fn has_round_to_ask(&self) -> bool {
        !self.gathering.is_empty() && self.asked.len() < ROUNDS_MAX
    }

    /// Should an index be asked for now?
    pub(crate) fn wants_index(&self, now: Time) -> bool {
        self.has_round_to_ask() && self.not_before <= now
    }

    /// When an index should be asked for.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.has_round_to_ask().then_some(self.not_before)
    }

    /// A token for the next round.
    pub(crate) fn next_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// The round of all gathered reads is under way.
    pub(crate) fn asked(&mut self, token: u64) {
        let batch = std::mem::take(&mut self.gathering);
        self.asked.insert(token, batch);
    }

    /// No round is possible before this time.
    pub(crate) fn refused(&mut self, not_before: Time) {
        self.not_before = not_before;
    }

    /// A round has its index.
    pub(crate) fn granted(&mut self, grant: ReadGrant) {
        if let Some(batch) = self.asked.remove(&grant.token) {
            self.granted.push_back((grant.index, batch));
        }
    }

    /// A round gets no index: its reads gather again.
    pub(crate) fn failed(&mut self, token: u64) {
        if let Some(mut batch) = self.asked.remove(&token) {
            batch.append(&mut self.gathering);
            self.gathering = batch;
        }
    }

    /// The next reads that a state with everything up to `applied` may answer.
    pub(crate) fn ready(&mut self, applied: u64) -> Option<Vec<WaitingRead>> {
        let place = self.granted.iter().position(|it| it.0 <= applied)?;
        let (_, batch) = self.granted.remove(place)?;
        self.count -= batch.len();
        for read in &batch {
            self.budget.give_back(read.endpoint, read.length);
        }
        Some(batch)
    }

    pub(crate) fn check_invariants(&self, applied: u64) {
        assert!(self.count <= self.reads_max);
        self.budget.check_invariants();
        assert!(
            self.granted.iter().all(|it| it.0 > applied),
            "a read was forgotten"
        );
        let asked = self.asked.values().map(Vec::len).sum::<usize>();
        let granted = self.granted.iter().map(|it| it.1.len()).sum::<usize>();
        debug_assert_eq!(self.count, self.gathering.len() + asked + granted);
    }
}
