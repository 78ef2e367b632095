//! Porcupine's operations and events, as Go's `encoding/json` writes them.

use super::edn::{Form, SyntaxFault};
use super::json::JsonReader;
use super::operation_builder::OperationDraft;
use super::timed_rows::{RowHalf, RowSpan, RowTimes, half_kind};
use seatrial_history::{Extra, Key, Op, OpType, Process, Symbol, Value};

/// Does a JSON text begin with one of Porcupine's operations or events?
pub(super) fn is_porcupine(text: &str) -> bool {
    let object = text.split('}').next().unwrap_or_default();
    let has = |name: &str| object.contains(name);
    has("\"ClientId\"") && (has("\"Input\"") || has("\"Kind\""))
}

/// The members of an operation or event.
#[derive(Default)]
struct PorcupineMembers<'a> {
    client: Option<u64>,
    id: Option<i64>,
    input: Option<Form<'a>>,
    output: Option<Form<'a>>,
    call: Option<i64>,
    back: Option<i64>,
    /// Is the event a return?
    is_return: Option<bool>,
}

/// Reads one object from its brace; returns the offset after it.
fn members(text: &str, at: usize) -> Result<(PorcupineMembers<'_>, usize), SyntaxFault> {
    let mut json = JsonReader::starting(text, at);
    let mut found = PorcupineMembers::default();
    json.object(|name, value| {
        let integer = |value: &Form<'_>| match value {
            Form::Int(number) => Ok(Some(*number)),
            _ => Err(format!("{name} is no integer")),
        };
        match name {
            "ClientId" => {
                let client = integer(&value)?.and_then(|client| u64::try_from(client).ok());
                found.client = Some(client.ok_or("ClientId is negative")?);
            }
            "Id" => found.id = integer(&value)?,
            "Call" => found.call = integer(&value)?,
            "Return" => found.back = integer(&value)?,
            "Input" | "Value" => found.input = Some(value),
            "Output" => found.output = Some(value),
            "Kind" => match value {
                Form::Bool(is_return) => found.is_return = Some(is_return),
                _ => return Err("Kind is neither true (return) nor false (call)".to_owned()),
            },
            _ => {}
        }
        Ok(())
    })?;
    Ok((found, json.offset()))
}

/// Where all operations or events begin, and their times.
pub(super) fn spans(text: &str) -> Result<Vec<RowSpan>, SyntaxFault> {
    let mut spans: Vec<RowSpan> = Vec::new();
    let mut at = 0;
    let (mut opened, mut is_closed) = (None, false);
    loop {
        let rest = &text[at..];
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',');
        at += rest
            .as_bytes()
            .iter()
            .take_while(|byte| is_blank(byte))
            .count();
        match text.as_bytes().get(at) {
            Some(b'[') if spans.is_empty() && opened.is_none() => opened = Some(at),
            Some(b']') if opened.is_some() && !is_closed => is_closed = true,
            Some(b'{') if !is_closed => {
                let (found, end) = members(text, at)?;
                spans.push(span(&found, at)?);
                at = end;
                continue;
            }
            None => break,
            Some(_) => {
                return Err(SyntaxFault::new(at, "an operation (an object) is expected"));
            }
        }
        at += 1;
    }
    match opened {
        Some(opened) if !is_closed => Err(SyntaxFault::new(opened, "this array is never closed")),
        _ => Ok(spans),
    }
}

fn span(found: &PorcupineMembers<'_>, at: usize) -> Result<RowSpan, SyntaxFault> {
    let refuse = |problem: &str| Err(SyntaxFault::new(at, problem));
    let times = match (found.is_return, found.call, found.back) {
        (Some(_), ..) if found.id.is_none() => return refuse("this event has no Id"),
        (Some(_), ..) => RowTimes::Event,
        (None, Some(start), Some(end)) if start <= end => RowTimes::Operation {
            start,
            end: Some(end),
        },
        (None, Some(_), Some(_)) => return refuse("this operation returns before its call"),
        _ => return refuse("this is neither an operation (Call and Return) nor an event (Kind)"),
    };
    Ok(RowSpan {
        at,
        times,
        client: found.client,
        id: found.id,
    })
}

/// A member by its name, in any of the spellings that programs use.
fn member<'a, 'b>(form: &'b Form<'a>, names: &[&str]) -> Option<&'b Form<'a>> {
    let Form::Map(pairs) = form else {
        return None;
    };
    let is_it = |key: &Form<'_>| {
        let name = match key {
            Form::Keyword(name) | Form::Symbol(name) => name,
            Form::Text(name) => &**name,
            _ => return false,
        };
        names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted))
    };
    pairs.iter().find(|(key, _)| is_it(key)).map(|pair| &pair.1)
}

/// What a call does: its function, key and argument.
struct PorcupineCall {
    f: Symbol,
    key: Option<Key>,
    argument: Value,
}

