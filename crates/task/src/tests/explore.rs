//! Every interleaving of small programs: each order of transactions, starts and ends, on the task graph itself.

use super::super::task_graph::{GraphBug, TaskGraph};
use super::twin::{BodyKind, TaskWorld, TwinStep, state};

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Steps, and whether they are committed.
#[derive(Clone, Debug)]
struct ProgramTransaction(Vec<TwinStep>, bool);

/// Two independent clients.
type Program = [Vec<ProgramTransaction>; 2];

/// Workers.
const WORKERS: usize = 2;

/// Size of the explored state space.
#[derive(Clone, Copy, Debug, Default)]
struct Explored {
    programs: usize,
    /// Worlds that differ.
    worlds: usize,
    /// Steps from one world to the next.
    steps: usize,
}

struct Explorer<'a> {
    program: &'a Program,
    seen: BTreeSet<u64>,
    count: Explored,
    /// The steps that led to the current world.
    path: Vec<String>,
}

impl Explorer<'_> {
    /// Takes every possible step in this world, and explores the resulting worlds.
    fn explore(
        &mut self,
        world: &TaskWorld<TaskGraph<()>>,
        done: [usize; 2],
    ) -> Result<(), String> {
        let mut hasher = DefaultHasher::new();
        (world, done).hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return Ok(());
        }
        self.count.worlds += 1;
        let mut is_end = true;
        let program = self.program;
        for client in 0..2 {
            if let Some(ProgramTransaction(steps, commits)) = program[client].get(done[client]) {
                is_end = false;
                let mut done = done;
                done[client] += 1;
                let what = format!("{client} {steps:?} {commits}");
                self.step(world, done, what, |world| world.transact(steps, *commits))?;
            }
        }
        let running = world.twin.running();
        if running.len() < WORKERS && world.can_start() {
            is_end = false;
            self.step(world, done, "start".to_owned(), TaskWorld::start)?;
        }
        for task in running {
            is_end = false;
            self.step(world, done, format!("finish {task}"), |world| {
                world.finish(task)
            })?;
        }
        if is_end {
            world.check_end()?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        world: &TaskWorld<TaskGraph<()>>,
        done: [usize; 2],
        what: String,
        step: impl FnOnce(&mut TaskWorld<TaskGraph<()>>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.path.push(what);
        self.count.steps += 1;
        let mut next = world.clone();
        step(&mut next)?;
        self.explore(&next, done)?;
        self.path.pop();
        Ok(())
    }
}

/// Explores a program; an error comes with the way to it.
fn explore(program: &Program, bug: Option<GraphBug>, count: &mut Explored) -> Result<(), String> {
    let mut explorer = Explorer {
        program,
        seen: BTreeSet::new(),
        count: Explored::default(),
        path: Vec::new(),
    };
    let world = TaskWorld::new(state(bug));
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        explorer.explore(&world, [0, 0])
    }));
    count.programs += 1;
    count.worlds += explorer.count.worlds;
    count.steps += explorer.count.steps;
    let what = match found {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(what)) => what,
        Err(_) => "panic".to_owned(),
    };
    Err(format!("{what}, after {:#?}", explorer.path))
}

/// A task that depends on those whose bits are set.
fn submit(kind: BodyKind, bits: usize) -> TwinStep {
    let dependencies = (0..usize::BITS as usize).filter(|bit| bits >> bit & 1 == 1);
    TwinStep::Submit(kind, dependencies.collect())
}

/// `tasks` tasks in every shape, one after the other by one client; the other client cancels one of them, any.
fn shapes(tasks: usize) -> Vec<Program> {
    let mut programs = Vec::new();
    let bits: usize = tasks * (tasks - 1) / 2;
    for mut shape in 0..1_usize << bits {
        let mut client = Vec::new();
        for task in 0..tasks {
            let own = shape & ((1 << task) - 1);
            shape >>= task;
            client.push(ProgramTransaction(vec![submit(BodyKind::Plain, own)], true));
        }
        for target in 0..tasks {
            let cancels = vec![ProgramTransaction(vec![TwinStep::Cancel(target)], true)];
            programs.push([client.clone(), cancels]);
        }
    }
    programs
}

