use super::*;
use crate::Validity;
use seatrial_history::{Op, Process, Value};
use seatrial_machine::Rng;

fn figures(history: &History) -> AvailabilityFigures {
    match Availability.check(history).details.figures {
        Figures::Availability(figures) => *figures,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shares_and_stretches_are_those_of_a_plain_count() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let (mut ops, mut time) = (Vec::new(), 0);
        let step = *rng.pick(&[1, 1_000_000, 60_000_000_000_u64]);
        let mut completions: Vec<(&str, i64, bool)> = Vec::new();
        for client in 0..rng.below(300) {
            let f = *rng.pick(&["read", "write"]);
            let op = Op::invoke(Process::Client(client), f, Value::Nil);
            let kind = *rng.pick(&[OpType::Ok, OpType::Fail, OpType::Info]);
            time += rng.below(step).cast_signed();
            let completion = op.complete(kind, Value::Nil);
            ops.push(Op { time, ..op });
            time += rng.below(step).cast_signed();
            ops.push(Op { time, ..completion });
            completions.push((f, time, kind == OpType::Ok));
        }
        let history = History::from_unindexed(ops);
        let found = figures(&history);
        for f in ["read", "write"] {
            let of = || completions.iter().filter(|one| one.0 == f);
            let Some((first, last)) = of().next().zip(of().next_back()) else {
                assert!(!found.by_function.contains_key(f));
                continue;
            };
            let oks = of().filter(|one| one.2).map(|one| one.1);
            let oks: Vec<i64> = [first.1].into_iter().chain(oks).chain([last.1]).collect();
            let longest = oks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            let found = &found.by_function[f];
            let (count, ok) = (of().count(), of().filter(|one| one.2).count());
            assert_eq!(found.share, share(count as u64, ok as u64));
            let stretch = found.longest_unavailable.unwrap();
            assert_eq!(stretch.length(), longest, "seed {seed}");
            let sum = found
                .windows
                .iter()
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert_eq!(sum, (count as u64, ok as u64), "seed {seed}");
        }
        for (place, window) in found.all.windows.iter().enumerate() {
            let at = |time: i64| (time - found.begin) / found.window == place as i64;
            let inside = completions.iter().filter(|one| at(one.1)).count() as u64;
            assert_eq!(window.0, inside, "seed {seed}");
        }
        assert!(found.all.windows.len() <= WINDOWS_MAX);
    }
}

#[test]
fn a_history_without_completions_says_nothing() {
    let verdict = Availability.check(&History::default());
    assert!(matches!(verdict.valid, Validity::Unknown(_)));
}

#[test]
fn completions_are_counted_by_node() {
    use seatrial_interchange::import::{self, Format, ImportOptions};
    let text = br#"
        {:process 0 :type :invoke :f :read :value nil :time 0}
        {:process 0 :type :ok :f :read :value nil :time 10 :node "n1"}
        {:process 1 :type :invoke :f :read :value nil :time 20}
        {:process 1 :type :fail :f :read :value nil :time 30 :node "n2"}"#;
    let history = import::read("run.edn", text, Format::Edn, ImportOptions::default()).unwrap();
    let found = figures(&history);
    assert_eq!(found.by_node["n1"], share(1, 1));
    assert_eq!(found.by_node["n2"], share(1, 0));
}
