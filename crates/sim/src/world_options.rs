//! Options of a world: the steady misbehaviour of its network, disks and clocks.

use seatrial_machine::{FaultKind, Rng};
use std::fmt;
use std::time::Duration;

/// Steady misbehaviour of a world's network, disks and clocks, in addition to the faults that are applied to it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldOptions {
    /// Delay, loss and duplication of messages.
    pub network: NetworkOptions,
    /// Delay of syncs, and losses at crashes.
    pub disk: DiskOptions,
    /// Largest drift of a node's clock in parts per million, either way.
    pub drift_ppm_max: u32,
    /// Longest run of a job.
    pub job_delay_max: Duration,
}

/// Delay, loss and duplication of messages.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkOptions {
    /// Shortest delay.
    pub delay_min: Duration,
    /// Uniform addition to it, which lets messages overtake each other.
    pub delay_spread: Duration,
    /// Probability that a message is lost.
    pub loss: f64,
    /// Probability that a message arrives twice.
    pub duplication: f64,
    /// Probability that a message takes much longer.
    pub straggler: f64,
    /// Its mean additional delay (exponential).
    pub straggler_delay: Duration,
    /// Probability that a message over a cut link waits for it to be whole again, up to 5 s, instead of being lost.
    pub queueing: f64,
}

/// Delay of syncs, and losses at crashes.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskOptions {
    /// Shortest sync.
    pub sync_min: Duration,
    /// Added to it, uniform.
    pub sync_spread: Duration,
    /// Probability that a sync takes fifty times as long.
    pub sync_stall: f64,
    /// Probability that a sync is reported for the last append that it covers only, which implies all earlier ones.
    pub answer_last: f64,
    /// Probability that a crash keeps all written bytes, as when a process is killed and its system is not.
    pub kill_keeps_all: f64,
    /// Probability that a crash loses all unsynced bytes; otherwise a random part survives.
    pub crash_loses_all: f64,
    /// Probability that a part of the first write that a crash lost survives.
    pub torn_write: f64,
    /// Probability that a crash keeps a random subset of the unsynced writes instead of a prefix.
    pub reordering: f64,
    /// Probability that what a node has under way at a crash (a job, a task on a file, a batch of appends) has begun, and
    /// ends in the middle.
    pub crash_within: f64,
}

impl Default for WorldOptions {
    /// A quiet world: a local network, a good disk, right clocks, and crashes that lose unsynced bytes.
    fn default() -> WorldOptions {
        WorldOptions {
            network: NetworkOptions {
                delay_min: Duration::from_micros(100),
                delay_spread: Duration::from_micros(200),
                loss: 0.0,
                duplication: 0.0,
                straggler: 0.0,
                straggler_delay: Duration::from_millis(10),
                queueing: 0.0,
            },
            disk: DiskOptions {
                sync_min: Duration::from_micros(100),
                sync_spread: Duration::from_micros(400),
                sync_stall: 0.0,
                answer_last: 0.5,
                kill_keeps_all: 0.0,
                crash_loses_all: 0.5,
                torn_write: 0.0,
                reordering: 0.0,
                crash_within: 0.0,
            },
            drift_ppm_max: 0,
            job_delay_max: Duration::from_millis(1),
        }
    }
}

