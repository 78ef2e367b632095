//! The tag that ties a block to its recording.

use std::fmt;

/// Ties blocks to their recording: a number stored in the catalog and in every block header of the recording, so that a
/// block or file of another recording is detected wherever it appears. Two recordings have equal tags with a
/// probability of 2^-32. It is derived from folder, number and start time, so a simulated archive has the same tags in
/// each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordingTag(pub u32);

impl fmt::Display for RecordingTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
