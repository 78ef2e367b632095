//! Faults as values: a generator draws them, `sim` and `runner` inject them, a history records them, and all of them
//! read the one table here.
//!
//! To add a fault: a variant of [`Fault`] (or of [`Disturbance`], [`DiskTrouble`]), an arm in [`Fault::parts`] and a
//! row in the table below. Its operation in a history, its place in a plan, its text for people, what ends it and how
//! reports shade it follow from the row. Still to write: its effect in `sim` and in `runner`, and the draw in
//! `generator::faults`.

mod kind;

pub use kind::FaultKind;

use crate::NodeId;
use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::time::Duration;

/// One direction of the network between two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The endpoint that sends.
    pub from: NodeId,
    /// The endpoint that receives.
    pub to: NodeId,
}

impl Link {
    /// Both directions between `a` and `b`.
    pub const fn both(a: NodeId, b: NodeId) -> [Link; 2] {
        [Link { from: a, to: b }, Link { from: b, to: a }]
    }
}

/// A disturbance of the packets on a link. A simulated network applies it to whole messages; a proxy of byte streams
/// delays what TCP would have to send again or put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Packets take longer: `delay` on average, `jitter` around it.
    Slow {
        /// Mean extra delay.
        delay: Duration,
        /// Largest deviation from it.
        jitter: Duration,
    },
    /// Some packets are lost.
    Lose {
        /// Lost packets of every hundred.
        percent: u8,
    },
    /// Some packets are held back, so that later ones overtake them.
    Reorder {
        /// Delayed packets of every hundred.
        percent: u8,
        /// Their extra delay.
        delay: Duration,
    },
    /// Some packets arrive twice.
    Duplicate {
        /// Doubled packets of every hundred.
        percent: u8,
    },
    /// A bit of some packets is flipped. Checksums find it, so the receiver drops the packet.
    Corrupt {
        /// Damaged packets of every hundred.
        percent: u8,
    },
    /// The link's bandwidth is limited.
    Throttle {
        /// Bytes per second, at least 1.
        bytes_per_second: u64,
    },
    /// The link fails and works again in turn, as with a loose plug or a switch that restarts: a phase in which nothing
    /// passes, then a phase without trouble, and so on.
    Flap {
        /// Length of each phase, above zero.
        period: Duration,
    },
}

/// The disturbances in force on one link, one of each sort at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCondition {
    /// Extra delay and its largest deviation, which is not longer than the delay.
    pub slow: Option<(Duration, Duration)>,
    /// Lost packets of every hundred.
    pub lose: u8,
    /// Delayed packets of every hundred, and their extra delay.
    pub reorder: Option<(u8, Duration)>,
    /// Doubled packets of every hundred.
    pub duplicate: u8,
    /// Damaged packets of every hundred.
    pub corrupt: u8,
    /// Bytes per second, at least 1.
    pub throttle: Option<u64>,
    /// Length of each phase of a flapping link.
    pub flap: Option<Duration>,
}

impl LinkCondition {
    /// Adds a disturbance; it replaces an earlier one of the same sort.
    pub fn disturb(&mut self, how: Disturbance) {
        match how {
            Disturbance::Slow { delay, jitter } => self.slow = Some((delay, jitter.min(delay))),
            Disturbance::Lose { percent } => self.lose = percent,
            Disturbance::Reorder { percent, delay } => self.reorder = Some((percent, delay)),
            Disturbance::Duplicate { percent } => self.duplicate = percent,
            Disturbance::Corrupt { percent } => self.corrupt = percent,
            Disturbance::Throttle { bytes_per_second } => {
                self.throttle = Some(bytes_per_second.max(1));
            }
            Disturbance::Flap { period } => self.flap = Some(period.max(Duration::from_nanos(1))),
        }
    }

    /// Packets of every hundred that do not arrive: lost, or damaged and dropped by the receiver. For links that carry no
    /// checksums of their own.
    pub const fn missing_percent(&self) -> u8 {
        let (lost, damaged) = (self.lose as u16, self.corrupt as u16);
        (lost + damaged - lost * damaged / 100) as u8
    }

