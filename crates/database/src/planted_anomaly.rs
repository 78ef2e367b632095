//! The anomalies that can be planted: their operations, and the weakest level that excludes each.

use super::database_options::{DatabaseWorkload, StoreLevel};

/// An anomaly to plant: a few operations that no store could have completed at a level that excludes the anomaly. They
/// share neither keys nor processes with other operations, so the rest of the history stays valid, and the verdict is known
/// exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Dirty write: two transactions write two keys in opposite orders.
    G0,
    /// Aborted read: a read of a write of a failed transaction.
    G1a,
    /// Intermediate read: a read of a value that its own transaction overwrote.
    G1b,
    /// Circular information flow: two transactions read each other's writes.
    G1c,
    /// Read skew: one key from before a transaction, another from after it.
    GSingle,
    /// Long fork: two readers observe two independent writes in opposite orders.
    GNonadjacent,
    /// Write skew: each of two transactions reads the key that the other writes, before the write.
    G2Item,
    /// A process does not observe its own earlier write.
    GSingleProcess,
    /// Two transactions read the same version, and both overwrite it.
    LostUpdate,
    /// A transaction does not observe its own earlier write.
    Internal,
    /// A transaction observes its own later write.
    FutureRead,
    /// A read of a value that was never written.
    GarbageRead,
    /// Two reads with the same elements in different orders.
    IncompatibleOrder,
    /// A list with the same element twice; of a queue: an element that is dequeued twice.
    DuplicateElements,
    /// A committed write on top of an aborted one.
    DirtyUpdate,
    /// A read that misses a write acknowledged before it began; a later read observes the write.
    StaleRead,
    /// An acknowledged write that no read observes.
    LostWrite,
    /// A transaction observes the second of two transactions of a process, then the first.
    NonMonotonicRead,
}

/// A micro-operation of a planted operation: the key by number, and the value written or observed.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlantedMop {
    Write(u8, i64),
    Read(u8, &'static [i64]),
}

/// An operation of an anomaly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// All operations of a stage are concurrent; the next stage begins when all of them have completed.
    pub(super) stage: u8,
    /// Operations of the same role run in the same process.
    pub(super) role: u8,
    /// Does it fail?
    pub(super) fails: bool,
    pub(super) micros: &'static [PlantedMop],
}

/// Maximum number of operations of an anomaly.
pub(super) const MEMBERS_MAX: usize = 4;
/// Maximum number of keys of an anomaly.
pub(super) const KEYS_MAX: usize = 2;

const X: u8 = 0;
const Y: u8 = 1;

const fn ok(stage: u8, role: u8, micros: &'static [PlantedMop]) -> Member {
    Member {
        stage,
        role,
        fails: false,
        micros,
    }
}

const fn fail(stage: u8, role: u8, micros: &'static [PlantedMop]) -> Member {
    Member {
        stage,
        role,
        fails: true,
        micros,
    }
}

use PlantedMop::{Read, Write};

const G0: &[Member] = &[
    ok(0, 0, &[Write(X, 1), Write(Y, 1)]),
    ok(0, 1, &[Write(X, 2), Write(Y, 2)]),
    ok(1, 2, &[Read(X, &[1, 2]), Read(Y, &[2, 1])]),
];
const G1A: &[Member] = &[fail(0, 0, &[Write(X, 1)]), ok(0, 1, &[Read(X, &[1])])];
const G1B: &[Member] = &[
    ok(0, 0, &[Write(X, 1), Write(X, 2)]),
    ok(0, 1, &[Read(X, &[1])]),
];
const G1C: &[Member] = &[
    ok(0, 0, &[Write(X, 1), Read(Y, &[1])]),
    ok(0, 1, &[Write(Y, 1), Read(X, &[1])]),
];
const G_SINGLE: &[Member] = &[
    ok(0, 0, &[Write(X, 1), Write(Y, 1)]),
    ok(0, 1, &[Read(X, &[]), Read(Y, &[1])]),
];
const G_NONADJACENT: &[Member] = &[
    ok(0, 0, &[Write(X, 1)]),
    ok(0, 1, &[Write(Y, 1)]),
    ok(0, 2, &[Read(X, &[1]), Read(Y, &[])]),
    ok(0, 3, &[Read(X, &[]), Read(Y, &[1])]),
];
const G2_ITEM: &[Member] = &[
    ok(0, 0, &[Read(X, &[]), Write(Y, 1)]),
    ok(0, 1, &[Read(Y, &[]), Write(X, 1)]),
    ok(1, 2, &[Read(X, &[1]), Read(Y, &[1])]),
];
const G_SINGLE_PROCESS: &[Member] = &[
    ok(0, 0, &[Write(X, 1)]),
    ok(1, 0, &[Read(X, &[])]),
    ok(2, 1, &[Read(X, &[1])]),
];
const LOST_UPDATE: &[Member] = &[
    ok(0, 0, &[Read(X, &[]), Write(X, 1)]),
    ok(0, 1, &[Read(X, &[]), Write(X, 2)]),
    ok(1, 2, &[Read(X, &[1, 2])]),
];
const INTERNAL: &[Member] = &[ok(0, 0, &[Write(X, 1), Read(X, &[])])];
const FUTURE_READ: &[Member] = &[ok(0, 0, &[Read(X, &[1]), Write(X, 1)])];
const GARBAGE_READ: &[Member] = &[ok(0, 0, &[Read(X, &[7])])];
const INCOMPATIBLE_ORDER: &[Member] = &[
    ok(0, 0, &[Write(X, 1)]),
    ok(0, 1, &[Write(X, 2)]),
    ok(1, 2, &[Read(X, &[1, 2])]),
    ok(1, 3, &[Read(X, &[2, 1])]),
];
const DUPLICATE_ELEMENTS: &[Member] = &[ok(0, 0, &[Write(X, 1)]), ok(1, 1, &[Read(X, &[1, 1])])];
const DIRTY_UPDATE: &[Member] = &[
    fail(0, 0, &[Write(X, 1)]),
    ok(1, 1, &[Write(X, 2)]),
    ok(2, 2, &[Read(X, &[1, 2])]),
];
const STALE_READ: &[Member] = &[
    ok(0, 0, &[Write(X, 1)]),
    ok(1, 1, &[Read(X, &[])]),
    ok(2, 2, &[Read(X, &[1])]),
];
const LOST_WRITE: &[Member] = &[
    ok(0, 0, &[Write(X, 1)]),
    ok(1, 1, &[Read(X, &[])]),
    ok(2, 2, &[Read(X, &[])]),
];

