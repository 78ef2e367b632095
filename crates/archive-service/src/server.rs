//! The server's machine: sessions, recordings and replays of one archive.

mod job;
mod live_recording;
mod play;
mod reading_order;
mod record_claims;
mod send;
mod served_replay;
mod server_session;
mod write;

use crate::archive_answer::{ArchiveAnswer, Health, Refusal, RefusalCode};
use crate::archive_operation::ArchiveOperation;
use crate::message::{ClientMessage, Granted, ServerMessage, VERSION, wrong_version};
use crate::service_bug::ServiceBug;
use crate::service_limits::ServiceLimits;
use job::{ArchiveLocation, ControlJob, ControlOutcome, ControlResult, ReadResult};
use live_recording::{LiveRecording, RequestId};
use reading_order::Reads;
use record_claims::EarlyClaim;
use seatrial_archive::{Archive, ArchiveError, Recovered};
use seatrial_machine::{Computed, Input, Job, Machine, NodeId, Output, Rng, Storage, Ticket, Time};
use served_replay::ServedReplay;
use server_session::{RequestStatus, ServerSession};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use write::{PendingBatch, WriteResult};

/// The options of an [`ArchiveService`].
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Bounds of memory, sessions and jobs.
    pub limits: ServiceLimits,
    /// The seed of session numbers. It must differ at each start of a service.
    pub seed: u64,
    /// The start of the machine's time, in nanoseconds since 1970.
    pub epoch: u64,
    /// A planted bug.
    pub bug: Option<ServiceBug>,
}

impl ServiceOptions {
    /// Default bounds. `epoch` is the current time in nanoseconds since 1970; it is also the seed.
    pub fn new(epoch: u64) -> ServiceOptions {
        ServiceOptions {
            limits: ServiceLimits::default(),
            seed: epoch,
            epoch,
            bug: None,
        }
    }
}

/// A request of a local caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRequest {
    /// Writes what was received, stops all recordings, and accepts no further message.
    Close,
}

/// The reply to a [`ServiceRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceReply {
    /// All recordings are stopped.
    Closed,
}

/// What the result of a running job applies to: a catalog operation, a live recording, a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobTarget {
    Control(RequestId, ControlPurpose),
    Write(u64),
    Replay(RequestId),
}

/// How the result of a catalog operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlPurpose {
    /// The answer is kept for repetitions: the operation is executed once.
    Change,
    /// The answer is not kept: a repetition is executed again.
    Query,
    /// The result is the writer of a claimed recording.
    Claim,
    /// The answer is the end of the recording.
    End,
}

/// The machine that serves an archive to clients.
///
/// It owns the archive, the writers of all live recordings, and the cursors of all replays. All access to the disk is a job that
/// takes the object it needs and returns it: at most one job for the catalog, one per live recording, one per replay, and
/// `reads_max` for all replays. Batches that arrive while a job writes are written by the next job, with one sync. An
/// answer is sent when its job has returned.
///
/// No client can make it wait: data sent to a client is bounded by the client's credit, data received by windows. Every queue
/// has its bound in [`ServiceLimits`].
///
/// Cost: messages are copied once, by the job that builds their block. All turns run on one thread, so the turns of a client
/// with many small replays delay other clients.
#[derive(Debug)]
pub struct ArchiveService {
    options: ServiceOptions,
    location: ArchiveLocation,
    /// `None` while a job owns it.
    archive: Option<Box<Archive>>,
    /// Catalog operations that wait for the running one.
    controls: VecDeque<(RequestId, ControlPurpose, ArchiveOperation)>,
    /// Sessions by number.
    sessions: BTreeMap<u64, ServerSession>,
    /// Session numbers by the token of the client.
    tokens: BTreeMap<u64, u64>,
    session_numbers: Rng,
    /// Live recordings by number.
    live_recordings: BTreeMap<u64, LiveRecording>,
    early_claims: BTreeMap<u64, EarlyClaim>,
    replays: BTreeMap<RequestId, ServedReplay>,
    reads: Reads,
    /// Running jobs.
    jobs: BTreeMap<Ticket, JobTarget>,
    tickets: u64,
    /// The last claim number given.
    claims: u64,
    /// The time of the next check of sessions.
    expire_at: Option<Time>,
    /// The request to close, once it has arrived.
    closing: Option<Ticket>,
    health: Health,
}

