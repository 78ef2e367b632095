//! The searches of contended registers and queues against all orders, and against the search over states.

use super::register_zones::has_order;
use crate::bisected_counterexample::bisected_counterexample;
use crate::linearization_search::{Bound, Counterexample, OrderResult, Search};
use crate::model::{Action, CollectionEnd, Model, Taken};
use crate::object::{NEVER, ObjectOperation};
use crate::queue_search::search_queue;
use crate::values::{NumberedValues, ObjectStates, StateId};
use seatrial_farm::{histories, least};
use seatrial_machine::Rng;
use std::collections::{BTreeSet, VecDeque};

/// How histories are made.
#[derive(Clone, Copy, Debug)]
struct ContentionPlan {
    length: usize,
    clients: usize,
    values: u64,
    /// The probability that an operation never completes, and that a result is changed.
    pending: f64,
    spoil: f64,
}

impl ContentionPlan {
    fn random(rng: &mut Rng, length: usize) -> ContentionPlan {
        ContentionPlan {
            length: 1 + rng.index(length),
            clients: 2 + rng.index(5),
            values: 1 + rng.below(3),
            pending: *rng.pick(&[0.0, 0.15, 0.3]),
            spoil: *rng.pick(&[0.0, 0.1, 0.4]),
        }
    }
}

/// Operations of an object by concurrent clients, each of which takes effect at one instant, with some results changed.
/// `invoke` makes an operation, `effect` its result, `other` another result.
fn random_entries(
    plan: ContentionPlan,
    rng: &mut Rng,
    invoke: impl Fn(&mut Rng) -> Action,
    mut effect: impl FnMut(Action) -> Option<Action>,
    other: impl Fn(Action, &mut Rng) -> Action,
) -> Vec<ObjectOperation> {
    let mut entries: Vec<Option<ObjectOperation>> = Vec::new();
    let mut open: Vec<(usize, Option<Action>)> = Vec::new();
    let mut time = 0;
    loop {
        time += 1;
        if entries.len() < plan.length && open.len() < plan.clients && rng.chance(0.5) {
            open.push((entries.len(), None));
            entries.push(Some(ObjectOperation {
                action: invoke(rng),
                call: time,
                ret: NEVER,
            }));
            continue;
        }
        if open.is_empty() {
            if entries.len() == plan.length {
                return entries.into_iter().flatten().collect();
            }
            continue;
        }
        let at = rng.index(open.len());
        let (number, done) = open[at];
        let Some(entry) = &mut entries[number] else {
            unreachable!("an open operation is kept")
        };
        if let Some(action) = done {
            open.swap_remove(at);
            if rng.chance(plan.pending) {
                continue;
            }
            entry.ret = time;
            entry.action = if rng.chance(plan.spoil) {
                other(action, rng)
            } else {
                action
            };
        } else if rng.chance(plan.pending / 2.0) {
            open.swap_remove(at);
        } else {
            let action = effect(entry.action);
            open[at].1 = action;
            if action.is_none() {
                // It failed.
                open.swap_remove(at);
                entries[number] = None;
            }
        }
    }
}

fn random_register(plan: ContentionPlan, rng: &mut Rng) -> Vec<ObjectOperation> {
    let value = |rng: &mut Rng| 1 + rng.below(plan.values) as StateId;
    let has_cas = rng.chance(0.5);
    let mut state = 0;
    let invoke = |rng: &mut Rng| match rng.below(if has_cas { 4 } else { 3 }) {
        0 => Action::Write(value(rng)),
        3 => Action::Cas(value(rng), value(rng)),
        _ if rng.chance(0.3) => Action::Write(value(rng)),
        _ => Action::Read(NEVER),
    };
    let effect = |action| match action {
        Action::Read(_) => Some(Action::Read(state)),
        Action::Write(to) => {
            state = to;
            Some(action)
        }
        Action::Cas(from, to) if from == state => {
            state = to;
            Some(action)
        }
        _ => None,
    };
    let mut entries = random_entries(plan, rng, invoke, effect, |action, rng| match action {
        Action::Read(_) => Action::Read(rng.below(plan.values + 1) as StateId),
        other => other,
    });
    let is_read = |entry: &ObjectOperation| matches!(entry.action, Action::Read(_));
    entries.retain(|entry| entry.is_required() || !is_read(entry));
    entries
}

