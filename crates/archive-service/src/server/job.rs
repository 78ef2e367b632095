//! Jobs that change the catalog, and jobs that read recordings.

use crate::archive_answer::{
    ArchiveAnswer, RecordingDescription, Refusal, RefusalCode, SegmentDescription,
};
use crate::archive_operation::{
    ArchiveOperation, CopyRequest, LabelFilter, ListFilter, ReplayFrom,
};
use crate::message::data_header;
use crate::service_bug::ServiceBug;
use seatrial_archive::{Archive, ArchiveError, Segment};
use seatrial_archive::{Cursor, CursorBound, CursorError, Origin, Pause};
use seatrial_archive::{Durability, RecordingOptions, Writer, WriterProgress};
use seatrial_archive::{Position, RecordingId, SEGMENT_LENGTH};
use seatrial_archive::{Recording, RecordingFilter};
use seatrial_machine::{Computed, Job, Storage};
use std::path::PathBuf;
use std::sync::Arc;

/// The folder of the archive, and the storage that holds it.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveLocation {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) folder: PathBuf,
}

/// A job for one operation on the catalog. It owns the archive while it runs, so there is at most one.
pub(crate) struct ControlJob {
    pub(crate) archive: Box<Archive>,
    pub(crate) operation: ArchiveOperation,
    /// Maximum number of recordings in one answer to a list.
    pub(crate) list_count_max: u32,
    pub(crate) bug: Option<ServiceBug>,
    /// Nanoseconds since 1970.
    pub(crate) now: u64,
}

/// The result of a [`ControlJob`], with the archive that it returns to the machine.
pub(crate) struct ControlResult {
    pub(crate) archive: Box<Archive>,
    pub(crate) result: Result<ControlOutcome, Refusal>,
}

/// What a catalog operation returns.
pub(crate) enum ControlOutcome {
    Answer(ArchiveAnswer),
    /// The writer of a claimed recording, its durability level, and whether the recording existed before.
    Writer(Box<Writer>, Durability, bool),
}

impl From<&Recording> for RecordingDescription {
    fn from(recording: &Recording) -> RecordingDescription {
        RecordingDescription {
            recording: recording.id.0,
            is_recording: recording.stopped.is_none(),
            durability: recording.durability,
            segment_length: recording.segment_length,
            started_at: recording.started,
            stopped_at: recording.stopped,
            start: recording.start,
            end: recording.end,
            source: recording.source.clone(),
            label: recording.label.clone(),
        }
    }
}

impl From<Segment> for SegmentDescription {
    fn from(segment: Segment) -> SegmentDescription {
        SegmentDescription {
            start: segment.start.0,
            length: segment.length,
            is_detached: segment.is_detached,
            first_message: segment.first_message,
            problem: segment.problem,
        }
    }
}

impl Job for ControlJob {
    fn run(mut self: Box<Self>) -> Computed {
        let result = self.execute();
        Box::new(ControlResult {
            archive: self.archive,
            result,
        })
    }
}

impl ControlJob {
    fn execute(&mut self) -> Result<ControlOutcome, Refusal> {
        let (archive, now) = (&mut self.archive, self.now);
        let id = RecordingId;
        let answer = match &self.operation {
            ArchiveOperation::List {
                after,
                count_max,
                filter,
            } => self.list(*after, *count_max, filter),
            ArchiveOperation::Describe { recording } => {
                let found = archive.recording(id(*recording)).map_err(refusal)?;
                ArchiveAnswer::Description(RecordingDescription::from(&found))
            }
            ArchiveOperation::Segments {
                recording,
                from,
                count_max,
            } => self.segments(id(*recording), Position(*from), *count_max)?,
            ArchiveOperation::Start { .. } => return self.start(),
            ArchiveOperation::Copy(copy) => {
                let copy = copy.clone();
                return self.copy(copy);
            }
            ArchiveOperation::Extend { recording } => {
                return self.extend(id(*recording));
            }
            ArchiveOperation::Truncate {
                recording,
                position,
            } => {
                let cut = archive.truncate(id(*recording), Position(*position), now);
                ArchiveAnswer::Position(cut.map_err(refusal)?.0)
            }
            ArchiveOperation::Purge { recording, before } => {
                let start = archive.purge(id(*recording), Position(*before), now);
                ArchiveAnswer::Position(start.map_err(refusal)?.0)
            }
            ArchiveOperation::Detach { recording, before } => {
                let start = archive.detach(id(*recording), Position(*before), now);
                ArchiveAnswer::Position(start.map_err(refusal)?.0)
            }
            ArchiveOperation::Attach { recording } => {
                let start = archive.attach(id(*recording), now);
                ArchiveAnswer::Position(start.map_err(refusal)?.0)
            }
            ArchiveOperation::Delete { recording } => {
                archive.delete(id(*recording), now).map_err(refusal)?;
                ArchiveAnswer::Done
            }
            ArchiveOperation::Relabel { recording, label } => {
                let labelled = archive.relabel(id(*recording), label, now);
                labelled.map_err(refusal)?;
                ArchiveAnswer::Done
            }
            ArchiveOperation::Compact => {
                archive.compact().map_err(refusal)?;
                ArchiveAnswer::Done
            }
            ArchiveOperation::Stop { .. }
            | ArchiveOperation::Flush { .. }
            | ArchiveOperation::Health
            | ArchiveOperation::Replay(_) => {
                let text = "not an operation on the catalog";
                return Err(Refusal::new(RefusalCode::NotAllowed, text));
            }
        };
        Ok(ControlOutcome::Answer(answer))
    }

