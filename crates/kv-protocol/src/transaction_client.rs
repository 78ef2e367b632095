//! The client: sessions, requests under way, repetitions, timeouts.

use crate::message::{Code, HEADER_LENGTH, MessageHeader, MessageKind, VERSION, WINDOW};
use crate::outcome::{Doubt, Failure, Outcome};
use crate::transaction::Transaction;
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Rng, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Options of a client.
#[derive(Clone, Debug)]
pub struct TransactionClientOptions {
    /// The servers; the first one is asked first. Never empty.
    pub servers: Vec<NodeId>,
    /// Seed of the tokens. Two clients, or two starts of one client, must not have the same.
    pub seed: u64,
    /// Time limit of a transaction: afterwards it is [`Outcome::Unknown`] if it was sent, otherwise [`Outcome::Failed`].
    pub request_timeout: Duration,
    /// Interval after which an unanswered hello is repeated, to the next server.
    pub hello_interval: Duration,
    /// Interval after which an unanswered request is repeated, to the next server. The store executes it once.
    pub repeat_interval: Duration,
    /// Maximum number of transactions that wait for a session or for the window.
    pub waiting_max: usize,
}

impl TransactionClientOptions {
    /// A client of one server, with default times: 5 s for a request, repeated each second, 100 ms for a hello.
    pub fn new(server: NodeId, seed: u64) -> TransactionClientOptions {
        TransactionClientOptions {
            servers: vec![server],
            seed,
            request_timeout: Duration::from_secs(5),
            hello_interval: Duration::from_millis(100),
            repeat_interval: Duration::from_secs(1),
            waiting_max: 65_536,
        }
    }
}

/// One client: gets a session when there is a request, keeps up to 128 requests under way, matches replies to requests by their
/// ids. A request without a reply is sent again, to the next server if there are several: the session belongs to the cluster,
/// and each request is executed once. Without a reply in time its outcome is unknown. When the cluster no longer knows the
/// session, or the driver reports that the connection is closed, all requests under way are unknown, and the next one asks for a
/// new session.
///
/// A driver with real connections calls [`Self::connection_closed`] and [`Self::connection_opened`]; without such
/// calls (as on the simulated network) the client takes the servers for reachable and relies on its timeouts.
#[derive(Debug)]
pub struct TransactionClient {
    options: TransactionClientOptions,
    tokens: Rng,
    is_connected: bool,
    hello: Option<Hello>,
    session: Option<ClientSession>,
    waiting: VecDeque<QueuedRequest>,
    /// Index of the server that answered last.
    home: usize,
}

/// A hello without a reply so far.
#[derive(Debug)]
struct Hello {
    token: u64,
    again_at: Time,
    /// Times it was sent.
    sent: usize,
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
    /// When each request is sent again, in order; those of finished requests stay until they are due.
    repeats: VecDeque<(Time, u64)>,
}

/// A transaction that was sent. Deadlines increase with ids.
#[derive(Debug)]
struct UnderWay {
    ticket: Ticket,
    operations: u16,
    deadline: Time,
    /// The message, for repetitions.
    message: Vec<u8>,
    /// Times it was sent.
    sent: usize,
}

impl ClientSession {
    /// Removes the request with this id, if it is under way.
    fn take(&mut self, request: u64) -> Option<UnderWay> {
        let index = usize::try_from(request.checked_sub(self.oldest)?).ok()?;
        self.under_way.get_mut(index)?.take()
    }

    fn get_mut(&mut self, request: u64) -> Option<&mut UnderWay> {
        let index = usize::try_from(request.checked_sub(self.oldest)?).ok()?;
        self.under_way.get_mut(index)?.as_mut()
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

impl TransactionClient {
    /// A client without a session.
    pub fn new(options: TransactionClientOptions) -> TransactionClient {
        TransactionClient {
            tokens: Rng::from_seed(options.seed),
            options,
            is_connected: true,
            hello: None,
            session: None,
            waiting: VecDeque::new(),
            home: 0,
        }
    }

    /// Handles a (re)opened connection: requests a session if a transaction waits for one.
    pub fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        self.is_connected = true;
        self.proceed(now, out);
    }

    /// Handles the end of the connection: transactions under way become unknown. Transactions that are not sent yet wait for
    /// [`TransactionClient::connection_opened`] until their time limit.
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
                    repeats: VecDeque::new(),
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
            let place = session.under_way.len();
            let request = session.oldest + place as u64;
            let operations = next.transaction.len() as u16;
            let mut message = next.transaction.into_message(session.id, request);
            // How far it is from the oldest request without an outcome: replies to older ones may be forgotten.
            message[4..8].copy_from_slice(&(place as u32).to_le_bytes());
            out.push(Output::Send {
                to: self.options.servers[self.home],
                message: message.clone(),
            });
            session.under_way.push_back(Some(UnderWay {
                ticket: next.ticket,
                operations,
                deadline: next.deadline,
                message,
                sent: 1,
            }));
            let repeat_at = now + self.options.repeat_interval;
            session.repeats.push_back((repeat_at, request));
        }
    }

    /// Sends requests without a reply again, each to the next server.
    fn repeat(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        if !self.is_connected {
            return;
        }
        let Some(session) = &mut self.session else {
            return;
        };
        let servers = &self.options.servers;
        while let Some((_, request)) = session.repeats.pop_front_if(|it| it.0 <= now) {
            let Some(unanswered) = session.get_mut(request) else {
                continue;
            };
            out.push(Output::Send {
                to: servers[(self.home + unanswered.sent) % servers.len()],
                message: unanswered.message.clone(),
            });
            unanswered.sent += 1;
            let repeat_at = now + self.options.repeat_interval;
            session.repeats.push_back((repeat_at, request));
        }
    }

    /// Sends a hello, or repeats it when it is due.
    fn say_hello(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        let (token, sent) = match &self.hello {
            Some(hello) if now < hello.again_at => return,
            Some(hello) => (hello.token, hello.sent),
            None => (self.tokens.word(), 0),
        };
        self.hello = Some(Hello {
            token,
            again_at: now + self.options.hello_interval,
            sent: sent + 1,
        });
        let hello = MessageHeader {
            kind: MessageKind::Hello,
            code: VERSION,
            count: 0,
            detail: 0,
            first: token,
            second: 0,
        };
        let servers = &self.options.servers;
        out.push(Output::Send {
            to: servers[(self.home + sent) % servers.len()],
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

impl Peer for TransactionClient {
    fn connection_closed(&mut self, out: &mut Vec<Output<Outcome>>) {
        TransactionClient::connection_closed(self, out);
    }

    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        TransactionClient::connection_opened(self, now, out);
    }
}

impl Machine for TransactionClient {
    type Request = Transaction;
    type Reply = Outcome;

    fn turn(&mut self, now: Time, input: Input<Transaction>, out: &mut Vec<Output<Outcome>>) {
        self.expire(now, out);
        match input {
            Input::Message { from, bytes } => {
                if let Some(home) = self.options.servers.iter().position(|it| *it == from) {
                    self.home = home;
                    self.message(bytes, out);
                }
            }
            Input::Request(ticket, transaction) => {
                if let Some(failure) = self.request(now, ticket, transaction) {
                    out.push(Output::Reply(ticket, Outcome::Failed(failure)));
                }
            }
            _ => {}
        }
        self.repeat(now, out);
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
        let repeats = self.session.iter().find_map(|it| it.repeats.front());
        let repeat = repeats.filter(|_| self.is_connected).map(|it| it.0);
        [sent, waiting, hello, repeat].into_iter().flatten().min()
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