    /// How long a flapping link still lets nothing pass, `passed` after it was disturbed; zero while it works.
    pub fn down_for(&self, passed: Duration) -> Duration {
        let Some(period) = self.flap.map(|period| period.as_nanos()) else {
            return Duration::ZERO;
        };
        let phase = passed.as_nanos() % (2 * period);
        let left = period.saturating_sub(phase);
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Is at least one disturbance in force?
    pub fn is_disturbed(&self) -> bool {
        *self != LinkCondition::default()
    }
}

/// A failure of a disk that lasts until it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// Every sync takes this much longer.
    Slow(Duration),
    /// Writes fail with an input/output error.
    WriteErrors,
    /// Reads fail with an input/output error.
    ReadErrors,
    /// Writes fail because the disk is full.
    NoSpace,
}

/// A step of a fault schedule: it injects a fault, ends one, or observes the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process ends at once (SIGKILL); what it had not synced may be lost.
    Kill(NodeId),
    /// A node that is down starts again from its disk; a running node is left alone.
    Restart(NodeId),
    /// The process stops without ending (SIGSTOP).
    Pause(NodeId),
    /// A paused process continues (SIGCONT).
    Resume(NodeId),
    /// Nothing passes these links until [`Fault::Heal`]; packets in transit wait or are lost.
    Cut(Vec<Link>),
    /// Connections over these links are reset once.
    Reset(Vec<Link>),
    /// All links that were cut are whole again.
    Heal,
    /// Packets on these links are disturbed until [`Fault::Calm`].
    Disturb {
        /// The links; a later disturbance of the same sort replaces an earlier one.
        links: Vec<Link>,
        /// What happens to their packets.
        how: Disturbance,
    },
    /// All disturbances of links end.
    Calm,
    /// The node's clock jumps by `offset_ns` and then runs `rate_ppm` parts per million fast (or slow). With zeros the clock
    /// runs at the right speed from where it is, and a strobe ends. A clock that only moves forward cannot take back
    /// what it showed.
    Skew {
        /// The node whose clock is wrong.
        node: NodeId,
        /// Jump in nanoseconds.
        offset_ns: i64,
        /// Drift in parts per million.
        rate_ppm: i32,
    },
    /// The node's clock jumps ahead and back again and again.
    Strobe {
        /// The node whose clock is wrong.
        node: NodeId,
        /// How far ahead.
        delta: Duration,
        /// How long it stays ahead, and then right.
        period: Duration,
        /// It ends by itself after this.
        length: Duration,
    },
    /// The node's disk fails in this way until [`Fault::MendDisk`].
    Disk {
        /// The node.
        node: NodeId,
        /// The failure; replaces an earlier one.
        trouble: DiskTrouble,
    },
    /// The node's disk works again. A process that ended meanwhile is not started by this.
    MendDisk(NodeId),
    /// The node's machine loses power: the process ends, and everything that was not synced is lost.
    LoseUnsynced(NodeId),
    /// Flips bits of durable bytes of the node, as a decaying disk does.
    BitRot {
        /// The node whose disk decays.
        node: NodeId,
        /// How many bits flip.
        bits: u32,
    },
    /// Cuts off the end of the file that the node, which is down, wrote last.
    Truncate {
        /// The node.
        node: NodeId,
        /// How many bytes.
        bytes: u64,
    },
    /// Keeps a copy of the node's files, for [`Fault::Restore`].
    Snapshot(NodeId),
    /// Puts that copy back under a node that is down: its writes since then are lost.
    Restore(NodeId),
    /// Changes nothing: asks the nodes for the members and the primaries of the system.
    View,
    /// Asks a node to join the system.
    Join(NodeId),
    /// Asks a node to leave the system.
    Leave(NodeId),
}

/// A state of a node or of the network that a fault brings about and another one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultState {
    /// A node's process is gone.
    Down,
    /// A node's process is stopped.
    Paused,
    /// Links are cut.
    Cut,
    /// Links are disturbed.
    Disturbed,
    /// A node's clock is wrong.
    WrongClock,
    /// A node's disk fails.
    FailingDisk,
    /// A node has left the system.
    Away,
}

