//! The client's machine: session, recordings, replays, reconnection.

mod claimed_recording;
mod piece;
mod player;

pub use claimed_recording::{BlockBatch, FrameBatch};
pub use piece::{ReplayPiece, ReplayedBlock, ReplayedMessage};
pub use player::ReplayEnd;

use crate::archive_answer::{ArchiveAnswer, Refusal, RefusalCode};
use crate::archive_operation::{ArchiveOperation, ReplayRequest};
use crate::message::{
    BatchPlace, ClientMessage, Granted, REQUEST_WINDOW, ReplayState, ServerMessage, VERSION,
};
use claimed_recording::{BatchBody, ClaimedRecording};
use player::Player;
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Rng, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The options of a [`ArchiveClient`].
#[derive(Clone, Debug)]
pub struct ArchiveClientOptions {
    /// The endpoint of the server.
    pub server: NodeId,
    /// The seed of session tokens. It must differ for each client and at each start of one.
    pub seed: u64,
    /// Timeout of a request: [`ClientReply::Unreachable`] if it was not sent, else [`ClientReply::Unknown`].
    pub request_timeout: Duration,
    /// Interval at which messages without an answer are sent again.
    pub retry_interval: Duration,
    /// Maximum number of requests that wait for a session or for the request window.
    pub waiting_max: usize,
    /// Maximum number of bytes of unconfirmed batches; further batches are refused.
    pub unconfirmed_bytes_max: usize,
}

impl ArchiveClientOptions {
    /// Defaults: 30 s for a request, 200 ms between repetitions, 16 MiB unconfirmed.
    pub fn new(server: NodeId, seed: u64) -> ArchiveClientOptions {
        ArchiveClientOptions {
            server,
            seed,
            request_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(200),
            waiting_max: 1_024,
            unconfirmed_bytes_max: 16 << 20,
        }
    }
}

/// Identifies a replay within a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayHandle(pub u64);

/// A request of a caller to the [`ArchiveClient`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// Any operation except a replay. [`ArchiveOperation::Start`], [`ArchiveOperation::Extend`] and [`ArchiveOperation::Copy`]
    /// claim a recording.
    Ask(ArchiveOperation),
    /// Records messages; answered by [`ClientReply::Recorded`] when the recording's durability level is satisfied.
    Record {
        /// The recording.
        recording: u64,
        /// The messages, at least one.
        batch: FrameBatch,
    },
    /// Appends blocks of its source to a copy that was claimed by [`ArchiveOperation::Copy`]; answered like
    /// [`ClientRequest::Record`]. Blocks that the copy has are compared.
    Copy {
        /// The copy.
        recording: u64,
        /// The blocks, at least one.
        batch: BlockBatch,
    },
    /// Begins a replay; answered by [`ClientReply::Playing`].
    Play(ReplayRequest),
    /// The next piece of a replay: [`ClientReply::Piece`], or finally [`ClientReply::Ended`].
    Next(ReplayHandle),
    /// Cancels a replay; answered by [`ClientReply::Closed`].
    Close(ReplayHandle),
    /// Ends the session: the server stops its recordings and replays. Answered by [`ClientReply::Closed`].
    Goodbye,
}

/// The reply of the [`ArchiveClient`] to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientReply {
    /// The answer of the server.
    Answer(ArchiveAnswer),
    /// The messages are recorded, once and in order, and as durable as the recording's level says.
    Recorded(BatchPlace),
    /// The handle of a replay that will begin.
    Playing(ReplayHandle),
    /// The next blocks.
    Piece(ReplayPiece),
    /// The replay has ended; the handle is void.
    Ended(ReplayEnd),
    /// The replay is closed.
    Closed,
    /// Not executed, for the reason that the server gives.
    Refused(Refusal),
    /// Not executed: too many requests or bytes wait already. Try again later.
    Busy,
    /// Not executed: there was no session with the server in time.
    Unreachable,
    /// Sent, but not answered in time or before the session ended: it may or may not have been executed.
    Unknown,
}

/// A request that was sent, or is about to be, and has no answer.
#[derive(Debug)]
struct SentRequest {
    purpose: RequestPurpose,
    operation: ArchiveOperation,
    /// `None`: it is repeated until it is answered.
    deadline: Option<Time>,
    retry_at: Time,
}

