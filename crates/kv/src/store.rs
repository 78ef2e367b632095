//! The store: the server of the key-value protocol.

mod incarnation_sessions;

use crate::boot::{self, BootError, BootReport, LogReplay};
use crate::bug::Bug;
use crate::log::{BOOT, COMMAND, Log};
use crate::message::{
    Code, HEADER_LENGTH, MESSAGE_LENGTH_MAX, MessageHeader, MessageKind, OPERATIONS_MAX, VERSION,
    WINDOW,
};
use crate::outcome::Outcome;
use crate::session::Admission;
use crate::state::{Abort, ExecutionEffect, Planted, StoreState};
use crate::transaction::{Operations, Transaction};
use incarnation_sessions::IncarnationSessions;
use seatrial_machine::{Disk, Input, LogName, Machine, NodeId, Output, Ticket, Time};
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

/// Time for which the planted [`Bug::AckBeforeAppend`] gathers commands.
const LAZY_INTERVAL: Duration = Duration::from_millis(50);
/// Time for which the planted [`Bug::StaleRead`] keeps a snapshot.
const STALE_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// Maximum number of replies that wait for the log; further requests are refused as overloaded.
    pub waiting_max: usize,
    /// Maximum bytes of those replies; a single reply of any length may exceed it. The long replies of one endpoint may have an
    /// eighth.
    pub waiting_bytes_max: usize,
    /// Maximum number of sessions.
    pub sessions_max: usize,
    /// A session is kept for at least this long after its last message.
    pub session_idle_min: Duration,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            bug: None,
            waiting_max: 65_536,
            waiting_bytes_max: 32 << 20,
            sessions_max: 4_096,
            session_idle_min: Duration::from_secs(10),
        }
    }
}

/// A server of one node: executes requests in the order in which they arrive, on a state in memory, and logs those that change
/// it. A reply waits until every command that it depends on is durable. While one block of the log is being appended, further
/// commands gather for the next: group commit without a timer.
///
/// It owns the state, the end of the log, the sessions and the waiting replies. Requests come as messages, or from a local
/// caller.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    state: StoreState,
    log: Log,
    sessions: IncarnationSessions,
    waiting: VecDeque<WaitingReply>,
    waiting_length: usize,
    /// Bytes of long waiting replies, by endpoint.
    shares: BTreeMap<NodeId, usize>,
    answers: Vec<u8>,
    planted: PlantedTimes,
}

/// A message that waits until the log is durable up to a position.
#[derive(Debug)]
struct WaitingReply {
    position: u64,
    to: Caller,
    message: Vec<u8>,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
enum Caller {
    /// Another endpoint.
    Remote(NodeId),
    /// A local caller, with the number of operations of its transaction.
    Local(Ticket, u16),
}

/// A shorter reply does not count towards its endpoint's share: the number of waiting replies is bounded.
const SHARE_LENGTH_MIN: usize = 4 << 10;

/// The endpoint and bytes that a reply adds to a share.
fn share(to: Caller, message: &[u8]) -> Option<(NodeId, usize)> {
    match to {
        Caller::Remote(endpoint) if message.len() >= SHARE_LENGTH_MIN => {
            Some((endpoint, message.len()))
        }
        _ => None,
    }
}

/// State of the planted bugs that depend on time.
#[derive(Debug, Default)]
struct PlantedTimes {
    /// When the gathered commands are written.
    flush_at: Option<Time>,
    /// An old state, and when it was current.
    snapshot: Option<(Time, StoreState)>,
}

impl Store {
    /// Replays the log and increments the incarnation. The driver truncates the log at `recovery.end` of the report, then gives
    /// the store turns. The first one logs the start; no session is opened before that is durable.
    pub fn boot(disk: &dyn Disk, options: StoreOptions) -> Result<(Store, BootReport), BootError> {
        let planted = Planted {
            dirty_abort: options.bug == Some(Bug::DirtyAbort),
            lost_append: (options.bug == Some(Bug::LostAppend)).then(BTreeMap::new),
        };
        let (state, report) = LogReplay::run(disk, StoreState::new(planted))?;
        let mut log = Log::new(report.recovery.next_sequence);
        log.push(BOOT, &boot::record(report.incarnation));
        let (max, idle_min) = (options.sessions_max, options.session_idle_min);
        let store = Store {
            sessions: IncarnationSessions::new(report.incarnation, max, idle_min),
            options,
            state,
            log,
            waiting: VecDeque::new(),
            waiting_length: 0,
            shares: BTreeMap::new(),
            answers: Vec::new(),
            planted: PlantedTimes::default(),
        };
        Ok((store, report))
    }

