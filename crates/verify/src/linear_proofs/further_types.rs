//! Further data types, written plainly: sets, logs, arrays of registers, semaphores, locks, and tables of states.

use super::operation_table::{OperationRow, OperationTable, RowOutcome};
use seatrial_history::{Key, Mop, Observed, Value};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A data type by its name in a certificate, with its parameters.
pub(super) enum FurtherType {
    Set,
    AppendLog,
    /// Several registers at a time: `read` and `write` of maps, transactions.
    MultiRegister,
    /// Blocks of a device, whose content is 0 before the first write.
    BlockDevice,
    /// With this number of permits.
    Semaphore(u32),
    Lock(LockRules),
    Table(StateTable),
}

/// The rules of a lock.
#[derive(Clone, Copy)]
pub(super) struct LockRules {
    has_owners: bool,
    is_fenced: bool,
    /// Acquisitions by one owner, at most.
    depth_max: u32,
}

/// Rows of state, operation, argument, result and next state.
pub(super) struct StateTable {
    initial: u32,
    /// The numbers of the states.
    states: BTreeMap<String, u32>,
    /// By function.
    rows: BTreeMap<String, Vec<StateRow>>,
}

struct StateRow {
    /// `None`: any.
    state: Option<u32>,
    argument: Option<String>,
    result: Option<String>,
    /// `None`: the same.
    next: Option<u32>,
}

/// A table as certificates have it.
#[derive(Deserialize)]
struct TableDocument {
    initial: String,
    /// State, operation, argument, result, next state.
    rows: Vec<DocumentRow>,
}

type DocumentRow = (String, String, Option<String>, Option<String>, String);

/// What an operation does. Elements, registers, values, and owners are numbers of their texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FurtherEffect {
    /// Of unknown result, and without an effect.
    Nothing,
    Set(SetChange, u32),
    /// All elements.
    ReadSet(BTreeSet<u32>),
    /// At this offset, if it is known.
    Append(u32, Option<u32>),
    /// At this offset; `None`: past the end.
    ReadAt(u32, Option<u32>),
    ReadLog(Vec<u32>),
    /// In this order: a register, its value, and whether that is written.
    Registers(Vec<(u32, u32, bool)>),
    Acquire(u32),
    Release(u32),
    /// By this owner, with this fence.
    Lock(u32, Option<i64>),
    Unlock(u32),
    /// Function, argument and result if it is known.
    Row(String, String, Option<String>),
}

/// What an operation on an element of a set does, or finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SetChange {
    /// Adds an absent element.
    Add,
    /// Removes a present element.
    Remove,
    /// Adds or removes it; unknown whether that changed the set.
    Put,
    Discard,
    Present,
    Absent,
}

use FurtherEffect as Effect;

/// The state of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FurtherState {
    Set(BTreeSet<u32>),
    Log(Vec<u32>),
    /// A log of which only some appends are known: a least length, and values by offset.
    PartOfLog(u32, BTreeMap<u32, u32>),
    /// Registers that do not have the initial value.
    Registers(BTreeMap<u32, u32>),
    /// Permits that are taken.
    Taken(u32),
    Holding(LockHolder),
    /// The states that are possible; never none.
    Possible(BTreeSet<u32>),
}

/// Who holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LockHolder {
    owner: Option<u32>,
    depth: u32,
    fence: Option<i64>,
    fence_max: Option<i64>,
}

/// The number of nil, and of a register's initial value.
const NIL: u32 = 0;

/// Blocks of one operation, at most.
const BLOCKS_MAX: i64 = 1 << 24;

impl FurtherType {
    /// The type of this name; `None` if it is no such type. The error is a parameter that is wrong.
    pub(super) fn by_name(name: &str) -> Option<Result<FurtherType, String>> {
        let (kind, parameter) = name.split_once(' ').unwrap_or((name, ""));
        let wrong = || Err(format!("{kind} has no parameter {parameter:?}"));
        Some(match (kind, parameter) {
            ("linearizable-set", "") => Ok(FurtherType::Set),
            ("append-log", "") => Ok(FurtherType::AppendLog),
            ("multi-register", "") => Ok(FurtherType::MultiRegister),
            ("block-device", "") => Ok(FurtherType::BlockDevice),
            ("semaphore", _) => {
                let permits = parameter.strip_prefix("permits:");
                let permits = permits.and_then(|permits| permits.parse().ok());
                permits.map_or_else(wrong, |permits| Ok(FurtherType::Semaphore(permits)))
            }
            ("linearizable-lock", _) => match LockRules::by_name(parameter) {
                Some(rules) => Ok(FurtherType::Lock(rules)),
                None => wrong(),
            },
            ("table-model", _) => StateTable::read(parameter).map(FurtherType::Table),
            _ => return None,
        })
    }

