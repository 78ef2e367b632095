//! Data types on small histories: linearizability by trying all orders, and the tests of sets, queues and counters from
//! their definitions.
//!
//! Definitions: Herlihy and Wing 1990 (an operation takes place at one instant between its invocation and its completion; one of
//! unknown outcome at any later time, or never); Jepsen's checkers of the same names for the rest.

use crate::case::CaseOutcome;
use crate::compare::without_digits;
use crate::tally::{Class, Name, Tally};
use seatrial_check::by_name;
use seatrial_checker::Validity;
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::fmt::Write as _;

/// The data type, and with it the property to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataKind {
    Register,
    CasRegister,
    Mutex,
    OwnedLock,
    Text,
    Queue,
    TotalQueue,
    Counter,
    Set,
    UniqueIds,
}

/// Kinds with the names of their checkers and models.
const KINDS: [(DataKind, &str, Option<&str>); 11] = [
    (DataKind::Register, "register", None),
    (DataKind::CasRegister, "cas-register", None),
    (DataKind::Mutex, "mutex", None),
    (DataKind::Mutex, "lock", Some("mutex")),
    (DataKind::OwnedLock, "lock", Some("owner-aware")),
    (DataKind::Text, "kv-map", None),
    (DataKind::Queue, "queue", None),
    (DataKind::TotalQueue, "total-queue", None),
    (DataKind::Counter, "counter", None),
    (DataKind::Set, "set", None),
    (DataKind::UniqueIds, "unique-ids", None),
];

/// The argument or result of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum DataValue {
    #[default]
    Nothing,
    Number(i64),
    Pair(i64, i64),
    Text(String),
    All(Vec<i64>),
}

impl DataValue {
    fn value(&self) -> Value {
        match self {
            DataValue::Nothing => Value::Nil,
            DataValue::Number(number) => Value::Int(*number),
            DataValue::Pair(from, to) => Value::Cas(*from, *to),
            DataValue::Text(text) => Value::text(text.as_str()),
            DataValue::All(all) => Value::List(all.iter().map(|&it| Value::Int(it)).collect()),
        }
    }

