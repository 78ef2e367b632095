//! The only file that names the `raft` crate, and one member built on it: its calls contained, its rules kept. What the two
//! files below need of the library they get from here.

mod library_storage;
mod translate;

use crate::admission::{Links, Local, objection};
use crate::config::{Config, ConfigError, StartPoint};
use crate::entry_log::EntryLog;
use crate::log_entry::{
    ENTRY_LENGTH_MAX, LogEntry, MEMBERS_MAX, MemberChange, Members, Payload, SnapshotMark, Vote,
    is_server,
};
use crate::peer_codec::encode_changes;
use crate::peer_message::{Body, LinkNumber, PeerMessage, ReadContext};
use crate::ready::{
    CheckpointOffer, Committed, ConsensusStopped, MemberStatus, Persist, ReadGrant, Ready, Refused,
    Role,
};
use crate::rule::{Rules, WrapperRule};
use bytes::Bytes;
use library_storage::LibraryStorage;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry as RaftEntry, EntryType,
    HardState, Message as RaftMessage, MessageType, Snapshot,
};
use raft::{
    Error as LibraryError, GetEntriesContext, RaftState, RawNode, Result as LibraryResult,
    SnapshotStatus, StateRole, Storage, StorageError,
};
use seatrial_machine::{NodeId, Rng, Ticket, Time, panic_text};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use translate::{
    from_conf_state, from_context, from_entry, from_library, from_snapshot, node_id, to_change,
    to_context, to_library,
};

/// Ticks of the library per heartbeat interval.
const HEARTBEAT_TICKS: usize = 2;
/// An append with fewer bytes of entries is not split, however many appends the library has gathered in it.
const SPLIT_BYTES: u64 = 1 << 20;
/// Reads that wait for an index, of this node and, at the leader, of all nodes.
const READS_MAX: usize = 4_096;

/// One member of a replicated log: Raft without input or output. It owns the library's state, the log, the messages that wait
/// for durability, the reads that wait for a quorum and the timers.
///
/// Calls change it; [`Consensus::ready`], called until it returns nothing, says what to do. Every call is total: a panic inside
/// of the library stops the core, which from then on refuses everything with the cause.
pub struct Consensus<L: EntryLog> {
    node: RawNode<LibraryStorage<L>>,
    config: Config,
    rules: Rules,
    stopped: Option<ConsensusStopped>,
    random: Rng,
    /// The election timeout in force, and the (term, role) for which it was drawn.
    timeout: usize,
    timeout_of: (u64, StateRole),
    tick: Duration,
    next_tick: Option<Time>,
    now: Time,
    /// Tickets that are not durable, oldest first, with the messages that wait for each.
    unsynced: VecDeque<Unsynced>,
    /// The newest term that is durable here.
    durable_term: u64,
    /// Messages whose tickets are durable.
    released: Vec<RaftMessage>,
    links: Links,
    /// Messages sent to each member.
    sent: BTreeMap<u64, u64>,
    /// Last index handed out as committed.
    handed_out: u64,
    /// Last index reported as applied.
    reported: u64,
    membership: Members,
    /// A checkpoint that was offered: the message to step once its state is here.
    offer: Option<(RaftMessage, SnapshotMark, bool)>,
    /// Snapshots sent, with the time at which they count as failed.
    snapshots: BTreeMap<u64, Time>,
    /// Reads without an index, with the time at which they fail.
    reads: BTreeMap<u64, Time>,
    /// The (term, leader) that those reads asked.
    reads_of: (u64, u64),
    granted: Vec<ReadGrant>,
    failed: Vec<u64>,
    has_lost_entries: bool,
}

/// A ticket that is not durable.
struct Unsynced {
    ticket: u64,
    /// The newest ticket without anything to sync that came after it.
    up_to: u64,
    /// The term that becomes durable with it.
    term: u64,
    install: Option<SnapshotMark>,
    held: Vec<RaftMessage>,
}

impl<L: EntryLog> fmt::Debug for Consensus<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.config.node;
        write!(f, "Consensus({node}, applied {})", self.reported)
    }
}

