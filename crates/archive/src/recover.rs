//! Finding the end of a log.

use crate::walk::{Damage, Torn, WalkError, Walker};
use seatrial_machine::Disk;
use std::io;

/// Where a log ends and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Where the last valid block ends: append here, after cutting off whatever is behind.
    pub end: u64,
    /// The sequence number of the next block; 0 in an empty log.
    pub next_sequence: u64,
    /// Valid blocks.
    pub blocks: u64,
    /// What has to be cut off.
    pub torn: Option<Torn>,
}

/// Why a log cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The disk did not give the bytes.
    #[error("cannot read at {offset}")]
    Fault {
        /// Where.
        offset: u64,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The log goes on in a format version that this program does not know.
    #[error("block at {offset} is of format version {version}, this program reads version 1")]
    Version {
        /// Where.
        offset: u64,
        /// The version.
        version: u8,
    },
    /// The log lost a block that had been durable.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

impl Recovery {
    /// What is known when `walker` has read all it could; `result` is how it stopped.
    pub fn after(
        walker: &Walker<'_>,
        blocks: u64,
        result: Result<(), WalkError>,
    ) -> Result<Recovery, RecoverError> {
        let torn = match result {
            Ok(()) => None,
            Err(WalkError::Torn(torn)) => Some(torn),
            Err(WalkError::Damaged(damage)) => return Err(RecoverError::Damaged(damage)),
            Err(WalkError::Fault { offset, source }) => {
                return Err(RecoverError::Fault { offset, source });
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

/// Walks the blocks from `from_offset` on, checks each, and says where the log ends. The first invalid block with
/// nothing newer behind it is the torn tail; with newer blocks behind it, it is damage.
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
