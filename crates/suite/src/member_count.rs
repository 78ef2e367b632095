//! The number of nodes of a system that decides by majority.

use crate::SuiteError;

/// Nodes of such a system unless asked otherwise.
const MEMBERS: u32 = 3;

/// What [`Suite::node_count`](crate::Suite::node_count) returns for a system that runs on one of these numbers of nodes, 3 unless
/// asked otherwise.
pub fn member_count(system: &str, allowed: &[u32], asked: Option<u32>) -> Result<u32, SuiteError> {
    let count = asked.unwrap_or(MEMBERS);
    if allowed.contains(&count) {
        return Ok(count);
    }
    let mut numbers: Vec<String> = allowed.iter().map(u32::to_string).collect();
    let last = numbers.pop().unwrap_or_default();
    let numbers = numbers.join(", ");
    Err(format!("{system} runs on {numbers} or {last} nodes, not {count}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_are_errors_with_those_allowed() {
        let count = |asked| member_count("etcd", &[1, 3, 5], asked);
        assert_eq!(count(None).unwrap(), 3);
        assert_eq!(count(Some(5)).unwrap(), 5);
        let error = count(Some(2)).unwrap_err().to_string();
        assert_eq!(error, "etcd runs on 1, 3 or 5 nodes, not 2");
    }
}
