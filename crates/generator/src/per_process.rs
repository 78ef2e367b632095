//! A generator for each process (`each_process`), and one for each key in turn (`sequential_keys`).

use seatrial_history::{Key, Op, Process, Value};
use std::fmt;
use std::sync::Arc;

use crate::context::ThreadSet;
use crate::generator::time_of;
use crate::validate_operations::GeneratorFailure;
use crate::{Context, Generator, Next, Tree};

/// A generator for each process. See [`each_process`].
pub struct EachProcess<F, G> {
    make: F,
    /// One per thread, indexed by its slot.
    slots: Vec<ProcessSlot<G>>,
    /// The slot whose operation was returned last.
    chosen: usize,
    ended: bool,
}

/// The generator of the current process of one thread.
struct ProcessSlot<G> {
    /// `None` before the thread was first free.
    process: Option<Process>,
    /// `None` when exhausted.
    generator: Option<G>,
    /// The set of this thread alone.
    set: ThreadSet,
}

/// Every process (the nemesis too, unless this is inside [`Generator::clients`]) runs a generator of its own, made when
/// its thread is first free; its contexts contain no other thread. The process that replaces a crashed one gets a new
/// generator. Ends when the generators of all current processes have ended.
pub fn each_process<G: Generator, F: FnMut(Process) -> G + Send>(make: F) -> EachProcess<F, G> {
    EachProcess {
        make,
        slots: Vec::new(),
        chosen: 0,
        ended: false,
    }
}

impl<F: FnMut(Process) -> G + Send, G: Generator> EachProcess<F, G> {
    /// Extends the slots to the thread at `index`, and makes a generator when its process is new.
    fn prepare(&mut self, context: &Context, index: usize) {
        while self.slots.len() <= index {
            let slot = self.slots.len();
            self.slots.push(ProcessSlot {
                process: None,
                generator: None,
                set: ThreadSet::from_slots([slot]),
            });
        }
        let process = context.process_of(context.thread_at(index));
        let slot = &mut self.slots[index];
        if slot.process != Some(process) {
            slot.process = Some(process);
            slot.generator = Some((self.make)(process));
        }
    }

    /// The answer of the generator of the thread at `index`.
    fn ask(&mut self, context: &Context, index: usize) -> Next {
        self.prepare(context, index);
        let slot = &mut self.slots[index];
        let next = slot.generator.next(&context.restricted(&slot.set));
        if matches!(next, Next::Exhausted) {
            slot.generator = None;
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
        // A busy thread keeps this alive: its generator may have more operations, or its process may be replaced.
        let mut alive = context.free_count() < context.thread_count();
        // A random thread is asked first, so that no process is preferred; an operation that is due ends the search.
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
                        self.chosen = index;
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
                self.slots.clear();
                Next::Exhausted
            }
        }
    }

    fn commit(&mut self) {
        if let Some(slot) = self.slots.get_mut(self.chosen) {
            slot.generator.commit();
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        let Some(index) = context.index_of_process(event.process) else {
            return;
        };
        // An event of a crashed process is not for the generator of the process that replaced it.
        if let Some(slot) = self.slots.get_mut(index)
            && slot.process == Some(event.process)
        {
            slot.generator.update(&context.restricted(&slot.set), event);
        }
    }

    fn tree(&self) -> Tree {
        let running = self.slots.iter().filter_map(|slot| slot.generator.as_ref());
        Tree::over("each-process", running)
    }
}

impl<F, G> fmt::Debug for EachProcess<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachProcess")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// A generator for each key, one key after another. See [`sequential_keys`].
pub struct SequentialKeys<K, F, G> {
    keys: K,
    make: F,
    current: Option<(Key, G)>,
    begun: bool,
}

/// All threads work on one key with the generator that `make` returns for it, and take the next key when that is
/// exhausted. Operation values become [`Value::Keyed`]; a key's generator receives the events of its own key, with the
/// bare value. Ends after the last key; the keys may be endless.
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

/// Keys in a row whose generators may be empty before the generator fails: an endless loop must not hang the test.
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
        Next::Failed(Box::new(GeneratorFailure::new(problem, self.tree())))
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
