use super::*;
use seatrial_history::{Op, OpType, Process, Symbol};

fn check(states: Vec<Value>) -> Verdict {
    let op = |value| Op {
        kind: OpType::Info,
        ..Op::invoke(
            Process::Named(Symbol::new("observer")),
            Divergence::FUNCTION,
            value,
        )
    };
    let mut ops = vec![Op::invoke(Process::Client(0), "node-state", Value::Int(1))];
    ops.extend(states.into_iter().map(op));
    Divergence.check(&History::from_unindexed(ops))
}

fn state(node: &str, revision: &str, hash: &str) -> Value {
    Divergence::state(node, revision, hash, None)
}

#[test]
fn equal_states_are_valid_and_the_last_one_counts() {
    let verdict = check(vec![
        state("n1", "6", "old"),
        state("n1", "7", "ab"),
        state("n2", "7", "ab"),
    ]);
    assert_eq!(verdict.valid, Validity::Valid);
    let Figures::Divergence(figures) = &verdict.details.figures else {
        panic!("no figures");
    };
    assert_eq!(figures.states["n1"].revision.as_deref(), Some("7"));
}

#[test]
fn another_hash_at_the_same_revision_is_divergence() {
    let contents = |value| {
        let fields = [field("x", Value::Int(1)), field("y", Value::Int(value))];
        Some(Value::Map(fields.into()))
    };
    let verdict = check(vec![
        Divergence::state("n1", "7", "ab", contents(3)),
        state("n2", "7", "ab"),
        Divergence::state("n3", "7", "cd", contents(4)),
        Divergence::no_state("n4", "no answer"),
    ]);
    assert_eq!(verdict.valid, Validity::Invalid, "whatever n4 has");
    let finding = &verdict.findings[0];
    let expected =
        "n3 diverged from n1, n2 at revision 7: hash cd, not ab\nfirst difference: :y: 4, not 3";
    assert_eq!(finding.summary, expected);
    assert_eq!(finding.operations, [3, 1, 2]);
}

#[test]
fn nodes_are_compared_with_their_own_group() {
    let of = |group, state| Divergence::in_group(state, group);
    let shards = |last| {
        vec![
            of("a", state("n1", "7", "ab")),
            of("b", state("n2", "9", "cd")),
            of("a", state("n3", "7", "ab")),
            of("b", state("n4", "9", last)),
        ]
    };
    assert_eq!(check(shards("cd")).valid, Validity::Valid);
    let verdict = check(shards("ef"));
    assert_eq!(verdict.valid, Validity::Invalid);
    let summary = &verdict.findings[0].summary;
    assert!(
        !summary.contains("n1") && summary.contains("n4"),
        "{summary}"
    );
    let behind = check(vec![
        of("a", state("n1", "7", "ab")),
        of("b", state("n2", "9", "cd")),
        of("a", state("n3", "6", "aa")),
    ]);
    let Validity::Unknown(reason) = behind.valid else {
        panic!("n3 is behind");
    };
    assert_eq!(reason, "the nodes had not caught up: n3 at 6; n1 at 7");
}

#[test]
fn what_is_not_known_is_unknown() {
    let reason = |states| match check(states).valid {
        Validity::Unknown(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(vec![]), "no node reported its state");
    let silent = vec![
        state("n1", "7", "ab"),
        Divergence::no_state("n2", "no answer"),
    ];
    assert_eq!(reason(silent), "the state of n2 is not known: no answer");
    let behind = vec![state("n1", "7", "ab"), state("n2", "5", "cd")];
    assert_eq!(
        reason(behind),
        "the nodes had not caught up: n2 at 5; n1 at 7"
    );
    assert!(reason(vec![Value::Int(3), Value::Nil]).contains("no node"));
}
