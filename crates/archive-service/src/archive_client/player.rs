//! State of a client for one replay.

use crate::archive_answer::{Refusal, RefusalCode};
use crate::archive_client::ClientReply;
use crate::archive_client::piece::{Chain, ReplayPiece, Trim};
use crate::archive_operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::message::{ClientMessage, DATA_HEADER_LENGTH, ReplayState};
use seatrial_machine::{Output, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Minimum bytes of credit sent when the caller has taken all data: this, or a quarter of the window if that is less.
const CREDIT_MIN: u64 = 16 << 10;

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// The bound of the request is reached.
    Complete {
        /// The end of the replayed range.
        position: u64,
    },
    /// Everything was replayed, and the recording is stopped.
    Stopped {
        /// The end of the recording.
        position: u64,
    },
    /// The replay cannot continue.
    Failed(Refusal),
}

/// One replay on the client: the received pieces that the caller has not taken, bounded by the window.
///
/// It gives credit as pieces are taken. After a gap in the data, or when the session is lost, it requests the rest with a new
/// replay from the end of the last piece.
#[derive(Debug)]
pub(crate) struct Player {
    /// The request; the first answer replaces the bound `End` by its position.
    request: ReplayRequest,
    /// Its number on the server: that of the request that began it.
    pub(crate) replay: Option<u64>,
    window_bytes: u64,
    /// Bytes received.
    offset: u64,
    /// Bytes that credit allows to send.
    limit: u64,
    chain: Chain,
    trim: Trim,
    /// The position to resume from after a lost connection.
    resume: Option<u64>,
    /// Received pieces, each with its bytes of the window.
    pieces: VecDeque<(u64, ReplayPiece)>,
    /// Total of these bytes.
    untaken_bytes: u64,
    /// The pending request of the caller for the next piece.
    pending_next: Option<Ticket>,
    end: Option<ReplayEnd>,
    /// When the server is asked for the state, unless data arrives before.
    retry_at: Option<Time>,
    /// Reports of the server since the last data that count more bytes than were received.
    unexplained: u32,
}

/// Number of such reports after which data is considered lost. One alone may have overtaken the data.
const UNEXPLAINED_MAX: u32 = 2;

impl Player {
    pub(crate) fn new(request: ReplayRequest) -> Player {
        let position = match request.from {
            ReplayFrom::Position(position) => position,
            _ => 0,
        };
        let message = match request.from {
            ReplayFrom::Message(number) => number,
            _ => 0,
        };
        let until = match request.bound {
            ReplayBound::Position(position) => position,
            _ => u64::MAX,
        };
        Player {
            request,
            replay: None,
            window_bytes: 0,
            offset: 0,
            limit: 0,
            chain: Chain::default(),
            trim: Trim {
                position,
                message,
                until,
            },
            resume: None,
            pieces: VecDeque::new(),
            untaken_bytes: 0,
            pending_next: None,
            end: None,
            retry_at: None,
            unexplained: 0,
        }
    }

    /// The request for the rest of the replay.
    pub(crate) fn request(&self) -> ReplayRequest {
        ReplayRequest {
            from: self.resume.map_or(self.request.from, ReplayFrom::Position),
            ..self.request
        }
    }

    /// Must it be requested (again)? Not while pieces wait to be taken: a new replay gets a whole window.
    pub(crate) fn needs_request(&self) -> bool {
        self.replay.is_none() && self.end.is_none() && self.pieces.is_empty()
    }

    /// Notes the number of the request that was sent.
    pub(crate) fn on_requested(&mut self, replay: u64) {
        self.replay = Some(replay);
        self.offset = 0;
        self.limit = 0;
        self.retry_at = None;
    }

    /// Applies the answer that begins the replay.
    pub(crate) fn on_begun(&mut self, position: u64, end: Option<u64>, window_bytes: u32) {
        if self.resume.is_none() {
            self.resume = Some(match self.request.from {
                ReplayFrom::Position(from) => from,
                _ => position,
            });
        }
        if let (ReplayBound::End, Some(end)) = (self.request.bound, end) {
            self.request.bound = ReplayBound::Position(end);
        }
        self.window_bytes = u64::from(window_bytes);
        self.limit = self.limit.max(self.window_bytes);
    }

    /// Forgets the replay on the server, so that the rest is requested again; returns its number.
    pub(crate) fn on_replay_lost(&mut self) -> Option<u64> {
        self.retry_at = None;
        self.unexplained = 0;
        self.replay.take()
    }

