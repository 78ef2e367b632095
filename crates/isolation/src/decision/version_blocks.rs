//! Versions that directly follow one another.

use super::constraints::Constraints;
use super::relation::{Relation, predecessors, successors};
use seatrial_cycles::{Csr, Txn, Version};

/// The versions of each key in blocks: a version, the one of a transaction that read it and wrote the key, the one of a
/// transaction that read that one, and so on. Where a transaction may overwrite only what it has seen, nothing comes between
/// them, so only the order of blocks is open; if all writes are read-modify-writes, nothing is.
pub(super) struct VersionBlocks {
    /// By key: the first versions (heads) of its blocks, without that of its initial state.
    pub(super) heads: Csr<u32>,
    /// By head of a block: its last version (tail).
    pub(super) tails: Vec<u32>,
    /// By version: the next one in its block.
    pub(super) next: Vec<Option<Version>>,
    /// By version: the transactions that read it.
    pub(super) readers: Csr<u32>,
}

/// Two transactions that read a version and wrote the key: only one of them can be next.
#[derive(Debug)]
pub(super) struct UpdateFork {
    pub(super) version: u32,
    pub(super) one: Txn,
    pub(super) other: Txn,
}

/// The relation between keys and the heads of their blocks.
struct BlockHeads<'a> {
    constraints: &'a Constraints,
    follows: &'a [bool],
}

impl Relation for BlockHeads<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for version in self.constraints.keys..self.constraints.versions() as u32 {
            let index = version as usize;
            if !self.follows[index] {
                take(self.constraints.version_keys[index], version);
            }
        }
    }
}

impl VersionBlocks {
    /// The blocks of these constraints; each has one version unless `chained`.
    pub(super) fn new(
        constraints: &Constraints,
        chained: bool,
    ) -> Result<VersionBlocks, UpdateFork> {
        let mut next = vec![None; constraints.versions()];
        let mut follows = vec![false; constraints.versions()];
        if chained {
            follow(constraints, &mut next, &mut follows)?;
        }
        let heads = BlockHeads {
            constraints,
            follows: &follows,
        };
        let heads = successors(constraints.keys as usize, &heads);
        let followers = follows.iter().filter(|&&follows| follows).count();
        assert_eq!(
            heads.item_count() + followers,
            constraints.versions() - constraints.keys as usize,
            "a written version is either a head or follows another one"
        );
        drop(follows);
        let mut tails: Vec<u32> = (0..constraints.versions() as u32).collect();
        if chained {
            let initial = 0..constraints.keys;
            let others = heads
                .row_numbers()
                .flat_map(|key| heads.row(key).iter().copied());
            for head in initial.chain(others) {
                let mut tail = head;
                while let Some(version) = next[tail as usize] {
                    tail = version.get();
                }
                tails[head as usize] = tail;
            }
        }
        Ok(VersionBlocks {
            heads,
            tails,
            next,
            readers: predecessors(constraints.versions(), &constraints.reads),
        })
    }

    /// The tail of the block with this head.
    pub(super) fn tail(&self, head: u32) -> u32 {
        self.tails[head as usize]
    }

    /// The versions of the block with this head, in order.
    pub(super) fn members(&self, head: u32) -> impl Iterator<Item = u32> {
        let following = |&version: &u32| self.next[version as usize].map(Version::get);
        std::iter::successors(Some(head), following)
    }
}

/// Links each version to the next one in its block.
fn follow(
    constraints: &Constraints,
    next: &mut [Option<Version>],
    follows: &mut [bool],
) -> Result<(), UpdateFork> {
    // By key: the last transaction that read it so far, and the version. Not cleared: the transaction says whose read it is.
    let mut read = vec![(None, 0); constraints.keys as usize];
    for number in Txn::all(constraints.len() as usize) {
        for &version in constraints.reads.row(number.get()) {
            read[constraints.version_keys[version as usize] as usize] = (Some(number), version);
        }
        for &written in constraints.writes.row(number.get()) {
            let (reader, version) = read[constraints.version_keys[written as usize] as usize];
            if reader != Some(number) {
                continue;
            }
            if let Some(known) = next[version as usize] {
                return Err(UpdateFork {
                    version,
                    one: constraints.writer_of_written(known.get()),
                    other: number,
                });
            }
            next[version as usize] = Some(Version::new(written));
            follows[written as usize] = true;
        }
    }
    Ok(())
}
