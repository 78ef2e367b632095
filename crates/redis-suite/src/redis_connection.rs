//! One connection to a server, and which of its errors are definite.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, RedisError, RedisResult, Value};
use seatrial_suite::StoreRefusal;
use std::net::SocketAddr;
use std::time::Duration;

/// A connection with one request at a time. After a request without a reply it must not be used again: the reply may still come.
#[derive(Clone)]
pub(crate) struct Connection(MultiplexedConnection);

impl Connection {
    /// Connects within the limit, which is also that of each reply.
    pub(crate) async fn open(address: SocketAddr, limit: Duration) -> RedisResult<Connection> {
        let place = ConnectionAddr::Tcp(address.ip().to_string(), address.port());
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let client = Client::open(place)?;
        let connection = client.get_multiplexed_async_connection_with_config(&options);
        Ok(Connection(connection.await?))
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.0).await
    }
}

/// Codes of error replies that a server sends before a command, or our scripts, have changed anything.
const DEFINITE: [&str; 15] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "ERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Why a command has no result. An error reply of a known code is definite; whatever happened to the connection is not.
pub(crate) fn refusal(error: &RedisError) -> StoreRefusal {
    let is_definite = error.code().is_some_and(|code| DEFINITE.contains(&code));
    if is_definite || error.is_connection_refusal() {
        return StoreRefusal::failed(error);
    }
    StoreRefusal::unknown(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// The error that a reply becomes.
    fn replied(reply: &str) -> RedisError {
        let value = redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        value.extract_error().expect_err("an error reply")
    }

    #[test]
    fn only_replies_are_definite() {
        for reply in [
            "-READONLY You can't write against a read only replica.\r\n",
            "-NOREPLICAS Not enough good replicas to write.\r\n",
            "-MOVED 3999 127.0.0.12:6381\r\n",
            "-ERR value is not an integer\r\n",
        ] {
            assert!(
                matches!(refusal(&replied(reply)), StoreRefusal::Failed(_)),
                "{reply}"
            );
        }
        assert!(matches!(
            refusal(&replied("-UNBLOCKED by force\r\n")),
            StoreRefusal::Unknown(_)
        ));
        for kind in [
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ] {
            let error = RedisError::from(io::Error::from(kind));
            assert!(
                matches!(refusal(&error), StoreRefusal::Unknown(_)),
                "{kind}"
            );
        }
    }
}
