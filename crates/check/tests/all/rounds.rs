//! Chunk by chunk against the whole history in memory.

use seatrial_check::{by_name, names};
use seatrial_checker::{Aims, check_source};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_machine::Rng;

/// Clients and a nemesis that do anything in any order.
fn any_history(rng: &mut Rng) -> History {
    let ops = (0..rng.below(40_000)).map(|_| {
        let process = match rng.below(5) {
            4 => Process::NEMESIS,
            number => Process::Client(number),
        };
        // A completion belongs to the function of its invocation.
        let f = match process {
            Process::Client(number) => ["read", "write", "cas", "read"][number as usize],
            Process::Named(_) => *rng.pick(&["kill", "read"]),
        };
        let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
        let kind = kinds[rng.index(if f == "cas" { 1 } else { 4 })];
        Op {
            kind,
            ..Op::invoke(process, f, Value::Nil)
        }
    });
    History::from_unindexed(ops.collect())
}

#[test]
fn chunk_by_chunk_the_verdict_is_the_same() {
    for seed in 0..20 {
        let history = any_history(&mut Rng::from_seed(seed));
        for name in names() {
            let checker = by_name(name, None).unwrap();
            let whole = checker.check(&history);
            let checked = check_source(&*checker, &history, &Aims::default()).unwrap();
            let text = |verdict| serde_json::to_string(verdict).unwrap();
            assert_eq!(text(&checked.verdict), text(&whole), "{name}, seed {seed}");
        }
    }
}
