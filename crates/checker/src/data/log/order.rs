//! The order of each log, and what it says of the operations.

use super::state::{Message, NEVER, Neighbours, Seen, State};
use crate::Anomaly;
use crate::data::outcome::Outcome;
use crate::txn::{Cycle, cycles};
use serde_json::json;
use std::collections::BTreeMap;

/// Where a message is in its log, by dense place: places have no gaps where offsets have some.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The last place of which it is the message, when several are at one offset that with the least value.
    order: Option<u32>,
    first: u32,
    last: u32,
    /// At how many offsets it is.
    times: u32,
}

/// Where messages are, and the message of each place.
struct Orders {
    places: Vec<Place>,
    /// By log and place.
    logs: Vec<Vec<u32>>,
}

/// What is found out, and what of it is only counted.
struct Judgement<'a> {
    state: &'a State,
    orders: Orders,
    outcome: &'a mut Outcome,
    tolerated: BTreeMap<Anomaly, u64>,
}

/// Tells what is wrong.
pub(super) fn judge(mut state: State, outcome: &mut Outcome) {
    state.close();
    commit(&mut state);
    let orders = orders(&state);
    outcome.count("logs", state.partitions.len() as u64);
    outcome.count("messages", state.messages.len() as u64);
    outcome.count("successes", state.successes);
    if let Some(index) = state.refused {
        outcome.unknown(format!("op {index}: its value does nothing to logs"));
    }
    if state.successes == 0 {
        outcome.silent("nothing was ever sent or polled");
    }
    outcome.figure("is_subscribed", state.is_subscribed.into());
    if let Some(lag) = state.lag {
        let key = &state.partitions[lag.partition as usize].key;
        let lag = json!({
            "nanoseconds": lag.nanoseconds,
            "time": lag.time,
            "process": lag.process.to_string(),
            "key": key.to_string(),
        });
        outcome.figure("worst_lag", lag);
    }
    let mut judgement = Judgement {
        state: &state,
        orders,
        outcome,
        tolerated: BTreeMap::new(),
    };
    judgement.offsets();
    judgement.messages();
    judgement.lost();
    judgement.neighbours();
    judgement.cycles();
    let tolerated = json!(judgement.tolerated);
    outcome.figure("tolerated", tolerated);
}

/// Operations of unknown outcome of which a message was polled took effect: where they sent to is known.
fn commit(state: &mut State) {
    for operation in std::mem::take(&mut state.uncertain) {
        let polled = |(message, _): &(u32, _)| state.messages[*message as usize].polls > 0;
        if !operation.sent.iter().any(polled) {
            continue;
        }
        for (number, offset) in operation.sent {
            let message = &mut state.messages[number as usize];
            message.is_committed |= message.writer == operation.index;
            let partition = message.partition as usize;
            if let Some(offset) = offset {
                state.partitions[partition].put(offset, number, operation.index);
            }
        }
    }
}

fn orders(state: &State) -> Orders {
    let mut places = vec![Place::default(); state.messages.len()];
    let mut logs = Vec::with_capacity(state.partitions.len());
    for partition in &state.partitions {
        let mut log = Vec::with_capacity(partition.offsets.len());
        for (offset, &(message, _)) in &partition.offsets {
            let place = log.len() as u32;
            let others = partition.conflicts.get(offset).into_iter().flatten();
            let mut least = message;
            for message in others.map(|other| other.0).chain([message]) {
                let one = &mut places[message as usize];
                if one.times == 0 {
                    one.first = place;
                }
                one.last = place;
                one.times += 1;
                if state.messages[message as usize].value < state.messages[least as usize].value {
                    least = message;
                }
            }
            places[least as usize].order = Some(place);
            log.push(least);
        }
        logs.push(log);
    }
    Orders { places, logs }
}

