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
    /// A read returns the last write before it or a concurrent one (Lamport 1986; MWR-weak of Shao and others 2011).
    Regular,
    /// The same for reads without a concurrent write; others may return anything (Lamport 1986).
    Safe,
    /// Each read returns one of the last *k* writes of its key, of one order that follows real time (Aiyer and others 2005).
    VersionStaleness(u32),
    /// Linearizable once each read begins this many nanoseconds earlier: Δ-atomic (Golab and others 2011).
    TimeStaleness(i64),
}

impl ConsistencyModel {
    /// The models that a list names.
    pub const LISTED: [ConsistencyModel; 15] = [
        ConsistencyModel::Sequential,
        ConsistencyModel::CausalMemory,
        ConsistencyModel::CausalConvergence,
        ConsistencyModel::Causal,
        ConsistencyModel::Pram,
        ConsistencyModel::ReadYourWrites,
        ConsistencyModel::MonotonicReads,
        ConsistencyModel::MonotonicWrites,
        ConsistencyModel::WritesFollowReads,
        ConsistencyModel::Regular,
        ConsistencyModel::Safe,
        ConsistencyModel::VersionStaleness(2),
        ConsistencyModel::VersionStaleness(3),
        ConsistencyModel::TimeStaleness(100_000_000),
        ConsistencyModel::TimeStaleness(1_000_000_000),
    ];

    /// Their names; any other number of versions (`7-atomic`) and time (`within-20ms`) is a model, too.
    pub const NAMES: [&str; 15] = [
        "sequential",
        "causal-memory",
        "causal-convergence",
        "causal",
        "pram",
        "read-your-writes",
        "monotonic-reads",
        "monotonic-writes",
        "writes-follow-reads",
        "regular",
        "safe",
        "2-atomic",
        "3-atomic",
        "within-100ms",
        "within-1s",
    ];

    /// The name without numbers, for lists of models.
    pub fn family(self) -> &'static str {
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
            ConsistencyModel::Regular => "regular",
            ConsistencyModel::Safe => "safe",
            ConsistencyModel::VersionStaleness(_) => "k-atomic",
            ConsistencyModel::TimeStaleness(_) => "delta-atomic",
        }
    }

    /// The model with this name: one of [`ConsistencyModel::NAMES`], `K-atomic` or `within-TIME`.
    pub fn by_name(name: &str) -> Option<ConsistencyModel> {
        if let Some(time) = name.strip_prefix("within-") {
            return nanoseconds(time).map(ConsistencyModel::TimeStaleness);
        }
        if let Some(versions) = name.strip_suffix("-atomic") {
            let versions = versions.parse().ok().filter(|&versions| versions > 0);
            return versions.map(ConsistencyModel::VersionStaleness);
        }
        let mut all = ConsistencyModel::LISTED.into_iter();
        all.find(|model| model.family() == name)
    }

    /// Is it about how old a version may be?
    pub(crate) fn is_stale(self) -> bool {
        matches!(
            self,
            ConsistencyModel::VersionStaleness(_) | ConsistencyModel::TimeStaleness(_)
        )
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
            ConsistencyModel::Regular => &[ConsistencyModel::Safe],
            _ => &[],
        }
    }

    /// Does every history that satisfies this model satisfy `other`, too?
    pub fn implies(self, other: ConsistencyModel) -> bool {
        match (self, other) {
            (ConsistencyModel::VersionStaleness(one), ConsistencyModel::VersionStaleness(more)) => {
                return one <= more;
            }
            (ConsistencyModel::TimeStaleness(one), ConsistencyModel::TimeStaleness(more)) => {
                return one <= more;
            }
            _ => {}
        }
        self == other || self.weaker().iter().any(|weaker| weaker.implies(other))
    }

    /// The models that imply this one.
    pub fn stronger(self) -> impl Iterator<Item = ConsistencyModel> {
        let all = ConsistencyModel::LISTED.into_iter();
        all.filter(move |&other| other != self && other.implies(self))
    }
}

/// A time such as `20ms` in nanoseconds.
fn nanoseconds(time: &str) -> Option<i64> {
    let digits = time.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = time.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<i64>().ok()?.checked_mul(factor)
}

/// Units of time in nanoseconds, the largest first.
const UNITS: [(&str, i64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Nanoseconds in the largest unit of which they are a multiple.
pub(crate) fn shown_time(nanoseconds: i64) -> String {
    let mut units = UNITS.iter();
    let (name, factor) = units
        .find(|(_, factor)| nanoseconds % factor == 0)
        .expect("each time is a multiple of a nanosecond");
    format!("{}{name}", nanoseconds / factor)
}

/// The name in `--model`.
impl fmt::Display for ConsistencyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsistencyModel::VersionStaleness(versions) => write!(f, "{versions}-atomic"),
            ConsistencyModel::TimeStaleness(time) => write!(f, "within-{}", shown_time(*time)),
            other => f.write_str(other.family()),
        }
    }
}
