//! The state of all logs, operation by operation.

use super::adjacency::{Adjacencies, MessageAdjacency};
use super::effects::{LogEffects, LogFunction, MessageNumbers, PolledRun, SentMessage};
use super::read_graph::{BEFORE_GRAPH, NO_SENDER, ReadGraph};
use crate::data::dense_table::{DenseTable, SlotValue};
use seatrial_cycles::CompletedOperation;
use seatrial_history::{FixedMap, Key, OpType, Process, Value};
use std::collections::{BTreeMap, BTreeSet};

/// No such operation.
pub(super) const NEVER: u64 = u64::MAX;

/// The message at an offset, and the operation that reported it first.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffsetEntry {
    pub(super) message: u32,
    pub(super) index: u64,
}

impl SlotValue for OffsetEntry {
    const EMPTY: OffsetEntry = OffsetEntry {
        message: u32::MAX,
        index: 0,
    };

    fn is_empty(&self) -> bool {
        self.message == u32::MAX
    }
}

/// A log.
pub(super) struct Partition {
    pub(super) key: Key,
    /// The first message reported at each offset.
    pub(super) offsets: DenseTable<OffsetEntry>,
    /// Messages by value.
    values: DenseTable<u32>,
    /// Other messages reported at an offset.
    pub(super) conflicts: BTreeMap<i64, Vec<(u32, u64)>>,
    /// Each offset that was higher than all before, and the time when it became known. Both ascend.
    heights: Vec<(i64, i64)>,
}

/// A value that was sent to a log, or polled from it. Operations by index, [`NEVER`] when there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogMessage {
    pub(super) value: i64,
    /// The first invocation that sends it.
    pub(super) invocation: u64,
    /// The last completion of a send.
    pub(super) writer: u64,
    /// The first successful operation that polled it.
    pub(super) successful_reader: u64,
    /// Polls of it by successful operations; a number that does not fit is the largest.
    pub(super) polls: u32,
    pub(super) partition: u32,
    /// The operation of the graph that sent it, [`BEFORE_GRAPH`], or [`NO_SENDER`].
    pub(super) sender: u32,
    pub(super) is_acknowledged: bool,
    /// Did its last send certainly take effect?
    pub(super) is_committed: bool,
}

/// An operation of unknown outcome that sent messages.
pub(super) struct UncertainSend {
    pub(super) index: u64,
    pub(super) sent: Vec<(u32, Option<i64>)>,
}

impl UncertainSend {
    fn new(index: u64, sent: &[SentMessage]) -> UncertainSend {
        let sent = sent.iter().map(|sent| (sent.message, sent.offset));
        UncertainSend {
            index,
            sent: sent.collect(),
        }
    }
}

/// The worst delay of a poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    pub(super) nanoseconds: i64,
    pub(super) time: i64,
    pub(super) process: Process,
    pub(super) partition: u32,
}

/// Values by log, sorted: of as many logs as one process uses.
struct ByLog<T>(Vec<(u32, T)>);

impl<T> Default for ByLog<T> {
    fn default() -> ByLog<T> {
        ByLog(Vec::new())
    }
}

impl<T: Copy> ByLog<T> {
    fn get(&self, partition: u32) -> Option<T> {
        let place = self.0.binary_search_by_key(&partition, |one| one.0);
        place.ok().map(|place| self.0[place].1)
    }

    /// The value of a log, which is `absent` at first.
    fn entry(&mut self, partition: u32, absent: T) -> &mut T {
        let place = self.0.binary_search_by_key(&partition, |one| one.0);
        let place = place.unwrap_or_else(|place| {
            self.0.insert(place, (partition, absent));
            place
        });
        &mut self.0[place].1
    }

    fn retain(&mut self, logs: &BTreeSet<u32>) {
        self.0.retain(|one| logs.contains(&one.0));
    }
}

/// A process. Removed when it crashes: it does nothing more.
#[derive(Default)]
struct LogConsumer {
    /// By log: the last message that its last successful poll returned, if any, and that operation.
    polled: ByLog<(Option<u32>, u64)>,
    sent: ByLog<(u32, u64)>,
    /// By log: the highest offset that it has received or sent.
    offsets: ByLog<i64>,
    /// The operation under way, with the messages that it sends.
    open: Option<UncertainSend>,
}

