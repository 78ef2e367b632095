//! The isolation levels that are decided from axioms.

use crate::decision::{Axiom, OrderModel, RespectedOrder};
use seatrial_checker::Anomaly;
use seatrial_cycles::Level;
use seatrial_cycles::anomaly::NO_ORDER;

/// An isolation level in terms of one order of commits, in which each session's transactions are in their order and each
/// transaction comes after those that it reads from. A weak level defines which transactions a reader *r* has *seen*: if
/// *r* has seen *t*, which writes a key, and reads that key from *u*, then *t* comes before *u* (or is *u*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxiomaticModel {
    /// Seen, from each read on: the transaction that *r* read from (Biswas and Enea 2019). Stronger than Adya's PL-2, which
    /// lets a reader return to an older version of another key.
    AxiomaticReadCommitted,
    /// Seen: the session so far, and the transactions that *r* reads from (Biswas and Enea 2019). Two reads of a key then
    /// see one version.
    AxiomaticReadAtomic,
    /// Seen: all that happened before, which is the closure of both (Biswas and Enea 2019; causal convergence of Bouajjani
    /// and others 2017).
    Causal,
    /// Seen: the session so far (Terry and others 1994).
    ReadYourWrites,
    /// Seen: the transactions that the session read from so far (Terry and others 1994).
    MonotonicReads,
    /// Seen: the transactions before those that *r* reads from, in their sessions (Terry and others 1994).
    MonotonicWrites,
    /// Seen: the transactions from which those that *r* reads from, or their sessions before, had read (Terry and others
    /// 1994).
    WritesFollowReads,
    /// Seen: the session so far, the transactions that it or *r* read from, and those before these in their sessions:
    /// pipelined random access memory (Lipton and Sandberg 1988), which is read your writes, monotonic reads and monotonic
    /// writes (Brzezinski and others 2004), here with transactions seen as a whole and one order for all.
    Pram,
    /// Each transaction reads from a snapshot: all that was committed before some point (Cerone and others 2015; prefix
    /// consistency of Burckhardt and others 2015).
    Prefix,
    /// Prefix consistency that follows sessions: that of Biswas and Enea (2019).
    StrongSessionPrefix,
    /// Each transaction sees all that the transactions saw which it sees; of two writers of a key one sees the other (Cerone
    /// and others 2015; Sovran and others 2011).
    ParallelSnapshotIsolation,
    /// The same, following sessions.
    StrongSessionParallelSnapshotIsolation,
    /// Each transaction reads from a snapshot, and of two that overlap only one may write a key.
    SnapshotIsolation,
    /// The same, following sessions: snapshot isolation of Cerone and others (2015) and of Biswas and Enea (2019).
    StrongSessionSnapshotIsolation,
    /// The same, following real time: a snapshot has all that was committed before.
    StrongSnapshotIsolation,
    /// One transaction after another.
    Serializable,
    /// The same, following sessions: serializability of Biswas and Enea (2019).
    StrongSessionSerializable,
    /// The same, following real time.
    #[default]
    StrictSerializable,
}

impl AxiomaticModel {
    /// The models that are decided in polynomial time, from session guarantees to causal consistency.
    pub const POLYNOMIAL: [AxiomaticModel; 8] = [
        AxiomaticModel::AxiomaticReadCommitted,
        AxiomaticModel::AxiomaticReadAtomic,
        AxiomaticModel::Causal,
        AxiomaticModel::ReadYourWrites,
        AxiomaticModel::MonotonicReads,
        AxiomaticModel::MonotonicWrites,
        AxiomaticModel::WritesFollowReads,
        AxiomaticModel::Pram,
    ];

    /// The models that are hard to decide in general, from weak to strong.
    pub const SEARCHED: [AxiomaticModel; 10] = [
        AxiomaticModel::Prefix,
        AxiomaticModel::StrongSessionPrefix,
        AxiomaticModel::ParallelSnapshotIsolation,
        AxiomaticModel::StrongSessionParallelSnapshotIsolation,
        AxiomaticModel::SnapshotIsolation,
        AxiomaticModel::StrongSessionSnapshotIsolation,
        AxiomaticModel::StrongSnapshotIsolation,
        AxiomaticModel::Serializable,
        AxiomaticModel::StrongSessionSerializable,
        AxiomaticModel::StrictSerializable,
    ];

    /// All models.
    pub fn all() -> impl Iterator<Item = AxiomaticModel> {
        AxiomaticModel::POLYNOMIAL
            .into_iter()
            .chain(AxiomaticModel::SEARCHED)
    }

