//! The server's machine: sessions, recordings and replays of one archive.

mod job;
mod play;
mod reads;
mod record;
mod replay;
mod send;
mod session;
mod track;
mod write;

use crate::answer::{Answer, Health, Refusal, RefusalCode};
use crate::bug::ServiceBug;
use crate::limits::ServiceLimits;
use crate::message::{ClientMessage, Granted, ServerMessage, VERSION, wrong_version};
use crate::operation::Operation;
use job::{ControlJob, Controlled, Done, Place, Read};
use reads::Reads;
use record::EarlyClaim;
use replay::Replay;
use seatrial_archive::{Archive, ArchiveError, Recovered};
use seatrial_machine::{Computed, Input, Job, Machine, NodeId, Output, Rng, Storage, Ticket, Time};
use session::{Seen, Session};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use track::{Asker, Track};
use write::{Lane, Pending, Written};

/// What a service needs to know.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Its bounds.
    pub limits: ServiceLimits,
    /// Where the numbers of sessions come from. No two lives of a service may have the same seed.
    pub seed: u64,
    /// Nanoseconds since 1970 at the beginning of the machine's time.
    pub epoch: u64,
    /// A planted bug.
    pub bug: Option<ServiceBug>,
}

impl ServiceOptions {
    /// The usual bounds. `epoch` is the time now, in nanoseconds since 1970, and makes the seed.
    pub fn new(epoch: u64) -> ServiceOptions {
        ServiceOptions {
            limits: ServiceLimits::default(),
            seed: epoch,
            epoch,
            bug: None,
        }
    }
}

/// What a local caller may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceRequest {
    /// Writes what has come, stops all recordings, and takes nothing more.
    Close,
}

/// What it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceReply {
    /// All recordings are stopped.
    Closed,
}

/// What a job under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Control(Asker, Purpose),
    Write(u64),
    Replay(Asker),
}

/// What is made of the result of an operation on the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The answer is kept for when the request comes again.
    Change,
    /// It is carried out again then.
    Question,
    /// A recording is claimed; it was there before or not.
    Claim,
    /// What was asked for is where the recording ends.
    End,
}

/// The archive as a machine that serves clients. It owns the archive, the writers of all recordings that are being recorded, and
/// the cursors of all replays; whatever touches the disk is a job that takes the one it needs along and brings it back:
/// one job at a time for the catalog, one for each recording, one for each replay. What arrives meanwhile for the same
/// gathers, and is written with one call and one sync by the next job. Answers are sent when the job that did it is back.
///
/// Nothing waits for a client: what it is sent is bounded by the credit that it gave, what it sends by windows. Every
/// queue has its bound in [`ServiceLimits`].
///
/// Its downside: one thread makes all turns, so messages are copied once into a block by a job, and a client that asks for
/// many small replays costs turns that others wait for.
#[derive(Debug)]
pub struct ArchiveService {
    options: ServiceOptions,
    place: Place,
    /// `None` while a job has it.
    archive: Option<Box<Archive>>,
    controls: VecDeque<(Asker, Purpose, Operation)>,
    sessions: BTreeMap<u64, Session>,
    tokens: BTreeMap<u64, u64>,
    session_numbers: Rng,
    tracks: BTreeMap<u64, Track>,
    early_claims: BTreeMap<u64, EarlyClaim>,
    replays: BTreeMap<Asker, Replay>,
    reads: Reads,
    tasks: BTreeMap<Ticket, Task>,
    tickets: u64,
    claims: u64,
    /// The time of the next check of sessions.
    expire_at: Option<Time>,
    closing: Option<Ticket>,
    health: Health,
}

