//! Framing of arbitrary byte streams.

use seatrial_host::{ClientOpening, Protocol, SecretKey};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than anything here takes, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const PROTOCOL: Protocol = Protocol {
    name: "test",
    version: 3,
    refuse_old: |_| None,
};

/// Opens a connection as a client; an error when the server does not want it.
pub(crate) fn open(stream: &TcpStream, key: Option<SecretKey>) -> io::Result<()> {
    let mut opening = ClientOpening::new(PROTOCOL, key).map_err(io::Error::other)?;
    let mut message = opening.message().to_vec();
    loop {
        send(stream, &message);
        let answer = receive(stream)?;
        match opening.step(&answer).map_err(io::Error::other)? {
            Some(next) => message = next,
            None => return Ok(()),
        }
    }
}

/// Lets a client in, as a server without a key does.
pub(crate) fn welcome(stream: &TcpStream) {
    let mut message = receive(stream).unwrap()[..24].to_vec();
    message[9] = 3;
    send(stream, &message);
}

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
