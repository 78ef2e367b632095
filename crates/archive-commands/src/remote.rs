//! An archive on a server.

use crate::archive_arguments::RecordArguments;
use crate::entry::RecordingEntry;
use crate::record::{MessageRecorder, Reached};
use anyhow::{Context as _, Error, Result, bail};
use seatrial_archive::{BATCH_LENGTH, Durability, Origin, Recording, RecordingId};
use seatrial_archive_service::message::{self, MESSAGE_LENGTH_MAX};
use seatrial_archive_service::{
    ArchiveClient, ArchiveClientOptions, FrameBatch, LabelFilter, ListFilter, Played,
    RecordingDescription, RefusalCode, RemoteArchive, RemoteError, ReplayEnd, ReplayFrom,
    ReplayPiece, ReplayRequest,
};
use seatrial_host::{BlockingLink, ConnectOptions, LinkOptions, Protocol, SecretKey};
use seatrial_machine::{NodeId, Ticket};
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// The server, as the client's machine calls it.
const SERVER: NodeId = NodeId::server(0);
/// A lost connection is tried again after this long.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Pieces of a replay that have come and were not taken.
const PIECES_MAX: usize = 4;
/// Batches that were sent and are not confirmed; 4 MiB.
const BATCHES_MAX: usize = 16;
/// The server hears something at least this often.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// What is spoken.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

/// The key of all connections of this program.
static KEY: OnceLock<Option<SecretKey>> = OnceLock::new();

/// From now on connections are opened with this key.
pub(crate) fn use_key(key: Option<SecretKey>) {
    let _ = KEY.set(key); // a program has one command line
}

/// A connected archive.
pub(crate) type Remote = RemoteArchive<BlockingLink<ArchiveClient>>;

/// Connects to a server.
pub(crate) fn connect(address: SocketAddr) -> Result<Remote> {
    // Keys that the system draws at random; no two clients may have the same seed.
    let seed = RandomState::new().build_hasher().finish();
    let client = ArchiveClient::new(ArchiveClientOptions::new(SERVER, seed));
    let options = LinkOptions {
        server: SERVER,
        connect: ConnectOptions {
            key: KEY.get().cloned().flatten(),
            ..ConnectOptions::new(PROTOCOL, MESSAGE_LENGTH_MAX)
        },
        reconnect_interval: Some(RECONNECT_INTERVAL),
    };
    let link = BlockingLink::connect(address, client, options);
    let link = link.map_err(|error| {
        // Refused by a server that was reached.
        let is_refused = error.kind() == ErrorKind::PermissionDenied;
        let problem = if is_refused {
            ""
        } else {
            ": cannot be reached"
        };
        Error::new(error).context(format!("tcp://{address}{problem}"))
    })?;
    Ok(RemoteArchive::new(link))
}

/// A recording as the server describes it.
pub(crate) fn entry(description: &RecordingDescription) -> RecordingEntry {
    RecordingEntry(Recording {
        id: RecordingId(description.recording),
        // The protocol does not carry it.
        tag: None,
        label: description.label.clone(),
        segment_length: description.segment_length,
        durability: description.durability,
        start: description.start,
        end: description.end,
        started: description.started_at,
        stopped: description.stopped_at,
        source: description.source.clone(),
    })
}

/// The recording that a number or label names.
pub(crate) fn find(
    remote: &mut Remote,
    wanted: &str,
    address: SocketAddr,
) -> Result<RecordingDescription> {
    if let Ok(number) = wanted.parse() {
        match remote.describe(number) {
            Err(RemoteError::Refused(refusal)) if refusal.code == RefusalCode::UnknownRecording => {
            }
            described => return described.with_context(|| format!("tcp://{address}")),
        }
    }
    let filter = ListFilter {
        label: LabelFilter::Is(wanted.to_owned()),
        ..ListFilter::default()
    };
    let found = remote
        .list(&filter)
        .with_context(|| format!("tcp://{address}"))?;
    let newest = found.into_iter().next_back();
    newest.with_context(|| {
        format!("tcp://{address}: no recording has the number or label {wanted:?}")
    })
}

/// Where a replay begins, as a server is asked for it.
pub(crate) fn from(origin: Origin) -> ReplayFrom {
    match origin {
        Origin::Start => ReplayFrom::Start,
        Origin::Position(position) => ReplayFrom::Position(position.0),
        Origin::Time(time) => ReplayFrom::Time(time),
        Origin::Message(number) => ReplayFrom::Message(number),
        Origin::End => ReplayFrom::End,
    }
}

/// The messages of a replay, received on a thread of its own, so that a slow consumer does not stall the connection.
pub(crate) struct Pieces(Receiver<Result<Played, RemoteError>>);

