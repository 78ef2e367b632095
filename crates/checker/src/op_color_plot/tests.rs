use super::*;
use crate::Validity;
use seatrial_history::{Op, Process, Value};
use seatrial_machine::Rng;

fn figures(history: &History, group: ColorGroup) -> OpColorFigures {
    match OpColorPlot::new(group).check(history).details.figures {
        Figures::OpColors(figures) => *figures,
        other => panic!("{other:?}"),
    }
}

/// Operations of clients, some of which never complete; time, function and outcome of each.
fn random(rng: &mut Rng, count: u64) -> (History, Vec<(i64, &'static str, &'static str)>) {
    let step = *rng.pick(&[1, 1_000_000, 60_000_000_000_u64]);
    let (mut ops, mut expected, mut open, mut time) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for client in 0..count {
        time += rng.below(step).cast_signed();
        let f = *rng.pick(&["read", "write"]);
        let op = Op::invoke(Process::Client(client), f, Value::Nil);
        open.push((Op { time, ..op.clone() }, time, f));
        ops.push(Op { time, ..op });
        while open.len() > 3 {
            let (op, began, f) = open.swap_remove(rng.index(open.len()));
            let kind = *rng.pick(&[OpType::Ok, OpType::Fail, OpType::Info]);
            let name = match kind {
                OpType::Ok => "ok",
                OpType::Fail => "fail",
                _ => "info",
            };
            expected.push((began, f, name));
            ops.push(Op {
                time,
                ..op.complete(kind, Value::Nil)
            });
        }
    }
    expected.extend(open.iter().map(|&(_, began, f)| (began, f, "info")));
    (History::from_unindexed(ops), expected)
}

#[test]
fn each_operation_is_counted_once_in_its_window_and_group() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let length = 1 + rng.below(300);
        let (history, expected) = random(&mut rng, length);
        for group in ColorGroup::ALL {
            let found = figures(&history, group);
            assert!(found.windows.len() <= WINDOWS_MAX);
            let mut points: Vec<(i64, &str)> = Vec::new();
            for &(time, at) in found.points.as_ref().unwrap() {
                points.push((time, &found.groups[at]));
            }
            let mut wanted: Vec<(i64, &str)> = expected
                .iter()
                .map(|&(time, f, outcome)| match group {
                    ColorGroup::Outcome => (time, outcome),
                    ColorGroup::Function => (time, f),
                })
                .collect();
            points.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(points, wanted, "seed {seed}");
            for (place, window) in found.windows.iter().enumerate() {
                let begin = found.begin + place as i64 * found.window;
                let inside = |time: i64| begin <= time && time - begin < found.window;
                for (name, count) in found.groups.iter().zip(window) {
                    let all = wanted.iter();
                    let here = all.filter(|one| inside(one.0) && one.1 == name).count();
                    assert_eq!(here as u64, *count, "seed {seed}, window {place}");
                }
            }
        }
    }
}

#[test]
fn a_long_history_has_windows_only_and_many_functions_share_a_group() {
    let names = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
    ];
    let ops = (0..17_000_i64).flat_map(|number| {
        let f = names[number as usize % names.len()];
        let op = Op::invoke(Process::Client(0), f, Value::Nil);
        let done = op.complete(OpType::Ok, Value::Nil);
        let time = number * 1_000;
        [Op { time, ..op }, Op { time, ..done }]
    });
    let history = History::from_unindexed(ops.collect());
    let found = figures(&history, ColorGroup::Function);
    assert_eq!(found.points, None);
    assert_eq!(found.groups.len(), GROUPS_MAX);
    assert_eq!(found.groups[GROUPS_MAX - 1], "others");
    let all: u64 = found.windows.iter().flatten().sum();
    assert_eq!(all, 17_000);
}

#[test]
fn a_history_without_times_says_nothing() {
    let verdict = OpColorPlot::default().check(&History::default());
    assert!(matches!(verdict.valid, Validity::Unknown(_)));
}
