//! The executor: worker threads around one locked state.

use super::dependencies::{Dependencies, Ids};
use super::handle::{Promise, Task};
use super::label::Label;
use super::snapshot::Snapshot;
use super::task_cell::{self, AnyTask, Outcome, TaskCell};
use super::task_graph::{TaskGraph, TaskId, TaskState};
use super::task_transaction::{self, TaskTransaction, TransactionGuard};
use super::worker_thread;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Attempts to take the lock before the thread yields, and yields before it sleeps. The lock is held for a fraction of a
/// microsecond; sleeping and waking costs several.
const TRIES_MAX: u32 = 100;
const YIELDS_MAX: u32 = 10;

/// State that the threads and handles of an executor share.
pub(super) struct ExecutorShared {
    /// Number of the executor in this process.
    pub(super) number: u32,
    /// Workers that are neither blocked nor spare.
    pub(super) threads: usize,
    guarded: Mutex<Guarded>,
    /// Sleeping workers: one is notified when there is work, all when the executor stops.
    pub(super) idle: Condvar,
    /// Spare workers: one is notified when another worker is about to block, all when the executor stops.
    pub(super) spare: Condvar,
}

/// State under the lock. The only foreign code under this lock is that of transactions.
pub(super) struct Guarded {
    pub(super) number: u32,
    pub(super) state: TaskGraph<Arc<dyn AnyTask>>,
    pub(super) counts: WorkerCounts,
}

/// Number of workers by activity.
#[derive(Default)]
pub(super) struct WorkerCounts {
    /// All workers.
    pub(super) workers: usize,
    /// Waiting for work.
    pub(super) sleeping: usize,
    /// Notified of work, but not yet running.
    pub(super) waking: usize,
    /// Waiting for tasks inside bodies; at most [`super::WAITING_MAX`].
    pub(super) blocked: usize,
    /// Parked until another worker blocks.
    pub(super) spare: usize,
    /// Formerly spare, notified to take the place of a blocking worker.
    pub(super) recalled: usize,
    /// The last handle was dropped.
    pub(super) stopping: bool,
    pub(super) handles: Vec<JoinHandle<()>>,
}

impl Guarded {
    /// Must a worker be woken? One at a time: a woken worker wakes the next one if it leaves work.
    pub(super) fn is_to_wake(&mut self) -> bool {
        let counts = &mut self.counts;
        let wakes = counts.waking == 0 && counts.sleeping > 0 && self.state.ready_count() > 0;
        counts.waking += usize::from(wakes);
        wakes
    }
}

