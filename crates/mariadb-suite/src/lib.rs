//! MariaDB as a system under test: one server with InnoDB tables.
//!
//! | `--isolation` | `--innodb-snapshot-isolation` | model to check | why |
//! | --- | --- | --- | --- |
//! | `read-uncommitted` | | `read-uncommitted` | |
//! | `read-committed` | | `read-committed` | |
//! | `repeatable-read` | `off` | `repeatable-read` | what its name says, which it does not hold: writes are of the newest row |
//! | `repeatable-read` | `on` | `snapshot-isolation` | a write of a row that changed after the snapshot is refused |
//! | `serializable` | | `serializable` | each read takes a lock |
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `mariadb_session.rs` (a connection, and which of its errors are definite),
//! `mariadb_client.rs` (statements that only MariaDB has), `mariadb_nodes.rs` (the server, its folder before the first start).
//!
//! # What is absent
//!
//! - Replication and Galera.
//! - Engines without transactions.

mod mariadb_client;
mod mariadb_nodes;
mod mariadb_session;

use mariadb_client::MariadbClients;
use mariadb_nodes::MariadbSystem;
use mariadb_session::{MariadbIsolation, MariadbSession};
use seatrial_machine::FaultKind;
use seatrial_runner::{BoxFuture, ClientError, NodeLimits, ProcessNodes, ServerProgram};
use seatrial_sql::{SqlStoreOptions, TRANSACTIONS, model_of_transactions};
use seatrial_suite::{
    Addressing, Deployment, Load, OptionValues, STORE_WORKLOADS_WITHOUT_LOCKS, Setup, SqlLevel,
    SqlSession, SqlSystem, Suite, SuiteError, SuiteOption, Verb,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// One server.
pub static MARIADB: Mariadb = Mariadb;

/// The suite.
#[derive(Clone, Copy, Debug)]
pub struct Mariadb;

/// The command that installs the programs.
const INSTALL: &str = "apt-get install --no-install-recommends mariadb-server";
const SERVER: ServerProgram = ServerProgram {
    name: "mariadbd",
    folders: &["/usr/sbin", "/usr/libexec", "/usr/local/mysql/bin"],
    install: INSTALL,
};
const INITIALIZER: ServerProgram = ServerProgram {
    name: "mariadb-install-db",
    folders: &["/usr/bin", "/usr/local/mysql/scripts"],
    install: INSTALL,
};
/// Versions with which the suite was tried.
const TRIED: &str = "10.11";

const ISOLATION: &str = "isolation";
const SNAPSHOT: &str = "innodb-snapshot-isolation";
const FLUSH: &str = "innodb-flush-log-at-trx-commit";
const BINLOG: &str = "binlog";

/// The isolation levels; the default first.
const LEVELS: &[&str] = &[
    "serializable",
    "repeatable-read",
    "read-committed",
    "read-uncommitted",
];

const OPTIONS: [SuiteOption; 5] = [
    SuiteOption {
        name: ISOLATION,
        value_name: "LEVEL",
        about: "Isolation level of transactions: serializable, repeatable-read, read-committed, read-uncommitted; it decides the model to check",
        default: Some("serializable"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: SNAPSHOT,
        value_name: "WHEN",
        about: "Is a write of a row that changed after the snapshot refused: off, on; on makes repeatable-read snapshot isolation",
        default: Some("off"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: FLUSH,
        value_name: "WHEN",
        about: "When the log is written: 1 (synced at each commit), 2 (written at each commit), 0 (once a second)",
        default: Some("1"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: BINLOG,
        value_name: "WHEN",
        about: "The binary log: on (synced at each commit), off, MariaDB's default; off, a read can show what a crash then loses",
        default: Some("on"),
        verbs: &[Verb::Test],
    },
    TRANSACTIONS,
];

/// The isolation that the options ask for.
fn isolation(options: &OptionValues) -> Result<MariadbIsolation, String> {
    Ok(MariadbIsolation {
        level: options.one_of(ISOLATION, LEVELS)?,
        is_snapshot: options.one_of(SNAPSHOT, &["off", "on"])? == "on",
    })
}

impl Suite for Mariadb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn about(&self) -> &'static str {
        "MariaDB, one server"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS_WITHOUT_LOCKS
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn addressing(&self) -> Addressing {
        Addressing::ProxiesAtLeast
    }

    fn load(&self) -> Load {
        Load {
            rate: 1_000.0,
            concurrency: 10,
        }
    }

    fn log_patterns(&self) -> &'static [&'static str] {
        &["mariadbd got signal", r"InnoDB: .*[Cc]orrupt"]
    }

    fn expected_model(
        &self,
        workload: &str,
        options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        let isolation = isolation(options)?;
        let model = match isolation.level {
            "repeatable-read" if isolation.is_snapshot => "snapshot-isolation",
            other => other,
        };
        Ok(model_of_transactions(workload, model))
    }

    fn sql(&self) -> Option<&dyn SqlSystem> {
        Some(self)
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let isolation = isolation(setup.options)?;
        let flush = setup.options.one_of(FLUSH, &["1", "2", "0"])?;
        let has_binlog = setup.options.one_of(BINLOG, &["on", "off"])? == "on";
        let store = SqlStoreOptions::of(setup, &mariadb_client::DIALECT)?;
        let (server, version) = SERVER.version("--version")?;
        setup.note_version("MariaDB", (" ", &[TRIED]), &version);
        let system = MariadbSystem {
            server,
            initializer: INITIALIZER.find()?,
            // Clients that are opened again come before the server has noticed the end of the former ones.
            connections: setup.concurrency * 6 + 50,
            flush,
            has_binlog,
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(30),
            ..NodeLimits::default()
        };
        let nodes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 1).with_limits(limits)),
            clients: Arc::new(MariadbClients {
                isolation,
                options: store,
            }),
        })
    }
}