impl PorcupineCall {
    /// The call that an invocation made.
    fn of(op: &Op) -> PorcupineCall {
        let (key, argument) = match &op.value {
            Value::Keyed(key, argument) => (Some(key.clone()), (**argument).clone()),
            argument => (None, argument.clone()),
        };
        PorcupineCall {
            f: op.f,
            key,
            argument,
        }
    }
}

fn plain(form: Option<&Form<'_>>) -> Value {
    form.cloned().map_or(Value::Nil, Form::into_value)
}

/// The call of an input, by the conventions of Porcupine's own models.
fn call(input: &Form<'_>) -> Result<PorcupineCall, &'static str> {
    let op = member(input, &["op", "f", "type"]).ok_or("its input has no Op")?;
    let argument = member(input, &["value", "arg", "arg1"]);
    let key = match member(input, &["key"]) {
        Some(Form::Int(number)) => Some(Key::Int(*number)),
        Some(Form::Text(text)) => Some(Key::Text(text.as_ref().into())),
        Some(_) => return Err("its Key is neither a number nor a text"),
        None => None,
    };
    let has_pair = member(input, &["arg2"]).is_some();
    let f = match op {
        // A register: is it a read?
        Form::Bool(true) => "read",
        Form::Bool(false) => "write",
        // etcd's register, then the key-value map.
        Form::Int(number) if has_pair => ["read", "write", "cas"]
            .get(usize::try_from(*number).unwrap_or(usize::MAX))
            .ok_or("its Op is none of 0 (read), 1 (write), 2 (cas)")?,
        Form::Int(number) => ["get", "put", "append"]
            .get(usize::try_from(*number).unwrap_or(usize::MAX))
            .ok_or("its Op is none of 0 (get), 1 (put), 2 (append)")?,
        Form::Text(name) => &**name,
        _ => return Err("its Op is no number, truth value or name"),
    };
    let argument = match (f, argument, member(input, &["arg2"])) {
        ("get" | "read", ..) => Value::Nil,
        ("cas", Some(Form::Int(from)), Some(Form::Int(to))) => Value::Cas(*from, *to),
        (_, argument, _) => plain(argument),
    };
    let f = Symbol::intern(f).ok_or("its Op is a name too long, or one of too many")?;
    Ok(PorcupineCall { f, key, argument })
}

/// The outcome and value of an output.
fn outcome(call: &PorcupineCall, output: Option<&Form<'_>>) -> (OpType, Value) {
    let flag = |name: &str| match output.and_then(|output| member(output, &[name])) {
        Some(Form::Bool(truth)) => Some(*truth),
        _ => None,
    };
    let argument = || call.argument.clone();
    let f = call.f.as_str();
    if flag("unknown") == Some(true) {
        return (OpType::Info, argument());
    }
    if f == "cas" && flag("ok") == Some(false) {
        return (OpType::Fail, argument());
    }
    if !matches!(f, "get" | "read") {
        return (OpType::Ok, argument());
    }
    if flag("exists") == Some(false) {
        return (OpType::Ok, Value::Nil);
    }
    let value = match output {
        Some(form @ Form::Map(_)) => plain(member(form, &["value"])),
        form => plain(form),
    };
    (OpType::Ok, value)
}

/// The half of the operation, or the event, at this offset. `invoked` is the invocation of a return event, which has neither
/// function nor key.
pub(super) fn operation(
    text: &str,
    at: usize,
    half: RowHalf,
    invoked: Option<&Op>,
) -> Result<OperationDraft, SyntaxFault> {
    let (found, _) = members(text, at)?;
    let refuse = |problem: &str| SyntaxFault::new(at, problem);
    let is_event = half == RowHalf::Event;
    let is_return = match half {
        RowHalf::Event => found.is_return == Some(true),
        half => half == RowHalf::Completion,
    };
    let call = match (is_event && is_return, invoked, &found.input) {
        (true, Some(invoked), _) => PorcupineCall::of(invoked),
        (true, None, _) => return Err(refuse("no event before it is the call with this Id")),
        (false, _, Some(input)) => call(input).map_err(refuse)?,
        (false, _, None) => return Err(refuse("it has no Input")),
    };
    let (kind, value) = if is_return {
        let output = if is_event {
            &found.input
        } else {
            &found.output
        };
        outcome(&call, output.as_ref())
    } else {
        (OpType::Invoke, call.argument.clone())
    };
    let time = match half {
        RowHalf::Event => None,
        RowHalf::Invocation => found.call,
        RowHalf::Completion => found.back,
    };
    let op = Op {
        index: 0,
        time: time.unwrap_or(-1),
        kind: half_kind(half, kind),
        process: Process::Client(found.client.unwrap_or(0)),
        f: call.f,
        value: match call.key {
            Some(key) => Value::Keyed(key, value.into()),
            None => value,
        },
        extra: Extra::NONE,
    };
    Ok(OperationDraft {
        op,
        indexed: false,
        has_process: found.client.is_some(),
        at,
    })
}
