//! A node that lost its journal: it is silent until a leader shows that nothing depends on what the node has forgotten. The
//! proof is in `docs/decisions/0050-lost-journals.md`.

use super::boot::empty_log;
use super::callers::Callers;
use super::{Core, Replica, ReplicaPhase, VOTERS_TO_REJOIN};
use crate::journal::JournalWriter;
use crate::replica_message::{self, RejoinGrant, RejoinRequest};
use crate::store_command::StoreCommand;
use seatrial_consensus::{
    ConfigError, ConsensusStopped, Members, Role, SnapshotMark, StartPoint, Vote,
};
use seatrial_kv_protocol::Outcome;
use seatrial_machine::{FileResult, NodeId, Output, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};

/// Tickets of the file tasks that publish marks begin here.
const TICKETS: u64 = 5 << 60;
/// A node that does not know how often it was started gets a number of its start that is this many times the index with which
/// it rejoins: no earlier number was as large, unless it was started as often between two entries.
const STARTS_PER_INDEX: u64 = 1 << 16;

/// What a replica does for journals that were lost: its own, and at a leader those of others.
#[derive(Debug, Default)]
pub(super) struct Rejoins {
    /// When this node, without a journal, asks again.
    ask_at: Time,
    /// Is the journal lost, and no new one durable yet?
    is_open: bool,
    /// Is the number of the last start known?
    knows_start: bool,
    /// At a leader: the last request of each member, and the term in which its entry was proposed, until it is applied.
    asked: BTreeMap<NodeId, (RejoinRequest, u64)>,
    /// Requests whose entry was applied in this turn.
    applied: Vec<(NodeId, RejoinRequest)>,
    /// Marks published so far, and the ticket of the newest.
    tickets: u64,
    /// The first error of the newest mark's tasks: the last one only says that there was one.
    failed: Option<String>,
    /// When the mark of a start is written again, because it could not be written.
    retry_at: Option<Time>,
    /// Why the node ends when its mark is durable.
    stopped: Option<ConsensusStopped>,
}

