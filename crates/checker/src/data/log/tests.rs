//! Logs against a twin that is written down from `jepsen.tests.kafka`, without a thought for speed.

use super::*;
use crate::data::tests::{Counts, counts, no_beginning_is_invalid};
use crate::{Aims, Validity, check_source};
use seatrial_history::{Extra, Key, LogMop, Op, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A client of two logs, which do not always do what they should.
struct LogClient {
    process: u64,
    positions: BTreeMap<i64, usize>,
    open: Option<Op>,
}

/// Two logs: offsets and values.
struct Traffic {
    logs: [Vec<(i64, i64)>; 2],
    next: i64,
    sloppiness: f64,
}

impl Traffic {
    fn send(&mut self, rng: &mut Rng, key: i64, value: i64) -> i64 {
        let log = &mut self.logs[key as usize];
        // Offsets have gaps.
        let offset = log
            .last()
            .map_or(0, |last| last.0 + 1 + rng.below(2) as i64);
        let place = if rng.chance(self.sloppiness) {
            rng.index(log.len() + 1)
        } else {
            log.len()
        };
        match if rng.chance(self.sloppiness) {
            rng.below(4)
        } else {
            9
        } {
            0 => {}
            1 => log.extend([(offset, value), (offset + 1, value)]),
            2 => log.push((log.last().map_or(0, |last| last.0), value)),
            _ if place < log.len() => log[place].1 = value,
            _ => log.push((offset, value)),
        }
        offset
    }

    fn poll(&mut self, rng: &mut Rng, positions: &mut BTreeMap<i64, usize>) -> LogMop {
        let mut logs = Vec::new();
        for (&key, position) in positions {
            let log = &self.logs[key as usize];
            if rng.chance(self.sloppiness) {
                *position = (*position + rng.index(4)).saturating_sub(1);
            }
            let from = (*position).min(log.len());
            let to = (from + 1 + rng.index(3)).min(log.len());
            *position = to;
            let mut messages = log[from..to].to_vec();
            if rng.chance(self.sloppiness) {
                messages.reverse();
            }
            if rng.chance(self.sloppiness / 4.0) {
                messages.push((77, 1_000 + rng.below(3) as i64));
            }
            if !messages.is_empty() || rng.below(4) == 0 {
                logs.push((Key::Int(key), messages));
            }
        }
        LogMop::Poll {
            messages: Some(logs),
        }
    }

    /// What an operation does, and what it sees of that: it polls what others sent, and then sends.
    fn run(
        &mut self,
        rng: &mut Rng,
        op: &Op,
        positions: &mut BTreeMap<i64, usize>,
        takes: bool,
    ) -> Value {
        let mut mops = op.value.as_log().unwrap();
        let is_dirty = rng.chance(self.sloppiness);
        for polls in [!is_dirty, is_dirty] {
            for mop in &mut mops {
                match mop {
                    LogMop::Poll { messages } if polls => {
                        let LogMop::Poll { messages: seen } = self.poll(rng, positions) else {
                            panic!()
                        };
                        *messages = seen;
                    }
                    LogMop::Send {
                        key: Key::Int(key),
                        offset,
                        value,
                    } if !polls && takes && offset.is_none() => {
                        *offset = Some(self.send(rng, *key, *value));
                    }
                    _ => {}
                }
            }
        }
        Value::log(&mops)
    }

    /// Somebody polls all that is there.
    fn rest(&self, process: u64) -> [Op; 4] {
        let process = Process::Client(process);
        let assign = Op::invoke(process, "assign", Value::integers(&[0, 1]));
        let poll = Value::log(&[LogMop::Poll { messages: None }]);
        let poll = Op::invoke(process, "poll", poll);
        let logs = self.logs.iter().zip(0..);
        let all = logs.map(|(log, key)| (Key::Int(key), log.clone()));
        let all = LogMop::Poll {
            messages: Some(all.collect()),
        };
        let assigned = assign.complete(OpType::Ok, assign.value.clone());
        let polled = poll.complete(OpType::Ok, Value::log(&[all]));
        [assign, assigned, poll, polled]
    }

    /// Ends an operation so: its completion, and where the client is then.
    fn complete(
        &mut self,
        rng: &mut Rng,
        open: &Op,
        kind: OpType,
        mut positions: BTreeMap<i64, usize>,
    ) -> (Op, BTreeMap<i64, usize>) {
        let value = if let Some(keys) = open.value.as_integers() {
            let old = std::mem::take(&mut positions);
            let begin = |key: &i64| (*key, old.get(key).copied().unwrap_or(0));
            positions = keys.iter().map(begin).collect();
            open.value.clone()
        } else {
            let takes = match kind {
                OpType::Ok => true,
                OpType::Info => rng.below(2) == 0,
                _ => rng.chance(self.sloppiness),
            };
            let value = self.run(rng, open, &mut positions, takes);
            match kind {
                OpType::Ok => value,
                _ => rng.pick(&[Value::Nil, open.value.clone(), value]).clone(),
            }
        };
        let mut completion = open.complete(kind, value);
        if rng.below(6) == 0 {
            let keys = (Value::Word(Symbol::new("keys")), Value::integers(&[1]));
            let change = Value::List([Value::Map([keys].into())].into());
            completion.extra = Extra::new(&[(Symbol::new("rebalance-log"), change)]);
        }
        (completion, positions)
    }

    /// Now and then what an operation sends is there as soon as it begins.
    fn early(&mut self, rng: &mut Rng, op: &Op) -> Value {
        let Some(mut mops) = op.value.as_log() else {
            return op.value.clone();
        };
        if !rng.chance(3.0 * self.sloppiness) {
            return op.value.clone();
        }
        for mop in &mut mops {
            if let LogMop::Send {
                key: Key::Int(key),
                offset,
                value,
            } = mop
            {
                *offset = Some(self.send(rng, *key, *value));
            }
        }
        Value::log(&mops)
    }

    fn invoke(&mut self, rng: &mut Rng, process: u64, has_logs: bool, via: &'static str) -> Op {
        let process = Process::Client(process);
        if !has_logs || rng.below(8) == 0 {
            let choices: [&[i64]; 4] = [&[0, 1], &[0, 1], &[1], &[]];
            let keys = *rng.pick(&choices);
            return Op::invoke(process, via, Value::integers(keys));
        }
        let mut kinds = BTreeSet::new();
        let mops: Vec<_> = (0..=rng.below(3))
            .map(|_| {
                let polls = rng.below(2) == 0;
                kinds.insert(polls);
                if polls {
                    return LogMop::Poll { messages: None };
                }
                self.next += 1;
                LogMop::Send {
                    key: Key::Int(rng.below(2) as i64),
                    offset: None,
                    value: self.next,
                }
            })
            .collect();
        let f = match kinds.into_iter().collect::<Vec<_>>()[..] {
            [true] => "poll",
            [false] => "send",
            _ => "txn",
        };
        Op::invoke(process, f, Value::log(&mops))
    }
}

fn traffic(rng: &mut Rng) -> History {
    let mut traffic = Traffic {
        logs: [Vec::new(), Vec::new()],
        next: 0,
        sloppiness: *rng.pick(&[0.0, 0.0, 0.03, 0.15]),
    };
    let via = *rng.pick(&["assign", "assign", "subscribe"]);
    let mut number = 0;
    let mut client = || {
        number += 1;
        LogClient {
            process: number,
            positions: BTreeMap::new(),
            open: None,
        }
    };
    let mut clients = [client(), client(), client()];
    let mut ops: Vec<Op> = Vec::new();
    for _ in 0..8 + rng.below(48) {
        let one = &mut clients[rng.index(3)];
        let Some(open) = one.open.take() else {
            let has_logs = !one.positions.is_empty() || rng.below(4) == 0;
            let op = traffic.invoke(rng, one.process, has_logs, via);
            ops.push(op.clone());
            let early = traffic.early(rng, &op);
            one.open = Some(Op { value: early, ..op });
            continue;
        };
        let kind = *rng.pick(&[
            OpType::Ok,
            OpType::Ok,
            OpType::Ok,
            OpType::Ok,
            OpType::Fail,
            OpType::Info,
        ]);
        let (completion, positions) = traffic.complete(rng, &open, kind, one.positions.clone());
        ops.push(completion);
        match kind {
            OpType::Ok => one.positions = positions,
            OpType::Info => *one = client(),
            _ => {}
        }
    }
    if rng.below(4) > 0 {
        ops.extend(traffic.rest(client().process));
    }
    for (op, time) in ops.iter_mut().zip(0..) {
        op.time = time * 10;
    }
    History::from_unindexed(ops)
}

/// A completion and all that it says.
struct Done<'a> {
    op: &'a Op,
    started: usize,
    writes: BTreeMap<i64, Vec<(Option<i64>, i64)>>,
    reads: BTreeMap<i64, Vec<(i64, i64)>>,
}

