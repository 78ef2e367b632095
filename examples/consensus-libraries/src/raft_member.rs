//! raft as a machine, by the crate `seatrial-consensus`, whose rules can be switched off: one member, its journal, checkpoints
//! and their transfer.
//!
//! The journal is a list of records: starts, entries with the vote, own checkpoints. Entries and marks of checkpoints are
//! stored as messages of the crate, which has an encoding for them.

use crate::command::{Command, Decision, LogState, Reply, Request};
use crate::ledger::{FailureKind, SharedLedger};
use crate::member::{Member, journal_line, read_journal};
use crate::scenario::Scenario;
use bytes::Bytes;
use seatrial_consensus::{
    Body, CachedLog, Committed, Config, Consensus, EntryLog, LinkNumber, LogEntry, MemberChange,
    Members, Payload, PeerMessage, Persist, Ready, Refused, Role, SnapshotMark, StartPoint, Vote,
    decode, encode,
};
use seatrial_machine::{
    Booted, DataFolder, Input, LogName, Machine, NodeId, Output, Rng, Ticket, Time,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const HEARTBEAT: Duration = Duration::from_millis(20);
const ELECTION: Duration = Duration::from_millis(100);
const SNAPSHOT_TIMEOUT: Duration = Duration::from_millis(600);
/// A wanted checkpoint is asked for again after this time.
const PULL_TIMEOUT: Duration = Duration::from_millis(150);
/// Longest time, in milliseconds, in which the state machine applies what was committed.
const APPLY_MAX: u64 = 20;

/// A checkpoint with its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Checkpoint {
    /// The mark, as a `Snapshot` message.
    mark: Vec<u8>,
    state: Vec<Decision>,
}

/// A record of the journal.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Start(u64),
    Write {
        install: Option<Checkpoint>,
        /// The entries, as an `Append` message.
        entries: Option<Vec<u8>>,
        /// Term, vote, commit index.
        vote: (u64, Option<u32>, u64),
    },
    Checkpoint(Checkpoint),
}

/// What members send to each other.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// A message of the library.
    Library(Vec<u8>),
    /// Asks for the state of this checkpoint.
    Pull(u64),
    /// The newest checkpoint.
    State(Checkpoint),
}

/// What an append to the journal completes.
#[derive(Debug)]
enum Appended {
    Start,
    Write(Ticket),
    Checkpoint(SnapshotMark),
}

/// The journal as it is after all appends.
#[derive(Debug, Default)]
struct Journal {
    starts: u64,
    checkpoint: SnapshotMark,
    state: Vec<Decision>,
    entries: BTreeMap<u64, LogEntry>,
    vote: Vote,
}

impl Journal {
    /// Reads the journal, and its end.
    fn read(scenario: &Scenario, data: &DataFolder) -> Result<(Journal, u64), String> {
        let founding = Members::of_voters((1..=scenario.nodes).map(NodeId::server));
        let mut journal = Journal {
            checkpoint: SnapshotMark {
                members: founding,
                ..SnapshotMark::default()
            },
            ..Journal::default()
        };
        let (records, end) = read_journal::<Record>(data)?;
        for record in records {
            journal.apply(record)?;
        }
        Ok((journal, end))
    }

    /// A core that continues it.
    fn into_core(self, mut config: Config) -> Result<Consensus<CachedLog>, String> {
        let Journal {
            checkpoint,
            entries,
            vote,
            ..
        } = self;
        let mut log = CachedLog::new(checkpoint.index, checkpoint.term, 1 << 20);
        let rest = entries.range(checkpoint.index + 1..);
        log.append(&rest.map(|(_, entry)| entry.clone()).collect::<Vec<_>>());
        (config.heartbeat, config.election) = (HEARTBEAT, ELECTION);
        config.snapshot_timeout = SNAPSHOT_TIMEOUT;
        (config.append_bytes_max, config.appends_max) = (64, 8);
        let recovered = StartPoint { checkpoint, vote };
        Consensus::new(config, recovered, log).map_err(|error| error.to_string())
    }

    fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Start(start) => self.starts = start,
            Record::Checkpoint(checkpoint) => {
                self.checkpoint = mark_of(&checkpoint.mark)?;
                self.state = checkpoint.state;
            }
            Record::Write {
                install,
                entries,
                vote: (term, vote, commit),
            } => {
                if let Some(checkpoint) = install {
                    self.checkpoint = mark_of(&checkpoint.mark)?;
                    self.state = checkpoint.state;
                    self.entries.clear();
                }
                for entry in entries.map_or(Ok(Vec::new()), |bytes| entries_of(&bytes))? {
                    // An entry replaces the one at its index and all that follow.
                    self.entries.split_off(&entry.index);
                    self.entries.insert(entry.index, entry);
                }
                let vote = vote.map(NodeId::server);
                self.vote = Vote { term, vote, commit };
            }
        }
        Ok(())
    }
}

/// One member.
pub(crate) struct RaftMember {
    id: NodeId,
    core: Consensus<CachedLog>,
    start: u64,
    checkpoint_every: u64,
    appends: u64,
    appended: VecDeque<(u64, Appended)>,
    /// Messages before the number of this start is durable.
    early: Option<Vec<Output<Reply>>>,
    /// The newest durable checkpoint.
    checkpoint: Checkpoint,
    checkpoint_index: u64,
    /// Installs whose write is under way.
    installing: u64,
    /// A checkpoint that is wanted: from whom, and when to ask again.
    wanted: Option<(NodeId, SnapshotMark, Time)>,
    /// The state of a checkpoint that is about to be installed.
    pulled: Option<Checkpoint>,
    state: LogState,
    term: u64,
    membership: Members,
    /// Indices that the state machine will have applied at a time.
    applying: VecDeque<(Time, u64)>,
    waiting: BTreeMap<Command, Ticket>,
    rng: Rng,
    /// The next reply that leaves acknowledges entries that no leader sent.
    is_forging: bool,
    is_stopped: bool,
    now: Time,
    ledger: SharedLedger,
}

fn envelope(body: Body) -> PeerMessage {
    PeerMessage {
        from: NodeId::server(1),
        to: NodeId::server(1),
        link: LinkNumber::default(),
        term: 1,
        body,
    }
}

fn mark_bytes(mark: &SnapshotMark) -> Vec<u8> {
    encode(&envelope(Body::Snapshot(mark.clone())))
}

fn mark_of(bytes: &[u8]) -> Result<SnapshotMark, String> {
    match decode(&Bytes::copy_from_slice(bytes))
        .map_err(|error| error.to_string())?
        .body
    {
        Body::Snapshot(mark) => Ok(mark),
        other => Err(format!(
            "a mark of a checkpoint is a message of kind {}",
            other.name()
        )),
    }
}

fn entries_bytes(entries: &[LogEntry]) -> Option<Vec<u8>> {
    let first = entries.first()?;
    Some(encode(&envelope(Body::Append {
        previous_index: first.index - 1,
        previous_term: 0,
        commit: 0,
        entries: entries.to_vec(),
    })))
}

fn entries_of(bytes: &[u8]) -> Result<Vec<LogEntry>, String> {
    match decode(&Bytes::copy_from_slice(bytes))
        .map_err(|error| error.to_string())?
        .body
    {
        Body::Append { entries, .. } => Ok(entries),
        other => Err(format!("entries are a message of kind {}", other.name())),
    }
}

/// The decision of an entry.
fn decision_of(entry: &LogEntry) -> Decision {
    let internal = |what: String| Decision::Internal(entry.term, what);
    match &entry.payload {
        Payload::Data(bytes) => match serde_json::from_slice(bytes) {
            Ok(command) => Decision::Command(command),
            Err(error) => internal(format!("an entry that is no command ({error})")),
        },
        Payload::Empty => internal("empty entry".to_owned()),
        Payload::Membership(changes) => {
            let changes = changes.iter().map(|change| format!("{change:?}"));
            internal(changes.collect::<Vec<_>>().join(", "))
        }
        Payload::LeaveJoint => internal("end of the joint membership".to_owned()),
    }
}

