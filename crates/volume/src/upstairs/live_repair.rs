//! Repair of a replica: what it lacks is found by comparing versions, and copied while it takes part.

use crate::block_context::{BlockSlot, BlockVersion, split_slots};
use crate::downstairs::{CHUNK_BLOCKS, chunk_span};
use crate::geometry::{BlockNumber, BlockSpan};
use crate::lineage::Mark;
use crate::seal::KeyRing;
use crate::status::MirrorState;
use crate::upstairs::activation::ActivationPhase;
use crate::upstairs::mirror::{CopiedSlots, Sent};
use crate::upstairs::questions::Asker;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::{MapName, WritePurpose};
use seatrial_machine::{Computed, Job, Output, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One repair of a replica. An answer that belongs to an earlier one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairId {
    pub(crate) target: usize,
    number: u64,
}

/// Requests of guests in a tick up to which a repair takes its full rate.
const IDLE_REQUESTS: u64 = 4;
/// Blocks between two that are copied which are read with them: a question costs more.
const GAP_MAX: usize = 3;
/// Bytes that a read of the source is counted with besides its blocks.
const PART_COST: i64 = 4 << 10;

/// What is known of a chunk that is compared.
#[derive(Debug, Default)]
struct ComparedChunk {
    source: Option<Vec<BlockVersion>>,
    target: Option<Vec<BlockVersion>>,
    /// The blocks that are to be copied and were not asked for.
    wanted: Vec<bool>,
    /// The blocks that are read from the source, and which of them are to be copied.
    copied: Option<(BlockSpan, Vec<bool>)>,
    /// Replicas that delivered a damaged copy.
    bad: BTreeSet<usize>,
}

/// Which list of changed chunks is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkListing {
    OfSource,
    OfTarget,
    Done,
}

/// The repair of one replica.
///
/// Source and target agree up to a flush of their common history ([`crate::Lineage::common_flush`]). The chunks that either
/// changed after it are compared block by block, and blocks with another version are copied. The target gets every new write
/// meanwhile; it keeps what this generation wrote if it is newer, so copying needs no lock. Snapshots that the target lacks are
/// copied first. When everything is carried out there, the target has everything, and counts from the next flush on.
#[derive(Debug)]
pub(crate) struct Repair {
    id: RepairId,
    source: usize,
    /// Both agree up to this flush.
    since: u64,
    /// Snapshots to copy; after them the volume itself.
    snapshots: VecDeque<(MapName, u64)>,
    /// What is being copied.
    map: MapName,
    listing: ChunkListing,
    chunks: BTreeSet<u64>,
    compared: BTreeMap<u64, ComparedChunk>,
    /// The snapshots that the target has when it is repaired.
    known: Vec<(MapName, u64)>,
    /// Was everything compared and sent?
    is_sent: bool,
    /// Comparing begins when the target has carried out this message of its stream.
    begins_after: u64,
    /// The last message of the target's stream with a copy.
    last_number: u64,
    /// Bytes that may still be copied in this tick.
    budget: i64,
}

impl Repair {
    /// Chunks that are not compared.
    pub(crate) fn chunks_left(&self) -> u64 {
        (self.chunks.len() + self.compared.len()) as u64
    }
}

/// Opens slots that are to be copied, so that no damage is.
struct VerifySlots {
    keys: KeyRing,
    repair: RepairId,
    chunk: u64,
    source: usize,
    span: BlockSpan,
    wanted: Vec<bool>,
    slots: Vec<u8>,
    block_length: u32,
}

/// Slots of a chunk that were opened.
pub(crate) struct VerifiedChunk {
    repair: RepairId,
    chunk: u64,
    source: usize,
    span: BlockSpan,
    slots: Vec<u8>,
    is_intact: bool,
}

impl Job for VerifySlots {
    fn run(self: Box<Self>) -> Computed {
        let slots = split_slots(&self.slots, self.span.count, self.block_length);
        let mut plain = Vec::new();
        let is_intact = slots.is_some_and(|slots| {
            let blocks = self.span.blocks().zip(&slots).zip(&self.wanted);
            blocks
                .filter(|(_, wanted)| **wanted)
                .all(|((block, slot), _)| {
                    plain.clear();
                    self.keys.open(&mut plain, block, slot, self.block_length)
                })
        });
        Box::new(VerifiedChunk {
            repair: self.repair,
            chunk: self.chunk,
            source: self.source,
            span: self.span,
            slots: self.slots,
            is_intact,
        })
    }
}

