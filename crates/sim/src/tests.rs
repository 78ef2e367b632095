//! Toy machines in rough worlds.

mod logs;
mod rally;
mod trouble;

use crate::{Booted, World, WorldOptions, explore, same_twice};
use seatrial_machine::{
    Computed, DataFolder, Disk, Disturbance, Fault, FaultKind, Input, Job, Link, LogName, Machine,
    NodeId, Output, Rng, Ticket, Time,
};
use std::time::Duration;

/// A counter with a log of one byte per increment. Requests and messages increment; the answer is the new count.
struct SimulatedCounter {
    count: u64,
    waiting: Vec<(Ticket, u64)>,
    /// The planted bug: answers before the byte is durable.
    hasty: bool,
    alarm: Option<Time>,
    alarms: u64,
}

impl SimulatedCounter {
    fn boot(data: &DataFolder, hasty: bool) -> Booted<SimulatedCounter> {
        let count = data.log(LogName::MAIN).unwrap().len();
        let machine = SimulatedCounter {
            count,
            waiting: Vec::new(),
            hasty,
            alarm: None,
            alarms: 0,
        };
        Booted::with_log(machine, count)
    }
}

struct Square(u64);

impl Job for Square {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.0 * self.0)
    }
}

enum Ask {
    Increment,
    Greet(NodeId),
    Alarm(Time),
    Square(u64),
}

impl Machine for SimulatedCounter {
    type Request = Ask;
    type Reply = u64;

    fn turn(&mut self, now: Time, input: Input<Ask>, out: &mut Vec<Output<u64>>) {
        match input {
            Input::Request(ticket, Ask::Increment) => {
                self.count += 1;
                out.push(append(ticket));
                if self.hasty {
                    out.push(Output::Reply(ticket, self.count));
                } else {
                    self.waiting.push((ticket, self.count));
                }
            }
            Input::Request(_, Ask::Greet(to)) => out.push(Output::Send {
                to,
                message: vec![1; 9],
            }),
            Input::Request(_, Ask::Alarm(time)) => self.alarm = Some(time),
            Input::Request(ticket, Ask::Square(side)) => {
                out.push(Output::Compute(Box::new(Square(side)), ticket));
            }
            Input::Message { .. } => self.count += 1,
            Input::Appended(ticket) => {
                if let Some(place) = self.waiting.iter().position(|(known, _)| *known == ticket) {
                    let (ticket, count) = self.waiting.remove(place);
                    out.push(Output::Reply(ticket, count));
                }
            }
            Input::Computed(ticket, result) => {
                let result = result.downcast::<u64>().unwrap();
                out.push(Output::Reply(ticket, *result));
            }
            Input::Wake | Input::FileDone(..) => {}
        }
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            self.alarm = None;
            self.alarms += 1;
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.alarm
    }
}

/// A byte more for the log.
fn append<P>(ticket: Ticket) -> Output<P> {
    Output::Append {
        log: LogName::MAIN,
        bytes: vec![b'+'],
        ticket,
    }
}

/// Durable bytes of the log of the first node.
fn log_length<M: Machine>(world: &World<M>) -> usize {
    world.durable(A).get("log").map_or(0, <[u8]>::len)
}

const A: NodeId = NodeId::server(1);
const B: NodeId = NodeId::server(2);

fn world(seed: u64, options: WorldOptions, hasty: bool) -> World<SimulatedCounter> {
    let mut world = World::new(seed, options, move |_, data: &DataFolder| {
        Ok(SimulatedCounter::boot(data, hasty))
    });
    world.add(A);
    world.add(B);
    world
}

fn settle(world: &mut World<SimulatedCounter>) {
    while world.step() {}
}

fn count(world: &World<SimulatedCounter>, node: NodeId) -> u64 {
    world.machine(node).unwrap().count
}

/// Increments, kills and restarts at random; every acknowledged increment must survive.
fn loses_nothing(seed: u64, hasty: bool) -> Result<(), String> {
    let mut rng = Rng::from_seed(seed);
    let options = WorldOptions::swarm(&mut rng.fork("swarm"), &[FaultKind::Kill]);
    let mut world = world(seed, options, hasty);
    let mut acknowledged = 0;
    for ticket in 0..200 {
        world.request(A, Ticket(ticket), Ask::Increment);
        let until = world.now() + rng.duration_below(Duration::from_millis(2));
        world.run_until(until);
        acknowledged = world
            .drain_replies()
            .map(|(_, _, count)| count)
            .fold(acknowledged, u64::max);
        if rng.chance(0.1) {
            world.apply(&Fault::Kill(A));
            world.apply(&Fault::Restart(A));
            let found = count(&world, A);
            if found < acknowledged {
                return Err(format!("{acknowledged} acknowledged, {found} left"));
            }
            acknowledged = acknowledged.max(found);
        }
    }
    Ok(())
}

