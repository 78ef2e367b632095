//! The client's machine: sessions, recordings, replays, reconnection.

mod piece;
mod player;
mod recorder;

pub use piece::{ReplayPiece, ReplayedBlock, ReplayedMessage};
pub use player::ReplayEnd;
pub use recorder::{BlockBatch, FrameBatch};

use crate::answer::{Answer, Refusal, RefusalCode};
use crate::message::{
    BatchPlace, ClientMessage, Granted, REQUEST_WINDOW, ReplayState, ServerMessage, VERSION,
};
use crate::operation::{Operation, ReplayRequest};
use player::Player;
use recorder::{Load, Recorder};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Rng, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server.
    pub server: NodeId,
    /// Where tokens come from. No two clients, and no two lives of one client, may have the same seed.
    pub seed: u64,
    /// After this long a request without an answer has failed, or is unknown if it was sent.
    pub request_timeout: Duration,
    /// What has no answer is sent again after this long.
    pub retry_interval: Duration,
    /// Requests that may wait for a session or for their turn within the window.
    pub waiting_max: usize,
    /// Bytes of batches without a confirmation; further ones are refused.
    pub unconfirmed_bytes_max: usize,
}

impl ClientOptions {
    /// Usual times: 30 s for a request, 200 ms for a repetition; 16 MiB without a confirmation.
    pub fn new(server: NodeId, seed: u64) -> ClientOptions {
        ClientOptions {
            server,
            seed,
            request_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(200),
            waiting_max: 1_024,
            unconfirmed_bytes_max: 16 << 20,
        }
    }
}

/// Names a replay of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayHandle(pub u64);

/// What a caller asks of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// Anything but a replay. After [`Operation::Start`], [`Operation::Extend`] and [`Operation::Copy`] it may be recorded.
    Ask(Operation),
    /// Records messages; answered by [`ClientReply::Recorded`] when the recording's durability level is satisfied.
    Record {
        /// The recording.
        recording: u64,
        /// The messages, at least one.
        batch: FrameBatch,
    },
    /// Appends blocks of its source to a copy that was claimed by [`Operation::Copy`]; answered like
    /// [`ClientRequest::Record`]. Blocks that the copy has are compared.
    Copy {
        /// The copy.
        recording: u64,
        /// The blocks, at least one.
        batch: BlockBatch,
    },
    /// Begins a replay; answered by [`ClientReply::Playing`].
    Play(ReplayRequest),
    /// The next piece of a replay: [`ClientReply::Piece`], or [`ClientReply::Ended`] once and for all.
    Next(ReplayHandle),
    /// The replay is not wanted any more; answered by [`ClientReply::Closed`].
    Close(ReplayHandle),
    /// The end: the server frees what was claimed. Answered by [`ClientReply::Closed`].
    Goodbye,
}

/// What the client answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientReply {
    /// It was done.
    Answer(Answer),
    /// The messages are recorded, once and in order, and as durable as the recording's level says.
    Recorded(BatchPlace),
    /// The replay will begin.
    Playing(ReplayHandle),
    /// The next blocks.
    Piece(ReplayPiece),
    /// The replay has ended; the handle is void.
    Ended(ReplayEnd),
    /// The replay is closed.
    Closed,
    /// It was not done, for the reason that the server gives.
    Refused(Refusal),
    /// It was not done: too much waits already. Ask again later.
    Busy,
    /// It was not done: nothing was heard from the server in time.
    Unreachable,
    /// It was sent, and may have been done or not: no answer came in time, or the session has ended.
    Unknown,
}

/// A request to the server without an answer.
#[derive(Debug)]
struct Asked {
    purpose: Purpose,
    operation: Operation,
    deadline: Option<Time>,
    again_at: Time,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Caller(Ticket),
    Reclaim(u64),
    Play(ReplayHandle),
}

/// A request that was not sent.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    operation: Operation,
    deadline: Time,
}

