//! The one entrance of every machine.

use crate::{FileResult, FileTask, LogName, NodeId, Time};
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;

/// Names one request, append or job of a machine, so that its answer finds the way back. Unique per machine and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Jobs and tasks on files that a machine may have under way before a driver holds messages back: their number stays below
/// this and what one batch of turns adds.
pub const WORK_MAX: usize = 1_024;

/// What the world tells a machine.
#[derive(Debug)]
pub enum Input<R> {
    /// The time that `wake_at` named has come.
    Wake,
    /// Bytes of one whole message from another endpoint. Untrusted: anything may be in them.
    Message {
        /// Who sent it.
        from: NodeId,
        /// One message, without the length prefix of the wire.
        bytes: Vec<u8>,
    },
    /// The append with this ticket, and every one before it to the same log, is durable.
    Appended(Ticket),
    /// The task on a file with this ticket was done, or failed.
    FileDone(Ticket, FileResult),
    /// The job with this ticket has run.
    Computed(Ticket, Computed),
    /// A local caller asks for something.
    Request(Ticket, R),
}

/// What a machine wants done. The world carries outputs out in the order in which they were pushed.
#[derive(Debug)]
pub enum Output<P> {
    /// Send one message. May be lost, delayed, duplicated or overtaken. A driver counts those that it drops.
    Send {
        /// The endpoint it is for.
        to: NodeId,
        /// One message, without the length prefix of the wire.
        message: Vec<u8>,
    },
    /// The endpoint has a session: its connection gets the bounds of one that is known. A driver without connections ignores
    /// it.
    Admit(NodeId),
    /// The endpoint has no session any more: end its connection when it has what was sent to it before. A driver without
    /// connections ignores it.
    Close(NodeId),
    /// From now on a node is at this address; at none, it belongs to the system no more and nothing is sent to it. A driver
    /// that knows nodes by their names ignores it.
    Address {
        /// The node.
        node: NodeId,
        /// Where it listens.
        address: Option<SocketAddr>,
    },
    /// Append bytes (whole archive blocks) to a log and make them durable, then answer [`Input::Appended`]. Appends reach
    /// their log in order; several may share one sync. Of appends that are not answered a crash may keep any part. A log
    /// that cannot be written ends the process: nothing after it is answered.
    Append {
        /// The log, one of [`Booted::logs`](crate::Booted).
        log: LogName,
        /// The bytes.
        bytes: Vec<u8>,
        /// Named by the answer.
        ticket: Ticket,
    },
    /// Nothing of this log before a position is needed any more: its space is given back, by whole segments, after the
    /// appends that were pushed before. Never answered; [`Log::start`](crate::Log::start) says at the next start what is left.
    TruncateHead {
        /// The log.
        log: LogName,
        /// The first position that is still needed.
        position: u64,
    },
    /// Do something to a file, then answer [`Input::FileDone`].
    File(FileTask, Ticket),
    /// Run a job beside the machine, then answer [`Input::Computed`]. Jobs finish in any order, and what is under way at a
    /// crash may have done any part of its work.
    Compute(Box<dyn Job>, Ticket),
    /// Answer the local request with this ticket.
    Reply(Ticket, P),
}

/// The result of a [`Job`]; the machine that submitted it knows the type.
pub type Computed = Box<dyn Any + Send>;

/// Work on an immutable snapshot that would hold up a turn: encrypt, encode a chunk, write a checkpoint.
pub trait Job: Send {
    /// Runs on any thread, once.
    fn run(self: Box<Self>) -> Computed;
}

impl fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// Sole owner of its data, synchronous and deterministic: outputs depend on the inputs (and a seed given at
/// construction) alone.
pub trait Machine {
    /// What a local caller may ask.
    type Request;
    /// What it answers.
    type Reply;

    /// One turn: total, synchronous, deterministic. Pushes onto `out`, never clears it. Any input in any state is
    /// legal; nothing that comes from outside makes it panic.
    fn turn(&mut self, now: Time, input: Input<Self::Request>, out: &mut Vec<Output<Self::Reply>>);

    /// The earliest time at which the world owes this machine an [`Input::Wake`].
    fn wake_at(&self) -> Option<Time>;

    /// Checked by both drivers after every turn; panics when the machine contradicts itself.
    fn check_invariants(&self) {}
}

/// A client's machine that wants to know about its connection.
pub trait Peer: Machine {
    /// The connection is gone; answers what cannot be known any more.
    fn connection_closed(&mut self, out: &mut Vec<Output<Self::Reply>>);

    /// The connection is there again.
    fn connection_opened(&mut self, now: Time, out: &mut Vec<Output<Self::Reply>>) {
        let _ = (now, out);
    }
}

/// Someone who drives a machine for a caller: takes requests, and brings replies in the order in which they come.
pub trait Conversation<M: Machine> {
    /// Hands a request over; its reply carries the ticket.
    fn submit(&mut self, request: M::Request) -> Ticket;

    /// The next reply, waiting for it; nothing when there can be none any more.
    fn next_reply(&mut self) -> Option<(Ticket, M::Reply)>;
}
