//! A snapshot of the tasks of an executor, for debugging.

use super::label::Label;
use super::task_cell::AnyTask;
use super::task_graph::{TaskGraph, TaskId, TaskState};
use std::sync::Arc;

/// A task at the time of a snapshot.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Its id.
    pub id: TaskId,
    /// Name and data.
    pub label: Label,
    /// Its state; never [`TaskState::Done`].
    pub state: TaskState,
    /// Its dependencies that were not done, in the order in which they were named.
    pub dependencies: Vec<TaskId>,
}

/// All pending and running tasks of an executor at one time, the oldest first. Linear in their number; for debugging.
#[derive(Clone, Debug)]
pub struct Snapshot {
    tasks: Vec<TaskView>,
}

impl Snapshot {
    pub(super) fn of(state: &TaskGraph<Arc<dyn AnyTask>>) -> Snapshot {
        let tasks = state.tasks().into_iter();
        let tasks = tasks.map(|(id, work, state, dependencies)| TaskView {
            id,
            label: work.label().clone(),
            state,
            dependencies,
        });
        Snapshot {
            tasks: tasks.collect(),
        }
    }

    /// All tasks, the oldest first.
    pub fn tasks(&self) -> &[TaskView] {
        &self.tasks
    }

    /// The task with this id; `None` if it was done.
    pub fn task(&self, id: TaskId) -> Option<&TaskView> {
        let place = self.tasks.binary_search_by_key(&id, |task| task.id);
        place.ok().map(|place| &self.tasks[place])
    }

    /// Number of tasks in this state.
    pub fn count(&self, state: TaskState) -> usize {
        let with = self.tasks.iter().filter(|task| task.state == state);
        with.count()
    }
}
