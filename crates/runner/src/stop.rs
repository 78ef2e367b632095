//! The request to end a test early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A handle by which a test is ended from outside, as Ctrl-C does: the first request lets operations under way
/// complete, heals, saves and checks; the second does not wait for them. What was recorded is saved either way.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicU8>);

/// How urgently a test is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Not before its time.
    None,
    /// Once the operations under way have completed.
    Drain,
    /// At once.
    Abort,
}

impl Stop {
    /// A handle nobody has used yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks once more.
    pub fn request(&self) {
        let raise = |level: u8| level.checked_add(1);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
    }

    /// Asks for the first time, unless somebody has; whether it was the first.
    pub fn request_first(&self) -> bool {
        let (none, drain) = (0, 1);
        let order = Ordering::Relaxed;
        self.0.compare_exchange(none, drain, order, order).is_ok()
    }

    /// What was asked for so far.
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
