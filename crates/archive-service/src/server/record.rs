//! Recording: claims, batches, and the results of writing jobs.

use super::{ArchiveService, Out, Purpose, Task};
use crate::answer::{Answer, Claimed, Refusal, RefusalCode};
use crate::bug::ServiceBug;
use crate::message::{BatchPlace, ENTRIES_MAX, Reached, ServerMessage};
use crate::operation::Operation;
use crate::server::track::{Asker, Track};
use crate::server::write::{Lane, Pending, WriteJob, Written};
use seatrial_archive::Durability;
use seatrial_archive::RecordingId;
use seatrial_machine::Time;

/// Bytes of frames that one job writes at most, unless one batch is longer.
const JOB_BYTES_MAX: usize = 8 << 20;

/// A recording that was claimed again before it was known to be stopped.
#[derive(Debug)]
pub(super) struct EarlyClaim {
    asker: Asker,
    lane: Box<Lane>,
    durability: Durability,
    is_extended: bool,
}

impl ArchiveService {
    /// A session that has the claim already gets the same answer again; another one learns that it is taken. False when
    /// nobody has it.
    pub(super) fn claim_again(&mut self, asker: Asker, recording: u64, out: &mut Out) -> bool {
        let Some(track) = self.tracks.get(&recording) else {
            return false;
        };
        if track.session == Some(asker.0) && !track.is_stopping {
            let claimed = Claimed {
                claim: track.claim,
                recording,
                next_message: track.reached.written_message,
                position: track.reached.written_position,
                durability: track.durability,
            };
            self.answer(asker, Ok(Answer::Claimed(claimed)), true, out);
        } else {
            let text = format!("recording {recording} is being recorded by another client");
            self.refuse(asker, Refusal::new(RefusalCode::Recording, text), out);
        }
        true
    }

    /// Puts a start or an extension in line.
    pub(super) fn claim(&mut self, now: Time, asker: Asker, operation: Operation, out: &mut Out) {
        let max = self.options.limits.claims_per_session_max;
        let Some(session) = self.sessions.get_mut(&asker.0) else {
            return;
        };
        let reached = if session.claims >= max {
            Some("claims_per_session_max")
        } else if self.tracks.len() >= self.options.limits.claims_max {
            Some("claims_max")
        } else {
            None
        };
        if let Some(limit) = reached {
            self.refuse(asker, Refusal::new(RefusalCode::Overloaded, limit), out);
            return;
        }
        self.control(now, asker, Purpose::Claim, operation, out);
    }

    /// A recording can be written: by this session, if it is still there.
    pub(super) fn claimed(
        &mut self,
        now: Time,
        asker: Asker,
        lane: Box<Lane>,
        durability: Durability,
        is_extended: bool,
        out: &mut Out,
    ) {
        let recording = lane.writer.recording().0;
        if self.tracks.contains_key(&recording) {
            // The job that stopped it has done so, and is not back yet.
            let claim = EarlyClaim {
                asker,
                lane,
                durability,
                is_extended,
            };
            self.early_claims.insert(recording, claim);
            return;
        }
        self.claims += 1;
        let end = lane.writer.end();
        let mut track = Track::new(self.claims, asker.0, durability, lane, end);
        track.is_extended = is_extended;
        match self.sessions.get_mut(&asker.0) {
            Some(session) if self.closing.is_none() => session.claims += 1,
            _ => {
                track.session = None;
                track.is_stopping = true;
            }
        }
        let claimed = Claimed {
            claim: track.claim,
            recording,
            next_message: track.expected,
            position: end.0,
            durability,
        };
        self.tracks.insert(recording, track);
        self.answer(asker, Ok(Answer::Claimed(claimed)), true, out);
        self.pump_track(now, recording, out);
        self.wake_replays(recording, out);
    }

    /// Bytes of frames that wait to be written, of all claims.
    pub(super) fn record_bytes(&self) -> usize {
        self.tracks.values().map(|track| track.pending_bytes).sum()
    }

    /// A batch has come.
    pub(super) fn record(
        &mut self,
        now: Time,
        session: u64,
        claim: u64,
        pending: Pending,
        out: &mut Out,
    ) {
        if self.closing.is_some() {
            return; // the next turn reports again
        }
        let limits = &self.options.limits;
        let (window, longest) = (limits.record_window_bytes, limits.batch_bytes_max);
        let gaps = self.options.bug == Some(ServiceBug::GapAccepted);
        let length = pending.body().len();
        let all = self.record_bytes();
        let is_crowded = all > 0 && all + length > limits.record_bytes_max;
        let mut tracks = self.tracks.iter_mut();
        let is_meant = |track: &Track| track.claim == claim && track.session == Some(session);
        let found = tracks.find(|(_, track)| is_meant(track) && !track.is_stopping);
        let Some((&recording, track)) = found else {
            let text = "this session has no such claim";
            self.refuse_claim(
                session,
                claim,
                Refusal::new(RefusalCode::NoClaim, text),
                out,
            );
            return;
        };
        if length > longest as usize {
            let text = format!("a batch of {length} bytes, at most {longest} are taken");
            self.refuse_claim(
                session,
                claim,
                Refusal::new(RefusalCode::WrongBatch, text),
                out,
            );
            return;
        }
        let is_behind = track.pending_bytes > 0 && track.pending_bytes + length > window as usize;
        let is_full = is_behind || is_crowded;
        let is_early = pending.first_message > track.expected && !gaps;
        let end = pending
            .first_message
            .checked_add(u64::from(pending.messages));
        let Some(end) = end.filter(|_| !is_full && !is_early) else {
            self.tell_track(recording, Vec::new(), None, out);
            return;
        };
        track.expected = track.expected.max(end);
        track.pending_bytes += length;
        track.pending.push_back(pending);
        self.pump_track(now, recording, out);
    }

