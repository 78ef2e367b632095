//! The append-only checksummed log: one block format for everything durable (`docs/formats/block.md`).
//!
//! [`block`] and [`frame`] encode, [`Walker`] reads blocks back and tells a torn tail from damage, [`recover`] finds
//! the end of a log, [`root`] finds the newest root of a file, and [`LogFile`] is the real file underneath.
//!
//! ```
//! use seatrial_archive::{BlockKind, Walker, block, recover};
//!
//! let mut log = Vec::new();
//! block::write(&mut log, BlockKind::FRAMES, 0, 0, b"first", 5);
//! block::write(&mut log, BlockKind::FRAMES, 0, 1, b"second", 6);
//! log.truncate(log.len() - 3); // a crash in the middle of the second write
//!
//! let recovery = recover(&log, 0).unwrap();
//! assert_eq!((recovery.blocks, recovery.next_sequence), (1, 1));
//! assert!(recovery.torn.is_some());
//! let mut walker = Walker::new(&log, 0);
//! assert_eq!(walker.next_block().unwrap().unwrap().payload, b"first");
//! ```

mod archive;
mod batch;
pub mod block;
mod catalog;
mod crc32c;
mod cursor;
mod digest;
pub mod file;
mod folder;
pub mod frame;
mod position;
pub mod publication;
mod recording;
mod recover;
pub mod root;
mod segment;
pub mod service;
#[cfg(test)]
mod tape;
mod verify;
mod walk;
mod window;

pub use archive::{
    Archive, ArchiveError, CatalogRepair, Description, Recovered, RecoveredRecording, RepairError,
    Repaired, Segment, View,
};
pub use batch::{
    BATCH_FRAMES_OFFSET, BATCH_HEADER_LENGTH, BATCH_LENGTH, BATCH_LENGTH_MAX, Batch, BatchError,
    BatchHeader, MESSAGE_LENGTH_MAX,
};
pub use block::{ALIGNMENT, BlockHeader, BlockKind, Defect, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
pub use catalog::{
    Boundary, Catalog, CatalogError, Event, EventError, EventKind, Filter, FoldError,
    LABEL_LENGTH_MAX, RECORDINGS_MAX, Recording, Source,
};
pub use crc32c::{Shift, crc32c};
pub use cursor::{
    Bound, ContentError, Cursor, CursorError, Fault, Message, Messages, Origin, Pause, ReplayBlock,
};
pub use digest::{Digest, digest};
pub use file::{FileError, LogFile};
pub use folder::StorageError;
pub use frame::{Frame, FrameError, Frames};
pub use position::{Position, RecordingId, RecordingTag};
pub use recording::{
    AppendError, Appended, Cut, Durability, Progress, RecordingOptions, TailError, Writer,
    WriterState,
};
pub use recover::{RecoverError, Recovery, recover};
pub use segment::{
    SEGMENT_BLOCK_LENGTH, SEGMENT_HEADER_LENGTH, SEGMENT_LENGTH, SEGMENT_LENGTH_MAX,
    SEGMENT_LENGTH_MIN, SegmentError, SegmentHeader, SegmentName,
};
pub use verify::{
    RecordingReport, VerifyDamage, VerifyFault, VerifyOptions, VerifyProgress, verify,
};
pub use walk::{Block, Damage, Torn, WalkError, Walker};
