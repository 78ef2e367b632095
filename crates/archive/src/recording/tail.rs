//! Where a recording ends that was not stopped.

use crate::batch::{BatchError, BatchHeader};
use crate::block::BlockHeader;
use crate::catalog::{Boundary, Recording};
use crate::folder::{Folder, StorageError};
use crate::recording::create_segment;
use crate::recording::kept::{has_content, keep_end};
use crate::recording::mark::with_mark;
use crate::segment::{SegmentError, SegmentHeader, SegmentName};
use crate::walk::{Block, Torn, WalkError, Walker};
use crate::{Position, RecordingId, RecordingTag};
use seatrial_machine::{Disk, Medium};
use std::path::PathBuf;
use std::sync::Arc;

/// A piece of a recording that a crash had interrupted, and that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The recording.
    pub recording: RecordingId,
    /// The file.
    pub file: PathBuf,
    /// The offset in the file from which on it was cut; 0 when the whole file went.
    pub offset: u64,
    /// Bytes cut off.
    pub length: u64,
    /// Why: what is wrong there. Nothing when an empty file went.
    pub torn: Option<Torn>,
    /// The file that holds the bytes that were cut off; nothing when they were zeros, or none.
    pub kept: Option<PathBuf>,
}

/// Why the end of a recording cannot be told. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The storage refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The blocks of the file are damaged, or cannot be read.
    #[error("{file}: {source}")]
    Walk {
        /// The file.
        file: PathBuf,
        /// Why.
        source: WalkError,
    },
    /// The first block of the file is not that of this segment.
    #[error("{file}: {source}")]
    Segment {
        /// The file.
        file: PathBuf,
        /// Why.
        source: SegmentError,
    },
    /// A whole block that is not a batch.
    #[error("{file} at {offset}: {source}")]
    Batch {
        /// The file.
        file: PathBuf,
        /// Where the block starts.
        offset: u64,
        /// Why.
        source: BatchError,
    },
    /// A whole block that does not go on where the one before ends.
    #[error("{file} at {offset}: {field} is {found}, {expected} belongs here")]
    Next {
        /// The file.
        file: PathBuf,
        /// Where the block starts.
        offset: u64,
        /// What of it is compared.
        field: &'static str,
        /// What belongs here.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// What was durable is missing.
    #[error("recording {recording} ends at {found} in {file}, but it was durable up to {expected}{}", because(.torn.as_ref()))]
    Lost {
        /// The recording.
        recording: RecordingId,
        /// Its last file.
        file: PathBuf,
        /// The end that the catalog is sure of.
        expected: Position,
        /// The end that was found.
        found: Position,
        /// What is wrong there.
        torn: Option<Torn>,
    },
    /// The last file goes on with a block of another recording.
    #[error(
        "{file} at {}: {}; nothing was cut: `seatrial archive verify --repair` cuts the recording there and keeps what it \
         cuts", .torn.offset, .torn.defect
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Where, and which.
        torn: Torn,
    },
    /// Blocks after an invalid one are whole. A power failure can leave that (they were written without a sync between
    /// them), but so can a flipped bit, and cutting would lose the messages in them: only an explicit repair does.
    #[error(
        "{file}: {torn}; the file goes on with blocks that are whole ({}), so nothing was cut: \
         `seatrial archive verify --repair` cuts the recording there and keeps what it cuts",
        .torn.unordered
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Where it would have been cut, and why.
        torn: Torn,
    },
    /// There is no file of the recording.
    #[error("recording {recording} has no segment at or behind {start}")]
    Missing {
        /// The recording.
        recording: RecordingId,
        /// Where it starts.
        start: Position,
    },
}

fn because(torn: Option<&Torn>) -> String {
    torn.map_or(String::new(), |torn| format!(": {torn}"))
}

/// The end of a recording.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Where the next block goes; everything before is durable.
    pub(crate) end: Boundary,
    /// What was cut off.
    pub(crate) cuts: Vec<Cut>,
}

/// Reads the batches of a segment in order and checks that each goes on where the one before ends.
pub(crate) struct SegmentWalk<'a> {
    file: PathBuf,
    walker: Walker<'a>,
    /// The segment's first byte; nothing when its first block is not valid.
    start: Option<Boundary>,
    /// Where the next block goes.
    end: Option<Boundary>,
    torn: Option<Torn>,
}

