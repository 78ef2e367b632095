//! A client's machine over a connection that is reopened when it is lost.

use crate::connection::{ConnectOptions, ConnectionEvent, DialledConnection};
use crate::unwritten_messages::MessageParts;
use seatrial_machine::{ClientDriver, Input, NodeId, Output, Peer, Ticket, Time};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Options of a link.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The server's endpoint.
    pub server: NodeId,
    /// Options of the connection.
    pub connect: ConnectOptions,
    /// Interval between attempts to reopen a lost connection; `None`: it is not reopened.
    pub reconnect_interval: Option<Duration>,
}

/// One machine and a reconnecting connection, for a caller with many requests under way. It has no task and no lock: the caller
/// that awaits [`PeerLink::next`] does the work. Replies are queued here until they are taken, at most one per request.
///
/// Its downside: while no caller awaits, nothing is read.
pub struct PeerLink<M: Peer> {
    machine: M,
    address: SocketAddr,
    options: LinkOptions,
    connection: Option<DialledConnection>,
    began: Instant,
    tickets: u64,
    out: Vec<Output<M::Reply>>,
    replies: VecDeque<(Ticket, M::Reply)>,
}

impl<M: Peer> PeerLink<M> {
    /// Connects `machine` to a server. The first attempt must succeed.
    pub async fn connect(
        address: SocketAddr,
        machine: M,
        options: LinkOptions,
    ) -> io::Result<PeerLink<M>> {
        let mut link = PeerLink {
            machine,
            address,
            options,
            connection: None,
            began: Instant::now(),
            tickets: 0,
            out: Vec::new(),
            replies: VecDeque::new(),
        };
        let opening = link.open();
        link.connection = Some(opening.await?);
        Ok(link)
    }

    /// Is the connection open, according to its last read or write?
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Submits a request; its reply carries the returned ticket.
    pub fn submit(&mut self, request: M::Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.turn(Input::Request(ticket, request));
        ticket
    }

    /// The next reply; `None` when the connection is lost for good and the machine has no reply left. Cancel safe.
    pub async fn next(&mut self) -> Option<(Ticket, M::Reply)> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Some(reply);
            }
            if self.connection.is_none() && !self.reconnect().await {
                return self.replies.pop_front();
            }
            match self.next_event().await {
                ConnectionEvent::Message(bytes) => {
                    let from = self.options.server;
                    self.turn(Input::Message { from, bytes });
                }
                ConnectionEvent::Wake => self.turn(Input::Wake),
                ConnectionEvent::Lost => {
                    self.connection = None;
                    self.machine.connection_closed(&mut self.out);
                    self.gather();
                }
            }
        }
    }

    /// Writes all queued messages.
    pub async fn flush(&mut self) -> io::Result<()> {
        if let Some(connection) = &mut self.connection {
            connection.flush().await?;
        }
        Ok(())
    }

    /// Opens a connection. The future borrows nothing of the machine, so a link can be moved to another thread while it waits.
    fn open(&self) -> impl Future<Output = io::Result<DialledConnection>> + use<M> {
        let (address, options) = (self.address, self.options.connect.clone());
        async move { DialledConnection::open(address, &options).await }
    }

    /// Tries to reconnect until it succeeds, or the machine has a reply meanwhile. False: reconnecting is disabled, and the
    /// machine waits for nothing.
    async fn reconnect(&mut self) -> bool {
        let Some(interval) = self.options.reconnect_interval else {
            return self.wait_without_connection().await;
        };
        let opening = self.open();
        if let Ok(connection) = opening.await {
            self.connection = Some(connection);
            let now = self.now();
            self.machine.connection_opened(now, &mut self.out);
            self.gather();
            return true;
        }
        tokio::time::sleep(interval).await;
        self.turn(Input::Wake);
        true
    }

    async fn wait_without_connection(&mut self) -> bool {
        let Some(wake) = self.machine.wake_at() else {
            return false;
        };
        tokio::time::sleep(wake.since(self.now())).await;
        self.turn(Input::Wake);
        true
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn turn(&mut self, input: Input<M::Request>) {
        let now = self.now();
        self.machine.turn(now, input, &mut self.out);
        self.machine.check_invariants();
        self.gather();
    }

    /// Carries out the outputs of a turn. Jobs run at once, on the caller's thread.
    fn gather(&mut self) {
        let mut computed = Vec::new();
        for output in self.out.drain(..) {
            match output {
                Output::Send { message, .. } => {
                    // Without a connection the message is lost; the machine sends it again.
                    if let Some(connection) = &mut self.connection {
                        connection.push_owned(message.into());
                    }
                }
                Output::SendShared { head, shared, .. } => {
                    if let Some(connection) = &mut self.connection {
                        connection.push_owned(MessageParts::new(head, shared));
                    }
                }
                Output::Reply(ticket, reply) => self.replies.push_back((ticket, reply)),
                Output::Compute(job, ticket) => computed.push((ticket, job.run())),
                // Only servers bound their connections.
                Output::Admit(_) | Output::Close(_) | Output::Address { .. } => {}
                Output::Append { log, .. }
                | Output::Write { log, .. }
                | Output::TruncateHead { log, .. } => {
                    panic!("a client has no log, its machine appends to {log}")
                }
                Output::File(task, _) => {
                    panic!("a client has no files, its machine uses {}", task.file())
                }
                Output::Stop(reason) => panic!("a client's machine stops: {reason}"),
            }
        }
        for (ticket, result) in computed {
            self.turn(Input::Computed(ticket, result));
        }
    }

    /// Waits for a message or for the machine's next wake-up, and writes meanwhile.
    async fn next_event(&mut self) -> ConnectionEvent {
        let patience = self.machine.wake_at().map(|wake| wake.since(self.now()));
        match &mut self.connection {
            Some(connection) => connection.next_event(patience).await,
            None => ConnectionEvent::Wake,
        }
    }
}

/// A [`PeerLink`] for blocking callers: it owns a runtime on the caller's thread.
pub struct BlockingLink<M: Peer> {
    runtime: tokio::runtime::Runtime,
    link: PeerLink<M>,
}

impl<M: Peer> BlockingLink<M> {
    /// Connects `machine` to a server. The first attempt must succeed.
    pub fn connect(
        address: SocketAddr,
        machine: M,
        options: LinkOptions,
    ) -> io::Result<BlockingLink<M>> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let link = runtime.block_on(PeerLink::connect(address, machine, options))?;
        Ok(BlockingLink { runtime, link })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        self.link.machine()
    }
}

/// Time for which a dropped link tries to write its queue.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

impl<M: Peer> Drop for BlockingLink<M> {
    fn drop(&mut self) {
        let link = &mut self.link;
        let farewell = async { tokio::time::timeout(FAREWELL_MAX, link.flush()).await };
        let _ = self.runtime.block_on(farewell); // without it the server notices the end by itself
    }
}

impl<M: Peer> ClientDriver<M> for BlockingLink<M> {
    fn submit(&mut self, request: M::Request) -> Ticket {
        self.link.submit(request)
    }

    fn next_reply(&mut self) -> Option<(Ticket, M::Reply)> {
        self.runtime.block_on(self.link.next())
    }
}
