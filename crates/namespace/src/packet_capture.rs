//! The file of packets (`network.pcap`).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file in the format of libpcap, with every packet as it was sent, before the faults of links. It ends with the packet that
/// reaches its limit; an error of the disk ends it too, and never a test.
#[derive(Debug)]
pub(crate) struct PacketCapture {
    file: Option<BufWriter<File>>,
    /// Bytes that may still be written.
    room: u64,
}

/// Nanosecond times, little-endian fields.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Frames of Ethernet.
const ETHERNET: u32 = 1;
/// Longest frame: a segment that has not been divided.
const LENGTH_MAX: u32 = 256 * 1024;

impl PacketCapture {
    /// A capture that writes nothing.
    pub(crate) fn none() -> PacketCapture {
        PacketCapture {
            file: None,
            room: 0,
        }
    }

    /// Creates the file, which will have at most `limit` bytes.
    pub(crate) fn create(path: &Path, limit: u64) -> io::Result<PacketCapture> {
        let mut file = BufWriter::with_capacity(256 * 1024, File::create(path)?);
        let mut header = Vec::new();
        header.extend(MAGIC.to_le_bytes());
        header.extend(2_u16.to_le_bytes());
        header.extend(4_u16.to_le_bytes());
        header.extend([0; 8]); // UTC, accuracy
        header.extend(LENGTH_MAX.to_le_bytes());
        header.extend(ETHERNET.to_le_bytes());
        file.write_all(&header)?;
        file.flush()?;
        Ok(PacketCapture {
            file: Some(file),
            room: limit.saturating_sub(header.len() as u64),
        })
    }

    /// Appends a frame.
    pub(crate) fn write(&mut self, frame: &[u8]) {
        let Some(file) = &mut self.file else {
            return;
        };
        let record = 16 + frame.len() as u64;
        if record > self.room {
            self.end();
            return;
        }
        self.room -= record;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let length = (frame.len() as u32).to_le_bytes();
        let mut header = [0; 16];
        header[..4].copy_from_slice(&(now.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&now.subsec_nanos().to_le_bytes());
        header[8..12].copy_from_slice(&length);
        header[12..].copy_from_slice(&length);
        let written = file.write_all(&header).and_then(|()| file.write_all(frame));
        if written.is_err() {
            self.file = None;
        }
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self) {
        if let Some(file) = &mut self.file
            && file.flush().is_err()
        {
            self.file = None;
        }
    }

    /// Ends the file.
    fn end(&mut self) {
        self.flush();
        self.file = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_whole_packets_and_a_bounded_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network.pcap");
        let mut capture = PacketCapture::create(&path, 200).unwrap();
        for _ in 0..10 {
            capture.write(&[7; 60]);
        }
        capture.flush();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 24 + 2 * 76);
        assert_eq!(bytes[..4], MAGIC.to_le_bytes());
        assert_eq!(bytes[24 + 8..24 + 12], 60_u32.to_le_bytes());
        assert_eq!(bytes[24 + 16..24 + 76], [7; 60]);
    }
}
