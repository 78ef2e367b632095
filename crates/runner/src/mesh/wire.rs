//! The state of one link.

use seatrial_machine::Disturbance;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// One direction between two endpoints: whether it passes, and what it has seen. Those who carry bytes subscribe to
/// its state; the meters only ever grow.
#[derive(Debug)]
pub(super) struct Wire {
    condition: watch::Sender<Condition>,
    passed_bytes: AtomicU64,
    held_bytes: AtomicU64,
    held_connections: AtomicU64,
    disturbed_bytes: AtomicU64,
    reset_connections: AtomicU64,
    /// Until then the narrow link carries what was sent before, over all its connections.
    busy_until: Mutex<Instant>,
}

/// What is wrong with a link now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Condition {
    /// Does nothing pass?
    pub(super) cut: bool,
    /// Extra delay and its largest deviation.
    pub(super) slow: Option<(Duration, Duration)>,
    /// How many of a hundred packets have to be sent again.
    pub(super) lose: u8,
    /// How many of a hundred packets are held back, and for how long.
    pub(super) reorder: Option<(u8, Duration)>,
    /// Bytes per second.
    pub(super) throttle: Option<u64>,
}

impl Condition {
    /// Is nothing wrong?
    pub(super) fn is_whole(&self) -> bool {
        *self == Condition::default()
    }

    /// Is it passable, but disturbed?
    pub(super) fn is_disturbed(&self) -> bool {
        let cut = self.cut;
        *self
            != Condition {
                cut,
                ..Condition::default()
            }
    }

    /// The longest that one packet takes longer, as far as it is bounded; for what may wait in a proxy.
    pub(super) fn delay_max(&self) -> Duration {
        let slow = self
            .slow
            .map_or(Duration::ZERO, |(delay, jitter)| delay + jitter);
        let held = self.reorder.map_or(Duration::ZERO, |(_, delay)| delay);
        let again = if self.lose > 0 {
            RETRANSMISSION_MAX
        } else {
            Duration::ZERO
        };
        slow + held + again
    }
}

/// How long TCP waits before it sends a lost packet again; doubled for each further loss of the same packet.
pub(super) const RETRANSMISSION: Duration = Duration::from_millis(200);
/// It does not wait longer than this here, so that a connection over a bad link stays alive.
pub(super) const RETRANSMISSION_MAX: Duration = Duration::from_millis(1_600);

/// What passed one or several links, and what faults did to it. All figures count from the beginning of the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Bytes delivered to the receiver.
    pub passed_bytes: u64,
    /// Bytes that arrived while the link was cut and had to wait.
    pub held_bytes: u64,
    /// Connections that were opened while the link was cut and had to wait.
    pub held_connections: u64,
    /// Bytes that were sent while the link was disturbed; each counts, late or not.
    pub disturbed_bytes: u64,
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
            disturbed_bytes: self.disturbed_bytes + other.disturbed_bytes,
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
            disturbed_bytes: self.disturbed_bytes.saturating_sub(earlier.disturbed_bytes),
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
            disturbed_bytes: AtomicU64::new(0),
            reset_connections: AtomicU64::new(0),
            busy_until: Mutex::new(Instant::now()),
        }
    }
}

impl Wire {
    pub(super) fn cut(&self) {
        self.condition.send_modify(|condition| condition.cut = true);
    }

    pub(super) fn disturb(&self, how: Disturbance) {
        self.condition.send_modify(|condition| match how {
            Disturbance::Slow { delay, jitter } => condition.slow = Some((delay, jitter)),
            Disturbance::Lose { percent } => condition.lose = percent,
            Disturbance::Reorder { percent, delay } => condition.reorder = Some((percent, delay)),
            Disturbance::Throttle { bytes_per_second } => {
                condition.throttle = Some(bytes_per_second.max(1));
            }
        });
    }

    /// When a packet of this length that comes now has passed the link, but for its delay.
    pub(super) fn reserve(&self, length: usize, condition: &Condition) -> Instant {
        let now = Instant::now();
        let Some(bytes_per_second) = condition.throttle else {
            return now;
        };
        let taken = Duration::from_secs_f64(length as f64 / bytes_per_second as f64);
        let mut busy = self
            .busy_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *busy = (*busy).max(now) + taken;
        *busy
    }

    pub(super) fn heal(&self) {
        self.condition
            .send_modify(|condition| condition.cut = false);
    }

    pub(super) fn calm(&self) {
        self.condition.send_modify(|condition| {
            *condition = Condition {
                cut: condition.cut,
                ..Condition::default()
            };
        });
        *self
            .busy_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
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

    pub(super) fn count_disturbed(&self, bytes: usize) {
        self.disturbed_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_reset(&self) {
        self.reset_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn meter(&self) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes.load(Ordering::Relaxed),
            held_bytes: self.held_bytes.load(Ordering::Relaxed),
            held_connections: self.held_connections.load(Ordering::Relaxed),
            disturbed_bytes: self.disturbed_bytes.load(Ordering::Relaxed),
            reset_connections: self.reset_connections.load(Ordering::Relaxed),
        }
    }
}
