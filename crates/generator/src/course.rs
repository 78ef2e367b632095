//! The course of a whole test: clients work while the nemesis breaks things, then everything is mended and the clients
//! go on for a while, to see what was lost; at the very end they look at all there is.

use seatrial_history::Op;
use seatrial_machine::Time;
use std::time::Duration;

use crate::generator::time_of;
use crate::partition::OnThreads;
use crate::{Context, FaultPackage, Generator, Healing, Next, Tree};

/// How long the parts of a test take.
#[derive(Clone, Copy, Debug)]
pub struct CourseOptions {
    /// Faults happen until so long after the beginning; then everything is mended.
    pub duration: Duration,
    /// The clients go on for so long after that.
    pub recovery: Duration,
}

/// Runs clients and faults side by side. The clients end with their generator or after duration and recovery; the
/// faults end after the duration or with the clients; the healing always follows, and a test whose clients have ended
/// is over when it is done. Last operations ([`Course::and_last`]) begin when all is mended and nothing is under way.
///
/// Its downside: the recovery is counted from the beginning of the healing, however long that takes.
#[derive(Debug)]
pub struct Course<G> {
    /// `None` when they have ended.
    clients: Option<OnThreads<G>>,
    faults: Option<OnThreads<crate::FaultSchedule>>,
    /// `None` when all is mended.
    healing: Option<OnThreads<Healing>>,
    options: CourseOptions,
    /// When the test began: the time of the first context.
    begin: Option<Time>,
    /// The time for faults is over.
    mending: bool,
    /// What clients do at the very end; `None` when that is done.
    last: Option<OnThreads<Box<dyn Generator>>>,
    /// The longest time that it may take.
    last_limit: Duration,
    /// When it began.
    last_begin: Option<Time>,
    /// Who gave the last answer.
    winner: Part,
}

/// The parts of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Clients,
    Nemesis,
    Last,
}

/// A whole test: `clients` on the client threads, `faults` on the nemesis.
pub fn course<G: Generator>(
    clients: G,
    faults: Option<FaultPackage>,
    options: CourseOptions,
) -> Course<G> {
    let (faults, healing) = faults
        .map(|package| (package.faults, package.healing))
        .unzip();
    Course {
        clients: Some(clients.clients()),
        faults: faults.map(Generator::nemesis),
        healing: healing.map(Generator::nemesis),
        options,
        begin: None,
        mending: false,
        last: None,
        last_limit: Duration::ZERO,
        last_begin: None,
        winner: Part::Clients,
    }
}

impl<G: Generator> Course<G> {
    /// The same, but at the very end, when all is mended and nothing is under way, clients do what `last` says, for at most
    /// `limit`. It is shown all events of clients from the beginning, so that it can know what to look at.
    #[must_use]
    pub fn and_last(self, last: Option<Box<dyn Generator>>, limit: Duration) -> Course<G> {
        Course {
            last: last.map(Generator::clients),
            last_limit: limit,
            ..self
        }
    }

    /// What clients do at the very end.
    fn ask_last(&mut self, context: &Context) -> Next {
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

    /// What the clients would do next, unless their time is up.
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

    /// What the nemesis would do next; pending until it is time to mend.
    fn ask_nemesis(&mut self, context: &Context, mend: Time) -> Next {
        if !self.mending {
            return match self.faults.next(context) {
                Next::Op(op) if time_of(&op) >= mend => Next::Pending,
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

impl<G: Generator> Generator for Course<G> {
    fn next(&mut self, context: &Context) -> Next {
        let begin = *self.begin.get_or_insert(context.time());
        let mend = begin + self.options.duration;
        let clients = self.ask_clients(context, mend + self.options.recovery);
        self.mending |= context.time() >= mend || self.clients.is_none();
        let nemesis = self.ask_nemesis(context, mend);
        let both_ended = (&clients, &nemesis) == (&Next::Exhausted, &Next::Exhausted);
        if both_ended && self.last.is_some() {
            self.winner = Part::Last;
            return self.ask_last(context);
        }
        let by_nemesis = match (&clients, &nemesis) {
            (Next::Failed(_), _) => false,
            (_, Next::Failed(_)) => true,
            // Different threads: there is no tie in which one could starve the other.
            (Next::Op(client), Next::Op(nemesis)) => nemesis.time <= client.time,
            (Next::Op(_), _) => false,
            (_, Next::Op(_)) => true,
            (clients, _) => matches!(clients, Next::Exhausted),
        };
        if by_nemesis {
            self.winner = Part::Nemesis;
            return nemesis;
        }
        self.winner = Part::Clients;
        clients
    }

    fn commit(&mut self) {
        match self.winner {
            Part::Clients => self.clients.commit(),
            Part::Last => self.last.commit(),
            Part::Nemesis if self.mending => self.healing.commit(),
            Part::Nemesis => self.faults.commit(),
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.clients.update(context, event);
        self.faults.update(context, event);
        self.healing.update(context, event);
        self.last.update(context, event);
    }

    fn tree(&self) -> Tree {
        let stage = match (self.last_begin, self.mending) {
            (Some(_), _) => "looking at what is left",
            (None, true) => "mending",
            (None, false) => "breaking",
        };
        let name = format!(
            "course of {:?} and {:?}, {stage}",
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
        Answer, FaultOptions, Interpreter, InterpreterOptions, Simulation, fault_package, operation,
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
        let options = CourseOptions {
            duration: Duration::from_secs(1),
            recovery: Duration::from_secs(1),
        };
        let has_last = last.is_some();
        let test = course(client, package, options).and_last(last, Duration::from_millis(500));
        let interpreter = Interpreter::new(test, &InterpreterOptions::new(3, Rng::from_seed(0)));
        let mut rng = rng.fork("latency");
        Simulation::new(interpreter, move |op: &Op| {
            // Now and then an operation is under way for longer than the healing takes.
            let is_slow = has_last && op.process.is_client() && rng.below(4) == 0;
            let latency = if is_slow { 30_000_000 } else { 10 };
            Answer::After(Duration::from_nanos(latency), OpType::Ok, op.value.clone())
        })
        .run()
        .unwrap()
    }

    #[test]
    fn everything_is_mended_in_time_and_the_clients_go_on() {
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
    fn last_operations_wait_until_all_is_mended_and_nothing_is_under_way() {
        for (limit, faults) in [(20, true), (20, false), (u64::MAX, true)] {
            let last = operation("look", Value::Nil).repeat().limit(4);
            let history = run_with(limit, faults, Some(last.boxed()));
            let ops = history.ops();
            let begin = ops.iter().position(|op| op.f == "look").unwrap();
            let before = &ops[..begin];
            assert!(before.iter().all(|op| op.f != "look"));
            let open = before.iter().filter(|op| op.process.is_client());
            let open = open.map(|op| if op.is_invoke() { 1 } else { -1 });
            assert_eq!(open.sum::<i32>(), 0, "something is under way");
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
    fn last_operations_that_never_end_are_cut_off() {
        let last = operation("look", Value::Nil).repeat();
        let last = last.delay(Duration::from_millis(10)).boxed();
        let history = run_with(20, true, Some(last));
        let looks = history.iter().filter(|op| op.f == "look" && op.is_invoke());
        let count = looks.count();
        assert!((40..=50).contains(&count), "{count}");
    }
}