/// What the answer to a request is for: a caller, a claim after a lost session, a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPurpose {
    Caller(Ticket),
    Reclaim(u64),
    Play(ReplayHandle),
}

/// A request that waits for a session or for the request window.
#[derive(Debug)]
struct WaitingRequest {
    ticket: Ticket,
    operation: ArchiveOperation,
    deadline: Time,
}

/// A session with the server: its requests without an answer, by number.
#[derive(Debug)]
struct GrantedSession {
    token: u64,
    granted: Granted,
    next_request: u64,
    sent: BTreeMap<u64, SentRequest>,
    /// When the session is to be kept alive.
    keepalive_at: Time,
}

/// One client of an archive service: one session, in which it records and replays any number of recordings.
///
/// Every message is repeated until it is answered. Requests and recorded messages have numbers, so the server executes each once
/// however often it arrives. When the server has restarted and lost the session, the client opens another one, claims its
/// recordings again, sends the unconfirmed batches, and requests the rest of its replays. Callers see only the delay,
/// except for requests that may have been executed and must not be twice: their reply is [`ClientReply::Unknown`].
///
/// A driver with real connections reports them through [`Peer`].
///
/// Cost: a replay that is not read holds one window of memory.
#[derive(Debug)]
pub struct ArchiveClient {
    options: ArchiveClientOptions,
    /// Generates session tokens.
    tokens: Rng,
    is_connected: bool,
    /// Has the server accepted the session on this connection? Before, it accepts only a hello.
    is_welcome: bool,
    /// The token of the hello without an answer, and when it is sent again.
    hello: Option<(u64, Time)>,
    session: Option<GrantedSession>,
    waiting: VecDeque<WaitingRequest>,
    recordings: BTreeMap<u64, ClaimedRecording>,
    players: BTreeMap<ReplayHandle, Player>,
    next_handle: u64,
}

impl ArchiveClient {
    /// A client without a session; it opens one for its first request.
    pub fn new(options: ArchiveClientOptions) -> ArchiveClient {
        ArchiveClient {
            tokens: Rng::from_seed(options.seed),
            options,
            is_connected: true,
            is_welcome: false,
            hello: None,
            session: None,
            waiting: VecDeque::new(),
            recordings: BTreeMap::new(),
            players: BTreeMap::new(),
            next_handle: 1,
        }
    }

    /// Number of unconfirmed batches.
    pub fn unconfirmed(&self) -> usize {
        self.recordings
            .values()
            .map(ClaimedRecording::pending)
            .sum()
    }

    /// Bytes of replays that were received and not taken by the caller.
    pub fn untaken_bytes(&self) -> u64 {
        self.players.values().map(Player::untaken_bytes).sum()
    }

    /// The largest such number of one replay.
    pub fn untaken_bytes_max(&self) -> u64 {
        self.players
            .values()
            .map(Player::untaken_bytes)
            .max()
            .unwrap_or(0)
    }

