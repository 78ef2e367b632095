//! One connection to a server: statements, transactions, and which of their errors are definite.

use seatrial_machine::NodeId;
use seatrial_runner::ClientError;
use seatrial_suite::StoreRefusal;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row};

/// A parameter of a statement.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Why a statement has no result.
#[derive(Debug)]
pub(crate) enum NoResult {
    /// The server refused it, or the connection was lost.
    Error(Error),
    /// The connection was lost before the statement was sent.
    Closed,
    /// No answer within the limit.
    Late,
}

impl std::fmt::Display for NoResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoResult::Closed => f.write_str("the connection is closed"),
            NoResult::Late => f.write_str("timed out"),
            NoResult::Error(error) => match error.as_db_error() {
                Some(answer) => write!(f, "{} {}", answer.code().code(), answer.message()),
                None => error.fmt(f),
            },
        }
    }
}

impl std::error::Error for NoResult {}

impl NoResult {
    /// The refusal of what was not to be committed by this statement: the transaction is definitely not committed, because the
    /// server has no request for it.
    pub(crate) fn before_commit(&self) -> StoreRefusal {
        StoreRefusal::failed(self)
    }

    /// The refusal of a commit, or of a statement that is a transaction of its own.
    pub(crate) fn at_commit(&self) -> StoreRefusal {
        let is_definite = match self {
            NoResult::Closed => true,
            NoResult::Late => false,
            NoResult::Error(error) => error.code().is_some_and(is_definite),
        };
        if is_definite {
            return StoreRefusal::failed(self);
        }
        StoreRefusal::unknown(self)
    }

    /// Can the connection be used for another statement?
    pub(crate) fn leaves_usable(&self) -> bool {
        matches!(self, NoResult::Error(error) if error.as_db_error().is_some_and(|answer| answer.severity() == "ERROR"))
    }
}

/// Does this code say that nothing was committed? A server that is shut down or cancels a statement may have committed before.
fn is_definite(code: &SqlState) -> bool {
    let text = code.code();
    // Data, constraints, wrong state (25006: a standby), rollback (not 40003), wrong statement, too many connections, locks.
    let class = text.get(..2).unwrap_or_default();
    *code == SqlState::CANNOT_CONNECT_NOW
        || (class == "40" && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN)
        || matches!(class, "22" | "23" | "25" | "42" | "53" | "55")
}

/// A connection to one node.
pub(crate) struct PostgresSession {
    pub(crate) node: NodeId,
    client: Client,
    limit: Duration,
}

impl PostgresSession {
    /// Connects within the limit, which is also that of each statement. Transactions have this isolation level, or the
    /// server's default.
    pub(crate) async fn open(
        node: NodeId,
        address: SocketAddr,
        isolation: Option<&str>,
        limit: Duration,
    ) -> Result<PostgresSession, ClientError> {
        let mut config = Config::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("postgres")
            .dbname("postgres")
            .connect_timeout(limit);
        if let Some(level) = isolation {
            // In options a blank is written with a backslash.
            let level = level.replace('-', "\\ ");
            config.options(format!("-c default_transaction_isolation={level}"));
        }
        let opened = timeout(limit, config.connect(NoTls)).await;
        let opened = opened.map_err(|_| NoResult::Late)?;
        let (client, connection) = opened.map_err(NoResult::Error)?;
        tokio::spawn(async move {
            // Its error reaches the statement under way.
            let _ = connection.await;
        });
        Ok(PostgresSession {
            node,
            client,
            limit,
        })
    }

    /// Executes one statement.
    pub(crate) async fn run(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, NoResult> {
        if self.client.is_closed() {
            return Err(NoResult::Closed);
        }
        let rows = timeout(self.limit, self.client.query_typed(sql, parameters)).await;
        rows.map_err(|_| NoResult::Late)?.map_err(NoResult::Error)
    }

    /// Executes statements without parameters and results.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), NoResult> {
        if self.client.is_closed() {
            return Err(NoResult::Closed);
        }
        let done = timeout(self.limit, self.client.batch_execute(sql)).await;
        done.map_err(|_| NoResult::Late)?.map_err(NoResult::Error)
    }

    /// The number that a statement returns in one row.
    pub(crate) async fn number(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<i64, ClientError> {
        let rows = self.run(sql, parameters).await?;
        let row = rows.first().ok_or_else(|| format!("no row: {sql}"))?;
        Ok(row.try_get(0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_codes_say_that_nothing_was_committed() {
        for code in ["40001", "40P01", "23505", "25006", "53300", "57P03"] {
            assert!(is_definite(&SqlState::from_code(code)), "{code}");
        }
        // Shut down, cancelled, lost, completion unknown, of the system: it may have been committed.
        for code in [
            "57P01", "57P02", "57014", "08006", "40003", "58030", "XX000",
        ] {
            assert!(!is_definite(&SqlState::from_code(code)), "{code}");
        }
    }

    #[test]
    fn a_late_commit_is_unknown_and_a_late_statement_before_it_is_not() {
        assert!(matches!(
            NoResult::Late.at_commit(),
            StoreRefusal::Unknown(_)
        ));
        assert!(matches!(
            NoResult::Late.before_commit(),
            StoreRefusal::Failed(_)
        ));
        assert!(matches!(
            NoResult::Closed.at_commit(),
            StoreRefusal::Failed(_)
        ));
        assert!(!NoResult::Late.leaves_usable());
    }
}
