//! Repair of a replica: what it lacks was kept or is found by comparing versions, and is copied while it takes part.

use crate::block_context::BlockVersion;
use crate::downstairs::CHUNK_BLOCKS;
use crate::geometry::{BlockSpan, block_count};
use crate::lineage::Mark;
use crate::status::MirrorState;
use crate::upstairs::activation::ActivationPhase;
use crate::upstairs::kept_repair::Replay;
use crate::upstairs::mirror::{CopiedSlots, Sent};
use crate::upstairs::questions::Asker;
use crate::upstairs::repair_batch::{BatchStep, RepairBatch, VerifiedPiece, VerifySlots};
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::{MapName, WritePurpose};
use seatrial_machine::{Output, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// One repair of a replica. An answer that belongs to an earlier one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairId {
    pub(crate) target: usize,
    number: u64,
}

/// Requests of guests in a tick up to which a repair takes its full rate.
const IDLE_REQUESTS: u64 = 4;

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
/// copied first. If all that it lacks was kept for it ([`Replay`]), that is sent, and nothing is compared. When everything is
/// carried out there, the target has everything, and counts from the next flush on.
///
/// Chunks are compared in batches, some of which are under way side by side, and a message has a piece of a batch
/// ([`RepairBatch`]): after random writes the blocks to copy are far apart, and a message for each costs more than the block.
/// Memory: a piece of each batch under way, wherever it is.
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
    /// The batches under way, by their first chunk.
    batches: BTreeMap<u64, RepairBatch>,
    /// The snapshots that the target has when it is repaired.
    known: Vec<(MapName, u64)>,
    /// Was everything compared and sent?
    is_sent: bool,
    /// Comparing begins when the target has carried out this message of its stream.
    begins_after: u64,
    /// The last message of the target's stream with a copy.
    last_number: u64,
    /// The writes that were kept for the target and are sent, if that is all that it lacks.
    pub(crate) replay: Option<Replay>,
    /// Bytes that may be copied at once, and when they were counted.
    pub(crate) budget: i64,
    budget_at: Time,
}

impl Repair {
    /// Chunks that are not compared.
    pub(crate) fn chunks_left(&self) -> u64 {
        let under_way = self.batches.values().map(|it| it.chunks);
        self.chunks.len() as u64 + under_way.sum::<u64>()
    }

