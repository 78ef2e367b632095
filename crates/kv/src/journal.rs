//! The journal of a replica: entries and vote in blocks, one block and one sync for each batch.

use seatrial_blocks::block::{self, flags};
use seatrial_blocks::{BlockKind, Frame, frame};
use seatrial_consensus::{LogEntry, MemberChange, Members, Payload, Persist, SnapshotMark, Vote};
use seatrial_machine::{DIRECT_UNIT, FieldReader, MessageError, NodeId, Ticket};
use std::collections::VecDeque;

/// The kind of the journal's blocks.
pub const JOURNAL: BlockKind = BlockKind(33);
/// Version of the journal's records. Those of version 1, which have no padding, are read as well.
pub(crate) const VERSION: u32 = 2;

/// Kinds of frames.
const HEAD: u32 = 0;
const FOUNDING: u32 = 1;
const INSTALL: u32 = 2;
const ENTRY_EMPTY: u32 = 3;
const ENTRY_DATA: u32 = 4;
const ENTRY_MEMBERSHIP: u32 = 5;
const ENTRY_LEAVE_JOINT: u32 = 6;
const PADDING: u32 = 7;

/// To whom a journal belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalOwner {
    /// Number of the cluster.
    pub(crate) cluster: u64,
    /// The node.
    pub(crate) node: NodeId,
}

/// The first frame of every block: what must survive even when all earlier blocks are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) owner: JournalOwner,
    /// Number of the start that wrote the block.
    pub(crate) start: u64,
    /// The vote from this block on.
    pub(crate) vote: Vote,
}

/// One record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalRecord {
    /// The head of a block.
    Head(BlockHead),
    /// The founding voters of the cluster, and the rule of its checkpoints. Written at the first start.
    Founding {
        /// The voters.
        voters: Vec<NodeId>,
        /// See [`crate::ReplicaOptions::checkpoint_bytes`].
        checkpoint_bytes: u64,
    },
    /// The log continues this transferred checkpoint; all entries before are gone.
    Install {
        /// The last index in the checkpoint.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// An entry. It replaces an entry with its index and everything after it.
    Entry(LogEntry),
    /// Zeros up to the end of a sector.
    Padding,
}

/// The end of a journal: makes blocks, and knows where each begins until it is freed.
///
/// Several blocks may be under way; they become durable in order.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    owner: JournalOwner,
    start: u64,
    vote: Vote,
    /// Sequence number of the next block.
    sequence: u64,
    /// Position of the next block in the log.
    position: u64,
    /// First index and position of the blocks with entries, both increasing. Entries from an index on are in the last block
    /// that begins at or below it, and in later ones.
    blocks: VecDeque<(u64, u64)>,
    /// Blocks that are not durable, oldest first.
    under_way: VecDeque<BlockUnderWay>,
}

/// A block that is not durable.
#[derive(Clone, Copy, Debug)]
struct BlockUnderWay {
    sequence: u64,
    /// Where it begins in the log.
    position: u64,
    /// The ticket of consensus that waits for it.
    waiting: Option<Ticket>,
}

impl JournalWriter {
    /// Continues a journal. `blocks`: see [`JournalWriter`].
    pub(crate) fn new(
        owner: JournalOwner,
        start: u64,
        vote: Vote,
        (sequence, position): (u64, u64),
        blocks: VecDeque<(u64, u64)>,
    ) -> JournalWriter {
        JournalWriter {
            owner,
            start,
            vote,
            sequence,
            position,
            blocks,
            under_way: VecDeque::new(),
        }
    }

