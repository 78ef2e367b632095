//! Repairs with the writes that were kept for a replica.

use crate::known_faults::{cut, world_with, write};
use crate::world::{BLOCKS, UPSTAIRS, VolumeWorld, WorldSetup};
use seatrial_machine::{Fault, NodeId};
use seatrial_volume::{GuestReply, GuestRequest, MirrorState, MirrorStatus};
use std::time::Duration;

const N2: NodeId = NodeId::server(2);

fn keeping(seed: u64, kept: usize) -> VolumeWorld {
    let setup = WorldSetup {
        kept: Some(kept),
        ..WorldSetup::default()
    };
    world_with(seed, 3, setup)
}

impl VolumeWorld {
    fn replica(&self, node: NodeId) -> MirrorStatus {
        let replicas = self.status().replicas;
        let mut found = replicas.into_iter().filter(|it| it.node == node);
        found.next().expect("a replica of the volume")
    }

    /// Writes these blocks, and flushes now and then.
    fn write_blocks(&mut self, blocks: impl Iterator<Item = u64>, value: u64) {
        for block in blocks {
            self.call(
                block,
                write(block, 1, value + block, block.is_multiple_of(7)),
            )
            .expect("two replicas are enough");
        }
        let flushed = self.call(1 << 30, GuestRequest::Flush);
        assert_eq!(flushed, Ok(GuestReply::Done));
    }
}

/// Writes while a replica is away; returns its repairs, those without a comparison, and the blocks that they copied.
fn repair_after(kept: usize, is_crash: bool, written: u64) -> (u64, u64, u64) {
    let mut test = keeping(5, kept);
    test.call(1 << 29, write(0, BLOCKS, 5, true))
        .expect("the volume answers");
    test.pass(Duration::from_secs(1));
    let before = test.replica(N2);
    if is_crash {
        test.world.apply(&Fault::Kill(N2));
    } else {
        test.world.apply(&cut(UPSTAIRS, N2));
    }
    test.wait("offline", |it| it.state_of(N2) == MirrorState::Offline)
        .expect("the volume answers");
    test.write_blocks(0..written, 1_000);
    test.end_equal();
    let mut expected = vec![5; BLOCKS as usize];
    for block in 0..written {
        expected[block as usize] = 1_000 + block;
    }
    assert_eq!(test.read_all(1 << 31), expected);
    let after = test.replica(N2);
    (
        after.repairs[0] - before.repairs[0],
        after.replays - before.replays,
        after.repairs[1] - before.repairs[1],
    )
}

#[test]
fn a_replica_that_missed_a_few_writes_gets_those() {
    for is_crash in [true, false] {
        let (repairs, replays, blocks) = repair_after(1 << 20, is_crash, 30);
        assert_eq!((repairs, replays), (1, 1), "crash: {is_crash}");
        assert!((30..=40).contains(&blocks), "{blocks} blocks for 30 writes");
    }
}

#[test]
fn a_replica_that_missed_more_than_is_kept_is_compared() {
    for (kept, is_crash) in [(0, true), (0, false), (5_000, true), (5_000, false)] {
        let (repairs, replays, blocks) = repair_after(kept, is_crash, 60);
        assert_eq!(
            (repairs, replays),
            (1, 0),
            "{kept} bytes, crash: {is_crash}"
        );
        assert!(blocks >= 60, "{blocks} blocks");
    }
}

/// A replica that was repaired with kept writes is as good as any: the other ones may be lost.
#[test]
fn a_replica_counts_after_its_repair() {
    let mut test = keeping(9, 1 << 20);
    test.world.apply(&Fault::Kill(N2));
    test.wait("offline", |it| it.state_of(N2) == MirrorState::Offline)
        .expect("the volume answers");
    test.write_blocks(0..BLOCKS, 3_000);
    test.world.apply(&Fault::Restart(N2));
    test.wait("whole", VolumeWorld::is_whole)
        .expect("the volume answers");
    assert_eq!(test.replica(N2).replays, 1);
    test.pass(Duration::from_secs(1));
    test.world.apply(&Fault::Kill(NodeId::server(1)));
    let expected: Vec<u64> = (0..BLOCKS).map(|it| 3_000 + it).collect();
    assert_eq!(test.read_all(1 << 31), expected);
    test.end_equal();
}

/// A replica that was left behind because it had died is silent in the end.
#[test]
fn a_replica_without_a_session_says_why_it_has_none() {
    let mut test = keeping(5, 0);
    test.call(1 << 29, write(0, BLOCKS, 5, true))
        .expect("the volume answers");
    test.world.apply(&Fault::Kill(N2));
    for number in 0.. {
        if test.replica(N2).state == MirrorState::Offline {
            break;
        }
        test.call(number, write(0, BLOCKS, number, false))
            .expect("two replicas are enough");
    }
    assert_eq!(test.replica(N2).reason, "too far behind");
    test.pass(Duration::from_secs(4));
    assert_eq!(test.replica(N2).reason, "silent");
    test.end_equal();
    assert_eq!(test.replica(N2).reason, "");
}

/// Replicas of a volume that is not in use are asked nothing: that they say nothing is no reason.
#[test]
fn replicas_of_a_volume_at_rest_are_not_silent() {
    let mut test = keeping(5, 0);
    test.call(1 << 29, write(0, BLOCKS, 5, true))
        .expect("the volume answers");
    test.call(1 << 30, GuestRequest::Deactivate)
        .expect("the volume answers");
    test.pass(Duration::from_secs(4));
    for replica in test.status().replicas {
        assert_eq!(
            (replica.state, replica.reason.as_str()),
            (MirrorState::Offline, "")
        );
    }
}
