//! Handles of tasks and promises.

use super::error::TaskError;
use super::executor::ExecutorShared;
use super::label::TaskName;
use super::task_cell::{Outcome, Settled, TaskCell};
use super::task_graph::TaskId;
use super::{task_transaction, worker_thread};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Handle of a task: to join it, and to depend on it. Cheap to clone. It holds the outcome but not the executor: the value
/// lives as long as a handle, or a dependant that has not run.
pub struct Task<T> {
    id: TaskId,
    job: Arc<dyn Settled<T>>,
}

impl<T> Clone for Task<T> {
    fn clone(&self) -> Task<T> {
        Task {
            id: self.id,
            job: Arc::clone(&self.job),
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} ({})", self.id, self.name())
    }
}

impl<T> Task<T> {
    pub(super) fn new(id: TaskId, job: Arc<dyn Settled<T>>) -> Task<T> {
        Task { id, job }
    }

    /// Its id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &TaskName {
        self.job.label().name()
    }

    /// The data of its label; `None` if there is none, or of another type.
    pub fn data<D: Any>(&self) -> Option<&D> {
        self.job.label().data()
    }

    /// The outcome; `None` until the task is done.
    pub fn outcome(&self) -> Option<Result<Arc<T>, TaskError>> {
        self.job.outcome(self.id)
    }

    /// Is the task done, with a value or an error?
    pub fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Blocks until the task is done, and returns its outcome.
    ///
    /// A body may call this, too: another thread takes its worker's place meanwhile, so a named dependency is cheaper. The
    /// result is [`TaskError::Deadlock`] if this task depends on that body's task, and [`TaskError::TooManyWaiting`] if
    /// [`super::WAITING_MAX`] bodies wait already. Panics inside a transaction.
    pub fn join(&self) -> Result<Arc<T>, TaskError> {
        self.wait(None)
            .expect("a wait without limit ends with an outcome")
    }

    /// [`Task::join`] with a time limit: `None` if the task is not done by then. The task itself continues.
    pub fn join_deadline(&self, limit: Duration) -> Option<Result<Arc<T>, TaskError>> {
        self.wait(Some(limit))
    }

    fn wait(&self, limit: Option<Duration>) -> Option<Outcome<T>> {
        if let Some(outcome) = self.outcome() {
            return Some(outcome);
        }
        let waited = worker_thread::wait(self.id, self.name(), || self.job.wait(limit));
        match waited {
            Ok(()) => self.outcome(),
            Err(error) => Some(Err(error)),
        }
    }
}

/// The body type of a promise's task, which has no body.
pub(super) type Nothing<T> = fn(TaskId) -> Outcome<T>;

/// The right, once, to give a task its outcome from outside. If it is dropped unused, the outcome is
/// [`TaskError::Dropped`]. Its methods are transactions; inside one, use those of [`crate::TaskTransaction`].
pub struct Promise<T: Send + Sync + 'static> {
    pub(super) id: TaskId,
    pub(super) job: Arc<TaskCell<Nothing<T>, T>>,
    pub(super) shared: Arc<ExecutorShared>,
    is_open: bool,
}

impl<T: Send + Sync + 'static> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promise {} ({})", self.id, self.job.label().name())
    }
}

impl<T: Send + Sync + 'static> Promise<T> {
    pub(super) fn new(
        id: TaskId,
        job: Arc<TaskCell<Nothing<T>, T>>,
        shared: Arc<ExecutorShared>,
    ) -> Promise<T> {
        let is_open = true;
        Promise {
            id,
            job,
            shared,
            is_open,
        }
    }

    /// Its task.
    pub fn task(&self) -> Task<T> {
        Task::new(self.id, Arc::clone(&self.job) as Arc<dyn Settled<T>>)
    }

    /// Ends the task with a value; `false` if it was cancelled before.
    pub fn keep(self, value: T) -> bool {
        self.end(Ok(Arc::new(value)))
    }

    /// Ends the task with an error; `false` if it was cancelled before.
    pub fn fail(self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> bool {
        self.end(Err(TaskError::new(error)))
    }

    /// Ends the task with the outcome of another one; `false` if it was cancelled before.
    pub fn end(mut self, outcome: Result<Arc<T>, TaskError>) -> bool {
        let shared = Arc::clone(&self.shared);
        let is_first = shared.transact(|transaction| transaction.end(&self, outcome));
        self.is_open = false;
        is_first
    }
}

impl<T: Send + Sync + 'static> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let dropped = Promise {
            id: self.id,
            job: Arc::clone(&self.job),
            shared: Arc::clone(&self.shared),
            is_open: false,
        };
        let error = TaskError::Dropped {
            task: self.id,
            name: self.job.label().name().clone(),
        };
        task_transaction::afterwards(move || {
            let shared = Arc::clone(&dropped.shared);
            shared.transact(|transaction| transaction.end(&dropped, Err(error)));
        });
    }
}