    /// Makes all retries due now, for a new connection.
    fn retry_now(&mut self, now: Time) {
        if let Some((_, retry_at)) = &mut self.hello {
            *retry_at = now;
        }
        if let Some(session) = &mut self.session {
            session.keepalive_at = now;
            for sent in session.sent.values_mut() {
                sent.retry_at = now;
            }
        }
        for recorder in self.recordings.values_mut() {
            recorder.retry_now(now);
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
            ClientRequest::Ask(ArchiveOperation::Replay(request))
            | ClientRequest::Play(request) => {
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
                self.waiting.push_back(WaitingRequest {
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

    /// Answers all requests in flight: the session ends.
    fn end_all(&mut self, out: &mut Vec<Output<ClientReply>>) {
        let refusal = Refusal::new(RefusalCode::NotAllowed, "the client ended the session");
        for recorder in self.recordings.values_mut() {
            recorder.fail(&refusal, out);
        }
        self.recordings.clear();
        for player in self.players.values() {
            if let Some(ticket) = player.pending_next() {
                out.push(Output::Reply(ticket, ClientReply::Closed));
            }
        }
        self.players.clear();
        for waiting in self.waiting.drain(..) {
            out.push(Output::Reply(waiting.ticket, ClientReply::Unreachable));
        }
    }

    fn record(&mut self, recording: u64, ticket: Ticket, batch: BatchBody) -> Option<ClientReply> {
        let bytes: usize = self
            .recordings
            .values()
            .map(|recorder| recorder.bytes)
            .sum();
        let refused = |code, text: &str| Some(ClientReply::Refused(Refusal::new(code, text)));
        let Some(recorder) = self.recordings.get_mut(&recording) else {
            return refused(
                RefusalCode::NoClaim,
                "the recording is not claimed: start or extend it first",
            );
        };
        if batch.messages() == 0 {
            return refused(RefusalCode::WrongBatch, "the batch has no messages");
        }
        let longest = self.session.as_ref().map(|it| it.granted.batch_bytes_max);
        if longest.is_some_and(|longest| batch.length() > longest as usize) {
            return refused(
                RefusalCode::WrongBatch,
                "the batch exceeds the batch_bytes_max of the server",
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
            let refusal = Refusal::new(RefusalCode::NotAllowed, "unknown replay");
            let end = ClientReply::Ended(ReplayEnd::Failed(refusal));
            out.push(Output::Reply(ticket, end));
            return;
        };
        if let Some(other) = player.set_pending_next(ticket) {
            out.push(Output::Reply(other, ClientReply::Busy));
        }
        self.deliver(handle, out);
    }

    /// Delivers the next piece of a replay to a waiting caller, and sends credit for it.
    fn deliver(&mut self, handle: ReplayHandle, out: &mut Vec<Output<ClientReply>>) {
        let Some(player) = self.players.get_mut(&handle) else {
            return;
        };
        if player.deliver_next(out) {
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
        if let Some(ticket) = player.pending_next() {
            out.push(Output::Reply(ticket, ClientReply::Closed));
        }
        if let (Some(session), Some(replay)) = (&mut self.session, player.on_replay_lost()) {
            session.sent.remove(&replay);
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
    }

    fn message(&mut self, now: Time, bytes: Vec<u8>, out: &mut Vec<Output<ClientReply>>) {
        let Ok(message) = ServerMessage::decode(&bytes) else {
            return;
        };
        let current = self.session.as_ref().map(|session| session.granted.session);
        match message {
            ServerMessage::Welcome { token, granted } => self.welcome(now, token, granted, out),
            ServerMessage::Gone { session } if current == Some(session) => self.lose_session(out),
            ServerMessage::Reply {
                session,
                request,
                result,
            } if current == Some(session) => self.reply(now, request, result, out),
            ServerMessage::Recorded {
                session,
                claim,
                reached,
                places,
                refusal,
            } if current == Some(session) => {
                let found = self.recordings.values_mut();
                let Some(recorder) = found.into_iter().find(|it| it.claim == Some(claim)) else {
                    return;
                };
                recorder.on_progress(&reached, &places, out);
                recorder.schedule_retry(now, self.options.retry_interval, true);
                if let Some(refusal) = refusal {
                    self.fail_claim(claim, &refusal, out);
                }
            }
            ServerMessage::Data {
                session,
                replay,
                offset,
                ..
            } if current == Some(session) => self.data(now, replay, offset, bytes, out),
            ServerMessage::Replay {
                session,
                replay,
                state,
                offset,
                position,
                refusal,
            } if current == Some(session) => {
                if let Some((handle, player)) = find_player(&mut self.players, replay) {
                    let is_intact = player.on_state(state, offset, position, refusal);
                    self.after_replay_message(handle, is_intact, out);
                } else if state == ReplayState::Open {
                    // It was closed here, and the message that closes it was lost.
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
        if let Some((handle, player)) = find_player(&mut self.players, replay) {
            let is_intact = player.on_data(now, self.options.retry_interval, offset, bytes);
            self.after_replay_message(handle, is_intact, out);
        } else if let Some(session) = &self.session {
            // It was closed here, and the message that closes it was lost.
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
    }

    /// Handles a message of a replay. After a gap the replay is closed, and the rest is requested again.
    fn after_replay_message(
        &mut self,
        handle: ReplayHandle,
        is_intact: bool,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        if !is_intact
            && let Some(player) = self.players.get_mut(&handle)
            && let Some(session) = &mut self.session
            && let Some(replay) = player.on_replay_lost()
        {
            session.sent.remove(&replay);
            let session = session.granted.session;
            self.send(ClientMessage::Close { session, replay }.encode(), out);
        }
        self.deliver(handle, out);
    }

    /// Refuses the unconfirmed batches of a claim that has ended, or of which one was refused.
    fn fail_claim(&mut self, claim: u64, refusal: &Refusal, out: &mut Vec<Output<ClientReply>>) {
        let is_claim = |recorder: &ClaimedRecording| recorder.claim == Some(claim);
        let Some(recording) = self.recordings.values().find(|it| is_claim(it)) else {
            return;
        };
        let recording = recording.recording;
        if let Some(mut recorder) = self.recordings.remove(&recording) {
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
        if self.hello.is_none_or(|(expected, _)| expected != token) {
            return;
        }
        match granted {
            Ok(granted) => {
                if let Some(session) = &self.session {
                    // Any other session is the answer to an older hello.
                    if session.granted.session == granted.session {
                        self.hello = None;
                        self.is_welcome = true;
                        self.retry_now(now);
                    }
                    return;
                }
                self.hello = None;
                self.is_welcome = true;
                self.session = Some(GrantedSession {
                    token,
                    granted,
                    next_request: 1,
                    sent: BTreeMap::new(),
                    keepalive_at: now + keepalive_interval(&granted),
                });
            }
            Err(refusal) if refusal.code == RefusalCode::WrongVersion => {
                self.hello = None;
                for waiting in self.waiting.drain(..) {
                    let reply = ClientReply::Refused(refusal.clone());
                    out.push(Output::Reply(waiting.ticket, reply));
                }
            }
            // Overloaded: the hello is repeated after the retry interval.
            Err(_) => {}
        }
    }

    /// Queues the requests of a lost session again, except those that must not be executed twice.
    fn lose_session(&mut self, out: &mut Vec<Output<ClientReply>>) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.hello = None;
        for sent in session.sent.into_values().rev() {
            let (RequestPurpose::Caller(ticket), Some(deadline)) = (sent.purpose, sent.deadline)
            else {
                continue;
            };
            if is_idempotent(&sent.operation) {
                self.waiting.push_front(WaitingRequest {
                    ticket,
                    operation: sent.operation,
                    deadline,
                });
            } else {
                out.push(Output::Reply(ticket, ClientReply::Unknown));
            }
        }
        for recorder in self.recordings.values_mut() {
            recorder.on_session_lost();
        }
        for player in self.players.values_mut() {
            player.on_replay_lost();
        }
    }

    fn reply(
        &mut self,
        now: Time,
        request: u64,
        result: Result<ArchiveAnswer, Refusal>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(sent) = session.sent.remove(&request) else {
            return;
        };
        match sent.purpose {
            RequestPurpose::Caller(ticket) => {
                if let Ok(answer) = &result {
                    self.update_claims(&sent.operation, answer, out);
                }
                let reply = match result {
                    Ok(answer) => ClientReply::Answer(answer),
                    Err(refusal) => ClientReply::Refused(refusal),
                };
                out.push(Output::Reply(ticket, reply));
            }
            RequestPurpose::Reclaim(recording) => self.reclaimed(now, recording, result, out),
            RequestPurpose::Play(handle) => {
                if let Some(player) = self.players.get_mut(&handle) {
                    match result {
                        Ok(ArchiveAnswer::ReplayBegun {
                            position,
                            end,
                            window_bytes,
                        }) => player.on_begun(position, end, window_bytes),
                        Ok(_) => {}
                        Err(refusal) => player.fail(refusal),
                    }
                    self.deliver(handle, out);
                }
            }
        }
    }

    /// Updates the claimed recordings from an answer.
    fn update_claims(
        &mut self,
        operation: &ArchiveOperation,
        answer: &ArchiveAnswer,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        match (operation, answer) {
            (_, ArchiveAnswer::Claimed(claimed)) => {
                // If it was claimed already, its batches in flight continue.
                let recorder = ClaimedRecording::new(claimed);
                self.recordings.entry(claimed.recording).or_insert(recorder);
            }
            (ArchiveOperation::Stop { recording }, _) => {
                if let Some(mut recorder) = self.recordings.remove(recording) {
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
        result: Result<ArchiveAnswer, Refusal>,
        out: &mut Vec<Output<ClientReply>>,
    ) {
        let Some(recorder) = self.recordings.get_mut(&recording) else {
            return;
        };
        recorder.reclaim = None;
        let refusal = match result {
            Ok(ArchiveAnswer::Claimed(claimed)) => match recorder.reclaimed(&claimed) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
            Ok(_) => return,
            // The previous session may still hold the claim, until its timeout.
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
        self.recordings.remove(&recording);
    }

    /// Answers requests whose deadline has passed.
    fn expire(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        while let Some(late) = self.waiting.pop_front_if(|it| it.deadline <= now) {
            out.push(Output::Reply(late.ticket, ClientReply::Unreachable));
        }
        if let Some(session) = &mut self.session {
            let is_late =
                |sent: &SentRequest| sent.deadline.is_some_and(|deadline| deadline <= now);
            let late = session.sent.extract_if(.., |_, sent| is_late(sent));
            for (_, sent) in late {
                if let RequestPurpose::Caller(ticket) = sent.purpose {
                    out.push(Output::Reply(ticket, ClientReply::Unknown));
                }
            }
        }
        for recorder in self.recordings.values_mut() {
            recorder.expire(now);
        }
    }

    /// Sends everything that is due and within the windows.
    fn send_due(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        if !self.is_connected {
            return;
        }
        if self.session.is_none() || !self.is_welcome {
            self.send_hello(now, out);
            return;
        }
        self.request_claims_and_replays(now);
        self.send_waiting(now);
        self.send_requests(now, out);
        let Some(session) = &mut self.session else {
            return;
        };
        let (id, server) = (session.granted.session, self.options.server);
        let window = session.granted.record_window_bytes as usize;
        for recorder in self.recordings.values_mut() {
            let has_sent = recorder.send(id, window, |message| {
                out.push(Output::Send {
                    to: server,
                    message,
                });
            });
            recorder.schedule_retry(now, self.options.retry_interval, has_sent);
        }
        for player in self.players.values_mut() {
            if player.is_silent(now, self.options.retry_interval)
                && let Some(message) = player.credit(id, true)
            {
                out.push(Output::Send {
                    to: server,
                    message,
                });
                // The server answers a keepalive with the state of every replay.
                session.keepalive_at = session.keepalive_at.min(now);
            }
        }
        if session.keepalive_at <= now {
            session.keepalive_at = now + keepalive_interval(&session.granted);
            let message = ClientMessage::Alive { session: id }.encode();
            out.push(Output::Send {
                to: server,
                message,
            });
        }
    }

    /// Sends a hello if there is work and none is waiting for its answer.
    fn send_hello(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        let has_session = self.session.is_some();
        let has_work = !self.waiting.is_empty() || !self.recordings.is_empty();
        if !has_session && !has_work && self.players.is_empty() {
            self.hello = None;
            return;
        }
        let token = match (self.hello, &self.session) {
            (Some((_, retry_at)), _) if now < retry_at => return,
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

    fn request_claims_and_replays(&mut self, now: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        for recorder in self.recordings.values_mut() {
            let is_due = recorder.reclaim_at.is_none_or(|at| at <= now);
            if recorder.claim.is_none() && recorder.reclaim.is_none() && is_due {
                let recording = recorder.recording;
                let operation = ArchiveOperation::Extend { recording };
                recorder.reclaim_at = None;
                recorder.reclaim =
                    session.add_request(now, RequestPurpose::Reclaim(recording), operation, None);
            }
        }
        for (handle, player) in &mut self.players {
            if player.needs_request() {
                let operation = ArchiveOperation::Replay(player.request());
                let purpose = RequestPurpose::Play(*handle);
                if let Some(replay) = session.add_request(now, purpose, operation, None) {
                    player.on_requested(replay);
                }
            }
        }
    }

    fn send_waiting(&mut self, now: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        while session.has_window()
            && let Some(next) = self.waiting.pop_front()
        {
            let purpose = RequestPurpose::Caller(next.ticket);
            session.add_request(now, purpose, next.operation, Some(next.deadline));
        }
    }

    /// Sends the requests that are due, for the first time or again.
    fn send_requests(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        let Some(session) = &mut self.session else {
            return;
        };
        let id = session.granted.session;
        for (request, sent) in &mut session.sent {
            if sent.retry_at <= now {
                sent.retry_at = now + self.options.retry_interval;
                let message = ClientMessage::Request {
                    session: id,
                    request: *request,
                    operation: sent.operation.clone(),
                };
                out.push(Output::Send {
                    to: self.options.server,
                    message: message.encode(),
                });
            }
        }
    }
}

/// The replay with this number on the server.
fn find_player(
    players: &mut BTreeMap<ReplayHandle, Player>,
    replay: u64,
) -> Option<(ReplayHandle, &mut Player)> {
    let mut found = players.iter_mut();
    let (handle, player) = found.find(|(_, player)| player.replay == Some(replay))?;
    Some((*handle, player))
}

/// The interval of keepalive messages: a third of the session timeout.
fn keepalive_interval(granted: &Granted) -> Duration {
    Duration::from_millis(u64::from(granted.session_timeout_ms / 3).max(1))
}

/// Has the operation the same effect when it is executed twice?
fn is_idempotent(operation: &ArchiveOperation) -> bool {
    match operation {
        ArchiveOperation::Start { is_resumed, .. } => *is_resumed,
        ArchiveOperation::Stop { .. } | ArchiveOperation::Delete { .. } => false,
        _ => true,
    }
}

impl GrantedSession {
    /// Does the request window allow another request?
    fn has_window(&self) -> bool {
        let oldest = self.sent.keys().next();
        oldest.is_none_or(|oldest| self.next_request < oldest + REQUEST_WINDOW)
    }

    /// Adds a request, due now; returns its number, or `None` if the window is full.
    fn add_request(
        &mut self,
        now: Time,
        purpose: RequestPurpose,
        operation: ArchiveOperation,
        deadline: Option<Time>,
    ) -> Option<u64> {
        if !self.has_window() {
            return None;
        }
        let request = self.next_request;
        self.next_request += 1;
        self.sent.insert(
            request,
            SentRequest {
                purpose,
                operation,
                deadline,
                retry_at: now,
            },
        );
        Some(request)
    }
}

impl Peer for ArchiveClient {
    /// Requests wait for the next connection, or for their deadline.
    fn connection_closed(&mut self, _: &mut Vec<Output<ClientReply>>) {
        self.is_connected = false;
        self.is_welcome = false;
    }

    /// Resumes the session: a hello first; the messages without an answer are sent again when it is accepted.
    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<ClientReply>>) {
        self.is_connected = true;
        self.is_welcome = false;
        self.retry_now(now);
        self.send_due(now, out);
    }
}

impl Machine for ArchiveClient {
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
        self.send_due(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let waiting = self.waiting.front().map(|waiting| waiting.deadline);
        if !self.is_connected {
            return waiting;
        }
        let hello = self.hello.map(|(_, retry_at)| retry_at);
        let is_welcome = self.is_welcome;
        let session = self.session.as_ref().map(|session| {
            let again = |sent: &SentRequest| Some(sent.retry_at).filter(|_| is_welcome);
            let sent = session.sent.values();
            let sent = sent.flat_map(|sent| [again(sent), sent.deadline]);
            let sent = sent.flatten().min().unwrap_or(Time::MAX);
            let keepalive_at = Some(session.keepalive_at).filter(|_| is_welcome);
            sent.min(keepalive_at.unwrap_or(Time::MAX))
        });
        let recordings = self
            .recordings
            .values()
            .filter_map(ClaimedRecording::wake_at)
            .min();
        let players = self.players.values().filter_map(Player::wake_at).min();
        let work = recordings.into_iter().chain(players);
        let work = work.filter(|_| self.session.is_some() && is_welcome);
        let times = [waiting, hello, session].into_iter().flatten();
        times.chain(work).min()
    }

    fn check_invariants(&self) {
        assert!(self.waiting.len() <= self.options.waiting_max + REQUEST_WINDOW as usize);
        assert!(self.hello.is_none() || self.session.is_none() || !self.is_welcome);
        for recorder in self.recordings.values() {
            recorder.check_invariants();
        }
    }
}
