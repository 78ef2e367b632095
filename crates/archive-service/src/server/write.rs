//! The job that checks batches and appends them to one recording.

use crate::archive_answer::{Refusal, RefusalCode};
use crate::message::{BatchForm, BatchPlace, HEADER_LENGTH, RECORD_HEADER_LENGTH};
use crate::server::job::ArchiveLocation;
use crate::service_bug::ServiceBug;
use seatrial_archive::{AppendError, Writer};
use seatrial_archive::{Batch, Position, RecordingId};
use seatrial_archive::{BatchHeader, MESSAGE_LENGTH_MAX, batch_of};
use seatrial_archive::{Cursor, CursorBound, Origin};
use seatrial_blocks::block::{BlockHeader, is_same_content};
use seatrial_blocks::crc32c;
use seatrial_blocks::frame::{Frame, Frames};
use seatrial_machine::{Computed, Job, counted};

/// A batch as received: not checked yet.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(crate) first_message: u64,
    pub(crate) messages: u32,
    pub(crate) checksum: u32,
    pub(crate) form: BatchForm,
    /// The message that brought it, header included.
    pub(crate) bytes: Vec<u8>,
}

impl PendingBatch {
    /// The frames or blocks of the batch.
    pub(crate) fn body(&self) -> &[u8] {
        self.bytes
            .get(HEADER_LENGTH + RECORD_HEADER_LENGTH..)
            .unwrap_or(&[])
    }

    fn end(&self) -> u64 {
        self.first_message.saturating_add(u64::from(self.messages))
    }
}

/// A job that checks and writes the batches received for one recording, and syncs if asked to. It owns the writer while it
/// runs, so a recording has at most one.
pub(crate) struct WriteJob {
    pub(crate) location: ArchiveLocation,
    pub(crate) recording: RecordingId,
    pub(crate) writer: Box<Writer>,
    pub(crate) batches: Vec<PendingBatch>,
    /// The number of the next message to be written.
    pub(crate) next_message: u64,
    pub(crate) sync: bool,
    /// Stop the recording after the last batch?
    pub(crate) stop: bool,
    /// Nanoseconds since 1970.
    pub(crate) now: u64,
    pub(crate) bug: Option<ServiceBug>,
}

/// The result of a [`WriteJob`], with the writer that it returns to the machine.
#[derive(Debug)]
pub(crate) struct WriteResult {
    /// `None` when the recording was stopped, or the writer failed.
    pub(crate) writer: Option<Box<Writer>>,
    /// The positions of the batches that are in the recording.
    pub(crate) places: Vec<BatchPlace>,
    /// Ends of the blocks written, each with the number of the next message.
    pub(crate) boundaries: Vec<(Position, u64)>,
    pub(crate) next_message: u64,
    pub(crate) end: Position,
    pub(crate) durable: Position,
    /// Why a batch was refused; the batches after it were dropped.
    pub(crate) refusal: Option<Refusal>,
    /// Has the writer failed for good?
    pub(crate) is_broken: bool,
    /// Bytes of frames written.
    pub(crate) bytes: u64,
}

/// Why no further batch is written.
enum WriteFailure {
    /// The batch is wrong; the writer can be used further.
    Batch(Refusal),
    /// The writer failed.
    Writer(AppendError),
}

impl From<AppendError> for WriteFailure {
    fn from(error: AppendError) -> WriteFailure {
        WriteFailure::Writer(error)
    }
}

fn refused(code: RefusalCode, text: String) -> WriteFailure {
    WriteFailure::Batch(Refusal::new(code, text))
}

/// A start or end in `places` that is to be set when the block under construction has been written and its position is
/// known.
#[derive(Clone, Copy, Debug)]
struct PlaceFixup {
    /// Index in `places`.
    index: usize,
    /// Offset among the frames of the block.
    offset: usize,
    /// Does it set the end, not the start?
    is_end: bool,
}

