//! Messages of the protocol: one JSON object a line, with `src`, `dest` and `body`.

use serde_json::{Map, Value as Json};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// The longest line that is read from a node, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a line that an error shows.
const SHOWN_BYTES_MAX: usize = 300;

/// The name of an endpoint: a node (`n1`), a client (`c0`), or a service (`lin-kv`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointName(Arc<str>);

impl EndpointName {
    /// The endpoint called `name`.
    pub(crate) fn new(name: &str) -> EndpointName {
        EndpointName(name.into())
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Is it a client, `c` and a number? Messages from and to clients have no latency, as in Maelstrom.
    pub(crate) fn is_client(&self) -> bool {
        self.is_numbered('c')
    }

    /// Is it a node, `n` and a number?
    pub(crate) fn is_node(&self) -> bool {
        self.is_numbered('n')
    }

    fn is_numbered(&self, letter: char) -> bool {
        let number = self.0.strip_prefix(letter).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The body of a message: `type`, usually `msg_id` or `in_reply_to`, and fields of the type.
pub(crate) type Body = Map<String, Json>;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeMessage {
    /// The sender.
    pub(crate) src: EndpointName,
    /// The receiver.
    pub(crate) dest: EndpointName,
    /// What is said; has a `type`.
    pub(crate) body: Body,
}

/// Why a line of a node is no message. The text names the node and shows the line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{node} printed a line that is no message: {reason}: {line}")]
pub(crate) struct MalformedLine {
    node: EndpointName,
    reason: String,
    line: String,
}

impl NodeMessage {
    /// Reads one line that `node` printed.
    ///
    /// # Errors
    ///
    /// The line is no JSON object, a field is missing or of the wrong type, or the sender is another than `node`.
    pub(crate) fn parse(node: &EndpointName, line: &[u8]) -> Result<NodeMessage, MalformedLine> {
        let malformed = |reason: String| MalformedLine {
            node: node.clone(),
            reason,
            line: shown(line),
        };
        if line.len() > LINE_BYTES_MAX {
            let reason = format!("it is longer than {LINE_BYTES_MAX} bytes");
            return Err(malformed(reason));
        }
        let json = serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        NodeMessage::from_json(node, json).map_err(malformed)
    }

    fn from_json(node: &EndpointName, json: Json) -> Result<NodeMessage, String> {
        let Json::Object(mut fields) = json else {
            return Err("expected an object with src, dest and body".into());
        };
        let src = text_field(&fields, "src")?;
        if src != node.as_str() {
            return Err(format!("src must be {node}, found {src}"));
        }
        let dest = EndpointName::new(text_field(&fields, "dest")?);
        let Some(Json::Object(body)) = fields.remove("body") else {
            return Err("body must be an object".into());
        };
        text_field(&body, "type").map_err(|reason| format!("in body: {reason}"))?;
        for name in ["msg_id", "in_reply_to"] {
            if body.get(name).is_some_and(|value| value.as_i64().is_none()) {
                return Err(format!("in body: {name} must be an integer"));
            }
        }
        Ok(NodeMessage {
            src: node.clone(),
            dest,
            body,
        })
    }

    /// The line that a node reads, with its end. `number` is unique to the message, for debugging.
    pub(crate) fn line(&self, number: u64) -> Vec<u8> {
        let object = serde_json::json!({
            "id": number,
            "src": self.src.as_str(),
            "dest": self.dest.as_str(),
            "body": self.body,
        });
        let mut line = object.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// The type of the body.
    pub(crate) fn kind(&self) -> &str {
        kind(&self.body)
    }

    /// The number by which replies refer to it, if it expects one.
    pub(crate) fn id(&self) -> Option<i64> {
        self.body.get("msg_id").and_then(Json::as_i64)
    }

    /// The number of the message that it answers.
    pub(crate) fn in_reply_to(&self) -> Option<i64> {
        self.body.get("in_reply_to").and_then(Json::as_i64)
    }
}

/// The type of a body; empty if it has none.
pub(crate) fn kind(body: &Body) -> &str {
    body.get("type").and_then(Json::as_str).unwrap_or_default()
}

/// A body of this type.
pub(crate) fn body(kind: &str, fields: impl IntoIterator<Item = (&'static str, Json)>) -> Body {
    let mut body = Body::new();
    body.insert("type".into(), kind.into());
    body.extend(
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    body
}

fn text_field<'a>(fields: &'a Body, name: &str) -> Result<&'a str, String> {
    match fields.get(name) {
        Some(Json::String(text)) => Ok(text),
        Some(_) => Err(format!("{name} must be a string")),
        None => Err(format!("{name} is missing")),
    }
}

/// The beginning of a line, for an error.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES_MAX)]);
    let text: String = text.chars().flat_map(char::escape_debug).collect();
    if line.len() > SHOWN_BYTES_MAX {
        return format!("{text}… ({} bytes)", line.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn parsed(line: &str) -> Result<NodeMessage, String> {
        NodeMessage::parse(&EndpointName::new("n1"), line.as_bytes())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_survives_its_line() {
        let line = r#"{"src":"n1","dest":"c2","body":{"type":"echo_ok","in_reply_to":3,"x":[1]}}"#;
        let message = parsed(line).unwrap();
        assert_eq!(message.kind(), "echo_ok");
        assert_eq!((message.id(), message.in_reply_to()), (None, Some(3)));
        assert!(message.dest.is_client() && !message.dest.is_node());
        let again = message.line(7);
        assert!(again.ends_with(b"\n") && again.starts_with(br#"{"id":7"#));
        assert_eq!(NodeMessage::parse(&message.src, &again).unwrap(), message);
    }

    #[test]
    fn errors_name_node_reason_and_line() {
        for (line, reason) in [
            ("hello", "expected value at line 1 column 1"),
            ("[1]", "expected an object with src, dest and body"),
            (r#"{"dest":"n2","body":{"type":"x"}}"#, "src is missing"),
            (
                r#"{"src":"n2","dest":"n2","body":{"type":"x"}}"#,
                "src must be n1, found n2",
            ),
            (
                r#"{"src":"n1","dest":5,"body":{}}"#,
                "dest must be a string",
            ),
            (r#"{"src":"n1","dest":"n2"}"#, "body must be an object"),
            (
                r#"{"src":"n1","dest":"n2","body":{}}"#,
                "in body: type is missing",
            ),
            (
                r#"{"src":"n1","dest":"n2","body":{"type":"x","msg_id":"1"}}"#,
                "in body: msg_id must be an integer",
            ),
        ] {
            let error = parsed(line).unwrap_err();
            let expected = format!("n1 printed a line that is no message: {reason}: ");
            assert!(error.starts_with(&expected), "{error}");
            assert!(error.len() < 2 * SHOWN_BYTES_MAX, "{error}");
        }
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let error = NodeMessage::parse(&EndpointName::new("n1"), &long).unwrap_err();
        assert!(error.to_string().ends_with("… (1048577 bytes)"), "{error}");
    }

    #[test]
    fn damaged_lines_never_panic() {
        let mut rng = Rng::from_seed(1);
        let line = br#"{"src":"n1","dest":"c2","body":{"type":"echo_ok","in_reply_to":3}}"#;
        for _ in 0..20_000 {
            let mut bytes = line.to_vec();
            for _ in 0..=rng.below(4) {
                let at = rng.index(bytes.len());
                match rng.below(3) {
                    0 => bytes[at] = rng.below(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b"{}[]\",:\\"[rng.index(8)]),
                }
            }
            let _ = NodeMessage::parse(&EndpointName::new("n1"), &bytes);
        }
    }
}
