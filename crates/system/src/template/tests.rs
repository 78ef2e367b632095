//! Templates as their writers meet them.

use super::*;

/// Three nodes, `a`, `b`, `c`, with one port besides that of clients.
struct Three(usize);

impl Scope for Three {
    fn word(&self, word: TemplateWord) -> Result<String, String> {
        Ok(match word {
            TemplateWord::Name => ["a", "b", "c"][self.0].into(),
            TemplateWord::Ip => format!("10.0.0.{}", self.0 + 1),
            TemplateWord::Port => "80".into(),
            TemplateWord::Address => format!("10.0.0.{}:80", self.0 + 1),
            TemplateWord::Number => (self.0 + 1).to_string(),
            TemplateWord::Count => "3".into(),
            other => format!("{other:?}"),
        })
    }

    fn own_ip(&self) -> Result<IpAddr, String> {
        Ok(IpAddr::from([10, 0, 0, self.0 as u8 + 1]))
    }

    fn port(&self, port: usize) -> Result<u16, String> {
        Ok(90 + port as u16)
    }

    fn other(&self, node: usize) -> Option<Box<dyn Scope + '_>> {
        (node < 3).then(|| Box::new(Three(node)) as Box<dyn Scope>)
    }

    fn index(&self) -> Option<usize> {
        Some(self.0)
    }
}

fn parse(text: &str, has_node: bool) -> Result<Template, TemplateError> {
    let ports = ["peer".to_owned()];
    let nodes = ["a", "b", "c"].map(str::to_owned);
    let names = Names {
        ports: &ports,
        nodes: &nodes,
        has_node,
    };
    Template::parse(text, &names)
}

fn filled(text: &str) -> String {
    parse(text, true).unwrap().fill(&Three(1)).unwrap()
}

#[test]
fn words_and_lists_are_filled_in() {
    assert_eq!(filled("{name} of {count}"), "b of 3");
    assert_eq!(
        filled("{ip}:{port} {address:peer} {port:peer}"),
        "10.0.0.2:80 10.0.0.2:90 90"
    );
    assert_eq!(filled("{peers}"), "10.0.0.1:80,10.0.0.3:80");
    assert_eq!(
        filled("{nodes '{name}=http://{address:peer}' ' '}"),
        "a=http://10.0.0.1:90 b=http://10.0.0.2:90 c=http://10.0.0.3:90"
    );
    assert_eq!(filled("{peers '{number}' ''}"), "13");
    assert_eq!(filled("{node a '{ip}'}"), "10.0.0.1");
    assert_eq!(filled("{{x}} é"), "{x} é");
    assert_eq!(parse("plain", true).unwrap().as_plain(), Some("plain"));
    assert_eq!(parse("{name}", true).unwrap().as_plain(), None);
    assert!(
        parse("{peers '{port:peer}'}", true)
            .unwrap()
            .has_peer_ports()
    );
    assert!(!parse("{port:peer} {peers}", true).unwrap().has_peer_ports());
}

#[test]
fn errors_have_a_position() {
    for (text, at, reason) in [
        ("a {nmae}", 3, "unknown word `{nmae}` (available: name, id"),
        ("{port:pere}", 6, "unknown port \"pere\" (available: peer)"),
        ("{name:peer}", 6, "only `port` and `address`"),
        ("{name", 0, "`{` without `}`"),
        ("name}", 4, "`}` without `{`"),
        ("{peers x}", 7, "expected a text in single quotes"),
        ("{peers 'x}", 7, "this quote is not closed"),
        ("{peers '{nme}'}", 9, "unknown word `{nme}`"),
        (
            "{node d '{ip}'}",
            6,
            "unknown node \"d\" (available: a, b, c)",
        ),
        ("{node a}", 7, "expected an item in quotes"),
        ("{name }", 5, "unexpected \" \" after `name`"),
        ("{}", 1, "unknown word `{}`"),
    ] {
        let error = parse(text, true).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
    let error = parse("{folder}/{address}", false).unwrap_err();
    assert_eq!(error.at, 10);
    assert!(
        error
            .reason
            .contains("has no value here (available: folder, home, helpers, count)"),
        "{error}"
    );
    assert!(parse("{peers}", false).is_err());
}

/// No text makes the reader panic.
#[test]
fn any_text_is_read() {
    let pieces = [
        "{", "}", "'", "peers", "node", " ", ":", "a", "é", "name", "{{", "}}",
    ];
    let mut state = 7_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        match parse(&text, true) {
            Ok(template) => drop(template.fill(&Three(0))),
            Err(error) => assert!(error.at <= text.len(), "{text}: {error:?}"),
        }
    }
}
