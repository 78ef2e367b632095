//! One connection to a server, and which of its errors are definite.

use crate::reply_length::reply_length;
use redis::{Cmd, RedisError, RedisResult, Value};
use seatrial_suite::{ReplyLimit, StoreRefusal};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection with one request at a time, in the task of its client. After a request without a reply it must not be used again:
/// the reply may still come.
///
/// Commands are encoded and replies decoded by the crate `redis`. Its own connections hand each request to another task and the
/// reply back; here the client's task writes and reads itself.
pub(crate) struct Connection {
    stream: TcpStream,
    /// What was received of replies that are not taken yet.
    received: Vec<u8>,
    /// Of connecting, and of the replies to one request.
    limit: ReplyLimit,
}

/// Bytes that are read at once.
const PIECE: usize = 16 * 1024;
/// Length of the longest reply.
const REPLY_MAX: usize = 256 << 20;

impl Connection {
    /// Connects within the limit, which is also that of each reply.
    pub(crate) async fn open(address: SocketAddr, limit: Duration) -> RedisResult<Connection> {
        let mut limit = ReplyLimit::new(limit);
        let stream = limit.hold(TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            received: Vec::new(),
            limit,
        })
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut replies = self.exchange(&command.get_packed_command(), 1).await?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Sends commands between `MULTI` and `EXEC`, all at once, and waits for the list of their replies.
    pub(crate) async fn transact(&mut self, commands: &[Cmd]) -> RedisResult<Value> {
        let mut packed = redis::cmd("MULTI").get_packed_command();
        for command in commands {
            command.write_packed_command(&mut packed);
        }
        redis::cmd("EXEC").write_packed_command(&mut packed);
        executed(self.exchange(&packed, commands.len() + 2).await?)
    }

    /// Sends a request and waits for this number of replies.
    async fn exchange(&mut self, request: &[u8], count: usize) -> RedisResult<Vec<Value>> {
        let Connection {
            stream,
            received,
            limit,
        } = self;
        let exchanged = async {
            stream.write_all(request).await?;
            let mut replies = Vec::with_capacity(count);
            loop {
                while let Some(length) = reply_length(received)? {
                    replies.push(redis::parse_redis_value(&received[..length]));
                    received.drain(..length);
                    if replies.len() == count {
                        return Ok(replies);
                    }
                }
                if received.len() > REPLY_MAX {
                    return Err(io::Error::other("a reply is longer than 256 MiB"));
                }
                received.reserve(PIECE);
                if stream.read_buf(received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        let replies = limit.hold(exchanged).await?;
        replies.into_iter().collect()
    }
}

/// The reply to `EXEC`, the last of these. An error before it means that nothing was executed; one inside of it, that the rest
/// was.
fn executed(mut replies: Vec<Value>) -> RedisResult<Value> {
    let unexpected = |detail: String| {
        let what = "a transaction was executed in part";
        RedisError::from((redis::ErrorKind::UnexpectedReturnType, what, detail))
    };
    let last = replies.pop().unwrap_or(Value::Nil);
    for reply in replies {
        reply.extract_error()?;
    }
    match last {
        // `extract_error` takes the first error inside of a list for that of the list.
        Value::Array(items) => {
            let wrong = items
                .iter()
                .find(|item| matches!(item, Value::ServerError(_)));
            match wrong {
                Some(error) => Err(unexpected(format!("{error:?}"))),
                None => Ok(Value::Array(items)),
            }
        }
        error @ Value::ServerError(_) => error.extract_error(),
        other => Err(unexpected(format!("{other:?}"))),
    }
}

/// Codes of error replies that a server sends before a command, or our scripts, have changed anything.
const DEFINITE: [&str; 16] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "ERR",
    "EXECABORT",
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

    /// The error that a reply becomes.
    fn replied(reply: &str) -> RedisError {
        let value = redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        value.extract_error().expect_err("an error reply")
    }

    #[test]
    fn errors_before_exec_are_definite_and_inside_of_it_are_not() {
        let parsed = |reply: &str| redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        let replies = |all: &[&str]| executed(all.iter().map(|reply| parsed(reply)).collect());
        let value = replies(&["+OK\r\n", "+QUEUED\r\n", "*1\r\n:3\r\n"]).expect("a list");
        assert_eq!(value, Value::Array(vec![Value::Int(3)]));
        let moved = [
            "+OK\r\n",
            "-MOVED 3999 127.0.0.12:6381\r\n",
            "-EXECABORT discarded\r\n",
        ];
        let error = replies(&moved).expect_err("nothing was executed");
        assert_eq!(error.code(), Some("MOVED"), "a redirection can be followed");
        assert!(matches!(refusal(&error), StoreRefusal::Failed(_)));
        let aborted = ["+OK\r\n", "-EXECABORT discarded\r\n"];
        let error = replies(&aborted).expect_err("nothing was executed");
        assert!(matches!(refusal(&error), StoreRefusal::Failed(_)));
        for inside in ["*2\r\n:3\r\n-ERR wrong\r\n", "*-1\r\n"] {
            let error = replies(&["+OK\r\n", "+QUEUED\r\n", inside]).expect_err("in part");
            assert!(
                matches!(refusal(&error), StoreRefusal::Unknown(_)),
                "{inside}"
            );
        }
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
