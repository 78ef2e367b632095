//! Provenance header of a text: a comment in EDN, an object in JSON lines.

use seatrial_history::{Provenance, REPAIRED, SALVAGED};
use serde_json::{Map, Value as Json};

/// Beginning of a header in EDN, a comment.
const EDN: &str = ";; seatrial ";
/// Beginning of a header in JSON lines; its end is [`JSON_END`].
const JSON: &str = "{\"seatrial\":";
const JSON_END: &str = "}";
/// Longest header in bytes. A longer one is shortened: the number of gaps instead of the gaps, the first repair only.
const LENGTH_MAX: usize = 2_048;

/// The header before the first operation in EDN; `None` when there is nothing to record.
pub(crate) fn edn(provenance: &Provenance) -> Option<String> {
    let worth = short(provenance).unwrap_or_default();
    let members: Map<String, Json> = worth
        .into_iter()
        .chain(provenance.members().1.clone())
        .collect();
    if members.is_empty() {
        return None;
    }
    let members = serde_json::to_string(&members).ok()?;
    Some(format!("{EDN}{members}\n"))
}

/// The header before the first operation in JSON lines; `None` when there is nothing to record.
pub(crate) fn json(provenance: &Provenance) -> Option<String> {
    let members = serde_json::to_string(&short(provenance)?).ok()?;
    Some(format!("{JSON}{members}{JSON_END}\n"))
}

/// The members of `provenance` that a header carries, at most [`LENGTH_MAX`] bytes; `None` for a plain provenance.
fn short(provenance: &Provenance) -> Option<Map<String, Json>> {
    if provenance.is_plain() {
        return None;
    }
    let mut short = provenance.members().0.clone();
    if serde_json::to_string(&short).ok()?.len() <= LENGTH_MAX {
        return Some(short);
    }
    if let Some(Json::Array(missing)) = short.get_mut(SALVAGED).map(|it| it["missing"].take()) {
        let gaps = format!("{} gaps", missing.len());
        short.insert(SALVAGED.to_owned(), serde_json::json!({"missing": [gaps]}));
    }
    if let Some(Json::Array(repairs)) = short.get_mut(REPAIRED) {
        repairs.truncate(1);
    }
    Some(short)
}

/// Takes the header from the first bytes of a text: returns its provenance and overwrites it with blanks, so that lines and
/// columns of the text do not change.
pub(crate) fn take(first: &mut [u8]) -> Provenance {
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
    let attributes = serde_json::from_str::<Json>(members);
    let Some(attributes) = attributes.ok().filter(Json::is_object) else {
        return Provenance::default();
    };
    let (start, length) = (start.unwrap_or(0), text.len());
    first[start..start + length].fill(b' ');
    Provenance::of_attributes(&attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn header(text: &str) -> (Provenance, String) {
        let mut bytes = text.as_bytes().to_vec();
        let found = take(&mut bytes);
        (found, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn headers_come_back() {
        let gap = json!({"reason": "a bit", "first": 12});
        for attributes in [
            json!({"name": "x", "times": "none", "end": "missing"}),
            json!({"salvaged": {"missing": [gap]}, "times": "none"}),
            json!({"times": "none", "workload": "list-append", "options": {"model": "serializable"}}),
            json!({"repaired": [{"bytes": 12, "offset": 7, "reason": "it is \"torn\"\n"}]}),
        ] {
            let provenance = Provenance::of_attributes(&attributes);
            for written in [edn(&provenance), json(&provenance)] {
                let written = written.unwrap();
                let (found, rest) = header(&format!(" \n{written}next"));
                assert_eq!(found.members().0, provenance.members().0);
                let blanks = " ".repeat(written.len() - 1);
                assert_eq!(rest, format!(" \n{blanks}\nnext"));
                let mut again = json!({});
                found.add_to(&mut again);
                let again = Provenance::of_attributes(&again);
                assert_eq!(again.members().0, provenance.members().0);
            }
        }
        let plain = Provenance::of_attributes(&json!({"name": "x"}));
        assert!(plain.is_plain() && edn(&plain).is_none());
        // A comment may carry how a test is checked; a line that other programs read as an operation does not.
        let test = json!({"workload": "queue", "checkers": ["g1"], "options": {"rate": 7}});
        let test = Provenance::of_attributes(&test);
        let (found, _) = header(&format!("{}next", edn(&test).unwrap()));
        assert_eq!((found, json(&test)), (test, None));
    }

    #[test]
    fn long_headers_are_cut_and_other_texts_left_alone() {
        let gaps: Vec<Json> = (0..1_000).map(|first| json!({"first": first})).collect();
        let provenance = Provenance::of_attributes(&json!({"salvaged": {"missing": gaps}}));
        let written = edn(&provenance).unwrap();
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
}