impl Upstairs {
    /// Begins the repair of a replica, if another one has everything.
    pub(super) fn begin_repair(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let Some(source) = self.active_mirrors().find(|at| *at != target) else {
            return; // a tick tries again
        };
        let here = Mark {
            generation: self.generation,
            flush: self.flushes.durable().max(self.flushes.last()),
        };
        let mirror = &mut self.mirrors[target];
        let since = self
            .lineage
            .common_flush(here, &mirror.lineage, mirror.mark);
        mirror.repairs[0] += 1;
        let has = |name: &(MapName, u64)| mirror.snapshots.contains(name);
        let missing = self
            .snapshots
            .iter()
            .filter(|it| !has(it))
            .cloned()
            .collect();
        let surplus: Vec<MapName> = mirror
            .snapshots
            .iter()
            .filter(|it| !self.snapshots.contains(it))
            .map(|it| it.0.clone())
            .collect();
        for name in surplus {
            self.send_numbered(now, target, Sent::DropSnapshot(name), out);
        }
        self.tickets += 1;
        let repair = Repair {
            id: RepairId {
                target,
                number: self.tickets,
            },
            source,
            since,
            snapshots: missing,
            map: MapName::new(),
            listing: ChunkListing::Done,
            chunks: BTreeSet::new(),
            compared: BTreeMap::new(),
            known: self.snapshots.clone(),
            is_sent: false,
            begins_after: 0,
            last_number: 0,
            budget: self.budget(),
        };
        self.repairs.insert(target, repair);
        self.next_map(now, target, out);
    }

    /// The repair with this id, unless it has ended.
    pub(super) fn repair(&mut self, id: RepairId) -> Option<&mut Repair> {
        self.repairs.get_mut(&id.target).filter(|it| it.id == id)
    }

    /// Bytes that a repair may copy in a tick.
    fn budget(&self) -> i64 {
        let rate = if self.is_busy {
            self.options.repair_rate_busy
        } else {
            self.options.repair_rate
        };
        (rate as f64 * self.options.tick.as_secs_f64()) as i64
    }

    /// Begins to copy the next snapshot, or the volume.
    fn next_map(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        let (id, source, since) = (repair.id, repair.source, repair.since);
        let Some((name, flush)) = repair.snapshots.pop_front() else {
            repair.map.clear();
            repair.listing = ChunkListing::OfSource;
            self.ask_changes(now, source, id, (since, 0), out);
            return;
        };
        repair.map.clone_from(&name);
        let chunks = self.options.geometry.blocks.div_ceil(CHUNK_BLOCKS);
        repair.chunks = (0..chunks).collect();
        self.send_numbered(now, target, Sent::BeginSnapshot(name, flush), out);
        // The copy of an earlier attempt must not be compared: it is about to be replaced.
        if let Some(repair) = self.repairs.get_mut(&target) {
            repair.begins_after = self.mirrors[target].last_number();
        }
    }

    /// A list of changed chunks, of the source or of the target.
    pub(super) fn have_changes(
        &mut self,
        now: Time,
        id: RepairId,
        next: u64,
        chunks: &[u64],
        out: &mut Outputs,
    ) {
        let keeps_ghosts = self.has_bug(VolumeBug::GhostsKept);
        let target = id.target;
        let Some(repair) = self.repair(id) else {
            return;
        };
        repair.chunks.extend(chunks);
        let since = repair.since;
        let (mirror, from) = match (repair.listing, next) {
            (ChunkListing::OfSource, u64::MAX) if keeps_ghosts => {
                repair.listing = ChunkListing::Done;
                (target, u64::MAX)
            }
            (ChunkListing::OfSource, u64::MAX) => {
                repair.listing = ChunkListing::OfTarget;
                (target, 0)
            }
            (ChunkListing::OfTarget | ChunkListing::Done, u64::MAX) => {
                repair.listing = ChunkListing::Done;
                (target, u64::MAX)
            }
            (ChunkListing::OfSource, next) => (repair.source, next),
            (_, next) => (target, next),
        };
        if from == u64::MAX {
            self.step_repair(now, target, out);
        } else {
            self.ask_changes(now, mirror, id, (since, from), out);
        }
    }

    /// Begins and continues repairs; called by every tick.
    pub(super) fn step_repairs(&mut self, now: Time, out: &mut Outputs) {
        let done = self.done.iter().sum();
        let before = std::mem::replace(&mut self.done_at_tick, done);
        self.is_busy = done - before > IDLE_REQUESTS;
        let budget = self.budget();
        for at in 0..self.mirrors.len() {
            if self.mirrors[at].state != MirrorState::Repairing {
                continue;
            }
            match self.repairs.get_mut(&at) {
                Some(repair) if self.mirrors[repair.source].state == MirrorState::Active => {
                    repair.budget = (repair.budget + budget).min(budget);
                    self.step_repair(now, at, out);
                }
                Some(_) => {
                    self.repairs.remove(&at);
                }
                None => self.begin_repair(now, at, out),
            }
        }
    }

