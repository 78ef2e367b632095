//! Disks in trouble, disturbed links, and whether a fault bit.

use super::*;
use crate::{FileTree, LostMessages};
use seatrial_machine::DiskTrouble;

/// Increments, and lets everything happen; the count that was answered.
fn increment(world: &mut World<SimulatedCounter>, ticket: u64) -> Option<u64> {
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
    let boot = |_, data: &DataFolder| {
        let disk = data.log(LogName::MAIN).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; disk.len() as usize];
        let read = disk.read_at(0, &mut bytes);
        read.map_err(|error| error.to_string())?;
        Ok(SimulatedCounter::boot(data, false))
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
            log_length(&world)
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
    assert_eq!(log_length(&world), 3);
    assert!(world.apply(&Fault::Restore(A)));
    assert_eq!(log_length(&world), 1);
    assert!(!world.apply(&Fault::Restore(A)), "it is so already");
    world.apply(&Fault::Restart(A));
    assert_eq!(increment(&mut world, 9), Some(2));
}

/// How many of a thousand messages arrive, and when the last does.
fn arrivals(how: Disturbance) -> (u64, Time) {
    let mut world = world(5, WorldOptions::default(), false);
    let links = vec![Link { from: A, to: B }];
    world.apply(&Fault::Disturb { links, how });
    for ticket in 0..1_000 {
        world.request(A, Ticket(ticket), Ask::Greet(B));
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
    let (arrived, _) = arrivals(Disturbance::Lose { percent: 20 });
    assert!((700..900).contains(&arrived), "{arrived}");
    let delay = Duration::from_secs(1);
    let (arrived, last) = arrivals(Disturbance::Reorder { percent: 5, delay });
    assert_eq!(arrived, 1_000);
    assert!(last >= Time::ZERO + delay, "{last}");
    // Messages of nine bytes: nine thousand bytes at 900 a second.
    let (arrived, last) = arrivals(Disturbance::Throttle {
        bytes_per_second: 900,
    });
    assert_eq!(arrived, 1_000);
    assert!((9.9..10.1).contains(&last.seconds()), "{last}");
}

#[test]
fn a_flapping_link_loses_messages_sent_while_it_is_down() {
    let mut world = world(5, WorldOptions::default(), false);
    let links = vec![Link { from: A, to: B }];
    let period = Duration::from_millis(10);
    let how = Disturbance::Flap { period };
    world.apply(&Fault::Disturb { links, how });
    // One message in the middle of each phase.
    let mut arrived = Vec::new();
    for phase in 0..6 {
        world.run_until(Time::ZERO + period * phase + period / 2);
        world.request(A, Ticket(u64::from(phase)), Ask::Greet(B));
        world.run_until(Time::ZERO + period * (phase + 1));
        arrived.push(count(&world, B));
    }
    assert_eq!(arrived, [0, 1, 1, 2, 2, 3]);
    assert!(world.apply(&Fault::Calm));
}

#[test]
fn what_changes_nothing_says_so() {
    let mut world = world(1, WorldOptions::default(), false);
    let unknown = NodeId::server(99);
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
        (Fault::Kill(unknown), false),
        (Fault::Join(A), false),
        (Fault::Reset(Link::both(A, unknown).into()), false),
        (Fault::Reset(Link::both(A, B).into()), true),
    ] {
        assert_eq!(world.apply(&fault), bites, "{fault:?}");
    }
}

/// Messages that A sends to B and to a node that is nowhere, and what became of them.
fn sent(queueing: f64, count: u64, heal_after: Duration) -> (u64, LostMessages) {
    let mut options = WorldOptions::default();
    options.network.queueing = queueing;
    let mut world = world(3, options, false);
    let send = |world: &mut World<SimulatedCounter>, to| {
        world.request(A, Ticket(0), Ask::Greet(to));
    };
    world.apply(&Fault::Cut(vec![Link { from: A, to: B }]));
    (0..count).for_each(|_| send(&mut world, B));
    send(&mut world, NodeId::server(9));
    world.run_until(Time::ZERO + heal_after);
    world.apply(&Fault::Heal);
    world.apply(&Fault::Kill(A));
    world.apply(&Fault::Restart(A));
    settle(&mut world);
    let arrived = world.machine(B).unwrap().count;
    send(&mut world, B);
    world.apply(&Fault::Kill(B));
    settle(&mut world);
    let lost = world.lost_messages();
    let all = lost.cut + lost.down + lost.queue_max + lost.lost + lost.unknown_node;
    assert_eq!(arrived + all, count + 2);
    (arrived, lost)
}

#[test]
fn every_message_arrives_or_is_counted_and_senders_may_keep_what_cannot_go() {
    let second = Duration::from_secs(1);
    let (arrived, lost) = sent(0.0, 100, second);
    assert_eq!(
        (arrived, lost.cut, lost.unknown_node, lost.down),
        (0, 100, 1, 1)
    );
    let (arrived, lost) = sent(1.0, 100, second);
    assert_eq!((arrived, lost.cut, lost.queue_max), (100, 0, 0));
    let (arrived, lost) = sent(1.0, 100, second * 6);
    assert_eq!((arrived, lost.queue_max), (0, 100), "too old");
    let (arrived, lost) = sent(1.0, 5_000, second);
    assert_eq!((arrived, lost.queue_max), (4_096, 5_000 - 4_096));
}

