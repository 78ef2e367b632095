//! The end of a log after a crash.

use crate::walk::{Damage, Torn, WalkError, Walker};
use seatrial_machine::Disk;
use std::io;

/// The end of a log, and the number of its next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// End of the last valid block: append here, after cutting off the rest of the file.
    pub end: u64,
    /// The sequence number of the next block; 0 in an empty log.
    pub next_sequence: u64,
    /// Number of valid blocks.
    pub blocks: u64,
    /// The torn tail to cut off, if there is one.
    pub torn: Option<Torn>,
}

/// Why a log cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A read failed.
    #[error("cannot read at {offset}: {cause}")]
    Fault {
        /// Offset of the read.
        offset: u64,
        /// The disk's error.
        cause: io::Error,
    },
    /// The log has a block of a format version that this program does not know.
    #[error("block at {offset} is of format version {version}, this program reads version 1")]
    Version {
        /// Offset of the block.
        offset: u64,
        /// Its version.
        version: u8,
    },
    /// A block that had been durable is lost.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

impl Recovery {
    /// The recovery after `walker` has read all valid blocks; `result` is how it stopped. Only a clean end and a torn
    /// tail are ends of a log; everything else is an error.
    pub fn after(
        walker: &Walker<'_>,
        blocks: u64,
        result: Result<(), WalkError>,
    ) -> Result<Recovery, RecoverError> {
        let torn = match result {
            Ok(()) => None,
            Err(WalkError::Torn(torn)) => Some(torn),
            Err(WalkError::Damaged(damage)) => return Err(RecoverError::Damaged(damage)),
            Err(WalkError::Fault { offset, cause }) => {
                return Err(RecoverError::Fault { offset, cause });
            }
            Err(WalkError::Version { offset, version }) => {
                return Err(RecoverError::Version { offset, version });
            }
        };
        Ok(Recovery {
            end: walker.offset(),
            next_sequence: walker.next_sequence(),
            blocks,
            torn,
        })
    }
}

/// Finds the end of a log: reads and checks all blocks from `from_offset`. The first invalid block is a torn tail if no
/// newer block follows it, and damage otherwise. One pass; time and reads are linear in the file, memory is one block.
pub fn recover(disk: &dyn Disk, from_offset: u64) -> Result<Recovery, RecoverError> {
    let mut walker = Walker::new(disk, from_offset);
    let mut blocks = 0;
    let result = loop {
        match walker.next_block() {
            Ok(Some(_)) => blocks += 1,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    Recovery::after(&walker, blocks, result)
}

#[cfg(test)]
mod tests;
