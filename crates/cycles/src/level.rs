//! Isolation levels: the anomalies that each forbids, and which level implies which.

use crate::anomaly::Anomaly;
use crate::anomaly::{
    self, CycleKind, DUPLICATE_ELEMENTS, FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL, LOST_UPDATE,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// An isolation level: Adya's levels and their session and real-time variants, and those of Cerone's axiomatic levels
/// that anomalies can tell apart. The lattice is Elle's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// PL-1.
    ReadUncommitted,
    /// PL-2. Weaker than the axiomatic read committed of Biswas and Enea, which also forbids non-monotonic reads.
    ReadCommitted,
    /// PL-CS.
    CursorStability,
    /// PL-2L.
    MonotonicView,
    /// PL-MSR.
    MonotonicSnapshotRead,
    /// PL-2+.
    ConsistentView,
    /// PL-FCV.
    ForwardConsistentView,
    /// Bailis' MAV.
    MonotonicAtomicView,
    /// Bailis' and Cerone's RA.
    ReadAtomic,
    /// RA without lost updates (ROLA).
    UpdateAtomic,
    /// Cerone's causal consistency of transactions.
    CausalCerone,
    /// Cerone's prefix consistency.
    Prefix,
    /// PSI.
    ParallelSnapshotIsolation,
    /// PL-SI, generalised: snapshots may be old.
    SnapshotIsolation,
    /// PL-2.99.
    RepeatableRead,
    /// PL-3U.
    UpdateSerializable,
    /// PL-3.
    Serializable,
    /// PL-1, respecting the order of each process.
    StrongSessionReadUncommitted,
    /// PL-2, respecting the order of each process.
    StrongSessionReadCommitted,
    /// SI, respecting the order of each process.
    StrongSessionSnapshotIsolation,
    /// PL-3, respecting the order of each process.
    StrongSessionSerializable,
    /// PL-1, respecting real time.
    StrongReadUncommitted,
    /// PL-2, respecting real time.
    StrongReadCommitted,
    /// SI, respecting real time.
    StrongSnapshotIsolation,
    /// PL-SS: serializable in an order that respects real time.
    #[default]
    StrictSerializable,
}

use Level as L;

/// One line of the table of levels.
struct LevelEntry {
    level: Level,
    name: &'static str,
    other_names: &'static [&'static str],
    /// The levels that it directly implies.
    weaker: &'static [Level],
    /// The anomalies that it forbids in addition to those that `weaker` forbid.
    forbidden: &'static [Anomaly],
}

const fn entry(
    level: Level,
    name: &'static str,
    other_names: &'static [&'static str],
    weaker: &'static [Level],
    forbidden: &'static [Anomaly],
) -> LevelEntry {
    LevelEntry {
        level,
        name,
        other_names,
        weaker,
        forbidden,
    }
}

