use super::*;
use crate::{Fold, History, OpType, Process, Value, fold_concurrent, fold_linear};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// The answer when the items are cut at random and the parts are combined in random order, as far as the query allows.
fn in_parts<T: Clone, Q: Query<Each<T>>>(query: &Q, items: &[T], rng: &mut Rng) -> Q::Output {
    let cut_chance = match query.order() {
        Order::Linear => 0.0,
        _ => *rng.pick(&[0.02, 0.2, 0.6]),
    };
    let mut parts = vec![Part::start(query)];
    for item in items {
        while rng.chance(cut_chance) {
            parts.push(Part::start(query));
        }
        let part = parts.last_mut().unwrap();
        let _ = part.step::<Each<T>, Q>(query, item.clone());
    }
    while parts.len() > 1 {
        let place = match query.order() {
            Order::Associative => rng.index(parts.len() - 1),
            _ => 0,
        };
        let later = parts.remove(place + 1);
        let _ = parts[place].combine::<Each<T>, Q>(query, later);
    }
    parts.remove(0).finish::<Each<T>, Q>(query)
}

/// Lists of small numbers, of every length up to some, and long ones.
fn lists(rng: &mut Rng) -> Vec<Vec<i64>> {
    let lengths = (0..12).chain([50, 600]);
    let spread = *rng.pick(&[2, 10, 1_000_000]);
    let list = |length| (0..length).map(|_| rng.below(spread) as i64 - 1).collect();
    lengths.map(list).collect()
}

/// Asks the question of random lists, whole and in parts, and compares with what `twin` makes of them.
fn check<Q>(question: &Question<Each<i64>, Q>, twin: impl Fn(&[i64]) -> Q::Output)
where
    Q: Query<Each<i64>, Output: PartialEq + Debug>,
{
    for seed in 0..20 {
        let mut rng = Rng::from_seed(seed);
        for list in lists(&mut rng) {
            let expected = twin(&list);
            assert_eq!(
                question.of(list.iter().copied()),
                expected,
                "seed {seed}, whole: {list:?}"
            );
            let parts = in_parts(question, &list, &mut rng);
            assert_eq!(parts, expected, "seed {seed}, in parts: {list:?}");
        }
    }
}

fn numbers() -> Pipeline<Each<i64>, Whole> {
    each()
}

#[test]
fn stages_equal_those_of_iterators() {
    check(&numbers().map(|n| n * 2).vec(), |list| {
        list.iter().map(|n| n * 2).collect()
    });
    check(&numbers().filter(|n| n % 3 == 0).vec(), |list| {
        list.iter().copied().filter(|n| n % 3 == 0).collect()
    });
    check(
        &numbers().remove(|n| n % 3 == 0).map(|n| n + 1).vec(),
        |list| list.iter().filter(|n| *n % 3 != 0).map(|n| n + 1).collect(),
    );
    let even = |n: i64| (n % 2 == 0).then_some(n / 2);
    check(&numbers().filter_map(even).vec(), |list| {
        list.iter().copied().filter_map(even).collect()
    });
    let repeated = |n: i64| vec![n; (n & 3) as usize];
    check(&numbers().flat_map(repeated).vec(), |list| {
        list.iter().copied().flat_map(repeated).collect()
    });
    for count in [0, 1, 7] {
        check(&numbers().take(count).vec(), |list| {
            list.iter().copied().take(count as usize).collect()
        });
        check(
            &numbers()
                .filter(|n| n % 2 == 0)
                .take(count)
                .map(|n| n + 1)
                .count(),
            |list| {
                list.iter()
                    .filter(|n| *n % 2 == 0)
                    .take(count as usize)
                    .count() as u64
            },
        );
    }
    check(&numbers().take_while(|n| *n != 1).vec(), |list| {
        list.iter().copied().take_while(|n| *n != 1).collect()
    });
}

