//! Experiment e7: maps that could hold the state, with values that are only references, so that the structure alone is measured.

use super::{BenchSetup, LoadOptions};
use imbl::OrdMap;
use seatrial_machine::Rng;
use seatrial_suite::{SuiteError, ToolExit};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// The sizes of SMaRtTrie's series: 100 MB, 1 GB and 5 GB of values of 4 KiB.
const SIZES: [usize; 3] = [25_600, 262_144, 1_310_720];
/// Operations of one measurement.
const OPERATIONS: usize = 1_000_000;
/// Overwrites while a snapshot is kept: enough to copy most nodes that they meet.
const HELD: usize = 500_000;

type Key = [u8; 24];
type Value = Arc<[u8]>;

/// A map with snapshots. `clone` is the snapshot: in constant time for a persistent map, a copy of all for others.
trait StateMap: Clone + Default {
    const NAME: &'static str;
    fn put(&mut self, key: Key, value: Value);
    fn has(&self, key: &Key) -> bool;
}

impl StateMap for OrdMap<Key, Value> {
    const NAME: &'static str = "imbl OrdMap";

    fn put(&mut self, key: Key, value: Value) {
        // As the store does: an existing entry is changed in its place.
        match self.get_mut(&key) {
            Some(held) => *held = value,
            None => drop(self.insert(key, value)),
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.contains_key(key)
    }
}

impl StateMap for HashMap<Key, Value> {
    const NAME: &'static str = "std HashMap";

    fn put(&mut self, key: Key, value: Value) {
        self.insert(key, value);
    }

    fn has(&self, key: &Key) -> bool {
        self.contains_key(key)
    }
}

impl StateMap for BTreeMap<Key, Value> {
    const NAME: &'static str = "std BTreeMap";

    fn put(&mut self, key: Key, value: Value) {
        self.insert(key, value);
    }

    fn has(&self, key: &Key) -> bool {
        self.contains_key(key)
    }
}

/// Runs the experiment.
pub(super) fn run(setup: &BenchSetup<'_>, load: &LoadOptions) -> Result<ToolExit, SuiteError> {
    let mut rows = String::from("keys,map,get_ns,put_ns,held_put_ns,snapshot_us,drop_ms\n");
    let given = [load.keys];
    let sizes = if setup.tool.has("keys") {
        &given[..]
    } else {
        &SIZES
    };
    for &size in sizes {
        measure::<OrdMap<Key, Value>>(setup, size, &mut rows);
        measure::<HashMap<Key, Value>>(setup, size, &mut rows);
        measure::<BTreeMap<Key, Value>>(setup, size, &mut rows);
    }
    std::fs::write(setup.out.join("e7.csv"), rows)?;
    Ok(ToolExit::Done)
}

fn measure<M: StateMap>(setup: &BenchSetup<'_>, size: usize, rows: &mut String) {
    let mut rng = Rng::from_seed(7);
    let keys: Vec<Key> = (0..size as u64).map(key).collect();
    // A value for each of many entries: a single one would be in the cache always.
    let values: Vec<Value> = (0..4_096_u32).map(|it| it.to_le_bytes().into()).collect();
    let mut map = M::default();
    for key in &keys {
        map.put(*key, Arc::clone(&values[0]));
    }
    let chosen: Vec<u32> = (0..OPERATIONS).map(|_| rng.index(size) as u32).collect();
    let value = |place: usize| Arc::clone(&values[place % values.len()]);
    let get = nanoseconds(OPERATIONS, |place| {
        black_box(map.has(&keys[chosen[place] as usize]));
    });
    let put = nanoseconds(OPERATIONS, |place| {
        map.put(keys[chosen[place] as usize], value(place));
    });
    // Single events by the clock: the CPU time of a thread is counted in milliseconds.
    let began = Instant::now();
    let snapshot = black_box(map.clone());
    let taken = began.elapsed().as_secs_f64() * 1e6;
    let held = nanoseconds(HELD, |place| {
        map.put(keys[chosen[place] as usize], value(place));
    });
    let began = Instant::now();
    drop(snapshot);
    let dropped = began.elapsed().as_secs_f64() * 1e3;
    (setup.tool.print)(format_args!(
        "{size} keys, {}: get {get:.0} ns, put {put:.0}, put with a snapshot {held:.0}; snapshot {taken:.1} µs, its drop \
         {dropped:.1} ms",
        M::NAME
    ));
    // Writing to a string cannot fail.
    let _ = writeln!(
        rows,
        "{size},{},{get:.1},{put:.1},{held:.1},{taken:.2},{dropped:.3}",
        M::NAME
    );
}

fn key(number: u64) -> Key {
    let mut key = [b'k'; 24];
    // An odd factor permutes the 64-bit numbers: neighbours in time are far from each other in order.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&scattered.to_be_bytes());
    key
}

/// CPU time of this thread for one of `count` operations, in nanoseconds.
pub(super) fn nanoseconds(count: usize, mut operation: impl FnMut(usize)) -> f64 {
    let before = thread_time();
    (0..count).for_each(&mut operation);
    (thread_time() - before) as f64 / count.max(1) as f64
}

/// Nanoseconds that this thread has run, up to the last tick of the kernel, some milliseconds ago; 0 where there is no such
/// file.
fn thread_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_hold_what_was_put_and_snapshots_do_not_change() {
        fn check<M: StateMap>() {
            let mut map = M::default();
            map.put(key(1), Arc::from([1_u8]));
            let snapshot = map.clone();
            map.put(key(2), Arc::from([2_u8]));
            assert!(map.has(&key(2)) && !snapshot.has(&key(2)) && snapshot.has(&key(1)));
        }
        check::<OrdMap<Key, Value>>();
        check::<HashMap<Key, Value>>();
        check::<BTreeMap<Key, Value>>();
        assert_ne!(key(3), key(4));
    }
}
