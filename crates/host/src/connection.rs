//! A client's end of a connection.

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
    /// Connects; messages that come are at most `message_length_max` bytes long.
    pub(crate) async fn open(
        address: SocketAddr,
        message_length_max: usize,
    ) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reading, writing) = stream.into_split();
        Ok(Connection {
            messages: Messages::new(reading, message_length_max),
            writing,
            gathered: Vec::new(),
            written: 0,
        })
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

    /// Writes what is gathered, and waits for a message, at most so long. Neither a server that reads slowly nor one that answers
    /// slowly holds the other up.
    pub(crate) async fn next_event(&mut self, patience: Option<Duration>) -> Event {
        let wake = async {
            match patience {
                Some(patience) => tokio::time::sleep(patience).await,
                None => pending().await,
            }
        };
        tokio::pin!(wake);
        loop {
            let rest = &self.gathered[self.written..];
            tokio::select! {
                message = self.messages.next() => match message {
                    Ok(Some(bytes)) => return Event::Message(bytes),
                    Ok(None) | Err(_) => return Event::Lost,
                },
                count = self.writing.write(rest), if !rest.is_empty() => match count {
                    Ok(count) if count > 0 => self.written += count,
                    _ => return Event::Lost,
                },
                () = &mut wake => return Event::Wake,
            }
            if self.written == self.gathered.len() {
                self.gathered.clear();
                self.written = 0;
            }
        }
    }
}
