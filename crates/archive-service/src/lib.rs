//! The archive over a network: the protocol, the server's machine and the client's machine.
//!
//! [`ArchiveService`] owns one archive and serves it to sessions. [`ArchiveClient`] records into it and replays from it: it
//! repeats messages until they are answered and resumes after lost connections and restarts. [`RemoteArchive`] is a blocking
//! API over a client; [`CopyTarget`] and [`PushTarget`] copy recordings from and into a service, block by block. The protocol
//! is specified in `docs/formats/archive-protocol.md`.
//!
//! A driver gives both machines time and messages and runs their jobs: `host` with sockets, `sim` from a seed, or a loop:
//!
//! ```
//! use seatrial_archive::Durability;
//! use seatrial_archive_service::{
//!     ArchiveService, ArchiveClient, ArchiveClientOptions, ClientReply, ClientRequest, ArchiveOperation, ServiceOptions,
//! };
//! use seatrial_machine::{Input, Machine, NodeId, Output, Ticket, Time};
//! use std::{path::Path, sync::Arc};
//!
//! let (server_id, client_id) = (NodeId::server(1), NodeId::client(0));
//! let storage = Arc::new(seatrial_sim::MemoryStorage::new());
//! let options = ServiceOptions::new(1_000_000_000);
//! let (mut server, _) = ArchiveService::open(storage, Path::new("archive"), options)?;
//! let mut client = ArchiveClient::new(ArchiveClientOptions::new(server_id, 7));
//!
//! let request = ClientRequest::Ask(ArchiveOperation::Start {
//!     label: "orders".to_owned(),
//!     segment_length: 0,
//!     durability: Durability::Batch,
//!     is_resumed: false,
//! });
//! let (now, mut to_client) = (Time::ZERO, vec![Input::Request(Ticket(1), request)]);
//! let (mut to_server, mut replies) = (Vec::new(), Vec::new());
//! while let Some(input) = to_client.pop() {
//!     let mut outputs = Vec::new();
//!     client.turn(now, input, &mut outputs);
//!     for output in outputs {
//!         match output {
//!             Output::Send { message: bytes, .. } => {
//!                 to_server.push(Input::Message { from: client_id, bytes });
//!             }
//!             Output::Reply(_, reply) => replies.push(reply),
//!             _ => {}
//!         }
//!     }
//!     while let Some(input) = to_server.pop() {
//!         let mut outputs = Vec::new();
//!         server.turn(now, input, &mut outputs);
//!         for output in outputs {
//!             match output {
//!                 Output::Send { message: bytes, .. } => {
//!                     to_client.push(Input::Message { from: server_id, bytes });
//!                 }
//!                 Output::Compute(job, ticket) => to_server.push(Input::Computed(ticket, job.run())),
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//! assert!(matches!(replies[..], [ClientReply::Answer(_)]));
//! # Ok::<(), seatrial_archive::ArchiveError>(())
//! ```
//!
//! # Invariants
//!
//! - A batch is confirmed once: its messages have consecutive numbers, no gap and no duplicate, however often it was sent.
//! - A confirmed message is as durable as the durability level of its recording requires.
//! - A replay yields each block of its range once, in order, each with checked checksums; it never passes the durable end,
//!   unless the request is eager or the recording has no durability level.
//! - A recording has at most one claim, and the claim at most one writing job. The catalog has at most one job.
//! - The bytes in flight of a replay never exceed its window by more than one data message.
//!
//! # What this crate does not do
//!
//! - It opens no socket: server and client are machines that a driver connects (`host`, or `sim` in tests).
//! - It reads no clock and has no thread; jobs that read or write files are run by the driver.
//! - It stores nothing itself: recordings, their checks and their recovery belong to the crate `archive`.
//! - It holds no unbounded queue for a client: every bound is a field of [`ServiceLimits`].
//! - It keeps no session across a restart of the server: the client claims its recordings again.
//!
//! # Files in reading order
//!
//! - `message.rs`, `text_fields.rs`, `archive_operation.rs`, `archive_answer.rs`: the protocol
//! - `service_limits.rs`: the bounds of the server
//! - `server.rs`, `server/`: the server's machine and its jobs
//! - `archive_client.rs`, `archive_client/`: the client's machine
//! - `remote_archive.rs`: a blocking client
//! - `remote_copy.rs`, `push.rs`: copies between archives
//! - `service_bug.rs`: bugs that can be planted for tests

mod archive_answer;
mod archive_client;
mod archive_operation;
pub mod message;
mod push;
mod remote_archive;
mod remote_copy;
mod server;
mod service_bug;
mod service_limits;
mod text_fields;

pub use archive_answer::{
    ArchiveAnswer, Claimed, Health, RecordingDescription, Refusal, RefusalCode, SegmentDescription,
};
pub use archive_client::{
    ArchiveClient, ArchiveClientOptions, BlockBatch, ClientReply, ClientRequest, FrameBatch,
    ReplayEnd, ReplayHandle, ReplayPiece, ReplayedBlock, ReplayedMessage,
};
pub use archive_operation::{
    ArchiveOperation, CopyRequest, LabelFilter, ListFilter, ReplayBound, ReplayFrom, ReplayRequest,
};
pub use message::{BatchForm, BatchPlace, RecordProgress, ReplayState};
pub use push::PushTarget;
pub use remote_archive::{Played, RemoteArchive, RemoteError};
pub use remote_copy::{CopyError, CopySource, CopyTarget, copy_remote};
pub use server::{ArchiveService, ServiceOptions, ServiceReply, ServiceRequest};
pub use service_bug::ServiceBug;
pub use service_limits::ServiceLimits;
