//! Files in memory.

use seatrial_machine::{Disk, Mapped, Medium, Storage};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Takes a lock, whoever panicked while holding it: the data of this module is whole after every statement.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A [`Storage`] in memory, for tests and simulations: it does what real files do (an open file lives on when it is renamed
/// or removed, a file cannot be made in a folder that is not there, one lock per file), without faults, and everything at
/// once durable. A clone of it is another handle of the same files; [`MemoryStorage::files`] is a snapshot, which shares
/// bytes until one side writes them, so a thousand variants of a folder cost little.
///
/// Its downside: the first write to a file after a snapshot copies the file.
///
/// ```
/// use seatrial_machine::Storage;
/// use seatrial_sim::MemoryStorage;
/// use std::path::Path;
///
/// let storage = MemoryStorage::new();
/// let file = storage.create(Path::new("log"))?;
/// file.write_at(0, b"one")?;
/// let before = storage.files();
/// storage.rename(Path::new("log"), Path::new("old"))?;
/// file.write_at(3, b" two")?;
/// assert_eq!(storage.files().get("old"), Some(&b"one two"[..]));
/// assert_eq!(MemoryStorage::from_files(&before).list(Path::new(""))?, ["log"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    names: Arc<Mutex<Names>>,
    lends: bool,
}

/// What is where.
#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    folders: BTreeSet<PathBuf>,
    next_number: u64,
}

/// One file, with or without a name.
#[derive(Debug)]
struct MemoryFile {
    /// Counts the files of a storage in the order in which they were made; those of the beginning by path.
    number: u64,
    bytes: Mutex<Arc<Vec<u8>>>,
    is_locked: Mutex<bool>,
}

impl MemoryFile {
    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let end = start
            .checked_add(new.len())
            .ok_or(ErrorKind::FileTooLarge)?;
        let mut bytes = hold(&self.bytes);
        let bytes = Arc::make_mut(&mut bytes);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| ErrorKind::FileTooLarge)?;
        Arc::make_mut(&mut hold(&self.bytes)).resize(length, 0);
        Ok(())
    }

    /// The bytes as they are now.
    fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&hold(&self.bytes))
    }
}

impl Names {
    fn file(&self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        let file = self.files.get(&plain(path));
        Ok(Arc::clone(file.ok_or(ErrorKind::NotFound)?))
    }

    fn add(&mut self, path: PathBuf, bytes: Arc<Vec<u8>>) -> Arc<MemoryFile> {
        let file = Arc::new(MemoryFile {
            number: self.next_number,
            bytes: Mutex::new(bytes),
            is_locked: Mutex::new(false),
        });
        self.next_number += 1;
        self.files.insert(path, Arc::clone(&file));
        file
    }

