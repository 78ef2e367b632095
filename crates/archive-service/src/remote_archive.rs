//! A blocking client of an archive service.

use crate::archive_answer::{
    ArchiveAnswer, Claimed, Health, RecordingDescription, Refusal, SegmentDescription,
};
use crate::archive_client::{
    ArchiveClient, BlockBatch, ClientReply, ClientRequest, FrameBatch, ReplayEnd, ReplayHandle,
    ReplayPiece,
};
use crate::archive_operation::{ArchiveOperation, CopyRequest, ListFilter, ReplayRequest};
use crate::message::BatchPlace;
use seatrial_archive::Durability;
use seatrial_machine::{ClientDriver, Ticket};
use std::collections::BTreeMap;

/// Why an operation on a remote archive failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server could not be reached in time; nothing was done.
    #[error("the archive cannot be reached")]
    Unreachable,
    /// The request was sent, but no answer arrived: it may or may not have been carried out.
    #[error("timed out; outcome unknown")]
    Unknown,
    /// The answer does not fit the operation.
    #[error("the archive's answer does not match the request")]
    Confused,
}

/// The next step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Played {
    /// Blocks.
    Piece(ReplayPiece),
    /// The end of the replay.
    Ended(ReplayEnd),
}

/// A remote archive for a blocking caller: one call for each operation; records and replays have many requests in flight.
/// `C` is the driver, for instance `seatrial_host::BlockingLink`. The [`ArchiveClient`] handles lost connections and restarts of
/// the server; the caller only sees the delay. Between calls nothing is read and nothing is sent.
#[derive(Debug)]
pub struct RemoteArchive<C> {
    driver: C,
    /// Replies that arrived before the caller waited for them: at most one for each request in flight.
    early: BTreeMap<Ticket, ClientReply>,
}

impl<C: ClientDriver<ArchiveClient>> RemoteArchive<C> {
    /// A remote archive over this driver of a [`ArchiveClient`].
    pub fn new(driver: C) -> RemoteArchive<C> {
        RemoteArchive {
            driver,
            early: BTreeMap::new(),
        }
    }

    /// The driver.
    pub fn driver(&self) -> &C {
        &self.driver
    }

    /// The reply to a request.
    fn wait(&mut self, ticket: Ticket) -> Result<ClientReply, RemoteError> {
        if let Some(reply) = self.early.remove(&ticket) {
            return Ok(reply);
        }
        loop {
            let (found, reply) = self.driver.next_reply().ok_or(RemoteError::Unreachable)?;
            if found == ticket {
                return Ok(reply);
            }
            self.early.insert(found, reply);
        }
    }

    fn call(&mut self, request: ClientRequest) -> Result<ClientReply, RemoteError> {
        let ticket = self.driver.submit(request);
        match self.wait(ticket)? {
            ClientReply::Refused(refusal) => Err(refusal.into()),
            ClientReply::Busy | ClientReply::Unreachable => Err(RemoteError::Unreachable),
            ClientReply::Unknown => Err(RemoteError::Unknown),
            reply => Ok(reply),
        }
    }

    /// Executes any operation except a replay.
    pub fn ask(&mut self, operation: ArchiveOperation) -> Result<ArchiveAnswer, RemoteError> {
        match self.call(ClientRequest::Ask(operation))? {
            ClientReply::Answer(answer) => Ok(answer),
            _ => Err(RemoteError::Confused),
        }
    }

    fn position(&mut self, operation: ArchiveOperation) -> Result<u64, RemoteError> {
        match self.ask(operation)? {
            ArchiveAnswer::Position(position) => Ok(position),
            _ => Err(RemoteError::Confused),
        }
    }

    fn claimed(&mut self, operation: ArchiveOperation) -> Result<Claimed, RemoteError> {
        match self.ask(operation)? {
            ArchiveAnswer::Claimed(claimed) => Ok(claimed),
            _ => Err(RemoteError::Confused),
        }
    }

