//! A network that delays, loses, repeats and reorders.

use crate::options::NetworkOptions;
use crate::queue::{Event, Queue};
use seatrial_machine::{Link, NodeId, Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a message of a node to itself takes. It is never lost or repeated.
const LOOPBACK_DELAY: Duration = Duration::from_micros(10);

/// Carries messages: each is lost, delayed and perhaps repeated by its own draw, so any two may overtake each other.
#[derive(Debug)]
pub(crate) struct Network {
    options: NetworkOptions,
    rng: Rng,
    /// Index of each server and each client in the world, by number.
    servers: Vec<Option<u32>>,
    clients: Vec<Option<u32>>,
    cut: BTreeSet<Link>,
    /// Pairs between which messages passed since their connection last ended, lesser endpoint first; kept only when
    /// somebody wants to be told about ends.
    connected: Option<BTreeSet<(NodeId, NodeId)>>,
    /// Extra delay and its jitter.
    slow: BTreeMap<Link, (Duration, Duration)>,
    /// What was sent over these links until then never arrives.
    reset: BTreeMap<Link, Time>,
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
            slow: BTreeMap::new(),
            reset: BTreeMap::new(),
        }
    }

    /// The endpoint `id` is the node at `index`.
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

    /// Where the endpoint `id` is.
    pub(crate) fn find(&self, id: NodeId) -> Option<usize> {
        let directory = if id.is_client() {
            &self.clients
        } else {
            &self.servers
        };
        let index = directory.get(id.number() as usize)?;
        index.map(|index| index as usize)
    }

    /// Remembers from now on who is connected with whom.
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

    /// Sends one message; what becomes of it is drawn now, whether a cut stops it is seen when it arrives.
    pub(crate) fn send<R>(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        bytes: Vec<u8>,
        queue: &mut Queue<R>,
    ) {
        let Some(index) = self.find(to) else {
            return;
        };
        if from == to {
            let event = Event::Deliver {
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
        if !self.cut.is_empty() && self.cut.contains(&Link { from, to }) {
            return;
        }
        if self.options.loss > 0.0 && self.rng.chance(self.options.loss) {
            return;
        }
        if self.options.duplication > 0.0 && self.rng.chance(self.options.duplication) {
            let due = now + self.delay(from, to);
            let bytes = bytes.clone();
            queue.push(
                due,
                index,
                Event::Deliver {
                    from,
                    sent: now,
                    bytes,
                },
            );
        }
        let due = now + self.delay(from, to);
        queue.push(
            due,
            index,
            Event::Deliver {
                from,
                sent: now,
                bytes,
            },
        );
    }

    /// How long the next message over this link takes.
    fn delay(&mut self, from: NodeId, to: NodeId) -> Duration {
        let options = &self.options;
        let mut delay = options.delay_min + self.rng.duration_below(options.delay_spread);
        if options.straggler > 0.0 && self.rng.chance(options.straggler) {
            delay += self.rng.exponential(options.straggler_delay);
        }
        if !self.slow.is_empty()
            && let Some((extra, jitter)) = self.slow.get(&Link { from, to })
        {
            delay += extra.saturating_sub(*jitter) + self.rng.duration_below(*jitter * 2);
        }
        delay
    }

    /// How long the end of a connection takes to be noticed at `to`; never, when the notice is lost.
    pub(crate) fn notice(&mut self, from: NodeId, to: NodeId) -> Option<Duration> {
        let is_cut = self.cut.contains(&Link { from, to });
        (!is_cut && !self.rng.chance(self.options.loss)).then(|| self.delay(from, to))
    }

    /// Is this message, arriving now, stopped by a cut or a reset since it was sent?
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

    pub(crate) fn slow(&mut self, links: &[Link], delay: Duration, jitter: Duration) {
        let strength = (delay, jitter.min(delay));
        self.slow.extend(links.iter().map(|&link| (link, strength)));
    }

    /// Ends the connection between two endpoints: what is under way in either direction is lost.
    pub(crate) fn reset(&mut self, link: Link, now: Time) {
        let both = Link::both(link.from, link.to);
        self.reset.extend(both.map(|link| (link, now)));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.slow.clear();
    }
}
