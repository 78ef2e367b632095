//! Recovery of a journal: what a replica knows at its start.

use crate::journal::{BlockHead, JOURNAL, JournalOwner, JournalRecord};
use seatrial_blocks::{Block, Frames, RecoverError, Recovery, Walker};
use seatrial_consensus::{LogEntry, Payload, Vote};
use seatrial_machine::{DataFolder, LogName, LogView, NodeId};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// Why a replica cannot start from its folder.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The journal cannot be read to its end.
    #[error(transparent)]
    Journal(#[from] RecoverError),
    /// A complete record that a replica does not write.
    #[error("record at {offset} (byte {place} of the payload of its block): {problem}")]
    Record {
        /// Offset of the record's block.
        offset: u64,
        /// Offset of the record within the block's payload.
        place: usize,
        /// The error.
        problem: String,
    },
    /// The folder belongs to another node or cluster.
    #[error("the folder belongs to node {} of cluster {}, not to node {} of cluster {}", .found.1, .found.0, .expected.1, .expected.0)]
    Owner {
        /// Cluster and node of the folder.
        found: (u64, NodeId),
        /// Cluster and node that start.
        expected: (u64, NodeId),
    },
    /// Entries are missing between the newest checkpoint and the journal.
    #[error("the journal begins at index {first}, the newest checkpoint ends at {checkpoint}")]
    Gap {
        /// First index of the journal.
        first: u64,
        /// Index of the newest checkpoint; 0: there is none.
        checkpoint: u64,
    },
    /// Checkpoints cannot be listed, or none of them is whole.
    #[error("{file}: {problem}")]
    Checkpoint {
        /// Their folder.
        file: String,
        /// The error.
        problem: String,
    },
    /// A node without a log in a cluster of several.
    #[error(
        "a node without a log must be the only member of its cluster: it forgets its entries and its vote in a crash"
    )]
    NotAlone,
    /// The journal is lost, and the cluster is too small to restore it.
    #[error(
        "{problem}; a node of a cluster of three or more voters gets its data from the others, this cluster has {voters}: \
         restore the folder from a copy"
    )]
    Lost {
        /// What is wrong.
        problem: Box<BootError>,
        /// Number of the cluster's voters.
        voters: usize,
    },
    /// The journal ends before a position up to which it was durable.
    #[error("the journal ends at {found}, but it was durable up to {expected}")]
    Short {
        /// Its end.
        found: u64,
        /// The position that its mark has.
        expected: u64,
    },
    /// What was known of the journal is damaged, or says that the journal is lost.
    #[error("{0}")]
    Mark(String),
    /// Consensus refuses to start.
    #[error(transparent)]
    Consensus(#[from] seatrial_consensus::ConfigError),
}

/// The contents of a journal.
#[derive(Debug)]
pub(crate) struct JournalContents {
    /// Its end.
    pub(crate) recovery: Recovery,
    /// Head of the last block; `None`: the journal is empty.
    pub(crate) head: Option<BlockHead>,
    /// The founding voters and the rule of checkpoints, unless that block was freed.
    pub(crate) founding: Option<(Vec<NodeId>, u64)>,
    /// Index and term of the checkpoint that the entries continue; zeros: the beginning of the log, or a freed part of it.
    pub(crate) installed: (u64, u64),
    /// Consecutive entries.
    pub(crate) entries: Vec<LogEntry>,
    /// First index and position of blocks with entries.
    pub(crate) blocks: VecDeque<(u64, u64)>,
}

impl BootError {
    /// The folder's journal or mark has another owner than the node that starts.
    pub(crate) fn owner(found: JournalOwner, expected: JournalOwner) -> BootError {
        BootError::Owner {
            found: (found.cluster, found.node),
            expected: (expected.cluster, expected.node),
        }
    }

