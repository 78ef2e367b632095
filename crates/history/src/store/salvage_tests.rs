//! Salvage of damaged files: all intact data, nothing wrong, and a report of the rest.

use super::Codec;
use super::block_kinds::{ATTRIBUTES, CHUNK, JOURNAL, RESULTS};
use super::tests::{ops, put, scratch, small, written};
use super::{HistoryWriter, SALVAGED, Salvaged, TestFile, salvage_to};
use crate::{History, Op};
use seatrial_blocks::root::{PAGE_LENGTH, first_page};
use seatrial_blocks::{BlockHeader, BlockKind, Walker};
use seatrial_machine::Rng;
use serde_json::json;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// A file, what went in, and where its blocks are.
struct Sound {
    bytes: Vec<u8>,
    history: History,
    blocks: Vec<(BlockKind, Range<u64>)>,
}

impl Sound {
    fn read(path: &Path, ops: Vec<Op>) -> Sound {
        let bytes = fs::read(path).unwrap();
        let mut blocks = Vec::new();
        let mut walker = Walker::new(&bytes, PAGE_LENGTH as u64);
        while let Some((offset, header)) = walker.next_header().unwrap() {
            blocks.push((header.kind, offset..offset + header.block_length()));
        }
        Sound {
            bytes,
            history: History::from_ops(ops),
            blocks,
        }
    }

    /// A sealed file of many chunks with two analyses.
    fn sealed(seed: u64, count: u64) -> Sound {
        let scratch = scratch();
        let ops = ops(seed, count);
        written(&scratch, &ops, small(Codec::Lz4));
        for valid in [true, false] {
            TestFile::append_results(&scratch, &json!({"valid": valid})).unwrap();
        }
        Sound::read(&scratch, ops)
    }

    /// A file whose writer was killed.
    fn unsealed(seed: u64, count: u64) -> Sound {
        let scratch = scratch();
        let ops = ops(seed, count);
        let mut writer =
            HistoryWriter::create_with(&scratch, &json!({"name": "x"}), small(Codec::None))
                .unwrap();
        for (place, op) in ops.iter().enumerate() {
            writer.push(op).unwrap();
            if place % 2 == 0 {
                writer.flush().unwrap();
            }
        }
        drop(writer);
        Sound::read(&scratch, ops)
    }

    /// The blocks of this kind, in order.
    fn of(&self, kind: BlockKind) -> Vec<Range<u64>> {
        let blocks = self.blocks.iter().filter(|(of, _)| *of == kind);
        blocks.map(|(_, bytes)| bytes.clone()).collect()
    }

    fn salvage(&self, bytes: Vec<u8>) -> Salvaged {
        let path = Path::new("history.sea");
        let salvaged = Salvaged::on(Box::new(bytes), path).unwrap();
        self.check(&salvaged);
        salvaged
    }

    /// Every operation that is present is correct, and every absent one is reported.
    fn check(&self, salvaged: &Salvaged) {
        let found = salvaged.history().unwrap();
        assert_eq!(found.len() as u64, salvaged.len());
        let mut present = vec![false; self.history.len()];
        for (place, op) in found.iter().enumerate() {
            let original = op.index as usize;
            assert_eq!(op, &self.history.ops()[original]);
            present[original] = true;
            let pair = found.pair(place).map(|other| found.ops()[other].index);
            let expected = self.history.pair(original).map(|other| other as u64);
            assert!(pair.is_none() || pair == expected, "{original}: {pair:?}");
            let other_is_here = expected.is_some_and(|other| found.get(other).is_some());
            assert_eq!(pair.is_some(), other_is_here, "{original}");
        }
        for missing in salvaged.missing() {
            let first = missing.position as usize;
            let count = missing.operations.map(|count| count as usize);
            let end = count.map_or(present.len(), |count| first + count);
            assert!(present[first..end].iter().all(|present| !present));
            present[first..end].fill(true);
            assert!(missing.indices.0 <= missing.position, "{missing:?}");
            let last = missing.indices.1.unwrap_or(u64::MAX);
            assert!(last >= end as u64 - 1, "{missing:?}");
        }
        if salvaged.is_complete() {
            assert!(present.iter().all(|present| *present), "all are reported");
        }
        let (checked, orphans) = salvaged.history_to_check().unwrap();
        assert_eq!(checked.len() + orphans, found.len());
        let paired = |history: &History| {
            let pairs = (0..history.len()).filter(|&place| history.pair(place).is_some());
            pairs
                .map(|place| history.ops()[place].index)
                .collect::<Vec<u64>>()
        };
        assert_eq!(paired(&checked), paired(&found));
        let clients = checked.clients();
        for (place, op) in clients.iter().enumerate() {
            let is_begun = op.is_invoke() || clients.pair(place).is_some();
            assert!(is_begun, "nothing ends that was not begun: {op}");
        }
    }
}

