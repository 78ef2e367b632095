//! Faults that users of another replicated block volume met, as tests: one for each row of `docs/guide/volume-faults.md`.

use crate::sweeps::{values, whole};
use crate::world::{
    BLOCK_LENGTH, BLOCKS, GEOMETRY, Open, RIVAL, UPSTAIRS, VolumeWorld, WorldSetup, block_bytes,
    is_sealed,
};
use seatrial_machine::{DataFolder, DiskTrouble, Fault, Link, NodeId, Ticket};
use seatrial_sim::MemoryStorage;
use seatrial_volume::{
    BlockNumber, BlockSpan, Geometry, GuestError, GuestReply, GuestRequest, MirrorState,
    StoredRegion, VolumeBug, VolumeId,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);
const N3: NodeId = NodeId::server(3);

fn calm_world(seed: u64, replicas: u32) -> VolumeWorld {
    world_with(seed, replicas, WorldSetup::default())
}

/// A world without faults whose volume is active.
pub(crate) fn world_with(seed: u64, replicas: u32, setup: WorldSetup) -> VolumeWorld {
    let mut test = VolumeWorld::with_setup(seed, replicas, None, None, setup);
    test.world.calm();
    test.wait("active", VolumeWorld::is_whole)
        .expect("the volume answers");
    test
}

fn span(first: u64, count: u32) -> BlockSpan {
    BlockSpan {
        first: BlockNumber(first),
        count,
    }
}

/// Both directions between two nodes.
pub(crate) fn cut(one: NodeId, other: NodeId) -> Fault {
    let link = |from, to| Link { from, to };
    Fault::Cut(vec![link(one, other), link(other, one)])
}

pub(crate) fn write(first: u64, count: u64, value: u64, fua: bool) -> GuestRequest {
    GuestRequest::Write {
        first: BlockNumber(first),
        bytes: block_bytes(value).repeat(count as usize),
        fua,
    }
}

impl VolumeWorld {
    /// Sends a request without waiting for its reply.
    pub(crate) fn send(&mut self, number: u64, request: GuestRequest) {
        self.world
            .request(UPSTAIRS, Ticket(1 << 52 | number), request);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.world.now() + time;
        self.world.run_until(end);
    }

    /// Passes time until there is a reply, and no more.
    fn call_at_once(&mut self, number: u64, request: GuestRequest) -> GuestReply {
        let ticket = Ticket(1 << 52 | number);
        self.world.request(UPSTAIRS, ticket, request);
        for _ in 0..1_000_000 {
            if let Some(reply) = self.world.drain_replies().find(|it| it.1 == ticket) {
                return reply.2;
            }
            self.world.step();
        }
        panic!("request {number} has no reply")
    }

    /// After the last fault everything becomes active, everything is durable, and all replicas are equal.
    pub(crate) fn end_equal(&mut self) {
        self.heal();
        self.wait("whole", VolumeWorld::is_whole)
            .expect("the volume answers");
        let flushed = self.call(1 << 40, GuestRequest::Flush);
        assert_eq!(flushed, Ok(GuestReply::Done));
        self.pass(Duration::from_secs(1));
        self.compare().expect("the volume answers");
    }

    pub(crate) fn read_all(&mut self, number: u64) -> Vec<u64> {
        values(
            self.call(number, GuestRequest::Read(whole()))
                .expect("the volume answers"),
        )
        .expect("the volume answers")
    }

    pub(crate) fn state_of(&self, node: NodeId) -> MirrorState {
        let status = self.status();
        status
            .replicas
            .iter()
            .find(|it| it.node == node)
            .map_or(MirrorState::Offline, |it| it.state)
    }
}

