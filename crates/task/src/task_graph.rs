//! The state machine of the executor: waiting, ready and running tasks.

use std::collections::BTreeSet;
use std::fmt;

/// Most tasks that may be pending or running; a further one is refused. Each takes about 120 bytes besides its body.
pub const TASKS_MAX: usize = 1 << 24;

/// Released tasks that may enter the ready queue at its front in a row, before one enters at the back.
const OVERTAKING_MAX: u32 = 64;

/// Bugs that the tests plant and must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GraphBug {
    /// A dependant waits for each dependency twice.
    CountsTwice,
    /// Only direct dependants are cancelled with a task.
    CancelsDirectDependantsOnly,
    /// A cancelled task stays in the ready queue.
    CancelForgetsReadyQueue,
    /// A rolled back transaction leaves its marks on tasks that it had cancelled.
    RollbackForgetsCancelled,
    /// A rolled back transaction leaves its tasks among the dependants of others.
    RollbackForgetsEdges,
    /// A task whose promise is kept in its own transaction is enqueued for either reason.
    EnqueuesTwice,
    /// A task that is submitted after a cancellation in the same transaction waits for the cancelled task.
    WaitsForCancelled,
    /// The result of a task that was cancelled while it ran is published.
    PublishesAbandoned,
    /// A free place is not reused.
    ForgetsPlace,
    /// A handle of an ended task refers to the task that has its place now.
    ConfusesPlaces,
    /// A promise can be kept twice in a transaction.
    KeepsTwice,
    /// Released tasks overtake without limit.
    OvertakesForever,
}

/// Is this bug planted?
macro_rules! planted {
    ($state:ident, $bug:ident) => {{
        #[cfg(test)]
        let is_planted = $state.bug == Some(GraphBug::$bug);
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}

/// No place.
const NONE: u32 = u32::MAX;

/// Identifies a task of an executor. Ordered by age; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Number of the submission, from 1; rolled back ones leave gaps.
    number: u64,
    place: u32,
    executor: u32,
}

impl TaskId {
    /// The executor that it belongs to.
    pub(super) fn executor(self) -> u32 {
        self.executor
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// State of a task.
///
/// ```text
/// Waiting ──last dependency done──► Ready ──a worker takes it──► Running ──body returns──► Done
///    └────────────────────────────────┴─────────── cancel ──────────┴──────────────────────►│
/// Promised ─────────────────────────────────────── keep, fail, drop, cancel ───────────────►│
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    /// Some of its dependencies are not done.
    Waiting,
    /// A promise without outcome.
    Promised,
    /// In the queue for a free worker.
    Ready,
    /// Its body runs.
    Running,
    /// Its outcome is known: a value, an error, or cancellation.
    Done,
}

/// Result of a committed transaction or a rollback, which the executor publishes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TaskEffect<W> {
    /// This promise was kept.
    Kept(TaskId, W),
    /// This task was cancelled, or the transaction that submitted it was rolled back.
    Cancelled(TaskId, W),
}

/// Status of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    /// No task; in the list of free places.
    Free,
    /// Waits for dependencies; or submitted in the open transaction.
    Waiting,
    Promised,
    Ready,
    Running,
    /// Cancelled while its body runs: the result will be dropped.
    Abandoned,
}

/// One task, at its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TaskNode<W> {
    number: u64,
    /// `None` if free.
    work: Option<W>,
    status: Status,
    /// The open transaction cancelled it.
    doomed: bool,
    /// The open transaction kept it, a promise.
    kept: bool,
    /// Dependencies that are not done: the length of its list of dependencies.
    missing: u32,
    /// Edges to tasks that wait for it, in the order of their submission.
    dependants: Ends,
    /// Edges to tasks that it waits for, in the order in which they were named.
    dependencies: Ends,
    /// Neighbours in the ready queue; `next` links the free places too.
    next: u32,
    previous: u32,
}

/// One task waits for another: an element of two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Edge {
    dependant: u32,
    dependency: u32,
    /// Neighbours in the dependency's list of dependants. `next` links the free edges too.
    next_dependant: u32,
    previous_dependant: u32,
    /// Neighbours in the dependant's list of dependencies.
    next_dependency: u32,
    previous_dependency: u32,
}

/// First and last element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends {
    first: NONE,
    last: NONE,
};

