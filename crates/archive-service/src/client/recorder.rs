//! State of a client for one recording.

use crate::answer::{Claimed, Refusal, RefusalCode};
use crate::client::ClientReply;
use crate::message::{BatchForm, BatchPlace, ClientMessage, Reached};
use seatrial_archive::Durability;
use seatrial_blocks::crc32c;
use seatrial_machine::{Output, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Messages to be recorded: frames back to back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameBatch {
    frames: Vec<u8>,
    messages: u32,
}

impl FrameBatch {
    /// No messages.
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

    /// Messages in it.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Bytes of its frames.
    pub fn length(&self) -> usize {
        self.frames.len()
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Takes all out, and leaves it empty.
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
    /// No blocks.
    pub fn new() -> BlockBatch {
        BlockBatch::default()
    }

    /// Takes the next block, whole, with its position. An error: it is not a batch, or not the one behind those that are in.
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
            let text =
                format!("the block at position {position} begins with message {first}, not {next}");
            return Err(Refusal::new(RefusalCode::WrongBatch, text));
        };
        self.messages = messages;
        self.body.extend_from_slice(&position.to_le_bytes());
        self.body.extend_from_slice(block);
        Ok(())
    }

    /// The number of the first message in it.
    pub fn first_message(&self) -> u64 {
        self.first_message
    }

    /// Messages in it.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Bytes of its blocks, with 8 for each one's position.
    pub fn length(&self) -> usize {
        self.body.len()
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Takes all out, and leaves it empty.
    pub fn take(&mut self) -> BlockBatch {
        std::mem::take(self)
    }
}

/// What is sent of a batch.
#[derive(Debug)]
pub(crate) struct Load {
    form: BatchForm,
    body: Vec<u8>,
    messages: u32,
    /// The number of its first message, when that is given.
    first_message: Option<u64>,
}

impl Load {
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    pub(crate) fn length(&self) -> usize {
        self.body.len()
    }
}

impl From<FrameBatch> for Load {
    fn from(batch: FrameBatch) -> Load {
        Load {
            form: BatchForm::Frames,
            body: batch.frames,
            messages: batch.messages,
            first_message: None,
        }
    }
}

impl From<BlockBatch> for Load {
    fn from(batch: BlockBatch) -> Load {
        Load {
            form: BatchForm::Blocks,
            body: batch.body,
            messages: batch.messages,
            first_message: Some(batch.first_message),
        }
    }
}

/// A batch without a confirmation.
#[derive(Debug)]
struct Sent {
    ticket: Ticket,
    first_message: u64,
    load: Load,
    place: Option<BatchPlace>,
}

impl Sent {
    fn end(&self) -> u64 {
        self.first_message
            .saturating_add(u64::from(self.load.messages))
    }
}

/// What a client has under way for one recording that it has claimed. It gives every batch its number; batches are sent in order
/// within the window, and again from the first one without a place when nothing has come back for a while. A batch is
/// confirmed when its place is known and the recording's durability level is satisfied.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) recording: u64,
    /// `None` while it has to be claimed again.
    pub(crate) claim: Option<u64>,
    /// The request by which it is claimed again.
    pub(crate) reclaim: Option<u64>,
    pub(crate) reclaim_at: Option<Time>,
    durability: Durability,
    /// The number that the next batch gets.
    next_message: u64,
    /// Messages with lower numbers are confirmed.
    confirmed: u64,
    unconfirmed: VecDeque<Sent>,
    /// Has any batch been taken in since it was claimed first?
    has_begun: bool,
    /// How many of them were sent since the claim or the last time-out.
    sent: usize,
    /// Bytes of all unconfirmed.
    pub(crate) bytes: usize,
    again_at: Option<Time>,
}

impl Recorder {
    pub(crate) fn new(claimed: &Claimed) -> Recorder {
        Recorder {
            recording: claimed.recording,
            claim: Some(claimed.claim),
            reclaim: None,
            reclaim_at: None,
            durability: claimed.durability,
            next_message: claimed.next_message,
            confirmed: claimed.next_message,
            unconfirmed: VecDeque::new(),
            has_begun: false,
            sent: 0,
            bytes: 0,
            again_at: None,
        }
    }

    /// Takes a batch in. The refusal: its messages are not the next ones. Only the first blocks that a copy is sent may
    /// be some that it has, to be compared.
    pub(crate) fn push(&mut self, ticket: Ticket, load: Load) -> Result<(), Refusal> {
        let next = self.next_message;
        let first_message = load.first_message.unwrap_or(next);
        if first_message != next && (first_message > next || self.has_begun) {
            let text = format!("message {next} comes next, the batch begins with {first_message}");
            return Err(Refusal::new(RefusalCode::WrongBatch, text));
        }
        self.has_begun = true;
        self.next_message = first_message.saturating_add(u64::from(load.messages));
        self.bytes += load.body.len();
        self.unconfirmed.push_back(Sent {
            ticket,
            first_message,
            load,
            place: None,
        });
        Ok(())
    }

