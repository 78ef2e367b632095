//! The lines between a client and a node: one of JSON for each statement, one for each result.

use seatrial_suite::{SqlFailure, SqlRows, SqlValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// A statement.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SqliteRequest {
    /// Its text.
    pub(crate) sql: String,
    /// Its parameters: null, whole numbers, text.
    pub(crate) parameters: Vec<Json>,
}

/// What it returned, or why not.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SqliteReply {
    /// Its rows, and the number of rows that it returned or changed.
    Rows(Vec<Vec<Json>>, u64),
    /// SQLite's words, and whether they say for certain that the statement had no effect.
    Error(String, bool),
}

impl SqliteRequest {
    /// The statement with these parameters.
    pub(crate) fn new(sql: &str, parameters: &[SqlValue]) -> SqliteRequest {
        SqliteRequest {
            sql: sql.to_owned(),
            parameters: parameters.iter().map(as_json).collect(),
        }
    }
}

impl SqliteReply {
    /// The result as a session returns it. An error leaves the connection usable: SQLite has replied.
    pub(crate) fn result(self) -> Result<SqlRows, SqlFailure> {
        match self {
            SqliteReply::Rows(rows, affected) => Ok(SqlRows {
                rows: rows
                    .into_iter()
                    .map(|row| row.into_iter().map(of_json).collect())
                    .collect(),
                affected,
            }),
            SqliteReply::Error(reason, is_definite) => Err(SqlFailure {
                reason,
                is_definite,
                leaves_usable: is_definite,
            }),
        }
    }
}

/// A value as JSON.
pub(crate) fn as_json(value: &SqlValue) -> Json {
    match value {
        SqlValue::Null => Json::Null,
        SqlValue::Integer(number) => json!(number),
        SqlValue::Text(text) => json!(text),
        SqlValue::Integers(_) => unreachable!("SQLite has no type for lists"),
    }
}

/// A value from JSON: what is no whole number, null or text is taken as its text.
pub(crate) fn of_json(value: Json) -> SqlValue {
    match value {
        Json::Null => SqlValue::Null,
        Json::String(text) => SqlValue::Text(text),
        other => match other.as_i64() {
            Some(number) => SqlValue::Integer(number),
            None => SqlValue::Text(other.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_results_survive_the_way() {
        let values = [
            SqlValue::Null,
            SqlValue::Integer(i64::MIN),
            SqlValue::Text("1,2\n\"".into()),
        ];
        for value in values {
            assert_eq!(of_json(as_json(&value)), value);
        }
        let reply = SqliteReply::Rows(vec![vec![json!(1), Json::Null]], 1);
        let text = serde_json::to_string(&reply).unwrap();
        assert!(!text.contains('\n'));
        let rows = serde_json::from_str::<SqliteReply>(&text).unwrap().result();
        let expected = vec![vec![SqlValue::Integer(1), SqlValue::Null]];
        assert_eq!(rows.unwrap().rows, expected);
        let error = SqliteReply::Error("disk I/O error".into(), false).result();
        assert!(!error.unwrap_err().leaves_usable);
    }
}