    /// All recordings that match the filter, in the order of their numbers.
    pub fn list(&mut self, filter: &ListFilter) -> Result<Vec<RecordingDescription>, RemoteError> {
        let mut found: Vec<RecordingDescription> = Vec::new();
        loop {
            let answer = self.ask(ArchiveOperation::List {
                after: found.last().map_or(0, |last| last.recording),
                count_max: u32::MAX,
                filter: filter.clone(),
            })?;
            let ArchiveAnswer::List {
                recordings,
                has_more,
            } = answer
            else {
                return Err(RemoteError::Confused);
            };
            let is_last = !has_more || recordings.is_empty();
            found.extend(recordings);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// The description of a recording.
    pub fn describe(&mut self, recording: u64) -> Result<RecordingDescription, RemoteError> {
        match self.ask(ArchiveOperation::Describe { recording })? {
            ArchiveAnswer::Description(description) => Ok(description),
            _ => Err(RemoteError::Confused),
        }
    }

    /// The files of a recording, in order.
    pub fn segments(&mut self, recording: u64) -> Result<Vec<SegmentDescription>, RemoteError> {
        let mut found: Vec<SegmentDescription> = Vec::new();
        loop {
            let answer = self.ask(ArchiveOperation::Segments {
                recording,
                from: found.last().map_or(0, |last| last.start.saturating_add(1)),
                count_max: u32::MAX,
            })?;
            let ArchiveAnswer::Segments { segments, has_more } = answer else {
                return Err(RemoteError::Confused);
            };
            let is_last = !has_more || segments.is_empty();
            found.extend(segments);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Starts a recording; `segment_length` 0 means the server's default. With `is_resumed`, the newest recording with this
    /// label is extended instead, if there is one.
    pub fn start(
        &mut self,
        label: &str,
        segment_length: u64,
        durability: Durability,
        is_resumed: bool,
    ) -> Result<Claimed, RemoteError> {
        self.claimed(ArchiveOperation::Start {
            label: label.to_owned(),
            segment_length,
            durability,
            is_resumed,
        })
    }

    /// Extends a stopped recording.
    pub fn extend(&mut self, recording: u64) -> Result<Claimed, RemoteError> {
        self.claimed(ArchiveOperation::Extend { recording })
    }

    /// Submits a batch without waiting for its confirmation, which [`RemoteArchive::recorded`] does. If too much is in
    /// flight, the batch is returned: wait for an earlier one.
    pub fn record(&mut self, recording: u64, batch: FrameBatch) -> Ticket {
        self.driver
            .submit(ClientRequest::Record { recording, batch })
    }

    /// Begins a copy, or resumes an interrupted one.
    pub fn start_copy(&mut self, copy: CopyRequest) -> Result<Claimed, RemoteError> {
        self.claimed(ArchiveOperation::Copy(copy))
    }

    /// The same as [`RemoteArchive::record`] with blocks for a copy.
    pub fn copy(&mut self, recording: u64, batch: BlockBatch) -> Ticket {
        self.driver.submit(ClientRequest::Copy { recording, batch })
    }

    /// Waits until a batch is recorded as durably as the recording's level says.
    pub fn recorded(&mut self, ticket: Ticket) -> Result<BatchPlace, RemoteError> {
        match self.wait(ticket)? {
            ClientReply::Recorded(place) => Ok(place),
            ClientReply::Refused(refusal) => Err(refusal.into()),
            ClientReply::Busy | ClientReply::Unreachable => Err(RemoteError::Unreachable),
            ClientReply::Unknown => Err(RemoteError::Unknown),
            _ => Err(RemoteError::Confused),
        }
    }

    /// Makes everything recorded so far durable; returns its end.
    pub fn flush(&mut self, recording: u64) -> Result<u64, RemoteError> {
        self.position(ArchiveOperation::Flush { recording })
    }

    /// Stops a recording; returns its end. Unconfirmed batches are refused, so wait for them first.
    pub fn stop(&mut self, recording: u64) -> Result<u64, RemoteError> {
        self.position(ArchiveOperation::Stop { recording })
    }

    /// The health of the server.
    pub fn health(&mut self) -> Result<Health, RemoteError> {
        match self.ask(ArchiveOperation::Health)? {
            ArchiveAnswer::Health(health) => Ok(health),
            _ => Err(RemoteError::Confused),
        }
    }

    /// Begins a replay.
    pub fn play(&mut self, request: ReplayRequest) -> Result<ReplayHandle, RemoteError> {
        match self.call(ClientRequest::Play(request))? {
            ClientReply::Playing(handle) => Ok(handle),
            _ => Err(RemoteError::Confused),
        }
    }

    /// Waits for the next step of a replay. A replay that has ended is closed.
    pub fn next(&mut self, replay: ReplayHandle) -> Result<Played, RemoteError> {
        match self.call(ClientRequest::Next(replay))? {
            ClientReply::Piece(piece) => Ok(Played::Piece(piece)),
            ClientReply::Ended(end) => Ok(Played::Ended(end)),
            _ => Err(RemoteError::Confused),
        }
    }

    /// Ends a replay.
    pub fn close(&mut self, replay: ReplayHandle) -> Result<(), RemoteError> {
        self.call(ClientRequest::Close(replay)).map(drop)
    }

    /// Ends the session: the server stops the recordings of this client.
    pub fn goodbye(mut self) -> Result<(), RemoteError> {
        self.call(ClientRequest::Goodbye).map(drop)
    }
}
