//! Writes: admission, encryption, the common stream, acknowledgements.

use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::{GuestError, GuestReply, GuestRequest};
use crate::lineage::Mark;
use crate::status::MirrorState;
use crate::upstairs::mirror::Sent;
use crate::upstairs::seal_jobs::{BytesPart, SealBlocks, SealedSlots};
use crate::upstairs::stream_items::ItemKind;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::FlushOrder;
use seatrial_machine::{Output, Ticket, Time};
use std::sync::Arc;

/// Most bytes of one message of a write.
const PART_BYTES: usize = 1 << 20;
/// Most blocks of zeros in one message: as many contexts as fit about the same.
const ZEROS_MAX: u32 = 16_384;
/// Blocks of zeros that are sealed in a turn.
const INLINE_ZEROS: u32 = 64;

impl Upstairs {
    /// Begins the writes that wait, as far as there is memory and a quorum.
    pub(super) fn admit_writes(&mut self, now: Time, out: &mut Outputs) {
        while let Some((_, request)) = self.waiting.front() {
            let (bytes, span) = match request {
                GuestRequest::Write { first, bytes, .. }
                | GuestRequest::WriteUnwritten { first, bytes } => {
                    (bytes.len(), self.span_of(*first, bytes.len()))
                }
                GuestRequest::Trim { range, .. } => (0, self.checked(*range)),
                _ => (0, Err(GuestError::Inactive)),
            };
            let is_active = self.is_active();
            if let (true, Ok(span)) = (is_active, &span) {
                let is_full = self.items.bytes() + bytes > self.options.retained_bytes_max
                    && !self.items.is_empty();
                if is_full || !self.has_quorum() || self.locks.overlaps(*span) {
                    break;
                }
            }
            let Some((ticket, request)) = self.waiting.pop_front() else {
                break;
            };
            match (is_active, span) {
                (false, _) => {
                    let error = self.inactive();
                    self.fail(ticket, error, out);
                }
                (true, Err(error)) => self.fail(ticket, error, out),
                (true, Ok(span)) => self.begin_write(now, ticket, span, request, out),
            }
        }
        self.limit_memory(now, out);
    }

    fn begin_write(
        &mut self,
        now: Time,
        ticket: Ticket,
        span: BlockSpan,
        request: GuestRequest,
        out: &mut Outputs,
    ) {
        let (bytes, fua) = match request {
            GuestRequest::Write { bytes, fua, .. } => {
                self.done[1] += 1;
                self.bytes[1] += bytes.len() as u64;
                (bytes, fua)
            }
            GuestRequest::Trim { fua, .. } => {
                self.done[3] += 1;
                (Vec::new(), fua)
            }
            GuestRequest::WriteUnwritten { bytes, .. } => {
                return self.begin_unwritten(now, ticket, span, bytes, out);
            }
            _ => return,
        };
        self.write(now, span, bytes, out);
        if fua {
            self.begin_flush(now, Some(ticket), out);
        } else {
            self.reply(ticket, GuestReply::Done, out);
        }
    }

    /// Puts a write into the stream, in parts; no bytes: zeros.
    pub(super) fn write(&mut self, now: Time, span: BlockSpan, bytes: Vec<u8>, out: &mut Outputs) {
        self.flushes.dirty(now);
        let length = self.options.geometry.block_length as usize;
        let part_blocks = if bytes.is_empty() {
            ZEROS_MAX
        } else {
            (PART_BYTES / length).max(1) as u32
        };
        let request = Arc::new(bytes);
        let mut at = 0;
        while at < span.count {
            let count = part_blocks.min(span.count - at);
            let part = BlockSpan {
                first: BlockNumber(span.first.0 + u64::from(at)),
                count,
            };
            let part_bytes = if request.is_empty() {
                0..0
            } else {
                at as usize * length..(at + count) as usize * length
            };
            let bytes = BytesPart {
                whole: Arc::clone(&request),
                part: part_bytes,
            };
            self.write_part(now, part, bytes, out);
            at += count;
        }
    }

    fn write_part(&mut self, now: Time, span: BlockSpan, bytes: BytesPart, out: &mut Outputs) {
        let kept = bytes.len() + span.count as usize * crate::CONTEXT_LENGTH + 128;
        let kind = ItemKind::Write {
            span,
            slots: Arc::default(),
        };
        let id = self.items.push(kind, self.flushes.last(), kept);
        let is_inline = match bytes.len() {
            0 => span.count <= INLINE_ZEROS,
            length => length <= self.options.inline_bytes_max,
        };
        let mut version = self.take_versions(span.count);
        if !is_inline && self.has_bug(VolumeBug::ShortWriteOvertakes) {
            // As if it got its versions when it is sealed, after the shorter ones that follow.
            version.counter += 1 << 20;
        }
        let job = SealBlocks {
            keys: self.options.keys.clone(),
            id,
            span,
            version,
            bytes,
            block_length: self.options.geometry.block_length,
            begun: now,
        };
        if is_inline {
            let sealed = job.seal();
            self.have_sealed(now, sealed, out);
        } else {
            let ticket = self.next_ticket();
            out.push(Output::Compute(Box::new(job), ticket));
        }
    }

