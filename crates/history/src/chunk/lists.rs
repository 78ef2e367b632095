//! Lists that share their elements.

/// How a list is told in terms of the shared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// So many elements of the key's list.
    Prefix(u32),
    /// This reference to a branch.
    Branch(u32),
}

/// Marks a key without a branch.
const NO_BRANCH: u32 = u32::MAX;

/// While a chunk is written: per key the longest list seen, and branches for lists that are no prefix of it. Lists are
/// kept when the chunk is cleared, so that in the long run nothing is allocated.
///
/// Its downside: a key remembers only its last branch, so two histories of a key that alternate (a split brain) are
/// stored again and again.
#[derive(Default)]
pub(crate) struct Lists {
    keys: Vec<Vec<i64>>,
    key_count: usize,
    /// Per key the branch that it went to last.
    last_branch: Vec<u32>,
    branches: Vec<Vec<i64>>,
    branch_count: usize,
    /// Per reference its branch.
    pub(crate) branches_of_references: Vec<u32>,
    /// Per reference how many elements of it.
    pub(crate) lengths_of_references: Vec<u32>,
    /// Elements of all lists together.
    elements: usize,
}

impl Lists {
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
    }

    /// Makes room for one more key; keys are numbered in this order.
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

    /// Remembers that these elements were seen at `key`.
    pub(crate) fn see(&mut self, key: u32, elements: &[i64]) -> Seen {
        if let Some(added) = fit(&mut self.keys[key as usize], elements) {
            self.elements += added;
            return Seen::Prefix(elements.len() as u32);
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
        Seen::Branch(self.branches_of_references.len() as u32 - 1)
    }

    fn add_branch(&mut self, key: u32, elements: &[i64]) -> u32 {
        if self.branch_count == self.branches.len() {
            self.branches.push(Vec::new());
        }
        self.branches[self.branch_count].extend_from_slice(elements);
        self.elements += elements.len();
        self.last_branch[key as usize] = self.branch_count as u32;
        self.branch_count += 1;
        self.branch_count as u32 - 1
    }

    /// All lists: one per key, then the branches.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[i64]> {
        let keys = self.keys[..self.key_count].iter();
        let branches = self.branches[..self.branch_count].iter();
        keys.chain(branches).map(Vec::as_slice)
    }
}

/// Makes `elements` a prefix of `list` by lengthening it, if they agree as far as both go; by how many elements.
fn fit(list: &mut Vec<i64>, elements: &[i64]) -> Option<usize> {
    let shared = list.len().min(elements.len());
    if shared > 0 && list[..shared] != elements[..shared] {
        return None;
    }
    // Most lists bring nothing new.
    if elements.len() > shared {
        list.extend_from_slice(&elements[shared..]);
    }
    Some(elements.len() - shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_share_and_other_lists_branch() {
        let mut lists = Lists::default();
        for round in 0..2 {
            lists.add_key();
            lists.add_key();
            assert_eq!(lists.see(1, &[1, 2]), Seen::Prefix(2), "round {round}");
            assert_eq!(lists.see(1, &[1, 2, 3]), Seen::Prefix(3));
            assert_eq!(lists.see(1, &[]), Seen::Prefix(0));
            assert_eq!(lists.see(0, &[1, 9]), Seen::Prefix(2));
            // An element was lost: this and what follows it live in a branch.
            assert_eq!(lists.see(1, &[1, 3]), Seen::Branch(0));
            assert_eq!(lists.see(1, &[1, 3, 4]), Seen::Branch(1));
            assert_eq!(lists.see(1, &[1, 2, 3, 5]), Seen::Prefix(4));
            assert_eq!(lists.see(1, &[7]), Seen::Branch(2));
            let all: Vec<&[i64]> = lists.all().collect();
            assert_eq!(all, [&[1, 9][..], &[1, 2, 3, 5], &[1, 3, 4], &[7]]);
            assert_eq!(lists.branches_of_references, [0, 0, 1]);
            assert_eq!(lists.lengths_of_references, [2, 3, 1]);
            assert_eq!(lists.elements(), 10);
            assert!(lists.is_prefix(0, &[1]) && !lists.is_prefix(0, &[1, 9, 1]));
            lists.clear();
        }
    }
}
