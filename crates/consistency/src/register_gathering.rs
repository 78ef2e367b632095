//! Gathering the reads and writes of a history from its chunks.

use crate::register_history::{
    NONE, RegisterAction, RegisterEffect, RegisterHistory, RegisterVersion,
};
use seatrial_history::chunk::ValueView;
use seatrial_history::{Chunk, FixedMap, Fold, Key, OpType, Order, Process, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A fold that gathers a [`RegisterHistory`]; the error is the reason why the history has none.
pub(crate) struct GatherRegisterHistory {
    /// Are the times of operations wanted?
    pub(crate) has_times: bool,
    /// Are writes of unknown outcome wanted whose value nothing read? They are concurrent with later operations.
    pub(crate) keeps_unseen: bool,
}

/// A read whose result is not known yet.
const PENDING: u32 = u32::MAX;
/// Positions that operations can have.
const POSITIONS_MAX: u64 = u32::MAX as u64 - 1;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GatheredOutcome {
    /// It took effect before its completion.
    Certain,
    /// It may have taken effect.
    Unknown,
    /// It had no effect, or is a read without a result.
    Dropped,
}

/// The rows so far, one for each invocation.
pub(crate) struct RegisterRows {
    has_times: bool,
    keeps_unseen: bool,
    actions: Vec<RegisterAction>,
    outcomes: Vec<GatheredOutcome>,
    times: Vec<(i64, i64)>,
    /// By position of an invocation without a completion so far: its row.
    open: FixedMap<u64, u32>,
    sessions: FixedMap<u64, u32>,
    processes: Vec<u64>,
    integer_keys: FixedMap<i64, u32>,
    other_keys: BTreeMap<Option<Key>, u32>,
    keys: Vec<Option<Key>>,
    /// By key: the version of its initial state.
    initial: Vec<u32>,
    integers: FixedMap<(u32, i64), u32>,
    others: FixedMap<(u32, String), u32>,
    versions: Vec<RegisterVersion>,
    indices: Vec<(u32, u64)>,
    /// The time of the last operation, while times rise with positions.
    last_time: Option<i64>,
    counts: [u64; 3],
    refusal: Option<String>,
}

impl RegisterRows {
    fn new(options: &GatherRegisterHistory) -> RegisterRows {
        RegisterRows {
            has_times: options.has_times,
            keeps_unseen: options.keeps_unseen,
            actions: Vec::new(),
            outcomes: Vec::new(),
            times: Vec::new(),
            open: FixedMap::default(),
            sessions: FixedMap::default(),
            processes: Vec::new(),
            integer_keys: FixedMap::default(),
            other_keys: BTreeMap::new(),
            keys: Vec::new(),
            initial: Vec::new(),
            integers: FixedMap::default(),
            others: FixedMap::default(),
            versions: Vec::new(),
            indices: Vec::new(),
            last_time: Some(0),
            counts: [0; 3],
            refusal: None,
        }
    }

    fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }

    fn session(&mut self, process: u64) -> u32 {
        let next = self.processes.len() as u32;
        let session = *self.sessions.entry(process).or_insert(next);
        if session == next {
            self.processes.push(process);
        }
        session
    }

    fn key(&mut self, key: Option<&Key>) -> u32 {
        let next = self.keys.len() as u32;
        let number = match key {
            Some(Key::Int(integer)) => *self.integer_keys.entry(*integer).or_insert(next),
            other => *self.other_keys.entry(other.cloned()).or_insert(next),
        };
        if number == next {
            self.keys.push(key.cloned());
            let initial = self.add_version(number, Value::Nil);
            self.versions[initial as usize].writers = 1;
            self.initial.push(initial);
        }
        number
    }

    fn add_version(&mut self, key: u32, value: Value) -> u32 {
        let number = self.versions.len() as u32;
        self.versions.push(RegisterVersion {
            key,
            value,
            writer: NONE,
            writers: 0,
            readers: 0,
            has_failed_writer: false,
        });
        number
    }

    fn integer(&mut self, key: u32, value: i64) -> u32 {
        let next = self.versions.len() as u32;
        let version = *self.integers.entry((key, value)).or_insert(next);
        if version == next {
            self.add_version(key, Value::Int(value));
        }
        version
    }

    fn version(&mut self, key: u32, value: &Value) -> u32 {
        match value {
            Value::Nil => self.initial[key as usize],
            Value::Int(value) => self.integer(key, *value),
            other => {
                let next = self.versions.len() as u32;
                let name = (key, other.to_string());
                let version = *self.others.entry(name).or_insert(next);
                if version == next {
                    self.add_version(key, other.clone());
                }
                version
            }
        }
    }

    /// The value of the operation at `place` as a version of `key`.
    fn value_at(&mut self, chunk: &Chunk, place: usize, key: u32) -> u32 {
        match chunk.value(place) {
            ValueView::Nil => self.initial[key as usize],
            ValueView::Int(value) => self.integer(key, value),
            _ => {
                let value = chunk.op(place).value;
                self.version(key, plain(&value))
            }
        }
    }

    /// What the invocation at `place` will do.
    fn access(&mut self, chunk: &Chunk, place: usize, key: u32) -> Option<RegisterEffect> {
        let index = chunk.index(place);
        match chunk.f(place).as_str() {
            "read" => {
                if is_tuple(chunk, place) {
                    self.refuse(format!(
                        "op {index}: its value looks like a tuple [key value]: read the history as keyed"
                    ));
                }
                Some(RegisterEffect::Read(PENDING))
            }
            "write" => {
                let version = self.value_at(chunk, place, key);
                Some(RegisterEffect::Write(version))
            }
            "cas" => {
                let value = chunk.op(place).value;
                let (from, to) = match plain(&value) {
                    Value::Cas(from, to) => (Value::Int(*from), Value::Int(*to)),
                    Value::List(items) if items.len() == 2 => (items[0].clone(), items[1].clone()),
                    other => {
                        self.refuse(format!(
                            "op {index}: a compare-and-set of {other}, expected [old new]"
                        ));
                        return None;
                    }
                };
                let from = self.version(key, &from);
                let to = self.version(key, &to);
                Some(RegisterEffect::CompareAndSet(from, to))
            }
            f => {
                self.refuse(format!(
                    "op {index} is :{f}, and a register has read, write and cas"
                ));
                None
            }
        }
    }

    /// Adds a row for the operation at `place`, whose outcome is unknown so far.
    fn invoke(&mut self, chunk: &Chunk, place: usize, process: u64) -> Option<u32> {
        let key = self.key(chunk.key_id(place).map(|id| chunk.key(id)));
        let access = self.access(chunk, place, key)?;
        let row = self.actions.len() as u32;
        let session = self.session(process);
        self.actions.push(RegisterAction {
            session,
            key,
            access,
            call: (chunk.first_position() + place as u64) as u32,
            ret: NONE,
            index: chunk.index(place),
        });
        self.outcomes.push(GatheredOutcome::Unknown);
        if self.has_times {
            self.times.push((chunk.times()[place], i64::MAX));
        }
        Some(row)
    }

    fn complete(&mut self, chunk: &Chunk, place: usize, row: u32, kind: OpType) {
        let position = (chunk.first_position() + place as u64) as u32;
        let mut action = self.actions[row as usize];
        action.index = chunk.index(place);
        if let RegisterEffect::Read(_) = action.access
            && kind == OpType::Ok
        {
            let version = self.value_at(chunk, place, action.key);
            action.access = RegisterEffect::Read(version);
        }
        if kind == OpType::Ok {
            action.ret = position;
            self.outcomes[row as usize] = GatheredOutcome::Certain;
            if self.has_times {
                self.times[row as usize].1 = chunk.times()[place];
            }
        } else if kind == OpType::Fail {
            self.outcomes[row as usize] = GatheredOutcome::Dropped;
            if let Some(version) = action.written() {
                self.versions[version as usize].has_failed_writer = true;
            }
        }
        self.actions[row as usize] = action;
    }

    fn push(&mut self, chunk: &Chunk) {
        if chunk.first_position() + chunk.len() as u64 > POSITIONS_MAX {
            return self.refuse(format!("more than {POSITIONS_MAX} events"));
        }
        for place in 0..chunk.len() {
            let position = chunk.first_position() + place as u64;
            self.number(position as u32, chunk.index(place));
            let Process::Client(process) = chunk.process(place) else {
                continue;
            };
            let kind = chunk.kinds()[place];
            let time = chunk.times()[place];
            self.last_time = self.last_time.filter(|&last| last <= time).map(|_| time);
            if kind == OpType::Invoke {
                if let Some(row) = self.invoke(chunk, place, process) {
                    self.open.insert(position, row);
                }
                continue;
            }
            self.counts[kind as usize - 1] += 1;
            let invocation = chunk.invocation(place);
            let row = match invocation {
                Some(invocation) => self.open.remove(&invocation),
                // A success without an invocation may have begun at any time before.
                None if kind == OpType::Ok => self.invoke(chunk, place, process),
                None => None,
            };
            if let Some(row) = row {
                self.complete(chunk, place, row, kind);
                if invocation.is_none() {
                    self.actions[row as usize].call = 0;
                }
            }
        }
    }

    /// Notes where indices do not follow positions.
    fn number(&mut self, position: u32, index: u64) {
        let (from, first) = self.indices.last().copied().unwrap_or((0, 0));
        if index != first + u64::from(position - from) {
            self.indices.push((position, index));
        }
    }

    fn finish(mut self) -> Result<RegisterHistory, String> {
        if let Some(reason) = self.refusal {
            return Err(reason);
        }
        self.counts[2] += self.open.len() as u64;
        if self.last_time.is_none() {
            self.times.clear();
        }
        self.count();
        if !self.keeps_unseen {
            self.drop_unseen();
        }
        let mut history = RegisterHistory {
            processes: self.processes,
            keys: self.keys,
            versions: self.versions,
            indices: self.indices,
            outcomes: self.counts,
            ..RegisterHistory::default()
        };
        for (row, (action, outcome)) in self.actions.into_iter().zip(self.outcomes).enumerate() {
            if outcome == GatheredOutcome::Dropped {
                continue;
            }
            if let Some(version) = action.written() {
                let writer = &mut history.versions[version as usize].writer;
                *writer = (*writer).min(history.actions.len() as u32);
            }
            history.actions.push(action);
            if let Some(&times) = self.times.get(row) {
                history.times.push(times);
            }
        }
        history.left_out = history.outcomes[2] - uncertain(&history).min(history.outcomes[2]);
        separate(&mut history);
        history.assert_complete();
        Ok(history)
    }

    /// Counts the writers and the readers of each version.
    fn count(&mut self) {
        for (action, outcome) in self.actions.iter().zip(&mut self.outcomes) {
            if matches!(action.access, RegisterEffect::Read(PENDING)) {
                *outcome = GatheredOutcome::Dropped;
            }
            if *outcome == GatheredOutcome::Dropped {
                continue;
            }
            if let Some(version) = action.written() {
                self.versions[version as usize].writers += 1;
            }
            if let Some(version) = action.read()
                && *outcome == GatheredOutcome::Certain
            {
                self.versions[version as usize].readers += 1;
            }
        }
    }

    /// Drops the operations of unknown outcome whose version nothing read. A compare-and-set whose new version was read needs
    /// its old one.
    fn drop_unseen(&mut self) {
        let is_uncertain = |outcome: &GatheredOutcome| *outcome == GatheredOutcome::Unknown;
        let all = self.outcomes.iter().enumerate();
        let uncertain: Vec<usize> = all
            .filter(|(_, outcome)| is_uncertain(outcome))
            .map(|(row, _)| row)
            .collect();
        let mut by_version: FixedMap<u32, Vec<usize>> = FixedMap::default();
        for &row in &uncertain {
            let written = self.actions[row].written().expect("reads were dropped");
            by_version.entry(written).or_default().push(row);
        }
        let read =
            |versions: &[RegisterVersion], version: u32| versions[version as usize].readers > 0;
        let mut needed: Vec<u32> = by_version.keys().copied().collect();
        needed.sort_unstable();
        needed.retain(|&version| read(&self.versions, version));
        let mut seen = needed.clone();
        while let Some(version) = needed.pop() {
            for &row in by_version.get(&version).into_iter().flatten() {
                let Some(from) = self.actions[row].read() else {
                    continue;
                };
                let readers = &mut self.versions[from as usize].readers;
                *readers += 1;
                if *readers == 1 && !seen.contains(&from) {
                    needed.push(from);
                    seen.push(from);
                }
            }
        }
        for row in uncertain {
            let written = self.actions[row].written().expect("reads were dropped");
            let version = &mut self.versions[written as usize];
            if version.readers == 0 {
                self.outcomes[row] = GatheredOutcome::Dropped;
                version.writers -= 1;
            }
        }
    }
}

