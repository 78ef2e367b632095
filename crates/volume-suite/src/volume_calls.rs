//! Requests of this process to the volume that it serves: those of NBD clients, and its own.

use seatrial_host::LocalCallers;
use seatrial_machine::{Machine, Ticket};
use seatrial_volume::{GuestReply, GuestRequest};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Maximum number of requests of other callers under way; further callers wait.
const OTHER_REQUESTS_MAX: usize = 64;
/// Places of the queue to the machine: requests of NBD clients always find one.
const QUEUE_MAX: usize = NBD_REQUESTS_MAX + OTHER_REQUESTS_MAX;

/// Maximum number of requests of NBD clients under way.
pub(crate) const NBD_REQUESTS_MAX: usize = 1_024;

/// Tickets of other callers begin here. Those of NBD count from 1.
const OTHER_TICKETS: u64 = 1 << 62;

/// Takes the replies to NBD requests.
type NbdReplies = Box<dyn Fn(Ticket, GuestReply) + Send>;

/// The way from callers of this process to the machine of the volume. A clone is another handle of the same way.
#[derive(Clone)]
pub struct VolumeCalls {
    requests: mpsc::Sender<(Ticket, GuestRequest)>,
    waiting: Arc<Mutex<WaitingCalls>>,
    other_places: Arc<Semaphore>,
}

#[derive(Default)]
struct WaitingCalls {
    next: u64,
    other: BTreeMap<u64, oneshot::Sender<GuestReply>>,
    nbd: Option<NbdReplies>,
}

impl VolumeCalls {
    /// The calls, and their other end for the host.
    pub fn new<M>() -> (VolumeCalls, LocalCallers<M>)
    where
        M: Machine<Request = GuestRequest, Reply = GuestReply>,
    {
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        let calls = VolumeCalls {
            requests: sender,
            waiting: Arc::default(),
            other_places: Arc::new(Semaphore::new(OTHER_REQUESTS_MAX)),
        };
        let waiting = Arc::clone(&calls.waiting);
        let reply = Box::new(move |ticket, reply| {
            let mut waiting = lock(&waiting);
            if ticket < Ticket(OTHER_TICKETS) {
                if let Some(nbd) = &waiting.nbd {
                    nbd(ticket, reply);
                }
            } else if let Some(caller) = waiting.other.remove(&ticket.0) {
                let _ = caller.send(reply); // it has stopped waiting
            }
        });
        (calls, LocalCallers { requests, reply })
    }

    /// Sends a request and waits for its reply; `None`: the machine has ended. Cancel safe: the reply is dropped.
    pub async fn call(&self, request: GuestRequest) -> Option<GuestReply> {
        let _place = self.other_places.acquire().await.ok()?;
        let (sender, reply) = oneshot::channel();
        let ticket = {
            let mut waiting = lock(&self.waiting);
            waiting.next += 1;
            let ticket = OTHER_TICKETS + waiting.next;
            waiting.other.insert(ticket, sender);
            Ticket(ticket)
        };
        self.requests.send((ticket, request)).await.ok()?;
        reply.await.ok()
    }

    /// Sets what takes the replies to NBD requests. There is one NBD server.
    pub(crate) fn set_nbd(&self, replies: NbdReplies) {
        lock(&self.waiting).nbd = Some(replies);
    }

    /// Sends a request of an NBD client. Never waits: the server has at most [`NBD_REQUESTS_MAX`] of them under way. A machine
    /// that has ended drops it.
    pub(crate) fn send(&self, ticket: Ticket, request: GuestRequest) {
        debug_assert!(ticket.0 < OTHER_TICKETS);
        let sent = self.requests.try_send((ticket, request));
        let is_full = matches!(sent, Err(mpsc::error::TrySendError::Full(_)));
        assert!(!is_full, "more requests under way than the bound");
    }
}

fn lock(waiting: &Mutex<WaitingCalls>) -> MutexGuard<'_, WaitingCalls> {
    // The table is consistent after every statement, so a poisoned lock is harmless.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
