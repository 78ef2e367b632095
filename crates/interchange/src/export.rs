//! Writers of histories for other programs.
//!
//! EDN carries everything but the difference between a symbol and a keyword, and that between a compare-and-set and a
//! list of two integers where `f` is not `cas`. JSON has fewer shapes: keywords become strings, sets become arrays,
//! infinite numbers become strings, and a map becomes an object when all its keys are keywords or integers (which become
//! names such as `"7"`, read back as integers), otherwise an array of pairs. Both lose which lists of two are tuples of
//! an independent key; [`crate::import::ImportOptions::keyed`] restores them.

pub mod registers;

use seatrial_history::{Key, Mop, Observed, Op, Process, Provenance, Value};
use serde_json::{Map, Value as Json, json};
use std::io::{self, Write};

/// Writes each operation as an EDN map on a line of its own: what Jepsen's `history.edn` holds.
pub fn edn_lines(ops: impl IntoIterator<Item = Op>, out: &mut impl Write) -> io::Result<()> {
    for op in ops {
        writeln!(out, "{op}")?;
    }
    Ok(())
}

/// Writes each operation as a JSON object on a line of its own; see [`json()`].
pub fn json_lines(ops: impl IntoIterator<Item = Op>, out: &mut impl Write) -> io::Result<()> {
    for op in ops {
        writeln!(out, "{}", json(&op))?;
    }
    Ok(())
}

/// How a text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// An EDN map per line: Jepsen's `history.edn`.
    Edn,
    /// A JSON object per line.
    JsonLines,
    /// One JSON array of objects, a line each.
    Json,
}

/// Writes operations one after another. [`TextWriter::finish`] must be called: a JSON array has an end.
pub struct TextWriter<W> {
    out: W,
    layout: Layout,
    /// Operations so far.
    count: u64,
}

impl<W: Write> TextWriter<W> {
    /// Begins a text.
    pub fn new(out: W, layout: Layout) -> TextWriter<W> {
        let count = 0;
        TextWriter { out, layout, count }
    }

    /// Begins a text with `provenance` in its header. [`Layout::Json`] has no place for it and drops it.
    pub fn with_provenance(out: W, layout: Layout, provenance: &Provenance) -> io::Result<Self> {
        let mut writer = TextWriter::new(out, layout);
        let header = match layout {
            Layout::Edn => crate::header::edn(provenance),
            Layout::JsonLines => crate::header::json(provenance),
            Layout::Json => None,
        };
        let header = header.unwrap_or_default();
        writer.out.write_all(header.as_bytes())?;
        Ok(writer)
    }

    /// Writes one operation. If it would not read back unchanged (see [`check_names`]), returns an error and writes nothing.
    pub fn push(&mut self, op: &Op) -> io::Result<()> {
        check_names(op, self.layout)?;
        let begin = match (self.layout, self.count) {
            (Layout::Json, 0) => "[",
            (Layout::Json, _) => ",\n",
            _ => "",
        };
        self.count += 1;
        self.out.write_all(begin.as_bytes())?;
        match self.layout {
            Layout::Edn => writeln!(self.out, "{op}"),
            Layout::JsonLines => writeln!(self.out, "{}", json(op)),
            Layout::Json => write!(self.out, "{}", json(op)),
        }
    }

