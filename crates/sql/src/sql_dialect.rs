//! The tables of the workloads, and the statements in which databases differ.

/// Number of accounts of the workload `bank`, and what each has at first.
pub const ACCOUNTS: i64 = 8;
/// See [`ACCOUNTS`].
pub const OPENING_BALANCE: i64 = 10;

/// The accounts at first, as rows of `(id, balance)`.
pub fn opening_accounts() -> String {
    let rows = (0..ACCOUNTS).map(|id| format!("({id}, {OPENING_BALANCE})"));
    rows.collect::<Vec<_>>().join(", ")
}

/// The names of the tables. All but the last two have a key `k`, a text, and a value `v`; `accounts` has `id` and `balance`,
/// `queue` has `id` and `v`.
pub const TABLES: [&str; 6] = [
    "registers",
    "lists",
    "elements",
    "counters",
    "accounts",
    "queue",
];

/// The statements in which databases differ. Parameters are `$1` (the key), `$2`, `$3`.
#[derive(Clone, Copy, Debug)]
pub struct SqlDialect {
    /// Sets the register `$1` to `$2`.
    pub write: &'static str,
    /// Sets the register `$1` from `$2` to `$3`; affects no row if it has another value.
    pub compare_and_set: &'static str,
    /// Adds `$2` to the counter `$1`.
    pub add_to_counter: &'static str,
    /// Appends `$2` to the list `$1`.
    pub append: &'static str,
    /// Takes `$2` from the account `$1`; affects no row if it has less.
    pub debit: &'static str,
    /// Removes the first elements of the queue, `$1` at most, and returns them.
    pub take: &'static str,
    /// Returns a number that was never returned before.
    pub next_id: &'static str,
}

/// Reads of every dialect.
pub(crate) const READ_SET: &str = "select v from elements where k = $1";
pub(crate) const READ_COUNTER: &str = "select v from counters where k = $1";
pub(crate) const READ_REGISTER: &str = "select v from registers where k = $1";
pub(crate) const READ_LIST: &str = "select v from lists where k = $1";
pub(crate) const READ_ACCOUNTS: &str = "select id, balance from accounts order by id";
/// Writes of every dialect.
pub(crate) const ADD_TO_SET: &str = "insert into elements (k, v) values ($1, $2)";
pub(crate) const CREDIT: &str = "update accounts set balance = balance + $2 where id = $1";
pub(crate) const ENQUEUE: &str = "insert into queue (v) values ($1)";
