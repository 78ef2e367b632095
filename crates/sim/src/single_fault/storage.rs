//! A storage with one fault.

use crate::storage::{hold, plain};
use seatrial_machine::{Disk, Mapped, Medium, Rng, Storage};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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

    fn error(self) -> io::Error {
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
pub(super) struct Plan {
    pub(super) site: Site,
    /// At this access of the site, counted from 0.
    pub(super) turn: u64,
    /// And at every later one.
    pub(super) lasts: bool,
    pub(super) fault: BlockFault,
    /// Which bit, what noise.
    pub(super) seed: u64,
}

/// What happens at the accesses of a storage.
#[derive(Debug, Default)]
struct Accesses {
    block_length: u64,
    plan: Option<Plan>,
    /// How often each site was met.
    met: Mutex<BTreeMap<Site, u64>>,
    fired: Mutex<bool>,
}

impl Accesses {
    /// Counts an access to a range of bytes, and answers the fault that it meets, with its block.
    fn meet(&self, path: &Path, access: Access, range: Range<u64>) -> Option<(&Plan, Range<u64>)> {
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
                found = Some((plan, block * length..(block + 1) * length));
                *hold(&self.fired) = true;
            }
            *count += 1;
        }
        found
    }

    /// The same for a call that has no bytes: it works or it fails.
    fn call(&self, path: &Path, access: Access) -> io::Result<()> {
        match self.meet(path, access, 0..1) {
            Some((plan, _)) => Err(plan.fault.error()),
            None => Ok(()),
        }
    }
}

impl Plan {
    /// Spoils the part of `bytes`, which are at `offset`, that is in the block.
    fn spoil(&self, block: &Range<u64>, offset: u64, bytes: &mut [u8]) {
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

/// Passes everything on to another storage, except that one access of one block meets a fault. Without a fault it counts the
/// accesses. Made by [`SingleFaults`](super::SingleFaults); by itself it is for tests of one certain fault.
#[derive(Clone, Debug)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    accesses: Arc<Accesses>,
}

impl FaultyStorage {
    /// Counts, and lets everything pass. Blocks are of `block_length` bytes.
    pub fn counting(inner: Arc<dyn Storage>, block_length: u64) -> FaultyStorage {
        FaultyStorage::with(inner, block_length, None)
    }

    /// The access `turn` (from 0) of a site meets a fault, and, if it `lasts`, every later one too.
    pub fn new(
        inner: Arc<dyn Storage>,
        block_length: u64,
        site: Site,
        turn: u64,
        lasts: bool,
        fault: BlockFault,
    ) -> FaultyStorage {
        let plan = Plan {
            site,
            turn,
            lasts,
            fault,
            seed: 0,
        };
        FaultyStorage::with(inner, block_length, Some(plan))
    }

    pub(super) fn with(
        inner: Arc<dyn Storage>,
        block_length: u64,
        plan: Option<Plan>,
    ) -> FaultyStorage {
        let accesses = Accesses {
            block_length: block_length.max(1),
            plan,
            ..Accesses::default()
        };
        FaultyStorage {
            inner,
            accesses: Arc::new(accesses),
        }
    }

    /// How often each site was met.
    pub fn met(&self) -> BTreeMap<Site, u64> {
        hold(&self.accesses.met).clone()
    }

    /// Has the fault been met?
    pub fn has_fired(&self) -> bool {
        *hold(&self.accesses.fired)
    }

    fn name(&self, path: &Path) -> io::Result<()> {
        self.accesses.call(&plain(path), Access::Name)
    }

    fn medium(&self, inner: Arc<dyn Medium>, path: &Path) -> Arc<dyn Medium> {
        Arc::new(FaultyMedium {
            inner,
            path: plain(path),
            accesses: Arc::clone(&self.accesses),
        })
    }
}

impl Storage for FaultyStorage {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.name(path)?;
        Ok(self.medium(self.inner.create(path)?, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.name(path)?;
        Ok(self.medium(self.inner.open(path)?, path))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.name(path)?;
        Ok(self.medium(self.inner.open_write(path)?, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.name(from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.name(path)?;
        self.inner.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.name(path)?;
        self.inner.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.name(folder)?;
        self.inner.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.name(folder)?;
        self.inner.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.name(path)?;
        self.inner.lock(path)
    }
}

/// An open file of a storage with a fault.
#[derive(Debug)]
struct FaultyMedium {
    inner: Arc<dyn Medium>,
    path: PathBuf,
    accesses: Arc<Accesses>,
}

impl Disk for FaultyMedium {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let met = self.accesses.meet(&self.path, Access::Read, range);
        match met {
            Some((plan, _)) if plan.fault.is_told() => return Err(plan.fault.error()),
            _ => self.inner.read_at(offset, buffer)?,
        }
        if let Some((plan, block)) = met {
            plan.spoil(&block, offset, buffer);
        }
        Ok(())
    }
}

impl Medium for FaultyMedium {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        let Some((plan, block)) = self.accesses.meet(&self.path, Access::Write, range) else {
            return self.inner.write_at(offset, bytes);
        };
        if plan.fault.is_told() {
            let arrives = block.start.saturating_sub(offset) as usize;
            self.inner.write_at(offset, &bytes[..arrives])?;
            return Err(plan.fault.error());
        }
        let mut spoiled = bytes.to_vec();
        plan.spoil(&block, offset, &mut spoiled);
        self.inner.write_at(offset, &spoiled)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.accesses.call(&self.path, Access::SetLength)?;
        self.inner.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.accesses.call(&self.path, Access::Sync)?;
        self.inner.sync()
    }

    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        let Some(inner) = self.inner.map(length)? else {
            return Ok(None);
        };
        // A view of spoiled bytes has to own them.
        let plan = self.accesses.plan.as_ref();
        let plan = plan.filter(|it| it.site.path == self.path && it.site.access == Access::Read);
        let plan = plan.filter(|it| it.turn == 0 && !it.fault.is_told());
        let mut spoiled = Vec::new();
        if let Some(plan) = plan {
            let length = length.min(self.inner.len()) as usize;
            spoiled = inner.bytes(0, length)?.to_vec();
            let start = plan.site.block * self.accesses.block_length;
            if start < length as u64 {
                plan.spoil(
                    &(start..start + self.accesses.block_length),
                    0,
                    &mut spoiled,
                );
            }
        }
        Ok(Some(Arc::new(FaultyMapped {
            inner,
            spoiled,
            path: self.path.clone(),
            accesses: Arc::clone(&self.accesses),
        })))
    }
}

/// Bytes that are lent by a storage with a fault. They are memory, which may be looked at again after it was checked: so they
/// are spoiled for good, by a fault at the first access, or not at all. Errors come at any turn.
#[derive(Debug)]
struct FaultyMapped {
    inner: Arc<dyn Mapped>,
    /// All bytes, with the fault in them; empty where it cannot be met.
    spoiled: Vec<u8>,
    path: PathBuf,
    accesses: Arc<Accesses>,
}

impl Mapped for FaultyMapped {
    fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let range = offset..offset.saturating_add(length as u64);
        let plain = self.inner.bytes(offset, length)?;
        let met = self.accesses.meet(&self.path, Access::Read, range);
        if let Some((plan, _)) = met.filter(|(plan, _)| plan.fault.is_told()) {
            return Err(plan.fault.error());
        }
        let spoiled = self.spoiled.get(offset as usize..offset as usize + length);
        Ok(spoiled.unwrap_or(plain))
    }
}
