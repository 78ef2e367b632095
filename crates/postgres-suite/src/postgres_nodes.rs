//! The servers: their command lines, when they are ready, and when the standby follows.

use crate::initial_data::InitialData;
use crate::postgres_session::PostgresSession;
use crate::tables;
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{
    BoxFuture, ClientError, NodePlace, NodeState, OrdinaryUser, System, SystemMembers,
};
use seatrial_sql::ACCOUNTS;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The servers of a test.
pub(crate) struct PostgresSystem {
    /// The program.
    pub(crate) server: PathBuf,
    /// Connections that a server accepts.
    pub(crate) connections: u32,
    pub(crate) has_standby: bool,
    /// Does a commit wait for the standby?
    pub(crate) is_synchronous: bool,
    pub(crate) data: InitialData,
    /// The user that the servers run as; `None`: this process's own.
    pub(crate) user: Option<OrdinaryUser>,
}

/// The primary.
pub(crate) const PRIMARY: NodeId = NodeId::server(1);
/// Time limit of the question for a node's state, which reads all rows.
const STATE_REPLY: Duration = Duration::from_millis(1_900);
/// Time limit of a question to a node.
const REPLY: Duration = Duration::from_millis(900);

impl System for PostgresSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let folder = self.data.folder(place)?;
        let mut command = Command::new(&self.server);
        command.arg("-D").arg(&folder).current_dir("/");
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", &place.address.ip().to_string());
        set("port", &place.address.port().to_string());
        set("unix_socket_directories", "");
        set("max_connections", &self.connections.to_string());
        set("log_line_prefix", "%m [%p] ");
        set("hba_file", &hba_file(place)?.display().to_string());
        if self.has_standby && place.node == PRIMARY && self.is_synchronous {
            set("synchronous_standby_names", "*");
        }
        if place.node != PRIMARY {
            let address = place.address_of(PRIMARY)?;
            let (host, port) = (address.ip(), address.port());
            let text = format!(
                "host={host} port={port} user=postgres application_name={} connect_timeout=2",
                place.node
            );
            set("primary_conninfo", &text);
            set("wal_retrieve_retry_interval", "200ms");
            set("wal_receiver_timeout", "5s");
        } else if self.has_standby {
            // A standby that was away finds the log that it lacks.
            set("wal_keep_size", "512MB");
            set("wal_sender_timeout", "5s");
        }
        Ok(command)
    }

    fn user(&self) -> Option<&OrdinaryUser> {
        self.user.as_ref()
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let session = PostgresSession::open(place.address, None, REPLY).await?;
            session.number("select 1").await?;
            Ok(())
        })
    }

    /// The tables are there, and the standby streams and has them too.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let open = |place: &NodePlace| PostgresSession::open(place.address, None, REPLY);
            let primary = open(&places[0]).await?;
            primary.plain(&tables::creation()).await?;
            for place in &places[1..] {
                let streaming =
                    "select count(*) from pg_stat_replication where state = 'streaming'";
                if primary.number(streaming).await? == 0 {
                    return Err(format!(
                        "{} does not stream from {} yet",
                        place.node, places[0].node
                    )
                    .into());
                }
                let standby = open(place).await?;
                let accounts = standby.number("select count(*) from accounts").await?;
                if accounts != ACCOUNTS {
                    return Err(
                        format!("{} has {accounts} of {} accounts", place.node, ACCOUNTS).into(),
                    );
                }
            }
            Ok(())
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    fn reports_states(&self) -> bool {
        self.has_standby
    }

    /// All rows of the primary and of its standby, at the end of the log that each has.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let session = PostgresSession::open(place.address, None, STATE_REPLY).await?;
            let rows = session.typed(&tables::state(), &[]).await?;
            let row = rows.first().ok_or("the server returned no state")?;
            Ok(Some(NodeState {
                revision: format!("log position {}", row.try_get::<_, String>(0)?),
                hash: row.try_get(1)?,
                contents: None,
            }))
        })
    }
}

impl SystemMembers for PostgresSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for place in places {
                let Ok(session) = PostgresSession::open(place.address, None, REPLY).await else {
                    continue;
                };
                let question = "select pg_is_in_recovery()::int";
                if let Ok(in_recovery) = session.number(question).await {
                    membership
                        .members
                        .insert(place.node, place.nodes.iter().copied().collect());
                    if in_recovery == 0 {
                        membership.primaries.insert(place.node);
                    }
                }
            }
            if membership.members.is_empty() {
                Err("no node answers".into())
            } else {
                Ok(membership)
            }
        })
    }
}

/// The file that lets clients and standbys in from any address of the test; made at the first start.
fn hba_file(place: &NodePlace) -> Result<PathBuf, ClientError> {
    let path = std::path::absolute(place.folder.join("hba.conf"))?;
    if !path.exists() {
        let text = "host all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n";
        std::fs::write(&path, text)?;
    }
    Ok(path)
}
