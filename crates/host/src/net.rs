//! The connections of a server.

use crate::byte_stream::{self, TlsSession};
use crate::connection::ConnectOptions;
use crate::connection_writer::{ConnectionWriter, Unsent};
use crate::drive::ListenOptions;
use crate::host_limits::HostLimits;
use crate::node_probe::{NodeProbe, ProbeResult};
use crate::notice::Notices;
use crate::opening;
use crate::peer::{self, Peers};
use crate::receive::{ConnectionReader, ConnectionState, HeldMemory, OpeningReplies, Receiving};
use crate::tls::TlsCredentials;
use crate::unwritten_messages::MessageParts;
use crate::wire;
use seatrial_machine::{MetricValue, NodeId, StatusSheet};
use std::collections::{BTreeMap, VecDeque};
use std::io::{
    self,
    ErrorKind::{ConnectionRefused, InvalidData, OutOfMemory, PermissionDenied, TimedOut},
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Maximum number of messages in the inbox; connections are not read while it is full.
pub(crate) const INBOX_MAX: usize = 4_096;
/// Short messages are gathered into chunks of about this length; longer ones are written without a copy.
const CHUNK_LENGTH: usize = 64 << 10;
/// Bytes of a buffer that a connection keeps for its next replies.
const KEPT_LENGTH_MAX: usize = 512;
/// Time for which the queue of a closed connection is still written.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Maximum number of connections that get a refusal because the server is full; further ones are closed at once.
const REFUSED_MAX: usize = 64;
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// An input of the network.
pub(crate) enum NetworkInput {
    /// One message, and the memory that it holds.
    Message(NodeId, Vec<u8>, HeldMemory),
    /// One message of this node to itself.
    Own(NodeId, Vec<u8>),
    /// One message of a node on the connection that this guest has dialled, and the memory that it holds.
    Answer(NodeId, Vec<u8>, OwnedSemaphorePermit),
    /// The reader ended, with the error if it is unusual.
    Closed(NodeId, Option<io::Error>),
    /// It has read enough of its queue to be processed again.
    Drained(NodeId),
    /// The writer ended, with the error if it is unusual.
    Written(NodeId, Option<io::Error>),
    /// Another process has the number of this node; the reason to end.
    Twin(String),
}

/// All connections; each is an endpoint with a new number.
///
/// It owns their writing halves. Messages are gathered while the machine works through a batch, then handed over once per
/// connection ([`Connections::flush`]). Queues are bounded in bytes ([`HostLimits`]), so the channels need no bound.
///
/// Cost: a send is a look-up and a copy. At the bound of all queued bytes each send costs one pass over the connections, to find
/// the one with most queued bytes times their age.
pub(crate) struct Connections {
    open: BTreeMap<NodeId, AcceptedConnection>,
    /// Closed connections whose queue is still written.
    draining: BTreeMap<NodeId, AcceptedConnection>,
    /// Connections without a session, oldest first.
    unadmitted: BTreeMap<u64, NodeId>,
    accepted: u64,
    receiving: Receiving,
    limits: HostLimits,
    tls: Option<TlsCredentials>,
    /// Places for connections that get a refusal.
    refused: Arc<Semaphore>,
    /// Bytes queued for all connections.
    unsent: Arc<AtomicUsize>,
    /// Connections with gathered messages.
    touched: Vec<NodeId>,
    notices: Notices,
    /// The other nodes of the system, which this one dials.
    peers: Peers,
    counts: ConnectionCounts,
}

/// What happened to connections and messages since the start.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionCounts {
    /// Connections that were refused or closed because a bound was reached or a peer misbehaved.
    refused: u64,
    /// Messages of clients and other nodes.
    received: u64,
    received_bytes: u64,
    /// Messages queued for clients.
    sent: u64,
    sent_bytes: u64,
}

struct AcceptedConnection {
    /// Its key in `unadmitted`, while it has no session.
    unadmitted: Option<u64>,
    /// The node that dialled it, if it is one.
    peer: Option<NodeId>,
    tls: Option<Arc<TlsSession>>,
    /// The number of that node's process; 0: not known.
    process: u32,
    probe: NodeProbe,
    gathered: Vec<u8>,
    unsent: Arc<Unsent>,
    /// Messages that arrived while too much was queued for it; its inbox places bound them.
    held: VecDeque<(Vec<u8>, HeldMemory)>,
    reader: AbortHandle,
    writer: AbortHandle,
}

