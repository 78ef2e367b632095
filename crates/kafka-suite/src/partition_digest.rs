//! The messages that a broker itself holds, as a hash, and a last message that shows their end to all.

use crate::kafka_connection::KafkaConnection;
use crate::kafka_error::KafkaError;
use crate::kafka_messages as messages;
use crate::partition_leaders::leader;
use bytes::Bytes;
use seatrial_runner::{NodePlace, NodeState};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use tokio::time::Instant;

/// Maximum number of bytes that one request returns.
const BYTES_MAX: i32 = 1 << 20;

/// The key of the last message of each partition, which no log and no set has.
const END: Bytes = Bytes::from_static(b"end");

/// Appends a message to each partition. A follower that was restarted and truncated its log, and was in sync again, was seen to
/// show an old end until the next message came (Kafka 3.9.0 and 4.1.0), probably because the leader does not repeat an end
/// within a session of fetches.
pub(crate) async fn append_ends(place: &NodePlace, deadline: Instant) -> Result<(), KafkaError> {
    let mut connection = KafkaConnection::open(place.address, deadline).await?;
    let answer = connection.ask(&messages::metadata(), deadline).await?;
    for partition in messages::partitions(answer)? {
        let number = partition.partition_index;
        let ip = leader(&partition).and_then(|node| place.ip_of(node));
        let ip = ip.ok_or(KafkaError::NoLeader(number))?;
        let address = SocketAddr::new(ip, place.address.port());
        let limit = deadline.saturating_duration_since(Instant::now());
        let request = messages::produce(number, &END, 0, messages::ALL, limit)?;
        let mut connection = KafkaConnection::open(address, deadline).await?;
        messages::produced(&connection.ask(&request, deadline).await?)?;
    }
    Ok(())
}

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
