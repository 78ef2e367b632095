//! Checkpoints on their way between nodes: pulled in pieces, checked as they come, resumed after losses.

use super::checkpoints::DropJob;
use super::member_changes::{Addresses, decode_cluster};
use super::stored_checkpoints::{CheckpointChain, CheckpointFile, StoredFiles};
use crate::checkpoint::{ChainReader, ReadCheckpoint};
use crate::checkpoint_schedule::CheckpointSchedule;
use crate::replica_message::{self, FilePart};
use crate::state::{StateSnapshot, StoreState};
use seatrial_consensus::SnapshotMark;
use seatrial_kv_protocol::Outcome;
use seatrial_machine::{FileAnswer, FileName, FileResult, FileTask, NodeId, Output, Ticket, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bytes of one piece.
const PIECE: u32 = 512 << 10;
/// Pieces that are asked for at a time.
const WINDOW: usize = 8;
/// Pieces that are read for other nodes at a time; more requests are dropped, and come again.
const READS_MAX: usize = 32;
/// Tickets of its file tasks begin here.
const TICKETS: u64 = 3 << 60;

/// The file of a whole checkpoint that is being received.
fn new_file() -> FileName {
    FileName::new("new-transfer").expect("a name")
}

/// The file of the changes that follow it.
fn new_changes() -> FileName {
    FileName::new("new-transfer-changes").expect("a name")
}

/// A checkpoint that was received, is durable, and waits to replace the state.
#[derive(Debug)]
pub(crate) struct ArrivedCheckpoint {
    pub(crate) mark: SnapshotMark,
    /// Its files.
    pub(crate) chain: CheckpointChain,
    /// The state of the whole one of them.
    pub(crate) whole: StateSnapshot,
    pub(crate) state: StoreState,
    pub(crate) schedule: CheckpointSchedule,
    pub(crate) addresses: Addresses,
}

/// A step of a transfer is done.
#[derive(Debug)]
pub(crate) enum TransferEvent {
    /// Nothing to report.
    Proceeding,
    /// The checkpoint is here, checked and durable.
    Arrived(Box<ArrivedCheckpoint>),
    /// A node asked for a checkpoint that is not here any more.
    Missed(NodeId),
}

/// Pulls one checkpoint at a time, and serves pieces of those that are here.
///
/// Pieces are checked and become a state in the order of the file; a few that came early wait. What is received is written
/// beside, and gets the checkpoint's names when everything was right: a whole file, and one of changes if the checkpoint has it,
/// whose bytes follow each other. A piece without an answer is asked for again; a newer
/// checkpoint takes the place of the one under way.
#[derive(Debug)]
pub(crate) struct Transfers {
    cluster: u64,
    pull: Option<Pull>,
    /// Reads for other nodes.
    reads: BTreeMap<Ticket, PieceRead>,
    tickets: u64,
    /// A piece without an answer for this long is asked for again.
    patience: Duration,
}

/// A piece that is being read for another node.
#[derive(Debug)]
struct PieceRead {
    to: NodeId,
    part: FilePart,
    bytes: Vec<u8>,
    /// The rest is in the file of changes.
    rest: Option<FileTask>,
}

#[derive(Debug)]
struct Pull {
    mark: SnapshotMark,
    from: NodeId,
    reader: Option<ChainReader>,
    /// Bytes that the reader has taken, and those of them that are of the whole file.
    received: u64,
    whole: u64,
    /// Offsets that were asked for, and when.
    asked: BTreeMap<u64, Time>,
    /// Pieces that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
    /// Number of its first file task: earlier ones are of a transfer that was given up.
    first: u64,
    /// File tasks under way.
    tasks: usize,
    /// The names that the files get in the end, the whole one first.
    to_publish: VecDeque<FileTask>,
    arrived: Option<Box<ArrivedCheckpoint>>,
}

impl Transfers {
    pub(crate) fn new(cluster: u64, patience: Duration) -> Transfers {
        Transfers {
            cluster,
            pull: None,
            reads: BTreeMap::new(),
            tickets: TICKETS,
            patience,
        }
    }

    /// Index of the checkpoint that is being pulled.
    pub(crate) fn under_way(&self) -> Option<u64> {
        self.pull.as_ref().map(|pull| pull.mark.index)
    }

    /// Is this the ticket of one of its file tasks?
    pub(crate) fn owns(&self, ticket: Ticket) -> bool {
        ticket.0 > TICKETS && ticket.0 <= self.tickets
    }

    fn file(&mut self, task: FileTask, out: &mut Vec<Output<Outcome>>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        out.push(Output::File(task, ticket));
        ticket
    }

    /// Begins to pull this checkpoint, or continues if it is the one under way.
    pub(crate) fn begin(
        &mut self,
        from: NodeId,
        mark: SnapshotMark,
        now: Time,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if let Some(pull) = self.pull.as_mut().filter(|pull| pull.mark == mark) {
            pull.from = from;
            return;
        }
        self.abandon(out);
        self.pull = Some(Pull {
            mark,
            from,
            reader: Some(ChainReader::new()),
            received: 0,
            whole: 0,
            asked: BTreeMap::new(),
            early: BTreeMap::new(),
            first: self.tickets + 1,
            tasks: 1,
            to_publish: VecDeque::new(),
            arrived: None,
        });
        self.file(FileTask::Create { file: new_file() }, out);
        self.proceed(now, out);
    }

    /// Gives the transfer under way up. What was received is freed in a job.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Output<Outcome>>) {
        if let Some(pull) = self.pull.take() {
            for file in [new_changes(), new_file()] {
                self.file(FileTask::Remove { file }, out);
            }
            self.tickets += 1;
            let job = DropJob((pull.reader, pull.arrived));
            out.push(Output::Compute(Box::new(job), Ticket(self.tickets)));
        }
    }

    /// When a piece should be asked for again.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let pull = self.pull.as_ref()?;
        let oldest = pull.asked.values().min()?;
        Some(*oldest + self.patience)
    }

    /// Asks for the next pieces, and again for those without an answer.
    pub(crate) fn proceed(&mut self, now: Time, out: &mut Vec<Output<Outcome>>) {
        let patience = self.patience;
        let Some(pull) = &mut self.pull else {
            return;
        };
        let length = pull.mark.length;
        let offsets = (pull.received..length).step_by(PIECE as usize).take(WINDOW);
        for offset in offsets {
            let is_there = pull.early.contains_key(&offset);
            let is_asked = pull
                .asked
                .get(&offset)
                .is_some_and(|since| now.since(*since) < patience);
            if is_there || is_asked {
                continue;
            }
            pull.asked.insert(offset, now);
            let part = FilePart {
                index: pull.mark.index,
                digest: pull.mark.digest,
                offset,
            };
            out.push(Output::Send {
                to: pull.from,
                message: replica_message::encode_pull(part, PIECE),
            });
        }
    }

    /// A piece came.
    pub(crate) fn piece(
        &mut self,
        now: Time,
        part: FilePart,
        bytes: Vec<u8>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let Some(pull) = &mut self.pull else {
            return;
        };
        let left = pull.mark.length.saturating_sub(part.offset);
        let is_whole = bytes.len() as u64 == left.min(u64::from(PIECE));
        if (part.index, part.digest) != (pull.mark.index, pull.mark.digest)
            || !is_whole
            || pull.asked.remove(&part.offset).is_none()
        {
            return;
        }
        pull.early.insert(part.offset, bytes);
        if self.take_pieces(out).is_err() {
            // The file is not what its digest says: another source or another checkpoint must do.
            self.abandon(out);
        }
        self.proceed(now, out);
    }

    /// Gives the reader the pieces that are next.
    fn take_pieces(&mut self, out: &mut Vec<Output<Outcome>>) -> Result<(), ()> {
        loop {
            let Some(pull) = &mut self.pull else {
                return Ok(());
            };
            let offset = pull.received;
            let Some(bytes) = pull.early.remove(&offset) else {
                return Ok(());
            };
            let reader = pull.reader.as_mut().ok_or(())?;
            let of_whole = reader.push(&bytes).map_err(|_| ())?;
            let (whole, had_changes) = (pull.whole, pull.whole < pull.received);
            pull.received += bytes.len() as u64;
            pull.whole += of_whole as u64;
            if pull.received == pull.mark.length {
                let reader = pull.reader.take().ok_or(())?;
                let arrived = finish(self.cluster, &pull.mark, reader)?;
                pull.to_publish = publications(&arrived.chain);
                pull.arrived = Some(arrived);
            }
            let mut bytes = bytes;
            let changes = bytes.split_off(of_whole);
            if !bytes.is_empty() {
                self.write((new_file(), whole, bytes), out);
            }
            if !changes.is_empty() {
                if !had_changes {
                    let file = new_changes();
                    self.task(FileTask::Create { file }, out);
                }
                let place = (offset + of_whole as u64).saturating_sub(self.whole());
                self.write((new_changes(), place, changes), out);
            }
        }
    }

    /// Bytes of the whole file that were received.
    fn whole(&self) -> u64 {
        self.pull.as_ref().map_or(0, |pull| pull.whole)
    }

    fn write(
        &mut self,
        (file, offset, bytes): (FileName, u64, Vec<u8>),
        out: &mut Vec<Output<Outcome>>,
    ) {
        let task = FileTask::Write {
            file,
            offset,
            bytes,
        };
        self.task(task, out);
    }

    /// A file task of the transfer under way.
    fn task(&mut self, task: FileTask, out: &mut Vec<Output<Outcome>>) {
        if let Some(pull) = &mut self.pull {
            pull.tasks += 1;
        }
        self.file(task, out);
    }

    /// Another node wants a piece. `known`: the checkpoint is here.
    pub(crate) fn serve(
        &mut self,
        to: NodeId,
        part: FilePart,
        length: u32,
        known: Option<StoredFiles<'_>>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let Some(files) = known.filter(|files| part.offset < files.mark.length) else {
            let message = replica_message::encode_gone(part);
            return out.push(Output::Send { to, message });
        };
        if self.reads.len() >= READS_MAX {
            return;
        }
        let length = u64::from(length.min(PIECE)).min(files.mark.length - part.offset);
        let mut tasks = reads(&files, part.offset, length);
        if let Some(first) = tasks.pop_front() {
            let ticket = self.file(first, out);
            let read = PieceRead {
                to,
                part,
                bytes: Vec::new(),
                rest: tasks.pop_front(),
            };
            self.reads.insert(ticket, read);
        }
    }

    /// The source has lost the checkpoint: the leader offers another one.
    pub(crate) fn gone(&mut self, part: FilePart, out: &mut Vec<Output<Outcome>>) {
        let is_it = |pull: &Pull| pull.mark.index == part.index && pull.mark.digest == part.digest;
        if self.pull.as_ref().is_some_and(is_it) {
            self.abandon(out);
        }
    }

    /// A file task is done.
    pub(crate) fn file_done(
        &mut self,
        ticket: Ticket,
        result: FileResult,
        out: &mut Vec<Output<Outcome>>,
    ) -> TransferEvent {
        if let Some(read) = self.reads.remove(&ticket) {
            return self.piece_read(read, result, out);
        }
        let Some(pull) = self.pull.as_mut().filter(|pull| ticket.0 >= pull.first) else {
            return TransferEvent::Proceeding;
        };
        if result.is_err() {
            // No space, or a broken disk: the leader offers it again later.
            self.abandon(out);
            return TransferEvent::Proceeding;
        }
        pull.tasks -= 1;
        if pull.tasks > 0 || pull.arrived.is_none() {
            return TransferEvent::Proceeding;
        }
        if let Some(next) = pull.to_publish.pop_front() {
            self.task(next, out);
            return TransferEvent::Proceeding;
        }
        let arrived = pull.arrived.take();
        self.pull = None;
        arrived.map_or(TransferEvent::Proceeding, TransferEvent::Arrived)
    }

    /// A part of a piece was read for another node.
    fn piece_read(
        &mut self,
        mut read: PieceRead,
        result: FileResult,
        out: &mut Vec<Output<Outcome>>,
    ) -> TransferEvent {
        let (to, part) = (read.to, read.part);
        let Ok(FileAnswer::Bytes(mut bytes)) = result else {
            let message = replica_message::encode_gone(part);
            out.push(Output::Send { to, message });
            return TransferEvent::Missed(to);
        };
        read.bytes.append(&mut bytes);
        if let Some(rest) = read.rest.take() {
            let ticket = self.file(rest, out);
            self.reads.insert(ticket, read);
            return TransferEvent::Proceeding;
        }
        let message = replica_message::encode_piece(part, read.bytes);
        out.push(Output::Send { to, message });
        TransferEvent::Proceeding
    }
}

