//! Linearizations and cores by hand: what holds, and what is refused.

use crate::{Certificate, CoreVerifier, LinearCore, Linearization, Proof, Unproven, verify};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use std::sync::Arc;

/// A history of `(process, type, function, value)`.
fn history(events: &[(u64, OpType, &'static str, Value)]) -> History {
    let ops = events.iter().map(|(process, kind, f, value)| Op {
        kind: *kind,
        ..Op::invoke(Process::Client(*process), *f, value.clone())
    });
    History::from_unindexed(ops.collect())
}

const CALL: OpType = OpType::Invoke;
const OK: OpType = OpType::Ok;

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn list(values: &[i64]) -> Value {
    Value::List(values.iter().map(|&value| int(value)).collect())
}

fn certificate(proof: Proof) -> Certificate {
    Certificate::new("linearizable", proof)
}

fn order(data_type: &str, history: &History, order: &[u64], taken: &[u64]) -> Result<(), Unproven> {
    let linearization = Linearization {
        data_type: data_type.into(),
        order: order.to_vec(),
        taken: taken.to_vec(),
    };
    verify(history, &certificate(Proof::Linearization(linearization)))
}

fn core(
    data_type: &str,
    history: &History,
    until: u64,
    elements: &[&str],
    places: &[u64],
) -> Result<(), Unproven> {
    let core = LinearCore {
        data_type: data_type.into(),
        key: None,
        until,
        elements: elements.iter().map(|&text| text.to_owned()).collect(),
        places: places.to_vec(),
    };
    let mut before = CoreVerifier::read(history).unwrap();
    let result = verify(history, &certificate(Proof::Nonlinearizable(core.clone())));
    assert_eq!(before.refute(&core, 2_000_000_000), result);
    result
}

/// Every change of an order is refused that is not an order, too.
fn forged(data_type: &str, history: &History, good: &[u64], also: &[&[u64]]) {
    assert_eq!(order(data_type, history, good, &[]), Ok(()));
    for at in 0..good.len() {
        let mut one_less = good.to_vec();
        one_less.remove(at);
        let mut one_more = good.to_vec();
        one_more.push(good[at]);
        for (other, must_fail) in [(one_less, false), (one_more, true)] {
            let result = order(data_type, history, &other, &[]);
            let is_known = !must_fail && also.contains(&&other[..]);
            assert_eq!(result.is_ok(), is_known, "{other:?} {result:?}");
        }
        for to in 0..at {
            let mut swapped = good.to_vec();
            swapped.swap(at, to);
            let result = order(data_type, history, &swapped, &[]);
            assert_eq!(
                result.is_ok(),
                also.contains(&&swapped[..]),
                "{swapped:?} {result:?}"
            );
        }
    }
}

#[test]
fn an_order_explains_every_result() {
    let history = history(&[
        (0, CALL, "enqueue", int(1)),
        (1, CALL, "enqueue", int(2)),
        (0, OK, "enqueue", int(1)),
        (1, OK, "enqueue", int(2)),
        (2, CALL, "dequeue", Value::Nil),
        (2, OpType::Info, "dequeue", Value::Nil),
        (3, CALL, "enqueue", int(9)),
        (3, OpType::Fail, "enqueue", int(9)),
        (4, CALL, "dequeue", Value::Nil),
        (4, OK, "dequeue", int(1)),
    ]);
    // The removal of unknown outcome can also take 2 in the end.
    let also: [&[u64]; 1] = [&[0, 1, 8]];
    forged("fifo-queue", &history, &[0, 1, 8, 4], &also);
    forged("fifo-queue", &history, &[1, 0, 4, 8], &[]);
    let refusal = |places: &[u64]| order("fifo-queue", &history, places, &[]).unwrap_err();
    assert_eq!(
        refusal(&[0, 1, 6, 8]).to_string(),
        "the operation at 6 failed"
    );
    assert_eq!(
        refusal(&[0, 1]).to_string(),
        "the operation at 8 is not in the order"
    );
    assert_eq!(refusal(&[0, 2]).to_string(), "there is no operation at 2");
    assert_eq!(
        refusal(&[8, 0, 1]).to_string(),
        "the result of the operation at 8 (dequeue) contradicts the state"
    );
    assert_eq!(
        refusal(&[1, 4, 0, 8]).to_string(),
        "the operation at 0 had completed before an earlier one of the order was invoked"
    );
    assert!(order("stack", &history, &[0, 1, 8], &[]).is_err());
    assert!(order("no-such-type", &history, &[0, 1, 8], &[]).is_err());
    let linearization = Linearization {
        data_type: "fifo-queue".into(),
        order: vec![0, 1, 8],
        taken: Vec::new(),
    };
    let mut other = certificate(Proof::Linearization(linearization));
    other.model = "serializable".into();
    assert!(verify(&history, &other).is_err());
    let serial = certificate(Proof::Serial(vec![0, 1, 8]));
    assert!(verify(&history, &serial).is_err());
}

#[test]
fn drains_take_their_elements_one_by_one() {
    let drained = |f: &'static str, elements: &[i64]| {
        history(&[
            (0, CALL, f, int(1)),
            (0, OK, f, int(1)),
            (1, CALL, "drain", Value::Nil),
            (0, CALL, f, int(2)),
            (0, OK, f, int(2)),
            (1, OK, "drain", list(elements)),
            (0, CALL, "dequeue", Value::Nil),
            (0, OK, "dequeue", Value::Nil),
        ])
    };
    let queue = drained("enqueue", &[2, 1]);
    for good in [[0, 2, 3, 2, 6], [0, 3, 2, 2, 6]] {
        assert_eq!(order("fifo-queue", &queue, &good, &[]), Ok(()));
    }
    assert!(order("fifo-queue", &queue, &[0, 2, 3, 6], &[]).is_err());
    assert!(order("fifo-queue", &queue, &[0, 2, 2, 3, 6], &[]).is_err());
    assert!(order("fifo-queue", &queue, &[0, 3, 2, 2, 2, 6], &[]).is_err());
    let bag = drained("add", &[2, 1]);
    assert_eq!(order("bag", &bag, &[0, 3, 2, 2, 6], &[0, 3]), Ok(()));
    assert_eq!(order("bag", &bag, &[0, 3, 2, 2, 6], &[3, 0]), Ok(()));
    assert!(order("bag", &bag, &[0, 2, 3, 2, 6], &[3, 0]).is_err());
    assert!(order("bag", &bag, &[0, 3, 2, 2, 6], &[3, 3]).is_err());
    assert!(order("bag", &bag, &[0, 3, 2, 2, 6], &[3]).is_err());
    assert!(order("bag", &bag, &[0, 3, 2, 2, 6], &[3, 0, 0]).is_err());
    // One element too many, and an element that nothing added.
    let bad = drained("add", &[2, 1, 2]);
    assert_eq!(core("bag", &bad, 5, &["2"], &[2, 3]), Ok(()));
    assert!(core("bag", &bad, 4, &["2"], &[2, 3]).is_err());
    assert!(core("bag", &bad, 5, &["2"], &[2]).is_err());
    assert!(core("bag", &bad, 5, &["1"], &[0, 2]).is_err());
    let bad = drained("add", &[2, 1, 7]);
    assert_eq!(core("bag", &bad, 5, &["7"], &[2]), Ok(()));
}

#[test]
fn a_core_has_no_order_whatever_the_others_did() {
    let events = [
        (0, CALL, "write", int(1)),
        (0, OK, "write", int(1)),
        (1, CALL, "write", int(2)),
        (1, OK, "write", int(2)),
        (2, CALL, "read", Value::Nil),
        (2, OK, "read", int(1)),
        (3, CALL, "write", int(1)),
        (3, OpType::Info, "write", int(1)),
    ];
    let bad = history(&events[..6]);
    assert_eq!(core("register", &bad, 5, &[], &[0, 2, 4]), Ok(()));
    for less in [[0, 2], [0, 4], [2, 4]] {
        // The first write alone would be refuted by the second, if that took effect in between: it must be named.
        let result = core("register", &bad, 5, &[], &less);
        assert_eq!(result.is_ok(), less == [2, 4], "{less:?}");
    }
    assert!(core("register", &bad, 4, &[], &[0, 2, 4]).is_err());
    assert!(core("register", &bad, 5, &[], &[0, 2, 4, 5]).is_err());
    assert!(core("register", &bad, 5, &["1"], &[0, 0, 2, 4]).is_err());
    // A write of unknown outcome that begins before the read ends explains it.
    let mut explained = events.to_vec();
    explained.swap(5, 6);
    let good = history(&explained);
    assert!(core("register", &good, 6, &[], &[0, 2, 4]).is_err());
    assert_eq!(order("register", &good, &[0, 2, 5, 4], &[]), Ok(()));
}

#[test]
fn a_core_of_a_collection_names_all_operations_on_its_elements() {
    let history = history(&[
        (0, CALL, "push", int(1)),
        (0, OK, "push", int(1)),
        (0, CALL, "push", int(2)),
        (0, OK, "push", int(2)),
        (0, CALL, "push", int(3)),
        (0, OK, "push", int(3)),
        (0, CALL, "pop", Value::Nil),
        (0, OK, "pop", int(1)),
        (1, CALL, "pop", Value::Nil),
        (1, OpType::Info, "pop", Value::Nil),
    ]);
    assert_eq!(core("stack", &history, 7, &["1", "2"], &[0, 2, 6]), Ok(()));
    for less in [[0, 2], [0, 6], [2, 6]] {
        assert!(core("stack", &history, 7, &["1", "2"], &less).is_err());
    }
    assert!(core("stack", &history, 7, &["1"], &[0, 6]).is_err());
    assert!(core("stack", &history, 7, &["1", "2"], &[0, 2, 4, 6]).is_err());
    assert!(core("stack", &history, 7, &["1", "2", "9"], &[0, 2, 6]).is_ok());
    // The removal of unknown outcome counts though it is not named, as soon as it can.
    assert!(core("fifo-queue", &history, 7, &["1"], &[0, 6]).is_err());
    let mut ops: Vec<Op> = history.iter().cloned().collect();
    ops.rotate_right(2);
    for (index, op) in (0..).zip(&mut ops) {
        op.index = index;
    }
    let earlier = History::from_ops(ops);
    assert!(core("stack", &earlier, 9, &["1", "2"], &[2, 4, 8]).is_err());
    assert_eq!(
        core("stack", &earlier, 9, &["1", "2", "3"], &[2, 4, 6, 8]),
        Ok(())
    );
}

#[test]
fn objects_are_named_by_their_keys() {
    let keyed = |key: &str, value| Value::Keyed(Key::Text(key.into()), Arc::new(value));
    let history = history(&[
        (0, CALL, "get", keyed("a", Value::Nil)),
        (0, OK, "get", keyed("a", Value::text("x"))),
        (0, CALL, "append", keyed("b", Value::text("x"))),
        (0, OK, "append", keyed("b", Value::text("x"))),
        (0, CALL, "get", keyed("b", Value::Nil)),
        (0, OK, "get", keyed("b", Value::text("x"))),
    ]);
    let core = |key: &str, places: &[u64]| {
        let core = LinearCore {
            data_type: "kv-map".into(),
            key: Some(key.into()),
            until: 5,
            places: places.to_vec(),
            ..LinearCore::default()
        };
        verify(&history, &certificate(Proof::Nonlinearizable(core)))
    };
    assert_eq!(core("\"a\"", &[0]), Ok(()));
    assert!(core("\"b\"", &[0]).is_err());
    assert!(core("\"b\"", &[2, 4]).is_err());
    assert!(core("\"b\"", &[4]).is_err());
    assert!(core("\"c\"", &[]).is_err());
    assert!(order("kv-map", &history, &[2, 4], &[]).is_err());
    assert!(order("kv-map", &history, &[2, 4, 0], &[]).is_err());
}

#[test]
fn the_fingerprint_covers_functions_arguments_and_results() {
    let events = [
        (0, CALL, "write", int(1)),
        (0, OK, "write", int(1)),
        (1, CALL, "read", Value::Nil),
        (1, OK, "read", int(1)),
    ];
    let fingerprint = |events: &[(u64, OpType, &'static str, Value)]| {
        let verifier = crate::Verifier::read(&history(events)).unwrap();
        verifier.fingerprint()
    };
    let own = fingerprint(&events);
    assert_eq!((own, own.events), (fingerprint(&events), 4));
    for at in [1, 3] {
        let mut others = [
            events.clone(),
            events.clone(),
            events.clone(),
            events.clone(),
        ];
        others[0][at].0 += 7;
        others[1][at].1 = OpType::Fail;
        others[2][at].2 = "put";
        others[3][at].3 = Value::text("1");
        for other in &others {
            assert_ne!(fingerprint(other), own, "{other:?}");
        }
    }
}