impl FaultState {
    /// The family in whose colour and lane a report shows the state.
    pub const fn kind(self) -> FaultKind {
        match self {
            FaultState::Down => FaultKind::Kill,
            FaultState::Paused => FaultKind::Pause,
            FaultState::Cut => FaultKind::Partition,
            FaultState::Disturbed => FaultKind::Packet,
            FaultState::WrongClock => FaultKind::Clock,
            FaultState::FailingDisk => FaultKind::Disk,
            FaultState::Away => FaultKind::Membership,
        }
    }
}

/// What a fault does to the state of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Breaks something until it is mended.
    Begins(FaultState),
    /// Breaks something at one instant.
    Once,
    /// Mends.
    Ends(FaultState),
    /// Breaks and mends nothing.
    Observes,
}

/// The endpoints that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSubject<'a> {
    /// All of the system.
    System,
    /// One node.
    Node(NodeId),
    /// Some links.
    Links(&'a [Link]),
}

/// One number of a fault.
#[derive(Debug)]
pub struct FaultParameter {
    /// Its key in the value of the operation.
    pub key: &'static str,
    /// Its key in a plan.
    pub plan_key: &'static str,
    /// How a plan and a text write it.
    pub unit: ParameterUnit,
    /// The numbers that make sense.
    pub range: RangeInclusive<i64>,
    /// What a plan need not say.
    pub default: Option<i64>,
    /// A short description.
    pub about: &'static str,
}

/// The unit of a fault's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterUnit {
    /// A duration, stored in nanoseconds; in plans a text such as `"5ms"`.
    Duration,
    /// Nanoseconds that may be negative; in plans a whole number of milliseconds.
    Milliseconds,
    /// A plain number.
    Count,
}

/// One row of the table of faults: all that generator, plans, runner, simulator and reports know of it.
#[derive(Debug)]
pub struct FaultInfo {
    /// The name under which a history records it (the `f` of a nemesis operation).
    pub name: &'static str,
    /// Its family.
    pub kind: FaultKind,
    /// Its numbers, in the order in which they are stored and printed.
    pub parameters: &'static [FaultParameter],
    /// What it does; [`Fault::effect`] knows the exception of a clock that is set right.
    pub effect: FaultEffect,
    /// The text after the name and the subject, with a `{}` for each number.
    template: &'static str,
    make: Make,
}

/// Makes a fault from its subject and its numbers, which are in range.
#[derive(Clone, Copy, Debug)]
enum Make {
    System(fn(&[i64]) -> Fault),
    Node(fn(NodeId, &[i64]) -> Fault),
    Links(fn(Vec<Link>, &[i64]) -> Fault),
    /// Of links.
    Disturbance(fn(&[i64]) -> Disturbance),
    /// Of a node.
    Trouble(fn(&[i64]) -> DiskTrouble),
}

const fn duration_of(nanoseconds: i64) -> Duration {
    Duration::from_nanos(nanoseconds.unsigned_abs())
}

impl FaultParameter {
    /// A plain number.
    const fn count(
        key: &'static str,
        range: RangeInclusive<i64>,
        about: &'static str,
    ) -> FaultParameter {
        FaultParameter {
            key,
            plan_key: key,
            unit: ParameterUnit::Count,
            range,
            default: None,
            about,
        }
    }

    /// A duration.
    const fn time(
        key: &'static str,
        plan_key: &'static str,
        about: &'static str,
    ) -> FaultParameter {
        FaultParameter {
            key,
            plan_key,
            unit: ParameterUnit::Duration,
            range: 0..=i64::MAX,
            default: None,
            about,
        }
    }

    const fn or(self, default: i64) -> FaultParameter {
        FaultParameter {
            default: Some(default),
            ..self
        }
    }
}

/// Largest jump of a clock: 10^12 milliseconds, about 31 years.
const JUMP_MAX_NS: i64 = 1_000_000_000_000_000_000;

