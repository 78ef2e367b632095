//! A replica's part in checkpoints: when they are due, whose turn it is, what they free, and how a transferred one takes the
//! place of the state.

use super::Replica;
use super::checkpoints::{
    CheckpointBase, CheckpointEvent, CheckpointKind, CheckpointMode, CheckpointPlan, DropJob,
};
use super::member_changes::encode_cluster;
use super::transfer::{ArrivedCheckpoint, TransferEvent};
use crate::bug::Bug;
use crate::checkpoint::CheckpointHead;
use crate::checkpoint_schedule::{DueCheckpoint, RENEWAL};
use crate::store_command::StoreCommand;
use seatrial_consensus::{ConsensusStopped, SnapshotMark};
use seatrial_kv_protocol::{CheckpointStatus, Outcome};
use seatrial_machine::{FileResult, LogName, NodeId, Output, Ticket, Time};
use std::time::Duration;

impl Replica {
    /// Number of voters, for turns and majorities.
    pub(super) fn voters(&self) -> usize {
        self.members.voters.len()
    }

    /// Begins the checkpoint that is due after the last applied entry.
    pub(super) fn begin_due(&mut self, due: DueCheckpoint, out: &mut Vec<Output<Outcome>>) {
        self.keep_state(out);
        let kind = match due {
            DueCheckpoint::Whole => CheckpointKind::Base,
            DueCheckpoint::Changes(base) => CheckpointKind::Changes(base),
        };
        self.begin_checkpoint(kind, false, out);
    }

    /// Begins a checkpoint of the present state, unless one is under way. `awaited`: a member cannot go on without it. That one
    /// needs no turn: turns are commands, and the quorum that they need may be waiting for this checkpoint.
    pub(super) fn begin_checkpoint(
        &mut self,
        kind: CheckpointKind,
        awaited: bool,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if awaited && self.checkpoints.is_waiting() {
            self.checkpoints.abandon(out);
        }
        if awaited && self.checkpoints.under_way().is_some() {
            return;
        }
        if self.options.checkpoint_mode == CheckpointMode::None {
            return;
        }
        let plan = CheckpointPlan {
            kind,
            snapshot: self.state.snapshot(),
            head: self.checkpoint_head(),
            members: self.members.clone(),
            needs_no_turn: awaited,
        };
        if self.checkpoints.begin(plan, self.now) {
            self.ask_turn();
            self.proceed_checkpoint(out);
        }
    }

    /// What a checkpoint of the present state says about itself.
    pub(super) fn checkpoint_head(&self) -> CheckpointHead {
        CheckpointHead {
            cluster: self.options.cluster,
            index: self.applied.0,
            term: self.applied.1,
            members: encode_cluster(&self.members, &self.addresses),
            schedule: self.schedule.encode(),
        }
    }

    /// Keeps the present state readable.
    pub(super) fn keep_state(&mut self, out: &mut Vec<Output<Outcome>>) {
        let index = self.applied.0;
        if index > 0 && self.past_states.wants(index) {
            let surplus = self.past_states.keep(index, self.state.snapshot());
            if !surplus.is_empty() {
                self.free(surplus, out);
            }
        }
    }

    fn ask_turn(&mut self) {
        let ask = StoreCommand::AskTurn(self.options.node);
        self.pending.push_command(&ask);
    }

    /// Gives the turn back, and reports what was made with it.
    pub(super) fn end_turn(&mut self, made: Option<(u64, [u8; 16])>) {
        let node = self.options.node;
        self.turn_end = (self.now, made);
        self.pending
            .push_command(&StoreCommand::EndTurn { node, made });
    }

    /// How often a turn is asked for again. Shorter than the patience of the schedule, and at least an election.
    fn renewal(&self) -> Duration {
        RENEWAL.min(self.options.election * 4)
    }

    /// When the turn should be given back again: this node holds it without a checkpoint under way, so the command was lost with
    /// a leader or a connection. Otherwise the other nodes would wait until the schedule takes the turn for that of a dead
    /// node.
    fn turn_end_again_at(&self) -> Option<Time> {
        let is_held =
            self.checkpoints.under_way().is_none() && self.schedule.has_turn(self.options.node);
        is_held.then(|| self.turn_end.0 + self.options.election)
    }

