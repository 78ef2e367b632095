use super::*;
use crate::{Op, OpType, Process};
use expect_test::expect;
use seatrial_machine::Rng;

fn set(items: &[Value]) -> Value {
    Value::Set(items.into())
}

fn values(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().map(|&number| Value::Int(number)).collect()
}

/// Many small values, so that equal ones meet; in all variants that print alike.
fn any(rng: &mut Rng, depth: u32) -> Value {
    let items =
        |rng: &mut Rng| -> Vec<Value> { (0..rng.below(4)).map(|_| any(rng, depth + 1)).collect() };
    let number = rng.below(3) as i64;
    match rng.below(if depth < 3 { 14 } else { 6 }) {
        0 => Value::Nil,
        1 => Value::Bool(rng.chance(0.5)),
        2 => Value::Float(number as f64),
        3 => Value::text(["a", "r"][rng.index(2)]),
        4 => Value::Word(["a", "r"][rng.index(2)].into()),
        5 => Value::Int(number),
        6 | 7 => Value::List(items(rng).into()),
        8 | 9 => Value::Set(items(rng).into()),
        10 => {
            let (keys, values) = (items(rng), items(rng));
            Value::Map(keys.into_iter().zip(values).collect())
        }
        11 => Value::Cas(number, rng.below(3) as i64),
        12 => Value::Txn((0..rng.below(3)).map(|_| mop(rng)).collect()),
        _ => Value::Keyed(key(rng), any(rng, depth + 1).into()),
    }
}

fn key(rng: &mut Rng) -> Key {
    match rng.below(3) {
        0 => Key::Word("r".into()),
        1 => Key::Text("r".into()),
        _ => Key::Int(rng.below(3) as i64),
    }
}

fn mop(rng: &mut Rng) -> Mop {
    let (key, number) = (key(rng), rng.below(2) as i64);
    let observed = match rng.below(5) {
        0 => return Mop::Append { key, element: 1 },
        1 => return Mop::Write { key, value: number },
        2 => Observed::Nil,
        3 => Observed::Register(number),
        _ => Observed::List((0..number).collect()),
    };
    Mop::Read { key, observed }
}

/// What it prints as when sets and maps are sorted by what their elements print as.
fn canonical(value: &Value) -> String {
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts.dedup();
        texts.join(", ")
    };
    match value {
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Set(items) => format!("#{{{}}}", sorted(items.iter().map(canonical).collect())),
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(key, value)| canonical(key) + " " + &canonical(value));
            format!("{{{}}}", sorted(pairs.collect()))
        }
        Value::Keyed(key, value) => format!("[{key} {}]", canonical(value)),
        other => other.to_string(),
    }
}

/// The same in another order of sets and maps, and in other variants.
fn disguised(value: &Value, rng: &mut Rng) -> Value {
    let all = |items: &[Value], rng: &mut Rng| -> Vec<Value> {
        items.iter().map(|item| disguised(item, rng)).collect()
    };
    match value {
        Value::List(items) => Value::List(all(items, rng).into()),
        Value::Set(items) => {
            let mut items = all(items, rng);
            rng.shuffle(&mut items);
            Value::Set(items.into())
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let mut pairs: Vec<_> = pairs
                .map(|(key, value)| (disguised(key, rng), disguised(value, rng)))
                .collect();
            rng.shuffle(&mut pairs);
            Value::Map(pairs.into())
        }
        Value::Cas(from, to) => match rng.below(3) {
            0 => Value::List(values(&[*from, *to]).into()),
            1 => Value::Keyed(Key::Int(*from), Value::Int(*to).into()),
            _ => value.clone(),
        },
        Value::Keyed(key, inner) => {
            let inner = disguised(inner, rng);
            if rng.chance(0.5) {
                return Value::Keyed(key.clone(), inner.into());
            }
            let key = match key {
                Key::Int(number) => Value::Int(*number),
                Key::Word(word) => Value::Word(*word),
                Key::Text(text) => Value::Text(text.clone()),
            };
            Value::List([key, inner].into())
        }
        other => other.clone(),
    }
}

