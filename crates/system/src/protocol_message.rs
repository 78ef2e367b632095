//! Messages of the client protocol, one JSON object a line. `docs/formats/client-protocol.md` specifies them.

use crate::value_shape::{completed, from_json, key_json, shape_of, to_json};
use seatrial_checker::CLIENT_FAULT;
use seatrial_history::{Op, OpType, Symbol, Value};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The version of the protocol.
pub const PROTOCOL_VERSION: u64 = 1;
/// Longest line that a client may write, in bytes.
pub(crate) const LINE_LENGTH_MAX: usize = 1 << 20;
/// Fields of its own that a completion may have.
const FIELDS_MAX: usize = 16;
/// Characters of a line that messages show.
const SHOWN_MAX: usize = 200;

/// The field with the error of a completion.
const ERROR: Symbol = Symbol::new("error");

/// The first message of the bench.
pub(crate) fn hello(workload: Option<&str>, options: &Map<String, Json>) -> String {
    let message = json!({
        "type": "hello", "protocol": PROTOCOL_VERSION, "workload": workload, "options": options,
    });
    format!("{message}\n")
}

/// Opens a worker.
pub(crate) fn open(
    worker: u32,
    node: &str,
    address: &str,
    addresses: &BTreeMap<String, String>,
    deadline: Duration,
) -> String {
    let message = json!({
        "type": "open", "worker": worker, "node": node, "address": address, "addresses": addresses,
        "deadline_ms": deadline.as_millis() as u64,
    });
    format!("{message}\n")
}

/// Closes a worker.
pub(crate) fn close(worker: u32) -> String {
    format!("{{\"type\":\"close\",\"worker\":{worker}}}\n")
}

/// Appends the invocation of an operation.
pub(crate) fn invoke(out: &mut String, id: u64, worker: u32, op: &Op, deadline: Duration) {
    use std::fmt::Write as _;
    let deadline = deadline.as_millis();
    // A String takes every write.
    let _ = write!(
        out,
        "{{\"type\":\"invoke\",\"id\":{id},\"worker\":{worker},\"f\":{}",
        Json::from(op.f.as_str())
    );
    let value = match &op.value {
        Value::Keyed(key, value) => {
            let _ = write!(out, ",\"key\":{}", key_json(key));
            value.as_ref()
        }
        value => value,
    };
    match value {
        Value::Nil => out.push_str(",\"value\":null"),
        Value::Int(number) => drop(write!(out, ",\"value\":{number}")),
        value => drop(write!(out, ",\"value\":{}", to_json(value))),
    }
    if !op.extra.is_empty() {
        let extra = op.extra.iter();
        let extra = extra.map(|(name, value)| (name.as_str().to_owned(), to_json(value)));
        let _ = write!(out, ",\"extra\":{}", Json::Object(extra.collect()));
    }
    let _ = writeln!(out, ",\"deadline_ms\":{deadline}}}");
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// It speaks this version.
    Hello(u64),
    /// The worker is open.
    Opened(u32),
    /// The worker cannot be opened, and why.
    OpenFailed(u32, String),
    /// The worker is closed.
    Closed(u32),
    /// An operation has completed.
    Completion(ClientCompletion),
}

/// The completion of an operation, as the client wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCompletion {
    /// The operation.
    pub(crate) id: u64,
    /// Its outcome.
    pub(crate) kind: OpType,
    /// The whole message.
    fields: Map<String, Json>,
}

/// Reads a line of a client.
pub(crate) fn read(line: &[u8]) -> Result<Reply, String> {
    let parsed: Result<Json, _> = serde_json::from_slice(line);
    let parsed =
        parsed.map_err(|_| format!("expected a line with a JSON object, got {}", shown(line)))?;
    let Json::Object(fields) = parsed else {
        return Err(format!("expected a JSON object, got {}", shown(line)));
    };
    let wrong = |expected: &str| format!("expected {expected}, got {}", shown(line));
    let number = |name: &str| {
        let number = fields.get(name).and_then(Json::as_u64);
        number.ok_or_else(|| wrong(&format!("a whole number as `{name}`")))
    };
    let worker = || {
        let number = u32::try_from(number("worker")?);
        number.map_err(|_| wrong("the number of a worker as `worker`"))
    };
    let kind = match fields.get("type").and_then(Json::as_str) {
        Some("hello") => return Ok(Reply::Hello(number("protocol")?)),
        Some("opened") => return Ok(Reply::Opened(worker()?)),
        Some("closed") => return Ok(Reply::Closed(worker()?)),
        Some("open_failed") => return Ok(Reply::OpenFailed(worker()?, error_text(&fields))),
        Some("ok") => OpType::Ok,
        Some("fail") => OpType::Fail,
        Some("info") => OpType::Info,
        _ => {
            return Err(wrong(
                "`type` to be hello, opened, open_failed, closed, ok, fail or info",
            ));
        }
    };
    let id = number("id")?;
    Ok(Reply::Completion(ClientCompletion { id, kind, fields }))
}

fn error_text(fields: &Map<String, Json>) -> String {
    match fields.get("error") {
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "no reason given".into(),
    }
}

/// The beginning of a line, for messages.
pub(crate) fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN_MAX)]);
    let begin: String = text.chars().take(SHOWN_MAX).collect();
    let rest = if begin.len() < line.len() { "…" } else { "" };
    format!("{begin:?}{rest}")
}

