//! Open files of the storage in memory.

use super::storage_state::Call;
use super::{Accesses, MemoryStorage, PlantedFault, hold};
use crate::crash::DiskOperation;
use crate::single_fault::Access;
use seatrial_machine::{Disk, Mapped, Medium};
use std::any::Any;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// One file, with or without a name.
#[derive(Debug)]
pub(super) struct MemoryFile {
    /// Number of the file in order of creation; files of the start are numbered by path.
    pub(super) number: u64,
    content: Mutex<Content>,
    is_locked: Mutex<bool>,
}

#[derive(Debug)]
struct Content {
    bytes: Arc<Vec<u8>>,
    /// Has unsynced changes.
    is_dirty: bool,
}

impl MemoryFile {
    pub(super) const fn new(number: u64, bytes: Arc<Vec<u8>>) -> MemoryFile {
        let is_dirty = false;
        MemoryFile {
            number,
            content: Mutex::new(Content { bytes, is_dirty }),
            is_locked: Mutex::new(false),
        }
    }

    /// The present bytes (a shared, copy-on-write handle).
    pub(super) fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&hold(&self.content).bytes)
    }

    fn write_at(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let end = start
            .checked_add(new.len())
            .ok_or(ErrorKind::FileTooLarge)?;
        let mut content = hold(&self.content);
        content.is_dirty = true;
        let bytes = Arc::make_mut(&mut content.bytes);
        if bytes.len() == start {
            bytes.extend_from_slice(new);
            return Ok(());
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| ErrorKind::FileTooLarge)?;
        let mut content = hold(&self.content);
        content.is_dirty = true;
        Arc::make_mut(&mut content.bytes).resize(length, 0);
        Ok(())
    }

    /// Flips bits of one byte; no effect past the end.
    pub(super) fn flip(&self, place: usize, bits: u8) {
        let mut content = hold(&self.content);
        if place < content.bytes.len() {
            Arc::make_mut(&mut content.bytes)[place] ^= bits;
        }
    }

    /// Locks the file until the returned guard is dropped; `WouldBlock` if it is locked.
    pub(super) fn lock(self: Arc<Self>) -> io::Result<Box<dyn Any + Send + Sync>> {
        if std::mem::replace(&mut *hold(&self.is_locked), true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(FileLock(self)))
    }
}

/// A held lock.
struct FileLock(Arc<MemoryFile>);

impl Drop for FileLock {
    fn drop(&mut self) {
        *hold(&self.0.is_locked) = false;
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct MemoryMedium {
    pub(super) file: Arc<MemoryFile>,
    /// The name under which it was opened.
    pub(super) path: PathBuf,
    pub(super) is_writable: bool,
    pub(super) storage: MemoryStorage,
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

    /// The planted fault that an access to these bytes meets, and the range of its block.
    fn meet(&self, access: Access, range: Range<u64>) -> Option<(&PlantedFault, Range<u64>)> {
        let accesses = self.storage.accesses.as_ref()?;
        accesses.meet(&self.path, access, range)
    }

    fn call(&self, access: Access) -> io::Result<()> {
        match &self.storage.accesses {
            Some(accesses) => accesses.call(&self.path, access),
            None => Ok(()),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.writable()?;
        let mut state = self.storage.disk.enter(Call::Write)?;
        let fits = state.take_room(bytes.len());
        file.write_at(offset, &bytes[..fits])?;
        if fits > 0 {
            let path = state.watch.name_of(&self.path);
            state.watch.note(|| DiskOperation::Write {
                path,
                file: file.number,
                offset,
                bytes: bytes[..fits].into(),
            });
        }
        if fits < bytes.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for MemoryMedium {
    fn len(&self) -> u64 {
        hold(&self.file.content).bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let met = self.meet(Access::Read, range);
        if let Some((plan, _)) = met.as_ref().filter(|(plan, _)| plan.fault.is_error()) {
            return Err(plan.fault.error());
        }
        drop(self.storage.disk.enter(Call::Read)?);
        hold(&self.file.content).bytes.read_at(offset, buffer)?;
        if let Some((plan, block)) = met {
            plan.spoil(&block, offset, buffer);
        }
        Ok(())
    }
}

impl Medium for MemoryMedium {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        if let Some((plan, block)) = self.meet(Access::Write, range) {
            if plan.fault.is_error() {
                let arrives = block.start.saturating_sub(offset) as usize;
                self.write(offset, &bytes[..arrives])?;
                return Err(plan.fault.error());
            }
            let mut spoiled = bytes.to_vec();
            plan.spoil(&block, offset, &mut spoiled);
            return self.write(offset, &spoiled);
        }
        self.write(offset, bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.call(Access::SetLength)?;
        let file = self.writable()?;
        let mut state = self.storage.disk.enter(Call::Write)?;
        let before = self.len();
        file.set_len(length)?;
        if length != before {
            let path = state.watch.name_of(&self.path);
            state.watch.note(|| DiskOperation::SetLength {
                path,
                file: file.number,
                length,
            });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Access::Sync)?;
        let is_dirty = hold(&self.file.content).is_dirty;
        let call = if is_dirty {
            Call::SyncBytes
        } else {
            Call::Sync
        };
        let mut state = self.storage.disk.enter(call)?;
        hold(&self.file.content).is_dirty = false;
        let path = state.watch.name_of(&self.path);
        state.watch.note(|| DiskOperation::Sync {
            path,
            file: self.file.number,
        });
        Ok(())
    }

    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        if !self.storage.lends {
            return Ok(None);
        }
        drop(self.storage.disk.enter(Call::Read)?);
        let bytes = self.file.bytes();
        let spoiled = self.spoiled(&bytes, length);
        Ok(Some(Arc::new(Lent {
            bytes: spoiled.map_or(bytes, Arc::new),
            length,
            path: self.path.clone(),
            accesses: self.storage.accesses.clone(),
        })))
    }
}

impl MemoryMedium {
    /// A copy of the mapped bytes with the planted fault in them. Mapped memory may be read again after it was checked, so a
    /// corruption is there from the first access on, or not at all. Errors come at any access.
    fn spoiled(&self, bytes: &[u8], length: u64) -> Option<Vec<u8>> {
        let accesses = self.storage.accesses.as_ref()?;
        let plan = accesses.plan().filter(|plan| {
            let is_here = plan.site.path == self.path && plan.site.access == Access::Read;
            is_here && plan.turn == 0 && !plan.fault.is_error()
        })?;
        let block = accesses.block(plan.site.block);
        let length = length.min(bytes.len() as u64) as usize;
        let mut spoiled = bytes.to_vec();
        if block.start < length as u64 {
            plan.spoil(&block, 0, &mut spoiled[..length]);
        }
        Some(spoiled)
    }
}

/// A mapped file: its bytes at the time of the call.
#[derive(Debug)]
struct Lent {
    bytes: Arc<Vec<u8>>,
    length: u64,
    path: PathBuf,
    accesses: Option<Arc<Accesses>>,
}

impl Mapped for Lent {
    fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = offset.checked_add(length as u64);
        let is_there = end.is_some_and(|end| end <= self.length.min(self.bytes.len() as u64));
        let Some(end) = end.filter(|_| is_there) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        if let Some(accesses) = &self.accesses
            && let Some((plan, _)) = accesses.meet(&self.path, Access::Read, offset..end)
            && plan.fault.is_error()
        {
            return Err(plan.fault.error());
        }
        Ok(&self.bytes[offset as usize..][..length])
    }
}