/// The state of an executor without threads, clocks or locks: pending and running tasks, their dependency edges, and the
/// ready queue. `W` is the body and outcome of a task, which the graph only stores.
///
/// ```text
///  nodes   [A running] [B waiting, missing 2] [C ready] [free]      a task's place is reused after it is done
///  edges   (B waits for A) (B waits for C)                          each in two lists: of its dependant, of its dependency
///  ready   C                                                        a list through the nodes
/// ```
///
/// Submissions and cancellations are steps of the open transaction. Queries see them at once, but they take effect with
/// [`TaskGraph::commit`]: until then a submitted task is not in the ready queue and a cancelled one is only marked, so that
/// [`TaskGraph::rollback`] removes the submitted ones and clears the marks. Outcomes are returned as [`TaskEffect`]s.
///
/// Cost of each step: the dependencies and dependants of its task (of a cancellation: of all cancelled tasks), independent
/// of the number of tasks.
///
/// Errors are not part of the graph. A task whose dependency failed becomes ready like any other, and its body wrapper passes
/// the error on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TaskGraph<W> {
    executor: u32,
    nodes: Vec<TaskNode<W>>,
    edges: Vec<Edge>,
    free_node: u32,
    free_edge: u32,
    /// Number of the next submission.
    number: u64,
    /// Tasks that are pending or running, promises included.
    live: usize,
    ready: Ends,
    ready_count: usize,
    overtaking: u32,
    /// The open transaction: places submitted, cancelled and kept in it, in order.
    submitted: Vec<u32>,
    cancelled: Vec<u32>,
    kept: Vec<u32>,
    /// Bodies that wait for tasks: the place of the body's task, and the awaited task. At most [`super::WAITING_MAX`].
    waiting: Vec<(u32, TaskId)>,
    #[cfg(test)]
    pub(super) bug: Option<GraphBug>,
}

impl<W: Clone> TaskGraph<W> {
    /// Creates a graph without tasks.
    pub(super) fn new(executor: u32) -> TaskGraph<W> {
        TaskGraph {
            executor,
            nodes: Vec::new(),
            edges: Vec::new(),
            free_node: NONE,
            free_edge: NONE,
            number: 1,
            live: 0,
            ready: EMPTY,
            ready_count: 0,
            overtaking: 0,
            submitted: Vec::new(),
            cancelled: Vec::new(),
            kept: Vec::new(),
            waiting: Vec::new(),
            #[cfg(test)]
            bug: None,
        }
    }

    /// Number of pending and running tasks, promises included.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Length of the ready queue.
    pub(super) fn ready_count(&self) -> usize {
        self.ready_count
    }

    /// The state of a task, as the open transaction sees it.
    pub(super) fn state(&self, id: TaskId) -> TaskState {
        match self.place(id) {
            None => TaskState::Done,
            Some(place) => self.visible(place),
        }
    }

    /// The dependencies of a task that are not done, in the order in which they were named.
    pub(super) fn dependencies(&self, id: TaskId) -> Vec<TaskId> {
        let place = self.place(id);
        let place = place.filter(|&place| self.visible(place) != TaskState::Done);
        place.map_or_else(Vec::new, |place| self.dependencies_of(place))
    }

