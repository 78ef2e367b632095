//! A client of an NBD server, for measurements and parents: requests and replies on a blocking socket.

use crate::nbd_server::NbdAddress;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to an export.
///
/// The caller sends requests and receives replies in the order in which the server has them; a reply names its request by the
/// cookie. Simple replies only. A caller that has both many long reads and many long writes under way may wait for a server that
/// waits for it.
pub(crate) struct NbdClient {
    stream: ClientStream,
    /// Bytes of the export.
    pub(crate) bytes: u64,
    pub(crate) is_read_only: bool,
    /// Reused: what is sent with one system call.
    sending: Vec<u8>,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCommand {
    Read,
    Write,
    Flush,
}

enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for ClientStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.read(buffer),
            ClientStream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.write(bytes),
            ClientStream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server that does not answer a measurement for this long is gone.
const PATIENCE: Duration = Duration::from_mins(1);
/// The greeting of a server with the fixed newstyle, up to its flags.
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
/// Flags of the client: fixed newstyle, no zeros after the export's flags.
const CLIENT_FLAGS: [u8; 4] = [0, 0, 0, 3];
/// The option EXPORT_NAME, before the length of the name.
const EXPORT_NAME: &[u8; 12] = b"IHAVEOPT\0\0\0\x01";
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Bit of the export's flags.
const READ_ONLY: u16 = 1 << 1;

impl NbdClient {
    /// Connects to the default export.
    pub(crate) fn connect(address: &NbdAddress) -> io::Result<NbdClient> {
        NbdClient::connect_to(address, "", PATIENCE)
    }

    /// Connects to the export of this name; a server that does not answer for as long as `patience` is gone.
    pub(crate) fn connect_to(
        address: &NbdAddress,
        export: &str,
        patience: Duration,
    ) -> io::Result<NbdClient> {
        let mut stream = match address {
            NbdAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                ClientStream::Tcp(stream)
            }
            NbdAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                ClientStream::Unix(stream)
            }
        };
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if !greeting.starts_with(GREETING) {
            return Err(io::Error::other("this is no NBD server"));
        }
        let length = (export.len() as u32).to_be_bytes();
        let option = [&CLIENT_FLAGS[..], EXPORT_NAME, &length, export.as_bytes()];
        stream.write_all(&option.concat())?;
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes)?;
        let mut flags = [0; 2];
        stream.read_exact(&mut flags)?;
        Ok(NbdClient {
            stream,
            bytes: u64::from_be_bytes(bytes),
            is_read_only: u16::from_be_bytes(flags) & READ_ONLY != 0,
            sending: Vec::new(),
        })
    }

    /// Adds a request to those that [`NbdClient::send`] sends.
    pub(crate) fn add(
        &mut self,
        command: ClientCommand,
        cookie: u64,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) {
        let kind: u32 = match command {
            ClientCommand::Read => 0,
            ClientCommand::Write => 1,
            ClientCommand::Flush => 3,
        };
        debug_assert!(payload.is_empty() || payload.len() == length as usize);
        self.sending.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        self.sending.extend_from_slice(&kind.to_be_bytes());
        self.sending.extend_from_slice(&cookie.to_be_bytes());
        self.sending.extend_from_slice(&offset.to_be_bytes());
        self.sending.extend_from_slice(&length.to_be_bytes());
        self.sending.extend_from_slice(payload);
    }

    /// Sends the requests that were added.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.sending);
        self.sending.clear();
        sent
    }

    /// Receives the cookie of the next reply. The data of a read follow: the caller receives them.
    pub(crate) fn reply(&mut self) -> io::Result<u64> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != REPLY_MAGIC {
            return Err(io::Error::other("this is no reply of an NBD server"));
        }
        if word(4) != 0 {
            return Err(io::Error::from_raw_os_error(word(4) as i32));
        }
        Ok(u64::from(word(8)) << 32 | u64::from(word(12)))
    }

    /// Receives the data of a read.
    pub(crate) fn data(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(buffer)
    }

    /// Makes everything durable that was written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.add(ClientCommand::Flush, 0, 0, 0, &[]);
        self.send()?;
        self.reply().map(|_| ())
    }
}
