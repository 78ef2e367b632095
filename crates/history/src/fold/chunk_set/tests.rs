use super::*;
use seatrial_machine::Rng;
use std::collections::BTreeSet;

#[test]
fn it_equals_a_set_of_numbers() {
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let (mut taken, mut twin) = (ChunkSet::default(), BTreeSet::new());
        let bound = [70, 5_000, 20_000][rng.index(3)];
        for round in 0..200 {
            let start = rng.below(bound);
            for chunk in start..start + rng.below(300) {
                taken.insert(chunk);
                twin.insert(chunk);
            }
            let asked = rng.below(bound + 400);
            let expected = (asked..30_000).find(|chunk| !twin.contains(chunk)).unwrap();
            let found = taken.first_missing(asked);
            assert_eq!(found, expected, "seed {seed}, round {round}");
            let expected = (0..asked).rev().find(|chunk| !twin.contains(chunk));
            let found = taken.last_missing(asked);
            assert_eq!(found, expected, "seed {seed}, round {round}");
            assert_eq!(taken.contains(asked), twin.contains(&asked), "seed {seed}");
        }
    }
}

#[test]
fn full_groups_are_stepped_over() {
    let mut taken = ChunkSet::default();
    (0..9_000).for_each(|chunk| taken.insert(chunk));
    for from in [0, 1, 63, 64, 4_095, 4_096, 8_191, 8_192, 8_999] {
        assert_eq!(taken.first_missing(from), 9_000);
    }
    assert_eq!(taken.first_missing(1 << 40), 1 << 40);
}
