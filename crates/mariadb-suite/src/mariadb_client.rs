//! The clients of a test, and the statements of MariaDB's own.

use crate::mariadb_session::{MariadbIsolation, MariadbSession};
use seatrial_runner::{BoxFuture, Client, ClientError, ClientSlot, Clients};
use seatrial_sql::{SqlDialect, SqlStore, SqlStoreOptions, opening_accounts};

/// Opens clients.
pub(crate) struct MariadbClients {
    pub(crate) isolation: MariadbIsolation,
    pub(crate) options: SqlStoreOptions,
}

/// The statements of MariaDB. A list is a text of numbers and commas: there is no type for lists.
pub(crate) const DIALECT: SqlDialect = SqlDialect {
    write: "insert into registers values ($1, $2) on duplicate key update v = values(v)",
    compare_and_set: "update registers set v = $3 where k = $1 and v = $2",
    add_to_counter: "insert into counters values ($1, $2) on duplicate key update v = v + values(v)",
    append: "insert into lists values ($1, $2) on duplicate key update v = concat(v, ',', values(v))",
    debit: "update accounts set balance = balance - $2 where id = $1 and balance >= $2",
    take: "delete from queue order by id limit $1 returning v",
    next_id: "select nextval(ids)",
};

/// The statements that create the tables which are missing.
pub(crate) fn creation() -> Vec<String> {
    let key = "k varchar(200) character set ascii collate ascii_bin";
    let mut statements = vec![
        format!("create table if not exists registers ({key} primary key, v bigint not null)"),
        format!("create table if not exists lists ({key} primary key, v longtext character set ascii not null)"),
        // Without a key of its own, a row can replace another after a crash (docs/findings/mariadb-row-ids.md).
        format!(
            "create table if not exists elements (id bigint auto_increment primary key, \
               {key} not null, v bigint not null, key (k))"
        ),
        format!("create table if not exists counters ({key} primary key, v bigint not null)"),
        "create table if not exists accounts (id bigint primary key, balance bigint not null)".into(),
        "create table if not exists queue (id bigint auto_increment primary key, v bigint not null)".into(),
        "create sequence if not exists ids".into(),
    ];
    let rows = opening_accounts();
    statements.push(format!("insert ignore into accounts values {rows}"));
    statements
}

impl Clients for MariadbClients {
    fn never_block(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async move {
            let limit = self.options.patience;
            let session = MariadbSession::open(slot.address, Some(self.isolation), limit).await?;
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
        assert!(
            creation.ends_with(
                "(0, 10), (1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 10), (7, 10)"
            )
        );
    }
}