    /// Number of blocks that are not durable.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Bytes of the blocks with entries that are kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let first = self.blocks.front().map_or(self.position, |it| it.1);
        self.position - first
    }

    /// The position up to which the log is durable.
    pub(crate) fn durable_end(&self) -> u64 {
        self.under_way
            .front()
            .map_or(self.position, |block| block.position)
    }

    /// The block that records a start; at the first one, the founding of the cluster. `install`: the entries so far are void, the
    /// log continues this checkpoint.
    pub(crate) fn start_block(
        &mut self,
        founding: Option<(&Members, u64)>,
        install: Option<&SnapshotMark>,
    ) -> (Vec<u8>, Ticket) {
        let mut bytes = self.begin();
        if let Some(mark) = install {
            put_install(&mut bytes, mark);
            self.blocks.clear();
        }
        if let Some((members, checkpoint_bytes)) = founding {
            let at = frame::begin(&mut bytes);
            put(&mut bytes, &checkpoint_bytes.to_le_bytes());
            for node in &members.voters {
                put(&mut bytes, &node.number().to_le_bytes());
            }
            frame::finish(&mut bytes, at, FOUNDING);
        }
        self.finish(bytes, None)
    }

    /// The block of a batch that consensus wants to be durable.
    pub(crate) fn block(&mut self, persist: &Persist, keeps_vote: bool) -> (Vec<u8>, Ticket) {
        self.vote = persist.vote;
        if !keeps_vote {
            self.vote.vote = None; // the planted bug
        }
        let mut bytes = self.begin();
        if let Some(mark) = &persist.install {
            put_install(&mut bytes, mark);
            self.blocks.clear();
        }
        if let Some(first) = persist.entries.first() {
            // Blocks whose entries are all replaced hold nothing that is needed.
            while self.blocks.pop_back_if(|it| it.0 >= first.index).is_some() {}
            self.blocks.push_back((first.index, self.position));
        }
        for entry in &persist.entries {
            put_entry(&mut bytes, entry);
        }
        self.finish(bytes, Some(persist.ticket))
    }

    fn begin(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        block::begin(&mut bytes);
        let at = frame::begin(&mut bytes);
        put(&mut bytes, &VERSION.to_le_bytes());
        put(&mut bytes, &self.owner.node.number().to_le_bytes());
        put(&mut bytes, &self.owner.cluster.to_le_bytes());
        put(&mut bytes, &self.start.to_le_bytes());
        put(&mut bytes, &self.vote.term.to_le_bytes());
        put(&mut bytes, &self.vote.commit.to_le_bytes());
        let vote = self.vote.vote.map_or(0, NodeId::number);
        put(&mut bytes, &vote.to_le_bytes());
        frame::finish(&mut bytes, at, HEAD);
        bytes
    }

    fn finish(&mut self, mut bytes: Vec<u8>, waiting: Option<Ticket>) -> (Vec<u8>, Ticket) {
        // A crash may keep this block and lose the one before it, as long as that one is not durable.
        let flags = if self.under_way.is_empty() {
            0
        } else {
            flags::UNORDERED
        };
        pad(&mut bytes);
        block::finish_plain(&mut bytes, 0, JOURNAL, flags, self.sequence);
        let ticket = Ticket(self.sequence);
        self.under_way.push_back(BlockUnderWay {
            sequence: self.sequence,
            position: self.position,
            waiting,
        });
        self.sequence += 1;
        self.position += bytes.len() as u64;
        (bytes, ticket)
    }

    /// The block with this ticket is durable, and all before it. Returns the newest ticket of consensus among them.
    pub(crate) fn appended(&mut self, ticket: Ticket) -> Option<Ticket> {
        let mut newest = None;
        while let Some(done) = self.under_way.pop_front_if(|it| it.sequence <= ticket.0) {
            newest = done.waiting.or(newest);
        }
        newest
    }

    /// Position of a block at or before the entry with this index.
    pub(crate) fn position_of(&self, index: u64) -> Option<u64> {
        let after = self.blocks.partition_point(|it| it.0 <= index);
        after.checked_sub(1).map(|at| self.blocks[at].1)
    }

    /// The position before which the log holds nothing that is needed, when the first needed entry has this index.
    pub(crate) fn free_before(&mut self, first: u64) -> Option<u64> {
        let mut freed = false;
        while self.blocks.get(1).is_some_and(|next| next.0 <= first) {
            self.blocks.pop_front();
            freed = true;
        }
        freed.then(|| self.blocks.front().map(|it| it.1)).flatten()
    }

    /// Asserts the invariants.
    pub(crate) fn check_invariants(&self) {
        if let (Some(first), Some(last)) = (self.blocks.front(), self.blocks.back()) {
            debug_assert!(first.0 <= last.0 && first.1 <= last.1);
            assert!(last.1 < self.position);
        }
        let last = self.under_way.back();
        assert!(last.is_none_or(|it| it.sequence < self.sequence));
    }
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(field);
}

