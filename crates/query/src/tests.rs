use super::*;
use seatrial_history::fold_concurrent;
use seatrial_history::{Fold, History, OpType, Process, Value, fold_linear};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// The answer when the items are cut at random and the parts combined in a random order that the query permits.
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
fn a_pass_ends_when_no_query_needs_more() {
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
                let kind = *rng.pick(&[OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info]);
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
    assert_eq!(answer.len(), 3, "{answer:?}");
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

#[test]
fn numbers_are_measured_as_by_hand() {
    // Functions x → a x + b, one after the other: associative, and the order matters.
    let after = |(a, b): (i64, i64), (c, d): (i64, i64)| {
        (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d))
    };
    check(&numbers().map(|n| (n, 1)).reduce(after), |list| {
        list.iter().map(|n| (*n, 1)).reduce(after)
    });
    let sum = numbers().fold_combine(|| 0, |sum, n| *sum += n, |sum, later| *sum += later);
    check(&sum, |list| list.iter().sum());
    let hash = |hash: i64, n: i64| hash.wrapping_mul(31).wrapping_add(n);
    check(
        &numbers().fold(|| 7, move |all, n| *all = hash(*all, n)),
        |list| list.iter().copied().fold(7, hash),
    );
    let until = numbers().fold_while(Vec::new, |list: &mut Vec<i64>, n| {
        list.push(n);
        if n == 1 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    check(&until, |list| {
        let end = list
            .iter()
            .position(|n| *n == 1)
            .map_or(list.len(), |place| place + 1);
        list[..end].to_vec()
    });
}

#[test]
fn the_greatest_and_the_exact_quantiles_equal_sorting() {
    for count in [0, 1, 5, 40] {
        check(&numbers().top(count), |list| {
            let mut sorted = list.to_vec();
            sorted.sort_by(|a, b| b.cmp(a));
            sorted.truncate(count);
            sorted
        });
        check(&numbers().top_by_key(count, |n| n % 5), |list| {
            let mut sorted = list.to_vec();
            sorted.sort_by_key(|n| std::cmp::Reverse(n % 5));
            sorted.truncate(count);
            sorted
        });
    }
    check(&numbers().exact_quantiles([0.0, 0.5, 0.99, 1.0]), |list| {
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        // The first that has half (99 %) of all up to and with itself.
        let at = |percent| (0..=last).find(|place| (place + 1) * 100 >= percent * sorted.len());
        Some([0, at(50)?, at(99)?, last].map(|place| sorted[place]))
    });
}

#[test]
fn means_and_variances_equal_the_two_pass_formula() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        // Far from zero, where the textbook's one-pass formula loses everything.
        let base = *rng.pick(&[0.0, 1e9, -1e12]);
        let items: Vec<f64> = (0..rng.below(900)).map(|_| base + rng.unit()).collect();
        let count = items.len() as f64;
        let mean = items.iter().map(|item| item - base).sum::<f64>() / count + base;
        let squares: f64 = items.iter().map(|item| (item - mean).powi(2)).sum();
        let answers = fuse((
            each::<f64>().mean(),
            each::<f64>().variance(),
            each::<f64>().standard_deviation(),
            each::<f64>().moments(),
        ));
        for answer in [
            answers.of(items.iter().copied()),
            in_parts(&answers, &items, &mut rng),
        ] {
            let (found, variance, deviation, moments) = answer;
            assert_eq!(found.is_some(), !items.is_empty());
            assert_eq!(variance.is_some(), items.len() > 1);
            assert_eq!(
                (moments.count(), moments.variance()),
                (items.len() as u64, variance)
            );
            assert_eq!(deviation, variance.map(f64::sqrt));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
            assert!(found.is_none_or(|found| near(found, mean)), "seed {seed}");
            assert!(
                moments.mean().is_none_or(|found| near(found, mean)),
                "seed {seed}"
            );
            let expected = squares / (count - 1.0);
            let close = |found: f64| (found - expected).abs() <= 1e-3 * expected;
            assert!(
                variance.is_none_or(close),
                "seed {seed}: {variance:?}, {expected}"
            );
            let population = moments.population_variance();
            assert!(population.is_none_or(|found| (found - squares / count).abs() <= 1e-3));
        }
    }
}

#[test]
fn sums_of_floating_point_numbers_lose_nothing() {
    let items = [1.0, 1e100, 1.0, -1e100];
    for seed in 0..20 {
        let sum = in_parts(&each::<f64>().sum(), &items, &mut Rng::from_seed(seed));
        assert_eq!(sum.to_string(), "2", "seed {seed}");
    }
    assert_eq!(each::<f32>().sum().of([0.5, 0.25]).to_string(), "0.75");
    assert_eq!(
        each::<f64>().sum().of([f64::INFINITY, 1.0]).to_string(),
        "inf"
    );
    assert_eq!(each::<u8>().sum().of([200, 100]), 300);
}

