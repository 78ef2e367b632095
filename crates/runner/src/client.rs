//! Clients: the trait that a suite implements to send operations to the system under test.

use crate::Mesh;
use seatrial_history::Op;
use seatrial_machine::NodeId;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

/// A future on the heap, so that traits with asynchronous methods can be used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Error of a client. Its text becomes the `error` field of the operation.
pub type ClientError = Box<dyn Error + Send + Sync>;

/// One logically single-threaded connection to the system: it executes one operation at a time.
///
/// A client should not block its thread, because many clients share few threads (see [`Clients::never_block`]). When an
/// operation exceeds the test's time-out, the runner drops its future, records `info` with the error `timeout`, and opens a new
/// client: the old connection may still deliver the operation at any later time.
pub trait Client: Send {
    /// Executes one operation and returns its completion, usually `op.complete(kind, value)`: `Ok` if it took place, `Fail` if it
    /// certainly did not and never will, `Info` if its outcome is unknown. `Err` and a panic become `Info` with the text as
    /// `error`. After any `Info` this client is closed and a new one is opened.
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>>;

    /// Can it execute another operation? Called after each one; if false, the client is closed and a new one is opened.
    fn is_usable(&self) -> bool {
        true
    }

    /// Closes the connection. Called once, before the client is dropped, but not after a time-out or a panic: its state is then
    /// unknown.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Opens clients.
pub trait Clients: Send + Sync {
    /// Connects to `slot.node` at `slot.address`. An error completes the operation that was about to be invoked as `fail`, with
    /// this text: it was certainly not sent. A proxy of the mesh accepts a connection even if its node is dead, and resets it
    /// then. A client that exchanges a first message here therefore gets failures that would otherwise be indeterminate.
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>>;

    /// Do these clients never block their thread, and use only microseconds between two awaits? Then all of them run as tasks on
    /// the driver's thread: no operation is handed to another thread, and one poll of the sockets serves all clients with a
    /// reply. By default they run on up to 16 threads of their own, where a client that blocks (a library without `async`)
    /// delays few others and never the driver.
    fn never_block(&self) -> bool {
        false
    }
}

/// The worker that a client serves, and the node and network that it uses.
#[derive(Clone, Debug)]
pub struct ClientSlot {
    /// The client's endpoint of the network, `c0`, `c1`, …: one per worker.
    pub endpoint: NodeId,
    /// The node of this worker; [`ClientSlot::NOWHERE`] if the test has no nodes.
    pub node: NodeId,
    /// The address of that node from this slot: a proxy, whose link faults can cut, or the node itself in a test without network
    /// faults.
    pub address: SocketAddr,
    /// The network, for clients that connect to further nodes.
    pub mesh: Mesh,
}

impl ClientSlot {
    /// The node id of a slot in a test without nodes.
    pub const NOWHERE: NodeId = NodeId::server(0);

    /// The IP address of any node from this slot, usable with any port; `None` if it is unknown. Faults affect this traffic
    /// only if [`Mesh::has_whole_addresses`].
    pub fn ip_of(&self, node: NodeId) -> Option<IpAddr> {
        self.mesh.ip(self.endpoint, node)
    }

    /// The address to which this slot binds connections to addresses that nodes returned (redirections, members): its faults
    /// affect them only then. `None` in networks without whole addresses.
    pub fn source(&self) -> Option<IpAddr> {
        self.mesh.source(self.endpoint)
    }

    /// The address of any node from this slot.
    pub fn address_of(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.mesh.route(self.endpoint, node)
    }
}
