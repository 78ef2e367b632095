//! The order of each log, and the anomalies of operations against it.

use super::adjacency::{Adjacencies, AdjacencyUses, MessageAdjacency};
use super::log_state::{LogMessage, LogState, NEVER};
use super::read_graph::{BEFORE_GRAPH, NO_SENDER, ReadGraph};
use crate::Anomaly;
use crate::data::verdict_builder::VerdictBuilder;
use seatrial_cycles::{CompletedOperation, OperationCycle, operation_cycles};
use seatrial_history::{OpType, Process};
use serde_json::json;
use std::collections::BTreeMap;

/// No position.
const NOWHERE: u32 = u32::MAX;

/// The positions of a message in its log. Positions number the offsets in use, without gaps.
#[derive(Clone, Copy, Debug)]
struct LogPositions {
    /// The last position whose representative it is: of several messages at one offset, the least value; or [`NOWHERE`].
    order: u32,
    first: u32,
    last: u32,
    /// Number of offsets with this message.
    times: u32,
}

impl LogPositions {
    const NONE: LogPositions = LogPositions {
        order: NOWHERE,
        first: 0,
        last: 0,
        times: 0,
    };

    fn order(&self) -> Option<u32> {
        (self.order != NOWHERE).then_some(self.order)
    }
}

/// The positions of all messages, and the message at each position.
struct LogOrders {
    places: Vec<LogPositions>,
    /// By log and position.
    logs: Vec<Vec<u32>>,
}

/// A check in progress: anomalies go to the builder, tolerated ones are only counted.
struct LogCheck<'a> {
    state: &'a LogState,
    orders: LogOrders,
    graph: Option<ReadGraph>,
    builder: &'a mut VerdictBuilder,
    tolerated: BTreeMap<Anomaly, u64>,
}

/// Reports all anomalies of the logs.
pub(super) fn check(mut state: LogState, builder: &mut VerdictBuilder) {
    state.close();
    commit(&mut state);
    let orders = orders(&state);
    builder.count("logs", state.log.partitions.len() as u64);
    builder.count("messages", state.log.messages.len() as u64);
    builder.count("successes", state.successes);
    if let Some(index) = state.refused {
        builder.unknown(format!("op {index}: its value does nothing to logs"));
    }
    if state.successes == 0 {
        builder.no_evidence("nothing was ever sent or polled");
    }
    builder.figure("is_subscribed", state.is_subscribed.into());
    if let Some(lag) = state.lag {
        let key = &state.log.partitions[lag.partition as usize].key;
        let lag = json!({
            "nanoseconds": lag.nanoseconds,
            "time": lag.time,
            "process": lag.process.to_string(),
            "key": key.to_string(),
        });
        builder.figure("worst_lag", lag);
    }
    let unseen = state.unseen.points();
    let unseen = unseen.map(|(time, unseen)| json!({"time": time, "unseen": unseen}));
    builder.figure("unseen_over_time", unseen.collect());
    let graph = state.graph.take();
    let adjacencies = std::mem::take(&mut state.adjacencies);
    let mut check = LogCheck {
        state: &state,
        orders,
        graph,
        builder,
        tolerated: BTreeMap::new(),
    };
    check.offsets();
    check.messages();
    check.lost();
    check.neighbours(&adjacencies);
    // Not needed for cycles, which take memory of their own.
    drop(adjacencies);
    check.cycles();
    let tolerated = json!(check.tolerated);
    builder.figure("tolerated", tolerated);
}

/// An operation of unknown outcome took effect if one of its messages was polled: its offsets are then used.
fn commit(state: &mut LogState) {
    for operation in std::mem::take(&mut state.uncertain) {
        let polled = |(message, _): &(u32, _)| state.log.messages[*message as usize].polls > 0;
        if !operation.sent.iter().any(polled) {
            continue;
        }
        for (number, offset) in operation.sent {
            let message = &mut state.log.messages[number as usize];
            message.is_committed |= message.writer == operation.index;
            let partition = message.partition as usize;
            if let Some(offset) = offset {
                state.log.partitions[partition].put(offset, number, operation.index);
            }
        }
    }
}