    /// The name in `--model`.
    pub fn name(self) -> &'static str {
        match self {
            AxiomaticModel::AxiomaticReadCommitted => "axiomatic-read-committed",
            AxiomaticModel::AxiomaticReadAtomic => "axiomatic-read-atomic",
            AxiomaticModel::Causal => "causal",
            AxiomaticModel::ReadYourWrites => "read-your-writes",
            AxiomaticModel::MonotonicReads => "monotonic-reads",
            AxiomaticModel::MonotonicWrites => "monotonic-writes",
            AxiomaticModel::WritesFollowReads => "writes-follow-reads",
            AxiomaticModel::Pram => "pram",
            AxiomaticModel::Prefix => "prefix",
            AxiomaticModel::StrongSessionPrefix => "strong-session-prefix",
            AxiomaticModel::ParallelSnapshotIsolation => "parallel-snapshot-isolation",
            AxiomaticModel::StrongSessionParallelSnapshotIsolation => {
                "strong-session-parallel-snapshot-isolation"
            }
            AxiomaticModel::SnapshotIsolation => "snapshot-isolation",
            AxiomaticModel::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            AxiomaticModel::StrongSnapshotIsolation => "strong-snapshot-isolation",
            AxiomaticModel::Serializable => "serializable",
            AxiomaticModel::StrongSessionSerializable => "strong-session-serializable",
            AxiomaticModel::StrictSerializable => "strict-serializable",
        }
    }

    /// The model with this name, or with another name that the level has elsewhere (`SI`, `PSI`, `PL-3`, …).
    pub fn by_name(name: &str) -> Option<AxiomaticModel> {
        let other = Level::by_name(name).map(Level::name);
        AxiomaticModel::all().find(|model| model.name() == name || Some(model.name()) == other)
    }

    /// The axiom and the order to follow, for a model that is searched for.
    pub fn order_model(self) -> Option<OrderModel> {
        use Axiom::{Parallel, Prefix, Serializable, Snapshot};
        use RespectedOrder::{Nothing, Sessions, Time};
        let (axiom, follows) = match self {
            AxiomaticModel::Prefix => (Prefix, Nothing),
            AxiomaticModel::StrongSessionPrefix => (Prefix, Sessions),
            AxiomaticModel::ParallelSnapshotIsolation => (Parallel, Nothing),
            AxiomaticModel::StrongSessionParallelSnapshotIsolation => (Parallel, Sessions),
            AxiomaticModel::SnapshotIsolation => (Snapshot, Nothing),
            AxiomaticModel::StrongSessionSnapshotIsolation => (Snapshot, Sessions),
            AxiomaticModel::StrongSnapshotIsolation => (Snapshot, Time),
            AxiomaticModel::Serializable => (Serializable, Nothing),
            AxiomaticModel::StrongSessionSerializable => (Serializable, Sessions),
            AxiomaticModel::StrictSerializable => (Serializable, Time),
            _ => return None,
        };
        Some(OrderModel { axiom, follows })
    }

    /// The models that it directly implies.
    fn weaker(self) -> &'static [AxiomaticModel] {
        match self {
            AxiomaticModel::Causal => &[AxiomaticModel::Pram, AxiomaticModel::WritesFollowReads],
            AxiomaticModel::Pram => &[
                AxiomaticModel::AxiomaticReadAtomic,
                AxiomaticModel::MonotonicReads,
                AxiomaticModel::MonotonicWrites,
            ],
            AxiomaticModel::AxiomaticReadAtomic => &[
                AxiomaticModel::AxiomaticReadCommitted,
                AxiomaticModel::ReadYourWrites,
            ],
            AxiomaticModel::StrongSessionPrefix => {
                &[AxiomaticModel::Prefix, AxiomaticModel::Causal]
            }
            AxiomaticModel::StrongSessionParallelSnapshotIsolation => &[
                AxiomaticModel::ParallelSnapshotIsolation,
                AxiomaticModel::Causal,
            ],
            AxiomaticModel::SnapshotIsolation => &[
                AxiomaticModel::Prefix,
                AxiomaticModel::ParallelSnapshotIsolation,
            ],
            AxiomaticModel::StrongSessionSnapshotIsolation => &[
                AxiomaticModel::SnapshotIsolation,
                AxiomaticModel::StrongSessionPrefix,
                AxiomaticModel::StrongSessionParallelSnapshotIsolation,
            ],
            AxiomaticModel::StrongSnapshotIsolation => {
                &[AxiomaticModel::StrongSessionSnapshotIsolation]
            }
            AxiomaticModel::Serializable => &[AxiomaticModel::SnapshotIsolation],
            AxiomaticModel::StrongSessionSerializable => &[
                AxiomaticModel::Serializable,
                AxiomaticModel::StrongSessionSnapshotIsolation,
            ],
            AxiomaticModel::StrictSerializable => &[
                AxiomaticModel::StrongSessionSerializable,
                AxiomaticModel::StrongSnapshotIsolation,
            ],
            _ => &[],
        }
    }

    /// Does every history that keeps this model keep `other`, too?
    pub fn implies(self, other: AxiomaticModel) -> bool {
        self == other || self.weaker().iter().any(|weaker| weaker.implies(other))
    }

    /// The models that imply this one.
    pub fn stronger(self) -> impl Iterator<Item = AxiomaticModel> {
        AxiomaticModel::all().filter(move |&other| other != self && other.implies(self))
    }

    /// The anomaly of a cycle that needs more than sessions and reads.
    pub(super) fn violation(self) -> Anomaly {
        match self {
            AxiomaticModel::AxiomaticReadCommitted => "non-monotonic-read",
            AxiomaticModel::AxiomaticReadAtomic => "fractured-read",
            AxiomaticModel::Causal => "causal-violation",
            AxiomaticModel::ReadYourWrites => "missed-own-write",
            AxiomaticModel::MonotonicReads => "backward-read",
            AxiomaticModel::MonotonicWrites => "reordered-writes",
            AxiomaticModel::WritesFollowReads => "effect-without-cause",
            AxiomaticModel::Pram => "session-order-violation",
            // A cycle of these is named after its edges.
            _ => NO_ORDER,
        }
    }

    /// Does visibility depend on an order of sessions and reads?
    pub(super) fn needs_order(self) -> bool {
        matches!(
            self,
            AxiomaticModel::Causal | AxiomaticModel::Pram | AxiomaticModel::MonotonicWrites
        )
    }
}
