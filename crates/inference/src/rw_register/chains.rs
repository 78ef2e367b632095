//! Chains of updates: versions that were each written on top of the previous one.

use super::key_accesses::KeyAccesses;
use seatrial_cycles::Version;

/// Versions of which each was written by a transaction that read the previous one. If updates are atomic, no version comes
/// between them. A version that two transactions updated (a lost update) ends its chain, since it is unknown which came next.
#[derive(Default)]
pub(super) struct Chains {
    /// By version: the first and the last of its chain, and its successor. All empty: each version is a chain of its own.
    heads: Vec<Version>,
    tails: Vec<Version>,
    next: Vec<Option<Version>>,
}

/// The versions that updates place directly before (or after) a version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    Nothing,
    One(Version),
    Several,
}

impl Neighbour {
    fn add(&mut self, version: Version) {
        *self = match *self {
            Neighbour::Nothing => Neighbour::One(version),
            // Two transactions may make the same update if values are not unique in the file.
            Neighbour::One(other) if other == version => Neighbour::One(version),
            Neighbour::One(_) | Neighbour::Several => Neighbour::Several,
        };
    }
}

impl Chains {
    /// The chains of all keys.
    pub(super) fn new(accesses: &KeyAccesses<'_>) -> Chains {
        let count = accesses.columns.version_count();
        let (before, next) = links(accesses);
        let mut chains = Chains {
            heads: Version::all(count).collect(),
            tails: Version::all(count).collect(),
            next,
        };
        for head in Version::all(count).filter(|head| before[head.index()].is_none()) {
            let tail = chains.members(head).last().unwrap_or(head);
            let mut member = Some(head);
            while let Some(version) = member {
                chains.heads[version.index()] = head;
                chains.tails[version.index()] = tail;
                member = chains.next[version.index()];
            }
        }
        // A cycle has no head and is not a chain: its versions stay single.
        for version in Version::all(count) {
            let is_head = chains.heads[version.index()] == version;
            if is_head && before[version.index()].is_some() {
                chains.next[version.index()] = None;
            }
        }
        assert!(
            [chains.heads.len(), chains.tails.len(), chains.next.len()] == [count; 3],
            "each version is in one chain"
        );
        debug_assert!(
            Version::all(count).all(|version| {
                let next = chains.next[version.index()];
                next.is_none_or(|next| chains.head(next) == chains.head(version))
            }),
            "a version and its successor are in one chain"
        );
        chains
    }

    /// The first version of a version's chain.
    pub(super) fn head(&self, version: Version) -> Version {
        let head = self.heads.get(version.index());
        head.copied().unwrap_or(version)
    }

    /// The last version of a version's chain.
    pub(super) fn tail(&self, version: Version) -> Version {
        let tail = self.tails.get(version.index());
        tail.copied().unwrap_or(version)
    }

    /// A version and its successors in its chain.
    pub(super) fn members(&self, version: Version) -> impl Iterator<Item = Version> {
        std::iter::successors(Some(version), |&version| {
            self.next.get(version.index()).copied().flatten()
        })
    }
}

/// By version: its predecessor and its successor, where each is the only one of the other.
fn links(accesses: &KeyAccesses<'_>) -> (Vec<Option<Version>>, Vec<Option<Version>>) {
    let count = accesses.columns.version_count();
    let mut after = vec![Neighbour::Nothing; count];
    let mut before = vec![Neighbour::Nothing; count];
    for key in 0..accesses.columns.key_count() as u32 {
        for access in accesses.of_key(key) {
            if let (Some(read), Some(write)) = (access.read, access.write)
                && read != write
            {
                after[read.index()].add(write);
                before[write.index()].add(read);
            }
        }
    }
    let mut links = (vec![None; count], vec![None; count]);
    for version in Version::all(count) {
        // Both sides must agree: a version that was read by two updates, or written by two, ends the chain on this side.
        if let Neighbour::One(next) = after[version.index()]
            && before[next.index()] == Neighbour::One(version)
        {
            links.1[version.index()] = Some(next);
            links.0[next.index()] = Some(version);
        }
    }
    links
}