/// A session with the server.
#[derive(Debug)]
struct Session {
    token: u64,
    granted: Granted,
    next_request: u64,
    asked: BTreeMap<u64, Asked>,
    alive_at: Time,
}

/// One client of an archive: gets a session, records and replays any number of recordings in it. Everything is sent again until
/// it is answered; what the server knows by a number (requests, messages) is done once however often it is sent. When the
/// session is lost, because the server was started again, the client gets another, claims its recordings again, sends what was
/// not confirmed, and asks for the rest of its replays. Its callers notice nothing but the time that takes, except for
/// requests that may have been carried out and must not be twice: they are [`ClientReply::Unknown`].
///
/// A driver with real connections tells it about them ([`Peer`]).
///
/// Its downside: replayed messages are taken on demand, so a replay that is not read keeps one window of memory.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    tokens: Rng,
    is_connected: bool,
    /// Was the session welcomed on this connection? A server takes nothing but a hello from a connection before.
    is_welcome: bool,
    hello: Option<(u64, Time)>,
    session: Option<Session>,
    waiting: VecDeque<Waiting>,
    recorders: BTreeMap<u64, Recorder>,
    players: BTreeMap<ReplayHandle, Player>,
    next_handle: u64,
}

impl Client {
    /// A client that knows no session.
    pub fn new(options: ClientOptions) -> Client {
        Client {
            tokens: Rng::from_seed(options.seed),
            options,
            is_connected: true,
            is_welcome: false,
            hello: None,
            session: None,
            waiting: VecDeque::new(),
            recorders: BTreeMap::new(),
            players: BTreeMap::new(),
            next_handle: 1,
        }
    }