/// The state of a running [`WriteJob`]: a block under construction, and the results so far.
struct BatchWriter {
    location: ArchiveLocation,
    recording: RecordingId,
    writer: Box<Writer>,
    /// The block under construction; it lives only as long as the job, so idle recordings hold no buffer.
    batch: Batch,
    next_message: u64,
    /// The number of the next message when the job began.
    first_new: u64,
    now: u64,
    places: Vec<BatchPlace>,
    fixups: Vec<PlaceFixup>,
    boundaries: Vec<(Position, u64)>,
    end: Position,
    durable: Position,
    bytes: u64,
}

impl Job for WriteJob {
    fn run(self: Box<Self>) -> Computed {
        let progress = self.writer.progress();
        let mut work = BatchWriter {
            location: self.location,
            recording: self.recording,
            writer: self.writer,
            batch: Batch::with_capacity(block_length(&self.batches)),
            next_message: self.next_message,
            first_new: self.next_message,
            now: self.now,
            places: Vec::new(),
            fixups: Vec::new(),
            boundaries: Vec::new(),
            end: progress.written(),
            durable: progress.durable(),
            bytes: 0,
        };
        let WriteJob {
            mut batches,
            bug,
            sync,
            stop,
            ..
        } = *self;
        let lost = match bug {
            // Bug: the last of several batches is not written.
            Some(ServiceBug::LostInGroup) if batches.len() > 1 => batches.pop(),
            _ => None,
        };
        let result = work.write_all(&batches, bug, sync || stop);
        if let (Some(lost), Ok(())) = (lost, &result) {
            work.next_message += u64::from(lost.messages);
            let (position, end) = (work.end.0, work.end.0 + lost.body().len() as u64);
            work.places.push(BatchPlace {
                first_message: lost.first_message,
                position,
                end,
            });
        }
        Box::new(work.finish(result, stop))
    }
}

impl BatchWriter {
    fn write_all(
        &mut self,
        batches: &[PendingBatch],
        bug: Option<ServiceBug>,
        sync: bool,
    ) -> Result<(), WriteFailure> {
        let duplicates = bug == Some(ServiceBug::DuplicateAfterResend);
        let gaps = bug == Some(ServiceBug::GapAccepted);
        // Bug: the last of several blocks is not written.
        let loses = bug == Some(ServiceBug::CopiedBlockLost);
        let mut written = Ok(());
        for pending in batches {
            written = match pending.form {
                BatchForm::Frames => self.write_frames(pending, duplicates, gaps),
                BatchForm::Blocks => self.write_blocks(pending, loses),
            };
            if written.is_err() {
                break;
            }
        }
        // The batches before a wrong one are written.
        if !matches!(written, Err(WriteFailure::Writer(_))) {
            self.flush()?;
            if sync {
                self.writer.sync()?;
            } else {
                self.writer.tick(self.now)?;
            }
            self.durable = self.writer.progress().durable();
        }
        written
    }

    /// Checks one batch of frames and adds it to the block; messages that the recording has are compared.
    fn write_frames(
        &mut self,
        pending: &PendingBatch,
        duplicates: bool,
        gaps: bool,
    ) -> Result<(), WriteFailure> {
        let frames = check_frames(pending)?;
        if pending.first_message > self.next_message && !gaps {
            let text = format!(
                "expected message {}, the batch begins with {}",
                self.next_message, pending.first_message
            );
            return Err(refused(RefusalCode::WrongBatch, text));
        }
        let index = self.places.len();
        self.places.push(BatchPlace {
            first_message: pending.first_message,
            position: 0,
            end: 0,
        });
        let mut already_written = 0;
        if pending.first_message < self.next_message && !duplicates {
            self.flush()?;
            already_written = self.next_message.min(pending.end()) - pending.first_message;
            let already_written = already_written as usize;
            if let Err(failure) = self.compare_frames(pending, &frames[..already_written], index) {
                self.places.pop();
                return Err(failure);
            }
        }
        for (number, frame) in frames.iter().enumerate().skip(already_written as usize) {
            self.push(frame)?;
            if number == 0 {
                let offset = self.batch.frames().len();
                let offset = offset - seatrial_blocks::frame::frame_length(frame.payload.len());
                self.add_fixup(index, offset, false);
            }
            self.next_message += 1;
        }
        if (already_written as usize) < frames.len() {
            self.add_fixup(index, self.batch.frames().len(), true);
        }
        Ok(())
    }

