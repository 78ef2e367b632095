//! Plans: whole tests as data. A plan becomes a generator, without Rust.
//!
//! A plan is a tree of nodes. Each node is a table with one key for its kind (an operation, a workload, `phases`, `mix`,
//! `any`, …) and optional keys for its modifiers (`limit`, `delay`, `on`, `faults`, …); the names are those of the combinators
//! of `seatrial-generator`. Plans are written in TOML, which `seatrial-runner` parses. This crate reads the result, a
//! [`document`] whose values carry their positions, so that every message names line and column.
//!
//! ```text
//!   TOML ──► PlanEntry ──decode──► Plan ──generator──► Box<dyn Generator>
//!            (runner)     │      ├─► outline (a tree to print)
//!                         │      └─► advice (valid, but probably not intended)
//!                         └─► Problem (path, offset, expected and found)
//! ```
//!
//! ```
//! use seatrial_plan::document::{EntryName, PlanEntry, PlanValue};
//! use seatrial_plan::{Plan, Vocabulary};
//!
//! // f = "read", limit = 10
//! let name = |text: &str| EntryName { at: 0, text: text.into() };
//! let entry = |value| PlanEntry { at: 0, value };
//! let table = |last: &str, value| {
//!     let f = (name("f"), entry(PlanValue::Text("read".into())));
//!     entry(PlanValue::Table(vec![f, (name(last), entry(value))]))
//! };
//! let vocabulary = Vocabulary { workloads: &["register"], functions: None };
//!
//! let plan = Plan::decode(&table("limit", PlanValue::Int(10)), &vocabulary)?;
//! assert!(plan.has_own_operations() && plan.fault_kinds().is_empty());
//!
//! let problem = Plan::decode(&table("limmit", PlanValue::Int(10)), &vocabulary).unwrap_err();
//! assert!(problem.to_string().contains("limmit"));
//! # Ok::<(), seatrial_plan::Problem>(())
//! ```
//!
//! Files in reading order: `document.rs` and `fields.rs` (typed access with positions), `plan_node.rs`, `drawn_value.rs`,
//! `plan_fault.rs` and `plan_options.rs` (the tree, decoded), `plan_model.rs` (the table `model`), `build.rs` (the tree as a
//! generator), `outline.rs`, `advice.rs`. `docs/guide/plans.md` explains every key.
//!
//! What is absent: this crate opens no file, parses no text and runs nothing. It knows a system under test only by its
//! [`Vocabulary`].

mod advice;
mod build;
pub mod document;
mod drawn_value;
pub mod fields;
mod outline;
mod plan_fault;
mod plan_model;
mod plan_node;
mod plan_options;

use build::Builder;
use document::PlanEntry;
pub use fields::Problem;
use fields::{Field, Result};
pub use plan_model::{PlanModel, PlanModelRow};
use plan_node::{Child, Decoder, NodeKind};
pub use plan_node::{KINDS, MODIFIERS};
pub use plan_options::{Located, PlanOptions};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{Generator, Tree};
use seatrial_machine::{FaultKind, NodeId, Rng};
use std::sync::Arc;
use std::time::Duration;

/// Maximum weight of a node in a mix.
const WEIGHT_MAX: i64 = 1_000_000_000;

/// Maximum number of nodes of a system.
const SERVERS_MAX: i64 = plan_fault::SERVERS_MAX;

/// Tables of a plan that describe its system and clients.
pub const SYSTEM_TABLES: [&str; 2] = ["system", "client"];

/// The names that a plan of a system may use.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'v> {
    /// Names of workloads.
    pub workloads: &'v [&'static str],
    /// Operations (`f`) of clients; `None`: any.
    pub functions: Option<&'v [&'static str]>,
}

/// Makes the workload of a name that is in the [`Vocabulary`].
pub type MakeWorkload = dyn Fn(&str, &Rng, &WorkloadOptions) -> Option<Workload> + Send + Sync;

/// Limits of a whole test.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanLimits {
    /// Time from the first operation to the end of the test; healing follows.
    pub time: Option<Duration>,
    /// Maximum number of client operations.
    pub ops: Option<u64>,
    /// Mean time between two operations, over all clients.
    pub interval: Option<Duration>,
}

/// The environment of a plan: the system, the clients, and the overrides of the command line.
#[derive(Clone)]
pub struct PlanEnvironment {
    /// Every random choice is drawn from forks of this.
    pub rng: Rng,
    /// The nodes of the system.
    pub servers: Vec<NodeId>,
    /// The endpoints of the clients, whose links may be cut.
    pub clients: Vec<NodeId>,
    /// Makes named workloads.
    pub workloads: Arc<MakeWorkload>,
    /// Overrides the kinds of faults wherever the plan draws faults.
    pub kinds: Option<Vec<FaultKind>>,
    /// Overrides the interval of faults.
    pub interval: Option<Duration>,
    /// Overrides the order of faults.
    pub order: Option<seatrial_generator::FaultOrder>,
    /// Limits of the whole test.
    pub limits: PlanLimits,
}