/// Numbers of every magnitude and sign.
fn wild(rng: &mut Rng) -> f64 {
    let sign = if rng.chance(0.3) { -1.0 } else { 1.0 };
    match rng.below(12) {
        0 => 0.0,
        1 => sign * f64::from_bits(rng.below(0x7ff0_0000_0000_0000)).max(f64::MIN_POSITIVE),
        2 => sign * rng.below(300) as f64,
        _ => sign * 10f64.powf(rng.unit() * 9.0),
    }
}

#[test]
fn quantiles_keep_to_their_bound() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let count = *rng.pick(&[1, 2, 511, 512, 513, 3_000]);
        let items: Vec<f64> = (0..count).map(|_| wild(&mut rng)).collect();
        let whole = each::<f64>().distribution().of(items.iter().copied());
        assert_eq!(
            whole,
            in_parts(&each::<f64>().distribution(), &items, &mut rng),
            "seed {seed}"
        );
        let mut sorted = items;
        sorted.sort_unstable_by(f64::total_cmp);
        for percent in 0..=100 {
            let fraction = f64::from(percent) / 100.0;
            let place = (percent as usize * count).div_ceil(100).max(1) - 1;
            let (exact, found) = (sorted[place], whole.quantile(fraction).unwrap());
            let bound = match count {
                0..=512 => 0.0,
                _ => exact.abs() / 256.0,
            };
            let off = (found - exact).abs();
            assert!(
                off <= bound,
                "seed {seed}: {percent} % of {count}: {found} for {exact}"
            );
        }
    }
}

#[test]
fn quantiles_of_whole_numbers_are_whole() {
    let items = |count: i64| (0..count).map(|n| n % 200);
    let answer = each::<i64>()
        .quantiles([0.0, 0.25, 0.5, 1.0])
        .of(items(100_000));
    assert_eq!(answer, Some([0.0, 49.0, 99.0, 199.0]));
    assert_eq!(each::<i64>().quantiles([0.5]).of([]), None);
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    let many = (0..4_000).map(|n| odd[n % 4]);
    let answer = each::<f64>().quantiles([0.0, 0.1, 0.5, 0.9, 1.0]).of(many);
    let infinity = f64::INFINITY;
    assert_eq!(
        answer,
        Some([-infinity, -infinity, 0.0, infinity, infinity])
    );
}

#[test]
fn histograms_count_what_lies_between() {
    for seed in 0..30 {
        let mut rng = Rng::from_seed(seed);
        let count = *rng.pick(&[0, 3, 512, 2_000]);
        let items: Vec<f64> = (0..count).map(|_| wild(&mut rng)).collect();
        for per_doubling in [1, 4, 128] {
            let buckets = in_parts(&each::<f64>().histogram(per_doubling), &items, &mut rng);
            let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
            assert_eq!(total, count, "seed {seed}");
            assert!(buckets.is_sorted_by(|a, b| a.from < b.from), "seed {seed}");
            for Bucket { from, to, count } in buckets {
                let is_beside = |item: f64| item * from.signum() > 0.0;
                let is_between = |item: f64| item.abs() >= from.abs() && item.abs() < to.abs();
                let inside = |item: f64| match (from.abs() > 0.0, item.abs() > 0.0) {
                    (true, _) => is_beside(item) && is_between(item),
                    (false, is_some) => !is_some,
                };
                let expected = items.iter().filter(|item| inside(**item)).count();
                assert_eq!(count, expected as u64, "seed {seed}: {from} to {to}");
                // No wider than its part of a doubling.
                assert!(to.abs() <= from.abs() * (1.0 + 1.0 / f64::from(per_doubling)));
            }
        }
    }
}

#[test]
fn samples_are_fair_and_do_not_depend_on_the_parts() {
    let items: Vec<i64> = (0..1_000).collect();
    let mut picked = [0; 10];
    for seed in 0..300 {
        let question = numbers().sample(20, seed, |n| n.cast_unsigned());
        let sample = question.of(items.iter().copied());
        let parts = in_parts(&question, &items, &mut Rng::from_seed(seed));
        assert_eq!(sample, parts, "seed {seed}");
        assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), 20);
        for item in sample {
            picked[item as usize / 100] += 1;
        }
    }
    // 600 on average, and a deviation of 23.
    assert!(
        picked.iter().all(|count| (500..700).contains(count)),
        "{picked:?}"
    );
    let few = numbers().sample(20, 1, |n| n.cast_unsigned()).of([4, 5]);
    assert_eq!(few.into_iter().collect::<BTreeSet<_>>(), [4, 5].into());
}

