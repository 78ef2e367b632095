//! The phases of a whole test: clients beside faults, healing and recovery, final operations.

use seatrial_history::Op;
use seatrial_machine::Time;
use std::time::Duration;

use crate::generator::time_of;
use crate::partition::OnThreads;
use crate::{Context, FaultPackage, Generator, Healing, Next, Tree};

/// Lengths of the phases of a test.
#[derive(Clone, Copy, Debug)]
pub struct TestPhasesOptions {
    /// Length of the fault phase, from the beginning of the test; healing follows.
    pub duration: Duration,
    /// Time for which the clients continue after the fault phase.
    pub recovery: Duration,
}

/// Runs clients and faults side by side, then heals all faults, then runs final operations. See [`test_phases`].
///
/// ```text
///            ├────────── duration ──────────┼──── recovery ────┤
///   clients  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  (open operations complete)
///   nemesis  ··fault·····fault···fault······heal·heal           │
///   final                                                       │ final operations, at most their limit
/// ```
///
/// - The clients end with their generator, or after duration and recovery.
/// - The faults end after the duration, or with the clients. Healing always follows, so a test whose clients have ended
///   early continues until it is done.
/// - The final operations ([`TestPhases::with_final`]) begin when healing is done and no operation is open.
///
/// The recovery is counted from the beginning of healing, however long healing takes.
#[derive(Debug)]
pub struct TestPhases<G> {
    /// `None` when exhausted or out of time.
    clients: Option<OnThreads<G>>,
    faults: Option<OnThreads<crate::FaultSchedule>>,
    /// `None` when done.
    healing: Option<OnThreads<Healing>>,
    options: TestPhasesOptions,
    /// When the test began: the time of the first context.
    begin: Option<Time>,
    /// Is the fault phase over?
    is_healing: bool,
    /// The final operations; `None` when done.
    last: Option<OnThreads<Box<dyn Generator>>>,
    /// Maximum length of the final phase.
    last_limit: Duration,
    /// When the final phase began.
    last_begin: Option<Time>,
    /// The part whose operation was returned last.
    chosen: TestPart,
}

/// The parts of a test that propose operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestPart {
    Clients,
    Nemesis,
    Final,
}

/// A whole test: `clients` on the client threads, `faults` and their healing on the nemesis.
pub fn test_phases<G: Generator>(
    clients: G,
    faults: Option<FaultPackage>,
    options: TestPhasesOptions,
) -> TestPhases<G> {
    let (faults, healing) = faults
        .map(|package| (package.faults, package.healing))
        .unzip();
    TestPhases {
        clients: Some(clients.clients()),
        faults: faults.map(Generator::nemesis),
        healing: healing.map(Generator::nemesis),
        options,
        begin: None,
        is_healing: false,
        last: None,
        last_limit: Duration::ZERO,
        last_begin: None,
        chosen: TestPart::Clients,
    }
}

impl<G: Generator> TestPhases<G> {
    /// Adds a final phase: when healing is done and no operation is open, clients run `last` for at most `limit`.
    ///
    /// `last` receives all client events from the beginning of the test, so that it can derive from them what to read.
    #[must_use]
    pub fn with_final(self, last: Option<Box<dyn Generator>>, limit: Duration) -> TestPhases<G> {
        TestPhases {
            last: last.map(Generator::clients),
            last_limit: limit,
            ..self
        }
    }

    /// The next final operation; pending while an operation of an earlier phase is open.
    fn ask_final(&mut self, context: &Context) -> Next {
        if self.last_begin.is_none() && !context.all_free() {
            return Next::Pending;
        }
        let end = *self.last_begin.get_or_insert(context.time()) + self.last_limit;
        let next = self.last.next(context);
        let over = match &next {
            Next::Op(op) => time_of(op) >= end,
            other => matches!(other, Next::Exhausted) || context.time() >= end,
        };
        if over {
            self.last = None;
            return Next::Exhausted;
        }
        next
    }