#[test]
fn values_are_equal_when_they_print_alike_but_for_order() {
    let (mut equal, mut disguises) = (0, 0);
    for seed in 0..60_000 {
        let mut rng = Rng::from_seed(seed);
        let (one, other) = (any(&mut rng, 0), any(&mut rng, 0));
        let same = canonical(&one) == canonical(&other);
        assert_eq!(one == other, same, "seed {seed}: {one} and {other}");
        assert_eq!(other == one, same, "seed {seed}");
        equal += u32::from(same && !matches!(one, Value::Nil | Value::Int(_)));
        let disguise = disguised(&one, &mut rng);
        assert_eq!(disguise, one, "seed {seed}: {one}");
        disguises += u32::from(disguise.to_string() != one.to_string());
    }
    assert!(equal > 500 && disguises > 1_000, "{equal}, {disguises}");
}

#[test]
fn equality_is_that_of_clojure() {
    let one = Value::Int(1);
    assert_ne!(one, Value::Float(1.0));
    assert_ne!(Value::Float(f64::NAN), Value::Float(f64::NAN));
    let nan = set(&[one.clone(), Value::Float(f64::NAN)]);
    assert_ne!(nan, nan.clone());
    assert_eq!(Value::Float(0.0), Value::Float(-0.0));
    assert_eq!(
        set(&[Value::Float(0.0), one.clone()]),
        set(&[one, Value::Float(-0.0)])
    );
    assert_ne!(Value::text("a"), Value::Word("a".into()));
    assert_ne!(Value::Nil, Value::Bool(false));
    assert_ne!(Value::List([].into()), set(&[]));
    assert_ne!(set(&[]), Value::Map([].into()));
    assert_eq!(Value::List([].into()), Value::Txn([].into()));
    // Sets in sets.
    let inner = |numbers: &[i64]| set(&values(numbers));
    assert_eq!(
        set(&[inner(&[1, 2]), inner(&[3])]),
        set(&[inner(&[3]), inner(&[2, 1])])
    );
    let mops = Value::Txn(
        [Mop::Read {
            key: Key::Int(1),
            observed: Observed::List([2, 3].into()),
        }]
        .into(),
    );
    let list = |items: Vec<Value>| Value::List(items.into());
    let read = vec![
        Value::Word("r".into()),
        Value::Int(1),
        list(values(&[2, 3])),
    ];
    assert_eq!(mops, list(vec![list(read)]));
}

/// A set of sets of sets …, two in each, takes no longer than its size.
#[test]
fn deep_sets_are_compared_in_bounded_time() {
    let deep = |flip: bool| {
        let mut value = Value::Int(1);
        for level in 0..14 {
            let pair = [
                Value::List([value.clone(), Value::Int(level)].into()),
                value,
            ];
            let [first, second] = pair;
            value = if flip {
                set(&[second, first])
            } else {
                set(&[first, second])
            };
        }
        value
    };
    assert_eq!(deep(true), deep(false));
    assert_ne!(deep(true), set(&[deep(false)]));
}

