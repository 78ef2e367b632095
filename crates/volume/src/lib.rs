//! A replicated, encrypted block volume.

mod geometry;
mod guest;
pub mod nbd;
mod status;

pub use geometry::{BLOCK_LENGTH_RANGE, BLOCKS_MAX, BlockNumber, BlockSpan, Geometry, VolumeId};
pub use guest::{GuestError, GuestReply, GuestRequest, REQUEST_LENGTH_MAX};
pub use status::{MirrorState, MirrorStatus, VolumeStatus};
