//! Errors of tasks: failed, panicked, cancelled, dropped, deadlocked.

use super::label::TaskName;
use super::task_graph::TaskId;
use std::error::Error;
use std::sync::Arc;

/// Why a task has no value. Dependants receive it as a value; cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TaskError {
    /// Its body, or that of a task on which it depends, returned this error.
    #[error(transparent)]
    Failed(Arc<dyn Error + Send + Sync>),
    /// Its body, or that of a task on which it depends, panicked.
    #[error("task {task} ({name}) panicked: {message}")]
    Panicked {
        /// The task whose body panicked.
        task: TaskId,
        /// Its name.
        name: TaskName,
        /// The panic's message.
        message: Arc<str>,
    },
    /// The task was cancelled before its outcome was known: directly, together with a dependency, by the end of its executor,
    /// or because the transaction that submitted it was rolled back.
    #[error("task {task} ({name}) was cancelled")]
    Cancelled {
        /// The cancelled task.
        task: TaskId,
        /// Its name.
        name: TaskName,
    },
    /// The promise was dropped before it was kept.
    #[error("promise {task} ({name}) was dropped without a result")]
    Dropped {
        /// The promise's task.
        task: TaskId,
        /// Its name.
        name: TaskName,
    },
    /// A body tried to join a task that depends, directly or not, on the body's own task.
    #[error("task {task} ({name}) waits for the task that would wait for it")]
    Deadlock {
        /// The task that was to be joined.
        task: TaskId,
        /// Its name.
        name: TaskName,
    },
    /// A body tried to join a task while the maximum number of bodies of this executor did so.
    #[error("{waiting} tasks wait inside their bodies, at most; name dependencies instead")]
    TooManyWaiting {
        /// The maximum.
        waiting: usize,
    },
}

impl TaskError {
    /// Wraps the error of a body; a [`TaskError`], of another task, is returned unchanged.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> TaskError {
        match error.into().downcast::<TaskError>() {
            Ok(error) => *error,
            Err(error) => TaskError::Failed(error.into()),
        }
    }
}
