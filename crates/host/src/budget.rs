//! The memory budget of a server's readers.

use seatrial_machine::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Interval at which waiting readers search for connections to evict.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// An incomplete message that has not grown in this number of looks, 50 ms, may be evicted when a reader waits.
const IDLE_LOOKS: u32 = 5;
/// The same, 250 ms, for a connection that has sent complete messages before: its network may have paused. (Linux repeats a lost
/// segment after 200 ms.)
const PROVEN_IDLE_LOOKS: u32 = 25;

/// Priority of a reader's request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// It begins to read: a short message never waits for long ones.
    Begins,
    /// It has an incomplete message, and has sent at least as many bytes of complete ones before.
    Proven,
    /// It has an incomplete message.
    Unproven,
}

/// Position of a request in the queue: its rank, then when its message began.
pub(crate) type Turn = (Rank, u64);

/// Memory that the readers of many connections may hold together.
///
/// A reader takes a [`MemoryShare`] before it reads, so every byte is counted before it arrives. When no memory is free it waits
/// for its turn ([`Rank`]). While a reader waits, a connection whose incomplete message has not grown for a while is evicted, the
/// idlest first, and proven ones later than others; so incomplete messages cannot starve other connections. The while is counted
/// in looks, between which every reader has its turn: a pause of the server itself is one look, and no connection's fault. When
/// all readers wait for one another, one of them may exceed the bound until its message is complete: the bound is `max` plus one
/// message of the maximum length.
///
/// Cost: a lock and a look-up per read. While readers wait, one pass over them and the incomplete messages every 10 ms.
#[derive(Debug)]
pub(crate) struct Budget {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Free bytes; negative while a reader exceeds the bound.
    free: isize,
    /// Connections with an incomplete message.
    halves: BTreeMap<NodeId, TrackedHalf>,
    waiters: BTreeMap<Turn, Waiter>,
    messages: u64,
    /// The connection that may exceed the bound.
    exempt: Option<NodeId>,
    /// Time of the last look at all incomplete messages.
    looked: Instant,
}

/// An incomplete message.
#[derive(Debug)]
struct TrackedHalf {
    bytes: usize,
    /// Looks without growth after which it may be evicted.
    looks_max: u32,
    /// Looks since it last grew.
    looks: u32,
    /// Time at which it last grew.
    grown: Instant,
    /// Its reader waits for memory, so it cannot grow: it must not be evicted.
    is_waiting: bool,
    is_evicted: bool,
    evict: Arc<Notify>,
}

#[derive(Debug)]
struct Waiter {
    id: NodeId,
    bytes: usize,
    grant: oneshot::Sender<()>,
}

/// Bytes held; returned to the budget when dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl MemoryShare {
    /// Splits off `bytes`, at most all.
    pub(crate) fn split(&mut self, bytes: usize) -> MemoryShare {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        MemoryShare {
            budget: Arc::clone(&self.budget),
            bytes,
        }
    }

    /// Returns all but `bytes` to the budget.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        drop(self.split(self.bytes.saturating_sub(bytes)));
    }

    /// Adds the bytes of another share of the same budget.
    pub(crate) fn merge(&mut self, mut other: MemoryShare) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.bytes);
        }
    }
}