    fn start(&mut self) -> Result<ControlOutcome, Refusal> {
        let ArchiveOperation::Start {
            label,
            segment_length,
            durability,
            is_resumed,
        } = &self.operation
        else {
            return Err(Refusal::new(RefusalCode::NotAllowed, "not a start"));
        };
        let same = |recording: &&Recording| recording.label == *label;
        let newest = self.archive.list(&RecordingFilter::default());
        let newest = newest.iter().filter(same).map(|it| it.id).max();
        if let Some(newest) = newest.filter(|_| *is_resumed) {
            return self.extend(newest);
        }
        let options = RecordingOptions {
            label: label.clone(),
            segment_length: match segment_length {
                0 => SEGMENT_LENGTH,
                length => *length,
            },
            durability: *durability,
        };
        let durability = *durability;
        let writer = self.archive.start(&options, self.now).map_err(refusal)?;
        Ok(ControlOutcome::Writer(Box::new(writer), durability, false))
    }

    fn copy(&mut self, copy: CopyRequest) -> Result<ControlOutcome, Refusal> {
        let all = self.archive.list(&RecordingFilter::default());
        // Bug: a copy of any recording of the source archive is resumed.
        let accepts_any = self.bug == Some(ServiceBug::CopiesMixed);
        let is_copy_of_source = |it: &&Recording| {
            let source = it.source.as_ref();
            source.is_some_and(|it| it.archive == copy.source.archive && accepts_any)
                || source == Some(&copy.source)
        };
        if let Some(found) = all.iter().find(is_copy_of_source) {
            return self.extend(found.id);
        }
        let durability = copy.durability;
        let options = RecordingOptions {
            label: copy.label,
            segment_length: copy.segment_length,
            durability,
        };
        let writer = self
            .archive
            .start_copy(&options, copy.source, copy.start, self.now);
        let writer = writer.map_err(refusal)?;
        Ok(ControlOutcome::Writer(Box::new(writer), durability, false))
    }

    fn extend(&mut self, id: RecordingId) -> Result<ControlOutcome, Refusal> {
        let writer = self.archive.extend(id, self.now).map_err(refusal)?;
        let durability = self.archive.recording(id).map_err(refusal)?.durability;
        Ok(ControlOutcome::Writer(Box::new(writer), durability, true))
    }

    fn segments(
        &self,
        id: RecordingId,
        from: Position,
        count_max: u32,
    ) -> Result<ArchiveAnswer, Refusal> {
        let count_max = count_max.min(self.list_count_max) as usize;
        let found = self.archive.segments(id, from, count_max + 1);
        let mut found = found.map_err(refusal)?;
        let has_more = found.len() > count_max;
        found.truncate(count_max);
        let segments = found.into_iter().map(SegmentDescription::from).collect();
        Ok(ArchiveAnswer::Segments { segments, has_more })
    }

