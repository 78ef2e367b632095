//! The trace of a world's events: a hash, and text if enabled.

use crate::event_queue::WorldEvent;
use seatrial_machine::{NodeId, Time};

/// Hashes every event; keeps a line per event if enabled.
#[derive(Debug, Default)]
pub(crate) struct EventTrace {
    state: u64,
    lines: Option<Vec<String>>,
}

/// Odd, without pattern (the golden ratio in 64 bits).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maximum of lines kept.
const LINES_MAX: usize = 1_000_000;

fn number(node: NodeId) -> u64 {
    u64::from(node.number()) | u64::from(node.is_client()) << 32
}

impl EventTrace {
    pub(crate) fn keep(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    pub(crate) const fn fingerprint(&self) -> u64 {
        self.state
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        self.mix(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last));
    }

    /// An event that reaches a machine.
    pub(crate) fn event<R>(&mut self, now: Time, node: NodeId, event: &WorldEvent<R>) {
        self.mix(now.nanoseconds());
        let (kind, detail) = match event {
            WorldEvent::Deliver { from, .. } => (1, number(*from)),
            WorldEvent::Wake { .. } => (2, 0),
            WorldEvent::Synced { .. } => (3, 0),
            WorldEvent::File { ticket, .. } => (7, ticket.0),
            WorldEvent::Job { number, .. } => (8, *number),
            WorldEvent::Computed { ticket, .. } => (4, ticket.0),
            WorldEvent::Request { ticket, .. } => (5, ticket.0),
            WorldEvent::Closed { peer, .. } => (6, number(*peer)),
        };
        self.mix(number(node) | kind << 40);
        self.mix(detail);
        if let WorldEvent::Deliver { bytes, .. } = event {
            self.mix_bytes(bytes);
        }
        if self.lines.is_some() {
            let detail = match event {
                WorldEvent::Deliver { from, bytes, .. } => {
                    format!(" from {from}, {} bytes", bytes.len())
                }
                WorldEvent::Computed { ticket, .. }
                | WorldEvent::File { ticket, .. }
                | WorldEvent::Request { ticket, .. } => format!(" {}", ticket.0),
                WorldEvent::Job { number, .. } => format!(" {number}"),
                WorldEvent::Closed { peer, .. } => format!(" connection to {peer}"),
                WorldEvent::Synced { log, .. } => format!(" {log}"),
                WorldEvent::Wake { .. } => String::new(),
            };
            self.line(now, &format!("{node} {}{detail}", event.name()));
        }
    }

    /// A fault that was applied to the world.
    pub(crate) fn note(&mut self, now: Time, text: impl FnOnce() -> String) {
        let text = text();
        self.mix(now.nanoseconds());
        self.mix_bytes(text.as_bytes());
        self.line(now, &text);
    }

    fn line(&mut self, now: Time, text: &str) {
        if let Some(lines) = &mut self.lines
            && lines.len() < LINES_MAX
        {
            lines.push(format!("{:>16.9} {text}", now.seconds()));
            if lines.len() == LINES_MAX {
                lines.push("(the trace is full: later events are not shown)".into());
            }
        }
    }
}
