//! An upstairs whose guests are in other processes.

use crate::guest::{GuestReply, GuestRequest};
use crate::guest_message::{FromGuest, GuestOutcome, ToGuest};
use crate::status::VolumeStatus;
use crate::upstairs::{Outputs, Upstairs};
use seatrial_machine::{Input, Machine, NodeId, Output, StatusSheet, Ticket, Time};
use std::collections::BTreeMap;

/// Most sessions; a further one ends the one that was used the longest ago.
const SESSIONS_MAX: usize = 1_024;
/// Tickets of guests begin here; those of callers in this process are below.
const GUEST_TICKETS: u64 = 1 << 62;

/// A guest's session: executes the requests of one guest once and in order, whatever its messages suffer. It keeps the last
/// reply, which is sent again when its request is repeated.
#[derive(Debug)]
struct GuestSession {
    token: u64,
    number: u64,
    /// The request that was begun last, 0 for none, and its reply once there is one.
    last: u64,
    reply: Option<Vec<u8>>,
    used: u64,
}

/// Serves an [`Upstairs`] to guests that send messages, and to callers in this process.
///
/// Its loop: a message of a client → its session → a request of the upstairs; a reply of the upstairs → a message. Memory: a
/// session has one request under way and one reply, at most [`crate::GUEST_MESSAGE_MAX`] bytes.
#[derive(Debug)]
pub struct UpstairsServer {
    upstairs: Upstairs,
    sessions: BTreeMap<NodeId, GuestSession>,
    /// Requests under way: the guest, its session and the request's number.
    under_way: BTreeMap<Ticket, (NodeId, u64, u64)>,
    tickets: u64,
    /// Differs from start to start, so that a session of an earlier one is not found.
    first_session: u64,
    uses: u64,
}

impl UpstairsServer {
    /// Without sessions. `seed`: a random number of this start.
    pub fn new(upstairs: Upstairs, seed: u64) -> UpstairsServer {
        UpstairsServer {
            upstairs,
            sessions: BTreeMap::new(),
            under_way: BTreeMap::new(),
            tickets: GUEST_TICKETS,
            first_session: seed << 20,
            uses: 0,
        }
    }

    /// What the volume is doing.
    pub fn status(&self) -> VolumeStatus {
        self.upstairs.status()
    }

    fn send(to: NodeId, message: &ToGuest, out: &mut Outputs) {
        out.push(Output::Send {
            to,
            message: message.encode(),
        });
    }

    fn hello(&mut self, from: NodeId, token: u64, out: &mut Outputs) {
        self.uses += 1;
        let known = self.sessions.get(&from).filter(|it| it.token == token);
        let number = known.map_or(self.first_session + self.uses, |it| it.number);
        if known.is_none() {
            if self.sessions.len() >= SESSIONS_MAX {
                let oldest = self.sessions.iter().min_by_key(|it| it.1.used);
                let oldest = oldest.map(|it| *it.0);
                oldest.and_then(|it| self.sessions.remove(&it));
            }
            let session = GuestSession {
                token,
                number,
                last: 0,
                reply: None,
                used: self.uses,
            };
            self.sessions.insert(from, session);
            out.push(Output::Admit(from));
        }
        let session = number;
        UpstairsServer::send(from, &ToGuest::Welcome { token, session }, out);
    }

    fn guest_request(
        &mut self,
        now: Time,
        from: NodeId,
        (session, id): (u64, u64),
        request: GuestRequest,
        out: &mut Outputs,
    ) {
        let known = self.sessions.get_mut(&from);
        let Some(known) = known.filter(|it| it.number == session) else {
            return UpstairsServer::send(from, &ToGuest::NoSession { session }, out);
        };
        self.uses += 1;
        known.used = self.uses;
        if id == known.last {
            if let Some(message) = known.reply.clone() {
                out.push(Output::Send { to: from, message });
            }
            return;
        }
        if id != known.last + 1 {
            return; // an old one, repeated by the network
        }
        (known.last, known.reply) = (id, None);
        if !self.upstairs.is_active() {
            let outcome = GuestOutcome::Failed("the volume is not active".to_owned());
            return self.answer(from, (session, id), outcome, out);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.under_way.insert(ticket, (from, session, id));
        let begun = out.len();
        let request = Input::Request(ticket, request);
        self.upstairs.turn(now, request, out);
        self.pass_replies(begun, out);
    }

    /// Sends an outcome and keeps it for repetitions.
    fn answer(
        &mut self,
        to: NodeId,
        (session, id): (u64, u64),
        outcome: GuestOutcome,
        out: &mut Outputs,
    ) {
        let reply = ToGuest::Reply {
            session,
            id,
            outcome,
        };
        let message = reply.encode();
        let known = self.sessions.get_mut(&to);
        if let Some(known) = known.filter(|it| it.number == session && it.last == id) {
            known.reply = Some(message.clone());
            out.push(Output::Send { to, message });
        }
    }

    /// Turns the replies to guests since `begun` into messages.
    fn pass_replies(&mut self, begun: usize, out: &mut Outputs) {
        let since: Vec<Output<GuestReply>> = out.drain(begun..).collect();
        for output in since {
            match output {
                Output::Reply(ticket, reply) if ticket.0 > GUEST_TICKETS => {
                    if let Some((guest, session, id)) = self.under_way.remove(&ticket) {
                        let outcome = GuestOutcome::of_reply(self.upstairs.activation(), reply);
                        self.answer(guest, (session, id), outcome, out);
                    }
                }
                other => out.push(other),
            }
        }
    }
}

impl Machine for UpstairsServer {
    type Request = GuestRequest;
    type Reply = GuestReply;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Outputs) {
        let begun = out.len();
        match input {
            Input::Message { from, bytes } if from.is_client() => {
                match FromGuest::decode(&bytes) {
                    Ok(FromGuest::Hello { token }) => self.hello(from, token, out),
                    Ok(FromGuest::Request {
                        session,
                        id,
                        request,
                    }) => self.guest_request(now, from, (session, id), request, out),
                    Err(_) => {} // not a message of a guest
                }
            }
            other => {
                self.upstairs.turn(now, other, out);
                self.pass_replies(begun, out);
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.upstairs.wake_at()
    }

    fn describe(&self, now: Time, sheet: &mut StatusSheet) {
        self.upstairs.describe(now, sheet);
    }

    fn check_invariants(&self) {
        self.upstairs.check_invariants();
        assert!(self.sessions.len() <= SESSIONS_MAX, "sessions are bounded");
    }
}
