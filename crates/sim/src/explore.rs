//! Runs many seeds, or one seed twice.

use std::fmt::Debug;
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
    #[should_panic(expected = "seed 1 differs from itself in line 0:\n  1\n  2")]
    fn a_run_that_depends_on_more_than_its_seed_panics() {
        let mut runs = 0;
        same_twice(1, |_| {
            runs += 1;
            runs
        });
    }
}
