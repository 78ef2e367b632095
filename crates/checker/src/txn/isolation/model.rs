//! The levels that are decided.

use crate::Anomaly;

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
    #[default]
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
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 8] = [
        Model::AxiomaticReadCommitted,
        Model::AxiomaticReadAtomic,
        Model::Causal,
        Model::ReadYourWrites,
        Model::MonotonicReads,
        Model::MonotonicWrites,
        Model::WritesFollowReads,
        Model::Pram,
    ];

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
        }
    }

    /// The model of this name.
    pub fn by_name(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|model| model.name() == name)
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
            _ => &[],
        }
    }

    /// Does it promise all that `other` promises?
    pub fn implies(self, other: Model) -> bool {
        self == other || self.weaker().iter().any(|weaker| weaker.implies(other))
    }

    /// The models that promise all that it promises, and more.
    pub fn stronger(self) -> impl Iterator<Item = Model> {
        let all = Model::ALL.into_iter();
        all.filter(move |&other| other != self && other.implies(self))
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
        }
    }

    /// Is what happened before what asked for?
    pub(super) fn needs_order(self) -> bool {
        matches!(self, Model::Causal | Model::Pram | Model::MonotonicWrites)
    }
}