impl ClientCompletion {
    /// The completion of `op`, or what is wrong with it.
    pub(crate) fn of(&self, op: &Op, workload: Option<&str>) -> Result<Op, String> {
        let (key, invoked) = match &op.value {
            Value::Keyed(key, value) => (Some(key), value.as_ref()),
            value => (None, value),
        };
        let shape = shape_of(workload, op.f.as_str(), invoked);
        let given = self.fields.get("value");
        let value = match (self.kind, given) {
            (OpType::Ok, given) => completed(shape, invoked, given),
            (_, None | Some(Json::Null)) => Some(invoked.clone()),
            // What may have happened, such as the element that may have been taken.
            (_, given) => completed(shape, invoked, given)
                .or_else(|| completed(crate::value_shape::ValueShape::Same, invoked, given)),
        };
        let value = value.ok_or_else(|| {
            let got = given.map_or_else(
                || "nothing".to_owned(),
                |json| shown(json.to_string().as_bytes()),
            );
            format!(
                "`{}` of {} {}: expected {shape} as its value, got {got}",
                op.f,
                op.value,
                self.kind_name()
            )
        })?;
        let value = match key {
            Some(key) => Value::Keyed(key.clone(), Arc::new(value)),
            None => value,
        };
        let mut done = op.complete(self.kind, value);
        if self.kind != OpType::Ok && self.fields.contains_key("error") {
            done = done.with(ERROR, Value::text(error_text(&self.fields)));
        }
        self.own_fields(op, done)
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            OpType::Ok => "ok",
            OpType::Fail => "fail",
            _ => "info",
        }
    }

    /// Adds the fields that the protocol has no meaning for, such as the node that answered.
    fn own_fields(&self, op: &Op, mut done: Op) -> Result<Op, String> {
        const KNOWN: [&str; 5] = ["type", "id", "value", "key", "error"];
        let mut count = 0;
        for (name, value) in &self.fields {
            if KNOWN.contains(&name.as_str()) {
                continue;
            }
            count += 1;
            let symbol =
                Symbol::intern(name).filter(|_| count <= FIELDS_MAX && name != CLIENT_FAULT);
            let value = from_json(value);
            let Some((symbol, value)) = symbol.zip(value) else {
                let name = shown(name.as_bytes());
                return Err(format!(
                    "`{}` of {}: the field {name} cannot be recorded",
                    op.f, op.value
                ));
            };
            done = done.with(symbol, value);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{Key, Process};

    fn read_op() -> Op {
        let value = Value::Keyed(Key::Int(3), Arc::new(Value::Nil));
        Op::invoke(Process::Client(0), "read", value)
    }

    fn completion(line: &str) -> ClientCompletion {
        match read(line.as_bytes()) {
            Ok(Reply::Completion(completion)) => completion,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn operations_are_lines() {
        let mut line = String::new();
        invoke(&mut line, 7, 2, &read_op(), Duration::from_secs(2));
        let expected = "{\"type\":\"invoke\",\"id\":7,\"worker\":2,\"f\":\"read\",\"key\":3,\"value\":null,\"deadline_ms\":2000}\n";
        assert_eq!(line, expected);
        assert_eq!(close(4), "{\"type\":\"close\",\"worker\":4}\n");
    }

    #[test]
    fn completions_are_checked() {
        let op = read_op();
        let done = completion(r#"{"type":"ok","id":7,"value":5,"node":"n2"}"#)
            .of(&op, Some("register"))
            .unwrap();
        assert_eq!(done.value.to_string(), "[3 5]");
        assert_eq!(done.extra.get("node"), Some(&Value::text("n2")));
        let failed = completion(r#"{"type":"fail","id":7,"error":"refused"}"#)
            .of(&op, Some("register"))
            .unwrap();
        assert_eq!(
            (failed.kind, failed.extra.get("error")),
            (OpType::Fail, Some(&Value::text("refused")))
        );
        let error = completion(r#"{"type":"ok","id":7,"value":"5"}"#)
            .of(&op, Some("register"))
            .unwrap_err();
        assert_eq!(
            error,
            "`read` of [3 nil] ok: expected an integer or null as its value, got \"\\\"5\\\"\""
        );
        let error = completion(r#"{"type":"ok","id":7}"#)
            .of(&op, Some("register"))
            .unwrap_err();
        assert!(error.ends_with("got nothing"), "{error}");
        let error = completion(r#"{"type":"ok","id":7,"value":1,"client_fault":"x"}"#)
            .of(&op, None)
            .unwrap_err();
        assert!(error.contains("cannot be recorded"), "{error}");
    }

    #[test]
    fn other_lines_are_errors() {
        assert_eq!(
            read(br#"{"type":"hello","protocol":1}"#),
            Ok(Reply::Hello(1))
        );
        assert_eq!(
            read(br#"{"type":"open_failed","worker":1,"error":"no"}"#),
            Ok(Reply::OpenFailed(1, "no".into()))
        );
        for (line, text) in [
            (
                "ready!",
                "expected a line with a JSON object, got \"ready!\"",
            ),
            ("[1]", "expected a JSON object, got"),
            (
                r#"{"type":"okay","id":1}"#,
                "expected `type` to be hello, opened",
            ),
            (
                r#"{"type":"ok","id":"1"}"#,
                "expected a whole number as `id`",
            ),
            (
                r#"{"type":"opened"}"#,
                "expected a whole number as `worker`",
            ),
            (
                r#"{"type":"opened","worker":5000000000}"#,
                "the number of a worker",
            ),
        ] {
            let error = read(line.as_bytes()).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(deep.as_bytes()).is_err());
        let long = shown(&[b'x'; 5_000]);
        assert!(long.len() < 300, "{long}");
    }
}
