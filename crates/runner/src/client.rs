//! How a test talks to the system under test.

use crate::Mesh;
use seatrial_history::Op;
use seatrial_machine::NodeId;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

/// A future on the heap, so that traits with asynchronous methods can be used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a client could not answer. Its text ends up in the operation's `error` field.
pub type ClientError = Box<dyn Error + Send + Sync>;

/// One logically single-threaded connection to the system.
///
/// A client never blocks its thread: many clients share few threads. The runner gives up on an invocation after the
/// test's time-out by dropping its future, records `info` with the error `timeout`, and opens a new client.
pub trait Client: Send {
    /// Carries out one operation and answers with its completion, as a rule `op.complete(kind, value)`: `Ok` when it
    /// took place, `Fail` when it certainly did not, `Info` when nobody knows. `Err` and a panic count as `Info`
    /// with that text as `error`; after any `Info` this client is closed and a new one is opened.
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>>;

    /// Can it carry out another operation? Asked after each; one that cannot is closed, and a new one is opened.
    fn is_usable(&self) -> bool {
        true
    }

    /// Says good-bye. Called once, before the client is dropped; not called after a time-out or a panic.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Opens clients.
pub trait Clients: Send + Sync {
    /// Connects to `seat.node` at `seat.address`. An error (the text is kept) fails the operation that was about to
    /// be invoked, with certainty. A connection through the mesh is accepted even if the node behind it is dead, and
    /// reset then: a client that exchanges a first message here turns doubtful operations into certain failures.
    fn open<'a>(&'a self, seat: &'a Seat) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>>;

    /// Do these clients never block their thread, and take only microseconds between two awaits? Then all of them run as tasks
    /// on the thread that drives the test: no operation is handed to another thread, and one look at the sockets serves all
    /// clients that have an answer. By default they run on up to 16 threads of their own, where one that blocks (a library
    /// without `async`) stops few others and never the test.
    fn never_block(&self) -> bool {
        false
    }
}

/// Where a client sits: which worker it serves and which node it talks to.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The client's end of the network, `c0`, `c1`, …: one per worker.
    pub endpoint: NodeId,
    /// The node that this worker talks to; [`Seat::NOWHERE`] when the test has no nodes.
    pub node: NodeId,
    /// Where that node is reached from this seat: a proxy whose link faults can cut, or the node itself in a test whose network
    /// is never broken.
    pub address: SocketAddr,
    /// The network, for clients that talk to further nodes.
    pub mesh: Mesh,
}

impl Seat {
    /// Stands for the node where there is none.
    pub const NOWHERE: NodeId = NodeId::server(0);

    /// Where any node is reached from this seat.
    pub fn address_of(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.mesh.route(self.endpoint, node)
    }
}
