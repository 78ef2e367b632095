//! Files that were cut off, and files with a flipped bit.

use super::{FOLDER, contents, open, options};
use crate::batch::BATCH_FRAMES_OFFSET;
use crate::recording::{Durability, TailError};
use crate::segment::SegmentName;
use crate::{
    Archive, ArchiveError, Cursor, CursorBound, Origin, Position, RecordingId, RecordingOptions,
};
use crate::{SEGMENT_BLOCK_LENGTH, VerifyOptions, verify};
use seatrial_sim::{FileTree, MemoryStorage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ID: RecordingId = RecordingId(1);

/// A folder with a recording of three segments that was left open, and where its blocks end. It has no mark of what is
/// durable, as after a loss of power.
fn left_open() -> (FileTree, Vec<Position>) {
    let (mut files, ends) = left_open_marked();
    files.remove(Path::new(FOLDER).join("0000000001.mark"));
    (files, ends)
}

/// [`left_open`] with its mark.
fn left_open_marked() -> (FileTree, Vec<Position>) {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let options = RecordingOptions {
        durability: Durability::Batch,
        ..options(1_024)
    };
    let mut writer = archive.start(&options, 5).unwrap();
    let mut ends = vec![writer.end()];
    for byte in 0..11 {
        let before = writer.end();
        let appended = writer
            .append_batch([&[byte; 150][..], b"short"], 6)
            .unwrap();
        let head = before.plus(SEGMENT_BLOCK_LENGTH);
        if appended.first == head.plus(BATCH_FRAMES_OFFSET as u64) {
            ends.push(head);
        }
        ends.push(appended.end);
    }
    assert_eq!(archive.describe(ID).unwrap().segments.len(), 3);
    (storage.files(), ends)
}

/// The last segment.
fn last(files: &FileTree) -> (PathBuf, SegmentName, Vec<u8>) {
    let (path, bytes) = files
        .iter()
        .filter(|(path, _)| is_segment(path))
        .last()
        .unwrap();
    let file = path.file_name().unwrap().to_str().unwrap();
    let name = SegmentName::parse(file).unwrap();
    (path.to_owned(), name, bytes.to_vec())
}

fn is_segment(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "segment")
}

#[test]
fn damage_is_reported_beside_its_file() {
    let (files, _) = left_open();
    let storage = MemoryStorage::from_files(&files);
    let (mut archive, _) = open(&storage);
    let of = |archive: &Archive| archive.segments(ID, Position(0), usize::MAX).unwrap();
    let whole = of(&archive);
    let starts: Vec<Position> = whole.iter().map(|file| file.start).collect();
    assert_eq!(
        starts,
        [Position(0), whole[0].start.plus(whole[0].length), starts[2]]
    );
    assert!(
        whole
            .iter()
            .all(|file| file.problem.is_none() && !file.is_detached),
        "{whole:?}"
    );
    let recording = archive.recording(ID).unwrap();
    let viewed = Archive::view_segments(Arc::new(storage.clone()), Path::new(FOLDER), &recording);
    assert_eq!(viewed.unwrap(), whole);
    assert_eq!(archive.segments(ID, Position(1), 1).unwrap(), whole[1..2]);
    archive.detach(ID, starts[2], 9).unwrap();
    let states: Vec<bool> = of(&archive).iter().map(|file| file.is_detached).collect();
    assert_eq!(states, [true, true, false]);
    assert!(of(&archive).iter().all(|file| file.problem.is_none()));
    archive.attach(ID, 10).unwrap();
    // Each file in turn: shortened, gone, or with a flipped bit in its first block.
    let files = storage.files();
    for (index, segment) in whole.iter().enumerate() {
        let problems = |change: &dyn Fn(&mut FileTree)| {
            let mut files = files.clone();
            change(&mut files);
            let (archive, _) = open(&MemoryStorage::from_files(&files));
            of(&archive)
                .into_iter()
                .map(|file| file.problem)
                .collect::<Vec<_>>()
        };
        let bytes = files.get(&segment.file).unwrap().to_vec();
        let short = problems(&|files| {
            files.insert(&segment.file, bytes[..bytes.len() - 8].to_vec());
        });
        assert_eq!(short.iter().flatten().count(), 1, "{short:?}");
        assert!(
            short[index].as_ref().unwrap().contains("it ends at"),
            "{short:?}"
        );
        let gone = problems(&|files| {
            files.remove(&segment.file);
        });
        assert_eq!(
            (gone.len(), gone.iter().flatten().count()),
            (2, 1),
            "{gone:?}"
        );
        let flipped = problems(&|files| {
            let mut bytes = bytes.clone();
            bytes[40] ^= 1;
            files.insert(&segment.file, bytes);
        });
        assert!(
            flipped[index].as_ref().unwrap().contains("checksum"),
            "{flipped:?}"
        );
    }
}

