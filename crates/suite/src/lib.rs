//! The trait [`Suite`], by which a system under test is known to the program, and simulated tests of any system.
//!
//! The binary `seatrial` is `seatrial::main` with a list of suites. Its commands `test`, `sim`, `node` and `plan`, their help
//! texts and completions know a system only by this trait, so a suite outside this repository has the same command line as
//! the bundled one (`docs/guide/suites.md`, `examples/register`).
//!
//! | a suite declares | by | used by |
//! | --- | --- | --- |
//! | workloads and their checkers | [`Suite::workloads`], [`Suite::workload`], [`Suite::checkers`] | all commands |
//! | nodes and clients | [`Suite::deploy`], [`Suite::run_node`] | `test`, `node` |
//! | faults that work on its nodes | [`Suite::faults`], [`Suite::omitted_faults`] | `test` |
//! | how its nodes reach each other | [`Suite::addressing`] | `test` |
//! | options of its own | [`Suite::options`] | `test`, `sim`, `node` |
//! | commands of its own, and a benchmark | [`Suite::tools`], [`Suite::bench`] | `SUITE NAME`, `bench SUITE` |
//! | the command line of another program | [`Suite::translate`] | `SUITE WORDS` |
//! | failures in its logs | [`Suite::log_patterns`] | `test` |
//! | planted bugs | [`Suite::bugs`] | `--bug` |
//! | a simulated world | [`Suite::simulator`] | `sim` |
//! | sessions of a database that speaks SQL | [`Suite::sql`] | `schedule` |
//!
//! ```
//! use seatrial_suite::{known_workload, Deployment, Setup, Suite, SuiteError};
//!
//! struct Cache;
//!
//! impl Suite for Cache {
//!     fn name(&self) -> &'static str {
//!         "cache"
//!     }
//!
//!     fn about(&self) -> &'static str {
//!         "a cache of one node"
//!     }
//!
//!     fn workloads(&self) -> &'static [&'static str] {
//!         &["register", "set"]
//!     }
//!
//!     fn deploy(&self, _setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
//!         Err("start the nodes and open the clients here".into())
//!     }
//! }
//!
//! assert_eq!(Cache.default_workload(), "register");
//! assert_eq!(Cache.node_count(None)?, 1);
//! assert!(Cache.checkers("set", None).is_ok());
//! let error = known_workload(&Cache, "sett").unwrap_err();
//! assert!(error.to_string().contains("unknown workload `sett`"));
//! # Ok::<(), SuiteError>(())
//! ```
//!
//! A suite with a [`Simulator`] implements [`SimulatedSystem`]; [`simulate`] runs its machines, the interpreter and a world
//! with faults in one thread, from one seed.
//!
//! What is absent: this crate knows no system by name, and opens no process, socket or file; [`Suite::deploy`] does.

mod key_change;
mod log_assignment;
mod member_count;
mod network_choice;
mod node_addresses;
mod node_disk;
mod option;
mod process_usage;
mod reply_limit;
mod setup;
mod simulation;
mod sql_session;
mod store_request;
mod tls_files;
mod tool;

pub use key_change::{KeyChange, KeyText};
pub use log_assignment::{assigned_positions, workload_without_transactions};
pub use member_count::member_count;
pub use network_choice::{NetworkChoice, parse_network_choice};
pub use node_addresses::parse_node_addresses;
pub use node_disk::{NODE_DISK, node_disk, omitted_with_disks};
pub use option::{OptionValues, SuiteOption, Verb};
pub use process_usage::ProcessUsage;
pub use reply_limit::ReplyLimit;
pub use seatrial_history::Transfer;
pub use setup::{Deployment, NodeSetup, Report, Setup};
pub use simulation::{
    BootMachine, ClientStep, SimulatedRun, SimulatedSystem, SimulatedTest, Simulator, Timing, Work,
    simulate,
};
pub use sql_session::{SqlFailure, SqlLevel, SqlRows, SqlSession, SqlSystem, SqlValue};
pub use store_request::{
    DataRequest, DataStore, STORE_WORKLOADS, STORE_WORKLOADS_WITHOUT_LOCKS, StoreAnswer,
    StoreClient, StoreRefusal,
};
pub use tls_files::{TLS_CA, TLS_CERT, TLS_KEY, read_tls};
pub use tool::{SuiteTool, ToolArgument, ToolExit, ToolOption, ToolSetup, find_tool};

