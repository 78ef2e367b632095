//! omnipaxos as a machine: one member, its journal, its clock.
//!
//! A turn gives the library one input, then collects what it wrote, sends and decided. Everything waits until the write of its
//! turn is durable, because the library counts a write as durable when the storage returns.

use crate::command::{Command, Decision, LogState, Reply, Request};
use crate::ledger::{FailureKind, SharedLedger};
use crate::member::{Effect, HeldEffects, LinkNumbers, Member, journal_line, read_journal};
use crate::omnipaxos_store::{LoggedCommand, SharedStore, Write};
use crate::omnipaxos_text::describe_message;
use crate::scenario::{OmniPaxosFeatures, Scenario};
use omnipaxos::messages::Message;
use omnipaxos::util::LogEntry;
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig};
use seatrial_machine::{
    Booted, DataFolder, Input, Machine, NodeId, Output, Ticket, Time, panic_text,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Time between calls of `tick`.
const TICK: Duration = Duration::from_millis(10);
/// Ticks of a round of leader election.
const ELECTION_TICKS: u64 = 5;
/// Ticks after which lost messages of the prepare phase are sent again.
const RESEND_TICKS: u64 = 10;
/// Bytes in front of a message: start and number, 8 bytes each, little-endian.
const HEADER_LENGTH: usize = 16;

type Library<const SNAPSHOTS: bool> = OmniPaxos<LoggedCommand<SNAPSHOTS>, SharedStore>;
type LibraryMessage<const SNAPSHOTS: bool> = Message<LoggedCommand<SNAPSHOTS>>;

/// One member. `SNAPSHOTS`: may its log be compacted?
pub(crate) struct OmniPaxosMember<const SNAPSHOTS: bool> {
    id: NodeId,
    features: OmniPaxosFeatures,
    checks_length: bool,
    nodes: Vec<u64>,
    library: Library<SNAPSHOTS>,
    store: SharedStore,
    start: u64,
    links: LinkNumbers,
    held: HeldEffects,
    state: LogState,
    /// Requests that wait for their command to be decided here.
    waiting: BTreeMap<Command, Ticket>,
    next_tick: Time,
    /// The library panicked: the member does nothing any more.
    is_stopped: bool,
    ledger: SharedLedger,
}

fn process(node: NodeId) -> u64 {
    u64::from(node.number())
}

fn node(process: u64) -> NodeId {
    NodeId::server(process as u32)
}

impl<const SNAPSHOTS: bool> OmniPaxosMember<SNAPSHOTS> {
    /// Runs one call of the library; a panic stops this member and is a failure of the run.
    fn call(&mut self, call: impl FnOnce(&mut Library<SNAPSHOTS>)) {
        let library = &mut self.library;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call(library))) {
            self.is_stopped = true;
            let text = format!("{}: {}", self.id, panic_text(&*panic));
            self.ledger.borrow_mut().fail(FailureKind::Panic, text);
        }
    }

    fn receive(&mut self, from: NodeId, bytes: &[u8]) {
        let (Some(header), Some(body)) = (
            bytes.first_chunk::<HEADER_LENGTH>(),
            bytes.get(HEADER_LENGTH..),
        ) else {
            return;
        };
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let link = (word(0), word(8));
        let Ok(message) = serde_json::from_slice::<LibraryMessage<SNAPSHOTS>>(body) else {
            return;
        };
        let is_newer = self.links.admit(from, link);
        let is_dropped = self.features.fifo && !is_newer;
        if let Some(text) = describe_message(&message) {
            let suffix = if is_dropped {
                " (dropped: overtaken)"
            } else {
                ""
            };
            let mut ledger = self.ledger.borrow_mut();
            ledger.arrived(from, self.id, link, || format!("{text}{suffix}"));
        }
        if !is_dropped {
            self.call(|library| library.handle_incoming(message));
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request) {
        match request {
            Request::Replicate(command) => {
                self.waiting.insert(command, ticket);
                // Refused after a stop-sign: the client gets no reply.
                self.call(|library| {
                    let _ = library.append(LoggedCommand(command));
                });
            }
            Request::Snapshot if self.features.snapshots => self.call(|library| {
                let _ = library.snapshot(None, true);
            }),
            Request::StopSign if self.features.stop_sign => {
                let next = ClusterConfig {
                    configuration_id: 2,
                    nodes: self.nodes.clone(),
                    flexible_quorum: None,
                };
                self.call(|library| {
                    let _ = library.reconfigure(next, None);
                });
            }
            _ => {}
        }
    }

    /// Applies newly decided entries.
    fn apply_decided(&mut self, effects: &mut Vec<Effect>) {
        let from = self.state.length();
        let mut suffix = None;
        self.call(|library| suffix = library.read_decided_suffix(from as usize));
        for entry in suffix.unwrap_or_default() {
            if self.is_ended() {
                break;
            }
            match entry {
                LogEntry::Decided(LoggedCommand(command)) => {
                    self.apply(Decision::Command(command), effects);
                }
                LogEntry::StopSign(_, true) => self.apply(Decision::Stop, effects),
                LogEntry::Snapshotted(entry) => {
                    let commands = entry.snapshot.0.into_iter();
                    let decisions: Vec<Decision> = commands.map(Decision::Command).collect();
                    self.state = LogState::of(&decisions);
                    effects.push(Effect::Snapshot(entry.trimmed_idx as u64, decisions));
                }
                LogEntry::Undecided(_) | LogEntry::Trimmed(_) | LogEntry::StopSign(_, false) => {}
            }
        }
    }

    fn apply(&mut self, decision: Decision, effects: &mut Vec<Effect>) {
        effects.push(Effect::Decide(self.state.length(), decision.clone()));
        let Some((command, reply)) = self.state.apply(decision) else {
            return;
        };
        if let Some(ticket) = self.waiting.remove(&command) {
            effects.push(Effect::Reply(ticket, reply));
        }
    }

    /// Collects what the library did in this turn.
    fn finish(&mut self, out: &mut Vec<Output<Reply>>) {
        let mut messages = Vec::new();
        self.call(|library| library.take_outgoing_messages(&mut messages));
        let mut effects = Vec::new();
        for message in messages {
            let to = node(message.get_receiver());
            let number = self.links.next(to);
            let mut bytes = self.start.to_le_bytes().to_vec();
            bytes.extend(number.to_le_bytes());
            serde_json::to_writer(&mut bytes, &message).expect("messages have text keys");
            effects.push(Effect::Send(to, bytes));
        }
        self.apply_decided(&mut effects);
        self.check_length();
        if self.is_stopped {
            return;
        }
        let writes = std::mem::take(&mut self.store.0.borrow_mut().unwritten);
        let bytes = (!writes.is_empty()).then(|| journal_line(&writes));
        let ready = self.held.push(effects, bytes, out);
        self.release(ready, out);
    }

    /// A member must have every entry up to its decided index.
    fn check_length(&self) {
        let (accepted, decided) = (
            self.library.get_accepted_idx(),
            self.library.get_decided_idx(),
        );
        if self.checks_length && accepted < decided {
            let text = format!(
                "{} decided {decided} entries, and its log has {accepted}: the others are gone",
                self.id
            );
            self.ledger.borrow_mut().fail(FailureKind::LostState, text);
        }
    }

    fn release(&mut self, effects: Vec<Effect>, out: &mut Vec<Output<Reply>>) {
        let mut ledger = self.ledger.borrow_mut();
        for effect in effects {
            match effect {
                Effect::Send(to, message) => {
                    let word = |at: usize| {
                        u64::from_le_bytes(message[at..at + 8].try_into().expect("8 bytes"))
                    };
                    ledger.sent(self.id, to, (word(0), word(8)));
                    out.push(Output::Send { to, message });
                }
                Effect::Reply(ticket, reply) => out.push(Output::Reply(ticket, reply)),
                Effect::Decide(position, decision) => {
                    ledger.decide(self.id, position, &decision);
                }
                Effect::Snapshot(position, state) => ledger.snapshot(self.id, position, &state),
            }
        }
    }
}