impl ExecutorShared {
    /// Creates the state of an executor without tasks; the caller starts the workers.
    pub(super) fn new(threads: usize) -> Arc<ExecutorShared> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Arc::new(ExecutorShared {
            number,
            threads,
            guarded: Mutex::new(Guarded {
                number,
                state: TaskGraph::new(number),
                counts: WorkerCounts {
                    workers: threads,
                    ..WorkerCounts::default()
                },
            }),
            idle: Condvar::new(),
            spare: Condvar::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        for yields in 0..=YIELDS_MAX {
            for _ in 0..TRIES_MAX {
                match self.guarded.try_lock() {
                    Ok(guarded) => return guarded,
                    Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                }
            }
            if yields < YIELDS_MAX {
                std::thread::yield_now();
            }
        }
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Executor::transact`].
    pub(super) fn transact<R>(
        self: &Arc<ExecutorShared>,
        body: impl FnOnce(&mut TaskTransaction<'_>) -> R,
    ) -> R {
        let open = TransactionGuard::begin();
        let mut guarded = self.lock();
        let mut transaction = TaskTransaction {
            shared: self,
            guarded: &mut guarded,
            after: Vec::new(),
            garbage: Vec::new(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut transaction)));
        let TaskTransaction { after, garbage, .. } = transaction;
        let mut effects = Vec::new();
        match &result {
            Ok(_) => guarded.commit(&mut effects),
            Err(_) => guarded.rollback(&mut effects),
        }
        let wakes = guarded.is_to_wake();
        drop(guarded);
        drop(open);
        if wakes {
            self.idle.notify_one();
        }
        task_transaction::carry_out(effects);
        for garbage in garbage {
            garbage();
        }
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        for action in after {
            action();
        }
        result
    }

    /// Submits one task in a transaction of its own. The task is allocated before the lock is taken.
    fn submit<B, T>(&self, job: TaskCell<B, T>, ids: &Ids) -> Task<T>
    where
        B: FnOnce(TaskId) -> Outcome<T> + Send + 'static,
        T: Send + Sync + 'static,
    {
        let open = TransactionGuard::begin();
        let job = Arc::new(job);
        let mut guarded = self.lock();
        let task = guarded.submit(&job, ids);
        let mut effects = Vec::new();
        guarded.commit(&mut effects);
        let wakes = guarded.is_to_wake();
        drop(guarded);
        drop(open);
        if wakes {
            self.idle.notify_one();
        }
        task
    }
}

/// Shared by all handles of an executor; its drop ends the executor.
struct Handle(Arc<ExecutorShared>);

impl Drop for Handle {
    fn drop(&mut self) {
        let shared = &self.0;
        let mut effects = Vec::new();
        let mut guarded = shared.lock();
        guarded.state.cancel_pending();
        guarded.commit(&mut effects);
        guarded.counts.stopping = true;
        let handles = std::mem::take(&mut guarded.counts.handles);
        drop(guarded);
        shared.idle.notify_all();
        shared.spare.notify_all();
        task_transaction::carry_out(effects);
        // A body that drops the last handle must not join its own thread.
        if worker_thread::is_of(shared) {
            return;
        }
        for handle in handles {
            let ended = handle.join();
            debug_assert!(ended.is_ok(), "a worker panicked");
        }
    }
}

/// Runs tasks on its own threads, each once all its dependencies are done. A handle; cheap to clone.
///
/// One lock guards the whole state, and every change is a transaction, see [`Executor::transact`]; the other methods are
/// transactions of one step. A worker takes the lock once per task: it finishes one and takes the next ready one, preferably
/// a dependant of the finished task. Bodies run without the lock. No thread ever blocks on a dependency.
///
/// Dropping the last handle cancels all pending tasks, promises included, and waits until the running bodies have returned
/// (not if the drop happens inside a body).
///
/// Cost: about a microsecond per task under the lock, so tasks shorter than that do not run in parallel.
#[derive(Clone)]
pub struct Executor(Arc<Handle>);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "executor with {} threads", self.threads())
    }
}

impl Executor {
    /// Starts `threads` workers, at least one; fewer if the system refuses threads. Panics if it refuses all.
    pub fn new(threads: usize) -> Executor {
        let (executor, failure) = Executor::at_most(threads);
        assert!(
            executor.has_workers(),
            "the system gives no thread: {}",
            failure.map_or_else(String::new, |error| error.to_string())
        );
        executor
    }

    /// Starts `threads` workers, at least one; if the system refuses threads, fewer or none, and the error. Without a worker
    /// submitted tasks never run.
    pub fn at_most(threads: usize) -> (Executor, Option<io::Error>) {
        let threads = threads.max(1);
        let shared = ExecutorShared::new(threads);
        let executor = Executor(Arc::new(Handle(Arc::clone(&shared))));
        let mut failure = None;
        for _ in 0..threads {
            failure = worker_thread::start(&shared).err().or(failure);
        }
        (executor, failure)
    }

    /// Is there a worker?
    pub fn has_workers(&self) -> bool {
        self.shared().lock().counts.workers > 0
    }

    pub(super) fn shared(&self) -> &Arc<ExecutorShared> {
        &self.0.0
    }

    /// Number of bodies that run at a time.
    pub fn threads(&self) -> usize {
        self.shared().threads
    }

    /// Runs several steps as one: no other thread sees, and no worker starts, any of it before `body` has returned. If `body`
    /// panics, the steps are rolled back: its tasks are cancelled, its cancellations and kept promises undone. All other
    /// threads wait meanwhile, so keep it short. Inside, using an executor except through the argument, or joining a task,
    /// panics.
    pub fn transact<R>(&self, body: impl FnOnce(&mut TaskTransaction<'_>) -> R) -> R {
        self.shared().transact(body)
    }

    /// See [`TaskTransaction::submit`].
    pub fn submit<T, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        D: Dependencies,
        F: FnOnce(D::Values) -> T + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = TaskCell::new(label.into(), task_cell::plain::<T, D, F>(held, body));
        self.shared().submit(job, &ids)
    }

    /// See [`TaskTransaction::attempt`].
    pub fn attempt<T, E, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
        D: Dependencies,
        F: FnOnce(D::Values) -> Result<T, E> + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = TaskCell::new(
            label.into(),
            task_cell::attempting::<T, E, D, F>(held, body),
        );
        self.shared().submit(job, &ids)
    }

    /// See [`TaskTransaction::catch`].
    pub fn catch<T, E, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
        D: Dependencies,
        F: FnOnce(D::Results) -> Result<T, E> + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = TaskCell::new(label.into(), task_cell::catching::<T, E, D, F>(held, body));
        self.shared().submit(job, &ids)
    }

    /// See [`TaskTransaction::promise`].
    pub fn promise<T>(&self, label: impl Into<Label>) -> (Promise<T>, Task<T>)
    where
        T: Send + Sync + 'static,
    {
        let label = label.into();
        self.transact(|transaction| transaction.promise(label))
    }

    /// See [`TaskTransaction::cancel`].
    pub fn cancel<T>(&self, task: &Task<T>) -> TaskState {
        self.transact(|transaction| transaction.cancel(task))
    }

    /// A snapshot of all pending and running tasks.
    pub fn observe(&self) -> Snapshot {
        self.transact(|transaction| transaction.observe())
    }

    /// Number of pending and running tasks.
    pub fn task_count(&self) -> usize {
        self.shared().lock().state.live()
    }
}
