//! Certificates of small histories: the verifier accepts those of the checker, and no false one.

use super::{Model, Simple, apply, brute_force, initial, random_history};
use crate::Linearizable;
use seatrial_checker::{Validity, certify};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, LinearCore, Linearization, Proof, Unproven, Verifier, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One history of a few keys: these histories side by side.
fn keyed(parts: &[History], rng: &mut Rng) -> History {
    let mut places = vec![0; parts.len()];
    let mut ops = Vec::new();
    loop {
        let left: Vec<usize> = (0..parts.len())
            .filter(|&part| places[part] < parts[part].len())
            .collect();
        if left.is_empty() {
            return History::from_unindexed(ops);
        }
        let part = *rng.pick(&left);
        let mut op = parts[part].iter().nth(places[part]).unwrap().clone();
        places[part] += 1;
        let Process::Client(client) = op.process else {
            panic!("a client");
        };
        op.process = Process::Client(client * parts.len() as u64 + part as u64);
        op.value = Value::Keyed(Key::Int(part as i64), Arc::new(op.value));
        ops.push(op);
    }
}

fn bare(op: &Op) -> Op {
    let mut op = op.clone();
    if let Value::Keyed(_, value) = op.value {
        op.value = (*value).clone();
    }
    op
}

fn key_of(op: &Op) -> Option<Key> {
    match &op.value {
        Value::Keyed(key, _) => Some(key.clone()),
        _ => None,
    }
}

/// Is this a linearization? Executes it on the sequential models of the tests.
fn explains(model: Model, history: &History, one: &Linearization) -> bool {
    let mut taken = one.taken.iter();
    let mut states: BTreeMap<Option<Key>, (Value, usize)> = BTreeMap::new();
    let mut placed = vec![false; history.len()];
    for &place in &one.order {
        let place = place as usize;
        let Some(op) = history.iter().nth(place).filter(|op| op.is_invoke()) else {
            return false;
        };
        let done = history.completion(place);
        if done.is_some_and(Op::is_fail) || std::mem::replace(&mut placed[place], true) {
            return false;
        }
        let done = done.filter(|done| done.is_ok());
        let end = done.and_then(|_| history.pair(place)).unwrap_or(usize::MAX);
        let (state, latest) = states
            .entry(key_of(op))
            .or_insert_with(|| (initial(model), 0));
        if end < *latest {
            return false;
        }
        *latest = place.max(*latest);
        let mut result = done.map(|done| bare(done).value);
        if model == Model::Bag && done.is_none() && op.f == "take" {
            let Some(&addition) = taken.next() else {
                return false;
            };
            let addition = history.iter().nth(addition as usize);
            let Some(addition) = addition.filter(|op| op.is_invoke() && op.f == "enqueue") else {
                return false;
            };
            result = Some(bare(addition).value);
        }
        let simple: Simple = (bare(op), result, place, end);
        match apply(&simple, state) {
            Some(next) => *state = next,
            None => return false,
        }
    }
    let all = history.iter().enumerate().filter(|(_, op)| op.is_invoke());
    let mut required = all.filter(|&(place, _)| history.completion(place).is_some_and(Op::is_ok));
    taken.next().is_none() && required.all(|(place, _)| placed[place])
}

fn accepts(history: &History, proof: Proof) -> Result<(), Unproven> {
    verify(history, &Certificate::new("linearizable", proof))
}

fn random_change(places: &mut Vec<u64>, events: usize, rng: &mut Rng) {
    if places.is_empty() {
        places.push(rng.below(events as u64));
        return;
    }
    let (one, other) = (rng.index(places.len()), rng.index(places.len()));
    match rng.below(5) {
        0 => places.swap(one, other),
        1 => _ = places.remove(one),
        2 => places.push(places[one]),
        3 => places.insert(one, rng.below(events as u64)),
        _ => places[one] = rng.below(events as u64),
    }
}

/// Changed orders are accepted iff they are linearizations.
fn forge_orders(model: Model, history: &History, good: &Linearization, rng: &mut Rng) {
    for _ in 0..6 {
        let mut other = good.clone();
        if !other.taken.is_empty() && rng.chance(0.3) {
            random_change(&mut other.taken, history.len(), rng);
        } else {
            random_change(&mut other.order, history.len(), rng);
        }
        let expected = explains(model, history, &other);
        let result = accepts(history, Proof::Linearization(other.clone()));
        let text: String = history.iter().map(|op| op.to_string() + "\n").collect();
        assert_eq!(result.is_ok(), expected, "{other:?} {result:?}\n{text}");
    }
}

