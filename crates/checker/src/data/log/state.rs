//! The state of all logs, operation by operation.

use crate::data::data_type::OperationEvent;
use seatrial_cycles::CompletedOperation;
use seatrial_history::FixedMap;
use seatrial_history::{Key, LogMop, OpType, Process, Symbol, Value};
use std::collections::{BTreeMap, BTreeSet};

/// No such operation.
pub(super) const NEVER: u64 = u64::MAX;

/// A log.
pub(super) struct Partition {
    pub(super) key: Key,
    /// By offset: the first message reported there, and the operation that reported it.
    pub(super) offsets: BTreeMap<i64, (u32, u64)>,
    /// Other messages reported at an offset.
    pub(super) conflicts: BTreeMap<i64, Vec<(u32, u64)>>,
    /// Each offset that was higher than all before, and the time when it became known. Both ascend.
    heights: Vec<(i64, i64)>,
}

/// A value that was sent to a log, or polled from it. Operations by index, [`NEVER`] when there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogMessage {
    pub(super) partition: u32,
    pub(super) value: i64,
    /// The first invocation that sends it.
    pub(super) invocation: u64,
    /// The last completion of a send, and how it ended.
    pub(super) writer: u64,
    pub(super) outcome: OpType,
    /// The first send that failed.
    pub(super) failure: u64,
    pub(super) is_acknowledged: bool,
    /// Did its last send certainly take effect?
    pub(super) is_committed: bool,
    /// Polls of it by successful operations, the first of these, and the first of all polls.
    pub(super) polls: u64,
    pub(super) successful_reader: u64,
    pub(super) reader: u64,
    /// A successful operation that polled it before any send of it was invoked, unless the graph has that dependency.
    pub(super) early_reader: u64,
    /// The member of the graph that sent it.
    pub(super) node: Option<u32>,
}

/// How two messages of a log are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MessageAdjacency {
    /// The last message that one operation polled, and the first that the next operation of its process polled.
    Polled,
    /// Polled one after the other in one operation.
    PolledInside,
    /// The last message that one operation sent, and the first that the next operation of its process sent.
    Sent,
    /// Sent one after the other in one operation.
    SentInside,
}

/// Occurrences of an adjacent pair: their number, and the operations of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdjacencyUses {
    pub(super) count: u64,
    pub(super) operations: [u64; 2],
}

/// An operation of unknown outcome that sent messages.
pub(super) struct UncertainSend {
    pub(super) index: u64,
    pub(super) sent: Vec<(u32, Option<i64>)>,
}

/// The worst delay of a poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    pub(super) nanoseconds: i64,
    pub(super) time: i64,
    pub(super) process: Process,
    pub(super) partition: u32,
}

/// A process. Removed when it crashes: it does nothing more.
#[derive(Default)]
struct LogConsumer {
    /// By log: the last message that its last successful poll returned, if any, and that operation.
    polled: BTreeMap<u32, (Option<u32>, u64)>,
    sent: BTreeMap<u32, (u32, u64)>,
    /// By log: the highest offset that it has received or sent.
    offsets: BTreeMap<u32, i64>,
    /// The operation under way, with the messages that it sends.
    open: Option<UncertainSend>,
}

/// The dependency graph of operations, from the first one on that both polls and sends.
#[derive(Default)]
pub(super) struct LogDependencies {
    pub(super) members: Vec<CompletedOperation>,
    /// Member, and a message that it polled.
    pub(super) polled: Vec<(u32, u32)>,
}

/// The state of all logs.
#[derive(Default)]
pub(crate) struct LogState {
    keys: BTreeMap<Key, u32>,
    pub(super) partitions: Vec<Partition>,
    numbers: FixedMap<(u32, i64), u32>,
    pub(super) messages: Vec<LogMessage>,
    consumers: BTreeMap<Process, LogConsumer>,
    pub(super) uncertain: Vec<UncertainSend>,
    pub(super) adjacencies: FixedMap<(MessageAdjacency, u32, u32), AdjacencyUses>,
    /// Operation, and a message that it both sent and polled.
    pub(super) precommitted: Vec<(u64, u32)>,
    pub(super) is_subscribed: bool,
    pub(super) lag: Option<Lag>,
    pub(super) dependencies: Option<LogDependencies>,
    /// Successful operations that send or poll.
    pub(super) successes: u64,
    /// The first operation whose value cannot be read.
    pub(super) refused: Option<u64>,
}

/// Sends in their order: log, message, offset. Polls: per log offsets and messages in their order.
#[derive(Default)]
struct LogEffects {
    sent: Vec<(u32, u32, Option<i64>)>,
    polled: BTreeMap<u32, Vec<(i64, u32)>>,
}

