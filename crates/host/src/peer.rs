//! Other nodes of a system: their addresses, the messages queued for them, and counts of lost messages.
//!
//! A node dials every other node and sends over the connection that it has dialled; messages from the other node arrive over the
//! connection that the other has dialled. So a message is addressed to a [`NodeId`], and the order in which nodes start does not
//! matter.
//!
//! A guest ([`Cluster::GUEST`]) uses the nodes of a system and is none of them: it has no address, so the nodes send their
//! replies over the connection that it has dialled. To the nodes it is a client.

use crate::connection::{ConnectOptions, ConnectionEvent, DialledConnection};
use crate::key::nonce;
use crate::net::NetworkInput;
use crate::notice::Notices;
use crate::unwritten_messages::MessageParts;
use seatrial_machine::{MetricValue, NodeId, StatusSheet, thousands};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::AbortHandle;

/// The system that a node belongs to, and the addresses of its other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Number of the system: nodes of another one are refused.
    pub id: u64,
    /// This node, or [`Cluster::GUEST`].
    pub node: NodeId,
    /// The other nodes. [`Output::Address`](seatrial_machine::Output::Address) changes them later.
    pub addresses: BTreeMap<NodeId, SocketAddr>,
}

impl Cluster {
    /// The number of a server that uses the nodes and is none of them.
    pub const GUEST: NodeId = NodeId::server(0);
}

/// Bounds of connections to other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Bytes queued for one node; a single message of any length may exceed it. Further messages are dropped. At a guest also
    /// bytes received from the node that the machine has not processed; then nothing is read.
    pub queue_bytes_max: usize,
    /// A message queued for longer is dropped: its sender has sent a newer one or timed out.
    pub message_age_max: Duration,
    /// First pause after a failed connection; doubled with each failure …
    pub retry_min: Duration,
    /// … up to this.
    pub retry_max: Duration,
    /// Time limit of opening a connection.
    pub connect_timeout: Duration,
    /// A connection on which no write succeeds for this long is closed.
    pub write_patience: Duration,
    /// A node ends when another one has refused it for this long, because a process with its number is connected there and
    /// answers. That process has a fifth of this for an answer.
    pub twin_patience: Duration,
}

impl Default for PeerLimits {
    fn default() -> PeerLimits {
        PeerLimits {
            queue_bytes_max: 16 << 20,
            message_age_max: Duration::from_secs(5),
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(2),
            write_patience: Duration::from_secs(10),
            twin_patience: Duration::from_secs(10),
        }
    }
}

/// A server's membership in a system. The default has none: the server has only clients.
#[derive(Clone, Debug, Default)]
pub struct PeerOptions {
    /// The system; `None` for a single server.
    pub cluster: Option<Cluster>,
    /// Bounds.
    pub limits: PeerLimits,
    /// Where the server counts messages.
    pub metrics: HostMetrics,
}

/// Counts of a server's messages. A clone is another handle of the same counts.
#[derive(Clone, Debug, Default)]
pub struct HostMetrics(Arc<Mutex<HostCounts>>);

/// The counts of [`HostMetrics`], since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Other nodes.
    pub peers: BTreeMap<NodeId, PeerCounts>,
    /// Messages dropped because their node has no address.
    pub unknown_node: u64,
    /// Messages dropped because their client's connection had ended.
    pub gone_client: u64,
    /// Messages of the node to itself, dropped because its inbox was full.
    pub own_dropped: u64,
}

/// Counts of the messages for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Is there a connection?
    pub is_connected: bool,
    /// Connections opened.
    pub connections: u64,
    /// Bytes queued now.
    pub queued_bytes: usize,
    /// Messages handed to a connection; the last of them are lost when it breaks.
    pub sent: u64,
    /// Messages dropped because the queue was full.
    pub dropped_full: u64,
    /// Messages dropped because they had waited too long.
    pub dropped_old: u64,
    /// Messages dropped because they are longer than the protocol permits: the other node would end the connection.
    pub dropped_long: u64,
    /// Messages that a connection had taken and not written when it broke.
    pub dropped_unwritten: u64,
    /// Messages received from the node.
    pub received: u64,
    /// Why the last connection could not be opened, or ended.
    pub last_error: Option<String>,
}

