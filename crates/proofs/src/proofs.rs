//! The published findings.

use crate::published_finding::{ExpectedVerdict, FindingTest, PublishedFinding};

/// All published findings, those that take longest last.
pub const PROOFS: &[PublishedFinding] = &[
    PublishedFinding {
        name: "postgres-write-skew",
        claim: "PostgreSQL's repeatable read is snapshot isolation: it permits write skew, and serializable does not",
        source: "Jepsen, PostgreSQL 12.3 (2020-06-12); Hermitage; PostgreSQL's documentation, 13.2.2",
        servers: &["postgres"],
        common: "postgres --model serializable --faults none --time 8",
        hit: FindingTest {
            setting: "repeatable read",
            words: "--isolation repeatable-read",
            expected: ExpectedVerdict::Only("G2-item"),
        },
        control: FindingTest {
            setting: "serializable",
            words: "--isolation serializable",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "postgres-lost-update",
        claim: "PostgreSQL's default, read committed, loses updates; repeatable read does not",
        source: "Hermitage; PostgreSQL's documentation, 13.2.1",
        servers: &["postgres"],
        common: "postgres --model snapshot-isolation --faults none --time 8",
        hit: FindingTest {
            setting: "read committed",
            words: "--isolation read-committed",
            expected: ExpectedVerdict::AnyOf(&["lost-update", "G-single"]),
        },
        control: FindingTest {
            setting: "repeatable read",
            words: "--isolation repeatable-read",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "etcd-serializable-reads",
        claim: "a serializable read of etcd is of one member and may be stale; the default read is linearizable",
        source: "etcd's documentation, KV API guarantees; Jepsen, etcd 3.4.3 (2020-01-30)",
        servers: &["etcd"],
        common: "etcd --workload register --faults none --rate max --time 8",
        hit: FindingTest {
            setting: "serializable reads",
            words: "--reads serializable",
            expected: ExpectedVerdict::Only("nonlinearizable"),
        },
        control: FindingTest {
            setting: "linearizable reads",
            words: "--reads linearizable",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "postgres-long-fork",
        claim: "a PostgreSQL primary and its standby show two writes in opposite orders; one server does not",
        source: "Jepsen, Amazon RDS for PostgreSQL 17.4 (2025-04-29)",
        servers: &["postgres"],
        common: "postgres-standby --workload long-fork --isolation repeatable-read --transactions short --faults none \
--rate max --concurrency 12 --time 20",
        hit: FindingTest {
            setting: "reads of primary and standby",
            words: "",
            expected: ExpectedVerdict::Only("long-fork"),
        },
        control: FindingTest {
            setting: "reads of the primary",
            words: "--reads primary",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "redis-sentinel-partition",
        claim: "Redis with Sentinel loses acknowledged writes when its primary is cut off; without a cut it does not",
        source: "Jepsen, Redis (2013-05-18) and Redis redux (2013-12-10); Redis' documentation of replication",
        servers: &["redis"],
        common: "redis-sentinel --workload set --rate 300",
        hit: FindingTest {
            setting: "partitions of the primary",
            words: "--faults partition:primaries --fault-schedule one-at-a-time --interval 12 --time 80",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "no fault",
            words: "--faults none --time 20",
            expected: ExpectedVerdict::Valid,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installed::InstalledServer;

    /// Each finding has a name of its own, servers that can be looked for, a suite, and a control that differs from the hit.
    #[test]
    fn the_table_is_sound() {
        for (number, proof) in PROOFS.iter().enumerate() {
            let others = &PROOFS[..number];
            assert!(
                others.iter().all(|it| it.name != proof.name),
                "{}",
                proof.name
            );
            assert!(!proof.servers.is_empty(), "{}", proof.name);
            for name in proof.servers {
                assert!(!InstalledServer::named(name).remedy.is_empty());
            }
            assert!(!proof.suite().starts_with('-'), "{}", proof.name);
            assert_ne!(proof.hit.words, proof.control.words, "{}", proof.name);
            assert_ne!(proof.hit.setting, proof.control.setting);
            assert_ne!(proof.hit.expected, ExpectedVerdict::Valid);
            assert_eq!(proof.control.expected, ExpectedVerdict::Valid);
        }
    }
}