    /// Batches that are not confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.recorders.values().map(Recorder::pending).sum()
    }

    /// Bytes of replays that have come and were not taken.
    pub fn untaken_bytes(&self) -> u64 {
        self.players.values().map(Player::waiting).sum()
    }

    /// The same of the one replay that holds most.
    pub fn untaken_bytes_max(&self) -> u64 {
        self.players
            .values()
            .map(Player::waiting)
            .max()
            .unwrap_or(0)
    }

    fn hurry(&mut self, now: Time) {
        if let Some((_, again_at)) = &mut self.hello {
            *again_at = now;
        }
        if let Some(session) = &mut self.session {
            session.alive_at = now;
            for asked in session.asked.values_mut() {
                asked.again_at = now;
            }
        }
        for recorder in self.recorders.values_mut() {
            recorder.hurry(now);
        }
    }

    fn send(&self, message: Vec<u8>, out: &mut Vec<Output<ClientReply>>) {
        let to = self.options.server;
        out.push(Output::Send { to, message });
    }

    fn request(
        &mut self,
        now: Time,
        ticket: Ticket,
        request: ClientRequest,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        match request {
            ClientRequest::Ask(Operation::Replay(request)) | ClientRequest::Play(request) => {
                let handle = ReplayHandle(self.next_handle);
                self.next_handle += 1;
                self.players.insert(handle, Player::new(request));
                out.push(Output::Reply(ticket, ClientReply::Playing(handle)));
            }
            ClientRequest::Ask(operation) => {
                if self.waiting.len() >= self.options.waiting_max {
                    out.push(Output::Reply(ticket, ClientReply::Busy));
                    return;
                }
                self.waiting.push_back(Waiting {
                    ticket,
                    operation,
                    deadline: now + self.options.request_timeout,
                });
            }
            ClientRequest::Record { recording, batch } => {
                if let Some(problem) = self.record(recording, ticket, batch.into()) {
                    out.push(Output::Reply(ticket, problem));
                }
            }
            ClientRequest::Copy { recording, batch } => {
                if let Some(problem) = self.record(recording, ticket, batch.into()) {
                    out.push(Output::Reply(ticket, problem));
                }
            }
            ClientRequest::Next(handle) => self.next(handle, ticket, out),
            ClientRequest::Close(handle) => {
                self.close(handle, out);
                out.push(Output::Reply(ticket, ClientReply::Closed));
            }
            ClientRequest::Goodbye => {
                if let Some(session) = self.session.take() {
                    let session = session.granted.session;
                    self.send(ClientMessage::Goodbye { session }.encode(), out);
                }
                self.end_all(out);
                out.push(Output::Reply(ticket, ClientReply::Closed));
            }
        }
    }

    /// Gives up everything that is under way.
    fn end_all(&mut self, out: &mut Vec<Output<ClientReply>>) {
        let refusal = Refusal::new(RefusalCode::NotAllowed, "the client said goodbye");
        for recorder in self.recorders.values_mut() {
            recorder.fail(&refusal, out);
        }
        self.recorders.clear();
        for player in self.players.values() {
            if let Some(ticket) = player.taker() {
                out.push(Output::Reply(ticket, ClientReply::Closed));
            }
        }
        self.players.clear();
        for waiting in self.waiting.drain(..) {
            out.push(Output::Reply(waiting.ticket, ClientReply::Unreachable));
        }
    }

    fn record(&mut self, recording: u64, ticket: Ticket, batch: Load) -> Option<ClientReply> {
        let bytes: usize = self.recorders.values().map(|recorder| recorder.bytes).sum();
        let refused = |code, text: &str| Some(ClientReply::Refused(Refusal::new(code, text)));
        let Some(recorder) = self.recorders.get_mut(&recording) else {
            return refused(RefusalCode::NoClaim, "start or extend the recording first");
        };
        if batch.messages() == 0 {
            return refused(RefusalCode::WrongBatch, "a batch without messages");
        }
        let longest = self.session.as_ref().map(|it| it.granted.batch_bytes_max);
        if longest.is_some_and(|longest| batch.length() > longest as usize) {
            return refused(
                RefusalCode::WrongBatch,
                "the batch is longer than the server takes",
            );
        }
        if bytes > 0 && bytes + batch.length() > self.options.unconfirmed_bytes_max {
            return Some(ClientReply::Busy);
        }
        let pushed = recorder.push(ticket, batch);
        pushed.err().map(ClientReply::Refused)
    }

    fn next(&mut self, handle: ReplayHandle, ticket: Ticket, out: &mut Vec<Output<ClientReply>>) {
        let Some(player) = self.players.get_mut(&handle) else {
            let refusal = Refusal::new(RefusalCode::NotAllowed, "there is no such replay");
            let end = ClientReply::Ended(ReplayEnd::Failed(refusal));
            out.push(Output::Reply(ticket, end));
            return;
        };
        if let Some(other) = player.take(ticket) {
            out.push(Output::Reply(other, ClientReply::Busy));
        }
        self.hand_over(handle, out);
    }

    /// Hands over what a player has, and gives credit for it.
    fn hand_over(&mut self, handle: ReplayHandle, out: &mut Vec<Output<ClientReply>>) {
        let Some(player) = self.players.get_mut(&handle) else {
            return;
        };
        if player.hand_over(out) {
            self.close(handle, out);
            return;
        }
        if let Some(session) = &self.session
            && let Some(credit) = player.credit(session.granted.session, false)
        {
            self.send(credit, out);
        }
    }

    fn close(&mut self, handle: ReplayHandle, out: &mut Vec<Output<ClientReply>>) {
        let Some(mut player) = self.players.remove(&handle) else {
            return;
        };
        if let Some(ticket) = player.taker() {
            out.push(Output::Reply(ticket, ClientReply::Closed));
        }
        if let (Some(session), Some(replay)) = (&mut self.session, player.lose()) {
            session.asked.remove(&replay);
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
    }

    fn message(&mut self, now: Time, bytes: Vec<u8>, out: &mut Vec<Output<ClientReply>>) {
        let Ok(message) = ServerMessage::decode(&bytes) else {
            return;
        };
        let mine = self.session.as_ref().map(|session| session.granted.session);
        match message {
            ServerMessage::Welcome { token, granted } => self.welcome(now, token, granted, out),
            ServerMessage::Gone { session } if mine == Some(session) => self.lose_session(out),
            ServerMessage::Reply {
                session,
                request,
                result,
            } if mine == Some(session) => self.reply(now, request, result, out),
            ServerMessage::Recorded {
                session,
                claim,
                reached,
                places,
                refusal,
            } if mine == Some(session) => {
                let found = self.recorders.values_mut();
                let Some(recorder) = found.into_iter().find(|it| it.claim == Some(claim)) else {
                    return;
                };
                recorder.reached(&reached, &places, out);
                recorder.plan(now, self.options.retry_interval, true);
                if let Some(refusal) = refusal {
                    self.record_refused(claim, &refusal, out);
                }
            }
            ServerMessage::Data {
                session,
                replay,
                offset,
                ..
            } if mine == Some(session) => self.data(now, replay, offset, bytes, out),
            ServerMessage::Replay {
                session,
                replay,
                state,
                offset,
                position,
                refusal,
            } if mine == Some(session) => {
                if let Some((handle, player)) = find(&mut self.players, replay) {
                    let is_well = player.state(state, offset, position, refusal);
                    self.played(handle, is_well, out);
                } else if state == ReplayState::Open {
                    // It was closed, and the server did not hear of it.
                    self.send(ClientMessage::Close { session, replay }.encode(), out);
                }
            }
            _ => {}
        }
    }

    fn data(
        &mut self,
        now: Time,
        replay: u64,
        offset: u64,
        bytes: Vec<u8>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        if let Some((handle, player)) = find(&mut self.players, replay) {
            let is_well = player.data(now, self.options.retry_interval, offset, bytes);
            self.played(handle, is_well, out);
        } else if let Some(session) = &self.session {
            // Of a replay that was closed: the server did not hear of it.
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
    }

    /// Something came for a replay. With a hole the rest is asked for again.
    fn played(&mut self, handle: ReplayHandle, is_well: bool, out: &mut Vec<Output<ClientReply>>) {
        if !is_well
            && let Some(player) = self.players.get_mut(&handle)
            && let Some(session) = &mut self.session
            && let Some(replay) = player.lose()
        {
            session.asked.remove(&replay);
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
        self.hand_over(handle, out);
    }

    /// The server does not take a batch, or the claim is over.
    fn record_refused(
        &mut self,
        claim: u64,
        refusal: &Refusal,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        let claimed = |recorder: &Recorder| recorder.claim == Some(claim);
        let Some(recording) = self.recorders.values().find(|it| claimed(it)) else {
            return;
        };
        let recording = recording.recording;
        if let Some(mut recorder) = self.recorders.remove(&recording) {
            recorder.fail(refusal, out);
        }
    }

    fn welcome(
        &mut self,
        now: Time,
        token: u64,
        granted: Result<Granted, Refusal>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        if self.hello.is_none_or(|(mine, _)| mine != token) {
            return;
        }
        match granted {
            Ok(granted) => {
                if let Some(session) = &self.session {
                    // Any other is of a hello from before this session.
                    if session.granted.session == granted.session {
                        self.hello = None;
                        self.is_welcome = true;
                        self.hurry(now);
                    }
                    return;
                }
                self.hello = None;
                self.is_welcome = true;
                self.session = Some(Session {
                    token,
                    granted,
                    next_request: 1,
                    asked: BTreeMap::new(),
                    alive_at: now + interval(&granted),
                });
            }
            Err(refusal) if refusal.code == RefusalCode::WrongVersion => {
                self.hello = None;
                for waiting in self.waiting.drain(..) {
                    let reply = ClientReply::Refused(refusal.clone());
                    out.push(Output::Reply(waiting.ticket, reply));
                }
            }
            // Overloaded: the hello is repeated when its time comes.
            Err(_) => {}
        }
    }

    /// Everything that was under way in the session has to be asked for again, unless that could do it twice.
    fn lose_session(&mut self, out: &mut Vec<Output<ClientReply>>) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.hello = None;
        for asked in session.asked.into_values().rev() {
            let (Purpose::Caller(ticket), Some(deadline)) = (asked.purpose, asked.deadline) else {
                continue;
            };
            if may_be_repeated(&asked.operation) {
                self.waiting.push_front(Waiting {
                    ticket,
                    operation: asked.operation,
                    deadline,
                });
            } else {
                out.push(Output::Reply(ticket, ClientReply::Unknown));
            }
        }
        for recorder in self.recorders.values_mut() {
            recorder.lose();
        }
        for player in self.players.values_mut() {
            player.lose();
        }
    }

    fn reply(
        &mut self,
        now: Time,
        request: u64,
        result: Result<Answer, Refusal>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(asked) = session.asked.remove(&request) else {
            return;
        };
        match asked.purpose {
            Purpose::Caller(ticket) => {
                if let Ok(answer) = &result {
                    self.note(&asked.operation, answer, out);
                }
                let reply = match result {
                    Ok(answer) => ClientReply::Answer(answer),
                    Err(refusal) => ClientReply::Refused(refusal),
                };
                out.push(Output::Reply(ticket, reply));
            }
            Purpose::Reclaim(recording) => self.reclaimed(now, recording, result, out),
            Purpose::Play(handle) => {
                if let Some(player) = self.players.get_mut(&handle) {
                    match result {
                        Ok(Answer::ReplayBegun {
                            position,
                            end,
                            window_bytes,
                        }) => player.begun(position, end, window_bytes),
                        Ok(_) => {}
                        Err(refusal) => player.fail(refusal),
                    }
                    self.hand_over(handle, out);
                }
            }
        }
    }

    /// Learns from an answer which recordings are claimed.
    fn note(&mut self, operation: &Operation, answer: &Answer, out: &mut Vec<Output<ClientReply>>) {
        match (operation, answer) {
            (_, Answer::Claimed(claimed)) => {
                // Already claimed: requests under way continue.
                let recorder = Recorder::new(claimed);
                self.recorders.entry(claimed.recording).or_insert(recorder);
            }
            (Operation::Stop { recording }, _) => {
                if let Some(mut recorder) = self.recorders.remove(recording) {
                    let refusal = Refusal::new(RefusalCode::NoClaim, "the recording was stopped");
                    recorder.fail(&refusal, out);
                }
            }
            _ => {}
        }
    }

    fn reclaimed(
        &mut self,
        now: Time,
        recording: u64,
        result: Result<Answer, Refusal>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        let Some(recorder) = self.recorders.get_mut(&recording) else {
            return;
        };
        recorder.reclaim = None;
        let refusal = match result {
            Ok(Answer::Claimed(claimed)) => match recorder.reclaimed(&claimed) {
                Ok(()) => return,
                Err(lost) => lost,
            },
            Ok(_) => return,
            // The server may not have noticed the end of the previous session yet.
            Err(Refusal {
                code: RefusalCode::Recording | RefusalCode::Overloaded,
                ..
            }) => {
                recorder.reclaim_at = Some(now + self.options.retry_interval);
                return;
            }
            Err(refusal) => refusal,
        };
        recorder.fail(&refusal, out);
        self.recorders.remove(&recording);
    }

    /// Gives up what has waited too long.
    fn expire(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        while let Some(late) = self.waiting.pop_front_if(|it| it.deadline <= now) {
            out.push(Output::Reply(late.ticket, ClientReply::Unreachable));
        }
        if let Some(session) = &mut self.session {
            let is_late = |asked: &Asked| asked.deadline.is_some_and(|deadline| deadline <= now);
            let late = session.asked.extract_if(.., |_, asked| is_late(asked));
            for (_, asked) in late {
                if let Purpose::Caller(ticket) = asked.purpose {
                    out.push(Output::Reply(ticket, ClientReply::Unknown));
                }
            }
        }
        for recorder in self.recorders.values_mut() {
            recorder.expire(now);
        }
    }

    /// Sends what may be sent.
    fn proceed(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        if !self.is_connected {
            return;
        }
        if self.session.is_none() || !self.is_welcome {
            self.say_hello(now, out);
            return;
        }
        self.ask_again_for_claims_and_replays(now);
        self.ask_what_waits(now);
        self.repeat(now, out);
        let Some(session) = &mut self.session else {
            return;
        };
        let (id, server) = (session.granted.session, self.options.server);
        let window = session.granted.record_window_bytes as usize;
        for recorder in self.recorders.values_mut() {
            let has_sent = recorder.send(id, window, |message| {
                out.push(Output::Send {
                    to: server,
                    message,
                });
            });
            recorder.plan(now, self.options.retry_interval, has_sent);
        }
        for player in self.players.values_mut() {
            if player.is_silent(now, self.options.retry_interval)
                && let Some(message) = player.credit(id, true)
            {
                out.push(Output::Send {
                    to: server,
                    message,
                });
                // Answered with the state of every replay.
                session.alive_at = session.alive_at.min(now);
            }
        }
        if session.alive_at <= now {
            session.alive_at = now + interval(&session.granted);
            let message = ClientMessage::Alive { session: id }.encode();
            out.push(Output::Send {
                to: server,
                message,
            });
        }
    }

    /// Asks for a session, or asks again if it is time.
    fn say_hello(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        let has_session = self.session.is_some();
        let has_work = !self.waiting.is_empty() || !self.recorders.is_empty();
        if !has_session && !has_work && self.players.is_empty() {
            self.hello = None;
            return;
        }
        let token = match (self.hello, &self.session) {
            (Some((_, again_at)), _) if now < again_at => return,
            (Some((token, _)), _) => token,
            (None, Some(session)) => session.token,
            (None, None) => self.tokens.word(),
        };
        self.hello = Some((token, now + self.options.retry_interval));
        let version = VERSION;
        let session = self.session.as_ref().map(|it| it.granted.session);
        let hello = ClientMessage::Hello {
            version,
            token,
            session: session.unwrap_or(0),
        };
        self.send(hello.encode(), out);
    }

    fn ask_again_for_claims_and_replays(&mut self, now: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        for recorder in self.recorders.values_mut() {
            let is_due = recorder.reclaim_at.is_none_or(|at| at <= now);
            if recorder.claim.is_none() && recorder.reclaim.is_none() && is_due {
                let recording = recorder.recording;
                let operation = Operation::Extend { recording };
                recorder.reclaim_at = None;
                recorder.reclaim = session.ask(now, Purpose::Reclaim(recording), operation, None);
            }
        }
        for (handle, player) in &mut self.players {
            if player.is_lost() {
                let operation = Operation::Replay(player.request());
                let purpose = Purpose::Play(*handle);
                if let Some(replay) = session.ask(now, purpose, operation, None) {
                    player.asked(replay);
                }
            }
        }
    }

    fn ask_what_waits(&mut self, now: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        while session.has_room()
            && let Some(next) = self.waiting.pop_front()
        {
            let purpose = Purpose::Caller(next.ticket);
            session.ask(now, purpose, next.operation, Some(next.deadline));
        }
    }

    /// Sends requests, for the first time or again.
    fn repeat(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        let Some(session) = &mut self.session else {
            return;
        };
        let id = session.granted.session;
        for (request, asked) in &mut session.asked {
            if asked.again_at <= now {
                asked.again_at = now + self.options.retry_interval;
                let message = ClientMessage::Request {
                    session: id,
                    request: *request,
                    operation: asked.operation.clone(),
                };
                out.push(Output::Send {
                    to: self.options.server,
                    message: message.encode(),
                });
            }
        }
    }
}

/// The replay that the server knows by this number.
fn find(
    players: &mut BTreeMap<ReplayHandle, Player>,
    replay: u64,
) -> Option<(ReplayHandle, &mut Player)> {
    let mut found = players.iter_mut();
    let (handle, player) = found.find(|(_, player)| player.replay == Some(replay))?;
    Some((*handle, player))
}

/// How often a session says that it is there.
fn interval(granted: &Granted) -> Duration {
    Duration::from_millis(u64::from(granted.session_timeout_ms / 3).max(1))
}

/// Does it make no difference whether it is done once or twice?
fn may_be_repeated(operation: &Operation) -> bool {
    match operation {
        Operation::Start { is_resumed, .. } => *is_resumed,
        Operation::Stop { .. } | Operation::Delete { .. } => false,
        _ => true,
    }
}

impl Session {
    /// May another request be sent?
    fn has_room(&self) -> bool {
        let oldest = self.asked.keys().next();
        oldest.is_none_or(|oldest| self.next_request < oldest + REQUEST_WINDOW)
    }

    /// Puts a request among those to be sent; none when the window is full.
    fn ask(
        &mut self,
        now: Time,
        purpose: Purpose,
        operation: Operation,
        deadline: Option<Time>,
    ) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        let request = self.next_request;
        self.next_request += 1;
        self.asked.insert(
            request,
            Asked {
                purpose,
                operation,
                deadline,
                again_at: now,
            },
        );
        Some(request)
    }
}

