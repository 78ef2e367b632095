//! A storage that keeps what was done to it.

use crate::storage::{FileTree, MemoryStorage, hold, plain};
use seatrial_machine::{Disk, Mapped, Medium, Storage};
use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One change of a storage, or a sync. Calls that failed are not in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file got its first name.
    Create {
        /// The name.
        path: PathBuf,
        /// The file, counted in the order of creation: it keeps this number when it is renamed.
        file: u64,
    },
    /// Bytes were written.
    Write {
        /// The name under which the file was opened.
        path: PathBuf,
        /// The file.
        file: u64,
        /// Where the first byte went.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// The file was cut or lengthened.
    SetLength {
        /// The name under which the file was opened.
        path: PathBuf,
        /// The file.
        file: u64,
        /// Its length from then on, in bytes.
        length: u64,
    },
    /// The bytes and the length of a file became durable.
    Sync {
        /// The name under which the file was opened.
        path: PathBuf,
        /// The file.
        file: u64,
    },
    /// A file got another name, in place of the file that had it.
    Rename {
        /// The name before.
        from: PathBuf,
        /// The name after.
        to: PathBuf,
        /// The file.
        file: u64,
    },
    /// A file lost its name.
    Remove {
        /// The name.
        path: PathBuf,
        /// The file.
        file: u64,
    },
    /// A folder was made; its own name is in the folder above.
    CreateFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The names in a folder became durable.
    SyncFolder {
        /// The folder.
        path: PathBuf,
    },
}

/// A number with commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Create { path, .. } => write!(f, "create of {}", path.display()),
            Operation::Write {
                path,
                offset,
                bytes,
                ..
            } => {
                let (length, offset) = (grouped(bytes.len() as u64), grouped(*offset));
                let path = path.display();
                write!(f, "write of {length} bytes at {offset} to {path}")
            }
            Operation::SetLength { path, length, .. } => {
                let length = grouped(*length);
                write!(f, "new length of {}, {length}", path.display())
            }
            Operation::Sync { path, .. } => write!(f, "sync of {}", path.display()),
            Operation::Rename { from, to, .. } => {
                write!(f, "rename of {} to {}", from.display(), to.display())
            }
            Operation::Remove { path, .. } => write!(f, "remove of {}", path.display()),
            Operation::CreateFolder { path } => write!(f, "create of folder {}", path.display()),
            Operation::SyncFolder { path } => write!(f, "sync of folder \"{}\"", path.display()),
        }
    }
}

/// What a program did to its storage, and what it promised on the way.
#[derive(Clone, Debug)]
pub struct Trace<P> {
    /// What was there, durable, in the beginning.
    pub(super) start: FileTree,
    pub(super) operations: Vec<Operation>,
    pub(super) promises: Vec<P>,
    /// For each promise the number of operations before it.
    pub(super) promised_after: Vec<usize>,
}

impl<P> Trace<P> {
    /// The operations, in the order in which they took effect.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The promises, in order.
    pub fn promises(&self) -> &[P] {
        &self.promises
    }

    /// The same trace with only those operations that `keeps` says, told their numbers: as if the program had not called the
    /// others. To be used for syncs, whose absence a program does not notice: it plants the bug that a test has to find.
    #[must_use]
    pub fn retain(mut self, mut keeps: impl FnMut(usize, &Operation) -> bool) -> Trace<P> {
        let mut kept_before = Vec::with_capacity(self.operations.len() + 1);
        let (mut kept, mut number) = (0, 0);
        self.operations.retain(|operation| {
            let keeps = keeps(number, operation);
            kept_before.push(kept);
            kept += usize::from(keeps);
            number += 1;
            keeps
        });
        kept_before.push(kept);
        for after in &mut self.promised_after {
            *after = kept_before[*after];
        }
        self
    }

    /// The same trace with every operation as `change` makes it, told its number: as if the program had written other bytes.
    #[must_use]
    pub fn change(mut self, mut change: impl FnMut(usize, &mut Operation)) -> Trace<P> {
        for (number, operation) in self.operations.iter_mut().enumerate() {
            change(number, operation);
        }
        self
    }

    /// Adds a promise that is in force after so many operations, behind those that are there.
    pub fn promise(&mut self, after: usize, promise: P) {
        let place = self.promised_by(after);
        self.promises.insert(place, promise);
        self.promised_after.insert(place, after);
    }

    /// The same trace with the operations in `range` moved behind the `count` operations that follow them, and behind the
    /// promises that follow those: as if the program had made these calls in another order.
    #[must_use]
    pub fn delay(mut self, range: Range<usize>, count: usize) -> Trace<P> {
        let end = (range.end + count).min(self.operations.len());
        self.operations[range.start..end].rotate_left(range.len());
        for after in &mut self.promised_after {
            if (range.end..=end).contains(after) {
                *after -= range.len();
            }
        }
        self
    }