/// All levels, in the order of [`Level`].
const LEVELS: [LevelEntry; 25] = [
    entry(
        L::ReadUncommitted,
        "read-uncommitted",
        &["PL-1"],
        &[],
        &["G0", DUPLICATE_ELEMENTS, GARBAGE_READ],
    ),
    entry(
        L::ReadCommitted,
        "read-committed",
        &["PL-2"],
        &[L::ReadUncommitted],
        &[G1A, G1B, "G1c"],
    ),
    entry(
        L::CursorStability,
        "cursor-stability",
        &["PL-CS"],
        &[L::ReadCommitted],
        &[LOST_UPDATE],
    ),
    entry(
        L::MonotonicView,
        "monotonic-view",
        &["PL-2L"],
        &[L::ReadCommitted],
        &[],
    ),
    entry(
        L::MonotonicSnapshotRead,
        "monotonic-snapshot-read",
        &["PL-MSR"],
        &[L::ReadCommitted],
        &[],
    ),
    entry(
        L::ConsistentView,
        "consistent-view",
        &["PL-2+"],
        &[L::CursorStability, L::MonotonicView],
        &["G-single"],
    ),
    entry(
        L::ForwardConsistentView,
        "forward-consistent-view",
        &["PL-FCV"],
        &[L::ConsistentView],
        &[],
    ),
    entry(
        L::MonotonicAtomicView,
        "monotonic-atomic-view",
        &[],
        &[L::ReadCommitted],
        &[],
    ),
    entry(
        L::ReadAtomic,
        "read-atomic",
        &[],
        &[L::MonotonicAtomicView],
        &[INTERNAL, FUTURE_READ],
    ),
    entry(
        L::UpdateAtomic,
        "update-atomic",
        &["ROLA"],
        &[L::ReadAtomic],
        &[LOST_UPDATE],
    ),
    entry(L::CausalCerone, "causal-cerone", &[], &[L::ReadAtomic], &[]),
    entry(L::Prefix, "prefix", &[], &[L::CausalCerone], &[]),
    entry(
        L::ParallelSnapshotIsolation,
        "parallel-snapshot-isolation",
        &["PSI"],
        // No cycle with fewer than two anti-dependencies (Cerone and Gotsman, "Analysing Snapshot Isolation", 2016).
        &[L::CausalCerone, L::ConsistentView, L::UpdateAtomic],
        &[],
    ),
    entry(
        L::SnapshotIsolation,
        "snapshot-isolation",
        &["PL-SI", "SI"],
        &[
            L::ForwardConsistentView,
            L::MonotonicSnapshotRead,
            L::ParallelSnapshotIsolation,
            L::Prefix,
        ],
        &["G-nonadjacent"],
    ),
    entry(
        L::RepeatableRead,
        "repeatable-read",
        &["PL-2.99"],
        &[L::CursorStability, L::MonotonicAtomicView],
        &["G2-item"],
    ),
    entry(
        L::UpdateSerializable,
        "update-serializable",
        &["PL-3U"],
        &[L::ForwardConsistentView],
        &[],
    ),
    entry(
        L::Serializable,
        "serializable",
        &["PL-3", "conflict-serializable"],
        &[
            L::RepeatableRead,
            L::SnapshotIsolation,
            L::UpdateSerializable,
        ],
        &[],
    ),
    entry(
        L::StrongSessionReadUncommitted,
        "strong-session-read-uncommitted",
        &["strong-session-PL-1"],
        &[L::ReadUncommitted],
        &["G0-process"],
    ),
    entry(
        L::StrongSessionReadCommitted,
        "strong-session-read-committed",
        &["strong-session-PL-2"],
        &[L::ReadCommitted, L::StrongSessionReadUncommitted],
        &["G1c-process"],
    ),
    entry(
        L::StrongSessionSnapshotIsolation,
        "strong-session-snapshot-isolation",
        &["strong-session-SI"],
        &[L::SnapshotIsolation, L::StrongSessionReadCommitted],
        &["G-nonadjacent-process"],
    ),
    entry(
        L::StrongSessionSerializable,
        "strong-session-serializable",
        &["strong-session-PL-3"],
        &[L::Serializable, L::StrongSessionSnapshotIsolation],
        &["G2-item-process"],
    ),
    entry(
        L::StrongReadUncommitted,
        "strong-read-uncommitted",
        &["strong-PL-1"],
        &[L::StrongSessionReadUncommitted],
        &["G0-realtime"],
    ),
    entry(
        L::StrongReadCommitted,
        "strong-read-committed",
        &["strong-PL-2"],
        &[L::StrongSessionReadCommitted, L::StrongReadUncommitted],
        &["G1c-realtime"],
    ),
    entry(
        L::StrongSnapshotIsolation,
        "strong-snapshot-isolation",
        &["strong-SI"],
        &[L::StrongSessionSnapshotIsolation, L::StrongReadCommitted],
        &["G-nonadjacent-realtime"],
    ),
    entry(
        L::StrictSerializable,
        "strict-serializable",
        &["strong-serializable", "PL-SS"],
        &[L::StrongSessionSerializable, L::StrongSnapshotIsolation],
        &["G2-item-realtime"],
    ),
];

impl Level {
    /// All levels, roughly from weak to strong.
    pub fn all() -> impl Iterator<Item = Level> {
        LEVELS.iter().map(|entry| entry.level)
    }

