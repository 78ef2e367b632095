//! Copies recordings into a running service: sends it the blocks of a source.

use crate::archive_client::{ArchiveClient, BlockBatch};
use crate::archive_operation::CopyRequest;
use crate::remote_archive::RemoteArchive;
use crate::remote_copy::{CopyError, CopySource};
use seatrial_archive::Origin;
use seatrial_archive::RecordingId;
use seatrial_archive::{BATCH_LENGTH, Position};
use seatrial_machine::{ClientDriver, Ticket};
use std::collections::VecDeque;

/// Maximum number of bytes of unconfirmed blocks, unless one batch is longer.
const IN_FLIGHT_MAX: usize = 4 << 20;

/// A copy being written into a running service: the counterpart of [`crate::CopyTarget`] over a connection.
///
/// Blocks gather in a batch; batches are sent without waiting for the confirmation of earlier ones, up to 4 MiB in flight. The
/// service appends the blocks at their positions in the source. An interrupted copy resumes at its end: the last block of the
/// copy is sent again, and the service refuses a source with a different one. The client handles lost connections and
/// restarts of the service.
///
/// While nothing is appended, the caller must call [`PushTarget::settle`] within the session timeout, or the session ends.
#[derive(Debug)]
pub struct PushTarget {
    recording: RecordingId,
    from: Origin,
    end: Position,
    /// Messages with lower numbers were in the copy before.
    first: u64,
    /// Blocks that are not sent yet.
    batch: BlockBatch,
    sent: VecDeque<InFlightBatch>,
    in_flight_bytes: usize,
    messages: u64,
    bytes: u64,
}

/// A batch without a confirmation.
#[derive(Debug)]
struct InFlightBatch {
    ticket: Ticket,
    length: usize,
}

impl PushTarget {
    /// Resumes the copy that the service has of this source, or begins one.
    pub fn begin<C: ClientDriver<ArchiveClient>>(
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
            let reason = format!("the source ends there, but the copy ends at {end}");
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
            batch: BlockBatch::new(),
            sent: VecDeque::new(),
            in_flight_bytes: 0,
            messages: 0,
            bytes: 0,
        })
    }

    /// The origin from which the source must be replayed, in whole blocks.
    pub fn from(&self) -> Origin {
        self.from
    }

    /// The confirmed end of the copy.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The number of the copy in the service.
    pub fn recording(&self) -> RecordingId {
        self.recording
    }

    /// Number of messages sent since [`PushTarget::begin`] that the copy lacked.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Bytes of the blocks of these messages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends the next block of the source, header included, with its position in the source.
    pub fn append<C: ClientDriver<ArchiveClient>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
        position: Position,
        bytes: &[u8],
    ) -> Result<(), CopyError> {
        let before = u64::from(self.batch.messages());
        let pushed = self.batch.push(position.0, bytes);
        pushed.map_err(|refusal| CopyError::Target(refusal.into()))?;
        let count = u64::from(self.batch.messages()) - before;
        if self.batch.first_message() + before >= self.first {
            self.messages += count;
            self.bytes += bytes.len() as u64;
        }
        if self.batch.length() >= BATCH_LENGTH {
            self.send(remote)?;
        }
        Ok(())
    }

    /// Sends the gathered batch.
    fn send<C: ClientDriver<ArchiveClient>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<(), CopyError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let length = self.batch.length();
        while !self.sent.is_empty() && self.in_flight_bytes + length > IN_FLIGHT_MAX {
            self.confirm(remote)?;
        }
        let ticket = remote.copy(self.recording.0, self.batch.take());
        self.sent.push_back(InFlightBatch { ticket, length });
        self.in_flight_bytes += length;
        Ok(())
    }

    /// Waits for the confirmation of the oldest batch.
    fn confirm<C: ClientDriver<ArchiveClient>>(
        &mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<(), CopyError> {
        if let Some(sent) = self.sent.pop_front() {
            self.in_flight_bytes -= sent.length;
            let place = remote.recorded(sent.ticket).map_err(CopyError::Target)?;
            self.end = Position(place.end);
        }
        Ok(())
    }

    /// Sends all appended blocks and waits until they are as durable as the source's level says. With nothing appended it keeps
    /// the session alive.
    pub fn settle<C: ClientDriver<ArchiveClient>>(
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

    /// Makes the copied blocks durable and stops the recording; it can be resumed.
    pub fn stop<C: ClientDriver<ArchiveClient>>(
        mut self,
        remote: &mut RemoteArchive<C>,
    ) -> Result<Position, CopyError> {
        self.settle(remote)?;
        let end = remote.stop(self.recording.0);
        end.map(Position).map_err(CopyError::Target)
    }
}