impl Connections {
    pub(crate) fn new(
        inbox: mpsc::Sender<NetworkInput>,
        limits: HostLimits,
        options: &ListenOptions,
    ) -> Connections {
        let length_max = options.message_length_max;
        let (protocol, key) = (options.protocol, options.key.clone());
        let connect = ConnectOptions {
            key: key.clone(),
            tls: options.tls.clone(),
            ..ConnectOptions::new(protocol, length_max)
        };
        let peers = Peers::new(&options.peers, connect, &inbox);
        Connections {
            open: BTreeMap::new(),
            draining: BTreeMap::new(),
            unadmitted: BTreeMap::new(),
            accepted: 0,
            receiving: Receiving::new(inbox, limits, length_max, protocol, key),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
            limits,
            tls: options.tls.clone(),
            unsent: Arc::new(AtomicUsize::new(0)),
            touched: Vec::new(),
            notices: Notices::default(),
            peers,
            counts: ConnectionCounts::default(),
        }
    }

    /// Takes in an accepted connection.
    pub(crate) fn accept(&mut self, stream: TcpStream) {
        if !self.has_place() {
            self.refuse(stream);
            return;
        }
        let tls = self.tls.as_ref().map(TlsCredentials::accept).transpose();
        let tls = match tls {
            Ok(tls) => tls,
            Err(error) => {
                let text = format_args!("a connection could not be accepted: {error}");
                self.notices.say("tls", text);
                return;
            }
        };
        let _ = stream.set_nodelay(true); // only a matter of latency
        let id = NodeId::client((self.accepted % (1 << 31)) as u32);
        if self.open.contains_key(&id) || self.draining.contains_key(&id) {
            return; // a connection that has outlived 2^31 others has this number
        }
        self.accepted += 1;
        let order = self.accepted;
        self.unadmitted.insert(order, id);
        let (reading, writing) = byte_stream::split(stream, tls);
        let tls = reading.tls();
        let peer = Arc::new(ConnectionState::default());
        let pause = self.limits.connection_send_bytes_pause;
        let writing = Arc::new(writing);
        let stream = Arc::downgrade(&writing);
        let unsent = Unsent::new(Arc::clone(&peer), &self.unsent, pause, stream);
        let unsent = Arc::new(unsent);
        let writer = ConnectionWriter {
            stream: writing,
            id,
            unsent: Arc::clone(&unsent),
            patience: self.limits.send_patience,
            inbox: self.receiving.inbox.clone(),
        };
        let answers = OpeningReplies {
            unsent: Arc::clone(&unsent),
        };
        let reader = ConnectionReader::new(reading, id, peer, self.receiving.clone(), answers);
        let connection = AcceptedConnection {
            unadmitted: Some(order),
            peer: None,
            tls,
            process: 0,
            probe: NodeProbe::default(),
            gathered: Vec::new(),
            unsent,
            held: VecDeque::new(),
            reader: tokio::spawn(reader.run()).abort_handle(),
            writer: tokio::spawn(writer.run()).abort_handle(),
        };
        self.open.insert(id, connection);
    }

    /// Is there a place for one more connection? The oldest connection without a session is closed for it.
    fn has_place(&mut self) -> bool {
        let most = self.limits.connections_max;
        let is_full = self.open.len() + self.draining.len() >= most;
        if is_full || self.unadmitted.len() >= self.limits.unadmitted_max {
            let Some((_, id)) = self.unadmitted.first_key_value() else {
                return false;
            };
            let id = *id;
            let text = "it has no session, and its place is needed";
            self.notices
                .say("displaced", format_args!("{id} was disconnected: {text}"));
            self.counts.refused += 1;
            self.reset(id);
        }
        true
    }

