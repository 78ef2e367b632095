//! A replica: consensus, journal, state and callers in one machine.

mod boot;
mod callers;
mod checkpoint_pace;
mod checkpointing;
mod checkpoints;
mod description;
mod fetch;
mod found_checkpoints;
mod incoming;
mod member_changes;
mod past_states;
mod rejoin;
mod reply_budget;
mod state_digest;
mod stored_checkpoints;
mod transfer;
mod waiting_reads;

use crate::bug::Bug;
use crate::checkpoint_schedule::{CheckpointSchedule, Digest};
use crate::journal::JournalWriter;
use crate::journal_mark::JournalMark;
use crate::pending::PendingCommands;
use crate::replica_message;
use crate::state::{AppliedRequest, Planted, StoreState};
use crate::store_command::{StoreCommand, begin_entry, read_entry};
pub use boot::{BootReport, ReplicaOptions};
use bytes::Bytes;
use callers::Callers;
pub use checkpoints::CheckpointMode;
use checkpoints::{CheckpointKind, Checkpoints};
use description::ReplicaFigures;
use fetch::{FetchJob, FetchedEntries};
use member_changes::Addresses;
use past_states::PastStates;
use rejoin::Rejoins;
use seatrial_consensus::{
    CachedLog, Committed, Consensus, ConsensusStopped, Fetch, LogEntry, Members, Payload, Persist,
    ReadGrant, Ready, Refused, Role, SnapshotMark,
};
use seatrial_kv_protocol::message::{Code, MessageHeader, MessageKind, VERSION, WINDOW};
use seatrial_kv_protocol::{Outcome, ReplicaStatus, Transaction};
use seatrial_machine::{
    Computed, DataFolder, Input, LogName, Machine, NodeId, Output, StatusSheet, Ticket, Time,
};
use state_digest::StateDigests;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use transfer::{ArrivedCheckpoint, Transfers};
use waiting_reads::WaitingReads;

/// One member of a replicated store: orders requests by consensus, makes them durable in its journal, executes them in the same
/// order as all others, and replies at the node at which a client waits.
///
/// ```text
///   client ─► request ─► pending ─┬─ leader: propose ─► Consensus ─► Ready ─┬─ send ──────► other replicas
///                                 └─ follower: forward ─► leader            ├─ persist ───► journal ─► persisted
///   client ◄── reply ◄── caller ◄── state ◄── committed entries ◄───────────┤
///   client ─► read ─► index of a quorum ─► state has applied it ─► reply    └─ read index
/// ```
///
/// It owns the state, the sessions in it, the journal's end, consensus, and the callers of this node. Its loop: take one input;
/// at a wake-up, or when a block is durable, propose or forward all commands that gathered, as one entry; carry out what
/// consensus has ready; apply what is committed. While a block of the journal is being written, commands gather for the next:
/// group commit without a timer. Any node takes requests of any client. Reads do not enter the log: one round to a quorum serves
/// all that came before it.
///
/// Each request is executed once, also if it is sent again or to another node: sessions are part of the state.
#[derive(Debug)]
pub struct Replica {
    options: ReplicaOptions,
    core: Box<Core>,
    journal: JournalWriter,
    state: StoreState,
    /// The last applied entry and its term.
    applied: (u64, u64),
    /// Time of the last applied or proposed entry.
    stamped: Time,
    /// Did the last turn end with committed entries left?
    has_more: bool,
    members: Members,
    addresses: Addresses,
    schedule: CheckpointSchedule,
    checkpoints: Checkpoints,
    past_states: PastStates,
    digests: StateDigests,
    transfers: Transfers,
    /// When this node gave its turn to write back, and what it reported with that.
    turn_end: (Time, Option<(u64, Digest)>),
    /// A transferred checkpoint that consensus is about to install.
    arrived: Option<Box<ArrivedCheckpoint>>,
    /// Messages that the blocking mode holds back.
    blocked: VecDeque<(NodeId, Vec<u8>)>,
    pending: PendingCommands,
    /// No proposal before this time: consensus refused the last one, because the leadership is handed over.
    not_before: Time,
    callers: Callers,
    reads: WaitingReads,
    phase: ReplicaPhase,
    /// Founding to write at the first start.
    founding: Option<(Members, u64)>,
    /// The checkpoint that the log continues, to write at the start when the journal's entries are void.
    install: Option<SnapshotMark>,
    start: u64,
    /// What the file beside the journal says.
    mark: JournalMark,
    rejoins: Rejoins,
    /// Transferred checkpoints that took the place of the state.
    received: u64,
    now: Time,
    /// Read by jobs, beside the machine.
    data: DataFolder,
    /// Number of jobs so far.
    jobs: u64,
    planted: PlantedState,
    figures: Box<ReplicaFigures>,
}