/// A batch of a segment, and where it is.
pub(crate) struct Walked<'a> {
    pub(crate) before: Boundary,
    pub(crate) after: Boundary,
    pub(crate) block: BlockHeader,
    pub(crate) header: BatchHeader,
    pub(crate) frames: &'a [u8],
}

impl<'a> SegmentWalk<'a> {
    /// Reads the first block. A torn one is no error: the walk is over then.
    pub(crate) fn new(
        folder: &Folder,
        name: SegmentName,
        tag: Option<RecordingTag>,
        medium: &'a dyn Medium,
    ) -> Result<SegmentWalk<'a>, TailError> {
        let disk: &dyn Disk = medium;
        let file = || folder.path(&name.file());
        let mut walker = Walker::new(disk, 0).of_recording(tag);
        let (mut start, mut end, mut torn) = (None, None, None);
        match walker.next_block() {
            Ok(None) => {}
            // A batch is written only once the first block is durable: with bytes after its place it was whole.
            Err(WalkError::Torn(found)) if medium.len() <= crate::SEGMENT_BLOCK_LENGTH => {
                torn = Some(found);
            }
            Err(source) => {
                return Err(TailError::Walk {
                    file: file(),
                    source,
                });
            }
            Ok(Some(block)) => {
                let first = first_block(name, &block).map_err(|source| TailError::Segment {
                    file: file(),
                    source,
                })?;
                start = Some(first);
                let length = block.header.block_length();
                let behind = first.after_block(length, 0, first.time);
                end = Some(behind.ok_or_else(|| exhausted(file(), 0))?);
            }
        }
        Ok(SegmentWalk {
            file: file(),
            walker,
            start,
            end,
            torn,
        })
    }

    /// The segment's first byte; nothing when its first block is not valid.
    pub(crate) fn start(&self) -> Option<Boundary> {
        self.start
    }

    /// The end of what was read and found valid; nothing when not even the first block is.
    pub(crate) fn end(&self) -> Option<Boundary> {
        self.end
    }

    /// What is wrong at the end, once all was read.
    pub(crate) fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The next batch; nothing at the end, torn or not.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Walked<'_>>, TailError> {
        let Some(before) = self.end else {
            return Ok(None);
        };
        let block = match self.walker.next_block() {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(None),
            Err(WalkError::Torn(torn)) => {
                self.torn = Some(torn);
                return Ok(None);
            }
            Err(source) => {
                let file = self.file.clone();
                return Err(TailError::Walk { file, source });
            }
        };
        let (file, offset) = (|| self.file.clone(), block.offset);
        let (header, frames) =
            BatchHeader::decode(block.header.kind, block.payload).map_err(|source| {
                TailError::Batch {
                    file: file(),
                    offset,
                    source,
                }
            })?;
        for (field, expected, found) in [
            ("first message", before.message, header.first_message),
            (
                "time, not below,",
                before.time,
                before.time.min(header.time),
            ),
        ] {
            if found != expected {
                return Err(TailError::Next {
                    file: file(),
                    offset,
                    field,
                    expected,
                    found,
                });
            }
        }
        let length = block.header.block_length();
        let after = before
            .after_block(length, header.messages, header.time)
            .ok_or_else(|| exhausted(file(), offset))?;
        self.end = Some(after);
        Ok(Some(Walked {
            before,
            after,
            block: block.header,
            header,
            frames,
        }))
    }

    /// Reads all that is left.
    pub(crate) fn finish(&mut self) -> Result<(), TailError> {
        while self.next_batch()?.is_some() {}
        Ok(())
    }
}

/// The segment's first byte, from its first block.
fn first_block(name: SegmentName, block: &Block<'_>) -> Result<Boundary, SegmentError> {
    let header = SegmentHeader::decode(block.header.kind, block.payload)?;
    header.check(name)?;
    Ok(Boundary {
        position: name.start,
        message: header.first_message,
        sequence: block.header.sequence,
        time: header.time,
    })
}

/// The block at `offset` would end behind the last position or number.
fn exhausted(file: PathBuf, offset: u64) -> TailError {
    TailError::Next {
        file,
        offset,
        field: "the number of positions left",
        expected: 1,
        found: 0,
    }
}

