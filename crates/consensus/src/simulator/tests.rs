//! Runs of the simulator: clean ones, and planted bugs that it must find.

use super::{ConsensusBug, ConsensusSimulation, Scenario, node};
use crate::rule::WrapperRule;
use crate::{
    CachedLog, Config, Consensus, EntryLog, LogEntry, Members, Payload, Role, SnapshotMark,
    StartPoint, Vote,
};
use seatrial_farm::seeds;
use seatrial_machine::Time;
use std::sync::Once;
use std::time::Duration;

/// Three founding voters, moderate faults.
pub(crate) const THREE: Scenario = Scenario {
    voters: 3,
    spares: 0,
    loss: 0.05,
    repetition: 0.02,
    overtaking: 0.05,
    sync_max: 40,
    faults_end: 4_000,
    checkpoint_every: 40,
    bug: None,
};

/// Panics of the library are expected and contained: they are not printed.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_library = info
                .location()
                .is_some_and(|at| at.file().contains("/raft-0"));
            if !is_library {
                print(info);
            }
        }));
    });
}

fn run_clean(name: &str, scenario: Scenario, count: u64) {
    quiet_panics();
    let (mut reads, mut changes, mut installs, mut fetches) = (0, 0, 0, 0);
    let mut positions = 0;
    for seed in 0..count {
        let mut world = ConsensusSimulation::new(scenario, seed);
        if let Err(text) = world.run() {
            panic!("{name}: seed {seed}: {text}");
        }
        reads += world.reads;
        changes += world.changes;
        installs += world.installs;
        fetches += world.fetches;
        positions += world.decided.len();
    }
    println!(
        "{name}: {count} seeds, {positions} positions, {reads} reads, {changes} membership changes, \
         {installs} checkpoints installed, {fetches} fetches"
    );
}

/// The first seed below `budget` that finds the bug, and what it found.
fn find(bug: ConsensusBug, scenario: Scenario, budget: u64) -> (u64, String) {
    quiet_panics();
    let scenario = Scenario {
        bug: Some(bug),
        ..scenario
    };
    for seed in 0..budget {
        if let Err(text) = ConsensusSimulation::new(scenario, seed).run() {
            println!("{bug:?}: seed {seed}: {text}");
            return (seed, text);
        }
    }
    panic!("{bug:?} not found in {budget} seeds");
}

#[test]
fn one_node() {
    run_clean("1 node", Scenario { voters: 1, ..THREE }, seeds(20));
}

#[test]
fn three_nodes() {
    run_clean("3 nodes", THREE, seeds(60));
}

#[test]
fn three_nodes_bad_network() {
    let bad = Scenario {
        loss: 0.1,
        repetition: 0.1,
        overtaking: 0.3,
        ..THREE
    };
    run_clean("3 nodes, bad network", bad, seeds(40));
}

#[test]
fn five_nodes() {
    run_clean("5 nodes", Scenario { voters: 5, ..THREE }, seeds(20));
}

#[test]
fn seven_nodes() {
    run_clean("7 nodes", Scenario { voters: 7, ..THREE }, seeds(10));
}

#[test]
fn membership_changes() {
    run_clean(
        "3 nodes and 2 spares",
        Scenario { spares: 2, ..THREE },
        seeds(40),
    );
    let many = Scenario {
        voters: 5,
        spares: 2,
        repetition: 0.1,
        overtaking: 0.2,
        ..THREE
    };
    run_clean("5 nodes and 2 spares", many, seeds(10));
}