    /// Batches without a confirmation.
    pub(crate) fn pending(&self) -> usize {
        self.unconfirmed.len()
    }

    /// The session is gone, and the claim with it.
    pub(crate) fn lose(&mut self) {
        self.claim = None;
        self.reclaim = None;
        self.reclaim_at = None;
        self.again_at = None;
    }

    /// It is claimed again. The refusal: confirmed messages are lost.
    pub(crate) fn reclaimed(&mut self, claimed: &Claimed) -> Result<(), Refusal> {
        if claimed.next_message < self.confirmed {
            let text = format!(
                "messages {} to {} of recording {} were confirmed, and are lost",
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

    /// Everything without a confirmation will be sent again: a place that is known may have been lost.
    fn rewind(&mut self) {
        self.sent = 0;
        self.again_at = None;
        for sent in &mut self.unconfirmed {
            sent.place = None;
        }
    }

    /// Sends what fits the window.
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
            .filter(|sent| sent.place.is_none())
            .map(|sent| sent.load.body.len())
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
                send(message(session, claim, next));
            }
            self.sent += 1;
        }
        has_sent
    }

    /// What the server says has happened; answers what is confirmed by it.
    pub(crate) fn reached(
        &mut self,
        reached: &Reached,
        places: &[BatchPlace],
        out: &mut Vec<Output<ClientReply>>,
    ) {
        for place in places {
            let found = self
                .unconfirmed
                .binary_search_by_key(&place.first_message, |sent| sent.first_message);
            if let Ok(index) = found {
                self.unconfirmed[index].place = Some(*place);
            }
        }
        let confirmed = match self.durability {
            Durability::None => reached.written_message,
            Durability::Group { .. } | Durability::Batch => reached.durable_message,
        };
        while let Some(sent) = self.unconfirmed.front()
            && sent.end() <= confirmed
            && let Some(place) = sent.place
            && let Some(sent) = self.unconfirmed.pop_front()
        {
            self.bytes -= sent.load.body.len();
            self.sent = self.sent.saturating_sub(1);
            self.confirmed = self.confirmed.max(sent.end());
            let reply = ClientReply::Recorded(place);
            out.push(Output::Reply(sent.ticket, reply));
        }
    }

    /// Plans the next look for answers that did not come, as long as some are missing.
    pub(crate) fn plan(&mut self, now: Time, interval: Duration, has_progressed: bool) {
        let mut under_way = self.unconfirmed.iter().take(self.sent);
        let is_missing = self.claim.is_some() && !self.unconfirmed.is_empty();
        let waits = is_missing && (under_way.any(|sent| sent.place.is_none()) || self.sent > 0);
        self.again_at = match self.again_at {
            _ if !waits => None,
            Some(planned) if !has_progressed => Some(planned),
            _ => Some(now + interval),
        };
    }

    /// Sends again, from the first batch without a place, when it is time.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            // Known places stay: their batches wait for a sync, or for the message that reports it.
            self.sent = 0;
            if let Some(first) = self.unconfirmed.front_mut() {
                first.place = None;
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let again = self.again_at;
        [again, self.reclaim_at].into_iter().flatten().min()
    }

    /// The connection is gone or new: what is missing is sent again at once.
    pub(crate) fn hurry(&mut self, now: Time) {
        if self.again_at.is_some() {
            self.again_at = Some(now);
        }
    }

    /// Gives everything up.
    pub(crate) fn fail(&mut self, refusal: &Refusal, out: &mut Vec<Output<ClientReply>>) {
        for sent in self.unconfirmed.drain(..) {
            let reply = ClientReply::Refused(refusal.clone());
            out.push(Output::Reply(sent.ticket, reply));
        }
        self.sent = 0;
        self.bytes = 0;
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.sent <= self.unconfirmed.len());
        let bytes: usize = self.unconfirmed.iter().map(|it| it.load.body.len()).sum();
        assert_eq!(bytes, self.bytes);
    }
}

fn message(session: u64, claim: u64, sent: &Sent) -> Vec<u8> {
    let body = &sent.load.body;
    ClientMessage::Record {
        session,
        claim,
        first_message: sent.first_message,
        messages: sent.load.messages,
        checksum: crc32c(body),
        form: sent.load.form,
        body,
    }
    .encode()
}
