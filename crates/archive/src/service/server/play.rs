//! Replaying: credit, and what comes back from the jobs that read.

use super::{ArchiveService, Out, Task};
use crate::Position;
use crate::cursor::Pause;
use crate::service::answer::{Answer, Refusal, RefusalCode};
use crate::service::bug::ServiceBug;
use crate::service::message::{DATA_HEADER_LENGTH, ReplayState, ServerMessage};
use crate::service::operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::service::server::job::{OpenJob, Read, ReadJob};
use crate::service::server::replay::{Replay, Stage};
use crate::service::server::track::Asker;
use seatrial_machine::Output;

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
        let reached = if self.replays.len() >= limits.replays_max {
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
        self.open_cursor(key, from, out);
    }

    fn open_cursor(&mut self, key: Asker, from: ReplayFrom, out: &mut Out) {
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let track = self.tracks.get(&replay.recording.0);
        replay.stage = Stage::Opening;
        replay.cursor = None;
        replay.held = None;
        replay.from = from;
        replay.is_live = track.is_some();
        replay.stalled_at = None;
        let job = OpenJob {
            place: self.place.clone(),
            recording: replay.recording,
            from,
            progress: track.map(|track| track.progress.clone()),
        };
        self.start_job(Task::Replay(key), Box::new(job), out);
    }

    /// The client allows more.
    pub(super) fn credit(&mut self, key: Asker, limit: u64, out: &mut Out) {
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
        replay.limit = replay.limit.max(limit.min(most));
        self.pump_replay(key, out);
    }

    pub(super) fn close_replay(&mut self, key: Asker) {
        if let Some(replay) = self.replays.remove(&key)
            && let Some(session) = self.sessions.get_mut(&key.0)
        {
            session.replays = session.replays.saturating_sub(1);
            session.window_bytes -= u64::from(replay.window_bytes);
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

    /// A recording has come further, has been stopped, or goes on.
    pub(super) fn wake_replays(&mut self, recording: u64, out: &mut Out) {
        let replays = self.replays.iter();
        let woken = replays.filter(|(_, replay)| replay.recording.0 == recording);
        let woken: Vec<Asker> = woken.map(|(key, _)| *key).collect();
        for key in woken {
            self.pump_replay(key, out);
        }
    }

    /// Lets a job read what may be sent.
    fn pump_replay(&mut self, key: Asker, out: &mut Out) {
        let has_gap_bug = self.has_bug(ServiceBug::GapAtLive);
        let has_credit_bug = self.has_bug(ServiceBug::CreditIgnored);
        let data_bytes = self.options.limits.data_bytes;
        let Some(replay) = self.replays.get_mut(&key) else {
            return;
        };
        let track = self.tracks.get(&replay.recording.0);
        if replay.stage == Stage::Dormant && track.is_some() {
            let from = ReplayFrom::Position(replay.position.0);
            self.open_cursor(key, from, out);
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
            self.open_cursor(key, ReplayFrom::Position(visible.0), out);
            return;
        }
        let credit = replay.limit.saturating_sub(replay.offset);
        if is_blocked || (credit == 0 && !has_credit_bug) {
            return;
        }
        let Some(cursor) = replay.cursor.take() else {
            return;
        };
        replay.stage = Stage::Reading;
        let job = ReadJob {
            cursor,
            held: replay.held.take(),
            session: key.0,
            replay: key.1,
            offset: replay.offset,
            bytes: data_bytes.min(usize::try_from(credit.max(1)).unwrap_or(usize::MAX)),
            until: replay.until.min(visible),
        };
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
                self.open_cursor(key, from, out);
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
            replay.offset += length;
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
