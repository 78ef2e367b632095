//! Read-ahead over a disk.

use seatrial_machine::Disk;
use std::io;

/// Bytes read ahead at a time.
const READ_AHEAD: usize = 256 << 10;

/// The bytes of a disk around the place that is being read: one read of 256 KiB serves many small blocks, and a block
/// longer than that is read whole. Never asks for more than the disk holds.
pub(crate) struct Window<'a> {
    disk: &'a dyn Disk,
    length: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(crate) fn new(disk: &'a dyn Disk) -> Window<'a> {
        Window {
            disk,
            length: disk.len(),
            start: 0,
            bytes: Vec::new(),
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
        let end = offset + length as u64;
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            self.fill(offset, length)?;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + length])
    }

    /// Moves the window to `offset`, keeping what it already holds from there on.
    fn fill(&mut self, offset: u64, length: usize) -> io::Result<()> {
        let wanted = self.there(offset, length.max(READ_AHEAD) as u64) as usize;
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
        let read = self
            .disk
            .read_at(offset + kept as u64, &mut self.bytes[kept..]);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}
