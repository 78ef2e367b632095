//! The executor: worker threads around one locked state.

use super::dependencies::{Dependencies, Ids};
use super::handle::{Promise, Task};
use super::job::{self, Job, Outcome, Work};
use super::label::Label;
use super::snapshot::Snapshot;
use super::state::{State, TaskId, TaskState};
use super::transaction::{self, Open, Transaction};
use super::worker;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Tries to get the lock before the processor is left to others, and how often that is done before sleeping. It is held
/// for a fraction of a microsecond, and going to sleep and being woken costs several.
const TRIES_MAX: u32 = 100;
const YIELDS_MAX: u32 = 10;

/// What the threads of an executor share.
pub(super) struct Shared {
    /// Tells the executors of a process apart.
    pub(super) number: u32,
    /// Workers that are neither blocked nor spare.
    pub(super) threads: usize,
    guarded: Mutex<Guarded>,
    /// Told when there is work, to one that sleeps; and to all when it is over.
    pub(super) idle: Condvar,
    /// Told when a worker is about to block, to one that is spare; and to all when it is over.
    pub(super) spare: Condvar,
}

/// What only one thread at a time may touch. Nobody else's code runs under this lock but that of transactions.
pub(super) struct Guarded {
    pub(super) number: u32,
    pub(super) state: State<Arc<dyn Work>>,
    pub(super) crew: Crew,
}

/// The workers, by what they do.
#[derive(Default)]
pub(super) struct Crew {
    /// All of them.
    pub(super) workers: usize,
    /// Wait for work.
    pub(super) sleeping: usize,
    /// Were told that there is work and have not looked yet.
    pub(super) waking: usize,
    /// Wait for tasks inside bodies. At most [`super::WAITING_MAX`].
    pub(super) blocked: usize,
    /// Wait until another one blocks.
    pub(super) spare: usize,
    /// Were spare and are to take the place of one that blocks.
    pub(super) recalled: usize,
    /// The last handle is gone.
    pub(super) stopping: bool,
    pub(super) handles: Vec<JoinHandle<()>>,
}

impl Guarded {
    /// Is a worker to be told that there is work? One at a time: it tells the next one if it leaves work behind.
    pub(super) fn is_to_wake(&mut self) -> bool {
        let crew = &mut self.crew;
        let wakes = crew.waking == 0 && crew.sleeping > 0 && self.state.ready_count() > 0;
        crew.waking += usize::from(wakes);
        wakes
    }
}

impl Shared {
    /// No task, and no worker yet.
    pub(super) fn new(threads: usize) -> Arc<Shared> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Arc::new(Shared {
            number,
            threads,
            guarded: Mutex::new(Guarded {
                number,
                state: State::new(number),
                crew: Crew {
                    workers: threads,
                    ..Crew::default()
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
        self: &Arc<Shared>,
        body: impl FnOnce(&mut Transaction<'_>) -> R,
    ) -> R {
        let open = Open::begin();
        let mut guarded = self.lock();
        let mut transaction = Transaction {
            shared: self,
            guarded: &mut guarded,
            after: Vec::new(),
            garbage: Vec::new(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut transaction)));
        let Transaction { after, garbage, .. } = transaction;
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
        transaction::carry_out(effects);
        for garbage in garbage {
            garbage();
        }
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        for action in after {
            action();
        }
        result
    }

    /// Submits one task in a transaction of its own. The job is made before the lock is taken.
    fn submit<B, T>(&self, job: Job<B, T>, ids: &Ids) -> Task<T>
    where
        B: FnOnce(TaskId) -> Outcome<T> + Send + 'static,
        T: Send + Sync + 'static,
    {
        let open = Open::begin();
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

/// All handles of one executor share it; with the last one the executor ends.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        let shared = &self.0;
        let mut effects = Vec::new();
        let mut guarded = shared.lock();
        guarded.state.cancel_pending();
        guarded.commit(&mut effects);
        guarded.crew.stopping = true;
        let handles = std::mem::take(&mut guarded.crew.handles);
        drop(guarded);
        shared.idle.notify_all();
        shared.spare.notify_all();
        transaction::carry_out(effects);
        // A body that holds the last handle cannot wait for its own end.
        if worker::is_of(shared) {
            return;
        }
        for handle in handles {
            let ended = handle.join();
            debug_assert!(ended.is_ok(), "a worker panicked");
        }
    }
}

/// Runs tasks in threads of its own, each once all that it depends on is done. A handle: cloning is cheap.
///
/// The whole state is owned by one lock, and every step is a transaction, see [`Executor::transact`]; the other methods
/// are transactions of one step. A worker takes the lock once per task: it tells what has ended, and takes what is ready,
/// first of all what the ended task had kept waiting. It runs bodies without the lock. Nobody waits for a dependency.
///
/// When the last handle is dropped, all pending tasks are cancelled, promises included, and the threads end once the
/// bodies that run have returned; the drop waits for them, except inside a body.
///
/// Downside: tasks of less than a microsecond wait for the lock rather than run side by side. Give them more to do.
#[derive(Clone)]
pub struct Executor(Arc<Handle>);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "executor with {} threads", self.threads())
    }
}

impl Executor {
    /// Starts so many workers, at least one; fewer if the system gives no more threads. Panics if it gives none.
    pub fn new(threads: usize) -> Executor {
        let (executor, failure) = Executor::at_most(threads);
        assert!(
            executor.has_workers(),
            "the system gives no thread: {}",
            failure.map_or_else(String::new, |error| error.to_string())
        );
        executor
    }

