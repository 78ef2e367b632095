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
    match file.operations(Options::default()) {
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
        "! test.jepsen: the newest block index, at byte 1803, is damaged: a block of 176 bytes, 171 are left; the one at byte 1190 is used, and the 644 bytes behind it are not"
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
fn a_test_without_an_index_is_told() {
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
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with('!')).collect();
    expect!["! test.jepsen: byte 572: chunk 1 (operations 3 to 5): its checksum is 0xf7128271, 0xd9dd5183 is written there"].assert_eq(&told.join("\n"));
}

#[test]
fn what_is_no_such_file_is_told() {
    let mut newer = VERSION_1.to_vec();
    newer[9] = 2;
    let cases: [&[u8]; 4] = [b"", b"SEATRIAL", b"JEPSEN\0\0", &newer];
    let told: String = cases.iter().map(|bytes| printed(bytes)).collect();
    expect![[r#"
        test.jepsen: not a test file of Jepsen
        test.jepsen: not a test file of Jepsen
        test.jepsen: ends inside its header, after 8 bytes
        test.jepsen: is of version 2; versions 0 to 1 are known
    "#]]
    .assert_eq(&told);
}

/// Reads everything of arbitrary bytes; must neither panic nor hang.
fn fuzz_one(bytes: &[u8]) {
    let _ = printed(bytes);
}

/// Gives every block the checksum of what it holds, so that damage reaches the decoders.
fn mend(bytes: &mut [u8]) {
    for (at, _) in blocks(VERSION_1) {
        let length = number(&VERSION_1[at..at + 8]) as usize;
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
    for round in 0..8_000 {
        let mut bytes = VERSION_1.to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.index(bytes.len());
            bytes[at] = match rng.below(3) {
                0 => rng.word() as u8,
                1 => bytes[at] ^ 1 << rng.below(8),
                _ => *rng.pick(VERSION_1),
            };
        }
        if round % 2 == 0 {
            mend(&mut bytes);
        }
        if rng.chance(0.1) {
            bytes.truncate(rng.index(bytes.len()));
        }
        fuzz_one(&bytes);
    }
}