/// Consensus over the log in memory.
type Core = Consensus<CachedLog>;

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaPhase {
    /// Before the first turn.
    Booted,
    /// The journal is lost: takes part in nothing until a leader grants it.
    Rejoining,
    /// The record of the start is not durable yet: its number must not be used before.
    Starting,
    /// The mark of the journal is not durable yet: without it a lost journal would look like a new one.
    Marking,
    Running,
    /// The journal is lost, and that is being recorded.
    Leaving,
    Stopped,
}

/// State of the planted bugs that depend on time.
#[derive(Debug, Default)]
struct PlantedState {
    /// Blocks that were reported as durable and are written later.
    held: VecDeque<(Time, Vec<u8>, Ticket)>,
    /// An old state, and when it was current.
    snapshot: Option<(Time, StoreState)>,
    /// Entries to execute before they are committed.
    early: VecDeque<LogEntry>,
}

/// Time for which the planted [`Bug::AckBeforeAppend`] holds blocks back.
const LAZY_INTERVAL: Duration = Duration::from_millis(50);
/// Time for which the planted [`Bug::StaleRead`] keeps a state.
const STALE_INTERVAL: Duration = Duration::from_millis(100);
/// A node without a journal needs a majority of others: fewer voters cannot give it one.
const VOTERS_TO_REJOIN: usize = 3;
/// Tickets of jobs begin here; those of appends are the numbers of their blocks.
const JOBS: u64 = 1 << 62;

