//! The archive as a service: a protocol, the machine that serves it, and the client's machine. Protocol:
//! `docs/formats/archive-protocol.md`.

//!
//! # What this crate does not do
//!
//! - It opens no socket: server and client are machines that a driver connects (`host`, or `sim` in tests).
//! - It reads no clock and has no thread; jobs that read or write files are run by the driver.
//! - It stores nothing itself: recordings, their checks and their recovery belong to the crate `archive`.
//! - It holds no unbounded queue for a client: every bound is a field of [`ServiceLimits`].
//!
//! # Files in reading order
//!
//! - `message.rs`, `fields.rs`, `operation.rs`, `answer.rs`: the protocol
//! - `limits.rs`: the bounds of the server
//! - `server.rs`, `server/`: the server's machine and its jobs
//! - `client.rs`, `client/`: the client's machine
//! - `remote.rs`: a blocking client
//! - `copy.rs`, `push.rs`: copies between archives
//! - `bug.rs`: bugs that can be planted for tests

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
