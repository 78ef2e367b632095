//! Transactions: several submissions and cancellations that take effect together or not at all.

use super::dependencies::{Dependencies, Ids};
use super::error::TaskError;
use super::executor::{ExecutorShared, Guarded};
use super::handle::{Nothing, Promise, Task};
use super::label::Label;
use super::snapshot::Snapshot;
use super::task_cell::{self, AnyTask, Outcome, TaskCell, discard};
use super::task_graph::{TASKS_MAX, TaskEffect, TaskId, TaskState};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::sync::Arc;

/// An action for when no transaction is open on this thread.
type Afterwards = Box<dyn FnOnce()>;

thread_local! {
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    static POSTPONED: RefCell<Vec<Afterwards>> = const { RefCell::new(Vec::new()) };
}

/// Is a transaction open on this thread?
pub(super) fn is_open() -> bool {
    IS_OPEN.get()
}

/// Runs `action` now, or after the transaction that is open on this thread.
pub(super) fn afterwards(action: impl FnOnce() + 'static) {
    if is_open() {
        POSTPONED.with_borrow_mut(|postponed| postponed.push(Box::new(action)));
    } else {
        action();
    }
}

/// Runs the postponed actions.
fn run_postponed() {
    loop {
        let postponed = POSTPONED.with_borrow_mut(std::mem::take);
        if postponed.is_empty() {
            return;
        }
        for action in postponed {
            action();
        }
    }
}

/// While it lives, a transaction is open on this thread. Dropped after the lock is released.
pub(super) struct TransactionGuard(());

impl TransactionGuard {
    /// Opens one. Panics if one is open on this thread: it would wait for itself.
    pub(super) fn begin() -> TransactionGuard {
        let was_open = IS_OPEN.replace(true);
        assert!(
            !was_open,
            "a transaction is open in this thread: use its own methods, not the executor's"
        );
        TransactionGuard(())
    }
}

impl Drop for TransactionGuard {
    fn drop(&mut self) {
        IS_OPEN.set(false);
        run_postponed();
    }
}

/// Steps that take effect together: when the closure given to [`super::Executor::transact`] returns, or not at all if it
/// panics. Queries include the transaction's own steps. The executor is locked meanwhile, so keep it short.
pub struct TaskTransaction<'a> {
    pub(super) shared: &'a Arc<ExecutorShared>,
    pub(super) guarded: &'a mut Guarded,
    /// Run after the commit, in order.
    pub(super) after: Vec<Afterwards>,
    /// Unwanted values, dropped after the lock is released.
    pub(super) garbage: Vec<Afterwards>,
}

