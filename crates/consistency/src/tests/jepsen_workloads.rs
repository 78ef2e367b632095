//! Jepsen's workloads against their definitions.

use crate::{AdyaG2, CausalRegister, CausalReverse, Comments, SequentialInserts};
use seatrial_checker::{Aims, Checker, Validity, Verdict, check_source};
use seatrial_farm::histories;
use seatrial_history::{Extra, History, Op, OpType, Process, Provenance, Symbol, Value};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::sync::Arc;

fn read(text: &str) -> History {
    let options = ImportOptions {
        keyed: true,
        ..ImportOptions::default()
    };
    import::read("run.edn", text.as_bytes(), Format::Edn, options).unwrap()
}

fn plain(text: &str) -> History {
    import::read(
        "run.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    )
    .unwrap()
}

fn summaries(verdict: &Verdict) -> Vec<&str> {
    let findings = verdict.findings.iter();
    findings.map(|finding| finding.summary.as_str()).collect()
}

/// Inserts and reads of a few clients: values, visible ones at random.
fn random_inserts(rng: &mut Rng) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let mut open: Vec<Option<Op>> = vec![None; 3];
    let mut inserted: Vec<i64> = Vec::new();
    let hides = *rng.pick(&[0.0, 0.05, 0.3]);
    let mut next = 0;
    for _ in 0..rng.below(24) {
        let client = rng.index(open.len());
        let op = match open[client].take() {
            None if rng.chance(0.6) => {
                next += 1;
                let process = Process::Client(client as u64);
                Op::invoke(process, "write", Value::Int(next))
            }
            None => Op::invoke(Process::Client(client as u64), "read", Value::Nil),
            Some(started) if started.f == "write" => {
                let kind = *rng.pick(&[
                    OpType::Ok,
                    OpType::Ok,
                    OpType::Ok,
                    OpType::Info,
                    OpType::Fail,
                ]);
                if kind == OpType::Ok || kind == OpType::Info && rng.chance(0.5) {
                    inserted.extend(started.value.as_int());
                }
                started.complete(kind, started.value.clone())
            }
            Some(started) => {
                let seen = inserted.iter().filter(|_| !rng.chance(hides));
                let seen: Arc<[Value]> = seen.map(|&value| Value::Int(value)).collect();
                started.complete(OpType::Ok, Value::Set(seen))
            }
        };
        if op.is_invoke() {
            open[client] = Some(op.clone());
        }
        ops.push(op);
    }
    ops
}

/// Reads that show an insert without one that completed before it was invoked.
fn reversed(ops: &[Op]) -> u64 {
    let at = |value: &Value, kind: OpType| {
        let is_it = |op: &Op| op.f == "write" && op.kind == kind && op.value == *value;
        ops.iter().position(is_it)
    };
    let all = ops.iter().filter(|op| op.f == "write" && op.is_invoke());
    let all: Vec<&Value> = all.map(|op| &op.value).collect();
    let is_reversed = |seen: &[Value]| {
        all.iter().any(|one| {
            all.iter().any(|other| {
                at(one, OpType::Ok)
                    .is_some_and(|completed| Some(completed) < at(other, OpType::Invoke))
                    && seen.contains(other)
                    && !seen.contains(one)
            })
        })
    };
    let reads = ops.iter().filter(|op| op.f == "read" && op.is_ok());
    reads
        .filter(|op| matches!(&op.value, Value::Set(seen) if is_reversed(seen)))
        .count() as u64
}

#[test]
fn reversed_inserts_are_those_of_all_pairs() {
    let mut counts = [0u64; 3];
    let all = histories(20_000);
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed ^ 0x00ca_05a1);
        let ops = random_inserts(&mut rng);
        let expected = reversed(&ops);
        let history = History::from_unindexed(ops);
        for verdict in [CausalReverse.check(&history), Comments.check(&history)] {
            let found = verdict
                .anomalies
                .get("causal-reverse")
                .copied()
                .unwrap_or(0);
            assert_eq!(found, expected, "seed {seed}: {verdict:?}");
            assert_eq!(
                verdict.valid == Validity::Invalid,
                expected > 0,
                "seed {seed}"
            );
        }
        counts[match CausalReverse.check(&history).valid {
            Validity::Valid => 0,
            Validity::Invalid => 1,
            Validity::Unknown(_) => 2,
        }] += 1;
    }
    println!("causal-reverse, comments: {all} histories: valid, invalid, unknown: {counts:?}");
    assert!(counts.iter().all(|&count| count > all / 50), "{counts:?}");
}

