//! The worker threads, which run the bodies of ready tasks.

use super::error::TaskError;
use super::executor::{Crew, Guarded, Shared};
use super::job::{Work, discard};
use super::label::Name;
use super::state::TaskId;
use super::{WAITING_MAX, transaction};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

thread_local! {
    /// The executor whose worker this thread is.
    static EMPLOYER: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// The task whose body it runs.
    static CURRENT: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// Is this thread a worker of that executor?
pub(super) fn is_of(shared: &Arc<Shared>) -> bool {
    EMPLOYER.with_borrow(|employer| {
        let employer = employer.as_ref();
        employer.is_some_and(|employer| Arc::ptr_eq(employer, shared))
    })
}

/// Starts a worker that is counted already.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let employer = Arc::clone(shared);
    let name = format!("tasks {}", shared.number);
    let started = std::thread::Builder::new().name(name).spawn(move || {
        EMPLOYER.set(Some(Arc::clone(&employer)));
        work(&employer);
        EMPLOYER.set(None);
    });
    let mut guarded = shared.lock();
    match started {
        Ok(handle) => guarded.crew.handles.push(handle),
        Err(error) => {
            guarded.crew.workers -= 1;
            return Err(error);
        }
    }
    Ok(())
}

/// Waits for a task, which `wait` does, in whatever thread this is. In a worker another one takes its place.
pub(super) fn wait(id: TaskId, name: &Name, wait: impl FnOnce()) -> Result<(), TaskError> {
    assert!(
        !transaction::is_open(),
        "a transaction is open in this thread: task {id} ({name}) cannot end before it"
    );
    let employer = EMPLOYER.with_borrow(Option::clone);
    let (Some(shared), Some(current)) = (employer, CURRENT.get()) else {
        wait();
        return Ok(());
    };
    let mut guarded = shared.lock();
    if guarded.crew.blocked == WAITING_MAX {
        return Err(TaskError::TooManyWaiting {
            waiting: WAITING_MAX,
        });
    }
    if !guarded.state.wait(current, id) {
        let (task, name) = (id, name.clone());
        return Err(TaskError::Deadlock { task, name });
    }
    let replacement = guarded.crew.block(shared.threads);
    drop(guarded);
    let admitted = match replacement {
        Replacement::None => Ok(()),
        Replacement::Spare => {
            shared.spare.notify_one();
            Ok(())
        }
        Replacement::New => start(&shared),
    };
    if admitted.is_ok() {
        wait();
    }
    let mut guarded = shared.lock();
    guarded.crew.blocked -= 1;
    guarded.state.stop_waiting(current);
    let waiting = guarded.crew.blocked;
    admitted.map_err(|_| TaskError::TooManyWaiting { waiting })
}

/// Who takes the place of a worker that blocks.
enum Replacement {
    /// Enough are left.
    None,
    Spare,
    New,
}

impl Crew {
    /// Workers that run bodies or would.
    fn active(&self) -> usize {
        self.workers - self.blocked - self.spare
    }

    /// A worker is about to block.
    fn block(&mut self, threads: usize) -> Replacement {
        self.blocked += 1;
        if self.active() >= threads || self.stopping {
            Replacement::None
        } else if self.spare > 0 {
            self.spare -= 1;
            self.recalled += 1;
            Replacement::Spare
        } else {
            self.workers += 1;
            Replacement::New
        }
    }
}

/// A task that has ended, and what is left to do for it without the lock.
pub(super) struct Ended {
    work: Arc<dyn Work>,
    /// Somebody waits for it, or nobody wants what it gave.
    wakes: bool,
}

impl Ended {
    pub(super) fn carry_out(self) {
        if self.wakes {
            self.work.wake();
        }
        discard(self.work);
    }
}

impl Guarded {
    /// A body has ended: shows its outcome, and lets go those that waited for it.
    pub(super) fn finish(&mut self, id: TaskId, work: Arc<dyn Work>) -> Ended {
        let (_, wanted) = self.state.finish(id);
        let wakes = !wanted || work.publish();
        Ended { work, wakes }
    }
}

/// Runs tasks until it is over. The lock is taken once per task: to tell that one has ended and to take the next.
fn work(shared: &Arc<Shared>) {
    let mut ended: Option<Ended> = None;
    let mut guarded = shared.lock();
    loop {
        let crew = &guarded.crew;
        let is_spare = crew.active() > shared.threads && !crew.stopping;
        let next = if is_spare { None } else { guarded.state.take() };
        if let Some((id, work)) = next {
            let wakes = guarded.is_to_wake();
            drop(guarded);
            if wakes {
                shared.idle.notify_one();
            }
            if let Some(ended) = ended.take() {
                ended.carry_out();
            }
            CURRENT.set(Some(id));
            work.run(id);
            CURRENT.set(None);
            guarded = shared.lock();
            ended = Some(guarded.finish(id, work));
        } else if let Some(ended) = ended.take() {
            drop(guarded);
            ended.carry_out();
            guarded = shared.lock();
        } else if is_spare {
            guarded = stand_by(shared, guarded);
        } else if guarded.crew.stopping {
            return;
        } else {
            guarded.crew.sleeping += 1;
            let woken = shared.idle.wait(guarded);
            guarded = woken.unwrap_or_else(PoisonError::into_inner);
            guarded.crew.sleeping -= 1;
            guarded.crew.waking = guarded.crew.waking.saturating_sub(1);
        }
    }
}

/// One worker too many, after one that was blocked has gone on: waits until the next one blocks.
fn stand_by<'a>(
    shared: &'a Shared,
    mut guarded: MutexGuard<'a, Guarded>,
) -> MutexGuard<'a, Guarded> {
    guarded.crew.spare += 1;
    // Perhaps it was this one that was told.
    if guarded.is_to_wake() {
        shared.idle.notify_one();
    }
    let waited = shared.spare.wait_while(guarded, |guarded| {
        guarded.crew.recalled == 0 && !guarded.crew.stopping
    });
    let mut guarded = waited.unwrap_or_else(PoisonError::into_inner);
    match guarded.crew.recalled {
        0 => guarded.crew.spare -= 1,
        _ => guarded.crew.recalled -= 1,
    }
    guarded
}
