//! Histories as a run would leave them, made from a seed.

use seatrial_checker::{Finding, FindingStep, Overview, Validity, Verdict};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use serde_json::{Value as Json, json};

/// How a synthetic run goes.
#[derive(Clone, Copy)]
pub(crate) struct SyntheticShape {
    /// Operations of clients.
    pub(crate) operations: usize,
    /// Client threads.
    pub(crate) processes: u64,
    /// Length in seconds.
    pub(crate) seconds: u64,
    /// Pairs of a fault and its mending.
    pub(crate) faults: usize,
}

const FAULTS: [(&str, &str); 4] = [
    ("kill", "restart"),
    ("pause", "resume"),
    ("cut", "heal"),
    ("slow", "heal"),
];

/// Reads, writes and compare-and-sets on three nodes; slow and failing while something is broken.
pub(crate) fn history(seed: u64, shape: SyntheticShape) -> History {
    let mut rng = Rng::from_seed(seed);
    let end = shape.seconds * 1_000_000_000;
    let mut ops: Vec<Op> = Vec::new();
    let mut broken: Vec<(u64, u64)> = Vec::new();
    for number in 0..shape.faults {
        let slot = end / shape.faults as u64;
        let begin = slot * number as u64 + rng.below(slot / 2);
        let length = slot / 8 + rng.below(slot / 3);
        let (name, mending) = *rng.pick(&FAULTS);
        let node = Value::text(format!("n{}", 1 + rng.below(3)));
        nemesis(&mut ops, name, node.clone(), begin);
        let mended = if mending == "heal" { Value::Nil } else { node };
        nemesis(&mut ops, mending, mended, begin + length);
        broken.push((begin, begin + length));
    }
    let mut free: Vec<(u64, u64)> = (0..shape.processes).map(|process| (0, process)).collect();
    let mut next_process = shape.processes;
    for _ in 0..shape.operations {
        let turn = rng.index(free.len());
        let pause = rng.below(2 * end * shape.processes / shape.operations.max(1) as u64);
        let (ready, process) = free[turn];
        let begin = ready + pause;
        let trouble = broken
            .iter()
            .any(|(from, to)| (*from..*to).contains(&begin));
        let (kind, latency) = outcome(&mut rng, trouble);
        operation(&mut rng, &mut ops, process, begin, kind, latency);
        let process = match kind {
            OpType::Info => {
                next_process += 1;
                next_process - 1
            }
            _ => process,
        };
        free[turn] = (begin + latency + 1_000, process);
    }
    ops.sort_by_key(|op| op.time);
    History::from_unindexed(ops)
}

fn nemesis(ops: &mut Vec<Op>, name: &'static str, value: Value, time: u64) {
    let begin = Op {
        kind: OpType::Info,
        time: time as i64,
        ..Op::invoke(Process::NEMESIS, name, value)
    };
    let end = Op {
        time: begin.time + 3_000_000,
        ..begin.clone()
    };
    ops.extend([begin, end]);
}

fn outcome(rng: &mut Rng, trouble: bool) -> (OpType, u64) {
    let (fail, info) = if trouble {
        (0.15, 0.06)
    } else {
        (0.01, 0.0005)
    };
    let base = 300_000.0 * (1.0 + -(1.0 - rng.unit()).ln() * if trouble { 25.0 } else { 1.2 });
    match (rng.chance(info), rng.chance(fail)) {
        (true, _) => (OpType::Info, 1_000_000_000),
        (false, true) => (OpType::Fail, (base / 2.0) as u64),
        (false, false) => (OpType::Ok, base as u64),
    }
}

fn operation(
    rng: &mut Rng,
    ops: &mut Vec<Op>,
    process: u64,
    time: u64,
    kind: OpType,
    latency: u64,
) {
    let key = Key::Int(rng.below(20) as i64);
    let number = Value::Int(rng.below(5) as i64);
    let (f, asked, got) = match rng.below(3) {
        0 => ("read", Value::Nil, number),
        1 => ("write", number.clone(), number),
        _ => ("cas", Value::Cas(1, 2), Value::Cas(1, 2)),
    };
    let keyed = |value: Value| Value::Keyed(key.clone(), value.into());
    let invocation = Op {
        time: time as i64,
        ..Op::invoke(Process::Client(process), f, keyed(asked))
    };
    let node = Value::text(format!("n{}", 1 + process % 3));
    let completion = invocation.complete(kind, keyed(got)).with("node", node);
    let completion = Op {
        time: (time + latency) as i64,
        ..completion
    };
    let errors = ["connection refused", "conflict", "not the leader"];
    let completion = match kind {
        OpType::Fail => completion.with("error", Value::text(*rng.pick(&errors))),
        OpType::Info => completion.with("error", Value::text("timeout")),
        _ => completion,
    };
    ops.extend([invocation, completion]);
}

/// The attributes that a run would store.
pub(crate) fn attributes() -> Json {
    json!({
        "name": "kv register", "suite": "kv", "workload": "register", "seed": "91c4", "nodes": ["n1", "n2", "n3"],
        "faults": ["kill", "pause", "partition"], "started": "2026-11-21T09:14:03Z", "version": "0.1.0",
        "options": {"time": 30, "concurrency": 10, "rate": null, "interval": 3, "timeout": 2.0},
        "command": "seatrial test kv --workload register --faults kill,pause,partition --time 30 --seed 91c4",
    })
}

