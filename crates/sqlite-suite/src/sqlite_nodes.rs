//! The processes of a test.

use crate::sqlite_client::creation;
use crate::sqlite_connection::SqliteSettings;
use crate::sqlite_session::SqliteSession;
use crate::{CACHE, DATABASE, JOURNAL, SYNCHRONOUS};
use seatrial_runner::{BoxFuture, ClientError, NodePlace, System};
use std::process::Command;
use std::time::Duration;

/// The nodes of a test: processes of this program that open one file, which is in the folder of the first.
pub(crate) struct SqliteSystem {
    pub(crate) settings: SqliteSettings,
}

/// Time limit of a question to a node.
const REPLY: Duration = Duration::from_secs(3);

impl System for SqliteSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "sqlite", "--listen"]);
        command.arg(place.address.to_string());
        command.arg("--data").arg(&place.folder);
        let mut set = |name: &str, value: &str| {
            command.arg(format!("--{name}")).arg(value);
        };
        set(JOURNAL, self.settings.journal);
        set(SYNCHRONOUS, self.settings.synchronous);
        set(
            CACHE,
            if self.settings.is_shared {
                "shared"
            } else {
                "private"
            },
        );
        if self.settings.is_uncommitted {
            set(crate::ISOLATION, "read-uncommitted");
        }
        let first = place.nodes.first().ok_or("a test has a node")?;
        let folder = place.folder.with_file_name(first.to_string());
        command.arg(format!("--{DATABASE}"));
        command.arg(folder.join("sqlite.db"));
        Ok(command)
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            SqliteSession::open(place.address, "begin", REPLY).await?;
            Ok(())
        })
    }

    /// The tables are there.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let mut session = SqliteSession::open(places[0].address, "begin", REPLY).await?;
            for statement in creation() {
                session.statement(&statement, &[]).await?;
            }
            Ok(())
        })
    }
}
