//! The simulated network: it delays, loses, duplicates and reorders messages, and drops them on links that are cut.

use crate::node_message::{EndpointName, NodeMessage};
use seatrial_machine::{Disturbance, LinkCondition, Rng, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// The distribution of latencies around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LatencyDistribution {
    /// Always the mean.
    #[default]
    Constant,
    /// Uniform between zero and twice the mean.
    Uniform,
    /// Exponential.
    Exponential,
}

impl LatencyDistribution {
    /// The names on the command line.
    pub(crate) const NAMES: [(&'static str, LatencyDistribution); 3] = [
        ("constant", LatencyDistribution::Constant),
        ("uniform", LatencyDistribution::Uniform),
        ("exponential", LatencyDistribution::Exponential),
    ];
}

/// What happens to every message between nodes and services, without faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransitOptions {
    /// Mean latency.
    pub(crate) latency: Duration,
    /// Its distribution. All but a constant one reorder messages.
    pub(crate) distribution: LatencyDistribution,
    /// Messages of every hundred that are lost.
    pub(crate) loss_percent: u8,
    /// Messages of every hundred that arrive twice.
    pub(crate) duplication_percent: u8,
}

/// One direction between two endpoints.
pub(crate) type MessageLink = (EndpointName, EndpointName);

/// Carries messages. It owns the messages in transit (a heap by time of arrival) and the state of each link that was used, and
/// does
/// nothing by itself: [`MessageNetwork::send`] and [`MessageNetwork::pop_due`] are given the time.
///
/// The latency and the fate of the k-th message of a link depend on the seed, the link and k alone, so that a run with the same
/// seed has the same schedule wherever the nodes send the same messages. Cost: O(log n) for n messages in transit.
#[derive(Debug)]
pub(crate) struct MessageNetwork {
    options: TransitOptions,
    rng: Rng,
    links: BTreeMap<MessageLink, LinkState>,
    transit: BinaryHeap<Reverse<Transit>>,
    /// Messages sent so far; the number of the next one.
    sent: u64,
    counts: TransitCounts,
}

/// Messages that did not arrive once, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransitCounts {
    /// Lost at random.
    pub(crate) lost: u64,
    /// Arrived a second time.
    pub(crate) duplicated: u64,
    /// Dropped on a link that was cut when they arrived.
    pub(crate) cut: u64,
    /// Dropped because [`TRANSIT_MAX`] messages were in transit.
    pub(crate) overflow: u64,
}

/// The traffic that faults of a link have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkTraffic {
    /// Messages dropped by a cut.
    pub(crate) cut: u64,
    /// Messages that were sent over the disturbed link.
    pub(crate) disturbed: u64,
}

/// Maximum number of messages in transit.
pub(crate) const TRANSIT_MAX: usize = 1 << 20;

#[derive(Debug)]
struct LinkState {
    rng: Rng,
    is_cut: bool,
    condition: LinkCondition,
    /// Time of the last disturbance; the phases of a flapping link count from here.
    since: Time,
    /// A throttled link transmits earlier messages until then.
    busy_until: Time,
    traffic: LinkTraffic,
}

/// A message in transit, ordered by arrival and then by number.
#[derive(Debug)]
struct Transit {
    due: Time,
    number: u64,
    is_copy: bool,
    sent: Time,
    message: NodeMessage,
}

