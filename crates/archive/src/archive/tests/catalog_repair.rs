//! Catalogs that are damaged or lost.

use super::{FOLDER, contents, open, options};
use crate::{
    Archive, CatalogRepair, Position, Recording, RecordingFilter, RecordingId, RecordingOptions,
};
use seatrial_sim::{FileTree, MemoryStorage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Four recordings: stopped, purged, deleted, left open.
fn lived() -> (FileTree, Vec<Recording>) {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    for label in ["stopped", "purged", "deleted", "left open"] {
        let options = RecordingOptions {
            label: label.to_owned(),
            ..options(1_024)
        };
        let mut writer = archive.start(&options, 5).unwrap();
        for byte in 0..10 {
            writer
                .append_batch([&[byte; 200][..], label.as_bytes()], 6)
                .unwrap();
        }
        if label != "left open" {
            writer.stop(7).unwrap();
        }
    }
    archive
        .truncate(RecordingId(1), Position(1_500), 8)
        .unwrap_err();
    archive.purge(RecordingId(2), Position(2_000), 8).unwrap();
    archive.delete(RecordingId(3), 9).unwrap();
    drop(archive);
    let files = storage.files();
    let (archive, _) = open(&MemoryStorage::from_files(&files));
    (files, archive.list(&RecordingFilter::default()))
}

fn repair(storage: &MemoryStorage) -> CatalogRepair {
    Archive::repair_catalog(Arc::new(storage.clone()), Path::new(FOLDER)).unwrap()
}

fn catalog() -> PathBuf {
    Path::new(FOLDER).join("catalog")
}

#[test]
fn a_whole_catalog_is_left_alone() {
    let (files, _) = lived();
    let storage = MemoryStorage::from_files(&files);
    let repaired = repair(&storage);
    assert!(
        repaired.damages.is_empty() && repaired.kept.is_none(),
        "{repaired:?}"
    );
    assert!(repaired.found.is_empty() && repaired.dropped.is_empty());
    assert_eq!(storage.files(), files);
}

#[test]
fn a_lost_catalog_is_made_again_from_the_files() {
    let (mut files, before) = lived();
    files.remove(catalog());
    let storage = MemoryStorage::from_files(&files);
    // No new one is begun beside the files.
    let refused = Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1_000);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("recordings/catalog has lost events"),
        "{text}"
    );
    let repaired = repair(&storage);
    assert_eq!(repaired.found, [1, 2, 4].map(RecordingId));
    let (archive, recovered) = open(&storage);
    assert!(recovered.problems.is_empty() && recovered.orphans.is_empty());
    let after = archive.list(&RecordingFilter::default());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.id, before.start), (after.id, after.start));
        assert_eq!(
            (before.end, before.segment_length),
            (after.end, after.segment_length)
        );
        assert_eq!(after.label, "");
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn whatever_bit_of_the_catalog_is_flipped_the_messages_are_there_afterwards() {
    let (files, before) = lived();
    let bytes = files.get(catalog()).unwrap().to_vec();
    let mut labels = 0;
    for bit in (0..bytes.len() * 8).step_by(11) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut damaged = files.clone();
        damaged.insert(catalog(), flipped.clone());
        let storage = MemoryStorage::from_files(&damaged);
        let repaired = repair(&storage);
        let kept = Path::new(FOLDER).join("catalog.damaged");
        if repaired.kept.is_some() {
            assert_eq!(storage.files().get(kept), Some(&flipped[..]));
        }
        let (mut archive, recovered) = open(&storage);
        assert!(
            recovered.problems.is_empty(),
            "bit {bit}: {:?}",
            recovered.problems
        );
        for before in &before {
            let after = archive.describe(before.id).unwrap().recording;
            assert_eq!(
                (after.start, after.end),
                (before.start, before.end),
                "bit {bit}"
            );
            labels += u64::from(after.label == before.label);
            let read = contents(&storage, before.id).len() as u64;
            assert_eq!(read, before.messages());
        }
        assert_eq!(
            archive.list(&RecordingFilter::default()).len(),
            before.len()
        );
        let next = archive.start(&options(1_024), 20).unwrap().recording();
        assert_eq!(next, RecordingId(5), "bit {bit}");
    }
    assert!(labels > 1_000, "{labels}");
}
