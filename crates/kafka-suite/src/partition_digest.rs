//! The messages that a broker itself holds, as a hash.

use crate::kafka_connection::KafkaConnection;
use crate::kafka_error::KafkaError;
use crate::kafka_messages as messages;
use seatrial_runner::NodeState;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use tokio::time::Instant;

/// Maximum number of bytes that one request returns.
const BYTES_MAX: i32 = 1 << 20;

/// The end of each partition as this broker knows it, and a hash of all messages before that. Followers answer fetches too, from
/// version 11 on (KIP-392).
pub(crate) async fn state(
    address: SocketAddr,
    partitions: u32,
    deadline: Instant,
) -> Result<NodeState, KafkaError> {
    let mut connection = KafkaConnection::open(address, deadline).await?;
    let mut revision = String::new();
    let mut hasher = DefaultHasher::new(); // the same keys in each process
    for partition in 0..partitions {
        let mut from = 0;
        loop {
            let request = messages::fetch(partition as i32, from, BYTES_MAX);
            let answer = connection.ask(&request, deadline).await?;
            let records = messages::fetched(answer, from)?;
            for message in records.messages {
                (message.offset, message.key, message.number).hash(&mut hasher);
            }
            match records.next.filter(|next| *next > from) {
                Some(next) => from = next,
                None => break,
            }
        }
        let space = if revision.is_empty() { "" } else { " " };
        let _ = write!(revision, "{space}{from}");
    }
    Ok(NodeState {
        revision: format!("ends {revision}"),
        hash: format!("{:016x}", hasher.finish()),
        contents: None,
    })
}