    /// Compares further chunks, and ends what is done.
    pub(super) fn step_repair(&mut self, now: Time, target: usize, out: &mut Outputs) {
        loop {
            let window = self.options.repair_window;
            let Some(repair) = self.repairs.get_mut(&target) else {
                return;
            };
            if !self.mirrors[target].has_applied(repair.begins_after) {
                return;
            }
            if repair.listing != ChunkListing::Done
                || repair.budget <= 0
                || repair.compared.len() >= window
            {
                break;
            }
            let Some(chunk) = repair.chunks.pop_first() else {
                break;
            };
            repair.compared.insert(chunk, ComparedChunk::default());
            let (id, source, map) = (repair.id, repair.source, repair.map.clone());
            let span = chunk_span(&self.options.geometry, chunk);
            for (mirror, is_source) in [(source, true), (target, false)] {
                let asker = Asker::Compare {
                    repair: id,
                    chunk,
                    is_source,
                };
                self.ask_versions(now, mirror, asker, (span, map.clone()), out);
            }
        }
        self.end_map(now, target, out);
    }

    /// Ends a map of which everything was sent.
    fn end_map(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        if repair.listing != ChunkListing::Done
            || !repair.chunks.is_empty()
            || !repair.compared.is_empty()
        {
            return;
        }
        if !repair.map.is_empty() {
            let name = std::mem::take(&mut repair.map);
            self.send_numbered(now, target, Sent::EndSnapshot(name), out);
            self.next_map(now, target, out);
            return;
        }
        if !std::mem::replace(&mut repair.is_sent, true) {
            repair.last_number = self.mirrors[target].last_number();
        }
        if !self.mirrors[target].has_applied(repair.last_number) {
            return;
        }
        // A replica in repair takes no part in a snapshot: it has to copy one that was made meanwhile.
        if self.flushes.is_snapshot_pending() {
            return;
        }
        if repair.known.iter().ne(self.snapshots.iter()) {
            let known = std::mem::take(&mut repair.known);
            self.mirrors[target].snapshots = known;
            self.repairs.remove(&target);
            self.begin_repair(now, target, out);
            return;
        }
        self.repaired(now, target, out);
    }

    /// A replica has everything. It counts from the next flush on.
    fn repaired(&mut self, now: Time, target: usize, out: &mut Outputs) {
        self.repairs.remove(&target);
        let mirror = &mut self.mirrors[target];
        mirror.state = MirrorState::Active;
        mirror.complete_from = self.flushes.last() + 1;
        mirror.snapshots.clone_from(&self.snapshots);
        let is_flushed = matches!(
            self.phase,
            ActivationPhase::Reconciling {
                is_flushed: true,
                ..
            }
        );
        if self.is_active() || is_flushed {
            self.push_flush(now, None, String::new(), String::new(), out);
        }
        self.step_activation(now, out);
        self.progress(now, out);
    }

    /// The versions of a chunk, of the source or of the target.
    pub(super) fn have_compared(
        &mut self,
        now: Time,
        id: RepairId,
        chunk: u64,
        is_source: bool,
        versions: Vec<(BlockVersion, bool)>,
        out: &mut Outputs,
    ) {
        let since = self.first_generation();
        let span = chunk_span(&self.options.geometry, chunk);
        let target = id.target;
        let Some(repair) = self.repair(id) else {
            return;
        };
        let Some(compared) = repair.compared.get_mut(&chunk) else {
            return;
        };
        let versions: Vec<BlockVersion> = versions.into_iter().map(|it| it.0).collect();
        if versions.len() != span.count as usize {
            self.repairs.remove(&target);
            return;
        }
        if is_source {
            compared.source = Some(versions);
        } else {
            compared.target = Some(versions);
        }
        let (Some(source), Some(there)) = (&compared.source, &compared.target) else {
            return;
        };
        // What this generation wrote reaches the target by itself; the newer one stays. A snapshot does not change.
        let is_snapshot = !repair.map.is_empty();
        let is_wanted = |(good, here): (&BlockVersion, &BlockVersion)| {
            good != here && (is_snapshot || here.generation < since || good > here)
        };
        compared.wanted = source.iter().zip(there).map(is_wanted).collect();
        self.copy_part(now, id, chunk, out);
    }

