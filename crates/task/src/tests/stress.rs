//! Real threads that submit, cancel, wait and panic all at once.

use super::super::{Executor, Promise, Task, TaskError, TaskId, TaskState};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Plain,
    Fails,
    Panics,
    Catches,
    Promise,
}

/// A task, with what determines its expected outcome.
#[derive(Clone)]
struct SubmittedTask {
    task: Task<u64>,
    kind: BodyKind,
    dependencies: Vec<Task<u64>>,
    ran: Arc<AtomicU32>,
    /// It was cancelled before it ran.
    never_runs: bool,
}

/// Shared by the threads: submitted tasks and open promises.
#[derive(Default)]
struct Pool {
    known: Vec<SubmittedTask>,
    promises: Vec<Promise<u64>>,
}

/// A task of some kind that depends on these.
fn submit(executor: &Executor, kind: BodyKind, dependencies: Vec<Task<u64>>, pool: &Mutex<Pool>) {
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let sum = move |values: Vec<Arc<u64>>| {
        count.fetch_add(1, Ordering::Relaxed);
        1 + values.iter().map(|value| **value % 1_000).sum::<u64>()
    };
    let held = dependencies.clone();
    let task = match kind {
        BodyKind::Plain => executor.submit("plain", held, sum),
        BodyKind::Panics => executor.submit("panics", held, move |values| {
            // Quietly: the hook is not called.
            let _ = sum(values);
            std::panic::resume_unwind(Box::new("on purpose"))
        }),
        BodyKind::Fails => {
            executor.attempt("fails", held, move |values| Err(format!("{}", sum(values))))
        }
        BodyKind::Catches => executor.catch("catches", held, move |results| {
            Ok::<u64, TaskError>(sum(results.into_iter().flatten().collect()))
        }),
        BodyKind::Promise => {
            let (promise, task) = executor.promise("promise");
            let mut pool = pool.lock().unwrap();
            pool.promises.push(promise);
            pool.known.push(SubmittedTask {
                task,
                kind,
                dependencies: Vec::new(),
                ran,
                never_runs: false,
            });
            return;
        }
    };
    let never_runs = false;
    pool.lock().unwrap().known.push(SubmittedTask {
        task,
        kind,
        dependencies,
        ran,
        never_runs,
    });
}

/// One thread's share of the noise.
fn make_noise(executor: &Executor, pool: &Mutex<Pool>, mut rng: Rng, steps: usize) {
    const KINDS: [BodyKind; 7] = [
        BodyKind::Plain,
        BodyKind::Plain,
        BodyKind::Plain,
        BodyKind::Fails,
        BodyKind::Panics,
        BodyKind::Catches,
        BodyKind::Promise,
    ];
    for _ in 0..steps {
        let count = pool.lock().unwrap().known.len();
        let recent = |rng: &mut Rng| count.saturating_sub(1 + rng.index(30));
        match rng.below(20) {
            0 if count > 0 => {
                let place = recent(&mut rng);
                let task = pool.lock().unwrap().known[place].task.clone();
                let state = executor.cancel(&task);
                if matches!(state, TaskState::Ready | TaskState::Waiting) {
                    pool.lock().unwrap().known[place].never_runs = true;
                }
            }
            1 | 2 => {
                let promise = pool.lock().unwrap().promises.pop();
                match promise {
                    Some(promise) if rng.chance(0.7) => {
                        promise.keep(rng.below(100));
                    }
                    promise => drop(promise),
                }
            }
            3 if count > 0 => {
                let task = pool.lock().unwrap().known[recent(&mut rng)].task.clone();
                task.join_deadline(Duration::from_micros(rng.below(50)));
            }
            4 => {
                let seen = executor.observe();
                let ids = seen.tasks().windows(2);
                assert!(ids.into_iter().all(|pair| pair[0].id < pair[1].id));
            }
            _ => {
                let dependencies = (0..rng.index(4).min(count)).map(|_| {
                    let pool = pool.lock().unwrap();
                    pool.known[recent(&mut rng)].task.clone()
                });
                let dependencies = dependencies.collect();
                submit(executor, *rng.pick(&KINDS), dependencies, pool);
            }
        }
    }
}

/// The task that an error names, if it names one.
fn origin(error: &TaskError) -> Option<TaskId> {
    match error {
        TaskError::Panicked { task, .. }
        | TaskError::Cancelled { task, .. }
        | TaskError::Dropped { task, .. } => Some(*task),
        _ => None,
    }
}

/// Is the outcome what follows from those of the dependencies?
fn check_outcome(known: &SubmittedTask) {
    let SubmittedTask {
        task,
        kind,
        dependencies,
        ran,
        never_runs,
    } = known;
    let ran = ran.load(Ordering::Relaxed);
    let outcome = task.outcome().expect("all are done");
    assert!(ran <= 1 && !(*never_runs && ran > 0), "{task:?} ran {ran}");
    if matches!(&outcome, Err(TaskError::Cancelled { task: own, .. }) if *own == task.id()) {
        return;
    }
    let before: Vec<_> = dependencies
        .iter()
        .map(|task| task.outcome().unwrap())
        .collect();
    let sum = before
        .iter()
        .flatten()
        .map(|value| **value % 1_000)
        .sum::<u64>()
        + 1;
    let error = before.iter().find_map(|outcome| outcome.as_ref().err());
    if let (Some(error), true) = (error, *kind != BodyKind::Catches) {
        assert_eq!(ran, 0, "{task:?} ran in spite of {error}");
        let own = outcome.unwrap_err();
        assert_eq!(
            (own.to_string(), origin(&own)),
            (error.to_string(), origin(error))
        );
        return;
    }
    assert_eq!(ran, u32::from(*kind != BodyKind::Promise), "{task:?}");
    match (kind, outcome) {
        (BodyKind::Plain | BodyKind::Catches, outcome) => assert_eq!(*outcome.unwrap(), sum),
        (BodyKind::Fails, outcome) => assert_eq!(outcome.unwrap_err().to_string(), sum.to_string()),
        (BodyKind::Panics, outcome) => assert_eq!(origin(&outcome.unwrap_err()), Some(task.id())),
        (BodyKind::Promise, Ok(value)) => assert!(*value < 100),
        (BodyKind::Promise, Err(error)) => assert!(matches!(error, TaskError::Dropped { .. })),
    }
}