impl ArchiveService {
    /// Opens the archive in `folder`, which must not be open elsewhere; also returns what was recovered. Blocks.
    pub fn open(
        storage: Arc<dyn Storage>,
        folder: &Path,
        options: ServiceOptions,
    ) -> Result<(ArchiveService, Recovered), ArchiveError> {
        let (archive, recovered) = Archive::open(storage.clone(), folder, options.epoch)?;
        let service = ArchiveService {
            session_numbers: Rng::from_seed(options.seed),
            options,
            location: ArchiveLocation {
                storage,
                folder: folder.to_owned(),
            },
            archive: Some(Box::new(archive)),
            controls: VecDeque::new(),
            sessions: BTreeMap::new(),
            tokens: BTreeMap::new(),
            live_recordings: BTreeMap::new(),
            early_claims: BTreeMap::new(),
            replays: BTreeMap::new(),
            reads: Reads::default(),
            jobs: BTreeMap::new(),
            tickets: 0,
            claims: 0,
            expire_at: None,
            closing: None,
            health: Health::default(),
        };
        Ok((service, recovered))
    }

    /// Nanoseconds since 1970.
    fn clock(&self, now: Time) -> u64 {
        self.options.epoch.saturating_add(now.nanoseconds())
    }

    fn has_bug(&self, bug: ServiceBug) -> bool {
        self.options.bug == Some(bug)
    }