/// Long writes are encrypted by jobs, which take their time; short ones at once. Does the volume hold the later one?
fn short_writes_stay(seed: u64, bug: Option<VolumeBug>) -> bool {
    let mut test = VolumeWorld::with_setup(seed, 3, bug, None, WorldSetup::default());
    test.world.calm();
    test.wait("active", VolumeWorld::is_whole)
        .expect("the volume answers");
    for round in 0..10 {
        let long = write(0, 24, 1_000 + round, false);
        let short = write(round, 1, 2_000 + round, false);
        assert_eq!(test.call_at_once(2 * round, long), GuestReply::Done);
        assert_eq!(test.call_at_once(2 * round + 1, short), GuestReply::Done);
    }
    let seen = test.read_all(1);
    test.end_equal();
    seen[9] == 2_009 && seen[..9].iter().all(|it| *it == 1_009)
}

#[test]
fn a_short_write_never_overtakes_a_long_one() {
    assert!((0..30).all(|seed| short_writes_stay(seed, None)));
    let bug = Some(VolumeBug::ShortWriteOvertakes);
    assert!((0..30).any(|seed| !short_writes_stay(seed, bug)));
}

/// A replica is back at every moment of a stream of writes.
#[test]
fn writes_at_every_moment_of_a_reconnect_arrive() {
    for moment in 0..30 {
        let mut test = calm_world(5, 3);
        test.world.apply(&cut(UPSTAIRS, N2));
        for value in 1..=60 {
            if value == 20 + moment {
                test.world.apply(&Fault::Heal);
            }
            test.send(value, write(value % 7, 3, value, value % 5 == 0));
            test.pass(Duration::from_micros(700));
        }
        test.end_equal();
    }
}

/// Writes of every place while a replica is repaired, and the loss of that replica at every step of the repair.
#[test]
fn a_repair_survives_its_replica_and_the_writes_across_it() {
    let mut repairing = 0;
    for step in 0..40 {
        let mut test = calm_world(7, 3);
        test.world.apply(&Fault::Kill(N2));
        for first in (0..BLOCKS - 8).step_by(8) {
            test.call(first, write(first, 8, 1 + first, false)).unwrap();
        }
        test.call(900, GuestRequest::Flush).unwrap();
        test.world.apply(&Fault::Restart(N2));
        test.wait("attached", |it| it.state_of(N2) != MirrorState::Offline)
            .unwrap();
        for number in 0..=step {
            test.send(
                number,
                write(number * 4 % (BLOCKS - 8), 8, 7_000 + number, false),
            );
            test.pass(Duration::from_micros(300));
        }
        repairing += u64::from(test.state_of(N2) == MirrorState::Repairing);
        let source = if step % 2 == 0 { N2 } else { N1 };
        test.world.apply(&Fault::Kill(source));
        test.pass(Duration::from_millis(30));
        test.end_equal();
    }
    assert!(repairing > 0, "no kill hit a repair");
}

/// A replica missed every third block, so that a message of its repair has many parts. Its source or the replica itself is
/// lost at every step of the repair, while guests write the blocks that are copied. With `kept` bytes for what it missed.
fn repairs_of_many_parts_survive_kills_at_every_step(kept: usize) {
    let mut repairing = 0;
    for step in 0..60 {
        let setup = WorldSetup {
            kept: Some(kept),
            ..WorldSetup::default()
        };
        let mut test = world_with(step % 5, 3, setup);
        test.call(800, write(0, BLOCKS, 5, true))
            .expect("the volume answers");
        test.world.apply(&Fault::Kill(N2));
        for block in (0..BLOCKS).step_by(3) {
            test.call(block, write(block, 1, 1_000 + block, false))
                .expect("the volume answers");
        }
        test.call(900, GuestRequest::Flush)
            .expect("the volume answers");
        test.world.apply(&Fault::Restart(N2));
        test.wait("attached", |it| it.state_of(N2) != MirrorState::Offline)
            .expect("the volume answers");
        for number in 0..=step / 2 {
            test.send(number, write(number * 6, 1, 7_000 + number, false));
            test.pass(Duration::from_micros(150));
        }
        repairing += u64::from(test.state_of(N2) == MirrorState::Repairing);
        let lost = if step % 2 == 0 { N2 } else { N1 };
        test.world.apply(&Fault::LoseUnsynced(lost));
        test.pass(Duration::from_millis(30));
        test.end_equal();
        let mut expected: Vec<u64> = vec![5; BLOCKS as usize];
        for block in (0..BLOCKS).step_by(3) {
            expected[block as usize] = 1_000 + block;
        }
        for number in 0..=step / 2 {
            expected[number as usize * 6] = 7_000 + number;
        }
        assert_eq!(test.read_all(901), expected, "step {step}");
    }
    assert!(repairing >= 10, "{repairing} kills hit a repair");
}