    /// Refuses a connection: all places are taken by connections with a session.
    fn refuse(&mut self, stream: TcpStream) {
        let from = stream.peer_addr().map(|it| it.to_string());
        let from = from.unwrap_or_else(|_| "an unknown address".to_owned());
        let most = self.limits.connections_max;
        let text = format_args!("{from} was refused: {most} connections are open");
        self.notices.say("refused", text);
        self.counts.refused += 1;
        let Ok(place) = Arc::clone(&self.refused).try_acquire_owned() else {
            return;
        };
        let message = opening::full(self.receiving.protocol, most);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(REFUSED_TIME, send_and_end(stream, &message)).await;
            drop(place);
        });
    }

    /// Marks that a connection has a session.
    pub(crate) fn admit(&mut self, id: NodeId) {
        if let Some(connection) = self.open.get_mut(&id)
            && let Some(order) = connection.unadmitted.take()
        {
            self.unadmitted.remove(&order);
            let peer = &connection.unsent.peer;
            peer.is_admitted.store(true, Ordering::Relaxed);
            peer.changed.notify_one();
        }
    }

    /// Decides whether a message is processed now; returns its sender. Otherwise it was a greeting of another node, or is held
    /// until the connection has read its replies.
    pub(crate) fn admits(
        &mut self,
        id: NodeId,
        message: Vec<u8>,
        held: HeldMemory,
    ) -> Option<(NodeId, Vec<u8>)> {
        self.counts.received += 1;
        self.counts.received_bytes += message.len() as u64;
        let Some(connection) = self.open.get_mut(&id) else {
            return Some((id, message));
        };
        if let Some(node) = connection.peer {
            connection.probe.heard();
            if peer::is_alive(&message) {
                return None;
            }
            self.peers.metrics.count_peer(node, |it| it.received += 1);
            return Some((node, message));
        }
        let is_new = connection.unadmitted.is_some() && self.peers.are_there();
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

    /// Handles the greeting of another node.
    fn greeted(&mut self, id: NodeId, message: &[u8]) {
        let greeted = self.peers.greeted(message);
        let greeted = greeted.and_then(|greeted| self.certified(id, greeted));
        let (node, answer) = match greeted {
            Ok(greeted) => greeted,
            Err(reason) => {
                let text = format_args!("{id} was refused as a node: {reason}");
                self.notices.say("refused node", text);
                self.counts.refused += 1;
                self.reset(id);
                return;
            }
        };
        let Some(node) = node else {
            // A guest: it keeps the number of its connection, which carries the replies as well.
            self.admit(id);
            self.send(id, answer);
            return;
        };
        let process = peer::process_of(message);
        let earlier = self.open.iter().find(|(_, it)| it.peer == Some(node));
        if let Some(earlier) = earlier.map(|(earlier, _)| *earlier) {
            if self.is_twin(id, node, process, earlier) {
                return;
            }
            // A node that dials again has abandoned its earlier connection.
            self.reset(earlier);
        }
        self.admit(id);
        if let Some(connection) = self.open.get_mut(&id) {
            connection.peer = Some(node);
            connection.process = process;
        }
        self.send(id, answer);
    }

    /// Refuses a greeting of a node whose certificate names another one. The key of the cluster proves no more than membership.
    fn certified(
        &self,
        id: NodeId,
        greeted: (Option<NodeId>, Vec<u8>),
    ) -> Result<(Option<NodeId>, Vec<u8>), String> {
        let tls = self.open.get(&id).and_then(|it| it.tls.as_ref());
        match (greeted.0, tls) {
            (Some(node), Some(tls)) if !tls.is_peer(&node.to_string()) => {
                Err(format!("its certificate is not for {node}"))
            }
            _ => Ok(greeted),
        }
    }

    /// Is this the greeting of another process than the one at the earlier connection of the node, which may live? It is refused
    /// then. (See [`NodeProbe`].)
    fn is_twin(&mut self, id: NodeId, node: NodeId, process: u32, earlier: NodeId) -> bool {
        let patience = self.peers.probe_patience();
        let messages = self.peers.probe_and_refusal(node);
        let (Some(connection), Some([probe, refusal])) = (self.open.get_mut(&earlier), messages)
        else {
            return false;
        };
        if connection.process == process || connection.process == 0 || process == 0 {
            return false;
        }
        match connection.probe.challenge(Instant::now(), patience) {
            ProbeResult::Gone => return false,
            ProbeResult::Ask => self.send(earlier, probe),
            ProbeResult::Wait => {}
        }
        let text = format_args!(
            "{id} was refused as {node}: another process runs as {node} and is connected"
        );
        self.notices.say("node twice", text);
        self.counts.refused += 1;
        self.send(id, refusal);
        self.close(id);
        true
    }

    /// Sets the address of a node; `None`: it does not belong to the system any more.
    pub(crate) fn set_address(&mut self, node: NodeId, address: Option<SocketAddr>) {
        self.peers.set_address(node, address);
        if address.is_none()
            && let Some((&id, _)) = self.open.iter().find(|(_, it)| it.peer == Some(node))
        {
            self.reset(id);
        }
    }

    /// Queues a message of this node to itself.
    fn send_own(&self, node: NodeId, message: Vec<u8>) {
        let own = NetworkInput::Own(node, message);
        if self.receiving.inbox.try_send(own).is_err() {
            self.peers.metrics.count(|it| it.own_dropped += 1);
        }
    }

    /// The next held message, if it may be processed now.
    pub(crate) fn next_held(&mut self, id: NodeId) -> Option<Vec<u8>> {
        let connection = self.open.get_mut(&id)?;
        if connection.unsent.is_paused() {
            return None;
        }
        connection.held.pop_front().map(|(message, _)| message)
    }

    /// Handles the end of a connection's reader or writer.
    pub(crate) fn ended(&mut self, id: NodeId, reason: Option<&io::Error>) {
        let Some(error) = reason else {
            tracing::debug!("connection of {id} ended");
            self.close(id);
            return;
        };
        tracing::debug!("connection of {id} ended: {error}");
        // The usual errors of broken connections are not reported.
        if error.kind() == ConnectionRefused && self.is_open(id) {
            let text = format_args!("{id} was refused: {error}");
            self.notices.say("refused", text);
            self.counts.refused += 1;
            self.close(id); // its queue has the refusal
            return;
        }
        if matches!(
            error.kind(),
            InvalidData | OutOfMemory | PermissionDenied | TimedOut
        ) && self.is_open(id)
        {
            let text = format_args!("{id} was disconnected: {error}");
            self.notices.say("disconnected", text);
            self.counts.refused += 1;
        }
        self.reset(id);
    }

    fn is_open(&self, id: NodeId) -> bool {
        self.open.contains_key(&id)
    }

    /// Closes a connection; its queue is still written for a while.
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

    /// Closes a connection and drops its queue.
    fn reset(&mut self, id: NodeId) {
        let open = self.remove(id);
        for connection in open.into_iter().chain(self.draining.remove(&id)) {
            connection.reader.abort();
            connection.writer.abort();
            connection.unsent.drop_all();
        }
    }

    fn remove(&mut self, id: NodeId) -> Option<AcceptedConnection> {
        let connection = self.open.remove(&id)?;
        if let Some(order) = connection.unadmitted {
            self.unadmitted.remove(&order);
        }
        Some(connection)
    }

    /// Handles the end of a connection's writer.
    pub(crate) fn written(&mut self, id: NodeId, reason: Option<&io::Error>) {
        if self.draining.remove(&id).is_none() {
            self.ended(id, reason);
        }
    }

    /// Gathers a message for a client, or queues it for another node; it is dropped and counted if there is no such endpoint.
    /// Closes connections that do not read, while more bytes are queued than the bounds permit.
    pub(crate) fn send(&mut self, to: NodeId, message: Vec<u8>) {
        if !to.is_client() {
            match self.peers.own() {
                Some(own) if own == to => self.send_own(own, message),
                _ => self.peers.send(to, message.into()),
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
            let Some(deafest) = self.deafest() else {
                break; // a single message may have any length
            };
            self.reset_deaf(deafest);
        }
        if let Some(connection) = self.open.get_mut(&to) {
            if connection.gathered.is_empty() {
                self.touched.push(to);
            }
            connection.unsent.add(length);
            connection.gather(message);
            self.counts.sent += 1;
            self.counts.sent_bytes += length as u64;
        }
    }

    /// Sends a message whose second part other messages share; another node gets it without a copy.
    pub(crate) fn send_shared(&mut self, to: NodeId, mut head: Vec<u8>, shared: Arc<Vec<u8>>) {
        if !to.is_client() && self.peers.own() != Some(to) {
            return self.peers.send(to, MessageParts::new(head, shared));
        }
        head.extend_from_slice(&shared);
        self.send(to, head);
    }

    /// The connection with queued bytes whose [burden](Unsent::burden) is the largest.
    fn deafest(&self) -> Option<NodeId> {
        let all = self.draining.iter().chain(&self.open);
        let waiting = all.filter(|(_, it)| it.unsent.bytes() > 0);
        let deafest = waiting.max_by_key(|(_, it)| it.unsent.burden());
        deafest.map(|(id, _)| *id)
    }

    fn reset_deaf(&mut self, id: NodeId) {
        let text = format_args!("{id} was disconnected: it does not read its replies");
        self.notices.say("deaf", text);
        self.counts.refused += 1;
        self.reset(id);
    }

    /// Adds the connections to a sheet.
    pub(crate) fn describe(&self, sheet: &mut StatusSheet) {
        let count = |count: usize| MetricValue::Gauge(count as f64);
        let without = self.unadmitted.len();
        for (kind, number) in [
            ("session", self.open.len() - without),
            ("no_session", without),
            ("closing", self.draining.len()),
        ] {
            let labels = vec![("state", kind.to_owned())];
            let about = "Connections of clients and other nodes to this server";
            sheet.metric("connections", about, labels, count(number));
        }
        let about = "Connections refused or closed because of a bound or of what they sent";
        sheet.counter("connections_refused_total", about, self.counts.refused);
        let queued = self.unsent.load(Ordering::Relaxed) as f64;
        let about = "Bytes queued for clients that have not read them";
        sheet.gauge("client_queue_bytes", about, queued);
        let counts = self.counts;
        sheet.counter(
            "messages_received_total",
            "Messages received",
            counts.received,
        );
        let about = "Bytes of messages received";
        sheet.counter(
            "messages_received_bytes_total",
            about,
            counts.received_bytes,
        );
        let about = "Messages sent to clients";
        sheet.counter("messages_sent_total", about, counts.sent);
        let about = "Bytes of messages sent to clients";
        sheet.counter("messages_sent_bytes_total", about, counts.sent_bytes);
        self.peers.metrics.counts().describe(sheet);
    }

    /// Hands gathered messages over to their writers.
    pub(crate) fn flush(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(connection) = self.open.get_mut(&id) {
                connection.hand_over();
            }
        }
    }
}

