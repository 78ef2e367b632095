//! The state of a node, as the answer to the question `state`.

use crate::value_shape::from_json;
use seatrial_runner::NodeState;
use serde_json::{Map, Value as Json};

/// Reads the last line of an answer that is a JSON object: `{"revision": 17, "hash": "ab", "contents": {…}}`. Revision and hash
/// are texts or numbers; contents may be missing, and are a list or an object.
pub(crate) fn read(answer: &str) -> Result<NodeState, String> {
    let object = |line: &str| serde_json::from_str::<Map<String, Json>>(line.trim()).ok();
    let found = answer.lines().rev().find_map(object);
    let fields = found.ok_or_else(|| {
        let line = answer.lines().last().unwrap_or_default();
        let line: String = line.chars().take(200).collect();
        format!("no line of the answer is a JSON object with `revision` and `hash`: {line:?}")
    })?;
    let contents = match fields.get("contents") {
        None | Some(Json::Null) => None,
        Some(json @ (Json::Array(_) | Json::Object(_))) => from_json(json),
        Some(other) => {
            return Err(format!(
                "`contents` must be a list or an object, not {other}"
            ));
        }
    };
    Ok(NodeState {
        revision: text(&fields, "revision")?,
        hash: text(&fields, "hash")?,
        contents,
    })
}

/// A text or a number as text.
fn text(fields: &Map<String, Json>, name: &str) -> Result<String, String> {
    match fields.get(name) {
        Some(Json::String(text)) => Ok(text.clone()),
        Some(Json::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(format!("`{name}` must be a text or a number, not {other}")),
        None => Err(format!("the state has no `{name}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::Value;

    #[test]
    fn the_last_object_of_an_answer_is_the_state() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"revision\": 1, \"hash\": \"old\"}\n\
                      {\"revision\": 17, \"hash\": \"ab\", \"contents\": [1, 2]}\r\n";
        let state = read(answer).unwrap();
        assert_eq!((state.revision.as_str(), state.hash.as_str()), ("17", "ab"));
        let contents = Value::List(vec![Value::Int(1), Value::Int(2)].into());
        assert_eq!(state.contents, Some(contents));
    }

    #[test]
    fn other_answers_say_what_is_wrong() {
        for (answer, part) in [
            ("", "no line of the answer is a JSON object"),
            ("17 ab", "17 ab"),
            ("{\"revision\": 17}", "the state has no `hash`"),
            ("{\"hash\": [], \"revision\": 1}", "`hash` must be a text"),
            (
                "{\"hash\": 1, \"revision\": 1, \"contents\": 3}",
                "`contents` must be a list",
            ),
        ] {
            let error = read(answer).unwrap_err();
            assert!(error.contains(part), "{answer}: {error}");
        }
    }
}
