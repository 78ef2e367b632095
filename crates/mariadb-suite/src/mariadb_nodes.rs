//! The server: its folder before the first start, its command line, and when it is ready.

use crate::mariadb_client::creation;
use crate::mariadb_session::{DATABASE, MariadbSession, USER};
use seatrial_runner::{BoxFuture, ClientError, NodePlace, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The server of a test.
pub(crate) struct MariadbSystem {
    /// The program.
    pub(crate) server: PathBuf,
    /// The program that makes a data folder.
    pub(crate) initializer: PathBuf,
    /// Connections that a server accepts.
    pub(crate) connections: u32,
    /// `innodb_flush_log_at_trx_commit`.
    pub(crate) flush: &'static str,
    /// Is there a binary log? A commit is visible once it is in that log and the log is synced; without one, before anything is
    /// written (bugs.mysql.com/74303).
    pub(crate) has_binlog: bool,
}

/// Time limit of a question to the node.
const REPLY: Duration = Duration::from_millis(900);
/// The folder of the data inside the node's folder.
const FOLDER: &str = "data";
/// The log of InnoDB: small, because each run folder has one.
const LOG_SIZE: &str = "--innodb-log-file-size=32M";

impl System for MariadbSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let node = std::path::absolute(&place.folder)?;
        let folder = node.join(FOLDER);
        if !folder.exists() {
            self.initialize(&folder)?;
        }
        let first_statements = node.join("users.sql");
        if !first_statements.exists() {
            fs::write(&first_statements, users())?;
        }
        let mut command = program(&self.server, &folder);
        let mut set = |name: &str, value: &str| {
            command.arg(format!("--{name}={value}"));
        };
        set("bind-address", &place.address.ip().to_string());
        set("port", &place.address.port().to_string());
        // None: its path has a limit of 107 bytes, and clients use the network.
        set("socket", "");
        set("pid-file", &node.join("mariadbd.pid").display().to_string());
        set("init-file", &first_statements.display().to_string());
        set("max-connections", &self.connections.to_string());
        set("innodb-flush-log-at-trx-commit", self.flush);
        // A client that gave up is noticed only when its statement ends, and holds its locks until then.
        set("innodb-lock-wait-timeout", "1");
        set("innodb-buffer-pool-size", "64M");
        set("default-storage-engine", "InnoDB");
        if self.has_binlog {
            set("log-bin", &node.join("binlog").display().to_string());
            set("sync-binlog", "1");
        } else {
            command.arg("--skip-log-bin");
        }
        command.args([LOG_SIZE, "--skip-name-resolve"]);
        command.current_dir("/");
        Ok(command)
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let mut session = MariadbSession::open(place.address, None, REPLY).await?;
            session.statement("select 1", &[]).await?;
            Ok(())
        })
    }

    /// The tables are there.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let limit = Duration::from_secs(5);
            let mut session = MariadbSession::open(places[0].address, None, limit).await?;
            for statement in creation() {
                session.statement(&statement, &[]).await?;
            }
            Ok(())
        })
    }
}

impl MariadbSystem {
    fn initialize(&self, folder: &Path) -> Result<(), ClientError> {
        let mut command = program(&self.initializer, folder);
        command.args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            LOG_SIZE,
            // No loss of power is survived while it is made, which takes half the time then.
            "--innodb-flush-method=nosync",
            "--debug-no-sync",
        ]);
        let output = command.stdin(Stdio::null()).current_dir("/").output();
        let output = output.map_err(|error| format!("{}: {error}", self.initializer.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Err(format!("mariadb-install-db failed ({}): {said}", output.status).into())
    }
}

/// A command with what both programs have in common. MariaDB refuses root unless it is named.
fn program(path: &Path, folder: &Path) -> Command {
    let mut command = Command::new(path);
    // Must be first.
    command.arg("--no-defaults");
    command.arg(format!("--datadir={}", folder.display()));
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    command
}

/// The statements that the server executes at each start, before it accepts connections.
fn users() -> String {
    format!(
        "create database if not exists {DATABASE};\n\
         create user if not exists '{USER}'@'%';\n\
         grant all on *.* to '{USER}'@'%';\n"
    )
}