    /// Ends the text, flushes the output and returns it.
    pub fn finish(mut self) -> io::Result<W> {
        match (self.layout, self.count) {
            (Layout::Json, 0) => self.out.write_all(b"[]\n")?,
            (Layout::Json, _) => self.out.write_all(b"]\n")?,
            _ => {}
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Members of every operation; an extra field with one of these names would replace it.
const MEMBERS: [&str; 6] = ["index", "time", "type", "process", "f", "value"];

/// Returns an error when a name of the operation would not read back: an extra field with the name of one of the six
/// members, or, in EDN, a keyword that EDN has no form for.
pub fn check_names(op: &Op, layout: Layout) -> io::Result<()> {
    let wrong = |reason: String| {
        let text = format!("operation {}: {reason}", op.index);
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    };
    for (name, _) in op.extra.iter() {
        if MEMBERS.contains(&name.as_str()) {
            return wrong(format!("has a second member `{name}`"));
        }
    }
    if layout != Layout::Edn {
        return Ok(());
    }
    let process = match op.process {
        Process::Named(name) => Some(name.as_str()),
        Process::Client(_) => None,
    };
    let fields = op.extra.iter();
    let names = fields.map(|(name, _)| name.as_str()).chain(process);
    let bad = names.chain([op.f.as_str()]).find(|name| !is_keyword(name));
    let values = op.extra.iter().map(|(_, value)| value);
    let bad = bad.or_else(|| values.chain([&op.value]).find_map(unwritable));
    match bad {
        None => Ok(()),
        Some(name) => wrong(format!(
            "EDN has no keyword {name:?}; sea, jsonl and json can carry it"
        )),
    }
}

/// Does `:NAME` read back as this keyword, with Clojure's reader and with ours? Letters, digits and the signs that EDN permits
/// in symbols; non-ASCII characters only if they are printed unescaped.
fn is_keyword(name: &str) -> bool {
    let is_part = |letter: char| match letter {
        // The last two not at the beginning.
        '.' | '*' | '+' | '!' | '-' | '_' | '?' | '$' | '%' | '&' | '=' | '<' | '>' | '/'
        | '\'' | ':' | '#' => true,
        other if other.is_ascii() => other.is_ascii_alphanumeric(),
        other => other.is_alphanumeric(),
    };
    !name.is_empty()
        && !name.starts_with([':', '#', '/'])
        && !name.ends_with([':', '/'])
        && !name.contains("::")
        && name.matches('/').count() < 2
        && name.chars().all(is_part)
}

/// A keyword in the value that EDN has no form for.
fn unwritable(value: &Value) -> Option<&str> {
    let of_key = |key: &Key| match key {
        Key::Word(word) => Some(word.as_str()).filter(|name| !is_keyword(name)),
        Key::Int(_) | Key::Text(_) => None,
    };
    match value {
        Value::Word(word) => Some(word.as_str()).filter(|name| !is_keyword(name)),
        Value::List(items) | Value::Set(items) => items.iter().find_map(unwritable),
        Value::Map(pairs) => pairs
            .iter()
            .find_map(|(key, item)| unwritable(key).or_else(|| unwritable(item))),
        Value::Txn(mops) => mops.iter().find_map(|mop| match mop {
            Mop::Append { key, .. } | Mop::Write { key, .. } | Mop::Read { key, .. } => of_key(key),
        }),
        Value::Keyed(key, item) => of_key(key).or_else(|| unwritable(item)),
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Cas(..) => None,
    }
}

/// The operation as JSON, with the members of Jepsen's EDN map: `index`, `time`, `type`, `process`, `f`, `value`, and
/// the extra fields.
pub fn json(op: &Op) -> Json {
    let mut members = Map::new();
    let process = match op.process {
        Process::Client(number) => json!(number),
        Process::Named(name) => json!(name.as_str()),
    };
    members.insert("index".to_owned(), json!(op.index));
    members.insert("time".to_owned(), json!(op.time));
    members.insert("type".to_owned(), json!(op.kind.name()));
    members.insert("process".to_owned(), process);
    members.insert("f".to_owned(), json!(op.f.as_str()));
    members.insert("value".to_owned(), value(&op.value));
    for (name, field) in op.extra.iter() {
        members.insert(name.as_str().to_owned(), value(field));
    }
    Json::Object(members)
}

/// A value as JSON; the module's documentation lists the shapes that JSON lacks.
pub fn value(shape: &Value) -> Json {
    match shape {
        Value::Nil => Json::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(number) => json!(number),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Float(number) => json!(number.to_string()),
        Value::Text(text) => json!(**text),
        Value::Word(word) => json!(word.as_str()),
        Value::List(items) | Value::Set(items) => items.iter().map(value).collect(),
        Value::Map(pairs) => object(pairs).unwrap_or_else(|| {
            let pairs = pairs.iter();
            pairs
                .map(|(key, item)| json!([value(key), value(item)]))
                .collect()
        }),
        Value::Cas(from, to) => json!([from, to]),
        Value::Txn(mops) => mops.iter().map(micro_operation).collect(),
        Value::Keyed(name, item) => json!([key(name), value(item)]),
    }
}

/// A JSON object of a map whose keys are distinct integers and keywords that do not look like integers; else `None`.
fn object(pairs: &[(Value, Value)]) -> Option<Json> {
    let mut members = Map::new();
    for (key, item) in pairs {
        let name = match key {
            Value::Int(number) => number.to_string(),
            Value::Word(name) if integer_name(name.as_str()).is_none() => name.as_str().to_owned(),
            _ => return None,
        };
        let earlier = members.insert(name, value(item));
        if earlier.is_some() {
            return None;
        }
    }
    Some(Json::Object(members))
}

/// The integer whose decimal form is `name`; `None` for other spellings, such as `007` or `+7`.
pub(crate) fn integer_name(name: &str) -> Option<i64> {
    let number: i64 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}

fn key(name: &Key) -> Json {
    match name {
        Key::Int(number) => json!(number),
        Key::Word(word) => json!(word.as_str()),
        Key::Text(text) => json!(**text),
    }
}

fn micro_operation(mop: &Mop) -> Json {
    match mop {
        Mop::Append { key: name, element } => json!(["append", key(name), element]),
        Mop::Write { key: name, value } => json!(["w", key(name), value]),
        Mop::Read {
            key: name,
            observed,
        } => match observed {
            Observed::Nil => json!(["r", key(name), null]),
            Observed::Register(value) => json!(["r", key(name), value]),
            Observed::List(elements) => json!(["r", key(name), elements[..]]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::OpType;

    #[test]
    fn lines_are_those_of_jepsen() {
        let mops = [
            Mop::Append {
                key: Key::Int(3),
                element: 1,
            },
            Mop::Read {
                key: Key::Word("x".into()),
                observed: Observed::List([1, 2].into()),
            },
            Mop::Read {
                key: Key::Int(4),
                observed: Observed::Nil,
            },
        ];
        let txn = Op::invoke(Process::Client(7), "txn", Value::Txn(mops.into()));
        let kill = Op {
            index: 1,
            time: 12,
            kind: OpType::Info,
            ..Op::invoke(
                Process::NEMESIS,
                "kill",
                Value::Set([Value::text("n1")].into()),
            )
        };
        let ops = [txn.with("node", Value::text("n\"2")), kill];
        let (mut edn, mut json) = (Vec::new(), Vec::new());
        edn_lines(ops.clone(), &mut edn).unwrap();
        json_lines(ops, &mut json).unwrap();
        expect_test::expect![[r#"
            {:index 0, :time -1, :type :invoke, :process 7, :f :txn, :value [[:append 3 1] [:r :x [1 2]] [:r 4 nil]], :node "n\"2"}
            {:index 1, :time 12, :type :info, :process :nemesis, :f :kill, :value #{"n1"}}
        "#]]
        .assert_eq(&String::from_utf8(edn).unwrap());
        expect_test::expect![[r#"
            {"index":0,"time":-1,"type":"invoke","process":7,"f":"txn","value":[["append",3,1],["r","x",[1,2]],["r",4,null]],"node":"n\"2"}
            {"index":1,"time":12,"type":"info","process":"nemesis","f":"kill","value":["n1"]}
        "#]]
        .assert_eq(&String::from_utf8(json).unwrap());
    }

    fn pushed(op: &Op, layout: Layout) -> Result<String, String> {
        let mut writer = TextWriter::new(Vec::new(), layout);
        let pushed = writer.push(op).map_err(|error| error.to_string());
        pushed.map(|()| String::from_utf8(writer.finish().unwrap()).unwrap())
    }

    fn read(value: Value) -> Op {
        Op::invoke(Process::Client(1), "read", value)
    }

    /// Names, divided by `|`, that EDN has no keyword for; besides, the empty one.
    const UNWRITABLE: &str = "a b|:a|a::b|a:|#a|/|a/|a/b/c|a)|a\"|a;|a,b|a@b|a\\b|a\u{202e}b|a\u{7f}|a\u{a0}b|tab\t|a{|`a|~a|^a|";

    #[test]
    fn keywords_that_edn_cannot_carry_are_refused() {
        for name in UNWRITABLE.split('|') {
            let word = Value::Word(name.into());
            let key = Key::Word(name.into());
            let write = Mop::Write {
                key: key.clone(),
                value: 1,
            };
            let ops = [
                Op {
                    f: name.into(),
                    ..read(Value::Nil)
                },
                Op::invoke(Process::Named(name.into()), "kill", Value::Nil),
                read(Value::Nil).with(name, Value::Nil),
                read(Value::Map([(word.clone(), Value::Nil)].into())),
                read(Value::List([Value::Set([word.clone()].into())].into())),
                read(Value::Keyed(key, Value::Int(1).into())),
                read(Value::Txn([write].into())),
                read(word),
            ];
            for op in &ops {
                let error = pushed(op, Layout::Edn).unwrap_err();
                let says = "operation 0: EDN has no keyword";
                assert!(error.starts_with(says), "{error}");
                let line = pushed(op, Layout::JsonLines).unwrap();
                assert!(serde_json::from_str::<Json>(&line).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn keywords_of_edn_come_back_and_members_stand_once() {
        use crate::import::{FileOperations, Format, ImportOptions};
        for name in "a|a-b|jepsen.etcd/kill|a'|a:b|<=|größe|x1?|r#1".split('|') {
            let op = read(Value::Word(name.into()));
            let text = pushed(&op, Layout::Edn).unwrap();
            let (format, options) = (Some(Format::Edn), ImportOptions::default());
            let mut read = FileOperations::open("x", text.as_bytes(), format, options).unwrap();
            assert_eq!(read.next().unwrap().unwrap(), op, "{text}");
        }
        for layout in [Layout::Edn, Layout::Json, Layout::JsonLines] {
            let error = pushed(&read(Value::Nil).with("value", Value::Int(1)), layout);
            assert!(error.unwrap_err().contains("second member `value`"));
        }
    }

    #[test]
    fn an_array_has_an_end() {
        let text = |count| {
            let mut writer = TextWriter::new(Vec::new(), Layout::Json);
            for _ in 0..count {
                let op = Op::invoke(Process::Client(7), "read", Value::Nil);
                writer.push(&op).unwrap();
            }
            String::from_utf8(writer.finish().unwrap()).unwrap()
        };
        assert_eq!(text(0), "[]\n");
        let parsed: Json = serde_json::from_str(&text(3)).unwrap();
        assert_eq!(parsed.as_array().map(Vec::len), Some(3));
        assert_eq!(text(3).lines().count(), 3);
    }

    #[test]
    fn shapes_that_json_lacks_have_a_form() {
        let pairs = [(Value::Int(1), Value::Float(f64::INFINITY))];
        let shape = Value::Keyed(Key::Text("k".into()), Value::Map(pairs.into()).into());
        assert_eq!(value(&shape), json!(["k", {"1": "inf"}]));
        let word = |name: &'static str| Value::Word(name.into());
        let map = Value::Map([(word("b"), Value::Nil), (word("a"), word("c"))].into());
        assert_eq!(value(&map).to_string(), r#"{"b":null,"a":"c"}"#);
        let mixed = Value::Map([(word("7"), Value::Nil), (Value::Int(7), word("c"))].into());
        assert_eq!(value(&mixed).to_string(), r#"[["7",null],[7,"c"]]"#);
        assert_eq!(integer_name("-7"), Some(-7));
        for other in ["07", "+7", "-0", "", "7.0", "9223372036854775808"] {
            assert_eq!(integer_name(other), None, "{other}");
        }
        let twice = Value::Map([(word("b"), Value::Nil), (word("b"), word("c"))].into());
        assert_eq!(value(&twice).to_string(), r#"[["b",null],["b","c"]]"#);
        assert_eq!(value(&Value::Cas(1, i64::MIN)), json!([1, i64::MIN]));
    }
}
