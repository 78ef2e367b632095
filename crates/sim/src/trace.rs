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

    /// An event that reaches a machine.
    pub(crate) fn event<R>(&mut self, now: Time, node: NodeId, event: &Event<R>) {
        self.mix(now.nanoseconds());
        self.mix(u64::from(node.number()) ^ (event.name().len() as u64) << 40);
        if let Event::Deliver { bytes, .. } = event {
            self.mix(bytes.len() as u64);
            for word in bytes.chunks(8).take(8) {
                self.mix(word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
            }
        }
        if self.lines.is_some() {
            let detail = match event {
                Event::Deliver { from, bytes, .. } => format!(" {from} {} bytes", bytes.len()),
                _ => String::new(),
            };
            self.line(now, &format!("{node} {}{detail}", event.name()));
        }
    }

    /// Something that is done to the world.
    pub(crate) fn note(&mut self, now: Time, text: impl FnOnce() -> String) {
        self.mix(now.nanoseconds());
        if self.lines.is_some() {
            self.line(now, &text());
        }
    }

    fn line(&mut self, now: Time, text: &str) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {text}", now.seconds()));
        }
    }
}
