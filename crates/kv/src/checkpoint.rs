//! Checkpoint files: the state at one index, byte-identical for equal states. Byte map in `docs/formats/kv-checkpoint.md`.
//!
//! [`CheckpointWriter`] turns a snapshot into the bytes of the file, some at a time, or the changes since an older one;
//! [`CheckpointReader`] turns the bytes back into a state, however they are cut; [`diff_checkpoints`] compares two files.

mod chain_reader;
mod diff;
mod file_parser;
mod file_reader;
mod file_writer;
mod format;
mod slice_parser;

pub(crate) use chain_reader::{ChainReader, ReadCheckpoint};
pub use diff::{
    CheckpointDiff, CheckpointFiles, CheckpointSummary, DiffError, KeyDifference, changes_since,
    diff_checkpoints,
};
pub(crate) use file_reader::CheckpointReader;
pub(crate) use file_writer::CheckpointWriter;

use thiserror::Error;

/// What a checkpoint says about itself, besides the state. It must be equal on all replicas: nothing of one node, no time of day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointHead {
    /// The cluster.
    pub(crate) cluster: u64,
    /// The last index whose effect the state contains.
    pub(crate) index: u64,
    /// The term of that entry.
    pub(crate) term: u64,
    /// The members at that index, encoded by the caller; at most [`OPAQUE_LENGTH_MAX`] bytes.
    pub(crate) members: Vec<u8>,
    /// What decides about the next checkpoint, encoded by the caller; at most [`OPAQUE_LENGTH_MAX`] bytes.
    pub(crate) schedule: Vec<u8>,
}

/// Identifies the contents of a checkpoint file: equal for equal heads and states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointMark {
    /// Length of the file, in bytes.
    pub(crate) length: u64,
    /// XXH3-128 of everything before the root, which follows from it.
    pub(crate) digest: [u8; 16],
}

/// Bytes that are not a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("checkpoint damaged at byte {offset}: {problem}")]
pub struct CheckpointError {
    /// Offset of the first byte that is wrong, or of the block in which it is.
    pub offset: u64,
    /// What is wrong there.
    pub problem: String,
}

#[cfg(test)]
mod tests;