/// Digest of a state: FNV-1a of its text.
fn digest(state: &[Decision]) -> [u8; 16] {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for decision in state {
        for byte in decision.to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&hash.to_le_bytes());
    digest
}

impl RaftMember {
    /// A call of the core failed: the member does nothing any more.
    fn check<T>(&mut self, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(stopped) => {
                self.is_stopped = true;
                let text = format!("{}: {}", self.id, stopped.to_string());
                self.ledger.borrow_mut().fail(FailureKind::Panic, text);
                None
            }
        }
    }

    fn append(&mut self, record: &Record, appended: Appended, out: &mut Vec<Output<Reply>>) {
        self.appends += 1;
        self.appended.push_back((self.appends, appended));
        out.push(Output::Append {
            log: LogName::MAIN,
            bytes: journal_line(record),
            ticket: Ticket(self.appends),
        });
    }

    fn send(&mut self, to: NodeId, message: &Message, out: &mut Vec<Output<Reply>>) {
        let message = serde_json::to_vec(message).expect("messages have text keys");
        let output = Output::Send { to, message };
        match &mut self.early {
            Some(early) => early.push(output),
            None => out.push(output),
        }
    }

    fn receive(&mut self, from: NodeId, bytes: &[u8], out: &mut Vec<Output<Reply>>) {
        match serde_json::from_slice(bytes) {
            Ok(Message::Library(bytes)) => {
                let Ok(message) = decode(&Bytes::from(bytes)) else {
                    return;
                };
                let link = (message.link.start, message.link.number);
                if let Some(text) = describe_message(&message) {
                    let mut ledger = self.ledger.borrow_mut();
                    ledger.arrived(from, self.id, link, || text);
                }
                let result = self.core.step(from, message);
                self.check(result);
            }
            Ok(Message::Pull(index)) if index == self.checkpoint_index => {
                let checkpoint = self.checkpoint.clone();
                self.send(from, &Message::State(checkpoint), out);
            }
            Ok(Message::State(checkpoint)) => self.transferred(checkpoint),
            Ok(Message::Pull(_)) | Err(_) => {}
        }
    }

    /// The state of a checkpoint arrived.
    fn transferred(&mut self, checkpoint: Checkpoint) {
        let Ok(mark) = mark_of(&checkpoint.mark) else {
            return;
        };
        let is_wanted = self
            .wanted
            .as_ref()
            .is_some_and(|(_, wanted, _)| *wanted == mark);
        if !is_wanted || digest(&checkpoint.state) != mark.digest {
            return;
        }
        self.wanted = None;
        self.pulled = Some(checkpoint);
        let result = self.core.transferred(&mark);
        self.check(result);
    }

    fn request(&mut self, ticket: Ticket, request: Request, out: &mut Vec<Output<Reply>>) {
        match request {
            Request::Replicate(command) => {
                let data = serde_json::to_vec(&command).expect("commands have text keys");
                match self.core.propose(Bytes::from(data)) {
                    Ok(()) => {
                        self.waiting.insert(command, ticket);
                    }
                    Err(Refused::Stopped(stopped)) => {
                        self.check::<()>(Err(stopped));
                    }
                    Err(Refused::NotLeader(leader)) => {
                        out.push(Output::Reply(ticket, Reply::Refused(leader)));
                    }
                    Err(_) => out.push(Output::Reply(ticket, Reply::Refused(None))),
                }
            }
            Request::Change(target) => self.change_membership(target),
            Request::Transfer(target) => {
                if let Err(Refused::Stopped(stopped)) = self.core.transfer_leadership(target) {
                    self.check::<()>(Err(stopped));
                }
            }
            Request::Forge => self.is_forging = true,
            Request::Snapshot | Request::StopSign => {}
        }
    }

    fn change_membership(&mut self, target: NodeId) {
        if self.core.status().role != Role::Leader {
            return;
        }
        let members = self.core.membership().clone();
        let learner = members.learners.first().copied();
        let is_voter = members.voters.contains(&target);
        let changes = match (is_voter, learner) {
            (true, Some(learner)) if self.rng.chance(0.5) => {
                vec![
                    MemberChange::AddVoter(learner),
                    MemberChange::Remove(target),
                ]
            }
            (true, _) if members.voters.len() > 2 => vec![MemberChange::Remove(target)],
            (true, _) => return,
            (false, _) if members.learners.contains(&target) => {
                vec![MemberChange::AddVoter(target)]
            }
            (false, _) => vec![MemberChange::AddLearner(target)],
        };
        let text = format!("{changes:?}");
        let id = self.id;
        if self.core.propose_membership(&changes).is_ok() {
            self.ledger
                .borrow_mut()
                .line(|| format!("{id} proposes {text}"));
        }
    }

    fn appended(&mut self, ticket: Ticket, out: &mut Vec<Output<Reply>>) {
        while let Some((_, appended)) = self
            .appended
            .pop_front_if(|(number, _)| *number <= ticket.0)
        {
            match appended {
                Appended::Start => out.extend(self.early.take().unwrap_or_default()),
                Appended::Write(ticket) => {
                    let result = self.core.persisted(ticket);
                    self.check(result);
                    if self.installing == ticket.0 {
                        self.installing = 0;
                    }
                }
                Appended::Checkpoint(mark) => {
                    let index = mark.index;
                    self.core.checkpointed(mark);
                    self.core.compact(index);
                }
            }
        }
    }

    /// Calls that are due at this time.
    fn tick(&mut self, out: &mut Vec<Output<Reply>>) {
        let result = self.core.tick(self.now);
        self.check(result);
        while let Some((_, index)) = self.applying.pop_front_if(|(due, _)| *due <= self.now) {
            let result = self.core.applied(index);
            self.check(result);
        }
        if let Some((from, mark, due)) = self.wanted.clone().filter(|wanted| wanted.2 <= self.now) {
            self.send(from, &Message::Pull(mark.index), out);
            self.wanted = Some((from, mark, due + PULL_TIMEOUT));
        }
    }

    /// Does what the core has ready.
    fn finish(&mut self, out: &mut Vec<Output<Reply>>) {
        while !self.is_stopped {
            let result = self.core.ready();
            let Some(Some(ready)) = self.check(result) else {
                return;
            };
            self.carry_out(ready, out);
        }
    }

    fn carry_out(&mut self, ready: Ready, out: &mut Vec<Output<Reply>>) {
        for mut message in ready.send {
            self.forge(&mut message);
            let link = (message.link.start, message.link.number);
            self.ledger.borrow_mut().sent(self.id, message.to, link);
            self.send(message.to, &Message::Library(encode(&message)), out);
        }
        if let Some(persist) = ready.persist {
            self.persist(persist, out);
        }
        for committed in ready.committed {
            self.apply(committed, out);
        }
        for fetch in ready.fetch {
            let range = self.core.log().entries(fetch.low, fetch.high, u64::MAX);
            let result = self.core.fetched(range.unwrap_or_default());
            self.check(result);
        }
        if let Some(offer) = ready.transfer {
            self.wanted = Some((offer.from, offer.mark, self.now));
        }
        self.make_checkpoint(ready.checkpoint_due, out);
    }

    /// Changes a reply so that it acknowledges entries that no leader sent: what a member with a bug sends.
    fn forge(&mut self, message: &mut PeerMessage) {
        if let Body::AppendReply {
            index,
            rejected: None,
            ..
        } = &mut message.body
            && std::mem::take(&mut self.is_forging)
        {
            *index += 100;
            let (id, to, index) = (self.id, message.to, *index);
            let mut ledger = self.ledger.borrow_mut();
            ledger.line(|| format!("{id} forges its reply to {to}: durable up to {index}"));
        }
    }

    fn persist(&mut self, persist: Persist, out: &mut Vec<Output<Reply>>) {
        let mut install = None;
        if let Some(mark) = persist.install {
            self.installing = persist.ticket.0;
            install = self.pulled.take();
            let state = install
                .as_ref()
                .map(|it| it.state.clone())
                .unwrap_or_default();
            self.ledger
                .borrow_mut()
                .snapshot(self.id, mark.index, &state);
            self.state = LogState::of(&state);
            (self.term, self.membership) = (mark.term, mark.members.clone());
            self.checkpoint_index = mark.index;
            self.checkpoint = install.clone().unwrap_or(Checkpoint {
                mark: mark_bytes(&mark),
                state,
            });
            self.applying.clear();
            self.applying.push_back((self.now, mark.index));
        }
        let Vote { term, vote, commit } = persist.vote;
        let record = Record::Write {
            install,
            entries: entries_bytes(&persist.entries),
            vote: (term, vote.map(NodeId::number), commit),
        };
        self.append(&record, Appended::Write(persist.ticket), out);
    }

    fn apply(&mut self, committed: Committed, out: &mut Vec<Output<Reply>>) {
        let entry = committed.entry;
        self.term = entry.term;
        if let Some(members) = committed.membership {
            self.membership = members;
        }
        let decision = decision_of(&entry);
        self.ledger
            .borrow_mut()
            .decide(self.id, entry.index - 1, &decision);
        if let Some((command, reply)) = self.state.apply(decision)
            && let Some(ticket) = self.waiting.remove(&command)
        {
            out.push(Output::Reply(ticket, reply));
        }
        let due = self.now + Duration::from_millis(self.rng.below(APPLY_MAX));
        let due = self.applying.back().map_or(due, |last| last.0.max(due));
        self.applying.push_back((due, entry.index));
    }

    fn make_checkpoint(&mut self, is_due: bool, out: &mut Vec<Output<Reply>>) {
        let index = self.state.length();
        let is_old = index >= self.checkpoint_index + self.checkpoint_every;
        let is_new = index > self.checkpoint_index;
        if self.installing > 0 || self.pulled.is_some() || !is_new || !(is_due || is_old) {
            return;
        }
        let mark = SnapshotMark {
            index,
            term: self.term,
            members: self.membership.clone(),
            length: index,
            digest: digest(&self.state.decisions),
        };
        let state = self.state.decisions.clone();
        self.ledger.borrow_mut().snapshot(self.id, index, &state);
        let checkpoint = Checkpoint {
            mark: mark_bytes(&mark),
            state,
        };
        self.append(
            &Record::Checkpoint(checkpoint.clone()),
            Appended::Checkpoint(mark),
            out,
        );
        (self.checkpoint, self.checkpoint_index) = (checkpoint, index);
    }
}