    /// A write is sealed: it is sent when all before it are.
    pub(super) fn have_sealed(&mut self, now: Time, sealed: SealedSlots, out: &mut Outputs) {
        self.items.sealed(sealed.id, sealed.slots);
        self.send_items(now, out);
    }

    /// Sends what is ready, in order, to every replica in session.
    pub(super) fn send_items(&mut self, now: Time, out: &mut Outputs) {
        while let Some(id) = self.items.next_to_send() {
            for at in 0..self.mirrors.len() {
                if self.mirrors[at].is_in_session() {
                    self.send_item(now, at, id, out);
                }
            }
        }
    }

    /// Sends an item to a replica.
    pub(super) fn send_item(&mut self, now: Time, at: usize, id: u64, out: &mut Outputs) {
        let sent = match &self.items.get(id).kind {
            ItemKind::Write { .. } => Sent::Item(id),
            ItemKind::Flush {
                flush,
                snapshot,
                drops,
            } => {
                let mirror = &mut self.mirrors[at];
                let is_complete = mirror.state == MirrorState::Active;
                let mut order = FlushOrder {
                    flush: *flush,
                    is_complete,
                    lineage: None,
                    snapshot: snapshot.clone(),
                    drops: drops.clone(),
                };
                if is_complete && !mirror.knows_lineage {
                    mirror.knows_lineage = true;
                    order.lineage = Some(self.lineage.clone());
                }
                Sent::Flush(id, Arc::new(order))
            }
        };
        self.send_numbered(now, at, sent, out);
    }

    /// Sends a message of a replica's stream.
    pub(super) fn send_numbered(&mut self, now: Time, at: usize, sent: Sent, out: &mut Outputs) {
        out.push(self.mirrors[at].push(now, sent, &self.items));
    }

    /// A replica has carried out messages of its stream.
    pub(super) fn acked(
        &mut self,
        now: Time,
        at: usize,
        applied: u64,
        flushed: u64,
        out: &mut Outputs,
    ) {
        let mirror = &mut self.mirrors[at];
        if !mirror.is_in_session() || applied > mirror.last_number() {
            return;
        }
        mirror.acknowledged(now, applied);
        if flushed > mirror.flushed {
            mirror.flushed = flushed;
            if mirror.state == MirrorState::Active && flushed >= mirror.complete_from {
                mirror.mark = Mark {
                    generation: self.generation,
                    flush: flushed,
                };
            }
        }
        self.progress(now, out);
        if self.repairs.contains_key(&at) {
            self.step_repair(now, at, out);
        }
    }

    /// What acknowledgements, or the loss of a replica, make possible.
    pub(super) fn progress(&mut self, now: Time, out: &mut Outputs) {
        self.check_flushes(now, out);
        let in_session = self.mirrors_in_session();
        let applied = in_session.map(|at| self.mirrors[at].applied_item).min();
        // Without any replica nothing is dropped: the next one needs all of it.
        if let Some(applied) = applied {
            while let Some(done) = self.items.pop_done(applied, self.flushes.durable_item()) {
                self.keep(done);
            }
            self.release_kept();
        }
        self.admit_writes(now, out);
        self.retry_reads(now, out);
        self.retry_all_versions(now, out);
    }

    /// Frees memory: by a flush, or by leaving a replica behind that all others wait for.
    fn limit_memory(&mut self, now: Time, out: &mut Outputs) {
        let bytes = self.items.bytes();
        if bytes > self.options.retained_bytes_max / 4 && !self.flushes.is_pending() {
            self.begin_flush(now, None, out);
        }
        if bytes <= self.options.retained_bytes_max / 2 {
            return;
        }
        let first = self.items.first();
        let is_late = |at: &usize| self.mirrors[*at].applied_item < first;
        let late: Vec<usize> = self.mirrors_in_session().filter(is_late).collect();
        let others = self
            .active_mirrors()
            .filter(|at| !late.contains(at))
            .count();
        let is_only_late = first <= self.flushes.durable_item();
        if is_only_late && others >= self.options.quorum {
            for at in late {
                self.go_offline(at, "too far behind", now, out);
            }
        }
    }

    /// Sends again what a replica has not acknowledged for too long.
    pub(super) fn resend(&mut self, now: Time, out: &mut Outputs) {
        for mirror in &mut self.mirrors {
            let is_late = mirror.unacknowledged() > 0
                && mirror.progress_at + self.options.resend_after <= now;
            if is_late {
                out.extend(mirror.again(now, &self.items));
            }
        }
    }
}
