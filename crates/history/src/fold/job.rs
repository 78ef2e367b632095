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
    /// A chunk that it needs cannot be had.
    #[error("fold {fold}: chunk {chunk} cannot be read")]
    Chunk {
        /// The fold's name.
        fold: String,
        /// Which chunk, from 0: the first of those that it needs.
        chunk: u64,
        /// Why. Other folds may be told the same.
        source: Arc<E>,
    },
    /// It panicked, or reading a chunk for it did.
    #[error("fold {fold} panicked: {message}")]
    Panicked {
        /// The fold's name.
        fold: String,
        /// What it said.
        message: String,
    },
    /// Somebody gave it up.
    #[error("fold {fold} was cancelled")]
    Cancelled {
        /// The fold's name.
        fold: String,
    },
    /// Too many folds wait for their turn.
    #[error("fold {fold} was refused: {queued} folds are waiting already")]
    Refused {
        /// The fold's name.
        fold: String,
        /// How many wait.
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

/// Why a fold cannot have a chunk, without saying which fold.
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
    /// What the fold is told.
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

/// An accumulator whose type is forgotten.
pub(super) type Part = Box<dyn Any + Send>;

/// A fold whose types are forgotten. Every method runs its code, so it may panic.
pub(super) trait Job<E: std::error::Error + 'static>: Send + Sync {
    fn start(&self) -> Part;
    fn reduce(&self, part: &mut Part, chunk: &Chunk) -> ControlFlow<()>;
    fn combine(&self, part: &mut Part, later: Part) -> ControlFlow<()>;
    /// Finishes and delivers.
    fn answer(&self, part: Option<Part>);
    /// Delivers that there is no answer, if nothing was delivered yet.
    fn fail(&self, cause: Option<Cause<E>>);
    /// Does somebody still want the answer?
    fn is_wanted(&self) -> bool;
}

/// Runs a fold's code; its message when it panics. What it may leave half done is its own and is thrown away.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let message = panic_text(&*payload).to_owned();
        // A payload whose drop panics would pass the guard.
        std::mem::forget(payload);
        message
    })
}

/// Where a fold's answer goes. Only the first one counts.
pub(super) trait Sink<T, E: std::error::Error + 'static>: Send + Sync {
    fn tell(&self, answer: Result<T, FoldError<E>>);
    /// Was nothing told, and does somebody still want it?
    fn is_open(&self) -> bool;
}

/// An answer that one caller takes.
pub(super) struct Answer<T, E: std::error::Error + 'static> {
    slot: Mutex<Option<Result<T, FoldError<E>>>>,
    told: Mutex<Option<Promise<()>>>,
    task: Task<()>,
}

impl<T, E: std::error::Error + 'static> Answer<T, E> {
    pub(super) fn new((told, task): (Promise<()>, Task<()>)) -> Self {
        Answer {
            slot: Mutex::new(None),
            told: Mutex::new(Some(told)),
            task,
        }
    }

    /// Done once the answer is there.
    pub(super) fn task(&self) -> &Task<()> {
        &self.task
    }

    /// The answer, to the first who asks.
    pub(super) fn take(&self) -> Option<Result<T, FoldError<E>>> {
        lock(&self.slot).take()
    }
}

impl<T: Send, E: std::error::Error + Send + Sync + 'static> Sink<T, E> for Answer<T, E> {
    fn tell(&self, answer: Result<T, FoldError<E>>) {
        let told = lock(&self.told).take();
        if let Some(told) = told {
            *lock(&self.slot) = Some(answer);
            told.keep(());
        }
    }

    fn is_open(&self) -> bool {
        !self.task.is_done()
    }
}

/// An answer that tasks may depend on.
pub(super) struct Promised<T: Send + Sync + 'static> {
    promise: Mutex<Option<Promise<T>>>,
    task: Task<T>,
}

impl<T: Send + Sync + 'static> Promised<T> {
    pub(super) fn new((promise, task): (Promise<T>, Task<T>)) -> Self {
        Promised {
            promise: Mutex::new(Some(promise)),
            task,
        }
    }
}

impl<T, E> Sink<T, E> for Promised<T>
where
    T: Send + Sync + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    fn tell(&self, answer: Result<T, FoldError<E>>) {
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

/// A fold and where its answer goes.
pub(super) struct FoldJob<F: Fold, E: std::error::Error + 'static> {
    pub(super) fold: F,
    pub(super) name: String,
    pub(super) sink: Arc<dyn Sink<F::Output, E>>,
}

impl<F, E> Job<E> for FoldJob<F, E>
where
    F: Fold + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    fn start(&self) -> Part {
        Box::new(self.fold.start())
    }

    fn reduce(&self, part: &mut Part, chunk: &Chunk) -> ControlFlow<()> {
        self.fold.reduce(own::<F>(part), chunk)
    }

    fn combine(&self, part: &mut Part, later: Part) -> ControlFlow<()> {
        let later = later.downcast::<F::Accumulator>();
        self.fold
            .combine(own::<F>(part), *later.expect("of its own fold"))
    }

    fn answer(&self, part: Option<Part>) {
        let accumulator = match part {
            Some(part) => *part.downcast().expect("of its own fold"),
            None => self.fold.start(),
        };
        self.sink.tell(Ok(self.fold.finish(accumulator)));
    }

    fn fail(&self, cause: Option<Cause<E>>) {
        let fold = self.name.clone();
        let error = match cause {
            Some(cause) => cause.of(fold),
            None => FoldError::Cancelled { fold },
        };
        self.sink.tell(Err(error));
    }

    fn is_wanted(&self) -> bool {
        self.sink.is_open()
    }
}

fn own<F: Fold + 'static>(part: &mut Part) -> &mut F::Accumulator {
    part.downcast_mut().expect("of its own fold")
}
