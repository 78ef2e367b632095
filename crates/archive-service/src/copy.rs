//! Copies recordings from a service: the same blocks at the same positions; resumes.

use crate::answer::{Description, RefusalCode};
use crate::bug::ServiceBug;
use crate::client::{Client, ReplayEnd};
use crate::operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::remote::{Played, RemoteArchive, RemoteError};
use seatrial_archive::{AppendError, RecordingOptions, Writer};
use seatrial_archive::{Archive, ArchiveError};
use seatrial_archive::{Bound, Cursor, CursorError, Origin};
use seatrial_archive::{Position, RecordingId};
use seatrial_archive::{Recording, Source};
use seatrial_blocks::block;
use seatrial_machine::{ClientDriver, Storage};
use std::path::Path;
use std::sync::Arc;

/// Why a recording is not copied any further. What was copied stays.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The archive that the copy is in refused.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The copy cannot be written, or the block does not continue it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The copy cannot be read.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The source cannot be read.
    #[error("the source: {0}")]
    Source(RemoteError),
    /// The service that the copy is in refused, or cannot be reached.
    #[error("the copy: {0}")]
    Target(RemoteError),
    /// The copy has what the source has not: one of them was cut or recorded anew.
    #[error("the copy, recording {recording}, differs from its source at {position}: {reason}")]
    Differs {
        /// The copy.
        recording: RecordingId,
        /// Where.
        position: Position,
        /// In what.
        reason: String,
    },
}

/// What a copy needs to know of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// Where the blocks come from.
    pub source: Source,
    /// How the source was recorded.
    pub options: RecordingOptions,
    /// Where it starts.
    pub start: seatrial_archive::Boundary,
    /// Where it ends, at least.
    pub end: seatrial_archive::Boundary,
}

impl CopySource {
    /// A recording of the archive that is called `archive`, as its service describes it.
    pub fn remote(archive: &str, description: &Description) -> CopySource {
        CopySource {
            source: Source {
                archive: archive.to_owned(),
                recording: RecordingId(description.recording),
            },
            options: RecordingOptions {
                label: description.label.clone(),
                segment_length: description.segment_length,
                durability: description.durability,
            },
            start: description.start,
            end: description.end,
        }
    }

    /// A recording of the archive in the folder that is called `archive`.
    pub fn folder(archive: &str, recording: &Recording) -> CopySource {
        CopySource {
            source: Source {
                archive: archive.to_owned(),
                recording: recording.id,
            },
            options: RecordingOptions {
                label: recording.label.clone(),
                segment_length: recording.segment_length,
                durability: recording.durability,
            },
            start: recording.start,
            end: recording.end,
        }
    }
}

/// A recording that is a copy, being written: every block is checked and appended at the position that it has in the source. Made
/// again after whatever interruption, it goes on at its end: first it wants the last block that it has once more, and refuses
/// the source if that is another one.
///
/// Its downside: damage in the copy before its last block is not noticed here; verifying it does.
#[derive(Debug)]
pub struct CopyTarget {
    writer: Writer,
    /// The last block that is there, until the source has shown the same.
    last: Option<(Position, Vec<u8>)>,
    messages: u64,
    bytes: u64,
    bug: Option<ServiceBug>,
    skips: bool,
}

impl CopyTarget {
    /// Goes on with the copy that `archive`, which lies in `folder`, has of this source, or makes one. `now` is the time in
    /// nanoseconds since 1970.
    pub fn begin(
        storage: Arc<dyn Storage>,
        folder: &Path,
        archive: &mut Archive,
        source: &CopySource,
        now: u64,
    ) -> Result<CopyTarget, CopyError> {
        let catalog = archive.catalog();
        let is_copy = |it: &&Recording| it.source.as_ref() == Some(&source.source);
        let Some(copy) = catalog.recordings().find(is_copy) else {
            let (from, options) = (source.source.clone(), &source.options);
            let writer = archive.start_copy(options, from, source.start, now)?;
            return Ok(CopyTarget::new(writer, None));
        };
        let writer = archive.extend(copy.id, now)?;
        let (end, there) = (writer.end(), source.end.position);
        if there < end && writer.next_message() > source.end.message {
            return Err(CopyError::Differs {
                recording: copy.id,
                position: there,
                reason: format!("the source ends there, the copy at {end}"),
            });
        }
        let mut last = None;
        if writer.next_message() > copy.start.message {
            let origin = Origin::Message(writer.next_message() - 1);
            let bound = Bound::Live(writer.progress());
            let mut cursor = Cursor::open(storage, folder, copy.id, origin, bound)?;
            if let Some(block) = cursor.next_block()? {
                let (bytes, position) = block.stored();
                last = Some((position, bytes.to_vec()));
            }
        }
        Ok(CopyTarget::new(writer, last))
    }

