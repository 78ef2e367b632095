//! The contents of a storage at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The contents of a storage at one moment: what a crash leaves, what a test begins with. A clone shares all bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    files: BTreeMap<PathBuf, Arc<Vec<u8>>>,
    folders: BTreeSet<PathBuf>,
}

impl FileTree {
    /// The bytes of a file.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.files
            .get(&plain(path.as_ref()))
            .map(|bytes| &bytes[..])
    }

    /// Puts a file in, and the folders above it; answers what was there.
    pub fn insert(
        &mut self,
        path: impl AsRef<Path>,
        bytes: impl Into<Arc<Vec<u8>>>,
    ) -> Option<Arc<Vec<u8>>> {
        let path = plain(path.as_ref());
        if let Some(folder) = path.parent() {
            self.insert_folder(folder);
        }
        self.files.insert(path, bytes.into())
    }

    /// Takes a file out.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Option<Arc<Vec<u8>>> {
        self.files.remove(&plain(path.as_ref()))
    }

    /// Puts a folder in, and those above it.
    pub fn insert_folder(&mut self, path: impl AsRef<Path>) {
        for folder in plain(path.as_ref()).ancestors() {
            if !is_top(folder) {
                self.folders.insert(folder.to_owned());
            }
        }
    }

    /// All files, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Arc<Vec<u8>>)> {
        self.files
            .iter()
            .map(|(path, bytes)| (path.as_path(), bytes))
    }

    /// A number that tells two trees apart (64 bits, well mixed).
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut mixed = 0;
        for (path, bytes) in &self.files {
            mixed = mix(mixed, path.as_os_str().as_encoded_bytes());
            mixed = mix(mixed, bytes);
        }
        for folder in &self.folders {
            mixed = mix(mixed, folder.as_os_str().as_encoded_bytes());
        }
        mixed
    }

    /// All folders, by path, without those that are always there (the top, the working folder).
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }
}

/// Takes bytes into a fingerprint, eight at a time: multiply and rotate, then a finish as in splitmix64.
fn mix(before: u64, bytes: &[u8]) -> u64 {
    let mut mixed = before ^ (bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut step = |word: u64| {
        mixed = (mixed ^ word)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .rotate_left(29);
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        step(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    step(u64::from_le_bytes(last));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A path without `.` and doubled separators: the key of a file.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// The folder that a plain path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Is this folder always there?
pub(crate) fn is_top(folder: &Path) -> bool {
    folder.parent().is_none()
}
