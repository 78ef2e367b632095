//! Links of the switch: what happens to each packet, drawn from a seed.

use crate::link_meter::Meter;
use seatrial_machine::{Disturbance, Link, LinkCondition, Rng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The links of a switch. A link is whole until a fault names it; its draws come from the seed and its name, so they do not
/// depend on the traffic of other links.
#[derive(Debug)]
pub(crate) struct SwitchedLinks {
    links: BTreeMap<Link, SwitchedLink>,
    rng: Rng,
}

/// One direction between two endpoints.
#[derive(Debug)]
pub(crate) struct SwitchedLink {
    is_cut: bool,
    condition: LinkCondition,
    /// Time of the last disturbance, from which the phases of a flapping link are counted.
    disturbed: Instant,
    /// A throttled link transmits earlier packets until then.
    busy_until: Instant,
    /// When the last packet that keeps the order is due.
    last_due: Instant,
    rng: Rng,
    pub(crate) meter: Meter,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is delivered at once.
    Now,
    /// It is delivered at this time.
    At(Instant),
    /// It is lost.
    Lost,
}

/// What happens to a packet that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketChange {
    /// A random number that chooses the bit to flip; `None`: it stays as it is.
    pub(crate) flipped: Option<u64>,
    /// Is it sent twice?
    pub(crate) is_doubled: bool,
}

/// Longest time that packets wait for a throttled link; more are lost, as in a router with a full queue.
const THROTTLED_MAX: Duration = Duration::from_millis(500);

impl SwitchedLinks {
    pub(crate) fn new(rng: Rng) -> SwitchedLinks {
        SwitchedLinks {
            links: BTreeMap::new(),
            rng,
        }
    }

    /// The link; whole if no packet and no fault has named it before.
    pub(crate) fn link(&mut self, link: Link) -> &mut SwitchedLink {
        self.links.entry(link).or_insert_with(|| {
            let now = Instant::now();
            SwitchedLink {
                is_cut: false,
                condition: LinkCondition::default(),
                disturbed: now,
                busy_until: now,
                last_due: now,
                rng: self.rng.fork(&format!("{} {}", link.from, link.to)),
                meter: Meter::default(),
            }
        })
    }

    pub(crate) fn heal(&mut self) {
        for link in self.links.values_mut() {
            link.is_cut = false;
        }
    }

    pub(crate) fn calm(&mut self) {
        for link in self.links.values_mut() {
            link.condition = LinkCondition::default();
        }
    }

    /// The sum of the meters of these links.
    pub(crate) fn meter(&self, links: &[Link]) -> Meter {
        let meters = links.iter().filter_map(|link| self.links.get(link));
        meters.fold(Meter::default(), |sum, link| sum.plus(link.meter))
    }
}

impl SwitchedLink {
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Must packets be divided into segments, since each has a fate of its own?
    pub(crate) fn is_disturbed(&self) -> bool {
        self.condition.is_disturbed()
    }

    pub(crate) fn disturb(&mut self, how: Disturbance, now: Instant) {
        self.condition.disturb(how);
        self.disturbed = now;
    }

    /// Decides about a packet of this length, which arrives now. A packet that opens a connection counts as one when it meets a
    /// cut.
    pub(crate) fn pass(&mut self, length: usize, opens: bool, now: Instant) -> Passage {
        if self.is_cut {
            self.meter.held_bytes += length as u64;
            self.meter.held_connections += u64::from(opens);
            return Passage::Lost;
        }
        if !self.condition.is_disturbed() {
            return Passage::Now;
        }
        self.meter.disturbed_bytes += length as u64;
        let passed = now.saturating_duration_since(self.disturbed);
        let is_down = !self.condition.down_for(passed).is_zero();
        if is_down || self.happens(self.condition.lose) {
            return Passage::Lost;
        }
        self.timing(length, now)
    }

    /// Draws what happens to a packet that is not lost. Both is possible: then both copies are damaged.
    pub(crate) fn change(&mut self) -> PacketChange {
        let mut change = PacketChange::default();
        if self.happens(self.condition.corrupt) {
            self.meter.corrupted_packets += 1;
            change.flipped = Some(self.rng.word());
        }
        if self.happens(self.condition.duplicate) {
            self.meter.duplicated_packets += 1;
            change.is_doubled = true;
        }
        change
    }

    /// When a packet that is not lost is due. Delay and jitter keep the order of packets, since disorder is a fault of its own.
    fn timing(&mut self, length: usize, now: Instant) -> Passage {
        let mut due = now;
        if let Some(bytes_per_second) = self.condition.throttle {
            let begin = self.busy_until.max(now);
            if begin.saturating_duration_since(now) > THROTTLED_MAX {
                return Passage::Lost;
            }
            let taken = Duration::from_secs_f64(length as f64 / bytes_per_second as f64);
            self.busy_until = begin + taken;
            due = self.busy_until;
        }
        if let Some((delay, jitter)) = self.condition.slow {
            due += (delay + self.rng.duration_below(jitter * 2)).saturating_sub(jitter);
        }
        if let Some((percent, delay)) = self.condition.reorder
            && self.happens(percent)
        {
            return Passage::At(due + delay); // later packets overtake it
        }
        due = due.max(self.last_due);
        self.last_due = due;
        if due > now {
            Passage::At(due)
        } else {
            Passage::Now
        }
    }

