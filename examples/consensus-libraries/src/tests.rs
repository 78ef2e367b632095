//! The simulation itself: it replays, it finds, and it shortens.

use crate::ledger::FailureKind;
use crate::scenario::{Library, SCENARIOS, Scenario};
use crate::schedule::Schedule;
use crate::shrink::Shrinker;
use crate::simulation::run;
use seatrial_sim::same_twice;

fn scenario(library: Library, name: &str) -> &'static Scenario {
    let found = SCENARIOS
        .iter()
        .find(|scenario| scenario.library == library && scenario.name == name);
    found.expect("a scenario of this name")
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for library in [Library::OmniPaxos, Library::Raft] {
        let scenario = scenario(library, "clean");
        let mut fingerprints = Vec::new();
        for seed in 1..=5 {
            let schedule = Schedule::draw(scenario, seed);
            fingerprints.push(same_twice(seed, |_| {
                run(scenario, &schedule, false).fingerprint
            }));
        }
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), 5, "another seed is another run");
    }
}

#[test]
fn a_trace_changes_nothing() {
    let scenario = scenario(Library::OmniPaxos, "clean");
    let schedule = Schedule::draw(scenario, 7);
    let (with, without) = (
        run(scenario, &schedule, true),
        run(scenario, &schedule, false),
    );
    assert_eq!(with.fingerprint, without.fingerprint);
    assert!(!with.lines.is_empty() && without.lines.is_empty());
}

#[test]
fn a_schedule_is_shortened_until_each_step_is_needed() {
    let scenario = scenario(Library::OmniPaxos, "delta-snapshot");
    let schedule = Schedule::draw(scenario, 1);
    let failure = run(scenario, &schedule, false)
        .failure
        .expect("seed 1 fails");
    assert_eq!(failure.kind, FailureKind::LostState);
    let shortest = Shrinker::new(scenario, failure.kind, schedule.clone()).shrink();
    assert!(
        schedule.steps.len() > 100 && shortest.steps.len() < 10,
        "{shortest}"
    );
    let again = run(scenario, &shortest, false).failure;
    assert_eq!(
        again.map(|failure| failure.kind),
        Some(FailureKind::LostState)
    );
    for left_out in 0..shortest.steps.len() {
        let mut shorter = shortest.clone();
        shorter.steps.remove(left_out);
        let failure = run(scenario, &shorter, false).failure;
        assert!(failure.is_none_or(|failure| failure.kind != FailureKind::LostState));
    }
}
