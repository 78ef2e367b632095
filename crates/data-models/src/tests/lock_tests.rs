//! Locks and semaphores.

use super::{
    HistoryPlan, TestObject, check, compare, history, many_clients, metamorphic, plant_first,
    valid_calls,
};
use crate::{LockModel, SemaphoreModel};
use seatrial_checker::{Checker, Discipline, Lock, Validity};
use seatrial_history::Value;
use seatrial_machine::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A lock of some rules, whose clients acquire and release in turn, most of the time.
struct TestLock {
    discipline: Discipline,
    /// Does it grant what it must not?
    is_faulty: bool,
    held: RefCell<BTreeMap<u64, u32>>,
}

/// Owner, depth, fence of the hold, largest fence.
type LockStory = (Option<u64>, u32, i64, i64);

impl TestLock {
    fn new(discipline: Discipline) -> TestLock {
        TestLock {
            discipline,
            is_faulty: false,
            held: RefCell::default(),
        }
    }

    fn is_fenced(&self) -> bool {
        matches!(
            self.discipline,
            Discipline::Fenced | Discipline::ReentrantFenced
        )
    }

    fn depth(&self) -> u32 {
        let is_reentrant = matches!(
            self.discipline,
            Discipline::Reentrant | Discipline::ReentrantFenced
        );
        1 + u32::from(is_reentrant)
    }
}

impl TestObject for TestLock {
    type State = LockStory;

    fn initial(&self) -> LockStory {
        self.held.borrow_mut().clear();
        (None, 0, -1, -1)
    }

    fn random(&self, rng: &mut Rng, _: u64, process: u64) -> (&'static str, Value) {
        let mut held = self.held.borrow_mut();
        let depth = held.entry(process).or_default();
        let acquires = *depth == 0 || *depth < self.depth() && rng.chance(0.5);
        // Some clients make mistakes.
        let is_mistake = self.is_faulty && rng.chance(0.1);
        if acquires ^ is_mistake {
            *depth += 1;
            ("acquire", Value::Nil)
        } else {
            *depth = depth.saturating_sub(1);
            ("release", Value::Nil)
        }
    }