fn done(history: &History) -> Vec<Done<'_>> {
    let ops = history.iter().enumerate().filter(|(_, op)| !op.is_invoke());
    ops.map(|(at, op)| {
        let started = history.pair(at).unwrap();
        let value = if op.value == Value::Nil {
            &history.ops()[started].value
        } else {
            &op.value
        };
        let (mut writes, mut reads) = (BTreeMap::new(), BTreeMap::new());
        for mop in value.as_log().unwrap_or_default() {
            match mop {
                LogMop::Send {
                    key: Key::Int(key),
                    offset,
                    value,
                } => {
                    writes
                        .entry(key)
                        .or_insert_with(Vec::new)
                        .push((offset, value));
                }
                LogMop::Poll {
                    messages: Some(logs),
                } => {
                    for (key, messages) in logs {
                        let Key::Int(key) = key else { panic!() };
                        reads.entry(key).or_insert_with(Vec::new).extend(messages);
                    }
                }
                _ => {}
            }
        }
        Done {
            op,
            started,
            writes,
            reads,
        }
    })
    .collect()
}

/// What `jepsen.tests.kafka` works with: completions, what was polled for sure, and messages by log and offset.
struct LogTwin<'a> {
    history: &'a History,
    all: Vec<Done<'a>>,
    read_ok: BTreeSet<(i64, i64)>,
    logs: BTreeMap<i64, BTreeMap<i64, BTreeSet<i64>>>,
    found: BTreeMap<&'static str, usize>,
}