    fn list(&self, after: u64, count_max: u32, filter: &ListFilter) -> ArchiveAnswer {
        let count_max = count_max.min(self.list_count_max) as usize;
        let by_catalog = RecordingFilter {
            label: match &filter.label {
                LabelFilter::Any => None,
                LabelFilter::Is(label) | LabelFilter::Contains(label) => Some(label.clone()),
            },
            time: Some(filter.time_from..=filter.time_to),
            position: filter.position.map(Position),
            from: RecordingId(after.saturating_add(1)),
            count_max: usize::MAX,
        };
        // The catalog's filter knows only "contains"; an exact label is compared here.
        let matches_label = |recording: &Recording| match &filter.label {
            LabelFilter::Is(label) => recording.label == *label,
            _ => true,
        };
        let found = self.archive.list(&by_catalog);
        let matching = found.iter().filter(|it| matches_label(it));
        // One more than fits shows whether there are more.
        let matching = matching.take(count_max + 1).map(RecordingDescription::from);
        let mut recordings: Vec<RecordingDescription> = matching.collect();
        let has_more = recordings.len() > count_max;
        recordings.truncate(count_max);
        ArchiveAnswer::List {
            recordings,
            has_more,
        }
    }
}

/// The refusal that reports an archive error to a client.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refusal(error: ArchiveError) -> Refusal {
    let code = match &error {
        ArchiveError::Unknown { .. } => RefusalCode::UnknownRecording,
        ArchiveError::BeingRecorded { .. } => RefusalCode::Recording,
        ArchiveError::Outside { .. } | ArchiveError::Inside { .. } => RefusalCode::OutOfRange,
        ArchiveError::LabelLength { .. } | ArchiveError::SegmentLength { .. } => {
            RefusalCode::Malformed
        }
        ArchiveError::Full => RefusalCode::Overloaded,
        ArchiveError::Tail(_) => RefusalCode::Damaged,
        _ => RefusalCode::Disk,
    };
    if code == RefusalCode::Disk {
        tracing::error!("{error}");
    }
    Refusal::new(code, error.to_string())
}

/// A job that opens the cursor of a replay.
pub(crate) struct OpenJob {
    pub(crate) location: ArchiveLocation,
    pub(crate) recording: RecordingId,
    pub(crate) from: ReplayFrom,
    /// The progress of its writer, if it is being recorded.
    pub(crate) progress: Option<Arc<WriterProgress>>,
}

/// A block that was read before it may be sent, with its position: the first batch of a segment, which the cursor reads in
/// the same step as the segment's first block.
#[derive(Debug)]
pub(crate) struct HeldBlock {
    position: Position,
    bytes: Vec<u8>,
}

/// The result of an [`OpenJob`] or a [`ReadJob`].
pub(crate) struct ReadResult {
    /// The cursor after the job; `None` if it could not be opened.
    pub(crate) cursor: Option<Box<Cursor>>,
    pub(crate) held: Option<HeldBlock>,
    /// A data message, if anything was read.
    pub(crate) message: Option<Vec<u8>>,
    /// Where the recording ended when it was opened, if it is not being recorded.
    pub(crate) end: Option<Position>,
    /// Why the cursor has no further block, if it has none.
    pub(crate) pause: Option<Pause>,
    pub(crate) refusal: Option<Refusal>,
}

impl Job for OpenJob {
    fn run(self: Box<Self>) -> Computed {
        let mut read = ReadResult {
            cursor: None,
            held: None,
            message: None,
            end: None,
            pause: None,
            refusal: None,
        };
        match self.open(&mut read.end) {
            // The block's checksum covers the frames, and the client computes both again.
            Ok(cursor) => read.cursor = Some(Box::new(cursor.without_frame_checksums())),
            Err(refusal) => read.refusal = Some(refusal),
        }
        Box::new(read)
    }
}