#[test]
fn a_repair_of_many_parts_survives_kills_at_every_step() {
    repairs_of_many_parts_survive_kills_at_every_step(0);
}

#[test]
fn a_repair_with_kept_writes_survives_kills_at_every_step() {
    repairs_of_many_parts_survive_kills_at_every_step(1 << 20);
}

/// The memory for writes is full all the time, and a replica is repaired nevertheless.
#[test]
fn a_full_buffer_does_not_stop_a_repair() {
    let mut test = calm_world(3, 3);
    test.world.apply(&Fault::Kill(N3));
    for number in 0..200 {
        test.send(number, write(number % (BLOCKS - 40), 40, 1 + number, false));
    }
    test.world.apply(&Fault::Restart(N3));
    for number in 200..400 {
        test.send(number, write(number % (BLOCKS - 40), 40, 1 + number, false));
        test.pass(Duration::from_micros(200));
    }
    test.end_equal();
}

/// Links of all replicas come and go, faster than anything can be finished.
#[test]
fn storms_of_connections_end_in_a_whole_volume() {
    for seed in 0..10 {
        let mut test = calm_world(seed, 3);
        for round in 0..200_u64 {
            let node = [N1, N2, N3][(round * 7 + seed) as usize % 3];
            test.world.apply(&cut(UPSTAIRS, node));
            test.send(round, write(round % 90, 2, 1 + round, false));
            test.pass(Duration::from_micros(100 + round * seed * 37 % 3_000));
            if round % 3 == 0 {
                test.world.apply(&Fault::Heal);
            }
            if round % 17 == 0 {
                test.world.apply(&Fault::Restart(node));
            }
        }
        test.end_equal();
    }
}

/// One replica is away and another one is being repaired: requests wait, and go on when one of both is back.
#[test]
fn two_replicas_in_different_bad_states_do_not_wedge_the_volume() {
    let mut test = calm_world(4, 3);
    test.world.apply(&Fault::Kill(N2));
    for first in (0..BLOCKS - 8).step_by(8) {
        test.call(first, write(first, 8, 1 + first, false)).unwrap();
    }
    test.world.apply(&Fault::Restart(N2));
    test.world.apply(&cut(UPSTAIRS, N3));
    test.send(1, write(3, 2, 77, true));
    test.pass(Duration::from_millis(20));
    test.world.apply(&Fault::Heal);
    let seen = test.read_all(500);
    assert_eq!(seen[3..5], [77, 77]);
    test.end_equal();
}

/// What is durable of a replica; `None`: nothing.
fn stored_region(test: &VolumeWorld, node: NodeId) -> Option<StoredRegion> {
    let tree = test.world.durable(node);
    let storage = Arc::new(MemoryStorage::from_files(&tree));
    let first = tree.iter().next();
    let folder = first.and_then(|it| it.0.parent().map(Path::to_owned))?;
    let root = folder
        .ancestors()
        .find(|it| tree.iter().all(|(path, _)| path.starts_with(it)));
    let data = DataFolder::open(storage, root.unwrap_or(Path::new(""))).expect("a folder");
    Some(StoredRegion::open(&data, &GEOMETRY, 1 << 20).expect("a replica"))
}