/// The tasks that read these bytes of a checkpoint: from its whole file, from that of changes, or from both.
fn reads(files: &StoredFiles<'_>, offset: u64, length: u64) -> VecDeque<FileTask> {
    let (whole, end) = (files.whole.1, offset + length);
    let mut tasks = VecDeque::new();
    if offset < whole {
        tasks.push_back(FileTask::Read {
            file: files.whole.0.clone(),
            offset,
            length: (end.min(whole) - offset) as usize,
        });
    }
    if let Some(changes) = files.changes.as_ref().filter(|_| end > whole) {
        let from = offset.max(whole);
        tasks.push_back(FileTask::Read {
            file: changes.clone(),
            offset: from - whole,
            length: (end - from) as usize,
        });
    }
    tasks
}

/// The tasks that give received files their names.
fn publications(chain: &CheckpointChain) -> VecDeque<FileTask> {
    let publish = |file, to: CheckpointFile| FileTask::Publish {
        file,
        to: to.name(),
    };
    let base = chain.whole.index;
    let whole = publish(new_file(), CheckpointFile::whole(base));
    let changes = chain.changes.as_ref().map(|mark| {
        let to = CheckpointFile {
            index: mark.index,
            base: Some(base),
        };
        publish(new_changes(), to)
    });
    std::iter::once(whole).chain(changes).collect()
}

