//! Plans: whole tests as data, for people who do not write Rust. A plan is a tree of nodes, each a table with one word
//! that says what it does and others that say how often, how fast and where. It is written in TOML, which `seatrial-runner`
//! reads; here it is a [`document`] of entries with their positions.
//!
//! Every word is explained in `docs/guide/plans.md`.
//!
//! What is absent: no file and no parser of a text; nothing is run, and no system under test is named but by its vocabulary.

mod advice;
mod build;
pub mod document;
mod fault;
mod fields;
mod node;
mod options;
mod outline;
mod value;

use build::Builder;
use document::Entry;
pub use fields::Problem;
use fields::{Field, Result};
use node::{Child, Decoder, Kind};
pub use node::{KINDS, MODIFIERS};
pub use options::{Located, PlanOptions};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{Generator, Tree};
use seatrial_machine::{FaultKind, NodeId, Rng};
use std::sync::Arc;
use std::time::Duration;

/// Greatest weight of a node in a mix.
const WEIGHT_MAX: i64 = 1_000_000_000;

/// Most nodes of a system.
const SERVERS_MAX: i64 = fault::SERVERS_MAX;

/// What the system under test has words for.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'v> {
    /// Names of workloads.
    pub workloads: &'v [&'static str],
    /// Operations (`f`) of clients; `None`: any.
    pub functions: Option<&'v [&'static str]>,
}

/// Makes the workload of a name that is in the [`Vocabulary`].
pub type MakeWorkload = dyn Fn(&str, &Rng, &WorkloadOptions) -> Option<Workload> + Send + Sync;

/// Limits for a whole test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The test ends so long after its first operation; then everything is mended.
    pub time: Option<Duration>,
    /// Operations of clients.
    pub ops: Option<u64>,
    /// Mean time between two operations, over all clients.
    pub interval: Option<Duration>,
}

/// Where a plan is carried out.
#[derive(Clone)]
pub struct Surroundings {
    /// Every random choice is drawn from forks of this.
    pub rng: Rng,
    /// The nodes of the system.
    pub servers: Vec<NodeId>,
    /// The endpoints of the clients, whose links may be cut.
    pub clients: Vec<NodeId>,
    /// Makes named workloads.
    pub workloads: Arc<MakeWorkload>,
    /// What is broken wherever the plan draws faults, in place of what it says.
    pub kinds: Option<Vec<FaultKind>>,
    /// How often, in place of what it says.
    pub interval: Option<Duration>,
    /// How the kinds take turns, in place of what it says.
    pub order: Option<seatrial_generator::FaultOrder>,
    /// When the test ends at the latest.
    pub limits: Limits,
}

/// A whole test as data. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    description: Option<String>,
    options: PlanOptions,
    root: Child,
}

impl Plan {
    /// Reads a plan; the first thing that is wrong with it.
    pub fn decode(document: &Entry, vocabulary: &Vocabulary<'_>) -> Result<Plan> {
        let mut fields = Field::root(document).table("a table")?;
        let description = fields.read("description", |field| {
            Ok(field.text("text for people")?.to_owned())
        })?;
        let options = fields.read("test", PlanOptions::decode)?;
        let mut decoder = Decoder {
            vocabulary,
            nodes: 0,
            depth: 0,
        };
        let root = decoder.fields(fields)?;
        let plan = Plan {
            description,
            options: options.unwrap_or_default(),
            root,
        };
        let zipf_keys: u64 = plan.operations().map(node::Operation::zipf_keys).sum();
        if zipf_keys > value::KEYS_MAX.cast_unsigned() {
            let most = value::KEYS_MAX;
            let reason = format!(
                "the zipf distributions of the plan have {zipf_keys} keys together, more than {most}"
            );
            return Err(Field::root(document).problem(reason));
        }
        Ok(plan)
    }

    /// What the plan is called.
    pub fn name(&self) -> Option<&str> {
        self.root.name.as_deref()
    }

    /// What it is for.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// What it says about the test as a whole.
    pub const fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// All nodes, each before those inside of it.
    fn nodes(&self) -> Vec<&Child> {
        let mut nodes = Vec::new();
        let mut rest = vec![&self.root];
        while let Some(node) = rest.pop() {
            nodes.push(node);
            rest.extend(node.kind.children().into_iter().rev());
        }
        nodes
    }

    fn operations(&self) -> impl Iterator<Item = &node::Operation> {
        let nodes = self.nodes().into_iter();
        nodes.filter_map(|node| match &node.kind {
            Kind::Operation(operation) => Some(operation),
            _ => None,
        })
    }

    /// The named workloads in it, each once, in the order of the text.
    pub fn workloads(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for node in self.nodes() {
            if let Kind::Workload(name, _) | Kind::LastOf(name, _) = &node.kind
                && !names.contains(name)
            {
                names.push(name);
            }
        }
        names
    }

    /// Does it have operations besides those of named workloads?
    pub fn has_own_operations(&self) -> bool {
        self.operations().next().is_some()
    }

    /// The families of faults that it can break, as they are without options of the command line.
    pub fn fault_kinds(&self) -> Vec<FaultKind> {
        self.kinds(None)
    }

    /// The same when others are drawn.
    fn kinds(&self, drawn: Option<&[FaultKind]>) -> Vec<FaultKind> {
        let mut kinds: Vec<FaultKind> = Vec::new();
        for node in self.nodes() {
            if let Some(faults) = &node.modifiers.faults {
                kinds.extend(drawn.unwrap_or(&faults.kinds));
            }
            if let Kind::Fault(fault) = &node.kind {
                kinds.push(fault.kind());
            }
        }
        let known = FaultKind::ALL.into_iter();
        known.filter(|kind| kinds.contains(kind)).collect()
    }

    /// The generator that does what the plan says, on clients and nemesis.
    pub fn generator(&self, surroundings: Surroundings) -> Box<dyn Generator> {
        let kinds = self.kinds(surroundings.kinds.as_deref());
        let heal = self
            .nodes()
            .iter()
            .any(|node| matches!(node.kind, Kind::Fault(_) | Kind::Faults));
        Builder::new(surroundings).plan(&self.root, &kinds, heal)
    }

    /// What is allowed, but hardly meant: a phase without end that others follow, an operation that a mix has only once.
    pub fn advice(&self) -> Vec<Problem> {
        let options = &self.options;
        advice::advice(&self.root, options.time.is_some() || options.ops.is_some())
    }

    /// The plan as a tree, for people.
    pub fn outline(&self) -> Tree {
        outline::outline(&self.root)
    }
}
