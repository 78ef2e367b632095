//! Those who connect.

use crate::wire::{self, Messages};
use seatrial_machine::NodeId;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Messages that wait for the machine; connections are not read meanwhile.
pub(crate) const INBOX_MAX: usize = 4_096;
/// Bytes of messages that wait for the machine, one message of any length aside.
const INBOX_LENGTH_MAX: usize = 64 << 20;
/// Bytes that wait for one connection; one that reads so slowly is closed.
const OUTBOX_LENGTH_MAX: usize = 64 << 20;
/// Connections at a time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 10_000;
/// How long what waits for a connection is still written after the other side has ended its half.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What comes from the network.
pub(crate) enum Arrival {
    /// One message, and its share of the inbox.
    Message(NodeId, Vec<u8>, OwnedSemaphorePermit),
    /// The connection is over, for this reason if it is not the usual one.
    Closed(NodeId, Option<io::Error>),
}

/// All connections: each is an endpoint with a fresh number.
///
/// It owns their writing ends. Sends are gathered while the machine works through a batch, then handed over once per
/// connection ([`Connections::flush`]). The bound of each outbox is in bytes, so its channel needs none.
pub(crate) struct Connections {
    open: BTreeMap<NodeId, Connection>,
    next: u32,
    inbox: mpsc::Sender<Arrival>,
    /// Bytes that the inbox has room for.
    room: Arc<Semaphore>,
    length_max: usize,
    /// Connections with something gathered.
    touched: Vec<NodeId>,
}

struct Connection {
    gathered: Vec<u8>,
    outbox: UnboundedSender<Vec<u8>>,
    /// Bytes in the outbox.
    waiting: Arc<AtomicUsize>,
    reader: AbortHandle,
    writer: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Connections {
    pub(crate) fn new(inbox: mpsc::Sender<Arrival>, length_max: usize) -> Connections {
        Connections {
            open: BTreeMap::new(),
            next: 0,
            inbox,
            room: Arc::new(Semaphore::new(INBOX_LENGTH_MAX)),
            length_max,
            touched: Vec::new(),
        }
    }

    /// Takes in a connection that was accepted.
    pub(crate) fn accept(&mut self, stream: TcpStream) {
        if self.open.len() >= CONNECTIONS_MAX {
            return;
        }
        let _ = stream.set_nodelay(true); // slower without, not wrong
        let id = NodeId::client(self.next);
        self.next = (self.next + 1) % (1 << 31);
        let (reading, writing) = stream.into_split();
        let (outbox, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = tokio::spawn(write(writing, queue, Arc::clone(&waiting)));
        let writer = writer.abort_handle();
        let reader = tokio::spawn(read(
            reading,
            id,
            self.inbox.clone(),
            Arc::clone(&self.room),
            self.length_max,
        ));
        let reader = reader.abort_handle();
        let gathered = Vec::new();
        self.open.insert(
            id,
            Connection {
                gathered,
                outbox,
                waiting,
                reader,
                writer,
            },
        );
    }

    /// Forgets a connection whose other side has ended its half; what waits for it is still written if it can be soon.
    pub(crate) fn close(&mut self, id: NodeId) {
        if let Some(connection) = self.open.remove(&id) {
            let writer = connection.writer.clone();
            tokio::spawn(async move {
                tokio::time::sleep(DRAIN_MAX).await;
                writer.abort();
            });
        }
    }

    /// Ends a connection at once, whatever waits for it.
    pub(crate) fn reset(&mut self, id: NodeId) {
        if let Some(connection) = self.open.remove(&id) {
            connection.writer.abort();
        }
    }

    /// Gathers a message for an endpoint; dropped when it is gone. False when this closed the connection, because more
    /// waits for it than the bound allows: it does not read what it asked for.
    pub(crate) fn send(&mut self, to: NodeId, message: &[u8]) -> bool {
        let Some(connection) = self.open.get_mut(&to) else {
            return true;
        };
        let waiting = connection.gathered.len() + connection.waiting.load(Ordering::Relaxed);
        if waiting > 0 && waiting + message.len() > OUTBOX_LENGTH_MAX {
            self.reset(to);
            return false;
        }
        if connection.gathered.is_empty() {
            self.touched.push(to);
        }
        wire::write(&mut connection.gathered, message);
        true
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(connection) = self.open.get_mut(&id) {
                let bytes = std::mem::take(&mut connection.gathered);
                connection.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
                let _ = connection.outbox.send(bytes); // a broken connection is reported by its reader
            }
        }
    }
}

/// Listens until the socket fails.
pub(crate) async fn listen(listener: TcpListener, accepted: mpsc::Sender<TcpStream>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if accepted.send(stream).await.is_err() {
                    return;
                }
            }
            // Too many open files, or the other side gave up: neither ends the server.
            Err(error) => {
                eprintln!("a connection could not be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn read(
    stream: OwnedReadHalf,
    id: NodeId,
    inbox: mpsc::Sender<Arrival>,
    room: Arc<Semaphore>,
    length_max: usize,
) {
    let mut messages = Messages::new(stream, length_max);
    let reason = loop {
        match messages.next().await {
            Ok(Some(message)) => {
                let share = message.len().min(INBOX_LENGTH_MAX) as u32;
                let Ok(share) = Arc::clone(&room).acquire_many_owned(share).await else {
                    return;
                };
                let arrival = Arrival::Message(id, message, share);
                if inbox.send(arrival).await.is_err() {
                    return;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let _ = inbox.send(Arrival::Closed(id, reason)).await; // nobody is left to care
}

async fn write(
    mut stream: OwnedWriteHalf,
    mut queue: UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(bytes) = queue.recv().await {
        let written = stream.write_all(&bytes).await;
        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        if written.is_err() {
            return;
        }
    }
}
