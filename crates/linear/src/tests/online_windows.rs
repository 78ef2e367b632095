//! Data types piece by piece against the same histories as a whole, and the state that is kept meanwhile.

use super::*;
use seatrial_checker::{Aims, Finding, OnlineChecker};
use seatrial_history::chunk::Assembly;
use seatrial_history::{Chunk, Key};

/// A started checker that searches for definite findings.
fn started(model: Model) -> Box<dyn OnlineChecker> {
    let aims = Aims {
        early: true,
        ..Aims::default()
    };
    Linearizable::new(model).start(&aims)
}

/// A history in chunks of random lengths.
fn cut(history: &History, rng: &mut Rng) -> Vec<Chunk> {
    let mut assembly = Assembly::new(65_536);
    let mut chunks = Vec::new();
    for op in history {
        assert!(assembly.push(op).unwrap().is_none());
        if rng.chance(0.15) {
            chunks.extend(assembly.rest().cloned());
        }
    }
    chunks.extend(assembly.rest().cloned());
    chunks
}

/// A small history, mostly of elements that are added once; the results of two removals may be exchanged.
fn small_history(model: Model, rng: &mut Rng) -> History {
    let is_windowed = matches!(model, Model::FifoQueue | Model::Bag);
    let values = if is_windowed || rng.chance(0.5) {
        2_000
    } else {
        3
    };
    let history = random_history(model, 30, values, rng);
    let mut ops: Vec<Op> = history.iter().cloned().collect();
    let is_result = |op: &Op| op.is_ok() && op.is_read();
    let results =
        |ops: &[Op]| -> Vec<usize> { (0..ops.len()).filter(|&at| is_result(&ops[at])).collect() };
    let taken = results(&ops);
    if rng.chance(0.4) && taken.len() > 1 {
        let (one, other) = (*rng.pick(&taken), *rng.pick(&taken));
        let value = ops[one].value.clone();
        ops[one].value = std::mem::replace(&mut ops[other].value, value);
    }
    if rng.chance(0.3) {
        for op in &mut ops {
            op.value = Value::Keyed(Key::Int(7), op.value.clone().into());
        }
    }
    History::from_unindexed(ops)
}

/// What must not depend on how a verdict was computed.
fn kernel(verdict: &Verdict) -> String {
    let details = verdict.details.to_json();
    let names = [
        "objects",
        "operations",
        "unknown",
        "keys",
        "keys_invalid",
        "results",
    ];
    let figures: Vec<String> = names
        .iter()
        .map(|name| details[*name].to_string())
        .collect();
    format!(
        "{:?} {:?} {:?} {}",
        verdict.valid,
        verdict.anomalies,
        verdict.not,
        figures.join(" ")
    )
}

/// The data types that are checked in windows.
const WINDOWED: [Model; 7] = [
    Model::FifoQueue,
    Model::Bag,
    Model::Stack,
    Model::PriorityQueue,
    Model::Deque,
    Model::Counter,
    Model::KeyValue,
];

#[test]
fn objects_piece_by_piece_are_as_the_whole() {
    let (mut valid, mut invalid, mut early) = (0, 0, 0);
    let count = seatrial_farm::seeds(3_500);
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed ^ 0xc011);
        let model = WINDOWED[seed as usize % WINDOWED.len()];
        let history = small_history(model, &mut rng);
        let mut checker = started(model);
        let mut found: Vec<Finding> = Vec::new();
        for chunk in cut(&history, &mut rng) {
            let _ = checker.push(&chunk);
            if rng.chance(0.5) {
                checker.search();
                found.extend(checker.definite(&history).unwrap());
            }
        }
        let verdict = checker.finish(&history).unwrap().verdict;
        let whole = Linearizable::new(model).check(&history);
        let lines: Vec<_> = history.iter().map(ToString::to_string).collect();
        let context = || format!("{model:?} {seed}\n{}", lines.join("\n"));
        assert_eq!(kernel(&verdict), kernel(&whole), "{}", context());
        if let Some(first) = found.first() {
            early += 1;
            assert!(!first.operations.is_empty(), "{}", context());
            assert_eq!(whole.valid, Validity::Invalid, "{first:?}\n{}", context());
        }
        match whole.valid {
            Validity::Invalid => invalid += 1,
            _ => valid += 1,
        }
    }
    println!("{valid} valid, {invalid} invalid, {early} seen before the end");
    assert!(valid > count / 10 && invalid > count / 10 && early > invalid / 2);
}

/// Names of an addition and a removal.
fn functions(model: Model) -> (&'static str, &'static str) {
    match model {
        Model::FifoQueue => ("enqueue", "dequeue"),
        Model::Stack => ("push", "pop"),
        Model::PriorityQueue => ("insert", "poll"),
        Model::Deque => ("push-back", "pop-front"),
        _ => ("add", "take"),
    }
}

