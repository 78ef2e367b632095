//! Groups of registers.

use crate::{Context, Generator, Next, Thread};
use seatrial_history::{Key, Mop, Observed, Op, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

/// Writes of fresh keys, each followed by the same thread's read of the key's whole group, hoping to catch the write
/// before all have it; now and then a read of a group in which somebody else has just written. `group` keys at a time
/// are one group. Jepsen's `long-fork`.
///
/// What comes next depends on who is free, so it is drawn anew at each question from the same point of the random stream, and
/// the stream goes on when it is taken.
#[derive(Debug)]
pub struct LongForks {
    rng: Rng,
    group: i64,
    fresh: i64,
    /// Threads with the key that each wrote last and has not read yet.
    written: Vec<(Thread, i64)>,
    /// By thread its place there.
    places: BTreeMap<Thread, usize>,
    /// What was answered last.
    answered: Option<Answered>,
}

#[derive(Debug)]
struct Answered {
    rng: Rng,
    thread: Thread,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
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
        answered: None,
    }
}

impl LongForks {
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
        let (step, f, value) = if let Some(&place) = self.places.get(&thread) {
            let (_, key) = self.written[place];
            (Step::ReadOwn, "read", self.read(&mut rng, key))
        } else if rng.below(2) == 0 && !self.written.is_empty() {
            let (_, key) = *rng.pick(&self.written);
            (Step::ReadOther, "read", self.read(&mut rng, key))
        } else {
            let write = Mop::Write {
                key: Key::Int(self.fresh),
                value: 1,
            };
            (Step::Write, "write", Value::Txn([write].into()))
        };
        self.answered = Some(Answered { rng, thread, step });
        let process = context.process_of(thread);
        Next::Op(context.operation_by(process, Symbol::new(f), value))
    }

    fn commit(&mut self) {
        let Some(Answered { rng, thread, step }) = self.answered.take() else {
            return;
        };
        self.rng = rng;
        // Even when nothing was drawn, the next draw is another one.
        self.rng.word();
        match step {
            Step::Write => {
                self.places.insert(thread, self.written.len());
                self.written.push((thread, self.fresh));
                self.fresh += 1;
            }
            Step::ReadOwn => {
                if let Some(place) = self.places.remove(&thread) {
                    self.written.swap_remove(place);
                    if let Some((moved, _)) = self.written.get(place) {
                        self.places.insert(*moved, place);
                    }
                }
            }
            Step::ReadOther => {}
        }
    }

    fn update(&mut self, _: &Context, _: &Op) {}
}
