//! Sweeps over all blocks in the background: filling a clone, sealing with a new key, reading all copies.

use crate::block_context::{BlockContent, BlockVersion, split_slots};
use crate::geometry::{BlockNumber, BlockSpan};
use crate::guest::{GuestError, GuestReply, GuestRequest};
use crate::seal::BlockKey;
use crate::status::{SweepKind, SweepStatus};
use crate::upstairs::parent::ParentAsker;
use crate::upstairs::questions::Asker;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use seatrial_machine::{Ticket, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Tickets of requests that the upstairs makes itself begin here, …
const INTERNAL: u64 = 1 << 63;
/// … and end here. Larger ones belong to the driver: the request to close has the largest of all.
const INTERNAL_END: u64 = 3 << 62;

/// Did the upstairs make this request itself?
pub(crate) const fn is_internal(ticket: Ticket) -> bool {
    INTERNAL <= ticket.0 && ticket.0 < INTERNAL_END
}

/// What a sweep waits for.
#[derive(Debug)]
enum SweepStep {
    /// The next piece can begin.
    Ready,
    /// A replica was asked for versions or slots of the piece.
    Asked,
    /// The parent is read.
    Parent,
    /// A request of the sweep is under way.
    Requested(Ticket),
    /// All pieces are written; they are durable with this flush.
    Ending(u64),
    /// All is durable, with this flush.
    Done(u64),
}

/// A pass over all blocks of the volume, piece by piece.
///
/// | kind | a piece |
/// | --- | --- |
/// | fill | versions of a replica → blocks never written are read from the parent → written if that is still so |
/// | rekey | writes of guests wait → contexts of a replica → blocks with an earlier key are read, and written again |
/// | repair | each replica is read; a damaged copy is replaced by that of another replica, as in reads of guests |
///
/// Nothing of it is stored: a sweep that begins again skips what has been done, since it looks at the blocks themselves. What it
/// writes are new versions, so replicas that are away get them as they get the writes of guests. Throttled by a rate, and by the
/// memory that guests leave. Cost: a question or two for 256 KiB; a sweep of a volume without work reads versions only
/// (fill) or everything once (rekey, repair).
#[derive(Debug)]
pub(crate) struct Sweep {
    number: u64,
    step: SweepStep,
    /// The piece under way; its first block is the next one of the sweep.
    piece: BlockSpan,
    /// Up to this block, pieces have one block, so that a damaged one does not hold the others up.
    narrow_until: u64,
    /// The lock of the piece.
    lock: Option<u64>,
    /// What the blocks from the first one to change hold.
    wanted: Vec<BlockContent>,
    /// Replicas that have not read the piece.
    unread: VecDeque<usize>,
    /// Damage that was counted before.
    damaged_before: u64,
    /// Bytes that it may move in this tick.
    budget: i64,
    changed: u64,
    failed: u64,
}

/// The sweeps, the last one of each kind.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    all: BTreeMap<SweepKind, Sweep>,
    last: u64,
}

impl Sweeps {
    /// Forgets all of them; those that are needed begin again with the next activation.
    pub(super) fn stop(&mut self) {
        self.all.clear();
    }

    fn kind_of(&self, number: u64) -> Option<SweepKind> {
        let mut all = self.all.iter();
        all.find(|(_, it)| it.number == number).map(|it| *it.0)
    }
}

impl Upstairs {
    /// Begins the sweeps that an activation needs.
    pub(super) fn begin_sweeps(&mut self, now: Time, out: &mut Outputs) {
        if self.options.parent.is_some() {
            self.begin_sweep(now, SweepKind::Fill, out);
        }
        if self.options.keys.has_older() {
            self.begin_sweep(now, SweepKind::Rekey, out);
        }
    }

    fn begin_sweep(&mut self, now: Time, kind: SweepKind, out: &mut Outputs) {
        let lock = self.sweeps.all.remove(&kind).and_then(|it| it.lock);
        self.locks.release(lock);
        self.sweeps.last += 1;
        let sweep = Sweep {
            number: self.sweeps.last,
            step: SweepStep::Ready,
            piece: self.piece_at(0, 0),
            narrow_until: 0,
            lock: None,
            wanted: Vec::new(),
            unread: VecDeque::new(),
            damaged_before: self.damaged(),
            budget: self.sweep_budget(),
            changed: 0,
            failed: 0,
        };
        self.sweeps.all.insert(kind, sweep);
        self.step_sweep(now, kind, out);
    }

