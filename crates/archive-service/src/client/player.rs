//! State of a client for one replay.

use crate::answer::{Refusal, RefusalCode};
use crate::client::ClientReply;
use crate::client::piece::{Chain, ReplayPiece, Trim};
use crate::message::{ClientMessage, DATA_HEADER_LENGTH, ReplayState};
use crate::operation::{ReplayBound, ReplayFrom, ReplayRequest};
use seatrial_machine::{Output, Ticket, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// When all that has come is taken, credit is given for no less than this, or a quarter of the window.
const CREDIT_MIN: u64 = 16 << 10;

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// Its bound is reached.
    Complete {
        /// The position up to which it went.
        position: u64,
    },
    /// All was replayed and the recording was stopped.
    Stopped {
        /// The end of the recording.
        position: u64,
    },
    /// It could not continue.
    Failed(Refusal),
}

/// What a client has under way for one replay: the pieces that have come and were not taken, which the window bounds. It
/// gives credit as pieces are taken, and asks for the rest with a new replay when it finds a hole, hears nothing for a while,
/// or has lost its session.
#[derive(Debug)]
pub(crate) struct Player {
    /// What was asked for; its end is made definite by the first answer.
    request: ReplayRequest,
    /// The server's number of it: the request that began it.
    pub(crate) replay: Option<u64>,
    window_bytes: u64,
    /// Bytes that have come, and that were allowed.
    offset: u64,
    limit: u64,
    chain: Chain,
    trim: Trim,
    /// The position to resume from after a lost connection.
    resume: Option<u64>,
    /// Each with the bytes that it took of the window.
    pieces: VecDeque<(u64, ReplayPiece)>,
    /// Bytes of them, positions included.
    waiting: u64,
    taker: Option<Ticket>,
    end: Option<ReplayEnd>,
    /// When it is asked for again unless something comes.
    again_at: Option<Time>,
    /// Answers without anything new since something came.
    silent: u32,
}

/// Answers that announce more than was received before the replay is considered to have a hole.
const SILENT_MAX: u32 = 2;

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
            waiting: 0,
            taker: None,
            end: None,
            again_at: None,
            silent: 0,
        }
    }

    /// What to ask for, now.
    pub(crate) fn request(&self) -> ReplayRequest {
        ReplayRequest {
            from: self.resume.map_or(self.request.from, ReplayFrom::Position),
            ..self.request
        }
    }

    /// Does it have to be asked for (again)? Not while pieces wait to be taken: a new replay has a whole window.
    pub(crate) fn is_lost(&self) -> bool {
        self.replay.is_none() && self.end.is_none() && self.pieces.is_empty()
    }

    /// It is asked for with this request.
    pub(crate) fn asked(&mut self, replay: u64) {
        self.replay = Some(replay);
        self.offset = 0;
        self.limit = 0;
        self.again_at = None;
    }

    /// The server has begun it.
    pub(crate) fn begun(&mut self, position: u64, end: Option<u64>, window_bytes: u32) {
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

    /// It will be asked for again, from where it is.
    pub(crate) fn lose(&mut self) -> Option<u64> {
        self.again_at = None;
        self.silent = 0;
        self.replay.take()
    }

    /// Blocks that came. False: there is a hole, or they are not what they should be.
    pub(crate) fn data(
        &mut self,
        now: Time,
        interval: Duration,
        offset: u64,
        bytes: Vec<u8>,
    ) -> bool {
        if offset != self.offset || self.end.is_some() {
            return offset < self.offset; // else it is a hole
        }
        let length = (bytes.len() - DATA_HEADER_LENGTH) as u64;
        // Before the answer that began it: the window is what was asked for.
        let mut chain = self.chain;
        match ReplayPiece::take(bytes, DATA_HEADER_LENGTH, self.trim, &mut chain) {
            Ok(piece) => {
                self.chain = chain;
                self.offset += length;
                self.resume = piece.end().or(self.resume);
                self.waiting += length;
                self.pieces.push_back((length, piece));
                self.silent = 0;
                self.again_at = Some(now + interval);
            }
            Err(refusal) => self.end = Some(ReplayEnd::Failed(refusal)),
        }
        true
    }

    /// What the server says of it. False: there is a hole.
    pub(crate) fn state(
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
            // Data may have been overtaken by this.
            self.silent += 1;
            return self.silent < SILENT_MAX;
        }
        self.silent = 0;
        let position = self.resume.map_or(position, |resume| resume.max(position));
        match state {
            ReplayState::Open => {}
            ReplayState::Complete => self.end = Some(ReplayEnd::Complete { position }),
            ReplayState::Stopped => self.end = Some(ReplayEnd::Stopped { position }),
            ReplayState::Unknown => return false,
            ReplayState::Failed => {
                let unsaid = || Refusal::new(RefusalCode::NotAllowed, "the replay failed");
                self.fail(refusal.unwrap_or_else(unsaid));
            }
        }
        true
    }

    pub(crate) fn fail(&mut self, refusal: Refusal) {
        self.end = Some(ReplayEnd::Failed(refusal));
    }

    /// A request for the next piece. An earlier request that still waits is answered as replaced.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Ticket> {
        self.taker.replace(ticket)
    }

    /// Hands over what is there, and says whether the player is done with.
    pub(crate) fn hand_over(&mut self, out: &mut Vec<Output<ClientReply>>) -> bool {
        let Some(ticket) = self.taker else {
            return false;
        };
        if let Some((length, piece)) = self.pieces.pop_front() {
            self.taker = None;
            self.waiting -= length;
            out.push(Output::Reply(ticket, ClientReply::Piece(piece)));
            return false;
        }
        if let Some(end) = &self.end {
            out.push(Output::Reply(ticket, ClientReply::Ended(end.clone())));
            return true;
        }
        false
    }

    /// The credit that is due: when a quarter of the window was taken since the last, or `always`.
    pub(crate) fn credit(&mut self, session: u64, always: bool) -> Option<Vec<u8>> {
        let replay = self.replay?;
        if self.end.is_some() || self.window_bytes == 0 {
            return None;
        }
        let limit = (self.offset - self.waiting.min(self.offset)) + self.window_bytes;
        let raise = limit.saturating_sub(self.limit);
        let quarter = self.window_bytes / 4;
        // When all is taken, sooner: a server that is short of memory waits for it.
        let is_due = raise >= quarter || (self.waiting == 0 && raise >= quarter.min(CREDIT_MIN));
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

    /// Is something expected that should be asked about, because it has not come for a while?
    pub(crate) fn is_silent(&mut self, now: Time, interval: Duration) -> bool {
        if self.replay.is_none() || self.end.is_some() || self.window_bytes == 0 {
            self.again_at = None;
            return false;
        }
        let planned = *self.again_at.get_or_insert(now + interval);
        let is_due = planned <= now;
        if is_due {
            self.again_at = Some(now + interval);
        }
        is_due
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.again_at
    }

    /// Bytes that have come and were not taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    pub(crate) fn taker(&self) -> Option<Ticket> {
        self.taker
    }
}
