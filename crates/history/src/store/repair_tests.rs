//! One damaged byte in every block of small files, and every call that opens a file for writing: none but a repair ever
//! shortens it, and a repair keeps what it removes.

use super::Codec;
use super::tests::{ops, put, scratch, small, written};
use super::{FileTail, HistoryWriter, REPAIRED, TestFile, WriteError, repack};
use seatrial_blocks::Walker;
use seatrial_blocks::block::HEADER_LENGTH;
use seatrial_blocks::root::PAGE_LENGTH;
use serde_json::json;
use std::fs;
use std::path::Path;

/// A call that opens a file for writing.
type Attempt = fn(&Path) -> Result<(), WriteError>;

/// A file whose writer was killed: chunks, then journal blocks.
fn unsealed(path: &Path) -> Vec<u8> {
    let options = small(Codec::Lz4);
    let mut writer = HistoryWriter::create_with(path, &json!({"name": "x"}), options).unwrap();
    for op in &ops(80, 7 * 21 + 4) {
        writer.push(op).unwrap();
    }
    drop(writer);
    fs::read(path).unwrap()
}

fn sealed(path: &Path) -> Vec<u8> {
    written(path, &ops(81, 7 * 6), small(Codec::Lz4));
    TestFile::append_results(path, &json!({"valid": false})).unwrap();
    fs::read(path).unwrap()
}

/// Offset and length of each block.
fn blocks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let disk = bytes.to_vec();
    let mut walker = Walker::new(&disk, PAGE_LENGTH as u64);
    let mut blocks = Vec::new();
    while let Some((offset, header)) = walker.next_header().unwrap() {
        blocks.push((offset as usize, header.block_length() as usize));
    }
    blocks
}

/// Every file with one damaged byte: in the header, the payload and the last byte of each block.
fn damaged(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (offset, length) in blocks(bytes) {
        for at in [offset + 1, offset + HEADER_LENGTH + 3, offset + length - 1] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            all.push((format!("byte {at} of the block at {offset}"), damaged));
        }
    }
    all
}

#[test]
fn no_call_but_a_repair_shortens_a_damaged_file() {
    let scratch = scratch();
    let (mut refused, mut torn) = (0, 0);
    for bytes in [unsealed(&scratch), {
        let _ = fs::remove_file(&scratch);
        sealed(&scratch)
    }] {
        put(&scratch, &bytes);
        let count = TestFile::open(&scratch).unwrap().len();
        for (what, damaged) in damaged(&bytes) {
            put(&scratch, &damaged);
            let is_torn = TestFile::open(&scratch)
                .is_ok_and(|file| matches!(file.tail(), Some(FileTail::Torn(_))));
            torn += u32::from(is_torn);
            let tries: [Attempt; 2] = [
                |path| TestFile::append_results(path, &json!({"valid": true})),
                |path| repack(path, path, Codec::Lz4).map(|_| ()),
            ];
            let mut before = damaged;
            for attempt in tries {
                let tried = attempt(&scratch);
                let left = fs::read(&scratch).unwrap();
                if let Err(error) = tried {
                    refused += 1;
                    assert!(left == before, "{what}: {error}");
                    let text = error.to_string();
                    let name = scratch.display().to_string();
                    let says = text.strip_prefix(&name).unwrap_or_default();
                    assert!(says.contains(|it: char| it.is_ascii_digit()), "{text}");
                } else {
                    assert!(!is_torn, "{what}");
                    let there = TestFile::open(&scratch).unwrap();
                    assert!(there.analyses() > 0, "{what}");
                    assert_eq!(there.len(), count, "{what}");
                    before = left;
                }
            }
        }
    }
    assert!(refused > 100 && torn > 50, "{refused} refused, {torn} torn");
}