#[test]
fn ends_equal_those_of_iterators() {
    check(&numbers().count(), |list| list.len() as u64);
    check(&numbers().sum(), |list| {
        list.iter().map(|n| i128::from(*n)).sum()
    });
    check(&numbers().any(|n| *n == 0), |list| list.contains(&0));
    check(&numbers().every(|n| *n != 0), |list| !list.contains(&0));
    check(&numbers().first(), |list| list.first().copied());
    check(&numbers().last(), |list| list.last().copied());
    check(&numbers().find(|n| n % 7 == 3), |list| {
        list.iter().copied().find(|n| n % 7 == 3)
    });
    let half = |n: i64| (n % 7 == 3).then_some(n / 2);
    check(&numbers().some(half), |list| {
        list.iter().copied().find_map(half)
    });
    for count in [0, 1, 9] {
        check(&numbers().head(count), |list| {
            list[..count.min(list.len())].to_vec()
        });
        check(&numbers().tail(count), |list| {
            list[list.len().saturating_sub(count)..].to_vec()
        });
    }
    check(&numbers().count().post(|count| count * 2), |list| {
        list.len() as u64 * 2
    });
}

#[test]
fn the_least_and_the_greatest_equal_those_of_iterators() {
    check(&numbers().min(), |list| list.iter().copied().min());
    check(&numbers().max(), |list| list.iter().copied().max());
    check(&numbers().range(), |list| {
        Some((*list.iter().min()?, *list.iter().max()?))
    });
    // Equal by the key, so the place tells which one was taken.
    check(&numbers().min_by_key(|n| n % 4), |list| {
        list.iter().copied().min_by_key(|n| n % 4)
    });
    check(&numbers().max_by_key(|n| n % 4), |list| {
        list.iter().copied().max_by_key(|n| n % 4)
    });
    let halves = |n: &i64| *n as f64 / 2.0;
    check(
        &numbers().min_by(move |a, b| halves(a).total_cmp(&halves(b))),
        |list| list.iter().copied().min(),
    );
}

#[test]
fn collections_equal_those_of_iterators() {
    check(&numbers().set(), |list| {
        list.iter().copied().collect::<BTreeSet<_>>()
    });
    check(&numbers().distinct(), |list| {
        list.iter().collect::<BTreeSet<_>>().len() as u64
    });
    let counts = |list: &[i64]| {
        let mut counts = BTreeMap::new();
        for number in list {
            *counts.entry(*number).or_insert(0) += 1;
        }
        counts
    };
    check(&numbers().frequencies(), counts);
    check(
        &numbers().group_by(|n| *n, |numbers| numbers.count()),
        counts,
    );
    check(&numbers().map(|n| (n % 20, n)).into_map(), |list| {
        list.iter().map(|n| (n % 20, *n)).collect()
    });
}

#[test]
fn inner_questions_end_alone() {
    let grouped = numbers().group_by(|n| n % 30, |numbers| numbers.head(3));
    check(&grouped, |list| {
        let mut groups: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for number in list {
            let group = groups.entry(number % 30).or_default();
            if group.len() < 3 {
                group.push(*number);
            }
        }
        groups
    });
    let fused = numbers().fuse(|numbers| {
        let odd = numbers.filter(|n| n % 2 == 1);
        (
            numbers.first(),
            numbers.count(),
            odd.head(4),
            numbers.any(|n| *n == 5),
        )
    });
    check(&fused, |list| {
        let odd = list.iter().copied().filter(|n| n % 2 == 1);
        (
            list.first().copied(),
            list.len() as u64,
            odd.take(4).collect(),
            list.contains(&5),
        )
    });
    let facet = numbers().facet(|numbers| {
        [0, 1, 5].map(|least| (least, numbers.filter(move |n| *n >= least).head(2)))
    });
    check(&facet, |list| {
        let above = |least| {
            list.iter()
                .copied()
                .filter(move |n| *n >= least)
                .take(2)
                .collect()
        };
        [0, 1, 5].map(|least| (least, above(least))).into()
    });
}

/// How many items a question looks at.
fn looked_at<Q: Query<Each<i64>>>(question: &Question<Each<i64>, Q>) -> i64 {
    let mut seen = 0;
    question.of((0..100).inspect(|_| seen += 1));
    seen
}