/// Fills the last sector of a block, so that the next one is written without it: a write that is torn there could take durable
/// bytes with it. The log writes whole sectors past the page cache ([`seatrial_machine::OpenLog::direct`]).
fn pad(bytes: &mut Vec<u8>) {
    let end = bytes.len().next_multiple_of(DIRECT_UNIT);
    if end > bytes.len() {
        let at = frame::begin(bytes);
        bytes.resize(end, 0);
        frame::finish(bytes, at, PADDING);
    }
    assert!(bytes.len().is_multiple_of(DIRECT_UNIT));
}

fn put_install(bytes: &mut Vec<u8>, mark: &SnapshotMark) {
    let at = frame::begin(bytes);
    put(bytes, &mark.index.to_le_bytes());
    put(bytes, &mark.term.to_le_bytes());
    frame::finish(bytes, at, INSTALL);
}

fn put_entry(bytes: &mut Vec<u8>, entry: &LogEntry) {
    let at = frame::begin(bytes);
    put(bytes, &entry.index.to_le_bytes());
    put(bytes, &entry.term.to_le_bytes());
    let kind = match &entry.payload {
        Payload::Empty => ENTRY_EMPTY,
        Payload::LeaveJoint => ENTRY_LEAVE_JOINT,
        Payload::Data(data) => {
            put(bytes, data);
            ENTRY_DATA
        }
        Payload::Membership(changes) => {
            for change in changes {
                let kind = match change {
                    MemberChange::AddVoter(_) => 1,
                    MemberChange::AddLearner(_) => 2,
                    MemberChange::Remove(_) => 3,
                };
                bytes.push(kind);
                put(bytes, &change.node().number().to_le_bytes());
            }
            ENTRY_MEMBERSHIP
        }
    };
    frame::finish(bytes, at, kind);
}

impl JournalRecord {
    /// Decodes one frame of a block.
    pub(crate) fn decode(frame: &Frame<'_>) -> Result<JournalRecord, MessageError> {
        let mut fields = FieldReader::new(frame.payload);
        let record = match frame.flags {
            HEAD => JournalRecord::Head(read_head(&mut fields)?),
            FOUNDING => {
                let checkpoint_bytes = fields.long("checkpoint bytes")?;
                let mut voters = Vec::new();
                while fields.offset() < frame.payload.len() {
                    voters.push(read_node(&mut fields)?);
                }
                JournalRecord::Founding {
                    voters,
                    checkpoint_bytes,
                }
            }
            PADDING => {
                fields.rest();
                JournalRecord::Padding
            }
            INSTALL => JournalRecord::Install {
                index: fields.long("index")?,
                term: fields.long("term")?,
            },
            kind => JournalRecord::Entry(LogEntry {
                index: fields.long("index")?,
                term: fields.long("term")?,
                payload: read_payload(kind, &mut fields)?,
            }),
        };
        fields.end()?;
        Ok(record)
    }
}

