//! Replays: credit of clients, and the results of reading jobs.

use super::{ArchiveService, Out, Task};
use crate::answer::{Answer, Refusal, RefusalCode};
use crate::bug::ServiceBug;
use crate::message::{DATA_HEADER_LENGTH, ReplayState, ServerMessage};
use crate::operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::server::job::{OpenJob, Read, ReadJob};
use crate::server::replay::{Replay, Stage};
use crate::server::track::Asker;
use seatrial_archive::Pause;
use seatrial_archive::Position;
use seatrial_machine::{Output, Time};

impl ArchiveService {
    /// Grants a window and opens a cursor.
    pub(super) fn begin_replay(&mut self, key: Asker, request: ReplayRequest, out: &mut Out) {
        let limits = self.options.limits.clone();
        let Some(session) = self.sessions.get_mut(&key.0) else {
            return;
        };
        let left = u64::from(limits.session_window_bytes_max).saturating_sub(session.window_bytes);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let window = request.window_bytes.max(limits.replay_window_bytes_min);
        let window = window.min(limits.replay_window_bytes_max).min(left);
        // The first one of each session is always granted: others cannot keep it out.
        let reached = if self.replays.len() >= limits.replays_max && session.replays > 0 {
            Some("replays_max")
        } else if session.replays >= limits.replays_per_session_max {
            Some("replays_per_session_max")
        } else if window < limits.replay_window_bytes_min {
            Some("session_window_bytes_max")
        } else {
            None
        };
        if let Some(limit) = reached {
            self.refuse(key, Refusal::new(RefusalCode::Overloaded, limit), out);
            return;
        }
        session.replays += 1;
        session.window_bytes += u64::from(window);
        let mut replay = Replay::new(request, window);
        let mut from = request.from;
        if let Some(track) = self.tracks.get(&request.recording) {
            let visible = track.visible(request.is_eager);
            if request.bound == ReplayBound::End {
                replay.until = visible;
            }
            if from == ReplayFrom::End {
                from = ReplayFrom::Position(visible.0);
            }
        }
        self.replays.insert(key, replay);
        self.reopen(key, from, out);
    }

    /// Opens a cursor when it is this replay's turn.
    fn reopen(&mut self, key: Asker, from: ReplayFrom, out: &mut Out) {
        if let Some(replay) = self.replays.get_mut(&key) {
            replay.stage = Stage::Closed;
            replay.cursor = None;
            replay.held = None;
            replay.from = from;
            self.pump_replay(key, out);
        }
    }

    /// Lets a job open a cursor.
    fn open_cursor(&mut self, key: Asker, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let track = self.tracks.get(&replay.recording.0);
        let from = replay.from;
        replay.stage = Stage::Opening;
        replay.is_live = track.is_some();
        replay.stalled_at = None;
        let job = OpenJob {
            place: self.place.clone(),
            recording: replay.recording,
            from,
            progress: track.map(|track| track.progress.clone()),
        };
        self.reads.jobs += 1;
        self.start_job(Task::Replay(key), Box::new(job), out);
    }

    /// The client allows more.
    pub(super) fn credit(&mut self, now: Time, key: Asker, limit: u64, out: &mut Out) {
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
        // More than a window at a time is never allowed, whatever the client says.
        let most = replay.offset + u64::from(replay.window_bytes);
        let before = replay.under_way();
        replay.limit = replay.limit.max(limit.min(most));
        let taken = before - replay.under_way();
        self.reads.under_way -= taken;
        if replay.place.is_some_and(|place| self.reads.feed(place)) {
            replay.place = None;
        }
        if taken > 0
            && let Some(session) = self.sessions.get_mut(&key.0)
        {
            session.moved = now;
        }
        self.pump_replay(key, out);
    }

