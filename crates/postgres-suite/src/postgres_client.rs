//! The clients of a test: which node a client connects to, and the statements of PostgreSQL's own.

use crate::postgres_nodes::PRIMARY;
use crate::postgres_session::PostgresSession;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_sql::{SqlDialect, SqlNode, SqlStore, SqlStoreOptions, SqlWriter};
use seatrial_suite::StoreClient;

/// Opens clients.
pub(crate) struct PostgresClients {
    pub(crate) isolation: &'static str,
    /// Do transactions that only read go to the client's own node?
    pub(crate) reads_anywhere: bool,
    pub(crate) options: SqlStoreOptions,
}

/// The statements of PostgreSQL. A statement that changes rows returns one for each, because the client counts those.
pub(crate) const DIALECT: SqlDialect = SqlDialect {
    write: "insert into registers values ($1, $2) on conflict (k) do update set v = excluded.v",
    compare_and_set: "update registers set v = $3 where k = $1 and v = $2 returning 1",
    add_to_counter: "insert into counters values ($1, $2) on conflict (k) do update set v = counters.v + excluded.v",
    append: "insert into lists values ($1, array[$2]) on conflict (k) do update set v = lists.v || excluded.v",
    debit: "update accounts set balance = balance - $2 where id = $1 and balance >= $2 returning 1",
    take: "delete from queue where id in (select id from queue order by id limit $1 for update) returning v",
    next_id: "select nextval('ids')",
};

impl Clients for PostgresClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let node = if self.reads_anywhere {
                slot.node
            } else {
                PRIMARY
            };
            let own = self.session(slot, node).await?;
            let writer = if node == PRIMARY {
                SqlWriter::Own
            } else {
                let primary = self.session(slot, PRIMARY).await;
                primary.map_or(SqlWriter::Missing, SqlWriter::Other)
            };
            let store = SqlStore::new(own, writer, self.options);
            Ok(StoreClient::boxed(store))
        })
    }
}

impl PostgresClients {
    async fn session(&self, slot: &ClientSlot, node: NodeId) -> Result<SqlNode, ClientError> {
        // A standby has no serializable transactions.
        let isolation = match (node == PRIMARY, self.isolation) {
            (false, "serializable") => "repeatable-read",
            (_, level) => level,
        };
        let (address, limit) = (slot.address_of(node)?, self.options.patience);
        let session = PostgresSession::open(address, Some(isolation), limit).await?;
        let session = Box::new(session);
        Ok(SqlNode { node, session })
    }
}
