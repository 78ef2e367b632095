//! Recordings of checksummed messages (`docs/formats/archive.md`): appended, replayed by position, verified and recovered.
//!
//! A recording is a sequence of segment files of batches; a byte of it has a [`Position`] that never changes. The
//! [`Catalog`] is a log of events that says which recordings exist. [`Archive`] is the writing process's side, a [`Cursor`]
//! reads beside it without a lock, and a [`publication`] batches messages of many threads into one recording.
//!
//! # What this crate does not do
//!
//! - It has no socket and no protocol: those are in the crate `archive-service`.
//! - It changes no durable byte in place, except the two marks, which are hints and are not relied on.
//! - It never cuts off a block that may have been durable: only an explicit repair does, and it keeps what it cuts.
//! - It reads no clock. Times are arguments; a time before the last one counts as the last one.
//! - It allocates nothing by an unchecked length: blocks, messages and labels have maxima.
//! - It does not interpret messages; each has only three flag bits for the application.
//!
//! # Files in reading order
//!
//! - `position.rs`: recording ids, positions, tags
//! - `batch.rs`, `segment.rs`: the blocks of a recording, and its files' names and first blocks
//! - `archive_folder.rs`: storage calls with file names in their errors
//! - `catalog.rs`, `catalog/`: events, their log, and the mark that detects a lost end
//! - `recording.rs`, `recording/`: the writer, its progress, and the recovery of a recording's end
//! - `archive.rs`, `archive/`: start, extend, truncate, purge, delete; recovery, repair, views of the catalog
//! - `cursor.rs`, `cursor/`: replay, from any position, into a live recording if asked
//! - `verification.rs`, `verification/`: checks of whole recordings on several threads
//! - `digest.rs`: one number for the messages of a recording
//! - `publication.rs`, `publication/`: many threads, one recorder; group commit
//! - `sample_recording.rs`: recordings built for the tests

mod archive;
mod archive_folder;
mod batch;
mod catalog;
mod cursor;
mod digest;
mod position;
pub mod publication;
mod recording;
#[cfg(test)]
mod sample_recording;
mod segment;
mod verification;

pub use archive::{
    Archive, ArchiveError, CatalogRepair, CatalogView, Description, Recovered, RecoveredRecording,
    RepairError, Repaired, Segment,
};
pub use archive_folder::StorageError;
pub use batch::{
    BATCH_FRAMES_OFFSET, BATCH_HEADER_LENGTH, BATCH_LENGTH, BATCH_LENGTH_MAX, Batch, BatchError,
    BatchHeader, MESSAGE_LENGTH_MAX, batch_of,
};
pub use catalog::{
    Boundary, Catalog, CatalogError, CatalogEvent, EventError, EventKind, EventOrderError,
    LABEL_LENGTH_MAX, RECORDINGS_MAX, Recording, RecordingFilter, Source,
};
pub use cursor::{
    BlockDamage, BlockMessages, ContentError, Cursor, CursorBound, CursorError, Message, Origin,
    Pause, ReplayBlock,
};
pub use digest::{Digest, digest};
pub use position::{Position, RecordingId};
pub use recording::{
    AppendError, Appended, Cut, Durability, RecordingOptions, TailError, Writer, WriterProgress,
    WriterState,
};
pub use segment::{
    SEGMENT_BLOCK_LENGTH, SEGMENT_HEADER_LENGTH, SEGMENT_LENGTH, SEGMENT_LENGTH_MAX,
    SEGMENT_LENGTH_MIN, SegmentError, SegmentHeader, SegmentName,
};
pub use verification::{
    RecordingReport, VerifyDamage, VerifyFault, VerifyOptions, VerifyProgress, verify,
};
