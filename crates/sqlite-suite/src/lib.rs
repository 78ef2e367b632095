//! SQLite as a system under test.
//!
//! SQLite is a library: its users are processes that open one database file, each with a few connections. So a node is a
//! process of this program (`seatrial node sqlite`) which opens a connection for each client, and all nodes of a test open the
//! same file. A kill ends one of them in the middle of a transaction, with its locks, while the others recover what it left;
//! a pause keeps its locks.
//!
//! ```text
//!  SqlStore ─► SqliteSession ── TCP, a line of JSON each way ──► node n1 ── connection per client ──┐
//!                                                        └────► node n2 ── …                       ├─► sqlite.db, -wal, -journal
//! ```
//!
//! | `--isolation` | model to check | why |
//! | --- | --- | --- |
//! | `serializable` | `serializable` | writers exclude each other; a reader has a snapshot (WAL) or excludes them |
//! | `read-uncommitted` | `read-uncommitted` | connections of one process share a cache and read without locks |
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `sqlite_session.rs` (the client's end), `sqlite_wire.rs` (the lines between),
//! `sqlite_server.rs` (a node), `sqlite_connection.rs` (its connections), `sqlite_waiting.rs` (their waits),
//! `sqlite_client.rs` (statements), `sqlite_nodes.rs` (the processes).
//!
//! # What is absent
//!
//! - Losses of power without `--disk`: a killed process loses nothing that it has written, so `--pragma-synchronous off` loses
//!   nothing then.
//! - Threads that share one connection.

mod sqlite_client;
mod sqlite_connection;
mod sqlite_nodes;
mod sqlite_server;
mod sqlite_session;
mod sqlite_waiting;
mod sqlite_wire;

use seatrial_machine::FaultKind;
use seatrial_runner::{BoxFuture, ClientError, ProcessNodes};
use seatrial_sql::{SqlStoreOptions, TRANSACTIONS, model_of_transactions};
use seatrial_suite::{
    Deployment, Load, NODE_DISK, NodeSetup, OptionValues, STORE_WORKLOADS_WITHOUT_LOCKS, Setup,
    SqlLevel, SqlSession, SqlSystem, Suite, SuiteError, SuiteOption, Verb, node_disk,
    omitted_with_disks,
};
use sqlite_client::SqliteClients;
use sqlite_connection::SqliteSettings;
use sqlite_nodes::SqliteSystem;
use sqlite_session::SqliteSession;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Processes over one file.
pub static SQLITE: Sqlite = Sqlite;

/// The suite.
#[derive(Clone, Copy, Debug)]
pub struct Sqlite;

/// Number of nodes unless asked otherwise, and at most: all share one file.
const NODES: u32 = 2;
/// See [`NODES`].
const NODES_MAX: u32 = 9;

const ISOLATION: &str = "isolation";
const JOURNAL: &str = "journal-mode";
const SYNCHRONOUS: &str = "pragma-synchronous";
const CACHE: &str = "cache";
const BEGIN: &str = "begin";
const DATABASE: &str = "database";

/// The first value of each is the default.
const LEVELS: &[&str] = &["serializable", "read-uncommitted"];
const JOURNALS: &[&str] = &["wal", "delete", "truncate", "persist", "memory", "off"];
const SYNCHRONOUS_VALUES: &[&str] = &["full", "normal", "off", "extra", "on"];
const CACHES: &[&str] = &["private", "shared"];
const BEGINNINGS: &[&str] = &["deferred", "immediate", "exclusive"];

const OPTIONS: [SuiteOption; 8] = [
    option(
        ISOLATION,
        "LEVEL",
        "Isolation level of transactions: serializable, read-uncommitted (in a shared cache); it decides the model to check",
        "serializable",
        &[Verb::Test, Verb::Node],
    ),
    option(
        JOURNAL,
        "MODE",
        "Journal mode of SQLite: wal, delete, truncate, persist, memory, off",
        "wal",
        &[Verb::Test, Verb::Node],
    ),
    option(
        SYNCHRONOUS,
        "WHEN",
        "What SQLite syncs: off, normal, full, extra",
        "full",
        &[Verb::Test, Verb::Node],
    ),
    option(
        CACHE,
        "HOW",
        "Cache of the connections of one SQLite process: private (one each), shared",
        "private",
        &[Verb::Test, Verb::Node],
    ),
    option(
        BEGIN,
        "HOW",
        "How transactions of SQLite begin: deferred (locks when they are needed), immediate, exclusive",
        "deferred",
        &[Verb::Test],
    ),
    TRANSACTIONS,
    NODE_DISK,
    SuiteOption {
        name: DATABASE,
        value_name: "FILE",
        about: "The database file [default: sqlite.db in the node's folder]",
        default: None,
        verbs: &[Verb::Node],
    },
];

const fn option(
    name: &'static str,
    value_name: &'static str,
    about: &'static str,
    default: &'static str,
    verbs: &'static [Verb],
) -> SuiteOption {
    SuiteOption {
        name,
        value_name,
        about,
        default: Some(default),
        verbs,
    }
}

impl Suite for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn about(&self) -> &'static str {
        "SQLite, processes that open the same file"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS_WITHOUT_LOCKS
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        match asked.unwrap_or(NODES) {
            count @ 1..=NODES_MAX => Ok(count),
            count => Err(format!("sqlite has 1 to {NODES_MAX} nodes, not {count}").into()),
        }
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause]
    }

    fn omitted_faults_with(&self, options: &OptionValues) -> &'static [&'static str] {
        omitted_with_disks(options, self.omitted_faults())
    }

    fn load(&self) -> Load {
        Load {
            rate: 500.0,
            concurrency: 8,
        }
    }

    fn log_patterns(&self) -> &'static [&'static str] {
        &[sqlite_server::DAMAGE]
    }

    fn expected_model(
        &self,
        workload: &str,
        options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        let level = options.one_of(ISOLATION, LEVELS)?;
        Ok(model_of_transactions(workload, level))
    }

    fn sql(&self) -> Option<&dyn SqlSystem> {
        Some(self)
    }

    fn run_node(&self, setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        let settings = SqliteSettings::read(setup.options)?;
        let file = match setup.options.path(DATABASE) {
            Some(file) => file.to_owned(),
            None => setup.data.join("sqlite.db"),
        };
        sqlite_server::run(setup.listen, &file, settings)
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let store = SqlStoreOptions::of(setup, &sqlite_client::DIALECT)?;
        let settings = SqliteSettings::read(setup.options)?;
        let begin = begin_statement(setup.options)?;
        if node_disk(setup.options)?.is_some() && setup.nodes > 1 {
            return Err(
                "--disk needs --nodes 1: all nodes open one file, on the disk of the first".into(),
            );
        }
        let system = SqliteSystem { settings };
        let nodes = setup.with_disks(ProcessNodes::new(Arc::new(system), setup.nodes))?;
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 1)),
            clients: Arc::new(SqliteClients {
                begin,
                options: store,
            }),
        })
    }
}

