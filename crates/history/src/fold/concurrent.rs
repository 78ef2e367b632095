//! Runs one fold on threads of its own.

use super::{Chunks, Fold};
use crate::store::ChunkBuffer;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Reduced chunks per thread that may wait for an earlier one.
const WAITING_PER_THREAD_MAX: u64 = 4;

/// State that the threads of a concurrent fold share, under the lock.
struct PassState<A, E> {
    /// The next chunk to take.
    next: u64,
    /// Chunks before this one are combined.
    combined: u64,
    /// `None` while a thread combines.
    accumulator: Option<A>,
    /// Parts of reduced chunks that wait for earlier ones: fewer than the window.
    parts: BTreeMap<u64, (A, ControlFlow<()>)>,
    failure: Option<(u64, E)>,
    /// No further chunk is taken: one failed, a thread panicked, or the fold ended early.
    stopped: bool,
    /// The fold ended early: later chunks are irrelevant, and so is damage in them.
    ended: bool,
}

/// One concurrent fold.
struct Pass<'a, C: Chunks, F: Fold> {
    chunks: &'a C,
    fold: &'a F,
    count: u64,
    /// A chunk is taken only within this many of the first uncombined one. Bounds the waiting parts when one chunk takes
    /// long.
    window: u64,
    state: Mutex<PassState<F::Accumulator, C::Error>>,
    /// Notified when chunks were combined, and when the pass stops.
    progress: Condvar,
}

/// Runs one fold on `threads` threads and returns its answer. For borrowed folds and chunks, and for callers that hold a
/// lock; other callers use a [`super::Folder`], where folds share decoded chunks.
///
/// Chunks are read, decoded and reduced concurrently, and combined in order. The first damaged chunk, in chunk order, fails
/// the fold. A panic of the fold is propagated once the other threads have stopped.
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
        state: Mutex::new(PassState {
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
        for _ in 1..threads {
            // If the system refuses a thread, the others do its work.
            let _ = Builder::new().spawn_scoped(scope, || pass.work());
        }
        pass.work();
    });
    let state = pass.state.into_inner();
    let state = state.unwrap_or_else(PoisonError::into_inner);
    assert!(
        state.stopped || state.combined == pass.count,
        "a chunk was not folded"
    );
    match (state.failure, state.accumulator) {
        (Some((_, failure)), _) if !state.ended => Err(failure),
        (_, accumulator) => Ok(fold.finish(accumulator.unwrap_or_else(|| fold.start()))),
    }
}

impl<C: Chunks, F: Fold> Pass<'_, C, F> {
    fn lock(&self) -> MutexGuard<'_, PassState<F::Accumulator, C::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes, reduces and combines chunks until there are none. Each thread runs this loop.
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

    /// Takes the next chunk, blocking until it is inside the window; `None` at the end.
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

    /// Combines all parts whose predecessors are combined, outside of the lock. One thread at a time combines: others leave
    /// their parts to it.
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
            debug_assert!(state.combined <= state.next, "a chunk is combined twice");
            if ends {
                state.ended = true;
                state.stopped = true;
            }
            self.progress.notify_all();
        }
    }
}

/// Stops the pass when its thread panics, so that no other thread waits for it.
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
