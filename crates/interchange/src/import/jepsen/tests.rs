#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::expect;
use seatrial_machine::Rng;
use std::fmt::Write as _;
use std::io::Cursor;

/// Written with the reference encoder of Fressian: `tests/data/jepsen/Fixtures.java`.
const VERSION_1: &[u8] = include_bytes!("../../../tests/data/jepsen/version-1.jepsen");
const VERSION_0: &[u8] = include_bytes!("../../../tests/data/jepsen/version-0.jepsen");

fn open(bytes: &[u8]) -> Result<JepsenFile<Cursor<&[u8]>>, JepsenError> {
    JepsenFile::open("test.jepsen", Cursor::new(bytes))
}

/// All that a file says.
fn printed(bytes: &[u8]) -> String {
    let mut file = match open(bytes) {
        Ok(file) => file,
        Err(error) => return format!("{error}\n"),
    };
    let mut text = String::new();
    for warning in file.warnings() {
        writeln!(text, "! {warning}").unwrap();
    }
    match file.operations(ImportOptions::default()) {
        Ok(operations) => {
            for op in operations {
                match op {
                    Ok(op) => writeln!(text, "{op}").unwrap(),
                    Err(error) => writeln!(text, "! {error}").unwrap(),
                }
            }
        }
        Err(error) => writeln!(text, "! {error}").unwrap(),
    }
    for document in [file.attributes().map(Some), file.results()] {
        match document {
            Ok(Some(json)) => writeln!(text, "{json}").unwrap(),
            Ok(None) => text += "nothing\n",
            Err(error) => writeln!(text, "! {error}").unwrap(),
        }
    }
    text
}

