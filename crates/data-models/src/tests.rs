//! Models against a brute force: all orders of small histories, by implementations of the data types that share nothing with the
//! models.

mod array_tests;
mod lock_tests;
mod log_tests;
mod proofs;
mod set_tests;
mod table_tests;

use seatrial_checker::{Aims, Checker, Validity, Verdict};
use seatrial_history::chunk::Assembly;
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_linear::{HistoryModel, ModelChecker};
use seatrial_machine::Rng;

/// A data type as its documentation has it.
pub(super) trait TestObject {
    type State: Clone;

    fn initial(&self) -> Self::State;

    /// A random operation of a process: function and argument. `size` bounds elements, registers and the like.
    fn random(&self, rng: &mut Rng, size: u64, process: u64) -> (&'static str, Value);

    /// Runs an operation: its result, or `None` if it cannot take place in this state.
    fn run(&self, state: &mut Self::State, call: (&'static str, &Value, u64)) -> Option<Value>;

    /// A wrong result, or a right one.
    fn random_result(&self, rng: &mut Rng, size: u64, f: &str, argument: &Value) -> Value;

    /// The value of a success whose result is not known; `None` if it is always known.
    fn without_result(&self, f: &str, argument: &Value) -> Option<Value>;

    /// Can the operation take place in this state, with this result if it is known? Then it does.
    fn replay(
        &self,
        state: &mut Self::State,
        call: (&'static str, &Value, u64),
        known: Option<&Value>,
    ) -> bool {
        let result = self.run(state, call);
        result.is_some_and(|result| known.is_none_or(|known| *known == result))
    }

    /// An implementation that breaks the rules, if wrong results alone are not enough.
    fn faulty(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Must this process run another operation, for others to take place?
    fn must_continue(&self, _process: u64) -> bool {
        false
    }

    /// Clients above which a search takes too long.
    fn clients_max(&self) -> u64 {
        1_000
    }

    /// Does it matter which process runs an operation?
    fn has_owners(&self) -> bool {
        false
    }

    /// The recorded value of a success.
    fn recorded(&self, _f: &str, _argument: &Value, result: &Value) -> Value {
        result.clone()
    }
}

/// An operation of a test history. Times are positions.
#[derive(Clone, Debug)]
pub(super) struct TestCall {
    f: &'static str,
    pub(super) argument: Value,
    process: u64,
    call: usize,
    /// `None`: it never completed.
    end: Option<usize>,
    /// Was it a success?
    is_certain: bool,
    /// The result, if it is known.
    pub(super) result: Option<Value>,
}

impl TestCall {
    fn open(f: &'static str, argument: Value, process: u64, call: usize) -> TestCall {
        TestCall {
            f,
            argument,
            process,
            call,
            end: None,
            is_certain: false,
            result: None,
        }
    }
}

/// How histories are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryPlan {
    pub(super) operations: usize,
    pub(super) clients: u64,
    pub(super) size: u64,
    /// Number of crashes in 16 operations; their results are lost.
    pub(super) crashes: u64,
    pub(super) hidden: u64,
}

/// Runs random operations of concurrent clients, each of which takes effect at one instant between its invocation and its
/// completion.
pub(super) fn valid_calls<T: TestObject>(
    object: &T,
    rng: &mut Rng,
    plan: HistoryPlan,
) -> Vec<TestCall> {
    let mut state = object.initial();
    let mut calls: Vec<TestCall> = Vec::new();
    // Open calls: the number, and whether it took effect.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut next_process = plan.clients;
    let mut idle: Vec<u64> = (0..plan.clients).collect();
    let mut position = 0;
    let mut stuck = 0;
    while calls.len() < plan.operations
        || !open.is_empty()
        || idle.iter().any(|&process| object.must_continue(process))
    {
        let is_over = calls.len() >= plan.operations;
        let ready = if is_over {
            idle.iter()
                .position(|&process| object.must_continue(process))
        } else {
            (!idle.is_empty()).then(|| rng.index(idle.len()))
        };
        if let Some(ready) = ready.filter(|_| open.is_empty() || rng.chance(0.5)) {
            let process = idle.swap_remove(ready);
            let (f, argument) = object.random(rng, plan.size, process);
            open.push((calls.len(), false));
            calls.push(TestCall::open(f, argument, process, position));
            position += 1;
            continue;
        }
        let place = rng.index(open.len());
        let (number, took_effect) = open[place];
        let call = &mut calls[number];
        if !took_effect {
            let crashes = rng.below(16) < plan.crashes || stuck > 64 + 30 * plan.clients;
            let result = if crashes && rng.chance(0.5) {
                None
            } else {
                object.run(&mut state, (call.f, &call.argument, call.process))
            };
            if crashes {
                let is_silent = rng.chance(0.5);
                call.end = (!is_silent).then_some(position);
                position += usize::from(!is_silent);
                open.swap_remove(place);
                idle.push(next_process);
                next_process += 1;
                stuck = 0;
            } else if let Some(result) = result {
                call.result = Some(result);
                open[place].1 = true;
                stuck = 0;
            } else {
                stuck += 1;
            }
            continue;
        }
        call.end = Some(position);
        call.is_certain = true;
        if rng.below(16) < plan.hidden && object.without_result(call.f, &call.argument).is_some() {
            call.result = None;
        }
        position += 1;
        idle.push(call.process);
        open.swap_remove(place);
    }
    calls
}

/// Gives some operations random results.
pub(super) fn corrupt<T: TestObject>(
    object: &T,
    rng: &mut Rng,
    plan: HistoryPlan,
    calls: &mut [TestCall],
) {
    for _ in 0..=rng.below(2) {
        let place = rng.index(calls.len());
        let call = &mut calls[place];
        if call.result.is_some() {
            call.result = Some(object.random_result(rng, plan.size, call.f, &call.argument));
        }
    }
}

/// Is there an order, of all orders?
pub(super) fn brute_force<T: TestObject>(object: &T, calls: &[TestCall]) -> bool {
    assert!(calls.len() < 64, "a bit each");
    place_next(object, calls, 0, &object.initial())
}

fn place_next<T: TestObject>(
    object: &T,
    calls: &[TestCall],
    placed: u64,
    state: &T::State,
) -> bool {
    let is_placed = |number: usize| placed >> number & 1 == 1;
    let certain = calls.iter().enumerate();
    let left = certain.filter(|(number, call)| call.is_certain && !is_placed(*number));
    let Some(deadline) = left.filter_map(|(_, call)| call.end).min() else {
        return true;
    };
    for (number, call) in calls.iter().enumerate() {
        if is_placed(number) || call.call > deadline {
            continue;
        }
        let mut next = state.clone();
        let known = call.result.as_ref().filter(|_| call.is_certain);
        let fits = object.replay(&mut next, (call.f, &call.argument, call.process), known);
        if fits && place_next(object, calls, placed | 1 << number, &next) {
            return true;
        }
    }
    false
}

/// The operations as a recorded history.
pub(super) fn history<T: TestObject>(object: &T, calls: &[TestCall]) -> History {
    let mut events: Vec<(usize, Op)> = Vec::new();
    for call in calls {
        let process = Process::Client(call.process);
        let invocation = Op::invoke(process, call.f, call.argument.clone());
        if let Some(end) = call.end {
            let recorded = match &call.result {
                Some(result) => object.recorded(call.f, &call.argument, result),
                None => object
                    .without_result(call.f, &call.argument)
                    .unwrap_or_else(|| call.argument.clone()),
            };
            let completion = if call.is_certain {
                invocation.complete(OpType::Ok, recorded)
            } else {
                invocation.complete(OpType::Info, call.argument.clone())
            };
            events.push((end, completion));
        }
        events.push((call.call, invocation));
    }
    events.sort_by_key(|(position, _)| *position);
    History::from_unindexed(events.into_iter().map(|(_, op)| op).collect())
}

/// The verdict of a model.
pub(super) fn check<M>(model: M, history: &History) -> Verdict
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    ModelChecker::new(model).check(history)
}

/// The verdict of a check that runs beside a test: the history comes in small pieces. What it finds before the end, it finds in
/// the end.
fn beside_the_test<M>(model: M, history: &History, rng: &mut Rng) -> Verdict
where
    M: HistoryModel + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    let aims = Aims {
        early: true,
        ..Aims::default()
    };
    let mut checker = ModelChecker::new(model).start(&aims);
    let mut assembly = Assembly::new(65_536);
    let mut is_refuted = false;
    for op in history {
        assert!(assembly.push(op).unwrap().is_none());
        if rng.chance(0.3)
            && let Some(chunk) = assembly.rest()
        {
            let _ = checker.push(chunk);
            is_refuted |= !checker.definite(history).unwrap().is_empty();
        }
    }
    if let Some(chunk) = assembly.rest() {
        let _ = checker.push(chunk);
    }
    let verdict = checker.finish(history).unwrap().verdict;
    assert!(
        !is_refuted || verdict.valid == Validity::Invalid,
        "a violation is definite"
    );
    verdict
}

/// Compares the verdicts of a model with those of the brute force; returns how many histories were linearizable and how many not.
pub(super) fn compare<T, M>(object: &T, model: &M, plan: HistoryPlan, seed: u64) -> [u64; 2]
where
    T: TestObject,
    M: HistoryModel + Clone + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    let mut counts = [0; 2];
    let mut proven = [0; 4];
    let mut rng = Rng::from_seed(seed);
    for number in 0..seatrial_farm::histories(3_000) {
        let plan = HistoryPlan {
            operations: 1 + rng.index(plan.operations),
            clients: 1 + rng.below(plan.clients),
            size: 1 + rng.below(plan.size),
            ..plan
        };
        let is_wrong = number % 4 > 0;
        let faulty = object.faulty().filter(|_| is_wrong);
        let maker = faulty.as_ref().unwrap_or(object);
        let mut calls = valid_calls(maker, &mut rng, plan);
        if is_wrong {
            corrupt(object, &mut rng, plan, &mut calls);
        }
        let expected = brute_force(object, &calls);
        assert!(expected || is_wrong, "the generator makes valid histories");
        let verdict = check(model.clone(), &history(object, &calls));
        assert_eq!(
            (
                verdict.valid == Validity::Valid,
                verdict.valid == Validity::Invalid
            ),
            (expected, !expected),
            "history {number} of seed {seed}: {:?}\n{calls:#?}\n{:?}",
            verdict.reason,
            verdict.findings,
        );
        let beside = beside_the_test(model.clone(), &history(object, &calls), &mut rng);
        assert_eq!(
            beside.valid == Validity::Invalid,
            !expected,
            "beside a test, history {number} of seed {seed}: {:?}\n{calls:#?}",
            beside.findings,
        );
        counts[usize::from(!expected)] += 1;
        if number % 2 == 0 {
            proofs::replayed(model, object, &calls, &mut rng, &mut proven);
        }
    }
    println!(
        "{}: {proven:?} certificates, unproven, forged and refused",
        model.name()
    );
    assert!(
        proven[1] * 50 <= proven[0],
        "most verdicts are proved: {proven:?}"
    );
    println!("{}: {counts:?} linearizable and not", model.name());
    counts
}

/// Relations between histories: without operations that constrain, with all times doubled, and behind a legal prefix, a valid one
/// stays valid.
pub(super) fn metamorphic<T, M>(object: &T, model: &M, plan: HistoryPlan, seed: u64)
where
    T: TestObject,
    M: HistoryModel + Clone + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    let mut rng = Rng::from_seed(seed);
    let is_valid = |calls: &[TestCall]| {
        let verdict = check(model.clone(), &history(object, calls));
        assert!(
            !matches!(verdict.valid, Validity::Unknown(_)),
            "{:?}",
            verdict.reason
        );
        verdict.valid == Validity::Valid
    };
    for number in 0..seatrial_farm::histories(3_000).min(100_000) {
        let mut calls = valid_calls(object, &mut rng, plan);
        if number % 2 == 1 {
            corrupt(object, &mut rng, plan, &mut calls);
        }
        let before = is_valid(&calls);
        // Times farther apart; processes renamed.
        let mut shifted = calls.clone();
        for call in &mut shifted {
            call.call = 3 * call.call + 7;
            call.end = call.end.map(|end| 3 * end + 7);
        }
        assert_eq!(is_valid(&shifted), before, "{calls:#?}");
        // A result that is forgotten, and an outcome that is, allow more.
        let place = rng.index(calls.len());
        let mut looser = calls.clone();
        if object
            .without_result(looser[place].f, &looser[place].argument)
            .is_some()
        {
            looser[place].result = None;
            assert!(is_valid(&looser) || !before, "{calls:#?}");
        }
        looser[place].is_certain = false;
        assert!(is_valid(&looser) || !before, "{calls:#?}");
        if object.has_owners() {
            continue;
        }
        // An earlier invocation and a later completion allow more.
        let mut wider = calls.clone();
        for call in &mut wider {
            call.call *= 4;
            call.end = call.end.map(|end| 4 * end);
        }
        let last = wider.iter().filter_map(|call| call.end).max();
        let call = &mut wider[place];
        call.process += 1_000;
        call.call = call.call.saturating_sub(5 + 8 * rng.index(4));
        if call.call.is_multiple_of(4) {
            call.call += 1;
        }
        if let Some(end) = call.end {
            call.end = Some((end + 1 + 4 * rng.index(4)).min(last.unwrap_or(end) + 1));
        }
        assert!(is_valid(&wider) || !before, "{calls:#?}\n{wider:#?}");
    }
}

