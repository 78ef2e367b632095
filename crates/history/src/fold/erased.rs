//! A fold with its types erased, so that one folder runs folds of all types.

use super::Fold;
use super::matrix::FOLDS_QUEUED_MAX;
use crate::chunk::Chunk;
use seatrial_machine::panic_text;
use seatrial_task::{Promise, Task};
use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a fold has no answer.
#[derive(Debug, thiserror::Error)]
pub enum FoldError<E: std::error::Error + 'static> {
    /// A chunk that it needs cannot be read.
    #[error("fold {fold}: chunk {chunk} cannot be read")]
    Chunk {
        /// The fold's name.
        fold: String,
        /// The first unreadable chunk that it needs, from 0.
        chunk: u64,
        /// Why; shared with the other folds that need the chunk.
        source: Arc<E>,
    },
    /// It panicked, or reading a chunk for it did.
    #[error("fold {fold} panicked: {message}")]
    Panicked {
        /// The fold's name.
        fold: String,
        /// The panic's message.
        message: String,
    },
    /// Its handle or task was cancelled.
    #[error("fold {fold} was cancelled")]
    Cancelled {
        /// The fold's name.
        fold: String,
    },
    /// The folder's queue is full.
    #[error("fold {fold} was refused: {queued} folds are waiting already")]
    Refused {
        /// The fold's name.
        fold: String,
        /// Folds in the queue.
        queued: usize,
    },
}

impl<E: std::error::Error + 'static> Clone for FoldError<E> {
    fn clone(&self) -> Self {
        match self {
            FoldError::Chunk {
                fold,
                chunk,
                source,
            } => FoldError::Chunk {
                fold: fold.clone(),
                chunk: *chunk,
                source: source.clone(),
            },
            FoldError::Panicked { fold, message } => FoldError::Panicked {
                fold: fold.clone(),
                message: message.clone(),
            },
            FoldError::Cancelled { fold } => FoldError::Cancelled { fold: fold.clone() },
            FoldError::Refused { fold, queued } => FoldError::Refused {
                fold: fold.clone(),
                queued: *queued,
            },
        }
    }
}

/// A [`FoldError`] without the fold's name: the same cause fails several folds.
pub(super) enum Cause<E> {
    Damage { chunk: u64, error: Arc<E> },
    Panic(String),
    Refused,
}

impl<E> Clone for Cause<E> {
    fn clone(&self) -> Self {
        match self {
            Cause::Damage { chunk, error } => Cause::Damage {
                chunk: *chunk,
                error: error.clone(),
            },
            Cause::Panic(message) => Cause::Panic(message.clone()),
            Cause::Refused => Cause::Refused,
        }
    }
}

impl<E: std::error::Error + 'static> Cause<E> {
    /// The error of the fold with this name.
    pub(super) fn of(self, fold: String) -> FoldError<E> {
        match self {
            Cause::Damage { chunk, error } => FoldError::Chunk {
                fold,
                chunk,
                source: error,
            },
            Cause::Panic(message) => FoldError::Panicked { fold, message },
            Cause::Refused => FoldError::Refused {
                fold,
                queued: FOLDS_QUEUED_MAX,
            },
        }
    }
}

/// An accumulator of any type.
pub(super) type ErasedPart = Box<dyn Any + Send>;

/// A fold of any type, with the receiver of its answer. Every method runs the fold's code, so it may panic.
pub(super) trait ErasedFold<E: std::error::Error + 'static>: Send + Sync {
    fn start(&self) -> ErasedPart;
    fn reduce(&self, part: &mut ErasedPart, chunk: &Chunk) -> ControlFlow<()>;
    fn combine(&self, part: &mut ErasedPart, later: ErasedPart) -> ControlFlow<()>;
    /// Finishes the fold and delivers its answer.
    fn answer(&self, part: Option<ErasedPart>);
    /// Delivers an error (`None`: cancelled), unless something was delivered before.
    fn fail(&self, cause: Option<Cause<E>>);
    /// Is the answer still awaited? False once it was delivered or cancelled.
    fn is_wanted(&self) -> bool;
}

/// Runs a fold's code; returns the message if it panics. Only the fold's own data can be left inconsistent, and that is
/// dropped.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let message = panic_text(&*payload).to_owned();
        // The payload's drop could panic outside of the guard, so it is leaked.
        std::mem::forget(payload);
        message
    })
}

