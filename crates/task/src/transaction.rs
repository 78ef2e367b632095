//! Transactions: several submissions and cancellations that take effect together or not at all.

use super::dependencies::{Dependencies, Ids};
use super::error::TaskError;
use super::executor::{Guarded, Shared};
use super::handle::{Nothing, Promise, Task};
use super::job::{self, Job, Outcome, Work, discard};
use super::label::Label;
use super::snapshot::Snapshot;
use super::state::{Effect, TASKS_MAX, TaskId, TaskState};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::sync::Arc;

/// Something to do once no transaction is open in this thread.
type Afterwards = Box<dyn FnOnce()>;

thread_local! {
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    static POSTPONED: RefCell<Vec<Afterwards>> = const { RefCell::new(Vec::new()) };
}

/// Is a transaction open in this thread?
pub(super) fn is_open() -> bool {
    IS_OPEN.get()
}

/// Does this now, or after the transaction that is open in this thread.
pub(super) fn afterwards(action: impl FnOnce() + 'static) {
    if is_open() {
        POSTPONED.with_borrow_mut(|postponed| postponed.push(Box::new(action)));
    } else {
        action();
    }
}

/// Does what was postponed.
fn catch_up() {
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

/// As long as it lives, a transaction is open in this thread. Dropped after the lock is let go.
pub(super) struct Open(());

impl Open {
    /// Panics if one is: it would wait for itself.
    pub(super) fn begin() -> Open {
        let was_open = IS_OPEN.replace(true);
        assert!(
            !was_open,
            "a transaction is open in this thread: use its own methods, not the executor's"
        );
        Open(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        IS_OPEN.set(false);
        catch_up();
    }
}

/// Steps that happen all at once, when the closure that was given to [`super::Executor::transact`] returns, or not at
/// all, if it panics. What it asks tells the state with its own steps in it; nothing else changes meanwhile, because
/// every other thread waits. So be brief.
pub struct Transaction<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) guarded: &'a mut Guarded,
    /// Done after the commit, in order.
    pub(super) after: Vec<Afterwards>,
    /// Dropped after the end.
    pub(super) garbage: Vec<Afterwards>,
}

impl Transaction<'_> {
    /// A task: `body` gets the values of `dependencies` once all are done. If one of them has none, the body does not
    /// run, and the first error in the order of the dependencies is the task's own.
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
        let job = Job::new(label.into(), job::plain::<T, D, F>(held, body));
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// As [`Transaction::submit`], for a body that may fail. Its error is the task's outcome, and that of all that
    /// depend on it up to the next [`Transaction::catch`].
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
        let job = Job::new(label.into(), job::attempting::<T, E, D, F>(held, body));
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// As [`Transaction::attempt`], for a body that gets each dependency's [`Result`] and so runs in any case, unless it
    /// is cancelled.
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
        let job = Job::new(label.into(), job::catching::<T, E, D, F>(held, body));
        self.guarded.submit(&Arc::new(job), &ids)
    }

    /// A task whose outcome comes from outside. Panics with [`TASKS_MAX`] tasks.
    pub fn promise<T>(&mut self, label: impl Into<Label>) -> (Promise<T>, Task<T>)
    where
        T: Send + Sync + 'static,
    {
        self.guarded.check_room();
        let nothing: Nothing<T> = |id| unreachable!("promise {id} has no body");
        let job = Arc::new(Job::new(label.into(), nothing));
        let id = self
            .guarded
            .state
            .promise(Arc::clone(&job) as Arc<dyn Work>);
        let promise = Promise::new(id, job, Arc::clone(self.shared));
        let task = promise.task();
        (promise, task)
    }

    /// Gives a promise's task this value; `false` if it has an outcome or was cancelled. The promise stays open if the
    /// transaction is rolled back.
    pub fn keep<T: Send + Sync + 'static>(&mut self, promise: &Promise<T>, value: T) -> bool {
        self.end(promise, Ok(Arc::new(value)))
    }

    /// Gives a promise's task this outcome, as [`Transaction::keep`] does.
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

    /// Cancels a task and all that depend on it, catching ones included; tells how far it was. One that was pending will
    /// never run. One that runs goes on to its end, but its result is dropped; its outcome is that it was cancelled.
    pub fn cancel<T>(&mut self, task: &Task<T>) -> TaskState {
        self.cancel_id(task.id())
    }

    /// As [`Transaction::cancel`].
    pub fn cancel_id(&mut self, id: TaskId) -> TaskState {
        check_own(id, self.guarded.number);
        self.guarded.state.cancel(id)
    }

    /// How far a task is.
    pub fn state<T>(&self, task: &Task<T>) -> TaskState {
        self.state_id(task.id())
    }

    /// As [`Transaction::state`].
    pub fn state_id(&self, id: TaskId) -> TaskState {
        check_own(id, self.guarded.number);
        self.guarded.state.state(id)
    }

    /// The dependencies of a task that are not done, in the order that they were named in.
    pub fn dependencies<T>(&self, task: &Task<T>) -> Vec<TaskId> {
        check_own(task.id(), self.guarded.number);
        self.guarded.state.dependencies(task.id())
    }

    /// Tasks that are pending or running.
    pub fn task_count(&self) -> usize {
        self.guarded.state.live()
    }

    /// All tasks that are pending or running.
    pub fn observe(&self) -> Snapshot {
        Snapshot::of(&self.guarded.state)
    }

    /// Does this after the commit, in this thread, free to use the executor; never if the transaction is rolled back.
    pub fn after_commit(&mut self, action: impl FnOnce() + 'static) {
        self.after.push(Box::new(action));
    }
}

impl Guarded {
    /// Submits a job with these dependencies to the open transaction.
    pub(super) fn submit<B, T>(&mut self, job: &Arc<Job<B, T>>, ids: &Ids) -> Task<T>
    where
        B: FnOnce(TaskId) -> Outcome<T> + Send + 'static,
        T: Send + Sync + 'static,
    {
        self.check_room();
        let work = Arc::clone(job) as Arc<dyn Work>;
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

    /// The open transaction takes hold. What is left to do without the lock is pushed onto `effects`.
    pub(super) fn commit(&mut self, effects: &mut Vec<Effect<Arc<dyn Work>>>) {
        self.state.commit(effects);
        show(effects);
    }

    /// The open transaction never was. What is left to do without the lock is pushed onto `effects`.
    pub(super) fn rollback(&mut self, effects: &mut Vec<Effect<Arc<dyn Work>>>) {
        self.state.rollback(effects);
        show(effects);
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

/// Shows outcomes, before anybody else gets the lock.
fn show(effects: &[Effect<Arc<dyn Work>>]) {
    for effect in effects {
        match effect {
            Effect::Kept(_, work) => {
                work.publish();
            }
            Effect::Cancelled(_, work) => work.cancel(),
        }
    }
}

/// Wakes those who wait for outcomes that were shown, and drops what nobody needs.
pub(super) fn carry_out(effects: Vec<Effect<Arc<dyn Work>>>) {
    for effect in effects {
        let (Effect::Kept(_, work) | Effect::Cancelled(_, work)) = effect;
        work.wake();
        discard(work);
    }
}
