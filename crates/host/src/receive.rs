//! The reading half of a server's connection.

use crate::budget::{Budget, MemoryShare, Rank, Turn};
use crate::byte_stream::ReadSide;
use crate::connection_writer::Unsent;
use crate::host_limits::HostLimits;
use crate::key::{self, SecretKey};
use crate::net::NetworkInput;
use crate::opening::{self, OpeningStep, Protocol, ServerOpening};
use crate::wire;
use crate::wire::PREFIX_LENGTH;
use seatrial_machine::NodeId;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes per read between messages, …
const READ_LENGTH: usize = 8 << 10;
/// … and after a read that was full: several short messages have arrived.
const READ_LENGTH_BUSY: usize = 64 << 10;
/// Bytes per read on a connection without a session.
const UNADMITTED_READ_LENGTH: usize = 2 << 10;
/// An incomplete message's buffer doubles, within these bounds.
const GROWTH_MIN: usize = 4 << 10;
const GROWTH_MAX: usize = 1 << 20;
/// Maximum number of messages of one connection in the inbox.
const INBOX_SHARE: usize = 16;

/// First bytes of a TLS handshake: its record type, and the first byte of the version.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// Delay of the refusal of a wrong key, which slows guessing down.
const GUESS_DELAY: Duration = Duration::from_millis(500);

/// State that both halves of a connection share with the server.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    /// Has the machine admitted it to a session?
    pub(crate) is_admitted: AtomicBool,
    /// Bytes queued to be sent to it.
    pub(crate) unsent: AtomicUsize,
    /// Notified when it was admitted, or has read enough of its queue.
    pub(crate) changed: Notify,
    /// Notified when other connections need the memory of its incomplete message.
    pub(crate) evicted: Arc<Notify>,
}

/// State that all readers of a server share.
#[derive(Clone)]
pub(crate) struct Receiving {
    pub(crate) inbox: mpsc::Sender<NetworkInput>,
    pub(crate) limits: HostLimits,
    pub(crate) length_max: usize,
    pub(crate) protocol: Protocol,
    key: Option<SecretKey>,
    unadmitted: Arc<Budget>,
    admitted: Arc<Budget>,
    /// The buffer of all reads between messages, so that an idle connection holds no buffer.
    scratch: Arc<Mutex<Box<[u8]>>>,
}

impl Receiving {
    pub(crate) fn new(
        inbox: mpsc::Sender<NetworkInput>,
        limits: HostLimits,
        length_max: usize,
        protocol: Protocol,
        key: Option<SecretKey>,
    ) -> Receiving {
        Receiving {
            inbox,
            limits,
            length_max,
            protocol,
            key,
            unadmitted: Budget::new(limits.unadmitted_bytes_max),
            admitted: Budget::new(limits.receive_bytes_max),
            scratch: Arc::new(Mutex::new(vec![0; READ_LENGTH_BUSY].into_boxed_slice())),
        }
    }
}

/// The memory and the inbox place that a queued message holds until the machine has processed it.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    _share: MemoryShare,
    _place: OwnedSemaphorePermit,
}

/// Reads one connection: waits until it is readable, takes memory from the budget, reads, and passes complete messages on.
/// Between messages it holds no memory. An incomplete message has a buffer of its own, which grows as bytes arrive and becomes
/// the message.
pub(crate) struct ConnectionReader {
    stream: ReadSide,
    id: NodeId,
    peer: Arc<ConnectionState>,
    with: Receiving,
    /// For replies of the opening; `None` once the connection is open.
    answers: Option<OpeningReplies>,
    accepted: Instant,
    places: Arc<Semaphore>,
    /// The first bytes of a prefix.
    prefix: Vec<u8>,
    half: Option<HalfMessage>,
    /// Bytes of complete messages so far.
    brought: usize,
    /// Did the last read between messages fill its buffer?
    is_busy: bool,
    /// Times at which the incomplete message began, and last grew.
    began: Instant,
    grown: Instant,
}

/// An incomplete message of known length.
struct HalfMessage {
    length: usize,
    /// Its number, by which it queues for memory.
    number: u64,
    rank: Rank,
    bytes: Vec<u8>,
    /// The memory share for the capacity of `bytes`.
    share: MemoryShare,
    budget: Arc<Budget>,
}

impl Drop for ConnectionReader {
    fn drop(&mut self) {
        self.with.unadmitted.forget(self.id);
        self.with.admitted.forget(self.id);
    }
}

/// Sends replies of the opening, before the machine knows the connection.
pub(crate) struct OpeningReplies {
    pub(crate) unsent: Arc<Unsent>,
}

