//! Apache Kafka as a system under test: one, three or five brokers, each of them also a controller (KRaft).
//!
//! Nodes are Java processes of the jars in a folder. Clients send the messages of the crate `kafka-protocol` over connections of
//! their own: each asks its own broker who leads a partition, and talks to the leaders.
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `kafka_error.rs` (which errors are definite), `kafka_messages.rs` (requests and answers),
//! `answer_shape.rs` and `record_batches.rs` (answers are read without trust), `kafka_connection.rs` (one connection),
//! `partition_leaders.rs` (the brokers that a client talks to), `kafka_client.rs` (requests of a test as messages),
//! `kafka_log.rs` (the same for the workload `log`), `kafka_jars.rs` and `kafka_nodes.rs` (the brokers), `partition_digest.rs`
//! (what a broker holds at the end).
//!
//! # What is absent
//!
//! - No retry of a message that may have reached a broker: its outcome is unknown. So no idempotent producer either.
//! - No transactions, and no groups of consumers: a client of `log` is assigned its logs.
//! - No proxy between brokers: each has one address for all others. Links between them are cut in namespaces.
//! - No TLS and no SASL.

mod answer_shape;
#[cfg(test)]
mod broker_answers;
mod kafka_client;
mod kafka_connection;
mod kafka_error;
mod kafka_jars;
mod kafka_log;
mod kafka_messages;
mod kafka_nodes;
mod partition_digest;
mod partition_leaders;
mod record_batches;

use kafka_client::KafkaClients;
use kafka_jars::KafkaJars;
use kafka_nodes::KafkaSystem;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng};
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, NODE_DISK, OptionValues, Setup, Suite, SuiteError, SuiteOption,
    Verb, member_count, omitted_with_disks, workload_without_transactions,
};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The suite of Kafka.
pub static KAFKA: Kafka = Kafka;

/// The suite of Kafka.
#[derive(Clone, Copy, Debug)]
pub struct Kafka;

const JAVA: ServerProgram = ServerProgram {
    name: "java",
    folders: &[],
    install: "apt-get install --no-install-recommends default-jre-headless",
};
/// Versions with which the suite was tried.
const TRIED: [&str; 2] = ["3.9", "4.1"];

const JARS: &str = "jars";
const ACKS: &str = "acks";
const REPLICAS: &str = "replicas";
const PARTITIONS: &str = "partitions";
const MIN_ISR: &str = "min-isr";
const UNCLEAN: &str = "unclean-leader-election";
const SESSION: &str = "session-timeout";

