//! Snapshots of a storage.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The files and folders of a storage at one moment: a crash state, the start of a test. A clone shares all bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    files: BTreeMap<PathBuf, Arc<Vec<u8>>>,
    folders: BTreeSet<PathBuf>,
}

impl FileTree {
    /// These files and folders, by plain paths, with all folders that they are in.
    pub(super) fn of_plain(
        files: BTreeMap<PathBuf, Arc<Vec<u8>>>,
        folders: BTreeSet<PathBuf>,
    ) -> FileTree {
        FileTree { files, folders }
    }

    /// The bytes of a file.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.files
            .get(&plain(path.as_ref()))
            .map(|bytes| &bytes[..])
    }

    /// Inserts a file and its parent folders; returns the bytes that it replaces.
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

    /// Removes a file and returns its bytes.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Option<Arc<Vec<u8>>> {
        self.files.remove(&plain(path.as_ref()))
    }

    /// Inserts a folder and its parents.
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

    /// Hash of all paths and bytes (64 bits, well mixed; not collision resistant).
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

    /// All folders, by path, without the root and the working folder, which always exist.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }
}

/// Mixes bytes into a hash, eight at a time: multiply and rotate, then the finalizer of splitmix64.
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
    let bytes = path.as_os_str().as_encoded_bytes();
    // Most paths are plain already and need not be taken apart. A `.` that begins a name such as `.lock` makes a path go the long
    // way too.
    let is_plain = !bytes.starts_with(b".")
        && !bytes.ends_with(b"/")
        && !bytes.windows(2).any(|pair| pair == b"//" || pair == b"/.");
    if is_plain {
        return path.to_owned();
    }
    taken_apart(path)
}

fn taken_apart(path: &Path) -> PathBuf {
    let parts = path.components();
    parts.filter(|part| *part != Component::CurDir).collect()
}

/// The parent folder of a plain path.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The name of a plain path if it is directly in this folder.
///
/// By bytes: `Path::parent` takes the path apart from its end, which was a fifth of the time of an exploration.
pub(super) fn name_in<'a>(folder: &Path, path: &'a Path) -> Option<&'a str> {
    let path = path.to_str()?;
    let name = match folder.to_str()? {
        "" => path,
        "/" => path.strip_prefix('/')?,
        folder => path.strip_prefix(folder)?.strip_prefix('/')?,
    };
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Is this the root or the working folder, which always exist?
pub(crate) fn is_top(folder: &Path) -> bool {
    folder.parent().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn names_are_those_of_paths_with_this_parent() {
        let paths = ["", "/", "a", "/a", "a/b", "/a/b", "a/b/c", "ab", "a b/c"].map(Path::new);
        for folder in paths {
            for path in paths {
                let is_in = path.parent() == Some(folder);
                let name = path.file_name().and_then(|name| name.to_str());
                assert_eq!(
                    name_in(folder, path),
                    name.filter(|_| is_in),
                    "{folder:?} {path:?}"
                );
            }
        }
    }

    #[test]
    fn plain_paths_are_those_that_are_taken_apart() {
        let mut rng = Rng::from_seed(1);
        for _ in 0..20_000 {
            let parts = ["/", ".", "a", "b.c", "..", "//", "/./"];
            let path: String = (0..rng.below(7)).map(|_| *rng.pick(&parts)).collect();
            // Equal paths may differ in bytes, and the bytes are what a tree's hash is made of.
            let found = plain(Path::new(&path)).into_os_string();
            assert_eq!(
                found,
                taken_apart(Path::new(&path)).into_os_string(),
                "{path}"
            );
        }
    }
}
