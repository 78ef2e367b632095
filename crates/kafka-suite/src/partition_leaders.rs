//! The brokers that a client talks to: one that names the leaders, its own if that can be reached, and the leaders.

use crate::kafka_connection::KafkaConnection;
use crate::kafka_error::KafkaError;
use crate::kafka_messages::{self as messages, KafkaRequest};
use crate::record_batches::FetchedRecords;
use bytes::Bytes;
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use seatrial_history::Key;
use seatrial_machine::NodeId;
use seatrial_runner::ClientSlot;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The leaders of all partitions as the client's own broker names them, and connections to those that were needed. Another broker
/// is asked only while the own one accepts no connection.
///
/// A connection is given up at the first error that leaves an answer under way. The leaders are asked for again after each
/// error, before the next request; nothing is sent twice.
pub(crate) struct PartitionLeaders {
    slot: ClientSlot,
    /// All brokers, the client's own one first.
    brokers: Vec<NodeId>,
    acks: i16,
    connections: BTreeMap<NodeId, KafkaConnection>,
    /// At least one.
    partition_count: i64,
    /// By partition; empty if they must be asked for.
    leaders: Vec<Option<NodeId>>,
}

/// Pause after a refusal: it comes at once, and an election takes seconds, so attempts would soon be used up.
const REFUSED: Duration = Duration::from_millis(250);

/// The part of an operation's time within which a broker must acknowledge a message, so that its own error arrives in time.
const BROKER_SHARE: f64 = 0.8;

/// How long a message without an acknowledgement may take until its broker is done with it.
const HANDLED: Duration = Duration::from_millis(500);

impl PartitionLeaders {
    /// Connects to a broker and asks for the leaders.
    pub(crate) async fn open(
        slot: &ClientSlot,
        brokers: u32,
        acks: i16,
        deadline: Instant,
    ) -> Result<PartitionLeaders, KafkaError> {
        let all = (1..=brokers).map(NodeId::server);
        let others = all.filter(|node| *node != slot.node);
        let mut leaders = PartitionLeaders {
            slot: slot.clone(),
            brokers: std::iter::once(slot.node).chain(others).collect(),
            acks,
            connections: BTreeMap::new(),
            partition_count: 1,
            leaders: Vec::new(),
        };
        leaders.refresh(deadline).await?;
        Ok(leaders)
    }

    /// The client's own broker.
    pub(crate) fn node(&self) -> NodeId {
        self.slot.node
    }

    /// The partition that has this key.
    pub(crate) fn partition_of(&self, key: &Key) -> i32 {
        let number = match key {
            Key::Int(number) => *number,
            other => other.to_string().bytes().map(i64::from).sum(),
        };
        number.rem_euclid(self.partition_count) as i32
    }

    /// Asks the first broker that accepts a connection for the leaders.
    async fn refresh(&mut self, deadline: Instant) -> Result<(), KafkaError> {
        let request = messages::metadata();
        let mut answer = Err(KafkaError::NotSent("no broker".into()));
        for node in self.brokers.clone() {
            answer = self.ask(node, &request, deadline).await;
            if !matches!(answer, Err(KafkaError::NotSent(_))) {
                break;
            }
        }
        let partitions = messages::partitions(answer?)?;
        if partitions.is_empty() {
            return Err(KafkaError::Lost("a topic without partitions".into()));
        }
        self.partition_count = partitions.len() as i64;
        self.leaders = partitions.iter().map(leader).collect();
        Ok(())
    }

