//! Folds: one pass over the chunks of a history, in one thread or in several.

use crate::chunk::{Chunk, Encoder, measure};
use crate::store::{ChunkBuffer, OpenError, TestFile};
use crate::{History, HistoryError, Op};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How a fold may be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One accumulator sees all chunks in order; [`Fold::combine`] is never called.
    Linear,
    /// Each chunk gets an accumulator of its own; they are combined one by one in the order of the chunks.
    #[default]
    Concurrent,
    /// As [`Order::Concurrent`], and neighbours may be combined before what is in front of them: `combine` is associative.
    Associative,
}

/// A question about a whole history that is answered chunk by chunk. One virtual call a chunk; what happens per operation
/// is the fold's own loop.
///
/// [`Fold::reduce`] sees every chunk exactly once. Run linearly, one accumulator sees them in order. Run concurrently,
/// each chunk gets an accumulator of its own, and they are combined in the order of the chunks; both give the same if
/// combining is what reducing the later chunks would have done.
///
/// A fold that breaks, from `reduce` or `combine`, says that its accumulator is the answer whatever the chunks behind
/// hold; these are then not asked for, or what they gave is thrown away. To leave only the current chunk early, return.
pub trait Fold: Send + Sync {
    /// What is known so far. Owned by one thread at a time, so it needs no lock.
    type Accumulator: Send;
    /// The answer.
    type Output: Send;

    /// What people see it as.
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// How it may be carried out.
    fn order(&self) -> Order {
        Order::default()
    }

    /// Is somebody waiting for just this one? Then its chunks come first.
    fn asap(&self) -> bool {
        false
    }

    /// Nothing is known.
    fn start(&self) -> Self::Accumulator;

    /// Takes one chunk into account.
    fn reduce(&self, accumulator: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()>;

    /// Takes what is known of the chunks right behind into account.
    fn combine(
        &self,
        accumulator: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()>;

    /// The answer when all chunks were seen that matter.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// What can be folded over: a history in chunks.
pub trait Chunks: Sync {
    /// Why a chunk cannot be had.
    type Error: Send;

    /// How many there are.
    fn chunk_count(&self) -> u64;

    /// The chunk with this number, from 0, read into memory that is used again; `None` behind the last one.
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, Self::Error>;
}

impl Chunks for TestFile {
    type Error = OpenError;

    fn chunk_count(&self) -> u64 {
        TestFile::chunk_count(self)
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        TestFile::read_chunk(self, number, buffer)
    }
}

/// Operations of a chunk that is made from a history in memory.
const CHUNK_LENGTH: usize = 16_384;

/// A history in memory is put into columns chunk by chunk, which takes longer than most folds; a question that is asked
/// of such histories only had better iterate.
impl Chunks for History {
    type Error = HistoryError;

    fn chunk_count(&self) -> u64 {
        self.len().div_ceil(CHUNK_LENGTH) as u64
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, HistoryError> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(ops) = self.ops().chunks(CHUNK_LENGTH).nth(number) else {
            return Ok(None);
        };
        let first = number * CHUNK_LENGTH;
        let distance = |position: usize| {
            let invocation = self.pair(position).filter(|&other| other < position);
            invocation.map_or(0, |invocation| (position - invocation) as u64)
        };
        buffer.chunk = in_columns(ops, first as u64, |place| distance(first + place))?;
        Ok(Some(&buffer.chunk))
    }
}

/// These operations as a chunk; `pair` gives the distance to the invocation of the one at a place.
fn in_columns(
    ops: &[Op],
    first_position: u64,
    pair: impl Fn(usize) -> u64,
) -> Result<Chunk, HistoryError> {
    let mut encoder = Encoder::default();
    for (place, op) in ops.iter().enumerate() {
        let index = op.index;
        measure(op).map_err(|reason| HistoryError::Unstorable { index, reason })?;
        encoder.push(op, pair(place));
    }
    let mut bytes = Vec::new();
    encoder.write(first_position, &mut bytes);
    Ok(Chunk::from_bytes(&bytes).expect("what was measured and written is read"))
}

/// Folds chunk after chunk in this thread.
pub fn fold_linear<C: Chunks, F: Fold>(chunks: &C, fold: &F) -> Result<F::Output, C::Error> {
    let mut accumulator = fold.start();
    let mut buffer = ChunkBuffer::default();
    for number in 0..chunks.chunk_count() {
        if let Some(chunk) = chunks.read_chunk(number, &mut buffer)?
            && fold.reduce(&mut accumulator, chunk).is_break()
        {
            break;
        }
    }
    Ok(fold.finish(accumulator))
}

/// So many chunks per thread may be reduced and wait for one that is not.
const WAITING_PER_THREAD_MAX: u64 = 4;

/// What the threads of a concurrent fold share.
struct State<A, E> {
    /// The next chunk that nobody has taken.
    next: u64,
    /// Chunks before this one are combined.
    combined: u64,
    /// `None` while a thread combines.
    accumulator: Option<A>,
    /// Reduced chunks that wait for earlier ones: fewer than the window.
    parts: BTreeMap<u64, (A, ControlFlow<()>)>,
    failure: Option<(u64, E)>,
    /// Nobody takes a further chunk: one failed, a thread panicked, or the fold has its answer.
    stopped: bool,
    /// The fold has its answer: what is behind does not matter, nor does damage there.
    ended: bool,
}

/// One concurrent fold.
struct Pass<'a, C: Chunks, F: Fold> {
    chunks: &'a C,
    fold: &'a F,
    count: u64,
    /// A chunk is taken only if so many at most are not combined yet, itself included. Bounds the parts that wait
    /// when one chunk takes long.
    window: u64,
    state: Mutex<State<F::Accumulator, C::Error>>,
    /// Told when chunks were combined, and when the pass stops.
    progress: Condvar,
}

/// Folds in `threads` threads: chunks are read, decoded and reduced side by side and combined in order. A damaged chunk
/// fails the fold; of several the first is told. A panic of the fold is passed on once the other threads have stopped.
pub fn fold_concurrent<C: Chunks, F: Fold>(
    chunks: &C,
    fold: &F,
    threads: usize,
) -> Result<F::Output, C::Error> {
    let threads = threads.max(1);
    let pass = Pass {
        chunks,
        fold,
        count: chunks.chunk_count(),
        window: WAITING_PER_THREAD_MAX * threads as u64,
        state: Mutex::new(State {
            next: 0,
            combined: 0,
            accumulator: Some(fold.start()),
            parts: BTreeMap::new(),
            failure: None,
            stopped: false,
            ended: false,
        }),
        progress: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| pass.work());
        }
    });
    let state = pass.state.into_inner();
    let state = state.unwrap_or_else(PoisonError::into_inner);
    match (state.failure, state.accumulator) {
        (Some((_, failure)), _) if !state.ended => Err(failure),
        (_, accumulator) => Ok(fold.finish(accumulator.unwrap_or_else(|| fold.start()))),
    }
}

