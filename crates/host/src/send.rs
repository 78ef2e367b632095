//! The writing end of a server's connection.

use crate::net::Arrival;
use crate::receive::Peer;
use seatrial_machine::NodeId;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// Bytes that wait to be sent to one connection, counted with those of all others.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) peer: Arc<Peer>,
    total: Arc<AtomicUsize>,
    /// With more than this its reader pauses.
    pause: usize,
    /// When what is being written was handed over, in nanoseconds of [`clock`]; 0: nothing is being written.
    since: AtomicU64,
}

/// Time since the first call.
fn clock() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let began = BEGAN.get_or_init(Instant::now);
    1 + u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
}

impl Unsent {
    pub(crate) fn new(peer: Arc<Peer>, total: &Arc<AtomicUsize>, pause: usize) -> Unsent {
        Unsent {
            peer,
            total: Arc::clone(total),
            pause,
            since: AtomicU64::new(0),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.peer.unsent.load(Ordering::Relaxed)
    }

    /// More is to be sent.
    pub(crate) fn add(&self, bytes: usize) {
        self.peer.unsent.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The system has taken some, which lets the reader go on.
    fn sent(&self, bytes: usize) {
        let before = self.peer.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        if before > self.pause && before - bytes <= self.pause {
            self.peer.changed.notify_one();
        }
    }

    /// Nothing of it will be sent.
    pub(crate) fn drop_all(&self) {
        let bytes = self.peer.unsent.swap(0, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long what is being written waits already; longest for who reads slowest.
    pub(crate) fn age(&self) -> Option<u64> {
        let since = self.since.load(Ordering::Relaxed);
        (since > 0 && self.bytes() > 0).then(|| clock().saturating_sub(since))
    }
}

/// Messages to be written together, and when they were handed over.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    handed_over: u64,
}

impl Chunk {
    pub(crate) fn new(bytes: Vec<u8>) -> Chunk {
        Chunk {
            bytes,
            handed_over: clock(),
        }
    }
}

/// Writes what is handed over to one connection, until that is all or the other side does not read.
pub(crate) struct Writer {
    pub(crate) stream: OwnedWriteHalf,
    pub(crate) id: NodeId,
    pub(crate) queue: UnboundedReceiver<Chunk>,
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
    pub(crate) async fn run(mut self) {
        let reason = self.write_all().await.err();
        let (id, inbox) = (self.id, self.inbox.clone());
        drop(self);
        let _ = inbox.send(Arrival::Written(id, reason)).await; // the server has ended
    }

    async fn write_all(&mut self) -> io::Result<()> {
        while let Some(chunk) = self.queue.recv().await {
            self.unsent
                .since
                .store(chunk.handed_over, Ordering::Relaxed);
            let mut rest = chunk.bytes.as_slice();
            while !rest.is_empty() {
                let written = tokio::time::timeout(self.patience, self.stream.write(rest)).await;
                let count = written.map_err(|_| {
                    let text = "it does not read what it asked for";
                    io::Error::new(io::ErrorKind::TimedOut, text)
                })??;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                self.unsent.sent(count);
                rest = &rest[count..];
            }
            self.unsent.since.store(0, Ordering::Relaxed);
        }
        let _ = self.stream.shutdown().await; // it has closed the connection before
        Ok(())
    }
}