    /// Checks and queues received blocks; false after a gap. Wrong blocks end the replay.
    pub(crate) fn on_data(
        &mut self,
        now: Time,
        interval: Duration,
        offset: u64,
        bytes: Vec<u8>,
    ) -> bool {
        if offset != self.offset || self.end.is_some() {
            return offset < self.offset; // a duplicate; a higher offset is a gap
        }
        let length = (bytes.len() - DATA_HEADER_LENGTH) as u64;
        // A copy: the chain advances only if all blocks are valid.
        let mut chain = self.chain;
        match ReplayPiece::take(bytes, DATA_HEADER_LENGTH, self.trim, &mut chain) {
            Ok(piece) => {
                self.chain = chain;
                self.offset += length;
                self.resume = piece.end().or(self.resume);
                self.untaken_bytes += length;
                self.pieces.push_back((length, piece));
                self.unexplained = 0;
                self.retry_at = Some(now + interval);
            }
            Err(refusal) => self.end = Some(ReplayEnd::Failed(refusal)),
        }
        true
    }

    /// Applies a state reported by the server; false after a gap.
    pub(crate) fn on_state(
        &mut self,
        state: ReplayState,
        offset: u64,
        position: u64,
        refusal: Option<Refusal>,
    ) -> bool {
        if self.end.is_some() {
            return true;
        }
        if offset != self.offset && state != ReplayState::Unknown {
            // The report may have overtaken the data.
            self.unexplained += 1;
            return self.unexplained < UNEXPLAINED_MAX;
        }
        self.unexplained = 0;
        let position = self.resume.map_or(position, |resume| resume.max(position));
        match state {
            ReplayState::Open => {}
            ReplayState::Complete => self.end = Some(ReplayEnd::Complete { position }),
            ReplayState::Stopped => self.end = Some(ReplayEnd::Stopped { position }),
            ReplayState::Unknown => return false,
            ReplayState::Failed => {
                let unspecified = || Refusal::new(RefusalCode::NotAllowed, "the replay failed");
                self.fail(refusal.unwrap_or_else(unspecified));
            }
        }
        true
    }

    pub(crate) fn fail(&mut self, refusal: Refusal) {
        self.end = Some(ReplayEnd::Failed(refusal));
    }

    /// Sets the request for the next piece; returns the one that it replaces.
    pub(crate) fn set_pending_next(&mut self, ticket: Ticket) -> Option<Ticket> {
        self.pending_next.replace(ticket)
    }

    /// Answers the pending request with the next piece or the end; true after the end.
    pub(crate) fn deliver_next(&mut self, out: &mut Vec<Output<ClientReply>>) -> bool {
        let Some(ticket) = self.pending_next else {
            return false;
        };
        if let Some((length, piece)) = self.pieces.pop_front() {
            self.pending_next = None;
            self.untaken_bytes -= length;
            out.push(Output::Reply(ticket, ClientReply::Piece(piece)));
            return false;
        }
        if let Some(end) = &self.end {
            out.push(Output::Reply(ticket, ClientReply::Ended(end.clone())));
            return true;
        }
        false
    }

    /// The credit message that is due: after a quarter of the window, or `always`.
    pub(crate) fn credit(&mut self, session: u64, always: bool) -> Option<Vec<u8>> {
        let replay = self.replay?;
        if self.end.is_some() || self.window_bytes == 0 {
            return None;
        }
        let limit = (self.offset - self.untaken_bytes.min(self.offset)) + self.window_bytes;
        let raise = limit.saturating_sub(self.limit);
        let quarter = self.window_bytes / 4;
        // Sooner when the caller has taken all: a server that is short of memory sends nothing before.
        let is_due =
            raise >= quarter || (self.untaken_bytes == 0 && raise >= quarter.min(CREDIT_MIN));
        if !is_due && !always {
            return None;
        }
        self.limit = self.limit.max(limit);
        let limit = self.limit;
        let credit = ClientMessage::Credit {
            session,
            replay,
            limit,
        };
        Some(credit.encode())
    }

    /// Has no data arrived for `interval`? Then the next check is due after another interval.
    pub(crate) fn is_silent(&mut self, now: Time, interval: Duration) -> bool {
        if self.replay.is_none() || self.end.is_some() || self.window_bytes == 0 {
            self.retry_at = None;
            return false;
        }
        let planned = *self.retry_at.get_or_insert(now + interval);
        let is_due = planned <= now;
        if is_due {
            self.retry_at = Some(now + interval);
        }
        is_due
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// Bytes received and not taken.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        self.untaken_bytes
    }

    pub(crate) fn pending_next(&self) -> Option<Ticket> {
        self.pending_next
    }
}
