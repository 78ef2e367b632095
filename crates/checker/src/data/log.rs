//! Logs with offsets, like Kafka's.

mod order;
mod state;
#[cfg(test)]
mod tests;

use super::data_type::{DataType, OperationEvent};
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, CertainAnomalies, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType};
pub(crate) use state::LogState;

/// Follows messages that are sent to logs and polled from them: Jepsen's workload for Kafka (`jepsen.tests.kafka`).
///
/// `send`, `poll` and `txn` carry micro-operations: `[:send key value]`, which succeeds as `[:send key [offset value]]`,
/// and `[:poll]`, which succeeds as `[:poll {key [[offset value] …] …}]`. `assign` and `subscribe` carry keys and replace
/// those that the process polls. Values are unique for each key. Offsets may have gaps: transactions take some. A log's
/// order is that of its offsets, known from all polls (even of operations that failed: consumers get safe messages
/// only) and from sends that took effect: those that succeeded, and those of unknown outcome of which some message was
/// polled. An operation is compared with the same process's last successful one on the same log; `assign` and
/// `subscribe` (not failed) make it forget logs that they do not name, and inside an operation no log is compared that its
/// `rebalance-log` names.
///
/// Anomalies: `G1a` (polled, though its send failed), `precommitted-read` (an operation polled what it sent itself),
/// `inconsistent-offsets` (two messages at one offset), `duplicate` (one message at two offsets), `lost-write` (a message
/// that took effect is before one that was polled, and was never polled itself), `unseen` (acknowledged, never polled: the
/// history must end with polls of all that was sent), `poll-skip` and `nonmonotonic-poll` (from one operation to the
/// next a process skipped messages, or got earlier ones), `int-poll-skip` and `int-nonmonotonic-poll` (the same inside
/// one operation), `nonmonotonic-send`, `int-nonmonotonic-send`, `int-send-skip`, and, of transactions that poll and
/// send, cycles of writes and reads: `G1c` and its variants; and beyond Jepsen's, `unexpected` (polled, but never sent by any
/// operation; Jepsen aborts the check). Tolerated, as in Jepsen: `int-send-skip` and `G0`, which transactions without isolation
/// of writes always show, and `poll-skip` and `nonmonotonic-poll` once a process subscribed, since a rebalance may occur at any
/// time; `G1c` is searched for over reads alone (Jepsen without `ww-deps`). The details have `worst_lag`: how long a message
/// had been in the log when a poll began whose process had not received it yet.
///
/// One pass; memory grows with the messages, not with how often they are polled: each different pair of adjacent messages in
/// polls and sends is kept once. Its downside: from the first transaction that polls and sends, each operation and each
/// message that it polled is kept for the search for cycles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl DataType for Log {
    type State = LogState;
    const NAME: &'static str = "log";
    const FUNCTIONS: &'static [&'static str] = &["send", "poll", "txn", "assign", "subscribe"];

    fn apply(&self, state: &mut LogState, event: &OperationEvent<'_>) {
        if matches!(event.f.as_str(), "assign" | "subscribe") {
            state.assign(event);
        } else if event.kind == OpType::Invoke {
            state.begin(event);
        } else {
            state.end(event);
        }
    }

    fn finish(&self, state: LogState, builder: &mut VerdictBuilder) {
        order::check(state, builder);
    }
}

impl Checker for Log {
    fn name(&self) -> &'static str {
        Log::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness {
            // Consumers that subscribe, possibly in the missing part, may skip messages.
            explained_by_end: &["lost-write", "unseen", "poll-skip", "nonmonotonic-poll"],
            certain: CertainAnomalies::Only(&["inconsistent-offsets", "duplicate"]),
            ..Robustness::OF_FINAL_STATE
        }
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
