//! One connection of an NBD client.

use crate::nbd_server::SharedServer;
use seatrial_nbd::{
    ConnectionNumber, HEADER_LENGTH, NbdHandshake, NbdHeader, NbdProgress, NbdReply, NbdRequest,
    NbdSession, OPTION_LENGTH_MAX,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};

/// Bytes that one system call reads at most, unless they are a payload.
const READ_LENGTH: usize = 128 << 10;
/// Data of a reply up to this length is copied next to other replies; longer data is written from where it is.
const COPY_MAX: usize = 16 << 10;
/// Maximum number of pieces of one system call.
const PIECES_MAX: usize = 64;

const _: () = assert!(READ_LENGTH > OPTION_LENGTH_MAX + 16, "an option fits");

/// The replies that one connection has not written.
///
/// The volume pushes, the connection's writer takes everything at once.
pub(crate) struct ReplyQueue {
    unwritten: Mutex<UnwrittenReplies>,
    changed: Notify,
    /// One permit for each byte that the connection may have in flight.
    memory: Semaphore,
    memory_max: usize,
}

#[derive(Default)]
struct UnwrittenReplies {
    pieces: VecDeque<Vec<u8>>,
    /// Replies and the memory that they hold.
    places: usize,
    memory: usize,
    is_closed: bool,
}

impl ReplyQueue {
    pub(crate) fn new(memory_max: usize) -> ReplyQueue {
        ReplyQueue {
            unwritten: Mutex::default(),
            changed: Notify::new(),
            memory: Semaphore::new(memory_max),
            memory_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnwrittenReplies> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a reply; false: the connection has ended.
    pub(crate) fn push(&self, reply: NbdReply) -> bool {
        let mut unwritten = self.lock();
        if unwritten.is_closed {
            return false;
        }
        unwritten.places += 1;
        unwritten.memory += reply.memory;
        let NbdReply { head, payload, .. } = reply;
        let is_short = payload.len() <= COPY_MAX;
        // Long data is not moved for what follows it.
        let gathers = |last: &Vec<u8>| last.len() + head.len() <= last.capacity().max(COPY_MAX);
        if !unwritten.pieces.back().is_some_and(gathers) {
            unwritten.pieces.push_back(Vec::new());
        }
        if let Some(last) = unwritten.pieces.back_mut() {
            last.extend_from_slice(&head);
            if is_short {
                last.extend_from_slice(&payload);
            }
        }
        if !is_short {
            unwritten.pieces.push_back(payload);
        }
        drop(unwritten);
        self.changed.notify_one();
        true
    }

    /// All that is queued.
    fn take(&self) -> UnwrittenReplies {
        let mut unwritten = self.lock();
        let is_closed = unwritten.is_closed;
        let empty = UnwrittenReplies {
            is_closed,
            ..UnwrittenReplies::default()
        };
        std::mem::replace(&mut *unwritten, empty)
    }

    /// Drops all replies, also later ones. Returns the places and the memory that they held.
    pub(crate) fn close(&self) -> (usize, usize) {
        self.lock().is_closed = true;
        let dropped = self.take();
        (dropped.places, dropped.memory)
    }
}

/// Serves a client until it disconnects. An error says why the server ends the connection.
pub(crate) async fn run(
    shared: &SharedServer,
    number: ConnectionNumber,
    queue: &ReplyQueue,
    reading: impl AsyncRead + Unpin,
    mut writing: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut reader = RequestReader {
        stream: reading,
        buffer: Vec::new(),
        start: 0,
    };
    let patience = shared.limits.handshake_patience;
    let handshake = handshake(shared, &mut reader, &mut writing);
    let session = tokio::time::timeout(patience, handshake).await;
    let session = session.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "it did not finish the handshake in time",
        )
    })?;
    let Some(session) = session? else {
        return Ok(());
    };
    tokio::select! {
        ended = read_requests(shared, number, queue, &session, &mut reader) => ended,
        ended = write_replies(shared, queue, writing) => ended,
    }
}

/// Agrees on what follows; `None`: the client has left.
async fn handshake<R: AsyncRead + Unpin>(
    shared: &SharedServer,
    reader: &mut RequestReader<R>,
    writing: &mut (impl AsyncWrite + Unpin),
) -> io::Result<Option<NbdSession>> {
    writing.write_all(&NbdHandshake::greeting()).await?;
    let mut handshake = NbdHandshake::new(shared.exports().await);
    let mut out = Vec::new();
    loop {
        if !reader.fill().await? {
            return Ok(None);
        }
        let stepped = handshake.step(reader.unread(), &mut out);
        // A client that fails is sent the replies to what it did before.
        let written = writing.write_all(&out).await;
        out.clear();
        let (consumed, progress) =
            stepped.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        written?;
        reader.start += consumed;
        match progress {
            NbdProgress::Wait => {}
            NbdProgress::Begin(session) => return Ok(Some(session)),
            NbdProgress::End => return Ok(None),
        }
    }
}