    /// A guest wants all copies to be read.
    pub(super) fn begin_repair_sweep(
        &mut self,
        now: Time,
        ticket: Ticket,
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        let last = self.sweeps.all.get(&SweepKind::Repair);
        if last.is_some_and(|it| !matches!(it.step, SweepStep::Done(_))) {
            let error = "all copies are being read already".to_owned();
            return Err(GuestError::Refused(error));
        }
        self.begin_sweep(now, SweepKind::Repair, out);
        self.reply(ticket, GuestReply::Done, out);
        Ok(())
    }

    /// A guest adds a key.
    pub(super) fn add_key(
        &mut self,
        now: Time,
        ticket: Ticket,
        (epoch, key): (u16, &BlockKey),
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        let newest = self.options.keys.newest();
        if epoch <= newest {
            let error = format!("key {epoch} is not newer than key {newest}");
            return Err(GuestError::Refused(error));
        }
        self.options.keys = self.options.keys.clone().with(epoch, &key.0);
        self.begin_sweep(now, SweepKind::Rekey, out);
        self.reply(ticket, GuestReply::Done, out);
        Ok(())
    }

    fn damaged(&self) -> u64 {
        self.mirrors.iter().map(|it| it.damaged).sum()
    }

    fn sweep_budget(&self) -> i64 {
        (self.options.sweep_rate as f64 * self.options.tick.as_secs_f64()) as i64
    }

    /// The piece from a block on; empty at the end of the volume.
    fn piece_at(&self, first: u64, narrow_until: u64) -> BlockSpan {
        let geometry = &self.options.geometry;
        let most = if first < narrow_until {
            1
        } else {
            u64::from((self.options.sweep_piece / geometry.block_length).max(1))
        };
        BlockSpan {
            first: BlockNumber(first),
            count: most.min(geometry.blocks - first) as u32,
        }
    }

    /// Continues all sweeps; called by every tick.
    pub(super) fn step_sweeps(&mut self, now: Time, out: &mut Outputs) {
        self.step_parent(now, out);
        let budget = self.sweep_budget();
        let kinds: Vec<SweepKind> = self.sweeps.all.keys().copied().collect();
        for kind in kinds {
            if let Some(sweep) = self.sweeps.all.get_mut(&kind) {
                sweep.budget = (sweep.budget + budget).min(budget);
            }
            self.step_sweep(now, kind, out);
        }
    }

    /// Begins the next piece of a sweep, if it may, or ends the sweep.
    fn step_sweep(&mut self, now: Time, kind: SweepKind, out: &mut Outputs) {
        if !self.is_active() || !self.has_quorum() {
            return;
        }
        let durable = self.flushes.durable();
        let is_full = self.items.bytes() > self.options.retained_bytes_max / 4;
        let Some(sweep) = self.sweeps.all.get_mut(&kind) else {
            return;
        };
        match sweep.step {
            SweepStep::Ending(flush) if flush <= durable => sweep.step = SweepStep::Done(flush),
            SweepStep::Ready if sweep.piece.count == 0 => {
                self.begin_flush(now, None, out);
                let step = SweepStep::Ending(self.flushes.last());
                self.set_step(kind, step);
            }
            SweepStep::Ready if sweep.budget > 0 && !is_full => match kind {
                SweepKind::Fill => self.ask_unwritten(now, out),
                SweepKind::Rekey => self.ask_contexts(now, out),
                SweepKind::Repair => self.read_copy(now, out),
            },
            _ => {}
        }
        self.drop_old_keys();
    }

    fn set_step(&mut self, kind: SweepKind, step: SweepStep) {
        if let Some(sweep) = self.sweeps.all.get_mut(&kind) {
            sweep.step = step;
        }
    }

    /// Asks which blocks of the piece were never written.
    fn ask_unwritten(&mut self, now: Time, out: &mut Outputs) {
        let Some(sweep) = self.sweeps.all.get_mut(&SweepKind::Fill) else {
            return;
        };
        let (number, piece) = (sweep.number, sweep.piece);
        let after = self.items.last_write(piece);
        if let Some(mirror) = self.reader_of(after, &BTreeSet::new()) {
            self.set_step(SweepKind::Fill, SweepStep::Asked);
            let asker = Asker::Sweep(number);
            self.ask_versions(now, mirror, asker, (vec![piece], String::new()), out);
        }
    }

