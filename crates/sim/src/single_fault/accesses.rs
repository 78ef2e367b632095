//! The accesses of a storage, and the fault that one of them meets.

use crate::storage::hold;
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What is done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Its bytes are read, or lent.
    Read,
    /// Bytes in it are written.
    Write,
    /// Its file is synced (block 0).
    Sync,
    /// Its file is cut or lengthened (block 0).
    SetLength,
    /// Its file is created, opened, locked, renamed or removed, or, of a folder, listed, made or synced (block 0).
    Name,
}

/// A block of a file and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file, by the name under which it was opened, or the folder.
    pub path: PathBuf,
    /// The block, counted from 0.
    pub block: u64,
    /// What is done.
    pub access: Access,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockFault {
    /// The call fails; of a write, what is before the block arrives.
    Error,
    /// The call fails for want of space; of a write, what is before the block arrives.
    NoSpace,
    /// The block's bytes are zeros, on their way out of the file or into it.
    Zeroed,
    /// One bit of the block is flipped on its way out of the file or into it.
    FlippedBit,
    /// Many bytes of the block are noise on their way out of the file or into it.
    Noise,
}

impl BlockFault {
    /// Those that an access can meet.
    pub const fn of(access: Access) -> &'static [BlockFault] {
        match access {
            Access::Read => &[
                BlockFault::Error,
                BlockFault::Zeroed,
                BlockFault::FlippedBit,
                BlockFault::Noise,
            ],
            Access::Write => &[
                BlockFault::Error,
                BlockFault::NoSpace,
                BlockFault::Zeroed,
                BlockFault::FlippedBit,
                BlockFault::Noise,
            ],
            Access::Sync => &[BlockFault::Error],
            Access::SetLength | Access::Name => &[BlockFault::Error, BlockFault::NoSpace],
        }
    }

    /// Does the call fail, so that the caller knows?
    pub const fn is_told(self) -> bool {
        matches!(self, BlockFault::Error | BlockFault::NoSpace)
    }

    pub(crate) fn error(self) -> io::Error {
        match self {
            BlockFault::NoSpace => {
                io::Error::new(ErrorKind::StorageFull, "no space left (planted fault)")
            }
            _ => io::Error::other("input/output error (planted fault)"),
        }
    }
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockFault::Error => "an error",
            BlockFault::NoSpace => "no space",
            BlockFault::Zeroed => "a zeroed block",
            BlockFault::FlippedBit => "a flipped bit",
            BlockFault::Noise => "noise",
        })
    }
}

/// The fault that is planted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) site: Site,
    /// At this access of the site, counted from 0.
    pub(crate) turn: u64,
    /// And at every later one.
    pub(crate) lasts: bool,
    pub(crate) fault: BlockFault,
    /// Which bit, what noise.
    pub(crate) seed: u64,
}

/// What happens at the accesses of a storage.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    block_length: u64,
    plan: Option<Plan>,
    /// How often each site was met.
    met: Mutex<BTreeMap<Site, u64>>,
    fired: Mutex<bool>,
}

impl Accesses {
    pub(crate) fn new(block_length: u64, plan: Option<Plan>) -> Accesses {
        Accesses {
            block_length: block_length.max(1),
            plan,
            ..Accesses::default()
        }
    }

    /// The fault that is planted.
    pub(crate) const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The bytes of a block.
    pub(crate) const fn block(&self, number: u64) -> Range<u64> {
        number * self.block_length..(number + 1) * self.block_length
    }

    /// How often each site was met.
    pub(crate) fn met(&self) -> BTreeMap<Site, u64> {
        hold(&self.met).clone()
    }

    /// Has the fault been met?
    pub(crate) fn has_fired(&self) -> bool {
        *hold(&self.fired)
    }

    /// Counts an access to a range of bytes, and answers the fault that it meets, with its block.
    pub(crate) fn meet(
        &self,
        path: &Path,
        access: Access,
        range: Range<u64>,
    ) -> Option<(&Plan, Range<u64>)> {
        let length = self.block_length;
        let mut met = hold(&self.met);
        let mut found = None;
        for block in range.start / length..range.end.div_ceil(length) {
            let site = Site {
                path: path.to_owned(),
                block,
                access,
            };
            let is_planned = self.plan.as_ref().filter(|plan| plan.site == site);
            let count = met.entry(site).or_default();
            let is_due = |plan: &&Plan| *count == plan.turn || (plan.lasts && *count > plan.turn);
            if let Some(plan) = is_planned.filter(is_due) {
                found = Some((plan, self.block(block)));
                *hold(&self.fired) = true;
            }
            *count += 1;
        }
        found
    }

    /// The same for a call that has no bytes: it works or it fails.
    pub(crate) fn call(&self, path: &Path, access: Access) -> io::Result<()> {
        match self.meet(path, access, 0..1) {
            Some((plan, _)) => Err(plan.fault.error()),
            None => Ok(()),
        }
    }
}

impl Plan {
    /// Spoils the part of `bytes`, which are at `offset`, that is in the block.
    pub(crate) fn spoil(&self, block: &Range<u64>, offset: u64, bytes: &mut [u8]) {
        let start = block.start.max(offset) - offset;
        let end = block
            .end
            .min(offset + bytes.len() as u64)
            .max(offset + start)
            - offset;
        let part = &mut bytes[start as usize..end as usize];
        let mut rng = Rng::from_seed(self.seed);
        match self.fault {
            BlockFault::Error | BlockFault::NoSpace => {}
            BlockFault::Zeroed => part.fill(0),
            BlockFault::Noise => part.fill_with(|| rng.word() as u8),
            BlockFault::FlippedBit if part.is_empty() => {}
            BlockFault::FlippedBit => {
                let place = rng.index(part.len());
                part[place] ^= 1 << rng.below(8);
            }
        }
    }
}
