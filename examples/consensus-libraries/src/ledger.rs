//! What a run has seen of all members: the decision at each position, the first failure, and the trace.

use crate::command::Decision;
use seatrial_machine::{NodeId, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// What a failed run violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureKind {
    /// Two members decided different entries at one position.
    Disagreement,
    /// A member has a snapshot that lacks decided entries.
    LostState,
    /// No order of the clients' operations explains the replies.
    NotLinearizable,
    /// Without faults, members do not decide new entries.
    NoProgress,
    /// The library panicked.
    Panic,
    /// A member cannot start from its disk.
    Boot,
    /// Two runs of one schedule differ.
    NotReplayable,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureKind::Disagreement => "disagreement",
            FailureKind::LostState => "lost state",
            FailureKind::NotLinearizable => "not linearizable",
            FailureKind::NoProgress => "no progress",
            FailureKind::Panic => "panic",
            FailureKind::Boot => "does not start",
            FailureKind::NotReplayable => "not replayable",
        })
    }
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

/// Shared by the members of one world, which report to it, and the loop that drives them. It only records: no member reads it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// World time, set before each event.
    pub(crate) now: Time,
    /// The decision at each position, and the member that reported it first.
    decided: Vec<(Decision, NodeId)>,
    pub(crate) failure: Option<Failure>,
    /// Lines of the trace, if one is wanted.
    lines: Option<Vec<String>>,
    /// When each message was sent: (from, to, start, number).
    sent: BTreeMap<(NodeId, NodeId, u64, u64), Time>,
}

pub(crate) type SharedLedger = Rc<RefCell<Ledger>>;

impl Ledger {
    pub(crate) fn new(is_tracing: bool) -> SharedLedger {
        let lines = is_tracing.then(Vec::new);
        Rc::new(RefCell::new(Ledger {
            lines,
            ..Ledger::default()
        }))
    }

    /// Number of decided positions.
    pub(crate) fn length(&self) -> u64 {
        self.decided.len() as u64
    }

    /// A member decided this entry at this position (from 0).
    pub(crate) fn decide(&mut self, node: NodeId, position: u64, decision: &Decision) {
        self.line(|| format!("{node} decides position {position}: {decision}"));
        self.agree(node, position, decision, "decided");
    }

    /// A member has this state in a snapshot up to `position`, received or made, or read at its start.
    pub(crate) fn snapshot(&mut self, node: NodeId, position: u64, state: &[Decision]) {
        let items: Vec<String> = state.iter().map(ToString::to_string).collect();
        let text = items.join(", ");
        self.line(|| format!("{node} has a snapshot of positions 0..{position}: [{text}]"));
        if state.len() as u64 != position {
            let missing = format!(
                "{node} has a snapshot of positions 0..{position} with {} entries: [{text}]",
                state.len()
            );
            return self.fail(FailureKind::LostState, missing);
        }
        for (position, decision) in (0..).zip(state) {
            self.agree(node, position, decision, "has a snapshot with");
        }
    }

    fn agree(&mut self, node: NodeId, position: u64, decision: &Decision, verb: &str) {
        match self.decided.get(position as usize) {
            None if position == self.length() => self.decided.push((decision.clone(), node)),
            None => {
                let length = self.length();
                let text = format!(
                    "{node} {verb} `{decision}` at position {position}, but only {length} positions are decided"
                );
                self.fail(FailureKind::Disagreement, text);
            }
            Some((known, first)) if known != decision => {
                let text = format!(
                    "{node} {verb} `{decision}` at position {position}, where {first} decided `{known}`"
                );
                self.fail(FailureKind::Disagreement, text);
            }
            Some(_) => {}
        }
    }

    /// Records a failure; the first one counts.
    pub(crate) fn fail(&mut self, kind: FailureKind, text: String) {
        if self.failure.is_none() {
            self.line(|| format!("FAILURE ({kind}): {text}"));
            self.failure = Some(Failure { kind, text });
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn line(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} ms  {}", now.seconds() * 1e3, text()));
        }
    }

    /// Is a trace wanted? Texts of messages are made only then.
    pub(crate) fn is_tracing(&self) -> bool {
        self.lines.is_some()
    }

    /// A message leaves its sender.
    pub(crate) fn sent(&mut self, from: NodeId, to: NodeId, link: (u64, u64)) {
        if self.is_tracing() {
            self.sent.insert((from, to, link.0, link.1), self.now);
        }
    }

    /// A message arrives.
    pub(crate) fn arrived(
        &mut self,
        from: NodeId,
        to: NodeId,
        link: (u64, u64),
        text: impl FnOnce() -> String,
    ) {
        if !self.is_tracing() {
            return;
        }
        let sent = self.sent.get(&(from, to, link.0, link.1)).copied();
        let sent = sent.unwrap_or_default().seconds() * 1e3;
        let number = link.1;
        self.line(|| {
            format!(
                "{from} → {to}  #{number} (sent at {sent:.3} ms)  {}",
                text()
            )
        });
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
