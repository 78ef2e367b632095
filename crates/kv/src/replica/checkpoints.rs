//! The checkpoints of a node: the one that is being written in slices, and those that are durable.

use super::checkpoint_pace::CheckpointPace;
use super::stored_checkpoints::{CheckpointChain, CheckpointFile, StoredCheckpoints};
use crate::checkpoint::{CheckpointHead, CheckpointMark, CheckpointWriter};
use crate::state::StateSnapshot;
use seatrial_consensus::{Members, SnapshotMark};
use seatrial_kv_protocol::Outcome;
use seatrial_machine::{Computed, FileName, FileResult, FileTask, Job, Output, Ticket, Time};
use std::time::Duration;

/// Bytes of one slice: few, so that a request waits for few; many where nothing but the file counts.
const SLICE: usize = 256 << 10;
const SLICE_UNBOUNDED: usize = 1 << 20;
/// Bytes after which the file is synced, so that no sync of the journal waits behind more.
const SYNC: u64 = 4 << 20;
/// Tickets of its file tasks begin here.
const TICKETS: u64 = 2 << 60;

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
    /// The checkpoint is durable under its name. Its digest, and the mark of all of its bytes, unless its base is gone.
    Published([u8; 16], Option<SnapshotMark>),
    /// It was given up.
    Failed,
}

/// What a checkpoint will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointKind {
    /// The whole state.
    Whole,
    /// The whole state, and files of changes will be those since it.
    Base,
    /// The changes since the whole one at this index.
    Changes(u64),
}

/// A checkpoint that is to be made.
#[derive(Debug)]
pub(crate) struct CheckpointPlan {
    pub(crate) kind: CheckpointKind,
    pub(crate) snapshot: StateSnapshot,
    pub(crate) head: CheckpointHead,
    pub(crate) members: Members,
    /// A member waits for it.
    pub(crate) needs_no_turn: bool,
}

/// The state of a durable whole checkpoint, with which later ones are compared. It keeps alive what was overwritten since.
#[derive(Debug)]
pub(crate) struct CheckpointBase {
    pub(crate) index: u64,
    pub(crate) mark: CheckpointMark,
    pub(crate) snapshot: StateSnapshot,
}

impl CheckpointBase {
    /// The base with this mark.
    pub(crate) fn new(whole: &SnapshotMark, snapshot: StateSnapshot) -> CheckpointBase {
        CheckpointBase {
            index: whole.index,
            mark: CheckpointMark {
                length: whole.length,
                digest: whole.digest,
            },
            snapshot,
        }
    }
}

/// Writes one checkpoint at a time: a job encodes a slice of the snapshot, a file task writes it, then there is a pause, so
/// that clients keep their share of the machine. The snapshot is owned by the job or rests here between two; its memory is freed
/// in a job.
///
/// It waits for a turn from [`CheckpointSchedule`](crate::checkpoint_schedule::CheckpointSchedule), and meanwhile holds the
/// snapshot. What comes due meanwhile is skipped, and counted; so are changes since a whole checkpoint that is not here.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    pub(crate) stored: StoredCheckpoints,
    base: Option<CheckpointBase>,
    work: Option<CheckpointWork>,
    tickets: u64,
    pub(crate) pace: CheckpointPace,
    /// Due checkpoints that were not made because another was under way, or their base is not here.
    pub(crate) skipped: u64,
    /// Checkpoints that were given up after an error.
    pub(crate) failed: u64,
    /// Checkpoints that were made, …
    pub(crate) made: u64,
    /// … and those of them that are changes.
    pub(crate) changes: u64,
    /// Why the last one was given up.
    pub(crate) last_error: Option<String>,
}