impl HostMetrics {
    fn lock(&self) -> MutexGuard<'_, HostCounts> {
        // The counts are consistent after every statement, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present counts.
    pub fn counts(&self) -> HostCounts {
        self.lock().clone()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut HostCounts)) {
        change(&mut self.lock());
    }

    pub(crate) fn count_peer(&self, node: NodeId, change: impl FnOnce(&mut PeerCounts)) {
        change(self.lock().peers.entry(node).or_default());
    }
}

/// Columns of the table of other nodes.
const COLUMNS: &[&str] = &[
    "node",
    "connection",
    "sent",
    "received",
    "dropped",
    "bytes queued",
    "last error",
];

impl PeerCounts {
    /// Messages dropped for any reason.
    const fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_old + self.dropped_long + self.dropped_unwritten
    }

    const fn state(&self) -> &'static str {
        if self.is_connected {
            "connected"
        } else {
            "unreachable"
        }
    }

    /// The row of a node in the table of [`COLUMNS`].
    fn row(&self, node: NodeId) -> Vec<String> {
        let mut row = vec![node.to_string(), self.state().to_owned()];
        let queued = self.queued_bytes as u64;
        let numbers = [self.sent, self.received, self.dropped(), queued];
        row.extend(numbers.map(thousands));
        row.push(self.last_error.clone().unwrap_or_default());
        debug_assert_eq!(row.len(), COLUMNS.len());
        row
    }
}

impl HostCounts {
    /// Adds the counts to a sheet.
    pub(crate) fn describe(&self, sheet: &mut StatusSheet) {
        self.describe_drops(sheet);
        for (node, it) in &self.peers {
            let mut add = |name, about, value| {
                sheet.metric(name, about, vec![("peer", node.to_string())], value);
            };
            let is_connected = MetricValue::Gauge(f64::from(u8::from(it.is_connected)));
            let about = "1 if this node is connected to the other one";
            add("peer_connected", about, is_connected);
            let sent = MetricValue::Counter(it.sent as f64);
            let about = "Messages handed to the connection to the other node";
            add("peer_messages_sent_total", about, sent);
            let received = MetricValue::Counter(it.received as f64);
            let about = "Messages received from the other node";
            add("peer_messages_received_total", about, received);
            let queued = MetricValue::Gauge(it.queued_bytes as f64);
            add(
                "peer_queue_bytes",
                "Bytes queued for the other node",
                queued,
            );
        }
        if !self.peers.is_empty() {
            let rows = self.peers.iter().map(|(node, it)| it.row(*node)).collect();
            sheet.table("Connections to other nodes", COLUMNS, rows);
        }
    }

    fn describe_drops(&self, sheet: &mut StatusSheet) {
        let about = "Messages dropped, by the reason";
        let mut add = |reason: &str, node: Option<NodeId>, count: u64| {
            let mut labels = vec![("reason", reason.to_owned())];
            labels.extend(node.map(|node| ("peer", node.to_string())));
            let value = MetricValue::Counter(count as f64);
            sheet.metric("messages_dropped_total", about, labels, value);
        };
        add("unknown node", None, self.unknown_node);
        add("client gone", None, self.gone_client);
        add("own inbox full", None, self.own_dropped);
        for (&node, it) in &self.peers {
            add("queue full", Some(node), it.dropped_full);
            add("too old", Some(node), it.dropped_old);
            add("too long", Some(node), it.dropped_long);
            add("connection broken", Some(node), it.dropped_unwritten);
        }
    }
}

