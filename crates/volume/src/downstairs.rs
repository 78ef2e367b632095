//! A replica of a volume: stores slots of encrypted blocks for one upstairs at a time.

mod block_map;
mod map_file;
mod region;
mod region_description;
mod region_jobs;
mod region_log;
mod region_record;
mod region_recovery;
mod stored_region;
mod upkeep;
mod upstairs_session;
mod zone_use;

pub use block_map::CHUNK_BLOCKS;
pub(crate) use region::chunk_span;
pub use region_recovery::{RegionError, RegionReport};
pub use stored_region::{
    BlockDefect, DEFECTS_MAX, RegionCheck, RegionDifference, StoredBlock, StoredRegion,
    StoredSnapshot,
};

use crate::block_context::{BlockSlot, BlockVersion, split_slots};
use crate::geometry::{BlockNumber, BlockSpan, Geometry, block_count};
use crate::guest::{GuestReply, GuestRequest};
use crate::lineage::{Lineage, Mark};
use crate::volume_bug::VolumeBug;
use crate::volume_message::{
    CHANGES_MAX, FromReplica, RefusalReason, SessionNumber, StreamMessage, ToReplica, VERSIONS_MAX,
    WritePurpose, slots_reply,
};
use region::Region;
use region_description::DownstairsFigures;
use region_jobs::{HeadRead, ReadSlots, SlotPiece, SlotsRead};
use region_log::RegionLog;
use region_record::{
    Grant, put_begin_snapshot, put_data, put_drop_snapshot, put_end_snapshot, put_flush, put_grant,
    put_region,
};
use region_recovery::read_region;
use seatrial_machine::{
    Booted, DataFolder, DirectWrites, Input, LogName, LogReader, Machine, NodeId, OpenLog, Output,
    StatusSheet, Ticket, Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use upkeep::Upkeep;
use upstairs_session::{PendingAck, ReplicaSession};

/// What a replica pushes. It takes no requests and replies to none; the types are those of an upstairs, so that one world holds
/// both.
type Outputs = Vec<Output<GuestReply>>;

/// Longest message to or from a replica: slots of [`READ_LENGTH_MAX`] bytes and some fields.
pub const REPLICA_MESSAGE_MAX: usize = READ_LENGTH_MAX + (64 << 10);
/// Most bytes of slots in one message.
pub const READ_LENGTH_MAX: usize = 2 << 20;

/// Bytes, and least and most files, of freed segments that are kept to be written over: syncs of such files have no metadata to
/// write (`docs/decisions/0133`). Blocks are numbered, so old ones are not taken for new.
const SPARE_BYTES: u64 = 256 << 20;
const SPARES: std::ops::RangeInclusive<u64> = 2..=8;

/// Segments of a log with twice the bytes of its volume. Each is an open file of its reader, and of a job that moves slots; a
/// process may have 1,024 on many systems.
const SEGMENTS: u64 = 256;
/// Shortest and longest segment.
const SEGMENT_LENGTHS: std::ops::RangeInclusive<u64> = 32 << 20..=64 << 30;

/// Options of a replica.
#[derive(Clone, Debug)]
pub struct DownstairsOptions {
    /// The volume that it serves.
    pub geometry: Geometry,
    /// Bytes of log between map files. A start reads at most about as much.
    pub map_interval: u64,
    /// Bytes that the log may have besides twice what is in use; above, its head is moved and freed.
    pub log_slack: u64,
    /// Bytes of a segment of the log: what is freed at once.
    pub segment_length: u64,
    /// Bytes of log that the system's caches can hold. Long appends to a log that may become longer go past them: to be read
    /// again they would have to stay.
    pub cache_bytes: u64,
    /// A bug to plant.
    pub bug: Option<VolumeBug>,
}

impl DownstairsOptions {
    /// The usual options: segments of 32 MiB, longer ones for volumes of more than 4 GiB.
    pub fn new(geometry: Geometry) -> DownstairsOptions {
        let segment_length = (2 * geometry.bytes() / SEGMENTS).next_multiple_of(1 << 20);
        DownstairsOptions {
            geometry,
            map_interval: 128 << 20,
            log_slack: 256 << 20,
            segment_length: segment_length.clamp(*SEGMENT_LENGTHS.start(), *SEGMENT_LENGTHS.end()),
            cache_bytes: u64::MAX,
            bug: None,
        }
    }

    fn direct(&self) -> DirectWrites {
        let log_bytes = (2 * self.geometry.bytes()).saturating_add(self.log_slack);
        if log_bytes > self.cache_bytes {
            DirectWrites::Long
        } else {
            DirectWrites::Never
        }
    }

    fn spares_max(&self) -> usize {
        let spares = SPARE_BYTES / self.segment_length;
        spares.clamp(*SPARES.start(), *SPARES.end()) as usize
    }
}

/// A replica of a volume.
///
/// It owns a log (`docs/formats/volume.md`), in which everything is that it stores, and in memory a map from each block to the
/// position of its slot. A write is appended without a sync; a flush is appended with one and makes all before it durable.
/// Nothing is changed in place, so a crash may lose what was not flushed, and never tears a block. Map files (`upkeep`)
/// shorten the next start; the oldest part of the log is freed after the slots in use there were appended again.
///
/// It serves one session of one upstairs. The messages of a session that change it are carried out in the order of their numbers,
/// whatever the network does; a generation is durable before the session is confirmed, and every session of an older one ends.
///
/// Its loop: a message → records appended, answers when the driver reports them; acknowledgements are gathered until the turn
/// after all that has arrived. Cost: 24 bytes of memory a written block; one copy of each slot.
#[derive(Debug)]
pub struct Downstairs {
    options: DownstairsOptions,
    region: Region,
    log: RegionLog,
    reader: Arc<LogReader>,
    session: Option<ReplicaSession>,
    /// What waits for a position of the log to be durable, in order.
    waiting: Vec<(u64, PendingAck)>,
    /// Reads that wait for a position of the log to be written.
    unwritten: Vec<(u64, PendingRead)>,
    /// Reads under way, by ticket.
    reads: BTreeMap<Ticket, PendingRead>,
    tickets: u64,
    upkeep: Upkeep,
    wake: Option<Time>,
    is_started: bool,
    /// What was damaged at the start.
    damaged: Vec<String>,
    figures: DownstairsFigures,
}

/// A read of an upstairs.
#[derive(Clone, Debug)]
struct PendingRead {
    from: NodeId,
    session: SessionNumber,
    id: u64,
    spans: Vec<BlockSpan>,
    map: String,
    since: Time,
    /// Was it read before, from where the slots are no longer?
    is_repeated: bool,
}

impl Downstairs {
    /// Starts a replica from its folder; an empty folder becomes an empty replica.
    pub fn boot(
        data: &DataFolder,
        options: DownstairsOptions,
    ) -> Result<(Booted<Downstairs>, RegionReport), RegionError> {
        let read = read_region(data, &options.geometry, options.segment_length)?;
        let log = OpenLog {
            segment_length: options.segment_length,
            spares_max: options.spares_max(),
            direct: options.direct(),
            ..OpenLog::new(LogName::MAIN, read.report.end)
        };
        let start = data.log(LogName::MAIN)?.start();
        let downstairs = Downstairs {
            log: RegionLog::new(read.report.end, read.sequence),
            reader: Arc::new(LogReader::new(data.clone(), LogName::MAIN)),
            upkeep: Upkeep::new(data.clone(), start, read.report.map),
            region: read.region,
            session: None,
            waiting: Vec::new(),
            unwritten: Vec::new(),
            reads: BTreeMap::new(),
            tickets: 0,
            wake: None,
            is_started: false,
            damaged: read.report.damaged.clone(),
            figures: DownstairsFigures::default(),
            options,
        };
        let booted = Booted {
            machine: downstairs,
            logs: vec![log],
        };
        Ok((booted, read.report))
    }

    /// The generation that it has granted; 0: none.
    pub fn generation(&self) -> u32 {
        self.region.grant.generation
    }

    /// Versions of all blocks of the volume or of a snapshot, for comparisons; `None`: there is no such snapshot.
    pub fn versions(&self, map: &str) -> Option<Vec<BlockVersion>> {
        let map = self.region.map(map)?;
        let blocks = 0..self.options.geometry.blocks;
        Some(
            blocks
                .map(|block| map.get(BlockNumber(block)).version)
                .collect(),
        )
    }

    /// What it has, and of which history.
    pub fn mark(&self) -> (Mark, &Lineage) {
        (self.region.mark, &self.region.lineage)
    }

    /// Bytes of slots in use, and of the log.
    pub fn used_bytes(&self) -> (u64, u64) {
        (
            self.region.used_bytes(),
            self.log.position() - self.upkeep.head(),
        )
    }

    /// Appends records and carries them out.
    fn append<R>(
        &mut self,
        is_synced: bool,
        capacity: usize,
        put: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<Output<R>>,
    ) -> u64 {
        let mut bytes = RegionLog::begin(capacity);
        put(&mut bytes);
        self.append_block(is_synced, bytes, out)
    }

    /// Appends a block whose header is still to be made, and carries its records out.
    fn append_block<R>(
        &mut self,
        is_synced: bool,
        bytes: Vec<u8>,
        out: &mut Vec<Output<R>>,
    ) -> u64 {
        let payload_at = self.log.payload_position();
        let payload = &bytes[seatrial_blocks::HEADER_LENGTH..];
        let records = region_record::read_records(payload, self.options.geometry.block_length);
        for record in records.iter().flatten() {
            self.region.apply(record, payload_at);
        }
        debug_assert!(records.is_ok(), "the records were just made: {records:?}");
        let start = self.log.position();
        let end = self.log.push(bytes, is_synced, out);
        self.figures.appended(end - start, end, is_synced);
        end
    }

    fn receive(&mut self, now: Time, from: NodeId, bytes: Vec<u8>, out: &mut Outputs) {
        let Ok(message) = ToReplica::decode(&bytes) else {
            return; // not a message of an upstairs
        };
        let (session, is_question) = match &message {
            ToReplica::Attach {
                geometry,
                generation,
                upstairs,
                session,
                has_quorum,
            } => {
                let grant = Grant {
                    generation: *generation,
                    upstairs: *upstairs,
                };
                self.attach(from, geometry, grant, (*session, *has_quorum), out);
                return;
            }
            ToReplica::Stream(session, ..) | ToReplica::Ping(session) => (*session, false),
            ToReplica::Read { session, .. }
            | ToReplica::Versions { session, .. }
            | ToReplica::Changes { session, .. } => (*session, true),
        };
        let is_current = |it: &ReplicaSession| (it.upstairs, it.number) == (from, session);
        if !self.session.as_ref().is_some_and(is_current) {
            self.refuse(from, session, RefusalReason::Session, out);
            return;
        }
        if is_question {
            self.answer(from, message, out);
            return;
        }
        self.wake = Some(now);
        let ToReplica::Stream(_, number, _) = message else {
            self.acknowledge();
            return;
        };
        if let Some(session) = &mut self.session {
            session.arrive(number, bytes);
        }
        while let Some(next) = self.session.as_mut().and_then(ReplicaSession::next) {
            self.carry_out(next, out);
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        if let Some(session) = &mut self.session {
            session.is_ack_due = true;
        }
    }

    fn refuse(
        &mut self,
        to: NodeId,
        session: SessionNumber,
        reason: RefusalReason,
        out: &mut Outputs,
    ) {
        self.figures.refused += 1;
        let refused = FromReplica::Refused {
            session,
            reason,
            promised: self.region.grant.generation,
        };
        let message = refused.encode();
        out.push(Output::Send { to, message });
    }

    /// An upstairs wants a session: it gets one when its generation is durable.
    fn attach(
        &mut self,
        from: NodeId,
        geometry: &Geometry,
        grant: Grant,
        (number, has_quorum): (SessionNumber, bool),
        out: &mut Outputs,
    ) {
        let (here, mine) = (self.region.grant, self.options.geometry);
        if geometry.volume != mine.volume {
            return self.refuse(from, number, RefusalReason::Volume, out);
        }
        if *geometry != mine {
            return self.refuse(from, number, RefusalReason::Shape, out);
        }
        let is_same = grant == here && grant.upstairs != 0;
        // A generation that a quorum granted to this upstairs was granted here to one that never became active.
        let is_mine = is_same || has_quorum;
        if grant.generation < here.generation || grant.generation == here.generation && !is_mine {
            return self.refuse(from, number, RefusalReason::Generation, out);
        }
        let same = self.session.as_ref().filter(|_| is_same);
        if same.is_some_and(|it| it.number > number) {
            return; // a message that was late
        }
        // The same session once more: the reply was lost.
        if same.is_none_or(|it| it.number < number || it.upstairs != from) {
            out.push(Output::Admit(from));
            self.session = Some(ReplicaSession::new(from, number));
            self.figures.sessions += 1;
        }
        let is_forgotten = self.options.bug == Some(VolumeBug::ForgottenGeneration);
        // Also for a session of the same generation: what the reply says of flushes must be durable.
        let at = self.append(
            true,
            64,
            |bytes| {
                if is_forgotten {
                    put_region(bytes, &mine);
                } else {
                    put_grant(bytes, grant);
                }
            },
            out,
        );
        self.region.grant = grant;
        self.waiting.push((at, PendingAck::Attached(number)));
    }

    /// Carries out a message of the session's stream.
    fn carry_out(&mut self, bytes: Vec<u8>, out: &mut Outputs) {
        let Some(session) = &self.session else {
            return;
        };
        let Ok(ToReplica::Stream(_, _, message)) = ToReplica::decode(&bytes) else {
            return; // it was decoded when it arrived
        };
        let number = session.number;
        match message {
            StreamMessage::Write {
                purpose,
                map,
                flush,
                since,
                spans,
                slots,
            } => {
                let Some(chosen) = self.chosen((purpose, since), &map, &spans, slots) else {
                    return;
                };
                // What changes now will be part of the flush after the last one, of the upstairs or here.
                let to = (map.as_str(), flush.max(self.region.flush) + 1);
                match spans.as_slice() {
                    [span] if !chosen.contains(&false) => {
                        self.append_in_place(bytes, to, *span, out);
                    }
                    _ => self.append_chosen(to, &spans, (&chosen, slots), out),
                }
            }
            StreamMessage::Flush(order) => {
                let generation = self.region.grant.generation;
                let is_synced = self.options.bug != Some(VolumeBug::MissingSync);
                let put = |bytes: &mut Vec<u8>| put_flush(bytes, generation, &order);
                let at = self.append(is_synced, 128, put, out);
                let at = if is_synced { at } else { 0 };
                self.waiting
                    .push((at, PendingAck::Flushed(number, order.flush)));
                self.answer_durable(out);
            }
            StreamMessage::BeginSnapshot { name, flush } => {
                self.append(
                    false,
                    64,
                    |bytes| put_begin_snapshot(bytes, &name, flush),
                    out,
                );
            }
            StreamMessage::EndSnapshot { name } => {
                self.append(false, 64, |bytes| put_end_snapshot(bytes, &name), out);
            }
            StreamMessage::DropSnapshot { name } => {
                self.append(false, 64, |bytes| put_drop_snapshot(bytes, &name), out);
            }
        }
    }

    /// Which of these slots are to replace what is here; `None`: not one, or no upstairs sends this.
    fn chosen(
        &self,
        (purpose, since): (WritePurpose, u32),
        map: &str,
        spans: &[BlockSpan],
        slots: &[u8],
    ) -> Option<Vec<bool>> {
        let geometry = self.options.geometry;
        let slots = split_slots(slots, blocks_of(spans), geometry.block_length)?;
        if !spans.iter().all(|it| geometry.contains(*it)) {
            return None;
        }
        let entries = self.region.map(map)?;
        let is_snapshot = !map.is_empty();
        let overwrites = self.options.bug == Some(VolumeBug::RepairOverwrites);
        let replaces = |(entry, slot): (block_map::BlockEntry, &BlockSlot<'_>)| {
            let (old, new) = (entry.version, slot.context.version);
            match purpose {
                WritePurpose::Repair if old.generation < since || is_snapshot || overwrites => {
                    new != old
                }
                WritePurpose::Guest | WritePurpose::Repair => new > old,
                WritePurpose::Heal => new >= old,
            }
        };
        let entries = spans.iter().flat_map(|it| entries.span(*it));
        let chosen: Vec<bool> = entries.zip(&slots).map(replaces).collect();
        chosen.contains(&true).then_some(chosen)
    }

    /// Appends a message that is a write of one span: it becomes the block of the log, and its slots stay where they are.
    fn append_in_place(
        &mut self,
        mut message: Vec<u8>,
        (map, flush): (&str, u64),
        span: BlockSpan,
        out: &mut Outputs,
    ) {
        let mut head = RegionLog::begin(64);
        put_data(&mut head, map, flush, span);
        message[..head.len()].copy_from_slice(&head);
        self.append_block(false, message, out);
    }

    /// Appends the chosen ones of these slots, in runs of consecutive blocks.
    fn append_chosen(
        &mut self,
        to: (&str, u64),
        spans: &[BlockSpan],
        (chosen, slots): (&[bool], &[u8]),
        out: &mut Outputs,
    ) {
        let block_length = self.options.geometry.block_length;
        let length = slots.len() + 32 * chosen.len();
        let slots = split_slots(slots, blocks_of(spans), block_length).unwrap_or_default();
        let put = |bytes: &mut Vec<u8>| {
            let mut before = 0;
            for span in spans {
                let places = before..before + span.count as usize;
                before = places.end;
                put_chosen(
                    bytes,
                    to,
                    span.first,
                    (&chosen[places.clone()], &slots[places]),
                );
            }
        };
        self.append(false, length, put, out);
    }

    /// Answers a question.
    fn answer(&mut self, from: NodeId, question: ToReplica<'_>, out: &mut Outputs) {
        let geometry = self.options.geometry;
        let fits = |spans: &[BlockSpan], blocks_max: u64| {
            let is_inside = spans.iter().all(|it| geometry.contains(*it));
            is_inside && block_count(spans) <= blocks_max
        };
        let read_max = READ_LENGTH_MAX as u64 / u64::from(geometry.block_length);
        let reply = match question {
            ToReplica::Read {
                session,
                id,
                spans,
                map,
            } if fits(&spans, read_max) && self.region.map(&map).is_some() => {
                if !self.is_reading(session, id) {
                    let read = PendingRead {
                        from,
                        session,
                        id,
                        spans,
                        map,
                        since: self.figures.now,
                        is_repeated: false,
                    };
                    self.read(read, out);
                }
                return;
            }
            ToReplica::Versions {
                session,
                id,
                spans,
                map,
            } if fits(&spans, VERSIONS_MAX) && self.region.map(&map).is_some() => {
                let map = self.region.map(&map).into_iter();
                let spans = map.flat_map(|map| spans.iter().map(move |it| (map, *it)));
                let entries = spans.flat_map(|(map, span)| map.span(span));
                let versions = entries.map(|it| (it.version, it.has_data()));
                FromReplica::Versions {
                    session,
                    id,
                    versions: versions.collect(),
                }
            }
            ToReplica::Changes {
                session,
                id,
                since,
                from,
            } => {
                let (chunks, next) = self.region.changes(since, from, CHANGES_MAX);
                FromReplica::Changes {
                    session,
                    id,
                    next,
                    chunks,
                }
            }
            ToReplica::Read { session, id, .. } | ToReplica::Versions { session, id, .. } => {
                FromReplica::Failed { session, id }
            }
            _ => return,
        };
        let message = reply.encode();
        out.push(Output::Send { to: from, message });
    }

    /// Is the answer to this question under way? A question that is asked again needs no second one: on a slow disk everything
    /// would be read again and again, and the replica would fall ever further behind.
    fn is_reading(&self, session: SessionNumber, id: u64) -> bool {
        let waiting = self.unwritten.iter().map(|(_, read)| read);
        let mut under_way = self.reads.values().chain(waiting);
        under_way.any(|it| (it.session, it.id) == (session, id))
    }

    /// Begins a read, or lets it wait until the slots can be read.
    fn read(&mut self, read: PendingRead, out: &mut Outputs) {
        let Some(map) = self.region.map(&read.map) else {
            return;
        };
        let block_length = self.options.geometry.block_length;
        let mut pieces: Vec<SlotPiece> = Vec::new();
        let (mut end, mut bytes) = (0, 0);
        for entry in read.spans.iter().flat_map(|it| map.span(*it)) {
            let length = entry.slot_length(block_length);
            bytes += length;
            let Some(at) = entry.position() else {
                pieces.push(SlotPiece::Absent);
                continue;
            };
            end = end.max(at + length as u64);
            match pieces.last_mut() {
                Some(SlotPiece::Log {
                    position,
                    length: have,
                }) if *position + *have as u64 == at => {
                    *have += length;
                }
                _ => pieces.push(SlotPiece::Log {
                    position: at,
                    length,
                }),
            }
        }
        if end > self.log.written() {
            self.unwritten.push((end, read));
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let job = ReadSlots {
            log: Arc::clone(&self.reader),
            pieces,
            reply: slots_reply(read.session, read.id, bytes),
        };
        self.reads.insert(ticket, read);
        out.push(Output::Compute(Box::new(job), ticket));
    }

    fn have_read(&mut self, mut read: PendingRead, result: SlotsRead, out: &mut Outputs) {
        let (to, session, id) = (read.from, read.session, read.id);
        let message = match result {
            Ok(message) => message,
            // The slots were moved meanwhile, and the head of the log freed.
            Err(_) if !read.is_repeated => {
                read.is_repeated = true;
                self.read(read, out);
                return;
            }
            Err(_) => {
                self.figures.failed_reads += 1;
                FromReplica::Failed { session, id }.encode()
            }
        };
        self.figures.reads.add(self.figures.now.since(read.since));
        out.push(Output::Send { to, message });
    }

    /// Sends the replies that waited for the log.
    fn answer_durable(&mut self, out: &mut Outputs) {
        let durable = self.log.durable();
        let (due, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(at, _)| *at <= durable);
        self.waiting = waiting;
        let due: Vec<(u64, PendingAck)> = due;
        for (_, due) in due {
            let Some(session) = &mut self.session else {
                continue;
            };
            match due {
                PendingAck::Attached(number) if number == session.number => {
                    let snapshots = self.region.snapshots.iter();
                    let whole = snapshots.filter(|(_, it)| it.is_whole);
                    let attached = FromReplica::Attached {
                        session: number,
                        mark: self.region.mark,
                        lineage: self.region.lineage.clone(),
                        flush: self.region.flush,
                        snapshots: whole.map(|(name, it)| (name.clone(), it.flush)).collect(),
                    };
                    let message = attached.encode();
                    out.push(Output::Send {
                        to: session.upstairs,
                        message,
                    });
                }
                PendingAck::Flushed(number, flush) if number == session.number => {
                    session.flushed = session.flushed.max(flush);
                    session.is_ack_due = true;
                }
                // Of a session that has ended.
                PendingAck::Attached(_) | PendingAck::Flushed(..) => {}
            }
        }
        self.send_ack(out);
    }

    fn send_ack(&mut self, out: &mut Outputs) {
        if let Some(session) = self.session.as_mut().filter(|it| it.is_ack_due) {
            session.is_ack_due = false;
            let acked = FromReplica::Acked {
                session: session.number,
                applied: session.applied,
                flushed: session.flushed,
            };
            out.push(Output::Send {
                to: session.upstairs,
                message: acked.encode(),
            });
        }
    }

    fn reported(&mut self, ticket: Ticket, out: &mut Outputs) {
        self.log.reported(ticket);
        self.figures.synced(self.log.durable());
        self.answer_durable(out);
        let written = self.log.written();
        let (ready, unwritten): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unwritten)
            .into_iter()
            .partition(|(end, _)| *end <= written);
        self.unwritten = unwritten;
        for (_, read) in ready {
            self.read(read, out);
        }
    }
}

/// Number of blocks; more than there can be if it is too large.
fn blocks_of(spans: &[BlockSpan]) -> u32 {
    u32::try_from(block_count(spans)).unwrap_or(u32::MAX)
}

/// Puts the slots that were chosen, of blocks from a first one on, in runs of consecutive blocks.
fn put_chosen(
    bytes: &mut Vec<u8>,
    (map, flush): (&str, u64),
    first: BlockNumber,
    (chosen, slots): (&[bool], &[BlockSlot<'_>]),
) {
    let mut at = 0;
    while at < chosen.len() {
        let run = chosen[at..].iter().take_while(|it| **it).count();
        if run > 0 {
            let part = BlockSpan {
                first: BlockNumber(first.0 + at as u64),
                count: run as u32,
            };
            put_data(bytes, map, flush, part);
            for slot in &slots[at..at + run] {
                bytes.extend_from_slice(slot.bytes);
            }
        }
        at += run.max(1);
    }
}

impl Machine for Downstairs {
    type Request = GuestRequest;
    type Reply = GuestReply;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Outputs) {
        self.figures.now = now;
        if !std::mem::replace(&mut self.is_started, true) && self.log.position() == 0 {
            let geometry = self.options.geometry;
            self.append(true, 64, |bytes| put_region(bytes, &geometry), out);
        }
        match input {
            Input::Wake => {
                self.wake = None;
                self.send_ack(out);
            }
            Input::Message { from, bytes } => self.receive(now, from, bytes, out),
            Input::Appended(ticket) => self.reported(ticket, out),
            Input::Computed(ticket, result) => match self.reads.remove(&ticket) {
                Some(read) => {
                    if let Ok(result) = result.downcast::<SlotsRead>() {
                        self.have_read(read, *result, out);
                    }
                }
                None => match result.downcast::<std::io::Result<HeadRead>>() {
                    Ok(head) => self.move_head(*head, out),
                    Err(other) => {
                        if let Ok(written) = other.downcast::<Result<(), String>>() {
                            self.map_written(&written, out);
                        }
                    }
                },
            },
            Input::FileDone(..) | Input::Request(..) => {}
        }
        self.maintain(out);
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake
    }

    fn check_invariants(&self) {
        assert!(
            self.log.durable() <= self.log.written() && self.log.written() <= self.log.position(),
            "what is durable can be read: {:?}",
            self.log
        );
        assert!(
            self.region.mark.generation <= self.region.grant.generation,
            "only a generation that was granted flushes"
        );
    }

    fn describe(&self, _: Time, sheet: &mut StatusSheet) {
        self.describe_all(sheet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeId;

    #[test]
    fn large_volumes_have_longer_segments_and_not_more() {
        let options = |gibibytes: u64| {
            DownstairsOptions::new(Geometry {
                volume: VolumeId(1),
                block_length: 4_096,
                blocks: gibibytes << 18,
            })
        };
        for small in [1, 4] {
            assert_eq!(options(small).segment_length, 32 << 20);
            assert_eq!(options(small).spares_max(), 8);
        }
        for large in [5, 100, 1 << 10, 8 << 10] {
            let options = options(large);
            let log = 2 * (large << 30);
            assert!(log / options.segment_length <= SEGMENTS, "{large} GiB");
            // What is kept beside the log is little beside it.
            let spares = options.spares_max() as u64 * options.segment_length;
            assert!(spares <= log / 32, "{large} GiB");
        }
        let most = options(crate::BLOCKS_MAX >> 18);
        assert_eq!(most.segment_length, 64 << 30);
    }
}
