//! Two processes with the number of one node: the one that connected first keeps the number as long as it lives.

use std::time::{Duration, Instant};

/// A server's knowledge of whether the process at the other end of a node's connection lives. A connection of another process
/// with the same number is refused until the earlier process has not answered a probe.
///
/// Without a probe a node that was restarted on another machine, after its first machine lost power, could not be
/// distinguished from a second process: the earlier connection is open in both cases, and may be idle.
#[derive(Debug, Default)]
pub(crate) struct NodeProbe {
    /// When the process was asked for a sign of life.
    asked: Option<Instant>,
    /// Has it sent anything since?
    is_alive: bool,
}

/// What to do with the later connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// Refuse it, and ask the earlier process for a sign of life.
    Ask,
    /// Refuse it: the earlier process still has time to answer.
    Wait,
    /// Accept it: the earlier process is gone.
    Gone,
}

impl NodeProbe {
    /// The process has sent something.
    pub(crate) const fn heard(&mut self) {
        self.is_alive = true;
    }

    /// Another process with the number of this node has connected.
    pub(crate) fn challenge(&mut self, now: Instant, patience: Duration) -> ProbeResult {
        match self.asked {
            Some(asked) if !self.is_alive => {
                if now.saturating_duration_since(asked) >= patience {
                    ProbeResult::Gone
                } else {
                    ProbeResult::Wait
                }
            }
            _ => {
                self.asked = Some(now);
                self.is_alive = false;
                ProbeResult::Ask
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_number_as_long_as_it_answers() {
        let (start, patience) = (Instant::now(), Duration::from_secs(2));
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut probe = NodeProbe::default();
        // What it sent before it was asked is no answer.
        probe.heard();
        assert_eq!(probe.challenge(at(0), patience), ProbeResult::Ask);
        assert_eq!(probe.challenge(at(1), patience), ProbeResult::Wait);
        probe.heard();
        assert_eq!(probe.challenge(at(60), patience), ProbeResult::Ask);
        assert_eq!(probe.challenge(at(61), patience), ProbeResult::Wait);
        assert_eq!(probe.challenge(at(62), patience), ProbeResult::Gone);
    }
}