impl fmt::Display for HostCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, it) in &self.peers {
            let (state, dropped) = (it.state(), it.dropped());
            let (sent, received, queued) = (it.sent, it.received, it.queued_bytes);
            writeln!(
                f,
                "{node} {state}: {sent} sent, {received} received, {dropped} dropped, {queued} bytes wait"
            )?;
        }
        let (unknown, gone) = (self.unknown_node, self.gone_client);
        write!(
            f,
            "{unknown} for unknown nodes, {gone} for clients that were gone"
        )
    }
}

/// First bytes of a greeting.
const MAGIC: &[u8; 8] = b"seatpeer";
const VERSION: u8 = 1;
/// Length of a greeting, in bytes.
const GREETING_LENGTH: usize = 32;

/// First message of a dialled connection, the reply to it, and the probe of a connection that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Greeting {
    kind: GreetingKind,
    from: NodeId,
    to: NodeId,
    /// In a greeting, a random number of the process; 0: not known.
    process: u32,
    cluster: u64,
}

/// The kinds of greetings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GreetingKind {
    /// The first message of a dialled connection.
    Greeting = 0,
    /// The reply: the greeting node is accepted.
    Answer = 1,
    /// The reply: another process with the number of the greeting node is connected.
    Refusal = 2,
    /// To a connected node: does its process live?
    Probe = 3,
    /// The reply to a probe.
    Alive = 4,
}

impl GreetingKind {
    const ALL: [GreetingKind; 5] = [
        GreetingKind::Greeting,
        GreetingKind::Answer,
        GreetingKind::Refusal,
        GreetingKind::Probe,
        GreetingKind::Alive,
    ];
}

impl Greeting {
    fn encode(self) -> [u8; GREETING_LENGTH] {
        let mut bytes = [0; GREETING_LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.from.number().to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to.number().to_le_bytes());
        bytes[20..24].copy_from_slice(&self.process.to_le_bytes());
        bytes[24..].copy_from_slice(&self.cluster.to_le_bytes());
        bytes
    }

    /// `None`: not a greeting of this version.
    fn decode(bytes: &[u8]) -> Option<Greeting> {
        let bytes: &[u8; GREETING_LENGTH] = bytes.try_into().ok()?;
        let node = |at: usize| {
            let number = u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?);
            (number < 1 << 31).then(|| NodeId::server(number))
        };
        let is_known = bytes.starts_with(MAGIC) && bytes[8] == VERSION;
        let is_zero = bytes[10..12] == [0; 2];
        (is_known && is_zero).then_some(Greeting {
            kind: *GreetingKind::ALL.get(usize::from(bytes[9]))?,
            from: node(12)?,
            to: node(16)?,
            process: u32::from_le_bytes(bytes[20..24].try_into().ok()?),
            cluster: u64::from_le_bytes(bytes[24..].try_into().ok()?),
        })
    }
}

/// Does this message begin like a greeting?
pub(crate) fn is_greeting(message: &[u8]) -> bool {
    message.starts_with(MAGIC)
}

/// The number of the process in a greeting; 0: not known.
pub(crate) fn process_of(message: &[u8]) -> u32 {
    Greeting::decode(message).map_or(0, |greeting| greeting.process)
}

/// Is this message the reply to a probe?
pub(crate) fn is_alive(message: &[u8]) -> bool {
    is_greeting(message)
        && Greeting::decode(message).is_some_and(|it| it.kind == GreetingKind::Alive)
}

/// The other nodes: one [`Outbox`] and one task for each.
pub(crate) struct Peers {
    cluster: Option<Cluster>,
    /// A random number of this process; 0: there is none.
    process: u32,
    limits: PeerLimits,
    connect: ConnectOptions,
    notices: Notices,
    pub(crate) metrics: HostMetrics,
    outboxes: BTreeMap<NodeId, Outgoing>,
    /// Where a guest's replies arrive. Weak: the inbox ends with the server, not with the diallers.
    inbox: mpsc::WeakSender<NetworkInput>,
}

