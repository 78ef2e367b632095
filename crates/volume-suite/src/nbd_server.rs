//! The NBD server: sockets, the requests of all clients, and their bounds.

use crate::nbd_connection::{self, ReplyQueue};
use crate::volume_calls::{NBD_REQUESTS_MAX, VolumeCalls};
use seatrial_machine::Ticket;
use seatrial_nbd::{
    ConnectionNumber, NbdExport, NbdOutput, NbdReply, NbdRequest, NbdRequests, NbdSession,
};
use seatrial_volume::{GuestReply, GuestRequest};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A TCP address; port 0 chooses a free one.
    Tcp(SocketAddr),
    /// A Unix socket, which only this user may open.
    Unix(PathBuf),
}

impl NbdAddress {
    /// Parses `ADDRESS:PORT` or `unix:PATH`.
    pub fn parse(text: &str) -> Option<NbdAddress> {
        match text.strip_prefix("unix:") {
            Some("") => None,
            Some(path) => Some(NbdAddress::Unix(path.into())),
            None => text.parse().ok().map(NbdAddress::Tcp),
        }
    }

    /// The text that [`NbdAddress::parse`] reads, in any working directory.
    pub(crate) fn option_text(&self) -> String {
        match self {
            NbdAddress::Tcp(address) => address.to_string(),
            NbdAddress::Unix(path) => {
                // Fails only without a working directory.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("unix:{}", path.display())
            }
        }
    }
}

/// The address as a URI for NBD's tools.
impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Tcp(address) => write!(f, "nbd://{address}"),
            NbdAddress::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
        }
    }
}

/// Bounds of an NBD server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdLimits {
    /// Bytes of payloads and replies in flight, of all connections; each connection may have half of it. A single request may
    /// exceed the half.
    pub bytes_max: usize,
    /// Number of connections; further ones are closed at once.
    pub connections_max: usize,
    /// Time limit of a handshake.
    pub handshake_patience: Duration,
}

impl Default for NbdLimits {
    fn default() -> NbdLimits {
        NbdLimits {
            bytes_max: 256 << 20,
            connections_max: 64,
            handshake_patience: Duration::from_secs(10),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
enum NbdListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that listens for NBD clients. A Unix socket's file is removed with it.
#[derive(Debug)]
pub struct NbdSocket {
    listener: NbdListener,
    address: NbdAddress,
}

impl NbdSocket {
    /// Listens. A socket file that a process left when it was killed is replaced. Needs a Tokio runtime.
    pub async fn bind(address: &NbdAddress) -> io::Result<NbdSocket> {
        match address {
            NbdAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let address = NbdAddress::Tcp(listener.local_addr()?);
                let listener = NbdListener::Tcp(listener);
                Ok(NbdSocket { listener, address })
            }
            NbdAddress::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                Ok(NbdSocket {
                    listener: NbdListener::Unix(listener),
                    address: address.clone(),
                })
            }
        }
    }

    /// Where it listens, with the port.
    pub const fn address(&self) -> &NbdAddress {
        &self.address
    }
}

impl Drop for NbdSocket {
    fn drop(&mut self) {
        if let NbdAddress::Unix(path) = &self.address {
            let _ = fs::remove_file(path); // another process may have removed it
        }
    }
}

/// Removes the file of a Unix socket on which no process listens.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Serves a volume and its snapshots to NBD clients. A clone is another handle of the same server.
///
/// Each connection has two tasks. One reads requests: it takes a place, and memory for the data, before it reads a payload, so a
/// client that sends too much waits in the socket. Requests go to the volume at once and replies come in any order; the other
/// task writes all that have gathered with one system call, then frees places and memory. So a client that does not read its
/// replies stops being served when it holds half of the memory, and costs nobody else more than that.
#[derive(Clone)]
pub struct NbdServer {
    pub(crate) shared: Arc<SharedServer>,
}

pub(crate) struct SharedServer {
    pub(crate) export: NbdExport,
    pub(crate) limits: NbdLimits,
    calls: VolumeCalls,
    clients: Mutex<AttachedClients>,
    /// One permit for each request that may be under way.
    pub(crate) places: Semaphore,
    /// One permit for each byte that may be in flight.
    pub(crate) memory: Semaphore,
}

/// What is changed by readers and by replies of the volume.
struct AttachedClients {
    requests: NbdRequests,
    connections: BTreeMap<ConnectionNumber, Arc<ReplyQueue>>,
    accepted: u64,
    /// Reused.
    outputs: Vec<NbdOutput>,
}

/// Accepts a client whose short replies are sent at once: the kernel would keep one back until the client has acknowledged
/// the one before, which takes 40 ms.
async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, from) = listener.accept().await?;
    let _ = stream.set_nodelay(true); // only a matter of latency
    Ok((stream, from))
}

