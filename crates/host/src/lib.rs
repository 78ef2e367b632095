//! Runs machines in the real world: sockets, files, the clock, threads. The same machine that `seatrial-sim` runs from a
//! seed is served here to real clients.
//!
//! | a machine asks for | done by | bounded by |
//! | --- | --- | --- |
//! | `Send` to a client | its connection | [`HostLimits`]; a connection that does not read is closed |
//! | `Send` to a node | its queue and the connection that is dialled for it | [`PeerLimits`]; drops: [`HostMetrics`] |
//! | `Append`, `TruncateHead` | a thread for each log: batches of one write and one sync | 4,096 appends; then the turn waits |
//! | `File` | four threads, tasks on one file in order | 1,024 jobs and tasks, then no more messages are taken in |
//! | `Compute` | the same threads | the same |
//!
//! [`serve`] runs a server: one machine, its folder on disk, and whoever connects. [`Session`] runs a client's machine over
//! one connection. Both speak [`wire`], a length of four bytes before each message, and begin with an opening
//! ([`Protocol`], [`Key`]).

mod budget;
mod clock;
mod connection;
mod disk;
mod drive;
mod key;
mod limits;
mod link;
mod net;
mod notice;
mod opening;
mod peer;
mod receive;
mod send;
mod session;
mod terminated;
mod whole;
pub mod wire;

pub use clock::ClockOrder;
pub use connection::ConnectOptions;
pub use drive::{HostError, ListenOptions, ServeOptions, serve, serve_machine};
pub use key::Key;
pub use limits::HostLimits;
pub use link::{BlockingLink, Link, LinkOptions};
pub use opening::{ClientOpening, OpeningError, Protocol};
pub use peer::{Cluster, HostCounts, HostMetrics, PeerCounts, PeerLimits, PeerOptions};
pub use seatrial_machine::{Booted, DataFolder, Peer};
pub use session::{Session, SessionOptions};
pub use terminated::terminated;
pub use whole::{create_folder, keep_whole, partial_of, sync_folder_of, write_whole};

#[cfg(test)]
mod tests;