/// Any core: only one of an object without linearization may be accepted.
fn forge_cores(model: Model, history: &History, is_linearizable: &[bool], rng: &mut Rng) {
    let text = || -> String { history.iter().map(|op| op.to_string() + "\n").collect() };
    for _ in 0..6 {
        let number = rng.index(is_linearizable.len());
        let key = (is_linearizable.len() > 1).then_some(Key::Int(number as i64));
        let own = |op: &&Op| key_of(op) == key;
        let until = rng.below(history.len() as u64 + 1);
        let chance = *rng.pick(&[0.5, 0.8, 1.0]);
        let invocations = history.iter().filter(own).filter(|op| op.is_invoke());
        let places = invocations.map(|op| op.index).filter(|&at| at <= until);
        let places: Vec<u64> = places.filter(|_| rng.chance(chance)).collect();
        let values = history.iter().filter(own).map(|op| bare(op).value);
        let mut elements: Vec<String> = values
            .filter(|value| *value != Value::Nil)
            .map(|value| value.to_string())
            .collect();
        elements.retain(|_| rng.chance(chance));
        if !model.is_collection() {
            elements.clear();
        }
        let core = LinearCore {
            data_type: model.name().into(),
            key: key.as_ref().map(Key::to_string),
            until,
            elements,
            places,
        };
        let result = accepts(history, Proof::Nonlinearizable(core.clone()));
        assert!(
            result.is_err() || !is_linearizable[number],
            "{core:?} of a linearizable object\n{}",
            text()
        );
    }
}

/// What a true core lacks when one of its operations is left out.
fn forge_less(history: &History, core: &LinearCore, name: &str) {
    let refused = |other: LinearCore, what: &str| {
        let result = accepts(history, Proof::Nonlinearizable(other.clone()));
        let text: String = history.iter().map(|op| op.to_string() + "\n").collect();
        assert!(
            result.is_err(),
            "{name}: {what}: {other:?} of {core:?}\n{text}"
        );
    };
    for at in 0..core.places.len() {
        let mut other = core.clone();
        other.places.remove(at);
        refused(other, "minus one");
        let mut other = core.clone();
        other.places.push(core.places[at]);
        refused(other, "one twice");
    }
    let mut other = core.clone();
    other.key = Some("77".into());
    refused(other, "another key");
    let mut other = core.clone();
    other.data_type = "no-such-type".into();
    refused(other, "another type");
}

/// Changes a true proof in some ways.
fn forge(model: Model, history: &History, proof: &Proof, name: &str, rng: &mut Rng) {
    match proof {
        Proof::Linearization(one) => {
            assert!(explains(model, history, one), "{name}");
            forge_orders(model, history, one, rng);
        }
        Proof::Nonlinearizable(core) => {
            forge_less(history, core, name);
            let mut order: Vec<u64> = (0..history.len() as u64).collect();
            order.retain(|&place| history.completion(place as usize).is_some_and(Op::is_ok));
            let order = Linearization {
                data_type: model.name().into(),
                order,
                taken: Vec::new(),
            };
            let result = accepts(history, Proof::Linearization(order));
            assert!(result.is_err(), "{name}");
        }
        other => panic!("{other:?}"),
    }
}

