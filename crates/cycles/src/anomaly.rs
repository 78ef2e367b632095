//! The anomalies of transactions, by name.

/// The name of an anomaly, as the field writes it: `G0`, `G1a`, `G-single-realtime`, `internal`, `nonlinearizable`, …
pub type Anomaly = &'static str;

/// A read that contradicts an earlier read or write of its own transaction.
pub const INTERNAL: Anomaly = "internal";
/// A read of a value that its own transaction writes only later.
pub const FUTURE_READ: Anomaly = "future-read";
/// A read of a value that was never written.
pub const GARBAGE_READ: Anomaly = "garbage-read";
/// An aborted read: the transaction that wrote the value failed.
pub const G1A: Anomaly = "G1a";
/// An intermediate read: the transaction that wrote the value overwrote it later.
pub const G1B: Anomaly = "G1b";
/// A committed write on top of an aborted one.
pub const DIRTY_UPDATE: Anomaly = "dirty-update";
/// An element twice in one list.
pub const DUPLICATE_ELEMENTS: Anomaly = "duplicate-elements";
/// Two reads of a list of which neither is a prefix of the other: no order of appends explains both.
pub const INCOMPATIBLE_ORDER: Anomaly = "incompatible-order";
/// Two transactions read the same version of a key, and both overwrite it.
pub const LOST_UPDATE: Anomaly = "lost-update";

/// A set of transactions that no version order explains; each order fails for a different reason.
pub const NO_ORDER: Anomaly = "no-order";
/// A cycle in the version order of a key, where a transaction's write follows the version that it read.
pub const CYCLIC_VERSIONS: Anomaly = "cyclic-versions";
/// A cycle in the version order of a key under the assumption that updates are atomic: no version lies between the
/// one that a transaction read and the one that it wrote.
pub const CYCLIC_VERSIONS_RMW: Anomaly = "cyclic-versions-rmw";
/// A cycle in the version order of a key under the assumption that each key is sequentially consistent.
pub const CYCLIC_VERSIONS_PROCESS: Anomaly = "cyclic-versions-process";
/// A cycle in the version order of a key under the assumption that each key is linearizable.
pub const CYCLIC_VERSIONS_REALTIME: Anomaly = "cyclic-versions-realtime";
/// A contradiction between the reads of a key and a given order of transactions.
pub const CYCLIC_VERSIONS_ORDER: Anomaly = "cyclic-versions-order";

/// The class of a dependency cycle by its edges, the worst first (Adya 1999; G-nonadjacent: Cerone and Gotsman 2018).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleClass {
    /// Write dependencies only.
    G0,
    /// Write and read dependencies, at least one read dependency.
    G1c,
    /// Exactly one anti-dependency.
    GSingle,
    /// Two anti-dependencies or more, no two of them adjacent.
    GNonadjacent,
    /// Two adjacent anti-dependencies.
    G2Item,
}

impl CycleClass {
    /// All classes, the worst first.
    pub const ALL: [CycleClass; 5] = [
        CycleClass::G0,
        CycleClass::G1c,
        CycleClass::GSingle,
        CycleClass::GNonadjacent,
        CycleClass::G2Item,
    ];
}

/// The order that a cycle needs besides its dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleVariant {
    /// No other order.
    Plain,
    /// The order of one process's transactions.
    Process,
    /// Real time: one transaction completed before the other was invoked.
    Realtime,
}

impl CycleVariant {
    /// All variants, that with the fewest assumptions first.
    pub const ALL: [CycleVariant; 3] = [
        CycleVariant::Plain,
        CycleVariant::Process,
        CycleVariant::Realtime,
    ];
}

/// The class and the variant of a cycle, which name its anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CycleKind {
    /// The order that it needs besides dependencies.
    pub variant: CycleVariant,
    /// The class of its dependencies.
    pub class: CycleClass,
}

impl CycleKind {
    /// The anomaly: `G-single-process`, …
    pub const fn name(self) -> Anomaly {
        NAMES[self.variant as usize][self.class as usize]
    }

    /// All kinds of cycles.
    pub fn all() -> impl Iterator<Item = CycleKind> {
        CycleVariant::ALL.into_iter().flat_map(|variant| {
            let classes = CycleClass::ALL.into_iter();
            classes.map(move |class| CycleKind { variant, class })
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

/// All anomalies, the clearest first: the order in which findings are shown.
pub fn all() -> impl Iterator<Item = Anomaly> {
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

/// The anomalies that an anomaly directly implies (Elle's lattice, for reads and writes of single items).
pub fn implied(anomaly: Anomaly) -> &'static [Anomaly] {
    match anomaly {
        GARBAGE_READ | DIRTY_UPDATE | INCOMPATIBLE_ORDER => &[G1A],
        // In a database that keeps the level which forbids the implied anomaly, the version orders of each key agree
        // (decision 0023).
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
        assert!(CycleKind::all().all(|cyclic| names.contains(cyclic.name())));
        let cyclic = CycleKind {
            variant: CycleVariant::Realtime,
            class: CycleClass::GNonadjacent,
        };
        assert_eq!(cyclic.name(), "G-nonadjacent-realtime");
    }
}