#[test]
fn acknowledged_appends_survive_kills() {
    let found = explore(0..300, |seed| loses_nothing(seed, false));
    assert_eq!((found.tried, found.failure), (300, None));
}

#[test]
fn the_planted_haste_is_found_within_20_seeds() {
    let found = explore(0..20, |seed| loses_nothing(seed, true));
    assert!(
        found.failure.is_some(),
        "not found in {} seeds",
        found.tried
    );
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_gives_others() {
    let run = |seed| {
        let kinds = FaultKind::ALL;
        let options = WorldOptions::swarm(&mut Rng::from_seed(seed), &kinds);
        let mut world = world(seed, options, false);
        world.keep_trace();
        for ticket in 0..50 {
            world.request(A, Ticket(ticket), Ask::Increment);
            world.request(A, Ticket(ticket), Ask::Greet(B));
        }
        settle(&mut world);
        (world.fingerprint(), world.trace().join("\n"))
    };
    for seed in 0..20 {
        same_twice(seed, run);
    }
    assert_ne!(run(1), run(2));
}

#[test]
fn a_cut_stops_one_direction_until_it_is_healed() {
    let mut world = world(1, WorldOptions::default(), false);
    world.apply(&Fault::Cut(vec![Link { from: A, to: B }]));
    world.request(A, Ticket(0), Ask::Greet(B));
    world.request(B, Ticket(0), Ask::Greet(A));
    settle(&mut world);
    assert_eq!((count(&world, A), count(&world, B)), (1, 0));
    world.apply(&Fault::Heal);
    world.request(A, Ticket(1), Ask::Greet(B));
    settle(&mut world);
    assert_eq!(count(&world, B), 1);
}

#[test]
fn a_cut_and_a_reset_stop_messages_in_flight() {
    for fault in [
        Fault::Cut(Link::both(A, B).into()),
        Fault::Reset(Link::both(A, B).into()),
    ] {
        let mut world = world(1, WorldOptions::default(), false);
        world.request(A, Ticket(0), Ask::Greet(B));
        world.apply(&fault);
        settle(&mut world);
        assert_eq!(count(&world, B), 0, "{fault:?}");
    }
}

#[test]
fn slow_links_are_slow() {
    let mut world = world(1, WorldOptions::default(), false);
    let (delay, jitter) = (Duration::from_millis(300), Duration::from_millis(20));
    world.apply(&Fault::Disturb {
        links: Link::both(A, B).into(),
        how: Disturbance::Slow { delay, jitter },
    });
    world.request(A, Ticket(0), Ask::Greet(B));
    world.run_until(Time::from_milliseconds(280));
    assert_eq!(count(&world, B), 0);
    world.run_until(Time::from_milliseconds(321));
    assert_eq!(count(&world, B), 1);
}

#[test]
fn losses_and_repetitions_have_their_probability() {
    let mut options = WorldOptions::default();
    options.network.loss = 0.2;
    let mut lossy = world(1, options.clone(), false);
    (options.network.loss, options.network.duplication) = (0.0, 0.2);
    let mut repeating = world(1, options, false);
    for world in [&mut lossy, &mut repeating] {
        for ticket in 0..10_000 {
            world.request(A, Ticket(ticket), Ask::Greet(B));
        }
        settle(world);
    }
    assert!(
        (7_800..8_200).contains(&count(&lossy, B)),
        "{}",
        count(&lossy, B)
    );
    assert!(
        (11_800..12_200).contains(&count(&repeating, B)),
        "{}",
        count(&repeating, B)
    );
}

#[test]
fn a_paused_node_hears_nothing_until_it_is_resumed() {
    let mut world = world(1, WorldOptions::default(), false);
    world.apply(&Fault::Pause(B));
    world.request(A, Ticket(0), Ask::Greet(B));
    world.request(B, Ticket(7), Ask::Increment);
    world.run_until(Time::from_milliseconds(100));
    assert_eq!(count(&world, B), 0);
    world.apply(&Fault::Resume(B));
    settle(&mut world);
    assert_eq!(count(&world, B), 2);
    assert_eq!(world.drain_replies().count(), 1);
}

#[test]
fn a_dead_node_takes_no_requests_and_its_pending_work_dies_with_it() {
    let mut world = world(1, WorldOptions::default(), false);
    world.request(A, Ticket(1), Ask::Increment);
    world.request(A, Ticket(2), Ask::Alarm(Time::from_milliseconds(5)));
    world.request(A, Ticket(3), Ask::Square(3));
    world.apply(&Fault::Kill(A));
    assert!(!world.request(A, Ticket(4), Ask::Increment));
    world.apply(&Fault::Restart(A));
    settle(&mut world);
    assert_eq!(
        world.drain_replies().count(),
        0,
        "answers of an earlier start"
    );
    assert_eq!(world.machine(A).unwrap().alarms, 0);
}

#[test]
fn jobs_and_alarms_come_back() {
    let mut world = world(1, WorldOptions::default(), false);
    world.request(A, Ticket(3), Ask::Square(12));
    world.request(A, Ticket(2), Ask::Alarm(Time::from_milliseconds(5)));
    world.run_until(Time::from_milliseconds(4));
    assert_eq!(world.machine(A).unwrap().alarms, 0);
    settle(&mut world);
    assert_eq!(world.machine(A).unwrap().alarms, 1);
    assert_eq!(
        world.drain_replies().collect::<Vec<_>>(),
        [(A, Ticket(3), 144)]
    );
}

#[test]
fn a_skewed_clock_rings_early() {
    let mut world = world(1, WorldOptions::default(), false);
    world.request(A, Ticket(2), Ask::Alarm(Time::from_milliseconds(1_000)));
    world.apply(&Fault::Skew {
        node: A,
        offset_ns: 600_000_000,
        rate_ppm: 0,
    });
    world.run_until(Time::from_milliseconds(401));
    assert_eq!(world.machine(A).unwrap().alarms, 1);
}

#[test]
fn a_crash_keeps_synced_bytes_and_at_most_the_appended_ones() {
    let mut torn = 0;
    for seed in 0..200 {
        let mut options = WorldOptions::default();
        options.disk.torn_write = 0.5;
        options.disk.sync_min = Duration::from_millis(10);
        let mut world = world(seed, options, false);
        for ticket in 0..3 {
            world.request(A, Ticket(ticket), Ask::Increment);
        }
        world.run_until(Time::from_milliseconds(12));
        let synced = log_length(&world);
        assert!(synced > 0, "the first sync is over");
        for ticket in 3..10 {
            world.request(A, Ticket(ticket), Ask::Increment);
        }
        world.apply(&Fault::Kill(A));
        let left = log_length(&world);
        assert!(
            (synced..=10).contains(&left),
            "seed {seed}: {left} of {synced}"
        );
        torn += usize::from(left > synced && left < 10);
    }
    assert!(torn > 20, "only {torn} crashes kept a part");
}

#[test]
fn bits_rot_and_a_node_that_cannot_start_is_reported() {
    let mut world = World::new(1, WorldOptions::default(), |node, data: &DataFolder| {
        let disk = data.log(LogName::MAIN).unwrap();
        let mut bytes = vec![0; disk.len() as usize];
        disk.read_at(0, &mut bytes).unwrap();
        if bytes.iter().any(|&byte| byte != b'+') {
            return Err(format!("{node}: damaged"));
        }
        Ok(SimulatedCounter::boot(data, false))
    });
    world.add(A);
    world.request(A, Ticket(1), Ask::Increment);
    while world.step() {}
    world.apply(&Fault::BitRot { node: A, bits: 1 });
    world.apply(&Fault::Kill(A));
    world.apply(&Fault::Restart(A));
    assert_eq!(world.take_boot_failures(), [(A, "n1: damaged".to_owned())]);
    assert!(world.machine(A).is_none());
}

#[test]
fn a_log_that_is_said_to_be_longer_than_the_disk_is_refused() {
    let mut world = World::new(1, WorldOptions::default(), |_, data: &DataFolder| {
        let mut booted = SimulatedCounter::boot(data, false);
        booted.logs[0].end += 1;
        Ok(booted)
    });
    world.add(A);
    let reason =
        "log log has no bytes at 1: its boot returned this end (it is from 0 to 0)".to_owned();
    assert_eq!(world.take_boot_failures(), [(A, reason)]);
}

#[test]
fn many_held_messages_do_not_crowd_out_the_disk() {
    let mut options = WorldOptions::default();
    options.disk.sync_min = Duration::from_secs(1);
    let mut world = world(1, options, false);
    world.request(B, Ticket(0), Ask::Increment);
    world.apply(&Fault::Pause(B));
    for ticket in 0..70_000 {
        world.request(A, Ticket(ticket), Ask::Greet(B));
    }
    world.run_until(Time::from_milliseconds(2_000));
    world.apply(&Fault::Resume(B));
    settle(&mut world);
    assert_eq!(count(&world, B), 1 + 65_536, "a bound on what is held");
    assert_eq!(world.lost_messages().held_max, 70_000 - 65_536);
    let replies: Vec<_> = world.drain_replies().collect();
    assert_eq!(replies, [(B, Ticket(0), 1)]);
}

#[test]
fn a_finished_sync_may_be_answered_for_its_last_append_alone() {
    for (answer_last, answers) in [(0.0, 10), (1.0, 2)] {
        let mut options = WorldOptions::default();
        options.disk.answer_last = answer_last;
        let mut world = world(1, options, false);
        for ticket in 0..10 {
            world.request(A, Ticket(ticket), Ask::Increment);
        }
        settle(&mut world);
        // The first append begins a sync of its own, the other nine share the second one.
        let last = world.drain_replies().map(|(_, ticket, _)| ticket.0);
        let last: Vec<u64> = last.collect();
        assert_eq!((last.len(), last.last()), (answers, Some(&9)), "{last:?}");
    }
}

#[test]
fn a_node_that_starts_again_begins_at_time_zero() {
    let mut world = world(1, WorldOptions::default(), false);
    world.run_until(Time::from_milliseconds(700));
    world.apply(&Fault::Kill(A));
    world.apply(&Fault::Restart(A));
    world.request(A, Ticket(0), Ask::Alarm(Time::from_milliseconds(300)));
    world.run_until(Time::from_milliseconds(999));
    assert_eq!(world.machine(A).unwrap().alarms, 0);
    world.run_until(Time::from_milliseconds(1_000));
    assert_eq!(world.machine(A).unwrap().alarms, 1);
}

#[test]
fn a_wake_up_at_the_end_of_time_never_comes() {
    let mut world = world(1, WorldOptions::default(), false);
    world.request(A, Ticket(0), Ask::Alarm(Time::MAX));
    settle(&mut world);
    assert_eq!(world.machine(A).unwrap().alarms, 0);
    assert_eq!(world.now(), Time::ZERO);
}

/// Asks for the same wake-up whatever happens.
struct Sleepless;

impl Machine for Sleepless {
    type Request = ();
    type Reply = ();
    fn turn(&mut self, _: Time, _: Input<()>, _: &mut Vec<Output<()>>) {}
    fn wake_at(&self) -> Option<Time> {
        Some(Time::from_milliseconds(3))
    }
}

#[test]
#[should_panic(expected = "n1 was woken 10000 times at 0.003 s and still asks for it")]
fn a_machine_that_never_rests_is_found_out() {
    let mut world = World::new(1, WorldOptions::default(), |_, _: &DataFolder| {
        Ok(Booted::new(Sleepless))
    });
    world.add(A);
    world.run_until(Time::from_milliseconds(10));
}

#[test]
fn a_message_of_a_node_to_itself_is_not_the_networks_business() {
    let mut options = WorldOptions::default();
    (options.network.loss, options.network.duplication) = (1.0, 1.0);
    let mut world = world(1, options, false);
    world.apply(&Fault::Cut(vec![Link { from: A, to: A }]));
    world.request(A, Ticket(0), Ask::Greet(A));
    settle(&mut world);
    assert_eq!(count(&world, A), 1);
}

#[test]
fn swarms_differ_and_each_misbehaviour_is_off_in_some() {
    let swarms: Vec<_> = (0..100)
        .map(|seed| WorldOptions::swarm(&mut Rng::from_seed(seed), &FaultKind::ALL))
        .collect();
    for strength in [
        (|options| options.network.loss) as fn(&WorldOptions) -> f64,
        |options| options.network.duplication,
        |options| options.disk.torn_write,
        |options| f64::from(options.drift_ppm_max),
    ] {
        let on = swarms
            .iter()
            .filter(|options| strength(options) > 0.0)
            .count();
        assert!((25..75).contains(&on), "{on} of 100");
    }
    let quiet = WorldOptions::swarm(&mut Rng::from_seed(3), &[]);
    assert_eq!((quiet.network.loss, quiet.drift_ppm_max), (0.0, 0));
}
