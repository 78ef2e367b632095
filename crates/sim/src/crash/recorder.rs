//! A storage that keeps what was done to it.

use crate::storage::{FileTree, MemoryStorage, hold};
use seatrial_machine::Storage;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
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
            memory: MemoryStorage::recording(start),
            promises: Mutex::new((Vec::new(), Vec::new())),
        }
    }

    /// The same, with files that are lent by [`Medium::map`](seatrial_machine::Medium::map).
    #[must_use]
    pub fn lending(mut self) -> Recorder<P> {
        self.memory = self.memory.lending();
        self
    }

    /// The storage for the program under test.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.memory.clone())
    }

    /// Marks that the program has promised something: it holds after every crash from here on.
    pub fn promise(&self, promise: P) {
        let mut promises = hold(&self.promises);
        let after = self.memory.operations_len();
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
            operations: self.memory.operations(),
            promises: promises.0.clone(),
            promised_after: promises.1.clone(),
        }
    }
}