#[test]
fn a_file_of_version_1() {
    expect![[r#"
        {:index 0, :time 4710, :type :invoke, :process 0, :f :txn, :value [[:append 3 1] [:r 3 nil]]}
        {:index 1, :time 5000000, :type :info, :process :nemesis, :f :kill, :value nil}
        {:index 2, :time 5000001, :type :invoke, :process 1, :f :txn, :value [[:w "k" -7]]}
        {:index 3, :time 6123456789, :type :ok, :process 0, :f :txn, :value [[:append 3 1] [:r 3 [1 2 300 70000]] [:r 4 []]]}
        {:index 4, :time 6200000000, :type :info, :process :nemesis, :f :kill, :value {"n1" :killed, "n2" :killed}}
        {:index 5, :time 6200000001, :type :info, :process 1, :f :txn, :value [[:w "k" -7]], :error [:timeout "no answer"], :node "n1"}
        {:index 6, :time 6300000000, :type :invoke, :process 2, :f :cas, :value [1 2]}
        {:index 7, :time 6400000000, :type :fail, :process 2, :f :cas, :value [1 2], :error :not-found}
        {"name":"demo","concurrency":3,"nodes":["n1","n2"],"start-time":"20261121T091403.000Z","format":"jepsen","format-version":1}
        {"valid":false,"stats":{"valid?":true,"count":4},"anomaly-types":["G1c"]}
    "#]].assert_eq(&printed(VERSION_1));
}

#[test]
fn a_file_of_version_0_has_the_same_operations() {
    let newer = printed(VERSION_1).replace("\"format-version\":1", "\"format-version\":0");
    assert_eq!(printed(VERSION_0), newer);
}

/// Where the blocks of a file begin, with their types.
fn blocks(bytes: &[u8]) -> Vec<(usize, u16)> {
    let mut found = Vec::new();
    let mut at = BLOCKS_START as usize;
    while at < bytes.len() {
        let length = number(&bytes[at..at + 8]) as usize;
        found.push((at, number(&bytes[at + 12..at + 14]) as u16));
        at += length;
    }
    found
}

#[test]
fn a_torn_index_falls_back_to_an_older_one() {
    let torn = &VERSION_1[..VERSION_1.len() - 5];
    let text = printed(torn);
    let warning = text.lines().next().unwrap();
    let expected = expect![
        "! test.jepsen: the newest block index, at byte 1803, is damaged: a block of 176 bytes, 171 are left; the one at byte 1190 is used, and the 644 bytes after it are not"
    ];
    expected.assert_eq(warning);
    // The last index but one is from before the results were written.
    let whole = printed(VERSION_1);
    let ops = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("{:index"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(ops(&text), ops(&whole));
    assert_eq!(text.lines().last(), Some("nothing"));
    // Cut after every byte: an error, or a prefix of the operations with a warning.
    for length in 0..VERSION_1.len() {
        let text = printed(&VERSION_1[..length]);
        if text.starts_with("! test.jepsen: the newest block index") {
            assert!(ops(&whole).starts_with(&ops(&text)), "{length}: {text}");
        } else {
            assert!(text.starts_with("test.jepsen"), "{length}: {text}");
        }
    }
}

#[test]
fn a_test_without_an_index_is_refused_with_the_reason() {
    let mut bytes = VERSION_1.to_vec();
    bytes[10..18].fill(0);
    let text = printed(&bytes);
    assert!(
        text.contains("no block index was written; the one at byte"),
        "{text}"
    );
    let first_index = blocks(VERSION_1)
        .iter()
        .find(|block| block.1 == kind::INDEX)
        .unwrap()
        .0;
    let none = &bytes[..first_index];
    assert!(
        printed(none).contains("no older one is whole"),
        "{}",
        printed(none)
    );
}

#[test]
fn a_damaged_chunk_is_named_and_the_others_are_read() {
    let chunks: Vec<usize> = blocks(VERSION_1)
        .into_iter()
        .filter(|block| block.1 == kind::STREAM)
        .map(|block| block.0)
        .collect();
    assert_eq!(chunks.len(), 3);
    let mut bytes = VERSION_1.to_vec();
    bytes[chunks[1] + 60] ^= 4;
    let text = printed(&bytes);
    let ops = text
        .lines()
        .filter(|line| line.starts_with("{:index"))
        .count();
    assert_eq!(ops, 5, "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with('!')).collect();
    expect!["! test.jepsen: byte 572: chunk 1 (operations 3 to 5): its checksum is 0xf7128271, 0xd9dd5183 is written there"].assert_eq(&errors.join("\n"));
}

#[test]
fn foreign_files_are_refused_with_the_reason() {
    let mut newer = VERSION_1.to_vec();
    newer[9] = 2;
    let cases: [&[u8]; 4] = [b"", b"SEATRIAL", b"JEPSEN\0\0", &newer];
    let printed: String = cases.iter().map(|bytes| printed(bytes)).collect();
    expect![[r#"
        test.jepsen: not a test file of Jepsen
        test.jepsen: not a test file of Jepsen
        test.jepsen: ends inside its header, after 8 bytes
        test.jepsen: is of version 2; versions 0 to 1 are known
    "#]]
    .assert_eq(&printed);
}

/// Fressian as Jepsen writes it, byte for byte, as far as the file below needs it: keywords are cached after they were
/// written once, what is empty is `nil` inside of its tag.
#[derive(Default)]
struct Pen {
    bytes: Vec<u8>,
    words: Vec<&'static str>,
    tags: Vec<&'static str>,
}

impl Pen {
    /// A number from 0 to 63.
    fn int(&mut self, number: u8) {
        assert!(number < 64);
        self.bytes.push(number);
    }

    fn nil(&mut self) {
        self.bytes.push(0xf7);
    }

    fn text(&mut self, text: &str) {
        match text.len() {
            length @ 0..8 => self.bytes.push(0xda + length as u8),
            length => self.bytes.extend([0xe3, length as u8]),
        }
        self.bytes.extend(text.as_bytes());
    }

    /// A keyword: code, no namespace, the cached name.
    fn word(&mut self, name: &'static str) {
        self.bytes.extend([0xca, 0xf7]);
        match self.words.iter().position(|known| *known == name) {
            Some(place) if place < 32 => self.bytes.push(0x80 + place as u8),
            Some(place) => self.bytes.extend([0xcc, place as u8]),
            None => {
                self.bytes.push(0xcd);
                self.words.push(name);
                self.text(name);
            }
        }
    }

    fn list(&mut self, length: u8) {
        assert!(length < 8);
        self.bytes.push(0xe4 + length);
    }

    /// A map of `count` entries.
    fn map(&mut self, entries: u8) {
        self.bytes.extend([0xc0, 0xec, 2 * entries]);
    }

    fn tag(&mut self, tag: &'static str, components: u8) {
        if let Some(place) = self.tags.iter().position(|known| *known == tag) {
            self.bytes.push(0xa0 + place as u8);
            return;
        }
        self.tags.push(tag);
        self.bytes.push(0xef);
        self.text(tag);
        self.int(components);
    }

    fn empty_set(&mut self) {
        self.tag("persistent-hash-set", 1);
        self.nil();
    }

    /// The first six fields of an operation but the value.
    fn operation(&mut self, index: u8, kind: &'static str, process: Option<u8>) {
        self.tag("jepsen.history.Op", 7);
        self.int(index);
        self.int(index + 1);
        self.word(kind);
        match process {
            Some(number) => self.int(number),
            None => self.word("nemesis"),
        }
    }
}

/// The operations of a small test: empty sets, a record, a ratio, a big number, an exception, functions that are nil.
fn operations_of_jepsen() -> Vec<u8> {
    let mut pen = Pen::default();
    pen.operation(0, "invoke", Some(0));
    pen.word("txn");
    pen.list(2);
    for f in ["append", "r"] {
        pen.list(3);
        pen.word(f);
        pen.int(9);
        if f == "r" { pen.nil() } else { pen.int(1) }
    }
    pen.nil();
    pen.operation(1, "info", None);
    pen.word("start");
    pen.map(2);
    pen.text("n1");
    pen.empty_set();
    pen.word("not");
    pen.empty_set();
    pen.map(0);
    pen.operation(2, "ok", Some(0));
    pen.word("txn");
    pen.list(2);
    for f in ["append", "r"] {
        pen.list(3);
        pen.word(f);
        pen.int(9);
        if f == "r" {
            pen.list(1);
        }
        pen.int(1);
    }
    pen.nil();
    pen.operation(3, "info", None);
    pen.nil();
    pen.tag("record", 2);
    pen.text("jepsen.nemesis.Grudge");
    pen.map(1);
    pen.word("share");
    pen.tag("ratio", 2);
    pen.int(1);
    pen.int(3);
    pen.map(1);
    pen.word("exception");
    pen.map(2);
    pen.word("via");
    pen.list(0);
    pen.word("cause");
    // A whole number of nine bytes.
    pen.bytes.extend([0xc6, 0xd9, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    pen.bytes
}

/// A file of Jepsen with these operations: the test, a stream, a vector of it, an index.
fn file_of_jepsen(operations: &[u8]) -> Vec<u8> {
    let mut test = Pen::default();
    test.map(3);
    test.word("nodes");
    test.empty_set();
    test.word("workload");
    test.word("append");
    test.word("history");
    test.tag("block-ref", 1);
    test.int(1);
    let mut map = vec![0; 4];
    map.extend(&test.bytes);
    let mut vector = 4_u64.to_be_bytes().to_vec();
    vector.extend([0; 8]);
    vector.extend(3_u32.to_be_bytes());
    let blocks: [(u32, u16, &[u8]); 3] = [
        (3, kind::STREAM, operations),
        (1, kind::BIG_VECTOR, &vector),
        (2, kind::PARTIAL_MAP, &map),
    ];
    let mut file = b"JEPSEN\0\0\0\x01\0\0\0\0\0\0\0\0".to_vec();
    let mut index = 2_u32.to_be_bytes().to_vec();
    let append = |file: &mut Vec<u8>, kind: u16, data: &[u8]| {
        let mut header = (HEADER_LENGTH + data.len() as u64).to_be_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(kind.to_be_bytes());
        header.extend([0; 14]);
        let sum = checksum(&header, data);
        header[8..12].copy_from_slice(&sum.to_be_bytes());
        file.extend(header);
        file.extend(data);
    };
    for (id, kind, data) in blocks {
        index.extend(id.to_be_bytes());
        index.extend((file.len() as u64).to_be_bytes());
        append(&mut file, kind, data);
    }
    let place = file.len() as u64;
    append(&mut file, kind::INDEX, &index);
    file[10..18].copy_from_slice(&place.to_be_bytes());
    file
}

#[test]
fn empty_sets_are_nil_in_their_tag() {
    expect![[r#"
        {:index 0, :time 1, :type :invoke, :process 0, :f :txn, :value [[:append 9 1] [:r 9 nil]]}
        {:index 1, :time 2, :type :info, :process :nemesis, :f :start, :value {"n1" #{}, :not #{}}}
        {:index 2, :time 3, :type :ok, :process 0, :f :txn, :value [[:append 9 1] [:r 9 [1]]]}
        {:index 3, :time 4, :type :info, :process :nemesis, :f :nil, :value {:share "1/3"}, :exception {:via [], :cause "18446744073709551616"}}
        {"nodes":[],"workload":"append","format":"jepsen","format-version":1}
        nothing
    "#]].assert_eq(&printed(&file_of_jepsen(&operations_of_jepsen())));
}

#[test]
fn two_open_invocations_of_a_process_are_refused() {
    let mut pen = Pen::default();
    for index in 0..2 {
        pen.operation(index, "invoke", Some(4));
        pen.word("read");
        pen.nil();
        pen.nil();
    }
    let text = printed(&file_of_jepsen(&pen.bytes));
    let said = "operation 1: process 4 invokes while its operation 0 is running";
    assert!(text.lines().next().unwrap().ends_with(said), "{text}");
}

/// Reads everything of arbitrary bytes; must neither panic nor hang.
fn fuzz_one(bytes: &[u8]) {
    let _ = printed(bytes);
}

/// Gives every block the checksum of what it holds, so that damage reaches the decoders.
fn mend(bytes: &mut [u8], whole: &[u8]) {
    for (at, _) in blocks(whole) {
        let length = number(&whole[at..at + 8]) as usize;
        let Some(block) = bytes.get(at..at + length) else {
            return;
        };
        let (header, data) = block.split_at(HEADER_LENGTH as usize);
        let sum = checksum(header, data);
        bytes[at + 8..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
}

#[test]
fn damaged_files_give_errors() {
    let mut rng = Rng::from_seed(4);
    let small = file_of_jepsen(&operations_of_jepsen());
    for round in 0..12_000 {
        let whole = [VERSION_1, VERSION_1, &small][round % 3];
        let mut bytes = whole.to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.index(bytes.len());
            bytes[at] = match rng.below(3) {
                0 => rng.word() as u8,
                1 => bytes[at] ^ 1 << rng.below(8),
                _ => *rng.pick(whole),
            };
        }
        if round % 2 == 0 {
            mend(&mut bytes, whole);
        }
        if rng.chance(0.1) {
            bytes.truncate(rng.index(bytes.len()));
        }
        fuzz_one(&bytes);
    }
}
