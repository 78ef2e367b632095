//! Stop requests: ending a test early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A handle that stops a test from outside, as Ctrl-C does. The first request lets operations under way complete, heals, seals
/// and checks the history; the second one waits for nothing and checks nothing. Recorded operations are saved either way.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicU8>);

/// How urgently a test must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// No stop was requested.
    None,
    /// Once the operations under way have completed.
    Drain,
    /// Immediately.
    Abort,
}

impl Stop {
    /// A handle without requests.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Adds a request.
    pub fn request(&self) {
        let raise = |level: u8| level.checked_add(1); // saturates: 300 requests do not wrap to none
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
    }

    /// Makes the first request; false, without effect, if there was one already.
    pub fn request_first(&self) -> bool {
        let (none, drain) = (0, 1);
        let order = Ordering::Relaxed;
        self.0.compare_exchange(none, drain, order, order).is_ok()
    }

    /// The urgency of the requests so far.
    pub fn urgency(&self) -> Urgency {
        match self.0.load(Ordering::Relaxed) {
            0 => Urgency::None,
            1 => Urgency::Drain,
            _ => Urgency::Abort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_more_urgent() {
        let stop = Stop::new();
        let same = stop.clone();
        assert_eq!(stop.urgency(), Urgency::None);
        assert!(same.request_first());
        assert_eq!(stop.urgency(), Urgency::Drain);
        assert!(!stop.request_first());
        assert_eq!(stop.urgency(), Urgency::Drain);
        for _ in 0..300 {
            same.request();
            assert_eq!(stop.urgency(), Urgency::Abort);
        }
    }
}
