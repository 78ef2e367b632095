//! The simulated network: delays, loses, duplicates and reorders messages.

use crate::event_queue::{EventQueue, WorldEvent};
use crate::world_options::NetworkOptions;
use seatrial_machine::{Disturbance, Link, LinkCondition, NodeId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Delay of a message of a node to itself. It is never lost or duplicated.
const LOOPBACK_DELAY: Duration = Duration::from_micros(10);

/// Carries messages. Fate and delay of each message are drawn on their own when it is sent, so any two may overtake each other;
/// cuts and resets are checked again when it arrives.
#[derive(Debug)]
pub(crate) struct Network {
    options: NetworkOptions,
    rng: Rng,
    /// Index of each server and each client in the world, by number.
    servers: Vec<Option<u32>>,
    clients: Vec<Option<u32>>,
    cut: BTreeSet<Link>,
    /// Pairs that exchanged messages since their connection last ended, lesser endpoint first. `None` unless notices of ended
    /// connections are enabled.
    connected: Option<BTreeSet<(NodeId, NodeId)>>,
    disturbed: BTreeMap<Link, Disturbed>,
    /// Messages sent over these links until then never arrive.
    reset: BTreeMap<Link, Time>,
    /// Messages sent over cut links and kept by the sender, oldest first.
    waiting: Vec<QueuedMessage>,
    pub(crate) lost: LostMessages,
}

/// Messages of a world that reached no machine, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostMessages {
    /// For a node that is not in the world.
    pub unknown_node: u64,
    /// For a node that was down when they arrived.
    pub down: u64,
    /// Over a link that was cut, or reset while they were in flight.
    pub cut: u64,
    /// By a drawn loss: of the world's options or of a disturbance of the link.
    pub lost: u64,
    /// For a paused node that held its maximum.
    pub held_max: u64,
    /// Waited too long for a cut link to heal, or exceeded the maximum of waiting messages.
    pub queue_max: u64,
}

/// A message that waits for a cut link to heal.
#[derive(Debug)]
struct QueuedMessage {
    sent: Time,
    link: Link,
    bytes: Vec<u8>,
}

/// Maximum of messages that wait for cut links; further ones are dropped.
const WAITING_MAX: usize = 4_096;
/// A message that waited for longer is dropped, as `host` drops it.
const WAITING_TIME_MAX: Duration = Duration::from_secs(5);

