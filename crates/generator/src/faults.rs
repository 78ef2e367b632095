//! Faults as operations of the nemesis: what to break when, and the way back from an operation to its fault.
//!
//! A *package* knows how to break one kind of thing and how to mend it; a *schedule* says when each package has its turn.
//! Both are chosen by [`FaultOptions`], and both are pure: the operations that come out are carried out by `runner` on real
//! nodes and by `sim` in its world.

mod healing;
mod membership;
mod operation;
mod package;
mod schedule;
mod target;

pub use healing::Healing;
pub use membership::{View, view_of, view_value};
pub use operation::{NotAFault, fault_of, fault_operation, fault_value};
pub use schedule::FaultSchedule;
pub use target::{Target, parse_fault};

use seatrial_machine::unknown_name;
use seatrial_machine::{FaultKind, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// What may be broken, and in which order.
#[derive(Clone, Debug)]
pub struct FaultOptions {
    /// The families of faults to draw from; none, no faults.
    pub kinds: Vec<FaultKind>,
    /// The nodes of the system.
    pub servers: Vec<NodeId>,
    /// The endpoints of the test's clients, whose links to the servers may be cut; may be empty.
    pub clients: Vec<NodeId>,
    /// Mean time between two faults; the gaps are uniform between nothing and twice this.
    pub interval: Duration,
    /// How the packages take turns.
    pub order: FaultOrder,
    /// What each kind strikes; drawn from all that fits when a kind is not named.
    pub targets: BTreeMap<FaultKind, Vec<Target>>,
    /// Names of faults that are never drawn, because they cannot be carried out where the test runs.
    pub omitted: BTreeSet<&'static str>,
}

impl FaultOptions {
    /// These kinds of faults at this interval, mixed, with any targets.
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
            omitted: BTreeSet::new(),
        }
    }

    /// Can each of the kinds be carried out on a system of so many nodes?
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultOrder {
    /// At random intervals a package is drawn, and breaks or mends something.
    #[default]
    Mix,
    /// Every package has a stream of its own at the interval, and knows nothing of the others (Jepsen's combined
    /// packages). Adding a package changes nothing for those that are there.
    Interval,
    /// A package is drawn and breaks something; then that is mended; then the next.
    OneAtATime,
}

impl FaultOrder {
    /// All of them, in the order in which they are listed to people.
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

/// Why faults cannot be had as they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// There is no such kind.
    #[error("{}", unknown_name("fault", .0, FaultKind::ALL.map(FaultKind::name).into_iter().chain(["none"])))]
    Kind(String),
    /// There is no such target, or faults of this kind do not have it.
    #[error("{kind} cannot strike {target:?}; {known}", known = fitting(*.kind))]
    Target {
        /// The kind of faults.
        kind: FaultKind,
        /// What was asked for.
        target: String,
    },
    /// There is no such order.
    #[error("{}", unknown_name("fault schedule", .0, FaultOrder::ALL.map(FaultOrder::name)))]
    Order(String),
    /// The system is too small for it.
    #[error("{what} needs a system of {nodes_min} nodes or more; this one has {nodes}")]
    TooFewNodes {
        /// The kind, or the kind and its target.
        what: String,
        /// How many nodes it needs.
        nodes_min: usize,
        /// How many there are.
        nodes: usize,
    },
}

fn names<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    names.join(", ")
}

fn fitting(kind: FaultKind) -> String {
    let targets = Target::ALL.into_iter().filter(|target| target.fits(kind));
    match names(targets) {
        known if known.is_empty() => "it takes no target".into(),
        known => format!("its targets are {known}"),
    }
}

/// Generators of faults that fit together. Both must run on the nemesis thread
/// ([`Generator::nemesis`](crate::Generator::nemesis)).
#[derive(Debug)]
pub struct FaultPackage {
    /// Breaks and mends, without end.
    pub faults: FaultSchedule,
    /// Mends everything of the kinds asked for, whatever was broken: for the end of the test.
    pub healing: Healing,
}

/// The faults of these options, drawn from `rng`. Kinds for which the system is too small (see [`FaultOptions::check`])
/// never come.
pub fn fault_package(options: FaultOptions, rng: Rng) -> FaultPackage {
    FaultPackage {
        healing: Healing::new(&options),
        faults: FaultSchedule::new(options, rng),
    }
}

#[cfg(test)]
mod tests;
