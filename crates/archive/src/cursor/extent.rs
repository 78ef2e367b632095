//! What the catalog says of a recording that is being read.

use super::CursorError;
use super::seek::segments;
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_machine::Storage;
use std::path::Path;

/// How far a recording reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Nothing before this is to be read.
    pub(crate) start: Position,
    /// Where it was stopped; none while it is being recorded.
    pub(crate) stop: Option<Position>,
}

impl Extent {
    /// Looks at the catalog; nothing when it has no such recording.
    pub(crate) fn read(
        storage: &dyn Storage,
        folder: &Path,
        recording: RecordingId,
    ) -> Result<Option<Extent>, CursorError> {
        let names = segments(storage, folder, recording)?;
        Ok(names.first().map(|name| Extent {
            start: name.start,
            stop: None,
        }))
    }

    /// Leaves out the names of what is detached or left over: before the start, and behind the stop.
    pub(crate) fn keep(&self, names: &mut Vec<SegmentName>) {
        let first = names.partition_point(|name| name.start <= self.start);
        names.drain(..first.saturating_sub(1));
        if let Some(stop) = self.stop {
            names.truncate(names.partition_point(|name| name.start < stop).max(1));
        }
    }

    /// How many of the `length` bytes of the segment that starts at `start` no recovery will cut off.
    pub(crate) fn settled(&self, start: Position, length: u64, is_last: bool) -> u64 {
        if is_last {
            self.stop.unwrap_or_default().since(start).min(length)
        } else {
            length
        }
    }
}
