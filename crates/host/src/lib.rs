//! Runs machines in the real world: sockets, files, the clock, threads. The machine that `seatrial-sim` runs from a seed is
//! served here to real clients, without a change to its code.
//!
//! ```text
//!  clients ──► ConnectionReader ─┐ inbox, ≤ 4,096 messages      ┌► ConnectionWriter ──► clients
//!  nodes   ──► (one task each)   ├──────────► MachineServer ────┤► Dialler (one per node) ──► nodes
//!                                │      one thread: turn, then  │
//!  LogThread (one per log) ──────┤      carry out the outputs   ├► LogThread: batch, write, sync
//!  job threads (≤ 4) ────────────┘                              └► job threads: File, Compute
//! ```
//!
//! | output of a machine | carried out by | bounded by |
//! | --- | --- | --- |
//! | `Send` to a client | its connection | [`HostLimits`]; a connection that does not read is closed |
//! | `Send` to a node | its queue and the connection that is dialled for it | [`PeerLimits`]; drops: [`HostMetrics`] |
//! | `Append`, `TruncateHead` | a thread per log: batches of one write and one sync | 4,096 appends; then the turn waits |
//! | `File` | four threads, tasks on one file in order | 1,024 jobs and tasks; then no messages are read |
//! | `Compute` | the same threads | the same |
//!
//! [`serve`] runs a server: one machine, its folder on disk, and all connections; [`serve_with_callers`] also takes requests of
//! this process. [`serve_guest`] runs a machine for callers of this process alone, as a client of nodes. [`Session`] and
//! [`PeerLink`] run a client's machine over one connection. Both sides speak [`wire`], a length of four bytes before each
//! message, and begin with an opening ([`Protocol`], [`SecretKey`]).
//!
//! # Reading order
//!
//! `drive.rs` (the loop of a server), `machine_disk.rs` (logs), `net.rs` with `receive.rs`, `budget.rs` and
//! `connection_writer.rs` (connections and the memory that they may hold), `opening.rs` and `key.rs` (authentication),
//! `peer.rs` (other nodes), `connection.rs`, `session.rs` and `link.rs` (clients), `status_server.rs` (a page and metrics of
//! the machine and its connections).
//!
//! # What is absent
//!
//! - No decision of a protocol: what a message means is the machine's business. The host knows lengths and openings only.
//! - No lock around a machine: one thread owns it and gives it every turn.
//! - No memory for bytes that have not arrived: the length that a prefix claims allocates nothing.
//! - No queue without a bound in bytes or entries, and no silent loss: a dropped message is counted in [`HostMetrics`], a closed
//!   connection is reported with the reason.
//! - No acknowledgement before the sync of the log that it depends on; after a failed sync the log is never written again.
//! - No encryption: a key authenticates both sides of a connection, it does not hide or sign what follows.

mod budget;
mod byte_stream;
mod connection;
mod connection_writer;
mod drive;
mod freed_memory;
mod host_limits;
mod key;
mod link;
mod loop_disk;
mod machine_disk;
mod net;
mod node_probe;
mod notice;
mod opening;
mod peer;
mod receive;
mod server_clock;
mod session;
mod stage_times;
mod status_server;
mod terminated;
mod tls;
mod unwritten_messages;
mod whole;
pub mod wire;

pub use connection::ConnectOptions;
pub use drive::{
    GuestOptions, HostError, ListenOptions, LocalCallers, ReplySink, ServeOptions, serve,
    serve_guest, serve_machine, serve_with_callers,
};
pub use host_limits::HostLimits;
pub use key::{SecretKey, random_bytes};
pub use link::{BlockingLink, LinkOptions, PeerLink};
pub use loop_disk::{JournalFlush, LoopDisk};
pub use opening::{ClientOpening, OpeningError, Protocol};
pub use peer::{Cluster, HostCounts, HostMetrics, PeerCounts, PeerLimits, PeerOptions};
pub use seatrial_machine::{Booted, DataFolder, Peer};
pub use server_clock::ClockOrder;
pub use session::{Session, SessionOptions};
pub use status_server::StatusListener;
pub use terminated::terminated;
pub use tls::{TlsCredentials, TlsError};
pub use whole::{create_folder, keep_whole, partial_of, sync_folder_of, write_whole};

#[cfg(test)]
mod tests;
