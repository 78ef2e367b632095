//! One connection to the server: statements, and which of their errors are definite.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, Params, QueryResult, Row, ServerError, Value};
use seatrial_runner::{BoxFuture, ClientError};
use seatrial_suite::{SqlFailure, SqlRows, SqlSession, SqlValue};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// The user of all connections, and its database.
pub(crate) const USER: &str = "seatrial";
/// See [`USER`].
pub(crate) const DATABASE: &str = "seatrial";

/// The isolation of a session's transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MariadbIsolation {
    /// The level, with hyphens.
    pub(crate) level: &'static str,
    /// Is a write of a row that changed after the snapshot refused?
    pub(crate) is_snapshot: bool,
}

/// A connection to one node.
pub(crate) struct MariadbSession {
    connection: Conn,
    limit: Duration,
    /// Was the last reply late, or did the connection break?
    is_lost: bool,
}

/// Error 1193: a server before 10.6.18 and 10.11.8 has no such setting, and is as if it were off.
const UNKNOWN_VARIABLE: &str = "1193 ";

impl MariadbSession {
    /// Connects within the limit, which is also that of each statement. Transactions have this isolation, or the server's
    /// default.
    pub(crate) async fn open(
        address: SocketAddr,
        isolation: Option<MariadbIsolation>,
        limit: Duration,
    ) -> Result<MariadbSession, ClientError> {
        let options = OptsBuilder::default()
            .ip_or_hostname(address.ip().to_string())
            .tcp_port(address.port())
            .user(Some(USER))
            .db_name(Some(DATABASE))
            // It would move to the server's socket, past all faults of links.
            .prefer_socket(false)
            // Both would be asked for at each connection.
            .max_allowed_packet(Some(64 << 20))
            .wait_timeout(Some(28_800))
            // An update counts rows that it finds, not only those that it changes.
            .client_found_rows(true);
        let opened = timeout(limit, Conn::new(options)).await;
        let connection = opened.map_err(|_| SqlFailure::late())?;
        let mut session = MariadbSession {
            connection: connection.map_err(|error| failure(&error))?,
            limit,
            is_lost: false,
        };
        if let Some(isolation) = isolation {
            session.isolate(isolation).await?;
        }
        Ok(session)
    }

