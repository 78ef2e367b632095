//! Damage to the files of a node that needs no root: flipped bits, truncation, snapshots.

use seatrial_machine::Rng;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// All nonempty files in `folder` and its subfolders, with their lengths, sorted by path.
fn list(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Length of the longest file in `folder` and its subfolders.
pub(crate) fn longest(folder: &Path) -> io::Result<u64> {
    Ok(list(folder)?
        .into_iter()
        .map(|(_, length)| length)
        .max()
        .unwrap_or(0))
}

/// Flips `bits` random bits. Returns the number of bytes that they were drawn from; 0 if there are no files.
pub(crate) fn rot(folder: &Path, bits: u32, rng: &mut Rng) -> io::Result<u64> {
    let files = list(folder)?;
    let total: u64 = files.iter().map(|(_, length)| length).sum();
    if total == 0 {
        return Ok(0);
    }
    for _ in 0..bits {
        let mut offset = rng.below(total);
        let hit = files.iter().find(|(_, length)| {
            let found = offset < *length;
            offset -= if found { 0 } else { *length };
            found
        });
        if let Some((path, _)) = hit {
            flip(path, offset, rng.below(8) as u32)?;
        }
    }
    Ok(total)
}

/// Flips one bit of a file in place.
fn flip(path: &Path, offset: u64, bit: u32) -> io::Result<()> {
    let file: File = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, offset)
}

/// Truncates the file that was changed last by `bytes`, or to empty. Returns the file and the number of bytes removed.
pub(crate) fn truncate(folder: &Path, bytes: u64) -> io::Result<Option<(PathBuf, u64)>> {
    let mut newest: Option<(SystemTime, PathBuf, u64)> = None;
    for (path, length) in list(folder)? {
        let changed = fs::metadata(&path)?.modified()?;
        if newest
            .as_ref()
            .is_none_or(|(latest, ..)| changed >= *latest)
        {
            newest = Some((changed, path, length));
        }
    }
    let Some((_, path, length)) = newest else {
        return Ok(None);
    };
    let cut = bytes.min(length);
    OpenOptions::new()
        .write(true)
        .open(&path)?
        .set_len(length - cut)?;
    Ok(Some((path, cut)))
}

/// Replaces the folder `to` by a copy of `from`. Returns the number of bytes copied.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            bytes += copy(&entry.path(), &to)?;
        } else {
            bytes += fs::copy(entry.path(), to)?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_rot_are_cut_and_come_back() {
        let scratch = tempfile::tempdir().unwrap();
        let (data, kept) = (
            scratch.path().join("n1"),
            scratch.path().join("n1.snapshot"),
        );
        fs::create_dir_all(data.join("deep")).unwrap();
        let mut rng = Rng::from_seed(1);
        assert_eq!(rot(&data, 3, &mut rng).unwrap(), 0);
        assert_eq!(truncate(&data, 3).unwrap(), None);
        fs::write(data.join("deep/old"), [0; 100]).unwrap();
        fs::write(data.join("log"), [0; 50]).unwrap();
        assert_eq!(longest(&data).unwrap(), 100);
        assert_eq!(copy(&data, &kept).unwrap(), 150);
        assert_eq!(rot(&data, 1, &mut rng).unwrap(), 150);
        let bits = |folder: &Path| -> u32 {
            let files = list(folder).unwrap().into_iter();
            let bytes = files.flat_map(|(path, _)| fs::read(path).unwrap());
            bytes.map(u8::count_ones).sum()
        };
        assert_eq!((bits(&data), bits(&kept)), (1, 0));
        let log = data.join("log");
        fs::write(&log, [0; 50]).unwrap(); // changed last
        assert_eq!(truncate(&data, 20).unwrap(), Some((log.clone(), 20)));
        assert_eq!(fs::metadata(&log).unwrap().len(), 30);
        assert_eq!(truncate(&data, 80).unwrap(), Some((log.clone(), 30)));
        fs::write(data.join("new"), "later").unwrap();
        assert_eq!(copy(&kept, &data).unwrap(), 150);
        assert_eq!((bits(&data), longest(&data).unwrap()), (0, 100));
        assert!(!data.join("new").exists(), "what came later is lost");
    }
}
