//! Every single flipped bit and every length of small files: the same history or an error that says where.

use super::Codec;
use super::tests::{ops, scratch, small, written};
use super::{FileTail, HistoryWriter, OpenError, TestFile};
use crate::Op;
use seatrial_blocks::block::flags;
use seatrial_blocks::root::{PAGE_LENGTH, first_page};
use seatrial_blocks::{BlockKind, block};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;

/// Files of all kinds, and what is in them: sealed, sealed with results, unsealed with a journal.
fn files() -> Vec<(Vec<u8>, Vec<Op>, Option<Json>)> {
    let mut files = Vec::new();
    for (number, codec) in [(50, Codec::Lz4), (51, Codec::None), (52, Codec::Zstd)] {
        let scratch = scratch();
        let ops = ops(number, 9);
        let mut results = None;
        if number == 52 {
            let mut writer =
                HistoryWriter::create_with(&scratch, &json!({"name": "x"}), small(codec)).unwrap();
            for op in &ops {
                writer.push(op).unwrap();
                writer.flush().unwrap();
            }
        } else {
            written(&scratch, &ops, small(codec));
        }
        if number == 51 {
            let found = json!({"valid": false, "text": "because ".repeat(20)});
            TestFile::append_results(&scratch, &found).unwrap();
            results = Some(found);
        }
        files.push((fs::read(&scratch).unwrap(), ops, results));
    }
    files
}

type Read = (Vec<Op>, Json, Option<Json>, bool, Option<FileTail>);

fn read(bytes: Vec<u8>) -> Result<Read, OpenError> {
    let file = TestFile::on(Box::new(bytes), Path::new("some.sea"))?;
    let history = file.history()?.ops().to_vec();
    let results = file.results()?;
    assert_eq!(results.is_some(), file.validity()?.is_some());
    let complete = file.is_complete();
    Ok((history, file.attributes()?, results, complete, file.tail()))
}

/// It says in which file, and where.
fn check_error(error: &OpenError, what: &str) {
    let text = error.to_string();
    assert!(text.contains("some.sea"), "{what}: {text}");
    let numbers = text.chars().any(|letter| letter.is_ascii_digit());
    let is_empty = text.contains("not a Seatrial file") || text.contains("before its attributes");
    assert!(numbers || is_empty, "{what}: {text}");
}

#[test]
fn no_flipped_bit_changes_the_operations_read() {
    let mut errors = 0;
    for (bytes, ops, results) in files() {
        let sealed = read(bytes.clone()).unwrap().3;
        // Of the page, whose rest means nothing: identity and slots.
        let page = (0..24).chain(1_020..1_070).chain(2_040..2_100);
        for at in page.chain(PAGE_LENGTH..bytes.len()) {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let what = format!("byte {at}, bit {bit}");
                let found = match read(flipped) {
                    Ok(found) => found,
                    Err(error) => {
                        errors += 1;
                        check_error(&error, &what);
                        continue;
                    }
                };
                let (history, attributes, analysis, complete, tail) = found;
                assert_eq!(attributes, json!({"name": "x"}), "{what}");
                assert_eq!(history, ops[..history.len()], "{what}");
                if sealed {
                    assert_eq!(history.len(), ops.len(), "{what}");
                    assert_eq!(analysis, results, "{what}");
                    assert!(
                        complete || matches!(tail, Some(FileTail::Torn(_))),
                        "{what}"
                    );
                } else if history.len() < ops.len() {
                    // Indistinguishable from an interrupted write.
                    assert!(matches!(tail, Some(FileTail::Torn(_))), "{what}");
                }
            }
        }
    }
    assert!(errors > 5_000, "{errors}");
}

#[test]
fn no_shortened_file_is_taken_for_a_whole_one() {
    for (bytes, ops, results) in files() {
        let sealed = read(bytes.clone()).unwrap().3;
        for length in 0..bytes.len() {
            let what = format!("{length} bytes");
            match read(bytes[..length].to_vec()) {
                Ok((history, _, found, complete, tail)) => {
                    assert_eq!(history, ops[..history.len()], "{what}");
                    if sealed {
                        assert_eq!((history.len(), &found), (ops.len(), &results), "{what}");
                        assert!(
                            complete || matches!(tail, Some(FileTail::Torn(_))),
                            "{what}"
                        );
                    }
                }
                Err(error) => check_error(&error, &what),
            }
        }
    }
}