/// Some threads make noise; then the executor is dropped, at once or when all is done.
fn stress(seed: u64, workers: usize, ends_early: bool) {
    let executor = Executor::new(workers);
    let pool = Mutex::new(Pool::default());
    let rng = Rng::from_seed(seed);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (executor, pool) = (&executor, &pool);
            let rng = rng.fork(&format!("{thread}"));
            scope.spawn(move || make_noise(executor, pool, rng, 2_000));
        }
    });
    if !ends_early {
        pool.lock().unwrap().promises.clear();
        let known = pool.lock().unwrap().known.clone();
        for known in &known {
            let joined = known.task.join_deadline(Duration::from_secs(30));
            assert!(joined.is_some(), "seed {seed}: {:?} is lost", known.task);
        }
    }
    let shared = Arc::clone(executor.shared());
    drop(executor);
    let Pool { known, promises } = pool.into_inner().unwrap();
    known.iter().for_each(check_outcome);
    let guarded = shared.lock();
    guarded.state.check().unwrap();
    assert_eq!(guarded.state.live(), 0);
    drop(guarded);
    drop(promises);
    let bodies = known
        .iter()
        .filter(|known| Arc::strong_count(&known.ran) > 1);
    assert_eq!(bodies.count(), 0, "seed {seed}: a body is left");
    // The workers have ended, so this is the only reference.
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn threads_that_do_everything_at_once_see_outcomes_that_follow() {
    for seed in 0..4 {
        for workers in [1, 2, 5] {
            stress(seed, workers, false);
            stress(100 + seed, workers, true);
        }
    }
}

/// Adds up the leaves of a tree, each branch by a body that waits for its own tasks.
fn tree(executor: &Executor, depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let branches = [(); 2].map(|()| {
        let inner = executor.clone();
        executor.submit("branch", (), move |()| tree(&inner, depth - 1))
    });
    branches.iter().map(|branch| *branch.join().unwrap()).sum()
}

#[test]
fn nested_waits_of_bodies_all_complete() {
    for workers in [1, 3] {
        let executor = Executor::new(workers);
        for _ in 0..5 {
            assert_eq!(tree(&executor, 7), 128);
        }
        let sums = (0..4).map(|_| {
            let inner = executor.clone();
            executor.submit("tree", (), move |()| tree(&inner, 5))
        });
        let sums: Vec<Task<u64>> = sums.collect();
        assert!(sums.iter().all(|sum| *sum.join().unwrap() == 32));
    }
}

#[test]
fn no_worker_is_left_asleep() {
    // One task at a time, and as many as there are workers: each must be woken for its own.
    let executor = Executor::new(4);
    for _ in 0..2_000 {
        executor.submit("one", (), |()| ()).join().unwrap();
    }
    for _ in 0..200 {
        let barrier = Arc::new(std::sync::Barrier::new(4));
        let tasks: Vec<Task<()>> = executor.transact(|transaction| {
            let tasks = (0..4).map(|_| {
                let barrier = Arc::clone(&barrier);
                transaction.submit("meets the others", (), move |()| {
                    barrier.wait();
                })
            });
            tasks.collect()
        });
        for task in tasks {
            let met = task.join_deadline(Duration::from_secs(30));
            met.expect("all four run at once").unwrap();
        }
    }
}

#[test]
fn memory_is_that_of_the_tasks_that_are_not_done() {
    let executor = Executor::new(2);
    let mut window = std::collections::VecDeque::new();
    for _ in 0..200_000 {
        let before = window.back().cloned();
        let before: Vec<Task<()>> = before.into_iter().collect();
        window.push_back(executor.submit("next", before, |_| ()));
        if window.len() == 500 {
            window.pop_front().unwrap().join().unwrap();
        }
    }
    window.back().unwrap().join().unwrap();
    let (tasks, edges) = executor.shared().lock().state.places();
    assert!(
        tasks <= 502 && edges <= 502,
        "{tasks} places, {edges} edges"
    );
}

#[test]
fn transactions_are_seen_whole_by_other_threads() {
    let executor = Executor::new(2);
    std::thread::scope(|scope| {
        let executor = &executor;
        for thread in 0..2_u32 {
            scope.spawn(move || {
                for round in 0..500 {
                    // Three promises at once; and all are gone at once.
                    let promises = executor.transact(|transaction| {
                        [(); 3].map(|()| transaction.promise::<()>(format!("{thread}")).0)
                    });
                    executor.transact(|transaction| {
                        for promise in &promises {
                            if round % 2 == 0 {
                                transaction.keep(promise, ());
                            } else {
                                transaction.cancel(&promise.task());
                            }
                        }
                    });
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..2_000 {
                let mut by_name = BTreeMap::<String, usize>::new();
                for task in executor.observe().tasks() {
                    *by_name.entry(task.label.name().to_string()).or_default() += 1;
                }
                assert!(by_name.values().all(|count| *count == 3), "{by_name:?}");
            }
        });
    });
    assert!(executor.observe().tasks().is_empty());
}
