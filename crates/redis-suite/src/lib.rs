//! Redis as a system under test: one server, a primary with replicas and sentinels, a cluster.
//!
//! | suite | nodes | what is expected of it |
//! | --- | --- | --- |
//! | [`REDIS`] | n1 | linearizable, also after kills: the log is written before a reply |
//! | [`SENTINEL`] | n1 to n3 hold the data, n4 to n6 are sentinels | acknowledged writes are lost at failovers, as documented |
//! | [`CLUSTER`] | n1 to n3 are primaries, n4 to n6 their replicas | the same |
//!
//! # Reading order
//!
//! `lib.rs` (what the suites declare), `commands.rs` (a request as commands of Redis, and their replies),
//! `redis_connection.rs` (one connection, and which errors are definite), `reply_length.rs` (where a reply ends),
//! `redis_session.rs` (which node a command goes to), `redis_client.rs` (a request from its first command to its answer),
//! `redis_nodes.rs` (the servers), `cluster.rs` (how a cluster is made from them).
//!
//! # What is absent
//!
//! - No retry of a command that may have reached a server: its outcome is unknown.
//! - No proxy between nodes: they announce their addresses to each other, so all must reach a node at the same one. Links
//!   between them are cut in namespaces.

mod cluster;
mod commands;
mod redis_client;
mod redis_connection;
mod redis_nodes;
mod redis_session;
mod reply_length;

use commands::TransactionKeys;
use redis_client::RedisClients;
use redis_nodes::RedisSystem;
use seatrial_machine::FaultKind;
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, NODE_DISK, OptionValues, STORE_WORKLOADS_WITHOUT_LOCKS, Setup,
    Suite, SuiteError, SuiteOption, Verb, omitted_with_disks,
};
use std::sync::Arc;
use std::time::Duration;

/// One server.
pub static REDIS: Redis = Redis(RedisTopology::One);
/// A primary and two replicas, watched by three sentinels.
pub static SENTINEL: Redis = Redis(RedisTopology::Sentinel);
/// A cluster of three primaries, each with a replica.
pub static CLUSTER: Redis = Redis(RedisTopology::Cluster);

/// The suite of one topology of Redis.
#[derive(Clone, Copy, Debug)]
pub struct Redis(RedisTopology);

/// The servers and their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedisTopology {
    One,
    Sentinel,
    Cluster,
}

impl RedisTopology {
    /// Number of nodes.
    fn nodes(self) -> u32 {
        match self {
            RedisTopology::One => 1,
            RedisTopology::Sentinel | RedisTopology::Cluster => 6,
        }
    }

    /// The nodes that hold data.
    fn data_nodes(self) -> u32 {
        match self {
            RedisTopology::Sentinel => 3,
            RedisTopology::One | RedisTopology::Cluster => self.nodes(),
        }
    }
}

/// The server; sentinels are the same program.
const SERVER: ServerProgram = ServerProgram {
    name: "redis-server",
    folders: &[],
    install: "apt-get install --no-install-recommends redis-server",
};
/// Versions with which the suites were tried.
const TRIED: &str = "7.0";

const FSYNC: &str = "fsync";
const DOWN_AFTER: &str = "down-after";
const MIN_REPLICAS: &str = "min-replicas";
const DISCOVERY: &str = "discovery";
const READS: &str = "reads";
const TRANSACTIONS: &str = "transactions";

