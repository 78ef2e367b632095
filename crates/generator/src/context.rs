//! The context of a generator: the time, the threads that it may use, which of them are free, and their processes.

use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::Time;
use std::cell::Cell;
use std::fmt;

use crate::Next;

/// Maximum number of client threads of one test.
pub const THREADS_MAX: u32 = 10_000;

/// Bits of one word of a thread set.
const WORD: usize = 64;

/// A worker of the test: a client thread, numbered from 0, or the nemesis. A thread lives as long as the test; its
/// process is replaced when it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

impl Thread {
    /// The worker whose operations are faults. Sorts after all clients.
    pub const NEMESIS: Thread = Thread(u32::MAX);

    /// Is this a client thread?
    pub const fn is_client(self) -> bool {
        self.0 != u32::MAX
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_client() {
            self.0.fmt(f)
        } else {
            f.write_str("nemesis")
        }
    }
}

/// A bijective hash of a word: the finalizer of splitmix64.
pub(crate) const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An immutable set of threads as a bitmap over slots (clients by number, then the nemesis). Only the words from the
/// first to the last member are stored, so a set of one thread among 10,000 costs one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSet {
    /// Index of the first stored word in the bitmap of the whole test.
    first: usize,
    words: Box<[u64]>,
    /// Number of members.
    count: u32,
    /// Hash of the members: equal sets have equal fingerprints.
    fingerprint: u64,
}

impl ThreadSet {
    /// The set of these slots, which must be in ascending order: an earlier word than the first is not representable.
    pub(crate) fn from_slots(slots: impl IntoIterator<Item = usize>) -> ThreadSet {
        let (mut first, mut words) = (0, Vec::new());
        for slot in slots {
            if words.is_empty() {
                first = slot / WORD;
            }
            debug_assert!(slot / WORD >= first, "slots are not in ascending order");
            let index = slot / WORD - first;
            if words.len() <= index {
                words.resize(index + 1, 0);
            }
            words[index] |= 1_u64 << (slot % WORD);
        }
        ThreadSet::from_words(first, words)
    }

    fn from_words(first: usize, words: Vec<u64>) -> ThreadSet {
        // No empty word at either end: one set has one representation, which the fingerprint and `==` rely on.
        debug_assert!(words.first().is_none_or(|&word| word != 0));
        debug_assert!(words.last().is_none_or(|&word| word != 0));
        let count = words.iter().map(|word| word.count_ones()).sum();
        let fingerprint = words.iter().fold(mixed(first as u64 + 1), |sum, &word| {
            mixed(sum ^ word).wrapping_add(sum)
        });
        ThreadSet {
            first,
            words: words.into(),
            count,
            fingerprint,
        }
    }

    /// The word at `index` of the bitmap of the whole test; 0 outside the stored words.
    fn word(&self, index: usize) -> u64 {
        index
            .checked_sub(self.first)
            .and_then(|index| self.words.get(index))
            .copied()
            .unwrap_or(0)
    }

    /// Number of members.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Is the set empty?
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn contains_slot(&self, slot: usize) -> bool {
        self.word(slot / WORD) & (1 << (slot % WORD)) != 0
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().zip(self.first..);
        words.flat_map(|(&word, index)| bits(word).map(move |bit| index * WORD + bit))
    }
}

/// The positions of the set bits, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.checked_sub(1)?;
        Some(bit)
    })
}

/// The state of all threads of one test: free or busy, and their processes. Owned by the interpreter, the only writer;
/// generators read it through a [`Context`]. Every operation costs O(1), and memory is about 8 bytes per thread.
#[derive(Debug)]
pub struct Threads {
    /// Number of client threads; the nemesis has the slot after them.
    concurrency: u32,
    /// One bit per slot: set when the thread is free.
    free: Box<[u64]>,
    /// The current process of each client thread.
    processes: Box<[u64]>,
    /// All threads: the set of the outermost context.
    all: ThreadSet,
    /// Number of processes replaced so far. A generator that counts processes recounts only when this has changed.
    retired: u64,
    /// Random word that selects the free thread to offer; replaced by [`Threads::draw`].
    word: u64,
    /// Number of state changes of client threads, and of the nemesis.
    changes: [u64; 2],
    /// The latest time at which a generator asked during this turn must be asked again. A cell, because generators see
    /// the threads through a shared reference.
    wake: Cell<Time>,
}