#[test]
fn every_length_of_the_last_segment_keeps_the_blocks_before_and_tells_the_cut() {
    let (files, ends) = left_open();
    let whole = contents(&MemoryStorage::from_files(&files), ID);
    let (path, name, bytes) = last(&files);
    for length in 0..=bytes.len() {
        let mut cut = files.clone();
        cut.insert(&path, bytes[..length].to_vec());
        let storage = MemoryStorage::from_files(&cut);
        let (mut archive, recovered) = open(&storage);
        let reached = name.start.plus(length as u64);
        let ended = ends.iter().filter(|end| **end <= reached).max();
        let end = *ended.unwrap();
        assert!(recovered.problems.is_empty(), "{:?}", recovered.problems);
        let found = &recovered.recordings[0];
        assert_eq!(found.end, end, "length {length}");
        match &found.cuts[..] {
            [] => assert_eq!(reached, end, "length {length}"),
            [damage] => {
                assert_eq!(damage.file, path);
                assert_eq!(damage.offset, end.since(name.start), "length {length}");
                assert_eq!(damage.offset + damage.length, length as u64);
                assert!(damage.torn.is_some() || length == 0);
            }
            cuts => panic!("{cuts:?}"),
        }
        let kept = whole.iter().filter(|(position, _)| *position < end).count();
        assert_eq!(contents(&storage, ID), whole[..kept]);
        let mut writer = archive.extend(ID, 9).unwrap();
        let appended = writer.append_batch([&b"more"[..]], 9).unwrap();
        assert_eq!(appended.first_message, kept as u64);
        assert_eq!(contents(&storage, ID).len(), kept + 1);
    }
}

#[test]
fn a_recording_that_lost_durable_data_is_reported_and_not_changed() {
    let (files, ends) = left_open_marked();
    let end = *ends.last().unwrap();
    let (path, name, bytes) = last(&files);
    let (_, recovered) = open(&MemoryStorage::from_files(&files));
    assert_eq!(recovered.recordings[0].end, end);
    for length in 0..bytes.len() {
        let mut cut = files.clone();
        cut.insert(&path, bytes[..length].to_vec());
        let storage = MemoryStorage::from_files(&cut);
        let (mut archive, recovered) = open(&storage);
        let [(ID, error)] = &recovered.problems[..] else {
            panic!("length {length}: {recovered:?}");
        };
        let text = error.to_string();
        let is_reported = text.contains(path.to_str().unwrap()) && text.contains(&end.to_string());
        assert!(is_reported, "length {length}: {text}");
        assert_eq!(storage.files().get(&path), Some(&bytes[..length]));
        // On demand it ends where its files end.
        let reached = name.start.plus(length as u64);
        let place = *ends.iter().filter(|end| **end <= reached).max().unwrap();
        assert_eq!(archive.truncate(ID, place, 9).unwrap(), place, "{length}");
        let mut writer = archive.extend(ID, 10).unwrap();
        writer.append_batch([&b"more"[..]], 11).unwrap();
        drop((writer, archive));
        let (_, recovered) = open(&MemoryStorage::from_files(&storage.files()));
        assert!(recovered.problems.is_empty(), "{recovered:?}");
    }
}