impl<L: EntryLog> Consensus<L> {
    /// A member at its start. The log must continue the checkpoint.
    pub fn new(config: Config, recovered: StartPoint, log: L) -> Result<Consensus<L>, ConfigError> {
        config.check()?;
        let StartPoint { checkpoint, vote } = recovered;
        let is_founding = checkpoint.index == 0 && checkpoint.members == Members::default();
        if !is_founding && !checkpoint.members.is_valid() {
            return Err(ConfigError::Membership(checkpoint.index));
        }
        let (first, index) = (log.first_index(), checkpoint.index);
        if first > index + 1 || log.last_index() < index {
            return Err(ConfigError::Gap {
                first,
                checkpoint: index,
            });
        }
        let tick = config.heartbeat / HEARTBEAT_TICKS as u32;
        let library = config.library(HEARTBEAT_TICKS, tick, index);
        let membership = checkpoint.members.clone();
        let durable_term = vote.term;
        let store = LibraryStorage::new(log, checkpoint, vote);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let made = catch_unwind(AssertUnwindSafe(|| RawNode::new(&library, store, &logger)));
        let node = match made {
            Ok(Ok(node)) => node,
            Ok(Err(error)) => return Err(ConfigError::Library(error.to_string())),
            Err(panic) => return Err(ConfigError::Library(panic_text(&*panic).to_owned())),
        };
        let random = Rng::from_seed(config.seed ^ config.start.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut consensus = Consensus {
            node,
            rules: Rules::default(),
            stopped: None,
            random: random.fork(&config.node.to_string()),
            timeout: 0,
            timeout_of: (u64::MAX, StateRole::Follower),
            tick,
            next_tick: None,
            now: Time::ZERO,
            unsynced: VecDeque::new(),
            durable_term,
            released: Vec::new(),
            links: Links::default(),
            sent: BTreeMap::new(),
            handed_out: index,
            reported: index,
            membership,
            offer: None,
            snapshots: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_of: (0, 0),
            granted: Vec::new(),
            failed: Vec::new(),
            has_lost_entries: false,
            config,
        };
        consensus.pin_timeout();
        Ok(consensus)
    }

    /// Switches one rule off, to show what it prevents.
    #[cfg(feature = "rules-off")]
    #[doc(hidden)]
    pub fn without_rule(&mut self, rule: WrapperRule) {
        self.set_rules(Rules {
            without: Some(rule),
        });
    }

    #[cfg(any(test, feature = "rules-off"))]
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.node.mut_store().rules = rules;
        self.rules = rules;
    }

    /// Why the core stopped. Its node must end.
    pub fn stopped(&self) -> Option<&ConsensusStopped> {
        self.stopped.as_ref()
    }

    /// Did the core stop because a leader counts on entries that this node does not have?
    pub const fn has_lost_entries(&self) -> bool {
        self.has_lost_entries
    }

    /// A member lost its log and starts again with this number of its start: what it acknowledged before no longer counts, and
    /// its messages of earlier starts are dropped.
    pub fn forget_progress(&mut self, member: NodeId, start: u64) -> Result<(), ConsensusStopped> {
        let id = u64::from(member.number());
        self.links.admit(member, LinkNumber { start, number: 0 });
        self.snapshots.remove(&id);
        self.call("forgotten progress", |node| {
            let next = node.raft.raft_log.last_index() + 1;
            if let Some(progress) = node.raft.mut_prs().get_mut(id) {
                progress.matched = 0;
                progress.pending_snapshot = 0;
                progress.become_probe();
                // Where a new leader begins to probe as well.
                progress.next_idx = next;
            }
        })
    }

    /// Role, term, leader and positions.
    pub fn status(&self) -> MemberStatus {
        let raft = &self.node.raft;
        MemberStatus {
            role: match raft.state {
                StateRole::Follower => Role::Follower,
                StateRole::PreCandidate => Role::PreCandidate,
                StateRole::Candidate => Role::Candidate,
                StateRole::Leader => Role::Leader,
            },
            term: raft.term,
            leader: node_id(raft.leader_id),
            last: self.node.store().log.last_index(),
            persisted: raft.raft_log.persisted,
            committed: raft.raft_log.committed,
            applied: raft.raft_log.applied,
        }
    }

    /// The membership that is in force here.
    pub fn membership(&self) -> &Members {
        &self.membership
    }

    /// The last entry that a member is known to have; `None` on a node that does not lead, and for nodes that are not members.
    pub fn matched(&self, node: NodeId) -> Option<u64> {
        let raft = &self.node.raft;
        let progress = raft.prs().get(u64::from(node.number()))?;
        (raft.state == StateRole::Leader).then_some(progress.matched)
    }

