//! Which crash states are built at a point of a trace.

use super::choice::{Choice, Fate, Rest, Tear, TearUnit, TornUnits};
use super::disk_recorder::DiskOperation;
use super::explorer::ExplorerLimits;
use crate::simulated_storage::Pending;
use seatrial_machine::Rng;

/// The crash states of one point.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub(super) list: Vec<Choice>,
    /// Does the list contain every combination of surviving and lost operations, and of lengths?
    pub(super) is_exhaustive: bool,
}

/// Collects the crash states of one point, the simplest first, so that the first failure is easy to understand.
struct Enumeration<'a> {
    operations: &'a [DiskOperation],
    pending: &'a Pending,
    /// Operations that are not durable: data and names, ascending.
    all: Vec<usize>,
    limits: &'a ExplorerLimits,
    list: Vec<Choice>,
}

/// The crash states to build at a point. `rng` draws from sets that are too large to enumerate.
pub(super) fn choices(
    operations: &[DiskOperation],
    pending: &Pending,
    limits: &ExplorerLimits,
    rng: &mut Rng,
) -> Choices {
    let mut all: Vec<usize> = pending.data.iter().chain(&pending.names).copied().collect();
    all.sort_unstable();
    let mut run = Enumeration {
        operations,
        pending,
        all,
        limits,
        list: Vec::new(),
    };
    run.plain();
    let is_exhaustive = run.combinations();
    run.torn(rng);
    // After an exhaustive enumeration only torn writes are left to draw.
    let can_tear = !pending.data.is_empty();
    if can_tear || !is_exhaustive {
        for _ in 0..limits.samples {
            let drawn = run.drawn(rng);
            run.list.push(drawn);
        }
    }
    Choices {
        list: run.list,
        is_exhaustive,
    }
}