impl ArchiveService {
    /// Opens the archive in `folder`, which has to be free, and says what was recovered. Blocks.
    pub fn open(
        storage: Arc<dyn Storage>,
        folder: &Path,
        options: ServiceOptions,
    ) -> Result<(ArchiveService, Recovered), ArchiveError> {
        let (archive, recovered) = Archive::open(storage.clone(), folder, options.epoch)?;
        let service = ArchiveService {
            session_numbers: Rng::from_seed(options.seed),
            options,
            place: Place {
                storage,
                folder: folder.to_owned(),
            },
            archive: Some(Box::new(archive)),
            controls: VecDeque::new(),
            sessions: BTreeMap::new(),
            tokens: BTreeMap::new(),
            tracks: BTreeMap::new(),
            early_claims: BTreeMap::new(),
            replays: BTreeMap::new(),
            reads: Reads::default(),
            tasks: BTreeMap::new(),
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

    fn start_job(&mut self, task: Task, job: Box<dyn Job>, out: &mut Out) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.tasks.insert(ticket, task);
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
        session.heard = now;
        let is_work = matches!(
            decoded,
            ClientMessage::Request { .. } | ClientMessage::Record { .. }
        );
        if is_work {
            session.moved = now;
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
                let pending = Pending {
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

    /// Bytes that are not a message. If they begin like a request they are answered.
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
                "the server is ending",
            ));
        }
        let id = match self.tokens.get(&token) {
            Some(id) => *id,
            None => self.new_session(now, from, token, out)?,
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.heard = now;
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
            let silent = idle.min_by_key(|(_, it)| it.heard);
            let silent = silent.filter(|(_, it)| now.since(it.heard) >= Duration::from_secs(1));
            let silent = silent.map(|(id, _)| *id).or_else(|| self.stalled(now));
            let Some(silent) = silent else {
                return Err(Refusal::new(RefusalCode::Overloaded, "sessions_max"));
            };
            self.end_session(now, silent, out);
        }
        let mut id = self.session_numbers.word();
        while id == 0 || self.sessions.contains_key(&id) {
            id = self.session_numbers.word();
        }
        self.sessions.insert(id, Session::new(token, from, now));
        self.tokens.insert(token, id);
        Ok(id)
    }

    /// The session that has taken nothing of its replays for longest, if it records nothing and that is long enough.
    fn stalled(&self, now: Time) -> Option<u64> {
        let is_stalled = |id: u64, session: &Session| {
            let mut replays = self.replays.range((id, 0)..=(id, u64::MAX));
            let is_late = now.since(session.moved) >= self.options.limits.stall_min;
            is_late && session.claims == 0 && replays.all(|(_, it)| it.under_way() > 0)
        };
        let stalled = self.sessions.iter().filter(|(id, it)| is_stalled(**id, it));
        let longest = stalled.min_by_key(|(_, it)| it.moved);
        longest.map(|(id, _)| *id)
    }

    /// Ends the connection to an endpoint that no session has any more.
    fn close_endpoint(&self, endpoint: NodeId, out: &mut Out) {
        let mut sessions = self.sessions.values();
        if !sessions.any(|session| session.endpoint == endpoint) {
            out.push(Output::Close(endpoint));
        }
    }

