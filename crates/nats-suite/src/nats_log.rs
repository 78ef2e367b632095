//! The client of the workload `log`: a subject for each log, and the sequence of a message in the stream as its offset.

use crate::jetstream_streams::{DATA, log_subject};
use crate::nats_connection::{NatsConnection, NatsError};
use seatrial_history::{Key, LogMop, Op, OpType, Symbol, Value};
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError};
use seatrial_suite::assigned_positions;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of messages of one log in a poll.
const POLLED_MAX: usize = 32;

const NODE: Symbol = Symbol::new("node");
const ERROR: Symbol = Symbol::new("error");

/// The logs that a client polls, with the sequence from which it polls each.
///
/// The positions are lost with the connection, so an operation that loses it has an unknown outcome, also if it only polls: a
/// failed process would continue with a client that begins at the beginning.
pub(crate) struct NatsLog {
    connection: NatsConnection,
    node: NodeId,
    /// Time limit of an operation.
    limit: Duration,
    reads_anywhere: bool,
    positions: BTreeMap<Key, i64>,
    is_broken: bool,
}

impl Client for NatsLog {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            if op.f == "assign" {
                self.assign(op)?;
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

    fn is_usable(&self) -> bool {
        !self.is_broken
    }
}

impl NatsLog {
    pub(crate) fn new(
        connection: NatsConnection,
        node: NodeId,
        limit: Duration,
        reads_anywhere: bool,
    ) -> NatsLog {
        NatsLog {
            connection,
            node,
            limit,
            reads_anywhere,
            positions: BTreeMap::new(),
            is_broken: false,
        }
    }

    /// Assigns logs to the client. It keeps its position in logs that it had before, unless it must seek to the beginning.
    fn assign(&mut self, op: &Op) -> Result<(), String> {
        let from_start = op.extra.get("seek-to-beginning?") == Some(&Value::Bool(true));
        self.positions = assigned_positions(&op.value, &self.positions, from_start, 1)?;
        Ok(())
    }

    /// Executes micro-operations one after the other, and writes their results into them.
    async fn execute(&mut self, mops: &mut [LogMop]) -> Result<(), NatsError> {
        let deadline = Instant::now() + self.limit;
        let mut positions = self.positions.clone();
        for mop in mops {
            match mop {
                LogMop::Send { key, offset, value } => {
                    let sent = self.connection.publish(log_subject(key), *value, None);
                    *offset = Some(sent.await?);
                }
                LogMop::Poll { messages } => {
                    let mut all = Vec::new();
                    for (key, position) in &mut positions {
                        let polled = self.poll(key, *position, deadline).await?;
                        if let Some((last, _)) = polled.last() {
                            *position = last + 1;
                            all.push((key.clone(), polled));
                        }
                    }
                    *messages = Some(all);
                }
            }
        }
        self.positions = positions;
        Ok(())
    }

    /// The next messages of a log.
    async fn poll(
        &self,
        key: &Key,
        position: i64,
        deadline: Instant,
    ) -> Result<Vec<(i64, i64)>, NatsError> {
        let subject = log_subject(key);
        let (mut found, mut from) = (Vec::new(), position);
        while found.len() < POLLED_MAX && Instant::now() < deadline {
            let next = self
                .connection
                .next(DATA, &subject, from, self.reads_anywhere);
            let Some(message) = next.await? else {
                break;
            };
            found.push((message.sequence, message.number));
            from = message.sequence + 1;
        }
        Ok(found)
    }

    fn completion(&mut self, op: &Op, mops: &[LogMop], executed: Result<(), NatsError>) -> Op {
        let Err(error) = executed else {
            let node = Value::text(self.node.to_string());
            return op.complete(OpType::Ok, Value::log(mops)).with(NODE, node);
        };
        self.is_broken |= !error.leaves_usable();
        let has_sent = |mop: &LogMop| {
            matches!(
                mop,
                LogMop::Send {
                    offset: Some(_),
                    ..
                }
            )
        };
        let sends = mops.iter().any(|mop| matches!(mop, LogMop::Send { .. }));
        let is_definite = error.is_definite() || !sends;
        let kind = if !is_definite || mops.iter().any(has_sent) || self.is_broken {
            OpType::Info
        } else {
            OpType::Fail
        };
        op.complete(kind, op.value.clone())
            .with(ERROR, Value::text(error.to_string()))
    }
}
