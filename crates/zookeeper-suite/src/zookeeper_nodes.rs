//! The servers: their jars, their configuration, when they are ready, and when they have formed an ensemble.

use crate::server_status::ServerMode;
use crate::znode_tree::{self as tree, TreeDigest};
use crate::zookeeper_session::ZooKeeperSession;
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where the program is.
pub(crate) struct ServerJars {
    class_path: OsString,
    pub(crate) version: String,
}

/// The folder of Debian's jars.
const DEBIAN: &str = "/usr/share/java";

impl ServerJars {
    /// Those of Debian's package. They log to standard error, with times.
    pub(crate) fn of_debian(install: &str) -> Result<ServerJars, ClientError> {
        let folder = Path::new(DEBIAN);
        let jars = ["zookeeper.jar", "slf4j-simple.jar"].map(|name| folder.join(name));
        if let Some(missing) = jars.iter().find(|jar| !jar.is_file()) {
            let missing = missing.display();
            return Err(format!(
                "ZooKeeper is not installed: there is no {missing}; install it with: {install}; or name a folder with the jars \
                 of a release with --jars"
            )
            .into());
        }
        Ok(ServerJars {
            class_path: std::env::join_paths(&jars)?,
            version: version(folder)?,
        })
    }

    /// All jars of this folder, such as `lib` of a release.
    pub(crate) fn in_folder(folder: &Path) -> Result<ServerJars, ClientError> {
        let version =
            version(folder).map_err(|error| format!("--jars: {}: {error}", folder.display()))?;
        Ok(ServerJars {
            class_path: std::path::absolute(folder)?.join("*").into_os_string(),
            version,
        })
    }
}

/// The version in the name of a jar, such as `zookeeper-3.8.0.jar`.
fn version(folder: &Path) -> Result<String, ClientError> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let version = name
            .strip_prefix("zookeeper-")
            .and_then(|rest| rest.strip_suffix(".jar"));
        if let Some(version) = version.filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Ok(version.to_owned());
        }
    }
    Err("there is no zookeeper-VERSION.jar in it".into())
}

/// The servers of a test.
pub(crate) struct ZooKeeperSystem {
    /// The program `java`.
    pub(crate) java: PathBuf,
    pub(crate) jars: ServerJars,
    /// The unit of all time limits of servers.
    pub(crate) tick: Duration,
    /// Is there more than one server?
    pub(crate) is_ensemble: bool,
}

/// Time limit of beginning a session for a question.
const SESSION_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of all questions of one look at a server.
const LOOK_LIMIT: Duration = Duration::from_secs(4);
/// Ends of sessions of questions, for servers that would wait for them.
const SESSION_TICKS: u32 = 8;

impl System for ZooKeeperSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let folder = std::path::absolute(&place.folder)?;
        fs::create_dir_all(folder.join("data"))?;
        fs::write(
            folder.join("data/myid"),
            format!("{}\n", place.node.number()),
        )?;
        let file = folder.join("zoo.cfg");
        fs::write(&file, self.configuration(place, &folder.join("data"))?)?;
        let mut command = Command::new(&self.java);
        // A small heap, and no compiler that would take longer than a test.
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"]);
        command.args([
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
            "-Dzookeeper.jmx.log4j.disable=true",
        ]);
        command.arg("-cp").arg(&self.jars.class_path);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(file);
        for name in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"] {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// It answers, if only that it is not serving: for that others may be missing.
    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            ServerMode::of(place.address).await?;
            Ok(())
        })
    }

    /// One server leads, all others follow it, and each executes a sync and a read after the data of all workloads were created.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let mut modes = Vec::new();
            for place in places {
                let mode = ServerMode::of(place.address).await;
                modes.push(mode.map_err(|error| format!("{}: {error}", place.node))?);
            }
            let count = |mode| modes.iter().filter(|one| **one == mode).count();
            let is_formed = match places.len() {
                1 => count(ServerMode::Standalone) == 1,
                all => count(ServerMode::Leader) == 1 && count(ServerMode::Follower) == all - 1,
            };
            if !is_formed {
                return Err(format!("the servers are {modes:?}").into());
            }
            for place in places {
                let seen = async {
                    let mut session = self.session(place).await?;
                    tree::plant(&mut session).await?;
                    session.sync().await?;
                    session.get(tree::IDS).await?;
                    Ok::<(), ClientError>(())
                };
                seen.await
                    .map_err(|error| format!("{}: {error}", place.node))?;
            }
            Ok(())
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    /// A single server has no other to be compared with.
    fn reports_states(&self) -> bool {
        self.is_ensemble
    }

    /// The hash of all data at the last transaction that changed any.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let look = async {
                let mut session = self.session(place).await?;
                session.sync().await?;
                let first = TreeDigest::of(&mut session).await?;
                let second = TreeDigest::of(&mut session).await?;
                Ok::<_, ClientError>((first, second))
            };
            let looked = tokio::time::timeout(LOOK_LIMIT, look).await;
            let (first, second) = looked.map_err(|_| "its data were not read in time")??;
            if first != second {
                return Err("it is receiving changes".into());
            }
            Ok(Some(NodeState {
                revision: format!("zxid {:#x}", second.last),
                hash: format!("{:016x}", second.hash),
                contents: None,
            }))
        })
    }
}

impl SystemMembers for ZooKeeperSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            let all: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
            for place in places {
                let Ok(mode) = ServerMode::of(place.address).await else {
                    continue;
                };
                membership.members.insert(place.node, all.clone());
                if matches!(mode, ServerMode::Leader | ServerMode::Standalone) {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                Err("no server answers".into())
            } else {
                Ok(membership)
            }
        })
    }
}

impl ZooKeeperSystem {
    /// A session for questions.
    async fn session(&self, place: &NodePlace) -> Result<ZooKeeperSession, ClientError> {
        let session = self.tick * SESSION_TICKS;
        ZooKeeperSession::open(place.address, SESSION_LIMIT, session).await
    }

    /// The configuration of a server: Debian's, but for the tick, addresses, and connections without a limit, because those of
    /// all clients may come from one address.
    fn configuration(&self, place: &NodePlace, data: &Path) -> Result<String, ClientError> {
        let (ip, port) = (place.ip(), place.address.port());
        let mut text = format!(
            "tickTime={}\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={port}\nclientPortAddress={ip}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n",
            self.tick.as_millis(),
            data.display()
        );
        if !self.is_ensemble {
            return Ok(text);
        }
        let ports = port
            .checked_add(1)
            .and_then(|peers| Some((peers, port.checked_add(2)?)));
        let (peers, election) =
            ports.ok_or("--port is below 65534, for the servers' own two ports")?;
        for node in &place.nodes {
            let ip = place
                .ip_of(*node)
                .ok_or_else(|| format!("{node} has no address"))?;
            let peer = SocketAddr::new(ip, peers);
            let _ = writeln!(text, "server.{}={peer}:{election}", node.number());
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_name_of_a_jar() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = ServerJars::in_folder(folder.path())
            .err()
            .expect("an error");
        let expected = "there is no zookeeper-VERSION.jar in it";
        assert!(error.to_string().ends_with(expected), "{error}");
        for name in ["zookeeper-jute-3.9.3.jar", "zookeeper-3.9.3.jar"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let jars = ServerJars::in_folder(folder.path()).expect("jars");
        assert_eq!(jars.version, "3.9.3");
        assert!(jars.class_path.to_string_lossy().ends_with("/*"));
    }
}
