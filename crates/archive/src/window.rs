//! Read-ahead over a disk.

use seatrial_machine::Disk;
use std::io;

/// Bytes read ahead at a time.
const READ_AHEAD: usize = 256 << 10;

/// Bytes around the place that is being read: one read of 256 KiB serves many small blocks, and a block longer than that
/// is read whole.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    bytes: Vec<u8>,
    /// The offset of the first one.
    start: u64,
}

impl ReadAhead {
    /// The `length` bytes at `offset`, which the caller knows to be there, read if need be. Never asks for more than the
    /// `there` bytes that the disk holds in all.
    pub(crate) fn read(
        &mut self,
        disk: &dyn Disk,
        offset: u64,
        length: usize,
        there: u64,
    ) -> io::Result<&[u8]> {
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let ahead = there.saturating_sub(offset).min(READ_AHEAD as u64) as usize;
            self.fill(disk, offset, length.max(ahead))?;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + length])
    }

    /// Forgets what was read from `offset` on.
    pub(crate) fn forget(&mut self, offset: u64) {
        let kept = offset.saturating_sub(self.start);
        self.bytes
            .truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// Moves to the `wanted` bytes at `offset`, keeping what is already held of them.
    fn fill(&mut self, disk: &dyn Disk, offset: u64, wanted: usize) -> io::Result<()> {
        let held = self.start..self.start + self.bytes.len() as u64;
        let kept = if held.contains(&offset) {
            let at = (offset - self.start) as usize;
            self.bytes.copy_within(at.., 0);
            (self.bytes.len() - at).min(wanted)
        } else {
            0
        };
        self.start = offset;
        self.bytes.resize(wanted, 0);
        let read = disk.read_at(offset + kept as u64, &mut self.bytes[kept..]);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

/// A disk of the length that it had when the window was made, read with read-ahead.
pub(crate) struct Window<'a> {
    disk: &'a dyn Disk,
    length: u64,
    ahead: ReadAhead,
}

impl<'a> Window<'a> {
    pub(crate) fn new(disk: &'a dyn Disk) -> Window<'a> {
        Window {
            disk,
            length: disk.len(),
            ahead: ReadAhead::default(),
        }
    }

    /// Bytes of the disk when the window was made.
    pub(crate) fn disk_length(&self) -> u64 {
        self.length
    }

    /// How much of `length` bytes from `offset` on the disk holds.
    pub(crate) fn there(&self, offset: u64, length: u64) -> u64 {
        length.min(self.length.saturating_sub(offset))
    }

    /// The `length` bytes at `offset`, which the caller knows to be there.
    pub(crate) fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        self.ahead.read(self.disk, offset, length, self.length)
    }
}