    fn is_folder(&self, path: &Path) -> bool {
        is_top(path) || self.folders.contains(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        let path = plain(path);
        if self.files.contains_key(&path) || self.is_folder(&path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !self.is_folder(folder_of(&path)) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(self.add(path, Arc::default()))
    }
}

impl MemoryStorage {
    /// No files.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// These files.
    pub fn from_files(tree: &FileTree) -> MemoryStorage {
        let mut names = Names {
            folders: tree.folders.clone(),
            ..Names::default()
        };
        for (path, bytes) in &tree.files {
            names.add(path.clone(), Arc::clone(bytes));
        }
        MemoryStorage {
            names: Arc::new(Mutex::new(names)),
            lends: false,
        }
    }

    /// The same files, lent by [`Medium::map`]; without this a caller has to read.
    #[must_use]
    pub fn lending(mut self) -> MemoryStorage {
        self.lends = true;
        self
    }

    /// A snapshot of all files.
    pub fn files(&self) -> FileTree {
        let names = hold(&self.names);
        let files = names.files.iter();
        FileTree {
            files: files
                .map(|(path, file)| (path.clone(), file.bytes()))
                .collect(),
            folders: names.folders.clone(),
        }
    }

    /// The number of the file that has this name.
    pub(crate) fn number(&self, path: &Path) -> io::Result<u64> {
        Ok(hold(&self.names).file(path)?.number)
    }

    /// The folders of `path` that are not there, the highest first.
    pub(crate) fn missing_folders(&self, path: &Path) -> Vec<PathBuf> {
        let names = hold(&self.names);
        let path = plain(path);
        let missing = path.ancestors().filter(|folder| !names.is_folder(folder));
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        missing
    }

    fn medium(&self, file: Arc<MemoryFile>, is_writable: bool) -> Arc<dyn Medium> {
        Arc::new(MemoryMedium {
            file,
            is_writable,
            lends: self.lends,
        })
    }
}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = hold(&self.names).create(path)?;
        Ok(self.medium(file, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = hold(&self.names).file(path)?;
        Ok(self.medium(file, false))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = hold(&self.names).file(path)?;
        Ok(self.medium(file, true))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = hold(&self.names);
        let (from, to) = (plain(from), plain(to));
        if names.is_folder(&to) {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !names.is_folder(folder_of(&to)) {
            return Err(ErrorKind::NotFound.into());
        }
        let file = names.files.remove(&from).ok_or(ErrorKind::NotFound)?;
        names.files.insert(to, file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = hold(&self.names).files.remove(&plain(path));
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut names = hold(&self.names);
        let path = plain(path);
        for folder in path.ancestors() {
            if names.files.contains_key(folder) {
                return Err(ErrorKind::AlreadyExists.into());
            }
        }
        for folder in path.ancestors().filter(|folder| !is_top(folder)) {
            names.folders.insert(folder.to_owned());
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = hold(&self.names);
        let folder = plain(folder);
        if !names.is_folder(&folder) {
            return Err(ErrorKind::NotFound.into());
        }
        let all = names.files.keys().chain(&names.folders);
        let inside = all.filter(|path| path.parent() == Some(&folder));
        let texts = inside.filter_map(|path| path.file_name()?.to_str());
        let sorted: BTreeSet<String> = texts.map(str::to_owned).collect();
        Ok(sorted.into_iter().collect())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if hold(&self.names).is_folder(&plain(folder)) {
            return Ok(());
        }
        Err(ErrorKind::NotFound.into())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut names = hold(&self.names);
        let file = match names.file(path) {
            Ok(file) => file,
            Err(_) => names.create(path)?,
        };
        if std::mem::replace(&mut *hold(&file.is_locked), true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock(file)))
    }
}

/// A lock that is held.
struct Lock(Arc<MemoryFile>);

impl Drop for Lock {
    fn drop(&mut self) {
        *hold(&self.0.is_locked) = false;
    }
}

/// An open file.
#[derive(Debug)]
struct MemoryMedium {
    file: Arc<MemoryFile>,
    is_writable: bool,
    lends: bool,
}

impl MemoryMedium {
    fn writable(&self) -> io::Result<&MemoryFile> {
        if self.is_writable {
            return Ok(&self.file);
        }
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "opened for reading",
        ))
    }
}

impl Disk for MemoryMedium {
    fn len(&self) -> u64 {
        hold(&self.file.bytes).len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        hold(&self.file.bytes).read_at(offset, buffer)
    }
}

impl Medium for MemoryMedium {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable()?.write_at(offset, bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.writable()?.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        let lent = Lent {
            bytes: self.file.bytes(),
            length,
        };
        Ok(self.lends.then(|| Arc::new(lent) as Arc<dyn Mapped>))
    }
}

/// The bytes of a file as they were when they were lent.
#[derive(Debug)]
struct Lent {
    bytes: Arc<Vec<u8>>,
    length: u64,
}

impl Mapped for Lent {
    fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > self.length.min(self.bytes.len() as u64)) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(&self.bytes[offset as usize..][..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<T>(result: io::Result<T>) -> ErrorKind {
        result.err().expect("an error").kind()
    }

    #[test]
    fn names_are_as_strict_as_those_of_files() {
        let storage = MemoryStorage::new();
        let path = Path::new("/a/b/log");
        assert_eq!(kind(storage.create(path)), ErrorKind::NotFound);
        storage.create_folder(Path::new("/a/b")).unwrap();
        storage.create_folder(Path::new("/a")).unwrap();
        storage.create(path).unwrap();
        assert_eq!(kind(storage.create(path)), ErrorKind::AlreadyExists);
        assert_eq!(
            kind(storage.create_folder(&path.join("x"))),
            ErrorKind::AlreadyExists
        );
        assert_eq!(storage.list(Path::new("/a/")).unwrap(), ["b"]);
        assert_eq!(storage.list(Path::new("/a/./b")).unwrap(), ["log"]);
        for missing in ["/a/c", "b"] {
            let missing = Path::new(missing);
            assert_eq!(kind(storage.list(missing)), ErrorKind::NotFound);
            assert_eq!(kind(storage.open(missing)), ErrorKind::NotFound);
            assert_eq!(kind(storage.remove(missing)), ErrorKind::NotFound);
            assert_eq!(kind(storage.rename(missing, path)), ErrorKind::NotFound);
            assert_eq!(kind(storage.sync_folder(missing)), ErrorKind::NotFound);
            let inside = missing.join("log");
            assert_eq!(kind(storage.rename(path, &inside)), ErrorKind::NotFound);
        }
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let storage = MemoryStorage::new();
        let [a, b] = ["a", "b"].map(Path::new);
        let old = storage.create(a).unwrap();
        let new = storage.create(b).unwrap();
        new.write_at(2, b"new").unwrap();
        storage.rename(b, a).unwrap();
        old.write_at(0, b"old").unwrap();
        new.set_len(4).unwrap();
        assert_eq!((old.len(), new.len()), (3, 4));
        assert_eq!(storage.files().get("a"), Some(&b"\0\0ne"[..]));
        assert_eq!(storage.files().iter().count(), 1);
        let reader = storage.open(a).unwrap();
        assert_eq!(kind(reader.write_at(0, b"x")), ErrorKind::PermissionDenied);
        storage.remove(a).unwrap();
        new.write_at(4, b"!").unwrap();
        let mut bytes = [0; 5];
        reader.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0ne!");
        assert_eq!(
            kind(reader.read_at(1, &mut bytes)),
            ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_snapshot_stays_what_it_was() {
        let storage = MemoryStorage::new();
        let file = storage.create(Path::new("a")).unwrap();
        file.write_at(0, b"before").unwrap();
        let tree = storage.files();
        let copy = MemoryStorage::from_files(&tree);
        file.write_at(0, b"after!").unwrap();
        let other = copy.open_write(Path::new("a")).unwrap();
        other.write_at(6, b"?").unwrap();
        assert_eq!(tree.get("a"), Some(&b"before"[..]));
        assert_eq!(copy.files().get("a"), Some(&b"before?"[..]));
        assert_eq!(storage.files().get("./a"), Some(&b"after!"[..]));
    }

    #[test]
    fn one_holds_the_lock() {
        let storage = MemoryStorage::new();
        let path = Path::new("lock");
        let lock = storage.lock(path).unwrap();
        assert_eq!(kind(storage.clone().lock(path)), ErrorKind::WouldBlock);
        drop(lock);
        storage.lock(path).unwrap();
        assert_eq!(storage.list(Path::new("")).unwrap(), ["lock"]);
    }

    #[test]
    fn a_lending_storage_lends_what_is_there() {
        let storage = MemoryStorage::new();
        let file = storage.create(Path::new("a")).unwrap();
        file.write_at(0, b"0123456789").unwrap();
        assert!(file.map(10).unwrap().is_none());
        let file = storage.lending().open(Path::new("a")).unwrap();
        let lent = file.map(8).unwrap().expect("lent");
        assert_eq!(lent.bytes(3, 5).unwrap(), b"34567");
        assert_eq!(kind(lent.bytes(3, 6)), ErrorKind::UnexpectedEof);
        assert_eq!(kind(lent.bytes(u64::MAX, 2)), ErrorKind::UnexpectedEof);
    }
}
