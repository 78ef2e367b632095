//! Every checker answers every history, and the same one with the same words.

use seatrial_check::{by_name, names};
use seatrial_checker::{Validity, Verdict};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;

fn key(rng: &mut Rng) -> Key {
    match rng.below(4) {
        0 => Key::Word(Symbol::new("x")),
        1 => Key::Text("y".into()),
        _ => Key::Int(rng.below(3).cast_signed()),
    }
}

fn int(rng: &mut Rng) -> i64 {
    match rng.below(20) {
        0 => *rng.pick(&[i64::MIN, i64::MAX, -1]),
        _ => rng.below(6).cast_signed(),
    }
}

fn mop(family: u64, junk: f64, next: &mut i64, rng: &mut Rng) -> Mop {
    let key = key(rng);
    *next += 1;
    // Unique as a rule, or the judgement would end at once.
    let value = if rng.chance(junk / 2.0) {
        int(rng)
    } else {
        *next
    };
    match (
        rng.below(2),
        if rng.chance(junk / 4.0) {
            rng.below(2)
        } else {
            family
        },
    ) {
        (0, 0) => Mop::Append {
            key,
            element: value,
        },
        (0, _) => Mop::Write { key, value },
        (_, family) => {
            let observed = match (rng.below(3), family) {
                (0, _) => Observed::Nil,
                (_, 0) => Observed::List(
                    (0..rng.below(4))
                        .map(|_| 1 + rng.below(20).cast_signed())
                        .collect(),
                ),
                _ => Observed::Register(1 + rng.below(20).cast_signed()),
            };
            Mop::Read { key, observed }
        }
    }
}

/// What the clients of a history of this shape do.
fn functions(shape: u64, rng: &mut Rng) -> Vec<&'static str> {
    let names = [
        "read", "write", "cas", "acquire", "release", "get", "put", "append", "txn", "other",
        "add", "enqueue", "dequeue", "drain", "generate", "transfer",
    ];
    match shape {
        0 => names.into(),
        1 => vec!["txn"],
        2 => vec!["read", "write", "cas"],
        3 => vec!["read", "add", "transfer"],
        4 => vec!["enqueue", "dequeue", "drain", "generate"],
        _ => vec![
            *rng.pick(&["acquire", "get"]),
            *rng.pick(&["release", "append"]),
        ],
    }
}

/// Operations without rhyme or reason: clients that overlap themselves, completions of nothing, values of any shape.
fn random_history(rng: &mut Rng) -> History {
    let junk = if rng.chance(0.2) { 0.03 } else { 0.0 };
    let shape = rng.below(6);
    let functions = functions(shape, rng);
    let (family, keyed, mut next, mut index) = (rng.below(2), rng.chance(0.3), 0, 0);
    let mut ops = Vec::new();
    for _ in 0..rng.below(60) {
        let process = match rng.below(20) {
            0 => Process::NEMESIS,
            1 => Process::Client(u64::MAX),
            _ => Process::Client(rng.below(4)),
        };
        let f = *rng.pick(&functions);
        let value = match (f, if rng.chance(junk) { rng.below(2) } else { 2 }) {
            (_, 0) => Value::Nil,
            (_, 1) => Value::List([Value::Bool(true), Value::Nil].into()),
            ("txn", _) => Value::Txn(
                (0..rng.below(5))
                    .map(|_| mop(family, junk, &mut next, rng))
                    .collect(),
            ),
            ("cas", _) => Value::Cas(int(rng), int(rng)),
            ("transfer", _) => Value::transfer(int(rng), int(rng), int(rng)),
            ("drain", _) => Value::integers(&[int(rng), int(rng)]),
            ("read", _) if shape == 3 => match rng.below(3) {
                0 => Value::integer_set(&[int(rng), int(rng), int(rng)]),
                1 => Value::balances(&[(1, int(rng)), (2, int(rng))]),
                _ => Value::Int(int(rng)),
            },
            ("get" | "append" | "put", _) => Value::text(*rng.pick(&["", "a", "b", "ab"])),
            _ => Value::Int(int(rng)),
        };
        let value = if keyed && f != "txn" {
            Value::Keyed(key(rng), value.into())
        } else {
            value
        };
        let mut op = Op::invoke(process, f, value);
        let kinds = [
            OpType::Invoke,
            OpType::Invoke,
            OpType::Ok,
            OpType::Ok,
            OpType::Fail,
            OpType::Info,
        ];
        op.kind = *rng.pick(&kinds);
        index += 1 + u64::from(rng.chance(0.1)) * rng.below(1_000);
        op.index = index;
        op.time = if rng.chance(0.1) {
            int(rng)
        } else {
            index.cast_signed()
        };
        ops.push(op);
    }
    History::from_ops(ops)
}

