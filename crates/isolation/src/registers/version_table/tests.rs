use super::*;
use seatrial_machine::Rng;
use std::collections::BTreeMap;

#[test]
fn pairs_have_the_numbers_of_a_map() {
    let mut late = 0;
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let keys = 1 + rng.below(40);
        let mut table = VersionTable::default();
        let mut known: BTreeMap<(KeyId, i64), WrittenId> = BTreeMap::new();
        let mut last = vec![0_i64; keys as usize];
        let mut pending = Vec::new();
        for _ in 0..rng.below(1_500) {
            let key = rng.below(keys) as u32;
            let value = match rng.below(20) {
                0 => rng.below(2_000).cast_signed(),
                1 => -rng.below(9).cast_signed(),
                2 => i64::MAX - rng.below(9).cast_signed(),
                3..9 => {
                    1 + rng
                        .below(last[key as usize].cast_unsigned() + 2)
                        .cast_signed()
                }
                _ => {
                    last[key as usize] += 1;
                    last[key as usize]
                }
            };
            pending.push((KeyId::new(key), value));
            if rng.chance(0.9) {
                continue;
            }
            table.glance(pending.iter().copied(), &mut GlanceBuffers::default());
            for (key, value) in pending.drain(..) {
                let next = WrittenId::new(known.len() as u32);
                let expected = *known.entry((key, value)).or_insert(next);
                assert_eq!(table.id(key, value), expected, "seed {seed}");
            }
        }
        assert_eq!(table.versions.len(), known.len());
        for (&(key, value), &id) in &known {
            let version = table.versions[id.index()];
            assert_eq!((version.key, version.value), (key, value));
            let place = table.runs.place(key, value, known.len());
            late += u32::from(place.is_some_and(|it| table.runs.version(it) != Some(id)));
        }
    }
    assert!(late > 100, "{late} pairs got a place too late");
}
