//! What happened in a world, as a number and as text.

use crate::queue::Event;
use seatrial_machine::{NodeId, Time};

/// Mixes every event into one number; keeps them as lines when asked.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    state: u64,
    lines: Option<Vec<String>>,
}

/// Odd, without pattern (the golden ratio in 64 bits).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Lines that are kept at most.
const LINES_MAX: usize = 1_000_000;

fn number(node: NodeId) -> u64 {
    u64::from(node.number()) | u64::from(node.is_client()) << 32
}

impl Trace {
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
    pub(crate) fn event<R>(&mut self, now: Time, node: NodeId, event: &Event<R>) {
        self.mix(now.nanoseconds());
        let (kind, detail) = match event {
            Event::Deliver { from, .. } => (1, number(*from)),
            Event::Wake { .. } => (2, 0),
            Event::Synced { .. } => (3, 0),
            Event::File { ticket, .. } => (7, ticket.0),
            Event::Job { number, .. } => (8, *number),
            Event::Computed { ticket, .. } => (4, ticket.0),
            Event::Request { ticket, .. } => (5, ticket.0),
            Event::Closed { peer, .. } => (6, number(*peer)),
        };
        self.mix(number(node) | kind << 40);
        self.mix(detail);
        if let Event::Deliver { bytes, .. } = event {
            self.mix_bytes(bytes);
        }
        if self.lines.is_some() {
            let detail = match event {
                Event::Deliver { from, bytes, .. } => {
                    format!(" from {from}, {} bytes", bytes.len())
                }
                Event::Computed { ticket, .. }
                | Event::File { ticket, .. }
                | Event::Request { ticket, .. } => format!(" {}", ticket.0),
                Event::Job { number, .. } => format!(" {number}"),
                Event::Closed { peer, .. } => format!(" connection to {peer}"),
                Event::Synced { log, .. } => format!(" {log}"),
                Event::Wake { .. } => String::new(),
            };
            self.line(now, &format!("{node} {}{detail}", event.name()));
        }
    }

    /// Something that is done to the world.
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
                lines.push("(the trace ends here, the world goes on)".into());
            }
        }
    }
}