fn random_queue(plan: ContentionPlan, rng: &mut Rng) -> Vec<ObjectOperation> {
    let (back, front) = (CollectionEnd::Back, CollectionEnd::Front);
    let value = |rng: &mut Rng| 1 + rng.below(plan.values) as StateId;
    let peeks = rng.below(3);
    let additions = 3 + rng.below(3);
    let mut elements: VecDeque<StateId> = VecDeque::new();
    let invoke = |rng: &mut Rng| match rng.below(8 + peeks) {
        one if one < additions => Action::Put(back, value(rng)),
        one if one < 8 => Action::Take(front, Taken::Unknown),
        _ => Action::Peek(front, Taken::Unknown),
    };
    let taken = |one: Option<StateId>| one.map_or(Taken::Nothing, Taken::Element);
    let effect = |action| {
        Some(match action {
            Action::Put(_, element) => {
                elements.push_back(element);
                action
            }
            Action::Take(..) => Action::Take(front, taken(elements.pop_front())),
            _ => Action::Peek(front, taken(elements.front().copied())),
        })
    };
    let other = |action, rng: &mut Rng| {
        let result = taken(rng.chance(0.75).then(|| value(rng)));
        match action {
            Action::Take(..) => Action::Take(front, result),
            Action::Peek(..) => Action::Peek(front, result),
            other => other,
        }
    };
    let mut entries = random_entries(plan, rng, invoke, effect, other);
    for entry in &mut entries {
        if let Action::Take(..) = entry.action
            && !entry.is_required()
        {
            entry.action = Action::Take(front, Taken::Unknown);
        }
    }
    let is_peek = |entry: &ObjectOperation| matches!(entry.action, Action::Peek(..));
    entries.retain(|entry| entry.is_required() || !is_peek(entry));
    entries
}

/// The elements of a queue after an operation, if its result allows it.
fn queue_step(elements: &[StateId], action: Action) -> Option<Vec<StateId>> {
    let first = elements.first().copied();
    let fits = |taken| match taken {
        Taken::Element(element) => first == Some(element),
        Taken::Nothing => first.is_none(),
        Taken::Unknown => true,
    };
    match action {
        Action::Put(_, element) => Some([elements, &[element]].concat()),
        Action::Take(_, taken) => fits(taken).then(|| elements.iter().skip(1).copied().collect()),
        Action::Peek(_, taken) => fits(taken).then(|| elements.to_vec()),
        _ => None,
    }
}

/// Is there any order of the operations of a queue? Tries all.
fn queue_has_order(entries: &[ObjectOperation]) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![(0u64, Vec::new())];
    while let Some((done, state)) = left.pop() {
        let is_done = |number: usize| done >> number & 1 == 1;
        let certain = entries.iter().enumerate();
        let rets = certain.filter(|&(number, _)| !is_done(number));
        let first = rets.map(|(_, entry)| entry.ret).min().unwrap_or(NEVER);
        if first == NEVER {
            return true;
        }
        for (number, entry) in entries.iter().enumerate() {
            if !is_done(number)
                && entry.call <= first
                && let Some(next) = queue_step(&state, entry.action)
                && seen.insert((done | 1 << number, next.clone()))
            {
                left.push((done | 1 << number, next));
            }
        }
    }
    false
}

/// Does this order respect real time, with each certain operation and no other twice?
fn assert_order(entries: &[ObjectOperation], order: &[usize]) {
    let mut placed = vec![false; entries.len()];
    let mut last_call = 0;
    for &number in order {
        assert!(!std::mem::replace(&mut placed[number], true), "{order:?}");
        last_call = last_call.max(entries[number].call);
        assert!(last_call <= entries[number].ret, "{entries:#?} {order:?}");
    }
    let required = entries.iter().zip(&placed);
    assert!(
        required
            .into_iter()
            .all(|(entry, &is_placed)| is_placed || !entry.is_required())
    );
}