impl WorldOptions {
    /// Draws a world by *swarm* (Groce and others, "Swarm testing", 2012): of the misbehaviours that belong to `kinds`
    /// a random subset is on, each with a strength over orders of magnitude. A bug that needs a quiet disk and a
    /// wild network is met as well as its opposite. Times of network and disk vary in every world.
    pub fn swarm(rng: &mut Rng, kinds: &[FaultKind]) -> WorldOptions {
        let mut options = WorldOptions::default();
        let network = &mut options.network;
        network.delay_min = magnitude(rng, 10, 4);
        network.delay_spread = magnitude(rng, 10, 4);
        let disk = &mut options.disk;
        disk.sync_min = magnitude(rng, 10, 3);
        disk.sync_spread = magnitude(rng, 10, 4);
        disk.crash_loses_all = rng.unit();
        disk.answer_last = rng.fork("answers").unit();
        options.job_delay_max = magnitude(rng, 10, 4);
        if kinds.contains(&FaultKind::Partition) || kinds.contains(&FaultKind::Packet) {
            network.loss = sometimes(rng, 0.3);
            network.duplication = sometimes(rng, 0.3);
            network.straggler = sometimes(rng, 0.2);
            network.straggler_delay = magnitude(rng, 1_000, 3);
            network.queueing = sometimes(&mut rng.fork("queueing"), 1.0);
        }
        if kinds.contains(&FaultKind::Kill) {
            disk.torn_write = sometimes(rng, 1.0);
            let mut crashes = rng.fork("crashes");
            disk.reordering = sometimes(&mut crashes, 1.0);
            disk.crash_within = sometimes(&mut crashes, 1.0);
        }
        if kinds.contains(&FaultKind::Disk) {
            disk.sync_stall = sometimes(rng, 0.2);
        }
        if kinds.contains(&FaultKind::Clock) && rng.chance(0.5) {
            options.drift_ppm_max = 1 << rng.below(18);
        }
        options
    }

    /// The drift of the next node's clock.
    pub(crate) fn drift(&self, rng: &mut Rng) -> i32 {
        let max = i32::try_from(self.drift_ppm_max).unwrap_or(i32::MAX);
        rng.below(u64::from(max.unsigned_abs()) * 2 + 1) as i32 - max
    }

    pub(crate) fn job_delay(&self, rng: &mut Rng) -> Duration {
        rng.duration_below(self.job_delay_max)
    }
}

impl DiskOptions {
    pub(crate) fn sync_delay(&self, rng: &mut Rng) -> Duration {
        let delay = self.sync_min + rng.duration_below(self.sync_spread);
        if self.sync_stall > 0.0 && rng.chance(self.sync_stall) {
            delay * 50
        } else {
            delay
        }
    }
}

/// `microseconds` times 10^x, with x uniform below `decades - 1`: log-uniform.
fn magnitude(rng: &mut Rng, microseconds: u64, decades: i32) -> Duration {
    let factor = 10_f64.powf(rng.unit() * f64::from(decades - 1));
    Duration::from_nanos((microseconds as f64 * 1e3 * factor) as u64)
}

/// 0 half of the time, else a log-uniform probability between `max / 100` and `max`.
fn sometimes(rng: &mut Rng, max: f64) -> f64 {
    if rng.chance(0.5) {
        0.0
    } else {
        max * 10_f64.powf(-2.0 * rng.unit())
    }
}

/// One line: delays, and every misbehaviour that is on.
impl fmt::Display for WorldOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorldOptions {
            network,
            disk,
            drift_ppm_max,
            ..
        } = self;
        write!(
            f,
            "network {:.0?} + {:.0?}",
            network.delay_min, network.delay_spread
        )?;
        for (name, probability) in [
            ("loss", network.loss),
            ("duplication", network.duplication),
            ("stragglers", network.straggler),
            ("queueing", network.queueing),
        ] {
            if probability > 0.0 {
                write!(f, ", {name} {:.1} %", probability * 100.0)?;
            }
        }
        write!(f, "; sync {:.0?} + {:.0?}", disk.sync_min, disk.sync_spread)?;
        for (name, probability) in [
            ("stalls", disk.sync_stall),
            ("torn writes", disk.torn_write),
            ("writes out of order", disk.reordering),
            ("crashes within work", disk.crash_within),
        ] {
            if probability > 0.0 {
                write!(f, ", {name} {:.1} %", probability * 100.0)?;
            }
        }
        if *drift_ppm_max > 0 {
            write!(f, "; clocks drift up to {drift_ppm_max} ppm")?;
        }
        Ok(())
    }
}