/// A whole test as data. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    description: Option<String>,
    options: PlanOptions,
    model: Option<PlanModel>,
    /// Does its document describe a system, too?
    has_system: bool,
    root: Child,
}

impl Plan {
    /// Decodes a plan, or returns the first problem.
    pub fn decode(document: &PlanEntry, vocabulary: &Vocabulary<'_>) -> Result<Plan> {
        let mut fields = Field::root(document).table("a table")?;
        let description = fields.read("description", |field| {
            Ok(field.text("a description as text")?.to_owned())
        })?;
        let options = fields.read("test", PlanOptions::decode)?;
        // The tables of a system that is data: the crate `system` reads them.
        let mut has_system = false;
        for table in SYSTEM_TABLES {
            has_system |= fields.take(table).is_some();
        }
        let model = fields.read("model", PlanModel::decode)?;
        let mut decoder = Decoder {
            vocabulary,
            nodes: 0,
            depth: 0,
        };
        let root = decoder.fields(fields)?;
        let plan = Plan {
            description,
            options: options.unwrap_or_default(),
            model,
            has_system,
            root,
        };
        let zipf_keys: u64 = plan
            .operations()
            .map(plan_node::OperationTemplate::zipf_keys)
            .sum();
        if zipf_keys > drawn_value::KEYS_MAX.cast_unsigned() {
            let most = drawn_value::KEYS_MAX;
            let reason = format!(
                "the zipf distributions of the plan have {zipf_keys} keys together, more than {most}"
            );
            return Err(Field::root(document).problem(reason));
        }
        Ok(plan)
    }

    /// The plan's name.
    pub fn name(&self) -> Option<&str> {
        self.root.name.as_deref()
    }

    /// The plan's description.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The options of the whole test.
    pub const fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The data type that the plan states, for the checker `table-model`.
    pub const fn model(&self) -> Option<&PlanModel> {
        self.model.as_ref()
    }

    /// Does its document describe a system, too?
    pub const fn has_system(&self) -> bool {
        self.has_system
    }

    /// All nodes in preorder.
    fn nodes(&self) -> Vec<&Child> {
        let mut nodes = Vec::new();
        let mut rest = vec![&self.root];
        while let Some(node) = rest.pop() {
            nodes.push(node);
            rest.extend(node.kind.children().into_iter().rev());
        }
        nodes
    }

    fn operations(&self) -> impl Iterator<Item = &plan_node::OperationTemplate> {
        let nodes = self.nodes().into_iter();
        nodes.filter_map(|node| match &node.kind {
            NodeKind::Operation(operation) => Some(operation),
            _ => None,
        })
    }

    /// The names of its workloads, without duplicates, in the order of the text.
    pub fn workloads(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for node in self.nodes() {
            if let NodeKind::Workload(name, _) | NodeKind::LastOf(name, _) = &node.kind
                && !names.contains(name)
            {
                names.push(name);
            }
        }
        names
    }

    /// Does it contain operations that are not part of a workload?
    pub fn has_own_operations(&self) -> bool {
        self.operations().next().is_some()
    }

    /// The kinds of faults that it can inject, without overrides.
    pub fn fault_kinds(&self) -> Vec<FaultKind> {
        self.kinds(None)
    }

    /// The kinds of faults that it can inject when `drawn` overrides the kinds that it draws.
    fn kinds(&self, drawn: Option<&[FaultKind]>) -> Vec<FaultKind> {
        let mut kinds: Vec<FaultKind> = Vec::new();
        for node in self.nodes() {
            if let Some(faults) = &node.modifiers.faults {
                kinds.extend(drawn.unwrap_or(&faults.kinds));
            }
            if let NodeKind::Fault(fault) = &node.kind {
                kinds.push(fault.kind());
            }
        }
        let known = FaultKind::ALL.into_iter();
        known.filter(|kind| kinds.contains(kind)).collect()
    }

    /// The plan as a generator for all threads. Healing follows if it injects faults.
    pub fn generator(&self, environment: PlanEnvironment) -> Box<dyn Generator> {
        let kinds = self.kinds(environment.kinds.as_deref());
        let heal = self
            .nodes()
            .iter()
            .any(|node| matches!(node.kind, NodeKind::Fault(_) | NodeKind::Faults));
        Builder::new(environment).plan(&self.root, &kinds, heal)
    }

    /// Warnings about what is valid but probably not intended: an endless phase before others, a single operation in a mix.
    pub fn advice(&self) -> Vec<Problem> {
        let options = &self.options;
        advice::advice(&self.root, options.time.is_some() || options.ops.is_some())
    }

    /// The plan as a tree, to print.
    pub fn outline(&self) -> Tree {
        outline::outline(&self.root)
    }
}
