//! The quick way beside the general one.

use super::*;
use crate::import::{FileOperations, Format, ImportOptions};
use seatrial_history::Chunk;
use seatrial_history::chunk::Assembly;
use seatrial_machine::Rng;

/// How a random text is written.
#[derive(Clone, Copy)]
struct Style {
    dialect: Dialect,
    separator: &'static str,
    colon: &'static str,
    is_array: bool,
    has_index: bool,
    has_time: bool,
}

impl Style {
    fn random(rng: &mut Rng) -> Style {
        let (dialect, separator, colon) = *rng.pick(&[
            (Dialect::Json, ",", ":"),
            (Dialect::Json, ", ", ": "),
            (Dialect::Edn, " ", " "),
            (Dialect::Edn, ", ", " "),
        ]);
        Style {
            dialect,
            separator,
            colon,
            is_array: rng.chance(0.2),
            has_index: rng.chance(0.7),
            has_time: rng.chance(0.7),
        }
    }

    fn word(self, word: &str) -> String {
        match self.dialect {
            Dialect::Json => format!("{word:?}"),
            Dialect::Edn => format!(":{word}"),
        }
    }

    fn nil(self) -> &'static str {
        match self.dialect {
            Dialect::Json => "null",
            Dialect::Edn => "nil",
        }
    }

    fn list(self, items: &[String]) -> String {
        format!("[{}]", items.join(self.separator))
    }

    fn map(self, members: &[(&str, String)]) -> String {
        let colon = self.colon;
        let members = members
            .iter()
            .map(|(name, value)| format!("{}{colon}{value}", self.word(name)));
        let members: Vec<_> = members.collect();
        format!("{{{}}}", members.join(self.separator))
    }
}

/// An integer as others write them, too.
fn number(rng: &mut Rng) -> String {
    match rng.below(40) {
        0 => rng.word().cast_signed().to_string(),
        1 => (*rng.pick(&["1.5", "-0", "007", "+3", "1e3", "99999999999999999999", "x"])).into(),
        2 => (-rng.below(50).cast_signed()).to_string(),
        3 => (rng.word().cast_signed() >> rng.below(64)).to_string(),
        _ => rng.below(300).to_string(),
    }
}

fn mop(style: Style, lists: &mut [Vec<String>], rng: &mut Rng) -> String {
    let key = rng.index(lists.len());
    let list = &mut lists[key];
    let name = match rng.below(90) {
        0 => style.word("k"),
        1 => number(rng),
        2 => {
            let names: [&str; 5] = ["k\\", "k.x/y", "\u{e9}", "", ":k"];
            style.word(names[rng.index(names.len())])
        }
        3 => format!("{:?}", ["a\nb", "t"][rng.index(2)]),
        // Of every two keys one is a name.
        _ if key % 2 == 1 => style.word(&format!("k{key}")),
        _ => (key * 256).to_string(),
    };
    let (f, value) = match rng.below(8) {
        0..=2 => {
            list.push(number(rng));
            ("append", list[list.len() - 1].clone())
        }
        3 => ("r", style.nil().into()),
        4 if rng.chance(0.1) => ("w", number(rng)),
        5 if rng.chance(0.1) => ("r", number(rng)),
        _ => {
            let mut list = list[..rng.index(list.len() + 1)].to_vec();
            if rng.chance(0.1) && !list.is_empty() {
                let at = rng.index(list.len());
                list[at] = number(rng);
            }
            ("r", style.list(&list))
        }
    };
    style.list(&[style.word(f), name, value])
}

/// `open` says which clients are at work; now and then one does what it cannot do.
fn operation(
    index: usize,
    style: Style,
    lists: &mut [Vec<String>],
    open: &mut [bool; 4],
    rng: &mut Rng,
) -> String {
    let mops: Vec<_> = (0..rng.below(5)).map(|_| mop(style, lists, rng)).collect();
    let client = rng.index(4);
    let (process, kind) = match rng.below(30) {
        0 => (style.word("nemesis"), "info"),
        1 => (number(rng), "invoke"),
        _ if open[client] != rng.chance(0.005) => {
            open[client] = false;
            let kinds = ["ok", "ok", "fail", "info"];
            (client.to_string(), *rng.pick(&kinds))
        }
        _ => {
            open[client] = true;
            (client.to_string(), "invoke")
        }
    };
    let mut members = vec![
        ("type", style.word(kind)),
        ("process", process),
        (
            "f",
            style.word(if rng.chance(0.03) { "cas" } else { "txn" }),
        ),
        ("value", style.list(&mops)),
    ];
    if style.has_index != rng.chance(0.002) {
        members.push(("index", index.to_string()));
    }
    if style.has_time {
        members.push(("time", number(rng)));
    }
    if rng.chance(0.03) {
        let (name, value) =
            *rng.pick(&[("error", "[1]"), ("node", "7"), ("index", "-1"), ("f", "2")]);
        members.push((name, value.to_owned()));
    }
    if rng.chance(0.5) {
        let at = rng.index(members.len());
        members.rotate_left(at);
    }
    style.map(&members)
}