const DELAY: FaultParameter =
    FaultParameter::time("delay-ns", "latency", "how much longer it takes");
const JITTER: FaultParameter =
    FaultParameter::time("jitter-ns", "jitter", "the largest deviation").or(0);
const PERCENT: FaultParameter =
    FaultParameter::count("percent", 1..=100, "how many of a hundred packets");
const RATE: FaultParameter = FaultParameter {
    plan_key: "bytes_per_second",
    ..FaultParameter::count(
        "bytes-per-second",
        1..=i64::MAX,
        "how many bytes pass in a second",
    )
};
const OFFSET: FaultParameter = FaultParameter {
    plan_key: "offset_ms",
    unit: ParameterUnit::Milliseconds,
    default: Some(0),
    ..FaultParameter::count(
        "offset-ns",
        -JUMP_MAX_NS..=JUMP_MAX_NS,
        "how far the clock jumps",
    )
};
const DRIFT: FaultParameter = FaultParameter {
    plan_key: "rate_ppm",
    default: Some(0),
    ..FaultParameter::count(
        "rate-ppm",
        -1_000_000..=1_000_000,
        "how fast the clock runs",
    )
};
const DELTA: FaultParameter =
    FaultParameter::time("delta-ns", "delta", "how far the clock jumps ahead");
const PERIOD: FaultParameter = FaultParameter {
    range: 1..=i64::MAX,
    ..FaultParameter::time(
        "period-ns",
        "period",
        "how long each of the two phases takes",
    )
};
const LENGTH: FaultParameter =
    FaultParameter::time("length-ns", "length", "when it ends by itself");
const BITS: FaultParameter =
    FaultParameter::count("bits", 1..=1_000_000, "how many bits flip").or(1);
const BYTES: FaultParameter =
    FaultParameter::count("bytes", 1..=i64::MAX, "how many bytes are cut off");

