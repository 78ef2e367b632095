//! No error prints its cause twice: what prints an error with all its sources would repeat a source that is in its text.

use super::Finding;
use super::mask::Mask;

/// Finds errors whose text (`#[error("...")]`) has the field that is also their source.
pub(super) fn check(path: &str, text: &str, mask: &Mask, findings: &mut Vec<Finding>) {
    for (at, mark) in mask.code.match_indices("#[error(") {
        let begin = at + mark.len();
        let Some(length) = enclosed(&mask.code[begin..], b'(', b')') else {
            continue;
        };
        // The words of the attribute, its literal included, and the fields of the variant or struct after it.
        let (attribute, code) = (
            &text[begin..begin + length],
            &mask.code[begin..begin + length],
        );
        for source in sources(&mask.code[begin + length..]) {
            if prints(attribute, code, &source) {
                let what = format!(
                    "prints its source {source} and returns it too, so its cause is shown twice; \
                     leave it out of the text, or name the field `cause` without #[source]"
                );
                findings.push(Finding::new(path, mask.line(at), what));
            }
        }
    }
    // Assembled, so that this file passes its own check.
    let by_hand = ["fn source(&self) ", "-> Option<&"].concat();
    for (at, _) in mask.code.match_indices(&by_hand) {
        let what = "a source by hand, which nobody compares with the text; derive thiserror::Error";
        findings.push(Finding::new(path, mask.line(at), what));
    }
}

/// Does the text show this field: as `{name}`, or as an argument `.name`?
fn prints(attribute: &str, code: &str, source: &str) -> bool {
    let field = format!("{{{source}");
    let shown = attribute.match_indices(&field);
    let mut shown = shown.map(|(at, shown)| attribute[at + shown.len()..].chars().next());
    let argument = format!(".{source}");
    let mut arguments = code
        .match_indices(&argument)
        .map(|(at, _)| code[at + argument.len()..].chars().next());
    let ends = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric() && next != '_');
    shown.any(|next| matches!(next, Some('}' | ':'))) || arguments.any(ends)
}

/// The fields that are sources, by name or number, of the variant or struct that follows an attribute.
fn sources(after: &str) -> Vec<String> {
    let Some((is_named, fields)) = item(after) else {
        return Vec::new();
    };
    let mut sources = Vec::new();
    for (number, field) in split(fields).into_iter().enumerate() {
        let is_marked = field.contains("#[source]") || field.contains("#[from]");
        let name = field.split(':').next().unwrap_or_default();
        let name = name
            .rsplit([' ', '\n', ']'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        if is_named && (is_marked || name == "source") {
            sources.push(name.to_owned());
        } else if !is_named && is_marked {
            sources.push(number.to_string());
        }
    }
    sources
}

/// The fields of the item that begins after an attribute's `)`, and whether they have names.
fn item(after: &str) -> Option<(bool, &str)> {
    let mut rest = after.trim_start_matches([')', ']']).trim_start();
    // Further attributes.
    while let Some(inside) = rest.strip_prefix("#[") {
        let length = enclosed(inside, b'[', b']')?;
        rest = inside[length + 1..].trim_start();
    }
    let at = rest.find(['{', '(', ',', ';', '}'])?;
    // `pub(crate) struct` has parentheses of its own.
    let at = if rest[..at].trim_end() == "pub" {
        at + 1 + rest[at + 1..].find(['{', ',', ';', '}'])?
    } else {
        at
    };
    let fields = &rest[at + 1..];
    match rest.as_bytes()[at] {
        b'{' => Some((true, &fields[..enclosed(fields, b'{', b'}')?])),
        b'(' => Some((false, &fields[..enclosed(fields, b'(', b')')?])),
        _ => None,
    }
}

/// Bytes up to the closing byte of what was opened before `code`.
fn enclosed(code: &str, open: u8, close: u8) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in code.bytes().enumerate() {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// Fields at their commas; those inside of brackets divide nothing.
fn split(fields: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut all) = (0, 0, Vec::new());
    for (at, byte) in fields.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                all.push(&fields[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    all.push(&fields[begin..]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check("a.rs", text, &Mask::of(text), &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn causes_that_are_shown_twice_are_found() {
        let twice = "enum E {\n    #[error(\"a: {0}\")]\n    A(#[from] io::Error),\n    #[error(\"b {at}: {source}\")]\n    \
                     B {\n        /// Where.\n        at: Map<u8, u8>,\n        /// Why.\n        source: io::Error,\n    },\n    \
                     #[error(\"c {}\", .why)]\n    #[doc(hidden)]\n    C { #[source] why: io::Error },\n}\n\
                     #[error(\"d: {source:?}\")]\npub(crate) struct D {\n    pub source: io::Error,\n}\n";
        assert_eq!(said(twice), [2, 4, 11, 15]);
        let by_hand = format!(
            "impl Error for E {{\n    fn source(&self) {}(dyn Error + 'static)> {{ None }}\n}}\n",
            "-> Option<&"
        );
        assert_eq!(said(&by_hand), [2]);
    }

    #[test]
    fn causes_that_are_shown_once_are_not() {
        let once = "enum E {\n    #[error(\"a\")]\n    A(#[from] io::Error),\n    #[error(\"{1}\")]\n    G(#[source] io::Error, u8),\n    \
                    #[error(\"b: {cause}\")]\n    B { cause: io::Error },\n    #[error(transparent)]\n    C(#[from] io::Error),\n    \
                    #[error(\"{source_of}\")]\n    D { source_of: u8, #[source] source: io::Error },\n    #[error(\"e\")]\n    F,\n}\n\
                    fn f(source: u8) {}\n";
        assert_eq!(said(once), [0; 0]);
    }
}
