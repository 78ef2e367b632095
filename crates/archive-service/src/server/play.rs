//! Replays: credit of clients, and the results of reading jobs.

use super::{ArchiveService, JobTarget, Out};
use crate::archive_answer::{ArchiveAnswer, Refusal, RefusalCode};
use crate::archive_operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::message::{DATA_HEADER_LENGTH, ReplayState, ServerMessage};
use crate::server::job::{OpenJob, ReadJob, ReadResult};
use crate::server::live_recording::RequestId;
use crate::server::served_replay::{ReplayPhase, ServedReplay};
use crate::service_bug::ServiceBug;
use seatrial_archive::Pause;
use seatrial_archive::Position;
use seatrial_machine::{Output, Time};

impl ArchiveService {
    /// Begins a replay: checks the limits, grants a window, queues the opening of a cursor.
    pub(super) fn begin_replay(&mut self, key: RequestId, request: ReplayRequest, out: &mut Out) {
        let limits = self.options.limits.clone();
        let Some(session) = self.sessions.get_mut(&key.0) else {
            return;
        };
        let remaining =
            u64::from(limits.session_window_bytes_max).saturating_sub(session.window_bytes);
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let window = request.window_bytes.max(limits.replay_window_bytes_min);
        let window = window.min(limits.replay_window_bytes_max).min(remaining);
        // The first replay of a session does not count against the total: other sessions cannot exclude it.
        let exceeded = if self.replays.len() >= limits.replays_max && session.replays > 0 {
            Some("replays_max")
        } else if session.replays >= limits.replays_per_session_max {
            Some("replays_per_session_max")
        } else if window < limits.replay_window_bytes_min {
            Some("session_window_bytes_max")
        } else {
            None
        };
        if let Some(limit) = exceeded {
            self.refuse(key, Refusal::new(RefusalCode::Overloaded, limit), out);
            return;
        }
        session.replays += 1;
        session.window_bytes += u64::from(window);
        self.replays.insert(key, ServedReplay::new(request, window));
        self.reopen(key, request.from, out);
    }

    /// Opens the cursor (again) at `from`, as soon as a job is free.
    fn reopen(&mut self, key: RequestId, from: ReplayFrom, out: &mut Out) {
        if let Some(replay) = self.replays.get_mut(&key) {
            replay.phase = ReplayPhase::Closed;
            replay.cursor = None;
            replay.held = None;
            replay.from = from;
            self.pump_replay(key, out);
        }
    }

    /// Starts the job that opens the cursor.
    fn open_cursor(&mut self, key: RequestId, out: &mut Out) {
        let forgets_end = self.has_bug(ServiceBug::EndForgotten);
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let live = self.live_recordings.get(&replay.recording.0);
        // Bug: the end of an extended recording is not noted.
        if let Some(live) = live
            && !(forgets_end && live.is_extended)
        {
            replay.stop_at_end_of(live);
        }
        replay.phase = ReplayPhase::Opening;
        replay.is_live = live.is_some();
        replay.stalled_at = None;
        let job = OpenJob {
            location: self.location.clone(),
            recording: replay.recording,
            from: replay.from,
            progress: live.map(|live| live.progress.clone()),
        };
        self.reads.jobs += 1;
        self.start_job(JobTarget::Replay(key), Box::new(job), out);
    }