/// What a flush made durable is intact on the disk of every replica after a loss of power, block by block.
#[test]
fn folders_verify_after_every_loss_of_power() {
    let keys = WorldSetup::default().keys.lock().unwrap().clone();
    for seed in 0..25 {
        let mut test = VolumeWorld::with_setup(seed, 3, None, None, WorldSetup::default());
        test.work(seed, 60, 0.05).unwrap();
        for node in test.replicas.clone() {
            test.world.apply(&Fault::LoseUnsynced(node));
            let tree = test.world.durable(node);
            for (path, bytes) in tree.iter() {
                assert!(is_sealed(bytes), "plain bytes in {}", path.display());
            }
            let Some(region) = stored_region(&test, node) else {
                continue;
            };
            let check = region.verify(Some(&keys)).unwrap();
            assert_eq!(check.defect_count, 0, "seed {seed}, {node}");
        }
        test.settle_all(seed).unwrap();
    }
}

/// Every kind of trouble of one disk, while guests work.
#[test]
fn a_disk_that_fails_or_is_full_loses_nothing() {
    for trouble in [
        DiskTrouble::WriteErrors,
        DiskTrouble::NoSpace,
        DiskTrouble::ReadErrors,
    ] {
        for seed in 0..10 {
            let mut test = calm_world(seed, 3);
            test.work(seed, 30, 0.0).unwrap();
            test.world.apply(&Fault::Disk { node: N2, trouble });
            test.work(seed, 60, 0.0).unwrap();
            test.world.apply(&Fault::MendDisk(N2));
            test.world.take_boot_failures();
            test.settle_all(seed).unwrap();
        }
    }
}

/// Without a quorum nothing is acknowledged as durable, and nothing is lost or refused.
#[test]
fn without_a_quorum_flushes_wait() {
    let mut test = calm_world(2, 3);
    test.world.apply(&cut(UPSTAIRS, N1));
    test.world.apply(&cut(UPSTAIRS, N2));
    let waiting = Ticket(1 << 52 | 1);
    test.send(1, write(0, 4, 5, true));
    test.pass(Duration::from_secs(30));
    assert!(test.world.drain_replies().all(|it| it.1 != waiting));
    test.world.apply(&Fault::Heal);
    let mut replies = Vec::new();
    for _ in 0..200 {
        test.pass(Duration::from_millis(20));
        replies.extend(test.world.drain_replies());
    }
    assert!(
        replies.contains(&(UPSTAIRS, waiting, GuestReply::Done)),
        "{replies:?}"
    );
}

/// Writes without any flush, for long, with a replica away: memory stays within its bound.
#[test]
fn memory_is_bounded_without_flushes() {
    for seed in 0..5 {
        let mut test = calm_world(seed, 3);
        test.world.apply(&Fault::Pause(N3));
        let mut most = 0;
        for number in 0..3_000 {
            test.send(
                number,
                write(number * 5 % (BLOCKS - 8), 8, 1 + number, false),
            );
            test.pass(Duration::from_micros(300));
            most = most.max(test.status().retained_bytes);
        }
        // The largest bound of a world, and one write.
        assert!(
            most <= (20_000 << 4) + 8 * u64::from(BLOCK_LENGTH) + 1_000,
            "{most}"
        );
        let flushed = test.call(9_999, GuestRequest::Flush).unwrap();
        assert_eq!(flushed, GuestReply::Done);
        test.end_equal();
    }
}

/// Nobody writes: no replica syncs.
#[test]
fn an_idle_volume_does_not_flush() {
    let mut test = calm_world(6, 3);
    test.call(1, write(0, 8, 3, false)).unwrap();
    test.pass(Duration::from_secs(5));
    let flush = test.status().flush;
    test.call(2, GuestRequest::Read(span(0, 8))).unwrap();
    test.pass(Duration::from_mins(1));
    assert_eq!(test.status().flush, flush);
    assert!(flush > 0);
}

