//! The end of a recording that was not stopped.

use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::batch::{BatchError, BatchHeader};
use crate::catalog::{Boundary, Recording};
use crate::recording::create_segment;
use crate::recording::cut_copy::{has_content, keep_end};
use crate::recording::durable_mark::with_mark;
use crate::segment::{SegmentError, SegmentHeader, SegmentName};
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::BlockHeader;
use seatrial_blocks::{Block, Torn, WalkError, Walker};
use seatrial_machine::{Disk, Medium};
use std::path::PathBuf;
use std::sync::Arc;

/// The remains of an interrupted write, cut off the end of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The recording.
    pub recording: RecordingId,
    /// The file.
    pub file: PathBuf,
    /// Offset of the cut in the file; 0 if the whole file was removed.
    pub offset: u64,
    /// Number of bytes cut off.
    pub length: u64,
    /// The invalid block there; `None` if an empty file was removed.
    pub torn: Option<Torn>,
    /// The file with a copy of the bytes cut off; `None` if they were zeros, or none.
    pub kept: Option<PathBuf>,
}

/// Why the end of a recording cannot be determined. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// A storage call failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The blocks of the file are damaged, or cannot be read.
    #[error("{file}: {cause}")]
    Walk {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: WalkError,
    },
    /// The first block of the file is not that of this segment.
    #[error("{file}: {cause}")]
    Segment {
        /// The file.
        file: PathBuf,
        /// The reason.
        cause: SegmentError,
    },
    /// A valid block that is not a batch.
    #[error("{file} at {offset}: {cause}")]
    Batch {
        /// The file.
        file: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// The reason.
        cause: BatchError,
    },
    /// A valid block that does not continue the previous one.
    #[error("{file} at {offset}: expected {field} {expected}, found {found}")]
    Next {
        /// The file.
        file: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// The field that differs.
        field: &'static str,
        /// Its expected value.
        expected: u64,
        /// Its value.
        found: u64,
    },
    /// Durable messages are missing.
    #[error("recording {recording} ends at {found} in {file}, but it was durable up to {expected}{}", because(.torn.as_ref()))]
    Lost {
        /// The recording.
        recording: RecordingId,
        /// Its last file.
        file: PathBuf,
        /// End of what was durable.
        expected: Position,
        /// End of its valid blocks.
        found: Position,
        /// The invalid block there.
        torn: Option<Torn>,
    },
    /// A block of another recording follows in the last file.
    #[error(
        "{file} at {}: {}; nothing was cut: `seatrial archive verify --repair` cuts the recording there and keeps what it \
         cuts", .torn.offset, .torn.defect
    )]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Offset and tag of the block.
        torn: Torn,
    },
    /// Valid blocks follow an invalid one. A power failure can leave that, because they were written without a sync in
    /// between. But so can a flipped bit, and cutting would lose the messages in them: only an explicit repair does it.
    #[error(
        "{file}: {torn}; valid blocks follow ({}), so nothing was cut: \
         `seatrial archive verify --repair` cuts the recording there and keeps what it cuts",
        .torn.unordered
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The invalid block.
        torn: Torn,
    },
    /// The recording has no file.
    #[error("recording {recording} has no segment at or after position {start}")]
    Missing {
        /// The recording.
        recording: RecordingId,
        /// Its start.
        start: Position,
    },
}

fn because(torn: Option<&Torn>) -> String {
    torn.map_or(String::new(), |torn| format!(": {torn}"))
}

/// The recovered end of a recording.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The end; everything before is durable.
    pub(crate) end: Boundary,
    /// What was cut off.
    pub(crate) cuts: Vec<Cut>,
}

/// Reads the batches of a segment in order and checks that each continues the previous one.
pub(crate) struct SegmentWalk<'a> {
    file: PathBuf,
    walker: Walker<'a>,
    /// Start of the segment; `None` if its first block is not valid.
    start: Option<Boundary>,
    /// End of the blocks read.
    end: Option<Boundary>,
    torn: Option<Torn>,
}

