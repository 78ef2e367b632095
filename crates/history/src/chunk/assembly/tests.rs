use super::*;
use crate::{History, OpType, Process, Value};
use seatrial_machine::Rng;

#[test]
fn chunks_hold_the_pushed_operations() {
    for seed in 0..50 {
        let mut rng = Rng::from_seed(seed);
        let ops = (0..rng.below(200)).map(|number| Op {
            kind: *rng.pick(&[OpType::Invoke, OpType::Ok, OpType::Info]),
            index: number,
            ..Op::invoke(Process::Client(rng.below(4)), "f", Value::Int(7))
        });
        let history = History::from_ops(ops.collect());
        let mut assembly = Assembly::new(1 + rng.index(40));
        let mut seen = 0;
        let mut take = |chunk: &Chunk| {
            assert_eq!(chunk.first_position(), seen as u64, "seed {seed}");
            for place in 0..chunk.len() {
                assert_eq!(chunk.op(place), history.ops()[seen], "seed {seed}");
                let before = history.pair(seen).filter(|&pair| pair < seen);
                assert_eq!(chunk.invocation(place), before.map(|pair| pair as u64));
                seen += 1;
            }
        };
        for op in &history {
            if let Some(chunk) = assembly.push(op).unwrap() {
                take(chunk);
            }
        }
        if let Some(chunk) = assembly.rest() {
            take(chunk);
        }
        assert!(assembly.rest().is_none());
        assert_eq!(seen, history.len(), "seed {seed}");
    }
}