impl PartialEq for Transit {
    fn eq(&self, other: &Transit) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Transit {}

impl PartialOrd for Transit {
    fn partial_cmp(&self, other: &Transit) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Transit {
    fn cmp(&self, other: &Transit) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl Transit {
    const fn order(&self) -> (Time, u64, bool) {
        (self.due, self.number, self.is_copy)
    }
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its number, unique in the test.
    pub(crate) number: u64,
    /// When it was sent.
    pub(crate) sent: Time,
    /// The message.
    pub(crate) message: NodeMessage,
}

impl MessageNetwork {
    /// A network without traffic.
    pub(crate) fn new(options: TransitOptions, rng: Rng) -> MessageNetwork {
        MessageNetwork {
            options,
            rng,
            links: BTreeMap::new(),
            transit: BinaryHeap::new(),
            sent: 0,
            counts: TransitCounts::default(),
        }
    }

    /// Sends a message; returns its number. Latency, loss and duplication are drawn now, a cut is checked at its arrival.
    pub(crate) fn send(&mut self, now: Time, message: NodeMessage) -> u64 {
        let number = self.sent;
        self.sent += 1;
        let options = self.options;
        let between_nodes = !message.src.is_client() && !message.dest.is_client();
        let link = self.link((message.src.clone(), message.dest.clone()));
        let extra = link.disturbance(now, &message);
        let (mut latency, mut copies) = (Duration::ZERO, 1);
        if between_nodes {
            latency = options.draw_latency(&mut link.rng);
            // Both are drawn always, so that an option does not shift the draws of later messages.
            let is_lost = happens(&mut link.rng, options.loss_percent);
            let doubled = options.duplication_percent.max(link.condition.duplicate);
            let is_doubled = happens(&mut link.rng, doubled);
            copies = if is_lost { 0 } else { 1 + u8::from(is_doubled) };
        }
        let Some(extra) = extra.filter(|_| copies > 0) else {
            self.counts.lost += 1;
            return number;
        };
        if self.transit.len() >= TRANSIT_MAX {
            self.counts.overflow += 1;
            return number;
        }
        let due = now + latency + extra;
        if copies == 2 {
            self.counts.duplicated += 1;
            self.push(due + latency, number, true, now, message.clone());
        }
        self.push(due, number, false, now, message);
        number
    }

    fn push(&mut self, due: Time, number: u64, is_copy: bool, sent: Time, message: NodeMessage) {
        self.transit.push(Reverse(Transit {
            due,
            number,
            is_copy,
            sent,
            message,
        }));
    }

    /// The next message that has arrived by `now`. Messages of cut links are dropped on the way.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Arrival> {
        loop {
            if self.transit.peek()?.0.due > now {
                return None;
            }
            let Reverse(transit) = self.transit.pop()?;
            let message = transit.message;
            let link = self.link((message.src.clone(), message.dest.clone()));
            if link.is_cut {
                link.traffic.cut += 1;
                self.counts.cut += 1;
                continue;
            }
            return Some(Arrival {
                number: transit.number,
                sent: transit.sent,
                message,
            });
        }
    }

    /// When the next message arrives.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.transit.peek().map(|Reverse(transit)| transit.due)
    }

    /// Cuts these links until [`MessageNetwork::heal`].
    pub(crate) fn cut(&mut self, links: impl IntoIterator<Item = MessageLink>) {
        for link in links {
            self.link(link).is_cut = true;
        }
    }

    /// Ends all cuts.
    pub(crate) fn heal(&mut self) {
        for link in self.links.values_mut() {
            link.is_cut = false;
        }
    }

    /// Disturbs these links until [`MessageNetwork::calm`].
    pub(crate) fn disturb(
        &mut self,
        now: Time,
        links: impl IntoIterator<Item = MessageLink>,
        how: Disturbance,
    ) {
        for link in links {
            let state = self.link(link);
            state.condition.disturb(how);
            state.since = now;
        }
    }

    /// Ends all disturbances.
    pub(crate) fn calm(&mut self) {
        for link in self.links.values_mut() {
            link.condition = LinkCondition::default();
        }
    }

    /// The traffic that faults of this link have met so far.
    pub(crate) fn traffic(&self, link: &MessageLink) -> LinkTraffic {
        let state = self.links.get(link);
        state.map(|state| state.traffic).unwrap_or_default()
    }

    /// Messages that were lost, duplicated or dropped.
    pub(crate) const fn counts(&self) -> TransitCounts {
        self.counts
    }