/// The state of a checkpoint that was read to its end, if it is the one that was offered.
fn finish(
    cluster: u64,
    mark: &SnapshotMark,
    reader: ChainReader,
) -> Result<Box<ArrivedCheckpoint>, ()> {
    let (whole, newest) = reader.finish().map_err(|_| ())?;
    let (members, addresses) = decode_cluster(&newest.head.members).map_err(|_| ())?;
    let schedule = CheckpointSchedule::decode(&newest.head.schedule).map_err(|_| ())?;
    let before = whole.as_ref().map_or(0, |whole| whole.mark.length);
    let is_it = newest.head.cluster == cluster
        && (newest.head.index, newest.head.term) == (mark.index, mark.term)
        && members == mark.members
        && (before + newest.mark.length, newest.mark.digest) == (mark.length, mark.digest);
    if !is_it {
        return Err(());
    }
    let mark = mark.clone();
    let snapshot = whole.as_ref().unwrap_or(&newest).state.snapshot();
    let chain = match &whole {
        None => CheckpointChain {
            whole: mark.clone(),
            changes: None,
        },
        Some(whole) => CheckpointChain {
            whole: mark_of(whole).map_err(|_| ())?,
            changes: Some(mark.clone()),
        },
    };
    Ok(Box::new(ArrivedCheckpoint {
        mark,
        chain,
        whole: snapshot,
        state: newest.state,
        schedule,
        addresses,
    }))
}

/// What identifies a file that was read.
pub(super) fn mark_of(read: &ReadCheckpoint) -> Result<SnapshotMark, String> {
    Ok(SnapshotMark {
        index: read.head.index,
        term: read.head.term,
        members: decode_cluster(&read.head.members)?.0,
        length: read.mark.length,
        digest: read.mark.digest,
    })
}