impl LogState {
    fn partition(&mut self, key: &Key) -> u32 {
        if let Some(&number) = self.keys.get(key) {
            return number;
        }
        let number = self.partitions.len() as u32;
        self.keys.insert(key.clone(), number);
        self.partitions.push(Partition {
            key: key.clone(),
            offsets: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            heights: Vec::new(),
        });
        assert!(
            self.keys.len() == self.partitions.len(),
            "each key has one log"
        );
        number
    }

    fn message(&mut self, partition: u32, value: i64) -> u32 {
        let next = self.messages.len() as u32;
        let number = *self.numbers.entry((partition, value)).or_insert(next);
        if number == next {
            self.messages.push(LogMessage {
                partition,
                value,
                invocation: NEVER,
                writer: NEVER,
                outcome: OpType::Info,
                failure: NEVER,
                is_acknowledged: false,
                is_committed: false,
                polls: 0,
                successful_reader: NEVER,
                reader: NEVER,
                early_reader: NEVER,
                node: None,
            });
        }
        debug_assert!(
            self.numbers.len() == self.messages.len(),
            "each value of a log is one message"
        );
        number
    }

    /// The sends and polls of a value; `None` if it cannot be read.
    fn effects(&mut self, f: Symbol, value: &Value) -> Option<LogEffects> {
        let mops = match value {
            Value::Txn(mops) if mops.is_empty() => Vec::new(),
            value => value.as_log()?,
        };
        let mut effects = LogEffects::default();
        for mop in &mops {
            match mop {
                LogMop::Send { key, offset, value } if f != "poll" => {
                    if offset.is_some_and(|offset| offset < 0) {
                        return None;
                    }
                    let partition = self.partition(key);
                    let message = self.message(partition, *value);
                    effects.sent.push((partition, message, *offset));
                }
                LogMop::Poll {
                    messages: Some(logs),
                } if f != "send" => {
                    for (key, messages) in logs {
                        let partition = self.partition(key);
                        let mut polled = effects.polled.remove(&partition).unwrap_or_default();
                        for &(offset, value) in messages {
                            if offset < 0 {
                                return None;
                            }
                            polled.push((offset, self.message(partition, value)));
                        }
                        effects.polled.insert(partition, polled);
                    }
                }
                _ => {}
            }
        }
        Some(effects)
    }

    /// Applies an `assign` or `subscribe`.
    pub(super) fn assign(&mut self, event: &OperationEvent<'_>) {
        let is_subscription = event.f == "subscribe";
        self.is_subscribed |= is_subscription;
        if matches!(event.kind, OpType::Invoke | OpType::Fail) {
            return;
        }
        let keys: Option<BTreeSet<Key>> = match event.argument() {
            Value::List(keys) | Value::Set(keys) => keys.iter().map(Value::as_key).collect(),
            Value::Cas(one, other) => Some([*one, *other].map(Key::Int).into()),
            Value::Txn(mops) if mops.is_empty() => Some(BTreeSet::new()),
            _ => None,
        };
        let Some(keys) = keys else {
            self.refused.get_or_insert(event.index);
            return;
        };
        let keys: BTreeSet<u32> = keys.iter().map(|key| self.partition(key)).collect();
        let consumer = self.consumers.entry(event.process).or_default();
        consumer.polled.retain(|key, _| keys.contains(key));
        consumer.sent.retain(|key, _| keys.contains(key));
        if event.kind == OpType::Info {
            self.consumers.remove(&event.process);
        } else if is_subscription {
            consumer.offsets.clear();
        } else {
            consumer.offsets.retain(|key, _| keys.contains(key));
            for key in keys {
                consumer.offsets.entry(key).or_insert(-1);
            }
        }
    }

    /// Applies the invocation of an operation that sends or polls.
    pub(super) fn begin(&mut self, event: &OperationEvent<'_>) {
        let Some(effects) = self.effects(event.f, event.value) else {
            self.refused.get_or_insert(event.index);
            return;
        };
        let polls = event.f == "txn"
            && event
                .value
                .as_log()
                .is_some_and(|mops| mops.iter().any(|mop| matches!(mop, LogMop::Poll { .. })));
        if polls && !effects.sent.is_empty() {
            self.dependencies.get_or_insert_default();
        }
        for &(_, message, _) in &effects.sent {
            let message = &mut self.messages[message as usize];
            message.invocation = message.invocation.min(event.index);
        }
        if !effects.sent.is_empty() {
            let sent = effects
                .sent
                .iter()
                .map(|&(_, message, offset)| (message, offset));
            let open = UncertainSend {
                index: event.index,
                sent: sent.collect(),
            };
            self.consumers.entry(event.process).or_default().open = Some(open);
        }
    }

