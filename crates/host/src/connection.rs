//! A client's connection to a server.

use crate::byte_stream::{self, ReadSide, WriteSide};
use crate::key::SecretKey;
use crate::opening::{ClientOpening, LENGTH_MAX, OpeningError, Protocol};
use crate::tls::TlsCredentials;
use crate::unwritten_messages::{MessageParts, UnwrittenMessages, no_slices};
use crate::wire::Messages;
use seatrial_machine::NodeId;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// A connection to a server with its unwritten messages. All methods are cancel safe.
pub(crate) struct DialledConnection {
    messages: Messages<ReadSide>,
    writing: WriteSide,
    unwritten: UnwrittenMessages,
    /// Fires at or before the time of the present wait. Kept from one wait to the next: most waits end with a message, and to
    /// register a timer for each would cost as much as reading it.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Maximum length of a message, in bytes.
    pub message_length_max: usize,
    /// The protocol.
    pub protocol: Protocol,
    /// The key that both sides must prove; `None`: no key.
    pub key: Option<SecretKey>,
    /// Certificates of this side and of the server; `None`: the connection is not encrypted.
    pub tls: Option<TlsCredentials>,
    /// The node that listens there, whose name its certificate must have; `None`: any node.
    pub node: Option<NodeId>,
    /// Time limit of connecting and opening.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// Options without a key and without TLS, and with a time limit of 5 s.
    pub fn new(protocol: Protocol, message_length_max: usize) -> ConnectOptions {
        ConnectOptions {
            message_length_max,
            protocol,
            key: None,
            tls: None,
            node: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// First bytes of a TLS alert: its record type, and the first byte of the version.
const TLS_ALERT: [u8; 2] = [21, 3];

/// An I/O error of a kind for which a retry is pointless.
fn refused(error: OpeningError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// The first thing to happen.
pub(crate) enum ConnectionEvent {
    /// A message arrived.
    Message(Vec<u8>),
    /// The time is up.
    Wake,
    /// The connection ended.
    Lost,
}

impl DialledConnection {
    /// Connects and opens the connection. Fails with [`OpeningError`] inside if the server refuses or does not know the key.
    pub(crate) async fn open(
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<DialledConnection> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let node = options.node.map(|node| node.to_string());
            let tls = options.tls.as_ref();
            let tls = tls.map(|it| it.connect(node.as_deref())).transpose()?;
            let is_plain = tls.is_none();
            let (mut reading, writing) = byte_stream::split(stream, tls);
            reading.shake_hands().await?;
            let mut connection = DialledConnection {
                messages: Messages::new(reading, LENGTH_MAX),
                writing,
                unwritten: UnwrittenMessages::default(),
                timer: None,
            };
            let entered = connection.enter(options).await;
            entered.map_err(|error| connection.with_reason(is_plain, error))?;
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
                return Err(refused(OpeningError::NotAServer));
            };
            match opening.step(&answer).map_err(refused)? {
                Some(message) => self.push(&message),
                None => return Ok(()),
            }
        }
    }

    /// The error of an opening; that of a plain one at a server with TLS says so.
    fn with_reason(&self, is_plain: bool, error: io::Error) -> io::Error {
        if is_plain && self.messages.buffered().starts_with(&TLS_ALERT) {
            let text = "the server demands TLS (--tls-cert, --tls-key, --tls-ca)";
            return io::Error::new(io::ErrorKind::PermissionDenied, text);
        }
        error
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, message: &[u8]) {
        self.unwritten.push(message);
    }

    /// Queues a message; long parts of it are not copied.
    pub(crate) fn push_owned(&mut self, message: MessageParts) {
        self.unwritten.push_owned(message);
    }

    /// Writes all queued messages.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while self.unwritten.bytes() > 0 {
            let count = write_some(&mut self.writing, &self.unwritten).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unwritten.advance(count);
        }
        self.writing.flush().await
    }

    /// Number of queued bytes that are not written.
    pub(crate) const fn unwritten(&self) -> usize {
        self.unwritten.bytes()
    }

    /// Writes what the socket takes at once: usually all, and then nothing but a message is left to wait for.
    fn write_ready(&mut self) {
        while self.unwritten.bytes() > 0 {
            let mut slices = no_slices();
            match self
                .writing
                .try_write_vectored(self.unwritten.next(&mut slices))
            {
                Ok(count @ 1..) => self.unwritten.advance(count),
                _ => return, // the wait that follows sees an error itself
            }
        }
    }

    /// Writes queued messages and waits for a message, up to `patience`. Reading and writing do not wait for each other.
    pub(crate) async fn next_event(&mut self, patience: Option<Duration>) -> ConnectionEvent {
        self.write_ready();
        let due = patience.and_then(|patience| Instant::now().checked_add(patience));
        let Some(due) = due else {
            loop {
                if let Some(event) = self.step(None).await {
                    return event;
                }
            }
        };
        let kept = self.timer.take().filter(|timer| timer.deadline() <= due);
        let mut timer = kept.unwrap_or_else(|| Box::pin(tokio::time::sleep_until(due)));
        let event = loop {
            tokio::select! {
                event = self.step(None) => if let Some(event) = event {
                    break event;
                },
                () = &mut timer => {
                    if Instant::now() >= due {
                        break ConnectionEvent::Wake;
                    }
                    timer.as_mut().reset(due); // it was that of an earlier wait
                }
            }
        };
        // A wait that is cancelled drops its timer, and the next one makes another.
        self.timer = (!timer.is_elapsed()).then_some(timer);
        event
    }

    /// The same, but it also returns, with `None`, when some queued bytes have been written.
    pub(crate) async fn step(&mut self, patience: Option<Duration>) -> Option<ConnectionEvent> {
        let is_all_taken = self.unwritten.bytes() == 0;
        let has_rest = !is_all_taken || self.writing.has_unsent();
        tokio::select! {
            message = self.messages.next() => match message {
                Ok(Some(bytes)) => return Some(ConnectionEvent::Message(bytes)),
                Ok(None) | Err(_) => return Some(ConnectionEvent::Lost),
            },
            count = write_some(&mut self.writing, &self.unwritten), if has_rest => match count {
                Ok(count) if count > 0 || is_all_taken => self.unwritten.advance(count),
                _ => return Some(ConnectionEvent::Lost),
            },
            () = sleep(patience) => return Some(ConnectionEvent::Wake),
        }
        None
    }
}

/// Writes some bytes, and returns their number; without any, what TLS has encrypted and the socket has not taken.
async fn write_some(writing: &mut WriteSide, messages: &UnwrittenMessages) -> io::Result<usize> {
    if messages.bytes() == 0 {
        writing.flush().await?;
        return Ok(0);
    }
    let mut slices = no_slices();
    writing.write_vectored(messages.next(&mut slices)).await
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => pending().await,
    }
}
