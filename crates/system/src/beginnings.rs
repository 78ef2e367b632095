//! Files to begin with: `seatrial init`.

use crate::helpers::HELPERS;

/// A file to begin with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Descriptions of systems, and the client helpers.
pub fn beginnings() -> Vec<Beginning> {
    let systems = [
        Beginning {
            name: "redis",
            about: "one Redis, with a client in Python",
            text: include_str!("../examples/redis.toml"),
        },
        Beginning {
            name: "postgres",
            about: "one PostgreSQL, with a client in Python",
            text: include_str!("../examples/postgres.toml"),
        },
        Beginning {
            name: "nats",
            about: "three NATS servers with JetStream, with a client in Python",
            text: include_str!("../examples/nats.toml"),
        },
        Beginning {
            name: "kafka",
            about: "three Kafka brokers, with a client in Python (kafka-python)",
            text: include_str!("../examples/kafka.toml"),
        },
        Beginning {
            name: "blank",
            about: "a server of your own: every key, with what to change",
            text: include_str!("../examples/blank.toml"),
        },
    ];
    systems.into_iter().chain(HELPERS).collect()
}