    pub(super) fn checkpoint_wake_at(&self) -> Option<Time> {
        // A turn is granted by an applied entry, after which a follower without clients has no other reason to wake up soon.
        if self.checkpoints.is_waiting() && self.schedule.has_turn(self.options.node) {
            return Some(Time::ZERO);
        }
        let transfer = self.transfers.wake_at();
        let checkpoint = self.checkpoints.wake_at(self.renewal());
        [transfer, checkpoint, self.turn_end_again_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Continues checkpoint and transfer.
    pub(super) fn proceed_checkpoint(&mut self, out: &mut Vec<Output<Outcome>>) {
        let renewal = self.renewal();
        if self.checkpoints.renews(self.now, renewal) {
            self.ask_turn();
        }
        if self.turn_end_again_at().is_some_and(|due| due <= self.now) {
            self.end_turn(self.turn_end.1);
        }
        let has_turn = self.schedule.has_turn(self.options.node);
        if has_turn && self.options.bug == Some(Bug::FuzzyCheckpoint) {
            self.checkpoints.take_instead(&self.state.snapshot());
        }
        self.checkpoints.proceed(self.now, has_turn, out);
        self.transfers.proceed(self.now, out);
    }

    /// A file task is done.
    pub(super) fn file_done(
        &mut self,
        ticket: Ticket,
        result: FileResult,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        if self.transfers.owns(ticket) {
            return match self.transfers.file_done(ticket, result, out) {
                TransferEvent::Proceeding => Ok(()),
                TransferEvent::Arrived(arrived) => self.arrive(arrived, out),
                TransferEvent::Missed(node) => self.core.snapshot_failed(node),
            };
        }
        match self.checkpoints.file_done(self.now, ticket, result, out) {
            CheckpointEvent::Proceeding => self.proceed_checkpoint(out),
            CheckpointEvent::Failed => self.end_turn(None),
            CheckpointEvent::Published(digest, mark) => {
                let index = mark.as_ref().map(|mark| (mark.index, digest));
                self.end_turn(index);
                if let Some(mark) = mark {
                    self.published(mark, out)?;
                }
            }
        }
        Ok(())
    }

    /// A checkpoint of this node is durable: consensus may offer it, and what is before the one before it may go.
    fn published(
        &mut self,
        mark: SnapshotMark,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        self.figures.checkpointed = Some(self.now);
        self.core.checkpointed(mark);
        let mut to = self.checkpoints.stored.free_to();
        if self.options.bug == Some(Bug::PurgePastCheckpoint) {
            to = self.applied.0;
        }
        // After a start the log begins with the newest checkpoint, the journal with an older one that may be needed.
        let mut first = self.core.compact(to).min(to + 1);
        if self.options.bug == Some(Bug::PurgePastCheckpoint) {
            first = to + 1;
        }
        self.publish_mark(out);
        if let Some(position) = self.journal.free_before(first) {
            let log = LogName::MAIN;
            out.push(Output::TruncateHead { log, position });
        }
        self.release_blocked(out)
    }

    /// Executes what the blocking mode has held back.
    fn release_blocked(&mut self, out: &mut Vec<Output<Outcome>>) -> Result<(), ConsensusStopped> {
        for (from, bytes) in std::mem::take(&mut self.blocked) {
            self.receive(from, bytes, out)?;
        }
        Ok(())
    }

    /// Does the blocking mode hold this message back?
    pub(super) fn is_blocked(&self, from: NodeId) -> bool {
        self.options.checkpoint_mode == CheckpointMode::Blocking
            && from.is_client()
            && self.checkpoints.under_way().is_some()
            && !self.checkpoints.is_waiting()
            && self.blocked.len() < self.options.callers_max
    }

    /// A checkpoint of another node is here: consensus decides whether it is wanted.
    fn arrive(
        &mut self,
        arrived: Box<ArrivedCheckpoint>,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        self.checkpoints.keep_chain(arrived.chain.clone(), out);
        if self.core.transferred(&arrived.mark)? {
            self.arrived = Some(arrived);
        } else {
            self.free(arrived, out);
        }
        Ok(())
    }

    /// Consensus installs a transferred checkpoint: it takes the place of the state.
    pub(super) fn install(
        &mut self,
        mark: &SnapshotMark,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        let Some(arrived) = self.arrived.take_if(|arrived| arrived.mark == *mark) else {
            return Ok(()); // consensus installs only what `transferred` has given it
        };
        assert!(
            mark.index > self.applied.0,
            "a state is never replaced by an older one"
        );
        let mut arrived = *arrived;
        let (whole, snapshot) = (&arrived.chain.whole, arrived.whole);
        if whole.index == arrived.schedule.whole()
            && self.checkpoints.stored.whole(whole.index).is_some()
        {
            let base = CheckpointBase::new(whole, snapshot);
            self.checkpoints.rebase(Some(base), out);
        } else {
            self.free(snapshot, out);
        }
        arrived.state.plant(super::planted(self.options.bug));
        let old = std::mem::replace(&mut self.state, arrived.state);
        self.schedule = arrived.schedule;
        self.addresses = arrived.addresses;
        self.announce_all(out);
        self.received += 1;
        self.applied = (mark.index, mark.term);
        self.members = mark.members.clone();
        self.stamped = self.stamped.max(self.state.sessions().clock());
        if self.checkpoints.under_way().is_some() {
            self.checkpoints.abandon(out);
            self.end_turn(None);
        }
        self.free(old, out);
        self.keep_state(out);
        self.core.applied(mark.index)?;
        self.check_divergence()
    }

    pub(super) fn checkpoint_status(&self) -> CheckpointStatus {
        let newest = self.checkpoints.stored.newest();
        CheckpointStatus {
            newest: newest.map_or(0, |mark| mark.index),
            length: newest.map_or(0, |mark| mark.length),
            writing: self.checkpoints.under_way(),
            receiving: self.transfers.under_way(),
            made: self.checkpoints.made,
            changes: self.checkpoints.changes,
            skipped: self.checkpoints.skipped,
            failed: self.checkpoints.failed,
            received: self.received,
            last_error: self.checkpoints.last_error.clone(),
            different: self.schedule.disagreements().count() as u64,
        }
    }

    /// Frees something large in a job.
    fn free<T: Send + 'static>(&mut self, value: T, out: &mut Vec<Output<Outcome>>) {
        let ticket = self.next_job();
        out.push(Output::Compute(Box::new(DropJob(value)), ticket));
    }

    /// Stops if the checkpoints of a majority differ from this node's. Reports come with entries, checkpoints and transfers.
    pub(super) fn check_divergence(&self) -> Result<(), ConsensusStopped> {
        let node = self.options.node;
        let Some(index) = self.schedule.is_outvoted(node, self.voters()) else {
            return Ok(());
        };
        Err(ConsensusStopped {
            during: "comparison of checkpoints",
            cause: format!(
                "the checkpoint of {node} at index {index} differs from that of a majority: its state is wrong; remove it \
                 from the cluster and add a node with another number in its place"
            ),
        })
    }
}
