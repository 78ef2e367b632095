//! The levels that are decided.

use crate::Anomaly;
use crate::txn::Level;
use crate::txn::anomaly::NO_ORDER;
use crate::txn::decision::{Axiom, Follows, Promise};

/// A promise about transactions in terms of one order of commits, in which the transactions of each session come in
/// their order and each transaction after those that it reads from. A level says besides which transactions a reader *r*
/// has seen; when *r* has seen *t*, which writes a key, and reads that key from *u*, then *t* comes before *u* (or is *u*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Seen is, from then on, whoever *r* read from (Biswas and Enea 2019). Not Adya's PL-2, which lets a reader go back to
    /// an older version of another key.
    AxiomaticReadCommitted,
    /// Seen is the session so far, and whoever *r* reads from (Biswas and Enea 2019). With it, two reads of a key see one
    /// version.
    AxiomaticReadAtomic,
    /// Seen is all that happened before: the closure of both (Biswas and Enea 2019; causal convergence of Bouajjani and
    /// others 2017).
    Causal,
    /// Seen is the session so far (Terry and others 1994).
    ReadYourWrites,
    /// Seen is whoever the session read from so far (Terry and others 1994).
    MonotonicReads,
    /// Seen is what stands, in their sessions, before those that *r* reads from (Terry and others 1994).
    MonotonicWrites,
    /// Seen is whoever those that *r* reads from, or their sessions before, had read from (Terry and others 1994).
    WritesFollowReads,
    /// Seen is the session so far, whoever it or *r* read from, and what stands before those in their sessions: pipelined
    /// random access memory (Lipton and Sandberg 1988), which is read your writes, monotonic reads and monotonic writes
    /// (Brzezinski and others 2004), here with transactions seen as a whole and one order for all.
    Pram,
    /// Each transaction reads from a snapshot: all that was committed before some point (Cerone and others 2015; prefix
    /// consistency of Burckhardt and others 2015).
    Prefix,
    /// That, and the order of sessions: prefix consistency of Biswas and Enea (2019).
    StrongSessionPrefix,
    /// Each transaction sees all that those saw which it sees; of two writers of a key one sees the other (Cerone and others
    /// 2015; Sovran and others 2011).
    ParallelSnapshotIsolation,
    /// That, and the order of sessions.
    StrongSessionParallelSnapshotIsolation,
    /// Each transaction reads from a snapshot, and of two that overlap only one writes a key.
    SnapshotIsolation,
    /// That, and the order of sessions: snapshot isolation of Cerone and others (2015) and of Biswas and Enea (2019).
    StrongSessionSnapshotIsolation,
    /// That, and real time: a snapshot has all that was committed before.
    StrongSnapshotIsolation,
    /// One transaction after another.
    Serializable,
    /// That, and the order of sessions: serializability of Biswas and Enea (2019).
    StrongSessionSerializable,
    /// That, and real time.
    #[default]
    StrictSerializable,
}

impl Model {
    /// Those that can always be decided in polynomial time, from session guarantees to causal consistency.
    pub const POLYNOMIAL: [Model; 8] = [
        Model::AxiomaticReadCommitted,
        Model::AxiomaticReadAtomic,
        Model::Causal,
        Model::ReadYourWrites,
        Model::MonotonicReads,
        Model::MonotonicWrites,
        Model::WritesFollowReads,
        Model::Pram,
    ];

    /// Those that are hard to decide in general, from weak to strong.
    pub const SEARCHED: [Model; 10] = [
        Model::Prefix,
        Model::StrongSessionPrefix,
        Model::ParallelSnapshotIsolation,
        Model::StrongSessionParallelSnapshotIsolation,
        Model::SnapshotIsolation,
        Model::StrongSessionSnapshotIsolation,
        Model::StrongSnapshotIsolation,
        Model::Serializable,
        Model::StrongSessionSerializable,
        Model::StrictSerializable,
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Model> {
        Model::POLYNOMIAL.into_iter().chain(Model::SEARCHED)
    }

    /// The name in `--model`.
    pub fn name(self) -> &'static str {
        match self {
            Model::AxiomaticReadCommitted => "axiomatic-read-committed",
            Model::AxiomaticReadAtomic => "axiomatic-read-atomic",
            Model::Causal => "causal",
            Model::ReadYourWrites => "read-your-writes",
            Model::MonotonicReads => "monotonic-reads",
            Model::MonotonicWrites => "monotonic-writes",
            Model::WritesFollowReads => "writes-follow-reads",
            Model::Pram => "pram",
            Model::Prefix => "prefix",
            Model::StrongSessionPrefix => "strong-session-prefix",
            Model::ParallelSnapshotIsolation => "parallel-snapshot-isolation",
            Model::StrongSessionParallelSnapshotIsolation => {
                "strong-session-parallel-snapshot-isolation"
            }
            Model::SnapshotIsolation => "snapshot-isolation",
            Model::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            Model::StrongSnapshotIsolation => "strong-snapshot-isolation",
            Model::Serializable => "serializable",
            Model::StrongSessionSerializable => "strong-session-serializable",
            Model::StrictSerializable => "strict-serializable",
        }
    }

