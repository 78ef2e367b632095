#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use crate::export::{Layout, TextWriter};
use expect_test::{Expect, expect};
use seatrial_history::{Key, Mop, Observed, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::fmt::Write as _;

fn edn(text: &str) -> Result<History, ImportError> {
    read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    )
}

/// Prints the operations of `text`, or the error, one per line.
fn check(text: &str, format: Format, options: ImportOptions, expected: &Expect) {
    let actual = match read("a.edn", text.as_bytes(), format, options) {
        Ok(history) => history.iter().fold(String::new(), |mut text, op| {
            writeln!(text, "{op}").unwrap();
            text
        }),
        Err(error) => format!("{error}\n"),
    };
    expected.assert_eq(&actual);
}

fn plain(text: &str, expected: &Expect) {
    check(text, Format::Edn, ImportOptions::default(), expected);
}

#[test]
fn maps_one_after_another() {
    plain(
        "{:index 4, :time 17, :process 0, :type :invoke, :f :read, :value nil}\n\
         ; a comment\n\
         {:index 9 :time 20 :process :nemesis :type :info :f :kill :value {:n1 :killed}}\n\
         {:type :ok #_ {:x [1 2]} :f :read, :process 0, :index 10, :time 21, :value 3 :error [:a \"b\\n\"]}",
        &expect![[r#"
            {:index 4, :time 17, :type :invoke, :process 0, :f :read, :value nil}
            {:index 9, :time 20, :type :info, :process :nemesis, :f :kill, :value {:n1 :killed}}
            {:index 10, :time 21, :type :ok, :process 0, :f :read, :value 3, :error [:a "b\n"]}
        "#]],
    );
}

#[test]
fn a_vector_of_records_without_indices() {
    plain(
        "[#jepsen.history.Op{:process 1, :type :invoke, :f :cas, :value [1 2]}\n\
         #jepsen.history.Op {:process 1, :type :ok, :f :cas, :value [1 2]}] ; done",
        &expect![[r"
            {:index 0, :time -1, :type :invoke, :process 1, :f :cas, :value [1 2]}
            {:index 1, :time -1, :type :ok, :process 1, :f :cas, :value [1 2]}
        "]],
    );
    let history = edn("({:process 1 :type :ok :f :cas :value [1 2]})").unwrap();
    assert_eq!(history.ops()[0].value, Value::Cas(1, 2));
}

#[test]
fn transactions_are_recognised() {
    let text = "{:process 1 :type :ok :f :txn :value [[:append 5 1] [:r :x [1 2]] [:r \"y\" nil] \
                [:w 3 4] [:r 3 4] [:r 7 []]]}";
    let history = edn(text).unwrap();
    let key = |name: &'static str| Key::Word(Symbol::new(name));
    let read = |key, observed| Mop::Read { key, observed };
    let expected = [
        Mop::Append {
            key: Key::Int(5),
            element: 1,
        },
        read(key("x"), Observed::List([1, 2].into())),
        read(Key::Text("y".into()), Observed::Nil),
        Mop::Write {
            key: Key::Int(3),
            value: 4,
        },
        read(Key::Int(3), Observed::Register(4)),
        read(Key::Int(7), Observed::List([].into())),
    ];
    assert_eq!(history.ops()[0].value.as_txn().unwrap(), expected);
    let empty = edn("{:process 1 :type :ok :f :txn :value []}").unwrap();
    assert_eq!(empty.ops()[0].value, Value::Txn([].into()));
    let other = edn("{:process 1 :type :ok :f :txn :value [[:inc 5 1]]}").unwrap();
    assert!(matches!(other.ops()[0].value, Value::List(_)));
    let nemesis = edn("{:process :nemesis :type :info :f :x :value [[:r 5 1]]}").unwrap();
    assert!(matches!(nemesis.ops()[0].value, Value::List(_)));
}

#[test]
fn tuples_are_keyed_only_on_request() {
    let text = "{:process 1 :type :invoke :f :cas :value [7 [1 2]]}\
                {:process 2 :type :invoke :f :write :value [7 3]}\
                {:process 3 :type :invoke :f :read :value [:k nil]}\
                {:process 4 :type :invoke :f :read :value nil}";
    let values = |options| {
        let history = read("a", text.as_bytes(), Format::Edn, options).unwrap();
        history
            .iter()
            .map(|op| op.value.clone())
            .collect::<Vec<_>>()
    };
    let keyed = values(ImportOptions {
        keyed: true,
        ..ImportOptions::default()
    });
    assert_eq!(keyed[0], Value::Keyed(Key::Int(7), Value::Cas(1, 2).into()));
    assert_eq!(keyed[1], Value::Keyed(Key::Int(7), Value::Int(3).into()));
    let key = Key::Word(Symbol::new("k"));
    assert_eq!(keyed[2], Value::Keyed(key, Value::Nil.into()));
    assert_eq!(keyed[3], Value::Nil);
    let plain = values(ImportOptions::default());
    assert!(matches!(plain[0], Value::List(_)));
    assert_eq!(plain[1].to_string(), "[7 3]");
}

#[test]
fn every_kind_of_form_is_read() {
    plain(
        "{:process 1 :type :ok :f :read :value [1 -2 +3 4N 0x1F 1.5 -2e3 7M 1/3 99999999999999999999 \
         \\a \\newline \\u0041 \"\\u00e9\\101\\t\" true false sym :ns/key #{1 2} {:a {}} () [] \
         #inst \"2026-01-01\" ##Inf #\"re\" ^:meta [x] #_ #_ 1 2 nil]}",
        &expect![[r#"
            {:index 0, :time -1, :type :ok, :process 1, :f :read, :value [1 -2 3 4 31 1.5 -2000.0 7.0 "1/3" "99999999999999999999" "a" "\n" "A" "éA\t" true false :sym :ns/key #{1 2} {:a {}} [] [] "2026-01-01" ##Inf "re" [:x] nil]}
        "#]],
    );
}

#[test]
fn porcupine_logs() {
    let log = "INFO  jepsen.util - 3\t:invoke\t:cas\t[1 2]\n\
               INFO  jepsen.core - something else\n\
               INFO  jepsen.util - :nemesis   :info  :start   nil\n\
               INFO  jepsen.util - 3   :info     :cas    :timed-out\n";
    check(
        log,
        Format::Porcupine,
        ImportOptions::default(),
        &expect![[r"
            {:index 0, :time -1, :type :invoke, :process 3, :f :cas, :value [1 2]}
            {:index 1, :time -1, :type :info, :process :nemesis, :f :start, :value nil}
            {:index 2, :time -1, :type :info, :process 3, :f :cas, :value :timed-out}
        "]],
    );
    check(
        "{:process 0, :type :ok, :f :get, :key \"7\", :value \"\"}\n",
        Format::Porcupine,
        ImportOptions::default(),
        &expect![[r#"
            {:index 0, :time -1, :type :ok, :process 0, :f :get, :value ["7" ""]}
        "#]],
    );
    check(
        "INFO  jepsen.util - 3 :invoke :read nil\nINFO  jepsen.util - 3 :done :read nil\n",
        Format::Porcupine,
        ImportOptions::default(),
        &expect![[r"
            a.edn:2:23: :type is none of :invoke, :ok, :fail, :info
        "]],
    );
}

#[test]
fn formats_are_detected() {
    let cases: [(&str, &str, Option<Format>); 17] = [
        ("x", "  ; hello\n[{:type :ok", Some(Format::Edn)),
        ("x", "({:type :ok", Some(Format::Edn)),
        ("x", "#jepsen.history.Op{:type :ok", Some(Format::Edn)),
        (
            "x",
            "{:process 0, :f :get, :key \"7\", :value nil}",
            Some(Format::Porcupine),
        ),
        ("x", "{:process 0, :f :get, :keys 7}", Some(Format::Edn)),
        (
            "x.log",
            "INFO  jepsen.util - 0\t:invoke",
            Some(Format::Porcupine),
        ),
        ("x", "[{\"type\": \"ok\"}]", Some(Format::Json)),
        ("x.json", "{\"type\" \n: \"ok\"}", Some(Format::Json)),
        ("x.edn", "", Some(Format::Edn)),
        ("x.txt", "\n r(1,2,3,4)\r\nw", Some(Format::Plume)),
        ("x.txt", "r(1,2,3)", None),
        ("x.txt", "w 1 -2\n---", Some(Format::Awdit)),
        ("x.txt", "---\nw 1 -2", None),
        ("x.txt", "2\n0 1 R 4 2 1", Some(Format::VeriStrong)),
        ("x.txt", "2\n0 1 S 4 2 1", None),
        ("x", "\u{0}\u{1}", None),
        ("x", "", None),
    ];
    let more = [
        ("x", "process,type,f\n0,ok,read", Some(Format::Csv)),
        ("x", "\"f\", start,end\nread,1,2", Some(Format::Csv)),
        ("x.csv", "process,f\n0,read", None),
        (
            "x",
            "[{\"ClientId\":0,\"Input\":{\"Op\":0",
            Some(Format::PorcupineJson),
        ),
        (
            "x",
            "{\"ClientId\":0,\"Kind\":false",
            Some(Format::PorcupineJson),
        ),
    ];
    for (name, text, expected) in cases.into_iter().chain(more) {
        assert_eq!(detect(name, text.as_bytes()), expected, "{name} {text}");
    }
    assert_eq!(detect("x", &[0xff, 0xfe]), None);
    for format in Format::ALL {
        assert_eq!(Format::by_name(format.name()), Some(format));
    }
    assert_eq!(Format::by_name("xml"), None);
}

#[test]
fn errors_name_the_place() {
    let cases = [
        "",
        "[",
        "[{:process 0",
        "{:process 0 :type :ok :f :read :value }",
        "{:process 0 :type :ok :f :read :value 1}\n  {:process 0 :type :yes :f :read}",
        "{:process 0 :type :ok :f :read :value \"abc}",
        "{:process 0 :type :ok :value 3}",
        "{:process -1 :type :ok :f :read}",
        "{:process [0] :type :ok :f :read}",
        "{:process 0 :type :ok :f :read :value 12x}",
        "{:process 0 :type :ok :f :read :value \"\\q\"}",
        "{:process 0 :type :ok :f :read :value \"\\ud800\\u0041\"}",
        "[{:process 0 :type :ok :f :read}] x",
        "[{:process 0 :type :ok :f :read})",
        "{:process 0 :type :ok :f :read :index 3} {:process 0 :type :ok :f :read}",
        "{:process 0 :type :ok :f :read :value {1}}",
        "{\"process\" 0}",
        "é 1",
        "{:process 0 :type :ok :f :read :time :noon}",
    ];
    let mut actual = String::new();
    for text in cases {
        writeln!(actual, "{}", edn(text).unwrap_err()).unwrap();
    }
    expect![[r#"
        a.edn:1:1: no operation found
        a.edn:1:1: this bracket is never closed
        a.edn:1:2: this bracket is never closed
        a.edn:1:32: :value has no value
        a.edn:2:21: :type is none of :invoke, :ok, :fail, :info
        a.edn:1:39: this string is never closed
        a.edn:1:1: this operation has no :f
        a.edn:1:11: process -1 is negative
        a.edn:1:11: :process is neither a number nor a name
        a.edn:1:39: bad number `12x`
        a.edn:1:40: unknown escape `\q`
        a.edn:1:40: half of a surrogate pair
        a.edn:1:35: something follows the history's closing bracket
        a.edn:1:33: an operation (a map) is expected
        a.edn:1:42: this operation has no :index, those before it have one
        a.edn:1:39: this map has a key without a value
        a.edn:1:1: this operation has no :type
        a.edn:1:1: an operation (a map) is expected
        a.edn:1:38: :time is not a number
    "#]]
    .assert_eq(&actual);
    let error = read("b.edn", b"{:a \xff}", Format::Edn, ImportOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "b.edn:1:5: not UTF-8 text");
}

#[test]
fn nesting_has_a_bound() {
    for open in ["[", "{:a ", "#{", "#_ ", "#tag ", "^", "(", "^{:a ", "#_#_"] {
        let text = format!(
            "{{:process 0 :type :ok :f :read :value {}",
            open.repeat(1_000_000)
        );
        let error = edn(&text).unwrap_err();
        assert!(error.problem.contains("nesting"), "{open}: {error}");
    }
}

#[test]
fn printed_operations_are_read_back() {
    let mut rng = Rng::from_seed(5);
    for _ in 0..500 {
        let op = random_operation(&mut rng);
        let text = op.to_string();
        let history = edn(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(history.ops(), [op], "{text}");
    }
}

/// An operation whose printed form says everything about it.
fn random_operation(rng: &mut Rng) -> Op {
    let process = Process::Client(rng.below(9));
    let key = |rng: &mut Rng| match rng.below(3) {
        0 => Key::Int(rng.word().cast_signed()),
        1 => Key::Word(Symbol::new("x")),
        _ => Key::Text("a \"b\" \\ \n é".into()),
    };
    let int = |rng: &mut Rng| rng.word().cast_signed() >> rng.below(64);
    let mut mops = Vec::new();
    for _ in 0..=rng.below(4) {
        mops.push(match rng.below(4) {
            0 => Mop::Append {
                key: key(rng),
                element: int(rng),
            },
            1 => Mop::Write {
                key: key(rng),
                value: int(rng),
            },
            2 => Mop::Read {
                key: key(rng),
                observed: Observed::Nil,
            },
            _ => Mop::Read {
                key: key(rng),
                observed: Observed::List((0..rng.below(5)).map(|_| int(rng)).collect()),
            },
        });
    }
    let (f, value) = match rng.below(5) {
        0 => ("read", Value::Nil),
        1 => ("write", Value::Int(int(rng))),
        2 => ("cas", Value::Cas(int(rng), int(rng))),
        3 => (
            "write",
            Value::Map([(Value::Bool(true), Value::Float(0.25))].into()),
        ),
        _ => ("txn", Value::Txn(mops.into())),
    };
    let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
    let mut op = Op::invoke(process, f, value);
    op.kind = *rng.pick(&kinds);
    op.index = rng.below(1 << 40);
    op.time = int(rng);
    if rng.chance(0.3) {
        op = op.with("error", Value::Set([Value::text("oh"), Value::Nil].into()));
    }
    op
}

/// Reads arbitrary bytes in every way; must neither panic nor hang.
fn fuzz_one(bytes: &[u8]) {
    if let Some(format) = detect("a.edn", bytes) {
        let _ = read("a", bytes, format, ImportOptions::default());
    }
    for format in Format::ALL {
        let options = ImportOptions {
            keyed: true,
            ..ImportOptions::default()
        };
        if let Err(error) = read("a", bytes, format, options) {
            match error.place {
                SourcePosition::Text { line, column } => assert!(line >= 1 && column >= 1),
                SourcePosition::Byte(at) => assert!(at <= bytes.len() as u64),
            }
        }
    }
}

#[test]
fn damaged_text_gives_errors() {
    let seeds = [
        "[{:process 4, :type :invoke, :f :write, :value 2} ; x\n {:process :n, :type :ok, :f :txn, \
         :value [[:append 1 2] [:r \"x\" [1 2 3]] [:r 1 nil]] :error #{\\a \"\\u00e9\\n\" 1.5e3 #_ x}}]",
        "[{\"process\":4,\"type\":\"ok\",\"f\":\"txn\",\"value\":[[\"append\",1,2],[\"r\",\"x\",[1,2]]]},\n \
         {\"process\":\"n\",\"type\":\"info\",\"f\":\"x\",\"value\":{\"a\":-1.5e3,\"\\u00e9\":[null]}}]",
        "INFO  jepsen.util - 3\t:invoke\t:cas\t[1 2]\nINFO  jepsen.util - :nemesis\t:info\t:start\tnil\n",
        "[{:type :invoke, :f :read, :value [[:r 0] [:r [1 2] nil]]},\n{:type :ok, :f :read, :value [[:r 0 1] \
         [:r [1 2] nil]]} {:type :invoke :value [[:append 1.5 1]]} {:type :ok :value [[:append 1.5 1]]}]",
        "{:process 0, :type :ok, :f :get, :key \"7\", :value \"\"}\n#jepsen.history.Op{:process 0 :f :x \
         :type :ok :time 12 :index 3 :v [##NaN 12N 3/4 ^{:a 1} (b) {:c {}}]}",
    ];
    let tokens = [
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "\"",
        "\\",
        "#",
        "#_",
        "#{",
        "^",
        ":",
        ";",
        "\n",
        "é",
        "nil",
        "-",
        "0x",
        "##",
        ":value",
        "\\u12",
        "99999999999999999999",
        "1e999",
        " ",
    ];
    let mut rng = Rng::from_seed(11);
    for round in 0..12_000 {
        let mut bytes = seeds[round % seeds.len()].as_bytes().to_vec();
        for _ in 0..=rng.below(6) {
            let at = rng.index(bytes.len() + 1);
            match rng.below(4) {
                0 => bytes.truncate(at.max(1)),
                1 if at < bytes.len() => bytes[at] = rng.word() as u8,
                2 => {
                    let end = (at + rng.index(20)).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => {
                    let token = rng.pick(&tokens).bytes();
                    bytes.splice(at..at, token);
                }
            }
        }
        fuzz_one(&bytes);
        let noise: Vec<u8> = (0..rng.index(64)).map(|_| rng.word() as u8).collect();
        fuzz_one(&noise);
    }
}

fn json(text: &str) -> Result<History, ImportError> {
    read(
        "a.json",
        text.as_bytes(),
        Format::Json,
        ImportOptions::default(),
    )
}

#[test]
fn json_in_lines_and_in_an_array() {
    let first = r#"{"index":0,"type":"invoke","process":0,"f":"txn","time":5,
        "value":[["append",1,2],["r","x",null],["w",3,4]]}"#;
    let second = r#"{"index":1, "type":":ok", "process":0, "f":"txn", "time":7.0, "node": "n\"1\u00e9",
        "value":[["append",1,2],["r","x",[1,2]],["w",3,4]], "error": {"code": [1.5, NaN, true], "a b": []}}"#;
    let third =
        r#"{"index":2,"type":"info","process":"nemesis","f":"kill","value":18446744073709551615}"#;
    let expected = expect![[r#"
        {:index 0, :time 5, :type :invoke, :process 0, :f :txn, :value [[:append 1 2] [:r "x" nil] [:w 3 4]]}
        {:index 1, :time 7, :type :ok, :process 0, :f :txn, :value [[:append 1 2] [:r "x" [1 2]] [:w 3 4]], :node "n\"1é", :error {:code [1.5 ##NaN true], "a b" []}}
        {:index 2, :time -1, :type :info, :process :nemesis, :f :kill, :value "18446744073709551615"}
    "#]];
    let array = format!("[{first},\n{second},\n{third}]\n");
    let lines = [first, second, third]
        .map(|op| op.replace('\n', " "))
        .join("\n");
    check(&array, Format::Json, ImportOptions::default(), &expected);
    check(&lines, Format::Json, ImportOptions::default(), &expected);
    let cas = r#"{"type":"ok","process":1,"f":"cas","value":["k",[1,2]]}"#;
    let options = ImportOptions {
        keyed: true,
        ..ImportOptions::default()
    };
    let keyed = read("a", cas.as_bytes(), Format::Json, options).unwrap();
    let expected = Value::Keyed(Key::Text("k".into()), Value::Cas(1, 2).into());
    assert_eq!(keyed.ops()[0].value, expected);
}

#[test]
fn errors_in_json_name_the_place() {
    let op = r#"{"process":0,"type":"ok","f":"read","value":"#;
    let cases = [
        "[",
        "{",
        r#"{"process":0"#,
        r#"{"process":0}"#,
        r#"{"process":0,}"#,
        r#"{"process" 0}"#,
        r#"{"process":-1}"#,
        r#"{process:0}"#,
        "7",
        &format!("{op}}}"),
        &format!("{op}1 2}}"),
        &format!("{op}[1 2]}}"),
        &format!("{op}[1,]}}"),
        &format!("{op}[1"),
        &format!("{op}nul}}"),
        &format!("{op}+1}}"),
        &format!("{op}1x}}"),
        &format!("{op}\"\\x\"}}"),
        &format!("{op}\"x}}"),
        &format!("{op}1}}\n{op}2}}\n\n  {op}3,\"time\":[]}}"),
        &format!("[{op}1}}] 7"),
    ];
    let mut actual = String::new();
    for text in cases {
        writeln!(actual, "{}", json(text).unwrap_err()).unwrap();
    }
    expect![[r#"
        a.json:1:1: this bracket is never closed
        a.json:1:1: this object is never closed
        a.json:1:1: this object is never closed
        a.json:1:1: this operation has no :type
        a.json:1:14: the name of a member (a string) is expected
        a.json:1:12: `:` is expected after "process"
        a.json:1:12: process -1 is negative
        a.json:1:2: the name of a member (a string) is expected
        a.json:1:1: an operation (an object) is expected
        a.json:1:45: a value is expected
        a.json:1:47: `,` or `}` is expected
        a.json:1:48: `,` or `]` is expected
        a.json:1:48: a value is expected
        a.json:1:45: this array is never closed
        a.json:1:45: bad value `nul`
        a.json:1:45: bad value `+1`
        a.json:1:45: bad value `1x`
        a.json:1:46: unknown escape `\x`
        a.json:1:45: this string is never closed
        a.json:4:56: :time is not a number
        a.json:1:50: something follows the history's closing bracket
    "#]]
    .assert_eq(&actual);
    for open in ["[", "{\"a\":", "[[[{\"b\":"] {
        let error = json(&format!("{op}{}", open.repeat(300_000))).unwrap_err();
        assert!(error.problem.contains("nesting"), "{open}: {error}");
    }
}

/// Reads in tiny windows; the result is that of one large window.
/// The same with invocations and completions in turn for each client, as they must be.
pub(super) fn in_turn(mut ops: Vec<Op>) -> Vec<Op> {
    let mut open = std::collections::BTreeSet::new();
    for op in ops.iter_mut().filter(|op| op.process.is_client()) {
        let is_open = open.remove(&op.process.to_string());
        match op.kind {
            OpType::Invoke if is_open => op.kind = OpType::Ok,
            _ if is_open => {}
            _ => {
                op.kind = OpType::Invoke;
                open.insert(op.process.to_string());
            }
        }
    }
    ops
}

/// All of it, printed, and the error that ended it.
fn printed(text: &str, format: Format) -> String {
    let operations =
        FileOperations::open("a", text.as_bytes(), Some(format), ImportOptions::default());
    let lines = operations.unwrap().map(|op| match op {
        Ok(op) => format!("{op}\n"),
        Err(error) => format!("! {error}\n"),
    });
    lines.collect()
}

/// Written as in the samples of Elle and elle-cli.
#[test]
fn what_other_tools_leave_out() {
    let edn = [
        "{:index 1, :type :invoke, :process 2, :value [[ :append 4 2] [ :r :x] ]}",
        "{:index 2, :type :ok, :process 2, :value [[ :append 4 2] [ :r :x [ ]] ]}",
        "{:index 3, :type :invoke, :process \"0\", :f nil, :value [[:append [1 2] 5] [:r 1.5 nil]]}",
        "{:index 4, :type :info, :process \"0\", :value nil, :exception {:via [{:type E}]}}",
        "{:index 5, :type :info, :process :nemesis, :f nil, :value {\"n1\" 1/3}}",
    ];
    let mut all = printed(&edn.join("\n"), Format::Edn);
    all += &printed(
        "[{:type :invoke, :f :read, :value [[:r 0 nil] [:r 1 nil]]},
          {:type :invoke, :f :read, :value [[:r 1 nil] [:r 0 nil]]},
          {:type :ok, :f :read, :value [[:r 0 1] [:r 1 1]]},
          {:type :ok, :f :read, :value [[:r 1 1] [:r 0 1]]}]",
        Format::Edn,
    );
    all += &printed(
        r#"[{"process":1,"type":"invoke","value":[["append",253,1],["r","x"]]},
            {"process":1,"type":"ok","value":[["append",253,1],["r","x",[1]]]}]"#,
        Format::Json,
    );
    expect![[r#"
        {:index 1, :time -1, :type :invoke, :process 2, :f :txn, :value [[:append 4 2] [:r :x nil]]}
        {:index 2, :time -1, :type :ok, :process 2, :f :txn, :value [[:append 4 2] [:r :x []]]}
        {:index 3, :time -1, :type :invoke, :process 0, :f :txn, :value [[:append "[1 2]" 5] [:r "1.5" nil]]}
        {:index 4, :time -1, :type :info, :process 0, :f :txn, :value nil, :exception {:via [{:type :E}]}}
        {:index 5, :time -1, :type :info, :process :nemesis, :f :nil, :value {"n1" "1/3"}}
        {:index 0, :time -1, :type :invoke, :process 0, :f :read, :value [[:r 0 nil] [:r 1 nil]]}
        {:index 1, :time -1, :type :invoke, :process 1, :f :read, :value [[:r 1 nil] [:r 0 nil]]}
        {:index 2, :time -1, :type :ok, :process 0, :f :read, :value [[:r 0 1] [:r 1 1]]}
        {:index 3, :time -1, :type :ok, :process 1, :f :read, :value [[:r 1 1] [:r 0 1]]}
        {:index 0, :time -1, :type :invoke, :process 1, :f :txn, :value [[:append 253 1] [:r "x" nil]]}
        {:index 1, :time -1, :type :ok, :process 1, :f :txn, :value [[:append 253 1] [:r "x" [1]]]}
    "#]].assert_eq(&all);
}

/// As in elle-cli's `list-ok.edn`.
#[test]
fn indices_that_do_not_rise_give_way_to_positions() {
    let op = |process, index, kind| {
        format!("{{:process {process}, :index {index}, :type :{kind}, :value [[:r x]]}}\n")
    };
    let text = [
        op(1, 5, "invoke"),
        op(2, 6, "invoke"),
        op(1, 5, "ok"),
        op(2, 6, "ok"),
        op(1, 7, "invoke"),
    ];
    let text = text.concat();
    let options = ImportOptions::default();
    let mut read = FileOperations::open("a", text.as_bytes(), Some(Format::Edn), options).unwrap();
    let indices: Vec<u64> = read.by_ref().map(|op| op.unwrap().index).collect();
    assert_eq!(indices, [5, 6, 7, 8, 9]);
    let warning =
        "a:3:1: index 5 follows index 6: from here on operations are numbered by their position";
    assert_eq!(read.warning(), Some(warning));
}

#[test]
fn what_no_process_can_have_done_is_refused() {
    let edn = [
        "{:type :invoke, :process 0, :f :txn, :value [[:append 1 1]]}",
        "{:type :ok, :process 0, :f :txn, :value [[:append 1 1]]}",
        "{:type :invoke, :process 0, :f :txn, :value [[:append 1 2]]}",
        "{:type :invoke, :process 0, :f :txn, :value [[:append 1 3]]}",
    ];
    let text = printed(&edn.join("\n"), Format::Edn);
    let said = "! a:4:1: operation 3: process 0 invokes while its operation 2 is running";
    assert_eq!(text.lines().nth(3), Some(said));
    let text = printed(&[edn[0], edn[1], edn[1]].join("\n"), Format::Edn);
    let said = "! a:3:1: operation 2: process 0 completes (ok) what it did not invoke";
    assert_eq!(text.lines().nth(2), Some(said));
}

#[test]
fn a_window_changes_nothing() {
    let mut rng = Rng::from_seed(8);
    for round in 0..300 {
        let ops: Vec<Op> = (0..=rng.index(30))
            .map(|index| Op {
                index: index as u64,
                ..random_operation(&mut rng)
            })
            .collect();
        let ops = in_turn(ops);
        let layouts = [Layout::Edn, Layout::JsonLines, Layout::Json];
        let layout = layouts[round % 3];
        let mut writer = TextWriter::new(Vec::new(), layout);
        for op in &ops {
            writer.push(op).unwrap();
        }
        let mut text = String::from_utf8(writer.finish().unwrap()).unwrap();
        if layout == Layout::Edn {
            let comment = "; one } and \" [ \n #_ {:a [1 \"]\"]} ,, #_ discarded ";
            text = format!("\u{feff}[{}]{comment}", text.replace('\n', comment));
        }
        if rng.chance(0.3) {
            text.truncate(text.floor_char_boundary(rng.index(text.len() + 1)));
        }
        let format = if layout == Layout::Edn {
            Format::Edn
        } else {
            Format::Json
        };
        let read = |length| {
            let (format, options) = (Some(format), ImportOptions::default());
            let bytes = text.as_bytes();
            let stream = FileOperations::with_window("a", bytes, format, options, length);
            let mut found = Vec::new();
            for op in stream.unwrap() {
                match op {
                    Ok(op) => found.push(op),
                    Err(error) => return (found, error.to_string()),
                }
            }
            (found, String::new())
        };
        let whole = read(1 << 20);
        assert!(whole.1.is_empty() || whole.0.len() <= ops.len());
        for length in [4, 7, 64] {
            assert_eq!(read(length), whole, "round {round}, {length}: {text}");
        }
    }
}

#[test]
fn a_text_that_cannot_be_read_on_gives_what_came_before() {
    struct FailingInput(usize);
    impl Read for FailingInput {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let op = b"{:process 1 :type :ok :f :read}\n";
            if self.0 == 0 {
                return Err(std::io::Error::other("the disk is gone"));
            }
            self.0 -= 1;
            let length = op.len().min(buffer.len());
            buffer[..length].copy_from_slice(&op[..length]);
            Ok(length)
        }
    }
    let mut stream =
        FileOperations::open("x.edn", FailingInput(3), None, ImportOptions::default()).unwrap();
    assert_eq!(stream.by_ref().filter_map(Result::ok).count(), 3);
    let mut stream =
        FileOperations::open("x.edn", FailingInput(3), None, ImportOptions::default()).unwrap();
    let error = stream.find_map(Result::err).unwrap();
    assert_eq!(
        error.to_string(),
        "x.edn:4:1: cannot be read: the disk is gone"
    );
    assert!(stream.next().is_none());
}

/// What JSON makes of a value.
fn in_json(value: &Value) -> Value {
    let each = |items: &[Value]| Value::List(items.iter().map(in_json).collect());
    match value {
        Value::Word(word) => Value::text(word.as_str()),
        Value::List(items) | Value::Set(items) => each(items),
        Value::Map(pairs) if pairs.iter().all(|(key, _)| matches!(key, Value::Word(_))) => {
            let pairs = pairs.iter();
            Value::Map(
                pairs
                    .map(|(key, item)| (key.clone(), in_json(item)))
                    .collect(),
            )
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pair = |(key, item): &(Value, Value)| each(&[key.clone(), item.clone()]);
            Value::List(pairs.map(pair).collect())
        }
        Value::Txn(mops) => Value::Txn(mops.iter().map(mop_in_json).collect()),
        other => other.clone(),
    }
}

fn mop_in_json(mop: &Mop) -> Mop {
    let key = match mop.key() {
        Key::Word(word) => Key::Text(word.as_str().into()),
        key => key.clone(),
    };
    match mop.clone() {
        Mop::Append { element, .. } => Mop::Append { key, element },
        Mop::Write { value, .. } => Mop::Write { key, value },
        Mop::Read { observed, .. } => Mop::Read { key, observed },
    }
}

#[test]
fn what_json_says_is_read_back() {
    let mut rng = Rng::from_seed(6);
    for _ in 0..500 {
        let mut op = random_operation(&mut rng);
        let text = crate::export::json(&op).to_string();
        let history = json(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        op.value = in_json(&op.value);
        let fields = op.extra.iter().map(|(name, item)| (*name, in_json(item)));
        op.extra = seatrial_history::Extra::new(&fields.collect::<Vec<_>>());
        assert_eq!(history.ops(), [op], "{text}");
    }
}
