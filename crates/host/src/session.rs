//! A client's machine over one connection.

use crate::connection::{ConnectOptions, ConnectionEvent, DialledConnection};
use crate::unwritten_messages::MessageParts;
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The server's endpoint.
    pub server: NodeId,
    /// Options of the connection.
    pub connect: ConnectOptions,
}

/// One machine and one connection, for a caller with one request at a time. It has no task and no lock: the caller that awaits
/// [`Session::request`] does the work. [`Session::request`] is cancel safe: a partial read or write is continued by the next
/// request.
///
/// Its downside: between two requests nothing is read, so a message that arrives then waits.
pub struct Session<M: Machine> {
    machine: M,
    options: SessionOptions,
    /// `None` once it is lost; a session does not reconnect.
    connection: Option<DialledConnection>,
    began: Instant,
    tickets: u64,
    out: Vec<Output<M::Reply>>,
}

impl<M: Peer> Session<M> {
    /// Connects `machine` to a server.
    pub async fn connect(
        address: SocketAddr,
        machine: M,
        options: SessionOptions,
    ) -> io::Result<Session<M>> {
        let connection = DialledConnection::open(address, &options.connect).await?;
        Ok(Session {
            machine,
            options,
            connection: Some(connection),
            began: Instant::now(),
            tickets: 0,
            out: Vec::new(),
        })
    }

    /// Is the connection open, according to its last read or write?
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Sends a request to the machine and waits for its reply, as long as its own time-outs permit. `None`: the connection is
    /// lost and the machine has no reply, so it never sent the request.
    pub async fn request(&mut self, request: M::Request) -> Option<M::Reply> {
        self.tickets += 1;
        let mine = Ticket(self.tickets);
        let mut reply = self.turn(Input::Request(mine, request), mine);
        loop {
            if self.connection.is_none() && reply.is_none() {
                self.machine.connection_closed(&mut self.out);
                return self.gather(mine);
            }
            if reply.is_some() {
                return reply;
            }
            let input = self.next_input().await;
            reply = input.and_then(|input| self.turn(input, mine));
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn turn(&mut self, input: Input<M::Request>, mine: Ticket) -> Option<M::Reply> {
        let now = self.now();
        self.machine.turn(now, input, &mut self.out);
        self.machine.check_invariants();
        self.gather(mine)
    }

    /// Carries out the outputs of a turn: messages are gathered, the reply to the present request is returned.
    fn gather(&mut self, mine: Ticket) -> Option<M::Reply> {
        let mut found = None;
        for output in self.out.drain(..) {
            match output {
                Output::Send { message, .. } => {
                    if let Some(connection) = &mut self.connection {
                        connection.push_owned(message.into());
                    }
                }
                Output::SendShared { head, shared, .. } => {
                    if let Some(connection) = &mut self.connection {
                        connection.push_owned(MessageParts::new(head, shared));
                    }
                }
                Output::Reply(ticket, reply) if ticket == mine => found = Some(reply),
                // A client has no disk and no jobs; replies to cancelled requests have no caller any more.
                _ => {}
            }
        }
        found
    }

    /// Waits for a message or for the machine's next wake-up, and writes meanwhile. `None` if the connection is lost.
    async fn next_input(&mut self) -> Option<Input<M::Request>> {
        let patience = self.machine.wake_at().map(|wake| wake.since(self.now()));
        let from = self.options.server;
        match self.connection.as_mut()?.next_event(patience).await {
            ConnectionEvent::Message(bytes) => Some(Input::Message { from, bytes }),
            ConnectionEvent::Wake => Some(Input::Wake),
            ConnectionEvent::Lost => {
                self.connection = None;
                None
            }
        }
    }
}
