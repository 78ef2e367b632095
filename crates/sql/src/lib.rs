//! Workloads over any database that speaks SQL.
//!
//! A suite of such a database implements [`seatrial_suite::SqlSession`] (one connection: statements, and which of their errors
//! are definite) and names the statements in which its SQL differs ([`SqlDialect`]); [`SqlStore`] carries out all of
//! seatrial's workloads over it.
//!
//! ```text
//!  DataRequest ─► SqlStore ─► SqlSession (postgres-suite, mariadb-suite, sqlite-suite) ─► server
//!                    └─ SqlDialect: upserts, appends, the queue's head
//! ```
//!
//! # What is absent
//!
//! - No server, socket or file: suites have them.
//! - No retry: a transaction that the server aborts is a failed operation.

mod sql_dialect;
mod sql_store;
mod take_error;

pub use sql_dialect::{ACCOUNTS, OPENING_BALANCE, SqlDialect, TABLES, opening_accounts};
pub use sql_store::{
    SqlNode, SqlStore, SqlStoreOptions, SqlWriter, TRANSACTIONS, model_of_transactions,
};
