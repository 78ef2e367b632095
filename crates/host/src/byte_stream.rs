//! The bytes of a connection, plain or through TLS: two halves of a socket that are polled, or tried when it is ready.

use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, Connection, Error};
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Bytes that are encrypted at a time, when all before are written: one TLS record.
const RECORD_LENGTH: usize = 16 << 10;
/// Time for which the rest of a refused connection is read. Closing with unread bytes would make the kernel reset the connection
/// and drop the alert that says why.
const LINGER: Duration = Duration::from_millis(500);

/// The state of TLS, which both halves share. Reading and writing lock it for the time of a system call and a record's
/// encryption; both halves are tasks of one thread, so they do not wait.
///
/// With its ciphertext it holds at most the bytes of one read, a record that is not complete (or 64 KiB of a handshake's), one
/// that is not taken and one that is not written: 80 KiB with its keys.
pub(crate) struct TlsSession(Mutex<Connection>);

/// Bytes from the socket that rustls has not taken. It reads 4 KiB at a time, which would be several system calls for a record.
struct Ciphertext {
    bytes: Box<[u8]>,
    unread: Range<usize>,
}

/// The side of TLS that reads.
struct TlsReader {
    session: Arc<TlsSession>,
    arrived: Ciphertext,
}

/// The reading half of a connection.
pub(crate) struct ReadSide {
    socket: OwnedReadHalf,
    tls: Option<TlsReader>,
}

/// The writing half of a connection.
pub(crate) struct WriteSide {
    socket: OwnedWriteHalf,
    tls: Option<Arc<TlsSession>>,
}

/// Splits a socket; with `tls`, its bytes are those of that connection.
pub(crate) fn split(stream: TcpStream, tls: Option<Connection>) -> (ReadSide, WriteSide) {
    let tls = tls.map(|mut connection| {
        connection.set_buffer_limit(Some(RECORD_LENGTH));
        Arc::new(TlsSession(Mutex::new(connection)))
    });
    let (reading, writing) = stream.into_split();
    let read = ReadSide {
        socket: reading,
        tls: tls.clone().map(|session| TlsReader {
            session,
            arrived: Ciphertext {
                bytes: vec![0; RECORD_LENGTH].into(),
                unread: 0..0,
            },
        }),
    };
    let write = WriteSide {
        socket: writing,
        tls,
    };
    (read, write)
}

impl Ciphertext {
    /// Replaces the bytes, all of which are taken, by those that `read` brings. False at the end of the stream.
    fn refill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        debug_assert!(self.unread.is_empty(), "{:?}", self.unread);
        self.unread = 0..read(&mut self.bytes)?;
        Ok(!self.unread.is_empty())
    }
}

impl io::Read for Ciphertext {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.unread.len().min(bytes.len());
        let piece = self.unread.start..self.unread.start + count;
        bytes[..count].copy_from_slice(&self.bytes[piece]);
        self.unread.start += count;
        Ok(count)
    }
}

/// A socket to which rustls writes without waiting.
struct ReadySocket<'a>(&'a TcpStream);

