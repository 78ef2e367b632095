//! One recording: its writer, the writer's progress, and the recovery of its end after a crash.

mod cut_copy;
mod durable_mark;
mod recording_writer;
mod tail;
mod writer_progress;

pub(crate) use cut_copy::keep_end;
pub(crate) use durable_mark::{remove as remove_mark, with_mark};
pub use recording_writer::{AppendError, Appended, Writer};
pub(crate) use recording_writer::{Shared, State};
pub use tail::{Cut, TailError};
pub(crate) use tail::{SegmentWalk, WalkedBatch, check_torn, create_first, recover_tail};
pub use writer_progress::{WriterProgress, WriterState};

use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::segment::{SegmentHeader, SegmentName};
use crate::{Position, RecordingId, SEGMENT_LENGTH};
use seatrial_blocks::RecordingTag;
use seatrial_machine::Medium;
use std::collections::BTreeMap;
use std::sync::Arc;

/// When appended messages are synced. At every level, what an append has written survives the end of the process;
/// `Appended::durable` and `WriterProgress::durable` are the end of what survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When a segment is full, when the recording is stopped, and on `Writer::sync`; otherwise when the operating system
    /// writes.
    None,
    /// When `bytes` wait for a sync, or `milliseconds` after the oldest unsynced write. The caller calls `Writer::tick` at
    /// the time that `Writer::sync_at` returns.
    Group {
        /// Longest wait, in milliseconds.
        milliseconds: u32,
        /// Number of unsynced bytes that triggers a sync.
        bytes: u64,
    },
    /// Before every append returns.
    Batch,
}

/// Options of a new recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOptions {
    /// Its label, at most `LABEL_LENGTH_MAX` bytes; not unique.
    pub label: String,
    /// Length in bytes from which on a segment is followed by the next one: `SEGMENT_LENGTH_MIN` to
    /// `SEGMENT_LENGTH_MAX`.
    pub segment_length: u64,
    /// When appended messages are synced.
    pub durability: Durability,
}

impl Default for RecordingOptions {
    fn default() -> RecordingOptions {
        RecordingOptions {
            label: String::new(),
            segment_length: SEGMENT_LENGTH,
            durability: Durability::None,
        }
    }
}

/// Creates a segment with its first block; contents and name are durable when this returns.
pub(crate) fn create_segment(
    folder: &ArchiveFolder,
    header: &SegmentHeader,
    sequence: u64,
    tag: Option<RecordingTag>,
) -> Result<Arc<dyn Medium>, StorageError> {
    let name = SegmentName {
        recording: header.recording,
        start: header.start,
    };
    let name = name.file();
    let medium = folder.create(&name)?;
    folder.write(&name, &*medium, 0, &header.block(sequence, tag))?;
    folder.sync_file(&name, &*medium)?;
    folder.sync()?;
    Ok(medium)
}

/// The start positions of all recordings' segments that are in the folder, in order.
pub(crate) fn all_segments(files: &[String]) -> BTreeMap<RecordingId, Vec<Position>> {
    let mut starts: BTreeMap<RecordingId, Vec<Position>> = BTreeMap::new();
    let mut names: Vec<SegmentName> = (files.iter())
        .filter_map(|file| SegmentName::parse(file))
        .collect();
    names.sort_unstable();
    for name in names {
        starts.entry(name.recording).or_default().push(name.start);
    }
    starts
}

/// The start positions of a recording's segments that are in the folder, in order.
pub(crate) fn segments(files: &[String], recording: RecordingId) -> Vec<Position> {
    let mut starts: Vec<Position> = (files.iter())
        .filter_map(|file| SegmentName::parse(file))
        .filter(|name| name.recording == recording)
        .map(|name| name.start)
        .collect();
    starts.sort_unstable();
    starts
}