    fn happens(&mut self, percent: u8) -> bool {
        percent > 0 && self.rng.below(100) < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::NodeId;

    const LINK: Link = Link {
        from: NodeId::server(1),
        to: NodeId::server(2),
    };

    fn links(seed: u64) -> SwitchedLinks {
        SwitchedLinks::new(Rng::from_seed(seed))
    }

    /// The fates of 1,000 packets of 100 bytes, one per millisecond, in microseconds after each was sent.
    fn fates(seed: u64, how: Disturbance) -> Vec<Option<u128>> {
        let mut links = links(seed);
        let begin = Instant::now();
        let link = links.link(LINK);
        link.disturb(how, begin);
        let sent = (0..1_000).map(|number| begin + Duration::from_millis(number));
        let fate = |now| match link.pass(100, false, now) {
            Passage::Now => Some(0),
            Passage::At(due) => Some((due - now).as_micros()),
            Passage::Lost => None,
        };
        sent.map(fate).collect()
    }

    #[test]
    fn a_cut_loses_everything_and_counts_it() {
        let mut links = links(1);
        let now = Instant::now();
        assert_eq!(links.link(LINK).pass(60, true, now), Passage::Now);
        links.link(LINK).cut();
        assert_eq!(links.link(LINK).pass(60, true, now), Passage::Lost);
        assert_eq!(links.link(LINK).pass(1_500, false, now), Passage::Lost);
        let meter = links.meter(&[LINK]);
        assert_eq!((meter.held_bytes, meter.held_connections), (1_560, 1));
        links.heal();
        assert_eq!(links.link(LINK).pass(60, false, now), Passage::Now);
        let other = Link {
            from: LINK.to,
            to: LINK.from,
        };
        assert_eq!(links.meter(&[other]), Meter::default());
    }

    #[test]
    fn loss_is_as_frequent_as_asked_and_repeats_with_the_seed() {
        let how = Disturbance::Lose { percent: 30 };
        let lost = fates(7, how).iter().filter(|fate| fate.is_none()).count();
        assert!((250..350).contains(&lost), "{lost}");
        assert_eq!(fates(7, how), fates(7, how));
        assert_ne!(fates(7, how), fates(8, how));
    }

    #[test]
    fn as_many_packets_are_changed_as_asked() {
        let mut links = links(5);
        let now = Instant::now();
        let link = links.link(LINK);
        link.disturb(Disturbance::Duplicate { percent: 20 }, now);
        link.disturb(Disturbance::Corrupt { percent: 50 }, now);
        let changes: Vec<PacketChange> = (0..1_000)
            .map(|_| {
                let _ = link.pass(100, false, now);
                link.change()
            })
            .collect();
        let doubled = changes.iter().filter(|change| change.is_doubled).count();
        let damaged = changes
            .iter()
            .filter(|change| change.flipped.is_some())
            .count();
        assert!((150..250).contains(&doubled), "{doubled}");
        assert!((440..560).contains(&damaged), "{damaged}");
        let meter = links.meter(&[LINK]);
        assert_eq!(
            (meter.duplicated_packets, meter.corrupted_packets),
            (doubled as u64, damaged as u64)
        );
        links.calm();
        assert_eq!(links.link(LINK).change(), PacketChange::default());
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let millis = Duration::from_millis;
        let arrivals = |how| -> Vec<u128> {
            let fates = fates(3, how).into_iter().enumerate();
            fates
                .map(|(number, fate)| fate.unwrap() + number as u128 * 1_000)
                .collect()
        };
        let slow = Disturbance::Slow {
            delay: millis(20),
            jitter: millis(10),
        };
        let slow = arrivals(slow);
        assert!(slow.is_sorted());
        assert!(slow[0] >= 10_000 && slow.iter().zip(0..).all(|(at, n)| at - n * 1_000 <= 31_000));
        let reorder = Disturbance::Reorder {
            percent: 10,
            delay: millis(5),
        };
        assert!(!arrivals(reorder).is_sorted());
    }

    #[test]
    fn a_throttled_link_spaces_packets_and_bounds_its_queue() {
        // 100 bytes each millisecond on a link of 50,000 bytes per second: half of them find no room.
        let how = Disturbance::Throttle {
            bytes_per_second: 50_000,
        };
        let fates = fates(1, how);
        let waited = fates.iter().flatten().max().unwrap();
        assert!((500_000..504_001).contains(waited), "{waited}");
        let delivered = fates.iter().flatten().count();
        assert!((740..760).contains(&delivered), "{delivered}"); // 500 and the queue's 250
    }

    #[test]
    fn a_flapping_link_loses_packets_in_every_other_phase() {
        let period = Duration::from_millis(100);
        let fates = fates(1, Disturbance::Flap { period });
        for (number, fate) in fates.iter().enumerate() {
            assert_eq!(fate.is_none(), (number / 100) % 2 == 0, "{number}");
        }
    }
}
