//! Cache of decoded chunks.

use super::mask::Mask;
use seatrial_files::SystemMemory;
use seatrial_history::Chunk;
use seatrial_history::FixedMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Default for the most bytes that a cache keeps: about a hundred chunks.
pub const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Loads between two queries of [`Pressure`].
const LOADS_PER_QUESTION: u64 = 16;
/// No neighbour in the order of use.
const NO_ENTRY: u32 = u32::MAX;

/// Key of a cached value: owner and number.
pub(super) type Key = (u64, u64);

/// A shared value that is expensive to make.
#[derive(Clone)]
pub(super) enum CachedValue {
    /// A decoded chunk.
    Chunk(Arc<Chunk>),
    /// The operations of a chunk that pass a filter.
    Mask(Arc<Mask>),
}

impl CachedValue {
    fn bytes(&self) -> u64 {
        match self {
            CachedValue::Chunk(chunk) => chunk.memory_bytes(),
            CachedValue::Mask(mask) => mask.memory_bytes(),
        }
    }
}

/// State of a key.
enum CacheSlot {
    /// A thread is making it; the others wait.
    Loading,
    /// In the list.
    There(u32),
}

/// An entry of the list, from the one used longest ago to the newest.
struct CacheEntry {
    key: Key,
    kept: Option<CachedValue>,
    bytes: u64,
    older: u32,
    newer: u32,
}

/// What is in a cache.
struct CacheState {
    slots: FixedMap<Key, CacheSlot>,
    entries: Vec<CacheEntry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    bytes: u64,
    bytes_peak: u64,
    loads: u64,
    hits: u64,
}

/// Reports memory pressure to caches. Without it a cache has only its fixed bound.
pub trait Pressure: Send + Sync {
    /// The number of bytes that a cache which now holds `held` bytes may hold from now on.
    fn bytes_max(&self, held: u64) -> u64;
}

impl Pressure for SystemMemory {
    fn bytes_max(&self, held: u64) -> u64 {
        (*self).bytes_max(held)
    }
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Bytes that it keeps now.
    pub bytes: u64,
    /// Most bytes that it ever kept.
    pub bytes_peak: u64,
    /// Misses: chunks and masks that were made.
    pub loads: u64,
    /// Hits.
    pub hits: u64,
}

/// A cache of decoded chunks and masks of filters, for any number of views and threads; evicts the least recently used. A
/// value that several threads need at the same time is made once.
///
/// It never keeps more bytes than its bound, and yields to [`Pressure`]; larger values are returned and not kept. Its lock
/// is held for a few steps, never while a value is made. Values in use by readers are not counted after their eviction, at
/// most one chunk per reader.
pub struct ChunkCache {
    bytes_max: AtomicU64,
    /// Bytes that the pressure allowed at its last query.
    allowed_max: AtomicU64,
    pressure: Option<Arc<dyn Pressure>>,
    owners: AtomicU64,
    state: Mutex<CacheState>,
    /// Notified when a value was made, or could not be.
    made: Condvar,
}

impl Default for ChunkCache {
    fn default() -> ChunkCache {
        ChunkCache::new(CACHE_BYTES_MAX)
    }
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCache")
            .field("bytes_max", &self.bytes_max())
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}

impl ChunkCache {
    /// Creates a cache with this bound. With 0 no value is kept, but each is still made once for all threads that wait for it.
    pub fn new(bytes_max: u64) -> ChunkCache {
        ChunkCache {
            bytes_max: AtomicU64::new(bytes_max),
            allowed_max: AtomicU64::new(u64::MAX),
            pressure: None,
            owners: AtomicU64::new(0),
            state: Mutex::new(CacheState {
                slots: FixedMap::default(),
                entries: Vec::new(),
                free: Vec::new(),
                oldest: NO_ENTRY,
                newest: NO_ENTRY,
                bytes: 0,
                bytes_peak: 0,
                loads: 0,
                hits: 0,
            }),
            made: Condvar::new(),
        }
    }

    /// The same, yielding when memory is short: `pressure` is queried once per 16 loads.
    #[must_use]
    pub fn under(mut self, pressure: Arc<dyn Pressure>) -> ChunkCache {
        self.pressure = Some(pressure);
        self
    }

