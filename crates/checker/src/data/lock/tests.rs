//! Locks against a search through all orders.

use super::*;
use crate::data::tests::no_beginning_is_invalid;
use crate::{Aims, Validity, check_source};
use seatrial_history::{Op, Process, Value};
use seatrial_machine::Rng;

/// A lock as its discipline has it; [`None`]: it cannot be done.
#[derive(Clone, Copy, Debug, Default)]
struct Sequential {
    owner: Option<Process>,
    depth: u32,
    fence: Option<i64>,
    largest: Option<i64>,
}

impl Sequential {
    fn step(
        self,
        discipline: Discipline,
        is_acquisition: bool,
        process: Process,
        fence: Option<i64>,
    ) -> Option<Sequential> {
        let depth_max = Lock::new(discipline).depth();
        let fence = fence.filter(|_| discipline.is_fenced());
        let rises = fence.is_none() || fence > self.largest;
        let largest = self.largest.max(fence);
        if !is_acquisition {
            let is_owner = self.owner == Some(process)
                || discipline == Discipline::Mutex && self.owner.is_some();
            let depth = self.depth.checked_sub(1).filter(|_| is_owner)?;
            let (owner, fence) = if depth > 0 {
                (self.owner, self.fence)
            } else {
                (None, None)
            };
            return Some(Sequential {
                owner,
                depth,
                fence,
                largest: self.largest,
            });
        }
        if self.owner.is_none() {
            let owner = Some(process);
            return rises.then_some(Sequential {
                owner,
                depth: 1,
                fence,
                largest,
            });
        }
        if self.owner != Some(process) || self.depth >= depth_max || discipline == Discipline::Mutex
        {
            return None;
        }
        let depth = self.depth + 1;
        match self.fence {
            None => rises.then_some(Sequential {
                depth,
                fence,
                largest,
                ..self
            }),
            _ if fence.is_none() || fence == self.fence => Some(Sequential { depth, ..self }),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Action {
    began: usize,
    /// [`usize::MAX`] when it is unknown whether it took place.
    ended: usize,
    is_acquisition: bool,
    process: Process,
    fence: Option<i64>,
}

/// Is there an order? Tries all.
fn is_possible(discipline: Discipline, now: Sequential, actions: &[Action]) -> bool {
    let first = actions
        .iter()
        .map(|one| one.ended)
        .min()
        .unwrap_or(usize::MAX);
    if first == usize::MAX {
        return true;
    }
    (0..actions.len()).any(|place| {
        let one = actions[place];
        let next = now.step(discipline, one.is_acquisition, one.process, one.fence);
        let Some(next) = next.filter(|_| one.began < first) else {
            return false;
        };
        let mut rest = actions.to_vec();
        rest.remove(place);
        is_possible(discipline, next, &rest)
    })
}

fn actions(history: &History) -> Vec<Action> {
    let invocations = history.iter().enumerate().filter(|(_, op)| op.is_invoke());
    let actions = invocations.filter_map(|(began, op)| {
        let completion = history.completion(began);
        if completion.is_some_and(Op::is_fail) {
            return None;
        }
        let success = completion.filter(|op| op.is_ok());
        Some(Action {
            began,
            ended: success.map_or(usize::MAX, |op| op.index as usize),
            is_acquisition: op.f == "acquire",
            process: op.process,
            fence: success
                .and_then(|op| op.value.as_int())
                .filter(|fence| *fence != -1),
        })
    });
    actions.collect()
}

/// Three clients of a lock that may admit a second holder, or return an old fence.
fn locks(rng: &mut Rng, discipline: Discipline, events: u64) -> History {
    let sloppiness = *rng.pick(&[0.0, 0.0, 0.1, 0.3]);
    let mut lock = Sequential::default();
    let mut fences = 0;
    let mut ops: Vec<Op> = Vec::new();
    let mut clients: [(u64, u32, Option<Op>); 3] = [0, 1, 2].map(|process| (process, 0, None));
    let mut next = 3;
    for _ in 0..4 + rng.below(events) {
        let (process, depth, open) = &mut clients[rng.index(3)];
        let Some(op) = open.take() else {
            let f = if rng.chance(if *depth > 0 { 0.7 } else { 0.1 }) {
                "release"
            } else {
                "acquire"
            };
            let op = Op::invoke(Process::Client(*process), f, Value::Nil);
            *open = Some(op.clone());
            ops.push(op);
            continue;
        };
        let is_acquisition = op.f == "acquire";
        let mut fence = None;
        if is_acquisition && rng.below(4) > 0 {
            fences += 1;
            fence = Some(if rng.chance(sloppiness) {
                fences - 2
            } else {
                fences
            });
            if lock.owner == Some(op.process) && lock.fence.is_some() && !rng.chance(sloppiness) {
                fence = lock.fence;
            }
        }
        let step = lock.step(discipline, is_acquisition, op.process, fence);
        let crashes = rng.below(6) == 0;
        let is_done = step.is_some() || rng.chance(sloppiness);
        if !crashes || rng.below(2) == 0 {
            lock = step.unwrap_or(lock);
        }
        if crashes {
            *process = next;
            *depth = 0;
            next += 1;
            ops.push(op.complete(OpType::Info, Value::Nil));
        } else if is_done {
            *depth = if is_acquisition {
                *depth + 1
            } else {
                depth.saturating_sub(1)
            };
            let value = if is_acquisition {
                Value::Int(fence.unwrap_or(-1))
            } else {
                Value::Nil
            };
            ops.push(op.complete(OpType::Ok, value));
        } else {
            ops.push(op.complete(OpType::Fail, Value::Nil));
        }
    }
    History::from_unindexed(ops)
}

#[test]
fn a_lock_is_possible_exactly_when_some_order_is() {
    for discipline in Discipline::ALL {
        let mut found = [0; 2];
        for seed in 0..2_500 {
            let history = locks(&mut Rng::from_seed(seed), discipline, 12);
            let checker = Lock::new(discipline);
            let verdict = checker.check(&history);
            let expected = is_possible(discipline, Sequential::default(), &actions(&history));
            let printed = || {
                history.iter().map(Op::to_string).collect::<Vec<_>>().join(
                    "
",
                )
            };
            let found_valid = verdict.anomalies.is_empty();
            assert_eq!(
                found_valid,
                expected,
                "{} seed {seed}\n{}",
                discipline.name(),
                printed()
            );
            found[usize::from(expected)] += 1;
            if expected {
                no_beginning_is_invalid(&checker, &history, seed);
            }
            for finding in &verdict.findings {
                assert!(
                    finding
                        .operations
                        .iter()
                        .all(|&index| history.get(index).is_some())
                );
            }
        }
        assert!(
            found.iter().all(|&count| count > 200),
            "{discipline:?} {found:?}"
        );
    }
}

#[test]
fn a_streamed_check_has_the_same_verdict() {
    for seed in 0..30 {
        let history = locks(&mut Rng::from_seed(seed), Discipline::Mutex, 60);
        let text = |verdict| serde_json::to_string(verdict).unwrap();
        let owners = Lock::default().check(&history);
        let streamed = check_source(&Lock::default(), &history, &Aims::default());
        assert_eq!(text(&streamed.unwrap().verdict), text(&owners));
    }
}

fn push(ops: &mut Vec<Op>, process: u64, f: &'static str, kind: OpType, value: Value) {
    let op = Op::invoke(Process::Client(process), f, Value::Nil);
    ops.extend([op.clone(), op.complete(kind, value)]);
}

#[test]
fn findings_say_who_held_it() {
    let mut ops = Vec::new();
    push(&mut ops, 0, "acquire", OpType::Ok, Value::Int(5));
    push(&mut ops, 1, "acquire", OpType::Ok, Value::Int(4));
    push(&mut ops, 2, "release", OpType::Ok, Value::Nil);
    push(&mut ops, 0, "acquire", OpType::Ok, Value::Int(6));
    let text_of = |discipline, ops: &[Op]| {
        let verdict = Lock::new(discipline).check(&History::from_unindexed(ops.to_vec()));
        let summaries = verdict.findings.into_iter().map(|finding| finding.summary);
        summaries.collect::<Vec<_>>()
    };
    assert_eq!(
        text_of(Discipline::Fenced, &ops),
        [
            "Op 3 acquired the lock for process 1 while process 0 held it (since op 1).",
            "Op 7 acquired the lock for process 0, which had acquired it (op 1) and not released it.",
            "Op 3 acquired the lock with fence 4, after op 1 with 5.",
            "Op 5 released the lock for process 2, which did not hold it.",
        ]
    );
    assert_eq!(
        text_of(Discipline::Mutex, &ops),
        ["There is no order in which acquisitions and releases take turns up to op 3."]
    );
}

#[test]
fn operations_of_a_named_client_after_its_crash_are_ignored() {
    let named = |name: &str| {
        let pair = (Value::Word("client".into()), Value::text(name));
        Value::Map([pair].into())
    };
    let mut ops = Vec::new();
    push(&mut ops, 0, "acquire", OpType::Ok, named("n1"));
    push(&mut ops, 0, "release", OpType::Info, Value::Nil);
    push(&mut ops, 1, "acquire", OpType::Ok, named("n2"));
    let valid = Lock::default().check(&History::from_unindexed(ops.clone()));
    assert_eq!(valid.valid, Validity::Valid);
    push(&mut ops, 3, "acquire", OpType::Ok, named("n1"));
    let unknown = Lock::default().check(&History::from_unindexed(ops.clone()));
    assert!(matches!(unknown.valid, Validity::Unknown(_)), "{unknown:?}");
    // Others are checked all the same.
    push(&mut ops, 4, "acquire", OpType::Ok, named("n3"));
    let invalid = Lock::default().check(&History::from_unindexed(ops));
    assert_eq!(invalid.anomalies["double-acquire"], 1);
}

#[test]
fn many_unknown_outcomes_are_no_burden() {
    let mut ops = Vec::new();
    let mut rng = Rng::from_seed(4);
    for process in 0..20_000 {
        let f = if process % 2 == 0 {
            "acquire"
        } else {
            "release"
        };
        let kind = if rng.below(3) == 0 {
            OpType::Info
        } else {
            OpType::Ok
        };
        push(&mut ops, process, f, kind, Value::Nil);
    }
    let verdict = Lock::new(Discipline::Mutex).check(&History::from_unindexed(ops));
    assert_eq!(verdict.valid, Validity::Valid);
}
