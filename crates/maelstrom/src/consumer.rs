//! The client of the workload `kafka`: it polls the logs that it is assigned, from the offset after the last message that it saw.

use crate::exchange::cannot;
use crate::node_message::body;
use crate::rpc::{CallReply, RpcClient, RpcError};
use seatrial_history::{Key, LogMop, Op, OpType, Value};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The messages of one log, each after its offset.
type PolledLog = Vec<(i64, i64)>;

/// The logs that a client polls, with the offset from which it polls each.
#[derive(Clone, Debug, Default)]
pub(crate) struct KafkaConsumer {
    positions: BTreeMap<String, (Key, i64)>,
}

impl KafkaConsumer {
    /// Executes one operation: `assign`, or a single `send` or `poll`. A poll commits the offsets that it reached; an assignment
    /// begins after the committed offsets, or at the beginning if it says so.
    pub(crate) async fn execute(&mut self, rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
        if op.f == "assign" {
            self.assign(rpc, op).await?;
            return Ok(op.complete(OpType::Ok, op.value.clone()));
        }
        let mut mops = op.value.as_log().ok_or_else(|| cannot(op))?;
        let [mop] = &mut mops[..] else {
            return Err(RpcError::Operation(format!(
                "{} of {}: the protocol has no transactions of logs",
                op.f, op.value
            )));
        };
        match mop {
            LogMop::Send { key, value, offset } => {
                let fields = [("key", key.to_string().into()), ("msg", (*value).into())];
                let reply = rpc.call(body("send", fields)).await?;
                *offset = Some(reply.field("offset", "an integer", Json::as_i64)?);
            }
            LogMop::Poll { messages } => *messages = Some(self.poll(rpc).await?),
        }
        Ok(op.complete(OpType::Ok, Value::log(&mops)))
    }

    async fn assign(&mut self, rpc: &mut RpcClient, op: &Op) -> Result<(), RpcError> {
        let Value::List(keys) = &op.value else {
            return Err(cannot(op));
        };
        let keys: Option<Vec<Key>> = keys.iter().map(Value::as_key).collect();
        let keys = keys.ok_or_else(|| cannot(op))?;
        let from_start = op.extra.get("seek-to-beginning?") == Some(&Value::Bool(true));
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let mut committed = BTreeMap::new();
        if !from_start {
            let asked = body("list_committed_offsets", [("keys", names.clone().into())]);
            let reply = rpc.call(asked).await?;
            committed = reply.field("offsets", "offsets by key", offsets)?;
        }
        let known = std::mem::take(&mut self.positions);
        for (name, key) in names.into_iter().zip(keys) {
            let kept = known.get(&name).filter(|_| !from_start);
            let after = committed.get(&name).map_or(0, |offset| offset + 1);
            let position = kept.map_or(after, |(_, position)| *position);
            self.positions.insert(name, (key, position));
        }
        Ok(())
    }

    async fn poll(&mut self, rpc: &mut RpcClient) -> Result<Vec<(Key, PolledLog)>, RpcError> {
        let positions = self.positions.iter();
        let asked: Map<String, Json> = positions
            .map(|(name, (_, position))| (name.clone(), (*position).into()))
            .collect();
        let reply = rpc.call(body("poll", [("offsets", asked.into())])).await?;
        let logs = reply.field("msgs", "lists of [offset, message] by key", polled)?;
        let mut reached = Map::new();
        let mut messages = Vec::new();
        for (name, log) in logs {
            messages.extend(self.advance(&reply, name, log, &mut reached)?);
        }
        if !reached.is_empty() {
            // The poll has taken place, whatever becomes of the commit: without it messages are polled once more.
            let commit = body("commit_offsets", [("offsets", reached.into())]);
            let _ = rpc.call(commit).await;
        }
        Ok(messages)
    }

    /// Moves the position after the polled messages of one log.
    fn advance(
        &mut self,
        reply: &CallReply,
        name: String,
        log: PolledLog,
        reached: &mut Map<String, Json>,
    ) -> Result<Option<(Key, PolledLog)>, RpcError> {
        let Some((key, position)) = self.positions.get_mut(&name) else {
            return Err(reply.malformed(&format!("only polled keys, found {name:?}")));
        };
        let Some(&(last, _)) = log.last() else {
            return Ok(None);
        };
        *position = last + 1;
        reached.insert(name, last.into());
        Ok(Some((key.clone(), log)))
    }
}

fn offsets(json: &Json) -> Option<BTreeMap<String, i64>> {
    let fields = json.as_object()?.iter();
    let known = fields.filter(|(_, offset)| !offset.is_null());
    known
        .map(|(name, offset)| Some((name.clone(), offset.as_i64()?)))
        .collect()
}

/// Messages by key, each with its offset.
fn polled(json: &Json) -> Option<Vec<(String, PolledLog)>> {
    let pair = |pair: &Json| match pair.as_array()?.as_slice() {
        [offset, message] => Some((offset.as_i64()?, message.as_i64()?)),
        _ => None,
    };
    let fields = json.as_object()?.iter();
    fields
        .map(|(name, log)| {
            let log: Option<PolledLog> = log.as_array()?.iter().map(pair).collect();
            Some((name.clone(), log?))
        })
        .collect()
}