/// A disturbed link.
#[derive(Debug, Default)]
struct Disturbed {
    condition: LinkCondition,
    /// Time of the last disturbance; the phases of a flapping link are counted from here.
    since: Time,
    /// A throttled link transmits earlier messages until then.
    busy_until: Time,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions, rng: Rng) -> Network {
        Network {
            options,
            rng,
            servers: Vec::new(),
            clients: Vec::new(),
            cut: BTreeSet::new(),
            connected: None,
            disturbed: BTreeMap::new(),
            reset: BTreeMap::new(),
            waiting: Vec::new(),
            lost: LostMessages::default(),
        }
    }

    /// Registers the endpoint `id` as the node at `index`.
    pub(crate) fn add(&mut self, id: NodeId, index: usize) {
        let directory = if id.is_client() {
            &mut self.clients
        } else {
            &mut self.servers
        };
        let number = id.number() as usize;
        if directory.len() <= number {
            directory.resize(number + 1, None);
        }
        directory[number] = Some(index as u32);
    }

    /// The index of the endpoint `id`.
    pub(crate) fn find(&self, id: NodeId) -> Option<usize> {
        let directory = if id.is_client() {
            &self.clients
        } else {
            &self.servers
        };
        let index = directory.get(id.number() as usize)?;
        index.map(|index| index as usize)
    }

    /// Keeps track of connected pairs from now on.
    pub(crate) fn remember_connections(&mut self) {
        self.connected.get_or_insert_default();
    }

    /// Ends the connection between two endpoints; false when there was none.
    pub(crate) fn disconnect(&mut self, a: NodeId, b: NodeId) -> bool {
        let connected = self.connected.as_mut();
        connected.is_some_and(|connected| connected.remove(&(a.min(b), a.max(b))))
    }

    pub(crate) fn options_mut(&mut self) -> &mut NetworkOptions {
        &mut self.options
    }

    /// Sends one message. Its loss, duplication and delay are drawn now; a cut or reset is checked at its arrival.
    pub(crate) fn send<R>(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        bytes: Vec<u8>,
        queue: &mut EventQueue<R>,
    ) {
        let Some(index) = self.find(to) else {
            self.lost.unknown_node += 1;
            return;
        };
        if from == to {
            let event = WorldEvent::Deliver {
                from,
                sent: now,
                bytes,
            };
            queue.push(now + LOOPBACK_DELAY, index, event);
            return;
        }
        if let Some(connected) = &mut self.connected {
            connected.insert((from.min(to), from.max(to)));
        }
        let link = Link { from, to };
        if !self.cut.is_empty() && self.cut.contains(&link) {
            self.keep(now, link, bytes);
            return;
        }
        if self.options.loss > 0.0 && self.rng.chance(self.options.loss) {
            self.lost.lost += 1;
            return;
        }
        let Some(extra) = self.disturbance(now, link, bytes.len()) else {
            self.lost.lost += 1;
            return;
        };
        if self.options.duplication > 0.0 && self.rng.chance(self.options.duplication) {
            let due = now + extra + self.delay(from, to);
            let bytes = bytes.clone();
            queue.push(
                due,
                index,
                WorldEvent::Deliver {
                    from,
                    sent: now,
                    bytes,
                },
            );
        }
        let due = now + extra + self.delay(from, to);
        queue.push(
            due,
            index,
            WorldEvent::Deliver {
                from,
                sent: now,
                bytes,
            },
        );
    }

    /// Additional delay of a message of this length because its link is disturbed; `None` when it is lost.
    fn disturbance(&mut self, now: Time, link: Link, length: usize) -> Option<Duration> {
        if self.disturbed.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some(disturbed) = self.disturbed.get_mut(&link) else {
            return Some(Duration::ZERO);
        };
        let rng = &mut self.rng;
        let mut happens = |percent: u8| percent > 0 && rng.below(100) < u64::from(percent);
        if happens(disturbed.condition.missing_percent()) {
            return None;
        }
        if !disturbed
            .condition
            .down_for(now.since(disturbed.since))
            .is_zero()
        {
            return None;
        }
        let mut extra = Duration::ZERO;
        if let Some((percent, delay)) = disturbed.condition.reorder
            && happens(percent)
        {
            extra += delay;
        }
        if let Some(bytes_per_second) = disturbed.condition.throttle {
            let nanoseconds = length as u128 * 1_000_000_000 / u128::from(bytes_per_second.max(1));
            let taken = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
            disturbed.busy_until = disturbed.busy_until.max(now) + taken;
            extra += disturbed.busy_until.since(now);
        }
        Some(extra)
    }

    /// Delay of the next message over this link.
    fn delay(&mut self, from: NodeId, to: NodeId) -> Duration {
        let options = &self.options;
        let mut delay = options.delay_min + self.rng.duration_below(options.delay_spread);
        if options.straggler > 0.0 && self.rng.chance(options.straggler) {
            delay += self.rng.exponential(options.straggler_delay);
        }
        if !self.disturbed.is_empty()
            && let Some(disturbed) = self.disturbed.get(&Link { from, to })
            && let Some((extra, jitter)) = disturbed.condition.slow
        {
            delay += extra.saturating_sub(jitter) + self.rng.duration_below(jitter * 2);
        }
        delay
    }

    /// Delay until `to` notices the end of its connection; `None` when the notice is lost.
    pub(crate) fn notice(&mut self, from: NodeId, to: NodeId) -> Option<Duration> {
        let is_cut = self.cut.contains(&Link { from, to });
        (!is_cut && !self.rng.chance(self.options.loss)).then(|| self.delay(from, to))
    }

    /// Does a cut, or a reset since it was sent, stop this message that arrives now?
    pub(crate) fn blocks(&self, from: NodeId, to: NodeId, sent: Time) -> bool {
        let link = Link { from, to };
        if from == to {
            return false;
        }
        (!self.cut.is_empty() && self.cut.contains(&link))
            || (!self.reset.is_empty() && self.reset.get(&link).is_some_and(|&until| sent <= until))
    }

    pub(crate) fn cut(&mut self, links: &[Link]) {
        self.cut.extend(links);
    }

    pub(crate) fn disturb(&mut self, now: Time, links: &[Link], how: Disturbance) {
        for &link in links {
            let disturbed = self.disturbed.entry(link).or_default();
            disturbed.condition.disturb(how);
            disturbed.since = now;
        }
    }

    /// Ends the connection between two endpoints: messages in flight in either direction are lost.
    pub(crate) fn reset(&mut self, link: Link, now: Time) {
        let both = Link::both(link.from, link.to);
        self.reset.extend(both.map(|link| (link, now)));
    }

    /// Handles a message over a cut link: lost, or kept by its sender until the link heals, as `host` does.
    fn keep(&mut self, sent: Time, link: Link, bytes: Vec<u8>) {
        if self.options.queueing == 0.0 || !self.rng.chance(self.options.queueing) {
            self.lost.cut += 1;
        } else if self.waiting.len() >= WAITING_MAX {
            self.lost.queue_max += 1;
        } else {
            self.waiting.push(QueuedMessage { sent, link, bytes });
        }
    }

    /// Heals every link and sends the messages that waited for that; true if any link was cut.
    pub(crate) fn heal<R>(&mut self, now: Time, queue: &mut EventQueue<R>) -> bool {
        let were_cut = !std::mem::take(&mut self.cut).is_empty();
        for QueuedMessage { sent, link, bytes } in std::mem::take(&mut self.waiting) {
            if now.since(sent) > WAITING_TIME_MAX {
                self.lost.queue_max += 1;
            } else {
                self.send(now, link.from, link.to, bytes, queue);
            }
        }
        were_cut
    }

    /// Ends all disturbances; true if any link was disturbed.
    pub(crate) fn calm(&mut self) -> bool {
        !std::mem::take(&mut self.disturbed).is_empty()
    }
}