#[test]
fn operations_are_counted_by_type() {
    let history = history(40_000, &mut Rng::from_seed(2));
    let twin = |kind| history.iter().filter(|op| op.kind == kind).count() as u64;
    let kinds = folded(&history, &ops().count_by_kind());
    let expected = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info].map(twin);
    assert_eq!(
        [kinds.invoke(), kinds.ok(), kinds.fail(), kinds.info()],
        expected
    );
    assert_eq!(kinds.total(), 40_000);
    let by_f = folded(&history, &clients().count_by_f());
    for (f, kinds) in by_f {
        let ok = history.iter().filter(|op| op.f == f && op.is_ok());
        assert_eq!(kinds.ok(), ok.count() as u64);
    }
}

#[test]
fn latencies_reach_over_chunks() {
    for seed in 0..4 {
        let mut history = history(50_000, &mut Rng::from_seed(seed));
        if seed == 1 {
            // Some times are not known.
            let unknown = |op: &Op| Op {
                time: if op.index.is_multiple_of(5) {
                    -1
                } else {
                    op.time
                },
                ..op.clone()
            };
            history = History::from_ops(history.iter().map(unknown).collect());
        }
        let mut twin = Vec::new();
        let mut crossing = 0;
        for (position, op) in history.iter().enumerate() {
            let Some(invocation) = history.pair(position).filter(|other| *other < position) else {
                continue;
            };
            crossing += u64::from(invocation / 16_384 < position / 16_384);
            let invoked = history.ops()[invocation].time;
            if invoked >= 0 && op.time >= 0 {
                twin.push((invoked, op.time, op.kind, op.f, op.process, position as u64));
            }
        }
        assert!(crossing > 3, "seed {seed}: {crossing}");
        let all = latencies().map(|latency| {
            let (invoked, completed) = (latency.invoked(), latency.completed());
            assert_eq!(latency.nanos(), completed - invoked);
            let (kind, f, process) = (latency.kind(), latency.f(), latency.process());
            (invoked, completed, kind, f, process, latency.position())
        });
        let mut found = folded(&history, &all.vec());
        found.sort_by_key(|row| row.5);
        assert_eq!(found, twin, "seed {seed}");
        let late = latencies().filter(|latency| latency.completed() > 200_000);
        let first = late.map(|latency| latency.position()).first();
        assert!(folded(&history, &first).is_some());
        let slow = latencies()
            .filter(|latency| latency.nanos() > 300)
            .take(4)
            .count();
        assert_eq!(folded(&history, &slow), 4);
    }
}

#[test]
fn micro_operations_pass_one_by_one() {
    let key = |n: i64| seatrial_history::Key::Int(n % 7);
    let txn = |index: i64| {
        let append = |n| seatrial_history::Mop::Append {
            key: key(n),
            element: n,
        };
        Value::Txn((0..index % 4).map(|n| append(index * 10 + n)).collect())
    };
    let op = |index: i64| Op::invoke(Process::Client(0), "txn", txn(index));
    let history = History::from_unindexed((0..100).map(op).collect());
    let by_key = ops().mops().group_by(
        |mop| mop.op.chunk().key(mop.mop.key()).clone(),
        |mops| mops.count(),
    );
    let mut twin = BTreeMap::new();
    for op in &history {
        for mop in op.value.as_txn().unwrap() {
            *twin.entry(mop.key().clone()).or_insert(0) += 1;
        }
    }
    assert_eq!(twin.len(), 7);
    assert_eq!(folded(&history, &by_key), twin);
    let first = ops()
        .mops()
        .some(|mop| (mop.op.index() > 9).then_some(mop.op.index()));
    assert_eq!(folded(&history, &first), Some(10));
}

#[test]
fn a_quantile_that_is_none_is_refused_at_once() {
    for fraction in [-0.1, 1.1, f64::NAN] {
        let ask = || drop(numbers().quantiles([0.5, fraction]));
        assert!(std::panic::catch_unwind(ask).is_err(), "{fraction}");
        let ask = || drop(numbers().exact_quantiles([fraction]));
        assert!(std::panic::catch_unwind(ask).is_err(), "{fraction}");
    }
}

/// The guide shows parts of the example program, so that they compile.
#[test]
fn the_guide_shows_the_example() {
    let guide = include_str!("../../../docs/guide/folds.md");
    let example = include_str!("../examples/questions.rs");
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let example = squeezed(example);
    let parts: Vec<_> = guide.split("```rust\n").skip(1).collect();
    assert!(parts.len() > 5);
    for part in parts {
        let code = part.split("```").next().unwrap();
        assert!(
            example.contains(&squeezed(code)),
            "not in the example:\n{code}"
        );
    }
}