/// All faults, by family. Numbers are in their ranges when a row makes a fault of them, so the conversions lose nothing.
static FAULTS: [FaultInfo; 30] = [
    FaultInfo::node("kill", FaultKind::Kill, |node, _| Fault::Kill(node)).begins(FaultState::Down),
    FaultInfo::node("restart", FaultKind::Kill, |node, _| Fault::Restart(node))
        .finishes(FaultState::Down),
    FaultInfo::node("pause", FaultKind::Pause, |node, _| Fault::Pause(node))
        .begins(FaultState::Paused),
    FaultInfo::node("resume", FaultKind::Pause, |node, _| Fault::Resume(node))
        .finishes(FaultState::Paused),
    FaultInfo::links("cut", FaultKind::Partition, |links, _| Fault::Cut(links))
        .begins(FaultState::Cut),
    FaultInfo::links("reset", FaultKind::Partition, |links, _| {
        Fault::Reset(links)
    }),
    FaultInfo::system("heal", FaultKind::Partition, |_| Fault::Heal).finishes(FaultState::Cut),
    FaultInfo::disturbance("slow", |n| Disturbance::Slow {
        delay: duration_of(n[0]),
        jitter: duration_of(n[1]),
    })
    .with(&[DELAY, JITTER], " by {} ± {}"),
    FaultInfo::disturbance("lose", |n| Disturbance::Lose {
        percent: n[0] as u8,
    })
    .with(&[PERCENT], " {} %"),
    FaultInfo::disturbance("reorder", |n| Disturbance::Reorder {
        percent: n[0] as u8,
        delay: duration_of(n[1]),
    })
    .with(&[PERCENT, DELAY], " {} % by {}"),
    FaultInfo::disturbance("duplicate", |n| Disturbance::Duplicate {
        percent: n[0] as u8,
    })
    .with(&[PERCENT], " {} %"),
    FaultInfo::disturbance("corrupt", |n| Disturbance::Corrupt {
        percent: n[0] as u8,
    })
    .with(&[PERCENT], " {} %"),
    FaultInfo::disturbance("throttle", |n| Disturbance::Throttle {
        bytes_per_second: n[0].unsigned_abs(),
    })
    .with(&[RATE], " to {} bytes/s"),
    FaultInfo::disturbance("flap", |n| Disturbance::Flap {
        period: duration_of(n[0]),
    })
    .with(&[PERIOD], " every {}"),
    FaultInfo::system("calm", FaultKind::Packet, |_| Fault::Calm).finishes(FaultState::Disturbed),
    FaultInfo::node("skew", FaultKind::Clock, |node, n| Fault::Skew {
        node,
        offset_ns: n[0],
        rate_ppm: n[1] as i32,
    })
    .with(&[OFFSET, DRIFT], " by {} and {} ppm")
    .begins(FaultState::WrongClock),
    FaultInfo::node("strobe", FaultKind::Clock, |node, n| Fault::Strobe {
        node,
        delta: duration_of(n[0]),
        period: duration_of(n[1]),
        length: duration_of(n[2]),
    })
    .with(&[DELTA, PERIOD, LENGTH], " by {} every {} for {}")
    .begins(FaultState::WrongClock),
    FaultInfo::trouble("slow-disk", |n| DiskTrouble::Slow(duration_of(n[0])))
        .with(&[DELAY], " by {}"),
    FaultInfo::trouble("write-errors", |_| DiskTrouble::WriteErrors),
    FaultInfo::trouble("read-errors", |_| DiskTrouble::ReadErrors),
    FaultInfo::trouble("no-space", |_| DiskTrouble::NoSpace),
    FaultInfo::node("mend-disk", FaultKind::Disk, |node, _| {
        Fault::MendDisk(node)
    })
    .finishes(FaultState::FailingDisk),
    FaultInfo::node("lose-unsynced", FaultKind::Disk, |node, _| {
        Fault::LoseUnsynced(node)
    })
    .begins(FaultState::Down),
    FaultInfo::node("bit-rot", FaultKind::Corruption, |node, n| Fault::BitRot {
        node,
        bits: n[0] as u32,
    })
    .with(&[BITS], ", {} bits"),
    FaultInfo::node("truncate", FaultKind::Corruption, |node, n| {
        Fault::Truncate {
            node,
            bytes: n[0].unsigned_abs(),
        }
    })
    .with(&[BYTES], " by {} bytes"),
    FaultInfo::node("snapshot", FaultKind::Corruption, |node, _| {
        Fault::Snapshot(node)
    })
    .observes(),
    FaultInfo::node("restore", FaultKind::Corruption, |node, _| {
        Fault::Restore(node)
    }),
    FaultInfo::system("view", FaultKind::Membership, |_| Fault::View).observes(),
    FaultInfo::node("join", FaultKind::Membership, |node, _| Fault::Join(node))
        .finishes(FaultState::Away),
    FaultInfo::node("leave", FaultKind::Membership, |node, _| Fault::Leave(node))
        .begins(FaultState::Away),
];

/// The rows are written with these: without more, a row has no numbers and breaks something once.
impl FaultInfo {
    const fn new(name: &'static str, kind: FaultKind, make: Make) -> FaultInfo {
        FaultInfo {
            name,
            kind,
            parameters: &[],
            effect: FaultEffect::Once,
            template: "",
            make,
        }
    }

    const fn system(name: &'static str, kind: FaultKind, make: fn(&[i64]) -> Fault) -> FaultInfo {
        FaultInfo::new(name, kind, Make::System(make))
    }

    const fn node(
        name: &'static str,
        kind: FaultKind,
        make: fn(NodeId, &[i64]) -> Fault,
    ) -> FaultInfo {
        FaultInfo::new(name, kind, Make::Node(make))
    }

    const fn links(
        name: &'static str,
        kind: FaultKind,
        make: fn(Vec<Link>, &[i64]) -> Fault,
    ) -> FaultInfo {
        FaultInfo::new(name, kind, Make::Links(make))
    }

    const fn disturbance(name: &'static str, make: fn(&[i64]) -> Disturbance) -> FaultInfo {
        FaultInfo::new(name, FaultKind::Packet, Make::Disturbance(make))
            .begins(FaultState::Disturbed)
    }

