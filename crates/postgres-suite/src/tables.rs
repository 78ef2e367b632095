//! The tables of the workloads.

use seatrial_sql::{ACCOUNTS, OPENING_BALANCE, TABLES};

/// A statement that returns one row: the end of the log that the server has written or replayed, and a hash of all rows.
pub(crate) fn state() -> String {
    let hashes = TABLES.map(|table| {
        format!(
            "(select coalesce(md5(string_agg(md5(t::text), '' order by md5(t::text))), '') from {table} t)"
        )
    });
    format!(
        "select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end)::text, \
         md5({})",
        hashes.join(" || ")
    )
}

/// Creates the tables that are missing.
pub(crate) fn creation() -> String {
    format!(
        "create table if not exists registers (k text primary key, v bigint not null);
         create table if not exists lists (k text primary key, v bigint[] not null);
         create table if not exists elements (k text not null, v bigint not null);
         create index if not exists elements_k on elements (k);
         create table if not exists counters (k text primary key, v bigint not null);
         create table if not exists accounts (id bigint primary key, balance bigint not null);
         create table if not exists queue (id bigserial primary key, v bigint not null);
         create sequence if not exists ids;
         insert into accounts select id, {OPENING_BALANCE} from generate_series(0, {ACCOUNTS} - 1) as id
           on conflict do nothing;"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tables_are_part_of_a_state() {
        let creation = creation();
        assert_eq!(creation.matches("create table").count(), TABLES.len());
        for table in TABLES {
            assert!(creation.contains(&format!("create table if not exists {table} ")));
            assert!(state().contains(&format!(" from {table} t)")));
        }
    }
}
