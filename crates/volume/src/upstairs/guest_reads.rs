//! Reads of guests: each part from one replica that has every earlier write to its blocks, from another one if it is damaged.

use crate::block_context::split_slots;
use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::{GuestError, GuestReply};
use crate::status::MirrorState;
use crate::upstairs::mirror::{CopiedSlots, Sent};
use crate::upstairs::questions::Asker;
use crate::upstairs::seal_jobs::{OpenSlots, OpenedSlots};
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::WritePurpose;
use seatrial_machine::{Output, Ticket, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a part.
const PART_BYTES: usize = 1 << 20;

/// A part of a read: what one message asks for.
#[derive(Debug)]
struct ReadPart {
    ticket: Ticket,
    /// Its place among the parts of the request.
    place: usize,
    span: BlockSpan,
    /// A replica must have carried out this item of the stream.
    after: u64,
    /// Replicas that could not deliver it intact.
    bad: BTreeSet<usize>,
    /// The replica that delivered the slots that are being opened.
    from: usize,
}

/// A request, with the parts that have arrived.
#[derive(Debug)]
struct ReadRequest {
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
}

/// The reads under way.
#[derive(Debug, Default)]
pub(crate) struct GuestReads {
    requests: BTreeMap<Ticket, ReadRequest>,
    parts: BTreeMap<u64, ReadPart>,
    /// Parts for which no replica is ready.
    parked: Vec<u64>,
    /// Parts that are being opened, by the ticket of the job.
    opening: BTreeMap<Ticket, u64>,
    last: u64,
}

impl GuestReads {
    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Gives up all reads; returns their tickets.
    pub(crate) fn give_up(&mut self) -> Vec<Ticket> {
        let requests = std::mem::take(&mut self.requests);
        self.parts.clear();
        self.parked.clear();
        requests.into_keys().collect()
    }
}

impl Upstairs {
    pub(super) fn begin_read(
        &mut self,
        now: Time,
        ticket: Ticket,
        span: BlockSpan,
        out: &mut Outputs,
    ) {
        let length = self.options.geometry.block_length as usize;
        let each = (PART_BYTES / length).max(1) as u32;
        let count = span.count.div_ceil(each) as usize;
        self.reads.requests.insert(
            ticket,
            ReadRequest {
                parts: vec![None; count],
                missing: count,
            },
        );
        for place in 0..count {
            let at = place as u32 * each;
            let part = BlockSpan {
                first: BlockNumber(span.first.0 + u64::from(at)),
                count: each.min(span.count - at),
            };
            self.reads.last += 1;
            let id = self.reads.last;
            let after = if self.has_bug(VolumeBug::ReadOvertakesWrite) {
                0
            } else {
                self.items.last_write(part)
            };
            self.reads.parts.insert(
                id,
                ReadPart {
                    ticket,
                    place,
                    span: part,
                    after,
                    bad: BTreeSet::new(),
                    from: 0,
                },
            );
            self.seek_part(now, id, out);
        }
    }

    /// The replica that should be asked next by a reader that needs this item: the one with the fewest open questions.
    pub(super) fn reader_of(&self, after: u64, bad: &BTreeSet<usize>) -> Option<usize> {
        let includes_repaired = self.has_bug(VolumeBug::ReadsWhileRepairing);
        let is_ready = |at: &usize| {
            let mirror = &self.mirrors[*at];
            let has_all = mirror.state == MirrorState::Active
                || includes_repaired && mirror.state == MirrorState::Repairing;
            has_all && mirror.applied_item >= after && !bad.contains(at)
        };
        let ready = (0..self.mirrors.len()).filter(is_ready);
        ready.min_by_key(|at| {
            let turn = (self.reads.last as usize + at) % self.mirrors.len();
            (self.questions.of(*at), turn)
        })
    }

    /// Asks a replica for a part, or parks it.
    fn seek_part(&mut self, now: Time, id: u64, out: &mut Outputs) {
        let Some(part) = self.reads.parts.get(&id) else {
            return;
        };
        let (span, place) = (part.span, part.place);
        if !self.is_active() || !self.has_quorum() {
            self.reads.parked.push(id);
            return;
        }
        if let Some(mirror) = self.reader_of(part.after, &part.bad) {
            let what = (span, String::new());
            self.ask_slots(now, mirror, Asker::Read(id), what, out);
            return;
        }
        // Another replica may come back or be repaired; only if all of them are bad, no waiting helps.
        if part.bad.len() < self.mirrors.len() {
            self.reads.parked.push(id);
            return;
        }
        debug_assert!(place < usize::MAX, "a part has a place");
        let block = span.first;
        self.fail_read(id, GuestError::Damaged(block), out);
    }

    fn fail_read(&mut self, id: u64, error: GuestError, out: &mut Outputs) {
        let Some(part) = self.reads.parts.remove(&id) else {
            return;
        };
        if self.reads.requests.remove(&part.ticket).is_some() {
            self.reads.parts.retain(|_, it| it.ticket != part.ticket);
            self.fail(part.ticket, error, out);
        }
    }

    /// Asks again for what was parked.
    pub(super) fn retry_reads(&mut self, now: Time, out: &mut Outputs) {
        for id in std::mem::take(&mut self.reads.parked) {
            self.seek_part(now, id, out);
        }
    }

    /// A replica could not deliver a part.
    pub(super) fn read_failed(&mut self, now: Time, id: u64, mirror: usize, out: &mut Outputs) {
        let is_there = self.mirrors[mirror].state == MirrorState::Active;
        if let Some(part) = self.reads.parts.get_mut(&id)
            && is_there
        {
            part.bad.insert(mirror);
            self.mirrors[mirror].damaged += 1;
        }
        self.seek_part(now, id, out);
    }

    pub(super) fn have_slots(
        &mut self,
        now: Time,
        id: u64,
        mirror: usize,
        slots: Vec<u8>,
        out: &mut Outputs,
    ) {
        let Some(part) = self.reads.parts.get_mut(&id) else {
            return;
        };
        part.from = mirror;
        let job = OpenSlots {
            keys: self.options.keys.clone(),
            span: part.span,
            slots,
            block_length: self.options.geometry.block_length,
            begun: now,
        };
        let ticket = self.next_ticket();
        self.reads.opening.insert(ticket, id);
        if job.slots.len() <= self.options.inline_bytes_max + crate::CONTEXT_LENGTH {
            let opened = job.open();
            self.have_opened(now, ticket, opened, out);
        } else {
            out.push(Output::Compute(Box::new(job), ticket));
        }
    }

    /// The bytes of a part, or a block that is not intact.
    pub(super) fn have_opened(
        &mut self,
        now: Time,
        ticket: Ticket,
        opened: OpenedSlots,
        out: &mut Outputs,
    ) {
        let Some(id) = self.reads.opening.remove(&ticket) else {
            return;
        };
        let Some(part) = self.reads.parts.get_mut(&id) else {
            return;
        };
        let Ok(bytes) = opened.result else {
            let from = part.from;
            part.bad.insert(from);
            self.mirrors[from].damaged += 1;
            self.seek_part(now, id, out);
            return;
        };
        let Some(part) = self.reads.parts.remove(&id) else {
            return;
        };
        self.heal(now, &part.bad, part.span, &opened.slots, out);
        let Some(request) = self.reads.requests.get_mut(&part.ticket) else {
            return;
        };
        request.parts[part.place] = Some(bytes);
        request.missing -= 1;
        if request.missing > 0 {
            return;
        }
        let Some(mut request) = self.reads.requests.remove(&part.ticket) else {
            return;
        };
        let bytes = match &mut request.parts[..] {
            [one] => one.take().unwrap_or_default(),
            parts => parts
                .iter_mut()
                .flat_map(|it| it.take().unwrap_or_default())
                .collect(),
        };
        self.done[0] += 1;
        self.bytes[0] += bytes.len() as u64;
        self.reply(part.ticket, GuestReply::Bytes(bytes), out);
    }

    /// Writes intact slots to the replicas that could not deliver them.
    fn heal(
        &mut self,
        now: Time,
        bad: &BTreeSet<usize>,
        span: BlockSpan,
        slots: &[u8],
        out: &mut Outputs,
    ) {
        for at in bad.iter().copied() {
            if !self.mirrors[at].is_in_session() {
                continue;
            }
            let copied = CopiedSlots {
                purpose: WritePurpose::Heal,
                map: String::new(),
                flush: self.flushes.last(),
                since: 0,
                span,
                slots: slots.to_vec(),
            };
            self.mirrors[at].repairs[1] += u64::from(span.count);
            self.send_numbered(now, at, Sent::Copy(Arc::new(copied)), out);
        }
    }

    /// Are these the slots of a span? Only their form is checked.
    pub(super) fn are_slots(&self, slots: &[u8], span: BlockSpan) -> bool {
        split_slots(slots, span.count, self.options.geometry.block_length).is_some()
    }
}