/// A batch of a segment, with the boundaries before and after it.
pub(crate) struct WalkedBatch<'a> {
    pub(crate) before: Boundary,
    pub(crate) after: Boundary,
    pub(crate) block: BlockHeader,
    pub(crate) header: BatchHeader,
    pub(crate) frames: &'a [u8],
}

impl<'a> SegmentWalk<'a> {
    /// Reads the first block. A torn one is not an error: it ends the walk.
    pub(crate) fn new(
        folder: &ArchiveFolder,
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
            // A batch is written only after the first block is durable. So a longer file had a valid first block.
            Err(WalkError::Torn(found)) if medium.len() <= crate::SEGMENT_BLOCK_LENGTH => {
                torn = Some(found);
            }
            Err(cause) => {
                return Err(TailError::Walk {
                    file: file(),
                    cause,
                });
            }
            Ok(Some(block)) => {
                let first = first_block(name, &block).map_err(|cause| TailError::Segment {
                    file: file(),
                    cause,
                })?;
                start = Some(first);
                let length = block.header.block_length();
                let after = first.after_block(length, 0, first.time);
                end = Some(after.ok_or_else(|| exhausted(file(), 0))?);
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

    /// Start of the segment; `None` if its first block is not valid.
    pub(crate) fn start(&self) -> Option<Boundary> {
        self.start
    }

    /// End of the valid blocks read so far; `None` if not even the first block is valid.
    pub(crate) fn end(&self) -> Option<Boundary> {
        self.end
    }

    /// The torn tail, once all blocks were read.
    pub(crate) fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The next batch; `None` at the end, torn or clean.
    pub(crate) fn next_batch(&mut self) -> Result<Option<WalkedBatch<'_>>, TailError> {
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
            Err(cause) => {
                let file = self.file.clone();
                return Err(TailError::Walk { file, cause });
            }
        };
        let (file, offset) = (|| self.file.clone(), block.offset);
        let (header, frames) =
            BatchHeader::decode(block.header.kind, block.payload).map_err(|cause| {
                TailError::Batch {
                    file: file(),
                    offset,
                    cause,
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
        Ok(Some(WalkedBatch {
            before,
            after,
            block: block.header,
            header,
            frames,
        }))
    }

    /// Reads the remaining batches.
    pub(crate) fn finish(&mut self) -> Result<(), TailError> {
        while self.next_batch()?.is_some() {}
        Ok(())
    }
}

/// The start of a segment, from its first block.
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

/// The error of a block at `offset` that would end after the last position or number.
fn exhausted(file: PathBuf, offset: u64) -> TailError {
    TailError::Next {
        file,
        offset,
        field: "the number of positions left",
        expected: 1,
        found: 0,
    }
}

/// Checks that recovery may cut off this torn tail: not if an interrupted write cannot have left it.
pub(crate) fn check_torn(file: impl FnOnce() -> PathBuf, torn: Torn) -> Result<(), TailError> {
    if torn.is_foreign() {
        return Err(TailError::Foreign { file: file(), torn });
    }
    if torn.unordered > 0 {
        return Err(TailError::Newer { file: file(), torn });
    }
    Ok(())
}

/// Copies the bytes after `offset` of a segment to a file beside it, durable when this returns; `None` if all are zero.
fn keep(
    folder: &ArchiveFolder,
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

/// Finds the end of a recording by walking its last segment, cuts off an interrupted write, and syncs the rest. Only an
/// incomplete last write is cut off: valid blocks after an invalid one are an error. A copy of what is cut off is durable
/// before the cut, unless it is all zeros. `starts` are the start positions of the segments in the folder. If there is none
/// and `may_be_new`, the crash came before the first segment was created, so it is created now.
pub(crate) fn recover_tail(
    folder: &ArchiveFolder,
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
            // The crash came while its first block was written.
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

/// Creates the first segment of a recording that has none.
fn begin(folder: &ArchiveFolder, recording: &Recording, cuts: Vec<Cut>) -> Result<Tail, TailError> {
    let (_, end) = create_first(folder, recording)?;
    Ok(Tail { end, cuts })
}

/// Creates the first segment of a recording; returns the file and the boundary of its first batch.
pub(crate) fn create_first(
    folder: &ArchiveFolder,
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
