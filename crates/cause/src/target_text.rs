//! The target of a fault in words.

use crate::short_text::{length, one_line, shortened};
use seatrial_history::{Symbol, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The target of a nemesis operation.
pub(crate) struct TargetText {
    /// In words: `n1`, `n1 ↔ c0 … c9`, `n2, offset 3 s`.
    pub(crate) text: String,
    /// Every name in it, which are mostly nodes.
    pub(crate) names: BTreeSet<String>,
}

/// Longest text in characters; a nemesis may carry a whole plan.
const TEXT_LENGTH_MAX: usize = 120;
/// Groups of cut links that are listed; of more, their number.
const GROUPS_MAX: usize = 3;

impl TargetText {
    /// The target that this value of a nemesis operation names.
    pub(crate) fn of(value: &Value) -> TargetText {
        let mut names = BTreeSet::new();
        collect_names(value, &mut names);
        let text = match value {
            Value::Nil => String::new(),
            other => value_text(other),
        };
        let text = shortened(&one_line(&text), TEXT_LENGTH_MAX).into_owned();
        TargetText { text, names }
    }
}

/// Every text and word inside `value` that may be a name; the names of fields are none.
fn collect_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Text(text) => {
            names.insert(text.to_string());
        }
        Value::Word(word) => {
            names.insert(word.to_string());
        }
        Value::List(items) | Value::Set(items) => {
            for item in items.iter() {
                collect_names(item, names);
            }
        }
        Value::Map(fields) => {
            for (field, value) in fields.iter() {
                if !matches!(field, Value::Word(_)) {
                    collect_names(field, names);
                }
                collect_names(value, names);
            }
        }
        _ => {}
    }
}