    /// Checks one batch of blocks and appends them unchanged; blocks that the recording has are compared.
    fn write_blocks(&mut self, pending: &PendingBatch, loses: bool) -> Result<(), WriteFailure> {
        self.flush()?;
        let blocks = check_blocks(pending)?;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(refused(RefusalCode::WrongBatch, "no blocks".to_owned()));
        };
        let place = BatchPlace {
            first_message: pending.first_message,
            position: first
                .position
                .plus(seatrial_archive::BATCH_FRAMES_OFFSET as u64)
                .0,
            end: last.position.plus(last.bytes.len() as u64).0,
        };
        for block in &blocks {
            if block.header.first_message < self.next_message {
                self.compare_block(block)?;
                continue;
            }
            if loses && block.position == last.position && blocks.len() > 1 {
                self.next_message += u64::from(block.header.messages);
                continue;
            }
            let writer = &mut self.writer;
            let appended = writer.append_copied(block.position, block.bytes, self.now);
            let appended = appended.map_err(|error| match error {
                AppendError::Block { .. }
                | AppendError::Batch { .. }
                | AppendError::Next { .. } => refused(RefusalCode::Conflict, error.to_string()),
                other => WriteFailure::Writer(other),
            })?;
            self.next_message += u64::from(block.header.messages);
            self.bytes += block.bytes.len() as u64;
            (self.end, self.durable) = (appended.end, appended.durable);
            self.boundaries.push((self.end, self.next_message));
        }
        self.places.push(place);
        Ok(())
    }

    /// Compares a block with the block of the recording that has its first message.
    fn compare_block(&self, block: &CopiedBlock<'_>) -> Result<(), WriteFailure> {
        let differs = |reason: &dyn std::fmt::Display| {
            let text = format!("the copy differs at {}: {reason}", block.position);
            refused(RefusalCode::Conflict, text)
        };
        let mut cursor = Cursor::open(
            self.location.storage.clone(),
            &self.location.folder,
            self.recording,
            Origin::Message(block.header.first_message),
            CursorBound::Live(self.writer.progress()),
        )
        .map_err(|error| differs(&error))?;
        match cursor.next_block().map_err(|error| differs(&error))? {
            Some(found)
                if found.stored().1 == block.position
                    && is_same_content(found.stored().0, block.bytes) =>
            {
                Ok(())
            }
            _ => Err(differs(
                &"the blocks of source and copy have different contents",
            )),
        }
    }

    fn add_fixup(&mut self, index: usize, offset: usize, is_end: bool) {
        self.fixups.push(PlaceFixup {
            index,
            offset,
            is_end,
        });
    }

    /// Adds a frame to the block; writes the block first if it is full.
    fn push(&mut self, frame: &Frame<'_>) -> Result<(), WriteFailure> {
        if self.try_push(frame) {
            return Ok(());
        }
        self.flush()?;
        if self.try_push(frame) {
            return Ok(());
        }
        // The frame is longer than an ordinary block: it gets one of its own size.
        self.batch = Batch::for_message(frame.payload.len());
        if self.try_push(frame) {
            return Ok(());
        }
        let text = format!(
            "a message of {} bytes exceeds the limit of {MESSAGE_LENGTH_MAX}",
            frame.payload.len()
        );
        Err(refused(RefusalCode::WrongBatch, text))
    }

    fn try_push(&mut self, frame: &Frame<'_>) -> bool {
        let batch = &mut self.batch;
        if frame.is_checksummed {
            batch.push_checksummed(frame.flags, frame.payload)
        } else {
            batch.push(frame.flags, frame.payload)
        }
    }

    /// Writes the block under construction, and sets the places of its batches.
    fn flush(&mut self) -> Result<(), WriteFailure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.bytes += self.batch.frames().len() as u64;
        let appended = self.writer.append_block(&mut self.batch, self.now)?;
        if self.batch.capacity() > seatrial_archive::BATCH_LENGTH {
            self.batch = Batch::default(); // frees the memory of a long message
        }
        for fixup in self.fixups.drain(..) {
            let position = appended.first.plus(fixup.offset as u64).0;
            let place = &mut self.places[fixup.index];
            if fixup.is_end {
                place.end = position;
            } else {
                place.position = position;
            }
        }
        self.end = appended.end;
        self.durable = appended.durable;
        self.boundaries.push((appended.end, self.next_message));
        Ok(())
    }

    /// Compares frames with the messages of the recording that have their numbers, and sets their place.
    fn compare_frames(
        &mut self,
        pending: &PendingBatch,
        frames: &[Frame<'_>],
        index: usize,
    ) -> Result<(), WriteFailure> {
        let differs = |text: String| refused(RefusalCode::Conflict, text);
        let first = pending.first_message;
        let mut cursor = Cursor::open(
            self.location.storage.clone(),
            &self.location.folder,
            self.recording,
            Origin::Message(first),
            CursorBound::Live(self.writer.progress()),
        )
        .map_err(|error| differs(format!("message {first}: {error}")))?;
        let mut expected = frames.iter().zip(first..).peekable();
        while expected.peek().is_some() {
            let block = cursor.next_block();
            let block = block.map_err(|error| differs(format!("message {first}: {error}")))?;
            let Some(block) = block else {
                return Err(differs(format!(
                    "message {first} is no longer in the recording"
                )));
            };
            for message in block.messages() {
                let Some((frame, number)) = expected.next() else {
                    break;
                };
                if message.payload != frame.payload || message.flags != frame.flags {
                    return Err(differs(format!(
                        "message {number} differs from the recorded one"
                    )));
                }
                let position = message.position.0;
                let length = seatrial_blocks::frame::frame_length(frame.payload.len()) as u64;
                let place = &mut self.places[index];
                if number == first {
                    place.position = position;
                }
                place.end = position + length;
            }
        }
        Ok(())
    }

    fn finish(mut self, result: Result<(), WriteFailure>, stop: bool) -> WriteResult {
        let (mut refusal, mut is_broken) = (None, false);
        match result {
            Ok(()) => {}
            Err(WriteFailure::Batch(reason)) => refusal = Some(reason),
            Err(WriteFailure::Writer(error)) => {
                tracing::error!("a recording cannot be written: {error}");
                refusal = Some(Refusal::new(RefusalCode::Disk, error.to_string()));
                is_broken = true;
                // The batches of the block that failed were not written: no place is reported for them.
                for fixup in self.fixups.drain(..) {
                    self.places[fixup.index].end = 0;
                }
                self.places.retain(|place| place.end > 0);
                let last = self.boundaries.last();
                self.next_message = last.map_or(self.first_new, |(_, message)| *message);
            }
        }
        let mut written = WriteResult {
            writer: None,
            places: self.places,
            boundaries: self.boundaries,
            next_message: self.next_message,
            end: self.end,
            durable: self.durable,
            refusal,
            is_broken,
            bytes: self.bytes,
        };
        if stop && !is_broken {
            match self.writer.stop(self.now) {
                Ok(appended) => written.durable = appended.durable,
                Err(error) => {
                    tracing::error!("a recording cannot be stopped: {error}");
                    let refusal = Refusal::new(RefusalCode::Disk, error.to_string());
                    written.refusal = Some(refusal);
                    written.is_broken = true;
                }
            }
        } else if !is_broken {
            written.writer = Some(self.writer);
        }
        written
    }
}

