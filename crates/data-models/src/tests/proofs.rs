//! Certificates of the models, and forgeries of them.

use super::{TestCall, TestObject, history};
use seatrial_checker::{Validity, certify};
use seatrial_history::History;
use seatrial_linear::{HistoryModel, ModelChecker};
use seatrial_machine::Rng;
use seatrial_verify::{Certificate, LinearCore, Linearization, Proof, Unproven, verify};

fn accepts(history: &History, proof: Proof) -> Result<(), Unproven> {
    verify(history, &Certificate::new("linearizable", proof))
}

/// Is this an order of the operations, as the data type's documentation has it? `None` if it names no operation.
fn explains<T: TestObject>(object: &T, calls: &[TestCall], order: &[u64]) -> Option<bool> {
    let mut state = object.initial();
    let mut placed = vec![false; calls.len()];
    let mut latest = 0;
    for &place in order {
        let number = calls.iter().position(|call| call.call as u64 == place)?;
        let call = &calls[number];
        if std::mem::replace(&mut placed[number], true) {
            return Some(false);
        }
        if call.end.is_some_and(|end| call.is_certain && end < latest) {
            return Some(false);
        }
        latest = latest.max(call.call);
        let known = call.result.as_ref().filter(|_| call.is_certain);
        if !object.replay(&mut state, (call.f, &call.argument, call.process), known) {
            return Some(false);
        }
    }
    let certain = calls.iter().zip(placed);
    Some(
        certain
            .into_iter()
            .all(|(call, is_placed)| is_placed || !call.is_certain),
    )
}

/// Changes a true order; a change that leaves it one is accepted, any other is refused.
fn forge_orders<T: TestObject>(
    object: &T,
    (history, calls): (&History, &[TestCall]),
    order: &Linearization,
    rng: &mut Rng,
    refused: &mut u64,
) {
    for _ in 0..4 {
        let mut other = order.clone();
        let places = &mut other.order;
        let length = places.len();
        match rng.below(4) {
            _ if length == 0 => places.push(calls[0].call as u64),
            0 => _ = places.remove(rng.index(length)),
            1 => {
                let again = places[rng.index(length)];
                places.insert(rng.index(length), again);
            }
            2 => places.swap(rng.index(length), rng.index(length)),
            _ => rng.shuffle(places),
        }
        let expected = explains(object, calls, &other.order) == Some(true);
        let result = accepts(history, Proof::Linearization(other.clone()));
        assert_eq!(result.is_ok(), expected, "{other:?} {result:?}\n{calls:#?}");
        *refused += u64::from(!expected);
    }
    for data_type in ["no-such-type", "append-log permits:3", "table-model {}"] {
        let data_type = data_type.to_owned();
        let other = Linearization {
            data_type,
            ..order.clone()
        };
        let result = accepts(history, Proof::Linearization(other));
        assert!(result.is_err(), "another data type");
    }
}

/// Changes a true core: none of its operations can be left out, and none of its elements.
fn forge_core(history: &History, core: &LinearCore, refused: &mut u64) {
    let mut others = Vec::new();
    for at in 0..core.places.len() {
        let mut other = core.clone();
        other.places.remove(at);
        others.push(other);
        let mut other = core.clone();
        other.places.push(core.places[at]);
        others.push(other);
    }
    for at in 0..core.elements.len() {
        let mut other = core.clone();
        other.elements.remove(at);
        others.push(other);
    }
    others.push(LinearCore {
        key: Some("77".into()),
        ..core.clone()
    });
    others.push(LinearCore {
        data_type: "no-such-type".into(),
        ..core.clone()
    });
    for other in others {
        let result = accepts(history, Proof::Nonlinearizable(other.clone()));
        assert!(
            result.is_err(),
            "{other:?} of {core:?}\n{:#?}",
            history.ops()
        );
        *refused += 1;
    }
}

/// No part of a linearizable history is a core.
fn forge_cores(
    (history, calls): (&History, &[TestCall]),
    data_type: &str,
    elements: &[String],
    rng: &mut Rng,
    refused: &mut u64,
) {
    for _ in 0..4 {
        let part = rng.chance(0.7);
        let places = calls.iter().map(|call| call.call as u64);
        let core = LinearCore {
            data_type: data_type.to_owned(),
            key: None,
            until: rng.below(history.len() as u64 + 1),
            elements: elements
                .iter()
                .filter(|_| rng.chance(0.7))
                .cloned()
                .collect(),
            places: places.filter(|_| !part || rng.chance(0.6)).collect(),
        };
        let result = accepts(history, Proof::Nonlinearizable(core.clone()));
        assert!(result.is_err(), "{core:?}\n{:#?}", history.ops());
        *refused += 1;
    }
}

/// The certificate of a history is accepted, and changed ones are refused. Counts certificates, verdicts without, refused
/// forgeries, and certificates of violations.
pub(super) fn replayed<T, M>(
    model: &M,
    object: &T,
    calls: &[TestCall],
    rng: &mut Rng,
    counts: &mut [u64; 4],
) where
    T: TestObject,
    M: HistoryModel + Clone + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    let history = history(object, calls);
    let (verdict, certificate) = certify(&ModelChecker::new(model.clone()), &history).unwrap();
    let Some(certificate) = certificate else {
        println!("{}: {:?}", model.name(), verdict.details.unproven);
        counts[1] += 1;
        return;
    };
    counts[0] += 1;
    let is_valid = verdict.valid == Validity::Valid;
    assert_eq!(certificate.is_valid(), is_valid);
    let result = verify(&history, &certificate);
    assert_eq!(result, Ok(()), "{certificate:?}\n{:#?}", history.ops());
    match &certificate.proof {
        Proof::Linearization(order) => {
            assert_eq!(
                explains(object, calls, &order.order),
                Some(true),
                "{order:?}"
            );
            forge_orders(object, (&history, calls), order, rng, &mut counts[2]);
            let numbers = (0..6).map(|number: i64| number.to_string());
            let elements: Vec<String> = numbers.collect();
            let data_type = &order.data_type;
            forge_cores((&history, calls), data_type, &elements, rng, &mut counts[2]);
        }
        Proof::Nonlinearizable(core) => {
            counts[3] += 1;
            forge_core(&history, core, &mut counts[2]);
            let certain = calls.iter().filter(|call| call.is_certain);
            let order = Linearization {
                data_type: core.data_type.clone(),
                order: certain.map(|call| call.call as u64).collect(),
                taken: Vec::new(),
            };
            assert!(accepts(&history, Proof::Linearization(order)).is_err());
        }
        other => panic!("{other:?}"),
    }
}