#[test]
fn a_sound_file_is_salvaged_whole() {
    for sound in [Sound::sealed(31, 7 * 300 + 2), Sound::unsealed(32, 40)] {
        let salvaged = sound.salvage(sound.bytes.clone());
        assert_eq!(salvaged.history().unwrap().ops(), sound.history.ops());
        assert_eq!((salvaged.missing(), salvaged.damaged()), (&[][..], &[][..]));
        assert_eq!(salvaged.attributes(), Some(&json!({"name": "x"})));
    }
}

#[test]
fn damage_of_any_one_block_loses_that_block_only() {
    // More than 256 chunks: directory nodes and several roots.
    let sound = Sound::sealed(33, 7 * 260 + 3);
    for (number, (kind, bytes)) in sound.blocks.iter().enumerate() {
        // All of the dear kinds, some of the others.
        if matches!(*kind, CHUNK | JOURNAL) && number % 17 != 0 {
            continue;
        }
        let mut damaged = sound.bytes.clone();
        damaged[bytes.start as usize + 33] ^= 4;
        let salvaged = sound.salvage(damaged);
        assert_eq!(salvaged.damaged().len(), 1, "{kind:?}");
        assert_eq!(salvaged.damaged()[0].bytes, *bytes);
        assert_eq!(salvaged.attributes().is_some(), *kind != ATTRIBUTES);
        let lost = salvaged.missing();
        if *kind != CHUNK {
            assert_eq!(lost, []);
            continue;
        }
        // The last operation of most chunks was in no journal block.
        let chunk = sound.of(CHUNK).iter().position(|it| it == bytes).unwrap() as u64;
        assert!(salvaged.len() > sound.history.len() as u64 - 7, "journal");
        for missing in lost {
            assert_eq!(missing.chunks, Some((chunk, chunk)));
        }
    }
}

#[test]
fn results_survive_what_befalls_others() {
    let sound = Sound::sealed(34, 30);
    let heads = sound.of(RESULTS);
    let mut damaged = sound.bytes.clone();
    damaged[heads[1].start as usize + 34] ^= 1;
    let salvaged = sound.salvage(damaged);
    assert_eq!(salvaged.analyses(), 2);
    assert_eq!(salvaged.validities().count(), 1);
    assert_eq!(salvaged.results().unwrap(), Some(json!({"valid": true})));
}

/// Damages a file in one of many ways.
fn harm(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.index(bytes.len());
    let length = (1 << rng.below(14)).min(bytes.len() - at);
    match rng.below(6) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes[at..at + length].fill(0),
        3 => bytes[at..at + length].fill_with(|| rng.word() as u8),
        4 => drop(bytes.drain(at..at + length)),
        _ => {
            let page = bytes.len().min(PAGE_LENGTH);
            bytes[..page].fill(0xff);
        }
    }
}

#[test]
fn however_damaged_a_file_is_all_that_is_whole_is_read() {
    let files = [
        Sound::sealed(35, 7 * 20 + 3),
        Sound::unsealed(36, 60),
        Sound::sealed(37, 7 * 258),
    ];
    for seed in 0..seatrial_farm::seeds(500) {
        let mut rng = Rng::from_seed(seed);
        let sound = &files[rng.index(files.len())];
        let mut bytes = sound.bytes.clone();
        let before = bytes.len();
        let harms = 1 + rng.below(3);
        for _ in 0..harms {
            if !bytes.is_empty() {
                harm(&mut bytes, &mut rng);
            }
        }
        let shrunk = bytes.len() != before;
        let path = Path::new("history.sea");
        let Ok(salvaged) = Salvaged::on(Box::new(bytes.clone()), path) else {
            let is_there = |block: &&(BlockKind, Range<u64>)| {
                let old = &sound.bytes[block.1.start as usize..block.1.end as usize];
                block.0 == CHUNK && bytes.windows(old.len()).any(|new| new == old)
            };
            assert!(sound.blocks.iter().find(is_there).is_none(), "seed {seed}");
            continue;
        };
        sound.check(&salvaged);
        // Whatever stands where it stood is there.
        let found = salvaged.history().unwrap();
        for (number, place) in sound.of(CHUNK).into_iter().enumerate() {
            let range = place.start as usize..place.end as usize;
            let is_whole = !shrunk && bytes[range.clone()] == sound.bytes[range];
            let first = (number * 7) as u64;
            assert!(
                !is_whole || found.get(first).is_some(),
                "seed {seed}: {first}"
            );
        }
    }
}

#[test]
fn bytes_missing_in_the_middle_hide_nothing_behind_them() {
    let sound = Sound::sealed(38, 7 * 30);
    let chunks = sound.of(CHUNK);
    for length in [1, 7, 8, 100, 4_096] {
        let mut bytes = sound.bytes.clone();
        let at = chunks[10].start as usize + 40;
        bytes.drain(at..at + length);
        let salvaged = sound.salvage(bytes);
        let found = salvaged.history().unwrap();
        assert!(found.get(9 * 7).is_some() && found.get(29 * 7).is_some());
        let old = sound.history.len() as u64;
        assert!(
            salvaged.len() >= old - 7 * (3 + length as u64 / 200),
            "{length}"
        );
        assert!(salvaged.attributes().is_some());
        assert_eq!(salvaged.validities().count(), 2);
    }
}