#[test]
fn results_of_a_file_with_a_hole_are_refused_and_name_the_place() {
    let scratch = scratch();
    let bytes = unsealed(&scratch);
    // Attributes and root come first.
    let third = blocks(&bytes)[2 + 3].0;
    let mut damaged = bytes.clone();
    damaged[third + HEADER_LENGTH] ^= 4;
    put(&scratch, &damaged);
    let error = TestFile::append_results(&scratch, &json!({"valid": true})).unwrap_err();
    let WriteError::Torn { torn, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(torn.offset, third as u64);
    assert!(torn.unordered >= 17, "{torn:?}");
    assert!(fs::read(&scratch).unwrap() == damaged);
}

#[test]
fn a_repair_keeps_what_it_removes() {
    let scratch = scratch();
    let bytes = unsealed(&scratch);
    assert_eq!(TestFile::repair(&scratch).unwrap(), None);
    assert!(fs::read(&scratch).unwrap() == bytes);
    let place = blocks(&bytes)[2 + 3].0;
    let mut damaged = bytes.clone();
    damaged[place + HEADER_LENGTH] ^= 4;
    // Twice: the second time the name is taken.
    for number in 1..=2 {
        put(&scratch, &damaged);
        let repaired = TestFile::repair(&scratch).unwrap().unwrap();
        assert_eq!(repaired.torn.offset, place as u64);
        let name = repaired.kept.display().to_string();
        let suffix = if number == 1 { "" } else { "-2" };
        assert!(
            name.ends_with(&format!(".sea.cut-{place}{suffix}")),
            "{name}"
        );
        assert!(fs::read(&repaired.kept).unwrap() == damaged[place..]);
        let left = fs::read(&scratch).unwrap();
        assert!(left[PAGE_LENGTH..].starts_with(&damaged[PAGE_LENGTH..place]));
        let file = TestFile::open(&scratch).unwrap();
        assert_eq!((file.len(), file.tail()), (7 * 3, None));
        assert!(!file.is_complete());
        let attributes = file.attributes().unwrap();
        let note = &attributes[REPAIRED][0];
        assert_eq!(
            (&attributes["name"], &note["offset"]),
            (&json!("x"), &json!(place))
        );
        assert_eq!(note["bytes"], damaged.len() - place);
        assert_eq!(
            TestFile::salvage(&scratch).unwrap().attributes(),
            Some(&attributes)
        );
        TestFile::append_results(&scratch, &json!({"valid": "unknown"})).unwrap();
        if number == 2 {
            fs::remove_file(&repaired.kept).unwrap();
            fs::remove_file(name.strip_suffix("-2").unwrap()).unwrap();
        }
    }
}

#[test]
fn a_newest_root_that_is_lost_is_damage_and_not_an_older_truth() {
    let scratch = scratch();
    for has_results in [false, true] {
        written(&scratch, &ops(82, 7 * 6), small(Codec::Lz4));
        if has_results {
            TestFile::append_results(&scratch, &json!({"valid": false})).unwrap();
        }
        let bytes = fs::read(&scratch).unwrap();
        let (root, length) = *blocks(&bytes).last().unwrap();
        let zeroed = |from: usize| {
            let mut zeroed = bytes.clone();
            zeroed[from..].fill(0);
            zeroed
        };
        // The root alone, then more and more in front of it.
        let starts = blocks(&bytes).into_iter().rev().map(|(offset, _)| offset);
        for from in starts.take_while(|&offset| offset > PAGE_LENGTH + length) {
            put(&scratch, &zeroed(from));
            let error = TestFile::open(&scratch).unwrap_err().to_string();
            let says = [
                &format!("block at {root}")[..],
                "newest root",
                &scratch.display().to_string(),
            ];
            assert!(says.iter().all(|part| error.contains(part)), "{error}");
            let salvaged = TestFile::salvage(&scratch).unwrap();
            // The seal names all operations; without it nothing says how many there were.
            let has_seal = salvaged.is_complete();
            let is_whole = salvaged.len() == 7 * 6;
            assert_eq!(
                salvaged.missing().is_empty(),
                has_seal && is_whole,
                "{from}"
            );
            assert!(!salvaged.damaged().is_empty(), "{from}");
        }
        fs::remove_file(&scratch).unwrap();
    }
}