#[test]
fn every_flipped_bit_of_the_last_segment_is_cut_or_reported_then_truncated_on_demand() {
    let (files, ends) = left_open();
    let whole = contents(&MemoryStorage::from_files(&files), ID);
    let (path, name, bytes) = last(&files);
    let (mut cut, mut reported) = (0, 0);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut damaged = files.clone();
        damaged.insert(&path, flipped.clone());
        let storage = MemoryStorage::from_files(&damaged);
        let (mut archive, recovered) = open(&storage);
        let at = name.start.plus(bit as u64 / 8);
        // The block with the bit starts where the last one before it ends.
        let block = ends.iter().filter(|end| **end <= at).max().unwrap();
        let block = (*block).max(name.start);
        if let [found] = &recovered.recordings[..] {
            assert_eq!(
                block,
                ends[ends.len() - 2],
                "only the last block may be torn"
            );
            assert_eq!((found.end, found.cuts.len()), (block, 1), "bit {bit}");
            cut += 1;
        } else {
            let [(id, error)] = &recovered.problems[..] else {
                panic!("bit {bit} is not reported");
            };
            assert_eq!(*id, ID);
            let text = error.to_string();
            assert!(text.contains(path.to_str().unwrap()), "{text}");
            assert_eq!(
                storage.files().get(&path),
                Some(&flipped[..]),
                "nothing is changed"
            );
            assert!(matches!(archive.extend(ID, 9), Err(ArchiveError::Tail(_))));
            let end = archive.truncate(ID, block, 9).unwrap();
            assert_eq!(end, block, "bit {bit}");
            archive.extend(ID, 10).unwrap().stop(11).unwrap();
            reported += 1;
        }
        let kept = whole
            .iter()
            .filter(|(position, _)| *position < block)
            .count();
        assert_eq!(contents(&storage, ID), whole[..kept], "bit {bit}");
    }
    assert!(cut > 1_000 && reported > 1_000, "{cut} {reported}");
}

#[test]
fn a_flipped_bit_in_an_older_segment_is_reported_by_verify_only() {
    let (files, _) = left_open();
    let older: Vec<PathBuf> = (files.iter())
        .filter(|(path, _)| is_segment(path))
        .map(|(path, _)| path.to_owned())
        .collect();
    let path = &older[0];
    let bytes = files.get(path).unwrap().to_vec();
    for bit in (0..bytes.len() * 8).step_by(7) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut damaged = files.clone();
        damaged.insert(path, flipped);
        let storage = MemoryStorage::from_files(&damaged);
        let (archive, recovered) = open(&storage);
        assert!(recovered.problems.is_empty());
        drop(archive);
        let options = VerifyOptions {
            threads: 1,
            checksums: false,
        };
        let reports = verify(&storage, Path::new(FOLDER), &[ID], options, &|_| {}).unwrap();
        assert_eq!(reports[0].damages.len(), 1, "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_of_the_catalog_is_reported_and_changes_nothing_else() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    for label in ["one", "two"] {
        let mut writer = archive.start(&options(1_024), 5).unwrap();
        writer.append_batch([label.as_bytes()], 6).unwrap();
        archive.relabel(writer.recording(), label, 6).unwrap();
        writer.stop(7).unwrap();
    }
    let before = archive.list(&crate::RecordingFilter::default());
    drop(archive);
    let mut files = storage.files();
    // With its mark every loss is reported; without, one of the newest event looks like an interrupted write.
    assert_eq!(torn_catalogs(&files, &before), 0);
    files.remove(Path::new(FOLDER).join("catalog.mark"));
    let torn = torn_catalogs(&files, &before);
    assert!((500..2_000).contains(&torn), "{torn}");
}

/// Flips every bit of the catalog; in how many cases it is opened, with its end cut off.
fn torn_catalogs(files: &FileTree, before: &[crate::Recording]) -> usize {
    let path = Path::new(FOLDER).join("catalog");
    let bytes = files.get(&path).unwrap().to_vec();
    let mut torn = 0;
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut damaged = files.clone();
        damaged.insert(&path, flipped);
        let storage = MemoryStorage::from_files(&damaged);
        match Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 7) {
            Ok((archive, recovered)) => {
                // The newest event, a stop, is lost, and found again in the files.
                assert!(recovered.catalog.is_some(), "bit {bit}");
                assert_eq!(archive.list(&crate::RecordingFilter::default()), before);
                torn += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("catalog"), "{text}");
                assert_eq!(storage.files(), damaged, "nothing is changed");
            }
        }
    }
    torn
}

