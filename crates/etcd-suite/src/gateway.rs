//! One connection to the JSON gateway of a member, and which of its errors are definite.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use seatrial_runner::ClientError;
use seatrial_suite::StoreRefusal;
use serde_json::Value as Json;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes of a reply that are read at most.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A connection that carries one request at a time.
pub(crate) struct Gateway {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    limit: Duration,
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

impl Gateway {
    /// Connects within the limit, which is also that of each reply.
    pub(crate) async fn open(address: SocketAddr, limit: Duration) -> Result<Gateway, ClientError> {
        let connect = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(async move {
                // Its error reaches the request under way.
                let _ = connection.await;
            });
            Ok::<_, ClientError>(sender)
        };
        let sender = timeout(limit, connect)
            .await
            .map_err(|_| GatewayError::Late)??;
        Ok(Gateway {
            sender,
            address,
            limit,
        })
    }

    /// Sends a request and returns the reply.
    pub(crate) async fn ask(&mut self, path: &str, body: &Json) -> Result<Json, GatewayError> {
        let ready = timeout(self.limit, self.sender.ready()).await;
        if !matches!(ready, Ok(Ok(()))) {
            return Err(GatewayError::Closed);
        }
        let request = Request::post(path)
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())));
        let request = request.map_err(|error| GatewayError::Refused(error.to_string()))?;
        let answer = timeout(self.limit, exchange(&mut self.sender, request)).await;
        let (is_success, bytes) = answer.map_err(|_| GatewayError::Late)??;
        let reply: Result<Json, _> = serde_json::from_slice(&bytes);
        match (is_success, reply) {
            (true, Ok(reply)) => Ok(reply),
            (true, Err(error)) => Err(GatewayError::Lost(format!("the reply is no JSON: {error}"))),
            (false, reply) => {
                let message = reply
                    .ok()
                    .and_then(|reply| Some(reply["error"].as_str()?.to_owned()));
                let message =
                    message.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
                Err(GatewayError::Refused(message))
            }
        }
    }
}

/// Sends a request; returns whether its status is a success, and the whole body.
async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<(bool, Bytes), GatewayError> {
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| GatewayError::Lost(error.to_string()))?;
    let is_success = response.status().is_success();
    let body = Limited::new(response.into_body(), REPLY_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|error| GatewayError::Lost(error.to_string()))?;
    Ok((is_success, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            "HTTP/1.1 503 Unavailable\r\nContent-Length: 15\r\n\r\n{\"error\":\"hot\"}",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnone",
        ])
        .await;
        let mut gateway = Gateway::open(address, Duration::from_secs(5))
            .await
            .expect("a member");
        let mut ask = async || gateway.ask("/v3/kv/range", &Json::Null).await;
        assert_eq!(ask().await.expect("a reply")["a"], 1);
        assert!(matches!(ask().await, Err(GatewayError::Refused(text)) if text == "hot"));
        assert!(matches!(ask().await, Err(GatewayError::Lost(_))));
        let last = ask().await;
        assert!(
            matches!(last, Err(GatewayError::Closed | GatewayError::Lost(_))),
            "{last:?}"
        );
    }
}