    fn entry(self) -> &'static LevelEntry {
        let entry = &LEVELS[self as usize];
        assert!(
            entry.level == self,
            "levels are not in the order of their table"
        );
        entry
    }

    /// The name of this level.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The level of this name, or of another name that it has (`PL-2.99`, `SI`, `strong-serializable`, …).
    pub fn by_name(name: &str) -> Option<Level> {
        let named = |entry: &&LevelEntry| entry.name == name || entry.other_names.contains(&name);
        LEVELS.iter().find(named).map(|entry| entry.level)
    }

    /// The strongest level that it implies and that does not ask for real time: all that can be checked of a history
    /// without times.
    #[must_use]
    pub fn without_real_time(self) -> Level {
        match self {
            Level::StrongReadUncommitted => Level::StrongSessionReadUncommitted,
            Level::StrongReadCommitted => Level::StrongSessionReadCommitted,
            Level::StrongSnapshotIsolation => Level::StrongSessionSnapshotIsolation,
            Level::StrictSerializable => Level::StrongSessionSerializable,
            other => other,
        }
    }

    /// This level and all levels that it implies; computed once for all levels.
    fn implied(self) -> &'static BTreeSet<Level> {
        static IMPLIED: OnceLock<BTreeMap<Level, BTreeSet<Level>>> = OnceLock::new();
        let all = || Level::all().map(|level| (level, level.reachable()));
        &IMPLIED.get_or_init(|| all().collect())[&self]
    }

    fn reachable(self) -> BTreeSet<Level> {
        let mut levels = BTreeSet::new();
        let mut waiting = vec![self];
        while let Some(level) = waiting.pop() {
            if levels.insert(level) {
                waiting.extend(level.entry().weaker);
            }
        }
        levels
    }

    /// Does every history that keeps this level keep `other`, too?
    pub fn implies(self, other: Level) -> bool {
        self.implied().contains(&other)
    }

    /// Is a history without the anomalies that this level forbids a history that keeps the level? If not, their absence
    /// proves nothing.
    pub fn is_defined_by_anomalies(self) -> bool {
        !matches!(
            self,
            Level::MonotonicView
                | Level::MonotonicSnapshotRead
                | Level::ForwardConsistentView
                | Level::MonotonicAtomicView
                | Level::ReadAtomic
                | Level::UpdateAtomic
                | Level::CausalCerone
                | Level::Prefix
                | Level::UpdateSerializable
        )
    }

    /// The anomalies that this level forbids, directly or because they imply a forbidden one.
    pub fn forbidden(self) -> BTreeSet<Anomaly> {
        let levels = self.implied();
        let direct: BTreeSet<_> = levels
            .iter()
            .flat_map(|level| level.entry().forbidden)
            .collect();
        anomaly::all()
            .filter(|anomaly| consequences(anomaly).iter().any(|one| direct.contains(one)))
            .collect()
    }
}

/// An anomaly and all anomalies that it implies; computed once for all anomalies.
fn consequences(anomaly: Anomaly) -> Cow<'static, BTreeSet<Anomaly>> {
    static IMPLIED: OnceLock<BTreeMap<Anomaly, BTreeSet<Anomaly>>> = OnceLock::new();
    let all = || anomaly::all().map(|anomaly| (anomaly, reachable(anomaly)));
    let known = IMPLIED.get_or_init(|| all().collect()).get(anomaly);
    known.map_or_else(|| Cow::Owned(reachable(anomaly)), Cow::Borrowed)
}

fn reachable(anomaly: Anomaly) -> BTreeSet<Anomaly> {
    let mut anomalies = BTreeSet::new();
    let mut waiting = vec![anomaly];
    while let Some(anomaly) = waiting.pop() {
        if anomalies.insert(anomaly) {
            waiting.extend(anomaly::implied(anomaly));
        }
    }
    anomalies
}

/// The line between levels that a set of anomalies rules out and those that it does not.
pub struct LevelBoundary {
    /// The weakest levels that are ruled out.
    pub not: Vec<&'static str>,
    /// The levels stronger than these, which are ruled out as well.
    pub also_not: Vec<&'static str>,
    /// The strongest levels that are not ruled out, of those that anomalies define.
    pub holds: Vec<Level>,
}

/// The levels that these anomalies rule out.
pub fn boundary(anomalies: impl IntoIterator<Item = Anomaly>) -> LevelBoundary {
    boundary_with(anomalies, None)
}

/// The same, with a level that is ruled out for another reason.
pub fn boundary_with(
    anomalies: impl IntoIterator<Item = Anomaly>,
    refuted: Option<Level>,
) -> LevelBoundary {
    let mut present = BTreeSet::new();
    for anomaly in anomalies {
        present.extend(consequences(anomaly).iter().copied());
    }
    let direct = |level: &Level| {
        level
            .entry()
            .forbidden
            .iter()
            .any(|one| present.contains(one))
    };
    let out: Vec<_> = Level::all()
        .filter(|level| {
            let is_refuted = refuted.is_some_and(|refuted| level.implies(refuted));
            is_refuted || level.implied().iter().any(direct)
        })
        .collect();
    let weakest = |level: Level| {
        !out.iter()
            .any(|&other| other != level && level.implies(other))
    };
    let stands = |level: Level| level.is_defined_by_anomalies() && !out.contains(&level);
    let strongest = |level: Level| {
        Level::all().all(|other| other == level || !stands(other) || !other.implies(level))
    };
    let names = |levels: Vec<Level>| levels.into_iter().map(Level::name).collect();
    let (not, also_not) = out.iter().partition(|&&level| weakest(level));
    let holds = Level::all().filter(|&level| stands(level) && strongest(level));
    assert!(
        Level::all()
            .all(|level| out.contains(&level) || !out.iter().any(|&one| level.implies(one))),
        "a level is not ruled out though it implies one that is"
    );
    LevelBoundary {
        not: names(not),
        also_not: names(also_not),
        holds: holds.collect(),
    }
}