    const fn trouble(name: &'static str, make: fn(&[i64]) -> DiskTrouble) -> FaultInfo {
        FaultInfo::new(name, FaultKind::Disk, Make::Trouble(make)).begins(FaultState::FailingDisk)
    }

    const fn with(
        self,
        parameters: &'static [FaultParameter],
        template: &'static str,
    ) -> FaultInfo {
        FaultInfo {
            parameters,
            template,
            ..self
        }
    }

    const fn begins(self, state: FaultState) -> FaultInfo {
        let effect = FaultEffect::Begins(state);
        FaultInfo { effect, ..self }
    }

    const fn finishes(self, state: FaultState) -> FaultInfo {
        let effect = FaultEffect::Ends(state);
        FaultInfo { effect, ..self }
    }

    const fn observes(self) -> FaultInfo {
        let effect = FaultEffect::Observes;
        FaultInfo { effect, ..self }
    }
}

impl FaultInfo {
    /// All faults, family by family.
    pub const fn all() -> &'static [FaultInfo] {
        &FAULTS
    }

    /// The row of this name.
    pub fn named(name: &str) -> Option<&'static FaultInfo> {
        FAULTS.iter().find(|info| info.name == name)
    }

    /// Does it concern one node?
    pub const fn takes_node(&self) -> bool {
        matches!(self.make, Make::Node(_) | Make::Trouble(_))
    }

    /// Does it concern links?
    pub const fn takes_links(&self) -> bool {
        matches!(self.make, Make::Links(_) | Make::Disturbance(_))
    }

    /// The fault with this subject and these numbers; none when the subject is of another sort, or a number is
    /// missing, too many, or out of its range.
    pub fn fault(&self, subject: FaultSubject<'_>, numbers: &[i64]) -> Option<Fault> {
        let mut pairs = numbers.iter().zip(self.parameters);
        if numbers.len() != self.parameters.len()
            || !pairs.all(|(number, parameter)| parameter.range.contains(number))
        {
            return None;
        }
        match (self.make, subject) {
            (Make::System(make), FaultSubject::System) => Some(make(numbers)),
            (Make::Node(make), FaultSubject::Node(node)) => Some(make(node, numbers)),
            (Make::Links(make), FaultSubject::Links(links)) => Some(make(links.to_vec(), numbers)),
            (Make::Disturbance(make), FaultSubject::Links(links)) => Some(Fault::Disturb {
                links: links.to_vec(),
                how: make(numbers),
            }),
            (Make::Trouble(make), FaultSubject::Node(node)) => Some(Fault::Disk {
                node,
                trouble: make(numbers),
            }),
            _ => None,
        }
    }
}

/// The parts of a fault: with its name they are the fault.
#[derive(Debug)]
pub struct FaultParts<'a> {
    /// Its row of the table.
    pub info: &'static FaultInfo,
    /// What it concerns.
    pub subject: FaultSubject<'a>,
    /// One number for each parameter of the row.
    pub numbers: Vec<i64>,
}

impl Fault {
    /// The clock of a node runs right from now on.
    pub const fn right_clock(node: NodeId) -> Fault {
        Fault::Skew {
            node,
            offset_ns: 0,
            rate_ppm: 0,
        }
    }