    fn message(&mut self, now: Time, from: NodeId, bytes: Vec<u8>, out: &mut Vec<Output<Outcome>>) {
        // A message that is not a client's is dropped: there is no endpoint to reply to.
        let Ok(header) = MessageHeader::decode(&bytes) else {
            return;
        };
        match header.kind {
            MessageKind::Hello if is_hello(&header, &bytes) => {
                self.hello(now, from, &header, bytes, out);
            }
            MessageKind::Request => self.request(now, from, &header, bytes, out),
            _ => {}
        }
    }

    fn hello(
        &mut self,
        now: Time,
        from: NodeId,
        hello: &MessageHeader,
        mut bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let opened = if hello.code != VERSION {
            Err(Code::WrongVersion)
        } else if self.waiting.len() >= self.options.waiting_max || !self.log.has_room(0) {
            Err(Code::Overloaded) // a welcome takes no memory to speak of
        } else {
            self.sessions.open(now).ok_or(Code::Overloaded)
        };
        let welcome = MessageHeader {
            kind: MessageKind::Welcome,
            code: opened.err().unwrap_or(Code::Committed) as u8,
            count: WINDOW as u16,
            detail: u32::from(VERSION),
            first: hello.first,
            second: opened.unwrap_or(0),
        };
        bytes.copy_from_slice(&welcome.encode());
        let position = if opened.is_ok() {
            out.push(Output::Admit(from));
            self.log.position()
        } else {
            0
        };
        self.answer_at(position, Caller::Remote(from), bytes, out);
    }

    fn request(
        &mut self,
        now: Time,
        from: NodeId,
        header: &MessageHeader,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let refusal = match self.sessions.admit(header.first, header.second, now) {
            Admission::Repeated(_) => return,
            Admission::UnknownSession => Some(Code::WrongSession),
            Admission::First if self.is_overloaded(bytes.len()) || self.has_its_share(from) => {
                Some(Code::Overloaded)
            }
            Admission::First => None,
        };
        let caller = Caller::Remote(from);
        match refusal {
            Some(code) => self.reply(caller, header, Err((code, 0)), bytes, out),
            None => self.execute(now, caller, header, bytes, out),
        }
    }

    /// Does this endpoint have its share of the bytes that may wait?
    fn has_its_share(&self, endpoint: NodeId) -> bool {
        let share = self.shares.get(&endpoint);
        share.is_some_and(|bytes| *bytes >= self.options.waiting_bytes_max / 8)
    }

    /// Is a queue full for a request of this length?
    fn is_overloaded(&self, length: usize) -> bool {
        self.waiting.len() >= self.options.waiting_max
            || self.waiting_length >= self.options.waiting_bytes_max
            || !self.log.has_room(length)
    }

    /// Executes a request, logs it if it changed the state, and replies when that is durable.
    fn execute(
        &mut self,
        now: Time,
        caller: Caller,
        header: &MessageHeader,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let operations = Operations::new(&bytes, header.count);
        let batch = self.log.sequence();
        let mut answers = std::mem::take(&mut self.answers);
        answers.clear();
        let result = if is_well_formed(header, &bytes) {
            let state = match self.options.bug {
                Some(Bug::StaleRead) if operations.are_reads() => self.snapshot(now),
                _ => &mut self.state,
            };
            state.execute(operations, batch, &mut answers)
        } else {
            Err(Abort::MALFORMED)
        };
        self.answers = answers;
        let is_dirty = |abort: &Abort| abort.is_dirty;
        if result == Ok(ExecutionEffect::Change) || result.as_ref().is_err_and(is_dirty) {
            self.log.push(COMMAND, &bytes);
        }
        let result = result
            .map(|_| ())
            .map_err(|abort| (abort.code, abort.operation));
        self.reply(caller, header, result, bytes, out);
    }

    /// The planted stale read: an old state, or the current one if that is too old.
    fn snapshot(&mut self, now: Time) -> &mut StoreState {
        let present = &self.state;
        let (taken, state) = self
            .planted
            .snapshot
            .get_or_insert_with(|| (now, present.clone()));
        if now.since(*taken) >= STALE_INTERVAL {
            *taken = now;
            state.clone_from(present);
        }
        state
    }

    /// Replies to a request when all commands so far are durable. The reply reuses the memory of the request.
    fn reply(
        &mut self,
        caller: Caller,
        request: &MessageHeader,
        result: Result<(), (Code, u32)>,
        mut bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let (code, operation) = result.err().unwrap_or((Code::Committed, 0));
        let is_committed = code == Code::Committed;
        let header = MessageHeader {
            kind: MessageKind::Reply,
            code: code as u8,
            count: if is_committed { request.count } else { 0 },
            detail: operation,
            ..*request
        };
        bytes.clear();
        bytes.extend_from_slice(&header.encode());
        if is_committed {
            bytes.extend_from_slice(&self.answers);
        }
        let position = if code.is_refusal() || self.options.bug == Some(Bug::AckBeforeAppend) {
            0
        } else {
            self.log.position()
        };
        self.answer_at(position, caller, bytes, out);
    }

