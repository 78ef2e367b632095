//! The clients of a test, and the statements of SQLite's own.

use crate::sqlite_session::SqliteSession;
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_sql::{SqlDialect, SqlStore, SqlStoreOptions, opening_accounts};

/// Opens clients.
pub(crate) struct SqliteClients {
    /// The statement that begins a transaction.
    pub(crate) begin: &'static str,
    pub(crate) options: SqlStoreOptions,
}

/// The statements of SQLite. A list is a text of numbers and commas: there is no type for lists.
pub(crate) const DIALECT: SqlDialect = SqlDialect {
    write: "insert into registers values ($1, $2) on conflict (k) do update set v = excluded.v",
    compare_and_set: "update registers set v = $3 where k = $1 and v = $2",
    add_to_counter: "insert into counters values ($1, $2) on conflict (k) do update set v = counters.v + excluded.v",
    append: "insert into lists values ($1, $2) on conflict (k) do update set v = lists.v || ',' || excluded.v",
    debit: "update accounts set balance = balance - $2 where id = $1 and balance >= $2",
    take: "delete from queue where id in (select id from queue order by id limit $1) returning v",
    next_id: "insert into ids default values returning v",
};

/// The statements that create the tables which are missing.
pub(crate) fn creation() -> Vec<String> {
    let mut statements: Vec<String> = [
        "create table if not exists registers (k text primary key, v integer not null)",
        "create table if not exists lists (k text primary key, v text not null)",
        "create table if not exists elements (k text not null, v integer not null)",
        "create index if not exists elements_k on elements (k)",
        "create table if not exists counters (k text primary key, v integer not null)",
        "create table if not exists accounts (id integer primary key, balance integer not null)",
        "create table if not exists queue (id integer primary key autoincrement, v integer not null)",
        "create table if not exists ids (v integer primary key autoincrement)",
    ]
    .map(str::to_owned)
    .into();
    let rows = opening_accounts();
    statements.push(format!("insert or ignore into accounts values {rows}"));
    statements
}

impl Clients for SqliteClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let limit = self.options.patience;
            let session = SqliteSession::open(slot.address, self.begin, limit).await?;
            Ok(SqlStore::client(slot.node, session, self.options))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_sql::TABLES;

    #[test]
    fn all_tables_are_created() {
        let creation = creation().join("\n");
        for table in TABLES {
            assert!(creation.contains(&format!("create table if not exists {table} ")));
        }
    }
}