    /// Applies its completion.
    pub(super) fn end(&mut self, event: &OperationEvent<'_>) {
        let Some(effects) = self.effects(event.f, event.argument()) else {
            self.refused.get_or_insert(event.index);
            return;
        };
        self.successes += u64::from(event.kind == OpType::Ok);
        self.join(event, &effects);
        self.send(event, &effects.sent);
        self.poll(event, &effects.polled);
        self.compare(event, &effects);
        self.measure(event, &effects);
        if event.kind == OpType::Info {
            self.consumers.remove(&event.process);
        } else if let Some(consumer) = self.consumers.get_mut(&event.process) {
            consumer.open = None;
        }
    }

    /// Adds the operation to the graph.
    fn join(&mut self, event: &OperationEvent<'_>, effects: &LogEffects) {
        let Some(dependencies) = &mut self.dependencies else {
            return;
        };
        let node = dependencies.members.len() as u32;
        dependencies.members.push(CompletedOperation {
            index: event.index,
            started: event.started(),
            process: event.process,
            outcome: event.kind,
        });
        for &(_, message, _) in &effects.sent {
            self.messages[message as usize].node = Some(node);
        }
        for (_, message) in effects.polled.values().flatten() {
            dependencies.polled.push((node, *message));
        }
    }

    fn send(&mut self, event: &OperationEvent<'_>, sent: &[(u32, u32, Option<i64>)]) {
        let index = event.index;
        for &(partition, number, offset) in sent {
            let message = &mut self.messages[number as usize];
            message.writer = index;
            message.outcome = event.kind;
            message.is_committed = event.kind == OpType::Ok;
            message.is_acknowledged |= event.kind == OpType::Ok;
            if event.kind == OpType::Fail {
                message.failure = message.failure.min(index);
            }
            if let (OpType::Ok, Some(offset)) = (event.kind, offset) {
                self.partitions[partition as usize].put(offset, number, index);
            }
        }
        if event.kind == OpType::Info && !sent.is_empty() {
            let sent = sent.iter().map(|&(_, message, offset)| (message, offset));
            self.uncertain.push(UncertainSend {
                index,
                sent: sent.collect(),
            });
        }
    }

    fn poll(&mut self, event: &OperationEvent<'_>, polled: &BTreeMap<u32, Vec<(i64, u32)>>) {
        let index = event.index;
        for (&partition, messages) in polled {
            for &(offset, number) in messages {
                self.partitions[partition as usize].put(offset, number, index);
                let message = &mut self.messages[number as usize];
                message.reader = message.reader.min(index);
                if event.kind != OpType::Ok {
                    continue;
                }
                message.polls += 1;
                message.successful_reader = message.successful_reader.min(index);
                if message.invocation == NEVER && self.dependencies.is_none() {
                    message.early_reader = message.early_reader.min(index);
                }
            }
        }
    }

    fn note(&mut self, kind: MessageAdjacency, pair: [u32; 2], operations: [u64; 2]) {
        let seen = self.adjacencies.entry((kind, pair[0], pair[1]));
        let seen = seen.or_insert(AdjacencyUses {
            count: 0,
            operations,
        });
        seen.count += 1;
    }

    /// Notes adjacencies, inside the operation and from the process's one before.
    fn compare(&mut self, event: &OperationEvent<'_>, effects: &LogEffects) {
        let index = event.index;
        let mut sent: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &(partition, message, _) in &effects.sent {
            sent.entry(partition).or_default().push(message);
        }
        let own = sent.iter().find_map(|(partition, sent)| {
            let polled = effects.polled.get(partition)?;
            polled
                .iter()
                .map(|one| one.1)
                .find(|one| sent.contains(one))
        });
        self.precommitted
            .extend(own.map(|message| (index, message)));
        let rebalanced = rebalanced(event);
        let mut consumer = self.consumers.remove(&event.process).unwrap_or_default();
        for (&partition, polled) in &effects.polled {
            if let Some(&(Some(last), before)) = consumer.polled.get(&partition)
                && let Some(&(_, first)) = polled.first()
            {
                self.note(MessageAdjacency::Polled, [last, first], [before, index]);
            }
            if !rebalanced.contains(&self.partitions[partition as usize].key) {
                for pair in polled.windows(2) {
                    let pair = [pair[0].1, pair[1].1];
                    self.note(MessageAdjacency::PolledInside, pair, [index, index]);
                }
            }
            if event.kind == OpType::Ok {
                let last = polled.last().map(|one| one.1);
                consumer.polled.insert(partition, (last, index));
            }
        }
        for (&partition, sent) in &sent {
            for pair in sent.windows(2) {
                self.note(
                    MessageAdjacency::SentInside,
                    [pair[0], pair[1]],
                    [index, index],
                );
            }
            if event.kind == OpType::Fail {
                continue;
            }
            if let Some(&(last, before)) = consumer.sent.get(&partition) {
                self.note(MessageAdjacency::Sent, [last, sent[0]], [before, index]);
            }
            consumer
                .sent
                .insert(partition, (sent[sent.len() - 1], index));
        }
        self.consumers.insert(event.process, consumer);
    }