fn orders(state: &LogState) -> LogOrders {
    let mut places = vec![LogPositions::NONE; state.log.messages.len()];
    let mut logs = Vec::with_capacity(state.log.partitions.len());
    for partition in &state.log.partitions {
        let mut log = Vec::with_capacity(partition.offsets.len());
        for (offset, entry) in partition.offsets.iter() {
            let message = entry.message;
            let place = log.len() as u32;
            let others = partition.conflicts.get(&offset).into_iter().flatten();
            let mut least = message;
            for message in others.map(|other| other.0).chain([message]) {
                let one = &mut places[message as usize];
                if one.times == 0 {
                    one.first = place;
                }
                one.last = place;
                one.times += 1;
                if state.log.messages[message as usize].value
                    < state.log.messages[least as usize].value
                {
                    least = message;
                }
            }
            places[least as usize].order = place;
            log.push(least);
        }
        assert!(
            log.len() == partition.offsets.len(),
            "a log has one representative message per offset"
        );
        logs.push(log);
    }
    assert!(
        logs.len() == state.log.partitions.len(),
        "each log has an order"
    );
    LogOrders { places, logs }
}

impl LogCheck<'_> {
    fn report(
        &mut self,
        anomaly: Anomaly,
        count: u64,
        explain: impl FnOnce(&LogState, &LogOrders) -> (Vec<u64>, String),
    ) {
        let is_tolerated = match anomaly {
            "int-send-skip" | "G0" => true,
            "poll-skip" | "nonmonotonic-poll" => self.state.is_subscribed,
            _ => false,
        };
        if is_tolerated {
            *self.tolerated.entry(anomaly).or_default() += count;
        } else {
            let (state, orders) = (self.state, &self.orders);
            self.builder
                .anomalies(anomaly, count, || explain(state, orders));
        }
    }

    /// Offsets with several messages, and messages with several offsets.
    fn offsets(&mut self) {
        let state = self.state;
        for partition in &state.log.partitions {
            for (offset, others) in &partition.conflicts {
                let Some(first) = partition.offsets.get(*offset) else {
                    continue;
                };
                let (message, index) = (first.message, first.index);
                self.report("inconsistent-offsets", 1, |state, _| {
                    let mut all = others.clone();
                    all.insert(0, (message, index));
                    let said = all.iter().map(|(message, index)| {
                        let value = state.log.messages[*message as usize].value;
                        format!("{value} (op {index})")
                    });
                    let said: Vec<String> = said.collect();
                    let summary = format!(
                        "Log {} has at offset {offset}: {}.",
                        partition.key,
                        said.join(", ")
                    );
                    (all.iter().map(|one| one.1).collect(), summary)
                });
            }
        }
        for number in 0..self.orders.places.len() {
            if self.orders.places[number].times > 1 {
                self.report("duplicate", 1, |state, _| duplicate(state, number as u32));
            }
        }
    }

    /// Anomalies of single messages.
    fn messages(&mut self) {
        for (number, message) in (0..).zip(&self.state.log.messages) {
            let LogMessage { value, .. } = *message;
            let key = &self.state.log.partitions[message.partition as usize].key;
            if let Some(&writer) = self.state.failures.get(&number) {
                self.report("G1a", message.polls.into(), |_, _| {
                    let reader = message.successful_reader;
                    let summary = format!(
                        "Op {reader} polled {value} from {key}, whose send failed (op {writer})."
                    );
                    (vec![writer, reader], summary)
                });
            }
            if message.is_acknowledged && message.polls == 0 {
                self.report("unseen", 1, |_, _| {
                    let writer = message.writer;
                    let summary =
                        format!("Op {writer} sent {value} to {key}, and it was never polled.");
                    (vec![writer], summary)
                });
            }
            let is_sent = message.invocation != NEVER || message.writer != NEVER;
            if let Some(&reader) = self.state.unsent_polls.get(&number)
                && !is_sent
            {
                self.report("unexpected", 1, |_, _| {
                    let summary = format!(
                        "Op {reader} polled {value} from {key}, which no operation tried to send."
                    );
                    (vec![reader], summary)
                });
            } else if let Some(&reader) = self.state.early_readers.get(&number)
                && message.invocation != NEVER
            {
                self.report("G1c-realtime", 1, |_, _| {
                    let writer = message.invocation;
                    let summary = format!(
                        "Op {reader} had polled {value} from {key} when op {writer} began to send it."
                    );
                    (vec![reader, writer], summary)
                });
            }
        }
        for &(index, number) in &self.state.precommitted {
            self.report("precommitted-read", 1, |state, _| {
                let LogMessage {
                    value, partition, ..
                } = state.log.messages[number as usize];
                let key = &state.log.partitions[partition as usize].key;
                let summary =
                    format!("Op {index} polled {value} from {key}, which it sent itself.");
                (vec![index], summary)
            });
        }
    }

    /// Messages that took effect, are before one that was polled, and were never polled.
    fn lost(&mut self) {
        // By log, the greatest first position of a message that was polled: everything before it should have been polled too.
        let mut bounds: Vec<Option<(u32, u32)>> = vec![None; self.state.log.partitions.len()];
        let polled = self
            .state
            .log
            .messages
            .iter()
            .zip(&self.orders.places)
            .zip(0..);
        for ((message, place), number) in polled {
            let bound = &mut bounds[message.partition as usize];
            let is_known = message.polls > 0 && place.times > 0;
            if is_known && bound.is_none_or(|(last, _)| last < place.first) {
                *bound = Some((place.first, number));
            }
        }
        for (number, message) in self.state.log.messages.iter().enumerate() {
            let place = self.orders.places[number];
            let Some((bound, last)) = bounds[message.partition as usize] else {
                continue;
            };
            if message.polls > 0 || place.times == 0 || place.last > bound || !message.is_committed
            {
                continue;
            }
            self.report("lost-write", 1, |state, _| {
                let last = state.log.messages[last as usize];
                let (writer, reader) = (message.writer, last.successful_reader);
                let key = &state.log.partitions[message.partition as usize].key;
                let summary = format!(
                    "Op {writer} sent {} to {key}, it was never polled, and op {reader} polled {}, which comes after it.",
                    message.value, last.value
                );
                (vec![writer, reader], summary)
            });
        }
    }

    /// Adjacent messages of polls and sends that are not adjacent in the log.
    fn neighbours(&mut self, adjacencies: &Adjacencies) {
        let mut wrong: Vec<(i64, MessageAdjacency, [u32; 2], AdjacencyUses)> = Vec::new();
        for (kind, [one, next], seen) in adjacencies.iter() {
            let place = |message: u32| self.orders.places[message as usize].order();
            if let (Some(from), Some(to)) = (place(one), place(next)) {
                let delta = i64::from(to) - i64::from(from);
                if delta != 1 {
                    wrong.push((delta, kind, [one, next], seen));
                }
            }
        }
        // The largest distance first, then in the order of the history.
        wrong
            .sort_by_key(|(delta, kind, pair, seen)| (*kind, -delta.abs(), seen.operations, *pair));
        for (delta, kind, [one, next], seen) in wrong {
            let anomaly = match (kind, delta > 1) {
                (MessageAdjacency::Polled, true) => "poll-skip",
                (MessageAdjacency::Polled, false) => "nonmonotonic-poll",
                (MessageAdjacency::PolledInside, true) => "int-poll-skip",
                (MessageAdjacency::PolledInside, false) => "int-nonmonotonic-poll",
                (MessageAdjacency::Sent, true) => continue,
                (MessageAdjacency::Sent, false) => "nonmonotonic-send",
                (MessageAdjacency::SentInside, true) => "int-send-skip",
                (MessageAdjacency::SentInside, false) => "int-nonmonotonic-send",
            };
            self.report(anomaly, seen.count, |state, orders| {
                neighbours(state, orders, kind, [one, next], seen, delta)
            });
        }
    }

    /// Cycles of operations that poll and send.
    fn cycles(&mut self) {
        let Some(graph) = self.graph.take() else {
            return;
        };
        let messages = &self.state.log.messages;
        let sender = |message: u32| messages[message as usize].sender;
        let mut writes: Vec<(u32, u32)> = Vec::new();
        for log in &self.orders.logs {
            // Numbers begin at 1.
            let number = |message: u32| {
                let sender = sender(message);
                (sender != NO_SENDER && sender != BEFORE_GRAPH).then(|| sender - 1)
            };
            let pairs = log.windows(2);
            writes.extend(pairs.filter_map(|pair| Some((number(pair[0])?, number(pair[1])?))));
        }
        writes.sort_unstable();
        writes.dedup();
        let completions = &graph.completions()[1..];
        self.builder.count("transactions", completions.len() as u64);
        // Writes are compared with writes alone: neither process nor real time matters.
        let senders = completions.iter().map(|&index| CompletedOperation {
            index,
            started: index,
            process: Process::Client(0),
            outcome: OpType::Ok,
        });
        let senders: Vec<CompletedOperation> = senders.collect();
        let of_writes = operation_cycles(&senders, &[], &writes);
        drop((senders, writes));
        let (readers, reads) = graph.into_rest(sender);
        let mut found = operation_cycles(&readers, &reads, &[]);
        found.extend(of_writes);
        for OperationCycle { anomaly, steps } in found {
            self.report(anomaly, 1, |_, _| {
                let said = steps.iter().map(|(from, to, relation)| match *relation {
                    "wr" => format!("op {to} polled what op {from} sent"),
                    "ww" => format!("op {to} sent after what op {from} sent"),
                    "process" => format!("op {to} came after op {from} in the same process"),
                    _ => format!("op {to} began after op {from} had completed"),
                });
                let said: Vec<String> = said.collect();
                let operations = steps.iter().map(|step| step.0).collect();
                (operations, format!("A cycle: {}.", said.join(", ")))
            });
        }
    }
}

