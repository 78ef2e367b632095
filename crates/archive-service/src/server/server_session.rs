//! State of the server for one session: its requests and their answers.

use crate::message::REQUEST_WINDOW;
use seatrial_machine::{NodeId, Time};
use std::collections::BTreeMap;

/// The state of a request when it arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestStatus {
    /// It arrives for the first time.
    New,
    /// It is being executed, or is older than the window, so that the client has its answer.
    Dropped,
    /// It was answered by this message.
    Answered(Vec<u8>),
}

/// One client on the server: its endpoint, and its requests within the window, each with its answer once there is one.
///
/// A request that is repeated gets the kept answer, so it is executed once however often it arrives. At most
/// [`REQUEST_WINDOW`] answers are kept.
#[derive(Debug)]
pub(crate) struct ServerSession {
    pub(crate) token: u64,
    pub(crate) endpoint: NodeId,
    /// When any message arrived from it.
    pub(crate) heard_at: Time,
    /// When it last sent a request or a batch, or gave credit for bytes received.
    pub(crate) active_at: Time,
    /// Answers by request number; `None` while the request is being executed.
    requests: BTreeMap<u64, Option<Vec<u8>>>,
    highest: u64,
    /// Number of recordings that it has claimed.
    pub(crate) claims: usize,
    /// Number of its open replays.
    pub(crate) replays: usize,
    /// Total of the windows granted to them.
    pub(crate) window_bytes: u64,
}

impl ServerSession {
    pub(crate) fn new(token: u64, endpoint: NodeId, now: Time) -> ServerSession {
        ServerSession {
            token,
            endpoint,
            heard_at: now,
            active_at: now,
            requests: BTreeMap::new(),
            highest: 0,
            claims: 0,
            replays: 0,
            window_bytes: 0,
        }
    }

    /// Registers a request; returns its state before.
    pub(crate) fn register(&mut self, request: u64) -> RequestStatus {
        if let Some(answer) = self.requests.get(&request) {
            return answer
                .clone()
                .map_or(RequestStatus::Dropped, RequestStatus::Answered);
        }
        if request.saturating_add(REQUEST_WINDOW) <= self.highest {
            return RequestStatus::Dropped;
        }
        self.highest = self.highest.max(request);
        self.requests.insert(request, None);
        let oldest = self.highest.saturating_sub(REQUEST_WINDOW - 1);
        self.requests = self.requests.split_off(&oldest);
        RequestStatus::New
    }

    /// Keeps an answer.
    pub(crate) fn answer(&mut self, request: u64, message: &[u8]) {
        if let Some(answer) = self.requests.get_mut(&request) {
            *answer = Some(message.to_vec());
        }
    }

    /// Forgets a request: if it arrives again, it is executed again.
    pub(crate) fn forget(&mut self, request: u64) {
        self.requests.remove(&request);
    }

    /// Has it neither claims nor replays?
    pub(crate) fn is_idle(&self) -> bool {
        self.claims == 0 && self.replays == 0
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.requests.len() as u64 <= REQUEST_WINDOW);
        assert!(self.requests.keys().all(|number| *number <= self.highest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once() {
        let mut session = ServerSession::new(1, NodeId::client(0), Time::ZERO);
        assert_eq!(session.register(1), RequestStatus::New);
        assert_eq!(session.register(1), RequestStatus::Dropped);
        session.answer(1, b"yes");
        assert_eq!(
            session.register(1),
            RequestStatus::Answered(b"yes".to_vec())
        );
        assert_eq!(session.register(REQUEST_WINDOW), RequestStatus::New);
        assert_eq!(
            session.register(1),
            RequestStatus::Answered(b"yes".to_vec())
        );
        assert_eq!(session.register(REQUEST_WINDOW + 1), RequestStatus::New);
        assert_eq!(
            session.register(1),
            RequestStatus::Dropped,
            "out of the window"
        );
        assert_eq!(session.register(5), RequestStatus::New, "overtaken");
        session.forget(5);
        assert_eq!(session.register(5), RequestStatus::New);
        assert_eq!(session.register(u64::MAX), RequestStatus::New);
        session.check_invariants();
    }
}
