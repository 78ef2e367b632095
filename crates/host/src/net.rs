//! The connections of a server.

use crate::connection::ConnectOptions;
use crate::drive::ListenOptions;
use crate::limits::HostLimits;
use crate::notice::Notices;
use crate::opening;
use crate::peer::{self, Peers};
use crate::receive::{Answers, Held, Peer, Reader, Receiving};
use crate::send::{Unsent, Writer};
use crate::wire;
use seatrial_machine::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::io::{
    self,
    ErrorKind::{ConnectionRefused, InvalidData, OutOfMemory, TimedOut},
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Messages that wait for the machine; connections are not read meanwhile.
pub(crate) const INBOX_MAX: usize = 4_096;
/// Short messages are gathered up to about this length, longer ones are written as they are.
const CHUNK_LENGTH: usize = 64 << 10;
/// How long what waits for a connection is still written after it was closed.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Connections at a time that are told that there is no place for them, each for at most this long; others are closed at once.
const REFUSED_MAX: usize = 64;
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// What comes from the network.
pub(crate) enum Arrival {
    /// One message, and what it holds.
    Message(NodeId, Vec<u8>, Held),
    /// One message of this node to itself.
    Own(NodeId, Vec<u8>),
    /// Nothing more will come, for this reason if it is not the usual one.
    Closed(NodeId, Option<io::Error>),
    /// It has read so much of what waited for it that it may go on.
    Drained(NodeId),
    /// Nothing more will be written, for this reason if it is not the usual one.
    Written(NodeId, Option<io::Error>),
}

/// All connections: each is an endpoint with a fresh number.
///
/// It owns their writing ends. Sends are gathered while the machine works through a batch, then handed over once per
/// connection ([`Connections::flush`]). The bounds of what waits are in bytes ([`HostLimits`]), so the channels need none.
///
/// Cost: a send is a look-up and a copy. At the bound of all bytes that wait, each send costs one pass over the
/// connections, to find the one that has not read for longest.
pub(crate) struct Connections {
    open: BTreeMap<NodeId, Connection>,
    /// Closed ones to which something is still written.
    draining: BTreeMap<NodeId, Connection>,
    /// Those without a session, in the order in which they came.
    strangers: BTreeMap<u64, NodeId>,
    accepted: u64,
    receiving: Receiving,
    limits: HostLimits,
    /// Places for connections that are told why there is no place for them.
    refused: Arc<Semaphore>,
    /// Bytes that wait to be sent to all of them.
    unsent: Arc<AtomicUsize>,
    /// Connections with something gathered.
    touched: Vec<NodeId>,
    notices: Notices,
    /// The other nodes of the system, which this one dials.
    peers: Peers,
}

struct Connection {
    /// Its place among the strangers, if it is one.
    stranger: Option<u64>,
    /// The node that has dialled, if it is one.
    peer: Option<NodeId>,
    gathered: Vec<u8>,
    unsent: Arc<Unsent>,
    /// Messages that came while too much waited to be sent to it; their places in the inbox bound them.
    held: VecDeque<(Vec<u8>, Held)>,
    reader: AbortHandle,
    writer: AbortHandle,
}

impl Connections {
    pub(crate) fn new(
        inbox: mpsc::Sender<Arrival>,
        limits: HostLimits,
        options: &ListenOptions,
    ) -> Connections {
        let length_max = options.message_length_max;
        let (protocol, key) = (options.protocol, options.key.clone());
        let connect = ConnectOptions {
            key: key.clone(),
            ..ConnectOptions::new(protocol, length_max)
        };
        let peers = Peers::new(&options.peers, connect);
        Connections {
            open: BTreeMap::new(),
            draining: BTreeMap::new(),
            strangers: BTreeMap::new(),
            accepted: 0,
            receiving: Receiving::new(inbox, limits, length_max, protocol, key),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
            limits,
            unsent: Arc::new(AtomicUsize::new(0)),
            touched: Vec::new(),
            notices: Notices::default(),
            peers,
        }
    }

    /// Takes in a connection that was accepted.
    pub(crate) fn accept(&mut self, stream: TcpStream) {
        if !self.has_place() {
            self.refuse(stream);
            return;
        }
        let _ = stream.set_nodelay(true); // slower without, not wrong
        let id = NodeId::client((self.accepted % (1 << 31)) as u32);
        if self.open.contains_key(&id) || self.draining.contains_key(&id) {
            return; // one that has been there for 2^31 others
        }
        self.accepted += 1;
        let order = self.accepted;
        self.strangers.insert(order, id);
        let (reading, writing) = stream.into_split();
        let peer = Arc::new(Peer::default());
        let pause = self.limits.connection_send_bytes_pause;
        let unsent = Arc::new(Unsent::new(Arc::clone(&peer), &self.unsent, pause));
        let writer = Writer {
            stream: writing,
            id,
            unsent: Arc::clone(&unsent),
            patience: self.limits.send_patience,
            inbox: self.receiving.inbox.clone(),
        };
        let answers = Answers {
            unsent: Arc::clone(&unsent),
        };
        let reader = Reader::new(reading, id, peer, self.receiving.clone(), answers);
        let connection = Connection {
            stranger: Some(order),
            peer: None,
            gathered: Vec::new(),
            unsent,
            held: VecDeque::new(),
            reader: tokio::spawn(reader.run()).abort_handle(),
            writer: tokio::spawn(writer.run()).abort_handle(),
        };
        self.open.insert(id, connection);
    }

    /// Is there a place for one more? The connection that has been without a session for longest makes room.
    fn has_place(&mut self) -> bool {
        let most = self.limits.connections_max;
        let is_full = self.open.len() + self.draining.len() >= most;
        if is_full || self.strangers.len() >= self.limits.strangers_max {
            let Some((_, id)) = self.strangers.first_key_value() else {
                return false;
            };
            let id = *id;
            let text = "it has no session, and others want its place";
            self.notices
                .say("displaced", format_args!("{id} was disconnected: {text}"));
            self.reset(id);
        }
        true
    }

    /// All places are taken by connections that have a session.
    fn refuse(&mut self, stream: TcpStream) {
        let from = stream.peer_addr().map(|it| it.to_string());
        let from = from.unwrap_or_else(|_| "an unknown address".to_owned());
        let most = self.limits.connections_max;
        let text = format_args!("{from} was refused: {most} connections are open");
        self.notices.say("refused", text);
        let Ok(place) = Arc::clone(&self.refused).try_acquire_owned() else {
            return;
        };
        let message = opening::full(self.receiving.protocol, most);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(REFUSED_TIME, tell_and_end(stream, &message)).await;
            drop(place);
        });
    }

    /// A connection has a session.
    pub(crate) fn admit(&mut self, id: NodeId) {
        if let Some(connection) = self.open.get_mut(&id)
            && let Some(order) = connection.stranger.take()
        {
            self.strangers.remove(&order);
            let peer = &connection.unsent.peer;
            peer.is_admitted.store(true, Ordering::Relaxed);
            peer.changed.notify_one();
        }
    }

    /// Is a message of this connection to be processed now, and who sent it? Otherwise it was a greeting of another node, or
    /// is kept until the answers were read.
    pub(crate) fn admits(
        &mut self,
        id: NodeId,
        message: Vec<u8>,
        held: Held,
    ) -> Option<(NodeId, Vec<u8>)> {
        let Some(connection) = self.open.get_mut(&id) else {
            return Some((id, message));
        };
        if let Some(node) = connection.peer {
            self.peers.metrics.count_peer(node, |it| it.received += 1);
            return Some((node, message));
        }
        let is_new = connection.stranger.is_some() && self.peers.are_there();
        if is_new && peer::is_greeting(&message) {
            self.greeted(id, &message);
            return None;
        }
        if connection.held.is_empty() && !connection.unsent.is_paused() {
            return Some((id, message));
        }
        connection.held.push_back((message, held));
        None
    }

    /// A connection says that it is another node's.
    fn greeted(&mut self, id: NodeId, message: &[u8]) {
        let (node, answer) = match self.peers.greeted(message) {
            Ok(greeted) => greeted,
            Err(reason) => {
                let text = format_args!("{id} was refused as a node: {reason}");
                self.notices.say("refused node", text);
                self.reset(id);
                return;
            }
        };
        // Whoever dials again has given the earlier connection up.
        let earlier = self.open.iter().find(|(_, it)| it.peer == Some(node));
        if let Some(earlier) = earlier.map(|(earlier, _)| *earlier) {
            self.reset(earlier);
        }
        self.admit(id);
        if let Some(connection) = self.open.get_mut(&id) {
            connection.peer = Some(node);
        }
        self.send(id, answer);
    }

    /// From now on a node is at this address, or no node of the system.
    pub(crate) fn set_address(&mut self, node: NodeId, address: Option<SocketAddr>) {
        self.peers.set_address(node, address);
        if address.is_none()
            && let Some((&id, _)) = self.open.iter().find(|(_, it)| it.peer == Some(node))
        {
            self.reset(id);
        }
    }

    /// A message of this node to itself.
    fn send_own(&self, node: NodeId, message: Vec<u8>) {
        let own = Arrival::Own(node, message);
        if self.receiving.inbox.try_send(own).is_err() {
            self.peers.metrics.count(|it| it.own_dropped += 1);
        }
    }

    /// The next message that was kept, if it is to be processed now.
    pub(crate) fn next_held(&mut self, id: NodeId) -> Option<Vec<u8>> {
        let connection = self.open.get_mut(&id)?;
        if connection.unsent.is_paused() {
            return None;
        }
        connection.held.pop_front().map(|(message, _)| message)
    }

    /// What the reader or the writer of a connection reports.
    pub(crate) fn ended(&mut self, id: NodeId, reason: Option<&io::Error>) {
        let Some(error) = reason else {
            tracing::debug!("connection of {id} ended");
            self.close(id);
            return;
        };
        tracing::debug!("connection of {id} ended: {error}");
        // The usual ways in which connections break are no news.
        if error.kind() == ConnectionRefused && self.is_open(id) {
            let text = format_args!("{id} was refused: {error}");
            self.notices.say("refused", text);
            self.close(id); // with the answer that says so
            return;
        }
        if matches!(error.kind(), InvalidData | OutOfMemory | TimedOut) && self.is_open(id) {
            let text = format_args!("{id} was disconnected: {error}");
            self.notices.say("disconnected", text);
        }
        self.reset(id);
    }

    fn is_open(&self, id: NodeId) -> bool {
        self.open.contains_key(&id)
    }

    /// Ends a connection; what waits for it is still written if it can be soon.
    pub(crate) fn close(&mut self, id: NodeId) {
        let Some(mut connection) = self.remove(id) else {
            return;
        };
        connection.hand_over();
        connection.reader.abort();
        connection.unsent.close();
        if connection.unsent.bytes() == 0 {
            return;
        }
        let writer = connection.writer.clone();
        self.draining.insert(id, connection);
        tokio::spawn(async move {
            tokio::time::sleep(DRAIN_MAX).await;
            writer.abort();
        });
    }

    /// Ends a connection at once, whatever waits for it.
    fn reset(&mut self, id: NodeId) {
        let open = self.remove(id);
        for connection in open.into_iter().chain(self.draining.remove(&id)) {
            connection.reader.abort();
            connection.writer.abort();
            connection.unsent.drop_all();
        }
    }

    fn remove(&mut self, id: NodeId) -> Option<Connection> {
        let connection = self.open.remove(&id)?;
        if let Some(order) = connection.stranger {
            self.strangers.remove(&order);
        }
        Some(connection)
    }

    /// The writer of a connection is done.
    pub(crate) fn written(&mut self, id: NodeId, reason: Option<&io::Error>) {
        if self.draining.remove(&id).is_none() {
            self.ended(id, reason);
        }
    }

    /// Gathers a message for a client, or queues it for another node; dropped and counted when there is none. Closes
    /// connections that do not read what they asked for when more waits than the bounds allow.
    pub(crate) fn send(&mut self, to: NodeId, message: Vec<u8>) {
        if !to.is_client() {
            match self.peers.own() {
                Some(own) if own == to => self.send_own(own, message),
                _ => self.peers.send(to, message),
            }
            return;
        }
        let length = wire::PREFIX_LENGTH + message.len();
        let Some(connection) = self.open.get(&to) else {
            self.peers.metrics.count(|it| it.gone_client += 1);
            return;
        };
        let waiting = connection.unsent.bytes();
        if waiting > 0 && waiting + length > self.limits.connection_send_bytes_max {
            self.reset_deaf(to);
            return;
        }
        while self.unsent.load(Ordering::Relaxed) + length > self.limits.send_bytes_max {
            let Some(slowest) = self.slowest() else {
                break; // one message of any length
            };
            self.reset_deaf(slowest);
        }
        if let Some(connection) = self.open.get_mut(&to) {
            if connection.gathered.is_empty() {
                self.touched.push(to);
            }
            connection.unsent.add(length);
            connection.gather(message);
        }
    }

    /// The connection that has not read for longest, of those for which something waits.
    fn slowest(&self) -> Option<NodeId> {
        let all = self.draining.iter().chain(&self.open);
        let waiting = all.filter(|(_, it)| it.unsent.bytes() > 0);
        let slowest = waiting.max_by_key(|(_, it)| (it.unsent.age(), it.unsent.bytes()));
        slowest.map(|(id, _)| *id)
    }

    fn reset_deaf(&mut self, id: NodeId) {
        let text = format_args!("{id} was disconnected: it does not read what it asked for");
        self.notices.say("deaf", text);
        self.reset(id);
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(connection) = self.open.get_mut(&id) {
                connection.hand_over();
            }
        }
    }
}

