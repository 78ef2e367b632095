//! The operations of each workload as requests to a node.

use crate::consumer::KafkaConsumer;
use crate::error_code::{KEY_DOES_NOT_EXIST, PRECONDITION_FAILED};
use crate::node_message::body;
use crate::rpc::{CallReply, RpcClient, RpcError};
use seatrial_history::{Key, Mop, Observed, Op, OpType, Value};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// How the operations of a workload become requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// `echo`.
    Echo,
    /// `generate`.
    UniqueIds,
    /// `broadcast` and `read`.
    Broadcast,
    /// `add` of elements, and `read`.
    Set,
    /// `add` of differences, and `read`.
    Counter,
    /// `read`, `write`, `cas` of keys.
    Registers,
    /// `txn`.
    Transactions,
    /// `send`, `poll`, `commit_offsets`, `list_committed_offsets`.
    Logs,
}

impl Exchange {
    /// Executes one operation and returns its completion.
    pub(crate) async fn execute(
        self,
        rpc: &mut RpcClient,
        consumer: &mut KafkaConsumer,
        op: &Op,
    ) -> Result<Op, RpcError> {
        match self {
            Exchange::Echo => echo(rpc, op).await,
            Exchange::UniqueIds => generate(rpc, op).await,
            Exchange::Broadcast => set(rpc, op, ("broadcast", "message"), "messages").await,
            Exchange::Set => set(rpc, op, ("add", "element"), "value").await,
            Exchange::Counter => counter(rpc, op).await,
            Exchange::Registers => register(rpc, op).await,
            Exchange::Transactions => transaction(rpc, op).await,
            Exchange::Logs => consumer.execute(rpc, op).await,
        }
    }
}

/// The error for an operation that the workload does not have.
pub(crate) fn cannot(op: &Op) -> RpcError {
    RpcError::Operation(format!(
        "{} of {}: no operation of this workload",
        op.f, op.value
    ))
}

async fn echo(rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
    let reply = rpc
        .call(body("echo", [("echo", json_of(&op.value))]))
        .await?;
    let echoed = reply.field("echo", "what was sent", |echo| Some(value_of(echo)))?;
    Ok(op.complete(OpType::Ok, echoed))
}

async fn generate(rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
    let reply = rpc.call(body("generate", [])).await?;
    let id = reply.field("id", "an identifier", |id| {
        (!id.is_null()).then(|| value_of(id))
    })?;
    Ok(op.complete(OpType::Ok, id))
}

/// Adds an element with the request `(type, field)`, or reads all from the field `elements`.
async fn set(
    rpc: &mut RpcClient,
    op: &Op,
    (add, field): (&'static str, &'static str),
    elements: &str,
) -> Result<Op, RpcError> {
    if op.f == "add" {
        let element = argument(op).as_int().ok_or_else(|| cannot(op))?;
        rpc.call(body(add, [(field, element.into())])).await?;
        return Ok(op.complete(OpType::Ok, op.value.clone()));
    }
    let reply = rpc.call(body("read", [])).await?;
    let read = reply.field(elements, "a list of integers", integers)?;
    Ok(op.complete(OpType::Ok, keyed(op, Value::integers(&read))))
}

fn integers(list: &Json) -> Option<Vec<i64>> {
    list.as_array()?.iter().map(Json::as_i64).collect()
}

async fn counter(rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
    if op.f == "add" {
        let delta = argument(op).as_int().ok_or_else(|| cannot(op))?;
        rpc.call(body("add", [("delta", delta.into())])).await?;
        return Ok(op.complete(OpType::Ok, op.value.clone()));
    }
    let reply = rpc.call(body("read", [])).await?;
    let sum = reply.field("value", "an integer", Json::as_i64)?;
    Ok(op.complete(OpType::Ok, keyed(op, Value::Int(sum))))
}