    /// Updates the worst lag, by the offsets that the process has received now.
    fn measure(&mut self, event: &OperationEvent<'_>, effects: &LogEffects) {
        if !matches!(event.kind, OpType::Ok | OpType::Info) {
            return;
        }
        let mut highest: BTreeMap<u32, i64> = BTreeMap::new();
        let polled = effects.polled.iter().map(|(&partition, polled)| {
            let offsets = polled.iter().map(|one| one.0);
            (partition, offsets.max().unwrap_or(-1))
        });
        let sent = effects.sent.iter();
        let sent = sent.filter_map(|&(partition, _, offset)| Some((partition, offset?)));
        for (partition, offset) in polled.chain(sent) {
            let known = highest.entry(partition).or_insert(-1);
            *known = offset.max(*known);
        }
        for (&partition, &offset) in &highest {
            self.partitions[partition as usize].grow(offset, event.time);
        }
        let (Some(started), OpType::Ok, true) = (event.invocation, event.kind, event.f != "send")
        else {
            return;
        };
        let consumer = self.consumers.entry(event.process).or_default();
        for (partition, offset) in highest {
            let seen = consumer.offsets.entry(partition).or_insert(-1);
            *seen = offset.max(*seen);
        }
        for (&partition, &offset) in &consumer.offsets {
            let Some(known) = self.partitions[partition as usize].known(offset + 1) else {
                continue;
            };
            let lag = started.time.saturating_sub(known);
            if self.lag.map_or(0, |worst| worst.nanoseconds) < lag {
                self.lag = Some(Lag {
                    nanoseconds: lag,
                    time: started.time,
                    process: event.process,
                    partition,
                });
            }
        }
    }

    /// Ends the history: operations that never completed are of unknown outcome.
    pub(super) fn close(&mut self) {
        let open = std::mem::take(&mut self.consumers).into_values();
        for operation in open.filter_map(|consumer| consumer.open) {
            for &(message, _) in &operation.sent {
                let message = &mut self.messages[message as usize];
                if message.writer == NEVER {
                    message.writer = operation.index;
                }
            }
            self.uncertain.push(operation);
        }
    }
}

/// Logs whose assignment changed while the operation was under way.
fn rebalanced(event: &OperationEvent<'_>) -> BTreeSet<Key> {
    let Some(Value::List(changes)) = event.extra.get("rebalance-log") else {
        return BTreeSet::new();
    };
    let keys = changes.iter().flat_map(|change| {
        let Value::Map(fields) = change else {
            return Vec::new();
        };
        let is_keys = |name: &Value| matches!(name, Value::Word(word) if *word == *"keys");
        let fields = fields.iter().filter(|(name, _)| is_keys(name));
        let keys = fields.flat_map(|(_, keys)| match keys {
            Value::List(keys) | Value::Set(keys) => keys.iter().filter_map(Value::as_key).collect(),
            Value::Cas(one, other) => vec![Key::Int(*one), Key::Int(*other)],
            _ => Vec::new(),
        });
        keys.collect::<Vec<_>>()
    });
    keys.collect()
}

impl Partition {
    /// An operation reports this message at this offset.
    pub(super) fn put(&mut self, offset: i64, message: u32, index: u64) {
        let (known, _) = *self.offsets.entry(offset).or_insert((message, index));
        if known != message {
            let others = self.conflicts.entry(offset).or_default();
            if others.iter().all(|other| other.0 != message) {
                others.push((message, index));
            }
        }
    }

    /// The log is known to reach this offset at this time.
    fn grow(&mut self, offset: i64, time: i64) {
        if offset >= 0 && self.heights.last().is_none_or(|last| last.0 < offset) {
            self.heights.push((offset, time));
        }
    }

    /// When it became known that the log reaches this offset.
    fn known(&self, offset: i64) -> Option<i64> {
        let place = self.heights.partition_point(|height| height.0 < offset);
        self.heights.get(place).map(|height| height.1)
    }
}
