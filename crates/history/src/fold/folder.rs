//! The folder: runs many folds in one pass over the chunks of a history.

use super::job::{Answer, Cause, FoldError, FoldJob, Job, Part, Promised, Sink, guarded};
use super::matrix::{Claim, Effects, FoldId, Matrix, Outcome, Request, Share};
use super::resident::{Decoded, Resident};
use super::{Chunks, Fold};
use seatrial_task::{Executor, Task, TaskError};
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What a folder did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderStatistics {
    /// Chunks that were read and decoded.
    pub chunks_decoded: u64,
    /// Times that a chunk was given to a fold.
    pub chunks_reduced: u64,
    /// Folds that have got their answer.
    pub folds_answered: u64,
    /// Folds that failed or were cancelled.
    pub folds_failed: u64,
    /// The most parts of one fold that ever waited for earlier ones to be combined.
    pub parts_waiting_max: usize,
}

/// Answers many folds over one history in few passes. Cheap to clone; the clones are one folder.
///
/// Whoever has a question asks, from any thread: [`Folder::fold`] waits for the answer, [`Folder::submit`] gives a handle.
/// Each chunk that is decoded is given to all folds that still need it. A fold that comes late joins where the pass is and
/// gets what it missed afterwards; linear folds and those that combine in order start in front, run until they meet the
/// others, and go on together. Every fold sees each chunk once, as [`Fold`] says. A damaged chunk or a panic fails the
/// folds whose own it is, all others go on.
///
/// What is decided under the lock is in the work matrix; folds run without it. Per folder at most `threads` chunks are worked
/// on at a time; some decoded chunks (about 2 MB each, 4 per thread and 16) are kept while a fold will soon want them.
///
/// A fold may itself ask the folder from its `reduce`: the asking worker then works for the new fold alone until that
/// has its answer, so nothing deadlocks, at the price of decoding chunks for it alone.
///
/// Its downside: a fold that waits for nothing but its own chunk is held up by the folds that share this chunk with it,
/// if one of those is slow.
pub struct Folder<C: Chunks + 'static> {
    shared: Arc<Shared<C>>,
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

type SharedJob<E> = Arc<dyn Job<E>>;
type FolderMatrix<E> = Matrix<SharedJob<E>, Part, Cause<E>>;
type FolderEffects<E> = Effects<SharedJob<E>, Part, Cause<E>>;

/// What the lock protects.
struct State<E: std::error::Error + 'static> {
    matrix: FolderMatrix<E>,
    resident: Resident,
    /// Chains of tasks that run: one chunk each at a time.
    chains: usize,
    /// Workers that wait for a fold of their own.
    helpers: usize,
    statistics: FolderStatistics,
}

struct Shared<C: Chunks + 'static> {
    chunks: Arc<C>,
    threads: usize,
    executor: Executor,
    state: Mutex<State<C::Error>>,
    /// Told of everything that happens while there are helpers.
    progress: Condvar,
}

/// A claim and its chunk, if that is at hand.
struct Work<E: std::error::Error + 'static> {
    claim: Claim<SharedJob<E>, Part>,
    /// Decoded by another worker.
    resident: Option<Arc<Decoded>>,
}

thread_local! {
    /// Does this thread work on a claim?
    static IS_WORKING: Cell<bool> = const { Cell::new(false) };
}

/// A fold that is under way. Dropping it does not give the fold up.
#[must_use = "the answer comes out of `wait`"]
pub struct Folding<C: Chunks + 'static, F: Fold + 'static> {
    folder: Folder<C>,
    id: FoldId,
    answer: Arc<Answer<F::Output, C::Error>>,
    name: String,
}

impl<C: Chunks + 'static, F: Fold + 'static> Folding<C, F> {
    /// Waits for the answer.
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
            // This thread must not be blocked, so it works.
            Err(_) => shared.help(self.id, || !self.answer.is_open()),
        }
        let cancelled = FoldError::Cancelled { fold: self.name };
        self.answer.take().unwrap_or(Err(cancelled))
    }

    /// Is the answer, or that there is none, known?
    pub fn is_done(&self) -> bool {
        !self.answer.is_open()
    }

    /// Gives the fold up, unless it is done. It sees no further chunk but the one that it is given right now.
    pub fn cancel(&self) {
        self.folder.shared.cancel(self.id);
        let fold = self.name.clone();
        self.answer.tell(Err(FoldError::Cancelled { fold }));
    }
}