/// Did what it sent take effect?
fn is_committed(one: &Done<'_>, read_ok: &BTreeSet<(i64, i64)>) -> bool {
    let mut sent = one
        .writes
        .iter()
        .flat_map(|(key, sent)| sent.iter().map(|pair| (*key, pair.1)));
    one.op.is_ok() || one.op.is_info() && sent.any(|message| read_ok.contains(&message))
}

fn twin(history: &History) -> Counts {
    let all = done(history);
    let read_ok: BTreeSet<(i64, i64)> = all
        .iter()
        .filter(|one| one.op.is_ok())
        .flat_map(|one| {
            one.reads
                .iter()
                .flat_map(|(key, read)| read.iter().map(|pair| (*key, pair.1)))
        })
        .collect();
    let mut logs: BTreeMap<i64, BTreeMap<i64, BTreeSet<i64>>> = BTreeMap::new();
    for one in &all {
        for (key, read) in &one.reads {
            for (offset, value) in read {
                logs.entry(*key)
                    .or_default()
                    .entry(*offset)
                    .or_default()
                    .insert(*value);
            }
        }
        if is_committed(one, &read_ok) {
            for (key, sent) in &one.writes {
                for (offset, value) in sent {
                    if let Some(offset) = offset {
                        logs.entry(*key)
                            .or_default()
                            .entry(*offset)
                            .or_default()
                            .insert(*value);
                    }
                }
            }
        }
    }
    let mut twin = LogTwin {
        history,
        all,
        read_ok,
        logs,
        found: BTreeMap::new(),
    };
    twin.offsets();
    twin.alone();
    twin.lost();
    for process in twin
        .all
        .iter()
        .map(|one| one.op.process)
        .collect::<BTreeSet<_>>()
    {
        twin.process(process);
    }
    let found: Vec<_> = twin.found.into_iter().collect();
    counts(&found)
}