    /// Starts so many workers, at least one; fewer, perhaps none, if the system gives no more threads, and why. Without
    /// a worker nothing that is submitted runs.
    pub fn at_most(threads: usize) -> (Executor, Option<io::Error>) {
        let threads = threads.max(1);
        let shared = Shared::new(threads);
        let executor = Executor(Arc::new(Handle(Arc::clone(&shared))));
        let mut failure = None;
        for _ in 0..threads {
            failure = worker::start(&shared).err().or(failure);
        }
        (executor, failure)
    }

    /// Is there a worker?
    pub fn has_workers(&self) -> bool {
        self.shared().lock().crew.workers > 0
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// How many bodies run at once.
    pub fn threads(&self) -> usize {
        self.shared().threads
    }

    /// Several steps at once: nobody sees, and no worker starts, anything of it before `body` has returned. If it
    /// panics, nothing has happened: tasks that it submitted are cancelled before they were known. Everybody else waits
    /// for it, so it is to be brief; it must not use an executor but by its argument, nor join a task: that panics.
    pub fn transact<R>(&self, body: impl FnOnce(&mut Transaction<'_>) -> R) -> R {
        self.shared().transact(body)
    }

    /// See [`Transaction::submit`].
    pub fn submit<T, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        D: Dependencies,
        F: FnOnce(D::Values) -> T + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = Job::new(label.into(), job::plain::<T, D, F>(held, body));
        self.shared().submit(job, &ids)
    }

    /// See [`Transaction::attempt`].
    pub fn attempt<T, E, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
        D: Dependencies,
        F: FnOnce(D::Values) -> Result<T, E> + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = Job::new(label.into(), job::attempting::<T, E, D, F>(held, body));
        self.shared().submit(job, &ids)
    }

    /// See [`Transaction::catch`].
    pub fn catch<T, E, D, F>(&self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
        D: Dependencies,
        F: FnOnce(D::Results) -> Result<T, E> + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = Job::new(label.into(), job::catching::<T, E, D, F>(held, body));
        self.shared().submit(job, &ids)
    }

    /// See [`Transaction::promise`].
    pub fn promise<T>(&self, label: impl Into<Label>) -> (Promise<T>, Task<T>)
    where
        T: Send + Sync + 'static,
    {
        let label = label.into();
        self.transact(|transaction| transaction.promise(label))
    }

    /// See [`Transaction::cancel`].
    pub fn cancel<T>(&self, task: &Task<T>) -> TaskState {
        self.transact(|transaction| transaction.cancel(task))
    }

    /// See [`Transaction::cancel`].
    pub fn cancel_id(&self, id: TaskId) -> TaskState {
        self.transact(|transaction| transaction.cancel_id(id))
    }

    /// All tasks that are pending or running.
    pub fn observe(&self) -> Snapshot {
        self.transact(|transaction| transaction.observe())
    }

    /// Tasks that are pending or running.
    pub fn task_count(&self) -> usize {
        self.shared().lock().state.live()
    }
}
