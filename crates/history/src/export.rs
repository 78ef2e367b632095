//! Histories as text for other programs.
//!
//! EDN carries everything but the difference between a symbol and a keyword, and that between a compare-and-set and a
//! list of two integers where `f` is not `cas`. JSON has fewer shapes: keywords become strings, sets become arrays,
//! infinite numbers become strings, and a map becomes an object when all its keys are keywords, otherwise an array of
//! pairs. Both lose which lists of two are tuples of an independent key; who reads them back says so
//! ([`crate::import::Options::keyed`]).

pub mod registers;

use crate::{Key, Mop, Observed, Op, Process, Value};
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

    /// Adds one operation.
    pub fn push(&mut self, op: &Op) -> io::Result<()> {
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

    /// Ends the text and hands everything to whoever takes it.
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

/// The operation as JSON, with the members of Jepsen's EDN map: `index`, `time`, `type`, `process`, `f`, `value`, and
/// the extra fields. What becomes of shapes that JSON lacks stands at the head of this module.
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

/// A value as JSON.
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

/// A map whose keys are distinct keywords.
fn object(pairs: &[(Value, Value)]) -> Option<Json> {
    let mut members = Map::new();
    for (key, item) in pairs {
        let Value::Word(name) = key else { return None };
        let earlier = members.insert(name.as_str().to_owned(), value(item));
        if earlier.is_some() {
            return None;
        }
    }
    Some(Json::Object(members))
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
    use crate::OpType;

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
        assert_eq!(value(&shape), json!(["k", [[1, "inf"]]]));
        let word = |name: &'static str| Value::Word(name.into());
        let map = Value::Map([(word("b"), Value::Nil), (word("a"), word("c"))].into());
        assert_eq!(value(&map).to_string(), r#"{"b":null,"a":"c"}"#);
        let twice = Value::Map([(word("b"), Value::Nil), (word("b"), word("c"))].into());
        assert_eq!(value(&twice).to_string(), r#"[["b",null],["b","c"]]"#);
        assert_eq!(value(&Value::Cas(1, i64::MIN)), json!([1, i64::MIN]));
    }
}