/// What is trimmed occupies no space, after the log was cleaned.
#[test]
fn a_trim_frees_space() {
    let mut test = calm_world(8, 3);
    for first in (0..BLOCKS).step_by(8) {
        test.call(first, write(first, 8, 1 + first, false)).unwrap();
    }
    test.call(900, GuestRequest::Flush).unwrap();
    test.pass(Duration::from_secs(1));
    let used = |test: &VolumeWorld, node| test.downstairs(node).map_or(0, |it| it.used_bytes().0);
    let before = used(&test, N1);
    let range = span(0, BLOCKS as u32 - 8);
    test.call(901, GuestRequest::Trim { range, fua: true })
        .unwrap();
    test.pass(Duration::from_secs(1));
    for node in [N1, N2, N3] {
        assert!(
            used(&test, node) < before / 4,
            "{before} -> {}",
            used(&test, node)
        );
    }
    let seen = test.read_all(902);
    assert!(seen[..BLOCKS as usize - 8].iter().all(|it| *it == 0));
    assert!(seen[BLOCKS as usize - 8..].iter().all(|it| *it > 0));
}

/// Two of three replicas are enough, and the third one is brought up to date later.
#[test]
fn two_of_three_activate_and_the_third_joins() {
    let mut test = VolumeWorld::with_setup(9, 3, None, None, WorldSetup::default());
    test.world.calm();
    test.world.apply(&Fault::Kill(N3));
    test.wait("active", |it| it.status().is_active).unwrap();
    test.call(1, write(10, 8, 5, true)).unwrap();
    assert_eq!(test.state_of(N3), MirrorState::Offline);
    test.world.apply(&Fault::Restart(N3));
    test.wait("whole", VolumeWorld::is_whole).unwrap();
    test.end_equal();
}

/// Activated, given up and activated again, without waiting for any reply.
#[test]
fn activations_and_their_ends_in_any_order() {
    let mut test = calm_world(1, 3);
    for round in 0..100 {
        let request = match round % 3 {
            0 => GuestRequest::Deactivate,
            1 => GuestRequest::Activate { generation: None },
            _ => write(round % 50, 1, 1 + round, false),
        };
        test.send(round, request);
        test.pass(Duration::from_micros(round * 97 % 5_000));
    }
    test.pass(Duration::from_secs(2));
    let reply = test.call(200, GuestRequest::Activate { generation: None });
    assert_eq!(reply, Ok(GuestReply::Done));
    assert_eq!(test.read_all(201).len(), BLOCKS as usize);
}

/// Replicas of another volume, or of this one in another shape, are refused with the reason; the others serve.
#[test]
fn a_replica_that_holds_something_else_is_refused() {
    let shape = Geometry {
        blocks: BLOCKS / 2,
        ..GEOMETRY
    };
    let other = Geometry {
        volume: VolumeId(8),
        ..GEOMETRY
    };
    for (geometry, reason) in [(shape, "another shape"), (other, "another volume")] {
        let mut setup = WorldSetup::default();
        setup.geometries.insert(N2, geometry);
        let mut test = VolumeWorld::with_setup(3, 3, None, None, setup);
        test.world.calm();
        test.wait("active", |it| it.status().is_active).unwrap();
        test.call(1, write(0, 4, 9, true)).unwrap();
        test.pass(Duration::from_secs(5));
        let status = test.status();
        let replica = &status.replicas[1];
        assert_eq!(replica.state, MirrorState::Refused);
        assert!(replica.reason.contains(reason), "{}", replica.reason);
        assert_eq!(test.read_all(2)[..4], [9; 4]);
    }
}

