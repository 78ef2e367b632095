//! The one entrance of every machine.

use crate::{NodeId, Time};
use std::any::Any;
use std::fmt;

/// Names one request, append or job of a machine, so that its answer finds the way back. Unique per machine and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

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
    /// The append with this ticket, and every one before it, is durable.
    Appended(Ticket),
    /// The job with this ticket has run.
    Computed(Ticket, Computed),
    /// A local caller asks for something.
    Request(Ticket, R),
}

/// What a machine wants done. The world carries outputs out in the order in which they were pushed.
#[derive(Debug)]
pub enum Output<P> {
    /// Send one message. May be lost, delayed, duplicated or overtaken.
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
    /// Append bytes (whole archive blocks) to the machine's log and make them durable, then answer
    /// [`Input::Appended`]. Appends reach the log in order; several may share one sync.
    Append(Vec<u8>, Ticket),
    /// Run a job beside the machine, then answer [`Input::Computed`]. Jobs finish in any order.
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
