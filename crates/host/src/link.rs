//! A client's machine over a connection that comes back.

use crate::connection::{ConnectOptions, Connection, Event};
use seatrial_machine::{Conversation, Input, NodeId, Output, Peer, Ticket, Time};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a link needs to know.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Who is at the other end.
    pub server: NodeId,
    /// How to connect.
    pub connect: ConnectOptions,
    /// A lost connection is tried again after this long; never, if nothing.
    pub reconnect_interval: Option<Duration>,
}

/// One machine and a connection that comes back, for a caller with many requests under way. There is no task and no lock
/// behind it: whoever awaits [`Link::next`] does the work. Replies wait here until they are asked for, at most as many as
/// requests were submitted.
///
/// Its downside: while nobody awaits, nobody reads.
pub struct Link<M: Peer> {
    machine: M,
    address: SocketAddr,
    options: LinkOptions,
    connection: Option<Connection>,
    began: Instant,
    tickets: u64,
    out: Vec<Output<M::Reply>>,
    replies: VecDeque<(Ticket, M::Reply)>,
}

impl<M: Peer> Link<M> {
    /// Connects `machine` to a server. The first time it has to be there.
    pub async fn connect(
        address: SocketAddr,
        machine: M,
        options: LinkOptions,
    ) -> io::Result<Link<M>> {
        let mut link = Link {
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

    /// Is the connection there, as far as anybody has noticed?
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Hands a request over; its reply carries the ticket.
    pub fn submit(&mut self, request: M::Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.turn(Input::Request(ticket, request));
        ticket
    }

    /// The next reply; nothing when the connection is gone for good and the machine has no answer left. Loses nothing when
    /// it is dropped before it is done.
    pub async fn next(&mut self) -> Option<(Ticket, M::Reply)> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Some(reply);
            }
            if self.connection.is_none() && !self.reconnect().await {
                return self.replies.pop_front();
            }
            match self.next_event().await {
                Event::Message(bytes) => {
                    let from = self.options.server;
                    self.turn(Input::Message { from, bytes });
                }
                Event::Wake => self.turn(Input::Wake),
                Event::Lost => {
                    self.connection = None;
                    self.machine.connection_closed(&mut self.out);
                    self.gather();
                }
            }
        }
    }

    /// Writes what was to be sent and is not yet.
    pub async fn flush(&mut self) -> io::Result<()> {
        if let Some(connection) = &mut self.connection {
            connection.flush().await?;
        }
        Ok(())
    }

    /// Opens a connection. Borrows nothing that other threads may not see while it waits, so that a link can be a task.
    fn open(&self) -> impl Future<Output = io::Result<Connection>> + use<M> {
        let (address, options) = (self.address, self.options.connect.clone());
        async move { Connection::open(address, &options).await }
    }

    /// Tries again until it works, or the machine has something to say meanwhile. False: it is not to be tried, and the
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

    /// Takes the outputs of a turn. Jobs are run at once: a client has nothing better to do.
    fn gather(&mut self) {
        let mut computed = Vec::new();
        for output in self.out.drain(..) {
            match output {
                Output::Send { message, .. } => {
                    // Without a connection it is lost; the machine sends it again.
                    if let Some(connection) = &mut self.connection {
                        connection.push(&message);
                    }
                }
                Output::Reply(ticket, reply) => self.replies.push_back((ticket, reply)),
                Output::Compute(job, ticket) => computed.push((ticket, job.run())),
                // Only servers have connections to bound.
                Output::Admit(_) | Output::Close(_) | Output::Address { .. } => {}
                Output::Append { log, .. } | Output::TruncateHead { log, .. } => {
                    panic!("a client uses log {log}")
                }
                Output::File(task, _) => panic!("a client uses file {}", task.file()),
            }
        }
        for (ticket, result) in computed {
            self.turn(Input::Computed(ticket, result));
        }
    }

    /// Waits for a message or for the machine's next wake-up, and writes meanwhile.
    async fn next_event(&mut self) -> Event {
        let patience = self.machine.wake_at().map(|wake| wake.since(self.now()));
        match &mut self.connection {
            Some(connection) => connection.next_event(patience).await,
            None => Event::Wake,
        }
    }
}

/// A [`Link`] for callers that block: it owns a runtime of one thread, the caller's.
pub struct BlockingLink<M: Peer> {
    runtime: tokio::runtime::Runtime,
    link: Link<M>,
}

impl<M: Peer> BlockingLink<M> {
    /// Connects `machine` to a server. The first time it has to be there.
    pub fn connect(
        address: SocketAddr,
        machine: M,
        options: LinkOptions,
    ) -> io::Result<BlockingLink<M>> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let link = runtime.block_on(Link::connect(address, machine, options))?;
        Ok(BlockingLink { runtime, link })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        self.link.machine()
    }
}

/// How long a link that is dropped tries to send what is left.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

impl<M: Peer> Drop for BlockingLink<M> {
    fn drop(&mut self) {
        let link = &mut self.link;
        let farewell = async { tokio::time::timeout(FAREWELL_MAX, link.flush()).await };
        let _ = self.runtime.block_on(farewell); // the server finds out by itself
    }
}

impl<M: Peer> Conversation<M> for BlockingLink<M> {
    fn submit(&mut self, request: M::Request) -> Ticket {
        self.link.submit(request)
    }

    fn next_reply(&mut self) -> Option<(Ticket, M::Reply)> {
        self.runtime.block_on(self.link.next())
    }
}
