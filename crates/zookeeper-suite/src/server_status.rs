//! What a server says of itself: its reply to the command `srvr`, which needs no session.

use seatrial_runner::ClientError;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a reply.
const REPLY: Duration = Duration::from_millis(1_500);
/// Bytes of a reply that are read at most.
const REPLY_BYTES_MAX: u64 = 64 * 1024;

/// The part of a server in its ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// It is the only one.
    Standalone,
    Leader,
    Follower,
    /// It knows no leader that a majority follows, or is not ready.
    NotServing,
}

impl ServerMode {
    /// Asks the server at this address.
    pub(crate) async fn of(address: SocketAddr) -> Result<ServerMode, ClientError> {
        let ask = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"srvr").await?;
            let mut reply = String::new();
            let mut limited = stream.take(REPLY_BYTES_MAX);
            limited.read_to_string(&mut reply).await?;
            Ok::<String, ClientError>(reply)
        };
        let reply = timeout(REPLY, ask).await;
        let reply = reply.map_err(|_| "no reply to srvr in time")??;
        ServerMode::parse(&reply)
            .ok_or_else(|| format!("unexpected reply to srvr: {reply:?}").into())
    }

    fn parse(reply: &str) -> Option<ServerMode> {
        let mut lines = reply.lines();
        let mode = lines.find_map(|line| line.strip_prefix("Mode: "));
        match mode.map(str::trim) {
            Some("standalone") => Some(ServerMode::Standalone),
            Some("leader") => Some(ServerMode::Leader),
            Some("follower") => Some(ServerMode::Follower),
            Some(_) => None,
            None => reply
                .contains("not currently serving")
                .then_some(ServerMode::NotServing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_read_from_the_reply() {
        // ZooKeeper 3.8.0.
        let reply = "Zookeeper version: 3.8.0-unknown, built on 2024-06-16 08:39 UTC\nLatency min/avg/max: 0/0.0/0\n\
                     Received: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x100000000\nMode: leader\nNode count: 5\n";
        assert_eq!(ServerMode::parse(reply), Some(ServerMode::Leader));
        let others = [
            ("Mode: follower\n", Some(ServerMode::Follower)),
            ("Mode: standalone\n", Some(ServerMode::Standalone)),
            (
                "This ZooKeeper instance is not currently serving requests\n",
                Some(ServerMode::NotServing),
            ),
            ("Mode: read-only\n", None),
            (
                "srvr is not executed because it is not in the whitelist.\n",
                None,
            ),
            ("", None),
        ];
        for (reply, expected) in others {
            assert_eq!(ServerMode::parse(reply), expected, "{reply:?}");
        }
    }
}