    /// The versions of a piece: blocks that were never written are read from the parent.
    pub(super) fn have_sweep_versions(
        &mut self,
        now: Time,
        number: u64,
        versions: &[(BlockVersion, bool)],
        out: &mut Outputs,
    ) {
        let Some(sweep) = self.fill(number) else {
            return;
        };
        if versions.len() != sweep.piece.count as usize {
            sweep.step = SweepStep::Ready;
            return;
        }
        let is_absent = |it: &(BlockVersion, bool)| it.0 == BlockVersion::ABSENT;
        let first = versions.iter().position(is_absent);
        let last = versions.iter().rposition(is_absent);
        let (Some(first), Some(last)) = (first, last) else {
            self.end_piece(now, SweepKind::Fill, 0, out);
            return;
        };
        let absent = versions.iter().filter(|it| is_absent(it)).count();
        sweep.wanted = vec![BlockContent::Absent; absent];
        sweep.step = SweepStep::Parent;
        let span = BlockSpan {
            first: BlockNumber(sweep.piece.first.0 + first as u64),
            count: (last - first + 1) as u32,
        };
        self.read_parent(now, ParentAsker::Fill(number), span, out);
    }

    fn fill(&mut self, number: u64) -> Option<&mut Sweep> {
        let fill = self.sweeps.all.get_mut(&SweepKind::Fill);
        fill.filter(|it| it.number == number)
    }

    /// Does this sweep still wait for the parent?
    pub(super) fn has_fill(&self, number: u64) -> bool {
        let fill = self.sweeps.all.get(&SweepKind::Fill);
        fill.is_some_and(|it| it.number == number && matches!(it.step, SweepStep::Parent))
    }

    /// Blocks of the parent are written where nothing was written meanwhile.
    pub(super) fn have_fill(
        &mut self,
        now: Time,
        number: u64,
        span: BlockSpan,
        bytes: Vec<u8>,
        out: &mut Outputs,
    ) {
        if !self.has_fill(number) {
            return;
        }
        if self.has_bug(VolumeBug::FillOverwrites) {
            let absent = self.fill(number).map_or(0, |it| it.wanted.len() as u64);
            self.write(now, span, bytes, out);
            self.end_piece(now, SweepKind::Fill, absent, out);
            return;
        }
        let ticket = self.internal_ticket();
        self.set_step(SweepKind::Fill, SweepStep::Requested(ticket));
        let first = span.first;
        self.request(
            now,
            ticket,
            GuestRequest::WriteUnwritten { first, bytes },
            out,
        );
    }

    fn internal_ticket(&mut self) -> Ticket {
        Ticket(INTERNAL | self.next_ticket().0)
    }

    /// Locks the piece, and asks with which keys its blocks are sealed.
    fn ask_contexts(&mut self, now: Time, out: &mut Outputs) {
        let keeps_writing = self.has_bug(VolumeBug::RekeyWithoutLock);
        let Some(sweep) = self.sweeps.all.get_mut(&SweepKind::Rekey) else {
            return;
        };
        let (number, piece) = (sweep.number, sweep.piece);
        if sweep.lock.is_none() && !keeps_writing {
            sweep.lock = Some(self.locks.hold(piece));
        }
        let after = self.items.last_write(piece);
        if let Some(mirror) = self.reader_of(after, &BTreeSet::new()) {
            self.set_step(SweepKind::Rekey, SweepStep::Asked);
            let asker = Asker::Sweep(number);
            self.ask_slots(now, mirror, asker, (vec![piece], String::new()), out);
        }
    }