impl Replica {
    /// What the replica is now.
    pub fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            node: self.options.node,
            cluster: self.options.cluster,
            start: self.start,
            member: self.core.status(),
            members: self.members.clone(),
            applied: self.applied.0,
            keys: self.state.items().len() as u64,
            bytes: self.state.size(),
            sessions: self.state.session_count() as u64,
            is_rejoining: self.rejoins.is_open(),
            checkpoints: self.checkpoint_status(),
            readable: self.past_states.indices(),
            digest: None,
        }
    }

    /// Does it take part in the cluster?
    fn is_running(&self) -> bool {
        self.phase == ReplicaPhase::Running
    }

    /// Writes the record of the start.
    fn begin(&mut self, out: &mut Vec<Output<Outcome>>) {
        let founding = self.founding.as_ref();
        let founding = founding.map(|(members, bytes)| (members, *bytes));
        let (bytes, ticket) = self.journal.start_block(founding, self.install.as_ref());
        self.phase = ReplicaPhase::Starting;
        self.announce_all(out);
        append(bytes, ticket, out);
    }

    /// The record of the start is durable: takes part in the cluster.
    fn join(&mut self) -> Result<(), ConsensusStopped> {
        self.phase = ReplicaPhase::Running;
        self.rejoins.close();
        self.check_divergence()?;
        self.core.tick(self.now)?;
        // A new cluster need not wait for a timeout; a single node elects itself at every start.
        let first = self.members.voters.first() == Some(&self.options.node);
        let is_new = self.founding.is_some() && self.mark.rejoined == 0;
        if first && (is_new || self.members.voters.len() == 1) {
            let _ = self.core.campaign(); // refused: an election will come
        }
        // An earlier life may have had a turn.
        self.end_turn(None);
        Ok(())
    }

    fn appended(
        &mut self,
        ticket: Ticket,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        if let Some(newest) = self.journal.appended(ticket) {
            self.core.persisted(newest)?;
        }
        if self.phase == ReplicaPhase::Starting && self.journal.under_way() == 0 {
            self.phase = ReplicaPhase::Marking;
            self.publish_mark(out);
        }
        if self.phase == ReplicaPhase::Running {
            // Before the entries of this block are applied and replied to: the disk then has the next block meanwhile.
            self.send_commands(out)?;
        }
        Ok(())
    }

    /// Proposes or forwards what gathered, asks for the index of gathered reads, and carries out what consensus has ready,
    /// until there is nothing more to do, or enough has been applied for one turn.
    fn proceed(&mut self, out: &mut Vec<Output<Outcome>>) -> Result<(), ConsensusStopped> {
        if self.core.wake_at().is_some_and(|due| due <= self.now) {
            self.core.tick(self.now)?;
        }
        self.proceed_checkpoint(out);
        self.send_commands(out)?;
        self.ask_for_reads()?;
        self.serve_reads(out);
        self.carry_out_ready(out)
    }

    fn carry_out_ready(&mut self, out: &mut Vec<Output<Outcome>>) -> Result<(), ConsensusStopped> {
        let mut left = self.options.turn_bytes_max.max(1);
        self.has_more = false;
        while let Some(ready) = self.core.ready()? {
            left = left.saturating_sub(ready.committed_bytes());
            self.carry_out(ready, out)?;
            if left == 0 {
                self.has_more = true;
                break;
            }
        }
        if self.applies_early() {
            self.apply_early(out);
            self.serve_reads(out);
        }
        Ok(())
    }

    /// Does this node know where its commands go, and may they go now?
    fn has_commands_to_send(&self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let status = self.core.status();
        match status.role {
            Role::Leader => self.journal.under_way() < self.options.log_blocks.max(1),
            _ => status.leader.is_some(),
        }
    }

    fn send_commands(&mut self, out: &mut Vec<Output<Outcome>>) -> Result<(), ConsensusStopped> {
        if self.not_before > self.now || !self.has_commands_to_send() {
            return Ok(());
        }
        let status = self.core.status();
        if status.role == Role::Leader {
            return self.propose();
        }
        while let Some(leader) = status.leader.filter(|_| !self.pending.is_empty()) {
            let mut commands = Vec::new();
            self.pending.take(&mut commands);
            out.push(Output::Send {
                to: leader,
                message: replica_message::encode_forward(commands),
            });
        }
        Ok(())
    }

    /// Proposes one entry.
    fn propose(&mut self) -> Result<(), ConsensusStopped> {
        // The time of the log never goes back, whatever the leaders' clocks do.
        let time = self.now.max(self.stamped);
        let mut entry = Vec::new();
        begin_entry(&mut entry, time);
        let head = entry.len();
        self.pending.take(&mut entry);
        let entry = Bytes::from(entry);
        match self.core.propose(entry.clone()) {
            Ok(()) => {
                self.stamped = time;
                Ok(())
            }
            Err(Refused::Stopped(stopped)) => Err(stopped),
            // Commands that cannot be an entry never will be: their clients get no reply.
            Err(Refused::Length(_) | Refused::Membership(_)) => Ok(()),
            Err(Refused::NotLeader(_) | Refused::Busy) => {
                self.pending.put_back(entry[head..].to_vec());
                self.not_before = self.now + self.options.heartbeat;
                Ok(())
            }
        }
    }

    fn carry_out(
        &mut self,
        ready: Ready,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        for message in &ready.send {
            out.push(Output::Send {
                to: message.to,
                message: replica_message::encode_consensus(message),
            });
        }
        if let Some(persist) = ready.persist {
            self.persist(&persist, out)?;
            if let Some(mark) = &persist.install {
                self.install(mark, out)?;
            }
        }
        if let Some(offer) = ready.transfer {
            self.transfers.begin(offer.from, offer.mark, self.now, out);
        }
        if ready.checkpoint_due && self.applied.0 > self.newest_checkpoint() {
            self.begin_checkpoint(CheckpointKind::Whole, true, out);
        }
        self.apply(ready.committed, out)?;
        for grant in ready.reads {
            self.reads.granted(grant);
        }
        for token in ready.reads_failed {
            self.reads.failed(token);
        }
        for fetch in ready.fetch {
            self.fetch(fetch, out)?;
        }
        self.serve_reads(out);
        Ok(())
    }

    /// Reads old entries from the journal.
    fn fetch(
        &mut self,
        fetch: Fetch,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        let Some(position) = self.journal.position_of(fetch.low) else {
            return self.core.fetched(Vec::new());
        };
        let job = FetchJob {
            data: self.data.clone(),
            position,
            low: fetch.low,
            high: fetch.high,
        };
        let ticket = self.next_job();
        out.push(Output::Compute(Box::new(job), ticket));
        Ok(())
    }

    fn next_job(&mut self) -> Ticket {
        self.jobs += 1;
        Ticket(JOBS + self.jobs)
    }

    /// Index of the newest durable checkpoint.
    fn newest_checkpoint(&self) -> u64 {
        self.checkpoints.stored.newest().map_or(0, |it| it.index)
    }

    fn computed(
        &mut self,
        ticket: Ticket,
        result: Computed,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        let Some(result) = self.checkpoints.computed(ticket, result, out) else {
            return Ok(());
        };
        let Some(result) = self.digest_computed(result, out) else {
            return Ok(());
        };
        match result.downcast::<FetchedEntries>() {
            Ok(fetched) => self.core.fetched(fetched.0),
            Err(_) => Ok(()),
        }
    }

    fn persist(
        &mut self,
        persist: &Persist,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        if !self.options.keeps_log {
            // The only member: its entries are committed at once.
            return self.core.persisted(persist.ticket);
        }
        let keeps_vote = self.options.bug != Some(Bug::VoteForgotten);
        let (bytes, ticket) = self.journal.block(persist, keeps_vote);
        self.figures.blocks += 1;
        self.figures.block_bytes += bytes.len() as u64;
        if self.applies_early() && self.core.status().role == Role::Leader {
            self.planted.early.extend(persist.entries.iter().cloned());
        }
        match self.options.bug {
            Some(Bug::AckBeforeAppend) => {
                let due = self.now + LAZY_INTERVAL;
                self.planted.held.push_back((due, bytes, ticket));
                self.appended(ticket, out)
            }
            Some(Bug::MissingSync) => {
                append(bytes, ticket, out);
                self.appended(ticket, out)
            }
            _ => {
                append(bytes, ticket, out);
                Ok(())
            }
        }
    }

    fn apply(
        &mut self,
        committed: Vec<Committed>,
        out: &mut Vec<Output<Outcome>>,
    ) -> Result<(), ConsensusStopped> {
        let Some(last) = committed.last().map(|it| it.entry.index) else {
            return Ok(());
        };
        let mut may_differ = false;
        for committed in committed {
            let entry = committed.entry;
            if self.applies_early() && entry.index <= self.applied.0 {
                continue;
            }
            debug_assert_eq!(
                entry.index,
                self.applied.0 + 1,
                "entries are applied in order"
            );
            if let Payload::Data(data) = &entry.payload {
                may_differ |= self.apply_entry(entry.index, data, out);
                self.grant_rejoins((entry.index, entry.term), out)?;
            }
            self.applied = (entry.index, entry.term);
            if let Some(members) = committed.membership {
                self.members = members;
                may_differ = true; // another majority
            }
            let length = entry.payload.length() as u64;
            if let Some(due) = self.schedule.count(entry.index, length, self.state.size()) {
                self.begin_due(due, out);
            }
        }
        self.core.applied(last)?;
        if may_differ {
            self.check_divergence()?;
        }
        Ok(())
    }

    /// Does a planted bug execute entries before they are committed?
    fn applies_early(&self) -> bool {
        matches!(
            self.options.bug,
            Some(Bug::CommitWithoutQuorum | Bug::ReplyAtAppend)
        )
    }

    /// The planted bugs that execute entries early: at the append, or when it is durable on the leader alone.
    fn apply_early(&mut self, out: &mut Vec<Output<Outcome>>) {
        let persisted = self.core.status().persisted;
        let waits = self.options.bug == Some(Bug::ReplyAtAppend);
        while let Some(entry) = self.planted.early.pop_front_if(|entry| {
            entry.index <= self.applied.0 || !waits || entry.index <= persisted
        }) {
            if entry.index != self.applied.0 + 1 {
                continue;
            }
            if let Payload::Data(data) = &entry.payload {
                self.apply_entry(entry.index, data, out);
            }
            self.applied = (entry.index, entry.term);
        }
    }

    /// Executes the commands of an entry. Has one of them reported a checkpoint?
    fn apply_entry(&mut self, index: u64, data: &[u8], out: &mut Vec<Output<Outcome>>) -> bool {
        let Some((time, commands)) = read_entry(data) else {
            return false;
        };
        let mut is_reported = false;
        self.stamped = self.stamped.max(time);
        for command in commands {
            self.figures.commands += 1;
            match command {
                Ok(StoreCommand::Request(message)) => self.apply_request(index, time, message, out),
                Ok(StoreCommand::Open(open)) => {
                    let session = self.state.sessions().open(time);
                    if let Some(hello) = self.callers.opened(&open) {
                        welcome(
                            hello.endpoint,
                            hello.token,
                            session.ok_or(Code::Overloaded),
                            out,
                        );
                    }
                }
                Ok(StoreCommand::Close { session }) => self.state.sessions().close(session),
                Ok(StoreCommand::Address { node, address }) => {
                    self.learn_address(node, address, out);
                }
                Ok(StoreCommand::AskTurn(node)) => self.schedule.ask(node, self.voters(), time),
                Ok(StoreCommand::EndTurn { node, made }) => {
                    if let Some((index, digest)) = made {
                        self.schedule.report(index, node, digest);
                        is_reported = true;
                    }
                    self.schedule.end(node, self.voters(), time);
                }
                Ok(StoreCommand::Rejoin { node, request }) => self.note_rejoin(node, request),
                // All replicas see the same bytes and stop here.
                Err(_) => break,
            }
        }
        is_reported
    }

    fn apply_request(
        &mut self,
        index: u64,
        time: Time,
        message: &[u8],
        out: &mut Vec<Output<Outcome>>,
    ) {
        let time = match self.options.bug {
            Some(Bug::OwnClock) => self.now,
            _ => time,
        };
        let applied = self.state.apply(message, time, index);
        let Ok(header) = MessageHeader::decode(message) else {
            return;
        };
        let caller = self.callers.finished(header.first, header.second);
        if let (Some((to, since)), AppliedRequest::Reply(reply)) = (caller, applied) {
            let message = reply.to_vec();
            self.count_reply(false, since);
            out.push(Output::Send { to, message });
        }
    }

    fn ask_for_reads(&mut self) -> Result<(), ConsensusStopped> {
        if !self.reads.wants_index(self.now) {
            return Ok(());
        }
        let token = self.reads.next_token();
        if self.options.bug == Some(Bug::StaleLeaderRead) {
            self.reads.asked(token);
            let index = self.applied.0;
            self.reads.granted(ReadGrant { token, index });
            return Ok(());
        }
        match self.core.read(token) {
            Ok(()) => self.reads.asked(token),
            Err(Refused::Stopped(stopped)) => return Err(stopped),
            Err(_) => self.reads.refused(self.now + self.options.heartbeat),
        }
        Ok(())
    }

    /// Replies to the reads whose index is applied.
    fn serve_reads(&mut self, out: &mut Vec<Output<Outcome>>) {
        while let Some(batch) = self.reads.ready(self.applied.0) {
            for read in batch {
                self.count_reply(true, read.since);
                let count = MessageHeader::decode(&read.message).map_or(0, |it| it.count);
                if let Some(reply) = self.past_states.read(&read.message, count) {
                    out.push(Output::Send {
                        to: read.endpoint,
                        message: reply.into(),
                    });
                    continue;
                }
                let state = match self.options.bug {
                    Some(Bug::StaleRead) => self.planted.stale(self.now, &self.state),
                    _ => &self.state,
                };
                out.push(Output::Send {
                    to: read.endpoint,
                    message: state.read(&read.message).into(),
                });
            }
        }
    }

    /// Writes the blocks that the planted bug holds back.
    fn write_held(&mut self, out: &mut Vec<Output<Outcome>>) {
        while let Some((_, bytes, ticket)) =
            self.planted.held.pop_front_if(|held| held.0 <= self.now)
        {
            append(bytes, ticket, out);
        }
    }
}