/// Transactions of several steps, which are committed or not: every choice of this many out of these, between tasks and a
/// promise that are there already and one that comes later.
fn transactions(length: u32) -> Vec<Program> {
    let before = [
        vec![submit(BodyKind::Plain, 0), submit(BodyKind::Promise, 0)],
        vec![submit(BodyKind::Plain, 0b01), submit(BodyKind::Plain, 0b11)],
    ];
    let inside = [
        submit(BodyKind::Plain, 0),
        submit(BodyKind::Plain, 0b10),
        submit(BodyKind::Plain, 0b1_1110),
        submit(BodyKind::Promise, 0),
        TwinStep::Cancel(0),
        TwinStep::Cancel(2),
        TwinStep::Cancel(4),
        TwinStep::Keep(1),
        TwinStep::Keep(4),
    ];
    let after = [TwinStep::Keep(1), submit(BodyKind::Plain, 0b111_1111)];
    let mut programs = Vec::new();
    for mut choice in 0..inside.len().pow(length) {
        let steps = (0..length).map(|_| {
            let step = inside[choice % inside.len()].clone();
            choice /= inside.len();
            step
        });
        let steps: Vec<TwinStep> = steps.collect();
        for commits in [true, false] {
            let before = before.iter();
            let mut client: Vec<ProgramTransaction> = before
                .map(|steps| ProgramTransaction(steps.clone(), true))
                .collect();
            client.push(ProgramTransaction(steps.clone(), commits));
            let after = after.iter();
            let after = after.map(|step| ProgramTransaction(vec![step.clone()], true));
            programs.push([client, after.collect()]);
        }
    }
    programs
}

#[test]
fn every_order_of_every_small_program_is_sound() {
    let mut count = Explored::default();
    // With this in the environment: all choices of three steps, some minutes instead of seconds.
    let length = match std::env::var_os("SEATRIAL_EXPLORE_ALL") {
        Some(_) => 3,
        None => 2,
    };
    let programs = [shapes(3), shapes(4), transactions(length)].concat();
    for program in &programs {
        if let Err(what) = explore(program, None, &mut count) {
            panic!("{what}\n{program:?}");
        }
    }
    println!("{count:?}");
    assert!(count.steps > 100_000, "{count:?}");
}

/// How many tasks run before one that was ready from the start, beside a chain that has no end.
fn overtakings(bug: Option<GraphBug>) -> usize {
    let mut state = state(bug);
    let mut effects = Vec::new();
    let mut last = state.submit((), &[]);
    let patient = state.submit((), &[]);
    for count in 0..1_000 {
        last = state.submit((), &[last]);
        state.commit(&mut effects);
        let (id, ()) = state.take().unwrap();
        if id == patient {
            return count;
        }
        state.finish(id);
    }
    usize::MAX
}

#[test]
fn an_endless_chain_starves_no_other_task() {
    assert!((1..=100).contains(&overtakings(None)));
    assert_eq!(overtakings(Some(GraphBug::OvertakesForever)), usize::MAX);
}

#[test]
fn a_million_tasks_leave_no_trace() {
    let mut state = state(None);
    let mut effects = Vec::new();
    let mut window = std::collections::VecDeque::new();
    for number in 0..1_000_000_u32 {
        let before: Vec<_> = window.iter().rev().take(3).copied().collect();
        window.push_back(state.submit((), &before));
        if number % 7 == 0 {
            state.cancel(window[window.len() / 2]);
        }
        if number % 5 == 0 {
            state.rollback(&mut effects);
        } else {
            state.commit(&mut effects);
        }
        if let Some((id, ())) = state.take() {
            state.finish(id);
        }
        if window.len() > 100 {
            let oldest = window.pop_front().unwrap();
            state.cancel(oldest);
            state.commit(&mut effects);
        }
        effects.clear();
    }
    state.check().unwrap();
    let (tasks, edges) = state.places();
    assert!(
        tasks <= 102 && edges <= 306,
        "{tasks} places, {edges} edges"
    );
}

#[test]
fn planted_mistakes_are_found() {
    let bugs = [
        GraphBug::CountsTwice,
        GraphBug::CancelsDirectDependantsOnly,
        GraphBug::CancelForgetsReadyQueue,
        GraphBug::RollbackForgetsCancelled,
        GraphBug::RollbackForgetsEdges,
        GraphBug::EnqueuesTwice,
        GraphBug::WaitsForCancelled,
        GraphBug::PublishesAbandoned,
        GraphBug::ForgetsPlace,
        GraphBug::ConfusesPlaces,
        GraphBug::KeepsTwice,
    ];
    let programs = [shapes(3), transactions(2)].concat();
    for bug in bugs {
        let mut count = Explored::default();
        let found = programs
            .iter()
            .find_map(|program| explore(program, Some(bug), &mut count).err());
        let found = found.unwrap_or_else(|| panic!("{bug:?} is not found in {count:?}"));
        println!("{bug:?} after {count:?}: {found}");
    }
}