    /// Frees all that a session holds.
    fn end_session(&mut self, now: Time, id: u64, out: &mut Out) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        self.tokens.remove(&session.token);
        self.close_replays(id);
        let mut orphaned = Vec::new();
        for (recording, track) in &mut self.tracks {
            if track.session == Some(id) {
                track.session = None;
                track.is_stopping = true;
                orphaned.push(*recording);
            }
        }
        for recording in orphaned {
            self.pump_track(now, recording, out);
        }
        self.close_endpoint(session.endpoint, out);
    }

    fn alive(&mut self, id: u64, out: &mut Out) {
        self.send(id, &ServerMessage::Alive { session: id }, out);
        let open = self.replays.range((id, 0)..=(id, u64::MAX));
        let states: Vec<Asker> = open.map(|(key, _)| *key).collect();
        for key in states {
            self.tell_replay(key, out);
        }
    }

    fn request(&mut self, now: Time, asker: Asker, operation: Operation, out: &mut Out) {
        if self.closing.is_some() {
            return; // the next turn asks again
        }
        let (id, request) = asker;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match session.see(request) {
            Seen::New => {}
            Seen::Dropped => return,
            Seen::Answered(message) => {
                let to = session.endpoint;
                out.push(Output::Send { to, message });
                return;
            }
        }
        match operation {
            Operation::Health => {
                let answer = Answer::Health(self.health(now));
                self.answer(asker, Ok(answer), false, out);
            }
            Operation::Replay(replay) => self.begin_replay(asker, replay, out),
            Operation::Stop { recording } => self.stop(now, asker, recording, out),
            Operation::Flush { recording } => self.flush(now, asker, recording, out),
            Operation::Start { .. } | Operation::Copy(_) => self.claim(now, asker, operation, out),
            Operation::Extend { recording } => {
                if !self.claim_again(asker, recording, out) {
                    self.claim(now, asker, operation, out);
                }
            }
            Operation::List { .. } | Operation::Describe { .. } | Operation::Segments { .. } => {
                self.control(now, asker, Purpose::Question, operation, out);
            }
            _ => self.control(now, asker, Purpose::Change, operation, out),
        }
    }

    /// The machine's own counts.
    fn health(&self, now: Time) -> Health {
        Health {
            uptime_ns: now.nanoseconds(),
            sessions: self.sessions.len() as u64,
            replays: self.replays.len() as u64,
            recordings: self.tracks.len() as u64,
            replay_bytes: self.reads.under_way,
            record_bytes: self.record_bytes() as u64,
            ..self.health
        }
    }

    /// Puts an operation on the catalog in line.
    fn control(
        &mut self,
        now: Time,
        asker: Asker,
        purpose: Purpose,
        operation: Operation,
        out: &mut Out,
    ) {
        if self.controls.len() >= self.options.limits.controls_max {
            self.refuse(
                asker,
                Refusal::new(RefusalCode::Overloaded, "controls_max"),
                out,
            );
            return;
        }
        self.controls.push_back((asker, purpose, operation));
        self.pump_controls(now, out);
    }

    fn pump_controls(&mut self, now: Time, out: &mut Out) {
        if self.archive.is_none() {
            return;
        }
        let Some((asker, purpose, operation)) = self.controls.pop_front() else {
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
        self.start_job(Task::Control(asker, purpose), Box::new(job), out);
    }

    fn controlled(
        &mut self,
        now: Time,
        asker: Asker,
        purpose: Purpose,
        controlled: Controlled,
        out: &mut Out,
    ) {
        self.archive = Some(controlled.archive);
        match controlled.result {
            Ok(Done::Writer(writer, policy, is_extended)) => {
                let lane = Box::new(Lane { writer: *writer });
                self.claimed(now, asker, lane, policy, is_extended, out);
            }
            Ok(Done::Answer(Answer::Description(found))) if purpose == Purpose::End => {
                let end = Answer::Position(found.end.position.0);
                self.answer(asker, Ok(end), false, out);
            }
            Ok(Done::Answer(answer)) => {
                self.answer(asker, Ok(answer), purpose == Purpose::Change, out);
            }
            Err(refusal) => self.refuse(asker, refusal, out),
        }
        self.pump_controls(now, out);
    }

    fn computed(&mut self, now: Time, ticket: Ticket, result: Computed, out: &mut Out) {
        match self.tasks.remove(&ticket) {
            Some(Task::Control(asker, purpose)) => {
                if let Ok(controlled) = result.downcast::<Controlled>() {
                    self.controlled(now, asker, purpose, *controlled, out);
                }
            }
            Some(Task::Write(recording)) => {
                if let Ok(written) = result.downcast::<Written>() {
                    self.written(now, recording, *written, out);
                }
            }
            Some(Task::Replay(key)) => {
                self.reads.jobs -= 1;
                if let Ok(read) = result.downcast::<Read>() {
                    self.read(key, *read, out);
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
        let recordings: Vec<u64> = self.tracks.keys().copied().collect();
        for recording in recordings {
            if let Some(track) = self.tracks.get_mut(&recording) {
                track.is_stopping = true;
            }
            self.pump_track(now, recording, out);
        }
        self.end_when_closed(out);
    }

    fn end_when_closed(&mut self, out: &mut Out) {
        if self.tracks.is_empty()
            && self.tasks.is_empty()
            && let Some(ticket) = self.closing
        {
            out.push(Output::Reply(ticket, ServiceReply::Closed));
        }
    }

    /// What time alone brings about.
    fn tick(&mut self, now: Time, out: &mut Out) {
        let timeout = self.options.limits.session_timeout;
        if self.expire_at.is_none_or(|at| at <= now) {
            let sessions = self.sessions.iter();
            let late = sessions.filter(|(_, it)| now.since(it.heard) >= timeout);
            let late: Vec<u64> = late.map(|(id, _)| *id).collect();
            for id in late {
                self.end_session(now, id, out);
            }
            self.expire_at = (!self.sessions.is_empty()).then(|| now + timeout / 8);
        }
        let clock = self.clock(now);
        let is_due = |track: &Track| track.sync_at().is_some_and(|at| at <= clock);
        let due = self.tracks.iter().filter(|(_, track)| is_due(track));
        let due: Vec<u64> = due.map(|(recording, _)| *recording).collect();
        for recording in due {
            self.pump_track(now, recording, out);
        }
    }
}

/// Where outputs go.
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
        let syncs = self.tracks.values().filter_map(Track::sync_at).min();
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
            self.sessions.values().for_each(Session::check_invariants);
            self.tracks.values().for_each(Track::check_invariants);
            self.replays.values().for_each(Replay::check_invariants);
            let under_way: u64 = self.replays.values().map(Replay::under_way).sum();
            let is_kept = self.has_bug(ServiceBug::UntakenKept);
            assert!(under_way == self.reads.under_way || is_kept);
        }
    }
}