impl NbdServer {
    /// A server of the volume behind `calls`, of which there is one.
    pub fn new(export: NbdExport, limits: NbdLimits, calls: VolumeCalls) -> NbdServer {
        let clients = AttachedClients {
            requests: NbdRequests::new(export.block_length),
            connections: BTreeMap::new(),
            accepted: 0,
            outputs: Vec::new(),
        };
        let shared = Arc::new(SharedServer {
            export,
            limits,
            calls,
            clients: Mutex::new(clients),
            places: Semaphore::new(NBD_REQUESTS_MAX),
            memory: Semaphore::new(limits.bytes_max),
        });
        // Weak: the calls are held by the server.
        let replies = Arc::downgrade(&shared);
        shared.calls.set_nbd(Box::new(move |ticket, reply| {
            if let Some(shared) = replies.upgrade() {
                shared.on_reply(ticket, reply);
            }
        }));
        NbdServer { shared }
    }

    /// Accepts clients for ever.
    pub async fn run(&self, socket: NbdSocket) {
        loop {
            let accepted = match &socket.listener {
                NbdListener::Tcp(listener) => accept_tcp(listener).await.map(|(stream, from)| {
                    let (reading, writing) = stream.into_split();
                    self.accept(from.to_string(), reading, writing);
                }),
                NbdListener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                    let (reading, writing) = stream.into_split();
                    self.accept("a local client".to_owned(), reading, writing);
                }),
            };
            if let Err(error) = accepted {
                // Out of file descriptors, or the client is gone: neither ends the server.
                tracing::warn!("an NBD client could not be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    fn accept<R, W>(&self, from: String, reading: R, writing: W)
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let most = shared.limits.connections_max;
        let queue = Arc::new(ReplyQueue::new(shared.limits.bytes_max / 2));
        let Some(number) = shared.enter(&queue) else {
            tracing::warn!("{from} was refused: {most} NBD clients are attached");
            return;
        };
        tokio::spawn(async move {
            let ended = nbd_connection::run(&shared, number, &queue, reading, writing).await;
            shared.leave(number);
            match ended {
                Ok(()) => tracing::debug!("NBD client {from} has detached"),
                Err(error) => tracing::warn!("NBD client {from} was disconnected: {error}"),
            }
        });
    }
}

impl SharedServer {
    /// The volume, and the snapshots that there are now.
    pub(crate) async fn exports(&self) -> Vec<NbdExport> {
        let mut exports = vec![self.export.clone()];
        if let Some(GuestReply::Status(status)) = self.calls.call(GuestRequest::Status).await {
            let snapshots = status.snapshots.iter();
            exports.extend(snapshots.map(|name| self.export.of_snapshot(name)));
        }
        exports
    }

    fn lock(&self) -> MutexGuard<'_, AttachedClients> {
        // A panic under the lock is a bug that ends the machine's thread too.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, if there is a place.
    fn enter(&self, queue: &Arc<ReplyQueue>) -> Option<ConnectionNumber> {
        let mut clients = self.lock();
        if clients.connections.len() >= self.limits.connections_max {
            return None;
        }
        clients.accepted += 1;
        let number = clients.accepted;
        clients.connections.insert(number, Arc::clone(queue));
        Some(number)
    }

    /// Removes a connection; frees what its unwritten replies hold. Replies that come later are dropped.
    fn leave(&self, number: ConnectionNumber) {
        let queue = self.lock().connections.remove(&number);
        let (places, memory) = queue.map_or((0, 0), |queue| queue.close());
        self.free(places, memory);
    }

    /// Frees places and memory of requests whose replies are written or dropped.
    pub(crate) fn free(&self, places: usize, memory: usize) {
        self.places.add_permits(places);
        self.memory.add_permits(memory);
    }

    /// Begins a request, whose place and memory are taken.
    pub(crate) fn begin(
        &self,
        connection: ConnectionNumber,
        session: &NbdSession,
        request: NbdRequest,
    ) {
        let mut clients = self.lock();
        let clients = &mut *clients;
        let outputs = &mut clients.outputs;
        clients
            .requests
            .begin(connection, session, request, outputs);
        self.carry_out(clients);
    }

    fn on_reply(&self, ticket: Ticket, reply: GuestReply) {
        let mut clients = self.lock();
        let clients = &mut *clients;
        clients
            .requests
            .on_reply(ticket, reply, &mut clients.outputs);
        self.carry_out(clients);
    }

    fn carry_out(&self, clients: &mut AttachedClients) {
        for output in clients.outputs.drain(..) {
            match output {
                NbdOutput::Guest(ticket, request) => self.calls.send(ticket, request),
                NbdOutput::Reply(connection, reply) => {
                    let memory = reply.memory.min(self.limits.bytes_max / 2);
                    let reply = NbdReply { memory, ..reply };
                    let queue = clients.connections.get(&connection);
                    if !queue.is_some_and(|queue| queue.push(reply)) {
                        self.free(1, memory);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_replies_are_not_delayed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        assert!(!client.nodelay().unwrap(), "it is not the default");
        let (accepted, _) = accept_tcp(&listener).await.unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
