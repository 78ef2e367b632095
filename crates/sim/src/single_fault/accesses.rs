//! Accesses of a storage by block, and the planted fault that one of them meets.

use crate::simulated_storage::hold;
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A kind of access to a block.
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

/// A block of a file and a kind of access to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file, by the name under which it was opened, or the folder.
    pub path: PathBuf,
    /// The block, counted from 0.
    pub block: u64,
    /// The kind of access.
    pub access: Access,
}

/// A fault of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockFault {
    /// The call fails; of a write, the bytes before the block arrive.
    Error,
    /// The call fails because the disk is full; of a write, the bytes before the block arrive.
    NoSpace,
    /// The block's bytes are zeros, on their way out of the file or into it.
    Zeroed,
    /// One bit of the block is flipped on its way out of the file or into it.
    FlippedBit,
    /// Many bytes of the block are noise on their way out of the file or into it.
    Noise,
}

impl BlockFault {
    /// The faults that a kind of access can meet.
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

    /// Does the call return an error? Otherwise the corruption is silent.
    pub const fn is_error(self) -> bool {
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

/// The planted fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlantedFault {
    pub(crate) site: Site,
    /// The access of the site that meets it, counted from 0.
    pub(crate) turn: u64,
    /// Do later accesses meet it too?
    pub(crate) lasts: bool,
    pub(crate) fault: BlockFault,
    /// Seed of the flipped bit or the noise.
    pub(crate) seed: u64,
}

/// Counts the accesses of a storage and finds the one that meets the planted fault.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    block_length: u64,
    plan: Option<PlantedFault>,
    /// Number of accesses of each site.
    met: Mutex<BTreeMap<Site, u64>>,
    fired: Mutex<bool>,
}

impl Accesses {
    pub(crate) fn new(block_length: u64, plan: Option<PlantedFault>) -> Accesses {
        Accesses {
            block_length: block_length.max(1),
            plan,
            ..Accesses::default()
        }
    }

    /// The planted fault.
    pub(crate) const fn plan(&self) -> Option<&PlantedFault> {
        self.plan.as_ref()
    }

    /// The bytes of a block.
    pub(crate) const fn block(&self, number: u64) -> Range<u64> {
        number * self.block_length..(number + 1) * self.block_length
    }

    /// Number of accesses of each site.
    pub(crate) fn met(&self) -> BTreeMap<Site, u64> {
        hold(&self.met).clone()
    }

    /// Has the fault been met?
    pub(crate) fn has_fired(&self) -> bool {
        *hold(&self.fired)
    }

    /// Counts an access to a range of bytes. Returns the fault that it meets, and the range of its block.
    pub(crate) fn meet(
        &self,
        path: &Path,
        access: Access,
        range: Range<u64>,
    ) -> Option<(&PlantedFault, Range<u64>)> {
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
            let is_due =
                |plan: &&PlantedFault| *count == plan.turn || (plan.lasts && *count > plan.turn);
            if let Some(plan) = is_planned.filter(is_due) {
                found = Some((plan, self.block(block)));
                *hold(&self.fired) = true;
            }
            *count += 1;
        }
        found
    }

    /// Counts a call without bytes, and returns the error of the fault that it meets.
    pub(crate) fn call(&self, path: &Path, access: Access) -> io::Result<()> {
        match self.meet(path, access, 0..1) {
            Some((plan, _)) => Err(plan.fault.error()),
            None => Ok(()),
        }
    }
}

impl PlantedFault {
    /// Corrupts the part of `bytes`, which begin at `offset`, that lies in the block.
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
