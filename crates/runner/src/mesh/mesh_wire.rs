//! Links: cut, disturbances and meter of one direction between two endpoints.

use seatrial_machine::{Disturbance, LinkCondition};
use seatrial_namespace::Meter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// One link. Connections subscribe to its condition; the meters only grow.
#[derive(Debug)]
pub(super) struct Wire {
    condition: watch::Sender<Condition>,
    passed_bytes: AtomicU64,
    held_bytes: AtomicU64,
    held_connections: AtomicU64,
    disturbed_bytes: AtomicU64,
    reset_connections: AtomicU64,
    pace: Mutex<Pace>,
}

/// Pacing of packets on a disturbed link, over all its connections.
#[derive(Debug)]
struct Pace {
    /// A throttled link transmits earlier packets until then.
    busy_until: Instant,
    /// Time of the last disturbance; the phases of a flapping link are counted from here.
    disturbed: Instant,
}

/// Cut and disturbances of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Condition {
    /// Is the link cut?
    pub(super) cut: bool,
    /// Its disturbances.
    pub(super) packets: LinkCondition,
}

impl Condition {
    /// Is it neither cut nor disturbed?
    pub(super) fn is_whole(&self) -> bool {
        *self == Condition::default()
    }

    /// Is it disturbed? A cut is not a disturbance.
    pub(super) fn is_disturbed(&self) -> bool {
        self.packets.is_disturbed()
    }

    /// Upper bound of a packet's delay where it is bounded, from which the capacity of a proxy's queue follows.
    pub(super) fn delay_max(&self) -> Duration {
        let slow = self
            .packets
            .slow
            .map_or(Duration::ZERO, |(delay, jitter)| delay + jitter);
        let held = self
            .packets
            .reorder
            .map_or(Duration::ZERO, |(_, delay)| delay);
        let again = if self.packets.missing_percent() > 0 {
            RETRANSMISSION_MAX
        } else {
            Duration::ZERO
        };
        slow + held + again + self.packets.flap.unwrap_or_default()
    }
}

/// Time until TCP retransmits a lost packet; doubled for each further loss of the same packet.
pub(super) const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Bound of that time. TCP's own is longer; this keeps connections over a bad link alive.
pub(super) const RETRANSMISSION_MAX: Duration = Duration::from_millis(1_600);

impl Default for Wire {
    fn default() -> Wire {
        Wire {
            condition: watch::Sender::new(Condition::default()),
            passed_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            held_connections: AtomicU64::new(0),
            disturbed_bytes: AtomicU64::new(0),
            reset_connections: AtomicU64::new(0),
            pace: Mutex::new(Pace {
                busy_until: Instant::now(),
                disturbed: Instant::now(),
            }),
        }
    }
}

impl Wire {
    pub(super) fn cut(&self) {
        self.condition.send_modify(|condition| condition.cut = true);
    }

    pub(super) fn disturb(&self, how: Disturbance) {
        // Set before the new condition is published, so that no packet meets the new condition with the old phases.
        self.pace().disturbed = Instant::now();
        self.condition
            .send_modify(|condition| condition.packets.disturb(how));
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delay of a packet without content that is sent now.
    pub(super) fn delay_now(&self) -> Duration {
        let packets = self.condition.borrow().packets;
        let down = packets.down_for(self.pace().disturbed.elapsed());
        down + packets.slow.map_or(Duration::ZERO, |(delay, _)| delay)
    }

    /// Time at which a packet of this length that arrives now has passed the link, without its delay. A flapping link holds it,
    /// as a cut one does, until the link works again.
    pub(super) fn reserve(&self, length: usize, condition: &Condition) -> Instant {
        let now = Instant::now();
        let packets = &condition.packets;
        if packets.flap.is_none() && packets.throttle.is_none() {
            return now;
        }
        let mut pace = self.pace();
        let begin = now + packets.down_for(now.saturating_duration_since(pace.disturbed));
        let Some(bytes_per_second) = packets.throttle else {
            return begin;
        };
        let taken = Duration::from_secs_f64(length as f64 / bytes_per_second as f64);
        pace.busy_until = pace.busy_until.max(begin) + taken;
        pace.busy_until
    }

    pub(super) fn heal(&self) {
        self.condition
            .send_modify(|condition| condition.cut = false);
    }

    pub(super) fn calm(&self) {
        self.condition.send_modify(|condition| {
            condition.packets = LinkCondition::default();
        });
        self.pace().busy_until = Instant::now();
    }

    /// The present condition, and a notification of each change.
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
            ..Meter::default()
        }
    }
}