#[test]
fn a_shortened_file_says_that_its_end_is_gone() {
    let sound = Sound::sealed(39, 7 * 20);
    let end = sound.of(CHUNK)[12].end as usize;
    let path = Path::new("history.sea");
    let error = TestFile::on(Box::new(sound.bytes[..end].to_vec()), path).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("history.sea") && text.contains("newest root was at"),
        "{text}"
    );
    let salvaged = sound.salvage(sound.bytes[..end].to_vec());
    let missing = salvaged.missing();
    assert_eq!((missing.len(), missing[0].operations), (1, None));
    assert_eq!((missing[0].position, salvaged.len()), (13 * 7, 13 * 7));
}

#[test]
fn a_salvaged_copy_is_whole_and_says_what_it_lacks() {
    let (old, new, newer) = (scratch(), scratch(), scratch());
    let sound = Sound::sealed(40, 7 * 40);
    let mut bytes = sound.bytes.clone();
    for chunk in [3, 4, 20] {
        // The chunk and its journal blocks, which are in front of it.
        let chunks = sound.of(CHUNK);
        let range = chunks[chunk - 1].end as usize..chunks[chunk].end as usize;
        bytes[range].fill(0);
    }
    put(&old, &bytes);
    let salvaged = salvage_to(&old, &new).unwrap();
    assert_eq!(salvaged.len(), 7 * 37);
    let lost: Vec<String> = salvaged.missing().iter().map(ToString::to_string).collect();
    assert_eq!(
        lost,
        [
            "14 operations, indices 21 to 34 (chunks 3 to 4)",
            "7 operations, indices 140 to 146 (chunk 20)"
        ]
    );
    let file = TestFile::open(&new).unwrap();
    assert_eq!((file.tail(), file.is_complete()), (None, true));
    let (copied, left) = (file.history().unwrap(), salvaged.history().unwrap());
    assert_eq!(copied.ops(), left.ops());
    for place in 0..left.len() {
        assert_eq!(copied.pair(place), left.pair(place));
    }
    let attributes = file.attributes().unwrap();
    assert_eq!(attributes["name"], "x");
    assert_eq!(attributes[SALVAGED]["missing"][1]["first_index"], 140);
    assert_eq!(file.results_of(1).unwrap(), Some(json!({"valid": true})));
    assert_eq!(file.validity().unwrap(), Some(json!(false)));
    // A second salvage still reports what the first one lost.
    salvage_to(&new, &newer).unwrap();
    let again = TestFile::open(&newer).unwrap().attributes().unwrap();
    assert_eq!(again, attributes);
    assert!(salvage_to(&old, &new).is_err(), "it overwrites nothing");
}

#[test]
fn a_file_that_is_none_of_ours_is_refused() {
    let path = Path::new("noise");
    assert!(Salvaged::on(Box::new(b"{:index 0}".to_vec()), path).is_err());
    let page = first_page(*b"ckpt").to_vec();
    assert!(Salvaged::on(Box::new(page), path).is_err());
}

/// Claims of long payloads all over the file must not make salvage read it over and over.
#[test]
fn a_hostile_file_is_salvaged_in_bounded_time() {
    let mut bytes = first_page(*b"hist").to_vec();
    for sequence in 0..60_000 {
        let header = BlockHeader {
            kind: CHUNK,
            flags: 0,
            payload_length: 900_000,
            uncompressed_length: 900_000,
            sequence,
            payload_checksum: 7,
        };
        bytes.extend(header.encode());
    }
    let salvaged = Salvaged::on(Box::new(bytes), Path::new("hostile")).unwrap();
    assert!(salvaged.is_empty());
}

#[test]
fn blocks_with_extreme_numbers_are_salvaged_or_refused() {
    let scratch = scratch();
    written(&scratch, &ops(71, 7 * 6), small(Codec::Lz4));
    TestFile::append_results(&scratch, &json!({"valid": true})).unwrap();
    let bytes = fs::read(&scratch).unwrap();
    let mut walker = Walker::new(&bytes, PAGE_LENGTH as u64);
    let mut blocks = Vec::new();
    while let Some((offset, header)) = walker.next_header().unwrap() {
        blocks.push((offset as usize, header));
    }
    for (offset, header) in blocks {
        for sequence in [0, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let mut changed = bytes.clone();
            let header = BlockHeader { sequence, ..header };
            changed[offset..offset + 32].copy_from_slice(&header.encode());
            put(&scratch, &changed);
            if let Ok(salvaged) = TestFile::salvage(&scratch) {
                salvaged.history().unwrap();
                salvaged.results().unwrap();
            }
        }
    }
}
