//! What the catalog says of a recording that is being read.

use super::CursorError;
use super::seek::segments;
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
}
