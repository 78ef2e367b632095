//! A task's body and outcome, shared by the executor, its handles and its dependants.

use super::dependencies::Dependencies;
use super::error::TaskError;
use super::label::Label;
use super::state::TaskId;
use seatrial_machine::panic_text;
use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A value, or why there is none.
pub(super) type Outcome<T> = Result<Arc<T>, TaskError>;

/// What the executor does with a task, whatever its type.
pub(super) trait Work: Send + Sync {
    fn label(&self) -> &Label;

    /// Runs the body, unless it was cancelled. The outcome is kept back until it is published.
    fn run(&self, id: TaskId);

    /// Shows the outcome to everybody. Cheap, runs no code of others; tells whether somebody waits for it, who is then
    /// to be woken.
    fn publish(&self) -> bool;

    /// Makes being cancelled the outcome. As cheap; what it held is thrown away by [`Work::wake`].
    fn cancel(&self);

    /// Wakes who waits for the outcome, and drops what nobody needs any more: code of others.
    fn wake(&self);
}

/// What a handle sees of a task.
pub(super) trait Settled<T>: Send + Sync {
    fn label(&self) -> &Label;

    /// The outcome, once it is published.
    fn outcome(&self, id: TaskId) -> Option<Outcome<T>>;

    /// Blocks until the outcome is published, at most so long if a limit is given.
    fn wait(&self, limit: Option<Duration>);
}

/// How far the body is.
enum Stage<B, T> {
    Pending(B),
    Running,
    /// Ended, not published.
    Ended(Outcome<T>),
    Published(Outcome<T>),
}

struct Slot<B, T> {
    stage: Stage<B, T>,
    /// Overrides the stage.
    cancelled: bool,
    /// Threads in [`Settled::wait`].
    waiting: u32,
}

/// One task: one allocation holds its label, its body while it waits and its outcome later.
pub(super) struct Job<B, T> {
    label: Label,
    slot: Mutex<Slot<B, T>>,
    settled: Condvar,
}

impl<B, T> Job<B, T> {
    pub(super) fn new(label: Label, body: B) -> Job<B, T> {
        Job {
            label,
            slot: Mutex::new(Slot {
                stage: Stage::Pending(body),
                cancelled: false,
                waiting: 0,
            }),
            settled: Condvar::new(),
        }
    }

    /// No code of others runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Slot<B, T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with this outcome: what a promise does instead of running. Gives back the outcome that it ended with
    /// before, in a transaction that was rolled back.
    pub(super) fn end(&self, outcome: Outcome<T>) -> Option<Outcome<T>> {
        let mut slot = self.lock();
        match std::mem::replace(&mut slot.stage, Stage::Ended(outcome)) {
            Stage::Ended(outcome) => Some(outcome),
            Stage::Pending(_) | Stage::Running | Stage::Published(_) => None,
        }
    }
}

impl<B, T> Work for Job<B, T>
where
    B: FnOnce(TaskId) -> Outcome<T> + Send,
    T: Send + Sync,
{
    fn label(&self) -> &Label {
        &self.label
    }

    fn run(&self, id: TaskId) {
        let mut slot = self.lock();
        // Between being taken and getting here. Whoever cancelled it drops the body.
        if slot.cancelled {
            return;
        }
        let Stage::Pending(body) = std::mem::replace(&mut slot.stage, Stage::Running) else {
            panic!("task {id} runs twice");
        };
        drop(slot);
        let outcome = catch_unwind(AssertUnwindSafe(|| body(id)));
        self.end(outcome.unwrap_or_else(|panic| {
            let error = panicked(id, &self.label, &*panic);
            discard(panic);
            Err(error)
        }));
    }

    fn publish(&self) -> bool {
        let mut slot = self.lock();
        let ended = std::mem::replace(&mut slot.stage, Stage::Running);
        slot.stage = match ended {
            Stage::Ended(outcome) => Stage::Published(outcome),
            other => other,
        };
        slot.waiting > 0
    }

    fn cancel(&self) {
        self.lock().cancelled = true;
    }

    fn wake(&self) {
        let mut slot = self.lock();
        let unwanted = slot.cancelled && !matches!(slot.stage, Stage::Running);
        let unwanted = unwanted.then(|| std::mem::replace(&mut slot.stage, Stage::Running));
        let waiting = slot.waiting > 0;
        drop(slot);
        if waiting {
            self.settled.notify_all();
        }
        discard(unwanted);
    }
}

impl<B: Send, T: Send + Sync> Settled<T> for Job<B, T> {
    fn label(&self) -> &Label {
        &self.label
    }

    fn outcome(&self, id: TaskId) -> Option<Outcome<T>> {
        let slot = self.lock();
        match &slot.stage {
            _ if slot.cancelled => Some(Err(TaskError::Cancelled {
                task: id,
                name: self.label.name().clone(),
            })),
            Stage::Published(outcome) => Some(outcome.clone()),
            Stage::Pending(_) | Stage::Running | Stage::Ended(_) => None,
        }
    }

    fn wait(&self, limit: Option<Duration>) {
        let is_pending =
            |slot: &mut Slot<B, T>| !slot.cancelled && !matches!(slot.stage, Stage::Published(_));
        let mut slot = self.lock();
        slot.waiting += 1;
        let mut slot = match limit {
            None => {
                let waited = self.settled.wait_while(slot, is_pending);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
            Some(limit) => {
                let waited = self.settled.wait_timeout_while(slot, limit, is_pending);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        slot.waiting -= 1;
    }
}

/// What runs for a body that gives a value.
pub(super) fn plain<T, D, F>(
    held: D::Held,
    body: F,
) -> impl FnOnce(TaskId) -> Outcome<T> + Send + 'static
where
    T: 'static,
    D: Dependencies,
    F: FnOnce(D::Values) -> T + Send + 'static,
{
    move |_| Ok(Arc::new(body(D::values(held)?)))
}

/// What runs for a body that may fail.
pub(super) fn attempting<T, E, D, F>(
    held: D::Held,
    body: F,
) -> impl FnOnce(TaskId) -> Outcome<T> + Send + 'static
where
    T: 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
    D: Dependencies,
    F: FnOnce(D::Values) -> Result<T, E> + Send + 'static,
{
    move |_| {
        let value = body(D::values(held)?);
        value.map(Arc::new).map_err(TaskError::new)
    }
}

/// What runs for a body that gets errors too.
pub(super) fn catching<T, E, D, F>(
    held: D::Held,
    body: F,
) -> impl FnOnce(TaskId) -> Outcome<T> + Send + 'static
where
    T: 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
    D: Dependencies,
    F: FnOnce(D::Results) -> Result<T, E> + Send + 'static,
{
    move |_| {
        let value = body(D::results(held));
        value.map(Arc::new).map_err(TaskError::new)
    }
}

/// Drops what is not ours. A panic that comes of it was told by the panic hook; there is nobody else to tell.
pub(super) fn discard(dropped: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(dropped)));
}

/// A panic as an error.
fn panicked(id: TaskId, label: &Label, panic: &(dyn Any + Send)) -> TaskError {
    TaskError::Panicked {
        task: id,
        name: label.name().clone(),
        message: panic_text(panic).into(),
    }
}
