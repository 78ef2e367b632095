//! One fold in several threads.

use super::{Chunks, Fold};
use crate::store::ChunkBuffer;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
