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
        name: "mariadb-repeatable-read",
        claim: "MariaDB's repeatable read loses updates and has read skew; innodb_snapshot_isolation makes it snapshot isolation",
        source: "Hermitage; Jepsen, MySQL 8.0.34 (2023-12-19); MariaDB's documentation, innodb_snapshot_isolation",
        servers: &["mariadb"],
        common: "mariadb --isolation repeatable-read --model snapshot-isolation --faults none --time 8",
        hit: FindingTest {
            setting: "innodb_snapshot_isolation off, the default up to 11.6.1",
            words: "--innodb-snapshot-isolation off",
            expected: ExpectedVerdict::AnyOf(&["lost-update", "G-single"]),
        },
        control: FindingTest {
            setting: "innodb_snapshot_isolation on",
            words: "--innodb-snapshot-isolation on",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "mariadb-log-once-a-second",
        claim: "MariaDB loses acknowledged commits in a crash if its log is written once a second, and none if it is at each commit",
        source: "MariaDB's documentation, innodb_flush_log_at_trx_commit",
        servers: &["mariadb"],
        common: "mariadb --workload set --faults kill --interval 2 --time 12",
        hit: FindingTest {
            setting: "innodb_flush_log_at_trx_commit 0",
            words: "--innodb-flush-log-at-trx-commit 0",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "innodb_flush_log_at_trx_commit 1",
            words: "--innodb-flush-log-at-trx-commit 1",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "mariadb-visible-before-durable",
        claim: "MariaDB without a binary log shows commits before they are logged, and a crash then loses what was read; with one it does not",
        source: "MySQL's bugs 74303 and 119759",
        servers: &["mariadb"],
        common: "mariadb --workload set --keys 3 --rate max --concurrency 60 --faults kill --interval 2 --time 25",
        hit: FindingTest {
            setting: "no binary log, the default",
            words: "--binlog off",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "a binary log, synced at each commit",
            words: "--binlog on",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "sqlite-read-uncommitted",
        claim: "connections of SQLite that share a cache may read what is not committed; without the pragma they do not",
        source: "SQLite's documentation, Isolation In SQLite, and Shared-Cache Mode, 2.2.1",
        servers: &[],
        common: "sqlite --cache shared --nodes 1 --model serializable --faults none --time 8",
        hit: FindingTest {
            setting: "pragma read_uncommitted",
            words: "--isolation read-uncommitted",
            expected: ExpectedVerdict::AnyOf(&["G1a", "G1b", "G1c"]),
        },
        control: FindingTest {
            setting: "no pragma",
            words: "--isolation serializable",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "redis-log-once-a-second",
        claim: "Redis loses acknowledged writes when its power is cut if its log is synced once a second, and none if it always is",
        source: "Redis' documentation, Persistence, appendfsync",
        servers: &["redis", "mkfs.xfs", "loop devices"],
        common: "redis --workload set --disk xfs --faults disk:all --fault-schedule one-at-a-time --interval 4 --time 15 --rate 2000",
        hit: FindingTest {
            setting: "appendfsync everysec, the default",
            words: "--fsync everysec",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "appendfsync always",
            words: "--fsync always",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "sqlite-wal-normal",
        claim: "SQLite with a write-ahead log loses acknowledged commits when its power is cut if it syncs as in normal, none in full",
        source: "SQLite's documentation, PRAGMA synchronous, and Write-Ahead Logging, 2.3",
        servers: &["mkfs.xfs", "loop devices"],
        common: "sqlite --nodes 1 --workload set --disk xfs --faults disk:all --fault-schedule one-at-a-time --interval 4 --time 15",
        hit: FindingTest {
            setting: "synchronous normal",
            words: "--pragma-synchronous normal",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "synchronous full",
            words: "--pragma-synchronous full",
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
        name: "etcd-lock-lease",
        claim: "a lock of etcd ends with its lease: two clients hold it if one does not renew it in time",
        source: "Jepsen, etcd 3.4.3 (2020-01-30), Locks; etcd's documentation, etcd versus other key-value stores, on locks",
        servers: &["etcd"],
        common: "etcd --nodes 1 --workload lock --faults none --rate 4 --concurrency 8 --time 15",
        hit: FindingTest {
            setting: "a lease of a second, which no client renews",
            words: "--lease 1",
            expected: ExpectedVerdict::AnyOf(&["double-acquire"]),
        },
        control: FindingTest {
            setting: "a lease that outlives each hold",
            words: "--lease 60",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "etcd-diverging-members",
        claim: "members of etcd 3.5.0 that are killed under load differ for good; those of 3.5.21 do not",
        source: "etcd, v3.5 data inconsistency, a postmortem (2022-04-20); etcd issues 13514, 13766",
        servers: &["etcd-3.5.0", "etcd-3.5.21"],
        common: "etcd --workload set --faults kill --interval 0.4 --concurrency 120 --rate max --unsafe-no-fsync on \
--time 100",
        hit: FindingTest {
            setting: "3.5.0",
            words: "--etcd etcd-3.5.0",
            expected: ExpectedVerdict::AnyOf(&["divergence"]),
        },
        control: FindingTest {
            setting: "3.5.21",
            words: "--etcd etcd-3.5.21",
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
        name: "nats-concurrent-updates",
        claim: "NATS 2.9 acknowledges two updates of one revision if a stream has replicas; with one it does not",
        source: "nats-server issue 4320 (2023-07-18), Serializability of Expected-Last-Subject-Sequence is not guaranteed",
        servers: &["nats-server 2.9.1 or 2.9.10 to 2.9.19"],
        common: "nats --workload cas-register --faults none --time 8",
        hit: FindingTest {
            setting: "three replicas",
            words: "--replicas 3",
            expected: ExpectedVerdict::Only("nonlinearizable"),
        },
        control: FindingTest {
            setting: "one replica",
            words: "--replicas 1",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "nats-lost-acknowledged",
        claim: "NATS JetStream loses acknowledged messages when all servers lose power, unless it syncs before it acknowledges",
        source: "Jepsen, NATS 2.12.1 (2025-12-08); nats-server issue 7564; NATS' documentation, sync_interval",
        servers: &["nats-server-2.12.1", "mkfs.xfs", "loop devices"],
        common: "nats --nats-server nats-server-2.12.1 --nodes 5 --workload set --disk xfs --faults disk:all \
--fault-schedule one-at-a-time --interval 5 --time 30 --rate 200",
        hit: FindingTest {
            setting: "sync_interval as it is, two minutes",
            words: "--sync default",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "sync_interval: always",
            words: "--sync always",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "kafka-acks-one",
        claim: "Kafka loses messages that the leader alone has acknowledged when it is cut off; with acks=all it does not",
        source: "Kafka's documentation, Producer Configs, acks; Jepsen, Kafka 0.8 (2013)",
        servers: &["java", "kafka"],
        common: "kafka --workload set --partitions 1 --session-timeout 2 --faults partition:primaries \
--fault-schedule one-at-a-time --interval 8 --time 70",
        hit: FindingTest {
            setting: "acks=1",
            words: "--acks 1",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "acks=all, two of three in sync",
            words: "--acks all",
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
    PublishedFinding {
        name: "redis-sentinel-pause",
        claim: "Redis with Sentinel loses acknowledged writes when a primary is paused, replaced and continues; without failover it does not",
        source: "Jepsen, Redis (2013-05-18) and Redis redux (2013-12-10); Redis' documentation of replication",
        servers: &["redis"],
        common: "redis-sentinel --workload set --rate 300 --discovery role --timeout 8 --faults pause:primaries \
--fault-schedule one-at-a-time --interval 12 --time 80",
        hit: FindingTest {
            setting: "a failover after two seconds",
            words: "--down-after 2000",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "a failover after a minute, longer than any pause",
            words: "--down-after 60000",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "zookeeper-lost-writes",
        claim: "ZooKeeper 3.8.0 loses acknowledged writes when one leader after another is killed under load; 3.9.4 does not",
        source: "ZooKeeper's issues 4394, 4646, 4685, 4785 (what a follower has not logged when it joins a leader)",
        servers: &["zookeeper-3.8.0", "zookeeper-3.9.4", "java"],
        common: "zookeeper --workload set --rate max --concurrency 30 --faults kill:primaries --interval 1 --time 120",
        hit: FindingTest {
            setting: "3.8.0",
            words: "",
            expected: ExpectedVerdict::AnyOf(&["lost"]),
        },
        control: FindingTest {
            setting: "3.9.4",
            words: "--jars zookeeper-3.9.4",
            expected: ExpectedVerdict::Valid,
        },
    },
    PublishedFinding {
        name: "zookeeper-stale-reads",
        claim: "a read of ZooKeeper is of one server and may be stale; after a transaction it is not",
        source: "ZooKeeper's documentation, Programmer's Guide, Consistency Guarantees",
        servers: &["zookeeper", "java"],
        common: "zookeeper --workload register --model linearizable --faults none --rate max --time 8",
        hit: FindingTest {
            setting: "local reads, as of any client",
            words: "--reads local",
            expected: ExpectedVerdict::Only("nonlinearizable"),
        },
        control: FindingTest {
            setting: "a transaction without a change before each read",
            words: "--reads quorum",
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
            // SQLite is a part of the program.
            let may_need_none = proof.suite() == "sqlite";
            assert!(!proof.servers.is_empty() || may_need_none, "{}", proof.name);
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
