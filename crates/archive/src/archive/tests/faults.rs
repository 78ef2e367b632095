//! Storage that has no room, or fails to sync.

use super::{FOLDER, contents, options};
use crate::recording::Durability;
use crate::{AppendError, Archive, ArchiveError, RecordingOptions, Recovered};
use seatrial_machine::{Disk, Medium, Storage};
use seatrial_sim::MemoryStorage;
use std::any::Any;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What goes wrong.
#[derive(Debug)]
struct Faults {
    /// Bytes that may still be written.
    room: AtomicU64,
    fails_syncs: AtomicBool,
}

/// Files that have little room; a write that does not fit is made as far as it does.
#[derive(Clone, Debug)]
struct Tight {
    files: MemoryStorage,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct TightFile {
    file: Arc<dyn Medium>,
    faults: Arc<Faults>,
}

impl Tight {
    fn new(room: u64) -> Tight {
        Tight {
            files: MemoryStorage::new(),
            faults: Arc::new(Faults {
                room: AtomicU64::new(room),
                fails_syncs: AtomicBool::new(false),
            }),
        }
    }

    fn has_room(&self, room: u64) {
        self.faults.room.store(room, Ordering::Relaxed);
    }

    fn fails_syncs(&self, fails: bool) {
        self.faults.fails_syncs.store(fails, Ordering::Relaxed);
    }

    fn open_archive(&self) -> Result<(Archive, Recovered), ArchiveError> {
        Archive::open(Arc::new(self.clone()), Path::new(FOLDER), 1)
    }

    fn wrapped(&self, file: io::Result<Arc<dyn Medium>>) -> io::Result<Arc<dyn Medium>> {
        let faults = Arc::clone(&self.faults);
        Ok(Arc::new(TightFile {
            file: file?,
            faults,
        }))
    }
}

impl Faults {
    fn sync(&self) -> io::Result<()> {
        if self.fails_syncs.load(Ordering::Relaxed) {
            return Err(io::Error::other("the medium is gone"));
        }
        Ok(())
    }
}

impl Storage for Tight {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.wrapped(self.files.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.wrapped(self.files.open(path))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.wrapped(self.files.open_write(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.files.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.sync()?;
        self.files.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.files.lock(path)
    }
}

impl Disk for TightFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }
}

impl Medium for TightFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let room = self.faults.room.load(Ordering::Relaxed);
        let fits = room.min(bytes.len() as u64);
        self.faults.room.store(room - fits, Ordering::Relaxed);
        self.file.write_at(offset, &bytes[..fits as usize])?;
        if fits < bytes.len() as u64 {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.sync()?;
        self.file.sync()
    }
}

#[test]
fn without_room_the_error_is_told_and_what_was_written_stays_and_goes_on_later() {
    for room in 0..1_500 {
        let storage = Tight::new(room);
        let mut written: Vec<[u8; 40]> = Vec::new();
        let mut began = false;
        let told = (|| -> Result<(), Box<dyn std::error::Error>> {
            let (mut archive, _) = storage.open_archive()?;
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
        let error = told.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot write to recordings/"), "{text}");
        storage.has_room(10_000);
        let (mut archive, recovered) = storage.open_archive().unwrap();
        assert!(recovered.problems.is_empty());
        if !began {
            // The number may have been given out, the recording is empty or gone.
            assert!(
                archive
                    .list(&crate::Filter::default())
                    .iter()
                    .all(|one| one.messages() == 0)
            );
            archive.start(&options(1_024), 4).unwrap();
            continue;
        }
        let id = recovered.recordings[0].recording;
        let read = contents(&storage.files, id);
        assert!(
            read.iter()
                .map(|(_, bytes)| &bytes[..])
                .eq(written.iter().map(|one| &one[..]))
        );
        let mut writer = archive.extend(id, 4).unwrap();
        writer.append_batch([&b"goes on"[..]], 5).unwrap();
        writer.stop(6).unwrap();
        assert_eq!(contents(&storage.files, id).len(), written.len() + 1);
    }
}

#[test]
fn after_no_space_the_same_archive_extends_the_recording_again() {
    let storage = Tight::new(10_000);
    let (mut archive, _) = storage.open_archive().unwrap();
    let mut writer = archive.start(&options(1_024), 2).unwrap();
    let id = writer.recording();
    writer.append_batch([&b"before"[..]], 3).unwrap();
    storage.has_room(17);
    let error = writer.append_batch([&b"while"[..]], 4).unwrap_err();
    assert!(matches!(error, AppendError::Storage(error) if error.is_no_space()));
    assert!(matches!(writer.stop(5), Err(AppendError::Poisoned { .. })));
    assert!(
        archive.extend(id, 6).is_err(),
        "no room for the event either"
    );
    storage.has_room(10_000);
    let mut writer = archive.extend(id, 7).unwrap();
    assert_eq!(
        writer
            .append_batch([&b"after"[..]], 8)
            .unwrap()
            .first_message,
        1
    );
    writer.stop(9).unwrap();
    assert_eq!(contents(&storage.files, id).len(), 2);
}

#[test]
fn a_failed_sync_is_never_taken_back() {
    let storage = Tight::new(u64::MAX);
    let (mut archive, _) = storage.open_archive().unwrap();
    let options = RecordingOptions {
        durability: Durability::Batch,
        ..options(1_024)
    };
    let mut writer = archive.start(&options, 2).unwrap();
    let (id, progress) = (writer.recording(), writer.progress());
    let durable = writer.append_batch([&b"before"[..]], 3).unwrap().durable;
    storage.fails_syncs(true);
    assert!(writer.append_batch([&b"while"[..]], 4).is_err());
    storage.fails_syncs(false);
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
    let (mut archive, _) = storage.open_archive().unwrap();
    assert!(archive.extend(id, 6).is_ok());
    // The catalog's own.
    storage.fails_syncs(true);
    assert!(archive.relabel(id, "other", 7).is_err());
    storage.fails_syncs(false);
    let error = archive.relabel(id, "other", 8).unwrap_err();
    assert!(error.to_string().contains("out of use"), "{error}");
}
