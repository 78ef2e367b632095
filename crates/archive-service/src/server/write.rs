//! The job that appends to one recording.

use crate::answer::{Refusal, RefusalCode};
use crate::bug::ServiceBug;
use crate::message::{BatchForm, BatchPlace, HEADER_LENGTH, RECORD_HEADER_LENGTH};
use crate::server::job::Place;
use seatrial_archive::{AppendError, Writer};
use seatrial_archive::{Batch, Position, RecordingId};
use seatrial_archive::{BatchHeader, MESSAGE_LENGTH_MAX, batch_of};
use seatrial_archive::{Bound, Cursor, Origin};
use seatrial_blocks::block::{BlockHeader, is_same_content};
use seatrial_blocks::crc32c;
use seatrial_blocks::frame::{Frame, Frames};
use seatrial_machine::{Computed, Job, counted};

/// A batch as it came, not yet checked.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) first_message: u64,
    pub(crate) messages: u32,
    pub(crate) checksum: u32,
    pub(crate) form: BatchForm,
    /// The whole message.
    pub(crate) bytes: Vec<u8>,
}

impl Pending {
    /// Its messages.
    pub(crate) fn body(&self) -> &[u8] {
        self.bytes
            .get(HEADER_LENGTH + RECORD_HEADER_LENGTH..)
            .unwrap_or(&[])
    }

    fn end(&self) -> u64 {
        self.first_message.saturating_add(u64::from(self.messages))
    }
}

/// What a recording's writer works with. It is with the machine or with the one job under way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) writer: Writer,
}

