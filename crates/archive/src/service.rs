//! The archive as a service: a protocol, the machine that serves it, and the client's machine. Protocol:
//! `docs/formats/archive-protocol.md`.

mod answer;
mod bug;
mod client;
mod copy;
mod fields;
mod limits;
pub mod message;
mod operation;
mod push;
mod remote;
mod server;

pub use answer::{Answer, Claimed, Description, Health, Refusal, RefusalCode, SegmentDescription};
pub use bug::ServiceBug;
pub use client::{
    BlockBatch, Client, ClientOptions, ClientReply, ClientRequest, FrameBatch, ReplayEnd,
    ReplayHandle, ReplayPiece, ReplayedBlock, ReplayedMessage,
};
pub use copy::{CopyError, CopySource, CopyTarget, copy_remote};
pub use limits::ServiceLimits;
pub use message::{BatchForm, BatchPlace, Reached, ReplayState};
pub use operation::{
    CopyRequest, LabelFilter, ListFilter, Operation, ReplayBound, ReplayFrom, ReplayRequest,
};
pub use push::PushTarget;
pub use remote::{Played, RemoteArchive, RemoteError};
pub use server::{ArchiveService, ServiceOptions, ServiceReply, ServiceRequest};
