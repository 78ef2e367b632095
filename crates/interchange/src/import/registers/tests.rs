#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use crate::import::{FileOperations, collect, detect, read};
use expect_test::{Expect, expect};
use seatrial_history::{OpType, Stamps};
use seatrial_machine::Rng;
use std::fmt::Write as _;

/// A sink that prints its calls.
#[derive(Default)]
struct Script(String);

impl TransactionSink for Script {
    fn begin(&mut self, session: u64, stamps: Option<Stamps>) {
        write!(self.0, "{session}:").unwrap();
        if let Some(Stamps { start, commit }) = stamps {
            let [start, commit] =
                [start, commit].map(|it| format!("{}.{}", it.physical, it.logical));
            write!(self.0, " {start}-{commit}").unwrap();
        }
    }
    fn read(&mut self, key: i64, value: Option<i64>) {
        let value = value.map_or("nil".to_owned(), |value| value.to_string());
        write!(self.0, " r{key}={value}").unwrap();
    }
    fn write(&mut self, key: i64, value: i64) {
        write!(self.0, " w{key}={value}").unwrap();
    }
    fn append(&mut self, key: i64, element: i64) {
        write!(self.0, " a{key}={element}").unwrap();
    }
    fn read_list(&mut self, key: i64, elements: &[i64]) {
        write!(self.0, " r{key}={elements:?}").unwrap();
    }
    fn end(&mut self, outcome: OpType) -> Result<(), String> {
        writeln!(self.0, " {}", outcome.name()).unwrap();
        Ok(())
    }
}

/// The printed calls of a reader of these bytes, and the error at the end.
fn read_all(name: &str, bytes: &[u8], format: Format, read_length: usize) -> String {
    let options = ImportOptions::default();
    let mut reader = TransactionReader::with_window(name, bytes, format, options, read_length);
    let mut script = Script::default();
    loop {
        match reader.advance(&mut script) {
            Ok(true) => {}
            Ok(false) => return script.0,
            Err(error) => return script.0 + &error.to_string() + "\n",
        }
    }
}

/// The same for a text, whatever the length of its window.
fn check(text: &str, format: Format, expected: &Expect) {
    let whole = read_all("a.txt", text.as_bytes(), format, 1 << 16);
    for length in [1, 7, 100] {
        assert_eq!(read_all("a.txt", text.as_bytes(), format, length), whole);
    }
    expected.assert_eq(&whole);
}

