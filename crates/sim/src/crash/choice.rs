//! What became of operations that were not durable when the power went.

use super::recorder::{Operation, grouped};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::fmt;

/// Where a write breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TearUnit {
    /// 512 bytes: what a disk writes as a whole.
    Sector,
    /// 4,096 bytes: what a kernel hands to a disk.
    Page,
}

impl TearUnit {
    /// Bytes.
    pub const fn length(self) -> u64 {
        match self {
            TearUnit::Sector => 512,
            TearUnit::Page => 4_096,
        }
    }

    /// Units that `length` bytes at `offset` touch.
    pub(super) fn count(self, offset: u64, length: u64) -> u64 {
        (offset + length).div_ceil(self.length()) - offset / self.length()
    }
}

/// Which units of a torn write reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrival {
    /// The first so many.
    First(u64),
    /// The last so many.
    Last(u64),
    /// Each or not, drawn from this seed.
    Drawn(u64),
}

/// What is where a torn write did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// What was there before; zeros, where there was nothing.
    Old,
    /// Zeros.
    Zero,
    /// Noise, drawn from this seed.
    Noise(u64),
}

/// How a write is torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tear {
    /// Where it breaks.
    pub unit: TearUnit,
    /// What arrived.
    pub arrival: Arrival,
    /// What is in the other places.
    pub rest: Rest,
}

impl Tear {
    /// Writes the part of `new` that arrives at `offset`, where `bytes` are long enough.
    pub(crate) fn write(&self, bytes: &mut [u8], offset: usize, new: &[u8]) {
        let unit = self.unit.length() as usize;
        let end = offset + new.len();
        let count = self.unit.count(offset as u64, new.len() as u64);
        let seed = |seed| Rng::from_seed(seed);
        let mut arrives = match self.arrival {
            Arrival::Drawn(drawn) => seed(drawn),
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
                Arrival::First(first) => number < first,
                Arrival::Last(last) => number + last >= count,
                Arrival::Drawn(_) => arrives.chance(0.5),
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

/// What became of one operation that was not durable. Those of which nothing is said have arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Nothing of it is there. (The file may be as long as with it: see [`Choice::lengths`].)
    Lost,
    /// A part of a write is there.
    Torn(Tear),
    /// Of a rename between folders the new name is there, and the old one too.
    Half,
}

/// One of the states that a crash may leave: what became of each operation that was not durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// By the number of the operation in the trace, from 0.
    pub fates: BTreeMap<usize, Fate>,
    /// Lengths of files, in bytes, by the file's number, where they are not what the operations that arrived make them.
    pub lengths: BTreeMap<u64, u64>,
}

impl Choice {
    /// How much was lost: fewer is easier to understand.
    pub fn weight(&self) -> usize {
        self.fates.len() + self.lengths.len()
    }

    /// One line for each thing that was lost.
    pub(super) fn words(&self, operations: &[Operation]) -> Vec<String> {
        let fates = self.fates.iter().filter_map(|(&number, fate)| {
            let operation = operations.get(number)?;
            let fate = fate_words(operation, *fate);
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
pub(super) fn name_of(operations: &[Operation], file: u64) -> String {
    let mut name = format!("file {file}");
    for operation in operations {
        match operation {
            Operation::Create { path, file: number }
            | Operation::Write {
                path, file: number, ..
            }
            | Operation::SetLength {
                path, file: number, ..
            } if *number == file => name = path.display().to_string(),
            _ => {}
        }
    }
    name
}

fn fate_words(operation: &Operation, fate: Fate) -> String {
    let (Fate::Torn(tear), Operation::Write { offset, bytes, .. }) = (fate, operation) else {
        let words = match (fate, operation) {
            (Fate::Half, _) => "has both names",
            (_, Operation::Write { .. }) => "its bytes are lost",
            _ => "lost",
        };
        return words.into();
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
            Arrival::First(0) | Arrival::Last(0) => f.write_str("none has arrived"),
            Arrival::First(count) => write!(f, "the first {count} have arrived"),
            Arrival::Last(count) => write!(f, "the last {count} have arrived"),
            Arrival::Drawn(seed) => write!(f, "those drawn from seed {seed} have arrived"),
        }?;
        f.write_str(match self.rest {
            Rest::Old => ", the old bytes are in the other places",
            Rest::Zero => ", zeros are in the other places",
            Rest::Noise(_) => ", noise is in the other places",
        })
    }
}
