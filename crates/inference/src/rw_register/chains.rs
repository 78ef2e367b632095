//! Chains of updates: versions that were each written on top of the previous one.

use super::key_accesses::KeyAccesses;
use seatrial_isolation::registers::NONE;

/// Versions of which each was written by a transaction that read the previous one. If updates are atomic, no version comes
/// between them. A version that two transactions updated (a lost update) ends its chain, since it is unknown which came next.
#[derive(Default)]
pub(super) struct Chains {
    /// By version: the first and the last of its chain, and its successor. All empty: each version is a chain of its own.
    heads: Vec<u32>,
    tails: Vec<u32>,
    next: Vec<u32>,
}

impl Chains {
    /// The chains of all keys.
    pub(super) fn new(accesses: &KeyAccesses<'_>) -> Chains {
        let count = accesses.columns.version_count();
        let several = count as u32;
        let mut next = vec![NONE; count];
        let mut before = vec![NONE; count];
        let set = |place: &mut u32, version| {
            *place = if *place == NONE || *place == version {
                version
            } else {
                several
            };
        };
        for key in 0..accesses.columns.key_count() as u32 {
            for access in accesses.of_key(key) {
                let is_update = access.read != NONE && access.write != NONE;
                if is_update && access.read != access.write {
                    set(&mut next[access.read as usize], access.write);
                    set(&mut before[access.write as usize], access.read);
                }
            }
        }
        for version in 0..several {
            let behind = next[version as usize];
            let is_link = behind < several && before[behind as usize] == version;
            if !is_link {
                next[version as usize] = NONE;
            }
        }
        for version in 0..several {
            let earlier = before[version as usize];
            if earlier >= several || next[earlier as usize] != version {
                before[version as usize] = NONE;
            }
        }
        let mut chains = Chains {
            heads: (0..several).collect(),
            tails: (0..several).collect(),
            next,
        };
        let heads = (0..several).filter(|&version| before[version as usize] == NONE);
        for head in heads {
            let tail = chains.members(head).last().unwrap_or(head);
            let mut version = head;
            while version != NONE {
                chains.heads[version as usize] = head;
                chains.tails[version as usize] = tail;
                version = chains.next[version as usize];
            }
        }
        // A cycle has no head and is not a chain: its versions stay single.
        for version in 0..several {
            let is_head = chains.heads[version as usize] == version;
            if is_head && before[version as usize] != NONE {
                chains.next[version as usize] = NONE;
            }
        }
        assert!(
            [chains.heads.len(), chains.tails.len(), chains.next.len()] == [count; 3],
            "each version is in one chain"
        );
        chains
    }

    /// The first version of a version's chain.
    pub(super) fn head(&self, version: u32) -> u32 {
        let head = self.heads.get(version as usize);
        head.copied().unwrap_or(version)
    }

    /// The last version of a version's chain.
    pub(super) fn tail(&self, version: u32) -> u32 {
        let tail = self.tails.get(version as usize);
        tail.copied().unwrap_or(version)
    }

    /// A version and its successors in its chain.
    pub(super) fn members(&self, version: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(version), |&version| {
            let next = self.next.get(version as usize);
            next.copied().filter(|&next| next != NONE)
        })
    }
}
