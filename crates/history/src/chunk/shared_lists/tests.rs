use super::*;
use seatrial_machine::Rng;

#[test]
fn prefixes_share_and_other_lists_branch() {
    let mut lists = SharedLists::default();
    for round in 0..2 {
        lists.add_key();
        lists.add_key();
        assert_eq!(
            lists.see(1, &[1, 2]),
            SharedList::Prefix(2),
            "round {round}"
        );
        assert_eq!(lists.see(1, &[1, 2, 3]), SharedList::Prefix(3));
        assert_eq!(lists.see(1, &[]), SharedList::Prefix(0));
        assert_eq!(lists.see(0, &[1, 9]), SharedList::Prefix(2));
        // An element was lost: this and what follows it live in a branch.
        assert_eq!(lists.see(1, &[1, 3]), SharedList::Branch(0));
        assert_eq!(lists.see(1, &[1, 3, 4]), SharedList::Branch(1));
        assert_eq!(lists.see(1, &[1, 2, 3, 5]), SharedList::Prefix(4));
        assert_eq!(lists.see(1, &[7]), SharedList::Branch(2));
        let all: Vec<&[i64]> = lists.all().collect();
        assert_eq!(all, [&[1, 9][..], &[1, 2, 3, 5], &[1, 3, 4], &[7]]);
        assert_eq!(lists.branches_of_references, [0, 0, 1]);
        assert_eq!(lists.lengths_of_references, [2, 3, 1]);
        assert_eq!(lists.elements(), 10);
        assert!(lists.is_prefix(0, &[1]) && !lists.is_prefix(0, &[1, 9, 1]));
        lists.clear();
    }
}

#[test]
fn a_bond_changes_nothing() {
    let (mut compared, mut all) = (0, 0);
    for seed in 0..500 {
        let mut rng = Rng::from_seed(seed);
        let (mut lists, mut twin) = (SharedLists::default(), SharedLists::default());
        let mut known = [const { Vec::new() }; 3];
        let bonds = [const { Cell::new(0) }; 3];
        for _ in 0..80 {
            if lists.key_count == 0 || rng.chance(0.05) {
                for lists in [&mut lists, &mut twin] {
                    lists.clear();
                    (0..3).for_each(|_| lists.add_key());
                }
            }
            let key = rng.index(3);
            let list = &mut known[key];
            if rng.chance(0.03) {
                // Another one is known from here on.
                list.clear();
                bonds[key].set(0);
            }
            list.extend((0..rng.below(3)).map(|_| rng.below(4).cast_signed()));
            let mut elements = list[..rng.index(list.len() + 1)].to_vec();
            let is_other = rng.chance(0.03);
            if is_other {
                elements.extend((0..rng.below(3)).map(|_| rng.below(4).cast_signed()));
            }
            let number = key as u32;
            all += 1;
            compared += u32::from(bonds[key].get() != lists.generation + 1);
            let seen = if is_other {
                lists.see(number, &elements)
            } else {
                lists.see_bound(number, &elements, &bonds[key])
            };
            assert_eq!(seen, twin.see(number, &elements), "seed {seed}");
            assert!(lists.all().eq(twin.all()), "seed {seed}");
            assert_eq!(lists.elements, twin.elements, "seed {seed}");
        }
    }
    assert!(
        compared > all / 10 && compared < 2 * all / 3,
        "{compared} of {all}"
    );
}