    /// Counts the bytes that may be copied since the last time, at most those of a tick.
    fn refill(&mut self, now: Time, rate: u64, tick: Duration) {
        let since = now.since(self.budget_at).min(tick);
        let more = (rate as f64 * since.as_secs_f64()) as i64;
        if more > 0 {
            let most = (rate as f64 * tick.as_secs_f64()) as i64;
            self.budget = (self.budget + more).min(most);
            self.budget_at = now;
        }
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
        let missing: VecDeque<(MapName, u64)> = self
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
        // A snapshot that was made meanwhile is copied from another replica, and so is the volume.
        let replay = self.replay_for(target).filter(|_| missing.is_empty());
        self.mirrors[target].replays += u64::from(replay.is_some());
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
            batches: BTreeMap::new(),
            known: self.snapshots.clone(),
            is_sent: false,
            begins_after: 0,
            last_number: 0,
            replay,
            budget: 0,
            budget_at: Time::ZERO,
        };
        self.repairs.insert(target, repair);
        self.next_map(now, target, out);
    }

    /// The repair with this id, unless it has ended.
    pub(super) fn repair(&mut self, id: RepairId) -> Option<&mut Repair> {
        self.repairs.get_mut(&id.target).filter(|it| it.id == id)
    }

    /// Begins to copy the next snapshot, or the volume.
    fn next_map(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        let (id, source, since) = (repair.id, repair.source, repair.since);
        if repair.replay.is_some() {
            return self.step_repair(now, target, out);
        }
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
        for at in 0..self.mirrors.len() {
            if self.mirrors[at].state != MirrorState::Repairing {
                continue;
            }
            match self.repairs.get(&at) {
                Some(repair) if self.mirrors[repair.source].state == MirrorState::Active => {
                    self.step_repair(now, at, out);
                }
                Some(_) => {
                    self.repairs.remove(&at);
                }
                None => self.begin_repair(now, at, out),
            }
        }
    }

    /// Copies further pieces, compares further chunks, and ends what is done.
    pub(super) fn step_repair(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let options = &self.options;
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        let rate = options.rate_of_repair(self.is_busy, repair.replay.is_some());
        if !self.mirrors[target].has_applied(repair.begins_after) {
            return;
        }
        repair.refill(now, rate, options.tick);
        self.copy_kept(now, target, out);
        self.copy_pieces(now, target, out);
        self.compare_batches(now, target, out);
        self.end_map(now, target, out);
    }

    /// Reads the next piece of each batch whose last one the target has, and ends the batches without another one.
    fn copy_pieces(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let block_length = self.options.geometry.block_length;
        let blocks_max = (self.options.repair_piece / block_length).max(1);
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        let mirror = &self.mirrors[target];
        let mut pieces = Vec::new();
        repair.batches.retain(|number, batch| {
            let is_free = matches!(batch.step, BatchStep::Sent(it) if mirror.has_applied(it));
            if is_free && batch.is_read() {
                return false;
            }
            if is_free && repair.budget > 0 {
                let piece = batch.next_piece(blocks_max);
                let bytes = block_count(&piece) * u64::from(block_length);
                repair.budget -= bytes as i64;
                batch.step = BatchStep::Reading(piece.clone());
                batch.bad.clear();
                pieces.push((*number, piece));
            }
            true
        });
        let (id, source, map) = (repair.id, repair.source, repair.map.clone());
        for (batch, piece) in pieces {
            let asker = Asker::Copy { repair: id, batch };
            self.ask_slots(now, source, asker, (piece, map.clone()), out);
        }
    }

    /// Asks both replicas for the versions of further chunks.
    fn compare_batches(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let (window, chunks_max) = (self.options.repair_window, self.options.repair_chunks);
        loop {
            let Some(repair) = self.repairs.get_mut(&target) else {
                return;
            };
            let may_begin = repair.listing == ChunkListing::Done
                && repair.budget > 0
                && repair.batches.len() < window;
            let next = std::iter::from_fn(|| repair.chunks.pop_first());
            let chunks: Vec<u64> = next.take(if may_begin { chunks_max } else { 0 }).collect();
            let Some(batch) = chunks.first().copied() else {
                return;
            };
            let compared = RepairBatch::new(&self.options.geometry, &chunks);
            let spans = compared.spans.clone();
            repair.batches.insert(batch, compared);
            let (id, source, map) = (repair.id, repair.source, repair.map.clone());
            for (mirror, is_source) in [(source, true), (target, false)] {
                let asker = Asker::Compare {
                    repair: id,
                    batch,
                    is_source,
                };
                let what = (spans.clone(), map.clone());
                self.ask_versions(now, mirror, asker, what, out);
            }
        }
    }

    /// Ends a map of which everything was sent.
    fn end_map(&mut self, now: Time, target: usize, out: &mut Outputs) {
        let Some(repair) = self.repairs.get_mut(&target) else {
            return;
        };
        if repair.replay.is_some()
            || repair.listing != ChunkListing::Done
            || !repair.chunks.is_empty()
            || !repair.batches.is_empty()
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

    /// The versions of a batch, of the source or of the target.
    pub(super) fn have_compared(
        &mut self,
        now: Time,
        (id, number): (RepairId, u64),
        is_source: bool,
        versions: &[(BlockVersion, bool)],
        out: &mut Outputs,
    ) {
        let since = self.first_generation();
        let Some(repair) = self.repair(id) else {
            return;
        };
        let Some(batch) = repair.batches.get_mut(&number) else {
            return;
        };
        let BatchStep::Comparing(answers) = &mut batch.step else {
            return;
        };
        if versions.len() as u64 != block_count(&batch.spans) {
            self.repairs.remove(&id.target);
            return;
        }
        let versions = versions.iter().map(|it| it.0).collect();
        answers[usize::from(!is_source)] = Some(versions);
        let [Some(source), Some(there)] = answers else {
            return;
        };
        let (source, there) = (std::mem::take(source), std::mem::take(there));
        // What this generation wrote reaches the target by itself; the newer one stays. A snapshot does not change.
        let is_snapshot = !repair.map.is_empty();
        batch.compare([&source, &there], |good, here| {
            good != here && (is_snapshot || here.generation < since || good > here)
        });
        self.step_repair(now, id.target, out);
    }

    /// Slots arrived, from a source that may be another one by now: they are opened before they are copied.
    pub(super) fn have_copy(
        &mut self,
        (id, number): (RepairId, u64),
        source: usize,
        slots: Vec<u8>,
        out: &mut Outputs,
    ) {
        let Some(repair) = self.repair(id) else {
            return;
        };
        let Some(BatchStep::Reading(spans)) = repair.batches.get(&number).map(|it| &it.step) else {
            return;
        };
        let job = VerifySlots {
            spans: spans.clone(),
            keys: self.options.keys.clone(),
            repair: id,
            batch: number,
            source,
            slots,
            block_length: self.options.geometry.block_length,
        };
        let ticket = self.next_ticket();
        out.push(Output::Compute(Box::new(job), ticket));
    }

    /// Slots were opened: the intact ones are copied to the target, the others are read from another replica.
    pub(super) fn have_verified(
        &mut self,
        now: Time,
        mut verified: VerifiedPiece,
        out: &mut Outputs,
    ) {
        let (id, number, source) = (verified.repair, verified.batch, verified.source);
        let block_length = self.options.geometry.block_length;
        let active: Vec<usize> = self.active_mirrors().collect();
        let Some(repair) = self.repair(id) else {
            return;
        };
        let Some(batch) = repair.batches.get_mut(&number) else {
            return;
        };
        if !matches!(&batch.step, BatchStep::Reading(spans) if *spans == verified.spans) {
            return;
        }
        let mut other = None;
        if !verified.damaged.is_empty() {
            batch.bad.insert(source);
            other = active.iter().find(|at| !batch.bad.contains(at)).copied();
        }
        let damaged = verified.damaged_spans();
        // If no replica has an intact copy, the damaged one is copied, so that all are equal; reads of it fail.
        match verified.take(block_length, other.is_none()) {
            Some((spans, slots)) if !spans.is_empty() => {
                self.send_piece(now, id.target, spans, slots, out);
            }
            None if other.is_none() => {
                self.repairs.remove(&id.target);
                return;
            }
            _ => {}
        }
        let sent = self.mirrors[id.target].last_number();
        let Some(repair) = self.repair(id) else {
            return;
        };
        let map = repair.map.clone();
        let step = match other {
            Some(other) => {
                repair.source = other;
                BatchStep::Reading(damaged.clone())
            }
            None => BatchStep::Sent(sent),
        };
        if let Some(batch) = repair.batches.get_mut(&number) {
            batch.step = step;
        }
        if let Some(other) = other {
            self.mirrors[source].damaged += 1;
            let asker = Asker::Copy {
                repair: id,
                batch: number,
            };
            self.ask_slots(now, other, asker, (damaged, map), out);
        }
    }

    /// Sends slots to the target of a repair.
    pub(super) fn send_piece(
        &mut self,
        now: Time,
        target: usize,
        spans: Vec<BlockSpan>,
        slots: Vec<u8>,
        out: &mut Outputs,
    ) {
        let map = self.repairs.get(&target).map(|it| it.map.clone());
        self.mirrors[target].repairs[1] += block_count(&spans);
        let copied = CopiedSlots {
            purpose: WritePurpose::Repair,
            map: map.unwrap_or_default(),
            flush: self.flushes.last(),
            since: self.first_generation(),
            spans,
            slots: Arc::new(slots),
        };
        self.send_numbered(now, target, Sent::Copy(Arc::new(copied)), out);
    }
}