/// Receiver of a fold's answer. The first delivery counts, later ones are ignored.
pub(super) trait AnswerSink<T, E: std::error::Error + 'static>: Send + Sync {
    fn deliver(&self, answer: Result<T, FoldError<E>>);
    /// Was nothing delivered, and is the answer still awaited?
    fn is_open(&self) -> bool;
}

/// An answer that one caller takes by value.
pub(super) struct FoldAnswer<T, E: std::error::Error + 'static> {
    slot: Mutex<Option<Result<T, FoldError<E>>>>,
    /// Kept on delivery, after the slot is filled.
    delivered: Mutex<Option<Promise<()>>>,
    task: Task<()>,
}

impl<T, E: std::error::Error + 'static> FoldAnswer<T, E> {
    pub(super) fn new((delivered, task): (Promise<()>, Task<()>)) -> Self {
        FoldAnswer {
            slot: Mutex::new(None),
            delivered: Mutex::new(Some(delivered)),
            task,
        }
    }

    /// The task that is done once the answer was delivered.
    pub(super) fn task(&self) -> &Task<()> {
        &self.task
    }

    /// Takes the answer; `None` if it was taken before.
    pub(super) fn take(&self) -> Option<Result<T, FoldError<E>>> {
        lock(&self.slot).take()
    }
}

impl<T: Send, E: std::error::Error + Send + Sync + 'static> AnswerSink<T, E> for FoldAnswer<T, E> {
    fn deliver(&self, answer: Result<T, FoldError<E>>) {
        let delivered = lock(&self.delivered).take();
        if let Some(delivered) = delivered {
            *lock(&self.slot) = Some(answer);
            delivered.keep(());
        }
    }

    fn is_open(&self) -> bool {
        !self.task.is_done()
    }
}

/// An answer on which tasks may depend.
pub(super) struct TaskAnswer<T: Send + Sync + 'static> {
    promise: Mutex<Option<Promise<T>>>,
    task: Task<T>,
}

impl<T: Send + Sync + 'static> TaskAnswer<T> {
    pub(super) fn new((promise, task): (Promise<T>, Task<T>)) -> Self {
        TaskAnswer {
            promise: Mutex::new(Some(promise)),
            task,
        }
    }
}

impl<T, E> AnswerSink<T, E> for TaskAnswer<T>
where
    T: Send + Sync + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    fn deliver(&self, answer: Result<T, FoldError<E>>) {
        let promise = lock(&self.promise).take();
        match (promise, answer) {
            (Some(promise), Ok(value)) => promise.keep(value),
            (Some(promise), Err(error)) => promise.fail(error),
            (None, _) => false,
        };
    }

    fn is_open(&self) -> bool {
        !self.task.is_done()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fold of one type and the receiver of its answer.
pub(super) struct TypedFold<F: Fold, E: std::error::Error + 'static> {
    pub(super) fold: F,
    pub(super) name: String,
    pub(super) sink: Arc<dyn AnswerSink<F::Output, E>>,
}

impl<F, E> ErasedFold<E> for TypedFold<F, E>
where
    F: Fold + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    fn start(&self) -> ErasedPart {
        Box::new(self.fold.start())
    }

    fn reduce(&self, part: &mut ErasedPart, chunk: &Chunk) -> ControlFlow<()> {
        self.fold.reduce(own::<F>(part), chunk)
    }

    fn combine(&self, part: &mut ErasedPart, later: ErasedPart) -> ControlFlow<()> {
        let later = later.downcast::<F::Accumulator>();
        self.fold
            .combine(own::<F>(part), *later.expect("an accumulator of this fold"))
    }

    fn answer(&self, part: Option<ErasedPart>) {
        let accumulator = match part {
            Some(part) => *part.downcast().expect("an accumulator of this fold"),
            None => self.fold.start(),
        };
        self.sink.deliver(Ok(self.fold.finish(accumulator)));
    }

    fn fail(&self, cause: Option<Cause<E>>) {
        let fold = self.name.clone();
        let error = match cause {
            Some(cause) => cause.of(fold),
            None => FoldError::Cancelled { fold },
        };
        self.sink.deliver(Err(error));
    }

    fn is_wanted(&self) -> bool {
        self.sink.is_open()
    }
}

/// The accumulator as the type of its fold: parts of a fold are only ever passed to that fold, found by its id.
fn own<F: Fold + 'static>(part: &mut ErasedPart) -> &mut F::Accumulator {
    part.downcast_mut().expect("an accumulator of this fold")
}