impl Judgement<'_> {
    fn tell(
        &mut self,
        anomaly: Anomaly,
        count: u64,
        tell: impl FnOnce(&State, &Orders) -> (Vec<u64>, String),
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
            self.outcome
                .anomalies(anomaly, count, || tell(state, orders));
        }
    }

    /// Offsets with several messages, and messages with several offsets.
    fn offsets(&mut self) {
        let state = self.state;
        for partition in &state.partitions {
            for (offset, others) in &partition.conflicts {
                let (message, index) = partition.offsets[offset];
                self.tell("inconsistent-offsets", 1, |state, _| {
                    let mut all = others.clone();
                    all.insert(0, (message, index));
                    let said = all.iter().map(|(message, index)| {
                        let value = state.messages[*message as usize].value;
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
        for (number, place) in self.orders.places.clone().into_iter().enumerate() {
            if place.times > 1 {
                self.tell("duplicate", 1, |state, _| duplicate(state, number as u32));
            }
        }
    }

    /// What can be said of each message alone.
    fn messages(&mut self) {
        for message in &self.state.messages {
            let Message { value, .. } = *message;
            let key = &self.state.partitions[message.partition as usize].key;
            if message.failure != NEVER {
                self.tell("G1a", message.polls, |_, _| {
                    let (reader, writer) = (message.successful_reader, message.failure);
                    let summary = format!(
                        "Op {reader} polled {value} from {key}, whose send failed (op {writer})."
                    );
                    (vec![writer, reader], summary)
                });
            }
            if message.is_acknowledged && message.polls == 0 {
                self.tell("unseen", 1, |_, _| {
                    let writer = message.writer;
                    let summary =
                        format!("Op {writer} sent {value} to {key}, and nobody ever polled it.");
                    (vec![writer], summary)
                });
            }
            if message.reader != NEVER && message.invocation == NEVER && message.writer == NEVER {
                self.tell("unexpected", 1, |_, _| {
                    let reader = message.reader;
                    let summary = format!(
                        "Op {reader} polled {value} from {key}, which nobody ever tried to send."
                    );
                    (vec![reader], summary)
                });
            } else if message.early_reader != NEVER && message.invocation != NEVER {
                self.tell("G1c-realtime", 1, |_, _| {
                    let (reader, writer) = (message.early_reader, message.invocation);
                    let summary = format!(
                        "Op {reader} had polled {value} from {key} when op {writer} began to send it."
                    );
                    (vec![reader, writer], summary)
                });
            }
        }
        for &(index, number) in &self.state.precommitted {
            self.tell("precommitted-read", 1, |state, _| {
                let Message {
                    value, partition, ..
                } = state.messages[number as usize];
                let key = &state.partitions[partition as usize].key;
                let summary =
                    format!("Op {index} polled {value} from {key}, which it sent itself.");
                (vec![index], summary)
            });
        }
    }

    /// Messages that took effect, lie before one that was polled, and were not.
    fn lost(&mut self) {
        // By log the last of the first places of messages that were polled.
        let mut bounds: Vec<Option<(u32, u32)>> = vec![None; self.state.partitions.len()];
        let polled = self.state.messages.iter().zip(&self.orders.places).zip(0..);
        for ((message, place), number) in polled {
            let bound = &mut bounds[message.partition as usize];
            let is_known = message.polls > 0 && place.times > 0;
            if is_known && bound.is_none_or(|(last, _)| last < place.first) {
                *bound = Some((place.first, number));
            }
        }
        for (number, message) in self.state.messages.iter().enumerate() {
            let place = self.orders.places[number];
            let Some((bound, last)) = bounds[message.partition as usize] else {
                continue;
            };
            if message.polls > 0 || place.times == 0 || place.last > bound || !message.is_committed
            {
                continue;
            }
            self.tell("lost-write", 1, |state, _| {
                let last = state.messages[last as usize];
                let (writer, reader) = (message.writer, last.successful_reader);
                let key = &state.partitions[message.partition as usize].key;
                let summary = format!(
                    "Op {writer} sent {} to {key}, nobody polled it, and op {reader} polled {}, which lies behind it.",
                    message.value, last.value
                );
                (vec![writer, reader], summary)
            });
        }
    }

    /// Neighbours that the log does not have side by side.
    fn neighbours(&mut self) {
        let mut wrong: Vec<(i64, Neighbours, [u32; 2], Seen)> = Vec::new();
        for (&(kind, one, next), &seen) in &self.state.neighbours {
            let place = |message: u32| self.orders.places[message as usize].order;
            if let (Some(from), Some(to)) = (place(one), place(next)) {
                let delta = i64::from(to) - i64::from(from);
                if delta != 1 {
                    wrong.push((delta, kind, [one, next], seen));
                }
            }
        }
        // The worst first, then in the order of the history.
        wrong
            .sort_by_key(|(delta, kind, pair, seen)| (*kind, -delta.abs(), seen.operations, *pair));
        for (delta, kind, [one, next], seen) in wrong {
            let anomaly = match (kind, delta > 1) {
                (Neighbours::Polled, true) => "poll-skip",
                (Neighbours::Polled, false) => "nonmonotonic-poll",
                (Neighbours::PolledInside, true) => "int-poll-skip",
                (Neighbours::PolledInside, false) => "int-nonmonotonic-poll",
                (Neighbours::Sent, true) => continue,
                (Neighbours::Sent, false) => "nonmonotonic-send",
                (Neighbours::SentInside, true) => "int-send-skip",
                (Neighbours::SentInside, false) => "int-nonmonotonic-send",
            };
            self.tell(anomaly, seen.count, |state, orders| {
                neighbours(state, orders, kind, [one, next], seen, delta)
            });
        }
    }

    /// Cycles of operations that poll and send.
    fn cycles(&mut self) {
        let Some(dependencies) = &self.state.dependencies else {
            return;
        };
        let messages = &self.state.messages;
        let node = |message: u32| messages[message as usize].node;
        let polled = dependencies.polled.iter();
        let mut reads: Vec<(u32, u32)> = polled
            .filter_map(|&(reader, message)| Some((node(message)?, reader)))
            .collect();
        reads.sort_unstable();
        reads.dedup();
        let mut writes: Vec<(u32, u32)> = Vec::new();
        for log in &self.orders.logs {
            let pairs = log
                .windows(2)
                .filter_map(|pair| Some((node(pair[0])?, node(pair[1])?)));
            writes.extend(pairs);
        }
        writes.sort_unstable();
        writes.dedup();
        let members = &dependencies.members;
        self.outcome.count("transactions", members.len() as u64);
        for Cycle { anomaly, steps } in cycles(members, &reads, &writes) {
            self.tell(anomaly, 1, |_, _| {
                let said = steps.iter().map(|(from, to, relation)| match *relation {
                    "wr" => format!("op {to} polled what op {from} sent"),
                    "ww" => format!("op {to} sent behind what op {from} sent"),
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

fn duplicate(state: &State, number: u32) -> (Vec<u64>, String) {
    let Message {
        value, partition, ..
    } = state.messages[number as usize];
    let partition = &state.partitions[partition as usize];
    let mut found = Vec::new();
    for (offset, &(message, index)) in &partition.offsets {
        let others = partition
            .conflicts
            .get(offset)
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
    state: &State,
    orders: &Orders,
    kind: Neighbours,
    pair: [u32; 2],
    seen: Seen,
    delta: i64,
) -> (Vec<u64>, String) {
    let [one, next] = pair.map(|message| state.messages[message as usize].value);
    let partition = state.messages[pair[0] as usize].partition as usize;
    let key = &state.partitions[partition].key;
    let [before, index] = seen.operations;
    let what = match kind {
        Neighbours::Polled => {
            format!("Op {before} polled {one} last from {key}, and op {index} {next} next")
        }
        Neighbours::PolledInside => format!("Op {index} polled {one} and then {next} from {key}"),
        Neighbours::Sent => {
            format!("Op {before} sent {one} last to {key}, and op {index} {next} next")
        }
        Neighbours::SentInside => format!("Op {index} sent {one} and then {next} to {key}"),
    };
    let why = if delta > 1 {
        let from = orders.places[pair[0] as usize]
            .order
            .map_or(0, |place| place as usize + 1);
        let skipped = orders.logs[partition][from..]
            .iter()
            .take(delta as usize - 1);
        let values = skipped.clone().take(SHOWN_MAX);
        let values = values.map(|message| state.messages[*message as usize].value.to_string());
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