/// Anomalies, findings and validity agree, and name existing operations.
fn makes_sense(verdict: &Verdict, history: &History, context: &str) {
    let is_invalid = verdict.valid == Validity::Invalid;
    assert_eq!(!verdict.anomalies.is_empty(), is_invalid, "{context}");
    assert_eq!(!verdict.findings.is_empty(), is_invalid, "{context}");
    for finding in &verdict.findings {
        let known = |index: &u64| history.get(*index).is_some();
        assert!(
            finding.operations.iter().all(known),
            "{context}: {finding:?}"
        );
        assert!(
            verdict.anomalies.contains_key(finding.anomaly),
            "{}",
            context
        );
        assert!(
            !finding.summary.contains("depend on each other"),
            "{context}: {finding:?}"
        );
    }
}

#[test]
fn any_history_gets_an_answer() {
    let levels = [
        "read-uncommitted",
        "snapshot-isolation",
        "strict-serializable",
    ];
    let mut answers = [0; 3];
    for seed in 0..12_000 {
        let mut rng = Rng::from_seed(seed);
        let history = random_history(&mut rng);
        let functions: Vec<_> = history.iter().map(|op| op.f.as_str()).collect();
        let fitting = names().filter(|name| match *name {
            "stats" => false,
            "list-append" | "rw-register" | "g1" => functions.contains(&"txn"),
            "mutex" => functions.contains(&"acquire"),
            "kv-map" => functions.contains(&"get"),
            "set" | "set-full" | "counter" | "linearizable-counter" | "linearizable-set" => {
                functions.contains(&"add")
            }
            "bank" => functions.contains(&"transfer"),
            "queue" | "total-queue" | "fifo-queue" | "bag" => functions.contains(&"enqueue"),
            "unique-ids" => functions.contains(&"generate"),
            _ => functions.contains(&"cas"),
        });
        let fitting: Vec<_> = fitting.collect();
        let name = if fitting.is_empty() || rng.chance(0.1) {
            *rng.pick(&names().collect::<Vec<_>>())
        } else {
            *rng.pick(&fitting)
        };
        let transactional = name == "list-append" || name == "rw-register";
        let level = transactional.then(|| *rng.pick(&levels));
        let checker = by_name(name, level).unwrap();
        let verdict = checker.check(&history);
        let context = || format!("seed {seed} {name} {level:?}");
        match &verdict.valid {
            Validity::Valid => answers[0] += 1,
            Validity::Invalid => answers[1] += 1,
            Validity::Unknown(reason) => {
                answers[2] += 1;
                assert_eq!(verdict.reason.as_ref(), Some(reason), "{}", context());
                assert!(
                    !reason.is_empty() && !reason.contains('\n'),
                    "{}: {reason}",
                    context()
                );
            }
        }
        makes_sense(&verdict, &history, &context());
        let again = serde_json::to_string(&checker.check(&history)).unwrap();
        assert_eq!(
            serde_json::to_string(&verdict).unwrap(),
            again,
            "{}",
            context()
        );
    }
    assert!(answers.iter().all(|&count| count > 1_000), "{answers:?}");
}
