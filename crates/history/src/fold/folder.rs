//! The folder: runs many folds in one pass over the chunks of a history.

use super::erased::{
    AnswerSink, Cause, ErasedFold, ErasedPart, FoldAnswer, FoldError, TaskAnswer, TypedFold,
    guarded,
};
use super::matrix::{ChunkClaim, Effects, FoldId, FoldOutcome, FoldRequest, FoldShare, Matrix};
use super::resident::{Decoded, Resident};
use super::{Chunks, Fold};
use seatrial_task::{Executor, Task, TaskError};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Counters of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderStatistics {
    /// Chunks read and decoded.
    pub chunks_decoded: u64,
    /// Reductions: how often a chunk was reduced by a fold.
    pub chunks_reduced: u64,
    /// Folds that ended with an answer.
    pub folds_answered: u64,
    /// Folds that failed or were cancelled.
    pub folds_failed: u64,
    /// The highest number of parts of one fold that ever waited for earlier ones to be combined.
    pub parts_waiting_max: usize,
}

/// Runs many folds over one history in few passes. Cheap to clone; all clones are the same folder.
///
/// ```text
///  Folder::fold, submit, task, together (any thread)
///      │                                   lock
///      ▼                          ┌──────────────────────┐
///  work matrix: claim ──────────► │ chunk 7: folds A, C  │
///      ▲                          └──────────┬───────────┘
///      │ put part, merge                     ▼           no lock
///      └────────── reduce A, reduce C ◄── decode chunk 7 (or take it from the decoded ones)
/// ```
///
/// [`Folder::fold`] blocks until the answer, [`Folder::submit`] returns a handle. A decoded chunk is reduced by every fold
/// that still needs it. An associative fold that is submitted late joins the running pass and gets the chunks that it
/// missed afterwards; late linear and concurrent folds start at chunk 0, run until they meet the others, and share chunks
/// from there on. Every fold reduces each chunk exactly once, in the order that [`Fold`] specifies. A damaged chunk or a
/// panic fails only the folds that it concerns.
///
/// Bounds: at most `threads` chunks are in work at a time; up to `4 * threads + 16` decoded chunks (about 2 MB each) are kept
/// while a fold will soon need them. Decisions are made by the work matrix under a lock, folds run without it.
///
/// A fold may call the folder from its `reduce`. The calling worker then works for the new fold alone until that has its
/// answer, so there is no deadlock; the price is that chunks are decoded for this fold alone.
///
/// Cost: a fold may be delayed by slower folds that share a chunk with it.
pub struct Folder<C: Chunks + 'static> {
    shared: Arc<FolderShared<C>>,
}

impl<C: Chunks + 'static> Clone for Folder<C> {
    fn clone(&self) -> Self {
        Folder {
            shared: self.shared.clone(),
        }
    }
}

impl<C: Chunks + 'static> std::fmt::Debug for Folder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Folder");
        debug.field("threads", &self.shared.threads);
        debug
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

type SharedFold<E> = Arc<dyn ErasedFold<E>>;
type FolderMatrix<E> = Matrix<SharedFold<E>, ErasedPart, Cause<E>>;
type FolderEffects<E> = Effects<SharedFold<E>, ErasedPart, Cause<E>>;

/// State under the folder's lock.
struct FolderState<E: std::error::Error + 'static> {
    matrix: FolderMatrix<E>,
    resident: Resident,
    /// Running chains of tasks; each works on one chunk at a time.
    chains: usize,
    /// Threads that wait for work of a nested fold, see [`FolderShared::help`].
    helpers: usize,
    statistics: FolderStatistics,
}

struct FolderShared<C: Chunks + 'static> {
    chunks: Arc<C>,
    threads: usize,
    executor: Executor,
    state: Mutex<FolderState<C::Error>>,
    /// Notified after every change while there are helpers.
    progress: Condvar,
}

/// A claim, with its chunk if that is decoded already.
struct ClaimedChunk<E: std::error::Error + 'static> {
    claim: ChunkClaim<SharedFold<E>, ErasedPart>,
    /// Decoded by another worker.
    resident: Option<Arc<Decoded>>,
}

