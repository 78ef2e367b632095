//! A recording disk: its operations and the program's acknowledgements, as a trace.

use crate::simulated_storage::{FileTree, MemoryStorage, hold};
use seatrial_machine::Storage;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// One change of a storage, or a sync. Failed calls are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// A file got its first name.
    Create {
        /// The name.
        path: PathBuf,
        /// The file's number, counted in the order of creation. It stays when the file is renamed.
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

impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskOperation::Create { path, .. } => write!(f, "create of {}", path.display()),
            DiskOperation::Write {
                path,
                offset,
                bytes,
                ..
            } => {
                let (length, offset) = (grouped(bytes.len() as u64), grouped(*offset));
                let path = path.display();
                write!(f, "write of {length} bytes at {offset} to {path}")
            }
            DiskOperation::SetLength { path, length, .. } => {
                let length = grouped(*length);
                write!(f, "new length of {}, {length}", path.display())
            }
            DiskOperation::Sync { path, .. } => write!(f, "sync of {}", path.display()),
            DiskOperation::Rename { from, to, .. } => {
                write!(f, "rename of {} to {}", from.display(), to.display())
            }
            DiskOperation::Remove { path, .. } => write!(f, "remove of {}", path.display()),
            DiskOperation::CreateFolder { path } => {
                write!(f, "create of folder {}", path.display())
            }
            DiskOperation::SyncFolder { path } => {
                write!(f, "sync of folder \"{}\"", path.display())
            }
        }
    }
}

/// The disk operations of one run, and what the program acknowledged between them.
#[derive(Clone, Debug)]
pub struct DiskTrace<P> {
    /// The durable files at the beginning.
    pub(super) start: FileTree,
    pub(super) operations: Vec<DiskOperation>,
    pub(super) acknowledgements: Vec<P>,
    /// For each acknowledgement the number of operations before it, ascending.
    pub(super) acknowledged_after: Vec<usize>,
}

impl<P> DiskTrace<P> {
    /// The operations, in the order in which they took effect.
    pub fn operations(&self) -> &[DiskOperation] {
        &self.operations
    }

    /// The acknowledgements, in order.
    pub fn acknowledged(&self) -> &[P] {
        &self.acknowledgements
    }

    /// The same trace with only the operations for which `keeps(number, operation)` is true: as if the program had not called
    /// the others. Meant for syncs, whose absence a program does not notice: it plants the bug that a test must find.
    #[must_use]
    pub fn retain(mut self, mut keeps: impl FnMut(usize, &DiskOperation) -> bool) -> DiskTrace<P> {
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
        for after in &mut self.acknowledged_after {
            *after = kept_before[*after];
        }
        self
    }

    /// The same trace after `change(number, operation)` of every operation: as if the program had written other bytes.
    #[must_use]
    pub fn change(mut self, mut change: impl FnMut(usize, &mut DiskOperation)) -> DiskTrace<P> {
        for (number, operation) in self.operations.iter_mut().enumerate() {
            change(number, operation);
        }
        self
    }

    /// Inserts an acknowledgement made after `after` operations, following the ones that are already there.
    pub fn acknowledge(&mut self, after: usize, value: P) {
        let place = self.acknowledged_by(after);
        self.acknowledgements.insert(place, value);
        self.acknowledged_after.insert(place, after);
    }

    /// The same trace with the operations in `range` moved past the `count` operations that follow them, and past the
    /// acknowledgements among those: as if the program had made these calls in another order.
    #[must_use]
    pub fn delay(mut self, range: Range<usize>, count: usize) -> DiskTrace<P> {
        let end = (range.end + count).min(self.operations.len());
        self.operations[range.start..end].rotate_left(range.len());
        for after in &mut self.acknowledged_after {
            if (range.end..=end).contains(after) {
                *after -= range.len();
            }
        }
        self
    }

    /// Number of acknowledgements made before the operation that follows the first `point` operations.
    pub(super) fn acknowledged_by(&self, point: usize) -> usize {
        self.acknowledged_after
            .partition_point(|&after| after <= point)
    }
}

/// Provides a [`Storage`] in memory and records a [`DiskTrace`] of its operations. `P` is what the program acknowledges to its
/// users ("message 17 is durable"); it may also record what a program has begun. Its downside: the trace holds every byte that
/// is written, so it suits runs of some thousand operations.
#[derive(Debug)]
pub struct DiskRecorder<P> {
    start: FileTree,
    memory: MemoryStorage,
    acknowledgements: Mutex<(Vec<P>, Vec<usize>)>,
}

impl<P> Default for DiskRecorder<P> {
    fn default() -> DiskRecorder<P> {
        DiskRecorder::over(&FileTree::default())
    }
}

impl<P> DiskRecorder<P> {
    /// Begins with no files.
    pub fn new() -> DiskRecorder<P> {
        DiskRecorder::default()
    }

    /// Begins with these files, all durable.
    pub fn over(start: &FileTree) -> DiskRecorder<P> {
        DiskRecorder {
            start: start.clone(),
            memory: MemoryStorage::recording(start),
            acknowledgements: Mutex::new((Vec::new(), Vec::new())),
        }
    }

    /// The same, with files that [`Medium::map`](seatrial_machine::Medium::map) can map.
    #[must_use]
    pub fn lending(mut self) -> DiskRecorder<P> {
        self.memory = self.memory.lending();
        self
    }

    /// The storage for the program under test.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.memory.clone())
    }

    /// Records an acknowledgement: from here on its data must survive every crash.
    pub fn acknowledge(&self, value: P) {
        let mut acknowledgements = hold(&self.acknowledgements);
        let after = self.memory.operations_len();
        acknowledgements.0.push(value);
        acknowledgements.1.push(after);
    }

    /// The trace so far.
    pub fn trace(&self) -> DiskTrace<P>
    where
        P: Clone,
    {
        let acknowledgements = hold(&self.acknowledgements);
        DiskTrace {
            start: self.start.clone(),
            operations: self.memory.operations(),
            acknowledgements: acknowledgements.0.clone(),
            acknowledged_after: acknowledgements.1.clone(),
        }
    }
}
