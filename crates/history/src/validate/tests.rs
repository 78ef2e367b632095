use super::*;
use crate::Value;

fn op(index: u64, process: Process, kind: OpType) -> Op {
    Op {
        index,
        kind,
        ..Op::invoke(process, "kill", Value::Nil)
    }
}

fn verdict(ops: &[(u64, Process, OpType)]) -> String {
    let ops = ops
        .iter()
        .map(|&(index, process, kind)| op(index, process, kind));
    match History::strict(ops.collect()) {
        Ok(history) => format!("{:?}", history.validate()),
        Err(error) => error.to_string(),
    }
}

const ONE: Process = Process::Client(1);
const NEMESIS: Process = Process::NEMESIS;
use OpType::{Fail, Info, Invoke, Ok as Done};

#[test]
fn recorded_histories_are_valid() {
    assert_eq!(verdict(&[]), "Ok(())");
    assert_eq!(
        verdict(&[
            (3, ONE, Invoke),
            (5, NEMESIS, Info),
            (6, ONE, Done),
            (7, NEMESIS, Info),
            (8, NEMESIS, Info),
            (9, ONE, Invoke),
            (10, ONE, Info),
        ]),
        "Ok(())"
    );
}

#[test]
fn errors_name_the_operation() {
    assert_eq!(
        verdict(&[(4, ONE, Invoke), (4, ONE, Done)]),
        "operation 4 comes after operation 4"
    );
    assert_eq!(
        verdict(&[
            (1, ONE, Invoke),
            (2, ONE, Done),
            (7, ONE, Invoke),
            (9, ONE, Invoke)
        ]),
        "operation 9: process 1 invokes while its operation 7 is running"
    );
    for (kind, name) in [(Done, "ok"), (Fail, "fail"), (Info, "info")] {
        assert_eq!(
            verdict(&[(2, Process::Client(3), Invoke), (3, ONE, kind)]),
            format!("operation 3: process 1 completes ({name}) what it did not invoke")
        );
    }
    assert_eq!(
        verdict(&[(0, NEMESIS, Done)]),
        "operation 0: process :nemesis completes (ok) what it did not invoke"
    );
}

#[test]
fn unstorable_operations_are_reported() {
    let name: &'static str = "f".repeat(300).leak();
    let history = History::from_ops(vec![Op::invoke(ONE, name, Value::Nil)]);
    let error = history.validate().unwrap_err();
    assert!(error.to_string().contains("300 bytes"), "{error}");
}