/// Histories of 4 to 1,000 clients are valid, and invalid with one planted violation.
pub(super) fn many_clients<T, M>(
    object: &T,
    model: &M,
    size: u64,
    plant: impl Fn(&mut Vec<TestCall>),
) where
    T: TestObject,
    M: HistoryModel + Clone + Send + Sync + 'static,
    M::Operation: Send,
    M::State: Send,
{
    for clients in [4, 30, 200, 1_000] {
        if clients > object.clients_max() {
            break;
        }
        let plan = HistoryPlan {
            operations: 2_000 + 2 * clients as usize,
            clients,
            size,
            crashes: 0,
            hidden: 0,
        };
        let mut calls = valid_calls(object, &mut Rng::from_seed(clients), plan);
        let verdict = check(model.clone(), &history(object, &calls));
        assert_eq!(
            verdict.valid,
            Validity::Valid,
            "{clients} clients: {:?}",
            verdict.reason
        );
        plant(&mut calls);
        let certain = calls.iter().filter(|call| call.is_certain).count();
        println!(
            "{clients} clients: {certain} of {} operations are certain",
            calls.len()
        );
        let verdict = check(model.clone(), &history(object, &calls));
        assert_eq!(
            verdict.valid,
            Validity::Invalid,
            "{clients} clients: {:?}",
            verdict.reason
        );
        assert_eq!(verdict.findings.len(), 1);
    }
}

/// An operation after all others, by a process of its own.
pub(super) fn last_call(
    calls: &[TestCall],
    f: &'static str,
    argument: Value,
    result: Value,
) -> TestCall {
    let ends = calls.iter().flat_map(|call| [Some(call.call), call.end]);
    let end = ends.flatten().max().map_or(0, |last| last + 1);
    TestCall {
        f,
        argument,
        process: 1_000_000,
        call: end,
        end: Some(end + 1),
        is_certain: true,
        result: Some(result),
    }
}

/// Adds an operation before all others, by a process of its own.
pub(super) fn plant_first(calls: &mut Vec<TestCall>, f: &'static str, argument: Value) {
    let mut first = last_call(&[], f, argument, Value::Nil);
    (first.call, first.end) = (0, Some(1));
    for call in calls.iter_mut() {
        call.call += 2;
        call.end = call.end.map(|end| end + 2);
    }
    calls.push(first);
}
