//! The naive twin of the task graph: a list of tasks from which everything is recomputed at every step; and a world in which
//! graph and twin take the same steps and are compared after each.

use super::super::task_graph::{GraphBug, TaskEffect, TaskGraph};
use super::super::{TaskId, TaskState};
use std::fmt::Debug;

/// Kind of a task's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum BodyKind {
    /// Adds 1 and the values of its dependencies.
    Plain,
    /// Gives an error of its own.
    Fails,
    /// Adds 1, the values of its dependencies, and 1,000 for each that has none.
    Catches,
    Promise,
}

/// Outcome of a task in the twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TwinOutcome {
    Value(u64),
    /// The error of that task.
    Failed(usize),
    /// The cancellation of that task.
    Cancelled(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum TwinPhase {
    Pending,
    Running,
    /// Cancelled while the body still runs.
    Abandoned(TwinOutcome),
    Done(TwinOutcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Twinned {
    kind: BodyKind,
    dependencies: Vec<usize>,
    phase: TwinPhase,
    runs: u32,
}

/// A list of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TaskTwin {
    tasks: Vec<Twinned>,
}

impl TaskTwin {
    pub(super) fn outcome(&self, task: usize) -> Option<TwinOutcome> {
        match self.tasks[task].phase {
            TwinPhase::Pending | TwinPhase::Running => None,
            TwinPhase::Abandoned(outcome) | TwinPhase::Done(outcome) => Some(outcome),
        }
    }

    fn missing(&self, task: usize) -> Vec<usize> {
        let dependencies = self.tasks[task].dependencies.iter().copied();
        dependencies
            .filter(|&dependency| self.outcome(dependency).is_none())
            .collect()
    }

    fn state(&self, task: usize) -> TaskState {
        match self.tasks[task].phase {
            TwinPhase::Running => TaskState::Running,
            TwinPhase::Abandoned(_) | TwinPhase::Done(_) => TaskState::Done,
            TwinPhase::Pending if self.tasks[task].kind == BodyKind::Promise => TaskState::Promised,
            TwinPhase::Pending if self.missing(task).is_empty() => TaskState::Ready,
            TwinPhase::Pending => TaskState::Waiting,
        }
    }

    fn submit(&mut self, kind: BodyKind, dependencies: Vec<usize>) {
        self.tasks.push(Twinned {
            kind,
            dependencies,
            phase: TwinPhase::Pending,
            runs: 0,
        });
    }

    fn cancel_one(&mut self, task: usize) {
        let cancelled = TwinOutcome::Cancelled(task);
        self.tasks[task].phase = match self.tasks[task].phase {
            TwinPhase::Pending => TwinPhase::Done(cancelled),
            TwinPhase::Running => TwinPhase::Abandoned(cancelled),
            done => done,
        };
    }

    fn cancel(&mut self, task: usize) {
        if self.outcome(task).is_some() {
            return;
        }
        let mut cancelled = vec![task];
        loop {
            let next = (0..self.tasks.len()).find(|next| {
                let dependencies = &self.tasks[*next].dependencies;
                !cancelled.contains(next)
                    && self.outcome(*next).is_none()
                    && dependencies.iter().any(|task| cancelled.contains(task))
            });
            match next {
                Some(next) => cancelled.push(next),
                None => break,
            }
        }
        for task in cancelled {
            self.cancel_one(task);
        }
    }

    fn finish(&mut self, task: usize) {
        let outcome = self.result(task);
        let task = &mut self.tasks[task];
        task.phase = match task.phase {
            TwinPhase::Running => TwinPhase::Done(outcome),
            TwinPhase::Abandoned(outcome) => TwinPhase::Done(outcome),
            other => panic!("{other:?} ends"),
        };
    }

    /// What the body of a task gives.
    fn result(&self, task: usize) -> TwinOutcome {
        let Twinned {
            kind, dependencies, ..
        } = &self.tasks[task];
        let mut sum = 1;
        for &dependency in dependencies {
            match self.outcome(dependency).unwrap() {
                TwinOutcome::Value(value) => sum += value,
                _ if *kind == BodyKind::Catches => sum += 1_000,
                error => return error,
            }
        }
        match kind {
            BodyKind::Fails => TwinOutcome::Failed(task),
            _ => TwinOutcome::Value(sum),
        }
    }

    /// Has its own body been called, rather than an error passed on?
    pub(super) fn runs_body(&self, task: usize) -> bool {
        let Twinned {
            kind,
            dependencies,
            runs,
            ..
        } = &self.tasks[task];
        let has_value = |task: &usize| matches!(self.outcome(*task), Some(TwinOutcome::Value(_)));
        *runs == 1 && (*kind == BodyKind::Catches || dependencies.iter().all(has_value))
    }

    fn with(&self, wanted: TaskState) -> Vec<usize> {
        (0..self.tasks.len())
            .filter(|&task| self.state(task) == wanted)
            .collect()
    }

    /// Tasks whose bodies run, cancelled or not.
    pub(super) fn running(&self) -> Vec<usize> {
        let runs =
            |task: &Twinned| matches!(task.phase, TwinPhase::Running | TwinPhase::Abandoned(_));
        (0..self.tasks.len())
            .filter(|&task| runs(&self.tasks[task]))
            .collect()
    }
}

/// One step of a transaction. Tasks are named by the order of their submission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TwinStep {
    Submit(BodyKind, Vec<usize>),
    Cancel(usize),
    /// Keeps a promise, with the value 100.
    Keep(usize),
}

/// The subject under test: a task graph with some type of work.
pub(super) trait Subject {
    fn submit(&mut self, kind: BodyKind, dependencies: &[TaskId]) -> TaskId;
    fn cancel(&mut self, id: TaskId) -> TaskState;
    fn keep(&mut self, id: TaskId) -> bool;
    /// Tasks that were cancelled and promises that were kept.
    fn end(&mut self, commits: bool) -> (Vec<TaskId>, Vec<TaskId>);
    fn take(&mut self) -> Option<TaskId>;
    /// Is its outcome to be published?
    fn finish(&mut self, id: TaskId) -> bool;
    fn state(&self, id: TaskId) -> TaskState;
    fn dependencies(&self, id: TaskId) -> Vec<TaskId>;
    fn counts(&self) -> (usize, usize);
    fn check(&self) -> Result<(), String>;
    /// Compares the outcome of a task, if the subject knows outcomes.
    fn check_outcome(&self, _task: usize, _wanted: Option<TwinOutcome>) -> Result<(), String> {
        Ok(())
    }
}

impl Subject for TaskGraph<()> {
    fn submit(&mut self, kind: BodyKind, dependencies: &[TaskId]) -> TaskId {
        match kind {
            BodyKind::Promise => TaskGraph::promise(self, ()),
            _ => TaskGraph::submit(self, (), dependencies),
        }
    }

    fn cancel(&mut self, id: TaskId) -> TaskState {
        TaskGraph::cancel(self, id)
    }

    fn keep(&mut self, id: TaskId) -> bool {
        TaskGraph::keep(self, id)
    }

    fn end(&mut self, commits: bool) -> (Vec<TaskId>, Vec<TaskId>) {
        let mut effects = Vec::new();
        if commits {
            self.commit(&mut effects);
        } else {
            self.rollback(&mut effects);
        }
        let (mut cancelled, mut kept) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                TaskEffect::Cancelled(id, ()) => cancelled.push(id),
                TaskEffect::Kept(id, ()) => kept.push(id),
            }
        }
        (cancelled, kept)
    }

    fn take(&mut self) -> Option<TaskId> {
        TaskGraph::take(self).map(|(id, ())| id)
    }

    fn finish(&mut self, id: TaskId) -> bool {
        TaskGraph::finish(self, id).1
    }

    fn state(&self, id: TaskId) -> TaskState {
        TaskGraph::state(self, id)
    }

    fn dependencies(&self, id: TaskId) -> Vec<TaskId> {
        TaskGraph::dependencies(self, id)
    }

    fn counts(&self) -> (usize, usize) {
        (self.live(), self.ready_count())
    }

    fn check(&self) -> Result<(), String> {
        TaskGraph::check(self)
    }
}

