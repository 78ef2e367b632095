//! The checkpoints of a node: one being written in slices, two kept.

use crate::checkpoint::{CheckpointHead, CheckpointMark, CheckpointWriter};
use crate::outcome::Outcome;
use crate::state::StateSnapshot;
use seatrial_consensus::{Members, SnapshotMark};
use seatrial_machine::{Computed, FileName, FileResult, FileTask, Job, Output, Ticket, Time};
use std::time::Duration;

/// Checkpoints that are kept: the newest, and the one before in case that it is damaged.
const KEPT: usize = 2;
/// Bytes of one slice.
const SLICE: usize = 1 << 20;
/// Bytes after which the file is synced, so that no sync of the journal waits behind more.
const SYNC: u64 = 4 << 20;
/// Tickets of its file tasks begin here.
const TICKETS: u64 = 2 << 60;

/// The name of the checkpoint at an index.
pub(crate) fn file_name(index: u64) -> FileName {
    FileName::new(&format!("checkpoint-{index:020}")).expect("digits are a name")
}

/// The index of the checkpoint in this file, if it is one.
pub(crate) fn index_of(file: &FileName) -> Option<u64> {
    let digits = file.as_str().strip_prefix("checkpoint-")?;
    let index = digits.parse().ok()?;
    (file_name(index) == *file).then_some(index)
}

/// The file of a checkpoint that is being written.
fn new_file() -> FileName {
    FileName::new("new-checkpoint").expect("a name")
}

/// How checkpoints are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointMode {
    /// From a snapshot, while the replica serves.
    #[default]
    Concurrent,
    /// Nothing is executed until the file is written. For comparisons.
    Blocking,
    /// No checkpoints: the journal grows without bound. For comparisons.
    None,
}

/// A step of the work is done.
#[derive(Debug)]
pub(crate) enum CheckpointEvent {
    /// Nothing to report.
    Proceeding,
    /// The checkpoint is durable under its name.
    Published(SnapshotMark),
    /// It was given up.
    Failed,
}

/// Writes one checkpoint at a time: a job encodes a slice of the snapshot, a file task writes it, then there is a pause, so
/// that clients keep their share of the machine. The snapshot is owned by the job or rests here between two; its memory is freed
/// in a job.
///
/// It waits for a turn from [`CheckpointSchedule`](crate::checkpoint_schedule::CheckpointSchedule), and meanwhile holds the
/// snapshot. What comes due meanwhile is skipped, and counted.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Durable checkpoints, oldest first.
    stored: Vec<SnapshotMark>,
    /// Indices of files that were found at the start beside the newest; they are removed when there is a newer one.
    leftover: Vec<u64>,
    work: Option<CheckpointWork>,
    tickets: u64,
    /// Percent of the time that is spent on writing.
    share: u32,
    /// Due checkpoints that were not made because another was under way.
    pub(crate) skipped: u64,
    /// Checkpoints that were given up after an error.
    pub(crate) failed: u64,
    /// Checkpoints that were made.
    pub(crate) made: u64,
    /// Why the last one was given up.
    pub(crate) last_error: Option<String>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug)]
struct CheckpointWork {
    head: CheckpointHead,
    members: Members,
    stage: CheckpointStage,
    /// A member waits for it.
    needs_no_turn: bool,
    /// Bytes written, and those of them that are synced.
    written: u64,
    synced: u64,
    /// Number of the job or file task under way.
    ticket: Ticket,
    /// When the present slice began.
    began: Time,
    /// When its turn was asked for or renewed.
    asked: Time,
}

#[derive(Debug)]
enum CheckpointStage {
    /// No turn yet.
    Waiting(Box<CheckpointWriter>),
    /// A job encodes the next slice.
    Encoding,
    /// A file task creates, writes or syncs the file.
    Writing(Box<CheckpointWriter>),
    /// A pause.
    Resting(Box<CheckpointWriter>, Time),
    /// All is written; the file gets its name.
    Publishing(SnapshotMark),
}

/// Encodes one slice.
struct SliceJob(Box<CheckpointWriter>);

/// Its result.
enum Slice {
    /// The next bytes of the file.
    Bytes(Box<CheckpointWriter>, Vec<u8>),
    /// All was encoded; the snapshot is freed.
    End(CheckpointMark),
}

impl Job for SliceJob {
    fn run(mut self: Box<Self>) -> Computed {
        Box::new(match self.0.next(SLICE) {
            Some(bytes) => Slice::Bytes(self.0, bytes),
            None => Slice::End(self.0.finish()),
        })
    }
}

/// Frees a value on another thread.
pub(crate) struct DropJob<T>(pub(crate) T);

