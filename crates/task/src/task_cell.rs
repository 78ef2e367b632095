//! A task's body and outcome, shared by the executor, its handles and its dependants.

use super::dependencies::Dependencies;
use super::error::TaskError;
use super::label::Label;
use super::task_graph::TaskId;
use seatrial_machine::panic_text;
use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The value of a task, or its error.
pub(super) type Outcome<T> = Result<Arc<T>, TaskError>;

/// A task of any type, as the executor sees it.
pub(super) trait AnyTask: Send + Sync {
    fn label(&self) -> &Label;

    /// Runs the body, unless it was cancelled. The outcome stays hidden until it is published.
    fn run(&self, id: TaskId);

    /// Publishes the outcome. Cheap and free of foreign code, so it may be called under the executor's lock. Returns whether
    /// threads wait for the outcome; then [`AnyTask::wake`] must follow.
    fn publish(&self) -> bool;

    /// Makes cancellation the outcome; as cheap as [`AnyTask::publish`]. [`AnyTask::wake`] drops the body or value.
    fn cancel(&self);

    /// Wakes the threads that wait for the outcome, and drops what a cancelled task held, which may run foreign code.
    fn wake(&self);
}

/// A task as its handles see it.
pub(super) trait Settled<T>: Send + Sync {
    fn label(&self) -> &Label;

    /// The outcome; `None` until it is published.
    fn outcome(&self, id: TaskId) -> Option<Outcome<T>>;

    /// Blocks until the outcome is published, or until `limit` has passed.
    fn wait(&self, limit: Option<Duration>);
}

/// Progress of a body.
enum BodyStage<B, T> {
    Pending(B),
    Running,
    /// Ended, not yet published.
    Ended(Outcome<T>),
    Published(Outcome<T>),
}

struct BodySlot<B, T> {
    stage: BodyStage<B, T>,
    /// Overrides the stage.
    cancelled: bool,
    /// Threads in [`Settled::wait`].
    waiting: u32,
}

/// One task: one allocation holds its label, its body while it waits and its outcome later.
pub(super) struct TaskCell<B, T> {
    label: Label,
    slot: Mutex<BodySlot<B, T>>,
    settled: Condvar,
}

impl<B, T> TaskCell<B, T> {
    pub(super) fn new(label: Label, body: B) -> TaskCell<B, T> {
        TaskCell {
            label,
            slot: Mutex::new(BodySlot {
                stage: BodyStage::Pending(body),
                cancelled: false,
                waiting: 0,
            }),
            settled: Condvar::new(),
        }
    }

    /// No foreign code runs under this lock.
    fn lock(&self) -> MutexGuard<'_, BodySlot<B, T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the outcome; of a promise, instead of running a body. Returns the outcome of an earlier call in a transaction
    /// that was rolled back, to be dropped by the caller.
    pub(super) fn end(&self, outcome: Outcome<T>) -> Option<Outcome<T>> {
        let mut slot = self.lock();
        match std::mem::replace(&mut slot.stage, BodyStage::Ended(outcome)) {
            BodyStage::Ended(outcome) => Some(outcome),
            BodyStage::Pending(_) | BodyStage::Running | BodyStage::Published(_) => None,
        }
    }
}

impl<B, T> AnyTask for TaskCell<B, T>
where
    B: FnOnce(TaskId) -> Outcome<T> + Send,
    T: Send + Sync,
{
    fn label(&self) -> &Label {
        &self.label
    }

    fn run(&self, id: TaskId) {
        let mut slot = self.lock();
        // Cancelled after it was taken from the ready queue; the cancelling thread drops the body.
        if slot.cancelled {
            return;
        }
        let BodyStage::Pending(body) = std::mem::replace(&mut slot.stage, BodyStage::Running)
        else {
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
        let ended = std::mem::replace(&mut slot.stage, BodyStage::Running);
        slot.stage = match ended {
            BodyStage::Ended(outcome) => BodyStage::Published(outcome),
            other => other,
        };
        slot.waiting > 0
    }

    fn cancel(&self) {
        self.lock().cancelled = true;
    }

    fn wake(&self) {
        let mut slot = self.lock();
        let unwanted = slot.cancelled && !matches!(slot.stage, BodyStage::Running);
        let unwanted = unwanted.then(|| std::mem::replace(&mut slot.stage, BodyStage::Running));
        let waiting = slot.waiting > 0;
        drop(slot);
        if waiting {
            self.settled.notify_all();
        }
        discard(unwanted);
    }
}

impl<B: Send, T: Send + Sync> Settled<T> for TaskCell<B, T> {
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
            BodyStage::Published(outcome) => Some(outcome.clone()),
            BodyStage::Pending(_) | BodyStage::Running | BodyStage::Ended(_) => None,
        }
    }

    fn wait(&self, limit: Option<Duration>) {
        let is_pending = |slot: &mut BodySlot<B, T>| {
            !slot.cancelled && !matches!(slot.stage, BodyStage::Published(_))
        };
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

/// Wraps a body that returns a value.
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

/// Wraps a body that may fail.
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

/// Wraps a body that receives errors, too.
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

/// Drops a foreign value. If its drop panics, the panic hook reports it; no caller could handle it.
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
