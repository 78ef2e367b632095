//! Tests of the public interface, on real threads.

mod explore;
mod schedules;
mod stress;
mod twin;

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A running task that blocks until a message is sent or the sender is dropped.
fn blocker(executor: &Executor) -> (mpsc::Sender<()>, Task<()>) {
    let (release, released) = mpsc::channel();
    let (start, started) = mpsc::channel();
    let task = executor.submit("blocker", (), move |()| {
        start.send(()).unwrap();
        let _ = released.recv();
    });
    started.recv().unwrap();
    (release, task)
}

#[test]
fn values_arrive_in_the_shape_of_the_dependencies() {
    let executor = Executor::new(2);
    let one = executor.submit("one", (), |()| 1_u64);
    let text = executor.submit("text", &one, |one| format!("{one}"));
    let many: Vec<Task<u64>> = (0..100)
        .map(|number| executor.submit("number", &one, move |one| number + *one))
        .collect();
    let all = executor.submit("all", (&one, &text, &many), |(one, text, many)| {
        (
            *one,
            text.len(),
            many.iter().map(|each| **each).sum::<u64>(),
        )
    });
    assert_eq!(*all.join().unwrap(), (1, 1, 5050));
    let same = (&one, one.clone(), &one, (), &one, (&one, &many[..2]));
    let six = executor.submit("six", same, |(a, b, c, (), d, (e, f))| {
        *a + *b + *c + *d + *e + *f[0]
    });
    assert_eq!(*six.join().unwrap(), 6);
    assert!(six.is_done());
    assert_eq!(executor.task_count(), 0);
}

