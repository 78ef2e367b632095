//! The reading end of a server's connection.

use crate::budget::{Budget, Rank, Share, Turn};
use crate::key::{self, Key};
use crate::limits::HostLimits;
use crate::net::Arrival;
use crate::opening::{self, Protocol, ServerOpening, Step};
use crate::send::Unsent;
use crate::wire;
use crate::wire::PREFIX_LENGTH;
use seatrial_machine::NodeId;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes read at a time between messages.
const STEP: usize = 8 << 10;
/// The same from a connection without a session.
const STRANGER_STEP: usize = 2 << 10;
/// A half message grows by as much as it holds, but at least and at most by this.
const GROWTH_MIN: usize = 4 << 10;
const GROWTH_MAX: usize = 1 << 20;
/// Bytes that one read brings at most.
const SCRATCH_LENGTH: usize = 256 << 10;
/// Messages of one connection that wait for the machine.
const INBOX_SHARE: usize = 16;

/// A wrong key is answered after this long.
const GUESS_DELAY: Duration = Duration::from_millis(500);

/// What both ends of a connection and the server know of it.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Has it a session?
    pub(crate) is_admitted: AtomicBool,
    /// Bytes that wait to be sent to it.
    pub(crate) unsent: AtomicUsize,
    /// It was admitted, or has read what waited for it.
    pub(crate) changed: Notify,
    /// Others need the memory of its half message.
    pub(crate) evicted: Arc<Notify>,
}

/// What the readers of a server share.
#[derive(Clone)]
pub(crate) struct Receiving {
    pub(crate) inbox: mpsc::Sender<Arrival>,
    pub(crate) limits: HostLimits,
    pub(crate) length_max: usize,
    pub(crate) protocol: Protocol,
    key: Option<Key>,
    strangers: Arc<Budget>,
    admitted: Arc<Budget>,
    /// Every read goes through it, so that a connection that says nothing holds no buffer.
    scratch: Arc<Mutex<Box<[u8]>>>,
}

impl Receiving {
    pub(crate) fn new(
        inbox: mpsc::Sender<Arrival>,
        limits: HostLimits,
        length_max: usize,
        protocol: Protocol,
        key: Option<Key>,
    ) -> Receiving {
        Receiving {
            inbox,
            limits,
            length_max,
            protocol,
            key,
            strangers: Budget::new(limits.stranger_bytes_max),
            admitted: Budget::new(limits.receive_bytes_max),
            scratch: Arc::new(Mutex::new(vec![0; SCRATCH_LENGTH].into_boxed_slice())),
        }
    }
}

/// What a message that waits for the machine holds: its bytes, and one of its connection's places in the inbox.
#[derive(Debug)]
pub(crate) struct Held {
    _share: Share,
    _place: OwnedSemaphorePermit,
}

/// Reads one connection: waits until there is something to read, takes memory for it, reads, and passes whole messages on.
/// Between messages it holds nothing but itself. A half message has a buffer of its own, which grows as it arrives and
/// becomes the message.
pub(crate) struct Reader {
    stream: OwnedReadHalf,
    id: NodeId,
    peer: Arc<Peer>,
    with: Receiving,
    /// For what is said before the connection is open.
    answers: Option<Answers>,
    accepted: Instant,
    places: Arc<Semaphore>,
    /// The first bytes of a length.
    prefix: Vec<u8>,
    half: Option<Half>,
    /// Bytes of whole messages so far.
    brought: usize,
    /// When the half message began, and when it grew last.
    began: Instant,
    grown: Instant,
}

/// A message of which the length is known.
struct Half {
    length: usize,
    /// By which it queues for memory.
    number: u64,
    rank: Rank,
    bytes: Vec<u8>,
    /// The capacity of `bytes`.
    share: Share,
    budget: Arc<Budget>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.with.strangers.forget(self.id);
        self.with.admitted.forget(self.id);
    }
}

/// The way back to a client while the machine does not know it.
pub(crate) struct Answers {
    pub(crate) unsent: Arc<Unsent>,
}

