//! The state of one link.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// One direction between two endpoints: whether it passes, and what it has seen. Those who carry bytes subscribe to
/// its state; the meters only ever grow.
#[derive(Debug)]
pub(super) struct Wire {
    condition: watch::Sender<Condition>,
    passed_bytes: AtomicU64,
    held_bytes: AtomicU64,
    held_connections: AtomicU64,
    slowed_bytes: AtomicU64,
    reset_connections: AtomicU64,
}

/// What is wrong with a link now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Condition {
    /// Does nothing pass?
    pub(super) cut: bool,
    /// Extra delay and its largest deviation.
    pub(super) slow: Option<(Duration, Duration)>,
}

impl Condition {
    /// Is nothing wrong?
    pub(super) fn is_whole(&self) -> bool {
        *self == Condition::default()
    }
}

/// What passed one or several links, and what faults did to it. All figures count from the beginning of the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Bytes delivered to the receiver.
    pub passed_bytes: u64,
    /// Bytes that arrived while the link was cut and had to wait.
    pub held_bytes: u64,
    /// Connections that were opened while the link was cut and had to wait.
    pub held_connections: u64,
    /// Bytes that were delayed by a slow link.
    pub slowed_bytes: u64,
    /// Connections broken with RST.
    pub reset_connections: u64,
}

impl Meter {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Meter) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes + other.passed_bytes,
            held_bytes: self.held_bytes + other.held_bytes,
            held_connections: self.held_connections + other.held_connections,
            slowed_bytes: self.slowed_bytes + other.slowed_bytes,
            reset_connections: self.reset_connections + other.reset_connections,
        }
    }

    /// What came since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Meter) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes.saturating_sub(earlier.passed_bytes),
            held_bytes: self.held_bytes.saturating_sub(earlier.held_bytes),
            held_connections: self
                .held_connections
                .saturating_sub(earlier.held_connections),
            slowed_bytes: self.slowed_bytes.saturating_sub(earlier.slowed_bytes),
            reset_connections: self
                .reset_connections
                .saturating_sub(earlier.reset_connections),
        }
    }
}

impl Default for Wire {
    fn default() -> Wire {
        Wire {
            condition: watch::Sender::new(Condition::default()),
            passed_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            held_connections: AtomicU64::new(0),
            slowed_bytes: AtomicU64::new(0),
            reset_connections: AtomicU64::new(0),
        }
    }
}

impl Wire {
    pub(super) fn cut(&self) {
        self.condition.send_modify(|condition| condition.cut = true);
    }

    pub(super) fn slow(&self, delay: Duration, jitter: Duration) {
        self.condition
            .send_modify(|condition| condition.slow = Some((delay, jitter)));
    }

    pub(super) fn heal(&self) {
        self.condition
            .send_modify(|condition| *condition = Condition::default());
    }

    /// The condition now, and word of each change.
    pub(super) fn watch(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    pub(super) fn is_cut(&self) -> bool {
        self.condition.borrow().cut
    }

    pub(super) fn count_passed(&self, bytes: usize) {
        self.passed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_held(&self, bytes: usize) {
        self.held_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_held_connection(&self) {
        self.held_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_slowed(&self, bytes: usize) {
        self.slowed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_reset(&self) {
        self.reset_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn meter(&self) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes.load(Ordering::Relaxed),
            held_bytes: self.held_bytes.load(Ordering::Relaxed),
            held_connections: self.held_connections.load(Ordering::Relaxed),
            slowed_bytes: self.slowed_bytes.load(Ordering::Relaxed),
            reset_connections: self.reset_connections.load(Ordering::Relaxed),
        }
    }
}
