//! Clones, snapshots that are read, new keys and the repair of all copies, with faults of everything.

use crate::guest_model::GuestModel;
use crate::world::{
    Actor, BLOCK_LENGTH, BLOCKS, GEOMETRY, Open, UPSTAIRS, VolumeWorld, WorldSetup, block_bytes,
    finding, seeds, value_of,
};
use seatrial_machine::{Fault, Rng, Ticket};
use seatrial_sim::explore;
use seatrial_volume::{
    BlockKey, BlockNumber, BlockSpan, BlockVersion, GuestError, GuestReply, GuestRequest, KeyRing,
    ParentVolume, SweepKind, SweepStatus, Upstairs, VolumeBug, VolumeStatus,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Blocks of the parent; the clone has more.
const PARENT_BLOCKS: u64 = 150;

/// The value of a block of a clone that was never written.
fn parent_value(block: u64) -> u64 {
    if block < PARENT_BLOCKS {
        1 << 40 | block
    } else {
        0
    }
}

/// A parent in memory, which cannot be read every fourth time.
#[derive(Debug, Default)]
struct FlakyParent {
    reads: AtomicU64,
    is_broken: bool,
}

impl ParentVolume for FlakyParent {
    fn read(&self, span: BlockSpan, block_length: u32) -> Result<Vec<u8>, String> {
        assert_eq!(block_length, BLOCK_LENGTH);
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.is_broken || number % 4 == 3 {
            return Err("out of order".to_owned());
        }
        let values = span.blocks().map(|it| parent_value(it.0));
        Ok(values.flat_map(block_bytes).collect())
    }
}

impl VolumeWorld {
    pub(crate) fn status(&self) -> VolumeStatus {
        self.upstairs().map(Upstairs::status).unwrap_or_default()
    }

    fn sweep(&self, kind: SweepKind) -> Option<SweepStatus> {
        self.status().sweeps.into_iter().find(|it| it.kind == kind)
    }

    fn restart_upstairs(&mut self) {
        self.crash();
        self.world.apply(&Fault::Kill(UPSTAIRS));
        self.world.apply(&Fault::Restart(UPSTAIRS));
    }

    /// Runs until this holds.
    pub(crate) fn wait(
        &mut self,
        what: &str,
        holds: impl Fn(&VolumeWorld) -> bool,
    ) -> Result<(), String> {
        for _ in 0..2_000 {
            if holds(self) {
                return Ok(());
            }
            self.run_for(Duration::from_millis(5))?;
        }
        Err(format!("not {what}: {:#?}", self.status()))
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(
        &mut self,
        number: u64,
        request: GuestRequest,
    ) -> Result<GuestReply, String> {
        let ticket = Ticket(1 << 50 | number);
        self.world.request(UPSTAIRS, ticket, request);
        for _ in 0..2_000 {
            let end = self.world.now() + Duration::from_millis(5);
            self.world.run_until(end);
            let replies: Vec<_> = self.world.drain_replies().collect();
            if let Some((_, _, reply)) = replies.into_iter().find(|it| it.1 == ticket) {
                return Ok(reply);
            }
        }
        Err(format!(
            "request {number} has no reply: {:#?}",
            self.status()
        ))
    }

    /// Requests with faults between them.
    pub(crate) fn work(&mut self, seed: u64, steps: u64, faults: f64) -> Result<(), String> {
        let pace = Duration::from_micros(100 << (Rng::from_seed(seed).fork("pace").below(5) * 2));
        for _ in 0..steps {
            for _ in 0..self.rng.below(4) {
                self.request();
            }
            if self.rng.chance(faults) {
                self.fault();
            }
            let wait = self.rng.duration_below(pace * 4);
            self.run_for(wait)?;
        }
        Ok(())
    }

    pub(crate) fn settle_all(&mut self, seed: u64) -> Result<(), String> {
        let pace = Duration::from_micros(100 << (Rng::from_seed(seed).fork("pace").below(5) * 2));
        self.settle(pace * 4)
    }
}

pub(crate) fn whole() -> BlockSpan {
    BlockSpan {
        first: BlockNumber(0),
        count: BLOCKS as u32,
    }
}

/// A clone under work and faults; at the end it needs its parent no more.
fn run_clone(seed: u64, bug: Option<VolumeBug>) -> Result<u64, String> {
    let parent = Arc::new(FlakyParent::default());
    let setup = WorldSetup {
        parent: Some(Arc::<FlakyParent>::clone(&parent)),
        ..WorldSetup::default()
    };
    let mut test = VolumeWorld::with_setup(seed, 3, bug, None, setup);
    test.model = GuestModel::with_initial(parent_value);
    test.work(seed, 150, 0.1)?;
    // Replicas are compared when the sweep writes no more.
    test.heal();
    let is_filled = |it: &VolumeWorld| it.sweep(SweepKind::Fill).is_some_and(|it| it.is_done);
    test.wait("filled", is_filled)?;
    test.settle_all(seed)?;
    let read = parent.reads.load(Ordering::Relaxed);
    for node in test.replicas.clone() {
        let versions = test.downstairs(node).and_then(|it| it.versions(""));
        let versions = versions.ok_or("a replica without a volume")?;
        let absent = versions.iter().filter(|it| **it == BlockVersion::ABSENT);
        let absent = absent.count();
        if absent > 0 {
            return Err(format!("{node} lacks {absent} blocks"));
        }
    }
    // Everything is there: neither guests nor the next start read the parent.
    test.restart_upstairs();
    test.wait("filled", is_filled)?;
    test.ask(GuestRequest::Read(whole()), Open::Read(whole()));
    test.settle_all(seed)?;
    let later = parent.reads.load(Ordering::Relaxed);
    if later != read {
        return Err(format!(
            "{} reads of a parent that is not needed",
            later - read
        ));
    }
    Ok(read)
}

#[test]
fn a_clone_reads_its_parent_until_it_is_filled() {
    let mut read = 0;
    let found = explore(0..seeds(60), |seed| {
        run_clone(seed, None).map(|count| read += count)
    });
    assert_eq!(found.failure, None);
    assert!(read > found.tried * 10, "{read}");
    let bug = Some(VolumeBug::FillOverwrites);
    let found = explore(0..100, |seed| finding(|| run_clone(seed, bug).map(|_| ())));
    assert!(found.failure.is_some(), "the planted bug is not found");
    println!("fill-overwrites: seed {:?}", found.failure.map(|it| it.0));
}

/// While the parent cannot be read, its blocks wait and others do not.
#[test]
fn a_parent_that_is_away_stops_only_what_needs_it() {
    let parent = FlakyParent {
        is_broken: true,
        ..FlakyParent::default()
    };
    let setup = WorldSetup {
        parent: Some(Arc::new(parent)),
        ..WorldSetup::default()
    };
    let mut test = VolumeWorld::with_setup(3, 3, None, None, setup);
    test.world.calm();
    test.wait("active", |it| it.status().is_active).unwrap();
    let first = BlockNumber(7);
    let written = block_bytes(99);
    let write = GuestRequest::Write {
        first,
        bytes: written.clone(),
        fua: true,
    };
    assert_eq!(test.call(1, write).unwrap(), GuestReply::Done);
    let own = BlockSpan { first, count: 1 };
    let reply = test.call(2, GuestRequest::Read(own)).unwrap();
    assert_eq!(reply, GuestReply::Bytes(written));
    let waiting = Ticket(77);
    test.world
        .request(UPSTAIRS, waiting, GuestRequest::Read(whole()));
    test.world
        .run_until(test.world.now() + Duration::from_secs(5));
    assert!(test.world.drain_replies().all(|it| it.1 != waiting));
    let fill = test.sweep(SweepKind::Fill).unwrap();
    assert_eq!(
        (fill.is_done, fill.reason.as_str()),
        (false, "out of order")
    );
}

fn new_key() -> (u16, BlockKey) {
    (1, BlockKey([6; 32]))
}

/// Work and faults while the key is changed; at the end only the new key opens blocks.
fn run_rotation(seed: u64, bug: Option<VolumeBug>) -> Result<u64, String> {
    let setup = WorldSetup::default();
    let keys = Arc::clone(&setup.keys);
    let mut test = VolumeWorld::with_setup(seed, 3, bug, None, setup);
    test.work(seed, 60, 0.08)?;
    // As the command does it: the file first, then the process, if there is one.
    let (epoch, key) = new_key();
    let both = keys
        .lock()
        .expect("no panic while it was locked")
        .clone()
        .with(epoch, &key.0);
    *keys.lock().expect("no panic while it was locked") = both;
    test.ask(GuestRequest::AddKey { epoch, key }, Open::Other);
    test.work(seed, 120, 0.08)?;
    // Replicas are compared when the sweep writes no more.
    test.heal();
    test.wait("whole", VolumeWorld::is_whole)?;
    if test.status().epoch.0 != 1 {
        // The request was lost with its upstairs, or before that one was active; the next one reads the file.
        test.restart_upstairs();
    }
    let is_done = |it: &VolumeWorld| it.sweep(SweepKind::Rekey).is_some_and(|it| it.is_done);
    test.wait("sealed again", is_done)?;
    let sweep = test.sweep(SweepKind::Rekey).ok_or("no sweep")?;
    let snapshots = test.status().snapshots;
    // Snapshots that are younger than the end of the sweep need no earlier key.
    if test.status().epoch.1 == sweep.needed_by.is_empty() {
        return Err(format!(
            "{snapshots:?}, {sweep:?}, {:?}",
            test.status().epoch
        ));
    }
    for name in snapshots {
        test.ask(GuestRequest::DropSnapshot(name), Open::Other);
    }
    test.wait("without the earlier key", |it| {
        it.status().epoch == (1, false)
    })?;
    test.settle_all(seed)?;
    // With the new key alone everything can be read.
    *keys.lock().expect("no panic while it was locked") =
        KeyRing::of_epoch(GEOMETRY.volume, 1, &new_key().1.0);
    test.restart_upstairs();
    test.ask(GuestRequest::Read(whole()), Open::Read(whole()));
    test.settle_all(seed)?;
    // With the old key alone no block that was written.
    *keys.lock().expect("no panic while it was locked") = KeyRing::new(GEOMETRY.volume, &[5; 32]);
    test.world.apply(&Fault::Kill(UPSTAIRS));
    test.world.apply(&Fault::Restart(UPSTAIRS));
    test.wait("active", |it| it.status().is_active)?;
    let node = test.replicas[0];
    let versions = test.downstairs(node).and_then(|it| it.versions(""));
    let versions = versions.ok_or("a replica without a volume")?;
    for (block, version) in (0..).zip(versions) {
        let span = BlockSpan {
            first: BlockNumber(block),
            count: 1,
        };
        let reply = test.call(block, GuestRequest::Read(span))?;
        let is_refused = reply == GuestReply::Failed(GuestError::Damaged(span.first));
        if is_refused == (version == BlockVersion::ABSENT) {
            return Err(format!("block {block} of {version:?} with the old key"));
        }
    }
    Ok(sweep.changed)
}

#[test]
fn after_a_rotation_the_old_key_opens_nothing() {
    let mut changed = 0;
    let found = explore(0..seeds(40), |seed| {
        run_rotation(seed, None).map(|count| changed += count)
    });
    assert_eq!(found.failure, None);
    assert!(changed > found.tried, "{changed} blocks");
    let bug = Some(VolumeBug::RekeyWithoutLock);
    let found = explore(0..400, |seed| {
        finding(|| run_rotation(seed, bug).map(|_| ()))
    });
    assert!(found.failure.is_some(), "the planted bug is not found");
    println!(
        "rekey-without-lock: seed {:?}",
        found.failure.map(|it| it.0)
    );
}

/// Values of all blocks.
pub(crate) fn values(reply: GuestReply) -> Result<Vec<u64>, String> {
    let GuestReply::Bytes(bytes) = reply else {
        return Err(format!("{reply:?}"));
    };
    bytes.chunks(BLOCK_LENGTH as usize).map(value_of).collect()
}

/// A snapshot is read as the volume was, whatever happens after.
fn run_snapshot(seed: u64) -> Result<(), String> {
    let mut test = VolumeWorld::with_setup(seed, 3, None, None, WorldSetup::default());
    test.work(seed, 80, 0.08)?;
    test.settle_all(seed)?;
    let before = values(test.call(1, GuestRequest::Read(whole()))?)?;
    let extents = test.call(2, GuestRequest::Extents(whole()))?;
    let name = "kept".to_owned();
    let made = test.call(3, GuestRequest::Snapshot(name.clone()))?;
    if made != GuestReply::Done {
        return Err(format!("{made:?}"));
    }
    test.work(seed, 120, 0.1)?;
    test.settle_all(seed)?;
    let read = GuestRequest::ReadSnapshot(name.clone(), whole());
    let after = values(test.call(4, read)?)?;
    if before != after {
        return Err("the snapshot differs".to_owned());
    }
    let again = test.call(5, GuestRequest::SnapshotExtents(name.clone(), whole()))?;
    if extents != again {
        return Err(format!("extents {again:?}"));
    }
    test.call(6, GuestRequest::DropSnapshot(name.clone()))?;
    let reply = test.call(7, GuestRequest::ReadSnapshot(name, whole()))?;
    match reply {
        GuestReply::Failed(GuestError::Snapshot(_)) => Ok(()),
        other => Err(format!("a dropped snapshot: {other:?}")),
    }
}

#[test]
fn a_snapshot_is_read_as_it_was() {
    let found = explore(0..seeds(40), run_snapshot);
    assert_eq!(found.failure, None);
}

/// Bits of a replica's files are flipped; the repair of all copies finds them, and afterwards there are none.
#[test]
fn a_repair_finds_all_damaged_copies() {
    let mut damaged = 0;
    for seed in 0..20 {
        let mut test = VolumeWorld::with_setup(seed, 3, None, None, WorldSetup::default());
        test.world.calm();
        test.work(seed, 60, 0.0).unwrap();
        test.settle_all(seed).unwrap();
        let node = test.replicas[seed as usize % 3];
        test.world.apply(&Fault::BitRot { node, bits: 20 });
        let is_done = |it: &VolumeWorld| it.sweep(SweepKind::Repair).is_some_and(|it| it.is_done);
        for round in 0..2 {
            let reply = test.call(round, GuestRequest::Repair).unwrap();
            assert_eq!(reply, GuestReply::Done);
            test.wait("repaired", is_done).unwrap();
            let sweep = test.sweep(SweepKind::Repair).unwrap();
            assert_eq!(sweep.failed, 0, "{sweep:?}");
            if round == 0 {
                damaged += sweep.changed;
            } else {
                assert_eq!(sweep.changed, 0, "seed {seed}: {sweep:?}");
            }
        }
        assert!(matches!(test.world.machine(node), Some(Actor::Down(_))));
        test.settle_all(seed).unwrap();
    }
    assert!(damaged > 3, "{damaged}");
}