impl Connection {
    /// Puts a message behind those that were gathered; a long one is not copied.
    fn gather(&mut self, message: Vec<u8>) {
        if message.len() < CHUNK_LENGTH {
            wire::write(&mut self.gathered, &message);
        } else {
            wire::write_prefix(&mut self.gathered, message.len());
            self.hand_over();
            self.unsent.push(message);
        }
        if self.gathered.len() >= CHUNK_LENGTH {
            self.hand_over();
        }
    }

    /// Gives what was gathered to the writer.
    fn hand_over(&mut self) {
        let bytes = std::mem::take(&mut self.gathered);
        if !bytes.is_empty() {
            self.unsent.push(bytes);
        }
    }
}

/// Sends a last message. What the other side has said is read until it ends, or the system would drop the message.
async fn tell_and_end(mut stream: TcpStream, message: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::new();
    wire::write(&mut bytes, message);
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    while stream.read(&mut [0; 256]).await? > 0 {}
    Ok(())
}

/// Listens until the socket fails.
pub(crate) async fn listen(listener: TcpListener, accepted: mpsc::Sender<TcpStream>) {
    let mut notices = Notices::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if accepted.send(stream).await.is_err() {
                    return;
                }
            }
            // Too many open files, or the other side gave up: neither ends the server.
            Err(error) => {
                notices.say(
                    "accept",
                    format_args!("a connection could not be accepted: {error}"),
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