    fn link(&mut self, link: MessageLink) -> &mut LinkState {
        let rng = &self.rng;
        self.links.entry(link).or_insert_with_key(|(src, dest)| {
            let rng = rng.fork(src.as_str()).fork(dest.as_str());
            LinkState {
                rng,
                is_cut: false,
                condition: LinkCondition::default(),
                since: Time::ZERO,
                busy_until: Time::ZERO,
                traffic: LinkTraffic::default(),
            }
        })
    }
}

impl TransitOptions {
    fn draw_latency(&self, rng: &mut Rng) -> Duration {
        match self.distribution {
            LatencyDistribution::Constant => self.latency,
            LatencyDistribution::Uniform => rng.duration_below(self.latency * 2),
            LatencyDistribution::Exponential => rng.exponential(self.latency),
        }
    }
}

impl LinkState {
    /// Extra delay of a message because the link is disturbed; `None` when it is lost.
    fn disturbance(&mut self, now: Time, message: &NodeMessage) -> Option<Duration> {
        if !self.condition.is_disturbed() {
            return Some(Duration::ZERO);
        }
        self.traffic.disturbed += 1;
        let condition = self.condition;
        if happens(&mut self.rng, condition.missing_percent()) {
            return None;
        }
        if !condition.down_for(now.since(self.since)).is_zero() {
            return None;
        }
        let mut extra = Duration::ZERO;
        if let Some((delay, jitter)) = condition.slow {
            extra += delay.saturating_sub(jitter) + self.rng.duration_below(jitter * 2);
        }
        if let Some((percent, delay)) = condition.reorder
            && happens(&mut self.rng, percent)
        {
            extra += delay;
        }
        if let Some(bytes_per_second) = condition.throttle {
            let bytes = message.line(0).len() as f64;
            let transmission = Duration::from_secs_f64(bytes / bytes_per_second as f64);
            self.busy_until = self.busy_until.max(now) + transmission;
            extra += self.busy_until.since(now);
        }
        Some(extra)
    }
}

/// True for this many of every hundred. Draws also when none is wanted.
fn happens(rng: &mut Rng, percent: u8) -> bool {
    rng.below(100) < u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_message::body;

    fn message(src: &str, dest: &str, number: i64) -> NodeMessage {
        NodeMessage {
            src: EndpointName::new(src),
            dest: EndpointName::new(dest),
            body: body("x", [("msg_id", number.into())]),
        }
    }

    fn link(src: &str, dest: &str) -> MessageLink {
        (EndpointName::new(src), EndpointName::new(dest))
    }

    fn network(options: TransitOptions) -> MessageNetwork {
        MessageNetwork::new(options, Rng::from_seed(4))
    }

    fn millis(count: u64) -> Time {
        Time::ZERO + Duration::from_millis(count)
    }

    fn arrived(network: &mut MessageNetwork, now: Time) -> Vec<i64> {
        std::iter::from_fn(|| network.pop_due(now))
            .map(|arrival| arrival.message.id().unwrap())
            .collect()
    }

    #[test]
    fn nodes_wait_for_the_latency_and_clients_do_not() {
        let mut network = network(TransitOptions {
            latency: Duration::from_millis(10),
            ..TransitOptions::default()
        });
        network.send(Time::ZERO, message("n1", "n2", 1));
        network.send(Time::ZERO, message("c1", "n2", 2));
        network.send(Time::ZERO, message("n2", "c1", 3));
        network.send(Time::ZERO, message("n2", "lin-kv", 4));
        assert_eq!(arrived(&mut network, Time::ZERO), [2, 3]);
        assert_eq!(network.next_due(), Some(millis(10)));
        assert_eq!(arrived(&mut network, millis(9)), [0_i64; 0]);
        assert_eq!(arrived(&mut network, millis(10)), [1, 4]);
        assert_eq!(network.next_due(), None);
    }

    #[test]
    fn a_link_has_the_same_schedule_whatever_other_links_do() {
        let options = TransitOptions {
            latency: Duration::from_millis(10),
            distribution: LatencyDistribution::Exponential,
            loss_percent: 20,
            duplication_percent: 20,
        };
        let order = |others: u64| {
            let mut network = network(options);
            for number in 0..200 {
                network.send(Time::ZERO, message("n1", "n2", number));
                for _ in 0..others {
                    network.send(Time::ZERO, message("n3", "n2", -1));
                }
            }
            let mut seen = arrived(&mut network, millis(10_000));
            seen.retain(|&number| number >= 0);
            seen
        };
        let alone = order(0);
        assert_eq!(alone, order(3));
        assert!((150..250).contains(&alone.len()), "{}", alone.len());
        assert!(!alone.is_sorted(), "an exponential latency reorders");
    }

    #[test]
    fn cut_links_drop_what_arrives_in_one_direction() {
        let mut network = network(TransitOptions::default());
        network.cut([link("n1", "n2")]);
        network.send(Time::ZERO, message("n1", "n2", 1));
        network.send(Time::ZERO, message("n2", "n1", 2));
        assert_eq!(arrived(&mut network, Time::ZERO), [2]);
        assert_eq!(network.traffic(&link("n1", "n2")).cut, 1);
        assert_eq!(network.traffic(&link("n2", "n1")), LinkTraffic::default());
        network.heal();
        network.send(Time::ZERO, message("n1", "n2", 3));
        assert_eq!(arrived(&mut network, Time::ZERO), [3]);
        assert_eq!(network.counts().cut, 1);
    }

    #[test]
    fn disturbed_links_delay_and_lose() {
        let mut network = network(TransitOptions::default());
        let slow = Disturbance::Slow {
            delay: Duration::from_millis(50),
            jitter: Duration::from_millis(10),
        };
        network.disturb(Time::ZERO, [link("n1", "n2")], slow);
        for number in 0..100 {
            network.send(Time::ZERO, message("n1", "n2", number));
        }
        assert_eq!(arrived(&mut network, millis(39)), [0_i64; 0]);
        assert_eq!(arrived(&mut network, millis(60)).len(), 100);
        let lossy = Disturbance::Lose { percent: 50 };
        network.disturb(Time::ZERO, [link("n1", "n2")], lossy);
        for number in 0..1_000 {
            network.send(Time::ZERO, message("n1", "n2", number));
        }
        let count = arrived(&mut network, millis(60)).len();
        assert!((400..600).contains(&count), "{count}");
        network.calm();
        network.send(Time::ZERO, message("n1", "n2", 1));
        assert_eq!(arrived(&mut network, Time::ZERO), [1]);
        assert_eq!(network.traffic(&link("n1", "n2")).disturbed, 1_100);
    }
}
