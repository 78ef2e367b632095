//! Sequential reading of a log or file in bounded memory.

use crate::Disk;
use std::io::{self, Read};

/// Bytes per read of the disk.
const BUFFER_LENGTH: usize = 256 << 10;

/// Reads a [`Disk`] forward through one buffer of 256 KiB, whatever its length.
#[derive(Debug)]
pub struct Stream<'a, D: Disk + ?Sized> {
    disk: &'a D,
    /// Position of the next byte to read from the disk, and of the end.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned already.
    taken: usize,
}

impl<'a, D: Disk + ?Sized> Stream<'a, D> {
    /// Reads from a position to the present end of the disk.
    pub fn new(disk: &'a D, from: u64) -> Stream<'a, D> {
        Stream {
            disk,
            next: from,
            end: disk.len().max(from),
            buffer: Vec::new(),
            taken: 0,
        }
    }

    /// Position of the next byte returned.
    pub fn position(&self) -> u64 {
        self.next - (self.buffer.len() - self.taken) as u64
    }
}

impl<D: Disk + ?Sized> Read for Stream<'_, D> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            let length = (self.end - self.next).min(BUFFER_LENGTH as u64) as usize;
            // Emptied first: after an error no bytes of an earlier read are returned.
            self.taken = 0;
            self.buffer.clear();
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(length, 0);
            if length > 0 {
                self.disk.read_at(self.next, &mut buffer)?;
            }
            self.buffer = buffer;
            self.next += length as u64;
        }
        let count = bytes.len().min(self.buffer.len() - self.taken);
        bytes[..count].copy_from_slice(&self.buffer[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_every_byte_once_and_holds_one_buffer() {
        let bytes: Vec<u8> = (0..600_000_u32).map(|it| (it % 251) as u8).collect();
        let mut stream = Stream::new(&bytes, 7);
        let (mut read, mut piece) = (Vec::new(), [0; 1_000]);
        loop {
            assert_eq!(stream.position(), 7 + read.len() as u64);
            let count = stream.read(&mut piece).unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&piece[..count]);
            assert!(stream.buffer.capacity() <= BUFFER_LENGTH);
        }
        assert_eq!(read, bytes[7..]);
        assert_eq!(Stream::new(&bytes, 600_001).read(&mut piece).unwrap(), 0);
    }
}
