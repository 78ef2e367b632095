//! Future events of a world, in order of time.

use seatrial_machine::{Computed, LogName, NodeId, Ticket, Time};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// An event of one node. Each but a message belongs to one incarnation, that is, one start of the node.
pub(crate) enum WorldEvent<R> {
    /// A message arrives.
    Deliver {
        /// Its sender.
        from: NodeId,
        /// World time at which it was sent.
        sent: Time,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A wake-up that the machine asked for is due.
    Wake {
        /// The start that it belongs to.
        incarnation: u32,
        /// Number of the wake-up; only the newest of a node is valid.
        number: u32,
    },
    /// A sync of a log ends.
    Synced {
        /// The start that it belongs to.
        incarnation: u32,
        /// The log.
        log: LogName,
    },
    /// A file task ends.
    File {
        /// The start that it belongs to.
        incarnation: u32,
        /// The task.
        ticket: Ticket,
    },
    /// A job runs.
    Job {
        /// The start that it belongs to.
        incarnation: u32,
        /// The job, counted from its start.
        number: u64,
    },
    /// A job that synced a slow disk ends.
    Computed {
        /// The start that it belongs to.
        incarnation: u32,
        /// The job.
        ticket: Ticket,
        /// Its result.
        result: Computed,
    },
    /// A node notices that its connection to another endpoint ended.
    Closed {
        /// The start that it belongs to.
        incarnation: u32,
        /// The other endpoint.
        peer: NodeId,
    },
    /// A local request arrives.
    Request {
        /// The start that it belongs to.
        incarnation: u32,
        /// The request's ticket.
        ticket: Ticket,
        /// The request.
        request: R,
    },
}

impl<R> WorldEvent<R> {
    /// The incarnation of the node that this event is for; `None` for messages, which reach any incarnation.
    pub(crate) const fn incarnation(&self) -> Option<u32> {
        match self {
            WorldEvent::Deliver { .. } => None,
            WorldEvent::Wake { incarnation, .. }
            | WorldEvent::Synced { incarnation, .. }
            | WorldEvent::File { incarnation, .. }
            | WorldEvent::Job { incarnation, .. }
            | WorldEvent::Computed { incarnation, .. }
            | WorldEvent::Closed { incarnation, .. }
            | WorldEvent::Request { incarnation, .. } => Some(*incarnation),
        }
    }

    /// The name in a trace.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            WorldEvent::Deliver { .. } => "deliver",
            WorldEvent::Wake { .. } => "wake",
            WorldEvent::Synced { .. } => "synced",
            WorldEvent::File { .. } => "file",
            WorldEvent::Job { .. } => "job",
            WorldEvent::Computed { .. } => "computed",
            WorldEvent::Closed { .. } => "loses",
            WorldEvent::Request { .. } => "request",
        }
    }
}

/// Time and slot of an event. Small, so that sifting the heap moves 24 bytes and not a whole event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    time: Time,
    /// Order of insertion. It breaks ties of time, so that equal seeds give equal orders.
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

/// Events by time: a binary heap of [`Due`] entries over a slab of events. Push and pop cost O(log n).
pub(crate) struct EventQueue<R> {
    heap: BinaryHeap<Reverse<Due>>,
    slab: Vec<Option<(usize, WorldEvent<R>)>>,
    vacant: Vec<u32>,
    sequence: u64,
}

impl<R> EventQueue<R> {
    pub(crate) fn new() -> EventQueue<R> {
        EventQueue {
            heap: BinaryHeap::new(),
            slab: Vec::new(),
            vacant: Vec::new(),
            sequence: 0,
        }
    }

    /// Queues an event for the node at `index`.
    pub(crate) fn push(&mut self, time: Time, index: usize, event: WorldEvent<R>) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        debug_assert!(self.slab[slot as usize].is_none(), "a vacant slot is empty");
        self.slab[slot as usize] = Some((index, event));
        self.sequence += 1;
        self.heap.push(Reverse(Due {
            time,
            sequence: self.sequence,
            slot,
        }));
    }

    /// Takes the earliest event.
    pub(crate) fn pop(&mut self) -> Option<(Time, usize, WorldEvent<R>)> {
        let Reverse(due) = self.heap.pop()?;
        self.vacant.push(due.slot);
        let (index, event) = self.slab[due.slot as usize].take()?;
        debug_assert!(
            self.next_time().is_none_or(|next| due.time <= next),
            "no event left is earlier"
        );
        debug_assert_eq!(self.heap.len() + self.vacant.len(), self.slab.len());
        Some((due.time, index, event))
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(due)| due.time)
    }
}