struct Outgoing {
    address: SocketAddr,
    outbox: Arc<Outbox>,
    task: AbortHandle,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peers {
    /// Starts to dial all nodes. `connect` has the protocol and the key.
    pub(crate) fn new(
        options: &PeerOptions,
        mut connect: ConnectOptions,
        inbox: &mpsc::Sender<NetworkInput>,
    ) -> Peers {
        connect.timeout = options.limits.connect_timeout;
        let addresses = options.cluster.iter().flat_map(|it| it.addresses.clone());
        let addresses: Vec<(NodeId, SocketAddr)> = addresses.collect();
        let mut peers = Peers {
            cluster: options.cluster.clone(),
            process: nonce().map_or(0, |nonce| {
                u32::from_le_bytes([nonce[0], nonce[1], nonce[2], nonce[3]])
            }),
            limits: options.limits,
            connect,
            notices: Notices::default(),
            metrics: options.metrics.clone(),
            outboxes: BTreeMap::new(),
            inbox: inbox.downgrade(),
        };
        for (node, address) in addresses {
            peers.set_address(node, Some(address));
        }
        peers
    }

    /// Is this server a node of a system?
    pub(crate) const fn are_there(&self) -> bool {
        self.cluster.is_some()
    }

    /// This node.
    pub(crate) fn own(&self) -> Option<NodeId> {
        self.cluster.as_ref().map(|it| it.node)
    }

    /// Sets the address of a node; `None`: it does not belong to the system any more.
    pub(crate) fn set_address(&mut self, node: NodeId, address: Option<SocketAddr>) {
        let Some(cluster) = self.cluster.as_ref().filter(|it| it.node != node) else {
            return;
        };
        if self.outboxes.get(&node).map(|it| it.address) == address {
            return;
        }
        self.outboxes.remove(&node);
        let Some(address) = address else {
            return;
        };
        let is_guest = cluster.node == Cluster::GUEST;
        let greeting = Greeting {
            kind: GreetingKind::Greeting,
            from: cluster.node,
            to: node,
            // Any number of processes may be guests.
            process: if is_guest { 0 } else { self.process },
            cluster: cluster.id,
        };
        let outbox = Arc::new(Outbox {
            node,
            limits: self.limits,
            metrics: self.metrics.clone(),
            queue: Mutex::default(),
            changed: Notify::new(),
        });
        self.metrics.count_peer(node, |_| {}); // so that its counts are shown before the first message
        let answers = is_guest.then(|| GuestReceiver {
            node,
            inbox: self.inbox.clone(),
            memory: Arc::new(Semaphore::new(self.limits.answer_bytes() as usize)),
            bytes_max: self.limits.answer_bytes(),
            metrics: self.metrics.clone(),
        });
        let dialler = Dialler {
            greeting,
            answers,
            address,
            connect: ConnectOptions {
                node: Some(node),
                ..self.connect.clone()
            },
            outbox: Arc::clone(&outbox),
            reported: None,
            inbox: self.inbox.clone(),
            refused: None,
        };
        let task = tokio::spawn(dialler.run()).abort_handle();
        let outgoing = Outgoing {
            address,
            outbox,
            task,
        };
        self.outboxes.insert(node, outgoing);
    }

    /// Queues a message for a node; drops and counts it if it is too long, the node is unknown or its queue is full.
    pub(crate) fn send(&mut self, to: NodeId, message: MessageParts) {
        let (length, most) = (message.len(), self.connect.message_length_max);
        if length > most && self.outboxes.contains_key(&to) {
            self.metrics.count_peer(to, |it| it.dropped_long += 1);
            let text = "dropped a message for";
            let text = format_args!("{text} {to} of {length} bytes: the maximum is {most}");
            return self.notices.say("too long", text);
        }
        if let Some(outgoing) = self.outboxes.get(&to) {
            outgoing.outbox.push(message);
            return;
        }
        self.metrics.count(|it| it.unknown_node += 1);
        let text = format_args!("dropped a message for the unknown node {to}");
        self.notices.say("unknown node", text);
    }

    /// The sender of a greeting (`None`: a guest) and the reply to it; an error says why it is refused.
    pub(crate) fn greeted(&self, message: &[u8]) -> Result<(Option<NodeId>, Vec<u8>), String> {
        let cluster = self.cluster.as_ref().ok_or("this node has no peers")?;
        let greeting = Greeting::decode(message).filter(|it| it.kind == GreetingKind::Greeting);
        let greeting = greeting.ok_or("its greeting is invalid")?;
        let Greeting { from, to, .. } = greeting;
        if greeting.cluster != cluster.id {
            let (theirs, ours) = (greeting.cluster, cluster.id);
            return Err(format!(
                "{from} belongs to system {theirs}, this is system {ours}"
            ));
        }
        if to != cluster.node {
            return Err(format!("{from} greets {to}, this node is {}", cluster.node));
        }
        let is_guest = from == Cluster::GUEST;
        if !is_guest && !self.outboxes.contains_key(&from) {
            return Err(format!("{from} is not a node of this system"));
        }
        let answer = Greeting {
            kind: GreetingKind::Answer,
            from: cluster.node,
            to: from,
            process: 0,
            cluster: cluster.id,
        };
        Ok(((!is_guest).then_some(from), answer.encode().to_vec()))
    }

    /// Time that a connected process has to answer a probe.
    pub(crate) fn probe_patience(&self) -> Duration {
        self.limits.twin_patience / 5
    }

    /// The probe of a connection of `node`, and the refusal of another one.
    pub(crate) fn probe_and_refusal(&self, node: NodeId) -> Option<[Vec<u8>; 2]> {
        let cluster = self.cluster.as_ref()?;
        let message = |kind| Greeting {
            kind,
            from: cluster.node,
            to: node,
            process: 0,
            cluster: cluster.id,
        };
        let kinds = [GreetingKind::Probe, GreetingKind::Refusal];
        Some(kinds.map(|kind| message(kind).encode().to_vec()))
    }
}

/// The queue of messages for one node. The server pushes, the node's [`Dialler`] takes.
struct Outbox {
    node: NodeId,
    limits: PeerLimits,
    metrics: HostMetrics,
    queue: Mutex<PeerQueue>,
    /// Notified when a message was pushed.
    changed: Notify,
}

#[derive(Default)]
struct PeerQueue {
    messages: VecDeque<(Instant, MessageParts)>,
    bytes: usize,
}

/// Maximum number of bytes that a connection takes at a time.
const BATCH_LENGTH: usize = 256 << 10;

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, PeerQueue> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: MessageParts) {
        let mut queue = self.lock();
        let is_full = queue.bytes > 0 && queue.bytes + message.len() > self.limits.queue_bytes_max;
        if !is_full {
            queue.bytes += message.len();
            queue.messages.push_back((Instant::now(), message));
        }
        let queued = queue.bytes;
        drop(queue);
        self.metrics.count_peer(self.node, |it| {
            it.queued_bytes = queued;
            it.dropped_full += u64::from(is_full);
        });
        self.changed.notify_one();
    }

    /// Moves queued messages to a connection that has written everything before, some hundred kilobytes at most. Returns their
    /// number. Messages that are too old are dropped.
    fn take(&self, connection: &mut DialledConnection) -> u64 {
        let (mut sent, mut old) = (0, 0);
        let mut queue = self.lock();
        while connection.unwritten() < BATCH_LENGTH
            && let Some((put_in, message)) = queue.messages.pop_front()
        {
            queue.bytes -= message.len();
            if put_in.elapsed() > self.limits.message_age_max {
                old += 1;
            } else {
                connection.push_owned(message);
                sent += 1;
            }
        }
        let queued = queue.bytes;
        drop(queue);
        self.metrics.count_peer(self.node, |it| {
            it.queued_bytes = queued;
            it.sent += sent;
            it.dropped_old += old;
        });
        sent
    }
}

