//! What the order of a key's versions is inferred from.

use crate::Anomaly;
use crate::txn::anomaly::{
    CYCLIC_VERSIONS, CYCLIC_VERSIONS_ORDER, CYCLIC_VERSIONS_PROCESS, CYCLIC_VERSIONS_REALTIME,
    CYCLIC_VERSIONS_RMW,
};

/// What may be taken for granted about each key by itself, to order its versions. The names are Elle's.
///
/// That a key's initial state comes before every other version, and that a value tells who wrote it, is always taken for
/// granted. What is assumed here must be true of the system, else what is found says only that it is not:
/// where the inferred orders of a key contradict one another, that is told (`cyclic-versions` and its
/// variants), and the last of them is not used for this key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of assumptions, each by its name"
)]
pub struct Inference {
    /// A transaction that reads a key and writes it later puts its version behind the one it read. From read committed up
    /// there is no other possibility, so there it is used without being asked for.
    pub wfr_keys: bool,
    /// Updates are atomic: nothing comes between the version that a transaction read and the one that it then wrote. So an
    /// order between other versions and any one of a chain of updates is an order between them and all of it, and an
    /// update of the initial state is the first of all writes. True of systems that lose no updates and have no read skew:
    /// consistent view and above. Takes writes that follow reads for granted.
    pub rmw_keys: bool,
    /// Each key is sequentially consistent: the versions of a key that a process sees and writes, one transaction after
    /// another, are in this order. True of systems with strong session snapshot isolation and above.
    pub sequential_keys: bool,
    /// Each key is linearizable: what was seen or written by a transaction comes before what is seen or written by one
    /// that began after it had ended. True of systems with strong snapshot isolation and above.
    pub linearizable_keys: bool,
}

/// A name that no assumption has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}",
    seatrial_machine::unknown_name("assumption for --infer", name, Inference::NAMES)
)]
pub struct UnknownInference {
    /// The name that was asked for.
    pub name: String,
}

impl Inference {
    /// Nothing.
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

    /// The assumptions of these names.
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

/// Where an order of versions comes from, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Transactions write behind what they read.
    Wfr,
    /// Nothing comes between what they read and what they write.
    Rmw,
    /// The order of each process.
    Sequential,
    /// Real time.
    Linearizable,
    /// A given order of transactions.
    Order,
}

impl Source {
    pub(super) const ALL: [Source; 5] = [
        Source::Wfr,
        Source::Rmw,
        Source::Sequential,
        Source::Linearizable,
        Source::Order,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Wfr => "wfr-keys",
            Source::Rmw => "rmw-keys",
            Source::Sequential => "sequential-keys",
            Source::Linearizable => "linearizable-keys",
            Source::Order => "transaction-order",
        }
    }

    /// What it is called when it contradicts itself or those before it.
    pub(super) fn anomaly(self) -> Anomaly {
        match self {
            Source::Wfr => CYCLIC_VERSIONS,
            Source::Rmw => CYCLIC_VERSIONS_RMW,
            Source::Sequential => CYCLIC_VERSIONS_PROCESS,
            Source::Linearizable => CYCLIC_VERSIONS_REALTIME,
            Source::Order => CYCLIC_VERSIONS_ORDER,
        }
    }
}

/// A set of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(u8);

impl Sources {
    pub(super) fn with(self, source: Source) -> Sources {
        Sources(self.0 | 1 << source as u8)
    }

    pub(super) fn has(self, source: Source) -> bool {
        self.0 >> source as u8 & 1 == 1
    }

    /// Its members, in the order in which they are tried.
    pub(super) fn iter(self) -> impl Iterator<Item = Source> {
        Source::ALL
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
        let sources = Sources::default().with(Source::Order).with(Source::Wfr);
        assert!(sources.iter().eq([Source::Wfr, Source::Order]));
        assert!(sources.has(Source::Order) && !sources.has(Source::Sequential));
    }
}
