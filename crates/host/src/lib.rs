//! Runs machines in the real world: sockets, files, the clock, threads. The same machine that `seatrial-sim` runs from a
//! seed is served here to real clients.
//!
//! [`serve`] runs a server: one machine, its log on disk, and whoever connects. [`Session`] runs a client's machine over
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
mod receive;
mod send;
mod session;
mod whole;
pub mod wire;

pub use clock::ClockOrder;
pub use connection::ConnectOptions;
pub use disk::LogFile;
pub use drive::{Booted, HostError, ListenOptions, ServeOptions, serve, serve_machine};
pub use key::Key;
pub use limits::HostLimits;
pub use link::{BlockingLink, Link, LinkOptions};
pub use notice::Report;
pub use opening::{ClientOpening, OpeningError, Protocol};
pub use seatrial_machine::Peer;
pub use session::{Session, SessionOptions};
pub use whole::{create_folder, keep_whole, partial_of, sync_folder_of, write_whole};

#[cfg(test)]
mod tests;