    /// Most bytes that it keeps.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the bound, at once.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.shrink(bytes_max);
    }

    /// Evicts the least recently used values until at most `bytes` are kept.
    pub fn shrink(&self, bytes: u64) {
        let gone = self.lock().shrink(bytes);
        drop(gone);
    }

    /// Counters so far.
    pub fn figures(&self) -> CacheFigures {
        let state = self.lock();
        CacheFigures {
            bytes: state.bytes,
            bytes_peak: state.bytes_peak,
            loads: state.loads,
            hits: state.hits,
        }
    }

    /// A unique owner, for keys.
    pub(super) fn owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes all values of this owner.
    pub(super) fn forget(&self, owner: u64) {
        let mut gone = Vec::new();
        let mut state = self.lock();
        for number in 0..state.entries.len() as u32 {
            let entry = &state.entries[number as usize];
            if entry.kept.is_some() && entry.key.0 == owner {
                gone.extend(state.remove(number));
            }
        }
        drop(state);
    }

    /// The value of `key` if it is cached; does not wait.
    pub(super) fn peek(&self, key: Key) -> Option<CachedValue> {
        self.lock().find(key)
    }

    /// The value of `key`, made by `load` if it is not cached. A failure is not cached.
    pub(super) fn get<E>(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<CachedValue, E>,
    ) -> Result<CachedValue, E> {
        let mut state = self.lock();
        loop {
            if let Some(kept) = state.find(key) {
                return Ok(kept);
            }
            if !state.slots.contains_key(&key) {
                break;
            }
            let waited = self.made.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.slots.insert(key, CacheSlot::Loading);
        state.loads += 1;
        let (loads, held) = (state.loads, state.bytes);
        drop(state);
        let flight = Flight { cache: self, key };
        if loads.is_multiple_of(LOADS_PER_QUESTION)
            && let Some(pressure) = &self.pressure
        {
            let allowed_max = pressure.bytes_max(held);
            self.allowed_max.store(allowed_max, Ordering::Relaxed);
            self.shrink(allowed_max);
        }
        let kept = load()?;
        let bytes = kept.bytes();
        let mut gone = Vec::new();
        let allowed_max = self.allowed_max.load(Ordering::Relaxed);
        let bytes_max = self.bytes_max().min(allowed_max);
        if bytes <= bytes_max {
            let mut state = self.lock();
            gone = state.shrink(bytes_max - bytes);
            state.keep(key, kept.clone(), bytes);
        }
        drop(flight);
        drop(gone);
        Ok(kept)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a value that is being made; its drop, also by failure or panic, wakes the waiting threads.
struct Flight<'a> {
    cache: &'a ChunkCache,
    key: Key,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if let Some(CacheSlot::Loading) = state.slots.get(&self.key) {
            state.slots.remove(&self.key);
        }
        drop(state);
        self.cache.made.notify_all();
    }
}

impl CacheState {
    /// The value of `key`, which becomes the newest.
    fn find(&mut self, key: Key) -> Option<CachedValue> {
        let Some(&CacheSlot::There(number)) = self.slots.get(&key) else {
            return None;
        };
        self.hits += 1;
        if self.newest != number {
            self.unlink(number);
            self.link(number);
        }
        self.entries[number as usize].kept.clone()
    }