impl AcceptedConnection {
    /// Gathers a message; a long one is not copied.
    fn gather(&mut self, message: Vec<u8>) {
        if message.len() < CHUNK_LENGTH {
            wire::write(&mut self.gathered, &message);
        } else {
            wire::write_prefix(&mut self.gathered, message.len());
            self.hand_over();
            self.unsent.push(message, 0);
        }
        if self.gathered.len() >= CHUNK_LENGTH {
            self.hand_over();
        }
    }

    /// Writes the gathered messages, or hands them over to the writer.
    fn hand_over(&mut self) {
        let mut taken = 0;
        if self.gathered.is_empty() {
            return;
        }
        if !self.unsent.write_through(&self.gathered, &mut taken) {
            self.unsent.push(std::mem::take(&mut self.gathered), taken);
        } else if self.gathered.capacity() > KEPT_LENGTH_MAX {
            self.gathered = Vec::new();
        } else {
            self.gathered.clear();
        }
    }
}

/// Sends a last message, then reads until the peer closes: closing with unread bytes would make the kernel reset the connection
/// and drop the message.
async fn send_and_end(mut stream: TcpStream, message: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::new();
    wire::write(&mut bytes, message);
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    while stream.read(&mut [0; 256]).await? > 0 {}
    Ok(())
}

/// Accepts connections until the socket fails.
pub(crate) async fn listen(listener: TcpListener, accepted: mpsc::Sender<TcpStream>) {
    let mut notices = Notices::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if accepted.send(stream).await.is_err() {
                    return;
                }
            }
            // Out of file descriptors, or the peer is gone: neither ends the server.
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