/// A history, and how it is written.
fn text(rng: &mut Rng) -> (String, Format) {
    let style = Style::random(rng);
    let mut lists = vec![Vec::new(); 1 + rng.index(4)];
    let count = 1 + rng.index(30);
    let mut open = [false; 4];
    let lines = (0..count).map(|index| operation(index, style, &mut lists, &mut open, rng));
    let lines: Vec<_> = lines.collect();
    let (between, format) = match style.dialect {
        Dialect::Json if style.is_array => (",\n", Format::Json),
        Dialect::Json => ("\n", Format::Json),
        Dialect::Edn => (*rng.pick(&["\n", "\n", " ; }\n", ",\r\n"]), Format::Edn),
    };
    let mut text = lines.join(between);
    if style.is_array {
        text = format!("[{text}]");
    }
    text.push('\n');
    (text, format)
}

/// Does some damage.
fn damage(text: &mut String, rng: &mut Rng) {
    for _ in 0..rng.below(4) {
        let at = text.floor_char_boundary(rng.index(text.len().max(1)));
        match rng.below(6) {
            0 => text.truncate(at),
            1 => {
                let to = text.floor_char_boundary((at + rng.index(12)).min(text.len()));
                text.replace_range(at..to, "");
            }
            2 => {
                let from = text.floor_char_boundary(rng.index(text.len().max(1)));
                let to = text.floor_char_boundary((from + rng.index(40)).min(text.len()));
                let piece = text[from..to].to_owned();
                text.insert_str(at, &piece);
            }
            _ => {
                let piece = *rng.pick(&[
                    "[", "]", "{", "}", ",", ":", " ", "\n", "\"", "0", "-", "1", "9", "n", "r",
                    ";", "#", "#_ ", "\u{e9}", "\u{0}", "null", "nil",
                ]);
                text.insert_str(at, piece);
            }
        }
    }
}

/// All that is read of a text, the quick way and the general one, must be the same.
fn compare(text: &str, format: Format, rng: &mut Rng, seed: u64) -> usize {
    let length = *rng.pick(&[7, 64, 1_000, 1 << 20]);
    let open = || {
        let options = ImportOptions::default();
        FileOperations::with_window("x", text.as_bytes(), Some(format), options, length).unwrap()
    };
    let all = |operations: FileOperations<&[u8]>| {
        let mut error = String::new();
        let ops = operations.map_while(|op| op.map_err(|fault| error = fault.to_string()).ok());
        let ops: Vec<Op> = ops.collect();
        (ops, error)
    };
    let (ops, error) = all(open().slow());
    let quick = all(open());
    assert_eq!(quick.0, ops, "seed {seed}\n{text}");
    assert_eq!(quick.1, error, "seed {seed}\n{text}");
    let chunk_length = 1 + rng.index(20);
    let mut assembly = Assembly::new(chunk_length);
    let mut chunks = open().into_chunks(chunk_length);
    for op in &ops {
        if let Some(expected) = assembly.push(op).unwrap() {
            let chunk = chunks.read().unwrap().map(Chunk::bytes);
            assert_eq!(chunk, Some(expected.bytes()), "seed {seed}\n{text}");
        }
    }
    if error.is_empty() {
        let expected = assembly.rest().map(Chunk::bytes);
        assert_eq!(
            chunks.read().unwrap().map(Chunk::bytes),
            expected,
            "seed {seed}\n{text}"
        );
    } else {
        assert_eq!(
            chunks.read().unwrap_err().to_string(),
            error,
            "seed {seed}\n{text}"
        );
    }
    assert!(chunks.read().unwrap().is_none(), "seed {seed}");
    ops.len()
}

#[test]
fn the_quick_way_leads_to_the_same() {
    let histories = seatrial_farm::histories(2_000);
    let (mut plain, mut damaged) = (0, 0);
    for seed in 0..histories {
        let mut rng = Rng::from_seed(seed);
        let (mut text, format) = text(&mut rng);
        plain += compare(&text, format, &mut rng, seed);
        damage(&mut text, &mut rng);
        damaged += compare(&text, format, &mut rng, seed);
    }
    assert!(
        plain as u64 > histories * 8 && damaged as u64 > histories * 5,
        "{plain} {damaged}"
    );
}

