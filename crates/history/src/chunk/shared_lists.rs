//! Lists that share the elements of a common prefix.

use std::cell::Cell;

/// Encoding of a list by reference to shared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedList {
    /// This many first elements of the key's list.
    Prefix(u32),
    /// This reference to a branch.
    Branch(u32),
}

/// Marks a key without a branch.
const NO_BRANCH: u32 = u32::MAX;

/// The shared lists of a chunk that is being written: the longest list of each key, and branches for lists that are no prefix
/// of it.
///
/// ```text
///   read [1 2 3]     key's list 1 2 3        Prefix(3)
///   read [1 2]                               Prefix(2)
///   read [1 3]       branch 0:  1 3          Branch(reference 0: branch 0, 2 elements)
///   read [1 2 3 4]   key's list 1 2 3 4      Prefix(4)
/// ```
///
/// Memory is reused from chunk to chunk. A key remembers only its last branch, so two alternating versions of a list (a
/// split brain) are stored again at each change.
#[derive(Default)]
pub(crate) struct SharedLists {
    keys: Vec<Vec<i64>>,
    key_count: usize,
    /// Per key its last branch.
    last_branch: Vec<u32>,
    branches: Vec<Vec<i64>>,
    branch_count: usize,
    /// Per reference its branch.
    pub(crate) branches_of_references: Vec<u32>,
    /// Per reference how many elements of it.
    pub(crate) lengths_of_references: Vec<u32>,
    /// Elements of all lists together.
    elements: usize,
    /// Counts the changes that invalidate bonds.
    generation: u64,
}

impl SharedLists {
    pub(crate) fn clear(&mut self) {
        for list in &mut self.keys[..self.key_count] {
            list.clear();
        }
        for list in &mut self.branches[..self.branch_count] {
            list.clear();
        }
        self.key_count = 0;
        self.branch_count = 0;
        self.last_branch.clear();
        self.branches_of_references.clear();
        self.lengths_of_references.clear();
        self.elements = 0;
        self.generation += 1;
        debug_assert!(
            self.keys.iter().chain(&self.branches).all(Vec::is_empty),
            "a list of an earlier chunk"
        );
    }

    /// Adds a key; keys are numbered in this order.
    pub(crate) fn add_key(&mut self) {
        if self.key_count == self.keys.len() {
            self.keys.push(Vec::new());
        }
        self.key_count += 1;
        self.last_branch.push(NO_BRANCH);
    }

    /// Elements of all lists together.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// Are these elements a prefix of the key's list, as it is now?
    pub(crate) fn is_prefix(&self, key: u32, elements: &[i64]) -> bool {
        self.keys[key as usize].starts_with(elements)
    }

    /// Encodes a list that was read at `key`.
    pub(crate) fn see(&mut self, key: u32, elements: &[i64]) -> SharedList {
        let before = self.elements;
        let seen = self.compare(key, elements);
        if self.elements > before {
            self.generation += 1;
        }
        seen
    }

    /// The same for a prefix of a list that the caller keeps, and that only grows. `bond` is 0 at first; while it is valid, the
    /// key's list and the caller's are known to be prefixes of one another, and no element is compared.
    #[inline]
    pub(crate) fn see_bound(&mut self, key: u32, elements: &[i64], bond: &Cell<u64>) -> SharedList {
        // At least 1: 0 is no bond.
        let generation = self.generation + 1;
        if bond.get() != generation {
            let seen = self.compare(key, elements);
            if seen == SharedList::Prefix(self.keys[key as usize].len() as u32) {
                bond.set(generation);
            }
            return seen;
        }
        let list = &mut self.keys[key as usize];
        if let Some(more @ [_, ..]) = elements.get(list.len()..) {
            self.elements += more.len();
            list.extend_from_slice(more);
        }
        // The rest of the prefix is what the bond stands for; a comparison would cost what it saves.
        debug_assert_eq!(
            elements.last(),
            list[..elements.len()].last(),
            "a bond with another list"
        );
        SharedList::Prefix(elements.len() as u32)
    }

    fn compare(&mut self, key: u32, elements: &[i64]) -> SharedList {
        if let Some(added) = fit(&mut self.keys[key as usize], elements) {
            self.elements += added;
            return SharedList::Prefix(elements.len() as u32);
        }
        let last = self.last_branch[key as usize];
        let branch = if last == NO_BRANCH {
            None
        } else {
            fit(&mut self.branches[last as usize], elements)
        };
        let branch = if let Some(added) = branch {
            self.elements += added;
            last
        } else {
            self.add_branch(key, elements)
        };
        self.branches_of_references.push(branch);
        self.lengths_of_references.push(elements.len() as u32);
        SharedList::Branch(self.branches_of_references.len() as u32 - 1)
    }

    fn add_branch(&mut self, key: u32, elements: &[i64]) -> u32 {
        if self.branch_count == self.branches.len() {
            self.branches.push(Vec::new());
        }
        self.branches[self.branch_count].extend_from_slice(elements);
        self.elements += elements.len();
        self.last_branch[key as usize] = self.branch_count as u32;
        self.branch_count += 1;
        debug_assert_eq!(self.last_branch.len(), self.key_count);
        self.branch_count as u32 - 1
    }

    /// All lists: one per key, then the branches.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[i64]> {
        let keys = self.keys[..self.key_count].iter();
        let branches = self.branches[..self.branch_count].iter();
        keys.chain(branches).map(Vec::as_slice)
    }
}

/// Extends `list` so that `elements` is a prefix of it, if their common length agrees; returns the number of added elements.
fn fit(list: &mut Vec<i64>, elements: &[i64]) -> Option<usize> {
    let shared = list.len().min(elements.len());
    if shared > 0 && list[..shared] != elements[..shared] {
        return None;
    }
    // Most lists add no element.
    if elements.len() > shared {
        list.extend_from_slice(&elements[shared..]);
    }
    Some(elements.len() - shared)
}

#[cfg(test)]
mod tests {
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
}
