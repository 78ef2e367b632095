//! Faults as values: the same schedule is drawn by a generator, carried out by `sim` or `runner`, recorded, replayed
//! and shrunk.

use crate::NodeId;
use std::fmt;
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

/// Something that breaks the system under test, or mends it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process is gone at once (SIGKILL); what it had not synced may be lost.
    Kill(NodeId),
    /// A killed node starts again from its disk; a running node is left alone.
    Restart(NodeId),
    /// The process stops without dying (SIGSTOP).
    Pause(NodeId),
    /// A paused process goes on (SIGCONT).
    Resume(NodeId),
    /// Nothing passes these links until [`Fault::Heal`]; what is under way waits or is lost.
    Cut(Vec<Link>),
    /// Messages on these links take longer: `delay` on average, `jitter` around it.
    Slow {
        /// The links that become slow.
        links: Vec<Link>,
        /// Mean extra delay.
        delay: Duration,
        /// Largest deviation from it.
        jitter: Duration,
    },
    /// Connections over these links are reset once.
    Reset(Vec<Link>),
    /// All links are whole and fast again.
    Heal,
    /// The node's clock jumps by `offset_ns` and then runs `rate_ppm` parts per million fast (or slow).
    Skew {
        /// The node whose clock is wrong.
        node: NodeId,
        /// Jump in nanoseconds.
        offset_ns: i64,
        /// Drift in parts per million.
        rate_ppm: i32,
    },
    /// Flip bits of durable bytes of the node, as a decaying disk does.
    BitRot {
        /// The node whose disk decays.
        node: NodeId,
        /// How many bits flip.
        bits: u32,
    },
}

/// The families that `--faults` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Kill and restart.
    Kill,
    /// Pause and resume.
    Pause,
    /// Cut, slow, reset and heal.
    Partition,
    /// Clock skew.
    Clock,
    /// Damage to durable bytes.
    Disk,
}

impl FaultKind {
    /// All families, in the order in which they are listed to people.
    pub const ALL: [FaultKind; 5] = [
        FaultKind::Kill,
        FaultKind::Pause,
        FaultKind::Partition,
        FaultKind::Clock,
        FaultKind::Disk,
    ];

    /// The name that `--faults` takes.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Pause => "pause",
            FaultKind::Partition => "partition",
            FaultKind::Clock => "clock",
            FaultKind::Disk => "disk",
        }
    }

    /// The family called `name`.
    pub fn from_name(name: &str) -> Option<FaultKind> {
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Fault {
    /// The family of this fault.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Fault::Kill(_) | Fault::Restart(_) => FaultKind::Kill,
            Fault::Pause(_) | Fault::Resume(_) => FaultKind::Pause,
            Fault::Cut(_) | Fault::Slow { .. } | Fault::Reset(_) | Fault::Heal => {
                FaultKind::Partition
            }
            Fault::Skew { .. } => FaultKind::Clock,
            Fault::BitRot { .. } => FaultKind::Disk,
        }
    }

    /// The name under which a history records this fault (the `f` of a nemesis operation).
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::Kill(_) => "kill",
            Fault::Restart(_) => "restart",
            Fault::Pause(_) => "pause",
            Fault::Resume(_) => "resume",
            Fault::Cut(_) => "cut",
            Fault::Slow { .. } => "slow",
            Fault::Reset(_) => "reset",
            Fault::Heal => "heal",
            Fault::Skew { .. } => "skew",
            Fault::BitRot { .. } => "bit-rot",
        }
    }
}