    /// The model of this name, or of another name that the level has elsewhere (`SI`, `PSI`, `PL-3`, …).
    pub fn by_name(name: &str) -> Option<Model> {
        let other = Level::by_name(name).map(Level::name);
        Model::all().find(|model| model.name() == name || Some(model.name()) == other)
    }

    /// What is promised, of a model that is searched for.
    pub(in crate::txn) fn promise(self) -> Option<Promise> {
        use Axiom::{Parallel, Prefix, Serializable, Snapshot};
        use Follows::{Nothing, Sessions, Time};
        let (axiom, follows) = match self {
            Model::Prefix => (Prefix, Nothing),
            Model::StrongSessionPrefix => (Prefix, Sessions),
            Model::ParallelSnapshotIsolation => (Parallel, Nothing),
            Model::StrongSessionParallelSnapshotIsolation => (Parallel, Sessions),
            Model::SnapshotIsolation => (Snapshot, Nothing),
            Model::StrongSessionSnapshotIsolation => (Snapshot, Sessions),
            Model::StrongSnapshotIsolation => (Snapshot, Time),
            Model::Serializable => (Serializable, Nothing),
            Model::StrongSessionSerializable => (Serializable, Sessions),
            Model::StrictSerializable => (Serializable, Time),
            _ => return None,
        };
        Some(Promise { axiom, follows })
    }

    /// The models that it directly implies.
    fn weaker(self) -> &'static [Model] {
        match self {
            Model::Causal => &[Model::Pram, Model::WritesFollowReads],
            Model::Pram => &[
                Model::AxiomaticReadAtomic,
                Model::MonotonicReads,
                Model::MonotonicWrites,
            ],
            Model::AxiomaticReadAtomic => &[Model::AxiomaticReadCommitted, Model::ReadYourWrites],
            Model::StrongSessionPrefix => &[Model::Prefix, Model::Causal],
            Model::StrongSessionParallelSnapshotIsolation => {
                &[Model::ParallelSnapshotIsolation, Model::Causal]
            }
            Model::SnapshotIsolation => &[Model::Prefix, Model::ParallelSnapshotIsolation],
            Model::StrongSessionSnapshotIsolation => &[
                Model::SnapshotIsolation,
                Model::StrongSessionPrefix,
                Model::StrongSessionParallelSnapshotIsolation,
            ],
            Model::StrongSnapshotIsolation => &[Model::StrongSessionSnapshotIsolation],
            Model::Serializable => &[Model::SnapshotIsolation],
            Model::StrongSessionSerializable => {
                &[Model::Serializable, Model::StrongSessionSnapshotIsolation]
            }
            Model::StrictSerializable => &[
                Model::StrongSessionSerializable,
                Model::StrongSnapshotIsolation,
            ],
            _ => &[],
        }
    }

    /// Does it promise all that `other` promises?
    pub fn implies(self, other: Model) -> bool {
        self == other || self.weaker().iter().any(|weaker| weaker.implies(other))
    }

    /// The models that promise all that it promises, and more.
    pub fn stronger(self) -> impl Iterator<Item = Model> {
        Model::all().filter(move |&other| other != self && other.implies(self))
    }

    /// The anomaly that breaks it, when sessions and reads alone make no cycle.
    pub(super) fn violation(self) -> Anomaly {
        match self {
            Model::AxiomaticReadCommitted => "non-monotonic-read",
            Model::AxiomaticReadAtomic => "fractured-read",
            Model::Causal => "causal-violation",
            Model::ReadYourWrites => "missed-own-write",
            Model::MonotonicReads => "backward-read",
            Model::MonotonicWrites => "reordered-writes",
            Model::WritesFollowReads => "effect-without-cause",
            Model::Pram => "session-order-violation",
            // Those are told as what a cycle of their transactions is.
            _ => NO_ORDER,
        }
    }

    /// Is what happened before what asked for?
    pub(super) fn needs_order(self) -> bool {
        matches!(self, Model::Causal | Model::Pram | Model::MonotonicWrites)
    }
}