    fn new(writer: Writer, last: Option<(Position, Vec<u8>)>) -> CopyTarget {
        CopyTarget {
            writer,
            last,
            messages: 0,
            bytes: 0,
            bug: None,
            skips: false,
        }
    }

    /// Plants a bug.
    pub fn plant(&mut self, bug: ServiceBug) {
        self.bug = Some(bug);
    }

    /// The position from which on the source has to be replayed.
    pub fn from(&self) -> Position {
        let last = self.last.as_ref().map(|(position, _)| *position);
        last.unwrap_or(self.writer.end())
    }

    /// Where the copy ends.
    pub fn end(&self) -> Position {
        self.writer.end()
    }

    /// The copy's number.
    pub fn recording(&self) -> RecordingId {
        self.writer.recording()
    }

    /// Messages copied since [`CopyTarget::begin`].
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Bytes of blocks copied since [`CopyTarget::begin`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next block of the source, whole, with its position there.
    pub fn append(&mut self, position: Position, bytes: &[u8], now: u64) -> Result<(), CopyError> {
        if let Some((expected, last)) = self.last.take() {
            if expected == position && block::is_same_content(&last, bytes) {
                self.skips = self.bug == Some(ServiceBug::CopySkipsBlock);
                return Ok(());
            }
            return Err(CopyError::Differs {
                recording: self.recording(),
                position: expected,
                reason: "the blocks there are not the same".to_owned(),
            });
        }
        // Bug: the first block that is missing is left out.
        if std::mem::take(&mut self.skips) {
            return Ok(());
        }
        let before = self.writer.next_message();
        self.writer.append_copied(position, bytes, now)?;
        self.messages += self.writer.next_message() - before;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Syncs if its level says so.
    pub fn tick(&mut self, now: u64) -> Result<(), CopyError> {
        Ok(self.writer.tick(now)?)
    }

    /// Makes what was copied durable, and ends the copy for now.
    pub fn stop(self, now: u64) -> Result<Position, CopyError> {
        Ok(self.writer.stop(now)?.end)
    }
}

/// Copies one recording of a remote archive up to `bound`: its end as it is now, its stop ([`ReplayBound::Live`]), or for ever.
/// After each piece `go_on` is asked whether to go on; `clock` tells nanoseconds since 1970. Connections that are lost, and a
/// server that starts again, are waited for.
pub fn copy_remote<C: ClientDriver<Client>>(
    remote: &mut RemoteArchive<C>,
    target: &mut CopyTarget,
    recording: u64,
    bound: ReplayBound,
    mut clock: impl FnMut() -> u64,
    mut go_on: impl FnMut(&CopyTarget) -> bool,
) -> Result<(), CopyError> {
    let request = ReplayRequest {
        recording,
        from: ReplayFrom::Position(target.from().0),
        bound,
        window_bytes: u32::MAX,
        is_eager: false,
    };
    let differs = |target: &CopyTarget, reason: String| CopyError::Differs {
        recording: target.recording(),
        position: target.from(),
        reason,
    };
    let replay = remote.play(request).map_err(CopyError::Source)?;
    loop {
        match remote.next(replay).map_err(CopyError::Source)? {
            Played::Piece(piece) => {
                let now = clock();
                for block in piece.blocks() {
                    target.append(Position(block.position), block.bytes, now)?;
                }
                target.tick(now)?;
            }
            Played::Ended(ReplayEnd::Failed(refusal)) => {
                return Err(match refusal.code {
                    RefusalCode::OutOfRange => differs(target, refusal.text),
                    _ => CopyError::Source(refusal.into()),
                });
            }
            Played::Ended(_) if target.last.is_some() => {
                let reason = "the source ends before the last block of the copy".to_owned();
                return Err(differs(target, reason));
            }
            Played::Ended(_) => return Ok(()),
        }
        if !go_on(target) {
            return remote.close(replay).map_err(CopyError::Source);
        }
    }
}