    /// Sends `message` when the log is durable up to `position`.
    fn answer_at(
        &mut self,
        position: u64,
        to: Caller,
        message: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if position <= self.log.durable() {
            out.push(deliver(to, message));
        } else {
            self.waiting_length += message.len();
            if let Some((endpoint, length)) = share(to, &message) {
                *self.shares.entry(endpoint).or_default() += length;
            }
            self.waiting.push_back(WaitingReply {
                position,
                to,
                message,
            });
        }
    }

    /// Sends the messages whose position is durable now.
    fn release(&mut self, out: &mut Vec<Output<Outcome>>) {
        let durable = self.log.durable();
        while let Some(waiting) = self.waiting.pop_front_if(|it| it.position <= durable) {
            self.waiting_length -= waiting.message.len();
            if let Some((endpoint, length)) = share(waiting.to, &waiting.message)
                && let Entry::Occupied(mut held) = self.shares.entry(endpoint)
            {
                *held.get_mut() -= length;
                if *held.get() == 0 {
                    held.remove();
                }
            }
            out.push(deliver(waiting.to, waiting.message));
        }
    }

    /// Appends the gathered commands, unless an append is under way.
    fn flush(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        if !self.log.is_ready() {
            return;
        }
        if self.options.bug == Some(Bug::AckBeforeAppend) {
            let flush_at = *self.planted.flush_at.get_or_insert(now + LAZY_INTERVAL);
            if now < flush_at {
                return;
            }
            self.planted.flush_at = None;
        }
        if let Some((block, ticket)) = self.log.flush() {
            out.push(Output::Append {
                log: LogName::MAIN,
                bytes: block,
                ticket,
            });
        }
    }
}

/// Is it a hello of any version?
fn is_hello(header: &MessageHeader, bytes: &[u8]) -> bool {
    bytes.len() == HEADER_LENGTH && (header.count, header.detail, header.second) == (0, 0, 0)
}

/// Is this header that of a request, as far as it is decidable without decoding the operations?
fn is_well_formed(header: &MessageHeader, bytes: &[u8]) -> bool {
    header.code == 0
        && header.detail == 0
        && usize::from(header.count) <= OPERATIONS_MAX
        && bytes.len() <= MESSAGE_LENGTH_MAX
}

/// The output that delivers a message or reply to a caller.
#[inline]
fn deliver(to: Caller, message: Vec<u8>) -> Output<Outcome> {
    match to {
        Caller::Remote(to) => Output::Send { to, message },
        Caller::Local(ticket, operations) => {
            let outcome = Outcome::from_reply(message, operations);
            Output::Reply(ticket, outcome.expect("a store reads its own replies"))
        }
    }
}

impl Machine for Store {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        match input {
            Input::Message { from, bytes } => self.message(now, from, bytes, out),
            Input::Appended(ticket) => {
                self.log.appended(ticket);
                self.release(out);
            }
            Input::Request(ticket, transaction) => {
                let bytes = transaction.into_message(0, ticket.0);
                if let Ok(header) = MessageHeader::decode(&bytes) {
                    let caller = Caller::Local(ticket, header.count);
                    if self.is_overloaded(bytes.len()) {
                        let refusal = Err((Code::Overloaded, 0));
                        self.reply(caller, &header, refusal, bytes, out);
                    } else {
                        self.execute(now, caller, &header, bytes, out);
                    }
                }
            }
            Input::Wake | Input::Computed(..) | Input::FileDone(..) => {}
        }
        self.flush(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let ready = self.log.is_ready();
        ready.then(|| self.planted.flush_at.unwrap_or(Time::ZERO))
    }

    fn check_invariants(&self) {
        self.log.check_invariants();
        assert!(self.waiting.len() <= self.options.waiting_max);
        assert_eq!(self.waiting.is_empty(), self.waiting_length == 0);
        debug_assert!(self.shares.values().sum::<usize>() <= self.waiting_length);
        if let (Some(first), Some(last)) = (self.waiting.front(), self.waiting.back()) {
            let durable = self.log.durable();
            assert!(first.position > durable, "a reply was forgotten");
            assert!(last.position >= first.position);
            assert!(last.position <= self.log.position());
        }
    }
}

#[cfg(test)]
mod tests;
