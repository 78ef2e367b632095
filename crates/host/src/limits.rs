//! The bounds of a server.

use std::time::Duration;

/// What the connections of a server may cost it. Bytes are counted where they are held: half messages by what has arrived
/// of them, whatever length their prefix claims, and what waits to be sent until the system has taken it. At a bound the
/// server first reads more slowly; then it closes the connection that has done nothing for longest, and says so.
///
/// The sum of `stranger_bytes_max`, `receive_bytes_max`, `send_bytes_max` and one longest message is what all clients
/// together can make the connections hold. What the machine holds is bounded by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// Connections. One more is refused, unless a connection without a session can make room.
    pub connections_max: usize,
    /// Connections without a session; the oldest makes room for one more.
    pub strangers_max: usize,
    /// Longest message of a connection without a session.
    pub stranger_length_max: usize,
    /// Bytes that connections without a session have sent and that are not processed yet.
    pub stranger_bytes_max: usize,
    /// A connection without a session is closed after this long.
    pub stranger_patience: Duration,
    /// Bytes that all other connections have sent and that are not processed yet. One message of any length may pass it.
    pub receive_bytes_max: usize,
    /// A connection of whose half message nothing has come for this long is closed.
    pub receive_patience: Duration,
    /// A half message may take `receive_patience` and the time that its length takes at this rate, in bytes per second.
    pub receive_rate_min: usize,
    /// Bytes that wait to be sent to all connections. The connection that has not read for longest is closed.
    pub send_bytes_max: usize,
    /// Bytes that wait to be sent to one connection, one message of any length aside; with more it is closed.
    pub connection_send_bytes_max: usize,
    /// With more than this waiting to be sent to a connection, nothing more is read from it.
    pub connection_send_bytes_pause: usize,
    /// A connection that reads nothing of what waits for it for this long is closed.
    pub send_patience: Duration,
}

impl Default for HostLimits {
    fn default() -> HostLimits {
        HostLimits {
            connections_max: 4_096,
            strangers_max: 1_024,
            stranger_length_max: 64 << 10,
            stranger_bytes_max: 8 << 20,
            stranger_patience: Duration::from_secs(10),
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

impl HostLimits {
    /// The usual bounds, with those of bytes in proportion to `memory` bytes, of which connections hold about half.
    pub fn within(memory: usize) -> HostLimits {
        HostLimits {
            stranger_bytes_max: memory / 32,
            receive_bytes_max: memory / 8,
            send_bytes_max: memory / 4,
            connection_send_bytes_max: memory / 8,
            connection_send_bytes_pause: memory / 32 * 3,
            ..HostLimits::default()
        }
    }

    /// The same for a process that may have `files_max` files open at a time: connections never take the files that the
    /// machine needs.
    pub(crate) fn within_files(self, files_max: usize) -> HostLimits {
        let most = files_max
            .saturating_sub(OTHER_FILES)
            .max(files_max / 2)
            .max(1);
        let connections_max = self.connections_max.min(most);
        HostLimits {
            connections_max,
            strangers_max: self.strangers_max.min(connections_max.div_ceil(2)),
            ..self
        }
    }
}

/// Files that this process may have open, after asking the system for as many as it allows.
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
        assert_eq!((few.connections_max, few.strangers_max), (512, 256));
        let fewest = limits.within_files(1);
        assert_eq!((fewest.connections_max, fewest.strangers_max), (1, 1));
        assert!(files_max() > 8);
    }
}
