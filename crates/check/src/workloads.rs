//! The checkers of each workload.

use crate::registry::names;

/// A workload that a test can run, and what its histories are checked for. Histories carry its name (`workload`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadChecks {
    /// The name that `--workload` takes.
    pub name: &'static str,
    /// Its checkers in addition to `stats`, each with its default model.
    pub checkers: &'static [(&'static str, Option<&'static str>)],
}

/// Workloads whose checkers have other names. Every other workload is named like its checker.
pub const WORKLOADS: &[WorkloadChecks] = &[
    WorkloadChecks {
        name: "register",
        // The workload compares and sets as well.
        checkers: &[("cas-register", None)],
    },
    WorkloadChecks {
        name: "set",
        // It is read all the time.
        checkers: &[("set-full", None)],
    },
    WorkloadChecks {
        name: "queue",
        // It is drained at the end.
        checkers: &[("queue", None), ("total-queue", None)],
    },
    WorkloadChecks {
        name: "mutex",
        // A client releases only what it acquired, so owners are known: a stronger question than turns alone, without a search.
        checkers: &[("lock", None)],
    },
    WorkloadChecks {
        name: "lock",
        // Acquisitions come with fencing tokens, where the system has any.
        checkers: &[("lock", Some("fenced"))],
    },
];

/// The checkers of a workload in addition to `stats`, each with its default model; empty for an unknown workload.
pub fn checkers_of(workload: &str) -> Vec<(&'static str, Option<&'static str>)> {
    if let Some(known) = WORKLOADS.iter().find(|one| one.name == workload) {
        debug_assert!(
            !known.checkers.is_empty(),
            "a workload is checked for something"
        );
        return known.checkers.to_vec();
    }
    let named = names().find(|name| *name == workload);
    named.map(|name| (name, None)).into_iter().collect()
}
