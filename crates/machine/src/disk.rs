//! Read access to durable bytes.

use std::io;

/// Durable bytes as a machine may read them: an immutable prefix of a log, a file. Writes are [`Output::Append`]; reads of
/// durable bytes are plain calls. Implemented by real files, simulated disks and byte slices.
///
/// [`Output::Append`]: crate::Output::Append
pub trait Disk {
    /// Number of readable bytes.
    fn len(&self) -> u64;

    /// Is there nothing to read?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset` on; `UnexpectedEof` if there are fewer bytes.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Disk for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

impl Disk for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}

impl<D: Disk + ?Sized> Disk for &D {
    fn len(&self) -> u64 {
        D::len(self)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        D::read_at(self, offset, buffer)
    }
}
