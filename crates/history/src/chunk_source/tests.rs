use super::*;
use crate::{Process, Value};
use seatrial_machine::Rng;

fn history(length: u64) -> History {
    let ops = (0..length).map(|number| {
        Op::invoke(
            Process::Client(number % 7),
            "read",
            Value::Int(number as i64),
        )
    });
    History::from_unindexed(ops.collect())
}

/// A source without an index.
struct Plain(History);

impl ChunkSource for Plain {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        self.0.round(take)
    }
}

#[test]
fn positions_are_recalled_by_a_round_too() {
    let mut rng = Rng::from_seed(3);
    let history = history(50_000);
    let plain = Plain(history);
    for _ in 0..20 {
        let positions: BTreeSet<u64> = (0..rng.below(30)).map(|_| rng.below(60_000)).collect();
        let by_round = plain.recall(&positions).unwrap();
        assert_eq!(by_round, plain.0.recall(&positions).unwrap());
    }
}