    /// The next operation of the clients; exhausted at `end`.
    fn ask_clients(&mut self, context: &Context, end: Time) -> Next {
        if context.time() >= end {
            self.clients = None;
        }
        let next = self.clients.next(context);
        let over = match &next {
            Next::Op(op) => time_of(op) >= end,
            other => matches!(other, Next::Exhausted),
        };
        if over {
            self.clients = None;
            return Next::Exhausted;
        }
        next
    }

    /// The next operation of the nemesis: a fault that is due before `heal_at`, else healing.
    fn ask_nemesis(&mut self, context: &Context, heal_at: Time) -> Next {
        if !self.is_healing {
            return match self.faults.next(context) {
                // Pending, not exhausted: healing follows.
                Next::Op(op) if time_of(&op) >= heal_at => Next::Pending,
                Next::Exhausted => Next::Pending,
                next => next,
            };
        }
        let next = self.healing.next(context);
        if matches!(next, Next::Exhausted) {
            self.healing = None;
        }
        next
    }
}

impl<G: Generator> Generator for TestPhases<G> {
    fn next(&mut self, context: &Context) -> Next {
        let begin = *self.begin.get_or_insert(context.time());
        let heal_at = begin + self.options.duration;
        let clients = self.ask_clients(context, heal_at + self.options.recovery);
        self.is_healing |= context.time() >= heal_at || self.clients.is_none();
        let nemesis = self.ask_nemesis(context, heal_at);
        let both_ended = (&clients, &nemesis) == (&Next::Exhausted, &Next::Exhausted);
        if both_ended && self.last.is_some() {
            self.chosen = TestPart::Final;
            return self.ask_final(context);
        }
        let by_nemesis = match (&clients, &nemesis) {
            (Next::Failed(_), _) => false,
            (_, Next::Failed(_)) => true,
            // Clients and nemesis use different threads, so a fixed rule for ties starves neither.
            (Next::Op(client), Next::Op(nemesis)) => nemesis.time <= client.time,
            (Next::Op(_), _) => false,
            (_, Next::Op(_)) => true,
            (clients, _) => matches!(clients, Next::Exhausted),
        };
        if by_nemesis {
            self.chosen = TestPart::Nemesis;
            return nemesis;
        }
        self.chosen = TestPart::Clients;
        clients
    }