const OPTIONS: [SuiteOption; 8] = [
    SuiteOption {
        name: JARS,
        value_name: "DIR",
        about: "Folder with the jars of a release [default: that in KAFKA_LIB]",
        default: None,
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: ACKS,
        value_name: "WHICH",
        about: "Which replicas have a message before it is acknowledged: all (that are in sync), 1 (the leader), 0 (none is waited for)",
        default: Some("all"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: REPLICAS,
        value_name: "N",
        about: "Replicas of each partition, at most the number of nodes [default: that number]",
        default: None,
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: PARTITIONS,
        value_name: "N",
        about: "Partitions of the topic, 1 to 64; the leader of the first counts as primary [default: the number of nodes]",
        default: None,
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: MIN_ISR,
        value_name: "N",
        about: "min.insync.replicas: replicas that must be in sync for acks=all [default: a majority of the replicas]",
        default: None,
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: UNCLEAN,
        value_name: "SWITCH",
        about: "unclean.leader.election.enable: may a replica that is not in sync become leader? off, on",
        default: Some("off"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: SESSION,
        value_name: "SECONDS",
        about: "broker.session.timeout.ms and replica.lag.time.max.ms in seconds, 1 to 60; Kafka's own are 9 and 30",
        default: Some("3"),
        verbs: &[Verb::Test],
    },
    NODE_DISK,
];

/// What a topic can carry out. The first is the default.
const WORKLOADS: [&str; 3] = ["log", "set", "unique-ids"];

/// The values of the options.
#[derive(Clone, Copy, Debug)]
struct KafkaSettings {
    /// -1: all replicas in sync.
    acks: i16,
    replicas: u32,
    partitions: u32,
    min_isr: u32,
    /// May a replica that is not in sync become leader?
    is_unclean: bool,
    /// After which time a broker is lost, and a replica is not in sync.
    session: Duration,
}

impl KafkaSettings {
    fn read(nodes: u32, options: &OptionValues) -> Result<KafkaSettings, SuiteError> {
        let replicas = options.number(REPLICAS, 1..=nodes.into(), nodes.into())?;
        let min_isr = options.number(MIN_ISR, 1..=replicas, replicas / 2 + 1)?;
        Ok(KafkaSettings {
            acks: match options.one_of(ACKS, &["all", "1", "0"])? {
                "all" => kafka_messages::ALL,
                "1" => 1,
                _ => 0,
            },
            replicas: u32::try_from(replicas)?,
            // As many as brokers, so that each leads one.
            partitions: u32::try_from(options.number(PARTITIONS, 1..=64, nodes.into())?)?,
            min_isr: u32::try_from(min_isr)?,
            is_unclean: options.one_of(UNCLEAN, &["off", "on"])? == "on",
            session: Duration::from_secs(options.number(SESSION, 1..=60, 3)?),
        })
    }
}

impl Suite for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn about(&self) -> &'static str {
        "Apache Kafka, one, three or five brokers"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &WORKLOADS
    }

    /// An operation on a log has one send or poll: there are no transactions.
    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        workload_without_transactions(name, rng, options)
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        member_count("Kafka", &[1, 3, 5], asked)
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

    fn log_patterns(&self) -> &'static [&'static str] {
        &[
            r"java\.lang\.OutOfMemoryError",
            "Found a corrupted index file",
            "[Ss]hutdown broker because all log dirs",
        ]
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

    /// A leader that was replaced and does not know it yet answers reads, so elements may be missing for a while.
    fn expected_model(
        &self,
        workload: &str,
        _options: &OptionValues,
    ) -> Result<Option<&'static str>, SuiteError> {
        Ok((workload == "set").then_some("eventual"))
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let settings = KafkaSettings::read(setup.nodes, setup.options)?;
        if settings.acks == 0 && setup.workload == Some("unique-ids") {
            return Err(format!(
                "--{ACKS} 0: a broker does not say the offset of a message, which is the id of --workload unique-ids"
            )
            .into());
        }
        let java = JAVA.find()?;
        let jars = KafkaJars::find(setup.options.path(JARS))?;
        setup.note_version("Kafka", ("", &TRIED), &jars.version);
        setup.note_uncut_links("broker");
        let system = KafkaSystem {
            java,
            jars,
            settings,
            nodes: setup.nodes,
            launched: Mutex::default(),
            has_ended: AtomicBool::new(false),
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(90),
            stop: Duration::from_secs(15),
        };
        let nodes = setup.with_disks(ProcessNodes::new(Arc::new(system), setup.nodes))?;
        Ok(Deployment {
            nodes: Arc::new(
                nodes
                    .with_ports(setup.port, kafka_nodes::PORTS)
                    .with_limits(limits),
            ),
            clients: Arc::new(KafkaClients {
                timeout: setup.timeout,
                workload: setup.workload.unwrap_or_default(),
                brokers: setup.nodes,
                acks: settings.acks,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_the_replicas_must_be_in_sync() {
        let mut options = OptionValues::default();
        let counts = |nodes, options: &OptionValues| {
            let found = KafkaSettings::read(nodes, options).unwrap();
            (found.replicas, found.min_isr)
        };
        let found = [1, 3, 5].map(|nodes| counts(nodes, &options));
        assert_eq!(found, [(1, 1), (3, 2), (5, 3)]);
        options.insert(REPLICAS, "2".into());
        assert_eq!(counts(3, &options), (2, 2));
        options.insert(MIN_ISR, "1".into());
        assert_eq!(counts(3, &options), (2, 1));
        options.insert(MIN_ISR, "3".into());
        let error = KafkaSettings::read(3, &options).unwrap_err().to_string();
        assert_eq!(error, "--min-isr takes a whole number from 1 to 2, not 3");
        options.insert(REPLICAS, "4".into());
        assert!(KafkaSettings::read(3, &options).is_err());
    }

    #[test]
    fn acknowledgements_have_the_numbers_of_the_protocol() {
        let mut options = OptionValues::default();
        let acks = |options: &OptionValues| KafkaSettings::read(3, options).unwrap().acks;
        assert_eq!(acks(&options), -1);
        for (word, number) in [("all", -1), ("1", 1), ("0", 0)] {
            options.insert(ACKS, word.into());
            assert_eq!(acks(&options), number);
        }
        options.insert(ACKS, "2".into());
        assert!(KafkaSettings::read(3, &options).is_err());
        assert!(KAFKA.node_count(Some(2)).is_err());
    }
}
