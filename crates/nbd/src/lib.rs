//! The server's side of the protocol NBD, without input and output: its handshake, requests and replies.
//!
//! The protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>; what of it is used here is in
//! `docs/formats/nbd.md`. A driver reads bytes from connections and gives them to an [`NbdHandshake`], then reads requests: an
//! [`NbdHeader`] and, for a write, its payload. [`NbdRequests`] turns the requests of all connections of an export into requests
//! of a guest, and their replies into bytes.
//!
//! Every length is checked before memory is reserved for it, and no bytes make these functions panic.
//!
//! What is absent: sockets, threads and clocks; TLS; and the blocks themselves, since an export is what answers
//! [`GuestRequest`](seatrial_volume::GuestRequest)s.

mod handshake;
mod nbd_request;
mod reply;
mod request_steps;
mod requests_in_flight;

pub use handshake::{NbdExport, NbdHandshake, NbdProgress, NbdSession, OPTION_LENGTH_MAX};
pub use nbd_request::{HEADER_LENGTH, NbdCommand, NbdErrno, NbdError, NbdHeader, NbdRequest};
pub use reply::NbdReply;
pub use requests_in_flight::{ConnectionNumber, NbdOutput, NbdRequests};

#[cfg(test)]
mod tests;
