//! The client's end of a session: statements as lines to a node.

use crate::sqlite_wire::{SqliteReply, SqliteRequest};
use seatrial_runner::{BoxFuture, ClientError};
use seatrial_suite::{SqlFailure, SqlRows, SqlSession, SqlValue};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest line that is read.
const LINE_BYTES: u64 = 64 << 20;

/// A session with one node, which has one connection of SQLite.
pub(crate) struct SqliteSession {
    stream: BufReader<TcpStream>,
    begin: &'static str,
    limit: Duration,
    /// Was the last reply late, or did the connection break?
    is_lost: bool,
}

impl SqliteSession {
    /// Connects within the limit, which is also that of each statement.
    pub(crate) async fn open(
        address: SocketAddr,
        begin: &'static str,
        limit: Duration,
    ) -> Result<SqliteSession, ClientError> {
        let stream = timeout(limit, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| SqlFailure::late())??;
        stream.set_nodelay(true)?;
        let mut session = SqliteSession {
            stream: BufReader::new(stream),
            begin,
            limit,
            is_lost: false,
        };
        // A proxy accepts even if the node is dead: an unusable session fails here, before an operation depends on it.
        session.statement("select 1", &[]).await?;
        Ok(session)
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
        let request = SqliteRequest::new(sql, parameters);
        let found = match timeout(self.limit, exchange(&mut self.stream, &request)).await {
            Ok(found) => found.unwrap_or_else(|error| Err(SqlFailure::lost(error))),
            Err(_) => Err(SqlFailure::late()),
        };
        self.is_lost = found.as_ref().is_err_and(|error| !error.leaves_usable);
        found
    }
}

impl SqlSession for SqliteSession {
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        parameters: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<SqlRows, SqlFailure>> {
        Box::pin(self.statement(sql, parameters))
    }

    fn begin(&self) -> &'static str {
        self.begin
    }

    fn waiting_question(&mut self) -> BoxFuture<'_, Result<String, SqlFailure>> {
        Box::pin(async {
            let found = self.statement("select seatrial_connection()", &[]).await?;
            let number = found.number().unwrap_or_default();
            Ok(format!("select seatrial_waits({number})"))
        })
    }
}

/// Sends a request and reads its reply.
async fn exchange(
    stream: &mut BufReader<TcpStream>,
    request: &SqliteRequest,
) -> std::io::Result<Result<SqlRows, SqlFailure>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    line.clear();
    stream.take(LINE_BYTES).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        let reason = "the node closed the connection";
        return Err(std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            reason,
        ));
    }
    Ok(serde_json::from_slice::<SqliteReply>(&line)?.result())
}