impl<C: Chunks, F: Fold> Pass<'_, C, F> {
    fn lock(&self) -> MutexGuard<'_, State<F::Accumulator, C::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes chunks until there are none.
    fn work(&self) {
        let _guard = StopOnPanic(self);
        let mut buffer = ChunkBuffer::default();
        while let Some(number) = self.take() {
            let mut part = self.fold.start();
            let flow = match self.chunks.read_chunk(number, &mut buffer) {
                Ok(Some(chunk)) => self.fold.reduce(&mut part, chunk),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => return self.fail(number, error),
            };
            self.lock().parts.insert(number, (part, flow));
            self.combine();
        }
    }

    /// The next chunk that nobody has taken, once it is inside the window.
    fn take(&self) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.next == self.count {
                return None;
            }
            if state.next < state.combined + self.window {
                state.next += 1;
                return Some(state.next - 1);
            }
            let waited = self.progress.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fail(&self, number: u64, error: C::Error) {
        let mut state = self.lock();
        let earlier = state
            .failure
            .as_ref()
            .is_some_and(|(first, _)| *first < number);
        if !earlier {
            state.failure = Some((number, error));
        }
        state.stopped = true;
        self.progress.notify_all();
    }

    /// Combines what is complete, outside of the lock. One thread at a time; whoever comes meanwhile leaves its part
    /// to that one.
    fn combine(&self) {
        let mut state = self.lock();
        loop {
            let combined = state.combined;
            let is_waiting = state.accumulator.is_some() && state.parts.contains_key(&combined);
            if state.ended || !is_waiting {
                return;
            }
            let (Some(mut accumulator), Some((part, flow))) =
                (state.accumulator.take(), state.parts.remove(&combined))
            else {
                return;
            };
            drop(state);
            let ends = self.fold.combine(&mut accumulator, part).is_break() || flow.is_break();
            state = self.lock();
            state.accumulator = Some(accumulator);
            state.combined += 1;
            if ends {
                state.ended = true;
                state.stopped = true;
            }
            self.progress.notify_all();
        }
    }
}

/// Wakes those who would wait for a thread that is gone.
struct StopOnPanic<'a, 'b, C: Chunks, F: Fold>(&'a Pass<'b, C, F>);

impl<C: Chunks, F: Fold> Drop for StopOnPanic<'_, '_, C, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().stopped = true;
            self.0.progress.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