    async fn isolate(&mut self, isolation: MariadbIsolation) -> Result<(), SqlFailure> {
        let level = isolation.level.replace('-', " ");
        let sql = format!("set session transaction isolation level {level}");
        self.statement(&sql, &[]).await?;
        let value = if isolation.is_snapshot { "on" } else { "off" };
        let sql = format!("set session innodb_snapshot_isolation = {value}");
        match self.statement(&sql, &[]).await {
            Err(error) if !isolation.is_snapshot && error.reason.starts_with(UNKNOWN_VARIABLE) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Executes one statement.
    pub(crate) async fn statement(
        &mut self,
        sql: &str,
        parameters: &[SqlValue],
    ) -> Result<SqlRows, SqlFailure> {
        if self.is_lost {
            return Err(SqlFailure::closed());
        }
        let found = timeout(self.limit, execute(&mut self.connection, sql, parameters)).await;
        let found = match found {
            Ok(found) => found.map_err(|error| failure(&error)),
            Err(_) => Err(SqlFailure::late()),
        };
        self.is_lost = found.as_ref().is_err_and(|error| !error.leaves_usable);
        found
    }
}

impl SqlSession for MariadbSession {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        parameters: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<SqlRows, SqlFailure>> {
        Box::pin(self.statement(sql, parameters))
    }

    fn waiting_question(&mut self) -> BoxFuture<'_, Result<String, SqlFailure>> {
        let id = self.connection.id();
        let question = format!(
            "select (select count(*) from information_schema.innodb_trx \
               where trx_state = 'LOCK WAIT' and trx_mysql_thread_id = {id}) \
             + (select count(*) from information_schema.processlist where state like 'Waiting for % lock' and id = {id})"
        );
        Box::pin(std::future::ready(Ok(question)))
    }
}

/// Without parameters as text, otherwise as a prepared statement, which the connection keeps.
async fn execute(
    connection: &mut Conn,
    sql: &str,
    parameters: &[SqlValue],
) -> Result<SqlRows, Error> {
    if parameters.is_empty() {
        return rows_of(connection.query_iter(sql).await?).await;
    }
    let (sql, values) = positional(sql, parameters);
    rows_of(
        connection
            .exec_iter(sql, Params::Positional(values))
            .await?,
    )
    .await
}

async fn rows_of<P: mysql_async::prelude::Protocol>(
    mut result: QueryResult<'_, 'static, P>,
) -> Result<SqlRows, Error> {
    let changed = result.affected_rows();
    let has_rows = !result.is_empty();
    let rows: Vec<Row> = result.collect().await?;
    let rows: Vec<Vec<SqlValue>> = rows
        .into_iter()
        .map(|row| row.unwrap().into_iter().map(value).collect())
        .collect();
    let affected = if has_rows { rows.len() as u64 } else { changed };
    result.drop_result().await?;
    Ok(SqlRows { rows, affected })
}

fn value(value: Value) -> SqlValue {
    match value {
        Value::NULL => SqlValue::Null,
        Value::Int(number) => SqlValue::Integer(number),
        Value::Bytes(bytes) => SqlValue::Text(String::from_utf8_lossy(&bytes).into_owned()),
        other => SqlValue::Text(other.as_sql(true)),
    }
}

/// The statement with a question mark for each `$1`, `$2`, …, and the values in the order of the marks.
fn positional(sql: &str, parameters: &[SqlValue]) -> (String, Vec<Value>) {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    let mut values = Vec::new();
    for piece in pieces {
        let end = piece.find(|letter: char| !letter.is_ascii_digit());
        let (number, rest) = piece.split_at(end.unwrap_or(piece.len()));
        let number: usize = number.parse().expect("a number follows each $");
        values.push(match &parameters[number - 1] {
            SqlValue::Null => Value::NULL,
            SqlValue::Integer(number) => Value::Int(*number),
            SqlValue::Text(text) => Value::Bytes(text.clone().into_bytes()),
            SqlValue::Integers(_) => unreachable!("MariaDB has no type for lists"),
        });
        text.push('?');
        text.push_str(rest);
    }
    (text, values)
}

/// Why a statement has no result: what the server, or the connection, says.
fn failure(error: &Error) -> SqlFailure {
    match error {
        Error::Server(answer) => SqlFailure {
            reason: format!("{} {} {}", answer.code, answer.state, answer.message),
            is_definite: is_definite(answer),
            leaves_usable: !ends_connection(answer.code),
        },
        other => SqlFailure::lost(other),
    }
}

/// Errors after which the server closes the connection: shutdown, killed, too many connections.
fn ends_connection(code: u16) -> bool {
    matches!(code, 1040 | 1053 | 1927 | 1317)
}

/// Does this error say that nothing was committed? A server that is shut down or interrupts a statement may have committed
/// before.
fn is_definite(answer: &ServerError) -> bool {
    // Data, constraints, wrong state, rollback, wrong statement.
    let class = answer.state.get(..2).unwrap_or_default();
    // Too many connections, a lock that was not free in time, a row that changed after the snapshot, a server that only reads.
    matches!(answer.code, 1040 | 1205 | 1020 | 1290 | 1836)
        || matches!(class, "22" | "23" | "25" | "40" | "42")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_put_in_the_order_of_their_marks() {
        let parameters = [SqlValue::Text("a".into()), SqlValue::Integer(7)];
        let sql = "update t set v = v - $2 where k = $1 and v >= $2";
        let (text, values) = positional(sql, &parameters);
        assert_eq!(text, "update t set v = v - ? where k = ? and v >= ?");
        let expected = [Value::Int(7), Value::Bytes(b"a".to_vec()), Value::Int(7)];
        assert_eq!(values, expected);
        assert_eq!(positional("select 1", &[]).0, "select 1");
    }

    #[test]
    fn only_some_errors_say_that_nothing_was_committed() {
        let says = |code, state: &str| {
            is_definite(&ServerError {
                code,
                message: String::new(),
                state: state.into(),
            })
        };
        // A deadlock, a duplicate, a lock that was not free, a changed row, too many connections.
        for (code, state) in [
            (1213, "40001"),
            (1062, "23000"),
            (1205, "HY000"),
            (1020, "HY000"),
            (1040, "08004"),
        ] {
            assert!(says(code, state), "{code}");
        }
        // Shutdown, interrupted, killed, error during commit.
        for (code, state) in [
            (1053, "08S01"),
            (1317, "70100"),
            (1927, "70100"),
            (1180, "HY000"),
        ] {
            assert!(!says(code, state), "{code}");
        }
    }
}