/// One flipped bit before blocks that are whole and were never synced.
#[test]
fn no_whole_block_after_a_flipped_bit_is_cut_unless_a_repair_is_asked_for() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1 << 20), 5).unwrap();
    for byte in 0..20 {
        writer.append_batch([&[byte; 100][..]], 6).unwrap();
    }
    drop((writer, archive));
    let mut files = storage.files();
    let (path, _, mut bytes) = last(&files);
    let whole = contents(&storage, ID);
    let at = whole[4].0.0 as usize + 20;
    bytes[at] ^= 1;
    files.insert(&path, bytes);
    let storage = MemoryStorage::from_files(&files);
    let folder = Path::new(FOLDER);
    let shared = || Arc::new(storage.clone());
    let (mut archive, recovered) = open(&storage);
    let [(ID, problem)] = &recovered.problems[..] else {
        panic!("{recovered:?}");
    };
    let block = whole[4].0.0 - BATCH_FRAMES_OFFSET as u64;
    let place = format!("at {block}");
    let text = problem.to_string();
    for part in [path.to_str().unwrap(), &place, "verify --repair"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(archive.extend(ID, 9).unwrap_err().to_string(), text);
    let text = Archive::look(shared(), folder).unwrap().problems;
    assert!(text.is_empty(), "headers alone do not show it: {text:?}");
    let mut cursor = Cursor::open(shared(), folder, ID, Origin::Start, CursorBound::End).unwrap();
    for _ in 0..4 {
        assert!(cursor.next_block().unwrap().is_some());
    }
    let text = cursor.next_block().unwrap_err().to_string();
    assert!(text.contains(&place), "{text}");
    assert_eq!(storage.files().get(&path), files.get(&path));
    let options = VerifyOptions {
        threads: 1,
        checksums: true,
    };
    let repaired = archive.repair(ID, options, 10, &|_| ()).unwrap().unwrap();
    assert_eq!(repaired.end, Position(block));
    let after = storage.files();
    let kept = after.get(&repaired.kept[0]).unwrap();
    assert_eq!(Some(kept), files.get(&path).unwrap().get(block as usize..));
    assert_eq!(contents(&storage, ID), whole[..4]);
    archive.extend(ID, 11).unwrap().stop(12).unwrap();
}

#[test]
fn an_empty_next_segment_is_no_damage_and_a_foreign_file_is_reported() {
    let (files, ends) = left_open();
    let end = ends.last().unwrap();
    let next = SegmentName {
        recording: ID,
        start: *end,
    };
    let path = Path::new(FOLDER).join(next.file());
    let header = &last(&files).2[..SEGMENT_BLOCK_LENGTH as usize];
    for length in [0, 1, 40, header.len() - 1] {
        let mut cut = files.clone();
        cut.insert(&path, header[..length].to_vec());
        let storage = MemoryStorage::from_files(&cut);
        let options = VerifyOptions {
            threads: 1,
            checksums: true,
        };
        let reports = verify(&storage, Path::new(FOLDER), &[ID], options, &|_| ()).unwrap();
        assert_eq!(reports[0].damages, [], "length {length}");
        assert_eq!(reports[0].messages, 22);
        assert_eq!(reports[0].torn.as_ref().unwrap().path, path);
        assert!(
            Archive::strays(&storage, Path::new(FOLDER))
                .unwrap()
                .is_empty()
        );
        let (_, recovered) = open(&storage);
        assert_eq!(recovered.recordings[0].end, *end);
    }
    let stray = Path::new(FOLDER).join("0000000007-00000000000000000000.segment");
    let mut more = files.clone();
    more.insert(&stray, header.to_vec());
    let storage = MemoryStorage::from_files(&more);
    assert_eq!(
        Archive::strays(&storage, Path::new(FOLDER)).unwrap(),
        [stray]
    );
}

#[test]
fn a_file_that_ends_before_its_durable_end_is_damaged() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    writer.append_batch([&b"message"[..]], 6).unwrap();
    writer.stop(7).unwrap();
    drop((archive.extend(ID, 8).unwrap(), archive));
    let mut files = storage.files();
    let (path, _, bytes) = last(&files);
    files.insert(&path, bytes[..bytes.len() - 1].to_vec());
    let (mut archive, recovered) = open(&MemoryStorage::from_files(&files));
    let [(_, ArchiveError::Tail(error))] = &recovered.problems[..] else {
        panic!("{recovered:?}");
    };
    assert!(
        matches!(error, TailError::Lost { torn: Some(_), .. }),
        "{error}"
    );
    archive.delete(ID, 9).unwrap();
}
