//! How many random cases the long tests of this workspace try.
//!
//! A test with thousands of random histories or seeds states the number for a whole run, and the environment says how many of
//! them it tries:
//!
//! - usually a quarter, except of those whose rare cases need all, so that `cargo test --workspace` takes a few minutes;
//! - with `SEATRIAL_FARMS=whole` all of them, as the gate does (`.ci/run`);
//! - with `SEATRIAL_HISTORIES=N` or `SEATRIAL_SEEDS=N` exactly N, and all of the other kind.
//!
//! Cases are numbered from 0, so the usual ones are the first of a whole run.

use std::env;

/// Usually a whole run is divided by this.
const USUAL_DIVISOR: u64 = 4;

/// The number of histories that every test tries, …
const HISTORIES: &str = "SEATRIAL_HISTORIES";
/// … and of seeds.
const SEEDS: &str = "SEATRIAL_SEEDS";

/// Number of random histories; `SEATRIAL_HISTORIES` overrides it.
///
/// # Panics
///
/// If the variable is not a number, or `SEATRIAL_FARMS` is another word: a test that tried fewer cases would claim too much.
pub fn histories(whole: u64) -> u64 {
    count(asked(HISTORIES).as_deref(), whole, is_whole())
}

/// Number of random histories of a test that says nothing without its rare ones: always all, unless `SEATRIAL_HISTORIES` has
/// another number.
///
/// # Panics
///
/// If the variable is not a number.
pub fn all_histories(whole: u64) -> u64 {
    count(asked(HISTORIES).as_deref(), whole, true)
}

/// Number of seeds of a simulation; `SEATRIAL_SEEDS` overrides it.
///
/// # Panics
///
/// If the variable is not a number, or `SEATRIAL_FARMS` is another word.
pub fn seeds(whole: u64) -> u64 {
    count(asked(SEEDS).as_deref(), whole, is_whole())
}

/// How often the cases that are tried must show something that a whole run shows at least `whole` times: in proportion. Numbers
/// from the environment are held against the bound of a whole run.
pub fn least(whole: u64) -> u64 {
    if is_whole() {
        whole
    } else {
        whole / USUAL_DIVISOR
    }
}

fn asked(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Are tests whole whose number the environment does not have? Also when it has that of the other kind: bounds are those of a
/// whole run then.
fn is_whole() -> bool {
    match asked("SEATRIAL_FARMS").as_deref() {
        None => [HISTORIES, SEEDS]
            .into_iter()
            .any(|name| asked(name).is_some()),
        Some("whole") => true,
        Some(other) => panic!("SEATRIAL_FARMS is {other:?}, expected \"whole\" or nothing"),
    }
}

fn count(asked: Option<&str>, whole: u64, is_whole: bool) -> u64 {
    match asked {
        Some(number) => {
            let parsed = number.parse();
            parsed.unwrap_or_else(|_| panic!("{number:?} is not a number of cases"))
        }
        None if is_whole => whole,
        None => whole.div_ceil(USUAL_DIVISOR),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn a_part_is_usual_and_the_environment_has_its_way() {
        assert_eq!(count(None, 10, false), 3);
        assert_eq!(count(None, 10, true), 10);
        assert_eq!(count(Some("7"), 10, false), 7);
        assert_eq!(count(Some("70"), 10, true), 70);
        assert_eq!(count(None, 1, false), 1, "never none");
    }

    #[test]
    #[should_panic(expected = "is not a number")]
    fn what_is_no_number_is_not_taken_for_one() {
        count(Some("many"), 10, false);
    }
}
