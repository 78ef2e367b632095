//! Numbers of versions whose values count up for each key.

use super::NONE;

/// Places of a key's first run.
const PLACES_MIN: u32 = 4;
/// Places that may be there whatever there is. Tests know only few versions.
const PLACES_FEW: usize = if cfg!(test) { 64 } else { 1 << 18 };
/// Places that may be there for each version besides.
const PLACES_EACH: usize = 8;

/// A number for each of many pairs of key and value, where the values of a key lie close to zero: a run of places by key,
/// found by the value, so that what is near in time, the last values of each key, is near in memory, and no hash or
/// comparison is needed.
///
/// A run that is too short is copied to one of at least twice its length; the old one is kept for another key. Its
/// downside: values with large gaps would waste places, so they have none as soon as there are eight for each version.
#[derive(Default)]
pub(super) struct Runs {
    /// By key.
    keys: Vec<Run>,
    numbers: Vec<u32>,
    /// Runs that nobody has, by the binary logarithm of their length.
    spare: Vec<Vec<u32>>,
}

/// The places of a key: those of the values from zero on.
#[derive(Clone, Copy, Default)]
struct Run {
    start: u32,
    length: u32,
    /// Was a place ever refused to a value of this key?
    has_strangers: bool,
}

/// Where the number of a pair is kept.
#[derive(Clone, Copy)]
pub(super) struct Place {
    index: u32,
    /// May it have a number elsewhere as well, since once there was no place for some value of its key?
    pub(super) is_shared: bool,
}

impl Runs {
    /// The number of a pair that has a place; [`NONE`](super::NONE) as long as it has no number.
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

    /// The place of this pair. With `count` versions so far, there are places for some times as many.
    #[inline]
    pub(super) fn place(&mut self, key: u32, value: i64, count: usize) -> Option<Place> {
        let index = match self.index(key, value) {
            Some(index) => index,
            None => self.lengthen(key, value, count)?,
        };
        let is_shared = self.keys[key as usize].has_strangers;
        Some(Place { index, is_shared })
    }

    /// The number at this place.
    #[inline]
    pub(super) fn number(&mut self, place: Place) -> &mut u32 {
        &mut self.numbers[place.index as usize]
    }

    /// Makes room for a value of a key, if that is not too much; its index.
    #[cold]
    fn lengthen(&mut self, key: u32, value: i64, count: usize) -> Option<u32> {
        if key as usize >= self.keys.len() {
            self.keys.resize(key as usize + 1, Run::default());
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
            Run {
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
        let start = self.numbers.len();
        let end = start + length as usize;
        if end > places_max {
            return None;
        }
        self.numbers.resize(end, NONE);
        Some(start as u32)
    }
}