impl TaskTransaction<'_> {
    /// Submits a task: `body` receives the values of `dependencies` once all are done. If one of them has an error, the
    /// body does not run, and the first error in the order of the dependencies is the task's outcome.
    ///
    /// Panics if a dependency belongs to another executor, or with [`TASKS_MAX`] tasks.
    pub fn submit<T, D, F>(&mut self, label: impl Into<Label>, dependencies: D, body: F) -> Task<T>
    where
        T: Send + Sync + 'static,
        D: Dependencies,
        F: FnOnce(D::Values) -> T + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = TaskCell::new(label.into(), task_cell::plain::<T, D, F>(held, body));
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// [`TaskTransaction::submit`] for a body that may fail. Its error is the outcome of the task and of all its dependants, up
    /// to the next [`TaskTransaction::catch`].
    pub fn attempt<T, E, D, F>(
        &mut self,
        label: impl Into<Label>,
        dependencies: D,
        body: F,
    ) -> Task<T>
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
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// [`TaskTransaction::attempt`] for a body that receives the [`Result`] of each dependency, and so runs in any case, unless
    /// the task is cancelled.
    pub fn catch<T, E, D, F>(
        &mut self,
        label: impl Into<Label>,
        dependencies: D,
        body: F,
    ) -> Task<T>
    where
        T: Send + Sync + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
        D: Dependencies,
        F: FnOnce(D::Results) -> Result<T, E> + Send + 'static,
    {
        let held = dependencies.hold();
        let ids = Ids::of::<D>(&held);
        let job = TaskCell::new(label.into(), task_cell::catching::<T, E, D, F>(held, body));
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// Adds a task whose outcome comes from outside. Panics with [`TASKS_MAX`] tasks.
    pub fn promise<T>(&mut self, label: impl Into<Label>) -> (Promise<T>, Task<T>)
    where
        T: Send + Sync + 'static,
    {
        self.guarded.check_room();
        let nothing: Nothing<T> = |id| unreachable!("promise {id} has no body");
        let job = Arc::new(TaskCell::new(label.into(), nothing));
        let id = self
            .guarded
            .state
            .promise(Arc::clone(&job) as Arc<dyn AnyTask>);
        let promise = Promise::new(id, job, Arc::clone(self.shared));
        let task = promise.task();
        (promise, task)
    }

    /// Ends a promise's task with a value; `false` if it has an outcome or was cancelled. The promise stays open if the
    /// transaction is rolled back.
    pub fn keep<T: Send + Sync + 'static>(&mut self, promise: &Promise<T>, value: T) -> bool {
        self.end(promise, Ok(Arc::new(value)))
    }

    /// Ends a promise's task with an outcome, see [`TaskTransaction::keep`].
    pub fn end<T: Send + Sync + 'static>(
        &mut self,
        promise: &Promise<T>,
        outcome: Result<Arc<T>, TaskError>,
    ) -> bool {
        check_own(promise.id, self.guarded.number);
        let is_first = self.guarded.state.keep(promise.id);
        let unwanted: Option<Outcome<T>> = if is_first {
            promise.job.end(outcome)
        } else {
            Some(outcome)
        };
        if let Some(unwanted) = unwanted {
            self.garbage.push(Box::new(|| discard(unwanted)));
        }
        is_first
    }

    /// Cancels a task and all its dependants, catching ones included; returns the state in which it was. A pending task never
    /// runs. A running body is not interrupted, but its result is dropped; the outcome is [`TaskError::Cancelled`].
    pub fn cancel<T>(&mut self, task: &Task<T>) -> TaskState {
        check_own(task.id(), self.guarded.number);
        self.guarded.state.cancel(task.id())
    }

    /// The state of a task.
    pub fn state<T>(&self, task: &Task<T>) -> TaskState {
        check_own(task.id(), self.guarded.number);
        self.guarded.state.state(task.id())
    }

    /// The dependencies of a task that are not done, in the order in which they were named.
    pub fn dependencies<T>(&self, task: &Task<T>) -> Vec<TaskId> {
        check_own(task.id(), self.guarded.number);
        self.guarded.state.dependencies(task.id())
    }

    /// Number of pending and running tasks.
    pub fn task_count(&self) -> usize {
        self.guarded.state.live()
    }

    /// A snapshot of all pending and running tasks.
    pub fn observe(&self) -> Snapshot {
        Snapshot::of(&self.guarded.state)
    }

    /// Runs `action` after the commit, on this thread; it may use the executor. Not run if the transaction is rolled back.
    pub fn after_commit(&mut self, action: impl FnOnce() + 'static) {
        self.after.push(Box::new(action));
    }
}

impl Guarded {
    /// Submits a job with these dependencies to the open transaction.
    pub(super) fn submit<B, T>(&mut self, job: &Arc<TaskCell<B, T>>, ids: &Ids) -> Task<T>
    where
        B: FnOnce(TaskId) -> Outcome<T> + Send + 'static,
        T: Send + Sync + 'static,
    {
        self.check_room();
        let work = Arc::clone(job) as Arc<dyn AnyTask>;
        for id in ids.as_slice() {
            check_own(*id, self.number);
        }
        let id = self.state.submit(work, ids.as_slice());
        Task::new(id, Arc::clone(job) as _)
    }

    fn check_room(&self) {
        assert!(
            self.state.live() < TASKS_MAX,
            "{TASKS_MAX} tasks are pending, at most; wait for some of them"
        );
    }

    /// Commits the open transaction. Pushes what the caller carries out without the lock onto `effects`.
    pub(super) fn commit(&mut self, effects: &mut Vec<TaskEffect<Arc<dyn AnyTask>>>) {
        self.state.commit(effects);
        publish(effects);
    }

    /// Rolls the open transaction back. Pushes what the caller carries out without the lock onto `effects`.
    pub(super) fn rollback(&mut self, effects: &mut Vec<TaskEffect<Arc<dyn AnyTask>>>) {
        self.state.rollback(effects);
        publish(effects);
    }
}

/// Panics if a task is not this executor's.
fn check_own(id: TaskId, executor: u32) {
    assert_eq!(
        id.executor(),
        executor,
        "task {id} belongs to another executor"
    );
}

/// Publishes outcomes while the lock is still held: no thread sees a task done without its outcome.
fn publish(effects: &[TaskEffect<Arc<dyn AnyTask>>]) {
    for effect in effects {
        match effect {
            TaskEffect::Kept(_, work) => {
                work.publish();
            }
            TaskEffect::Cancelled(_, work) => work.cancel(),
        }
    }
}

/// Wakes the threads that wait for published outcomes, and drops unwanted values.
pub(super) fn carry_out(effects: Vec<TaskEffect<Arc<dyn AnyTask>>>) {
    for effect in effects {
        let (TaskEffect::Kept(_, work) | TaskEffect::Cancelled(_, work)) = effect;
        work.wake();
        discard(work);
    }
}
