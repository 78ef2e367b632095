//! The binary `seatrial`, with the bundled suites.

use seatrial_suite::Suite;
use std::process::ExitCode;

/// The suites of this binary. Those of databases are there by features of the package.
const SUITES: &[&dyn Suite] = &[
    &seatrial_kv_suite::SUITE,
    &seatrial_volume_suite::SUITE,
    &seatrial_maelstrom::SUITE,
    #[cfg(feature = "redis")]
    &seatrial_redis_suite::REDIS,
    #[cfg(feature = "redis")]
    &seatrial_redis_suite::SENTINEL,
    #[cfg(feature = "redis")]
    &seatrial_redis_suite::CLUSTER,
    #[cfg(feature = "postgres")]
    &seatrial_postgres_suite::POSTGRES,
    #[cfg(feature = "postgres")]
    &seatrial_postgres_suite::STANDBY,
    #[cfg(feature = "mariadb")]
    &seatrial_mariadb_suite::MARIADB,
    #[cfg(feature = "nats")]
    &seatrial_nats_suite::NATS,
    #[cfg(feature = "rabbitmq")]
    &seatrial_rabbitmq_suite::RABBITMQ,
    #[cfg(feature = "sqlite")]
    &seatrial_sqlite_suite::SQLITE,
    #[cfg(feature = "etcd")]
    &seatrial_etcd_suite::ETCD,
    #[cfg(feature = "kafka")]
    &seatrial_kafka_suite::KAFKA,
    #[cfg(feature = "zookeeper")]
    &seatrial_zookeeper_suite::ZOOKEEPER,
];

fn main() -> ExitCode {
    seatrial::main(SUITES)
}
