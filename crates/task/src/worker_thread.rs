//! The worker threads, which run the bodies of ready tasks.

use super::error::TaskError;
use super::executor::{ExecutorShared, Guarded, WorkerCounts};
use super::label::TaskName;
use super::task_cell::{AnyTask, discard};
use super::task_graph::TaskId;
use super::{WAITING_MAX, task_transaction};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

thread_local! {
    /// The executor whose worker this thread is.
    static EMPLOYER: RefCell<Option<Arc<ExecutorShared>>> = const { RefCell::new(None) };
    /// The task whose body it runs.
    static CURRENT: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// Is this thread a worker of `shared`?
pub(super) fn is_of(shared: &Arc<ExecutorShared>) -> bool {
    EMPLOYER.with_borrow(|employer| {
        let employer = employer.as_ref();
        employer.is_some_and(|employer| Arc::ptr_eq(employer, shared))
    })
}

/// Starts the thread of a worker that is already counted in [`WorkerCounts::workers`]; takes the count back on failure.
pub(super) fn start(shared: &Arc<ExecutorShared>) -> io::Result<()> {
    let employer = Arc::clone(shared);
    let name = format!("tasks {}", shared.number);
    let started = std::thread::Builder::new().name(name).spawn(move || {
        EMPLOYER.set(Some(Arc::clone(&employer)));
        work(&employer);
        EMPLOYER.set(None);
    });
    let mut guarded = shared.lock();
    match started {
        Ok(handle) => guarded.counts.handles.push(handle),
        Err(error) => {
            guarded.counts.workers -= 1;
            return Err(error);
        }
    }
    Ok(())
}

/// Calls `wait`, which blocks until a task is done. On a worker thread it first checks for deadlock and makes a spare or new
/// worker take this one's place, so that `threads` bodies keep running.
pub(super) fn wait(id: TaskId, name: &TaskName, wait: impl FnOnce()) -> Result<(), TaskError> {
    assert!(
        !task_transaction::is_open(),
        "a transaction is open in this thread: task {id} ({name}) cannot end before it"
    );
    let employer = EMPLOYER.with_borrow(Option::clone);
    let (Some(shared), Some(current)) = (employer, CURRENT.get()) else {
        wait();
        return Ok(());
    };
    let mut guarded = shared.lock();
    if guarded.counts.blocked == WAITING_MAX {
        return Err(TaskError::TooManyWaiting {
            waiting: WAITING_MAX,
        });
    }
    if !guarded.state.wait(current, id) {
        let (task, name) = (id, name.clone());
        return Err(TaskError::Deadlock { task, name });
    }
    let replacement = guarded.counts.block(shared.threads);
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
    guarded.counts.blocked -= 1;
    guarded.state.stop_waiting(current);
    let waiting = guarded.counts.blocked;
    admitted.map_err(|_| TaskError::TooManyWaiting { waiting })
}

/// The worker that takes the place of a blocking one.
enum Replacement {
    /// None: enough are running.
    None,
    Spare,
    New,
}

impl WorkerCounts {
    /// Workers that run bodies or wait for work.
    fn active(&self) -> usize {
        self.workers - self.blocked - self.spare
    }

    /// Counts a worker that is about to block, and chooses its replacement.
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

/// A task that has ended; [`EndedTask::carry_out`] does the rest without the lock.
pub(super) struct EndedTask {
    work: Arc<dyn AnyTask>,
    /// A thread waits for the outcome, or the outcome is to be dropped.
    wakes: bool,
}

impl EndedTask {
    pub(super) fn carry_out(self) {
        if self.wakes {
            self.work.wake();
        }
        discard(self.work);
    }
}

impl Guarded {
    /// Publishes the outcome of a body that has ended, and makes ready the dependants that waited only for it.
    pub(super) fn finish(&mut self, id: TaskId, work: Arc<dyn AnyTask>) -> EndedTask {
        let (_, wanted) = self.state.finish(id);
        let wakes = !wanted || work.publish();
        EndedTask { work, wakes }
    }
}

/// The loop of a worker: runs tasks until the executor stops. The lock is taken once per task, to finish one and take the
/// next.
fn work(shared: &Arc<ExecutorShared>) {
    let mut ended: Option<EndedTask> = None;
    let mut guarded = shared.lock();
    loop {
        let counts = &guarded.counts;
        let is_spare = counts.active() > shared.threads && !counts.stopping;
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
        } else if guarded.counts.stopping {
            return;
        } else {
            guarded.counts.sleeping += 1;
            let woken = shared.idle.wait(guarded);
            guarded = woken.unwrap_or_else(PoisonError::into_inner);
            guarded.counts.sleeping -= 1;
            guarded.counts.waking = guarded.counts.waking.saturating_sub(1);
        }
    }
}

/// Parks a surplus worker, after a blocked one has resumed, until the next one blocks.
fn stand_by<'a>(
    shared: &'a ExecutorShared,
    mut guarded: MutexGuard<'a, Guarded>,
) -> MutexGuard<'a, Guarded> {
    guarded.counts.spare += 1;
    // This worker may have consumed a wake-up for work that it now leaves: pass it on.
    if guarded.is_to_wake() {
        shared.idle.notify_one();
    }
    let waited = shared.spare.wait_while(guarded, |guarded| {
        guarded.counts.recalled == 0 && !guarded.counts.stopping
    });
    let mut guarded = waited.unwrap_or_else(PoisonError::into_inner);
    match guarded.counts.recalled {
        0 => guarded.counts.spare -= 1,
        _ => guarded.counts.recalled -= 1,
    }
    guarded
}