    /// The state before the first operation.
    pub(super) fn initial(&self) -> FurtherState {
        match self {
            FurtherType::Set => FurtherState::Set(BTreeSet::new()),
            FurtherType::AppendLog => FurtherState::Log(Vec::new()),
            FurtherType::MultiRegister | FurtherType::BlockDevice => {
                FurtherState::Registers(BTreeMap::new())
            }
            FurtherType::Semaphore(_) => FurtherState::Taken(0),
            FurtherType::Lock(_) => FurtherState::Holding(LockHolder::default()),
            FurtherType::Table(table) => FurtherState::Possible([table.initial].into()),
        }
    }

    /// Applies an effect. False if its result contradicts the state, which may then be changed.
    pub(super) fn apply(&self, state: &mut FurtherState, effect: &FurtherEffect) -> bool {
        match (self, state, effect) {
            (_, _, Effect::Nothing) => true,
            (_, FurtherState::Set(elements), effect) => apply_to_set(elements, effect),
            (_, FurtherState::Log(log), effect) => apply_to_log(log, effect),
            (_, FurtherState::Registers(registers), Effect::Registers(accesses)) => {
                accesses.iter().all(|&(register, value, is_write)| {
                    if is_write {
                        registers.insert(register, value);
                        // Equal states must be equal.
                        if value == NIL {
                            registers.remove(&register);
                        }
                        return true;
                    }
                    registers.get(&register).copied().unwrap_or(NIL) == value
                })
            }
            (Self::Semaphore(permits), FurtherState::Taken(taken), effect) => {
                let next = match effect {
                    Effect::Acquire(count) => taken.checked_add(*count),
                    Effect::Release(count) => taken.checked_sub(*count),
                    _ => None,
                };
                *taken = next.unwrap_or(*taken);
                next.is_some_and(|next| next <= *permits)
            }
            (Self::Lock(rules), FurtherState::Holding(hold), effect) => rules.apply(hold, effect),
            (Self::Table(table), FurtherState::Possible(states), effect) => {
                table.apply(states, effect)
            }
            _ => false,
        }
    }
}

fn apply_to_set(elements: &mut BTreeSet<u32>, effect: &FurtherEffect) -> bool {
    match effect {
        Effect::ReadSet(all) => elements == all,
        Effect::Set(SetChange::Add, element) => elements.insert(*element),
        Effect::Set(SetChange::Remove, element) => elements.remove(element),
        Effect::Set(SetChange::Put, element) => {
            elements.insert(*element);
            true
        }
        Effect::Set(SetChange::Discard, element) => {
            elements.remove(element);
            true
        }
        Effect::Set(SetChange::Present, element) => elements.contains(element),
        Effect::Set(SetChange::Absent, element) => !elements.contains(element),
        _ => false,
    }
}

fn apply_to_log(log: &mut Vec<u32>, effect: &FurtherEffect) -> bool {
    match effect {
        Effect::Append(value, offset) => {
            let is_there = offset.is_none_or(|offset| offset as usize == log.len());
            log.push(*value);
            is_there
        }
        Effect::ReadAt(offset, value) => log.get(*offset as usize).copied() == *value,
        Effect::ReadLog(all) => log == all,
        _ => false,
    }
}

impl LockRules {
    fn by_name(name: &str) -> Option<LockRules> {
        let (has_owners, is_fenced, depth_max) = match name {
            "mutex" => (false, false, 1),
            "owner-aware" => (true, false, 1),
            "fenced" => (true, true, 1),
            "reentrant" => (true, false, 2),
            "reentrant-fenced" => (true, true, 2),
            _ => return None,
        };
        Some(LockRules {
            has_owners,
            is_fenced,
            depth_max,
        })
    }

