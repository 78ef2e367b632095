//! What a history is worth besides its operations.

use crate::{Op, REPAIRED, SALVAGED};
use serde_json::{Map, Value as Json};

/// The attribute of a history that says what the order of its operations means.
const TIMES: &str = "times";
/// Its value where only the order within each process means something.
const NONE: &str = "none";
/// The attribute of a history whose end is missing, and its value.
const END: &str = "end";
const MISSING: &str = "missing";
/// What a header begins with in EDN, a comment.
const EDN: &str = ";; seatrial ";
/// What a header begins with in JSON lines; it ends with [`JSON_END`].
const JSON: &str = "{\"seatrial\":";
const JSON_END: &str = "}";
/// Longest header in bytes. One that would be longer names no gaps but their number.
const LENGTH_MAX: usize = 2_048;

/// What is known of a history besides its operations, and must not be lost when it is written in another format: whether
/// their order is that of real time, and what is missing of it. A history without any of it has times and is whole.
///
/// A test file has it as members of its attributes (`times`, `end`, `salvaged`, `repaired`); EDN has a comment before the first
/// operation, `;; seatrial {"times":"none"}`, and JSON lines an object, `{"seatrial":{"times":"none"}}`. Both are only
/// written where there is something to say, so what other programs read is what it always was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance(Map<String, Json>);

impl Provenance {
    /// What these attributes say.
    pub fn of_attributes(attributes: &Json) -> Provenance {
        let named = [TIMES, END, SALVAGED, REPAIRED]
            .into_iter()
            .filter_map(|name| {
                let said = attributes.get(name).filter(|said| !said.is_null())?;
                Some((name.to_owned(), said.clone()))
            });
        Provenance(named.collect())
    }

    /// Adds it to attributes.
    pub fn add_to(&self, attributes: &mut Json) {
        for (name, said) in &self.0 {
            attributes[name] = said.clone();
        }
    }

    /// Is there nothing to say?
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// Does the order of its operations say nothing but within a process?
    pub fn is_timeless(&self) -> bool {
        self.0.get(TIMES).is_some_and(|times| times == NONE)
    }

    /// The same for operations whose order says nothing but within a process.
    #[must_use]
    pub fn timeless(mut self) -> Provenance {
        self.0.insert(TIMES.to_owned(), NONE.into());
        self
    }

    /// Is it known that operations may be missing at its end, as its writer never came to one?
    pub fn is_unended(&self) -> bool {
        self.0.get(END).is_some_and(|end| end == MISSING)
    }

    /// The same for a history whose writer never came to an end.
    #[must_use]
    pub fn unended(mut self) -> Provenance {
        self.0.insert(END.to_owned(), MISSING.into());
        self
    }

    /// The same for a history that begins with these operations: without any invocation, when they began is not known.
    #[must_use]
    pub fn of_first(self, first: &[Op]) -> Provenance {
        let mut clients = first.iter().filter(|op| op.process.is_client()).peekable();
        if clients.peek().is_some() && !clients.any(Op::is_invoke) {
            return self.timeless();
        }
        self
    }

    /// What stands before the first operation in EDN.
    pub(crate) fn edn_header(&self) -> Option<String> {
        let members = self.short()?;
        Some(format!("{EDN}{members}\n"))
    }

    /// What stands before the first operation in JSON lines.
    pub(crate) fn json_header(&self) -> Option<String> {
        let members = self.short()?;
        Some(format!("{JSON}{members}{JSON_END}\n"))
    }

    /// Its members as JSON in one line.
    fn short(&self) -> Option<String> {
        if self.is_plain() {
            return None;
        }
        let whole = serde_json::to_string(&self.0).ok()?;
        if whole.len() <= LENGTH_MAX {
            return Some(whole);
        }
        let mut short = self.0.clone();
        if let Some(Json::Array(missing)) = short.get_mut(SALVAGED).map(|it| it["missing"].take()) {
            let gaps = format!("{} gaps", missing.len());
            short.insert(SALVAGED.to_owned(), serde_json::json!({"missing": [gaps]}));
        }
        if let Some(Json::Array(repairs)) = short.get_mut(REPAIRED) {
            repairs.truncate(1);
        }
        serde_json::to_string(&short).ok()
    }