    fn run(
        &self,
        state: &mut LockStory,
        (f, _, process): (&'static str, &Value, u64),
    ) -> Option<Value> {
        let (owner, depth, fence, largest) = state;
        let process = if self.discipline == Discipline::Mutex {
            0
        } else {
            process
        };
        if f == "acquire" {
            let is_free = owner.is_none_or(|owner| owner == process) && *depth < self.depth();
            if !is_free && !self.is_faulty {
                return None;
            }
            if *depth == 0 {
                *largest += 1;
                *fence = *largest;
            }
            (*owner, *depth) = (Some(process), *depth + 1);
            return Some(Value::Int(*fence));
        }
        if *owner != Some(process) && !self.is_faulty {
            return None;
        }
        *depth = depth.saturating_sub(1);
        if *depth == 0 {
            *owner = None;
        }
        Some(Value::Nil)
    }

    /// A fence must be larger than all before, or that of the hold.
    fn replay(
        &self,
        state: &mut LockStory,
        call: (&'static str, &Value, u64),
        known: Option<&Value>,
    ) -> bool {
        let before = *state;
        if self.run(state, call).is_none() {
            return false;
        }
        if call.0 != "acquire" || !self.is_fenced() {
            return true;
        }
        let (_, depth, fence, largest) = before;
        let known = known.and_then(Value::as_int).filter(|&known| known >= 0);
        // A hold whose fence is not known has -1.
        let fence = if depth == 0 { -1 } else { fence };
        match known {
            None => (state.2, state.3) = (fence, largest),
            Some(known) if fence >= 0 => {
                (state.2, state.3) = (fence, largest);
                return known == fence;
            }
            Some(known) => {
                (state.2, state.3) = (known, known);
                return known > largest;
            }
        }
        true
    }

    fn random_result(&self, rng: &mut Rng, _: u64, f: &str, _: &Value) -> Value {
        match f {
            "acquire" => Value::Int(rng.below(4).cast_signed()),
            _ => Value::Nil,
        }
    }

    fn without_result(&self, f: &str, _: &Value) -> Option<Value> {
        (f == "acquire").then_some(Value::Nil)
    }

    fn clients_max(&self) -> u64 {
        30
    }

    fn must_continue(&self, process: u64) -> bool {
        let held = self.held.borrow();
        !self.is_faulty && held.get(&process).is_some_and(|&depth| depth > 0)
    }

    fn has_owners(&self) -> bool {
        true
    }

    fn faulty(&self) -> Option<TestLock> {
        Some(TestLock {
            is_faulty: true,
            ..TestLock::new(self.discipline)
        })
    }
}

const PLAN: HistoryPlan = HistoryPlan {
    operations: 8,
    clients: 3,
    size: 2,
    crashes: 1,
    hidden: 2,
};

#[test]
fn locks_agree_with_the_brute_force() {
    for (seed, discipline) in (1..).zip(Discipline::ALL) {
        let counts = compare(
            &TestLock::new(discipline),
            &LockModel::new(discipline),
            PLAN,
            seed,
        );
        assert!(
            counts.iter().all(|&count| count > 100),
            "{discipline:?}: {counts:?}"
        );
    }
}

#[test]
fn the_one_pass_checker_of_locks_agrees() {
    for discipline in Discipline::ALL {
        let mut rng = Rng::from_seed(11);
        let mut counts = [0; 3];
        for number in 0..seatrial_farm::histories(3_000) {
            let right = TestLock::new(discipline);
            let object = if number % 4 > 0 {
                right.faulty().unwrap()
            } else {
                right
            };
            let history = history(&object, &valid_calls(&object, &mut rng, PLAN));
            let searched = check(LockModel::new(discipline), &history).valid;
            let passed = Lock::new(discipline).check(&history).valid;
            match passed {
                Validity::Unknown(_) => counts[2] += 1,
                passed => {
                    counts[usize::from(passed == Validity::Invalid)] += 1;
                    assert_eq!(
                        searched,
                        passed,
                        "{discipline:?} {number}: {:#?}",
                        history.ops()
                    );
                }
            }
        }
        assert!(
            counts[..2].iter().all(|&count| count > 100),
            "{discipline:?} {counts:?}"
        );
    }
}

#[test]
fn relations_between_histories_hold() {
    for discipline in Discipline::ALL {
        metamorphic(
            &TestLock::new(discipline),
            &LockModel::new(discipline),
            PLAN,
            5,
        );
    }
}

/// A semaphore whose clients acquire one or two permits and release them.
struct TestSemaphore {
    permits: i64,
    is_faulty: bool,
    held: RefCell<BTreeMap<u64, i64>>,
}

impl TestSemaphore {
    fn new(permits: i64) -> TestSemaphore {
        TestSemaphore {
            permits,
            is_faulty: false,
            held: RefCell::default(),
        }
    }
}

impl TestObject for TestSemaphore {
    type State = i64;

    fn initial(&self) -> i64 {
        self.held.borrow_mut().clear();
        0
    }

    fn random(&self, rng: &mut Rng, size: u64, process: u64) -> (&'static str, Value) {
        let mut held = self.held.borrow_mut();
        let held = held.entry(process).or_default();
        if *held == 0 {
            *held = 1 + rng.below(size.min(2)).cast_signed();
            return ("acquire", Value::Int(*held));
        }
        let count = std::mem::take(held);
        let is_mistake = self.is_faulty && rng.chance(0.1);
        ("release", Value::Int(count + i64::from(is_mistake)))
    }

    fn run(&self, taken: &mut i64, (f, count, _): (&'static str, &Value, u64)) -> Option<Value> {
        let count = count.as_int()?;
        let next = *taken + if f == "acquire" { count } else { -count };
        if !(0..=self.permits).contains(&next) && !self.is_faulty {
            return None;
        }
        *taken = next;
        Some(Value::Nil)
    }

    fn random_result(&self, _: &mut Rng, _: u64, _: &str, _: &Value) -> Value {
        Value::Nil
    }

    fn without_result(&self, _: &str, _: &Value) -> Option<Value> {
        Some(Value::Nil)
    }

    fn clients_max(&self) -> u64 {
        30
    }

    fn must_continue(&self, process: u64) -> bool {
        let held = self.held.borrow();
        !self.is_faulty && held.get(&process).is_some_and(|&count| count > 0)
    }

    fn faulty(&self) -> Option<TestSemaphore> {
        Some(TestSemaphore {
            is_faulty: true,
            ..TestSemaphore::new(self.permits)
        })
    }
}

#[test]
fn semaphores_agree_with_the_brute_force() {
    for permits in 1..4 {
        let model = SemaphoreModel {
            permits: Some(permits as u32),
        };
        assert_eq!(
            SemaphoreModel::by_name(&format!("permits:{permits}"))
                .unwrap()
                .permits,
            model.permits
        );
        let plan = HistoryPlan { clients: 5, ..PLAN };
        let counts = compare(&TestSemaphore::new(permits), &model, plan, permits as u64);
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
        metamorphic(&TestSemaphore::new(permits), &model, plan, permits as u64);
    }
}

#[test]
fn the_permits_of_a_semaphore_must_be_known() {
    let object = TestSemaphore::new(2);
    let calls = valid_calls(&object, &mut Rng::from_seed(1), PLAN);
    let verdict = check(SemaphoreModel::default(), &history(&object, &calls));
    let reason = "the number of permits is not known: name it with --model permits:N";
    assert_eq!(verdict.reason.as_deref(), Some(reason));
    assert!(SemaphoreModel::by_name("permits:").is_none());
}

/// A search passes the violation in no order; at the end of many concurrent operations it would try too many.
#[test]
fn many_clients_that_wait() {
    let semaphore = SemaphoreModel { permits: Some(3) };
    many_clients(&TestSemaphore::new(3), &semaphore, 2, |calls| {
        plant_first(calls, "acquire", Value::Int(4));
    });
    for discipline in [Discipline::OwnerAware, Discipline::Fenced] {
        let lock = LockModel::new(discipline);
        many_clients(&TestLock::new(discipline), &lock, 2, |calls| {
            plant_first(calls, "release", Value::Nil);
        });
    }
}