/// A value in words: names plain, links as groups, fields with units, anything else as EDN.
fn value_text(value: &Value) -> String {
    if let Some(name) = name(value) {
        return name.to_owned();
    }
    if let Some(links) = links(value) {
        return links_text(&links);
    }
    match value {
        Value::List(items) | Value::Set(items) => match items.iter().map(name).collect() {
            Some(names) => names_text(names),
            None => value.to_string(),
        },
        Value::Map(fields) => fields.iter().map(field_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn name(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Word(word) => Some(Symbol::as_str(*word)),
        _ => None,
    }
}

/// `n1`, `delay 50 ms`, `bits 8`: nodes and links without their field's name, durations with a unit.
fn field_text((field, value): &(Value, Value)) -> String {
    let Some(field) = name(field) else {
        return format!("{field} {value}");
    };
    match (field, value) {
        ("node" | "nodes" | "links", value) => value_text(value),
        (field, Value::Int(number)) => match field.strip_suffix("-ns") {
            Some(field) => {
                let sign = if *number < 0 { "-" } else { "" };
                format!(
                    "{field} {sign}{}",
                    length(number.unsigned_abs() as f64 / 1e9)
                )
            }
            None => format!("{field} {number}"),
        },
        (field, value) => format!("{field} {}", value_text(value)),
    }
}

/// `n1, n2`; `c0 … c9` for many with rising numbers.
fn names_text(names: BTreeSet<&str>) -> String {
    let mut numbered: Vec<(&str, u32)> =
        names.iter().filter_map(|name| split_number(name)).collect();
    numbered.sort_unstable();
    let rising = numbered.len() == names.len()
        && numbered
            .windows(2)
            .all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1);
    if let ([(word, first), .., (_, last)], true, 4..) = (&numbered[..], rising, names.len()) {
        return format!("{word}{first} … {word}{last}");
    }
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// `n12` as `n` and 12.
fn split_number(name: &str) -> Option<(&str, u32)> {
    let word = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number: u32 = name[word.len()..].parse().ok()?;
    (number < u32::MAX).then_some((word, number))
}

type Links<'a> = BTreeSet<(&'a str, &'a str)>;

/// A list of pairs of names.
fn links(value: &Value) -> Option<Links<'_>> {
    let Value::List(items) = value else {
        return None;
    };
    if items.is_empty() {
        return None;
    }
    items.iter().map(pair).collect()
}

fn pair(value: &Value) -> Option<(&str, &str)> {
    let Value::List(names) = value else {
        return None;
    };
    match &names[..] {
        [from, to] => Some((name(from)?, name(to)?)),
        _ => None,
    }
}

/// Links in groups: `n1 ↔ n2, n3` when both directions are meant, `n1 → n2` when one is; only their number when they
/// form more than three groups.
fn links_text(links: &Links<'_>) -> String {
    let back = |(from, to): &(&str, &str)| links.contains(&(*to, *from));
    let (both, one): (Links, Links) = links.iter().partition(|link| back(link));
    let mut texts: Vec<String> = Vec::new();
    let mut seen: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    for (from, to) in groups(&both) {
        // Each group of both directions comes twice, once from either side.
        if !seen.contains(&from) {
            seen.insert(to.clone());
            texts.push(format!("{} ↔ {}", names_text(from), names_text(to)));
        }
    }
    let one_way = |(from, to)| format!("{} → {}", names_text(from), names_text(to));
    texts.extend(groups(&one).into_iter().map(one_way));
    if texts.len() > GROUPS_MAX {
        return format!("{} links", links.len());
    }
    texts.join("; ")
}

/// Senders with the same receivers, and these, in the order of the first sender.
fn groups<'a>(links: &Links<'a>) -> Vec<(BTreeSet<&'a str>, BTreeSet<&'a str>)> {
    let mut receivers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in links {
        receivers.entry(from).or_default().insert(to);
    }
    let mut senders: BTreeMap<BTreeSet<&str>, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in receivers {
        senders.entry(to).or_default().insert(from);
    }
    let mut groups: Vec<_> = senders.into_iter().map(|(to, from)| (from, to)).collect();
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Value {
        Value::List(items.iter().map(|item| Value::text(*item)).collect())
    }

    /// The text of links written as `n1>n2 n2>n1`.
    fn text(links: &str) -> String {
        let link = |link: &str| list(&link.split('>').collect::<Vec<_>>());
        TargetText::of(&Value::List(links.split(' ').map(link).collect())).text
    }

    #[test]
    fn links_in_groups() {
        assert_eq!(text("n1>n2 n2>n1"), "n1 ↔ n2");
        assert_eq!(text("n1>n2"), "n1 → n2");
        let split = "n1>n3 n3>n1 n1>n4 n4>n1 n2>n3 n3>n2 n2>n4 n4>n2";
        assert_eq!(text(split), "n1, n2 ↔ n3, n4");
        let clients: Vec<String> = (0..12).map(|n| format!("n1>c{n} c{n}>n1")).collect();
        assert_eq!(text(&clients.join(" ")), "c0 … c11 ↔ n1");
        assert_eq!(text("n1>n2 n2>n3 n3>n4 n4>n1"), "4 links");
        assert_eq!(text("n1>n2 n2>n1 n3>n1"), "n1 ↔ n2; n3 → n1");
    }

    #[test]
    fn fields_with_units() {
        let field = |name: &'static str, value| (Value::Word(Symbol::new(name)), value);
        let slow = [
            field("links", Value::List([list(&["n1", "c0"])].into())),
            field("delay-ns", Value::Int(50_000_000)),
            field("jitter-ns", Value::Int(1_500_000)),
        ];
        let target = TargetText::of(&Value::Map(slow.into()));
        assert_eq!(target.text, "n1 → c0, delay 50 ms, jitter 1.5 ms");
        assert_eq!(target.names.into_iter().collect::<Vec<_>>(), ["c0", "n1"]);
        let rot = [
            field("node", Value::text("n1")),
            field("bits", Value::Int(8)),
        ];
        assert_eq!(TargetText::of(&Value::Map(rot.into())).text, "n1, bits 8");
    }

    #[test]
    fn names_plain() {
        assert_eq!(TargetText::of(&list(&["n2", "n1"])).text, "n1, n2");
        assert_eq!(
            TargetText::of(&Value::Word(Symbol::new("majority"))).text,
            "majority"
        );
        assert_eq!(TargetText::of(&Value::Nil).text, "");
        assert_eq!(TargetText::of(&Value::Int(7)).text, "7");
        assert_eq!(TargetText::of(&Value::text("a\nb")).text, "a b");
    }
}
