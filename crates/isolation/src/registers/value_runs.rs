//! Ids of versions whose values count up for each key.

use super::version_table::WrittenId;
use seatrial_cycles::{KeyId, dense_id};

/// Number of places of a key's first run.
const PLACES_MIN: u32 = 4;
/// Number of places that are allowed in any case; less in tests, which have few versions.
const PLACES_FEW: usize = if cfg!(test) { 64 } else { 1 << 18 };
/// Number of places that are allowed in addition for each version.
const PLACES_EACH: usize = 8;

dense_id! {
    /// A place of [`ValueRuns`], numbered over all runs.
    pub(super) RunPlace
}

/// Maps pairs of key and value to versions, where the values of a key lie close to zero: a run of places by key, indexed by
/// the value. Values that are close in time, the last ones of each key, are close in memory, and neither hash nor
/// comparison is needed.
///
/// A run that is too short is copied to one of at least twice its length; the old one is reused for another key. Values
/// with large gaps would waste places, so runs stop growing at eight places for each version.
#[derive(Default)]
pub(super) struct ValueRuns {
    /// By key: its run.
    keys: Vec<ValueRun>,
    /// By place: the version of its pair, `None` until there is one.
    versions: Vec<Option<WrittenId>>,
    /// Free runs, by the binary logarithm of their length.
    spare: Vec<Vec<u32>>,
}

/// The places of a key: for its values from zero on.
#[derive(Clone, Copy, Default)]
struct ValueRun {
    start: u32,
    length: u32,
    /// Was a value of this key ever refused a place?
    has_refused: bool,
}

impl ValueRuns {
    /// The place of a pair, if it has one.
    #[inline]
    pub(super) fn find(&self, key: KeyId, value: i64) -> Option<RunPlace> {
        let run = self.keys.get(key.index())?;
        let value = u32::try_from(value).ok()?;
        (value < run.length).then(|| RunPlace::new(run.start.wrapping_add(value)))
    }

    /// The place of a pair, a new one if it may have one. The number of places is bounded by `count`, the number of
    /// versions so far.
    #[inline]
    pub(super) fn place(&mut self, key: KeyId, value: i64, count: usize) -> Option<RunPlace> {
        match self.find(key, value) {
            Some(place) => Some(place),
            None => self.lengthen(key, value, count),
        }
    }

    /// Was a value of this key, which has a place, ever refused one? Then a pair without a version in its place may have
    /// one in the hash table.
    #[inline]
    pub(super) fn has_refused(&self, key: KeyId) -> bool {
        self.keys[key.index()].has_refused
    }

    /// The version at this place, if there is one.
    #[inline]
    pub(super) fn version(&self, place: RunPlace) -> Option<WrittenId> {
        self.versions[place.index()]
    }

    /// Puts a version into this empty place.
    #[inline]
    pub(super) fn put(&mut self, place: RunPlace, version: WrittenId) {
        let before = self.versions[place.index()].replace(version);
        debug_assert!(before.is_none(), "two versions have one place");
    }

    /// Lengthens the run of a key for this value, if that is within the bound. Returns the place of the value.
    #[cold]
    fn lengthen(&mut self, key: KeyId, value: i64, count: usize) -> Option<RunPlace> {
        if key.index() >= self.keys.len() {
            self.keys.resize(key.index() + 1, ValueRun::default());
        }
        // Places are numbered with 32 bits.
        let places_max = (PLACES_FEW + PLACES_EACH * count).min(u32::MAX as usize);
        let length = u32::try_from(value).ok().and_then(|value| {
            let length = value.checked_add(1)?.checked_next_power_of_two()?;
            Some(length.max(PLACES_MIN))
        });
        let start = length.and_then(|length| self.reserve(length, places_max));
        let run = &mut self.keys[key.index()];
        let Some((start, length)) = start.zip(length) else {
            run.has_refused = true;
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
            self.versions.copy_within(range.clone(), start as usize);
            self.versions[range].fill(None);
            self.spare[old.length.ilog2() as usize].push(old.start);
        }
        let place = self.find(key, value);
        assert!(
            place.is_some(),
            "a lengthened run has no place for its value"
        );
        place
    }

    /// A run of empty places of this length, a power of two, unless there would be more than `places_max` in all.
    fn reserve(&mut self, length: u32, places_max: usize) -> Option<u32> {
        assert!(
            length.is_power_of_two(),
            "runs are kept by the logarithm of their length"
        );
        let class = length.ilog2() as usize;
        if class >= self.spare.len() {
            self.spare.resize(class + 1, Vec::new());
        }
        if let Some(start) = self.spare[class].pop() {
            return Some(start);
        }
        let start = self.versions.len();
        let end = start + length as usize;
        if end > places_max {
            return None;
        }
        self.versions.resize(end, None);
        Some(start as u32)
    }
}