impl Answers {
    fn send(&self, message: &[u8]) {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, message);
        self.unsent.add(bytes.len());
        self.unsent.push(bytes);
    }
}

/// Why a connection is closed.
fn closed(kind: io::ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

impl Reader {
    pub(crate) fn new(
        stream: OwnedReadHalf,
        id: NodeId,
        peer: Arc<Peer>,
        with: Receiving,
        answers: Answers,
    ) -> Reader {
        let now = Instant::now();
        Reader {
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
            began: now,
            grown: now,
        }
    }

    /// Reads to the end, and reports it.
    pub(crate) async fn run(mut self) {
        let reason = match self.open().await {
            Ok(()) => self.read_all().await.err(),
            Err(error) => Some(error),
        };
        let closed = Arrival::Closed(self.id, reason);
        let _ = self.with.inbox.send(closed).await; // the server has ended
    }

    fn is_admitted(&self) -> bool {
        self.peer.is_admitted.load(Ordering::Relaxed)
    }

    /// Lets the client open the connection; in time, and in one attempt.
    async fn open(&mut self) -> io::Result<()> {
        let Some(answers) = self.answers.take() else {
            return Ok(());
        };
        let deadline = self.accepted + self.with.limits.stranger_patience;
        let opened = tokio::time::timeout_at(deadline.into(), self.exchange(&answers)).await;
        opened.unwrap_or_else(|_| {
            let text = "it has not opened the connection in time";
            Err(closed(io::ErrorKind::TimedOut, text.to_owned()))
        })
    }

    async fn exchange(&mut self, answers: &Answers) -> io::Result<()> {
        let nonce = key::nonce()?;
        let key = self.with.key.clone();
        let mut opening = ServerOpening::new(self.with.protocol, key, nonce);
        loop {
            let message = self.read_opening().await?;
            match opening.step(&message) {
                Step::Send(answer) => answers.send(&answer),
                Step::Open(answer) => {
                    if let Some(answer) = answer {
                        answers.send(&answer);
                    }
                    return Ok(());
                }
                Step::Refuse {
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

    /// One message of an opening, which is short.
    async fn read_opening(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; PREFIX_LENGTH];
        self.stream.read_exact(&mut prefix).await?;
        let length = u32::from_le_bytes(prefix) as usize;
        if length > opening::LENGTH_MAX {
            let text = format!("its first message has {length} bytes, and is no opening");
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

    /// Waits until there is something to read, and may be.
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
                // Unless it was whole before it heard.
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
        let text = format!("its message has stopped at {there} bytes, and others need the memory");
        closed(io::ErrorKind::OutOfMemory, text)
    }

    /// When it is closed, and why, unless something comes before.
    fn deadline(&self) -> Option<(Instant, &'static str)> {
        let limits = &self.with.limits;
        let stranger = (!self.is_admitted()).then(|| {
            let at = self.accepted + limits.stranger_patience;
            (at, "it has not asked for a session in time")
        });
        let is_half = self.half.is_some() || !self.prefix.is_empty();
        let half = is_half.then(|| {
            let length = self.half.as_ref().map_or(0, |half| half.length);
            let rate = limits.receive_rate_min.max(1);
            let allowed = Duration::from_secs_f64(length as f64 / rate as f64);
            let whole = self.began + limits.receive_patience + allowed;
            let at = whole.min(self.grown + limits.receive_patience);
            (at, "its message does not come to an end")
        });
        stranger.into_iter().chain(half).min_by_key(|(at, _)| *at)
    }

    /// Takes memory, unless the time is up before there is any.
    async fn take(&self, budget: &Arc<Budget>, turn: Turn, bytes: usize) -> io::Result<Share> {
        let taken = budget.take(self.id, turn, bytes);
        let Some((deadline, reason)) = self.deadline().filter(|_| !self.is_admitted()) else {
            return Ok(taken.await);
        };
        let taken = tokio::time::timeout_at(deadline.into(), taken).await;
        taken.map_err(|_| closed(io::ErrorKind::TimedOut, reason.to_owned()))
    }

    /// Reads more of a half message. False at the end of the stream.
    async fn read_half(&mut self, mut half: Half) -> io::Result<bool> {
        let held = half.bytes.capacity();
        if half.bytes.len() == held {
            let growth = held.clamp(GROWTH_MIN, GROWTH_MAX).min(half.length - held);
            let turn = (half.rank, half.number);
            let share = self.take(&half.budget, turn, growth).await?;
            half.share.merge(share);
            half.bytes.reserve_exact(growth);
        }
        let room = half.bytes.capacity().min(half.length) - half.bytes.len();
        let count = self.read_into(&mut half.bytes, room)?;
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

    fn note(&self, half: &Half) {
        let held = half.bytes.capacity().max(1);
        half.budget
            .grown(self.id, half.rank, held, &self.peer.evicted);
    }

    /// Reads what is there, at most `room` bytes. `None`: nothing, although the system said so; 0: the stream has ended.
    fn read_into(&self, bytes: &mut Vec<u8>, room: usize) -> io::Result<Option<usize>> {
        let scratch = self.with.scratch.lock();
        let mut scratch = scratch.unwrap_or_else(PoisonError::into_inner);
        let room = room.min(scratch.len());
        match self.stream.try_read(&mut scratch[..room]) {
            Ok(count) => {
                bytes.extend_from_slice(&scratch[..count]);
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads where a message begins. False at the end of the stream.
    async fn read_between(&mut self) -> io::Result<bool> {
        let (budget, step) = if self.is_admitted() {
            (Arc::clone(&self.with.admitted), STEP)
        } else {
            (Arc::clone(&self.with.strangers), STRANGER_STEP)
        };
        // Once for what is read, once for the messages that are made of it.
        let turn = (Rank::Begins, budget.number());
        let mut share = self.take(&budget, turn, 2 * step).await?;
        let mut read = std::mem::take(&mut self.prefix);
        let is_new = read.is_empty();
        let count = self.read_into(&mut read, step)?;
        if count.is_none_or(|count| count == 0) {
            self.prefix = read;
            return Ok(count.is_none());
        }
        self.grown = Instant::now();
        if is_new {
            self.began = self.grown;
        }
        share.shrink(2 * read.len());
        let mut rest = read.as_slice();
        while let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX_LENGTH>() {
            let length = u32::from_le_bytes(*prefix) as usize;
            self.check_length(length)?;
            let Some((message, behind)) = behind.split_at_checked(length) else {
                self.began = self.grown;
                let half = self.begin(length, behind, &mut share, budget);
                self.note(&half);
                self.half = Some(half);
                return Ok(true);
            };
            rest = behind;
            self.brought = self.brought.saturating_add(length);
            self.deliver(message.to_vec(), share.split(length)).await;
        }
        self.prefix = rest.to_vec();
        Ok(true)
    }

    /// A message of which this much is there. What it holds is taken out of `share`, which is enough: it covers twice what
    /// was read.
    fn begin(&self, length: usize, there: &[u8], share: &mut Share, budget: Arc<Budget>) -> Half {
        let mut bytes = Vec::new();
        bytes.reserve_exact(there.len());
        bytes.extend_from_slice(there);
        Half {
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
            let allowed = self.with.limits.stranger_length_max;
            (allowed.min(self.with.length_max), " before a session")
        };
        if length <= allowed {
            return Ok(());
        }
        let text = format!("a message of {length} bytes{when}, at most {allowed} are allowed");
        Err(closed(io::ErrorKind::InvalidData, text))
    }

    /// Passes a message on to the machine; waits while too many wait for it.
    async fn deliver(&self, message: Vec<u8>, share: Share) {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
            return;
        };
        let held = Held {
            _share: share,
            _place: place,
        };
        let arrival = Arrival::Message(self.id, message, held);
        let _ = self.with.inbox.send(arrival).await; // the server has ended
    }
}
