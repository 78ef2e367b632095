//! One connection to a server: statements, transactions, and which of their errors are definite.

use seatrial_runner::{BoxFuture, ClientError};
use seatrial_suite::{SqlFailure, SqlRows, SqlSession, SqlValue};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    Client, Column, Config, Error, NoTls, Row, SimpleQueryMessage, SimpleQueryRow,
};

/// Why a statement has no result: what the server, or the connection, says.
fn failure(error: &Error) -> SqlFailure {
    let Some(answer) = error.as_db_error() else {
        return SqlFailure::lost(error);
    };
    SqlFailure {
        reason: format!("{} {}", answer.code().code(), answer.message()),
        is_definite: is_definite(answer.code()),
        leaves_usable: answer.severity() == "ERROR",
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
    client: Client,
    limit: Duration,
}

impl PostgresSession {
    /// Connects within the limit, which is also that of each statement. Transactions have this isolation level, or the
    /// server's default.
    pub(crate) async fn open(
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
        let opened = opened.map_err(|_| SqlFailure::late())?;
        let (client, connection) = opened.map_err(|error| failure(&error))?;
        tokio::spawn(async move {
            // Its error reaches the statement under way.
            let _ = connection.await;
        });
        Ok(PostgresSession { client, limit })
    }

    /// Executes one statement with parameters.
    pub(crate) async fn typed(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, SqlFailure> {
        if self.client.is_closed() {
            return Err(SqlFailure::closed());
        }
        let rows = timeout(self.limit, self.client.query_typed(sql, parameters)).await;
        let rows = rows.map_err(|_| SqlFailure::late())?;
        rows.map_err(|error| failure(&error))
    }

    /// Executes statements without parameters; returns the rows of the last one, as text.
    pub(crate) async fn plain(&self, sql: &str) -> Result<SqlRows, SqlFailure> {
        if self.client.is_closed() {
            return Err(SqlFailure::closed());
        }
        let found = timeout(self.limit, self.client.simple_query(sql)).await;
        let found = found.map_err(|_| SqlFailure::late())?;
        let mut rows = SqlRows::default();
        for message in found.map_err(|error| failure(&error))? {
            match message {
                SimpleQueryMessage::RowDescription(_) => rows = SqlRows::default(),
                SimpleQueryMessage::Row(row) => rows.rows.push(text_row(&row)),
                SimpleQueryMessage::CommandComplete(count) => rows.affected = count,
                _ => {}
            }
        }
        Ok(rows)
    }

    /// The number that a statement returns in one row.
    pub(crate) async fn number(&self, sql: &str) -> Result<i64, ClientError> {
        let found = self.plain(sql).await?;
        Ok(found.number().ok_or_else(|| format!("no number: {sql}"))?)
    }
}

impl SqlSession for PostgresSession {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        parameters: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<SqlRows, SqlFailure>> {
        Box::pin(async move {
            if parameters.is_empty() {
                return self.plain(sql).await;
            }
            let typed: Vec<_> = parameters.iter().map(parameter).collect();
            let rows = self.typed(sql, &typed).await?;
            let rows = rows.iter().map(values).collect::<Result<Vec<_>, _>>()?;
            Ok(SqlRows {
                affected: rows.len() as u64,
                rows,
            })
        })
    }

    fn waiting_question(&mut self) -> BoxFuture<'_, Result<String, SqlFailure>> {
        Box::pin(async {
            let found = self.plain("select pg_backend_pid()").await?;
            let process = found
                .number()
                .ok_or_else(|| SqlFailure::lost("no process id"))?;
            Ok(format!(
                "select count(*) from pg_locks where not granted and pid = {process}"
            ))
        })
    }
}

fn parameter(value: &SqlValue) -> (&(dyn ToSql + Sync), Type) {
    match value {
        SqlValue::Null => (&None::<i64>, Type::INT8),
        SqlValue::Integer(number) => (number, Type::INT8),
        SqlValue::Text(text) => (text, Type::TEXT),
        SqlValue::Integers(numbers) => (numbers, Type::INT8_ARRAY),
    }
}

/// The values of a row: those of the types of our tables.
fn values(row: &Row) -> Result<Vec<SqlValue>, SqlFailure> {
    let columns = row.columns().iter().enumerate();
    columns.map(|(at, column)| value(row, at, column)).collect()
}

fn value(row: &Row, at: usize, column: &Column) -> Result<SqlValue, SqlFailure> {
    let found = match *column.type_() {
        Type::INT8 => row
            .try_get(at)
            .map(|it: Option<i64>| it.map(SqlValue::Integer)),
        Type::INT4 => row
            .try_get(at)
            .map(|it: Option<i32>| it.map(|it| SqlValue::Integer(it.into()))),
        Type::INT8_ARRAY => row
            .try_get(at)
            .map(|it: Option<Vec<i64>>| it.map(SqlValue::Integers)),
        _ => row
            .try_get(at)
            .map(|it: Option<String>| it.map(SqlValue::Text)),
    };
    let found = found.map_err(|error| SqlFailure {
        leaves_usable: true,
        ..SqlFailure::lost(error)
    })?;
    Ok(found.unwrap_or(SqlValue::Null))
}

fn text_row(row: &SimpleQueryRow) -> Vec<SqlValue> {
    let values = (0..row.len()).map(|at| row.get(at));
    values
        .map(|it| it.map_or(SqlValue::Null, |text| SqlValue::Text(text.to_owned())))
        .collect()
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
}