#[test]
fn queues_agree_with_all_orders() {
    let mut counts = [0u64; 2];
    let values = NumberedValues::new(Model::FifoQueue);
    for seed in 0..histories(20_000) {
        let mut rng = Rng::from_seed(seed);
        let plan = ContentionPlan::random(&mut rng, 9);
        let entries = random_queue(plan, &mut rng);
        let expected = queue_has_order(&entries);
        counts[usize::from(!expected)] += 1;
        let (result, _) = search_queue(&entries, Bound::default());
        match &result {
            OrderResult::Linearizable(order) => {
                assert_order(&entries, order);
                let mut elements = Vec::new();
                for &number in order {
                    elements = queue_step(&elements, entries[number].action).unwrap();
                }
            }
            OrderResult::NotLinearizable if seed % 4 == 0 => {
                let mut states = ObjectStates::new(Model::FifoQueue, &values);
                let search = |part: &[ObjectOperation]| search_queue(part, Bound::default()).0;
                let found = bisected_counterexample(&entries, &mut states, search);
                assert_counterexample(&entries, queue_has_order, found);
            }
            _ => {}
        }
        let is_linearizable = matches!(result, OrderResult::Linearizable(_));
        assert_eq!(
            is_linearizable,
            expected,
            "seed {seed}: {plan:?}\n{}",
            compact(&entries)
        );
    }
    println!("queues: {counts:?} linearizable and not");
    assert!(
        counts.iter().all(|&count| count > least(1_000)),
        "{counts:?}"
    );
}

/// No order passes the completion of `failed`, and an order of what completes before it works.
fn assert_counterexample(
    entries: &[ObjectOperation],
    has_order: impl Fn(&[ObjectOperation]) -> bool,
    found: Counterexample,
) {
    let (failed, prefix) = (found.entry, found.prefix);
    let until = |end: u32| {
        let all = entries.iter().enumerate();
        let begun = all.take_while(|(_, entry)| entry.call <= end);
        let part = begun.map(|(number, entry)| {
            let ret = if entry.ret <= end { entry.ret } else { NEVER };
            (number, ObjectOperation { ret, ..*entry })
        });
        part.unzip::<usize, ObjectOperation, Vec<_>, Vec<_>>().1
    };
    let end = entries[failed].ret;
    assert!(!has_order(&until(end)), "{failed} {entries:#?}");
    assert!(has_order(&until(end - 1)), "{failed} {entries:#?}");
    let order: Vec<usize> = prefix
        .unwrap()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    let before: Vec<ObjectOperation> = entries
        .iter()
        .map(|entry| {
            let ret = if entry.ret < end { entry.ret } else { NEVER };
            ObjectOperation { ret, ..*entry }
        })
        .collect();
    assert_order(&before, &order);
}

#[test]
fn registers_agree_with_all_orders() {
    let mut counts = [0u64; 2];
    let values = NumberedValues::new(Model::CasRegister);
    for seed in 0..histories(20_000) {
        let mut rng = Rng::from_seed(seed);
        let plan = ContentionPlan::random(&mut rng, 9);
        let entries = random_register(plan, &mut rng);
        let expected = has_order(&entries);
        counts[usize::from(!expected)] += 1;
        let search = |part: &[ObjectOperation]| {
            let mut states = ObjectStates::new(Model::CasRegister, &values);
            let search = Search::new(part, &mut states, Bound::default());
            search.absorbing().order().0
        };
        let result = search(&entries);
        if result == OrderResult::NotLinearizable && seed % 4 == 0 {
            let mut states = ObjectStates::new(Model::CasRegister, &values);
            let found = bisected_counterexample(&entries, &mut states, search);
            assert_counterexample(&entries, has_order, found);
        }
        let is_linearizable = matches!(result, OrderResult::Linearizable(_));
        if let OrderResult::Linearizable(order) = result {
            assert_order(&entries, &order);
            let mut state = 0;
            for &number in &order {
                state = match entries[number].action {
                    Action::Write(to) => to,
                    Action::Cas(from, to) if from == state => to,
                    Action::Read(value) if value == state => state,
                    _ => panic!("{entries:#?} {order:?}"),
                };
            }
        }
        assert_eq!(
            is_linearizable,
            expected,
            "seed {seed}: {plan:?}\n{}",
            compact(&entries)
        );
    }
    println!("registers: {counts:?} linearizable and not");
    assert!(
        counts.iter().all(|&count| count > least(1_000)),
        "{counts:?}"
    );
}

fn compact(entries: &[ObjectOperation]) -> String {
    let line =
        |entry: &ObjectOperation| format!("{} {} {:?}\n", entry.call, entry.ret, entry.action);
    entries.iter().map(line).collect()
}
