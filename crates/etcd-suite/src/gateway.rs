//! One connection to the JSON gateway of a member, and which of its errors are definite.

use crate::http_connection::HttpConnection;
use seatrial_runner::ClientError;
use seatrial_suite::{ReplyLimit, StoreRefusal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

/// A connection that carries one request at a time.
#[derive(Debug)]
pub(crate) struct Gateway {
    connection: HttpConnection,
    /// The request under way.
    body: Vec<u8>,
    limit: ReplyLimit,
}

/// What a reply says that is no success: up to etcd 3.5 twice, from 3.6 on as `message` only (grpc-gateway 2).
#[derive(Deserialize)]
struct ErrorReply {
    error: Option<String>,
    message: Option<String>,
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum GatewayError {
    /// The connection was lost before the request was sent.
    Closed,
    /// The connection was lost, or the reply cannot be read.
    Lost(String),
    /// No reply within the limit.
    Late,
    /// The member's error.
    Refused(String),
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayError::Closed => f.write_str("the connection is closed"),
            GatewayError::Late => f.write_str("timed out"),
            GatewayError::Lost(reason) | GatewayError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl Error for GatewayError {}

/// Parts of the messages of errors that a member sends before it proposes anything to the others. All others, such as
/// `request timed out` and `leader changed`, leave the outcome of a write unknown.
const DEFINITE: [&str; 6] = [
    "too many requests",
    "request is too large",
    "duplicate key given",
    "key is not provided",
    "requested lease not found",
    "not supported for learner",
];

impl GatewayError {
    /// The refusal of a write.
    pub(crate) fn of_write(&self) -> StoreRefusal {
        let is_definite = match self {
            GatewayError::Closed => true,
            GatewayError::Lost(_) | GatewayError::Late => false,
            GatewayError::Refused(reason) => DEFINITE.iter().any(|part| reason.contains(part)),
        };
        if is_definite {
            return StoreRefusal::failed(self);
        }
        StoreRefusal::unknown(self)
    }

    /// The refusal of a request that changes nothing.
    pub(crate) fn of_read(&self) -> StoreRefusal {
        StoreRefusal::failed(self)
    }

    /// Can the connection be used for another request?
    pub(crate) fn leaves_usable(&self) -> bool {
        matches!(self, GatewayError::Refused(_))
    }
}

impl From<io::Error> for GatewayError {
    fn from(error: io::Error) -> GatewayError {
        match error.kind() {
            io::ErrorKind::TimedOut => GatewayError::Late,
            io::ErrorKind::UnexpectedEof => GatewayError::Lost("the connection was closed".into()),
            _ => GatewayError::Lost(error.to_string()),
        }
    }
}

impl Gateway {
    /// Connects within the limit, which is also that of each reply.
    pub(crate) async fn open(address: SocketAddr, limit: Duration) -> Result<Gateway, ClientError> {
        let mut limit = ReplyLimit::new(limit);
        let connected = limit.hold(HttpConnection::open(address)).await;
        Ok(Gateway {
            connection: connected.map_err(GatewayError::from)?,
            body: Vec::new(),
            limit,
        })
    }

    /// Sends a request and returns the reply.
    pub(crate) async fn ask<R: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<R, GatewayError> {
        if !self.connection.is_open() {
            return Err(GatewayError::Closed);
        }
        self.body.clear();
        let written = serde_json::to_writer(&mut self.body, request);
        written.map_err(|error| GatewayError::Refused(error.to_string()))?;
        let posted = self.connection.post(path, &self.body);
        let reply = self.limit.hold(posted).await?;
        if reply.is_success {
            let read = serde_json::from_slice(&reply.body);
            return read.map_err(|error| {
                GatewayError::Lost(format!("the reply is not what was expected: {error}"))
            });
        }
        let read = serde_json::from_slice::<ErrorReply>(&reply.body).ok();
        let message = read.and_then(|reply| reply.error.or(reply.message));
        Err(GatewayError::Refused(message.unwrap_or_else(|| {
            String::from_utf8_lossy(&reply.body).into_owned()
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn most_errors_leave_a_write_unknown() {
        let refused = |text: &str| GatewayError::Refused(text.into()).of_write();
        for text in [
            "etcdserver: request timed out",
            "etcdserver: leader changed",
            "etcdserver: no leader",
        ] {
            assert!(matches!(refused(text), StoreRefusal::Unknown(_)), "{text}");
        }
        assert!(matches!(
            refused("etcdserver: too many requests"),
            StoreRefusal::Failed(_)
        ));
        assert!(matches!(
            GatewayError::Late.of_write(),
            StoreRefusal::Unknown(_)
        ));
        assert!(matches!(
            GatewayError::Late.of_read(),
            StoreRefusal::Failed(_)
        ));
        assert!(matches!(
            GatewayError::Closed.of_write(),
            StoreRefusal::Failed(_)
        ));
    }

    /// A member that answers each request with the next of these replies, then closes.
    async fn member(replies: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            for reply in replies {
                let mut bytes = [0; 4096];
                let _ = stream.read(&mut bytes).await;
                let _ = stream.write_all(reply.as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn replies_are_told_apart() {
        let address = member(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"a\": 1}",
            "HTTP/1.1 503 Unavailable\r\nContent-Length: 31\r\n\r\n{\"error\":\"hot\",\"message\":\"hot\"}",
            "HTTP/1.1 503 Unavailable\r\nContent-Length: 18\r\n\r\n{\"message\":\"cold\"}",
            "HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\nnone",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnone",
        ])
        .await;
        let mut gateway = Gateway::open(address, Duration::from_secs(5))
            .await
            .expect("a member");
        let mut ask = async || gateway.ask::<Json>("/v3/kv/range", &Json::Null).await;
        assert_eq!(ask().await.expect("a reply")["a"], 1);
        for said in ["hot", "cold", "none"] {
            assert!(matches!(ask().await, Err(GatewayError::Refused(text)) if text == said));
        }
        assert!(matches!(ask().await, Err(GatewayError::Lost(_))));
        let last = ask().await;
        assert!(
            matches!(last, Err(GatewayError::Closed | GatewayError::Lost(_))),
            "{last:?}"
        );
    }
}