/// The statement that begins a transaction.
fn begin_statement(options: &OptionValues) -> Result<&'static str, String> {
    Ok(match options.one_of(BEGIN, BEGINNINGS)? {
        "immediate" => "begin immediate",
        "exclusive" => "begin exclusive",
        _ => "begin",
    })
}

/// The levels for schedules.
const SQL_LEVELS: [SqlLevel; 5] = [
    SqlLevel::new("read-uncommitted", &[(ISOLATION, "read-uncommitted")]).with_own_server(),
    SqlLevel::new("serializable, shared cache", &[(CACHE, "shared")]).with_own_server(),
    SqlLevel::new("serializable, journal delete", &[(JOURNAL, "delete")]).with_own_server(),
    SqlLevel::new("serializable, wal", &[]).with_own_server(),
    SqlLevel::new(
        "serializable, wal, begin immediate",
        &[(BEGIN, "immediate")],
    )
    .with_own_server(),
];

/// A statement of a schedule waits longer than the steps of others take.
const SCHEDULE_LOCK_WAIT: &str = "select seatrial_lock_wait(30000)";

impl SqlSystem for Sqlite {
    fn levels(&self) -> &'static [SqlLevel] {
        &SQL_LEVELS
    }

    fn version(&self) -> Result<String, ClientError> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn open<'a>(
        &'a self,
        address: SocketAddr,
        options: &'a OptionValues,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn SqlSession>, ClientError>> {
        Box::pin(async move {
            let begin = begin_statement(options)?;
            let mut session = SqliteSession::open(address, begin, limit).await?;
            session.run(SCHEDULE_LOCK_WAIT, &[]).await?;
            Ok(Box::new(session) as Box<dyn SqlSession>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_options_fit() {
        let mut options = OptionValues::default();
        let model = |options: &OptionValues| SQLITE.expected_model("list-append", options);
        assert_eq!(model(&options).unwrap(), Some("serializable"));
        options.insert(ISOLATION, "read-uncommitted".into());
        assert_eq!(model(&options).unwrap(), Some("read-uncommitted"));
        assert!(SqliteSettings::read(&options).unwrap().is_uncommitted);
        options.insert(ISOLATION, "snapshot".into());
        assert!(model(&options).is_err());
        for level in SQLITE.levels() {
            assert!(SqliteSettings::read(&level.values()).is_ok());
            assert!(begin_statement(&level.values()).is_ok());
        }
        assert_eq!(SQLITE.node_count(None).unwrap(), 2);
        assert!(SQLITE.node_count(Some(10)).is_err());
    }
}
