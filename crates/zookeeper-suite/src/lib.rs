//! Apache ZooKeeper as a system under test: one, three or five servers.
//!
//! Nodes are Java processes of Debian's package, or of the jars in a folder. Clients use the crate `zookeeper-client`; each has
//! one session with its own server and never moves to another one.
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `zookeeper_session.rs` (one session, and which errors are definite),
//! `zookeeper_store.rs` (requests of a test as reads and changes of znodes), `zookeeper_nodes.rs` (the servers),
//! `server_status.rs` (what a server says of itself), `znode_tree.rs` (where data are, and a digest of all of them).
//!
//! # What is absent
//!
//! - No proxy between servers: each has one address for all others. Links between them are cut in namespaces.
//! - No retry of a write that may have reached a server. A change whose versions did not match is begun again: it changed
//!   nothing.
//! - No use of a session whose connection was lost, although the crate would renew it: the next operation has a new session.

mod server_status;
mod znode_tree;
mod zookeeper_nodes;
mod zookeeper_session;
mod zookeeper_store;

use seatrial_check::{UnknownName, by_name, checkers_of, for_workload};
use seatrial_checker::Checker;
use seatrial_machine::FaultKind;
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, OptionValues, STORE_WORKLOADS, Setup, Suite, SuiteError,
    SuiteOption, Verb, member_count,
};
use std::sync::Arc;
use std::time::Duration;
use zookeeper_nodes::{ServerJars, ZooKeeperSystem};
use zookeeper_store::ZooKeeperClients;

/// The suite of ZooKeeper.
pub static ZOOKEEPER: ZooKeeper = ZooKeeper;

/// The suite of ZooKeeper.
#[derive(Clone, Copy, Debug)]
pub struct ZooKeeper;

const JAVA: ServerProgram = ServerProgram {
    name: "java",
    folders: &[],
    install: "apt-get install --no-install-recommends zookeeper",
};
/// Versions with which the suite was tried.
const TRIED: &str = "3.8";

const READS: &str = "reads";
const SESSION: &str = "session-timeout";
const TICK: &str = "tick";
const JARS: &str = "jars";

const OPTIONS: [SuiteOption; 4] = [
    SuiteOption {
        name: READS,
        value_name: "HOW",
        about: "Before a read: quorum (a transaction without a change, so that it is linearizable), sync (a sync, which a leader answers at once, so that a read there may be stale), local (nothing)",
        default: Some("quorum"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: SESSION,
        value_name: "SECONDS",
        about: "Time without contact after which a session ends and its locks are released: 2 to 20 ticks",
        default: Some("4"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: TICK,
        value_name: "MS",
        about: "ZooKeeper's tickTime in milliseconds, 100 to 5000; servers notice a lost one after 5 ticks",
        default: Some("500"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: JARS,
        value_name: "DIR",
        about: "Folder with the jars of a release, in place of those of Debian's package",
        default: None,
        verbs: &[Verb::Test],
    },
];

/// What comes before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadGuard {
    /// A transaction that changes nothing: a majority logs it, and the client's own server executes all before it.
    Quorum,
    /// A `sync`. A follower then has what its leader had committed. A leader answers it by itself, and may do so before it
    /// executes what its followers have already acknowledged, or after it was replaced.
    Sync,
    /// Nothing.
    Local,
}

impl ReadGuard {
    fn of(options: &OptionValues) -> Result<ReadGuard, SuiteError> {
        Ok(match options.one_of(READS, &["quorum", "sync", "local"])? {
            "quorum" => ReadGuard::Quorum,
            "sync" => ReadGuard::Sync,
            _ => ReadGuard::Local,
        })
    }
}

/// The tick, and the time limit of a session.
fn timing(options: &OptionValues) -> Result<(Duration, Duration), SuiteError> {
    let tick = Duration::from_millis(options.number(TICK, 100..=5_000, 500)?);
    let session = Duration::from_secs(options.number(SESSION, 1..=100, 4)?);
    // The server would choose the nearest permitted limit and say nothing.
    if session < tick * 2 || session > tick * 20 {
        return Err(format!(
            "--{SESSION} {} is not between 2 and 20 ticks of {} ms",
            session.as_secs(),
            tick.as_millis()
        )
        .into());
    }
    Ok((tick, session))
}

impl Suite for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn about(&self) -> &'static str {
        "Apache ZooKeeper, one, three or five servers"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    /// Sequential consistency of registers is the question of another checker.
    fn checkers(
        &self,
        workload: &str,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        if !has_registers(workload) || model != Some(SEQUENTIAL) {
            return for_workload(workload, model);
        }
        let mut checkers = for_workload(workload, None)?;
        checkers.retain(|checker| checker.name() == "stats");
        checkers.push(by_name("consistency", model)?);
        Ok(checkers)
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        member_count("ZooKeeper", &[1, 3, 5], asked)
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn addressing(&self) -> Addressing {
        Addressing::WholeAddresses
    }

    fn load(&self) -> Load {
        Load {
            rate: 500.0,
            concurrency: 12,
        }
    }

    /// Reads of one server are promised to be sequentially consistent, also after a `sync`. Local ones of several znodes in one
    /// request are expected to see all of a transaction or nothing; the documentation says this of writes only.
    fn expected_model(
        &self,
        workload: &str,
        options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        let guard = ReadGuard::of(options)?;
        Ok(match workload {
            _ if guard == ReadGuard::Quorum => None,
            _ if has_registers(workload) => Some(SEQUENTIAL),
            _ if has_sets(workload) => Some("eventual"),
            "list-append" | "rw-register" if guard == ReadGuard::Local => Some("serializable"),
            _ => None,
        })
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let guard = ReadGuard::of(setup.options)?;
        let (tick, session) = timing(setup.options)?;
        let jars = match setup.options.path(JARS) {
            Some(folder) => ServerJars::in_folder(folder)?,
            None => ServerJars::of_debian(JAVA.install)?,
        };
        setup.note_version("ZooKeeper", ("", &[TRIED]), &jars.version);
        setup.note_uncut_links("server");
        let system = ZooKeeperSystem {
            java: JAVA.find()?,
            jars,
            tick,
            is_ensemble: setup.nodes > 1,
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(40),
            ..NodeLimits::default()
        };
        let nodes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 3).with_limits(limits)),
            clients: Arc::new(ZooKeeperClients {
                timeout: setup.timeout,
                session,
                workload: setup.workload.unwrap_or_default(),
                guard,
            }),
        })
    }
}