    /// Forgets a replay and all that it holds.
    pub(super) fn close_replay(&mut self, key: Asker) {
        let Some(replay) = self.replays.remove(&key) else {
            return;
        };
        if let Some(place) = replay.place {
            self.reads.leave(place);
        }
        // Bug: what a session leaves untaken counts for ever.
        if self.sessions.contains_key(&key.0) || !self.has_bug(ServiceBug::UntakenKept) {
            self.reads.under_way -= replay.under_way();
        }
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.replays = session.replays.saturating_sub(1);
            session.window_bytes -= u64::from(replay.window_bytes);
        }
    }

    /// Forgets the replays of a session.
    pub(super) fn close_replays(&mut self, session: u64) {
        let open = self.replays.range((session, 0)..=(session, u64::MAX));
        let open: Vec<Asker> = open.map(|(key, _)| *key).collect();
        for key in open {
            self.close_replay(key);
        }
    }

    pub(super) fn tell_replay(&self, key: Asker, out: &mut Out) {
        if let Some(replay) = self.replays.get(&key)
            && replay.is_begun
        {
            self.tell_state(key, replay, ReplayState::Open, None, out);
        }
    }

    fn tell_state(
        &self,
        (session, number): Asker,
        replay: &Replay,
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

    fn end_replay(
        &mut self,
        key: Asker,
        state: ReplayState,
        refusal: Option<Refusal>,
        out: &mut Out,
    ) {
        if let Some(replay) = self.replays.get(&key) {
            self.tell_state(key, replay, state, refusal, out);
            self.close_replay(key);
        }
    }

    /// A recording has grown, was stopped, or is extended.
    pub(super) fn wake_replays(&mut self, recording: u64, out: &mut Out) {
        let replays = self.replays.iter();
        let woken = replays.filter(|(_, replay)| replay.recording.0 == recording);
        let woken: Vec<Asker> = woken.map(|(key, _)| *key).collect();
        for key in woken {
            self.pump_replay(key, out);
        }
    }

    /// Lets a job open or read what may be sent. A cursor that waits holds no buffer.
    pub(super) fn pump_replay(&mut self, key: Asker, out: &mut Out) {
        self.start_read(key, out);
        if let Some(replay) = self.replays.get_mut(&key)
            && let Some(cursor) = &mut replay.cursor
        {
            cursor.release_buffer();
        }
    }

    fn start_read(&mut self, key: Asker, out: &mut Out) {
        let has_gap_bug = self.has_bug(ServiceBug::GapAtLive);
        let has_credit_bug = self.has_bug(ServiceBug::CreditIgnored);
        let has_job = self.reads.jobs < self.options.limits.reads_max;
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        if replay.place.is_some() {
            return; // its turn comes
        }
        let track = self.tracks.get(&replay.recording.0);
        if replay.stage == Stage::Dormant && track.is_some() {
            let from = ReplayFrom::Position(replay.position.0);
            self.reopen(key, from, out);
            return;
        }
        if replay.stage == Stage::Closed {
            if has_job {
                self.open_cursor(key, out);
            } else {
                replay.place = Some(self.reads.enqueue(key));
            }
            return;
        }
        if replay.stage != Stage::Idle {
            return;
        }
        if replay.position >= replay.until {
            self.end_replay(key, ReplayState::Complete, None, out);
            return;
        }
        if replay.end.is_some_and(|end| replay.position >= end) {
            self.rest(key, out);
            return;
        }
        let visible = match (replay.end, track) {
            (Some(end), _) => end,
            (None, Some(track)) => track.visible(replay.request.is_eager),
            (None, None) => Position(u64::MAX),
        };
        let is_blocked = replay.position >= visible || replay.stalled_at == Some(visible);
        replay.has_waited |= is_blocked;
        // Bug: what was recorded since the end was reached is left out.
        if has_gap_bug && !is_blocked && std::mem::take(&mut replay.has_waited) {
            self.reopen(key, ReplayFrom::Position(visible.0), out);
            return;
        }
        let has_credit = replay.limit > replay.offset || has_credit_bug;
        if !is_blocked && has_credit {
            let until = replay.until.min(visible);
            self.read_on(key, until, out);
        }
    }

    /// Lets a job read up to `until`, if it is this replay's turn.
    fn read_on(&mut self, key: Asker, until: Position, out: &mut Out) {
        let limits = &self.options.limits;
        let has_room = self.has_replay_room() || self.has_bug(ServiceBug::CreditIgnored);
        let has_job = self.reads.jobs < limits.reads_max;
        let (data_bytes, share) = (limits.data_bytes, limits.data_bytes_min);
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        if !has_room && replay.under_way() >= share as u64 {
            replay.place = Some(self.reads.starve(key));
            return;
        }
        if !has_job {
            replay.place = Some(self.reads.enqueue(key));
            return;
        }
        let Some(cursor) = replay.cursor.take() else {
            return;
        };
        let credit = replay.limit.saturating_sub(replay.offset);
        let data_bytes = if has_room { data_bytes } else { share };
        replay.stage = Stage::Reading;
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
        self.start_job(Task::Replay(key), Box::new(job), out);
    }

    /// A job that opened or read is back.
    pub(super) fn read(&mut self, key: Asker, read: Read, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return; // closed meanwhile
        };
        if let Some(position) = read.position() {
            replay.position = position;
        }
        replay.held = read.held;
        if replay.stage == Stage::Opening {
            let is_live = self.tracks.contains_key(&replay.recording.0);
            if is_live && !replay.is_live && read.refusal.is_none() {
                // It was claimed meanwhile, so the end that was found may not be durable.
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
        replay.stage = Stage::Idle;
        let has_read = read.message.is_some();
        if let Some(message) = read.message {
            let length = (message.len() - DATA_HEADER_LENGTH) as u64;
            let before = replay.under_way();
            replay.offset += length;
            self.reads.under_way += replay.under_way() - before;
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
            let begun = Answer::ReplayBegun {
                position: replay.position.0,
                end: Some(replay.until)
                    .filter(|until| *until < open_end)
                    .map(|it| it.0),
                window_bytes: replay.window_bytes,
            };
            self.answer(key, Ok(begun), true, out);
        }
        if let Some(pause) = read.pause {
            self.paused(key, pause, has_read, out);
        }
        self.pump_replay(key, out);
    }

    fn fail_replay(&mut self, key: Asker, refusal: Refusal, out: &mut Out) {
        let is_begun = self.replays.get(&key).is_some_and(|replay| replay.is_begun);
        if is_begun {
            self.end_replay(key, ReplayState::Failed, Some(refusal), out);
        } else {
            self.close_replay(key);
            self.refuse(key, refusal, out);
        }
    }

    /// The cursor has nothing more, for now or for ever.
    fn paused(&mut self, key: Asker, pause: Pause, has_read: bool, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let track = self.tracks.get(&replay.recording.0);
        match pause {
            Pause::Live if replay.is_live && track.is_some() => {
                let visible = track.map(|track| track.visible(replay.request.is_eager));
                replay.stalled_at = visible.filter(|_| !has_read);
            }
            // All of a recording that is not being recorded, or was not when the cursor was opened.
            _ => self.rest(key, out),
        }
    }

    /// There is nothing more unless the recording is extended.
    fn rest(&mut self, key: Asker, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        match replay.at_rest() {
            Some(state) => self.end_replay(key, state, None, out),
            None => replay.stage = Stage::Dormant,
        }
    }
}