    fn start_job(&mut self, target: JobTarget, job: Box<dyn Job>, out: &mut Out) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.jobs.insert(ticket, target);
        out.push(Output::Compute(job, ticket));
    }

    fn message(&mut self, now: Time, from: NodeId, bytes: Vec<u8>, out: &mut Out) {
        let decoded = match ClientMessage::decode(&bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.malformed(from, &bytes, &error.to_string(), out);
                return;
            }
        };
        let id = match decoded {
            ClientMessage::Hello {
                version,
                token,
                session,
            } => {
                self.hello(now, from, version, (token, session), out);
                return;
            }
            ClientMessage::Request { session, .. }
            | ClientMessage::Record { session, .. }
            | ClientMessage::Credit { session, .. }
            | ClientMessage::Close { session, .. }
            | ClientMessage::Alive { session }
            | ClientMessage::Goodbye { session } => session,
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            let message = ServerMessage::Gone { session: id }.encode();
            out.push(Output::Send { to: from, message });
            return;
        };
        session.heard_at = now;
        let is_work = matches!(
            decoded,
            ClientMessage::Request { .. } | ClientMessage::Record { .. }
        );
        if is_work {
            session.active_at = now;
        }
        match decoded {
            ClientMessage::Request {
                request, operation, ..
            } => self.request(now, (id, request), operation, out),
            ClientMessage::Record {
                claim,
                first_message,
                messages,
                checksum,
                form,
                ..
            } => {
                let pending = PendingBatch {
                    first_message,
                    messages,
                    checksum,
                    form,
                    bytes,
                };
                self.record(now, id, claim, pending, out);
            }
            ClientMessage::Credit { replay, limit, .. } => {
                self.credit(now, (id, replay), limit, out);
            }
            ClientMessage::Close { replay, .. } => self.close_replay((id, replay)),
            ClientMessage::Alive { .. } => self.alive(id, out),
            ClientMessage::Goodbye { .. } => self.end_session(now, id, out),
            ClientMessage::Hello { .. } => {}
        }
    }

    /// Refuses bytes that are not a message, if their header is that of a request of a known session.
    fn malformed(&mut self, from: NodeId, bytes: &[u8], error: &str, out: &mut Out) {
        let Some((session, request)) = ClientMessage::request_header(bytes) else {
            return;
        };
        if self.sessions.contains_key(&session) {
            let message = ServerMessage::Reply {
                session,
                request,
                result: Err(Refusal::new(RefusalCode::Malformed, error)),
            };
            let message = message.encode();
            out.push(Output::Send { to: from, message });
        }
    }

    fn hello(
        &mut self,
        now: Time,
        from: NodeId,
        version: u8,
        (token, session): (u64, u64),
        out: &mut Out,
    ) {
        if version == VERSION && session != 0 && self.tokens.get(&token) != Some(&session) {
            let message = ServerMessage::Gone { session }.encode();
            out.push(Output::Send { to: from, message });
            return;
        }
        let granted = self.welcome(now, from, version, token, out);
        let message = ServerMessage::Welcome { token, granted }.encode();
        out.push(Output::Send { to: from, message });
    }

    fn welcome(
        &mut self,
        now: Time,
        from: NodeId,
        version: u8,
        token: u64,
        out: &mut Out,
    ) -> Result<Granted, Refusal> {
        if version != VERSION {
            return Err(wrong_version(version));
        }
        if self.closing.is_some() {
            return Err(Refusal::new(
                RefusalCode::Overloaded,
                "the server is shutting down",
            ));
        }
        let id = match self.tokens.get(&token) {
            Some(id) => *id,
            None => self.new_session(now, from, token, out)?,
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.heard_at = now;
            let before = std::mem::replace(&mut session.endpoint, from);
            self.close_endpoint(before, out);
        }
        out.push(Output::Admit(from));
        let limits = &self.options.limits;
        let timeout = limits.session_timeout.as_millis();
        Ok(Granted {
            session: id,
            record_window_bytes: limits.record_window_bytes,
            batch_bytes_max: limits.batch_bytes_max,
            replay_window_bytes_max: limits.replay_window_bytes_max,
            session_timeout_ms: u32::try_from(timeout).unwrap_or(u32::MAX),
        })
    }

    fn new_session(
        &mut self,
        now: Time,
        from: NodeId,
        token: u64,
        out: &mut Out,
    ) -> Result<u64, Refusal> {
        if self.sessions.len() >= self.options.limits.sessions_max {
            let idle = self.sessions.iter().filter(|(_, it)| it.is_idle());
            let longest_silent = idle.min_by_key(|(_, it)| it.heard_at);
            let longest_silent =
                longest_silent.filter(|(_, it)| now.since(it.heard_at) >= Duration::from_secs(1));
            let evicted = longest_silent
                .map(|(id, _)| *id)
                .or_else(|| self.stalled(now));
            let Some(evicted) = evicted else {
                return Err(Refusal::new(RefusalCode::Overloaded, "sessions_max"));
            };
            self.end_session(now, evicted, out);
        }
        let mut id = self.session_numbers.word();
        while id == 0 || self.sessions.contains_key(&id) {
            id = self.session_numbers.word();
        }
        self.sessions
            .insert(id, ServerSession::new(token, from, now));
        self.tokens.insert(token, id);
        Ok(id)
    }

    /// The session without claims whose replays have had no credit for longest, if for at least `stall_min`.
    fn stalled(&self, now: Time) -> Option<u64> {
        let is_stalled = |id: u64, session: &ServerSession| {
            let mut replays = self.replays.range((id, 0)..=(id, u64::MAX));
            let is_late = now.since(session.active_at) >= self.options.limits.stall_min;
            is_late && session.claims == 0 && replays.all(|(_, it)| it.in_flight() > 0)
        };
        let stalled = self.sessions.iter().filter(|(id, it)| is_stalled(**id, it));
        let longest = stalled.min_by_key(|(_, it)| it.active_at);
        longest.map(|(id, _)| *id)
    }

    /// Closes the connection to an endpoint that no session uses.
    fn close_endpoint(&self, endpoint: NodeId, out: &mut Out) {
        let mut sessions = self.sessions.values();
        if !sessions.any(|session| session.endpoint == endpoint) {
            out.push(Output::Close(endpoint));
        }
    }

    /// Ends a session: removes its replays and stops its recordings.
    fn end_session(&mut self, now: Time, id: u64, out: &mut Out) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        self.tokens.remove(&session.token);
        self.close_replays(id);
        let mut unclaimed = Vec::new();
        for (recording, live) in &mut self.live_recordings {
            if live.session == Some(id) {
                live.session = None;
                live.is_stopping = true;
                unclaimed.push(*recording);
            }
        }
        for recording in unclaimed {
            self.pump_recording(now, recording, out);
        }
        self.close_endpoint(session.endpoint, out);
    }

    fn alive(&mut self, id: u64, out: &mut Out) {
        self.send(id, &ServerMessage::Alive { session: id }, out);
        let open = self.replays.range((id, 0)..=(id, u64::MAX));
        let states: Vec<RequestId> = open.map(|(key, _)| *key).collect();
        for key in states {
            self.report_replay(key, out);
        }
    }

    fn request(&mut self, now: Time, key: RequestId, operation: ArchiveOperation, out: &mut Out) {
        if self.closing.is_some() {
            return; // the client repeats it and learns of the end of the session
        }
        let (id, request) = key;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match session.register(request) {
            RequestStatus::New => {}
            RequestStatus::Dropped => return,
            RequestStatus::Answered(message) => {
                let to = session.endpoint;
                out.push(Output::Send { to, message });
                return;
            }
        }
        match operation {
            ArchiveOperation::Health => {
                let answer = ArchiveAnswer::Health(self.health(now));
                self.answer(key, Ok(answer), false, out);
            }
            ArchiveOperation::Replay(replay) => self.begin_replay(key, replay, out),
            ArchiveOperation::Stop { recording } => self.stop(now, key, recording, out),
            ArchiveOperation::Flush { recording } => self.flush(now, key, recording, out),
            ArchiveOperation::Start { .. } | ArchiveOperation::Copy(_) => {
                self.claim(now, key, operation, out);
            }
            ArchiveOperation::Extend { recording } => {
                if !self.claim_again(key, recording, out) {
                    self.claim(now, key, operation, out);
                }
            }
            ArchiveOperation::List { .. }
            | ArchiveOperation::Describe { .. }
            | ArchiveOperation::Segments { .. } => {
                self.control(now, key, ControlPurpose::Query, operation, out);
            }
            _ => self.control(now, key, ControlPurpose::Change, operation, out),
        }
    }

    /// The counters, with the current numbers of sessions, replays and recordings.
    fn health(&self, now: Time) -> Health {
        Health {
            uptime_ns: now.nanoseconds(),
            sessions: self.sessions.len() as u64,
            replays: self.replays.len() as u64,
            recordings: self.live_recordings.len() as u64,
            replay_bytes: self.reads.in_flight,
            record_bytes: self.record_bytes() as u64,
            ..self.health
        }
    }

    /// Queues a catalog operation.
    fn control(
        &mut self,
        now: Time,
        key: RequestId,
        purpose: ControlPurpose,
        operation: ArchiveOperation,
        out: &mut Out,
    ) {
        if self.controls.len() >= self.options.limits.controls_max {
            self.refuse(
                key,
                Refusal::new(RefusalCode::Overloaded, "controls_max"),
                out,
            );
            return;
        }
        self.controls.push_back((key, purpose, operation));
        self.pump_controls(now, out);
    }

    /// Starts the next catalog operation, unless one is running.
    fn pump_controls(&mut self, now: Time, out: &mut Out) {
        if self.archive.is_none() {
            return;
        }
        let Some((key, purpose, operation)) = self.controls.pop_front() else {
            return;
        };
        let Some(archive) = self.archive.take() else {
            return;
        };
        let job = ControlJob {
            archive,
            operation,
            list_count_max: self.options.limits.list_count_max,
            bug: self.options.bug,
            now: self.clock(now),
        };
        self.start_job(JobTarget::Control(key, purpose), Box::new(job), out);
    }

    /// Applies the result of a catalog operation.
    fn after_control(
        &mut self,
        now: Time,
        key: RequestId,
        purpose: ControlPurpose,
        controlled: ControlResult,
        out: &mut Out,
    ) {
        self.archive = Some(controlled.archive);
        match controlled.result {
            Ok(ControlOutcome::Writer(writer, durability, is_extended)) => {
                self.claimed(now, key, writer, durability, is_extended, out);
            }
            Ok(ControlOutcome::Answer(ArchiveAnswer::Description(found)))
                if purpose == ControlPurpose::End =>
            {
                let end = ArchiveAnswer::Position(found.end.position.0);
                self.answer(key, Ok(end), false, out);
            }
            Ok(ControlOutcome::Answer(answer)) => {
                self.answer(key, Ok(answer), purpose == ControlPurpose::Change, out);
            }
            Err(refusal) => self.refuse(key, refusal, out),
        }
        self.pump_controls(now, out);
    }

    fn computed(&mut self, now: Time, ticket: Ticket, result: Computed, out: &mut Out) {
        match self.jobs.remove(&ticket) {
            Some(JobTarget::Control(key, purpose)) => {
                if let Ok(controlled) = result.downcast::<ControlResult>() {
                    self.after_control(now, key, purpose, *controlled, out);
                }
            }
            Some(JobTarget::Write(recording)) => {
                if let Ok(written) = result.downcast::<WriteResult>() {
                    self.after_write(now, recording, *written, out);
                }
            }
            Some(JobTarget::Replay(key)) => {
                self.reads.jobs -= 1;
                if let Ok(read) = result.downcast::<ReadResult>() {
                    self.after_read(key, *read, out);
                }
            }
            None => {}
        }
        self.end_when_closed(out);
    }

    fn close(&mut self, now: Time, ticket: Ticket, out: &mut Out) {
        self.closing = Some(ticket);
        self.controls.clear();
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.close_replays(session);
        }
        let recordings: Vec<u64> = self.live_recordings.keys().copied().collect();
        for recording in recordings {
            if let Some(live) = self.live_recordings.get_mut(&recording) {
                live.is_stopping = true;
            }
            self.pump_recording(now, recording, out);
        }
        self.end_when_closed(out);
    }

    fn end_when_closed(&mut self, out: &mut Out) {
        if self.live_recordings.is_empty()
            && self.jobs.is_empty()
            && let Some(ticket) = self.closing
        {
            out.push(Output::Reply(ticket, ServiceReply::Closed));
        }
    }

    /// Ends sessions whose time is up and starts syncs that are due.
    fn tick(&mut self, now: Time, out: &mut Out) {
        let timeout = self.options.limits.session_timeout;
        if self.expire_at.is_none_or(|at| at <= now) {
            let sessions = self.sessions.iter();
            let late = sessions.filter(|(_, it)| now.since(it.heard_at) >= timeout);
            let late: Vec<u64> = late.map(|(id, _)| *id).collect();
            for id in late {
                self.end_session(now, id, out);
            }
            self.expire_at = (!self.sessions.is_empty()).then(|| now + timeout / 8);
        }
        let clock = self.clock(now);
        let is_due = |live: &LiveRecording| live.sync_at().is_some_and(|at| at <= clock);
        let due = self.live_recordings.iter().filter(|(_, live)| is_due(live));
        let due: Vec<u64> = due.map(|(recording, _)| *recording).collect();
        for recording in due {
            self.pump_recording(now, recording, out);
        }
    }
}