const OPTIONS: [SuiteOption; 7] = [
    SuiteOption {
        name: FSYNC,
        value_name: "WHEN",
        about: "When the log is synced: always, everysec, no; kills lose writes with everysec if the disk is busy, losses of power (--disk) with both",
        default: Some("everysec"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: DOWN_AFTER,
        value_name: "MS",
        about: "Milliseconds of silence after which a node is down for the others, 100 to 60000",
        default: Some("1000"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: MIN_REPLICAS,
        value_name: "N",
        about: "Replicas that a primary must have to accept writes, 0 to 2",
        default: Some("0"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: DISCOVERY,
        value_name: "HOW",
        about: "How clients find the primary: sentinel, or role (the first node that says that it is one, as health checks do)",
        default: Some("sentinel"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: READS,
        value_name: "FROM",
        about: "Where reads go: primary, or any (each client's own data node)",
        default: Some("primary"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: TRANSACTIONS,
        value_name: "HOW",
        about: "How transactions are sent: script (EVAL), or multi (MULTI, commands, EXEC)",
        default: Some("script"),
        verbs: &[Verb::Test],
    },
    NODE_DISK,
];

/// What is under the keys of a workload's transactions, if they are to be sent in `MULTI`.
fn multi(
    workload: Option<&'static str>,
    options: &OptionValues,
) -> Result<Option<TransactionKeys>, SuiteError> {
    if options.one_of(TRANSACTIONS, &["script", "multi"])? == "script" {
        return Ok(None);
    }
    let keys = match workload {
        Some("list-append") => Some(TransactionKeys::Lists),
        Some(name) if has_registers(name) => Some(TransactionKeys::Registers),
        _ => None,
    };
    keys.map(Some).ok_or_else(|| {
        let other = workload.unwrap_or("a plan");
        format!("--transactions multi is for workloads of transactions, not for {other}").into()
    })
}

/// The values of the options.
#[derive(Clone, Copy, Debug)]
struct Settings {
    topology: RedisTopology,
    fsync: &'static str,
    down_after: u64,
    min_replicas: u64,
    by_role: bool,
    reads_anywhere: bool,
}

impl Settings {
    fn read(topology: RedisTopology, options: &OptionValues) -> Result<Settings, SuiteError> {
        Ok(Settings {
            topology,
            fsync: options.one_of(FSYNC, &["everysec", "always", "no"])?,
            down_after: options.number(DOWN_AFTER, 100..=60_000, 1_000)?,
            min_replicas: options.number(MIN_REPLICAS, 0..=2, 0)?,
            by_role: options.one_of(DISCOVERY, &["sentinel", "role"])? == "role",
            reads_anywhere: options.one_of(READS, &["primary", "any"])? == "any",
        })
    }
}

impl Suite for Redis {
    fn name(&self) -> &'static str {
        match self.0 {
            RedisTopology::One => "redis",
            RedisTopology::Sentinel => "redis-sentinel",
            RedisTopology::Cluster => "redis-cluster",
        }
    }

    fn about(&self) -> &'static str {
        match self.0 {
            RedisTopology::One => "Redis, one server",
            RedisTopology::Sentinel => "Redis, a primary, two replicas, three sentinels",
            RedisTopology::Cluster => "Redis Cluster, three primaries with a replica each",
        }
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS_WITHOUT_LOCKS
    }

    /// What replication loses shows best in a set.
    fn default_workload(&self) -> &'static str {
        match self.0 {
            RedisTopology::One => "list-append",
            RedisTopology::Sentinel | RedisTopology::Cluster => "set",
        }
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        let count = self.0.nodes();
        match asked.filter(|asked| *asked != count) {
            None => Ok(count),
            Some(asked) => {
                let plural = if count == 1 { "node" } else { "nodes" };
                Err(format!("{} has {count} {plural}, not {asked}", self.name()).into())
            }
        }
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn omitted_faults_with(&self, options: &OptionValues) -> &'static [&'static str] {
        omitted_with_disks(options, self.omitted_faults())
    }

    fn addressing(&self) -> Addressing {
        match self.0 {
            RedisTopology::One => Addressing::ProxiesAtLeast,
            RedisTopology::Sentinel | RedisTopology::Cluster => Addressing::WholeAddresses,
        }
    }

    fn load(&self) -> Load {
        Load {
            rate: 5_000.0,
            concurrency: 12,
        }
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let settings = Settings::read(self.0, setup.options)?;
        let (server, version) = SERVER.version("--version")?;
        setup.note_version("Redis", ("v=", &[TRIED]), &version);
        let is_cut = setup.breaks_network && self.0 != RedisTopology::One;
        if is_cut && !setup.network.has_whole_addresses() {
            (setup.report)(format_args!(
                " note: on the network `{}` the links between nodes cannot be cut, only those of clients: a node announces one \
                 address to all others",
                setup.network
            ));
        }
        let system = RedisSystem {
            server,
            debugs_on_demand: debugs_on_demand(&version),
            settings,
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(40),
            ..NodeLimits::default()
        };
        let nodes = setup.with_disks(ProcessNodes::new(Arc::new(system), setup.nodes))?;
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 2).with_limits(limits)),
            clients: Arc::new(RedisClients {
                settings,
                timeout: setup.timeout,
                workload: setup.workload.unwrap_or_default(),
                multi: multi(setup.workload, setup.options)?,
            }),
        })
    }
}

/// Do transactions of this workload read and write registers?
fn has_registers(workload: &str) -> bool {
    matches!(workload, "rw-register" | "long-fork")
}

/// Does this version, such as `Redis server v=7.0.15 sha=…`, have the directive `enable-debug-command`?
fn debugs_on_demand(version: &str) -> bool {
    let number = version.split_once("v=").map_or("", |(_, rest)| rest);
    let major = number.split('.').next().and_then(|text| text.parse().ok());
    major.is_some_and(|major: u32| major >= 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workloads_of_transactions_are_sent_in_multi() {
        let mut options = OptionValues::default();
        assert_eq!(multi(Some("set"), &options).unwrap(), None);
        options.insert(TRANSACTIONS, "multi".into());
        let keys = |workload| multi(workload, &options);
        assert_eq!(
            keys(Some("list-append")).unwrap(),
            Some(TransactionKeys::Lists)
        );
        assert_eq!(
            keys(Some("long-fork")).unwrap(),
            Some(TransactionKeys::Registers)
        );
        for other in [Some("bank"), None] {
            let error = keys(other).unwrap_err().to_string();
            assert!(error.contains("--transactions multi is for"), "{error}");
        }
    }

    #[test]
    fn only_later_versions_have_the_directive() {
        assert!(debugs_on_demand("Redis server v=7.0.15 sha=00000000:0"));
        assert!(debugs_on_demand("Redis server v=10.2.0 sha=00000000:0"));
        assert!(!debugs_on_demand("Redis server v=6.2.7 sha=00000000:0"));
        assert!(!debugs_on_demand("a server"));
    }
}
