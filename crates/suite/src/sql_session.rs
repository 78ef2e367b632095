//! Databases that speak SQL: a session, its statements, and what a statement returns.

use crate::{OptionValues, StoreRefusal};
use seatrial_runner::{BoxFuture, ClientError};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A value of a column, or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// `NULL`.
    Null,
    /// A whole number.
    Integer(i64),
    /// Text, and what a server sends as text.
    Text(String),
    /// A list of whole numbers, where columns can have one.
    Integers(Vec<i64>),
}

impl SqlValue {
    /// The whole number that this is, or is the text of.
    pub fn integer(&self) -> Option<i64> {
        match self {
            SqlValue::Integer(number) => Some(*number),
            SqlValue::Text(text) => text.parse().ok(),
            SqlValue::Null | SqlValue::Integers(_) => None,
        }
    }

    /// The list of whole numbers that this is, or is the text of: numbers separated by commas.
    pub fn integers(&self) -> Option<Vec<i64>> {
        match self {
            SqlValue::Integers(numbers) => Some(numbers.clone()),
            SqlValue::Integer(number) => Some(vec![*number]),
            SqlValue::Text(text) => text.split(',').map(|word| word.parse().ok()).collect(),
            SqlValue::Null => None,
        }
    }
}

impl fmt::Display for SqlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlValue::Null => f.write_str("null"),
            SqlValue::Integer(number) => number.fmt(f),
            SqlValue::Text(text) => f.write_str(text),
            SqlValue::Integers(numbers) => write!(f, "{numbers:?}"),
        }
    }
}

/// What a statement returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlRows {
    /// Its rows.
    pub rows: Vec<Vec<SqlValue>>,
    /// The number of rows that it returned or changed.
    pub affected: u64,
}

impl SqlRows {
    /// The first column of the first row.
    pub fn value(&self) -> Option<&SqlValue> {
        self.rows.first()?.first()
    }

    /// The whole number there.
    pub fn number(&self) -> Option<i64> {
        self.value()?.integer()
    }
}

/// Why a statement has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlFailure {
    /// The server's words, or what happened to the connection.
    pub reason: String,
    /// Does it say for certain that the transaction which the statement ended, or was, is not committed?
    pub is_definite: bool,
    /// Can the connection be used for another statement?
    pub leaves_usable: bool,
}

impl SqlFailure {
    /// No reply within the limit.
    pub fn late() -> SqlFailure {
        SqlFailure::lost("timed out")
    }

    /// The connection broke while the statement was under way.
    pub fn lost(reason: impl fmt::Display) -> SqlFailure {
        SqlFailure {
            reason: reason.to_string(),
            is_definite: false,
            leaves_usable: false,
        }
    }

    /// The connection was closed before the statement was sent.
    pub fn closed() -> SqlFailure {
        SqlFailure {
            is_definite: true,
            ..SqlFailure::lost("the connection is closed")
        }
    }

    /// The refusal of what was not to be committed by this statement: the transaction is definitely not committed, because the
    /// server has no request for it.
    pub fn before_commit(&self) -> StoreRefusal {
        StoreRefusal::failed(self)
    }

    /// The refusal of a commit, or of a statement that is a transaction of its own.
    pub fn at_commit(&self) -> StoreRefusal {
        if self.is_definite {
            return StoreRefusal::failed(self);
        }
        StoreRefusal::unknown(self)
    }
}

impl fmt::Display for SqlFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for SqlFailure {}

/// One connection to a database, with one transaction at a time.
pub trait SqlSession: Send {
    /// Executes one statement. Its parameters are written `$1`, `$2` and so on, in any order and as often as wanted.
    fn run<'a>(
        &'a mut self,
        sql: &'a str,
        parameters: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<SqlRows, SqlFailure>>;

    /// The statement that begins a transaction at this session's isolation level.
    fn begin(&self) -> &'static str {
        "begin"
    }

    /// A question for another session: it returns a number above 0 while a statement of this one waits for a lock.
    fn waiting_question(&mut self) -> BoxFuture<'_, Result<String, SqlFailure>>;
}

/// An isolation level of a database, as values of its suite's options.
#[derive(Clone, Copy, Debug)]
pub struct SqlLevel {
    /// Its name: that of the level, with the settings that change what it means.
    pub name: &'static str,
    /// Options of the suite, names and values.
    pub options: &'static [(&'static str, &'static str)],
    /// Does it need a server of its own, because an option is one of the server or of its files?
    pub has_own_server: bool,
}

impl SqlLevel {
    /// A level of sessions, with these options.
    pub const fn new(
        name: &'static str,
        options: &'static [(&'static str, &'static str)],
    ) -> SqlLevel {
        SqlLevel {
            name,
            options,
            has_own_server: false,
        }
    }

    /// The same as a level of servers.
    #[must_use]
    pub const fn with_own_server(self) -> SqlLevel {
        SqlLevel {
            has_own_server: true,
            ..self
        }
    }

    /// Its options as a suite takes them.
    pub fn values(&self) -> OptionValues {
        let mut values = OptionValues::default();
        for (name, value) in self.options {
            values.insert(name, (*value).into());
        }
        values
    }
}

/// A suite whose system speaks SQL: `seatrial schedule` opens sessions of its own.
pub trait SqlSystem: Sync {
    /// Its isolation levels, the weakest first.
    fn levels(&self) -> &'static [SqlLevel];

    /// The first line that its server prints about its version.
    fn version(&self) -> Result<String, ClientError>;

    /// Connects to the node at `address`. `limit` is that of connecting and of each statement.
    fn open<'a>(
        &'a self,
        address: SocketAddr,
        options: &'a OptionValues,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn SqlSession>, ClientError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_commit_is_unknown_and_a_late_statement_before_it_is_not() {
        let late = SqlFailure::late();
        assert!(matches!(late.at_commit(), StoreRefusal::Unknown(_)));
        assert!(matches!(late.before_commit(), StoreRefusal::Failed(_)));
        let closed = SqlFailure::closed();
        assert!(matches!(closed.at_commit(), StoreRefusal::Failed(_)));
        assert!(!late.leaves_usable && !closed.leaves_usable);
    }

    #[test]
    fn numbers_and_lists_are_read_from_text() {
        let text = |text: &str| SqlValue::Text(text.into());
        assert_eq!(text("-7").integer(), Some(-7));
        assert_eq!(text("1,20,3").integers(), Some(vec![1, 20, 3]));
        for value in [text("1,,3"), text(""), SqlValue::Null] {
            assert_eq!(value.integers(), None, "{value:?}");
        }
        assert_eq!(SqlValue::Integers(vec![1]).integer(), None);
    }
}