impl OpeningReplies {
    fn send(&self, message: &[u8]) {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, message);
        self.unsent.add(bytes.len());
        self.unsent.push(bytes, 0);
    }
}

/// Is this all of a message, after its prefix?
fn is_whole(prefix: [u8; PREFIX_LENGTH], message: &[u8]) -> bool {
    u32::from_le_bytes(prefix) as usize == message.len()
}

/// An error that closes the connection.
fn closed(kind: io::ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

/// Reads at most `room` available bytes into the capacity of `bytes`, without a copy. `None`: a spurious readiness; 0: the end of
/// the stream.
fn read_into(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    room: usize,
) -> io::Result<Option<usize>> {
    let mut limited = stream.take(room as u64);
    let read = pin!(limited.read_buf(bytes));
    // The waker does nothing: `ConnectionReader::until_ready` waits for more.
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read.map(Some),
        Poll::Pending => Ok(None),
    }
}

impl ConnectionReader {
    pub(crate) fn new(
        stream: ReadSide,
        id: NodeId,
        peer: Arc<ConnectionState>,
        with: Receiving,
        answers: OpeningReplies,
    ) -> ConnectionReader {
        let now = Instant::now();
        ConnectionReader {
            stream,
            id,
            peer,
            with,
            answers: Some(answers),
            accepted: now,
            places: Arc::new(Semaphore::new(INBOX_SHARE)),
            prefix: Vec::new(),
            half: None,
            brought: 0,
            is_busy: false,
            began: now,
            grown: now,
        }
    }

    /// Reads until the connection ends, and reports that.
    pub(crate) async fn run(mut self) {
        let reason = match self.open().await {
            Ok(()) => self.read_all().await.err(),
            Err(error) => Some(error),
        };
        let closed = NetworkInput::Closed(self.id, reason);
        let _ = self.with.inbox.send(closed).await; // the server has ended
    }

    fn is_admitted(&self) -> bool {
        self.peer.is_admitted.load(Ordering::Relaxed)
    }

    /// Runs the opening: one attempt, within a time limit.
    async fn open(&mut self) -> io::Result<()> {
        let Some(answers) = self.answers.take() else {
            return Ok(());
        };
        let deadline = self.accepted + self.with.limits.unadmitted_timeout;
        let opened = tokio::time::timeout_at(deadline.into(), self.exchange(&answers)).await;
        opened.unwrap_or_else(|_| {
            let text = "it did not open the connection in time";
            Err(closed(io::ErrorKind::TimedOut, text.to_owned()))
        })
    }

    async fn exchange(&mut self, answers: &OpeningReplies) -> io::Result<()> {
        let shaken = self.stream.shake_hands().await;
        shaken.map_err(|error| closed(io::ErrorKind::ConnectionRefused, error.to_string()))?;
        let nonce = key::nonce()?;
        let key = self.with.key.clone();
        let mut opening = ServerOpening::new(self.with.protocol, key, nonce);
        loop {
            let message = self.read_opening().await?;
            match opening.step(&message) {
                OpeningStep::Send(answer) => answers.send(&answer),
                OpeningStep::Open(answer) => {
                    if let Some(answer) = answer {
                        answers.send(&answer);
                    }
                    return Ok(());
                }
                OpeningStep::Refuse {
                    message,
                    reason,
                    is_guess,
                } => {
                    if is_guess {
                        tokio::time::sleep(GUESS_DELAY).await;
                    }
                    if let Some(answer) = message {
                        answers.send(&answer);
                    }
                    return Err(closed(io::ErrorKind::ConnectionRefused, reason));
                }
            }
        }
    }

