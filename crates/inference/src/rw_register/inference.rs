//! Assumptions about each key's version order, and the sources that version orders are inferred from.

use seatrial_checker::Anomaly;
use seatrial_cycles::anomaly::{
    CYCLIC_VERSIONS, CYCLIC_VERSIONS_ORDER, CYCLIC_VERSIONS_PROCESS, CYCLIC_VERSIONS_REALTIME,
    CYCLIC_VERSIONS_RMW,
};

/// Assumptions about each key's version order. The names are Elle's.
///
/// Two assumptions are always made: a key's initial state comes before every other version, and a value identifies its write.
/// The assumptions here must hold for the system, else a finding only shows that they do not: if the inferred orders of a key
/// contradict one another, that is a finding (`cyclic-versions` and its variants), and the last source is not used for the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of assumptions, each by its name"
)]
pub struct Inference {
    /// Writes follow reads: the version that a transaction writes after it read the key comes after the version that it read.
    /// From read committed up no other order is possible, so there it is always used.
    pub wfr_keys: bool,
    /// Updates are atomic: no version comes between the version that a transaction read and the one that it then wrote. So an
    /// order between a version and any version of a chain of updates is an order between it and the whole chain, and an update
    /// of the initial state is the first of all writes. Holds for systems without lost updates and read skew: consistent view
    /// and above. Includes writes that follow reads.
    pub rmw_keys: bool,
    /// Each key is sequentially consistent: the versions of a key that a process reads and writes are in the order of its
    /// transactions. Holds for systems with strong session snapshot isolation and above.
    pub sequential_keys: bool,
    /// Each key is linearizable: a version that a transaction read or wrote comes before a version that a transaction reads or
    /// writes that began after the first had ended. Holds for systems with strong snapshot isolation and above.
    pub linearizable_keys: bool,
}

/// An unknown name of an assumption.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}",
    seatrial_machine::unknown_name("assumption for --infer", name, Inference::NAMES)
)]
pub struct UnknownInference {
    /// The unknown name.
    pub name: String,
}

impl Inference {
    /// Are there no assumptions?
    pub fn is_empty(self) -> bool {
        self == Inference::NONE
    }

    /// No assumptions.
    pub const NONE: Inference = Inference {
        wfr_keys: false,
        rmw_keys: false,
        sequential_keys: false,
        linearizable_keys: false,
    };
    /// The names of all assumptions.
    pub const NAMES: [&'static str; 4] = [
        "wfr-keys",
        "rmw-keys",
        "sequential-keys",
        "linearizable-keys",
    ];

    /// The assumptions with these names.
    pub fn by_names<N: AsRef<str>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Inference, UnknownInference> {
        let mut inference = Inference::default();
        for name in names {
            let assumption = match name.as_ref() {
                "wfr-keys" => &mut inference.wfr_keys,
                "rmw-keys" => &mut inference.rmw_keys,
                "sequential-keys" => &mut inference.sequential_keys,
                "linearizable-keys" => &mut inference.linearizable_keys,
                other => {
                    let name = other.to_owned();
                    return Err(UnknownInference { name });
                }
            };
            *assumption = true;
        }
        Ok(inference)
    }
}

/// A source of version orders, in the order in which sources are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VersionOrderSource {
    /// Writes follow reads.
    Wfr,
    /// Updates are atomic.
    Rmw,
    /// The order of each process.
    Sequential,
    /// Real time.
    Linearizable,
    /// A given order of transactions.
    Order,
}

impl VersionOrderSource {
    pub(super) const ALL: [VersionOrderSource; 5] = [
        VersionOrderSource::Wfr,
        VersionOrderSource::Rmw,
        VersionOrderSource::Sequential,
        VersionOrderSource::Linearizable,
        VersionOrderSource::Order,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            VersionOrderSource::Wfr => "wfr-keys",
            VersionOrderSource::Rmw => "rmw-keys",
            VersionOrderSource::Sequential => "sequential-keys",
            VersionOrderSource::Linearizable => "linearizable-keys",
            VersionOrderSource::Order => "transaction-order",
        }
    }

    /// The anomaly if this source contradicts itself or an earlier one.
    pub(super) fn anomaly(self) -> Anomaly {
        match self {
            VersionOrderSource::Wfr => CYCLIC_VERSIONS,
            VersionOrderSource::Rmw => CYCLIC_VERSIONS_RMW,
            VersionOrderSource::Sequential => CYCLIC_VERSIONS_PROCESS,
            VersionOrderSource::Linearizable => CYCLIC_VERSIONS_REALTIME,
            VersionOrderSource::Order => CYCLIC_VERSIONS_ORDER,
        }
    }
}

/// A set of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceSet(u8);

impl SourceSet {
    pub(super) fn with(self, source: VersionOrderSource) -> SourceSet {
        SourceSet(self.0 | 1 << source as u8)
    }

    pub(super) fn has(self, source: VersionOrderSource) -> bool {
        self.0 >> source as u8 & 1 == 1
    }

    /// Its members, in the order in which sources are tried.
    pub(super) fn iter(self) -> impl Iterator<Item = VersionOrderSource> {
        VersionOrderSource::ALL
            .into_iter()
            .filter(move |&source| self.has(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_have_names() {
        let all = Inference::by_names(Inference::NAMES).unwrap();
        assert!(all.wfr_keys && all.sequential_keys && all.linearizable_keys);
        let some = Inference::by_names(["sequential-keys"]).unwrap();
        assert!(some.sequential_keys && !some.linearizable_keys && !some.wfr_keys);
        let error = Inference::by_names(["linear-keys"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown assumption for --infer `linear-keys` (available: wfr-keys, rmw-keys, sequential-keys, linearizable-keys)"
        );
        let sources = SourceSet::default()
            .with(VersionOrderSource::Order)
            .with(VersionOrderSource::Wfr);
        assert!(
            sources
                .iter()
                .eq([VersionOrderSource::Wfr, VersionOrderSource::Order])
        );
        assert!(
            sources.has(VersionOrderSource::Order) && !sources.has(VersionOrderSource::Sequential)
        );
    }
}
