//! Numbers of versions whose values count up for each key.

use super::NONE;

/// Number of places of a key's first run.
const PLACES_MIN: u32 = 4;
/// Number of places that are allowed in any case; less in tests, which have few versions.
const PLACES_FEW: usize = if cfg!(test) { 64 } else { 1 << 18 };
/// Number of places that are allowed in addition for each version.
const PLACES_EACH: usize = 8;

/// Maps pairs of key and value to numbers, where the values of a key lie close to zero: a run of places by key, indexed by
/// the value. Values that are close in time, the last ones of each key, are close in memory, and neither hash nor
/// comparison is needed.
///
/// A run that is too short is copied to one of at least twice its length; the old one is reused for another key. Values
/// with large gaps would waste places, so runs stop growing at eight places for each version.
#[derive(Default)]
pub(super) struct ValueRuns {
    /// By key: its run.
    keys: Vec<ValueRun>,
    numbers: Vec<u32>,
    /// Free runs, by the binary logarithm of their length.
    spare: Vec<Vec<u32>>,
}

/// The places of a key: for its values from zero on.
#[derive(Clone, Copy, Default)]
struct ValueRun {
    start: u32,
    length: u32,
    /// Was a value of this key ever refused a place?
    has_strangers: bool,
}

/// The place of a pair's number.
#[derive(Clone, Copy)]
pub(super) struct RunPlace {
    index: u32,
    /// May the pair have a number in the hash table as well, because it was refused a place earlier?
    pub(super) is_shared: bool,
}

impl ValueRuns {
    /// The number of a pair that has a place; [`NONE`](super::NONE) until it has a number.
    #[inline]
    pub(super) fn known(&self, key: u32, value: i64) -> Option<u32> {
        Some(self.numbers[self.index(key, value)? as usize])
    }

    #[inline]
    fn index(&self, key: u32, value: i64) -> Option<u32> {
        let run = self.keys.get(key as usize)?;
        let value = u32::try_from(value).ok()?;
        (value < run.length).then(|| run.start.wrapping_add(value))
    }

    /// The place of a pair, if it gets one. The number of places is bounded by `count`, the number of versions so far.
    #[inline]
    pub(super) fn place(&mut self, key: u32, value: i64, count: usize) -> Option<RunPlace> {
        let index = match self.index(key, value) {
            Some(index) => index,
            None => self.lengthen(key, value, count)?,
        };
        let is_shared = self.keys[key as usize].has_strangers;
        Some(RunPlace { index, is_shared })
    }

    /// The number at this place.
    #[inline]
    pub(super) fn number(&mut self, place: RunPlace) -> &mut u32 {
        &mut self.numbers[place.index as usize]
    }

    /// Lengthens the run of a key for this value, if that is within the bound. Returns the index of the place.
    #[cold]
    fn lengthen(&mut self, key: u32, value: i64, count: usize) -> Option<u32> {
        if key as usize >= self.keys.len() {
            self.keys.resize(key as usize + 1, ValueRun::default());
        }
        let places_max = (PLACES_FEW + PLACES_EACH * count).min(NONE as usize);
        let length = u32::try_from(value).ok().and_then(|value| {
            let length = value.checked_add(1)?.checked_next_power_of_two()?;
            Some(length.max(PLACES_MIN))
        });
        let start = length.and_then(|length| self.reserve(length, places_max));
        let run = &mut self.keys[key as usize];
        let Some((start, length)) = start.zip(length) else {
            run.has_strangers = true;
            return None;
        };
        let old = std::mem::replace(
            run,
            ValueRun {
                start,
                length,
                ..*run
            },
        );
        if old.length > 0 {
            let range = old.start as usize..(old.start + old.length) as usize;
            self.numbers.copy_within(range.clone(), start as usize);
            self.numbers[range].fill(NONE);
            self.spare[old.length.ilog2() as usize].push(old.start);
        }
        self.index(key, value)
    }

    /// A run of empty places of this length, a power of two, unless there would be more than `places_max` in all.
    fn reserve(&mut self, length: u32, places_max: usize) -> Option<u32> {
        let class = length.ilog2() as usize;
        if class >= self.spare.len() {
            self.spare.resize(class + 1, Vec::new());
        }
        if let Some(start) = self.spare[class].pop() {
            return Some(start);
        }
        assert!(
            length.is_power_of_two(),
            "runs are kept by the logarithm of their length"
        );
        let start = self.numbers.len();
        let end = start + length as usize;
        if end > places_max {
            return None;
        }
        self.numbers.resize(end, NONE);
        Some(start as u32)
    }
}