#[test]
fn a_reversed_insert_is_explained() {
    let text = "
        {:process 0 :type :invoke :f :write :value [1 5]}
        {:process 0 :type :ok     :f :write :value [1 5]}
        {:process 1 :type :invoke :f :write :value [1 6]}
        {:process 2 :type :invoke :f :read  :value [1 nil]}
        {:process 2 :type :ok     :f :read  :value [1 #{6}]}
        {:process 2 :type :invoke :f :read  :value [1 nil]}
        {:process 2 :type :ok     :f :read  :value [1 #{5 6 7}]}";
    let history = read(text);
    let verdict = CausalReverse.check(&history);
    assert_eq!(
        summaries(&verdict),
        [
            "Key 1: Op 4 read 6 and not 5: the write of 5 completed in op 1, before the write of 6 was invoked in op 2.",
            "Key 1: Op 6 read 7, and no write of it had begun that did not fail.",
        ]
    );
    // With operations missing anywhere, the write of 7 may be among them; that 5 is missing stays.
    let attributes = serde_json::json!({"salvaged": {"missing": [{"from": 3}]}});
    let aims = Aims {
        provenance: Provenance::of_attributes(&attributes),
        ..Aims::default()
    };
    let salvaged = check_source(&CausalReverse, &history, &aims)
        .unwrap()
        .verdict;
    assert_eq!(salvaged.valid, Validity::Invalid);
    assert_eq!(salvaged.anomalies.len(), 1);
}

#[test]
fn keys_are_found_in_the_order_of_their_writes() {
    let text = "
        {:process 0 :type :invoke :f :write :value 4}
        {:process 0 :type :info   :f :write :value 4}
        {:process 1 :type :invoke :f :read  :value 4}
        {:process 1 :type :ok     :f :read  :value [4 [nil \"4_1\" \"4_0\"]]}
        {:process 1 :type :invoke :f :read  :value 4}
        {:process 1 :type :ok     :f :read  :value [4 [nil nil nil]]}
        {:process 1 :type :invoke :f :read  :value 4}
        {:process 1 :type :ok     :f :read  :value [4 [\"4_2\" \"4_1\" \"4_0\"]]}";
    let verdict = SequentialInserts.check(&plain(text));
    assert_eq!(verdict.valid, Validity::Valid, "{verdict:?}");
    let counts = serde_json::to_value(&verdict.details).unwrap();
    for (name, count) in [
        ("all_count", 1),
        ("some_count", 2),
        ("none_count", 1),
        ("bad_count", 0),
    ] {
        assert_eq!(counts[name], count, "{name}");
    }
    let bad = format!(
        "{text}
        {{:process 1 :type :invoke :f :read  :value 4}}
        {{:process 1 :type :ok     :f :read  :value [4 [\"4_2\" nil \"4_0\"]]}}"
    );
    let verdict = SequentialInserts.check(&plain(&bad));
    assert_eq!(
        summaries(&verdict),
        [
            "Op 9 read [\"4_2\" nil \"4_0\"], later keys first: it found a key, and then not one that was written before it."
        ]
    );
    let none = SequentialInserts.check(&History::default());
    assert!(matches!(none.valid, Validity::Unknown(_)));
}

#[test]
fn at_most_one_insert_of_a_pair_succeeds() {
    let text = |second: &str| {
        format!(
            "{{:process 0 :type :invoke :f :insert :value [3 [1 nil]]}}
             {{:process 1 :type :invoke :f :insert :value [3 [nil 2]]}}
             {{:process 0 :type :ok     :f :insert :value [3 [1 nil]]}}
             {{:process 1 :type {second} :f :insert :value [3 [nil 2]]}}
             {{:process 1 :type :invoke :f :insert :value [4 [nil 9]]}}
             {{:process 1 :type :fail   :f :insert :value [4 [nil 9]]}}"
        )
    };
    for outcome in [":fail", ":info"] {
        let verdict = AdyaG2.check(&read(&text(outcome)));
        assert_eq!(verdict.valid, Validity::Valid);
        let details = serde_json::to_value(&verdict.details).unwrap();
        let counts =
            ["key_count", "legal_count", "illegal_count"].map(|name| details[name].clone());
        assert_eq!(counts, [2, 1, 0]);
    }
    for history in [read(&text(":ok")), plain(&text(":ok"))] {
        let verdict = AdyaG2.check(&history);
        assert_eq!(
            summaries(&verdict),
            [
                "Key 3: 2 inserts succeeded, and each must have seen no row: [1 nil] in op 2, [nil 2] in op 3."
            ]
        );
        assert_eq!(verdict.anomalies["G2"], 1);
    }
}

/// The operations of one key: r w r w r with outcomes and results at random; the positions of the operations that follow.
fn random_register(rng: &mut Rng) -> Vec<Op> {
    let mut ops = Vec::new();
    let functions = ["read-init", "write", "read", "write", "read", "read"];
    let mut value = 0;
    for (f, process) in functions.into_iter().zip(0..) {
        if f == "write" {
            value += 1;
        }
        let argument = if f == "write" {
            Value::Int(value)
        } else {
            Value::Nil
        };
        let invocation = Op::invoke(Process::Client(process), f, argument.clone());
        let kind = *rng.pick(&[
            OpType::Ok,
            OpType::Ok,
            OpType::Ok,
            OpType::Info,
            OpType::Fail,
        ]);
        let result = match f {
            "write" => argument,
            _ if rng.chance(0.7) => Value::Int(value),
            _ => Value::Int(rng.below(3).cast_signed()),
        };
        let mut completion = invocation.complete(kind, result);
        let link = (Symbol::new("link"), Value::Word(Symbol::new("init")));
        completion.extra = Extra::new(&[link]);
        ops.extend([invocation, completion]);
    }
    ops
}

/// Is there a moment for each write of unknown outcome at which it takes effect, or none?
fn explains(ops: &[Op], value: i64, pending: &[i64]) -> bool {
    let Some((op, rest)) = ops.split_first() else {
        return true;
    };
    // One of the pending writes takes effect now.
    for (at, &write) in pending.iter().enumerate() {
        let mut others = pending.to_vec();
        others.remove(at);
        if explains(ops, write, &others) {
            return true;
        }
    }
    match (op.f.as_str(), op.kind) {
        ("write", OpType::Ok) => explains(rest, op.value.as_int().unwrap(), pending),
        ("write", OpType::Info) => {
            let mut pending = pending.to_vec();
            pending.extend(op.value.as_int());
            explains(rest, value, &pending)
        }
        ("read" | "read-init", OpType::Ok) => {
            op.value.as_int() == Some(value) && explains(rest, value, pending)
        }
        _ => explains(rest, value, pending),
    }
}

#[test]
fn a_causal_register_is_that_of_all_moments() {
    let mut counts = [0u64; 3];
    let all = histories(20_000);
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed ^ 0x00ca_05a2);
        let ops = random_register(&mut rng);
        let expected = explains(&ops, 0, &[]);
        let verdict = CausalRegister.check(&History::from_unindexed(ops.clone()));
        assert_eq!(
            verdict.valid == Validity::Invalid,
            !expected,
            "seed {seed}: {verdict:?} {ops:?}"
        );
        counts[match verdict.valid {
            Validity::Valid => 0,
            Validity::Invalid => 1,
            Validity::Unknown(_) => 2,
        }] += 1;
    }
    println!("causal: {all} histories: valid, invalid, unknown: {counts:?}");
    assert!(
        counts[..2].iter().all(|&count| count > all / 20),
        "{counts:?}"
    );
}

#[test]
fn causal_operations_link_to_the_last_position() {
    let text = |link: &str, value: &str| {
        format!(
            "{{:process 0 :type :invoke :f :read-init :value [7 nil]}}
             {{:process 0 :type :ok :f :read-init :value [7 0] :position 10 :link :init}}
             {{:process 0 :type :invoke :f :write :value [7 1]}}
             {{:process 0 :type :ok :f :write :value [7 1] :position 11 :link 10}}
             {{:process 0 :type :invoke :f :read :value [7 nil]}}
             {{:process 0 :type :ok :f :read :value [7 {value}] :position 12 :link {link}}}"
        )
    };
    let verdict = |link, value| CausalRegister.check(&read(&text(link, value)));
    assert_eq!(
        verdict("11", "1").valid,
        Validity::Valid,
        "{:?}",
        verdict("11", "1")
    );
    assert_eq!(
        summaries(&verdict("10", "1")),
        ["Key 7: Op 5 links to 10, and the last position that its client saw is 11."]
    );
    assert_eq!(
        summaries(&verdict("11", "0")),
        ["Key 7: Op 5 read 0, and 1 was written before it in op 3."]
    );
}
