//! A network that delays, loses, repeats and reorders.

use crate::options::NetworkOptions;
use crate::queue::{Event, Queue};
use seatrial_machine::{Link, NodeId, Rng, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// Carries messages: each is lost, delayed and perhaps repeated by its own draw, so any two may overtake each other.
#[derive(Debug)]
pub(crate) struct Network {
    options: NetworkOptions,
    rng: Rng,
    /// Index of each server and each client in the world, by number.
    servers: Vec<Option<u32>>,
    clients: Vec<Option<u32>>,
    cut: BTreeSet<Link>,
    slow: Vec<(Link, Duration, Duration)>,
    /// What was sent over these links until then never arrives.
    reset: Vec<(Link, Time)>,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions, rng: Rng) -> Network {
        Network {
            options,
            rng,
            servers: Vec::new(),
            clients: Vec::new(),
            cut: BTreeSet::new(),
            slow: Vec::new(),
            reset: Vec::new(),
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
        for (link, extra, jitter) in &self.slow {
            if (link.from, link.to) == (from, to) {
                delay += extra.saturating_sub(*jitter) + self.rng.duration_below(*jitter * 2);
            }
        }
        delay
    }

    /// Is this message, arriving now, stopped by a cut or a reset since it was sent?
    pub(crate) fn blocks(&self, from: NodeId, to: NodeId, sent: Time) -> bool {
        let link = Link { from, to };
        (!self.cut.is_empty() && self.cut.contains(&link))
            || self
                .reset
                .iter()
                .any(|(reset, until)| *reset == link && sent <= *until)
    }

    pub(crate) fn cut(&mut self, links: &[Link]) {
        self.cut.extend(links);
    }

    pub(crate) fn slow(&mut self, links: &[Link], delay: Duration, jitter: Duration) {
        let jitter = jitter.min(delay);
        self.slow
            .extend(links.iter().map(|&link| (link, delay, jitter)));
    }

    pub(crate) fn reset(&mut self, links: &[Link], now: Time) {
        self.reset.retain(|(link, _)| !links.contains(link));
        self.reset.extend(links.iter().map(|&link| (link, now)));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.slow.clear();
    }
}