impl Threads {
    /// `concurrency` client threads and the nemesis, all free; thread `n` runs process `n`.
    ///
    /// Panics when `concurrency` exceeds [`THREADS_MAX`].
    pub fn new(concurrency: u32) -> Threads {
        assert!(
            concurrency <= THREADS_MAX,
            "{concurrency} threads exceed the maximum of {THREADS_MAX}"
        );
        let slots = concurrency as usize + 1;
        let all = ThreadSet::from_slots(0..slots);
        debug_assert_eq!(all.len(), slots);
        Threads {
            concurrency,
            free: all.words.clone(),
            processes: (0..u64::from(concurrency)).collect(),
            all,
            retired: 0,
            word: 0,
            changes: [0; 2],
            wake: Cell::new(Time::MAX),
        }
    }

    /// Number of client threads.
    pub const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// The context with all threads at this time.
    pub fn context(&self, time: Time) -> Context<'_> {
        Context {
            time,
            threads: self,
            set: &self.all,
        }
    }

    /// The slot of a thread; `None` for a thread that this test does not have.
    fn slot(&self, thread: Thread) -> Option<usize> {
        if thread.0 < self.concurrency {
            Some(thread.0 as usize)
        } else {
            (thread == Thread::NEMESIS).then_some(self.concurrency as usize)
        }
    }

    fn thread(&self, slot: usize) -> Thread {
        if slot < self.concurrency as usize {
            Thread(slot as u32)
        } else {
            Thread::NEMESIS
        }
    }

    /// The slot as a dense index: clients by number, then the nemesis. `None` for a thread that this test does not have.
    pub(crate) fn index_of(&self, thread: Thread) -> Option<usize> {
        self.slot(thread)
    }

    /// Marks a thread busy: it begins an operation. A thread that this test does not have is ignored here and below.
    pub fn occupy(&mut self, thread: Thread) {
        if let Some(slot) = self.slot(thread) {
            self.free[slot / WORD] &= !(1 << (slot % WORD));
            self.changes[usize::from(!thread.is_client())] += 1;
        }
    }

    /// Marks a thread free: its operation has completed.
    pub fn release(&mut self, thread: Thread) {
        if let Some(slot) = self.slot(thread) {
            self.free[slot / WORD] |= 1 << (slot % WORD);
            self.changes[usize::from(!thread.is_client())] += 1;
        }
    }

    /// Replaces the thread's process after a crash by process + concurrency. The process of the nemesis never changes.
    pub fn retire(&mut self, thread: Thread) {
        if let Some(process) = self.processes.get_mut(thread.0 as usize) {
            *process += u64::from(self.concurrency);
            self.retired += 1;
            self.changes[0] += 1;
        }
    }

    /// Sets the random word that selects the free thread of [`Context::some_free_thread`].
    pub fn draw(&mut self, word: u64) {
        self.word = word;
        self.changes[0] += 1;
    }

    /// Takes the latest time at which a generator must be asked again, whatever it returned; [`Time::MAX`] for none.
    pub(crate) fn take_wake(&self) -> Time {
        self.wake.replace(Time::MAX)
    }

    /// The current process of this thread.
    pub fn process_of(&self, thread: Thread) -> Process {
        match self.processes.get(thread.0 as usize) {
            Some(&process) => Process::Client(process),
            None => Process::NEMESIS,
        }
    }

    /// The thread that runs this process, or ran it before it crashed; `None` for a named process.
    pub fn thread_of(&self, process: Process) -> Option<Thread> {
        match process {
            Process::Client(number) => {
                // `retire` adds the concurrency, so the remainder stays the thread's number.
                let thread = number.checked_rem(u64::from(self.concurrency))?;
                Some(Thread(thread as u32))
            }
            Process::NEMESIS => Some(Thread::NEMESIS),
            Process::Named(_) => None,
        }
    }

    /// Number of busy threads, including the nemesis.
    pub(crate) fn busy_count(&self) -> usize {
        let free: u32 = self.free.iter().map(|word| word.count_ones()).sum();
        self.all.len() - free as usize
    }
}

/// The input of a generator: the time, and the state of the threads that it may use. Two pointers and a time, cheap to
/// copy; a restriction to fewer threads replaces one pointer once the [`ThreadFilter`] is compiled.
///
/// In [`Generator::update`](crate::Generator::update) the context shows the state after the event: the event's thread
/// is busy after an invocation and free after a completion, and still runs the process of the event.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    time: Time,
    threads: &'a Threads,
    set: &'a ThreadSet,
}