/// An upstairs is cut off, another one takes the volume, and the first one comes back: it changes nothing.
#[test]
fn a_deposed_upstairs_never_writes_again() {
    for seed in 0..20 {
        let mut test = calm_world(seed, 3);
        for node in [N1, N2, N3] {
            test.world.apply(&cut(UPSTAIRS, node));
        }
        test.send(1, write(0, 4, 0xaaaa, false));
        test.pass(Duration::from_millis(50));
        test.world.add(RIVAL);
        let mut done = 0;
        for number in 0..2_000 {
            let request = if number == 0 {
                GuestRequest::Activate { generation: None }
            } else {
                write(0, 4, 0xbbbb, true)
            };
            if number < 2 {
                test.world.request(RIVAL, Ticket(1 << 53 | number), request);
            }
            test.pass(Duration::from_millis(10));
            let replies = test.world.drain_replies();
            done += replies
                .filter(|it| it.0 == RIVAL && it.2 == GuestReply::Done)
                .count();
            if done == 2 {
                break;
            }
            if number > 20 && number % 20 == 0 {
                let again = write(0, 4, 0xbbbb, true);
                test.world.request(RIVAL, Ticket(1 << 53 | number), again);
            }
        }
        assert!(done >= 2, "seed {seed}: the rival is not active");
        // Also replicas that start again remember.
        test.world.apply(&Fault::Kill(N2));
        test.world.apply(&Fault::Restart(N2));
        test.world.apply(&Fault::Heal);
        test.send(2, GuestRequest::Flush);
        test.pass(Duration::from_secs(20));
        let read = GuestRequest::Read(span(0, 4));
        test.world.request(RIVAL, Ticket(1 << 53 | 1 << 20), read);
        test.pass(Duration::from_secs(2));
        let mut replies = test.world.drain_replies();
        let reply = replies.find(|it| it.1 == Ticket(1 << 53 | 1 << 20));
        let seen = values(reply.expect("a reply").2).unwrap();
        assert_eq!(seen, [0xbbbb; 4], "seed {seed}");
    }
}

/// The replica that would be the source has damaged blocks: they are taken from another one, and the copy is intact.
#[test]
fn a_damaged_source_is_not_copied() {
    for seed in 0..10 {
        let mut test = calm_world(seed, 3);
        test.world.apply(&Fault::Kill(N3));
        for first in (0..BLOCKS - 8).step_by(8) {
            test.call(first, write(first, 8, 1 + first, true)).unwrap();
        }
        let before = test.read_all(700);
        test.world.apply(&Fault::BitRot { node: N1, bits: 40 });
        test.world.apply(&Fault::Restart(N3));
        test.wait("whole", VolumeWorld::is_whole).unwrap();
        // Only the replica that was repaired is left, and one more.
        test.world.apply(&cut(UPSTAIRS, N1));
        test.pass(Duration::from_secs(1));
        assert_eq!(test.read_all(701), before, "seed {seed}");
    }
}

/// Both sources have damaged blocks, mostly not the same ones: each block is taken from where it is intact.
#[test]
fn blocks_that_are_damaged_at_different_sources_are_all_repaired() {
    let keys = WorldSetup::default().keys.lock().unwrap().clone();
    let (mut damaged, mut different) = (0, 0);
    for seed in 0..20 {
        let mut test = calm_world(seed, 3);
        test.world.apply(&Fault::Kill(N3));
        for first in (0..BLOCKS - 8).step_by(8) {
            test.call(first, write(first, 8, 1 + first, true)).unwrap();
        }
        for node in [N1, N2] {
            test.world.apply(&Fault::BitRot { node, bits: 4 });
        }
        test.world.apply(&Fault::Restart(N3));
        test.wait("whole", VolumeWorld::is_whole).unwrap();
        damaged += test.status().replicas[0].damaged + test.status().replicas[1].damaged;
        test.call(900, GuestRequest::Flush).unwrap();
        test.pass(Duration::from_secs(1));
        let defects = |node| -> BTreeSet<u64> {
            let region = stored_region(&test, node).unwrap();
            let check = region.verify(Some(&keys)).unwrap();
            check.defects.iter().map(|it| it.block.0).collect()
        };
        let [first, second, repaired] = [N1, N2, N3].map(defects);
        let nowhere_intact: BTreeSet<u64> = first.intersection(&second).copied().collect();
        assert!(
            repaired.is_subset(&nowhere_intact),
            "seed {seed}: {repaired:?}"
        );
        different += u64::from(first != second && !first.is_empty() && !second.is_empty());
    }
    assert!(damaged > 20 && different > 5, "{damaged}, {different}");
}

