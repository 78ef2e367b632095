//! Chains of updates.

use super::touches::Touches;
use crate::txn::registers::NONE;

/// Versions of which each was written by a transaction that read the one before, if updates are atomic: nothing comes between
/// them. What two transactions updated (a lost update) ends its chain, for nobody knows who came next.
#[derive(Default)]
pub(super) struct Chains {
    /// By version: the first and the last of its chain, and the one behind it. All empty: each version by itself.
    heads: Vec<u32>,
    tails: Vec<u32>,
    next: Vec<u32>,
}

impl Chains {
    /// The chains of all keys.
    pub(super) fn new(touches: &Touches<'_>) -> Chains {
        let count = touches.columns.version_count();
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
        for key in 0..touches.columns.key_count() as u32 {
            for touch in touches.of_key(key) {
                let is_update = touch.read != NONE && touch.write != NONE;
                if is_update && touch.read != touch.write {
                    set(&mut next[touch.read as usize], touch.write);
                    set(&mut before[touch.write as usize], touch.read);
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
        // What goes round in a circle has no head, and is no chain.
        for version in 0..several {
            let is_head = chains.heads[version as usize] == version;
            if is_head && before[version as usize] != NONE {
                chains.next[version as usize] = NONE;
            }
        }
        chains
    }

    /// The first version of this one's chain.
    pub(super) fn head(&self, version: u32) -> u32 {
        let head = self.heads.get(version as usize);
        head.copied().unwrap_or(version)
    }

    /// The last version of this one's chain.
    pub(super) fn tail(&self, version: u32) -> u32 {
        let tail = self.tails.get(version as usize);
        tail.copied().unwrap_or(version)
    }

    /// A version and those behind it in its chain.
    pub(super) fn members(&self, version: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(version), |&version| {
            let next = self.next.get(version as usize);
            next.copied().filter(|&next| next != NONE)
        })
    }
}