fn read_head(fields: &mut FieldReader<'_>) -> Result<BlockHead, MessageError> {
    let version = fields.word("version")?;
    if !(1..=VERSION).contains(&version) {
        return Err(fields.never("version", 4, u64::from(version)));
    }
    let node = read_node(fields)?;
    let cluster = fields.long("cluster")?;
    let start = fields.long("start")?;
    let (term, commit) = (fields.long("term")?, fields.long("commit")?);
    let vote = match fields.word("vote")? {
        0 => None,
        number if number < 1 << 31 => Some(NodeId::server(number)),
        other => return Err(fields.never("vote", 4, u64::from(other))),
    };
    Ok(BlockHead {
        owner: JournalOwner { cluster, node },
        start,
        vote: Vote { term, vote, commit },
    })
}

fn read_node(fields: &mut FieldReader<'_>) -> Result<NodeId, MessageError> {
    match fields.word("node")? {
        number if number > 0 && number < 1 << 31 => Ok(NodeId::server(number)),
        other => Err(fields.never("node", 4, u64::from(other))),
    }
}

fn read_payload(kind: u32, fields: &mut FieldReader<'_>) -> Result<Payload, MessageError> {
    Ok(match kind {
        ENTRY_EMPTY => Payload::Empty,
        ENTRY_LEAVE_JOINT => Payload::LeaveJoint,
        ENTRY_DATA => Payload::Data(bytes::Bytes::copy_from_slice(fields.rest())),
        ENTRY_MEMBERSHIP => {
            let mut changes = Vec::new();
            while fields.end().is_err() {
                let kind = fields.byte("kind of a change")?;
                let node = read_node(fields)?;
                changes.push(match kind {
                    1 => MemberChange::AddVoter(node),
                    2 => MemberChange::AddLearner(node),
                    3 => MemberChange::Remove(node),
                    other => return Err(fields.never("kind of a change", 5, u64::from(other))),
                });
            }
            Payload::Membership(changes)
        }
        other => {
            return Err(MessageError::Value {
                field: "kind of a record",
                offset: 0,
                value: u64::from(other),
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_blocks::Frames;
    use seatrial_blocks::block::HEADER_LENGTH;

    fn writer() -> JournalWriter {
        let owner = JournalOwner {
            cluster: 7,
            node: NodeId::server(1),
        };
        JournalWriter::new(owner, 3, Vote::default(), (0, 0), VecDeque::new())
    }

    fn entry(index: u64, length: usize) -> LogEntry {
        LogEntry {
            index,
            term: 1,
            payload: Payload::Data(vec![1; length].into()),
        }
    }

    fn records(block: &[u8]) -> Vec<Result<JournalRecord, MessageError>> {
        Frames::new(&block[HEADER_LENGTH..])
            .map(|frame| JournalRecord::decode(&frame.unwrap()))
            .collect()
    }

    #[test]
    fn blocks_fill_whole_sectors() {
        let mut journal = writer();
        let mut paddings = 0;
        for length in 0..1_100 {
            let entries = vec![entry(length as u64 + 1, length)];
            let persist = Persist {
                ticket: Ticket(length as u64),
                install: None,
                entries: entries.clone(),
                vote: Vote::default(),
            };
            let (block, ticket) = journal.block(&persist, true);
            journal.appended(ticket);
            assert!(block.len().is_multiple_of(DIRECT_UNIT), "{length}");
            let mut records = records(&block);
            paddings += usize::from(
                records
                    .pop_if(|it| *it == Ok(JournalRecord::Padding))
                    .is_some(),
            );
            let [Ok(JournalRecord::Head(_)), Ok(JournalRecord::Entry(found))] = &records[..] else {
                panic!("{records:?}");
            };
            assert_eq!(*found, entries[0]);
        }
        assert!((900..1_100).contains(&paddings), "{paddings}");
    }

    /// Version 1 is that of journals without padding.
    #[test]
    fn heads_of_other_versions_are_refused() {
        let mut block = writer().begin();
        let at = HEADER_LENGTH + frame::HEADER_LENGTH;
        for version in 0..5_u32 {
            block[at..at + 4].copy_from_slice(&version.to_le_bytes());
            let head = records(&block).remove(0);
            assert_eq!(head.is_ok(), (1..=2).contains(&version), "{head:?}");
        }
    }
}
