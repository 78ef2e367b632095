//! The tables of the workloads.

/// Number of accounts of the workload `bank`, and what each has at first.
pub(crate) const ACCOUNTS: i64 = 8;
/// See [`ACCOUNTS`].
pub(crate) const OPENING_BALANCE: i64 = 10;

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
