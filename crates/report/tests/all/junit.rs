//! JUnit XML: well-formed whatever is in a history, with the numbers and elements that readers of it count on.

use crate::synthetic;
use seatrial_checker::Verdict;
use seatrial_history::History;
use seatrial_report::{Report, junit_xml};
use serde_json::{Value as Json, json};

/// An element as a reader of XML sees it: name, attributes, whether text stands in it, children.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("{} has no {name}", self.name), |(_, value)| value)
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// Reads a document; panics where XML 1.0 calls it not well-formed, as far as it goes: no DTD, comments, sections.
fn parse(text: &str) -> Element {
    for letter in text.chars() {
        let is_character = matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        assert!(is_character, "{letter:?} is no character of XML");
    }
    let rest = text
        .strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
        .unwrap();
    let mut rest = rest;
    let root = element(&mut rest);
    assert_eq!(rest.trim(), "", "something follows the root");
    root
}

fn element(rest: &mut &str) -> Element {
    let body = rest.strip_prefix('<').expect("an element");
    let (mut head, mut after) = body.split_once('>').expect("the end of a tag");
    let is_empty = head.ends_with('/');
    head = head.trim_end_matches('/');
    let (name, mut attributes) = head.split_once(' ').unwrap_or((head, ""));
    let mut found = Element {
        name: name.to_owned(),
        ..Element::default()
    };
    while !attributes.trim().is_empty() {
        let (name, value) = attributes
            .trim_start()
            .split_once("=\"")
            .expect("name=\"value\"");
        let (value, others) = value.split_once('"').expect("the end of a value");
        assert!(
            !found.attributes.iter().any(|(known, _)| known == name),
            "{name} twice"
        );
        found.attributes.push((name.to_owned(), unescaped(value)));
        attributes = others;
    }
    if is_empty {
        *rest = after;
        return found;
    }
    loop {
        let at = after.find('<').expect("the end of an element");
        found.text.push_str(&unescaped(&after[..at]));
        after = &after[at..];
        if let Some(tail) = after.strip_prefix("</") {
            let (name, tail) = tail.split_once('>').unwrap();
            assert_eq!(name, found.name, "elements overlap");
            *rest = tail;
            return found;
        }
        found.children.push(element(&mut after));
    }
}

fn unescaped(text: &str) -> String {
    assert!(!text.contains('<'), "{text}");
    let mut out = String::new();
    let mut pieces = text.split('&');
    out.push_str(pieces.next().unwrap());
    for piece in pieces {
        let (name, rest) = piece.split_once(';').expect("an entity has an end");
        out.push_str(match name {
            "amp" => "&",
            "lt" => "<",
            "gt" => ">",
            "quot" => "\"",
            "#39" => "'",
            other => panic!("unknown entity {other}"),
        });
        out.push_str(rest);
    }
    out
}

fn suite(attributes: &Json, history: &History, verdicts: &[Verdict]) -> Element {
    let overview = synthetic::overview(history);
    let report = Report::new(attributes, &overview, verdicts);
    let causes = report.search_causes(history).unwrap().finish();
    let report = report.with_causes(causes);
    let root = parse(&junit_xml(&report));
    assert_eq!(root.name, "testsuites");
    let suites: Vec<&Element> = root.all("testsuite").collect();
    assert_eq!(suites.len(), 1);
    let suite = root.children.into_iter().next().unwrap();
    let cases: Vec<&Element> = suite.all("testcase").collect();
    assert_eq!(suite.attribute("tests"), cases.len().to_string());
    for (kind, numbers) in [("failure", "failures"), ("error", "errors")] {
        let with = cases.iter().filter(|case| case.all(kind).next().is_some());
        assert_eq!(suite.attribute(numbers), with.count().to_string());
    }
    for case in cases {
        assert!(!case.attribute("name").is_empty() && !case.attribute("classname").is_empty());
        assert!(case.attribute("time").parse::<f64>().is_ok());
    }
    suite
}

#[test]
fn a_test_case_for_each_checker() {
    let shape = synthetic::SyntheticShape {
        operations: 3_000,
        processes: 10,
        seconds: 30,
        faults: 11,
    };
    let history = synthetic::history(1, shape);
    let unknown = synthetic::linearizable().unknown("too few & too \"slow\"");
    let verdicts = [synthetic::stats(), synthetic::stale_read(&history), unknown];
    let attributes = synthetic::attributes();
    let suite = suite(&attributes, &history, &verdicts);
    let cases: Vec<&Element> = suite.all("testcase").collect();
    assert!(
        cases[0].children.is_empty(),
        "a valid verdict has neither failure nor error"
    );
    let failure = cases[1].all("failure").next().unwrap();
    let summary = verdicts[1].findings[0].summary.lines().next().unwrap();
    assert!(failure.text.contains(summary), "{}", failure.text);
    assert!(
        failure.text.contains("was acknowledged at"),
        "{}",
        failure.text
    );
    let error = cases[2].all("error").next().unwrap();
    assert_eq!(error.attribute("message"), "too few & too \"slow\"");
}

#[test]
fn no_text_from_outside_becomes_markup() {
    let history = History::from_ops(Vec::new());
    let attributes = json!({
        "name": "</testsuite>\u{0}\u{1b}[31m\u{fffe}\"'<&",
        "command": "a\r\nb]]>",
        "started": "2026-11-27T15-26-00",
    });
    let suite = suite(&attributes, &history, &[]);
    assert_eq!(suite.attribute("timestamp"), "2026-11-27T15:26:00");
    assert!(suite.attribute("name").starts_with("</testsuite>"));
}
