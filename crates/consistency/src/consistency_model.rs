//! The models of the checker `consistency`.

use std::fmt;

/// A consistency model of histories of reads and writes of registers.
///
/// Models of sessions know the order of each process and which write each read returned, not real time; models of real time
/// know which operations ended before others began, not processes. See the crate's page for their definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsistencyModel {
    /// One order of all operations in which each process's operations are in their order, and each read returns the last write
    /// of its key before it (Lamport 1979).
    #[default]
    Sequential,
    /// For each process an order of all writes and its own reads that follows causality (Ahamad and others 1995; CM of
    /// Bouajjani and others 2017).
    CausalMemory,
    /// One order of all writes, the same for all, in which each read returns the last one of those that causally precede it
    /// (CCv of Bouajjani and others 2017).
    CausalConvergence,
    /// For each read an order of the operations that causally precede it (CC of Bouajjani and others 2017).
    Causal,
    /// For each process an order of all writes and its own reads that follows each process (Lipton and Sandberg 1988).
    Pram,
    /// A read returns nothing older than what its process wrote before (Terry and others 1994).
    ReadYourWrites,
    /// Reads of a process do not go back (Terry and others 1994).
    MonotonicReads,
    /// A read that can see a write can see the earlier writes of its process (Terry and others 1994).
    MonotonicWrites,
    /// A read that can see a write can see what its process had read before it (Terry and others 1994).
    WritesFollowReads,
}

impl ConsistencyModel {
    /// The models that a list names.
    pub const LISTED: [ConsistencyModel; 9] = [
        ConsistencyModel::Sequential,
        ConsistencyModel::CausalMemory,
        ConsistencyModel::CausalConvergence,
        ConsistencyModel::Causal,
        ConsistencyModel::Pram,
        ConsistencyModel::ReadYourWrites,
        ConsistencyModel::MonotonicReads,
        ConsistencyModel::MonotonicWrites,
        ConsistencyModel::WritesFollowReads,
    ];

    /// The name in `--model` and in findings.
    pub fn name(self) -> &'static str {
        match self {
            ConsistencyModel::Sequential => "sequential",
            ConsistencyModel::CausalMemory => "causal-memory",
            ConsistencyModel::CausalConvergence => "causal-convergence",
            ConsistencyModel::Causal => "causal",
            ConsistencyModel::Pram => "pram",
            ConsistencyModel::ReadYourWrites => "read-your-writes",
            ConsistencyModel::MonotonicReads => "monotonic-reads",
            ConsistencyModel::MonotonicWrites => "monotonic-writes",
            ConsistencyModel::WritesFollowReads => "writes-follow-reads",
        }
    }

    /// The model with this name.
    pub fn by_name(name: &str) -> Option<ConsistencyModel> {
        let mut all = ConsistencyModel::LISTED.into_iter();
        all.find(|model| model.name() == name)
    }

    /// The models that it directly implies.
    fn weaker(self) -> &'static [ConsistencyModel] {
        match self {
            ConsistencyModel::Sequential => &[
                ConsistencyModel::CausalMemory,
                ConsistencyModel::CausalConvergence,
            ],
            ConsistencyModel::CausalMemory => &[ConsistencyModel::Causal, ConsistencyModel::Pram],
            ConsistencyModel::CausalConvergence => {
                &[ConsistencyModel::Causal, ConsistencyModel::MonotonicReads]
            }
            ConsistencyModel::Causal => &[
                ConsistencyModel::ReadYourWrites,
                ConsistencyModel::MonotonicWrites,
                ConsistencyModel::WritesFollowReads,
            ],
            ConsistencyModel::Pram => &[
                ConsistencyModel::ReadYourWrites,
                ConsistencyModel::MonotonicReads,
                ConsistencyModel::MonotonicWrites,
            ],
            _ => &[],
        }
    }

    /// Does every history that satisfies this model satisfy `other`, too?
    pub fn implies(self, other: ConsistencyModel) -> bool {
        self == other || self.weaker().iter().any(|weaker| weaker.implies(other))
    }

    /// The models that imply this one.
    pub fn stronger(self) -> impl Iterator<Item = ConsistencyModel> {
        let all = ConsistencyModel::LISTED.into_iter();
        all.filter(move |&other| other != self && other.implies(self))
    }
}

impl fmt::Display for ConsistencyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
