//! PostgreSQL as a system under test: one server, or a primary with a streaming standby.
//!
//! | suite | nodes | what is expected of it |
//! | --- | --- | --- |
//! | [`POSTGRES`] | n1 | the isolation level that `--isolation` names |
//! | [`STANDBY`] | n1 is the primary, n2 its standby, where half of the clients read | the same, which it does not hold |
//!
//! | `--isolation` | model to check | why |
//! | --- | --- | --- |
//! | `read-committed` | `read-committed` | |
//! | `repeatable-read` | `snapshot-isolation` | each transaction reads one snapshot, and the first updater wins |
//! | `serializable` | `serializable` | a standby offers `repeatable-read` at most |
//!
//! # Reading order
//!
//! `lib.rs` (what the suites declare), `postgres_session.rs` (a connection, its transactions, and which errors are
//! definite), `postgres_client.rs` (which nodes clients use; statements that only PostgreSQL has), `tables.rs` (what they
//! use), `postgres_nodes.rs` (the
//! servers), `initial_data.rs` (their folders before the first start).
//!
//! # What is absent
//!
//! - No failover: PostgreSQL has none without further programs.
//! - No retry: a transaction that the server aborts is a failed operation.

mod initial_data;
mod postgres_client;
mod postgres_nodes;
mod postgres_session;
mod tables;

use initial_data::InitialData;
use postgres_client::PostgresClients;
use postgres_nodes::PostgresSystem;
use postgres_session::PostgresSession;
use seatrial_machine::FaultKind;
use seatrial_runner::{
    BoxFuture, ClientError, NodeLimits, OrdinaryUser, ProcessNodes, ServerProgram,
};
use seatrial_sql::{SqlStoreOptions, TRANSACTIONS, model_of_transactions};
use seatrial_suite::{
    Addressing, Deployment, Load, OptionValues, STORE_WORKLOADS_WITHOUT_LOCKS, Setup, SqlLevel,
    SqlSession, SqlSystem, Suite, SuiteError, SuiteOption, Verb,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// One server.
pub static POSTGRES: Postgres = Postgres(PostgresTopology::One);
/// A primary and a streaming standby.
pub static STANDBY: Postgres = Postgres(PostgresTopology::Standby);

/// The suite of one topology of PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct Postgres(PostgresTopology);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostgresTopology {
    One,
    Standby,
}

impl PostgresTopology {
    /// Number of nodes.
    fn nodes(self) -> u32 {
        match self {
            PostgresTopology::One => 1,
            PostgresTopology::Standby => 2,
        }
    }
}

/// Where Debian and others put the programs of the server.
const FOLDERS: &[&str] = &[
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
];
/// The command that installs them.
const INSTALL: &str = "apt-get install --no-install-recommends postgresql";
const SERVER: ServerProgram = ServerProgram {
    name: "postgres",
    folders: FOLDERS,
    install: INSTALL,
};
const INITDB: ServerProgram = ServerProgram {
    name: "initdb",
    folders: FOLDERS,
    install: INSTALL,
};
/// Versions with which the suites were tried.
const TRIED: &str = "15";
/// Users that the server runs as if the test runs as root, which it refuses.
const USERS: [&str; 2] = ["postgres", "nobody"];

const ISOLATION: &str = "isolation";
const SYNCHRONOUS: &str = "synchronous";
const READS: &str = "reads";

/// The isolation levels; the default first.
const LEVELS: &[&str] = &["serializable", "repeatable-read", "read-committed"];