impl<T: Send> Job for DropJob<T> {
    fn run(self: Box<Self>) -> Computed {
        drop(self.0);
        Box::new(())
    }
}

impl Checkpoints {
    /// With the newest durable checkpoint of a folder, and the indices of all other files.
    pub(crate) fn new(newest: Option<SnapshotMark>, leftover: Vec<u64>, share: u32) -> Checkpoints {
        Checkpoints {
            stored: newest.into_iter().collect(),
            leftover,
            work: None,
            tickets: TICKETS,
            share: share.clamp(1, 100),
            skipped: 0,
            failed: 0,
            made: 0,
            last_error: None,
        }
    }

    /// Durable checkpoints, oldest first.
    pub(crate) fn stored(&self) -> &[SnapshotMark] {
        &self.stored
    }

    /// Index of the checkpoint that is being made.
    pub(crate) fn under_way(&self) -> Option<u64> {
        self.work.as_ref().map(|work| work.head.index)
    }

    /// Bytes written of the checkpoint under way, and is there one?
    pub(crate) fn progress(&self) -> (u64, bool) {
        let written = self.work.as_ref().map(|work| work.written);
        (written.unwrap_or(0), written.is_some())
    }

    /// Does the checkpoint under way hold a snapshot without a turn?
    pub(crate) fn is_waiting(&self) -> bool {
        let stage = self.work.as_ref().map(|work| &work.stage);
        matches!(stage, Some(CheckpointStage::Waiting(_)))
    }

    /// Begins a checkpoint. False: another one is under way, this one is skipped.
    pub(crate) fn begin(
        &mut self,
        snapshot: StateSnapshot,
        head: CheckpointHead,
        members: Members,
        needs_no_turn: bool,
        now: Time,
    ) -> bool {
        if self.work.is_some() {
            self.skipped += 1;
            return false;
        }
        let writer = Box::new(CheckpointWriter::new(snapshot, head.clone()));
        self.work = Some(CheckpointWork {
            head,
            members,
            stage: CheckpointStage::Waiting(writer),
            needs_no_turn,
            written: 0,
            synced: 0,
            ticket: Ticket(0),
            began: now,
            asked: now,
        });
        true
    }

    /// When it wants to proceed.
    pub(crate) fn wake_at(&self, renewal: Duration) -> Option<Time> {
        let work = self.work.as_ref()?;
        let renews = work.asked + renewal;
        match work.stage {
            CheckpointStage::Resting(_, until) => Some(until.min(renews)),
            _ => Some(renews),
        }
    }

    /// Should the turn be asked for again, because the command may be lost or its turn ends?
    pub(crate) fn renews(&mut self, now: Time, renewal: Duration) -> bool {
        let Some(work) = &mut self.work else {
            return false;
        };
        let is_due = work.asked + renewal <= now;
        if is_due {
            work.asked = now;
        }
        is_due
    }

    /// Continues if the node has a turn and no step is under way.
    pub(crate) fn proceed(&mut self, now: Time, has_turn: bool, out: &mut Vec<Output<Outcome>>) {
        let Some(work) = &mut self.work else {
            return;
        };
        match std::mem::replace(&mut work.stage, CheckpointStage::Encoding) {
            CheckpointStage::Waiting(writer) if has_turn || work.needs_no_turn => {
                work.stage = CheckpointStage::Writing(writer);
                self.file(FileTask::Create { file: new_file() }, out);
            }
            CheckpointStage::Resting(writer, until) if until <= now => {
                self.encode(writer, now, out);
            }
            other => work.stage = other,
        }
    }