use seatrial_check::{UnknownName, for_workload};
use seatrial_checker::Checker;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng, unknown_name};
use seatrial_plan::{MakeWorkload, Vocabulary};
use serde_json::{Map, Value as Json};
use std::error::Error;
use std::ffi::OsString;
use std::sync::Arc;

/// An error of a suite.
pub type SuiteError = Box<dyn Error + Send + Sync>;

/// [`Suite::omitted_faults`] of a replicated system that tolerates damage, but not a node that is put back to an earlier state:
/// besides the faults that every suite omits, a file that is cut and an old copy of all files. Nothing in them shows that
/// something is missing; if another replica is behind at the same time, a majority does not have what was acknowledged.
pub const OMITTED_WITH_EARLIER_STATES: &[&str] = &[
    "slow-disk",
    "write-errors",
    "read-errors",
    "lose-unsynced",
    "truncate",
    "snapshot",
    "restore",
];

/// Rate and concurrency of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Operations per second.
    pub rate: f64,
    /// Clients.
    pub concurrency: u32,
}

/// Enough to meet every fault, few enough to read.
impl Default for Load {
    fn default() -> Load {
        Load {
            rate: 2_000.0,
            concurrency: 10,
        }
    }
}

/// How the nodes and clients of a system reach each other. With faults of links, `--network auto` takes namespaces where they
/// work, unless proxies are as good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// By the proxies of [`NodePlace::address_of`](seatrial_runner::NodePlace::address_of): `auto` is `local`, which needs
    /// nothing of the machine.
    Proxies,
    /// By proxies where there are no namespaces. There faults affect connections; in namespaces they affect packets and all
    /// processes of a node.
    ProxiesAtLeast,
    /// At whole addresses: one IP address with several ports, or one that nodes announce to each other. Without namespaces no
    /// fault affects the links between nodes.
    WholeAddresses,
}

/// A bug that can be planted in a system, so that it can be shown that a test finds it.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBug {
    /// The name, as in `--bug`.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Number of seeds within which `sim` finds it.
    pub seeds_max: u64,
}

/// A system under test. Only the first four methods and [`Suite::deploy`] have no default.
///
/// Suites live as long as the program, because closures of a test keep references to them: they are `static`, or made when the
/// program begins and leaked (`Box::leak`), as those that are read from files are.
pub trait Suite: Send + Sync {
    /// Its name on the command line, in histories and in folders: lower case, digits, hyphens.
    fn name(&self) -> &'static str;

    /// One line for help texts.
    fn about(&self) -> &'static str;

