use super::*;
use seatrial_history::{Key, Process};

/// Operations of one client: function, what is invoked, what comes back.
fn guess(ops: &[(&'static str, Value, Value)]) -> Guess {
    Shapes::of(&history(ops)).guess()
}

fn history(ops: &[(&'static str, Value, Value)]) -> History {
    let ops = ops.iter().flat_map(|(f, invoked, returned)| {
        let op = Op::invoke(Process::Client(0), *f, invoked.clone());
        let ok = op.complete(OpType::Ok, returned.clone());
        [op, ok]
    });
    History::from_unindexed(ops.collect())
}

fn chosen(ops: &[(&'static str, Value, Value)]) -> &'static str {
    match guess(ops) {
        Guess::Checker { name, .. } => name,
        Guess::Unclear { reason, .. } => panic!("{reason}"),
    }
}

fn refused(ops: &[(&'static str, Value, Value)]) -> (String, Vec<&'static str>) {
    match guess(ops) {
        Guess::Checker { name, .. } => panic!("{name}"),
        Guess::Unclear { reason, options } => (reason, options),
    }
}

const NIL: Value = Value::Nil;

fn int(number: i64) -> Value {
    Value::Int(number)
}

fn txn(mop: Mop) -> Value {
    Value::Txn([mop].into())
}

#[test]
fn each_kind_of_operations_has_its_checker() {
    let write = ("write", int(1), int(1));
    assert_eq!(chosen(&[("read", NIL, NIL), write.clone()]), "cas-register");
    let cas = ("cas", Value::Cas(1, 2), Value::Cas(1, 2));
    assert_eq!(chosen(&[write.clone(), cas]), "cas-register");
    assert_eq!(
        chosen(&[("acquire", NIL, NIL), ("release", NIL, NIL)]),
        "mutex"
    );
    let add = ("add", int(1), int(1));
    let contains = ("contains", int(1), Value::Bool(true));
    assert_eq!(chosen(&[add, contains]), "linearizable-set");
    let pair = |first, second| Value::List([first, second].into());
    let append = ("append", int(7), pair(int(0), int(7)));
    assert_eq!(
        chosen(&[append, ("read", int(0), pair(int(0), int(7)))]),
        "append-log"
    );
    let blocks = pair(int(0), pair(int(1), int(2)));
    let write = ("write", blocks.clone(), blocks.clone());
    assert_eq!(
        chosen(&[write, ("read", pair(int(0), int(2)), blocks)]),
        "block-device"
    );
    let keyed = Value::Keyed(Key::Int(1), int(2).into());
    assert_eq!(chosen(&[("put", keyed.clone(), keyed)]), "kv-map");
    assert_eq!(
        chosen(&[("enqueue", int(1), int(1)), ("dequeue", NIL, int(1))]),
        "total-queue"
    );
    assert_eq!(
        chosen(&[("push", int(1), int(1)), ("pop", NIL, int(1))]),
        "stack"
    );
    assert_eq!(
        chosen(&[("push-front", int(1), int(1)), ("pop-back", NIL, int(1))]),
        "deque"
    );
    assert_eq!(
        chosen(&[("insert", int(1), int(1)), ("poll", NIL, int(1))]),
        "priority-queue"
    );
    assert_eq!(chosen(&[("generate", NIL, int(7))]), "unique-ids");
    let balances = Value::balances(&[(0, 5), (1, 5)]);
    let transfer = ("transfer", Value::transfer(0, 1, 2), NIL);
    assert_eq!(chosen(&[transfer, ("read", NIL, balances)]), "bank");
    let add = ("add", int(1), int(1));
    assert_eq!(chosen(&[add.clone(), ("read", NIL, int(1))]), "counter");
    assert_eq!(
        chosen(&[add.clone(), ("read", NIL, Value::integers(&[1]))]),
        "set-full"
    );
    let append = txn(Mop::Append {
        key: Key::Int(1),
        element: 1,
    });
    assert_eq!(chosen(&[("txn", append.clone(), append)]), "list-append");
    let write = txn(Mop::Write {
        key: Key::Int(1),
        value: 1,
    });
    assert_eq!(chosen(&[("write", write.clone(), write)]), "rw-register");
    // A register of maps.
    let map = Value::balances(&[(0, 5)]);
    assert_eq!(
        chosen(&[("write", map.clone(), NIL), ("read", NIL, map)]),
        "cas-register"
    );
}

#[test]
fn reads_of_groups_without_any_write_are_for_long_fork() {
    let read = |keys: &[i64], value: Observed| {
        let mops = keys.iter().map(|&key| Mop::Read {
            key: Key::Int(key),
            observed: value.clone(),
        });
        Value::Txn(mops.collect())
    };
    let group = |f, keys: &[i64]| {
        (
            f,
            read(keys, Observed::Nil),
            read(keys, Observed::Register(1)),
        )
    };
    assert_eq!(
        chosen(&[group("read", &[1, 2]), group("read", &[3, 4])]),
        "long-fork"
    );
    // Groups of different sizes, of one key, with a key twice, in transactions that have no such name, beside a write.
    for ops in [
        [group("read", &[1, 2]), group("read", &[1, 2, 3])],
        [group("read", &[1]), group("read", &[2])],
        [group("read", &[1, 2]), group("read", &[1, 2, 2])],
        [group("txn", &[1, 2]), group("txn", &[1, 2])],
    ] {
        assert_eq!(refused(&ops).1, ["rw-register", "long-fork"]);
    }
    let write = txn(Mop::Write {
        key: Key::Int(1),
        value: 1,
    });
    let written = [group("read", &[1, 2]), ("write", write.clone(), write)];
    assert_eq!(chosen(&written), "rw-register");
}

#[test]
fn what_does_not_fit_names_an_operation_and_the_checker_to_ask_for() {
    let balances = Value::balances(&[(0, 5), (1, 5)]);
    let (reason, options) = refused(&[("read", NIL, NIL), ("read", NIL, balances.clone())]);
    assert_eq!(
        reason,
        "op 3: :read returned a map, which cas-register cannot mean"
    );
    assert_eq!(options, ["bank", "cas-register"]);
    let write = ("write", int(1), int(1));
    let (reason, options) = refused(&[write.clone(), ("read", NIL, Value::integer_set(&[1]))]);
    assert_eq!(
        reason,
        "op 3: :read returned a set, which cas-register cannot mean"
    );
    assert_eq!(options, ["set-full", "set", "cas-register"]);
    let (reason, _) = refused(&[write.clone(), ("incr", NIL, NIL)]);
    assert_eq!(reason, "op 2 is :incr, which cas-register does not know");
    let add = ("add", int(1), int(1));
    let (reason, _) = refused(&[
        add.clone(),
        ("read", NIL, int(1)),
        ("read", NIL, Value::integers(&[1])),
    ]);
    assert_eq!(reason, "op 3 read a number, op 5 a set");
    let (reason, options) = refused(&[add]);
    assert_eq!(
        reason,
        "nothing was read, so :add may be that of a counter or of a set"
    );
    assert_eq!(options, ["counter", "set-full", "set"]);
    let (reason, _) = refused(&[("broadcast", int(1), int(1))]);
    assert_eq!(reason, "no checker is known for :broadcast");
    let append = txn(Mop::Append {
        key: Key::Int(1),
        element: 1,
    });
    let both = [
        ("txn", append.clone(), append.clone()),
        (
            "txn",
            txn(Mop::Write {
                key: Key::Int(1),
                value: 1,
            }),
            NIL,
        ),
    ];
    assert_eq!(
        refused(&both).0,
        "op 0 is about lists, op 2 about registers"
    );
    let odd = [("txn", append.clone(), append), ("read", NIL, int(1))];
    assert!(refused(&odd).0.starts_with("op 3 (:read) has an integer"));
    let transfer = ("transfer", Value::transfer(0, 1, 2), NIL);
    let (reason, _) = refused(&[transfer, ("read", NIL, int(5))]);
    assert_eq!(
        reason,
        "op 3: :read returned an integer, which bank cannot mean"
    );
    assert_eq!(refused(&[]).0, "the history has no operations of clients");
}

#[test]
fn names_of_workloads_are_held_against_the_operations() {
    assert_eq!(of_workload("append"), Some("list-append"));
    assert_eq!(of_workload("dirty-read"), None);
    let shapes = |ops| Shapes::of(&history(ops));
    let bank = [("read", NIL, Value::balances(&[(0, 5)]))];
    assert_eq!(shapes(&bank).refusal("bank"), None);
    let said = "op 1: :read returned a map, which cas-register cannot mean";
    assert_eq!(shapes(&bank).refusal("cas-register").as_deref(), Some(said));
    let append = txn(Mop::Append {
        key: Key::Int(1),
        element: 1,
    });
    let lists = [("txn", append.clone(), append)];
    assert_eq!(shapes(&lists).refusal("list-append"), None);
    assert!(shapes(&lists).refusal("rw-register").is_some());
    // The second of the two candidates takes it.
    assert_eq!(shapes(&[("read", NIL, NIL)]).refusal("cas-register"), None);
}
