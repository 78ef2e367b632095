//! A guest in another process than the upstairs.

use crate::guest::GuestRequest;
use crate::guest_message::{FromGuest, GuestOutcome, ToGuest};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Rng, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Options of a guest.
#[derive(Clone, Debug)]
pub struct GuestClientOptions {
    /// The node of the upstairs.
    pub upstairs: NodeId,
    /// Seed of its tokens, different for each guest and each of its starts.
    pub seed: u64,
    /// Time limit of a request; then it is [`GuestOutcome::Unknown`] if it was sent, else [`GuestOutcome::Failed`].
    pub request_timeout: Duration,
    /// A message without a reply is sent again after this.
    pub repeat_interval: Duration,
}

/// A guest: gets a session, and has one request under way at a time; the others wait. A request is repeated until its reply; the
/// upstairs executes it once. Whatever leaves a request unknown ends the session, so that a late message cannot execute it
/// between two later ones.
#[derive(Debug)]
pub struct GuestClient {
    options: GuestClientOptions,
    tokens: Rng,
    /// Of the hello without a reply; 0: none.
    token: u64,
    session: Option<u64>,
    /// Number of the current or the next request.
    id: u64,
    current: Option<CurrentRequest>,
    waiting: VecDeque<CurrentRequest>,
    again_at: Time,
    is_connected: bool,
}

#[derive(Debug)]
struct CurrentRequest {
    ticket: Ticket,
    request: GuestRequest,
    deadline: Time,
    is_sent: bool,
}

type GuestOutputs = Vec<Output<GuestOutcome>>;

impl GuestClient {
    /// Without a session.
    pub fn new(options: GuestClientOptions) -> GuestClient {
        GuestClient {
            tokens: Rng::from_seed(options.seed),
            options,
            token: 0,
            session: None,
            id: 1,
            current: None,
            waiting: VecDeque::new(),
            again_at: Time::ZERO,
            is_connected: true,
        }
    }

    /// Ends the session; a request that was sent stays unknown.
    fn lose_session(&mut self, why: &str, out: &mut GuestOutputs) {
        (self.session, self.token) = (None, 0);
        if let Some(current) = self.current.take_if(|it| it.is_sent) {
            let unknown = GuestOutcome::Unknown(why.to_owned());
            out.push(Output::Reply(current.ticket, unknown));
        }
    }

    fn message(&mut self, now: Time, bytes: &[u8], out: &mut GuestOutputs) {
        match ToGuest::decode(bytes) {
            Ok(ToGuest::Welcome { token, session })
                if token == self.token && token != 0 && self.session.is_none() =>
            {
                (self.session, self.id) = (Some(session), 1);
                self.again_at = now;
            }
            Ok(ToGuest::NoSession { session }) if self.session == Some(session) => {
                self.lose_session("session-lost", out);
            }
            Ok(ToGuest::Reply {
                session,
                id,
                outcome,
            }) if self.session == Some(session) && self.id == id => {
                if let Some(current) = self.current.take_if(|it| it.is_sent) {
                    self.id += 1;
                    self.again_at = now;
                    out.push(Output::Reply(current.ticket, outcome));
                }
            }
            _ => {}
        }
    }

    /// Ends requests that are late.
    fn expire(&mut self, now: Time, out: &mut GuestOutputs) {
        let is_late = |it: &CurrentRequest| it.deadline <= now;
        if self
            .current
            .as_ref()
            .is_some_and(|it| is_late(it) && it.is_sent)
        {
            self.lose_session("timeout", out);
        }
        let late = self.current.take_if(|it| is_late(it));
        let mut late: Vec<CurrentRequest> = late.into_iter().collect();
        while let Some(next) = self.waiting.pop_front_if(|it| is_late(it)) {
            late.push(next);
        }
        for one in late {
            let failed = GuestOutcome::Failed("no-session".to_owned());
            out.push(Output::Reply(one.ticket, failed));
        }
    }

    /// Sends what is due: a hello, or the current request.
    fn proceed(&mut self, now: Time, out: &mut GuestOutputs) {
        if self.current.is_none() {
            self.current = self.waiting.pop_front();
            self.again_at = self.again_at.min(now);
        }
        let Some(current) = &mut self.current else {
            return;
        };
        if !self.is_connected || (self.again_at > now && (current.is_sent || self.token != 0)) {
            return;
        }
        let message = if let Some(session) = self.session {
            current.is_sent = true;
            FromGuest::Request {
                session,
                id: self.id,
                request: current.request.clone(),
            }
        } else {
            if self.token == 0 {
                self.token = self.tokens.word().max(1);
            }
            FromGuest::Hello { token: self.token }
        };
        self.again_at = now + self.options.repeat_interval;
        if let Some(message) = message.encode() {
            let to = self.options.upstairs;
            out.push(Output::Send { to, message });
        } else if let Some(current) = self.current.take() {
            let failed = GuestOutcome::Failed("not a request of a guest".to_owned());
            out.push(Output::Reply(current.ticket, failed));
        }
    }
}

impl Machine for GuestClient {
    type Request = GuestRequest;
    type Reply = GuestOutcome;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut GuestOutputs) {
        match input {
            Input::Message { bytes, .. } => self.message(now, &bytes, out),
            Input::Request(ticket, request) => self.waiting.push_back(CurrentRequest {
                ticket,
                request,
                deadline: now + self.options.request_timeout,
                is_sent: false,
            }),
            Input::Wake | Input::Appended(_) | Input::FileDone(..) | Input::Computed(..) => {}
        }
        self.expire(now, out);
        self.proceed(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let current = self.current.as_ref()?;
        if self.is_connected {
            Some(current.deadline.min(self.again_at))
        } else {
            Some(current.deadline)
        }
    }
}

impl Peer for GuestClient {
    fn connection_closed(&mut self, out: &mut GuestOutputs) {
        self.is_connected = false;
        self.lose_session("connection-lost", out);
    }

    fn connection_opened(&mut self, now: Time, out: &mut GuestOutputs) {
        self.is_connected = true;
        self.again_at = now;
        self.proceed(now, out);
    }
}
