//! Batches to be recorded, and the state of a client for one claimed recording.

use crate::archive_answer::{Claimed, Refusal, RefusalCode};
use crate::archive_client::ClientReply;
use crate::message::{BatchForm, BatchPlace, ClientMessage, RecordProgress};
use seatrial_archive::Durability;
use seatrial_blocks::crc32c;
use seatrial_machine::{Output, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// A batch of messages to be recorded: frames back to back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameBatch {
    frames: Vec<u8>,
    messages: u32,
}

impl FrameBatch {
    /// An empty batch.
    pub fn new() -> FrameBatch {
        FrameBatch::default()
    }

    /// Appends a message with the application's `flags` (0 to 7). With `checksum` its frame gets a CRC-32C of its own.
    ///
    /// Panics when the message is longer than [`seatrial_archive::MESSAGE_LENGTH_MAX`] or `flags` above 7.
    pub fn push(&mut self, flags: u32, message: &[u8], checksum: bool) {
        assert!(
            message.len() <= seatrial_archive::MESSAGE_LENGTH_MAX,
            "{}",
            message.len()
        );
        if checksum {
            seatrial_blocks::frame::write_checksummed(&mut self.frames, flags, message);
        } else {
            seatrial_blocks::frame::write(&mut self.frames, flags, message);
        }
        self.messages += 1;
    }

    /// Number of messages.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Length of the frames in bytes.
    pub fn length(&self) -> usize {
        self.frames.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Returns the contents and leaves an empty batch.
    pub fn take(&mut self) -> FrameBatch {
        std::mem::take(self)
    }
}

/// Consecutive blocks of another archive's recording, to be appended to a copy unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockBatch {
    body: Vec<u8>,
    first_message: u64,
    messages: u32,
}

impl BlockBatch {
    /// An empty batch.
    pub fn new() -> BlockBatch {
        BlockBatch::default()
    }

    /// Appends a block, header included, with its position in the source. Refused unless it is a batch of messages that
    /// continues the previous block.
    pub fn push(&mut self, position: u64, block: &[u8]) -> Result<(), Refusal> {
        let header = seatrial_archive::batch_of(block).map_err(|reason| {
            let text = format!("the block at position {position}: {reason}");
            Refusal::new(RefusalCode::WrongBatch, text)
        })?;
        if self.is_empty() {
            self.first_message = header.first_message;
        }
        let next = self.first_message.wrapping_add(u64::from(self.messages));
        let messages = self.messages.checked_add(header.messages);
        let Some(messages) = messages.filter(|_| next == header.first_message) else {
            let first = header.first_message;
            let text = format!(
                "the block at position {position} begins with message {first}, expected {next}"
            );
            return Err(Refusal::new(RefusalCode::WrongBatch, text));
        };
        self.messages = messages;
        self.body.extend_from_slice(&position.to_le_bytes());
        self.body.extend_from_slice(block);
        Ok(())
    }

    /// Number of the first message.
    pub fn first_message(&self) -> u64 {
        self.first_message
    }