    /// Is something lost that was on the disk? Everything else is for an operator: another node's folder, a newer format, a disk
    /// that cannot be read at the moment.
    pub(crate) fn is_loss(&self) -> bool {
        // A segment that is missing, cut or overlaps: what the log itself finds.
        let is_gap = |error: &io::Error| {
            let kinds = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
            kinds.contains(&error.kind())
        };
        match self {
            BootError::File(error) => is_gap(error),
            BootError::Journal(RecoverError::Damaged(_))
            | BootError::Gap { .. }
            | BootError::Checkpoint { .. }
            | BootError::Short { .. }
            | BootError::Mark(_) => true,
            BootError::Journal(RecoverError::Fault { cause, .. }) => is_gap(cause),
            BootError::Journal(RecoverError::Version { .. })
            | BootError::Record { .. }
            | BootError::Owner { .. }
            | BootError::Lost { .. }
            | BootError::NotAlone
            | BootError::Consensus(_) => false,
        }
    }
}

/// Prefix of the segments of a lost journal that were moved aside.
const ASIDE: &str = "lost-";

/// Moves the segments of a lost journal aside, so that a new one can begin, and what is left of it can be looked at. `start`
/// makes the names unique.
pub(crate) fn move_aside(data: &DataFolder, start: u64) -> io::Result<()> {
    let (storage, folder) = (data.storage(), data.path());
    let names = storage.list(folder)?;
    // A spare file has blocks of the lost journal, whose numbers the new one will use again.
    for name in names.iter().filter(|name| LogName::MAIN.is_spare(name)) {
        storage.remove(&folder.join(name))?;
    }
    for name in names.iter().filter(|name| LogName::MAIN.is_segment(name)) {
        let aside = format!("{ASIDE}{start}-{name}");
        if names.contains(&aside) {
            // A journal that was begun after the loss, by a start that did not rejoin.
            storage.remove(&folder.join(name))?;
        } else {
            storage.rename(&folder.join(name), &folder.join(aside))?;
        }
    }
    storage.sync_folder(folder)
}

/// Removes the segments of an earlier journal: this node has all that the cluster has decided.
pub(crate) fn remove_moved(data: &DataFolder) -> io::Result<()> {
    let (storage, folder) = (data.storage(), data.path());
    for name in storage.list(folder)? {
        let rest = name.strip_prefix(ASIDE);
        let segment = rest.and_then(|rest| rest.split_once('-'));
        if segment.is_some_and(|(_, segment)| LogName::MAIN.is_segment(segment)) {
            storage.remove(&folder.join(&name))?;
        }
    }
    Ok(())
}

impl JournalContents {
    /// A journal without blocks.
    pub(crate) fn empty() -> JournalContents {
        JournalContents {
            recovery: Recovery {
                end: 0,
                next_sequence: 0,
                blocks: 0,
                torn: None,
            },
            head: None,
            founding: None,
            installed: (0, 0),
            entries: Vec::new(),
            blocks: VecDeque::new(),
        }
    }