impl Peer for Client {
    /// Everything waits for the connection to come back, until its time is up.
    fn connection_closed(&mut self, _: &mut Vec<Output<ClientReply>>) {
        self.is_connected = false;
        self.is_welcome = false;
    }

    /// The session is taken up again; what has no answer is sent again as soon as the server has welcomed it.
    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        self.is_connected = true;
        self.is_welcome = false;
        self.hurry(now);
        self.proceed(now, out);
    }
}

impl Machine for Client {
    type Request = ClientRequest;
    type Reply = ClientReply;

    fn turn(&mut self, now: Time, input: Input<ClientRequest>, out: &mut Vec<Output<ClientReply>>) {
        self.expire(now, out);
        match input {
            Input::Message { from, bytes } if from == self.options.server => {
                self.message(now, bytes, out);
            }
            Input::Request(ticket, request) => self.request(now, ticket, request, out),
            _ => {}
        }
        self.proceed(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|waiting| waiting.deadline);
        if !self.is_connected {
            return waiting;
        }
        let hello = self.hello.map(|(_, again_at)| again_at);
        let is_welcome = self.is_welcome;
        let session = self.session.as_ref().map(|session| {
            let again = |asked: &Asked| Some(asked.again_at).filter(|_| is_welcome);
            let asked = session.asked.values();
            let asked = asked.flat_map(|asked| [again(asked), asked.deadline]);
            let asked = asked.flatten().min().unwrap_or(Time::MAX);
            let alive_at = Some(session.alive_at).filter(|_| is_welcome);
            asked.min(alive_at.unwrap_or(Time::MAX))
        });
        let recorders = self.recorders.values().filter_map(Recorder::wake_at).min();
        let players = self.players.values().filter_map(Player::wake_at).min();
        let work = recorders.into_iter().chain(players);
        let work = work.filter(|_| self.session.is_some() && is_welcome);
        let times = [waiting, hello, session].into_iter().flatten();
        times.chain(work).min()
    }

    fn check_invariants(&self) {
        assert!(self.waiting.len() <= self.options.waiting_max + REQUEST_WINDOW as usize);
        assert!(self.hello.is_none() || self.session.is_none() || !self.is_welcome);
        for recorder in self.recorders.values() {
            recorder.check_invariants();
        }
    }
}
