//! One recording: how it is written, how far it has got, and where it ends after a crash.

mod kept;
mod mark;
mod progress;
mod tail;
mod writer;

pub(crate) use kept::keep_end;
pub(crate) use mark::{remove as remove_mark, with_mark};
pub use progress::{Progress, WriterState};
pub use tail::{Cut, TailError};
pub(crate) use tail::{SegmentWalk, Walked, check_torn, create_first, recover_tail};
pub use writer::{AppendError, Appended, Writer};
pub(crate) use writer::{Shared, State};

use crate::folder::{Folder, StorageError};
use crate::segment::{SegmentHeader, SegmentName};
use crate::{Position, RecordingId, RecordingTag, SEGMENT_LENGTH};
use seatrial_machine::Medium;
use std::collections::BTreeMap;
use std::sync::Arc;

/// When what was appended is made durable. Whatever the level, what an append has written survives the end of the
/// process, and `Appended::durable` and `Progress::durable` say what survives a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When a segment is full and when the recording is stopped. Otherwise when the system likes, or somebody calls
    /// `Writer::sync`.
    None,
    /// As soon as this much waits for it, or has waited for so long. `Writer::sync_at` says when the time is up;
    /// `Writer::tick` has to be called then.
    Group {
        /// The longest wait, in milliseconds.
        milliseconds: u32,
        /// So many bytes do not wait.
        bytes: u64,
    },
    /// Before every append returns.
    Batch,
}

/// How a recording is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOptions {
    /// Its name, at most `LABEL_LENGTH_MAX` bytes; several recordings may have the same.
    pub label: String,
    /// The length after which a segment is followed by the next one, in bytes: `SEGMENT_LENGTH_MIN` to
    /// `SEGMENT_LENGTH_MAX`.
    pub segment_length: u64,
    /// When what was appended is made durable.
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

/// Creates a segment with its first block, durable with its name.
pub(crate) fn create_segment(
    folder: &Folder,
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

/// The positions at which the segments of all recordings start, as far as there are files, in order.
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

/// The positions at which the segments of a recording start, as far as there are files, in order.
pub(crate) fn segments(files: &[String], recording: RecordingId) -> Vec<Position> {
    let mut starts: Vec<Position> = (files.iter())
        .filter_map(|file| SegmentName::parse(file))
        .filter(|name| name.recording == recording)
        .map(|name| name.start)
        .collect();
    starts.sort_unstable();
    starts
}
