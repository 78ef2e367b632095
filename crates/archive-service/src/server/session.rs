//! State of the server for one session.

use crate::message::REQUEST_WINDOW;
use seatrial_machine::{NodeId, Time};
use std::collections::BTreeMap;

/// What became of a request that was seen before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It was not.
    New,
    /// It is being carried out, or so old that the client has finished with it.
    Dropped,
    /// This was the answer.
    Answered(Vec<u8>),
}

/// One client as the server sees it: where it was heard last, which of its requests were carried out, with the answers
/// that it may ask for again. The window bounds them.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) token: u64,
    pub(crate) endpoint: NodeId,
    pub(crate) heard: Time,
    /// When it asked for something, recorded, or took something of its replays.
    pub(crate) moved: Time,
    /// Requests by number; without an answer they are being carried out.
    requests: BTreeMap<u64, Option<Vec<u8>>>,
    highest: u64,
    /// Recordings that it may write.
    pub(crate) claims: usize,
    /// Its open replays, and the windows granted to them.
    pub(crate) replays: usize,
    pub(crate) window_bytes: u64,
}

impl Session {
    pub(crate) fn new(token: u64, endpoint: NodeId, now: Time) -> Session {
        Session {
            token,
            endpoint,
            heard: now,
            moved: now,
            requests: BTreeMap::new(),
            highest: 0,
            claims: 0,
            replays: 0,
            window_bytes: 0,
        }
    }

    /// Takes note of a request.
    pub(crate) fn see(&mut self, request: u64) -> Seen {
        if let Some(answer) = self.requests.get(&request) {
            return answer.clone().map_or(Seen::Dropped, Seen::Answered);
        }
        if request.saturating_add(REQUEST_WINDOW) <= self.highest {
            return Seen::Dropped;
        }
        self.highest = self.highest.max(request);
        self.requests.insert(request, None);
        let oldest = self.highest.saturating_sub(REQUEST_WINDOW - 1);
        self.requests = self.requests.split_off(&oldest);
        Seen::New
    }

    /// Keeps an answer.
    pub(crate) fn answer(&mut self, request: u64, message: &[u8]) {
        if let Some(answer) = self.requests.get_mut(&request) {
            *answer = Some(message.to_vec());
        }
    }

    /// Forgets a request: it may be carried out again.
    pub(crate) fn forget(&mut self, request: u64) {
        self.requests.remove(&request);
    }

    /// Does nothing depend on it?
    pub(crate) fn is_idle(&self) -> bool {
        self.claims == 0 && self.replays == 0
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.requests.len() as u64 <= REQUEST_WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once() {
        let mut session = Session::new(1, NodeId::client(0), Time::ZERO);
        assert_eq!(session.see(1), Seen::New);
        assert_eq!(session.see(1), Seen::Dropped);
        session.answer(1, b"yes");
        assert_eq!(session.see(1), Seen::Answered(b"yes".to_vec()));
        assert_eq!(session.see(REQUEST_WINDOW), Seen::New);
        assert_eq!(session.see(1), Seen::Answered(b"yes".to_vec()));
        assert_eq!(session.see(REQUEST_WINDOW + 1), Seen::New);
        assert_eq!(session.see(1), Seen::Dropped, "out of the window");
        assert_eq!(session.see(5), Seen::New, "overtaken");
        session.forget(5);
        assert_eq!(session.see(5), Seen::New);
        assert_eq!(session.see(u64::MAX), Seen::New);
        session.check_invariants();
    }
}