impl LogTwin<'_> {
    fn place(&self, key: i64, value: i64) -> Option<i64> {
        let log = self.logs.get(&key)?;
        log.values()
            .rposition(|values| *values.first().unwrap() == value)
            .map(|place| place as i64)
    }

    fn delta(&self, key: i64, one: i64, next: i64) -> i64 {
        match (self.place(key, one), self.place(key, next)) {
            (Some(from), Some(to)) => to - from,
            _ => 1,
        }
    }

    fn add(&mut self, name: &'static str, count: usize) {
        *self.found.entry(name).or_default() += count;
    }

    fn of_kind(&self, kind: OpType) -> BTreeSet<(i64, i64)> {
        let some = self.all.iter().filter(|one| one.op.kind == kind);
        some.flat_map(|one| {
            let writes = one.writes.iter();
            writes.flat_map(|(key, sent)| sent.iter().map(|pair| (*key, pair.1)))
        })
        .collect()
    }

    fn offsets(&mut self) {
        for log in self.logs.clone().values() {
            let several = log.values().filter(|values| values.len() > 1).count();
            self.add("inconsistent-offsets", several);
            let values: BTreeSet<i64> = log.values().flatten().copied().collect();
            let offsets =
                |value: &i64| log.values().filter(|values| values.contains(value)).count();
            self.add(
                "duplicate",
                values.iter().filter(|value| offsets(value) > 1).count(),
            );
        }
    }

    fn tried(&self) -> BTreeSet<(i64, i64)> {
        let invocations = self.history.iter().filter(|op| op.is_invoke());
        let mops = invocations.flat_map(|op| op.value.as_log().unwrap_or_default());
        let sends = mops.filter_map(|mop| match mop {
            LogMop::Send {
                key: Key::Int(key),
                value,
                ..
            } => Some((key, value)),
            _ => None,
        });
        sends.collect()
    }

    /// What each operation and each message says alone.
    fn alone(&mut self) {
        let (failed, tried) = (self.of_kind(OpType::Fail), self.tried());
        let mut unexpected = BTreeSet::new();
        let mut found = Vec::new();
        for one in &self.all {
            for (key, read) in &one.reads {
                let all = || read.iter().map(|pair| (*key, pair.1));
                if one.op.is_ok() {
                    found.push(("G1a", all().filter(|one| failed.contains(one)).count()));
                }
                unexpected.extend(all().filter(|one| !tried.contains(one)));
                let moved = one.op.extra.get("rebalance-log").is_some() && *key == 1;
                for pair in read.windows(2).filter(|_| !moved) {
                    match self.delta(*key, pair[0].1, pair[1].1) {
                        1 => {}
                        2.. => found.push(("int-poll-skip", 1)),
                        _ => found.push(("int-nonmonotonic-poll", 1)),
                    }
                }
            }
            let own = |(key, sent): (&i64, &Vec<(Option<i64>, i64)>)| {
                let read = one.reads.get(key).map_or(&[][..], |read| read);
                read.iter()
                    .any(|pair| sent.iter().any(|other| other.1 == pair.1))
            };
            found.push(("precommitted-read", usize::from(one.writes.iter().any(own))));
            for (key, sent) in &one.writes {
                for pair in sent.windows(2) {
                    match self.delta(*key, pair[0].1, pair[1].1) {
                        1 => {}
                        2.. => found.push(("int-send-skip", 1)),
                        _ => found.push(("int-nonmonotonic-send", 1)),
                    }
                }
            }
        }
        found.push(("unexpected", unexpected.len()));
        found.push((
            "unseen",
            self.of_kind(OpType::Ok).difference(&self.read_ok).count(),
        ));
        for (name, count) in found {
            self.add(name, count);
        }
    }

    fn lost(&mut self) {
        let writer = |key: i64, value: i64| {
            let sends = |one: &&Done<'_>| {
                let sent = one.writes.get(&key);
                sent.is_some_and(|sent| sent.iter().any(|pair| pair.1 == value))
            };
            self.all.iter().rfind(sends)
        };
        let mut found = 0;
        for (key, log) in &self.logs {
            let first = |value: i64| log.values().position(|values| values.contains(&value));
            let read = self.read_ok.iter().filter(|one| one.0 == *key);
            let Some(bound) = read.filter_map(|one| first(one.1)).max() else {
                continue;
            };
            let values: BTreeSet<i64> = log.values().flatten().copied().collect();
            let lost = values.iter().filter(|value| {
                let last = log.values().rposition(|values| values.contains(value));
                last <= Some(bound)
                    && !self.read_ok.contains(&(*key, **value))
                    && writer(*key, **value).is_some_and(|one| is_committed(one, &self.read_ok))
            });
            found += lost.count();
        }
        self.add("lost-write", found);
    }

    /// What the operations of a process say one after the other.
    fn process(&mut self, process: Process) {
        let mut found = Vec::new();
        let (mut polled, mut sent) = (BTreeMap::new(), BTreeMap::new());
        for one in self.all.iter().filter(|one| one.op.process == process) {
            if one.op.f == "assign" || one.op.f == "subscribe" {
                let value = if one.op.value == Value::Nil {
                    &self.history.ops()[one.started].value
                } else {
                    &one.op.value
                };
                let keys = value.as_integers().unwrap_or_default();
                if !one.op.is_fail() {
                    polled.retain(|key, _| keys.contains(key));
                    sent.retain(|key, _| keys.contains(key));
                }
                continue;
            }
            for (key, read) in &one.reads {
                if let (Some(Some(last)), Some(first)) = (polled.get(key), read.first()) {
                    match self.delta(*key, *last, first.1) {
                        1 => {}
                        2.. => found.push(("poll-skip", 1)),
                        _ => found.push(("nonmonotonic-poll", 1)),
                    }
                }
                if one.op.is_ok() {
                    polled.insert(*key, read.last().map(|pair| pair.1));
                }
            }
            for (key, values) in one.writes.iter().filter(|_| !one.op.is_fail()) {
                if let Some(last) = sent.get(key)
                    && self.delta(*key, *last, values[0].1) < 1
                {
                    found.push(("nonmonotonic-send", 1));
                }
                sent.insert(*key, values[values.len() - 1].1);
            }
        }
        for (name, count) in found {
            self.add(name, count);
        }
    }
}

