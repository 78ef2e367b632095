//! A client's machine over one real connection.

use crate::connection::{ConnectOptions, Connection, Event};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// What a session needs to know.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Who is at the other end.
    pub server: NodeId,
    /// How to connect.
    pub connect: ConnectOptions,
}

/// One machine and one connection, for a caller that asks one thing at a time. There is no task and no lock behind it:
/// whoever awaits [`Session::request`] does the work, and may give it up: what was read or written in part is taken up
/// by the next request.
///
/// Its downside: between two requests nobody reads, so a message that comes then waits.
pub struct Session<M: Machine> {
    machine: M,
    options: SessionOptions,
    /// `None` when it is lost; it does not come back.
    connection: Option<Connection>,
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
        let connection = Connection::open(address, &options.connect).await?;
        Ok(Session {
            machine,
            options,
            connection: Some(connection),
            began: Instant::now(),
            tickets: 0,
            out: Vec::new(),
        })
    }

    /// Is the connection still there, as far as anybody has noticed?
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Asks the machine and waits for its answer, however long its own time-outs let it take. `None`: the connection is
    /// gone and the machine still has no answer, so it never sent the request.
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

    /// Takes the outputs of a turn: sends are gathered, the answer to the present request is returned.
    fn gather(&mut self, mine: Ticket) -> Option<M::Reply> {
        let mut found = None;
        for output in self.out.drain(..) {
            match output {
                Output::Send { message, .. } => {
                    if let Some(connection) = &mut self.connection {
                        connection.push(&message);
                    }
                }
                Output::Reply(ticket, reply) if ticket == mine => found = Some(reply),
                // Clients have no disk and no jobs; answers to earlier requests have lost their caller.
                _ => {}
            }
        }
        found
    }

    /// Waits for a message or for the machine's next wake-up, and writes meanwhile. `None` when the connection is found to
    /// be gone.
    async fn next_input(&mut self) -> Option<Input<M::Request>> {
        let patience = self.machine.wake_at().map(|wake| wake.since(self.now()));
        let from = self.options.server;
        match self.connection.as_mut()?.next_event(patience).await {
            Event::Message(bytes) => Some(Input::Message { from, bytes }),
            Event::Wake => Some(Input::Wake),
            Event::Lost => {
                self.connection = None;
                None
            }
        }
    }
}