    /// A hold has one fence, which is larger than all before it; acquisitions that do not know it say nothing about it.
    fn apply(self, hold: &mut LockHolder, effect: &FurtherEffect) -> bool {
        match *effect {
            Effect::Lock(owner, fence) => {
                let is_free = hold.depth == 0;
                if !is_free && (hold.owner != Some(owner) || hold.depth >= self.depth_max) {
                    return false;
                }
                hold.owner = Some(owner);
                hold.depth += 1;
                match (fence, hold.fence) {
                    (None, _) => true,
                    (Some(fence), Some(known)) => fence == known,
                    (Some(fence), None) => {
                        let is_larger = hold.fence_max.is_none_or(|largest| fence > largest);
                        (hold.fence, hold.fence_max) = (Some(fence), Some(fence));
                        is_larger
                    }
                }
            }
            Effect::Unlock(owner) => {
                if hold.owner != Some(owner) {
                    return false;
                }
                hold.depth -= 1;
                if hold.depth == 0 {
                    (hold.owner, hold.fence) = (None, None);
                }
                true
            }
            _ => false,
        }
    }
}

impl StateTable {
    fn read(text: &str) -> Result<StateTable, String> {
        let document: TableDocument = serde_json::from_str(text)
            .map_err(|error| format!("the table of its data type: {error}"))?;
        let mut table = StateTable {
            initial: 0,
            states: BTreeMap::new(),
            rows: BTreeMap::new(),
        };
        table.initial = table.state(&document.initial);
        for (state, operation, argument, result, next) in document.rows {
            let state = (state != "*").then(|| table.state(&state));
            let next = (next != "same").then(|| table.state(&next));
            table.rows.entry(operation).or_default().push(StateRow {
                state,
                argument,
                result,
                next,
            });
        }
        Ok(table)
    }

    fn state(&mut self, name: &str) -> u32 {
        let number = self.states.len() as u32;
        *self.states.entry(name.to_owned()).or_insert(number)
    }

    /// An operation of unknown result leads to every state to which a row leads.
    fn apply(&self, states: &mut BTreeSet<u32>, effect: &FurtherEffect) -> bool {
        let Effect::Row(function, argument, result) = effect else {
            return false;
        };
        let rows = self.rows.get(function).map_or(&[][..], Vec::as_slice);
        let mut possible = BTreeSet::new();
        for &state in &*states {
            for row in rows {
                let fits = row.state.is_none_or(|one| one == state)
                    && row.argument.as_ref().is_none_or(|one| one == argument)
                    && (result.is_none() || row.result.is_none() || row.result == *result);
                if fits {
                    possible.insert(row.next.unwrap_or(state));
                }
            }
        }
        *states = possible;
        !states.is_empty()
    }
}

/// Reads the effects of operations: numbers texts.
pub(super) struct EffectReader<'a> {
    table: &'a OperationTable,
    kind: &'a FurtherType,
    numbers: BTreeMap<String, u32>,
}