/// Is there a cycle of what was polled, the order of processes and real time?
fn is_cyclic(history: &History) -> bool {
    let all = done(history);
    let sends = |one: &Done<'_>, key: &i64, value: i64| {
        one.writes
            .get(key)
            .is_some_and(|sent| sent.iter().any(|pair| pair.1 == value))
    };
    let count = all.len();
    let mut edges = vec![vec![false; count]; count];
    for (to, reader) in all.iter().enumerate() {
        for (key, read) in &reader.reads {
            for pair in read {
                let writer = all.iter().rposition(|one| sends(one, key, pair.1));
                if let Some(from) = writer.filter(|from| *from != to) {
                    edges[from][to] = true;
                }
            }
        }
        let is_log = |one: &Done<'_>| {
            matches!(one.op.f.as_str(), "send" | "poll" | "txn") && !one.op.is_fail()
        };
        for (from, before) in all.iter().enumerate() {
            edges[from][to] |= is_log(before)
                && is_log(reader)
                && before.op.is_ok()
                && (before.op.index as usize) < reader.started;
        }
    }
    for middle in 0..count {
        let onwards = edges[middle].clone();
        for row in edges.iter_mut().filter(|row| row[middle]) {
            for (to, &there) in onwards.iter().enumerate() {
                row[to] |= there;
            }
        }
    }
    (0..count).any(|one| edges[one][one])
}

/// The worst lag, as its definition has it: how long before a poll began what is behind the process's offset was known.
fn worst_lag(history: &History) -> i64 {
    let all = done(history);
    let highest = |one: &Done<'_>, key: i64| {
        let read = one
            .reads
            .get(&key)
            .map(|read| read.iter().map(|pair| pair.0).max().unwrap_or(-1));
        let sent = one
            .writes
            .get(&key)
            .into_iter()
            .flatten()
            .filter_map(|pair| pair.0)
            .max();
        read.max(sent)
    };
    let mut offsets: BTreeMap<(Process, i64), i64> = BTreeMap::new();
    let mut worst = 0;
    for one in all.iter().filter(|one| one.op.is_ok()) {
        let process = one.op.process;
        match one.op.f.as_str() {
            "assign" | "subscribe" => {
                let keys = one.op.value.as_integers().unwrap_or_default();
                let stays = |key: i64| one.op.f == "assign" && keys.contains(&key);
                offsets.retain(|(owner, key), _| *owner != process || stays(*key));
                for key in keys.into_iter().filter(|_| one.op.f == "assign") {
                    offsets.entry((process, key)).or_insert(-1);
                }
            }
            "poll" | "txn" => {
                for key in [0, 1] {
                    if let Some(offset) = highest(one, key) {
                        let known = offsets.entry((process, key)).or_insert(-1);
                        *known = offset.max(*known);
                    }
                    let Some(&offset) = offsets.get(&(process, key)) else {
                        continue;
                    };
                    let knows = |other: &&Done<'_>| {
                        !other.op.is_fail() && highest(other, key) > Some(offset)
                    };
                    if let Some(first) = all.iter().find(knows) {
                        worst = worst.max(history.ops()[one.started].time - first.op.time);
                    }
                }
            }
            _ => {}
        }
    }
    worst
}

