//! Messages as anybody may write them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than anything here takes, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn send(mut stream: &TcpStream, message: &[u8]) {
    let mut bytes = (message.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(message);
    stream.write_all(&bytes).unwrap();
}

pub(crate) fn receive(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let mut message = vec![0; u32::from_le_bytes(prefix) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}
