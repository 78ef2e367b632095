//! One generator for each process, and one after the other for each key.

use seatrial_history::{Key, Op, Process, Value};
use std::fmt;
use std::sync::Arc;

use crate::context::ThreadSet;
use crate::generator::time_of;
use crate::validate::Failure;
use crate::{Context, Generator, Next, Tree};

/// A generator for each process. See [`each_process`].
pub struct EachProcess<F, G> {
    make: F,
    /// One per thread, by its dense number.
    seats: Vec<Seat<G>>,
    /// Whose operation the last answer was.
    winner: usize,
    ended: bool,
}

/// The generator of the process that a thread runs.
struct Seat<G> {
    /// `None` before the thread was first seen.
    process: Option<Process>,
    /// `None` when exhausted.
    generator: Option<G>,
    /// This thread alone.
    set: ThreadSet,
}

/// Every process (the nemesis too, unless this is inside [`Generator::clients`]) runs a generator of its own, made for it
/// when its thread is first free; it sees no other thread. When a process crashes, the one that replaces it begins a new
/// one. Ends when those of all processes that run now have ended.
pub fn each_process<G: Generator, F: FnMut(Process) -> G + Send>(make: F) -> EachProcess<F, G> {
    EachProcess {
        make,
        seats: Vec::new(),
        winner: 0,
        ended: false,
    }
}

impl<F: FnMut(Process) -> G + Send, G: Generator> EachProcess<F, G> {
    /// Gives each thread of the context a seat, and each process that is new there a generator.
    fn seat(&mut self, context: &Context, index: usize) {
        while self.seats.len() <= index {
            let slot = self.seats.len();
            self.seats.push(Seat {
                process: None,
                generator: None,
                set: ThreadSet::from_slots([slot]),
            });
        }
        let process = context.process_of(context.thread_at(index));
        let seat = &mut self.seats[index];
        if seat.process != Some(process) {
            seat.process = Some(process);
            seat.generator = Some((self.make)(process));
        }
    }

    /// The answer of one thread's generator.
    fn ask(&mut self, context: &Context, index: usize) -> Next {
        self.seat(context, index);
        let seat = &mut self.seats[index];
        let next = seat.generator.next(&context.restricted(&seat.set));
        if matches!(next, Next::Exhausted) {
            seat.generator = None;
        }
        next
    }
}

impl<F: FnMut(Process) -> G + Send, G: Generator> Generator for EachProcess<F, G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.ended {
            return Next::Exhausted;
        }
        let mut best: Option<Op> = None;
        let mut alive = context.free_count() < context.thread_count();
        // Asked from a drawn thread on, so that no process is preferred.
        let drawn = context.some_free_thread();
        let first = drawn.and_then(|thread| context.index_of(thread));
        let rest = context
            .free_threads()
            .filter(|thread| Some(*thread) != drawn);
        let rest = rest.filter_map(|thread| context.index_of(thread));
        for index in first.into_iter().chain(rest) {
            match self.ask(context, index) {
                Next::Op(op) => {
                    if best.as_ref().is_none_or(|best| op.time < best.time) {
                        self.winner = index;
                        let due = time_of(&op) <= context.time();
                        best = Some(op);
                        if due {
                            break;
                        }
                    }
                }
                Next::Pending => alive = true,
                Next::Exhausted => {}
                failed @ Next::Failed(_) => return failed,
            }
        }
        match best {
            Some(op) => Next::Op(op),
            None if alive => Next::Pending,
            None => {
                self.ended = true;
                self.seats.clear();
                Next::Exhausted
            }
        }
    }

    fn commit(&mut self) {
        if let Some(seat) = self.seats.get_mut(self.winner) {
            seat.generator.commit();
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        let Some(index) = context.index_of_process(event.process) else {
            return;
        };
        if let Some(seat) = self.seats.get_mut(index)
            && seat.process == Some(event.process)
        {
            seat.generator.update(&context.restricted(&seat.set), event);
        }
    }

    fn tree(&self) -> Tree {
        let running = self.seats.iter().filter_map(|seat| seat.generator.as_ref());
        Tree::over("each-process", running)
    }
}

impl<F, G> fmt::Debug for EachProcess<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachProcess")
            .field("seats", &self.seats.len())
            .finish_non_exhaustive()
    }
}

/// A generator for each key, one key after the other. See [`sequential_keys`].
pub struct SequentialKeys<K, F, G> {
    keys: K,
    make: F,
    current: Option<(Key, G)>,
    begun: bool,
}

/// All threads work on one key with the generator that `make` answers for it, and take the next key when that is
/// exhausted. The values of operations become [`Value::Keyed`]; the generator of a key sees the events of its own key,
/// without the key. Ends when the keys have ended, which may be never.
///
/// For several keys at a time see [`concurrent_keys`](crate::concurrent_keys).
pub fn sequential_keys<K, F, G>(
    keys: impl IntoIterator<Item = Key, IntoIter = K>,
    make: F,
) -> SequentialKeys<K, F, G>
where
    K: Iterator<Item = Key> + Send,
    F: FnMut(&Key) -> G + Send,
    G: Generator,
{
    SequentialKeys {
        keys: keys.into_iter(),
        make,
        current: None,
        begun: false,
    }
}

/// Keys whose generators come to nothing, in a row, before that counts as a mistake.
const EMPTY_KEYS_MAX: u32 = 10_000;

impl<K, F, G> Generator for SequentialKeys<K, F, G>
where
    K: Iterator<Item = Key> + Send,
    F: FnMut(&Key) -> G + Send,
    G: Generator,
{
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..EMPTY_KEYS_MAX {
            if let Some((key, generator)) = &mut self.current {
                match generator.next(context) {
                    Next::Op(mut op) => {
                        let value = std::mem::take(&mut op.value);
                        op.value = Value::Keyed(key.clone(), Arc::new(value));
                        return Next::Op(op);
                    }
                    Next::Exhausted => {}
                    other => return other,
                }
            } else if self.begun {
                return Next::Exhausted;
            }
            self.begun = true;
            let make = &mut self.make;
            self.current = self.keys.next().map(|key| {
                let generator = make(&key);
                (key, generator)
            });
        }
        let problem = format!("{EMPTY_KEYS_MAX} keys in a row had no operation");
        Next::Failed(Box::new(Failure::new(problem, self.tree())))
    }

    fn commit(&mut self) {
        if let Some((_, generator)) = &mut self.current {
            generator.commit();
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if let Some((current, generator)) = &mut self.current
            && let Value::Keyed(key, value) = &event.value
            && key == current
        {
            let bare = Op {
                value: Value::clone(value),
                ..event.clone()
            };
            generator.update(context, &bare);
        }
    }

    fn tree(&self) -> Tree {
        let running = self.current.iter().map(|(_, generator)| generator);
        Tree::over("sequential-keys", running)
    }
}

impl<K, F, G> fmt::Debug for SequentialKeys<K, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.current.as_ref().map(|(key, _)| key);
        f.debug_struct("SequentialKeys")
            .field("key", &key)
            .finish_non_exhaustive()
    }
}