/// Checks and writes what has come for one recording, and syncs if asked to.
pub(crate) struct WriteJob {
    pub(crate) place: Place,
    pub(crate) recording: RecordingId,
    pub(crate) lane: Box<Lane>,
    pub(crate) batches: Vec<Pending>,
    /// The number that the next message gets.
    pub(crate) next_message: u64,
    pub(crate) sync: bool,
    /// Ends the recording after everything else.
    pub(crate) stop: bool,
    /// Nanoseconds since 1970.
    pub(crate) now: u64,
    pub(crate) bug: Option<ServiceBug>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Written {
    /// `None` when it was stopped or is out of use.
    pub(crate) lane: Option<Box<Lane>>,
    pub(crate) places: Vec<BatchPlace>,
    /// Ends of what was written, with the number of the message after each.
    pub(crate) boundaries: Vec<(Position, u64)>,
    pub(crate) next_message: u64,
    pub(crate) end: Position,
    pub(crate) durable: Position,
    /// Why a batch was refused; later ones were dropped.
    pub(crate) refusal: Option<Refusal>,
    /// The writer takes nothing more.
    pub(crate) is_broken: bool,
    /// Frames that were written, in bytes.
    pub(crate) bytes: u64,
}

/// Why it goes no further.
enum Stuck {
    /// The batch is at fault.
    Batch(Refusal),
    /// The writer is.
    Writer(AppendError),
}

impl From<AppendError> for Stuck {
    fn from(error: AppendError) -> Stuck {
        Stuck::Writer(error)
    }
}

fn refused(code: RefusalCode, text: String) -> Stuck {
    Stuck::Batch(Refusal::new(code, text))
}

/// A batch whose place is not known yet: its first frame, its end, each as an offset among the frames of the block
/// that is being filled.
#[derive(Clone, Copy, Debug)]
struct Mark {
    index: usize,
    offset: usize,
    is_end: bool,
}

/// The work on one job.
struct Work {
    place: Place,
    recording: RecordingId,
    lane: Box<Lane>,
    /// The block that is being filled; recordings that wait hold none.
    batch: Batch,
    next_message: u64,
    /// The same when the job began.
    before: u64,
    now: u64,
    places: Vec<BatchPlace>,
    marks: Vec<Mark>,
    boundaries: Vec<(Position, u64)>,
    end: Position,
    durable: Position,
    bytes: u64,
}

impl Job for WriteJob {
    fn run(self: Box<Self>) -> Computed {
        let progress = self.lane.writer.progress();
        let mut work = Work {
            place: self.place,
            recording: self.recording,
            lane: self.lane,
            batch: Batch::with_capacity(block_length(&self.batches)),
            next_message: self.next_message,
            before: self.next_message,
            now: self.now,
            places: Vec::new(),
            marks: Vec::new(),
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
            // Bug: the last of several is not written.
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

impl Work {
    fn write_all(
        &mut self,
        batches: &[Pending],
        bug: Option<ServiceBug>,
        sync: bool,
    ) -> Result<(), Stuck> {
        let duplicates = bug == Some(ServiceBug::DuplicateAfterResend);
        let gaps = bug == Some(ServiceBug::GapAccepted);
        // Bug: the last of several blocks is not written.
        let loses = bug == Some(ServiceBug::CopiedBlockLost);
        let mut written = Ok(());
        for pending in batches {
            written = match pending.form {
                BatchForm::Frames => self.write(pending, duplicates, gaps),
                BatchForm::Blocks => self.copy(pending, loses),
            };
            if written.is_err() {
                break;
            }
        }
        // What came before a batch that is at fault stays.
        if !matches!(written, Err(Stuck::Writer(_))) {
            self.flush()?;
            if sync {
                self.lane.writer.sync()?;
            } else {
                self.lane.writer.tick(self.now)?;
            }
            self.durable = self.lane.writer.progress().durable();
        }
        written
    }

    /// Checks one batch and puts it into the block; what is in the recording already is compared.
    fn write(&mut self, pending: &Pending, duplicates: bool, gaps: bool) -> Result<(), Stuck> {
        let frames = check(pending)?;
        if pending.first_message > self.next_message && !gaps {
            let text = format!(
                "message {} comes next, the batch begins with {}",
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
        let mut known = 0;
        if pending.first_message < self.next_message && !duplicates {
            self.flush()?;
            known = self.next_message.min(pending.end()) - pending.first_message;
            let known = known as usize;
            if let Err(stuck) = self.compare(pending, &frames[..known], index) {
                self.places.pop();
                return Err(stuck);
            }
        }
        for (number, frame) in frames.iter().enumerate().skip(known as usize) {
            self.push(frame)?;
            if number == 0 {
                let offset = self.batch.frames().len();
                let offset = offset - seatrial_blocks::frame::frame_length(frame.payload.len());
                self.mark(index, offset, false);
            }
            self.next_message += 1;
        }
        if (known as usize) < frames.len() {
            self.mark(index, self.batch.frames().len(), true);
        }
        Ok(())
    }

    /// Checks one batch of blocks and appends them as they are; those that are there already are compared.
    fn copy(&mut self, pending: &Pending, loses: bool) -> Result<(), Stuck> {
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
            let writer = &mut self.lane.writer;
            let appended = writer.append_copied(block.position, block.bytes, self.now);
            let appended = appended.map_err(|error| match error {
                AppendError::Block { .. }
                | AppendError::Batch { .. }
                | AppendError::Next { .. } => refused(RefusalCode::Conflict, error.to_string()),
                other => Stuck::Writer(other),
            })?;
            self.next_message += u64::from(block.header.messages);
            self.bytes += block.bytes.len() as u64;
            (self.end, self.durable) = (appended.end, appended.durable);
            self.boundaries.push((self.end, self.next_message));
        }
        self.places.push(place);
        Ok(())
    }

    /// Compares a block with the one in the recording under its numbers.
    fn compare_block(&self, block: &CopiedBlock<'_>) -> Result<(), Stuck> {
        let differs = |reason: &dyn std::fmt::Display| {
            let text = format!("the copy differs at {}: {reason}", block.position);
            refused(RefusalCode::Conflict, text)
        };
        let mut cursor = Cursor::open(
            self.place.storage.clone(),
            &self.place.folder,
            self.recording,
            Origin::Message(block.header.first_message),
            Bound::Live(self.lane.writer.progress()),
        )
        .map_err(|error| differs(&error))?;
        match cursor.next_block().map_err(|error| differs(&error))? {
            Some(found)
                if found.stored().1 == block.position
                    && is_same_content(found.stored().0, block.bytes) =>
            {
                Ok(())
            }
            _ => Err(differs(&"the blocks there are not the same")),
        }
    }

    fn mark(&mut self, index: usize, offset: usize, is_end: bool) {
        self.marks.push(Mark {
            index,
            offset,
            is_end,
        });
    }

    fn push(&mut self, frame: &Frame<'_>) -> Result<(), Stuck> {
        if self.offer(frame) {
            return Ok(());
        }
        self.flush()?;
        if self.offer(frame) {
            return Ok(());
        }
        self.batch = Batch::for_message(frame.payload.len());
        if self.offer(frame) {
            return Ok(());
        }
        let text = format!("a message of {} bytes", frame.payload.len());
        Err(refused(RefusalCode::WrongBatch, text))
    }

    fn offer(&mut self, frame: &Frame<'_>) -> bool {
        let batch = &mut self.batch;
        if frame.is_checksummed {
            batch.push_checksummed(frame.flags, frame.payload)
        } else {
            batch.push(frame.flags, frame.payload)
        }
    }

    /// Writes the block that is being filled.
    fn flush(&mut self) -> Result<(), Stuck> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.bytes += self.batch.frames().len() as u64;
        let appended = self.lane.writer.append_block(&mut self.batch, self.now)?;
        if self.batch.capacity() > seatrial_archive::BATCH_LENGTH {
            self.batch = Batch::default(); // frees the memory of a long message
        }
        for mark in self.marks.drain(..) {
            let position = appended.first.plus(mark.offset as u64).0;
            let place = &mut self.places[mark.index];
            if mark.is_end {
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

    /// Compares frames with what is in the recording under their numbers, and finds their place.
    fn compare(
        &mut self,
        pending: &Pending,
        frames: &[Frame<'_>],
        index: usize,
    ) -> Result<(), Stuck> {
        let differs = |text: String| refused(RefusalCode::Conflict, text);
        let first = pending.first_message;
        let mut cursor = Cursor::open(
            self.place.storage.clone(),
            &self.place.folder,
            self.recording,
            Origin::Message(first),
            Bound::Live(self.lane.writer.progress()),
        )
        .map_err(|error| differs(format!("message {first}: {error}")))?;
        let mut expected = frames.iter().zip(first..).peekable();
        while expected.peek().is_some() {
            let block = cursor.next_block();
            let block = block.map_err(|error| differs(format!("message {first}: {error}")))?;
            let Some(block) = block else {
                return Err(differs(format!("message {first} is not there any more")));
            };
            for message in block.messages() {
                let Some((frame, number)) = expected.next() else {
                    break;
                };
                if message.payload != frame.payload || message.flags != frame.flags {
                    return Err(differs(format!("message {number} is another one")));
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

    fn finish(mut self, result: Result<(), Stuck>, stop: bool) -> Written {
        let (mut refusal, mut is_broken) = (None, false);
        match result {
            Ok(()) => {}
            Err(Stuck::Batch(why)) => refusal = Some(why),
            Err(Stuck::Writer(error)) => {
                tracing::error!("a recording cannot be written: {error}");
                refusal = Some(Refusal::new(RefusalCode::Disk, error.to_string()));
                is_broken = true;
                // Batches that were not written have no place.
                for mark in self.marks.drain(..) {
                    self.places[mark.index].end = 0;
                }
                self.places.retain(|place| place.end > 0);
                let last = self.boundaries.last();
                self.next_message = last.map_or(self.before, |(_, message)| *message);
            }
        }
        let mut written = Written {
            lane: None,
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
            match self.lane.writer.stop(self.now) {
                Ok(appended) => written.durable = appended.durable,
                Err(error) => {
                    tracing::error!("a recording cannot be stopped: {error}");
                    let refusal = Refusal::new(RefusalCode::Disk, error.to_string());
                    written.refusal = Some(refusal);
                    written.is_broken = true;
                }
            }
        } else if !is_broken {
            written.lane = Some(self.lane);
        }
        written
    }
}

/// The length of a block for all frames of these batches, or that of a usual one.
fn block_length(batches: &[Pending]) -> usize {
    let frames: usize = batches.iter().map(|it| it.body().len()).sum();
    (seatrial_archive::BATCH_FRAMES_OFFSET + frames).min(seatrial_archive::BATCH_LENGTH)
}

/// A block of another archive, as it came.
struct CopiedBlock<'a> {
    position: Position,
    header: BatchHeader,
    bytes: &'a [u8],
}

/// The checksum of what came is the one that was sent with it.
fn check_sum(pending: &Pending) -> Result<(), Stuck> {
    let (found, said) = (crc32c(pending.body()), pending.checksum);
    if found == said {
        return Ok(());
    }
    let text = format!("checksum of the messages is {found:08x}, the batch says {said:08x}");
    Err(refused(RefusalCode::WrongBatch, text))
}

/// The blocks of a batch, if they are what the message says. What is inside is checked where they are appended.
fn check_blocks(pending: &Pending) -> Result<Vec<CopiedBlock<'_>>, Stuck> {
    let wrong = |text: String| refused(RefusalCode::WrongBatch, text);
    check_sum(pending)?;
    let (mut rest, mut blocks, mut next) = (pending.body(), Vec::new(), pending.first_message);
    while let Some((position, behind)) = rest.split_first_chunk() {
        let position = Position(u64::from_le_bytes(*position));
        let length = behind
            .first_chunk()
            .and_then(|head| BlockHeader::decode(head).ok())
            .map(|header| header.block_length() as usize)
            .filter(|length| *length <= behind.len())
            .ok_or_else(|| wrong(format!("the block at position {position} is cut")))?;
        let (bytes, behind) = behind.split_at(length);
        let header = batch_of(bytes)
            .map_err(|reason| wrong(format!("the block at position {position}: {reason}")))?;
        if header.first_message != next || header.messages == 0 {
            let (first, count) = (header.first_message, header.messages);
            return Err(wrong(format!(
                "{} from {first} on at {position}, {next} comes next",
                counted(count.into(), "message")
            )));
        }
        next = next.saturating_add(u64::from(header.messages));
        blocks.push(CopiedBlock {
            position,
            header,
            bytes,
        });
        rest = behind;
    }
    if !rest.is_empty() || next != pending.end() {
        let text = format!(
            "the message announces {}",
            counted(pending.messages.into(), "message")
        );
        return Err(wrong(text));
    }
    Ok(blocks)
}

/// The frames of a batch, if they are what the message says.
fn check(pending: &Pending) -> Result<Vec<Frame<'_>>, Stuck> {
    let wrong = |text| refused(RefusalCode::WrongBatch, text);
    check_sum(pending)?;
    let mut frames = Vec::new();
    for frame in Frames::new(pending.body()) {
        let frame = frame.map_err(|error| wrong(error.to_string()))?;
        if frame.payload.len() > MESSAGE_LENGTH_MAX {
            return Err(wrong(format!("a message of {} bytes", frame.payload.len())));
        }
        frames.push(frame);
    }
    if frames.len() != pending.messages as usize || frames.is_empty() {
        let text = format!(
            "{}, announced: {}",
            counted(frames.len() as u64, "message"),
            pending.messages
        );
        return Err(wrong(text));
    }
    Ok(frames)
}
