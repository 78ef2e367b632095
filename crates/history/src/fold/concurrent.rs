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
mod tests {
    use super::super::fold_linear;
    use super::*;
    use crate::Chunk;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A chunk that cannot be read.
    #[derive(Debug, PartialEq, Eq, thiserror::Error)]
    #[error("chunk {0} is broken")]
    struct BrokenChunk(u64);

    /// A hundred empty chunks that can be damaged.
    struct DamagedChunks {
        damaged: Vec<u64>,
        /// The highest chunk asked for.
        highest: AtomicU64,
    }

    impl Chunks for DamagedChunks {
        type Error = BrokenChunk;
        fn chunk_count(&self) -> u64 {
            100
        }
        fn read_chunk<'a>(
            &self,
            number: u64,
            buffer: &'a mut ChunkBuffer,
        ) -> Result<Option<&'a Chunk>, BrokenChunk> {
            self.highest.fetch_max(number, Ordering::Relaxed);
            if self.damaged.contains(&number) {
                return Err(BrokenChunk(number));
            }
            Ok(Some(&buffer.chunk))
        }
    }

    /// Counts chunks; the first chunk to be reduced is slow.
    #[derive(Default)]
    struct SlowStart<'a> {
        started: AtomicU64,
        highest: Option<&'a AtomicU64>,
        /// The highest chunk that the others had read when the slow one was done.
        ahead: AtomicU64,
        panics_at: Option<u64>,
    }

    impl Fold for SlowStart<'_> {
        type Accumulator = u64;
        type Output = u64;
        fn start(&self) -> u64 {
            0
        }
        fn reduce(&self, count: &mut u64, _: &Chunk) -> ControlFlow<()> {
            let started = self.started.fetch_add(1, Ordering::Relaxed);
            assert_ne!(Some(started), self.panics_at, "as asked for");
            if started == 0 {
                std::thread::sleep(Duration::from_millis(100));
                let highest = self
                    .highest
                    .map_or(0, |highest| highest.load(Ordering::Relaxed));
                self.ahead.store(highest, Ordering::Relaxed);
            }
            *count += 1;
            ControlFlow::Continue(())
        }
        fn combine(&self, count: &mut u64, later: u64) -> ControlFlow<()> {
            *count += later;
            ControlFlow::Continue(())
        }
        fn finish(&self, count: u64) -> u64 {
            count
        }
    }

    fn numbers(damaged: &[u64]) -> DamagedChunks {
        DamagedChunks {
            damaged: damaged.to_vec(),
            highest: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_slow_chunk_bounds_how_far_the_others_go() {
        let chunks = numbers(&[]);
        let fold = SlowStart {
            highest: Some(&chunks.highest),
            ..SlowStart::default()
        };
        assert_eq!(fold_concurrent(&chunks, &fold, 3), Ok(100));
        let ahead = fold.ahead.load(Ordering::Relaxed);
        assert!(
            (1..3 * WAITING_PER_THREAD_MAX + 3).contains(&ahead),
            "{ahead}"
        );
    }

    #[test]
    fn the_first_damaged_chunk_is_reported() {
        for threads in [1, 2, 4] {
            let chunks = numbers(&[40, 41, 42, 99]);
            let fold = SlowStart::default();
            assert_eq!(
                fold_concurrent(&chunks, &fold, threads),
                Err(BrokenChunk(40))
            );
        }
        let error = fold_linear(&numbers(&[7]), &SlowStart::default());
        assert_eq!(error, Err(BrokenChunk(7)));
    }

    #[test]
    fn a_panic_of_a_fold_ends_all_threads() {
        for panics_at in [0, 1, 50] {
            let result = std::panic::catch_unwind(|| {
                let fold = SlowStart {
                    panics_at: Some(panics_at),
                    ..SlowStart::default()
                };
                fold_concurrent(&numbers(&[]), &fold, 3)
            });
            assert!(result.is_err());
        }
    }
}
