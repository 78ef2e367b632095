//! Copies recordings into a running service: sends it the blocks of a source.

use crate::client::{BlockBatch, Client};
use crate::copy::{CopyError, CopySource};
use crate::operation::CopyRequest;
use crate::remote::RemoteArchive;
use seatrial_archive::Origin;
use seatrial_archive::RecordingId;
use seatrial_archive::{BATCH_LENGTH, Position};
use seatrial_machine::{ClientDriver, Ticket};
use std::collections::VecDeque;

/// Bytes of blocks that are sent and not confirmed, unless one batch is longer.
const UNDER_WAY_MAX: usize = 4 << 20;

/// A recording of a running service that is a copy, being written: the counterpart of [`crate::CopyTarget`] for a
/// destination behind a connection. Blocks are gathered, and sent without waiting for those before; the service appends
/// them at the positions that they have in the source. Begun again after whatever interruption, it goes on at the copy's
/// end: first it wants the last block that the copy has once more, and the service refuses the source if that is another
/// one. Connections that are lost, and a service that starts again, are the client's business.
///
/// Its downside: while nothing is appended, the caller has to call [`PushTarget::settle`] now and then, or the session ends.
#[derive(Debug)]
pub struct PushTarget {
    recording: RecordingId,
    from: Origin,
    end: Position,
    /// Messages with lower numbers were in the copy before.
    first: u64,
    gathered: BlockBatch,
    sent: VecDeque<Sent>,
    under_way: usize,
    messages: u64,
    bytes: u64,
}

/// What was sent and is not confirmed.
#[derive(Debug)]
struct Sent {
    ticket: Ticket,
    length: usize,
}

impl PushTarget {
    /// Goes on with the copy that the service has of this source, or makes one.
    pub fn begin<C: ClientDriver<Client>>(
        remote: &mut RemoteArchive<C>,
        source: &CopySource,
    ) -> Result<PushTarget, CopyError> {
        let options = &source.options;
        let claimed = remote.start_copy(CopyRequest {
            source: source.source.clone(),
            label: options.label.clone(),
            segment_length: options.segment_length,
            durability: options.durability,
            start: source.start,
        });
        let claimed = claimed.map_err(CopyError::Target)?;
        let copy = remote
            .describe(claimed.recording)
            .map_err(CopyError::Target)?;
        let recording = RecordingId(claimed.recording);
        let end = Position(claimed.position);
        if source.end.position < end && claimed.next_message > source.end.message {
            let reason = format!("the source ends there, the copy at {end}");
            // The claim blocks other writers until this session ends.
            remote.stop(recording.0).map_err(CopyError::Target)?;
            return Err(CopyError::Differs {
                recording,
                position: source.end.position,
                reason,
            });
        }
        let from = if claimed.next_message > copy.start.message {
            Origin::Message(claimed.next_message - 1)
        } else {
            Origin::Position(end)
        };
        Ok(PushTarget {
            recording,
            from,
            end,
            first: claimed.next_message,
            gathered: BlockBatch::new(),
            sent: VecDeque::new(),
            under_way: 0,
            messages: 0,
            bytes: 0,
        })
    }

    /// From where on the source has to be replayed, whole blocks.
    pub fn from(&self) -> Origin {
        self.from
    }

    /// The confirmed end of the copy.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The copy's number there.
    pub fn recording(&self) -> RecordingId {
        self.recording
    }

    /// Messages sent since [`PushTarget::begin`] that were not there.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Bytes of their blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next block of the source, whole, with its position there.
    pub fn append<C: ClientDriver<Client>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
        position: Position,
        bytes: &[u8],
    ) -> Result<(), CopyError> {
        let before = u64::from(self.gathered.messages());
        let pushed = self.gathered.push(position.0, bytes);
        pushed.map_err(|refusal| CopyError::Target(refusal.into()))?;
        let count = u64::from(self.gathered.messages()) - before;
        if self.gathered.first_message() + before >= self.first {
            self.messages += count;
            self.bytes += bytes.len() as u64;
        }
        if self.gathered.length() >= BATCH_LENGTH {
            self.send(remote)?;
        }
        Ok(())
    }

    /// Sends what is gathered.
    fn send<C: ClientDriver<Client>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<(), CopyError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let length = self.gathered.length();
        while !self.sent.is_empty() && self.under_way + length > UNDER_WAY_MAX {
            self.confirm(remote)?;
        }
        let ticket = remote.copy(self.recording.0, self.gathered.take());
        self.sent.push_back(Sent { ticket, length });
        self.under_way += length;
        Ok(())
    }

    /// Waits for the oldest batch.
    fn confirm<C: ClientDriver<Client>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<(), CopyError> {
        if let Some(sent) = self.sent.pop_front() {
            self.under_way -= sent.length;
            let place = remote.recorded(sent.ticket).map_err(CopyError::Target)?;
            self.end = Position(place.end);
        }
        Ok(())
    }

    /// Sends what was appended, and waits until it is confirmed: as durable as the source's level says. With nothing
    /// appended it tells the service that this client is still there.
    pub fn settle<C: ClientDriver<Client>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<(), CopyError> {
        self.send(remote)?;
        if self.sent.is_empty() {
            remote.health().map_err(CopyError::Target)?;
        }
        while !self.sent.is_empty() {
            self.confirm(remote)?;
        }
        Ok(())
    }

    /// Makes what was copied durable, and ends the copy for now.
    pub fn stop<C: ClientDriver<Client>>(
        mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<Position, CopyError> {
        self.settle(remote)?;
        let end = remote.stop(self.recording.0);
        end.map(Position).map_err(CopyError::Target)
    }
}