#[test]
fn errors_pass_from_task_to_task_up_to_one_that_catches() {
    let executor = Executor::new(2);
    let bad = executor.attempt("bad", (), |()| "x".parse::<u64>());
    let fine = executor.submit("fine", (), |()| 1_u64);
    let skipped: Task<()> = executor.submit("skipped", (&fine, &bad), |_| panic!("never runs"));
    let skipped: Task<()> = executor.submit("skipped too", &skipped, |_| panic!("never runs"));
    let again = executor.catch("caught, thrown again", (&fine, &skipped), |both| {
        assert_eq!(*both.0.unwrap(), 1);
        both.1.map(|_| 7)
    });
    let caught = executor.catch("caught", &again, |again| match again {
        Err(TaskError::Failed(error)) if error.is::<std::num::ParseIntError>() => Ok(8),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(*caught.join().unwrap(), 8);
    assert_eq!(
        bad.join().unwrap_err().to_string(),
        "invalid digit found in string"
    );
    assert_eq!(
        again.join().unwrap_err().to_string(),
        bad.join().unwrap_err().to_string()
    );
}

#[test]
fn a_panic_fails_that_task_and_its_dependants_alone() {
    let executor = Executor::new(1);
    let panics: Task<()> = executor.submit("panics", (), |()| panic!("reason {}", 1));
    let after = executor.submit("after", &panics, |_| ());
    let beside = executor.submit("beside", (), |()| 5);
    let error = after.join().unwrap_err();
    assert!(matches!(&error, TaskError::Panicked { task, .. } if *task == panics.id()));
    let text = format!("task {} (panics) panicked: reason 1", panics.id());
    assert_eq!(error.to_string(), text);
    assert_eq!(*beside.join().unwrap(), 5);
}

#[test]
fn a_task_cancelled_before_it_runs_never_runs() {
    let executor = Executor::new(1);
    let (release, running) = blocker(&executor);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = || {
        let ran = Arc::clone(&ran);
        move || ran.fetch_add(1, Ordering::Relaxed)
    };
    let (first, second, third) = (count(), count(), count());
    let ready = executor.submit("ready", (), move |()| first());
    let waiting = executor.submit("waiting", (&ready, &running), move |_| second());
    let catching = executor.catch("catching", &waiting, move |_| Ok::<_, TaskError>(third()));
    let other = executor.submit("other", &running, |_| 1);
    assert_eq!(Arc::strong_count(&ran), 4);
    assert_eq!(executor.cancel(&ready), TaskState::Ready);
    assert_eq!(executor.cancel(&waiting), TaskState::Done);
    // The bodies are dropped, though the handles live.
    assert_eq!(Arc::strong_count(&ran), 1);
    for cancelled in [ready.join(), waiting.join(), catching.join()] {
        assert!(matches!(cancelled, Err(TaskError::Cancelled { .. })));
    }
    let late = executor.submit("late", &waiting, |_| 2);
    drop(release);
    assert_eq!(*other.join().unwrap(), 1);
    assert!(matches!(late.join(), Err(TaskError::Cancelled { task, .. }) if task == waiting.id()));
    assert_eq!(executor.cancel(&other), TaskState::Done);
    assert_eq!(*other.join().unwrap(), 1);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[test]
fn a_task_that_runs_is_not_interrupted_but_its_result_is_dropped() {
    let executor = Executor::new(1);
    let (release, released) = mpsc::channel::<()>();
    let (start, started) = mpsc::channel();
    let result = Arc::new(());
    let running = executor.submit("running", (), {
        let result = Arc::clone(&result);
        move |()| {
            start.send(()).unwrap();
            let _ = released.recv();
            result
        }
    });
    let after = executor.submit("after", &running, |_| ());
    started.recv().unwrap();
    assert_eq!(executor.cancel(&running), TaskState::Running);
    // Known at once, while the body still runs.
    assert!(matches!(running.join(), Err(TaskError::Cancelled { .. })));
    assert!(matches!(after.join(), Err(TaskError::Cancelled { .. })));
    assert_eq!(executor.task_count(), 1);
    assert_eq!(executor.observe().tasks().len(), 0);
    drop(release);
    executor.submit("next", (), |()| ()).join().unwrap();
    assert_eq!(Arc::strong_count(&result), 1);
    assert_eq!(executor.task_count(), 0);
}

#[test]
fn a_transaction_is_seen_whole_or_not_at_all() {
    let executor = Executor::new(2);
    let (promise, kept) = executor.promise::<u32>("kept");
    let smuggled = std::sync::Mutex::new(None);
    let before = executor.observe().tasks().len();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        executor.transact(|transaction| {
            let task = transaction.submit("new", (), |()| 1);
            assert_eq!(transaction.state(&task), TaskState::Ready);
            let waits = transaction.submit("waits", (&task, &kept), |_| 1);
            assert_eq!(transaction.dependencies(&waits), [task.id(), kept.id()]);
            assert!(transaction.keep(&promise, 9));
            assert!(!transaction.keep(&promise, 10));
            assert_eq!(transaction.cancel(&task), TaskState::Ready);
            assert_eq!(transaction.state(&waits), TaskState::Done);
            assert_eq!(transaction.observe().tasks().len(), 0);
            *smuggled.lock().unwrap() = Some(task);
            transaction.after_commit(|| unreachable!("rolled back"));
            panic!("no");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(executor.observe().tasks().len(), before);
    let smuggled = smuggled.into_inner().unwrap().unwrap();
    assert!(matches!(smuggled.join(), Err(TaskError::Cancelled { .. })));
    assert!(!kept.is_done());

    let sum = Arc::new(AtomicUsize::new(0));
    let task = executor.transact(|transaction| {
        assert!(transaction.keep(&promise, 11));
        let task = transaction.submit("after", &kept, |kept| *kept + 1);
        let (sum, watched, executor) = (Arc::clone(&sum), kept.clone(), executor.clone());
        transaction.after_commit(move || {
            assert!(watched.is_done());
            sum.fetch_add(executor.threads(), Ordering::Relaxed);
        });
        task
    });
    assert_eq!(sum.load(Ordering::Relaxed), 2);
    assert_eq!(*kept.join().unwrap(), 11);
    assert_eq!(*task.join().unwrap(), 12);
    assert!(!promise.keep(12));
}

#[test]
fn an_open_transaction_refuses_what_would_wait_for_it() {
    let executor = Executor::new(1);
    let (promise, task) = executor.promise::<u32>("p");
    let refused = |body: &dyn Fn()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            executor.transact(|_| body());
        }));
        let panic = caught.unwrap_err();
        let text = seatrial_machine::panic_text(&*panic);
        assert!(text.contains("is open in this thread"), "{text}");
    };
    refused(&|| drop(executor.submit("x", (), |()| ())));
    refused(&|| drop(executor.observe()));
    refused(&|| drop(task.join()));
    // A promise that is to be kept the wrong way is dropped, and does not keep others waiting.
    let (wrong, late) = executor.promise::<u32>("wrong");
    let wrong = std::cell::Cell::new(Some(wrong));
    refused(&|| assert!(wrong.take().unwrap().keep(1)));
    assert!(matches!(late.join(), Err(TaskError::Dropped { .. })));
    // Dropping a promise inside is fine: it takes hold afterwards.
    executor.transact(|_| drop(promise));
    assert!(matches!(task.join(), Err(TaskError::Dropped { .. })));
    let other = Executor::new(1);
    let (held, never) = other.promise::<u32>("held by a body that is refused");
    let foreign = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        other.submit("foreign", &task, move |_| drop(held))
    }));
    assert!(foreign.is_err());
    assert!(matches!(never.join(), Err(TaskError::Dropped { .. })));
    other.submit("fine", (), |()| ()).join().unwrap();
}

