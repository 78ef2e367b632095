//! The data of an explanation, replayed without the search that made it.

use super::{Simple, apply, initial, place, random_history, simple};
use crate::{Linearizable, Model};
use seatrial_checker::{Checker as _, LinearizationWitness, Validity};
use seatrial_history::{History, Value};
use seatrial_machine::Rng;

/// The operation with this index of its completion, or of its invocation if it never completed.
fn find<'a>(ops: &'a [Simple], history: &History, index: u64) -> &'a Simple {
    let invocation = match history.pair(index as usize) {
        Some(pair) if !history.ops()[index as usize].is_invoke() => pair,
        _ => index as usize,
    };
    let found = ops.iter().find(|one| one.2 == invocation);
    found.unwrap_or_else(|| panic!("op {index} may not have taken effect"))
}

/// The text of a state as a witness has it; that of a collection whose order means nothing is sorted.
fn text(model: Model, state: &Value) -> String {
    match state {
        Value::List(elements) if matches!(model, Model::Bag | Model::PriorityQueue) => {
            let mut elements: Vec<String> = elements.iter().map(Value::to_string).collect();
            elements.sort();
            format!("[{}]", elements.join(" "))
        }
        Value::Bool(true) if model == Model::Mutex => "held".to_owned(),
        Value::Nil if model == Model::Mutex => "free".to_owned(),
        state => state.to_string(),
    }
}

/// The text of a state in a witness, sorted likewise.
fn sorted(model: Model, text: &str) -> String {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    match inner {
        Some(inner) if matches!(model, Model::Bag | Model::PriorityQueue) => {
            let mut elements: Vec<&str> = inner.split_whitespace().collect();
            elements.sort_unstable();
            format!("[{}]", elements.join(" "))
        }
        _ => text.to_owned(),
    }
}

/// The state after an append whose text no operation returned: it is not kept, so it has no better name.
const UNREAD: &str = "\"a text that nothing reads\"";

/// Replays the order on the model: each result, each state, and real time. Returns the state in which it ends.
fn replay(model: Model, history: &History, witness: &LinearizationWitness) -> Value {
    let ops = simple(history);
    let mut state = initial(model);
    let mut latest = 0;
    assert_eq!(sorted(model, &witness.before), text(model, &state));
    let order = &witness.order;
    for point in order {
        let one = find(&ops, history, point.operation);
        assert!(
            latest <= one.3,
            "op {} comes after one that began later",
            point.operation
        );
        latest = latest.max(one.2);
        let expected = sorted(model, &point.state);
        // A removal of unknown outcome from a bag may have taken any element.
        let taken = match (&one.1, &state) {
            (None, Value::List(elements)) if one.0.f == "take" => elements.to_vec(),
            _ => Vec::new(),
        };
        let chosen = taken
            .into_iter()
            .map(|element| (one.0.clone(), Some(element), one.2, one.3));
        let nexts = chosen.chain([one.clone()]);
        let mut nexts = nexts.filter_map(|one| apply(&one, &state));
        state = nexts
            .find(|next| expected == UNREAD || text(model, next) == expected)
            .unwrap_or_else(|| panic!("op {} leads to {expected}", point.operation));
    }
    let end = find(&ops, history, witness.operation).3;
    for one in &ops {
        let index = |index: &u64| std::ptr::eq(find(&ops, history, *index), one);
        let is_placed = order.iter().any(|point| index(&point.operation));
        assert!(
            is_placed || one.3 >= end,
            "what completed before is in the order"
        );
        let is_listed = witness.concurrent.iter().any(index);
        let is_under_way = one.2 < end && one.3 > end;
        // One of unknown outcome on whose effect nothing depends may be left out.
        let may_differ = one.3 == usize::MAX && !is_listed;
        assert!(is_listed == is_under_way || may_differ, "concurrent");
    }
    state
}

/// Is there an order of the operations, with those that are not in `certain` as of unknown outcome?
fn has_order(model: Model, history: &History, certain: &[u64]) -> bool {
    let mut ops = simple(history);
    let certain = certain.iter().map(|&index| find(&ops, history, index).2);
    let certain: Vec<usize> = certain.collect();
    for one in &mut ops {
        if !certain.contains(&one.2) {
            one.3 = usize::MAX;
        }
    }
    place(&ops, &mut vec![false; ops.len()], &initial(model))
}