    /// Sends a request to a broker, over the connection that there is or a new one.
    async fn ask<R: KafkaRequest>(
        &mut self,
        node: NodeId,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Answer, KafkaError> {
        let mut connection = self.connection(node, deadline).await?;
        let answer = connection.ask(request, deadline).await?;
        self.connections.insert(node, connection);
        Ok(answer)
    }

    /// Takes the connection to a broker, or opens one.
    async fn connection(
        &mut self,
        node: NodeId,
        deadline: Instant,
    ) -> Result<KafkaConnection, KafkaError> {
        if let Some(connection) = self.connections.remove(&node) {
            return Ok(connection);
        }
        let address = self.slot.address_of(node);
        let address = address.map_err(|error| KafkaError::NotSent(error.to_string()))?;
        KafkaConnection::open(address, deadline).await
    }

    /// The leader of a partition.
    async fn leader(&mut self, partition: i32, deadline: Instant) -> Result<NodeId, KafkaError> {
        if self.leaders.is_empty() {
            let known = self.refresh(deadline).await;
            // No request of the caller was sent.
            known.map_err(|error| KafkaError::NotSent(format!("no metadata: {error}")))?;
        }
        let leader = usize::try_from(partition).ok();
        let leader = leader.and_then(|place| *self.leaders.get(place)?);
        leader.ok_or(KafkaError::NoLeader(partition))
    }

    /// Forgets the leaders after an error, and pauses if it came before the deadline.
    async fn noted<T>(
        &mut self,
        result: Result<T, KafkaError>,
        deadline: Instant,
    ) -> Result<T, KafkaError> {
        if result.is_err() {
            self.leaders.clear();
            sleep_until(deadline.min(Instant::now() + REFUSED)).await;
        }
        result
    }

    /// Appends a message to a partition. The offset is unknown with `acks=0`.
    pub(crate) async fn produce(
        &mut self,
        partition: i32,
        key: &Bytes,
        number: i64,
        deadline: Instant,
    ) -> Result<Option<i64>, KafkaError> {
        let produced = self.produce_once(partition, key, number, deadline).await;
        self.noted(produced, deadline).await
    }

    async fn produce_once(
        &mut self,
        partition: i32,
        key: &Bytes,
        number: i64,
        deadline: Instant,
    ) -> Result<Option<i64>, KafkaError> {
        let leader = self.leader(partition, deadline).await?;
        let limit = deadline
            .saturating_duration_since(Instant::now())
            .mul_f64(BROKER_SHARE);
        let request = messages::produce(partition, key, number, self.acks, limit)?;
        if self.acks == 0 {
            let mut connection = self.connection(leader, deadline).await?;
            connection.tell(&request, deadline).await?;
            // A broker handles the requests of a connection in order, so an answer to another one says that it is done with this:
            // what is read at the end of a test has not overtaken it. Whether it took the message is not known all the same.
            let handled = deadline.min(Instant::now() + HANDLED);
            let answer = connection.ask(&messages::metadata(), handled).await;
            if answer.is_ok() {
                self.connections.insert(leader, connection);
            }
            return Ok(None);
        }
        let answer = self.ask(leader, &request, deadline).await?;
        messages::produced(&answer).map(Some)
    }

    /// The messages of a partition from this offset on, as many as there are in this number of bytes.
    pub(crate) async fn fetch(
        &mut self,
        partition: i32,
        offset: i64,
        bytes_max: i32,
        deadline: Instant,
    ) -> Result<FetchedRecords, KafkaError> {
        let request = messages::fetch(partition, offset, bytes_max);
        let fetched = async {
            let leader = self.leader(partition, deadline).await?;
            let answer = self.ask(leader, &request, deadline).await?;
            messages::fetched(answer, offset)
        };
        let fetched = fetched.await;
        self.noted(fetched, deadline).await
    }

    /// The end of a partition, as consumers see it. A new leader refuses until that covers all that its predecessors have
    /// acknowledged (KIP-207); fetches from it only return less meanwhile.
    pub(crate) async fn end(
        &mut self,
        partition: i32,
        deadline: Instant,
    ) -> Result<i64, KafkaError> {
        let ended = async {
            let leader = self.leader(partition, deadline).await?;
            let answer = self
                .ask(leader, &messages::end(partition), deadline)
                .await?;
            messages::end_offset(&answer)
        };
        let ended = ended.await;
        self.noted(ended, deadline).await
    }
}

/// The leader of a partition: brokers have the numbers of their nodes.
pub(crate) fn leader(partition: &MetadataResponsePartition) -> Option<NodeId> {
    let number = u32::try_from(partition.leader_id.0).ok()?;
    (number > 0).then(|| NodeId::server(number))
}
