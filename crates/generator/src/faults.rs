//! Faults as operations of the nemesis: packages, schedules and healing, and the decoding of an operation to its fault.
//!
//! A *package* injects and heals the faults of one kind; a *schedule* determines when each package has its turn. Both are
//! configured by [`FaultOptions`], and both are pure: `runner` carries out their operations on real nodes, `sim` in its
//! world.

mod fault_operation;
mod fault_schedule;
mod healing;
mod membership;
mod package;
mod target;

pub use fault_operation::{NotAFault, fault_of, fault_operation, fault_value};
pub use fault_schedule::FaultSchedule;
pub use healing::Healing;
pub use membership::{Membership, membership_of, membership_value};
pub use target::{FaultTarget, parse_fault};

use seatrial_machine::unknown_name;
use seatrial_machine::{FaultKind, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The faults to inject: kinds, nodes, rate, order and targets.
#[derive(Clone, Debug)]
pub struct FaultOptions {
    /// The kinds of faults to draw from; empty: no faults.
    pub kinds: Vec<FaultKind>,
    /// The nodes of the system.
    pub servers: Vec<NodeId>,
    /// The endpoints of the test's clients, whose links to the servers may be cut; may be empty.
    pub clients: Vec<NodeId>,
    /// Mean time between two faults; the gaps are uniform in `0..2 × interval`.
    pub interval: Duration,
    /// How the packages take turns.
    pub order: FaultOrder,
    /// The targets of each kind; a kind that is missing here draws from its default targets.
    pub targets: BTreeMap<FaultKind, Vec<FaultTarget>>,
    /// Do links carry packets, as a real network does? Then packets are duplicated and corrupted too. Links of whole messages or
    /// of byte streams deliver neither.
    pub has_packets: bool,
    /// Names of faults that are never drawn, because they cannot be carried out where the test runs.
    pub omitted: BTreeSet<&'static str>,
}

impl FaultOptions {
    /// These kinds of faults at this interval, in the order [`FaultOrder::Mix`], with default targets.
    pub fn new(
        kinds: impl Into<Vec<FaultKind>>,
        servers: impl Into<Vec<NodeId>>,
        clients: impl Into<Vec<NodeId>>,
        interval: Duration,
    ) -> FaultOptions {
        FaultOptions {
            kinds: kinds.into(),
            servers: servers.into(),
            clients: clients.into(),
            interval,
            order: FaultOrder::Mix,
            targets: BTreeMap::new(),
            has_packets: false,
            omitted: BTreeSet::new(),
        }
    }

    /// Checks that the system has enough nodes for each kind and target.
    pub fn check(&self) -> Result<(), FaultError> {
        for &kind in &self.kinds {
            let nodes_min = if kind == FaultKind::Membership { 2 } else { 1 };
            self.check_size(kind.name().to_owned(), nodes_min)?;
            for target in self.targets.get(&kind).into_iter().flatten() {
                let what = format!("{kind}:{target}");
                self.check_size(what, target.nodes_min(kind))?;
            }
        }
        Ok(())
    }

    fn check_size(&self, what: String, nodes_min: usize) -> Result<(), FaultError> {
        let nodes = self.servers.len();
        if nodes >= nodes_min {
            return Ok(());
        }
        Err(FaultError::TooFewNodes {
            what,
            nodes_min,
            nodes,
        })
    }
}

/// How the packages take turns.
///
/// ```text
///   mix            ── kill n1 ── cut ── restart n1 ── kill n3 ── heal ──        one stream
///   interval       ── kill n1 ───── restart n1 ── kill n3 ──────────            one stream for each kind
///                  ────── cut ─────────────── heal ──────── cut ────
///   one-at-a-time  ── kill n1 ── restart n1 ── cut ── heal ── kill n3 ──        never two kinds at once
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultOrder {
    /// At random intervals a package is drawn, which injects or heals.
    #[default]
    Mix,
    /// Every package has a stream of its own at the interval, independent of the others (Jepsen's combined packages).
    /// Adding a package does not change the faults of the others.
    Interval,
    /// A package is drawn and injects a fault; then the fault is healed; then the next package is drawn.
    OneAtATime,
}

impl FaultOrder {
    /// All orders, as listed in help and messages.
    pub const ALL: [FaultOrder; 3] = [
        FaultOrder::Mix,
        FaultOrder::Interval,
        FaultOrder::OneAtATime,
    ];

    /// The name that `--fault-schedule` takes.
    pub const fn name(self) -> &'static str {
        match self {
            FaultOrder::Mix => "mix",
            FaultOrder::Interval => "interval",
            FaultOrder::OneAtATime => "one-at-a-time",
        }
    }

    /// The order called `name`.
    pub fn from_name(name: &str) -> Result<FaultOrder, FaultError> {
        let known = FaultOrder::ALL
            .into_iter()
            .find(|order| order.name() == name);
        known.ok_or_else(|| FaultError::Order(name.to_owned()))
    }
}

impl fmt::Display for FaultOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why fault options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// Unknown kind.
    #[error("{}", unknown_name("fault", .0, FaultKind::ALL.map(FaultKind::name).into_iter().chain(["none"])))]
    Kind(String),
    /// Unknown target, or one that does not apply to faults of this kind.
    #[error("fault {kind} has no target {target:?} ({known})", known = available_targets(*.kind))]
    Target {
        /// The kind of faults.
        kind: FaultKind,
        /// The name given.
        target: String,
    },
    /// Unknown order.
    #[error("{}", unknown_name("fault schedule", .0, FaultOrder::ALL.map(FaultOrder::name)))]
    Order(String),
    /// The system has too few nodes for a kind or target.
    #[error("fault {what} needs at least {nodes_min} nodes, found {nodes}")]
    TooFewNodes {
        /// The kind, or the kind and its target.
        what: String,
        /// Number of nodes needed.
        nodes_min: usize,
        /// Number of nodes of the system.
        nodes: usize,
    },
}

fn names<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    names.join(", ")
}

/// The targets of a kind, for a message.
fn available_targets(kind: FaultKind) -> String {
    let targets = FaultTarget::ALL.into_iter();
    match names(targets.filter(|target| target.fits(kind))) {
        known if known.is_empty() => "it takes no target".into(),
        known => format!("available: {known}"),
    }
}

/// The generators of the faults of a test. Both must run on the nemesis thread
/// ([`Generator::nemesis`](crate::Generator::nemesis)).
#[derive(Debug)]
pub struct FaultPackage {
    /// Injects and heals faults, without end.
    pub faults: FaultSchedule,
    /// Heals all faults of the configured kinds, whether they were injected or not: for the end of the test.
    pub healing: Healing,
}

/// The generators of these faults, drawn from `rng`. Kinds for which the system is too small (see
/// [`FaultOptions::check`]) are never drawn.
pub fn fault_package(options: FaultOptions, rng: Rng) -> FaultPackage {
    FaultPackage {
        healing: Healing::new(&options),
        faults: FaultSchedule::new(options, rng),
    }
}

#[cfg(test)]
mod tests;
