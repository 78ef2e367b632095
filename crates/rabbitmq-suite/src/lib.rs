//! RabbitMQ as a system under test: one node, or a cluster of three with a quorum queue.
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `rabbitmq_client.rs` (requests of a test as messages), `rabbitmq_nodes.rs` (the nodes).
//!
//! # What is absent
//!
//! - No retry of a message that may have reached a node: its outcome is unknown.
//! - No cluster without a network of its own: Erlang's nodes find each other by a port that all share.
//! - No TLS, no users: everybody is `guest`.

mod rabbitmq_client;
mod rabbitmq_nodes;

use rabbitmq_client::RabbitmqClients;
use rabbitmq_nodes::RabbitmqSystem;
use seatrial_machine::FaultKind;
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, OptionValues, Setup, Suite, SuiteError, SuiteOption, Verb,
    member_count,
};
use std::sync::Arc;
use std::time::Duration;

/// The suite of RabbitMQ.
pub static RABBITMQ: Rabbitmq = Rabbitmq;

/// The suite of RabbitMQ.
#[derive(Clone, Copy, Debug)]
pub struct Rabbitmq;

/// Not the script in `/usr/sbin`, which runs the server as another user.
const SERVER: ServerProgram = ServerProgram {
    name: "rabbitmq-server",
    folders: &["/usr/lib/rabbitmq/lib/*/sbin"],
    install: "apt-get install --no-install-recommends rabbitmq-server",
};
/// Versions with which the suite was tried.
const TRIED: &str = "3.10";

const QUEUES: &str = "queues";
const PARTITION_HANDLING: &str = "partition-handling";

const OPTIONS: [SuiteOption; 2] = [
    SuiteOption {
        name: QUEUES,
        value_name: "KIND",
        about: "Kind of the queue: quorum (a Raft log), mirrored (a classic queue with ha-mode all), classic (on one node)",
        default: Some("quorum"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: PARTITION_HANDLING,
        value_name: "HOW",
        about: "What a cluster does about partitions: ignore, pause_minority, autoheal",
        default: Some("ignore"),
        verbs: &[Verb::Test],
    },
];

/// The first is the default: a message that was handed out twice is no error there.
const WORKLOADS: [&str; 2] = ["total-queue", "queue"];

/// The values of the options.
#[derive(Clone, Copy, Debug)]
struct RabbitmqSettings {
    kind: QueueKind,
    partition_handling: &'static str,
}

/// What the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueKind {
    Quorum,
    Mirrored,
    Classic,
}

impl RabbitmqSettings {
    fn read(options: &OptionValues) -> Result<RabbitmqSettings, SuiteError> {
        let kind = match options.one_of(QUEUES, &["quorum", "mirrored", "classic"])? {
            "quorum" => QueueKind::Quorum,
            "mirrored" => QueueKind::Mirrored,
            _ => QueueKind::Classic,
        };
        let handling = &["ignore", "pause_minority", "autoheal"];
        Ok(RabbitmqSettings {
            kind,
            partition_handling: options.one_of(PARTITION_HANDLING, handling)?,
        })
    }
}

impl Suite for Rabbitmq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn about(&self) -> &'static str {
        "RabbitMQ, one node or a cluster of three"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &WORKLOADS
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        member_count("RabbitMQ", &[1, 3], asked)
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn log_patterns(&self) -> &'static [&'static str] {
        &[r"^BOOT FAILED"]
    }

    fn addressing(&self) -> Addressing {
        Addressing::WholeAddresses
    }

    fn load(&self) -> Load {
        Load {
            rate: 300.0,
            concurrency: 12,
        }
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let settings = RabbitmqSettings::read(setup.options)?;
        let server = SERVER.find()?;
        if setup.nodes > 1 && !setup.network.has_whole_addresses() {
            return Err(format!(
                "a cluster of RabbitMQ needs a network of its own, not `{}`: add --network netns (root) or --network userns, or \
                 take --nodes 1",
                setup.network
            )
            .into());
        }
        setup.note_version(
            "RabbitMQ",
            ("rabbitmq_server-", &[TRIED]),
            &server.display().to_string(),
        );
        let system = RabbitmqSystem {
            server,
            settings,
            cookie: format!("{:x}", setup.rng.fork("cookie").word()),
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(90),
            ..NodeLimits::default()
        };
        let nodes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(
                nodes
                    .with_ports(setup.port, rabbitmq_nodes::PORTS)
                    .with_limits(limits),
            ),
            clients: Arc::new(RabbitmqClients {
                timeout: setup.timeout,
                may_be_cut: setup.breaks_network,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_names() {
        let mut options = OptionValues::default();
        let settings = RabbitmqSettings::read(&options).unwrap();
        assert_eq!(settings.kind, QueueKind::Quorum);
        assert_eq!(settings.partition_handling, "ignore");
        options.insert(QUEUES, "mirrored".into());
        assert_eq!(
            RabbitmqSettings::read(&options).unwrap().kind,
            QueueKind::Mirrored
        );
        options.insert(QUEUES, "lazy".into());
        assert!(RabbitmqSettings::read(&options).is_err());
        assert!(RABBITMQ.node_count(Some(2)).is_err());
    }
}
