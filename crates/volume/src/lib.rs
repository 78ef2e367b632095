//! A replicated, encrypted block volume: two machines, an upstairs that owns the volume and downstairs that store replicas.
//!
//! ```text
//!  guest ──GuestRequest──► Upstairs ──ToReplica──► Downstairs ──► one log, map files
//!        ◄──GuestReply──            ◄──FromReplica──  (one for each replica)
//! ```
//!
//! A guest gets the contract of a disk with a volatile write cache. The upstairs gives each written block a version, encrypts it,
//! sends it to all replicas and acknowledges it; a flush is acknowledged when a quorum has made it durable. Of two versions of a
//! block the larger one stays, so messages may be lost, repeated and reordered, and a replica may be repaired while it is written
//! (`docs/decisions/0051-the-volume.md`; byte maps in `docs/formats/volume.md`).
//!
//! # Reading order
//!
//! `geometry`, `guest`, `status`; `block_context` and `seal` (a block and its encryption), `lineage`, `volume_message`;
//! `downstairs` with its folder, `upstairs` with its folder; `guest_message`, `upstairs_server` and `guest_client` (guests in
//! other processes); `volume_bug` (bugs for tests of the tests).
//!
//! # What is absent
//!
//! - No thread, clock, socket or randomness: a driver gives time, and random numbers at the start.
//! - No extents and no write in place: everything is appended to one log and cleaned at its head.
//! - No key at a replica, and no plain byte of a block.
//! - No order of writes but the versions.

mod block_context;
mod downstairs;
mod geometry;
mod guest;
mod guest_client;
mod guest_message;
mod lineage;
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
pub use seal::{BlockKey, KEY_LENGTH, KeyRing};
pub use status::{MirrorState, MirrorStatus, StageStatus, SweepKind, SweepStatus, VolumeStatus};
pub use upstairs::{ParentVolume, Upstairs, UpstairsOptions};
pub use upstairs_server::UpstairsServer;
pub use volume_bug::VolumeBug;
pub use volume_message::{
    FlushOrder, FromReplica, MapName, RefusalReason, SessionNumber, StreamMessage, ToReplica,
    WritePurpose, is_name,
};