    fn number(&self) -> Option<i64> {
        match self {
            DataValue::Number(number) => Some(*number),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DataOperation {
    process: u64,
    f: &'static str,
    argument: DataValue,
    result: DataValue,
    outcome: CaseOutcome,
    begun: usize,
    /// Missing when it never completed.
    ended: Option<usize>,
}

impl DataOperation {
    fn is_before(&self, other: &DataOperation) -> bool {
        self.outcome == CaseOutcome::Ok && self.ended.is_some_and(|ended| ended < other.begun)
    }
}

type DataOperations = Vec<DataOperation>;

/// The state of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DataState {
    number: Option<i64>,
    text: String,
    elements: Vec<i64>,
}

/// The state after an operation with what it returns; nothing when it is not possible.
fn step(kind: DataKind, state: &DataState, one: &DataOperation) -> Option<(DataState, DataValue)> {
    let mut next = state.clone();
    let argument = one.argument.number();
    let mut result = one.argument.clone();
    match (one.f, &one.argument) {
        ("read", _) if kind == DataKind::Set => result = DataValue::All(state.elements.clone()),
        ("read", _) if kind == DataKind::Text => result = DataValue::Text(state.text.clone()),
        ("get", _) => result = DataValue::Text(state.text.clone()),
        ("read", _) if kind == DataKind::Counter => {
            result = DataValue::Number(state.number.unwrap_or_default());
        }
        ("read", _) => result = state.number.map_or(DataValue::Nothing, DataValue::Number),
        ("write", _) => next.number = argument,
        ("cas", DataValue::Pair(from, to)) => {
            if state.number != Some(*from) {
                return None;
            }
            next.number = Some(*to);
        }
        ("put", DataValue::Text(text)) => next.text.clone_from(text),
        ("append", DataValue::Text(text)) => next.text.push_str(text),
        ("acquire", _) => {
            if state.number.is_some() {
                return None;
            }
            next.number = Some(one.process.cast_signed());
        }
        ("release", _) => {
            let is_owner = state.number == Some(one.process.cast_signed());
            if state.number.is_none() || kind == DataKind::OwnedLock && !is_owner {
                return None;
            }
            next.number = None;
        }
        ("add", _) if kind == DataKind::Counter => {
            next.number = Some(state.number.unwrap_or_default() + argument?);
        }
        ("add" | "enqueue", _) => next.elements.push(argument?),
        ("dequeue", _) => {
            if next.elements.is_empty() {
                return None;
            }
            result = DataValue::Number(next.elements.remove(0));
        }
        ("generate", _) => {
            next.number = Some(state.number.unwrap_or_default() + 1);
            result = DataValue::Number(next.number.unwrap_or_default());
        }
        _ => return None,
    }
    Some((next, result))
}

/// Is there an order in which each operation returns what it returned?
fn is_linearizable(kind: DataKind, all: &DataOperations, done: u32, state: &DataState) -> bool {
    let is_done = |at: usize| done >> at & 1 == 1;
    let open = |at: usize| !is_done(at) && all[at].outcome == CaseOutcome::Ok;
    if !(0..all.len()).any(open) {
        return true;
    }
    (0..all.len()).any(|at| {
        let one = &all[at];
        let waits = (0..all.len()).any(|other| open(other) && all[other].is_before(one));
        if is_done(at) || one.outcome == CaseOutcome::Fail || waits {
            return false;
        }
        let Some((next, result)) = step(kind, state, one) else {
            return false;
        };
        let is_seen = one.outcome != CaseOutcome::Ok || result == one.result;
        is_seen && is_linearizable(kind, all, done | 1 << at, &next)
    })
}

/// Does the model hold? `None` when the history does not decide it.
fn is_kept(kind: DataKind, all: &DataOperations) -> Option<bool> {
    let ok = |f: &'static str| {
        let named = all.iter().filter(move |one| one.f == f);
        named.filter(|one| one.outcome == CaseOutcome::Ok)
    };
    let result = |one: &DataOperation| one.result.number().unwrap_or_default();
    let argument = |one: &DataOperation| one.argument.number().unwrap_or_default();
    let tried = |f: &'static str, value: i64, until: usize| {
        let named = all
            .iter()
            .filter(move |one| one.f == f && one.begun < until);
        named.filter(|one| argument(one) == value).count()
    };
    Some(match kind {
        DataKind::Register
        | DataKind::CasRegister
        | DataKind::Mutex
        | DataKind::OwnedLock
        | DataKind::Text => is_linearizable(kind, all, 0, &DataState::default()),
        DataKind::Queue => ok("dequeue").all(|one| {
            let until = one.ended.unwrap_or_default();
            let earlier = ok("dequeue").filter(|other| other.ended <= one.ended);
            let taken = earlier.filter(|other| other.result == one.result).count();
            taken <= tried("enqueue", result(one), until)
        }),
        DataKind::TotalQueue => {
            let out: Vec<i64> = ok("dequeue").map(result).collect();
            let is_lost = ok("enqueue").any(|one| !out.contains(&argument(one)));
            !is_lost && out.iter().all(|&it| tried("enqueue", it, usize::MAX) > 0)
        }
        DataKind::Counter => {
            let adds = || {
                all.iter()
                    .filter(|one| one.f == "add" && one.outcome != CaseOutcome::Fail)
            };
            ok("read").all(|one| {
                let sure = adds().filter(|add| add.is_before(one)).map(argument);
                let most = adds()
                    .filter(|add| Some(add.begun) < one.ended)
                    .map(argument);
                (sure.sum::<i64>()..=most.sum()).contains(&result(one))
            })
        }
        DataKind::Set => {
            let last = ok("read").max_by_key(|one| one.ended)?;
            let DataValue::All(seen) = &last.result else {
                return None;
            };
            let is_lost = ok("add").any(|one| !seen.contains(&argument(one)));
            !is_lost && seen.iter().all(|&it| tried("add", it, usize::MAX) > 0)
        }
        DataKind::UniqueIds => {
            let mut ids: Vec<i64> = ok("generate").map(result).collect();
            ids.sort_unstable();
            ids.is_sorted_by(|one, other| one < other)
        }
    })
}

/// The history that the checkers read.
fn history(all: &DataOperations) -> History {
    let mut events = Vec::new();
    for one in all {
        let value = one.argument.value();
        let op = Op::invoke(Process::Client(one.process), one.f, value);
        let completion = match one.outcome {
            CaseOutcome::Ok => op.complete(OpType::Ok, one.result.value()),
            CaseOutcome::Fail => op.complete(OpType::Fail, op.value.clone()),
            CaseOutcome::Info => op.complete(OpType::Info, op.value.clone()),
        };
        events.push((one.begun, op));
        events.extend(one.ended.map(|ended| (ended, completion)));
    }
    events.sort_by_key(|event| event.0);
    History::from_unindexed(events.into_iter().map(|event| event.1).collect())
}

fn edn(all: &DataOperations) -> String {
    let mut text = String::new();
    for op in &history(all) {
        let _ = writeln!(text, "{op}");
    }
    text
}

