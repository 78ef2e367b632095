//! Recording: claims, batches, and the results of writing jobs.

use super::{ArchiveService, ControlPurpose, JobTarget, Out};
use crate::archive_answer::{ArchiveAnswer, Claimed, Refusal, RefusalCode};
use crate::archive_operation::ArchiveOperation;
use crate::message::{BatchPlace, ENTRIES_MAX, RecordProgress, ServerMessage};
use crate::server::live_recording::{LiveRecording, RequestId};
use crate::server::write::{PendingBatch, WriteJob, WriteResult};
use crate::service_bug::ServiceBug;
use seatrial_archive::Durability;
use seatrial_archive::{RecordingId, Writer};
use seatrial_machine::Time;

/// Maximum number of bytes of frames that one job writes, unless one batch is longer.
const JOB_BYTES_MAX: usize = 8 << 20;

/// A claim on a recording whose stop is on the disk, but not reported by its job yet. It takes effect when that job returns.
#[derive(Debug)]
pub(super) struct EarlyClaim {
    request: RequestId,
    writer: Box<Writer>,
    durability: Durability,
    is_extended: bool,
}

impl ArchiveService {
    /// Answers a claim on a live recording: the session that holds the claim gets it again, any other is refused. False if
    /// the recording is not claimed.
    pub(super) fn claim_again(
        &mut self,
        request: RequestId,
        recording: u64,
        out: &mut Out,
    ) -> bool {
        let Some(live) = self.live_recordings.get(&recording) else {
            return false;
        };
        if live.session == Some(request.0) && !live.is_stopping {
            let claimed = Claimed {
                claim: live.claim,
                recording,
                next_message: live.reached.written_message,
                position: live.reached.written_position,
                durability: live.durability,
            };
            self.answer(request, Ok(ArchiveAnswer::Claimed(claimed)), true, out);
        } else {
            let text = format!("recording {recording} is being recorded by another client");
            self.refuse(request, Refusal::new(RefusalCode::Recording, text), out);
        }
        true
    }

    /// Queues an operation that claims a recording, within the limits of claims.
    pub(super) fn claim(
        &mut self,
        now: Time,
        request: RequestId,
        operation: ArchiveOperation,
        out: &mut Out,
    ) {
        let max = self.options.limits.claims_per_session_max;
        let Some(session) = self.sessions.get_mut(&request.0) else {
            return;
        };
        let exceeded = if session.claims >= max {
            Some("claims_per_session_max")
        } else if self.live_recordings.len() >= self.options.limits.claims_max {
            Some("claims_max")
        } else {
            None
        };
        if let Some(limit) = exceeded {
            self.refuse(request, Refusal::new(RefusalCode::Overloaded, limit), out);
            return;
        }
        self.control(now, request, ControlPurpose::Claim, operation, out);
    }

    /// Makes a recording live after its catalog operation. If the session has ended meanwhile, the recording is stopped.
    pub(super) fn claimed(
        &mut self,
        now: Time,
        request: RequestId,
        writer: Box<Writer>,
        durability: Durability,
        is_extended: bool,
        out: &mut Out,
    ) {
        let recording = writer.recording().0;
        if self.live_recordings.contains_key(&recording) {
            // The job that stopped it has done so on the disk, but has not returned yet.
            let claim = EarlyClaim {
                request,
                writer,
                durability,
                is_extended,
            };
            self.early_claims.insert(recording, claim);
            return;
        }
        self.claims += 1;
        let end = writer.end();
        let mut live = LiveRecording::new(self.claims, request.0, durability, writer, end);
        live.is_extended = is_extended;
        match self.sessions.get_mut(&request.0) {
            Some(session) if self.closing.is_none() => session.claims += 1,
            _ => {
                live.session = None;
                live.is_stopping = true;
            }
        }
        let claimed = Claimed {
            claim: live.claim,
            recording,
            next_message: live.expected,
            position: end.0,
            durability,
        };
        self.live_recordings.insert(recording, live);
        self.answer(request, Ok(ArchiveAnswer::Claimed(claimed)), true, out);
        self.pump_recording(now, recording, out);
        self.wake_replays(recording, out);
    }