impl Enumeration<'_> {
    fn lost(&self, is_lost: impl Fn(usize) -> bool) -> Choice {
        let lost = self.all.iter().filter(|&&operation| is_lost(operation));
        Choice {
            fates: lost.map(|&operation| (operation, Fate::Lost)).collect(),
            ..Choice::default()
        }
    }

    /// Pushes the choice, and a variant in which the length of each file follows from its durable part and the writes in `kept`
    /// alone.
    fn push_with_lengths(&mut self, choice: Choice, kept: impl Fn(usize) -> bool) {
        let mut shorter = choice.clone();
        for (file, lengths) in &self.pending.lengths {
            let mut length = lengths[0];
            for &number in self.pending.data.iter().filter(|&&number| kept(number)) {
                match &self.operations[number] {
                    DiskOperation::Write {
                        file: it,
                        offset,
                        bytes,
                        ..
                    } if it == file => length = length.max(offset + bytes.len() as u64),
                    DiskOperation::SetLength {
                        file: it,
                        length: new,
                        ..
                    } if it == file => length = *new,
                    _ => {}
                }
            }
            // Overlapping writes may give a length that the file never had: such a state is impossible.
            if lengths.contains(&length) {
                shorter.lengths.insert(*file, length);
            }
        }
        self.list.push(choice);
        self.list.push(shorter);
    }

    /// All kept; all lost; each alone lost; each alone kept; every prefix kept.
    fn plain(&mut self) {
        self.list.push(Choice::default());
        let newest = self.all.len().saturating_sub(self.limits.singles_max);
        let newest: Vec<usize> = self.all[newest..].to_vec();
        for &number in &newest {
            let lost = self.lost(|it| it == number);
            self.push_with_lengths(lost, |it| it != number);
        }
        for number in newest {
            let prefix = self.lost(|it| it >= number);
            self.push_with_lengths(prefix, |it| it < number);
            let kept = self.lost(|it| it != number);
            self.push_with_lengths(kept, |it| it == number);
        }
        let none = self.lost(|_| true);
        self.push_with_lengths(none, |_| false);
        for (file, lengths) in &self.pending.lengths {
            for length in lengths {
                let mut choice = Choice::default();
                choice.lengths.insert(*file, *length);
                self.list.push(choice);
            }
        }
        for &operation in &self.pending.halves {
            let mut choice = Choice::default();
            choice.fates.insert(operation, Fate::Half);
            self.list.push(choice);
        }
    }

    /// All combinations of lost operations and of lengths. False, without any, when they exceed `combinations_max`.
    fn combinations(&mut self) -> bool {
        let radices = (self.all.iter())
            .map(|number| 2 + usize::from(self.pending.halves.contains(number)))
            .chain(self.pending.lengths.iter().map(|it| it.1.len() + 1));
        let count = radices.clone().try_fold(1_usize, usize::checked_mul);
        let Some(count) = count.filter(|&count| count <= self.limits.combinations_max) else {
            return false;
        };
        let radices: Vec<usize> = radices.collect();
        for combination in 0..count {
            let mut rest = combination;
            let mut choice = Choice::default();
            for (place, radix) in radices.iter().enumerate() {
                let digit = rest % radix;
                rest /= radix;
                match (digit, self.all.get(place)) {
                    (0, _) => {}
                    (1, Some(&number)) => drop(choice.fates.insert(number, Fate::Lost)),
                    (_, Some(&number)) => drop(choice.fates.insert(number, Fate::Half)),
                    (_, None) => {
                        let (file, lengths) = &self.pending.lengths[place - self.all.len()];
                        choice.lengths.insert(*file, lengths[digit - 1]);
                    }
                }
            }
            self.list.push(choice);
        }
        true
    }

    /// Each of the newest writes torn: with all else kept, with all later ones lost, with all else lost.
    fn torn(&mut self, rng: &mut Rng) {
        let writes = self.pending.data.iter().rev().copied();
        let writes =
            writes.filter(|&it| matches!(self.operations[it], DiskOperation::Write { .. }));
        let newest: Vec<usize> = writes.take(self.limits.torn_max).collect();
        for number in newest {
            let DiskOperation::Write {
                file,
                offset,
                bytes,
                ..
            } = &self.operations[number]
            else {
                continue;
            };
            let (file, offset, length) = (*file, *offset, bytes.len() as u64);
            for (place, tear) in tears(offset, length, rng).into_iter().enumerate() {
                let contexts = [
                    self.lost(|_| false),
                    self.lost(|it| it > number),
                    self.lost(|it| it != number && self.pending.data.contains(&it)),
                ];
                for (turn, mut choice) in contexts.into_iter().enumerate() {
                    choice.fates.insert(number, Fate::Torn(tear));
                    if (place + turn) % 2 == 0 {
                        self.list.push(choice);
                    } else {
                        self.push_with_lengths(choice, |it| it <= number);
                    }
                }
            }
            // The length may have been written when only a part of the bytes was.
            let end = offset + length;
            for cut in [offset + 1, (offset + length / 2) / 512 * 512, end - 1] {
                let is_longer = |it: &&(u64, Vec<u64>)| it.0 == file && it.1[0] < cut && cut < end;
                if self.pending.lengths.iter().find(is_longer).is_some() {
                    let mut choice = self.lost(|it| it > number);
                    choice.lengths.insert(file, cut);
                    self.list.push(choice);
                }
            }
        }
    }

    /// A random crash state.
    fn drawn(&self, rng: &mut Rng) -> Choice {
        let mut choice = Choice::default();
        // Both probabilities are drawn per state: in some states nearly all survives, in others nearly nothing.
        let [lost, torn] = [rng.unit(), rng.unit() * rng.unit()];
        for &number in &self.all {
            if rng.chance(lost) {
                choice.fates.insert(number, Fate::Lost);
            } else if self.pending.halves.contains(&number) && rng.chance(0.3) {
                choice.fates.insert(number, Fate::Half);
            } else if let DiskOperation::Write { offset, bytes, .. } = &self.operations[number]
                && rng.chance(torn)
            {
                let all = tears(*offset, bytes.len() as u64, rng);
                choice.fates.insert(number, Fate::Torn(*rng.pick(&all)));
            }
        }
        for (file, lengths) in &self.pending.lengths {
            if rng.chance(0.3) {
                let low = lengths.iter().min().copied().unwrap_or(0);
                let high = lengths.iter().max().copied().unwrap_or(0);
                let length = match rng.below(3) {
                    0 => *rng.pick(lengths),
                    1 => low + rng.below(high - low + 1),
                    _ => (low + rng.below(high - low + 1)) / 512 * 512,
                };
                choice.lengths.insert(*file, length.max(low));
            }
        }
        choice
    }
}

/// Ways to tear a write. The content of missing units rotates, so that every combination of units and content occurs over
/// several points.
pub(crate) fn tears(offset: u64, length: u64, rng: &mut Rng) -> Vec<Tear> {
    let mut arrivals = vec![(TearUnit::Sector, TornUnits::First(0))];
    arrivals.push((TearUnit::Sector, TornUnits::First(0)));
    for unit in [TearUnit::Sector, TearUnit::Page] {
        let count = unit.count(offset, length);
        if count < 2 {
            continue;
        }
        for arrival in [
            TornUnits::First(1),
            TornUnits::First(count / 2),
            TornUnits::First(count - 1),
            TornUnits::Last(1),
            TornUnits::Last(count - 1),
            TornUnits::Drawn(rng.word()),
        ] {
            arrivals.push((unit, arrival));
        }
    }
    let turn = rng.index(3);
    let rests = [Rest::Zero, Rest::Noise(rng.word()), Rest::Old];
    let tears = arrivals.into_iter().enumerate();
    let tears = tears.map(|(place, (unit, arrival))| Tear {
        unit,
        arrival,
        // No unit arrived and the old bytes stay: that is a lost write, not a torn one. So the first two never use `Old`.
        rest: rests[if place < 2 { place } else { (place + turn) % 3 }],
    });
    tears.collect()
}