    /// Takes the fault apart: its name, subject and numbers. [`FaultInfo::fault`] puts it together again.
    pub fn parts(&self) -> FaultParts<'_> {
        let (name, subject, numbers) = match self {
            Fault::Kill(node) => ("kill", FaultSubject::Node(*node), vec![]),
            Fault::Restart(node) => ("restart", FaultSubject::Node(*node), vec![]),
            Fault::Pause(node) => ("pause", FaultSubject::Node(*node), vec![]),
            Fault::Resume(node) => ("resume", FaultSubject::Node(*node), vec![]),
            Fault::Cut(links) => ("cut", FaultSubject::Links(links), vec![]),
            Fault::Reset(links) => ("reset", FaultSubject::Links(links), vec![]),
            Fault::Heal => ("heal", FaultSubject::System, vec![]),
            Fault::Disturb { links, how } => {
                let (name, numbers) = disturbance_parts(how);
                (name, FaultSubject::Links(links), numbers)
            }
            Fault::Calm => ("calm", FaultSubject::System, vec![]),
            Fault::Skew {
                node,
                offset_ns,
                rate_ppm,
            } => {
                let numbers = vec![*offset_ns, i64::from(*rate_ppm)];
                ("skew", FaultSubject::Node(*node), numbers)
            }
            Fault::Strobe {
                node,
                delta,
                period,
                length,
            } => {
                let numbers = [delta, period, length].map(nanoseconds).to_vec();
                ("strobe", FaultSubject::Node(*node), numbers)
            }
            Fault::Disk { node, trouble } => {
                let (name, numbers) = trouble_parts(trouble);
                (name, FaultSubject::Node(*node), numbers)
            }
            Fault::MendDisk(node) => ("mend-disk", FaultSubject::Node(*node), vec![]),
            Fault::LoseUnsynced(node) => ("lose-unsynced", FaultSubject::Node(*node), vec![]),
            Fault::BitRot { node, bits } => {
                let numbers = vec![i64::from(*bits)];
                ("bit-rot", FaultSubject::Node(*node), numbers)
            }
            Fault::Truncate { node, bytes } => {
                ("truncate", FaultSubject::Node(*node), vec![whole(*bytes)])
            }
            Fault::Snapshot(node) => ("snapshot", FaultSubject::Node(*node), vec![]),
            Fault::Restore(node) => ("restore", FaultSubject::Node(*node), vec![]),
            Fault::View => ("view", FaultSubject::System, vec![]),
            Fault::Join(node) => ("join", FaultSubject::Node(*node), vec![]),
            Fault::Leave(node) => ("leave", FaultSubject::Node(*node), vec![]),
        };
        let info = FaultInfo::named(name).expect("every name above has a row, as a test verifies");
        assert_eq!(numbers.len(), info.parameters.len(), "numbers of {name}");
        FaultParts {
            info,
            subject,
            numbers,
        }
    }

    /// Its row of the table.
    pub fn info(&self) -> &'static FaultInfo {
        self.parts().info
    }

    /// The family of this fault.
    pub fn kind(&self) -> FaultKind {
        self.info().kind
    }

    /// The name under which a history records this fault (the `f` of a nemesis operation).
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// The node that it concerns, if it is one.
    pub fn node(&self) -> Option<NodeId> {
        match self.parts().subject {
            FaultSubject::Node(node) => Some(node),
            _ => None,
        }
    }

    /// The links that it concerns; empty when it concerns none.
    pub fn links(&self) -> &[Link] {
        match self {
            Fault::Cut(links) | Fault::Reset(links) | Fault::Disturb { links, .. } => links,
            _ => &[],
        }
    }

    /// What it does to the system. A skew of nothing mends the clock.
    pub fn effect(&self) -> FaultEffect {
        match self {
            Fault::Skew {
                offset_ns: 0,
                rate_ppm: 0,
                ..
            } => FaultEffect::Ends(FaultState::WrongClock),
            _ => self.info().effect,
        }
    }

    /// Does it break something, for a while or once?
    pub fn is_breaking(&self) -> bool {
        matches!(self.effect(), FaultEffect::Begins(_) | FaultEffect::Once)
    }

    /// Does the state that `earlier` began end when this one takes effect? It was mended, as a rule; besides, a new state of the
    /// same sort replaces it, and a process that is gone is no longer paused.
    pub fn ends(&self, earlier: &Fault) -> bool {
        let FaultEffect::Begins(state) = earlier.effect() else {
            return false;
        };
        let node = self.node();
        let same_node = node == earlier.node();
        match self.effect() {
            FaultEffect::Ends(ended) => ended == state && (node.is_none() || same_node),
            FaultEffect::Begins(new) => {
                let replaces =
                    new == state || (new, state) == (FaultState::Down, FaultState::Paused);
                node.is_some() && same_node && replaces
            }
            FaultEffect::Once | FaultEffect::Observes => false,
        }
    }

    /// The fault that ends the state that this one begins; none when it begins none.
    pub fn mending(&self) -> Option<Fault> {
        let FaultEffect::Begins(state) = self.effect() else {
            return None;
        };
        let fault = match (state, self.node()) {
            (FaultState::Cut, _) => Fault::Heal,
            (FaultState::Disturbed, _) => Fault::Calm,
            (FaultState::Down, Some(node)) => Fault::Restart(node),
            (FaultState::Paused, Some(node)) => Fault::Resume(node),
            (FaultState::WrongClock, Some(node)) => Fault::right_clock(node),
            (FaultState::FailingDisk, Some(node)) => Fault::MendDisk(node),
            (FaultState::Away, Some(node)) => Fault::Join(node),
            (_, None) => return None,
        };
        debug_assert!(fault.ends(self), "{fault} does not mend {self}");
        Some(fault)
    }
}