/// Requests that no disk can carry out are refused with the reason, whatever they ask; the volume serves on.
#[test]
fn requests_past_the_end_are_refused() {
    let mut test = calm_world(1, 3);
    let refused = [
        GuestRequest::Read(span(BLOCKS, 1)),
        GuestRequest::Read(span(u64::MAX, 2)),
        GuestRequest::Read(span(0, 0)),
        write(BLOCKS - 1, 2, 5, false),
        GuestRequest::Write {
            first: BlockNumber(0),
            bytes: vec![1; 100],
            fua: false,
        },
        GuestRequest::Write {
            first: BlockNumber(0),
            bytes: Vec::new(),
            fua: true,
        },
        GuestRequest::WriteUnwritten {
            first: BlockNumber(BLOCKS),
            bytes: block_bytes(1),
        },
        GuestRequest::Trim {
            range: span(BLOCKS - 1, 2),
            fua: false,
        },
        GuestRequest::Extents(span(1, BLOCKS as u32)),
    ];
    for (number, request) in (0..).zip(refused) {
        let reply = test.call(number, request.clone()).unwrap();
        assert!(
            matches!(reply, GuestReply::Failed(GuestError::Range(_))),
            "{request:?}: {reply:?}"
        );
    }
    for (number, request) in (100..).zip([
        GuestRequest::Snapshot("a name with spaces".into()),
        GuestRequest::Snapshot(String::new()),
        GuestRequest::DropSnapshot("none".into()),
        GuestRequest::ReadSnapshot("none".into(), span(0, 1)),
    ]) {
        let reply = test.call(number, request.clone()).unwrap();
        assert!(
            matches!(reply, GuestReply::Failed(GuestError::Snapshot(_))),
            "{request:?}: {reply:?}"
        );
    }
    test.ask(GuestRequest::Read(whole()), Open::Read(whole()));
    test.settle_all(1).unwrap();
}

/// More requests than memory: they wait, each is answered, and memory stays within its bound.
#[test]
fn a_flood_waits_and_is_answered() {
    let mut test = calm_world(2, 3);
    for number in 0..2_000 {
        test.send(
            number,
            write(number % (BLOCKS - 12), 12, 1 + number, number % 50 == 0),
        );
    }
    assert!(test.status().retained_bytes <= (20_000 << 4) + 12 * u64::from(BLOCK_LENGTH) + 1_000);
    let mut answered = 0;
    for _ in 0..4_000 {
        test.pass(Duration::from_millis(5));
        answered += test
            .world
            .drain_replies()
            .filter(|it| it.2 == GuestReply::Done)
            .count();
        if answered == 2_000 {
            break;
        }
    }
    assert_eq!(answered, 2_000);
    test.end_equal();
}

/// The driver's request to close has the largest ticket of all, and is answered when the last flush is durable.
#[test]
fn the_driver_that_closes_a_volume_has_a_reply() {
    for seed in 0..20 {
        let mut test = calm_world(seed, 3);
        test.send(1, write(3, 2, 7, false));
        let closing = Ticket(u64::MAX);
        let request = GuestRequest::Deactivate;
        test.world.request(UPSTAIRS, closing, request);
        let mut reply = None;
        for _ in 0..1_000 {
            test.pass(Duration::from_millis(1));
            let mut replies = test.world.drain_replies();
            reply = reply.or_else(|| replies.find(|it| it.1 == closing));
        }
        assert_eq!(reply.map(|it| it.2), Some(GuestReply::Done), "seed {seed}");
        assert!(!test.status().is_active);
    }
}
