//! The stores that a load can go to, and one connection of a client to each: Seatrial's, Redis, etcd.

use super::STATUS_TIMEOUT;
use crate::credentials::Credentials;
use crate::shared_connection::{SharedConnection, SharedConnections};
use crate::tools::{StoreSession, session_seed};
use seatrial_host::{Session, SessionOptions};
use seatrial_kv_protocol::{Outcome, Transaction, TransactionClient, TransactionClientOptions};
use seatrial_machine::NodeId;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;

/// Where a load goes.
#[derive(Clone, Debug)]
pub(crate) enum LoadTarget {
    /// This store; clients are spread over its nodes.
    Kv {
        servers: Vec<SocketAddr>,
        credentials: Credentials,
        /// Number of clients that share a connection.
        share: u32,
        connections: Arc<SharedConnections>,
    },
    /// Redis, by its protocol RESP.
    Redis(SocketAddr),
    /// etcd, by its gateway of JSON over HTTP.
    Etcd(Vec<SocketAddr>),
}

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

impl LoadTarget {
    /// A session that asks the nodes for their status; `None`: another store.
    pub(crate) fn status_session(&self) -> Option<StoreSession> {
        match self {
            LoadTarget::Kv {
                servers,
                credentials,
                ..
            } => Some(StoreSession {
                servers: servers.clone(),
                credentials: credentials.clone(),
                timeout: STATUS_TIMEOUT,
            }),
            LoadTarget::Redis(_) | LoadTarget::Etcd(_) => None,
        }
    }

    /// Seatrial's store.
    pub(crate) fn kv(servers: Vec<SocketAddr>, credentials: Credentials, share: u32) -> LoadTarget {
        LoadTarget::Kv {
            servers,
            credentials,
            share,
            connections: Arc::default(),
        }
    }

    /// Connects a client. Its requests go to one node until the connection is lost; `attempt` chooses the next.
    pub(crate) async fn connect(&self, client: u32, attempt: u32) -> io::Result<LoadConnection> {
        let at = |servers: &[SocketAddr]| servers[(client + attempt) as usize % servers.len()];
        match self {
            LoadTarget::Kv {
                servers,
                credentials,
                share,
                connections,
            } => {
                let number = client / share;
                let address = servers[(number + attempt) as usize % servers.len()];
                let seed = session_seed(&format!("{address} {client} {attempt}"));
                let mut options = TransactionClientOptions::new(NodeId::server(1), seed);
                options.request_timeout = REQUEST_TIMEOUT;
                if *share == 1 {
                    let session = open_session(address, options, credentials).await?;
                    return Ok(LoadConnection::KvSession(Box::new(session)));
                }
                let connection = connections.get(address, number, options, credentials);
                Ok(LoadConnection::Kv(connection.await?))
            }
            LoadTarget::Redis(address) => Ok(LoadConnection::Redis(stream(*address).await?)),
            LoadTarget::Etcd(servers) => Ok(LoadConnection::Etcd(stream(at(servers)).await?)),
        }
    }
}

/// A connection of one client.
pub(crate) enum LoadConnection {
    /// A connection that is shared with other clients.
    Kv(SharedConnection),
    /// A connection of this client alone: no task and no channel between it and the socket, as with the other stores.
    KvSession(Box<Session<TransactionClient>>),
    Redis(BufStream<TcpStream>),
    Etcd(BufStream<TcpStream>),
}

async fn open_session(
    address: SocketAddr,
    options: TransactionClientOptions,
    credentials: &Credentials,
) -> io::Result<Session<TransactionClient>> {
    let link = SessionOptions {
        server: options.servers[0],
        connect: credentials.connect_options(options.request_timeout),
    };
    Session::connect(address, TransactionClient::new(options), link).await
}

async fn stream(address: SocketAddr) -> io::Result<BufStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufStream::with_capacity(64 << 10, 64 << 10, stream))
}