    /// The workloads that its clients can carry out; none: it has commands only, and cannot be tested.
    fn workloads(&self) -> &'static [&'static str];

    /// The nodes and clients of a real test.
    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError>;

    /// The workload that `test` runs unless another is named: by default the first one.
    fn default_workload(&self) -> &'static str {
        self.workloads()[0]
    }

    /// The workload called `name`, one of [`Suite::workloads`]. By default the one of this name in
    /// [`seatrial_generator::workload`].
    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        Ok(Workload::new(name, rng, options)?)
    }

    /// The same as part of a plan, whose operations reach the clients without the name of their workload.
    fn planned_workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        self.workload(name, rng, options)
    }

    /// The functions (`f`) of operations that plans may use besides workloads; `None`: any.
    fn functions(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The checkers of a workload, for the given consistency model or the workload's default.
    fn checkers(
        &self,
        workload: &str,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        for_workload(workload, model)
    }

    /// Checkers of every test of this suite, in addition to those of its workload or plan, once the test is deployed.
    fn evidence_checkers(&self) -> Vec<Box<dyn Checker>> {
        Vec::new()
    }

    /// Attributes of its histories in addition to the common ones.
    fn attributes(&self) -> Map<String, Json> {
        Map::new()
    }

    /// The number of nodes: `asked`, from `--nodes` or a plan, if the system supports it.
    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        match asked {
            None | Some(1) => Ok(1),
            Some(count) => Err(format!("{} has one node, not {count}", self.name()).into()),
        }
    }

    /// Rate and concurrency of a real test that suit the system, unless others are asked for.
    fn load(&self) -> Load {
        Load::default()
    }

    /// The consistency model that the system promises for a workload with these options; `None`: the workload's own. `--model`
    /// overrides it.
    fn expected_model(
        &self,
        _workload: &str,
        _options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        Ok(None)
    }

    /// Options of its own, which `test`, `sim` and `node` accept in addition to the common ones.
    fn options(&self) -> &'static [SuiteOption] {
        &[]
    }

    /// The kinds of faults that `test` injects unless others are named.
    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    /// How its nodes and clients reach each other; `--network auto` decides by it.
    fn addressing(&self) -> Addressing {
        Addressing::Proxies
    }

    /// Names of faults that are never drawn, because they cannot be injected into its real nodes, or because it does not promise
    /// to survive them ([`OMITTED_WITH_EARLIER_STATES`]). By default the faults of disks that need root for a process: slow
    /// disks, errors, and the loss of unsynced writes, which the kernel keeps.
    fn omitted_faults(&self) -> &'static [&'static str] {
        &["slow-disk", "write-errors", "read-errors", "lose-unsynced"]
    }

    /// The same with its options, which may give nodes disks of their own.
    fn omitted_faults_with(&self, _options: &OptionValues) -> &'static [&'static str] {
        self.omitted_faults()
    }

    /// Regular expressions of log lines that are failures, such as `panic` or `^FATAL`; each match in the log of a node is
    /// a finding.
    fn log_patterns(&self) -> &'static [&'static str] {
        &[]
    }

    /// The bugs that can be planted in it.
    fn bugs(&self) -> &'static [PlantedBug] {
        &[]
    }

    /// Runs one node in this process until termination is requested ([`seatrial_host::terminated`]): the command `node`.
    /// Systems with a program of their own do not support it.
    fn run_node(&self, _setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        Err(format!("the nodes of {} are no part of this program", self.name()).into())
    }

    /// Its simulated world, if it has one: the command `sim`.
    fn simulator(&self) -> Option<&dyn Simulator> {
        None
    }

    /// Its sessions, if it is a database that speaks SQL: the command `schedule`.
    fn sql(&self) -> Option<&dyn SqlSystem> {
        None
    }

    /// Commands of its own, such as a client: `seatrial SUITE NAME`.
    fn tools(&self) -> &'static [SuiteTool] {
        &[]
    }

    /// The words of the program's own command line for `words`, which follow `seatrial SUITE`: for suites that accept the command
    /// line of another program. `None`, the default: there is no such command line.
    ///
    /// # Errors
    ///
    /// The words are not those of the other program.
    fn translate(&self, words: &[OsString]) -> Option<Result<Vec<OsString>, SuiteError>> {
        let _ = words;
        None
    }

    /// The benchmark of its system, named as the suite: `seatrial bench SUITE`.
    fn bench(&self) -> Option<&'static SuiteTool> {
        None
    }
}

/// The names that plans of this suite may use.
pub fn vocabulary(suite: &dyn Suite) -> Vocabulary<'static> {
    Vocabulary {
        workloads: suite.workloads(),
        functions: suite.functions(),
    }
}

/// The constructor of the workloads of this suite's plans.
pub fn planned_workloads(suite: &'static dyn Suite) -> Arc<MakeWorkload> {
    Arc::new(|name: &str, rng: &Rng, options: &WorkloadOptions| {
        suite.planned_workload(name, rng, options).ok()
    })
}

/// The workload of this suite called `name`, as its table spells it.
pub fn known_workload(suite: &dyn Suite, name: &str) -> Result<&'static str, SuiteError> {
    let found = suite.workloads().iter().find(|known| **known == name);
    let names = suite.workloads().iter().copied();
    Ok(*found.ok_or_else(|| unknown_name("workload", name, names))?)
}

/// The bug of this suite called `name`.
pub fn known_bug(suite: &dyn Suite, name: &str) -> Result<&'static PlantedBug, SuiteError> {
    let found = suite.bugs().iter().find(|known| known.name == name);
    let names = suite.bugs().iter().map(|bug| bug.name);
    Ok(found.ok_or_else(|| unknown_name("bug", name, names))?)
}
