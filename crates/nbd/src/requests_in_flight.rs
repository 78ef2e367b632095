//! The requests of all connections of an export, under way.

use crate::handshake::NbdSession;
use crate::nbd_request::{NbdCommand, NbdErrno, NbdRequest};
use crate::reply::{NbdReply, ReplyForm};
use crate::request_steps::RequestSteps;
use seatrial_machine::Ticket;
use seatrial_volume::{GuestError, GuestReply, GuestRequest};
use std::collections::{BTreeMap, VecDeque};

/// Number of a connection, given by the driver.
pub type ConnectionNumber = u64;

/// An output of [`NbdRequests`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdOutput {
    /// A request for the volume; its reply is given to [`NbdRequests::on_reply`].
    Guest(Ticket, GuestRequest),
    /// A reply for a connection.
    Reply(ConnectionNumber, NbdReply),
}

/// Turns requests of clients into requests of a guest, and replies into replies.
///
/// Owns the requests under way; their number and bytes are bounded by the driver, which accepts them. Each has one request of a
/// guest outstanding, or waits.
///
/// A write that changes a block in part reads it, changes it, and writes it back. It begins after all earlier changes of its
/// blocks, and later ones wait for it, in the order of their arrival; so no change is lost, and none waits for ever. Requests of
/// whole blocks never wait for each other.
///
/// Cost: a look-up per request; while a partial change is under way, a pass over the requests under way for each change.
#[derive(Debug)]
pub struct NbdRequests {
    block_length: u64,
    /// Requests with a request of a guest outstanding.
    active: BTreeMap<Ticket, (ConnectionNumber, RequestSteps)>,
    /// Changes that wait for others of the same blocks, oldest first.
    waiting: VecDeque<(ConnectionNumber, RequestSteps)>,
    /// Partial changes among both.
    partial: usize,
    tickets: u64,
}

impl NbdRequests {
    /// No requests yet, for a volume with blocks of this length.
    pub fn new(block_length: u32) -> NbdRequests {
        assert!(block_length.is_power_of_two(), "{block_length}");
        NbdRequests {
            block_length: u64::from(block_length),
            active: BTreeMap::new(),
            waiting: VecDeque::new(),
            partial: 0,
            tickets: 0,
        }
    }

    /// Number of requests under way.
    pub fn len(&self) -> usize {
        self.active.len() + self.waiting.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a request of a connection. The payload of a refused write may be missing. A request to disconnect has no reply.
    pub fn begin(
        &mut self,
        connection: ConnectionNumber,
        session: &NbdSession,
        request: NbdRequest,
        out: &mut Vec<NbdOutput>,
    ) {
        let header = request.header;
        let form = ReplyForm {
            header,
            is_structured: session.is_structured,
        };
        let is_complete = header.payload_length() as usize == request.payload.len();
        let command = match header.check(session) {
            Ok(NbdCommand::Disconnect) => return,
            Ok(command) if is_complete => command,
            checked => {
                let error = checked.err().unwrap_or(NbdErrno::Invalid);
                let mut reply = form.failed(error, refusal(error));
                if checked.is_err() {
                    reply.memory = 0;
                }
                out.push(NbdOutput::Reply(connection, reply));
                return;
            }
        };
        let steps = RequestSteps::new(request, command, session, self.block_length);
        self.partial += usize::from(steps.is_partial);
        if self.must_wait(&steps, self.waiting.len()) {
            self.waiting.push_back((connection, steps));
        } else {
            self.advance(connection, steps, out);
        }
    }

    /// Takes the reply to a request of a guest. A reply to no request is ignored.
    pub fn on_reply(&mut self, ticket: Ticket, reply: GuestReply, out: &mut Vec<NbdOutput>) {
        let Some((connection, mut steps)) = self.active.remove(&ticket) else {
            return;
        };
        if let GuestReply::Failed(error) = reply {
            let failed = steps.form().failed(errno(&error), &error.to_string());
            self.end(connection, &steps, failed, out);
        } else if let Err(text) = steps.on_reply(reply) {
            let failed = steps.form().failed(NbdErrno::Io, text);
            self.end(connection, &steps, failed, out);
        } else {
            self.advance(connection, steps, out);
        }
    }

    /// Does a change exclude one under way, or one of the first `earlier` waiting ones?
    fn must_wait(&self, steps: &RequestSteps, earlier: usize) -> bool {
        if self.partial == 0 || steps.changed.is_empty() {
            return false;
        }
        let active = self.active.values();
        let all = active.chain(self.waiting.iter().take(earlier));
        all.into_iter().any(|(_, other)| steps.excludes(other))
    }

    /// Issues the next step of a request, or ends it.
    fn advance(
        &mut self,
        connection: ConnectionNumber,
        mut steps: RequestSteps,
        out: &mut Vec<NbdOutput>,
    ) {
        if let Some(request) = steps.next() {
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            out.push(NbdOutput::Guest(ticket, request));
            self.active.insert(ticket, (connection, steps));
            return;
        }
        let (changed, is_partial) = (steps.changed.clone(), steps.is_partial);
        let reply = steps.finish();
        out.push(NbdOutput::Reply(connection, reply));
        self.ended(!changed.is_empty(), is_partial, out);
    }

    fn end(
        &mut self,
        connection: ConnectionNumber,
        steps: &RequestSteps,
        reply: NbdReply,
        out: &mut Vec<NbdOutput>,
    ) {
        out.push(NbdOutput::Reply(connection, reply));
        self.ended(!steps.changed.is_empty(), steps.is_partial, out);
    }

    /// Begins the waiting changes that nothing excludes any more.
    fn ended(&mut self, is_change: bool, is_partial: bool, out: &mut Vec<NbdOutput>) {
        self.partial -= usize::from(is_partial);
        let mut next = 0;
        while is_change && next < self.waiting.len() {
            let is_held = self.must_wait(&self.waiting[next].1, next);
            if is_held {
                next += 1;
            } else if let Some((connection, steps)) = self.waiting.remove(next) {
                // A change has a step at least, so this does not come back here.
                self.advance(connection, steps, out);
            }
        }
    }
}

/// The error of a request that is not carried out.
fn refusal(error: NbdErrno) -> &'static str {
    match error {
        NbdErrno::Permission => "the export is read-only",
        NbdErrno::NoSpace => "the write is past the end of the volume",
        NbdErrno::Overflow => "the read is too long",
        NbdErrno::Invalid | NbdErrno::Io | NbdErrno::Shutdown => "the request is invalid",
    }
}

/// The protocol's number of a guest's error.
fn errno(error: &GuestError) -> NbdErrno {
    match error {
        GuestError::Range(_) => NbdErrno::Invalid,
        GuestError::ReadOnly => NbdErrno::Permission,
        GuestError::Inactive | GuestError::Deposed { .. } => NbdErrno::Shutdown,
        GuestError::Damaged(_) | GuestError::Snapshot(_) | GuestError::Refused(_) => NbdErrno::Io,
    }
}
