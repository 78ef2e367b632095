//! Anomalies that can be put into a history, and what they look like.

use super::options::{Isolation, Workload};

/// An anomaly that is put into a history: a few operations that no store of the levels which exclude it could have
/// answered. They share neither key nor process with anything else, so the rest of the history stays as it is, and
/// the truth is known exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions write two keys in opposite orders.
    G0,
    /// A read of what a failed transaction wrote.
    G1a,
    /// A read of what its own transaction overwrote.
    G1b,
    /// Two transactions that each read what the other wrote.
    G1c,
    /// Read skew: one key from before a transaction, another from after it.
    GSingle,
    /// A long fork: two readers that see two independent writes in opposite orders.
    GNonadjacent,
    /// Write skew: each of two transactions reads what the other is about to write.
    G2Item,
    /// A process does not see what it wrote itself.
    GSingleProcess,
    /// Two transactions read the same version, and both write on top of it.
    LostUpdate,
    /// A transaction does not see what it wrote itself.
    Internal,
    /// A transaction sees what it writes only later.
    FutureRead,
    /// A read of what nobody ever wrote.
    GarbageRead,
    /// Two reads with the same elements in different orders.
    IncompatibleOrder,
    /// An element that is there twice; of a queue: that is taken twice.
    DuplicateElements,
    /// A committed write on top of an aborted one.
    DirtyUpdate,
    /// A read that misses a write which had been acknowledged before it began; a later one has it.
    StaleRead,
    /// An acknowledged write that nobody ever sees.
    LostWrite,
    /// A transaction sees the second of two that a process ran, and after that the first.
    NonMonotonicRead,
}

/// A micro-operation of an operation that is put in: the key by number, and what is written or seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planted {
    Write(u8, i64),
    Read(u8, &'static [i64]),
}

/// An operation that is put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// All operations of a stage run at the same time; the next stage begins when all of them are over.
    pub(super) stage: u8,
    /// Same number, same process; another number, another process.
    pub(super) role: u8,
    /// Does it fail?
    pub(super) fails: bool,
    pub(super) micros: &'static [Planted],
}

/// Most operations of an anomaly.
pub(super) const MEMBERS_MAX: usize = 4;
/// Most keys of an anomaly.
pub(super) const KEYS_MAX: usize = 2;

const X: u8 = 0;
const Y: u8 = 1;

const fn ok(stage: u8, role: u8, micros: &'static [Planted]) -> Member {
    Member {
        stage,
        role,
        fails: false,
        micros,
    }
}

const fn fail(stage: u8, role: u8, micros: &'static [Planted]) -> Member {
    Member {
        stage,
        role,
        fails: true,
        micros,
    }
}

use Planted::{Read, Write};

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

/// Where a level or an anomaly stands: by what transactions may see of one another, and by how old that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    sight: u8,
    age: u8,
}

/// No level stands so high.
const NONE: u8 = u8::MAX;

impl Isolation {
    const fn rank(self) -> Rank {
        let (sight, age) = match self {
            Isolation::ReadUncommitted => (0, 0),
            Isolation::ReadCommitted => (1, 0),
            Isolation::ReadAtomic => (2, 0),
            Isolation::Prefix => (3, 0),
            Isolation::SnapshotIsolation => (4, 0),
            Isolation::StrongSessionSnapshotIsolation => (4, 1),
            Isolation::StrongSnapshotIsolation => (4, 2),
            Isolation::Serializable | Isolation::Eventual => (5, 0),
            Isolation::StrongSessionSerializable | Isolation::Sequential => (5, 1),
            Isolation::StrictSerializable | Isolation::Linearizable => (5, 2),
        };
        Rank { sight, age }
    }
}

/// Every anomaly with its name, its operations, and the weakest rank that excludes it.
type Row = (Anomaly, &'static str, &'static [Member], Rank);

const fn sight(sight: u8) -> Rank {
    Rank { sight, age: NONE }
}

const fn age(age: u8) -> Rank {
    Rank { sight: NONE, age }
}

const ROWS: [Row; 18] = [
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

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Its name; the checkers use the same, but for stale reads, lost writes and non-monotonic reads.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The anomaly of this name.
    pub fn by_name(name: &str) -> Option<Anomaly> {
        Anomaly::all().find(|one| one.name() == name)
    }

    /// The operations that are put in.
    pub(super) fn members(self) -> &'static [Member] {
        self.row().2
    }

    /// How many processes it takes.
    pub fn processes(self) -> u32 {
        let roles = self.members().iter().map(|member| u32::from(member.role));
        1 + roles.max().unwrap_or_default()
    }

    /// Can a store of this level show it?
    pub fn is_admitted_by(self, isolation: Isolation) -> bool {
        let (level, excluded) = (isolation.rank(), self.row().3);
        level.sight < excluded.sight && level.age < excluded.age
    }

    /// Can the operations of this workload show it?
    pub fn is_seen_in(self, workload: Workload) -> bool {
        match workload {
            Workload::ListAppend => true,
            // The order of blind writes to a register is not known.
            Workload::RwRegister => !matches!(
                self,
                Anomaly::G0
                    | Anomaly::IncompatibleOrder
                    | Anomaly::DuplicateElements
                    | Anomaly::DirtyUpdate
            ),
            Workload::Register | Workload::Set => matches!(
                self,
                Anomaly::G1a
                    | Anomaly::GSingleProcess
                    | Anomaly::GarbageRead
                    | Anomaly::StaleRead
                    | Anomaly::LostWrite
            ),
            Workload::Queue => matches!(
                self,
                Anomaly::GarbageRead | Anomaly::DuplicateElements | Anomaly::LostWrite
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
            assert!(!anomaly.is_admitted_by(Isolation::StrictSerializable));
            for (one, other) in [
                (Isolation::ReadUncommitted, Isolation::ReadCommitted),
                (Isolation::ReadCommitted, Isolation::ReadAtomic),
                (Isolation::ReadAtomic, Isolation::Prefix),
                (Isolation::Prefix, Isolation::SnapshotIsolation),
                (Isolation::SnapshotIsolation, Isolation::Serializable),
                (
                    Isolation::Serializable,
                    Isolation::StrongSessionSerializable,
                ),
            ] {
                assert!(
                    anomaly.is_admitted_by(one) || !anomaly.is_admitted_by(other),
                    "{anomaly:?} {one:?} {other:?}"
                );
            }
        }
        assert!(Anomaly::G2Item.is_admitted_by(Isolation::StrongSnapshotIsolation));
        assert!(!Anomaly::G2Item.is_admitted_by(Isolation::Serializable));
        assert!(Anomaly::StaleRead.is_admitted_by(Isolation::StrongSessionSerializable));
    }
}
