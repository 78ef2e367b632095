//! The workload `long-fork`: writes of single registers, and reads of groups.

use crate::{Context, Generator, Next, Thread};
use seatrial_history::{Key, Mop, Observed, Op, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// Jepsen's `long-fork`: writes of fresh keys, each followed by the same thread's read of the key's whole group, which may
/// observe the write before other threads do; also reads of a group that another thread has just written to. A group is
/// `group` consecutive keys.
///
/// The next operation depends on the free thread. So every `next` draws it again from the same state of the random stream,
/// and `commit` advances the stream.
#[derive(Debug)]
pub struct LongForks {
    rng: Rng,
    group: i64,
    fresh: i64,
    /// Threads, each with the key that it wrote last and has not read yet.
    written: Vec<(Thread, i64)>,
    /// By thread, its index in `written`.
    places: BTreeMap<Thread, usize>,
    /// The operation returned last.
    proposed: Option<ProposedFork>,
}

/// An operation of [`LongForks`] that is not committed yet.
#[derive(Debug)]
struct ProposedFork {
    /// The random stream after the operation.
    rng: Rng,
    thread: Thread,
    action: ForkAction,
}

#[derive(Clone, Copy, Debug)]
enum ForkAction {
    Write,
    ReadOwn,
    ReadOther,
}

/// Endless operations on groups of `group` registers, at least two.
pub fn long_forks(rng: Rng, group: u32) -> LongForks {
    LongForks {
        rng,
        group: group.max(2).into(),
        fresh: 0,
        written: Vec::new(),
        places: BTreeMap::new(),
        proposed: None,
    }
}

impl LongForks {
    /// A read of the whole group of `key`, in random order.
    fn read(&self, rng: &mut Rng, key: i64) -> Value {
        let first = key - key % self.group;
        let mut keys: Vec<i64> = (first..first + self.group).collect();
        rng.shuffle(&mut keys);
        let reads = keys.into_iter().map(|key| Mop::Read {
            key: Key::Int(key),
            observed: Observed::Nil,
        });
        Value::Txn(reads.collect())
    }
}

impl Generator for LongForks {
    fn next(&mut self, context: &Context) -> Next {
        let Some(thread) = context.some_free_thread() else {
            return Next::Pending;
        };
        let mut rng = self.rng.clone();
        let (action, f, value) = if let Some(&place) = self.places.get(&thread) {
            let (_, key) = self.written[place];
            (ForkAction::ReadOwn, "read", self.read(&mut rng, key))
        } else if rng.below(2) == 0 && !self.written.is_empty() {
            let (_, key) = *rng.pick(&self.written);
            (ForkAction::ReadOther, "read", self.read(&mut rng, key))
        } else {
            let write = Mop::Write {
                key: Key::Int(self.fresh),
                value: 1,
            };
            (ForkAction::Write, "write", Value::Txn([write].into()))
        };
        self.proposed = Some(ProposedFork {
            rng,
            thread,
            action,
        });
        let process = context.process_of(thread);
        Next::Op(context.operation_by(process, Symbol::new(f), value))
    }

    fn commit(&mut self) {
        let Some(proposed) = self.proposed.take() else {
            return;
        };
        let thread = proposed.thread;
        self.rng = proposed.rng;
        // Advances the stream even when the operation drew nothing from it.
        self.rng.word();
        match proposed.action {
            ForkAction::Write => {
                self.places.insert(thread, self.written.len());
                self.written.push((thread, self.fresh));
                self.fresh += 1;
            }
            ForkAction::ReadOwn => {
                if let Some(place) = self.places.remove(&thread) {
                    self.written.swap_remove(place);
                    if let Some((moved, _)) = self.written.get(place) {
                        self.places.insert(*moved, place);
                    }
                }
            }
            ForkAction::ReadOther => {}
        }
        debug_assert_eq!(self.places.len(), self.written.len());
    }

    fn update(&mut self, _: &Context, _: &Op) {}
}