/// A file with one more block at its end.
fn with_block(bytes: &[u8], kind: u16, sequence: u64, payload: &[u8], version: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = bytes.len();
    let length = payload.len() as u32;
    block::write(&mut bytes, BlockKind(kind), 0, sequence, payload, length);
    bytes[at + 3] = version;
    let checksum = seatrial_blocks::crc32c(&bytes[at..at + 28]);
    bytes[at + 28..at + 32].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn newer_versions_are_refused_with_the_supported_ones() {
    let says = |bytes: Vec<u8>, parts: &[&str]| {
        let read = TestFile::on(Box::new(bytes), Path::new("some.sea"));
        let read = read.and_then(|file| file.history().map(|_| ()));
        let text = read.unwrap_err().to_string();
        for part in ["some.sea", "version 2"].iter().chain(parts) {
            assert!(text.contains(part), "{text}");
        }
    };
    let (bytes, ..) = files().swap_remove(0);
    let mut page = bytes.clone();
    page[8] = 2;
    let checksum = seatrial_blocks::crc32c(&page[..16]);
    page[16..20].copy_from_slice(&checksum.to_le_bytes());
    says(page, &["reads version 1"]);
    let mut walker = seatrial_blocks::Walker::new(&bytes, PAGE_LENGTH as u64);
    while walker.next_header().unwrap().is_some() {}
    let next = walker.next_sequence();
    let newer = with_block(&bytes, 17, next, b"whatever", 2);
    says(
        newer,
        &[&format!("block at {}", bytes.len()), "reads version 1"],
    );
    let mut root = vec![0; 64];
    root[0] = 2;
    says(with_block(&bytes, 1, next, &root, 1), &["reads 1"]);
    let mut chunk = vec![0; 64];
    (chunk[0], chunk[4]) = (2, 1);
    says(
        with_block(&bytes, 17, next, &chunk, 1),
        &["chunk version 2"],
    );
}

#[test]
fn blocks_of_unknown_kinds_are_stepped_over() {
    let (bytes, ops, _) = files().swap_remove(0);
    let mut walker = seatrial_blocks::Walker::new(&bytes, PAGE_LENGTH as u64);
    while walker.next_header().unwrap().is_some() {}
    let more = with_block(&bytes, 31, walker.next_sequence(), b"of a later program", 1);
    assert_eq!(read(more).unwrap().0, ops);
}

#[test]
fn a_directory_that_points_in_circles_ends() {
    // A root whose only entry, over many chunks, is the root itself.
    let mut bytes = first_page(*b"hist").to_vec();
    let mut root = Vec::new();
    root.extend(1_u32.to_le_bytes());
    root.extend(1_u32.to_le_bytes());
    root.extend(9_u64.to_le_bytes());
    root.extend([0; 24 + 16]);
    root.extend(2_u32.to_le_bytes());
    root.extend([0; 4]);
    root.extend(1_u32.to_le_bytes());
    root.extend(1_u32.to_le_bytes());
    root.extend((PAGE_LENGTH as u64).to_le_bytes());
    root.extend([0; 4]);
    root.extend(2_u32.to_le_bytes());
    root.extend(9_u64.to_le_bytes());
    root.extend([0; 56]);
    root.extend([0; 8]);
    let length = root.len() as u32;
    block::write(
        &mut bytes,
        BlockKind::ROOT,
        flags::CODEC_NONE,
        0,
        &root,
        length,
    );
    let file = TestFile::on(Box::new(bytes), Path::new("some.sea")).unwrap();
    assert_eq!((file.len(), file.chunk_count()), (9, 2));
    check_error(&file.history().unwrap_err(), "circle");
    check_error(&file.operation(0).unwrap_err(), "circle");
}