impl PeerLimits {
    /// Bytes of a node's replies that a guest holds.
    fn answer_bytes(&self) -> u32 {
        let most = self.queue_bytes_max.min(Semaphore::MAX_PERMITS);
        u32::try_from(most).unwrap_or(u32::MAX).max(1)
    }
}

/// Passes the messages of one node to a guest's machine.
struct GuestReceiver {
    node: NodeId,
    inbox: mpsc::WeakSender<NetworkInput>,
    /// One permit for each byte that may be held.
    memory: Arc<Semaphore>,
    bytes_max: u32,
    metrics: HostMetrics,
}

impl GuestReceiver {
    /// Passes on one message, after waiting for memory; a single message of any length gets it.
    async fn pass(&self, message: Vec<u8>) {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let permits = length.min(self.bytes_max);
        let held = Arc::clone(&self.memory).acquire_many_owned(permits).await;
        if let (Ok(held), Some(inbox)) = (held, self.inbox.upgrade()) {
            self.metrics.count_peer(self.node, |it| it.received += 1);
            let answer = NetworkInput::Answer(self.node, message, held);
            let _ = inbox.send(answer).await; // the server has ended
        }
    }
}

/// Keeps a connection to one node: dials, greets, writes queued messages, and dials again after a pause when the connection
/// breaks.
struct Dialler {
    greeting: Greeting,
    /// Takes the node's messages, if this server is a guest.
    answers: Option<GuestReceiver>,
    address: SocketAddr,
    connect: ConnectOptions,
    outbox: Arc<Outbox>,
    /// The last report: a node that stays unreachable is reported once.
    reported: Option<String>,
    /// Where the server learns that another process has its number. Weak, as above.
    inbox: mpsc::WeakSender<NetworkInput>,
    /// Since when this process is refused because of another one with the same number.
    refused: Option<Instant>,
}

