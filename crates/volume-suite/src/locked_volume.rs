//! The right to change the files of a volume.

use crate::volume_file::{FILE_NAME, KEY_NAME, VolumeFile, key_text};
use seatrial_host::{keep_whole, partial_of, write_whole};
use seatrial_suite::SuiteError;
use seatrial_volume::BlockKey;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A volume whose files nothing else changes as long as this value lives.
///
/// Two change them: commands (`rotate`, `replace`), and the process that has the volume attached, which removes a parent and keys
/// that no block needs any more. Each takes the lock, reads the files, and writes them. Without it one undoes what the other
/// wrote: a new key whose `key-check` is lost makes the volume unreadable once the earlier key is removed.
///
/// The lock is `flock` on the folder: it ends with the process, however that ends.
pub(crate) struct LockedVolume {
    /// As it was read under the lock.
    pub(crate) file: VolumeFile,
    _lock: File,
}

impl LockedVolume {
    /// Waits for the lock and reads the file of the volume.
    pub(crate) fn open(folder: &Path) -> Result<LockedVolume, SuiteError> {
        let lock = lock_folder(folder)?;
        let file = VolumeFile::read(folder)?;
        Ok(LockedVolume { file, _lock: lock })
    }

    /// The same without waiting; `None`: another process has the lock.
    pub(crate) fn try_open(folder: &Path) -> Result<Option<LockedVolume>, SuiteError> {
        let shown = folder.display();
        let lock = open_folder(folder).map_err(|error| format!("{shown}: {error}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(format!("{shown}: {error}").into()),
        }
        let file = VolumeFile::read(folder)?;
        Ok(Some(LockedVolume { file, _lock: lock }))
    }

    /// Locks the folder of a volume that has no files yet. Fails if it has.
    pub(crate) fn create(file: VolumeFile) -> Result<LockedVolume, SuiteError> {
        let folder = &file.folder;
        let lock = lock_folder(folder)?;
        if folder.join(FILE_NAME).exists() {
            return Err(format!("{}: there is a volume already", folder.display()).into());
        }
        Ok(LockedVolume { file, _lock: lock })
    }

    /// Writes the file of the volume, whole or not at all.
    pub(crate) fn write(&self) -> Result<(), SuiteError> {
        let path = self.file.folder.join(FILE_NAME);
        let text = self.file.text();
        let written = write_whole(&path, |file| file.write_all(text.as_bytes()));
        Ok(written.map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Replaces the file of the keys, whole or not at all.
    pub(crate) fn write_keys(&self, keys: &BTreeMap<u16, BlockKey>) -> Result<(), SuiteError> {
        let path = self.file.folder.join(KEY_NAME);
        let text: String = keys
            .iter()
            .map(|(epoch, key)| match (keys.len(), epoch) {
                (1, 0) => key_text(&key.0),
                _ => format!("{epoch} {}", key_text(&key.0)),
            })
            .collect();
        let partial = partial_of(&path);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&partial).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            keep_whole(&partial, &path)
        });
        Ok(written.map_err(|error| format!("{}: {error}", path.display()))?)
    }
}

/// Waits for the lock of a folder.
fn lock_folder(folder: &Path) -> Result<File, SuiteError> {
    let locked = open_folder(folder).and_then(|it| it.lock().map(|()| it));
    Ok(locked.map_err(|error| format!("{}: {error}", folder.display()))?)
}

/// The folder as a file, which can be locked.
fn open_folder(folder: &Path) -> io::Result<File> {
    let is_here = folder.as_os_str().is_empty();
    File::open(if is_here { Path::new(".") } else { folder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd_server::NbdAddress;
    use seatrial_volume::{Geometry, KEY_LENGTH, VolumeId};
    use std::fs;
    use std::thread;

    fn created(folder: &Path) -> LockedVolume {
        LockedVolume::create(VolumeFile {
            folder: folder.to_owned(),
            geometry: Geometry {
                volume: VolumeId(0x1234),
                block_length: 4_096,
                blocks: 262_144,
            },
            replicas: vec!["127.0.0.1:7501".parse().unwrap()],
            quorum: 1,
            needs_tls: false,
            key_check: None,
            parent: None,
        })
        .unwrap()
    }

    #[test]
    fn a_file_of_keys_is_replaced_and_checked() {
        let scratch = tempfile::tempdir().unwrap();
        let key = |byte| BlockKey([byte; KEY_LENGTH]);
        let mut volume = created(scratch.path());
        for keys in [
            BTreeMap::from([(0, key(1))]),
            BTreeMap::from([(0, key(1)), (1, key(2))]),
            BTreeMap::from([(1, key(2))]),
        ] {
            volume.write_keys(&keys).unwrap();
            assert_eq!(volume.file.keys().unwrap(), keys);
        }
        volume.file.key_check = Some(volume.file.key().unwrap().check_text());
        assert!(volume.file.keys().is_ok());
        volume.write_keys(&BTreeMap::from([(1, key(3))])).unwrap();
        let error = volume.file.keys().unwrap_err().to_string();
        assert!(error.contains("not the key of the volume"), "{error}");
        for (text, reason) in [
            ("", "key:1: there is no key"),
            ("00ff", "key:1: a key is 64"),
            ("x", "key:1: a key is 64"),
        ] {
            fs::write(scratch.path().join(KEY_NAME), text).unwrap();
            let error = volume.file.keys().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    /// As a command and the process that has the volume attached do: each changes a field of its own, and no change is lost.
    #[test]
    fn two_writers_undo_nothing_of_each_other() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        created(folder).write().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..100 {
                    let mut volume = LockedVolume::open(folder).unwrap();
                    let expected = (round > 0).then(|| format!("{:02x}", round - 1));
                    assert_eq!(volume.file.key_check, expected);
                    volume.file.key_check = Some(format!("{round:02x}"));
                    volume.write().unwrap();
                }
            });
            let mut round = 0;
            while round < 100 {
                let Some(mut volume) = LockedVolume::try_open(folder).unwrap() else {
                    thread::yield_now();
                    continue;
                };
                let parent = |round| (NbdAddress::Unix("/nbd".into()), format!("s{round}"));
                let expected = (round > 0).then(|| parent(round - 1));
                assert_eq!(volume.file.parent, expected);
                volume.file.parent = Some(parent(round));
                volume.write().unwrap();
                round += 1;
            }
        });
        let read = VolumeFile::read(folder).unwrap();
        assert_eq!(read.key_check.as_deref(), Some("63"));
        assert!(read.parent.is_some_and(|(_, export)| export == "s99"));
    }

    #[test]
    fn a_lock_is_taken_once_and_a_volume_created_once() {
        let scratch = tempfile::tempdir().unwrap();
        let volume = created(scratch.path());
        volume.write().unwrap();
        assert!(LockedVolume::try_open(scratch.path()).unwrap().is_none());
        let file = volume.file.clone();
        drop(volume);
        assert!(LockedVolume::try_open(scratch.path()).unwrap().is_some());
        let error = LockedVolume::create(file).err().unwrap().to_string();
        assert!(error.contains("there is a volume already"), "{error}");
    }
}