const OPTIONS: [SuiteOption; 4] = [
    SuiteOption {
        name: ISOLATION,
        value_name: "LEVEL",
        about: "Isolation level of transactions: serializable, repeatable-read, read-committed (PostgreSQL, MariaDB), read-uncommitted (MariaDB, SQLite); it decides the model to check",
        default: Some("serializable"),
        verbs: &[Verb::Test],
    },
    TRANSACTIONS,
    SuiteOption {
        name: SYNCHRONOUS,
        value_name: "WHEN",
        about: "Does a commit wait for the standby: off, on",
        default: Some("off"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: READS,
        value_name: "FROM",
        about: "Where transactions that only read go: any (each client's own node), or primary",
        default: Some("any"),
        verbs: &[Verb::Test],
    },
];

impl Suite for Postgres {
    fn name(&self) -> &'static str {
        match self.0 {
            PostgresTopology::One => "postgres",
            PostgresTopology::Standby => "postgres-standby",
        }
    }

    fn about(&self) -> &'static str {
        match self.0 {
            PostgresTopology::One => "PostgreSQL, one server",
            PostgresTopology::Standby => {
                "PostgreSQL, a primary and a streaming standby, which is read"
            }
        }
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS_WITHOUT_LOCKS
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        let count = self.0.nodes();
        match asked.filter(|asked| *asked != count) {
            None => Ok(count),
            Some(asked) => {
                let nodes = if count == 1 { "one node" } else { "two nodes" };
                Err(format!("{} has {nodes}, not {asked}", self.name()).into())
            }
        }
    }

    fn options(&self) -> &'static [SuiteOption] {
        match self.0 {
            PostgresTopology::One => &OPTIONS[..2],
            PostgresTopology::Standby => &OPTIONS,
        }
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

    fn expected_model(
        &self,
        workload: &str,
        options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        let level = options.one_of(ISOLATION, LEVELS)?;
        let model = match level {
            "repeatable-read" => "snapshot-isolation",
            other => other,
        };
        Ok(model_of_transactions(workload, model))
    }

    fn sql(&self) -> Option<&dyn SqlSystem> {
        (self.0 == PostgresTopology::One).then_some(self)
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let isolation = setup.options.one_of(ISOLATION, LEVELS)?;
        let is_synchronous = setup.options.one_of(SYNCHRONOUS, &["off", "on"])? == "on";
        let reads_anywhere = setup.options.one_of(READS, &["any", "primary"])? == "any";
        let store = SqlStoreOptions::of(setup, &postgres_client::DIALECT)?;
        let (server, version) = SERVER.version("--version")?;
        setup.note_version("PostgreSQL", (" ", &[TRIED]), &version);
        let user = OrdinaryUser::find(&USERS)?;
        let system = PostgresSystem {
            server,
            // Clients that are opened again come before the server has noticed the end of the former ones.
            connections: setup.concurrency * 6 + 50,
            has_standby: self.0 == PostgresTopology::Standby,
            is_synchronous,
            data: InitialData::new(INITDB.find()?, user.clone()),
            user,
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(30),
            ..NodeLimits::default()
        };
        let nodes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 1).with_limits(limits)),
            clients: Arc::new(PostgresClients {
                isolation,
                reads_anywhere,
                options: store,
            }),
        })
    }
}

/// The levels for schedules.
const SQL_LEVELS: [SqlLevel; 3] = [
    SqlLevel::new("read-committed", &[(ISOLATION, "read-committed")]),
    SqlLevel::new("repeatable-read", &[(ISOLATION, "repeatable-read")]),
    SqlLevel::new("serializable", &[(ISOLATION, "serializable")]),
];

impl SqlSystem for Postgres {
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
            let isolation = options.one_of(ISOLATION, LEVELS)?;
            let session = PostgresSession::open(address, Some(isolation), limit).await?;
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
        let model =
            |workload: &str, options: &OptionValues| POSTGRES.expected_model(workload, options);
        assert_eq!(
            model("list-append", &options).unwrap(),
            Some("serializable")
        );
        options.insert(ISOLATION, "repeatable-read".into());
        assert_eq!(
            model("rw-register", &options).unwrap(),
            Some("snapshot-isolation")
        );
        assert_eq!(model("bank", &options).unwrap(), None);
        options.insert(ISOLATION, "none".into());
        assert!(model("bank", &options).is_err());
        for workload in POSTGRES.workloads() {
            let options = OptionValues::default();
            let model = model(workload, &options).unwrap();
            assert!(POSTGRES.checkers(workload, model).is_ok(), "{workload}");
        }
    }
}