/// May recovery cut what is invalid at the end of a recording? Not what no interrupted write leaves.
pub(crate) fn check_torn(file: impl FnOnce() -> PathBuf, torn: Torn) -> Result<(), TailError> {
    if torn.is_foreign() {
        return Err(TailError::Foreign { file: file(), torn });
    }
    if torn.unordered > 0 {
        return Err(TailError::Newer { file: file(), torn });
    }
    Ok(())
}

/// Copies what follows `offset` in a segment to a file beside it, durable when this returns; nothing when all of it is zero.
fn keep(
    folder: &Folder,
    file: &str,
    medium: &dyn Medium,
    offset: u64,
) -> Result<Option<PathBuf>, StorageError> {
    if !has_content(medium, offset) {
        return Ok(None);
    }
    let kept = keep_end(folder, file, offset)?;
    folder.sync()?;
    Ok(Some(kept.path))
}

/// Finds the end of a recording by walking its last segment, cuts off what a crash had interrupted, and makes durable what
/// stays. Only an incomplete last write is cut: a tail that holds a block after the invalid one is an error. What is cut off
/// is kept in a file of its own, durable before the cut, unless all of it is zero. `starts` are
/// the positions at which its segments start, as far as there are files. A recording without any has its first one made if
/// `may_be_new`: the crash came before that.
pub(crate) fn recover_tail(
    folder: &Folder,
    recording: &Recording,
    starts: &[Position],
    may_be_new: bool,
) -> Result<Tail, TailError> {
    let recording = &with_mark(&*folder.storage, &folder.path(""), recording.clone());
    let (id, first) = (recording.id, recording.start.position);
    let mut starts: Vec<Position> = starts.iter().copied().filter(|at| *at >= first).collect();
    let mut cuts = Vec::new();
    while let Some(start) = starts.pop() {
        let name = SegmentName {
            recording: id,
            start,
        };
        let file = name.file();
        let medium = folder.open_write(&file)?;
        let mut walk = SegmentWalk::new(folder, name, recording.tag, &*medium)?;
        walk.finish()?;
        let (end, torn) = (walk.end(), walk.torn());
        let position = end.map_or(start, |end| end.position);
        if position < recording.end.position {
            return Err(TailError::Lost {
                recording: id,
                file: folder.path(&file),
                expected: recording.end.position,
                found: position,
                torn,
            });
        }
        if let Some(torn) = torn {
            check_torn(|| folder.path(&file), torn)?;
        }
        if torn.is_some() || end.is_none() {
            let offset = position.since(start);
            let kept = keep(folder, &file, &*medium, offset)?;
            cuts.push(Cut {
                recording: id,
                file: folder.path(&file),
                offset,
                length: medium.len() - offset,
                torn,
                kept,
            });
        }
        let Some(end) = end else {
            // The crash came while it was begun.
            folder.remove(&file)?;
            folder.sync()?;
            if start == first {
                return begin(folder, recording, cuts);
            }
            continue;
        };
        if torn.is_some() {
            folder.cut(&file, &*medium, end.position.since(start))?;
        }
        folder.sync_file(&file, &*medium)?;
        folder.sync()?;
        return Ok(Tail { end, cuts });
    }
    if may_be_new && recording.end == recording.start {
        return begin(folder, recording, cuts);
    }
    Err(TailError::Missing {
        recording: id,
        start: first,
    })
}

/// Makes the first segment of a recording.
fn begin(folder: &Folder, recording: &Recording, cuts: Vec<Cut>) -> Result<Tail, TailError> {
    let (_, end) = create_first(folder, recording)?;
    Ok(Tail { end, cuts })
}

/// Makes the first segment of a recording; answers with the file and where its first batch goes.
pub(crate) fn create_first(
    folder: &Folder,
    recording: &Recording,
) -> Result<(Arc<dyn Medium>, Boundary), StorageError> {
    let start = recording.start;
    let header = SegmentHeader {
        recording: recording.id,
        start: start.position,
        first_message: start.message,
        segment_length: recording.segment_length,
        time: start.time,
    };
    let medium = create_segment(folder, &header, start.sequence, recording.tag)?;
    let end = Boundary {
        position: start.position.plus(crate::SEGMENT_BLOCK_LENGTH),
        sequence: start.sequence.saturating_add(1),
        ..start
    };
    Ok((medium, end))
}