impl Machine for RaftMember {
    type Request = Request;
    type Reply = Reply;

    fn turn(&mut self, now: Time, input: Input<Request>, out: &mut Vec<Output<Reply>>) {
        if self.is_stopped {
            return;
        }
        if self.appends == 0 {
            self.append(&Record::Start(self.start), Appended::Start, out);
        }
        self.now = now;
        match input {
            Input::Message { from, bytes } => self.receive(from, &bytes, out),
            Input::Appended(ticket) => self.appended(ticket, out),
            Input::Request(ticket, request) => self.request(ticket, request, out),
            _ => {}
        }
        if !self.is_stopped {
            self.tick(out);
        }
        self.finish(out);
    }

    fn wake_at(&self) -> Option<Time> {
        let times = [
            self.core.wake_at(),
            self.applying.front().map(|applying| applying.0),
            self.wanted.as_ref().map(|wanted| wanted.2),
        ];
        times
            .into_iter()
            .flatten()
            .min()
            .filter(|_| !self.is_stopped)
    }
}

impl Member for RaftMember {
    fn boot(
        scenario: &Scenario,
        id: NodeId,
        data: &DataFolder,
        ledger: SharedLedger,
        seed: u64,
    ) -> Result<Booted<Self>, String> {
        let (journal, end) = Journal::read(scenario, data)?;
        let (mark, state) = (journal.checkpoint.clone(), journal.state.clone());
        let start = journal.starts + 1;
        ledger.borrow_mut().snapshot(id, mark.index, &state);
        let mut core = journal.into_core(Config::new(id, start, seed))?;
        if let Some(rule) = scenario.without {
            core.without_rule(rule);
        }
        let member = RaftMember {
            id,
            core,
            start,
            checkpoint_every: scenario.checkpoint_every,
            appends: 0,
            appended: VecDeque::new(),
            early: Some(Vec::new()),
            checkpoint: Checkpoint {
                mark: mark_bytes(&mark),
                state: state.clone(),
            },
            checkpoint_index: mark.index,
            installing: 0,
            wanted: None,
            pulled: None,
            state: LogState::of(&state),
            term: mark.term,
            membership: mark.members,
            applying: VecDeque::new(),
            waiting: BTreeMap::new(),
            rng: Rng::from_seed(seed ^ start).fork(&id.to_string()),
            is_forging: false,
            is_stopped: false,
            now: Time::ZERO,
            ledger,
        };
        Ok(Booted::with_log(member, end))
    }