    /// Reads one message of the opening.
    async fn read_opening(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; PREFIX_LENGTH];
        self.stream.read_exact(&mut prefix).await?;
        let length = u32::from_le_bytes(prefix) as usize;
        if prefix[..2] == TLS_HANDSHAKE {
            let text = "it begins a TLS handshake, and this server has no certificate (--tls-cert)";
            return Err(closed(io::ErrorKind::InvalidData, text.to_owned()));
        }
        if length > opening::LENGTH_MAX {
            let text = format!("its first message has {length} bytes and is not an opening");
            return Err(closed(io::ErrorKind::InvalidData, text));
        }
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message).await?;
        Ok(message)
    }

    async fn read_all(&mut self) -> io::Result<()> {
        loop {
            self.until_ready().await?;
            let is_open = match self.half.take() {
                Some(half) => self.read_half(half).await?,
                None => self.read_between().await?,
            };
            if !is_open {
                let is_between = self.half.is_none() && self.prefix.is_empty();
                return if is_between {
                    Ok(())
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Waits until the connection is readable, and may be read.
    async fn until_ready(&self) -> io::Result<()> {
        loop {
            let pause = self.with.limits.connection_send_bytes_pause;
            let is_paused = self.peer.unsent.load(Ordering::Relaxed) > pause;
            // While it is paused, only its writer can end it.
            let deadline = self.deadline().filter(|_| !is_paused);
            let late = async {
                match deadline {
                    Some((at, _)) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ready = self.stream.readable(), if !is_paused => return ready,
                () = self.peer.changed.notified() => {}
                // A message that became complete before the eviction stays.
                () = self.peer.evicted.notified() => if self.half.is_some() {
                    return Err(self.evicted());
                },
                () = late => {
                    let reason = deadline.map_or("", |(_, reason)| reason);
                    return Err(closed(io::ErrorKind::TimedOut, reason.to_owned()));
                }
            }
        }
    }

    fn evicted(&self) -> io::Error {
        let there = self.half.as_ref().map_or(0, |half| half.bytes.len());
        let text =
            format!("its message stopped at {there} bytes, and other connections need the memory");
        closed(io::ErrorKind::OutOfMemory, text)
    }

    /// The next deadline of this connection, and the error if it is reached.
    fn deadline(&self) -> Option<(Instant, &'static str)> {
        let limits = &self.with.limits;
        let unadmitted = (!self.is_admitted()).then(|| {
            let at = self.accepted + limits.unadmitted_timeout;
            (at, "it did not request a session in time")
        });
        let is_half = self.half.is_some() || !self.prefix.is_empty();
        let half = is_half.then(|| {
            let length = self.half.as_ref().map_or(0, |half| half.length);
            let rate = limits.receive_rate_min.max(1);
            let allowed = Duration::from_secs_f64(length as f64 / rate as f64);
            let whole = self.began + limits.receive_patience + allowed;
            let at = whole.min(self.grown + limits.receive_patience);
            (at, "its message did not complete in time")
        });
        unadmitted.into_iter().chain(half).min_by_key(|(at, _)| *at)
    }

    /// Takes memory from the budget, until the deadline.
    async fn take(
        &self,
        budget: &Arc<Budget>,
        turn: Turn,
        bytes: usize,
    ) -> io::Result<MemoryShare> {
        let taken = budget.take(self.id, turn, bytes);
        let Some((deadline, reason)) = self.deadline().filter(|_| !self.is_admitted()) else {
            return Ok(taken.await);
        };
        let taken = tokio::time::timeout_at(deadline.into(), taken).await;
        taken.map_err(|_| closed(io::ErrorKind::TimedOut, reason.to_owned()))
    }

    /// Reads more of an incomplete message. False at the end of the stream.
    async fn read_half(&mut self, mut half: HalfMessage) -> io::Result<bool> {
        let held = half.bytes.capacity();
        if half.bytes.len() == held {
            let growth = match half.rank {
                // It has sent as many bytes before: they do not grow in steps, each of which is a read and a copy.
                Rank::Proven => GROWTH_MAX,
                _ => held.clamp(GROWTH_MIN, GROWTH_MAX),
            };
            let growth = growth.min(half.length - held);
            let turn = (half.rank, half.number);
            let share = self.take(&half.budget, turn, growth).await?;
            half.share.merge(share);
            half.bytes.reserve_exact(growth);
        }
        let room = half.bytes.capacity().min(half.length) - half.bytes.len();
        let count = read_into(&mut self.stream, &mut half.bytes, room)?;
        if count.is_none() {
            tokio::task::yield_now().await; // as between messages
        }
        let is_whole = half.bytes.len() == half.length;
        if count != Some(0) && is_whole {
            half.budget.forget(self.id);
            self.brought = self.brought.saturating_add(half.length);
            self.deliver(half.bytes, half.share).await;
            return Ok(true);
        }
        if count.is_some_and(|count| count > 0) {
            self.grown = Instant::now();
            self.note(&half);
        }
        self.half = Some(half);
        Ok(count != Some(0))
    }

    fn note(&self, half: &HalfMessage) {
        let held = half.bytes.capacity().max(1);
        half.budget
            .grown(self.id, half.rank, held, &self.peer.evicted);
    }

    /// Reads at most `room` available bytes, and passes them on. `None`: a spurious readiness; 0: the end of the stream.
    ///
    /// [`ConnectionReader::until_ready`] waits for more.
    fn read_with(&mut self, room: usize, take: impl FnOnce(&[u8])) -> io::Result<Option<usize>> {
        let scratch = self.with.scratch.lock();
        let mut scratch = scratch.unwrap_or_else(PoisonError::into_inner);
        let room = room.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..room]);
        match self.stream.read_ready(&mut buffer) {
            Poll::Ready(Ok(())) => {
                take(buffer.filled());
                Ok(Some(buffer.filled().len()))
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(None),
        }
    }

    /// Reads at the begin of a message. False at the end of the stream.
    async fn read_between(&mut self) -> io::Result<bool> {
        let (budget, step) = if self.is_admitted() {
            let step = if self.is_busy {
                READ_LENGTH_BUSY
            } else {
                READ_LENGTH
            };
            (Arc::clone(&self.with.admitted), step)
        } else {
            (Arc::clone(&self.with.unadmitted), UNADMITTED_READ_LENGTH)
        };
        // Twice the length of a read: the bytes themselves, and the messages copied from them.
        let turn = (Rank::Begins, budget.number());
        let mut share = self.take(&budget, turn, 2 * step).await?;
        let mut read = std::mem::take(&mut self.prefix);
        let is_new = read.is_empty();
        let mut whole = None;
        // The usual case, one whole message, is copied without its prefix.
        let count = self.read_with(step, |bytes| match bytes.split_first_chunk() {
            Some((prefix, message)) if is_new && is_whole(*prefix, message) => {
                whole = Some(message.to_vec());
            }
            _ => read.extend_from_slice(bytes),
        })?;
        if count.is_none_or(|count| count == 0) {
            self.prefix = read;
            if count.is_none() {
                // Also when this task has used its budget of the runtime, which only a pause renews.
                tokio::task::yield_now().await;
            }
            return Ok(count.is_none());
        }
        self.is_busy = count.is_some_and(|count| count >= READ_LENGTH);
        self.grown = Instant::now();
        if is_new {
            self.began = self.grown;
        }
        if let Some(message) = whole {
            let length = message.len();
            share.shrink(length);
            self.check_length(length)?;
            self.brought = self.brought.saturating_add(length);
            self.deliver(message, share).await;
            return Ok(true);
        }
        share.shrink(2 * read.len());
        let mut rest = read.as_slice();
        while let Some((prefix, after_prefix)) = rest.split_first_chunk::<PREFIX_LENGTH>() {
            let length = u32::from_le_bytes(*prefix) as usize;
            self.check_length(length)?;
            let Some((message, after_prefix)) = after_prefix.split_at_checked(length) else {
                self.began = self.grown;
                let half = self.begin(length, after_prefix, &mut share, budget);
                self.note(&half);
                self.half = Some(half);
                return Ok(true);
            };
            rest = after_prefix;
            self.brought = self.brought.saturating_add(length);
            self.deliver(message.to_vec(), share.split(length)).await;
        }
        self.prefix = rest.to_vec();
        Ok(true)
    }

    /// Begins an incomplete message with the bytes `there`. Its memory comes from `share`, which is large enough: it covers
    /// twice the bytes read.
    fn begin(
        &self,
        length: usize,
        there: &[u8],
        share: &mut MemoryShare,
        budget: Arc<Budget>,
    ) -> HalfMessage {
        let mut bytes = Vec::new();
        bytes.reserve_exact(there.len());
        bytes.extend_from_slice(there);
        HalfMessage {
            length,
            number: budget.number(),
            rank: if self.brought >= length {
                Rank::Proven
            } else {
                Rank::Unproven
            },
            share: share.split(bytes.capacity()),
            bytes,
            budget,
        }
    }

    fn check_length(&self, length: usize) -> io::Result<()> {
        let (allowed, when) = if self.is_admitted() {
            (self.with.length_max, "")
        } else {
            let allowed = self.with.limits.unadmitted_length_max;
            (allowed.min(self.with.length_max), " before a session")
        };
        if length <= allowed {
            return Ok(());
        }
        let text = format!("a message of {length} bytes exceeds the maximum of {allowed}{when}");
        Err(closed(io::ErrorKind::InvalidData, text))
    }

    /// Passes a message to the machine; waits while the connection has its maximum of messages in the inbox.
    async fn deliver(&self, message: Vec<u8>, share: MemoryShare) {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return;
        };
        let held = HeldMemory {
            _share: share,
            _place: place,
        };
        let arrival = NetworkInput::Message(self.id, message, held);
        let _ = self.with.inbox.send(arrival).await; // the server has ended
    }
}