/// A state with this mistake in it.
pub(super) fn state(bug: Option<GraphBug>) -> TaskGraph<()> {
    let mut state = TaskGraph::new(1);
    state.bug = bug;
    state
}

/// A state and its twin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TaskWorld<S> {
    pub(super) subject: S,
    pub(super) twin: TaskTwin,
    ids: Vec<TaskId>,
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?} instead of {wanted:?}"))
}

fn same_of<T: PartialEq + Debug>(
    what: &str,
    task: usize,
    found: &T,
    wanted: &T,
) -> Result<(), String> {
    same(what, found, wanted).map_err(|what| format!("task {task}: {what}"))
}

impl<S: Subject> TaskWorld<S> {
    pub(super) fn new(subject: S) -> TaskWorld<S> {
        TaskWorld {
            subject,
            twin: TaskTwin::default(),
            ids: Vec::new(),
        }
    }

    pub(super) fn task_count(&self) -> usize {
        self.ids.len()
    }

    /// A whole transaction. Steps that name tasks that are not there (yet) do without them.
    pub(super) fn transact(&mut self, steps: &[TwinStep], commits: bool) -> Result<(), String> {
        let before = self.twin.clone();
        for step in steps {
            self.step(step)?;
            self.check(true)?;
        }
        let (mut cancelled, mut kept) = self.subject.end(commits);
        let mut wanted_cancelled = Vec::new();
        let mut wanted_kept = Vec::new();
        if commits {
            for (task, id) in self.ids.iter().enumerate() {
                let was = before.tasks.get(task).and_then(|_| before.outcome(task));
                match self.twin.outcome(task).filter(|_| was.is_none()) {
                    Some(TwinOutcome::Cancelled(_)) => wanted_cancelled.push(*id),
                    Some(_) => wanted_kept.push(*id),
                    None => {}
                }
            }
        } else {
            let new = std::mem::replace(&mut self.twin, before);
            for task in self.twin.tasks.len()..new.tasks.len() {
                wanted_cancelled.push(self.ids[task]);
                self.twin.tasks.push(new.tasks[task].clone());
                self.twin.tasks[task].phase = TwinPhase::Done(TwinOutcome::Cancelled(task));
            }
        }
        cancelled.sort_unstable();
        kept.sort_unstable();
        same("reported as cancelled", &cancelled, &wanted_cancelled)?;
        same("reported as kept", &kept, &wanted_kept)?;
        self.check(false)
    }

