//! The writing end of a server's connection.

use crate::net::Arrival;
use crate::receive::Peer;
use seatrial_machine::NodeId;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, mpsc};

/// What waits to be sent to one connection, counted with that of all others. The server puts messages in, the connection's
/// [`Writer`] gives them to the system from here, so the server can drop all of it at once.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) peer: Arc<Peer>,
    total: Arc<AtomicUsize>,
    /// With more than this nothing more is processed for the connection.
    pause: usize,
    queue: Mutex<Queue>,
    /// There is something to write, or nothing more to come.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first one that the system has taken.
    taken: usize,
    /// Nothing more will come.
    is_closed: bool,
}

/// Messages to be written together, and when they were handed over.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    handed_over: Instant,
}

impl Unsent {
    pub(crate) fn new(peer: Arc<Peer>, total: &Arc<AtomicUsize>, pause: usize) -> Unsent {
        Unsent {
            peer,
            total: Arc::clone(total),
            pause,
            queue: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that is done under the lock panics half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.peer.unsent.load(Ordering::Relaxed)
    }

    /// Does so much wait that nothing more is to be processed for the connection?
    pub(crate) fn is_paused(&self) -> bool {
        self.bytes() > self.pause
    }

    /// More will be handed over.
    pub(crate) fn add(&self, bytes: usize) {
        self.peer.unsent.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Hands over what was added.
    pub(crate) fn push(&self, bytes: Vec<u8>) {
        self.lock().chunks.push_back(Chunk {
            bytes,
            handed_over: Instant::now(),
        });
        self.changed.notify_one();
    }

    /// Nothing more will come; the writer ends when it has written all.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Nothing of it will be sent.
    pub(crate) fn drop_all(&self) {
        let mut queue = self.lock();
        (queue.chunks, queue.taken) = (VecDeque::new(), 0);
        let bytes = self.peer.unsent.swap(0, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How long what comes first waits already; longest for who reads slowest.
    pub(crate) fn age(&self) -> Option<Duration> {
        let queue = self.lock();
        queue
            .chunks
            .front()
            .map(|chunk| chunk.handed_over.elapsed())
    }

    /// Gives the system what it takes. True when that lets the connection go on.
    fn write(&self, stream: &OwnedWriteHalf) -> io::Result<bool> {
        let mut queue = self.lock();
        let Some(chunk) = queue.chunks.front() else {
            return Ok(false);
        };
        let count = match stream.try_write(&chunk.bytes[queue.taken..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        queue.taken += count;
        let taken = queue.taken;
        // What is half written is held as a whole, and counts as a whole.
        let Some(chunk) = queue.chunks.pop_front_if(|it| it.bytes.len() == taken) else {
            return Ok(false);
        };
        queue.taken = 0;
        let length = chunk.bytes.len();
        self.total.fetch_sub(length, Ordering::Relaxed);
        let before = self.peer.unsent.fetch_sub(length, Ordering::Relaxed);
        Ok(before > self.pause && before - length <= self.pause)
    }
}

/// Writes what is handed over to one connection, until that is all or the other side does not read.
pub(crate) struct Writer {
    pub(crate) stream: OwnedWriteHalf,
    pub(crate) id: NodeId,
    pub(crate) unsent: Arc<Unsent>,
    pub(crate) patience: Duration,
    pub(crate) inbox: mpsc::Sender<Arrival>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.unsent.drop_all();
    }
}

impl Writer {
    /// Writes until there is nothing more to come, and reports it.
    pub(crate) async fn run(self) {
        let reason = self.write_all().await.err();
        let (id, inbox) = (self.id, self.inbox.clone());
        drop(self);
        let _ = inbox.send(Arrival::Written(id, reason)).await; // the server has ended
    }

    async fn write_all(&self) -> io::Result<()> {
        loop {
            let (is_empty, is_closed) = {
                let queue = self.unsent.lock();
                (queue.chunks.is_empty(), queue.is_closed)
            };
            if is_empty && is_closed {
                return Ok(()); // the stream is shut down with this end of it
            }
            if is_empty {
                self.unsent.changed.notified().await;
                continue;
            }
            let ready = tokio::time::timeout(self.patience, self.stream.writable()).await;
            ready.map_err(|_| {
                let text = "it does not read what it asked for";
                io::Error::new(io::ErrorKind::TimedOut, text)
            })??;
            if self.unsent.write(&self.stream)? {
                self.unsent.peer.changed.notify_one();
                let _ = self.inbox.send(Arrival::Drained(self.id)).await; // the server has ended
            }
        }
    }
}
