//! Random schedules of the real thing, bodies and all but the threads, against the naive twin.

use super::super::dependencies::{Dependencies, Ids};
use super::super::executor::ExecutorShared;
use super::super::handle::Nothing;
use super::super::task_cell::{self, AnyTask, TaskCell};
use super::super::task_graph::TaskEffect;
use super::super::task_transaction::carry_out;
use super::super::{Task, TaskError, TaskId, TaskState};
use super::twin::{BodyKind, Subject, TaskWorld, TwinOutcome, TwinStep};
use seatrial_machine::Rng;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

type Promised = Arc<TaskCell<Nothing<u64>, u64>>;

/// An executor without workers: the tests are its workers.
struct Executor {
    shared: Arc<ExecutorShared>,
    tasks: Vec<(Task<u64>, Option<Promised>)>,
    running: Vec<(TaskId, Arc<dyn AnyTask>)>,
    /// How often each body ran. A body holds its counter, so that a leak shows.
    ran: Vec<Arc<AtomicU32>>,
}

impl Executor {
    fn new() -> Executor {
        Executor {
            shared: ExecutorShared::new(0),
            tasks: Vec::new(),
            running: Vec::new(),
            ran: Vec::new(),
        }
    }

    fn number(&self, id: TaskId) -> usize {
        let numbers = self.tasks.iter().position(|(task, _)| task.id() == id);
        numbers.expect("a task of ours")
    }

    fn promise(&mut self) -> TaskId {
        let nothing: Nothing<u64> = |_| unreachable!("never runs");
        let job = Arc::new(TaskCell::new("promise".into(), nothing));
        let work = Arc::clone(&job) as Arc<dyn AnyTask>;
        let id = self.shared.lock().state.promise(work);
        let task = Task::new(id, Arc::clone(&job) as _);
        self.tasks.push((task, Some(job)));
        id
    }

    fn outcome(&self, task: usize) -> Option<TwinOutcome> {
        let outcome = self.tasks[task].0.outcome()?;
        Some(match outcome {
            Ok(value) => TwinOutcome::Value(*value),
            Err(TaskError::Failed(error)) => {
                TwinOutcome::Failed(error.to_string().parse().unwrap())
            }
            Err(TaskError::Cancelled { task, .. }) => TwinOutcome::Cancelled(self.number(task)),
            Err(error) => panic!("{error}"),
        })
    }
}

/// A body is called as soon as it is taken, or when it is to end: a cancellation meets it before or after.
fn runs_early(task: usize) -> bool {
    task.is_multiple_of(2)
}

impl Subject for Executor {
    fn submit(&mut self, kind: BodyKind, dependencies: &[TaskId]) -> TaskId {
        type Held = Vec<Task<u64>>;
        let ran = Arc::new(AtomicU32::new(0));
        self.ran.push(Arc::clone(&ran));
        if kind == BodyKind::Promise {
            return self.promise();
        }
        let held = dependencies.iter();
        let held = held.map(|id| self.tasks[self.number(*id)].0.clone());
        let held: Held = held.collect();
        let ids = Ids::of::<Held>(&held);
        let own = self.tasks.len();
        let sum = move |values: <Held as Dependencies>::Values| {
            ran.fetch_add(1, Ordering::Relaxed);
            1 + values.iter().map(|value| **value).sum::<u64>()
        };
        let mut guarded = self.shared.lock();
        let task = match kind {
            BodyKind::Plain => {
                let body = task_cell::plain::<u64, Held, _>(held, sum);
                guarded.submit(&Arc::new(TaskCell::new("plain".into(), body)), &ids)
            }
            BodyKind::Fails => {
                let fails = move |values| Err::<u64, String>((own, sum(values)).0.to_string());
                let body = task_cell::attempting::<u64, String, Held, _>(held, fails);
                guarded.submit(&Arc::new(TaskCell::new("fails".into(), body)), &ids)
            }
            _ => {
                let catches = move |results: <Held as Dependencies>::Results| {
                    let failed = results.iter().filter(|result| result.is_err()).count() as u64;
                    Ok(1_000 * failed + sum(results.into_iter().flatten().collect()))
                };
                let body = task_cell::catching::<u64, String, Held, _>(held, catches);
                guarded.submit(&Arc::new(TaskCell::new("catches".into(), body)), &ids)
            }
        };
        drop(guarded);
        let id = task.id();
        self.tasks.push((task, None));
        id
    }

    fn cancel(&mut self, id: TaskId) -> TaskState {
        self.shared.lock().state.cancel(id)
    }

    fn keep(&mut self, id: TaskId) -> bool {
        let is_first = self.shared.lock().state.keep(id);
        let promise = self.tasks[self.number(id)].1.as_ref();
        if let Some(promise) = promise.filter(|_| is_first) {
            promise.end(Ok(Arc::new(100)));
        }
        is_first
    }

