//! Copies recordings from a service: the same blocks at the same positions; resumes.

use crate::archive_answer::{RecordingDescription, RefusalCode};
use crate::archive_client::{ArchiveClient, ReplayEnd};
use crate::archive_operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::remote_archive::{Played, RemoteArchive, RemoteError};
use crate::service_bug::ServiceBug;
use seatrial_archive::{AppendError, RecordingOptions, Writer};
use seatrial_archive::{Archive, ArchiveError};
use seatrial_archive::{Cursor, CursorBound, CursorError, Origin};
use seatrial_archive::{Position, RecordingId};
use seatrial_archive::{Recording, Source};
use seatrial_blocks::block;
use seatrial_machine::{ClientDriver, Storage};
use std::path::Path;
use std::sync::Arc;

/// Why a copy stopped. The blocks copied so far are kept.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The archive of the copy refused.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The copy cannot be written, or a block does not continue it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The copy cannot be read.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The source cannot be read.
    #[error("source: {0}")]
    Source(RemoteError),
    /// The service of the copy refused, or cannot be reached.
    #[error("copy: {0}")]
    Target(RemoteError),
    /// The copy has messages that the source lacks: one of them was truncated or recorded again.
    #[error("the copy, recording {recording}, differs from its source at {position}: {reason}")]
    Differs {
        /// The copy.
        recording: RecordingId,
        /// Position of the first difference.
        position: Position,
        /// The difference.
        reason: String,
    },
}

/// The source of a copy: its identity, options and range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The archive and recording that the blocks come from.
    pub source: Source,
    /// The options of the source, which the copy gets too.
    pub options: RecordingOptions,
    /// Its start.
    pub start: seatrial_archive::Boundary,
    /// Its end, or an earlier one if it grows.
    pub end: seatrial_archive::Boundary,
}

impl CopySource {
    /// The source for a recording of a service; `archive` is the name of its archive.
    pub fn remote(archive: &str, description: &RecordingDescription) -> CopySource {
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

    /// The source for a recording of a local archive with the name `archive`.
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

/// A copy being written into a local archive: each block is checked and appended at its position in the source.
///
/// An interrupted copy resumes at its end: the source must first yield the last block of the copy again, and is refused if
/// that block differs. Damage in the copy before its last block is not detected here, but by `verify`.
#[derive(Debug)]
pub struct CopyTarget {
    writer: Writer,
    /// The last block of a resumed copy, until the source has yielded the same.
    last: Option<(Position, Vec<u8>)>,
    messages: u64,
    bytes: u64,
    bug: Option<ServiceBug>,
    /// Planted bug: drop the next block?
    skips: bool,
}

impl CopyTarget {
    /// Resumes the copy that `archive`, whose folder is `folder`, has of this source, or begins one. `now` is the time in
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
        let (end, source_end) = (writer.end(), source.end.position);
        if source_end < end && writer.next_message() > source.end.message {
            return Err(CopyError::Differs {
                recording: copy.id,
                position: source_end,
                reason: format!("the source ends there, but the copy ends at {end}"),
            });
        }
        let mut last = None;
        if writer.next_message() > copy.start.message {
            let origin = Origin::Message(writer.next_message() - 1);
            let bound = CursorBound::Live(writer.progress());
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

    /// The position from which the source must be replayed.
    pub fn from(&self) -> Position {
        let last = self.last.as_ref().map(|(position, _)| *position);
        last.unwrap_or(self.writer.end())
    }

    /// The end of the copy.
    pub fn end(&self) -> Position {
        self.writer.end()
    }

    /// The number of the copy.
    pub fn recording(&self) -> RecordingId {
        self.writer.recording()
    }

    /// Number of messages copied since [`CopyTarget::begin`].
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Bytes of blocks copied since [`CopyTarget::begin`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends the next block of the source, header included, with its position in the source.
    pub fn append(&mut self, position: Position, bytes: &[u8], now: u64) -> Result<(), CopyError> {
        if let Some((expected, last)) = self.last.take() {
            if expected == position && block::is_same_content(&last, bytes) {
                self.skips = self.bug == Some(ServiceBug::CopySkipsBlock);
                return Ok(());
            }
            return Err(CopyError::Differs {
                recording: self.recording(),
                position: expected,
                reason: "the blocks of source and copy have different contents".to_owned(),
            });
        }
        // Bug: the first missing block is skipped.
        if std::mem::take(&mut self.skips) {
            return Ok(());
        }
        let before = self.writer.next_message();
        self.writer.append_copied(position, bytes, now)?;
        self.messages += self.writer.next_message() - before;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Syncs if the durability level requires it now.
    pub fn tick(&mut self, now: u64) -> Result<(), CopyError> {
        Ok(self.writer.tick(now)?)
    }

    /// Makes the copied blocks durable and stops the recording; it can be resumed.
    pub fn stop(self, now: u64) -> Result<Position, CopyError> {
        Ok(self.writer.stop(now)?.end)
    }
}

/// Copies one recording of a remote archive up to `bound`: its current end, its stop ([`ReplayBound::Live`]), or without an
/// end. Stops after a piece for which `is_wanted` returns false; `clock` returns nanoseconds since 1970. Lost connections and
/// restarts of the server only delay it.
pub fn copy_remote<C: ClientDriver<ArchiveClient>>(
    remote: &mut RemoteArchive<C>,
    target: &mut CopyTarget,
    recording: u64,
    bound: ReplayBound,
    mut clock: impl FnMut() -> u64,
    mut is_wanted: impl FnMut(&CopyTarget) -> bool,
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
        if !is_wanted(target) {
            return remote.close(replay).map_err(CopyError::Source);
        }
    }
}