#[test]
fn plume_is_read_line_by_line() {
    let text = "w(1,10,0,7)\nr(2,0,0,7)\nr(1,10,3,8)\r\n\n r( -5 , 9223372036854775807 ,3,9) \nw(1,11,0,10)";
    let expected = expect![[r#"
        0: w1=10 r2=nil ok
        3: r1=10 ok
        3: r-5=9223372036854775807 ok
        0: w1=11 ok
    "#]];
    check(text, Format::Plume, &expected);
}

#[test]
fn lines_of_different_sessions_may_be_mixed() {
    let text =
        "w(1,1,0,1)\nw(2,2,1,2)\nr(1,1,0,1)\nw(2,3,1,3)\nr(2,2,1,3)\nw(1,4,0,4)\nr(3,0,1,3)\n";
    let expected = expect![[r#"
        0: w1=1 r1=1 ok
        1: w2=2 ok
        1: w2=3 r2=2 r3=nil ok
        0: w1=4 ok
    "#]];
    check(text, Format::Plume, &expected);
}

#[test]
fn aborted_operations_have_no_transaction() {
    let text = "w(1,1,0,-1)\nw(2,1,0,-1)\nw(2,2,1,-1)\nw(5,1,0,4)\nw(1,2,0,-1)\nr(5,1,0,4)\n";
    let expected = expect![[r#"
        0: w1=1 w2=1 fail
        1: w2=2 fail
        0: w5=1 r5=1 ok
        0: w1=2 fail
    "#]];
    check(text, Format::Plume, &expected);
}

#[test]
fn the_first_transaction_may_write_the_initial_state() {
    let text = "w(1,0,9,0)\nw(2,0,9,0)\nr(1,0,1,1)\nw(1,0,1,1)\n";
    let expected = expect![[r#"
        a.txt:4:1: a write of 0, which in this file is the initial state: a read of it could mean both
    "#]];
    check(text, Format::Plume, &expected);
    let options = ImportOptions {
        initial: Some(-7),
        ..ImportOptions::default()
    };
    let text = b"w(1,0,9,0)\nr(1,0,8,1)\nr(1,-7,8,2)";
    let history = read("a.txt", text, Format::Plume, options).unwrap();
    expect![[r#"
        {:index 0, :time -1, :type :invoke, :process 9, :f :txn, :value [[:w 1 0]]}
        {:index 1, :time -1, :type :ok, :process 9, :f :txn, :value [[:w 1 0]]}
        {:index 2, :time -1, :type :invoke, :process 8, :f :txn, :value [[:r 1 nil]]}
        {:index 3, :time -1, :type :ok, :process 8, :f :txn, :value [[:r 1 0]]}
        {:index 4, :time -1, :type :invoke, :process 8, :f :txn, :value [[:r 1 nil]]}
        {:index 5, :time -1, :type :ok, :process 8, :f :txn, :value [[:r 1 nil]]}
    "#]]
    .assert_eq(
        &history
            .iter()
            .fold(String::new(), |text, op| format!("{text}{op}\n")),
    );
}

#[test]
fn an_error_of_plume_names_its_place() {
    let errors = [
        "r(1,2,3)",
        "r(1,2,3,4,5)",
        "w(1,2,-3,4)",
        "w(1,99999999999999999999,3,4)",
        "w(1,,3,4)",
        "x(1,2,3,4)",
        "w(1,2,3,4) w",
        "w(1,2,3,4",
        "w(1,2,3,4)\nw(1,3,4,4)",
        "w(1,2,3,4)\nw(1,3,3,5)\nw(1,4,3,4)",
        "w(1,2,3,\u{e9})",
        "",
    ];
    let mut printed = String::new();
    for text in errors {
        let text = format!("w(9,9,9,9)\n{text}\n");
        let text = if text.len() == 12 { "\n\n" } else { &text[..] };
        let error = read(
            "a.txt",
            text.as_bytes(),
            Format::Plume,
            ImportOptions::default(),
        );
        writeln!(printed, "{}", error.unwrap_err()).unwrap();
    }
    expect![[r#"
        a.txt:2:8: `,` is expected, found `)`
        a.txt:2:10: `)` is expected, found `,`
        a.txt:2:7: session -3 is negative
        a.txt:2:5: a value does not fit in 64 bits
        a.txt:2:5: a value (a number) is expected, found `,`
        a.txt:2:1: `r(…)` or `w(…)` is expected, found `x`
        a.txt:2:12: the end of the line is expected, found `w`
        a.txt:2:10: `)` is expected, the line ends
        a.txt:3:1: transaction 4 belongs to session 3 (line 2), here to session 4
        a.txt:4:1: transaction 4 has ended: all its lines must come before its session's next transaction, at most 65536 operations after the first
        a.txt:2:9: a transaction (a number) is expected, found byte 0xc3
        a.txt:1:1: no transaction found
    "#]].assert_eq(&printed);
    let long = format!("w(9,9,9,9)\n{}", " ".repeat(5_000));
    let printed = read_all("a.txt", long.as_bytes(), Format::Plume, 100);
    assert_eq!(printed, "a.txt:2:4097: this line is too long\n");
}

/// Plume lines of `transactions`, and their expected calls.
fn plume(transactions: &[(u64, Option<u64>, usize)], rng: &mut Rng) -> (String, String) {
    let (mut text, mut script) = (String::new(), String::new());
    for &(session, id, length) in transactions {
        write!(script, "{session}:").unwrap();
        let id = id.map_or(-1, u64::cast_signed);
        for _ in 0..length {
            let (key, value) = (rng.below(50).cast_signed() - 5, 1 + rng.below(1 << 40));
            let f = *rng.pick(&['r', 'w']);
            writeln!(text, "{f}({key},{value},{session},{id})").unwrap();
            write!(script, " {f}{key}={value}").unwrap();
        }
        writeln!(script, " {}", if id < 0 { "fail" } else { "ok" }).unwrap();
    }
    (text, script)
}

#[test]
fn a_file_sorted_by_session_passes_in_its_order() {
    let mut rng = Rng::from_seed(71);
    let mut transactions = Vec::new();
    for session in 0..4 {
        for number in 0..9_000 {
            let id = 1_000_000 * (number % 7) + number * 4 + session;
            transactions.push((session, Some(id), 1 + rng.index(6)));
        }
    }
    let (text, script) = plume(&transactions, &mut rng);
    assert!(transactions.iter().map(|it| it.2).sum::<usize>() > 65_536);
    let printed = read_all("a", text.as_bytes(), Format::Plume, 1 << 16);
    let first = printed
        .lines()
        .zip(script.lines())
        .position(|(a, b)| a != b);
    assert!(printed == script, "{first:?}, {:?}", printed.lines().last());
    // Too late: the transaction was emitted.
    let late = format!("{text}w(1,1,0,{})\n", transactions[8_999].1.unwrap());
    let printed = read_all("a", late.as_bytes(), Format::Plume, 1 << 16);
    let last = printed.lines().last().unwrap();
    let expected = " has ended: all its lines must come before";
    assert!(last.contains(expected), "{last}");
}

#[test]
fn random_plume_is_read_with_windows_of_any_length() {
    let mut rng = Rng::from_seed(72);
    for _ in 0..200 {
        let mut transactions: Vec<(u64, Option<u64>, usize)> = Vec::new();
        for number in 0..rng.below(40) {
            let session = rng.below(5);
            let aborted = rng.chance(0.1);
            if aborted && transactions.last().is_some_and(|last| last.1.is_none()) {
                continue;
            }
            transactions.push((session, (!aborted).then_some(number), 1 + rng.index(5)));
        }
        let (text, script) = plume(&transactions, &mut rng);
        let length = 1 + rng.index(200);
        assert_eq!(
            read_all("a", text.as_bytes(), Format::Plume, length),
            script
        );
        if !text.is_empty() {
            assert_eq!(detect("a.txt", text.as_bytes()), Some(Format::Plume));
            let operations =
                FileOperations::open("a", text.as_bytes(), None, ImportOptions::default());
            let history = collect(&mut operations.unwrap()).unwrap();
            assert_eq!(history.len(), 2 * transactions.len());
        }
    }
}

/// Changes bytes of what a reader knows.
fn mutated(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.index(4) {
        let at = rng.index(bytes.len() + 1);
        match rng.below(5) {
            0 if at < bytes.len() => bytes[at] = rng.word() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            2 => bytes.truncate(at),
            3 => {
                let to = at + rng.index(bytes.len() - at + 1).min(20);
                drop(bytes.drain(at..to));
            }
            _ => {
                let from = rng.index(bytes.len() + 1);
                let to = from + rng.index(bytes.len() - from + 1).min(20);
                let part = bytes[from..to].to_vec();
                bytes.splice(at..at, part);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// Reads thousands of changed copies of `valid`; how many of them were still read to the end.
fn fuzz(valid: &[u8], format: Format, rng: &mut Rng) -> usize {
    let mut whole = 0;
    for _ in 0..4_000 {
        let bytes = mutated(valid, rng);
        let length = 1 + rng.index(300);
        let options = ImportOptions::default();
        let mut reader = TransactionReader::with_window("a", &bytes[..], format, options, length);
        let mut script = Script::default();
        let result = loop {
            match reader.advance(&mut script) {
                Ok(true) => {}
                result => break result,
            }
        };
        match result {
            Ok(_) => whole += 1,
            Err(error) => match error.place {
                SourcePosition::Text { line, column } => assert!(line >= 1 && column >= 1),
                SourcePosition::Byte(at) => assert!(at <= bytes.len() as u64, "{error}"),
            },
        }
        let _ = detect("a", &bytes);
    }
    whole
}

#[test]
fn damaged_plume_is_an_error_or_another_history() {
    let mut rng = Rng::from_seed(73);
    let transactions: Vec<_> = (0..12).map(|id| (id % 3, Some(id), 3)).collect();
    let (text, _) = plume(&transactions, &mut rng);
    let whole = fuzz(text.as_bytes(), Format::Plume, &mut rng);
    assert!((100..3_900).contains(&whole), "{whole}");
}

#[test]
fn awdit_ends_transactions_and_sessions_by_rules() {
    let text = "\nw 0 0\n w  1 -1\r\n=====\n---\n=\nw 0 2\n=====\nr 0 2\n-----\n-\nr 1 1";
    let expected = expect![[r#"
        0: w0=0 w1=-1 ok
        2: w0=2 ok
        3: r0=2 ok
        3: r1=1 ok
    "#]];
    check(text, Format::Awdit, &expected);
    assert_eq!(detect("a", text.as_bytes()), Some(Format::Awdit));
    check(
        "w 1 2\n- -\n",
        Format::Awdit,
        &expect![[r#"
        0: w1=2a.txt:2:3: the end of the line is expected, found `-`
    "#]],
    );
    check(
        "w 1 2\nrr 1 2\n",
        Format::Awdit,
        &expect![[r#"
        0: w1=2a.txt:2:2: a blank is expected, found `r`
    "#]],
    );
    check(
        "w 1 2 3\n",
        Format::Awdit,
        &expect![[r#"
        a.txt:1:7: the end of the line is expected, found `3`
    "#]],
    );
    let options = ImportOptions {
        initial: Some(0),
        ..ImportOptions::default()
    };
    let history = read("a", b"w 0 0\n-\nr 0 0", Format::Awdit, options).unwrap();
    assert_eq!(history.ops()[1].value.to_string(), "[]");
    assert_eq!(history.ops()[3].value.to_string(), "[[:r 0 nil]]");
    let whole = fuzz(text.as_bytes(), Format::Awdit, &mut Rng::from_seed(74));
    assert!((100..3_900).contains(&whole), "{whole}");
}

#[test]
fn veristrong_has_lists() {
    let text = "5\n0 1 A 7 1\n1 2 R 7 2 1 -3\n0 1 R 8 0\n0 3 R 7 1 1\n0 3 R 7 2 1 2\n\n";
    let expected = expect![[r#"
        0: a7=1 r8=[] ok
        1: r7=[1, -3] ok
        0: r7=[1] r7=[1, 2] ok
    "#]];
    check(text, Format::VeriStrong, &expected);
    assert_eq!(detect("a", text.as_bytes()), Some(Format::VeriStrong));
    check(
        "2\n0 1 A 7 1\n",
        Format::VeriStrong,
        &expect![[r#"
        a.txt:3:1: the file ends; missing: 1 line
    "#]],
    );
    check(
        "1\n0 1 A 7 1\n0 1 A 7 2\n",
        Format::VeriStrong,
        &expect![[r#"
            a.txt:3:1: the end of the file is expected, found `0`
        "#]],
    );
    check(
        "1\n0 1 R 7 4000000000000 1\n",
        Format::VeriStrong,
        &expect![[r#"
            a.txt:2:24: an element (a number) is expected, the line ends
        "#]],
    );
    check(
        "1\n0 1 C 7 4\n",
        Format::VeriStrong,
        &expect![[r#"
        a.txt:2:5: `A` or `R` is expected, found `C`
    "#]],
    );
    check(
        "-1\n",
        Format::VeriStrong,
        &expect![[r#"
        a.txt:1:1: the number of lines -1 is negative
    "#]],
    );
    let whole = fuzz(text.as_bytes(), Format::VeriStrong, &mut Rng::from_seed(75));
    assert!((100..3_900).contains(&whole), "{whole}");
}

/// Events {writes, variable, value, succeeded} of a transaction, and was it committed.
type DbcopTransaction<'a> = (&'a [(bool, u64, u64, bool)], bool);

/// A history of dbcop.
fn dbcop(sessions: &[&[DbcopTransaction<'_>]]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [7_u64, 2, 2, 3, 4].map(u64::to_le_bytes).concat();
    for text in [
        "a run",
        "2019-10-23T12:00:00+02:00",
        "2019-10-23T12:01:00+02:00",
    ] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes.extend((sessions.len() as u64).to_le_bytes());
    for session in sessions {
        bytes.extend((session.len() as u64).to_le_bytes());
        for (events, committed) in *session {
            bytes.extend((events.len() as u64).to_le_bytes());
            for (writes, variable, value, succeeded) in *events {
                bytes.push(u8::from(*writes));
                bytes.extend(variable.to_le_bytes());
                bytes.extend(value.to_le_bytes());
                bytes.push(u8::from(*succeeded));
            }
            bytes.push(u8::from(*committed));
        }
    }
    bytes
}

/// The printed calls of a reader of these bytes, equal for all lengths of its window.
fn check_bytes(bytes: &[u8], format: Format, expected: &Expect) {
    let whole = read_all("a.bin", bytes, format, 1 << 16);
    for length in [1, 7, 100] {
        assert_eq!(read_all("a.bin", bytes, format, length), whole);
    }
    expected.assert_eq(&whole);
}

#[test]
fn dbcop_is_read_from_bytes() {
    let bytes = dbcop(&[
        &[
            (
                &[
                    (true, 1, 5, true),
                    (false, 2, 0, true),
                    (false, 2, 9, false),
                ],
                true,
            ),
            (&[(true, 1, 6, true), (true, 1, 7, false)], false),
            (
                &[(true, 1, 8, true), (true, 2, 9, false), (false, 1, 8, true)],
                true,
            ),
        ],
        &[],
        &[(&[], true), (&[(false, 1, 5, true)], true)],
    ]);
    let expected = expect![[r#"
        0: w1=5 r2=nil ok
        0: w1=6 w1=7 fail
        0: w1=8 r1=8 ok
        0: w2=9 fail
        2: ok
        2: r1=5 ok
    "#]];
    check_bytes(&bytes, Format::Dbcop, &expected);
    assert_eq!(detect("a", &bytes), Some(Format::Dbcop));
    assert_eq!(detect("a", &bytes[..70]), None);
    let mut printed = String::new();
    let mut wrong = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        printed += read_all("a.bin", &bytes, Format::Dbcop, 64)
            .lines()
            .last()
            .unwrap();
        printed.push('\n');
    };
    let length = bytes.len();
    wrong(&|bytes| bytes.push(0));
    wrong(&|bytes| bytes.truncate(length - 1));
    wrong(&|bytes| bytes.truncate(60));
    wrong(&|bytes| bytes.truncate(30));
    wrong(&|bytes| bytes[length - 1] = 2);
    wrong(&|bytes| bytes[length - 19] = 2);
    wrong(&|bytes| bytes[length - 11] = 0x80);
    wrong(&|bytes| bytes[40..48].fill(0xff));
    wrong(&|bytes| bytes[119..127].fill(0xff));
    expect![[r#"
        a.bin: byte 358: something follows the last session
        2: r1=5a.bin: byte 357: the end of a transaction takes 1 bytes, 0 are left
        a.bin: byte 53: the length of a text takes 8 bytes, 7 are left
        a.bin: byte 24: a number of the header takes 8 bytes, 6 are left
        2: r1=5a.bin: byte 357: whether a transaction was committed is 2, neither 0 nor 1
        2:a.bin: byte 339: whether an event is a write is 2, neither 0 nor 1
        2:a.bin: byte 340: variable 9223372036854775809 does not fit in 63 bits
        a.bin: byte 40: a text has 18446744073709551615 bytes, the file ends before
        a.bin: byte 358: the number of a session's transactions takes 8 bytes, 0 are left
    "#]]
    .assert_eq(&printed);
    let whole = fuzz(&bytes, Format::Dbcop, &mut Rng::from_seed(76));
    assert!((100..3_900).contains(&whole), "{whole}");
}

#[test]
fn dbcop_main_writes_json() {
    let text = r#"{"params":{"id":0,"n_node":2,"n_variable":2,"n_transaction":2,"n_event":2},"info":"x","start":"2024",
"end":"2025","data":[[{"events":[{"Write":{"variable":1,"version":4}},{"Read":{"variable":2,"version":null}}],
  "committed":true},{"committed":false,"events":[{"Write":{"version":5,"variable":1}}]}],
[],[{"events":[{"Read":{"variable":1,"version":4}},{"Read":{"variable":1}}],"committed":true,"note":[1.5e3,{"a":"\"}"}]}]], "more": {} }
"#;
    let expected = expect![[r#"
        0: w1=4 r2=nil ok
        0: w1=5 fail
        2: r1=4 r1=nil ok
    "#]];
    check(text, Format::DbcopJson, &expected);
    assert_eq!(detect("a", text.as_bytes()), Some(Format::DbcopJson));
    let mut printed = String::new();
    for text in [
        r#"{"params":{}}"#,
        r#"{"data":[[{"events":[]}]]}"#,
        r#"{"data":[[{"committed":true}]]}"#,
        r#"{"data":[[{"events":[{"Write":{"variable":1}}],"committed":true}]]}"#,
        r#"{"data":[[{"events":[{"Write":{"variable":1,"version":2.5}}],"committed":true}]]}"#,
        r#"{"data":[[{"events":[{"Write":{"variable":-1,"version":2}}],"committed":true}]]}"#,
        r#"{"data":[[{"events":[{"Put":{"variable":1,"version":2}}],"committed":true}]]}"#,
        r#"{"data":[[{"events":[{"Read":{"version":99999999999999999999}}],"committed":true}]]}"#,
        "{\"data\":\n[[], []] , \"data\":3}",
        "{\"data\":\n[[], []]",
        "{\"data\":\n[[]]} \n {",
        "[]",
    ] {
        printed += read_all("a.json", text.as_bytes(), Format::DbcopJson, 64)
            .lines()
            .last()
            .unwrap_or("");
        printed.push('\n');
    }
    expect![[r#"
        a.json:1:14: this object has no `data`
        0:a.json:1:11: this transaction has no `committed`
        0:a.json:1:11: this transaction has no `events`
        0:a.json:1:22: this write has no `version`
        0:a.json:1:55: a version (an integer) is expected, found `2`
        0:a.json:1:43: a variable is negative
        0:a.json:1:22: an event is neither `Read` nor `Write`
        0:a.json:1:41: a version does not fit in 64 bits
        a.json:2:19: `data` comes twice
        a.json:2:9: `,` or `}` is expected, the file ends
        a.json:3:2: the end of the file is expected, found `{`
        a.json:1:1: `{` is expected, found `[`
    "#]]
    .assert_eq(&printed);
    let deep = format!("{{\"x\":{}", "[".repeat(1_000));
    let printed = read_all("a", deep.as_bytes(), Format::DbcopJson, 64);
    assert_eq!(printed, "a:1:71: more than 64 levels of nesting\n");
    let whole = fuzz(text.as_bytes(), Format::DbcopJson, &mut Rng::from_seed(77));
    assert!((20..3_980).contains(&whole), "{whole}");
}

#[test]
fn timekiller_has_the_stamps_of_the_database() {
    let text = r#"[{"tid": 67, "sid": 19, "sts": {"p": 1691420095436341, "l": 61}, "cts": {"p": 1691420095659914, "l": 18},
  "ops": [{"t": "w", "k": 7, "v": 2}, {"t": "R", "k": 8, "v": 0}, {"t": "read", "k": 8, "v": null}, {"t": "r", "k": 3}]},
{"cts":{"l":0,"p":"320316486"},"ops":[{"k":313,"t":"a","v":"5"},{"k":44,"v":[1, -2 ,3],"t":"r"},{"k":45,"v":[],"t":"r"}],"sid":"left","sts":{"l":0,"p":"320316486"},"tid":"x"},
{"ops":[],"sid":"19","sts":{"l":0,"p":1},"cts":{"l":1,"p":1}},{"ops":[],"sid":"left","sts":{"l":0,"p":1},"cts":{"l":1,"p":1}}]
"#;
    let expected = expect![[r#"
        19: 1691420095436341.61-1691420095659914.18 w7=2 r8=nil r8=nil r3=nil ok
        1099511627776: 320316486.0-320316486.0 a313=5 r44=[1, -2, 3] r45=[] ok
        19: 1.0-1.1 ok
        1099511627776: 1.0-1.1 ok
    "#]];
    check(text, Format::TimeKiller, &expected);
    assert_eq!(detect("a", text.as_bytes()), Some(Format::TimeKiller));
    let history = read(
        "a",
        text.as_bytes(),
        Format::TimeKiller,
        ImportOptions::default(),
    )
    .unwrap();
    expect!["{:index 1, :time -1, :type :ok, :process 19, :f :txn, :value [[:w 7 2] [:r 8 nil] [:r 8 nil] [:r 3 nil]], :start-stamp [1691420095436341 61], :commit-stamp [1691420095659914 18]}"].assert_eq(&history.ops()[1].to_string());
    let mut printed = String::new();
    let stamps = r#""sid":1,"sts":{"p":1,"l":5},"cts":{"p":1,"l":6}"#;
    for text in [
        r#"[{"sid":1,"sts":{"p":1,"l":5},"cts":{"p":1,"l":4},"ops":[]}]"#,
        r#"[{"sid":1,"sts":{"p":1,"l":5},"ops":[]}]"#,
        r#"[{"sid":-1,"ops":[]}]"#,
        r#"[{"sid":1,"sts":{"p":1}}]"#,
        &format!("[{{{stamps}}}]"),
        &format!("[{{{stamps},\"ops\":[{{\"k\":1,\"t\":\"x\"}}]}}]"),
        &format!("[{{{stamps},\"ops\":[{{\"k\":1,\"t\":\"w\"}}]}}]"),
        &format!("[{{{stamps},\"ops\":[{{\"k\":1,\"t\":\"w\",\"v\":[1]}}]}}]"),
        &format!("[{{{stamps},\"ops\":[{{\"k\":\"1a\",\"t\":\"w\",\"v\":1}}]}}]"),
        &format!("[{{{stamps},\"ops\":[]}} {{"),
        &format!("[{{{stamps},\"ops\":[]}}"),
        &format!("[{{{stamps},\"o\\n"),
        &format!(
            "[{{{stamps},\"ops\":[]}},{{{stamps},\n\"ops\":[\n {{\"t\":\"w\",\"k\":1,\"v\":0}}]}}]"
        ),
    ] {
        printed += read_all("a.json", text.as_bytes(), Format::TimeKiller, 64)
            .lines()
            .last()
            .unwrap_or("");
        printed.push('\n');
    }
    expect![[r#"
        a.json:1:2: this transaction commits (`cts`) before it starts (`sts`)
        a.json:1:2: this transaction has no `cts`
        a.json:1:9: session -1 is negative
        a.json:1:24: this timestamp has no `l`
        a.json:1:2: this transaction has no `ops`
        a.json:1:58: `t` is none of r, w, a
        a.json:1:58: a write's `v` is an integer
        a.json:1:58: a write's `v` is an integer
        a.json:1:63: a key (an integer) is expected, found a text
        a.json:1:61: `,` or `]` is expected, found `{`
        a.json:1:60: `,` or `]` is expected, the file ends
        a.json:1:51: this text is never closed
        a.json:3:2: a write of 0, which in this file is the initial state: a read of it could mean both
    "#]].assert_eq(&printed);
    let whole = fuzz(text.as_bytes(), Format::TimeKiller, &mut Rng::from_seed(78));
    assert!((20..3_980).contains(&whole), "{whole}");
}

/// A record of one of Cobra's logs.
fn record(tag: u8, numbers: &[i64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
    [tag].into_iter().chain(numbers).collect()
}

#[test]
fn cobra_has_a_log_for_each_session() {
    let (initial, null) = (0xbebe_ebee, 0xdead_beef);
    let first = [
        record(b'S', &[9]),
        record(b'W', &[101, -7, 5]),
        record(b'R', &[initial, initial, 8, 77]),
        record(b'R', &[initial, 0x2333_2333, 8, 77]),
        record(b'C', &[9]),
        record(b'S', &[10]),
        record(b'R', &[null, null, 8, 0]),
        record(b'C', &[10]),
        vec![0xff],
    ]
    .concat();
    let second = [record(b'S', &[11]), record(b'R', &[9, 101, -7, 5])].concat();
    let logs = [("T0.log", first.clone()), ("T1.log", second.clone())];
    let inputs = logs.map(|(name, bytes)| (name.to_owned(), Ok(io::Cursor::new(bytes))));
    let inputs = inputs.into_iter();
    let mut reader =
        TransactionReader::of_sessions("logs", inputs, ImportOptions::default()).unwrap();
    let mut script = Script::default();
    while reader.advance(&mut script).unwrap() {}
    assert_eq!(reader.bytes(), (first.len() + second.len()) as u64);
    expect![[r#"
        0: w-7=101 r8=nil ok
        0: r8=nil ok
        1: r-7=101 info
    "#]]
    .assert_eq(&script.0);
    assert_eq!(detect("T0.log", &first), Some(Format::Cobra));
    assert_eq!(detect("T0.log", b"SELECT A FROM B WHERE"), None);
    let mut printed = String::new();
    for records in [
        vec![record(b'W', &[1, 2, 3])],
        vec![record(b'S', &[1]), record(b'S', &[2])],
        vec![record(b'S', &[1]), record(b'C', &[2])],
        vec![record(b'S', &[1]), record(b'R', &[1, 2, 3])],
        vec![record(b'S', &[1]), record(b'R', &[1, 0xabcd_efab, 3, 4])],
        vec![record(b'S', &[1]), record(b'W', &[initial, 3, 4])],
        vec![record(b'S', &[1]), record(b'C', &[1]), vec![0xff, 0xff]],
        vec![record(b'S', &[])],
    ] {
        let records = records.concat();
        printed += read_all("T0.log", &records, Format::Cobra, 64)
            .lines()
            .last()
            .unwrap_or("");
        printed.push('\n');
    }
    let gone = [(
        "T7.log".to_owned(),
        Err::<&[u8], _>(io::Error::other("gone")),
    )];
    let reader = TransactionReader::of_sessions("logs", gone.into_iter(), ImportOptions::default());
    printed += &reader.err().unwrap().to_string();
    expect![[r#"
        T0.log: byte 0: `S` (a transaction begins) is expected, found `W`
        0:T0.log: byte 9: `R`, `W` or `C` is expected, found `S`
        0:T0.log: byte 9: transaction 2 is committed within 1
        0:T0.log: byte 9: a read takes 33 bytes, 25 are left
        0:T0.log: byte 9: a read of a deleted key does not name the deleting transaction
        0:T0.log: byte 9: a write with the id of the initial state
        T0.log: byte 18: `S` (a transaction begins) is expected, found 0xff
        T0.log: byte 0: the beginning of a transaction takes 9 bytes, 1 are left
        T7.log: byte 0: cannot be read: gone"#]]
    .assert_eq(&printed);
    let whole = fuzz(&first, Format::Cobra, &mut Rng::from_seed(79));
    assert!((20..3_980).contains(&whole), "{whole}");
}

#[test]
fn cobra_names_one_transaction_for_a_write() {
    let initial = 0xbebe_ebee;
    let mut printed = String::new();
    for records in [
        vec![
            record(b'S', &[1]),
            record(b'W', &[5, 3, 4]),
            record(b'C', &[1]),
            record(b'S', &[2]),
            record(b'R', &[2, 5, 3, 4]),
        ],
        vec![
            record(b'S', &[1]),
            record(b'R', &[2, 5, 3, 4]),
            record(b'R', &[3, 5, 3, 4]),
        ],
        vec![
            record(b'S', &[1]),
            record(b'R', &[3, 5, 3, 4]),
            record(b'C', &[1]),
            record(b'S', &[2]),
            record(b'W', &[5, 3, 4]),
        ],
        vec![
            record(b'S', &[1]),
            record(b'R', &[2, 5, 3, 4]),
            record(b'C', &[1]),
            record(b'S', &[2]),
            record(b'W', &[5, 3, 4]),
            record(b'R', &[2, 5, 3, 4]),
            record(b'R', &[8, initial, 3, 4]),
            record(b'R', &[8, 0x6666_6666, 3, 4]),
            record(b'C', &[2]),
        ],
    ] {
        let calls = read_all("T0.log", &records.concat(), Format::Cobra, 64);
        printed += calls.lines().last().unwrap_or("");
        printed.push('\n');
    }
    expect![[r#"
        0:T0.log: byte 52: a read of write 5 names transaction 2; the writer is transaction 1
        0: r3=5T0.log: byte 42: a read of write 5 names transaction 3; another read names transaction 2
        0:T0.log: byte 60: write 5 is of transaction 2; an earlier read names transaction 3
        0: w3=5 r3=5 r3=nil ok
    "#]]
    .assert_eq(&printed);
}