/// The kind of the error that another process with the number of this node is connected. Connecting never fails with it.
const TWIN: io::ErrorKind = io::ErrorKind::AlreadyExists;

impl Dialler {
    async fn run(mut self) {
        let (node, limits) = (self.outbox.node, self.outbox.limits);
        let metrics = self.outbox.metrics.clone();
        let mut pause = limits.retry_min;
        loop {
            let error = match self.open().await {
                Ok(connection) => {
                    pause = limits.retry_min;
                    if self.reported.take().is_some() {
                        tracing::info!("{node} at {} is connected", self.address);
                    }
                    metrics.count_peer(node, |it| {
                        it.is_connected = true;
                        it.connections += 1;
                        it.last_error = None;
                    });
                    self.write_all(connection).await
                }
                Err(error) => error,
            };
            self.note_twin(error.kind() == TWIN).await;
            let text = error.to_string();
            self.say(&text);
            metrics.count_peer(node, |it| {
                it.is_connected = false;
                it.last_error = Some(text);
            });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits.retry_max);
        }
    }

    /// Ends the server when it was refused for long because of another process with its number.
    async fn note_twin(&mut self, is_twin: bool) {
        if !is_twin {
            self.refused = None;
            return;
        }
        let since = *self.refused.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.outbox.limits.twin_patience
            && let Some(inbox) = self.inbox.upgrade()
        {
            let Greeting { from, to, .. } = self.greeting;
            let text = format!(
                "another process runs as {from} and is connected to {to} at {}: stop one of them, or give it a number of its own",
                self.address
            );
            let _ = inbox.send(NetworkInput::Twin(text)).await; // the server has ended
        }
    }

    /// Reports why there is no connection, unless that was the last report.
    fn say(&mut self, reason: &str) {
        if self.reported.as_deref() != Some(reason) {
            let (node, address) = (self.outbox.node, self.address);
            tracing::warn!("{node} at {address} is not connected: {reason}");
            self.reported = Some(reason.to_owned());
        }
    }

    /// Connects and greets. The other node replies before anything else is sent, so messages never reach the wrong node.
    async fn open(&self) -> io::Result<DialledConnection> {
        let mut connection = DialledConnection::open(self.address, &self.connect).await?;
        connection.push(&self.greeting.encode());
        let patience = Some(self.outbox.limits.connect_timeout);
        let answer = match connection.next_event(patience).await {
            ConnectionEvent::Message(answer) => answer,
            ConnectionEvent::Wake => return Err(io::ErrorKind::TimedOut.into()),
            ConnectionEvent::Lost => {
                let text = "it does not accept this node as a member of its system";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
            }
        };
        let reply = |kind| Greeting {
            kind,
            ..self.reply()
        };
        match Greeting::decode(&answer) {
            Some(answer) if answer == reply(GreetingKind::Answer) => Ok(connection),
            Some(answer) if answer == reply(GreetingKind::Refusal) => {
                let text = format!(
                    "a process that runs as {} is connected there",
                    self.greeting.from
                );
                Err(io::Error::new(TWIN, text))
            }
            _ => Err(io::Error::other("another node listens on this address")),
        }
    }

    /// What the other node replies to the greeting of this one.
    const fn reply(&self) -> Greeting {
        Greeting {
            kind: GreetingKind::Answer,
            from: self.greeting.to,
            to: self.greeting.from,
            process: 0,
            cluster: self.greeting.cluster,
        }
    }

    /// The reply to a message on a connection that only this node sends on, if it is a probe.
    fn alive(&self, message: &[u8]) -> Option<[u8; GREETING_LENGTH]> {
        let kind = GreetingKind::Probe;
        let is_probe = Greeting::decode(message)
            == Some(Greeting {
                kind,
                ..self.reply()
            });
        let kind = GreetingKind::Alive;
        is_probe.then(|| {
            Greeting {
                kind,
                ..self.greeting
            }
            .encode()
        })
    }

    /// Writes queued messages until the connection breaks; returns the reason.
    async fn write_all(&self, mut connection: DialledConnection) -> io::Error {
        let patience = self.outbox.limits.write_patience;
        // Messages that the connection has taken and not written to the last byte.
        let mut taken = 0;
        let mut progress = Instant::now();
        loop {
            if connection.unwritten() == 0 {
                taken = self.outbox.take(&mut connection);
                progress = Instant::now();
            }
            let broken = tokio::select! {
                event = connection.step(Some(patience)) => match event {
                    None => {
                        progress = Instant::now();
                        None
                    }
                    Some(ConnectionEvent::Wake) => None,
                    Some(ConnectionEvent::Lost) => Some("the connection has ended"),
                    Some(ConnectionEvent::Message(message))
                        if let Some(answers) = &self.answers =>
                    {
                        // The machine takes messages in bounded time, also while this connection does not write.
                        answers.pass(message).await;
                        None
                    }
                    Some(ConnectionEvent::Message(message)) => match self.alive(&message) {
                        Some(alive) => {
                            connection.push(&alive);
                            None
                        }
                        None => Some("it sent a message on a connection that only this node sends on"),
                    },
                },
                () = self.outbox.changed.notified() => None,
            };
            let is_stuck = connection.unwritten() > 0 && progress.elapsed() >= patience;
            let stuck = is_stuck.then_some("it does not read");
            if let Some(reason) = broken.or(stuck) {
                let (node, metrics) = (self.outbox.node, &self.outbox.metrics);
                metrics.count_peer(node, |it| it.dropped_unwritten += taken);
                return io::Error::other(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_read_as_they_were_written_and_nothing_else_is_one() {
        let greeting = Greeting {
            kind: GreetingKind::Answer,
            from: NodeId::server(3),
            to: NodeId::server(1),
            process: 0x89ab_cdef,
            cluster: 0x0123_4567_89ab_cdef,
        };
        let bytes = greeting.encode();
        assert!(is_greeting(&bytes));
        assert_eq!(Greeting::decode(&bytes), Some(greeting));
        assert_eq!(Greeting::decode(&bytes[..31]), None);
        for (place, value) in [(0, b'S'), (8, 2), (9, 5), (10, 1), (15, 0x80)] {
            let mut other = bytes;
            other[place] = value;
            assert_eq!(Greeting::decode(&other), None, "byte {place}");
        }
    }
}