/// Rounds of two clients: two concurrent additions, two removals, and now and then a removal of an empty collection; one
/// removal in 400 crashes, after which the collection has lost an element.
fn rounds(model: Model, count: i64) -> History {
    let (add, take) = functions(model);
    let mut ops = Vec::new();
    let mut process = 2;
    for round in 0..count {
        let invoke =
            |process, f: &'static str, value| Op::invoke(Process::Client(process), f, value);
        let element = |number: i64| Value::Int(2 * round + number);
        let adds = [0, 1].map(|one: i64| invoke(one.unsigned_abs(), add, element(one)));
        let takes = [0, 1].map(|one: u64| invoke(one, take, Value::Nil));
        ops.extend(adds.iter().cloned());
        ops.extend(
            adds.iter()
                .map(|op| op.complete(OpType::Ok, op.value.clone())),
        );
        if round % 200 == 7 {
            process += 1;
            let crashed = invoke(process, take, Value::Nil);
            ops.extend([crashed.clone(), crashed.complete(OpType::Info, Value::Nil)]);
            ops.extend([takes[0].clone(), takes[0].complete(OpType::Ok, element(1))]);
        } else {
            ops.extend(takes.iter().cloned());
            let results = takes.iter().zip([element(0), element(1)]);
            ops.extend(results.map(|(op, taken)| op.complete(OpType::Ok, taken)));
        }
        if round % 3 == 0 {
            ops.extend([takes[0].clone(), takes[0].complete(OpType::Ok, Value::Nil)]);
        }
    }
    History::from_unindexed(ops)
}

#[test]
fn the_state_of_a_collection_does_not_grow_with_its_history() {
    for model in &WINDOWED[..5] {
        let model = *model;
        let most_held = |count| {
            let history = rounds(model, count);
            let (mut checker, mut most) = (started(model), 0);
            for chunk in cut(&history, &mut Rng::from_seed(5)) {
                let _ = checker.push(&chunk);
                most = checker.progress().held.max(most);
            }
            let note = checker.progress().note;
            let verdict = checker.finish(&history).unwrap().verdict;
            assert_eq!((verdict.valid, note), (Validity::Valid, None), "{model:?}");
            most
        };
        // A crash costs its operation, the element that it took, and one that shows that it is gone.
        let crashes = |count: i64| 6 * (count / 200 + 1).unsigned_abs();
        for count in [400, 4_000] {
            let most = most_held(count);
            assert!(
                most <= 60 + 2 * crashes(count),
                "{model:?}: {most} operations held of {count} rounds"
            );
        }
    }
}

/// Rounds of three clients: two concurrent additions and a read of the sum; one addition in 400 crashes, without effect.
#[test]
fn the_state_of_a_counter_does_not_grow_with_its_history() {
    let most_held = |rounds: i64| {
        let (mut ops, mut sum) = (Vec::new(), 0);
        for round in 0..rounds {
            let adds = [0, 1].map(|one: i64| {
                let amount = Value::Int(1 + (round + one) % 3);
                Op::invoke(Process::Client(one.unsigned_abs()), "add", amount)
            });
            let read = Op::invoke(Process::Client(2), "read", Value::Nil);
            ops.extend(adds.iter().cloned());
            if round % 200 == 7 {
                let process = Process::Client(3 + round.unsigned_abs());
                let lost = Op::invoke(process, "add", Value::Int(100));
                ops.extend([lost.clone(), lost.complete(OpType::Info, Value::Int(100))]);
            }
            ops.extend(
                adds.iter()
                    .map(|op| op.complete(OpType::Ok, op.value.clone())),
            );
            sum += 2 + round % 3 + (round + 1) % 3;
            ops.extend([read.clone(), read.complete(OpType::Ok, Value::Int(sum))]);
        }
        let history = History::from_unindexed(ops);
        let (mut checker, mut most) = (started(Model::Counter), 0);
        for chunk in cut(&history, &mut Rng::from_seed(5)) {
            let _ = checker.push(&chunk);
            most = checker.progress().held.max(most);
        }
        let note = checker.progress().note;
        let verdict = checker.finish(&history).unwrap().verdict;
        assert_eq!((verdict.valid, note), (Validity::Valid, None));
        most
    };
    // Of a crash only its operation is left.
    assert!(most_held(400) <= 30);
    assert!(most_held(4_000) <= 50);
}

