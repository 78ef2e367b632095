//! The writing half of a server's connection.

use crate::byte_stream::WriteSide;
use crate::net::NetworkInput;
use crate::receive::ConnectionState;
use seatrial_machine::NodeId;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Bytes younger than this have had no time to be read.
const AGE_MIN: Duration = Duration::from_millis(10);

/// The queue of bytes to send to one connection, counted together with all others. The server pushes, the connection's
/// [`ConnectionWriter`] writes from here, so the server can drop the whole queue at once.
///
/// What the socket takes at once never gets into the queue: the server writes it itself ([`Unsent::write_through`]). A reply then
/// costs one system call, and neither a copy, nor a timer, nor a turn of the writer's task.
pub(crate) struct Unsent {
    pub(crate) peer: Arc<ConnectionState>,
    total: Arc<AtomicUsize>,
    /// With more bytes queued than this, the connection is paused: its messages are not processed.
    pause: usize,
    queue: Mutex<SendQueue>,
    /// The stream, as long as the writer has it: the writer's end shuts it down.
    stream: Weak<WriteSide>,
    /// Notified when there is something to write, or the queue was closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct SendQueue {
    chunks: VecDeque<SendChunk>,
    /// Bytes of the first chunk that the kernel has taken.
    taken: usize,
    /// No chunk follows.
    is_closed: bool,
}

/// Messages to be written together, and when they were handed over.
#[derive(Debug)]
struct SendChunk {
    bytes: Vec<u8>,
    handed_over: Instant,
}

