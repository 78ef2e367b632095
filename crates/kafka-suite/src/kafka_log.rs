//! The client of the workload `log`: messages with a log's key, in the partition that has this key.
//!
//! Several logs share a partition, so the offsets of one have gaps. A poll fetches each partition once, from the smallest
//! position of its logs.

use crate::kafka_error::KafkaError;
use crate::partition_leaders::PartitionLeaders;
use crate::record_batches::PartitionMessage;
use bytes::Bytes;
use seatrial_history::{Key, LogMop, Op, OpType, Symbol, Value};
use seatrial_runner::{BoxFuture, Client, ClientError};
use seatrial_suite::assigned_positions;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum number of bytes of one partition in a poll: about 200 messages.
const POLLED_BYTES_MAX: i32 = 16 << 10;

/// How long a poll without messages takes. A leader that was replaced and does not know it has none either, and the last polls of
/// a test end after a hundred of them.
const EMPTY: Duration = Duration::from_millis(100);

const NODE: Symbol = Symbol::new("node");
const ERROR: Symbol = Symbol::new("error");

/// The logs that a client polls, with the offset from which it polls each.
///
/// A poll that fails leaves the positions as they were, so the client can go on with them.
pub(crate) struct KafkaLog {
    leaders: PartitionLeaders,
    /// Time limit of an operation.
    limit: Duration,
    positions: BTreeMap<Key, i64>,
}

impl Client for KafkaLog {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            if op.f == "assign" {
                let from_start = op.extra.get("seek-to-beginning?") == Some(&Value::Bool(true));
                self.positions = assigned_positions(&op.value, &self.positions, from_start, 0)?;
                return Ok(op.complete(OpType::Ok, op.value.clone()));
            }
            let Some(mut mops) = op.value.as_log() else {
                let reason = format!("{} of {}: no request of a log", op.f, op.value);
                return Ok(op
                    .complete(OpType::Fail, op.value.clone())
                    .with(ERROR, Value::text(reason)));
            };
            let executed = self.execute(&mut mops).await;
            Ok(self.completion(op, &mops, executed))
        })
    }
}

impl KafkaLog {
    pub(crate) fn new(leaders: PartitionLeaders, limit: Duration) -> KafkaLog {
        KafkaLog {
            leaders,
            limit,
            positions: BTreeMap::new(),
        }
    }

    /// Executes micro-operations one after the other, and writes their results into them. The error: whether a message had been
    /// sent before, and why the next micro-operation has no result.
    async fn execute(&mut self, mops: &mut [LogMop]) -> Result<(), (bool, KafkaError)> {
        let deadline = Instant::now() + self.limit;
        let mut has_sent = false;
        let mut positions = self.positions.clone();
        for mop in mops {
            match mop {
                LogMop::Send { key, offset, value } => {
                    let sent = self.send(key, *value, deadline).await;
                    *offset = sent.map_err(|error| (has_sent, error))?;
                    has_sent = true;
                }
                LogMop::Poll { messages } => {
                    let polled = self.poll(&mut positions, deadline).await;
                    *messages = Some(polled.map_err(|error| (has_sent, error))?);
                }
            }
        }
        self.positions = positions;
        Ok(())
    }

    async fn send(
        &mut self,
        key: &Key,
        value: i64,
        deadline: Instant,
    ) -> Result<Option<i64>, KafkaError> {
        let partition = self.leaders.partition_of(key);
        let key = Bytes::from(key.to_string());
        self.leaders.produce(partition, &key, value, deadline).await
    }

    /// The next messages of all logs that have some. Moves the positions behind them. If there are none, it takes a while, and
    /// fails unless the leaders know that they show all that was acknowledged.
    async fn poll(
        &mut self,
        positions: &mut BTreeMap<Key, i64>,
        deadline: Instant,
    ) -> Result<Vec<(Key, Vec<(i64, i64)>)>, KafkaError> {
        let mut first: BTreeMap<i32, i64> = BTreeMap::new();
        let mut partitions = BTreeMap::new();
        for (key, position) in &*positions {
            let partition = self.leaders.partition_of(key);
            partitions.insert(key.clone(), partition);
            let known = first.entry(partition).or_insert(*position);
            *known = (*known).min(*position);
        }
        let mut fetched = BTreeMap::new();
        for (&partition, &offset) in &first {
            let records = self
                .leaders
                .fetch(partition, offset, POLLED_BYTES_MAX, deadline);
            fetched.insert(partition, records.await?);
        }
        let mut all = Vec::new();
        for (key, position) in positions {
            let Some(records) = partitions.get(key).and_then(|found| fetched.get(found)) else {
                continue;
            };
            let polled = polled(&records.messages, &key.to_string(), *position);
            *position = records.next.unwrap_or(0).max(*position);
            if !polled.is_empty() {
                all.push((key.clone(), polled));
            }
        }
        if all.is_empty() && !first.is_empty() {
            sleep_until(deadline.min(Instant::now() + EMPTY)).await;
            for partition in first.into_keys() {
                self.leaders.end(partition, deadline).await?;
            }
        }
        Ok(all)
    }

    fn completion(&self, op: &Op, mops: &[LogMop], executed: Result<(), (bool, KafkaError)>) -> Op {
        let Err((has_sent, error)) = executed else {
            let node = Value::text(self.leaders.node().to_string());
            return op.complete(OpType::Ok, Value::log(mops)).with(NODE, node);
        };
        let sends = mops.iter().any(|mop| matches!(mop, LogMop::Send { .. }));
        let kind = if has_sent || (sends && !error.is_definite()) {
            OpType::Info
        } else {
            OpType::Fail
        };
        op.complete(kind, op.value.clone())
            .with(ERROR, Value::text(error.to_string()))
    }
}

/// Offsets and numbers of the messages of a log from this offset on.
fn polled(messages: &[PartitionMessage], key: &str, from: i64) -> Vec<(i64, i64)> {
    let own = messages
        .iter()
        .filter(|message| message.key == key && message.offset >= from);
    own.map(|message| (message.offset, message.number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_its_own_messages_of_a_partition() {
        let message = |offset, key: &'static str| PartitionMessage {
            offset,
            key: Bytes::from_static(key.as_bytes()),
            number: 10 * offset,
        };
        let all = [message(3, "1"), message(4, "2"), message(5, "1")];
        assert_eq!(polled(&all, "1", 0), [(3, 30), (5, 50)]);
        assert_eq!(polled(&all, "1", 4), [(5, 50)]);
        assert_eq!(polled(&all, "3", 0), []);
    }
}