impl LoadConnection {
    /// Writes these registers; of several as few requests as the store permits.
    pub(crate) async fn write(&mut self, pairs: &[(Vec<u8>, &[u8])]) -> io::Result<()> {
        match self {
            LoadConnection::Kv(connection) => {
                let mut transaction = Transaction::new();
                for (key, value) in pairs {
                    transaction.write(key, value).map_err(io::Error::other)?;
                }
                kv_outcome(connection.request(transaction).await)
            }
            LoadConnection::KvSession(session) => {
                let mut transaction = Transaction::new();
                for (key, value) in pairs {
                    transaction.write(key, value).map_err(io::Error::other)?;
                }
                kv_outcome(session.request(transaction).await)
            }
            LoadConnection::Redis(stream) => {
                let mut words: Vec<&[u8]> = vec![if pairs.len() == 1 { b"SET" } else { b"MSET" }];
                for (key, value) in pairs {
                    words.extend([key.as_slice(), value]);
                }
                redis_request(stream, &words).await
            }
            LoadConnection::Etcd(stream) => {
                for (key, value) in pairs {
                    let (key, value) = (base64(key), base64(value));
                    let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
                    http_request(stream, "/v3/kv/put", &body).await?;
                }
                Ok(())
            }
        }
    }

    /// Reads one register.
    pub(crate) async fn read(&mut self, key: &[u8]) -> io::Result<()> {
        match self {
            LoadConnection::Kv(connection) => {
                let mut transaction = Transaction::new();
                transaction.read(key).map_err(io::Error::other)?;
                kv_outcome(connection.request(transaction).await)
            }
            LoadConnection::KvSession(session) => {
                let mut transaction = Transaction::new();
                transaction.read(key).map_err(io::Error::other)?;
                kv_outcome(session.request(transaction).await)
            }
            LoadConnection::Redis(stream) => redis_request(stream, &[b"GET", key]).await,
            LoadConnection::Etcd(stream) => {
                let body = format!("{{\"key\":\"{}\"}}", base64(key));
                http_request(stream, "/v3/kv/range", &body).await
            }
        }
    }
}

/// `None`: the connection is lost.
fn kv_outcome(outcome: Option<Outcome>) -> io::Result<()> {
    match outcome {
        Some(Outcome::Ok(_)) => Ok(()),
        Some(other) => Err(io::Error::other(format!("{other:?}"))),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// Sends a command as an array of byte strings, and reads a reply that is one string.
async fn redis_request(stream: &mut BufStream<TcpStream>, words: &[&[u8]]) -> io::Result<()> {
    stream
        .write_all(format!("*{}\r\n", words.len()).as_bytes())
        .await?;
    for word in words {
        let head = format!("${}\r\n", word.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(word).await?;
        stream.write_all(b"\r\n").await?;
    }
    stream.flush().await?;
    let line = line(stream).await?;
    match line.split_at_checked(1) {
        Some(("+" | ":", _) | ("$", "-1")) => Ok(()),
        Some(("$", length)) => {
            let length: usize = length.parse().map_err(io::Error::other)?;
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes).await.map(|_| ())
        }
        _ => Err(io::Error::other(line)),
    }
}

/// Posts a JSON document, and reads the reply.
async fn http_request(stream: &mut BufStream<TcpStream>, path: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await?;
    let status = line(stream).await?;
    let mut length = None;
    loop {
        let header = line(stream).await?;
        if header.is_empty() {
            break;
        }
        let header = header.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let length = length.ok_or_else(|| io::Error::other(format!("{status}, of unknown length")))?;
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    if status.contains(" 200 ") {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&bytes).into_owned();
    Err(io::Error::other(format!("{status}: {reason}")))
}

/// A line without its end.
async fn line(stream: &mut BufStream<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// Base64 with padding (RFC 4648, 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 4];
        three[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(three);
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            let is_padding = index as usize > chunk.len();
            text.push(if is_padding { '=' } else { letter as char });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_its_standard() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
