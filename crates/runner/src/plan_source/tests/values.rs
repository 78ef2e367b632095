//! Values that are drawn.

use super::{built, schedule};
use std::collections::{BTreeMap, BTreeSet};

/// The values of this plan's invocations, as text.
fn values(value: &str, count: usize) -> Vec<String> {
    let lines = schedule(built(&format!(
        "f = 'a'\nvalue = {value}\nrepeat = {count}"
    )));
    let begun = lines
        .iter()
        .filter_map(|line| line.split_once(" invoke a "));
    let values: Vec<String> = begun.map(|(_, value)| value.to_owned()).collect();
    assert_eq!(values.len(), count);
    values
}

fn counts(value: &str, count: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for value in values(value, count) {
        *counts.entry(value).or_insert(0) += 1;
    }
    counts
}

/// As often as these say, within a fiftieth of all.
fn shares(value: &str, expected: &[(&str, usize)]) {
    const COUNT: usize = 10_000;
    let counts = counts(value, COUNT);
    assert_eq!(counts.len(), expected.len(), "{value}: {counts:?}");
    for (name, expected) in expected {
        assert!(
            counts[*name].abs_diff(*expected) < COUNT / 50,
            "{value}: {counts:?}"
        );
    }
}

#[test]
fn numbers_come_as_their_distribution_says() {
    shares(
        "{ int = [3, 6] }",
        &[("3", 2_500), ("4", 2_500), ("5", 2_500), ("6", 2_500)],
    );
    shares("{ int = -7 }", &[("-7", 10_000)]);
    shares(
        "{ uniform = 4 }",
        &[("0", 2_500), ("1", 2_500), ("2", 2_500), ("3", 2_500)],
    );
    shares(
        "{ zipf = 4 }",
        &[("0", 4_800), ("1", 2_400), ("2", 1_600), ("3", 1_200)],
    );
    shares(
        "{ exponential = 4 }",
        &[("0", 5_333), ("1", 2_667), ("2", 1_333), ("3", 667)],
    );
    shares("{ zipf = 2, skew = 2 }", &[("0", 8_000), ("1", 2_000)]);
    shares(
        "{ choice = ['x', { int = [1, 2] }] }",
        &[("\"x\"", 5_000), ("1", 2_500), ("2", 2_500)],
    );
    let all = counts(
        "{ int = [-9223372036854775808, 9223372036854775807] }",
        1_000,
    );
    assert_eq!(all.len(), 1_000);
}

#[test]
fn values_are_what_they_say() {
    let of = |value: &str| values(value, 1).remove(0);
    assert_eq!(of("'x'"), "\"x\"");
    assert_eq!(of("true"), "true");
    assert_eq!(of("2.5"), "2.5");
    assert_eq!(of("{ nil = true }"), "nil");
    assert_eq!(of("{ word = 'n1' }"), ":n1");
    assert_eq!(of("[1, [2, 'x'], { counter = true }]"), "[1 [2 \"x\"] 1]");
    assert_eq!(of("{ cas = [1, { int = 2 }] }"), "[1 2]");
    assert_eq!(
        of("{ txn = [['r', 'x'], ['append', 2, { counter = true }], ['w', 3, 4]] }"),
        "[[:r \"x\" nil] [:append 2 1] [:w 3 4]]"
    );
}

#[test]
fn counters_are_unique() {
    assert_eq!(values("{ counter = true }", 4), ["1", "2", "3", "4"]);
    let text = "[[phases]]
        mix = [{ f = 'write', value = { counter = 'w' }, repeat = 10 }, { f = 'cas', value = { cas = [0, { counter = 'w' }] }, repeat = 10 }]
        [[phases]]
        each_thread = { f = 'write', value = { counter = 'w' }, repeat = 5 }";
    let lines = schedule(built(text));
    let begun = lines.iter().filter(|line| line.contains(" invoke "));
    let last: Vec<u32> = begun
        .map(|line| {
            line.trim_end_matches(']')
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    let distinct: BTreeSet<u32> = last.iter().copied().collect();
    assert_eq!(last.len(), 35);
    assert_eq!(distinct, (1..=35).collect());
}

#[test]
fn transactions_have_lengths() {
    let values = values(
        "{ txn = [['r', { zipf = 3 }], ['append', { zipf = 3 }, { counter = true }]], length = [1, 4] }",
        400,
    );
    let mut lengths = [0; 5];
    for value in &values {
        lengths[value.matches("[:").count()] += 1;
    }
    assert!(
        lengths[0] == 0 && lengths[1..].iter().all(|&count| count > 60),
        "{lengths:?}"
    );
    let reads: usize = values.iter().map(|value| value.matches(":r").count()).sum();
    let appends: usize = values
        .iter()
        .map(|value| value.matches(":append").count())
        .sum();
    assert!(reads.abs_diff(appends) < 200, "{reads} {appends}");
}
