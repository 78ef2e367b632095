//! Votes in the simulated world.
//!
//! A module of its own for its place in the alphabet: the runner starts tests in that order, and the longest one last would run
//! alone in the end.

use crate::world::Run;
use seatrial_kv::Bug;
use seatrial_machine::FaultKind;
use seatrial_sim::explore_on;

/// A vote is forgotten by a node that restarts between two candidates of one term: this needs terms that follow each other fast.
#[test]
fn forgotten_votes_are_found_in_storms_of_elections() {
    let storm = |seed, bug| {
        let mut run = Run::new(seed * 5, 3, bug);
        run.kinds = vec![FaultKind::Kill];
        run.fault_spread = 4;
        run.check()
    };
    // Of 0..1_000 the first is 971; the others take a minute, and nothing is in them.
    let found = explore_on(2, 930..1_930, |seed| storm(seed, Some(Bug::VoteForgotten)));
    println!("{found:?}");
    let (seed, _) = found.failure.expect("the bug is found");
    assert_eq!(storm(seed, None), Ok(()), "it is the bug");
}