    /// Applies credit: the client has received bytes up to `limit` minus its window.
    pub(super) fn credit(&mut self, now: Time, key: RequestId, limit: u64, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            let (session, replay) = key;
            let message = ServerMessage::Replay {
                session,
                replay,
                state: ReplayState::Unknown,
                offset: 0,
                position: 0,
                refusal: None,
            };
            self.send(session, &message, out);
            return;
        };
        // At most one window is in flight, whatever limit the client sends.
        let most = replay.offset + u64::from(replay.window_bytes);
        let before = replay.in_flight();
        replay.limit = replay.limit.max(limit.min(most));
        let received = before - replay.in_flight();
        self.reads.in_flight -= received;
        let queued = replay.queue_number;
        if queued.is_some_and(|number| self.reads.unstarve(number)) {
            replay.queue_number = None;
        }
        if received > 0
            && let Some(session) = self.sessions.get_mut(&key.0)
        {
            session.active_at = now;
        }
        self.pump_replay(key, out);
    }

    /// Removes a replay and frees its queue number, bytes in flight and window.
    pub(super) fn close_replay(&mut self, key: RequestId) {
        let Some(replay) = self.replays.remove(&key) else {
            return;
        };
        if let Some(number) = replay.queue_number {
            self.reads.remove(number);
        }
        // Bug: bytes in flight to a session that has ended still count.
        if self.sessions.contains_key(&key.0) || !self.has_bug(ServiceBug::UntakenKept) {
            self.reads.in_flight -= replay.in_flight();
        }
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.replays = session.replays.saturating_sub(1);
            session.window_bytes -= u64::from(replay.window_bytes);
        }
    }

    /// Removes the replays of a session.
    pub(super) fn close_replays(&mut self, session: u64) {
        let open = self.replays.range((session, 0)..=(session, u64::MAX));
        let open: Vec<RequestId> = open.map(|(key, _)| *key).collect();
        for key in open {
            self.close_replay(key);
        }
    }

    /// Sends the state of a replay that has begun to its client.
    pub(super) fn report_replay(&self, key: RequestId, out: &mut Out) {
        if let Some(replay) = self.replays.get(&key)
            && replay.is_begun
        {
            self.report_state(key, replay, ReplayState::Open, None, out);
        }
    }

    fn report_state(
        &self,
        (session, number): RequestId,
        replay: &ServedReplay,
        state: ReplayState,
        refusal: Option<Refusal>,
        out: &mut Out,
    ) {
        let message = ServerMessage::Replay {
            session,
            replay: number,
            state,
            offset: replay.offset,
            position: replay.position.min(replay.until).0,
            refusal,
        };
        self.send(session, &message, out);
    }

    /// Reports the final state of a replay and removes it.
    fn end_replay(
        &mut self,
        key: RequestId,
        state: ReplayState,
        refusal: Option<Refusal>,
        out: &mut Out,
    ) {
        if let Some(replay) = self.replays.get(&key) {
            self.report_state(key, replay, state, refusal, out);
            self.close_replay(key);
        }
    }

    /// Continues the replays of a recording that has grown, was stopped, or is extended.
    pub(super) fn wake_replays(&mut self, recording: u64, out: &mut Out) {
        let replays = self.replays.iter();
        let matching = replays.filter(|(_, replay)| replay.recording.0 == recording);
        let matching: Vec<RequestId> = matching.map(|(key, _)| *key).collect();
        for key in matching {
            self.pump_replay(key, out);
        }
    }

    /// Starts the next job of a replay, if it has something to do. A cursor that waits holds no buffer.
    pub(super) fn pump_replay(&mut self, key: RequestId, out: &mut Out) {
        self.start_read(key, out);
        if let Some(replay) = self.replays.get_mut(&key)
            && let Some(cursor) = &mut replay.cursor
        {
            cursor.release_buffer();
        }
    }

    /// Decides what the replay does next from its phase, the visible end and its credit.
    fn start_read(&mut self, key: RequestId, out: &mut Out) {
        let has_gap_bug = self.has_bug(ServiceBug::GapAtLive);
        let has_credit_bug = self.has_bug(ServiceBug::CreditIgnored);
        let has_job = self.reads.jobs < self.options.limits.reads_max;
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        if replay.queue_number.is_some() {
            return; // queued already
        }
        let live = self.live_recordings.get(&replay.recording.0);
        if replay.phase == ReplayPhase::Dormant && live.is_some() {
            let from = ReplayFrom::Position(replay.position.0);
            self.reopen(key, from, out);
            return;
        }
        if replay.phase == ReplayPhase::Closed {
            if has_job {
                self.open_cursor(key, out);
            } else {
                replay.queue_number = Some(self.reads.enqueue(key));
            }
            return;
        }
        if replay.phase != ReplayPhase::Idle {
            return;
        }
        if replay.position >= replay.until {
            self.end_replay(key, ReplayState::Complete, None, out);
            return;
        }
        if replay.end.is_some_and(|end| replay.position >= end) {
            self.at_end(key, out);
            return;
        }
        let visible = match (replay.end, live) {
            (Some(end), _) => end,
            (None, Some(live)) => live.visible(replay.request.is_eager),
            (None, None) => Position(u64::MAX),
        };
        let is_blocked = replay.position >= visible || replay.stalled_at == Some(visible);
        replay.has_waited |= is_blocked;
        // Bug: the replay skips what was recorded since it reached the end.
        if has_gap_bug && !is_blocked && std::mem::take(&mut replay.has_waited) {
            self.reopen(key, ReplayFrom::Position(visible.0), out);
            return;
        }
        let has_credit = replay.limit > replay.offset || has_credit_bug;
        if !is_blocked && has_credit {
            let until = replay.until.min(visible);
            self.start_read_job(key, until, out);
        }
    }

    /// Starts a job that reads up to `until`, or queues the replay: for a job, or for room if its share is in flight.
    fn start_read_job(&mut self, key: RequestId, until: Position, out: &mut Out) {
        let limits = &self.options.limits;
        let has_room = self.has_replay_room() || self.has_bug(ServiceBug::CreditIgnored);
        let has_job = self.reads.jobs < limits.reads_max;
        let (data_bytes, share) = (limits.data_bytes, limits.data_bytes_min);
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        if !has_room && replay.in_flight() >= share as u64 {
            replay.queue_number = Some(self.reads.starve(key));
            return;
        }
        if !has_job {
            replay.queue_number = Some(self.reads.enqueue(key));
            return;
        }
        let Some(cursor) = replay.cursor.take() else {
            return;
        };
        let credit = replay.limit.saturating_sub(replay.offset);
        let data_bytes = if has_room { data_bytes } else { share };
        replay.phase = ReplayPhase::Reading;
        let job = ReadJob {
            cursor,
            held: replay.held.take(),
            session: key.0,
            replay: key.1,
            offset: replay.offset,
            bytes: data_bytes.min(usize::try_from(credit.max(1)).unwrap_or(usize::MAX)),
            until,
        };
        self.reads.jobs += 1;
        self.start_job(JobTarget::Replay(key), Box::new(job), out);
    }

    /// Applies the result of an [`OpenJob`] or [`ReadJob`].
    pub(super) fn after_read(&mut self, key: RequestId, read: ReadResult, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return; // closed meanwhile
        };
        if let Some(position) = read.position() {
            replay.position = position;
        }
        replay.held = read.held;
        if replay.phase == ReplayPhase::Opening {
            let is_live = self.live_recordings.contains_key(&replay.recording.0);
            if is_live && !replay.is_live && read.refusal.is_none() {
                // It was claimed meanwhile: the end that the cursor found may not be durable.
                let from = replay.from;
                self.reopen(key, from, out);
                return;
            }
            replay.end = read.end;
            if replay.request.bound == ReplayBound::End && !replay.is_begun {
                replay.until = replay.until.min(read.end.unwrap_or(replay.until));
            }
        }
        replay.cursor = read.cursor;
        replay.phase = ReplayPhase::Idle;
        let has_read = read.message.is_some();
        if let Some(message) = read.message {
            let length = (message.len() - DATA_HEADER_LENGTH) as u64;
            let before = replay.in_flight();
            replay.offset += length;
            self.reads.in_flight += replay.in_flight() - before;
            self.health.bytes_replayed += length;
            if let Some(session) = self.sessions.get(&key.0) {
                let to = session.endpoint;
                out.push(Output::Send { to, message });
            }
        }
        if let Some(refusal) = read.refusal {
            self.fail_replay(key, refusal, out);
            return;
        }
        if !replay.is_begun {
            replay.is_begun = true;
            let open_end = Position(u64::MAX);
            let begun = ArchiveAnswer::ReplayBegun {
                position: replay.position.0,
                end: Some(replay.until)
                    .filter(|until| *until < open_end)
                    .map(|it| it.0),
                window_bytes: replay.window_bytes,
            };
            self.answer(key, Ok(begun), true, out);
        }
        if let Some(pause) = read.pause {
            self.after_pause(key, pause, has_read, out);
        }
        self.pump_replay(key, out);
    }

    fn fail_replay(&mut self, key: RequestId, refusal: Refusal, out: &mut Out) {
        let is_begun = self.replays.get(&key).is_some_and(|replay| replay.is_begun);
        if is_begun {
            self.end_replay(key, ReplayState::Failed, Some(refusal), out);
        } else {
            self.close_replay(key);
            self.refuse(key, refusal, out);
        }
    }

    /// Handles a cursor without a further block: the live end, or the end of a stopped recording.
    fn after_pause(&mut self, key: RequestId, pause: Pause, has_read: bool, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let live = self.live_recordings.get(&replay.recording.0);
        match pause {
            Pause::Live if replay.is_live && live.is_some() => {
                let visible = live.map(|live| live.visible(replay.request.is_eager));
                replay.stalled_at = visible.filter(|_| !has_read);
            }
            // The recording is stopped, or was when the cursor was opened.
            _ => self.at_end(key, out),
        }
    }

    /// Ends a replay at the end of a stopped recording, or leaves it dormant until an extension.
    fn at_end(&mut self, key: RequestId, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        match replay.at_rest() {
            Some(state) => self.end_replay(key, state, None, out),
            None => replay.phase = ReplayPhase::Dormant,
        }
    }
}