/// The model of registers that one server alone reads.
const SEQUENTIAL: &str = "sequential";

/// Are the operations of this workload those of single registers?
fn has_registers(workload: &str) -> bool {
    is_checked_by(workload, "cas-register")
}

/// Are they additions to sets, and reads of them?
fn has_sets(workload: &str) -> bool {
    is_checked_by(workload, "set-full")
}

fn is_checked_by(workload: &str, checker: &str) -> bool {
    let mut checkers = checkers_of(workload).into_iter();
    checkers.any(|(name, _)| name == checker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decide_the_model() {
        let mut options = OptionValues::default();
        let model =
            |options: &OptionValues, workload| ZOOKEEPER.expected_model(workload, options).unwrap();
        assert_eq!(model(&options, "register"), None);
        for (reads, transactions) in [("sync", None), ("local", Some("serializable"))] {
            options.insert(READS, reads.into());
            assert_eq!(model(&options, "register"), Some("sequential"));
            assert_eq!(model(&options, "set"), Some("eventual"));
            assert_eq!(model(&options, "list-append"), transactions);
            for workload in ZOOKEEPER.workloads() {
                let model = model(&options, workload);
                assert!(ZOOKEEPER.checkers(workload, model).is_ok(), "{workload}");
            }
        }
        let names = |model| {
            let checkers = ZOOKEEPER.checkers("register", model).unwrap();
            let names: Vec<_> = checkers
                .iter()
                .map(|checker| checker.name().to_owned())
                .collect();
            names
        };
        assert_eq!(names(Some("sequential")), ["stats", "consistency"]);
        assert_eq!(names(Some("linearizable")), ["stats", "cas-register"]);
        options.insert(READS, "any".into());
        assert!(ZOOKEEPER.expected_model("register", &options).is_err());
    }

    #[test]
    fn sessions_are_measured_in_ticks() {
        let mut options = OptionValues::default();
        let expected = (Duration::from_millis(500), Duration::from_secs(4));
        assert_eq!(timing(&options).unwrap(), expected);
        options.insert(TICK, "2000".into());
        assert!(timing(&options).is_ok());
        options.insert(TICK, "2001".into());
        let error = timing(&options).unwrap_err().to_string();
        assert_eq!(
            error,
            "--session-timeout 4 is not between 2 and 20 ticks of 2001 ms"
        );
        options.insert(TICK, "100".into());
        assert!(timing(&options).is_err());
    }
}