    /// Number of messages.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Length of the blocks in bytes, with 8 for the position of each.
    pub fn length(&self) -> usize {
        self.body.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Returns the contents and leaves an empty batch.
    pub fn take(&mut self) -> BlockBatch {
        std::mem::take(self)
    }
}

/// The contents of a batch, of either form, as sent.
#[derive(Debug)]
pub(crate) struct BatchBody {
    form: BatchForm,
    body: Vec<u8>,
    messages: u32,
    /// The number of its first message; `None`: the next number of the recording.
    first_message: Option<u64>,
}

impl BatchBody {
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    pub(crate) fn length(&self) -> usize {
        self.body.len()
    }
}

impl From<FrameBatch> for BatchBody {
    fn from(batch: FrameBatch) -> BatchBody {
        BatchBody {
            form: BatchForm::Frames,
            body: batch.frames,
            messages: batch.messages,
            first_message: None,
        }
    }
}

impl From<BlockBatch> for BatchBody {
    fn from(batch: BlockBatch) -> BatchBody {
        BatchBody {
            form: BatchForm::Blocks,
            body: batch.body,
            messages: batch.messages,
            first_message: Some(batch.first_message),
        }
    }
}

/// A batch without a confirmation. Its `place` is known once it is written.
#[derive(Debug)]
struct UnconfirmedBatch {
    ticket: Ticket,
    first_message: u64,
    load: BatchBody,
    place: Option<BatchPlace>,
}

impl UnconfirmedBatch {
    fn end(&self) -> u64 {
        self.first_message
            .saturating_add(u64::from(self.load.messages))
    }
}

/// A recording claimed by a client: the queue of its unconfirmed batches.
///
/// Each batch gets the next message numbers. Batches are sent in order within the window; after a retry interval without
/// progress they are sent again from the first batch on. A batch is confirmed when its place is known and the recording's
/// durability level is satisfied. After a lost session the recording is claimed again and all batches are sent again; the
/// server compares those that it has.
#[derive(Debug)]
pub(crate) struct ClaimedRecording {
    pub(crate) recording: u64,
    /// `None` while it has to be claimed again.
    pub(crate) claim: Option<u64>,
    /// The pending request to claim it again.
    pub(crate) reclaim: Option<u64>,
    pub(crate) reclaim_at: Option<Time>,
    durability: Durability,
    /// The number of the first message of the next batch.
    next_message: u64,
    /// Messages with lower numbers are confirmed.
    confirmed: u64,
    unconfirmed: VecDeque<UnconfirmedBatch>,
    /// Was any batch pushed since the first claim?
    has_batches: bool,
    /// Number of batches at the front that were sent since the claim or the last timeout.
    sent: usize,
    /// Bytes of all unconfirmed batches.
    pub(crate) bytes: usize,
    retry_at: Option<Time>,
}

impl ClaimedRecording {
    pub(crate) fn new(claimed: &Claimed) -> ClaimedRecording {
        ClaimedRecording {
            recording: claimed.recording,
            claim: Some(claimed.claim),
            reclaim: None,
            reclaim_at: None,
            durability: claimed.durability,
            next_message: claimed.next_message,
            confirmed: claimed.next_message,
            unconfirmed: VecDeque::new(),
            has_batches: false,
            sent: 0,
            bytes: 0,
            retry_at: None,
        }
    }

    /// Queues a batch. Refused unless its messages are the next ones; the first blocks of a copy may also be blocks that
    /// the copy has, to be compared.
    pub(crate) fn push(&mut self, ticket: Ticket, load: BatchBody) -> Result<(), Refusal> {
        let next = self.next_message;
        let first_message = load.first_message.unwrap_or(next);
        if first_message != next && (first_message > next || self.has_batches) {
            let text = format!("expected message {next}, the batch begins with {first_message}");
            return Err(Refusal::new(RefusalCode::WrongBatch, text));
        }
        self.has_batches = true;
        self.next_message = first_message.saturating_add(u64::from(load.messages));
        self.bytes += load.body.len();
        self.unconfirmed.push_back(UnconfirmedBatch {
            ticket,
            first_message,
            load,
            place: None,
        });
        Ok(())
    }