impl Pieces {
    /// Begins a replay over a connection of its own.
    pub(crate) fn play(address: SocketAddr, request: ReplayRequest) -> Result<Pieces> {
        let mut remote = connect(address)?;
        let replay = remote
            .play(request)
            .with_context(|| format!("tcp://{address}"))?;
        let (sender, receiver) = sync_channel(PIECES_MAX);
        let thread = std::thread::Builder::new().spawn(move || {
            loop {
                let played = remote.next(replay);
                let is_last = !matches!(played, Ok(Played::Piece(_)));
                if sender.send(played).is_err() || is_last {
                    return;
                }
            }
        });
        thread.context("no thread for the replay")?;
        Ok(Pieces(receiver))
    }

    /// The next piece if it comes in time.
    pub(crate) fn next(&self, patience: Duration) -> Result<NextPiece> {
        match self.0.recv_timeout(patience) {
            Ok(Ok(Played::Piece(piece))) => Ok(NextPiece::Piece(piece)),
            Ok(Ok(Played::Ended(ReplayEnd::Failed(refusal)))) => bail!(refusal),
            Ok(Ok(Played::Ended(_))) | Err(RecvTimeoutError::Disconnected) => Ok(NextPiece::End),
            Ok(Err(error)) => bail!(error),
            Err(RecvTimeoutError::Timeout) => Ok(NextPiece::Nothing),
        }
    }
}

/// What [`Pieces::next`] found.
pub(crate) enum NextPiece {
    Piece(ReplayPiece),
    /// Not yet.
    Nothing,
    /// There will be no more.
    End,
}

/// Messages on their way to a server: batches are sent without waiting for the ones before to be confirmed.
pub(crate) struct RemoteRecorder {
    remote: Remote,
    id: u64,
    frame_checksum: bool,
    batch: FrameBatch,
    /// What was sent and is not confirmed: its ticket, and the messages up to its end.
    sent: VecDeque<(Ticket, u64)>,
    /// Messages in batches that were sent.
    messages: u64,
    reached: Reached,
}

impl RemoteRecorder {
    /// Starts or extends a recording.
    pub(crate) fn new(
        address: SocketAddr,
        arguments: &RecordArguments,
        durability: Durability,
    ) -> Result<RemoteRecorder> {
        let mut remote = connect(address)?;
        let claimed = if let Some(wanted) = &arguments.extend {
            let found = find(&mut remote, wanted, address)?;
            remote.extend(found.recording)
        } else {
            let length = arguments.segment_length.unwrap_or_default();
            remote.start(&arguments.label, length, durability, false)
        };
        let claimed = claimed.with_context(|| format!("tcp://{address}"))?;
        Ok(RemoteRecorder {
            remote,
            id: claimed.recording,
            frame_checksum: arguments.frame_checksum,
            batch: FrameBatch::new(),
            sent: VecDeque::new(),
            messages: 0,
            reached: Reached {
                position: claimed.position,
                ..Reached::default()
            },
        })
    }

    fn send(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        while self.sent.len() >= BATCHES_MAX {
            self.confirm()?;
        }
        self.messages += u64::from(self.batch.messages());
        let ticket = self.remote.record(self.id, self.batch.take());
        self.sent.push_back((ticket, self.messages));
        Ok(())
    }

    /// Waits for the oldest batch.
    fn confirm(&mut self) -> Result<()> {
        if let Some((ticket, messages)) = self.sent.pop_front() {
            let place = self.remote.recorded(ticket)?;
            self.reached = Reached {
                written: messages,
                durable: messages,
                position: place.end,
            };
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.send()?;
        while !self.sent.is_empty() {
            self.confirm()?;
        }
        Ok(())
    }
}

impl MessageRecorder for RemoteRecorder {
    fn id(&self) -> u64 {
        self.id
    }

    fn push(&mut self, message: &[u8]) -> Result<()> {
        self.batch.push(0, message, self.frame_checksum);
        if self.batch.length() >= BATCH_LENGTH {
            self.send()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.settle()
    }

    fn due(&self) -> Option<Duration> {
        Some(ALIVE_INTERVAL)
    }

    fn tick(&mut self) -> Result<()> {
        self.remote.health()?;
        Ok(())
    }

    fn reached(&self) -> Reached {
        self.reached
    }

    fn stop(mut self: Box<Self>) -> Result<Reached> {
        self.settle()?;
        let position = self.remote.stop(self.id)?;
        let reached = Reached {
            durable: self.reached.written,
            position,
            ..self.reached
        };
        self.remote.goodbye()?;
        Ok(reached)
    }
}