    fn encode(&mut self, writer: Box<CheckpointWriter>, now: Time, out: &mut Vec<Output<Outcome>>) {
        let ticket = self.next_ticket();
        if let Some(work) = &mut self.work {
            work.stage = CheckpointStage::Encoding;
            work.began = now;
            out.push(Output::Compute(Box::new(SliceJob(writer)), ticket));
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if let Some(work) = &mut self.work {
            work.ticket = ticket;
        }
        ticket
    }

    fn file(&mut self, task: FileTask, out: &mut Vec<Output<Outcome>>) {
        let ticket = self.next_ticket();
        out.push(Output::File(task, ticket));
    }

    /// A slice is encoded. Returns the result if it is not its own.
    pub(crate) fn computed(
        &mut self,
        ticket: Ticket,
        result: Computed,
        out: &mut Vec<Output<Outcome>>,
    ) -> Option<Computed> {
        let slice = match result.downcast::<Slice>() {
            Ok(slice) => *slice,
            Err(other) => return Some(other),
        };
        let Some(work) = self.work.as_mut().filter(|work| work.ticket == ticket) else {
            // It was given up: the snapshot is freed elsewhere.
            if let Slice::Bytes(writer, _) = slice {
                self.free(writer, out);
            }
            return None;
        };
        let file = new_file();
        let task = match slice {
            Slice::Bytes(writer, bytes) => {
                let offset = work.written;
                work.written += bytes.len() as u64;
                work.stage = CheckpointStage::Writing(writer);
                FileTask::Write {
                    file,
                    offset,
                    bytes,
                }
            }
            Slice::End(mark) => {
                let mark = SnapshotMark {
                    index: work.head.index,
                    term: work.head.term,
                    members: work.members.clone(),
                    length: mark.length,
                    digest: mark.digest,
                };
                let to = file_name(mark.index);
                work.stage = CheckpointStage::Publishing(mark);
                FileTask::Publish { file, to }
            }
        };
        self.file(task, out);
        None
    }

    fn free(&mut self, writer: Box<CheckpointWriter>, out: &mut Vec<Output<Outcome>>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        out.push(Output::Compute(Box::new(DropJob(writer)), ticket));
    }

    /// A file task is done.
    pub(crate) fn file_done(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: FileResult,
        out: &mut Vec<Output<Outcome>>,
    ) -> CheckpointEvent {
        let Some(work) = self.work.as_mut().filter(|work| work.ticket == ticket) else {
            return CheckpointEvent::Proceeding; // a file that was removed
        };
        if let Err(error) = result {
            self.failed += 1;
            self.abandon(out);
            self.last_error = Some(error.to_string());
            return CheckpointEvent::Failed;
        }
        match std::mem::replace(&mut work.stage, CheckpointStage::Encoding) {
            CheckpointStage::Writing(writer) if work.written - work.synced >= SYNC => {
                work.synced = work.written;
                work.stage = CheckpointStage::Writing(writer);
                self.file(FileTask::Sync { file: new_file() }, out);
            }
            CheckpointStage::Writing(writer) => self.rest(writer, now),
            CheckpointStage::Publishing(mark) => {
                self.work = None;
                self.made += 1;
                self.keep(mark.clone(), out);
                return CheckpointEvent::Published(mark);
            }
            other => work.stage = other,
        }
        CheckpointEvent::Proceeding
    }

    /// A pause in proportion to what the slice took.
    fn rest(&mut self, writer: Box<CheckpointWriter>, now: Time) {
        let share = self.share;
        if let Some(work) = &mut self.work {
            let pause = now.since(work.began) * (100 - share) / share;
            work.stage = CheckpointStage::Resting(writer, now + pause);
        }
    }

    /// The planted bug: a checkpoint that waits takes the state of now.
    pub(crate) fn take_instead(&mut self, snapshot: StateSnapshot) {
        if let Some(work) = &mut self.work
            && let CheckpointStage::Waiting(writer) = &mut work.stage
        {
            **writer = CheckpointWriter::new(snapshot, work.head.clone());
        }
    }

    /// Gives the checkpoint under way up.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Output<Outcome>>) {
        let Some(work) = self.work.take() else {
            return;
        };
        match work.stage {
            CheckpointStage::Waiting(writer) => self.free(writer, out),
            CheckpointStage::Writing(writer) | CheckpointStage::Resting(writer, _) => {
                self.free(writer, out);
                self.remove(new_file(), out);
            }
            CheckpointStage::Encoding | CheckpointStage::Publishing(_) => {
                self.remove(new_file(), out);
            }
        }
    }

    fn remove(&mut self, file: FileName, out: &mut Vec<Output<Outcome>>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        out.push(Output::File(FileTask::Remove { file }, ticket));
    }

    /// Keeps a durable checkpoint, and removes the oldest if there are too many.
    pub(crate) fn keep(&mut self, mark: SnapshotMark, out: &mut Vec<Output<Outcome>>) {
        for index in std::mem::take(&mut self.leftover) {
            if index != mark.index {
                self.remove(file_name(index), out);
            }
        }
        self.stored.retain(|stored| stored.index != mark.index);
        let place = self
            .stored
            .partition_point(|stored| stored.index < mark.index);
        self.stored.insert(place, mark);
        while self.stored.len() > KEPT {
            let oldest = self.stored.remove(0);
            self.remove(file_name(oldest.index), out);
        }
    }

    /// The durable checkpoint with this index and digest.
    pub(crate) fn find(&self, index: u64, digest: [u8; 16]) -> Option<&SnapshotMark> {
        let is_it = |it: &&SnapshotMark| it.index == index && it.digest == digest;
        self.stored.iter().find(is_it)
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.stored.len() <= KEPT);
        assert!(self.stored.is_sorted_by(|a, b| a.index < b.index));
    }
}