#[test]
fn promises_are_kept_failed_dropped_or_cancelled() {
    let executor = Executor::new(1);
    let (promise, task) = executor.promise("kept");
    assert!(task.join_deadline(Duration::from_millis(1)).is_none());
    let double = executor.submit("double", &task, |value| *value * 2);
    assert_eq!(executor.observe().count(TaskState::Promised), 1);
    assert!(promise.keep(21));
    assert_eq!(*double.join().unwrap(), 42);
    let (promise, task) = executor.promise::<()>("failed");
    assert!(promise.fail("no luck"));
    assert_eq!(task.join().unwrap_err().to_string(), "no luck");
    let (promise, task) = executor.promise::<()>("dropped");
    let after = executor.submit("after", &task, |_| ());
    drop(promise);
    let text = format!(
        "promise {} (dropped) was dropped without a result",
        task.id()
    );
    assert_eq!(after.join().unwrap_err().to_string(), text);
    let (promise, task) = executor.promise::<()>("cancelled");
    assert_eq!(executor.cancel(&task), TaskState::Promised);
    assert!(!promise.keep(()));
    assert!(matches!(task.join(), Err(TaskError::Cancelled { .. })));
    let (promise, task) = executor.promise::<()>("late");
    drop(executor);
    assert!(matches!(task.join(), Err(TaskError::Cancelled { .. })));
    assert!(!promise.keep(()));
}

#[test]
fn names_data_and_dependencies_can_be_observed() {
    let executor = Executor::new(1);
    let (release, running) = blocker(&executor);
    let ready = executor.submit(Label::new("ready", 17_u8), (), |()| ());
    let waiting = executor.submit(format!("waiting {}", 1), (&ready, &running), |_| ());
    let seen = executor.observe();
    let names: Vec<&str> = seen
        .tasks()
        .iter()
        .map(|task| task.label.name().as_str())
        .collect();
    assert_eq!(names, ["blocker", "ready", "waiting 1"]);
    let states = [TaskState::Running, TaskState::Ready, TaskState::Waiting];
    assert!(seen.tasks().iter().map(|task| task.state).eq(states));
    assert_eq!(
        seen.task(waiting.id()).unwrap().dependencies,
        [ready.id(), running.id()]
    );
    assert_eq!(seen.task(ready.id()).unwrap().label.data::<u8>(), Some(&17));
    assert_eq!(ready.data::<u8>(), Some(&17));
    assert_eq!(ready.data::<u16>(), None);
    assert_eq!(*waiting.name(), *"waiting 1");
    drop(release);
    waiting.join().unwrap();
    assert!(executor.observe().tasks().is_empty());
    assert_eq!(seen.tasks().len(), 3, "a snapshot does not change");
}

#[test]
fn bodies_may_submit_cancel_and_wait() {
    let executor = Executor::new(1);
    let inner = executor.clone();
    let outer = executor.submit("outer", (), move |()| {
        let unwanted = inner.submit("unwanted", (), |()| ());
        let deep = inner.clone();
        let wanted = inner.submit("wanted", (), move |()| {
            *deep.submit("deep", (), |()| 5).join().unwrap()
        });
        inner.cancel(&unwanted);
        let late = wanted.join_deadline(LONG).unwrap();
        (*late.unwrap(), unwanted.join().is_err())
    });
    assert_eq!(*outer.join().unwrap(), (5, true));
    // Many at once: all but one of these threads are spare afterwards, and used again.
    for _ in 0..3 {
        let fans: Vec<Task<usize>> = (0..100)
            .map(|number| {
                let inner = executor.clone();
                executor.submit("fan", (), move |()| {
                    *inner.submit("leaf", (), move |()| number).join().unwrap()
                })
            })
            .collect();
        let sum: usize = fans.iter().map(|fan| *fan.join().unwrap()).sum();
        assert_eq!(sum, 4950);
    }
}