    fn step(&mut self, step: &TwinStep) -> Result<(), String> {
        match step {
            TwinStep::Submit(kind, dependencies) => {
                let known = dependencies.iter().copied();
                let known: Vec<usize> = known.filter(|task| *task < self.ids.len()).collect();
                let ids: Vec<TaskId> = known.iter().map(|task| self.ids[*task]).collect();
                self.twin.submit(*kind, known);
                self.ids.push(self.subject.submit(*kind, &ids));
            }
            TwinStep::Cancel(task) if *task < self.ids.len() => {
                let state = self.subject.cancel(self.ids[*task]);
                same("state when cancelled", &state, &self.twin.state(*task))?;
                self.twin.cancel(*task);
            }
            TwinStep::Keep(task) if *task < self.ids.len() => {
                let kept = self.subject.keep(self.ids[*task]);
                let is_open = self.twin.state(*task) == TaskState::Promised;
                same("promise kept", &kept, &is_open)?;
                if is_open {
                    self.twin.tasks[*task].phase = TwinPhase::Done(TwinOutcome::Value(100));
                }
            }
            TwinStep::Cancel(_) | TwinStep::Keep(_) => {}
        }
        Ok(())
    }

    pub(super) fn can_start(&self) -> bool {
        self.subject.counts().1 > 0
    }

    /// A worker takes a task.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let id = self.subject.take().ok_or("no task, though one is ready")?;
        let task = self.ids.iter().position(|known| *known == id);
        let task = task.ok_or("a task that was never submitted")?;
        same(
            "task that starts",
            &self.twin.state(task),
            &TaskState::Ready,
        )?;
        self.twin.tasks[task].phase = TwinPhase::Running;
        self.twin.tasks[task].runs += 1;
        same("times that it ran", &self.twin.tasks[task].runs, &1)?;
        self.check(false)
    }

    /// A body ends.
    pub(super) fn finish(&mut self, task: usize) -> Result<(), String> {
        let wanted = self.twin.tasks[task].phase == TwinPhase::Running;
        same("wanted", &self.subject.finish(self.ids[task]), &wanted)?;
        self.twin.finish(task);
        self.check(false)
    }

    /// Compares everything that can be seen.
    fn check(&self, is_open: bool) -> Result<(), String> {
        for (task, id) in self.ids.iter().enumerate() {
            let state = self.subject.state(*id);
            same_of("state", task, &state, &self.twin.state(task))?;
            let missing = match state {
                TaskState::Done => Vec::new(),
                _ => self.twin.missing(task),
            };
            let missing: Vec<TaskId> = missing.iter().map(|task| self.ids[*task]).collect();
            let found = self.subject.dependencies(*id);
            same_of("dependencies", task, &found, &missing)?;
            if !is_open {
                self.subject.check_outcome(task, self.twin.outcome(task))?;
            }
        }
        if !is_open {
            let ready = self.twin.with(TaskState::Ready).len();
            let done = self.twin.with(TaskState::Done).len();
            let abandoned = self.twin.running().len() - self.twin.with(TaskState::Running).len();
            let live = self.ids.len() - done + abandoned;
            same("live and ready", &self.subject.counts(), &(live, ready))?;
        }
        self.subject.check()
    }

    /// When nothing can happen any more: is everything done, except for what waits for promises?
    pub(super) fn check_end(&self) -> Result<(), String> {
        let promised = self.twin.with(TaskState::Promised).len();
        let waiting = self.twin.with(TaskState::Waiting).len();
        let live = self.subject.counts().0;
        same("live at the end", &live, &(promised + waiting))?;
        same(
            "waiting for nothing",
            &(promised == 0 && waiting > 0),
            &false,
        )
    }
}
