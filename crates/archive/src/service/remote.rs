//! An archive behind a connection, for callers that block.

use crate::recording::Durability;
use crate::service::answer::{Answer, Claimed, Description, Health, Refusal, SegmentDescription};
use crate::service::client::{
    BlockBatch, Client, ClientReply, ClientRequest, FrameBatch, ReplayEnd, ReplayHandle,
    ReplayPiece,
};
use crate::service::message::BatchPlace;
use crate::service::operation::{CopyRequest, ListFilter, Operation, ReplayRequest};
use seatrial_machine::{Conversation, Ticket};
use std::collections::BTreeMap;

/// Why a remote archive did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server was not there in time; nothing was done.
    #[error("the archive cannot be reached")]
    Unreachable,
    /// It was sent, and may have been done or not.
    #[error("no answer came; it may have been done or not")]
    Unknown,
    /// The answer is not one to the question.
    #[error("the archive answered something else than was asked")]
    Confused,
}

/// The next of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Played {
    /// Blocks.
    Piece(ReplayPiece),
    /// There is no more.
    Ended(ReplayEnd),
}

/// An archive behind a connection, for a caller that blocks: one call for each operation, and records and replays with many
/// requests under way. `C` is the driver, for instance `seatrial_host::BlockingLink`. Lost connections and restarts of the
/// server are the client's business ([`Client`]); the caller notices the time that they take.
///
/// Its downside: while the caller does something else, nothing is read and nothing is sent.
#[derive(Debug)]
pub struct RemoteArchive<C> {
    conversation: C,
    /// Replies that came before they were asked for: at most one per request under way.
    early: BTreeMap<Ticket, ClientReply>,
}

impl<C: Conversation<Client>> RemoteArchive<C> {
    /// Over this conversation.
    pub fn new(conversation: C) -> RemoteArchive<C> {
        RemoteArchive {
            conversation,
            early: BTreeMap::new(),
        }
    }

    /// The driver.
    pub fn conversation(&self) -> &C {
        &self.conversation
    }

    /// The reply to a request.
    fn wait(&mut self, ticket: Ticket) -> Result<ClientReply, RemoteError> {
        if let Some(reply) = self.early.remove(&ticket) {
            return Ok(reply);
        }
        loop {
            let (found, reply) = self
                .conversation
                .next_reply()
                .ok_or(RemoteError::Unreachable)?;
            if found == ticket {
                return Ok(reply);
            }
            self.early.insert(found, reply);
        }
    }

    fn call(&mut self, request: ClientRequest) -> Result<ClientReply, RemoteError> {
        let ticket = self.conversation.submit(request);
        match self.wait(ticket)? {
            ClientReply::Refused(refusal) => Err(refusal.into()),
            ClientReply::Busy | ClientReply::Unreachable => Err(RemoteError::Unreachable),
            ClientReply::Unknown => Err(RemoteError::Unknown),
            reply => Ok(reply),
        }
    }

    /// Any operation but a replay.
    pub fn ask(&mut self, operation: Operation) -> Result<Answer, RemoteError> {
        match self.call(ClientRequest::Ask(operation))? {
            ClientReply::Answer(answer) => Ok(answer),
            _ => Err(RemoteError::Confused),
        }
    }

    fn position(&mut self, operation: Operation) -> Result<u64, RemoteError> {
        match self.ask(operation)? {
            Answer::Position(position) => Ok(position),
            _ => Err(RemoteError::Confused),
        }
    }

    fn claimed(&mut self, operation: Operation) -> Result<Claimed, RemoteError> {
        match self.ask(operation)? {
            Answer::Claimed(claimed) => Ok(claimed),
            _ => Err(RemoteError::Confused),
        }
    }

    /// All recordings that meet the conditions, in the order of their numbers.
    pub fn list(&mut self, filter: &ListFilter) -> Result<Vec<Description>, RemoteError> {
        let mut found: Vec<Description> = Vec::new();
        loop {
            let answer = self.ask(Operation::List {
                after: found.last().map_or(0, |last| last.recording),
                count_max: u32::MAX,
                filter: filter.clone(),
            })?;
            let Answer::List {
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

    /// What is known about a recording.
    pub fn describe(&mut self, recording: u64) -> Result<Description, RemoteError> {
        match self.ask(Operation::Describe { recording })? {
            Answer::Description(description) => Ok(description),
            _ => Err(RemoteError::Confused),
        }
    }

    /// The files of a recording, in order.
    pub fn segments(&mut self, recording: u64) -> Result<Vec<SegmentDescription>, RemoteError> {
        let mut found: Vec<SegmentDescription> = Vec::new();
        loop {
            let answer = self.ask(Operation::Segments {
                recording,
                from: found.last().map_or(0, |last| last.start.saturating_add(1)),
                count_max: u32::MAX,
            })?;
            let Answer::Segments { segments, has_more } = answer else {
                return Err(RemoteError::Confused);
            };
            let is_last = !has_more || segments.is_empty();
            found.extend(segments);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Starts a recording; `segment_length` 0 leaves it to the server. With `is_resumed` the newest recording of this label
    /// is extended if there is one.
    pub fn start(
        &mut self,
        label: &str,
        segment_length: u64,
        durability: Durability,
        is_resumed: bool,
    ) -> Result<Claimed, RemoteError> {
        self.claimed(Operation::Start {
            label: label.to_owned(),
            segment_length,
            durability,
            is_resumed,
        })
    }

    /// Goes on with a recording.
    pub fn extend(&mut self, recording: u64) -> Result<Claimed, RemoteError> {
        self.claimed(Operation::Extend { recording })
    }

    /// Hands a batch over without waiting for its confirmation: [`RemoteArchive::recorded`] does. When too much waits already,
    /// the batch comes back: wait for one before it.
    pub fn record(&mut self, recording: u64, batch: FrameBatch) -> Ticket {
        self.conversation
            .submit(ClientRequest::Record { recording, batch })
    }

    /// Begins a copy, or goes on with the one that is there.
    pub fn start_copy(&mut self, copy: CopyRequest) -> Result<Claimed, RemoteError> {
        self.claimed(Operation::Copy(copy))
    }

    /// The same as [`RemoteArchive::record`] with blocks for a copy.
    pub fn copy(&mut self, recording: u64, batch: BlockBatch) -> Ticket {
        self.conversation
            .submit(ClientRequest::Copy { recording, batch })
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

    /// Makes what was recorded so far durable; answers with the end of that.
    pub fn flush(&mut self, recording: u64) -> Result<u64, RemoteError> {
        self.position(Operation::Flush { recording })
    }

    /// Ends a recording; answers with its end. Batches that are not confirmed yet are refused, so wait for them before.
    pub fn stop(&mut self, recording: u64) -> Result<u64, RemoteError> {
        self.position(Operation::Stop { recording })
    }

    /// How the server is.
    pub fn health(&mut self) -> Result<Health, RemoteError> {
        match self.ask(Operation::Health)? {
            Answer::Health(health) => Ok(health),
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

    /// The next of a replay; waits for it. A replay that has ended is closed.
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

    /// The end: the server stops what this client records.
    pub fn goodbye(mut self) -> Result<(), RemoteError> {
        self.call(ClientRequest::Goodbye).map(drop)
    }
}
