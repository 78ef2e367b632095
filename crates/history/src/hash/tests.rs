use super::*;

#[test]
fn two_maps_with_the_same_keys_have_the_same_order() {
    let keys = || (0..1_000_u64).map(|key| (key.wrapping_mul(key), key));
    let (first, second): (FixedMap<_, _>, FixedMap<_, _>) = (keys().collect(), keys().collect());
    assert!(first.iter().eq(&second), "the hash has a random key");
    assert!(!first.iter().is_sorted(), "an order of hashes");
}

#[test]
fn the_lowest_bits_of_a_hash_are_spread() {
    let mut counts = [0; 64];
    for number in 0..64_000_u32 {
        counts[fixed_hash((number, false)) as usize % 64] += 1;
    }
    assert!(
        counts.iter().all(|count| (800..1_200).contains(count)),
        "{counts:?}"
    );
    assert_eq!(fixed_hash(7_u64), fixed_hash(7_u64));
    assert_ne!(fixed_hash((1, 2)), fixed_hash((2, 1)));
}