/// A checkpoint on its way to the disk.
#[derive(Debug)]
struct CheckpointWork {
    /// Its base, if it is of changes.
    base: Option<u64>,
    /// The snapshot, if it becomes the base of later ones.
    kept: Option<StateSnapshot>,
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
struct SliceJob(Box<CheckpointWriter>, usize);

/// Its result.
enum Slice {
    /// The next bytes of the file.
    Bytes(Box<CheckpointWriter>, Vec<u8>),
    /// All was encoded; the snapshot is freed.
    End(CheckpointMark),
}

impl Job for SliceJob {
    fn run(mut self: Box<Self>) -> Computed {
        Box::new(match self.0.next(self.1) {
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
    /// With the durable checkpoints of a folder, and the state of the whole one since which changes are written.
    pub(crate) fn new(
        stored: StoredCheckpoints,
        base: Option<CheckpointBase>,
        share: u32,
    ) -> Checkpoints {
        Checkpoints {
            stored,
            base,
            work: None,
            tickets: TICKETS,
            pace: CheckpointPace::new(share),
            skipped: 0,
            failed: 0,
            made: 0,
            changes: 0,
            last_error: None,
        }
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

    /// Is the file of a checkpoint being written?
    pub(crate) fn is_writing(&self) -> bool {
        self.work.is_some() && !self.is_waiting()
    }

    /// Does the checkpoint under way hold a snapshot without a turn?
    pub(crate) fn is_waiting(&self) -> bool {
        let stage = self.work.as_ref().map(|work| &work.stage);
        matches!(stage, Some(CheckpointStage::Waiting(_)))
    }

    /// Begins a checkpoint. False: another one is under way or its base is not here, this one is skipped.
    pub(crate) fn begin(&mut self, plan: CheckpointPlan, now: Time) -> bool {
        let has_base = match plan.kind {
            CheckpointKind::Changes(base) => self.base_at(base).is_some(),
            CheckpointKind::Whole | CheckpointKind::Base => true,
        };
        if self.work.is_some() || !has_base {
            self.skipped += 1;
            return false;
        }
        let kept = (plan.kind == CheckpointKind::Base).then(|| plan.snapshot.clone());
        let base = match plan.kind {
            CheckpointKind::Changes(base) => Some(base),
            _ => None,
        };
        let writer = self.writer(plan.snapshot, plan.head.clone(), base);
        self.work = Some(CheckpointWork {
            base,
            kept,
            head: plan.head,
            members: plan.members,
            stage: CheckpointStage::Waiting(Box::new(writer)),
            needs_no_turn: plan.needs_no_turn,
            written: 0,
            synced: 0,
            ticket: Ticket(0),
            began: now,
            asked: now,
        });
        true
    }

    fn base_at(&self, index: u64) -> Option<&CheckpointBase> {
        self.base.as_ref().filter(|base| base.index == index)
    }

    fn writer(
        &self,
        snapshot: StateSnapshot,
        head: CheckpointHead,
        base: Option<u64>,
    ) -> CheckpointWriter {
        match base.and_then(|base| self.base_at(base)) {
            Some(base) => {
                let older = base.snapshot.clone();
                CheckpointWriter::of_changes(snapshot, head, older, (base.index, base.mark))
            }
            None => CheckpointWriter::new(snapshot, head),
        }
    }

    /// Later changes are those since this state. What was the base is freed in a job.
    pub(crate) fn rebase(&mut self, base: Option<CheckpointBase>, out: &mut Vec<Output<Outcome>>) {
        if let Some(old) = std::mem::replace(&mut self.base, base) {
            self.drop_in_job(old, out);
        }
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
        let is_unbounded = self.pace.is_unbounded();
        let length = if is_unbounded { SLICE_UNBOUNDED } else { SLICE };
        if let Some(work) = &mut self.work {
            work.stage = CheckpointStage::Encoding;
            work.began = now;
            out.push(Output::Compute(Box::new(SliceJob(writer, length)), ticket));
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
                let index = mark.index;
                let to = CheckpointFile {
                    index,
                    base: work.base,
                };
                let to = to.name();
                work.stage = CheckpointStage::Publishing(mark);
                FileTask::Publish { file, to }
            }
        };
        self.file(task, out);
        None
    }

    fn free(&mut self, writer: Box<CheckpointWriter>, out: &mut Vec<Output<Outcome>>) {
        self.drop_in_job(writer, out);
    }

    fn drop_in_job<T: Send + 'static>(&mut self, value: T, out: &mut Vec<Output<Outcome>>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        out.push(Output::Compute(Box::new(DropJob(value)), ticket));
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
                let (base, kept) = (work.base, work.kept.take());
                self.work = None;
                return self.published(mark, base, kept, out);
            }
            other => work.stage = other,
        }
        CheckpointEvent::Proceeding
    }

    /// The file of a checkpoint is durable.
    fn published(
        &mut self,
        mut mark: SnapshotMark,
        base: Option<u64>,
        kept: Option<StateSnapshot>,
        out: &mut Vec<Output<Outcome>>,
    ) -> CheckpointEvent {
        self.made += 1;
        self.changes += u64::from(base.is_some());
        let digest = mark.digest;
        if let Some(kept) = kept {
            self.rebase(Some(CheckpointBase::new(&mark, kept)), out);
        }
        let mut is_there = true;
        if let Some(base) = base {
            let whole = self.stored.whole(base);
            is_there = whole.is_some();
            mark.length += whole.map_or(0, |whole| whole.length);
        }
        let removed = self.stored.keep(mark.clone(), base);
        self.remove_all(&removed, out);
        CheckpointEvent::Published(digest, is_there.then_some(mark))
    }

    /// A pause in proportion to what the slice took, see [`CheckpointPace`].
    fn rest(&mut self, writer: Box<CheckpointWriter>, now: Time) {
        if let Some(work) = &mut self.work {
            let pause = self.pace.pause(now.since(work.began));
            work.stage = CheckpointStage::Resting(writer, now + pause);
        }
    }

    /// The planted bug: a checkpoint that waits takes the state of now.
    pub(crate) fn take_instead(&mut self, snapshot: &StateSnapshot) {
        let Some(work) = self.work.as_ref().filter(|_| self.is_waiting()) else {
            return;
        };
        let writer = self.writer(snapshot.clone(), work.head.clone(), work.base);
        if let Some(work) = &mut self.work {
            work.stage = CheckpointStage::Waiting(Box::new(writer));
        }
    }

    /// Gives the checkpoint under way up.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Output<Outcome>>) {
        let Some(work) = self.work.take() else {
            return;
        };
        if let Some(kept) = work.kept {
            self.drop_in_job(kept, out);
        }
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

    /// Keeps the files of a checkpoint that came from another node.
    pub(crate) fn keep_chain(&mut self, chain: CheckpointChain, out: &mut Vec<Output<Outcome>>) {
        let removed = self.stored.keep_chain(chain);
        self.remove_all(&removed, out);
    }

    fn remove_all(&mut self, files: &[CheckpointFile], out: &mut Vec<Output<Outcome>>) {
        // Changes first: without their base they are of no use.
        for file in files.iter().filter(|it| it.base.is_some()) {
            self.remove(file.name(), out);
        }
        for file in files.iter().filter(|it| it.base.is_none()) {
            self.remove(file.name(), out);
        }
        let is_gone = |base: &CheckpointBase| self.stored.whole(base.index).is_none();
        if self.base.as_ref().is_some_and(is_gone) {
            self.rebase(None, out);
        }
    }

    pub(crate) fn check_invariants(&self) {
        self.stored.check_invariants();
        let base = self.base.as_ref();
        assert!(base.is_none_or(|base| self.stored.whole(base.index).is_some()));
    }
}