/// The kinds of cycles that this level forbids.
pub fn forbidden_cycles(level: Level) -> BTreeSet<CycleKind> {
    let forbidden = level.forbidden();
    CycleKind::all()
        .filter(|cyclic| forbidden.contains(cyclic.name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_levels() {
        let levels: BTreeSet<_> = Level::all().collect();
        assert_eq!(levels.len(), LEVELS.len());
        for level in Level::all() {
            assert_eq!(Level::by_name(level.name()), Some(level));
            assert!(Level::StrictSerializable.implies(level), "{level:?}");
            assert!(level.implies(Level::ReadUncommitted), "{level:?}");
        }
        assert_eq!(Level::by_name("PL-2.99"), Some(Level::RepeatableRead));
        assert_eq!(Level::by_name("read committed"), None);
        assert_eq!(Level::default(), Level::StrictSerializable);
    }

    #[test]
    fn levels_without_real_time_keep_all_other_anomalies() {
        for level in Level::all() {
            let left = level.without_real_time();
            assert!(level.implies(left));
            let (all, left) = (level.forbidden(), left.forbidden());
            assert!(left.iter().all(|anomaly| !anomaly.ends_with("-realtime")));
            let mut gone = all.difference(&left);
            // A contradiction with a given order of transactions counts as one with real time.
            let needs_time = |anomaly: &&Anomaly| {
                anomaly.ends_with("-realtime") || **anomaly == anomaly::CYCLIC_VERSIONS_ORDER
            };
            assert!(gone.all(|anomaly| needs_time(&anomaly)), "{level:?}");
        }
    }

    #[test]
    fn strict_serializability_forbids_everything() {
        let forbidden = Level::StrictSerializable.forbidden();
        assert!(anomaly::all().all(|anomaly| forbidden.contains(anomaly)));
        let committed = Level::ReadCommitted.forbidden();
        let expected = [
            "G0",
            "G1a",
            "G1b",
            "G1c",
            "cyclic-versions",
            "dirty-update",
            "duplicate-elements",
            "future-read",
            "garbage-read",
            "incompatible-order",
        ];
        assert_eq!(committed.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_refuted_level_takes_the_stronger_ones_with_it() {
        let refuted = boundary_with([], Some(Level::Prefix));
        assert_eq!(refuted.not, ["prefix"]);
        assert!(refuted.also_not.contains(&"snapshot-isolation"));
        assert!(!refuted.also_not.contains(&"parallel-snapshot-isolation"));
        let known = boundary_with(["G-single"], Some(Level::SnapshotIsolation));
        assert_eq!(known.not, boundary(["G-single"]).not);
        assert_eq!(known.also_not, boundary(["G-single"]).also_not);
    }

    #[test]
    fn boundaries_are_elles() {
        let not = |anomaly| boundary([anomaly]).not;
        assert_eq!(not("G0"), ["read-uncommitted"]);
        assert_eq!(not("G1a"), ["read-committed"]);
        assert_eq!(not("internal"), ["read-atomic"]);
        assert_eq!(not("G-single"), ["consistent-view", "repeatable-read"]);
        assert_eq!(
            not("G-nonadjacent"),
            ["snapshot-isolation", "repeatable-read"]
        );
        assert_eq!(not("G2-item"), ["repeatable-read"]);
        assert_eq!(not("lost-update"), ["cursor-stability", "update-atomic"]);
        assert_eq!(
            not("G-single-process"),
            ["strong-session-snapshot-isolation"]
        );
        assert_eq!(not("G-single-realtime"), ["strong-snapshot-isolation"]);
        assert_eq!(not("G2-item-realtime"), ["strict-serializable"]);
        let write_skew = boundary(["G2-item"]);
        assert_eq!(
            write_skew.also_not,
            [
                "serializable",
                "strong-session-serializable",
                "strict-serializable"
            ]
        );
        assert_eq!(write_skew.holds, [Level::StrongSnapshotIsolation]);
        assert_eq!(boundary([]).holds, [Level::StrictSerializable]);
        assert!(boundary(["G0"]).holds.is_empty());
        // Snapshot isolation forbids a long fork, parallel snapshot isolation does not.
        let fork = boundary(["G-nonadjacent"]);
        assert_eq!(
            fork.holds,
            [Level::ParallelSnapshotIsolation, Level::StrongReadCommitted]
        );
        assert!(fork.also_not.contains(&"serializable"));
    }
}