    /// The log.
    pub fn log(&self) -> &L {
        &self.node.store().log
    }

    /// When [`Consensus::tick`] wants to be called next.
    pub fn wake_at(&self) -> Option<Time> {
        self.stopped
            .is_none()
            .then(|| self.next_tick.unwrap_or(Time::ZERO))
    }

    /// Runs one call of the library: a panic stops the core (rule 9), and election timeouts stay those of the seed (rule 1).
    fn call<R>(
        &mut self,
        during: &'static str,
        call: impl FnOnce(&mut RawNode<LibraryStorage<L>>) -> R,
    ) -> Result<R, ConsensusStopped> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        let node = &mut self.node;
        match catch_unwind(AssertUnwindSafe(|| call(node))) {
            Ok(result) => {
                self.pin_timeout();
                Ok(result)
            }
            Err(panic) => Err(self.stop(during, panic_text(&*panic).to_owned())),
        }
    }

    /// A stopped core refuses every call, also those that would not reach the library.
    fn check_running(&self) -> Result<(), ConsensusStopped> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    fn stop(&mut self, during: &'static str, cause: String) -> ConsensusStopped {
        let stopped = ConsensusStopped { during, cause };
        self.stopped = Some(stopped.clone());
        stopped
    }

    /// Sets the election timeout, drawn from the seed whenever term or role change: the library draws its own from the operating
    /// system's randomness. Whether it drew is not observable (it may draw the same value), so the trigger must be ours.
    fn pin_timeout(&mut self) {
        if !self.rules.has(WrapperRule::PinnedTimeouts) {
            return;
        }
        let raft = &mut self.node.raft;
        let of = (raft.term, raft.state);
        if self.timeout_of != of {
            self.timeout_of = of;
            let shortest = raft.election_timeout();
            self.timeout = shortest + self.random.index(shortest);
        }
        raft.set_randomized_election_timeout(self.timeout);
    }

    /// May this node ask for votes? Its membership could be too old (see [`Config::campaign_after`]).
    fn may_campaign(&self) -> bool {
        self.node.raft.raft_log.applied >= self.config.campaign_after
    }

    /// A grant is sent by a leader that applied its entry, and the node takes entries from leaders of that term or a later one
    /// only: its log up to there is the committed one, whether or not a leader is left to say so. Without this, a node with the
    /// longest log that may not campaign keeps all others from winning.
    fn commit_granted(&mut self) {
        let granted = self.config.campaign_after;
        let log = &mut self.node.raft.raft_log;
        if log.last_index() >= granted {
            log.commit_to(granted);
        }
    }

    /// Is a checkpoint being installed? (WrapperRule 3.)
    fn is_quiet(&self) -> bool {
        self.rules.has(WrapperRule::QuietInstall)
            && (self.node.raft.snap().is_some() || self.installing().is_some())
    }

    /// Would the only voter win an election before its log is durable? The library asserts that a new leader's log is: others
    /// have synced it before their votes were asked for, the only voter asks no other.
    fn wins_too_early(&self) -> bool {
        let is_only_voter = self.membership.voters.len() == 1
            && self.membership.voters.contains(&self.config.node)
            && self.membership.outgoing.is_empty();
        is_only_voter && self.node.raft.state != StateRole::Leader && !self.unsynced.is_empty()
    }

    fn installing(&self) -> Option<&SnapshotMark> {
        self.unsynced
            .iter()
            .find_map(|unsynced| unsynced.install.as_ref())
    }

    /// The time is `now`: heartbeats, elections, and the ends of snapshots and reads that get no report.
    pub fn tick(&mut self, now: Time) -> Result<(), ConsensusStopped> {
        self.check_running()?;
        self.now = self.now.max(now);
        let due = *self.next_tick.get_or_insert(self.now + self.tick);
        // After a pause the time is not made up for: at most one election timeout passes in one call.
        let ticks_max = self.node.raft.election_timeout() as u64;
        let late = self.now.since(due).as_nanos() / self.tick.as_nanos();
        let ticks = if self.now < due {
            0
        } else {
            (late as u64 + 1).min(ticks_max)
        };
        if ticks > 0 {
            self.next_tick = Some(self.now + self.tick);
        }
        for _ in 0..ticks {
            if self.is_quiet() || self.wins_too_early() {
                break;
            }
            if self.may_campaign() {
                self.call("tick", |node| node.tick())?;
            } else {
                // The node waits without asking for votes; it may vote for others once it has not heard from a leader for long.
                self.commit_granted();
                let raft = &mut self.node.raft;
                raft.election_elapsed = (raft.election_elapsed + 1).min(raft.election_timeout());
            }
        }
        self.fail_snapshots()?;
        self.fail_reads();
        self.leave_joint()
    }

    /// WrapperRule 6: a snapshot without a report has failed.
    fn fail_snapshots(&mut self) -> Result<(), ConsensusStopped> {
        if !self.rules.has(WrapperRule::SnapshotTimeout) {
            return Ok(());
        }
        let due: Vec<u64> = self
            .snapshots
            .iter()
            .filter(|sent| *sent.1 <= self.now)
            .map(|sent| *sent.0)
            .collect();
        for member in due {
            self.report_snapshot(member, SnapshotStatus::Failure)?;
        }
        Ok(())
    }

    fn fail_reads(&mut self) {
        let raft = &self.node.raft;
        let of = (raft.term, raft.leader_id);
        let changed = of != self.reads_of;
        self.reads_of = of;
        let now = self.now;
        let failed = &mut self.failed;
        self.reads.retain(|token, deadline| {
            let is_alive = !changed && *deadline > now;
            if !is_alive {
                failed.push(*token);
            }
            is_alive
        });
    }

    /// A leader that was elected in a joint membership whose end was not proposed proposes it.
    fn leave_joint(&mut self) -> Result<(), ConsensusStopped> {
        let raft = &self.node.raft;
        let wants = self.membership.auto_leave
            && raft.state == StateRole::Leader
            && !raft.has_pending_conf()
            && raft.commit_to_current_term();
        if wants && !self.is_quiet() {
            let _ = self.call("leave joint membership", |node| {
                node.propose_conf_change(Vec::new(), ConfChangeV2::default())
            })?;
        }
        Ok(())
    }

    /// A message arrived on the link of `from`. Messages that do not fit are dropped: `Ok(false)`.
    pub fn step(&mut self, from: NodeId, message: PeerMessage) -> Result<bool, ConsensusStopped> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        if self.is_quiet() || !self.admits(from, &message)? {
            return Ok(false);
        }
        match message.body {
            Body::TimeoutNow if self.wins_too_early() || !self.may_campaign() => return Ok(false),
            Body::ReadIndexReply { context, .. }
                if context.start != self.config.start
                    || !self.reads.contains_key(&context.token) =>
            {
                return Ok(false);
            }
            Body::ReadIndex(_) if self.node.raft.pending_read_count() >= READS_MAX => {
                return Ok(false);
            }
            _ => {}
        }
        let raft_message = to_library(message.clone());
        if let Body::Snapshot(mark) = message.body
            && self.needs(&mark, message.term)
        {
            // From another node it is shown again: the one before may be gone.
            let is_known = |offer: &(RaftMessage, SnapshotMark, bool)| {
                offer.1 == mark && offer.0.from == raft_message.from && offer.2
            };
            let was_shown = self.offer.as_ref().is_some_and(is_known);
            self.offer = Some((raft_message, mark, was_shown));
            return Ok(true);
        }
        // Errors of the library say that it ignored the message.
        let _ = self.call("step", |node| node.step(raft_message))?;
        self.fail_reads();
        Ok(true)
    }

    fn needs(&self, mark: &SnapshotMark, term: u64) -> bool {
        let log = &self.node.raft.raft_log;
        term >= self.node.raft.term
            && mark.index > log.committed
            && !log.match_term(mark.index, mark.term)
    }

    /// WrapperRule 9.
    fn admits(&mut self, from: NodeId, message: &PeerMessage) -> Result<bool, ConsensusStopped> {
        let status = self.status();
        if self.rules.has(WrapperRule::CheckedMessages) {
            let local = Local {
                node: self.config.node,
                term: status.term,
                last: self.node.raft.raft_log.last_index(),
                is_leader: status.role == Role::Leader,
                is_member: self.membership.contains(message.from),
            };
            if message.from != from || objection(message, &local).is_some() {
                return Ok(false);
            }
            if let Body::Heartbeat { commit, .. } = message.body
                && message.term >= status.term
                && commit > local.last
            {
                // A node that lost its log and has rejoined: the message is of the time before.
                if !self.may_campaign() {
                    return Ok(false);
                }
                let cause = format!(
                    "the log ends at {}, but the leader {from} had a report that it is durable up to {commit}: this node \
                     lost a part of its log, and must rejoin the cluster",
                    local.last
                );
                self.has_lost_entries = true;
                return Err(self.stop("step", cause));
            }
        }
        Ok(!self.rules.has(WrapperRule::LinkOrder) || self.links.admit(from, message.link))
    }

    /// The state of the offered checkpoint is here, ready to be installed. Returns whether it is still wanted.
    pub fn transferred(&mut self, mark: &SnapshotMark) -> Result<bool, ConsensusStopped> {
        self.check_running()?;
        match self.offer.take() {
            Some((message, offered, _)) if offered == *mark && !self.is_quiet() => {
                let _ = self.call("snapshot", |node| node.step(message))?;
                Ok(self.node.raft.snap().is_some())
            }
            other => {
                self.offer = other;
                Ok(false)
            }
        }
    }

    /// Proposes an entry; the bytes are shared, not copied. It may never be committed: the caller sees it among the committed
    /// entries, or not.
    pub fn propose(&mut self, data: Bytes) -> Result<(), Refused> {
        if data.is_empty() || data.len() > ENTRY_LENGTH_MAX {
            return Err(Refused::Length(data.len()));
        }
        self.check_leader()?;
        let mut message = RaftMessage::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        let entry = RaftEntry {
            data,
            ..RaftEntry::default()
        };
        message.set_entries(vec![entry].into());
        self.call("propose", |node| node.raft.step(message))?
            .map_err(|_| Refused::Busy)
    }

    fn check_leader(&self) -> Result<(), Refused> {
        if let Some(stopped) = &self.stopped {
            return Err(Refused::Stopped(stopped.clone()));
        }
        if self.is_quiet() {
            return Err(Refused::Busy);
        }
        let raft = &self.node.raft;
        if raft.state == StateRole::Leader {
            Ok(())
        } else {
            Err(Refused::NotLeader(node_id(raft.leader_id)))
        }
    }

    /// Proposes a change of the membership: one change directly, several through a joint membership, which ends by itself. One
    /// change at a time; a change that comes while another is under way becomes an empty entry.
    pub fn propose_membership(&mut self, changes: &[MemberChange]) -> Result<(), Refused> {
        if changes.is_empty() || changes.len() > MEMBERS_MAX {
            return Err(Refused::Membership("no change, or too many"));
        }
        if changes.iter().any(|change| !is_server(change.node())) {
            return Err(Refused::Membership("members are servers counted from 1"));
        }
        self.check_leader()?;
        let raft = &self.node.raft;
        if raft.has_pending_conf() || !self.membership.outgoing.is_empty() {
            return Err(Refused::Membership("another change is under way"));
        }
        let (change, context) = (to_change(changes), encode_changes(changes));
        let proposed = self.call("membership", |node| {
            node.propose_conf_change(context, change)
        })?;
        proposed.map_err(|_| Refused::Busy)
    }

    /// Hands the leadership over to this voter, within one election timeout or not at all.
    pub fn transfer_leadership(&mut self, to: NodeId) -> Result<(), Refused> {
        self.check_leader()?;
        if !self.membership.voters.contains(&to) {
            return Err(Refused::Membership("only a voter can lead"));
        }
        let to = u64::from(to.number());
        Ok(self.call("transfer of leadership", |node| node.transfer_leader(to))?)
    }

    /// Asks for the index that a linearizable read must see; no entry is written. Answered in [`Ready::reads`] or
    /// [`Ready::reads_failed`]. Tokens are unique per start.
    pub fn read(&mut self, token: u64) -> Result<(), Refused> {
        if let Some(stopped) = &self.stopped {
            return Err(Refused::Stopped(stopped.clone()));
        }
        let raft = &self.node.raft;
        let is_unready = match raft.state {
            StateRole::Leader => !raft.commit_to_current_term(),
            _ => raft.leader_id == 0,
        };
        if is_unready || self.is_quiet() || self.reads.len() >= READS_MAX {
            return Err(if is_unready {
                Refused::NotLeader(None)
            } else {
                Refused::Busy
            });
        }
        self.fail_reads();
        let deadline = self.now + self.config.election * 2;
        if self.reads.insert(token, deadline).is_some() {
            return Ok(());
        }
        let context = ReadContext {
            node: self.config.node,
            start: self.config.start,
            token,
        };
        Ok(self.call("read", |node| {
            node.read_index(from_context(context).to_vec());
        })?)
    }

    /// Campaigns now: a cluster of one voter needs not wait for its election timeout.
    pub fn campaign(&mut self) -> Result<(), Refused> {
        let may_campaign = self.may_campaign() && self.node.raft.promotable();
        if self.is_quiet() || self.wins_too_early() || !may_campaign {
            return Err(Refused::Busy);
        }
        let _ = self.call("campaign", |node| node.campaign())?;
        Ok(())
    }

    /// This ticket, and every one before it, is durable.
    pub fn persisted(&mut self, ticket: Ticket) -> Result<(), ConsensusStopped> {
        self.check_running()?;
        let mut newest = None;
        let mut installed = None;
        while self
            .unsynced
            .front()
            .is_some_and(|unsynced| unsynced.ticket <= ticket.0)
        {
            let Some(unsynced) = self.unsynced.pop_front() else {
                break;
            };
            newest = Some(unsynced.up_to);
            self.durable_term = self.durable_term.max(unsynced.term);
            installed = unsynced.install.or(installed);
            self.released.extend(unsynced.held);
        }
        if let Some(newest) = newest {
            self.call("persisted", |node| node.on_persist_ready(newest))?;
        }
        if let Some(mark) = installed {
            // Applied at once: until then the library would look for entries below the checkpoint.
            self.reported = self.reported.max(mark.index);
        }
        self.advance_applied()
    }

    /// The state machine has applied everything up to this index.
    pub fn applied(&mut self, index: u64) -> Result<(), ConsensusStopped> {
        self.check_running()?;
        self.reported = self.reported.max(index.min(self.handed_out));
        self.advance_applied()
    }

    fn advance_applied(&mut self) -> Result<(), ConsensusStopped> {
        let log = &self.node.raft.raft_log;
        let mut to = self.reported.min(self.handed_out);
        if self.rules.has(WrapperRule::AppliedAfterPersisted) {
            // WrapperRule 2.
            to = to.min(log.persisted).min(log.committed);
        }
        if to > log.applied {
            self.call("applied", |node| node.advance_apply_to(to))?;
            self.node.mut_store().log.trim(to);
        }
        Ok(())
    }

    /// The node has this durable checkpoint: laggards may get it.
    pub fn checkpointed(&mut self, mark: SnapshotMark) {
        let store = self.node.mut_store();
        if mark.index >= store.checkpoint.index && mark.members.is_valid() {
            store.checkpoint = mark;
        }
    }

    /// Removes the log up to this index, as far as it is applied (rule 4) and in the checkpoint. Returns the first index that is
    /// left: the journal may free what is before it.
    pub fn compact(&mut self, to: u64) -> u64 {
        let applied = self.node.raft.raft_log.applied;
        let store = self.node.mut_store();
        let mut to = to.min(store.checkpoint.index);
        if self.rules.has(WrapperRule::CompactApplied) {
            to = to.min(applied);
        }
        store.log.compact(to);
        store.log.first_index()
    }

    /// Entries of a [`Fetch`](crate::Fetch) were read; none if they are gone.
    pub fn fetched(&mut self, entries: Vec<LogEntry>) -> Result<(), ConsensusStopped> {
        self.check_running()?;
        let store = self.node.mut_store();
        let contexts: Vec<GetEntriesContext> = store
            .fetches
            .get_mut()
            .drain(..)
            .map(|fetch| fetch.1)
            .collect();
        let agree = entries
            .iter()
            .all(|entry| store.log.term(entry.index) == Some(entry.term));
        // Replaced since the journal was asked: asked again when they are missed again.
        let is_there = agree && !entries.is_empty();
        store
            .log
            .fetched(if is_there { entries } else { Vec::new() });
        store.fetching.set(false);
        // Without entries the library would ask again at once, for ever; so it asks with the next heartbeat.
        if is_there && !self.is_quiet() {
            for context in contexts {
                self.call("fetched", |node| node.on_entries_fetched(context))?;
            }
        }
        Ok(())
    }

    /// The member has installed the snapshot that it was sent.
    pub fn snapshot_sent(&mut self, to: NodeId) -> Result<(), ConsensusStopped> {
        self.report_snapshot(u64::from(to.number()), SnapshotStatus::Finish)
    }

    /// The snapshot did not reach the member.
    pub fn snapshot_failed(&mut self, to: NodeId) -> Result<(), ConsensusStopped> {
        self.report_snapshot(u64::from(to.number()), SnapshotStatus::Failure)
    }

    fn report_snapshot(
        &mut self,
        member: u64,
        status: SnapshotStatus,
    ) -> Result<(), ConsensusStopped> {
        self.snapshots.remove(&member);
        self.call("snapshot report", |node| {
            node.report_snapshot(member, status);
        })
    }

    /// What there is to do; `None` when there is nothing. Call it after each batch of calls until it returns `None`.
    pub fn ready(&mut self) -> Result<Option<Ready>, ConsensusStopped> {
        let has_ready = self.call("has ready", |node| node.has_ready())?;
        if !has_ready && !self.has_own_work() {
            return Ok(None);
        }
        let mut ready = Ready {
            reads_failed: std::mem::take(&mut self.failed),
            transfer: self.take_offer(),
            checkpoint_due: self.node.mut_store().due.take(),
            ..Ready::default()
        };
        let mut send = std::mem::take(&mut self.released);
        if has_ready {
            self.take_ready(&mut ready, &mut send)?;
        }
        for message in send {
            self.send(&message, &mut ready.send);
        }
        ready.reads = std::mem::take(&mut self.granted);
        self.take_fetches(&mut ready);
        let has_work = has_ready
            || !ready.send.is_empty()
            || !ready.reads_failed.is_empty()
            || !ready.fetch.is_empty()
            || ready.transfer.is_some()
            || ready.checkpoint_due;
        Ok(has_work.then_some(ready))
    }

    /// May there be something besides what the library has? (It is asked for after every message, mostly in vain.)
    fn has_own_work(&mut self) -> bool {
        let store = self.node.mut_store();
        store.due.get()
            || !store.fetches.get_mut().is_empty()
            || !self.failed.is_empty()
            || !self.released.is_empty()
            || !self.granted.is_empty()
            || self.offer.is_some()
    }

    fn take_offer(&mut self) -> Option<CheckpointOffer> {
        let (message, mark, shown) = self.offer.as_mut()?;
        let from = node_id(message.from).filter(|_| !*shown)?;
        *shown = true;
        Some(CheckpointOffer {
            from,
            mark: mark.clone(),
        })
    }

    fn take_fetches(&mut self, ready: &mut Ready) {
        let store = self.node.mut_store();
        let fetches = store.fetches.get_mut();
        // One fetch at a time: all that wait for one share the lowest range.
        if !store.fetching.get()
            && let Some(fetch) = fetches
                .iter()
                .map(|fetch| fetch.0)
                .min_by_key(|fetch| fetch.low)
        {
            store.fetching.set(true);
            ready.fetch.push(fetch);
        }
    }

    fn take_ready(
        &mut self,
        ready: &mut Ready,
        send: &mut Vec<RaftMessage>,
    ) -> Result<(), ConsensusStopped> {
        let (mut library, vote) = self.call("ready", |node| {
            let ready = node.ready();
            (ready, node.raft.hard_state())
        })?;
        let ticket = library.number();
        let mut held = library.take_persisted_messages();
        // A leader's appends leave before its own sync. The votes of others have made its term durable before; an only voter has
        // asked no other: after a crash it would lead the same term again, with other entries.
        if vote.term <= self.durable_term || !self.rules.has(WrapperRule::HeldMessages) {
            send.extend(library.take_messages());
        } else {
            held.splice(0..0, library.take_messages());
        }
        let entries: Vec<LogEntry> = library.entries().iter().map(from_entry).collect();
        let install = (!library.snapshot().is_empty()).then(|| from_snapshot(library.snapshot()));
        let committed = library.take_committed_entries();
        let grants = library.take_read_states();
        let must_sync = library.must_sync();
        let mark = install.clone();
        self.call("append", |node| {
            let store = node.mut_store();
            if let Some(mark) = &mark {
                store.log.reset(mark.index, mark.term);
                store.checkpoint = mark.clone();
            }
            store.log.append(&entries);
            node.advance_append_async(library);
        })?;
        if let Some(mark) = &install {
            self.handed_out = mark.index;
            self.membership = mark.members.clone();
        }
        if must_sync {
            let vote = Vote {
                term: vote.term,
                vote: node_id(vote.vote),
                commit: vote.commit,
            };
            ready.persist = Some(Persist {
                ticket: Ticket(ticket),
                install: install.clone(),
                entries,
                vote,
            });
        }
        let unsynced = Unsynced {
            ticket,
            up_to: ticket,
            term: vote.term,
            install,
            held,
        };
        self.hold(unsynced, must_sync, send)?;
        for grant in grants {
            self.grant(&grant);
        }
        self.hand_out(committed, ready)
    }

    /// Messages of this ticket wait for it. If it has nothing to sync they still wait for those before it: a reply may
    /// acknowledge entries of an earlier ticket.
    fn hold(
        &mut self,
        mut unsynced: Unsynced,
        must_sync: bool,
        send: &mut Vec<RaftMessage>,
    ) -> Result<(), ConsensusStopped> {
        if !self.rules.has(WrapperRule::HeldMessages) {
            send.append(&mut unsynced.held);
            self.unsynced.push_back(unsynced);
        } else if must_sync {
            self.unsynced.push_back(unsynced);
        } else if let Some(last) = self.unsynced.back_mut() {
            last.held.extend(unsynced.held);
            last.up_to = unsynced.ticket;
        } else {
            send.extend(unsynced.held);
            let ticket = unsynced.ticket;
            self.call("persisted", |node| node.on_persist_ready(ticket))?;
        }
        Ok(())
    }

    fn grant(&mut self, state: &raft::ReadState) {
        let Some(context) = to_context(&state.request_ctx) else {
            return;
        };
        if context.start == self.config.start && self.reads.remove(&context.token).is_some() {
            self.granted.push(ReadGrant {
                token: context.token,
                index: state.index,
            });
        }
    }

    /// Committed entries leave, and memberships take effect.
    fn hand_out(
        &mut self,
        entries: Vec<RaftEntry>,
        ready: &mut Ready,
    ) -> Result<(), ConsensusStopped> {
        for entry in entries {
            let entry = from_entry(&entry);
            if entry.index != self.handed_out + 1 {
                let cause = format!("index {} committed after {}", entry.index, self.handed_out);
                return Err(self.stop("ready", cause));
            }
            self.handed_out = entry.index;
            let change = match &entry.payload {
                Payload::Membership(changes) => Some(to_change(changes)),
                Payload::LeaveJoint => Some(ConfChangeV2::default()),
                Payload::Empty | Payload::Data(_) => None,
            };
            let mut membership = None;
            if let Some(change) = change {
                // An error is the same on all members, and leaves the membership as it is.
                if let Ok(state) =
                    self.call("membership", |node| node.apply_conf_change(&change))?
                {
                    self.membership = from_conf_state(&state);
                    membership = Some(self.membership.clone());
                    self.step_down()?;
                }
            }
            ready.committed.push(Committed { entry, membership });
        }
        Ok(())
    }

    /// WrapperRule 5.
    fn step_down(&mut self) -> Result<(), ConsensusStopped> {
        let raft = &self.node.raft;
        let is_voter = self.membership.voters.contains(&self.config.node)
            || self.membership.outgoing.contains(&self.config.node);
        if self.rules.has(WrapperRule::RemovedLeader)
            && raft.state == StateRole::Leader
            && !is_voter
        {
            let term = raft.term;
            self.call("step down", |node| node.raft.become_follower(term, 0))?;
        }
        Ok(())
    }

    fn send(&mut self, message: &RaftMessage, out: &mut Vec<PeerMessage>) {
        let to = message.to;
        let Some(mut message) = from_library(message, self.config.node) else {
            return;
        };
        if matches!(message.body, Body::Snapshot(_)) {
            self.snapshots
                .insert(to, self.now + self.config.snapshot_timeout);
        }
        let number = self.sent.entry(to).or_insert(0);
        loop {
            // The library gathers all appends of a turn into one message, of any length.
            let rest = message.split_off(self.config.append_bytes_max.max(SPLIT_BYTES));
            *number += 1;
            message.link = LinkNumber {
                start: self.config.start,
                number: *number,
            };
            out.push(message);
            match rest {
                Some(rest) => message = rest,
                None => return,
            }
        }
    }
}
