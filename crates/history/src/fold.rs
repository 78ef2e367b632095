//! Folds: one pass over the chunks of a test file, in one thread or in several.

use crate::chunk::Chunk;
use crate::store::{OpenError, TestFile};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A question about a whole history that is answered chunk by chunk. One virtual call a chunk; what happens per operation
/// is the fold's own loop.
///
/// [`Fold::reduce`] sees every chunk exactly once. Run linearly, one accumulator sees them in order. Run concurrently,
/// each chunk gets an accumulator of its own, and they are combined in the order of the chunks; both give the same if
/// combining is what reducing the later chunks would have done.
pub trait Fold: Sync {
    /// What is known so far. Owned by one thread at a time, so it needs no lock.
    type Accumulator: Send;
    /// The answer.
    type Output;

    /// Nothing is known.
    fn start(&self) -> Self::Accumulator;

    /// Takes one chunk into account.
    fn reduce(&self, accumulator: &mut Self::Accumulator, chunk: &Chunk);

    /// Takes what is known of the chunks right behind into account.
    fn combine(&self, accumulator: &mut Self::Accumulator, later: Self::Accumulator);

    /// The answer when all chunks were seen.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// Folds chunk after chunk in this thread.
pub fn fold_linear<F: Fold>(file: &TestFile, fold: &F) -> Result<F::Output, OpenError> {
    let mut accumulator = fold.start();
    for chunk in file.chunks() {
        fold.reduce(&mut accumulator, &chunk?);
    }
    Ok(fold.finish(accumulator))
}

/// What the threads of a concurrent fold share.
struct Shared<A> {
    /// The next chunk that nobody has taken.
    next: u64,
    /// Chunks before this one are combined.
    combined: u64,
    /// `None` while a thread combines.
    accumulator: Option<A>,
    /// Reduced chunks that wait for earlier ones; never more than there are threads, for a thread that is ahead waits
    /// for nothing else than its own next chunk.
    parts: BTreeMap<u64, A>,
    failure: Option<(u64, OpenError)>,
}

/// Folds in `threads` threads: chunks are read, decoded and reduced side by side and combined in order. A damaged chunk
/// fails the fold; of several the first is told.
pub fn fold_concurrent<F: Fold>(
    file: &TestFile,
    fold: &F,
    threads: usize,
) -> Result<F::Output, OpenError> {
    let shared = Mutex::new(Shared {
        next: 0,
        combined: 0,
        accumulator: Some(fold.start()),
        parts: BTreeMap::new(),
        failure: None,
    });
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| work(file, fold, &shared));
        }
    });
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, failure)) = shared.failure {
        return Err(failure);
    }
    let accumulator = shared.accumulator.unwrap_or_else(|| fold.start());
    Ok(fold.finish(accumulator))
}

/// Takes chunks until there are none.
fn work<F: Fold>(file: &TestFile, fold: &F, shared: &Mutex<Shared<F::Accumulator>>) {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let number = {
            let mut shared = lock();
            if shared.failure.is_some() || shared.next == file.chunk_count() {
                return;
            }
            shared.next += 1;
            shared.next - 1
        };
        let mut part = fold.start();
        match file.chunk(number) {
            Ok(Some(chunk)) => fold.reduce(&mut part, &chunk),
            Ok(None) => return,
            Err(error) => {
                let mut shared = lock();
                if shared
                    .failure
                    .as_ref()
                    .is_none_or(|(first, _)| number < *first)
                {
                    shared.failure = Some((number, error));
                }
                return;
            }
        }
        lock().parts.insert(number, part);
        // One thread at a time combines what is complete, outside the lock.
        loop {
            let (mut accumulator, next) = {
                let mut shared = lock();
                let combined = shared.combined;
                if shared.accumulator.is_none() {
                    break;
                }
                let Some(next) = shared.parts.remove(&combined) else {
                    break;
                };
                match shared.accumulator.take() {
                    Some(accumulator) => (accumulator, next),
                    None => break,
                }
            };
            fold.combine(&mut accumulator, next);
            let mut shared = lock();
            shared.accumulator = Some(accumulator);
            shared.combined += 1;
        }
    }
}