    fn commit(&mut self) {
        match self.chosen {
            TestPart::Clients => self.clients.commit(),
            TestPart::Final => self.last.commit(),
            TestPart::Nemesis if self.is_healing => self.healing.commit(),
            TestPart::Nemesis => self.faults.commit(),
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.clients.update(context, event);
        self.faults.update(context, event);
        self.healing.update(context, event);
        self.last.update(context, event);
    }

    fn tree(&self) -> Tree {
        let phase = match (self.last_begin, self.is_healing) {
            (Some(_), _) => "final operations",
            (None, true) => "healing",
            (None, false) => "faults",
        };
        let name = format!(
            "test-phases of {:?} and {:?}, now {phase}",
            self.options.duration, self.options.recovery
        );
        let clients = self.clients.iter().map(Generator::tree);
        let faults = self.faults.iter().map(Generator::tree);
        let last = self.last.iter().map(Generator::tree);
        Tree {
            name,
            children: clients.chain(faults).chain(last).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FaultOptions, Interpreter, InterpreterOptions, SimulatedReply, Simulation, fault_package,
        operation,
    };
    use seatrial_history::{History, OpType, Value};
    use seatrial_machine::{FaultKind, NodeId, Rng};

    fn run(limit: u64, faults: bool) -> History {
        run_with(limit, faults, None)
    }

    fn run_with(limit: u64, faults: bool, last: Option<Box<dyn Generator>>) -> History {
        let rng = Rng::from_seed(4);
        let client = operation("read", Value::Nil).repeat();
        let client = client
            .stagger(rng.fork("rate"), Duration::from_millis(5))
            .limit(limit);
        let servers = [NodeId::server(1), NodeId::server(2)];
        let interval = Duration::from_millis(100);
        let options = FaultOptions::new([FaultKind::Kill], servers, [], interval);
        let package = faults.then(|| fault_package(options, rng.fork("faults")));
        let options = TestPhasesOptions {
            duration: Duration::from_secs(1),
            recovery: Duration::from_secs(1),
        };
        let has_last = last.is_some();
        let limit = Duration::from_millis(500);
        let test = test_phases(client, package, options).with_final(last, limit);
        let interpreter = Interpreter::new(test, &InterpreterOptions::new(3, Rng::from_seed(0)));
        let mut rng = rng.fork("latency");
        Simulation::new(interpreter, move |op: &Op| {
            // Some operations stay open for longer than healing takes.
            let is_slow = has_last && op.process.is_client() && rng.below(4) == 0;
            let latency = if is_slow { 30_000_000 } else { 10 };
            SimulatedReply::After(Duration::from_nanos(latency), OpType::Ok, op.value.clone())
        })
        .run()
        .unwrap()
    }

    #[test]
    fn faults_are_healed_in_time_and_the_clients_continue() {
        let history = run(u64::MAX, true);
        let nemesis: Vec<&Op> = history
            .iter()
            .filter(|op| !op.process.is_client())
            .collect();
        let (healing, faults): (Vec<&Op>, Vec<&Op>) =
            nemesis.iter().partition(|op| op.time >= 1_000_000_000);
        let names: Vec<String> = healing
            .iter()
            .step_by(2)
            .map(|op| format!("{} {}", op.f, op.value))
            .collect();
        assert_eq!(names, ["restart \"n1\"", "restart \"n2\""]);
        assert!(
            healing.iter().all(|op| op.time < 1_001_100_000),
            "at the very end of the faults"
        );
        assert!(faults.len() > 8);
        let last = history.ops().last().unwrap().time;
        assert!((1_980_000_000..2_000_000_100).contains(&last), "{last}");
    }

    #[test]
    fn a_limit_of_operations_ends_the_test_after_the_healing() {
        let history = run(20, true);
        let clients = history.clients();
        assert_eq!(clients.len(), 40);
        let names: Vec<&str> = history.ops()[history.len() - 2..]
            .iter()
            .map(|op| op.f.as_str())
            .collect();
        assert_eq!(names, ["restart", "restart"]);
        assert!(history.ops().last().unwrap().time < 200_000_000);
    }

    #[test]
    fn the_nemesis_changes_nothing_for_the_clients() {
        let what = |history: History| -> Vec<String> {
            history
                .clients()
                .iter()
                .map(|op| format!("{} {} {}", op.time, op.process, op.f))
                .collect()
        };
        assert_eq!(what(run(200, true)), what(run(200, false)));
    }

    #[test]
    fn final_operations_wait_for_healing_and_open_operations() {
        for (limit, faults) in [(20, true), (20, false), (u64::MAX, true)] {
            let last = operation("look", Value::Nil).repeat().limit(4);
            let history = run_with(limit, faults, Some(last.boxed()));
            let ops = history.ops();
            let begin = ops.iter().position(|op| op.f == "look").unwrap();
            let before = &ops[..begin];
            assert!(before.iter().all(|op| op.f != "look"));
            let open = before.iter().filter(|op| op.process.is_client());
            let open = open.map(|op| if op.is_invoke() { 1 } else { -1 });
            assert_eq!(open.sum::<i32>(), 0, "an operation is open");
            let nemesis = |op: &&Op| !op.process.is_client();
            assert_eq!(ops[begin..].iter().find(nemesis), None);
            if faults {
                let healed = before.iter().rfind(nemesis).unwrap();
                assert_eq!(healed.f, "restart");
            }
            let clients = |op: &&Op| op.process.is_client() && op.f != "look";
            assert_eq!(ops[begin..].iter().find(clients), None);
            assert_eq!(ops.iter().filter(|op| op.f == "look").count(), 8);
        }
    }

    #[test]
    fn endless_final_operations_end_at_their_limit() {
        let last = operation("look", Value::Nil).repeat();
        let last = last.delay(Duration::from_millis(10)).boxed();
        let history = run_with(20, true, Some(last));
        let looks = history.iter().filter(|op| op.f == "look" && op.is_invoke());
        let count = looks.count();
        assert!((40..=50).contains(&count), "{count}");
    }
}
