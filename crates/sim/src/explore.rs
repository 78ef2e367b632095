//! Runs many seeds, or one seed twice.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Result of an exploration of seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration<F> {
    /// Seeds tried, the failing one included.
    pub tried: u64,
    /// The first seed that failed, and how.
    pub failure: Option<(u64, F)>,
}

/// Prints the seed when its run panics, for example at a failed invariant.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this was seed {} ({:x} in hexadecimal)", self.0, self.0);
        }
    }
}

/// Runs seeds in order until one fails. A panic of a run is propagated, after its seed was printed to standard error.
pub fn explore<F>(
    seeds: impl IntoIterator<Item = u64>,
    mut run: impl FnMut(u64) -> Result<(), F>,
) -> Exploration<F> {
    let mut tried = 0;
    for seed in seeds {
        tried += 1;
        let _named = Named(seed);
        if let Err(failure) = run(seed) {
            return Exploration {
                tried,
                failure: Some((seed, failure)),
            };
        }
    }
    Exploration {
        tried,
        failure: None,
    }
}

/// The same on this number of threads, each of which takes the next seed: finds the seed that [`explore`] finds.
pub fn explore_on<I, F>(
    threads: usize,
    seeds: I,
    run: impl Fn(u64) -> Result<(), F> + Sync,
) -> Exploration<F>
where
    I: IntoIterator<Item = u64, IntoIter: Send>,
    F: Send,
{
    // The seeds left, the number of those taken, and those that failed by when they were taken.
    let shared = Mutex::new((seeds.into_iter(), 0_u64, BTreeMap::new()));
    let shared = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let (seeds, taken, failures) = &mut *shared();
        // What was taken before a failure is run to its end: an earlier seed may fail as well.
        if !failures.is_empty() {
            return None;
        }
        let seed = seeds.next()?;
        *taken += 1;
        Some((*taken, seed))
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((order, seed)) = next() {
                    let _named = Named(seed);
                    if let Err(failure) = run(seed) {
                        shared().2.insert(order, (seed, failure));
                    }
                }
            });
        }
    });
    let (_, tried, failures) = &mut *shared();
    Exploration {
        tried: *tried,
        failure: failures.pop_first().map(|(_, failure)| failure),
    }
}

/// Runs a seed twice and returns the result. Panics with the first differing line if the two runs differ.
pub fn same_twice<T: PartialEq + Debug>(seed: u64, mut run: impl FnMut(u64) -> T) -> T {
    let (first, second) = (run(seed), run(seed));
    if first != second {
        let (first, second) = (format!("{first:#?}"), format!("{second:#?}"));
        let mut lines = first.lines().zip(second.lines()).enumerate();
        let differing = lines.find(|(_, (a, b))| a != b);
        let (line, (a, b)) = differing.unwrap_or((0, ("one is longer", "than the other")));
        panic!("seed {seed} differs from itself in line {line}:\n  {a}\n  {b}");
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_seed_that_fails() {
        let mut ran = Vec::new();
        let found = explore(5..100, |seed| {
            ran.push(seed);
            if seed == 8 { Err("eight") } else { Ok(()) }
        });
        assert_eq!((found.tried, found.failure), (4, Some((8, "eight"))));
        assert_eq!(ran, [5, 6, 7, 8]);
    }

    #[test]
    fn several_threads_find_what_one_finds() {
        let fails = [17, 18, 40];
        for threads in [0, 1, 2, 7] {
            let found = explore_on(threads, 5..100, |seed| {
                if seed % 2 == 1 {
                    thread::yield_now();
                }
                if fails.contains(&seed) {
                    Err(seed)
                } else {
                    Ok(())
                }
            });
            assert_eq!(found.failure, Some((17, 17)), "{threads}");
            assert!(
                (13..100).contains(&found.tried),
                "{threads}: {}",
                found.tried
            );
            let none = explore_on(threads, 5..100, |_| Ok::<(), ()>(()));
            assert_eq!((none.tried, none.failure), (95, None));
        }
    }

    #[test]
    #[should_panic(expected = "seed 1 differs from itself in line 0:\n  1\n  2")]
    fn a_run_that_depends_on_more_than_its_seed_panics() {
        let mut runs = 0;
        same_twice(1, |_| {
            runs += 1;
            runs
        });
    }
}