    fn keep(&mut self, key: Key, kept: CachedValue, bytes: u64) {
        let entry = CacheEntry {
            key,
            kept: Some(kept),
            bytes,
            older: NO_ENTRY,
            newer: NO_ENTRY,
        };
        let number = if let Some(number) = self.free.pop() {
            self.entries[number as usize] = entry;
            number
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.link(number);
        self.slots.insert(key, CacheSlot::There(number));
        self.bytes += bytes;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
    }

    /// Removes the oldest until at most `bytes` are kept. The caller drops the removed values without the lock.
    fn shrink(&mut self, bytes: u64) -> Vec<CachedValue> {
        let mut gone = Vec::new();
        while self.bytes > bytes && self.oldest != NO_ENTRY {
            gone.extend(self.remove(self.oldest));
        }
        gone
    }

    fn remove(&mut self, number: u32) -> Option<CachedValue> {
        self.unlink(number);
        let entry = &mut self.entries[number as usize];
        self.bytes -= entry.bytes;
        self.slots.remove(&entry.key);
        self.free.push(number);
        entry.kept.take()
    }

    /// Makes it the newest.
    fn link(&mut self, number: u32) {
        let older = self.newest;
        let entry = &mut self.entries[number as usize];
        (entry.older, entry.newer) = (older, NO_ENTRY);
        match older {
            NO_ENTRY => self.oldest = number,
            older => self.entries[older as usize].newer = number,
        }
        self.newest = number;
    }

    fn unlink(&mut self, number: u32) {
        let &CacheEntry { older, newer, .. } = &self.entries[number as usize];
        match older {
            NO_ENTRY => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NO_ENTRY => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn mask(bytes: usize) -> CachedValue {
        CachedValue::Mask(Arc::new(Mask::of((bytes - size_of::<Mask>()) * 8, 0, 0)))
    }

    fn load(cache: &ChunkCache, number: u64, bytes: usize) -> bool {
        let mut was_made = false;
        let made = cache.get((0, number), || {
            was_made = true;
            Ok::<_, ()>(mask(bytes))
        });
        assert_eq!(made.map(|kept| kept.bytes()), Ok(bytes as u64));
        was_made
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let cache = ChunkCache::new(300);
        assert!(load(&cache, 1, 104) && load(&cache, 2, 104));
        assert!(!load(&cache, 1, 104), "it is kept");
        assert!(load(&cache, 3, 104), "it takes the place of 2");
        assert!(!load(&cache, 1, 104) && !load(&cache, 3, 104));
        assert!(load(&cache, 2, 104));
        assert!(load(&cache, 4, 304) && load(&cache, 4, 304), "too large");
        assert!(!load(&cache, 2, 104));
        let figures = cache.figures();
        assert_eq!((figures.bytes, figures.bytes_peak), (208, 208));
        assert_eq!((figures.loads, figures.hits), (6, 4));
        cache.shrink(150);
        assert!(!load(&cache, 2, 104) && load(&cache, 3, 104));
        cache.forget(1);
        assert!(!load(&cache, 2, 104));
        cache.forget(0);
        assert_eq!(cache.figures().bytes, 0);
        assert!(load(&cache, 2, 104));
        cache.set_bytes_max(0);
        assert!(load(&cache, 2, 104) && load(&cache, 2, 104));
    }

    struct Short(AtomicU64);

    impl Pressure for Short {
        fn bytes_max(&self, held: u64) -> u64 {
            assert!(held <= 1_000);
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn it_yields_when_memory_is_short() {
        let pressure = Arc::new(Short(AtomicU64::new(u64::MAX)));
        let cache = ChunkCache::new(1_000).under(pressure.clone());
        for number in 0..40 {
            load(&cache, number, 104);
        }
        assert_eq!(cache.figures().bytes, 936);
        pressure.0.store(250, Ordering::Relaxed);
        // The question comes with the 48th.
        for number in 40..48 {
            load(&cache, number, 104);
        }
        assert_eq!(cache.figures().bytes, 208);
        // It stays so until it is asked again.
        load(&cache, 48, 104);
        assert_eq!(cache.figures().bytes, 208);
    }

    #[test]
    fn failures_and_panics_leave_nothing_behind() {
        let cache = Arc::new(ChunkCache::new(1_000));
        assert_eq!(cache.get((0, 1), || Err("no")).err(), Some("no"));
        let other = cache.clone();
        let panicked = std::thread::spawn(move || {
            let _ = other.get::<()>((0, 1), || panic!("a broken predicate"));
        });
        assert!(panicked.join().is_err());
        assert!(load(&cache, 1, 104) && !load(&cache, 1, 104));
    }

    #[test]
    fn those_who_wait_together_get_what_one_makes() {
        let cache = ChunkCache::new(0);
        let made = AtomicU64::new(0);
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cache.get((0, 1), || {
                    barrier.wait();
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, ()>(mask(104))
                })
            });
            barrier.wait();
            // The value is being made, or was made and not kept.
            load(&cache, 1, 104);
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
