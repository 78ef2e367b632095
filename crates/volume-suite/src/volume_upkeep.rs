//! What the owner of a simulated volume does besides serving guests: it fills a clone, changes the key, reads all copies.

use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use seatrial_volume::{
    BlockKey, BlockSpan, GuestReply, GuestRequest, KeyRing, ParentVolume, UpstairsServer, VolumeId,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Tickets of these requests; guests have larger ones.
const UPKEEP_TICKET: Ticket = Ticket(1 << 61);
/// The key that a rotation adds.
const NEW_KEY: (u16, [u8; 32]) = (1, [6; 32]);

/// A parent of zeros, as far as guests see: the clone begins like an empty volume. Every fourth read fails.
#[derive(Debug, Default)]
pub(crate) struct EmptyParent {
    reads: AtomicU64,
}

impl ParentVolume for EmptyParent {
    fn read(&self, span: BlockSpan, block_length: u32) -> Result<Vec<u8>, String> {
        if self.reads.fetch_add(1, Ordering::Relaxed) % 4 == 3 {
            return Err("out of order".to_owned());
        }
        Ok(vec![0; span.count as usize * block_length as usize])
    }
}

/// The keys of a volume, as its file has them: they survive its owner.
#[derive(Clone, Debug)]
pub(crate) struct SharedKeys(Arc<Mutex<KeyRing>>);

impl SharedKeys {
    pub(crate) fn new(volume: VolumeId, key: &[u8; 32]) -> SharedKeys {
        SharedKeys(Arc::new(Mutex::new(KeyRing::new(volume, key))))
    }

    pub(crate) fn ring(&self) -> KeyRing {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(&self, (epoch, key): (u16, [u8; 32])) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.newest() < epoch {
            *ring = ring.clone().with(epoch, &key);
        }
    }
}

/// A request of the upkeep.
#[derive(Clone, Copy, Debug)]
enum UpkeepTask {
    Rotate,
    Repair,
}

/// What a world draws: is the volume a clone, when is the key changed, when are all copies read.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpkeepPlan {
    pub(crate) is_clone: bool,
    /// Times after each start of the owner, ascending.
    tasks: VecDeque<(Duration, UpkeepTask)>,
}

impl UpkeepPlan {
    /// A plan for a run whose faults last as long as `duration`.
    pub(crate) fn draw(mut rng: Rng, duration: Duration) -> UpkeepPlan {
        let mut tasks = Vec::new();
        for (task, chance, times) in [(UpkeepTask::Rotate, 0.4, 3), (UpkeepTask::Repair, 0.3, 2)] {
            if rng.chance(chance) {
                tasks.extend((0..times).map(|_| (rng.duration_below(duration), task)));
            }
        }
        tasks.sort_by_key(|it| it.0);
        UpkeepPlan {
            is_clone: rng.chance(0.4),
            tasks: tasks.into(),
        }
    }
}

/// The owner of a volume, with the requests of its plan.
pub(crate) struct KeptOwner {
    server: UpstairsServer,
    keys: SharedKeys,
    plan: UpkeepPlan,
    /// When it began.
    started: Option<Time>,
}

impl KeptOwner {
    pub(crate) const fn new(
        server: UpstairsServer,
        keys: SharedKeys,
        plan: UpkeepPlan,
    ) -> KeptOwner {
        KeptOwner {
            server,
            keys,
            plan,
            started: None,
        }
    }

    fn due(&self) -> Option<Time> {
        let (after, _) = self.plan.tasks.front()?;
        Some(self.started? + *after)
    }

    pub(crate) fn turn(
        &mut self,
        now: Time,
        input: Input<GuestRequest>,
        out: &mut Vec<Output<GuestReply>>,
    ) {
        self.started.get_or_insert(now);
        let begun = out.len();
        self.server.turn(now, input, out);
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, task)) = self.plan.tasks.pop_front() else {
                break;
            };
            let request = match task {
                UpkeepTask::Rotate => {
                    // As the command does it: the file first. An owner that has the key already, or is not active, refuses.
                    self.keys.add(NEW_KEY);
                    let (epoch, key) = NEW_KEY;
                    let key = BlockKey(key);
                    GuestRequest::AddKey { epoch, key }
                }
                UpkeepTask::Repair => GuestRequest::Repair,
            };
            let request = Input::Request(UPKEEP_TICKET, request);
            self.server.turn(now, request, out);
        }
        let mut at = 0;
        out.retain(|output| {
            at += 1;
            at <= begun || !matches!(output, Output::Reply(UPKEEP_TICKET, _))
        });
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let due = self.due().into_iter();
        due.chain(self.server.wake_at()).min()
    }

    pub(crate) fn check_invariants(&self) {
        self.server.check_invariants();
    }
}
