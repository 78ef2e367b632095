//! The append-only checksummed log: one block format for all durable data (`docs/formats/block.md`).
//!
//! [`block`] and [`frame`] encode, [`Walker`] reads blocks and distinguishes a torn tail from damage, [`recover`] finds
//! the end of a log, [`root`] finds the newest root of a file, and [`LogFile`] is a log's file on a storage.
//!
//! ```
//! use seatrial_blocks::{BlockKind, Walker, block, recover};
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
//!
//! # What this crate does not do
//!
//! - It does not interpret payloads: [`BlockKind`] is a number whose meaning belongs to the owner of the log.
//! - It opens files only through a [`Storage`](seatrial_machine::Storage); real ones come from the crate `files`.
//! - It compresses no block by itself: the owner of a log calls [`codec`], archives and the store's log never do.
//! - It never repairs. Damage is reported with offset, expected and found value; only a torn tail is cut off.
//! - It changes nothing in place but the two slots of a first page.
//!
//! # Files in reading order
//!
//! - `block.rs`: the header of a block, and every way in which bytes can fail to be one
//! - `frame.rs`: messages inside a block
//! - `crc32c.rs`, `crc32c/instruction.rs`: the checksum, and checksums of concatenations
//! - `tag.rs`: the recording that a block belongs to
//! - `window.rs`: read-ahead
//! - `walk.rs`: reading blocks in order; the decision between torn tail and damage
//! - `recover.rs`: the end of a log
//! - `root.rs`: the first page, and the newest root block
//! - `file.rs`: a log's file: append, sync, cut
//! - `codec.rs`: compressed payloads
//! - `damage_scan.rs`: the whole blocks of a damaged file
//! - `packed.rs`, `leb128.rs`: integers of one width, and of variable length

pub mod block;
pub mod codec;
pub mod crc32c;
pub mod damage_scan;
pub mod file;
pub mod frame;
pub mod leb128;
pub mod packed;
mod recover;
pub mod root;
mod tag;
mod walk;
mod window;

pub use block::{ALIGNMENT, BlockHeader, BlockKind, Defect, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
pub use crc32c::{Shift, crc32c, crc32c_more};
pub use file::{BlockFileError, LogFile};
pub use frame::{Frame, FrameError, Frames};
pub use recover::{RecoverError, Recovery, recover};
pub use tag::RecordingTag;
pub use walk::{Block, Damage, Torn, WalkError, Walker};
pub use window::{ReadAhead, Window};
