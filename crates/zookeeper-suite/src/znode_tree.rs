//! Where the data of workloads are in the tree of znodes, and a digest of all of them.

use crate::zookeeper_session::{ZooKeeperSession, last_change};
use seatrial_history::Key;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use zookeeper_client::Error;

/// The znodes above all data, which exist before a test begins.
const ROOTS: [&str; 8] = [
    "/register",
    "/set",
    "/counter",
    "/data",
    "/account",
    "/queue",
    "/ids",
    "/lock",
];
/// Number of accounts of the workload `bank`.
pub(crate) const ACCOUNTS: i64 = 8;
/// What each has at first.
const OPENING_BALANCE: i64 = 10;
/// The znode whose changes number unique ids.
pub(crate) const IDS: &str = "/ids";
/// The znode above the elements of the queue.
pub(crate) const QUEUE: &str = "/queue";
/// Most znodes that are read in one request.
const READ_AT_ONCE: usize = 500;

pub(crate) fn register(key: &Key) -> String {
    format!("/register/{key}")
}

pub(crate) fn set(key: &Key) -> String {
    format!("/set/{key}")
}

pub(crate) fn counter(key: &Key) -> String {
    format!("/counter/{key}")
}

/// A key of transactions.
pub(crate) fn data(key: &Key) -> String {
    format!("/data/{key}")
}

pub(crate) fn account(number: i64) -> String {
    format!("/account/{number}")
}

pub(crate) fn lock(key: &Key) -> String {
    format!("/lock/{key}")
}

/// The element and the number of a child of the queue, such as `17-0000000003`.
pub(crate) fn queued(name: &str) -> Result<(i64, i64), String> {
    let parts = name.rsplit_once('-');
    let numbers =
        parts.and_then(|(element, number)| Some((element.parse().ok()?, number.parse().ok()?)));
    numbers.ok_or_else(|| format!("{name:?} is no element of the queue"))
}

/// Creates what all workloads need, if it is missing.
pub(crate) async fn plant(session: &mut ZooKeeperSession) -> Result<(), Error> {
    for root in ROOTS {
        session.create(root, "").await?;
    }
    for number in 0..ACCOUNTS {
        let balance = OPENING_BALANCE.to_string();
        session.create(&account(number), &balance).await?;
    }
    Ok(())
}

/// The data of a server: the last transaction that changed any, and a hash of all. Locks are left out, because they belong to
/// sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeDigest {
    pub(crate) last: i64,
    pub(crate) hash: u64,
}

impl TreeDigest {
    /// Reads all data of the session's server. They must not change meanwhile; two equal results in a row show that they did
    /// not.
    pub(crate) async fn of(session: &mut ZooKeeperSession) -> Result<TreeDigest, Error> {
        let mut found = BTreeMap::new();
        let mut last = 0;
        for root in ROOTS.into_iter().filter(|root| *root != "/lock") {
            let (names, change) = session.children(root).await?;
            last = last.max(change);
            let paths: Vec<String> = names.iter().map(|name| format!("{root}/{name}")).collect();
            for some in paths.chunks(READ_AT_ONCE) {
                for (znode, stat) in session.get_all(some).await?.into_iter().flatten() {
                    last = last.max(last_change(&stat));
                    found.insert(znode.path, znode.text);
                }
            }
            if root == "/set" {
                for path in &paths {
                    let (mut names, change) = session.children(path).await?;
                    last = last.max(change);
                    names.sort_unstable();
                    found.insert(format!("{path}/"), names.join(","));
                }
            }
        }
        let mut hasher = DefaultHasher::new(); // the same keys in each process
        found.hash(&mut hasher);
        Ok(TreeDigest {
            last,
            hash: hasher.finish(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_the_queue_have_numbers() {
        assert_eq!(queued("17-0000000003"), Ok((17, 3)));
        assert_eq!(queued("-17-0000000003"), Ok((-17, 3)));
        for odd in ["", "17", "x-1", "17-"] {
            assert!(queued(odd).is_err(), "{odd}");
        }
    }
}