impl<'a> EffectReader<'a> {
    pub(super) fn new(table: &'a OperationTable, kind: &'a FurtherType) -> EffectReader<'a> {
        EffectReader {
            table,
            kind,
            numbers: BTreeMap::from([("nil".to_owned(), NIL)]),
        }
    }

    /// The number of an element or register with this text.
    pub(super) fn number_of_text(&mut self, text: &str) -> u32 {
        let next = self.numbers.len() as u32;
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        self.numbers.insert(text.to_owned(), next);
        next
    }

    fn number(&mut self, value: &Value) -> u32 {
        self.number_of_text(&value.to_string())
    }

    /// What an operation that did not fail does. The error names one that the data type does not have.
    pub(super) fn effect(&mut self, row: &OperationRow) -> Result<FurtherEffect, String> {
        let (table, kind) = (self.table, self.kind);
        let f = table.function(row);
        let argument = table.value(row.invoked());
        let result = row.result().filter(|_| row.outcome == RowOutcome::Ok);
        let result = result.map(|result| table.value(result));
        let effect = match kind {
            FurtherType::Set => self.set_effect(f, &argument, result.as_ref()),
            FurtherType::AppendLog => self.log_effect(f, &argument, result.as_ref()),
            FurtherType::BlockDevice => self.block_effect(f, &argument, result.as_ref()),
            FurtherType::MultiRegister => self.registers_effect(f, &argument, result.as_ref()),
            FurtherType::Semaphore(_) => match (f, permits(&argument)) {
                ("acquire", Some(count)) => Some(Effect::Acquire(count)),
                ("release", Some(count)) => Some(Effect::Release(count)),
                _ => None,
            },
            FurtherType::Lock(rules) => self.lock_effect(*rules, row, result.as_ref()),
            FurtherType::Table(states) => states.rows.contains_key(f).then(|| {
                let result = result.as_ref().map(Value::to_string);
                Effect::Row(f.to_owned(), argument.to_string(), result)
            }),
        };
        effect.ok_or_else(|| {
            let place = row.place;
            format!("the operation at {place} is none of this data type: {f} {argument}")
        })
    }

    fn set_effect(
        &mut self,
        f: &str,
        argument: &Value,
        result: Option<&Value>,
    ) -> Option<FurtherEffect> {
        if f == "read" {
            let Some(result) = result else {
                return Some(Effect::Nothing);
            };
            let elements = match result {
                Value::Nil => Vec::new(),
                other => items(other)?,
            };
            let numbers = elements.iter().map(|element| self.number(element));
            return Some(Effect::ReadSet(numbers.collect()));
        }
        let element = match (argument, result) {
            (Value::Nil, Some(result)) => result,
            (argument, _) => argument,
        };
        let truth = match result {
            Some(Value::Bool(truth)) if *element != Value::Bool(*truth) => Some(*truth),
            Some(other) => match items(other).as_deref() {
                Some([one, Value::Bool(truth)]) if one == element => Some(*truth),
                _ => None,
            },
            None => None,
        };
        let change = match (f, truth) {
            ("add", Some(true)) => SetChange::Add,
            ("add", None) => SetChange::Put,
            ("remove", Some(true)) => SetChange::Remove,
            ("remove", None) => SetChange::Discard,
            ("add", Some(false)) | ("contains", Some(true)) => SetChange::Present,
            ("remove" | "contains", Some(false)) => SetChange::Absent,
            ("contains", None) if result.is_none() => return Some(Effect::Nothing),
            _ => return None,
        };
        Some(Effect::Set(change, self.number(element)))
    }

    fn log_effect(
        &mut self,
        f: &str,
        argument: &Value,
        result: Option<&Value>,
    ) -> Option<FurtherEffect> {
        let pair = result.and_then(items);
        let offset = |at: i64| u32::try_from(at).ok().filter(|&at| at < u32::MAX);
        match (f, argument) {
            ("append", _) => {
                let at = match pair.as_deref() {
                    Some([Value::Int(at), value]) if value == argument => Some(offset(*at)?),
                    _ => None,
                };
                Some(Effect::Append(self.number(argument), at))
            }
            ("read", _) if result.is_none() => Some(Effect::Nothing),
            ("read", Value::Int(at)) => match pair.as_deref() {
                Some([Value::Int(same), value]) if same == at => {
                    let value = (*value != Value::Nil).then(|| self.number(value));
                    Some(Effect::ReadAt(offset(*at)?, value))
                }
                _ => None,
            },
            ("read", Value::Nil) => {
                let values = match (pair, result) {
                    (None, Some(Value::Nil)) => Vec::new(),
                    (values, _) => values?,
                };
                let numbers = values.iter().map(|value| self.number(value));
                Some(Effect::ReadLog(numbers.collect()))
            }
            _ => None,
        }
    }

    fn block_effect(
        &mut self,
        f: &str,
        argument: &Value,
        result: Option<&Value>,
    ) -> Option<FurtherEffect> {
        let (first, contents) = match f {
            "write" => {
                let written = if *argument == Value::Nil {
                    result?
                } else {
                    argument
                };
                blocks(written)?
            }
            "trim" => {
                let (first, count) = match (argument, items(argument).as_deref()) {
                    (Value::Int(block), _) => (*block, 1),
                    (_, Some([Value::Int(first), Value::Int(count)])) => (*first, *count),
                    _ => return None,
                };
                let count = (0..=BLOCKS_MAX).contains(&count).then_some(count)?;
                (first, vec![Value::Nil; count as usize])
            }
            "read" => match result {
                Some(result) => blocks(result)?,
                None => return Some(Effect::Nothing),
            },
            _ => return None,
        };
        let accesses = (0..).zip(&contents).map(|(place, value)| {
            let block = Value::Int(first.wrapping_add(place));
            let value = match value {
                Value::Int(0) => NIL,
                value => self.number(value),
            };
            (self.number(&block), value, f != "read")
        });
        Some(Effect::Registers(accesses.collect()))
    }

    fn registers_effect(
        &mut self,
        f: &str,
        argument: &Value,
        result: Option<&Value>,
    ) -> Option<FurtherEffect> {
        let recorded = result.unwrap_or(argument);
        let mut accesses = Vec::new();
        match (f, recorded) {
            ("txn", Value::Txn(mops)) => {
                for mop in mops.iter() {
                    let register = match mop.key() {
                        Key::Int(number) => Value::Int(*number),
                        Key::Word(word) => Value::Word(*word),
                        Key::Text(text) => Value::Text(text.clone()),
                    };
                    let (value, is_write) = match mop {
                        Mop::Write { value, .. } => (Value::Int(*value), true),
                        Mop::Read { observed, .. } => match observed {
                            Observed::Register(value) => (Value::Int(*value), false),
                            Observed::Nil => (Value::Nil, false),
                            Observed::List(_) => return None,
                        },
                        Mop::Append { .. } => return None,
                    };
                    accesses.push((self.number(&register), self.number(&value), is_write));
                }
            }
            ("read", _) if result.is_none() => return Some(Effect::Nothing),
            ("read", Value::Map(pairs)) => {
                for (key, value) in pairs.iter() {
                    accesses.push((self.number(key), self.number(value), false));
                }
            }
            ("write", _) => {
                let written = if *argument == Value::Nil {
                    result?
                } else {
                    argument
                };
                let Value::Map(pairs) = written else {
                    return None;
                };
                for (key, value) in pairs.iter() {
                    accesses.push((self.number(key), self.number(value), true));
                }
            }
            _ => return None,
        }
        if result.is_none() {
            accesses.retain(|&(_, _, is_write)| is_write);
        }
        Some(Effect::Registers(accesses))
    }

    fn lock_effect(
        &mut self,
        rules: LockRules,
        row: &OperationRow,
        result: Option<&Value>,
    ) -> Option<FurtherEffect> {
        let owner = if rules.has_owners {
            let owner = self.table.owner(row)?.to_owned();
            self.number_of_text(&owner)
        } else {
            NIL
        };
        match self.table.function(row) {
            "release" => Some(Effect::Unlock(owner)),
            "acquire" => {
                let fence = match result.filter(|_| rules.is_fenced) {
                    Some(Value::Int(fence)) => Some(*fence),
                    Some(value) => field(value, "fence").and_then(Value::as_int),
                    None => None,
                };
                Some(Effect::Lock(owner, fence.filter(|&fence| fence != -1)))
            }
            _ => None,
        }
    }
}

/// A field of a map.
pub(super) fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let found = pairs
        .iter()
        .find(|(key, _)| matches!(key, Value::Word(word) if word.as_str() == name));
    found.map(|(_, value)| value)
}

/// The items of a list or set.
fn items(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::List(items) | Value::Set(items) => Some(items.to_vec()),
        Value::Cas(one, other) => Some(vec![Value::Int(*one), Value::Int(*other)]),
        _ => None,
    }
}

/// The blocks of `[first [values]]` or `[block value]`.
fn blocks(value: &Value) -> Option<(i64, Vec<Value>)> {
    match items(value)?.as_slice() {
        [Value::Int(first), values] => Some((
            *first,
            items(values).unwrap_or_else(|| vec![values.clone()]),
        )),
        _ => None,
    }
}

/// The number of permits of an operation; nil is one.
fn permits(argument: &Value) -> Option<u32> {
    match argument {
        Value::Nil => Some(1),
        Value::Int(count) => u32::try_from(*count).ok(),
        _ => None,
    }
}