/// Compares with the twin; what was tolerated, and whether nothing is wrong.
fn is_as_defined(history: &History, verdict: &Verdict, seed: u64) -> (Counts, bool) {
    let printed = || {
        history
            .iter()
            .map(|op| format!("{} {op}", op.index))
            .collect::<Vec<_>>()
            .join(
                "
",
            )
    };
    let is_subscribed = history.iter().any(|op| op.f == "subscribe");
    let is_tolerated = |name: &str| {
        let of_consumers = matches!(name, "poll-skip" | "nonmonotonic-poll");
        name == "int-send-skip" || is_subscribed && of_consumers
    };
    let all = twin(history).into_iter();
    let (tolerated, expected): (Counts, Counts) = all.partition(|(name, _)| is_tolerated(name));
    let mut anomalies = verdict.anomalies.clone();
    let cycles = anomalies
        .extract_if(.., |name, _| name.starts_with("G1c"))
        .count();
    assert_eq!(anomalies, expected, "seed {seed}\n{}", printed());
    for (name, count) in &tolerated {
        assert_eq!(
            verdict.details.to_json()["tolerated"][name],
            *count,
            "seed {seed}"
        );
    }
    assert_eq!(cycles > 0, is_cyclic(history), "seed {seed}\n{}", printed());
    let lag = verdict.details.to_json()["worst_lag"]["nanoseconds"]
        .as_i64()
        .unwrap_or(0);
    assert_eq!(lag, worst_lag(history), "seed {seed}\n{}", printed());
    let is_valid = expected.is_empty() && cycles == 0;
    let is_unknown = matches!(verdict.valid, Validity::Unknown(_));
    assert_eq!(
        is_valid,
        verdict.valid == Validity::Valid || is_unknown,
        "seed {seed}"
    );
    (tolerated, is_valid)
}

#[test]
fn logs_are_what_their_definition_says() {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..seatrial_farm::all_histories(4_000) {
        let history = traffic(&mut Rng::from_seed(seed));
        let verdict = Log.check(&history);
        let (tolerated, is_valid) = is_as_defined(&history, &verdict, seed);
        if is_valid {
            no_beginning_is_invalid(&Log, &history, seed);
        }
        for finding in &verdict.findings {
            assert!(!finding.operations.is_empty(), "{finding:?}");
        }
        let names = verdict.anomalies.keys().chain(tolerated.keys());
        for name in names.copied().chain(is_valid.then_some("valid")) {
            *found.entry(name.into()).or_default() += 1;
        }
        if seed % 50 == 0 {
            let streamed = check_source(&Log, &history, &Aims::default())
                .unwrap()
                .verdict;
            let text = |verdict| serde_json::to_string(verdict).unwrap();
            assert_eq!(text(&streamed), text(&verdict));
        }
    }
    for name in [
        "valid",
        "G1a",
        "G1c",
        "G1c-realtime",
        "duplicate",
        "inconsistent-offsets",
        "int-nonmonotonic-poll",
        "int-nonmonotonic-send",
        "int-poll-skip",
        "int-send-skip",
        "lost-write",
        "nonmonotonic-poll",
        "nonmonotonic-send",
        "poll-skip",
        "precommitted-read",
        "unexpected",
        "unseen",
    ] {
        // Cycles that need real time are rare.
        let least = if name == "G1c-realtime" { 1 } else { 10 };
        assert!(
            found.get(name).is_some_and(|count| *count >= least),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn findings_name_the_operations() {
    let send = |offset: Option<i64>, value| LogMop::Send {
        key: Key::Int(5),
        offset,
        value,
    };
    let poll = |messages: &[(i64, i64)]| LogMop::Poll {
        messages: Some(vec![(Key::Int(5), messages.to_vec())]),
    };
    let mut ops = Vec::new();
    let mut push = |process, f: &'static str, mops: &[LogMop]| {
        let op = Op::invoke(Process::Client(process), f, Value::log(mops));
        ops.extend([op.clone(), op.complete(OpType::Ok, Value::log(mops))]);
    };
    push(0, "send", &[send(Some(0), 10)]);
    push(0, "send", &[send(Some(1), 11), send(Some(2), 12)]);
    push(1, "poll", &[poll(&[(0, 10)])]);
    push(1, "poll", &[poll(&[(2, 12)])]);
    let summaries: Vec<String> = Log
        .check(&History::from_unindexed(ops))
        .findings
        .into_iter()
        .map(|finding| {
            format!(
                "{} {:?}: {}",
                finding.anomaly, finding.operations, finding.summary
            )
        })
        .collect();
    assert_eq!(
        summaries,
        [
            "lost-write [3, 7]: Op 3 sent 11 to 5, it was never polled, and op 7 polled 12, which comes after it.",
            "poll-skip [5, 7]: Op 5 polled 10 last from 5, and op 7 12 next: between them the log has 11.",
            "unseen [3]: Op 3 sent 11 to 5, and it was never polled.",
        ]
    );
}