/// Position of a reader in the queue; dropping it leaves the queue.
struct QueuePlace<'a> {
    budget: &'a Budget,
    id: NodeId,
    turn: Turn,
    bytes: usize,
    is_settled: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let mut inner = self.budget.lock();
        inner.resume(self.id);
        if inner.waiters.remove(&self.turn).is_none() {
            // Granted and not taken: the wait was cancelled.
            inner.free += self.bytes as isize;
        }
        inner.grant();
    }
}

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Budget> {
        Arc::new(Budget {
            inner: Mutex::new(Inner {
                free: isize::try_from(max).unwrap_or(isize::MAX),
                halves: BTreeMap::new(),
                waiters: BTreeMap::new(),
                messages: 0,
                exempt: None,
                looked: Instant::now(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a message that begins, by which its reader queues.
    pub(crate) fn number(&self) -> u64 {
        let mut inner = self.lock();
        inner.messages += 1;
        inner.messages
    }

    /// Takes `bytes` for a connection; waits until they are free. No two waiting readers have the same turn.
    pub(crate) async fn take(
        self: &Arc<Budget>,
        id: NodeId,
        turn: Turn,
        bytes: usize,
    ) -> MemoryShare {
        let share = || MemoryShare {
            budget: Arc::clone(self),
            bytes,
        };
        let mut granted = {
            let mut inner = self.lock();
            if inner.exempt == Some(id) || inner.can_grant(bytes) {
                inner.free -= bytes as isize;
                return share();
            }
            inner.enqueue(id, turn, bytes)
        };
        // Dropped if the caller cancels: leaves the queue, or returns what was granted meanwhile.
        let mut place = QueuePlace {
            budget: self,
            id,
            turn,
            bytes,
            is_settled: false,
        };
        loop {
            match tokio::time::timeout(LOOK_INTERVAL, &mut granted).await {
                Ok(_) => {
                    place.is_settled = true;
                    self.lock().resume(id);
                    return share();
                }
                Err(_) => self.lock().look(Instant::now()),
            }
        }
    }

    fn give_back(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.free += bytes as isize;
        inner.grant();
    }

    /// Records that the incomplete message of a connection has grown to `bytes`.
    pub(crate) fn grown(&self, id: NodeId, rank: Rank, bytes: usize, evict: &Arc<Notify>) {
        let now = Instant::now();
        let mut inner = self.lock();
        let half = inner.halves.entry(id).or_insert_with(|| TrackedHalf {
            bytes,
            looks_max: match rank {
                Rank::Begins | Rank::Unproven => IDLE_LOOKS,
                Rank::Proven => PROVEN_IDLE_LOOKS,
            },
            looks: 0,
            grown: now,
            is_waiting: false,
            is_evicted: false,
            evict: Arc::clone(evict),
        });
        (half.bytes, half.looks, half.grown) = (bytes, 0, now);
    }

    /// Removes the incomplete message of a connection: it is complete, or the connection ended.
    pub(crate) fn forget(&self, id: NodeId) {
        self.lock().finish(id);
    }

    #[cfg(test)]
    fn free(&self) -> isize {
        self.lock().free
    }
}

impl Inner {
    fn can_grant(&self, bytes: usize) -> bool {
        self.waiters.is_empty() && self.free >= bytes as isize
    }

    fn enqueue(&mut self, id: NodeId, turn: Turn, bytes: usize) -> oneshot::Receiver<()> {
        let (grant, granted) = oneshot::channel();
        self.waiters.insert(turn, Waiter { id, bytes, grant });
        if let Some(half) = self.halves.get_mut(&id) {
            half.is_waiting = true;
        }
        self.grant();
        granted
    }

    /// Grants requests in order of their turn, while there is memory.
    fn grant(&mut self) {
        while let Some(first) = self.waiters.first_entry()
            && first.get().bytes as isize <= self.free
        {
            let waiter = first.remove();
            self.give(waiter);
        }
    }

    /// Gives a reader that has left the queue its memory, which may be more than there is.
    fn give(&mut self, waiter: Waiter) {
        // A cancelled request returns its bytes when its place is dropped.
        self.free -= waiter.bytes as isize;
        let _ = waiter.grant.send(());
    }

    /// Marks that a connection's reader does not wait any more.
    fn resume(&mut self, id: NodeId) {
        if let Some(half) = self.halves.get_mut(&id) {
            half.is_waiting = false;
            (half.looks, half.grown) = (0, Instant::now());
        }
    }

    /// Looks at all incomplete messages and makes room for the readers that wait, whichever of them asks: once per interval,
    /// so that the cost of thousands that wait is not the square of their number.
    fn look(&mut self, now: Instant) {
        if now - self.looked < LOOK_INTERVAL {
            return;
        }
        self.looked = now;
        for half in self.halves.values_mut() {
            half.looks = half.looks.saturating_add(1);
        }
        self.make_room();
    }

    /// Makes memory for the waiting readers: evicts the idlest connections, or lets one reader exceed the bound.
    fn make_room(&mut self) {
        let wanted: usize = self.waiters.values().map(|waiter| waiter.bytes).sum();
        let coming = self.halves.values().filter(|half| half.is_evicted);
        let mut coming: usize = coming.map(|half| half.bytes).sum();
        let is_idle = |half: &TrackedHalf| !half.is_waiting && half.looks >= half.looks_max;
        let idle = self.halves.values_mut().filter(|half| !half.is_evicted);
        let mut idle: Vec<&mut TrackedHalf> = idle.filter(|half| is_idle(half)).collect();
        idle.sort_by_key(|half| half.grown);
        for half in idle {
            if coming >= wanted {
                break;
            }
            coming += half.bytes;
            half.is_evicted = true;
            half.evict.notify_one();
        }
        let mut halves = self.halves.values();
        let is_stuck = coming == 0 && halves.all(|half| half.is_waiting);
        if is_stuck && self.exempt.is_none() {
            let halves = &self.halves;
            let has_half = |_: &Turn, waiter: &mut Waiter| halves.contains_key(&waiter.id);
            let first = self.waiters.extract_if(.., has_half).next();
            if let Some((_, waiter)) = first {
                self.exempt = Some(waiter.id);
                self.give(waiter);
            }
        }
    }

    fn finish(&mut self, id: NodeId) {
        self.halves.remove(&id);
        if self.exempt == Some(id) {
            self.exempt = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::time::timeout;

    fn id(number: u32) -> NodeId {
        NodeId::client(number)
    }

    fn run(future: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future);
    }

    fn begins(budget: &Budget) -> Turn {
        (Rank::Begins, budget.number())
    }

    /// An incomplete message that holds `bytes`.
    async fn half(budget: &Arc<Budget>, number: u32, bytes: usize) -> (MemoryShare, Arc<Notify>) {
        let evict = Arc::new(Notify::new());
        let share = budget.take(id(number), begins(budget), bytes).await;
        budget.grown(id(number), Rank::Unproven, bytes, &evict);
        (share, evict)
    }

    #[test]
    fn shares_are_given_back_whatever_is_done_with_them() {
        run(async {
            let budget = Budget::new(100);
            let mut share = budget.take(id(1), begins(&budget), 60).await;
            let part = share.split(20);
            assert_eq!(budget.free(), 40);
            share.shrink(30);
            assert_eq!(budget.free(), 50);
            share.merge(part);
            assert_eq!((share.bytes, budget.free()), (50, 50));
            assert_eq!(share.split(1_000).bytes, 50);
            assert_eq!(budget.free(), 100);
        });
    }

    #[test]
    fn who_begins_and_who_is_proven_is_served_first() {
        run(async {
            let budget = Budget::new(100);
            let all = budget.take(id(1), begins(&budget), 100).await;
            let wish = |number, rank| {
                let turn = (rank, budget.number());
                budget.take(id(number), turn, 50)
            };
            let mut last = pin!(wish(2, Rank::Unproven));
            let mut second = pin!(wish(3, Rank::Proven));
            let mut first = pin!(wish(4, Rank::Begins));
            let waits = timeout(Duration::from_millis(5), async {
                tokio::select! { _ = &mut last => {}, _ = &mut second => {}, _ = &mut first => {} }
            });
            assert!(waits.await.is_err(), "nothing is free");
            let mut all = all;
            all.shrink(50);
            let mut served = Vec::new();
            for _ in 0..2 {
                tokio::select! {
                    biased;
                    _ = &mut last => served.push("last"),
                    _ = &mut second, if served.len() == 1 => served.push("second"),
                    _ = &mut first, if served.is_empty() => served.push("first"),
                }
            }
            assert_eq!(served, ["first", "second"]);
            last.await;
        });
    }

    #[test]
    fn a_half_message_that_does_not_grow_makes_room() {
        run(async {
            let budget = Budget::new(100);
            let (idle, idle_evict) = half(&budget, 1, 60).await;
            tokio::time::sleep(LOOK_INTERVAL).await;
            let (_busy, busy_evict) = half(&budget, 2, 40).await;
            let mut wanted = pin!(budget.take(id(3), begins(&budget), 30));
            tokio::select! {
                _ = &mut wanted => panic!("nothing is free"),
                () = idle_evict.notified() => {}
            }
            let busy = timeout(Duration::from_millis(1), busy_evict.notified());
            assert!(busy.await.is_err(), "one is enough");
            drop(idle);
            budget.forget(id(1));
            let share = wanted.await;
            assert_eq!((share.bytes, budget.free()), (30, 30));
        });
    }

    #[test]
    fn a_pause_of_the_server_is_not_held_against_a_message() {
        run(async {
            let budget = Budget::new(100);
            let (_held, evict) = half(&budget, 1, 100).await;
            {
                let mut inner = budget.lock();
                inner.waiters.insert(
                    (Rank::Begins, 1),
                    Waiter {
                        id: id(2),
                        bytes: 10,
                        grant: oneshot::channel().0,
                    },
                );
                let mut now = Instant::now();
                for seconds in [1, 2, 3, 4] {
                    now += Duration::from_secs(seconds);
                    inner.look(now);
                    inner.look(now + Duration::from_millis(1)); // of another waiter, at the same time
                    assert!(!inner.halves[&id(1)].is_evicted);
                }
                inner.look(now + LOOK_INTERVAL);
                assert!(inner.halves[&id(1)].is_evicted, "the fifth look");
            }
            evict.notified().await;
        });
    }

    #[test]
    fn readers_that_wait_for_each_other_come_to_an_end() {
        run(async {
            let budget = Budget::new(100);
            let (one, one_evict) = half(&budget, 1, 50).await;
            let (two, two_evict) = half(&budget, 2, 50).await;
            let finish = |number, held: MemoryShare| {
                let budget = Arc::clone(&budget);
                async move {
                    let more = budget
                        .take(id(number), (Rank::Unproven, number.into()), 50)
                        .await;
                    let most = budget.free();
                    budget.forget(id(number));
                    drop((held, more));
                    most
                }
            };
            let both = async { tokio::join!(finish(1, one), finish(2, two)) };
            let (one, two) = timeout(Duration::from_secs(5), both).await.unwrap();
            // The first to finish exceeded the bound by the rest of its message.
            assert_eq!((one.min(two), one.max(two)), (-50, 0));
            assert_eq!(budget.free(), 100);
            for evict in [one_evict, two_evict] {
                let evicted = timeout(Duration::from_millis(1), evict.notified());
                assert!(evicted.await.is_err(), "it was not idle, it waited");
            }
        });
    }

    #[test]
    fn who_gives_up_waiting_holds_nothing() {
        run(async {
            let budget = Budget::new(100);
            let all = budget.take(id(1), begins(&budget), 100).await;
            {
                let mut wanted = pin!(budget.take(id(2), begins(&budget), 100));
                let waits = timeout(Duration::from_millis(5), &mut wanted);
                assert!(waits.await.is_err());
                // Granted while the request is not polled.
                drop(all);
                assert_eq!(budget.free(), 0);
            }
            assert_eq!(budget.free(), 100);
            let all = budget.take(id(1), begins(&budget), 100).await;
            let waits = timeout(
                Duration::from_millis(5),
                budget.take(id(2), begins(&budget), 1),
            );
            assert!(waits.await.is_err());
            drop(all);
            assert_eq!(budget.free(), 100, "its place in the queue is empty");
        });
    }
}
