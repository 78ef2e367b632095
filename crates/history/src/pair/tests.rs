use super::*;
use crate::Value;
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// Clients with low and high numbers are paired alike: with the last invocation of the same number.
#[test]
fn clients_of_any_number_are_paired() {
    let mut rng = Rng::from_seed(6);
    let (mut open, mut twin) = (OpenInvocations::default(), BTreeMap::new());
    let mut pairs = 0;
    for position in 0..5_000 {
        let number = [0, 1, LOW_CLIENTS - 1, LOW_CLIENTS, 1 << 40, u64::MAX][rng.index(6)];
        let mut op = Op::invoke(Process::Client(number), "read", Value::Nil);
        assert_eq!(open.running(&op), twin.get(&number).copied(), "{position}");
        if rng.chance(0.5) {
            twin.insert(number, position);
            assert_eq!(open.follow(position, &op), None);
        } else {
            op.kind = OpType::Info;
            let expected = twin.remove(&number);
            pairs += u64::from(expected.is_some());
            assert_eq!(open.follow(position, &op), expected, "{position}");
        }
    }
    assert!(pairs > 500, "{pairs}");
}