#[test]
fn orders_replay_and_essential_operations_suffice() {
    const MODELS: usize = Model::ALL.len();
    let mut invalid = [0u64; MODELS];
    let mut spared = 0;
    let all = seatrial_farm::histories(1_500) * MODELS as u64;
    for seed in 0..all {
        let model = Model::ALL[seed as usize % MODELS];
        let mut rng = Rng::from_seed(7_000_000 + seed);
        let values = if seed % 3 == 0 { 60 } else { 3 };
        let history = random_history(model, 7, values, &mut rng);
        let verdict = Linearizable::new(model).check(&history);
        if verdict.valid != Validity::Invalid {
            continue;
        }
        invalid[seed as usize % MODELS] += 1;
        let context = || {
            let text: String = history.iter().map(|op| op.to_string() + "\n").collect();
            format!("seed {seed} {}\n{text}", model.name())
        };
        let witness = verdict.findings[0].linearization.as_ref();
        let witness = witness.unwrap_or_else(|| panic!("{}", context()));
        replay(model, &history, witness);
        let essential = witness.essential.as_ref();
        let essential = essential.unwrap_or_else(|| panic!("{}", context()));
        let operations = &essential.operations;
        assert!(essential.is_minimal, "{}", context());
        assert!(
            !has_order(model, &history, operations),
            "{operations:?} {}",
            context()
        );
        for number in 0..operations.len() {
            let mut fewer = operations.clone();
            fewer.remove(number);
            assert!(
                has_order(model, &history, &fewer),
                "{operations:?} without {number} {}",
                context()
            );
        }
        spared += u64::from(essential.others > 0);
    }
    assert!(invalid.iter().all(|&count| count > 50), "{invalid:?}");
    assert!(
        spared > invalid.iter().sum::<u64>() / 2,
        "{spared} of {invalid:?}"
    );
}

#[test]
fn longer_orders_replay() {
    let (mut found, mut without) = (0_u64, Vec::new());
    for seed in 0..seatrial_farm::histories(400) {
        let model = Model::ALL[seed as usize % Model::ALL.len()];
        // The elements of a longer collection do not fit into the text of a state.
        let length = if model.is_collection() { 40 } else { 120 };
        let mut rng = Rng::from_seed(8_000_000 + seed);
        let history = random_history(model, length, 5, &mut rng);
        let verdict = Linearizable::new(model).check(&history);
        for finding in &verdict.findings {
            let witness = finding.linearization.as_ref().expect("has one");
            if witness.left_out > 0
                || witness.before.contains('…')
                || witness.states.iter().any(|state| state.contains('…'))
            {
                continue;
            }
            replay(model, &history, witness);
            found += 1;
            if witness.essential.is_none() {
                without.push(seed);
            }
        }
    }
    assert!(found > seatrial_farm::least(100), "{found}");
    // The searches for essential operations have a bound on their work, which a long object of many orders exceeds.
    assert!(
        without.len() as u64 <= found / 100,
        "of {found}: {without:?}"
    );
}

#[test]
fn a_witness_is_bounded() {
    use seatrial_history::{Op, OpType, Process};
    let mut ops = Vec::new();
    let mut push = |process, f: &'static str, value: Value| {
        let op = Op::invoke(Process::Client(process), f, value.clone());
        ops.extend([op.clone(), op.complete(OpType::Ok, value)]);
    };
    for number in 0..1_500 {
        push(
            number % 3,
            "write",
            Value::text(format!("{number}{}", "x".repeat(5_000))),
        );
    }
    push(0, "read", Value::text("0"));
    let history = History::from_unindexed(ops);
    let verdict = Linearizable::new(Model::Register).check(&history);
    let witness = verdict.findings[0].linearization.as_ref().unwrap();
    let order = &witness.order;
    assert_eq!(order.len(), LinearizationWitness::POINTS_MAX);
    assert_eq!(witness.left_out, 500);
    let state_length = LinearizationWitness::STATE_LENGTH_MAX;
    assert_eq!(witness.before.chars().count(), state_length);
    let longest = order.iter().map(|point| point.state.chars().count()).max();
    assert_eq!(longest, Some(state_length));
    let essential = witness.essential.as_ref().unwrap();
    assert_eq!(essential.operations, [3_001], "the read alone suffices");
    assert!(essential.is_minimal);
}