/// Writes ten files, each durable before the next, in one job for each request; the reply is the ticket of a job that is done.
struct StumblingWriter(DataFolder);

struct WriteFiles(DataFolder, u64);

/// Files of one job.
const FILES: u64 = 10;

impl Job for WriteFiles {
    fn run(self: Box<Self>) -> Computed {
        let WriteFiles(data, job) = *self;
        let write = |number: u64| -> std::io::Result<()> {
            let name = format!("{job}-{number}");
            let file = data.storage().create(name.as_ref())?;
            file.write_at(0, b"whole")?;
            file.sync()?;
            data.storage().sync_folder("".as_ref())
        };
        Box::new((0..FILES).try_for_each(write).is_ok())
    }
}

impl Machine for StumblingWriter {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Request(ticket, ()) => {
                let job = WriteFiles(self.0.clone(), ticket.0);
                out.push(Output::Compute(Box::new(job), ticket));
            }
            Input::Computed(ticket, result) => {
                assert!(*result.downcast::<bool>().unwrap());
                out.push(Output::Reply(ticket, ()));
            }
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

/// Files left by eight jobs, and the tickets of the jobs that were done before the crash.
fn jobs_at_a_crash(seed: u64, crash_within: f64) -> (FileTree, Vec<u64>) {
    let mut options = WorldOptions {
        job_delay_max: Duration::from_millis(4),
        ..WorldOptions::default()
    };
    options.disk.crash_within = crash_within;
    options.disk.crash_loses_all = 1.0;
    let boot = |_, data: &DataFolder| Ok(Booted::new(StumblingWriter(data.clone())));
    let mut world = World::new(seed, options, boot);
    world.add(A);
    for ticket in 0..8 {
        world.request(A, Ticket(ticket), ());
    }
    world.run_until(Time::from_milliseconds(4));
    world.apply(&Fault::Kill(A));
    while world.step() {}
    let files = world.durable(A);
    let done = world.drain_replies().map(|(_, ticket, ())| ticket.0);
    (files, done.collect())
}

#[test]
fn jobs_finish_in_any_order_and_a_crash_may_fall_into_one() {
    let (mut orders, mut partial) = (std::collections::BTreeSet::new(), 0);
    for seed in 0..200 {
        for crash_within in [0.0, 1.0] {
            let (files, done) = jobs_at_a_crash(seed, crash_within);
            let count = |job: u64| {
                let mine = (0..FILES).filter(|it| files.get(format!("{job}-{it}")).is_some());
                mine.count() as u64
            };
            assert!(done.iter().all(|job| count(*job) == FILES));
            let others = (0..8).filter(|job| !done.contains(job));
            let begun = others.filter(|job| count(*job) > 0).count();
            assert!(
                crash_within > 0.0 || begun == 0,
                "a job that is lost has done nothing"
            );
            partial += begun;
            orders.insert(done);
        }
    }
    assert!(partial > 100, "{partial}");
    let is_sorted = orders.iter().filter(|it| it.is_sorted()).count();
    assert!(is_sorted < orders.len() / 2, "jobs overtake each other");
}

#[test]
fn a_job_that_syncs_a_slow_disk_is_late() {
    let boot = |_, data: &DataFolder| Ok(Booted::new(StumblingWriter(data.clone())));
    let mut world = World::new(1, WorldOptions::default(), boot);
    world.add(A);
    world.apply(&disk(DiskTrouble::Slow(Duration::from_millis(10))));
    world.request(A, Ticket(1), ());
    // Two syncs for each file.
    world.run_until(Time::from_milliseconds(199));
    assert_eq!(world.drain_replies().count(), 0);
    world.run_until(Time::from_milliseconds(202));
    assert_eq!(world.drain_replies().count(), 1);
}

/// Begins a job for each message, and knows how many were under way at most.
#[derive(Default)]
struct Busy {
    under_way: u64,
    most: u64,
    done: u64,
}

impl Machine for Busy {
    type Request = NodeId;
    type Reply = ();

    fn turn(&mut self, _: Time, input: Input<NodeId>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Request(_, to) => {
                let message = vec![1];
                out.push(Output::Send { to, message });
            }
            Input::Message { .. } => {
                self.under_way += 1;
                self.most = self.most.max(self.under_way);
                out.push(Output::Compute(Box::new(Square(7)), Ticket(0)));
            }
            Input::Computed(..) => {
                self.under_way -= 1;
                self.done += 1;
            }
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }
}

#[test]
fn a_machine_with_too_much_under_way_is_given_no_more_messages() {
    let boot = |_, _: &DataFolder| Ok(Booted::new(Busy::default()));
    let mut world = World::new(1, WorldOptions::default(), boot);
    world.add(A);
    world.add(B);
    for ticket in 0..3_000 {
        world.request(A, Ticket(ticket), B);
    }
    while world.step() {}
    let busy = world.machine(B).unwrap();
    assert_eq!((busy.done, busy.under_way), (3_000, 0));
    assert_eq!(busy.most, seatrial_machine::WORK_MAX as u64);
}