/// An invocation or completion of a client that sends or polls.
#[derive(Clone, Copy)]
pub(super) struct LogEvent<'a> {
    pub(super) index: u64,
    pub(super) time: i64,
    pub(super) kind: OpType,
    pub(super) process: Process,
    pub(super) f: LogFunction,
    pub(super) invocation: Option<LogInvocation>,
    /// The operation's `rebalance-log`.
    pub(super) rebalances: Option<&'a Value>,
}

/// The invocation of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogInvocation {
    pub(super) index: u64,
    pub(super) time: i64,
    /// The next number of the graph.
    pub(super) floor: u32,
}

/// Logs and messages, by number.
#[derive(Default)]
pub(super) struct LogMessages {
    keys: FixedMap<Key, u32>,
    pub(super) partitions: Vec<Partition>,
    pub(super) messages: Vec<LogMessage>,
}

/// The state of all logs of one independent key.
#[derive(Default)]
pub(super) struct LogState {
    pub(super) log: LogMessages,
    consumers: FixedMap<Process, LogConsumer>,
    pub(super) uncertain: Vec<UncertainSend>,
    pub(super) adjacencies: Adjacencies,
    /// By message: the first send that failed.
    pub(super) failures: FixedMap<u32, u64>,
    /// By message: the first operation that polled it before any send of it was invoked.
    pub(super) unsent_polls: FixedMap<u32, u64>,
    /// By message: a successful operation that polled it before any send of it was invoked, unless the graph has that
    /// dependency.
    pub(super) early_readers: FixedMap<u32, u64>,
    /// Operation, and a message that it both sent and polled.
    pub(super) precommitted: Vec<(u64, u32)>,
    pub(super) is_subscribed: bool,
    pub(super) lag: Option<Lag>,
    /// From the first operation on that both polls and sends.
    pub(super) graph: Option<ReadGraph>,
    /// Successful operations that send or poll.
    pub(super) successes: u64,
    /// The first operation whose value cannot be read.
    pub(super) refused: Option<u64>,
    /// Messages acknowledged and not polled, over time.
    pub(super) unseen: UnseenSeries,
    /// Of the operation that is applied: the messages that it polled, in the order of [`LogEffects::polled`].
    numbers: Vec<u32>,
    /// Those of them whose senders may be on a cycle.
    candidates: Vec<u32>,
}