    /// The slots of a piece: blocks with an earlier key are read, by the way of guests' reads.
    pub(super) fn have_sweep_slots(
        &mut self,
        now: Time,
        number: u64,
        slots: &[u8],
        out: &mut Outputs,
    ) {
        let newest = self.options.keys.newest();
        let length = self.options.geometry.block_length;
        let ticket = self.internal_ticket();
        let rekey = self.sweeps.all.get_mut(&SweepKind::Rekey);
        let Some(sweep) = rekey.filter(|it| it.number == number) else {
            return;
        };
        let Some(slots) = split_slots(slots, sweep.piece.count, length) else {
            sweep.step = SweepStep::Ready;
            return;
        };
        let content = |slot: &crate::BlockSlot<'_>| {
            let is_old = slot.context.epoch != newest;
            if is_old {
                slot.context.content
            } else {
                BlockContent::Absent
            }
        };
        let contents: Vec<BlockContent> = slots.iter().map(content).collect();
        let is_wanted = |it: &BlockContent| *it != BlockContent::Absent;
        let first = contents.iter().position(is_wanted);
        let last = contents.iter().rposition(is_wanted);
        let (Some(first), Some(last)) = (first, last) else {
            self.end_piece(now, SweepKind::Rekey, 0, out);
            return;
        };
        sweep.piece = BlockSpan {
            first: BlockNumber(sweep.piece.first.0 + first as u64),
            count: (last - first + 1) as u32,
        };
        sweep.wanted = contents[first..=last].to_vec();
        sweep.step = SweepStep::Requested(ticket);
        let piece = sweep.piece;
        self.begin_read(now, ticket, (piece, ""), None, out);
    }

    /// Writes the blocks of the piece that have an earlier key.
    fn seal_again(&mut self, now: Time, bytes: &[u8], out: &mut Outputs) {
        if !self.is_active() || !self.has_quorum() {
            // As writes of guests wait. The piece stays locked, and is looked at again.
            return self.set_step(SweepKind::Rekey, SweepStep::Ready);
        }
        let length = self.options.geometry.block_length as usize;
        let Some(sweep) = self.sweeps.all.get_mut(&SweepKind::Rekey) else {
            return;
        };
        let (piece, wanted) = (sweep.piece, std::mem::take(&mut sweep.wanted));
        let (mut at, mut changed) = (0, 0);
        while at < wanted.len() {
            let content = wanted[at];
            let run = wanted[at..].iter().take_while(|it| **it == content).count();
            let span = BlockSpan {
                first: BlockNumber(piece.first.0 + at as u64),
                count: run as u32,
            };
            let bytes = match content {
                BlockContent::Absent => None,
                BlockContent::Zeros => Some(Vec::new()),
                BlockContent::Data => Some(bytes[at * length..(at + run) * length].to_vec()),
            };
            if let Some(bytes) = bytes {
                self.write(now, span, bytes, out);
                changed += run as u64;
            }
            at += run;
        }
        self.end_piece(now, SweepKind::Rekey, changed, out);
    }

    /// Reads the piece from the next replica.
    fn read_copy(&mut self, now: Time, out: &mut Outputs) {
        let active: Vec<usize> = self.active_mirrors().collect();
        let ticket = self.internal_ticket();
        let Some(sweep) = self.sweeps.all.get_mut(&SweepKind::Repair) else {
            return;
        };
        if sweep.unread.is_empty() {
            sweep.unread.extend(active);
        }
        let (mirror, piece) = (sweep.unread.pop_front(), sweep.piece);
        sweep.step = SweepStep::Requested(ticket);
        self.begin_read(now, ticket, (piece, ""), mirror, out);
    }

    /// The reply to a request of a sweep.
    pub(super) fn sweep_replied(
        &mut self,
        now: Time,
        ticket: Ticket,
        reply: GuestReply,
        out: &mut Outputs,
    ) {
        let is_of = |it: &Sweep| matches!(it.step, SweepStep::Requested(of) if of == ticket);
        let mut all = self.sweeps.all.iter();
        let Some(kind) = all.find(|(_, it)| is_of(it)).map(|it| *it.0) else {
            return; // of a sweep that has ended
        };
        match (kind, reply) {
            (_, GuestReply::Failed(error)) => self.piece_failed(now, kind, &error, out),
            (SweepKind::Rekey, GuestReply::Bytes(bytes)) => self.seal_again(now, &bytes, out),
            (SweepKind::Fill, _) => {
                let fill = self.sweeps.all.get(&SweepKind::Fill);
                let absent = fill.map_or(0, |it| it.wanted.len() as u64);
                self.end_piece(now, kind, absent, out);
            }
            (SweepKind::Repair, _) => {
                let Some(sweep) = self.sweeps.all.get_mut(&kind) else {
                    return;
                };
                if sweep.unread.is_empty() {
                    self.end_piece(now, kind, 0, out);
                } else {
                    sweep.step = SweepStep::Ready;
                    self.step_sweep(now, kind, out);
                }
            }
            (SweepKind::Rekey, _) => self.set_step(kind, SweepStep::Ready),
        }
    }

    /// No replica could deliver the piece: it is done again block by block, and blocks that fail are counted.
    fn piece_failed(&mut self, now: Time, kind: SweepKind, error: &GuestError, out: &mut Outputs) {
        let Some(sweep) = self.sweeps.all.get_mut(&kind) else {
            return;
        };
        let is_damage = matches!(error, GuestError::Damaged(_));
        sweep.unread.clear();
        if is_damage && sweep.piece.count == 1 {
            sweep.failed += 1;
            self.end_piece(now, kind, 0, out);
            return;
        }
        if is_damage {
            sweep.narrow_until = sweep.piece.end();
        }
        let (first, until) = (sweep.piece.first.0, sweep.narrow_until);
        let lock = sweep.lock.take();
        sweep.step = SweepStep::Ready;
        let piece = self.piece_at(first, until);
        if let Some(sweep) = self.sweeps.all.get_mut(&kind) {
            sweep.piece = piece;
        }
        self.locks.release(lock);
        self.admit_writes(now, out);
    }

    /// A piece is done; the next one begins.
    fn end_piece(&mut self, now: Time, kind: SweepKind, changed: u64, out: &mut Outputs) {
        let length = i64::from(self.options.geometry.block_length);
        let Some(sweep) = self.sweeps.all.get_mut(&kind) else {
            return;
        };
        sweep.changed += changed;
        sweep.wanted.clear();
        // Looking at versions costs next to nothing.
        let is_moved = changed > 0 || kind != SweepKind::Fill;
        sweep.budget -= i64::from(is_moved) * i64::from(sweep.piece.count) * length;
        let (next, until) = (sweep.piece.end(), sweep.narrow_until);
        sweep.step = SweepStep::Ready;
        let lock = sweep.lock.take();
        let piece = self.piece_at(next, until);
        if let Some(sweep) = self.sweeps.all.get_mut(&kind) {
            sweep.piece = piece;
        }
        self.locks.release(lock);
        self.admit_writes(now, out);
        self.step_sweep(now, kind, out);
    }

    /// A replica did not answer: the piece begins again, with the next tick.
    pub(super) fn sweep_unanswered(&mut self, number: u64) {
        if let Some(kind) = self.sweeps.kind_of(number) {
            self.set_step(kind, SweepStep::Ready);
        }
    }

    /// Drops earlier keys when no block needs them.
    fn drop_old_keys(&mut self) {
        if !self.options.keys.has_older() {
            return;
        }
        let rekey = self.sweeps.all.get(&SweepKind::Rekey);
        let is_done = rekey.is_some_and(|it| {
            matches!(it.step, SweepStep::Done(_)) && it.failed == 0 && self.needed_by(it).is_empty()
        });
        if is_done {
            self.options.keys.drop_older();
        }
    }

    /// Snapshots that are older than the end of a sweep.
    fn needed_by(&self, sweep: &Sweep) -> Vec<String> {
        let end = match sweep.step {
            SweepStep::Done(flush) => flush,
            _ => u64::MAX,
        };
        let older = self.snapshots.iter().filter(|it| it.1 <= end);
        older.map(|it| it.0.clone()).collect()
    }

    /// The progress of all sweeps.
    pub(super) fn sweep_status(&self) -> Vec<SweepStatus> {
        let status = |(kind, sweep): (&SweepKind, &Sweep)| SweepStatus {
            kind: *kind,
            looked: sweep.piece.first.0,
            blocks: self.options.geometry.blocks,
            changed: match kind {
                SweepKind::Repair => self.damaged() - sweep.damaged_before,
                SweepKind::Fill | SweepKind::Rekey => sweep.changed,
            },
            failed: sweep.failed,
            is_done: matches!(sweep.step, SweepStep::Done(_)),
            needed_by: match kind {
                SweepKind::Repair => Vec::new(),
                SweepKind::Fill | SweepKind::Rekey => self.needed_by(sweep),
            },
            reason: match sweep.step {
                SweepStep::Parent => self.parent_reads.reason.clone(),
                _ => String::new(),
            },
        };
        self.sweeps.all.iter().map(status).collect()
    }
}
