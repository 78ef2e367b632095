//! Crash states as data: the fate of each operation that was not durable at a power failure.

use super::disk_recorder::{DiskOperation, grouped};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::fmt;

/// Unit in which a write may be torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TearUnit {
    /// 512 bytes: a disk's unit of atomic writes.
    Sector,
    /// 4,096 bytes: a kernel's unit of writes to a disk.
    Page,
}

impl TearUnit {
    /// Length in bytes.
    pub const fn length(self) -> u64 {
        match self {
            TearUnit::Sector => 512,
            TearUnit::Page => 4_096,
        }
    }

    /// Number of units that `length` bytes at `offset` overlap.
    pub(super) fn count(self, offset: u64, length: u64) -> u64 {
        (offset + length).div_ceil(self.length()) - offset / self.length()
    }
}

/// Units of a torn write that reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TornUnits {
    /// The first `n` units.
    First(u64),
    /// The last `n` units.
    Last(u64),
    /// A random subset, drawn from this seed.
    Drawn(u64),
}

/// Content of the units of a torn write that did not reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// The old bytes; zeros past the old end.
    Old,
    /// Zeros.
    Zero,
    /// Random bytes, drawn from this seed.
    Noise(u64),
}

/// How a write is torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tear {
    /// Unit in which it breaks.
    pub unit: TearUnit,
    /// Units that arrived.
    pub arrival: TornUnits,
    /// Content of the other units.
    pub rest: Rest,
}

impl Tear {
    /// Writes the arrived part of `new` at `offset` of `bytes`, which must be long enough.
    pub(crate) fn write(&self, bytes: &mut [u8], offset: usize, new: &[u8]) {
        let unit = self.unit.length() as usize;
        let end = offset + new.len();
        let count = self.unit.count(offset as u64, new.len() as u64);
        let seed = |seed| Rng::from_seed(seed);
        let mut arrives = match self.arrival {
            TornUnits::Drawn(drawn) => seed(drawn),
            _ => seed(0),
        };
        let mut noise = match self.rest {
            Rest::Noise(drawn) => seed(drawn),
            _ => seed(0),
        };
        let mut at = offset;
        for number in 0..count {
            let next = (at / unit * unit + unit).min(end);
            let has_arrived = match self.arrival {
                TornUnits::First(first) => number < first,
                TornUnits::Last(last) => number + last >= count,
                TornUnits::Drawn(_) => arrives.chance(0.5),
            };
            let place = &mut bytes[at..next];
            if has_arrived {
                place.copy_from_slice(&new[at - offset..next - offset]);
            } else {
                match self.rest {
                    Rest::Old => {}
                    Rest::Zero => place.fill(0),
                    Rest::Noise(_) => place.fill_with(|| noise.word() as u8),
                }
            }
            at = next;
        }
    }
}

/// Fate of one operation that was not durable. An operation without an entry has arrived in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The operation had no effect. (The file may still have the length that it gives: see [`Choice::lengths`].)
    Lost,
    /// A part of a write arrived.
    Torn(Tear),
    /// A rename between folders arrived in the new folder only: the file has both names.
    Half,
}

/// One crash state: the fate of each operation that was not durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// By the operation's number in the trace, from 0.
    pub fates: BTreeMap<usize, Fate>,
    /// Lengths of files, in bytes, by file number, where they differ from what the surviving operations give.
    pub lengths: BTreeMap<u64, u64>,
}

impl Choice {
    /// Number of losses: a choice with fewer is easier to understand.
    pub fn weight(&self) -> usize {
        self.fates.len() + self.lengths.len()
    }

    /// One line for each loss.
    pub(super) fn lines(&self, operations: &[DiskOperation]) -> Vec<String> {
        let fates = self.fates.iter().filter_map(|(&number, fate)| {
            let operation = operations.get(number)?;
            let fate = fate_text(operation, *fate);
            Some(format!("{operation} (operation {number}): {fate}"))
        });
        let lengths = self.lengths.iter().map(|(file, length)| {
            let name = name_of(operations, *file);
            format!("the length of {name}: {} is on the disk", grouped(*length))
        });
        fates.chain(lengths).collect()
    }
}

/// The name under which a file was last used.
pub(super) fn name_of(operations: &[DiskOperation], file: u64) -> String {
    let mut name = format!("file {file}");
    for operation in operations {
        match operation {
            DiskOperation::Create { path, file: number }
            | DiskOperation::Write {
                path, file: number, ..
            }
            | DiskOperation::SetLength {
                path, file: number, ..
            } if *number == file => name = path.display().to_string(),
            _ => {}
        }
    }
    name
}

fn fate_text(operation: &DiskOperation, fate: Fate) -> String {
    let (Fate::Torn(tear), DiskOperation::Write { offset, bytes, .. }) = (fate, operation) else {
        let text = match (fate, operation) {
            (Fate::Half, _) => "has both names",
            (_, DiskOperation::Write { .. }) => "its bytes are lost",
            _ => "lost",
        };
        return text.into();
    };
    let count = tear.unit.count(*offset, bytes.len() as u64);
    format!("torn: of {} {tear}", grouped(count))
}

impl fmt::Display for Tear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unit {
            TearUnit::Sector => "sectors (512 bytes) ",
            TearUnit::Page => "pages (4,096 bytes) ",
        })?;
        match self.arrival {
            TornUnits::First(0) | TornUnits::Last(0) => f.write_str("none has arrived"),
            TornUnits::First(count) => write!(f, "the first {count} have arrived"),
            TornUnits::Last(count) => write!(f, "the last {count} have arrived"),
            TornUnits::Drawn(seed) => write!(f, "a subset drawn from seed {seed} has arrived"),
        }?;
        f.write_str(match self.rest {
            Rest::Old => ", the old bytes are in the other places",
            Rest::Zero => ", zeros are in the other places",
            Rest::Noise(_) => ", noise is in the other places",
        })
    }
}
