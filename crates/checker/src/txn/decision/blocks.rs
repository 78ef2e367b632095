//! Versions that follow each other at once.

use super::facts::Facts;
use super::lists::{Lists, Relation};
use crate::txn::transactions::NONE;

/// The versions of each key in blocks: a version, the one by a transaction that read it and wrote the key, the one by a
/// transaction that read that one, and so on. Nothing comes between where a transaction may not overwrite what it has
/// not seen, so only the order of blocks is open; with nothing but read-modify-writes, none is.
pub(super) struct Blocks {
    /// By key: the first versions of its blocks but the one of its initial state.
    pub(super) heads: Lists,
    /// By version that is the first of a block: the last one.
    pub(super) tails: Vec<u32>,
    /// By version: the one that follows at once; [`NONE`] at the end of a block.
    pub(super) next: Vec<u32>,
    /// By version: who read it.
    pub(super) readers: Lists,
}

/// Two transactions that read a version and wrote the key, of which only one can be the next.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) version: u32,
    pub(super) one: u32,
    pub(super) other: u32,
}

/// By key: the first versions of blocks.
struct Heads<'a> {
    facts: &'a Facts,
    follows: &'a [bool],
}

impl Relation for Heads<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        for version in self.facts.keys..self.facts.versions() as u32 {
            let index = version as usize;
            if self.facts.writers[index] != NONE && !self.follows[index] {
                take(self.facts.version_keys[index], version);
            }
        }
    }
}

impl Blocks {
    /// The blocks of these facts; of one version each unless `chained`.
    pub(super) fn new(facts: &Facts, chained: bool) -> Result<Blocks, Fork> {
        let mut next = vec![NONE; facts.versions()];
        let mut follows = vec![false; facts.versions()];
        if chained {
            follow(facts, &mut next, &mut follows)?;
        }
        let heads = Heads {
            facts,
            follows: &follows,
        };
        let heads = Lists::forward(facts.keys as usize, &heads);
        drop(follows);
        let mut tails: Vec<u32> = (0..facts.versions() as u32).collect();
        if chained {
            let initial = 0..facts.keys;
            let others = (0..heads.rows()).flat_map(|key| heads.of(key).iter().copied());
            for head in initial.chain(others) {
                let mut tail = head;
                while next[tail as usize] != NONE {
                    tail = next[tail as usize];
                }
                tails[head as usize] = tail;
            }
        }
        Ok(Blocks {
            heads,
            tails,
            next,
            readers: facts.reads.inverted(facts.versions()),
        })
    }

    /// The last version of the block that begins with this one.
    pub(super) fn tail(&self, head: u32) -> u32 {
        self.tails[head as usize]
    }

    /// The versions of the block that begins with this one.
    pub(super) fn members(&self, head: u32) -> impl Iterator<Item = u32> {
        let following = |&version: &u32| {
            let next = self.next[version as usize];
            (next != NONE).then_some(next)
        };
        std::iter::successors(Some(head), following)
    }
}

/// Links what was read and overwritten by one transaction.
fn follow(facts: &Facts, next: &mut [u32], follows: &mut [bool]) -> Result<(), Fork> {
    // By key: the last transaction that was seen to read it, and what.
    let mut read = vec![(NONE, 0); facts.keys as usize];
    for number in 0..facts.len() {
        for &version in facts.reads.of(number) {
            read[facts.version_keys[version as usize] as usize] = (number, version);
        }
        for &written in facts.writes.of(number) {
            let (reader, version) = read[facts.version_keys[written as usize] as usize];
            if reader != number {
                continue;
            }
            let known = next[version as usize];
            if known != NONE {
                return Err(Fork {
                    version,
                    one: facts.writers[known as usize],
                    other: number,
                });
            }
            next[version as usize] = written;
            follows[written as usize] = true;
        }
    }
    Ok(())
}