const NON_MONOTONIC_READ: &[Member] = &[
    ok(0, 0, &[Write(X, 1), Write(Y, 1)]),
    ok(1, 0, &[Write(X, 2), Write(Y, 2)]),
    ok(1, 1, &[Read(Y, &[1, 2]), Read(X, &[1])]),
];

/// The strength of a level in two dimensions, both from weak to strong: which writes of other transactions reads may
/// observe, and how old the observed state may be.
///
/// ```text
///   sight 5  serializable, eventual        strong session ser., sequential   strict ser., linearizable
///         4  snapshot isolation            strong session SI                 strong SI
///         3  prefix
///         2  read atomic
///         1  read committed
///         0  read uncommitted
///            age 0                         age 1                             age 2
/// ```
///
/// An anomaly has a rank too: the weakest that excludes it, in one of the two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LevelRank {
    sight: u8,
    age: u8,
}

/// Above all levels: a dimension in which no level excludes the anomaly.
const NONE: u8 = u8::MAX;

impl StoreLevel {
    const fn rank(self) -> LevelRank {
        let (sight, age) = match self {
            StoreLevel::ReadUncommitted => (0, 0),
            StoreLevel::ReadCommitted => (1, 0),
            StoreLevel::ReadAtomic => (2, 0),
            StoreLevel::Prefix => (3, 0),
            StoreLevel::SnapshotIsolation => (4, 0),
            StoreLevel::StrongSessionSnapshotIsolation => (4, 1),
            StoreLevel::StrongSnapshotIsolation => (4, 2),
            StoreLevel::Serializable | StoreLevel::Eventual => (5, 0),
            StoreLevel::StrongSessionSerializable | StoreLevel::Sequential => (5, 1),
            StoreLevel::StrictSerializable | StoreLevel::Linearizable => (5, 2),
        };
        LevelRank { sight, age }
    }
}

/// An anomaly with its name, its operations, and the weakest rank that excludes it.
type AnomalyRow = (Anomaly, &'static str, &'static [Member], LevelRank);

const fn sight(sight: u8) -> LevelRank {
    LevelRank { sight, age: NONE }
}

const fn age(age: u8) -> LevelRank {
    LevelRank { sight: NONE, age }
}

/// All anomalies, in the order of their declaration: [`Anomaly::row`] indexes this table.
const ROWS: [AnomalyRow; 18] = [
    (Anomaly::G0, "G0", G0, sight(0)),
    (Anomaly::G1a, "G1a", G1A, sight(1)),
    (Anomaly::G1b, "G1b", G1B, sight(1)),
    (Anomaly::G1c, "G1c", G1C, sight(1)),
    (Anomaly::GSingle, "G-single", G_SINGLE, sight(2)),
    (
        Anomaly::GNonadjacent,
        "G-nonadjacent",
        G_NONADJACENT,
        sight(3),
    ),
    (Anomaly::G2Item, "G2-item", G2_ITEM, sight(5)),
    (
        Anomaly::GSingleProcess,
        "G-single-process",
        G_SINGLE_PROCESS,
        age(1),
    ),
    (Anomaly::LostUpdate, "lost-update", LOST_UPDATE, sight(4)),
    (Anomaly::Internal, "internal", INTERNAL, sight(2)),
    (Anomaly::FutureRead, "future-read", FUTURE_READ, sight(1)),
    (Anomaly::GarbageRead, "garbage-read", GARBAGE_READ, sight(0)),
    (
        Anomaly::IncompatibleOrder,
        "incompatible-order",
        INCOMPATIBLE_ORDER,
        sight(1),
    ),
    (
        Anomaly::DuplicateElements,
        "duplicate-elements",
        DUPLICATE_ELEMENTS,
        sight(0),
    ),
    (Anomaly::DirtyUpdate, "dirty-update", DIRTY_UPDATE, sight(1)),
    (Anomaly::StaleRead, "stale-read", STALE_READ, age(2)),
    (Anomaly::LostWrite, "lost-write", LOST_WRITE, age(2)),
    (
        Anomaly::NonMonotonicRead,
        "non-monotonic-read",
        NON_MONOTONIC_READ,
        sight(2),
    ),
];