    /// How many promises were made before the operation after `point` operations.
    pub(super) fn promised_by(&self, point: usize) -> usize {
        self.promised_after.partition_point(|&after| after <= point)
    }
}

/// Gives out a [`Storage`] in memory and keeps a [`Trace`] of what is done to it. `P` is what the program promises its
/// users on the way ("message 17 is durable"); it may as well be used for what a program has begun. Its downside: the
/// trace holds every byte that is written, so it is for runs of some thousand operations.
#[derive(Debug)]
pub struct Recorder<P> {
    start: FileTree,
    memory: MemoryStorage,
    operations: Arc<Mutex<Vec<Operation>>>,
    promises: Mutex<(Vec<P>, Vec<usize>)>,
}

impl<P> Default for Recorder<P> {
    fn default() -> Recorder<P> {
        Recorder::over(&FileTree::default())
    }
}

impl<P> Recorder<P> {
    /// Begins with no files.
    pub fn new() -> Recorder<P> {
        Recorder::default()
    }

    /// Begins with these files, all durable.
    pub fn over(start: &FileTree) -> Recorder<P> {
        Recorder {
            start: start.clone(),
            memory: MemoryStorage::from_files(start),
            operations: Arc::default(),
            promises: Mutex::new((Vec::new(), Vec::new())),
        }
    }

    /// The same, with files that are lent by [`Medium::map`].
    #[must_use]
    pub fn lending(mut self) -> Recorder<P> {
        self.memory = self.memory.lending();
        self
    }

    /// The storage for the program under test.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(RecordingStorage {
            memory: self.memory.clone(),
            operations: Arc::clone(&self.operations),
        })
    }

    /// Marks that the program has promised something: it holds after every crash from here on.
    pub fn promise(&self, promise: P) {
        let after = hold(&self.operations).len();
        let mut promises = hold(&self.promises);
        promises.0.push(promise);
        promises.1.push(after);
    }

    /// What was done so far.
    pub fn trace(&self) -> Trace<P>
    where
        P: Clone,
    {
        let promises = hold(&self.promises);
        Trace {
            start: self.start.clone(),
            operations: hold(&self.operations).clone(),
            promises: promises.0.clone(),
            promised_after: promises.1.clone(),
        }
    }
}

type Operations = Arc<Mutex<Vec<Operation>>>;

/// The storage of a recorder.
#[derive(Debug)]
struct RecordingStorage {
    memory: MemoryStorage,
    operations: Operations,
}

impl RecordingStorage {
    fn medium(&self, inner: Arc<dyn Medium>, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Ok(Arc::new(RecordingMedium {
            inner,
            path: plain(path),
            file: self.memory.number(path)?,
            operations: Arc::clone(&self.operations),
        }))
    }
}

impl Storage for RecordingStorage {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let mut operations = hold(&self.operations);
        let inner = self.memory.create(path)?;
        operations.push(Operation::Create {
            path: plain(path),
            file: self.memory.number(path)?,
        });
        self.medium(inner, path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.medium(self.memory.open(path)?, path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.medium(self.memory.open_write(path)?, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        let file = self.memory.number(from)?;
        self.memory.rename(from, to)?;
        operations.push(Operation::Rename {
            from: plain(from),
            to: plain(to),
            file,
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        let file = self.memory.number(path)?;
        self.memory.remove(path)?;
        operations.push(Operation::Remove {
            path: plain(path),
            file,
        });
        Ok(())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        let missing = self.memory.missing_folders(path);
        self.memory.create_folder(path)?;
        let made = missing
            .into_iter()
            .map(|path| Operation::CreateFolder { path });
        operations.extend(made);
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.memory.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        self.memory.sync_folder(folder)?;
        operations.push(Operation::SyncFolder {
            path: plain(folder),
        });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut operations = hold(&self.operations);
        let is_new = self.memory.number(path).is_err();
        let lock = self.memory.lock(path)?;
        if is_new {
            operations.push(Operation::Create {
                path: plain(path),
                file: self.memory.number(path)?,
            });
        }
        Ok(lock)
    }
}

/// An open file of a recorder.
#[derive(Debug)]
struct RecordingMedium {
    inner: Arc<dyn Medium>,
    path: PathBuf,
    file: u64,
    operations: Operations,
}

impl Disk for RecordingMedium {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)
    }
}

impl Medium for RecordingMedium {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        self.inner.write_at(offset, bytes)?;
        if !bytes.is_empty() {
            operations.push(Operation::Write {
                path: self.path.clone(),
                file: self.file,
                offset,
                bytes: bytes.into(),
            });
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        let before = self.inner.len();
        self.inner.set_len(length)?;
        if length != before {
            operations.push(Operation::SetLength {
                path: self.path.clone(),
                file: self.file,
                length,
            });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut operations = hold(&self.operations);
        self.inner.sync()?;
        operations.push(Operation::Sync {
            path: self.path.clone(),
            file: self.file,
        });
        Ok(())
    }

    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        self.inner.map(length)
    }
}
