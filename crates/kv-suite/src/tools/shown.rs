//! Keys, values and outcomes as text and as JSON.

use seatrial_kv_protocol::{Answer, Outcome};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The bytes that these hexadecimal digits stand for.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|letter| letter.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let bytes = digits.chunks_exact(2);
    Some(bytes.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// How bytes are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownBytes {
    /// In hexadecimal, not as text.
    pub(super) is_hex: bool,
}

impl ShownBytes {
    /// As text: hexadecimal, or UTF-8 with an escape for each byte that is none.
    pub(super) fn text(self, bytes: &[u8]) -> String {
        if self.is_hex {
            return hex(bytes);
        }
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        text
    }

    /// As JSON: a string, or an object with the key `hex` for bytes that are not UTF-8.
    pub(super) fn json(self, bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            _ if self.is_hex => json!(hex(bytes)),
            Ok(text) => json!(text),
            Err(_) => json!({ "hex": hex(bytes) }),
        }
    }

    /// One answer as lines: a value is one, a list has one for each element, a range one for each key.
    pub(super) fn lines(self, answer: &Answer<'_>) -> Vec<String> {
        match answer {
            Answer::Absent => vec!["absent".to_owned()],
            Answer::Done => vec!["ok".to_owned()],
            Answer::Register(value) => vec![self.text(value)],
            Answer::List(list) => list.iter().map(|element| self.text(element)).collect(),
            Answer::Range(range) => {
                let lines = range.iter().map(|(key, item)| {
                    let held = match &item {
                        Answer::List(list) => {
                            let elements: Vec<String> =
                                list.iter().map(|element| self.text(element)).collect();
                            format!("[{}]", elements.join(", "))
                        }
                        other => self.lines(other).join(""),
                    };
                    format!("{}\t{held}", self.text(key))
                });
                let more = range.is_cut().then(|| "(more keys)".to_owned());
                lines.chain(more).collect()
            }
        }
    }

    fn answer_json(self, answer: &Answer<'_>) -> Value {
        match answer {
            Answer::Absent => json!({ "kind": "absent" }),
            Answer::Done => json!({ "kind": "done" }),
            Answer::Register(value) => json!({ "kind": "register", "value": self.json(value) }),
            Answer::List(list) => {
                let elements: Vec<Value> = list.iter().map(|element| self.json(element)).collect();
                json!({ "kind": "list", "elements": elements })
            }
            Answer::Range(range) => {
                let keys = range.iter().map(|(key, item)| {
                    let mut item = self.answer_json(&item);
                    item["key"] = self.json(key);
                    item
                });
                json!({ "kind": "range", "cut": range.is_cut(), "keys": keys.collect::<Vec<_>>() })
            }
        }
    }

    /// An outcome as JSON.
    pub(super) fn outcome_json(self, outcome: &Outcome) -> Value {
        match outcome {
            Outcome::Ok(answers) => {
                let answers: Vec<Value> = answers
                    .iter()
                    .map(|answer| self.answer_json(&answer))
                    .collect();
                json!({ "outcome": "committed", "answers": answers })
            }
            Outcome::Failed(failure) => json!({ "outcome": "failed", "reason": failure.name() }),
            Outcome::Unknown(doubt) => json!({ "outcome": "unknown", "reason": doubt.name() }),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        let bytes = [0, 1, 0x7f, 0xff];
        assert_eq!(from_hex(&hex(&bytes)).as_deref(), Some(&bytes[..]));
        for wrong in ["0", "0g", "é", "+1"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        let form = ShownBytes { is_hex: false };
        assert_eq!(form.text("é".as_bytes()), "é");
        assert_eq!(form.text(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(form.json(b"a\xff"), json!({ "hex": "61ff" }));
        assert_eq!(ShownBytes { is_hex: true }.json(b"a"), json!("61"));
    }
}