    pub(super) fn refuse_claim(&self, session: u64, claim: u64, refusal: Refusal, out: &mut Out) {
        let message = ServerMessage::Recorded {
            session,
            claim,
            reached: Reached::default(),
            places: Vec::new(),
            refusal: Some(refusal),
        };
        self.send(session, &message, out);
    }

    /// Reports the progress of a recording to the session that has the claim.
    fn tell_track(
        &self,
        recording: u64,
        places: Vec<BatchPlace>,
        refusal: Option<Refusal>,
        out: &mut Out,
    ) {
        let Some(track) = self.tracks.get(&recording) else {
            return;
        };
        let Some(session) = track.session else {
            return;
        };
        let message = ServerMessage::Recorded {
            session,
            claim: track.claim,
            reached: track.reached,
            places,
            refusal,
        };
        self.send(session, &message, out);
    }

    pub(super) fn stop(&mut self, now: Time, asker: Asker, recording: u64, out: &mut Out) {
        let track = self.tracks.get_mut(&recording);
        let Some(track) = track.filter(|track| track.session == Some(asker.0)) else {
            let text = format!("this session does not record recording {recording}");
            self.refuse(asker, Refusal::new(RefusalCode::NoClaim, text), out);
            return;
        };
        track.is_stopping = true;
        track.stoppers.push(asker);
        self.pump_track(now, recording, out);
    }

    pub(super) fn flush(&mut self, now: Time, asker: Asker, recording: u64, out: &mut Out) {
        if let Some(track) = self.tracks.get_mut(&recording) {
            track.flushes.push(asker);
            self.pump_track(now, recording, out);
        } else {
            // What is not being recorded is durable.
            let operation = Operation::Describe { recording };
            self.control(now, asker, Purpose::End, operation, out);
        }
    }

    /// Lets a job write what has come, if none is under way.
    pub(super) fn pump_track(&mut self, now: Time, recording: u64, out: &mut Out) {
        let clock = self.clock(now);
        let bug = self.options.bug;
        let Some(track) = self.tracks.get_mut(&recording) else {
            return;
        };
        if !track.has_work(clock) {
            return;
        }
        let Some(lane) = track.lane.take() else {
            return;
        };
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(next) = track.pending.front()
            && (bytes == 0 || bytes + next.body().len() <= JOB_BYTES_MAX)
            && batches.len() < ENTRIES_MAX
            && let Some(next) = track.pending.pop_front()
        {
            bytes += next.body().len();
            batches.push(next);
        }
        track.under_way_bytes = bytes;
        track.flushing = std::mem::take(&mut track.flushes);
        let job = WriteJob {
            place: self.place.clone(),
            recording: RecordingId(recording),
            lane,
            batches,
            next_message: track.reached.written_message,
            sync: !track.flushing.is_empty(),
            stop: track.is_stopping && track.pending.is_empty(),
            now: clock,
            bug,
        };
        self.start_job(Task::Write(recording), Box::new(job), out);
    }

    /// The job is back.
    pub(super) fn written(&mut self, now: Time, recording: u64, written: Written, out: &mut Out) {
        let acks_early = self.has_bug(ServiceBug::AckBeforeDurable);
        let misplaces = self.has_bug(ServiceBug::WrongPositionAfterExtend);
        let Some(track) = self.tracks.get_mut(&recording) else {
            return;
        };
        let before = track.reached;
        self.health.messages_recorded +=
            written.next_message.saturating_sub(before.written_message);
        self.health.bytes_recorded += written.bytes;
        let mut places = written.places;
        if misplaces && track.is_extended {
            for place in &mut places {
                place.position -= track.start.min(place.position);
            }
        }
        // Bug: what is written counts as durable.
        let durable = if acks_early {
            written.end
        } else {
            written.durable
        };
        track.pending_bytes -= track.under_way_bytes;
        track.under_way_bytes = 0;
        track.advance(
            written.boundaries,
            written.end,
            written.next_message,
            durable,
        );
        if track.reached.durable_position > before.durable_position {
            self.health.syncs += 1;
        }
        if written.refusal.is_some() {
            // Batches after the refused one would leave a gap.
            track.pending.clear();
            track.pending_bytes = 0;
            track.expected = track.reached.written_message;
        }
        let has_stopped = written.lane.is_none();
        track.lane = written.lane;
        let flushed = std::mem::take(&mut track.flushing);
        let has_news = !places.is_empty() || track.reached != before || written.refusal.is_some();
        if has_news {
            self.tell_track(recording, places, written.refusal.clone(), out);
        }
        let failure = written.refusal.filter(|_| written.is_broken);
        for asker in flushed {
            let result = match &failure {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(Answer::Position(durable.0)),
            };
            self.answer(asker, result, true, out);
        }
        if has_stopped {
            self.stopped(now, recording, failure.as_ref(), out);
        } else {
            self.pump_track(now, recording, out);
        }
        self.wake_replays(recording, out);
    }

    /// The recording is not being recorded any more.
    fn stopped(&mut self, now: Time, recording: u64, failure: Option<&Refusal>, out: &mut Out) {
        let Some(track) = self.tracks.remove(&recording) else {
            return;
        };
        let end = track.reached.written_position;
        if let Some(session) = track.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.claims = session.claims.saturating_sub(1);
        }
        for asker in track.stoppers.into_iter().chain(track.flushes) {
            let result = match failure {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(Answer::Position(end)),
            };
            self.answer(asker, result, true, out);
        }
        if let Some(claim) = self.early_claims.remove(&recording) {
            let (asker, lane, durability) = (claim.asker, claim.lane, claim.durability);
            self.claimed(now, asker, lane, durability, claim.is_extended, out);
        }
    }
}