#[test]
fn a_body_that_would_wait_for_itself_gets_a_deadlock_error() {
    let executor = Executor::new(2);
    let (send, receive) = mpsc::channel::<Task<()>>();
    let first = executor.attempt("first", (), move |()| {
        let after = receive.recv().unwrap();
        after.join().map(|_| ())
    });
    let second = executor.submit("second", &first, |_| ());
    let third = executor.submit("third", &second, |_| ());
    send.send(third.clone()).unwrap();
    let error = third.join().unwrap_err();
    assert!(matches!(error, TaskError::Deadlock { task, .. } if task == third.id()));

    // Two bodies that wait for one another.
    let (to_left, left_gets) = mpsc::channel::<Task<()>>();
    let (to_right, right_gets) = mpsc::channel::<Task<()>>();
    let waits = |gets: mpsc::Receiver<Task<()>>| move |()| gets.recv().unwrap().join().map(|_| ());
    let left = executor.attempt("left", (), waits(left_gets));
    let right = executor.attempt("right", (), waits(right_gets));
    to_left.send(right.clone()).unwrap();
    to_right.send(left.clone()).unwrap();
    for side in [left, right] {
        let error = side.join_deadline(LONG).unwrap().unwrap_err();
        assert!(matches!(error, TaskError::Deadlock { .. }), "{error}");
    }
}

#[test]
fn too_many_waiting_bodies_get_an_error() {
    let executor = Executor::new(1);
    let (promise, awaited) = executor.promise::<()>("awaited");
    let waits: Vec<Task<()>> = (0..=WAITING_MAX)
        .map(|_| {
            let awaited = awaited.clone();
            executor.attempt("waits", (), move |()| awaited.join().map(|_| ()))
        })
        .collect();
    let last = waits.last().unwrap().join().unwrap_err();
    assert!(matches!(last, TaskError::TooManyWaiting { waiting } if waiting == WAITING_MAX));
    assert!(promise.keep(()));
    assert!(waits[..WAITING_MAX].iter().all(|task| task.join().is_ok()));
}

#[test]
fn the_last_handle_ends_the_executor() {
    let executor = Executor::new(2);
    let (release, running) = blocker(&executor);
    let waiting = executor.submit("waiting", &running, |_| ());
    let joiner = std::thread::spawn({
        let waiting = waiting.clone();
        move || waiting.join().map(|_| ())
    });
    let releaser = std::thread::spawn({
        let waiting = waiting.clone();
        move || {
            // Cancelled though the drop still waits for the body.
            assert!(matches!(waiting.join(), Err(TaskError::Cancelled { .. })));
            release.send(()).unwrap();
        }
    });
    let other = executor.clone();
    drop(executor);
    assert!(!waiting.is_done());
    drop(other);
    running.join().unwrap();
    assert!(joiner.join().unwrap().is_err());
    releaser.join().unwrap();

    // Dropped by a body: the drop does not wait for that body.
    let executor = Executor::new(2);
    let (send, receive) = mpsc::channel::<Executor>();
    let drops = executor.submit("drops", (), move |()| drop(receive.recv().unwrap()));
    send.send(executor).unwrap();
    drops.join_deadline(LONG).unwrap().unwrap();
}

#[test]
fn a_long_chain_of_cancelled_tasks_does_not_exhaust_the_stack() {
    let executor = Executor::new(1);
    let (promise, first) = executor.promise::<u64>("first");
    let mut last = first;
    for _ in 0..300_000 {
        last = executor.submit("next", &last, |value| *value + 1);
    }
    drop(executor);
    assert!(matches!(last.join(), Err(TaskError::Cancelled { .. })));
    drop(promise);

    let executor = Executor::new(1);
    let (promise, first) = executor.promise::<u64>("first");
    let mut last = first;
    for _ in 0..300_000 {
        last = executor.submit("next", &last, |value| *value + 1);
    }
    drop(promise);
    assert!(matches!(last.join(), Err(TaskError::Dropped { .. })));
}
