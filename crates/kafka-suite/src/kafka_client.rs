//! The clients of a test: requests as messages.
//!
//! | data | in Kafka |
//! | --- | --- |
//! | set | a message for each element, in the partition of its key; a read fetches that partition up to its end |
//! | unique ids | the offset of a message in one partition |

use crate::kafka_error::KafkaError;
use crate::kafka_log::KafkaLog;
use crate::partition_leaders::PartitionLeaders;
use bytes::Bytes;
use seatrial_history::{Key, Value};
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_suite::{DataRequest, DataStore, StoreAnswer, StoreClient, StoreRefusal};
use std::time::Duration;
use tokio::time::Instant;

/// Opens clients.
pub(crate) struct KafkaClients {
    /// Time limit of an operation.
    pub(crate) timeout: Duration,
    /// The workload; empty if the operations come from a plan.
    pub(crate) workload: &'static str,
    /// Number of brokers.
    pub(crate) brokers: u32,
    /// Acknowledgements: -1 (all replicas in sync), 1 or 0.
    pub(crate) acks: i16,
}

impl Clients for KafkaClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            // An operation ends before its time limit, so that its completion can say why.
            let limit = self.timeout * 9 / 10;
            let deadline = Instant::now() + limit;
            let leaders = PartitionLeaders::open(slot, self.brokers, self.acks, deadline).await?;
            if self.workload == "log" {
                return Ok(Box::new(KafkaLog::new(leaders, limit)) as Box<dyn Client>);
            }
            Ok(StoreClient::boxed(KafkaStore { leaders, limit }))
        })
    }
}

/// The client of one worker. It opens lost connections again by itself.
struct KafkaStore {
    leaders: PartitionLeaders,
    /// Time limit of an operation.
    limit: Duration,
}

/// Maximum number of bytes that one request of a read returns.
const READ_BYTES_MAX: i32 = 1 << 20;

/// The key of messages that are there for their offsets.
const IDS: i64 = 0;

impl DataStore for KafkaStore {
    fn execute<'a>(
        &'a mut self,
        request: DataRequest<'a>,
    ) -> BoxFuture<'a, Result<StoreAnswer, StoreRefusal>> {
        Box::pin(async move {
            let deadline = Instant::now() + self.limit;
            let answer = match request {
                DataRequest::Add(key, element) => {
                    let added = self.append(key, element, deadline).await;
                    added.map_err(|error| error.of_write())?;
                    StoreAnswer::done()
                }
                DataRequest::Read(key) => {
                    let elements = self.elements(key, deadline).await;
                    let elements = elements.map_err(|error| error.of_read())?;
                    StoreAnswer::value(Value::integer_set(&elements))
                }
                DataRequest::Generate => {
                    let offset = self.append(&Key::Int(IDS), 0, deadline).await;
                    let offset = offset.map_err(|error| error.of_write())?;
                    let offset = offset.ok_or_else(|| StoreRefusal::unknown("no offset"))?;
                    StoreAnswer::value(Value::Int(offset))
                }
                other => {
                    let reason = format!("{other:?}: Kafka has no such data");
                    return Err(StoreRefusal::Failed(reason));
                }
            };
            Ok(answer.from(self.leaders.node()))
        })
    }
}

impl KafkaStore {
    /// Appends a message. The offset is unknown with `acks=0`.
    async fn append(
        &mut self,
        key: &Key,
        number: i64,
        deadline: Instant,
    ) -> Result<Option<i64>, KafkaError> {
        let partition = self.leaders.partition_of(key);
        let key = Bytes::from(key.to_string());
        self.leaders
            .produce(partition, &key, number, deadline)
            .await
    }

    /// All elements of a set.
    async fn elements(&mut self, key: &Key, deadline: Instant) -> Result<Vec<i64>, KafkaError> {
        let partition = self.leaders.partition_of(key);
        let key = key.to_string();
        let end = self.leaders.end(partition, deadline).await?;
        let (mut found, mut from) = (Vec::new(), 0);
        while from < end {
            if Instant::now() >= deadline {
                return Err(KafkaError::Late);
            }
            let records = self
                .leaders
                .fetch(partition, from, READ_BYTES_MAX, deadline)
                .await?;
            let Some(next) = records.next.filter(|next| *next > from) else {
                let reason = format!("no message at offset {from}, though the end was {end}");
                return Err(KafkaError::Lost(reason));
            };
            let own = records.messages.iter().filter(|message| message.key == key);
            found.extend(own.map(|message| message.number));
            from = next;
        }
        Ok(found)
    }
}