    /// Reads the next blocks of a chunk that are to be copied, or ends the chunk. Random writes leave few of them, far apart, so
    /// what is between them is not read, unless it is little.
    fn copy_part(&mut self, now: Time, id: RepairId, chunk: u64, out: &mut Outputs) {
        let span = chunk_span(&self.options.geometry, chunk);
        let block_length = self.options.geometry.block_length;
        let Some(repair) = self.repair(id) else {
            return;
        };
        let Some(compared) = repair.compared.get_mut(&chunk) else {
            return;
        };
        let Some(first) = compared.wanted.iter().position(|it| *it) else {
            repair.compared.remove(&chunk);
            self.step_repair(now, id.target, out);
            return;
        };
        let mut end = first + 1;
        while let Some(gap) = compared.wanted[end..].iter().position(|it| *it)
            && gap <= GAP_MAX
        {
            end += gap + 1;
        }
        let part = BlockSpan {
            first: BlockNumber(span.first.0 + first as u64),
            count: (end - first) as u32,
        };
        compared.copied = Some((part, compared.wanted[first..end].to_vec()));
        compared.wanted[first..end].fill(false);
        let what = (part, repair.map.clone());
        let source = repair.source;
        repair.budget -= i64::from(part.count) * i64::from(block_length) + PART_COST;
        self.ask_slots(now, source, Asker::Copy { repair: id, chunk }, what, out);
    }

    /// Slots of the source arrived: they are opened before they are copied.
    pub(super) fn have_copy(
        &mut self,
        id: RepairId,
        chunk: u64,
        slots: Vec<u8>,
        out: &mut Outputs,
    ) {
        let Some(repair) = self.repair(id) else {
            return;
        };
        let source = repair.source;
        let compared = repair.compared.get(&chunk);
        let Some((span, wanted)) = compared.and_then(|it| it.copied.clone()) else {
            return;
        };
        let job = VerifySlots {
            keys: self.options.keys.clone(),
            repair: id,
            chunk,
            source,
            span,
            wanted,
            slots,
            block_length: self.options.geometry.block_length,
        };
        let ticket = self.next_ticket();
        out.push(Output::Compute(Box::new(job), ticket));
    }

    /// Slots were opened: they are copied to the target.
    pub(super) fn have_verified(&mut self, now: Time, verified: &VerifiedChunk, out: &mut Outputs) {
        let (id, chunk, span) = (verified.repair, verified.chunk, verified.span);
        let target = id.target;
        let active: Vec<usize> = self.active_mirrors().collect();
        let Some(repair) = self.repair(id) else {
            return;
        };
        let map = repair.map.clone();
        let Some(compared) = repair.compared.get_mut(&chunk) else {
            return;
        };
        let Some((_, wanted)) = compared.copied.clone().filter(|it| it.0 == span) else {
            return;
        };
        if !verified.is_intact {
            compared.bad.insert(verified.source);
            let other = active.iter().find(|at| !compared.bad.contains(at));
            if let Some(other) = other {
                repair.source = *other;
                self.mirrors[verified.source].damaged += 1;
                let asker = Asker::Copy { repair: id, chunk };
                self.ask_slots(now, *other, asker, (span, map), out);
                return;
            }
            // No replica has an intact copy. The damaged one is copied, so that all are equal; reads of it fail.
            if !self.are_slots(&verified.slots, span) {
                self.repairs.remove(&target);
                return;
            }
        }
        let since = self.first_generation();
        let length = self.options.geometry.block_length;
        let Some(slots) = split_slots(&verified.slots, span.count, length) else {
            return;
        };
        let mut at = 0;
        while at < wanted.len() {
            let run = wanted[at..].iter().take_while(|it| **it).count();
            if run > 0 {
                let copied = CopiedSlots {
                    purpose: WritePurpose::Repair,
                    map: map.clone(),
                    flush: self.flushes.last(),
                    since,
                    span: BlockSpan {
                        first: BlockNumber(span.first.0 + at as u64),
                        count: run as u32,
                    },
                    slots: bytes_of(&slots[at..at + run]),
                };
                self.mirrors[target].repairs[1] += run as u64;
                self.send_numbered(now, target, Sent::Copy(Arc::new(copied)), out);
            }
            at += run.max(1);
        }
        self.copy_part(now, id, chunk, out);
    }
}

/// The bytes of slots, back to back.
fn bytes_of(slots: &[BlockSlot<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(slots.iter().map(|it| it.bytes.len()).sum());
    for slot in slots {
        bytes.extend_from_slice(slot.bytes);
    }
    bytes
}
