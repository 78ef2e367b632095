//! Reads of guests: each part from one replica that has every earlier write to its blocks, from another one if it is damaged.

use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::{GuestError, GuestReply};
use crate::status::MirrorState;
use crate::upstairs::mirror::{CopiedSlots, Sent};
use crate::upstairs::parent::ParentAsker;
use crate::upstairs::questions::Asker;
use crate::upstairs::seal_jobs::{BytesPart, OpenSlots, OpenedSlots};
use crate::upstairs::sweeps::is_internal;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::{MapName, WritePurpose};
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
    /// Name of the snapshot; empty: the volume.
    map: MapName,
    /// The bytes, while those of blocks that were never written are read from the parent; and the places of these blocks.
    opened: Option<(Vec<u8>, Vec<u32>)>,
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

    /// Is this part still needed?
    pub(super) fn has_part(&self, id: u64) -> bool {
        self.parts.contains_key(&id)
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
    /// Begins a read of the volume or of a snapshot. With a replica, it is asked first.
    pub(super) fn begin_read(
        &mut self,
        now: Time,
        ticket: Ticket,
        (span, map): (BlockSpan, &str),
        first: Option<usize>,
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
            // A snapshot does not change.
            let after = if self.has_bug(VolumeBug::ReadOvertakesWrite) || !map.is_empty() {
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
                    map: map.to_owned(),
                    opened: None,
                },
            );
            self.seek_part_at(now, id, first, out);
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
        self.seek_part_at(now, id, None, out);
    }

    fn seek_part_at(&mut self, now: Time, id: u64, first: Option<usize>, out: &mut Outputs) {
        let Some(part) = self.reads.parts.get(&id) else {
            return;
        };
        let span = part.span;
        if !self.is_active() || !self.has_quorum() {
            self.reads.parked.push(id);
            return;
        }
        let is_ready = |at: &usize| {
            let mirror = &self.mirrors[*at];
            mirror.state == MirrorState::Active && mirror.applied_item >= part.after
        };
        let first = first.filter(is_ready);
        if let Some(mirror) = first.or_else(|| self.reader_of(part.after, &part.bad)) {
            let what = (vec![span], part.map.clone());
            self.ask_slots(now, mirror, Asker::Read(id), what, out);
            return;
        }
        // Another replica may come back or be repaired; only if all of them are bad, no waiting helps.
        if part.bad.len() < self.mirrors.len() {
            self.reads.parked.push(id);
            return;
        }
        let (block, map) = (span.first, part.map.clone());
        let is_dropped = !map.is_empty() && !self.snapshots.iter().any(|it| it.0 == map);
        let error = if is_dropped {
            GuestError::Snapshot(format!("there is no snapshot {map}"))
        } else {
            GuestError::Damaged(block)
        };
        self.fail_read(id, error, out);
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
            // A snapshot may have been dropped, or be younger than what the replica has carried out.
            self.mirrors[mirror].damaged += u64::from(part.map.is_empty());
        }
        self.seek_part(now, id, out);
    }

    pub(super) fn have_slots(
        &mut self,
        now: Time,
        id: u64,
        mirror: usize,
        slots: BytesPart,
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
        let (bad, span, map) = (part.bad.clone(), part.span, part.map.clone());
        self.heal(now, &bad, (span, &map), opened.slots.bytes(), out);
        let (Some(first), Some(last)) = (opened.absent.first(), opened.absent.last()) else {
            self.end_part(id, bytes, out);
            return;
        };
        if self.options.parent.is_none() {
            self.end_part(id, bytes, out);
            return;
        }
        let needed = BlockSpan {
            first: BlockNumber(span.first.0 + u64::from(*first)),
            count: last - first + 1,
        };
        if let Some(part) = self.reads.parts.get_mut(&id) {
            part.opened = Some((bytes, opened.absent));
        }
        self.read_parent(now, ParentAsker::Part(id), needed, out);
    }

    /// The parent has delivered what was never written here.
    pub(super) fn complete_part(
        &mut self,
        id: u64,
        span: BlockSpan,
        from: &[u8],
        out: &mut Outputs,
    ) {
        let length = self.options.geometry.block_length as usize;
        let Some(part) = self.reads.parts.get_mut(&id) else {
            return;
        };
        let Some((mut bytes, absent)) = part.opened.take() else {
            return;
        };
        let skipped = (span.first.0 - part.span.first.0) as usize;
        for place in absent {
            let place = place as usize;
            let source = (place - skipped) * length;
            let target = place * length;
            bytes[target..target + length].copy_from_slice(&from[source..source + length]);
        }
        self.end_part(id, bytes, out);
    }

    /// A part is there.
    fn end_part(&mut self, id: u64, bytes: Vec<u8>, out: &mut Outputs) {
        let Some(part) = self.reads.parts.remove(&id) else {
            return;
        };
        let Some(request) = self.reads.requests.get_mut(&part.ticket) else {
            return;
        };
        request.parts[part.place] = Some(bytes);
        request.missing -= 1;
        if request.missing > 0 {
            return;
        }
        let Some(request) = self.reads.requests.remove(&part.ticket) else {
            return;
        };
        let parts = request.parts.into_iter().map(Option::unwrap_or_default);
        // Slice by slice: an iterator over bytes took a quarter of all processor time of reads of 4 MiB.
        let bytes = match <[Vec<u8>; 1]>::try_from(parts.collect::<Vec<_>>()) {
            Ok([one]) => one,
            Err(parts) => parts.concat(),
        };
        if !is_internal(part.ticket) {
            self.done[0] += 1;
            self.bytes[0] += bytes.len() as u64;
        }
        self.reply(part.ticket, GuestReply::Bytes(bytes), out);
    }

    /// Writes intact slots to the replicas that could not deliver them.
    fn heal(
        &mut self,
        now: Time,
        bad: &BTreeSet<usize>,
        (span, map): (BlockSpan, &str),
        slots: &[u8],
        out: &mut Outputs,
    ) {
        if bad.is_empty() {
            return;
        }
        let slots = Arc::new(slots.to_vec());
        for at in bad.iter().copied() {
            if !self.mirrors[at].is_in_session() {
                continue;
            }
            let copied = CopiedSlots {
                purpose: WritePurpose::Heal,
                map: map.to_owned(),
                flush: self.flushes.last(),
                since: 0,
                spans: vec![span],
                slots: Arc::clone(&slots),
            };
            self.mirrors[at].repairs[1] += u64::from(span.count);
            self.send_numbered(now, at, Sent::Copy(Arc::new(copied)), out);
        }
    }
}