fn duplicate(state: &LogState, number: u32) -> (Vec<u64>, String) {
    let LogMessage {
        value, partition, ..
    } = state.log.messages[number as usize];
    let partition = &state.log.partitions[partition as usize];
    let mut found = Vec::new();
    for (offset, first) in partition.offsets.iter() {
        let (message, index) = (first.message, first.index);
        let others = partition
            .conflicts
            .get(&offset)
            .into_iter()
            .flatten()
            .copied();
        let mut all = others.chain([(message, index)]);
        if let Some((_, index)) = all.find(|one| one.0 == number) {
            found.push((offset, index));
        }
    }
    let offsets = found
        .iter()
        .map(|(offset, index)| format!("{offset} (op {index})"));
    let offsets: Vec<String> = offsets.collect();
    let summary = format!(
        "{value} is in log {} at offsets {}.",
        partition.key,
        offsets.join(", ")
    );
    (found.into_iter().map(|one| one.1).collect(), summary)
}

fn neighbours(
    state: &LogState,
    orders: &LogOrders,
    kind: MessageAdjacency,
    pair: [u32; 2],
    seen: AdjacencyUses,
    delta: i64,
) -> (Vec<u64>, String) {
    let [one, next] = pair.map(|message| state.log.messages[message as usize].value);
    let partition = state.log.messages[pair[0] as usize].partition as usize;
    let key = &state.log.partitions[partition].key;
    let [before, index] = seen.operations;
    let what = match kind {
        MessageAdjacency::Polled => {
            format!("Op {before} polled {one} last from {key}, and op {index} {next} next")
        }
        MessageAdjacency::PolledInside => {
            format!("Op {index} polled {one} and then {next} from {key}")
        }
        MessageAdjacency::Sent => {
            format!("Op {before} sent {one} last to {key}, and op {index} {next} next")
        }
        MessageAdjacency::SentInside => format!("Op {index} sent {one} and then {next} to {key}"),
    };
    let why = if delta > 1 {
        let from = orders.places[pair[0] as usize]
            .order()
            .map_or(0, |place| place as usize + 1);
        let skipped = orders.logs[partition][from..]
            .iter()
            .take(delta as usize - 1);
        let values = skipped.clone().take(SHOWN_MAX);
        let values = values.map(|message| state.log.messages[*message as usize].value.to_string());
        let more = if skipped.len() > SHOWN_MAX {
            ", …"
        } else {
            ""
        };
        let values: Vec<String> = values.collect();
        format!("between them the log has {}{more}", values.join(", "))
    } else if delta == 0 {
        "they are at the same place".into()
    } else {
        format!("which is {} before it in the log", -delta)
    };
    let times = match seen.count {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    (seen.operations.to_vec(), format!("{what}{times}: {why}."))
}

/// Skipped messages that a finding names.
const SHOWN_MAX: usize = 8;