#[test]
fn every_value_prints_as_jepsen_prints_it() {
    let (x, text) = (Key::Word("x".into()), Key::Text("k".into()));
    let read = |key: &Key, observed| Mop::Read {
        key: key.clone(),
        observed,
    };
    let all = [
        Value::Nil,
        Value::Bool(true),
        Value::Int(i64::MIN),
        Value::Float(1.5),
        Value::Float(1e7),
        Value::Float(-1.25e-4),
        Value::Float(123_456.789),
        Value::Float(f64::NAN),
        Value::Float(f64::NEG_INFINITY),
        Value::text("a \"b\" \\ \n é"),
        Value::Word("ok".into()),
        Value::List([Value::Nil, Value::Int(2)].into()),
        set(&values(&[2, 1])),
        Value::Map(
            [
                (Value::Word("a".into()), Value::Int(1)),
                (Value::Int(2), Value::Nil),
            ]
            .into(),
        ),
        Value::Cas(1, 2),
        Value::Txn(
            [
                Mop::Append {
                    key: Key::Int(1),
                    element: 2,
                },
                Mop::Write {
                    key: x.clone(),
                    value: 3,
                },
                read(&x, Observed::Nil),
                read(&text, Observed::Register(4)),
                read(&text, Observed::List([].into())),
                read(&text, Observed::List([5, 6].into())),
            ]
            .into(),
        ),
        Value::Keyed(x, Value::Cas(1, 2).into()),
    ];
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    expect![[r#"
        nil
        true
        -9223372036854775808
        1.5
        1.0E7
        -1.25E-4
        123456.789
        ##NaN
        ##-Inf
        "a \"b\" \\ \n é"
        :ok
        [nil 2]
        #{2 1}
        {:a 1, 2 nil}
        [1 2]
        [[:append 1 2] [:w :x 3] [:r :x nil] [:r "k" 4] [:r "k" []] [:r "k" [5 6]]]
        [:x [1 2]]"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn operations_print_as_jepsen_prints_them() {
    let read = Op {
        time: 1,
        ..Op::invoke(Process::Client(0), "read", Value::Nil)
    };
    let kill = Op {
        index: 1 << 40,
        kind: OpType::Info,
        ..Op::invoke(Process::NEMESIS, "kill", Value::Word("n1".into()))
    };
    let kill = kill.with("error", Value::text("no"));
    expect![[r#"
        {:index 0, :time 1, :type :invoke, :process 0, :f :read, :value nil}
        {:index 1099511627776, :time -1, :type :info, :process :nemesis, :f :kill, :value :n1, :error "no"}"#]]
    .assert_eq(&format!("{read}\n{kill}"));
}

#[test]
fn typed_values_are_plain_values() {
    let sent = |offset| LogMop::Send {
        key: Key::Text("k".into()),
        offset,
        value: 7,
    };
    let logs = vec![
        (Key::Int(1), vec![(3, 4), (5, 6)]),
        (Key::Word("x".into()), vec![]),
    ];
    let log = [
        sent(None),
        sent(Some(2)),
        LogMop::Poll { messages: None },
        LogMop::Poll {
            messages: Some(logs),
        },
    ];
    let all = [
        Value::transfer(1, 2, 30),
        Value::balances(&[(0, 10), (1, -20)]),
        Value::integers(&[3, 1, 2]),
        Value::integer_set(&[3, 1, 2]),
        Value::log(&log),
    ];
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    expect![[r#"
        {:from 1, :to 2, :amount 30}
        {0 10, 1 -20}
        [3 1 2]
        #{3 1 2}
        [[:send "k" 7] [:send "k" [2 7]] [:poll] [:poll {1 [[3 4] [5 6]], :x []}]]"#]]
    .assert_eq(&lines.join("\n"));
    let transfer = Transfer {
        from: 1,
        to: 2,
        amount: 30,
    };
    assert_eq!(all[0].as_transfer(), Some(transfer));
    assert_eq!(all[1].as_balances(), Some(vec![(0, 10), (1, -20)]));
    assert_eq!(all[2].as_integers(), Some(vec![3, 1, 2]));
    assert_eq!(all[3].as_integers(), Some(vec![3, 1, 2]));
    assert_eq!(all[4].as_log(), Some(log.to_vec()));
    // Each is taken for what it is only.
    for (place, value) in all.iter().enumerate() {
        assert_eq!(value.as_transfer().is_some(), place == 0);
        assert_eq!(value.as_balances().is_some(), place == 1);
        assert_eq!(value.as_integers().is_some(), place == 2 || place == 3);
        assert_eq!(value.as_log().is_some(), place == 4);
    }
    let pairs = [("amount", 3), ("to", 2), ("from", 1)];
    let pairs = pairs.map(|(name, number)| (Value::Word(name.into()), Value::Int(number)));
    let other_order = Value::Map(pairs.into());
    assert_eq!(other_order, Value::transfer(1, 2, 3));
    assert_eq!(
        other_order.as_transfer(),
        Value::transfer(1, 2, 3).as_transfer()
    );
    assert!(Value::Map(pairs_and_more()).as_transfer().is_none());
}

fn pairs_and_more() -> Arc<[(Value, Value)]> {
    let pairs = [("from", 3), ("to", 2), ("amount", 1), ("fee", 1)];
    let pairs = pairs.map(|(name, number)| (Value::Word(name.into()), Value::Int(number)));
    pairs.into()
}
