//! Connections of attackers: they say what they like.

use super::process::PATIENCE;
use seatrial_host::{ClientOpening, Protocol, SecretKey};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Connects; nothing is said.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Connects and opens.
pub(crate) fn open(
    address: SocketAddr,
    protocol: Protocol,
    key: Option<SecretKey>,
) -> io::Result<TcpStream> {
    let stream = connect(address)?;
    let mut opening = ClientOpening::new(protocol, key).map_err(io::Error::other)?;
    let mut message = opening.message().to_vec();
    loop {
        send(&stream, &message)?;
        let answer = receive(&stream)?;
        match opening.step(&answer).map_err(io::Error::other)? {
            Some(next) => message = next,
            None => return Ok(stream),
        }
    }
}

pub(crate) fn send(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let mut bytes = (message.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(message);
    stream.write_all(&bytes)
}

pub(crate) fn receive(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let mut message = vec![0; u32::from_le_bytes(prefix) as usize];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Claims a message of `length` and sends as much of `there` bytes as is taken in a moment.
pub(crate) fn send_half(mut stream: &TcpStream, length: usize, there: usize) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(20)))?;
    stream.write_all(&(length as u32).to_le_bytes())?;
    let piece = [7; 16 << 10];
    let mut left = there;
    while left > 0 {
        match stream.write(&piece[..left.min(piece.len())]) {
            Ok(count) if count > 0 => left -= count,
            _ => break,
        }
    }
    Ok(())
}

/// Reads one byte a second from each, as long as `is_on`.
fn read_slowly(streams: &[TcpStream], is_on: impl Fn() -> bool) {
    for stream in streams {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
    }
    while is_on() {
        for mut stream in streams {
            let _ = stream.read(&mut [0; 1]); // nothing is there, or it was closed
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Four seconds of connections that read slowly, and of floods of new ones.
pub(crate) fn pester(address: SocketAddr, slow: &[TcpStream]) {
    let until = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        let is_on = || Instant::now() < until;
        scope.spawn(move || read_slowly(slow, is_on));
        scope.spawn(move || {
            while is_on() {
                let flood = (0..500).filter_map(|_| connect(address).ok());
                drop(flood.collect::<Vec<TcpStream>>());
            }
        });
    });
}
