//! Storage that has no room, or fails to sync.

use super::{FOLDER, contents, options};
use crate::recording::Durability;
use crate::{AppendError, Archive, ArchiveError, RecordingOptions, Recovered};
use seatrial_sim::MemoryStorage;
use std::path::Path;
use std::sync::Arc;

fn tight(room: u64) -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.set_room(Some(room));
    storage
}

fn open_archive(storage: &MemoryStorage) -> Result<(Archive, Recovered), ArchiveError> {
    Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1)
}

#[test]
fn a_full_disk_is_an_error_that_loses_nothing_and_recording_resumes() {
    for room in 0..1_500 {
        let storage = tight(room);
        let mut written: Vec<[u8; 40]> = Vec::new();
        let mut began = false;
        let result = (|| -> Result<(), Box<dyn std::error::Error>> {
            let (mut archive, _) = open_archive(&storage)?;
            let mut writer = archive.start(&options(1_024), 2)?;
            began = true;
            loop {
                let message = [written.len() as u8; 40];
                let appended = writer.append_batch([&message[..]], 3);
                if let Err(error) = appended {
                    let again = writer.append_batch([&message[..]], 3);
                    assert!(matches!(again, Err(AppendError::Poisoned { .. })));
                    return Err(error.into());
                }
                written.push(message);
            }
        })();
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot write to recordings/"), "{text}");
        storage.set_room(Some(10_000));
        let (mut archive, recovered) = open_archive(&storage).unwrap();
        assert!(recovered.problems.is_empty());
        if !began {
            // The number may have been given out, the recording is empty or gone.
            assert!(
                archive
                    .list(&crate::RecordingFilter::default())
                    .iter()
                    .all(|one| one.messages() == 0)
            );
            archive.start(&options(1_024), 4).unwrap();
            continue;
        }
        let id = recovered.recordings[0].recording;
        let read = contents(&storage, id);
        assert!(
            read.iter()
                .map(|(_, bytes)| &bytes[..])
                .eq(written.iter().map(|one| &one[..]))
        );
        let mut writer = archive.extend(id, 4).unwrap();
        writer.append_batch([&b"goes on"[..]], 5).unwrap();
        writer.stop(6).unwrap();
        assert_eq!(contents(&storage, id).len(), written.len() + 1);
    }
}

#[test]
fn after_no_space_the_same_archive_extends_the_recording_again() {
    let storage = tight(10_000);
    let (mut archive, _) = open_archive(&storage).unwrap();
    let mut writer = archive.start(&options(1_024), 2).unwrap();
    let id = writer.recording();
    writer.append_batch([&b"before"[..]], 3).unwrap();
    storage.set_room(Some(17));
    let error = writer.append_batch([&b"while"[..]], 4).unwrap_err();
    assert!(matches!(error, AppendError::Storage(error) if error.is_no_space()));
    assert!(matches!(writer.stop(5), Err(AppendError::Poisoned { .. })));
    assert!(
        archive.extend(id, 6).is_err(),
        "no room for the event either"
    );
    storage.set_room(Some(10_000));
    let mut writer = archive.extend(id, 7).unwrap();
    assert_eq!(
        writer
            .append_batch([&b"after"[..]], 8)
            .unwrap()
            .first_message,
        1
    );
    writer.stop(9).unwrap();
    assert_eq!(contents(&storage, id).len(), 2);
}

#[test]
fn a_failed_sync_is_never_taken_back() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open_archive(&storage).unwrap();
    let options = RecordingOptions {
        durability: Durability::Batch,
        ..options(1_024)
    };
    let mut writer = archive.start(&options, 2).unwrap();
    let (id, progress) = (writer.recording(), writer.progress());
    let durable = writer.append_batch([&b"before"[..]], 3).unwrap().durable;
    storage.fail_syncs(true);
    assert!(writer.append_batch([&b"while"[..]], 4).is_err());
    storage.fail_syncs(false);
    assert!(matches!(writer.sync(), Err(AppendError::Poisoned { .. })));
    assert_eq!((writer.durable(), progress.durable()), (durable, durable));
    assert_eq!(progress.state(), crate::WriterState::Lost);
    drop(writer);
    assert!(matches!(
        archive.extend(id, 5),
        Err(ArchiveError::Lost { .. })
    ));
    assert!(matches!(
        archive.truncate(id, durable, 5),
        Err(ArchiveError::Lost { .. })
    ));
    drop(archive);
    let (mut archive, _) = open_archive(&storage).unwrap();
    assert!(archive.extend(id, 6).is_ok());
    // The catalog's own.
    storage.fail_syncs(true);
    assert!(archive.relabel(id, "other", 7).is_err());
    storage.fail_syncs(false);
    let error = archive.relabel(id, "other", 8).unwrap_err();
    assert!(error.to_string().contains("no longer usable"), "{error}");
}