impl OpenJob {
    fn open(self, end: &mut Option<Position>) -> Result<Cursor, Refusal> {
        let (storage, folder) = (self.location.storage, &self.location.folder);
        let mut origin = match self.from {
            ReplayFrom::Start => Origin::Start,
            ReplayFrom::Position(position) => Origin::Position(Position(position)),
            ReplayFrom::Message(number) => Origin::Message(number),
            ReplayFrom::Time(time) => Origin::Time(time),
            ReplayFrom::End => Origin::End,
        };
        let bound = if let Some(progress) = self.progress {
            CursorBound::Live(progress)
        } else {
            // A claim under way may extend it: the catalog has the end up to which it was stopped.
            let catalog = Archive::view(storage.clone(), folder).map_err(refusal)?;
            let recording = self.recording;
            let unknown = ArchiveError::Unknown { recording };
            let found = catalog.recording(recording).ok_or(unknown);
            let end_position = found.map_err(refusal)?.end.position;
            *end = Some(end_position);
            if origin == Origin::End {
                origin = Origin::Position(end_position);
            }
            CursorBound::End
        };
        let opened = Cursor::open(storage, folder, self.recording, origin, bound);
        opened.map_err(|error| unreadable(&error))
    }
}

/// Reads the next blocks of a replay into one data message.
pub(crate) struct ReadJob {
    pub(crate) cursor: Box<Cursor>,
    pub(crate) held: Option<HeldBlock>,
    pub(crate) session: u64,
    pub(crate) replay: u64,
    /// Bytes sent before this message.
    pub(crate) offset: u64,
    /// Length in bytes from which on the message is sent.
    pub(crate) bytes: usize,
    /// Blocks that start at or after this position may not be sent, or not yet.
    pub(crate) until: Position,
}

impl ReadResult {
    /// The position at which the replay continues.
    pub(crate) fn position(&self) -> Option<Position> {
        let held = self.held.as_ref().map(|held| held.position);
        held.or_else(|| Some(self.cursor.as_ref()?.position()))
    }
}

impl Job for ReadJob {
    fn run(mut self: Box<Self>) -> Computed {
        let mut message = data_header(self.session, self.replay, self.offset);
        let header = message.len();
        let (mut pause, mut refusal) = (None, None);
        while message.len() - header < self.bytes {
            match self.step(&mut message) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadStop::Pause(why)) => {
                    pause = Some(why);
                    break;
                }
                Err(ReadStop::Failed(why)) => {
                    refusal = Some(why);
                    break;
                }
            }
        }
        Box::new(ReadResult {
            cursor: Some(self.cursor),
            held: self.held,
            message: (message.len() > header).then_some(message),
            end: None,
            pause,
            refusal,
        })
    }
}

/// Why a read job has no next block.
enum ReadStop {
    Pause(Pause),
    Failed(Refusal),
}

impl ReadJob {
    /// Adds the next block to the message; false when it may not be sent yet.
    fn step(&mut self, message: &mut Vec<u8>) -> Result<bool, ReadStop> {
        if let Some(held) = self.held.take_if(|held| held.position < self.until) {
            message.extend_from_slice(&held.position.0.to_le_bytes());
            message.extend_from_slice(&held.bytes);
            return Ok(true);
        }
        if self.held.is_some() || self.cursor.position() >= self.until {
            return Ok(false);
        }
        let block = match self.cursor.next_block() {
            Ok(Some(block)) => block,
            Ok(None) => return Err(ReadStop::Pause(self.cursor.pause())),
            Err(error) => return Err(ReadStop::Failed(unreadable(&error))),
        };
        let (bytes, position) = block.stored();
        if position >= self.until {
            let bytes = bytes.to_vec();
            self.held = Some(HeldBlock { position, bytes });
            return Ok(false);
        }
        if message.capacity() - message.len() < 8 + bytes.len() {
            message.reserve_exact(8 + bytes.len().max(self.bytes.min(1 << 20)));
        }
        message.extend_from_slice(&position.0.to_le_bytes());
        message.extend_from_slice(bytes);
        Ok(true)
    }
}

/// The refusal that reports a cursor error to a client.
fn unreadable(error: &CursorError) -> Refusal {
    let code = match error {
        CursorError::NoRecording { .. } | CursorError::Deleted { .. } => {
            RefusalCode::UnknownRecording
        }
        CursorError::BeforeStart { .. }
        | CursorError::BeforeFirst { .. }
        | CursorError::PastEnd { .. }
        | CursorError::Purged { .. }
        | CursorError::Truncated { .. } => RefusalCode::OutOfRange,
        CursorError::Missing { .. } | CursorError::Damaged { .. } => RefusalCode::Damaged,
        CursorError::NoArchive { .. } | CursorError::Catalog(_) | CursorError::System { .. } => {
            RefusalCode::Disk
        }
    };
    Refusal::new(code, error.to_string())
}