    /// Bytes of frames that wait to be written, total of all claims.
    pub(super) fn record_bytes(&self) -> usize {
        self.live_recordings
            .values()
            .map(|live| live.pending_bytes)
            .sum()
    }

    /// Queues a batch, or refuses it. A batch outside the windows or after a gap is dropped: the client sends it again.
    pub(super) fn record(
        &mut self,
        now: Time,
        session: u64,
        claim: u64,
        pending: PendingBatch,
        out: &mut Out,
    ) {
        if self.closing.is_some() {
            return; // the client gives up when the session ends
        }
        let limits = &self.options.limits;
        let (window, longest) = (limits.record_window_bytes, limits.batch_bytes_max);
        let accepts_gaps = self.options.bug == Some(ServiceBug::GapAccepted);
        let length = pending.body().len();
        let total = self.record_bytes();
        let exceeds_total = total > 0 && total + length > limits.record_bytes_max;
        let mut all = self.live_recordings.iter_mut();
        let matches_claim =
            |live: &LiveRecording| live.claim == claim && live.session == Some(session);
        let found = all.find(|(_, live)| matches_claim(live) && !live.is_stopping);
        let Some((&recording, live)) = found else {
            let text = "this session holds no such claim";
            self.refuse_claim(
                session,
                claim,
                Refusal::new(RefusalCode::NoClaim, text),
                out,
            );
            return;
        };
        if length > longest as usize {
            let text = format!("a batch of {length} bytes exceeds the limit of {longest}");
            self.refuse_claim(
                session,
                claim,
                Refusal::new(RefusalCode::WrongBatch, text),
                out,
            );
            return;
        }
        let exceeds_window =
            live.pending_bytes > 0 && live.pending_bytes + length > window as usize;
        let is_full = exceeds_window || exceeds_total;
        let is_early = pending.first_message > live.expected && !accepts_gaps;
        let end = pending
            .first_message
            .checked_add(u64::from(pending.messages));
        let Some(end) = end.filter(|_| !is_full && !is_early) else {
            self.report_progress(recording, Vec::new(), None, out);
            return;
        };
        live.expected = live.expected.max(end);
        live.pending_bytes += length;
        live.pending.push_back(pending);
        self.pump_recording(now, recording, out);
    }

    pub(super) fn refuse_claim(&self, session: u64, claim: u64, refusal: Refusal, out: &mut Out) {
        let message = ServerMessage::Recorded {
            session,
            claim,
            reached: RecordProgress::default(),
            places: Vec::new(),
            refusal: Some(refusal),
        };
        self.send(session, &message, out);
    }

    /// Reports the progress of a recording to the session that holds its claim.
    fn report_progress(
        &self,
        recording: u64,
        places: Vec<BatchPlace>,
        refusal: Option<Refusal>,
        out: &mut Out,
    ) {
        let Some(live) = self.live_recordings.get(&recording) else {
            return;
        };
        let Some(session) = live.session else {
            return;
        };
        let message = ServerMessage::Recorded {
            session,
            claim: live.claim,
            reached: live.reached,
            places,
            refusal,
        };
        self.send(session, &message, out);
    }

    pub(super) fn stop(&mut self, now: Time, request: RequestId, recording: u64, out: &mut Out) {
        let live = self.live_recordings.get_mut(&recording);
        let Some(live) = live.filter(|live| live.session == Some(request.0)) else {
            let text = format!("this session holds no claim on recording {recording}");
            self.refuse(request, Refusal::new(RefusalCode::NoClaim, text), out);
            return;
        };
        live.is_stopping = true;
        live.stoppers.push(request);
        self.pump_recording(now, recording, out);
    }

    pub(super) fn flush(&mut self, now: Time, request: RequestId, recording: u64, out: &mut Out) {
        if let Some(live) = self.live_recordings.get_mut(&recording) {
            live.flushes.push(request);
            self.pump_recording(now, recording, out);
        } else {
            // A stopped recording is durable: the answer is its end, from the catalog.
            let operation = ArchiveOperation::Describe { recording };
            self.control(now, request, ControlPurpose::End, operation, out);
        }
    }