    /// Number of unconfirmed batches.
    pub(crate) fn pending(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Forgets the claim of a lost session.
    pub(crate) fn on_session_lost(&mut self) {
        self.claim = None;
        self.reclaim = None;
        self.reclaim_at = None;
        self.retry_at = None;
    }

    /// Continues under a new claim. Refused if the recording lacks confirmed messages.
    pub(crate) fn reclaimed(&mut self, claimed: &Claimed) -> Result<(), Refusal> {
        if claimed.next_message < self.confirmed {
            let text = format!(
                "messages {} to {} of recording {} are missing although they were confirmed",
                claimed.next_message,
                self.confirmed - 1,
                self.recording
            );
            return Err(Refusal::new(RefusalCode::Damaged, text));
        }
        self.claim = Some(claimed.claim);
        self.rewind();
        Ok(())
    }

    /// Marks all batches as not sent: the messages of a known place may be lost, if they were not durable.
    fn rewind(&mut self) {
        self.sent = 0;
        self.retry_at = None;
        for batch in &mut self.unconfirmed {
            batch.place = None;
        }
    }

    /// Sends the next batches that fit the window; true if any.
    pub(crate) fn send(
        &mut self,
        session: u64,
        window_bytes: usize,
        mut send: impl FnMut(Vec<u8>),
    ) -> bool {
        let Some(claim) = self.claim else {
            return false;
        };
        let under_way = self.unconfirmed.iter().take(self.sent);
        let mut bytes: usize = under_way
            .filter(|batch| batch.place.is_none())
            .map(|batch| batch.load.body.len())
            .sum();
        let mut has_sent = false;
        while let Some(next) = self.unconfirmed.get(self.sent) {
            let length = next.load.body.len();
            if next.place.is_none() {
                if bytes > 0 && bytes + length > window_bytes {
                    break;
                }
                bytes += length;
                has_sent = true;
                send(record_message(session, claim, next));
            }
            self.sent += 1;
        }
        has_sent
    }

    /// Applies the progress that the server reports, and answers the batches that it confirms.
    pub(crate) fn on_progress(
        &mut self,
        reached: &RecordProgress,
        places: &[BatchPlace],
        out: &mut Vec<Output<ClientReply>>,
    ) {
        for place in places {
            let found = self
                .unconfirmed
                .binary_search_by_key(&place.first_message, |batch| batch.first_message);
            if let Ok(index) = found {
                self.unconfirmed[index].place = Some(*place);
            }
        }
        let confirmed = match self.durability {
            Durability::None => reached.written_message,
            Durability::Group { .. } | Durability::Batch => reached.durable_message,
        };
        while let Some(batch) = self.unconfirmed.front()
            && batch.end() <= confirmed
            && let Some(place) = batch.place
            && let Some(batch) = self.unconfirmed.pop_front()
        {
            self.bytes -= batch.load.body.len();
            self.sent = self.sent.saturating_sub(1);
            self.confirmed = self.confirmed.max(batch.end());
            let reply = ClientReply::Recorded(place);
            out.push(Output::Reply(batch.ticket, reply));
        }
    }

    /// Schedules the next retry while confirmations are missing; progress postpones it.
    pub(crate) fn schedule_retry(&mut self, now: Time, interval: Duration, has_progressed: bool) {
        let mut under_way = self.unconfirmed.iter().take(self.sent);
        let is_missing = self.claim.is_some() && !self.unconfirmed.is_empty();
        let waits = is_missing && (under_way.any(|batch| batch.place.is_none()) || self.sent > 0);
        self.retry_at = match self.retry_at {
            _ if !waits => None,
            Some(planned) if !has_progressed => Some(planned),
            _ => Some(now + interval),
        };
    }

    /// Makes all batches due again if the retry time has passed.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            // Known places stay, except the first: its batch is sent again to get a report of the progress.
            self.sent = 0;
            if let Some(first) = self.unconfirmed.front_mut() {
                first.place = None;
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let again = self.retry_at;
        [again, self.reclaim_at].into_iter().flatten().min()
    }

    /// Makes a scheduled retry due now.
    pub(crate) fn retry_now(&mut self, now: Time) {
        if self.retry_at.is_some() {
            self.retry_at = Some(now);
        }
    }

    /// Refuses all unconfirmed batches.
    pub(crate) fn fail(&mut self, refusal: &Refusal, out: &mut Vec<Output<ClientReply>>) {
        for batch in self.unconfirmed.drain(..) {
            let reply = ClientReply::Refused(refusal.clone());
            out.push(Output::Reply(batch.ticket, reply));
        }
        self.sent = 0;
        self.bytes = 0;
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.sent <= self.unconfirmed.len());
        let bytes: usize = self.unconfirmed.iter().map(|it| it.load.body.len()).sum();
        assert_eq!(bytes, self.bytes);
        let numbers = self.unconfirmed.iter().map(|it| it.first_message);
        assert!(numbers.is_sorted());
    }
}

fn record_message(session: u64, claim: u64, batch: &UnconfirmedBatch) -> Vec<u8> {
    let body = &batch.load.body;
    ClientMessage::Record {
        session,
        claim,
        first_message: batch.first_message,
        messages: batch.load.messages,
        checksum: crc32c(body),
        form: batch.load.form,
        body,
    }
    .encode()
}
