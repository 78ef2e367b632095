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

/// What is wrong with the packets on a link. A simulated network treats whole messages so; a proxy of byte streams delays
/// what TCP would have to send again or put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// They take longer: `delay` on average, `jitter` around it.
    Slow {
        /// Mean extra delay.
        delay: Duration,
        /// Largest deviation from it.
        jitter: Duration,
    },
    /// Some are lost.
    Lose {
        /// How many of a hundred.
        percent: u8,
    },
    /// Some are held back, so that later ones overtake them.
    Reorder {
        /// How many of a hundred.
        percent: u8,
        /// How long they are held back.
        delay: Duration,
    },
    /// No more than so many bytes pass in a second.
    Throttle {
        /// Bytes per second, at least 1.
        bytes_per_second: u64,
    },
}

impl Disturbance {
    /// The name under which a history records it.
    pub const fn name(&self) -> &'static str {
        match self {
            Disturbance::Slow { .. } => "slow",
            Disturbance::Lose { .. } => "lose",
            Disturbance::Reorder { .. } => "reorder",
            Disturbance::Throttle { .. } => "throttle",
        }
    }
}

/// What is wrong with a disk until it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// Every sync takes so much longer.
    Slow(Duration),
    /// Writes fail with an input/output error.
    WriteErrors,
    /// Reads fail with an input/output error.
    ReadErrors,
    /// Writes fail because there is no room.
    NoSpace,
}

impl DiskTrouble {
    /// The name under which a history records it.
    pub const fn name(&self) -> &'static str {
        match self {
            DiskTrouble::Slow(_) => "slow-disk",
            DiskTrouble::WriteErrors => "write-errors",
            DiskTrouble::ReadErrors => "read-errors",
            DiskTrouble::NoSpace => "no-space",
        }
    }
}

/// Something that breaks the system under test, or mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone at once (SIGKILL); what it had not synced may be lost.
    Kill(NodeId),
    /// A node that is down starts again from its disk; a running node is left alone.
    Restart(NodeId),
    /// The process stops without dying (SIGSTOP).
    Pause(NodeId),
    /// A paused process goes on (SIGCONT).
    Resume(NodeId),
    /// Nothing passes these links until [`Fault::Heal`]; what is under way waits or is lost.
    Cut(Vec<Link>),
    /// Connections over these links are reset once.
    Reset(Vec<Link>),
    /// All links that were cut are whole again.
    Heal,
    /// Packets on these links are disturbed until [`Fault::Calm`].
    Disturb {
        /// The links; a later disturbance of the same name replaces an earlier one.
        links: Vec<Link>,
        /// What happens to their packets.
        how: Disturbance,
    },
    /// No link is disturbed any more.
    Calm,
    /// The node's clock jumps by `offset_ns` and then runs `rate_ppm` parts per million fast (or slow). Neither: it runs
    /// right again from where it is, and a strobe ends. A clock that only goes forward cannot take back what it showed.
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
    /// The node's disk is in trouble until [`Fault::MendDisk`].
    Disk {
        /// The node.
        node: NodeId,
        /// What is wrong; replaces what was wrong before.
        trouble: DiskTrouble,
    },
    /// The node's disk works again. What went down meanwhile is not started by this.
    MendDisk(NodeId),
    /// The node's machine loses power: the process is gone, and all that was not synced.
    LoseUnsynced(NodeId),
    /// Flip bits of durable bytes of the node, as a decaying disk does.
    BitRot {
        /// The node whose disk decays.
        node: NodeId,
        /// How many bits flip.
        bits: u32,
    },
    /// Cuts off the end of what the node, which is down, wrote last.
    Truncate {
        /// The node.
        node: NodeId,
        /// How many bytes.
        bytes: u64,
    },
    /// Keeps a copy of what the node has on its disk now, for [`Fault::Restore`].
    Snapshot(NodeId),
    /// Puts the copy back under a node that is down: whatever it wrote since is lost.
    Restore(NodeId),
    /// Breaks nothing: asks the nodes who belongs to the system, and who leads.
    View,
    /// A node is told to join the system.
    Join(NodeId),
    /// A node is told to leave the system.
    Leave(NodeId),
}

/// The families that `--faults` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Kill and restart.
    Kill,
    /// Pause and resume.
    Pause,
    /// Cut, reset and heal.
    Partition,
    /// Slow, lossy, reordering and narrow links.
    Packet,
    /// Clocks that jump, drift and flicker.
    Clock,
    /// Disks in trouble, and power that fails: nothing that was synced is lost.
    Disk,
    /// Durable bytes that change or vanish: no single copy outlives it.
    Corruption,
    /// Nodes that join and leave.
    Membership,
}

impl FaultKind {
    /// All families, in the order in which they are listed to people.
    pub const ALL: [FaultKind; 8] = [
        FaultKind::Kill,
        FaultKind::Pause,
        FaultKind::Partition,
        FaultKind::Packet,
        FaultKind::Clock,
        FaultKind::Disk,
        FaultKind::Corruption,
        FaultKind::Membership,
    ];

    /// The name that `--faults` takes.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Pause => "pause",
            FaultKind::Partition => "partition",
            FaultKind::Packet => "packet",
            FaultKind::Clock => "clock",
            FaultKind::Disk => "disk",
            FaultKind::Corruption => "corruption",
            FaultKind::Membership => "membership",
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
    /// The clock of a node runs right from now on.
    pub const fn right_clock(node: NodeId) -> Fault {
        Fault::Skew {
            node,
            offset_ns: 0,
            rate_ppm: 0,
        }
    }

    /// The family of this fault.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Fault::Kill(_) | Fault::Restart(_) => FaultKind::Kill,
            Fault::Pause(_) | Fault::Resume(_) => FaultKind::Pause,
            Fault::Cut(_) | Fault::Reset(_) | Fault::Heal => FaultKind::Partition,
            Fault::Disturb { .. } | Fault::Calm => FaultKind::Packet,
            Fault::Skew { .. } | Fault::Strobe { .. } => FaultKind::Clock,
            Fault::Disk { .. } | Fault::MendDisk(_) | Fault::LoseUnsynced(_) => FaultKind::Disk,
            Fault::BitRot { .. }
            | Fault::Truncate { .. }
            | Fault::Snapshot(_)
            | Fault::Restore(_) => FaultKind::Corruption,
            Fault::View | Fault::Join(_) | Fault::Leave(_) => FaultKind::Membership,
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
            Fault::Reset(_) => "reset",
            Fault::Heal => "heal",
            Fault::Disturb { how, .. } => how.name(),
            Fault::Calm => "calm",
            Fault::Skew { .. } => "skew",
            Fault::Strobe { .. } => "strobe",
            Fault::Disk { trouble, .. } => trouble.name(),
            Fault::MendDisk(_) => "mend-disk",
            Fault::LoseUnsynced(_) => "lose-unsynced",
            Fault::BitRot { .. } => "bit-rot",
            Fault::Truncate { .. } => "truncate",
            Fault::Snapshot(_) => "snapshot",
            Fault::Restore(_) => "restore",
            Fault::View => "view",
            Fault::Join(_) => "join",
            Fault::Leave(_) => "leave",
        }
    }
}
