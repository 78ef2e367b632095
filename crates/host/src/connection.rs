//! A client's end of a connection.

use crate::key::Key;
use crate::opening::{ClientOpening, LENGTH_MAX, OpeningError, Protocol};
use crate::wire::{self, Messages};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A connection to a server and what is to be written to it, of which part may be written already: waiting for what comes
/// may be given up at any time and taken up again.
pub(crate) struct Connection {
    messages: Messages<OwnedReadHalf>,
    writing: OwnedWriteHalf,
    gathered: Vec<u8>,
    /// Bytes of `gathered` that were written.
    written: usize,
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Longest message in bytes.
    pub message_length_max: usize,
    /// What is spoken.
    pub protocol: Protocol,
    /// What both sides have to know; `None`: nothing.
    pub key: Option<Key>,
    /// A connection that is not open after this long has failed.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// Without a key; 5 s until the connection is open.
    pub fn new(protocol: Protocol, message_length_max: usize) -> ConnectOptions {
        ConnectOptions {
            message_length_max,
            protocol,
            key: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// As an error of input and output: the connection would be refused again.
fn refused(error: OpeningError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// What happened first.
pub(crate) enum Event {
    /// A message came.
    Message(Vec<u8>),
    /// The time is up.
    Wake,
    /// The connection is gone.
    Lost,
}

impl Connection {
    /// Connects, and opens the connection. Fails with [`OpeningError`] inside when the server refuses or does not know the
    /// key.
    pub(crate) async fn open(
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<Connection> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (reading, writing) = stream.into_split();
            let mut connection = Connection {
                messages: Messages::new(reading, LENGTH_MAX),
                writing,
                gathered: Vec::new(),
                written: 0,
            };
            connection.enter(options).await?;
            connection
                .messages
                .set_length_max(options.message_length_max);
            Ok(connection)
        };
        let connected = tokio::time::timeout(options.timeout, connected).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn enter(&mut self, options: &ConnectOptions) -> io::Result<()> {
        let opening = ClientOpening::new(options.protocol, options.key.clone());
        let mut opening = opening.map_err(refused)?;
        self.push(opening.message());
        loop {
            self.flush().await?;
            let Some(answer) = self.messages.next().await? else {
                return Err(refused(OpeningError::Stranger));
            };
            match opening.step(&answer).map_err(refused)? {
                Some(message) => self.push(&message),
                None => return Ok(()),
            }
        }
    }

    /// Puts a message behind those that are to be written.
    pub(crate) fn push(&mut self, message: &[u8]) {
        wire::write(&mut self.gathered, message);
    }

    /// Writes what is not written yet.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let rest = &self.gathered[self.written..];
        self.writing.write_all(rest).await?;
        self.gathered.clear();
        self.written = 0;
        Ok(())
    }

    /// Bytes that are gathered and not written.
    pub(crate) fn unwritten(&self) -> usize {
        self.gathered.len() - self.written
    }

    /// Writes what is gathered, and waits for a message, at most so long. Neither a server that reads slowly nor one that answers
    /// slowly holds the other up.
    pub(crate) async fn next_event(&mut self, patience: Option<Duration>) -> Event {
        let wake = sleep(patience);
        tokio::pin!(wake);
        loop {
            tokio::select! {
                event = self.step(None) => if let Some(event) = event {
                    return event;
                },
                () = &mut wake => return Event::Wake,
            }
        }
    }

    /// The same, but it returns with nothing when some of what is gathered has been written.
    pub(crate) async fn step(&mut self, patience: Option<Duration>) -> Option<Event> {
        let rest = &self.gathered[self.written..];
        tokio::select! {
            message = self.messages.next() => match message {
                Ok(Some(bytes)) => return Some(Event::Message(bytes)),
                Ok(None) | Err(_) => return Some(Event::Lost),
            },
            count = self.writing.write(rest), if !rest.is_empty() => match count {
                Ok(count) if count > 0 => self.written += count,
                _ => return Some(Event::Lost),
            },
            () = sleep(patience) => return Some(Event::Wake),
        }
        if self.written == self.gathered.len() {
            self.gathered.clear();
            self.written = 0;
        }
        None
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => pending().await,
    }
}
