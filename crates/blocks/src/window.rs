//! Read-ahead over a disk, in a single buffer.

use seatrial_machine::Disk;
use std::io;

/// Bytes read ahead at a time.
const READ_AHEAD: usize = 256 << 10;

/// A buffer of the bytes after the last read: one read of 256 KiB serves many small blocks, and a block longer than that
/// is read whole. The buffer never shrinks, so it is as long as the longest block read.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// Longer than what was read, where a longer block was read before: bytes are made zero once, not before each read.
    buffer: Vec<u8>,
    /// How many of the buffer's bytes are of the disk.
    length: usize,
    /// Offset of the buffer's first byte.
    start: u64,
}

impl ReadAhead {
    /// The `length` bytes at `offset`, which must be on the disk; read if they are not in the buffer. Reads ahead no
    /// further than `there`, the length of the disk.
    pub fn read(
        &mut self,
        disk: &dyn Disk,
        offset: u64,
        length: usize,
        there: u64,
    ) -> io::Result<&[u8]> {
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.length as u64 {
            let ahead = there.saturating_sub(offset).min(READ_AHEAD as u64) as usize;
            self.fill(disk, offset, length.max(ahead))?;
        }
        let at = (offset - self.start) as usize;
        assert!(at + length <= self.length, "the bytes are in the buffer");
        Ok(&self.buffer[at..at + length])
    }

    /// Drops buffered bytes from `offset` on, so that they are read again.
    pub fn forget(&mut self, offset: u64) {
        let kept = offset.saturating_sub(self.start);
        self.length = self.length.min(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// Moves the buffer to the `wanted` bytes at `offset`, keeping those that it already has.
    fn fill(&mut self, disk: &dyn Disk, offset: u64, wanted: usize) -> io::Result<()> {
        let held = self.start..self.start + self.length as u64;
        let kept = if held.contains(&offset) {
            let at = (offset - self.start) as usize;
            self.buffer.copy_within(at..self.length, 0);
            (self.length - at).min(wanted)
        } else {
            0
        };
        self.start = offset;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let read = disk.read_at(offset + kept as u64, &mut self.buffer[kept..wanted]);
        // After a failed read the new bytes are undefined: keep none, so that they are read again.
        self.length = if read.is_ok() { wanted } else { 0 };
        read
    }
}

/// A disk with the length that it had when the window was made, read with read-ahead. The fixed length keeps one
/// walk consistent while a writer appends.
pub struct Window<'a> {
    disk: &'a dyn Disk,
    length: u64,
    pub(crate) ahead: ReadAhead,
}

impl<'a> Window<'a> {
    /// A window on this disk; reads nothing yet.
    pub fn new(disk: &'a dyn Disk) -> Window<'a> {
        Window {
            disk,
            length: disk.len(),
            ahead: ReadAhead::default(),
        }
    }

    /// Bytes of the disk when the window was made.
    pub fn disk_length(&self) -> u64 {
        self.length
    }

    /// How many of the `length` bytes at `offset` the disk has.
    pub fn available(&self, offset: u64, length: u64) -> u64 {
        length.min(self.length.saturating_sub(offset))
    }

    /// The `length` bytes at `offset`, which must be on the disk ([`Window::available`]).
    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        self.ahead.read(self.disk, offset, length, self.length)
    }
}