    fn end(&mut self, commits: bool) -> (Vec<TaskId>, Vec<TaskId>) {
        let mut effects = Vec::new();
        let mut guarded = self.shared.lock();
        if commits {
            guarded.commit(&mut effects);
        } else {
            guarded.rollback(&mut effects);
        }
        drop(guarded);
        let (mut cancelled, mut kept) = (Vec::new(), Vec::new());
        for effect in &effects {
            match effect {
                TaskEffect::Cancelled(id, _) => cancelled.push(*id),
                TaskEffect::Kept(id, _) => kept.push(*id),
            }
        }
        carry_out(effects);
        (cancelled, kept)
    }

    fn take(&mut self) -> Option<TaskId> {
        let (id, work) = self.shared.lock().state.take()?;
        if runs_early(self.number(id)) {
            work.run(id);
        }
        self.running.push((id, work));
        Some(id)
    }

    fn finish(&mut self, id: TaskId) -> bool {
        let place = self.running.iter().position(|(running, _)| *running == id);
        let (id, work) = self.running.swap_remove(place.unwrap());
        if !runs_early(self.number(id)) {
            work.run(id);
        }
        let was_open = self.outcome(self.number(id)).is_none();
        let ended = self.shared.lock().finish(id, work);
        ended.carry_out();
        was_open
    }

    fn state(&self, id: TaskId) -> TaskState {
        self.shared.lock().state.state(id)
    }

    fn dependencies(&self, id: TaskId) -> Vec<TaskId> {
        self.shared.lock().state.dependencies(id)
    }

    fn counts(&self) -> (usize, usize) {
        let guarded = self.shared.lock();
        (guarded.state.live(), guarded.state.ready_count())
    }

    fn check(&self) -> Result<(), String> {
        self.shared.lock().state.check()
    }

    fn check_outcome(&self, task: usize, wanted: Option<TwinOutcome>) -> Result<(), String> {
        match self.outcome(task) {
            found if found == wanted => Ok(()),
            found => Err(format!("outcome of {task}: {found:?}, not {wanted:?}")),
        }
    }
}

/// A random step of a transaction, given the number of tasks.
fn step(rng: &mut Rng, tasks: usize) -> TwinStep {
    let any = |rng: &mut Rng| rng.index(tasks.max(1));
    match rng.below(10) {
        0 => TwinStep::Cancel(any(rng)),
        1 | 2 => TwinStep::Keep(any(rng)),
        3 => TwinStep::Submit(BodyKind::Promise, Vec::new()),
        other => {
            let kinds = [
                BodyKind::Plain,
                BodyKind::Plain,
                BodyKind::Fails,
                BodyKind::Catches,
            ];
            let kind = kinds[other as usize % 4];
            // Recent ones more often, and sometimes the same one twice.
            let dependencies = (0..rng.index(4)).map(|_| {
                let back = rng.index(tasks.max(1)).min(rng.index(tasks.max(1)));
                tasks.saturating_sub(1 + back)
            });
            TwinStep::Submit(kind, dependencies.collect())
        }
    }
}

/// One schedule: transactions, starts and ends by chance, then whatever is left until nothing is.
fn run(seed: u64) -> Result<TaskWorld<Executor>, String> {
    let mut rng = Rng::from_seed(seed);
    let workers = 1 + rng.index(4);
    let tasks_max = 4 + rng.index(20);
    let mut world = TaskWorld::new(Executor::new());
    loop {
        let running = world.twin.running();
        let is_full = world.task_count() >= tasks_max;
        match rng.below(3) {
            0 if !is_full => {
                let count = 1 + rng.index(4);
                let tasks = world.task_count();
                let steps: Vec<TwinStep> = (0..count).map(|_| step(&mut rng, tasks)).collect();
                world.transact(&steps, rng.chance(0.8))?;
            }
            1 if running.len() < workers && world.can_start() => world.start()?,
            2 if !running.is_empty() => world.finish(*rng.pick(&running))?,
            _ if is_full && running.is_empty() && !world.can_start() => break,
            _ => {}
        }
    }
    let keep: Vec<TwinStep> = (0..world.task_count()).map(TwinStep::Keep).collect();
    world.transact(&keep, true)?;
    while world.can_start() {
        world.start()?;
        let running = world.twin.running();
        world.finish(running[0])?;
    }
    world.check_end()?;
    Ok(world)
}

#[test]
fn thousands_of_random_schedules_are_those_of_the_naive_twin() {
    for seed in 0..10_000 {
        let world = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let executor = world.subject;
        for (task, ran) in executor.ran.iter().enumerate() {
            let ran = ran.load(Ordering::Relaxed);
            let is_cancelled = world.twin.outcome(task) == Some(TwinOutcome::Cancelled(task));
            let runs = world.twin.runs_body(task) && (runs_early(task) || !is_cancelled);
            assert_eq!(ran, u32::from(runs), "seed {seed}: body of task {task}");
        }
        // Nothing is held any more but by the handles here.
        let held = executor.ran.iter().all(|ran| Arc::strong_count(ran) == 1);
        assert!(held, "seed {seed}: a body outlives its task");
        let shared: Weak<ExecutorShared> = Arc::downgrade(&executor.shared);
        drop(executor);
        assert!(shared.upgrade().is_none(), "seed {seed}");
    }
}