/// A transactional history of a few operations in which two transactions miss each other's append, and the verdict
/// that a checker would give.
pub(crate) fn transactions() -> (History, Vec<Verdict>) {
    let mut verdict = Verdict::valid("list-append");
    verdict.valid = Validity::Invalid;
    verdict.model = Some("strict-serializable".to_owned());
    verdict.anomalies = [("G2-item", 1), ("G1c-realtime", 2), ("lost-update", 2)].into();
    verdict.not = vec!["serializable"];
    verdict.also_not = vec!["strict-serializable"];
    verdict.details = json!({"transactions": 4}).into();
    verdict.details.holds = Some(vec!["snapshot-isolation"]);
    verdict.findings = vec![write_skew(), circle()];
    (transactional_history(), vec![stats(), verdict])
}

fn transactional_history() -> History {
    use OpType::{Info, Invoke, Ok};
    let append = |key, element| Mop::Append {
        key: Key::Int(key),
        element,
    };
    let read = |key, list: &[i64]| Mop::Read {
        key: Key::Int(key),
        observed: Observed::List(list.into()),
    };
    let ask = |key| Mop::Read {
        key: Key::Int(key),
        observed: Observed::Nil,
    };
    let op = |process, microseconds: i64, kind, mops: Vec<Mop>| Op {
        kind,
        time: microseconds * 1_000,
        ..Op::invoke(Process::Client(process), "txn", Value::Txn(mops.into()))
    };
    History::from_unindexed(vec![
        op(0, 1_000, Invoke, vec![append(1, 1), ask(2)]),
        op(1, 1_500, Invoke, vec![append(2, 1), ask(1)]),
        op(2, 1_700, Invoke, vec![append(3, 7)]),
        op(0, 2_000, Ok, vec![append(1, 1), read(2, &[])]),
        op(1, 2_500, Ok, vec![append(2, 1), read(1, &[])]),
        op(3, 3_000, Invoke, vec![ask(1), ask(2), ask(3)]),
        op(2, 3_500, Info, vec![append(3, 7)]),
        op(
            3,
            4_000,
            Ok,
            vec![read(1, &[1]), read(2, &[1]), read(3, &[7])],
        ),
    ])
}

fn step(from: u64, to: u64, relation: &'static str, reason: &str) -> FindingStep {
    FindingStep {
        from,
        to,
        relation,
        reason: reason.to_owned(),
    }
}

fn write_skew() -> Finding {
    Finding {
        anomaly: "G2-item",
        summary: "T1 (op 3) and T2 (op 4) each missed what the other appended.\n\
                  T1 read key 2 = [] before T2's append of 1; T2 read key 1 = [] before T1's append of 1."
            .to_owned(),
        operations: vec![3, 4],
        steps: vec![
            step(3, 4, "rw", "T1 read key 2 = [], before T2 appended 1 to it"),
            step(4, 3, "rw", "T2 read key 1 = [], before T1 appended 1 to it"),
        ],
        linearization: None,
    }
}

fn circle() -> Finding {
    Finding {
        anomaly: "G1c-realtime",
        summary: "T4 saw T3's append, and T4 ended before T2 began.".to_owned(),
        operations: vec![3, 4, 6, 7],
        steps: vec![
            step(6, 7, "wr", "T4 observed T3's append of 7 to key 3"),
            step(7, 4, "realtime", "T4 ended before T2 began"),
            step(4, 3, "ww", "T1 appended 2 right after T2's 1 to key 5"),
            step(3, 6, "process", "the same process did T1 before T3"),
        ],
        linearization: None,
    }
}

/// What a checker of statistics says.
pub(crate) fn stats() -> Verdict {
    Verdict {
        details: json!({"ok": 3, "info": 1}).into(),
        ..Verdict::valid("stats")
    }
}

/// A valid verdict on registers.
pub(crate) fn linearizable() -> Verdict {
    Verdict {
        model: Some("linearizable".to_owned()),
        details: json!({"keys": 20, "states": 18_201}).into(),
        ..Verdict::valid("register")
    }
}

/// A verdict against some reads of the history.
pub(crate) fn stale_read(history: &History) -> Verdict {
    let is_read = |op: &&Op| op.is_ok() && op.f == "read";
    let reads: Vec<u64> = history
        .iter()
        .filter(is_read)
        .map(|op| op.index)
        .skip(40)
        .take(5)
        .collect();
    let mut verdict = linearizable();
    verdict.valid = Validity::Invalid;
    verdict.anomalies = [("nonlinearizable", 2)].into();
    verdict.not = vec!["linearizable"];
    let finding = |number: usize| Finding {
        anomaly: "nonlinearizable",
        summary: format!(
            "key 7: op {} read 3, but 4 had been written before it began and nothing wrote 3 since.\n\
             The longest prefix that can be explained ends before it.",
            reads.get(number).unwrap_or(&0)
        ),
        operations: reads.clone(),
        steps: Vec::new(),
        linearization: None,
    };
    verdict.findings = vec![finding(0), finding(1)];
    verdict
}

/// Counts and times of a history.
pub(crate) fn overview(history: &History) -> Overview {
    Overview::of(history).expect("a history in memory can be read")
}
