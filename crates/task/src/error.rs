//! Errors of tasks: failed, panicked, cancelled, dropped, deadlocked.

use super::label::Name;
use super::state::TaskId;
use std::error::Error;
use std::sync::Arc;

/// Why a task has no value. Travels as a value to whoever depends on it; shared, so that many can have it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TaskError {
    /// Its body, or that of a task before it, gave this error.
    #[error(transparent)]
    Failed(Arc<dyn Error + Send + Sync>),
    /// Its body, or that of a task before it, panicked.
    #[error("task {task} ({name}) panicked: {message}")]
    Panicked {
        /// The one that panicked.
        task: TaskId,
        /// What people know it as.
        name: Name,
        /// What it said.
        message: Arc<str>,
    },
    /// This task was cancelled before its outcome was known: by name, with one that it depends on, by the end of its
    /// executor, or because the transaction that submitted it was rolled back.
    #[error("task {task} ({name}) was cancelled")]
    Cancelled {
        /// The one that was cancelled.
        task: TaskId,
        /// What people know it as.
        name: Name,
    },
    /// The promise was dropped before it was kept.
    #[error("promise {task} ({name}) was dropped without a result")]
    Dropped {
        /// The promise's task.
        task: TaskId,
        /// What people know it as.
        name: Name,
    },
    /// A body may not wait for this task: it waits, by itself or by others, for the very task whose body that is.
    #[error("task {task} ({name}) waits for the task that would wait for it")]
    Deadlock {
        /// The one that would have been waited for.
        task: TaskId,
        /// What people know it as.
        name: Name,
    },
    /// A body may not wait: too many bodies of this executor do so already.
    #[error("{waiting} tasks wait inside their bodies, at most; name dependencies instead")]
    TooManyWaiting {
        /// As many as may.
        waiting: usize,
    },
}

impl TaskError {
    /// An error of a body. One that is an error of another task stays what it is.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> TaskError {
        match error.into().downcast::<TaskError>() {
            Ok(error) => *error,
            Err(error) => TaskError::Failed(error.into()),
        }
    }
}
