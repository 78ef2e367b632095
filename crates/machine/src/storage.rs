//! Storage: files as cores see them, with an explicit call for each durability guarantee.

use crate::Disk;
use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Offsets and lengths of direct writes are multiples of this many bytes: a sector, the unit in which a disk tears a write.
pub const DIRECT_UNIT: usize = 512;

/// Writes of a file that go past the system's caches: no copy into pages, and none to write back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectWrites {
    /// None.
    #[default]
    Never,
    /// Those whose offset and length are multiples of [`DIRECT_UNIT`].
    WholeUnits,
    /// Of long ones all but the first and the last bytes. What was written with short ones can then be read from the caches.
    Long,
}

/// Files and folders, narrow enough for a simulated disk to stand in for the real ones. Everything that a crash-safe
/// program relies on is a call of its own, so that a missing one can be found:
///
/// - Bytes written, and a file's length, are durable once [`Medium::sync`] of that file has returned.
/// - A name (created, renamed, removed) is durable once [`Storage::sync_folder`] of its folder has returned.
/// - What was not synced may survive whole, in part or not at all, in any combination (`docs/formats/block.md`, "What is
///   assumed of media").
/// - A failed sync says nothing about the medium: the caller gives the file up and recovers.
///
/// Real files: `seatrial_files::Files`. Simulated ones, with faults and a crash at every point:
/// `seatrial_sim`. Its downside: every call is blocking, so a machine makes them in jobs.
pub trait Storage: Debug + Send + Sync {
    /// Creates a file that must not exist (`AlreadyExists`), for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>>;

    /// Opens a file for reading; it may be written by others meanwhile.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>>;

    /// Opens a file as [`Storage::open`] does, to read pieces that are far from each other: the system reads nothing ahead.
    fn open_scattered(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.open(path)
    }

    /// Opens a file for reading and writing.
    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>>;

    /// Opens a file as [`Storage::open_write`] does, to write and read it past the system's caches where it can do that: these
    /// writes, and long reads. All others go through the caches.
    fn open_direct(&self, path: &Path, _: DirectWrites) -> io::Result<Arc<dyn Medium>> {
        self.open_write(path)
    }

    /// Renames a file; an existing file of the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Open handles of it stay readable.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a folder and its missing parents; no error if it exists.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted. Names that are not UTF-8 are omitted.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Locks a file, creating it if it is missing, until the returned guard is dropped or the process ends; `WouldBlock` if it
    /// is locked.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
}

/// One open file. [`Disk::len`] is its length now, also when another handle or process has changed it.
pub trait Medium: Disk + Debug + Send + Sync {
    /// Writes all of `bytes` from `offset` on; the file grows if they end past its end.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes all of these bytes, one after the other from `offset` on, as [`Medium::write_at`] does. After an error any of them
    /// may be written.
    fn write_all_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut at = offset;
        for &part in parts {
            self.write_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable. A failure is final.
    fn sync(&self) -> io::Result<()>;

    /// Maps the first `length` bytes without copying them; `None` if the storage cannot, and the caller has to read.
    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        let _ = length;
        Ok(None)
    }
}

/// Bytes of a mapped file.
pub trait Mapped: Debug + Send + Sync {
    /// The `length` bytes from `offset` on. They are brought into memory first, so that an error of the medium is returned here
    /// and is not a signal later.
    fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]>;
}
