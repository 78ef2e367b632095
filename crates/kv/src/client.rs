//! The client: sessions, requests under way, time-outs.

use crate::message::{Code, HEADER_LENGTH, MessageHeader, MessageKind, VERSION, WINDOW};
use crate::outcome::{Doubt, Failure, Outcome};
use crate::transaction::Transaction;
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Rng, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server.
    pub server: NodeId,
    /// Seed of the tokens. Two clients, or two starts of one client, must not have the same.
    pub seed: u64,
    /// Time limit of a transaction: afterwards it is [`Outcome::Unknown`] if it was sent, otherwise [`Outcome::Failed`].
    pub request_timeout: Duration,
    /// Interval after which an unanswered hello is repeated.
    pub hello_interval: Duration,
    /// Maximum number of transactions that wait for a session or for the window.
    pub waiting_max: usize,
}

impl ClientOptions {
    /// Default times: 5 s for a request, 100 ms for a hello.
    pub fn new(server: NodeId, seed: u64) -> ClientOptions {
        ClientOptions {
            server,
            seed,
            request_timeout: Duration::from_secs(5),
            hello_interval: Duration::from_millis(100),
            waiting_max: 65_536,
        }
    }
}

/// One client: gets a session when there is something to ask, keeps up to 128 requests under way, matches replies to
/// requests by their ids. It never sends a request twice, so what gets no answer in time is unknown. When the server
/// no longer knows the session, or the driver says that the connection is closed, everything under way is unknown and
/// the next request asks for a new session.
///
/// A driver with real connections calls [`Client::connection_closed`] and [`Client::connection_opened`]; without such
/// calls (as on the simulated network) the client takes the server for reachable and relies on its time-outs.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    tokens: Rng,
    is_connected: bool,
    hello: Option<Hello>,
    session: Option<ClientSession>,
    waiting: VecDeque<QueuedRequest>,
}

/// A hello without a reply so far.
#[derive(Debug)]
struct Hello {
    token: u64,
    again_at: Time,
}

/// A transaction that is not sent yet.
#[derive(Debug)]
struct QueuedRequest {
    ticket: Ticket,
    transaction: Transaction,
    deadline: Time,
}

/// A session and its requests, with consecutive ids from `oldest`.
#[derive(Debug)]
struct ClientSession {
    id: u64,
    window: usize,
    oldest: u64,
    /// The first is unfinished; a finished one after it is `None`.
    under_way: VecDeque<Option<UnderWay>>,
}

/// A transaction that was sent. Deadlines increase with ids.
#[derive(Debug)]
struct UnderWay {
    ticket: Ticket,
    operations: u16,
    deadline: Time,
}

impl ClientSession {
    /// Removes the request with this id, if it is under way.
    fn take(&mut self, request: u64) -> Option<UnderWay> {
        let index = usize::try_from(request.checked_sub(self.oldest)?).ok()?;
        self.under_way.get_mut(index)?.take()
    }

    /// Moves the window past finished requests.
    fn slide(&mut self) {
        while self.under_way.pop_front_if(|it| it.is_none()).is_some() {
            self.oldest += 1;
        }
    }

    /// May another request be sent?
    fn has_room(&self) -> bool {
        self.under_way.len() < self.window
    }
}

impl Client {
    /// A client without a session.
    pub fn new(options: ClientOptions) -> Client {
        Client {
            tokens: Rng::from_seed(options.seed),
            options,
            is_connected: true,
            hello: None,
            session: None,
            waiting: VecDeque::new(),
        }
    }