impl<'a> Context<'a> {
    /// The current time.
    pub const fn time(&self) -> Time {
        self.time
    }

    /// This context at another time.
    #[must_use]
    pub const fn at(self, time: Time) -> Context<'a> {
        Context { time, ..self }
    }

    /// This context with only the threads of `set`, which must be a subset of this context's threads.
    pub(crate) const fn restricted(self, set: &'a ThreadSet) -> Context<'a> {
        Context { set, ..self }
    }

    /// Number of client threads of the whole test.
    pub const fn concurrency(&self) -> u32 {
        self.threads.concurrency
    }

    /// All threads of this context, clients by number, then the nemesis.
    pub fn threads(&self) -> impl Iterator<Item = Thread> {
        let threads = self.threads;
        self.set.slots().map(|slot| threads.thread(slot))
    }

    /// The free threads of this context, in the same order.
    pub fn free_threads(&self) -> impl Iterator<Item = Thread> {
        let threads = self.threads;
        self.free_words().flat_map(move |(index, word)| {
            bits(word).map(move |bit| threads.thread(index * WORD + bit))
        })
    }

    /// The words of this context's free threads, each with its index in the bitmap of the whole test.
    fn free_words(&self) -> impl Iterator<Item = (usize, u64)> {
        let set = self
            .set
            .words
            .iter()
            .zip(self.threads.free[self.set.first..].iter());
        set.zip(self.set.first..)
            .map(|((&set, &free), index)| (index, set & free))
    }

    /// Number of threads of this context.
    pub const fn thread_count(&self) -> usize {
        self.set.len()
    }

    /// Number of free threads.
    pub fn free_count(&self) -> usize {
        self.free_words()
            .map(|(_, word)| word.count_ones() as usize)
            .sum()
    }

    /// Is at least one thread free?
    pub fn any_free(&self) -> bool {
        self.free_words().any(|(_, word)| word != 0)
    }

    /// Is every thread free?
    pub fn all_free(&self) -> bool {
        let mut pairs = self
            .set
            .words
            .iter()
            .zip(self.threads.free[self.set.first..].iter());
        pairs.all(|(&set, &free)| set & !free == 0)
    }

    /// Is this thread one of this context's?
    pub fn contains(&self, thread: Thread) -> bool {
        self.threads
            .slot(thread)
            .is_some_and(|slot| self.set.contains_slot(slot))
    }

    /// Is this thread one of this context's, and free?
    pub fn is_free(&self, thread: Thread) -> bool {
        self.threads.slot(thread).is_some_and(|slot| {
            let bit = 1 << (slot % WORD);
            self.set.word(slot / WORD) & self.threads.free[slot / WORD] & bit != 0
        })
    }

    /// A free thread, uniformly drawn; the same one as long as neither the free threads nor the interpreter's random word
    /// change. `None` when no thread is free.
    pub fn some_free_thread(&self) -> Option<Thread> {
        self.free_thread_drawn(self.threads.word)
    }

    /// The interpreter's random word: the same until a client's operation is committed.
    pub(crate) const fn word(&self) -> u64 {
        self.threads.word
    }

    /// Number of state changes of the nemesis, or of client threads.
    pub(crate) const fn changes(&self, nemesis: bool) -> u64 {
        self.threads.changes[nemesis as usize]
    }

    /// Requests that the generator is asked again at `time` at the latest.
    pub(crate) fn wake(&self, time: Time) {
        let wake = &self.threads.wake;
        wake.set(wake.get().min(time));
    }

    /// The free thread that this random word selects, uniform when the word is.
    pub(crate) fn free_thread_drawn(&self, mut word: u64) -> Option<Thread> {
        let words = self.set.words.len();
        // In a large test, try eight random slots first: rejection sampling is uniform too and reads one word per try
        // instead of all. With few free threads it fails, and the exact selection below decides.
        for _ in 0..if words > 4 { 8 } else { 0 } {
            word = mixed(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let slot = self.set.first * WORD + scaled(word, words * WORD);
            let thread = self.threads.thread(slot);
            if slot <= self.threads.concurrency as usize && self.is_free(thread) {
                return Some(thread);
            }
        }
        let free = self.free_count();
        let mut rank = scaled(word, free);
        for (index, word) in self.free_words() {
            let count = word.count_ones() as usize;
            if rank < count {
                let bit = bits(word).nth(rank)?;
                return Some(self.threads.thread(index * WORD + bit));
            }
            rank -= count;
        }
        None
    }

    /// The process of [`Context::some_free_thread`].
    pub fn some_free_process(&self) -> Option<Process> {
        self.some_free_thread()
            .map(|thread| self.process_of(thread))
    }

    /// The current process of this thread.
    pub fn process_of(&self, thread: Thread) -> Process {
        self.threads.process_of(thread)
    }

    /// The thread that runs this process, or ran it before it crashed.
    pub fn thread_of(&self, process: Process) -> Option<Thread> {
        self.threads.thread_of(process)
    }

    /// The slot of a thread of the whole test, from 0: clients by number, then the nemesis.
    pub(crate) fn index_of(&self, thread: Thread) -> Option<usize> {
        self.threads.slot(thread)
    }

    /// The thread of a slot.
    pub(crate) fn thread_at(&self, index: usize) -> Thread {
        self.threads.thread(index)
    }

    /// The slot of the thread of a process.
    pub(crate) fn index_of_process(&self, process: Process) -> Option<usize> {
        self.index_of(self.thread_of(process)?)
    }

    /// Hash of the set of threads of this context; a filter compiled for one set is recompiled when it differs.
    pub(crate) const fn fingerprint(&self) -> u64 {
        self.set.fingerprint
    }

    /// Number of processes replaced so far.
    pub(crate) const fn retired(&self) -> u64 {
        self.threads.retired
    }

    /// The operation `f` of `value` by some free process, now; [`Next::Pending`] while no thread is free. For
    /// generators that produce operations themselves.
    pub fn operation(&self, f: Symbol, value: Value) -> Next {
        match self.some_free_process() {
            Some(process) => Next::Op(self.operation_by(process, f, value)),
            None => Next::Pending,
        }
    }

    /// The operation `f` of `value` by this process, now: an `invoke` for a client, an `info` for the nemesis.
    pub fn operation_by(&self, process: Process, f: Symbol, value: Value) -> Op {
        let begins = if process.is_client() {
            OpType::Invoke
        } else {
            OpType::Info
        };
        Op {
            time: i64::try_from(self.time.nanoseconds()).unwrap_or(i64::MAX),
            kind: begins,
            ..Op::invoke(process, f, value)
        }
    }
}

/// Maps `word` to `0..bound`, uniform when the word is: the high half of the product (Lemire 2019), without a division.
fn scaled(word: u64, bound: usize) -> usize {
    ((u128::from(word) * bound as u128) >> WORD) as usize
}

/// The predicate of a [`ThreadFilter`].
type Rule = Box<dyn Fn(Thread) -> bool + Send>;

/// A predicate on threads, compiled to a [`ThreadSet`] at its first use, and again only for a context with other
/// threads. Compilation calls the predicate once per thread; afterwards `apply` costs one comparison.
pub struct ThreadFilter {
    rule: Rule,
    /// The fingerprint of the context that was restricted, and the threads of it that pass.
    compiled: Option<(u64, ThreadSet)>,
}

impl ThreadFilter {
    /// Passes the threads that satisfy `rule`, which must be a pure function of the thread.
    pub fn new(rule: impl Fn(Thread) -> bool + Send + 'static) -> ThreadFilter {
        ThreadFilter {
            rule: Box::new(rule),
            compiled: None,
        }
    }

    /// `context` with only the threads that pass.
    pub fn apply<'c>(&'c mut self, context: &Context<'c>) -> Context<'c> {
        let fingerprint = context.fingerprint();
        if self
            .compiled
            .as_ref()
            .is_none_or(|(known, _)| *known != fingerprint)
        {
            let passing = context.threads().filter(|&thread| (self.rule)(thread));
            let slots = passing.filter_map(|thread| context.index_of(thread));
            self.compiled = Some((fingerprint, ThreadSet::from_slots(slots)));
        }
        match &self.compiled {
            Some((_, set)) => context.restricted(set),
            None => *context,
        }
    }

    /// Does this thread pass?
    pub fn passes(&self, thread: Thread) -> bool {
        (self.rule)(thread)
    }
}

impl fmt::Debug for ThreadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadFilter")
            .field("compiled", &self.compiled)
            .finish_non_exhaustive()
    }
}
