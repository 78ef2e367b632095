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
mod tests;
