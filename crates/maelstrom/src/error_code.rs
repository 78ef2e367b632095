//! The error codes of the protocol.

/// Does this code say that the request did not take place, and never will? Maelstrom's table; codes that are not in it, such as
/// those from 1000 on, are indefinite.
pub(crate) fn is_definite(code: i64) -> bool {
    ERROR_CODES
        .iter()
        .any(|row| row.code == code && row.is_definite)
}

/// The name of a code, or `error`.
pub(crate) fn name(code: i64) -> &'static str {
    let mut rows = ERROR_CODES.iter();
    rows.find(|row| row.code == code)
        .map_or("error", |row| row.name)
}

/// No such key.
pub(crate) const KEY_DOES_NOT_EXIST: i64 = 20;
/// A compare-and-set found another value.
pub(crate) const PRECONDITION_FAILED: i64 = 22;
/// A request that the receiver does not understand.
pub(crate) const NOT_SUPPORTED: i64 = 10;
/// A request with missing or wrong fields.
pub(crate) const MALFORMED_REQUEST: i64 = 12;

/// One row of the table.
struct ErrorCode {
    code: i64,
    name: &'static str,
    is_definite: bool,
}

const fn row(code: i64, name: &'static str, is_definite: bool) -> ErrorCode {
    ErrorCode {
        code,
        name,
        is_definite,
    }
}

/// Maelstrom's `doc/protocol.md`, section "Errors".
const ERROR_CODES: [ErrorCode; 11] = [
    row(0, "timeout", false),
    row(1, "node-not-found", true),
    row(NOT_SUPPORTED, "not-supported", true),
    row(11, "temporarily-unavailable", true),
    row(MALFORMED_REQUEST, "malformed-request", true),
    row(13, "crash", false),
    row(14, "abort", true),
    row(KEY_DOES_NOT_EXIST, "key-does-not-exist", true),
    row(21, "key-already-exists", true),
    row(PRECONDITION_FAILED, "precondition-failed", true),
    row(30, "txn-conflict", true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_are_indefinite() {
        assert!(is_definite(22) && is_definite(30) && is_definite(11));
        assert!(!is_definite(0) && !is_definite(13) && !is_definite(1_000) && !is_definite(-1));
        assert_eq!((name(22), name(1_234)), ("precondition-failed", "error"));
    }
}