impl<C: Chunks + 'static, F: Fold + 'static> std::fmt::Debug for Folding<C, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Folding");
        debug.field("name", &self.name).field("id", &self.id);
        debug.finish_non_exhaustive()
    }
}

/// A fold that is not submitted yet.
struct Entry<E: std::error::Error + 'static> {
    id: FoldId,
    job: SharedJob<E>,
    request: Request,
}

/// Folds that are submitted together, see [`Folder::together`].
pub struct Batch<'a, C: Chunks + 'static> {
    folder: &'a Folder<C>,
    entries: Vec<Entry<C::Error>>,
}

impl<C: Chunks + 'static> Batch<'_, C> {
    /// Adds a fold. It begins when the batch is complete, so its answer must not be waited for before.
    pub fn submit<F: Fold + 'static>(&mut self, fold: F) -> Folding<C, F> {
        let (folding, entry) = self.folder.folding(fold);
        self.entries.push(entry);
        folding
    }

    /// Adds a fold, see [`Folder::task`].
    pub fn task<F: Fold<Output: Sync> + 'static>(&mut self, fold: F) -> Task<F::Output> {
        let (task, entry) = self.folder.promised(fold);
        self.entries.push(entry);
        task
    }
}

impl<C: Chunks + 'static> Folder<C> {
    /// A folder with so many threads of its own, at least one. They end with the last clone, once all folds are done. With
    /// fewer if the system gives no more; if it gives none, the work is done by those who wait for answers of [`Folder::fold`]
    /// and [`Folding::wait`].
    pub fn new(chunks: Arc<C>, threads: usize) -> Folder<C> {
        let (executor, _) = Executor::at_most(threads);
        Folder::on(chunks, &executor)
    }

    /// A folder whose work is done by the workers of an executor: each chunk is a task, which submits the next one.
    pub fn on(chunks: Arc<C>, executor: &Executor) -> Folder<C> {
        let threads = executor.threads();
        let resident = Resident::new(threads);
        let state = State {
            matrix: Matrix::new(resident.length_max() - threads as u64),
            resident,
            chains: 0,
            helpers: 0,
            statistics: FolderStatistics::default(),
        };
        let shared = Shared {
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

    /// Who does the work.
    pub fn executor(&self) -> &Executor {
        &self.shared.executor
    }

    /// What is folded over.
    pub fn chunks(&self) -> &Arc<C> {
        &self.shared.chunks
    }

    /// Folds over the whole history and waits for the answer.
    pub fn fold<F: Fold + 'static>(&self, fold: F) -> Result<F::Output, FoldError<C::Error>> {
        self.submit(fold).wait()
    }

    /// Has a fold carried out over the whole history.
    pub fn submit<F: Fold + 'static>(&self, fold: F) -> Folding<C, F> {
        let (folding, entry) = self.folding(fold);
        self.shared.submit(vec![entry]);
        folding
    }

    /// Has a fold carried out over the whole history; other tasks of the executor may depend on its answer. If it has
    /// none, the task's error is the [`FoldError`]. The fold is given up when the task is cancelled.
    pub fn task<F: Fold<Output: Sync> + 'static>(&self, fold: F) -> Task<F::Output> {
        let (task, entry) = self.promised(fold);
        self.shared.submit(vec![entry]);
        task
    }

    /// Has several folds carried out that begin together, so that they share every chunk as far as their order allows.
    pub fn together<T>(&self, submit: impl FnOnce(&mut Batch<'_, C>) -> T) -> T {
        let mut batch = Batch {
            folder: self,
            entries: Vec::new(),
        };
        let result = submit(&mut batch);
        self.shared.submit(batch.entries);
        result
    }

    /// What it did so far.
    pub fn statistics(&self) -> FolderStatistics {
        let state = self.shared.lock();
        FolderStatistics {
            parts_waiting_max: state.matrix.parts_waiting_max(),
            ..state.statistics
        }
    }

    fn folding<F: Fold + 'static>(&self, fold: F) -> (Folding<C, F>, Entry<C::Error>) {
        let name = fold.name();
        let promise = self.shared.executor.promise(name.clone());
        let answer = Arc::new(Answer::new(promise));
        let entry = self.entry(fold, name.clone(), answer.clone());
        let folding = Folding {
            folder: self.clone(),
            id: entry.id,
            answer,
            name,
        };
        (folding, entry)
    }

    fn promised<F: Fold<Output: Sync> + 'static>(
        &self,
        fold: F,
    ) -> (Task<F::Output>, Entry<C::Error>) {
        let name = fold.name();
        let (promise, task) = self.shared.executor.promise(name.clone());
        let sink = Promised::new((promise, task.clone()));
        let entry = self.entry(fold, name, Arc::new(sink));
        (task, entry)
    }

    fn entry<F: Fold + 'static>(
        &self,
        fold: F,
        name: String,
        sink: Arc<dyn Sink<F::Output, C::Error>>,
    ) -> Entry<C::Error> {
        let request = Request {
            order: fold.order(),
            asap: fold.asap(),
            chunk_count: self.shared.chunks.chunk_count(),
        };
        let id = self.shared.lock().matrix.reserve();
        let job = Arc::new(FoldJob { fold, name, sink });
        Entry { id, job, request }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> State<E> {
    fn claim(&mut self) -> Option<Work<E>> {
        let claim = self.matrix.claim(&self.resident.numbers())?;
        Some(self.work(claim))
    }

    fn claim_for(&mut self, id: FoldId) -> Option<Work<E>> {
        let claim = self.matrix.claim_for(id, &self.resident.numbers())?;
        Some(self.work(claim))
    }

    fn work(&mut self, claim: Claim<SharedJob<E>, Part>) -> Work<E> {
        let resident = self.resident.get(claim.chunk);
        self.statistics.chunks_reduced += claim.shares.len() as u64;
        Work { claim, resident }
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.matrix.is_wanted(number, self.resident.length_max())
    }

    /// Lets go of chunks that nobody will want soon.
    fn sweep(&mut self) {
        let (matrix, more) = (&self.matrix, self.resident.length_max());
        self.resident.sweep(|number| matrix.is_wanted(number, more));
    }

    fn count(&mut self, effects: &FolderEffects<E>) {
        for (.., outcome) in &effects.ended {
            match outcome {
                Outcome::Done(_) => self.statistics.folds_answered += 1,
                Outcome::Failed(_) | Outcome::Cancelled => self.statistics.folds_failed += 1,
            }
        }
    }
}

impl<C: Chunks + 'static> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, State<C::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and has a further worker come if there is work for one. What it leaves to do goes to `effects`.
    fn change<T>(
        self: &Arc<Self>,
        effects: &mut FolderEffects<C::Error>,
        change: impl FnOnce(&mut State<C::Error>) -> T,
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

    /// Has a worker take one chunk and then the next, each as a piece of work of its own.
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

    fn submit(self: &Arc<Self>, entries: Vec<Entry<C::Error>>) {
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

    /// Works for one fold alone until it is done. Called by a worker that has to wait for it.
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

    /// Gives a chunk to those that it was claimed for.
    fn serve(self: &Arc<Self>, work: Work<C::Error>) {
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

    /// The chunk, decoded by this worker or by another.
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

    /// Reduces a chunk for one fold, then combines what is complete.
    fn reduce(
        self: &Arc<Self>,
        share: Share<SharedJob<C::Error>, Part>,
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
        // Perhaps the last one that has the fold.
        let _ = guarded(|| drop(job));
    }

    /// Runs what was left to do: answers, and drops.
    fn carry_out(&self, effects: FolderEffects<C::Error>) {
        let told = !effects.ended.is_empty();
        for (_, job, outcome) in effects.ended {
            let told = guarded(|| match outcome {
                Outcome::Done(part) => job.answer(part),
                Outcome::Failed(cause) => job.fail(Some(cause)),
                Outcome::Cancelled => job.fail(None),
            });
            if let Err(message) = told {
                job.fail(Some(Cause::Panic(message)));
            }
            let _ = guarded(|| drop(job));
        }
        for part in effects.discarded {
            let _ = guarded(|| drop(part));
        }
        if told && self.lock().helpers > 0 {
            self.progress.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