impl io::Write for ReadySocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl TlsSession {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic of rustls would leave a connection that no one uses: its task has ended.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the other side's certificate have this DNS name?
    pub(crate) fn is_peer(&self, name: &str) -> bool {
        let connection = self.lock();
        let first = connection.peer_certificates().and_then(<[_]>::first);
        first.is_some_and(|it: &CertificateDer<'_>| crate::tls::is_for(it, name))
    }

    /// Writes what is encrypted. `WouldBlock`: not all of it.
    fn flush(connection: &mut Connection, socket: &TcpStream) -> io::Result<()> {
        while connection.wants_write() {
            if connection.write_tls(&mut ReadySocket(socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Takes in some of the bytes that have arrived, of which there are some.
    fn take_in(
        connection: &mut Connection,
        arrived: &mut Ciphertext,
        socket: &TcpStream,
    ) -> io::Result<()> {
        connection.read_tls(arrived)?;
        let processed = connection.process_new_packets();
        // Replies of the protocol itself are short, and an alert says why: what the socket does not take, the other half or the
        // next call writes.
        let flushed = TlsSession::flush(connection, socket);
        processed.map_err(|error| tls_error(connection, &error))?;
        if flushed.is_err() && !would_block(&flushed) {
            flushed?;
        }
        Ok(())
    }

    /// Encrypts and writes bytes, when all before are written. Returns the number that it has taken.
    fn write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.lock();
        TlsSession::flush(&mut connection, socket)?;
        let length = bytes.len().min(RECORD_LENGTH);
        let count = connection.writer().write(&bytes[..length])?;
        let flushed = TlsSession::flush(&mut connection, socket);
        if flushed.is_err() && !would_block(&flushed) {
            flushed?;
        }
        Ok(count)
    }
}

impl TlsReader {
    /// Reads bytes; none at the end of the stream. An end without the alert `close_notify` counts as one: a killed process sends
    /// none, and messages have lengths.
    fn read(&mut self, socket: &mut OwnedReadHalf, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let mut connection = self.session.lock();
        let before = buffer.filled().len();
        loop {
            let mut reader = connection.reader();
            // Not by its `read`, which needs initialized bytes: a buffer may be long, and most of it empty.
            match reader.fill_buf() {
                Ok(plain) => {
                    let count = plain.len().min(buffer.remaining());
                    buffer.put_slice(&plain[..count]);
                    reader.consume(count);
                    if count == 0 || buffer.remaining() == 0 {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if buffer.filled().len() > before => return Ok(()),
                Err(_) => {}
            }
            // All plaintext is taken, so rustls has room for a record.
            let arrived = &mut self.arrived;
            if arrived.unread.is_empty() && !arrived.refill(|bytes| read_ready(socket, bytes))? {
                return Ok(());
            }
            TlsSession::take_in(&mut connection, arrived, socket.as_ref())?;
        }
    }
}

/// Reads what is there, without waiting. A read of less than the buffer ends the readiness of the socket, unlike `try_read`,
/// after which only a second system call would find that nothing is left. The waker does nothing: the caller waits with
/// [`ReadSide::readable`].
fn read_ready(socket: &mut OwnedReadHalf, bytes: &mut [u8]) -> io::Result<usize> {
    let mut buffer = ReadBuf::new(bytes);
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(socket).poll_read(&mut context, &mut buffer) {
        Poll::Ready(read) => read.map(|()| buffer.filled().len()),
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl ReadSide {
    /// The state of TLS.
    pub(crate) fn tls(&self) -> Option<Arc<TlsSession>> {
        self.tls.as_ref().map(|tls| Arc::clone(&tls.session))
    }

    /// Waits until there is something to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            // Bytes that have arrived and were not taken: the socket may stay silent.
            let mut connection = tls.session.lock();
            let state = connection.process_new_packets();
            let has_plaintext = !matches!(state, Ok(state) if state.plaintext_bytes_to_read() == 0);
            if has_plaintext || !tls.arrived.unread.is_empty() {
                return Ok(());
            }
        }
        self.socket.readable().await
    }

    /// Reads what is there, without waiting; pending if there is nothing.
    pub(crate) fn read_ready(&mut self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(tls) = &mut self.tls else {
            let mut context = Context::from_waker(Waker::noop());
            return Pin::new(&mut self.socket).poll_read(&mut context, buffer);
        };
        let read = tls.read(&mut self.socket, buffer);
        if would_block(&read) {
            return Poll::Pending;
        }
        Poll::Ready(read)
    }

    /// Runs the handshake, if there is one. The caller bounds its time.
    pub(crate) async fn shake_hands(&mut self) -> io::Result<()> {
        let Some(TlsReader { session, arrived }) = &mut self.tls else {
            return Ok(());
        };
        let socket: &TcpStream = self.socket.as_ref();
        loop {
            let (wants_write, is_done) = {
                let connection = session.lock();
                (connection.wants_write(), !connection.is_handshaking())
            };
            let stepped = if wants_write {
                socket.writable().await?;
                TlsSession::flush(&mut session.lock(), socket).map(|()| true)
            } else if is_done {
                return Ok(());
            } else if arrived.unread.is_empty() {
                socket.readable().await?;
                arrived.refill(|bytes| socket.try_read(bytes))
            } else {
                TlsSession::take_in(&mut session.lock(), arrived, socket).map(|()| true)
            };
            match stepped {
                Ok(true) => {}
                Ok(false) => return Err(no_handshake(&session.lock())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(no_handshake(&session.lock()));
                }
                Err(error) => {
                    self.linger().await;
                    return Err(error);
                }
            }
        }
    }

    /// Reads and drops what comes, until the other side has read its alert and closes.
    async fn linger(&self) {
        let rest = async {
            let mut bytes = [0; 512];
            while self.socket.readable().await.is_ok() {
                let read = self.socket.try_read(&mut bytes);
                if !would_block(&read) && !matches!(read, Ok(1..)) {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

impl AsyncRead for ReadSide {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        loop {
            if let Poll::Ready(done) = self.read_ready(buffer) {
                return Poll::Ready(done);
            }
            let socket: &TcpStream = self.socket.as_ref();
            ready!(socket.poll_read_ready(context))?;
        }
    }
}

impl WriteSide {
    /// Waits until something can be written.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Writes what the socket takes, without waiting. `WouldBlock`: nothing.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write(bytes),
            Some(tls) => tls.write(self.socket.as_ref(), bytes),
        }
    }

    /// The same with several pieces, of which TLS takes one at a time.
    pub(crate) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.tls, pieces.first()) {
            (None, _) => self.socket.try_write_vectored(pieces),
            (Some(_), Some(first)) => self.try_write(first),
            (Some(_), None) => Ok(0),
        }
    }

    /// Is it without TLS?
    pub(crate) const fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Are bytes encrypted that the socket has not taken?
    pub(crate) fn has_unsent(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.lock().wants_write())
    }

    /// Writes them, without waiting. `WouldBlock`: not all of them.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => TlsSession::flush(&mut tls.lock(), self.socket.as_ref()),
        }
    }
}

impl AsyncWrite for WriteSide {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        self.is_plain()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        }
        loop {
            let written = self.try_write_vectored(pieces);
            if !would_block(&written) {
                return Poll::Ready(written);
            }
            let socket: &TcpStream = self.socket.as_ref();
            ready!(socket.poll_write_ready(context))?;
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tls.is_none() {
            return Pin::new(&mut self.socket).poll_flush(context);
        }
        loop {
            let flushed = self.try_flush();
            if !would_block(&flushed) {
                return Poll::Ready(flushed);
            }
            let socket: &TcpStream = self.socket.as_ref();
            ready!(socket.poll_write_ready(context))?;
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// The error of a connection that ended before the handshake was done.
fn no_handshake(connection: &Connection) -> io::Error {
    let text = match connection {
        Connection::Client(_) => {
            "the server closed the connection during the TLS handshake; it may be one without TLS"
        }
        Connection::Server(_) => "it closed the connection during the TLS handshake",
    };
    io::Error::new(io::ErrorKind::ConnectionAborted, text)
}

/// The kind of an error after which a retry is pointless.
const REFUSED: io::ErrorKind = io::ErrorKind::PermissionDenied;

/// An error of TLS in the words of this side.
fn tls_error(connection: &Connection, error: &Error) -> io::Error {
    let is_client = matches!(connection, Connection::Client(_));
    let it = if is_client {
        "the server"
    } else {
        "the client"
    };
    let text = match error {
        Error::InvalidMessage(_) if is_client => format!("{it} does not speak TLS"),
        Error::InvalidMessage(_) => {
            format!("{it} does not speak TLS, which this server demands (--tls-cert)")
        }
        Error::NoCertificatesPresented => format!("{it} has no certificate (--tls-cert)"),
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("{it}'s certificate is not signed by this side's authority (--tls-ca)")
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("{it}'s certificate has expired"),
        Error::InvalidCertificate(reason) => format!("{it}'s certificate is refused: {reason}"),
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => format!(
                "{it} refused the certificate of this side: it is not signed by its authority (--tls-cert, --tls-ca)"
            ),
            AlertDescription::CertificateExpired => {
                format!("{it} refused the certificate of this side: it has expired (--tls-cert)")
            }
            AlertDescription::CertificateRequired => {
                format!("{it} demands a certificate (--tls-cert, --tls-key)")
            }
            alert => format!("{it} refused the connection: TLS alert {alert:?}"),
        },
        error => format!("TLS: {error}"),
    };
    io::Error::new(REFUSED, text)
}
