//! A replicated, encrypted block volume.

mod block_context;
mod downstairs;
mod geometry;
mod guest;
mod guest_client;
mod guest_message;
mod lineage;
pub mod nbd;
mod seal;
mod status;
mod upstairs;
mod upstairs_server;
mod volume_bug;
mod volume_message;

pub use block_context::{
    BlockContent, BlockContext, BlockSlot, BlockVersion, CONTEXT_LENGTH, split_slots,
};
pub use downstairs::{
    BlockDefect, CHUNK_BLOCKS, DEFECTS_MAX, Downstairs, DownstairsOptions, READ_LENGTH_MAX,
    REPLICA_MESSAGE_MAX, RegionCheck, RegionDifference, RegionError, RegionReport, StoredBlock,
    StoredRegion, StoredSnapshot,
};
pub use geometry::{BLOCK_LENGTH_RANGE, BLOCKS_MAX, BlockNumber, BlockSpan, Geometry, VolumeId};
pub use guest::{GuestError, GuestReply, GuestRequest, REQUEST_LENGTH_MAX};
pub use guest_client::{GuestClient, GuestClientOptions};
pub use guest_message::{FromGuest, GUEST_MESSAGE_MAX, GuestOutcome, ToGuest};
pub use lineage::{LINEAGE_MAX, Lineage, LineageEntry, Mark};
pub use seal::{KEY_LENGTH, KeyRing};
pub use status::{MirrorState, MirrorStatus, VolumeStatus};
pub use upstairs::{Upstairs, UpstairsOptions};
pub use upstairs_server::UpstairsServer;
pub use volume_bug::VolumeBug;
pub use volume_message::{
    FlushOrder, FromReplica, MapName, RefusalReason, SessionNumber, StreamMessage, ToReplica,
    WritePurpose, is_name,
};