impl PlantedState {
    /// The planted stale read: an old state, or the current one if that is too old.
    fn stale(&mut self, now: Time, present: &StoreState) -> &StoreState {
        let (taken, state) = self.snapshot.get_or_insert_with(|| (now, present.clone()));
        if now.since(*taken) >= STALE_INTERVAL {
            *taken = now;
            state.clone_from(present);
        }
        state
    }
}

/// The planted bugs of the state.
fn planted(bug: Option<Bug>) -> Planted {
    Planted {
        dirty_abort: bug == Some(Bug::DirtyAbort),
        lost_append: (bug == Some(Bug::LostAppend)).then(BTreeMap::new),
    }
}

fn append(bytes: Vec<u8>, ticket: Ticket, out: &mut Vec<Output<Outcome>>) {
    out.push(Output::Append {
        log: LogName::MAIN,
        bytes,
        ticket,
    });
}

/// Replies to a hello.
fn welcome(to: NodeId, token: u64, session: Result<u64, Code>, out: &mut Vec<Output<Outcome>>) {
    let header = MessageHeader {
        kind: MessageKind::Welcome,
        code: session.err().unwrap_or(Code::Committed) as u8,
        count: WINDOW as u16,
        detail: u32::from(VERSION),
        first: token,
        second: session.unwrap_or(0),
    };
    if session.is_ok() {
        out.push(Output::Admit(to));
    }
    out.push(Output::Send {
        to,
        message: header.encode().to_vec(),
    });
}