/// The outputs of a turn.
type Out = Vec<Output<ServiceReply>>;

impl Machine for ArchiveService {
    type Request = ServiceRequest;
    type Reply = ServiceReply;

    fn turn(&mut self, now: Time, input: Input<ServiceRequest>, out: &mut Out) {
        match input {
            Input::Message { from, bytes } => self.message(now, from, bytes, out),
            Input::Computed(ticket, result) => self.computed(now, ticket, result, out),
            Input::Request(ticket, ServiceRequest::Close) => self.close(now, ticket, out),
            Input::Wake | Input::Appended(_) | Input::FileDone(..) => {}
        }
        self.tick(now, out);
        self.pump_reads(out);
    }

    fn wake_at(&self) -> Option<Time> {
        let syncs = self
            .live_recordings
            .values()
            .filter_map(LiveRecording::sync_at)
            .min();
        let sync = syncs.map(|at| Time::from_nanoseconds(at.saturating_sub(self.options.epoch)));
        [sync, self.expire_at].into_iter().flatten().min()
    }

    fn check_invariants(&self) {
        let limits = &self.options.limits;
        assert!(self.sessions.len() <= limits.sessions_max);
        assert_eq!(self.sessions.len(), self.tokens.len());
        assert!(self.controls.len() <= limits.controls_max);
        assert!(self.replays.len() <= limits.replays_max + limits.sessions_max);
        assert!(self.reads.jobs <= limits.reads_max);
        if cfg!(debug_assertions) {
            self.sessions
                .values()
                .for_each(ServerSession::check_invariants);
            self.live_recordings
                .values()
                .for_each(LiveRecording::check_invariants);
            self.replays
                .values()
                .for_each(ServedReplay::check_invariants);
            let in_flight: u64 = self.replays.values().map(ServedReplay::in_flight).sum();
            let leaks = self.has_bug(ServiceBug::UntakenKept);
            assert!(in_flight == self.reads.in_flight || leaks);
        }
    }
}