impl<const SNAPSHOTS: bool> Machine for OmniPaxosMember<SNAPSHOTS> {
    type Request = Request;
    type Reply = Reply;

    fn turn(&mut self, now: Time, input: Input<Request>, out: &mut Vec<Output<Reply>>) {
        if self.is_stopped {
            return;
        }
        match input {
            Input::Wake if now >= self.next_tick => {
                self.next_tick = now + TICK;
                self.call(Library::tick);
            }
            Input::Message { from, bytes } => self.receive(from, &bytes),
            Input::Appended(ticket) => {
                let ready = self.held.durable(ticket);
                self.release(ready, out);
            }
            Input::Request(ticket, request) => self.request(ticket, request),
            _ => {}
        }
        self.finish(out);
    }

    fn wake_at(&self) -> Option<Time> {
        (!self.is_stopped).then_some(self.next_tick)
    }
}

impl<const SNAPSHOTS: bool> Member for OmniPaxosMember<SNAPSHOTS> {
    fn boot(
        scenario: &Scenario,
        id: NodeId,
        data: &DataFolder,
        ledger: SharedLedger,
        _seed: u64,
    ) -> Result<Booted<Self>, String> {
        let (records, end) = read_journal::<Vec<Write>>(data)?;
        let store = SharedStore::default();
        let start = {
            let mut contents = store.0.borrow_mut();
            for write in records.into_iter().flatten() {
                contents.apply(write);
            }
            let start = contents.starts + 1;
            // In the journal before the first message of this start, which waits for it.
            contents.unwritten.push(Write::Start(start));
            start
        };
        let nodes: Vec<u64> = (1..=u64::from(scenario.nodes)).collect();
        let config = OmniPaxosConfig {
            cluster_config: ClusterConfig {
                configuration_id: 1,
                nodes: nodes.clone(),
                flexible_quorum: None,
            },
            server_config: ServerConfig {
                pid: process(id),
                election_tick_timeout: ELECTION_TICKS,
                resend_message_tick_timeout: RESEND_TICKS,
                ..ServerConfig::default()
            },
        };
        let library = config
            .build(store.clone())
            .map_err(|error| error.to_string())?;
        let member = OmniPaxosMember {
            id,
            features: scenario.omnipaxos,
            checks_length: scenario.checks_length,
            nodes,
            library,
            store,
            start,
            links: LinkNumbers::default(),
            held: HeldEffects::default(),
            state: LogState::default(),
            waiting: BTreeMap::new(),
            next_tick: Time::ZERO,
            is_stopped: false,
            ledger,
        };
        Ok(Booted::with_log(member, end))
    }

    fn applied(&self) -> u64 {
        self.state.length()
    }

    fn is_ended(&self) -> bool {
        self.state.decisions.last() == Some(&Decision::Stop)
    }

    fn members_if_leader(&self) -> Option<(u64, Vec<NodeId>)> {
        let promise = self.library.get_promise();
        let is_leader = promise.pid == process(self.id);
        is_leader.then(|| {
            let members = self.nodes.iter().copied().map(node).collect();
            (u64::from(promise.n), members)
        })
    }

    fn describe(&self) -> String {
        let library = &self.library;
        let promise = library.get_promise();
        let contents = self.store.0.borrow();
        format!(
            "{}: promise ({},{}) leader {:?}, accepted {}, decided {}, compacted {}, stored entries {}, applied {}",
            self.id,
            promise.n,
            promise.pid,
            library.get_current_leader(),
            library.get_accepted_idx(),
            library.get_decided_idx(),
            library.get_compacted_idx(),
            contents.log.len(),
            self.state.length(),
        )
    }
}
