//! Logs with offsets, like Kafka's.

mod adjacency;
mod effects;
mod log_state;
mod order;
mod read_graph;
#[cfg(test)]
mod tests;

use super::data_type::KeyedTally;
use crate::{
    Aims, CertainAnomalies, Checker, FoldChecker, OnlineChecker, Robustness, Verdict, check_source,
};
use effects::{LogEffects, LogFunction};
use log_state::{LogEvent, LogInvocation, LogState};
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, FixedMap, Fold, History, Key, OpType, Order, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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
/// polls and sends is kept once, and an operation is kept for the search for cycles only until no cycle can contain it
/// (`read_graph`). About 150 bytes for each message; each message of each poll takes some ten nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Log {
    const FUNCTIONS: [&str; 5] = ["send", "poll", "txn", "assign", "subscribe"];
}

/// An invocation without its completion so far.
struct OpenLogOperation {
    invocation: LogInvocation,
    /// Its effects, for a completion that does not repeat the value; `None` when they cannot be read.
    effects: Option<LogEffects>,
    /// The value of an assignment.
    assignment: Option<Value>,
}

/// The states of all independent keys after the operations so far.
#[derive(Default)]
struct LogStates {
    tally: KeyedTally,
    keys: BTreeMap<Option<Key>, LogState>,
    /// By position.
    open: FixedMap<u64, OpenLogOperation>,
    /// Of the operation that is applied; its buffers are used again.
    effects: LogEffects,
}

impl LogStates {
    fn apply(&mut self, chunk: &Chunk, place: usize, f: LogFunction) {
        let position = chunk.first_position() + place as u64;
        let key = chunk.key_id(place).map(|id| chunk.key(id).clone());
        let state = self.keys.entry(key).or_default();
        let (kind, value) = (chunk.kinds()[place], chunk.value(place));
        let open = chunk.invocation(place);
        let open = open.and_then(|invocation| self.open.remove(&invocation));
        let event = LogEvent {
            index: chunk.index(place),
            time: chunk.times()[place],
            kind,
            process: chunk.process(place),
            f,
            invocation: open.as_ref().map(|open| open.invocation),
            rebalances: None,
        };
        if matches!(f, LogFunction::Assign | LogFunction::Subscribe) {
            state.is_subscribed |= f == LogFunction::Subscribe;
            let is_nil = matches!(value, ValueView::Nil);
            let value = match open {
                Some(open) if is_nil => open.assignment.unwrap_or(Value::Nil),
                _ => unkeyed(chunk, place),
            };
            match kind {
                OpType::Invoke => self.open(position, &event, 0, None, Some(value)),
                OpType::Ok | OpType::Info => state.assign(&event, &value),
                OpType::Fail => {}
            }
            return;
        }
        if kind == OpType::Invoke {
            let mut effects = LogEffects::default();
            let is_read = effects.read(f, value, &mut state.log).is_ok();
            if is_read {
                state.begin(&event, &effects);
            } else {
                state.refused.get_or_insert(event.index);
            }
            let (floor, effects) = (state.floor(), is_read.then_some(effects));
            self.open(position, &event, floor, effects, None);
            return;
        }
        let effects = match (value, open) {
            (ValueView::Nil, Some(open)) => open.effects,
            (value, _) => {
                let mut effects = std::mem::take(&mut self.effects);
                let read = effects.read(f, value, &mut state.log);
                read.is_ok().then_some(effects)
            }
        };
        let Some(effects) = effects else {
            state.refused.get_or_insert(event.index);
            return;
        };
        let mut extra = chunk.extra(place);
        let rebalances = extra.find(|(name, _)| *name == "rebalance-log");
        let rebalances = rebalances.map(|(_, tape)| tape.to_value());
        let rebalances = rebalances.as_ref();
        state.end(
            &LogEvent {
                rebalances,
                ..event
            },
            &effects,
        );
        self.effects = effects;
    }

    fn open(
        &mut self,
        position: u64,
        event: &LogEvent<'_>,
        floor: u32,
        effects: Option<LogEffects>,
        assignment: Option<Value>,
    ) {
        let invocation = LogInvocation {
            index: event.index,
            time: event.time,
            floor,
        };
        let open = OpenLogOperation {
            invocation,
            effects,
            assignment,
        };
        let earlier = self.open.insert(position, open);
        assert!(earlier.is_none(), "two invocations at position {position}");
    }
}

/// The value of an operation, without its independent key.
fn unkeyed(chunk: &Chunk, place: usize) -> Value {
    match chunk.op(place).value {
        Value::Keyed(_, value) => (*value).clone(),
        value => value,
    }
}

/// The fold of [`Log`] over chunks, in order.
struct LogFold;

impl Fold for LogFold {
    type Accumulator = LogStates;
    type Output = Verdict;

    fn name(&self) -> String {
        "log".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> LogStates {
        LogStates::default()
    }

    fn reduce(&self, states: &mut LogStates, chunk: &Chunk) -> ControlFlow<()> {
        states.tally.count(chunk);
        let functions = chunk.template_fs();
        let functions = functions.map(|f| LogFunction::named(f.as_str()));
        let functions: Vec<Option<LogFunction>> = functions.collect();
        if functions.iter().all(Option::is_none) {
            return ControlFlow::Continue(());
        }
        for (place, template) in chunk.template_ids().iter().enumerate() {
            if let Some(f) = functions[*template as usize]
                && chunk.process(place).is_client()
            {
                states.apply(chunk, place, f);
            }
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut LogStates, _: LogStates) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, states: LogStates) -> Verdict {
        let mut builder = states.tally.builder(states.keys.keys(), &Log::FUNCTIONS);
        for (key, state) in states.keys {
            builder.start_key(key);
            order::check(state, &mut builder);
        }
        let mut verdict = builder.build("log");
        verdict.robustness = Log.robustness();
        verdict
    }
}

impl Checker for Log {
    fn name(&self) -> &'static str {
        "log"
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
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid("log").unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new("log", LogFold))
    }
}