/// The levels for schedules.
const SQL_LEVELS: [SqlLevel; 5] = [
    SqlLevel::new("read-uncommitted", &[(ISOLATION, "read-uncommitted")]),
    SqlLevel::new("read-committed", &[(ISOLATION, "read-committed")]),
    SqlLevel::new("repeatable-read", &[(ISOLATION, "repeatable-read")]),
    SqlLevel::new(
        "repeatable-read, innodb-snapshot-isolation",
        &[(ISOLATION, "repeatable-read"), (SNAPSHOT, "on")],
    ),
    SqlLevel::new("serializable", &[(ISOLATION, "serializable")]),
];

/// Seconds that a statement of a schedule waits for a lock: longer than any step of it.
const SCHEDULE_LOCK_WAIT: &str = "set session innodb_lock_wait_timeout = 30";

impl SqlSystem for Mariadb {
    fn levels(&self) -> &'static [SqlLevel] {
        &SQL_LEVELS
    }

    fn version(&self) -> Result<String, ClientError> {
        Ok(SERVER.version("--version")?.1)
    }

    fn open<'a>(
        &'a self,
        address: SocketAddr,
        options: &'a OptionValues,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn SqlSession>, ClientError>> {
        Box::pin(async move {
            let isolation = isolation(options)?;
            let mut session = MariadbSession::open(address, Some(isolation), limit).await?;
            session.run(SCHEDULE_LOCK_WAIT, &[]).await?;
            Ok(Box::new(session) as Box<dyn SqlSession>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_isolation_level_decides_the_model() {
        let mut options = OptionValues::default();
        let model = |options: &OptionValues| MARIADB.expected_model("list-append", options);
        assert_eq!(model(&options).unwrap(), Some("serializable"));
        options.insert(SNAPSHOT, "on".into());
        assert_eq!(model(&options).unwrap(), Some("serializable"));
        options.insert(ISOLATION, "repeatable-read".into());
        assert_eq!(model(&options).unwrap(), Some("snapshot-isolation"));
        options.insert(SNAPSHOT, "off".into());
        assert_eq!(model(&options).unwrap(), Some("repeatable-read"));
        for level in LEVELS {
            options.insert(ISOLATION, (*level).into());
            for workload in MARIADB.workloads() {
                let model = MARIADB.expected_model(workload, &options).unwrap();
                assert!(MARIADB.checkers(workload, model).is_ok(), "{workload}");
            }
        }
        options.insert(ISOLATION, "snapshot".into());
        assert!(model(&options).is_err());
        for level in MARIADB.levels() {
            assert!(isolation(&level.values()).is_ok(), "{}", level.name);
        }
    }
}