/// Thirty pushes of unknown outcome have more orders than are followed: the check says so, and decides in the end.
#[test]
fn too_many_configurations_leave_the_check_to_the_end() {
    let mut ops = Vec::new();
    for number in 0..30 {
        let lost = Op::invoke(
            Process::Client(9 + number),
            "push",
            Value::Int(number.cast_signed()),
        );
        ops.extend([
            lost.clone(),
            lost.complete(OpType::Info, lost.value.clone()),
        ]);
        let push = Op::invoke(
            Process::Client(0),
            "push",
            Value::Int(100 + number.cast_signed()),
        );
        ops.extend([push.clone(), push.complete(OpType::Ok, push.value.clone())]);
    }
    for (last, expected) in [(129, Validity::Valid), (5_000, Validity::Invalid)] {
        let pop = Op::invoke(Process::Client(0), "pop", Value::Nil);
        let more = [pop.clone(), pop.complete(OpType::Ok, Value::Int(last))];
        let history = History::from_unindexed(ops.iter().cloned().chain(more).collect());
        let mut checker = started(Model::Stack);
        for chunk in cut(&history, &mut Rng::from_seed(1)) {
            let _ = checker.push(&chunk);
        }
        assert!(!checker.is_early());
        let note = checker.progress().note.unwrap();
        assert_eq!(
            note,
            "more than 8192 configurations at a time; checked as a whole in the end"
        );
        assert_eq!(checker.finish(&history).unwrap().verdict.valid, expected);
    }
}

/// Sixteen clients insert at a time: an insertion waits until a removal needs it, so there are few configurations.
#[test]
fn concurrent_insertions_have_few_configurations() {
    let mut ops = Vec::new();
    for round in 0..200 {
        let inserts: Vec<Op> = (0..16)
            .map(|client| {
                let value = Value::Int(16 * round + 15 - client);
                Op::invoke(Process::Client(client.unsigned_abs()), "insert", value)
            })
            .collect();
        ops.extend(inserts.iter().cloned());
        ops.extend(
            inserts
                .iter()
                .map(|op| op.complete(OpType::Ok, op.value.clone())),
        );
        for least in 0..16 {
            let poll = Op::invoke(Process::Client(0), "poll", Value::Nil);
            ops.extend([
                poll.clone(),
                poll.complete(OpType::Ok, Value::Int(16 * round + least)),
            ]);
        }
    }
    let history = History::from_unindexed(ops);
    let (mut checker, mut most) = (started(Model::PriorityQueue), 0);
    for chunk in cut(&history, &mut Rng::from_seed(5)) {
        let _ = checker.push(&chunk);
        most = checker.progress().held.max(most);
    }
    let verdict = checker.finish(&history).unwrap().verdict;
    assert_eq!(verdict.valid, Validity::Valid);
    assert!(most < 300, "{most} held");
}

#[test]
fn a_refutation_names_the_operation_and_the_possible_states() {
    let text = "{:process 0 :type :invoke :f :push :value 1}
         {:process 0 :type :ok :f :push :value 1}
         {:process 0 :type :invoke :f :push :value 2}
         {:process 1 :type :invoke :f :pop :value nil}
         {:process 0 :type :ok :f :push :value 2}
         {:process 2 :type :invoke :f :pop :value nil}
         {:process 2 :type :ok :f :pop :value 3}";
    let options = ImportOptions::default();
    let history = import::read("a.edn", text.as_bytes(), Format::Edn, options).unwrap();
    let mut checker = started(Model::Stack);
    for chunk in cut(&history, &mut Rng::from_seed(5)) {
        let _ = checker.push(&chunk);
    }
    assert!(
        checker.definite(&history).unwrap().is_empty(),
        "a pop may still succeed or fail"
    );
    let verdict = checker.finish(&history).unwrap().verdict;
    assert_eq!(verdict.valid, Validity::Invalid);

    let text = text.replace(
        "{:process 1 :type :invoke :f :pop :value nil}",
        "{:process 1 :type :invoke :f :pop :value nil} {:process 1 :type :info :f :pop :value nil}",
    );
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    )
    .unwrap();
    let mut checker = started(Model::Stack);
    for chunk in cut(&history, &mut Rng::from_seed(5)) {
        let _ = checker.push(&chunk);
    }
    let found = checker.definite(&history).unwrap();
    assert_eq!(found.len(), 1);
    let summary = &found[0].summary;
    assert!(
        summary.contains("pop 3 (process 2, op 7) cannot be linearized"),
        "{summary}"
    );
    assert!(summary.contains("[1 2]"), "{summary}");
}

#[test]
fn an_element_that_comes_back_after_it_was_dropped_is_a_violation() {
    let mut ops: Vec<Op> = rounds(Model::FifoQueue, 50).iter().cloned().collect();
    let again = Op::invoke(Process::Client(0), "dequeue", Value::Nil);
    ops.extend([again.clone(), again.complete(OpType::Ok, Value::Int(3))]);
    let history = History::from_unindexed(ops);
    let mut checker = started(Model::FifoQueue);
    for chunk in cut(&history, &mut Rng::from_seed(1)) {
        let _ = checker.push(&chunk);
        checker.search();
    }
    let found = checker.definite(&history).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    // The addition, the removal, and the second removal.
    let last = history.len() as u64 - 1;
    assert!(found[0].operations.contains(&last), "{found:?}");
    assert_eq!(
        checker.finish(&history).unwrap().verdict.valid,
        Validity::Invalid
    );
}
