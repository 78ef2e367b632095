//! The anomalies of transactions, by name.

use crate::Anomaly;

/// A read that contradicts what its own transaction read or wrote before.
pub(super) const INTERNAL: Anomaly = "internal";
/// A read that observes what its own transaction writes only later.
pub(super) const FUTURE_READ: Anomaly = "future-read";
/// A read of a value that nobody ever wrote.
pub(super) const GARBAGE_READ: Anomaly = "garbage-read";
/// An aborted read: of a value whose transaction failed.
pub(super) const G1A: Anomaly = "G1a";
/// An intermediate read: of a value that its own transaction overwrote.
pub(super) const G1B: Anomaly = "G1b";
/// A committed write on top of an aborted one.
pub(super) const DIRTY_UPDATE: Anomaly = "dirty-update";
/// An element twice in one list.
pub(super) const DUPLICATE_ELEMENTS: Anomaly = "duplicate-elements";
/// Two reads that no single order of appends explains.
pub(super) const INCOMPATIBLE_ORDER: Anomaly = "incompatible-order";
/// Two transactions read the same version and both write on top of it.
pub(super) const LOST_UPDATE: Anomaly = "lost-update";

/// Transactions that no order of versions explains, each order for a reason of its own.
pub(super) const NO_ORDER: Anomaly = "no-order";
/// Transactions that write behind what they read, by themselves, say that a version of a key comes before itself.
pub(super) const CYCLIC_VERSIONS: Anomaly = "cyclic-versions";
/// Atomic updates say so: nothing between what a transaction read and what it wrote.
pub(super) const CYCLIC_VERSIONS_RMW: Anomaly = "cyclic-versions-rmw";
/// The order of each process's transactions says so, as if keys were sequentially consistent.
pub(super) const CYCLIC_VERSIONS_PROCESS: Anomaly = "cyclic-versions-process";
/// Real time says so, as if keys were linearizable.
pub(super) const CYCLIC_VERSIONS_REALTIME: Anomaly = "cyclic-versions-realtime";
/// A given order of transactions says so.
pub(super) const CYCLIC_VERSIONS_ORDER: Anomaly = "cyclic-versions-order";

/// The kind of a dependency cycle by its edges, the worst first (Adya 1999; G-nonadjacent: Cerone and Gotsman 2018).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Write dependencies only.
    G0,
    /// Write and read dependencies, at least one of the latter.
    G1c,
    /// Exactly one anti-dependency.
    GSingle,
    /// Several anti-dependencies, no two of them adjacent.
    GNonadjacent,
    /// Several anti-dependencies, two of them adjacent.
    G2Item,
}

impl Class {
    /// All classes.
    pub(super) const ALL: [Class; 5] = [
        Class::G0,
        Class::G1c,
        Class::GSingle,
        Class::GNonadjacent,
        Class::G2Item,
    ];
}

/// Which orders besides the data a cycle needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// None.
    Plain,
    /// The order of one process's transactions.
    Process,
    /// Real time: one transaction ended before the other began.
    Realtime,
}

impl Variant {
    /// All variants.
    pub(super) const ALL: [Variant; 3] = [Variant::Plain, Variant::Process, Variant::Realtime];
}

/// A cycle's class and variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cyclic {
    pub(super) variant: Variant,
    pub(super) class: Class,
}

impl Cyclic {
    /// The anomaly's name.
    pub(super) const fn name(self) -> Anomaly {
        NAMES[self.variant as usize][self.class as usize]
    }

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Cyclic> {
        Variant::ALL.into_iter().flat_map(|variant| {
            let classes = Class::ALL.into_iter();
            classes.map(move |class| Cyclic { variant, class })
        })
    }
}

const NAMES: [[Anomaly; 5]; 3] = [
    ["G0", "G1c", "G-single", "G-nonadjacent", "G2-item"],
    [
        "G0-process",
        "G1c-process",
        "G-single-process",
        "G-nonadjacent-process",
        "G2-item-process",
    ],
    [
        "G0-realtime",
        "G1c-realtime",
        "G-single-realtime",
        "G-nonadjacent-realtime",
        "G2-item-realtime",
    ],
];

/// All anomalies, the most telling first: the order in which findings are shown.
pub(super) fn all() -> impl Iterator<Item = Anomaly> {
    let direct = [
        GARBAGE_READ,
        DUPLICATE_ELEMENTS,
        INTERNAL,
        FUTURE_READ,
        G1A,
        G1B,
        DIRTY_UPDATE,
        INCOMPATIBLE_ORDER,
        CYCLIC_VERSIONS,
        CYCLIC_VERSIONS_RMW,
        CYCLIC_VERSIONS_PROCESS,
        CYCLIC_VERSIONS_REALTIME,
        CYCLIC_VERSIONS_ORDER,
    ];
    let plain = NAMES[0].into_iter();
    let others = NAMES[1..].iter().flatten().copied();
    direct
        .into_iter()
        .chain(plain.clone().take(2))
        .chain([LOST_UPDATE])
        .chain(plain.skip(2))
        .chain(others)
}

/// What the presence of an anomaly directly implies the presence of (Elle's lattice, for reads and writes of single
/// items).
pub(super) fn implied(anomaly: Anomaly) -> &'static [Anomaly] {
    match anomaly {
        GARBAGE_READ | DIRTY_UPDATE | INCOMPATIBLE_ORDER => &[G1A],
        // Whoever keeps the level that forbids what cyclic versions imply has keys on which the orders agree (decision
        // 0023).
        FUTURE_READ | CYCLIC_VERSIONS => &["G1c"],
        CYCLIC_VERSIONS_RMW => &["G-single"],
        CYCLIC_VERSIONS_PROCESS => &["G-single-process"],
        CYCLIC_VERSIONS_REALTIME => &["G-single-realtime"],
        LOST_UPDATE => &["G2-item"],
        "G0" => &["G1c", "G0-process"],
        "G0-process" => &["G1c-process", "G0-realtime"],
        "G1c" => &["G1c-process"],
        "G0-realtime" | "G1c-process" => &["G1c-realtime"],
        "G-single" => &["G-nonadjacent", "G-single-process"],
        "G-single-process" => &["G-nonadjacent-process", "G-single-realtime"],
        "G-single-realtime" => &["G-nonadjacent-realtime"],
        "G-nonadjacent" => &["G2-item", "G-nonadjacent-process"],
        "G-nonadjacent-process" => &["G2-item-process", "G-nonadjacent-realtime"],
        "G2-item" | CYCLIC_VERSIONS_ORDER => &["G2-item-process"],
        "G-nonadjacent-realtime" | "G2-item-process" => &["G2-item-realtime"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_implications_known() {
        let names: BTreeSet<_> = all().collect();
        assert_eq!(names.len(), all().count());
        for name in all() {
            assert!(
                implied(name).iter().all(|other| names.contains(other)),
                "{name}"
            );
        }
        assert!(Cyclic::all().all(|cyclic| names.contains(cyclic.name())));
        let cyclic = Cyclic {
            variant: Variant::Realtime,
            class: Class::GNonadjacent,
        };
        assert_eq!(cyclic.name(), "G-nonadjacent-realtime");
    }
}