    fn applied(&self) -> u64 {
        self.state.length()
    }

    fn is_ended(&self) -> bool {
        false
    }

    fn members_if_leader(&self) -> Option<(u64, Vec<NodeId>)> {
        let status = self.core.status();
        let members = self.core.membership();
        // A joint membership ends by itself: until then some of its nodes are about to leave.
        (status.role == Role::Leader && members.outgoing.is_empty())
            .then(|| (status.term, members.nodes().into_iter().collect()))
    }

    fn describe(&self) -> String {
        let status = self.core.status();
        format!(
            "{}: {:?} of term {}, log ends at {}, durable {}, committed {}, applied {}",
            self.id,
            status.role,
            status.term,
            status.last,
            status.persisted,
            status.committed,
            status.applied
        )
    }
}

/// A message in words; `None` for heartbeats.
fn describe_message(message: &PeerMessage) -> Option<String> {
    let term = message.term;
    Some(match &message.body {
        Body::Heartbeat { .. } | Body::HeartbeatReply { .. } => return None,
        Body::Append {
            previous_index,
            commit,
            entries,
            ..
        } => {
            let first = previous_index + 1;
            let last = previous_index + entries.len() as u64;
            format!("append of term {term}: entries {first}..={last}, commit {commit}")
        }
        Body::AppendReply {
            index,
            rejected: None,
            ..
        } => {
            format!("append reply of term {term}: durable up to {index}")
        }
        Body::AppendReply {
            index,
            rejected: Some(rejection),
            ..
        } => format!(
            "append reply of term {term}: {index} rejected, look at {}",
            rejection.hint_index
        ),
        Body::Vote {
            pre_vote,
            last_index,
            ..
        } => {
            let kind = if *pre_vote { "pre-vote" } else { "vote" };
            format!("{kind} request for term {term}, log ends at {last_index}")
        }
        Body::VoteReply {
            pre_vote, granted, ..
        } => {
            let kind = if *pre_vote { "pre-vote" } else { "vote" };
            let answer = if *granted { "granted" } else { "refused" };
            format!("{kind} {answer} for term {term}")
        }
        Body::Snapshot(mark) => format!("snapshot of term {term} up to {}", mark.index),
        other => format!("{} of term {term}", other.name()),
    })
}
