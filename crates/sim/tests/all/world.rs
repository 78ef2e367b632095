//! Three replicas under faults: no answered command is lost, all agree, and all make progress after the faults.

use crate::replica::{BUGS, Counts, LEADER, NODES, Replica, ReplicaBug};
use seatrial_farm::least;
use seatrial_machine::{DataFolder, DiskTrouble, Fault, FaultKind, Link, NodeId, Rng, Ticket};
use seatrial_sim::{World, WorldOptions, explore, same_twice};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Steps of a run, each with a number to add or a fault.
const STEPS: u64 = 300;

struct Run {
    world: World<Replica>,
    rng: Rng,
    answered: BTreeSet<u64>,
    /// Digest of each index, of the first replica that had it.
    digests: BTreeMap<u64, u64>,
    counts: Counts,
    kills: u64,
}

impl Run {
    fn new(seed: u64, bug: Option<ReplicaBug>) -> Run {
        let mut rng = Rng::from_seed(seed).fork("run");
        let options = WorldOptions::swarm(&mut rng, &FaultKind::ALL);
        let boot = move |id, data: &DataFolder| Replica::boot(id, data, bug);
        let mut world = World::new(seed, options, boot);
        for node in NODES {
            world.add(node);
        }
        Run {
            world,
            rng,
            answered: BTreeSet::new(),
            digests: BTreeMap::new(),
            counts: Counts::default(),
            kills: 0,
        }
    }

    fn node(&mut self) -> NodeId {
        *self.rng.pick(&NODES)
    }

    /// Breaks or mends something.
    fn disturb(&mut self) {
        let node = self.node();
        let other = self.node();
        let faults = match self.rng.below(12) {
            0 | 1 => vec![Fault::Kill(node)],
            2 => vec![Fault::LoseUnsynced(node)],
            3 => NODES.map(Fault::LoseUnsynced).to_vec(),
            4 => vec![Fault::Pause(node)],
            5 if node != other => vec![Fault::Cut(Link::both(node, other).to_vec())],
            6 => vec![Fault::Disk {
                node,
                trouble: *self.rng.pick(&[
                    DiskTrouble::NoSpace,
                    DiskTrouble::WriteErrors,
                    DiskTrouble::ReadErrors,
                    DiskTrouble::Slow(Duration::from_millis(20)),
                ]),
            }],
            _ => vec![Fault::Heal, Fault::MendDisk(node), Fault::Resume(node)],
        };
        for fault in faults {
            // A machine's work is counted when it ends.
            if let Fault::Kill(node) | Fault::LoseUnsynced(node) = fault {
                self.count(node);
                self.kills += 1;
            }
            self.world.apply(&fault);
        }
        for node in NODES {
            if self.rng.chance(0.5) {
                self.world.apply(&Fault::Restart(node));
            }
        }
    }

    fn count(&mut self, node: NodeId) {
        if let Some(machine) = self.world.machine(node) {
            self.counts.published += machine.counts.published;
            self.counts.installed += machine.counts.installed;
            self.counts.failed += machine.counts.failed;
        }
    }

    /// Moves on, and looks at what there is to see.
    fn advance(&mut self, time: Duration) -> Result<(), String> {
        let until = self.world.now() + time;
        while self.world.next_time().is_some_and(|next| next <= until) {
            self.world.step();
            for node in NODES {
                let Some(machine) = self.world.machine(node) else {
                    continue;
                };
                let state = &machine.state;
                let digest = *self.digests.entry(state.index).or_insert(state.digest);
                if digest != state.digest {
                    return Err(format!("{node} has another state {}", state.index));
                }
            }
        }
        self.world.run_until(until);
        self.answered
            .extend(self.world.drain_replies().map(|(_, _, number)| number));
        match self.world.take_boot_failures().pop() {
            Some((node, reason)) => Err(format!("{node} does not start: {reason}")),
            None => Ok(()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for number in 0..STEPS {
            if self.rng.chance(0.8) {
                self.world.request(LEADER, Ticket(number), number);
            } else {
                self.disturb();
            }
            let pause = self.rng.duration_below(Duration::from_millis(8));
            self.advance(pause)?;
        }
        self.world.calm();
        self.settle()?;
        let lost = |it: &u64| {
            let has = |node| {
                self.world
                    .machine(node)
                    .is_some_and(|at| at.state.numbers.contains(it))
            };
            !NODES.into_iter().all(has)
        };
        match self.answered.iter().find(|it| lost(it)) {
            Some(number) => Err(format!("{number} was answered and is lost")),
            None => Ok(()),
        }
    }

    /// Waits until all nodes have a number that is added after the trouble.
    fn settle(&mut self) -> Result<(), String> {
        for round in 0..400 {
            let last = STEPS + round;
            self.world.request(LEADER, Ticket(last), last);
            self.advance(Duration::from_millis(50))?;
            let states = NODES.map(|node| self.world.machine(node).map(|it| it.state.index));
            let are_equal = states.windows(2).all(|two| two[0] == two[1]);
            if are_equal && self.answered.contains(&last) {
                for node in NODES {
                    self.count(node);
                }
                return Ok(());
            }
        }
        let states = NODES.map(|node| self.world.machine(node).map(|it| it.state.index));
        Err(format!("they do not come together: {states:?}"))
    }
}

/// A run; a panic (of an invariant) is a failure like any other.
fn check(seed: u64, bug: Option<ReplicaBug>) -> Result<Run, String> {
    let run = || {
        let mut run = Run::new(seed, bug);
        run.check().map(|()| run)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "a panic".into()))
    })
}

#[test]
fn nothing_that_was_answered_is_lost_and_all_agree() {
    let (mut answered, mut kills, mut counts) = (0, 0, Counts::default());
    let exploration = explore(0..seatrial_farm::seeds(400), |seed| {
        let run = check(seed, None)?;
        answered += run.answered.len() as u64;
        kills += run.kills;
        counts.published += run.counts.published;
        counts.installed += run.counts.installed;
        counts.failed += run.counts.failed;
        Ok::<(), String>(())
    });
    println!("{answered} answered, {kills} kills, {counts:?}");
    assert_eq!(exploration.failure, None);
    assert!(
        answered > least(20_000) && kills > least(10_000),
        "{answered}, {kills}"
    );
    assert!(
        counts.published > least(2_000)
            && counts.installed > least(200)
            && counts.failed > least(50),
        "{counts:?}"
    );
}

#[test]
fn every_planted_bug_is_found_within_its_seeds() {
    for bug in BUGS {
        let found = explore(0..60, |seed| check(seed, Some(bug)).map(drop));
        println!("{bug:?}: {found:?}");
        let (seed, reason) = found.failure.expect("the bug is found");
        assert_eq!(
            check(seed, Some(bug)).err(),
            Some(reason),
            "the seed replays it"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in 0..5 {
        let (turns, _) = same_twice(seed, |seed| {
            let mut run = Run::new(seed, None);
            run.check().unwrap();
            (run.world.turns(), run.world.fingerprint())
        });
        assert!(turns > 500, "{turns}");
    }
}