/// What an operation is invoked with.
fn invocation(kind: DataKind, fresh: i64, rng: &mut Rng) -> (&'static str, DataValue) {
    let number = |rng: &mut Rng| DataValue::Number(1 + rng.below(3).cast_signed());
    let text = |rng: &mut Rng| DataValue::Text((*rng.pick(&["a", "b", "c"])).to_owned());
    match (kind, rng.below(4)) {
        (DataKind::Register | DataKind::CasRegister, 0) | (DataKind::Register, 1) => {
            ("write", number(rng))
        }
        (DataKind::CasRegister, 1 | 2) => {
            let pair = DataValue::Pair(
                1 + rng.below(3).cast_signed(),
                1 + rng.below(3).cast_signed(),
            );
            ("cas", pair)
        }
        (DataKind::Mutex | DataKind::OwnedLock, 0 | 1) => ("acquire", DataValue::Nothing),
        (DataKind::Mutex | DataKind::OwnedLock, _) => ("release", DataValue::Nothing),
        (DataKind::Text, 0) => ("put", text(rng)),
        (DataKind::Text, 1) => ("append", text(rng)),
        (DataKind::Text, _) => ("get", DataValue::Nothing),
        (DataKind::Queue | DataKind::TotalQueue, 0 | 1) => ("enqueue", DataValue::Number(fresh)),
        (DataKind::Queue | DataKind::TotalQueue, _) => ("dequeue", DataValue::Nothing),
        (DataKind::Counter, 0 | 1) => ("add", number(rng)),
        (DataKind::Set, 0 | 1) => ("add", DataValue::Number(fresh)),
        (DataKind::Register | DataKind::CasRegister | DataKind::Counter | DataKind::Set, _) => {
            ("read", DataValue::Nothing)
        }
        (DataKind::UniqueIds, _) => ("generate", DataValue::Nothing),
    }
}

/// Random operations on a correct object, with at most one later change.
fn operations(kind: DataKind, rng: &mut Rng) -> DataOperations {
    let count = 2 + rng.index(6);
    let mut free: Vec<u64> = (0..=rng.below(4)).collect();
    let mut next_process = free.len() as u64;
    let mut all = DataOperations::new();
    // DataOperations that run, and whether they took place.
    let mut running: Vec<(usize, Option<bool>)> = Vec::new();
    let (mut state, mut time) = (DataState::default(), 0);
    while all.len() < count && !free.is_empty() || !running.is_empty() {
        let begins = all.len() < count && !free.is_empty() && rng.chance(0.4);
        if begins {
            let process = free.swap_remove(rng.index(free.len()));
            let (f, argument) = invocation(kind, all.len() as i64, rng);
            running.push((all.len(), None));
            all.push(DataOperation {
                process,
                f,
                result: argument.clone(),
                argument,
                outcome: CaseOutcome::Ok,
                begun: time,
                ended: None,
            });
        } else if !running.is_empty() {
            let at = rng.index(running.len());
            let (number, done) = running[at];
            let one = &mut all[number];
            if done.is_none() {
                let found = step(kind, &state, one).filter(|_| !rng.chance(0.1));
                running[at].1 = Some(found.is_some());
                if let Some((next, result)) = found {
                    (state, one.result) = (next, result);
                }
                continue;
            }
            running.swap_remove(at);
            let is_lost = rng.chance(0.15);
            if !(is_lost && rng.chance(0.3)) {
                one.ended = Some(time);
            }
            one.outcome = match done {
                _ if is_lost => CaseOutcome::Info,
                Some(true) => CaseOutcome::Ok,
                _ => CaseOutcome::Fail,
            };
            let process = if is_lost { next_process } else { one.process };
            next_process += u64::from(is_lost);
            free.push(process);
        }
        time += 1;
    }
    if rng.chance(0.6) {
        disturb(kind, &mut all, rng);
    }
    all
}

fn disturb(kind: DataKind, all: &mut DataOperations, rng: &mut Rng) {
    let at = rng.index(all.len());
    let one = &mut all[at];
    let number = rng.below(5).cast_signed();
    // Locks return nothing.
    let is_lock = matches!(kind, DataKind::Mutex | DataKind::OwnedLock);
    match &mut one.result {
        result if is_lock || rng.chance(0.2) => {
            // What returned nothing cannot have succeeded where something is returned.
            let is_told = ["read", "get", "dequeue", "generate"].contains(&one.f);
            let can_succeed = !is_told || *result != DataValue::Nothing;
            if one.ended.is_some() {
                one.outcome =
                    *rng.pick(&[CaseOutcome::Fail, CaseOutcome::Ok][..=usize::from(can_succeed)]);
            }
        }
        DataValue::All(all) => {
            let known = all.iter().position(|&it| it == number);
            match known {
                Some(at) => drop(all.remove(at)),
                None => all.push(number),
            }
        }
        DataValue::Text(text) if one.f == "get" => {
            if rng.chance(0.5) || text.pop().is_none() {
                text.push('b');
            }
        }
        result => {
            let is_nil = number == 0 && kind != DataKind::Counter;
            let is_told = ["read", "dequeue", "generate"].contains(&one.f);
            if is_told && !(is_nil && one.f != "read") {
                *result = if is_nil {
                    DataValue::Nothing
                } else {
                    DataValue::Number(number)
                };
            }
        }
    }
}