thread_local! {
    /// Is this thread inside `serve`? Then it must not block.
    static IS_WORKING: Cell<bool> = const { Cell::new(false) };
}

/// Handle of a submitted fold. Dropping it does not cancel the fold.
#[must_use = "the answer comes out of `wait`"]
pub struct Folding<C: Chunks + 'static, F: Fold + 'static> {
    folder: Folder<C>,
    id: FoldId,
    answer: Arc<FoldAnswer<F::Output, C::Error>>,
    name: String,
}

impl<C: Chunks + 'static, F: Fold + 'static> Folding<C, F> {
    /// Blocks until the answer is there, and returns it.
    pub fn wait(self) -> Result<F::Output, FoldError<C::Error>> {
        let shared = &self.folder.shared;
        let joined = if IS_WORKING.get() || !self.folder.executor().has_workers() {
            Err(None)
        } else {
            self.answer.task().join().map_err(Some)
        };
        match joined {
            Ok(_) => {}
            Err(Some(TaskError::Cancelled { .. } | TaskError::Dropped { .. })) => self.cancel(),
            // A worker must not block (or there is no worker at all), so this thread works for the fold.
            Err(_) => shared.help(self.id, || !self.answer.is_open()),
        }
        let cancelled = FoldError::Cancelled { fold: self.name };
        self.answer.take().unwrap_or(Err(cancelled))
    }

    /// Has the fold ended, with or without an answer?
    pub fn is_done(&self) -> bool {
        !self.answer.is_open()
    }

    /// Cancels the fold unless it has ended. A reduction that is running is completed, none is started afterwards.
    pub fn cancel(&self) {
        self.folder.shared.cancel(self.id);
        let fold = self.name.clone();
        self.answer.deliver(Err(FoldError::Cancelled { fold }));
    }
}

impl<C: Chunks + 'static, F: Fold + 'static> std::fmt::Debug for Folding<C, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Folding");
        debug.field("name", &self.name).field("id", &self.id);
        debug.finish_non_exhaustive()
    }
}

/// A fold with its id, ready to be submitted.
struct PreparedFold<E: std::error::Error + 'static> {
    id: FoldId,
    job: SharedFold<E>,
    request: FoldRequest,
}

/// Folds that are submitted together, see [`Folder::together`].
pub struct FoldBatch<'a, C: Chunks + 'static> {
    folder: &'a Folder<C>,
    entries: Vec<PreparedFold<C::Error>>,
}

impl<C: Chunks + 'static> FoldBatch<'_, C> {
    /// Adds a fold. It starts when the batch is complete; waiting for its answer inside the batch blocks for ever.
    pub fn submit<F: Fold + 'static>(&mut self, fold: F) -> Folding<C, F> {
        let (folding, entry) = self.folder.folding(fold);
        self.entries.push(entry);
        folding
    }

    /// Adds a fold whose answer is a task, see [`Folder::task`].
    pub fn task<F: Fold<Output: Sync> + 'static>(&mut self, fold: F) -> Task<F::Output> {
        let (task, entry) = self.folder.prepared_task(fold);
        self.entries.push(entry);
        task
    }
}

