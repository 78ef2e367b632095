//! The families of faults.

use std::fmt;

/// The families of faults that `--faults` names.
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
    /// Failing disks and power failures: nothing that was synced is lost.
    Disk,
    /// Durable bytes that change or vanish: no single copy survives it.
    Corruption,
    /// Nodes that join and leave.
    Membership,
}

/// One row of the table of families of faults.
struct KindRow {
    kind: FaultKind,
    name: &'static str,
    about: &'static str,
}

const fn row(kind: FaultKind, name: &'static str, about: &'static str) -> KindRow {
    KindRow { kind, name, about }
}

/// All families in the order of the enumeration, which is that in which they are listed to people: names and help texts come
/// from here.
#[rustfmt::skip]
const KINDS: [KindRow; 8] = [
    row(FaultKind::Kill, "kill", "SIGKILL, then a restart"),
    row(FaultKind::Pause, "pause", "SIGSTOP, then SIGCONT"),
    row(FaultKind::Partition, "partition", "links that are cut, connections that are reset"),
    row(FaultKind::Packet, "packet", "links that are slow, lossy, reordering or narrow"),
    row(FaultKind::Clock, "clock", "clocks that jump, drift or flicker"),
    row(FaultKind::Disk, "disk", "disks that are full, slow or failing, and losses of power"),
    row(FaultKind::Corruption, "corruption", "durable bytes that change or vanish"),
    row(FaultKind::Membership, "membership", "nodes that join and leave"),
];

impl FaultKind {
    /// All families, in the order in which they are listed to people.
    pub const ALL: [FaultKind; KINDS.len()] = {
        let mut all = [FaultKind::Kill; KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            assert!(KINDS[at].kind as usize == at, "the table has another order");
            all[at] = KINDS[at].kind;
            at += 1;
        }
        all
    };

    /// The name that `--faults` takes.
    pub const fn name(self) -> &'static str {
        KINDS[self as usize].name
    }

    /// What it does, in a few words.
    pub const fn about(self) -> &'static str {
        KINDS[self as usize].about
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
