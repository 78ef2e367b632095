//! Disks in trouble, disturbed links, and whether a fault bit.

use super::*;
use seatrial_machine::DiskTrouble;

/// Increments, and lets everything happen; the count that was answered.
fn increment(world: &mut World<Counter>, ticket: u64) -> Option<u64> {
    world.request(A, Ticket(ticket), Ask::Increment);
    settle(world);
    let replies: Vec<_> = world.drain_replies().collect();
    replies.last().map(|(_, _, count)| *count)
}

fn disk(trouble: DiskTrouble) -> Fault {
    Fault::Disk { node: A, trouble }
}

#[test]
fn a_node_that_cannot_write_goes_down_and_comes_back_when_it_can() {
    for trouble in [DiskTrouble::WriteErrors, DiskTrouble::NoSpace] {
        let mut world = world(3, WorldOptions::default(), false);
        assert_eq!(increment(&mut world, 1), Some(1));
        assert!(world.apply(&disk(trouble)));
        assert!(world.machine(A).is_some(), "nothing was written yet");
        assert_eq!(increment(&mut world, 2), None);
        assert!(world.machine(A).is_none(), "{trouble:?}");
        assert!(world.apply(&Fault::Restart(A)), "it reads its log");
        assert_eq!(increment(&mut world, 3), None);
        assert!(world.apply(&Fault::MendDisk(A)));
        assert!(!world.apply(&Fault::MendDisk(A)), "nothing was wrong");
        assert!(world.apply(&Fault::Restart(A)));
        // What was never acknowledged may have been kept or lost.
        assert!(increment(&mut world, 4).is_some_and(|count| (2..=4).contains(&count)));
    }
}

#[test]
fn a_log_that_cannot_be_read_keeps_its_node_down() {
    let boot = |_, disk: &dyn Disk| {
        let mut bytes = vec![0; disk.len() as usize];
        let read = disk.read_at(0, &mut bytes);
        read.map_err(|error| error.to_string())?;
        Ok(Counter::boot(disk, false))
    };
    let mut world = World::new(1, WorldOptions::default(), boot);
    world.add(A);
    assert_eq!(increment(&mut world, 1), Some(1));
    world.apply(&Fault::Kill(A));
    world.apply(&disk(DiskTrouble::ReadErrors));
    assert!(!world.apply(&Fault::Restart(A)));
    assert!(
        world.take_boot_failures().is_empty(),
        "it is no failure of its own"
    );
    world.calm();
    assert_eq!(increment(&mut world, 2), Some(2));
}

#[test]
fn a_slow_disk_is_slow() {
    let mut world = world(1, WorldOptions::default(), false);
    world.apply(&disk(DiskTrouble::Slow(Duration::from_secs(1))));
    world.request(A, Ticket(1), Ask::Increment);
    world.run_until(Time::from_milliseconds(999));
    assert_eq!(world.drain_replies().count(), 0);
    world.run_until(Time::from_milliseconds(1_010));
    assert_eq!(world.drain_replies().count(), 1);
}

#[test]
fn without_power_nothing_stays_that_was_not_synced() {
    let mut options = WorldOptions::default();
    options.disk.crash_loses_all = 0.0;
    let kept = |fault: &Fault, options: &WorldOptions| -> usize {
        let kept = |seed| {
            let mut world = world(seed, options.clone(), false);
            for ticket in 0..10 {
                world.request(A, Ticket(ticket), Ask::Increment);
            }
            world.apply(fault);
            world.durable(A).len()
        };
        (0..50).map(kept).sum()
    };
    assert!(kept(&Fault::Kill(A), &options) > 0);
    assert_eq!(kept(&Fault::LoseUnsynced(A), &options), 0);
}

#[test]
fn durable_bytes_can_be_cut_off_and_put_back() {
    let mut world = world(1, WorldOptions::default(), false);
    increment(&mut world, 1);
    assert!(!world.apply(&Fault::Restore(A)), "there is no copy");
    assert!(world.apply(&Fault::Snapshot(A)));
    for ticket in 2..=5 {
        increment(&mut world, ticket);
    }
    assert!(
        !world.apply(&Fault::Truncate { node: A, bytes: 2 }),
        "it runs"
    );
    world.apply(&Fault::Kill(A));
    assert!(world.apply(&Fault::Truncate { node: A, bytes: 2 }));
    assert_eq!(world.durable(A).len(), 3);
    assert!(world.apply(&Fault::Restore(A)));
    assert_eq!(world.durable(A).len(), 1);
    assert!(!world.apply(&Fault::Restore(A)), "it is so already");
    world.apply(&Fault::Restart(A));
    assert_eq!(increment(&mut world, 9), Some(2));
}

/// How many of a thousand messages arrive, and when the last does.
fn tell(how: Disturbance) -> (u64, Time) {
    let mut world = world(5, WorldOptions::default(), false);
    let links = vec![Link { from: A, to: B }];
    world.apply(&Fault::Disturb { links, how });
    for ticket in 0..1_000 {
        world.request(A, Ticket(ticket), Ask::Tell(B));
    }
    let mut last = Time::ZERO;
    let mut arrived = 0;
    while world.step() {
        if count(&world, B) > arrived {
            (arrived, last) = (count(&world, B), world.now());
        }
    }
    (arrived, last)
}

#[test]
fn disturbed_links_lose_hold_back_and_narrow() {
    let (arrived, _) = tell(Disturbance::Lose { percent: 20 });
    assert!((700..900).contains(&arrived), "{arrived}");
    let delay = Duration::from_secs(1);
    let (arrived, last) = tell(Disturbance::Reorder { percent: 5, delay });
    assert_eq!(arrived, 1_000);
    assert!(last >= Time::ZERO + delay, "{last}");
    // Messages of nine bytes: nine thousand bytes at 900 a second.
    let (arrived, last) = tell(Disturbance::Throttle {
        bytes_per_second: 900,
    });
    assert_eq!(arrived, 1_000);
    assert!((9.9..10.1).contains(&last.seconds()), "{last}");
}

#[test]
fn what_changes_nothing_says_so() {
    let mut world = world(1, WorldOptions::default(), false);
    let nobody = NodeId::server(99);
    let cut = Fault::Cut(Link::both(A, B).into());
    for (fault, bites) in [
        (Fault::Heal, false),
        (Fault::Calm, false),
        (cut, true),
        (Fault::Heal, true),
        (Fault::Pause(A), true),
        (Fault::Pause(A), false),
        (Fault::Resume(A), true),
        (Fault::Resume(A), false),
        (Fault::Restart(A), false),
        (Fault::Kill(A), true),
        (Fault::Kill(A), false),
        (Fault::Pause(A), false),
        (Fault::Restart(A), true),
        (Fault::Kill(nobody), false),
        (Fault::Join(A), false),
        (Fault::Reset(Link::both(A, nobody).into()), false),
        (Fault::Reset(Link::both(A, B).into()), true),
    ] {
        assert_eq!(world.apply(&fault), bites, "{fault:?}");
    }
}