#[test]
fn laggards_by_checkpoint() {
    run_clean(
        "checkpoints every 5 entries",
        Scenario {
            checkpoint_every: 5,
            ..THREE
        },
        seeds(40),
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |bug| {
        let mut world = ConsensusSimulation::new(
            Scenario {
                bug,
                spares: 2,
                ..THREE
            },
            7,
        );
        world.run().expect("a clean run");
        world.trace
    };
    assert_eq!(trace(None), trace(None));
}

#[test]
fn rule_1_pinned_timeouts() {
    let trace = || {
        let bug = Some(ConsensusBug::Without(WrapperRule::PinnedTimeouts));
        let mut world = ConsensusSimulation::new(Scenario { bug, ..THREE }, 7);
        let _ = world.run();
        world.trace
    };
    assert_ne!(
        trace(),
        trace(),
        "the library draws its own election timeouts"
    );
}

#[test]
fn rule_2_applied_after_persisted() {
    let often = Scenario {
        checkpoint_every: 5,
        ..THREE
    };
    let found = find(
        ConsensusBug::Without(WrapperRule::AppliedAfterPersisted),
        often,
        60,
    )
    .1;
    assert!(found.contains("out of range"), "{found}");
}

#[test]
fn rule_3_quiet_install() {
    let often = Scenario {
        checkpoint_every: 5,
        ..THREE
    };
    find(ConsensusBug::Without(WrapperRule::QuietInstall), often, 100);
}

#[test]
fn rule_4_compact_applied() {
    let often = Scenario {
        checkpoint_every: 3,
        ..THREE
    };
    find(
        ConsensusBug::Without(WrapperRule::CompactApplied),
        often,
        60,
    );
}

#[test]
fn rule_5_removed_leader() {
    find(
        ConsensusBug::Without(WrapperRule::RemovedLeader),
        Scenario { spares: 2, ..THREE },
        100,
    );
}

#[test]
fn rule_6_snapshot_timeout() {
    let often = Scenario {
        checkpoint_every: 5,
        loss: 0.1,
        ..THREE
    };
    let found = find(
        ConsensusBug::Without(WrapperRule::SnapshotTimeout),
        often,
        100,
    )
    .1;
    assert!(found.contains("no progress"), "{found}");
}

#[test]
fn rule_7_known_member() {
    let rare = Scenario {
        checkpoint_every: 100,
        spares: 2,
        ..THREE
    };
    let found = find(ConsensusBug::Without(WrapperRule::KnownMember), rare, 200).1;
    assert!(found.contains("no progress"), "{found}");
}

#[test]
fn messages_not_held_are_found() {
    find(ConsensusBug::Without(WrapperRule::HeldMessages), THREE, 40);
}

#[test]
fn a_forgotten_vote_is_found() {
    find(ConsensusBug::VoteForgotten, THREE, 200);
}

#[test]
fn a_commit_without_quorum_is_found() {
    find(ConsensusBug::CommitWithoutQuorum, THREE, 20);
}

#[test]
fn a_missing_sync_is_found() {
    find(ConsensusBug::MissingSync, THREE, 100);
}

#[test]
fn a_stale_read_is_found() {
    find(ConsensusBug::StaleRead, THREE, 60);
}

/// Entry 5 is known to be committed, though the durable vote says 2 and no leader says more.
#[test]
fn a_member_that_rejoined_campaigns_with_the_log_of_its_grant() {
    let campaigns = |campaign_after| {
        let entry = |index| LogEntry {
            index,
            term: 3,
            payload: Payload::Empty,
        };
        let mut log = CachedLog::new(2, 3, 512);
        log.append(&[3, 4, 5].map(entry));
        let checkpoint = SnapshotMark {
            index: 2,
            term: 3,
            members: Members::of_voters([0, 1, 2].map(node)),
            ..SnapshotMark::default()
        };
        let vote = Vote {
            term: 3,
            vote: None,
            commit: 2,
        };
        let mut config = Config::new(node(0), 1, 1);
        config.campaign_after = campaign_after;
        let mut core = Consensus::new(config, StartPoint { checkpoint, vote }, log).unwrap();
        for tick in 1..100 {
            let now = Time::ZERO + Duration::from_millis(50 * tick);
            core.tick(now).unwrap();
            while let Some(ready) = core.ready().unwrap() {
                if let Some(write) = ready.persist {
                    core.persisted(write.ticket).unwrap();
                }
                if let Some(last) = ready.committed.last() {
                    core.applied(last.entry.index).unwrap();
                }
            }
        }
        core.status().role == Role::PreCandidate
    };
    assert!(campaigns(0) && campaigns(5));
    assert!(!campaigns(6), "its log may lack changes of the membership");
}