/// Certificates of random histories; returns how many verdicts have none.
fn certified(model: Model, count: u64) -> (u64, u64) {
    let (mut missing, mut invalid) = (0, 0);
    let mut stolen: Option<Certificate> = None;
    for seed in 0..count {
        let mut rng = Rng::from_seed(seed ^ 0x5ea);
        let values = *rng.pick(&[3, 60, 60]);
        let parts = *rng.pick(&[1, 1, 2, 3]);
        let objects: Vec<History> = (0..parts)
            .map(|_| random_history(model, 7, values, &mut rng))
            .collect();
        let is_linearizable: Vec<bool> =
            objects.iter().map(|one| brute_force(model, one)).collect();
        let history = match &objects[..] {
            [one] => History::from_ops(one.iter().cloned().collect()),
            several => keyed(several, &mut rng),
        };
        let expected = is_linearizable.iter().all(|&one| one);
        let (verdict, certificate) = certify(&Linearizable::new(model), &history).unwrap();
        let name = format!("seed {seed} {}", model.name());
        let text = || -> String { history.iter().map(|op| op.to_string() + "\n").collect() };
        assert_eq!(
            verdict.valid == Validity::Valid,
            expected,
            "{name}\n{}",
            text()
        );
        invalid += u64::from(!expected);
        forge_cores(model, &history, &is_linearizable, &mut rng);
        let Some(mut certificate) = certificate else {
            println!("{name}: {:?}", verdict.details.unproven);
            assert!(verdict.details.unproven.is_some());
            missing += 1;
            continue;
        };
        let fingerprint = Verifier::read(&history).unwrap().fingerprint();
        certificate.history = Some(fingerprint);
        assert_eq!(certificate.is_valid(), expected);
        assert_eq!(
            verify(&history, &certificate),
            Ok(()),
            "{name} {certificate:?}\n{}",
            text()
        );
        forge(model, &history, &certificate.proof, &name, &mut rng);
        if let Some(other) = stolen.replace(certificate)
            && other.history != Some(fingerprint)
        {
            let result = verify(&history, &other);
            assert!(matches!(result, Err(Unproven::Refuted(_))), "{name}");
        }
    }
    (missing, invalid)
}

/// All histories of a model: `SEATRIAL_HISTORIES`, or 2,000.
fn has_certificates(model: Model) {
    let count = seatrial_farm::histories(2_000);
    let (missing, invalid) = certified(model, count);
    println!(
        "{}: {count} histories, {invalid} invalid, {missing} without certificate",
        model.name()
    );
    assert!(
        invalid > count / 10 && invalid < count - count / 20,
        "{invalid} are invalid"
    );
    assert_eq!(missing, 0, "verdicts without certificate");
}

#[test]
fn of_registers() {
    has_certificates(Model::Register);
    has_certificates(Model::CasRegister);
}

#[test]
fn of_mutexes_and_counters() {
    has_certificates(Model::Mutex);
    has_certificates(Model::Counter);
}

#[test]
fn of_maps() {
    has_certificates(Model::KeyValue);
}

#[test]
fn of_queues_and_bags() {
    has_certificates(Model::FifoQueue);
    has_certificates(Model::Bag);
}

#[test]
fn of_stacks_and_priority_queues() {
    has_certificates(Model::Stack);
    has_certificates(Model::PriorityQueue);
}

#[test]
fn of_deques() {
    has_certificates(Model::Deque);
}

/// Operations whose invocations were not recorded, and drains.
#[test]
fn of_drains_and_of_completions_alone() {
    let op = |process, kind, f: &'static str, value| Op {
        kind,
        ..Op::invoke(Process::Client(process), f, value)
    };
    let list = |items: &[i64]| Value::List(items.iter().map(|&item| Value::Int(item)).collect());
    for model in [Model::Bag, Model::FifoQueue] {
        for (drained, is_valid) in [(vec![1, 2], true), (vec![2, 2], false), (vec![2], false)] {
            let history = History::from_unindexed(vec![
                op(0, OpType::Ok, "enqueue", Value::Int(1)),
                op(0, OpType::Ok, "enqueue", Value::Int(2)),
                op(1, OpType::Invoke, "dequeue", Value::Nil),
                op(2, OpType::Invoke, "drain", Value::Nil),
                op(2, OpType::Ok, "drain", list(&drained)),
                op(3, OpType::Invoke, "dequeue", Value::Nil),
                op(3, OpType::Ok, "dequeue", Value::Nil),
            ]);
            let (verdict, certificate) = certify(&Linearizable::new(model), &history).unwrap();
            // A removal of unknown outcome took the 1.
            let is_valid = is_valid || drained == [2];
            assert_eq!(
                verdict.valid == Validity::Valid,
                is_valid,
                "{model:?} {drained:?}"
            );
            let certificate = certificate.unwrap();
            assert_eq!(verify(&history, &certificate), Ok(()), "{certificate:?}");
        }
    }
}
