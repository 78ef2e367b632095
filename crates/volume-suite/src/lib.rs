//! The block volume for its users: an NBD server, the processes of a volume, and its commands.
//!
//! ```text
//!  nbdcopy, qemu, fio ──► NbdServer ──requests──► VolumeCalls ──► Upstairs, driven by the host ──► replicas
//!  (TCP or Unix socket)   one task per connection ◄──replies──┘    (one thread with the tasks)
//! ```
//!
//! # Reading order
//!
//! `lib.rs`, `volume_calls.rs` (requests of this process and their replies), `nbd_server.rs` (sockets, bounds), then
//! `nbd_connection.rs` (one client).
//!
//! # What is absent
//!
//! - No byte of the protocol NBD: `seatrial_volume::nbd` has it, without sockets.
//! - No cache and no read-ahead: the kernel of the client has both.
//! - No queue without a bound: requests and bytes in flight are counted before a payload is read.

mod nbd_connection;
mod nbd_server;
mod volume_calls;

pub use nbd_server::{NbdAddress, NbdLimits, NbdServer, NbdSocket};
pub use volume_calls::VolumeCalls;