    /// Starts a job for the pending batches, syncs or stop of a recording, unless one is running.
    pub(super) fn pump_recording(&mut self, now: Time, recording: u64, out: &mut Out) {
        let clock = self.clock(now);
        let bug = self.options.bug;
        let Some(live) = self.live_recordings.get_mut(&recording) else {
            return;
        };
        if !live.has_work(clock) {
            return;
        }
        let Some(writer) = live.writer.take() else {
            return;
        };
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(next) = live.pending.front()
            && (bytes == 0 || bytes + next.body().len() <= JOB_BYTES_MAX)
            && batches.len() < ENTRIES_MAX
            && let Some(next) = live.pending.pop_front()
        {
            bytes += next.body().len();
            batches.push(next);
        }
        live.in_flight_bytes = bytes;
        live.flushing = std::mem::take(&mut live.flushes);
        let job = WriteJob {
            location: self.location.clone(),
            recording: RecordingId(recording),
            writer,
            batches,
            next_message: live.reached.written_message,
            sync: !live.flushing.is_empty(),
            // A later job stops the recording when this one leaves batches.
            stop: live.is_stopping && live.pending.is_empty(),
            now: clock,
            bug,
        };
        self.start_job(JobTarget::Write(recording), Box::new(job), out);
    }

    /// Applies the result of a write job: progress, answers, and the next job.
    pub(super) fn after_write(
        &mut self,
        now: Time,
        recording: u64,
        written: WriteResult,
        out: &mut Out,
    ) {
        let confirms_early = self.has_bug(ServiceBug::AckBeforeDurable);
        let shifts_positions = self.has_bug(ServiceBug::WrongPositionAfterExtend);
        let Some(live) = self.live_recordings.get_mut(&recording) else {
            return;
        };
        let before = live.reached;
        self.health.messages_recorded +=
            written.next_message.saturating_sub(before.written_message);
        self.health.bytes_recorded += written.bytes;
        let mut places = written.places;
        if shifts_positions && live.is_extended {
            for place in &mut places {
                place.position -= live.start.min(place.position);
            }
        }
        // Bug: written messages are reported as durable.
        let durable = if confirms_early {
            written.end
        } else {
            written.durable
        };
        live.pending_bytes -= live.in_flight_bytes;
        live.in_flight_bytes = 0;
        live.advance(
            written.boundaries,
            written.end,
            written.next_message,
            durable,
        );
        if live.reached.durable_position > before.durable_position {
            self.health.syncs += 1;
        }
        if written.refusal.is_some() {
            // Batches after the refused one would leave a gap.
            live.pending.clear();
            live.pending_bytes = 0;
            live.expected = live.reached.written_message;
        }
        let has_stopped = written.writer.is_none();
        live.writer = written.writer;
        let flushed = std::mem::take(&mut live.flushing);
        let has_changed = !places.is_empty() || live.reached != before || written.refusal.is_some();
        if has_changed {
            self.report_progress(recording, places, written.refusal.clone(), out);
        }
        let failure = written.refusal.filter(|_| written.is_broken);
        for request in flushed {
            let result = match &failure {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(ArchiveAnswer::Position(durable.0)),
            };
            self.answer(request, result, true, out);
        }
        if has_stopped {
            self.after_stop(now, recording, failure.as_ref(), out);
        } else {
            self.pump_recording(now, recording, out);
        }
        self.wake_replays(recording, out);
    }

    /// Removes a recording whose writer has stopped or failed, and answers the requests that waited for that.
    fn after_stop(&mut self, now: Time, recording: u64, failure: Option<&Refusal>, out: &mut Out) {
        let Some(live) = self.live_recordings.remove(&recording) else {
            return;
        };
        let end = live.reached.written_position;
        if let Some(session) = live.session.and_then(|id| self.sessions.get_mut(&id)) {
            session.claims = session.claims.saturating_sub(1);
        }
        for request in live.stoppers.into_iter().chain(live.flushes) {
            let result = match failure {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(ArchiveAnswer::Position(end)),
            };
            self.answer(request, result, true, out);
        }
        if let Some(claim) = self.early_claims.remove(&recording) {
            let (request, writer, durability) = (claim.request, claim.writer, claim.durability);
            self.claimed(now, request, writer, durability, claim.is_extended, out);
        }
    }
}