impl MessageNumbers for LogMessages {
    fn partition(&mut self, key: &Key) -> u32 {
        if let Some(&number) = self.keys.get(key) {
            return number;
        }
        let number = self.partitions.len() as u32;
        self.keys.insert(key.clone(), number);
        self.partitions.push(Partition {
            key: key.clone(),
            offsets: DenseTable::default(),
            values: DenseTable::default(),
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
        let values = &mut self.partitions[partition as usize].values;
        if let Some(number) = values.get(value) {
            return number;
        }
        let number = self.messages.len() as u32;
        assert!(number != NO_SENDER, "2^32 messages are more than fit");
        values.insert(value, number);
        self.messages.push(LogMessage {
            value,
            invocation: NEVER,
            writer: NEVER,
            successful_reader: NEVER,
            polls: 0,
            partition,
            sender: NO_SENDER,
            is_acknowledged: false,
            is_committed: false,
        });
        number
    }
}

impl LogState {
    /// The next number of the graph, as [`LogInvocation::floor`].
    pub(super) fn floor(&self) -> u32 {
        self.graph
            .as_ref()
            .map_or(BEFORE_GRAPH + 1, ReadGraph::next)
    }

    /// Applies the completion of an `assign` or `subscribe` that did not fail.
    pub(super) fn assign(&mut self, event: &LogEvent<'_>, value: &Value) {
        let keys: Option<BTreeSet<Key>> = match value {
            Value::List(keys) | Value::Set(keys) => keys.iter().map(Value::as_key).collect(),
            Value::Cas(one, other) => Some([*one, *other].map(Key::Int).into()),
            Value::Txn(mops) if mops.is_empty() => Some(BTreeSet::new()),
            _ => None,
        };
        let Some(keys) = keys else {
            self.refused.get_or_insert(event.index);
            return;
        };
        let keys: BTreeSet<u32> = keys.iter().map(|key| self.log.partition(key)).collect();
        let consumer = self.consumers.entry(event.process).or_default();
        consumer.polled.retain(&keys);
        consumer.sent.retain(&keys);
        if event.kind == OpType::Info {
            self.consumers.remove(&event.process);
        } else if event.f == LogFunction::Subscribe {
            consumer.offsets = ByLog::default();
        } else {
            consumer.offsets.retain(&keys);
            for key in keys {
                consumer.offsets.entry(key, -1);
            }
        }
    }

    /// Applies the invocation of an operation that sends or polls.
    pub(super) fn begin(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        if event.f == LogFunction::Txn && effects.has_poll && !effects.sent.is_empty() {
            self.graph.get_or_insert_default();
        }
        if effects.sent.is_empty() {
            return;
        }
        for sent in &effects.sent {
            let message = &mut self.log.messages[sent.message as usize];
            message.invocation = message.invocation.min(event.index);
        }
        let open = UncertainSend::new(event.index, &effects.sent);
        self.consumers.entry(event.process).or_default().open = Some(open);
    }

    /// Applies its completion.
    pub(super) fn end(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        self.successes += u64::from(event.kind == OpType::Ok);
        self.send(event, effects);
        self.poll(event, effects);
        self.join(event, effects);
        self.compare(event, effects);
        self.measure(event, effects);
        self.unseen.sample(event.time);
        if event.kind == OpType::Info {
            self.consumers.remove(&event.process);
        } else if let Some(consumer) = self.consumers.get_mut(&event.process) {
            consumer.open = None;
        }
    }

    fn send(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        let index = event.index;
        let sender = self.graph.as_ref().map_or(BEFORE_GRAPH, ReadGraph::next);
        for sent in &effects.sent {
            let message = &mut self.log.messages[sent.message as usize];
            message.writer = index;
            message.sender = sender;
            message.is_committed = event.kind == OpType::Ok;
            if event.kind == OpType::Ok && !message.is_acknowledged {
                message.is_acknowledged = true;
                self.unseen.change(i64::from(message.polls == 0));
            }
            if event.kind == OpType::Fail {
                let first = self.failures.entry(sent.message).or_insert(index);
                *first = index.min(*first);
            }
            if let (OpType::Ok, Some(offset)) = (event.kind, sent.offset) {
                self.log.partitions[sent.partition as usize].put(offset, sent.message, index);
            }
        }
        if event.kind == OpType::Info && !effects.sent.is_empty() {
            self.uncertain
                .push(UncertainSend::new(index, &effects.sent));
        }
    }

    /// Notes the messages polled, finds their numbers, and notes which come one after the other. Nearly the whole cost of a
    /// check: each message of each poll comes by here, once.
    fn poll(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        let (index, is_ok) = (event.index, event.kind == OpType::Ok);
        let rebalanced = event.rebalances.map(rebalanced).unwrap_or_default();
        let past = self.graph.as_ref().map(ReadGraph::past);
        self.numbers.clear();
        self.numbers.resize(effects.polled.len() / 2, NO_SENDER);
        self.candidates.clear();
        // The log of the run before, and its last message, to which the first of the next run of the log is adjacent.
        let mut before: Option<(u32, u32)> = None;
        for run in &effects.runs {
            let key = &self.log.partitions[run.partition as usize].key;
            let is_compared = rebalanced.is_empty() || !rebalanced.contains(key);
            let mut last = before
                .filter(|before| before.0 == run.partition)
                .map(|before| before.1);
            let places = run.start as usize / 2..run.end as usize / 2;
            let pairs = effects.polled[run.start as usize..run.end as usize].as_chunks::<2>();
            for (place, &[offset, value]) in places.zip(pairs.0) {
                let number = self.log.polled(run.partition, offset, value, index);
                self.numbers[place] = number;
                let message = &mut self.log.messages[number as usize];
                if message.invocation == NEVER {
                    let first = self.unsent_polls.entry(number).or_insert(index);
                    *first = index.min(*first);
                }
                if is_ok {
                    if message.polls == 0 {
                        self.unseen.change(-i64::from(message.is_acknowledged));
                    }
                    message.polls = message.polls.saturating_add(1);
                    message.successful_reader = message.successful_reader.min(index);
                    if message.invocation == NEVER && past.is_none() {
                        let first = self.early_readers.entry(number).or_insert(index);
                        *first = index.min(*first);
                    }
                }
                if past.is_some_and(|past| message.sender >= past) {
                    self.candidates.push(number);
                }
                if let Some(last) = last.replace(number)
                    && is_compared
                {
                    self.adjacencies.note_inside(last, number, index);
                }
            }
            before = last.map(|last| (run.partition, last));
        }
    }

    /// Adds the operation to the graph.
    fn join(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        let Some(graph) = &mut self.graph else {
            return;
        };
        let messages = &self.log.messages;
        let sender = |message: u32| messages[message as usize].sender;
        let polled = self.candidates.clone();
        let operation = CompletedOperation {
            index: event.index,
            started: event.invocation.map_or(event.index, |one| one.index),
            process: event.process,
            outcome: event.kind,
        };
        let floor = event.invocation.map_or(graph.next(), |one| one.floor);
        let sent = effects.sent.iter().map(|sent| sent.message);
        graph.add(operation, floor, polled, sent, sender);
    }

    /// Notes adjacencies from the process's operation before, and of what the operation sent.
    fn compare(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        let index = event.index;
        self.adjacencies.reserve(self.log.messages.len());
        let consumer = self.consumers.entry(event.process).or_default();
        let adjacencies = &mut self.adjacencies;
        for runs in effects.logs() {
            let partition = runs[0].partition;
            let polled = || polled(&self.numbers, runs);
            let (first, last) = (polled().next(), polled().next_back());
            if let Some((Some(last), before)) = consumer.polled.get(partition)
                && let Some(first) = first
            {
                adjacencies.note(MessageAdjacency::Polled, [last, first], [before, index]);
            }
            if event.kind == OpType::Ok {
                *consumer.polled.entry(partition, (None, 0)) = (last, index);
            }
        }
        if effects.sent.is_empty() {
            return;
        }
        let own = own_poll(&self.numbers, effects);
        self.precommitted
            .extend(own.map(|message| (index, message)));
        let mut sent: Vec<(u32, u32)> = effects
            .sent
            .iter()
            .map(|sent| (sent.partition, sent.message))
            .collect();
        // Stable: of one log in their order.
        sent.sort_by_key(|sent| sent.0);
        for sent in sent.chunk_by(|one, next| one.0 == next.0) {
            for pair in sent.windows(2) {
                let pair = [pair[0].1, pair[1].1];
                adjacencies.note(MessageAdjacency::SentInside, pair, [index; 2]);
            }
            if event.kind == OpType::Fail {
                continue;
            }
            let (partition, first) = sent[0];
            if let Some((last, before)) = consumer.sent.get(partition) {
                adjacencies.note(MessageAdjacency::Sent, [last, first], [before, index]);
            }
            *consumer.sent.entry(partition, (0, 0)) = (sent[sent.len() - 1].1, index);
        }
    }

    /// Updates the worst lag, by the offsets that the process has received now.
    fn measure(&mut self, event: &LogEvent<'_>, effects: &LogEffects) {
        if !matches!(event.kind, OpType::Ok | OpType::Info) {
            return;
        }
        let mut highest: ByLog<i64> = ByLog::default();
        for run in &effects.runs {
            let offsets = effects.polled[run.start as usize..run.end as usize].iter();
            let most = offsets.step_by(2).max().copied().unwrap_or(-1);
            let known = highest.entry(run.partition, -1);
            *known = most.max(*known);
        }
        for sent in &effects.sent {
            if let Some(offset) = sent.offset {
                let known = highest.entry(sent.partition, -1);
                *known = offset.max(*known);
            }
        }
        for &(partition, offset) in &highest.0 {
            self.log.partitions[partition as usize].grow(offset, event.time);
        }
        let is_poll = event.kind == OpType::Ok && event.f != LogFunction::Send;
        let Some(started) = event.invocation.filter(|_| is_poll) else {
            return;
        };
        let consumer = self.consumers.entry(event.process).or_default();
        for (partition, offset) in highest.0 {
            let seen = consumer.offsets.entry(partition, -1);
            *seen = offset.max(*seen);
        }
        for &(partition, offset) in &consumer.offsets.0 {
            let log = &self.log.partitions[partition as usize];
            let Some(known) = offset.checked_add(1).and_then(|next| log.known(next)) else {
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

    /// Ends the history: operations that never completed are of unknown outcome. What only operations need is given back.
    pub(super) fn close(&mut self) {
        for log in &mut self.log.partitions {
            log.values = DenseTable::default();
            log.heights = Vec::new();
        }
        let consumers = std::mem::take(&mut self.consumers);
        // By process: which of several messages at an offset comes first must not depend on a hash.
        let consumers: BTreeMap<Process, LogConsumer> = consumers.into_iter().collect();
        let open = consumers.into_values();
        for operation in open.filter_map(|consumer| consumer.open) {
            for &(message, _) in &operation.sent {
                let message = &mut self.log.messages[message as usize];
                if message.writer == NEVER {
                    message.writer = operation.index;
                }
            }
            self.uncertain.push(operation);
        }
    }
}

/// The messages of one log that an operation polled, in order.
fn polled<'a>(
    numbers: &'a [u32],
    runs: &'a [PolledRun],
) -> impl DoubleEndedIterator<Item = u32> + use<'a> {
    let runs = runs.iter();
    let runs = runs.map(|run| &numbers[run.start as usize / 2..run.end as usize / 2]);
    runs.flat_map(|run| run.iter().copied())
}

/// The first message, by log, that an operation polled and sent.
fn own_poll(numbers: &[u32], effects: &LogEffects) -> Option<u32> {
    effects.logs().find_map(|runs| {
        let is_sent = |message: u32| effects.sent.iter().any(|sent| sent.message == message);
        let partition = runs[0].partition;
        if effects.sent.iter().all(|sent| sent.partition != partition) {
            return None;
        }
        polled(numbers, runs).find(|message| is_sent(*message))
    })
}

/// Logs whose assignment changed while the operation was under way.
fn rebalanced(log: &Value) -> BTreeSet<Key> {
    let Value::List(changes) = log else {
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

impl LogMessages {
    /// The number of a message that was polled with this offset.
    #[inline]
    fn polled(&mut self, partition: u32, offset: i64, value: i64, index: u64) -> u32 {
        let log = &self.partitions[partition as usize];
        // Almost always some operation has reported this message here before.
        if let Some(entry) = log.offsets.get(offset)
            && self.messages[entry.message as usize].value == value
        {
            return entry.message;
        }
        let number = self.message(partition, value);
        self.partitions[partition as usize].put(offset, number, index);
        number
    }
}

impl Partition {
    /// An operation reports this message at this offset.
    pub(super) fn put(&mut self, offset: i64, message: u32, index: u64) {
        let Some(known) = self.offsets.get(offset) else {
            self.offsets.insert(offset, OffsetEntry { message, index });
            return;
        };
        if known.message != message {
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
        // Most consumers are at the end.
        if self.heights.last().is_none_or(|last| last.0 < offset) {
            return None;
        }
        let place = self.heights.partition_point(|height| height.0 < offset);
        self.heights.get(place).map(|height| height.1)
    }
}

/// Points in a series over time.
const POINTS_MAX: usize = 128;

/// Messages that were acknowledged and that no successful operation has polled so far, over time.
///
/// One point for each of equal intervals, with the largest number in it; intervals double when there are too many.
#[derive(Default)]
pub(super) struct UnseenSeries {
    now: i64,
    pub(super) most: i64,
    /// Length of an interval in nanoseconds.
    width: i64,
    /// Number of the interval, largest number in it.
    pub(super) points: Vec<(i64, i64)>,
}

impl UnseenSeries {
    fn change(&mut self, difference: i64) {
        self.now += difference;
    }

    /// Takes the present number into account.
    fn sample(&mut self, time: i64) {
        self.most = self.most.max(self.now);
        self.width = self.width.max(1);
        let place = time.div_euclid(self.width);
        match self.points.last_mut() {
            // Times may be missing, or go back by a little.
            Some(last) if last.0 >= place => last.1 = last.1.max(self.now),
            _ => self.points.push((place, self.now)),
        }
        while self.points.len() > POINTS_MAX {
            self.width *= 2;
            let all = std::mem::take(&mut self.points);
            for (place, most) in all {
                let place = place.div_euclid(2);
                match self.points.last_mut() {
                    Some(last) if last.0 == place => last.1 = last.1.max(most),
                    _ => self.points.push((place, most)),
                }
            }
        }
    }

    /// Points: the time at which an interval begins, and the largest number in it.
    pub(super) fn points(&self) -> impl Iterator<Item = (i64, i64)> {
        let points = self.points.iter();
        points.map(|&(place, most)| (place.saturating_mul(self.width), most))
    }
}