    /// Reads a journal from its first position to its end. Memory: the entries after the checkpoint at `checkpoint`; of others
    /// the index and term. `keeps_replaced`: a planted bug.
    pub(crate) fn read(
        log: &LogView,
        owner: JournalOwner,
        checkpoint: u64,
        keeps_replaced: bool,
    ) -> Result<JournalContents, BootError> {
        let mut walker = Walker::new(log, log.start());
        if log.start() == 0 {
            walker = walker.expecting(0);
        }
        let mut reader = JournalReader {
            owner,
            checkpoint,
            keeps_replaced,
            head: None,
            founding: None,
            installed: (0, 0),
            entries: Vec::new(),
            blocks: VecDeque::new(),
        };
        let mut blocks = 0;
        let result = loop {
            match walker.next_block() {
                Ok(Some(block)) => reader.block(&block)?,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            blocks += 1;
        };
        Ok(JournalContents {
            recovery: Recovery::after(&walker, blocks, result)?,
            head: reader.head,
            founding: reader.founding,
            installed: reader.installed,
            entries: reader.entries,
            blocks: reader.blocks,
        })
    }

    /// Does it have every entry since the first one? Then no checkpoint is needed.
    pub(crate) fn is_complete(&self) -> bool {
        let first = self.entries.first().map(|entry| entry.index);
        first == Some(1) && self.installed == (0, 0) && self.founding.is_some()
    }

    /// Number of the last start.
    pub(crate) fn start(&self) -> u64 {
        self.head.map_or(0, |head| head.start)
    }

    /// Drops the entries that a checkpoint has. False: the entries do not continue it, and are void; the cluster has decided
    /// others, or the checkpoint has all of them.
    pub(crate) fn continue_from(&mut self, index: u64, term: u64) -> Result<bool, BootError> {
        // The checkpoint that the journal continues is damaged or gone, and an older one was taken.
        if self.installed.0 > index {
            return Err(BootError::Gap {
                first: self.installed.0 + 1,
                checkpoint: index,
            });
        }
        let Some(first) = self.entries.first().map(|entry| entry.index) else {
            return Ok(self.installed == (index, term) || index == 0);
        };
        if first > index + 1 {
            return Err(BootError::Gap {
                first,
                checkpoint: index,
            });
        }
        let here = usize::try_from(index.wrapping_sub(first)).ok();
        let continues = match here.and_then(|at| self.entries.get(at)) {
            Some(entry) => entry.term == term,
            // What is freed ends with a checkpoint that was kept.
            None => first == index + 1,
        };
        if continues {
            self.entries.retain(|entry| entry.index > index);
        } else {
            self.entries.clear();
        }
        Ok(continues)
    }

    /// The durable vote.
    pub(crate) fn vote(&self) -> Vote {
        self.head.map(|head| head.vote).unwrap_or_default()
    }
}

/// Reads the records of a journal in order.
#[derive(Debug)]
struct JournalReader {
    owner: JournalOwner,
    checkpoint: u64,
    keeps_replaced: bool,
    head: Option<BlockHead>,
    founding: Option<(Vec<NodeId>, u64)>,
    installed: (u64, u64),
    entries: Vec<LogEntry>,
    blocks: VecDeque<(u64, u64)>,
}

impl JournalReader {
    fn block(&mut self, block: &Block<'_>) -> Result<(), BootError> {
        let error = |place, problem| BootError::Record {
            offset: block.offset,
            place,
            problem,
        };
        if block.header.kind != JOURNAL {
            let kind = block.header.kind.0;
            let text = format!("a block of kind {kind} is not of a replica's journal");
            return Err(error(0, text));
        }
        let mut first = None;
        for frame in Frames::new(block.payload) {
            let frame = frame.map_err(|problem| error(0, problem.to_string()))?;
            let record = JournalRecord::decode(&frame)
                .map_err(|problem| error(frame.offset, problem.to_string()))?;
            if let JournalRecord::Entry(entry) = &record
                && first.is_none()
            {
                first = Some(entry.index);
                while self.blocks.pop_back_if(|it| it.0 >= entry.index).is_some() {}
                self.blocks.push_back((entry.index, block.offset));
            }
            self.record(record)?
                .map_err(|problem| error(frame.offset, problem))?;
        }
        Ok(())
    }

    fn record(&mut self, record: JournalRecord) -> Result<Result<(), String>, BootError> {
        match record {
            JournalRecord::Head(head) => {
                if head.owner != self.owner {
                    return Err(BootError::owner(head.owner, self.owner));
                }
                self.head = Some(head);
            }
            JournalRecord::Founding {
                voters,
                checkpoint_bytes,
            } => self.founding = Some((voters, checkpoint_bytes)),
            JournalRecord::Install { index, term } => {
                self.installed = (index, term);
                self.entries.clear();
                self.blocks.clear();
            }
            JournalRecord::Entry(entry) => return Ok(self.entry(entry)),
            JournalRecord::Padding => {}
        }
        Ok(Ok(()))
    }

    fn entry(&mut self, mut entry: LogEntry) -> Result<(), String> {
        if entry.index <= self.checkpoint {
            entry.payload = Payload::Empty;
        }
        if let Some(first) = self.entries.first().map(|it| it.index) {
            let next = first + self.entries.len() as u64;
            if entry.index > next {
                return Err(format!("entry {} after entry {}", entry.index, next - 1));
            }
            if entry.index < next && self.keeps_replaced {
                return Ok(()); // the planted bug
            }
            // An entry replaces the one with its index and all that follow.
            let kept = entry.index.saturating_sub(first);
            self.entries
                .truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        }
        self.entries.push(entry);
        Ok(())
    }
}