impl Rejoins {
    /// At a start. `is_open`: the journal is lost; `knows_start`: the number of the last start is known.
    pub(super) fn new(is_open: bool, knows_start: bool) -> Rejoins {
        Rejoins {
            is_open,
            knows_start,
            ..Rejoins::default()
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The new journal is durable, and its mark.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    /// Is this the ticket of one of its file tasks?
    pub(super) fn owns(&self, ticket: Ticket) -> bool {
        ticket.0 > TICKETS && ticket.0 <= TICKETS + self.tickets
    }
}

impl Replica {
    /// Publishes what is known of the journal.
    pub(super) fn publish_mark(&mut self, out: &mut Vec<Output<Outcome>>) {
        self.mark.start = self.start;
        if !self.mark.is_lost {
            // Never ahead of the journal: after a loss of power it would make a sound journal look cut.
            self.mark.end = self.journal.durable_end();
        }
        self.rejoins.failed = None;
        for task in self.mark.tasks() {
            self.rejoins.tickets += 1;
            let ticket = Ticket(TICKETS + self.rejoins.tickets);
            out.push(Output::File(task, ticket));
        }
    }

    /// A file task of a mark is done; the last one decides.
    pub(super) fn mark_done(
        &mut self,
        ticket: Ticket,
        result: FileResult,
    ) -> Result<(), ConsensusStopped> {
        if let Err(error) = result {
            let path = self.data.files_path().join(error.file.as_str());
            let text = format!("{} at 0: {}", path.display(), error.text);
            self.rejoins.failed.get_or_insert(text);
        }
        if ticket.0 < TICKETS + self.rejoins.tickets {
            return Ok(());
        }
        match self.phase {
            ReplicaPhase::Marking => {
                let Some(cause) = self.rejoins.failed.take() else {
                    return self.join();
                };
                // A full disk, for example: the node waits until there is space.
                self.checkpoints.last_error = Some(cause);
                self.rejoins.retry_at = Some(self.now + self.options.election);
                Ok(())
            }
            // Also when the mark could not be written: the leader's next heartbeat stops the next start.
            ReplicaPhase::Leaving => self.rejoins.stopped.take().map_or(Ok(()), Err),
            // A mark that is older than it could be does no harm.
            _ => Ok(()),
        }
    }

    /// When a start writes its mark again.
    pub(super) const fn mark_wake_at(&self) -> Option<Time> {
        self.rejoins.retry_at
    }

    /// Writes the mark of a start again, if it is time.
    pub(super) fn retry_mark(&mut self, out: &mut Vec<Output<Outcome>>) {
        let is_due = |due: &mut Time| *due <= self.now;
        if self.rejoins.retry_at.take_if(is_due).is_some() {
            self.publish_mark(out);
        }
    }

    /// Can the others replace the journal that this node lost? Asked once.
    pub(super) fn may_leave(&self) -> bool {
        self.phase == ReplicaPhase::Running && self.voters() >= VOTERS_TO_REJOIN
    }

    /// A leader counts on entries that are not here: records that the journal is lost, then ends.
    pub(super) fn leave(&mut self, mut stopped: ConsensusStopped, out: &mut Vec<Output<Outcome>>) {
        self.phase = ReplicaPhase::Leaving;
        self.mark.is_lost = true;
        stopped.cause += "; it does so when it is started again";
        self.rejoins.stopped = Some(stopped);
        self.publish_mark(out);
    }

    /// When a node without a journal asks next.
    pub(super) fn rejoin_wake_at(&self) -> Time {
        self.rejoins.ask_at
    }

    /// Asks all members to let this node take part again: the leader replies.
    pub(super) fn ask_to_rejoin(&mut self, out: &mut Vec<Output<Outcome>>) {
        if self.rejoins.ask_at > self.now {
            return;
        }
        self.rejoins.ask_at = self.now + self.options.election;
        let request = self.rejoin_request();
        let mut nodes = self.members.nodes();
        nodes.extend(self.addresses.keys());
        nodes.remove(&self.options.node);
        out.extend(nodes.into_iter().map(|to| Output::Send {
            to,
            message: replica_message::encode_lost(request),
        }));
    }

    fn rejoin_request(&self) -> RejoinRequest {
        let start = self.start;
        RejoinRequest {
            nonce: self.options.incarnation,
            start: if self.rejoins.knows_start { start } else { 0 },
        }
    }

    /// A member lost its journal: the leader proposes an entry that the member cannot have acknowledged.
    pub(super) fn help_to_rejoin(&mut self, node: NodeId, request: RejoinRequest) {
        let status = self.core.status();
        // One entry at a time: while the other members are no majority, requests come for ever.
        let is_new = self.rejoins.asked.get(&node) != Some(&(request, status.term));
        if status.role == Role::Leader && is_new && self.members.contains(node) {
            self.rejoins.asked.insert(node, (request, status.term));
            let command = StoreCommand::Rejoin { node, request };
            self.pending.push_command(&command);
        }
    }

    /// The entry of a request is committed.
    pub(super) fn note_rejoin(&mut self, node: NodeId, request: RejoinRequest) {
        self.rejoins.asked.remove(&node);
        self.rejoins.applied.push((node, request));
    }

    /// Replies to the requests whose entries were applied, if this node has proposed them: it is still the leader of their term.
    pub(super) fn grant_rejoins(
        &mut self,
        (index, term): (u64, u64),
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        for (node, request) in std::mem::take(&mut self.rejoins.applied) {
            let status = self.core.status();
            let is_own = status.role == Role::Leader && status.term == term;
            if !is_own || !self.members.contains(node) || node == self.options.node {
                continue;
            }
            let start = match request.start {
                0 => index * STARTS_PER_INDEX,
                known => known,
            };
            // From here on the leader counts nothing that the node said in an earlier start.
            self.core.forget_progress(node, start)?;
            let grant = RejoinGrant {
                nonce: request.nonce,
                term,
                index,
                start,
            };
            out.push(Output::Send {
                to: node,
                message: replica_message::encode_grant(&grant),
            });
        }
        Ok(())
    }

    /// A leader lets this node take part again: an empty log after the newest checkpoint, and the vote of the leader's term.
    pub(super) fn rejoin(
        &mut self,
        from: NodeId,
        grant: &RejoinGrant,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if self.phase != ReplicaPhase::Rejoining || grant.nonce != self.options.incarnation {
            return; // of an earlier start or an earlier loss
        }
        let vote = (grant.term, Some(from));
        if self.take_part(grant.start, grant.index, vote).is_ok() {
            self.begin(out);
        }
    }

    /// Begins a new journal after the newest checkpoint. `vote`: the term, and for whom it is cast.
    pub(super) fn take_part(
        &mut self,
        start: u64,
        rejoined: u64,
        vote: (u64, Option<NodeId>),
    ) -> Result<(), ConfigError> {
        let mark = self.found_mark();
        let vote = Vote {
            term: vote.0,
            vote: vote.1,
            commit: 0,
        };
        let start_point = StartPoint {
            checkpoint: mark.clone(),
            vote,
        };
        let config = self.options.consensus(start, rejoined);
        *self.core = Core::new(config, start_point, empty_log(&mark))?;
        self.start = start;
        self.mark.is_lost = false;
        self.mark.rejoined = rejoined;
        let owner = self.mark.owner;
        self.journal = JournalWriter::new(owner, start, vote, (0, 0), VecDeque::new());
        self.callers = Callers::new((self.options.node, start), &self.options);
        self.founding = (mark.index == 0).then(|| {
            let voters = self.mark.voters.iter().copied();
            (Members::of_voters(voters), self.mark.checkpoint_bytes)
        });
        self.install = (mark.index > 0).then_some(mark);
        Ok(())
    }

    /// The checkpoint from which this node starts.
    fn found_mark(&self) -> SnapshotMark {
        let founding = SnapshotMark {
            members: self.members.clone(),
            ..SnapshotMark::default()
        };
        let newest = self.checkpoints.stored.newest();
        newest.cloned().unwrap_or(founding)
    }
}