    /// Handles a (re)opened connection: requests a session if a transaction waits for one.
    pub fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        self.is_connected = true;
        self.proceed(now, out);
    }

    /// Handles the end of the connection: transactions under way become unknown. Transactions that are not sent yet wait for
    /// [`Client::connection_opened`] until their time limit.
    pub fn connection_closed(&mut self, out: &mut Vec<Output<Outcome>>) {
        self.is_connected = false;
        self.hello = None;
        self.lose_session(Doubt::ConnectionLost, out);
    }

    /// Transactions without an outcome.
    pub fn pending(&self) -> usize {
        let under_way = self.session.iter().flat_map(|session| &session.under_way);
        self.waiting.len() + under_way.flatten().count()
    }

    /// Drops the session: the outcome of every transaction under way stays unknown.
    fn lose_session(&mut self, doubt: Doubt, out: &mut Vec<Output<Outcome>>) {
        let session = self.session.take();
        let under_way = session.into_iter().flat_map(|session| session.under_way);
        out.extend(
            under_way
                .flatten()
                .map(|lost| Output::Reply(lost.ticket, Outcome::Unknown(doubt))),
        );
    }

    fn message(&mut self, bytes: Vec<u8>, out: &mut Vec<Output<Outcome>>) {
        let Ok(header) = MessageHeader::decode(&bytes) else {
            return;
        };
        match header.kind {
            MessageKind::Welcome if bytes.len() == HEADER_LENGTH => self.welcome(&header, out),
            MessageKind::Reply => self.reply(&header, bytes, out),
            _ => {}
        }
    }

    fn welcome(&mut self, header: &MessageHeader, out: &mut Vec<Output<Outcome>>) {
        let is_mine = |hello: &Hello| hello.token == header.first;
        if !self.hello.as_ref().is_some_and(is_mine) {
            return;
        }
        match header.outcome() {
            Ok(Code::Committed) => {
                self.hello = None;
                self.session = Some(ClientSession {
                    id: header.second,
                    window: usize::from(header.count).clamp(1, WINDOW as usize),
                    oldest: 1,
                    under_way: VecDeque::new(),
                });
            }
            Ok(Code::WrongVersion) => {
                self.hello = None;
                let failed = Outcome::Failed(Failure::WrongVersion);
                let tickets = self.waiting.drain(..).map(|waiting| waiting.ticket);
                out.extend(tickets.map(|ticket| Output::Reply(ticket, failed.clone())));
            }
            // Overloaded: the hello is repeated later.
            _ => {}
        }
    }

    fn reply(&mut self, header: &MessageHeader, bytes: Vec<u8>, out: &mut Vec<Output<Outcome>>) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        if session.id != header.first {
            return;
        }
        if header.outcome() == Ok(Code::WrongSession) {
            self.lose_session(Doubt::SessionLost, out);
            return;
        }
        let Some(request) = session.take(header.second) else {
            return;
        };
        // After an undecodable reply the request times out.
        match Outcome::from_reply(bytes, request.operations) {
            Ok(outcome) => out.push(Output::Reply(request.ticket, outcome)),
            Err(_) => session.restore(header.second, request),
        }
        session.slide();
    }

    fn request(&mut self, now: Time, ticket: Ticket, transaction: Transaction) -> Option<Failure> {
        if self.waiting.len() >= self.options.waiting_max {
            return Some(Failure::Busy);
        }
        self.waiting.push_back(QueuedRequest {
            ticket,
            transaction,
            deadline: now + self.options.request_timeout,
        });
        None
    }

    /// Completes the transactions whose time limit has passed.
    fn expire(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        if let Some(session) = &mut self.session {
            let is_late =
                |it: &mut Option<UnderWay>| it.as_ref().is_some_and(|it| it.deadline <= now);
            while let Some(late) = session.under_way.pop_front_if(is_late) {
                session.oldest += 1;
                let unknown = Outcome::Unknown(Doubt::Timeout);
                out.extend(late.map(|late| Output::Reply(late.ticket, unknown)));
                session.slide();
            }
        }
        while let Some(late) = self.waiting.pop_front_if(|it| it.deadline <= now) {
            let failed = Outcome::Failed(Failure::NoSession);
            out.push(Output::Reply(late.ticket, failed));
        }
    }

    /// Sends as much as permitted: requests within the window, or a hello if they need a session.
    fn proceed(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        if self.waiting.is_empty() || !self.is_connected {
            return;
        }
        let Some(session) = &mut self.session else {
            self.say_hello(now, out);
            return;
        };
        while session.has_room()
            && let Some(next) = self.waiting.pop_front()
        {
            let request = session.oldest + session.under_way.len() as u64;
            session.under_way.push_back(Some(UnderWay {
                ticket: next.ticket,
                operations: next.transaction.len() as u16,
                deadline: next.deadline,
            }));
            out.push(Output::Send {
                to: self.options.server,
                message: next.transaction.into_message(session.id, request),
            });
        }
    }

    /// Sends a hello, or repeats it when it is due.
    fn say_hello(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        let token = match &self.hello {
            Some(hello) if now < hello.again_at => return,
            Some(hello) => hello.token,
            None => self.tokens.word(),
        };
        self.hello = Some(Hello {
            token,
            again_at: now + self.options.hello_interval,
        });
        let hello = MessageHeader {
            kind: MessageKind::Hello,
            code: VERSION,
            count: 0,
            detail: 0,
            first: token,
            second: 0,
        };
        out.push(Output::Send {
            to: self.options.server,
            message: hello.encode().to_vec(),
        });
    }
}

impl ClientSession {
    /// Undoes [`ClientSession::take`].
    fn restore(&mut self, request: u64, under_way: UnderWay) {
        let index = (request - self.oldest) as usize;
        self.under_way[index] = Some(under_way);
    }
}

impl Peer for Client {
    fn connection_closed(&mut self, out: &mut Vec<Output<Outcome>>) {
        Client::connection_closed(self, out);
    }

    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        Client::connection_opened(self, now, out);
    }
}

impl Machine for Client {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        self.expire(now, out);
        match input {
            Input::Message { from, bytes } if from == self.options.server => {
                self.message(bytes, out);
            }
            Input::Request(ticket, transaction) => {
                if let Some(failure) = self.request(now, ticket, transaction) {
                    out.push(Output::Reply(ticket, Outcome::Failed(failure)));
                }
            }
            _ => {}
        }
        self.proceed(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let sent = self.session.as_ref().and_then(|session| {
            let oldest = session.under_way.front()?.as_ref()?;
            Some(oldest.deadline)
        });
        let waiting = self.waiting.front().map(|waiting| waiting.deadline);
        let hello = self.hello.as_ref().map(|hello| hello.again_at);
        let hello = hello.filter(|_| !self.waiting.is_empty());
        [sent, waiting, hello].into_iter().flatten().min()
    }

    fn check_invariants(&self) {
        assert!(self.waiting.len() <= self.options.waiting_max);
        assert!(self.hello.is_none() || self.session.is_none());
        if let Some(session) = &self.session {
            assert!(session.under_way.len() <= session.window);
            assert!(!matches!(session.under_way.front(), Some(None)));
        }
    }
}

#[cfg(test)]
mod tests;