impl Unsent {
    pub(crate) fn new(
        peer: Arc<ConnectionState>,
        total: &Arc<AtomicUsize>,
        pause: usize,
        stream: Weak<WriteSide>,
    ) -> Unsent {
        Unsent {
            peer,
            total: Arc::clone(total),
            pause,
            queue: Mutex::default(),
            stream,
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SendQueue> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.peer.unsent.load(Ordering::Relaxed)
    }

    /// Is the connection paused, because too many bytes are queued?
    pub(crate) fn is_paused(&self) -> bool {
        self.bytes() > self.pause
    }

    /// Counts bytes that will be pushed.
    pub(crate) fn add(&self, bytes: usize) {
        self.peer.unsent.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Writes bytes that were counted by `add` at once, if nothing is queued before them and the socket takes all of them. False:
    /// they are to be pushed; the first bytes that the socket has taken are those before `from`, which is advanced.
    ///
    /// Not through TLS: what is encrypted and not taken needs the writer. Not while the connection is paused: the end of a pause
    /// has to be reported.
    pub(crate) fn write_through(&self, bytes: &[u8], from: &mut usize) -> bool {
        let queue = self.lock();
        if !queue.chunks.is_empty() || queue.is_closed || self.is_paused() {
            return false;
        }
        let Some(stream) = self.stream.upgrade().filter(|it| it.is_plain()) else {
            return false;
        };
        // The writer sees an error itself.
        *from = stream.try_write(bytes).unwrap_or(0);
        if *from < bytes.len() {
            return false;
        }
        self.count_sent(bytes.len());
        true
    }

    /// Counts bytes that are written or dropped. Returns how many were queued before.
    fn count_sent(&self, bytes: usize) -> usize {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.peer.unsent.fetch_sub(bytes, Ordering::Relaxed)
    }

    /// Pushes bytes that were counted by `add`, of which the socket has taken the first ones.
    pub(crate) fn push(&self, bytes: Vec<u8>, taken: usize) {
        let mut queue = self.lock();
        assert!(
            taken == 0 || queue.chunks.is_empty(),
            "only the first chunk is cut"
        );
        if taken > 0 {
            queue.taken = taken;
        }
        queue.chunks.push_back(SendChunk {
            bytes,
            handed_over: Instant::now(),
        });
        drop(queue);
        self.changed.notify_one();
    }

    /// Closes the queue; the writer ends when all is written.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Drops the whole queue.
    pub(crate) fn drop_all(&self) {
        let mut queue = self.lock();
        (queue.chunks, queue.taken) = (VecDeque::new(), 0);
        let bytes = self.peer.unsent.swap(0, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Queued bytes times the age of the first chunk in milliseconds, which is at least [`AGE_MIN`]: what this connection costs
    /// the others. By age alone a client would be disconnected whose short reply is a moment older than the floods around it.
    pub(crate) fn burden(&self) -> u128 {
        let first = self.lock().chunks.front().map(|it| it.handed_over);
        let age = first.map_or(AGE_MIN, |it| it.elapsed().max(AGE_MIN));
        self.bytes() as u128 * age.as_millis()
    }

    /// Writes as much as the kernel takes. True if that ends the pause of the connection.
    fn write(&self, stream: &WriteSide) -> io::Result<bool> {
        let mut queue = self.lock();
        let Some(chunk) = queue.chunks.front() else {
            return match stream.try_flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(false),
            };
        };
        let count = match stream.try_write(&chunk.bytes[queue.taken..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        queue.taken += count;
        let taken = queue.taken;
        // A chunk is freed, and stops being counted, when all of it is written.
        let Some(chunk) = queue.chunks.pop_front_if(|it| it.bytes.len() == taken) else {
            return Ok(false);
        };
        queue.taken = 0;
        let length = chunk.bytes.len();
        let before = self.count_sent(length);
        Ok(before > self.pause && before - length <= self.pause)
    }
}

/// Writes the queue of one connection, until it is closed and empty or the peer does not read.
pub(crate) struct ConnectionWriter {
    pub(crate) stream: Arc<WriteSide>,
    pub(crate) id: NodeId,
    pub(crate) unsent: Arc<Unsent>,
    pub(crate) patience: Duration,
    pub(crate) inbox: mpsc::Sender<NetworkInput>,
}

impl Drop for ConnectionWriter {
    fn drop(&mut self) {
        self.unsent.drop_all();
    }
}

impl ConnectionWriter {
    /// Writes until the queue is closed and empty, and reports it.
    pub(crate) async fn run(self) {
        let reason = self.write_all().await.err();
        let (id, inbox) = (self.id, self.inbox.clone());
        drop(self);
        let _ = inbox.send(NetworkInput::Written(id, reason)).await; // the server has ended
    }

    async fn write_all(&self) -> io::Result<()> {
        loop {
            let (is_empty, is_closed) = {
                let queue = self.unsent.lock();
                (queue.chunks.is_empty(), queue.is_closed)
            };
            // What TLS has encrypted counts as taken, and is written when the socket is ready.
            let is_empty = is_empty && !self.stream.has_unsent();
            if is_empty && is_closed {
                return Ok(()); // dropping the write half shuts the stream down
            }
            if is_empty {
                self.unsent.changed.notified().await;
                continue;
            }
            let ready = tokio::time::timeout(self.patience, self.stream.writable()).await;
            ready.map_err(|_| {
                let text = "it does not read its replies";
                io::Error::new(io::ErrorKind::TimedOut, text)
            })??;
            if self.unsent.write(&self.stream)? {
                self.unsent.peer.changed.notify_one();
                let _ = self.inbox.send(NetworkInput::Drained(self.id)).await; // the server has ended
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_of(bytes: usize) -> Unsent {
        let peer = Arc::new(ConnectionState::default());
        let unsent = Unsent::new(peer, &Arc::new(AtomicUsize::new(0)), 1 << 20, Weak::new());
        unsent.add(bytes);
        unsent.push(vec![7; bytes], 0);
        unsent
    }

    #[test]
    fn a_short_reply_that_waits_for_a_moment_weighs_less_than_a_flood() {
        let short = queue_of(100);
        std::thread::sleep(2 * AGE_MIN);
        let flood = queue_of(1 << 20);
        assert!(short.burden() < flood.burden(), "although it is older");
        let older = queue_of(1 << 20);
        std::thread::sleep(4 * AGE_MIN);
        assert!(older.burden() > queue_of(1 << 20).burden());
        short.drop_all();
        assert_eq!(short.burden(), 0);
    }
}
