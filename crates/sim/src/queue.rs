//! What will happen, in order.

use seatrial_machine::{Computed, LogName, NodeId, Ticket, Time};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Something that happens to one node.
pub(crate) enum Event<R> {
    /// A message arrives.
    Deliver {
        /// Who sent it.
        from: NodeId,
        /// When.
        sent: Time,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The machine is owed a wake-up.
    Wake {
        /// Of which start.
        incarnation: u32,
        /// Which wake-up of this node.
        number: u32,
    },
    /// The disk has synced.
    Synced {
        /// For which start.
        incarnation: u32,
        /// Which log.
        log: LogName,
    },
    /// A task on a file is done.
    File {
        /// For which start.
        incarnation: u32,
        /// Which task.
        ticket: Ticket,
    },
    /// A job runs.
    Job {
        /// For which start.
        incarnation: u32,
        /// Which job of that start.
        number: u64,
    },
    /// A job that synced a slow disk is done.
    Computed {
        /// For which start.
        incarnation: u32,
        /// Which job.
        ticket: Ticket,
        /// What came out.
        result: Computed,
    },
    /// The connection to another endpoint is found to be gone.
    Closed {
        /// Of which start.
        incarnation: u32,
        /// Who was at the other end.
        peer: NodeId,
    },
    /// A local caller asks.
    Request {
        /// Of which start.
        incarnation: u32,
        /// Which request.
        ticket: Ticket,
        /// What.
        request: R,
    },
}

impl<R> Event<R> {
    /// The start that this event belongs to; messages belong to none.
    pub(crate) const fn incarnation(&self) -> Option<u32> {
        match self {
            Event::Deliver { .. } => None,
            Event::Wake { incarnation, .. }
            | Event::Synced { incarnation, .. }
            | Event::File { incarnation, .. }
            | Event::Job { incarnation, .. }
            | Event::Computed { incarnation, .. }
            | Event::Closed { incarnation, .. }
            | Event::Request { incarnation, .. } => Some(*incarnation),
        }
    }

    /// The name in a trace.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Event::Deliver { .. } => "deliver",
            Event::Wake { .. } => "wake",
            Event::Synced { .. } => "synced",
            Event::File { .. } => "file",
            Event::Job { .. } => "job",
            Event::Computed { .. } => "computed",
            Event::Closed { .. } => "loses",
            Event::Request { .. } => "request",
        }
    }
}

/// When an event is due and where it is kept: small, so that the heap moves little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    time: Time,
    /// Events of one instant happen in the order in which they were queued.
    sequence: u64,
    slot: u32,
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        (self.time, self.sequence).cmp(&(other.time, other.sequence))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Events by time: a heap of small entries over a slab of events.
pub(crate) struct Queue<R> {
    heap: BinaryHeap<Reverse<Due>>,
    slab: Vec<Option<(usize, Event<R>)>>,
    vacant: Vec<u32>,
    sequence: u64,
}

impl<R> Queue<R> {
    pub(crate) fn new() -> Queue<R> {
        Queue {
            heap: BinaryHeap::new(),
            slab: Vec::new(),
            vacant: Vec::new(),
            sequence: 0,
        }
    }

    /// Queues an event for the node at `index`.
    pub(crate) fn push(&mut self, time: Time, index: usize, event: Event<R>) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        self.slab[slot as usize] = Some((index, event));
        self.sequence += 1;
        self.heap.push(Reverse(Due {
            time,
            sequence: self.sequence,
            slot,
        }));
    }

    /// Takes the earliest event.
    pub(crate) fn pop(&mut self) -> Option<(Time, usize, Event<R>)> {
        let Reverse(due) = self.heap.pop()?;
        self.vacant.push(due.slot);
        let (index, event) = self.slab[due.slot as usize].take()?;
        Some((due.time, index, event))
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(due)| due.time)
    }
}
