//! Handles of tasks and promises.

use super::error::TaskError;
use super::executor::Shared;
use super::job::{Job, Outcome, Settled};
use super::label::Name;
use super::state::TaskId;
use super::{transaction, worker};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A task: what to wait for and to depend on. Cloning is cheap. Holds the outcome, not the executor: the value lives as
/// long as a handle of it, or a task that depends on it and has not run.
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

    /// Which one it is.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// What people see.
    pub fn name(&self) -> &Name {
        self.job.label().name()
    }

    /// The data of its label, if there are some of this type.
    pub fn data<D: Any>(&self) -> Option<&D> {
        self.job.label().data()
    }

    /// The outcome, if it is known.
    pub fn outcome(&self) -> Option<Result<Arc<T>, TaskError>> {
        self.job.outcome(self.id)
    }

    /// Is the outcome known?
    pub fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Blocks until the outcome is known.
    ///
    /// A body may do so too, though naming a dependency is cheaper: another thread takes the place of its worker for as
    /// long. It gets [`TaskError::Deadlock`] if this task waits for that very body, and [`TaskError::TooManyWaiting`] if
    /// [`super::WAITING_MAX`] bodies wait already. Panics inside a transaction.
    pub fn join(&self) -> Result<Arc<T>, TaskError> {
        self.wait(None)
            .expect("without a limit the outcome is waited for")
    }

    /// As [`Task::join`], but for so long at most; `None` if the outcome is not known then. The task goes on.
    pub fn join_deadline(&self, limit: Duration) -> Option<Result<Arc<T>, TaskError>> {
        self.wait(Some(limit))
    }

    fn wait(&self, limit: Option<Duration>) -> Option<Outcome<T>> {
        if let Some(outcome) = self.outcome() {
            return Some(outcome);
        }
        let waited = worker::wait(self.id, self.name(), || self.job.wait(limit));
        match waited {
            Ok(()) => self.outcome(),
            Err(error) => Some(Err(error)),
        }
    }
}

/// What a promise's task does instead of running a body: nothing.
pub(super) type Nothing<T> = fn(TaskId) -> Outcome<T>;

/// The duty to give a task its outcome from outside. If it is dropped instead, the outcome is [`TaskError::Dropped`].
/// Its methods are transactions: inside one, use those of [`super::Transaction`].
pub struct Promise<T: Send + Sync + 'static> {
    pub(super) id: TaskId,
    pub(super) job: Arc<Job<Nothing<T>, T>>,
    pub(super) shared: Arc<Shared>,
    is_open: bool,
}

impl<T: Send + Sync + 'static> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promise {} ({})", self.id, self.job.label().name())
    }
}

impl<T: Send + Sync + 'static> Promise<T> {
    pub(super) fn new(id: TaskId, job: Arc<Job<Nothing<T>, T>>, shared: Arc<Shared>) -> Promise<T> {
        let is_open = true;
        Promise {
            id,
            job,
            shared,
            is_open,
        }
    }

    /// The task that it gives an outcome.
    pub fn task(&self) -> Task<T> {
        Task::new(self.id, Arc::clone(&self.job) as Arc<dyn Settled<T>>)
    }

    /// Gives this value; `false` if the task was cancelled meanwhile.
    pub fn keep(self, value: T) -> bool {
        self.end(Ok(Arc::new(value)))
    }

    /// Gives this error; `false` if the task was cancelled meanwhile.
    pub fn fail(self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> bool {
        self.end(Err(TaskError::new(error)))
    }

    /// Gives this outcome, as a task that it stands for has had it; `false` if the task was cancelled meanwhile.
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
        transaction::afterwards(move || {
            let shared = Arc::clone(&dropped.shared);
            shared.transact(|transaction| transaction.end(&dropped, Err(error)));
        });
    }
}
