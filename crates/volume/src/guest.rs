//! What a guest asks of a volume, and the replies.

use crate::geometry::{BlockNumber, BlockSpan};
use crate::seal::BlockKey;
use crate::status::VolumeStatus;
use seatrial_machine::NodeId;
use std::net::SocketAddr;

/// A request of a guest. Ranges are whole blocks inside the volume, else the reply is [`GuestError::Range`].
///
/// The contract is that of a disk with a volatile write cache: a write is visible to every request that begins after its reply,
/// and durable when a flush that began after its reply has succeeded (or at once, with `fua`). Requests that overlap in time
/// have no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestRequest {
    /// Reads blocks; never written ones are zeros. → [`GuestReply::Bytes`]
    Read(BlockSpan),
    /// Writes whole blocks from `first` on.
    Write {
        /// The first block.
        first: BlockNumber,
        /// The bytes, a multiple of the block length.
        bytes: Vec<u8>,
        /// Reply only when it is durable on a quorum.
        fua: bool,
    },
    /// Writes those of these blocks that were never written. (A trimmed block was written.)
    WriteUnwritten {
        /// The first block.
        first: BlockNumber,
        /// The bytes, a multiple of the block length.
        bytes: Vec<u8>,
    },
    /// Makes the blocks zeros and frees their space.
    Trim {
        /// The blocks.
        range: BlockSpan,
        /// Reply only when it is durable on a quorum.
        fua: bool,
    },
    /// Makes durable, on a quorum, every write that was replied to before.
    Flush,
    /// Which of these blocks hold data. → [`GuestReply::Extents`]
    Extents(BlockSpan),
    /// A flush that also keeps the state of the volume under a name, on every replica.
    Snapshot(String),
    /// Removes a snapshot.
    DropSnapshot(String),
    /// Reads blocks of a snapshot. → [`GuestReply::Bytes`]
    ReadSnapshot(String, BlockSpan),
    /// Which of these blocks of a snapshot hold data. → [`GuestReply::Extents`]
    SnapshotExtents(String, BlockSpan),
    /// Adds a key, with which blocks are sealed from now on; blocks that were sealed with earlier ones are sealed again in the
    /// background.
    AddKey {
        /// Its epoch, larger than those of all others.
        epoch: u16,
        /// The key.
        key: BlockKey,
    },
    /// Reads all blocks of all replicas in the background, and repairs those that are damaged.
    Repair,
    /// Attaches to the replicas. → `Done` when the volume can be used.
    Activate {
        /// The generation, larger than every earlier one; `None`: the next.
        generation: Option<u32>,
    },
    /// Flushes and gives the volume up.
    Deactivate,
    /// Puts an empty replica at this address in place of another one; it is filled while the volume is in use.
    Replace {
        /// The replica that is given up.
        replica: NodeId,
        /// The address of the new one.
        address: SocketAddr,
    },
    /// What the volume is doing. → [`GuestReply::Status`]
    Status,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestReply {
    /// Done.
    Done,
    /// The bytes that were read.
    Bytes(Vec<u8>),
    /// Runs of blocks, in order: their number, and whether they hold data.
    Extents(Vec<(u32, bool)>),
    /// See [`GuestRequest::Status`].
    Status(Box<VolumeStatus>),
    /// Not done.
    Failed(GuestError),
}

/// Why a request failed. None of its blocks was changed unless stated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// The range is empty, no whole number of blocks, too long for one request, or not in the volume.
    #[error("{0}")]
    Range(String),
    /// The volume is not active.
    #[error("the volume is not active")]
    Inactive,
    /// Another upstairs attached with a larger generation: this one can never write again. Writes that were not flushed are lost.
    #[error("deposed: generation {generation} was granted to another upstairs")]
    Deposed {
        /// The larger generation.
        generation: u32,
    },
    /// No replica has a copy of this block that can be read.
    #[error("block {} cannot be read on any replica", .0.0)]
    Damaged(BlockNumber),
    /// The volume is attached for reading only.
    #[error("the volume is attached read-only")]
    ReadOnly,
    /// A name of a snapshot is invalid, in use, or unknown.
    #[error("{0}")]
    Snapshot(String),
    /// The request is impossible in this state.
    #[error("{0}")]
    Refused(String),
}

/// Longest range of one request in bytes.
pub const REQUEST_LENGTH_MAX: usize = 32 << 20;
