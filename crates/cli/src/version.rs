//! What `--version` says.

/// Optional features of this program, and whether they are in this build.
const FEATURES: [(&str, bool); 10] = [
    ("etcd", cfg!(feature = "etcd")),
    ("kafka", cfg!(feature = "kafka")),
    ("mariadb", cfg!(feature = "mariadb")),
    ("nats", cfg!(feature = "nats")),
    ("parquet", cfg!(feature = "parquet")),
    ("postgres", cfg!(feature = "postgres")),
    ("rabbitmq", cfg!(feature = "rabbitmq")),
    ("redis", cfg!(feature = "redis")),
    ("sqlite", cfg!(feature = "sqlite")),
    ("zookeeper", cfg!(feature = "zookeeper")),
];

/// The version, the commit that it was built from, and the optional features that are in.
///
/// `cargo xtask dist` sets the commit. Other builds are of a checkout that may have been changed since its last commit, so they
/// name none.
pub(crate) fn line() -> String {
    let commit = option_env!("SEATRIAL_COMMIT").unwrap_or("a development build");
    let features = FEATURES.iter().filter(|(_, is_in)| *is_in);
    let features: Vec<&str> = features.map(|(name, _)| *name).collect();
    let features = match features[..] {
        [] => "no optional features".to_owned(),
        _ => features.join(", "),
    };
    format!("{} ({commit}; {features})", env!("CARGO_PKG_VERSION"))
}