async fn register(rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
    let Value::Keyed(key, argument) = &op.value else {
        return Err(cannot(op));
    };
    let key = key_json(key);
    let request = match (op.f.as_str(), &**argument) {
        ("read", _) => body("read", [("key", key)]),
        ("write", Value::Int(value)) => body("write", [("key", key), ("value", (*value).into())]),
        ("cas", Value::Cas(from, to)) => body(
            "cas",
            [("key", key), ("from", (*from).into()), ("to", (*to).into())],
        ),
        _ => return Err(cannot(op)),
    };
    let value = match rpc.call(request).await {
        Ok(reply) if op.f == "read" => {
            reply.field("value", "an integer or null", |value| match value {
                Json::Null => Some(Value::Nil),
                value => value.as_i64().map(Value::Int),
            })?
        }
        Ok(_) => (**argument).clone(),
        // A register that was never written.
        Err(error) if op.f == "read" && error.has_code(KEY_DOES_NOT_EXIST) => Value::Nil,
        Err(error) if op.f == "cas" && error.has_code(PRECONDITION_FAILED) => {
            return Ok(op.complete(OpType::Fail, op.value.clone()));
        }
        Err(error) => return Err(error),
    };
    Ok(op.complete(OpType::Ok, keyed(op, value)))
}

async fn transaction(rpc: &mut RpcClient, op: &Op) -> Result<Op, RpcError> {
    let mops = op.value.as_txn().ok_or_else(|| cannot(op))?;
    let asked: Vec<Json> = mops.iter().map(mop_json).collect();
    let reply = rpc.call(body("txn", [("txn", asked.into())])).await?;
    let answered = reply.field("txn", "a list", |txn| txn.as_array().cloned())?;
    if answered.len() != mops.len() {
        let expected = format!("txn: {} micro-operations", mops.len());
        return Err(reply.malformed(&expected));
    }
    let pairs = mops.iter().zip(&answered);
    let done: Result<Vec<Mop>, RpcError> = pairs
        .map(|(mop, answer)| answered_mop(&reply, mop, answer))
        .collect();
    Ok(op.complete(OpType::Ok, Value::Txn(done?.into())))
}

fn mop_json(mop: &Mop) -> Json {
    match mop {
        Mop::Append { key, element } => json!(["append", key_json(key), element]),
        Mop::Write { key, value } => json!(["w", key_json(key), value]),
        Mop::Read { key, .. } => json!(["r", key_json(key), null]),
    }
}

/// The micro-operation as the node completed it. Function and key must be those of the request; so must the value of a write.
fn answered_mop(reply: &CallReply, asked: &Mop, answer: &Json) -> Result<Mop, RpcError> {
    let expected = mop_json(asked);
    let wrong = || reply.malformed(&format!("{expected} with its result, found {answer}"));
    let parts = answer.as_array().filter(|parts| parts.len() == 3);
    let parts = parts.ok_or_else(wrong)?;
    if parts[0] != expected[0] || parts[1] != expected[1] {
        return Err(wrong());
    }
    let Mop::Read { key, .. } = asked else {
        return if parts[2] == expected[2] {
            Ok(asked.clone())
        } else {
            Err(wrong())
        };
    };
    let observed = match &parts[2] {
        Json::Null => Observed::Nil,
        Json::Array(_) => Observed::List(integers(&parts[2]).ok_or_else(wrong)?.into()),
        value => Observed::Register(value.as_i64().ok_or_else(wrong)?),
    };
    Ok(Mop::Read {
        key: key.clone(),
        observed,
    })
}

/// The operation's value without its key.
fn argument(op: &Op) -> &Value {
    match &op.value {
        Value::Keyed(_, value) => value,
        value => value,
    }
}

/// Adds the operation's key to a value, if it has one.
fn keyed(op: &Op, value: Value) -> Value {
    match &op.value {
        Value::Keyed(key, _) => Value::Keyed(key.clone(), Arc::new(value)),
        _ => value,
    }
}

fn key_json(key: &Key) -> Json {
    match key {
        Key::Int(number) => (*number).into(),
        key => key.to_string().into(),
    }
}

/// A value as JSON; what JSON has no form for, as text.
fn json_of(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        Value::Text(text) => (&**text).into(),
        Value::List(items) => items.iter().map(json_of).collect(),
        other => other.to_string().into(),
    }
}

/// JSON as a value.
fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::text(text.as_str()),
        Json::Array(items) => Value::List(items.iter().map(value_of).collect()),
        Json::Object(fields) => {
            let pairs = fields.iter();
            let pairs = pairs.map(|(name, value)| (Value::text(name.as_str()), value_of(value)));
            Value::Map(pairs.collect())
        }
    }
}
