//! Traffic of links, and the effects of faults on it.

/// Traffic of links, and the effects of faults on it. All counts begin with the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Bytes delivered to the receiver.
    pub passed_bytes: u64,
    /// Bytes that met a cut: a proxy holds them until the link heals, a switch drops them.
    pub held_bytes: u64,
    /// Connections whose opening met a cut; a switch counts every attempt.
    pub held_connections: u64,
    /// Bytes that were sent while the link was disturbed, affected or not.
    pub disturbed_bytes: u64,
    /// Packets that a switch sent twice.
    pub duplicated_packets: u64,
    /// Packets in which a switch flipped a bit.
    pub corrupted_packets: u64,
    /// Connections broken with RST.
    pub reset_connections: u64,
}

impl Meter {
    /// The sum of two meters.
    #[must_use]
    pub const fn plus(self, other: Meter) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes + other.passed_bytes,
            held_bytes: self.held_bytes + other.held_bytes,
            held_connections: self.held_connections + other.held_connections,
            disturbed_bytes: self.disturbed_bytes + other.disturbed_bytes,
            duplicated_packets: self.duplicated_packets + other.duplicated_packets,
            corrupted_packets: self.corrupted_packets + other.corrupted_packets,
            reset_connections: self.reset_connections + other.reset_connections,
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub const fn since(self, earlier: Meter) -> Meter {
        Meter {
            passed_bytes: self.passed_bytes.saturating_sub(earlier.passed_bytes),
            held_bytes: self.held_bytes.saturating_sub(earlier.held_bytes),
            held_connections: self
                .held_connections
                .saturating_sub(earlier.held_connections),
            disturbed_bytes: self.disturbed_bytes.saturating_sub(earlier.disturbed_bytes),
            duplicated_packets: self
                .duplicated_packets
                .saturating_sub(earlier.duplicated_packets),
            corrupted_packets: self
                .corrupted_packets
                .saturating_sub(earlier.corrupted_packets),
            reset_connections: self
                .reset_connections
                .saturating_sub(earlier.reset_connections),
        }
    }
}
