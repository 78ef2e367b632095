#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::{Expect, expect};
use seatrial_checker::{Checker as _, Validity, Verdict};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;

/// Judges EDN; values are tuples where a key is a word.
fn check(model: Model, text: &str) -> Verdict {
    let keyed = text.contains("[:");
    let options = ImportOptions {
        keyed,
        ..ImportOptions::default()
    };
    let history = import::read("a.edn", text.as_bytes(), Format::Edn, options).unwrap();
    Linearizable::new(model).check(&history)
}

fn golden(model: Model, text: &str, expected: &Expect) {
    let verdict = check(model, text);
    assert_eq!(verdict.valid, Validity::Invalid);
    let findings = verdict.findings.iter();
    let text: Vec<_> = findings
        .map(|finding| format!("{}\n", finding.summary))
        .collect();
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn a_stale_read_is_explained_in_words() {
    golden(
        Model::CasRegister,
        "{:process 0 :type :invoke :f :write :value 1}
         {:process 0 :type :ok :f :write :value 1}
         {:process 1 :type :invoke :f :cas :value [1 2]}
         {:process 3 :type :invoke :f :write :value 7}
         {:process 3 :type :info :f :write :value 7}
         {:process 2 :type :invoke :f :read :value nil}
         {:process 2 :type :ok :f :read :value 2}
         {:process 1 :type :ok :f :cas :value [1 2]}
         {:process 4 :type :invoke :f :read :value nil}
         {:process 2 :type :invoke :f :read :value nil}
         {:process 2 :type :ok :f :read :value 1}
         {:process 4 :type :ok :f :read :value 7}",
        &expect![[r#"
            read 1 (process 2, op 10) cannot be linearized: it took place between op 9 and op 10, and no order of the operations before and beside it allows it.
            Ops 7 and 10 suffice, whether or not the other 4 took effect.
            The longest order that works has 5 operations:
              write 1 (process 0, op 1), then it is 1
              cas from 1 to 2 (process 1, op 7), then it is 2
              read 2 (process 2, op 6), then it is 2
              write 7 (process 3, op 4), then it is 7
              read 7 (process 4, op 11), then it is 7
            Over all orders, when it must take place it is 7 or 2.
            Concurrent with its end:
              write 7 (process 3, op 4, of unknown outcome)
              read 7 (process 4, op 11)
        "#]],
    );
}

#[test]
fn a_read_of_an_unwritten_value() {
    golden(
        Model::Register,
        "{:process 0 :type :invoke :f :write :value 1}
         {:process 1 :type :invoke :f :write :value 2}
         {:process 0 :type :ok :f :write :value 1}
         {:process 2 :type :invoke :f :read :value nil}
         {:process 2 :type :ok :f :read :value 3}
         {:process 3 :type :invoke :f :write :value 3}
         {:process 3 :type :ok :f :write :value 3}",
        &expect![[r#"
            read 3 (process 2, op 4) cannot be linearized: it took place between op 3 and op 4, and no order of the operations before and beside it allows it.
            Op 4 suffices, whether or not the other one took effect.
            The longest order that works has 1 operation:
              write 1 (process 0, op 2), then it is 1
            Nothing that began before its end leads to the state that it needs.
            Nothing is concurrent with its end.
        "#]],
    );
}

#[test]
fn two_holders_of_a_mutex() {
    golden(
        Model::Mutex,
        "{:process 0 :type :invoke :f :acquire :value [:lock nil]}
         {:process 0 :type :ok :f :acquire :value [:lock nil]}
         {:process 1 :type :invoke :f :acquire :value [:lock nil]}
         {:process 1 :type :ok :f :acquire :value [:lock nil]}
         {:process 1 :type :invoke :f :acquire :value [:other nil]}
         {:process 1 :type :ok :f :acquire :value [:other nil]}",
        &expect![[r#"
            Key :lock: acquire (process 1, op 3) cannot be linearized: it took place between op 2 and op 3, and no order of the operations before and beside it allows it.
            The longest order that works has 1 operation:
              acquire (process 0, op 1), then it is held
            Over all orders, when it must take place it is held.
            Nothing is concurrent with its end.
        "#]],
    );
}

#[test]
fn nil_is_the_initial_value_and_a_nil_invocation_says_nothing() {
    let valid = check(
        Model::Register,
        "{:process 0 :type :invoke :f :read :value nil}
         {:process 1 :type :invoke :f :write :value 4}
         {:process 0 :type :ok :f :read :value nil}
         {:process 2 :type :invoke :f :read :value nil}
         {:process 2 :type :fail :f :read :value nil}
         {:process 3 :type :invoke :f :read :value nil}
         {:process 1 :type :ok :f :write :value 4}
         {:process 3 :type :info :f :read :value nil}",
    );
    assert_eq!(valid.valid, Validity::Valid);
}

#[test]
fn what_makes_no_sense_is_unknown() {
    let reason = |model, text: &str| check(model, text).reason.unwrap();
    assert_eq!(
        reason(
            Model::Register,
            "{:process 0 :type :invoke :f :cas :value [1 2]}"
        ),
        "op 0: a register has no `cas`"
    );
    assert_eq!(
        reason(
            Model::CasRegister,
            "{:process 0 :type :invoke :f :cas :value 1}"
        ),
        "op 0: `cas` needs two values, not 1"
    );
    assert_eq!(
        reason(
            Model::Register,
            "{:process 0 :type :invoke :f :write :value [:x 2]}{:process 1 :type :invoke :f :write \
             :value 1}"
        ),
        "some operations have a key and some have none"
    );
    let text = b"{:process 0 :type :invoke :f :read :value [1 nil]}";
    let history = import::read("a", text, Format::Edn, ImportOptions::default()).unwrap();
    let verdict = Linearizable::new(Model::Register).check(&history);
    let reason = "op 0: its value looks like a tuple [key value]: read the history as keyed";
    assert_eq!(verdict.reason.as_deref(), Some(reason));
}

#[test]
fn bounds_give_unknown_with_how_far_it_got() {
    // Additions of unknown outcome in any number, and a sum that none of them explains.
    let mut ops = Vec::new();
    let mut push = |process, f: &'static str, kind, value| {
        let mut op = Op::invoke(Process::Client(process), f, Value::Int(value));
        op.kind = kind;
        ops.push(op);
    };
    for process in 0..8 {
        push(process, "add", OpType::Invoke, 2 << process);
    }
    push(30, "read", OpType::Invoke, 0);
    push(30, "read", OpType::Ok, 6);
    push(30, "read", OpType::Invoke, 0);
    push(30, "read", OpType::Ok, 1);
    let history = History::from_unindexed(ops);
    let checker = Linearizable::new(Model::Counter);
    assert_eq!(checker.check(&history).valid, Validity::Invalid);
    let reason = |configurations_max, memory_bytes_max| {
        let bound = Bound {
            configurations_max,
            memory_bytes_max,
        };
        checker.with_bound(bound).check(&history).reason.unwrap()
    };
    expect!["the bound on configurations was reached after 100 configurations, with 1 of 2 operations linearized"].assert_eq(&reason(100, usize::MAX));
    expect!["the bound on memory was reached after 247 configurations, with 1 of 2 operations linearized"].assert_eq(&reason(u64::MAX, 10_000));
}

/// Is there any order? Tries all of them, straight from the definition.
fn brute_force(model: Model, history: &History) -> bool {
    let ops = simple(history);
    place(&ops, &mut vec![false; ops.len()], &initial(model))
}

/// The operations that took effect or may have.
fn simple(history: &History) -> Vec<Simple> {
    let mut ops = Vec::new();
    for (position, op) in history.iter().enumerate().filter(|(_, op)| op.is_invoke()) {
        match history.completion(position) {
            Some(done) if done.is_ok() => {
                let end = history.pair(position).unwrap();
                ops.push((op.clone(), Some(done.value.clone()), position, end));
            }
            Some(done) if done.is_fail() => {}
            _ => ops.push((op.clone(), None, position, usize::MAX)),
        }
    }
    ops
}

fn initial(model: Model) -> Value {
    match model {
        Model::KeyValue => Value::text(""),
        Model::Counter => Value::Int(0),
        model if model.is_collection() => Value::List(Vec::new().into()),
        _ => Value::Nil,
    }
}

/// The elements after an operation on a collection, and what it takes or looks at.
fn collect(f: &str, argument: &Value, state: &[Value]) -> (Vec<Value>, Value) {
    let mut after = state.to_vec();
    let last = state.len().saturating_sub(1);
    let least = (0..state.len()).min_by_key(|&place| state[place].as_int());
    let place = match f {
        "dequeue" | "front" | "peek-front" | "pop-front" => 0,
        "poll" => least.unwrap_or(0),
        _ => last,
    };
    match f {
        "enqueue" | "push" | "insert" | "push-back" => after.push(argument.clone()),
        "push-front" => after.insert(0, argument.clone()),
        _ if state.is_empty() => return (after, Value::Nil),
        "top" | "front" | "peek-front" | "peek-back" => return (after, state[place].clone()),
        _ => {
            let taken = after.remove(place);
            return (after, taken);
        }
    }
    (after, argument.clone())
}

/// A step of a collection; the result of a bag's `take` chooses what is taken.
fn collection_step(op: &Op, result: Option<&Value>, state: &[Value]) -> Option<Value> {
    let f = op.f.as_str();
    if f == "take" {
        let mut after = state.to_vec();
        match result {
            Some(Value::Nil) => return state.is_empty().then(|| Value::List(after.into())),
            Some(element) => {
                let place = state.iter().position(|one| one == element)?;
                after.remove(place);
            }
            None => _ = after.pop(),
        }
        return Some(Value::List(after.into()));
    }
    let (after, taken) = collect(f, &op.value, state);
    let is_possible = match f {
        "enqueue" | "push" | "insert" | "push-back" | "push-front" | "add" => true,
        _ => result.is_none_or(|result| *result == taken),
    };
    is_possible.then(|| Value::List(after.into()))
}

/// Invocation, result, and the positions of invocation and completion, the last `usize::MAX` if it need not have taken effect.
type Simple = (Op, Option<Value>, usize, usize);

fn place(ops: &[Simple], placed: &mut [bool], state: &Value) -> bool {
    let open = |number: usize, placed: &[bool]| {
        !placed[number]
            && (0..ops.len()).all(|other| placed[other] || ops[other].3 >= ops[number].2)
    };
    if (0..ops.len()).all(|number| placed[number] || ops[number].3 == usize::MAX) {
        return true;
    }
    (0..ops.len()).any(|number| {
        if !open(number, placed) {
            return false;
        }
        // A removal of unknown outcome from a bag may have taken any element.
        let any = match (&ops[number], state) {
            ((op, None, ..), Value::List(elements)) if op.f == "take" => elements.to_vec(),
            _ => Vec::new(),
        };
        let (op, result, call, ret) = &ops[number];
        let chosen = any
            .into_iter()
            .map(|one| (op.clone(), Some(one), *call, *ret));
        let nexts = chosen.chain([(op.clone(), result.clone(), *call, *ret)]);
        let nexts: Vec<Value> = nexts.filter_map(|one| apply(&one, state)).collect();
        placed[number] = true;
        let found = nexts.iter().any(|next| place(ops, placed, next));
        placed[number] = false;
        found
    })
}

/// The state after an operation; `None` when it cannot take place now.
fn apply((op, result, ..): &Simple, state: &Value) -> Option<Value> {
    let held = Value::Bool(true);
    if let Value::List(elements) = state {
        return collection_step(op, result.as_ref(), elements);
    }
    match (op.f.as_str(), &op.value) {
        ("add", Value::Int(by)) => Some(Value::Int(state.as_int()? + by)),
        ("read" | "get", _) => match result {
            None => Some(state.clone()),
            // A map's nil is the empty text.
            Some(Value::Nil) if *state == Value::text("") => Some(state.clone()),
            Some(result) => (result == state).then(|| state.clone()),
        },
        ("write" | "put", value) => Some(value.clone()),
        ("cas", Value::Cas(from, to)) => (*state == Value::Int(*from)).then_some(Value::Int(*to)),
        ("acquire", _) => (*state != held).then_some(held),
        ("release", _) => (*state == held).then_some(Value::Nil),
        ("append", Value::Text(text)) => match state {
            Value::Text(before) => Some(Value::text(format!("{before}{text}"))),
            _ => None,
        },
        other => panic!("{other:?}"),
    }
}

/// A history of up to `ops_max` operations by up to four clients on one object: run on a true object, then spoilt a
/// little now and then.
fn random_history(model: Model, ops_max: u64, values: u64, rng: &mut Rng) -> History {
    let mut ops: Vec<Op> = Vec::new();
    let mut open: Vec<(Op, Option<Value>, bool)> = Vec::new();
    let mut state = initial(model);
    let mut left = 1 + rng.below(ops_max);
    let mut next_process = 0;
    let spoil = if rng.chance(0.3) { 0.0 } else { 0.4 };
    while left > 0 || !open.is_empty() {
        if left > 0 && open.len() < 4 && rng.chance(0.5) {
            left -= 1;
            next_process += 1;
            let op = random_invocation(model, next_process, values, rng);
            ops.push(op.clone());
            open.push((op, None, false));
        } else if !open.is_empty() {
            let number = rng.index(open.len());
            let (op, result, done) = open[number].clone();
            if !done && rng.chance(0.85) {
                let simple = (op.clone(), None, 0, 0);
                let next = apply(&simple, &state);
                let value = match &state {
                    Value::List(elements) => collect(op.f.as_str(), &op.value, elements).1,
                    _ if op.is_read() => state.clone(),
                    _ => op.value.clone(),
                };
                open[number] = (op, next.is_some().then_some(value), true);
                state = next.unwrap_or(state);
            } else {
                open.swap_remove(number);
                let (kind, value) = match result {
                    _ if rng.chance(0.15) => (OpType::Info, op.value.clone()),
                    Some(value) => (OpType::Ok, value),
                    None if done => (OpType::Fail, op.value.clone()),
                    None => (OpType::Info, op.value.clone()),
                };
                let (mut kind, mut value) = (kind, value);
                if rng.chance(spoil) {
                    kind = *rng.pick(&[OpType::Ok, OpType::Fail]);
                }
                if op.is_read() && kind == OpType::Ok && rng.chance(spoil) {
                    value = random_value(model, values, rng);
                }
                if kind != OpType::Info || rng.chance(0.5) {
                    ops.push(op.complete(kind, value));
                }
            }
        }
    }
    History::from_unindexed(ops)
}

trait IsRead {
    fn is_read(&self) -> bool;
}

impl IsRead for Op {
    fn is_read(&self) -> bool {
        let f = self.f.as_str();
        let takes = ["dequeue", "poll", "take", "front", "top"];
        matches!(f, "read" | "get")
            || f.starts_with("pe")
            || f.starts_with("pop")
            || takes.contains(&f)
    }
}

fn random_value(model: Model, values: u64, rng: &mut Rng) -> Value {
    match model {
        Model::KeyValue => Value::text(*rng.pick(&["", "a", "b", "ab", "ba", "aa"])),
        _ => Value::Int(rng.below(values).cast_signed()),
    }
}

fn random_invocation(model: Model, process: u64, values: u64, rng: &mut Rng) -> Op {
    let value = random_value(model, values, rng);
    let functions: &[&str] = match model {
        Model::FifoQueue => &["enqueue", "enqueue", "dequeue", "front"],
        Model::Stack => &["push", "push", "pop", "top"],
        Model::PriorityQueue => &["insert", "insert", "poll"],
        Model::Bag => &["enqueue", "take"],
        Model::Deque => &[
            "push-front",
            "push-back",
            "pop-front",
            "pop-back",
            "peek-front",
            "peek-back",
        ],
        Model::Counter => &["add", "read"],
        _ => &[],
    };
    if !functions.is_empty() {
        let mut op = Op::invoke(Process::Client(process), *rng.pick(functions), value);
        if op.is_read() {
            op.value = Value::Nil;
        }
        return op;
    }
    let (f, value) = match (model, rng.below(3)) {
        (Model::Mutex, 0) => ("release", Value::Nil),
        (Model::Mutex, _) => ("acquire", Value::Nil),
        (Model::KeyValue, 0) => ("get", Value::Nil),
        (_, 0) => ("read", Value::Nil),
        (Model::CasRegister, 1) => (
            "cas",
            Value::Cas(rng.below(3).cast_signed(), rng.below(3).cast_signed()),
        ),
        (Model::KeyValue, 1) => ("append", Value::text(*rng.pick(&["a", "b"]))),
        (Model::KeyValue, _) => ("put", value),
        _ => ("write", value),
    };
    Op::invoke(Process::Client(process), f, value)
}

#[test]
fn agrees_with_brute_force_on_small_histories() {
    const MODELS: usize = Model::ALL.len();
    let mut invalid = [0u64; MODELS];
    let all = seatrial_farm::histories(6_000);
    for seed in 0..all * MODELS as u64 {
        let model = Model::ALL[seed as usize % MODELS];
        let mut rng = Rng::from_seed(seed);
        let history = random_history(model, 7, if seed % 3 == 0 { 60 } else { 3 }, &mut rng);
        let expected = brute_force(model, &history);
        let verdict = Linearizable::new(model).check(&history);
        let text: String = history.iter().map(|op| op.to_string() + "\n").collect();
        let name = model.name();
        assert_eq!(
            verdict.valid == Validity::Valid,
            expected,
            "seed {seed} {name}\n{text}"
        );
        if expected && seed % 7 == 0 {
            // What was not recorded cannot make a beginning invalid.
            for end in 0..history.len() as u64 {
                let beginning = history.filter(|op| op.index < end);
                let verdict = Linearizable::new(model).check(&beginning);
                assert_eq!(
                    verdict.valid,
                    Validity::Valid,
                    "seed {seed} {name}, {end}\n{text}"
                );
            }
        }
        if !expected {
            invalid[seed as usize % MODELS] += 1;
            assert_eq!(verdict.valid, Validity::Invalid);
            if model.is_collection() {
                // Before its completion, a removal might have taken something else.
                continue;
            }
            let culprit = verdict.findings[0].operations[0];
            let until = |end| {
                let failed = |op: &Op| {
                    let completion = history.completion(op.index as usize);
                    op.is_fail() || op.is_invoke() && completion.is_some_and(Op::is_fail)
                };
                history.filter(|op| op.index < end && !failed(op))
            };
            assert!(
                brute_force(model, &until(culprit)),
                "seed {seed} {name}, {culprit}\n{text}"
            );
            assert!(
                !brute_force(model, &until(culprit + 1)),
                "seed {seed} {name}\n{text}"
            );
        }
    }
    // Both answers must be common for every model, or the test says little.
    assert!(
        invalid
            .iter()
            .all(|count| (all / 10..all / 10 * 9).contains(count)),
        "{invalid:?}"
    );
}

#[test]
fn a_drain_is_many_dequeues() {
    let drained = |elements: &str| {
        let text = format!(
            "{{:process 0 :type :invoke :f :enqueue :value 1}}{{:process 0 :type :ok :f :enqueue :value 1}}
             {{:process 0 :type :invoke :f :enqueue :value 2}}{{:process 0 :type :ok :f :enqueue :value 2}}
             {{:process 1 :type :invoke :f :drain}}{{:process 1 :type :ok :f :drain :value {elements}}}"
        );
        check(Model::FifoQueue, &text)
    };
    assert_eq!(drained("[1 2]").valid, Validity::Valid);
    assert_eq!(drained("[]").valid, Validity::Valid);
    assert_eq!(drained("[1 2 2]").valid, Validity::Invalid);
    assert_eq!(drained("[2]").valid, Validity::Invalid);
    let open = "{:process 1 :type :invoke :f :drain}";
    let reason = check(Model::Bag, open).reason.unwrap();
    expect!["op 0: a drain of unknown outcome may have taken any elements"].assert_eq(&reason);
}

mod certificates;
mod contended;
mod keys;
mod online_windows;
pub(crate) mod register_zones;
mod sequential;
mod witness;
