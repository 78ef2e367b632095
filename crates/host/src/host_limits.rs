//! Bounds of a server's connections.

use std::time::Duration;

/// Bounds of the memory and number of a server's connections. Bytes are counted where they are held: incomplete messages by the
/// bytes that have arrived, whatever length their prefix claims; queued messages until the kernel has taken them. At a bound the
/// server first reads more slowly; then it closes the connection that costs the others most, with a notice.
///
/// All clients together can make the connections hold at most the sum of `unadmitted_bytes_max`, `receive_bytes_max`,
/// `send_bytes_max` and one message of maximum length. The machine bounds its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Connections. A further one is refused, unless a connection without a session can be closed for it.
    pub connections_max: usize,
    /// Connections without a session; the oldest is closed for a further one.
    pub unadmitted_max: usize,
    /// Maximum length of a message of a connection without a session.
    pub unadmitted_length_max: usize,
    /// Bytes received from connections without a session and not processed yet.
    pub unadmitted_bytes_max: usize,
    /// A connection without a session is closed after this time.
    pub unadmitted_timeout: Duration,
    /// Bytes received from all other connections and not processed yet. A single message of any length may exceed it.
    pub receive_bytes_max: usize,
    /// A connection whose incomplete message has not grown for this long is closed.
    pub receive_patience: Duration,
    /// Time limit of an incomplete message: `receive_patience` plus its length at this rate, in bytes per second.
    pub receive_rate_min: usize,
    /// Bytes queued for all connections. The connection with most bytes times the time they have waited is closed.
    pub send_bytes_max: usize,
    /// Bytes queued for one connection, except for a single message of any length; with more it is closed.
    pub connection_send_bytes_max: usize,
    /// With more bytes queued for a connection than this, it is not read.
    pub connection_send_bytes_pause: usize,
    /// A connection that does not read its queue for this long is closed.
    pub send_patience: Duration,
}

impl Default for HostLimits {
    fn default() -> HostLimits {
        HostLimits {
            connections_max: 4_096,
            unadmitted_max: 1_024,
            unadmitted_length_max: 64 << 10,
            unadmitted_bytes_max: 8 << 20,
            unadmitted_timeout: Duration::from_secs(10),
            receive_bytes_max: 32 << 20,
            receive_patience: Duration::from_secs(10),
            receive_rate_min: 16 << 10,
            send_bytes_max: 64 << 20,
            connection_send_bytes_max: 32 << 20,
            connection_send_bytes_pause: 24 << 20,
            send_patience: Duration::from_secs(30),
        }
    }
}

/// Files that a server opens besides its connections: segments, logs, the listening socket.
const OTHER_FILES: usize = 512;

/// Maximum number of connections with TLS: each holds up to 80 KiB besides what is counted, so together 80 MiB.
const TLS_CONNECTIONS_MAX: usize = 1_024;

impl HostLimits {
    /// The default bounds, with those of bytes in proportion to `memory` bytes, of which connections hold about half.
    pub fn within(memory: usize) -> HostLimits {
        HostLimits {
            unadmitted_bytes_max: memory / 32,
            receive_bytes_max: memory / 8,
            send_bytes_max: memory / 4,
            connection_send_bytes_max: memory / 8,
            connection_send_bytes_pause: memory / 32 * 3,
            ..HostLimits::default()
        }
    }

    /// The same for connections with TLS: each holds more than is counted, and a handshake costs the machine's thread about a
    /// millisecond, so there are fewer of them.
    pub(crate) fn with_tls(self) -> HostLimits {
        HostLimits {
            connections_max: self.connections_max.min(TLS_CONNECTIONS_MAX),
            unadmitted_max: self.unadmitted_max.min(TLS_CONNECTIONS_MAX / 4),
            ..self
        }
    }

    /// The same for a process with at most `files_max` open files: connections never take the files that the machine needs.
    pub(crate) fn within_files(self, files_max: usize) -> HostLimits {
        let most = files_max
            .saturating_sub(OTHER_FILES)
            .max(files_max / 2)
            .max(1);
        let connections_max = self.connections_max.min(most);
        HostLimits {
            connections_max,
            unadmitted_max: self.unadmitted_max.min(connections_max.div_ceil(2)),
            ..self
        }
    }
}

/// Maximum number of open files of this process, after raising its soft limit to the hard limit.
pub(crate) fn files_max() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_bounds_are_those_of_256_mebibytes() {
        assert_eq!(HostLimits::within(256 << 20), HostLimits::default());
    }

    #[test]
    fn connections_leave_files_to_the_machine() {
        let limits = HostLimits::default();
        assert_eq!(limits.within_files(usize::MAX), limits);
        let few = limits.within_files(1_024);
        assert_eq!((few.connections_max, few.unadmitted_max), (512, 256));
        let fewest = limits.within_files(1);
        assert_eq!((fewest.connections_max, fewest.unadmitted_max), (1, 1));
        assert!(files_max() > 8);
    }
}