#[test]
fn common_shapes_take_the_fast_path() {
    let read = |text: &str| {
        let dialect = match text.as_bytes().get(1) {
            Some(b'"') => Dialect::Json,
            _ => Dialect::Edn,
        };
        let mut row = TransactionRow::default();
        let end = row.read(text.as_bytes(), 0, dialect)?;
        assert_eq!(end, text.len());
        Some(
            row.op(row.index.unwrap_or(0), Symbol::new("txn"))
                .to_string(),
        )
    };
    let usual = [
        r#"{"index":3,"time":5,"type":"ok","process":1,"f":"txn","value":[["append",0,1],["r",1,[1,2]],["r",2,null]]}"#,
        r#"{"type": "ok", "f": "txn", "value": [["append", 0, 1], ["r", 1, [1, 2]], ["r", 2, null]], "process": 1, "time": 5, "index": 3}"#,
        r"{:index 3, :time 5, :type :ok, :process 1, :f :txn, :value [[:append 0 1] [:r 1 [1 2]] [:r 2 nil]]}",
        r"{:type :ok, :f :txn, :value [[:append 0 1] [:r 1 [1 2]] [:r 2 nil]], :time 5, :process 1, :index 3}",
        r"#jepsen.history.Op{:index 3, :time 5, :type :ok, :process 1, :f :txn, :value [[:append 0 1], [:r 1 [1, 2]], [:r 2 nil]]}",
    ];
    for text in usual {
        let expected = "{:index 3, :time 5, :type :ok, :process 1, :f :txn, :value [[:append 0 1] [:r 1 [1 2]] [:r 2 nil]]}";
        assert_eq!(read(text).as_deref(), Some(expected), "{text}");
    }
    for kind in ["invoke", "ok", "fail", "info"] {
        let json = format!(r#"{{"type":"{kind}","process":0,"f":"txn","value":[]}}"#);
        let edn = format!("{{:type :{kind}, :process 0, :f :txn, :value []}}");
        assert!(read(&json).is_some() && read(&json) == read(&edn), "{kind}");
    }
    for (json, edn) in [
        (r#""x""#, r#""x""#),
        ("\"\u{e9} \"", "\"\u{e9} \""),
        ("-7", "-7"),
    ] {
        let json = format!(r#"{{"type":"ok","process":0,"f":"txn","value":[["r",{json},[1]]]}}"#);
        let edn = format!("{{:type :ok, :process 0, :f :txn, :value [[:r {edn} [1]]]}}");
        assert!(read(&json).is_some() && read(&json) == read(&edn), "{json}");
    }
    let named = "{:type :ok, :process 0, :f :txn, :value [[:append :x-1 2]]}";
    assert!(read(named).unwrap().contains("[:append :x-1 2]"));
    for unusual in [
        r#"{"type":"ok","process":0,"f":"txn","value":null}"#,
        r#"{"type":"ok","process":0,"f":"cas","value":[]}"#,
        r#"{"type":"ok","process":0,"value":[]}"#,
        r#"{"type":"ok","process":0,"f":"txn","f":"txn","value":[]}"#,
        r#"{"type":"ok","process":-1,"f":"txn","value":[]}"#,
        r#"{"type":"ok","process":0,"f":"txn","value":[["append",1,1.0]]}"#,
        r#"{"type":"ok","process":0,"f":"txn","value":[["append",1,1234567890123456789]]}"#,
        r#"{"type":"ok","process":0,"f":"txn","value":[["r",1,[1,"2"]]]}"#,
        r#"{"type":"ok","process":0,"f":"txn","value":[["append",1,null]]}"#,
        r#"{"type":"ok","process":0,"f":"txn","value":[["append","\n",1]]}"#,
        r"{:type :okay, :process 0, :f :txn, :value []}",
        r"{:type :ok, :process 0, :f :txn, :value [[:append 1 1N]]}",
    ] {
        assert_eq!(read(unusual), None, "{unusual}");
    }
}

#[test]
fn integers_are_those_of_the_standard_library() {
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let number = rng.word().cast_signed() >> rng.below(64);
        let rest: Vec<u8> = (0..rng.below(12))
            .map(|_| *rng.pick(b"0129,] -\xff:/\n"))
            .collect();
        let text = [format!("x{number}").as_bytes(), &rest].concat();
        let digits = |byte: &&u8| byte.is_ascii_digit();
        let sign = usize::from(number < 0);
        let length = text[1 + sign..].iter().take_while(digits).count();
        let end = 1 + sign + length;
        let expected: Option<i64> = str::from_utf8(&text[1..end]).unwrap().parse().ok();
        let expected = expected.filter(|_| length <= DIGITS_MAX);
        assert_eq!(integer(&text, 1), expected.map(|it| (it, end)), "{text:?}");
    }
    for none in ["", "-", "x", "--1", "-x123456789", "\u{e9}12345678"] {
        assert_eq!(integer(none.as_bytes(), 0), None, "{none}");
    }
}
