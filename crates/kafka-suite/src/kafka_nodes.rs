//! The brokers: their configuration, when they are ready, and when they have formed a cluster.

use crate::KafkaSettings;
use crate::kafka_connection::KafkaConnection;
use crate::kafka_error::KafkaError;
use crate::kafka_jars::KafkaJars;
use crate::kafka_messages as messages;
use crate::partition_digest;
use crate::partition_leaders::leader;
use kafka_protocol::messages::MetadataResponse;
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// The brokers of a test.
pub(crate) struct KafkaSystem {
    /// The program `java`.
    pub(crate) java: PathBuf,
    pub(crate) jars: KafkaJars,
    pub(crate) settings: KafkaSettings,
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// When the last process of each node was started.
    pub(crate) launched: Mutex<BTreeMap<NodeId, Instant>>,
    /// Has the last message been appended to each partition, which comes before the states are compared?
    pub(crate) has_ended: AtomicBool,
}

/// Ports of a node: of its broker, and of its controller.
pub(crate) const PORTS: u16 = 2;
const CONTROLLER: u16 = 1;

/// Time limit of a question to a broker.
const REPLY: Duration = Duration::from_secs(2);
/// Time limit of all questions for the state of a broker.
const LOOK: Duration = Duration::from_millis(1_800);
/// Time limit of the creation of the topic.
const CREATION: Duration = Duration::from_secs(5);
/// Time limit of a connection to a controller.
const CONNECT: Duration = Duration::from_millis(300);
/// After which time a process counts as ready although a majority of controllers listens: some may be paused or cut off.
const ALONE: Duration = Duration::from_secs(8);

/// The name of the cluster, in the form of Kafka's own: 16 bytes in base64.
const CLUSTER: &str = "c2VhdHJpYWwta2Fma2EtMA";

/// Formats the folder of the log unless that was done, then becomes the node. Words: the file of the configuration, the folder,
/// the name of the cluster, the words of `java`.
const SCRIPT: &str = "file=$1 folder=$2 cluster=$3; shift 3; [ -e \"$folder/meta.properties\" ] || \
\"$@\" kafka.tools.StorageTool format --cluster-id \"$cluster\" --config \"$file\" || exit 1; \
exec \"$@\" kafka.Kafka \"$file\"";

const LOG4J: &str = "\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka=INFO
log4j.logger.state.change.logger=INFO
log4j.logger.org.apache.kafka.controller=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
";

impl System for KafkaSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let folder = std::path::absolute(&place.folder)?;
        let (file, log) = (folder.join("kafka.properties"), folder.join("log"));
        fs::write(&file, self.configuration(place, &log)?)?;
        let log4j = folder.join("log4j.properties");
        fs::write(&log4j, LOG4J)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "kafka"]).arg(file).arg(log);
        command.arg(CLUSTER).arg(&self.java);
        // A small heap, and no compiler that would take longer than a test.
        command.args(["-Xmx384m", "-Xms128m", "-XX:+UseSerialGC"]);
        command.args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
        command.arg("-Djava.net.preferIPv4Stack=true");
        command.arg(format!("-Dlog4j.configuration=file:{}", log4j.display()));
        command.arg("-cp").arg(&self.jars.class_path);
        for name in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"] {
            command.env_remove(name);
        }
        self.launched().insert(place.node, Instant::now());
        Ok(command)
    }

    /// Its broker answers. No broker can while a majority of controllers is missing, and the node whose restart ends that may be
    /// the next one: then it is enough that its controller listens.
    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let Err(error) = ask(place.address).await else {
                return Ok(());
            };
            let port = place.own_port(CONTROLLER)?.port();
            if !listens(SocketAddr::new(place.ip(), port)).await {
                return Err(error.into());
            }
            let mut listening = 0;
            for ip in place.nodes.iter().filter_map(|node| place.ip_of(*node)) {
                listening += usize::from(listens(SocketAddr::new(ip, port)).await);
            }
            let launched = self.launched().get(&place.node).copied();
            let is_alone = listening <= place.nodes.len() / 2
                || launched.is_some_and(|launched| launched.elapsed() >= ALONE);
            if is_alone { Ok(()) } else { Err(error.into()) }
        })
    }

    /// Every broker knows all others, and a leader for each partition of the topic that has all of its replicas in sync.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let first = places.first().ok_or("no node")?;
            let known = ask(first.address).await?.brokers.len();
            if known < places.len() {
                return Err(format!("{} knows {known} brokers", first.node).into());
            }
            self.create_topic(first.address).await?;
            for place in places {
                let answer = ask(place.address).await?;
                let node = place.node;
                self.has_formed(answer, places.len())
                    .map_err(|reason| format!("{node}: {reason}"))?;
            }
            Ok(())
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    /// With fewer replicas than nodes no two need to hold the same.
    fn reports_states(&self) -> bool {
        self.nodes > 1 && self.settings.replicas == self.nodes
    }

    fn catch_up<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let place = places.first().ok_or("no broker")?;
            Ok(partition_digest::append_ends(place, Instant::now() + LOOK).await?)
        })
    }

    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let deadline = Instant::now() + LOOK;
            if !self.has_ended.load(Ordering::Relaxed) {
                // After a partition too few replicas may be in sync, for longer than states that are not known are awaited. What
                // the brokers hold differs then, and `catch_up` tries again.
                let appended = partition_digest::append_ends(place, Instant::now() + LOOK / 2);
                let has_ended = appended.await.is_ok();
                self.has_ended.store(has_ended, Ordering::Relaxed);
            }
            let partitions = self.settings.partitions;
            let state = partition_digest::state(place.address, partitions, deadline).await?;
            Ok(Some(state))
        })
    }
}

