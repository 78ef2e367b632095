//! The parent of a clone: an export of an NBD server, most often a snapshot of another volume.

use crate::nbd_client::{ClientCommand, NbdClient};
use crate::nbd_server::NbdAddress;
use seatrial_volume::{BlockSpan, ParentVolume};
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time limit of each answer of the parent. Its reader is a thread that encrypts as well.
const PATIENCE: Duration = Duration::from_secs(3);

/// An export that is read with one connection, made when it is needed and made again after an error.
pub(crate) struct ParentExport {
    address: NbdAddress,
    name: String,
    /// Bytes of the clone; a longer parent is refused.
    bytes_max: u64,
    client: Mutex<Option<NbdClient>>,
}

impl fmt::Debug for ParentExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.address)
    }
}

impl ParentExport {
    pub(crate) fn new((address, name): (NbdAddress, String), bytes_max: u64) -> ParentExport {
        ParentExport {
            address,
            name,
            bytes_max,
            client: Mutex::default(),
        }
    }

    fn connect(&self) -> io::Result<NbdClient> {
        let client = NbdClient::connect_to(&self.address, &self.name, PATIENCE)?;
        if client.bytes > self.bytes_max {
            let (bytes, most) = (client.bytes, self.bytes_max);
            let text = format!("it has {bytes} bytes, more than the {most} of the clone");
            return Err(io::Error::other(text));
        }
        Ok(client)
    }

    fn read_with(client: &mut NbdClient, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let there = client.bytes.saturating_sub(offset).min(length as u64) as usize;
        if there > 0 {
            client.add(ClientCommand::Read, 0, offset, there as u32, &[]);
            client.send()?;
            client.reply()?;
            client.data(&mut bytes[..there])?;
        }
        Ok(bytes)
    }
}

impl ParentVolume for ParentExport {
    fn read(&self, span: BlockSpan, block_length: u32) -> Result<Vec<u8>, String> {
        // The bytes under the lock are replaced after every error, so a poisoned lock is harmless.
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = span.first.0 * u64::from(block_length);
        let length = span.count as usize * block_length as usize;
        let client = match kept.take() {
            Some(client) => Ok(client),
            None => self.connect(),
        };
        let read = client.and_then(|mut client| {
            let bytes = ParentExport::read_with(&mut client, offset, length)?;
            *kept = Some(client);
            Ok(bytes)
        });
        read.map_err(|error| format!("the parent {self:?}: {error}"))
    }
}