/// Operations of unknown outcome.
fn uncertain(history: &RegisterHistory) -> u64 {
    let all = history.actions.iter();
    all.filter(|action| !action.is_certain()).count() as u64
}

/// Makes each operation of unknown outcome that its process did not end with a session of its own.
fn separate(history: &mut RegisterHistory) {
    let mut is_followed = vec![false; history.processes.len()];
    for number in (0..history.actions.len()).rev() {
        let action = &mut history.actions[number];
        let session = action.session as usize;
        if action.is_certain() {
            is_followed[session] = true;
        } else if is_followed[session] {
            action.session = history.processes.len() as u32;
            history.processes.push(history.processes[session]);
        } else {
            // Two of unknown outcome at the end of a session have no order, either.
            is_followed[session] = true;
        }
    }
}

/// The value without its key.
fn plain(value: &Value) -> &Value {
    match value {
        Value::Keyed(_, value) => value,
        value => value,
    }
}

/// Is this the invocation of a read of a tuple `[key nil]` that was imported as a plain list?
fn is_tuple(chunk: &Chunk, place: usize) -> bool {
    if matches!(chunk.value(place), ValueView::Nil | ValueView::Int(_)) {
        return false;
    }
    let value = chunk.op(place).value;
    chunk.kinds()[place] == OpType::Invoke
        && matches!(plain(&value), Value::List(items) if matches!(&items[..], [_, Value::Nil]))
}

impl Fold for GatherRegisterHistory {
    type Accumulator = RegisterRows;
    type Output = Result<RegisterHistory, String>;

    fn name(&self) -> String {
        "register-history".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> RegisterRows {
        RegisterRows::new(self)
    }

    fn reduce(&self, rows: &mut RegisterRows, chunk: &Chunk) -> ControlFlow<()> {
        rows.push(chunk);
        if rows.refusal.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut RegisterRows, _: RegisterRows) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn finish(&self, rows: RegisterRows) -> Result<RegisterHistory, String> {
        rows.finish()
    }
}