impl<C: Chunks + 'static> Folder<C> {
    /// Creates a folder with `threads` threads of its own, at least one. They end with the last clone, once all folds have
    /// ended. If the system refuses threads, fewer are used; with none, the threads that block in [`Folder::fold`] and
    /// [`Folding::wait`] do the work.
    pub fn new(chunks: Arc<C>, threads: usize) -> Folder<C> {
        let (executor, _) = Executor::at_most(threads);
        Folder::on(chunks, &executor)
    }

    /// Creates a folder that runs on the workers of `executor`: each chunk is a task, which submits the next one.
    pub fn on(chunks: Arc<C>, executor: &Executor) -> Folder<C> {
        let threads = executor.threads();
        let resident = Resident::new(threads);
        let state = FolderState {
            matrix: Matrix::new(resident.length_max() - threads as u64),
            resident,
            chains: 0,
            helpers: 0,
            statistics: FolderStatistics::default(),
        };
        let shared = FolderShared {
            chunks,
            threads,
            executor: executor.clone(),
            state: Mutex::new(state),
            progress: Condvar::new(),
        };
        Folder {
            shared: Arc::new(shared),
        }
    }

    /// The executor that runs the folds.
    pub fn executor(&self) -> &Executor {
        &self.shared.executor
    }

    /// The history that is folded.
    pub fn chunks(&self) -> &Arc<C> {
        &self.shared.chunks
    }

    /// Runs a fold over the whole history and blocks until its answer is there.
    pub fn fold<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, FoldError<C::Error>> {
        self.submit(fold).wait()
    }

    /// Submits a fold over the whole history and returns its handle.
    pub fn submit<F: Fold + 'static>(&self, fold: F) -> Folding<C, F> {
        let (folding, entry) = self.folding(fold);
        self.shared.submit(vec![entry]);
        folding
    }

    /// Submits a fold whose answer is a task, on which other tasks of the executor may depend. If the fold fails, the
    /// task's error is the [`FoldError`]. Cancelling the task cancels the fold.
    pub fn task<F: Fold<Output: Sync> + 'static>(&self, fold: F) -> Task<F::Output> {
        let (task, entry) = self.prepared_task(fold);
        self.shared.submit(vec![entry]);
        task
    }

    /// Submits several folds that start together, so that they share every chunk that their orders permit.
    pub fn together<T>(&self, submit: impl FnOnce(&mut FoldBatch<'_, C>) -> T) -> T {
        let mut batch = FoldBatch {
            folder: self,
            entries: Vec::new(),
        };
        let result = submit(&mut batch);
        self.shared.submit(batch.entries);
        result
    }

    /// Counters of this folder so far.
    pub fn statistics(&self) -> FolderStatistics {
        let state = self.shared.lock();
        FolderStatistics {
            parts_waiting_max: state.matrix.parts_waiting_max(),
            ..state.statistics
        }
    }

    fn folding<F: Fold + 'static>(&self, fold: F) -> (Folding<C, F>, PreparedFold<C::Error>) {
        let name = fold.name();
        let promise = self.shared.executor.promise(name.clone());
        let answer = Arc::new(FoldAnswer::new(promise));
        let entry = self.entry(fold, name.clone(), answer.clone());
        let folding = Folding {
            folder: self.clone(),
            id: entry.id,
            answer,
            name,
        };
        (folding, entry)
    }

    fn prepared_task<F: Fold<Output: Sync> + 'static>(
        &self,
        fold: F,
    ) -> (Task<F::Output>, PreparedFold<C::Error>) {
        let name = fold.name();
        let (promise, task) = self.shared.executor.promise(name.clone());
        let sink = TaskAnswer::new((promise, task.clone()));
        let entry = self.entry(fold, name, Arc::new(sink));
        (task, entry)
    }

    fn entry<F: Fold + 'static>(
        &self,
        fold: F,
        name: String,
        sink: Arc<dyn AnswerSink<F::Output, C::Error>>,
    ) -> PreparedFold<C::Error> {
        let request = FoldRequest {
            order: fold.order(),
            asap: fold.asap(),
            chunk_count: self.shared.chunks.chunk_count(),
        };
        let id = self.shared.lock().matrix.reserve();
        let job = Arc::new(TypedFold { fold, name, sink });
        PreparedFold { id, job, request }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> FolderState<E> {
    fn claim(&mut self) -> Option<ClaimedChunk<E>> {
        let claim = self.matrix.claim(&self.resident.numbers())?;
        Some(self.work(claim))
    }

    fn claim_for(&mut self, id: FoldId) -> Option<ClaimedChunk<E>> {
        let claim = self.matrix.claim_for(id, &self.resident.numbers())?;
        Some(self.work(claim))
    }

    fn work(&mut self, claim: ChunkClaim<SharedFold<E>, ErasedPart>) -> ClaimedChunk<E> {
        let resident = self.resident.get(claim.chunk);
        self.statistics.chunks_reduced += claim.shares.len() as u64;
        ClaimedChunk { claim, resident }
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.matrix.is_wanted(number, self.resident.length_max())
    }

    /// Frees decoded chunks that no fold needs soon.
    fn sweep(&mut self) {
        let (matrix, more) = (&self.matrix, self.resident.length_max());
        self.resident.sweep(|number| matrix.is_wanted(number, more));
    }

    fn count(&mut self, effects: &FolderEffects<E>) {
        for (.., outcome) in &effects.ended {
            match outcome {
                FoldOutcome::Done(_) => self.statistics.folds_answered += 1,
                FoldOutcome::Failed(_) | FoldOutcome::Cancelled => {
                    self.statistics.folds_failed += 1;
                }
            }
        }
    }
}

impl<C: Chunks + 'static> FolderShared<C> {
    fn lock(&self) -> MutexGuard<'_, FolderState<C::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state under the lock, then starts a further chain if there is work for it. Adds outcomes and drops to
    /// `effects`, which the caller carries out without the lock.
    fn change<T>(
        self: &Arc<Self>,
        effects: &mut FolderEffects<C::Error>,
        change: impl FnOnce(&mut FolderState<C::Error>) -> T,
    ) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let new = state.matrix.take_effects();
        state.count(&new);
        let starts =
            state.chains < self.threads && state.matrix.has_work(&state.resident.numbers());
        if starts {
            state.chains += 1;
        }
        assert!(state.chains <= self.threads, "more chains than threads");
        if state.helpers > 0 {
            self.progress.notify_all();
        }
        drop(state);
        effects.ended.extend(new.ended);
        effects.discarded.extend(new.discarded);
        if starts {
            self.chain();
        }
        result
    }

    /// Submits a task that serves one claim and then submits the next: between two chunks other tasks of a shared executor
    /// get their turn.
    fn chain(self: &Arc<Self>) {
        let shared = self.clone();
        self.executor.submit("chunk for folds", (), move |()| {
            let mut state = shared.lock();
            let Some(work) = state.claim() else {
                state.chains -= 1;
                return;
            };
            drop(state);
            shared.serve(work);
            shared.chain();
        });
    }

    fn submit(self: &Arc<Self>, entries: Vec<PreparedFold<C::Error>>) {
        let mut effects = FolderEffects::default();
        let at_once = IS_WORKING.get();
        let refused = self.change(&mut effects, |state| {
            let mut refused = Vec::new();
            for entry in entries {
                let (job, request) = (entry.job, entry.request);
                if let Err(job) = state.matrix.submit(entry.id, job, request, at_once) {
                    refused.push(job);
                }
            }
            state.statistics.folds_failed += refused.len() as u64;
            refused
        });
        for job in refused {
            job.fail(Some(Cause::Refused));
        }
        self.carry_out(effects);
    }

    fn cancel(self: &Arc<Self>, id: FoldId) {
        let mut effects = FolderEffects::default();
        self.change(&mut effects, |state| state.matrix.cancel(id));
        self.carry_out(effects);
    }

    /// Works for one fold alone until it has ended. Called by a worker that needs its answer, instead of blocking.
    fn help(self: &Arc<Self>, id: FoldId, is_done: impl Fn() -> bool) {
        loop {
            let mut state = self.lock();
            let work = loop {
                if is_done() {
                    return;
                }
                if let Some(work) = state.claim_for(id) {
                    break work;
                }
                state.helpers += 1;
                let waited = self.progress.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                state.helpers -= 1;
            };
            drop(state);
            self.serve(work);
        }
    }

    /// Carries out a claim: reduces its chunk for each of its folds.
    fn serve(self: &Arc<Self>, work: ClaimedChunk<C::Error>) {
        let was_working = IS_WORKING.replace(true);
        let mut effects = FolderEffects::default();
        let number = work.claim.chunk;
        match self.obtain(number, work.resident, &mut effects) {
            Ok(chunk) => {
                let wide = self.lock().resident.wide();
                chunk.buffer.chunk.take_memory(wide);
                for share in work.claim.shares {
                    self.reduce(share, number, &chunk, &mut effects);
                }
                self.change(&mut effects, |state| {
                    state.resident.release(chunk);
                    state.sweep();
                });
            }
            Err(cause) => self.change(&mut effects, |state| {
                for share in work.claim.shares {
                    state.matrix.fail(share.id, number, cause.clone());
                }
            }),
        }
        self.carry_out(effects);
        IS_WORKING.set(was_working);
    }

    /// Returns the decoded chunk: the resident one, else it is read and decoded here.
    fn obtain(
        self: &Arc<Self>,
        number: u64,
        resident: Option<Arc<Decoded>>,
        effects: &mut FolderEffects<C::Error>,
    ) -> Result<Arc<Decoded>, Cause<C::Error>> {
        if let Some(chunk) = resident {
            return Ok(chunk);
        }
        let mut buffer = self.lock().resident.memory();
        let read = guarded(|| {
            let read = self.chunks.read_chunk(number, &mut buffer);
            read.map(|chunk| chunk.is_some())
        });
        let scratch = std::mem::take(&mut buffer.scratch);
        let result = match read {
            Ok(Ok(is_there)) => Ok(Arc::new(Decoded { buffer, is_there })),
            Ok(Err(error)) => Err(Cause::Damage {
                chunk: number,
                error: Arc::new(error),
            }),
            Err(message) => Err(Cause::Panic(message)),
        };
        self.change(effects, |state| {
            state.matrix.decoded(number);
            state.statistics.chunks_decoded += 1;
            state.resident.put_scratch(scratch);
            if let Ok(chunk) = &result
                && state.is_wanted(number)
            {
                state.resident.put(number, chunk.clone());
            }
        });
        result
    }

    /// Reduces a chunk for one fold, then combines adjacent parts as long as there are any.
    fn reduce(
        self: &Arc<Self>,
        share: FoldShare<SharedFold<C::Error>, ErasedPart>,
        number: u64,
        chunk: &Decoded,
        effects: &mut FolderEffects<C::Error>,
    ) {
        let (id, job) = (share.id, share.job);
        if !job.is_wanted() {
            self.change(effects, |state| state.matrix.cancel(id));
            effects.discarded.extend(share.accumulator);
            return;
        }
        let reduced = guarded(|| {
            let mut part = share.accumulator.unwrap_or_else(|| job.start());
            let breaks = chunk.is_there && job.reduce(&mut part, &chunk.buffer.chunk).is_break();
            (part, breaks)
        });
        let mut range = (share.start, number + 1);
        let mut result = reduced.map_err(|message| (number, message));
        loop {
            let merge = self.change(effects, |state| match result {
                Ok((part, breaks)) => {
                    state.matrix.put(id, range, part, breaks);
                    state.matrix.merge(id, range.0)
                }
                Err((start, message)) => {
                    state.matrix.fail(id, start, Cause::Panic(message));
                    None
                }
            });
            let Some(mut merge) = merge else {
                break;
            };
            range = (merge.start, merge.end);
            let combined = guarded(|| {
                let breaks = job.combine(&mut merge.earlier, merge.later).is_break();
                (merge.earlier, breaks)
            });
            result = combined.map_err(|message| (merge.start, message));
        }
        // This may be the last reference to the fold, whose drop runs its code.
        let _ = guarded(|| drop(job));
    }

    /// Delivers outcomes and drops discarded parts. Both run code of folds, so the lock must not be held.
    fn carry_out(&self, effects: FolderEffects<C::Error>) {
        let any_ended = !effects.ended.is_empty();
        for (_, job, outcome) in effects.ended {
            let delivered = guarded(|| match outcome {
                FoldOutcome::Done(part) => job.answer(part),
                FoldOutcome::Failed(cause) => job.fail(Some(cause)),
                FoldOutcome::Cancelled => job.fail(None),
            });
            if let Err(message) = delivered {
                job.fail(Some(Cause::Panic(message)));
            }
            let _ = guarded(|| drop(job));
        }
        for part in effects.discarded {
            let _ = guarded(|| drop(part));
        }
        if any_ended && self.lock().helpers > 0 {
            self.progress.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