    /// All tasks that are not done, the oldest first: id, work, state, dependencies that are not done.
    pub(super) fn tasks(&self) -> Vec<(TaskId, &W, TaskState, Vec<TaskId>)> {
        let places = 0..self.nodes.len() as u32;
        let known = places.filter_map(|place| {
            let node = &self.nodes[place as usize];
            let state = self.visible(place);
            let work = node.work.as_ref()?;
            let is_done = state == TaskState::Done;
            (!is_done).then(|| (self.id(place), work, state, self.dependencies_of(place)))
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable_by_key(|(id, ..)| *id);
        known
    }

    /// Adds a task to the open transaction, with edges to the dependencies that are not done.
    pub(super) fn submit(&mut self, work: W, dependencies: &[TaskId]) -> TaskId {
        let place = self.add(work, Status::Waiting);
        for dependency in dependencies {
            if let Some(dependency) = self.place(*dependency)
                && (self.visible(dependency) != TaskState::Done
                    || planted!(self, WaitsForCancelled))
            {
                self.link(place, dependency);
            }
        }
        self.id(place)
    }

    /// Adds a promise to the open transaction.
    pub(super) fn promise(&mut self, work: W) -> TaskId {
        let place = self.add(work, Status::Promised);
        self.id(place)
    }

    /// Keeps a promise in the open transaction; `false` if it was kept or cancelled before.
    pub(super) fn keep(&mut self, id: TaskId) -> bool {
        let place = self.place(id);
        let is_open = |place: &u32| {
            let is_promise = self.nodes[*place as usize].status == Status::Promised;
            let is_open = self.visible(*place) == TaskState::Promised;
            is_open || is_promise && planted!(self, KeepsTwice)
        };
        let Some(place) = place.filter(is_open) else {
            return false;
        };
        self.nodes[place as usize].kept = true;
        self.kept.push(place);
        true
    }

    /// Cancels a task and all its dependants, in the open transaction; returns the state in which it was.
    pub(super) fn cancel(&mut self, id: TaskId) -> TaskState {
        let state = self.state(id);
        if state == TaskState::Done {
            return state;
        }
        let mut next = self.cancelled.len();
        self.doom(id.place);
        while let Some(&place) = self.cancelled.get(next) {
            if planted!(self, CancelsDirectDependantsOnly) && place != id.place {
                break;
            }
            next += 1;
            let mut edge = self.nodes[place as usize].dependants.first;
            while edge != NONE {
                let Edge {
                    dependant,
                    next_dependant,
                    ..
                } = self.edges[edge as usize];
                self.doom(dependant);
                edge = next_dependant;
            }
        }
        state
    }

    /// Cancels all tasks that do not run, in the open transaction.
    pub(super) fn cancel_pending(&mut self) {
        for place in 0..self.nodes.len() as u32 {
            let state = self.visible(place);
            if !matches!(state, TaskState::Done | TaskState::Running) {
                self.doom(place);
            }
        }
    }

    /// Commits the open transaction.
    pub(super) fn commit(&mut self, effects: &mut Vec<TaskEffect<W>>) {
        for index in 0..self.cancelled.len() {
            self.withdraw(self.cancelled[index], effects);
        }
        self.cancelled.clear();
        for index in 0..self.kept.len() {
            let place = self.kept[index];
            let id = self.id(place);
            self.release(place);
            effects.push(TaskEffect::Kept(id, self.remove(place)));
        }
        self.kept.clear();
        for index in 0..self.submitted.len() {
            let place = self.submitted[index];
            let TaskNode {
                status, missing, ..
            } = self.nodes[place as usize];
            let is_enqueued = status == Status::Ready && !planted!(self, EnqueuesTwice);
            if matches!(status, Status::Waiting | Status::Ready) && !is_enqueued && missing == 0 {
                self.enqueue_last(place);
            }
        }
        self.submitted.clear();
    }

    /// Rolls the open transaction back.
    pub(super) fn rollback(&mut self, effects: &mut Vec<TaskEffect<W>>) {
        for place in self.cancelled.drain(..) {
            self.nodes[place as usize].doomed = planted!(self, RollbackForgetsCancelled);
        }
        for place in self.kept.drain(..) {
            self.nodes[place as usize].kept = false;
        }
        while let Some(place) = self.submitted.pop() {
            let id = self.id(place);
            if !planted!(self, RollbackForgetsEdges) {
                self.unlink_dependencies(place);
            }
            effects.push(TaskEffect::Cancelled(id, self.remove(place)));
        }
    }

    /// Takes the first task of the ready queue; it is running from now on.
    pub(super) fn take(&mut self) -> Option<(TaskId, W)> {
        let place = self.ready.first;
        if place == NONE {
            return None;
        }
        self.dequeue(place);
        self.nodes[place as usize].status = Status::Running;
        let work = self.nodes[place as usize].work.clone()?;
        Some((self.id(place), work))
    }

    /// Removes a running task whose body has ended; returns its work, and whether its outcome is to be published: not if it
    /// was cancelled.
    pub(super) fn finish(&mut self, id: TaskId) -> (W, bool) {
        let place = self.place(id).expect("a running task has its place");
        let wanted = match self.nodes[place as usize].status {
            Status::Running => true,
            Status::Abandoned => planted!(self, PublishesAbandoned),
            status => panic!("task {id} ended, which was {status:?}"),
        };
        if wanted {
            self.release(place);
        }
        (self.remove(place), wanted)
    }

    /// Records that the body of `current` waits for `awaited`; `false`, and nothing is recorded, if that is a deadlock:
    /// `awaited` depends on `current`, directly or not. Linear in the tasks that depend on `current`.
    pub(super) fn wait(&mut self, current: TaskId, awaited: TaskId) -> bool {
        let place = self.place(current).expect("a running task has its place");
        let target = self
            .place(awaited)
            .filter(|_| awaited.executor == self.executor);
        let mut reached = BTreeSet::from([place]);
        let mut open = vec![place];
        while let Some(place) = open.pop().filter(|_| target.is_some()) {
            if Some(place) == target {
                return false;
            }
            let mut edge = self.nodes[place as usize].dependants.first;
            while edge != NONE {
                let Edge {
                    dependant,
                    next_dependant,
                    ..
                } = self.edges[edge as usize];
                if reached.insert(dependant) {
                    open.push(dependant);
                }
                edge = next_dependant;
            }
            for (waiting, awaited) in &self.waiting {
                if *awaited == self.id(place) && reached.insert(*waiting) {
                    open.push(*waiting);
                }
            }
        }
        self.waiting.push((place, awaited));
        true
    }

    /// Records that the body of `current` no longer waits.
    pub(super) fn stop_waiting(&mut self, current: TaskId) {
        let place = current.place;
        self.waiting.retain(|(waiting, _)| *waiting != place);
    }

    /// The place of a task; `None` if it is done.
    fn place(&self, id: TaskId) -> Option<u32> {
        let node = self.nodes.get(id.place as usize)?;
        let is_it = node.number == id.number || planted!(self, ConfusesPlaces);
        let is_it = is_it && node.status != Status::Free;
        is_it.then_some(id.place)
    }

    fn id(&self, place: u32) -> TaskId {
        TaskId {
            number: self.nodes[place as usize].number,
            place,
            executor: self.executor,
        }
    }

    /// The state of the task at a place, as the open transaction sees it.
    fn visible(&self, place: u32) -> TaskState {
        let node = &self.nodes[place as usize];
        if node.doomed || node.kept {
            return TaskState::Done;
        }
        match node.status {
            Status::Free | Status::Abandoned => TaskState::Done,
            Status::Waiting if self.is_missing_some(place) => TaskState::Waiting,
            Status::Waiting | Status::Ready => TaskState::Ready,
            Status::Promised => TaskState::Promised,
            Status::Running => TaskState::Running,
        }
    }

    /// Has the task at a place a dependency that is not done, as the open transaction sees it?
    fn is_missing_some(&self, place: u32) -> bool {
        let node = &self.nodes[place as usize];
        node.missing > 0 && (self.kept.is_empty() || self.missing(place).next().is_some())
    }

    /// Places of the dependencies of the task at a place that are not done, as the open transaction sees it.
    fn missing(&self, place: u32) -> impl Iterator<Item = u32> {
        let mut edge = self.nodes[place as usize].dependencies.first;
        let dependencies = std::iter::from_fn(move || {
            let found = self.edges.get(edge as usize)?;
            edge = found.next_dependency;
            Some(found.dependency)
        });
        dependencies.filter(|&place| self.visible(place) != TaskState::Done)
    }

    fn dependencies_of(&self, place: u32) -> Vec<TaskId> {
        self.missing(place).map(|place| self.id(place)).collect()
    }

    /// A task of the open transaction, at a free place.
    fn add(&mut self, work: W, status: Status) -> u32 {
        let node = TaskNode {
            number: self.number,
            work: Some(work),
            status,
            doomed: false,
            kept: false,
            missing: 0,
            dependants: EMPTY,
            dependencies: EMPTY,
            next: NONE,
            previous: NONE,
        };
        self.number += 1;
        self.live += 1;
        let mut place = self.free_node;
        if place == NONE {
            place = self.nodes.len() as u32;
            self.nodes.push(node);
        } else {
            self.free_node = self.nodes[place as usize].next;
            self.nodes[place as usize] = node;
        }
        self.submitted.push(place);
        place
    }

    /// Frees a place that no edge leads to.
    fn remove(&mut self, place: u32) -> W {
        let node = &mut self.nodes[place as usize];
        node.status = Status::Free;
        node.doomed = false;
        node.kept = false;
        if !planted!(self, ForgetsPlace) {
            node.next = self.free_node;
            self.free_node = place;
        }
        self.live -= 1;
        node.work.take().expect("a task has work")
    }

    /// Marks a task as cancelled, unless it is.
    fn doom(&mut self, place: u32) {
        let node = &mut self.nodes[place as usize];
        if !node.doomed {
            node.doomed = true;
            self.cancelled.push(place);
        }
    }

    /// Carries a cancellation out. Its dependants were cancelled too, and remove their edges themselves.
    fn withdraw(&mut self, place: u32, effects: &mut Vec<TaskEffect<W>>) {
        let id = self.id(place);
        self.unlink_dependencies(place);
        let node = &mut self.nodes[place as usize];
        if node.status == Status::Running {
            node.status = Status::Abandoned;
            node.doomed = false;
            let work = node.work.clone().expect("a task has work");
            effects.push(TaskEffect::Cancelled(id, work));
            return;
        }
        if node.status == Status::Ready && !planted!(self, CancelForgetsReadyQueue) {
            self.dequeue(place);
        }
        effects.push(TaskEffect::Cancelled(id, self.remove(place)));
    }

    /// Removes the edges of all dependants of a task; those without further dependencies become ready.
    fn release(&mut self, place: u32) {
        // From the last to the first: each goes to the front of the ready queue.
        let mut edge = self.nodes[place as usize].dependants.last;
        while edge != NONE {
            let Edge {
                dependant,
                previous_dependant,
                ..
            } = self.edges[edge as usize];
            self.unlink(edge);
            let node = &self.nodes[dependant as usize];
            if node.missing == 0 {
                self.enqueue_released(dependant);
            }
            edge = previous_dependant;
        }
    }

    /// Puts a released task at the front of the ready queue: its inputs are in the caches, and finishing a chain before
    /// starting another frees memory. After [`OVERTAKING_MAX`] in a row one goes to the back, so that the others do not
    /// starve.
    fn enqueue_released(&mut self, place: u32) {
        if self.overtaking == OVERTAKING_MAX && !planted!(self, OvertakesForever) {
            self.overtaking = 0;
            return self.enqueue_last(place);
        }
        self.overtaking = (self.overtaking + 1).min(OVERTAKING_MAX);
        let first = self.ready.first;
        self.nodes[place as usize].next = first;
        self.nodes[place as usize].previous = NONE;
        match first {
            NONE => self.ready.last = place,
            first => self.nodes[first as usize].previous = place,
        }
        self.ready.first = place;
        self.ready_count += 1;
        self.nodes[place as usize].status = Status::Ready;
    }

    fn enqueue_last(&mut self, place: u32) {
        let last = self.ready.last;
        self.nodes[place as usize].previous = last;
        self.nodes[place as usize].next = NONE;
        match last {
            NONE => self.ready.first = place,
            last => self.nodes[last as usize].next = place,
        }
        self.ready.last = place;
        self.ready_count += 1;
        self.nodes[place as usize].status = Status::Ready;
    }

    fn dequeue(&mut self, place: u32) {
        let TaskNode { next, previous, .. } = self.nodes[place as usize];
        match previous {
            NONE => self.ready.first = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.ready.last = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        self.ready_count -= 1;
    }

    /// `dependant` waits for `dependency`.
    fn link(&mut self, dependant: u32, dependency: u32) {
        let edge = Edge {
            dependant,
            dependency,
            next_dependant: NONE,
            previous_dependant: self.nodes[dependency as usize].dependants.last,
            next_dependency: NONE,
            previous_dependency: self.nodes[dependant as usize].dependencies.last,
        };
        let mut place = self.free_edge;
        if place == NONE {
            place = u32::try_from(self.edges.len()).expect("fewer than 2^32 edges");
            self.edges.push(edge);
        } else {
            self.free_edge = self.edges[place as usize].next_dependant;
            self.edges[place as usize] = edge;
        }
        match edge.previous_dependant {
            NONE => self.nodes[dependency as usize].dependants.first = place,
            last => self.edges[last as usize].next_dependant = place,
        }
        self.nodes[dependency as usize].dependants.last = place;
        match edge.previous_dependency {
            NONE => self.nodes[dependant as usize].dependencies.first = place,
            last => self.edges[last as usize].next_dependency = place,
        }
        self.nodes[dependant as usize].dependencies.last = place;
        self.nodes[dependant as usize].missing += 1 + u32::from(planted!(self, CountsTwice));
    }

    /// Cuts an edge out of both lists.
    fn unlink(&mut self, place: u32) {
        let edge = self.edges[place as usize];
        let dependency = &mut self.nodes[edge.dependency as usize];
        match edge.previous_dependant {
            NONE => dependency.dependants.first = edge.next_dependant,
            previous => self.edges[previous as usize].next_dependant = edge.next_dependant,
        }
        match edge.next_dependant {
            NONE => dependency.dependants.last = edge.previous_dependant,
            next => self.edges[next as usize].previous_dependant = edge.previous_dependant,
        }
        let dependant = &mut self.nodes[edge.dependant as usize];
        dependant.missing -= 1;
        match edge.previous_dependency {
            NONE => dependant.dependencies.first = edge.next_dependency,
            previous => self.edges[previous as usize].next_dependency = edge.next_dependency,
        }
        match edge.next_dependency {
            NONE => dependant.dependencies.last = edge.previous_dependency,
            next => self.edges[next as usize].previous_dependency = edge.previous_dependency,
        }
        self.edges[place as usize].next_dependant = self.free_edge;
        self.free_edge = place;
    }

    fn unlink_dependencies(&mut self, place: u32) {
        let mut edge = self.nodes[place as usize].dependencies.first;
        while edge != NONE {
            let next = self.edges[edge as usize].next_dependency;
            self.unlink(edge);
            edge = next;
        }
    }
}

#[cfg(test)]
impl<W: Clone> TaskGraph<W> {
    /// All places ever used.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.nodes.len(), self.edges.len())
    }

    /// Checks that the lists mean what they say, from scratch.
    pub(super) fn check(&self) -> Result<(), String> {
        let known: Vec<u32> = (0..self.nodes.len() as u32)
            .filter(|&place| self.nodes[place as usize].status != Status::Free)
            .collect();
        let check = |holds: bool, what: &str| holds.then_some(()).ok_or(what.to_owned());
        check(self.live == known.len(), "live tasks are miscounted")?;
        let free = self.list(self.free_node, |place| self.nodes[place as usize].next)?;
        check(
            free.len() + known.len() == self.nodes.len(),
            "a place is lost",
        )?;
        let ready = self.list(self.ready.first, |place| self.nodes[place as usize].next)?;
        check(
            ready.len() == self.ready_count,
            "ready tasks are miscounted",
        )?;
        let is_ready = |&place: &u32| self.nodes[place as usize].status == Status::Ready;
        check(
            ready.iter().all(is_ready),
            "a task in the queue is not ready",
        )?;
        let count = known
            .iter()
            .copied()
            .filter(|place| is_ready(place))
            .count();
        check(count == ready.len(), "a ready task is not in the queue")?;
        check(
            ready.last().copied().unwrap_or(NONE) == self.ready.last,
            "the queue has another end",
        )?;
        let mut edges = 0;
        for &place in &known {
            let node = &self.nodes[place as usize];
            let of = self.list(node.dependencies.first, |edge| {
                self.edges[edge as usize].next_dependency
            })?;
            check(
                of.len() == node.missing as usize,
                "dependencies are miscounted",
            )?;
            let own = |edge: &u32| self.edges[*edge as usize].dependant == place;
            check(of.iter().all(own), "an edge is in a foreign list")?;
            let to = self.list(node.dependants.first, |edge| {
                self.edges[edge as usize].next_dependant
            })?;
            let own = |edge: &u32| self.edges[*edge as usize].dependency == place;
            check(to.iter().all(own), "an edge is in a foreign list")?;
            edges += to.len();
            let waits = node.status == Status::Waiting;
            check(node.missing == 0 || waits, "one that waits is not waiting")?;
            let journal = self.submitted.len() + self.cancelled.len() + self.kept.len();
            check(node.missing > 0 || !waits || journal > 0, "a task is lost")?;
            let is_marked = node.doomed || node.kept;
            check(!is_marked || journal > 0, "a mark is left of a transaction")?;
        }
        let free = self.list(self.free_edge, |edge| {
            self.edges[edge as usize].next_dependant
        })?;
        check(free.len() + edges == self.edges.len(), "an edge is lost")
    }

    /// The elements of a list.
    fn list(&self, first: u32, next: impl Fn(u32) -> u32) -> Result<Vec<u32>, String> {
        let mut found = Vec::new();
        let mut place = first;
        while place != NONE {
            found.push(place);
            if found.len() > self.nodes.len() + self.edges.len() {
                return Err("a list has no end".to_owned());
            }
            place = next(place);
        }
        Ok(found)
    }
}
