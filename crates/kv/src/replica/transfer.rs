//! Checkpoints on their way between nodes: pulled in pieces, checked as they come, resumed after losses.

use super::checkpoints::{DropJob, file_name};
use super::member_changes::{Addresses, decode_cluster};
use crate::checkpoint::CheckpointReader;
use crate::checkpoint_schedule::CheckpointSchedule;
use crate::outcome::Outcome;
use crate::replica_message::{self, FilePart};
use crate::state::StoreState;
use seatrial_consensus::SnapshotMark;
use seatrial_machine::{FileAnswer, FileName, FileResult, FileTask, NodeId, Output, Ticket, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of one piece.
const PIECE: u32 = 512 << 10;
/// Pieces that are asked for at a time.
const WINDOW: usize = 8;
/// Pieces that are read for other nodes at a time; more requests are dropped, and come again.
const READS_MAX: usize = 32;
/// Tickets of its file tasks begin here.
const TICKETS: u64 = 3 << 60;

/// The file of a checkpoint that is being received.
fn new_file() -> FileName {
    FileName::new("new-transfer").expect("a name")
}

/// A checkpoint that was received, is durable, and waits to replace the state.
#[derive(Debug)]
pub(crate) struct ArrivedCheckpoint {
    pub(crate) mark: SnapshotMark,
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
/// beside, and gets the checkpoint's name when everything was right. A piece without an answer is asked for again; a newer
/// checkpoint takes the place of the one under way.
#[derive(Debug)]
pub(crate) struct Transfers {
    cluster: u64,
    pull: Option<Pull>,
    /// Reads for other nodes.
    reads: BTreeMap<Ticket, (NodeId, FilePart)>,
    tickets: u64,
    /// A piece without an answer for this long is asked for again.
    patience: Duration,
}

#[derive(Debug)]
struct Pull {
    mark: SnapshotMark,
    from: NodeId,
    reader: Option<CheckpointReader>,
    /// Bytes that the reader has taken.
    received: u64,
    /// Offsets that were asked for, and when.
    asked: BTreeMap<u64, Time>,
    /// Pieces that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
    /// Number of its first file task: earlier ones are of a transfer that was given up.
    first: u64,
    /// File tasks under way.
    tasks: usize,
    /// The last task: the file gets its name.
    publishing: Option<Ticket>,
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
            reader: Some(CheckpointReader::new()),
            received: 0,
            asked: BTreeMap::new(),
            early: BTreeMap::new(),
            first: self.tickets + 1,
            tasks: 1,
            publishing: None,
            arrived: None,
        });
        self.file(FileTask::Create { file: new_file() }, out);
        self.proceed(now, out);
    }

    /// Gives the transfer under way up. What was received is freed in a job.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Output<Outcome>>) {
        if let Some(pull) = self.pull.take() {
            self.file(FileTask::Remove { file: new_file() }, out);
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
            reader.push(&bytes).map_err(|_| ())?;
            pull.received += bytes.len() as u64;
            pull.tasks += 1;
            if pull.received == pull.mark.length {
                let reader = pull.reader.take().ok_or(())?;
                pull.arrived = Some(finish(self.cluster, &pull.mark, reader)?);
            }
            let file = new_file();
            self.file(
                FileTask::Write {
                    file,
                    offset,
                    bytes,
                },
                out,
            );
        }
    }

    /// Another node wants a piece. `known`: the checkpoint is here.
    pub(crate) fn serve(
        &mut self,
        to: NodeId,
        part: FilePart,
        length: u32,
        known: Option<&SnapshotMark>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        let Some(mark) = known.filter(|mark| part.offset < mark.length) else {
            let message = replica_message::encode_gone(part);
            return out.push(Output::Send { to, message });
        };
        if self.reads.len() >= READS_MAX {
            return;
        }
        let length = u64::from(length.min(PIECE)).min(mark.length - part.offset);
        let task = FileTask::Read {
            file: file_name(part.index),
            offset: part.offset,
            length: length as usize,
        };
        let ticket = self.file(task, out);
        self.reads.insert(ticket, (to, part));
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
        if let Some((to, part)) = self.reads.remove(&ticket) {
            let (message, event) = match result {
                Ok(FileAnswer::Bytes(bytes)) => {
                    let message = replica_message::encode_piece(part, bytes);
                    (message, TransferEvent::Proceeding)
                }
                _ => (
                    replica_message::encode_gone(part),
                    TransferEvent::Missed(to),
                ),
            };
            out.push(Output::Send { to, message });
            return event;
        }
        let Some(pull) = self.pull.as_mut().filter(|pull| ticket.0 >= pull.first) else {
            return TransferEvent::Proceeding;
        };
        if result.is_err() {
            // No space, or a broken disk: the leader offers it again later.
            self.abandon(out);
            return TransferEvent::Proceeding;
        }
        if pull.publishing == Some(ticket) {
            let arrived = pull.arrived.take();
            self.pull = None;
            return arrived.map_or(TransferEvent::Proceeding, TransferEvent::Arrived);
        }
        pull.tasks -= 1;
        if pull.tasks == 0 && pull.arrived.is_some() {
            let to = file_name(pull.mark.index);
            let file = new_file();
            let ticket = self.file(FileTask::Publish { file, to }, out);
            if let Some(pull) = &mut self.pull {
                pull.publishing = Some(ticket);
            }
        }
        TransferEvent::Proceeding
    }
}

/// The state of a file that was read to its end, if it is the one that was offered.
fn finish(
    cluster: u64,
    mark: &SnapshotMark,
    reader: CheckpointReader,
) -> Result<Box<ArrivedCheckpoint>, ()> {
    let (head, state, found) = reader.finish().map_err(|_| ())?;
    let (members, addresses) = decode_cluster(&head.members).map_err(|_| ())?;
    let schedule = CheckpointSchedule::decode(&head.schedule).map_err(|_| ())?;
    let is_it = head.cluster == cluster
        && (head.index, head.term) == (mark.index, mark.term)
        && members == mark.members
        && (found.length, found.digest) == (mark.length, mark.digest);
    let mark = mark.clone();
    is_it
        .then(|| {
            Box::new(ArrivedCheckpoint {
                mark,
                state,
                schedule,
                addresses,
            })
        })
        .ok_or(())
}