impl Anomaly {
    /// All anomalies.
    pub fn all() -> impl Iterator<Item = Anomaly> {
        ROWS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static AnomalyRow {
        let row = &ROWS[self as usize];
        debug_assert!(
            row.0 == self,
            "the table is not in the order of the declaration"
        );
        row
    }

    /// The name, which is also that of the checkers, except for stale reads, lost writes and non-monotonic reads.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The anomaly of this name.
    pub fn by_name(name: &str) -> Option<Anomaly> {
        Anomaly::all().find(|one| one.name() == name)
    }

    /// The operations to plant, in the order of their stages.
    pub(super) fn members(self) -> &'static [Member] {
        self.row().2
    }

    /// Number of processes of its operations.
    pub fn processes(self) -> u32 {
        let roles = self.members().iter().map(|member| u32::from(member.role));
        1 + roles.max().unwrap_or_default()
    }

    /// Does this level allow it?
    pub fn is_admitted_by(self, isolation: StoreLevel) -> bool {
        let (level, excluded) = (isolation.rank(), self.row().3);
        level.sight < excluded.sight && level.age < excluded.age
    }

    /// Can operations of this workload show it?
    pub fn is_seen_in(self, workload: DatabaseWorkload) -> bool {
        match workload {
            DatabaseWorkload::ListAppend => true,
            // Reads of registers do not show the order of blind writes.
            DatabaseWorkload::RwRegister => !matches!(
                self,
                Anomaly::G0
                    | Anomaly::IncompatibleOrder
                    | Anomaly::DuplicateElements
                    | Anomaly::DirtyUpdate
            ),
            DatabaseWorkload::Queue => matches!(
                self,
                Anomaly::GarbageRead | Anomaly::DuplicateElements | Anomaly::LostWrite
            ),
            _ => matches!(
                self,
                Anomaly::G1a
                    | Anomaly::GSingleProcess
                    | Anomaly::GarbageRead
                    | Anomaly::StaleRead
                    | Anomaly::LostWrite
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anomalies_are_found_by_name_and_fit_their_bounds() {
        for (number, anomaly) in Anomaly::all().enumerate() {
            assert_eq!(anomaly as usize, number);
            assert_eq!(Anomaly::by_name(anomaly.name()), Some(anomaly));
            let members = anomaly.members();
            assert!(members.len() <= MEMBERS_MAX);
            assert!(members.is_sorted_by_key(|member| member.stage));
            let mut micros = members.iter().flat_map(|member| member.micros);
            assert!(micros.all(|micro| match micro {
                Write(key, _) | Read(key, _) => usize::from(*key) < KEYS_MAX,
            }));
        }
        assert_eq!(Anomaly::by_name("g1a"), None);
    }

    #[test]
    fn a_stronger_level_admits_no_more() {
        for anomaly in Anomaly::all() {
            assert!(!anomaly.is_admitted_by(StoreLevel::StrictSerializable));
            for (one, other) in [
                (StoreLevel::ReadUncommitted, StoreLevel::ReadCommitted),
                (StoreLevel::ReadCommitted, StoreLevel::ReadAtomic),
                (StoreLevel::ReadAtomic, StoreLevel::Prefix),
                (StoreLevel::Prefix, StoreLevel::SnapshotIsolation),
                (StoreLevel::SnapshotIsolation, StoreLevel::Serializable),
                (
                    StoreLevel::Serializable,
                    StoreLevel::StrongSessionSerializable,
                ),
            ] {
                assert!(
                    anomaly.is_admitted_by(one) || !anomaly.is_admitted_by(other),
                    "{anomaly:?} {one:?} {other:?}"
                );
            }
        }
        assert!(Anomaly::G2Item.is_admitted_by(StoreLevel::StrongSnapshotIsolation));
        assert!(!Anomaly::G2Item.is_admitted_by(StoreLevel::Serializable));
        assert!(Anomaly::StaleRead.is_admitted_by(StoreLevel::StrongSessionSerializable));
    }
}