/// Reads requests until the client disconnects.
async fn read_requests<R: AsyncRead + Unpin>(
    shared: &SharedServer,
    number: ConnectionNumber,
    queue: &ReplyQueue,
    session: &NbdSession,
    reader: &mut RequestReader<R>,
) -> io::Result<()> {
    loop {
        let Some(bytes) = reader.header().await? else {
            return Ok(());
        };
        let header = NbdHeader::decode(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if header.is_disconnect() {
            return Ok(());
        }
        let checked = header.check(session);
        // A refused request needs no memory, and its payload is skipped.
        let memory = checked.map_or(0, |_| header.memory()).min(queue.memory_max);
        let held = Held::take(shared, queue, memory).await?;
        let length = header.payload_length();
        let payload = if checked.is_ok() {
            reader.payload(length as usize).await?
        } else {
            reader.skip(length).await?;
            Vec::new()
        };
        held.keep();
        shared.begin(number, session, NbdRequest { header, payload });
    }
}

/// A place and memory that are freed if the request does not begin.
struct Held<'a> {
    shared: &'a SharedServer,
    memory: usize,
}

impl<'a> Held<'a> {
    async fn take(
        shared: &'a SharedServer,
        queue: &ReplyQueue,
        memory: usize,
    ) -> io::Result<Held<'a>> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let own = queue.memory.acquire_many(memory as u32).await;
        let own = own.map_err(closed)?;
        let place = shared.places.acquire().await.map_err(closed)?;
        let all = shared.memory.acquire_many(memory as u32).await;
        all.map_err(closed)?.forget();
        place.forget();
        own.forget();
        Ok(Held { shared, memory })
    }

    /// The reply frees them.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.free(1, self.memory);
    }
}

/// Writes replies for ever, all that have gathered at a time.
async fn write_replies(
    shared: &SharedServer,
    queue: &ReplyQueue,
    mut writing: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    loop {
        let mut taken = queue.take();
        if taken.places == 0 {
            queue.changed.notified().await;
            continue;
        }
        let held = WrittenReplies {
            shared,
            queue,
            places: taken.places,
            memory: taken.memory,
        };
        write_pieces(&mut writing, &mut taken.pieces).await?;
        drop(held);
    }
}

/// Frees places and memory when the replies are written, and also if the connection ends before.
struct WrittenReplies<'a> {
    shared: &'a SharedServer,
    queue: &'a ReplyQueue,
    places: usize,
    memory: usize,
}

impl Drop for WrittenReplies<'_> {
    fn drop(&mut self) {
        self.queue.memory.add_permits(self.memory);
        self.shared.free(self.places, self.memory);
    }
}

async fn write_pieces(
    writing: &mut (impl AsyncWrite + Unpin),
    pieces: &mut VecDeque<Vec<u8>>,
) -> io::Result<()> {
    let mut start = 0; // bytes of the first piece that are written
    while !pieces.is_empty() {
        let mut slices = Vec::with_capacity(pieces.len().min(PIECES_MAX));
        for (place, piece) in pieces.iter().take(PIECES_MAX).enumerate() {
            let start = if place == 0 { start } else { 0 };
            slices.push(IoSlice::new(&piece[start..]));
        }
        let written = writing.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        start += written;
        while let Some(piece) = pieces.front()
            && piece.len() <= start
        {
            start -= piece.len();
            pieces.pop_front();
        }
    }
    Ok(())
}

/// Reads requests from a stream through a buffer; a payload goes past it.
struct RequestReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were used already.
    start: usize,
}

impl<R: AsyncRead + Unpin> RequestReader<R> {
    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads more; false at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer
            .reserve(READ_LENGTH.saturating_sub(self.buffer.len()));
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// The next header; `None`: the client has left between two requests.
    async fn header(&mut self) -> io::Result<Option<[u8; HEADER_LENGTH]>> {
        loop {
            if let Some(header) = self.unread().first_chunk() {
                let header = *header;
                self.start += HEADER_LENGTH;
                return Ok(Some(header));
            }
            if !self.fill().await? {
                let is_between = self.unread().is_empty();
                return if is_between {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// The next `length` bytes, whose memory is taken.
    async fn payload(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut payload = Vec::with_capacity(length);
        let there = self.unread().len().min(length);
        payload.extend_from_slice(&self.buffer[self.start..self.start + there]);
        self.start += there;
        while payload.len() < length {
            let left = (length - payload.len()) as u64;
            let mut rest = (&mut self.stream).take(left);
            if rest.read_buf(&mut payload).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(payload)
    }

    async fn skip(&mut self, length: u32) -> io::Result<()> {
        let mut left = length as usize;
        loop {
            let there = self.unread().len().min(left);
            self.start += there;
            left -= there;
            if left == 0 {
                return Ok(());
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