#[test]
fn a_pass_ends_when_nobody_needs_more() {
    assert_eq!(looked_at(&numbers().count()), 100);
    assert_eq!(looked_at(&numbers().take(7).count()), 7);
    assert_eq!(looked_at(&numbers().take_while(|n| *n < 7).count()), 8);
    assert_eq!(looked_at(&numbers().any(|n| *n == 7)), 8);
    assert_eq!(looked_at(&numbers().every(|n| *n != 7)), 8);
    assert_eq!(looked_at(&numbers().filter(|n| *n > 6).first()), 8);
    assert_eq!(looked_at(&numbers().last()), 100);
    let three = || {
        (
            numbers().head(5),
            numbers().take(9).sum(),
            numbers().find(|n| *n == 20),
        )
    };
    assert_eq!(looked_at(&fuse(three())), 21);
    assert_eq!(looked_at(&fuse((fuse(three()), numbers().count()))), 100);
    let facet = |limits: [i64; 2]| {
        numbers().facet(|numbers| limits.map(|limit| (limit, numbers.any(move |n| *n == limit))))
    };
    assert_eq!(looked_at(&facet([3, 30])), 31);
    assert_eq!(
        looked_at(&numbers().group_by(|_| (), |numbers| numbers.first())),
        100
    );
}

#[test]
fn the_narrowest_order_rules() {
    assert_eq!(numbers().count().order(), Order::Associative);
    assert_eq!(numbers().take(1).count().order(), Order::Linear);
    assert_eq!(
        numbers()
            .take(1)
            .map(|n| n)
            .filter(|_| true)
            .count()
            .order(),
        Order::Linear
    );
    let fused = numbers().fuse(|numbers| (numbers.count(), numbers.take(1).count()));
    assert_eq!(fused.order(), Order::Linear);
    let grouped = numbers().group_by(|n| *n, |numbers| numbers.take(1).count());
    assert_eq!(grouped.order(), Order::Linear);
}

/// Processes that write and complete, and a nemesis that comes between.
fn history(count: u64, rng: &mut Rng) -> History {
    let mut open: [Option<Op>; 5] = [const { None }; 5];
    let ops = (0..count).map(|index| {
        let process = rng.index(5);
        let time = index as i64 * 10 + rng.below(10) as i64;
        let op = match open[process].take() {
            Some(invocation) => {
                let kind = *rng.pick(&[OpType::Ok, OpType::Ok, OpType::Fail]);
                invocation.complete(kind, invocation.value.clone())
            }
            None if rng.chance(0.05) => Op {
                kind: OpType::Info,
                ..Op::invoke(Process::NEMESIS, "kill", Value::Nil)
            },
            None => {
                let f = *rng.pick(&["read", "write", "cas"]);
                let value = Value::Int(rng.below(9) as i64);
                let invocation = Op::invoke(Process::Client(process as u64), f, value);
                open[process] = Some(invocation.clone());
                invocation
            }
        };
        Op { index, time, ..op }
    });
    History::from_ops(ops.collect())
}

/// Folds a history of three chunks linearly and concurrently.
fn folded<F: Fold<Output: PartialEq + Debug>>(history: &History, fold: &F) -> F::Output {
    let linear = fold_linear(history, fold).unwrap();
    if fold.order() != Order::Linear {
        assert_eq!(fold_concurrent(history, fold, 3).unwrap(), linear);
    }
    linear
}

#[test]
fn questions_are_folds_over_histories() {
    let history = history(40_000, &mut Rng::from_seed(1));
    let twin = |keep: fn(&&Op) -> bool| history.iter().filter(keep);
    let ok = clients().of_kind(OpType::Ok);
    assert_eq!(folded(&history, &ops().count()), 40_000);
    let expected = twin(|op| op.is_ok()).count() as u64;
    assert_eq!(folded(&history, &ok.count()), expected);
    let by_f = clients().group_by(|op| op.f(), |ops| ops.map(|op| op.time()).range());
    let answer = folded(&history, &by_f);
    assert_eq!(answer.len(), 3);
    for (f, range) in answer {
        let mut times = history.iter().filter(|op| op.f == f).map(|op| op.time);
        let first = times.next().unwrap();
        assert_eq!(range, Some((first, times.next_back().unwrap())));
    }
    let last = owned().filter(|op| op.is_fail()).last();
    assert_eq!(
        folded(&history, &last).as_ref(),
        twin(|op| op.is_fail()).next_back()
    );
    let head = ops()
        .filter(|op| op.position() > 20_000)
        .owned()
        .take(3)
        .vec();
    assert_eq!(folded(&history, &head), history.ops()[20_001..20_004]);
    let named = ops().count().named("how many").asap();
    assert_eq!(
        (Fold::name(&named), named.asap),
        ("how many".to_owned(), true)
    );
}
