//! The trait of all machines, its inputs and outputs.

use crate::{FileResult, FileTask, LogName, NodeId, StatusSheet, Time};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Identifies one request, append, file task or job of a machine in the input that reports its result. Unique per machine and
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Bound of the jobs and file tasks that a machine has under way: at this number a driver holds messages back. One batch of
/// turns may exceed it.
pub const WORK_MAX: usize = 1_024;

/// An input of a machine.
#[derive(Debug)]
pub enum Input<R> {
    /// The time of `wake_at` has come.
    Wake,
    /// One complete message from another endpoint. Untrusted: it may contain any bytes.
    Message {
        /// The sender.
        from: NodeId,
        /// The message, without the length prefix of the wire.
        bytes: Vec<u8>,
    },
    /// The append with this ticket, and everything before it in the same log, is durable; for an [`Output::Write`]: can be read.
    Appended(Ticket),
    /// The file task with this ticket was done, or failed.
    FileDone(Ticket, FileResult),
    /// The job with this ticket was done.
    Computed(Ticket, Computed),
    /// A request of a local caller.
    Request(Ticket, R),
}

/// An output of a machine. Drivers carry outputs out in the order in which they were pushed.
#[derive(Debug)]
pub enum Output<P> {
    /// Send one message. It may be lost, delayed, duplicated or reordered. A driver counts the messages that it drops.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message, without the length prefix of the wire.
        message: Vec<u8>,
    },
    /// Send one message, `head` and then `shared`, whose second part messages to other receivers have too: a driver copies it
    /// for none of them. Otherwise as [`Output::Send`].
    SendShared {
        /// The receiver.
        to: NodeId,
        /// The first bytes of the message, without the length prefix of the wire.
        head: Vec<u8>,
        /// The bytes after them.
        shared: Arc<Vec<u8>>,
    },
    /// The endpoint has a session: its connection gets the bounds of a known client. A driver without connections ignores it.
    Admit(NodeId),
    /// The endpoint has no session any more: close its connection after its queued messages. A driver without connections
    /// ignores it.
    Close(NodeId),
    /// The address of a node; `None`: the node does not belong to the system any more, and nothing is sent to it. A driver that
    /// addresses nodes by id ignores it.
    Address {
        /// The node.
        node: NodeId,
        /// Its address.
        address: Option<SocketAddr>,
    },
    /// Append bytes (complete archive blocks) to a log and make them durable, then report [`Input::Appended`]. Appends reach
    /// their log in order; several may share one sync. A crash may keep any part of the appends that were not reported. When a
    /// log cannot be written the process ends, without any later report.
    Append {
        /// The log, one of [`Booted::logs`](crate::Booted).
        log: LogName,
        /// The bytes.
        bytes: Vec<u8>,
        /// The ticket of the report.
        ticket: Ticket,
    },
    /// Append bytes to a log without making them durable, then report [`Input::Appended`]: from then on jobs can read them. They
    /// become durable with a later [`Output::Append`] to the same log. A crash before may keep any part of them, also of bytes
    /// that were reported, and later ones without earlier ones.
    Write {
        /// The log, one of [`Booted::logs`](crate::Booted).
        log: LogName,
        /// The bytes.
        bytes: Vec<u8>,
        /// The ticket of the report.
        ticket: Ticket,
    },
    /// Free the space of this log before a position, in whole segments, after the appends that were pushed before. Not reported;
    /// at the next start [`LogView::start`](crate::LogView::start) is the first position left.
    TruncateHead {
        /// The log.
        log: LogName,
        /// The first position to keep.
        position: u64,
    },
    /// Run a file task, then report [`Input::FileDone`].
    File(FileTask, Ticket),
    /// Run a job outside of the machine, then report [`Input::Computed`]. Jobs finish in any order; a crash may interrupt a job
    /// at any point of its work.
    Compute(Box<dyn Job>, Ticket),
    /// Reply to the local request with this ticket.
    Reply(Ticket, P),
    /// The machine cannot continue, for this reason: the process ends after the outputs that were pushed before, as if it
    /// crashed, and gives the reason. Outputs after it are dropped.
    Stop(String),
}

impl<P> Output<P> {
    /// The same output of a machine whose replies have another type.
    pub fn map_reply<Q>(self, map: impl FnOnce(P) -> Q) -> Output<Q> {
        match self {
            Output::Send { to, message } => Output::Send { to, message },
            Output::SendShared { to, head, shared } => Output::SendShared { to, head, shared },
            Output::Admit(node) => Output::Admit(node),
            Output::Close(node) => Output::Close(node),
            Output::Address { node, address } => Output::Address { node, address },
            Output::Append { log, bytes, ticket } => Output::Append { log, bytes, ticket },
            Output::Write { log, bytes, ticket } => Output::Write { log, bytes, ticket },
            Output::TruncateHead { log, position } => Output::TruncateHead { log, position },
            Output::File(task, ticket) => Output::File(task, ticket),
            Output::Compute(job, ticket) => Output::Compute(job, ticket),
            Output::Reply(ticket, reply) => Output::Reply(ticket, map(reply)),
            Output::Stop(reason) => Output::Stop(reason),
        }
    }
}

/// The result of a [`Job`], of a type that its machine knows.
pub type Computed = Box<dyn Any + Send>;

/// Work on an immutable snapshot that would delay other turns: encrypt, encode a chunk, write a checkpoint.
pub trait Job: Send {
    /// Runs on any thread, once.
    fn run(self: Box<Self>) -> Computed;
}

impl fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// A synchronous, deterministic state machine and sole owner of its data: its outputs depend only on its inputs, and on a seed
/// given at construction.
pub trait Machine {
    /// A request of a local caller.
    type Request;
    /// The reply to it.
    type Reply;

    /// One turn: total, synchronous, deterministic. Pushes onto `out`, never clears it. Any input is legal in any state, and no
    /// external input makes it panic.
    fn turn(&mut self, now: Time, input: Input<Self::Request>, out: &mut Vec<Output<Self::Reply>>);

    /// The earliest time at which the driver must give this machine an [`Input::Wake`].
    fn wake_at(&self) -> Option<Time>;

    /// Called by both drivers after every turn; panics if an invariant of the machine does not hold.
    fn check_invariants(&self) {}

    /// Describes the machine for its status page and metrics. Called between turns, about once a second and only where someone
    /// may look: it may cost a pass over members or jobs, not one over the data.
    fn describe(&self, now: Time, sheet: &mut StatusSheet) {
        let _ = (now, sheet);
    }
}

/// A client's machine that depends on the state of its connection.
pub trait Peer: Machine {
    /// The connection ended: the machine reports the requests whose outcome will stay unknown.
    fn connection_closed(&mut self, out: &mut Vec<Output<Self::Reply>>);

    /// The connection was opened again.
    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Self::Reply>>) {
        let _ = (now, out);
    }
}

/// Drives a machine for a caller: submits requests, and returns replies in the order of their arrival.
pub trait ClientDriver<M: Machine> {
    /// Submits a request; its reply carries the returned ticket.
    fn submit(&mut self, request: M::Request) -> Ticket;

    /// Waits for the next reply; `None` if there will be none.
    fn next_reply(&mut self) -> Option<(Ticket, M::Reply)>;
}