/// Its name and its numbers.
fn disturbance_parts(how: &Disturbance) -> (&'static str, Vec<i64>) {
    match how {
        Disturbance::Slow { delay, jitter } => ("slow", [delay, jitter].map(nanoseconds).to_vec()),
        Disturbance::Lose { percent } => ("lose", vec![i64::from(*percent)]),
        Disturbance::Reorder { percent, delay } => {
            ("reorder", vec![i64::from(*percent), nanoseconds(delay)])
        }
        Disturbance::Duplicate { percent } => ("duplicate", vec![i64::from(*percent)]),
        Disturbance::Corrupt { percent } => ("corrupt", vec![i64::from(*percent)]),
        Disturbance::Throttle { bytes_per_second } => ("throttle", vec![whole(*bytes_per_second)]),
        Disturbance::Flap { period } => ("flap", vec![nanoseconds(period)]),
    }
}

/// Its name and its numbers.
fn trouble_parts(trouble: &DiskTrouble) -> (&'static str, Vec<i64>) {
    match trouble {
        DiskTrouble::Slow(delay) => ("slow-disk", vec![nanoseconds(delay)]),
        DiskTrouble::WriteErrors => ("write-errors", vec![]),
        DiskTrouble::ReadErrors => ("read-errors", vec![]),
        DiskTrouble::NoSpace => ("no-space", vec![]),
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn nanoseconds(duration: &Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The text of a fault: `slow n1↔n2 by 5ms ± 1ms`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultParts {
            info,
            subject,
            numbers,
        } = self.parts();
        f.write_str(info.name)?;
        match subject {
            FaultSubject::System => {}
            FaultSubject::Node(node) => write!(f, " {node}")?,
            FaultSubject::Links(links) => write!(f, " {}", name_links(links))?,
        }
        let mut numbers = numbers.iter().zip(info.parameters);
        for (number, text) in info.template.split("{}").enumerate() {
            if number > 0
                && let Some((number, parameter)) = numbers.next()
            {
                match parameter.unit {
                    ParameterUnit::Duration => write!(f, "{:?}", duration_of(*number))?,
                    ParameterUnit::Milliseconds => write!(f, "{number} ns")?,
                    ParameterUnit::Count => write!(f, "{number}")?,
                }
            }
            f.write_str(text)?;
        }
        Ok(())
    }
}

/// Links that a text names.
const LINKS_NAMED: usize = 6;

/// The text of links: both directions of a pair as one, the first few by name.
fn name_links(links: &[Link]) -> String {
    let mut names = Vec::new();
    for link in links {
        let back = Link {
            from: link.to,
            to: link.from,
        };
        match (links.contains(&back), link.from <= link.to) {
            (true, true) => names.push(format!("{}↔{}", link.from, link.to)),
            (true, false) => {}
            (false, _) => names.push(format!("{}→{}", link.from, link.to)),
        }
    }
    let mut text = names[..names.len().min(LINKS_NAMED)].join(" ");
    if names.len() > LINKS_NAMED {
        let _ = write!(text, " and {} more", names.len() - LINKS_NAMED);
    }
    text
}

#[cfg(test)]
mod tests;