/// The capacity of the first block: enough for all frames of these batches, at most that of an ordinary block.
fn block_length(batches: &[PendingBatch]) -> usize {
    let frames: usize = batches.iter().map(|it| it.body().len()).sum();
    (seatrial_archive::BATCH_FRAMES_OFFSET + frames).min(seatrial_archive::BATCH_LENGTH)
}

/// A block of another archive, as received.
struct CopiedBlock<'a> {
    position: Position,
    header: BatchHeader,
    bytes: &'a [u8],
}

/// Checks the checksum of a batch.
fn check_checksum(pending: &PendingBatch) -> Result<(), WriteFailure> {
    let (computed, expected) = (crc32c(pending.body()), pending.checksum);
    if computed == expected {
        return Ok(());
    }
    let text = format!("the checksum of the messages is {computed:08x}, expected {expected:08x}");
    Err(refused(RefusalCode::WrongBatch, text))
}

/// The blocks of a batch, if their numbers are consecutive and as announced. Their contents are checked by the writer.
fn check_blocks(pending: &PendingBatch) -> Result<Vec<CopiedBlock<'_>>, WriteFailure> {
    let wrong = |text: String| refused(RefusalCode::WrongBatch, text);
    check_checksum(pending)?;
    let (mut rest, mut blocks, mut next) = (pending.body(), Vec::new(), pending.first_message);
    while let Some((position, after_position)) = rest.split_first_chunk() {
        let position = Position(u64::from_le_bytes(*position));
        let length = after_position
            .first_chunk()
            .and_then(|head| BlockHeader::decode(head).ok())
            .map(|header| header.block_length() as usize)
            .filter(|length| *length <= after_position.len())
            .ok_or_else(|| wrong(format!("the block at position {position} is incomplete")))?;
        let (bytes, after_block) = after_position.split_at(length);
        let header = batch_of(bytes)
            .map_err(|reason| wrong(format!("the block at position {position}: {reason}")))?;
        if header.first_message != next || header.messages == 0 {
            let (first, count) = (header.first_message, header.messages);
            return Err(wrong(format!(
                "the block at position {position} has {} from number {first}, expected {next}",
                counted(count.into(), "message")
            )));
        }
        next = next.saturating_add(u64::from(header.messages));
        blocks.push(CopiedBlock {
            position,
            header,
            bytes,
        });
        rest = after_block;
    }
    if !rest.is_empty() || next != pending.end() {
        let found = next.saturating_sub(pending.first_message);
        let text = format!(
            "the batch has {}, its header announces {}",
            counted(found, "message"),
            pending.messages
        );
        return Err(wrong(text));
    }
    Ok(blocks)
}

/// The frames of a batch, if they are valid and as many as announced.
fn check_frames(pending: &PendingBatch) -> Result<Vec<Frame<'_>>, WriteFailure> {
    let wrong = |text| refused(RefusalCode::WrongBatch, text);
    check_checksum(pending)?;
    let mut frames = Vec::new();
    for frame in Frames::new(pending.body()) {
        let frame = frame.map_err(|error| wrong(error.to_string()))?;
        if frame.payload.len() > MESSAGE_LENGTH_MAX {
            let length = frame.payload.len();
            let text =
                format!("a message of {length} bytes exceeds the limit of {MESSAGE_LENGTH_MAX}");
            return Err(wrong(text));
        }
        frames.push(frame);
    }
    if frames.len() != pending.messages as usize || frames.is_empty() {
        let text = format!(
            "the batch has {}, its header announces {}",
            counted(frames.len() as u64, "message"),
            pending.messages
        );
        return Err(wrong(text));
    }
    Ok(frames)
}
