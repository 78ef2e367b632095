//! Long reads past the page cache, the next ones ahead.

use crate::direct_file::{AlignedBuffer, LENGTH_MAX};
use seatrial_machine::DIRECT_UNIT;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Reads a file in parts of a MiB; while the caller works on one, a thread reads the next. The system does the same for reads
/// through its cache, whose pages a log that is read once would only fill.
///
/// Memory: two parts. A part is as the file was when it was read: a writer of the file calls [`DirectReads::forget`].
#[derive(Debug, Default)]
pub(crate) struct DirectReads {
    present: AheadPart,
    ahead: Option<(u64, JoinHandle<io::Result<AheadPart>>)>,
}

/// Bytes of a file.
#[derive(Debug, Default)]
struct AheadPart {
    start: u64,
    length: usize,
    memory: AlignedBuffer,
}

impl AheadPart {
    /// Reads the part at `start`, shorter at the end of the file.
    fn read(file: &File, start: u64, mut memory: AlignedBuffer) -> io::Result<AheadPart> {
        let length = file.read_at(memory.bytes(LENGTH_MAX), start)?;
        Ok(AheadPart {
            start,
            length,
            memory,
        })
    }

    /// Does it have the byte at this offset?
    fn has(&self, offset: u64) -> bool {
        (self.start..self.start + self.length as u64).contains(&offset)
    }
}

impl DirectReads {
    /// Fills `bytes` from `offset` on. False: the file has fewer.
    pub(crate) fn read(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<bool> {
        let mut filled = 0;
        while filled < bytes.len() {
            let at = offset + filled as u64;
            if !self.present.has(at) {
                self.step(file, at)?;
            }
            if !self.present.has(at) {
                return Ok(false);
            }
            let from = (at - self.present.start) as usize;
            let count = (self.present.length - from).min(bytes.len() - filled);
            let held = &self.present.memory.bytes(LENGTH_MAX)[from..from + count];
            bytes[filled..filled + count].copy_from_slice(held);
            filled += count;
        }
        Ok(true)
    }

    /// Drops what was read.
    pub(crate) fn forget(&mut self) {
        self.present.length = 0;
        self.ahead = None;
    }

    /// Makes the part with this offset the present one, and begins to read the one after it.
    fn step(&mut self, file: &Arc<File>, offset: u64) -> io::Result<()> {
        let start = offset - offset % DIRECT_UNIT as u64;
        let memory = std::mem::take(&mut self.present).memory;
        let ahead = self.ahead.take().filter(|ahead| ahead.0 == start);
        let spare = if let Some(Ok(part)) = ahead.map(|(_, thread)| thread.join()) {
            self.present = part?;
            memory
        } else {
            // It was not begun, or the thread panicked.
            self.present = AheadPart::read(file, start, memory)?;
            AlignedBuffer::default()
        };
        if self.present.length == LENGTH_MAX {
            let (file, next) = (Arc::clone(file), start + LENGTH_MAX as u64);
            let thread = thread::Builder::new().name("read ahead".into());
            let begun = thread.spawn(move || AheadPart::read(&file, next, spare));
            self.ahead = begun.ok().map(|thread| (next, thread));
        }
        Ok(())
    }
}