    /// Takes the header from the first bytes of a text. What stands there becomes blank, so that places in the text stay what
    /// they are.
    pub(crate) fn take_header(first: &mut [u8]) -> Provenance {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace();
        let start = first.iter().position(|byte| !is_blank(byte));
        let line = start.map(|start| &first[start..]).unwrap_or_default();
        let end = line.iter().position(|&byte| byte == b'\n');
        let Some(text) = end.and_then(|end| std::str::from_utf8(&line[..end]).ok()) else {
            return Provenance::default();
        };
        let text = text.trim_ascii_end();
        let of_json = || text.strip_prefix(JSON)?.strip_suffix(JSON_END);
        let Some(members) = text.strip_prefix(EDN).or_else(of_json) else {
            return Provenance::default();
        };
        let said = serde_json::from_str::<Json>(members);
        let Some(said) = said.ok().filter(Json::is_object) else {
            return Provenance::default();
        };
        let (start, length) = (start.unwrap_or(0), text.len());
        first[start..start + length].fill(b' ');
        Provenance::of_attributes(&said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpType, Process, Value};
    use serde_json::json;

    fn header(text: &str) -> (Provenance, String) {
        let mut bytes = text.as_bytes().to_vec();
        let found = Provenance::take_header(&mut bytes);
        (found, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn headers_come_back() {
        let gap = json!({"reason": "a bit", "first": 12});
        for attributes in [
            json!({"name": "x", "times": "none", "end": "missing"}),
            json!({"salvaged": {"missing": [gap]}, "times": "none"}),
            json!({"repaired": [{"bytes": 12, "offset": 7, "reason": "it is \"torn\"\n"}]}),
        ] {
            let provenance = Provenance::of_attributes(&attributes);
            for written in [provenance.edn_header(), provenance.json_header()] {
                let written = written.unwrap();
                let (found, rest) = header(&format!(" \n{written}next"));
                assert_eq!(found, provenance);
                let blanks = " ".repeat(written.len() - 1);
                assert_eq!(rest, format!(" \n{blanks}\nnext"));
                let mut again = json!({});
                found.add_to(&mut again);
                assert_eq!(Provenance::of_attributes(&again), provenance);
            }
        }
        let plain = Provenance::of_attributes(&json!({"name": "x"}));
        assert!(plain.is_plain() && plain.edn_header().is_none());
    }

    #[test]
    fn long_headers_are_cut_and_other_texts_left_alone() {
        let gaps: Vec<Json> = (0..1_000).map(|first| json!({"first": first})).collect();
        let provenance = Provenance::of_attributes(&json!({"salvaged": {"missing": gaps}}));
        let written = provenance.edn_header().unwrap();
        assert!(written.len() < 2 * LENGTH_MAX, "{}", written.len());
        let (found, _) = header(&written);
        assert!(!found.is_plain());
        for text in [
            "",
            "\n",
            ";; seatrial",
            ";; seatrial {\n{}",
            ";; a comment\n{:index 0}",
            "{\"seatrial\": 1}\n{\"index\":0}",
            "{\"seatrial\":",
        ] {
            let (found, rest) = header(text);
            assert!(found.is_plain() && rest == text, "{text}");
        }
    }

    #[test]
    fn completions_alone_have_no_times() {
        let invoke = Op::invoke(Process::Client(1), "read", Value::Nil);
        let done = invoke.complete(OpType::Ok, Value::Nil);
        let of = |ops: &[Op]| Provenance::default().of_first(ops).is_timeless();
        assert!(of(&[done.clone(), done.clone()]));
        assert!(!of(&[invoke, done]) && !of(&[]));
    }
}
