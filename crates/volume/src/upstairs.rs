//! The owner of a volume: takes a guest's requests and keeps its replicas equal.

mod activation;
mod flushes;
mod guest_reads;
mod kept_repair;
mod kept_writes;
mod live_repair;
mod mirror;
mod parent;
mod questions;
mod repair_batch;

mod seal_jobs;
mod stream_items;
mod sweeps;
mod unwritten;
mod volume_description;
mod writes;

use crate::block_context::BlockVersion;
use crate::geometry::{BlockSpan, Geometry};
use crate::guest::{GuestError, GuestReply, GuestRequest, REQUEST_LENGTH_MAX};
use crate::lineage::Lineage;
use crate::seal::KeyRing;
use crate::status::{MirrorState, MirrorStatus, VolumeStatus};
use crate::volume_bug::VolumeBug;
use crate::volume_message::FromReplica;
use activation::ActivationPhase;
use flushes::Flushes;
use guest_reads::GuestReads;
use kept_writes::KeptWrites;
use live_repair::Repair;
use mirror::Mirror;
pub use parent::ParentVolume;
use parent::{ParentBlocks, ParentReads};
use questions::Questions;
use repair_batch::VerifiedPiece;
use seal_jobs::{BytesPart, OpenedSlots, SealedSlots};
use seatrial_machine::{Input, Machine, NodeId, Output, StatusSheet, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stream_items::StreamItems;
use sweeps::{Sweeps, is_internal};
use unwritten::RangeLocks;
use volume_description::UpstairsFigures;

/// What the upstairs pushes.
pub(crate) type Outputs = Vec<Output<GuestReply>>;

/// Options of an upstairs.
#[derive(Clone, Debug)]
pub struct UpstairsOptions {
    /// The volume.
    pub geometry: Geometry,
    /// Its keys.
    pub keys: KeyRing,
    /// The replicas, at most 16.
    pub replicas: Vec<NodeId>,
    /// Replicas that must have a flush, or grant a generation. More than half of them.
    pub quorum: usize,
    /// Identifies this start: a random number, not 0.
    pub upstairs: u128,
    /// Activate at the start, and again when that fails.
    pub activates: bool,
    /// Interval of looking after what is late.
    pub tick: Duration,
    /// A message without an answer is sent again after this.
    pub resend_after: Duration,
    /// A replica that is silent for this long is offline.
    pub silence: Duration,
    /// Writes are flushed at the latest after this.
    pub flush_interval: Duration,
    /// Bytes of writes that may be under way or not durable; further ones wait.
    pub retained_bytes_max: usize,
    /// Bytes of writes that are kept for a replica that is away, besides those. One that missed more is compared with another.
    pub kept_bytes_max: usize,
    /// Longer writes are encrypted, and longer reads decrypted, by jobs.
    pub inline_bytes_max: usize,
    /// Batches of chunks that one repair has under way.
    pub repair_window: usize,
    /// Chunks of a batch, 1 to 64.
    pub repair_chunks: usize,
    /// Bytes of blocks that a repair reads or sends in one message, at most [`READ_LENGTH_MAX`](crate::READ_LENGTH_MAX).
    pub repair_piece: u32,
    /// Bytes a second that a repair may copy, …
    pub repair_rate: u64,
    /// … while guests use the volume, …
    pub repair_rate_busy: u64,
    /// … and while guests use it, of writes that were kept, which cost less: what a replica missed in a restart is there within a
    /// second.
    pub repair_rate_kept: u64,
    /// Bytes a second that each sweep over all blocks may read or write.
    pub sweep_rate: u64,
    /// Bytes that a sweep handles at once, at most [`READ_LENGTH_MAX`](crate::READ_LENGTH_MAX).
    pub sweep_piece: u32,
    /// Where blocks are read that were never written: the volume is a clone.
    pub parent: Option<Arc<dyn ParentVolume>>,
    /// A bug to plant.
    pub bug: Option<VolumeBug>,
}

impl UpstairsOptions {
    /// Bytes a second that a repair may copy, of kept writes or of what it reads.
    const fn rate_of_repair(&self, is_busy: bool, is_replay: bool) -> u64 {
        match (is_busy, is_replay) {
            (false, _) => self.repair_rate,
            (true, true) => self.repair_rate_kept,
            (true, false) => self.repair_rate_busy,
        }
    }

    /// The usual options: a quorum of more than half.
    pub fn new(
        geometry: Geometry,
        keys: KeyRing,
        replicas: Vec<NodeId>,
        upstairs: u128,
    ) -> UpstairsOptions {
        UpstairsOptions {
            geometry,
            keys,
            quorum: replicas.len() / 2 + 1,
            replicas,
            upstairs,
            activates: false,
            tick: Duration::from_millis(50),
            resend_after: Duration::from_millis(500),
            silence: Duration::from_secs(3),
            flush_interval: Duration::from_millis(500),
            retained_bytes_max: 64 << 20,
            kept_bytes_max: 128 << 20,
            inline_bytes_max: 8 << 10,
            repair_window: 4,
            repair_chunks: 32,
            repair_piece: 256 << 10,
            repair_rate: 200 << 20,
            repair_rate_busy: 18 << 20,
            repair_rate_kept: 80 << 20,
            sweep_rate: 100 << 20,
            sweep_piece: 256 << 10,
            parent: None,
            bug: None,
        }
    }
}

/// The owner of a volume.
///
/// A write gets the next version ([`BlockVersion`]), is encrypted, and is sent to every replica in one order, the same for all.
/// It is acknowledged to the guest at once, and kept until it is durable on a quorum and carried out by every replica in session
/// (`stream_items`). A read goes to one replica that has carried out every earlier write to its blocks (`guest_reads`).
/// Because a block's newest version wins wherever it arrives, writes need no order among themselves, a message may be sent
/// twice, and a replica may be repaired while it is written: with the writes that were kept for it (`kept_repair`), or with the
/// blocks of another one that differ (`live_repair`).
///
/// An activation is a generation granted durably by a quorum, a replica among them whose last flush is the newest, the others
/// made equal to it, and a flush (`activation`). From then on a quorum has everything that was ever acknowledged as durable.
///
/// Its loop: a request or a message → outputs; a tick looks after what is late. Memory: the retained writes and the kept ones,
/// both bounded, and the requests of the guest. Cost: a copy of each write for each replica.
#[derive(Debug)]
pub struct Upstairs {
    options: UpstairsOptions,
    phase: ActivationPhase,
    generation: u32,
    /// The generations of this activation: the first, and those to which it was raised.
    generations: Vec<u32>,
    /// Was the generation chosen here, and not by the guest?
    is_chosen: bool,
    lineage: Lineage,
    mirrors: Vec<Mirror>,
    items: StreamItems,
    kept: KeptWrites,
    flushes: Flushes,
    reads: GuestReads,
    questions: Questions,
    repairs: BTreeMap<usize, Repair>,
    locks: RangeLocks,
    parent_reads: ParentReads,
    sweeps: Sweeps,
    /// Names of the snapshots, and the flush of each.
    snapshots: Vec<(String, u64)>,
    /// Counts the blocks that were sealed.
    counter: u64,
    /// Writes that wait for memory, or for a quorum.
    waiting: VecDeque<(Ticket, GuestRequest)>,
    tickets: u64,
    sessions: u64,
    /// When the next tick is due.
    tick_at: Time,
    done: [u64; 4],
    /// Requests that were done at the last tick, and whether guests used the volume before it.
    done_at_tick: u64,
    is_busy: bool,
    bytes: [u64; 2],
    /// Replies to guests, and those of them that are errors.
    replies: u64,
    failed: u64,
    figures: UpstairsFigures,
}

impl Upstairs {
    /// An upstairs without sessions.
    ///
    /// Panics if the quorum is not more than half of 1 to 16 replicas.
    pub fn new(mut options: UpstairsOptions) -> Upstairs {
        let count = options.replicas.len();
        assert!(
            (1..=16).contains(&count) && options.quorum * 2 > count && options.quorum <= count,
            "a quorum of {} of {count} replicas",
            options.quorum
        );
        if options.bug == Some(VolumeBug::SwappedBlocks) {
            options.keys = options.keys.without_block_numbers();
        }
        Upstairs {
            phase: ActivationPhase::Inactive,
            generation: 0,
            generations: Vec::new(),
            is_chosen: false,
            lineage: Lineage::default(),
            mirrors: options
                .replicas
                .iter()
                .map(|node| Mirror::new(*node))
                .collect(),
            items: StreamItems::default(),
            kept: KeptWrites::new(options.kept_bytes_max),
            flushes: Flushes::default(),
            reads: GuestReads::default(),
            questions: Questions::default(),
            repairs: BTreeMap::new(),
            locks: RangeLocks::default(),
            parent_reads: ParentReads::default(),
            sweeps: Sweeps::default(),
            snapshots: Vec::new(),
            counter: 0,
            waiting: VecDeque::new(),
            tickets: 0,
            // A message of an earlier start, still under way, must not pass for one of this start.
            sessions: ((options.upstairs >> 64) as u64 ^ options.upstairs as u64) << 24,
            tick_at: Time::ZERO,
            done: [0; 4],
            done_at_tick: 0,
            is_busy: false,
            bytes: [0; 2],
            replies: 0,
            failed: 0,
            figures: UpstairsFigures::default(),
            options,
        }
    }

    /// Can guests use the volume?
    pub fn is_active(&self) -> bool {
        matches!(self.phase, ActivationPhase::Active)
    }

    /// The first generation of this activation; 0 before the first one. It rises with each activation, and no other upstairs
    /// has it.
    pub fn activation(&self) -> u32 {
        self.first_generation()
    }

    /// What it is doing.
    pub fn status(&self) -> VolumeStatus {
        VolumeStatus {
            is_active: self.is_active(),
            generation: self.generation,
            flush: self.flushes.durable(),
            retained_bytes: self.items.bytes() as u64,
            requests: (self.waiting.len() + self.reads.len() + self.flushes.waiters()) as u64,
            done: self.done,
            bytes: self.bytes,
            replies: self.replies,
            failed: self.failed,
            replicas: self
                .mirrors
                .iter()
                .enumerate()
                .map(|(at, it)| self.mirror_status(at, it))
                .collect(),
            snapshots: self.snapshots.iter().map(|it| it.0.clone()).collect(),
            epoch: (self.options.keys.newest(), self.options.keys.has_older()),
            sweeps: self.sweep_status(),
            stages: self.stage_status(),
        }
    }

    fn mirror_status(&self, at: usize, mirror: &Mirror) -> MirrorStatus {
        MirrorStatus {
            node: mirror.node,
            state: mirror.state,
            reason: mirror.reason.clone(),
            unacknowledged: mirror.unacknowledged() as u64,
            repairs: mirror.repairs,
            replays: mirror.replays,
            chunks_left: self.repairs.get(&at).map_or(0, Repair::chunks_left),
            writes_left: self.writes_left(at),
            resent: mirror.resent,
            damaged: mirror.damaged,
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Takes the versions of this many blocks.
    fn take_versions(&mut self, count: u32) -> BlockVersion {
        let version = BlockVersion {
            generation: self.generation,
            counter: self.counter + 1,
        };
        self.counter += u64::from(count);
        version
    }

    /// The first generation of this activation.
    fn first_generation(&self) -> u32 {
        self.generations.first().copied().unwrap_or(self.generation)
    }

    fn has_bug(&self, bug: VolumeBug) -> bool {
        self.options.bug == Some(bug)
    }

    /// The whole blocks of a request; the error names what is wrong.
    fn span_of(&self, first: crate::BlockNumber, bytes: usize) -> Result<BlockSpan, GuestError> {
        let length = self.options.geometry.block_length as usize;
        if bytes == 0 || !bytes.is_multiple_of(length) || bytes > REQUEST_LENGTH_MAX {
            return Err(GuestError::Range(format!(
                "{bytes} bytes are not whole blocks of {length} bytes, up to {REQUEST_LENGTH_MAX}"
            )));
        }
        self.checked(BlockSpan {
            first,
            count: (bytes / length) as u32,
        })
    }

    /// The blocks of a request to a snapshot.
    fn span_of_snapshot(&self, name: &str, span: BlockSpan) -> Result<BlockSpan, GuestError> {
        if !self.snapshots.iter().any(|it| it.0 == name) {
            return Err(GuestError::Snapshot(format!("there is no snapshot {name}")));
        }
        self.checked(span)
    }

    fn checked(&self, span: BlockSpan) -> Result<BlockSpan, GuestError> {
        if self.options.geometry.contains(span) {
            return Ok(span);
        }
        Err(GuestError::Range(format!(
            "{span} are not in the volume, which has {}",
            self.options.geometry.blocks
        )))
    }

    fn reply(&mut self, ticket: Ticket, reply: GuestReply, out: &mut Outputs) {
        if is_internal(ticket) {
            let now = self.figures.now;
            return self.sweep_replied(now, ticket, reply, out);
        }
        self.replies += 1;
        let is_error = matches!(reply, GuestReply::Failed(_));
        self.figures.end(ticket, is_error);
        out.push(Output::Reply(ticket, reply));
    }

    fn fail(&mut self, ticket: Ticket, error: GuestError, out: &mut Outputs) {
        self.failed += u64::from(!is_internal(ticket));
        self.reply(ticket, GuestReply::Failed(error), out);
    }

    /// A request of a guest.
    fn request(&mut self, now: Time, ticket: Ticket, request: GuestRequest, out: &mut Outputs) {
        self.figures.begin(ticket, &request);
        let result = match request {
            GuestRequest::Status => {
                let status = Box::new(self.status());
                return self.reply(ticket, GuestReply::Status(status), out);
            }
            GuestRequest::Activate { generation } => self.activate(now, ticket, generation, out),
            _ if !self.is_active() => Err(self.inactive()),
            GuestRequest::Read(span) => self
                .checked(span)
                .map(|span| self.begin_read(now, ticket, (span, ""), None, out)),
            GuestRequest::ReadSnapshot(name, span) => self
                .span_of_snapshot(&name, span)
                .map(|span| self.begin_read(now, ticket, (span, &name), None, out)),
            GuestRequest::Write { .. }
            | GuestRequest::Trim { .. }
            | GuestRequest::WriteUnwritten { .. } => {
                self.waiting.push_back((ticket, request));
                self.admit_writes(now, out);
                Ok(())
            }
            GuestRequest::Extents(span) => self
                .checked(span)
                .map(|span| self.begin_extents(now, ticket, span, "", out)),
            GuestRequest::SnapshotExtents(name, span) => self
                .span_of_snapshot(&name, span)
                .map(|span| self.begin_extents(now, ticket, span, &name, out)),
            GuestRequest::AddKey { epoch, key } => self.add_key(now, ticket, (epoch, &key), out),
            GuestRequest::Repair => self.begin_repair_sweep(now, ticket, out),
            GuestRequest::Flush => {
                self.begin_flush(now, Some(ticket), out);
                Ok(())
            }
            GuestRequest::Snapshot(name) => self.begin_snapshot(now, ticket, name, out),
            GuestRequest::DropSnapshot(name) => self.drop_snapshot(now, ticket, name, out),
            GuestRequest::Deactivate => {
                self.phase = ActivationPhase::Closing;
                self.begin_flush(now, Some(ticket), out);
                self.close_if_flushed(now, out);
                Ok(())
            }
            GuestRequest::Replace { replica, address } => {
                self.replace(now, ticket, replica, address, out)
            }
        };
        if let Err(error) = result {
            self.fail(ticket, error, out);
        }
    }

    /// Why the volume cannot be used.
    fn inactive(&self) -> GuestError {
        match self.phase {
            ActivationPhase::Deposed(generation) => GuestError::Deposed { generation },
            _ => GuestError::Inactive,
        }
    }

    /// Puts an empty replica in place of another one.
    fn replace(
        &mut self,
        now: Time,
        ticket: Ticket,
        replica: NodeId,
        address: std::net::SocketAddr,
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        let Some(at) = self.mirrors.iter().position(|it| it.node == replica) else {
            return Err(GuestError::Refused(format!(
                "{replica} is no replica of this volume"
            )));
        };
        let others = self.active_mirrors().filter(|it| *it != at).count();
        if others < self.options.quorum.min(self.mirrors.len() - 1).max(1) {
            return Err(GuestError::Refused(format!(
                "without {replica} only {others} replicas have everything"
            )));
        }
        self.go_offline(at, "replaced", now, out);
        out.push(Output::Address {
            node: replica,
            address: Some(address),
        });
        self.mirrors[at].attach_at = now;
        self.reply(ticket, GuestReply::Done, out);
        Ok(())
    }

    /// A message of a replica.
    fn receive(&mut self, now: Time, from: NodeId, bytes: Vec<u8>, out: &mut Outputs) {
        let Some(at) = self.mirrors.iter().position(|it| it.node == from) else {
            return;
        };
        let Ok(message) = FromReplica::decode(&bytes) else {
            return; // not a message of a replica
        };
        let session = match &message {
            FromReplica::Attached { session, .. }
            | FromReplica::Refused { session, .. }
            | FromReplica::Acked { session, .. }
            | FromReplica::Slots { session, .. }
            | FromReplica::Versions { session, .. }
            | FromReplica::Changes { session, .. }
            | FromReplica::Failed { session, .. } => *session,
        };
        if session != self.mirrors[at].session {
            return; // of a session that has ended
        }
        self.mirrors[at].heard_at = now;
        match message {
            FromReplica::Attached { .. } => self.attached(now, at, message, out),
            FromReplica::Refused {
                reason, promised, ..
            } => self.refused(now, at, reason, promised, out),
            FromReplica::Acked {
                applied, flushed, ..
            } => self.acked(now, at, applied, flushed, out),
            FromReplica::Slots { id, slots, .. } => {
                let length = slots.len();
                self.have_answer(now, at, (id, BytesPart::last(bytes, length)), out);
            }
            other => self.answered(now, at, other, out),
        }
    }

    fn computed(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: seatrial_machine::Computed,
        out: &mut Outputs,
    ) {
        let result = match result.downcast::<SealedSlots>() {
            Ok(sealed) => {
                self.figures.sealed.add(now.since(sealed.begun));
                return self.have_sealed(now, *sealed, out);
            }
            Err(other) => other,
        };
        let result = match result.downcast::<OpenedSlots>() {
            Ok(opened) => {
                self.figures.opened.add(now.since(opened.begun));
                return self.have_opened(now, ticket, *opened, out);
            }
            Err(other) => other,
        };
        let result = match result.downcast::<VerifiedPiece>() {
            Ok(verified) => return self.have_verified(now, *verified, out),
            Err(other) => other,
        };
        if let Ok(read) = result.downcast::<ParentBlocks>() {
            self.have_parent(now, *read, out);
        }
    }

    /// Looks after what is late.
    fn tick(&mut self, now: Time, out: &mut Outputs) {
        self.tick_at = now + self.options.tick;
        self.seek_sessions(now, out);
        self.resend(now, out);
        self.ask_again(now, out);
        self.flush_in_time(now, out);
        self.step_repairs(now, out);
        self.step_sweeps(now, out);
        self.admit_writes(now, out);
        self.retry_reads(now, out);
        self.retry_all_versions(now, out);
    }

    /// Indices of the replicas that have everything.
    fn active_mirrors(&self) -> impl Iterator<Item = usize> {
        let mirrors = self.mirrors.iter().enumerate();
        mirrors
            .filter(|(_, it)| it.state == MirrorState::Active)
            .map(|(at, _)| at)
    }

    /// Indices of the replicas that get every write.
    fn mirrors_in_session(&self) -> impl Iterator<Item = usize> {
        let mirrors = self.mirrors.iter().enumerate();
        mirrors
            .filter(|(_, it)| it.is_in_session())
            .map(|(at, _)| at)
    }

    /// Are enough replicas there for a flush to succeed?
    fn has_quorum(&self) -> bool {
        self.active_mirrors().count() >= self.options.quorum
    }
}

impl Machine for Upstairs {
    type Request = GuestRequest;
    type Reply = GuestReply;

    fn turn(&mut self, now: Time, input: Input<GuestRequest>, out: &mut Outputs) {
        self.figures.now = now;
        match input {
            Input::Message { from, bytes } => self.receive(now, from, bytes, out),
            Input::Request(ticket, request) => self.request(now, ticket, request, out),
            Input::Computed(ticket, result) => self.computed(now, ticket, result, out),
            Input::Wake | Input::Appended(_) | Input::FileDone(..) => {}
        }
        if now >= self.tick_at {
            self.tick(now, out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        Some(self.tick_at)
    }

    fn check_invariants(&self) {
        self.items.check();
        self.kept.check();
        for mirror in &self.mirrors {
            mirror.check();
        }
        assert!(
            self.repairs
                .keys()
                .all(|at| self.mirrors[*at].state == MirrorState::Repairing),
            "only a replica in repair is repaired"
        );
    }

    fn describe(&self, now: Time, sheet: &mut StatusSheet) {
        self.describe_all(now, sheet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::VolumeId;

    #[test]
    fn a_repair_has_its_rate() {
        let geometry = Geometry {
            volume: VolumeId(1),
            block_length: 4_096,
            blocks: 64,
        };
        let keys = KeyRing::new(geometry.volume, &[7; crate::KEY_LENGTH]);
        let options = UpstairsOptions::new(geometry, keys, vec![NodeId::server(1)], 1);
        let rate = |is_busy, is_replay| options.rate_of_repair(is_busy, is_replay);
        assert_eq!(rate(true, true), options.repair_rate_kept);
        assert_eq!(rate(true, false), options.repair_rate_busy);
        assert_eq!(rate(false, false), options.repair_rate);
        assert_eq!(rate(false, true), options.repair_rate);
        assert!(options.repair_rate_busy < options.repair_rate_kept);
        assert!(options.repair_rate_kept < options.repair_rate);
    }
}