/// Does a process accept connections there?
async fn listens(address: SocketAddr) -> bool {
    let connected = timeout(CONNECT, TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

/// Asks a broker for the brokers and the topic.
async fn ask(address: SocketAddr) -> Result<MetadataResponse, KafkaError> {
    let deadline = Instant::now() + REPLY;
    let mut connection = KafkaConnection::open(address, deadline).await?;
    connection.ask(&messages::metadata(), deadline).await
}

impl KafkaSystem {
    fn launched(&self) -> MutexGuard<'_, BTreeMap<NodeId, Instant>> {
        self.launched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the topic, unless it is there.
    async fn create_topic(&self, address: SocketAddr) -> Result<(), KafkaError> {
        let settings = [
            ("min.insync.replicas", self.settings.min_isr.to_string()),
            (
                "unclean.leader.election.enable",
                self.settings.is_unclean.to_string(),
            ),
        ];
        let request = messages::create_topic(
            self.settings.partitions,
            self.settings.replicas,
            &settings,
            CREATION,
        );
        let deadline = Instant::now() + CREATION + REPLY;
        let mut connection = KafkaConnection::open(address, deadline).await?;
        messages::created(&connection.ask(&request, deadline).await?)
    }

    fn has_formed(&self, answer: MetadataResponse, nodes: usize) -> Result<(), String> {
        let known = answer.brokers.len();
        if known < nodes {
            return Err(format!("it knows {known} of {nodes} brokers"));
        }
        let partitions = messages::partitions(answer).map_err(|error| error.to_string())?;
        if partitions.len() < self.settings.partitions as usize {
            let found = partitions.len();
            return Err(format!(
                "{found} of {} partitions",
                self.settings.partitions
            ));
        }
        for partition in &partitions {
            let (number, in_sync) = (partition.partition_index, partition.isr_nodes.len());
            if leader(partition).is_none() {
                return Err(format!("partition {number} has no leader"));
            }
            if in_sync < self.settings.replicas as usize {
                return Err(format!("partition {number} has {in_sync} replicas in sync"));
            }
        }
        Ok(())
    }

    /// The configuration of a node: Kafka's defaults, but for its addresses, what the topic is to have, and shorter limits.
    fn configuration(&self, place: &NodePlace, log: &Path) -> Result<String, ClientError> {
        let controller = place.own_port(CONTROLLER)?;
        let voters = place.nodes.iter().map(|node| {
            let ip = place.ip_of(*node);
            let ip = ip.ok_or_else(|| format!("{node} has no address"))?;
            let address = SocketAddr::new(ip, controller.port());
            Ok(format!("{}@{address}", node.number()))
        });
        let voters = voters.collect::<Result<Vec<String>, String>>()?;
        let (number, address) = (place.node.number(), place.address);
        let KafkaSettings {
            replicas,
            min_isr,
            is_unclean,
            session,
            ..
        } = self.settings;
        let session = session.as_millis();
        let heartbeat = session / 6;
        Ok(format!(
            "process.roles=broker,controller\n\
             node.id={number}\n\
             controller.quorum.voters={voters}\n\
             listeners=BROKER://{address},CONTROLLER://{controller}\n\
             advertised.listeners=BROKER://{address}\n\
             listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             inter.broker.listener.name=BROKER\n\
             controller.listener.names=CONTROLLER\n\
             log.dirs={log}\n\
             auto.create.topics.enable=false\n\
             default.replication.factor={replicas}\n\
             min.insync.replicas={min_isr}\n\
             unclean.leader.election.enable={is_unclean}\n\
             offsets.topic.replication.factor={replicas}\n\
             transaction.state.log.replication.factor={replicas}\n\
             transaction.state.log.min.isr={min_isr}\n\
             broker.session.timeout.ms={session}\n\
             broker.heartbeat.interval.ms={heartbeat}\n\
             replica.lag.time.max.ms={session}\n",
            voters = voters.join(","),
            log = log.display(),
        ))
    }
}

impl SystemMembers for KafkaSystem {
    /// The primary is the leader of the first partition, as that broker itself sees it. With the leaders of all partitions
    /// most brokers would be primaries, and a failover would add none.
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for place in places {
                let Ok(answer) = ask(place.address).await else {
                    continue;
                };
                let all = place.nodes.iter().copied().collect();
                membership.members.insert(place.node, all);
                let partitions = messages::partitions(answer).unwrap_or_default();
                if partitions.first().and_then(leader) == Some(place.node) {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                return Err("no broker answers".into());
            }
            Ok(membership)
        })
    }
}
