//! Small histories with known answers.

use super::{Collection, assert_agrees, monitor};
use crate::CollectionAction::{self, Absent, Add, Contains, Empty, Peek, Remove, RemoveUnknown};
use crate::{CollectionOperation, NEVER, Rejection};

/// Action, value, call, return.
type Example = (CollectionAction, u32, u32, u32);

fn history(operations: &[Example]) -> Vec<CollectionOperation> {
    let operations = operations.iter();
    operations
        .map(|&(action, value, call, ret)| CollectionOperation {
            action,
            value,
            call,
            ret,
        })
        .collect()
}

fn assert_answer(collection: Collection, operations: &[Example], expected: &Result<(), Rejection>) {
    let history = history(operations);
    assert_eq!(
        &monitor(collection, &history),
        expected,
        "{collection:?} {history:?}"
    );
    if !matches!(expected, Err(Rejection::NotApplicable(_))) {
        assert_agrees(collection, &history, 0);
    }
}

fn queue(operations: &[Example], expected: &Result<(), Rejection>) {
    assert_answer(Collection::Queue, operations, expected);
}

fn set(operations: &[Example], expected: &Result<(), Rejection>) {
    assert_answer(Collection::Set, operations, expected);
}

fn refuted(operations: &[u32]) -> Result<(), Rejection> {
    Err(Rejection::NotLinearizable(operations.to_vec()))
}

/// The published implementations accept the first for a queue, a stack and a priority queue, and reject the second.
#[test]
fn answers_what_published_monitors_answer_wrongly() {
    for collection in [
        Collection::Set,
        Collection::Multiset,
        Collection::Queue,
        Collection::Stack,
        Collection::PriorityQueue,
    ] {
        let operations = [(Add, 0, 1, 2), (Empty, 0, 3, 5)];
        assert_answer(collection, &operations, &refuted(&[0, 1]));
    }
    assert_answer(Collection::Set, &[(Absent, 5, 1, 2)], &Ok(()));
}

#[test]
fn queue_refutes_each_pattern_of_violation() {
    queue(&[(Remove, 0, 1, 2)], &refuted(&[0]));
    queue(&[(Remove, 0, 1, 2), (Add, 0, 3, 4)], &refuted(&[0, 1]));
    queue(
        &[(Add, 0, 1, 2), (Remove, 0, 3, 4), (Remove, 0, 5, 6)],
        &refuted(&[0, 1, 2]),
    );
    queue(
        &[
            (Add, 0, 1, 2),
            (Add, 1, 3, 4),
            (Remove, 1, 5, 6),
            (Remove, 0, 7, 8),
        ],
        &refuted(&[0, 1, 2, 3]),
    );
    queue(
        &[(Add, 0, 1, 2), (Add, 1, 3, 4), (Remove, 1, 5, 6)],
        &refuted(&[0, 1, 2]),
    );
    // Two values in turns cover the observation.
    queue(
        &[
            (Add, 0, 1, 2),
            (Add, 1, 1, 5),
            (Empty, 0, 4, 9),
            (Remove, 0, 8, 10),
            (Remove, 1, 11, 12),
        ],
        &refuted(&[0, 1, 2, 3, 4]),
    );
    // Equal positions are concurrent.
    queue(&[(Add, 0, 1, 2), (Empty, 0, 2, 3)], &Ok(()));
}

#[test]
fn stack_refutes_values_out_of_order() {
    let stack = |operations: &[Example], expected: &_| {
        assert_answer(Collection::Stack, operations, expected);
    };
    let crossed = [
        (Add, 0, 1, 2),
        (Add, 1, 3, 4),
        (Remove, 0, 5, 6),
        (Remove, 1, 7, 8),
    ];
    stack(&crossed, &refuted(&[0, 1, 2, 3]));
    stack(&crossed[..3], &refuted(&[0, 1, 2]));
    // The peek finds the other value on top, unless that is concurrent.
    let peeked = |ret| {
        [
            (Add, 0, 1, 2),
            (Add, 1, 3, ret),
            (Peek, 0, 5, 6),
            (Remove, 1, 7, 8),
        ]
    };
    stack(&peeked(4), &refuted(&[0, 1, 2, 3]));
    stack(&peeked(5), &Ok(()));
}

/// With peeks a cycle may need three values: no two of them contradict each other.
#[test]
fn queue_refutes_a_cycle_of_three_values() {
    let operations = [
        (Add, 2, 1, 2),
        (Add, 0, 10, 11),
        (Add, 1, 1, 12),
        (Remove, 0, 12, 20),
        (Peek, 1, 11, 13),
        (Remove, 2, 15, 30),
        (Remove, 1, 25, 26),
    ];
    assert_answer(
        Collection::Queue,
        &operations,
        &refuted(&[0, 1, 2, 3, 4, 5, 6]),
    );
}

#[test]
fn pending_operations_may_have_taken_effect() {
    // The addition may take effect late, but not after its value is seen.
    queue(
        &[(Add, 0, 1, NEVER), (Empty, 0, 3, 4), (Remove, 0, 5, 6)],
        &Ok(()),
    );
    queue(
        &[(Add, 0, 1, NEVER), (Peek, 0, 3, 4), (Empty, 0, 5, 6)],
        &refuted(&[0, 1, 2]),
    );
    // One removal takes one value.
    queue(
        &[
            (Add, 0, 1, 2),
            (RemoveUnknown, 0, 3, NEVER),
            (Empty, 0, 4, 5),
        ],
        &Ok(()),
    );
    queue(
        &[
            (Add, 0, 1, 2),
            (Add, 1, 1, 2),
            (RemoveUnknown, 0, 3, NEVER),
            (Empty, 0, 4, 5),
        ],
        &Err(Rejection::NotLinearizable(vec![0, 1, 2, 3])),
    );
    // The call is too late.
    queue(
        &[
            (Add, 0, 1, 2),
            (Empty, 0, 4, 5),
            (RemoveUnknown, 0, 6, NEVER),
        ],
        &refuted(&[0, 1, 2]),
    );
    set(
        &[
            (Add, 0, 1, 2),
            (RemoveUnknown, 0, 3, NEVER),
            (Absent, 0, 4, 5),
        ],
        &Ok(()),
    );
    set(
        &[
            (Add, 0, 1, 2),
            (Absent, 0, 4, 5),
            (RemoveUnknown, 0, 6, NEVER),
        ],
        &refuted(&[0, 1, 2]),
    );
}

#[test]
fn inapplicable_histories_have_a_reason() {
    assert_answer(
        Collection::Queue,
        &[(Add, 0, 1, 2), (Remove, 0, 3, 4), (Add, 0, 5, 6)],
        &Err(Rejection::NotApplicable("a value is added more than once")),
    );
    assert_answer(
        Collection::Queue,
        &[(Contains, 0, 1, 2)],
        &Err(Rejection::NotApplicable(
            "`contains` of an ordered collection",
        )),
    );
}