impl Machine for Replica {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        self.now = self.now.max(now);
        let is_wake = matches!(input, Input::Wake);
        let done = match (self.phase, input) {
            (ReplicaPhase::Stopped, _) => return,
            (ReplicaPhase::Booted, _) if self.mark.is_lost => {
                self.phase = ReplicaPhase::Rejoining;
                self.announce_all(out);
                Ok(())
            }
            (ReplicaPhase::Booted, _) => {
                self.begin(out);
                Ok(())
            }
            (_, Input::FileDone(ticket, result)) if self.rejoins.owns(ticket) => {
                self.mark_done(ticket, result)
            }
            (ReplicaPhase::Leaving, _) => return,
            (_, Input::Appended(ticket)) => self.appended(ticket, out),
            (ReplicaPhase::Running, Input::Computed(ticket, result)) => {
                self.computed(ticket, result, out)
            }
            (ReplicaPhase::Running | ReplicaPhase::Rejoining, Input::FileDone(ticket, result)) => {
                self.file_done(ticket, result, out)
            }
            (ReplicaPhase::Running | ReplicaPhase::Rejoining, Input::Message { from, bytes }) => {
                self.receive(from, bytes, out)
            }
            // Clients wait for the start; what other replicas say to a node that starts may be lost.
            (ReplicaPhase::Starting | ReplicaPhase::Marking, Input::Message { from, bytes })
                if from.is_client() =>
            {
                self.receive(from, bytes, out)
            }
            _ => Ok(()),
        };
        let done = done.and_then(|()| match self.phase {
            ReplicaPhase::Running if is_wake => self.proceed(out),
            ReplicaPhase::Running => self.carry_out_ready(out),
            ReplicaPhase::Rejoining => {
                self.ask_to_rejoin(out);
                Ok(())
            }
            ReplicaPhase::Marking => {
                self.retry_mark(out);
                Ok(())
            }
            _ => Ok(()),
        });
        self.write_held(out);
        if let Err(stopped) = done {
            if self.core.has_lost_entries() && self.may_leave() {
                return self.leave(stopped, out);
            }
            self.phase = ReplicaPhase::Stopped;
            out.push(Output::Stop(stopped.to_string()));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        if self.phase == ReplicaPhase::Booted {
            return Some(Time::ZERO);
        }
        if self.phase == ReplicaPhase::Rejoining {
            return Some(self.rejoin_wake_at());
        }
        if self.phase == ReplicaPhase::Marking {
            return self.mark_wake_at();
        }
        if self.phase != ReplicaPhase::Running {
            return None;
        }
        let more = self.has_more.then_some(self.now);
        let commands = self.has_commands_to_send().then_some(self.not_before);
        let held = self.planted.held.front().map(|held| held.0);
        let checkpoint = self.checkpoint_wake_at();
        let core = self.core.wake_at();
        [more, core, commands, self.reads.wake_at(), held, checkpoint]
            .into_iter()
            .flatten()
            .min()
    }

    fn describe(&self, now: Time, sheet: &mut StatusSheet) {
        self.describe_all(now, sheet);
    }

    fn check_invariants(&self) {
        self.journal.check_invariants();
        self.pending.check_invariants();
        self.callers.check_invariants();
        self.checkpoints.check_invariants();
        self.digests.check_invariants();
        self.reads.check_invariants(self.applied.0);
        debug_assert!(self.applies_early() || self.applied.0 <= self.core.status().committed);
    }
}