/// Compares the checkers of data types on one history of each kind.
pub(crate) fn compare(seed: u64, number: u64, tally: &mut Tally) {
    tally.cases += 1;
    let mut rng = Rng::from_seed(seed ^ number).fork("data");
    for (kind, name, model) in KINDS {
        let checker = by_name(name, model).unwrap_or_else(|error| panic!("{error}"));
        let all = operations(kind, &mut rng);
        let (valid, kept) = (checker.check(&history(&all)).valid, is_kept(kind, &all));
        let row = tally.row(name, model.unwrap_or("-"));
        row.histories += 1;
        row.open += u64::from(kept.is_none());
        row.valid += u64::from(valid == Validity::Valid);
        row.invalid += u64::from(valid == Validity::Invalid);
        row.unknown += u64::from(matches!(valid, Validity::Unknown(_)));
        row.false_passes += u64::from(is_wrong(&valid, kept) == Some("false pass"));
        row.false_alarms += u64::from(is_wrong(&valid, kept) == Some("false alarm"));
        if let Validity::Unknown(reason) = &valid {
            let reason = format!("{name}: {}", without_digits(reason));
            *tally.reasons.entry(reason).or_default() += 1;
        }
        let Some(wrong) = is_wrong(&valid, kept) else {
            continue;
        };
        let small = shrink(&all, &|all| {
            let valid = checker.check(&history(all)).valid;
            is_wrong(&valid, is_kept(kind, all)) == Some(wrong)
        });
        let class = Name {
            kind: wrong.to_owned(),
            subject: format!("{name} {}", model.unwrap_or_default()),
        };
        let found = Class {
            count: 1,
            size: (small.len(), 0),
            edn: edn(&small),
            number,
            note: String::new(),
        };
        tally.disagree(class, found);
    }
}

fn is_wrong(valid: &Validity, kept: Option<bool>) -> Option<&'static str> {
    match (valid, kept) {
        (Validity::Valid, Some(false)) => Some("false pass"),
        (Validity::Invalid, Some(true)) => Some("false alarm"),
        _ => None,
    }
}

/// Leaves out operations as long as `still` holds.
fn shrink(all: &DataOperations, still: &dyn Fn(&DataOperations) -> bool) -> DataOperations {
    let mut best = all.clone();
    let mut at = 0;
    while at < best.len() {
        let mut less = best.clone();
        less.remove(at);
        if still(&less) {
            (best, at) = (less, 0);
        } else {
            at += 1;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(
        f: &'static str,
        argument: DataValue,
        result: DataValue,
        (begun, ended): (usize, usize),
    ) -> DataOperation {
        DataOperation {
            process: begun as u64,
            f,
            argument,
            result,
            outcome: CaseOutcome::Ok,
            begun,
            ended: Some(ended),
        }
    }

    #[test]
    fn a_stale_read_is_no_linearizable_one() {
        let write = |value, times| {
            one(
                "write",
                DataValue::Number(value),
                DataValue::Number(value),
                times,
            )
        };
        let read = |value, times| one("read", DataValue::Nothing, DataValue::Number(value), times);
        let kept = |all: DataOperations| is_kept(DataKind::Register, &all);
        assert_eq!(
            kept(vec![write(1, (0, 1)), write(2, (2, 3)), read(2, (4, 5))]),
            Some(true)
        );
        assert_eq!(
            kept(vec![write(1, (0, 1)), write(2, (2, 3)), read(1, (4, 5))]),
            Some(false)
        );
        assert_eq!(
            kept(vec![write(1, (0, 1)), write(2, (2, 6)), read(1, (4, 5))]),
            Some(true)
        );
        let mut lost = vec![
            write(1, (0, 1)),
            write(2, (2, 3)),
            read(2, (4, 5)),
            read(1, (6, 7)),
        ];
        lost[1].outcome = CaseOutcome::Info;
        assert_eq!(kept(lost.clone()), Some(false));
        lost.pop();
        assert_eq!(kept(lost.clone()), Some(true));
        lost[1].outcome = CaseOutcome::Fail;
        assert_eq!(kept(lost), Some(false));
    }

    #[test]
    fn both_verdicts_come_up_for_every_kind() {
        let mut rng = Rng::from_seed(3);
        for (kind, name, _) in KINDS {
            let found: Vec<_> = (0..1_500)
                .map(|_| is_kept(kind, &operations(kind, &mut rng)))
                .collect();
            for expected in [true, false] {
                let count = found.iter().filter(|it| **it == Some(expected)).count();
                assert!(count > 20, "{name} {expected}: {count}");
            }
        }
    }
}
